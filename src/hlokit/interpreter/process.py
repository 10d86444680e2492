"""Process: the state of one device while a program runs on it (EXEC-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from hlokit.errors import EvaluationError, ShapeError
from hlokit.hlo.values import is_ndarray, is_sequence, valid_part
from hlokit.interpreter.callee import Callee
from hlokit.interpreter.routes import PAIRS, Place, Route, told_pairs
from hlokit.interpreter.transport import Alone, Apart, Cancelled, Transport
from hlokit.stack import NoThread, on_new_stack
from hlokit.types.groups import ReplicaGroups

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction

StepHook = Callable[["Instruction", tuple[Any, ...]], None]
"""Called with an instruction and its operands' values (before) or with its value alone (after)."""

NOT_YET = object()
"""An infeed's item while there is none: the program asks again, unless it is being stopped."""


class Queue(Protocol):
    """A place that outfeed instructions write to: a list, or a queue that someone reads meanwhile."""

    def append(self, item: Any, /) -> object: ...


MAX_CALL_DEPTH = 150
"""Computations that may be in each other in what is compiled."""
_LEVELS = 48
"""Computations that are active on one stack; each costs a few of the 1000 frames that Python lets a thread have."""
_T = TypeVar("_T")


_TO_ITSELF: Mapping[int, Route] = {}


