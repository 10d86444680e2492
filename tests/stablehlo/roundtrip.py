"""Modules as StableHLO text and back: python -m tests.stablehlo.roundtrip --golden DIR [--jaxlib | --run] [FAMILY...].

Every golden case that is a program, and every JAX program, goes to StableHLO text and through hlokit's reader; the
results are those of the module itself, bit for bit. With --jaxlib the text goes through jaxlib, and its HLO through
hlokit: the results agree within the recorded tolerances. With --run XLA:CPU runs the text. --fuzz COUNT takes random
programs instead. Prints what does not agree, what is not supported by name, and figures. Exit status 1 for the former.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.proto.module import module_from_proto
from tests.fuzz.jaxlib_values import pack, unpack
from tests.golden.cases import Case, golden_files, read_cases, root_roles
from tests.golden.check import XLA_WRONG
from tests.golden.compare import compare_form, compare_outputs
from tests.golden.player import Player, flatten
from tests.golden.programs import program_names, read_program
from tests.stablehlo.outside import ask

PASSED, FAILED, UNSUPPORTED, SKIPPED = "passed", "failed", "unsupported", "not comparable"

_BATCH = 200
"""Texts for one process of jaxlib."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A module with arguments for each of its replicas; `tolerance`, `roles` of its outputs as a record has them.

    recorded   outputs that are an authority; without them the module's own are
    is_judged  the semantics do not leave the result open
    """

    name: str
    module: hk.HloModule
    inputs: tuple[tuple[Any, ...], ...] = ()
    tolerance: tuple[dict[str, Any], ...] = ()
    runs: bool = True
    roles: tuple[int, ...] | None = None
    recorded: tuple[Any, ...] = ()
    is_judged: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a subject on a way."""

    name: str
    status: str
    what: str = ""


# -- subjects


def golden_subjects(folder: Path, families: frozenset[str]) -> Iterator[Subject]:
    """The cases that XLA took, from the builder or from their text."""
    for path in golden_files(folder, families):
        for case in read_cases(path):
            if case.kind != "reject":
                yield from golden_case(case)


def golden_case(case: Case) -> Iterator[Subject]:
    """The case as a subject, if hlokit takes it."""
    try:
        module = hk.parse(case.hlo) if case.from_hlo_text and case.hlo else Player(hk).build(case.program)
    except hk.HlokitError:
        return  # what hlokit refuses is for tests.golden.run to judge
    inputs = case.replica_inputs or (case.inputs,)
    roles = tuple(root_roles(case.program)) if case.op in ("Eigh", "SVD") else None
    yield Subject(
        case.id,
        module,
        inputs,
        case.tolerance,
        case.kind == "ok",
        roles,
        is_judged=case.is_judged and case.id not in XLA_WRONG,
    )


def program_subjects(folder: Path) -> Iterator[Subject]:
    """The JAX programs, from their HLO and from their StableHLO."""
    for name in program_names(folder):
        for stablehlo in (False, True):
            program = read_program(folder, name, stablehlo=stablehlo)
            title = f"program {name}{'.mlir' if stablehlo else ''}"
            module = hk.parse(program.hlo)
            yield Subject(title, module, (program.inputs,), program.tolerance, recorded=program.outputs)


def fuzz_subjects(seeds: range, *, outside: bool) -> Iterator[Subject]:
    """Random programs, without atan, which chlo composes of others.

    For jaxlib such as its foldings keep: it drops inits that are no identities, and composes functions of complex
    numbers of others.
    """
    from hlokit.judge.fuzz.graph import Options
    from hlokit.judge.fuzz.programs import random_draw
    from hlokit.judge.fuzz.values import arguments

    for seed in seeds:
        options = Options(
            instructions=10, dynamic=seed % 2 == 0 and not outside, depth=3, identities=outside,
            opcodes=frozenset(hk.OPS) - {"atan"},
        )  # fmt: skip
        module = random_draw(seed, options).module
        count = len([leaf for leaf in module.entry.root.shape.leaves() if leaf.is_array])
        close = ({"class": "close", "rtol": 1e-4, "atol": 1e-5},) * count if outside else ()
        yield Subject(f"seed {seed}", module, (tuple(arguments(module, seed)),), close)


# -- ways


