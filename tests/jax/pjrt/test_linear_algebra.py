"""Linear algebra and callbacks of JAX programs on the platform hlokit, in a process of its own."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.harness import checks, outcomes

SCRIPT = "linear_algebra.py"


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes(SCRIPT)


@pytest.mark.parametrize("name", checks(SCRIPT))
def test_platform(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]


@pytest.mark.slow
def test_all_of_linear_algebra() -> None:
    assert not outcomes(SCRIPT, ALL_OF_LINALG="1")["check_linear_algebra"]


@pytest.mark.slow
def test_interpreter() -> None:
    assert not any(outcomes(SCRIPT, HLOKIT_BACKEND="interpreter").values())
