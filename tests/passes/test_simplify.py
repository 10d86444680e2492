"""Each rule of algsimp: what it makes of a program, where it must not apply, and that every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.simplify.rules import RULES

NAN, INF = float("nan"), float("inf")


def entry(body: str, parameters: str = "x = f32[4] parameter(0)") -> str:
    return f"HloModule m\nENTRY e {{\n{parameters}\n{body}\n}}\n"


X, N, P = "x = f32[4] parameter(0)", "x = s32[4] parameter(0)", "x = pred[4] parameter(0)"
ZERO = "c = f32[] constant(0) z = f32[4] broadcast(c), dimensions={}\n"
NEGATIVE_ZERO = "c = f32[] constant(-0) z = f32[4] broadcast(c), dimensions={}\n"
ONE = "c = f32[] constant(1) o = f32[4] broadcast(c), dimensions={}\n"
INT = "c = s32[] constant({}) z = s32[4] broadcast(c), dimensions={{}}\n"

# rule, parameters, body, opcodes that remain besides parameters
APPLIES = [
    ("add_of_zero", N, INT.format(0) + "ROOT r = s32[4] add(x, z)", []),
    ("add_of_zero", X, NEGATIVE_ZERO + "ROOT r = f32[4] add(z, x)", []),
    ("subtract_of_zero", X, ZERO + "ROOT r = f32[4] subtract(x, z)", []),
    ("subtract_of_itself", N, "ROOT r = s32[4] subtract(x, x)", ["broadcast", "constant"]),
    ("multiply_by_one", X, ONE + "ROOT r = f32[4] multiply(o, x)", []),
    ("multiply_by_zero", N, INT.format(0) + "ROOT r = s32[4] multiply(x, z)", ["broadcast", "constant"]),
    ("divide_by_one", X, ONE + "ROOT r = f32[4] divide(x, o)", []),
    ("twice_is_nothing", X, "y = f32[4] negate(x) ROOT r = f32[4] negate(y)", []),
    ("twice_is_nothing", P, "y = pred[4] not(x) ROOT r = pred[4] not(y)", []),
    ("of_itself", X, "ROOT r = f32[4] maximum(x, x)", []),
    ("and_of_constant", P, "c = pred[] constant(true) t = pred[4] broadcast(c), dimensions={} ROOT r = pred[4] and(t, x)", []),
    ("or_of_zero", N, INT.format(0) + "ROOT r = s32[4] xor(x, z)", []),
    ("select_of_constant", X, "p = pred[] constant(false) n = f32[4] negate(x) ROOT r = f32[4] select(p, n, x)", []),
    ("compare_of_itself", N, "ROOT r = pred[4] compare(x, x), direction=LE", ["broadcast", "constant"]),
    ("transpose_of_transpose", "x = f32[2,3,4] parameter(0)", "t = f32[4,2,3] transpose(x), dimensions={2,0,1} ROOT r = f32[3,4,2] transpose(t), dimensions={2,0,1}", ["transpose"]),
    ("to_the_same_shape", "x = f32[4,1] parameter(0)", "ROOT r = f32[4,1] reshape(x)", []),
    ("to_the_same_shape", X, "ROOT r = f32[4] slice(x), slice={[0:4]}", []),
    ("reshape_of_reshape", X, "y = f32[2,2] reshape(x) ROOT r = f32[1,4] reshape(y)", ["reshape"]),
    ("broadcast_of_broadcast", X, "y = f32[3,4] broadcast(x), dimensions={1} ROOT r = f32[3,4,2] broadcast(y), dimensions={0,1}", ["broadcast"]),
    ("reverse_of_nothing", "x = f32[4,1] parameter(0)", "ROOT r = f32[4,1] reverse(x), dimensions={1}", []),
    ("concatenate_of_one", "x = f32[4] parameter(0) e = f32[0] parameter(1)", "ROOT r = f32[4] concatenate(e, x), dimensions={0}", []),
    ("dynamic_slice_of_all", "x = f32[4] parameter(0) i = s32[] parameter(1)", "ROOT r = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}", []),
    ("dynamic_update_slice_of_all", "x = f32[4] parameter(0) i = s32[] parameter(1) y = f32[4] parameter(2)", "ROOT r = f32[4] dynamic-update-slice(x, y, i)", []),
]  # fmt: skip


def arguments(module: hk.HloModule) -> list[np.ndarray]:
    values = [NAN, -0.0, INF, 3.0, -INF, 0.0, 1.5, -2.0]
    made: list[np.ndarray] = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        source = values if shape.dtype.is_floating else [0, 1, -3, 2**31 - 1] if shape.dtype.is_integral else [0, 1]
        made.append(np.resize(np.array(source, shape.dtype.numpy), shape.dimensions))
    return made


@pytest.mark.parametrize(("rule", "parameters", "body", "left"), APPLIES, ids=[f"{r[0]}-{i}" for i, r in enumerate(APPLIES)])
def test_rule_applies_and_keeps_every_bit(rule: str, parameters: str, body: str, left: list[str]) -> None:
    module = hk.parse(entry(body, parameters))
    before = hk.evaluate(module, *arguments(module))
    after = hk.optimize(module, ["algsimp", "dce"], verify_each=True)
    assert sorted(i.opcode for i in after.entry.instructions if i.opcode != "parameter") == sorted(left)
    got = hk.evaluate(after, *arguments(module))
    assert got.tobytes() == before.tobytes() and got.dtype == before.dtype
    assert rule in {r.__name__ for rules in RULES.values() for r in rules}


@pytest.mark.parametrize(
    ("parameters", "body"),
    [
        (X, ZERO + "ROOT r = f32[4] add(x, z)"),
        (X, "ROOT r = f32[4] subtract(x, x)"),
        (X, ZERO + "ROOT r = f32[4] multiply(x, z)"),
        (X, NEGATIVE_ZERO + "ROOT r = f32[4] subtract(x, z)"),
        (X, "ROOT r = pred[4] compare(x, x), direction=EQ"),
        ("x = c64[4] parameter(0)", "c = c64[] constant((1, 0)) o = c64[4] broadcast(c), dimensions={} ROOT r = c64[4] multiply(x, o)"),
        ("x = f32[<=4] parameter(0)", "ROOT r = f32[<=4] slice(x), slice={[0:4]}"),
        (X, "ROOT r = f32[4] pad(x, c), padding=1_-1"),
    ],
    ids=["-0 + 0", "inf - inf", "nan * 0", "0 - -0", "nan == nan", "complex", "dynamic", "shifting pad"],
)
def test_rule_must_not_apply(parameters: str, body: str) -> None:
    constant = "c = f32[] constant(0)\n" if "pad(" in body else ""
    module = hk.parse(entry(constant + body, parameters))
    after = hk.optimize(module, ["algsimp"], verify_each=True)
    assert after.entry.root.opcode == module.entry.root.opcode


def test_every_rule_has_its_law_and_a_case() -> None:
    rules = {rule.__name__: rule for declared in RULES.values() for rule in declared}
    assert all(rule.__doc__ for rule in rules.values())
    assert set(rules) == {row[0] for row in APPLIES}
