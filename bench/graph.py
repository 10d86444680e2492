"""What the graph costs per instruction at 20,000 instructions, in CPU time (the architecture's budget).

    python bench/graph.py [--instructions 20000]

Not a test: it prints figures.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import hlokit as hk
from hlokit.hlo.computation import Computation
from hlokit.ops.elementwise import Add, Multiply
from hlokit.ops.movement import Transpose
from hlokit.ops.reshaping import Reshape
from hlokit.ops.structure import Parameter
from hlokit.ops.transcendental import Tanh

BUDGET_US = {"graph: add + infer": 6.0, "verify": 3.0, "parse": 150.0, "print": 50.0}


def graph(count: int) -> hk.HloModule:
    """A mix of elementwise ops and data movement, straight into a computation."""
    module = hk.HloModule("bench")
    entry = module.add_computation(Computation("main", module), entry=True)
    x = entry.add(Parameter(0, hk.f32[32, 64]), name="x")
    y = x
    shapes = (hk.f32[64, 32], hk.f32[32, 64])
    for _ in range((count - 1) // 5):
        y = entry.add(Add(), [x, y])
        y = entry.add(Tanh(), [y])
        y = entry.add(Multiply(), [y, x])
        t = entry.add(Transpose((1, 0)), [y])
        y = entry.add(Reshape(output_shape=shapes[1]), [t])
    entry.set_root(y)
    return module


def built(count: int) -> hk.HloModule:
    """The same by the builder's op functions, source locations included."""
    b = hk.Builder("bench")
    x = b.parameter(0, hk.f32[32, 64], "x")
    y = x
    for _ in range((count - 1) // 5):
        y = hk.mul(hk.tanh(hk.add(x, y)), x)
        y = hk.reshape(hk.transpose(y, (1, 0)), (32, 64))
    return b.build(y)


def cpu_us(run: Callable[[], Any], count: int, repeat: int = 3) -> tuple[float, Any]:
    """The least CPU time of a few runs, in microseconds per instruction; and the last result."""
    times: list[float] = []
    result: Any = None
    for _ in range(repeat):
        result = None
        gc.collect()
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return min(times) / count * 1e6, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", type=int, default=20000)
    count = parser.parse_args().instructions
    rows: list[tuple[str, float]] = []
    cost, module = cpu_us(lambda: graph(count), count)
    rows.append(("graph: add + infer", cost))
    rows.append(("builder functions", cpu_us(lambda: built(count), count)[0]))
    rows.append(("verify", cpu_us(lambda: hk.verify(module), count)[0]))
    cost, text = cpu_us(module.to_text, count)
    rows.append(("print", cost))
    rows.append(("parse", cpu_us(lambda: hk.parse(text), count)[0]))
    print(f"{count} instructions, CPU time, best of 3")
    for name, us in rows:
        budget = BUDGET_US.get(name)
        print(f"  {name:20} {us:7.2f} us/instruction" + (f"   budget {budget:g}" if budget else ""))


if __name__ == "__main__":
    main()
