"""hlokit fuzz: random programs on engines."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path

from hlokit.errors import ArgumentError
from hlokit.judge.fuzz.campaign import Finding, again
from hlokit.judge.fuzz.campaign import fuzz as run_campaign
from hlokit.judge.fuzz.graph import Options
from hlokit.tools.files import loaded
from hlokit.tools.progress import progress
from hlokit.tools.status import DONE, FOUND, INTERRUPTED

_TYPES = "pred,s8,s32,s64,u8,u32,bf16,f16,f32,f64,c64"


def fuzz(
    *files: Path,
    engines: str | None = None,
    count: int = 100,
    seed: int = 0,
    mutate: list[Path] | None = None,
    ops: str | None = None,
    types: str | None = None,
    instructions: int | None = None,
    largest: int = 5,
    shardings: bool = False,
    collectives: bool = False,
    folder: Path | None = None,
    timeout: float = 60.0,
    reduce_limit: float = 30.0,
    rerun: bool = False,
    json: bool = False,
) -> int:
    """Runs random programs on engines, each in a separate process, and judges their results against the reference.

    Findings are reduced, grouped by their cause, and kept in FOLDER: program.hlo, arguments.npz and report.md for each
    cause. If the command is interrupted, running it again with the same FOLDER continues. Exit status 1 if there are
    findings.

    Parameters
    ----------
    files:
        programs to start from: random ops are added to copies of them. Without files, --ops and --types, programs
        resemble those that compilers encounter: loops, reductions, matrix products, data movement.
    engines:
        engines of `hlokit compare`, separated by commas; by default passes,compiled,strict.
    count:
        the number of programs.
    seed:
        the seed of the first program; each following program has the next seed.
    mutate:
        a program to mutate: ops, operands and sizes are changed, a few at a time. May be given several times.
    ops:
        use only these ops, separated by commas; dot=3 is used three times as often.
    types:
        use only these element types, separated by commas.
    instructions:
        the largest number of ops that are drawn for a program, in addition to the ops that these need; 8 by default.
    largest:
        the largest size of a dimension in programs drawn from --ops and --types.
    shardings:
        give arrays random shardings on a mesh of 2 to 8 devices, for the engines partitioned and partitioned-compiled,
        which insert collectives and run the parts; these are then the default engines.
    collectives:
        draw programs for 2 to 8 devices, with collectives. Findings are not reduced; jaxlib's engines do not run them.
    folder:
        the folder for findings.
    timeout:
        time limit of a run, in seconds.
    reduce_limit:
        time limit of the reduction of a finding, in seconds.
    rerun:
        only run the findings in FOLDER again.
    json:
        print JSON.
    """
    usual = "partitioned,partitioned-compiled" if shardings else "passes,compiled,strict"
    names = _words(usual if engines is None else engines)
    if rerun:
        if folder is None:
            raise ArgumentError("fuzz: --rerun requires --folder")
        comparisons = again(folder, names, timeout)
        if json:
            print(json_module.dumps({name: one.to_json() for name, one in comparisons.items()}, indent=2))
        for name, comparison in () if json else comparisons.items():
            print("\n".join(f"{name}: {line}" for line in str(comparison).splitlines()))
        return DONE if all(c.is_equal for c in comparisons.values()) else FOUND
    chosen = [_weighted(word) for word in _words(ops or "")]
    if (ops is not None and not chosen) or (types is not None and not _words(types)):
        raise ArgumentError("fuzz: --ops and --types need at least one name")
    options = None
    if files or ops is not None or types is not None or instructions is not None:
        options = Options(
            instructions=8 if instructions is None else instructions,
            opcodes=None if ops is None else frozenset(name for name, _ in chosen), weights=tuple(chosen),
            types=tuple(_words(_TYPES if types is None else types)),
            dynamic=False, layouts=False, wild=0.05, denormals=False, identities=True, largest=largest,
        )  # fmt: skip
    modules = [loaded(file) for file in files]
    try:
        with progress("programs", count) as advance:
            found = run_campaign(
                count, names, seed=seed, options=options, modules=modules,
                mutate=[loaded(file) for file in mutate or ()], shardings=shardings, collectives=collectives,
                folder=folder, seconds=timeout, reduce_seconds=reduce_limit, on_finding=_tell, on_program=advance,
            )  # fmt: skip
    except KeyboardInterrupt:
        if folder is None:
            raise
        print(f"interrupted; the same command continues from {folder}", file=sys.stderr)
        return INTERRUPTED
    print(json_module.dumps(found.to_json(), indent=2) if json else found)
    return FOUND if found.findings else DONE


def _weighted(word: str) -> tuple[str, int]:
    """The op and its weight of "dot=3"."""
    name, _, weight = word.partition("=")
    if weight and not weight.isdecimal():
        raise ArgumentError(f"fuzz: --ops {word}: the weight is not a number")
    return name, int(weight or 1)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _tell(finding: Finding) -> None:
    print(f"seed {finding.seed}: {finding.cause}", file=sys.stderr, flush=True)
