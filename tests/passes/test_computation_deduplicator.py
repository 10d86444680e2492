"""computation-deduplicator: equal functions become one; others, and what control flow calls, stay."""

from __future__ import annotations

import numpy as np

import hlokit as hk

REDUCER = "{name} {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] {op}(p, q) }}\n"
BODY = "{name} {{ p = f32[4] parameter(0) ROOT r = f32[4] add(p, p) }}\n"


def deduplicated(computations: str, lines: str) -> tuple[hk.HloModule, hk.HloModule]:
    module = hk.parse(f"HloModule m\n{computations}ENTRY e {{\n{lines}\n}}\n")
    return module, hk.optimize(module, ["computation-deduplicator"], verify_each=True)


def test_equal_reducers_become_one() -> None:
    computations = "".join(
        REDUCER.format(name=name, op=op) for name, op in (("a", "add"), ("b", "add"), ("c", "maximum"))
    )
    module, one = deduplicated(
        computations,
        "x = f32[4,6] parameter(0)\nz = f32[] constant(0)\n"
        + "\n".join(f"r{k} = f32[4] reduce(x, z), dimensions={{1}}, to_apply={name}" for k, name in enumerate("abc"))
        + "\nROOT t = (f32[4], f32[4], f32[4]) tuple(r0, r1, r2)",
    )
    assert [c.name for c in one.computations()] == ["a", "c", "e"]
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for got, want in zip(hk.evaluate(one, x), hk.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_operands_in_another_order_are_another_function() -> None:
    turned = "b { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] subtract(q, p) }\n"
    _, one = deduplicated(
        REDUCER.format(name="a", op="subtract") + turned,
        "x = f32[4,6] parameter(0)\nz = f32[] constant(0)\n"
        "r0 = f32[4] reduce(x, z), dimensions={1}, to_apply=a\nr1 = f32[4] reduce(x, z), dimensions={1}, to_apply=b\n"
        "ROOT t = (f32[4], f32[4]) tuple(r0, r1)",
    )
    assert len(one.computations()) == 3


def test_what_is_called_by_control_flow_stays() -> None:
    _, one = deduplicated(
        BODY.format(name="a") + BODY.format(name="b"),
        "x = f32[4] parameter(0)\nr0 = f32[4] call(x), to_apply=a\nROOT r1 = f32[4] call(r0), to_apply=b",
    )
    assert len(one.computations()) == 3
