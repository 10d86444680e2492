"""Whole programs: what overlaps, what waits, what loops and branches count."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.analysis.simulation import Simulation, simulate
from hlokit.analysis.simulation.program import device_groups, device_pairs
from hlokit.interpreter.process import Process
from hlokit.interpreter.routes import Place
from hlokit.types.groups import ReplicaGroups

ALPHA, BETA = 1e-6, 1e9
M = 4000  # bytes of f32[1000]
HOP = ALPHA + M / BETA

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
SUM = "replica_groups={}, to_apply=add"
"""An all-reduce over all; by the ring algorithm on two devices it takes 2 (a + m / 2b)."""
TWO = 2 * (ALPHA + M / 2 / BETA)


def entry(body: str, header: str = "", before: str = "") -> hk.HloModule:
    return hk.parse(f"HloModule m{header}\n{ADD}{before}ENTRY e {{\n{body}\n}}\n")


def run(module: hk.HloModule, topology: str = "ring:2", **options: Any) -> Simulation:
    return simulate(module, topology, **{"bandwidth": BETA, "latency": ALPHA, "algorithm": "ring", **options})


def times(found: Simulation) -> dict[str, tuple[int, float]]:
    return {c.name: (c.count, pytest.approx(c.total)) for c in found.collectives}


# -- computing and overlap

ASYNC = """
  x = f32[1000] parameter(0)
  start = f32[1000] all-reduce-start(x), replica_groups={}, to_apply=add
  y = f32[1000] add(x, x)
  done = f32[1000] all-reduce-done(start)
  ROOT r = (f32[1000], f32[1000]) tuple(y, done)
"""


@pytest.mark.parametrize(("flops", "seconds"), [(1e10, TWO), (1e6, 1e-3), (None, TWO)])
def test_computing_between_start_and_done_overlaps(flops: float | None, seconds: float) -> None:
    assert run(entry(ASYNC), flops=flops).seconds == pytest.approx(seconds)
    assert run(entry(ASYNC, ", is_scheduled=true"), flops=flops).seconds == pytest.approx(seconds)


def test_a_schedule_is_kept() -> None:
    """The done right after the start: nothing overlaps."""
    lines = ASYNC.strip("\n").splitlines()
    lines[2], lines[3] = lines[3], lines[2]
    found = run(entry("\n".join(lines), ", is_scheduled=true"), flops=1e6)
    assert found.seconds == pytest.approx(TWO + 1e-3)
    assert [part.kind for part in found.path] == ["all-reduce", "compute"]


def test_a_wrapped_collective_overlaps() -> None:
    wrapped = "wrapped {\n  p = f32[2000] parameter(0)\n  ROOT s = f32[1000] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add\n}\n"
    body = """
  x = f32[2000] parameter(0)
  start = ((f32[2000]), f32[1000]) async-start(x), calls=wrapped
  y = f32[2000] add(x, x)
  done = f32[1000] async-done(start)
  ROOT r = (f32[2000], f32[1000]) tuple(y, done)
"""
    found = run(entry(body, before=wrapped), flops=1e6)
    assert found.seconds == pytest.approx(2e-3)
    assert times(found) == {"start": (1, HOP)}


def test_two_collectives_under_way_take_the_links_in_turn() -> None:
    body = """
  x = f32[1000] parameter(0)
  a1 = f32[1000] all-reduce-start(x), replica_groups={}, to_apply=add
  a2 = f32[1000] all-reduce-start(x), replica_groups={}, to_apply=add
  b1 = f32[1000] all-reduce-done(a1)
  b2 = f32[1000] all-reduce-done(a2)
  ROOT r = (f32[1000], f32[1000]) tuple(b1, b2)
