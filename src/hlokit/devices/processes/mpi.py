"""MPI, by mpi4py."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from mpi4py import MPI

from hlokit.devices.processes.engine import Group, finish, starts
from hlokit.devices.processes.packing import buffer
from hlokit.errors import UnsupportedError
from hlokit.hlo.values import Array

MOST_GROUPS = 1000
"""Communicators that a rank makes; MPI implementations have room for about two thousand."""
_TAGS = 2**15
"""Tags that every MPI has."""


class MpiEngine:
    """The ranks of a communicator, of which it uses a copy."""

    name: ClassVar[str] = "MPI"
    failures: ClassVar[tuple[type[BaseException], ...]] = (MPI.Exception,)
    reduces: ClassVar[bool] = True

    def __init__(self, comm: MPI.Intracomm | None = None) -> None:
        _ignore_notice()
        self._comm = (comm or MPI.COMM_WORLD).Dup()
        self._check: Callable[[], None] = lambda: None
        self._blocked: Callable[[bool], None] = lambda _: None
        self._groups: dict[Group, MPI.Intracomm] = {Group(tuple(range(self._comm.size))): self._comm.Dup()}
        self._left: list[tuple[MPI.Request, tuple[object, ...]]] = []
        """Operations that were begun and not waited for, with their memory."""
        self._sending: list[tuple[MPI.Request, Array]] = []
        self._lock = threading.Lock()

    def watch(self, check: Callable[[], None], blocked: Callable[[bool], None]) -> None:
        self._check, self._blocked = check, blocked

    @property
    def rank(self) -> int:
        return self._comm.rank

    @property
    def size(self) -> int:
        return self._comm.size

    def share(self, data: bytes) -> bytes:
        length = np.array([len(data)])
        self._comm.Bcast(length)
        text = np.frombuffer(data, np.uint8).copy() if self.rank == 0 else np.empty(int(length[0]), np.uint8)
        self._comm.Bcast(text)
        return text.tobytes()

    def host(self) -> str:
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        is_one_machine = local.size == self.size
        local.Free()
        return "127.0.0.1" if is_one_machine else ""

    def close(self) -> None:
        pass

    def room_for(self, group: Group) -> None:
        if group not in self._groups and len(self._groups) >= MOST_GROUPS:
            raise UnsupportedError(f"collectives among more than {MOST_GROUPS} different groups over MPI")

    def is_ready(self, group: Group) -> bool:
        return group in self._groups or len(group.ranks) == 1

    def renew(self, generation: int) -> None:
        """All ranks do so between two runs, and free communicators in one order. MPI keeps those in which operations
        were begun and left until they are done."""
        for group in sorted(self._groups, key=repr):
            self._groups.pop(group).Free()

    def prepare(self, group: Group, number: int) -> None:
        if self.is_ready(group):
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

    def gather(self, group: Group, data: Array, whole: Array, sizes: Sequence[int]) -> None:
        if len(group.ranks) == 1:
            whole[...] = data
            return
        request = self._groups[group].Iallgatherv([data, MPI.BYTE], [whole, sizes, starts(sizes), MPI.BYTE])
        self._finish(request, data, whole)

    def broadcast(self, group: Group, root: int, data: Array) -> None:
        if len(group.ranks) > 1:
            self._finish(self._groups[group].Ibcast([data, MPI.BYTE], root), data)

    def exchange(
        self, group: Group, data: Array, given: Sequence[int], whole: Array, taken: Sequence[int]
    ) -> None:
        if len(group.ranks) == 1:
            whole[...] = data
            return
        own = group.ranks.index(self.rank)
        sent, received = starts(given), starts(taken)
        whole[received[own] :][: taken[own]] = data[sent[own] :][: given[own]]  # MPICH sends this in pieces of 16 KB
        give, take = ([0 if rank == own else n for rank, n in enumerate(sizes)] for sizes in (given, taken))
        request = self._groups[group].Ialltoallv([data, give, sent, MPI.BYTE], [whole, take, received, MPI.BYTE])
        self._finish(request, data, whole)

    def reduce(self, group: Group, data: Array, name: str) -> Array:
        if len(group.ranks) == 1:
            return data
        result = np.empty_like(data)
        self._finish(self._groups[group].Iallreduce(data, result, getattr(MPI, name)), data, result)
        return result

    def send(self, target: int, tag: int, data: Array) -> None:
        with self._lock:
            self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
            self._sending.append((self._comm.Isend([data, MPI.BYTE], target, tag), data))

    def receive(self, source: int, tag: int, size: int) -> Array:
        data = buffer(size)
        self._finish(self._comm.Irecv([data, MPI.BYTE], source, tag), data)
        return data

    def finish_sending(self, untaken: Sequence[tuple[int, int, int]]) -> None:
        kept = [buffer(size) for _, _, size in untaken]
        requests = [
            self._comm.Irecv([data, MPI.BYTE], source, tag)
            for data, (source, tag, _) in zip(kept, untaken, strict=True)
        ]
        for request in (*requests, *(request for request, _ in self._sending)):
            self._finish(request)
        self._sending.clear()

    def _finish(self, request: MPI.Request, *memory: object) -> None:
        try:
            finish(request.Test, self._check)
        except BaseException:
            self._left.append((request, memory))  # MPI may still read and write there
            raise


def position() -> tuple[int, int]:
    """(rank, size) of this process among those that were started together."""
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def among(ranks: Sequence[int]) -> MpiEngine:
    """The engine of these of all ranks, which all of them make together: the first is its rank 0."""
    everyone = MPI.COMM_WORLD.Get_group()
    chosen = everyone.Incl(list(ranks))
    comm = MPI.COMM_WORLD.Create_group(chosen)
    chosen.Free()
    everyone.Free()
    return MpiEngine(comm)


def _ignore_notice() -> None:
    """MPICH's mpiexec -disable-auto-cleanup tells by SIGUSR1 that a process is gone, which would end this one."""
    if sys.platform == "win32":
        return
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and "PMI_RANK" in os.environ and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
