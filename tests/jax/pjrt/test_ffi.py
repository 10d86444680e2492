"""jax.ffi on hlokit: handlers registered for hlokit or for the CPU, before JAX's backends are there or after."""

from __future__ import annotations

import pytest

from tests.ffi import build
from tests.jax.pjrt.harness import checks, outcomes

SCRIPT = "foreign_functions.py"
_AS_CPU = {"HLOKIT_AS_CPU": "1", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
WAYS = {
    "hlokit": {"PLATFORM": "hlokit"},
    "cpu, after": {"PLATFORM": "cpu", "REGISTER": "after"},
    "hlokit, after": {"PLATFORM": "hlokit", "REGISTER": "after"},
    "cpu": {"PLATFORM": "cpu"},
    "cpu, alone": {"PLATFORM": "cpu", "JAX_PLATFORMS": "hlokit"},
    "as cpu": {"PLATFORM": "cpu", **_AS_CPU},
    "as cpu, after": {"PLATFORM": "cpu", "REGISTER": "after", **_AS_CPU},
}
_SLOW = ("cpu, after", "hlokit, after", "cpu", "cpu, alone", "as cpu, after")
pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing() or "-")


@pytest.fixture(
    scope="module", params=[pytest.param(way, marks=pytest.mark.slow) if way in _SLOW else way for way in WAYS]
)
def found(request: pytest.FixtureRequest) -> dict[str, str]:
    build.path("handlers.c"), build.path("handlers.cc")
    return outcomes(SCRIPT, **{"HLOKIT_NUM_DEVICES": "4", **WAYS[request.param]})


@pytest.mark.parametrize("name", checks(SCRIPT))
def test_jax_ffi(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]
