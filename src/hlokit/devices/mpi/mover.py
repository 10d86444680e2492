"""Mover: what of MPI carries arrays, once all members of a rendezvous have come.

Every operation is begun without waiting and then asked for with short pauses: MPI itself would spin, and would not
notice that another process is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hlokit.devices.mpi.packing import buffer
from hlokit.errors import UnsupportedError
from hlokit.hlo.values import Array

MOST_GROUPS = 1000
"""Communicators that a rank makes; MPI implementations have room for about two thousand."""
_EAGER_TESTS = 2000
"""Questions without a pause in which the processor is left to others for longer."""
_PAUSES = 50e-6, 1e-3
"""Seconds: the shortest and the longest."""
_TAGS = 2**15
"""Tags that every MPI has."""


class Group(NamedTuple):
    """Devices that meet. `ranks`: the processes that have them, in the order in which their bytes are named here.

    key   names the group's communicator: two groups may be at work on the same ranks at the same time. None: all
          devices are in it, so that no other is
    """

    ranks: tuple[int, ...]
    key: Hashable = None


class Mover:
    """Moves bytes between ranks of a communicator. Several threads may use it, each for another group.

    check      raises if another process is gone; called while waiting
    blocked    called with True before, and False after, the one call that waits inside MPI
    """

    def __init__(self, comm: MPI.Intracomm, check: Callable[[], None], blocked: Callable[[bool], None]) -> None:
        self._comm = comm
        self._check = check
        self._blocked = blocked
        self._groups: dict[Group, MPI.Intracomm] = {Group(tuple(range(comm.size))): comm}
        self._sending: list[tuple[MPI.Request, Array]] = []
        self._lock = threading.Lock()

    @property
    def rank(self) -> int:
        return self._comm.rank

    def room_for(self, group: Group) -> None:
        """UnsupportedError for one group too many."""
        if group not in self._groups and len(self._groups) >= MOST_GROUPS:
            raise UnsupportedError(f"collectives among more than {MOST_GROUPS} different groups over MPI")

    def prepare(self, group: Group, number: int) -> None:
        """Makes the group's communicator, if there is none. All of its ranks do so at the same rendezvous, of this
        number."""
        if group in self._groups or len(group.ranks) == 1:
            return
        everyone = self._comm.Get_group()
        chosen = everyone.Incl(list(group.ranks))
        self._blocked(True)
        try:
            self._groups[group] = self._comm.Create_group(chosen, number % _TAGS)
        finally:
            self._blocked(False)
        chosen.Free()
        everyone.Free()

    # -- among the ranks of a group; alone, a rank has what it gives

    def gather(self, group: Group, data: Array, sizes: Sequence[int]) -> list[Array]:
        """Every rank's bytes; `sizes`: how many each has."""
        if len(group.ranks) == 1:
            return [data]
        whole = buffer(sum(sizes))
        self._finish(self._groups[group].Iallgatherv([data, MPI.BYTE], [whole, sizes, _starts(sizes), MPI.BYTE]))
        return _cut(whole, sizes)

    def broadcast(self, group: Group, root: int, data: Array) -> None:
        """The bytes of the rank with this position, for all."""
        if len(group.ranks) > 1:
            self._finish(self._groups[group].Ibcast([data, MPI.BYTE], root))

    def exchange(self, group: Group, data: Array, given: Sequence[int], taken: Sequence[int]) -> list[Array]:
        """Gives each rank j its `given[j]` bytes of `data`, in order; returns what each has for this one."""
        if len(group.ranks) == 1:
            return [data]
        whole = buffer(sum(taken))
        self._finish(
            self._groups[group].Ialltoallv(
                [data, given, _starts(given), MPI.BYTE], [whole, taken, _starts(taken), MPI.BYTE]
            )
        )
        return _cut(whole, taken)

    def reduce(self, group: Group, data: Array, name: str) -> Array:
        """The ranks' integers reduced by MPI's own operation of this name: of those that no order changes."""
        if len(group.ranks) == 1:
            return data
        result = np.empty_like(data)
        self._finish(self._groups[group].Iallreduce(data, result, getattr(MPI, name)))
        return result

    # -- from one to another

    def send(self, target: int, tag: int, data: Array) -> None:
        """Begins to send; the bytes are kept until they are gone."""
        with self._lock:
            self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
            self._sending.append((self._comm.Isend([data, MPI.BYTE], target, tag), data))

    def receive(self, source: int, tag: int, size: int) -> Array:
        data = buffer(size)
        self._finish(self._comm.Irecv([data, MPI.BYTE], source, tag))
        return data

    def finish_sending(self, untaken: Sequence[tuple[int, int, int]]) -> None:
        """Waits until all that was sent is gone. untaken: (source, tag, size) of what this rank never received."""
        kept = [buffer(size) for _, _, size in untaken]
        requests = [
            self._comm.Irecv([data, MPI.BYTE], source, tag)
            for data, (source, tag, _) in zip(kept, untaken, strict=True)
        ]
        for request in (*requests, *(request for request, _ in self._sending)):
            self._finish(request)
        self._sending.clear()

    def _finish(self, request: MPI.Request) -> None:
        tests, pause = 0, _PAUSES[0]
        while not request.Test():
            self._check()
            tests += 1
            if tests < _EAGER_TESTS:
                time.sleep(0)
            else:
                time.sleep(pause)
                pause = min(2 * pause, _PAUSES[1])


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][: len(sizes)]


def _cut(whole: Array, sizes: Sequence[int]) -> list[Any]:
    return [whole[start : start + size] for start, size in zip(_starts(sizes), sizes, strict=True)]
