"""conv-canonicalization: convolutions whose window sees one element, or all, are products of matrices."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.contraction import Dot
from hlokit.ops.convolution import Convolution
from hlokit.ops.movement import Pad, Transpose
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, like, reshaped
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal
from hlokit.types.window import PaddingDimension, WindowDimension


class ConvCanonicalization(Pass):
    """A convolution without groups, each of whose window dimensions is of size 1 or as large as the input, is a dot.

    The products are the same, their sums may be taken in another order. What a window of size 1 meets in padding and in
    the holes of a dilated input becomes a pad of the dot.
    """

    name = "conv-canonicalization"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, Convolution) and is_plain(instruction):
                    dot = _as_dot(instruction, instruction.op, computation)
                    if dot is not None:
                        computation.replace(instruction, dot)
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed


def _as_dot(conv: Instruction, op: Convolution, computation: Computation) -> Instruction | None:
    """The same sums as a dot, brought to the dimensions of the convolution; None if they are not a dot."""
    (lhs, rhs), numbers = conv.operands, op.dim_labels
    if op.feature_group_count != 1 or op.batch_group_count != 1 or conv.shape.dtype is dtypes.f8e8m0fnu:  # has no 0
        return None
    spatial = list(zip(numbers.lhs[2:], numbers.rhs[2:], numbers.output[2:], op.window.dimensions, strict=True))
    single = [entry for entry in spatial if _sees_one(entry[3])]
    whole = [entry for entry in spatial if not _sees_one(entry[3])]
    if not all(_sees_all(d, lhs.shape.dimensions[i]) for i, _, _, d in whole) or not conv.shape.size:
        return None
    ranges = [(0, n, 1) for n in lhs.shape.dimensions]
    for i, _, _, d in single:
        ranges[i] = (0, lhs.shape.dimensions[i], d.stride)
    if any(stride != 1 for _, _, stride in ranges):
        lhs = computation.add(Slice(tuple(ranges)), [lhs])
    ones = [k for _, k, _, _ in single]
    kept = [d for d in range(rhs.shape.rank) if d not in ones]
    rhs = reshaped(rhs, [rhs.shape.dimensions[d] for d in kept])
    place = {d: i for i, d in enumerate(kept)}
    left = (numbers.input_feature_dimension, *(i for i, _, _, _ in whole))
    right = (place[numbers.kernel_input_feature_dimension], *(place[k] for _, k, _, _ in whole))
    goes_to = {numbers.input_batch_dimension: numbers.output_batch_dimension, **{i: o for i, _, o, _ in single}}
    order = [goes_to[d] for d in range(lhs.shape.rank) if d not in left] + [numbers.output_feature_dimension]
    padding = [PaddingDimension(0, 0)] * conv.shape.rank
    sizes = list(conv.shape.dimensions)
    for i, _, o, d in single:
        padding[o] = PaddingDimension(d.padding_low, d.padding_high, d.base_dilation - 1)
        sizes[o] = lhs.shape.dimensions[i]
    output = conv.shape.with_dimensions([sizes[o] for o in order])
    dot = computation.add(Dot((), left, (), right, op.operand_precision, None, output), [lhs, rhs])
    ascending = tuple(sorted(range(len(order)), key=order.__getitem__))
    if ascending != tuple(range(len(order))):
        dot = computation.add(Transpose(ascending), [dot])
    made = reshaped(dot, sizes)
    if any(p != PaddingDimension(0, 0) for p in padding):
        zero = computation.add(Constant(Literal(conv.shape.dtype[()], np.zeros((), conv.shape.dtype.numpy))))
        made = computation.add(Pad(tuple(padding)), [made, zero])
    return made if made.shape is conv.shape or conv.shape.layout is None else like(conv, made.op, *made.operands)


def _sees_one(d: WindowDimension) -> bool:
    is_plain = d.padding_low == d.padding_high == 0 and d.base_dilation == 1
    return d.size == 1 and (is_plain or d.stride == 1)


def _sees_all(d: WindowDimension, size: int) -> bool:
    plain = d.padding_low == d.padding_high == 0 and d.base_dilation == 1 and d.window_dilation == 1
    return plain and d.size == size and not d.reversal
