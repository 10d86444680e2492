"""Where compile time goes: parse, passes and each part of making machine code, for the stored benchmark programs.

python -m bench.compile_profile [REGEX] [--rounds N] [--xla]
python -m bench.compile_profile --file PROGRAM.hlo ... [--rounds N]

A table in milliseconds of processor time of all threads, the least of the rounds, without the object cache and
without what the process made before. Columns:
parse, passes, lower (instructions to kernels), arrange (their loops), buffers, emit (text of kernels), routine (of
matrix products and the like), entry, read (LLVM's parser and its passes), code, link, all; text (KB), functions. With
--xla also XLA's compile, and the geometric mean of all over it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HLOKIT_CACHE_DIR"] = ""

from bench.lower import FOLDER, stored_text

COLUMNS = ("parse", "passes", "lower", "arrange", "buffers", "emit", "routine", "entry", "read", "code", "link", "all")


class Clock:
    """Milliseconds by part; a part within another counts for itself alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.inner = 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            outer, self.inner = self.inner, 0.0
            start = time.process_time()
            try:
                return function(*args, **named)
            finally:
                took = (time.process_time() - start) * 1e3
                self.spent[name] = self.spent.get(name, 0.0) + took - self.inner
                self.inner = outer + took

        return call


def measured(clock: Clock) -> None:
    """Puts the clock round the compiler's parts."""
    from hlokit.cpu import compiler, emit
    from hlokit.cpu.emit import preparation
    from hlokit.cpu.jit import objects as jit
    from hlokit.cpu.lower import drafts
    from hlokit.runtime import code, plan

    def wrap(owner: Any, attribute: str, name: str) -> None:
        setattr(owner, attribute, clock.timed(name, getattr(owner, attribute)))

    wrap(compiler, "optimize", "passes")
    wrap(compiler, "lower", "lower")
    wrap(drafts, "arrange", "arrange")
    wrap(preparation, "KernelWriter", "emit")
    wrap(emit.KernelWriter, "write", "emit")
    wrap(compiler.Preparation, "write_routines", "routine")
    wrap(compiler, "assign", "buffers")
    wrap(compiler.EntryWriter, "entry", "entry")
    wrap(jit, "_prepared", "read")
    wrap(plan, "compiled_objects", "code")
    wrap(code.Code, "__init__", "link")


def compiled(text: str, clock: Clock) -> tuple[dict[str, float], Any]:
    import hlokit as hk
    from hlokit.cpu.jit import objects as jit

    jit.forget()
    clock.spent, clock.inner = {}, 0.0
    start = time.process_time()
    module = clock.timed("parse", hk.parse)(text)
    executable = hk.compile(module, threads=1)
    took = (time.process_time() - start) * 1e3
    return clock.spent | {"all": took}, executable


def xla_ms(name: str) -> float:
    import jax

    from bench.lower import jitted
    from bench.programs import select

    (program,) = select(f"^{re.escape(name)}$")
    with jax.enable_x64(program.x64):
        specs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in program.draw()]
        lowered = jitted(program).lower(*specs)
        start = time.process_time()
        lowered.compile()
        return (time.process_time() - start) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", metavar="REGEX")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--file", type=Path, nargs="+", default=[], metavar="HLO", help="these programs instead")
    options = parser.parse_args()
    clock = Clock()
    measured(clock)
    names = [path.name.removesuffix(".hlo.gz") for path in sorted(FOLDER.glob("*.hlo.gz"))]
    texts = {name: partial(stored_text, name) for name in names if re.search(options.only, name)}
    if options.file:
        texts = {path.name: partial(path.read_text, encoding="utf-8") for path in options.file}
        options.xla = False  # XLA compiles the stored programs from their JAX functions
    print(
        f"{'':34s}"
        + "".join(f"{c:>9s}" for c in COLUMNS)
        + f"{'text':>7s}{'functions':>10s}"
        + ("      xla" if options.xla else "")
    )
    totals = dict.fromkeys(COLUMNS, 0.0)
    ratios: list[float] = []
    for name, read in texts.items():
        rounds: list[dict[str, float]] = []
        executable: Any = None
        for _ in range(options.rounds):
            row, executable = compiled(read(), clock)
            rounds.append(row)
        best = min(rounds, key=lambda r: r["all"])
        for column in COLUMNS:
            totals[column] += best.get(column, 0.0)
        text = executable.program.text
        line = f"{name:34s}" + "".join(f"{best.get(c, 0.0):9.1f}" for c in COLUMNS)
        line += f"{len(text) // 1000:7d}{text.count(chr(10) + 'define'):10d}"
        if options.xla:
            xla = xla_ms(name)
            ratios.append(best["all"] / xla)
            line += f"{xla:9.1f}"
        print(line, flush=True)
    print(f"{'sum':34s}" + "".join(f"{totals[c]:9.1f}" for c in COLUMNS))
    if ratios:
        print(f"geometric mean over XLA's: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
