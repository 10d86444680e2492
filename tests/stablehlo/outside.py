"""What jaxlib makes of StableHLO texts, in a process of its own that may abort."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

Question = tuple[str, str, list[str]]
"""(id, text, [file of inputs, file for results] or [])."""


def ask(questions: Sequence[Question], seconds: float = 600) -> dict[str, dict[str, Any]]:
    """The answers by id (see jaxlib_reader.py). A text that aborts the process has the error "aborted"."""
    answers: dict[str, dict[str, Any]] = {}
    rest = list(questions)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    while rest:
        request = "".join(json.dumps(question) + "\n" for question in rest)
        command = [sys.executable, "-m", "tests.stablehlo.jaxlib_reader"]
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, check=False, timeout=seconds, env=environment
        )
        found = dict(line for line in map(json.loads, done.stdout.splitlines()) if line[0] != "begin")
        answers.update(found)
        if done.returncode == 0:
            break
        if not done.stdout:
            raise RuntimeError(f"no jaxlib: {done.stderr.strip()[-300:]}")
        answers[rest[len(found)][0]] = {"error": f"aborted: {done.stderr.strip()[-300:]}"}
        rest = rest[len(found) + 1 :]
    return answers
