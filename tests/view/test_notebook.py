"""What notebooks show of modules, executables, profiles and diffs."""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.golden.programs import BUNDLED, read_program
from tests.view.test_page import HOSTILE, Tags

_CELLS = ["""
import numpy as np
import hlokit as hk
b = hk.Builder("short")
x = b.parameter(0, hk.f32[8], "x")
module = b.build(hk.exp(x) + x)
module
""", "exe = hk.compile(module)\nexe", "exe.profile(np.ones(8, np.float32), repeat=1)", "hk.diff(module, hk.parse(str(module).replace('exponential', 'sine')))",
    "hk.diff(module, module).view()"]  # fmt: skip


class _Balance(HTMLParser):
    """The elements that are open at the end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown_by(value: Any) -> str:
    html = value._repr_html_()
    assert _Balance(html).open == []
    return html


def test_all_of_a_hostile_program_is_text() -> None:
    module = hk.load(HOSTILE)
    executable = hk.compile(module)
    arguments = [np.zeros(p.shape.dimensions, p.shape.dtype.numpy) for p in module.entry.parameters]
    other = hk.parse(str(module).replace("negate(", "sine("))
    for value in (module, executable, executable.profile(*arguments, repeat=1), hk.diff(module, other, ignore=())):
        html = shown_by(value)
        assert {tag.removeprefix("/") for tag, _ in Tags(html).tags} <= {
            "details", "summary", "div", "pre", "span", "table", "thead", "tbody", "tr", "th", "td",
        }  # fmt: skip
        assert {name for _, attributes in Tags(html).tags for name in attributes} <= {"style"}
        assert "\u202e" not in html and all(c.isprintable() or c == "\n" for c in html)


def test_long_programs_are_cut() -> None:
    module = hk.parse(read_program(BUNDLED, "gru_scan_grad").hlo)
    assert f"{len(module.instructions()):,} instructions in {len(module.computations())} computations" in shown_by(module)
    html = shown_by(chain(5000))
    assert "4,901 more" in html and len(html) < 20_000
    assert len(shown_by(hk.diff(chain(5000), chain(5000, hk.sin), ignore=()))) < 40_000


def chain(count: int, op: Any = hk.neg) -> hk.HloModule:
    b = hk.Builder("long")
    x = b.parameter(0, hk.f32[2], "x")
    for _ in range(count):
        x = op(x)
    return b.build(x)


def test_a_notebook_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(hk.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in _CELLS])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs[-1]["data"]["text/html"] for cell in book.cells]
    words = ("HloModule short", "Executable short", "a call", "1 changed", "sandbox=")
    assert [word in html for word, html in zip(words, outputs, strict=True)] == [True] * 5, outputs
