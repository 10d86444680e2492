"""JAX on hlokit: one device."""

from pathlib import Path

import pytest

from tests.pjrt.harness import checks, outcomes, python


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes("one_device.py")


@pytest.mark.parametrize("name", checks("one_device.py"))
def test_one_device(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]


_CACHED = """
import os, sys, jax, jax.numpy as jnp, numpy as np
name, folder = sys.argv[1:]
jax.config.update("jax_compilation_cache_dir", folder)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
functions = {"add": lambda a: np.asarray(a) + 1, "multiply": lambda a: np.asarray(a) * 10}
call = lambda x: jax.pure_callback(functions[name], jax.ShapeDtypeStruct((2,), np.float32), x)
print(jax.jit(lambda x: call(x) * 1.0)(np.full(2, 3, np.float32)).tolist())
print(sorted(n.split("-")[0] for n in os.listdir(folder) if n.endswith("-cache")))
try:
    jax.jit(call).lower(np.zeros(2, np.float32)).compile().runtime_executable().serialize()
except Exception as error:
    print(error)
"""


def test_programs_with_callbacks_are_not_kept_for_other_processes(tmp_path: Path) -> None:
    """Two processes with other functions of one number: as on JAX's CPU client, nothing of them is in the cache."""
    for name, expected in (("add", "[4.0, 4.0]"), ("multiply", "[30.0, 30.0]")):
        done = python("-c", _CACHED, name, str(tmp_path))
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.splitlines()[:2] == [expected, "[]"]
        assert "a program that calls Python functions is not serialized" in done.stdout
        assert "Error writing" not in done.stderr
