"""gloo from PyTorch: ProcessGroupGloo on tensors of bytes.

Its own reductions fix no order, so it carries bytes alone, and ranks fold them as they do between threads.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from hlokit.devices.processes.engine import Group, finish
from hlokit.devices.processes.packing import buffer
from hlokit.devices.processes.store import Store
from hlokit.errors import EvaluationError, UnsupportedError
from hlokit.hlo.values import Array

MOST_GROUPS = 100
"""Groups for each of which a rank has a connection to every other rank of it."""
_START = timedelta(seconds=300)
"""For all ranks to come together."""
_FOREVER = timedelta(days=30)
"""For a rank that is late: that one is gone, the hub says."""
_TURN = timedelta(seconds=0.1)
"""The longest sleep in a wait for others."""
_worlds = 0
"""The number of worlds that were made from the environment."""
_output = threading.Lock()
_kept_output: list[int] = []
"""Standard output itself, once for each thread that keeps it silent."""
_torch: Any = import_module("torch.distributed")
"""Its classes are of C++, without types."""
_from_numpy: Any = import_module("torch").from_numpy


class GlooEngine:
    """The ranks of a job that meet at a store.

    Parameters
    ----------
    store : torch.distributed.Store
        What all ranks write their addresses to and read the others' from.
    rank, size : int
        This process's number, and how many there are.
    coordinator : str
        The address of the store's process: rank 0 listens there, and each rank on the interface that reaches it.
    """

    name: ClassVar[str] = "gloo"
    failures: ClassVar[tuple[type[BaseException], ...]] = (RuntimeError,)
    reduces: ClassVar[bool] = False

    def __init__(self, store: Any, rank: int, size: int, coordinator: str) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._coordinator = coordinator
        self._check: Callable[[], None] = lambda: None
        self._blocked: Callable[[bool], None] = lambda _: None
        self._device = _torch.ProcessGroupGloo.create_device(hostname=_interface(coordinator))
        self._sending: list[tuple[Any, Array]] = []
        self._kept: dict[int, Array] = {}
        """The values that devices of this rank send each other, by tag."""
        self._lock = threading.Lock()
        everyone = Group(tuple(range(size)))
        self._generation = 0
        self._groups: dict[Group, Any] = {}
        self._groups[everyone] = self._all = self._connected(everyone)

    def watch(self, check: Callable[[], None], blocked: Callable[[bool], None]) -> None:
        self._check, self._blocked = check, blocked

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def share(self, data: bytes) -> bytes:
        if self._rank == 0:
            self._store.set("shared", data)
            return data
        return bytes(self._store.get("shared"))

    def host(self) -> str:
        return _interface(self._coordinator) if self._rank == 0 else self._coordinator

    def close(self) -> None:
        """Ends connections that wait for a process that is gone: they would keep this one from ending."""
        self._all.abort()
        for group in self._groups.values():
            group.abort()

    def room_for(self, group: Group) -> None:
        if group not in self._groups and len(self._groups) >= MOST_GROUPS:
            raise UnsupportedError(f"collectives among more than {MOST_GROUPS} different groups over gloo")

    def is_ready(self, group: Group) -> bool:
        return group in self._groups or len(group.ranks) == 1

    def renew(self, generation: int) -> None:
        self._generation = generation
        for group in self._groups.values():
            if group is not self._all:  # which carries what one sends another
                group.abort()
        self._groups.clear()

    def prepare(self, group: Group, number: int) -> None:
        if self.is_ready(group):
            return
        self._blocked(True)
        try:
            self._groups[group] = self._connected(group)
        finally:
            self._blocked(False)

    def _connected(self, group: Group) -> Any:
        options = _torch.ProcessGroupGloo._Options()
        options._devices, options._timeout, options._threads = [self._device], _START, 1
        store = _torch.PrefixStore(f"{self._generation} {group!r}", self._store)
        with _silent():
            made = _torch.ProcessGroupGloo(store, group.ranks.index(self._rank), len(group.ranks), options)
        made._set_default_timeout(_FOREVER)
        return made

    def gather(self, group: Group, data: Array, whole: Array, sizes: Sequence[int]) -> None:
        if len(group.ranks) == 1:
            whole[...] = data
            return
        if any(sizes):  # PyTorch's all-gather took eight times the processor time (17 and 2 ms for 4 MB)
            count = len(sizes)
            self.exchange(group, np.tile(data, count), [data.size] * count, whole, sizes)

    def broadcast(self, group: Group, root: int, data: Array) -> None:
        if len(group.ranks) > 1 and data.size:
            self._finish(self._groups[group].broadcast(_tensor(data), root))

    def exchange(
        self, group: Group, data: Array, given: Sequence[int], whole: Array, taken: Sequence[int]
    ) -> None:
        if len(group.ranks) == 1:
            whole[...] = data
            return
        self._finish(self._groups[group].alltoall_base(_tensor(whole), _tensor(data), list(taken), list(given)))

    def reduce(self, group: Group, data: Array, name: str) -> Array:
        raise NotImplementedError

    def send(self, target: int, tag: int, data: Array) -> None:
        if target == self._rank:  # gloo has no connection of a rank to itself
            self._kept[tag] = data
            return
        with self._lock:
            work = self._all.send([_tensor(data)], target, tag)
            self._sending.append((_Waited(work), data))
            self._sending = [(work, kept) for work, kept in self._sending if not work.is_completed()]

    def receive(self, source: int, tag: int, size: int) -> Array:
        if source == self._rank:
            finish(lambda: tag in self._kept, self._check)
            return self._kept.pop(tag)
        data = buffer(size)
        self._finish(_Waited(self._all.recv([_tensor(data)], source, tag)))
        return data

    def finish_sending(self, untaken: Sequence[tuple[int, int, int]]) -> None:
        for source, tag, size in untaken:
            self.receive(source, tag, size)
        for work, _ in self._sending:
            self._finish(work)
        self._sending.clear()

    def _finish(self, work: Any) -> None:
        """Sleeps until it is done, in turns: Python hears signals then, and the hub's word."""
        while not work.is_completed():
            with suppress(RuntimeError):  # it is not done yet; what else there is, the last wait raises
                work.wait(_TURN)
            self._check()
        work.wait()


