"""Errors of the builder say what to write instead, and what they say is right: every call that they show is made."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import hlokit as hk


def built(*shapes: hk.Shape) -> dict[str, Any]:
    """A builder b and the handles x, y and z of parameters of these shapes."""
    b = hk.Builder("t")
    return {"b": b, "hk": hk, "math": math, "np": np} | {
        name: b.parameter(i, shape) for i, (name, shape) in enumerate(zip("xyz", shapes))
    }


def message(text: str, *shapes: hk.Shape, **names: Any) -> str:
    """The message of the error that this expression raises."""
    with pytest.raises((hk.HlokitError, AttributeError, TypeError)) as caught:
        eval(text, built(*shapes) | names)
    return str(caught.value)


def mended(message: str) -> list[str]:
    """The calls that a message says to write."""
    found = re.search(r"write (.*?)(?: \[[A-Z]+-[A-Z0-9-]+\].*| for x of .*)?$", message)
    return found[1].split(" or ") if found else []


X = hk.f32[2, 3]


@pytest.mark.parametrize(
    ("text", "shapes", "written"),
    [
        ("x + y", (X, hk.f32[3]), ["hk.add(x, y, [1])"]),
        ("x - y", (hk.f32[2], X), ["hk.sub(x, y, [0])"]),
        ("hk.max(x, y)", (hk.f32[3, 3], hk.f32[3]), ["hk.max(x, y, [1])", "hk.max(x, y, [0])"]),
        ("x < y", (X, hk.f32[3]), ["hk.lt(x, y, [1])"]),
        ("hk.ge_total_order(x, y)", (X, hk.f32[3]), ["hk.ge_total_order(x, y, [1])"]),
        ("hk.and_(x, y)", (hk.pred[2, 3], hk.pred[3]), ["hk.and_(x, y, [1])"]),
        ("x * y", (X, hk.f32[7]), []),
        ("hk.add(x, y, [0, 1])", (X, hk.f32[3]), ["hk.add(x, y, [1])"]),
        ("hk.add(x, y, [2])", (X, hk.f32[3]), ["hk.add(x, y, [1])"]),
        ("hk.add(x, y, [0])", (X, hk.f32[3]), ["hk.add(x, y, [1])"]),
        ("hk.add(x, y, 1)", (X, hk.f32[3]), ["hk.add(x, y, [1])"]),
        ("hk.add(x, y, [2, 1])", (hk.f32[2, 3, 4], hk.f32[4, 3]), ["hk.add(x, hk.transpose(y, [1, 0]), [1, 2])"]),
        ("hk.add(x, y, [2, 1])", (hk.f32[4, 3], hk.f32[2, 3, 4]), ["hk.add(hk.transpose(x, [1, 0]), y, [1, 2])"]),
        ("hk.pow(x, y)", (X, hk.f32[3, 2]), ["hk.pow(x, hk.transpose(y, [1, 0]))"]),
        ("x / y", (X, hk.f32[2, 4]), []),
        ("hk.add(x, y, [1, 0])", (X, X), ["hk.add(x, y)"]),
        ("hk.add(x, y, [1, 0])", (X, hk.f32[3, 2]), ["hk.add(x, hk.transpose(y, [1, 0]))"]),
        ("x + y", (X, hk.s32[3]), ["hk.add(x, hk.convert_element_type(y, hk.f32), [1])"]),
        ("x + y", (hk.s8[2, 3], X), ["hk.add(hk.convert_element_type(x, hk.f32), y)"]),
        ("x + np.ones(3)", (X,), ["hk.add(x, b.constant(y, hk.f32), [1])"]),
        ("np.ones([2, 3], np.float32) + x", (hk.f32[3],), ["hk.add(x, y, [1])"]),
        ("x + np.ones([3, 2], np.float32)", (X,), ["hk.add(x, hk.transpose(b.constant(y), [1, 0]))"]),
        ("hk.select(x, y, z)", (hk.pred[2, 3], hk.f32[3], X), ["hk.select(x, hk.broadcast_in_dim(y, [2, 3], [1]), z)"]),
        ("hk.clamp(x, y, z)", (hk.f32[3], X, hk.f32[()]), ["hk.clamp(hk.broadcast_in_dim(x, [2, 3], [1]), y, z)"]),
        ("hk.broadcast_in_dim(x, [2, 4, 3], [0, 1])", (X,), ["hk.broadcast_in_dim(x, [2, 4, 3], [0, 2])"]),
        ("hk.sin(x, x)", (X,), ["hk.sin(x)"]),
        ("hk.expm1(x, y)", (X, X), ["hk.expm1(x)"]),
        ("hk.concat_in_dim(0, [x, y])", (X, X), ["hk.concat_in_dim([x, y], 0)"]),
        ("hk.concat_in_dim(x, y)", (X, X), ["hk.concat_in_dim([x, y], 0)"]),
        ("hk.concat_in_dim(x, 1)", (X,), ["hk.concat_in_dim([x], 1)"]),
        ("b.parameter(7, (2, 3))", (), ["b.parameter(7, hk.f32[2, 3])"]),
        ("b.parameter(7, ())", (), ["b.parameter(7, hk.f32[()])"]),
        ("b.parameter(7, np.zeros((2, 3), np.int32))", (), ["b.parameter(7, hk.s32[2, 3])"]),
        ("b.parameter(7, 'f32[2,3]')", (), ["b.parameter(7, hk.f32[2, 3])"]),
        ("b.parameter(hk.f32[2], 7)", (), ["b.parameter(7, hk.f32[2])"]),
        ("b.iota((2, 3), 1)", (), ["b.iota(hk.f32[2, 3], 1)"]),
        ("hk.float32", (), ["hk.f32"]),
        ("hk.bool_", (), ["hk.pred"]),
        ("hk.bfloat16", (), ["hk.bf16"]),
        ("hk.float8_e4m3fn", (), ["hk.f8e4m3fn"]),
        ("hk.multiply", (X, X), ["hk.mul(x, y)"]),
        ("hk.reduce_sum", (X,), ["hk.reduce(x, 0, hk.add, [0, 1])"]),
        ("np.sin(x)", (X,), ["hk.sin(x)"]),
        ("np.maximum(x, y)", (X, X), ["hk.max(x, y)"]),
        ("np.sum(x)", (X,), ["hk.reduce(x, 0, hk.add, [0, 1])"]),
        ("np.add.reduce(x)", (X,), ["hk.reduce(x, 0, hk.add, [0, 1])"]),
        ("np.transpose(x)", (X,), ["hk.transpose(x, [1, 0])"]),
        ("np.linalg.cholesky(x)", (hk.f32[2, 2],), ["hk.cholesky(x)"]),
        ("x.T", (X,), ["hk.transpose(x, [1, 0])"]),
        ("x.exp()", (X,), ["hk.exp(x)"]),
        ("x.size", (X,), ["math.prod(x.shape.dimensions)"]),
    ],
)  # fmt: skip
def test_what_to_write(text: str, shapes: tuple[hk.Shape, ...], written: list[str]) -> None:
    shown = message(text, *shapes)
    assert mended(shown) == written, shown
    array = re.search(r"np\.ones\(.*?\)", text)
    for call in written:
        names = built(*shapes)
        if array is not None:  # x and y are the operands, in their order
            operands = [names["x"], eval(array[0], names)]
            names |= zip("xy", operands if array.start() else operands[::-1])
        eval(call, names)


METHODS = ["sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "sort", "T", "mT", "ravel", "flatten"]


@pytest.mark.parametrize("dtype", [hk.f32, hk.s32, hk.pred, hk.c64], ids=str)
@pytest.mark.parametrize("name", [*METHODS, "squeeze", "transpose", "size", "ndim", "conj", "real", "round", "exp"])
def test_methods_of_arrays(name: str, dtype: hk.DType) -> None:
    shape = dtype[2, 1, 3]
    (call,) = mended(message(f"x.{name}", shape))
    others = {hk.pred: ["conj", "real", "round", "argmax"], hk.s32: ["conj", "real", "round"]}
    others[hk.c64] = ["max", "min", "argmax", "argmin", "sort", "round"]
    if name not in others.get(dtype, []) and hasattr(np.zeros((1, 1), dtype.numpy), name):
        eval(call, built(shape))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "any", "all", "T", "ravel", "squeeze"])
def test_methods_mean_what_numpy_means(name: str) -> None:
    value = np.float32([[1, -2, 3], [4, 0, 6]])
    names = built(X)
    root = eval(mended(message(f"x.{name}", X))[0], names)
    expected: Any = getattr(value, name)
    found = hk.evaluate(names["b"].build(root), value)
    np.testing.assert_allclose(found, expected() if callable(expected) else expected)


def test_every_broadcast_that_fits_is_found_and_every_call_that_is_shown_is_right() -> None:
    draw = random.Random(0)
    for _ in range(300):
        shapes = [hk.f32[tuple(draw.choice([1, 2, 3]) for _ in range(draw.randrange(4)))] for _ in "xy"]
        given = draw.choice([[], [], [draw.randrange(3)], [draw.randrange(3), draw.randrange(3)]])
        try:
            hk.add(*list(built(*shapes).values())[-2:], given)
        except hk.ShapeError as error:
            calls = mended(str(error))
            for call in calls:
                eval(call, built(*shapes))
            assert calls or not fits(*shapes), error


def fits(x: hk.Shape, y: hk.Shape) -> bool:
    """Whether some broadcast_dimensions make an addition of them right."""
    small, large = sorted((x, y), key=lambda s: s.rank)
    for dimensions in combinations(range(large.rank), small.rank):
        pairs = [(n, large.dimensions[d]) for n, d in zip(small.dimensions, dimensions)]
        if all(m == n or 1 in (m, n) for m, n in pairs):
            return True
    return False


def test_a_long_shape_takes_no_time() -> None:
    shown = message("x + y", hk.f32[(2,) * 60], hk.f32[(2,) * 29 + (3,)])
    assert "BCAST-3" in shown and not mended(shown)


def test_two_builders_of_one_name() -> None:
    other = hk.Builder("main").parameter(0, X)
    mine = hk.Builder("main")
    for text in ("x + other", "b.build(other)", "b.get_shape(other)"):
        with pytest.raises(hk.BuildError, match=r"belongs to another builder, which is named main too: .*BUILDER-3"):
            eval(text, {"x": mine.parameter(len(mine.computation), X), "b": mine, "other": other})


def test_calling_a_program() -> None:
    names = built(X)
    module = names["b"].build(names["x"])
    assert mended(message("m(1)", m=module)) == ["hk.evaluate(m, ...)", "hk.compile(m)(...)"]
    assert "hk.call(b, computation, [x, ...])" in message("c(1)", c=module.entry)
    assert "b.build(x) makes one" in message("hk.evaluate(b)") and "hk.parse" in message("hk.compile('HloModule m')")


def test_other_names() -> None:
    assert message("hk.expp") == "hlokit has no 'expp': did you mean hk.exp, hk.exp2?"
    assert message("hk.nonsense") == "hlokit has no 'nonsense'"
    assert message("x.nonsense", X) == "a handle has no attribute 'nonsense'"
    assert "has no value before the program runs" in message("x.item()", X)
    assert "takes arrays, not handles" in message("np.unwrap(x)", X)
    assert "a program that has not run" in message("np.array(x)", X)
    assert "expected an integer" in message("b.parameter('x', hk.f32)")


@pytest.mark.parametrize(
    "text",
    [
        "array + x", "array - x", "array * x", "array / x", "array % x", "array ** x", "array == x", "array < x",
        "array >= x", "np.float32(2) * x", "np.ones((3, 2), np.float32) @ x", "np.add(x, 1.0)",
    ],
)  # fmt: skip
def test_numpys_operators_are_the_handles(text: str) -> None:
    value, array = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[2, 3, 5], [1, 5, 2]])
    names = built(X) | {"array": array}
    result = hk.evaluate(names["b"].build(eval(text, names)), value)
    np.testing.assert_allclose(result, eval(text, {"np": np, "x": value, "array": array}))


@pytest.mark.parametrize("convert", [float, int, complex])
def test_a_handle_is_no_number(convert: Any) -> None:
    x = hk.Builder().parameter(0, hk.f32)
    with pytest.raises(hk.MisuseError, match=r"has no value yet: hk\.evaluate"):
        convert(x)


def test_branches_are_lists() -> None:
    b = hk.Builder()
    x = b.parameter(0, hk.s32)
    with pytest.raises(hk.MisuseError, match=r"branch_computations is <parameter\.1: s32.*expected a list"):
        hk.conditional(x, x, [x])
    with pytest.raises(hk.MisuseError, match="branch_operands is 3, expected a list"):
        hk.conditional(x, [hk.neg], 3)


def test_an_array_becomes_a_handle_in_place() -> None:
    names = built(X)
    array: Any = np.ones((2, 3), np.float32)
    array += names["x"]
    assert isinstance(array, hk.XlaOp)
    with pytest.raises(hk.BuildError, match=r"np\.add takes arrays"):
        np.add(names["x"], 1.0, out=np.zeros((2, 3), np.float32))


def test_handles_can_be_probed() -> None:
    x: Any = built(X)["x"]
    probe: Callable[[str], bool] = lambda name: hasattr(x, name)  # noqa: E731
    assert not any(map(probe, ("__array_interface__", "_repr_html_", "sum", "nonsense", "__jax_array__")))


def test_only_public_names_are_listed() -> None:
    import hlokit.analysis.simulation
    import hlokit.interop.jax

    for module in (hk, hlokit.analysis.simulation, hlokit.interop.jax):
        names = [name for name in dir(module) if not name.startswith("__")]
        assert sorted(names) == sorted(module.__all__)
    assert not {"annotations", "builder", "stack", "TYPE_CHECKING", "import_module"} & {*dir(hk)}
    assert {"add", "Builder", "f32", "compile", "while_"} <= {*dir(hk)}


def test_what_things_are_shown_as() -> None:
    names = built(X)
    b, x = names["b"], names["x"]
    assert (repr(b), repr(x)) == ("<Builder t: 1 instruction>", "<parameter.1: f32[2,3]>")
    module = b.build(hk.neg(x))
    assert repr(b) == "<Builder t: 2 instructions, built>"
    assert repr(module) == "<HloModule t: (f32[2,3]) -> f32[2,3], 1 computation>"
    assert repr(module.entry) == "<Computation t: (f32[2,3]) -> f32[2,3], 2 instructions>"
    assert repr(hk.HloModule("m")) == "<HloModule m: 0 computations>"
    assert repr(hk.Builder("m").computation) == "<Computation m: () -> nothing, 0 instructions>"


def test_long_signatures_are_counted() -> None:
    b = hk.Builder("t")
    many = hk.tuple_(b, [b.parameter(i, hk.f32[1000, 1000]) for i in range(40)])
    assert repr(many) == "<tuple.41: a tuple of 40>"
    assert repr(b.build(many)) == "<HloModule t: (40 parameters) -> a tuple of 40, 1 computation>"
