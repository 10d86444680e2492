"""The emitter's own part: literals, refusals, what is known without asking the backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlokit.forms.affine import Affine, Key
from hlokit.forms.emitter import Value
from hlokit.types.dtype import DTYPES, DType, bf16, c64, f32, pred, s4, s32
from tests.forms.evaluator import Element, NumpyEmitter


def a(dtype: DType, value: Any) -> Value:
    return Element(dtype, np.asarray(value).astype(dtype.numpy))


EMIT = NumpyEmitter()


def test_numbers_take_the_type_beside_them() -> None:
    x: Any = EMIT.sub(1, a(f32, 0.25))
    assert x.dtype is f32 and x.data == 0.75
    chosen: Any = EMIT.select(a(pred, True), a(s32, 3), 4)
    assert chosen.dtype is s32 and chosen.data == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: EMIT.add(a(f32, 1), a(s32, 1)),
        lambda: EMIT.add(1.0, 2.0),
        lambda: EMIT.add(a(bf16, 1), a(bf16, 1)),
        lambda: EMIT.add(a(s4, 1), 1),
        lambda: EMIT.add(a(c64, 1), a(c64, 1)),
        lambda: EMIT.sqrt(a(s32, 1)),
        lambda: EMIT.shl(a(f32, 1), 1),
        lambda: EMIT.neg(a(pred, True)),
        lambda: EMIT.select(a(s32, 1), a(f32, 1), 2.0),
        lambda: EMIT.apply("add", a(f32, 1)),
        lambda: EMIT.apply("convert", a(f32, 1)),
    ],
)
def test_what_a_primitive_does_not_take_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrong()


def test_conditions_that_are_known_ask_nothing() -> None:
    i = Affine.of(Key("i", 0, 4))  # not a Counter: asking for its values would fail
    assert EMIT.inrange(i, 0, 5) is True and EMIT.inrange(i + 5, 0, 5) is False
    assert EMIT.guarded([True, EMIT.inrange(i, 0, 9)], lambda: a(s32, 1), lambda: 1 / 0).data == 1  # type: ignore
    assert EMIT.guarded([False], lambda: 1 / 0, lambda: a(s32, 2)).data == 2  # type: ignore
    assert EMIT.guarded([], lambda: a(s32, 3), lambda: 1 / 0).data == 3  # type: ignore
    assert EMIT.floordiv(6 * i + 3, 6) is i and EMIT.mod(6 * i + 3, 6) is Affine.of(3)


def test_every_type_goes_through_bits_and_back() -> None:
    for dtype in DTYPES.values():
        if dtype.is_array and not dtype.is_complex:
            value: Any = a(dtype, 1)
            bits = EMIT.to_bits(value)
            again: Any = EMIT.from_bits(bits, dtype)
            assert bits.dtype.bits >= 8 and again.dtype is dtype and again.data == value.data
