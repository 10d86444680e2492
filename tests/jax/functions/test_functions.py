"""JAX's public functions on the platform hlokit: every twentieth case, some 40 s of one core; all of them, slowly."""

from __future__ import annotations

import pytest

from tests.jax.functions.run import outcomes
from tests.jax.functions.table import areas, cases

ONE = [id for id, case in cases().items() if not case.environment][1::20]
SEVERAL = [id for id, case in cases().items() if case.environment][::20]


@pytest.mark.parametrize("ids", [ONE, SEVERAL], ids=["one_device", "several_devices"])
def test_some(ids: list[str]) -> None:
    _all_agree(ids)


@pytest.mark.slow
@pytest.mark.parametrize("area", areas())
def test_all(area: str) -> None:
    _all_agree([id for id, case in cases().items() if case.area == area])


def _all_agree(ids: list[str]) -> None:
    found = list(outcomes(ids))
    assert sorted(outcome.case.id for outcome in found) == sorted(ids)  # those of one environment run together
    failed = {outcome.case.id: outcome.error for outcome in found if outcome.error}
    assert not failed, "\n\n".join(f"{id}\n{error}" for id, error in failed.items())
