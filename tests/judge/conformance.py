"""Records the cases of `hlokit conform`: python -m tests.judge.conformance writes src/hlokit/judge/conform/cases.jsonl.gz.

    --texts          records the cases of texts alone, and keeps the others
    --devices FILE   records the cases of several devices in a file of golden cases, and keeps the others
    --kept           records nothing, and writes the cases that the file has again

Rules' examples: the tests that name rules (@rule) run, and each program that one evaluates in this process, with what
came out, is a case of the rules of values that the test names. Recorded cases: those of tests/data/golden_sample, with
XLA's own results, are cases of the rules of values of their ops. Cases of several devices are kept as they are without
--devices.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.files.arrays import leaves_of
from hlokit.hlo.module import HloModule
from hlokit.interpreter.arguments import arguments_of
from hlokit.judge.conform.cases import ConformanceCase, Kind, cases, recorded
from hlokit.judge.devices import devices_of
from hlokit.rules import LABEL, rules, selected
from hlokit.text.parser import parse_hlo
from tests.golden.cases import read_cases
from tests.golden.check import XLA_WRONG

TESTS = Path(__file__).parents[1]
TARGET = TESTS.parent / "src/hlokit/judge/conform/cases.jsonl.gz"
_LARGEST = 4096
"""Bytes that the arrays of a case may have together."""
_MOST = 6
"""Cases of one test, and refusals for one rule."""
_CHANGES = 16
"""Wrong texts that are tried for each program."""
_TOKENS = (
    ("number", r"(?<![\w.%-])\d+(?![\w.])"), ("type", r"\b[sufc]\d+\b|pred"), ("operand", r"(?<=[(,] )?%[\w.-]+(?=[,)])"),
)  # fmt: skip
"""What is changed in a wrong text, and how it is found."""
_ORIGIN = re.compile(r' ?source_\w+=(?:"[^"]*"|\d+)')
"""The file and the line of a test that builds a program, in an instruction's metadata."""
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


