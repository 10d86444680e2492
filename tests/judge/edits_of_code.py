"""Small edits of code: the faults that are put into passes, kernels and references."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.mutation.checks import offset
from tests.mutation.mutants import Mutant

_COMPARE = {
    "Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "==", "Is": "is not", "IsNot": "is",
    "In": "not in", "NotIn": "in",  # codespell:ignore
}  # fmt: skip
_BINARY = {
    "Add": "-",
    "Sub": "+",
    "Mult": "+",
    "FloorDiv": "*",
    "Mod": "*",
    "LShift": ">>",
    "BitAnd": "|",
    "BitOr": "&",
}


@dataclass(frozen=True)
class Edit:
    """An edit: where it is, the lines that run it, and the text that takes another's place.

    `name` is a digest of the file, the line, those before and after it, and the texts: other lines do not change it.
    """

    name: str
    mutant: Mutant
    first: int
    last: int
    old: str
    new: str

    @property
    def where(self) -> str:
        return f"{self.mutant.file}:{self.first}: {self.old} -> {self.new}"


def edits(source: Path, folders: tuple[str, ...]) -> Iterator[Edit]:
    """Every edit of the functions in these folders or files of `source`, in order."""
    for folder in folders:
        path = source / folder
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from _of_file(file, str(file.relative_to(source)))


def _of_file(path: Path, name: str) -> Iterator[Edit]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    known: Counter[str] = Counter()
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    inner = {id(n) for f in functions for n in ast.walk(f) if isinstance(n, ast.FunctionDef) and n is not f}
    for function in functions:
        if id(function) in inner:
            continue
        parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        for statement in function.body:
            for node in ast.walk(statement):
                for start, end, new in _choices(node, lines, text, parents):
                    mutant = Mutant(name, text, text[:start] + new + text[end:])
                    last = getattr(node, "end_lineno", None) or 0
                    first, old = getattr(node, "lineno", 0), text[start:end]
                    place = "\n".join((name, *_context(lines, text[:start].count("\n")), old, new))
                    known[place] += 1
                    digest = sha256(f"{place}\n{known[place]}".encode()).hexdigest()[:12]
                    yield Edit(digest, mutant, first, last, old, new)


def _context(lines: Sequence[str], number: int) -> tuple[str, str, str]:
    """A line and the nearest ones before and after it that are not empty, without the spaces round them."""
    before = next((text for line in reversed(lines[:number]) if (text := line.strip())), "")
    after = next((text for line in lines[number + 1 :] if (text := line.strip())), "")
    return before, lines[number].strip(), after


def _choices(node: ast.AST, lines: list[str], text: str, parents: dict[int, ast.AST]) -> Iterator[tuple[int, int, str]]:
    """The places that an edit of a node replaces, and by what."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]).__name__ in _COMPARE:
        yield _between(node.left, node.comparators[0], lines, text, _COMPARE[type(node.ops[0]).__name__])
    elif isinstance(node, ast.BinOp) and type(node.op).__name__ in _BINARY and not _is_text(node):
        yield _between(node.left, node.right, lines, text, _BINARY[type(node.op).__name__])
    elif isinstance(node, ast.BoolOp):
        new = "or" if isinstance(node.op, ast.And) else "and"
        yield _between(node.values[0], node.values[1], lines, text, new)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start = offset(lines, node)
        yield start, start + len("not"), ""
    elif isinstance(node, ast.Constant) and not isinstance(parents.get(id(node)), ast.JoinedStr):
        if isinstance(node.value, bool):
            yield offset(lines, node), offset(lines, node, end=True), str(not node.value)
        elif isinstance(node.value, int) and 0 <= node.value <= 64:
            yield offset(lines, node), offset(lines, node, end=True), str(node.value + 1)


def _between(a: ast.expr, b: ast.expr, lines: list[str], text: str, new: str) -> tuple[int, int, str]:
    """The operator between two operands, without the parentheses of either."""
    start, end = offset(lines, a, end=True), offset(lines, b)
    words = text[start:end]
    left = len(words) - len(words.lstrip(") \n\t"))
    right = len(words) - len(words.rstrip("( \n\t"))
    return start + left, end - right, new


def _is_text(node: ast.BinOp) -> bool:
    """Joins of strings, lists and tuples, unions of types: where another operator is an error at once."""
    literal = (ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict)
    parts = (node.left, node.right)
    return any(isinstance(p, literal) or (isinstance(p, ast.Constant) and isinstance(p.value, str)) for p in parts)
