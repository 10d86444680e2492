"""Checks of the verifier across instructions: channels, groups of devices, starts and their dones."""

from __future__ import annotations

from typing import Any

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS


def group_findings(module: HloModule, replicas: int, partitions: int) -> list[str]:
    """Findings on a module's groups and channels if so many devices run it."""
    findings: list[str] = []
    protocol = Protocol(module, findings)
    protocol.replicas, protocol.partitions = replicas, partitions
    for computation in module.all_computations:
        for instruction in computation.instructions:
            protocol.communication(instruction)
    protocol.finish()
    return findings


class Protocol:
    """Rules about several instructions: those that are under way between two, and those that other devices meet.

    The number of devices is known where the module's replica_count or num_partitions is not 1, the default;
    a module that says nothing may be run on any number (the interpreter checks then).
    """

    def __init__(self, module: HloModule, findings: list[str]) -> None:
        self.findings = findings
        self.replicas = module.replica_count
        self.partitions = module.num_partitions
        self.channels: dict[int, dict[str, Instruction]] = {}

    def _report(self, instruction: Instruction, what: str, label: str) -> None:
        parent = instruction.parent.name if instruction.parent is not None else "?"
        self.findings.append(f"{parent}: {instruction.name}: {what} [{label}]")

    def check(self, instruction: Instruction, fits: bool = True) -> None:
        """One instruction whose op has a stage or the form "communicate"; the others have nothing to check here.

        Unless it `fits` its op's shape rule, its groups are left alone, whose sizes are told by shapes.
        """
        op = instruction.op
        if op.communication.stage in ("start", "update"):
            self._state(instruction)
        if op.communication.waits_for:
            self._start(instruction)
        if fits:
            self.communication(instruction)

    def communication(self, instruction: Instruction) -> None:
        """An instruction's channel and groups."""
        op: Any = instruction.op
        if not hasattr(op, "channel_id"):
            return
        if op.channel_id is not None:
            kind = "send and recv" if op.communication.peer else op.opcode.removesuffix("-start")
            self.channels.setdefault(op.channel_id, {}).setdefault(kind, instruction)
        if not op.communication.peer and self.replicas * self.partitions > 1:
            self._participants(instruction)

    def _state(self, start: Instruction) -> None:
        """The state of a start (a context of send, recv) goes to one done, and nowhere else."""
        users = list(start.users)
        if len(users) != 1 or start.opcode not in users[0].op.communication.waits_for or start.is_root:
            label = "COMM-9" if start.op.communication.peer else "HASYNC-7"
            wanted = " or ".join(opcode for opcode, op in OPS.items() if start.opcode in op.communication.waits_for)
            found = ", ".join(f"{user.name} ({user.opcode})" for user in users) or "nothing"
            self._report(start, f"its state goes to {found}, not to one {wanted}", label)

    def _start(self, done: Instruction) -> None:
        """Checks that a done (or an update) takes the state of a start of its kind, on the same channel."""
        wanted = done.op.communication.waits_for
        start = done.operands[0] if done.operands else None
        if start is None or start.opcode not in wanted:
            label = "COMM-9" if done.op.communication.peer else "HASYNC-1"
            found = "nothing" if start is None else f"{start.name} ({start.opcode})"
            self._report(done, f"its operand is {found}, not {' or '.join(wanted)}", label)
        elif done.op.communication.peer:
            for field in ("channel_id", "is_host_transfer"):
                found, expected = getattr(done.op, field), getattr(start.op, field)
                if found != expected:
                    self._report(done, f"{field} is {found}, that of {start.name} {expected}", "COMM-10")

    def _participants(self, instruction: Instruction) -> None:
        """The groups are made of exactly the devices that there are (GRP-2), of the size that the op says."""
        op: Any = instruction.op
        if hasattr(op, "source_target_pairs"):
            count = self.replicas if op.channel_id is None else self.partitions
            if any(not 0 <= i < count for pair in op.source_target_pairs for i in pair):
                self._report(
                    instruction, f"source_target_pairs of {count} devices: {op.source_target_pairs}", "CPERM-5"
                )
            return
        count, scale = self._ids(op)
        groups = op.replica_groups.expand(count)
        ids = sorted(i for group in groups for i in group)
        covers = instruction.opcode != "collective-broadcast"
        if (covers and ids != list(range(count))) or any(i >= count for i in ids):
            self._report(instruction, f"replica_groups {op.replica_groups} of {count} devices", "GRP-2")
        elif covers:
            self._size(instruction, len(groups[0]) * scale)

    def _ids(self, op: Any) -> tuple[int, int]:
        """The number of ids that the groups number, and of the devices that each id stands for (GRP-4)."""
        if op.channel_id is None:
            return self.replicas, 1
        if getattr(op, "use_global_device_ids", False):
            return self.replicas * self.partitions, 1
        if hasattr(op, "use_global_device_ids"):
            return self.replicas, self.partitions
        return self.partitions, 1

    def _size(self, instruction: Instruction, size: int) -> None:
        """Results, operands or dimensions that count the members of a group."""
        op: Any = instruction.op
        operand = instruction.operands[0].shape
        if instruction.opcode == "all-to-all":
            if op.dimension is None:
                self._count(instruction, "operands", len(instruction.operands), size, "A2A-5")
            elif operand.dimensions[op.dimension] % size:
                self._report(instruction, f"{operand} cannot be cut for {size} devices", "A2A-4")
            return
        if instruction.opcode.startswith("all-gather"):
            shape, label = instruction.shape, "AGATHER-4"
            if instruction.opcode == "all-gather-start":
                shape = shape.elements[1]
        elif instruction.opcode == "reduce-scatter":
            shape, label = instruction.shape, "RSCAT-4"
        else:
            return
        result = shape.elements[0] if shape.is_tuple else shape
        d: int = op.dimension
        sizes = operand.dimensions[d], result.dimensions[d]
        if min(sizes):
            self._count(instruction, "shard count", max(sizes) // min(sizes), size, label)

    def _count(self, instruction: Instruction, what: str, found: int, expected: int, label: str) -> None:
        if found != expected:
            self._report(instruction, f"{what} {found} for groups of {expected}", label)

    def finish(self) -> None:
        """One channel is for one kind of op (GRP-6, COMM-15)."""
        for channel, kinds in self.channels.items():
            if len(kinds) > 1:
                (first, _), *others = kinds.items()
                for kind, instruction in others:
                    label = "COMM-15" if "send and recv" in (first, kind) else "GRP-6"
                    self._report(instruction, f"channel {channel} serves {kind} and {first}", label)