"""
    found = run(entry(body, ", is_scheduled=true"))
    assert found.seconds == pytest.approx(2 * TWO)
    assert [part.name for part in found.path] == ["a1", "a2"]
    apart = body.replace("{}", "{{0,1},{2},{3}}", 1).replace("{}", "{{2,3},{0},{1}}", 1)
    assert run(entry(apart, ", is_scheduled=true"), "ring:4").seconds == pytest.approx(TWO)


def test_collectives_on_other_links_do_not_wait() -> None:
    """One sends round to the right, the other to the left."""
    body = """
  x = f32[1000] parameter(0)
  a1 = (f32[1000], f32[1000]) collective-permute-start(x), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  a2 = (f32[1000], f32[1000]) collective-permute-start(x), source_target_pairs={{1,0},{2,1},{3,2},{0,3}}
  b1 = f32[1000] collective-permute-done(a1)
  b2 = f32[1000] collective-permute-done(a2)
  ROOT r = (f32[1000], f32[1000]) tuple(b1, b2)
"""
    assert run(entry(body, ", is_scheduled=true"), "ring:4").seconds == pytest.approx(HOP)
    same = body.replace("{{1,0},{2,1},{3,2},{0,3}}", "{{0,1},{1,2},{2,3},{3,0}}")
    assert run(entry(same, ", is_scheduled=true"), "ring:4").seconds == pytest.approx(2 * HOP)


def test_roofline() -> None:
    body = "  x = f32[1000] parameter(0)\n  y = f32[1000] multiply(x, x)\n  ROOT r = f32[1000] all-reduce(y), " + SUM
    assert run(entry(body), flops="1GFLOPS").seconds == pytest.approx(TWO + 1e-6)
    assert run(entry(body), memory_bandwidth="1GB/s").seconds == pytest.approx(TWO + 12e-6)
    both = run(entry(body), flops="1GFLOPS", memory_bandwidth="1GB/s")
    assert both.seconds == pytest.approx(TWO + 12e-6)
    assert [(part.kind, part.name) for part in both.path] == [("compute", "y"), ("all-reduce", "r")]


# -- loops and branches

LOOP = """
cond {{
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction={direction}
}}
body {{
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant({step})
  next = s32[] add(i, one)
  x = f32[1000] get-tuple-element(p), index=1
  y = f32[1000] all-reduce(x), replica_groups={{}}, to_apply=add
  ROOT t = (s32[], f32[1000]) tuple(next, y)
}}
"""
LOOPING = """
  x = f32[1000] parameter(0)
  zero = s32[] {start}
  init = (s32[], f32[1000]) tuple(zero, x)
  ROOT w = (s32[], f32[1000]) while(init), condition=cond, body=body
"""


def loop(trips: int, start: str = "constant(0)") -> hk.HloModule:
    before = LOOP.format(trips=trips, direction="LT", step=1)
    return entry(LOOPING.format(start=start), before=before)


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 1_000_000])
def test_a_loop_counts_as_often_as_it_runs(trips: int) -> None:
    found = run(loop(trips))
    assert found.seconds == pytest.approx(trips * TWO)
    assert times(found) == {"y": (trips, trips * TWO)}
    assert sum(link.nbytes for link in found.links) == trips * 2 * M
    assert sum(part.end - part.begin for part in found.path) == pytest.approx(found.seconds)
    assert found.notes == []


def test_an_unknown_loop_counts_once_and_says_so() -> None:
    module = loop(7, "parameter(1)")
    found = run(module)
    assert times(found)["y"] == (1, TWO)
    assert found.notes == ["w: how often it runs is unknown; counted once"]
    found = run(module, trip_count=5)
    assert times(found)["y"] == (5, 5 * TWO) and "counted 5 times" in found.notes[0]


def test_loops_without_an_end_to_speak_of() -> None:
    module = loop(7, "parameter(1)")
    assert run(module, trip_count=2**53).seconds == pytest.approx(2**53 * TWO)
    noted = f'body=body, backend_config={{"known_trip_count":{{"n":"1{"0" * 30}"}}}}'
    body = LOOPING.format(start="constant(0)").replace("body=body", noted)
    with pytest.raises(hk.UnsupportedError, match=r"w: 10{30} passes"):
        run(entry(body, before=LOOP.format(trips=7, direction="LT", step=1)))


def test_loops_in_loops() -> None:
    before = (
        LOOP.format(trips=4, direction="LT", step=1)
        + """
