"""Line: a rank's end of the control plane. Messages are JSON objects, each behind its length."""

from __future__ import annotations

import errno
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from hlokit.errors import ArgumentError, DeadlockError, EvaluationError, HlokitError, UnsupportedError

Message = dict[str, Any]
_LENGTH = struct.Struct("!I")
MOST_BYTES = 2**28
"""The most bytes of one message."""
_QUIET_SECONDS = 2
"""Without a sign from the other machine, until it is asked for one; three unanswered times, and it is lost."""
_JOIN_SECONDS = 2.0
"""For the listening thread to end."""
_UNANSWERED_MILLISECONDS = 8000
"""For the other machine to acknowledge bytes."""


def encoded(message: Message) -> bytes:
    text = json.dumps(message).encode()
    return _LENGTH.pack(len(text)) + text


class Incoming:
    """Bytes of a stream, cut into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> list[Message]:
        """The messages that are whole now. ValueError for bytes that are none."""
        self._bytes += data
        found: list[Message] = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MOST_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            message = json.loads(self._bytes[_LENGTH.size : end])
            if not isinstance(message, dict):
                raise ValueError("a message that is no object")
            found.append(message)  # pyright: ignore[reportUnknownArgumentType]
            del self._bytes[:end]
        return found


def prepare(end: socket.socket) -> None:
    """No delay for small messages; a machine that is gone is noticed (of a process that is gone, its kernel tells)."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _QUIET_SECONDS), ("TCP_KEEPINTVL", _QUIET_SECONDS), ("TCP_KEEPCNT", 3),
                        ("TCP_USER_TIMEOUT", _UNANSWERED_MILLISECONDS)):  # fmt: skip
        if hasattr(socket, name):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def version() -> str:
    """The version of hlokit, which all ranks have."""
    return str(sys.modules["hlokit"].__version__)


def is_silent(error: Exception) -> bool:
    """Whether a connection broke because nothing came from its other end."""
    return isinstance(error, OSError) and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Line:
    """A connection to the hub, and a thread that listens to it.

    Answers come in the order of what was asked; they wait in a queue of the rank, or of the device that asked.
    `notice` is called, on the listening thread, with each message that nobody asked for: a device failed ("stop"), or a
    process is gone ("lost"). Such a message goes to all queues, too.
    """

    def __init__(self, end: socket.socket, notice: Callable[[Message], None]) -> None:
        prepare(end)
        self._end = end
        self._notice = notice
        self._answers: dict[int | None, SimpleQueue[Message]] = {None: SimpleQueue()}
        self._lost: Message | None = None
        self._taking = threading.Lock()
        self._sending = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="hlokit line", daemon=True)
        self._thread.start()

    def open(self, devices: Iterable[int]) -> None:
        """From now on these devices of the rank have queues, which are empty, and no others."""
        with self._taking:
            fresh: dict[int, SimpleQueue[Message]] = {device: SimpleQueue() for device in devices}
            if self._lost is not None:
                for queue in fresh.values():
                    queue.put(self._lost)
            self._answers = {None: self._answers[None], **fresh}

    def stop(self) -> None:
        """Lets the devices know that they are to stop."""
        self._put_to_devices({"is": "stop"})

    def tell(self, **message: Any) -> None:
        """Sends a message. Where the hub is gone, the queue says so."""
        with self._sending, suppress(OSError):
            self._end.sendall(encoded(message))

    def ask(self, device: int, **message: Any) -> Message:
        """The next answer to this device, after sending this."""
        self.tell(device=device, **message)
        answer = self.answer(device=device)
        assert answer is not None
        return answer

    def answer(self, seconds: float | None = None, device: int | None = None) -> Message | None:
        """The next one; None if it does not come in time."""
        try:
            return self._answers[device].get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        """Ends the thread: one that runs while the interpreter is finalized ends the process by SIGSEGV."""
        self._closed = True
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _listen(self) -> None:
        incoming, why = Incoming(), "its process ended"
        try:
            while data := self._end.recv(1 << 16):
                for message in incoming.add(data):
                    self._take(message)
        except (OSError, ValueError) as error:
            if is_silent(error):
                why = "its machine does not answer"
        text = "this rank has left its world" if self._closed else f"rank 0 is gone: {why}"
        error = {"kind": "EvaluationError", "text": text}
        self._take({"is": "lost", "error": error, "left": self._closed, "failed": not self._closed})

    def _take(self, message: Message) -> None:
        if message["is"] in ("stop", "lost"):
            self._notice(message)
            self._answers[None].put(message)
            self._put_to_devices(message)
            return
        queue = self._answers.get(message.get("device"))
        if queue is not None:
            queue.put(message)

    def _put_to_devices(self, message: Message) -> None:
        with self._taking:
            if message["is"] == "lost":
                self._lost = message
            for device, queue in self._answers.items():
                if device is not None:
                    queue.put(message)


# -- errors as messages


_KINDS = {kind.__name__: kind for kind in (ArgumentError, DeadlockError, EvaluationError, UnsupportedError)}


def error_message(error: BaseException, place: str) -> Message:
    """An error, for the other processes. `place`: where it is from, for errors that do not say so themselves."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, DeadlockError):
        return {"kind": kind, "text": text, "waits": error.waits}
    if kind in _KINDS:
        return {"kind": kind, "text": text}
    name = "" if isinstance(error, HlokitError) else f"{kind}: "
    return {"kind": "EvaluationError", "text": f"{place}: {name}{text}"}


def error_from(message: Message) -> HlokitError:
    """The error that another process sent."""
    text = str(message["text"])
    if message["kind"] == "DeadlockError":
        return DeadlockError(text, [(a, b, c) for a, b, c in message.get("waits", ())])
    error = _KINDS.get(message["kind"], EvaluationError)(text)
    if isinstance(error, EvaluationError):
        error.located = True
    return error
