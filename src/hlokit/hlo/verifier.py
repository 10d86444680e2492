"""The verifier: checks a whole module against the rules of the language and reports everything that is wrong.

Ops check themselves when they are added; a pass, or a hand that assigns fields, can break what was right. So each
shape is inferred again (once for each op and operand shapes, wherever they occur), and the rules that need more than
one instruction are checked: structure here, users of channels and asynchronous states in protocol.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.errors import ShapeError, VerifyError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import infer_shape, same_result
from hlokit.hlo.protocol import Protocol
from hlokit.types.shape import ProgramShape, Shape


def verify(module: HloModule, after: str | None = None) -> None:
    """Raises one VerifyError with all findings, each with its rule's label; `after` names the pass to blame."""
    findings = _Verifier(module).run()
    if findings:
        raise VerifyError(findings, after)


class _Verifier:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.findings: list[str] = []
        self.protocol = Protocol(module, self.findings)
        self.computations = dict.fromkeys(module.all_computations)
        self.program_shapes: dict[Computation, ProgramShape | None] = {}
        self.inferred: dict[Any, Shape | None] = {}

    def run(self) -> list[str]:
        if not self.computations:
            return [f"module {self.module.name}: no computation [HMOD-17]"]
        if self._call_cycle():
            return self.findings
        names: set[str] = set()
        for computation in self.computations:
            if computation.name in names:
                self._report(f"computation {computation.name}", "the name is taken", "HCOMP-2")
            names.add(computation.name)
            self._computation(computation)
        self._module()
        return self.findings

    def _report(self, where: str, what: str, label: str) -> None:
        self.findings.append(f"{where}: {what} [{label}]")

    # -- one computation

    def _computation(self, computation: Computation) -> None:
        instructions = computation.instructions
        where = f"computation {computation.name}"
        if not instructions:
            self._report(where, "no instruction", "HCOMP-5")
            return
        if computation.module is not self.module:
            self._report(where, "does not belong to the module", "BUILDER-16")
        if computation.root.parent is not computation:
            self._report(where, f"the root {computation.root.name} is not an instruction of it", "HCOMP-4")
        if not self._instructions(computation, instructions):
            self._order(computation, instructions)
        self._parameters(computation, instructions)

    def _instructions(self, computation: Computation, instructions: Sequence[Instruction]) -> bool:
        """Checks each instruction; whether all operands and control predecessors come before their users.

        The loop that every instruction goes through: 1 us each, so the usual case makes no calls.
        """
        inferred = self.inferred
        seen: set[Instruction] = set()
        names: set[str] = set()
        in_order = True
        for instruction in instructions:
            op, operands, called = instruction.op, instruction.operands, instruction.called
            names.add(instruction.name)
            for operand in operands:
                if operand not in seen:
                    in_order = False
                    if operand.parent is not computation:
                        self._foreign(instruction, operand, "operand", "BUILDER-16")
                if instruction not in operand.users:
                    self._report(
                        _name(instruction), f"its operand {operand.name} does not know it as user", "BUILDER-16"
                    )
            for user, place in instruction.users.items():
                at = user.operands if place is None else user.operands[place : place + 1]
                if instruction not in at or user.parent is not computation:
                    self._report(_name(instruction), f"its user {user.name} does not use it", "BUILDER-16")
            seen.add(instruction)
            key = (op, called, *[o.shape for o in operands])
            shape = inferred.get(key)
            if shape is None:
                shape = inferred[key] = self._infer(instruction)
            if shape is not instruction.shape and shape is not None and not self._is_same(instruction, shape):
                shape = None
            if instruction.parent is not computation:
                self._report(_name(instruction), "has another parent than its computation", "BUILDER-16")
            if called:
                self._called(instruction)
            extra = instruction.extra
            if extra is not None and (extra.control_predecessors or extra.parameter_replication):
                in_order = self._extra(instruction, extra, seen) and in_order
            if op.communication.stage or op.form == "communicate":
                self.protocol.check(instruction, fits=shape is not None)
        if len(names) != len(instructions):
            self._names(instructions)
        return in_order

    def _infer(self, instruction: Instruction) -> Shape | None:
        """The shape by the op's rule; None, after a report, if a rule is broken."""
        op, called = instruction.op, instruction.called
        fixed = len(op.roles)
        if len(called) < fixed or (len(called) > fixed and not op.list_roles):
            self._report(_name(instruction), f"calls {len(called)} computations, not {fixed}", "HINST-6")
            return None
        shapes = [self._program_shape(c) for c in called]
        if None in shapes:
            return None
        pairs: list[tuple[str, Any]] = list(zip(op.roles, shapes))
        pairs += [(role, shapes[fixed:]) for role in op.list_roles]
        try:
            return infer_shape(op, [o.shape for o in instruction.operands], pairs)
        except ShapeError as error:
            self.findings.append(f"{_name(instruction)}: {error}")
            return None

    def _program_shape(self, computation: Computation) -> ProgramShape | None:
        """None for a computation without instructions, which is reported elsewhere."""
        if computation not in self.program_shapes:
            self.program_shapes[computation] = computation.program_shape if len(computation) else None
        return self.program_shapes[computation]

    def _is_same(self, instruction: Instruction, inferred: Shape) -> bool:
        """Whether the instruction has the shape that its op gives; else this is reported."""
        same = same_result(instruction.op, instruction.shape, inferred)
        if not same:
            self._report(_name(instruction), f"has shape {instruction.shape}, its op gives {inferred}", "HINST-2")
        return same

    def _foreign(self, instruction: Instruction, other: Instruction, what: str, label: str) -> None:
        home = other.parent.name if other.parent is not None else "no computation"
        self._report(_name(instruction), f"{what} {other.name} is in {home}", label)

    def _called(self, instruction: Instruction) -> None:
        thread = getattr(instruction.op, "async_execution_thread", None)
        for computation in instruction.called:
            if computation not in self.computations:
                self._report(_name(instruction), f"calls {computation.name}, which is not in the module", "HCOMP-2")
            elif thread not in (None, computation.execution_thread):
                what = f"runs on thread {thread}, {computation.name} on {computation.execution_thread}"
                self._report(_name(instruction), what, "HASYNC-5")

    def _extra(self, instruction: Instruction, extra: Extra, seen: set[Instruction]) -> bool:
        """Checks what only some instructions have; whether the control predecessors come before."""
        if extra.parameter_replication:
            leaves = len(list(instruction.shape.leaves()))
            if len(extra.parameter_replication) != leaves:
                what = f"parameter_replication has {len(extra.parameter_replication)} flags for {leaves} leaves"
                self._report(_name(instruction), what, "HCATTR-3")
        for predecessor in extra.control_predecessors:
            if predecessor.parent is not instruction.parent:
                self._foreign(instruction, predecessor, "control predecessor", "HCATTR-4")
            elif predecessor is instruction:
                self._report(_name(instruction), "is its own control predecessor", "HCATTR-5")
        return all(predecessor in seen for predecessor in extra.control_predecessors)

    def _names(self, instructions: Sequence[Instruction]) -> None:
        taken: set[str] = set()
        for instruction in instructions:
            if instruction.name in taken:
                self._report(_name(instruction), "the name is taken", "HCOMP-6")
            taken.add(instruction.name)

    def _order(self, computation: Computation, instructions: Sequence[Instruction]) -> None:
        """The instructions are not in an order in which they can run: a bad schedule, or a cycle."""
        if computation in self.module.scheduled():
            self._report(f"computation {computation.name}", "the schedule has an operand after its user", "HMOD-2")
        waiting = {i: {p for p in _before(i) if p.parent is computation} for i in instructions}
        followers: dict[Instruction, list[Instruction]] = {i: [] for i in instructions}
        for instruction, before in waiting.items():
            for predecessor in before:
                followers.setdefault(predecessor, []).append(instruction)
        ready = [i for i, before in waiting.items() if not before]
        while ready:
            instruction = ready.pop()
            del waiting[instruction]
            for follower in followers[instruction]:
                waiting[follower].discard(instruction)
                if not waiting[follower]:
                    ready.append(follower)
        if waiting:
            names = ", ".join(i.name for i in list(waiting)[:5])
            by_control = any(i.control_predecessors for i in waiting)
            self._report(
                f"computation {computation.name}", f"a cycle: {names}", "HCATTR-5" if by_control else "HCOMP-7"
            )

    def _parameters(self, computation: Computation, instructions: Sequence[Instruction]) -> None:
        ops: list[Any] = [i.op for i in instructions if i.op.opcode == "parameter"]
        numbers = sorted(int(op.number) for op in ops)
        if numbers != list(range(len(numbers))):
            what = f"parameter numbers {numbers} are not 0..{len(numbers) - 1}, each once"
            self._report(f"computation {computation.name}", what, "HCOMP-8")

    # -- the module

    def _call_cycle(self) -> bool:
        """Whether computations call themselves, directly or not."""
        callees = {c: {d: None for i in c.instructions for d in i.called} for c in self.computations}
        done: set[Computation] = set()
        for start in self.computations:
            path = {start: iter(callees[start])}
            while path:
                computation = next(reversed(path))
                callee = next((d for d in path[computation] if d not in done), None)
                if callee is None:
                    done.add(computation)
                    del path[computation]
                elif callee in path:
                    self._report(f"computation {callee.name}", f"calls itself, through {computation.name}", "HCOMP-2")
                    return True
                else:
                    path[callee] = iter(callees.get(callee, ()))
        return False

    def _module(self) -> None:
        module = self.module
        entry = module.entry_or_none
        if entry is None or entry not in self.computations:
            self._report(f"module {module.name}", "has no entry computation", "HMOD-17")
            return
        if not len(entry):
            return
        program = entry.program_shape
        self._layouts(program)
        self._aliases(program)
        self.protocol.finish()

    def _layouts(self, program: ProgramShape) -> None:
        module, where = self.module, f"module {self.module.name}: entry_computation_layout"
        if module.result_layout is not None and module.result_layout.static is not program.result.static:
            self._report(where, f"result {module.result_layout}, the entry gives {program.result}", "HMOD-5")
        if module.parameter_layouts is None:
            return
        if len(module.parameter_layouts) != len(program.parameters):
            what = f"{len(module.parameter_layouts)} parameters, the entry has {len(program.parameters)}"
            self._report(where, what, "HMOD-5")
            return
        for number, (given, shape) in enumerate(zip(module.parameter_layouts, program.parameters)):
            if given.static is not shape.static:
                self._report(where, f"parameter {number} is {given}, in the entry {shape}", "HMOD-5")

    def _aliases(self, program: ProgramShape) -> None:
        where = f"module {self.module.name}: input_output_alias"
        aliased: set[tuple[int, ...]] = set()
        for alias in self.module.input_output_alias:
            output = _part(program.result, alias.output_index)
            parameter = _parameter_part(program, alias.parameter, alias.parameter_index)
            if output is None:
                self._report(where, f"no output {_path(alias.output_index)} in {program.result}", "HMOD-7")
            elif parameter is None:
                what = f"no parameter {alias.parameter} {_path(alias.parameter_index)}"
                self._report(where, what, "HMOD-7")
            elif alias.kind == "must-alias" and output.nbytes != parameter.nbytes:
                self._report(where, f"{output} and {parameter} have different sizes", "HMOD-7")
            if alias.output_index in aliased:
                self._report(where, f"output {_path(alias.output_index)} is aliased twice", "HMOD-7")
            aliased.add(alias.output_index)
        for number, index in self.module.buffer_donor:
            if _parameter_part(program, number, index) is None:
                where = f"module {self.module.name}: buffer_donor"
                self._report(where, f"no parameter {number} {_path(index)}", "HMOD-8")


def _name(instruction: Instruction) -> str:
    return f"{instruction.parent.name if instruction.parent is not None else '?'}: {instruction.name}"


def _before(instruction: Instruction) -> tuple[Instruction, ...]:
    return (*instruction.operands, *instruction.control_predecessors)


def _part(shape: Shape, index: Sequence[int]) -> Shape | None:
    try:
        return shape.at(index)
    except IndexError:
        return None


def _parameter_part(program: ProgramShape, number: int, index: Sequence[int]) -> Shape | None:
    return _part(program.parameters[number], index) if 0 <= number < len(program.parameters) else None


def _path(index: Sequence[int]) -> str:
    return "{" + ",".join(map(str, index)) + "}"
