"""The command that runs JAX's tests, on a suite of a few tests of its own."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tests.jax.suite import logs, run, table

SUITE = """
import os, time, unittest

class Kinds(unittest.TestCase):
    def test_a_passes(self): assert os.environ["JAX_NUM_GENERATED_CASES"] == "1"
    def test_b_fails_everywhere(self): self.fail("everywhere")
    def test_c_fails_here(self): assert os.environ["JAX_PLATFORMS"] == "cpu", "the platform"
    def test_d_skips(self): self.skipTest("no")
    def test_e_dies_here(self):
        if os.environ["JAX_PLATFORMS"] != "cpu": os._exit(7)
    def test_f_hangs(self): time.sleep(float(open("seconds").read()))
    def test_g_passes_behind(self): pass
"""
BROKEN = "import no_such_module_of_this_world\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / f"jax-{importlib.metadata.version('jax')}"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "kinds_test.py").write_text(SUITE)
    (folder / "tests" / "broken_test.py").write_text(BROKEN)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "seconds").write_text("100")
    return folder


def outcomes(log: logs.Log) -> dict[str, str]:
    return {test.id.split("::test_")[-1]: test.outcome for test in log.tests.values()}


def test_outcomes_and_going_on(suite: Path) -> None:
    job = run.Job(suite, suite.parent, "kinds_test", "hlokit")
    run.run_job(job, limit=4, memory=2**40, again=False)
    expected = {
        "a_passes": "passed", "b_fails_everywhere": "failed", "c_fails_here": "failed", "d_skips": "skipped",
        "e_dies_here": logs.DIED, "f_hangs": logs.CUT_OFF, "g_passes_behind": "passed",
    }  # fmt: skip
    here = logs.read(job.log())
    assert outcomes(here) == expected and here.complete and len(here.processes) == 3
    assert "exit status 7" in here.tests["tests/kinds_test.py::Kinds::test_e_dies_here"].text
    assert "in test_f_hangs" in here.tests["tests/kinds_test.py::Kinds::test_f_hangs"].text  # where it hung
    there = logs.read(job.log(".there"))
    assert outcomes(there) == {
        "b_fails_everywhere": "failed", "c_fails_here": "passed", "e_dies_here": "passed", "f_hangs": logs.CUT_OFF,
    }  # fmt: skip
    alone = [test.id.split("::")[-1] for test in run.alone(here, there)]
    assert alone == ["test_c_fails_here", "test_e_dies_here"]

    before = job.log().read_text()
    run.run_job(job, limit=4, memory=2**40, again=False)
    assert job.log().read_text() == before  # nothing is left

    (suite / "seconds").write_text("0")
    run.run_job(job, limit=30, memory=2**40, again=False)  # what was cut off at a lower limit
    here = logs.read(job.log())
    assert outcomes(here) == expected | {"f_hangs": "passed"} and len(here.processes) == 4

    log = job.log().read_text().replace('"hlokit": "', '"hlokit": "of other code ')
    job.log().write_text(log.replace("Kinds::test_g_passes_behind", "Kinds::test_h"))  # g is new: it runs, too
    run.run_job(job, limit=30, memory=2**40, again=True)
    again = logs.read(job.log()).tests.values()
    newer = {test.id.split("::")[-1] for test in again if "other code" not in test.process["hlokit"]}
    assert newer == {"test_c_fails_here", "test_e_dies_here", "test_g_passes_behind"}


def test_a_file_goes_on_in_another_process_when_memory_is_used_up(suite: Path) -> None:
    (suite / "tests" / "small_test.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    job = run.Job(suite, suite.parent, "small_test", "hlokit")
    run.run_job(job, limit=30, memory=1, again=False)
    log = logs.read(job.log())
    assert outcomes(log) == {"a": "passed", "b": "passed"} and log.complete and len(log.processes) >= 2


def test_a_file_that_cannot_be_collected(suite: Path) -> None:
    job = run.Job(suite, suite.parent, "broken_test", "cpu")
    run.run_job(job, limit=30, memory=2**40, again=False)
    here, there = logs.read(job.log()), logs.read(job.log(".there"))
    assert [test.outcome for test in here.tests.values()] == ["failed"] and not run.alone(here, there)


def test_modules_that_the_package_lacks_are_found_beside_the_tests(suite: Path) -> None:
    (suite / "beside" / "jax" / "_src").mkdir(parents=True)
    (suite / "beside" / "jax" / "_src" / "of_tests.py").write_text("number = 5\n")
    (suite / "tests" / "user_test.py").write_text("from jax._src.of_tests import number\ndef test_a(): assert number == 5\n")
    job = run.Job(suite, suite.parent, "user_test", "hlokit")
    run.run_job(job, limit=60, memory=2**40, again=False)
    assert outcomes(logs.read(job.log())) == {"a": "passed"}


def test_page(suite: Path, tmp_path: Path) -> None:
    def written(where: str, **tests: str) -> None:
        path = run.Job(suite, tmp_path, "kinds_test", "hlokit").log(where)
        logs.append(path, process={"limit": 9.0, **run.versions()})
        for name, outcome in tests.items():
            logs.append(path, id=f"tests/kinds_test.py::{name}", begins=True)
            text = "the platform" if name == "b" else ""
            logs.append(path, id=f"tests/kinds_test.py::{name}", outcome=outcome, text=text, seconds=1)
        logs.append(path, ends=True)

    written("", a="passed", b="failed", c="failed", d="skipped", e=logs.DIED, f=logs.CUT_OFF, g="failed")
    written(".there", b="passed", c="failed", e="passed", f="passed", g="skipped")
    causes = tmp_path / "causes.toml"
    causes.write_text('[[cause]]\nname = "platforms by name"\ntext = "the platform"\n')
    runs, results = table.recorded(tmp_path / "results.json")  # there are none yet
    job = run.Job(suite, tmp_path, "kinds_test", "hlokit")
    table.take(runs, results, job, table.causes(causes))
    table.record(runs, results, tmp_path / "results.json")
    text = table.page(*table.recorded(tmp_path / "results.json"), run.files(suite))
    assert "| kinds_test | 1 | 2 | 1 | 1 | 1 | 1 |" in text
    assert "- not sorted yet: 1\n  - `kinds_test.py::e`" in text
    assert "- platforms by name: 1\n  - `kinds_test.py::b`" in text
    assert "Cut off:\n\n- `kinds_test.py::f`" in text
    assert "In place of JAX's CPU client: `broken_test`, `kinds_test`." in text


def test_results_of_other_files_and_of_whole_runs_stay(suite: Path) -> None:
    (suite / "tests" / "small_test.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    earlier = table.Row(passed=2, skipped=0, both=0, complete=True, alone={})
    runs, results = table.Runs(), {"hlokit": {"other_test": earlier, "small_test": earlier}}
    job = run.Job(suite, suite.parent, "small_test", "hlokit")
    logs.append(job.log(), process={"limit": 9.0, **run.versions()})
    logs.append(job.log(), id="tests/small_test.py::test_a", outcome="failed", text="", seconds=1)
    table.take(runs, results, job, [])
    assert results["hlokit"] == {"other_test": earlier, "small_test": earlier} and not runs.dates
    logs.append(job.log(), ends=True)
    table.take(runs, results, job, [])
    assert list(results["hlokit"]["small_test"].alone) == ["small_test.py::test_a"] and len(runs.commits) == 1


def test_causes_are_well_formed() -> None:
    known = table.causes()
    assert known and all(cause.tests.pattern or cause.text.pattern for cause in known)
    assert all(set(cause.modes) <= set(run.MODES) for cause in known)


def test_a_log_that_ends_in_the_middle_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.append(path, process={"limit": 1})
    logs.append(path, id="a", begins=True)
    logs.append(path, id="a", outcome="passed", text="", seconds=1)
    path.write_text(path.read_text() + '{"id": "b", "beg')
    assert list(logs.read(path).tests) == ["a"]
