"""Implicit broadcasting (BCAST): HLO's elementwise ops have none, so the builder inserts broadcast and reshape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hlokit.builder.core import XlaOp, emit, rejected
from hlokit.errors import ShapeError
from hlokit.ops.movement import Broadcast
from hlokit.ops.reshaping import Reshape
from hlokit.types.integers import integers
from hlokit.types.shape import UNBOUNDED, Shape


def broadcast_operands(
    opcode: str, lhs: XlaOp, rhs: XlaOp, broadcast_dimensions: Sequence[int] = (), types_rule: str = "BIN-2"
) -> tuple[XlaOp, XlaOp]:
    """Both operands expanded to one shape: first the one of lower rank in dimensions, then sizes of 1 (BCAST-15).

    `broadcast_dimensions[i]` is the dimension of the operand of higher rank that dimension i of the other becomes.
    Raises ShapeError, before anything is emitted: BIN-3 for an operand that is no array, `types_rule` for different
    element types, BCAST-3 to BCAST-16 and DYN-BCAST-3 for dimensions that do not go together.
    """
    try:
        dimensions = integers(broadcast_dimensions, "BCAST-6", "broadcast_dimensions")
        sizes = broadcast_sizes(lhs.shape, rhs.shape, dimensions, types_rule)
    except ShapeError as error:
        raise rejected(error, opcode, lhs, rhs) from None
    if dimensions and lhs.rank < rhs.rank:
        lhs = _in_dimensions(lhs, rhs.shape, dimensions)
    elif dimensions and lhs.rank > rhs.rank:
        rhs = _in_dimensions(rhs, lhs.shape, dimensions)
    return _expanded(lhs, sizes), _expanded(rhs, sizes)


def broadcast_sizes(
    lhs: Shape, rhs: Shape, dimensions: tuple[int, ...] = (), types_rule: str = "BIN-2"
) -> tuple[int, ...]:
    """The sizes that both operands are expanded to. Raises as `broadcast_operands` does."""
    if not (lhs.is_array and rhs.is_array):
        raise ShapeError("BIN-3", "operands", (lhs, rhs), "arrays")
    if lhs.dtype is not rhs.dtype:
        raise ShapeError(types_rule, "element types", (lhs.dtype, rhs.dtype), "one type")
    small, large = (lhs, rhs) if lhs.rank < rhs.rank else (rhs, lhs)
    if small.rank == large.rank:
        if dimensions and dimensions != tuple(range(large.rank)):
            raise ShapeError("BCAST-16", "broadcast_dimensions", dimensions, "none, or the identity: ranks are equal")
        dimensions = tuple(range(large.rank))
    elif small.rank and not dimensions:
        raise ShapeError("BCAST-3", "operands", (lhs, rhs), "equal ranks, a scalar, or broadcast_dimensions")
    _check_dimensions(small, large, dimensions)
    sizes = list(large.dimensions)
    for i, d in enumerate(dimensions):
        sizes[d] = _common_size(small, i, large, d)
    return tuple(sizes)


def _check_dimensions(small: Shape, large: Shape, dimensions: tuple[int, ...]) -> None:
    if len(dimensions) != small.rank:
        raise ShapeError("BCAST-5", "broadcast_dimensions", dimensions, f"one for each dimension of {small}")
    for d in dimensions:
        if not 0 <= d < large.rank:
            raise ShapeError("BCAST-6", "broadcast_dimensions", dimensions, f"dimensions of {large}")
    if any(d >= e for d, e in pairwise(dimensions)):
        raise ShapeError("BCAST-7", "broadcast_dimensions", dimensions, "strictly increasing")


def _common_size(small: Shape, i: int, large: Shape, d: int) -> int:
    """The size of two dimensions that meet: the one that is not the expanded 1 (BCAST-11, BCAST-12)."""
    m, n = small.dimensions[i], large.dimensions[d]
    if m == n:
        return m
    if m == 1 and not small.dynamic[i]:
        return n
    if n == 1 and not large.dynamic[d]:
        return m
    if UNBOUNDED in (m, n):
        return max(m, n)
    is_dynamic = small.dynamic[i] or large.dynamic[d]
    label = "DYN-BCAST-3" if is_dynamic else "BCAST-13" if small.rank == large.rank else "BCAST-8"
    raise ShapeError(label, f"dimensions {i} and {d}", (small, large), "equal sizes, or one of them 1")


def _in_dimensions(operand: XlaOp, like: Shape, dimensions: tuple[int, ...]) -> XlaOp:
    """`operand` with the rank of `like`: its own sizes in `dimensions`, those of `like` elsewhere (BCAST-9)."""
    sizes, flags = list(like.dimensions), [n == UNBOUNDED for n in like.dimensions]
    for d, size, flag in zip(dimensions, operand.shape.dimensions, operand.shape.dynamic, strict=True):
        sizes[d], flags[d] = size, flag
    return emit(Broadcast(dimensions, Shape.array(operand.dtype, sizes, flags)), operand)


def _expanded(operand: XlaOp, sizes: tuple[int, ...]) -> XlaOp:
    """`operand` with each size of 1 brought to that of `sizes`: by reshape, then broadcast (BCAST-18)."""
    shape = operand.shape
    if shape.dimensions == sizes:
        return operand
    if not shape.dimensions:
        return scalar_to(operand, sizes)
    expanded = {d for d, (m, n) in enumerate(zip(shape.dimensions, sizes, strict=True)) if m == 1 != n}
    if not expanded:
        return operand
    kept = [d for d in range(shape.rank) if d not in expanded]
    dropped = Shape.array(shape.dtype, [shape.dimensions[d] for d in kept], [shape.dynamic[d] for d in kept])
    flags = [n == UNBOUNDED if d in expanded else shape.dynamic[d] for d, n in enumerate(sizes)]
    target = [n if d in expanded else shape.dimensions[d] for d, n in enumerate(sizes)]
    flat = emit(Reshape(None, dropped), operand)
    return emit(Broadcast(tuple(kept), Shape.array(shape.dtype, target, flags)), flat)


def scalar_to(operand: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """A scalar repeated to an array of these sizes (BCAST-2); the sizes of dynamic dimensions are their bounds."""
    if not sizes:
        return operand
    return emit(Broadcast((), Shape.array(operand.dtype, sizes, [n == UNBOUNDED for n in sizes])), operand)
