"""Records the cases of `hlokit conform`: python -m tests.judge.conformance writes src/hlokit/judge/conform/cases.jsonl.gz.

Rules' examples: the tests that name rules (@rule) run, and each program that one evaluates in this process, with what
came out, is a case of the rules of values that the test names. Recorded cases: those of tests/data/golden_sample, with
XLA's own results, are cases of the rules of values of their ops.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.files.arrays import leaves_of
from hlokit.hlo.module import HloModule
from hlokit.interpreter.arguments import arguments_of
from hlokit.judge.conform.cases import ConformanceCase, recorded
from hlokit.rules import rules, selected
from hlokit.text.parser import parse_hlo
from tests.golden.cases import read_cases
from tests.golden.check import XLA_WRONG

TESTS = Path(__file__).parents[1]
TARGET = TESTS.parent / "src/hlokit/judge/conform/cases.jsonl.gz"
_LARGEST = 4096
"""Bytes that the arrays of a case may have together."""
_MOST = 6
"""Cases of one test."""
_LEFT_OUT = {"rng", "rng-get-and-update-state", "infeed", "outfeed", "custom-call", "partition-id", "replica-id"}
_CHAPTERS_LEFT_OUT = {"hlo_text", "collectives", "communication", "partitioning"}


class Recorder:
    """A pytest plugin: keeps what tests of rules evaluate."""

    def __init__(self) -> None:
        self.cases: list[ConformanceCase] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        labels = [label for mark in item.iter_markers("rule") for label in mark.args]
        wanted = [label for label in dict.fromkeys(labels) if is_of_values(label)]
        seen: list[tuple[HloModule, list[Any], Any]] = []
        original = hk.evaluate

        def evaluate(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            if wanted and not options and len(seen) < _MOST and _takes_arrays(module):
                with suppress(hk.HlokitError):  # what a test asks of the program afterwards may be another program
                    seen.append((module.clone(), [np.array(a) for a in arguments_of(module, arguments)], result))
            return result

        hk.evaluate = evaluate
        try:
            yield  # a test that fails raises here
        finally:
            hk.evaluate = original
        stem = f"{item.path.stem}::{item.name}"
        for number, (module, arguments, result) in enumerate(seen):
            case = _case(f"{stem} {number + 1}" if len(seen) > 1 else stem, wanted, module, arguments, result)
            if case is not None:
                self.cases.append(case)


def is_of_values(label: str) -> bool:
    """Whether a program on one device can show that the rule is broken."""
    known = rules().get(label)
    return known is not None and known.kind in "VEIXDA" and known.chapter not in _CHAPTERS_LEFT_OUT


def _takes_arrays(module: Any) -> bool:
    return isinstance(module, HloModule) and all(p.shape.is_array for p in module.entry.parameters)


def _case(name: str, labels: list[str], module: HloModule, arguments: list[Any], result: Any) -> ConformanceCase | None:
    """The case, if each engine can be given it: arrays of fixed sizes, one device, no values from elsewhere."""
    parameters, leaves = module.entry.parameters, module.entry.root.shape.leaves()
    shapes = [p.shape for p in parameters] + list(leaves)
    if not all(s.is_array and not s.is_dynamic for s in shapes) or module.replica_count * module.num_partitions != 1:
        return None
    if any(i.opcode in _LEFT_OUT or i.op.form == "communicate" for i in module.instructions()):
        return None
    given = [a.astype(p.shape.dtype.numpy) for a, p in zip(arguments, parameters, strict=True)]
    results = [np.asarray(leaf) for leaf in leaves_of(result)]
    if sum(a.nbytes for a in (*given, *results)) > _LARGEST:
        return None
    found = recorded(name, labels, module, given, results)
    try:
        again = hk.evaluate(parse_hlo(found.text), *given)
    except hk.HlokitError:
        return None  # what the test's module says cannot be written as text
    return found if [np.asarray(a).tobytes() for a in leaves_of(again)] == list(found.results) else None


def of_rules() -> list[ConformanceCase]:
    """The cases of the tests that name rules."""
    recorder = Recorder()
    paths = [
        str(p)
        for p in sorted((TESTS / "rules").rglob("test_*.py"))
        if "from tests.rules.labels import" in p.read_text()
    ]
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *paths], plugins=[recorder])
    if status != 0:
        raise SystemExit("a test of the rules fails: no cases were written")
    return recorder.cases


def of_xla() -> Iterator[ConformanceCase]:
    """The cases that were recorded of XLA, whose results the rules settle."""
    for case in read_cases(TESTS / "data/golden_sample.jsonl.gz"):
        if case.kind != "ok" or case.hlo is None or not case.is_judged or case.id in XLA_WRONG:
            continue
        module = hk.parse(case.hlo)
        labels = [label for label in _rules_of(module) if is_of_values(label)]
        found = _case(f"xla::{case.id}", labels, module, list(case.inputs), hk.evaluate(module, *case.inputs))
        if labels and found is not None:
            yield recorded(found.name, labels, module, case.inputs, case.outputs)


def _rules_of(module: HloModule) -> list[str]:
    """The rules that say the values of the ops of the entry."""
    found: dict[str, None] = {}
    for instruction in module.entry.instructions:
        cards = " ".join(vars(c).get("rules", "") for c in type(instruction.op).__mro__)
        found |= {rule.label: None for rule in selected(cards) if rule.kind == "V"}
    return list(found)


def main() -> None:
    """Writes the file; prints how many cases and rules it has."""
    unique: dict[tuple[object, ...], ConformanceCase] = {}
    for case in [*of_rules(), *of_xla()]:
        unique.setdefault((case.rules, case.text.partition("\n")[2], case.given), case)
    lines = "".join(case.to_json() + "\n" for case in unique.values())
    TARGET.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    counts = Counter(label for case in unique.values() for label in case.rules)
    print(f"{len(unique)} cases of {len(counts)} rules, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
