"""Engine: runs programs in separate processes with limits; a crash or a hang is an outcome."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, EvaluationError, HlokitError, UnsupportedError
from hlokit.files.arrays import arrays_in, npz_of, reinterpreted
from hlokit.hlo.module import HloModule
from hlokit.judge.devices import devices_of
from hlokit.judge.engines.blame import Blame
from hlokit.judge.engines.outcome import Outcome, Status
from hlokit.proto.module import module_to_proto

OWN = ("reference", "passes", "compiled", "compiled-1", "strict", "partitioned", "partitioned-compiled")
"""hlokit's engines: the reference, also after the passes; machine code on all threads and on one; strict code; parts of
a program with shardings on the devices of its mesh, by the reference or as machine code."""

_FRAME = re.compile(r"\s*(?:@\s+0x|\*\*\* )")
_PREFIX = re.compile(r"[EF]\d{4} \S+ +\d+ ")
_UNSUPPORTED = 77
"""The exit status of a command that does not support a program."""
_START = 120.0
"""Seconds that a process may take until it is ready."""
_MOST_OUTPUT = 1 << 32
"""Bytes of a result that are read."""
_PRINTED = 2000
"""Bytes of the end of what a command prints that are kept."""
_PRINTS = 1.0
"""Seconds for which processes that a command has left running may still print."""


@dataclass(frozen=True)
class Job:
    """A program and its arguments, as values and as files that engines in processes of their own read."""

    module: HloModule
    arguments: Sequence[Any]
    program: Path
    source: Path

    @staticmethod
    def written(module: HloModule, arguments: Sequence[Any], folder: Path, number: int = 0) -> Job:
        """The job, whose files are in the folder."""
        program, source = folder / f"program{number}.hlo.pb", folder / f"in{number}.npz"
        program.write_bytes(module_to_proto(module))
        source.write_bytes(npz_of(tuple(arguments), "in"))
        return Job(module, arguments, program, source)


class Engine:
    """Runs one module after another. `close` ends its process; `with` does.

    name      as the user wrote it
    seconds   a run may take; then the process is ended and the outcome is a timeout
    memory    bytes of address space that the process may take; 0: as much as it wants
    """

    def __init__(self, name: str, seconds: float = 60.0, memory: int = 0) -> None:
        self.name, self.seconds, self.memory = name, seconds, memory
        self.folder = Path(tempfile.mkdtemp(prefix="hlokit-engine-"))

    def run(self, module: HloModule, arguments: Sequence[Any]) -> Outcome:
        """The outcome of running the module's entry on these arguments."""
        job, target = Job.written(module, arguments, self.folder), self._target(0)
        start = time.monotonic()
        return _finished(module, self._run(job, target), target, time.monotonic() - start)

    def run_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcomes of programs, each as `run` gives it."""
        return [self.run(job.module, job.arguments) for job in jobs]

    def _target(self, number: int) -> Path:
        """Where a result is to be written."""
        target = self.folder / f"out{number}.npz"
        target.unlink(missing_ok=True)
        return target

    def read(self, text: str) -> Outcome:
        """Whether it takes a text for a program: "ok" with the text that it prints as the message, "error" if it
        refuses the text, "unsupported" if it reads no HLO text."""
        return Outcome("unsupported", (), "it is given no HLO text")

    def blame(self, module: HloModule, arguments: Sequence[Any]) -> Blame | None:
        """The pass or kernel that makes its result wrong; None if it is not found, or the engine is not of hlokit's."""
        return None

    def restart(self) -> None:
        """The next run is the first of a new process."""

    def _run(self, job: Job, target: Path) -> Outcome:
        raise NotImplementedError

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerEngine(Engine):
    """An engine whose process takes one program after another, and is started again when it has ended."""

    def __init__(
        self, name: str, command: Sequence[str], seconds: float, memory: int, flags: str = "", shapes: bool = False
    ) -> None:
        super().__init__(name, seconds, memory)
        self.command, self.flags, self.shapes = list(command), flags, shapes
        self.child: subprocess.Popen[bytes] | None = None

    def read(self, text: str) -> Outcome:
        program, target = self.folder / "program.hlo", self.folder / "printed.hlo"
        program.write_text(text, encoding="utf-8")
        outcome = self._answered([str(program), "", str(target), [] if self.shapes else "read"])
        return replace(outcome, message=target.read_text(encoding="utf-8")) if outcome.status == "ok" else outcome

    def blame(self, module: HloModule, arguments: Sequence[Any]) -> Blame | None:
        if self.name.partition("@")[0] not in OWN:
            return None
        job = Job.written(module, arguments, self.folder)
        running = self.folder / "pass"
        running.unlink(missing_ok=True)
        outcome = self._answered(self._line(job, str(self.folder), "blame"))
        if outcome.status == "ok":
            found = json.loads(outcome.message)
            return None if found is None else Blame(found[0], found[1], tuple(found[2]), *found[3:])
        name = running.read_text(encoding="utf-8") if running.exists() else ""
        return Blame("pass", name, message=str(outcome)) if name else None

    def run(self, module: HloModule, arguments: Sequence[Any]) -> Outcome:
        return self.run_all([Job.written(module, arguments, self.folder)])[0]

    def run_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The process is given all at once, and so waits for none; one that ends it, or that takes too long, is
        followed by the others in a new process."""
        targets = [self._target(number) for number in range(len(jobs))]
        lines = [self._line(job, str(target), "run") for job, target in zip(jobs, targets, strict=True)]
        found: list[Outcome | None] = [line if isinstance(line, Outcome) else None for line in lines]
        while left := [number for number, outcome in enumerate(found) if outcome is None]:
            child = self._ready()
            sent = child if isinstance(child, Outcome) else self._sent(child, [lines[number] for number in left])
            for number in left:
                start = time.monotonic()
                outcome = sent or self._answer(child, self.seconds)  # type: ignore[arg-type]
                seconds = time.monotonic() - start
                found[number] = _finished(jobs[number].module, outcome, targets[number], seconds)
                if self.child is not child:  # the others were not run
                    break
        return [outcome for outcome in found if outcome is not None]

    def times(self, module: HloModule, arguments: Sequence[Any], warm_up: int, repeat: int) -> list[float]:
        """Seconds of calls on a client of jaxlib's, after `warm_up` calls that do not count.

        Raises EvaluationError if it does not run the program.
        """
        if not self.shapes:
            raise ArgumentError(f"{self.name}: only calls of jaxlib's clients are timed")
        job = Job.written(module, arguments, self.folder)
        outcome = self._answered(self._line(job, [warm_up, repeat]))
        if outcome.status != "ok":
            raise EvaluationError(f"{self.name} does not run {module.name}: {outcome}")
        return [float(seconds) for seconds in outcome.message]

    def _line(self, job: Job, target: Any, task: str = "") -> list[Any] | Outcome:
        """The words of a job for its process; an outcome if it does not take such."""
        line = [str(job.program), str(job.source), target]
        if self.shapes:
            parameters = [p.shape for p in job.module.entry.parameters]
            if devices_of(job.module) > 1:
                return Outcome("unsupported", (), "several devices")
            if not all(s.is_array for s in parameters):
                return Outcome("unsupported", (), "arguments that are tuples or tokens")
            return [*line, [(s.dtype.name, s.dimensions) for s in parameters]]
        if devices_of(job.module) > 1:  # which the proto does not say
            return [*line, task, job.module.replica_count, job.module.num_partitions]
        return [*line, task]

    def _answered(self, line: list[Any] | Outcome) -> Outcome:
        """The answer of its process, which is started if there is none."""
        if isinstance(line, Outcome):
            return line
        child = self._ready()
        if isinstance(child, Outcome):
            return child
        return self._sent(child, [line]) or self._answer(child, self.seconds)

    def _ready(self) -> subprocess.Popen[bytes] | Outcome:
        """Its process, which is started if there is none; an outcome if it does not start."""
        if self.child is None or self.child.poll() is not None:
            self.child = self._started()
            ready = self._answer(self.child, max(self.seconds, _START))
            if ready.status != "ok":
                return ready
        return self.child

    def _sent(self, child: subprocess.Popen[bytes], lines: Sequence[Any]) -> Outcome | None:
        """Tells the process of jobs; an outcome if it has ended."""
        assert child.stdin is not None
        try:
            child.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            child.stdin.flush()
        except BrokenPipeError:
            return self._ended(child)
        return None

    def _answer(self, child: subprocess.Popen[bytes], seconds: float) -> Outcome:
        """The next answer: that it is ready, or what came of a run."""
        line = _line_within(child, seconds)
        if line is None:
            self._stop()
            return Outcome("timeout", (), f"no result within {seconds:g} s")
        if not line:
            return self._ended(child)
        status, message = json.loads(line)
        return Outcome(status, (), message)

    def _started(self) -> subprocess.Popen[bytes]:
        flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS", ""), self.flags)))
        environment = {**os.environ, "XLA_FLAGS": flags}
        with (self.folder / "stderr").open("wb") as errors:
            return subprocess.Popen(
                [*self.command, str(self.memory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=environment, start_new_session=True, bufsize=0,  # else answers wait where select does not see them
            )  # fmt: skip

    def _ended(self, child: subprocess.Popen[bytes]) -> Outcome:
        code = child.wait()
        self.child = None
        with (self.folder / "stderr").open("rb") as file:
            file.seek(-min(_PRINTED, file.seek(0, os.SEEK_END)), os.SEEK_END)
            return _with_printed(Outcome("crash", (), _end_of(code)), _end_of_text(file.read()))

    def restart(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.child is not None:
            _kill(self.child)
            self.child = None

    def close(self) -> None:
        self._stop()
        super().close()


class CommandEngine(Engine):
    """A command of the user's for each run, without a shell: `{hlo}`, `{inputs}` and `{outputs}` in it are the names of
    the program (a HloProto), of an .npz with in0, in1, ..., and of the .npz that it is to write, with out0, out1, ...
    Without `{hlo}` the program's name is its last argument. Programs are for one device. Exit status 77 (a skipped test
    of Automake's) says that the command does not support the program. `text_command`, if there is one, reads HLO text:
    {hlo} is the name of the text, {printed} of the text of the same program that it is to write; a status above 0
    refuses it."""

    def __init__(self, command: str, seconds: float = 60.0, memory: int = 0, text_command: str | None = None) -> None:
        super().__init__(command, seconds, memory)
        self.words = _command_of(command)
        self.text_words = None if text_command is None else _command_of(text_command)

    def read(self, text: str) -> Outcome:
        if self.text_words is None:
            return super().read(text)
        program, target = self.folder / "program.hlo", self.folder / "printed.hlo"
        program.write_text(text, encoding="utf-8")
        target.unlink(missing_ok=True)
        outcome = self._outcome(self.text_words, {"{hlo}": program, "{printed}": target})
        if outcome.status != "ok":
            return outcome
        if not target.exists() or target.stat().st_size > _MOST_OUTPUT:
            return replace(outcome, message="")
        return replace(outcome, message=target.read_text(encoding="utf-8", errors="replace"))

    def _run(self, job: Job, target: Path) -> Outcome:
        if devices_of(job.module) > 1:
            return Outcome("unsupported", (), "several devices")
        return self._outcome(self.words, {"{hlo}": job.program, "{inputs}": job.source, "{outputs}": target})

    def _outcome(self, words: Sequence[str], places: dict[str, Path]) -> Outcome:
        status, printed = _ran(words, places, self.seconds)
        if status == 0:
            return Outcome("ok", printed=printed)
        if status == _UNSUPPORTED:
            return _with_printed(Outcome("unsupported", (), f"exit status {status}"), printed)
        end = f"no result within {self.seconds:g} s" if status is None else _end_of(status)
        kind: Status = "timeout" if status is None else "crash" if status < 0 else "error"
        return _with_printed(Outcome(kind, (), end), printed)


class FunctionEngine(Engine):
    """A function of the user's, called in this process with a module and its arguments; its result is that of the
    program, an array or a tuple of arrays. Its time is not limited."""

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        super().__init__(f"{function.__module__}.{name}")  # no name of hlokit's engines, which have no dot
        self.function = function

    def _run(self, job: Job, target: Path) -> Outcome:
        try:
            result = self.function(job.module, *job.arguments)
            target.write_bytes(npz_of(result))
        except (UnsupportedError, NotImplementedError) as error:
            return Outcome("unsupported", (), str(error))
        except Exception as error:  # whatever it raises is its answer
            return Outcome("error", (), f"{type(error).__name__}: {error}")
        return Outcome("ok")


def _command_of(command: str) -> list[str]:
    """The words of a command; ArgumentError if it is not there."""
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        raise ArgumentError(f"there is no command {words[0] if words else ''!r}")
    return words


def _ran(words: Sequence[str], places: dict[str, Path], limit: float) -> tuple[int | None, str]:
    """The exit status of a command, None if it was ended at the limit, and the end of what it printed."""
    command = [_filled(word, places) for word in words]
    if not any("{hlo}" in word for word in words):
        command.append(str(places["{hlo}"]))
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        bufsize=0,
    )  # fmt: skip
    printed = _Printed(child)
    try:
        return child.wait(limit), printed.end()
    except subprocess.TimeoutExpired:
        _kill(child)
        return None, printed.end()


class _Printed(Thread):
    """Reads what a process prints, so that it does not wait, and keeps the end."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream, self.kept = child.stdout, b""
        self.start()

    def run(self) -> None:
        assert self.stream is not None
        with self.stream:
            while part := self.stream.read(1 << 16):
                self.kept = (self.kept + part)[-_PRINTED:]

    def end(self) -> str:
        """The end of what the process printed, which has ended."""
        self.join(_PRINTS)
        return _end_of_text(self.kept)


