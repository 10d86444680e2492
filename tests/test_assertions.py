"""Every test asserts something, on each of its ways."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_ASSERTING = ("raises", "warns", "fail", "deprecated_call")
"""Functions of pytest that assert; those of NumPy and unittest begin with assert."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, but for the functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (*Function.__args__, ast.ClassDef, ast.Lambda)):
            yield child
            yield from own_nodes(child)


def called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def root(node: ast.AST) -> str:
    """The variable that an expression begins with: x of x.y.z()."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def outsiders(tree: ast.Module) -> set[str]:
    """What the file imports from elsewhere than the tests."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("tests")
        ):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


class Checked:
    """A function of the tests.

    asserts   whether it asserts by itself
    calls     names of functions of the tests that it may call
    returns   whether it returns before its end
    """

    def __init__(self, where: str, function: Function, foreign: set[str]) -> None:
        self.where, self.name = f"{where}:{function.lineno}", function.name
        self.asserts, self.calls = False, set[str]()
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                self.asserts = True
            elif isinstance(node, ast.Raise) and node.exc is not None:
                self.asserts |= "AssertionError" in ast.dump(node.exc)
            elif isinstance(node, ast.Call):
                name = called_name(node)
                self.asserts |= name in _ASSERTING or name.startswith("assert")
                self.asserts |= any(k.arg == "check" and ast.unparse(k.value) == "True" for k in node.keywords)
                if root(node) not in foreign:
                    self.calls.add(name)
        self.returns = any(isinstance(node, ast.Return) for node in own_nodes(function))

    @property
    def is_test(self) -> bool:
        return self.name.startswith("test") and self.where.rpartition("/")[2].startswith("test_")


def faults(sources: dict[str, str]) -> list[str]:
    """A line for each test that asserts nothing, or that returns in the middle of its body."""
    functions: list[Checked] = []
    for where, text in sources.items():
        tree = ast.parse(text)
        foreign = outsiders(tree)
        functions += [Checked(where, node, foreign) for node in ast.walk(tree) if isinstance(node, Function)]
    names: set[str] = set()
    while more := {f.name for f in functions if f.name not in names and (f.asserts or f.calls & names)}:
        names |= more
    found: list[str] = []
    for function in functions:
        if function.is_test and not function.asserts and not function.calls & names:
            found.append(f"{function.where}: {function.name} asserts nothing")
        if function.is_test and function.returns:
            found.append(f"{function.where}: {function.name} returns; pytest.skip tells why")
    return found


def test_every_test_asserts() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    assert faults({str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in paths}) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("compute()", "asserts nothing"),
        ("hk.check(x)", "asserts nothing"),
        ("if x:\n        return\n    assert x", "returns"),
        ("assert x", None),
        ("check(x)", None),
        ("subprocess.run(x, check=True)", None),
        ("np.testing.assert_allclose(x, y)", None),
        ("with pytest.raises(ValueError):\n        x()", None),
        ("def inner():\n        return 1\n    assert inner()", None),
    ],
)
def test_faults(body: str, fault: str | None) -> None:
    text = f"import hlokit as hk\n\ndef check(x):\n    deeper(x)\n\ndef deeper(x):\n    assert x\n\ndef test(x):\n    {body}\n"
    found = faults({"test_x.py": text})
    assert [fault in line for line in found] == ([True] if fault else [])  # type: ignore[operator]
