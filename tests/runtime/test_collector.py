"""Compiles pause Python's collector of cyclic garbage, and leave it as it was."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import hlokit as hk
from hlokit import api, memory
from hlokit.errors import OutOfMemoryError, ParseError
from hlokit.hlo.module import HloModule
from hlokit.memory import Promotion, uncollected
from hlokit.runtime.compilation import Compilation

PROGRAM = "HloModule m\nENTRY e { x = f32[4000] parameter(0) ROOT y = f32[4000] negate(x) }"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_a_compile_leaves_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    check = Compilation.check_memory

    def checked(self: Compilation, *given: object) -> None:
        seen.append(gc.isenabled())
        check(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Compilation, "check_memory", checked)
    hk.compile(hk.parse(PROGRAM))
    assert seen and not any(seen) and gc.isenabled()
    with pytest.raises(OutOfMemoryError):
        hk.compile(hk.parse(PROGRAM), memory_limit=100)
    assert gc.isenabled()


def test_it_is_off_while_a_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    read = api.module_of_text

    def reading(*given: Any) -> HloModule:
        seen.append(gc.isenabled())
        return read(*given)

    monkeypatch.setattr(api, "module_of_text", reading)
    hk.parse(PROGRAM)
    assert seen == [False] and gc.isenabled()
    with pytest.raises(ParseError):
        hk.parse("HloModule m\nENTRY e {")
    assert gc.isenabled()


def test_a_compile_leaves_it_off() -> None:
    gc.disable()
    hk.compile(hk.parse(PROGRAM))
    assert not gc.isenabled()


def test_it_is_on_again_when_the_last_of_two_threads_is_done() -> None:
    inside, first_is_done, seen = threading.Barrier(2), threading.Event(), list[bool]()

    @uncollected
    def first() -> None:
        inside.wait(30)

    @uncollected
    def second() -> None:
        inside.wait(30)
        assert first_is_done.wait(30)
        seen.append(gc.isenabled())

    other = threading.Thread(target=second)
    other.start()
    first()
    first_is_done.set()
    other.join(30)
    assert seen == [False] and gc.isenabled()


class Cycle:
    """An object that refers to itself: garbage for the collector alone."""

    def __init__(self) -> None:
        self.itself = self


@uncollected
def make(kept: int) -> tuple[list[list[int]], weakref.ref[Cycle]]:
    """So many objects that are still needed, and one that is not."""
    return [[k] for k in range(kept)], weakref.ref(Cycle())


@pytest.fixture
def promotion(monkeypatch: pytest.MonkeyPatch) -> Promotion:
    gc.collect()
    fresh = Promotion()
    monkeypatch.setattr(memory, "_promotion", fresh)
    return fresh


def test_what_a_long_compile_made_is_promoted(promotion: Promotion) -> None:
    kept, gone = make(Promotion.LEAST)
    assert gone() is not None and any(each is kept for each in gc.get_objects(generation=2))
    assert promotion.promoted >= Promotion.LEAST
    gc.collect()
    assert gone() is None
    make(Promotion.LEAST)
    assert promotion.promoted < 2 * Promotion.LEAST  # counted from the last full collection


def test_what_a_short_compile_made_is_not(promotion: Promotion) -> None:
    kept, _ = make(1000)
    assert len(kept) == 1000 and promotion.promoted == 0


def test_promotions_between_full_collections_are_bounded(promotion: Promotion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Promotion, "MOST", 2 * Promotion.LEAST + 1000)
    kept, first = make(Promotion.LEAST)
    more, second = make(Promotion.LEAST)
    assert first() is not None and second() is not None
    rest, third = make(Promotion.LEAST)
    rest.append([len(kept), len(more)])  # the collector goes through young objects when the next one is made
    assert third() is None and first() is not None
    assert promotion.promoted <= Promotion.MOST


def test_what_the_application_froze_stays_frozen(promotion: Promotion) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        make(Promotion.LEAST)
        assert gc.get_freeze_count() > frozen / 2 and promotion.promoted == 0  # a few may have gone
    finally:
        gc.unfreeze()
