"""StableHLO text that hlokit writes, read and run by jaxlib."""

from __future__ import annotations

import pytest

import hlokit as hk
from tests.golden.programs import BUNDLED
from tests.stablehlo import roundtrip
from tests.stablehlo.outside import ask
from tests.stablehlo.roundtrip import FAILED, PASSED
from tests.stablehlo.test_printer import EVERYTHING, sample


@pytest.mark.outside
def test_jaxlib_reads_the_golden_sample() -> None:
    outcomes = list(roundtrip.through_jaxlib(sample()[::2], run=False))
    assert not [o for o in outcomes if o.status == FAILED] and len(outcomes) > 125


@pytest.mark.outside
def test_xla_runs_jax_programs_with_the_recorded_results() -> None:
    names = ("mlp_forward", "top_p_sampling")
    subjects = [s for s in roundtrip.program_subjects(BUNDLED) if any(n in s.name for n in names)]
    outcomes = list(roundtrip.through_jaxlib(subjects, run=True))
    assert len(outcomes) == 4 and {o.status for o in outcomes} == {PASSED}


@pytest.mark.outside
def test_jaxlib_reads_everything() -> None:
    answers = ask([("everything", hk.to_stablehlo(hk.parse(EVERYTHING)), [])])
    assert "proto" in answers["everything"], answers
