"""Measures cells of the map in a process of its own: reads numbers of cells as lines, answers each with a line of JSON.

python -m bench.map.worker STEP THREADS XLA
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench.limits import Limits

SECONDS = 0.06
"""Of calls, for each engine and cell."""
_LEAST, _MOST = 3, 2000
_SLOW = 2.0


def best_of(*limits: Limits) -> Limits:
    """The highest rates of several measurements of one machine: other work on it only lowers them."""
    return Limits(
        {kind: max(of.peaks[kind] for of in limits) for kind in limits[0].peaks},
        max(of.vector_ops for of in limits),
        tuple((size, max(of.caches[k][1] for of in limits)) for k, (size, _) in enumerate(limits[0].caches)),
        max(of.memory for of in limits),
        max(of.memory_read for of in limits),
    )


def shortest(calls: list[Callable[[], Any]], clock: Callable[[], float], seconds: float = SECONDS) -> list[float]:
    """Seconds of the shortest call of each, in turns: calls for `seconds`, and at least three within two seconds."""
    found = [float("inf")] * len(calls)
    spent = [0.0] * len(calls)
    for count in range(_MOST):
        pending = [k for k in range(len(calls)) if spent[k] < seconds or (count < _LEAST and spent[k] < _SLOW)]
        for k in pending:
            start = clock()
            calls[k]()
            took = clock() - start
            spent[k] += took
            found[k] = min(found[k], took)
        if not pending:
            break
    return found


def ready(results: Any) -> None:
    """Waits for what a function of JAX returned."""
    import jax

    jax.block_until_ready(results)


class Measurer:
    def __init__(self, step: int, threads: int, with_xla: bool) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if threads == 1:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # XLA takes as many threads as there are cores
        import jax

        from bench.map.cells import cells

        jax.config.update("jax_enable_x64", True)
        self.cells = cells(step)
        self.threads = threads
        self.with_xla = with_xla
        # one thread's time is what it ran, whatever else the core did
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.call = [self.times(lambda x: x + 1, [jax.numpy.float32(1.0).__array__()])[0]]

    def times(self, function: Callable[..., Any], arguments: list[Any]) -> tuple[float, float | None, int, int]:
        """Seconds of hlokit's call and XLA's, and the bytes of arguments and of results."""
        import jax
        import numpy as np

        import hlokit as hk

        lowered = jax.jit(function, keep_unused=True).lower(*arguments)
        executable = hk.compile(hk.parse(lowered.as_text("hlo")), threads=self.threads)
        results = executable(*arguments)
        outputs = results if isinstance(results, (tuple, list)) else (results,)
        sizes = sum(x.nbytes for x in arguments), sum(np.asarray(x).nbytes for x in outputs)
        calls: list[Callable[[], Any]] = [lambda: executable(*arguments)]
        if self.with_xla:
            compiled = lowered.compile()
            placed = [jax.device_put(x) for x in arguments]
            calls.append(lambda: ready(compiled(*placed)))
            calls[1]()
        took = shortest(calls, self.clock)
        return took[0], took[1] if self.with_xla else None, *sizes

    def measured(self, number: int) -> dict[str, Any]:
        from bench.map.cells import drawn

        cell = self.cells[number]
        ours, theirs, bytes_in, bytes_out = self.times(cell.function, drawn(cell))
        return {"seconds": ours, "xla": theirs, "bytes_in": bytes_in, "bytes_out": bytes_out}

    def limits(self) -> dict[str, Any]:
        from bench.measure import measure

        return {"limits": asdict(measure(self.threads)), "call": self.call[0]}


def main() -> None:
    step, threads, with_xla = (int(word) for word in sys.argv[1:4])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    measurer = Measurer(step, threads, bool(with_xla))
    for line in sys.stdin:
        try:
            reply = measurer.limits() if line.strip() == "limits" else measurer.measured(int(line))
        except Exception as error:  # whatever a cell raises is its answer
            traceback.print_exc()
            reply = {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
