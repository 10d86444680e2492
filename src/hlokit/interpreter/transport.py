"""Transport: the communication between the devices of a run, and what they wait for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hlokit.errors import DeadlockError, EvaluationError, UnsupportedError
from hlokit.hlo.op import Op
from hlokit.hlo.values import Contributions
from hlokit.interpreter.routes import Route

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.interpreter.process import Process

RENDEZVOUS = "hlokit.rendezvous"
"""The frontend attribute that names the rendezvous of a collective of which machine code has copies."""
_SHOWN = 16
"""Waiting devices that a deadlock's message names."""


class Cancelled(BaseException):
    """Another device failed: this one stops. No Exception, so that no host function can swallow it."""


class Transport(Protocol):
    """Carries values between devices, which are numbered replica by replica, partition by partition.

    Each device calls it from its own thread (or operating-system process) and is blocked until the call returns.
    There is no barrier: a device waits only for those that its instruction names. A transport raises DeadlockError
    where it sees that no device can continue, Cancelled where another one failed. Values are NumPy arrays and tuples of
    them, not to be written to.
    """

    stopped: bool
    """A device failed; the others find out by this, or when they next wait."""
    shares_memory: bool
    """Devices may run side by side in one process, and a rendezvous that all have come to is never called off: what
    they give may be pointers."""

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        """Every member's value, in their order, once each of them has come to the same rendezvous (`rendezvous_key`).

        The n-th rendezvous of a key is the n-th for each member. EvaluationError where members disagree about the group
        or the operands' shapes.
        """
        ...

    def offer(self, device: int, route: Route) -> None:
        """Says that the target, this device, is ready for one more value (COMM-11: Recv before Send)."""
        ...

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        """Hands a value over, once the target has offered to take it. What a device sends itself needs no offer."""
        ...

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        """The oldest value that was sent on the route and not yet received."""
        ...


@runtime_checkable
class Apart(Transport, Protocol):
    """A transport between memories, which moves no more than what is needed."""

    def collective(
        self, process: Process, instruction: Instruction, operands: Sequence[Any], into: Sequence[Any] | None = None
    ) -> Any:
        """The instruction's value, made from what its op's `transfer` says; NotImplemented where that says nothing.

        into   an array for each array of the value, to be filled: dense, and none shares memory with an operand. None
               in place of those that are the operands themselves
        """
        ...


def rendezvous_key(instruction: Instruction) -> Hashable:
    """Where the members of a collective meet: at its channel, with others of its kind, or at this instruction (GRP-6),
    of which there may be copies."""
    channel = getattr(instruction.op, "channel_id", None)
    if channel is None and instruction.extra is not None:
        channel = instruction.extra.frontend_attributes.get(RENDEZVOUS)
    return instruction if channel is None else (_kind(instruction), channel)


