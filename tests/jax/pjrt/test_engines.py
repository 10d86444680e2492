"""JAX on hlokit's interpreter and in shadow mode."""

import re
from pathlib import Path

import pytest

from tests.jax.pjrt.harness import checks, outcomes, python

ENGINES = {"interpreter": {"HLOKIT_BACKEND": "interpreter"}, "shadow": {"HLOKIT_SHADOW": "1"}}


@pytest.fixture(scope="module", params=ENGINES)
def found(request: pytest.FixtureRequest) -> dict[str, str]:
    return outcomes("engines.py", HLOKIT_NUM_DEVICES="2", **ENGINES[request.param])


@pytest.mark.parametrize("name", checks("engines.py"))
def test_engines(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]


def test_an_engine_that_there_is_not() -> None:
    done = python("-c", "import jax; jax.jit(lambda x: x + 1)(1.0)", HLOKIT_BACKEND="gpu")
    assert done.returncode == 1
    assert "HLOKIT_BACKEND='gpu': expected compiled or interpreter" in done.stderr


def test_the_nan_trap_wants_the_interpreter() -> None:
    done = python("-c", "import jax; jax.jit(lambda x: x + 1)(1.0)", HLOKIT_TRAP_NAN="1")
    assert done.returncode == 1
    assert "HLOKIT_TRAP_NAN requires HLOKIT_BACKEND=interpreter; HLOKIT_DEBUG=first-nan finds" in done.stderr


def test_shadow_mode_finds_a_wrong_kernel() -> None:
    code = """
import hlokit.cpu.compiler as compiler
from hlokit.runtime import shadow
found = []
real = shadow.shadowed
shadow.shadowed = lambda executable, directory: (found.append(executable.source.name), real(executable, directory))[1]
import jax
assert jax.jit(lambda x: x * 3 + 1)(2.0) == 7
print(found)
"""
    done = python("-c", code, HLOKIT_SHADOW="1")
    assert done.returncode == 0, done.stderr
    assert "jit__lambda" in done.stdout


@pytest.fixture(scope="module")
def watched() -> dict[str, str]:
    return outcomes("debug.py", HLOKIT_DEBUG="first-nan")


@pytest.mark.parametrize("name", checks("debug.py"))
def test_watched_programs(name: str, watched: dict[str, str]) -> None:
    assert watched[name] == ""


def test_a_file_for_profiles_that_cannot_be_written(tmp_path: Path) -> None:
    done = python("-c", "import jax; jax.jit(lambda x: x + 1)(1.0)", HLOKIT_PROFILE=str(tmp_path / "none" / "steps.txt"))
    assert done.returncode == 1
    assert "steps.txt': No such file or directory, expected a file that can be written" in done.stderr


def test_steps_of_a_script_are_timed(tmp_path: Path) -> None:
    code = """
import jax, jax.numpy as jnp
from functools import partial

@partial(jax.jit, donate_argnums=0)
def train(w, x):
    return w - 0.1 * jnp.tanh(x.T @ (x @ w))

@jax.jit
def series(x):
    return jax.lax.fori_loop(0, 50, lambda i, y: jnp.sin(y) + x, x)

w, x = jnp.ones((64, 64)), jnp.ones((128, 64))
for _ in range(7):
    w = train(w, x)
s = series(x)
assert w.shape == (64, 64) and bool(jnp.isfinite(s).all())
"""
    file = tmp_path / "profile.txt"
    once = """
import atexit
from hlokit.interop.pjrt import profiled
real, reports = profiled.report, []
profiled.report = lambda seconds: (reports.append(seconds), real(seconds))[1]
atexit.register(lambda: print("reports", len(reports)))
"""
    done = python("-c", once + code, HLOKIT_PROFILE=str(file))
    assert done.returncode == 0, done.stderr
    assert "reports 1" in done.stdout, done.stdout
    text = file.read_text(encoding="utf-8")
    assert re.match(r"\S+ (us|ms|s) in the steps of \d+ programs, of \S+ (ms|s) since the first was compiled\n", text), text
    assert re.search(r"%  jit_train: \S+ (us|ms) in 7 calls\n", text), text
    assert re.search(r"%  jit_series: \S+ (us|ms) in 1 call\n", text), text
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["jit_train"], ["jit_series"])]
    assert {row[0] for row in rows} == {"jit_train", "jit_series"}, text
    assert all(row[-1].startswith("<string>:") for row in rows if "(copy)" not in row), text
    assert any("7" in row for row in rows) and text.rstrip().endswith("GF/s in f32"), text
