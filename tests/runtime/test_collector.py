"""Compiles pause Python's collector of cyclic garbage, and leave it as it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import hlokit as hk
from hlokit import api
from hlokit.errors import OutOfMemoryError, ParseError
from hlokit.hlo.module import HloModule
from hlokit.memory import uncollected
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
