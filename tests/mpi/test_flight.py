"""What the flight recorders of processes write, and what `hlokit devices` says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.launch import mpirun, needs_mpi
from tests.test_tools import command

pytestmark = needs_mpi


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOKIT_FLIGHT_RECORDER", str(tmp_path / "flight"))
    return tmp_path / "flight"


def told(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[int, Any]:
    capsys.readouterr()
    status, out, _ = command(capsys, "devices", folder, "--json")
    (world,) = json.loads(out)
    return status, world


def test_a_rank_that_is_killed(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", 1, "computing")
    status, world = told(capsys, folder)
    assert status == 1 and world["states"][1] == {"rank": 1, "state": "no dump"}, done.stdout + done.stderr
    assert world["findings"][0] == "ranks 0, 2 failed: rank 1 is gone: its process ended"
    held = [text for text in world["findings"][1:] if " for rank 1 at " in text]
    assert any("all-reduce" in text for text in held), world  # one of the two may be at the start of the run still
    waiting = [wait["rank"] for wait in world["waits"]]
    on_its_way = [state["rank"] for state in world["states"] if "before its first collective" in state["state"]]
    assert waiting and sorted(waiting + on_its_way) == [0, 2], world  # one that is late has not come to the collective
    assert all(1 in wait["for"] for wait in world["waits"]), world  # 0 and 2 wait for each other, too, if one is late


def test_ranks_that_end_before_they_run_the_next_program_without_one_that_is_killed(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", 1, "last")
    status, world = told(capsys, folder)
    assert status == 1, done.stdout + done.stderr
    assert world["findings"] == ["ranks 0, 2 failed: rank 1 is gone: its process ended"], world


def test_a_rank_that_is_late(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = mpirun(3, "-m", "tests.mpi.recorded", "late")
    assert sorted(re.findall(r"rank \d: done", done.stdout)) == [f"rank {k}: done" for k in range(3)], done.stderr
    status, world = told(capsys, folder)
    assert status == 1 and [(wait["rank"], wait["for"]) for wait in world["waits"]] == [(0, [1]), (2, [1])]
    (finding,) = world["findings"]
    assert finding.startswith("ranks 0, 2 wait for rank 1 at ") and "Rank 1: in run 1 of step: has left" in finding
    assert "recorded.py:" in finding  # the source lines of both collectives
    dump = json.loads(next(folder.glob("*_rank0.json")).read_text(encoding="utf-8"))
    assert [(c["state"], c["bytes"], c["members"]) for c in dump["collectives"]] == [
        ("left", 16, [0, 1, 2]), ("entered", 16, [0, 1, 2]),
    ]  # fmt: skip
    assert dump["failure"] == ""


def test_ranks_that_disagree_about_the_order(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = mpirun(2, "-m", "tests.mpi.recorded", "order")
    assert done.stdout.count("deadlock: no device can continue") == 2, done.stdout + done.stderr
    status, world = told(capsys, folder)
    assert status == 1
    assert "failed: deadlock: no device can continue" in world["findings"][0], world
    assert any("rank 0 and rank 1 disagree about the order: rank 0 comes to" in text for text in world["findings"]), world
    assert world["findings"][-1] == "ranks 0, 1 wait for each other: none of them can continue"


def test_ranks_of_different_programs(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = mpirun(3, "-m", "tests.mpi.recorded", "programs")
    assert done.stdout.count("rank 1 runs another program than rank 0") == 3, done.stdout + done.stderr
    status, world = told(capsys, folder)
    assert status == 1 and "run 1 is of different programs: ranks 0, 2: step [" in world["findings"][0], world


@pytest.mark.slow
def test_a_rank_that_fails(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    done = mpirun(3, "-m", "tests.mpi.recorded", "failing")
    assert done.stdout.count("no more data") == 3, done.stdout + done.stderr
    status, world = told(capsys, folder)
    assert status == 1 and "no more data" in world["findings"][0] and "ranks 0, 1, 2 failed" in world["findings"][0]
