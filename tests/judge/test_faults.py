"""The edits that put faults into code."""

import ast
from pathlib import Path

import hlokit as hk
from tests.judge.edits_of_code import edits

SOURCE = Path(hk.__file__).parent


def test_edits_are_code_that_differs() -> None:
    found = list(edits(SOURCE, ("passes/cse.py", "ops/functions.py")))
    assert {e.mutant.file for e in found} == {"passes/cse.py", "ops/functions.py"}
    assert {(e.old, e.new) for e in found} >= {("+", "-"), ("not", ""), ("and", "or"), ("==", "!=")}
    for edit in found:
        assert ast.dump(ast.parse(edit.mutant.new)) != ast.dump(ast.parse(edit.mutant.old)), edit.where


def test_the_line_of_an_edit_is_the_one_that_changes() -> None:
    for edit in edits(SOURCE, ("passes/cse.py",)):
        pairs = zip(edit.mutant.old.splitlines(), edit.mutant.new.splitlines(), strict=True)
        changed = [number for number, (a, b) in enumerate(pairs, 1) if a != b]
        assert all(edit.first <= number <= edit.last for number in changed)


def test_the_name_of_an_edit_hangs_on_the_lines_beside_it_alone(tmp_path: Path) -> None:
    text = "def f(x):\n    y = x + 1\n    return y\n\n\ndef g(x):\n    y = x + 1\n    return y * y\n"
    ends = text.replace("y * y", "y * x"), text.replace("return y\n", "return x\n")
    texts = [text, "import os\n\n\n" + text, *ends]
    names: list[list[str]] = []
    for source in texts:
        (tmp_path / "m.py").write_text(source, encoding="utf-8")
        names.append([e.name for e in edits(tmp_path, ("m.py",))])
    first, shifted, other_end, other_middle = names
    assert len(set(first)) == len(first) == 5 and shifted == first
    assert other_end[:2] == first[:2] and not set(other_end[2:]) & set(first)
    assert other_middle[2:] == first[2:] and not set(other_middle[:2]) & set(first)
