"""Jobs of the thread pool under everything at once: every chunk must run once a job, and the process must go on.

    python -m tests.cpu.pool_stress --seconds 600 [--threads 3] [--seed 1]

Several threads call jobs of random sizes, plain, nested and with chunks that rest at random places; handlers of signals
run meanwhile and raise exceptions in the main thread; now and then the process forks, and the child calls jobs of its own.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import warnings

import numpy as np

from hlokit.cpu.jit.pool import pool
from tests.cpu.test_pool import Program, wanted


class Tick(Exception):
    """Raised by the handler of the timer."""


def jobs(program: Program, draw: random.Random) -> int:
    """Some jobs, checked; how many."""
    kind = draw.randrange(4)
    if kind == 0:
        chunks, times = draw.randrange(65), draw.randrange(1, 300)
        np.testing.assert_array_equal(program.jobs(chunks, times), wanted(chunks, times))
        return times
    if kind == 1:
        chunks, times = draw.randrange(1, 40), draw.randrange(1, 60)
        result = program.resting(chunks, times, draw.randrange(1 << 30))
        np.testing.assert_array_equal(result, times * np.arange(1, chunks + 1))
        return times
    if kind == 2:
        chunks = draw.randrange(1, 12)
        np.testing.assert_array_equal(program.nested(chunks), [wanted(8, 1)] * chunks)
        return 1 + chunks
    chunks = draw.choice([1, 2, 65_535, 65_536, 200_000])
    np.testing.assert_array_equal(program.marked(chunks, 2)[:-1], 2 * np.arange(1, chunks + 1))
    return 2


def forked(program: Program, seed: int) -> None:
    """A child that calls jobs of its own."""
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # ends a child that hangs
        draw = random.Random(seed)
        try:
            for _ in range(5):
                jobs(program, draw)
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0, status


def stress(threads: int, seconds: float, seed: int) -> tuple[int, int, int]:
    """How many jobs, forks and exceptions there were."""
    program = Program(pool(threads))
    program.jobs(8, 1)
    end = time.monotonic() + seconds
    failures: list[BaseException] = []
    counts = [0] * 3

    def caller(number: int) -> None:
        draw = random.Random(seed * 10 + number)
        try:
            while time.monotonic() < end and not failures:
                counts[number] += jobs(program, draw)
                if draw.randrange(8) == 0:
                    time.sleep(draw.random() * 0.002)
        except BaseException as error:
            failures.append(error)

    others = [threading.Thread(target=caller, args=(number,)) for number in (1, 2)]
    draw = random.Random(seed * 10)
    forks = ticks = 0

    def tick(*_: object) -> None:
        raise Tick

    signal.signal(signal.SIGALRM, tick)
    for other in others:
        other.start()
    while time.monotonic() < end and not failures:
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.random() * 0.05 + 1e-4)
            while True:
                counts[0] += jobs(program, draw)
        except Tick:
            ticks += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        if draw.randrange(20) == 0:
            forked(program, draw.randrange(1 << 30))
            forks += 1
    for other in others:
        other.join()
    if failures:
        raise failures[0]
    return sum(counts), forks, ticks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 3, 5, 9])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    for threads in options.threads:
        faulthandler.dump_traceback_later(options.seconds * 3 + 120, exit=True)
        done = stress(threads, options.seconds / len(options.threads), options.seed)
        print(
            f"{threads} threads, seed {options.seed}: {done[0]} jobs, {done[1]} forks, {done[2]} exceptions", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
