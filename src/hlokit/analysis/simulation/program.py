"""Program: a module written as the steps that its devices take, loops and branches included, with all costs known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.analysis.cost import costs_of_instructions
from hlokit.analysis.loops import trip_count
from hlokit.analysis.simulation.overlap import overlapping
from hlokit.analysis.simulation.schedules import MessagePlan, by_size, direct, exchange, halving, ring, tree
from hlokit.analysis.simulation.steps import (
    Begin,
    Branch,
    Communication,
    ComputeStep,
    End,
    Jump,
    LoopStep,
    RepeatStep,
    ReplayProgram,
    Step,
)
from hlokit.analysis.simulation.topology import Array, Topology
from hlokit.errors import HlokitError, UnsupportedError
from hlokit.forms.cost import Cost
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.order import communication_of, evaluation_order
from hlokit.interpreter.process import Process
from hlokit.interpreter.routes import PAIRS, Place, told_pairs
from hlokit.interpreter.transport import rendezvous_key
from hlokit.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate
from hlokit.ops.collectives import AllGather, AllReduce, CollectiveReduce, ReduceScatter
from hlokit.ops.control_flow import Call, Conditional, While
from hlokit.ops.exchanges import CollectiveBroadcast, CollectivePermute, RaggedAllToAll
from hlokit.ops.structure import Parameter
from hlokit.types.shape import Shape

ALGORITHMS = ("auto", "ring", "tree", "halving")

_SMALL = 64
_MOST_PASSES = 2**53


@dataclass(frozen=True)
class SimulationSettings:
    """algorithm: one of ALGORITHMS; flops, memory_bandwidth: of a device, None where computing takes no time."""

    replicas: int
    partitions: int
    algorithm: str = "auto"
    flops: float | None = None
    memory_bandwidth: float | None = None
    trip_count: int | None = None

    def seconds(self, cost: Cost) -> float:
        """Time of computing: that of its arithmetic or of its memory traffic, whichever is longer."""
        arithmetic = (cost.flops + cost.transcendentals) / self.flops if self.flops else 0.0
        return max(arithmetic, cost.bytes_accessed / self.memory_bandwidth if self.memory_bandwidth else 0.0)


def program_of(module: HloModule, topology: Topology, settings: SimulationSettings) -> ReplayProgram:
    """UnsupportedError for communication that cannot be replayed: in a function of scalars, unmatched sends."""
    writer = _Writer(module, topology, settings)
    writer.entry()
    writer.finish()
    return writer.program


def device_groups(op: Any, replicas: int, partitions: int) -> list[tuple[int, ...]]:
    """The devices of each group of a collective, in order (GRP-4)."""
    if op.channel_id is None:
        groups = op.replica_groups.expand(replicas)
        return [tuple(i * partitions + p for i in group) for group in groups for p in range(partitions)]
    if getattr(op, "use_global_device_ids", False):
        return list(op.replica_groups.expand(replicas * partitions))
    if hasattr(op, "use_global_device_ids"):
        groups = op.replica_groups.expand(replicas)
        return [tuple(i * partitions + p for p in range(partitions) for i in group) for group in groups]
    groups = op.replica_groups.expand(partitions)
    return [tuple(r * partitions + i for i in group) for r in range(replicas) for group in groups]


def device_pairs(
    pairs: Sequence[tuple[int, int]], replicas: int, partitions: int, *, of_partitions: bool
) -> list[tuple[int, int]]:
    """Pairs of partitions in every replica, or of replicas for every partition, as pairs of devices."""
    if of_partitions:
        return [(r * partitions + s, r * partitions + t) for r in range(replicas) for s, t in pairs]
    return [(s * partitions + p, t * partitions + p) for p in range(partitions) for s, t in pairs]


class _Writer:
    def __init__(self, module: HloModule, topology: Topology, settings: SimulationSettings) -> None:
        self.module = module
        self.topology = topology
        self.settings = settings
        self.program = ReplayProgram()
        self.communicates = communication_of()
        self.costs = costs_of_instructions(module) if settings.flops or settings.memory_bandwidth else {}
        self.known_seconds: dict[Computation, float] = {}
        self.orders: dict[Computation, list[Instruction]] = {}
        self.plans: dict[Hashable, MessagePlan] = {}
        self.started: dict[Instruction, int] = {}
        self.shared: dict[Hashable, int] = {}
        self.turns: Counter[Hashable] = Counter()
        self.channels: dict[int, list[int]] = {}
        self.met: dict[tuple[int, int], int] = {}
        self.channel_pairs: dict[int, list[tuple[int, int]]] = {}

    # -- what a device does, instruction by instruction

    def entry(self) -> None:
        for instruction in self.module.entry.instructions:
            sharding = instruction.extra.sharding if instruction.extra is not None else None
            parts = (sharding.elements or (sharding,)) if sharding is not None else ()
            if any(part.kind == "tiled" for part in parts):
                self._note("shardings are ignored: only the collectives in the module are counted")
        self.computation(self.module.entry)

    def computation(self, computation: Computation) -> None:
        for instruction in self._order(computation):
            self._instruction(instruction)

    def finish(self) -> None:
        for channel, numbers in self.channels.items():
            if any(self.met.get((channel, side), 0) != len(numbers) for side in (0, 1)):
                raise UnsupportedError(f"simulate: channel {channel} has different numbers of sends and recvs")

    def _instruction(self, instruction: Instruction) -> None:
        op = instruction.op
        if not self.communicates(instruction):
            if instruction in self.started:
                self._emit(End(self.started[instruction], (0, 1)))
            elif seconds := self._seconds(instruction):
                self._emit(ComputeStep(instruction.name, seconds))
        elif isinstance(op, While):
            self._loop(instruction)
        elif isinstance(op, Conditional):
            self._conditional(instruction)
        elif op.calls_through:
            self.computation(instruction.called[0])
        elif isinstance(op, AsyncStart):
            self._async(instruction)
        elif op.communication.peer:
            self._transfer(instruction, op)
        elif op.communication.stage == "done":
            self._emit(End(self.started[instruction.operands[0]], (0, 1)))
        else:
            self._collective(instruction)

    def _emit(self, step: Step) -> int:
        self.program.steps.append(step)
        return len(self.program.steps) - 1

    def _note(self, note: str) -> None:
        if note not in self.program.notes:
            self.program.notes.append(note)

    def _loop(self, loop: Instruction) -> None:
        condition, body = loop.called
        trips = self._trips(loop)
        start = self._emit(LoopStep(loop.name, trips, 0))
        self.computation(condition)
        self.computation(body)
        after = self._emit(RepeatStep(start)) + 1
        self.program.steps[start] = LoopStep(loop.name, trips, after)
        self.computation(condition)

    def _trips(self, loop: Instruction) -> int:
        trips = trip_count(loop)
        if trips is not None and trips > _MOST_PASSES:
            raise UnsupportedError(f"simulate: {loop.name}: {trips} passes, at most {_MOST_PASSES} are counted")
        if trips is not None:
            return trips
        given = self.settings.trip_count
        if given is None:
            self._note(f"{loop.name}: how often it runs is unknown; counted once")
        else:
            self._note(f"{loop.name}: how often it runs is unknown; counted {given} times, as given")
        return 1 if given is None else given

    def _conditional(self, instruction: Instruction) -> None:
        ways = self._ways(instruction)
        if ways is None:
            self.computation(instruction.called[self._most_expensive(instruction)])
            return
        branch = self._emit(Branch(ways))
        begins: list[int] = []
        jumps: list[int] = []
        before, after = self.turns, Counter[Hashable]()
        for called in instruction.called:
            begins.append(len(self.program.steps))
            self.turns = before.copy()
            self.computation(called)
            after |= self.turns
            jumps.append(self._emit(Jump(0)))
        self.turns = after
        for jump in jumps:
            self.program.steps[jump] = Jump(len(self.program.steps))
        self.program.steps[branch] = Branch(np.array(begins)[ways])

    def _most_expensive(self, instruction: Instruction) -> int:
        """The number of the branch that takes longest; a note says that it was chosen."""
        seconds = [self._seconds_of(called) for called in instruction.called]
        chosen = max(range(len(seconds)), key=lambda k: seconds[k])
        if len(seconds) > 1:
            self._note(
                f"{instruction.name}: which branch runs is unknown; the most expensive is counted, number {chosen}"
            )
        return chosen

    def _ways(self, conditional: Instruction) -> Array | None:
        """The branch that each device takes; None where it depends on more than who the device is."""
        needed = _needed(conditional.operands[0])
        if needed is None:
            return None
        ways: list[int] = []
        for place in Place.grid(self.settings.replicas, self.settings.partitions):
            process, values = Process(place=place), dict[Instruction, Any]()
            try:
                for i in needed:
                    values[i] = run_instruction(process, i, [values[o] for o in i.operands])
            except HlokitError:
                return None
            selector, last = values[conditional.operands[0]], len(conditional.called) - 1
            if selector.dtype == np.bool_:
                ways.append(0 if selector else 1)
            else:
                ways.append(int(selector) if 0 <= selector <= last else last)
        return np.array(ways)

    def _async(self, start: Instruction) -> None:
        """A wrapped collective goes on until its async-done; more than one would need a second thread."""
        inner = [i for i in self._order(start.called[0]) if self.communicates(i)]
        if len(inner) == 1 and not inner[0].called[1:] and inner[0].op.communication.is_collective:
            self._begin(start, inner[0])
            return
        self._note(f"{start.name}: counted at its start, it does more than one collective")
        self.computation(start.called[0])

    def _collective(self, instruction: Instruction) -> None:
        if not instruction.op.communication.is_collective:
            raise UnsupportedError(f"simulate: {instruction.name}: {instruction.opcode} that calls collectives")
        number = self._begin(instruction, instruction)
        if not instruction.opcode.endswith("-start"):
            self._emit(End(number, (0, 1)))

    def _begin(self, start: Instruction, collective: Instruction) -> int:
        number = self._shared(start, collective)
        self._emit(Begin(number, (0, 1)))
        self.started[start] = number
        for user in start.users:  # the done, perhaps behind updates
            self._passed_on(user, number)
        return number

    def _shared(self, start: Instruction, collective: Instruction) -> int:
        """Its communication: a new one, but where another branch has that of the same turn on the channel (GRP-6)."""
        key = rendezvous_key(collective)
        self.turns[key] += 1
        turn = key, self.turns[key]
        if turn not in self.shared:
            self.shared[turn] = len(self.program.communications)
            self.program.communications.append(self._communication(collective))
            self.program.communications[-1].name = start.name
        return self.shared[turn]

    def _passed_on(self, user: Instruction, number: int) -> None:
        while isinstance(user.op, AsyncUpdate) and user.users:
            user = next(iter(user.users))
        if isinstance(user.op, AsyncDone):
            self.started[user] = number

    # -- sends and recvs

    def _transfer(self, instruction: Instruction, op: Any) -> None:
        """The k-th send on a channel belongs to the k-th recv. Without pairs a device talks to itself."""
        if op.is_host_transfer:
            return
        side = 0 if op.communication.peer == "send" else 1
        if op.communication.stage == "done":
            number = self.started.get(instruction.operands[0])
            if number is not None:
                self._emit(End(number, (side,)))
            return
        text = instruction.extra.frontend_attributes.get(PAIRS) if instruction.extra is not None else None
        if text is None:
            return
        channel = op.channel_id or 0
        several = self.settings.partitions > 1
        count = self.settings.partitions if several else self.settings.replicas
        pairs = told_pairs(instruction.name, text, count)
        if self.channel_pairs.setdefault(channel, pairs) != pairs:
            raise UnsupportedError(f"simulate: {instruction.name}: other pairs than before on channel {channel}")
        turn = self.met[channel, side] = self.met.get((channel, side), 0) + 1
        numbers = self.channels.setdefault(channel, [])
        if len(numbers) < turn:
            numbers.append(len(self.program.communications))
            shape = instruction.shape.elements[0]
            self.program.communications.append(self._messages(instruction, "send", pairs, shape.nbytes, None))
        number = numbers[turn - 1]
        if side == 0:
            self.program.communications[number].name = instruction.name
        self.started[instruction] = number
        self._emit(Begin(number, (side,)))

    # -- communications

    def _communication(self, instruction: Instruction) -> Communication:
        op: Any = instruction.op
        nbytes = _operand_bytes(instruction)
        if isinstance(op, CollectivePermute):
            pairs = [(int(s), int(t)) for s, t in op.source_target_pairs]
            return self._messages(instruction, "collective-permute", pairs, nbytes, op.channel_id)
        if isinstance(op, RaggedAllToAll):
            self._note(f"{instruction.name}: the rows sent are unknown; counted as if each device sent all")
        groups = self._groups(op)
        kind = instruction.opcode.removesuffix("-start")
        key = (kind, op.replica_groups, op.channel_id is None, getattr(op, "use_global_device_ids", None), nbytes)
        if key not in self.plans:
            self.plans[key] = self._plan(op, groups, nbytes)
        unit_of = np.full((2, self.topology.devices), -1)
        for unit, group in enumerate(groups):
            unit_of[0, list(group)] = unit
        return Communication(instruction.name, kind, unit_of, self.plans[key], nbytes, max(map(len, groups)))

    def _groups(self, op: Any) -> list[tuple[int, ...]]:
        return device_groups(op, self.settings.replicas, self.settings.partitions)

    def _messages(
        self, instruction: Instruction, kind: str, pairs: list[tuple[int, int]], nbytes: int, channel: int | None
    ) -> Communication:
        replicas, partitions = self.settings.replicas, self.settings.partitions
        of_partitions = partitions > 1 if kind == "send" else channel is not None
        ends = device_pairs(pairs, replicas, partitions, of_partitions=of_partitions)
        key = (tuple(ends), nbytes)
        if key not in self.plans:
            self.plans[key] = MessagePlan("direct", direct(ends, nbytes), len(ends))
        unit_of = np.full((2, self.topology.devices), -1)
        for unit, (source, target) in enumerate(ends):
            unit_of[0, source] = unit_of[1, target] = unit
        return Communication(instruction.name, kind, unit_of, self.plans[key], nbytes, 2)

    def _plan(self, op: Any, groups: list[tuple[int, ...]], nbytes: int) -> MessagePlan:
        """The plan by the algorithm that is asked for, where the collective has it; else by the quickest one."""
        ways = self._algorithms(op, groups, nbytes)
        wanted = self.settings.algorithm
        if wanted in ways:
            ways = {wanted: ways[wanted]}
        alike = list(ways) == ["direct"] and self._alike(groups)
        plans = [MessagePlan(name, rounds, len(groups), alike) for name, rounds in ways.items()]
        return min(plans, key=lambda plan: float(plan.measured(self.topology).seconds.max(initial=0.0)))

    def _algorithms(self, op: Any, groups: list[tuple[int, ...]], m: int) -> dict[str, Any]:
        sized = by_size(groups, self.topology.tour, keep_first=isinstance(op, (CollectiveBroadcast, CollectiveReduce)))
        if isinstance(op, AllReduce):
            return {
                "ring": ring(sized, lambda n: m / n, 2),
                "tree": tree(sized, m, ("up", "down")),
                "halving": halving(sized, lambda n: m / n, ("up", "down")),
            }
        if isinstance(op, AllGather):
            return {"ring": ring(sized, lambda n: m, 1), "halving": halving(sized, lambda n: m, ("down",))}
        if isinstance(op, ReduceScatter):
            return {"ring": ring(sized, lambda n: m / n, 1), "halving": halving(sized, lambda n: m / n, ("up",))}
        if isinstance(op, CollectiveBroadcast):
            return {"tree": tree(sized, m, ("down",))}
        if isinstance(op, CollectiveReduce):
            return {"tree": tree(sized, m, ("up",))}
        return {"direct": exchange(sized, m, one_for_all=self._alike(groups))}

    def _alike(self, groups: list[tuple[int, ...]]) -> bool:
        """Whether all devices are in one group, on a network that looks the same from each."""
        return bool(self.topology.alike) and len(groups) == 1

    # -- estimates

    def _seconds(self, instruction: Instruction) -> float:
        """Time of an instruction for which no device waits."""
        op = instruction.op
        if isinstance(op, While):
            condition, body = map(self._seconds_of, instruction.called)
            return condition + (self._trips(instruction) * (condition + body) if condition + body else 0.0)
        if isinstance(op, Conditional):
            return max(map(self._seconds_of, instruction.called))
        if isinstance(op, (AsyncStart, Call)):
            return self._seconds_of(instruction.called[0])
        if not self.communicates(instruction):
            return self.settings.seconds(self.costs[instruction]) if self.costs else 0.0
        if op.calls_through:
            return self._seconds_of(instruction.called[0])
        if not instruction.op.communication.is_collective:
            return 0.0
        seconds = self._communication(instruction).plan.measured(self.topology).seconds
        return float(seconds.max(initial=0.0))

    def _seconds_of(self, computation: Computation) -> float:
        if computation not in self.known_seconds:
            self.known_seconds[computation] = sum(map(self._seconds, self._order(computation)))
        return self.known_seconds[computation]

    def _order(self, computation: Computation) -> list[Instruction]:
        if computation not in self.orders:
            order = list(evaluation_order(computation))
            scheduled = computation.module is not None and computation.module.is_scheduled
            self.orders[computation] = order if scheduled else overlapping(order)
        return self.orders[computation]


def _operand_bytes(instruction: Instruction) -> int:
    """The bytes that a device sends: its operands, or of a permute in place the slices."""
    op = instruction.op
    if isinstance(op, RaggedAllToAll):
        return instruction.operands[0].shape.nbytes
    if isinstance(op, CollectivePermute) and op.slice_sizes:
        arrays = [leaf for leaf in instruction.operands[0].shape.leaves() if leaf.is_array]
        several = len(arrays) == len(op.slice_sizes)
        kinds = [arrays[k if several else 0] for k in range(len(op.slice_sizes))]
        return sum(_slice_bytes(a, sizes) for a, sizes in zip(kinds, op.slice_sizes, strict=True))
    return sum(operand.shape.nbytes for operand in instruction.operands)


def _slice_bytes(array: Shape, sizes: Sequence[int]) -> int:
    return array.dtype[tuple(sizes)].nbytes


def _needed(selector: Instruction) -> list[Instruction] | None:
    """Instructions that a selector is computed from, operands first; None if that is more than ids and constants."""
    found: dict[Instruction, None] = {}
    pending = [(selector, False)]
    while pending:
        instruction, done = pending.pop()
        if done:
            found[instruction] = None
        elif instruction not in found:
            op = instruction.op
            small = instruction.shape.is_array and instruction.shape.size <= _SMALL
            if isinstance(op, Parameter) or not small or op.has_side_effect() or instruction.called:
                return None
            if op.form == "communicate" and not op.asks_device:
                return None
            pending.append((instruction, True))
            pending += [(operand, False) for operand in instruction.operands]
    return list(found)


__all__ = ["ALGORITHMS", "SimulationSettings", "device_groups", "device_pairs", "program_of"]
