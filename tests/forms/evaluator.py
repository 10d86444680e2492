"""Evaluates lowering forms with NumPy alone, with no backend: what a form says, on concrete operands.

Values are arrays over the output's index space. Nothing may be read outside an operand where its guards hold, and no
primitive may be asked for what it does not define: both are asserted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.forms.affine import Affine, Index, Key
from hlokit.forms.emitter import Emitter, Value
from hlokit.forms.primitives import PRIMITIVES, Primitive
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import Op
from hlokit.ops import functions
from hlokit.ops.numerics import bits_of, convert, from_bits
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from tests.cpu.accuracy import in_f64

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Element:
    """A value at every place of the index space: `data` broadcasts against it."""

    dtype: DType
    data: Array


class Counter(Key):
    """A loop axis or a run-time integer: its value at every place of the index space."""

    __slots__ = ("values",)

    def __init__(self, name: str, low: int, high: int, values: Array) -> None:
        super().__init__(name, low, high)
        self.values = values


class NumpyEmitter(Emitter):
    """`mask`: where the guards around the expression hold that is being made."""

    def __init__(self) -> None:
        self.mask: Array = np.ones((), bool)

    def values_of(self, affine: Affine) -> Array:
        total = np.asarray(affine.constant, np.int64)
        for key, coefficient in affine.terms:
            assert isinstance(key, Counter)
            total = total + coefficient * key.values
        return total

    def primitive(self, primitive: Primitive, operands: Sequence[Value], dtype: DType) -> Value:
        arrays = [o.data for o in operands]  # type: ignore[attr-defined]
        if primitive.name == "convert":
            return Element(dtype, convert(arrays[0], dtype.numpy))
        if primitive.name == "to_bits":
            return Element(dtype, bits_of(arrays[0]))
        if primitive.name == "from_bits":
            return Element(dtype, from_bits(arrays[0].astype(f"u{dtype.numpy.itemsize}"), dtype.numpy))
        self._check_defined(primitive, arrays)
        result = np.asarray(_FUNCTIONS[primitive.name](*arrays))
        return Element(dtype, result.astype(dtype.numpy))

    def _check_defined(self, primitive: Primitive, arrays: list[Array]) -> None:
        if primitive.name in ("div", "rem") and arrays[1].dtype.kind in "iu":
            assert not np.any(self.mask & (arrays[1] == 0)), "integer division by zero"
            overflows = arrays[1] == -1 if arrays[1].dtype.kind == "i" else False
            assert not np.any(self.mask & overflows), "integer division by -1"
        if primitive.name in ("shl", "shr", "sar"):
            bits = arrays[0].dtype.itemsize * 8
            assert not np.any(self.mask & ((arrays[1] < 0) | (arrays[1] >= bits))), "shift by the width or more"

    def constant(self, value: Any, dtype: DType) -> Value:
        return Element(dtype, np.asarray(value).astype(dtype.numpy))

    def literal(self, literal: Literal, index: Index) -> Value:
        assert isinstance(literal.value, np.ndarray)
        return Operand(self, literal.shape, literal.value)(index)

    def number(self, affine: Affine) -> Value:
        from hlokit.types.dtype import s32, s64

        dtype = s32 if affine.low >= -(2**31) and affine.high < 2**31 else s64
        return Element(dtype, self.values_of(affine).astype(dtype.numpy))

    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        from hlokit.types.dtype import pred

        values = self.values_of(affine)
        return Element(pred, np.asarray((low <= values) & (values < high)))

    def branch(self, conditions: Sequence[Value], then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        outer, holds = self.mask, np.ones((), bool)
        for condition in conditions:
            holds = holds & condition.data  # type: ignore[attr-defined]
        self.mask = outer & holds
        first: Any = then()
        self.mask = outer & ~holds
        second: Any = otherwise()
        self.mask = outer
        assert first.dtype is second.dtype
        return Element(first.dtype, np.where(holds, first.data, second.data))

    def as_index(self, value: Value, low: int, high: int, inside: bool = False) -> Affine:
        assert low < high, "no index is left"
        data: Array = value.data  # type: ignore[attr-defined]
        wide = np.minimum(data, np.uint64(2**63 - 1)) if data.dtype == np.uint64 else data
        return Affine.of(Counter("i", low, high - 1, np.clip(wide.astype(np.int64), low, high - 1)))

    def quotient(self, affine: Affine, divisor: int) -> Affine:
        values = self.values_of(affine) // divisor
        return Affine.of(Counter("q", affine.low // divisor, affine.high // divisor, values))


class Operand:
    """A reader of an array."""

    def __init__(self, emit: NumpyEmitter, shape: Shape, array: Array) -> None:
        self.emit, self.shape, self.array = emit, shape, array

    def __call__(self, index: Index) -> Value:
        assert len(index) == self.array.ndim, "one affine per dimension"
        taken: list[Array] = []
        for affine, size in zip(index, self.array.shape, strict=True):
            values = self.emit.values_of(affine)
            read = np.broadcast_to(self.emit.mask, np.broadcast_shapes(self.emit.mask.shape, values.shape))
            outside = ((values < 0) | (values >= size)) & read
            assert not np.any(outside), f"{affine} is read outside [0, {size})"
            taken.append(np.clip(values, 0, max(size - 1, 0)))
        if self.array.size == 0:
            return Element(self.shape.dtype, np.zeros((1,) * self.emit.mask.ndim, self.array.dtype))
        return Element(self.shape.dtype, np.asarray(self.array[tuple(taken)]))


class FormFunction:
    """A called computation of scalars, by the forms of its ops."""

    def __init__(self, emit: NumpyEmitter, computation: Computation) -> None:
        self.emit, self.computation = emit, computation

    def __call__(self, *arguments: Any) -> Any:
        values: dict[int, Any] = {}
        for instruction in self.computation.post_order():
            op: Any = instruction.op
            operands = [values[o.id] for o in instruction.operands]
            if op.opcode == "parameter":
                value = arguments[op.number]
            elif op.opcode == "tuple":
                value = tuple(operands)
            elif op.opcode == "get-tuple-element":
                value = operands[0][op.index]
            elif op.opcode == "call":
                value = FormFunction(self.emit, instruction.called[0])(*operands)
            else:
                called = {role: FormFunction(self.emit, c) for role, c in instruction.called_by_role()}
                readers = [Known(o, i.shape) for o, i in zip(operands, instruction.operands, strict=True)]
                value = op.element(self.emit, (), *readers, **called)
                assert value.dtype is instruction.shape.dtype, f"{op.opcode} gave {value.dtype}"
            values[instruction.id] = value
        return values[self.computation.root.id]


@dataclass
class Known:
    """A reader of a scalar."""

    value: Value
    shape: Shape

    def __call__(self, index: Index) -> Value:
        assert index == ()
        return self.value


def grid(sizes: Sequence[int], first: int = 0, rank: int | None = None) -> Index:
    """One axis per size, at positions `first`... of an index space of this rank."""
    rank = len(sizes) if rank is None else rank
    axes: list[Affine] = []
    for d, size in enumerate(sizes):
        spread = [1] * rank
        spread[first + d] = -1
        axes.append(Affine.of(Counter(f"a{first + d}", 0, max(size - 1, 0), np.arange(size).reshape(spread))))
    return tuple(axes)


def by_form(
    op: Op, operands: Sequence[Array], shapes: Sequence[Shape], shape: Shape, called: dict[str, Computation]
) -> Any:
    """The op's value on these operands as its map, index, fold or scatter form says; a tuple for a tuple shape."""
    emit = NumpyEmitter()
    functions_ = {role: FormFunction(emit, c) for role, c in called.items()}
    if op.form in ("map", "index"):
        emit.mask = np.ones(shape.dimensions, bool)
        readers = [Operand(emit, s, a) for s, a in zip(shapes, operands, strict=True)]
        value: Any = op.element(emit, grid(shape.dimensions), *readers, **functions_)
        assert value.dtype is shape.dtype, f"{op.opcode} gave {value.dtype} for {shape}"
        return np.broadcast_to(value.data, shape.dimensions)
    if op.form == "fold":
        return folded(op, operands, shapes, shape, functions_, emit)
    assert op.form == "scatter"
    return scattered(op, operands, shapes, shape, functions_, emit)


