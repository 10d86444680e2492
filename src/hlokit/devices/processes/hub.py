"""Hub: the centre of the control plane, a thread of rank 0.

It holds the Exchange of a run: who came where, who waits for whom. Devices tell it of rendezvous and transfers and wait
for its word; of what they send they tell the header. So all members of a rendezvous have come before any of them
moves bytes, no device can wait inside the engine for one that does not come, and a deadlock is seen as it is between
threads: no device runs.

A run is direct if all ranks have proved that every device reaches the same collectives in the same order. Then nobody
asks: who waits in the engine for a device that has failed hears that it has, and leaves, and the engine begins anew.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hlokit.devices.processes.line import Incoming, Message, encoded, error_message, is_silent, prepare, version
from hlokit.errors import EvaluationError
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import Exchange

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction


class _Run:
    """One run of a program by all ranks. `homes`: the rank that has each device."""

    def __init__(self, names: Sequence[str], homes: Sequence[int], instructions: Sequence[Instruction]) -> None:
        self.exchange: Exchange = Exchange(names)
        self.homes = homes
        self.instructions = instructions
        self.running = set(range(len(names)))
        self.everyone = tuple(range(len(names)))
        self.failure: Message | None = None
        self.tags: dict[int, int] = {}
        """Tags of the messages that devices wait to send."""


class Hub:
    """Serves `size` ranks, each of which connects to `address` and shows `secret` first.

    `prepared`: the devices' names and homes, and the instructions, of the next run; rank 0 gives them before it begins.
    """

    def __init__(self, size: int, secret: str, host: str = "") -> None:
        self.size = size
        self.prepared: tuple[Sequence[str], Sequence[int], Sequence[Instruction]] = ((), (), ())
        self._secret = secret
        self._server = socket.create_server((host, 0), backlog=size)
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._lines: dict[int, socket.socket] = {}
        self._ranks: dict[socket.socket, int | None] = {}
        self._streams: dict[socket.socket, Incoming] = {}
        self._begun: dict[int, Message] = {}
        self._gone: Message | None = None
        self._run: _Run | None = None
        self._tag = self._generation = 0
        self._open = True
        self._is_silent = False
        """The last connection that broke did so because nothing came from its other end."""
        self._thread = threading.Thread(target=self._serve, name="hlokit hub", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Waits until the hub has closed, which it does when rank 0 leaves: until all has been said."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        try:
            while self._open:
                for key, _ in self._selector.select():
                    if key.fileobj is self._server:
                        self._accept()
                    elif key.fileobj in self._ranks:
                        self._read(key.fileobj)  # type: ignore[arg-type]
        finally:  # whatever happens: ranks see that the hub is gone
            for end in (self._server, *self._ranks):
                end.close()

    def _accept(self) -> None:
        try:
            end, _ = self._server.accept()
            prepare(end)
        except OSError:
            return
        self._ranks[end], self._streams[end] = None, Incoming()
        self._selector.register(end, selectors.EVENT_READ)

    def _read(self, end: socket.socket) -> None:
        self._is_silent = False
        try:
            data = end.recv(1 << 16)
            messages = self._streams[end].add(data)
        except (OSError, ValueError, RecursionError) as error:
            self._is_silent = is_silent(error)
            data, messages = b"", []
        for message in messages:
            if not self._handle(end, message):
                data = b""
                break
        if not data:
            self._drop(end)

    def _handle(self, end: socket.socket, message: Message) -> bool:
        """False for one that is not to be listened to."""
        rank = self._ranks[end]
        if rank is not None:
            try:
                self._act(rank, message)
            except Exception as error:
                self._stop(error_message(error, "the hub"))
            return True
        rank = message.get("rank")
        known = isinstance(rank, int) and rank in range(self.size) and rank not in self._lines
        if not known or message.get("secret") != self._secret:
            return False
        assert isinstance(rank, int)
        self._ranks[end], self._lines[rank] = rank, end
        if message.get("version") != version() and self._gone is None:
            text = f"rank {rank} has hlokit {message.get('version')}, rank 0 has {version()}"
            self._gone = {"is": "lost", "error": {"kind": "ArgumentError", "text": text}, "left": True, "failed": True}
        if self._is_whole:
            self._tell_all(self._gone or {"is": "welcome"})
        return True

    @property
    def _is_whole(self) -> bool:
        """All ranks have connected."""
        return len(self._lines) == self.size

    def _drop(self, end: socket.socket) -> None:
        rank = self._ranks.pop(end)
        self._streams.pop(end)
        self._selector.unregister(end)
        end.close()
        if rank is None:
            return
        self._open = self._open and rank != 0
        if self._gone is None:
            why = "its machine does not answer" if self._is_silent else "its process ended"
            error = {"kind": "EvaluationError", "text": f"rank {rank} is gone: {why}"}
            self._gone = {"is": "lost", "error": error, "left": False, "failed": True}
        if self._run is not None or self._begun or not self._open or (self._is_whole and self._gone["failed"]):
            self._tell_all(self._gone)

    def _tell(self, rank: int, message: Message) -> None:
        self._send(rank, encoded(message))

    def _tell_all(self, message: Message) -> None:
        """Rank 0 hears it last: it may end then, and the hub with it."""
        data = encoded(message)
        for rank in sorted(self._lines, reverse=True):
            self._send(rank, data)

    def _send(self, rank: int, data: bytes) -> None:
        with suppress(OSError):  # where its end is closed, that is found when it is read next
            self._lines[rank].sendall(data)

    # -- what ranks say

    def _act(self, rank: int, message: Message) -> None:
        do = message["do"]
        if do == "leave":
            error, failed = message["error"], message["failed"]
            self._gone = self._gone or {"is": "lost", "error": error, "left": True, "failed": failed}
        elif do == "begin":
            self._begin(rank, message)
        elif do == "fail" and self._begun.pop(rank, None) is not None:  # before the run has begun
            self._tell(rank, {"is": "over", "left": [], "failure": None})
        elif self._run is not None:
            self._step(self._run, message["device"], do, message)

    def _begin(self, rank: int, message: Message) -> None:
        self._begun[rank] = message
        if self._gone is not None:
            self._tell_all(self._gone)
        if len(self._begun) < self.size:
            return
        begun, self._begun = self._begun, {}
        self._run = _Run(*self.prepared)
        is_direct = bool(begun[0]["order"]) and all(b["order"] == begun[0]["order"] for b in begun.values())
        self._tell_all({"is": "begun", "direct": is_direct, "generation": self._generation})
        own = begun[0]["program"]
        others = [rank for rank in range(self.size) if begun[rank]["program"] != own]
        if others:
            names = f"{begun[others[0]].get('name', '')!r}, not {begun[0].get('name', '')!r}"
            text = f"rank {others[0]} runs another program than rank 0: {names} [EXEC-2]"
            self._stop({"kind": "ArgumentError", "text": text})

    def _step(self, run: _Run, device: int, do: str, message: Message) -> None:
        if do in ("end", "fail", "break"):
            run.running.discard(device)
            run.exchange.finished.add(device)
            if do == "fail":
                self._stop(message["error"], device)
            if do == "break":
                self._tell_all({"is": "lost", "error": message["error"], "left": False, "failed": True})
                return
        elif run.failure is None:
            self._exchange(run, device, do, message)
        if len(run.exchange.finished) == len(run.homes):
            self._over(run)
        elif not run.running and run.failure is None:
            self._stop(error_message(run.exchange.deadlock(), "the hub"))

    def _exchange(self, run: _Run, device: int, do: str, message: Message) -> None:
        exchange = run.exchange
        self._tag = (self._tag + 1) % 2**20
        if do == "send":
            run.tags[device] = self._tag
        freed: list[int]
        if do == "offer":
            freed = exchange.offer(Route(*message["route"]))
        else:
            instruction: Instruction = run.instructions[int(message["at"])]
            calls: dict[str, Callable[[], list[int]]] = {
                "meet": lambda: exchange.meet(device, instruction, message["members"] or run.everyone, None),
                "send": lambda: exchange.send(
                    device, instruction, Route(*message["route"]), {"tag": self._tag, "header": message["value"]}
                ),
                "receive": lambda: exchange.receive(device, instruction, Route(*message["route"])),
            }
            try:
                freed = calls[do]()
            except EvaluationError as error:
                refusal = {"is": "refused", "device": device, "error": error_message(error, "")}
                self._tell(run.homes[device], refusal)
                return
            run.running.discard(device)
        for other in freed:
            run.running.add(other)
            given = exchange.results.pop(other)
            value = None if do == "meet" else run.tags.pop(other) if given is None else given
            self._tell(run.homes[other], {"is": "go", "device": other, "value": value, "number": self._tag})

    def _stop(self, error: Message, device: int | None = None) -> None:
        """The first error is the run's: all others stop."""
        run = self._run
        if run is None or run.failure is not None:
            return
        run.failure = {"is": "stop", "error": error, "by": device}
        self._tell_all(run.failure)

    def _over(self, run: _Run) -> None:
        """Every device has ended: each rank hears what was sent to its devices and never taken."""
        left: list[list[Any]] = [[] for _ in range(self.size)]
        for route, value in run.exchange.untaken():
            if route.target is not None:
                source = run.homes[route.target if route.source is None else route.source]
                left[run.homes[route.target]].append([source, value])
        self._run = None
        self._generation += run.failure is not None
        nothing = encoded({"is": "over", "left": [], "failure": run.failure})
        for rank in reversed(range(self.size)):
            over = {"is": "over", "left": left[rank], "failure": run.failure}
            self._send(rank, encoded(over) if left[rank] else nothing)
