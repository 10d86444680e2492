"""The commands of docs/howto/launch.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpi.launch import ROOT, SECONDS, needs_mpi

PAGE = ROOT / "docs/howto/launch.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("python -m hlokit.launch")
]


@needs_mpi
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_page_run(line: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {int(number) for number in re.findall(r"^\[(\d+)\] ", done.stdout, re.MULTILINE)} <= set(range(4)), done.stdout
    assert done.stdout.startswith("[")


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 2


@needs_mpi
def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    script = re.search(r"This is a whole `train.py`:\n\n```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert script is not None
    (tmp_path / "train.py").write_text(script[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hlokit.launch", "-n", "2", "--", sys.executable, "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS,
        env={**os.environ, "JAX_PLATFORMS": "hlokit,cpu", "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0] [0.124244"), done.stdout
