"""Sends interrupts to a JAX program on hlokit, and accounts for each: run by tests/jax/pjrt/interrupts.py.

Arguments: how many, and a seed. Prints a line of JSON. Every interrupt is a KeyboardInterrupt with a number of its own,
which the program is to catch. Python itself drops those that it raises in destructors and callbacks of its collector:
it tells sys.unraisablehook, and they are counted apart, by what dropped them.
"""

from __future__ import annotations

import ast
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core

JAX = str(Path(jax.__file__).parent)
LONGEST = 120.0
"""Seconds without a sign of life."""


class Sender:
    """Sends interrupts to the main thread from another, at random times, each when the one before has been handled."""

    def __init__(self, count: int, seed: int, compile_seconds: float) -> None:
        self.count = count
        # mostly seldom enough for compiles to end: jaxlib's thread finishes those, too, that an interrupt has abandoned
        self._delays = [0.001, 0.005, 2 * compile_seconds, 8 * compile_seconds]
        self.handled = 0
        self.places: list[list[tuple[str, int, str]]] = []
        """Where each came: file, line and function of each frame."""
        self.caught: set[int] = set()
        self.dropped: dict[int, str] = {}
        self._random = random.Random(seed)
        self._begun = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins, unless it has begun. To be called where interrupts are watched: the first may come at once."""
        if not self._begun:
            self._begun = True
            signal.signal(signal.SIGINT, self._handle)
            sys.unraisablehook = self._drop
            self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.handled >= self.count

    def note(self, error: BaseException | None) -> None:
        """Notes the interrupts that the program has caught: this one, and those that it came upon."""
        errors, seen = [error], set[int]()
        while errors:
            error = errors.pop()
            if error is None or id(error) in seen:
                continue
            seen.add(id(error))
            if isinstance(error, KeyboardInterrupt) and error.args:
                self.caught.add(error.args[0])
            errors += [error.__cause__, error.__context__]

    def watch(self, work: Callable[[], None], errors: Counter[str]) -> None:
        """Does it again and again, and notes what ends it. One watches another: interrupts may come at its own work."""
        while True:
            try:
                work()
                if self.is_done:
                    return
            except BaseException as error:
                self.note(error)
                core.trace_ctx.set_trace(core.eval_trace)  # an interrupt may leave JAX in the midst of tracing
                if not isinstance(error, KeyboardInterrupt):
                    errors[f"{type(error).__name__}: {error}"[:150].splitlines()[0]] += 1

    def lost(self) -> list[list[str]]:
        """Where the others came. JAX has a few `except:`s, which are counted as drops of its own."""
        lost: list[list[str]] = []
        for number in range(self.handled):
            if number in self.caught or number in self.dropped:
                continue
            places = self.places[number]
            swallowing = [name for file, line, name in places if file.startswith(JAX) and swallows(file, line)]
            if swallowing:
                self.dropped[number] = f"except: in JAX's {swallowing[0]}"
            else:
                lost.append([f"{file.rpartition('/')[2]}:{line} {name}" for file, line, name in places[:10]])
        return lost

    def _handle(self, number: int, frame: Any) -> None:
        """Counts the interrupt, and raises it."""
        number, places = self.handled, list[tuple[str, int, str]]()
        while frame is not None:
            places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        self.places.append(places)
        self.handled = number + 1
        if any(name == Sender._drop.__name__ for _, _, name in places):
            self.dropped[number] = "the test's own hook"  # with what it is about to note, if this were raised
            return
        raise KeyboardInterrupt(number)

    def _drop(self, unraisable: Any) -> None:
        error = unraisable.exc_value
        if isinstance(error, KeyboardInterrupt) and error.args:
            self.dropped[error.args[0]] = getattr(unraisable.object, "__qualname__", repr(type(unraisable.object)))

    def _run(self) -> None:
        for number in range(self.count):
            time.sleep(0.0002 + self._random.choice(self._delays) * self._random.random())
            os.kill(os.getpid(), signal.SIGINT)
            while self.handled <= number:
                time.sleep(0.0005)


@cache
def swallows(file: str, line: int) -> bool:
    """Whether the line is in a `try` that ends any exception, without raising it again."""
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            last = node.handlers[-1] if node.handlers else None
            catches_all = last is not None and (last.type is None or ast.unparse(last.type) == "BaseException")
            if catches_all and not any(isinstance(part, ast.Raise) for part in ast.walk(last)):
                return True
    return False


def _compile(k: int) -> None:
    assert jax.jit(lambda x: x * k + 1)(np.ones(3, np.float32)).tolist() == [k + 1] * 3


_WARM = jax.jit(lambda x: jnp.sin(x) @ x)


def _run_warm(k: int) -> None:
    for _ in range(50):
        _WARM(np.full((8, 8), k % 10, np.float32))


def _loop(k: int) -> None:
    jax.lax.while_loop(lambda c: c[0] < 1e6, lambda c: (c[0] + 1, jnp.sin(c[1])), (0.0, 1.0))[1].block_until_ready()


def _call_back(k: int) -> None:
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    f = jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) * np.float32(2), shape, x) + 1)
    assert f(np.float32([k, 1])).tolist() == [2 * k + 1, 3]


def _move(k: int) -> None:
    array = np.arange(60.0, dtype=np.float32).reshape(6, 10)
    for _ in range(20):
        moved = jax.device_put(array[::2, ::-1])
        assert moved.sum() == array[::2].sum() and np.asarray(moved.T).shape == (10, 3)
        moved.delete()


def _ask(k: int) -> None:
    device = jax.devices()[0]
    repr(device), device.platform, [memory.kind for memory in device.addressable_memories()]
    compiled = jax.jit(lambda x: jnp.cos(x) + k).lower(np.float32(1)).compile()
    compiled.cost_analysis(), compiled.memory_analysis(), compiled.as_text(), compiled.runtime_executable().serialize()


def _devices(k: int) -> None:
    f = jax.pmap(lambda x: jax.lax.psum(x, "i") + k, axis_name="i")
    count = jax.device_count()
    assert f(np.ones((count, 2), np.float32)).tolist() == [[count + k] * 2] * count


WORKS: list[Callable[[int], None]] = [_compile, _run_warm, _loop, _call_back, _move, _ask, _devices]


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    for work in WORKS:
        work(1)
    begin = time.perf_counter()
    _compile(2)
    sender = Sender(count, seed, min(time.perf_counter() - begin, 0.05))
    errors, k, rounds = Counter[str](), seed % 8_000 * 1000, 0  # k and 2k + 1 are float32 numbers

    def work_on() -> None:
        nonlocal k, rounds
        sender.start()
        while not sender.is_done:
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            k += 1
            WORKS[k % len(WORKS)](k)
            rounds += 1

    def wait() -> None:
        for _ in range(100):  # what is still to be raised
            sum(range(100))

    faulthandler.dump_traceback_later(LONGEST, exit=True)
    watched: Callable[[], None] = work_on
    for _ in range(4):
        watched = partial(sender.watch, watched, errors)
    watched()
    sender.watch(wait, errors)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jax.clear_caches()
    for work in WORKS:
        work(k + 1)
    lost = sender.lost()
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({
        "sent": count, "handled": sender.handled, "caught": len(sender.caught), "dropped": Counter(sender.dropped.values()),
        "lost": lost,
        "rounds": rounds, "errors": errors,
    }))  # fmt: skip


main()
