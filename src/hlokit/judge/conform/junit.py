"""A conformance report as JUnit's XML, which test runners and CI systems read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from hlokit.judge.conform.cases import Status
from hlokit.rules import rules

if TYPE_CHECKING:
    from hlokit.judge.conform.conforming import Conformance
    from hlokit.judge.conform.result import CaseResult

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(report: Conformance) -> str:
    """The XML: a suite for each rule. A case of several rules is in each of their suites."""
    root = Element("testsuites", name=f"hlokit conform {_clean(report.engine)}")
    for label, results in report.by_rule.items():
        suite = SubElement(root, "testsuite", _numbers(report.counts(label)), name=label)
        for result in results:
            _add(suite, label, result)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _numbers(counts: dict[Status, int]) -> dict[str, str]:
    numbers = {"tests": sum(counts.values()), "failures": counts["failed"], "skipped": counts["not supported"]}
    return {name: str(number) for name, number in numbers.items()} | {"errors": "0"}


def _add(suite: Element, label: str, result: CaseResult) -> None:
    seconds = f"{result.judgement.outcome.seconds:.3f}"
    case = SubElement(suite, "testcase", classname=label, name=_clean(result.case.name), time=seconds)
    message = _clean(result.judgement.message)
    if result.status == "failed":
        failure = SubElement(case, "failure", type=result.judgement.verdict, message=message[:300])
        parts = message, result.judgement.printed, f"{label}: {rules()[label].text}", result.case.text
        failure.text = _clean("\n\n".join(filter(None, parts)))
    elif result.status == "not supported":
        SubElement(case, "skipped", message=message[:300])


def _clean(text: str) -> str:
    """The text without the characters that XML cannot have."""
    return _NOT_XML.sub("?", text)
