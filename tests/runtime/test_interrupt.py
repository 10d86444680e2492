"""Signals reach a program that is in machine code."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu import jit
from hlokit.cpu.target import baseline, host
from hlokit.runtime.call import Caller
from hlokit.runtime.interrupt import raise_interrupt, symbols, text

LOOP = """
declare i32 @hlokit_interrupted()

; runs until it is interrupted, or the number of its argument is not 0
define i32 @entry(ptr %t) {
entry:
  %at = load ptr, ptr %t
  br label %loop
loop:
  %stop = load volatile i32, ptr %at
  %enough = icmp ne i32 %stop, 0
  br i1 %enough, label %end, label %ask
ask:
  %status = call i32 @hlokit_interrupted()
  %done = icmp ne i32 %status, 0
  br i1 %done, label %end, label %loop
end:
  %result = phi i32 [ 0, %loop ], [ %status, %ask ]
  ret i32 %result
}
"""


def endless(release: bool) -> Caller:
    library = jit.Library([jit.compile_object(LOOP, host())], symbols())
    return Caller(
        library.address("entry"), [hk.s32[1]], [hk.s32[1]], keep=library, failed=raise_interrupt, release=release
    )


class Stop(Exception):
    pass


@pytest.mark.parametrize("way", ["call", "slow"])
@pytest.mark.parametrize("release", [True, False])
def test_a_handler_that_raises_ends_the_loop(way: str, release: bool) -> None:
    def raising(number: int, frame: object) -> None:
        raise Stop(number)

    caller = endless(release)
    former = signal.signal(signal.SIGALRM, raising)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Stop) as error:
            getattr(caller, way)(zeros())
        assert error.value.args == (signal.SIGALRM,)
        assert any(entry.name == "raising" for entry in error.traceback)
    finally:
        signal.signal(signal.SIGALRM, former)


def test_ctrl_c() -> None:
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        endless(True).call(zeros())
    raise_interrupt()  # nothing is left over


def test_a_handler_that_returns_lets_the_loop_go_on() -> None:
    array = zeros()
    seen: list[int] = []

    def handler(number: int, frame: object) -> None:
        seen.append(number)
        array[0] = 1

    former = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        endless(True).call(array)
        assert seen == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, former)


def test_other_threads_go_on() -> None:
    array = zeros()
    thread = threading.Thread(target=endless(True).call, args=(array,))
    thread.start()
    time.sleep(0.06)
    assert thread.is_alive()
    array[0] = 1
    thread.join(10)
    assert not thread.is_alive()


def test_the_code_is_made_for_other_machines() -> None:
    for name in ("x86-64", "aarch64"):
        assert "hlokit_interrupted" in jit.assembly(text(baseline(name)), baseline(name))


def zeros() -> np.ndarray:
    return np.zeros(1, np.int32)
