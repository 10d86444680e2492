"""Some folds of large arrays of every type; all: python -m tests.cpu.large_folds."""

from __future__ import annotations

import random

import pytest

from tests.cpu.large_folds import Fold, folds

SOME = random.Random(0).sample(list(folds()), 40)


@pytest.mark.parametrize("fold", SOME, ids=str)
def test_large_folds(fold: Fold) -> None:
    fold.check()
