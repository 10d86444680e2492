"""Constants and data movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.ops.gather import Gather
from hlokit.ops.movement import Broadcast, Concatenate, Iota, Pad, Reverse, Shuffle, Transpose
from hlokit.ops.slicing import DynamicSlice, Slice
from hlokit.ops.structure import Constant
from hlokit.stablehlo.printer.elementwise import reinterpreted
from hlokit.stablehlo.printer.literals import dense_text
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.stablehlo.printer.spelling import array_text, boolean_text, list_text
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal


def _constant(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Constant)
    return _of_literal(site, op.literal)


def _of_literal(site: PrintSite, literal: Literal) -> list[Value]:
    """A constant for each leaf."""
    if isinstance(literal.value, tuple):
        return [value for part in literal.value for value in _of_literal(site, part)]
    if literal.shape.is_token:
        return [site.zeros(literal.shape)]
    if literal.value is None:
        raise site.unsupported("a constant whose elements are left out")
    content = dense_text(np.asarray(literal.value), literal.shape.dtype)
    return [site.dense(content, literal.shape, is_own=literal.shape.logical is site.shape.logical)]


def _iota(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Iota)
    return [site.short("stablehlo.iota", [], middle=f" dim = {op.iota_dimension}")]


def _broadcast(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Broadcast)
    dims = f", dims = {list_text(op.dimensions)}"
    return [site.short("stablehlo.broadcast_in_dim", site.operands, middle=dims, types="function")]


def _reshape(site: PrintSite) -> list[Value]:
    return [site.short("stablehlo.reshape", site.operands, types="function")]


def _dynamic_reshape(site: PrintSite) -> list[Value]:
    """The sizes as one vector."""
    operand, *sizes = site.operands
    ones = [site.short("stablehlo.reshape", [s], s.shape.with_dimensions((1,)), types="function") for s in sizes]
    if ones:
        joined = ones[0].shape.with_dimensions((len(ones),))
        vector = site.short("stablehlo.concatenate", ones, joined, ", dim = 0", types="function")
    else:
        vector = site.integers((), dtypes.s32)
    return [site.short("stablehlo.dynamic_reshape", [operand, vector], types="function")]


def _bitcast(site: PrintSite) -> list[Value]:
    """The operand in the order of its memory, its bits as the result's, in the order of the result's memory."""
    source, target = site.instruction.operands[0].shape, site.shape
    value = _transposed(site, site.operand(), source.layout_or_default.minor_to_major[::-1])
    if source.dtype is not target.dtype:
        value = _reshaped(site, value, (source.size,))
        value = _real_parts(site, value) if source.dtype.is_complex else value
        value = _as_bits(site, value, target.dtype.real)
        value = _complex(site, value) if target.dtype.is_complex else value
    order = target.layout_or_default.minor_to_major[::-1]
    value = _reshaped(site, value, [target.dimensions[d] for d in order])
    return [_transposed(site, value, tuple(map(int, np.argsort(order))))]


def _as_bits(site: PrintSite, value: Value, dtype: DType) -> Value:
    """A vector's memory as a vector of another type."""
    old, count = value.shape.dtype, value.shape.size
    if old is dtype:
        return value
    if old.bits > dtype.bits:
        value = reinterpreted(site, value, dtype[count, old.bits // dtype.bits])
        return _reshaped(site, value, (value.shape.size,))
    ratio = dtype.bits // old.bits
    if ratio > 1:
        value = _reshaped(site, value, (count // ratio, ratio))
    return reinterpreted(site, value, dtype[count // ratio,])


def _real_parts(site: PrintSite, value: Value) -> Value:
    """A vector of complex numbers as one of twice as many floats."""
    dtype, count = value.shape.dtype.real, value.shape.size
    parts = [site.short(f"stablehlo.{p}", [value], dtype[count,], types="function") for p in ("real", "imag")]
    columns = [_reshaped(site, part, (count, 1)) for part in parts]
    pairs = site.short("stablehlo.concatenate", columns, dtype[count, 2], ", dim = 1", types="function")
    return _reshaped(site, pairs, (2 * count,))


def _complex(site: PrintSite, value: Value) -> Value:
    """A vector of floats as one of half as many complex numbers."""
    dtype, count = value.shape.dtype, value.shape.size // 2
    pairs, parts = _reshaped(site, value, (count, 2)), list[Value]()
    for i in range(2):
        column = f" [0:{count}, {i}:{i + 1}]"
        part = site.short("stablehlo.slice", [pairs], dtype[count, 1], column, types="function")
        parts.append(_reshaped(site, part, (count,)))
    result = (dtypes.c64 if dtype is dtypes.f32 else dtypes.c128)[count,]
    return site.short("stablehlo.complex", parts, result, types="function")


def _reshaped(site: PrintSite, value: Value, sizes: Sequence[int]) -> Value:
    if value.shape.dimensions == tuple(sizes):
        return value
    return site.short("stablehlo.reshape", [value], value.shape.with_dimensions(sizes), types="function")


def _transposed(site: PrintSite, value: Value, order: Sequence[int]) -> Value:
    if tuple(order) == tuple(range(len(order))):
        return value
    shape = value.shape.permuted(order).logical
    return site.short("stablehlo.transpose", [value], shape, f", dims = {list_text(order)}", types="function")


def _transpose(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Transpose)
    middle = f", dims = {list_text(op.dimensions)}"
    return [site.short("stablehlo.transpose", site.operands, middle=middle, types="function")]


def _reverse(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Reverse)
    return [site.short("stablehlo.reverse", site.operands, middle=f", dims = {list_text(op.dimensions)}")]


def _shuffle(site: PrintSite) -> list[Value]:
    """A rotation along each dimension: elements that go over the end stand before the rest."""
    op = site.instruction.op
    assert isinstance(op, Shuffle)
    value = site.operand()
    for dimension, shift in zip(op.dimensions, op.shifts, strict=True):
        size = value.shape.dimensions[dimension]
        start = -shift % size if size else 0
        parts: list[Value] = []
        for first, last in ((start, size), (0, start)):
            sizes = list(value.shape.dimensions)
            sizes[dimension] = last - first
            ranges = [f"0:{n}" for n in value.shape.dimensions]
            ranges[dimension] = f"{first}:{last}"
            part = value.shape.with_dimensions(sizes, value.shape.dynamic)
            parts.append(site.short("stablehlo.slice", [value], part, f" {list_text(ranges)}", types="function"))
        value = site.short("stablehlo.concatenate", parts, value.shape, f", dim = {dimension}", types="function")
    return [value]


def _concatenate(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Concatenate)
    middle = f", dim = {op.dimension}"
    return [site.short("stablehlo.concatenate", site.operands, middle=middle, types="function")]


def _pad(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Pad)
    columns = (
        ("low", [p.edge_padding_low for p in op.padding]),
        ("high", [p.edge_padding_high for p in op.padding]),
        ("interior", [p.interior_padding for p in op.padding]),
    )
    middle = "".join(f", {name} = {list_text(numbers)}" for name, numbers in columns)
    return [site.short("stablehlo.pad", site.operands, middle=middle, types="function")]


def _slice(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Slice)
    ranges = [f"{start}:{limit}" + (f":{stride}" if stride != 1 else "") for start, limit, stride in op.ranges]
    return [site.short("stablehlo.slice", site.operands, middle=f" {list_text(ranges)}", types="function")]


def _dynamic_slice(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, DynamicSlice)
    operand, *starts = site.operands
    middle = f", sizes = {list_text(op.dynamic_slice_sizes)}"
    return [site.short("stablehlo.dynamic_slice", [operand, *_starts(site, starts)], middle=middle, types="function")]


def _dynamic_update_slice(site: PrintSite) -> list[Value]:
    operand, update, *starts = site.operands
    values = [operand, update, *_starts(site, starts)]
    return [site.short("stablehlo.dynamic_update_slice", values, types="function")]


def _starts(site: PrintSite, starts: list[Value]) -> list[Value]:
    """Scalars, also where HLO has them in one vector."""
    if len(starts) != 1 or starts[0].shape.is_scalar:
        return starts
    (vector,) = starts
    parts: list[Value] = []
    for i in range(vector.shape.size):
        one = vector.shape.with_dimensions((1,))
        part = site.short("stablehlo.slice", [vector], one, f" [{i}:{i + 1}]", types="function")
        parts.append(_reshaped(site, part, ()))
    return parts


def _gather(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Gather)
    properties = {
        "dimension_numbers": numbers_text("gather", op, _GATHER_LISTS),
        "indices_are_sorted": boolean_text(op.indices_are_sorted),
        "slice_sizes": array_text(op.slice_sizes),
    }
    return site.generic("stablehlo.gather", site.operands, properties=properties)


_GATHER_LISTS = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
)  # fmt: skip


def numbers_text(name: str, op: Any, lists: Sequence[str]) -> str:
    """#stablehlo.gather<offset_dims = [0], index_vector_dim = 1>: lists that are empty are left out."""
    parts = [f"{part} = {list_text(getattr(op, part))}" for part in lists if getattr(op, part)]
    return f"#stablehlo.{name}<{', '.join([*parts, f'index_vector_dim = {op.index_vector_dim}'])}>"


def _get_dimension_size(site: PrintSite) -> list[Value]:
    dimension = _dimension(site)
    return [site.short("stablehlo.get_dimension_size", site.operands, middle=f", dim = {dimension}", types="function")]


def _set_dimension_size(site: PrintSite) -> list[Value]:
    dimension = _dimension(site)
    return [site.short("stablehlo.set_dimension_size", site.operands, middle=f", dim = {dimension}", types="function")]


def _dimension(site: PrintSite) -> int:
    op: Any = site.instruction.op
    return op.dimension


RULES: dict[str, Rule] = {
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "constant": _constant,
    "dynamic-reshape": _dynamic_reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "get-dimension-size": _get_dimension_size,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "reverse": _reverse,
    "set-dimension-size": _set_dimension_size,
    "shuffle": _shuffle,
    "slice": _slice,
    "transpose": _transpose,
}
