"""conv-canonicalization: replaces convolutions whose window has one element, or one place, by matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.contraction import Dot
from hlokit.ops.convolution import Convolution
from hlokit.ops.elementwise import Add, Multiply
from hlokit.ops.movement import Broadcast, Pad, Transpose
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import filled, is_plain, like, reshaped
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import PaddingDimension, WindowDimension


class ConvCanonicalization(Pass):
    """A convolution without groups, each of whose window dimensions is of size 1 or takes one place, is a dot.

    The products are the same, their sums may be taken in another order. What a window of size 1 meets in padding and in
    the holes of a dilated input becomes a pad of the dot. Of a window that takes one place, as in the gradient of a
    kernel of size 1, the elements that meet no padding are taken. So is a convolution whose batch groups make one
    element each: they become the dot's batch. Where each feature group has one input feature, and all window dimensions
    are of size 1, the convolution is a product of elements instead.
    """

    name = "conv-canonicalization"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, Convolution) and is_plain(instruction):
                    made = _as_dot(instruction, instruction.op, computation)
                    if made is None:
                        made = _as_multiply(instruction, instruction.op, computation)
                    if made is not None:
                        computation.replace(instruction, made)
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed


def _as_dot(conv: Instruction, op: Convolution, computation: Computation) -> Instruction | None:
    """The same sums as a dot, brought to the dimensions of the convolution; None if they are not a dot."""
    (lhs, rhs), numbers = conv.operands, op.dim_labels
    if op.feature_group_count != 1 or not conv.shape.size or conv.shape.dtype is dtypes.f8e8m0fnu:  # has no 0
        return None
    spatial = list(zip(numbers.lhs[2:], numbers.rhs[2:], numbers.output[2:], op.window.dimensions, strict=True))
    single = [entry for entry in spatial if _sees_one(entry[3])]
    once = [entry for entry in spatial if not _sees_one(entry[3])]
    taps = {i: _taps_inside(d, lhs.shape.dimensions[i]) for i, _, _, d in once}
    is_grouped = op.batch_group_count != 1
    if not all(taps.values()) or (is_grouped and (single or not _has_groups_of_one(conv, op))):
        return None
    strided = {i: range(0, lhs.shape.dimensions[i], d.stride) for i, _, _, d in single}
    lhs = _part(lhs, strided | {i: _places(d, taps[i]) for i, _, _, d in once}, computation)
    rhs = _part(rhs, {k: taps[i] for i, k, _, _ in once}, computation)
    ones = [k for _, k, _, _ in single]
    kept = [d for d in range(rhs.shape.rank) if d not in ones]
    rhs = reshaped(rhs, [rhs.shape.dimensions[d] for d in kept])
    place = {d: i for i, d in enumerate(kept)}
    left = (numbers.input_feature_dimension, *(i for i, _, _, _ in once))
    right = (place[numbers.kernel_input_feature_dimension], *(place[k] for _, k, _, _ in once))
    goes_to = {numbers.input_batch_dimension: numbers.output_batch_dimension, **{i: o for i, _, o, _ in single}}
    order = [goes_to[d] for d in range(lhs.shape.rank) if d not in left] + [numbers.output_feature_dimension]
    batch: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
    if is_grouped:
        order = [numbers.output_feature_dimension]
        batch = (numbers.input_batch_dimension,), (place[numbers.kernel_output_feature_dimension],)
    padding = {o: _padding(d) for _, _, o, d in single}
    sizes = list(conv.shape.dimensions)
    for i, _, o, _ in single:
        sizes[o] = lhs.shape.dimensions[i]
    output = conv.shape.with_dimensions([sizes[o] for o in order])
    dot = computation.add(Dot(batch[0], left, batch[1], right, op.operand_precision, None, output), [lhs, rhs])
    ascending = tuple(sorted(range(len(order)), key=order.__getitem__))
    if ascending != tuple(range(len(order))):
        dot = computation.add(Transpose(ascending), [dot])
    return _padded(conv, reshaped(dot, sizes), padding, computation)


def _has_groups_of_one(conv: Instruction, op: Convolution) -> bool:
    """Whether each batch group makes one element of the result, of a type whose sums loops take as fast as kernels."""
    return conv.shape.size == op.batch_group_count and conv.shape.dtype in (dtypes.f32, dtypes.f64)


def _as_multiply(conv: Instruction, op: Convolution, computation: Computation) -> Instruction | None:
    """The same products as a multiply, with 0 added as their sums have it; None if they are more than one a sum."""
    (lhs, rhs), numbers, dtype = conv.operands, op.dim_labels, conv.shape.dtype
    feature = numbers.input_feature_dimension
    groups = lhs.shape.dimensions[feature]
    if op.feature_group_count != groups or op.batch_group_count != 1 or not conv.shape.size:
        return None
    if not (lhs.shape.dtype is rhs.shape.dtype is dtype) or (dtype.is_floating and dtype.bits < 16):
        return None
    spatial = list(zip(numbers.lhs[2:], numbers.output[2:], op.window.dimensions, strict=True))
    if not all(_sees_one(d) for _, _, d in spatial):
        return None
    lhs = _part(lhs, {i: range(0, lhs.shape.dimensions[i], d.stride) for i, _, d in spatial}, computation)
    goes_to = {numbers.input_batch_dimension: numbers.output_batch_dimension, **{i: o for i, o, _ in spatial}}
    made_at = numbers.output_feature_dimension
    goes_to[feature] = made_at
    sizes = list(conv.shape.dimensions)
    for i, o, _ in spatial:
        sizes[o] = lhs.shape.dimensions[i]
    each = sizes[made_at] // groups
    whole = conv.shape.with_dimensions([*sizes[:made_at], groups, each, *sizes[made_at + 1 :]])
    places = tuple(goes_to[d] + (goes_to[d] > made_at) for d in range(lhs.shape.rank))
    left = _spread(lhs, places, whole, computation)
    right = _spread(reshaped(rhs, [groups, each]), (made_at, made_at + 1), whole, computation)
    product = computation.add(Multiply(), [left, right])
    total = computation.add(Add(), [product, filled(product, _zero(dtype, computation))])
    return _padded(conv, reshaped(total, sizes), {o: _padding(d) for _, o, d in spatial}, computation)


def _spread(operand: Instruction, places: Sequence[int], whole: Shape, computation: Computation) -> Instruction:
    """The operand along these dimensions of a larger array, in any order."""
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != list(range(len(places))):
        operand = computation.add(Transpose(tuple(order)), [operand])
    return computation.add(Broadcast(tuple(sorted(places)), whole), [operand])


def _part(operand: Instruction, places: Mapping[int, range], computation: Computation) -> Instruction:
    """The elements at these places of dimensions."""
    sizes = operand.shape.dimensions
    every = [places.get(k, range(n)) for k, n in enumerate(sizes)]
    if all(taken == range(n) for taken, n in zip(every, sizes)):
        return operand
    ranges = tuple((taken.start, taken[-1] + 1 if taken else taken.start, taken.step) for taken in every)
    return computation.add(Slice(ranges), [operand])


def _padding(d: WindowDimension) -> PaddingDimension:
    return PaddingDimension(d.padding_low, d.padding_high, d.base_dilation - 1)


def _padded(
    conv: Instruction, made: Instruction, padding: Mapping[int, PaddingDimension], computation: Computation
) -> Instruction:
    """A convolution's values, from those at its input's elements: zeros in the padding, in its layout."""
    nothing = PaddingDimension(0, 0)
    if any(p != nothing for p in padding.values()):
        every = tuple(padding.get(o, nothing) for o in range(conv.shape.rank))
        made = computation.add(Pad(every), [made, _zero(conv.shape.dtype, computation)])
    return made if made.shape is conv.shape or conv.shape.layout is None else like(conv, made.op, *made.operands)


def _zero(dtype: DType, computation: Computation) -> Instruction:
    return computation.add(Constant(Literal(dtype[()], np.zeros((), dtype.numpy))))


def _sees_one(d: WindowDimension) -> bool:
    is_plain = d.padding_low == d.padding_high == 0 and d.base_dilation == 1
    return d.size == 1 and (is_plain or d.stride == 1)


def _taps_inside(d: WindowDimension, size: int) -> range:
    """The elements of a window that takes one place on so many elements which meet those; none of other windows."""
    if d.reversal or d.base_dilation != 1 or d.output_size(size) != 1:
        return range(0)
    first = max(0, -(-d.padding_low // d.window_dilation))
    return range(first, min(d.size, (size - 1 + d.padding_low) // d.window_dilation + 1))


def _places(d: WindowDimension, taps: range) -> range:
    """The elements that these of a window meet."""
    first = taps.start * d.window_dilation - d.padding_low
    return range(first, first + len(taps) * d.window_dilation, d.window_dilation)
