"""Stepping into the computations of reduces and sorts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import ArgumentError, UnsupportedError

ARGMAX = """HloModule m
best { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GE v = f32[] select(more, a, b) k = s32[] select(more, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k) }
less { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) j = s32[] parameter(3) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[3,4,5] parameter(0) n = s32[3,4,5] iota(), iota_dimension=1 low = f32[] constant(-inf) zero = s32[] constant(0)
  s = (f32[3,4,5], s32[3,4,5]) sort(x, n), dimensions={2}, to_apply=less
  ROOT r = (f32[4], s32[4]) reduce(x, n, low, zero), dimensions={0,2}, to_apply=best }"""
X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)


def at_end(module: hk.HloModule) -> hk.Debugger:
    d = hk.debug(module, X)
    d.run()
    d.back()
    return d


@pytest.mark.parametrize("index", range(4))
def test_a_fold_gives_the_element(index: int) -> None:
    module = hk.parse(ARGMAX)
    d = at_end(module)
    before = d.time, str(module)
    inner = d.inside("r", [index])
    assert inner.run().kind == "end"
    expected = hk.evaluate(module, X)
    assert [np.asarray(part).item() for part in inner.result] == [part[index].item() for part in expected]
    inner.back()
    inner.back()
    assert inner.into().kind == "step" and (d.time, str(module)) == before
    hk.verify(module)


def test_elements_go_in_row_major_order() -> None:
    inner = at_end(hk.parse(ARGMAX)).inside("r", [2])
    elements = [inner.arguments[0][k].item() for k in range(2, 2 + 2 * 15, 2)]
    assert elements == X[:, 2, :].reshape(-1).tolist()


def test_two_elements_of_a_sort_are_compared() -> None:
    d = at_end(hk.parse(ARGMAX))
    for i, j in (((0, 1, 2), (0, 1, 3)), ((2, 3, 4), (2, 3, 0))):
        inner = d.inside("s", i, j)
        inner.run()
        assert bool(inner.result) == bool(X[i] < X[j])


def test_sums_of_narrow_types_are_the_reducer_s() -> None:
    """REDUCER-7: a wider accumulator."""
    module = hk.parse(
        "HloModule m\nsum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
        "ENTRY e { x = bf16[600] parameter(0) z = bf16[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=sum }"
    )
    d = hk.debug(module, np.ones(600, ml_dtypes.bfloat16))
    d.run()
    d.back()
    inner = d.inside("r", ())
    inner.run()
    assert inner.result == 600


def test_what_cannot_be_entered() -> None:
    d = at_end(hk.parse(ARGMAX))
    for indices in ([], [[4]], [[-1]], [[0, 0]], [[0], [1]]):
        with pytest.raises(ArgumentError, match="inside %r"):
            d.inside("r", *indices)
    with pytest.raises(ArgumentError, match="expected one within"):
        d.inside("s", (0, 0, 0), (0, 0, 5))
    with pytest.raises(UnsupportedError, match="a iota, expected a reduce or a sort"):
        d.inside("n", (0, 0, 0))
    with pytest.raises(ArgumentError, match="has not run"):
        hk.debug(hk.parse(ARGMAX), X).inside("r", [0])
