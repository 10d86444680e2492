"""JAX on hlokit's interpreter and in shadow mode."""

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
