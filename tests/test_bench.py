"""The benchmark's own parts: the list of programs, the stored lowered texts, the report. Nothing is timed."""

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from bench import busy, goals
from bench import report as reporting
from bench.compile_profile import COLUMNS
from bench.limits import Limits
from bench.lower import FOLDER, stored_text
from bench.process import Failed, Process
from bench.programs import BY_NAME, CATEGORIES, PROGRAMS, named, select
from bench.programs.program import Program, aligned
from bench.report import Report, Row, Timing
from bench.results import apart, excess, load, store
from bench.worker import Worker
from bench.workloads import bits
from bench.workloads import report as workloads
from bench.workloads.__main__ import taken
from bench.workloads.loop import Loop
from bench.workloads.turn import NAMES
from docs import chart

SMALL = 1 << 16  # only programs of few arguments' elements are drawn here


def entry_parameters(text: str) -> list[tuple[str, str]]:
    """(element type, dimensions) of each parameter, from the module's first line."""
    layout = text.split("\n", 1)[0].partition("entry_computation_layout={(")[2].partition(")->")[0]
    return re.findall(r"(\w+)\[([\d,]*)\]", layout)


def is_small(program: Program) -> bool:
    dimensions = [dims for _, dims in entry_parameters(stored_text(program.name))]
    return sum(math.prod(map(int, dims.split(","))) if dims else 1 for dims in dimensions) <= SMALL


def test_names_are_unique_and_every_category_has_a_quick_program() -> None:
    assert len(BY_NAME) == len(PROGRAMS) == 118
    assert {program.category for program in select(quick=True)} == set(CATEGORIES)
    assert set(reporting.read_notes()) <= set(BY_NAME)


def test_slowdowns_are_relative_to_the_time_alone_and_come_worst_first() -> None:
    def row(name: str, hlokit: float, xla: float) -> busy.Row:
        times = {condition: {"hlokit": [2.0, 1.0, 3.0], "xla": [4.0]} for condition in busy.CONDITIONS}
        times["one busy"] = {"hlokit": [hlokit], "xla": [xla]}
        return busy.Row(name, times)

    good, bad = row("good", 2.0, 8.0), row("bad", 6.0, 4.0)
    assert (good.worst, bad.worst) == (1.0, 3.0) and good.relative("one busy") == 0.5
    table = busy.csv_text([good, busy.Row("lost", failed="no answer")]).splitlines()
    assert len(table) == 1 + len(busy.CONDITIONS) and table[1] == "good,alone,2,4,2"
    lines = busy.markdown([good, bad, busy.Row("lost", failed="no answer")]).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| bad", "| good", "| lost"]
    assert {len(line.split(" | ")) for line in lines[:4]} == {13}
    assert "at most XLA's on 1 of 2 rows" in lines[6] and "the worst 3.00" in lines[6]


def test_the_steps_of_training_loops_are_programs() -> None:
    pytest.importorskip("jax")
    program = named("training/mlp")
    arguments = program.draw()
    results = program.function(*arguments)
    assert len(results) == len(program.donate) + 1 == len(arguments) - 1
    assert np.isfinite(results[-1]) and all(a.shape == r.shape for a, r in zip(arguments[:-2], results))


def test_select() -> None:
    assert [program.name for program in select("gemm_tiny")] == ["gemm_tiny_32"]
    assert {program.category for program in select(categories=("fft", "sort"))} == {"fft", "sort"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_is_well_formed(program: Program) -> None:
    assert program.category in CATEGORIES
    assert program.peak in Limits().peaks
    assert program.flops >= 0 and program.vector_ops >= 0
    parameters = entry_parameters(stored_text(program.name))
    assert all(0 <= number < len(parameters) for number in program.donate)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if is_small(p)], ids=lambda program: program.name)
def test_arguments_are_drawn_alike(program: Program) -> None:
    parameters = entry_parameters(stored_text(program.name))
    drawn = program.draw()
    assert [",".join(map(str, value.shape)) for value in drawn] == [dims for _, dims in parameters]
    assert all(np.array_equal(a, b) for a, b in zip(drawn, program.draw()))


def test_a_stored_text_for_each_program_and_no_other() -> None:
    assert {path.name.removesuffix(".hlo.gz") for path in FOLDER.glob("*.hlo.gz")} == set(BY_NAME)


@pytest.mark.parametrize("name", ["mlp_train_step_b128", "life_2048_10it", "threefry_bits_4M", "eigh_256"])
def test_stored_texts_are_read(name: str) -> None:
    assert hk.verify(hk.parse(stored_text(name))) is None


def test_aligned() -> None:
    value = aligned(np.arange(5, dtype=np.int16))
    assert value.ctypes.data % 64 == 0 and value.tolist() == [0, 1, 2, 3, 4]
    assert aligned(np.float32(3.0)).shape == ()


