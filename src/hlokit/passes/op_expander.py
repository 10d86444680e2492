"""op-expander: replaces ops that are written with other ops (batch norms, select-and-scatter, scan)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.ops.structure import Parameter
from hlokit.passes.effects import Turns
from hlokit.passes.pipeline import Pass
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class OpExpander(Pass):
    """Asks every op of the expand form for its expansion, until none is left; those on dynamic shapes stay.

    The values are those of the form (docs/decisions/0002): a batch norm computes in the operand's type where the
    reference computes in f64, so this pass keeps every bit of all but batch norms.

    exact  leave those alone whose expansion may give other bits than the reference (`Op.is_exact`)
    keep   opcodes to leave alone
    """

    exact: bool = False
    keep: frozenset[str] = frozenset()

    name = "op-expander"

    def run(self, module: HloModule) -> bool:
        pending = module.all_computations
        changed = False
        turns = Turns()
        while pending:
            computation = pending.pop()
            expanded = [i for i in computation.post_order() if self._expands(i)]
            waiting = [i for i in computation.instructions if i.control_predecessors] if expanded else []
            effects = turns.of(computation) if expanded else []
            made: dict[Instruction, range] = {}
            for instruction in expanded:
                first = computation.next_id
                graph = ExpansionWriter(computation, module, instruction.extra)
                called: dict[str, Any] = dict(instruction.called_by_role())
                root = instruction.op.expand(graph, *instruction.operands, **called)
                _take_over(instruction, root, waiting)  # type: ignore[arg-type]
                computation.remove(instruction)
                made[instruction] = range(first, computation.next_id)
                pending += graph.made
            if expanded:
                turns.keep(computation, effects, made)
                computation.remove_dead()
                pending.append(computation)  # what an expansion is written with may itself be expanded
                changed = True
        return changed

    def _expands(self, instruction: Instruction) -> bool:
        op = instruction.op
        if op.form != "expand" or op.opcode in self.keep or _is_dynamic(instruction):
            return False
        return not self.exact or op.is_exact(*(o.shape for o in instruction.operands))


class ExpansionWriter:
    """Appends to a computation what an op writes (forms.graph.Graph); `made`: the computations that came with it."""

    def __init__(self, computation: Computation, module: HloModule, extra: Extra | None = None) -> None:
        self.into = computation
        self.module = module
        self.metadata = extra.metadata if extra is not None else None
        self.made: list[Computation] = []

    def add(self, op: Op, *operands: Any, called: Sequence[Any] = ()) -> Instruction:
        instruction = self.into.add(op, operands, called)
        if self.metadata is not None:
            instruction.ensure_extra().metadata = self.metadata
        return instruction

    def computation(self, parameters: Sequence[Shape], body: Callable[..., Any]) -> Computation:
        inner = Computation(f"{self.into.name}.expanded", self.module)
        graph = ExpansionWriter(inner, self.module)
        graph.metadata = self.metadata
        arguments = [graph.add(Parameter(i, shape)) for i, shape in enumerate(parameters)]
        inner.set_root(body(graph, *arguments))
        self.module.add_computation(inner)
        self.made += [inner, *graph.made]
        return inner


def _is_dynamic(instruction: Instruction) -> bool:
    return instruction.shape.is_dynamic or any(o.shape.is_dynamic for o in instruction.operands)


def _take_over(old: Instruction, new: Instruction, waiting: Sequence[Instruction]) -> None:
    """`new` in the place of `old`, after what `old` had to wait for and before what waits for it."""
    computation = old.parent
    assert computation is not None
    computation.replace(old, new)
    for instruction in waiting:
        before = instruction.control_predecessors
        if old in before:
            instruction.ensure_extra().control_predecessors = [new if p is old else p for p in before]
    if old.control_predecessors:
        new.ensure_extra().control_predecessors += old.control_predecessors
