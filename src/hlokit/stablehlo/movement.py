"""StableHLO's constants and data movement, and their dynamic forms where the sizes are constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hlokit.builder import dynamic, elementwise, indexing, movement, slicing
from hlokit.builder.core import XlaOp
from hlokit.ops.gather import Gather
from hlokit.ops.movement import Broadcast, Concatenate, Iota, Pad, Reverse, Transpose
from hlokit.ops.reshaping import DynamicReshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.structure import Constant
from hlokit.stablehlo.dynamic import known_shape
from hlokit.stablehlo.literals import is_splat
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Dense
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import PaddingDimension

_GATHER_LISTS = (
    "offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims", "start_indices_batching_dims",
)  # fmt: skip


def constant(site: Site) -> XlaOp:
    value = site.get("value")
    if not isinstance(value, Dense):
        raise site.error(f"{site.name}: the value is not a dense<...>")
    return constant_of(site, value)


def constant_of(site: Site, value: Dense) -> XlaOp:
    """A splat is a broadcast of its element."""
    if is_splat(value.array, value.shape):
        scalar = Literal(value.shape.dtype[()], value.array.reshape(()))
        return site.emit(Broadcast((), value.shape), site.emit(Constant(scalar)))
    return site.emit(Constant(Literal(value.shape, value.array)), shape=value.shape)


def _iota(site: Site) -> XlaOp:
    return site.emit(Iota(site.integer("iota_dimension", "dim"), site.array_result()))


def _dynamic_iota(site: Site) -> XlaOp:
    shape = known_shape(site, site.result(), 0)
    return site.emit(Iota(site.integer("iota_dimension", "dim"), shape))


def _broadcast_in_dim(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    dimensions = site.integers("broadcast_dimensions", "dims")
    return broadcast_to(site, operand, site.array_result(), dimensions)


def broadcast_to(site: Site, operand: XlaOp, shape: Shape, dimensions: tuple[int, ...]) -> XlaOp:
    """The operand in the dimensions of `shape`, which StableHLO may name in any order."""
    if not operand.shape.is_array or len(dimensions) != operand.rank:
        raise site.error(f"{site.name}: {len(dimensions)} dimensions for {operand.shape}")
    sizes = shape.dimensions
    if (
        not operand.shape.is_dynamic
        and list(dimensions) == sorted(set(dimensions))
        and all(0 <= d < len(sizes) and sizes[d] == size for d, size in zip(dimensions, operand.shape.dimensions))
    ):
        return site.emit(Broadcast(dimensions, Shape.array(operand.dtype, sizes)), operand)
    if sorted(dimensions) != list(dimensions) and len(set(dimensions)) == len(dimensions):
        order = sorted(range(len(dimensions)), key=lambda i: dimensions[i])
        operand = site.emit(Transpose(tuple(order)), operand)
        dimensions = tuple(sorted(dimensions))
    return movement.broadcast_in_dim(operand, shape.dimensions, dimensions)


def _dynamic_broadcast_in_dim(site: Site) -> XlaOp:
    operand, _ = site.exactly(2)
    shape = known_shape(site, site.result(), 1)
    return broadcast_to(site, operand, shape, site.integers("broadcast_dimensions", "dims"))


def _broadcast(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    return movement.broadcast(operand, site.integers("broadcast_sizes", "sizes"))


def _reshape(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    shape = site.result()
    if shape.is_unbounded and not operand.shape.is_unbounded:
        shape = _inferred(site, operand, shape)
    return movement.reshape(operand, site.array_result() if shape.is_unbounded else shape)


def _inferred(site: Site, operand: XlaOp, written: Shape) -> Shape:
    """The one size that is not written, from the number of elements."""
    known = [size for size, flag in zip(written.dimensions, written.dynamic, strict=True) if not flag]
    count = math.prod(known)
    if len(known) != written.rank - 1 or not count or operand.shape.size % count:
        return written
    sizes = [operand.shape.size // count if flag else size for size, flag in zip(written.dimensions, written.dynamic)]
    return Shape.array(written.dtype, sizes)


def _dynamic_reshape(site: Site) -> XlaOp:
    """A reshape where the sizes are known; else one at run time, which the result's type bounds."""
    operand, sizes = site.exactly(2)
    result = site.result()
    if result.is_array and not result.is_unbounded and site.constant(1) is None:
        vector = elementwise.convert_element_type(sizes, dtypes.s32)
        scalars = [movement.reshape(indexing.slice(vector, [i], [i + 1], [1]), ()) for i in range(result.rank)]
        return site.emit(DynamicReshape(result), operand, *scalars)
    return movement.reshape(operand, known_shape(site, site.result(), 1))


