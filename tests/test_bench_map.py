"""The map's grid, its judgements and its files. Nothing is timed, and JAX is not asked."""

import csv
import json
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.limits import Limits
from bench.map.__main__ import measure, points, stored
from bench.map.cells import Cell, cells, drawn
from bench.map.report import Point, below_goal, cliffs, colour, findings, judge, picture, write_table
from bench.map.worker import best_of, shortest

FLAT = Limits({"f32": 100e9, "bf16": 200e9}, 50e9, ((1e6, 10e9),), 5e9, 5e9)


def cell(family: str = "product", peak: str = "f32", flops: float = 0.0, **axes: str | int) -> Cell:
    return Cell(family, tuple(axes.items()), lambda x: x, (), flops, peak)


def row(shares: list[float], **axes: str | int) -> list[Point]:
    return [Point(cell(**axes, size=10**k), 1.0, share=share) for k, share in enumerate(shares)]


@pytest.mark.parametrize("step", [1, 2])
def test_cells_have_names_of_their_own_and_arguments_of_bounded_size(step: int) -> None:
    found = cells(step)
    assert len({one.name for one in found}) == len(found)
    assert {one.family for one in found} == {"convolution", "product", "reduction", "scan", "sort", "scatter", "linalg"}
    small = next(one for one in found if one.name == "scatter/kind=add,type=bfloat16,width=16,size=1")
    values, index = drawn(small)
    assert values.shape == (62, 16) and values.dtype.name == "bfloat16"
    assert index.shape == (62,) and index.min() >= 0 and index.max() < 15


def test_cells_of_convolutions_hold_about_as_many_flops_as_their_size_says() -> None:
    for one in cells(1):
        if one.family == "convolution":
            size = int(dict(one.axes)["size"]) * 1e6
            assert 0.5 * size < one.flops < 1.7 * size, one.name


def test_a_share_is_the_limits_time_with_a_calls_own() -> None:
    products = Point(cell(flops=1e9, size=1), 0.02, bytes_in=1000, bytes_out=1000)
    halves = Point(cell(flops=1e9, peak="bf16", size=1), 0.02)
    copies = Point(cell(size=1), 4e-6, bytes_in=10_000, bytes_out=10_000)
    judge([products, halves, copies], FLAT, call=1e-6)
    assert products.share == pytest.approx(0.5, rel=1e-3)
    assert halves.share == pytest.approx(0.25, rel=1e-3)
    assert copies.share == pytest.approx((1e-6 + 2e-6) / 4e-6)


def test_a_cliff_is_a_cell_below_a_fifth_of_its_neighbours() -> None:
    grid = row([0.5, 0.5, 0.09, 0.6], kind="a") + row([0.5, 0.4, 0.5, 0.5], kind="b")
    ((found, median),) = cliffs(grid)
    assert found is grid[2] and median == 0.5
    grid[2].share = 0.11
    assert cliffs(grid) == []
    # sizes two steps away are no neighbours, and one neighbour proves nothing
    assert cliffs(row([0.01, 0.5, 0.5, 0.5])) == []
    # nor are cells that have no time
    failed = row([0.5, 0.01, 0.5])
    failed[0].problem = "no time"
    assert cliffs(failed) == []


def test_what_is_below_its_goal() -> None:
    def square(side: int, share: float, dtype: str = "float32") -> Point:
        one = cell(flops=2.0 * side**3, kind="square", type=dtype, size=side)
        return Point(one, 1.0, share=share)

    def convolution(channels: int, form: str = "plain") -> Point:
        return Point(cell("convolution", kind="forward", form=form, channels=channels, size=1), 1.0, share=0.7)

    low = [square(256, 0.6), square(512, 0.5), convolution(32)]
    fine = [square(255, 0.1), square(256, 0.8), square(256, 0.1, "float16"), convolution(31), convolution(64, "groups")]
    assert below_goal(low + fine) == [low[1], low[0], low[2]]


def test_times_are_the_least_of_calls_in_turns() -> None:
    order: list[str] = []
    times = {"a": iter([5.0, 1.0, 2.0]), "b": iter([0.6, 1.0, 0.5])}
    now = 0.0

    def call(name: str) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            order.append(name)
            now += next(times[name])

        return run

    assert shortest([call("a"), call("b")], lambda: now, seconds=0.1) == [5.0, 0.5]
    assert order == ["a", "b", "b", "b"]  # 5 seconds are enough of one call


def test_the_best_of_several_limits_counts() -> None:
    other = Limits({"f32": 90e9, "bf16": 210e9}, 60e9, ((1e6, 8e9),), 6e9, 4e9)
    assert best_of(FLAT, other) == Limits({"f32": 100e9, "bf16": 210e9}, 60e9, ((1e6, 10e9),), 6e9, 5e9)


class Answers:
    """A worker of stored answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, request: str, patience: float) -> dict[str, object]:
        self.asked.append(request)
        if request == "limits":
            return {"limits": vars(FLAT), "call": 1e-6}
        return {"problem": "no time in 1 s"} if request == "2" else {"seconds": 1e-3, "xla": 5e-4}

    def stop(self) -> None:
        self.asked.append("stop")


def test_a_run_goes_on_where_another_ended(tmp_path: Path) -> None:
    store = tmp_path / "map.jsonl"
    wanted = [(k, cell(flops=1e6, kind="square", size=10**k)) for k in range(3)]
    store.write_text(json.dumps({"cell": wanted[0][1].name, "seconds": 2e-3, "xla": None}) + '\n{"cell": "prod')
    worker = Answers()
    store.write_text(store.read_text() + "\n")
    measure(wanted, worker, store, 1.0)
    assert worker.asked == ["limits", "1", "2", "limits", "stop"]
    found = points(wanted, stored(store))
    assert [point.seconds for point in found] == [2e-3, 1e-3, 0.0]
    assert [point.problem for point in found] == [None, None, "no time in 1 s"]
    again = Answers()
    measure(wanted, again, store, 1.0)
    assert again.asked == ["stop"]


def test_the_reports_name_cells_times_and_problems(tmp_path: Path) -> None:
    grid = row([0.5, 0.5, 0.05, 0.6], kind="a")
    grid[2].xla = 0.5
    grid[3].problem = "ended & gone"
    write_table(grid, tmp_path / "map.csv")
    with (tmp_path / "map.csv").open(encoding="utf-8", newline="") as file:
        table = {line["cell"]: line for line in csv.DictReader(file)}
    assert table["product/kind=a,size=100"]["ratio"] == "0.5"
    assert table["product/kind=a,size=1000"]["us"] == ""
    text = findings(grid)
    assert "1 cells take longer than XLA's:\n  product/kind=a,size=100: 1e+06 us, 5.0% of the limit, 0.50" in text
    assert "product/kind=a,size=1000: ended & gone" in text
    drawing = xml.fromstring(picture(grid, "a & b"))
    titles = [node.text for node in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 4 and "product/kind=a,size=1000: ended & gone" in titles
    assert colour(1.2) == colour(0.8) != colour(0.79)