def test_floors() -> None:
    limits = Limits()
    exp, gemm, copied = BY_NAME["exp_4M"], BY_NAME["gemm_f32_1024"], BY_NAME["copy_16M"]
    assert limits.floor_ms(exp, 1 << 24, 1 << 24) == (pytest.approx(0.506, rel=1e-2), "vector")
    assert limits.floor_ms(gemm, 2 << 22, 1 << 22) == (pytest.approx(9.34, rel=1e-2), "arithmetic")
    assert limits.floor_ms(copied, 1 << 26, 1 << 26) == (pytest.approx(1.84, rel=1e-2), "memory")
    assert limits.bandwidth(1 << 26, 4) == limits.memory_read


def test_results_are_compared_by_type(tmp_path) -> None:
    program = BY_NAME["exp_4M"]
    expected = [np.array([1.0, np.nan, np.inf], np.float32), np.array([1, 2])]
    store(expected, tmp_path)
    assert excess(program, expected, load(tmp_path)) == 0
    assert excess(program, [expected[0].astype(np.float64), expected[1]], expected) == math.inf
    assert excess(program, [expected[0], np.array([1, 3])], expected) == math.inf
    assert apart(np.float32([1.0, 2.0001]), np.float32([1.0, 2.0])) == pytest.approx(0.25, rel=0.01)
    assert apart(np.float32([np.nan, 2.0]), np.float32([1.0, 2.0])) == math.inf
    assert apart(np.float32([np.inf, 2.0]), np.float32([-np.inf, 2.0])) == math.inf


@pytest.mark.parametrize("name", ["tiny_add_1elt", "gemm_tiny_32", "dyn_update_slice_donated"])
def test_a_worker_compares_and_samples(name: str, tmp_path, monkeypatch) -> None:
    program = BY_NAME[name]
    monkeypatch.setattr(hk, "compile", lambda module, donate=(): lambda *arguments: hk.evaluate(module, *arguments))
    expected = hk.evaluate(hk.parse(stored_text(name)), *program.draw())
    store([np.asarray(expected)], tmp_path / "expected")
    store(program.draw(), tmp_path / "arguments")
    (tmp_path / "hlo").write_text(stored_text(name))

    worker = Worker("hlokit")
    worker.load(name, str(tmp_path / "arguments"))
    assert worker.compile(str(tmp_path / "hlo"))["seconds"] > 0
    assert worker.first(compare=str(tmp_path / "expected")) == {"bytes_out": expected.nbytes, "error": 0.0}
    assert len(worker.sample(seconds=0.0, least=2)["times_ms"]) == 2
    assert worker.drop() == {} and worker.engine is None


def test_a_worker_that_fails_or_dies_is_reported_and_another_takes_its_place(tmp_path) -> None:
    arguments = str(tmp_path / "arguments")
    store(BY_NAME["tiny_add_1elt"].draw(), tmp_path / "arguments")
    process = Process("numpy", tmp_path / "log")
    try:
        process.send(do="load", program="tiny_add_1elt", arguments=arguments)
        assert process.reply(20) == {"hlo_text": None}
        process.send(do="load", program="erf_4M", arguments=arguments)
        with pytest.raises(Failed, match="not said in NumPy") as failed:
            process.reply(20)
        assert failed.value.absent
        process.child.kill()
        process.send(do="drop")
        with pytest.raises(Failed, match="ended with code -9"):
            process.reply(20)
        process.send(do="load", program="tiny_add_1elt", arguments=arguments)
        assert process.reply(20) == {"hlo_text": None}
    finally:
        process.stop()


def synthetic() -> Report:
    rows = [
        Row("sort", "fast", 0.5, "memory", {"xla": Timing([8.0, 9.0, 10.0], [20.0]), "xla-tunables": Timing([4.0], [30.0]),
            "hlokit": Timing([1.0], [10.0])}, error=0.1),
        Row("sort", "slow", 0.5, "vector", {"xla": Timing([1.0], [20.0]), "hlokit": Timing([4.0], [20.0])}, error=1.0),
        Row("gemm", "wrong", 0.5, "arithmetic", {"xla": Timing([1.0]), "hlokit": Timing([1.0])}, error=2.0),
        Row("gemm", "broken", 0.5, "memory", {"xla": Timing([1.0]), "hlokit": Timing(failed="UnsupportedError: a|b\nmore")}),
    ]  # fmt: skip
    return Report({"cpu": "some", "cores": 2, "versions": {"numpy": "2"}}, rows, {"xla": 500.0, "hlokit": "boom"}, 1.0)


