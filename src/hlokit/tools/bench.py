"""hlokit bench: times of a program's runs."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlokit.api import compile, verify
from hlokit.errors import ArgumentError
from hlokit.hlo.module import HloModule
from hlokit.judge.engines.engine import WorkerEngine, engine_of
from hlokit.tools.files import loaded
from hlokit.tools.inputs import Inputs, arguments_for

_LIMIT = 3600.0
"""Seconds that jaxlib may take for all calls."""
_QUANTILES = (0.1, 0.5, 0.9)


def bench(
    file: Path,
    *,
    input: Inputs = (),
    random: int = 0,
    repeat: int = 50,
    warm_up: int = 5,
    threads: int | None = None,
    jaxlib: bool = False,
    json: bool = False,
) -> None:
    """Times calls of a program as machine code: prints the median and quantiles, after calls that are not counted.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    input:
        the arguments: an .npz with an array for each parameter, by the parameters' names or as in0, in1, ... or arr_0,
        arr_1, ...; or values, one --input for each parameter: f32[4,8]=1, 's32[3]={1, 2, 3}'.
    random:
        the seed of random arguments, if there is no input.
    repeat:
        number of timed calls.
    warm_up:
        number of calls before them, which are not timed.
    threads:
        number of threads; by default one for each core.
    jaxlib:
        also time the CPU client of this Python's jaxlib, in a separate process, once before and once after: a
        difference between the two shows that other work ran on the machine.
    json:
        print JSON.
    """
    if repeat < 1 or warm_up < 0:
        raise ArgumentError("bench: --repeat must be at least 1, --warm-up at least 0")
    module = loaded(file)
    verify(module)
    arguments = arguments_for(module, input, random)
    start = time.perf_counter()
    program = compile(module, threads=threads)
    compiled = time.perf_counter() - start
    rows: dict[str, list[float]] = {}
    if jaxlib:
        rows["jaxlib, before"] = _of_jaxlib(module, arguments, warm_up, repeat)
    rows["hlokit"] = _times(program, arguments, warm_up, repeat)
    if jaxlib:
        rows["jaxlib, after"] = _of_jaxlib(module, arguments, warm_up, repeat)
    if json:
        told = {
            name: dict(zip(("p10", "median", "p90"), _quantiles(times), strict=True)) for name, times in rows.items()
        }
        print(json_module.dumps({"module": module.name, "compile": compiled, "seconds": told}, indent=2))
        return
    print(f"{module.name}: compiled in {compiled:.3g} s; {repeat} calls after {warm_up}, in microseconds")
    print(f"{'':14} {'10 %':>12} {'median':>12} {'90 %':>12}")
    for name, times in rows.items():
        print(f"{name:14} " + " ".join(f"{1e6 * t:12,.1f}" for t in _quantiles(times)))


def _quantiles(times: Sequence[float]) -> list[float]:
    return [float(q) for q in np.quantile(np.array(times), _QUANTILES)]


def _times(call: Any, arguments: Sequence[Any], warm_up: int, repeat: int) -> list[float]:
    found: list[float] = []
    for number in range(warm_up + repeat):
        start = time.perf_counter()
        call(*arguments)
        if number >= warm_up:
            found.append(time.perf_counter() - start)
    return found


def _of_jaxlib(module: HloModule, arguments: Sequence[Any], warm_up: int, repeat: int) -> list[float]:
    """The times in a process of jaxlib's; raises EvaluationError if it does not run the program."""
    with engine_of("jaxlib", _LIMIT) as engine:
        assert isinstance(engine, WorkerEngine)
        return engine.times(module, arguments, warm_up, repeat)
