"""Mutants without thought: each check of a rule in the code, switched off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.mutation.mutants import Mutant
from tests.rules.test_labels import LABEL

ERRORS = ("ShapeError", "EvaluationError", "BuildError")


def switched_off(source: Path, wanted: set[str]) -> Iterator[tuple[str, str, Mutant]]:
    """(label, where, mutant) for every `check(condition, label, ...)` and every `if ...: raise Error(label, ...)`.

    Only where the label is written there; of these labels, or of all if there are none.
    """
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        name = str(path.relative_to(source))
        for node in ast.walk(ast.parse(text)):
            for label, condition, value in _checks(node):
                if wanted and label not in wanted:
                    continue
                start, end = offset(lines, condition), offset(lines, condition, end=True)
                yield label, f"{name}:{condition.lineno}", Mutant(name, text, text[:start] + value + text[end:])


def _checks(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """The labels that a node checks, with the condition and what switches it off."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
        for label in _labels(node.args[1:2]):
            yield label, node.args[0], "True"
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
        raised = node.body[0].exc
        if isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id in ERRORS:
            for label in _labels(raised.args):
                yield label, node.test, "False"


def _labels(arguments: list[ast.expr]) -> list[str]:
    texts = [
        a.value for a in arguments for a in ast.walk(a) if isinstance(a, ast.Constant) and isinstance(a.value, str)
    ]
    return sorted({label for text in texts for label in LABEL.findall(text)})


def offset(lines: list[str], node: ast.expr, end: bool = False) -> int:
    """The place of a node's start, or end, in the text."""
    line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
    assert line is not None and column is not None
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
