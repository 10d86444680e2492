"""Results on disk, and how far two frameworks' results are apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.programs import Program

BLOCK = 1 << 20

# Relative to the element and to the largest of the result: sums in another order, functions of other error bounds.
TOLERANCE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 2e-2,
}  # whole numbers and booleans: equal


def store(results: list[Any], folder: Path) -> None:
    """Raw bytes, since .npy files know no bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        np.ascontiguousarray(result).tofile(folder / str(number))
    facts = [[str(result.dtype), list(result.shape)] for result in results]
    (folder / "results.json").write_text(json.dumps(facts))


def load(folder: Path) -> list[Any]:
    """What `store` put there."""
    facts = json.loads((folder / "results.json").read_text())
    return [
        np.fromfile(folder / str(number), np.uint8).view(np.dtype(dtype)).reshape(shape)
        for number, (dtype, shape) in enumerate(facts)
    ]


def excess(program: Program, results: list[Any], expected: list[Any]) -> float:
    """The largest difference in units of the tolerance: at most 1 is agreement. Infinite for another shape or type."""
    facts = [(result.dtype, result.shape) for result in results]
    if facts != [(result.dtype, result.shape) for result in expected]:
        return float("inf")
    if program.canonical is not None:
        results, expected = program.canonical(results), program.canonical(expected)
    return max((apart(a, b, program.tolerance) for a, b in zip(results, expected)), default=0.0)


def apart(result: Any, expected: Any, tolerance: float | None = None) -> float:
    """One array's largest difference in units of the tolerance; NaN agrees with NaN."""
    allowed = tolerance or TOLERANCE.get(str(expected.dtype), 0.0)
    if allowed == 0.0:
        return 0.0 if np.array_equal(result, expected) else float("inf")
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = result.reshape(-1), expected.reshape(-1)
    blocks = [slice(start, start + BLOCK) for start in range(0, a.size, BLOCK)]
    largest = max((finite_largest(b[block].astype(wide)) for block in blocks), default=0.0)
    worst = max((block_apart(a[block].astype(wide), b[block].astype(wide), largest) for block in blocks), default=0.0)
    return worst / allowed


def finite_largest(values: Any) -> float:
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def block_apart(a: Any, b: Any, largest: float) -> float:
    """The largest |a - b| / (|b| + largest)."""
    with np.errstate(all="ignore"):
        differences = np.abs(a - b) / (np.abs(b) + largest)
    differences[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    worst = float(differences.max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst
