"""Campaigns: random programs on engines; findings are reduced, sorted by cause and kept."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hlokit.errors import ArgumentError, HlokitError
from hlokit.files.arrays import arrays_in
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS
from hlokit.judge.compare.comparing import Comparison, Judgement, compare_engines, compared, kind_of
from hlokit.judge.compare.report import ARGUMENTS, PROGRAM, write_report
from hlokit.judge.devices import arguments_in
from hlokit.judge.engines.engine import Engine, Job, engine_of
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.fuzz.graph import COLLECTIVES, DYNAMIC, RECIPES, USUAL_TYPES, Options
from hlokit.judge.fuzz.mutations import mutated
from hlokit.judge.fuzz.programs import grown, random_module
from hlokit.judge.fuzz.recipes_devices import GRIDS
from hlokit.judge.fuzz.shapes import shaped_draw
from hlokit.judge.fuzz.shardings import sharded
from hlokit.judge.fuzz.values import arguments
from hlokit.text.parser import parse_hlo
from hlokit.types.dtype import DTYPES

_LOG = "campaign.jsonl"
_BATCH = 16
"""Programs that engines are given at once."""
_INSTRUCTION = re.compile(r" = \(*(\w+)\[.*? ([a-z][a-z0-9-]*)\(")
"""The first element type and the opcode of an instruction's line."""
_LIST = re.compile(r"(?:\bpred)?[\[({][N, ]*[\])}]")
"""A shape or a list of numbers in a message, of which a failure has one cause whatever its length."""
_SHORT = 100
"""Characters of a message that tell its cause."""


OF_DEVICES = Options(
    opcodes=frozenset(RECIPES) - {"rng", "rng-bit-generator", "rng-get-and-update-state"}, types=USUAL_TYPES,
    weights=tuple((name, 6) for name in COLLECTIVES if not name.endswith("-id")),
    dynamic=False, layouts=False, wild=0.05, denormals=False, identities=True, largest=9,
)  # fmt: skip
"""Options of programs for several devices: many collectives."""
OF_SHARDINGS = Options(
    opcodes=frozenset(RECIPES) - {"rng", "rng-bit-generator", "rng-get-and-update-state"}, types=USUAL_TYPES,
    dynamic=False, layouts=False, wild=0.05, denormals=False, identities=True, largest=9,
)  # fmt: skip
"""Options of programs that are to be divided: no random numbers, which depend on the devices."""


@dataclass
class Finding:
    """A difference or failure.

    cause    the engine with the pass, the opcode or the message that tells it from others
    seed     draws the program
    count    the programs that showed it
    folder   where the least program, its arguments and the report are; None if they were not kept
    """

    cause: str
    seed: int
    message: str
    count: int = 1
    folder: Path | None = None


@dataclass
class Campaign:
    """The result of `hk.fuzz`.

    Attributes
    ----------
    verdicts : Counter
        The number of programs by engine and verdict.
    findings : dict of Finding
        The findings by cause.
    skipped : int
        The number of programs that the reference itself refuses.
    next_seed : int
        The seed from which the campaign can go on.
    """

    verdicts: Counter[str] = field(default_factory=Counter[str])
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])
    skipped: int = 0
    next_seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """The campaign as values that `json.dumps` takes.

        Returns
        -------
        dict
            The number of programs by verdict, the number that were skipped, the next seed, and the findings.
        """
        return {
            "verdicts": dict(sorted(self.verdicts.items())),
            "skipped": self.skipped,
            "next_seed": self.next_seed,
            "findings": [
                {**vars(f), "folder": None if f.folder is None else str(f.folder)} for f in self.findings.values()
            ],
        }

    def __str__(self) -> str:
        lines = [f"{count:8,} {verdict}" for verdict, count in sorted(self.verdicts.items())]
        lines += [f"{self.skipped:8,} programs that the reference refuses"] if self.skipped else []
        for found in self.findings.values():
            where = f"  {found.folder}" if found.folder is not None else ""
            lines.append(f"{found.cause}: {found.count} times, first with seed {found.seed}{where}")
            lines.append(f"  {found.message[:300]}")
        return "\n".join(lines)


