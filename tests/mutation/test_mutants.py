"""The mutants fit the code as it is. Whether tests kill them: python -m tests.mutation.run, which takes minutes."""

from __future__ import annotations

import pytest

from tests.mutation.labels import drawn
from tests.mutation.mutants import MUTANTS
from tests.mutation.run import stale


def test_every_drawn_label_has_a_mutant() -> None:
    assert not [label for label in drawn() if label not in MUTANTS]


@pytest.mark.parametrize("label", MUTANTS)
def test_the_snippet_is_in_the_code_once(label: str) -> None:
    assert not stale(MUTANTS[label]), "the code changed: write the mutant anew (tests/mutation/mutants.py)"
    assert MUTANTS[label].new != MUTANTS[label].old
