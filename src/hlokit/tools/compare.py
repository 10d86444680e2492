"""hlokit compare: the same programs on several engines, and a verdict on each."""

from __future__ import annotations

import json as json_module
import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hlokit.api import verify
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.computation import counted
from hlokit.judge.compare.comparing import Comparison, compare_engines
from hlokit.judge.compare.report import REPORT, write_report
from hlokit.judge.compare.stages import compare_stages
from hlokit.judge.diff.folders import Stage, stages_in
from hlokit.judge.engines.engine import CommandEngine, Engine, engine_of
from hlokit.tools.files import loaded
from hlokit.tools.inputs import Inputs, arguments_for, arguments_of_devices
from hlokit.tools.progress import progress
from hlokit.tools.status import DONE, FOUND, message_of, say, status_of

_ENGINES = "passes,compiled,strict"


def compare(
    *files: Annotated[Path, Parameter(required=True)],
    engines: str | None = None,
    engine_cmd: str | None = None,
    input: Inputs = (),
    random: int | None = None,
    timeout: float = 60.0,
    memory: int = 0,
    bisect: Annotated[bool, Parameter(negative="--no-bisect")] = True,
    verdict_limit: float = math.inf,
    json: bool = False,
    report: Path | None = None,
    reduce_limit: float = 60.0,
) -> int:
    """Runs programs on engines, each in a separate process, and judges their results against the reference.

    A folder of XLA dumps (--xla_dump_to) stands for the first stage of each of its modules, the program before XLA's
    passes. With neither --engines nor --engine-cmd, all stages of each module run on the reference with the same
    arguments, and each is judged against the first, to find the pass that changed a result.

    Verdicts: equal (the same bits as the reference), allowed (a difference that rounding explains or a rule allows),
    wrong (with the first instruction whose value is wrong, or the pass that caused it), undecided, failed (an error, a
    crash, no result in time), unsupported. Exit status 1 if a verdict is wrong, undecided or failed.

    Parameters
    ----------
    files:
        one or more programs in any kind of file that hlokit reads (`-` is standard input), or folders of dumps.
    engines:
        names separated by commas: passes, compiled, compiled-1, strict, jaxlib (XLA's CPU client in this Python),
        jaxlib@PYTHON (in another Python), jaxlib:FLAGS (with these XLA_FLAGS, separated by spaces), pjrt/NAME (a
        plugin). The default is passes,compiled,strict.
    engine_cmd:
        a command that also runs the program; it is started without a shell. {hlo} is replaced by the path of the
        program (a HloProto), {inputs} by that of an .npz with in0, in1, ..., {outputs} by that of the .npz that it must
        write, with out0, ...
    input:
        the arguments: an .npz with an array for each parameter, by the parameters' names or as in0, in1, ... or arr_0,
        arr_1, ...; or values, one --input for each parameter: f32[4,8]=1, 's32[3]={1, 2, 3}'.
        For several devices an .npz with in0, in1, ..., first those of the first device, then those of the next.
    random:
        the seed of random arguments, normally distributed numbers and small integers; 0 if there is no `input`.
    timeout:
        time limit of a run, in seconds.
    memory:
        limit of an engine's address space, in megabytes; 0: no limit.
    bisect:
        search for the instruction or the pass that makes a result wrong, which runs the engines several times.
    verdict_limit:
        time limit of the reference's runs that a verdict needs, in seconds; a verdict that takes longer is undecided.
    json:
        print JSON.
    report:
        a folder for a report on each verdict that is wrong, undecided or failed: the smallest program that shows the
        fault, its arguments, and report.md, which is ready to file. For several programs, a folder for each in it.
    reduce_limit:
        time limit of the search for the smallest program, in seconds.
    """
    if min(timeout, verdict_limit) <= 0 or memory < 0:
        raise ArgumentError("compare: --timeout and --verdict-limit must be greater than 0, --memory at least 0")
    if len(files) == 1 and files[0].is_dir() and engines is None and engine_cmd is None:
        if input or report is not None:
            raise ArgumentError(f"compare --input, --report: give engines too, or one of the files in {files[0]}")
        return _compare_dump(files[0], 0 if random is None else random, timeout, memory << 20, json)
    programs = [program for file in files for program in _programs_in(file)]
    names = [name.strip() for name in (_ENGINES if engines is None else engines).split(",") if name.strip()]
    told: list[dict[str, Any]] = []
    status = DONE
    with ExitStack() as stack:
        opened: list[Engine] = [stack.enter_context(engine_of(n, timeout, memory << 20)) for n in names]
        if engine_cmd is not None:
            opened.append(stack.enter_context(CommandEngine(engine_cmd, timeout)))
        for number, (title, path) in enumerate(programs):
            try:
                found = _compared(path, input, random, opened, bisect, verdict_limit)
            except HlokitError as error:
                if len(programs) == 1:
                    raise
                error.file = str(path)
                say(message_of(error))
                status = max(status, status_of(error))
                continue
            if report is not None:
                _write_reports(found, opened, report / str(number) if len(programs) > 1 else report, reduce_limit)
            told.append({"program": str(path), "engines": found.to_json()})
            for judgement in () if json else found.judgements:
                print(f"{title}: {judgement}" if len(programs) > 1 else judgement, flush=True)
            status = max(status, DONE if found.is_equal else FOUND)
    if json:
        print(json_module.dumps(told if len(programs) > 1 else told[0]["engines"], indent=2))
    return status


