"""Runs JAX on hlokit in a process of its own: the tests' own process has JAX on the CPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "scripts"


def checks(script: str) -> list[str]:
    """The names of the script's checks."""
    tree = ast.parse((SCRIPTS / script).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]


def outcomes(script: str, **environment: str) -> dict[str, str]:
    """What each check of the script raised: a traceback, or nothing."""
    done = python(str(SCRIPTS / "run.py"), str(SCRIPTS / script), **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def python(*arguments: str, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process in which JAX finds the plugin as if the package were installed.

    PYTHONPATH: where its packages are, if not in this checkout. HLOKIT_JAX_PYTHON: another Python, with another JAX.
    """
    with plugged(**environment) as variables:
        command = [os.environ.get("HLOKIT_JAX_PYTHON", sys.executable), "-X", "faulthandler", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout, check=False)


def said_of_hlokit(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a process's errors and warnings that name hlokit. JAX's CUDA plugin adds its own where no GPU is."""
    return [line for line in done.stderr.replace(str(ROOT), "").splitlines() if "hlokit" in line]


@contextmanager
def plugged(**environment: str) -> Iterator[dict[str, str]]:
    """The environment of a process in which JAX finds the plugin."""
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder))
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), folder])
        if "PYTHONPATH" in environment:
            path = os.pathsep.join([environment.pop("PYTHONPATH"), folder])
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "HLOKIT_BACKEND"))}
        yield variables | {"PYTHONPATH": path, "JAX_PLATFORMS": "hlokit,cpu", **environment}


def _install(folder: Path) -> None:
    """The entry points of pyproject.toml, where importlib.metadata finds them."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / "hlokit_of_the_tests-0.dist-info"
    info.mkdir()
    rows = [f"{name} = {target}" for name, target in project["entry-points"]["jax_plugins"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[jax_plugins]", *rows, ""]))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hlokit_of_the_tests\nVersion: 0\n")
