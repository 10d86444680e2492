"""Arguments of the wrong kind: every call is made, or refused by an error that names the function and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.fuzz.misuse import fault, named_functions, trial

SEEDS = 6


@pytest.mark.parametrize("name", named_functions())
def test_random_arguments(name: str) -> None:
    faults = [found for found in (fault(trial(name, seed)) for seed in range(SEEDS)) if found]
    assert not faults, "\n".join(faults)


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: hk.XlaOp) -> None:
        raise failure

    monkeypatch.setitem(named_functions(), "broken", broken)
    for failure in (AttributeError("x"), TypeError("x"), IndexError("x"), RecursionError("x"), AssertionError("x")):
        assert type(failure).__name__ in fault(trial("broken", 0))
    failure = hk.HlokitError("y" * 2000)  # type: ignore[assignment]
    assert "characters" in fault(trial("broken", 0))


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


def listed(x: hk.XlaOp) -> list[hk.XlaOp]:
    raise IndexError("of the caller's own")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, x: hk.full_like(Odd(), 1), "full_like: prototype: found Odd(), of type Odd, expected a handle"),
        (
            lambda b, x: hk.reduce(3, 0, hk.add, [0]),
            "reduce: operands: found 3, of type int, expected a handle or a se",
        ),
        (lambda b, x: hk.replica_id(x), "expected a builder"),
        (lambda b, x: hk.zero(b, "f32"), "zero: dtype: found 'f32', of type str, expected an element type, as hk.f32"),
        (
            lambda b, x: hk.select_and_scatter(x, hk.ge, 1, [], "SAME", x, 0, hk.add),
            "found 1, expected a list of integers",
        ),
        (lambda b, x: hk.while_loop(hk.lt, 3, [x]), "while_loop: body: found 3, of type int, expected a function"),
        (lambda b, x: hk.while_loop(hk.lt, hk.add, []), "while_loop: initial_values: found none, expected at least"),
        (lambda b, x: hk.while_loop(lambda s: s < 1, lambda s: None, [b.constant(0)]), "body: it gives None"),
        (lambda b, x: hk.all_to_all_tuple(x), "expected split_dimension, concat_dimension and split_count"),
        (lambda b, x: hk.all_to_all_tuple([x], (), None, 1, 7), "1 arguments behind channel_id, expected none"),
        (lambda b, x: hk.create_scalar_lt_computation([]), "operand_types: found none"),
        (lambda b, x: hk.cholesky(hk.dot(x, x), "no"), "lower: found 'no', expected bool"),
        (lambda b, x: b.get_shape(3), "get_shape: op: found 3, of type int, expected a handle"),
        (lambda b, x: b.build(3), "root: found 3, expected a handle or a sequence of handles"),
        (lambda b, x: hk.dot_general(1, 2, ([0], [0])), "dot_general: none of the operands is a handle"),
        (lambda b, x: hk.batch_norm_inference(x, x, x, x, x, 1j, 0), "epsilon"),
        (lambda b, x: b.constant((1, 2), shape=hk.f32[2]), "found a tuple of 2, expected f32[2]"),
        (lambda b, x: hk.approx_top_k_reduction_output_size(10, 1, 2, float("nan")), "recall_target: found nan"),
    ],
)
def test_what_is_wrong_is_named(call: Callable[[hk.Builder, hk.XlaOp], Any], message: str) -> None:
    builder = hk.Builder("b")
    with pytest.raises(hk.HlokitError) as caught:
        call(builder, builder.parameter(0, hk.f32[4, 4]))
    assert message in str(caught.value)


OPERATORS = [
    "x + v", "v + x", "x - v", "x * v", "v * x", "x / v", "x % v", "x ** v", "x & v", "x | v", "x ^ v", "x << v", "x >> v",
    "x @ v", "v @ x", "x == v", "x != v", "x < v", "x >= v", "x[v]", "t[v]", "t + v",
]  # fmt: skip


@pytest.mark.parametrize("text", OPERATORS)
def test_operators_with_anything(text: str) -> None:
    builder, other = hk.Builder("b"), hk.Builder("b")
    x, foreign = builder.parameter(0, hk.f32[2, 3]), other.parameter(0, hk.f32[2, 3])
    t = hk.tuple_(builder, [x, x])
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False])
    strange = [
        None, "text", b"bytes", [1, None], [[1], [2, 3]], object(), {}, set[int](), foreign, t, builder.create_token(),
        hk.f32, hk.f32[2], builder, hk, 1j, 2.5, 10**30, np.array(["a"]), np.zeros(2, object), len, slice(1), ..., masked,
    ]  # fmt: skip
    for v in strange:
        try:
            eval(text, {"x": x, "t": t, "v": v})
        except (hk.HlokitError, IndexError) as error:
            assert not isinstance(error, IndexError) or re.search("has 2 elements", str(error))


def test_arrays_in_place_of_lists() -> None:
    b = hk.Builder("b")
    x = b.parameter(0, hk.f32[2, 3])
    assert hk.add(x, x, np.array([])).shape is x.shape
    windows = hk.reduce_window(x, 0.0, hk.add, np.array([1, 2]), np.array([]), "VALID")
    assert str(windows.shape) == "f32[2,2]"
    assert "replica_groups={{0,1}}" in str(hk.all_reduce(x, hk.add, np.array([[0, 1]])).instruction)
    assert hk.evaluate_polynomial(x, np.array([1.0, 2.0])).shape is x.shape


def test_errors_of_functions_of_the_caller_stay_what_they_are() -> None:
    b = hk.Builder("b")
    x = b.parameter(0, hk.f32[4])
    with pytest.raises(IndexError, match="of the caller's own"):
        hk.for_each_index(3, hk.s32, lambda i, y: listed(y), [x])
    with pytest.raises(TypeError, match=r"add\(\) missing 1 required positional argument: 'rhs'"):
        hk.add(x)  # type: ignore[call-arg]