class Process:
    """The device that a program runs on, as an op's reference may ask of it.

    replica_id, partition_id    who this process is, of `replica_count` x `partition_count`
    infeed, outfeed             values to be read, as far as they are there; values written (INFEED-2, OUTFEED-2)
    random                      source of rng's numbers, seeded per execution (RNG-7)
    rng_state                   the 128-bit state of rng-get-and-update-state (BEY-57)
    transport                   carries values to the other devices and from them; also `apart`, if that is what it is
    routes                      who sends on a channel and who receives; where it says nothing, this device does both
    from_host, to_host          values for host transfers, values that they brought, by channel (COMM-14)
    instruction                 the one being evaluated
    """

    def __init__(
        self,
        *,
        infeed: Iterable[Any] = (),
        outfeed: Queue | None = None,
        seed: int = 0,
        before: StepHook | None = None,
        after: StepHook | None = None,
        place: Place = Place(),  # noqa: B008  # immutable
        transport: Transport | None = None,
        routes: Mapping[int, Route] = _TO_ITSELF,
        from_host: Mapping[int, Iterable[Any]] | None = None,
        to_host: dict[int, list[Any]] | None = None,
    ) -> None:
        self.replica_id, self.partition_id, self.replica_count, self.partition_count = place
        self.device = place.device
        self.transport: Transport = transport or Alone()
        apart = transport is not None and not transport.shares_memory  # first: to ask for the class takes long
        self.apart = transport if apart and isinstance(transport, Apart) else None
        self.routes = routes
        self.instruction: Instruction | None = None
        self.infeed = iter(infeed)
        self.outfeed: Queue = [] if outfeed is None else outfeed
        self._seed = self.rng_state = seed % 2**128
        self._random: np.random.Generator | None = None
        self.from_host: dict[int, Iterator[Any]] = {c: iter(values) for c, values in (from_host or {}).items()}
        self.to_host = {} if to_host is None else to_host
        self.before = before
        self.after = after
        self.depth = 0
        self.callees: dict[Computation, Callee] = {}
        self.plans: dict[Computation, Any] = {}

    @property
    def run(self) -> object:
        """A token of this execution of the program: the same on all devices that run it together in a process."""
        return self.transport if self.apart is None else self

    @property
    def random(self) -> np.random.Generator:
        """Made when asked for: it takes longer than the rest of a small program."""
        if self._random is None:
            self._random = np.random.Generator(np.random.Philox(self._seed).jumped(self.device))
        return self._random

    @property
    def random_state(self) -> Any:
        """The state of `random`, which can be set again; None before the first number."""
        return None if self._random is None else self._random.bit_generator.state

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._random = None
        if state is not None:
            self.random.bit_generator.state = state

    def descend(self, computation: Computation, work: Callable[[], _T]) -> _T:
        """The result of `work`, with one more computation active: on a stack of its own every so many of them.

        Raises EvaluationError where the system has no more stacks.
        """
        if self.transport.stopped:
            raise Cancelled
        self.depth += 1
        try:
            if self.depth % _LEVELS:
                return work()
            try:
                return on_new_stack(work)
            except NoThread as error:
                raise EvaluationError(f"{computation.name}: calls nest {self.depth} deep: {error}") from None
        finally:
            self.depth -= 1

    def callee(self, computation: Computation) -> Callee:
        """`computation` as a function of values; made once."""
        found = self.callees.get(computation)
        if found is None:
            found = self.callees[computation] = Callee(self, computation)
        return found

    def members(
        self,
        groups: ReplicaGroups,
        channel_id: int | None,
        use_global_device_ids: bool,
        *,
        over_partitions: bool = False,
    ) -> list[tuple[int, int]]:
        """The (replica, partition) pairs of this process's group, in order (GRP-4).

        `over_partitions`: with a channel and no global ids, the ids are partitions (all-to-all, collective-permute).
        Raises ShapeError (GRP-2) for ids that are not exactly the participants.
        """
        replicas, partitions = self.replica_count, self.partition_count
        if channel_id is None:
            group = _group_of(self.replica_id, groups, replicas)
            return [(i, self.partition_id) for i in group]
        if use_global_device_ids:
            own = self.replica_id * partitions + self.partition_id
            return [divmod(i, partitions) for i in _group_of(own, groups, replicas * partitions)]
        if over_partitions:
            return [(self.replica_id, i) for i in _group_of(self.partition_id, groups, partitions)]
        group = _group_of(self.replica_id, groups, replicas)
        return [(i, partition) for partition in range(partitions) for i in group]

    def meet(self, key: Any, members: list[tuple[int, int]], value: Any) -> list[Any]:
        """Every member of the group gives a value at the same rendezvous; all get the list, in the group's order."""
        devices = [replica * self.partition_count + partition for replica, partition in members]
        return self.transport.meet(self.device, self._current, devices, value)

    @property
    def _current(self) -> Instruction:
        assert self.instruction is not None, "outside of an instruction nothing is communicated"
        return self.instruction

    # -- channels

    def send(self, channel: int, value: Any) -> None:
        """Hands a value to the device at the channel's other end, once that has begun to receive (COMM-11)."""
        route = self.route(channel, 0)
        if route is not None:
            self.transport.send(self.device, self._current, route, value)

    def offer(self, channel: int) -> None:
        """Begins to receive a value on the channel."""
        route = self.route(channel, 1)
        if route is not None:
            self.transport.offer(self.device, route)

    def receive(self, channel: int) -> Any:
        """The next value on the channel; None for a device that is not a target of the channel's pairs."""
        route = self.route(channel, 1)
        return None if route is None else self.transport.receive(self.device, self._current, route)

    def route(self, channel: int, end: int) -> Route | None:
        """The sender and the receiver when the instruction is this device's `end` of a channel: 0 sends, 1 receives.

        As the pairs among its frontend attributes say (COMM-16), of partitions, or of replicas if there is but one
        partition; None for a device that they do not name. Else as `routes` says. EvaluationError for bad pairs.
        """
        extra = self._current.extra
        text = extra.frontend_attributes.get(PAIRS) if extra is not None else None
        if text is None:
            return self.routes.get(channel) or Route(channel, self.device, self.device)
        several = self.partition_count > 1
        pairs = told_pairs(self._current.name, text, self.partition_count if several else self.replica_count)
        own = self.partition_id if several else self.replica_id
        found = next((pair[1 - end] for pair in pairs if pair[end] == own), None)
        if found is None:
            return None
        other = self.replica_id * self.partition_count + found if several else found
        return Route(channel, other, self.device) if end else Route(channel, self.device, other)

    def send_to_host(self, channel: int, value: Any) -> None:
        """Gives the host a copy."""
        self.to_host.setdefault(channel, []).append(_copied(value))

    def receive_from_host(self, channel: int) -> Any:
        """The next of the host's values. EvaluationError when there is none."""
        waiting = self.from_host.get(channel, iter(()))
        for value in waiting:
            return value
        raise EvaluationError(f"the host has no value for channel {channel} [COMM-14]")

    # -- infeed and outfeed

    def next_infeed(self) -> Any:
        """The next item of the infeed queue. EvaluationError (INFEED-9) when nothing can arrive."""
        for item in self.infeed:
            if item is not NOT_YET:
                return item
            if self.transport.stopped:
                raise Cancelled
        raise EvaluationError("infeed: the queue is empty and nothing can arrive [INFEED-9]")

    def write_outfeed(self, value: Any) -> None:
        """Adds a copy to the outfeed queue (OUTFEED-2)."""
        self.outfeed.append(_given(valid_part(value)))


def _group_of(own: int, groups: ReplicaGroups, count: int) -> tuple[int, ...]:
    """The group that `own` is in, of groups that list each id below `count` once (GRP-2)."""
    expanded = groups.expand(count)
    listed = sorted(i for group in expanded for i in group)
    if listed != list(range(count)):
        raise ShapeError("GRP-2", "replica_groups", str(groups), f"each id of 0..{count - 1} once")
    return next(group for group in expanded if own in group)


def _given(value: Any) -> Any:
    """A value as the caller gets it: arrays of its own, None for tokens."""
    if is_sequence(value):
        return tuple(map(_given, value))
    return np.array(value, order="C") if is_ndarray(value) else None


def _copied(value: Any) -> Any:
    return tuple(map(_copied, value)) if is_sequence(value) else np.array(value, order="C")
