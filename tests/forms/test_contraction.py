"""The contraction form against the reference: products counted out one by one from what the form says, on integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.forms.contraction import Contraction, ContractionDimension, Move
from tests.forms.programs import program

CASES = """
s32[3,5]      dot          s32[3,4],s32[4,5]             lhs_contracting_dims={1},rhs_contracting_dims={0}
s32[3,5]      dot          s32[3],s32[5]                 lhs_contracting_dims={},rhs_contracting_dims={}
s32[2,3]      dot          s32[2,0],s32[0,3]             lhs_contracting_dims={1},rhs_contracting_dims={0}
s32[3,2,4,5]  dot          s32[4,2,6,3],s32[6,5,3,2]     lhs_batch_dims={3,1},lhs_contracting_dims={2},rhs_batch_dims={2,3},rhs_contracting_dims={0}
s32[5]        dot          s32[4,2,3],s32[3,5,4,2]       lhs_contracting_dims={2,0,1},rhs_contracting_dims={0,2,3}
f32[4,5]      scaled-dot   f32[4,6],f32[6,5],f32[2,3],f32[2,5]    lhs_contracting_dims={1},rhs_contracting_dims={0}
f32[4,5]      scaled-dot   f32[4,6],f32[6,5],f32[4,3],f32[]       lhs_contracting_dims={1},rhs_contracting_dims={0}
s32[7,5]      ragged-dot   s32[7,3],s32[2,3,5],s32[2]             lhs_contracting_dims={1},rhs_contracting_dims={1},lhs_ragged_dims={0},rhs_group_dims={0}
s32[2,6,5]    ragged-dot   s32[2,3,6],s32[2,5,3,4],s32[2,4]       lhs_batch_dims={0},lhs_contracting_dims={1},rhs_batch_dims={0},rhs_contracting_dims={2},lhs_ragged_dims={2},rhs_group_dims={3}
s32[4,6,5]    ragged-dot   s32[4,6,3],s32[2,3,5],s32[4,2]         lhs_contracting_dims={2},rhs_contracting_dims={1},lhs_ragged_dims={1},rhs_group_dims={0}
s32[3,4,5]    ragged-dot   s32[4,7],s32[7,5],s32[3]               lhs_contracting_dims={1},rhs_contracting_dims={0},lhs_ragged_dims={1}
s32[3,2,4,5]  ragged-dot   s32[2,4,7],s32[7,2,5],s32[2,3]         lhs_batch_dims={0},lhs_contracting_dims={2},rhs_batch_dims={1},rhs_contracting_dims={0},lhs_ragged_dims={2}
s32[3,4,5]    ragged-dot   s32[3,4,2],s32[3,2,5],s32[2]           lhs_batch_dims={0},lhs_contracting_dims={2},rhs_batch_dims={0},rhs_contracting_dims={1},lhs_ragged_dims={0}
s32[2,3,4]    convolution  s32[2,5,4],s32[3,5,1]         window={size=1},dim_labels=bf0_oi0->bf0
s32[4,6]      convolution  s32[4,3],s32[3,6]             window={},dim_labels=bf_io->bf
s32[3,2,8]    convolution  s32[2,7,3],s32[3,2,3]         window={size=2,stride=1,pad=1_1},dim_labels=b0f_i0o->fb0
s32[2,4,3]    convolution  s32[2,3,5],s32[4,3,3]         window={size=3,stride=2,pad=2_0,rhs_reversal=1},dim_labels=bf0_oi0->bf0
s32[1,2,9]    convolution  s32[1,1,5],s32[2,1,3]         window={size=3,pad=1_-1,lhs_dilate=3,rhs_dilate=2},dim_labels=bf0_oi0->bf0
s32[2,6,4,3]  convolution  s32[2,4,5,3],s32[6,2,2,1]     window={size=2x1},dim_labels=bf01_oi01->bf01,feature_group_count=2
s32[2,6,4]    convolution  s32[2,3,5],s32[6,1,2]         window={size=2},dim_labels=bf0_oi0->bf0,feature_group_count=3
s32[4,2,7]    convolution  s32[3,6,2],s32[2,3,4]         window={size=2,rhs_reversal=1,pad=1_1},dim_labels=f0b_0io->fb0
s32[2,4,4]    convolution  s32[2,4,5],s32[4,2,2]         window={size=2},dim_labels=fb0_oi0->bf0,batch_group_count=2
"""


def rows() -> list[list[str]]:
    return [line.split(maxsplit=3) for line in CASES.strip().splitlines()]


@pytest.mark.parametrize(("result", "opcode", "operands", "attributes"), rows())
def test_form_counts_the_references_products(result: str, opcode: str, operands: str, attributes: str) -> None:
    text = " ".join(part for part in operands.replace("],", "] ").split())
    module = program(result, opcode, text, attributes)
    root = module.entry.root
    shapes = [operand.shape for operand in root.operands]
    draw = np.random.default_rng(0)
    values: list[Any] = [draw.integers(-9, 10, shape.dimensions).astype(shape.dtype.numpy) for shape in shapes]
    if opcode == "ragged-dot":
        values[2] = draw.integers(0, 4, shapes[2].dimensions).astype(np.int32)
    if opcode == "scaled-dot":
        values[2:] = [2.0 ** np.round(scale / 3) for scale in values[2:]]
        values = [value.astype(np.float32) for value in values]
    form = root.op.contraction(shapes)
    want = hk.evaluate(module, *values)
    np.testing.assert_array_equal(counted(form, values, root.shape.dimensions), want)
    np.testing.assert_array_equal(hk.compile(module)(*values), want)


def counted(form: Contraction, operands: list[Any], sizes: tuple[int, ...]) -> Any:
    """Sums of all products that the form names."""
    total = np.zeros(sizes, operands[0].dtype)
    windows = {w.dimension: w for w in form.windows or ()}
    for index in itertools.product(*(range(d.size) for d in form.dimensions)):
        for group in _groups_of(form, operands, index):
            lhs = _place(form, "lhs", index, operands[0].shape, None)
            rhs = _place(form, "rhs", index, operands[1].shape, group)
            out = _place(form, "result", index, sizes, group)
            for d, window in windows.items():
                lhs[d] -= window.low
                lhs[d] = lhs[d] // window.base_dilation if lhs[d] % window.base_dilation == 0 else -1
            if all(0 <= place < size for place, size in zip(lhs, operands[0].shape, strict=True)):
                total[tuple(out)] += _factor(form, operands, 0, lhs) * _factor(form, operands, 1, rhs)
    return total


def _place(
    form: Contraction, name: str, index: tuple[int, ...], sizes: tuple[int, ...], group: int | None
) -> list[int]:
    """The sum of the moves; one that goes backwards begins at the end."""
    place = [0] * len(sizes)
    moves: list[tuple[Any, Any]] = [(getattr(d, name), value) for d, value in zip(form.dimensions, index, strict=True)]
    if form.groups is not None and name != "lhs":
        moves.append((getattr(form.groups, name), group))
    for move, value in moves:
        if move is not None:
            place[move.dimension] += value * move.step + (sizes[move.dimension] - 1 if move.step < 0 else 0)
    return place


def _groups_of(form: Contraction, operands: list[Any], index: tuple[int, ...]) -> list[int | None]:
    if form.groups is None:
        return [None]
    before = tuple(index[number] for number in form.groups.before)
    ends = np.cumsum(operands[form.groups.sizes][before])
    value = index[form.groups.dimension]
    return [g for g, end in enumerate(ends) if (ends[g - 1] if g else 0) <= value < end]


def _factor(form: Contraction, operands: list[Any], number: int, place: list[int]) -> Any:
    value = operands[number][tuple(place)]
    if not form.is_scaled:
        return value
    scale = operands[number + 2]
    blocks = zip(place, operands[number].shape, scale.shape, strict=False)
    return value * (scale[tuple(p // (size // count) for p, size, count in blocks)] if scale.ndim else scale)


def test_roles() -> None:
    moves = {"lhs": Move(0), "rhs": Move(1), "result": Move(0)}
    named = {
        "batch": ("lhs", "rhs", "result"),
        "left": ("lhs", "result"),
        "right": ("rhs", "result"),
        "summed": ("lhs", "rhs"),
    }
    for role, arrays in named.items():
        assert ContractionDimension(2, **{name: moves[name] for name in arrays}).role == role
