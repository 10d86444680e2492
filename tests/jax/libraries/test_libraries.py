"""Libraries of JAX run unmodified on hlokit, as on JAX's CPU client: the scripts say what of them.

`make test-libraries` installs the group `libraries` of pyproject.toml, and runs these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.jax.pjrt.harness import python

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Case:
    """A script, and how far its results may be from JAX's, relative to each array's largest element.

    `within`: tolerances of results whose name begins so, the first that fits. `as_cpu`: hlokit as JAX's CPU, for a
    library that takes no platform that it does not know.
    """

    script: str
    within: dict[str, float]
    as_cpu: bool = False


ROUNDING = 2e-5  # float32, over tens of steps: JAX's own results move by some 1e-6 with the arguments' last bits

CASES = [
    Case("flax_linen", {"": ROUNDING}),
    Case("flax_nnx", {"": 1e-4}),  # Adam divides small gradients by their size: one last bit moves JAX's own by 1e-5
    Case("optax_solvers", {"": ROUNDING}),
    Case("equinox_recurrent", {"": ROUNDING}),
    # How many steps of float32 a stiff system takes hangs on the last bits (116 to 119 on JAX's CPU client)
    Case("mujoco_step", {"": 1e-4}, as_cpu=True),
    Case("diffrax_equations", {"['stiff']['steps']": 0.1, "['stiff']['path']": 5e-3, "": ROUNDING}),
    # A long chain's path hangs on the last bits: moments, whose error of sampling is about a twentieth
    Case("numpyro_inference", {"['statistics']['means']": 0.1, "['statistics']['deviations']": 0.25, "": ROUNDING}),
]


def results(platform: str, script: str, folder: Path, as_cpu: bool = False) -> dict[str, np.ndarray]:
    """What the script's `run()` gives on the platform, by the path of each leaf. `as_cpu`: hlokit is the CPU."""
    file = folder / f"{platform}{as_cpu}.npz"
    choice = {"JAX_PLATFORMS": "cpu" if platform == "cpu" else f"{platform},cpu", "HLOKIT_AS_CPU": str(int(as_cpu))}
    arguments = [str(SCRIPTS / "run.py"), platform, str(SCRIPTS / f"{script}.py"), str(file)]
    done = python(*arguments, timeout=600, **choice)
    if "ModuleNotFoundError" in done.stderr:
        pytest.fail(f"the libraries are not there: `make test-libraries` installs them\n{done.stderr[-500:]}")
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_library(case: Case, tmp_path: Path) -> None:
    expected = results("cpu", case.script, tmp_path)
    found = results("cpu" if case.as_cpu else "hlokit", case.script, tmp_path, case.as_cpu)
    assert found.keys() == expected.keys()
    wrong = []
    for name, value in expected.items():
        tolerance = next(within for start, within in case.within.items() if name.startswith(start))
        distance = apart(found[name], value)
        if not distance <= tolerance:
            wrong.append(f"{name}: {distance:.2e} apart, {tolerance:.0e} allowed")
    assert not wrong, "\n".join(wrong)


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest element expected; infinite where a shape or a type differs."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return np.inf
    if not np.issubdtype(expected.dtype, np.inexact):
        return 0.0 if np.array_equal(found, expected) else np.inf
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return np.inf
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=0) or 1.0
    return float(np.abs(found[finite] - expected[finite]).max(initial=0) / scale)
