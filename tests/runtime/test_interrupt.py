"""Signals reach a program that is in machine code."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.target import baseline, host
from hlokit.runtime.call import Caller
from hlokit.runtime.interrupt import is_interrupt, raise_kept, step_address, symbols, written

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
        library.address("entry"), [hk.s32[1]], [hk.s32[1]], keep=library, failed=raise_kept, release=release
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
    raise_kept()  # nothing is left over


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
        assert "hlokit_interrupted" in jit.assembly(written(baseline(name)), baseline(name))


INTO_PYTHON = """
declare i32 @raise(i32)

; a signal comes, then Python is called: it runs the signal's handler before the function's first line
define i32 @entry(ptr %t) {
  call i32 @raise(i32 $SIGNAL)
  %step.at = getelementptr ptr, ptr %t, i64 3
  %step = load ptr, ptr %step.at
  %function.at = getelementptr ptr, ptr %t, i64 4
  %function = load ptr, ptr %function.at
  %status = call i32 %step(ptr %function, i64 7, ptr %t)
  ret i32 %status
}
"""


def stepping(function: Callable[[int, int], None], number: signal.Signals = signal.SIGINT) -> Caller:
    text = INTO_PYTHON.replace("$SIGNAL", str(int(number)))
    library = jit.Library([jit.compile_object(text, host())])
    return Caller(
        library.address("entry"), [hk.s32[1]], [hk.s32[1]], more=(step_address(), id(function)),
        keep=(library, function), failed=raise_kept,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["call", "slow"])
def test_an_interrupt_before_the_first_line_of_a_step_is_raised(way: str) -> None:
    """A ctypes callback drops it and gives an undefined status."""
    seen: list[int] = []
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            getattr(stepping(lambda number, table: seen.append(number)), way)(zeros())
    assert not seen


@pytest.mark.parametrize("way", ["call", "slow"])
def test_a_handler_that_raises_before_a_steps_first_line(way: str) -> None:
    def raising(number: int, frame: object) -> None:
        raise Stop(number)

    former = signal.signal(signal.SIGUSR1, raising)
    try:
        with pytest.raises(Stop):
            getattr(stepping(lambda number, table: None, signal.SIGUSR1), way)(zeros())
    finally:
        signal.signal(signal.SIGUSR1, former)


POSTPONED = """
declare i32 @raise(i32)
declare void @hlokit_raise_later(ptr)

; an exception is to be raised as soon as Python runs, and a signal comes before
define void @postpone(ptr %error) {
  call void @hlokit_raise_later(ptr %error)
  call i32 @raise(i32 $SIGNAL)
  ret void
}
"""


class Counting:
    """Handlers, each as a callable of another kind, which call functions and go round before they count."""

    def __init__(self) -> None:
        self.count = 0

    def method(self, number: int, frame: object) -> None:
        for _ in range(1000):
            str(sum(range(3)))
        self.count += 1

    __call__ = method


@pytest.mark.parametrize("kind", ["function", "method", "object"])
def test_an_exception_that_waits_leaves_other_signals_their_handlers(kind: str) -> None:
    """The handler runs to its end, then the exception is raised; a handler that raises hands it its own before."""
    text = POSTPONED.replace("$SIGNAL", str(int(signal.SIGUSR1)))
    library = jit.Library([jit.compile_object(text, host())], symbols())
    postpone = ctypes.PYFUNCTYPE(None, ctypes.py_object)(library.address("postpone"))
    counting = Counting()

    def function(number: int, frame: object) -> None:
        counting(number, frame)

    handlers = {"function": function, "method": counting.method, "object": counting}
    former = signal.signal(signal.SIGUSR1, handlers[kind])

    def both() -> None:
        error = Stop(number)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
        postpone(error)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            pass

    try:
        for number in range(20):
            with pytest.raises(Stop) as raised:
                both()
            assert raised.value.args == (number,)
            assert counting.count == number + 1
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_errors_of_steps_are_raised_on_any_thread() -> None:
    def failing(number: int, table: int) -> None:
        raise Stop(number)

    caught: list[object] = []

    def work() -> None:
        with pytest.raises(Stop) as error:
            stepping(failing, signal.SIGCONT).call(zeros())
        caught.append(error.value.args)

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert caught == [(7,), (7,)]


def test_what_is_an_interrupt() -> None:
    def handler(number: int, frame: object) -> None:
        raise Stop(number)

    def raised(work: Callable[[], object]) -> BaseException:
        with pytest.raises(BaseException) as error:
            work()
        return error.value

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        assert is_interrupt(raised(lambda: signal.raise_signal(signal.SIGUSR1)))
        assert is_interrupt(KeyboardInterrupt()) and is_interrupt(SystemExit())
        assert not is_interrupt(raised(lambda: 1 // 0))
        assert not is_interrupt(Stop())
    finally:
        signal.signal(signal.SIGUSR1, former)


def zeros() -> np.ndarray:
    return np.zeros(1, np.int32)
