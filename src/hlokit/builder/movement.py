"""Builder functions: data movement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlokit.builder.core import XlaOp, emit
from hlokit.hlo.op import check
from hlokit.ops.movement import Broadcast, Concatenate, Iota, Pad, Reverse, Transpose
from hlokit.ops.reshaping import DynamicReshape, Reshape, reshaped
from hlokit.types import dtype as dtypes
from hlokit.types.shape import UNBOUNDED, Shape

if TYPE_CHECKING:
    from hlokit.builder.core import Builder

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "collapse",
    "concat_in_dim",
    "concatenate",
    "dynamic_reshape",
    "pad",
    "pad_in_dim",
    "reshape",
    "reshape_with_inferred_dimension",
    "rev",
    "transpose",
]


def broadcast(operand: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Repeats an array along new leading dimensions of these sizes: [sizes ++ operand's]. Rules BRD. Raises ShapeError."""
    check(operand.shape.is_array, "BRD-6", "operand", operand.shape, "an array")
    _check_sizes(sizes, "BRD-3", "sizes")
    shape = operand.shape
    output = shape.with_dimensions((*sizes, *shape.dimensions), (*[False] * len(sizes), *shape.dynamic))
    return emit(Broadcast(tuple(range(len(sizes), output.rank)), output), operand)


