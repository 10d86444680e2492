"""The whole JAX programs: HLO text, StableHLO text, inputs, outputs and tolerances.

python -m tests.golden.programs --golden DIR               evaluates all of them
python -m tests.golden.programs --golden DIR --stablehlo   from their StableHLO text
python -m tests.golden.programs --golden DIR --bundle      copies them to tests/data/programs, compressed
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import NUMPY_TYPES, Array
from tests.golden.check import Mismatch, check_round_trip, first_line, short_traceback
from tests.golden.compare import compare_outputs
from tests.golden.engines import ENGINES
from tests.golden.player import flatten

BUNDLED = Path(__file__).parents[1] / "data" / "programs"
HLO, STABLEHLO = ".hlo.txt", ".stablehlo.mlir"


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """A jitted JAX function: its HLO (or StableHLO) text and what it gave on one set of inputs."""

    name: str
    hlo: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerance: tuple[dict[str, Any], ...]


def program_names(folder: Path) -> list[str]:
    """The names in the folder's programs.json."""
    return [record["name"] for record in _records(folder)]


def read_program(folder: Path, name: str, *, stablehlo: bool = False) -> RecordedProgram:
    """The program of that name; its files are NAME.npz, and NAME.hlo.txt or NAME.stablehlo.mlir, compressed or not."""
    record = next(record for record in _records(folder) if record["name"] == name)
    with np.load(folder / f"{name}.npz") as arrays:
        inputs = [_array(arrays[f"in{i}"], how["dtype"]) for i, how in enumerate(record["inputs"])]
        outputs = [_array(arrays[f"out{i}"], how["dtype"]) for i, how in enumerate(record["outputs"])]
    return RecordedProgram(
        name,
        _text(folder, name, STABLEHLO if stablehlo else HLO),
        tuple(inputs),
        tuple(outputs),
        tuple(record["tolerance"]),
    )


def _records(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "programs.json").read_text(encoding="utf-8"))["programs"]


def _array(stored: Array, name: str) -> Array:
    """bf16 is stored as uint16."""
    return stored.view(NUMPY_TYPES[name]) if name == "bf16" else stored.astype(NUMPY_TYPES[name], casting="equiv")


def _text(folder: Path, name: str, suffix: str) -> str:
    plain, packed = folder / f"{name}{suffix}", folder / f"{name}{suffix}.gz"
    return plain.read_text(encoding="utf-8") if plain.exists() else gzip.decompress(packed.read_bytes()).decode()


def check_program(program: RecordedProgram, engine: str = "reference") -> None:
    """Parses, verifies, prints and runs it (see engines.py). Raises Mismatch (or what the library raises)."""
    import hlokit as hk

    module = hk.parse(program.hlo)
    hk.verify(module)
    check_round_trip(module)
    result = flatten(ENGINES[engine](module, *program.inputs))
    difference = compare_outputs(result, program.outputs, program.tolerance)
    if difference is not None:
        raise Mismatch(difference)


def bundle(folder: Path, target: Path = BUNDLED) -> None:
    """Copies all programs to `target`, compressed."""
    target.mkdir(parents=True, exist_ok=True)
    kept = ("name", "inputs", "outputs", "tolerance", "discrete_result_may_flip")
    records = [{key: record[key] for key in kept} for record in _records(folder)]
    lines = ",\n".join(json.dumps(record) for record in records)
    (target / "programs.json").write_text(f'{{"programs": [\n{lines}\n]}}\n', encoding="utf-8")
    for record in records:
        name = record["name"]
        for suffix in (HLO, STABLEHLO):
            packed = gzip.compress(_text(folder, name, suffix).encode(), 9, mtime=0)
            (target / f"{name}{suffix}.gz").write_bytes(packed)
        with np.load(folder / f"{name}.npz") as arrays:
            np.savez_compressed(target / f"{name}.npz", **arrays)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.programs", description=__doc__)
    parser.add_argument("--golden", type=Path, required=True, metavar="DIR")
    parser.add_argument("--bundle", action="store_true", help="copy the programs to tests/data/programs instead")
    parser.add_argument("--stablehlo", action="store_true", help="read the StableHLO texts, not the HLO ones")
    parser.add_argument("--engine", choices=list(ENGINES), default="reference", help="what runs the programs")
    parser.add_argument("names", nargs="*", help="these programs only")
    options = parser.parse_args(arguments)
    folder = options.golden / "programs"
    if not (folder / "programs.json").exists():
        print(f"no programs.json in {folder}", file=sys.stderr)
        return 2
    if options.bundle:
        bundle(folder)
        return 0
    names = options.names or program_names(folder)
    failed = [name for name in names if not _passes(folder, name, options.engine, options.stablehlo)]
    print(f"{len(failed)} failed")
    return 1 if failed else 0


def _passes(folder: Path, name: str, engine: str, stablehlo: bool) -> bool:
    start = time.perf_counter()
    outcome = "passed"
    try:
        check_program(read_program(folder, name, stablehlo=stablehlo), engine)
    except Exception as error:
        outcome = f"FAILED {type(error).__name__}: {first_line(error)[:200]}  {short_traceback(error)}"
    print(f"{name:30}{time.perf_counter() - start:6.1f} s  {outcome}", flush=True)
    return outcome == "passed"


if __name__ == "__main__":
    sys.exit(main())
