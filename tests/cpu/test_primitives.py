"""Every primitive's LLVM code against NumPy, Python's integers and numerics.convert."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlokit.cpu.llvm import I32, Function, Module, Value, memory_type, type_of
from hlokit.cpu.math.primitives import constant, emit
from hlokit.cpu.target import Target
from hlokit.errors import UnsupportedError
from hlokit.forms.primitives import PRIMITIVES
from hlokit.ops.numerics import bits_of, convert, from_bits
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType, f32, f64, pred, s32, u8
from tests.cpu.native import Native, apply, avx2, map_arrays, map_function, map_module

Array = np.ndarray[Any, Any]

TYPES = [t for t in DTYPES.values() if t.is_array and not t.is_complex and t.name not in ("s1", "u1")]
INTEGERS = [t for t in TYPES if t.is_integral and t.bits >= 8]
KINDS = {"pred": "pred", "signed": "integer", "unsigned": "integer", "floating": "float"}
ELSEWHERE = {"select", "convert", "to_bits", "from_bits", "complex", "real", "imag"}
CASES = [
    (p.name, t)
    for p in PRIMITIVES.values()
    for t in [pred, *INTEGERS, f32, f64]
    if KINDS[t.kind] in p.kinds and p.name not in ELSEWHERE and p.ulp is None
]


def mapped(
    name: str, operands: list[Array], inputs: list[DType], result: DType, lanes: int, target: Target | None = None
) -> Array:
    dtype = inputs[-1]

    def body(values: list[Value]) -> Value:
        return emit(name, dtype, values, result)

    return map_arrays(body, operands, inputs, result, lanes, target)


def assert_same(got: Array, expected: Array, dtype: DType, *operands: Array) -> None:
    if dtype.is_floating:
        with np.errstate(all="ignore"):
            wide, wanted = (convert(a, np.dtype("float64")) for a in (got, expected))
        same = (wide == wanted) & (np.signbit(wide) == np.signbit(wanted)) | np.isnan(wide) & np.isnan(wanted)
    else:
        same = got == expected
    wrong = np.nonzero(~same)[0][:5]
    assert same.all(), [(*(a[k] for a in operands), got[k], expected[k]) for k in wrong]


def operands_of(name: str, dtype: DType, arity: int) -> list[Array]:
    rng = np.random.default_rng(3)
    if dtype.kind == "pred":
        return [rng.integers(0, 2, 256).astype(bool) for _ in range(arity)]
    if dtype.is_floating:
        return _floats(dtype, rng)[:arity]
    word = f"u{dtype.bits // 8}"
    whole = (
        [rng.integers(0, 1 << dtype.bits, 500, dtype=np.uint64, endpoint=False) for _ in range(2)]
        if (dtype.bits < 64)
        else [rng.integers(0, (1 << 64) - 1, 500, dtype=np.uint64, endpoint=True) for _ in range(2)]
    )
    x, y = ((v >> rng.integers(0, dtype.bits, 500).astype(np.uint64)).astype(word).view(dtype.numpy) for v in whole)
    if name in ("div", "rem"):
        y = np.where((y == 0) | (y == -1), dtype.numpy.type(3), y) if dtype.is_signed else np.maximum(y, 1)
    if name in ("shl", "shr", "sar"):
        y = (y.view(word) % dtype.bits).astype(dtype.numpy)
    return [x, y][:arity]


def _floats(dtype: DType, rng: np.random.Generator) -> list[Array]:
    bits = [rng.integers(0, 1 << 63, 500, dtype=np.uint64) * 2 + 1 for _ in range(2)]
    anything = [(b >> np.uint64(64 - dtype.bits)).astype(f"u{dtype.bits // 8}").view(dtype.numpy) for b in bits]
    special = [0.0, np.inf, np.nan, 1.0, 2.5, 0.5, 1.5, 1e-40, 3.0, 1e30]
    grid = np.meshgrid(*[[sign * v for v in special for sign in (1, -1)]] * 2)
    wide = [rng.standard_normal(300) * 2.0 ** rng.uniform(-3, 60, 300), rng.standard_normal(300)]
    whole = [rng.integers(-50, 50, 300), rng.integers(1, 9, 300)]
    rows = zip(anything, grid, wide, whole, strict=True)
    return [np.concatenate([part.ravel().astype(dtype.numpy) for part in row]) for row in rows]


def _python_integers(name: str, dtype: DType, x: int, y: int) -> int:
    field = (1 << dtype.bits) - 1
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if name in ("div", "rem") else 0
    match name:
        case "div":
            return quotient
        case "rem":
            return x - quotient * y
        case "shl":
            return x << y
        case "shr":
            return (x & field) >> y
        case "sar":
            return (x & field if not dtype.is_signed else x) >> y if dtype.is_signed else _signed(x, dtype) >> y
        case "popcnt":
            return (x & field).bit_count()
        case "clz":
            return dtype.bits - (x & field).bit_length()
        case _:
            return x * y >> dtype.bits  # mul_high


def _signed(x: int, dtype: DType) -> int:
    return x - (1 << dtype.bits) if x >> (dtype.bits - 1) else x


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round_even": np.rint, "copysign": np.copysign, "sqrt": np.sqrt,
}  # fmt: skip


def expected_of(name: str, dtype: DType, operands: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        if name in NUMPY:
            return np.asarray(NUMPY[name](*operands))
        if name in ("max", "min"):
            return _extreme(name, dtype, *operands)
        if dtype.is_floating:
            return np.asarray(np.divide(*operands) if name == "div" else np.fmod(*operands))
    pairs = zip(operands[0], operands[-1], strict=True)
    whole = [_python_integers(name, dtype, int(x), int(y)) & ((1 << dtype.bits) - 1) for x, y in pairs]
    return np.array(whole, np.uint64).astype(f"u{dtype.bits // 8}").view(dtype.numpy)


def _extreme(name: str, dtype: DType, x: Array, y: Array) -> Array:
    if not dtype.is_floating:
        return np.maximum(x, y) if name == "max" else np.minimum(x, y)
    is_max = name == "max"
    negative = np.signbit(x) & np.signbit(y) if is_max else np.signbit(x) | np.signbit(y)
    zero = np.where(negative, dtype.numpy.type(-0.0), dtype.numpy.type(0.0))
    return np.where((x == 0) & (y == 0), zero, np.maximum(x, y) if is_max else np.minimum(x, y))


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_arithmetic(name: str, dtype: DType) -> None:
    primitive = PRIMITIVES[name]
    operands = operands_of(name, dtype, primitive.arity)
    result = pred if primitive.result == "pred" else dtype
    expected = expected_of(name, dtype, operands)
    for lanes in (1, 16):
        got = mapped(name, operands, [dtype] * primitive.arity, result, lanes)
        assert_same(got, expected, result, *operands)


@pytest.mark.parametrize("name", ["max", "div", "rem", "mul_high", "clz"])
def test_without_avx512(name: str) -> None:
    for dtype in [t for n, t in CASES if n == name and t.bits >= 16]:
        operands = operands_of(name, dtype, PRIMITIVES[name].arity)
        got = mapped(name, operands, [dtype] * len(operands), dtype, 64, avx2())
        assert_same(got, expected_of(name, dtype, operands), dtype, *operands)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, float("nan")])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_a_constant(name: str, value: float) -> None:
    """Shorter code: one instruction where the constant is no zero."""
    x = operands_of(name, f32, 2)[0]
    expected = expected_of(name, f32, [x, np.full_like(x, value)])
    for order in (1, -1):

        def body(values: list[Value], order: int = order) -> Value:
            return emit(name, f32, [*values, values[0].value(value)][::order], f32)

        assert_same(map_arrays(body, [x], [f32], f32, 16), expected, f32, x)


# -- conversion


def values_of(dtype: DType) -> Array:
    """All bit patterns up to 16 bits; else samples of all sizes, and what lies halfway between narrower floats."""
    rng = np.random.default_rng(5)
    if dtype.kind == "pred":
        return np.array([False, True] * 8)
    if dtype.bits <= 16:
        return from_bits(np.arange(1 << dtype.bits, dtype=f"u{max(1, dtype.bits // 8)}"), dtype.numpy)
    word = f"u{dtype.bits // 8}"
    anything = (rng.integers(0, 1 << 63, 3000, dtype=np.uint64) * 2 + 1 >> np.uint64(64 - dtype.bits)).astype(word)
    if dtype.is_integral:
        up = rng.integers(0, dtype.bits, 3000).astype(word)
        near_powers = (np.asarray(1, word) << up) + rng.integers(-2, 3, 3000).astype(word)
        return np.concatenate([anything, anything >> up, near_powers, (anything >> (dtype.bits - 9) << up) | 1]).view(
            dtype.numpy
        )
    limits = [0.0, np.inf, np.nan, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 2.0**31 - 1, 65519.9, 65520, 1e-45, 1e-40, 1e300]
    with np.errstate(all="ignore"):
        parts = [anything.view(dtype.numpy), np.array([s * v for v in limits for s in (1, -1)]).astype(dtype.numpy)]
        parts += [(rng.standard_normal(2000) * 2.0 ** rng.uniform(-90, 90, 2000)).astype(dtype.numpy)]
        parts += [(np.arange(-600, 600) / 8 * scale).astype(dtype.numpy) for scale in (1, 2.0**12, 2.0**56)]
        parts += [_halfway(t).astype(dtype.numpy) for t in TYPES if t.is_floating and t.bits <= 16]
    return np.concatenate(parts)


def _halfway(narrow: DType) -> Array:
    step = 37 if narrow.bits == 16 else 1
    values = convert(values_of(narrow), np.dtype("float64"))
    values = np.unique(values[np.isfinite(values)])
    middle = ((values[1:] + values[:-1]) / 2)[::step]
    return np.concatenate(
        [middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), middle * (1 + 2.0**-23)]
    )


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_convert(source: DType) -> None:
    operand, module = values_of(source), Module()
    for target in TYPES:

        def body(values: list[Value], target: DType = target) -> Value:
            return emit("convert", source, values, target)

        module.add(map_function(f"to_{target}", body, [source], target, 8), exported=True)
    native = Native(module)
    for target in TYPES:
        with np.errstate(all="ignore"):
            expected = convert(operand, target.numpy)
        assert_same(apply(native, f"to_{target}", [operand], target, 8), expected, target, operand)


@pytest.mark.parametrize(
    "pair", [("f64", "f16"), ("f32", "f8e4m3fn"), ("s64", "bf16"), ("f32", "u64"), ("f64", "s8"), ("f32", "bf16")]
)
def test_convert_in_other_widths_and_without_avx512(pair: tuple[str, str]) -> None:
    source, target = DTYPES[pair[0]], DTYPES[pair[1]]
    operand = values_of(source)
    with np.errstate(all="ignore"):
        expected = convert(operand, target.numpy)
    for lanes, machine in ((1, None), (64, None), (32, avx2())):
        assert_same(mapped("convert", [operand], [source], target, lanes, machine), expected, target, operand)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_bits_there_and_back(dtype: DType) -> None:
    operand = values_of(dtype)
    word = dtypes.unsigned_of(max(8, dtype.bits))
    assert word is not None
    bits = mapped("to_bits", [operand], [dtype], word, 16)
    np.testing.assert_array_equal(bits, bits_of(operand).astype(word.numpy))
    back = mapped("from_bits", [bits], [word], dtype, 16)
    np.testing.assert_array_equal(bits_of(back), bits_of(operand))


def test_upper_bits_are_ignored() -> None:
    every = np.arange(256, dtype=np.uint8)
    for dtype in (dtypes.s4, dtypes.u4, dtypes.f4e2m1fn):
        got = mapped("from_bits", [every], [u8], dtype, 16)
        np.testing.assert_array_equal(bits_of(got), every & 15)


# -- selection, constants, errors


@pytest.mark.parametrize("dtype", [pred, u8, dtypes.bf16, f64], ids=str)
def test_select(dtype: DType) -> None:
    condition = np.arange(64) % 3 == 0
    then, otherwise = values_of(dtype)[:16].repeat(4), values_of(dtype)[:16][::-1].repeat(4)
    got = _selected(condition, then, otherwise, dtype, 16)
    np.testing.assert_array_equal(bits_of(got), np.where(condition, bits_of(then), bits_of(otherwise)))


def _selected(condition: Array, then: Array, otherwise: Array, dtype: DType, lanes: int) -> Array:
    def body(values: list[Value]) -> Value:
        return emit("select", dtype, values, dtype)

    return map_arrays(body, [condition, then, otherwise], [pred, dtype, dtype], dtype, lanes)


def test_select_by_one_condition() -> None:
    x = np.arange(32, dtype=np.float32)

    def body(values: list[Value]) -> Value:
        condition = values[0].lane(0).eq(0.0)
        minus = emit("neg", f32, values, f32)
        return emit("select", f32, [condition, *values, minus], f32)

    np.testing.assert_array_equal(map_arrays(body, [x], [f32], f32, 16), np.where(x < 16, x, -x))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_constants_keep_every_bit(dtype: DType) -> None:
    values = values_of(dtype)
    chosen = values[:: max(1, len(values) // 40)]
    if dtype is f32:
        payload = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
        chosen = np.concatenate([chosen, payload])
    got = _constants(chosen, dtype)
    np.testing.assert_array_equal(bits_of(got), bits_of(chosen))


def _constants(values: Array, dtype: DType) -> Array:
    """The constants as the bytes of a global array."""
    kind = memory_type(dtype)
    shown = {"true": "1", "false": "0"}
    fn = Function("constants", [])
    texts = [constant(fn, v, dtype).text for v in values]
    rows = ", ".join(f"{kind} {shown.get(t, t)}" for t in texts)
    size = len(values) * dtype.numpy.itemsize
    text = (
        f"@data = constant [{len(values)} x {kind}] [{rows}]\n"
        f"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
        f"define void @main(ptr %out) {{\n"
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr @data, i64 {size}, i1 false)\n  ret void\n}}\n"
    )
    out = np.zeros(len(values), dtype.numpy)
    Native(text)("main", out)
    return out


def test_what_has_no_code_says_so() -> None:
    fn = Function("f", [])
    with pytest.raises(UnsupportedError, match="complex"):
        emit("complex", f32, [fn.constant(0.0, type_of("float"))] * 2, dtypes.c64)
    with pytest.raises(UnsupportedError, match="floor"):
        emit("floor", s32, [fn.constant(0, I32)], s32)


def test_every_primitive_assembles_for_arm() -> None:
    import llvmlite.binding as llvm

    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple("aarch64-linux-gnu").create_target_machine(features="+neon")
    except RuntimeError:
        pytest.skip("this LLVM has no aarch64")
    target = Target("aarch64-linux-gnu", "generic", "+neon", 16)
    for primitive in PRIMITIVES.values():
        if primitive.name in ("complex", "real", "imag", "select", "to_bits", "from_bits", "convert"):
            continue
        dtype = f32 if "float" in primitive.kinds else s32
        result = pred if primitive.result == "pred" else dtype

        def body(values: list[Value], name: str = primitive.name, result: DType = result) -> Value:
            return emit(name, dtype, values, result)  # noqa: B023

        module = llvm.parse_assembly(map_module(body, [dtype] * primitive.arity, result, 4, target).text())
        module.triple = target.triple
        assert "ret" in machine.emit_assembly(module)
