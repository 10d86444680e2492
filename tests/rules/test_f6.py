"""f6e2m3fn and f6e3m2fn: everywhere where there are element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.types import dtype as dtypes
from tests.rules.labels import rejects, rule

TYPES = {"f6e2m3fn": ml_dtypes.float6_e2m3fn, "f6e3m2fn": ml_dtypes.float6_e3m2fn}
GREATEST = {"f6e2m3fn": 7.5, "f6e3m2fn": 28.0}
HALF_WAY = {"f6e2m3fn": 7.75, "f6e3m2fn": 30.0}
each = pytest.mark.parametrize("name", TYPES)


def codes(name: str) -> Any:
    """All 64 values."""
    return np.arange(64, dtype=np.uint8).view(TYPES[name])


def runs(body: str, *args: Any) -> list[Any]:
    """What the reference and machine code give for `body`, of which x is parameter 0, and y parameter 1."""
    module = hk.parse(f"HloModule m\nadd {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }}\nENTRY e {{ {body} }}")
    assert str(hk.parse(str(module))) == str(module)
    assert str(module_from_proto(module_to_proto(module))) == str(module)
    return [hk.evaluate(module, *args), hk.evaluate(hk.optimize(module), *args), hk.compile(module)(*args)]


def same_bits(result: Any, expected: Any) -> None:
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def nearest(name: str, values: Any) -> Any:
    """The element that is nearest, of two the one with an even code; beyond the greatest, the greatest. By definition."""
    table = codes(name)[:32].astype(np.float64)
    found = np.abs(np.minimum(np.abs(values), GREATEST[name])[:, None] - table[None, :])
    least = found.min(axis=1, keepdims=True)
    code = np.where(found == least, np.arange(32) + 100 * (np.arange(32) % 2), 1000).argmin(axis=1)
    return (code + 32 * np.signbit(values)).astype(np.uint8).view(TYPES[name])


@rule("TYPE-1", "HSHAPE-2")
@each
def test_the_type(name: str) -> None:
    element: dtypes.DType = getattr(hk, name)
    assert (element.name, element.bits, element.kind, element.numpy) == (name, 6, "floating", np.dtype(TYPES[name]))
    assert element[2].to_text() == f"{name}[2]{{0}}" and hk.dtype(TYPES[name]) is element
    assert dtypes.dtype_of_number({"f6e3m2fn": 35, "f6e2m3fn": 36}[name]) is element


FROM = ("f32", "f64", "bf16", "f8e5m2", "s32", "s8", "u8", "pred", "c64")
FLOATS = ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3fn")
INTEGERS = ("s32", "u8", "s4", "pred", "u64")


def all_of(operands: str, operations: dict[str, str]) -> str:
    """The body of a module that gives all of these: `shape op` by name."""
    lines = [f"{name} = {operation}" for name, operation in operations.items()]
    shapes = ", ".join(operation.split()[0] for operation in operations.values())
    return "\n ".join([operands, *lines, f"ROOT all = ({shapes}) tuple({', '.join(operations)})"])


@rule("CONVERT-3", "CONVERT-2")
@each
def test_conversions_from_it(name: str) -> None:
    x = codes(name)
    first, *others = runs(all_of(f"x = {name}[64] parameter(0)", {f"to_{t}": f"{t}[64] convert(x)" for t in FROM}), x)
    for results in others:
        for result, expected in zip(results, first, strict=True):
            np.testing.assert_array_equal(result, expected)
    for result in first[:3]:
        np.testing.assert_array_equal(result.astype(np.float64), x.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(result), np.signbit(x.astype(np.float32)))


@rule("CONVERT-5", "TYPE-1")
@each
def test_conversions_to_it(name: str) -> None:
    table = codes(name).astype(np.float64)
    between = (table[:31] + table[1:32]) / 2  # ties, and their neighbours
    values = np.concatenate([table, between, -between, np.nextafter(between, 0), np.nextafter(between, 99),
                             [HALF_WAY[name], 1e30, -1e300, np.inf, -np.inf, 1e-30, -5e-324]])  # fmt: skip
    given: list[Any] = []
    for source in (*FLOATS, *INTEGERS):
        with np.errstate(over="ignore"):
            whole = np.int64([-100, -8, -3, 0, 1, 2, 5, 7, 9, 29, 100])
            x = (values if source in FLOATS else whole).astype(hk.dtype(source).numpy)
        given.append(x[~np.isnan(x.astype(np.float64))])
    named = list(zip((*FLOATS, *INTEGERS), given, strict=True))
    operands = "\n ".join(f"x{i} = {source}[{len(x)}] parameter({i})" for i, (source, x) in enumerate(named))
    body = all_of(operands, {f"r{i}": f"{name}[{len(x)}] convert(x{i})" for i, (_, x) in enumerate(named)})
    for results in runs(body, *given):
        for result, x in zip(results, given, strict=True):
            same_bits(result, nearest(name, x.astype(np.float64)))
    nans = np.float32([np.nan, -np.nan])
    first, *others = runs(f"x = f32[2] parameter(0)\n ROOT r = {name}[2] convert(x)", nans)
    assert list(first.view(np.uint8)) == list(nans.astype(TYPES[name]).view(np.uint8))
    for other in others:
        same_bits(other, first)


@rule("HLIT-6", "HLIT-7", "HLIT-24")
@each
def test_literals(name: str) -> None:
    limit, half_way = GREATEST[name], HALF_WAY[name]
    module = hk.parse(f"HloModule m\nENTRY e {{ ROOT c = {name}[3] constant({{{limit}, -{half_way - 0.01}, 1.26}}) }}")
    same_bits(hk.evaluate(module), np.array([limit, -limit, 1.25]).astype(TYPES[name]))
    for value in (half_way, -half_way, 1000):
        with rejects("HLIT-7"):
            hk.parse(f"HloModule m\nENTRY e {{ ROOT c = {name}[] constant({value}) }}")
    for start in range(0, 64, 8):
        part = codes(name)[start : start + 8]
        b = hk.Builder("m")
        built = b.build(b.constant(part))
        same_bits(hk.evaluate(hk.parse(str(built))), part)
        same_bits(hk.evaluate(module_from_proto(module_to_proto(built))), part)
        same_bits(hk.evaluate(hk.parse(hk.to_stablehlo(built))), part)


@rule("BIN-1", "CMP-3", "CMP-5")
@each
def test_arithmetic_and_order(name: str) -> None:
    """In f32, rounded once."""
    x = codes(name)
    y = np.random.default_rng(3).permutation(x.view(np.uint8)).view(TYPES[name])
    wide = x.astype(np.float32), y.astype(np.float32)
    keys = [np.where(v.view(np.uint8) > 31, 31 - v.view(np.uint8).astype(int), v.view(np.uint8)) for v in (x, y)]
    expected = {
        f"{name}[64] add(x, y)": np.add(*wide).astype(TYPES[name]),
        f"{name}[64] multiply(x, y)": np.multiply(*wide).astype(TYPES[name]),
        f"{name}[64] maximum(x, y)": np.maximum(*wide).astype(TYPES[name]),
        f"{name}[64] negate(x)": -x,
        f"{name}[64] abs(x)": np.abs(x),
        f"{name}[64] exponential(x)": np.exp(wide[0]).astype(TYPES[name]),
        f"{name}[64] reverse(x), dimensions={{0}}": x[::-1],
        "pred[64] is-finite(x)": np.ones(64, bool),
        "pred[64] compare(x, y), direction=LT": wide[0] < wide[1],
        "pred[64] compare(x, y), direction=LT, type=TOTALORDER": keys[0] < keys[1],
    }
    operands = f"x = {name}[64] parameter(0)\n y = {name}[64] parameter(1)"
    for results in runs(all_of(operands, {f"r{i}": op for i, op in enumerate(expected)}), x, y):
        for result, wanted in zip(results, expected.values(), strict=True):
            np.testing.assert_array_equal(result, wanted)
    for values, places in runs(f"x = {name}[64] parameter(0)\n ROOT r = topk(x), k=64", y):
        np.testing.assert_array_equal(places, np.argsort(-keys[1], kind="stable"))
        np.testing.assert_array_equal(values.view(np.uint8), y[places].view(np.uint8))


@rule("DOT-1")
@each
def test_products_and_sums(name: str) -> None:
    x, y = codes(name).reshape(4, 16), codes(name)[::-1].reshape(16, 4).copy()
    body = all_of(f"x = {name}[4,16] parameter(0)\n y = {name}[16,4] parameter(1)\n z = f32[] constant(0)\n w = f32[4,16] convert(x)", {
        "product": "f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "total": "f32[4] reduce(w, z), dimensions={1}, to_apply=add",
    })  # fmt: skip
    wide = x.astype(np.float32)
    for product, total in runs(body, x, y):
        np.testing.assert_array_equal(product, wide @ y.astype(np.float32))
        np.testing.assert_array_equal(total, wide.sum(axis=1))


@rule("BITCAST-5")
@each
def test_bits(name: str) -> None:
    other = next(n for n in TYPES if n != name)
    for result in runs(f"x = {name}[64] parameter(0)\n ROOT r = {other}[64] bitcast-convert(x)", codes(name)):
        same_bits(result, codes(other))
    parts = np.arange(64)[:, None] >> np.array([0, 2, 4]) & 3
    for result in runs(f"x = {name}[64] parameter(0)\n y = u2[64,3] bitcast-convert(x)\n ROOT r = s32[64,3] convert(y)", codes(name)):
        np.testing.assert_array_equal(result, parts)
    for target in ("u8[64]", "u4[64]", "u16[24]"):
        with rejects("BITCAST-5"):
            hk.parse(f"HloModule m\nENTRY e {{ x = {name}[64] parameter(0)\n ROOT r = {target} bitcast-convert(x) }}")


@each
def test_stablehlo(name: str) -> None:
    spelled = name.replace("f6e2m3fn", "f6E2M3FN").replace("f6e3m2fn", "f6E3M2FN")
    module = hk.parse(f"""
func.func @main(%x: tensor<4xf32>) -> tensor<4x{spelled}> {{
  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4x{spelled}>
  %1 = stablehlo.constant dense<[1.5, -2.0, 0.0, 4.0]> : tensor<4x{spelled}>
  %2 = stablehlo.add %0, %1 : tensor<4x{spelled}>
  return %2 : tensor<4x{spelled}>
}}""")
    x = np.float32([1, 2, 3, 100])
    expected = np.array([2.5, 0, 3, GREATEST[name]]).astype(TYPES[name])
    for result in (hk.evaluate(module, x), hk.compile(module)(x), hk.evaluate(hk.parse(hk.to_stablehlo(module)), x)):
        same_bits(result, expected)
    assert spelled in hk.to_stablehlo(module)
