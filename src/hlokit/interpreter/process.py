"""Process: the state of one device while a program runs on it (EXEC-2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.errors import EvaluationError, ShapeError, UnsupportedError
from hlokit.interpreter.callee import Callee
from hlokit.types.groups import ReplicaGroups

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction

StepHook = Callable[["Instruction", tuple[Any, ...]], None]
"""Called with an instruction and its operands' values (before) or with its value alone (after)."""

MAX_CALL_DEPTH = 150
"""Computations that may be active at once; each level costs a few Python frames."""


class Process:
    """What an op's reference may ask of the device it runs on.

    replica_id, partition_id    who this process is, of `replica_count` x `partition_count`
    infeed, outfeed             values waiting to be read, values written (INFEED-2, OUTFEED-2)
    random                      source of rng's numbers, seeded per execution (RNG-7)
    rng_state                   the 128-bit state of rng-get-and-update-state (BEY-57)
    mailbox                     values sent and not yet received, by channel (COMM-1)
    """

    def __init__(
        self,
        *,
        infeed: Iterable[Any] = (),
        seed: int = 0,
        before: StepHook | None = None,
        after: StepHook | None = None,
    ) -> None:
        self.replica_id = 0
        self.partition_id = 0
        self.replica_count = 1
        self.partition_count = 1
        self.infeed: deque[Any] = deque(infeed)
        self.outfeed: list[Any] = []
        self.rng_state = seed % 2**128
        self.random = np.random.Generator(np.random.Philox(self.rng_state))
        self.mailbox: dict[int, deque[Any]] = {}
        self.before = before
        self.after = after
        self.depth = 0
        self.callees: dict[Computation, Callee] = {}
        self.plans: dict[Computation, Any] = {}

    def descend(self, computation: Computation) -> None:
        """One more computation is active, until whoever called this takes 1 off `depth`."""
        if self.depth >= MAX_CALL_DEPTH:
            raise EvaluationError(f"{computation.name}: calls nest deeper than {MAX_CALL_DEPTH}")
        self.depth += 1

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
        """Every member of the group gives a value under the same key; all get the list, in the group's order."""
        if members != [(self.replica_id, self.partition_id)]:
            raise UnsupportedError(f"collective among {len(members)} devices: the interpreter runs one device for now")
        return [value]

    def next_infeed(self) -> Any:
        """The next item of the infeed queue. EvaluationError (INFEED-9) when nothing can arrive."""
        if not self.infeed:
            raise EvaluationError("infeed: the queue is empty and nothing can arrive [INFEED-9]")
        return self.infeed.popleft()


def _group_of(own: int, groups: ReplicaGroups, count: int) -> tuple[int, ...]:
    """The group that `own` is in, of groups that list each id below `count` once (GRP-2)."""
    expanded = groups.expand(count)
    listed = sorted(i for group in expanded for i in group)
    if listed != list(range(count)):
        raise ShapeError("GRP-2", "replica_groups", str(groups), f"each id of 0..{count - 1} once")
    return next(group for group in expanded if own in group)
