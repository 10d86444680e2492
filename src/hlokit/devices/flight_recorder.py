"""Flight recorder: the last collectives of this process, kept in memory and written as JSON when a run fails.

The environment variable HLOKIT_FLIGHT_RECORDER names a folder. Each process of a world then writes
`WORLD_rank3.json` there when a run fails and when it receives SIGUSR2. `hlokit devices FOLDER` reads the files
(hlokit.devices.flight_report).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlokit.hlo.sources import source_lines
from hlokit.interpreter.routes import Route
from hlokit.interpreter.transport import RENDEZVOUS, rendezvous_key

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction

VARIABLE = "HLOKIT_FLIGHT_RECORDER"
FORMAT = "hlokit flight recorder 1"
COLLECTIVES = 200
"""Collectives, sends and receives that are kept."""
_RUNS = 20
SIGNAL = getattr(signal, "SIGUSR2", None)
"""MPICH's mpiexec sends SIGUSR1 itself, and kernels are stopped by SIGURG. None on systems that have no such signal."""


class Entry:
    """A collective, send or receive that a device came to.

    rendezvous, turn    where its members meet, and how many times the device has come there in this run
    members             devices
    state               entered: the others have not all come; met: the bytes are being moved; left; failed
    times               of entering, meeting, and leaving or failing: seconds since 1970
    """

    __slots__ = ("device", "instruction", "members", "nbytes", "number", "rendezvous", "run", "state", "times", "turn")

    def __init__(
        self, run: int, number: int, device: int, instruction: Instruction, rendezvous: str, turn: int,
        members: Sequence[int], nbytes: int,
    ) -> None:  # fmt: skip
        self.run, self.number, self.device = run, number, device
        self.instruction, self.rendezvous, self.turn = instruction, rendezvous, turn
        self.members, self.nbytes = members, nbytes
        self.state = "entered"
        self.times = [time.time()]

    def met(self) -> None:
        """All members have come."""
        self.state = "met"
        self.times.append(time.time())

    def end(self, state: str) -> None:
        self.state = state
        self.times.append(time.time())

    def facts(self) -> dict[str, Any]:
        return {
            "run": self.run, "number": self.number, "device": self.device, "name": self.instruction.name,
            "opcode": self.instruction.opcode, "rendezvous": self.rendezvous, "turn": self.turn,
            "members": list(self.members), "bytes": self.nbytes, "state": self.state, "times": list(self.times),
            "source": str(next(iter(source_lines(self.instruction)), "")),
        }  # fmt: skip