def _kind(instruction: Instruction) -> str:
    return instruction.opcode.removesuffix("-start")


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A wait of a device: for `peers` to come to a rendezvous, to be ready for a value, or to send one."""

    device: int
    instruction: Instruction
    peers: tuple[int, ...]
    value: Any = None
    route: Route | None = None

    def __str__(self) -> str:
        parent = self.instruction.parent
        where = f" in {parent.name}" if parent is not None else ""
        channel = "" if self.route is None else f", channel {self.route.channel},"
        name, opcode = self.instruction.name, self.instruction.opcode
        return f"{name if name.startswith(opcode) else f'{opcode} {name}'}{where}{channel}"


class Exchange:
    """The state of all rendezvous and channels of a run: who gave what, who waits for whom.

    It neither blocks nor locks. Calls give the devices that may go on because of them, the caller among them unless it
    has to wait; what each gets is then in `results`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.waiting: dict[int, Wait] = {}
        self.finished: set[int] = set()
        self.results: dict[int, Any] = {}
        self._rendezvous: dict[Hashable, dict[int, Wait]] = {}
        self._offers: Counter[Route] = Counter()
        self._senders: dict[Route, Wait] = {}
        self._sent: dict[Route, deque[Any]] = {}

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[int]:
        here = self._rendezvous.setdefault(rendezvous_key(instruction), {})
        wait = Wait(device, instruction, tuple(members), value)
        other = next((here[m] for m in members if m in here), None)
        if other is not None:
            self._check_same(wait, other)
        here[device] = self.waiting[device] = wait
        if len(here) < len(members) or any(m not in here for m in members):
            return []
        values = Contributions(here[m].value for m in members)
        for member in members:
            del here[member], self.waiting[member]
            self.results[member] = values
        return list(members)

    def offer(self, route: Route) -> list[int]:
        """The sender, if it waited. The device that offers always goes on."""
        self._offers[route] += 1
        wait = self._senders.pop(route, None)
        return [] if wait is None else self._hand_over(wait)

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> list[int]:
        peers = () if route.target is None else (route.target,)
        wait = self.waiting[device] = Wait(device, instruction, peers, value, route)
        if route.target != device and not self._offers[route]:
            self._senders[route] = wait
            return []
        return self._hand_over(wait)

    def _hand_over(self, wait: Wait) -> list[int]:
        assert wait.route is not None
        self._offers[wait.route] -= wait.route.target != wait.device
        self._sent.setdefault(wait.route, deque()).append(wait.value)
        free = [self._go_on(wait.device, None)]
        receiver = self.waiting.get(wait.route.target) if wait.route.target is not None else None
        if receiver is not None and receiver.route == wait.route:
            free.append(self._go_on(receiver.device, self._sent[wait.route].popleft()))
        return free

    def receive(self, device: int, instruction: Instruction, route: Route) -> list[int]:
        peers = () if route.source is None else (route.source,)
        self.waiting[device] = Wait(device, instruction, peers, None, route)
        sent = self._sent.get(route)
        return [self._go_on(device, sent.popleft())] if sent else []

    def _go_on(self, device: int, result: Any) -> int:
        del self.waiting[device]
        self.results[device] = result
        return device

    def untaken(self) -> list[tuple[Route, Any]]:
        """The values that were sent and not received."""
        return [(route, value) for route, values in self._sent.items() for value in values]

    def in_flight(self) -> Hashable:
        """The number of values, and of offers, on every channel."""
        offers = frozenset((route, count) for route, count in self._offers.items() if count)
        return offers, frozenset((route, len(values)) for route, values in self._sent.items() if values)

    # -- what goes wrong

    def deadlock(self) -> DeadlockError:
        """The account of who waits for whom, at which instruction, for when no device can continue."""
        waits = [self.waiting[device] for device in sorted(self.waiting)]
        label = "GRP-8" if all(wait.route is None for wait in waits) else "COMM-12"
        lines = [f"{self.names[w.device]} waits at {w} for {self._missing_text(w)}" for w in waits[:_SHOWN]]
        if len(waits) > _SHOWN:
            lines.append(f"and {len(waits) - _SHOWN} more wait")
        entries = [(self.names[w.device], w.instruction.name, self._names(self.missing(w))) for w in waits]
        shown = "".join(f"\n  {line}" for line in lines)
        return DeadlockError(f"deadlock: no device can continue [{label}]{shown}", entries)

    def missing(self, wait: Wait) -> list[int]:
        """The devices that a wait lacks."""
        if wait.route is not None:
            return list(wait.peers)
        here = self._rendezvous[rendezvous_key(wait.instruction)]
        return [m for m in wait.peers if m not in here]

    def _missing_text(self, wait: Wait) -> str:
        if wait.route is not None and wait.peers in ((), (wait.device,)):
            return "itself: nothing was sent" if wait.peers else "a device that does not exist"
        missing = self.missing(wait)
        shown = [self.names[m] + (", which has finished" if m in self.finished else "") for m in missing[:_SHOWN]]
        more = [f"{len(missing) - _SHOWN} more"] if len(missing) > _SHOWN else []
        group = f" of the group {self._names(wait.peers)}" if 2 < len(wait.peers) <= _SHOWN else ""
        return "; ".join([*shown, *more]) + group

    def _names(self, devices: Sequence[int]) -> list[str]:
        return [self.names[d] for d in devices]

    def _check_same(self, one: Wait, other: Wait) -> None:
        """Two that come to one rendezvous have the same group, operands and attributes."""
        a, b = one.instruction, other.instruction

        def differ(what: str, mine: object, theirs: object, label: str) -> EvaluationError:
            return EvaluationError(
                f"{a.name} on {self.names[one.device]} and {b.name} on {self.names[other.device]} meet, but their "
                f"{what} differ: {mine} and {theirs} [{label}]"
            )

        if one.peers is not other.peers and one.peers != other.peers:
            raise differ("groups", self._names(one.peers), self._names(other.peers), "GRP-6")
        if a is b:
            return
        shapes = [[str(o.shape.static) for o in i.operands] for i in (a, b)]
        if shapes[0] != shapes[1]:
            raise differ("operands", ", ".join(shapes[0]), ", ".join(shapes[1]), "GRP-6")
        ours, theirs = _attributes(a.op), _attributes(b.op)
        for name, value in ours.items():
            if theirs.get(name, value) != value:
                raise differ(name, value, theirs[name], "GRP-6")
        known: set[tuple[Computation, Computation]] = set()
        if not all(_are_alike(c, d, known) for c, d in zip(a.called, b.called, strict=True)):
            raise differ("computations", a.called[0].root, b.called[0].root, "GRP-6")


def _attributes(op: Op) -> dict[str, Any]:
    """The attributes that two that meet must agree on. Groups are compared as members; layouts do not matter."""
    ignored = ("result", "state", "constrain_layout", "channel_id", "replica_groups", "use_global_device_ids")
    return {a.name: getattr(op, a.name) for a in type(op).attributes if a.name not in ignored}


def _are_alike(a: Computation, b: Computation, known: set[tuple[Computation, Computation]]) -> bool:
    """Whether computations are the same but for names; `known`: pairs that are, or that are being compared."""
    if a is b or (a, b) in known:
        return True
    known.add((a, b))
    ours, theirs = a.post_order(), b.post_order()
    other = dict(zip(ours, theirs))
    return len(ours) == len(theirs) and all(
        i.op is j.op
        and i.shape.static is j.shape.static
        and tuple(other[o] for o in i.operands) == j.operands
        and len(i.called) == len(j.called)
        and all(_are_alike(c, d, known) for c, d in zip(i.called, j.called))
        for i, j in other.items()
    )


class Alone:
    """The transport of a device that runs by itself."""

    stopped = False
    shares_memory = False

    def __init__(self) -> None:
        self.exchange = Exchange(["replica 0"])

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        if list(members) != [device]:
            raise UnsupportedError(f"{instruction.name}: collective among {len(members)} devices, but one runs")
        return [value]

    def offer(self, device: int, route: Route) -> None:
        pass

    def send(self, device: int, instruction: Instruction, route: Route, value: Any) -> None:
        if not self.exchange.send(device, instruction, route, value):
            raise self.exchange.deadlock()
        self.exchange.results.clear()

    def receive(self, device: int, instruction: Instruction, route: Route) -> Any:
        if not self.exchange.receive(device, instruction, route):
            raise self.exchange.deadlock()
        return self.exchange.results.pop(device)
