"""Engine: carries arrays between processes once all members of a rendezvous have arrived: mpi.py, gloo.py.

Every operation is begun without waiting and then asked for with short pauses: the engines themselves would not notice
that another process is gone, or that this one is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

from hlokit.hlo.values import Array

_EAGER_TESTS = 2000
"""Questions without a pause in which the processor is left to others for longer."""
_PAUSES = 50e-6, 1e-3
"""Seconds: the shortest and the longest."""


class Group(NamedTuple):
    """Devices that meet. `ranks`: the processes that have them, in the order in which their bytes are named here.

    key   names the group's communicator: two groups may be at work on the same ranks at the same time. None: all
          devices are in it, so that no other is
    """

    ranks: tuple[int, ...]
    key: Hashable = None


class Engine(Protocol):
    """Moves bytes between the ranks of a world. Several threads may use it, each for another group.

    name        for errors
    failures    what its library raises
    reduces     whether it has `reduce`
    """

    name: ClassVar[str]
    reduces: ClassVar[bool]
    failures: ClassVar[tuple[type[BaseException], ...]]

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def watch(self, check: Callable[[], None], blocked: Callable[[bool], None]) -> None:
        """check      raises if another process is gone; called while waiting
        blocked    called with True before, and False after, a call that waits inside the library
        """
        ...

    def share(self, data: bytes) -> bytes:
        """Rank 0's bytes, for all."""
        ...

    def host(self) -> str:
        """The interface on which rank 0 listens: an address, or empty for all of them. All ranks ask."""
        ...

    def close(self) -> None:
        """This rank does not use it any more."""
        ...

    # -- among the ranks of a group; alone, a rank has what it gives. The memory is the operation's until it is done

    def room_for(self, group: Group) -> None:
        """UnsupportedError for one group too many."""
        ...

    def is_ready(self, group: Group) -> bool:
        """Whether the group needs no `prepare` any more."""
        ...

    def prepare(self, group: Group, number: int) -> None:
        """Makes the group's communicator, if there is none. All of its ranks do so at the same rendezvous, of this
        number."""
        ...

    def renew(self, generation: int) -> None:
        """From now on no group is ready: in their communicators there may be operations that were begun and left."""
        ...

    def gather(self, group: Group, data: Array, whole: Array, sizes: Sequence[int]) -> None:
        """Puts every rank's bytes into `whole`, one after the other; `sizes`: how many each has."""
        ...

    def broadcast(self, group: Group, root: int, data: Array) -> None:
        """The bytes of the rank with this position, for all."""
        ...

    def exchange(
        self, group: Group, data: Array, given: Sequence[int], whole: Array, taken: Sequence[int]
    ) -> None:
        """Gives each rank j its `given[j]` bytes of `data`, in order; puts what each has for this one into `whole`."""
        ...

    def reduce(self, group: Group, data: Array, name: str) -> Array:
        """The ranks' integers reduced by the operation of this name in MPI: of those that no order changes."""
        ...

    # -- from one to another

    def send(self, target: int, tag: int, data: Array) -> None:
        """Begins to send; the bytes are kept until they are gone."""
        ...

    def receive(self, source: int, tag: int, size: int) -> Array: ...

    def finish_sending(self, untaken: Sequence[tuple[int, int, int]]) -> None:
        """Waits until all that was sent is gone. untaken: (source, tag, size) of what this rank never received."""
        ...


def finish(is_done: Callable[[], bool], check: Callable[[], None]) -> None:
    """Waits until it is done; `check` may raise meanwhile."""
    tests, pause = 0, _PAUSES[0]
    while not is_done():
        check()
        tests += 1
        if tests < _EAGER_TESTS:
            time.sleep(0)
        else:
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])


def starts(sizes: Sequence[int]) -> list[int]:
    """Where parts of these sizes begin, one after the other."""
    return [0, *accumulate(sizes)][: len(sizes)]


def cut(whole: Array, sizes: Sequence[int]) -> list[Any]:
    """The parts of these sizes."""
    return [whole[start : start + size] for start, size in zip(starts(sizes), sizes, strict=True)]
