"""Every instruction of the bundled golden cases and programs: the form gives what the reference gives."""

from __future__ import annotations

import pytest

import hlokit as hk
from tests.forms.checking import Checker
from tests.golden.cases import Case, read_cases
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.golden.sample import SAMPLE

CASES = [case for case in read_cases(SAMPLE) if case.kind == "ok" and case.hlo is not None and not case.replica_inputs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.id}")
def test_forms_agree_with_references(case: Case) -> None:
    assert case.hlo is not None
    checker = Checker()
    checker.run(hk.parse(case.hlo), *case.inputs)
    assert not checker.wrong, "\n".join(checker.wrong)


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_forms_agree_in_whole_programs(name: str) -> None:
    recorded = read_program(BUNDLED, name)
    checker = Checker()
    checker.run(hk.parse(recorded.hlo), *recorded.inputs)
    assert not checker.wrong, "\n".join(checker.wrong)
