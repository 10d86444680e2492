"""Quantised types, by the specification's arithmetic: (q - zero_point) * scale, and back with clamp and rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk

F = np.float32
Q = "!quant.uniform<i8:f32, 0.5:3>"
NARROW = "!quant.uniform<i8<-127:127>:f32, 0.25>"
BYTE = "!quant.uniform<u8:f32, 2.0:128>"
COLUMNS = "!quant.uniform<i8:f32:1, {0.5:1, 0.25, 2.0:-3}>"


def number(q: Any, scale: Any, zero: Any = 0) -> np.ndarray:
    return (np.asarray(q, np.int64) - zero).astype(F) * np.asarray(scale, F)


def integer(x: Any, scale: Any, zero: Any = 0, low: int = -128, high: int = 127) -> np.ndarray:
    return np.rint(np.clip(np.asarray(x, F) / np.asarray(scale, F) + np.asarray(zero, F), low, high)).astype(np.int64)


def run(body: str, arguments: list[tuple[str, Any]], result: str, engine: Any = hk.evaluate) -> Any:
    listed = ", ".join(f"%{'abcd'[i]}: {type}" for i, (type, _) in enumerate(arguments))
    module = hk.parse(f"func.func @main({listed}) -> {result} {{\n  {body}\n  return %r : {result}\n}}")
    hk.verify(module)
    return engine(module, *(value for _, value in arguments))


def compiled(module: hk.HloModule, *arguments: Any) -> Any:
    return hk.compile(module)(*arguments)


A = np.array([[-128, -3, 0], [3, 4, 127]], np.int8)
B = np.array([[5, -7, 100], [2, 120, -90]], np.int8)
X = np.array([[-70.0, 0.25, 0.75], [1.25, 1.0e9, 3.1]], F)


@pytest.mark.parametrize("engine", [hk.evaluate, compiled])
@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (Q, integer(X, 0.5, 3)),
        (NARROW, integer(X, 0.25, 0, -127, 127)),
        (BYTE, integer(X, 2.0, 128, 0, 255)),
        (COLUMNS, integer(X, [0.5, 0.25, 2.0], [1, 0, -3])),
        ("!quant.uniform<i4:f32, 1.0>", integer(X, 1.0, 0, -8, 7)),
        ("!quant.uniform<i16:f32, 1.0>", integer(X, 1.0, 0, -(2**15), 2**15 - 1)),
        ("!quant.uniform<i8:bf16, 0.5>", integer(X, 0.5)),
    ],
)
def test_quantize(type: str, expected: np.ndarray, engine: Any) -> None:
    given = "bf16" if "bf16" in type else "f32"
    values = X.astype(hk.bf16.numpy) if given == "bf16" else X
    body = f"%r = stablehlo.uniform_quantize %a : (tensor<2x3x{given}>) -> tensor<2x3x{type}>"
    found = run(body, [(f"tensor<2x3x{given}>", values)], f"tensor<2x3x{type}>", engine)
    assert found.astype(np.int64).tolist() == expected.tolist()


def test_halves_round_to_even() -> None:
    body = "%r = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 1.0>>"
    found = run(body, [("tensor<4xf32>", F([0.5, 1.5, -0.5, 2.5]))], "tensor<4x!quant.uniform<i8:f32, 1.0>>")
    assert found.tolist() == [0, 2, 0, 2]


@pytest.mark.parametrize("engine", [hk.evaluate, compiled])
@pytest.mark.parametrize(
    ("type", "scale", "zero"), [(Q, 0.5, 3), (NARROW, 0.25, 0), (COLUMNS, [0.5, 0.25, 2.0], [1, 0, -3])]
)
def test_dequantize(type: str, scale: Any, zero: Any, engine: Any) -> None:
    body = f"%r = stablehlo.uniform_dequantize %a : (tensor<2x3x{type}>) -> tensor<2x3xf32>"
    found = run(body, [(f"tensor<2x3x{type}>", A)], "tensor<2x3xf32>", engine)
    assert np.array_equal(found, number(A, scale, zero))


def test_quantize_anew() -> None:
    body = f"%r = stablehlo.uniform_quantize %a : (tensor<2x3x{Q}>) -> tensor<2x3x{BYTE}>"
    found = run(body, [(f"tensor<2x3x{Q}>", A)], f"tensor<2x3x{BYTE}>")
    assert found.tolist() == integer(number(A, 0.5, 3), 2.0, 128, 0, 255).tolist()


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("stablehlo.subtract", np.subtract),
        ("stablehlo.multiply", np.multiply),
        ("stablehlo.maximum", np.maximum),
        ("stablehlo.divide", np.divide),
        ("chlo.broadcast_add", np.add),
    ],
)
def test_two_operands(operation: str, function: Any) -> None:
    types = [f"tensor<2x3x{Q}>", f"tensor<2x3x{NARROW}>", f"tensor<2x3x{BYTE}>"]
    with np.errstate(all="ignore"):
        expected = integer(function(number(A, 0.5, 3), number(B, 0.25)), 2.0, 128, 0, 255)
    body = f"%r = {operation} %a, %b : ({types[0]}, {types[1]}) -> {types[2]}"
    assert run(body, [(types[0], A), (types[1], B)], types[2]).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("operation", "function"),
    [("abs", np.abs), ("negate", np.negative), ("tanh", np.tanh), ("floor", np.floor), ("logistic", lambda x: 1 / (1 + np.exp(-x)))],
)  # fmt: skip
def test_one_operand(operation: str, function: Any) -> None:
    found = run(f"%r = stablehlo.{operation} %a : tensor<2x3x{Q}>", [(f"tensor<2x3x{Q}>", A)], f"tensor<2x3x{Q}>")
    assert found.tolist() == integer(function(number(A, 0.5, 3)), 0.5, 3).tolist()


def test_comparisons_compare_the_numbers() -> None:
    types = [f"tensor<2x3x{Q}>", f"tensor<2x3x{NARROW}>"]
    body = f"%r = stablehlo.compare LT, %a, %b : ({types[0]}, {types[1]}) -> tensor<2x3xi1>"
    found = run(body, [(types[0], A), (types[1], B)], "tensor<2x3xi1>")
    assert np.array_equal(found, number(A, 0.5, 3) < number(B, 0.25))


def test_clamp() -> None:
    body = f"%r = stablehlo.clamp %b, %a, %c : tensor<2x3x{Q}>"
    low, high = np.full((2, 3), -5, np.int8), np.full((2, 3), 9, np.int8)
    found = run(body, [(f"tensor<2x3x{Q}>", v) for v in (A, low, high)], f"tensor<2x3x{Q}>")
    assert np.array_equal(found, np.clip(A, -5, 9))


@pytest.mark.parametrize("other", [Q, BYTE])
def test_select(other: str) -> None:
    body = (
        f"%r = stablehlo.select %a, %b, %c : (tensor<2x3xi1>, tensor<2x3x{Q}>, tensor<2x3x{Q}>) -> tensor<2x3x{other}>"
    )
    flags, values = A > 0, (A, np.full((2, 3), 9, np.int8))
    found = run(body, [("tensor<2x3xi1>", flags), *((f"tensor<2x3x{Q}>", v) for v in values)], f"tensor<2x3x{other}>")
    same = np.where(flags, *values)
    expected = same if other == Q else integer(number(same, 0.5, 3), 2.0, 128, 0, 255)
    assert found.tolist() == expected.tolist()


W = np.array([[1, -2], [3, 4], [-5, 60]], np.int8)


@pytest.mark.parametrize("engine", [hk.evaluate, compiled])
def test_products(engine: Any) -> None:
    weights, result = "!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25}>", "!quant.uniform<i32:f32, 0.125>"
    types = [f"tensor<2x3x{Q}>", f"tensor<3x2x{weights}>", f"tensor<2x2x{result}>"]
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}"
    expected = integer(number(A, 0.5, 3) @ number(W, [0.5, 0.25]), 0.125, 0, -(2**31), 2**31 - 1)
    assert run(body, [(types[0], A), (types[1], W)], types[2], engine).tolist() == expected.tolist()


def test_products_of_floats_and_quantised_weights() -> None:
    weights = "!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25}>"
    types = ["tensor<2x3xf32>", f"tensor<3x2x{weights}>", "tensor<2x2xf32>"]
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}"
    found = run(body, [(types[0], A.astype(F)), (types[1], W)], types[2])
    np.testing.assert_allclose(found, A.astype(F) @ number(W, [0.5, 0.25]))


def test_convolution() -> None:
    types = [f"tensor<1x4x4x1x{Q}>", f"tensor<3x3x1x1x{NARROW}>", f"tensor<1x2x2x1x{Q}>"]
    image, kernel = np.arange(16, dtype=np.int8), np.arange(-4, 5, dtype=np.int8)
    body = (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {stride = [1, 1], pad = [[0, 0], [0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        f": ({types[0]}, {types[1]}) -> {types[2]}"
    )
    found = run(body, [(types[0], image.reshape(1, 4, 4, 1)), (types[1], kernel.reshape(3, 3, 1, 1))], types[2])
    x, k = number(image, 0.5, 3).reshape(4, 4), number(kernel, 0.25).reshape(3, 3)
    sums = [[(x[i : i + 3, j : j + 3] * k).sum() for j in range(2)] for i in range(2)]
    assert found.reshape(2, 2).tolist() == integer(sums, 0.5, 3).tolist()


@pytest.mark.parametrize(
    ("body", "result", "expected"),
    [
        (f"%r = stablehlo.reshape %a : (tensor<2x3x{Q}>) -> tensor<6x{Q}>", f"tensor<6x{Q}>", A.reshape(6)),
        (f"%r = stablehlo.slice %a [0:1, 0:2] : (tensor<2x3x{Q}>) -> tensor<1x2x{Q}>", f"tensor<1x2x{Q}>", A[:1, :2]),
        (f"%r = stablehlo.concatenate %a, %a, dim = 0 : (tensor<2x3x{Q}>, tensor<2x3x{Q}>) -> tensor<4x3x{Q}>", f"tensor<4x3x{Q}>", np.concatenate([A, A])),
        (f"%r = stablehlo.bitcast_convert %a : (tensor<2x3x{Q}>) -> tensor<2x3xi8>", "tensor<2x3xi8>", A),
        (f'%r = "stablehlo.constant"() <{{value = dense<[1, 2]> : tensor<2xi8>}}> : () -> tensor<2x{Q}>', f"tensor<2x{Q}>", np.int8([1, 2])),
        (f"%r = stablehlo.iota dim = 0 : tensor<4x{Q}>", f"tensor<4x{Q}>", integer(np.arange(4), 0.5, 3)),
    ],
)  # fmt: skip
def test_movement_of_the_integers(body: str, result: str, expected: np.ndarray) -> None:
    assert run(body, [(f"tensor<2x3x{Q}>", A)], result).tolist() == expected.tolist()


def test_a_transpose_moves_the_axis() -> None:
    rows = COLUMNS.replace("f32:1", "f32:0")
    body = (
        f"%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3x{COLUMNS}>) -> tensor<3x2x{rows}>\n"
        f"  %r = stablehlo.uniform_dequantize %0 : (tensor<3x2x{rows}>) -> tensor<3x2xf32>"
    )
    found = run(body, [(f"tensor<2x3x{COLUMNS}>", A)], "tensor<3x2xf32>")
    assert np.array_equal(found, number(A, [0.5, 0.25, 2.0], [1, 0, -3]).T)


@pytest.mark.parametrize("short", [True, False])
def test_regions_compute_on_numbers(short: bool) -> None:
    """A sum in steps, each of which is rounded and clamped."""
    zero = f'%z = "stablehlo.constant"() <{{value = dense<3> : tensor<i8>}}> : () -> tensor<{Q}>\n'
    types = f"(tensor<2x3x{Q}>, tensor<{Q}>) -> tensor<2x{Q}>"
    if short:
        body = f"%r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : {types}"
    else:
        body = f"""%r = stablehlo.reduce(%a init: %z) across dimensions = [1] : {types}
   reducer(%p: tensor<{Q}>, %q: tensor<{Q}>) {{
    %s = stablehlo.add %p, %q : tensor<{Q}>
    stablehlo.return %s : tensor<{Q}>
  }}"""
    expected = []
    for row in A:
        total = 3
        for q in row:
            total = int(integer(number(total, 0.5, 3) + number(q, 0.5, 3), 0.5, 3))
        expected.append(total)
    assert run(zero + "  " + body, [(f"tensor<2x3x{Q}>", A)], f"tensor<2x{Q}>").tolist() == expected


def test_functions_loops_and_aliases() -> None:
    text = f"""!q = {Q}
