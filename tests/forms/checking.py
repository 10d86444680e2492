"""Checks every instruction of a running program that has a form: its value by the form against the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np

import hlokit as hk
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import Dynamic, is_ndarray
from tests.forms.agree import ULP, difference
from tests.forms.evaluator import by_form
from tests.forms.expanding import expanded

EVALUATED = ("map", "index", "fold", "scatter", "expand")
_MOST_STEPS = 3000


class Checker:
    """Hooks for hk.evaluate. `seen`: opcodes that were checked."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.wrong: list[str] = []
        self.operands: list[tuple[Any, ...]] = []

    def run(self, module: Any, *inputs: Any) -> Any:
        return hk.evaluate(module, *inputs, before=self.before, after=self.after)

    def before(self, instruction: Instruction, operands: tuple[Any, ...]) -> None:
        self.operands.append(operands)

    def after(self, instruction: Instruction, values: tuple[Any, ...]) -> None:
        operands, op = self.operands.pop(), instruction.op
        shapes = [o.shape for o in instruction.operands]
        if op.form == "kernel":
            self._check_kernel(instruction, shapes)
        if op.form == "contraction":
            self._check_contraction(instruction, shapes)
        if op.form not in EVALUATED or not all(s.is_array for s in [*shapes, *instruction.shape.leaves()]):
            return
        if any(s.is_dynamic for s in [*shapes, instruction.shape]) or any(isinstance(o, Dynamic) for o in operands):
            return  # forms are of static shapes
        if op.form == "fold" and _steps(op, shapes) > _MOST_STEPS:
            return
        called = dict(instruction.called_by_role())
        if op.form != "expand" and not all(map(is_scalar, called.values())):
            return  # functions with arrays inside: the evaluator has scalars alone
        if op.form != "expand" and any(map(is_inexact, called.values())):
            return  # each step adds an error: how large the last one is cannot be said
        with np.errstate(all="ignore"):
            got = self._value(instruction, operands, shapes, called)
        (want,) = values
        for g, w in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
            assert is_ndarray(w)
            problem = difference(op, g, w)
            if problem:
                self.wrong.append(f"{instruction}: {problem}")
        self.seen.add(op.opcode)

    def _check_kernel(self, instruction: Instruction, shapes: Any) -> None:
        """Its data name operands, results and roles that the instruction has."""
        kernel = instruction.op.kernel(shapes)
        assert kernel.routine and set(kernel.prologue) <= set(range(len(shapes)))
        assert set(kernel.epilogue) <= set(range(len(list(instruction.shape.leaves()))))
        assert kernel.functions == instruction.op.roles, "every called computation is one on scalars"
        self.seen.add(instruction.opcode)

    def _check_contraction(self, instruction: Instruction, shapes: Any) -> None:
        """Its moves are along dimensions that operands and result have; every dimension of the result is moved along."""
        form = instruction.op.contraction(shapes)
        ranks = {"lhs": shapes[0].rank, "rhs": shapes[1].rank, "result": instruction.shape.rank}
        for name, rank in ranks.items():
            moves = [getattr(d, name) for d in form.dimensions]
            if form.groups is not None and name != "lhs":
                moves.append(getattr(form.groups, name))
            assert {move.dimension for move in moves if move is not None} == set(range(rank))
        assert all(d.role for d in form.dimensions)
        self.seen.add(instruction.opcode)

    def _value(self, instruction: Instruction, operands: Any, shapes: Any, called: Any) -> Any:
        """By the form; of an expansion what its instructions give, each of them checked as well."""
        op = instruction.op
        if op.form != "expand":
            return by_form(op, operands, shapes, instruction.shape, called)
        module = expanded(op, shapes, called)
        assert module.entry.root.shape.static is instruction.shape.static, "the expansion has another shape"
        inner = Checker()
        value = inner.run(module, *operands)
        self.wrong += inner.wrong
        self.seen |= inner.seen
        return value


def is_scalar(computation: Computation) -> bool:
    """No value in it, or in what it calls, is an array of rank 1 or more."""
    ranks = [leaf.rank for i in computation.instructions for leaf in i.shape.leaves()]
    return not any(ranks) and all(is_scalar(c) for i in computation.instructions for c in i.called)


def is_inexact(computation: Computation) -> bool:
    """It computes something that has an error bound, not a value."""
    found = any(ULP.get(i.opcode) for i in computation.instructions)
    return found or any(is_inexact(c) for i in computation.instructions for c in i.called)


def _steps(op: Any, shapes: Any) -> int:
    return int(np.prod([d.size for d in op.fold(shapes).dimensions], dtype=np.int64))