def through_hlokit(subject: Subject) -> Outcome:
    """To text, which is the same text each time, and through hlokit's reader."""
    try:
        text = hk.to_stablehlo(subject.module)
    except hk.UnsupportedError as error:
        return Outcome(subject.name, UNSUPPORTED, f"printer: {_generic(str(error))}")
    if hk.to_stablehlo(subject.module.clone()) != text:
        return Outcome(subject.name, FAILED, "two texts of one module")
    try:
        module = hk.parse(text)
    except hk.UnsupportedError as error:
        return Outcome(subject.name, UNSUPPORTED, f"reader: {_generic(str(error))}")
    except hk.HlokitError as error:
        return Outcome(subject.name, FAILED, f"reader: {str(error).splitlines()[0]}")
    if not subject.runs:
        return Outcome(subject.name, PASSED)
    return _compared(subject, module, None)


def _compared(subject: Subject, module: hk.HloModule, tolerance: Any) -> Outcome:
    """Whether a module gives what the subject's gives; without a tolerance, bit for bit."""
    try:
        want = wanted(subject, tolerance)
    except hk.HlokitError as error:
        return Outcome(subject.name, SKIPPED, type(error).__name__)
    try:
        got = evaluated(module, [tuple(flatten(tuple(one))) for one in subject.inputs])
    except hk.UnsupportedError as error:
        return Outcome(subject.name, UNSUPPORTED, f"evaluation: {_generic(str(error))}")
    except hk.HlokitError as error:
        return Outcome(subject.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    return judged(subject, got, want, tolerance)


def wanted(subject: Subject, tolerance: Any) -> Sequence[Sequence[Any]]:
    """What the subject gives: as recorded, where a tolerance goes with it."""
    return [subject.recorded] if tolerance and subject.recorded else evaluated(subject.module, subject.inputs)


def judged(subject: Subject, got: Sequence[list[Any]], want: Sequence[Sequence[Any]], tolerance: Any) -> Outcome:
    draws = any(i.opcode in ("rng", "rng-get-and-update-state") for i in subject.module.instructions())
    for ours, theirs in zip(got, want, strict=True):
        ours, theirs = _arrays(ours), _arrays(theirs)
        if draws:
            wrong = next((w for w in map(compare_form, ours, theirs) if w), None)
        elif tolerance is not None and len(tolerance) == len(theirs):
            wrong = compare_outputs(ours, theirs, tolerance, subject.inputs[0], subject.roles)
        else:
            wrong = bits_differ(ours, theirs)
        if wrong:
            return Outcome(subject.name, FAILED, wrong)
    return Outcome(subject.name, PASSED)


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Without tokens."""
    return [np.asarray(v) for v in values if isinstance(v, (np.ndarray, np.generic))]


def evaluated(module: hk.HloModule, inputs: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The leaves of the results, for each replica."""
    if len(inputs) > 1:
        return [flatten(r) for r in hk.evaluate(module, *inputs, replicas=len(inputs))]
    return [flatten(hk.evaluate(module, *(inputs[0] if inputs else ())))]


def bits_differ(got: Sequence[Any], want: Sequence[Any]) -> str | None:
    """What differs, or None: types, shapes and bytes are the same."""
    if len(got) != len(want):
        return f"number of outputs: got {len(got)}, want {len(want)}"
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        wrong = compare_form(one, other)
        if wrong is None and one.tobytes() != other.tobytes():
            wrong = f"got {one.reshape(-1)[:4]}, want {other.reshape(-1)[:4]}"
        if wrong:
            return f"output {i}: {wrong}"
    return None


def through_jaxlib(subjects: Sequence[Subject], *, run: bool) -> Iterator[Outcome]:
    """To text, through jaxlib; its HLO through hlokit, or the text on XLA:CPU."""
    folder = Path(tempfile.mkdtemp(prefix="stablehlo"))
    texts: dict[str, str] = {}
    questions: list[tuple[str, str, list[str]]] = []
    for number, subject in enumerate(subjects):
        try:
            texts[subject.name] = hk.to_stablehlo(subject.module)
        except hk.UnsupportedError as error:
            yield Outcome(subject.name, UNSUPPORTED, f"printer: {_generic(str(error))}")
            continue
        files: list[str] = []
        if run and _may_run(subject):
            files = [str(folder / f"{number}.in.npz"), str(folder / f"{number}.out.npz")]
            pack(Path(files[0]), flatten(tuple(subject.inputs[0])))
        questions.append((subject.name, texts[subject.name], files))
    answers = ask(questions)
    for subject, files in [(s, q[2]) for s in subjects for q in questions if q[0] == s.name]:
        yield _outside(subject, answers[subject.name], files, run)


def _may_run(subject: Subject) -> bool:
    """On one device, with arrays of known sizes, and nothing from the host."""
    shapes = [leaf for i in (*subject.module.entry.parameters, subject.module.entry.root) for leaf in i.shape.leaves()]
    host = any(i.op.form == "communicate" for i in subject.module.instructions())
    if not subject.is_judged:
        return False
    return (
        subject.runs and len(subject.inputs) == 1 and not host and all(s.is_array and not s.is_dynamic for s in shapes)
    )


def _outside(subject: Subject, answer: dict[str, Any], files: list[str], run: bool) -> Outcome:
    if "No registered implementation" in answer.get("error", ""):
        return Outcome(subject.name, SKIPPED, "XLA:CPU has no such custom call")
    if "error" in answer:
        return Outcome(subject.name, FAILED, f"jaxlib: {answer['error'][:260]}")
    if run and not files:
        return Outcome(
            subject.name, SKIPPED, "several devices, a host, sizes of run time, or a result that is left open"
        )
    if run:
        return judged(subject, [unpack(Path(files[1]))], wanted(subject, subject.tolerance), subject.tolerance)
    try:
        module = module_from_proto(base64.b64decode(answer["proto"]))
    except hk.HlokitError as error:
        return Outcome(subject.name, FAILED, f"jaxlib's HLO: {str(error).splitlines()[0]}")
    return _compared(subject, module, subject.tolerance) if subject.runs else Outcome(subject.name, PASSED)


def _generic(text: str) -> str:
    """An error without the names of instructions and lines."""
    text = re.sub(r"^[\w.\-]+ = ", "", text.splitlines()[0])
    return re.sub(r"line \d+: ", "", text)


# -- the command


def report(outcomes: Sequence[Outcome]) -> list[str]:
    """The failures grouped, what is not supported by name, and figures."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.status != PASSED:
            groups[outcome.status, re.sub(r"-?\b\d[\d.e+-]*\b", "N", outcome.what)[:200]].append(outcome)
    lines: list[str] = []
    for (status, _), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        lines.append(f"{len(group):5} {status}: {group[0].what}  e.g. {', '.join(o.name for o in group[:3])}")
    counts = Counter(outcome.status for outcome in outcomes)
    return [*lines, ", ".join(f"{counts[s]} {s}" for s in (PASSED, FAILED, UNSUPPORTED, SKIPPED))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stablehlo.roundtrip", description=__doc__)
    parser.add_argument("--golden", type=Path, metavar="DIR")
    parser.add_argument("--fuzz", type=int, default=0, metavar="COUNT", help="random programs instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", action="store_true", help="the JAX programs alone")
    parser.add_argument("--jaxlib", action="store_true", help="through jaxlib's reader")
    parser.add_argument("--run", action="store_true", help="on XLA:CPU")
    parser.add_argument("families", nargs="*")
    given = parser.parse_args(arguments)
    if not given.fuzz and (given.golden is None or not given.golden.is_dir()):
        print(f"no folder of golden cases: {given.golden}", file=sys.stderr)
        return 2
    outcomes = list(_outcomes(given))
    print("\n".join(report(outcomes)))
    return 1 if any(outcome.status == FAILED for outcome in outcomes) or not outcomes else 0


def _outcomes(given: argparse.Namespace) -> Iterator[Outcome]:
    subjects: list[Subject] = []
    if given.fuzz:
        subjects += fuzz_subjects(range(given.seed, given.seed + given.fuzz), outside=given.jaxlib or given.run)
    else:
        if not given.programs:
            subjects += golden_subjects(given.golden, frozenset(given.families))
        if not given.families:
            subjects += program_subjects(given.golden / "programs")
    if given.jaxlib or given.run:
        for start in range(0, len(subjects), _BATCH):
            yield from through_jaxlib(subjects[start : start + _BATCH], run=given.run)
    else:
        yield from map(through_hlokit, subjects)


if __name__ == "__main__":
    sys.exit(main())
