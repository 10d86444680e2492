"""Traits of instructions that lowering needs."""

from __future__ import annotations

from hlokit.analysis.loops import counter
from hlokit.cpu.lower.leaf import array_leaves
from hlokit.hlo.instruction import Instruction
from hlokit.ops.slicing import DynamicUpdateSlice
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


def may_be_element_loop(loop: Instruction) -> bool:
    """A counted loop that works element by element, as far as the ops tell: nothing but maps of arrays and scalars."""
    found = counter(loop)
    if found is None or found.index is None or not all(e.is_array for e in loop.shape.elements):
        return False
    if found.trips > _MOST_TRIPS:
        return False
    for instruction in loop.called[1].instructions:
        op = instruction.op
        if op.form not in ("map", "index") and not isinstance(op, (Parameter, Tuple, GetTupleElement)):
            return False
        if isinstance(op, DynamicUpdateSlice) and is_small_update(instruction):
            return False  # in place it costs what the update is; as a fold every pass goes through the array
    return True


def is_small_update(instruction: Instruction) -> bool:
    """Whether a dynamic-update-slice is of a small part of its array."""
    array, update = (operand.shape for operand in instruction.operands[:2])
    return update.size * 4 <= array.size


_MOST_TRIPS = 2**24
"""Passes of a loop in one kernel, which no signal ends before it is done."""


def only_marks(instruction: Instruction) -> bool:
    """Its leaves are its first operand's, wherever these lie."""
    return instruction.op.passes_on and instruction.op.form in ("control", "communicate")


def makes_nothing(instruction: Instruction) -> bool:
    """It groups, picks or marks what others make, or has no array at all: nothing has to run for it."""
    op = instruction.op
    if isinstance(op, (Tuple, GetTupleElement)) or op.picks is not None or only_marks(instruction):
        return True
    is_plain = op.form == "control" and not instruction.called and not op.has_side_effect()
    return is_plain and not leaf_count(instruction.shape)


def leaf_count(shape: Shape) -> int:
    return 1 if shape.is_array else len(array_leaves(shape))


def literals(literal: Literal) -> list[Literal]:
    """A constant's arrays."""
    if isinstance(literal.value, tuple):
        return [leaf for part in literal.value for leaf in literals(part)]
    return [literal]


PLAIN_FORMS = ("map", "index", "fold", "scatter")
