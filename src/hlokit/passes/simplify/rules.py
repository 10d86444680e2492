"""The driver of the small rules, and how a rule is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_ndarray
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.types.literal import Literal

Rule: TypeAlias = Callable[[Instruction, Computation], Instruction | None]
"""Looks at one instruction; gives what has the same value and is simpler, or None."""

RULES: dict[type[Op], list[Rule]] = {}
"""The rules by the class of op that they look at, in the order in which they are tried."""


def simplifies(*ops: type[Op]) -> Callable[[Rule], Rule]:
    """Declares a rule for these ops. Its docstring is its law, with why it is safe for floats."""

    def declare(rule: Rule) -> Rule:
        for op in ops:
            RULES.setdefault(op, []).append(rule)
        return rule

    return declare


@dataclass(frozen=True)
class Simplify(Pass):
    """algsimp: applies the rules until none applies. Every rule keeps every bit, NaN and -0 included."""

    name = "algsimp"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            changed |= simplify(computation)
        return changed


def simplify(computation: Computation) -> bool:
    """A worklist in post-order: an instruction comes back when one of its operands was replaced."""
    worklist = list(reversed(computation.post_order()))
    waiting = set(worklist)
    changed = False
    while worklist:
        instruction = worklist.pop()
        waiting.discard(instruction)
        replacement = _first(instruction, computation)
        if replacement is None:
            continue
        again = [user for user in instruction.users if user not in waiting]
        computation.replace(instruction, replacement)
        if replacement not in waiting:
            again.append(replacement)
        worklist += again
        waiting.update(again)
        changed = True
    if changed:
        computation.remove_dead()
    return changed


def _first(instruction: Instruction, computation: Computation) -> Instruction | None:
    """What the first rule that applies gives. A dead instruction is left to die."""
    if instruction.control_predecessors or not (instruction.users or computation.root is instruction):
        return None
    for rule in RULES.get(type(instruction.op), ()):
        replacement = rule(instruction, computation)
        if replacement is not None and replacement is not instruction:
            return replacement
    return None


# -- what rules ask


def scalar_of(instruction: Instruction) -> Any:
    """The one value that all elements have: of a scalar constant, broadcast or not. None if there is none to see."""
    while instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    op = instruction.op
    if not isinstance(op, Constant) or not instruction.shape.is_scalar or not is_ndarray(op.literal.value):
        return None
    return op.literal.value[()]


def is_scalar(instruction: Instruction, value: int) -> bool:
    """All elements are `value`; for zero of a floating type, +0."""
    found = scalar_of(instruction)
    if found is None or not bool(found == np.asarray(value).astype(found.dtype)):
        return False
    return value != 0 or not instruction.shape.dtype.is_floating or not np.signbit(np.float64(found))


def is_negative_zero(instruction: Instruction) -> bool:
    """All elements are -0."""
    found = scalar_of(instruction)
    if found is None or not instruction.shape.dtype.is_floating:
        return False
    return float(found) == 0 and bool(np.signbit(np.float64(found)))


def is_plain(instruction: Instruction) -> bool:
    """No dynamic dimension in the result or the operands: shapes say all about sizes."""
    return not instruction.shape.is_dynamic and not any(o.shape.is_dynamic for o in instruction.operands)


def constant_like(computation: Computation, instruction: Instruction, value: Any) -> Instruction:
    """A constant of the instruction's shape, all elements `value`: a scalar, broadcast where it must be."""
    shape = instruction.shape
    scalar = computation.add(Constant(Literal(shape.dtype[()], np.asarray(value, shape.dtype.numpy))))
    if shape.is_scalar:
        return scalar
    return computation.add(Broadcast((), shape.logical), [scalar])
