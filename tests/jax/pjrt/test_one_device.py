"""JAX on hlokit: one device."""

import pytest

from tests.jax.pjrt.harness import checks, outcomes


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes("one_device.py")


@pytest.mark.parametrize("name", checks("one_device.py"))
def test_one_device(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]
