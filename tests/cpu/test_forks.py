"""Children of forks, made while other threads of the process are at work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from hlokit import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
_COMPILES = """
import faulthandler, os, threading, time, warnings
import numpy as np
import hlokit as hk

warnings.simplefilter("ignore")
over = False


def compile(name, n):
    b = hk.Builder(name)
    x = b.parameter(0, hk.f32[n, n], "x")
    y = hk.exp(hk.sin(hk.dot(x, x)))
    return hk.compile(b.build(y))(np.zeros((n, n), np.float32))


def work(thread):
    count = 0
    while not over:
        count += 1
        compile(f"thread_{thread}_{count}", 4 + count % 9)


threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
for thread in threads:
    thread.start()
codes = []
for number in range(FORKS):
    time.sleep(0.03 * number)
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(0 if (compile(f"child_{number}", 5) == 1).all() else 3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over = True
for thread in threads:
    thread.join()
print(codes)
"""


def exit_code(child: Callable[[], int]) -> int:
    """Of a forked child."""
    process = os.fork()
    if not process:
        code = 99
        try:
            code = child()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_fork_waits_until_nobody_is_inside() -> None:
    inside, outside = threading.Event(), threading.Event()

    @forks.unforked
    def work() -> None:
        inside.set()
        threading.Event().wait(0.3)
        helper = threading.Thread(target=lambda: None)
        helper.start()
        helper.join()
        outside.set()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert exit_code(lambda: 0 if outside.is_set() else 1) == 0
    thread.join()


def test_who_is_inside_may_fork() -> None:
    assert forks.unforked(lambda: exit_code(lambda: forks.unforked(lambda: 7)()))() == 7


def test_locks_are_free_in_the_child() -> None:
    lock = forks.lock()
    with lock:
        assert exit_code(lambda: 0 if lock.acquire(timeout=10) else 1) == 0
        assert lock.locked()


def test_a_result_is_made_once_and_again_in_a_child_that_came_meanwhile() -> None:
    begun, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    @forks.once
    def result() -> list[int]:
        begun.set()
        if not made:
            go_on.wait()
        made.append(len(made))
        return made

    threads = [threading.Thread(target=result) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    assert result.is_made

    def child() -> int:
        made.append(-1)  # does not wait for a thread that it does not have
        return len(result())

    assert exit_code(child) == 2
    go_on.set()
    for thread in threads:
        thread.join()
    assert result() is made and made == [0]


def test_children_exit_without_waiting_for_what_their_parents_do_in_the_background() -> None:
    source = """
import os, sys, threading
from hlokit.stack import in_background
go_on = threading.Event()
in_background(lambda: (go_on.wait(), print("done", flush=True)))
child = os.fork()
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    go_on.set()
else:
    sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "7\ndone\n", done.stderr


@pytest.mark.parametrize("forks", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_children_compile_that_were_forked_while_others_did(forks: int) -> None:
    environment = {**os.environ, "HLOKIT_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILES.replace("FORKS", str(forks))],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str([0] * forks), done.stderr