def _end_of_text(data: bytes) -> str:
    """The text of the last bytes that were printed, without the part of a line at their begin."""
    text = data.decode("utf-8", errors="replace")
    if len(data) == _PRINTED:
        text = "...\n" + (text.partition("\n")[2] or text)
    return text.strip()


def _with_printed(outcome: Outcome, printed: str) -> Outcome:
    """A failure with what was printed, whose last line tells it from others: not a frame of a stack trace, and without
    the time and the thread that XLA's messages begin with."""
    said = [line.strip() for line in printed.splitlines() if not _FRAME.match(line)]
    if not said:
        return outcome
    return replace(outcome, message=f"{outcome.message}; {_PREFIX.sub('', said[-1])[:300]}", printed=printed)


def _filled(word: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        word = word.replace(name, str(path))
    return word


def engine_of(spec: str | Callable[..., Any], seconds: float = 60.0, memory: int = 0) -> Engine:
    """The engine that a name or a command stands for, or that calls a function.

    reference, passes, compiled, compiled-1, strict, partitioned, partitioned-compiled
                                    hlokit's; with @PYTHON that of another Python's hlokit
    jaxlib                          XLA's CPU client of this Python's jaxlib
    jaxlib@PYTHON                   of another Python's
    jaxlib:FLAGS, jaxlib@PYTHON:FLAGS   with these XLA_FLAGS
    pjrt/NAME, pjrt/NAME@PYTHON     a PJRT plugin that jax knows by this name
    a text with {outputs}           the command of a CommandEngine

    Raises ArgumentError for other names, and for a Python or a command that is not there.
    """
    if not isinstance(spec, str):
        return FunctionEngine(spec)
    if "{outputs}" in spec:
        return CommandEngine(spec, seconds, memory)
    head, _, flags = spec.partition(":")
    kind, _, python = head.partition("@")
    if kind in OWN and not flags:
        command = [_python(spec, python), "-m", "hlokit.judge.engines.worker", kind]
        return WorkerEngine(spec, command, seconds, memory)
    platform = "cpu" if kind == "jaxlib" else kind.removeprefix("pjrt/") if kind.startswith("pjrt/") else ""
    if not platform:
        raise ArgumentError(
            f"there is no engine {spec!r}: choose from {', '.join(OWN)}, jaxlib[@PYTHON][:FLAGS], pjrt/NAME[@PYTHON], "
            "or give a command such as 'simulator {hlo} {inputs} {outputs}'"
        )
    worker = Path(__file__).with_name("jaxlib_worker.py")
    return WorkerEngine(spec, [_python(spec, python), str(worker), platform], seconds, memory, flags, shapes=True)


def _python(spec: str, python: str) -> str:
    """The Python of an engine; ArgumentError if it is not there."""
    python = python or sys.executable
    if shutil.which(python) is None:
        raise ArgumentError(f"engine {spec}: there is no Python {python}")
    return python


def _finished(module: HloModule, outcome: Outcome, target: Path, seconds: float) -> Outcome:
    """The outcome of a run with the arrays that it has written."""
    outcome = replace(outcome, seconds=seconds)
    if outcome.status != "ok":
        return outcome
    try:
        return replace(outcome, leaves=_leaves(module, target))
    except FileNotFoundError:
        return _with_printed(replace(outcome, status="error", message="it wrote no result"), outcome.printed)
    except (OSError, HlokitError) as error:
        return replace(outcome, status="error", message=f"its result cannot be read: {error}")


def _leaves(module: HloModule, target: Path) -> tuple[np.ndarray[Any, Any], ...]:
    """The arrays of a result, of the types that the module says."""
    if target.stat().st_size > _MOST_OUTPUT:
        raise ArgumentError(f"it has {target.stat().st_size:,} bytes")
    arrays = arrays_in(target.read_bytes())
    shapes = [s for s in module.entry.root.shape.leaves() if s.is_array] * devices_of(module)
    missing = [i for i in range(len(shapes)) if f"out{i}" not in arrays]
    if missing:
        raise ArgumentError(f"it lacks out{missing[0]}")
    return tuple(reinterpreted(arrays[f"out{i}"], shape) for i, shape in enumerate(shapes))


def _line_within(child: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """The next line that it writes; b"" if it ended; None if that takes longer."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline() if selector.select(seconds) else None


def _end_of(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Ends the process and, on Linux, what it started."""
    try:
        if sys.platform == "linux":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):
        child.kill()
    child.wait()
