"""tests.corpora: programs of a folder are checked, and each gets a verdict and a row."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.corpora import checking, run
from tests.corpora.making import folder_of

TEXT = """HloModule m
ENTRY e { x = f32[3] parameter(0) y = f32[3] exponential(x) ROOT r = (f32[3], f32[3]) tuple(y, x) }"""
X = np.array([0, 1, 2], np.float32)


def entry(folder: Path, name: str, *results: Any) -> run.Entry:
    """A program that is made, with the results that its framework gave."""
    place = folder_of(folder, "jax_libraries", name)
    place.mkdir()
    (place / "program").write_text(TEXT)
    (place / "made.json").write_text(json.dumps({"versions": {"flax": "1"}}))
    np.savez(place / "in.npz", in0=X)
    np.savez(place / "out.npz", **{f"out{i}": a for i, a in enumerate(results)})
    return run.Entry("jax_libraries", name, place)


def test_programs_have_folders_of_their_own(tmp_path: Path) -> None:
    found = run.entries(tmp_path, ())
    assert len({e.folder for e in found}) == len(found) > 200
    assert {e.family for e in found} == set(run.FAMILIES)
    assert [e.name for e in run.entries(tmp_path, ["keras_applications/VGG16"])] == ["VGG16", "VGG16 gradient"]
    with pytest.raises(SystemExit, match="there are no programs numpy"):
        run.entries(tmp_path, ["numpy"])


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's times are not measured."""

    def times(*_: Any) -> Any:
        raise hk.EvaluationError("no time")

    monkeypatch.setattr(checking.WorkerEngine, "times", times)


@pytest.mark.usefixtures("untimed")
def test_verdicts(tmp_path: Path) -> None:
    right, wrong, short = (entry(tmp_path, f"flax {n}", *r) for n, r in [
        ("cnn", (np.exp(X), X)), ("lstm", (np.exp(X) + 1, X)), ("gru", (X,)),
    ])  # fmt: skip
    for one in (right, wrong, short):
        checking.check(one.folder)
    assert [run.verdict(e) for e in (right, wrong, short)] == ["equal", "differs", "fails"]
    facts = right.facts
    assert facts is not None
    assert facts["instructions"] == 3
    assert facts["verifies"] is facts["compiled"] is facts["interpreter"] is True
    assert 0 <= facts["distance"] < 1e-6
    assert facts["xla_error"] == "no time"
    (wrong.folder / "made.json").write_text(json.dumps({"error": "TypeError: a`b"}))
    (short.folder / "made.json").write_text(json.dumps({"versions": {"flax": ""}, "absent": ["flax"]}))
    text = run.table(run.entries(tmp_path, ()))
    assert "3 programs: 1 equal, 1 not built, 1 not installed: flax. Versions: flax 1." in text
    assert "| flax cnn | 3 | yes | yes | yes | equal |" in text
    assert "- flax lstm: `TypeError: a'b`" in text


@pytest.mark.usefixtures("untimed")
def test_the_program_in_f64_says_whose_rounding_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_FLOPS", -1)
    one = entry(tmp_path, "flax cnn", np.exp(X) * np.float32(1.01), X)
    checking.check(one.folder)
    assert run.verdict(one) == "rounding"
    text = run.table(run.entries(tmp_path, ()))
    assert "- flax cnn: `from the program in f64: hlokit's result 0e+00, the framework's 1e-02`" in text


@pytest.mark.usefixtures("untimed")
def test_the_program_in_f64_finds_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = hk.compile

    def wrong_in_f32(module: hk.HloModule) -> Any:
        return compile_(hk.parse(TEXT.replace("exponential", "sine")) if "f32" in str(module) else module)

    monkeypatch.setattr(checking, "_FLOPS", -1)
    monkeypatch.setattr(checking.hk, "compile", wrong_in_f32)
    one = entry(tmp_path, "flax cnn", np.exp(X), X)
    checking.check(one.folder)
    assert run.verdict(one) == "differs"


def test_a_program_that_is_refused_and_one_that_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = entry(tmp_path, "flax cnn", np.exp(X), X)
    (one.folder / "program").write_text(TEXT.replace("f32[3] exp", "f32[4] exp"))
    checking.check(one.folder)
    assert run.verdict(one) == "fails"
    assert one.facts is not None
    assert "verifies: ParseError" in one.facts["errors"][0]
    (one.folder / "checked.jsonl").write_text('{"stage": "verifies"}\n{"verifies": true}\n')
    assert run.verdict(one) == "not run"  # and is run again
    (one.folder / "checked.jsonl").unlink()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    run.check(one, 5.0)
    assert one.facts == {"start": False, "errors": ["start: exit status 1"]}


def test_a_family_without_its_packages(tmp_path: Path) -> None:
    (one, _) = run.entries(tmp_path, ["keras_applications/VGG16"])
    run.make(sys.executable, tmp_path, [one], 60.0)
    if run.verdict(one) != "not run":
        assert run.verdict(one) == "not installed: keras"


@pytest.mark.parametrize(
    ("ours", "theirs", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0), ([1.0, 2.5], [1.0, 2.0], 0.25), ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.inf], [1.0, np.nan], np.inf), ([np.inf, 0], [-np.inf, 0], np.inf), ([0.0], [0.0], 0.0),
    ],
)  # fmt: skip
def test_distances(ours: list[float], theirs: list[float], apart: float) -> None:
    assert checking.apart(np.array(ours), np.array(theirs)) == apart


def test_integers_and_other_types_are_equal_or_not() -> None:
    assert checking.apart(np.array([1, 2]), np.array([1, 3])) == np.inf
    assert checking.apart(np.array([1.0], np.float32), np.array([1.0])) == np.inf
