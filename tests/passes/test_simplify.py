"""The rules of algsimp-fast; those of algsimp are in tests/hlo/algsimp, a file each."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.simplify.rules import FAST_RULES, RULES

NAN, INF = float("nan"), float("inf")
CASES = Path(__file__).parents[1] / "hlo" / "algsimp"


def test_every_rule_has_its_law_and_a_case() -> None:
    rules = {rule.__name__: rule for declared in RULES.values() for rule in declared}
    assert all(rule.__doc__ for rule in rules.values())
    assert set(rules) == {re.sub(r"_\d$", "", path.stem) for path in CASES.glob("*.hlo")}
    fast = {rule.__name__: rule for declared in FAST_RULES.values() for rule in declared}
    assert all(rule.__doc__ for rule in fast.values()) and set(fast) == {name for name, _ in FAST} | OF_PRODUCTS


OF_PRODUCTS = {"transpose_of_dot", "dot_of_few", "dot_of_scattered", "dot_of_turned_dot", "dot_of_long"}
"""Tested below and in tests/hlo/passes, and compiled in tests/cpu/test_short_axes.py."""
FAST = [
    ("power_by_squaring", 2.0), ("power_by_squaring", 3.0), ("power_by_squaring", 7.0), ("power_by_squaring", -1.0), ("power_by_squaring", -2.0), ("power_by_squaring", -5.0),
    ("power_by_roots", 0.5), ("power_by_roots", 1.5), ("power_by_roots", 2.5), ("power_by_roots", -0.5), ("power_by_roots", -1.5), ("power_by_roots", -2.5),
    ("divide_by_constant", 3.0), ("divide_by_constant", -0.1),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "constant"), FAST)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fast_rules_round_a_little_and_keep_what_is_special(rule: str, constant: float, dtype: str) -> None:
    op = "divide" if rule.startswith("divide") else "power"
    module = hk.parse(
        f"HloModule m\nENTRY e {{ x = {dtype}[48] parameter(0) c = {dtype}[] constant({constant}) z = {dtype}[48] broadcast(c), dimensions={{}} ROOT r = {dtype}[48] {op}(x, z) }}"
    )
    special = [NAN, 0.0, -0.0, INF, -INF, 1.0, -1.0, 1e-30, 1e30, -1e-30, -1e30, 2.0]
    x = np.array(
        [*special, *np.exp(np.linspace(-9, 9, 18)), *-np.exp(np.linspace(-9, 9, 18))], dtype.replace("f", "float")
    )
    fast = hk.optimize(module, ["algsimp-fast", "dce"], verify_each=True)
    assert op not in [i.opcode for i in fast.entry.instructions] and str(hk.optimize(module, ["algsimp"])) == str(
        module
    )
    plain = hk.parse(
        f"ENTRY e {{ x = {dtype}[48] parameter(0) z = {dtype}[48] parameter(1) ROOT r = {dtype}[48] {op}(x, z) }}"
    )
    want, got = (
        hk.evaluate(plain, x, np.full_like(x, constant)),
        hk.evaluate(fast, x),
    )  # NumPy takes roots for one exponent
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(x.dtype).eps)
    assert rule in {r.__name__ for rules in FAST_RULES.values() for r in rules}


@pytest.mark.parametrize("op", ["power", "divide", "multiply", "remainder"])
@pytest.mark.parametrize("constant", ["inf", "-inf", "nan", "1e38", "-0"])
def test_constants_that_are_special(op: str, constant: str) -> None:
    module = hk.parse(f"""HloModule m
ENTRY e {{ x = f32[6] parameter(0) c = f32[] constant({constant}) z = f32[6] broadcast(c), dimensions={{}}
  ROOT r = f32[6] {op}(x, z) }}""")
    x = np.float32([0.5, -2, 0, INF, -INF, NAN])
    fast = hk.optimize(module, ["algsimp", "algsimp-fast"], verify_each=True)
    np.testing.assert_array_equal(hk.evaluate(fast, x), hk.evaluate(module, x))


@pytest.mark.parametrize(("permutation", "turned"), [("0,3,1,2", True), ("0,2,1,3", False), ("0,1,2,3", False)])
def test_transpose_of_dot(permutation: str, turned: bool) -> None:
    sizes = [(5, 2, 3, 4)[int(d)] for d in permutation.split(",")]
    shape = f"f32[{','.join(map(str, sizes))}]"
    module = hk.parse(f"""HloModule m
ENTRY e {{ x = f32[5,2,6,3] parameter(0) y = f32[5,6,4] parameter(1)
 d = f32[5,2,3,4] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
 ROOT t = {shape} transpose(d), dimensions={{{permutation}}} }}""")
    after = hk.optimize(module, ["algsimp-fast", "dce"], verify_each=True)
    root = after.entry.root
    assert (root.opcode == "dot" and root.operands[0].name == "y") == turned
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s.shape.dimensions, np.float32) for s in module.entry.parameters]
    np.testing.assert_allclose(hk.evaluate(after, *arrays), hk.evaluate(module, *arrays), rtol=1e-5, atol=1e-6)


def test_the_elements_beyond_a_run_time_size_stay_as_they_are() -> None:
    """or(x, x) is computed at its run-time size, here 0, and a gather reads the zeros beyond; x has other bits there."""
    module = hk.parse("""
HloModule beyond
ENTRY %entry (p: s8[1], q: s32[2,0]) -> s8[2] {
  %zero = s32[] constant(0)
  %p = s8[1] parameter(0)
  %sized = s8[<=1] set-dimension-size(%p, %zero), dimensions={0}
  %same = s8[<=1] or(%sized, %sized)
  %q = s32[2,0] parameter(1)
  ROOT %taken = s8[2] gather(%same, %q), offset_dims={}, collapsed_slice_dims={0}, start_index_map={}, index_vector_dim=1, slice_sizes={1}
}
""")
    arguments = np.array([-128], np.int8), np.zeros((2, 0), np.int32)
    for result in (hk.evaluate(module, *arguments), hk.evaluate(hk.optimize(module), *arguments)):
        assert result.tolist() == [0, 0]
    assert hk.compile(module)(*arguments).tolist() == [0, 0]
