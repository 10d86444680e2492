"""`hk.conform` and `hlokit conform`: the suite's cases, and reports on right and wrong engines."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import hlokit as hk
from hlokit.files.arrays import leaves_of
from hlokit.judge.closeness.equality import differs
from hlokit.judge.closeness.spread import near
from hlokit.judge.conform import conforming
from hlokit.judge.conform.cases import ConformanceCase, cases
from hlokit.judge.engines.engine import CommandEngine, Engine, engine_of
from hlokit.judge.engines.outcome import Outcome
from hlokit.rules import rules
from hlokit.tools import conform
from tests.judge.test_compare import tool
from tests.judge.test_fuzz import run


def test_the_cases_are_what_the_reference_gives() -> None:
    suite = cases()
    assert len(suite) > 1000
    assert len({label for case in suite for label in case.rules}) > 200
    check(suite[::8])


def test_no_case_has_a_path_of_the_machine_that_recorded_it() -> None:
    texts = [case.text for case in cases()]
    assert [text for text in texts if re.search(r'"(/|[A-Za-z]:\\)', text) or "source_file" in text] == []
    assert any("metadata={stack_frame_id=1}" in text for text in texts)  # of a case about metadata


@pytest.mark.slow
def test_all_cases_are_what_the_reference_gives() -> None:
    check(cases())


def check(some: list[ConformanceCase]) -> None:
    for case in some:
        assert all(label in rules() for label in case.rules), case.name
        if case.kind == "refusal":
            with pytest.raises(hk.ParseError) as caught:
                hk.parse(case.text)
            assert f"[{case.rules[0]}]" in str(caught.value)
            continue
        assert str(hk.parse(case.text)) == case.text
        if case.kind == "text":
            continue
        found = tuple(map(np.asarray, leaves_of(hk.evaluate(case.module, *case.arguments))))
        if differs(found, case.expected):  # recorded of XLA, which rounds otherwise
            assert near(case.expected, found, case.module, case.arguments, 0) is None, case.name


def test_a_right_engine_conforms() -> None:
    report = hk.conform("strict", rules=["CLAMP", "DOTG-11", "RWIN-5"])
    assert report.is_conforming
    assert {label.rpartition("-")[0] for label in report.by_rule} == {"CLAMP", "DOTG", "RWIN"}
    assert report.counts()["failed"] == 0 < report.counts()["passed"]
    assert all(r.status == "passed" for r in report.by_rule["RWIN-5"])


def test_a_wrong_engine_fails_the_rules_that_it_breaks(tmp_path: Path) -> None:
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    with CommandEngine(tool(tmp_path, "clamp", "true(self, *a, **k) + a[1].dtype.type(1)")) as engine:
        report = hk.conform(engine, rules=["CLAMP-7", "SEL-10"])
    assert not report.is_conforming
    assert report.counts("CLAMP-7")["failed"] == len(report.by_rule["CLAMP-7"]) > 0
    page.write_text(report.to_html())
    assert '<tr id="CLAMP-7" class="failed">' in page.read_text()
    junit.write_text(report.to_junit())
    suites = {suite.get("name"): suite for suite in ElementTree.parse(junit).getroot()}
    suite = suites["CLAMP-7"]
    assert suite.get("failures") == suite.get("tests") == str(len(report.by_rule["CLAMP-7"]))
    failure = suite.find("testcase/failure")
    assert failure is not None and "CLAMP-7: " in str(failure.text) and "ENTRY" in str(failure.text)
    assert report.to_json()["rules"]["CLAMP-7"]["failed"] > 0


def test_collectives_run_on_four_devices() -> None:
    report = hk.conform("compiled", rules=["AGATHER", "A2A", "ARED", "CPERM"])
    assert report.is_conforming
    assert {r.case.module.replica_count for r in report.results if r.case.kind == "values"} == {4}
    assert report.counts()["passed"] > 20


class Lacking(Engine):
    """An engine that has no clamp."""

    def run(self, module: hk.HloModule, arguments: Sequence[object]) -> Outcome:
        if any(i.opcode == "clamp" for i in module.instructions()):
            return Outcome("unsupported", (), "clamp")
        return Outcome("ok", tuple(map(np.asarray, leaves_of(hk.evaluate(module, *arguments)))))


def test_what_an_engine_lacks_is_not_supported() -> None:
    with Lacking("lacking") as engine:
        report = hk.conform(engine, rules=["CLAMP-7", "RWIN-7"])
    assert report.is_conforming
    assert set(report.counts("CLAMP-7").items()) == {("passed", 0), ("failed", 0), ("not supported", 3)}
    assert report.counts("RWIN-7")["passed"] > 0
    skipped = ElementTree.fromstring(report.to_junit()).findall("testsuite[@name='CLAMP-7']/testcase/skipped")
    assert len(skipped) == 3


def test_the_command_writes_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    words = ["conform", "--engine", "passes", "--rules", "CLAMP,RWIN-5", "--html", page, "--junit", junit]
    assert run(*words) == 0
    assert "passes: " in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert ElementTree.parse(junit).getroot().tag == "testsuites"
    wrong = tool(tmp_path, "clamp", "true(self, *a, **k) + a[1].dtype.type(1)")
    assert run("conform", "--engine-cmd", wrong, "--rules", "CLAMP-7", "--json") == 1
    assert json.loads(capsys.readouterr().out)["rules"]["CLAMP-7"]["failed"] > 0


class Interrupted(Engine):
    """Gives the reference's results, until it is interrupted."""

    def __init__(self, most: int) -> None:
        super().__init__("tool")
        self.most, self.runs = most, 0

    def run(self, module: hk.HloModule, arguments: Sequence[object]) -> Outcome:
        self.runs += 1
        if self.runs > self.most:
            raise KeyboardInterrupt
        return Outcome("ok", tuple(map(np.asarray, leaves_of(hk.evaluate(module, *arguments)))))


