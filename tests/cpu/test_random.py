"""rng-bit-generator in machine code against the reference, bit for bit (RBG-3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.routine import KERNELS, Call
from hlokit.cpu.llvm import I32, Function
from hlokit.cpu.target import Target, baseline
from hlokit.ops.random import RngBitGenerator
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import dtype
from hlokit.types.shape import Shape
from tests.cpu.native import avx2, host
from tests.cpu.routines import Routines, bits

_SIZES = [(), (1,), (2, 64), (100001,), (3, 5), (4, 3), (5, 100), (101, 99), (6, 33, 3), (0,)]
_GENERATORS = [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)]


def _call(algorithm: str, words: int, element: str, sizes: tuple[int, ...], **fields: Any) -> Call:
    shape = Shape.tuple((dtypes.u64[words], dtype(element)[sizes]))
    op = RngBitGenerator(algorithm=algorithm, output_shape=shape)  # type: ignore[call-arg]
    return Call(op, (dtypes.u64[words],), tuple(shape.leaves()), fields.pop("target", None) or host(), **fields)


def _check(call: Call, state: Any) -> None:
    with np.errstate(over="ignore"):
        expected = call.op.reference(state, call.op.output_shape)  # type: ignore[attr-defined]
    routines = Routines(call, KERNELS["rng-bit-generator"])
    for backwards in (False, True):
        for a, b in zip(routines(state, backwards=backwards), expected, strict=True):
            assert np.array_equal(bits(a), bits(b))


@pytest.mark.parametrize("sizes", _SIZES, ids=str)
@pytest.mark.parametrize(("algorithm", "words"), _GENERATORS)
def test_sizes(algorithm: str, words: int, sizes: tuple[int, ...]) -> None:
    """RBG-11: how words go to elements; counters near 2^64 carry (RBG-16)."""
    state = np.array([0x0123456789ABCDEF, 2**64 - 5, 2**64 - 1][:words], np.uint64)
    _check(_call(algorithm, words, "u32", sizes), state)


@pytest.mark.parametrize("element", ["u64", "s64", "s32", "u16", "s8", "u4", "s4"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_types(algorithm: str, element: str) -> None:
    _check(_call(algorithm, 2, element, (5, 7, 6)), np.array([7, 2**40], np.uint64))


@pytest.mark.parametrize("target", [avx2(), baseline("x86-64")], ids=["avx2", "sse2"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_other_targets(algorithm: str, target: Target) -> None:
    if not host().triple.startswith("x86_64"):
        pytest.skip("not this machine's")
    _check(_call(algorithm, 2, "u32", (31, 33), target=target), np.array([1, 2], np.uint64))


@pytest.mark.parametrize("sizes", [(3, 128), (65,), (4, 6)], ids=str)
def test_epilogue(sizes: tuple[int, ...]) -> None:
    """Elements are handed over with their index; here they are stored with all bits flipped."""

    def store(f: Function, index: Any, parts: Any, mask: Any) -> None:
        assert mask is None
        place = f.index(0)
        for number, size in zip(index, sizes, strict=True):
            place = place * size + number
        f.table(2, I32)[place].store(~parts[0])

    state = np.array([3, 4], np.uint64)
    plain = _call("rng_philox", 2, "u32", sizes)
    fused = _call("rng_philox", 2, "u32", sizes, store=store)
    expected = Routines(plain, KERNELS["rng-bit-generator"])(state)[1]
    assert np.array_equal(Routines(fused, KERNELS["rng-bit-generator"])(state)[1], ~expected)


def test_sums_that_stand_still_are_taken_outside() -> None:
    """Keys are added with a number: one addition in the loop."""
    b = hk.Builder("keys")
    x, key = b.parameter(0, hk.u32[1000], "x"), b.parameter(1, hk.u32[2], "key")
    first = hk.broadcast_in_dim(hk.reshape(hk.slice(key, [0], [1], [1]), []), [1000], [])
    module = b.build(hk.add(hk.add(hk.xor(x, b.constant(9, hk.u32)), first), b.constant(7, hk.u32)))
    exe = hk.compile(module)
    assert "add(xor(x[i], 9), add(key[0], 7))" in exe.as_text("loops")
    data = np.arange(1000, dtype=np.uint32) * 0x01234567, np.array([0xFFFFFFF0, 3], np.uint32)
    np.testing.assert_array_equal(exe(*data), hk.evaluate(module, *data))


@pytest.mark.parametrize(("many", "shown"), [(False, "lanes x 2]"), (True, "lanes]")])
def test_a_long_chain_goes_two_vectors_at_a_time(many: bool, shown: str) -> None:
    """It holds two values, so two steps overlap; one that holds many goes one at a time."""
    b = hk.Builder("chain")
    first = x = b.parameter(0, hk.u32[4096], "x")
    kept: list[Any] = []
    for k in range(40):
        x = hk.xor(hk.mul(x, b.constant(2 * k + 3, hk.u32)), first)
        kept.append(x)
    for other in kept if many else ():
        x = hk.sub(other, x)
    assert shown in hk.compile(b.build(x)).as_text("loops")
