"""Sums of many like terms: what another order of the terms may change of them, and what it may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.bounds import difference
from hlokit.judge.closeness.spread import Spread

TERMS = 1 << 17
HEAD = """HloModule m
sum {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT s = {type}[] add(a, b) }}
ENTRY e {{
  x = {type}[{terms}] parameter(0)
  z = {type}[] constant({zero})
"""
PROGRAMS = {
    "reduce": "ROOT r = {type}[] reduce(x, z), dimensions={{0}}, to_apply=sum",
    "columns": """y = {type}[{quarter},4] reshape(x)
        ROOT r = {type}[4] reduce(y, z), dimensions={{0}}, to_apply=sum""",
    "cumulative": "ROOT r = {type}[{terms}] reduce-window(x, z), window={{size={terms} pad={last}_0}}, to_apply=sum",
    "scatter": """o = {type}[4] broadcast(z), dimensions={{}}
        c = s32[] constant(2)
        i = s32[{terms},1] broadcast(c), dimensions={{}}
        ROOT r = {type}[4] scatter(o, i, x), update_window_dims={{}}, inserted_window_dims={{0}},
            scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum""",
    "dot": "ROOT r = {type}[] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
    "convolution": """y = {type}[1,{terms},1] reshape(x)
        w = {type}[3,{terms},1] broadcast(x), dimensions={{1}}
        ROOT r = {type}[1,3,1] convolution(y, w), window={{size=1}}, dim_labels=bf0_oi0->bf0""",
}
TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "c64": np.complex64}


def parsed(body: str, name: str, terms: int = TERMS) -> hk.HloModule:
    zero = "(0, 0)" if name == "c64" else "0"
    return hk.parse((HEAD + body + "}}").format(type=name, terms=terms, last=terms - 1, quarter=terms // 4, zero=zero))


def program(op: str, name: str, terms: int = TERMS) -> hk.HloModule:
    return parsed(PROGRAMS[op], name, terms)


def in_groups(op: str, x: Any, groups: int) -> Any:
    """The result where so many sums are added one after the other, each of every so manyth term, and these in pairs."""
    terms = x * x if op in ("dot", "convolution") else x
    if op == "cumulative":
        blocks = np.add.accumulate(x.reshape(groups, -1), axis=1, dtype=x.dtype)
        before = np.add.accumulate(np.concatenate([np.zeros(1, x.dtype), blocks[:-1, -1]]), dtype=x.dtype)
        return (blocks + before[:, None]).reshape(-1)
    columns = 4 if op == "columns" else 1
    sums = np.add.accumulate(terms.reshape(-1, groups, columns), axis=0, dtype=x.dtype)[-1]
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    if op == "scatter":
        return np.array([0, 0, sums[0, 0], 0], x.dtype)
    return {"columns": sums[0], "convolution": np.full((1, 3, 1), sums[0, 0])}.get(op, sums[0, 0])


def is_allowed(found: Spread, value: Any, expected: Any) -> bool:
    return found.near((np.asarray(value, expected.dtype),), (expected,)) is None


HAS_WIDER = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


@pytest.mark.parametrize("number", [1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("name", ["f32", *(["f64"] if HAS_WIDER else [])])
@pytest.mark.parametrize("op", PROGRAMS)
def test_sums_of_equal_terms_may_be_in_any_order(op: str, name: str, number: float) -> None:
    """A sum of a million equal terms was judged wrong where it was nearer to the exact one than the reference's."""
    x = np.full(TERMS, number, TYPES[name])
    module = program(op, name)
    expected = np.asarray(hk.evaluate(module, x))
    found = Spread(module, [x])
    for groups in (1, 4, 16, 32):
        assert is_allowed(found, in_groups(op, x, groups), expected), groups
    for factor in (0, 2, -1, 0.5, 0.9, 0.99, 1.01):
        assert not is_allowed(found, expected * x.dtype.type(factor), expected), factor


@pytest.mark.parametrize("op", ["reduce", "scatter"])
def test_terms_that_are_left_out_of_long_sums_of_other_numbers_are_found(op: str) -> None:
    """Roundings of these cancel: what is allowed does not grow with their number."""
    x = np.random.default_rng(0).normal(size=TERMS).astype(np.float32)
    module = program(op, "f32")
    expected = np.asarray(hk.evaluate(module, x))
    found = Spread(module, [x])
    assert is_allowed(found, in_groups(op, x, 16), expected)
    for left_out in (1, 7):
        fewer = np.where(np.arange(TERMS) < TERMS - left_out, x, np.float32(0))
        assert not is_allowed(found, hk.evaluate(module, fewer), expected)


def test_sums_that_stay_below_a_larger_power_of_two_may_go_beyond_it() -> None:
    """512 ones in bf16 are 256 one after the other, and 512 in groups: never none, nor 1,024."""
    x = np.ones(512, ml_dtypes.bfloat16)
    module = program("reduce", "bf16", 512)
    expected = np.asarray(hk.evaluate(module, x))
    assert expected == 256
    found = Spread(module, [x])
    assert is_allowed(found, 512, expected)
    assert not is_allowed(found, 0, expected)
    assert not is_allowed(found, 1024, expected)


@pytest.mark.parametrize("op", PROGRAMS)
def test_one_instruction_may_add_in_any_order(op: str) -> None:
    x = np.full(TERMS, 0.1, np.float32)
    module = program(op, "f32")
    values: dict[str, Any] = {}
    hk.evaluate(module, x, after=lambda instruction, results: values.update({instruction.name: results[0]}))
    root = module.entry.root
    operands = [values.get(o.name, x) for o in root.operands]
    expected = values[root.name]
    assert difference(root, expected, np.asarray(in_groups(op, x, 16), np.float32), operands) is None
    assert difference(root, expected, (expected * np.float32(0.9)), operands) is not None


def test_sums_of_complex_numbers_may_be_in_any_order() -> None:
    x = np.full(TERMS, 0.1 - 0.3j, np.complex64)
    module = program("reduce", "c64")
    expected = np.asarray(hk.evaluate(module, x))
    found = Spread(module, [x])
    assert is_allowed(found, in_groups("reduce", x, 16), expected)
    assert not is_allowed(found, expected.conj(), expected)
    assert not is_allowed(found, expected * np.complex64(0.9), expected)


def test_what_is_computed_of_sums_may_change_with_their_order() -> None:
    """Little is left of the difference of two large numbers but their errors."""
    text = """r = {type}[] reduce(x, z), dimensions={{0}}, to_apply=sum
      n = {type}[] constant(13107)
      d = {type}[] subtract(r, n)
      ROOT e = {type}[] multiply(d, d)"""
    module = parsed(text, "f32")
    x = np.full(TERMS, 0.1, np.float32)
    expected = np.asarray(hk.evaluate(module, x))
    found = Spread(module, [x])
    assert is_allowed(found, (in_groups("reduce", x, 16) - np.float32(13107)) ** 2, expected)
    assert not is_allowed(found, 13107**2, expected)


def test_sums_over_devices_are_not_reordered() -> None:
    """The devices add as many terms as there are devices."""
    module = hk.parse("""HloModule m, num_partitions=2
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
}""")
    x = np.arange(4, dtype=np.float32)
    inputs = [[x], [2 * x]]
    expected = [3 * x, 3 * x]
    found = Spread(module, inputs)
    assert found.near(expected, expected) is None
    assert found.near([3 * x, 2 * x], expected) is not None


def test_the_bound_that_is_told_is_that_of_the_verdict() -> None:
    (judgement,) = compared("compiled")
    assert judgement.verdict in ("equal", "allowed")
    if judgement.difference:
        assert judgement.bound is not None
        assert judgement.difference <= judgement.bound < 0.05


def compared(*engines: str) -> Sequence[Any]:
    x = np.full(TERMS, 1 / 3, np.float32)
    return hk.compare_engines(program("reduce", "f32"), x, engines=engines).judgements