def test_ratios_count_against_the_better_xla_and_failures_count_as_failures() -> None:
    fast, slow, wrong, broken = synthetic().rows
    assert (fast.ratio, fast.of_floor, fast.compile_ratio) == (4.0, 0.5, 0.5)
    assert slow.ratio == 0.25 and slow.problem is None
    assert wrong.ratio is None and wrong.problem == "differs from XLA: 2 times the tolerance"
    assert broken.ratio is None and broken.problem is not None
    means = reporting.geometric_means(synthetic().rows)
    assert means == {"sort": 1.0, "gemm": None, "all": 1.0, "compile": pytest.approx(math.sqrt(0.5))}
    assert "4 programs, 2 failing, 1 of 2 slower" in reporting.summary(synthetic())


def test_report_survives_json() -> None:
    report = synthetic()
    again = Report.from_json(json.loads(json.dumps(report.to_json())))
    assert reporting.geometric_means(again.rows) == reporting.geometric_means(report.rows)
    assert reporting.markdown(again, {}) == reporting.markdown(report, {})


def test_markdown_names_what_holds_a_row() -> None:
    text = reporting.markdown(synthetic(), {"slow": "memory"})
    assert "| fast | 9 | 4 | 1 | 0.5 memory | **4.00** | 50% | 20 | 10 |  |" in text
    assert re.search(r"\| slow \|.* memory \|", text)
    assert "UnsupportedError: a\\|b |" in text
    assert "NumPy" not in text.replace("NumPy 2", "")


def test_plot_is_well_formed() -> None:
    root = xml.fromstring(reporting.svg(synthetic()))
    bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("fill") != "white"]
    assert len(bars) == 2


