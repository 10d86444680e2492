"""Machine code on several devices: the interpreter's results, its errors, and nothing left behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import hlokit as hk
from tests.devices.programs import F, add, is_replica, program
from tests.fuzz.devices import check_compiled
from tests.rules.grid import TWO, same
from tests.rules.labels import rejects, rule


def reduced(x: hk.XlaOp) -> hk.XlaOp:
    return hk.all_reduce(x, add)


def by_data(x: hk.XlaOp) -> hk.XlaOp:
    return hk.gt(hk.reduce(x, x.builder.constant(F(0)), add, [0]), 0.0)


def test_random_programs_give_the_models_bytes() -> None:
    for seed in range(12):
        check_compiled(seed)


@rule("GRP-8")
def test_deadlocks() -> None:
    certain = program(lambda b, x: hk.conditional(is_replica(b, 0), x, reduced, x, lambda v: v), hk.f32[2])
    with rejects("GRP-8"):
        hk.compile(certain, replicas=2)
    run: Any = hk.compile(
        program(lambda b, x: hk.conditional(by_data(x), x, reduced, x, lambda v: v), hk.f32[2]), replicas=2
    )
    same(run([TWO[0]], [TWO[1]]), [[4.0, 7.75]] * 2)
    with pytest.raises(hk.DeadlockError, match="for replica 1, which has finished"):
        run([TWO[0]], [-TWO[1]])
    assert not [t for t in threading.enumerate() if t.name.startswith("replica")]
    same(run([TWO[0]], [TWO[1]]), [[4.0, 7.75]] * 2)


@rule("INFEED-9", "OUTFEED-2")
def test_queues() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        result = hk.while_(lambda s: s.builder.infeed(hk.pred[()]), reduced, x)
        hk.outfeed(result, x.shape)
        return result

    run: Any = hk.compile(program(function, hk.f32[2]), replicas=2)
    results, outfed = run([TWO[0]], [TWO[1]], infeed=[[True, False]] * 2, return_outfeed=True)
    same(results, [[4.0, 7.75]] * 2)
    same([queue[0] for queue in outfed], results)
    with pytest.raises(hk.EvaluationError, match=r"replica 1: .*INFEED-9"):
        run([TWO[0]], [TWO[1]], infeed=[[True, False], [True]])


def test_a_device_that_fails_stops_the_others_in_their_loops() -> None:
    """Replica 0 would never come to the end of its loop; replica 1's queue is empty."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        def endless(v: hk.XlaOp) -> hk.XlaOp:
            return hk.while_(lambda s: hk.gt(hk.abs(s), -1.0), lambda s: s * F(0.5), v)

        return hk.conditional(is_replica(b, 0), x, endless, x, lambda v: v + v.builder.infeed(hk.f32[()]))

    run: Any = hk.compile(program(function, hk.f32[()]), replicas=2)
    with pytest.raises(hk.EvaluationError, match=r"replica 1: .*INFEED-9"):
        run([F(1)], [F(2)])
    assert not [t for t in threading.enumerate() if t.name.startswith("replica")]


def test_the_header_says_how_many_devices_there_are() -> None:
    module = program(lambda b, x: reduced(x), hk.f32[2])
    module.replica_count = 2
    run: Any = hk.compile(module)
    same(run([TWO[0]], [TWO[1]]), [[4.0, 7.75]] * 2)
    one: Any = hk.compile(module, replicas=1)
    same([one(TWO[0])], [TWO[0]])