outer_cond {
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
outer {
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[1000] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  init = (s32[], f32[1000]) tuple(zero, x)
  w = (s32[], f32[1000]) while(init), condition=cond, body=body
  z = f32[1000] get-tuple-element(w), index=1
  v = f32[1000] all-reduce(z), replica_groups={}, to_apply=add
  ROOT t = (s32[], f32[1000]) tuple(next, v)
}
"""
    )
    body = LOOPING.format(start="constant(0)").replace("condition=cond, body=body", "condition=outer_cond, body=outer")
    found = run(entry(body, before=before))
    assert times(found) == {"y": (12, 12 * TWO), "v": (3, 3 * TWO)}
    shares = [("y", "all-reduce", 12, pytest.approx(12 * TWO)), ("v", "all-reduce", 3, pytest.approx(3 * TWO))]
    assert found.path_shares() == shares


def test_computing_in_a_loop_counts_as_often() -> None:
    """A loop without collectives: its body's arithmetic, 50 times, and its condition's, 51 times."""
    before = LOOP.format(trips=50, direction="LT", step=1).replace(
        "all-reduce(x), replica_groups={}, to_apply=add", "negate(x)"
    )
    body = LOOPING.format(start="constant(0)").replace("ROOT w", "w") + (
        "  z = f32[1000] get-tuple-element(w), index=1\n  ROOT r = f32[1000] all-reduce(z), " + SUM
    )
    assert run(entry(body, before=before), flops=1e9).seconds == pytest.approx(TWO + (50 * 1001 + 51) / 1e9)


BRANCHES = """
small {
  v = f32[1000] parameter(0)
  ROOT r = f32[1000] negate(v)
}
large {
  v = f32[1000] parameter(0)
  ROOT g = f32[1000] all-reduce(v), replica_groups={}, to_apply=add
}
"""


def test_of_unknown_branches_the_most_expensive_counts() -> None:
    body = """
  x = f32[1000] parameter(0)
  k = f32[] parameter(1)
  sum = f32[] all-reduce(k), replica_groups={}, to_apply=add
  zero = f32[] constant(0)
  p = pred[] compare(sum, zero), direction=GT
  ROOT c = f32[1000] conditional(p, x, x), true_computation=small, false_computation=large
"""
    found = run(entry(body, before=BRANCHES))
    assert times(found)["g"] == (1, TWO)
    assert found.notes == ["c: which branch runs is unknown; the most expensive is counted, number 1"]


def test_branches_by_device_are_known() -> None:
    """Replicas 0 and 1 reduce among themselves, 2 and 3 do not."""
    before = BRANCHES.replace("replica_groups={}", "replica_groups={{0,1},{2,3}}")
    body = """
  x = f32[1000] parameter(0)
  id = u32[] replica-id()
  two = u32[] constant(2)
  p = pred[] compare(id, two), direction=LT
  ROOT c = f32[1000] conditional(p, x, x), true_computation=large, false_computation=small
"""
    found = run(entry(body, before=before), "full:4", flops=1e9)
    assert found.device_seconds == pytest.approx([TWO + 1e-9] * 2 + [1e-6 + 1e-9] * 2)
    assert times(found)["g"] == (1, TWO) and found.notes == []


def test_branches_meet_on_a_channel() -> None:
    """GRP-6: two instructions of one kind and channel are one collective, each time they come."""
    before = "".join(
        f"{name} {{\n  v = f32[1000] parameter(0)\n"
        + work
        + "  a = f32[1000] all-reduce(w), channel_id=5, replica_groups={{0}}, to_apply=add\n"
        + "  ROOT b = f32[1000] all-reduce(a), channel_id=5, replica_groups={{0}}, to_apply=add\n}\n"
        for name, work in (
            ("first", "  w = f32[1000] negate(v)\n"),
            ("second", "  u = f32[1000] negate(v)\n  w = f32[1000] negate(u)\n"),
        )
    )
    body = """
  x = f32[1000] parameter(0)
  id = u32[] partition-id()
  one = u32[] constant(1)
  p = pred[] compare(id, one), direction=LT
  c = f32[1000] conditional(p, x, x), true_computation=first, false_computation=second
  ROOT d = f32[1000] all-reduce(c), channel_id=5, replica_groups={{0}}, to_apply=add
"""
    found = run(entry(body, ", num_partitions=2", before), flops=1e9)
    assert found.seconds == pytest.approx(2e-6 + 1e-9 + 3 * TWO)
    assert [c.count for c in found.collectives] == [1, 1, 1]


# -- sends and recvs

PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{%s}"}'


def stages(pairs: str, count: int) -> hk.HloModule:
    """Each device waits for the one before it, computes a microsecond, and sends on."""
    told = PAIRS % pairs
    return entry(
        f"""
  t = token[] after-all()
  recv = (f32[1000], u32[], token[]) recv(t), channel_id=1, {told}
  got = (f32[1000], token[]) recv-done(recv), channel_id=1, {told}
  v = f32[1000] get-tuple-element(got), index=0
  w = f32[1000] add(v, v)
  send = (f32[1000], u32[], token[]) send(w, t), channel_id=1, {told}
  sent = token[] send-done(send), channel_id=1, {told}
  ROOT r = f32[1000] negate(w)
""",
        f", replica_count={count}, is_scheduled=true",
    )


def test_a_pipeline_by_hand() -> None:
    """0 -> 1 -> 2 -> 3: device k is done after k sends and k + 1 times its own computing, twice 1000 operations."""
    found = run(stages("{0,1},{1,2},{2,3}", 4), "ring:4", flops=1e9)
    expected = [k * (1e-6 + HOP) + 1e-6 + (HOP if k < 3 else 0) + 1e-6 for k in range(4)]
    assert found.device_seconds == pytest.approx(expected)
    assert [(part.kind, part.device) for part in found.path] == [
        ("compute", 0), ("send", 1), ("compute", 1), ("send", 2), ("compute", 2), ("send", 3), ("compute", 3), ("compute", 3),
    ]  # fmt: skip
    assert {link.name: link.nbytes for link in found.links} == {f"{d} -> {d + 1}": M for d in range(3)}
    assert found.collectives[0].kind == "send" and found.collectives[0].count == 1


def test_a_long_pipeline_is_quick() -> None:
    count = 300
    pairs = ",".join(f"{{{d},{d + 1}}}" for d in range(count - 1))
    found = run(stages(pairs, count), f"ring:{count}")
    assert found.seconds == pytest.approx((count - 1) * HOP)


def test_those_that_do_not_receive_begin_first() -> None:
    """The path of a collective that waits for a late device goes through that device."""
    told = PAIRS % "{0,1}"
    body = f"""
  x = f32[1000] parameter(0)
  t = token[] after-all()
  recv = (f32[1000], u32[], token[]) recv(t), channel_id=1, {told}
  send = (f32[1000], u32[], token[]) send(x, t), channel_id=1, {told}
  sent = token[] send-done(send), channel_id=1, {told}
  got = (f32[1000], token[]) recv-done(recv), channel_id=1, {told}
  v = f32[1000] get-tuple-element(got), index=0
  ROOT r = f32[1000] all-reduce(v), replica_groups={{}}, to_apply=add
"""
    found = run(entry(body, ", replica_count=3, is_scheduled=true"), "full:3")
    assert found.device_seconds == pytest.approx([HOP + 4 * (ALPHA + M / 3 / BETA)] * 3)
    assert [part.kind for part in found.path] == ["send", "all-reduce"]


def test_a_pipeline_in_a_loop() -> None:
    """The devices part and come together in each pass: the first one sends while the last one still waits."""
    told = PAIRS % "{0,1},{1,2},{2,3}"
    module = entry(
        LOOPING.format(start="constant(0)"),
        ", replica_count=4, is_scheduled=true",
        LOOP.format(trips=20, direction="LT", step=1).replace(
            "  y = f32[1000] all-reduce(x), replica_groups={}, to_apply=add",
            f"""  tok = token[] after-all()
  recv = (f32[1000], u32[], token[]) recv(tok), channel_id=1, {told}
  got = (f32[1000], token[]) recv-done(recv), channel_id=1, {told}
  v = f32[1000] get-tuple-element(got), index=0
  y = f32[1000] add(v, v)
  send = (f32[1000], u32[], token[]) send(y, tok), channel_id=1, {told}
  sent = token[] send-done(send), channel_id=1, {told}""",
        ),
    )
    found = run(module, "ring:4")
    # a stage takes part in two messages a pass, one after the other: after the first three, one pass more each 2 hops
    assert found.seconds == pytest.approx((3 + 2 * 19) * HOP)
    assert found.collectives[0].count == 20
    assert {link.name: link.nbytes for link in found.links} == {f"{d} -> {d + 1}": 20 * M for d in range(3)}


# -- what is shown


def test_the_path_is_without_gaps_and_the_trace_shows_it() -> None:
    found = run(stages("{0,1},{1,2},{2,3}", 4), "ring:4", flops=1e9)
    ends = [0.0, *(part.end for part in found.path)]
    assert [part.begin for part in found.path] == pytest.approx(ends[:-1]) and ends[-1] == found.seconds
    events = json.loads(json.dumps(found.trace()))["traceEvents"]
    shown = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in shown} == {1, 2, 3}
    assert max(e["ts"] + e["dur"] for e in shown) == pytest.approx(found.seconds * 1e6)
    assert sum(e["dur"] for e in shown if e["pid"] == 1) == pytest.approx(found.seconds * 1e6)
    assert sum(e.get("args", {}).get("bytes", 0) for e in shown if e["pid"] == 3) == 3 * M
    arrows = [e for e in events if e["ph"] in "sf"]
    assert len(arrows) == 2 * 3 and {e["id"] for e in arrows if e["ph"] == "s"} == {
        e["id"] for e in arrows if e["ph"] == "f"
    }
    for tid in {(e["pid"], e["tid"]) for e in shown}:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in shown if (e["pid"], e["tid"]) == tid)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(own))


def test_a_trace_of_many_devices_shows_some() -> None:
    events = run(loop(3), "ring:1024").trace()["traceEvents"]
    assert len({e["tid"] for e in events if e["pid"] == 2 and e["ph"] == "X"}) == 64


def test_the_same_every_time() -> None:
    module = stages("{0,1},{1,2},{2,3}", 4)
    first, second = (run(module, "ring:4", flops=1e9) for _ in range(2))
    assert first.facts() == second.facts() and first.trace() == second.trace()
    assert json.loads(json.dumps(first.facts())) == json.loads(json.dumps(second.facts()))


def test_shardings_are_not_followed() -> None:
    module = entry(REDUCE.replace("parameter(0)", "parameter(0), sharding={devices=[4]<=[4]}"), ", num_partitions=4")
    assert run(module, "ring:4").notes == ["shardings are ignored: only the collectives in the module are counted"]


# -- groups


@pytest.mark.parametrize("mode", ["replica", "partition", "both", "global"])
def test_groups_are_the_interpreters(mode: str) -> None:
    """GRP-4, against what each device's process says."""
    replicas, partitions = 4, 6
    count = {"replica": 4, "partition": 6, "both": 4, "global": 24}[mode]
    numbers = np.random.default_rng(5)
    for size in (1, 2, count):
        order = numbers.permutation(count).reshape(-1, size)
        groups = ReplicaGroups.explicit([[int(i) for i in row] for row in order])
        channel, is_global = (None if mode == "replica" else 1), mode == "global"
        over = mode == "partition"
        op = (
            hk.OPS["all-to-all"](channel_id=channel, replica_groups=groups)
            if over
            else hk.OPS["all-reduce"](channel_id=channel, replica_groups=groups, use_global_device_ids=is_global)
        )
        found = device_groups(op, replicas, partitions)
        for place in Place.grid(replicas, partitions):
            members = Process(place=place).members(groups, channel, is_global, over_partitions=over)
            wanted = tuple(r * partitions + p for r, p in members)
            assert [g for g in found if place.device in g] == [wanted]


def test_pairs_of_partitions_and_of_replicas() -> None:
    assert device_pairs([(0, 1)], 2, 2, of_partitions=True) == [(0, 1), (2, 3)]
    assert device_pairs([(0, 1)], 2, 2, of_partitions=False) == [(0, 2), (1, 3)]


# -- what is refused

REDUCE = "  x = f32[1000] parameter(0)\n  ROOT r = f32[1000] all-reduce(x), " + SUM


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "rings:4"}, "topology: 'rings:4', expected ring:N"),
        ({"topology": "ring:4x4"}, "topology: 'ring:4x4'"),
        ({"topology": "hosts:4"}, "topology: 'hosts:4'"),
        ({"topology": "ring:0"}, "0 devices"),
        ({"topology": "mesh:1000x1000"}, "1000000 devices"),
        ({"topology": "full:4000"}, "at most 2048"),
        ({"topology": "ring:6", "replicas": 4, "partitions": 1}, "4 replicas of 1 partition, but ring:6 has 6 devices"),
        ({"bandwidth": "fast"}, "bandwidth: 'fast' is not a number with one of the units B/s"),
        ({"bandwidth": "3parsec"}, "bandwidth: '3parsec'"),
        ({"bandwidth": 0}, "bandwidth: '0', expected a finite number > 0"),
        ({"bandwidth": "1e999"}, "bandwidth: '1e999'"),
        ({"bandwidth": "1,2,3"}, "bandwidth: 3 values, expected 1 for ring:4"),
        ({"latency": "-1us"}, "latency: '-1us'"),
        ({"latency": "1 fortnight"}, "s, ms, us"),
        ({"algorithm": "magic"}, "expected one of auto, ring, tree, halving"),
        ({"flops": "1 horse"}, "flops: '1 horse'"),
        ({"trip_count": -1}, "trip_count: -1"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(options: dict[str, Any], message: str) -> None:
    options = {"topology": "ring:4", **options}
    with pytest.raises(hk.ArgumentError) as error:
        run(entry(REDUCE), **options)
    assert message in str(error.value)


def test_a_header_that_does_not_fit() -> None:
    with pytest.raises(hk.ArgumentError, match="4 replicas of 1 partition, but ring:6"):
        run(entry(REDUCE, ", replica_count=4"), "ring:6")
    assert run(entry(REDUCE, ", replica_count=4"), "ring:8").partitions == 2


def test_groups_that_do_not_fit_are_refused() -> None:
    module = entry(REDUCE.replace("replica_groups={}", "replica_groups={{0,1},{2,3}}"))
    with pytest.raises(hk.EvaluationError, match="GRP-2"):
        run(module, "ring:8")


def test_a_deadlock_is_refused() -> None:
    body = """
  x = f32[1000] parameter(0)
  id = u32[] replica-id()
  two = u32[] constant(1)
  p = pred[] compare(id, two), direction=LT
  ROOT c = f32[1000] conditional(p, x, x), true_computation=large, false_computation=small
"""
    with pytest.raises(hk.DeadlockError):
        run(entry(body, before=BRANCHES))


def test_units() -> None:
    module = entry(REDUCE)
    assert run(module, bandwidth="8Gb/s", latency="1000ns").seconds == run(module).seconds
    assert run(module, bandwidth="1GB/s", latency="0.001ms").seconds == pytest.approx(run(module).seconds)
    assert run(module, bandwidth="1GiB/s", latency=0).seconds == pytest.approx(M / 2**30)
