"""JAX on hlokit: four devices."""

import pytest

from tests.jax.pjrt.harness import checks, outcomes, python


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes("devices.py", HLOKIT_NUM_DEVICES="4")


@pytest.mark.parametrize("name", checks("devices.py"))
def test_four_devices(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]


@pytest.fixture(scope="module")
def sharded() -> dict[str, str]:
    return outcomes("shardings.py", HLOKIT_NUM_DEVICES="8")


@pytest.mark.parametrize("name", checks("shardings.py"))
def test_shardings_as_on_jax_cpu_client(name: str, sharded: dict[str, str]) -> None:
    assert not sharded[name], sharded[name]


@pytest.fixture(scope="module")
def in_parts() -> dict[str, str]:
    return outcomes("parts.py", HLOKIT_NUM_DEVICES="8", HLOKIT_PARTITION="parts")


@pytest.mark.parametrize("name", checks("parts.py"))
def test_in_parts(name: str, in_parts: dict[str, str]) -> None:
    assert not in_parts[name], in_parts[name]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["parts", "whole"])
@pytest.mark.parametrize(("script", "count"), [("devices.py", "4"), ("shardings.py", "8")])
def test_modes(script: str, count: str, mode: str) -> None:
    """Results and where they lie are the same in parts and on whole values."""
    found = outcomes(script, HLOKIT_NUM_DEVICES=count, HLOKIT_PARTITION=mode)
    assert not any(found.values()), "\n".join(found.values())


def test_modes_that_there_are_not() -> None:
    done = python("-c", _TWO_DEVICES, HLOKIT_NUM_DEVICES="2", HLOKIT_PARTITION="some")
    assert done.returncode == 1 and "expected one of auto, parts, whole" in done.stderr


_TWO_DEVICES = """
import jax, numpy as np
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(np.ones(4, np.float32), jax.NamedSharding(mesh, jax.P("x")))
jax.jit(lambda x: x + 1)(x)
"""


@pytest.mark.parametrize("number", ["0", "-1", "four", "100000"])
def test_numbers_of_devices_that_there_are_not(number: str) -> None:
    done = python("-c", "import jax; jax.devices('hlokit')", HLOKIT_NUM_DEVICES=number)
    assert done.returncode == 1
    assert "expected a number from 1 to 256" in done.stderr
