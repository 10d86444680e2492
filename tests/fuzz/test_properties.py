"""Random programs, a few of each mode (the long version is a program: python -m tests.fuzz.run)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.callee import Callee
from hlokit.judge.closeness.spread import near
from hlokit.judge.fuzz.graph import ALL_TYPES, COLLECTIVES, RECIPES, Options
from hlokit.judge.fuzz.programs import random_draw, random_module
from hlokit.judge.fuzz.recipes import WITHOUT_RECIPE
from hlokit.judge.fuzz.shapes import large_draw
from hlokit.judge.fuzz.values import arguments
from tests.fuzz.run import finding, illegal, legal, text

MODES: dict[str, tuple[Callable[[int], str | None], int]] = {
    "legal": (legal, 270),
    "illegal": (illegal, 90),
    "text": (text, 30),
}
"""What is checked, and on how many modules."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", range(3))
def test_properties(mode: str, part: int) -> None:
    check, count = MODES[mode]
    found = {seed: what for seed in range(part, count, 3) if (what := finding(check, seed))}
    assert not found, f"python -m tests.fuzz.run --show {next(iter(found))}"


def test_every_op_is_drawn_or_left_out() -> None:
    assert set(RECIPES) | set(WITHOUT_RECIPE) == set(hk.OPS)
    assert not set(RECIPES) & set(WITHOUT_RECIPE)


def test_the_same_seed_gives_the_same_module() -> None:
    assert str(random_module(7)) == str(random_module(7))
    assert str(random_module(7)) != str(random_module(8))


def test_all_recipes_draw_something() -> None:
    drawn = {i.opcode for seed in range(400) for i in random_module(seed).instructions()}
    assert drawn >= set(RECIPES) - set(COLLECTIVES)


def test_spoilt_drafts_are_refused_with_many_labels() -> None:
    draws = [random_draw(seed, Options(illegal=0.5)) for seed in range(80)]
    labels = {error.label for draw in draws for error in draw.rejections}  # type: ignore[attr-defined]
    assert len(labels) > 40


@pytest.mark.parametrize("element", ALL_TYPES)
def test_references_have_arrays_of_scalars(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the arguments are NumPy's scalars, in what is called, and in runs that round otherwise."""
    seen: list[Any] = []

    def watched(function: Callable[..., Any], operands: int) -> Callable[..., Any]:
        def watching(*arguments: Any) -> Any:
            seen.extend(arguments[operands])
            return function(*arguments)

        return watching

    monkeypatch.setattr(interpreter, "_reference", watched(interpreter._reference, 1))
    monkeypatch.setattr(Callee, "of_each", watched(Callee.of_each, 2))
    for seed in range(10):
        module = random_module(seed, Options(types=(element,), rank=1, instructions=20))
        given = [value[()] for value in arguments(module, seed)]
        near((), (), module, given, seed)
    assert sum(isinstance(value, np.ndarray) and value.ndim == 0 for value in seen) > 99
    assert not [value for value in seen if isinstance(value, np.generic)]


def test_indices_of_a_large_gather_are_not_larger() -> None:
    # counts of 2^20 by 2^20 index vectors of slices without elements
    shapes = [i.shape for i in large_draw(84200061).module.instructions()]
    assert max(s.nbytes for s in shapes if s.is_array) < 1 << 30
