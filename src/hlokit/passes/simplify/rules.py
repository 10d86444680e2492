"""The driver of the small rules, and how a rule is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_ndarray
from hlokit.ops.movement import Broadcast
from hlokit.ops.reshaping import Reshape
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.types.literal import Literal

Rule: TypeAlias = Callable[[Instruction, Computation], Instruction | None]
"""Looks at one instruction; gives what has the same value and is simpler, or None."""

RULES: dict[type[Op], list[Rule]] = {}
"""The rules by the class of op that they look at, in the order in which they are tried."""


FAST_RULES: dict[type[Op], list[Rule]] = {}
"""Those that round differently: for `Simplify(fast=True)` alone, which tries them after the others."""

_DYNAMIC: set[Rule] = set()


def simplifies(*ops: type[Op], dynamic: bool = False, fast: bool = False) -> Callable[[Rule], Rule]:
    """Declares a rule for these ops. Its docstring is its law, with why it is safe for floats.

    dynamic  it is asked where shapes are dynamic, too: it keeps the elements beyond run-time sizes, which gathers read
    fast     it may change how a result is rounded, but not which results are NaN, infinite or zero
    """

    def declare(rule: Rule) -> Rule:
        for op in ops:
            (FAST_RULES if fast else RULES).setdefault(op, []).append(rule)
        if dynamic:
            _DYNAMIC.add(rule)
        return rule

    return declare


@dataclass(frozen=True)
class Simplify(Pass):
    """algsimp: applies the rules until none applies. Every rule keeps every bit, NaN and -0 included.

    `fast`: the rules that round differently too.
    """

    name = "algsimp"
    fast: bool = False

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            changed |= simplify(computation, self.fast)
        return changed


@dataclass(frozen=True)
class FastSimplify(Simplify):
    """algsimp, with the rules that round differently too: of powers, quotients by constants, small products."""

    name = "algsimp-fast"
    fast: bool = True


def simplify(computation: Computation, fast: bool = False) -> bool:
    """A worklist in post-order: an instruction comes back when one of its operands was replaced."""
    worklist = list(reversed(computation.post_order()))
    waiting = set(worklist)
    changed = False
    while worklist:
        instruction = worklist.pop()
        waiting.discard(instruction)
        first_new = computation.next_id
        replacement = _first(instruction, computation, fast)
        if replacement is None:
            continue
        again = [user for user in instruction.users if user not in waiting]
        again += _made(replacement, first_new) or ([replacement] if replacement not in waiting else [])
        computation.replace(instruction, replacement)
        worklist += again
        waiting.update(again)
        changed = True
    if changed:
        computation.remove_dead()
    return changed


def _made(replacement: Instruction, first_new: int) -> list[Instruction]:
    """A rule's result and what the rule made it of: ids from `first_new` on. Operands come last."""
    found: dict[Instruction, None] = {}
    pending = [replacement]
    while pending:
        instruction = pending.pop()
        if instruction.id >= first_new and instruction not in found:
            found[instruction] = None
            pending += instruction.operands
    return list(found)


def _first(instruction: Instruction, computation: Computation, fast: bool) -> Instruction | None:
    """The replacement by the first rule that applies. A dead instruction is left to die."""
    rules = RULES.get(type(instruction.op), ())
    if fast and type(instruction.op) in FAST_RULES:
        rules = [*rules, *FAST_RULES[type(instruction.op)]]
    if not rules or instruction.control_predecessors or not (instruction.users or computation.root is instruction):
        return None
    plain = is_plain(instruction)
    for rule in rules:
        replacement = rule(instruction, computation) if plain or rule in _DYNAMIC else None
        if replacement is not None and replacement is not instruction:
            if replacement.shape is not instruction.shape and any(u.op.reads_layout for u in instruction.users):
                continue  # a copy would take its place, and this rule the copy's
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


def like(instruction: Instruction, op: Op, *operands: Instruction) -> Instruction:
    """`op` in the place of `instruction`, in its layout."""
    assert instruction.parent is not None
    return instruction.parent.add(op, operands, shape=instruction.shape)


def reshaped(operand: Instruction, sizes: Sequence[int]) -> Instruction:
    """A static operand under other sizes; itself, if it has them."""
    assert operand.parent is not None
    if operand.shape.dimensions == tuple(sizes):
        return operand
    return operand.parent.add(Reshape(None, operand.shape.with_dimensions(sizes)), [operand])


def filled(instruction: Instruction, scalar: Instruction) -> Instruction:
    """An array of the instruction's shape, all of whose elements are `scalar`."""
    shape = instruction.shape
    return scalar if shape.is_scalar else like(instruction, Broadcast((), shape.logical), scalar)
