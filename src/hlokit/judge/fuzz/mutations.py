"""Mutations of a module: legal programs that differ from a given one in a few instructions, operands or sizes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hlokit.errors import HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS, Op
from hlokit.judge.reduce.case import Case
from hlokit.judge.reduce.edits import Bypass
from hlokit.judge.reduce.shapes import resized

_MOST = 4
"""Mutations of one module."""
_TRIES = 30
_PLAIN = ("parameter", "constant", "tuple", "get-tuple-element")

Mutation = Callable[[Case, Random], bool]
"""Changes the module of a case; False if it finds nothing to change. HlokitError: what it made is not legal."""


def mutated(module: HloModule, seed: int) -> HloModule:
    """A copy of a module with one to four mutations, legal as a whole; the same one for the same seed.

    Another op takes an elementwise op's place, another value an operand's, an operand its instruction's, or all
    dimensions of some size become another.
    """
    source = Random(seed)
    case, wanted = Case(module.clone()), source.randint(1, _MOST)
    for _ in range(_TRIES):
        if not wanted:
            break
        trial = case.copy()
        try:
            changed = source.choice(MUTATIONS)(trial, source)
        except HlokitError:
            continue
        if changed and trial.finish() and trial.key != case.key:
            case, wanted = trial, wanted - 1
    return case.module


def _instructions(case: Case) -> list[Instruction]:
    return [i for c in case.module.computations() for i in c.post_order() if i.opcode not in _PLAIN]


def _other_op(case: Case, source: Random) -> bool:
    found = [i for i in _instructions(case) if i.op.elementwise and not i.called and not i.op.attributes]
    if not found:
        return False
    instruction = source.choice(found)
    assert instruction.parent is not None
    new = instruction.parent.add(_op_like(instruction, source), instruction.operands)
    if new.shape is not instruction.shape:
        return False
    instruction.parent.replace(instruction, new)
    return True


def _op_like(instruction: Instruction, source: Random) -> Op:
    """An elementwise op without attributes that takes as many operands."""
    others = [
        op for name, op in sorted(OPS.items())
        if op.elementwise and not op.attributes and op.arity == instruction.op.arity and name != instruction.opcode
    ]  # fmt: skip
    return source.choice(others or [type(instruction.op)])()


def _other_operand(case: Case, source: Random) -> bool:
    found = [i for i in _instructions(case) if i.operands]
    if not found:
        return False
    instruction = source.choice(found)
    computation = instruction.parent
    assert computation is not None
    place = source.randrange(len(instruction.operands))
    operand = instruction.operands[place]
    order = computation.post_order()
    before = order[: order.index(instruction)]
    others = [v for v in before if v.shape is operand.shape and v is not operand]
    if not others:
        return False
    operands = [*instruction.operands]
    operands[place] = source.choice(others)
    new = computation.add(instruction.op, operands, instruction.called)
    new.extra = instruction.extra
    computation.replace(instruction, new)
    return True


def _bypass(case: Case, source: Random) -> bool:
    sites = Bypass().sites(case)
    return bool(sites) and Bypass().apply(case, source.choice(sites))


def _other_size(case: Case, source: Random) -> bool:
    sizes = sorted({n for i in case.module.instructions() for s in i.shape.leaves() for n in s.dimensions if n > 1})
    if not sizes:
        return False
    size = source.choice(sizes)
    case.module = resized(case.module, {size: source.randint(1, size + 3)})
    return True


MUTATIONS: tuple[Mutation, ...] = (_other_op, _other_operand, _bypass, _other_size)
