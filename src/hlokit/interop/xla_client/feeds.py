"""Feed: the queue of values between a device and its host, for infeed or outfeed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from hlokit.devices.grid import is_device
from hlokit.forks import lock
from hlokit.interop.xla_client.errors import invalid
from hlokit.interpreter.process import NOT_YET

_POLL = 0.05
"""Seconds after which what waits looks whether it is to stop."""


class Feed:
    """Values in order. Threads that read wait for them as long as another Python thread could add one."""

    def __init__(self) -> None:
        self._values: deque[Any] = deque()
        self._changed = threading.Condition(lock())

    def append(self, value: Any) -> None:
        with self._changed:
            self._values.append(value)
            self._changed.notify()

    def next(self) -> Any:
        """The oldest value, when it is there. XlaRuntimeError if there is none and no thread to add one."""
        for value in self.values():
            if value is not NOT_YET:
                return value
        raise invalid("the outfeed queue is empty and no thread runs that could fill it")

    def values(self) -> Iterator[Any]:
        """The values, for one execution or reader of the calling thread: NOT_YET when to ask again."""
        return self._values_for(threading.current_thread())

    def _values_for(self, reader: threading.Thread) -> Iterator[Any]:
        while True:
            others = _others_than(reader)  # asked first: what a thread adds before it ends is then seen
            with self._changed:
                if not self._values and others:
                    self._changed.wait(_POLL)
                if not self._values and not others:
                    return
                value = self._values.popleft() if self._values else NOT_YET
            yield value


def _others_than(reader: threading.Thread) -> bool:
    """Whether Python threads run that are neither the reader nor hlokit's own."""
    return any(thread is not reader and not _is_own(thread) for thread in threading.enumerate())


def _is_own(thread: threading.Thread) -> bool:
    """Threads that Python did not start have a stand-in; hlokit's own are among them, and it outlives them."""
    return is_device(thread) or thread.name.startswith("hlokit ") or type(thread).__name__ == "_DummyThread"
