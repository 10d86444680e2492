"""JAX functions in all types and several sizes on hlokit and on JAX's CPU client, in turns, in one process.

    python -m bench.functions [--only 'softmax|tanh'] [--once] [--csv FILE]
    HLOKIT_TARGET=x86-64-avx2 XLA_FLAGS=--xla_cpu_max_isa=AVX2 python -m bench.functions

A line for each: times XLA's speed, microseconds of hlokit and of XLA, milliseconds of their first calls, and whether
results differ. The 495 cases of one shape take three minutes; `--once` compares results alone. The exit status says if
any differ; sums and transcendental functions in bf16 and f16 may (XLA rounds after each step, or not at all).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "hlokit,cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = ("bfloat16", "float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
COMPLEX = ("complex64",)
ALL = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
REAL = (*INTEGERS, *FLOATS)

Call = Callable[[Any, Any], Any]

ELEMENTS: dict[str, Call] = {
    "exp": lambda x, y: jnp.exp(x), "expm1": lambda x, y: jnp.expm1(x), "log": lambda x, y: jnp.log(jnp.abs(x)),
    "log1p": lambda x, y: jnp.log1p(jnp.abs(x)), "tanh": lambda x, y: jnp.tanh(x), "erf": lambda x, y: lax.erf(x),
    "sine": lambda x, y: jnp.sin(x), "rsqrt": lambda x, y: lax.rsqrt(jnp.abs(x) + 1),
    "gelu": lambda x, y: jax.nn.gelu(x),
    "sigmoid": lambda x, y: jax.nn.sigmoid(x), "softplus": lambda x, y: jax.nn.softplus(x),
    "power": lambda x, y: jnp.abs(x) ** y, "atan2": lambda x, y: jnp.arctan2(x, y),
    "divide": lambda x, y: x / (y * y + 1),
    "erf_inv": lambda x, y: lax.erf_inv(jnp.tanh(x)), "softmax": lambda x, y: jax.nn.softmax(x, -1),
    "softmax0": lambda x, y: jax.nn.softmax(x, 0), "logsumexp": lambda x, y: jax.nn.logsumexp(x, -1),
    "norm": lambda x, y: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
}  # fmt: skip
WHOLE: dict[str, Call] = {
    "quotient": lambda x, y: lax.div(x, jnp.maximum(y, 1)), "rest": lambda x, y: lax.rem(x, jnp.maximum(y, 1)),
    "third": lambda x, y: x // 3, "shift": lambda x, y: (x << 2) ^ (x >> 1),
    "bits": lambda x, y: lax.population_count(x & y), "zeros": lambda x, y: lax.clz(x),
    "or": lambda x, y: lax.reduce(x, np.zeros((), x.dtype), lax.bitwise_or, (0,)),
}  # fmt: skip
REDUCTIONS: dict[str, Call] = {
    "maximum": lambda x, y: x.max(1), "maximum0": lambda x, y: x.max(0), "argmax": lambda x, y: x.argmax(1),
    "argmin0": lambda x, y: x.argmin(0), "above": lambda x, y: (x > 2).any(0), "below": lambda x, y: (x < 40).all(1),
    "count": lambda x, y: (x > y).sum(0), "cummax": lambda x, y: lax.cummax(x, 1),
    "cummax0": lambda x, y: lax.cummax(x, 0),
    "sort": lambda x, y: jnp.sort(x, 1), "sort0": lambda x, y: jnp.sort(x, 0), "top": lambda x, y: lax.top_k(x, 5),
}  # fmt: skip
SUMS: dict[str, Call] = {
    "sum": lambda x, y: x.sum(1), "sum0": lambda x, y: x.sum(0), "cumsum": lambda x, y: jnp.cumsum(x, 1),
    "cumsum0": lambda x, y: jnp.cumsum(x, 0), "product": lambda x, y: x[:200, :150] @ y[:170, :150].T,
    "gram": lambda x, y: x[:, :150].T @ y[:, :90], "squares": lambda x, y: (x * y).sum(),
}  # fmt: skip
MOVES: dict[str, Call] = {
    "transpose": lambda x, y: x.T, "both ways": lambda x, y: jnp.stack([x[:20, :20], y[:20, :20].T]),
    "outer": lambda x, y: jnp.where(x[0][:, None] == y[:, 0][None], x[0][:, None], y[:, 0][None]),
    "reverse": lambda x, y: x[::-1, ::-1], "roll": lambda x, y: jnp.roll(x, (3, 7), (0, 1)),
    "stride": lambda x, y: x[::2, 1::3], "pad": lambda x, y: lax.pad(x, x[0, 0], ((2, 3, 1), (-1, 7, 0))),
    "concatenate": lambda x, y: jnp.concatenate([x, y], 1), "stack": lambda x, y: jnp.stack([x, y, x], -1),
    "repeat": lambda x, y: jnp.repeat(x, 3, 1), "rows": lambda x, y: x[jnp.arange(300) * 7 % len(x)],
    "columns": lambda x, y: x[:, jnp.arange(300) * 7 % x.shape[1]], "select": lambda x, y: jnp.where(x == y, x, y),
    "rows set": lambda x, y: x.at[jnp.arange(20)].set(y[:20]),
    "upsample": lambda x, y: jnp.repeat(jnp.repeat(x[:99], 2, 0), 2, 1),
}  # fmt: skip
TABLE = ((ELEMENTS, FLOATS), (WHOLE, INTEGERS), (REDUCTIONS, REAL), (SUMS, (*REAL, *COMPLEX)), (MOVES, ALL))
SHAPES = ((512, 1024), (24, 40), (333, 350), (1536, 2048))


@dataclass(frozen=True)
class Case:
    """A function of two arrays of a type and a shape."""

    name: str
    type: str
    shape: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} {self.type} {self.shape[0]}x{self.shape[1]}"

    def arguments(self) -> list[Any]:
        """The arrays, the same each time."""
        draw = np.random.default_rng([*self.shape])
        return [self._of(draw) for _ in range(2)]

    def _of(self, draw: np.random.Generator) -> Any:
        x = draw.standard_normal(self.shape)
        if self.type in COMPLEX:
            return (x + 1j * draw.standard_normal(self.shape)).astype(self.type)
        if self.type == "bool":
            return x > 1
        if self.type in INTEGERS:
            x = (x * 20).clip(-100, 100).astype(np.int64)
            return (np.abs(x) if self.type[0] == "u" else x).astype(self.type)
        return jnp.asarray(x, self.type)


def cases() -> Iterator[tuple[Case, Call]]:
    """All of them."""
    for functions, types in TABLE:
        for name, call in functions.items():
            for type in types:
                for shape in SHAPES:
                    yield Case(name, type, shape), call


def differ(ours: Any, theirs: Any) -> bool:
    """Whether results differ by more than rounding may make of them."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.kind in "biu":
            if not np.array_equal(x, y):
                return True
            continue
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        room = {2: 2e-2, 4: 1e-4}.get(x.real.dtype.itemsize, 1e-9)
        x, y = x.astype(wide), y.astype(wide)
        largest = np.nanmax(np.abs(y), initial=0, where=np.isfinite(y))
        if not np.allclose(x, y, rtol=room, atol=room * largest, equal_nan=True):
            return True
    return False