class _Waited:
    """Sends and receives do not say whether they are done: a thread waits for them."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._wait, name="hlokit gloo", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._work.wait()
        except Exception as error:
            self._error = error

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, turn: timedelta | None = None) -> None:
        self._thread.join(None if turn is None else turn.total_seconds())
        if self._error is not None:
            raise self._error


class _Shared(_torch.Store):
    """A store of hlokit's, for torch."""

    def __init__(self, store: Store, prefix: str) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._values, self._prefix = store, prefix

    def set(self, key: str, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._values.put(f"{self._prefix}/{key}", data)

    def get(self, key: str) -> bytes:
        found = self._values.get(f"{self._prefix}/{key}", _START.total_seconds())
        if found is None:
            raise EvaluationError(f"not all processes connected within {_START.total_seconds():.0f} seconds")
        return found

    def wait(self, keys: list[str], timeout: timedelta = _START) -> None:
        for key in keys:
            self.get(key)


def from_store(store: Store, prefix: str, rank: int, size: int, coordinator: str) -> GlooEngine:
    """The engine of ranks that share the values of a store whose names begin with the prefix."""
    return GlooEngine(_Shared(store, prefix), rank, size, coordinator)


def from_environment() -> GlooEngine:
    """The engine of processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, as for PyTorch.

    UnsupportedError: one of these is missing or no number.
    """
    global _worlds
    found = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    for name, text in found.items():
        if not text or (name != "MASTER_ADDR" and not text.isdecimal()):
            raise UnsupportedError(
                f"gloo: {name}={text!r}: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which processes there are; "
                "`python -m hlokit.launch --collectives gloo` and torchrun set them"
            )
    rank, size, port = (int(found[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    host = found["MASTER_ADDR"]
    number, _worlds = _worlds, _worlds + 1
    return GlooEngine(_torch.PrefixStore(f"hlokit/{number}", _meeting_point(host, port, rank, size)), rank, size, host)


_stores: dict[tuple[str, int], Any] = {}


def _meeting_point(host: str, port: int, rank: int, size: int) -> Any:
    """The store at this address, which rank 0 serves on that interface alone; under torchrun its agent does."""
    if (host, port) not in _stores:
        serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        listening = None
        if serves:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = socket.create_server(address[:2], family=family, backlog=size).detach()
        _stores[host, port] = _torch.TCPStore(
            host, port, size, serves, _START, wait_for_workers=False, master_listen_fd=listening
        )
    return _stores[host, port]


def _interface(coordinator: str) -> str:
    """This machine's address on the way to the coordinator."""
    family, *_, address = socket.getaddrinfo(coordinator, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as end:
        end.connect(address)
        return str(end.getsockname()[0])


def _tensor(data: Array) -> Any:
    return _from_numpy(data if data.flags.writeable else data.copy())


@contextmanager
def _silent() -> Generator[None]:
    """gloo prints how many ranks it has reached: to standard error here, since standard output is the program's.
    Several threads may be here: other ranks may make their groups in another order."""
    sys.stdout.flush()
    with _output:
        _kept_output.append(_kept_output[0] if _kept_output else os.dup(1))
        os.dup2(2, 1)
    try:
        yield
    finally:
        with _output:
            kept = _kept_output.pop()
            if not _kept_output:
                os.dup2(kept, 1)
                os.close(kept)
