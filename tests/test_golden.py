"""hlokit does what real XLA did: a bundled sample of the golden cases, and with --golden DIR all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.cases import Case, golden_files, read_cases
from tests.golden.check import FAILED, check_case
from tests.golden.programs import BUNDLED, check_program, program_names, read_program
from tests.golden.run import run_lines
from tests.golden.sample import SAMPLE


@pytest.mark.parametrize("case", list(read_cases(SAMPLE)), ids=lambda case: f"{case.op}-{case.id}")
def test_sample(case: Case) -> None:
    failures = [verdict for verdict in check_case(case) if verdict.status == FAILED]
    assert not failures, "\n".join(f"{failure.route}: {failure.cause}\n    {failure.detail}" for failure in failures)


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_program(name: str) -> None:
    check_program(read_program(BUNDLED, name))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each golden family, one for each golden program."""
    folder: Path | None = metafunc.config.getoption("--golden")
    if "golden_family" in metafunc.fixturenames:
        families = [path.stem for path in golden_files(folder)] if folder and any(folder.glob("*.jsonl")) else []
        metafunc.parametrize("golden_family", [family for family in families if family != "collectives"])
    if "golden_program" in metafunc.fixturenames:
        listed = folder is not None and (folder / "programs" / "programs.json").exists()
        metafunc.parametrize("golden_program", program_names(folder / "programs") if folder and listed else [])


@pytest.mark.golden_full
def test_golden_family(golden: Path, golden_family: str) -> None:
    lines = (golden / f"{golden_family}.jsonl").read_text(encoding="utf-8").splitlines()
    failures = [verdict for verdict in run_lines(lines, ("builder", "text"), jobs=1) if verdict.status == FAILED]
    listed = [f"{failure.id} {failure.op} {failure.route}: {failure.cause}" for failure in failures]
    assert not listed, f"{len(listed)} failures\n" + "\n".join(listed[:50])


@pytest.mark.golden_full
def test_golden_program(golden: Path, golden_program: str) -> None:
    check_program(read_program(golden / "programs", golden_program))