def folded(
    op: Op, operands: Any, shapes: Any, shape: Shape, called: dict[str, FormFunction], emit: NumpyEmitter
) -> Any:
    """Steps in row-major order, every output position at once; a skipped step leaves the accumulators. A cumulative
    fold from the end by a commutative op begins at the last step (RWIN-5)."""
    fold = op.fold(shapes)
    results = list(shape.leaves())
    sizes = results[0].dimensions
    assert len(fold.dimensions) == len(shapes[0].dimensions)
    accumulators: list[Any] = [Element(s.dtype, a) for s, a in zip(shapes[fold.count :], operands[fold.count :])]
    outputs = grid(sizes)
    order = list(itertools.product(*(range(d.size) for d in fold.dimensions)))
    long = [(d, n) for d, n in zip(fold.dimensions, shapes[0].dimensions, strict=True) if d.size > 1]
    combiner = called[fold.combiner].computation.single_op
    if combiner is not None and combiner.commutative and len(long) == 1 and long[0][0].is_reverse_scan(long[0][1], sizes):
        order.reverse()
    for steps in order:
        inside, index = np.ones(sizes, bool), list[Affine]()
        for d, k, size in zip(fold.dimensions, steps, shapes[0].dimensions, strict=True):
            position = outputs[d.output] if d.output is not None else Affine.of(0)
            place = emit.values_of(position * d.stride + (k * d.dilation - d.low))
            element = place // d.base_dilation
            inside = inside & (place % d.base_dilation == 0) & (element >= 0) & (element < size)
            index.append(Affine.of(Counter("e", 0, size - 1, element)))
        if not inside.any():
            continue
        emit.mask = inside
        elements = [Operand(emit, s, a)(tuple(index)) for s, a in zip(shapes[: fold.count], operands)]
        combined: Any = called[fold.combiner](*accumulators, *elements)
        combined = combined if isinstance(combined, tuple) else (combined,)
        accumulators = [
            Element(a.dtype, np.where(inside, c.data, a.data)) for a, c in zip(accumulators, combined, strict=True)
        ]
    arrays = tuple(np.broadcast_to(a.data, sizes) for a in accumulators)
    return arrays if shape.is_tuple else arrays[0]


