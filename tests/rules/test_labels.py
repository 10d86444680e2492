"""Every rule of the reference is named by a test, or listed with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path

from hlokit.rules import rules
from tests.rules.untestable import UNTESTABLE

HERE = Path(__file__).parent
TESTS = HERE.parent
LABEL = re.compile(r"\b[A-Z][A-Z0-9]+(?:-[A-Z]+)*-[0-9]+\b")


def reference_labels() -> dict[str, str]:
    """Label -> kind (S V C E I A X D), as the rule book has them."""
    return {label: rule.kind for label, rule in rules().items()}


def named_labels() -> set[str]:
    """Every label that a test file writes."""
    skipped = {HERE / "untestable.py", HERE / "labels.py", Path(__file__)}
    files = [path for path in TESTS.rglob("*.py") if path not in skipped and path.parent != TESTS / "mutation"]
    return {label for path in [*files, *TESTS.rglob("*.hlo")] for label in LABEL.findall(path.read_text())}


def test_every_rule_is_named_by_a_test() -> None:
    wanted = {label for label, kind in reference_labels().items() if kind != "A"}
    missing = sorted(wanted - named_labels() - set(UNTESTABLE))
    assert not missing, f"{len(missing)} rules without a test: {' '.join(missing)}"


def test_labels_in_tests_exist() -> None:
    known = reference_labels()
    prefixes = {label.rsplit("-", 1)[0] for label in known}
    unknown = sorted(n for n in named_labels() if n not in known and n.rsplit("-", 1)[0] in prefixes)
    assert not unknown, f"labels that the reference does not have: {' '.join(unknown)}"


def test_untestable_rules_exist_and_have_no_test() -> None:
    known, named = reference_labels(), named_labels()
    assert not [label for label in UNTESTABLE if label not in known]
    assert not [label for label in UNTESTABLE if label in named], "named by a test after all: take it off the list"
    assert all(UNTESTABLE.values())
