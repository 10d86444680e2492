"""Steps: a program as the replay runs it: a list of steps that all devices run, and their communication."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hlokit.analysis.simulation.schedules import MessagePlan
from hlokit.analysis.simulation.topology import Array


class ComputeStep(NamedTuple):
    """Computing, on every device for as long."""

    name: str
    seconds: float


class Begin(NamedTuple):
    """Comes to communication `number`, at these of its sides."""

    number: int
    sides: tuple[int, ...]


class End(NamedTuple):
    """Waits for it."""

    number: int
    sides: tuple[int, ...]


class LoopStep(NamedTuple):
    """`trips` passes of the steps up to the RepeatStep before `after`."""

    name: str
    trips: int
    after: int


class RepeatStep(NamedTuple):
    loop: int


class Branch(NamedTuple):
    """A branch: the step at which each device goes on."""

    targets: Array


class Jump(NamedTuple):
    target: int


Step = ComputeStep | Begin | End | LoopStep | RepeatStep | Branch | Jump


@dataclass
class Communication:
    """A communication of devices: a collective, or the transfers of a send and its recv.

    Groups, or single messages, are its units. A device comes to it at side 0; to a message that it receives at side 1.

    unit_of     [sides, devices]: which unit a device has to do with there, or -1
    nbytes      bytes of the operands on each device; of one message for messages
    group_size  of the largest group; of messages: 2
    """

    name: str
    kind: str
    unit_of: Array
    plan: MessagePlan
    nbytes: int
    group_size: int

    @property
    def algorithm(self) -> str:
        return self.plan.algorithm


@dataclass
class ReplayProgram:
    """`steps` of all devices, `communications` that they name by number, and what is to be known of the result."""

    steps: list[Step] = field(default_factory=list[Step])
    communications: list[Communication] = field(default_factory=list[Communication])
    notes: list[str] = field(default_factory=list[str])
