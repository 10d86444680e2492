"""The transport between devices that can each step backwards and forwards: it records what each received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlokit.errors import DeadlockError
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import Exchange, Wait


class Blocked(BaseException):
    """The device's instruction waits for another device. No Exception, so that no host function can swallow it."""


class Hub:
    """The rendezvous of all devices, and a transport for each."""

    def __init__(self, names: Sequence[str]) -> None:
        self.exchange = Exchange(names)
        self.ends = [Taped(self, device) for device in range(len(names))]

    def deliver(self, devices: Sequence[int]) -> None:
        """Adds to the tapes of the devices that may go on what the exchange has for them."""
        for device in devices:
            self.ends[device].tape.append(self.exchange.results.pop(device))

    def wait_of(self, device: int) -> Wait | None:
        """The wait of a device, where it has been furthest; None if it waits for nobody."""
        return self.exchange.waiting.get(device)

    def deadlock(self) -> DeadlockError:
        """The error for when no device can continue."""
        return self.exchange.deadlock()

    def reset(self) -> None:
        """Forgets all that was exchanged."""
        self.exchange = Exchange(self.exchange.names)
        for end in self.ends:
            end.tape.clear()
            end.position = 0


class Taped:
    """A device's end. An exchange that it has made before is not made again; one that has to wait raises Blocked.

    position  the number of exchanges before the present time
    tape      the results of those that it has ever made
    """

    stopped = False
    shares_memory = False

    def __init__(self, hub: Hub, device: int) -> None:
        self.hub = hub
        self.device = device
        self.position = 0
        self.tape: list[Any] = []

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        return self._exchanged(lambda: self.hub.exchange.meet(device, instruction, members, value))

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        self._exchanged(lambda: self.hub.exchange.send(device, instruction, route, value))

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        return self._exchanged(lambda: self.hub.exchange.receive(device, instruction, route))

    def offer(self, device: int, route: Route) -> None:
        if self.position == len(self.tape):
            self.hub.deliver(self.hub.exchange.offer(route))
            self.tape.append(None)
        self.position += 1

    def _exchanged(self, begin: Callable[[], list[int]]) -> Any:
        if self.position == len(self.tape) and self.device not in self.hub.exchange.waiting:
            self.hub.deliver(begin())
        if self.position == len(self.tape):
            raise Blocked
        self.position += 1
        return self.tape[self.position - 1]