def checked(options: Options, collectives: bool = False) -> Options:
    """The options, if the ops and types are some that can be drawn; ArgumentError names those that are not. Dimensions
    may be dynamic if an op is named that makes them so."""
    for name in sorted(options.opcodes or ()):
        if name not in OPS:
            raise ArgumentError(f"fuzz: there is no op {name!r}")
        if name not in RECIPES:
            raise ArgumentError(f"fuzz: {name} is not drawn")
        if name in COLLECTIVES and not collectives:
            raise ArgumentError(f"fuzz: {name} is not drawn for one device: ask for collectives")
    for name, weight in options.weights:
        if weight < 1:
            raise ArgumentError(f"fuzz: {name} has the weight {weight}, expected at least 1")
    for name in options.types:
        if name not in DTYPES:
            raise ArgumentError(f"fuzz: there is no element type {name!r}")
    if options.instructions < 1:
        raise ArgumentError(f"fuzz: programs of {options.instructions} instructions, expected at least 1")
    return replace(options, dynamic=options.dynamic or not (options.opcodes or frozenset()).isdisjoint(DYNAMIC))


def fuzz(
    count: int,
    engines: Sequence[str | Callable[..., Any] | Engine],
    *,
    seed: int = 0,
    options: Options | None = None,
    modules: Sequence[HloModule] = (),
    mutate: Sequence[HloModule] = (),
    shardings: bool = False,
    collectives: bool = False,
    folder: Path | None = None,
    seconds: float = 60.0,
    reduce_seconds: float = 30.0,
    on_finding: Callable[[Finding], None] | None = None,
    on_program: Callable[[int], None] | None = None,
) -> Campaign:
    """Runs random programs on engines: see `hk.fuzz`. `on_program` is told how many are done after each."""
    if not engines:
        raise ArgumentError("fuzz: no engines to compare with the reference")
    if count < 1 or seed < 0 or seconds <= 0:
        raise ArgumentError("fuzz: count must be at least 1, seed at least 0, seconds greater than 0")
    if mutate and (modules or options is not None):
        raise ArgumentError("fuzz: modules to mutate are given alone, without ops, types and modules to begin with")
    if collectives and (mutate or modules or shardings):
        raise ArgumentError("fuzz: collectives are drawn alone, without shardings and modules to begin with")
    chosen = None if options is None else checked(options, collectives)
    if collectives and chosen is None:
        chosen = OF_DEVICES
    if shardings and chosen is None and not (modules or mutate):
        chosen = OF_SHARDINGS
    found = _resumed(folder, seed)
    with ExitStack() as stack:
        opened = [e if isinstance(e, Engine) else stack.enter_context(engine_of(e, seconds)) for e in engines]
        ends = stack.enter_context(engine_of("reference", seconds)) if mutate else None
        place = Path(stack.enter_context(TemporaryDirectory(prefix="hlokit-fuzz-")))
        threads = stack.enter_context(ThreadPoolExecutor(len(opened)))
        end = seed + count
        for first in range(found.next_seed, end, _BATCH):
            jobs: list[Job] = []
            for number in range(first, min(first + _BATCH, end)):
                if mutate:
                    module = mutated(mutate[number % len(mutate)], number)
                else:
                    module = drawn(number, chosen, modules, collectives)
                module = sharded(module, number) if shardings else module
                given = arguments(module, number, 0.05, denormals=False)
                jobs.append(Job.written(module, given, place, number - first))
            outcomes = _outcomes(jobs, opened, ends, threads)
            for number, (job, own) in enumerate(zip(jobs, outcomes, strict=True), first):
                _one(number, job, opened, own, found, folder, reduce_seconds, on_finding)
                found.next_seed = number + 1
                if on_program is not None:
                    on_program(number + 1 - seed)
    return found


def _outcomes(
    jobs: Sequence[Job], engines: Sequence[Engine], ends: Engine | None, threads: ThreadPoolExecutor
) -> list[list[Outcome] | None]:
    """The outcomes of each program on the engines, which run at the same time, each one program after another. `ends`:
    runs the reference first, of programs that may never end; None for those."""
    ending = [True] * len(jobs) if ends is None else [outcome.status == "ok" for outcome in ends.run_all(jobs)]
    chosen = [job for job, does_end in zip(jobs, ending, strict=True) if does_end]
    waiting = [threads.submit(engine.run_all, chosen) for engine in engines]
    each = iter(list(zip(*[one.result() for one in waiting], strict=True)))
    return [list(next(each)) if does_end else None for does_end in ending]


