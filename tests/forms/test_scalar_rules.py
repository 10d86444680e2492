"""Every map op on every element type it takes: all values of the narrow types, the special ones of the wide."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hlokit.errors import ShapeError
from hlokit.hlo.op import OPS, Op
from hlokit.ops.comparison import Compare
from hlokit.ops.conversion import Convert, ReducePrecision, StochasticConvert
from hlokit.ops.numerics import from_bits
from hlokit.types.dtype import DTYPES, DType, unsigned_of
from hlokit.types.shape import Shape
from tests.forms.agree import difference
from tests.forms.evaluator import by_form

Array = np.ndarray[Any, np.dtype[Any]]

TYPES = [t for t in DTYPES.values() if t.is_array]
NAMED = {"convert", "compare", "reduce-precision", "stochastic-convert", "map"}
PLAIN = sorted(op for op in OPS if OPS[op].form == "map" and op not in NAMED)
_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 88.0, -88.0, 1e-8, 1e8, 0.999, 1.001]


def values(dtype: DType) -> Array:
    """Elements of the type: all of them up to 16 bits."""
    random = np.random.default_rng(dtype.number)
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.is_complex:
        parts = np.concatenate([random.normal(size=(300, 2)) * 3, random.normal(size=(300, 2)) * 1e-3])
        axis = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -2], [0.5, 0], [3, -0.0], [-3, 0.0], [-3, -0.0]])
        return np.concatenate([axis, parts]).astype(dtype.real.numpy).view(dtype.numpy)[:, 0]
    if dtype.bits <= 16:
        return from_bits(np.arange(1 << dtype.bits).astype(f"u{dtype.numpy.itemsize}"), dtype.numpy)
    if dtype.is_floating:
        finfo = np.finfo(dtype.numpy)
        least = [finfo.smallest_subnormal, finfo.tiny, finfo.max, finfo.max / 2, -finfo.max]
        spread = random.normal(size=500) * 2.0 ** random.integers(-30, 30, 500)
        return np.concatenate([_SPECIAL, least, random.normal(size=1500), spread]).astype(dtype.numpy)
    bits = unsigned_of(dtype.bits)
    assert bits is not None
    top = 1 << (dtype.bits - 1)
    special = np.array([0, 1, 2, 3, 7, 31, 32, 63, 64, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2], np.uint64)
    drawn = random.integers(0, 2**64, 300, np.uint64) >> random.integers(0, 64, 300, np.uint64)
    return np.concatenate([special, drawn]).astype(bits.numpy).view(dtype.numpy)


def pairs(dtype: DType, count: int) -> list[Array]:
    """`count` operands that hold many combinations of elements."""
    some = values(dtype)
    if count == 1:
        return [some]
    few = some if some.size <= 32 else some[:: max(1, some.size // 80)]
    if dtype.bits > 16 or dtype.kind == "pred":
        few = some[:60]
    return [np.ascontiguousarray(g).reshape(-1) for g in np.meshgrid(*[few] * count, indexing="ij")]


def agree(op: Op, *operands: Array) -> None:
    """Raises unless form and reference do; ShapeError if the op does not take these types."""
    shapes = [_shape(o) for o in operands]
    shape = op.infer(*shapes)
    with np.errstate(all="ignore"):
        want = np.asarray(op.reference(*operands))
        problem = difference(op, by_form(op, operands, shapes, shape, {}), want)
    assert not problem, f"{op.opcode} of {shapes[0].dtype}: {problem}"


def _shape(array: Array) -> Shape:
    from hlokit.types.dtype import dtype

    return Shape.array(dtype(array.dtype), array.shape)


@pytest.mark.parametrize("opcode", PLAIN)
def test_op_on_every_type(opcode: str) -> None:
    op, taken = OPS[opcode](), 0
    for dtype in TYPES:
        if dtype.name == "f8e8m0fnu" and opcode in ("imag", "atan2", "power"):
            continue  # it has no zero, which is what these give: what stands for it is nobody's choice
        operands = pairs(dtype, op.arity or 1)
        if opcode == "select":
            operands[0] = np.arange(operands[0].size) % 3 == 0
        try:
            op.infer(*map(_shape, operands))
        except ShapeError:
            continue
        taken += 1
        agree(op, *operands)
    assert taken


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_convert_to_every_type(source: DType) -> None:
    operand = values(source)
    for target in TYPES:
        agree(Convert(target[operand.shape]), operand)


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_compare(direction: str) -> None:
    for dtype, order in itertools.product(TYPES, (None, "TOTALORDER")):
        operands = pairs(dtype, 2)
        try:
            agree(Compare(direction, order), *operands)
        except ShapeError:
            assert dtype.is_complex or order is not None


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.is_floating], ids=str)
def test_reduce_precision(dtype: DType) -> None:
    for exponent, mantissa in [(8, 7), (5, 10), (5, 2), (4, 3), (8, 0), (2, 1), (1, 0), (11, 52), (3, 23)]:
        agree(ReducePrecision(exponent, mantissa), values(dtype))


@pytest.mark.parametrize("target", ["bf16", "f16", "f8e4m3fn", "f8e5m2", "s8", "s32", "u16"])
def test_stochastic_convert(target: str) -> None:
    for source in ("f64", "f32", "bf16", "f16"):
        operand, dtype = values(DTYPES[source]), DTYPES[source]
        bits = unsigned_of(dtype.bits)
        assert bits is not None
        drawn = np.random.default_rng(1).integers(0, 2**64, operand.size, np.uint64).astype(bits.numpy)
        agree(StochasticConvert(DTYPES[target][operand.shape]), operand, drawn)
