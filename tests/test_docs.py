"""The documents: every python block runs, generated pages are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    """All blocks of a page in one process, in order."""
    code = "\n".join(BLOCK.findall(page.read_text()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/generate.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_demo_runs() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples/demo.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "[BCAST-3]" in done.stdout