def _once(call: Any, arguments: list[Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start


def measured(call: Call, case: Case, once: bool) -> tuple[list[float], list[float], bool]:
    """Seconds of a call (a third of the calls take less) and of the first one, on both; whether results differ."""
    sides: list[tuple[Any, list[Any]]] = []
    first: list[float] = []
    results: list[Any] = []
    for platform in ("hlokit", "cpu"):
        arguments = [jax.device_put(x, jax.devices(platform)[0]) for x in case.arguments()]
        jax.block_until_ready(arguments)
        start = time.perf_counter()
        compiled = jax.jit(call).lower(*arguments).compile()
        results.append(jax.block_until_ready(compiled(*arguments)))
        first.append(time.perf_counter() - start)
        sides.append((compiled, arguments))
    times: list[list[float]] = [[], []]
    for _ in range(0 if once else 3):
        for k, (compiled, arguments) in enumerate(sides):
            start = time.perf_counter()
            while time.perf_counter() - start < 0.04:
                times[k].append(_once(compiled, arguments))
    return [sorted(t)[len(t) // 3] if t else 0.0 for t in times], first, differ(*results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression: cases whose names it is found in")
    parser.add_argument("--once", action="store_true", help="compare results alone")
    parser.add_argument("--csv", help="the file for all lines")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    lines: list[str] = []
    ratios: list[float] = []
    wrong = 0
    for case, call in cases():
        if not re.search(options.only, str(case)):
            continue
        (ours, theirs), (first, other), is_wrong = measured(call, case, options.once)
        ratio = theirs / ours if ours else 1.0
        ratios.append(ratio)
        wrong += is_wrong
        numbers = [ours * 1e6, theirs * 1e6, first * 1e3, other * 1e3]
        lines.append(",".join([str(case), f"{ratio:.3f}", *(f"{number:.1f}" for number in numbers), f"{is_wrong:d}"]))
        shown = f"{ratio:7.2f} {numbers[0]:9.1f} {numbers[1]:9.1f} us  {numbers[2]:4.0f} {numbers[3]:4.0f} ms  {case}"
        print(f"{shown}  DIFFERS" if is_wrong else shown, flush=True)
    if options.csv:
        heads = "case,times_xla,hlokit_us,xla_us,first_hlokit_ms,first_xla_ms,differs"
        Path(options.csv).write_text("\n".join([heads, *lines]) + "\n", encoding="utf-8")
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else 0.0
    below = sum(ratio < 1 for ratio in ratios)
    print(f"{len(ratios)} cases, geometric mean {mean:.2f} times XLA, {below} below 1; {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