module {{
  func.func @main(%a: tensor<2x!q>) -> tensor<2x!q> {{
    %n = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %n, %s = %a) : tensor<i32>, tensor<2x!q>
    cond {{
      %k = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %k, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = func.call @twice(%s) : (tensor<2x!q>) -> tensor<2x!q>
      stablehlo.return %1, %2 : tensor<i32>, tensor<2x!q>
    }}
    return %0#1 : tensor<2x!q>
  }}
  func.func private @twice(%a: tensor<2x!q>) -> tensor<2x!q> {{
    %0 = stablehlo.add %a, %a : tensor<2x!q>
    return %0 : tensor<2x!q>
  }}
}}"""
    assert hk.evaluate(hk.parse(text), np.int8([4, 100])).tolist() == [3 + 8, 127]


@pytest.mark.parametrize(
    ("body", "result", "error", "message"),
    [
        (f"%r = stablehlo.reshape %a : (tensor<2x3x{Q}>) -> tensor<6x{NARROW}>", f"tensor<6x{NARROW}>", hk.ParseError, "different ways"),
        ("%r = stablehlo.uniform_quantize %b : (tensor<2xi8>) -> tensor<2xi8>", "tensor<2xi8>", hk.ParseError, "quantised"),
        (f"%r = stablehlo.uniform_quantize %b : (tensor<2xi8>) -> tensor<2x{Q}>", f"tensor<2x{Q}>", hk.ParseError, "takes floats"),
        ("%r = stablehlo.uniform_dequantize %b : (tensor<2xi8>) -> tensor<2xf32>", "tensor<2xf32>", hk.ParseError, "quantised"),
        ("%r = stablehlo.abs %b : tensor<2x!quant.uniform<i8:f32:1, {1.0, 2.0}>>", "tensor<2xf32>", hk.ParseError, "scales"),
        ("%r = stablehlo.abs %b : tensor<2x!quant.uniform<i8:f32:{0:1}, {{1.0}, {2.0}}>>", "tensor<2xi8>", hk.UnsupportedError, "quant"),
        ("%r = stablehlo.abs %b : tensor<2x!quant.uniform<i8:f32, -1.0>>", "tensor<2xi8>", hk.UnsupportedError, "quant"),
        ("%r = stablehlo.abs %b : tensor<2x!quant.any<i8:f32>>", "tensor<2xi8>", hk.UnsupportedError, "quant"),
    ],
)  # fmt: skip
def test_what_does_not_fit(body: str, result: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(body, [(f"tensor<2x3x{Q}>", A), ("tensor<2xi8>", np.int8([1, 2]))], result)