def broadcast_in_dim(operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """An array of the sizes `out_dim_size` in which operand dimension i is dimension broadcast_dimensions[i].

    Dimensions that no entry names, and operand dimensions of size 1, are repeated. Rules BIDIM. Raises ShapeError.
    """
    shape, rank = operand.shape, len(out_dim_size)
    check(shape.is_array, "BRD-6", "operand", shape, "an array")
    _check_sizes(out_dim_size, "BIDIM-8", "out_dim_size")
    check(len(broadcast_dimensions) == shape.rank, "BIDIM-3", "broadcast_dimensions", broadcast_dimensions, f"{shape.rank} entries")
    check(shape.rank <= rank, "BIDIM-4", "out_dim_size", out_dim_size, f"at least {shape.rank} entries")
    inside = all(0 <= d < rank for d in broadcast_dimensions)
    check(inside, "BIDIM-5", "broadcast_dimensions", broadcast_dimensions, f"dimensions in [0, {rank})")
    ascends = all(a < b for a, b in zip(broadcast_dimensions, broadcast_dimensions[1:]))
    check(ascends, "BIDIM-6", "broadcast_dimensions", broadcast_dimensions, "strictly increasing")
    flags = [False] * rank
    for i, d in enumerate(broadcast_dimensions):
        size, wanted = shape.dimensions[i], out_dim_size[d]
        fits = size == wanted or size == 1 or UNBOUNDED in (size, wanted)
        check(fits, "BIDIM-7", "out_dim_size", wanted, f"{size}, the operand's size of dimension {i}, or that to be 1")
        flags[d] = shape.dynamic[i]
    output = shape.with_dimensions(out_dim_size, flags)
    kept = [i for i, d in enumerate(broadcast_dimensions) if shape.dimensions[i] != 1 or out_dim_size[d] == 1]
    if len(kept) < shape.rank:
        operand = reshape(operand, [shape.dimensions[i] for i in kept])
    return emit(Broadcast(tuple(broadcast_dimensions[i] for i in kept), output), operand)


def reshape(operand: XlaOp, new_sizes: Sequence[int] | Shape, dimensions: Sequence[int] | None = None) -> XlaOp:
    """The operand's elements, in row-major order, under other dimensions.

    new_sizes    sizes, of as many elements as the operand has; or a Shape, which may have dynamic dimensions (BEY-22)
    dimensions   the order, slowest first, in which the operand's dimensions are gone through: a permutation that a
                 transpose is made of; all in order if not given

    Rules RESHAPE, DYN-5. Raises ShapeError.
    """
    check(operand.shape.is_array, "RESHAPE-1", "operand", operand.shape, "an array")
    if dimensions is not None:
        order = list(range(operand.rank))
        check(sorted(dimensions) == order, "RESHAPE-6", "dimensions", dimensions, "a permutation of the operand's")
        if list(dimensions) != order:
            operand = transpose(operand, dimensions)
    if isinstance(new_sizes, Shape):
        return emit(Reshape(None, new_sizes), operand)
    _check_sizes(new_sizes, "RESHAPE-3", "new_sizes")
    return emit(Reshape(None, reshaped(operand.shape, new_sizes)), operand)


def reshape_with_inferred_dimension(operand: XlaOp, new_sizes: Sequence[int], inferred_dimension: int) -> XlaOp:
    """`reshape`, saying which dimension of the result takes a dynamic size that several could. Rules BEY-23, DYN-5."""
    check(operand.shape.is_array, "RESHAPE-1", "operand", operand.shape, "an array")
    _check_sizes(new_sizes, "RESHAPE-3", "new_sizes")
    output = reshaped(operand.shape, new_sizes, inferred_dimension)
    return emit(Reshape(inferred_dimension, output), operand)


def dynamic_reshape(
    operand: XlaOp, dim_sizes: Sequence[Any], new_size_bounds: Sequence[int], dims_are_dynamic: Sequence[bool]
) -> XlaOp:
    """`reshape` to sizes that are known at run time: s32 scalars, one per dimension of the result.

    The bounds give the result's buffer, the flags which of its dimensions are dynamic. Rule BEY-24. Raises ShapeError.
    """
    lengths = (len(dim_sizes), len(new_size_bounds), len(dims_are_dynamic))
    check(len(set(lengths)) == 1, "BEY-24", "lengths of dim_sizes, new_size_bounds, dims_are_dynamic", lengths, "one length")
    _check_sizes(new_size_bounds, "RESHAPE-3", "new_size_bounds")
    output = operand.shape.with_dimensions(new_size_bounds, dims_are_dynamic)
    sizes = [s if isinstance(s, XlaOp) else operand.builder.constant(s, dtypes.s32) for s in dim_sizes]
    return emit(DynamicReshape(output), operand, *sizes)


def collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Makes one dimension of consecutive ones, at the place of the first; none or one listed: the operand itself.

    Rules COLLAPSE. Raises ShapeError.
    """
    rank = operand.rank
    check(all(0 <= d < rank for d in dimensions), "COLLAPSE-4", "dimensions", dimensions, f"dimensions in [0, {rank})")
    consecutive = all(a + 1 == b for a, b in zip(dimensions, dimensions[1:]))
    check(consecutive, "COLLAPSE-3", "dimensions", dimensions, "increasing, consecutive")
    if len(dimensions) <= 1:
        return operand
    first, last = dimensions[0], dimensions[-1]
    sizes = operand.shape.dimensions
    return reshape(operand, [*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :]])


def transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """Permutes dimensions: dimension i of the result is the operand's permutation[i]. Rules TRANSP. Raises ShapeError."""
    return emit(Transpose(tuple(permutation)), operand)


def rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Reverses the order of elements in these dimensions. Rules REV. Raises ShapeError."""
    return emit(Reverse(tuple(dimensions)), operand)


def concat_in_dim(operands: Sequence[XlaOp], dimension: int) -> XlaOp:
    """Arrays of one rank and element type, one after the other along `dimension`. Rules CONCAT. Raises ShapeError."""
    check(len(operands) > 0, "CONCAT-3", "operands", "none", "at least one")
    return emit(Concatenate(dimension), *operands)


concatenate = concat_in_dim


def pad(operand: XlaOp, padding_value: Any, padding_config: Sequence[Sequence[int]]) -> XlaOp:
    """Puts `padding_value` between and around the elements.

    padding_config: for each dimension (low, high, interior), or (low, high): `interior` values between neighbours, then
    `low` in front and `high` behind; negative ones remove what is there. Rules PAD. Raises ShapeError.
    """
    return emit(Pad(tuple(padding_config)), operand, padding_value)


def pad_in_dim(operand: XlaOp, padding_value: Any, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """`pad` around one dimension (BEY-26). Rules PAD. Raises ShapeError."""
    check(0 <= dimno < operand.rank, "BEY-26", "dimno", dimno, f"in [0, {operand.rank})")
    return pad(operand, padding_value, [(pad_lo, pad_hi, 0) if d == dimno else (0, 0, 0) for d in range(operand.rank)])


def iota(builder: Builder, shape: Shape, dimension: int) -> XlaOp:
    """An array of `shape` whose elements are their indices in `dimension`. Rules IOTA. Raises ShapeError."""
    return builder.emit(Iota(dimension, shape), ())


def _check_sizes(sizes: Sequence[int], label: str, name: str) -> None:
    check(all(size >= 0 or size == UNBOUNDED for size in sizes), label, name, sizes, "sizes >= 0")
