"""Values that are computed again to fit a memory limit: fewer bytes, the same bits."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import XlaOp
from hlokit.errors import ArgumentError, OutOfMemoryError
from hlokit.runtime.executable import Executable

LAYERS, SIZE = 12, 128


def gradient(layers: int = LAYERS) -> hk.HloModule:
    """The gradient with respect to x of many layers, each of which takes what the layer before it gave."""
    b = hk.Builder("gradient")
    x, w, g = (b.parameter(k, hk.f32[SIZE, SIZE]) for k in range(3))
    given = [x]
    for _ in range(layers):
        given.append(hk.tanh(hk.dot(given[-1], w) + 0.5))
    for after in given[:0:-1]:
        g = hk.dot(g * (1.0 - after * after), hk.transpose(w, [1, 0]))
    return b.build(g)


def arguments() -> list[Any]:
    chance = np.random.default_rng(5)
    return [np.float32(chance.normal(size=(SIZE, SIZE)) / 12) for _ in range(3)]


def limit(exe: Executable, share: float) -> int:
    """The bytes that the program needs if its temporaries take this share of what they take now."""
    found = exe.memory_analysis()
    return found.peak_memory_in_bytes - int((1 - share) * found.temp_size_in_bytes)


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_a_program_fits_its_limit(share: float) -> None:
    usual = hk.compile(gradient())
    most = limit(usual, share)
    exe = hk.compile(gradient(), memory_limit=most)
    assert exe.memory_analysis().peak_memory_in_bytes <= most
    assert any(what == "computed again" for _, what, _ in exe.reasons)
    np.testing.assert_array_equal(exe(*arguments()), usual(*arguments()))


def test_a_limit_that_nothing_can_meet_is_an_error() -> None:
    for layers in (LAYERS, 20 * LAYERS):
        most = limit(hk.compile(gradient(layers)), 0.01)
        with pytest.raises(OutOfMemoryError, match=f"more than the limit of {most:,}"):
            hk.compile(gradient(layers), memory_limit=most)


def test_the_error_names_the_least_limit() -> None:
    with pytest.raises(OutOfMemoryError) as refused:
        hk.compile(gradient(), memory_limit=1)
    found = re.search(r"at least ([\d,]+) bytes", str(refused.value))
    assert found is not None
    least = int(found[1].replace(",", ""))
    assert least < hk.compile(gradient()).memory_analysis().peak_memory_in_bytes
    assert hk.compile(gradient(), memory_limit=least).memory_analysis().peak_memory_in_bytes == least
    with pytest.raises(OutOfMemoryError, match=f"at least {least:,} bytes"):
        hk.compile(gradient(), memory_limit=least - 1)


def test_plans_for_a_limit_are_cached_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path))
    usual = hk.compile(gradient())
    most = limit(usual, 0.6)
    first, second = (hk.compile(gradient(), memory_limit=most) for _ in range(2))
    assert first.recompiled and not second.recompiled
    assert not hk.compile(gradient()).recompiled
    assert usual.memory_analysis().peak_memory_in_bytes > most
    for exe in (first, second):
        assert exe.memory_analysis().peak_memory_in_bytes <= most
        np.testing.assert_array_equal(exe(*arguments()), usual(*arguments()))


def test_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    most = limit(hk.compile(gradient()), 0.6)
    monkeypatch.setenv("HLOKIT_MEMORY_LIMIT", str(most))
    assert hk.compile(gradient()).memory_analysis().peak_memory_in_bytes <= most
    assert hk.compile(gradient(), memory_limit=1 << 40).memory_analysis().peak_memory_in_bytes > most
    monkeypatch.setenv("HLOKIT_MEMORY_LIMIT", "2GB")
    with pytest.raises(ArgumentError, match="HLOKIT_MEMORY_LIMIT='2GB' is not a number of bytes"):
        hk.compile(gradient())


def test_programs_that_fit_are_as_without_a_limit() -> None:
    usual = hk.compile(gradient(3))
    exe = hk.compile(gradient(3), memory_limit=limit(usual, 1.0))
    assert exe.as_text("loops") == usual.as_text("loops")


def test_a_loop_keeps_what_it_makes_for_a_pass_alone() -> None:
    """Values of a loop's body use one memory after the other."""

    def body(i: XlaOp, x: XlaOp) -> list[XlaOp]:
        for _ in range(8):
            x = hk.tanh(hk.dot(x, x))
        return [i + 1, x]

    def condition(i: XlaOp, _: XlaOp) -> XlaOp:
        return hk.lt(i, 5)

    b = hk.Builder("loop")
    start = [b.constant(np.int32(0)), b.parameter(0, hk.f32[SIZE, SIZE])]
    module = b.build(hk.while_loop(condition, body, start)[1])
    assert hk.compile(module).memory_analysis().temp_size_in_bytes < 5 * 4 * SIZE * SIZE
