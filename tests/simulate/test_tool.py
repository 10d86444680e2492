"""hlokit simulate, as the command line has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlokit.tools.main import main

MODULE = """HloModule step
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[262144] parameter(0)
  g = f32[262144] multiply(x, x)
  ROOT sum = f32[262144] all-reduce(g), replica_groups={}, to_apply=add
}
"""
NETWORK = ("--topology", "ring:1024", "--bandwidth", "100GB/s", "--latency", "1us")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(MODULE)
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return int(exit.value.code or 0), captured.out, captured.err


def test_tables(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    status, shown, _ = command(capsys, "simulate", file, *NETWORK, "--algorithm", "ring")
    assert status == 0
    assert "step on ring:1024, 100GB/s, 1us: 2.067 ms, 1,024 replicas of 1 partition" in shown
    row = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["sum"])
    assert row == ["sum", "all-reduce", "ring", "1", "x", "1024", "1,048,576", "2.067", "ms", "1", "2.067", "ms"]
    assert "busiest of 1024 links" in shown and "critical path" in shown


def test_json(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    status, shown, _ = command(capsys, "simulate", file, *NETWORK, "--algorithm", "ring", "--json")
    facts = json.loads(shown)
    assert status == 0 and len(facts["device_seconds"]) == len(facts["links"]) == 1024
    assert facts["seconds"] == pytest.approx(2 * 1023 * (1e-6 + 2**20 / 1024 / 100e9))
    assert facts["collectives"][0]["algorithm"] == "ring"


def test_trace(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    status, _, _ = command(capsys, "simulate", file, *NETWORK, "--flops", "1TFLOPS", "--trace", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    assert status == 0
    assert {e["name"] for e in events if e["ph"] == "X" and e["pid"] == 1} == {"g", "sum"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topology", "star:4", "--bandwidth", "1", "--latency", "1"), "error: topology: 'star:4', expected ring:N"),
        (("--topology", "ring:4", "--bandwidth", "1m", "--latency", "1"), "error: bandwidth: '1m' is not a number"),
        ((*NETWORK, "--replicas", "7"), "error: step: 7 replicas of 1 partition, but ring:1024 has 1,024 devices"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], file: Path, arguments: tuple[str, ...], message: str) -> None:
    status, _, error = command(capsys, "simulate", file, *arguments)
    assert status == 2 and message in error
