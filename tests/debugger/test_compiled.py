"""Compiled programs in the debugger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.math import primitives
from hlokit.errors import ArgumentError, UnsupportedError
from tests.runtime.test_shadow import LOOP, X, Y
from tests.test_command import command


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code generation takes subtract for add on floats."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    monkeypatch.setitem(primitives._FLOAT_BINARY, "sub", "fadd")


@pytest.mark.usefixtures("wrong")
def test_it_stands_where_machine_code_is_wrong() -> None:
    """In the first pass in which it matters: before, what is subtracted is zero."""
    arguments = np.zeros(24, np.float32), np.zeros(24, np.float32)
    module = hk.parse(LOOP.replace("sine(z)", "add(z, few)").replace(
        "  one = s32[]", "  f = f32[] convert(i)\n  few = f32[24] broadcast(f), dimensions={}\n  one = s32[]", 1
    ))  # fmt: skip
    d = hk.debug(hk.compile(module), *arguments)
    assert d.parting is not None and d.parting.instruction.name == "z" == d.parting.compiled
    assert d.next is not None and d.next.name == "z"
    assert d.frames[0].loop is not None and d.frames[0].loop.passes == d.parting.mismatch.run == 3
    assert "which comes from %z" in str(d.parting) and "the kernel gave" in str(d.parting)
    assert np.any(d.value("y") != 0)


@pytest.mark.usefixtures("wrong")
def test_the_instruction_is_the_one_of_the_program_as_it_was_given() -> None:
    """The kernel computes what is left after the passes: negations of negations are gone, equal subtractions one."""
    module = hk.parse(
        "HloModule m\nENTRY e { x = f32[64] parameter(0) y = f32[64] parameter(1) n = f32[64] negate(x) m = f32[64] negate(n)\n"
        "s = f32[64] subtract(x, y) t = f32[64] subtract(m, y) a = f32[64] multiply(s, t) ROOT r = f32[64] tanh(a) }"
    )
    x = np.linspace(0.1, 1, 64, dtype=np.float32)
    d = hk.debug(hk.compile(module), x, x[::-1].copy())
    assert d.parting is not None and d.parting.instruction.name in ("s", "t") and d.next is d.parting.instruction


def test_right_machine_code() -> None:
    d = hk.debug(hk.compile(hk.parse(LOOP)), X, Y)
    assert d.parting is None and d.time == 0 and d.breakpoints == []


def test_what_cannot_be_debugged() -> None:
    module = hk.parse("HloModule m\nENTRY e { x = f32[<=4] parameter(0) ROOT r = f32[<=4] negate(x) }")
    with pytest.raises(UnsupportedError, match="dynamic dimensions"):
        hk.debug(hk.compile(module), np.ones(4, np.float32))
    with pytest.raises(UnsupportedError, match="expected an HloModule or an Executable"):
        hk.debug(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="are for modules"):
        hk.debug(hk.compile(hk.parse(LOOP)), X, Y, replicas=1)


@pytest.mark.usefixtures("wrong")
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(LOOP, encoding="utf-8")
    status, out, _ = command(capsys, f"debug {tmp_path / 'm.hlo'} --random 0 --compiled --command where --command quit")
    assert status == 0 and "comes from %z" in out and "body of %w (iteration 0) at %z" in out