def scattered(
    op: Op, operands: Any, shapes: Any, shape: Shape, called: dict[str, FormFunction], emit: NumpyEmitter
) -> Any:
    """One update after the other."""
    scatter = op.scatter(shapes)
    n = scatter.count
    results, updates = [a.copy() for a in operands[:n]], operands[n + 1 :]
    sizes = shapes[n + 1].dimensions
    emit.mask = np.ones(sizes, bool)
    readers = [Operand(emit, s, a) for s, a in zip(shapes, operands, strict=True)]
    target = op.target(emit, grid(sizes), *readers)
    applied = np.ones(sizes, bool)
    for guard in target.guards:
        applied = applied & (guard if isinstance(guard, bool) else guard.data)  # type: ignore[attr-defined]
    places = [np.broadcast_to(emit.values_of(a), sizes) for a in target.index]
    for p, size in zip(places, shapes[0].dimensions, strict=True):
        assert not np.any(applied & ((p < 0) | (p >= size))), "an update goes outside"
    emit.mask = np.ones((), bool)
    for at in zip(*np.nonzero(applied), strict=True) if applied.ndim else [()] * int(applied):
        place = tuple(p[at] for p in places)
        current = [Element(s.dtype, np.asarray(r[place])) for s, r in zip(shapes, results)]
        new = [Element(s.dtype, np.asarray(u[at])) for s, u in zip(shapes, updates)]
        combined: Any = called[scatter.combiner](*current, *new)
        for result, value in zip(results, combined if isinstance(combined, tuple) else (combined,), strict=True):
            result[place] = value.data
    return tuple(results) if shape.is_tuple else results[0]


def _precisely(function: Callable[..., Any]) -> Callable[..., Any]:
    """In f64, then rounded once."""
    return lambda *arrays: function(*(a.astype(np.float64) for a in arrays)).astype(arrays[0].dtype)


def _divided(x: Array, y: Array) -> Any:
    if x.dtype.kind == "f":
        return np.true_divide(x, y)
    plain = np.where(y == 0, 1, y).astype(y.dtype)
    return (x - np.fmod(x, plain)) // plain


def _remainder(x: Array, y: Array) -> Any:
    return np.fmod(x, y) if x.dtype.kind == "f" else np.fmod(x, np.where(y == 0, 1, y).astype(y.dtype))


def _shifted_right(x: Array, y: Array) -> Any:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    return (unsigned >> y.view(unsigned.dtype)).view(x.dtype)


def _leading_zeros(x: Array) -> Any:
    return functions.leading_zeros(x.view(f"u{x.dtype.itemsize}"), x.dtype.itemsize * 8)


def _complex(re: Array, im: Array) -> Any:
    return functions.make_complex(re, im)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided, "rem": _remainder, "neg": np.negative,
    "abs": np.abs, "max": functions.maximum, "min": functions.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert, "shl": np.left_shift, "shr": _shifted_right, "sar": np.right_shift,
    "popcnt": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")), "clz": _leading_zeros,
    "mul_high": lambda x, y: functions.high_product(x, y, x.dtype.itemsize * 8),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": np.where, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round_even": np.rint,
    "copysign": np.copysign, "complex": _complex, "real": np.real, "imag": np.imag, "sqrt": np.sqrt,
    **{p.name: _precisely(in_f64(p.name)) for p in PRIMITIVES.values() if p.ulp is not None},
}  # fmt: skip
