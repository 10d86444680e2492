"""hlokit reduce: the smallest program that still shows a fault."""

from __future__ import annotations

import json as json_module
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from hlokit.api import reduce_module, verify
from hlokit.errors import ArgumentError, HlokitError
from hlokit.files.arrays import npz_of
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.judge.closeness.equality import differs, is_nan
from hlokit.judge.closeness.spread import near
from hlokit.judge.engines.engine import Engine, engine_of
from hlokit.judge.engines.trivial import trivial_programs
from hlokit.judge.reduce.search import Step
from hlokit.tools.files import loaded, write
from hlokit.tools.inputs import Inputs, arguments_for
from hlokit.tools.progress import Advance, progress
from hlokit.tools.status import DONE, INTERRUPTED

_SCRIPT = '''# Shows the fault again: {what}

import numpy as np

import hlokit as hk

module = hk.load({program!r})
arrays = np.load({arguments!r})
arguments = []
for i, parameter in enumerate(module.entry.parameters):
    array, wanted = arrays[f"in{{i}}"], parameter.shape.dtype.numpy
    arguments.append(array if array.dtype == wanted else array.view(wanted))
found = hk.compare_engines(module, *arguments, engines={engines!r})
print("reference:", found.expected)
for judgement in found.judgements:
    print(judgement, *judgement.outcome.leaves, f"{{judgement.outcome.seconds:.3g}} s", sep="\\n  ")
'''
_CHECK = '''# Shows the fault again: {what}

import subprocess

status = subprocess.run({command!r}).returncode
print("exit status", status, "(0: the program shows the fault)")
'''


def reduce(
    file: Path,
    *,
    check: str | None = None,
    mismatch: tuple[str, str] | None = None,
    crash: str | None = None,
    nan: str | None = None,
    slow: tuple[str, str, float] | None = None,
    input: Inputs = (),
    random: int = 0,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    log: Path | None = None,
    time_limit: float | None = None,
    timeout: float = 60.0,
    json: bool = False,
) -> int:
    """Makes a program as small as possible while it still shows a fault.

    Writes three files: OUTPUT (by default FILE with .reduced.hlo), an .npz with its arguments as in0, in1, ..., and a
    Python script that shows the fault again. The input is never overwritten.

    The options --mismatch, --crash, --nan and --slow take engines of `hlokit compare`: names, or commands with {hlo},
    {inputs} and {outputs}, such as 'simulator {hlo} {inputs} {outputs}'.

    Parameters
    ----------
    file:
        a program that shows the fault, in any kind of file that hlokit reads.
    check:
        a command, run without a shell, that exits with status 0 if a program shows the fault. {hlo} is replaced by the
        path of the program as HLO text, {inputs} by that of an .npz with its arguments; without {hlo} the path of the
        program is appended as the last argument.
    mismatch:
        the fault: the results of two engines differ by more than rounding explains.
    crash:
        the fault: the process of this engine crashes, or takes longer than --timeout.
    nan:
        the fault: this engine's result has a NaN.
    slow:
        the fault: the first engine takes longer than the second by this ratio.
    input:
        the arguments: an .npz with an array for each parameter, by the parameters' names or as in0, in1, ... or arr_0,
        arr_1, ...; or values, one --input for each parameter: f32[4,8]=1, 's32[3]={1, 2, 3}'.
    random:
        the seed of random arguments, if there is no input: normally distributed numbers, small integers.
    output:
        the file to write, by default FILE with .reduced.hlo.
    log:
        a folder for every step, from which an interrupted reduction continues.
    time_limit:
        seconds after which the smallest program so far is written.
    timeout:
        time limit of a run or of the command, in seconds.
    json:
        print JSON.
    """
    output = output if output is not None else file.with_name(f"{file.stem}.reduced.hlo")
    if output.resolve() == file.resolve():
        raise ArgumentError(f"reduce: {output} is the program itself, which is not overwritten")
    if timeout <= 0:
        raise ArgumentError("reduce: --timeout must be greater than 0")
    faults = {"check": check, "mismatch": mismatch, "crash": crash, "nan": nan, "slow": slow}
    given = [name for name, value in faults.items() if value is not None]
    if len(given) != 1:
        raise ArgumentError("reduce: expected one of --check, --mismatch, --crash, --nan and --slow")
    module, arguments = _start(file, input, random, log)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hlokit-reduce-")))
        is_bad, engines = _fault(faults, folder, timeout, stack)
        fault = " ".join(f"--{given[0]} {_words(faults[given[0]])}".splitlines())
        if not is_bad(module.clone(), *arguments):
            raise ArgumentError(f"reduce {fault}: {file} does not show the fault, so it cannot be reduced")
        if given[0] != "slow" and all(is_bad(*_flat(one)) for one in trivial_programs()):
            raise ArgumentError(f"reduce {fault}: every program shows this fault, even that of a single constant")
        advance = stack.enter_context(progress("reducing", time_limit))
        note = _Log(log)
        watched = _Watched(is_bad, note, advance, time_limit is not None)
        try:
            found = reduce_module(module, watched, arguments, time_limit=time_limit, on_step=note)
        except KeyboardInterrupt:
            if log is None:
                raise
            print(f"interrupted; the same command continues from the last step in {log}", file=sys.stderr)
            return INTERRUPTED
    write(output, found.module.to_text("short_parsable").encode())
    inputs, script = output.with_suffix(".npz"), output.with_suffix(".py")
    write(inputs, npz_of(tuple(found.arguments or ()), "in"))
    if check is not None:
        text = _CHECK.format(what=fault, command=_check_of(shlex.split(check), output, inputs))
    else:
        text = _SCRIPT.format(what=fault, program=str(output), arguments=str(inputs), engines=engines)
    write(script, text.encode())
    size = sum(len(c) for c in found.module.all_computations)
    if json:
        facts = {"instructions": size, "tries": found.tries, "complete": found.is_complete, "program": str(output)}
        print(json_module.dumps({**facts, "arguments": str(inputs), "script": str(script)}, indent=2))
        return DONE
    end = "" if found.is_complete else "; the search reached the time limit"
    print(f"{output}: {counted(size, 'instruction')} after {found.tries:,} tries{end}; {inputs}, {script}")
    return DONE