def drawn(
    seed: int, options: Options | None = None, modules: Sequence[HloModule] = (), collectives: bool = False
) -> HloModule:
    """The program of a seed: of the options, grown from one of the modules, or of the shapes that compilers meet; with
    `collectives` for several devices."""
    if collectives:
        options = replace(options or OF_DEVICES, devices=random.Random(seed).choice(GRIDS))
    if modules:
        return grown(modules[seed % len(modules)], seed, options or Options(dynamic=False, layouts=False, depth=1))
    return shaped_draw(seed).module if options is None else random_module(seed, options)


def again(folder: Path, engines: Sequence[str], seconds: float = 60.0) -> dict[str, Comparison]:
    """Runs all that is kept in a folder of a campaign; gives the comparisons by the names of their folders."""
    kept = sorted(path.parent for path in folder.glob(f"*/{PROGRAM}"))
    if not kept:
        raise ArgumentError(f"fuzz: {folder} has no findings")
    with ExitStack() as stack:
        opened = [stack.enter_context(engine_of(name, seconds)) for name in engines]
        return {one.name: compare_engines(*_kept(one), opened) for one in kept}


def _kept(folder: Path) -> tuple[HloModule, list[Any]]:
    module = parse_hlo((folder / PROGRAM).read_text(encoding="utf-8"))
    return module, arguments_in(module, arrays_in((folder / ARGUMENTS).read_bytes()))


def _one(
    seed: int,
    job: Job,
    engines: Sequence[Engine],
    outcomes: Sequence[Outcome] | None,
    found: Campaign,
    folder: Path | None,
    reduce_seconds: float,
    on_finding: Callable[[Finding], None] | None,
) -> None:
    """The verdicts on a program's outcomes, which are None if it does not end; and what was found."""
    module = job.module
    verdicts: list[str] = []
    new: list[Finding] = []
    comparison: Comparison | None = None
    if outcomes is not None:
        with suppress(HlokitError):
            comparison = compared(module, job.arguments, engines, outcomes, max(engine.seconds for engine in engines))
    found.skipped += comparison is None
    for engine, judgement in zip(engines, comparison.judgements if comparison is not None else (), strict=False):
        verdicts.append(f"{engine.name}: {judgement.verdict}")
        if not judgement.is_finding or comparison is None:
            continue
        cause = cause_of(engine.name, judgement)
        if cause in found.findings:
            found.findings[cause].count += 1
            continue
        one = Finding(cause, seed, judgement.message)
        if folder is not None:
            one.folder = folder / f"{len(found.findings):04}"
            try:
                small = Comparison(module, comparison.arguments, comparison.expected, (judgement,))
                one.message = write_report(small, judgement, engine, one.folder, reduce_seconds).message
            except HlokitError as error:
                one.message += f" (not reduced: {error})"
                one.folder = None
        found.findings[cause] = one
        new.append(one)
        if on_finding is not None:
            on_finding(one)
    found.verdicts.update(verdicts)
    if folder is not None:
        _log(folder, seed, verdicts, new)


def cause_of(engine: str, judgement: Judgement) -> str:
    """The name of a finding's cause: the pass; the opcode of the instruction, with its type if its value is wrong, with
    the message if it fails; or the message alone."""
    if judgement.guilty:
        return f"{engine}: {judgement.verdict}: pass {judgement.guilty}"
    instruction = _INSTRUCTION.search(judgement.instruction)
    if instruction is not None:
        element, opcode = instruction.groups()
        if judgement.verdict == "failed":
            return f"{engine}: failed: {opcode}: {_LIST.sub('', kind_of(judgement.message))[:_SHORT]}"
        return f"{engine}: {judgement.verdict}: {opcode} to {element}"
    return f"{engine}: {judgement.verdict}: {kind_of(judgement.message)}"


def _log(folder: Path, seed: int, verdicts: Sequence[str], new: Sequence[Finding]) -> None:
    """Adds the program to the folder's log, from which a campaign goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"seed": seed, "verdicts": list(verdicts)}
    if new:
        record["new"] = [[f.cause, f.message, f.folder.name if f.folder is not None else None] for f in new]
    with (folder / _LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _resumed(folder: Path | None, seed: int) -> Campaign:
    """The campaign as the folder's log has it."""
    found = Campaign(next_seed=seed)
    path = folder / _LOG if folder is not None else None
    if folder is None or path is None or not path.exists():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break  # the last line of a run that was ended
        found.verdicts.update(record["verdicts"])
        found.skipped += not record["verdicts"]
        found.next_seed = max(found.next_seed, record["seed"] + 1)
        for cause, message, name in record.get("new", ()):
            found.findings[cause] = Finding(cause, record["seed"], message, 1, folder / name if name else None)
    return found