def _transpose(site: Site) -> XlaOp:
    return site.emit(Transpose(site.integers("permutation", "dims")), *site.exactly(1))


def _reverse(site: Site) -> XlaOp:
    return site.emit(Reverse(site.integers("dimensions", "dims")), *site.exactly(1))


def _concatenate(site: Site) -> XlaOp:
    site.operand(0)
    return site.emit(Concatenate(site.integer("dimension", "dim")), *site.operands)


def _pad(site: Site) -> XlaOp:
    low = site.integers("edge_padding_low", "low")
    high = site.integers("edge_padding_high", "high")
    return _padded(site, low, high, site.integers("interior_padding", "interior"))


def _padded(site: Site, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]) -> XlaOp:
    if not len(low) == len(high) == len(interior):
        raise site.error(f"{site.name}: lists of padding of different lengths")
    padding = tuple(map(PaddingDimension, low, high, interior))
    return site.emit(Pad(padding), site.operand(0), site.operand(1))


def _dynamic_pad(site: Site) -> XlaOp:
    site.exactly(5)
    low, high, interior = (site.known(i, "paddings") for i in (2, 3, 4))
    return _padded(site, low, high, interior)


def _slice(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    if site.has("start_indices"):
        starts, limits = site.integers("start_indices"), site.integers("limit_indices")
        strides = site.integers("strides", default=(1,) * len(starts))
        if not len(starts) == len(limits) == len(strides):
            raise site.error(f"{site.name}: lists of different lengths")
        ranges = tuple(zip(starts, limits, strides, strict=True))
    else:
        given = site.ranges()
        if given is None or not all(len(part) in (2, 3) for part in given):
            raise site.error(f"{site.name}: ranges are [start:limit:stride, ...]")
        ranges = tuple((part[0], part[1], part[2] if len(part) == 3 else 1) for part in given)
    return site.emit(Slice(ranges), operand)


def _real_dynamic_slice(site: Site) -> XlaOp:
    """A slice of constants; or a dynamic-slice, where the limits are the starts and constants added."""
    operand, starts, limits, _ = site.exactly(4)
    strides = site.known(3, "strides")
    if site.constant(1) is not None:
        return indexing.slice(operand, site.known(1, "starts"), site.known(2, "limits"), strides)
    added = limits.instruction.operands if limits.instruction.opcode == "add" else ()
    sizes = [XlaOp(site.builder, i) for i in added if i is not starts.instruction]
    known = site.scope.constant(sizes[0]) if len(sizes) == 1 else None
    if known is None or any(stride != 1 for stride in strides):
        raise site.unsupported("ranges whose sizes are not known before the program runs")
    scalars = [
        movement.reshape(site.emit(Slice(((i, i + 1, 1),)), starts), starts.dtype[()])
        for i in range(starts.shape.dimensions[0] if starts.rank == 1 else 0)
    ]
    return site.emit(DynamicSlice(tuple(map(int, known))), operand, *scalars)


def _dynamic_slice(site: Site) -> XlaOp:
    site.operand(0)
    return site.emit(DynamicSlice(site.integers("slice_sizes", "sizes")), *site.operands)


def _dynamic_update_slice(site: Site) -> XlaOp:
    site.operand(1)
    return site.emit(DynamicUpdateSlice(), *site.operands)


def _gather(site: Site) -> XlaOp:
    operand, indices = site.exactly(2)
    return _gathered(site, operand, indices, site.integers("slice_sizes"))


def _dynamic_gather(site: Site) -> XlaOp:
    operand, indices, _ = site.exactly(3)
    return _gathered(site, operand, indices, site.known(2, "sizes of slices"))


def _gathered(site: Site, operand: XlaOp, indices: XlaOp, sizes: tuple[int, ...]) -> XlaOp:
    numbers = site.parameters("dimension_numbers")
    fields: dict[str, Any] = {name: site.as_integers(numbers.get(name, ()), name) for name in _GATHER_LISTS}
    twice = {*fields["start_index_map"]} & {*fields["operand_batching_dims"]}
    if twice:
        raise site.error(f"{site.name}: dimension {min(twice)} is in start_index_map and in operand_batching_dims")
    fields["index_vector_dim"] = site.each_integer([numbers.get("index_vector_dim", 0)], "index_vector_dim")[0]
    fields["indices_are_sorted"] = site.boolean("indices_are_sorted", default=False)
    return site.emit(Gather(**fields, slice_sizes=sizes), operand, indices)


def _torch_index_select(site: Site) -> XlaOp:
    operand, index = site.exactly(2)
    dim, batch = site.integer("dim"), site.integer("batch_dims", default=0)
    if batch == 0:
        return slicing.torch_index_select(operand, index, dim)
    if not 0 < batch <= min(dim, index.rank):
        raise site.error(f"{site.name}: batch_dims {batch} with dim {dim}")
    sizes, shared = operand.shape.dimensions, tuple(range(batch))
    moved = index.rank - batch
    offsets = (*range(batch, dim), *range(dim + moved, operand.rank - 1 + moved))
    ones = tuple(1 if d == dim or d < batch else size for d, size in enumerate(sizes))
    op = Gather(offsets, (dim,), (dim,), shared, shared, index.rank, ones, False)
    return site.emit(op, operand, index)


def _get_dimension_size(site: Site) -> XlaOp:
    """A constant where the size is known."""
    (operand,) = site.exactly(1)
    dimension = site.integer("dimension", "dim")
    if operand.shape.is_array and 0 <= dimension < operand.rank and not operand.shape.dynamic[dimension]:
        return site.builder.constant(np.int32(operand.shape.dimensions[dimension]))
    return dynamic.get_dimension_size(operand, dimension)


def _set_dimension_size(site: Site) -> XlaOp:
    operand, size = site.exactly(2)
    dimension = site.integer("dimension", "dim")
    if operand.shape.is_array and 0 <= dimension < operand.rank and not site.result().is_dynamic:
        value = site.constant(1)
        if value is not None and np.array_equal(value, operand.shape.dimensions[dimension]):
            return dynamic.remove_dynamic_dimension(operand, dimension) if operand.shape.dynamic[dimension] else operand
    return dynamic.set_dimension_size(operand, size, dimension)


def _dynamic_conv(site: Site) -> XlaOp:
    from hlokit.stablehlo.products import convolved

    lhs, rhs, _ = site.exactly(3)
    padding = site.known(2, "paddings")
    return convolved(site, lhs, rhs, [padding[i : i + 2] for i in range(0, len(padding), 2)])


RULES: dict[str, Rule] = {
    "broadcast": _broadcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "constant": constant,
    "dynamic_broadcast_in_dim": _dynamic_broadcast_in_dim,
    "dynamic_conv": _dynamic_conv,
    "dynamic_gather": _dynamic_gather,
    "dynamic_iota": _dynamic_iota,
    "dynamic_pad": _dynamic_pad,
    "dynamic_reshape": _dynamic_reshape,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "get_dimension_size": _get_dimension_size,
    "iota": _iota,
    "pad": _pad,
    "real_dynamic_slice": _real_dynamic_slice,
    "reshape": _reshape,
    "reverse": _reverse,
    "set_dimension_size": _set_dimension_size,
    "slice": _slice,
    "torch_index_select": _torch_index_select,
    "transpose": _transpose,
}
