"""op-expander: no op of the expand form is left, and the value is the form's."""

from __future__ import annotations

import pytest

import hlokit as hk
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from tests.forms.agree import difference
from tests.fuzz.properties import leaves


def expanded(module: hk.HloModule) -> hk.HloModule:
    return hk.optimize(module, ["op-expander"], verify_each=True)


POOL = """HloModule m
ge { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = pred[] compare(p, q), direction=GE }
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
inner { x = f32[6] parameter(0) s = f32[3] parameter(1) z = f32[] constant(0)
ROOT r = f32[6] select-and-scatter(x, s, z), window={size=2 stride=2}, select=ge, scatter=add }
ENTRY e { x = f32[6] parameter(0) s = f32[3] parameter(1) ROOT c = f32[6] call(x, s), to_apply=inner }
"""


def test_called_computations_too() -> None:
    module = hk.parse(POOL)
    after = expanded(module)
    assert all(i.op.form != "expand" for i in after.instructions())
    args = [1.0, 5.0, 2.0, 2.0, 9.0, 3.0], [1.0, 2.0, 3.0]
    assert hk.evaluate(after, *args).tobytes() == hk.evaluate(module, *args).tobytes()
    assert str(expanded(module)) == str(after)


def test_metadata_and_control_dependencies_go_along() -> None:
    text = POOL.replace(
        "scatter=add }", 'scatter=add, metadata={op_name="pool"}\nn = f32[6] negate(x), control-predecessors={r} }'
    )
    after = expanded(
        hk.parse(text.replace("ROOT r = f32[6]", "r = f32[6]").replace("n = f32[6] negate", "ROOT n = f32[6] negate"))
    )
    inner = next(c for c in after.computations() if c.name == "inner")
    assert all(i.op.form != "expand" for i in after.instructions())
    assert 'op_name="pool"' in str(inner)
    assert [p.opcode for p in inner.root.control_predecessors] == ["select"]


@pytest.mark.parametrize("opcode", sorted(name for name, op in hk.OPS.items() if op.form == "expand"))
def test_random_programs(opcode: str) -> None:
    options = Options(
        opcodes=frozenset({opcode, "add", "tuple"}),
        dynamic=False,
        types=("f32", "s32", "pred"),
        denormals=False,
        wild=0,
    )
    seen = 0
    for seed in range(60):
        module = random_module(seed, options)
        if not any(i.opcode == opcode for i in module.instructions()):
            continue
        args = arguments(module, seed, wild=0)
        try:
            want = hk.evaluate(module, *args)
        except hk.HlokitError:
            continue
        after = expanded(module)
        assert all(i.op.form != "expand" for i in after.instructions())
        got = hk.evaluate(after, *args)
        op = next(i.op for i in module.instructions() if i.opcode == opcode)
        if not opcode.startswith("batch-norm"):
            assert [a.tobytes() for a in leaves(got)] == [a.tobytes() for a in leaves(want)], seed
        elif [i.opcode for i in module.instructions()].count(opcode) == 1 and "add" not in str(module):
            assert not any(difference(op, a, b) for a, b in zip(leaves(got), leaves(want), strict=True)), seed
        seen += 1
    assert seen


