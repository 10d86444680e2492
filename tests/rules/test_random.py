"""RNG and RBG rules, and the module's random state."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.running import Arrays, built, from_text, u64, value

# -- rng

UNIFORM_TYPES = [hk.f64, hk.f32, hk.f16, hk.bf16, hk.s64, hk.u64, hk.s32, hk.u32, hk.s8, hk.u4, hk.f8e5m2]


@rule("RNG-1", "RNG-4", "RNG-5", "RNG-8", "HOP-26")
@pytest.mark.parametrize("element_type", UNIFORM_TYPES, ids=str)
def test_uniform_numbers_stay_below_b(element_type: hk.DType) -> None:
    a, b = np.array(2, element_type.numpy), np.array(5, element_type.numpy)
    drawn = value(lambda p, q: hk.rng_uniform(p, q, element_type[500]), a, b)
    assert drawn.dtype == element_type.numpy
    numbers = drawn.astype(np.float64)
    assert numbers.min() >= 2 and numbers.max() < 5
    if element_type.is_integral:
        assert set(numbers) == {2, 3, 4}


@rule("RNG-5")
def test_moments() -> None:
    normal = value(lambda p, q: hk.rng_normal(p, q, hk.f32[4000]), np.float32(3)[()], np.float32(2)[()])
    assert abs(normal.mean() - 3) < 0.2 and abs(normal.std() - 2) < 0.2
    uniform = value(lambda p, q: hk.rng_uniform(p, q, hk.f64[4000]), np.float64(-1), np.float64(3))
    assert abs(uniform.mean() - 1) < 0.1
    coins = value(lambda p, q: hk.rng_uniform(p, q, hk.pred[9]), np.bool_(False), np.bool_(True))
    assert not coins.any()


@rule("RNG-6")
def test_empty_range_and_negative_deviation_give_no_error() -> None:
    assert value(lambda p, q: hk.rng_uniform(p, q, hk.s32[3]), np.int32(4), np.int32(4)).shape == (3,)
    assert value(lambda p, q: hk.rng_uniform(p, q, hk.f32[3]), np.float32(4), np.float32(1)).shape == (3,)
    assert value(lambda p, q: hk.rng_normal(p, q, hk.f32[3]), np.float32(0), np.float32(-1)).shape == (3,)


@rule("RNG-7", "RNG-9", "BEY-58")
def test_two_equal_draws_are_two_and_the_seed_decides() -> None:
    def two(a: hk.XlaOp) -> hk.XlaOp:
        return hk.tuple_(a.builder, [hk.rng_uniform(a, 1.0, hk.f32[20]), hk.rng_uniform(a, 1.0, hk.f32[20])])

    first, second = value(two, np.float32(0), seed=1)
    assert (first != second).any()
    np.testing.assert_array_equal(value(two, np.float32(0), seed=1)[0], first)
    assert (value(two, np.float32(0), seed=2)[0] != first).any()
    b = hk.Builder("t")
    assert not b.is_constant(hk.rng_uniform(b.constant(0.0), 1.0, hk.f32[2]))


@pytest.mark.parametrize(
    ("label", "normal", "a", "b", "shape"),
    [
        ("RNG-2", True, hk.f32[2], hk.f32[()], hk.f32[3]),
        ("RNG-2", True, hk.f32[()], hk.f64[()], hk.f32[3]),
        ("RNG-2", False, hk.f32[()], hk.f32[()], hk.s32[3]),
        ("RNG-3", True, hk.s32[()], hk.s32[()], hk.s32[3]),
        ("RNG-3", True, hk.pred[()], hk.pred[()], hk.pred[3]),
        ("RNG-4", False, hk.c64[()], hk.c64[()], hk.c64[3]),
        ("RNG-10", False, hk.f32[()], hk.f32[()], hk.NIL),
        ("DYN-15", False, hk.f32[()], hk.f32[()], hk.f32["<=3"]),
    ],
)
def test_rng_rejects(label: str, normal: bool, a: hk.Shape, b: hk.Shape, shape: hk.Shape) -> None:
    with rejects(label):
        built(lambda p, q: (hk.rng_normal if normal else hk.rng_uniform)(p, q, shape), a, b)


# -- rng-bit-generator

BITS: list[tuple[str, str, Arrays, hk.Shape, list[int], list[int]]] = [
    ("RBG-17 halves", "rng_three_fry", u64(0, 0), hk.u32[4], [1797259609, 2579123966, 1351547692, 3235790642], [0, 2]),
    ("RBG-11 odd", "rng_three_fry", u64(1, 2), hk.u32[3], [43444564, 2150618427, 3979645651], [1, 4]),
    ("RBG-10", "rng_three_fry", u64(0, 0), hk.u64[2], [11077253088097075545, 13897614985444391724], [0, 2]),
    ("RBG-11 scalar", "rng_three_fry", u64(0, 0), hk.u32[()], 1797259609, [0, 1]),  # type: ignore[list-item]
    ("RBG-12 narrow", "rng_three_fry", u64(0, 0), hk.u8[4], [89, 254, 44, 50], [0, 2]),
    ("RBG-14", "rng_philox", u64(0, 0, 0), hk.u32[4], [1713891541, 3781805453, 3159862348, 2600524760], [0, 1, 0]),
    (
        "RBG-15",
        "rng_philox",
        u64(1, 2, 3),
        hk.u32[5],
        [4031113034, 1366700262, 495645701, 3051723414, 89414891],
        [1, 4, 3],
    ),
    ("RBG-16 philox", "rng_philox", u64(42, 7), hk.u32[3], [1436477672, 1015822685, 1056814300], [42, 8]),
    ("RBG-4 default", "rng_default", u64(42, 7), hk.u32[3], [1436477672, 1015822685, 1056814300], [42, 8]),
    ("RBG-18", "rng_philox", u64(42, 7, 9), hk.u32[3], [4151367164, 999626888, 3987458082], [42, 8, 9]),
]


@pytest.mark.parametrize(
    ("algorithm", "state", "shape", "data", "after"), [r[1:] for r in BITS], ids=[r[0] for r in BITS]
)
@rule("RBG-1", "RBG-3", "RBG-8", "RBG-9", "RBG-13", "RBG-17", "RBG-18", "HOP-26")
def test_bits(algorithm: str, state: Arrays, shape: hk.Shape, data: list[int], after: list[int]) -> None:
    new_state, bits = value(lambda s: hk.rng_bit_generator(algorithm, s, shape), state)
    assert bits.tolist() == data and new_state.tolist() == after
    assert bits.dtype == shape.dtype.numpy


@rule("RBG-9", "RBG-14", "RBG-15")
def test_counters_carry() -> None:
    top = 2**64 - 1
    state, bits = value(lambda s: hk.rng_bit_generator("rng_philox", s, hk.u32[8]), u64(5, top, 6))
    assert state.tolist() == [5, 1, 7]
    np.testing.assert_array_equal(
        bits[4:], value(lambda s: hk.rng_bit_generator("rng_philox", s, hk.u32[4]), u64(5, 0, 7))[1]
    )
    state, bits = value(lambda s: hk.rng_bit_generator("rng_three_fry", s, hk.u64[2]), u64(5, top))
    assert state.tolist() == [5, 1]
    assert bits[1] == value(lambda s: hk.rng_bit_generator("rng_three_fry", s, hk.u64[1]), u64(5, 0))[1][0]


@rule("RBG-11")
def test_three_fry_splits_the_first_even_dimension() -> None:
    flat = value(lambda s: hk.rng_bit_generator("rng_three_fry", s, hk.u32[6]), u64(3, 4))[1]
    matrix = value(lambda s: hk.rng_bit_generator("rng_three_fry", s, hk.u32[3, 2]), u64(3, 4))[1]
    np.testing.assert_array_equal(matrix, flat.reshape(3, 2))
    tall = value(lambda s: hk.rng_bit_generator("rng_three_fry", s, hk.u32[2, 3]), u64(3, 4))[1]
    np.testing.assert_array_equal(tall, flat.reshape(3, 2).T)


@rule("RBG-14", "RBG-15")
def test_philox_of_64_bits_joins_words() -> None:
    words = value(lambda s: hk.rng_bit_generator("rng_philox", s, hk.u32[8]), u64(1, 2, 3))[1].astype(np.uint64)
    state, bits = value(lambda s: hk.rng_bit_generator("rng_philox", s, hk.u64[3]), u64(1, 2, 3))
    np.testing.assert_array_equal(bits, (words[::2] | words[1::2] << np.uint64(32))[:3])
    assert state.tolist() == [1, 4, 3]


@rule("RBG-2")
@pytest.mark.parametrize(
    ("asked", "given"), [(hk.f32, hk.u32), (hk.s64, hk.u64), (hk.bf16, hk.u16), (hk.pred, hk.u8)], ids=str
)
def test_builder_makes_the_element_type_unsigned(asked: hk.DType, given: hk.DType) -> None:
    module = built(lambda s: hk.rng_bit_generator("rng_default", s, asked[3]), hk.u64[2])
    assert module.program_shape.result.elements[1] is given[3]


@pytest.mark.parametrize(
    ("label", "algorithm", "state", "shape"),
    [
        ("RBG-2", "rng_default", hk.u64[2], hk.c128[2]),
        ("RBG-2", "rng_default", hk.u64[2], hk.TOKEN),
        ("RBG-5", "rng_three_fry", hk.u64[3], hk.u32[2]),
        ("RBG-6", "rng_philox", hk.u64[1], hk.u32[2]),
        ("RBG-7", "rng_mersenne", hk.u64[2], hk.u32[2]),
        ("RBG-7", "rng_default", hk.u32[2], hk.u32[2]),
        ("RBG-7", "rng_default", hk.u64[2, 1], hk.u32[2]),
        ("RBG-7", "rng_default", hk.u64[()], hk.u32[2]),
        ("DYN-15", "rng_three_fry", hk.u64["<=2"], hk.u32[2]),
    ],
)
def test_rng_bit_generator_rejects(label: str, algorithm: str, state: hk.Shape, shape: hk.Shape) -> None:
    with rejects(label):
        built(lambda s: hk.rng_bit_generator(algorithm, s, shape), state)


@rule("BEY-57", "HOP-26")
def test_module_state_advances_by_delta() -> None:
    body = """ENTRY e {
      a = u64[2] rng-get-and-update-state(), delta=4
      b = u64[2] rng-get-and-update-state(), delta=1, control-predecessors={a}
      ROOT t = (u64[2], u64[2]) tuple(a, b)
    }"""
    assert "delta=4" in str(hk.parse("HloModule t\n" + body))
    for _ in range(2):  # each run is a new instance of the module
        first, second = from_text(body, seed=7)
        assert first.tolist() == [7, 0] and second.tolist() == [11, 0]


@rule("RNG-5")
def test_uniform_over_nearly_all_floats_does_not_overflow() -> None:
    b = hk.Builder("t")
    module = b.build(hk.rng_uniform(b.constant(-3e38), b.constant(3e38), hk.f32[1000]))
    got = hk.evaluate(module)
    assert np.isfinite(got).all() and got.min() < -1e38 and got.max() > 1e38
