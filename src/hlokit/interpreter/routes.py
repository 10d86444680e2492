"""Routes: which device is at each end of a channel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hlokit.errors import EvaluationError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule

PAIRS = "_xla_send_recv_source_target_pairs"
"""The frontend attribute that says who sends to whom (COMM-16)."""


class Place(NamedTuple):
    """A device's place in a grid of replicas and partitions."""

    replica_id: int = 0
    partition_id: int = 0
    replica_count: int = 1
    partition_count: int = 1

    @property
    def device(self) -> int:
        """Its number: replica by replica, partition by partition."""
        return self.replica_id * self.partition_count + self.partition_id

    def __str__(self) -> str:
        partition = f", partition {self.partition_id}" if self.partition_count > 1 else ""
        return f"replica {self.replica_id}{partition}"

    @staticmethod
    def grid(replicas: int, partitions: int) -> list[Place]:
        return [Place(r, p, replicas, partitions) for r in range(replicas) for p in range(partitions)]


class Route(NamedTuple):
    """A channel between two devices. None: nobody is at that end."""

    channel: int
    source: int | None
    target: int | None


def routes_of(modules: Sequence[HloModule], places: Sequence[Place]) -> list[dict[int, Route]]:
    """The senders and receivers, for each device, on the channels that its module names.

    A module that has both ends talks to itself, device by device. Else one device sends and one receives (COMM-3),
    or one of each replica. EvaluationError (COMM-3) where it is not clear who.
    """
    ends = {module: _channels(module) for module in dict.fromkeys(modules)}
    routes: list[dict[int, Route]] = []
    for device, module in enumerate(modules):
        own: dict[int, Route] = {}
        sent, received = ends[module]
        for channel in sorted(sent ^ received):
            is_sender = channel in sent
            others = [p.device for p in places if channel in ends[modules[p.device]][is_sender]]
            rivals = [p.device for p in places if channel in ends[modules[p.device]][not is_sender]]
            if max(len(others), len(rivals)) > 1 and places[device].partition_count > 1:
                replica = places[device].replica_id
                others, rivals = ([d for d in ds if places[d].replica_id == replica] for ds in (others, rivals))
            if max(len(others), len(rivals)) > 1:
                sides = (rivals, others) if is_sender else (others, rivals)
                names = [", ".join(str(places[d]) for d in side) or "nobody" for side in sides]
                raise EvaluationError(f"channel {channel}: sent on by {names[0]}, received by {names[1]} [COMM-3]")
            other = others[0] if others else None
            own[channel] = Route(channel, device, other) if is_sender else Route(channel, other, device)
        routes.append(own)
    return routes


def _channels(module: HloModule) -> tuple[set[int], set[int]]:
    """The channels that a module sends on, and those that it receives on; without host transfers, and without those
    that say by pairs who talks to whom."""
    ends: dict[str, set[int]] = {"send": set(), "recv": set()}
    for computation in module.all_computations:
        for instruction in computation.instructions:
            if instruction.opcode in ends and not _is_told(instruction):
                ends[instruction.opcode].add(instruction.op.channel_id or 0)  # type: ignore[attr-defined]
    return ends["send"], ends["recv"]


def _is_told(instruction: Instruction) -> bool:
    if instruction.op.is_host_transfer:  # type: ignore[attr-defined]
        return True
    return instruction.extra is not None and PAIRS in instruction.extra.frontend_attributes


def told_pairs(name: str, text: str, count: int) -> list[tuple[int, int]]:
    """The (source, target) pairs that `text`, a frontend attribute of the instruction `name`, says (COMM-16).

    EvaluationError for what are not pairs of `count` devices, or have a source or a target twice.
    """
    found = re.findall(r"\d+", text)
    numbers = [int(n) for n in found if len(n) < 10]
    pairs = list(zip(numbers[::2], numbers[1::2]))
    good = len(numbers) == len(found) == 2 * len(pairs) and re.fullmatch(r"[\d{},\s]*", text) is not None
    good = good and all(n < count for n in numbers) and all(len(set(ends)) == len(pairs) for ends in zip(*pairs))
    if not good:
        wanted = f"pairs of {count} devices, no source and no target twice"
        raise EvaluationError(f"{name}: {PAIRS}={text!r}, expected {wanted} [COMM-16]")
    return pairs
