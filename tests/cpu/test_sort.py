"""sort and topk in machine code against the reference; the order of equal elements is always kept (SORT-9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit
from hlokit.cpu.kernels.routine import KERNELS, Call
from hlokit.cpu.kernels.sort.comparators import recognise
from hlokit.cpu.kernels.sort.routine import SortPlan, plan
from hlokit.cpu.kernels.sort.vector import VectorSort, supports
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target, baseline, parse
from hlokit.hlo.module import HloModule
from hlokit.ops.sorting import Sort, TopK
from hlokit.types.dtype import dtype
from hlokit.types.shape import shape_of
from tests.cpu.native import Native, avx2, host
from tests.cpu.routines import Routines, bits

_RANDOM = np.random.default_rng(3)
_ELEMENTS = ["f32", "s32", "f64", "u64", "s8", "pred", "bf16", "u16", "f8e4m3fn", "s4"]
_SIZES = [((1,), 0), ((7, 5), 1), ((70, 130, 2), 1), ((300, 3), 0), ((140000,), 0), ((33000, 2), 0), ((3, 0), 0)]
_NEVER_CALLED = "define internal i1 @less() {\n  ret i1 false\n}\n"
_KEYS = {
    "TOTAL LT": "compare(p0, p1), direction=LT, type=TOTALORDER",
    "TOTAL GT": "compare(p0, p1), direction=GT, type=TOTALORDER",
    "LT": "compare(p0, p1), direction=LT",
    "GT": "compare(p0, p1), direction=GT",
    "LT of GT": "compare(p1, p0), direction=GT",
    "JAX LT": "compare(x0, x1), direction=LT, type=TOTALORDER",
    "JAX GT": "compare(x0, x1), direction=GT, type=TOTALORDER",
}


def _elements(element: str, sizes: tuple[int, ...]) -> Any:
    """Random bits of integers and the small types; of floats few different numbers, NaNs and both zeros."""
    of = dtype(element)
    if of.name == "pred":
        return _RANDOM.integers(0, 2, sizes).astype(np.bool_)
    if of.is_floating and of.bits > 8:
        values = np.round(_RANDOM.standard_normal(sizes) * 3) * _RANDOM.choice([1, -1, -0.0, np.nan], sizes)
        return values.astype(of.numpy)
    raw = _RANDOM.integers(0, 256, (*sizes[:-1], sizes[-1] * max(1, of.bits // 8)), np.uint8)
    return (raw & np.uint8(min(255, (1 << of.bits) - 1))).view(of.numpy)


def _positions(sizes: tuple[int, ...], dimension: int) -> Any:
    shape = [size if d == dimension else 1 for d, size in enumerate(sizes)]
    return np.broadcast_to(np.arange(sizes[dimension], dtype=np.int32).reshape(shape), sizes)


def _canonical(element: str, numbers: tuple[int, ...] = (0, 1)) -> list[str]:
    """x = p with zeros and NaNs made equal, as JAX writes it."""
    lines = [f"zero = {element}[] constant(0)", f"bad = {element}[] constant(nan)"]
    for k in numbers:
        lines += [
            f"n{k} = pred[] compare(p{k}, p{k}), direction=NE",
            f"z{k} = pred[] compare(p{k}, zero), direction=EQ",
            f"y{k} = {element}[] select(z{k}, zero, p{k})",
            f"x{k} = {element}[] select(n{k}, bad, y{k})",
        ]
    return lines


def _module(operands: list[Any], dimension: int, comparator: list[str]) -> HloModule:
    """A sort of arguments; the comparator's parameters are p0, p1, ..."""
    shapes = [shape_of(o) for o in operands]
    parameters = [f"p{k} = {shapes[k // 2].dtype}[] parameter({k})" for k in range(2 * len(shapes))]
    result = str(shapes[0]) if len(shapes) == 1 else f"({', '.join(map(str, shapes))})"
    arguments = [f"a{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
    names = ", ".join(f"a{k}" for k in range(len(shapes)))
    call = f"ROOT s = {result} sort({names}), dimensions={{{dimension}}}, to_apply=less"
    lines = ["HloModule m", "", "less {", *parameters, *comparator, "}", "", "ENTRY main {", *arguments, call, "}"]
    return hlokit.parse("\n".join(lines))


def _check(operands: list[Any], dimension: int, comparator: list[str], target: Target | None = None) -> None:
    """A sort by the recognised order of keys."""
    module = _module(operands, dimension, comparator)
    less = next(c for c in module.computations() if c.name == "less")
    assert recognise(less) is not None
    shapes = tuple(map(shape_of, operands))
    roles = {"functions": {"to_apply": "less"}, "computations": {"to_apply": less}}
    routines = Routines(
        Call(Sort(dimension=dimension), shapes, shapes, target or host(), **roles),  # type: ignore[call-arg, arg-type]
        KERNELS["sort"],
        _NEVER_CALLED,
    )
    expected = hlokit.evaluate(module, *operands)
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    for backwards in (False, True):
        for a, b in zip(routines(*operands, backwards=backwards), expected, strict=True):
            assert np.array_equal(bits(a), bits(b))


@pytest.mark.parametrize(
    ("size", "target", "direction", "algorithm"),
    [
        (1000, "x86-64-avx512", "LT", "vector"),
        (1000, "x86-64-avx2", "LT", "radix"),
        (50, "x86-64-avx2", "LT", "rank"),
        (1000, "x86-64-avx512", "LE", "merge"),
    ],
)
def test_plans(size: int, target: str, direction: str, algorithm: str) -> None:
    """The algorithm is chosen without a module to write into."""
    values = np.zeros(size, np.float32)
    module = _module([values], 0, [f"ROOT r = pred[] compare(p0, p1), direction={direction}"])
    less = next(c for c in module.computations() if c.name == "less")
    shapes, roles = (shape_of(values),), {"functions": {"to_apply": "less"}, "computations": {"to_apply": less}}
    found = plan(Call(Sort(dimension=0), shapes, shapes, parse(target), **roles))  # type: ignore[call-arg, arg-type]
    assert isinstance(found, SortPlan)
    assert found.algorithm == algorithm


# -- known orders of keys


_ORDERED = [(k, e) for k in _KEYS for e in _ELEMENTS if dtype(e).is_floating or k in ("LT", "GT")]
"""Integers have one order."""


@pytest.mark.parametrize(("key", "element"), _ORDERED)
def test_keys(key: str, element: str) -> None:
    """By ranks and by digits; elements made from their keys."""
    canonical = _canonical(element) if "JAX" in key else []
    for size in (20, 300):
        _check([_elements(element, (3, size))], 1, [*canonical, f"ROOT r = pred[] {_KEYS[key]}"])


@pytest.mark.parametrize(("sizes", "dimension"), _SIZES, ids=str)
@pytest.mark.parametrize("others", [[], ["s32"], ["s8"], ["f64", "bf16"]], ids=str)
def test_operands(others: list[str], sizes: tuple[int, ...], dimension: int) -> None:
    """Whatever goes along with a key, in whatever dimension: lines in one chunk or in several."""
    operands = [_elements("f32", sizes), *(_elements(e, sizes) for e in others)]
    _check(operands, dimension, [*_canonical("f32"), f"ROOT r = pred[] {_KEYS['JAX LT']}"])


@pytest.mark.parametrize("size", [50, 500, 40000])
def test_equal_digits(size: int) -> None:
    """Digits in which all keys are the same are passed over."""
    for values in (_RANDOM.integers(0, 9, size), _RANDOM.integers(0, 9, size) << 40, np.full(size, -3)):
        _check([values.astype(np.int64), _positions((size,), 0)], 0, ["ROOT r = pred[] compare(p0, p1), direction=LT"])


@pytest.mark.parametrize("size", [50, 500])
@pytest.mark.parametrize("last", ["or(first, both)", "or(both, first)", "select(equal, second, first)"])
def test_two_keys(last: str, size: int) -> None:
    comparator = [
        *_canonical("f32"),
        "first = pred[] compare(x0, x1), direction=LT, type=TOTALORDER",
        "equal = pred[] compare(x0, x1), direction=EQ, type=TOTALORDER",
        "second = pred[] compare(p2, p3), direction=GT",
        "both = pred[] and(equal, second)",
        f"ROOT r = pred[] {last}",
    ]
    _check([_elements("f32", (size,)), _elements("s8", (size,)), _positions((size,), 0)], 0, comparator)


def test_components() -> None:
    """Complex numbers by real parts, then imaginary ones."""
    comparator = [
        *(f"{part}{k} = f32[] {part}(p{k})" for part in ("real", "imag") for k in (0, 1)),
        "first = pred[] compare(real0, real1), direction=LT, type=TOTALORDER",
        "equal = pred[] compare(real0, real1), direction=EQ, type=TOTALORDER",
        "second = pred[] compare(imag0, imag1), direction=LT, type=TOTALORDER",
        "both = pred[] and(equal, second)",
        "ROOT r = pred[] or(first, both)",
    ]
    for size in (50, 300):
        _check([(_elements("f32", (size,)) + 1j * _elements("f32", (size,))).astype(np.complex64)], 0, comparator)


@pytest.mark.parametrize("target", [avx2(), baseline("x86-64")], ids=["avx2", "sse2"])
@pytest.mark.parametrize("size", [50, 300, 40000])
@pytest.mark.parametrize(("element", "others"), [("f32", []), ("f32", ["s32"]), ("f32", ["s8"]), ("f64", ["u64"])])
def test_other_targets(element: str, others: list[str], size: int, target: Target) -> None:
    if not host().triple.startswith("x86_64"):
        pytest.skip("not this machine's")
    operands = [_elements(e, (size,)) for e in (element, *others)]
    _check(operands, 0, [*_canonical(element), f"ROOT r = pred[] {_KEYS['JAX LT']}"], target)


@pytest.mark.parametrize("sizes", [(40000,), (3, 300), (700, 5), (40, 37)], ids=str)
@pytest.mark.parametrize("last", [0, 1])
def test_positions(last: int, sizes: tuple[int, ...]) -> None:
    """What seems to be the elements' numbers, and is but for one; and what is."""
    dimension = len(sizes) - 1 if sizes[0] == 3 else 0
    operands = [_elements("s16", sizes), _positions(sizes, dimension).copy(), _positions(sizes, dimension)]
    operands[1].reshape(-1)[-1] += last
    _check(operands, dimension, ["ROOT r = pred[] compare(p0, p1), direction=LT"])


@pytest.mark.parametrize("kind", ["random", "sorted", "falling", "few", "equal", "greatest", "one", "organ pipe"])
def test_orders_of_long_lines(kind: str) -> None:
    rising = np.arange(150000, dtype=np.uint32)
    random = _RANDOM.integers(0, 2**32, rising.size, np.uint32)
    operand = {
        "random": random,
        "sorted": rising,
        "falling": rising[::-1],
        "few": random % 3,
        "equal": rising * 0,
        "greatest": np.uint32(2**32 - 1) - random % 2,
        "one": np.where(rising == 77777, 5, 2**31).astype(np.uint32),
        "organ pipe": np.minimum(rising, rising[::-1]),
    }[kind]
    _check([np.ascontiguousarray(operand)], 0, ["ROOT r = pred[] compare(p0, p1), direction=LT"])


@pytest.mark.parametrize("patience", [0, 64])
@pytest.mark.parametrize("bits", [32, 64])
def test_vectors(bits: int, patience: int) -> None:
    """Items of all counts, in place; those that follow are great ones. Without patience pivots halve ranges."""
    if not supports(host()):
        pytest.skip("not this machine's")
    of = np.dtype(f"u{bits // 8}")
    for size in (60, 100, 3000):
        module, sorter = Module(), VectorSort("items", bits, size, patience)
        sorter.write(module)
        f = Function("sort", [("ptr", "items"), ("i64", "n"), ("ptr", "spare")])
        sorter.call(f.pointer("items", sorter.item), f.index_argument("n"), f.pointer("spare"))
        f.returns()
        module.add(f, exported=True)
        native = Native(module)
        for count in sorted({0, 1, 33, size // 2, size - 1, size}):
            random = _RANDOM.integers(0, 2**bits, count, of)
            for values in (random, random % of.type(7), ~(random % of.type(2)), np.sort(random)):
                items = np.full(count + sorter.overrun + 64, 2**bits - 1, of)
                items[64 : 64 + count] = values
                items[:64] = 77
                native("sort", items[64:], count, np.empty(count + sorter.padding, of))
                assert np.array_equal(items[64 : 64 + count], np.sort(values))
                assert (items[:64] == 77).all() and (items[64 + count :] == 2**bits - 1).all()


@pytest.mark.parametrize(
    "comparator",
    [
        ["ROOT r = pred[] compare(p0, p1), direction=LE"],
        ["ROOT r = pred[] compare(p0, p3), direction=LT"],
        ["n = f32[] negate(p0)", "ROOT r = pred[] compare(n, p1), direction=LT"],
        ["z = f32[] constant(-0)", "y = pred[] compare(p0, z), direction=EQ", "x = f32[] select(y, z, p0)",
         "ROOT r = pred[] compare(x, p1), direction=LT"],
        ["a = pred[] compare(p0, p1), direction=LT", "b = pred[] compare(p2, p3), direction=EQ",
         "c = pred[] compare(p2, p3), direction=GT", "d = pred[] and(b, c)", "ROOT r = pred[] or(a, d)"],
    ],
    ids=["not strict", "of two operands", "of functions", "half canonical", "equal of another key"],
)  # fmt: skip
def test_unknown_orders(comparator: list[str]) -> None:
    module = _module([_elements("f32", (5,)), _elements("f32", (5,))], 0, comparator)
    assert recognise(next(c for c in module.computations() if c.name == "less")) is None


# -- any comparator


def _merged(operands: list[Any], dimension: int, parameters: str, body: str, target: Target | None = None) -> Any:
    shapes = tuple(map(shape_of, operands))
    call = Call(Sort(dimension=dimension), shapes, shapes, target or host(), {"to_apply": "less"})  # type: ignore[call-arg]
    routines = Routines(call, KERNELS["sort"], f"define internal i1 @less({parameters}) alwaysinline {{\n{body}\n}}\n")
    results = routines(*operands)
    for a, b in zip(routines(*operands, backwards=True), results, strict=True):
        assert np.array_equal(bits(a), bits(b))
    return results


@pytest.mark.parametrize(("sizes", "dimension"), [*_SIZES, ((2, 40001), 1), ((100,), 0)], ids=str)
def test_merges(sizes: tuple[int, ...], dimension: int) -> None:
    keys, positions = np.nan_to_num(_elements("f32", sizes)), _positions(sizes, dimension)
    parameters, body = "float %a, float %b, i32 %c, i32 %d", "  %r = fcmp ogt float %a, %b\n  ret i1 %r"
    results = _merged([keys, positions], dimension, parameters, body)
    order = np.argsort(-keys, dimension, kind="stable")
    assert np.array_equal(results[1], order)
    assert np.array_equal(bits(results[0]), bits(np.take_along_axis(keys, order, dimension)))


@pytest.mark.parametrize("element", ["pred", "s4", "u8", "bf16", "f64", "c64", "c128"])
def test_merged_types(element: str) -> None:
    """Each type moves as it lies; the comparator gets it in registers (here: s8 keys)."""
    types = {"pred": "i1", "s4": "i8", "u8": "i8", "bf16": "i16", "f64": "double", "c64": "float", "c128": "double"}
    keys = _elements("s8", (3, 90))
    values = _RANDOM.standard_normal((3, 90)) * 5
    values = (values + 1j * values[::-1] if element[0] == "c" else values).astype(dtype(element).numpy)
    scalars = 4 if element[0] == "c" else 2
    parameters = ", ".join([f"{types[element]} %v{k}" for k in range(scalars)] + ["i8 %a", "i8 %b"])
    results = _merged([values, keys], 1, parameters, "  %r = icmp slt i8 %a, %b\n  ret i1 %r")
    order = np.argsort(keys, 1, kind="stable")
    assert np.array_equal(bits(results[0]), bits(np.take_along_axis(values, order, 1)))


def test_merges_by_components() -> None:
    """A complex number is two parameters: those of the first element, then those of the second."""
    values = (_RANDOM.integers(0, 9, 200) + 1j * _RANDOM.integers(0, 9, 200)).astype(np.complex64)
    body = "  %r = fcmp olt float %ai, %bi\n  ret i1 %r"
    (result,) = _merged([values], 0, "float %ar, float %ai, float %br, float %bi", body)
    assert np.array_equal(result, values[np.argsort(values.imag, kind="stable")])


def test_extended_keys() -> None:
    """The comparator gets s4 with its sign, whatever the bits above are in memory."""
    raw = _RANDOM.integers(0, 256, 100, np.uint8)
    values = (raw & np.uint8(15)).view(dtype("s4").numpy)
    (result,) = _merged([values], 0, "i8 %a, i8 %b", "  %r = icmp slt i8 %a, %b\n  ret i1 %r")
    assert np.array_equal(result.astype(np.int8), np.sort(values.astype(np.int8)))


@pytest.mark.parametrize("size", [3, 100, 1000, 40000])
@pytest.mark.parametrize("answer", ["true", "%odd", "%not_greater"])
def test_no_order(answer: str, size: int) -> None:
    """A comparator that is no strict weak order gives some permutation."""
    body = (
        "  %x = mul i32 %a, %b\n  %y = and i32 %x, 4\n  %odd = icmp eq i32 %y, 0\n"
        f"  %not_greater = icmp sle i32 %a, %b\n  ret i1 {answer}"
    )
    positions = _positions((size,), 0)
    values = (positions * np.int32(1234567) % np.int32(1009)).astype(np.int32)
    results = _merged([values, positions], 0, "i32 %a, i32 %b, i32 %c, i32 %d", body)
    assert np.array_equal(np.sort(results[1]), positions)
    assert np.array_equal(results[0], values[results[1]])


# -- topk


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", [*_ELEMENTS, "f16", "f8e4m3b11fnuz", "u4"])
def test_topk(element: str, largest: bool) -> None:
    for sizes in ((1,), (3, 70), (2, 500, 3)):
        for k in sorted({1, min(2, sizes[-1]), sizes[-1]}):
            _check_topk(_elements(element, sizes), k, largest)


@pytest.mark.parametrize(
    ("sizes", "k"), [((300000,), 100), ((300000,), 20000), ((2, 140000), 8), ((70, 999), 300), ((3, 0), 0), ((3, 5), 0)]
)
def test_topk_sizes(sizes: tuple[int, ...], k: int) -> None:
    """Long lines in several chunks, many lines, nothing at all."""
    _check_topk(_elements("f32", sizes), k, True)


def test_topk_rising() -> None:
    """Every element is better than all before."""
    _check_topk(np.arange(300000, dtype=np.int32), 50, True)


def _check_topk(operand: Any, k: int, largest: bool) -> None:
    op = TopK(k=k, largest=largest)  # type: ignore[call-arg]
    results = tuple(op.infer(shape_of(operand)).leaves())
    routines = Routines(Call(op, (shape_of(operand),), results, host()), KERNELS["topk"])
    expected = op.reference(operand)
    for backwards in (False, True):
        for a, b in zip(routines(operand, backwards=backwards), expected, strict=True):
            assert np.array_equal(bits(a), bits(b))
