"""Runs of several devices without Python (hlokit.runtime.native_grid)."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.devices import grid as threads
from hlokit.errors import ArgumentError
from hlokit.runtime import native_grid
from tests.devices.programs import F, add, is_replica, program

LOOP = """
HloModule loop
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
body {
  s = (s32[], f32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[] get-tuple-element(s), index=1
  sum = f32[] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  half = f32[] constant(0.5)
  y = f32[] multiply(sum, half)
  ROOT t = (s32[], f32[]) tuple(next, y)
}
condition {
  s = (s32[], f32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  last = s32[] constant(COUNT)
  ROOT p = pred[] compare(n, last), direction=LT
}
ENTRY main {
  x = f32[] parameter(0)
  id = u32[] partition-id()
  f = f32[] convert(id)
  y = f32[] add(x, f)
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, y)
  w = (s32[], f32[]) while(t), condition=condition, body=body
  ROOT r = f32[] get-tuple-element(w), index=1
}
"""


def compiled(module: hk.HloModule, **counts: int) -> Any:
    run: Any = hk.compile(module, **counts)
    assert run.grid is not None
    return run


@pytest.fixture
def no_threads_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("devices run in threads of Python")

    monkeypatch.setattr(threads.Grid, "run", refused)


@pytest.mark.parametrize("count", [2, 5])
def test_devices_meet_in_loops_and_ask_which_they_are(count: int, no_threads_of_python: None) -> None:
    groups = "{{" + ",".join(map(str, range(count))) + "}}"
    module = hk.parse(LOOP.replace("COUNT", "40").replace("{{0,1}}", groups).replace("0.5", str(1 / count)))
    run = compiled(module, partitions=count)
    for _ in range(3):
        results = run(*([F(1)] for _ in range(count)))
        assert np.allclose(results, 1 + (count - 1) / 2)


def test_programs_without_meetings(no_threads_of_python: None) -> None:
    run = compiled(program(lambda b, x: x * x, hk.f32[3]), replicas=3)
    results = run(*([F([r, 1, 2])] for r in range(3)))
    assert [r.tolist() for r in results] == [[r * r, 1, 4] for r in range(3)]


def test_devices_that_may_go_different_ways_need_python() -> None:
    def function(b: hk.Builder, x: Any) -> Any:
        alone = hk.conditional(is_replica(b, 0), x, lambda v: hk.all_reduce(v, add, [[0], [1]]), x, lambda v: v)
        return alone

    run: Any = hk.compile(program(function, hk.f32[2]), replicas=2)
    assert run.grid is None
    assert np.array_equal(run([F([1, 2])], [F([3, 4])]), [[1, 2], [3, 4]])


def test_errors_of_arguments_name_the_device() -> None:
    run = compiled(program(lambda b, x: hk.all_reduce(x, add), hk.f32[2]), replicas=2)
    with pytest.raises(ArgumentError, match="replica 1: argument 0"):
        run([F([1, 2])], [F([1, 2, 3])])
    with pytest.raises(ArgumentError, match="one for each of 2 devices"):
        run([F([1, 2])])


def test_calls_at_the_same_time() -> None:
    """One of them has the threads; the others run through Python."""
    run = compiled(program(lambda b, x: hk.all_reduce(x, add), hk.s32[50_000]), replicas=2)
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(20):
            results = run(*([np.full(50_000, number + r, np.int32)] for r in range(2)))
            wrong.extend(number for r in results if (r != 2 * number + 1).any())

    callers = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_donated_arguments_are_overwritten(no_threads_of_python: None) -> None:
    """Unless two devices have the same one."""
    module = program(lambda b, w, x: w - hk.all_reduce(x, add), hk.f32[4096], hk.f32[4096])
    run: Any = hk.compile(module, replicas=2, donate=[0])
    weights, x = [np.full(4096, r + 9, np.float32) for r in range(2)], np.full(4096, 2, np.float32)
    results = run(*([w, x] for w in weights))
    assert all(r is w for r, w in zip(results, weights, strict=True)) and [r[0] for r in results] == [5, 6]
    results = run([weights[0], x], [weights[0], x])
    assert [r[0] for r in results] == [1, 1] and weights[0][0] == 5


def test_an_interrupt_ends_all_devices() -> None:
    """The first device hears the signal; the other one stops where it waits, and the next run is as any."""
    run = compiled(hk.parse(LOOP.replace("COUNT", "2000000000")), partitions=2)
    short = compiled(hk.parse(LOOP.replace("COUNT", "4")), partitions=2)
    start = time.monotonic()
    for _ in range(2):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run([F(1)], [F(1)])
    assert time.monotonic() - start < 20
    assert np.allclose(short([F(1)], [F(1)]), 1.5)


def test_a_child_of_a_fork_has_threads_of_its_own() -> None:
    run = compiled(program(lambda b, x: hk.all_reduce(x, add), hk.f32[2]), replicas=2)
    run([F([1, 2])], [F([3, 4])])
    child = os.fork()
    if not child:
        try:
            good = np.array_equal(run([F([1, 2])], [F([3, 4])])[0], [4, 6])
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_groups_of_one_and_large_arrays() -> None:
    def function(b: hk.Builder, x: Any) -> Any:
        alone = hk.all_reduce(x, add, [[0], [1], [2], [3]])
        return hk.all_gather(hk.all_reduce(alone, add, [[0, 1], [2, 3]]), 0, 2, [[0, 2], [1, 3]])

    module = program(function, hk.f32[30_000])
    args = [[np.random.default_rng(r).standard_normal(30_000).astype(np.float32)] for r in range(4)]
    wanted = hk.evaluate(module, *args, replicas=4)
    results = compiled(module, replicas=4)(*args)
    assert all(np.array_equal(r, w) for r, w in zip(results, wanted, strict=True))


def test_kernels_of_a_device_have_threads_of_their_own() -> None:
    run: Any = hk.compile(program(lambda b, x: hk.tanh(x), hk.f32[100_000]), replicas=2, threads=4)
    grid = native_grid.native_grid(run)
    assert grid is not None
    workers = [words[len(grid.caller.constants) + 1] for words in grid.fixed]
    assert len(set(workers)) == 2 and all(workers)
