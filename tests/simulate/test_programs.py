"""Random programs for several devices: the replay runs the collectives that the interpreter runs, without a gap."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.analysis.simulation import Simulation, simulate
from tests.fuzz.devices import module_of, random_program

PARTIAL = ("collective-permute", "collective-broadcast")
"""Here not every device has a part."""
SEEDS = range(60)


def replayed(seed: int, network: str, **options: Any) -> Simulation:
    program = random_program(seed)
    counts = {"replicas": program.replicas, "partitions": program.partitions}
    devices = program.replicas * program.partitions
    return simulate(module_of(program), f"{network}:{devices}", bandwidth=1e9, latency=1e-6, **counts, **options)


def taken_part(found: Simulation) -> Counter[str]:
    """How often devices took part in collectives of each kind."""
    replay, total = found.replay, Counter[str]()
    for number, communication in enumerate(replay.program.communications):
        own = slice(int(replay.first_unit[number]), int(replay.first_unit[number + 1]))
        units = communication.unit_of[communication.unit_of >= 0]
        sizes = np.bincount(units, minlength=communication.plan.units)
        total[communication.kind] += int((replay.runs[own] * sizes).sum())
    return total


def ran(seed: int) -> Counter[str]:
    """How often devices ran collectives of each kind, in the interpreter."""
    program, total = random_program(seed), Counter[str]()

    def count(instruction: hk.Instruction, operands: Any) -> None:
        if instruction.op.form == "communicate" and not instruction.opcode.endswith("-done"):
            total[instruction.opcode.removesuffix("-start")] += not instruction.op.asks_device

    counts = {"replicas": program.replicas, "partitions": program.partitions}
    args = program.arguments if len(program.arguments) > 1 else program.arguments[0]
    hk.evaluate(module_of(program), *args, before=count, **counts)
    return total


def test_as_many_collectives_as_the_interpreter_runs() -> None:
    known = 0
    for seed in SEEDS:
        found = replayed(seed, "full")
        if found.notes:  # the course depends on values
            continue
        known += 1
        expected, replay = ran(seed), taken_part(found)
        for kind in PARTIAL:
            del expected[kind], replay[kind]
        assert +replay == +expected, seed
    assert known > 20


@pytest.mark.parametrize("network", ["ring", "tree"])
def test_the_critical_path_has_no_gap(network: str) -> None:
    for seed in SEEDS[::3]:
        found = replayed(seed, network, flops=1e9)
        ends = [0.0, *(part.end for part in found.path)]
        assert [part.begin for part in found.path] == pytest.approx(ends[:-1], rel=1e-9, abs=1e-15), seed
        assert ends[-1] == pytest.approx(found.seconds, rel=1e-12), seed
