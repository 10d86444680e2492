"""Random numbers from a key and a counter, of XlaBuilder's client library: BEY-80."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule

GENERATORS = {
    "three_fry": (hk.three_fry_bit_generator, np.uint64(0)),
    "philox": (hk.philox_bit_generator, np.zeros(2, np.uint64)),
}


def drawn(generator: str, function: Any, key: int = 7) -> Any:
    """(value, new state) of `function(key, state, bit generator)`."""
    bits, state = GENERATORS[generator]
    builder = hk.Builder("test")
    parameters = builder.parameter(0, hk.u64[()]), builder.parameter(1, hk.u64[state.shape])
    return hk.evaluate(builder.build(list(function(*parameters, bits))), np.uint64(key), state)


@rule("BEY-80")
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("dtype", [hk.bf16, hk.f16, hk.f32, hk.f64], ids=str)
def test_uniform_numbers_fill_the_interval(generator: str, dtype: hk.DType) -> None:
    shape = dtype[40, 50]
    found, _ = drawn(generator, lambda k, s, g: hk.uniform_floating_point_distribution(k, s, g, -1.0, 3.0, shape))
    values = found.astype(np.float64)
    assert found.shape == (40, 50) and values.min() >= -1 and values.max() <= 3
    assert abs(values.mean() - 1) < 0.1 and abs(values.std() - 4 / np.sqrt(12)) < 0.1


@rule("BEY-80")
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("dtype", [hk.f16, hk.f32, hk.f64], ids=str)
def test_normal_numbers(generator: str, dtype: hk.DType) -> None:
    found, _ = drawn(generator, lambda k, s, g: hk.normal_floating_point_distribution(k, s, g, dtype[2000]))
    values = found.astype(np.float64)
    assert np.isfinite(values).all() and abs(values.mean()) < 0.1 and abs(values.std() - 1) < 0.1


@rule("BEY-80")
@pytest.mark.parametrize("dtype", [hk.s8, hk.u16, hk.s32, hk.s64], ids=str)
def test_uniform_integers_take_every_value(dtype: hk.DType) -> None:
    low = 0 if dtype.kind == "unsigned" else -3
    found, _ = drawn("philox", lambda k, s, g: hk.uniform_int_distribution(k, s, g, low, 5, dtype[500]))
    assert found.dtype == dtype.numpy and set(found.tolist()) == set(range(low, 5))


@rule("BEY-80")
@pytest.mark.parametrize("generator", GENERATORS)
def test_the_new_state_continues_the_stream(generator: str) -> None:
    def twice(key: Any, state: Any, bits: Any) -> Any:
        first, state = bits(key, state, hk.u32[8])
        second, state = bits(key, state, hk.u32[8])
        return [first, second, state]

    first, second, state = drawn(generator, twice)
    assert state.shape == GENERATORS[generator][1].shape
    assert not set(first.tolist()) & set(second.tolist())
    assert drawn(generator, twice)[0].tolist() == first.tolist() != drawn(generator, twice, key=8)[0].tolist()


@rule("BEY-80")
def test_rejected_shapes() -> None:
    with rejects("BEY-80"):
        drawn("philox", lambda k, s, g: hk.uniform_floating_point_distribution(k, s, g, 0.0, 1.0, hk.s32[2]))
    with rejects("BEY-80"):
        drawn("philox", lambda k, s, g: hk.uniform_int_distribution(k, s, g, 0, 1, hk.f32[2]))
