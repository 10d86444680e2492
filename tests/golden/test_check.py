"""The judge and the command, with a library made to be wrong in one way at a time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.golden import check
from tests.golden.cases import decode_case, encode_array
from tests.golden.check import FAILED, IGNORED, PASSED, Verdict, check_case
from tests.golden.run import cause_lines, count_lines, generic_cause, main

HLO = "HloModule fake"
OK: dict[str, Any] = {
    "id": "fake-1", "family": "fake", "op": "Neg", "kind": "ok", "origin": "valid", "tags": [],
    "program": {"params": ["f32[1]"], "steps": [{"op": "Neg", "args": {"arg": "%p0"}}], "root": "%s0"},
    "inputs": [encode_array(np.array([1], np.float32))], "outputs": [encode_array(np.array([-1], np.float32))],
    "tolerance": [{"class": "bits"}], "program_shape": "(parameter: f32[1]) -> f32[1]", "hlo": HLO,
}  # fmt: skip
REJECT = OK | {"kind": "reject", "hlo": None, "outputs": None, "error": {"stage": "build", "message": "XLA: no"}}
BUILD_ONLY = OK | {"kind": "build_only", "outputs": None, "tolerance": None}


class HlokitError(Exception):
    pass


class Library(ModuleType):
    """Negates, as the cases want; `wrong` replaces functions by others."""

    def __init__(self, **wrong: Callable[..., Any]) -> None:
        super().__init__("hlokit")
        self.HlokitError = HlokitError
        self.Builder = lambda name: self
        self.parameter = self.neg = lambda *arguments: None
        self.build = lambda root: Module("f32[1]", HLO)
        self.parse = lambda text: Module("f32[1]", text)
        self.parse_shape = Shape
        self.evaluate = lambda module, value: -value
        self.__dict__.update(wrong)


class Shape:
    def __init__(self, text: str) -> None:
        self.logical = sys.intern(text)


class Module:
    def __init__(self, shape: str, text: str) -> None:
        self.entry = SimpleNamespace(root=SimpleNamespace(shape=Shape(shape)))
        self.text = text

    def __str__(self) -> str:
        return self.text


def raises(error: Exception) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    return function


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Verdict]]:
    def run(record: dict[str, Any], seconds: float = 60, **wrong: Callable[..., Any]) -> list[Verdict]:
        monkeypatch.setitem(sys.modules, "hlokit", Library(**wrong))
        return check_case(decode_case(record), seconds=seconds)

    return run


Judge = Callable[..., list[Verdict]]


def summary(verdicts: list[Verdict]) -> list[tuple[str, str]]:
    return [(verdict.status, verdict.cause) for verdict in verdicts]


def test_right_library_passes_on_both_routes(judge: Judge) -> None:
    assert [(v.route, v.status, v.cause) for v in judge(OK)] == [("builder", PASSED, ""), ("text", PASSED, "")]
    assert [(v.route, v.status) for v in judge(BUILD_ONLY)] == [("builder", PASSED), ("text", PASSED)]
    assert summary(judge(OK | {"hlo": None})) == [(PASSED, "")]


def test_wrong_value(judge: Judge) -> None:
    cause = "output 0 (bits): 1 of 1 differ, first at [0]: got 1.0, want -1.0"
    assert summary(judge(OK, evaluate=lambda module, value: value)) == [(FAILED, cause)] * 2
    for tag in ("implementation_defined", "differs_in_newer_xla", "xla_defect"):
        verdicts = judge(OK | {"tags": [tag]}, evaluate=lambda module, value: value)
        assert summary(verdicts) == [(IGNORED, cause)] * 2


def test_case_that_xla_got_wrong(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.XLA_WRONG, "fake-1", "NEG-1: no")
    assert {v.status for v in judge(OK, evaluate=lambda module, value: value)} == {IGNORED}


def test_build_only_is_not_evaluated(judge: Judge) -> None:
    assert {v.status for v in judge(BUILD_ONLY, evaluate=raises(ValueError("called")))} == {PASSED}


@pytest.mark.parametrize("record", [OK, BUILD_ONLY])
def test_wrong_shape(judge: Judge, record: dict[str, Any]) -> None:
    verdicts = judge(record, build=lambda root: Module("f32[2]", HLO))
    assert summary(verdicts) == [(FAILED, "result shape: got f32[2], want f32[1]"), (PASSED, "")]


def test_round_trip_must_give_the_same_bytes(judge: Judge) -> None:
    verdicts = judge(OK, parse=lambda text: Module("f32[1]", text + " "))
    assert [v.status for v in verdicts] == [FAILED, FAILED]
    assert verdicts[0].cause == "round trip: 'HloModule fake' became 'HloModule fake'"
    verdicts = judge(OK, parse=raises(HlokitError("line 1\nmore")))
    assert summary(verdicts) == [(FAILED, "round trip: HlokitError: line 1"), (FAILED, "HlokitError: line 1")]


def test_unexpected_exception_fails_even_where_the_result_is_open(judge: Judge) -> None:
    open_case = OK | {"tags": ["implementation_defined"]}
    assert {v.status for v in judge(open_case, evaluate=raises(HlokitError("no")))} == {IGNORED}
    verdicts = judge(open_case, evaluate=raises(IndexError("3")))
    assert summary(verdicts) == [(FAILED, "IndexError: 3")] * 2
    assert "test_check.py" in verdicts[0].detail


def test_refusal(judge: Judge) -> None:
    assert summary(judge(REJECT, neg=raises(HlokitError("no")))) == [(PASSED, "")]
    assert summary(judge(REJECT, build=raises(HlokitError("no")))) == [(PASSED, "")]
    assert summary(judge(REJECT)) == [(FAILED, "accepted, XLA refuses: XLA: no")]
    assert summary(judge(REJECT, neg=raises(TypeError("no")))) == [(FAILED, "TypeError: no")]
    assert summary(judge(REJECT, evaluate=raises(HlokitError("too late")))) == [
        (FAILED, "accepted, XLA refuses: XLA: no")
    ]


def test_refusal_by_stage(judge: Judge) -> None:
    crash = REJECT | {"error": {"stage": "crash", "message": ""}}
    assert summary(judge(crash, evaluate=raises(HlokitError("late, but in time")))) == [(PASSED, "")]
    assert summary(judge(crash)) == [(FAILED, "accepted, XLA refuses: crash")]
    compiled = REJECT | {"error": {"stage": "compile", "message": ""}}
    assert judge(compiled)[0].status == IGNORED
    assert judge(compiled, neg=raises(HlokitError("no")))[0].status == IGNORED
    assert judge(compiled, neg=raises(KeyError("no")))[0].status == FAILED


def test_case_that_never_ends(judge: Judge) -> None:
    verdicts = judge(OK, seconds=0.05, evaluate=lambda *_: time.sleep(5))
    assert summary(verdicts) == [(FAILED, "takes more than 0.05 s")] * 2


# -- the command


def verdict(status: str, cause: str = "", route: str = "builder", op: str = "Neg") -> Verdict:
    return Verdict("fake-1", "fake", op, "ok", route, status, cause, "a.py:1 f")


def test_causes_are_grouped_without_their_values() -> None:
    first, second = "output 0 (bits): 1 of 6 differ, first at [0]", "output 1 (close): 3 of 3 differ, first at [2]"
    assert generic_cause(first) == generic_cause(second)
    assert generic_cause("ShapeError: found f32[2,3]{1,0}") == generic_cause("ShapeError: found s8[]")
    assert generic_cause("ShapeError: a") != generic_cause("ShapeError: b")
    lines = cause_lines([verdict(FAILED, first), verdict(FAILED, "x", op="Abs"), verdict(FAILED, second, "text")])
    assert lines[0] == f"    2  {first}"
    assert lines[1] == "       [Neg:2] builder+text, e.g. fake-1 a.py:1 f"
    assert lines[2] == "    1  x"


def test_counts() -> None:
    lines = count_lines([verdict(PASSED), verdict(PASSED), verdict(FAILED), verdict(IGNORED, route="text")])
    assert [line.split() for line in lines[1:]] == [["fake", *"210001"], ["total", *"210001"]]


def test_status_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    arguments = ["--golden", str(tmp_path), "--jobs", "1", "--failures", str(tmp_path / "out.json")]
    assert main(["--golden", str(tmp_path / "none")]) == 2
    assert main(arguments) == 2
    (tmp_path / "fake.jsonl").write_text(json.dumps(OK) + "\n" + json.dumps(REJECT | {"id": "fake-2"}) + "\n")
    assert main([*arguments, "--family", "other"]) == 2
    assert main([*arguments, "--id", "other-1"]) == 2
    monkeypatch.setitem(sys.modules, "hlokit", Library())
    assert main(arguments) == 1
    assert [record["id"] for record in json.loads((tmp_path / "out.json").read_text())] == ["fake-2"]
    assert main([*arguments, "--id", "fake-1"]) == 0
    assert "accepted, XLA refuses" in capsys.readouterr().out
