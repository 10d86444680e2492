"""hlokit compare: the same program on several engines, and a verdict on each."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import ExitStack
from pathlib import Path

from hlokit.api import verify
from hlokit.errors import ArgumentError
from hlokit.judge.compare.comparing import Comparison, compare_engines
from hlokit.judge.compare.report import REPORT, write_report
from hlokit.judge.engines.engine import CommandEngine, Engine, engine_of
from hlokit.tools.files import loaded
from hlokit.tools.inputs import arguments_for
from hlokit.tools.progress import progress
from hlokit.tools.status import DONE, FOUND


def compare(
    file: Path,
    *,
    engines: str = "passes,compiled,strict",
    engine_cmd: str | None = None,
    input: Path | None = None,
    random: int | None = None,
    timeout: float = 60.0,
    memory: int = 0,
    bisect: bool = True,
    json: bool = False,
    report: Path | None = None,
    reduce_limit: float = 60.0,
) -> int:
    """Runs a program on engines, each in a process of its own, and judges their results by the reference.

    Verdicts: equal (the reference's bits), allowed (no further off than rounding may change it), wrong (with the first
    instruction whose value is wrong, or the pass that made it so), undecided, failed (an error, a crash, no result in
    time), unsupported. Exit status 1 if a result is wrong, undecided or missing.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is the standard input.
    engines:
        with commas between them: passes, compiled, compiled-1, strict, jaxlib (XLA's CPU client of this Python),
        jaxlib@PYTHON (of another Python), jaxlib:FLAGS (with these XLA_FLAGS, blanks between them), pjrt/NAME (a
        plugin).
    engine_cmd:
        a command that is run for the program as well, without a shell: {hlo} in it is the name of the program (a
        HloProto), {inputs} of an .npz with in0, in1, ..., {outputs} of the .npz that it is to write, with out0, ...
    input:
        an .npz with the arguments, by the names of the parameters or as arr_0, arr_1, ...
    random:
        a seed for random arguments; without `input` it is 0.
    timeout:
        seconds that a run may take.
    memory:
        megabytes of address space that an engine may take; 0: as much as it wants.
    bisect:
        look for the instruction or the pass that makes a result wrong (--no-bisect: do not).
    json:
        print JSON.
    report:
        a folder for a report on each engine whose result is wrong: the least program that shows it, its arguments, and
        report.md, which is ready to file.
    reduce_limit:
        seconds that the search for the least program may take.
    """
    module = loaded(file)
    verify(module)
    arguments = arguments_for(module, input, random if random is not None or input is not None else 0)
    names = [name.strip() for name in engines.split(",") if name.strip()]
    if timeout <= 0 or memory < 0:
        raise ArgumentError("compare: --timeout takes seconds above 0, --memory megabytes of at least 0")
    with ExitStack() as stack:
        opened: list[Engine] = [stack.enter_context(engine_of(n, timeout, memory << 20)) for n in names]
        if engine_cmd is not None:
            opened.append(stack.enter_context(CommandEngine(engine_cmd, timeout)))
        told: list[str] = []

        def say(name: str) -> None:
            advance(len(told), text=name)
            told.append(name)

        with progress(module.name, len(opened) + 1) as advance:
            found = compare_engines(module, arguments, opened, bisect=bisect, on_engine=say)
        if report is not None:
            _write_reports(found, opened, report, reduce_limit)
    print(json_module.dumps(found.to_json(), indent=2) if json else found)
    return DONE if found.is_equal else FOUND


def _write_reports(found: Comparison, engines: list[Engine], folder: Path, reduce_limit: float) -> None:
    """Writes a report on each finding; says where on standard error."""
    for number, (engine, judgement) in enumerate(zip(engines, found.judgements, strict=True)):
        if judgement.is_finding:
            place = folder / str(number)
            write_report(found, judgement, engine, place, reduce_limit)
            print(f"{engine.name}: {place / REPORT}", file=sys.stderr)