def test_csv_is_what_the_chart_reads(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(reporting.csv_text(synthetic(), {"slow": "memory, mostly"}), encoding="utf-8")
    rows = {row["program"]: row for row in chart.rows(path)}
    assert (
        rows["fast"]["ratio"] == "4.00" and rows["slow"]["held_by"] == "memory, mostly" and not rows["broken"]["ratio"]
    )
    drawn = xml.fromstring(chart.chart(path))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 2
    assert "2 programs, geometric mean 1.00, slower than XLA: slow (0.25)" in chart.summary(path)


@pytest.mark.parametrize(("name", "mean"), [("workloads", "3.50"), ("workloads_zen5", "4.29"), ("workloads_xeon", "4.11")])
def test_the_published_tables_of_workloads_are_whole(name: str, mean: str) -> None:
    """A dot for each workload that there is."""
    path = chart.FOLDER / f"{name}.csv"
    assert {row["program"] for row in chart.rows(path)} == set(NAMES)
    drawn = xml.fromstring(chart.chart(path))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == len(NAMES)
    assert f"36 programs, geometric mean {mean}" in chart.summary(path)


@pytest.mark.parametrize("path", sorted(chart.FOLDER.glob("[qh]*.csv")), ids=lambda path: path.stem)
def test_published_tables_are_whole(path: Path) -> None:
    """Each has the columns that runs have now, and ratios that its times give."""
    rows = chart.rows(path)
    assert [*rows[0]] == [name for name, _ in reporting.CSV_COLUMNS] and len(rows) >= 40
    for row in rows:
        if row["ratio"]:
            best = min(float(row[name]) for name in XLA_COLUMNS if row[name])
            assert float(row["ratio"]) == pytest.approx(best / float(row["hlokit_ms"]), rel=0.02, abs=0.006), row[
                "program"
            ]


XLA_COLUMNS = ("xla_ms", "xla_malloc_tuned_ms", "newest_xla_ms", "newest_xla_malloc_tuned_ms")


def test_goals_are_about_programs_of_the_benchmark() -> None:
    named = [*goals.ELSEWHERE, *(name for name, _ in (*goals.PEAKS, *goals.SLOWNESS, *goals.COMPILES)), *goals.STREAMS]
    assert set(named) <= set(BY_NAME)


def test_goals_of_a_run() -> None:
    rows = [
        Row(
            program.category,
            program.name,
            1.0,
            "memory",
            {"xla": Timing([6.0], [9.0]), "hlokit": Timing([2.0], [12.0])},
        )
        for program in PROGRAMS
    ]
    rows[0].timings["xla"] = Timing([1.0], [9.0])
    found = {f.what: f for f in goals.Goals(Report({"limits": asdict(Limits())}, rows, {}, 0.0)).figures()}
    assert found["programs below 0.95"].seen == f"{rows[0].name} 0.5"
    assert found["compile time over XLA's, geometric mean"].seen == "1.33"
    assert not found["copy_16M: of memory's bandwidth"].reached and found["nbody_2048"].seen == "2 ms, 3.00 times"
    assert found["layernorm_8192x1024"].reached == (3.0 >= 2.75 / 0.9)
    assert "| compile exp_4M | <= 10 ms | 12 ms | no |" in goals.markdown(list(found.values()))


def test_workloads_are_functions_with_a_line_that_says_their_sizes() -> None:
    assert len(set(NAMES)) == len(NAMES) == 36
    for name in NAMES:
        group, _, function = name.partition("/")
        assert (getattr(import_module(f"bench.workloads.{group}"), function).__doc__ or "").endswith(".")


def test_digest_of_a_run_depends_on_each_step_and_the_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(count: int, observe: Any, state: float = 1.0) -> str:
        def step(state: Any, batch: Any) -> tuple[Any, Any]:
            return state + batch, observe(state)

        loop = Loop(step, np.float32(state), [(np.float32(2),), (np.float32(3),)])
        monkeypatch.setattr(bits, "made", lambda name: loop)
        return bits.digest("training/mlp", count)

    found = digest(3, np.float32)
    assert found == digest(3, np.float32)
    others = digest(2, np.float32), digest(3, lambda state: np.float32(state == 3)), digest(3, lambda _: (), 5.0)
    assert len({found, *others, digest(3, lambda _: ())}) == 5


def test_a_run_that_fails_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess((), 1, "", "Traceback (most recent call last):\nMemoryError\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    assert bits.run("training/mlp", 2, 1) == "failed: MemoryError"


def turn(program: str, engine: str, cache: str = "cold", **figures: Any) -> workloads.Turn:
    return workloads.Turn(program, "alone", 0, engine, cache, **figures)


def test_the_report_of_workloads_has_the_slowest_first_and_failures_last() -> None:
    turns = [
        turn("a/fast", "hlokit", steps=[1e-3, 3e-3, 2e-3], first=0.5, peak=1e8, apart=1e-6),
        turn("a/fast", "jax", steps=[8e-3], first=2.0, peak=2e8),
        turn("a/fast", "newest", steps=[6e-3], first=1.0, peak=3e8),
        turn("a/fast", "hlokit", "warm", steps=[2e-3], first=0.1),
        turn("a/fast", "jax", "warm", steps=[8e-3], first=0.4),
        turn("a/lost", "hlokit", failed="SomeError: text"), turn("a/lost", "jax", steps=[1e-3]),
        turn("a/slow", "hlokit", steps=[4e-3], first=1.0), turn("a/slow", "jax", steps=[3e-3], first=1.0),
    ]  # fmt: skip
    rows = workloads.rows_of(turns)
    assert [row.program for row in rows] == ["a/slow", "a/fast", "a/lost"]
    assert rows[1].times(rows[1].step) == pytest.approx(3.0) and rows[1].engines == ["jax", "newest"]
    table = workloads.markdown(rows).splitlines()
    assert len({line.count("|") for line in table[2:7]}) == 1
    assert "| 0.50 | 1.00 | 0.50 | 0.10 | 0.40 | 0.25 | 100 | 200 | 1.0e-06 |" in table[5]
    assert "SomeError: text" in table[6]
    assert "Geometric mean of 2: 1.50 times JAX; 1 below 1.2." in table
    assert xml.fromstring(workloads.svg(rows)).tag.endswith("svg")
    assert len(workloads.csv_text(rows).splitlines()) == 1 + 3 + 2 + 2


def test_distance_of_workloads_is_relative_and_infinite_where_infinities_differ(tmp_path: Path) -> None:
    def stored(name: str, *arrays: Any) -> Path:
        np.savez(tmp_path / name, **{str(k): np.array(array) for k, array in enumerate(arrays)})
        return tmp_path / f"{name}.npz"

    one = stored("one", [4.0, math.nan, 2.0], [1])
    assert workloads.distance(one, one) == 0
    assert workloads.distance(stored("two", [4.0, math.nan, 1.0], [1]), one) == 0.25
    assert workloads.distance(stored("three", [4.0, 0.0, 2.0], [1]), one) == math.inf


def test_a_turn_of_a_workload_says_its_times(tmp_path: Path) -> None:
    """In a process of its own, as runs take it; JAX's CPU client is enough here."""
    reply = taken("eager/transformer", "jax", sys.executable, tmp_path, tmp_path / "seen.npz", "alone", 0.0)
    assert reply["first"] > 0 and len(reply["steps"]) >= 5 and reply["peak"] > 1e6
    assert len(np.load(tmp_path / "seen.npz").files) == 3


def test_the_compile_profile_has_every_stage() -> None:
    """In a process of its own, since it wraps the compiler's functions."""
    command = [sys.executable, "-m", "bench.compile_profile", "softmax_4096x1024$", "--rounds", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout.split("\n")
    assert printed[0].split()[: len(COLUMNS)] == [*COLUMNS]
    spent = dict(zip(COLUMNS, map(float, printed[1].split()[1:]), strict=False))
    assert all(spent[stage] > 0 for stage in ("parse", "passes", "lower", "emit", "read", "code")), spent