class TextRecorder:
    """A pytest plugin: keeps what tests of rules have read, and what was refused."""

    def __init__(self) -> None:
        self.cases: list[ConformanceCase] = []
        self.name, self.labels, self.depth, self.count = "", list[str](), 0, 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Puts the recording reader where modules have the other, which they import by name."""
        for module in [m for n, m in sys.modules.items() if n.partition(".")[0] in ("tests", "hlokit")]:
            for name, value in list(vars(module).items()):
                if value is parse_hlo and module.__name__ != __name__:
                    setattr(module, name, self.parse)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.labels = list(dict.fromkeys(label for mark in item.iter_markers("rule") for label in mark.args))
        self.name, self.count = f"{item.path.stem}::{item.name}", 0
        yield
        self.labels = []

    def parse(self, text: Any, *arguments: Any, **options: Any) -> HloModule:
        wanted = self._is_wanted(text, arguments, options)
        self.depth += 1
        try:
            module = parse_hlo(text, *arguments, **options)
        except hk.HlokitError as error:
            if wanted:
                self._refused(text, error)
            raise
        finally:
            self.depth -= 1
        if wanted:
            self._read(module)
        return module

    def _is_wanted(self, text: Any, arguments: Any, options: Any) -> bool:
        plain = isinstance(text, str) and not arguments and not options and not self.depth
        return plain and bool(self.labels) and self.count < _MOST and len(text) <= _LARGEST

    def _refused(self, text: str, error: hk.HlokitError) -> None:
        labels = [label for label in re.findall(rf"\[({LABEL.pattern})\]", str(error)) if label in rules()]
        if labels and isinstance(error, hk.ParseError) and "HloModule" in text:
            self._keep(labels[-1:], text, "refusal")

    def _read(self, module: HloModule) -> None:
        labels = [label for label in self.labels if label in rules() and rules()[label].chapter == "hlo_text"]
        text = str(module)
        with suppress(hk.HlokitError):
            if labels and module.entry_or_none is not None and str(parse_hlo(text)) == text:
                self._keep(labels, text, "text")

    def _keep(self, labels: list[str], text: str, kind: Kind) -> None:
        self.count += 1
        self.cases.append(ConformanceCase(f"{self.name} {kind} {self.count}", tuple(labels), text, (), (), kind))


def of_texts() -> list[ConformanceCase]:
    """The cases of texts, of the tests that name rules."""
    recorder = TextRecorder()
    paths = [str(p) for folder in ("rules", "text") for p in sorted((TESTS / folder).rglob("test_*.py")) if "rule" in p.read_text()]
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow", *paths], plugins=[recorder])
    return recorder.cases


def of_wrong_texts(legal: Iterable[ConformanceCase]) -> Iterator[ConformanceCase]:
    """Refusals: legal programs with one number, type or operand of an instruction changed, and the rule that is broken."""
    counts: Counter[str] = Counter()
    for case in legal:
        chance = random.Random(case.name)
        for number in range(_CHANGES):
            text = _changed(case.text, chance)
            label = _broken_rule(text) if text != case.text else None
            if label is not None and counts[label] < _MOST:
                counts[label] += 1
                yield ConformanceCase(f"{case.name} changed {number}", (label,), text, (), (), "refusal")


def _changed(text: str, chance: random.Random) -> str:
    """The text with one number, element type or operand of an instruction replaced."""
    lines = text.splitlines(keepends=True)
    places = [k for k, line in enumerate(lines) if " = " in line and " constant(" not in line]
    if not places:
        return text
    place = chance.choice(places)
    line = lines[place]
    kind, pattern = chance.choice(_TOKENS)
    found = [m for m in re.finditer(pattern, line) if m.start() > line.index(" = ")]
    if not found:
        return text
    where = chance.choice(found)
    others = {"number": ["0", "1", "2", "3", "7", "-1"], "type": ["f32", "s32", "pred", "u8", "c64"]}
    names = [lines[k].removeprefix("  ").removeprefix("ROOT ").partition(" = ")[0] for k in places if k < place]
    new = chance.choice(others.get(kind) or names or [where[0]])
    lines[place] = line[: where.start()] + new + line[where.end() :]
    return "".join(lines)


def _broken_rule(text: str) -> str | None:
    """The label of the rule for which a text is refused, if it can be read as far as that."""
    try:
        parse_hlo(text)
    except hk.ParseError as error:
        return error.label if error.label in rules() and not error.is_syntax else None
    except hk.HlokitError:
        pass
    return None


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


def of_devices(path: Path) -> Iterator[ConformanceCase]:
    """The cases of several devices that were recorded of XLA."""
    for case in read_cases(path):
        if case.kind != "ok" or case.hlo is None or not case.replica_inputs or not case.is_judged:
            continue
        module = hk.parse(case.hlo)
        module.replica_count = len(case.replica_inputs)
        labels = [label for label in _rules_of(module) if rules()[label].kind == "V"]
        given, results = ([a for own in part for a in own] for part in (case.replica_inputs, case.replica_outputs))
        if labels and sum(a.nbytes for a in (*given, *results)) <= _LARGEST:
            yield recorded(f"xla::{case.id}", labels, module, given, results)


def _rules_of(module: HloModule) -> list[str]:
    """The rules that say the values of the ops of the entry."""
    found: dict[str, None] = {}
    for instruction in module.entry.instructions:
        cards = " ".join(vars(c).get("rules", "") for c in type(instruction.op).__mro__)
        found |= {rule.label: None for rule in selected(cards) if rule.kind == "V"}
    return list(found)


def without_origin(case: ConformanceCase) -> ConformanceCase:
    """The case without the places in the tests that its instructions come from, which differ from machine to machine."""
    text = re.sub(r"(?<=metadata=\{)[^{}]*", lambda m: _ORIGIN.sub("", m[0]).strip(), case.text)
    return replace(case, text=text.replace(", metadata={}", ""))


def main() -> None:
    """Writes the file; prints how many cases and rules it has."""
    known = cases()
    apart = [case for case in known if case.kind == "values" and devices_of(case.module) > 1]
    one = [case for case in known if case not in apart]
    if "--devices" in sys.argv:
        apart = list(of_devices(Path(sys.argv[sys.argv.index("--devices") + 1])))
    elif "--kept" not in sys.argv:
        kept = [c for c in one if c.kind == "values"] if "--texts" in sys.argv else [*of_rules(), *of_xla()]
        one = [*kept, *of_texts(), *of_wrong_texts(kept)]
    unique: dict[tuple[object, ...], ConformanceCase] = {}
    for case in map(without_origin, [*one, *apart]):
        unique.setdefault((case.kind, case.rules, case.text.partition("\n")[2], case.given), case)
    lines = "".join(case.to_json() + "\n" for case in unique.values())
    TARGET.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    counts = Counter(label for case in unique.values() for label in case.rules)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(case.kind for case in unique.values()).items())
    print(f"{len(unique)} cases ({kinds}) of {len(counts)} rules, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