def _programs_in(file: Path) -> list[tuple[str, Path]]:
    """The programs to compare, with their titles: the file, or the first stage of each module in a folder of dumps."""
    if not file.is_dir():
        return [(str(file), file)]
    return [(first.title, first.path) for first, *_ in stages_in(file)]


def _compared(
    path: Path, input: Inputs, random: int | None, engines: list[Engine], bisect: bool, verdict_limit: float
) -> Comparison:
    """The comparison of engines by one program."""
    module = loaded(path)
    verify(module)
    arguments = arguments_of_devices(module, input, 0 if random is None else random)
    told: list[str] = []

    def say_which(name: str) -> None:
        advance(len(told), text=name)
        told.append(name)

    with progress(module.name, len(engines) + 1) as advance:
        return compare_engines(
            module, arguments, engines, bisect=bisect, verdict_seconds=verdict_limit, on_engine=say_which
        )


def _write_reports(found: Comparison, engines: list[Engine], folder: Path, reduce_limit: float) -> None:
    """Writes a report on each finding, and its location to standard error."""
    for number, (engine, judgement) in enumerate(zip(engines, found.judgements, strict=True)):
        if judgement.is_finding:
            place = folder / str(number)
            write_report(found, judgement, engine, place, reduce_limit)
            print(f"{engine.name}: {place / REPORT}", file=sys.stderr)


def _compare_dump(folder: Path, random: int, timeout: float, memory: int, json: bool) -> int:
    """Compares the stages of each module in a folder with the first."""
    told: list[dict[str, Any]] = []
    status = DONE
    for first, *others in stages_in(folder):
        module = loaded(first.path)
        found = compare_stages(module, arguments_for(module, (), random), others, timeout, memory)
        told.append({"module": first.module, "first": str(first.path), "stages": found.to_json()})
        status = status if found.is_equal else FOUND
        for line in () if json else _lines_of(first, found):
            print(line)
    if json:
        print(json_module.dumps(told, indent=2))
    return status


def _lines_of(first: Stage, found: Comparison) -> Iterator[str]:
    """The report on a module: a summary of its stages, and each stage whose verdict differs from the previous one's."""
    counts = Counter(judgement.verdict for judgement in found.judgements)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    yield f"{first.title}: {counted(len(found.judgements), 'stage')} after it: {words}"
    before = "equal"
    for judgement in found.judgements:
        if judgement.verdict != before:
            yield "  " + str(judgement).replace("\n", "\n  ")
        before = judgement.verdict
