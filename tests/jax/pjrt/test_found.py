"""What hostile use of the plugin found."""

import pytest

from tests.jax.pjrt.harness import checks, outcomes


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes("found.py")


@pytest.mark.parametrize("name", checks("found.py"))
def test_found(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]
