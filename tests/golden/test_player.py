"""The player, against a recorder in place of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.calls import CALLS, snake_case
from tests.golden.cases import golden_files, read_cases
from tests.golden.player import Player, PlayerError, called_functions, find_call, flatten
from tests.golden.recorder import Recorder
from tests.golden.sample import SAMPLE


def calls_of(steps: list[dict[str, Any]], root: str, params: tuple[str, ...] = ()) -> list[str]:
    recorder = Recorder()
    Player(recorder).build({"params": list(params), "steps": steps, "root": root})
    return recorder.calls


def test_parameters_steps_and_root() -> None:
    step = {"op": "Add", "args": {"lhs": "%p0", "rhs": "%p0", "broadcast_dimensions": [0]}}
    assert calls_of([step], "%s0", ("f32[2]",)) == [
        "parse_shape('f32[2]')",
        "parameter(0, v1, 'p0')",
        "add(v2, v2, broadcast_dimensions=[0])",
        "build(v3)",
    ]


def test_second_result_of_a_step() -> None:
    calls = calls_of([{"op": "ReplicaId", "args": {}}, {"op": "Neg", "args": {"arg": "%s0.1"}}], "%s1")
    assert calls == ["replica_id()", "get_tuple_element(v1, 1)", "neg(v2)", "build(v3)"]


def test_nested_program_becomes_a_computation() -> None:
    reducer = {"params": [], "steps": [{"op": "ReplicaId", "args": {}}], "root": "%s0"}
    arguments = {"operands": [], "init_values": [], "computation": reducer, "dimensions_to_reduce": [1]}
    calls = calls_of([{"op": "Reduce", "args": arguments}], "%s0")
    assert calls == ["replica_id()", "build_computation(v1)", "reduce([], [], v2, [1])", "build(v3)"]


def test_dimension_numbers_are_passed_as_they_are() -> None:
    numbers = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]}
    dot = {"lhs": "%s0", "rhs": "%s0", "dimension_numbers": numbers, "preferred_element_type": "f64"}
    value = {"op": "ReplicaId", "args": {}}
    calls = calls_of([value, {"op": "DotGeneral", "args": dot}], "%s1")
    assert calls[1:3] == [
        "dtype('f64')",
        f"dot_general(v1, v1, {numbers}, preferred_element_type=v2)",
    ]


def test_two_signatures_of_one_operation() -> None:
    assert find_call("Iota", {"type": "u8", "size": 6}).keyword == ("size",)
    assert find_call("Iota", {"shape": "u8[6]", "iota_dimension": 0}).positional == ("shape", "iota_dimension")
    assert find_call("Scatter", dict.fromkeys(["inputs", "scatter_indices", "updates", "update_computation", "dimension_numbers"])).positional[0] == "inputs"  # fmt: skip


def test_gaps_of_the_table_are_told() -> None:
    with pytest.raises(PlayerError, match="no line for Frobnicate"):
        find_call("Frobnicate", {})
    with pytest.raises(PlayerError, match=r"no line for Add\(lhs, rhs, axis\)"):
        find_call("Add", {"lhs": "%p0", "rhs": "%p1", "axis": 0})
    with pytest.raises(PlayerError, match=r"no line for Add\(lhs\)"):
        find_call("Add", {"lhs": "%p0"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("PopulationCount", "population_count"), ("Log1p", "log1p"), ("EqTotalOrder", "eq_total_order"), ("And", "and_")],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_flatten_nested_tuples() -> None:
    assert flatten(((1, (2, ())), 3)) == [1, 2, 3]  # type: ignore[comparison-overlap]
    assert flatten(()) == []


def test_sample_has_every_operation_of_the_table_and_plays() -> None:
    programs = [case.program for case in read_cases(SAMPLE)]
    assert called_functions(programs) == {call.function for calls in CALLS.values() for call in calls}
    for program in programs:
        Player(Recorder()).build(program)


@pytest.mark.golden_full
def test_every_golden_program_plays(golden: Path) -> None:
    for path in golden_files(golden):
        for case in read_cases(path):
            Player(Recorder()).build(case.program)
