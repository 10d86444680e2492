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


@pytest.mark.parametrize("number", ["0", "-1", "four", "100000"])
def test_numbers_of_devices_that_there_are_not(number: str) -> None:
    done = python("-c", "import jax; jax.devices('hlokit')", HLOKIT_NUM_DEVICES=number)
    assert done.returncode == 1
    assert "expected a number from 1 to 256" in done.stderr
