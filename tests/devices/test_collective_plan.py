"""The plan of a collective between processes: its cost, and that it is the same from every rank's side."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import hlokit as hk
from hlokit.devices.processes.collective import Collective, shapes_of

ADD = "%add (a: f32[], b: f32[]) -> f32[] { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
COLLECTIVES = {
    "all-reduce": "ROOT r = f32[{n}] all-reduce(x), replica_groups={{}}, to_apply=add",
    "reduce-scatter": "ROOT r = f32[1] reduce-scatter(x), replica_groups={{}}, dimensions={{0}}, to_apply=add",
    "all-gather": "ROOT r = f32[{nn}] all-gather(x), replica_groups={{}}, dimensions={{0}}",
    "all-to-all": "ROOT r = f32[{n}] all-to-all(x), replica_groups={{}}, dimensions={{0}}",
    "collective-broadcast": "ROOT r = f32[{n}] collective-broadcast(x), replica_groups={{{{{all}}}}}",
    "collective-permute": "ROOT r = f32[{n}] collective-permute(x), source_target_pairs={{{ring}}}",
}


def planned(opcode: str, count: int, own: int = 0, devices: int = 1) -> Collective:
    """The plan of rank `own`, of the collective of `count` devices, so many on each rank."""
    ring = ",".join(f"{{{i},{(i + 1) % count}}}" for i in range(count))
    line = COLLECTIVES[opcode].format(n=count, nn=count * count, all=",".join(map(str, range(count))), ring=ring)
    module = hk.parse(f"HloModule m\n{ADD}\nENTRY e {{ x = f32[{count}] parameter(0)\n{line} }}")
    root = module.entry.root
    everyone = [(replica, 0) for replica in range(count)]
    process: Any = SimpleNamespace(
        replica_id=own * devices, partition_id=0, replica_count=count, partition_count=1,
        members=lambda *_, **__: everyone,
    )  # fmt: skip
    operands, results = shapes_of(root), [root.shape]
    homes = [replica // devices for replica in range(count)]
    transfer = root.op.transfer(operands, results, process)
    assert transfer is not None
    return Collective(transfer, [*range(count)], homes, own, operands, results, True)


def calls(opcode: str, count: int) -> int:
    """The functions that are called to plan it, without reading the program."""
    found = 0
    is_planning = False

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal found, is_planning
        is_planning |= event == "call" and frame.f_code.co_name == "transfer"
        found += is_planning and event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        planned(opcode, count)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("opcode", COLLECTIVES)
def test_the_work_of_a_plan_grows_as_the_number_of_processes(opcode: str) -> None:
    assert calls(opcode, 400) < 2.5 * calls(opcode, 200)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("opcode", COLLECTIVES)
def test_ranks_agree_about_what_each_gives_the_other(opcode: str, devices: int) -> None:
    plans = [planned(opcode, 6, own, devices) for own in range(6 // devices)]
    assert len({(plan._is_alike, plan._rounds, plan.is_reduction) for plan in plans}) == 1
    for giver, plan in enumerate(plans):
        for taker, other in enumerate(plans):
            assert plan._gives[0 if plan._is_alike else taker] == other._gets[giver]
