"""The documents: every python block runs, generated pages are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.cpu.target import parse

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    """All blocks of a page in one process, in order."""
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_loops_shown_are_the_compilers() -> None:
    """The listing of docs/machine_code.md, but for the function's name, which hangs on its text."""
    page = (ROOT / "docs/machine_code.md").read_text()
    (shown,) = re.findall(r"^```\n(program softmax\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(BLOCK.findall(page)[0], names)
    made = hk.compile(names["module"], target=parse("x86-64-avx512")).as_text("loops")
    function = re.compile(r"@k\w+")
    assert function.sub("@k", made).strip() == function.sub("@k", shown).strip()


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/generate.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_demo_runs() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples/demo.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "[BCAST-3]" in done.stdout
