"""What hlokit makes of a program of the corpora: python -m tests.corpora.checking FOLDER.

A process of its own, which adds what it finds to FOLDER/checked.jsonl as it goes, so that a crash or a hang is told
apart by what is missing.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.analysis.cost import cost_of_module
from hlokit.errors import EvaluationError, HlokitError
from hlokit.files.arrays import arguments_from_arrays, arrays_in, reinterpreted
from hlokit.files.reading import module_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.judge.closeness.equality import leaves
from hlokit.judge.closeness.spread import near
from hlokit.judge.engines.engine import WorkerEngine, engine_of

STAGES = ("verifies", "compiled", "interpreter")
_CLOSE = {"bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-8, "complex128": 1e-8}
_USUAL = 1e-4
"""How far a result may be from the framework's, over its array's largest element."""
_CALLS = 5
_XLA_LIMIT = 300.0
_FLOPS = 4e9
"""Floating-point operations of programs that the interpreter runs."""


def apart(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    """The largest difference over the largest element; infinite if NaNs or infinities are at other places."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.inf
    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    if theirs.dtype.kind in "iub":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    a, b = ours.astype(wide), theirs.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    scale = np.abs(b[finite]).max(initial=0) or 1.0
    return float(np.abs(a[finite] - b[finite]).max(initial=0) / scale)


def is_close(ours: Any, theirs: Any) -> bool:
    """Whether all arrays are as near to the framework's as other orders of rounding usually bring them."""
    return all(apart(a, b) <= _CLOSE.get(b.dtype.name, _USUAL) for a, b in zip(ours, theirs, strict=True))


def _distance(ours: Any, theirs: Any) -> float:
    return max((apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


class _Report:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, **facts: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def stage(self, name: str, run: Callable[[], dict[str, Any]]) -> bool:
        """Runs a stage; what it raises is told. Whether it came to its end."""
        self.add(stage=name)
        try:
            self.add(**run(), **{name: True})
        except (HlokitError, MemoryError) as error:
            self.add(**{name: False, "error": f"{name}: {type(error).__name__}: {error}"[:2000]})
            return False
        except Exception as error:  # none should get here
            self.add(**{name: False, "error": f"{name}: an error of no kind of hlokit's: {error!r}"[:2000]})
            return False
        return True


def check(folder: Path) -> None:
    report = _Report(folder / "checked.jsonl")
    report.path.unlink(missing_ok=True)
    found: list[HloModule] = []

    def read() -> dict[str, Any]:
        start = time.process_time()
        module = module_of_bytes((folder / "program").read_bytes())
        hk.verify(module)
        found.append(module)
        return {
            "instructions": sum(len(c) for c in module.all_computations),
            "read_seconds": time.process_time() - start,
        }

    if not report.stage("verifies", read):
        return
    (module,) = found
    arguments = arguments_from_arrays(module, arrays_in((folder / "in.npz").read_bytes()))
    stored = arrays_in((folder / "out.npz").read_bytes())
    shapes = [shape for shape in module.entry.root.shape.leaves() if shape.is_array]
    if len(stored) != len(shapes):
        report.add(error=f"verifies: {len(shapes)} results, the framework gave {len(stored)}")
        return
    theirs = [reinterpreted(stored[f"out{number}"], shape) for number, shape in enumerate(shapes)]
    ours: list[Any] = []

    def compiled() -> dict[str, Any]:
        start = time.process_time()
        program = hk.compile(module)
        seconds = time.process_time() - start
        ours.extend(leaves(program(*arguments)))
        times = []
        for _ in range(_CALLS):
            begin = time.perf_counter()
            program(*arguments)
            times.append(time.perf_counter() - begin)
        return {
            "compile_seconds": seconds, "seconds": min(times), "distance": _distance(ours, theirs),
            "close": is_close(ours, theirs),
            "host_steps": sum(what == "not compiled" for _, what, _ in program.reasons),
        }  # fmt: skip

    def timed() -> dict[str, Any]:
        with engine_of("jaxlib", _XLA_LIMIT) as engine:
            assert isinstance(engine, WorkerEngine)
            try:
                return {"xla_seconds": min(engine.times(module, arguments, 1, _CALLS))}
            except EvaluationError as error:  # it is XLA's to take what it wrote
                return {"xla_error": str(error)}

    def widened() -> dict[str, Any]:
        """How far both results are from those of the program in f64: that tells whose rounding the difference is."""
        wide = hk.parse(module.to_text().replace("f32[", "f64["))
        values = [np.asarray(a) for a in arguments]
        exact = leaves(hk.compile(wide)(*(v.astype(np.float64) if v.dtype == np.float32 else v for v in values)))
        narrow = [e.astype(t.dtype) for e, t in zip(exact, theirs, strict=True)]
        return {"f64_distance": _distance(ours, narrow), "f64_framework_distance": _distance(theirs, narrow),
                "f64_close": is_close(ours, narrow)}  # fmt: skip

    ran = report.stage("compiled", compiled)
    if ran:
        report.stage("xla", timed)
    if cost_of_module(module).flops > _FLOPS:
        if ran and not is_close(ours, theirs):
            report.stage("widened", widened)
        return
    values: list[Any] = []

    def interpreted() -> dict[str, Any]:
        start = time.process_time()
        values.extend(leaves(hk.evaluate(module, *arguments)))
        return {
            "interpreter_seconds": time.process_time() - start, "interpreter_distance": _distance(values, theirs),
            "interpreter_close": is_close(values, theirs),
        }  # fmt: skip

    if not report.stage("interpreter", interpreted):
        return

    def judged() -> dict[str, Any]:
        """Whether rounding explains what is not close: the compiled result's difference, and the framework's own."""
        told = {}
        for name, result in (("compiled_beyond", ours), ("framework_beyond", theirs)):
            told[name] = near(tuple(result), tuple(values), module, arguments, 0) or "" if result else ""
        return told

    if not is_close(values, theirs) or (ran and not is_close(ours, theirs)):
        report.stage("judged", judged)


def main() -> None:
    warnings.simplefilter("ignore")
    check(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
