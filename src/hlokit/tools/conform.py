"""hlokit conform: the conformance suite on an engine."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path

from hlokit.errors import ArgumentError
from hlokit.judge.conform.conforming import Conformance, cases_of
from hlokit.judge.conform.conforming import conform as run_suite
from hlokit.judge.conform.result import CaseResult
from hlokit.judge.engines.engine import CommandEngine, engine_of
from hlokit.tools.progress import progress
from hlokit.tools.status import DONE, FOUND, INTERRUPTED


def conform(
    *,
    engine: str | None = None,
    engine_cmd: str | None = None,
    text_cmd: str | None = None,
    rules: str | None = None,
    folder: Path | None = None,
    html: Path | None = None,
    junit: Path | None = None,
    json: bool = False,
    timeout: float = 60.0,
    memory: int = 0,
) -> int:
    """Runs the conformance suite on an engine: recorded programs with the values that the rules of the language give.

    Reports for each rule how many of its cases passed, failed or are not supported. A result passes if it has the
    recorded bits or differs only as rounding or a rule allows. Exit status 1 if a case failed. If the command is
    interrupted, it prints the report on the cases so far; with --folder, running it again continues.

    Parameters
    ----------
    engine:
        an engine of `hlokit compare`: compiled (the default), strict, passes, jaxlib, jaxlib@PYTHON, pjrt/NAME, ...
    engine_cmd:
        in place of an engine, a command that is run for each case, without a shell. {hlo} is replaced by the path of
        the program (a HloProto), {inputs} by that of an .npz with in0, in1, ..., {outputs} by that of the .npz that it
        must write, with out0, ...
    text_cmd:
        in addition to --engine-cmd, a command that reads HLO text, for the cases that test the reading and the
        rejection of texts. {hlo} is replaced by the path of a text, {printed} by that of the text of the same program
        that it must write; to reject a text it exits with a status above 0.
    rules:
        labels of rules, or prefixes of labels, separated by commas; by default all rules.
    folder:
        a folder for the results of the cases, from which an interrupted run continues.
    html:
        a file for the report as an HTML page.
    junit:
        a file for the report as JUnit's XML.
    json:
        print JSON.
    timeout:
        time limit of a case, in seconds.
    memory:
        limit of the engine's address space, in megabytes; 0: no limit.
    """
    if engine is not None and engine_cmd is not None:
        raise ArgumentError("conform: expected either --engine or --engine-cmd, not both")
    if text_cmd is not None and engine_cmd is None:
        raise ArgumentError("conform: --text-cmd requires --engine-cmd")
    if timeout <= 0 or memory < 0:
        raise ArgumentError("conform: --timeout must be greater than 0, --memory at least 0")
    chosen = None if rules is None else [name.strip() for name in rules.split(",") if name.strip()]
    opened = engine_of(engine or "compiled", timeout, memory << 20) if engine_cmd is None else CommandEngine(
        engine_cmd, timeout, 0, text_cmd
    )  # fmt: skip
    labels, wanted = cases_of(chosen)
    results: list[CaseResult] = []
    interrupted = False
    with opened, progress("cases", len(wanted)) as advance:

        def tell(known: int) -> None:
            kept = f", {known:,} kept from an earlier run" if known else ""
            print(f"{opened.name}: {len(wanted) - known:,} cases to run{kept}", file=sys.stderr, flush=True)

        def add(result: CaseResult) -> None:
            results.append(result)
            advance(len(results), text=result.case.rules[0])

        try:
            run_suite(opened, rules=chosen, folder=folder, on_begin=tell, on_result=add)
        except KeyboardInterrupt:
            interrupted = True
    report = Conformance(opened.name, tuple(results), labels)
    if html is not None and not interrupted:
        html.write_text(report.to_html(), encoding="utf-8")
    if junit is not None and not interrupted:
        junit.write_text(report.to_junit(), encoding="utf-8")
    print(json_module.dumps(report.to_json(), indent=2) if json else report)
    if interrupted:
        more = "with --folder the same command would continue" if folder is None else "the same command continues"
        print(f"interrupted after {len(results):,} of {len(wanted):,} cases; {more}", file=sys.stderr)
        return INTERRUPTED
    return DONE if report.is_conforming else FOUND