def _words(value: Any) -> str:
    """The value of an option as it was written."""
    return value if isinstance(value, str) else " ".join(map(str, value))


def _flat(program: tuple[HloModule, list[Any]]) -> list[Any]:
    """A program and its arguments, as a check takes them."""
    return [program[0], *program[1]]


def _start(file: Path, input: Inputs, random: int, log: Path | None) -> tuple[HloModule, list[Any]]:
    """The program and its arguments: those of the last step, if the log has one."""
    steps = sorted(log.glob("[0-9]*.hlo")) if log is not None and log.is_dir() else []
    if steps:
        module = loaded(steps[-1])
        return module, arguments_for(module, (str(steps[-1].with_suffix(".npz")),), None)
    module = loaded(file)
    verify(module)
    return module, arguments_for(module, input, random)


class _Log:
    """Writes each step to a folder, and a line for it on standard error."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.number = 0
        self.size = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.number = len(list(folder.glob("[0-9]*.hlo")))

    def __call__(self, step: Step, module: HloModule, arguments: list[Any] | None) -> None:
        self.number += 1
        self.size = step.size
        print(f"{step.size:6,} instructions  {step.edit}, {counted(step.places, 'place')}", file=sys.stderr)
        if self.folder is not None:
            path = self.folder / f"{self.number:05}.hlo"
            path.with_suffix(".npz").write_bytes(npz_of(tuple(arguments or ()), "in"))
            path.write_text(module.to_text("short_parsable"))


class _Watched:
    """A check that reports the progress of the search: in seconds of its limit, or only the number of tries."""

    def __init__(self, check: Callable[..., bool], log: _Log, advance: Advance, is_timed: bool) -> None:
        self.check, self.log, self.advance, self.is_timed = check, log, advance, is_timed
        self.begin, self.tries = time.monotonic(), 0

    def __call__(self, module: HloModule, *arguments: Any) -> bool:
        found = self.check(module, *arguments)
        self.tries += 1
        left = f", {counted(self.log.size, 'instruction')} left" if self.log.size else ""
        done = time.monotonic() - self.begin if self.is_timed else self.tries
        self.advance(done, text=f"{self.tries:,} tries{left}")
        return found


def _fault(
    faults: dict[str, Any], folder: Path, timeout: float, stack: ExitStack
) -> tuple[Callable[..., bool], list[str]]:
    """The check of a program, and the engines that it runs."""

    def engine(name: str) -> Engine:
        return stack.enter_context(engine_of(name, timeout))

    if faults["check"] is not None:
        return _Command(faults["check"], folder, timeout), []
    if faults["mismatch"] is not None:
        names = list(faults["mismatch"])
        return _Mismatch(*map(engine, names)), names
    if faults["crash"] is not None:
        return partial(_crashes, engine(faults["crash"])), [faults["crash"]]
    if faults["nan"] is not None:
        return partial(_gives_nan, engine(faults["nan"])), [faults["nan"]]
    first, second, ratio = faults["slow"]
    return _Slow(engine(first), engine(second), ratio), [first, second]


def _crashes(engine: Engine, module: HloModule, *arguments: Any) -> bool:
    return engine.run(module, arguments).status in ("crash", "timeout")


def _gives_nan(engine: Engine, module: HloModule, *arguments: Any) -> bool:
    return any(np.any(is_nan(leaf)) for leaf in engine.run(module, arguments).leaves)


def _check_of(words: Sequence[str], program: Path, inputs: Path) -> list[str]:
    """The words of a check with the names of the files."""
    filled = [word.replace("{hlo}", str(program)).replace("{inputs}", str(inputs)) for word in words]
    return filled if any("{hlo}" in word for word in words) else [*filled, str(program)]


class _Command:
    """Runs a command on a program; status 0 means that it shows the fault."""

    def __init__(self, command: str, folder: Path, timeout: float) -> None:
        self.words, self.folder, self.timeout = shlex.split(command), folder, timeout
        if not self.words or shutil.which(self.words[0]) is None:
            raise ArgumentError(f"reduce --check: there is no command {self.words[0] if self.words else ''!r}")

    def __call__(self, module: HloModule, *arguments: Any) -> bool:
        program, inputs = self.folder / "program.hlo", self.folder / "in.npz"
        program.write_text(module.to_text("short_parsable"))
        inputs.write_bytes(npz_of(arguments, "in"))
        words = _check_of(self.words, program, inputs)
        null = subprocess.DEVNULL
        try:
            done = subprocess.run(words, stdin=null, stdout=null, stderr=null, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


class _Mismatch:
    """Two engines give results that differ by more than rounding may change."""

    def __init__(self, first: Engine, second: Engine) -> None:
        self.first, self.second = first, second

    def __call__(self, module: HloModule, *arguments: Any) -> bool:
        one, other = (engine.run(module, arguments) for engine in (self.first, self.second))
        if one.status != "ok" or other.status != "ok" or differs(one.leaves, other.leaves) is None:
            return False
        pairs = (one.leaves, other.leaves), (other.leaves, one.leaves)  # either may be the reference
        try:
            return any(near(*pair, module, arguments, 0, seconds=self.first.seconds) is not None for pair in pairs)
        except HlokitError:
            return False


class _Slow:
    """An engine takes longer than another, by a ratio: the shorter of two runs of each."""

    def __init__(self, first: Engine, second: Engine, ratio: float) -> None:
        self.first, self.second, self.ratio = first, second, ratio

    def __call__(self, module: HloModule, *arguments: Any) -> bool:
        engines = self.first, self.second
        first, second = (min(self._seconds(engine, module, arguments) for _ in range(2)) for engine in engines)
        return second > 0 and first > self.ratio * second

    @staticmethod
    def _seconds(engine: Engine, module: HloModule, arguments: tuple[Any, ...]) -> float:
        start = time.perf_counter()
        outcome = engine.run(module, arguments)
        return time.perf_counter() - start if outcome.status == "ok" else 0.0