class FlightRecorder:
    """The recorder of one process in one world.

    world     what all processes of the world know of it, and others do not
    folder    where to write; by default what HLOKIT_FLIGHT_RECORDER says, empty: nowhere
    """

    def __init__(self, world: str, rank: int, size: int, folder: str | None = None) -> None:
        self.world = sha256(world.encode()).hexdigest()[:12]
        self.rank, self.size = rank, size
        self.folder = os.environ.get(VARIABLE, "") if folder is None else folder
        self._entries: deque[Entry] = deque(maxlen=COLLECTIVES)
        self._runs: deque[dict[str, Any]] = deque(maxlen=_RUNS)
        self._turns: Counter[tuple[int, str]] = Counter()
        self._instructions: dict[Instruction, int] = {}
        self._count = self._run = 0
        self._noted: dict[str, Any] | None = None
        """The facts that were known when the first sign of a failure of this run came."""
        self._lock = threading.Lock()
        if self.folder:
            _on_signal(self)

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"{self.world}_rank{self.rank}.json"

    # -- what happens

    def begin(self, program: str, title: str, homes: Sequence[int], instructions: dict[Instruction, int]) -> None:
        """A run of a program, of which all ranks number the instructions alike; `homes`: the rank of each device."""
        with self._lock:
            self._run += 1
            self._noted = None
            self._turns, self._instructions = Counter(), instructions
            self._runs.append(
                {"number": self._run, "program": program, "title": title, "homes": homes, "state": "beginning",
                 "times": [time.time()]}
            )  # fmt: skip

    def progress(self, state: str) -> None:
        """The run is running, ending, over or failed, of which it does not become anything else."""
        run = self._runs[-1]
        if run["state"] == "failed":
            return
        run["state"] = state
        run["times"].append(time.time())

    def places(self) -> list[str]:
        """The collectives that the devices are in the midst of, for people."""
        found: list[str] = []
        with self._lock:
            entries = [entry for entry in self._entries if entry.run == self._run and entry.state != "left"]
        for entry in entries:
            source = next(iter(source_lines(entry.instruction)), None)
            where = f" ({source})" if source is not None else ""
            verb = "waited" if entry.state == "entered" else "moved bytes"
            others = ", ".join(map(str, entry.members[:16])) + (", ..." if len(entry.members) > 16 else "")
            found.append(f"{verb} at {entry.instruction.name} ({entry.instruction.opcode}){where} of devices {others}")
        return found

    @contextmanager
    def collective(
        self, device: int, instruction: Instruction, members: Sequence[int], nbytes: int
    ) -> Generator[Entry, None, None]:
        """Records a collective until the block is left."""
        with self._recorded(device, instruction, self._rendezvous(instruction), members, nbytes) as entry:
            yield entry

    @contextmanager
    def transfer(
        self, device: int, instruction: Instruction, route: Route, nbytes: int
    ) -> Generator[Entry, None, None]:
        """Records a send or a receive, which are each other's members, until the block is left."""
        members = [end for end in dict.fromkeys((route.source, route.target)) if end is not None]
        rendezvous = f"channel {route.channel} of devices {route.source} and {route.target}"
        with self._recorded(device, instruction, rendezvous, members, nbytes) as entry:
            yield entry

    @contextmanager
    def _recorded(
        self, device: int, instruction: Instruction, rendezvous: str, members: Sequence[int], nbytes: int
    ) -> Generator[Entry, None, None]:
        with self._lock:
            self._turns[device, rendezvous] += 1
            turn = self._turns[device, rendezvous]
            self._count += 1
            entry = Entry(self._run, self._count, device, instruction, rendezvous, turn, members, nbytes)
            self._entries.append(entry)
        try:
            yield entry
        except BaseException:
            entry.end("failed" if entry.state == "met" else "entered")
            raise
        entry.end("left")

    def _rendezvous(self, instruction: Instruction) -> str:
        key: Any = rendezvous_key(instruction)
        if key is instruction:
            return f"instruction {self._instructions.get(instruction, instruction.name)}"
        kind, channel = key
        is_copied = instruction.extra is not None and channel == instruction.extra.frontend_attributes.get(RENDEZVOUS)
        return f"{kind} {'of' if is_copied else 'channel'} {channel}"

    # -- dumps

    def close(self) -> None:
        """The signal is not for this one any more."""
        if self in _listening:
            _listening.remove(self)

    def facts(self, failure: str = "") -> dict[str, Any]:
        """The content of a dump."""
        with self._lock:
            entries, runs = list(self._entries), list(self._runs)
            runs = [{**run, "homes": list(run["homes"]), "times": list(run["times"])} for run in runs]
            turns = [[device, rendezvous, count] for (device, rendezvous), count in self._turns.items()]
        return {
            "format": FORMAT, "world": self.world, "rank": self.rank, "size": self.size, "failure": failure,
            "time": time.time(), "host": socket.gethostname(), "pid": os.getpid(), "runs": runs, "turns": turns,
            "collectives": [entry.facts() for entry in entries],
        }  # fmt: skip

    def note(self, failure: str) -> None:
        """The run may fail, unless it was over already when this became known: keeps what is known now for `fail`."""
        if self._is_in_run and self._noted is None:
            self._noted = self.facts(failure)

    def fail(self, failure: str) -> None:
        """The run has failed: writes what was known when that was noted, or is known now. Nothing outside of a run."""
        if self._is_in_run:
            self.note(failure)
            self.progress("failed")
            self.dump()

    @property
    def _is_in_run(self) -> bool:
        return bool(self._runs) and self._runs[-1]["state"] not in ("over", "failed")

    def dump(self, failure: str = "") -> None:
        """Writes what is known now over what was written before; after a run that failed what was known then.

        failure   of another rank, outside of a run
        """
        if not self.folder:
            return
        is_failed = self._noted is not None and not self._is_in_run and self._runs[-1]["state"] == "failed"
        text = json.dumps(self._noted if is_failed else self.facts(failure))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(f".{threading.get_ident()}.part")
            beside.write_text(text, encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            print(f"flight recorder: {error}", file=sys.stderr)


# -- the signal

_listening: list[FlightRecorder] = []
_pipe: tuple[int, int] | None = None


def _on_signal(recorder: FlightRecorder) -> None:
    """From now on SIGUSR2 makes the recorder write; unless the program has a handler of its own, or this is not the
    main thread."""
    global _pipe
    _listening.append(recorder)
    is_main = threading.current_thread() is threading.main_thread()
    if _pipe is not None or SIGNAL is None or not is_main or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    number = int(SIGNAL)
    _pipe = reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def woken() -> None:
        while data := os.read(reading, 64):
            if number in data:
                for each in list(_listening):
                    each.dump()

    def handle(number: int, frame: object) -> None:
        with suppress(OSError):  # the pipe is full: it will be read
            os.write(writing, bytes([number]))

    threading.Thread(target=woken, name="hlokit flight recorder", daemon=True).start()
    signal.signal(SIGNAL, handle)
    # Python runs `handle` when its main thread is back in Python; this is written to at once, whatever that thread does
    other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if other != -1:
        signal.set_wakeup_fd(other)
