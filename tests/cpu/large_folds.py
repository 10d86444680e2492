"""Folds of large arrays of every type against NumPy: python -m tests.cpu.large_folds [--only "or pred"]

What large arrays alone meet: accumulators in rows on the stack, two stages, chunks by rows. Random programs are too
small for it. For another target set HLOKIT_TARGET.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import hlokit as hk

SHAPES = [(1024, 2048), (512, 2051), (700, 3000), (16, 96, 1500), (3000, 700), (2000, 33), (37, 50_000), (5, 200, 2048)]
TYPES = ["pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bf16", "f16", "f32", "f64"]
FOLDS: dict[str, tuple[Any, str]] = {
    "or": (np.bitwise_or, "pred s8 u8 s16 u16 s32 u32 s64 u64"),
    "and": (np.bitwise_and, "pred s8 u8 s16 u16 s32 u32 s64 u64"),
    "xor": (np.bitwise_xor, "pred s8 u8 s16 u16 s32 u32 s64 u64"),
    "add": (np.add, "s8 u8 s16 u16 s32 u32 s64 u64 f32 f64"),
    "maximum": (np.maximum, " ".join(TYPES)),
    "minimum": (np.minimum, " ".join(TYPES)),
}
"""NumPy's function and the types that each is tried for."""


@dataclass(frozen=True)
class Fold:
    """A reduction of one dimension. `compared`: of where the elements are greater than one of them."""

    op: str
    type: str
    shape: tuple[int, ...]
    dimension: int
    compared: bool

    def __str__(self) -> str:
        return f"{self.op} {self.type} {'x'.join(map(str, self.shape))} {self.dimension}{' >' * self.compared}"

    def text(self) -> str:
        """The program: of an array and a limit, with the fold of the array, and of what exceeds the limit."""
        sizes, kept = ",".join(map(str, self.shape)), ",".join(map(str, np.delete(self.shape, self.dimension)))
        of, elements = ("pred", "above") if self.compared else (self.type, "x")
        compare = f"above = pred[{sizes}] compare(x, all), direction=GT" if self.compared else ""
        return f"""HloModule fold
          fold {{ a = {of}[] parameter(0) b = {of}[] parameter(1) ROOT r = {of}[] {self.op}(a, b) }}
          ENTRY e {{
            x = {self.type}[{sizes}] parameter(0)
            limit = {self.type}[] parameter(1)
            start = {of}[] parameter(2)
            all = {self.type}[{sizes}] broadcast(limit), dimensions={{}}
            {compare}
            ROOT r = {of}[{kept}] reduce({elements}, start), dimensions={{{self.dimension}}}, to_apply=fold
          }}"""

    def check(self) -> None:
        """Compares machine code on one and on three threads with NumPy."""
        function, _ = FOLDS[self.op]
        rng = np.random.default_rng([*self.shape, self.dimension])
        x = _values(rng.normal(size=self.shape) * 40, self.type)
        limit = np.sort(x.astype(np.float64), axis=None)[-x.size // 2000].astype(x.dtype)  # few are above it
        folded = x > limit if self.compared else x
        start = np.take(folded, 0, self.dimension).reshape(-1)[0]
        want = function(function.reduce(folded, axis=self.dimension, dtype=folded.dtype), start)
        for threads in (1, 3):
            found = hk.compile(hk.parse(self.text()), threads=threads)(x, limit, start)
            if folded.dtype.kind == "f" and self.op == "add":
                room = np.abs(folded).sum(self.dimension) * folded.shape[self.dimension] * np.finfo(folded.dtype).eps
                assert np.all(np.abs(found - want) <= room), self
            else:
                np.testing.assert_array_equal(found, want, err_msg=f"{self}, {threads} threads")


def _values(x: Any, type: str) -> Any:
    if type == "pred":
        return x > 60
    dtype = {"bf16": ml_dtypes.bfloat16}.get(type) or hk.dtype(type).numpy
    return (np.abs(x) if type[0] == "u" else x).astype(np.int64 if type[0] in "su" else np.float64).astype(dtype)


def folds() -> Iterator[Fold]:
    """All of them."""
    for (op, (_, types)), shape in itertools.product(FOLDS.items(), SHAPES):
        for type, dimension in itertools.product(types.split(), range(len(shape))):
            yield Fold(op, type, shape, dimension, False)
    for op, shape, type in itertools.product(("or", "and"), SHAPES, TYPES[1:]):
        for dimension in range(len(shape)):
            yield Fold(op, type, shape, dimension, True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="folds whose names contain this")
    options = parser.parse_args()
    chosen = [fold for fold in folds() if options.only in str(fold)]
    failed = 0
    for fold in chosen:
        try:
            fold.check()
        except AssertionError as error:
            failed += 1
            print(f"FAILED {fold}: {str(error).strip().splitlines()[0]}", flush=True)
    print(f"{failed} of {len(chosen)} folds differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
