"""cpu/llvm is the one writer of LLVM IR: LLVM's syntax stands there alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hlokit

SOURCE = Path(hlokit.__file__).parent
_TYPE = r"(i\d+|ptr|void|half|float|double|label|token|[<\[{%])"
_FLAGS = r"((nsw|nuw|exact|volatile|atomic|weak|inbounds|fast|contract|reassoc|tail|disjoint) )*"
SYNTAX = re.compile(
    rf"^\s*([%{{]\S+ = )?("
    rf"(ret|br|load|store|alloca|call|invoke|phi|select|cmpxchg|freeze|add|sub|mul|[us]div|[us]rem|shl|[al]shr|and|or|xor|"
    rf"f(add|sub|mul|div|rem|neg)|[sz]ext|trunc|fp(ext|trunc|to[us]i)|[us]itofp|ptrtoint|inttoptr|bitcast|getelementptr|"
    rf"(insert|extract)(element|value)|shufflevector|landingpad) {_FLAGS}{_TYPE}|"
    rf"(icmp|fcmp) |atomicrmw \w|switch i\d+|unreachable$|fence \w|define |declare \S+ @|@\S+ = )| = alloca ",
    re.MULTILINE,
)
FOLDERS = ("cpu", "runtime", "interop")


_ONE = (ast.Lambda, ast.IfExp)
"""What has a body that is an expression."""


def strings(text: str) -> Iterator[str]:
    """The texts of a Python source other than docstrings; of an f-string the text with {} for what is put in."""
    tree = ast.parse(text)
    bodies: list[list[ast.stmt]] = [getattr(node, "body", []) for node in ast.walk(tree) if not isinstance(node, _ONE)]
    documentation = {id(statement.value) for body in bodies for statement in body if isinstance(statement, ast.Expr)}
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in ast.walk(node)} - {id(node)}
            if id(node) not in parts:
                yield "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation | parts:
            yield node.value


def has_syntax(text: str) -> bool:
    """Whether a Python source has texts that are LLVM's syntax."""
    return any(SYNTAX.search(string) for string in strings(text))


def written() -> set[str]:
    """The files outside of cpu/llvm that have some."""
    paths = (path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py"))
    return {
        path.relative_to(SOURCE).as_posix()
        for path in paths
        if path.parent != SOURCE / "cpu" / "llvm" and has_syntax(path.read_text(encoding="utf-8"))
    }


def test_llvm_syntax_stands_in_cpu_llvm_alone() -> None:
    assert not written(), "these write LLVM IR as text: write it with hlokit.cpu.llvm"


@pytest.mark.parametrize(
    "source",
    [
        'fn.let(f"getelementptr i8, ptr {base}, i64 8")',
        'fn.do(f"store {type} {value}, ptr {place}, align 4")',
        'fn.let(f"icmp {how} {type} {a}, {b}")',
        'fn.let(f"{name} = load atomic i64, ptr {place} acquire, align 8")',
        'fn.do("ret void")',
        'text = """\n  %x = add nsw i64 %y, 1\n"""',
        'text = "declare ptr @malloc(i64)"',
    ],
)
def test_syntax_is_seen(source: str) -> None:
    assert has_syntax(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring:\n\n    ret void\n"""',
        'x.binary("add nsw", other)',
        'raise ValueError(f"{name}: expected {x} or {y}, call {z} first")',
    ],
)
def test_other_texts_are_not(source: str) -> None:
    assert not has_syntax(source)
