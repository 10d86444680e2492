"""What a reviewer found broken."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.analysis.rendezvous import PROVED, UNDECIDED, check_rendezvous
from hlokit.analysis.simulation import simulate
from hlokit.devices import grid as grids
from hlokit.devices.grid import Grid
from hlokit.tools.main import main

_ADD = """
add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# -- threads


class _Halted:
    """In place of what stops native code: the threads that are stopped now."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def halt(self, threads: Sequence[int]) -> Callable[[], None]:
        self.threads += threads

        def call_off() -> None:
            for thread in threads:
                self.threads.remove(thread)

        return call_off


def test_a_thread_that_is_through_is_stopped_no_more() -> None:
    """Another run may have it before the slowest device of this one is through."""
    halted, slow, all_run = _Halted(), threading.Event(), threading.Barrier(3)
    grid = Grid(["a", "b", "c"], 3, halted.halt)
    errors: list[BaseException] = []

    def fails() -> None:
        all_run.wait()
        raise hk.EvaluationError("it fails")

    def quick() -> None:
        all_run.wait()
        until(lambda: grid.stopped)

    def lasts() -> None:
        all_run.wait()
        slow.wait(20)

    def run() -> None:
        try:
            grid.run([fails, quick, lasts])
        except hk.EvaluationError as error:
            errors.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    try:
        until(lambda: grid.stopped and len(halted.threads) == 1)
    finally:
        slow.set()
        runner.join()
    assert len(errors) == 1
    assert halted.threads == []


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_a_second_interrupt_leaves_no_thread_stopped() -> None:
    halted, slow = _Halted(), threading.Event()
    grid = Grid(["a", "b"], 2, halted.halt)
    timers = [threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)) for delay in (0.1, 0.3)]

    def interrupted() -> None:
        for timer in timers:
            timer.start()
        slow.wait(20)

    with pytest.raises(KeyboardInterrupt):
        grid.run([interrupted, lambda: slow.wait(20)])
    for timer in timers:
        timer.join()
    slow.set()
    until(lambda: halted.threads == [])
    until(lambda: all(t in grids._idle for t in threading.enumerate() if isinstance(t, grids._Worker)))


def test_no_more_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    left = 2

    def starts(thread: threading.Thread) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(grids, "_idle", [])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", starts)
        with pytest.raises(hk.EvaluationError, match="can't start new thread"):
            Grid([f"replica {d}" for d in range(5)]).run([lambda: None] * 5)


# -- rendezvous

_SHARED = (
    "HloModule shared, replica_count=3"
    + _ADD
    + """
shared {
  x = s32[4] parameter(0)
  ROOT r = s32[4] all-reduce(x), replica_groups={}, to_apply=add
}
left {
  x = s32[4] parameter(0)
  ROOT r = s32[4] call(x), to_apply=shared
}
right {
  x = s32[4] parameter(0)
  y = s32[4] multiply(x, x)
  ROOT r = s32[4] call(y), to_apply=shared
}
ENTRY e {
  x = s32[4] parameter(0)
  i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT r = s32[4] conditional(s, x, x, x), branch_computations={left, right, BRANCH}
}
"""
)


@pytest.mark.parametrize("branch", ["right", "shared"])
def test_a_collective_that_is_reached_in_two_ways_is_one(branch: str) -> None:
    """Machine code has a copy of it for each call: those meet too."""
    module = hk.parse(_SHARED.replace("BRANCH", branch))
    args = [[np.full(4, 2 + k, np.int32)] for k in range(3)]
    wanted = hk.evaluate(module, *args)
    run: Any = hk.compile(module)
    for _ in range(2):
        assert [a.tobytes() for a in run(*args)] == [a.tobytes() for a in wanted]


_OPERAND_OF_STATE = (
    "HloModule m, replica_count=2"
    + _ADD
    + """
cond {
  n = s32[] parameter(0)
  z = s32[] constant(0)
  ROOT c = pred[] compare(n, z), direction=GT
}
body {
  n = s32[] parameter(0)
  r = s32[] all-reduce(n), replica_groups={}, to_apply=add
  z = s32[] constant(0)
  k = s32[] multiply(r, z)
  o = s32[] constant(1)
  m = s32[] subtract(n, o)
  ROOT q = s32[] add(m, k)
}
ENTRY e {
  x = s32[1] parameter(0)
  st = (s32[1], s32[2]) all-gather-start(x), replica_groups={}, dimensions={0}
  d = s32[2] all-gather-done(st)
  whole = s32[1] slice(d), slice={[0:1]}
  own = s32[1] get-tuple-element(st), index=0
  n = s32[] reshape(CHOSEN)
  ROOT w = s32[] while(n), condition=cond, body=body
}
"""
)


def test_the_operand_in_the_state_of_an_all_gather_is_the_devices_own() -> None:
    def state(chosen: str) -> str:
        module = hk.parse(_OPERAND_OF_STATE.replace("CHOSEN", chosen))
        return check_rendezvous([module] * 2, 2, 1).state

    assert state("whole") == PROVED
    assert state("own") != PROVED


# -- the command

_TEXT = "HloModule m, replica_count=2\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"


def _header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import zipfile

    (tmp_path / "m.hlo").write_text(_TEXT)
    np.savez(tmp_path / "good.npz", x=np.ones(4, np.float32))
    np.savez(tmp_path / "objects.npz", x=np.array([object()] * 4, dtype=object))
    good = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(good[:100])
    (tmp_path / "changed.npz").write_bytes(good.replace(b"\0\0\x80\x3f", b"\0\0\x80\x40"))
    (tmp_path / "empty.npz").write_bytes(b"")
    for name, content in {"short": b"\x93NUMPY\x01\x00\xff\xff", "huge": _header("(4000000000000,)")}.items():
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            archive.writestr("x.npy", content)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        *(
            ["--input", name]
            for name in ("objects.npz", "cut.npz", "changed.npz", "empty.npz", "short.npz", "huge.npz")
        ),
        ["--random", "-1"],
        ["--random", "1", "--replicas", "100000"],
        ["--random", "1", "--replicas", "99999999999999999999"],
    ],
)
def test_run_with_what_it_cannot_take(
    folder: Path, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["run", "m.hlo", *options])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


# -- members that disagree

_DIVERGES = (
    "HloModule m, replica_count=2"
    + _ADD
    + """
