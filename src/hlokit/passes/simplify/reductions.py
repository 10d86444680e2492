"""Identities of folds, products and convolutions, of gathers and scatters of one slice, and of sorts of one element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hlokit.analysis.ranges import range_of_type, value_range
from hlokit.analysis.reducers import takes_any_order
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Map
from hlokit.ops.conversion import Convert
from hlokit.ops.convolution import Convolution
from hlokit.ops.elementwise import Select
from hlokit.ops.gather import Gather
from hlokit.ops.movement import Pad, Reverse, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.sorting import Sort
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.passes.simplify.rules import constant_like, filled, is_scalar, like, reshaped, scalar_of, simplifies
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal
from hlokit.types.window import Window


def _reduced(instruction: Instruction) -> tuple[int, ...]:
    assert isinstance(instruction.op, Reduce)
    return instruction.op.dimensions


@simplifies(Reduce)
def reduce_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A fold of one element each is f(init, x); a fold of none is init."""
    if instruction.shape.is_tuple:
        return None
    operand, init = instruction.operands
    count = [operand.shape.dimensions[d] for d in _reduced(instruction)]
    if 0 in count:
        return filled(instruction, init)
    op = instruction.called[0].single_op
    if any(n != 1 for n in count) or op is None or op.result_shape is not None:
        return None
    return like(instruction, op, filled(instruction, init), reshaped(operand, instruction.shape.dimensions))


