"""The scripts of scripts/ give the same under hlokit as they gave, and give, under jaxlib 0.4.30.

recorded/ holds what jaxlib gave. `make jaxlib-0.4.30` makes an environment in which the tests marked `outside` run the
scripts again; HLOKIT_JAXLIB_0430 names the Python of another one. To record again:
for s in scripts/[!h]*.py; do $PYTHON $s jaxlib.xla_client recorded/$(basename $s .py).npz; done
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(p.stem for p in (HERE / "scripts").glob("*.py") if p.stem != "harness")
JAXLIB = Path(os.environ.get("HLOKIT_JAXLIB_0430", HERE.parents[1] / ".venv-0.4.30" / "bin" / "python"))


def run(python: str | Path, script: str, module: str, output: Path) -> dict[str, np.ndarray]:
    command = [str(python), str(HERE / "scripts" / f"{script}.py"), module, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return load(output)


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as saved:
        return dict(saved)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    wrong = [name for name in expected if not agree(found[name], expected[name])]
    assert not wrong, "\n".join(f"{name}: found {found[name]!r}, expected {expected[name]!r}" for name in wrong)


def agree(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.dtype.kind == expected.dtype.kind == "U":
        return str(found) == str(expected)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if expected.dtype.kind not in "fc":
        return np.array_equal(found, expected)
    return np.allclose(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("script", SCRIPTS)
def test_gives_what_jaxlib_gave(script: str, tmp_path: Path) -> None:
    found = run(sys.executable, script, "hlokit.interop.xla_client", tmp_path / "found.npz")
    assert_same(found, load(HERE / "recorded" / f"{script}.npz"))


@pytest.mark.outside
@pytest.mark.skipif(not JAXLIB.exists(), reason="no jaxlib 0.4.30: make jaxlib-0.4.30")
@pytest.mark.parametrize("script", SCRIPTS)
def test_gives_what_jaxlib_gives(script: str, tmp_path: Path) -> None:
    found = run(sys.executable, script, "hlokit.interop.xla_client", tmp_path / "found.npz")
    assert_same(found, run(JAXLIB, script, "jaxlib.xla_client", tmp_path / "expected.npz"))
