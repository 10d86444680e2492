"""A process of one framework: reads requests as lines of JSON, answers each with a line.

load      program, arguments (a folder), copies (to run at once)     -> hlo_text
compile   hlo (a file, for an engine that does not lower)            -> seconds
first     store (a folder for the results) or compare (one of those) -> bytes_out, error (in units of the tolerance)
sample    seconds, least                                             -> times_ms
bursts    seconds, count (calls), period (seconds)                   -> times_ms, of a burst
drop
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy reads its type names
import numpy as np

from bench.engines import KINDS, Absent, Engine
from bench.programs import named
from bench.programs.program import aligned
from bench.results import excess, load, store

SHORTEST_SAMPLE = 50e-6  # seconds; shorter calls are timed several at once

LONG = 3.0  # seconds


class Worker:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.engine: Engine | None = None
        self.copies: list[Engine] = []
        self.warm = False

    def load(self, program: str, arguments: str, copies: int = 1) -> dict[str, Any]:
        self.engine, self.copies = None, []
        if not self.warm:
            self.warm = True
            KINDS[self.kind].warm_up()
        made = [
            KINDS[self.kind](named(program), [aligned(value) for value in load(Path(arguments))]) for _ in range(copies)
        ]
        self.engine, self.copies = made[0], made[1:]
        return {"hlo_text": self.engine.text()}

    def loaded(self) -> Engine:
        assert self.engine is not None, "no program is loaded"
        return self.engine

    def compile(self, hlo: str | None = None) -> dict[str, Any]:
        text = None if hlo is None else Path(hlo).read_text(encoding="utf-8")
        for copy in self.copies:
            copy.compile(text)
            copy.first()
        return {"seconds": self.loaded().compile(text)}

    def first(self, store_in: str | None = None, compare: str | None = None) -> dict[str, Any]:
        engine = self.loaded()
        results = engine.first()
        if store_in is not None:
            store(results, Path(store_in))
        reply: dict[str, Any] = {"bytes_out": sum(result.nbytes for result in results)}
        if compare is not None:
            reply["error"] = excess(engine.program, results, load(Path(compare)))
        return reply

    def sample(self, seconds: float, least: int) -> dict[str, Any]:
        """Times of one call in milliseconds: of as many as fit, and at least `least`. The caches are warmed first.

        Where a call takes LONG, that first one is all. The copies run meanwhile, each in a thread.
        """
        ended = threading.Event()

        def beside(engine: Engine) -> None:
            while not ended.is_set():
                engine.run(1)

        others = [threading.Thread(target=beside, args=(copy,)) for copy in self.copies]
        for other in others:
            other.start()
        try:
            return self.sampled(seconds, least)
        finally:
            ended.set()
            for other in others:
                other.join()

    def bursts(self, seconds: float, count: int, period: float) -> dict[str, Any]:
        """Times in milliseconds of `count` calls in a row, one row a period."""
        engine = self.loaded()
        engine.run(count)
        times: list[float] = []
        begin = time.perf_counter()
        while (start := time.perf_counter()) < begin + seconds:
            engine.run(count)
            took = time.perf_counter() - start
            times.append(took * 1e3)
            time.sleep(max(0.0, period - took))
        return {"times_ms": times}

    def sampled(self, seconds: float, least: int) -> dict[str, Any]:
        engine = self.loaded()
        clock = time.perf_counter
        start = clock()
        engine.run(1)
        warm = clock() - start
        if warm >= LONG:
            return {"times_ms": [warm * 1e3]}
        if warm < SHORTEST_SAMPLE * 10:
            engine.run(3)
            start = clock()
            engine.run(3)
            warm = (clock() - start) / 3
        inner = max(1, int(SHORTEST_SAMPLE / max(warm, 1e-8)))
        times: list[float] = []
        gc.disable()
        end = clock() + seconds
        while True:
            start = clock()
            engine.run(inner)
            stop = clock()
            times.append((stop - start) / inner * 1e3)
            if stop >= end and len(times) >= least:
                break
        gc.enable()
        return {"times_ms": times}

    def drop(self) -> dict[str, Any]:
        self.engine, self.copies = None, []
        gc.collect()
        return {}


def main() -> None:
    requests = sys.stdin
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no reply
    worker = Worker(sys.argv[1])
    np.seterr(all="ignore")
    for line in requests:
        request = json.loads(line)
        act = getattr(worker, request.pop("do"))
        try:
            reply = act(**request)
        except Exception as problem:  # the row says it
            traceback.print_exc()
            worker.engine = None
            reply = {"failed": f"{type(problem).__name__}: {problem}", "absent": isinstance(problem, Absent)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