@simplifies(Reduce)
def reduce_of_reshape(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Dimensions of size 1 that a reshape adds or drops change no order of elements."""
    inner = instruction.operands[0]
    if instruction.shape.is_tuple or not isinstance(inner.op, Reshape):
        return None
    source, sizes = inner.operands[0], inner.shape.dimensions
    old = [d for d, n in enumerate(source.shape.dimensions) if n != 1]
    new = [d for d, n in enumerate(sizes) if n != 1]
    if [source.shape.dimensions[d] for d in old] != [sizes[d] for d in new]:
        return None
    place = dict(zip(new, old, strict=True))
    dims = tuple(sorted(place[d] for d in _reduced(instruction) if d in place))
    kept = [n for d, n in enumerate(source.shape.dimensions) if d not in dims]
    made = computation.add(Reduce(dims), [source, instruction.operands[1]], instruction.called)
    assert list(made.shape.dimensions) == kept
    return reshaped(made, instruction.shape.dimensions)


@simplifies(Reduce)
def reduce_of_transpose(instruction: Instruction, computation: Computation) -> Instruction | None:
    """The fold of a transpose folds the operand, if what stays keeps its order, and what is folded keeps it too.

    Or may come in any order, bit for bit: sums of integers, maxima of integers, and the like.
    """
    inner = instruction.operands[0]
    if instruction.shape.is_tuple or not isinstance(inner.op, Transpose):
        return None
    permutation, source = inner.op.dimensions, inner.operands[0]
    reduced = set(_reduced(instruction))
    kept = [permutation[d] for d in range(len(permutation)) if d not in reduced]
    folded = [permutation[d] for d in range(len(permutation)) if d in reduced]
    real = [d for d in folded if source.shape.dimensions[d] != 1]
    if kept != sorted(kept) or (real != sorted(real) and not takes_any_order(instruction.called[0])):
        return None
    made = computation.add(
        Reduce(tuple(sorted(folded))), [source, instruction.operands[1]], instruction.called, shape=instruction.shape
    )
    return made


@simplifies(Reduce)
def reduce_of_wide_indices(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Integers of 64 bits that a fold only compares and chooses among are of 32 bits if all fit: vectors hold more."""
    if not instruction.shape.is_tuple:
        return None
    operands, (combiner,) = instruction.operands, instruction.called
    count = len(operands) // 2
    numbers = [k for k in range(count) if all(map(_fits, (operands[k], operands[count + k])))]
    chosen = _chosen(combiner, numbers)
    if not numbers or not chosen:
        return None
    narrow = [computation.add(Convert(o.shape.with_dtype(dtypes.s32)), [o]) if k % count in numbers else o
              for k, o in enumerate(operands)]  # fmt: skip
    folded = computation.add(instruction.op, narrow, [_narrowed(combiner, chosen)])
    parts = [computation.add(GetTupleElement(k), [folded]) for k in range(count)]
    wide = [computation.add(Convert(part.shape.with_dtype(dtypes.s64)), [part]) if k in numbers else part
            for k, part in enumerate(parts)]  # fmt: skip
    return computation.add(Tuple(), wide)


def _fits(instruction: Instruction) -> bool:
    """Whether it is of 64 bits, and known to be in the range of 32."""
    if instruction.shape.dtype is not dtypes.s64:
        return False
    (low, high), (least, most) = value_range(instruction), range_of_type(dtypes.s32)
    return low >= least and high <= most


def _chosen(combiner: Computation, numbers: Sequence[int]) -> set[Instruction]:
    """All that parameters of these numbers of a fold become; empty where more is done with one than to compare it with
    another and to choose it."""
    count = len(combiner.parameters) // 2
    found = {p for k, p in enumerate(combiner.parameters) if k % count in numbers}
    for one in combiner.post_order():
        inside = [operand in found for operand in one.operands]
        if isinstance(one.op, Select) and inside == [False, True, True]:
            found.add(one)
        elif one is combiner.root and isinstance(one.op, Tuple):
            if inside != [k in numbers for k in range(count)]:
                return set()
        elif any(inside) and not (isinstance(one.op, Compare) and all(inside)):
            return set()
    return found if isinstance(combiner.root.op, Tuple) else set()


def _narrowed(combiner: Computation, chosen: set[Instruction]) -> Computation:
    """The combiner with what is chosen of 32 bits."""
    made = Computation(f"{combiner.name}.narrow", combiner.module)
    new: dict[Instruction, Instruction] = {}
    for one in [*combiner.parameters, *combiner.post_order()]:
        if one in new:
            continue
        if one in chosen and isinstance(one.op, Parameter):
            new[one] = made.add(Parameter(one.op.number, one.shape.with_dtype(dtypes.s32)))
        else:
            new[one] = made.add(one.op, [new[operand] for operand in one.operands], one.called)
    made.set_root(new[combiner.root])
    assert combiner.module is not None
    return combiner.module.add_computation(made)


@simplifies(Dot)
def dot_of_nothing(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A sum of no products is zero."""
    lhs, op = instruction.operands[0], instruction.op
    assert isinstance(op, Dot)
    if all(lhs.shape.dimensions[d] for d in op.lhs_contracting_dims) or not instruction.shape.size:
        return None
    return constant_like(computation, instruction, 0)


@simplifies(Dot)
def dot_of_transpose(instruction: Instruction, computation: Computation) -> Instruction | None:
    """dot(transpose(x), y) is a dot of x by other numbers, if its free dimensions stay in order. No sum changes."""
    op = instruction.op
    assert isinstance(op, Dot)
    numbers = [(op.lhs_batch_dims, op.lhs_contracting_dims), (op.rhs_batch_dims, op.rhs_contracting_dims)]
    operands = list(instruction.operands)
    changed = False
    for side, (batch, contracting) in enumerate(numbers):
        inner = operands[side]
        if not isinstance(inner.op, Transpose):
            continue
        permutation = inner.op.dimensions
        free = [p for d, p in enumerate(permutation) if d not in batch and d not in contracting]
        if free == sorted(free):
            numbers[side] = tuple(permutation[d] for d in batch), tuple(permutation[d] for d in contracting)
            operands[side] = inner.operands[0]
            changed = True
    if not changed:
        return None
    (left_batch, left), (right_batch, right) = numbers
    op = op.replace(
        lhs_batch_dims=left_batch, lhs_contracting_dims=left, rhs_batch_dims=right_batch, rhs_contracting_dims=right
    )
    return like(instruction, op, *operands)


@simplifies(Transpose, fast=True)
def transpose_of_dot(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A transpose that puts rhs's free dimensions before lhs's is a dot of rhs and lhs: sums of the same products."""
    dot = instruction.operands[0]
    op = dot.op
    if not isinstance(op, Dot) or op.algorithm is not None or len(dot.users) > 1 or dot.is_root:
        return None
    batch = len(op.lhs_batch_dims)
    split = dot.operands[0].shape.rank - len(op.lhs_contracting_dims)
    assert isinstance(instruction.op, Transpose)
    if instruction.op.dimensions != (*range(batch), *range(split, dot.shape.rank), *range(batch, split)):
        return None
    turned = op.replace(
        lhs_batch_dims=op.rhs_batch_dims,
        rhs_batch_dims=op.lhs_batch_dims,
        lhs_contracting_dims=op.rhs_contracting_dims,
        rhs_contracting_dims=op.lhs_contracting_dims,
        operand_precision=op.operand_precision[::-1],
        output_shape=op.output_shape.with_dimensions(instruction.shape.dimensions),
    )
    return like(instruction, turned, dot.operands[1], dot.operands[0])


@simplifies(Dot)
def dot_of_ones(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Contracting dimensions of size 1 beside others, and batch dimensions of size 1, add no products: they go."""
    op, (lhs, rhs) = instruction.op, instruction.operands
    assert isinstance(op, Dot)
    pairs = list(zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True))
    kept = [pair for pair in pairs if lhs.shape.dimensions[pair[0]] != 1] or pairs[:1]
    batch = list(zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True))
    real = [pair for pair in batch if lhs.shape.dimensions[pair[0]] != 1]
    if kept == pairs and real == batch:
        return None
    gone = [[pair[side] for pair in (*pairs, *batch) if pair not in (*kept, *real)] for side in (0, 1)]
    operands: list[Instruction] = []
    place: list[dict[int, int]] = []
    for operand, dropped in zip((lhs, rhs), gone, strict=True):
        left = [d for d in range(operand.shape.rank) if d not in dropped]
        place.append({d: i for i, d in enumerate(left)})
        operands.append(reshaped(operand, [operand.shape.dimensions[d] for d in left]))
    sizes = [lhs.shape.dimensions[a] for a, _ in real] + list(instruction.shape.dimensions[len(batch) :])
    op = op.replace(
        lhs_batch_dims=tuple(place[0][a] for a, _ in real),
        rhs_batch_dims=tuple(place[1][b] for _, b in real),
        lhs_contracting_dims=tuple(place[0][a] for a, _ in kept),
        rhs_contracting_dims=tuple(place[1][b] for _, b in kept),
        output_shape=instruction.shape.with_dimensions(sizes),
    )
    return reshaped(computation.add(op, operands), instruction.shape.dimensions)


def _relabelled(labels: Any, fields: Sequence[str], permutation: Sequence[int]) -> Any:
    """Dimension numbers with each dimension d of these fields replaced by permutation[d]."""

    changes: dict[str, Any] = {}
    for name in fields:
        value: int | tuple[int, ...] = getattr(labels, name)
        changes[name] = permutation[value] if isinstance(value, int) else tuple(permutation[d] for d in value)
    return replace(labels, **changes)


_LHS = ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions")
_RHS = ("kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions")
_OUT = ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")


@simplifies(Convolution)
def convolution_of_transpose(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Transposes of the operands go into the dimension numbers."""
    op, operands = instruction.op, list(instruction.operands)
    assert isinstance(op, Convolution)
    labels = op.dim_labels
    for side, fields in enumerate((_LHS, _RHS)):
        inner = operands[side]
        if isinstance(inner.op, Transpose):
            labels = _relabelled(labels, fields, inner.op.dimensions)
            operands[side] = inner.operands[0]
    return None if labels is op.dim_labels else like(instruction, op.replace(dim_labels=labels), *operands)


@simplifies(Transpose)
def transpose_of_convolution(instruction: Instruction, computation: Computation) -> Instruction | None:
    """The transpose of a convolution that nobody else needs goes into its dimension numbers."""
    inner, op = instruction.operands[0], instruction.op
    if not isinstance(inner.op, Convolution) or not isinstance(op, Transpose) or len(inner.users) > 1:
        return None
    place = {d: i for i, d in enumerate(op.dimensions)}
    labels = _relabelled(inner.op.dim_labels, _OUT, [place[d] for d in range(len(place))])
    conv = inner.op.replace(dim_labels=labels, output_shape=instruction.shape.logical)
    return like(instruction, conv, *inner.operands)


@simplifies(Convolution)
def convolution_of_reverse(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A kernel reversed along the window is a reversed window."""
    op, rhs = instruction.op, instruction.operands[1]
    if not isinstance(rhs.op, Reverse) or not isinstance(op, Convolution):
        return None
    spatial = tuple(op.dim_labels.kernel_spatial_dimensions)
    if any(d not in spatial for d in rhs.op.dimensions):
        return None
    turned = rhs.op.dimensions
    dimensions = [
        replace(w, reversal=not w.reversal) if d in turned else w
        for d, w in zip(spatial, op.window.dimensions, strict=True)
    ]
    return like(instruction, op.replace(window=Window(tuple(dimensions))), instruction.operands[0], rhs.operands[0])


@simplifies(Convolution)
def convolution_of_pad(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Zeros padded round or between the elements of lhs are the window's padding and base dilation."""
    op, lhs = instruction.op, instruction.operands[0]
    if not isinstance(lhs.op, Pad) or not isinstance(op, Convolution) or not is_scalar(lhs.operands[1], 0):
        return None
    spatial = tuple(op.dim_labels.input_spatial_dimensions)
    padding, sizes = lhs.op.padding, lhs.operands[0].shape.dimensions
    dimensions = list(op.window.dimensions)
    for d, p in enumerate(padding):
        if p.edge_padding_low == p.edge_padding_high == p.interior_padding == 0:
            continue
        if d not in spatial or min(p.edge_padding_low, p.edge_padding_high) < 0 or not sizes[d]:
            return None
        i = spatial.index(d)
        w = dimensions[i]
        if w.base_dilation != 1 or min(w.padding_low, w.padding_high) < 0:
            return None
        dimensions[i] = replace(
            w,
            padding_low=w.padding_low + p.edge_padding_low,
            padding_high=w.padding_high + p.edge_padding_high,
            base_dilation=1 + p.interior_padding,
        )
    return like(instruction, op.replace(window=Window(tuple(dimensions))), lhs.operands[0], instruction.operands[1])


@simplifies(Gather)
def gather_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """One index vector takes one slice: a dynamic slice, which clamps as a gather does."""
    op, (operand, indices) = instruction.op, instruction.operands
    assert isinstance(op, Gather)
    vector = op.index_vector_dim
    counts = [n for d, n in enumerate(indices.shape.dimensions) if d != vector]
    if any(n != 1 for n in counts) or op.operand_batching_dims or not operand.shape.rank:
        return None
    length = len(op.start_index_map)
    line = reshaped(indices, (length,))
    zero = computation.add(Constant(Literal(indices.shape.dtype[()], np.zeros((), indices.shape.dtype.numpy))))
    starts = [zero] * operand.shape.rank
    for k, d in enumerate(op.start_index_map):
        starts[d] = reshaped(computation.add(Slice(((k, k + 1, 1),)), [line]), ())
    made = computation.add(DynamicSlice(op.slice_sizes), [operand, *starts])
    return reshaped(made, instruction.shape.dimensions)


@simplifies(Scatter)
def scatter_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """One window at a known place is a slice, combined with the update and put back; outside it is skipped."""
    op, operands = instruction.op, instruction.operands
    assert isinstance(op, Scatter)
    if len(operands) != 3 or op.input_batching_dims or not operands[0].shape.rank:
        return None
    operand, indices, update = operands
    if any(n != 1 for d, n in enumerate(indices.shape.dimensions) if d != op.index_vector_dim):
        return None
    known: Any = indices.op.literal.value if isinstance(indices.op, Constant) else scalar_of(indices)
    if known is None:
        return None
    starts, sizes = [0] * operand.shape.rank, [1] * operand.shape.rank
    places = op.scatter_dims_to_operand_dims
    for d, start in zip(places, np.broadcast_to(np.ravel(known), len(places)).tolist(), strict=True):
        starts[d] = start
    spanned = [d for d in range(operand.shape.rank) if d not in op.inserted_window_dims]
    for d, u in zip(spanned, op.update_window_dims, strict=True):
        sizes[d] = update.shape.dimensions[u]
    spaces = list(zip(starts, sizes, operand.shape.dimensions, strict=True))
    if not all(0 <= start <= bound - size for start, size, bound in spaces):
        return operand
    update, (combiner,) = reshaped(update, sizes), instruction.called
    if combiner.root is not combiner.parameters[1]:
        before = computation.add(Slice(tuple((start, start + size, 1) for start, size, _ in spaces)), [operand])
        update = computation.add(Map(tuple(range(len(sizes)))), [before, update], [combiner])
    where = [computation.add(Constant(Literal.of(start, dtypes.s64[()]))) for start in starts]
    return like(instruction, DynamicUpdateSlice(), operand, update, *where)


@simplifies(Sort)
def sort_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Lines of one element, or none, are in order."""
    assert isinstance(instruction.op, Sort)
    operands = instruction.operands
    if operands[0].shape.dimensions[instruction.op.dimension] > 1:
        return None
    return operands[0] if len(operands) == 1 else computation.add(Tuple(), operands)
