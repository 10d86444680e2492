"""hlokit compare: the same program on several engines, and a verdict on each."""

from __future__ import annotations

import json as json_module
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hlokit.api import verify
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import counted
from hlokit.judge.compare.comparing import Comparison, compare_engines
from hlokit.judge.compare.report import REPORT, write_report
from hlokit.judge.compare.stages import compare_stages
from hlokit.judge.diff.folders import Stage, stages_in
from hlokit.judge.engines.engine import CommandEngine, Engine, engine_of
from hlokit.tools.files import loaded
from hlokit.tools.inputs import arguments_for, arguments_of_devices
from hlokit.tools.progress import progress
from hlokit.tools.status import DONE, FOUND

_ENGINES = "passes,compiled,strict"


def compare(
    file: Path,
    *,
    engines: str | None = None,
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

    Of a folder of XLA's dumps (--xla_dump_to, --xla_dump_hlo_pass_re) the stages of each module run on the reference
    with the same arguments, and are judged by the first: which pass changed a result.

    Verdicts: equal (the reference's bits), allowed (no further off than rounding may change it), wrong (with the first
    instruction whose value is wrong, or the pass that made it so), undecided, failed (an error, a crash, no result in
    time), unsupported. Exit status 1 if a result is wrong, undecided or missing.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads (`-` is the standard input), or a folder of dumps.
    engines:
        with commas between them: passes, compiled, compiled-1, strict, jaxlib (XLA's CPU client of this Python),
        jaxlib@PYTHON (of another Python), jaxlib:FLAGS (with these XLA_FLAGS, blanks between them), pjrt/NAME (a
        plugin). Without it passes,compiled,strict.
    engine_cmd:
        a command that is run for the program as well, without a shell: {hlo} in it is the name of the program (a
        HloProto), {inputs} of an .npz with in0, in1, ..., {outputs} of the .npz that it is to write, with out0, ...
    input:
        an .npz with the arguments, by the names of the parameters or as arr_0, arr_1, ...; of several devices in0, in1,
        ..., those of the first, then those of the next.
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
    if timeout <= 0 or memory < 0:
        raise ArgumentError("compare: --timeout takes seconds above 0, --memory megabytes of at least 0")
    if file.is_dir():
        given = {"--engines": engines, "--engine-cmd": engine_cmd, "--report": report, "--input": input}
        said = ", ".join(name for name, value in given.items() if value is not None)
        if said:
            raise ArgumentError(
                f"compare {said}: {file} is a folder, whose stages run on the reference alone; give one of its files"
            )
        return _compare_dump(file, 0 if random is None else random, timeout, memory << 20, json)
    module = loaded(file)
    verify(module)
    arguments = arguments_of_devices(module, input, random if random is not None or input is not None else 0)
    names = [name.strip() for name in (_ENGINES if engines is None else engines).split(",") if name.strip()]
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


def _compare_dump(folder: Path, random: int, timeout: float, memory: int, json: bool) -> int:
    """Compares the stages of each module in a folder with the first."""
    told: list[dict[str, Any]] = []
    status = DONE
    for first, *others in stages_in(folder):
        module = loaded(first.path)
        found = compare_stages(module, arguments_for(module, None, random), others, timeout, memory)
        told.append({"module": first.module, "first": str(first.path), "stages": found.to_json()})
        status = status if found.is_equal else FOUND
        for line in () if json else _lines_of(first, found):
            print(line)
    if json:
        print(json_module.dumps(told, indent=2))
    return status


def _lines_of(first: Stage, found: Comparison) -> Iterator[str]:
    """The report on a module: how its stages did, and each whose verdict is another than the one before's."""
    counts = Counter(judgement.verdict for judgement in found.judgements)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    yield f"{first.title}: {counted(len(found.judgements), 'stage')} after it: {words}"
    before = "equal"
    for judgement in found.judgements:
        if judgement.verdict != before:
            yield "  " + str(judgement).replace("\n", "\n  ")
        before = judgement.verdict
