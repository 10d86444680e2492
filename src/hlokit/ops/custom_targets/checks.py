"""Targets of programs that test themselves: assertions on values (check.*), probes and prints (interpreter.*).

What they need beside values stands in backend_config, as JSON: `where` in the text, tolerances, names.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.forks import lock
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in

PROBE_DIR = "HLOKIT_PROBE_DIR"
"""The environment variable that names the folder of probes, if they are to be files."""

_INDEX = "index.csv"
_lock = lock()
_kept: WeakKeyDictionary[object, list[tuple[str, Array]]] = WeakKeyDictionary()
"""The values that probes were given where no folder is named, by execution."""


@built_in("check.expect_eq")
def expect_eq(call: Invocation) -> tuple[()]:
    """All elements are equal; 0 is -0, and NaN is nothing."""
    actual, expected = _pair(call)
    return _expect(call, actual, expected, actual == expected)


@built_in("check.expect_almost_eq")
def expect_almost_eq(call: Invocation) -> tuple[()]:
    """Elements differ by no more than `tolerance` (0.0001); infinities and NaNs are the same. Complex: both parts."""
    actual, expected = _pair(call)
    tolerance = float(_config(call).get("tolerance", 1e-4))
    parts = [_wide(part) for part in (actual, expected)]
    if actual.dtype.kind == "c":
        good = _near(parts[0].real, parts[1].real, tolerance) & _near(parts[0].imag, parts[1].imag, tolerance)
    else:
        good = _near(parts[0], parts[1], tolerance)
    return _expect(call, actual, expected, good)


@built_in("check.expect_close")
def expect_close(call: Invocation) -> tuple[()]:
    """Elements lie `min_ulp_difference` (0) to `max_ulp_difference` (3) representable values apart."""
    actual, expected = _pair(call)
    config = _config(call)
    distance = _distance(actual, expected)
    low, high = int(config.get("min_ulp_difference", 0)), int(config.get("max_ulp_difference", 3))
    good = (distance >= np.uint64(low)) & (distance <= np.uint64(high))
    return _expect(call, actual, expected, good, distance)


@built_in("check.expect_serialized_eq")
def expect_serialized_eq(call: Invocation) -> tuple[()]:
    """The value equals what a probe was given the `iteration`-th time (0, the first)."""
    (actual,) = call.operands
    config = _config(call)
    name, iteration = str(config.get("probe_id", "")), int(config.get("iteration", 0))
    entries = [found for probe, found in _probed(call) if probe == name]
    if not 0 <= iteration < len(entries):
        raise _failed(call, f"no probe {name!r} of iteration {iteration} in {_folder() or 'this run'}")
    found = entries[iteration]
    expected: Array = np.load(found, allow_pickle=False) if isinstance(found, Path) else found
    if expected.dtype != actual.dtype and expected.dtype.itemsize == actual.dtype.itemsize:
        expected = expected.view(actual.dtype)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise _failed(call, f"probe {name!r} is {expected.dtype}{list(expected.shape)}")
    return _expect(call, actual, expected, actual == expected)


def _probed(call: Invocation) -> list[tuple[str, Path | Array]]:
    """The probes' names, with where their values are kept: files, or what this run has in memory."""
    folder = _folder()
    if folder is None:
        return [*_kept.get(call.device.run, ())]
    return [(row[0], folder / Path(row[-1]).name) for row in _index(folder) if row]


@built_in("interpreter.probe")
def probe(call: Invocation) -> Array:
    """The operand, which is kept for the run; in the folder of probes as probeN.npy, with its type in index.csv."""
    (value,) = call.operands
    config = _config(call)
    folder = _folder()
    with _lock:
        if folder is None:
            _kept.setdefault(call.device.run, []).append((str(config.get("probe_id", "")), value.copy()))
            return value
        stored = value if hasattr(np, value.dtype.name) else value.view(f"uint{value.dtype.itemsize * 8}")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"probe{len(_index(folder)) + 1}.npy"
        np.save(path, stored, allow_pickle=False)
        with (folder / _INDEX).open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([config.get("probe_id", ""), config.get("type", ""), path])
    return value


@built_in("interpreter.print")
def print_value(call: Invocation) -> Array:
    """The operand, which is also printed."""
    (value,) = call.operands
    config = _config(call)
    with _lock:
        print(
            f"{config.get('name', '')} = {config.get('type', '')}\n{np.array2string(value, threshold=1000)}", flush=True
        )
    return value


def _config(call: Invocation) -> dict[str, Any]:
    found: Any = json.loads(call.opaque or "{}")
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _pair(call: Invocation) -> tuple[Array, Array]:
    actual, expected = call.operands
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise _failed(call, f"{actual.dtype}{list(actual.shape)} and {expected.dtype}{list(expected.shape)}")
    return actual, expected


def _wide(array: Array) -> Array:
    """The values in f64 or c128, in which all others are exact but large integers."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _near(a: Array, b: Array, tolerance: float) -> Array:
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        return np.where(finite, np.abs(a - b) <= tolerance, (a == b) | (np.isnan(a) & np.isnan(b)))


def _distance(a: Array, b: Array) -> Array:
    """The number of representable values from a to b; all ones where one is infinite."""
    if a.dtype.kind == "c":
        return np.maximum(_distance(a.real, b.real), _distance(a.imag, b.imag))
    bits = 8 * a.dtype.itemsize
    sign = np.uint64(1 << (bits - 1))

    def ordered(x: Array) -> Array:
        """Monotonic in x, +0 and -0 the same."""
        pattern = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").astype(np.uint64).reshape(x.shape)
        return np.where(pattern & sign, sign - (pattern & ~sign), sign + pattern)

    x, y = ordered(a), ordered(b)
    apart = np.where(x > y, x - y, y - x)
    wide = [np.asarray(part).astype(np.float64) for part in (a, b)]
    same = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    return np.where(finite, apart, np.where(same, np.uint64(0), np.uint64(2**64 - 1)))


def _expect(call: Invocation, actual: Array, expected: Array, good: Any, distance: Any = None) -> tuple[()]:
    """Raises EvaluationError that names the first element that is not good."""
    if not np.all(good):
        index = tuple(map(int, np.argwhere(~np.atleast_1d(good))[0]))[: actual.ndim]
        bad = int(actual.size - np.count_nonzero(good))
        at = f"at {list(index)}, " if actual.ndim else ""
        tail = f", {distance[index]} ULP apart" if distance is not None else ""
        raise _failed(
            call, f"{at}{actual[index]} (actual), {expected[index]} (expected){tail}; {bad} of {actual.size} differ"
        )
    return ()


def _failed(call: Invocation, message: str) -> EvaluationError:
    where = _config(call).get("where", "")
    return EvaluationError(f"{where}{': ' if where else ''}{call.op.custom_call_target}: {message}")


def _folder() -> Path | None:
    """The folder of probes, if there is one."""
    given = os.environ.get(PROBE_DIR, "")
    return Path(given) if given else None


def _index(folder: Path) -> list[list[str]]:
    path = folder / _INDEX
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))