def test_an_interrupted_run_reports_what_it_has_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, page = tmp_path / "kept", tmp_path / "page.html"
    words = ["conform", "--rules", "CLAMP", "--folder", kept, "--html", page]
    engine = Interrupted(6)  # a trivial program and five cases
    monkeypatch.setattr(conform, "engine_of", lambda *_: engine)
    assert run(*words) == 130
    out, err = capsys.readouterr()
    assert out.startswith("tool: 5 passed, of 5 cases of ")
    assert err == "tool: 16 cases to run\ninterrupted after 5 of 16 cases; the same command continues\n"
    assert not page.exists()
    with (kept / "conform.jsonl").open("a") as file:
        file.write('{"case": "a line that was not')  # as a process that is killed leaves it
    engine = Interrupted(100)
    assert run(*words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tool: 6 passed, 10 not supported, of 16 cases of 8 rules")
    assert (err, engine.runs) == ("tool: 11 cases to run, 5 kept from an earlier run\n", 2)  # a trivial program and one case
    assert "16 cases of 8 rules" in page.read_text()
    engine = Interrupted(0)  # nothing is left to run
    assert run(*words) == 0
    assert capsys.readouterr().out == out
    monkeypatch.undo()
    assert run(*words, "--engine", "strict") == 2
    assert "has results of the engine tool, not of strict; choose another folder" in capsys.readouterr().err


def test_kept_results_say_what_the_first_run_said(tmp_path: Path) -> None:
    command = tool(tmp_path, "clamp", "1 // 0")
    with CommandEngine(command) as engine:
        reports = [hk.conform(engine, rules=["CLAMP-2"], folder=tmp_path / "kept") for _ in range(2)]
    assert reports[0].to_json() == reports[1].to_json()
    assert str(reports[0]) == str(reports[1])
    assert reports[0].to_junit() == reports[1].to_junit()
    assert "ZeroDivisionError" in reports[0].to_junit()
    assert not reports[1].is_conforming


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "nothing"], "there is no engine 'nothing'"),
        (["--engine-cmd", "no-such-tool {hlo}"], "there is no command 'no-such-tool'"),
        (["--engine", "strict", "--engine-cmd", "true"], "expected either --engine or --engine-cmd"),
        (["--rules", "NOPE-1"], "there is no rule 'NOPE-1'"),
        (["--rules", "HMOD-1"], "the suite has no case of HMOD-1"),
        (["--timeout", "0"], "--timeout must be greater than 0"),
    ],
)
def test_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("conform", *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_command_that_fails_on_everything_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("conform", "--engine-cmd", "false", "--rules", "CLAMP") == 2
    assert "conform: false fails on every program, even that of a constant: error: exit status 1" in capsys.readouterr().err


def test_texts_are_refused_and_printed() -> None:
    """By hlokit itself, which the cases were recorded of."""
    kinds = {kind: [c for c in cases() if c.kind == kind] for kind in ("refusal", "text")}
    assert len(kinds["refusal"]) > 100
    assert len(kinds["text"]) > 30
    chosen = sorted({label for some in kinds.values() for case in some[::9] for label in case.rules})
    with engine_of("reference") as engine:
        report = hk.conform(engine, rules=chosen)
    texts = [r for r in report.results if r.case.kind != "values"]
    assert len(texts) > 30
    assert {r.status for r in texts} == {"passed"}


TEXT_TOOL = """
import sys, hlokit as hk
text = open(sys.argv[1]).read()
open(sys.argv[2], "w").write({printed})
"""


@pytest.mark.parametrize(
    ("printed", "refusal", "text"),
    [
        ("str(hk.parse(text))", "equal", "equal"), ("text", "wrong", "equal"), ("1 / 0", "equal", "failed"),
        ("'HloModule m'", "wrong", "wrong"), ("text.replace('negate', 'sine')", "wrong", "wrong"),
    ],
)  # fmt: skip
def test_a_command_that_reads_text(tmp_path: Path, printed: str, refusal: str, text: str) -> None:
    (tmp_path / "tool.py").write_text(TEXT_TOOL.format(printed=printed))
    command = f"{sys.executable} {tmp_path / 'tool.py'} {{hlo}} {{printed}}"
    legal = "HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }"
    with CommandEngine("true", text_command=command) as engine:
        for body, kind, verdict in ((legal.replace("f32[2] neg", "f32[3] neg"), "refusal", refusal), (legal, "text", text)):
            case = ConformanceCase("c", ("HINST-2",), body, (), (), kind)  # type: ignore[arg-type]
            assert conforming._judged(case, engine).verdict == verdict
    with CommandEngine("true") as engine:
        case = ConformanceCase("c", ("HINST-2",), legal, (), (), "text")
        assert conforming._judged(case, engine).verdict == "unsupported"


def test_jaxlib_reads_texts() -> None:
    some = [case for kind in ("refusal", "text") for case in [c for c in cases() if c.kind == kind][:3]]
    with engine_of("jaxlib") as engine:
        outcomes = [engine.read(case.text) for case in some]
    assert {o.status for o in outcomes} <= {"ok", "error", "unsupported"}
    assert any(o.status == "error" for o in outcomes[:3])
    assert any("ENTRY" in o.message for o in outcomes[3:])
