"""Running the conformance suite on an engine, and the results, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlokit.errors import ArgumentError, HlokitError
from hlokit.judge.compare.comparing import Judgement, Verdict, judged
from hlokit.judge.conform.cases import STATUSES, ConformanceCase, Status, cases
from hlokit.judge.conform.kept import Kept
from hlokit.judge.conform.result import CaseResult
from hlokit.judge.diff.differences import diff
from hlokit.judge.engines.engine import Engine, engine_of
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.engines.trivial import fails_always
from hlokit.rules import Rule, rules, selected
from hlokit.text.parser import parse_hlo


@dataclass(frozen=True)
class Conformance:
    """The result of `hk.conform`.

    Attributes
    ----------
    engine : str
        The engine's name.
    results : tuple of CaseResult
        A result for each case, in the suite's order.
    chosen : tuple of Rule
        The rules that were asked for; the suite may have no case of some.
    """

    engine: str
    results: tuple[CaseResult, ...]
    chosen: tuple[Rule, ...]

    @property
    def is_conforming(self) -> bool:
        """No case has failed."""
        return all(result.status != "failed" for result in self.results)

    @property
    def by_rule(self) -> dict[str, tuple[CaseResult, ...]]:
        """The results of each rule's cases, by label, in the order of the rule book."""
        found: dict[str, list[CaseResult]] = {rule.label: [] for rule in self.chosen}
        for result in self.results:
            for label in result.case.rules:
                if label in found:
                    found[label].append(result)
        return {label: tuple(results) for label, results in found.items() if results}

    def counts(self, label: str | None = None) -> dict[Status, int]:
        """The number of cases with each status.

        Parameters
        ----------
        label : str, optional
            A rule, whose cases are counted; by default all cases.

        Returns
        -------
        dict
            The numbers by status.
        """
        results = self.results if label is None else self.by_rule.get(label, ())
        return {status: sum(r.status == status for r in results) for status in STATUSES}

    def __str__(self) -> str:
        lines = [f"{self.engine}: {_words(self.counts())}, of {len(self.results)} cases of {len(self.by_rule)} rules"]
        for label, results in self.by_rule.items():
            lines.append(f"{label:12} {_words(self.counts(label))}")
            lines += [f"  {r.case.name}: {_first_line(r.judgement)}" for r in results if r.status == "failed"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The results as values that `json.dumps` takes.

        Returns
        -------
        dict
            The engine, the numbers by rule and status, and the cases with their verdicts.
        """
        return {
            "engine": self.engine,
            "rules": {label: self.counts(label) for label in self.by_rule},
            "cases": [
                {
                    "case": r.case.name, "rules": list(r.case.rules), "status": r.status,
                    "verdict": r.judgement.verdict, "message": r.judgement.message,
                }
                for r in self.results
            ],
        }  # fmt: skip

    def to_html(self) -> str:
        """The report as a page: a table of the rules, and the cases that failed.

        Returns
        -------
        str
            HTML.
        """
        from hlokit.judge.conform.page import page_of

        return page_of(self)

    def to_junit(self) -> str:
        """The report as JUnit's XML: a test suite for each rule, a test case for each of its cases.

        Returns
        -------
        str
            XML.
        """
        from hlokit.judge.conform.junit import junit_of

        return junit_of(self)


def conform(
    engine: str | Callable[..., Any] | Engine,
    *,
    rules: Sequence[str] | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    folder: Path | None = None,
    on_begin: Callable[[int], None] | None = None,
    on_result: Callable[[CaseResult], None] | None = None,
) -> Conformance:
    """Runs the conformance suite on an engine: see `hk.conform`.

    `on_begin` is told of how many cases the folder has results; `on_result` is given each result, also these.
    """
    if seconds <= 0 or memory < 0:
        raise ArgumentError("conform: seconds must be greater than 0, memory at least 0")
    chosen, wanted = cases_of(rules)
    opened = engine if isinstance(engine, Engine) else engine_of(engine, seconds, memory)
    results: list[CaseResult] = []
    try:
        kept = None if folder is None else Kept(folder, opened.name)
        known = {} if kept is None else kept.results(wanted)
        if on_begin is not None:
            on_begin(len(known))
        always = fails_always(opened) if len(known) < len(wanted) else None
        if always is not None and always.status != "unsupported":
            raise ArgumentError(f"conform: {opened.name} fails on every program, even that of a constant: {always}")
        for case in wanted:
            judgement = known.get(case.name)
            results.append(CaseResult(case, judgement or _judged(case, opened)))
            if kept is not None and judgement is None:
                kept.add(results[-1])
            if on_result is not None:
                on_result(results[-1])
    finally:
        if opened is not engine:
            opened.close()
    return Conformance(opened.name, tuple(results), chosen)


def _judged(case: ConformanceCase, engine: Engine) -> Judgement:
    """The verdict on a case: "equal" if a text is refused that has to be, or is printed as the same program."""
    if case.kind == "values":
        return judged(case.module, case.arguments, case.expected, engine)
    outcome = engine.read(case.text)
    verdict, message = _verdict_on_text(case, outcome)
    return Judgement(engine.name, outcome, verdict, message)


def _verdict_on_text(case: ConformanceCase, outcome: Outcome) -> tuple[Verdict, str]:
    if outcome.status == "unsupported":
        return "unsupported", outcome.message
    if outcome.status in ("crash", "timeout"):
        return "failed", str(outcome)
    if case.kind == "refusal":
        return ("equal", "") if outcome.status == "error" else ("wrong", "a text that breaks the rule is accepted")
    if outcome.status == "error":
        return "failed", f"a legal text is refused: {outcome.message}"
    try:
        found = diff(case.module, parse_hlo(outcome.message))
    except HlokitError as error:
        return "wrong", f"the text that it prints is not legal: {error}"
    return ("equal", "") if found.is_equal else ("wrong", f"it prints a different program: {found}")


def cases_of(names: Sequence[str] | None) -> tuple[tuple[Rule, ...], list[ConformanceCase]]:
    """The rules of labels and prefixes, and their cases; ArgumentError names what is not there. None: all."""
    for name in names or ():
        if not selected(name):
            raise ArgumentError(f"conform: there is no rule {name!r}, and no rules {name}-1, {name}-2, ...")
    chosen = tuple(rules().values()) if names is None else tuple(selected(" ".join(names)))
    labels = {rule.label for rule in chosen}
    wanted = [case for case in cases() if labels & {*case.rules}]
    if not wanted:
        raise ArgumentError(f"conform: the suite has no case of {', '.join(names or ())}")
    return chosen, wanted


def _words(counts: dict[Status, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no cases"


def _first_line(judgement: Judgement) -> str:
    return f"{judgement.verdict}: {judgement.message}".partition("\n")[0][:300]
