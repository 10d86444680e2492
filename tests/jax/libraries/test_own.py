"""The command that runs the own tests of libraries: which tests it takes, and what its table says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.jax.libraries import own
from tests.jax.suite import logs


def snapshot(folder: Path, *tags: str) -> None:
    """A bare git repository in which the file tests/t.py names each tag."""
    work = folder / "work"
    (work / "tests").mkdir(parents=True)
    git = ["git", "-C", str(work), "-c", "user.name=t", "-c", "user.email=t@x.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for tag in tags:
        (work / "tests/t.py").write_text(tag)
        subprocess.run([*git, "add", "tests"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", tag], check=True)
        subprocess.run([*git, "tag", tag], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(folder / "repo")], check=True)


@pytest.mark.parametrize(("installed", "tag"), [("0.2.0", "v0.2.0"), ("0.2.7", "v0.2.0"), ("0.10.1", "v0.10.1")])
def test_tests_are_those_of_the_installed_version(
    installed: str, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(tmp_path / "patrick-kidger+lineax", "v0.1.0", "v0.2.0", "v0.10.1", "v0.11.0dev1", "v0.12.0")
    monkeypatch.setattr(own, "installed", lambda name: installed)
    assert (own.suite(tmp_path, tmp_path, "lineax") / "tests/t.py").read_text() == tag
    monkeypatch.setattr(own, "installed", lambda name: "0.0.1")
    with pytest.raises(SystemExit, match=r"no tag of lineax 0\.0\.1"):
        own.suite(tmp_path, tmp_path, "lineax")


def test_files_that_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "installed", lambda name: "1.0" if name in ("lineax", "optax") else "")
    assert own.chosen(["lineax", "optax:a_test.py"]) == [
        *(("lineax", file) for file in own.LIBRARIES["lineax"].files), ("optax", "a_test.py"),
    ]  # fmt: skip
    for name in ("netket", "nonsense"):
        with pytest.raises(SystemExit, match="not one of"):
            own.chosen([name])


def test_the_table_names_what_fails_on_hlokit_alone(tmp_path: Path) -> None:
    here, there = tmp_path / "lineax.t.hlokit.jsonl", tmp_path / "lineax.t.hlokit.there.jsonl"
    for log in (here, there):
        logs.append(log, process={"limit": 1, "hlokit": "x"})
    outcomes = {"passes": "passed", "skips": "skipped", "both": "failed", "alone": "failed", "hangs": logs.CUT_OFF}
    for name, outcome in outcomes.items():
        logs.append(here, id=f"t.py::{name}", outcome=outcome, text="x\nE   AssertionError: 1 != 2\n", seconds=1)
    logs.append(there, id="t.py::both", outcome="failed", text="", seconds=1)
    logs.append(there, id="t.py::alone", outcome="passed", text="", seconds=1)
    rows = own.table(tmp_path).splitlines()
    assert rows[2].endswith("| hlokit | 1, 1 not to the end | 5 | 1 | 1 | 1 | 1 | 1 |")
    assert rows[4:] == ["- lineax, hlokit: `t.py::alone`: AssertionError: 1 != 2"]


def test_rows_without_logs_stay_as_the_page_had_them(tmp_path: Path) -> None:
    failure = "- optax, cpu: `t.py::b`: AssertionError: 2 != 3"
    row = "| optax 0.2.8 | cpu | 1 | 2 | 1 | 0 | 0 | 0 | 1 |"
    before = "\n".join(["# Test results: JAX libraries", "", "| lineax 0.0.1 | hlokit | 9 | 9 | 9 | 0 | 0 | 0 | 0 |", row, "", failure])
    log = tmp_path / "lineax.t.hlokit.jsonl"
    logs.append(log, process={"limit": 1, "hlokit": "x"})
    logs.append(log, id="t.py::a", outcome="passed", text="", seconds=1)
    rows = own.table(tmp_path, before).splitlines()
    assert rows[2].endswith("| hlokit | 1, 1 not to the end | 1 | 1 | 0 | 0 | 0 | 0 |")
    assert rows[3:] == [row, "", failure]


def test_each_mode_chooses_hlokit_and_the_other_side_does_not(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("")
    platform, cpu = (own.OwnJob(tmp_path, tmp_path, "t.py", mode, "jax-md") for mode in ("hlokit", "cpu"))
    assert platform.environment(True)["JAX_PLATFORMS"] == "hlokit,cpu" and platform.environment(True)["JAX_ENABLE_X64"]
    assert cpu.environment(True)["HLOKIT_AS_CPU"] == "1"
    for job in (platform, cpu):
        there = job.environment(False)
        assert there["JAX_PLATFORMS"] == "cpu" and "HLOKIT_AS_CPU" not in there
