"""docs/findings: each of the programs shows on jaxlib what its report says, if this jaxlib is the one that it is of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

import hlokit as hk
from hlokit.files.arrays import arguments_from_arrays, arrays_in
from hlokit.judge.compare.comparing import kind_of
from hlokit.judge.engines.engine import Engine, engine_of
from tests.judge.findings import FINDINGS, FOLDER, judged

RECORD = json.loads((FOLDER / "findings.json").read_text(encoding="utf-8"))
ENTRIES: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in RECORD["findings"]}
QUICK = [f.name for f in FINDINGS if ENTRIES[f.name]["verdict"] == "wrong"]
SLOW = [f.name for f in FINDINGS if ENTRIES[f.name]["verdict"] != "wrong"]
of_this_jaxlib = pytest.mark.skipif(
    metadata.version("jaxlib") != RECORD["jaxlib"], reason=f"the reports are of jaxlib {RECORD['jaxlib']}"
)


@pytest.fixture(scope="module")
def jaxlib() -> Iterator[Engine]:
    with engine_of("jaxlib", 60.0) as engine:
        yield engine


def check(name: str, engine: Engine) -> None:
    finding = next(f for f in FINDINGS if f.name == name)
    _, judgement = judged(finding, engine)
    assert judgement.verdict == ENTRIES[name]["verdict"]
    if ENTRIES[name]["message"].startswith("crash: "):  # the signal and what is printed differ from run to run
        assert judgement.outcome.status == "crash"
    else:
        assert kind_of(judgement.message) == ENTRIES[name]["message"]


@of_this_jaxlib
@pytest.mark.parametrize("name", QUICK)
def test_what_jaxlib_computes_otherwise(name: str, jaxlib: Engine) -> None:
    check(name, jaxlib)


@of_this_jaxlib
@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_what_jaxlib_crashes_on_or_refuses(name: str, jaxlib: Engine) -> None:
    check(name, jaxlib)


def test_at_least_twenty_and_each_is_a_page() -> None:
    assert len(ENTRIES) == len(FINDINGS) >= 20
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    for finding in FINDINGS:
        folder = FOLDER / finding.name
        module = hk.load(folder / "program.hlo")
        assert module.to_text("short_parsable") == finding.module.to_text("short_parsable")
        given = arguments_from_arrays(module, arrays_in((folder / "arguments.npz").read_bytes()))
        assert [g.tobytes() for g in given] == [a.tobytes() for a in finding.given()]
        report = (folder / "report.md").read_text(encoding="utf-8")
        assert "hlokit compare program.hlo --input arguments.npz --engines jaxlib" in report
        assert all(f"- {label}: " in report for label in ENTRIES[finding.name]["rules"])
        assert f"({finding.name}/report.md)" in index
