"""Flight recorders of several ranks, in one process here, and what `hlokit devices` says of their dumps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.devices import flight_recorder
from hlokit.devices.flight_recorder import COLLECTIVES, FlightRecorder
from hlokit.devices.flight_report import FlightReport, read_dumps, reports
from hlokit.interpreter.routes import Route
from tests.devices.programs import add, program
from tests.test_tools import command

MODULE = program(lambda b, x: hk.all_reduce(hk.all_gather(x, 0, 3), add), hk.f32[2])
INSTRUCTIONS = {instruction: k for k, instruction in enumerate(MODULE.entry.instructions)}
GATHER = next(i for i in INSTRUCTIONS if i.opcode == "all-gather")
REDUCE = next(i for i in INSTRUCTIONS if i.opcode == "all-reduce")


class Ranks:
    """Recorders of a world, and what each is in the midst of."""

    def __init__(self, folder: Path, size: int, homes: Sequence[int] | None = None, world: str = "w") -> None:
        self.homes = list(range(size)) if homes is None else list(homes)
        self.folder = folder
        self.ranks = [FlightRecorder(world, rank, size, str(folder)) for rank in range(size)]
        self.open = ExitStack()

    def begin(self, *ranks: int, program: str = "p") -> None:
        for rank in ranks:
            self.ranks[rank].begin(program, "step", self.homes, INSTRUCTIONS)

    def state(self, state: str, *ranks: int) -> None:
        for rank in ranks:
            self.ranks[rank].progress(state)

    def run(self, *ranks: int) -> None:
        self.begin(*ranks)
        self.state("running", *ranks)

    def enter(self, instruction: Any, *devices: int) -> None:
        """These come to it and stay there."""
        for device in devices:
            entry = self.ranks[self.homes[device]].collective(device, instruction, range(len(self.homes)), 8)
            self.open.enter_context(entry)

    def through(self, instruction: Any, *devices: int) -> None:
        for device in devices:
            with self.ranks[self.homes[device]].collective(device, instruction, range(len(self.homes)), 8) as entry:
                entry.met()

    def report(self, *ranks: int, failure: str = "") -> FlightReport:
        for rank in ranks:
            self.ranks[rank].fail(failure) if failure else self.ranks[rank].dump()
        (report,) = reports(read_dumps([self.folder]))
        self.open.close()
        return report


def test_a_rank_that_is_late(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.run(0, 1, 2)
    ranks.through(GATHER, 0, 1, 2)
    ranks.enter(REDUCE, 0, 2)
    report = ranks.report(0, 1, 2)
    assert [(wait.rank, wait.where, wait.ranks) for wait in report.waits] == [
        (0, REDUCE.name + _source(REDUCE), [1]), (2, REDUCE.name + _source(REDUCE), [1]),
    ]  # fmt: skip
    (finding,) = report.findings
    assert finding.startswith(f"ranks 0, 2 wait for rank 1 at {REDUCE.name}") and f"has left {GATHER.name}" in finding
    assert f"waits 0 ms at {REDUCE.name}" in report.states[0] and "for rank 1" in report.states[0]


def _source(instruction: Any) -> str:
    from hlokit.hlo.sources import source_lines

    found = source_lines(instruction)
    return f" ({found[0]})" if found else ""


def test_a_rank_that_left_no_dump(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.run(0, 1, 2)
    ranks.enter(GATHER, 0, 2)
    report = ranks.report(0, 2, failure="rank 1 is gone: its process ended")
    assert report.states[1] == "no dump"
    assert report.findings[0] == "ranks 0, 2 failed: rank 1 is gone: its process ended"
    assert "for rank 1 at" in report.findings[1] and "no dump of it" in report.findings[1]


def test_bytes_that_are_moved_with_a_rank_that_is_gone(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    entry = ranks.open.enter_context(ranks.ranks[0].collective(0, GATHER, [0, 1], 8))
    entry.met()
    report = ranks.report(0)
    assert [wait.ranks for wait in report.waits] == [[1]]


def test_a_rank_that_does_not_begin_or_end(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.run(0, 1, 2)
    ranks.state("over", 0, 1, 2)
    ranks.begin(0, 2)
    report = ranks.report(0, 1, 2)
    assert report.waits[0].where == "the start of run 2 of step" and report.waits[0].ranks == [1]
    assert "Rank 1: outside of a run; run 1 of step ended" in report.findings[0]
    ranks = Ranks(tmp_path / "end", 2)
    ranks.run(0, 1)
    ranks.state("ending", 0)
    report = ranks.report(0, 1)
    assert report.waits[0].where == "the end of run 1 of step" and "before its first collective" in report.findings[0]


def test_ranks_that_disagree_about_the_order(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.run(0, 1, 2)
    ranks.through(GATHER, 0, 1, 2)
    ranks.enter(REDUCE, 0, 2)
    ranks.enter(GATHER, 1)
    report = ranks.report(0, 1, 2)
    assert any(
        f"rank 0 and rank 1 disagree about the order: after {GATHER.name} rank 0 comes to {REDUCE.name}" in finding
        and f"rank 1 to {GATHER.name}, time 2 in this run" in finding
        for finding in report.findings
    ), report.findings
    assert report.findings[-1] == "ranks 0, 1, 2 wait for each other: none of them can continue"


def test_ranks_of_different_programs(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.begin(0, 2, program="machine code 0123456789abcdef")
    ranks.begin(1, program="other")
    report = ranks.report(0, 1, 2, failure="rank 1 runs another program than rank 0 [EXEC-2]")
    assert report.findings[0] == "run 1 is of different programs: ranks 0, 2: step [89abcdef]; rank 1: step [other]"


def test_devices_of_one_rank_wait_apart(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, homes=[0, 0, 1, 1])
    ranks.run(0, 1)
    ranks.enter(REDUCE, 0, 2)  # 1 and 3 compute: rank 1 waits, and holds up rank 0 nevertheless
    report = ranks.report(0, 1)
    assert [wait.node for wait in report.waits] == [(0, 0), (1, 2)]
    assert len(report.findings) == 2 and not any("each other" in finding for finding in report.findings)
    assert "wait for rank 0" in report.findings[0] or "waits for rank 0" in report.findings[0]


def test_a_sender_and_a_receiver(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    ranks.open.enter_context(ranks.ranks[0].transfer(0, REDUCE, Route(7, 1, 0), 4))
    report = ranks.report(0, 1)
    assert report.waits[0].ranks == [1]


def test_nothing_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    ranks.through(GATHER, 0, 1)
    ranks.state("ending", 0, 1)
    assert not ranks.report(0, 1).waits
    ranks.state("over", 0, 1)
    assert not ranks.report(0, 1).findings
    status, out, error = command(capsys, "devices", tmp_path)
    assert (status, error) == (0, "") and out.endswith("no rank waits for another that has not arrived\n")


def test_the_last_200_are_kept_and_order_is_seen_among_them(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    ranks.through(GATHER, *[0, 1] * 300)
    ranks.through(REDUCE, 0, 1)
    ranks.enter(GATHER, 0)
    ranks.enter(REDUCE, 1)
    report = ranks.report(0, 1)
    dump = json.loads((tmp_path / f"{report.world}_rank0.json").read_text())
    assert len(dump["collectives"]) == COLLECTIVES and dump["collectives"][-1]["turn"] == 301
    assert any(f"after {REDUCE.name} rank 0 comes to {GATHER.name}, time 301" in f for f in report.findings), report.findings


def test_the_first_failure_of_a_run_is_kept(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    ranks.ranks[1].dump()
    ranks.ranks[0].fail("first")
    ranks.enter(GATHER, 0)
    report = ranks.report(0, failure="second")
    assert report.findings == ["rank 0 failed: first"]
    ranks.begin(0)
    ranks.ranks[0].dump()
    assert not reports(read_dumps([tmp_path]))[0].findings[0].startswith("rank 0 failed")


def test_what_is_noticed_after_a_run_is_no_failure_of_it(tmp_path: Path) -> None:
    """A rank that leaves as soon as it is through, before this one has heard that the run is over."""
    ranks = Ranks(tmp_path, 2)
    ranks.run(0, 1)
    ranks.state("ending", 1)
    ranks.ranks[1].note("rank 0 has left")
    ranks.state("over", 1)
    ranks.ranks[1].fail("rank 0 has left")
    assert not list(tmp_path.iterdir())


def test_a_failure_shows_the_ranks_as_they_were_when_it_was_noted(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.run(0)
    ranks.enter(GATHER, 0)
    ranks.ranks[0].note("rank 1 is gone")
    ranks.open.close()  # the device leaves the collective, and the run ends
    ranks.state("ending", 0)
    ranks.ranks[0].fail("something else")
    ranks.ranks[0].dump()  # a signal later
    (report,) = reports(read_dumps([tmp_path]))
    assert report.findings[0] == "rank 0 failed: rank 1 is gone" and report.waits[0].ranks == [1]


def test_worlds_are_told_one_after_the_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = Ranks(tmp_path, 2, world="first"), Ranks(tmp_path, 1, world="second")
    for recorder in (*first.ranks, *second.ranks):
        recorder.dump()
    status, out, _ = command(capsys, "devices", tmp_path, "--json")
    assert status == 0 and [world["ranks"] for world in json.loads(out)] == [2, 1]


def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    FlightRecorder("w", 0, 1, str(tmp_path / "file")).dump()
    assert capsys.readouterr().err.startswith("flight recorder: ")


_BROKEN: dict[str, Callable[[Any], Any]] = {
    "not an object": lambda v: [v],
    "another format": lambda v: {**v, "format": "x"},
    "a field that is missing": lambda v: {k: f for k, f in v.items() if k != "runs"},
    "a rank out of range": lambda v: {**v, "rank": 7},
    "a number as text": lambda v: {**v, "time": "now"},
    "homes that are not integers": lambda v: {**v, "runs": [{**v["runs"][0], "homes": ["x"]}]},
    "no times": lambda v: {**v, "collectives": [{**v["collectives"][0], "times": []}]},
    "turns that are not triples": lambda v: {**v, "turns": [[1]]},
}


@pytest.mark.parametrize("change", _BROKEN)
def test_what_is_no_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path, change: str) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.run(0)
    ranks.through(GATHER, 0)
    ranks.ranks[0].dump()
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps(_BROKEN[change](json.loads(path.read_text()))))
    status, out, error = command(capsys, "devices", path)
    assert (status, out) == (2, "") and "not a dump of a flight recorder" in error


def test_files_that_are_missing_or_twice_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(capsys, "devices", tmp_path / "x.json")[0] == 2
    status, _, error = command(capsys, "devices", tmp_path)
    assert status == 2 and "no dumps" in error
    (tmp_path / "garbage.json").write_bytes(bytes(range(256)))
    assert command(capsys, "devices", tmp_path / "garbage.json")[0] == 2
    Ranks(tmp_path, 1).ranks[0].dump()
    (path,) = tmp_path.glob("*_rank*.json")
    status, _, error = command(capsys, "devices", path, path)
    assert status == 2 and "of the same rank, 0" in error


def test_homes_and_members_out_of_range_are_no_crash(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.run(0)
    ranks.enter(GATHER, 0)
    ranks.ranks[0].dump()
    (path,) = tmp_path.glob("*.json")
    facts = json.loads(path.read_text())
    facts["runs"][0]["homes"] = [5, -3]
    facts["collectives"][0]["members"] = [0, 1, -7, 2**70]
    path.write_text(json.dumps(facts))
    (report,) = reports(read_dumps([path]))
    assert report.findings


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(flight_recorder.VARIABLE, raising=False)
    FlightRecorder("w", 0, 1).dump()
    assert not list(tmp_path.iterdir())