one {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = s32[] constant(1)
  ROOT c = s32[] add(a, k)
}
two {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = s32[] constant(2)
  ROOT c = s32[] add(a, k)
}
greater {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = pred[] compare(a, b), direction=GT
  ROOT c = s32[] select(k, a, b)
}
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = pred[] compare(a, b), direction=LT
  ROOT c = s32[] select(k, a, b)
}
left {
  x = s32[4] parameter(0)
  ROOT r = s32[4] all-reduce(x), replica_groups={}, channel_id=1, to_apply=LEFT
}
right {
  x = s32[4] parameter(0)
  ROOT r = s32[4] all-reduce(x), replica_groups={}, channel_id=1, to_apply=RIGHT
}
ENTRY e {
  x = s32[4] parameter(0)
  i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT r = s32[4] conditional(s, x, x), branch_computations={left, right}
}
"""
)


def _compiled(module: hk.HloModule, *args: Any) -> Any:
    return hk.compile(module)(*args)


@pytest.mark.rule("GRP-6")
@pytest.mark.parametrize("run", [hk.evaluate, _compiled])
@pytest.mark.parametrize(("left", "right"), [("one", "two"), ("greater", "less")])
def test_members_whose_computations_differ_in_attributes(run: Any, left: str, right: str) -> None:
    module = hk.parse(_DIVERGES.replace("LEFT", left).replace("RIGHT", right))
    with pytest.raises(hk.EvaluationError, match=r"computations differ.*GRP-6"):
        run(module, [np.arange(4, dtype=np.int32)], [np.arange(4, dtype=np.int32)])


_SIZES = {
    "all-reduce(x), replica_groups={}, to_apply=add": "s32[<=4,2]",
    "all-gather(x), replica_groups={}, dimensions={1}": "s32[<=4,4]",
    "all-to-all(x), replica_groups={}, dimensions={1}": "s32[<=4,2]",
}


@pytest.mark.rule("GRP-6")
@pytest.mark.parametrize("operation", _SIZES)
def test_members_whose_sizes_differ(operation: str) -> None:
    text = f"HloModule m, replica_count=2\n{_ADD}\nENTRY e {{\n  x = s32[<=4,2] parameter(0)\n"
    module = hk.parse(f"{text}  ROOT r = {_SIZES[operation]} {operation}\n}}\n")
    rows = [[np.ones((n, 2), np.int32)] for n in (3, 2)]
    assert [r.shape[0] for r in hk.evaluate(module, rows[0], rows[0])] == [3, 3]
    with pytest.raises(hk.EvaluationError, match="GRP-6"):
        hk.evaluate(module, *rows)


# -- deep programs


def test_calls_that_nest_deeper_than_python() -> None:
    text = f"HloModule deep, replica_count=2\n{_ADD}\nf0 {{\n  x = s32[4] parameter(0)\n"
    text += "  ROOT r = s32[4] all-reduce(x), replica_groups={}, to_apply=add\n}\n"
    for k in range(1, 600):
        text += f"f{k} {{\n  x = s32[4] parameter(0)\n  ROOT r = s32[4] call(x), to_apply=f{k - 1}\n}}\n"
    module = hk.parse(text + "ENTRY e {\n  x = s32[4] parameter(0)\n  ROOT r = s32[4] call(x), to_apply=f599\n}\n")
    assert check_rendezvous([module] * 2, 2, 1).state == UNDECIDED
    args = [[np.full(4, k, np.int32)] for k in range(2)]
    assert [r.tolist() for r in hk.evaluate(module, *args)] == [[1] * 4] * 2
    with pytest.raises(hk.UnsupportedError, match="nest too deeply"):
        simulate(module, "ring:2", bandwidth=1e9, latency=1e-6)


@pytest.mark.rule("GRP-2")
@pytest.mark.parametrize("command", [["check"], ["run", "--random", "1"]])
def test_more_ids_than_memory(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = "[1,1000000000]<=[1000000000]"
    text = f"HloModule m, replica_count=2\n{_ADD}\nENTRY e {{\n  x = s32[4] parameter(0)\n"
    file = tmp_path / "m.hlo"
    file.write_text(f"{text}  ROOT r = s32[4] all-reduce(x), replica_groups={groups}, to_apply=add\n}}\n")
    with pytest.raises(SystemExit) as ended:
        main([command[0], str(file), *command[1:]])
    assert ended.value.code == 2
    assert "GRP-2" in capsys.readouterr().err
