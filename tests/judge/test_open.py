"""Differences that a rule of the language allows: each rule's, and others that none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.open import OPEN
from hlokit.judge.closeness.spread import left_open_by, near, rules_that_allow
from hlokit.judge.engines.engine import CommandEngine
from tests.judge.test_compare import tool
from tests.rules.labels import rule

FIRST = "f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] copy(a) }"
SECOND = "f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] copy(b) }"
ADD = "f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }"
LESS = "g { a = s32[] parameter(0) b = s32[] parameter(1) k = s32[] parameter(2) l = s32[] parameter(3) ROOT c = pred[] OP }"
NE = "g { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = pred[] compare(a, b), direction=NE }"
GE = NE.replace("NE", "GE")
SCATTER = (
    "scatter(p0, p1, p2), update_window_dims={{{}}}, inserted_window_dims={{{}}}, scatter_dims_to_operand_dims={{0}}, "
    "index_vector_dim=1, {}to_apply=f"
)
NAN, INF = float("nan"), float("inf")

Row = tuple[str, str, list[str], str, list[Any], Any, Any]
CASES: list[Row] = [
    # label, computations, parameters, root, arguments, a value that the rule allows, one that none does
    ("REDUCE-9", SECOND, ["s32[4]", "s32[]"], "s32[] reduce(p0, p1), dimensions={0}, to_apply=f", [[1, 2, 3, 4], 9], 9, None),
    ("REDUCE-9", FIRST, ["s32[1]", "s32[]"], "s32[] reduce(p0, p1), dimensions={0}, to_apply=f", [[1], 9], 1, None),
    ("REDUCE-9", ADD, ["s32[1,2]", "s32[]"], "s32[2] reduce(p0, p1), dimensions={0}, to_apply=f", [[[1, 2]], 5], [1, 2], None),
    ("RWIN-9", ADD, ["s32[]", "s32[]"], "s32[] reduce-window(p0, p1), to_apply=f", [1, 5], 1, 2),
    ("REDUCE-9", ADD, ["s32[4]", "s32[]"], "s32[] reduce(p0, p1), dimensions={0}, to_apply=f", [[1, 2, 3, 4], 5], 20, None),
    ("", ADD, ["s32[4]", "s32[]"], "s32[] reduce(p0, p1), dimensions={0}, to_apply=f", [[1, 2, 3, 4], 0], None, 11),
    ("REDUCE-11", ADD, ["s32[2]", "s32[]"], "s32[2] reduce(p0, p1), dimensions={}, to_apply=f", [[1, 2], 5], [1, 2], [1, 1]),
    (
        "RWIN-6", ADD, ["s32[3]", "s32[]"], "s32[4] reduce-window(p0, p1), window={size=2 pad=1_1}, to_apply=f",
        [[1, 2, 3], 100], [201, 103, 105, 203], [202, 103, 105, 104],
    ),
    (
        "RWIN-11", SECOND, ["s32[3]", "s32[]"], "s32[2] reduce-window(p0, p1), window={size=2}, to_apply=f",
        [[1, 2, 3], 7], [1, 2], None,
    ),
    (
        "SAS-12", GE + SECOND, ["s32[3]", "s32[2]", "s32[]"],
        "s32[3] select-and-scatter(p0, p1, p2), window={size=2}, select=g, scatter=f",
        [[1, 5, 2], [10, 20], 0], [0, 10, 0], [10, 20, 0],
    ),
    (
        "SAS-16", NE + ADD, ["s32[3]", "s32[1]", "s32[]"],
        "s32[3] select-and-scatter(p0, p1, p2), window={size=3}, select=g, scatter=f",
        [[1, 1, 2], [10], 0], [10, 0, 0], None,
    ),
    (
        "SCATTER-20", ADD, ["s32[5]", "s32[2,1]", "s32[2,2]"], "s32[5] " + SCATTER.format(1, "", ""),
        [[0] * 5, [[4], [-1]], [[5, 6], [7, 8]]], [8, 0, 0, 0, 5], [7, 0, 0, 0, 5],
    ),
    (
        "SCATTER-22", SECOND, ["s32[3]", "s32[2,1]", "s32[2]"], "s32[3] " + SCATTER.format("", 0, ""),
        [[0, 0, 0], [[1], [1]], [5, 6]], [0, 5, 0], [5, 6, 0],
    ),
    (
        "SCATTER-23", ADD, ["s32[3]", "s32[2,1]", "s32[2]"], "s32[3] " + SCATTER.format("", 0, "unique_indices=true, "),
        [[0, 0, 0], [[1], [1]], [5, 6]], [0, 6, 0], None,
    ),
    (
        "GATHER-25", "", ["s32[3]", "s32[2,1]"],
        "s32[2] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1}, indices_are_sorted=true", [[7, 8, 9], [[2], [0]]], [7, 9], None,
    ),
    (
        "SORT-9", LESS.replace("OP", "compare(a, b), direction=LT"), ["s32[3]", "s32[3]"],
        "(s32[3], s32[3]) sort(p0, p1), dimensions={0}, to_apply=g", [[2, 1, 1], [0, 1, 2]], ([1, 1, 2], [2, 1, 0]),
        ([1, 1, 2], [1, 0, 2]),
    ),
    (
        "SORT-10", LESS.replace("OP", "compare(a, b), direction=LE"), ["s32[3]", "s32[3]"],
        "(s32[3], s32[3]) sort(p0, p1), dimensions={0}, is_stable=true, to_apply=g", [[2, 1, 1], [0, 1, 2]],
        ([1, 1, 2], [1, 2, 0]), None,
    ),
    ("RNG-7", "", ["f32[]", "f32[]"], "f32[2] rng(p0, p1), distribution=rng_uniform", [0, 1], [0.5, 0.5], None),
    (
        "RBG-4", "", ["u64[2]"], "(u64[2], u32[2]) rng-bit-generator(p0), algorithm=rng_default", [[1, 2]],
        ([1, 2], [3, 4]), None,
    ),
    ("CHOL-7", "", ["f32[2,2]"], "f32[2,2] cholesky(p0), lower=true", [[[4, 2], [2, 3]]], [[2, 7], [1, 1.4142135]],
     [[2, 7], [1, 2]]),
    ("CHOL-8", "", ["f32[2,2]"], "f32[2,2] cholesky(p0), lower=true", [[[1, 2], [2, 1]]], [[1, 0], [2, NAN]], None),
    (
        "TRISOLVE-11", "", ["f32[1,1]", "f32[1,1]"],
        "f32[1,1] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", [[[0]], [[0]]],
        [[5]], None,
    ),
    ("DIV-3", "", ["s32[2]", "s32[2]"], "s32[2] divide(p0, p1)", [[4, 6], [0, 3]], [0, 2], [0, 3]),
    ("DIV-4", "", ["s32[2]", "s32[2]"], "s32[2] divide(p0, p1)", [[-(2**31), 6], [-1, 3]], [0, 2], [0, 3]),
    ("REM-2", "", ["s32[2]", "s32[2]"], "s32[2] remainder(p0, p1)", [[4, 6], [0, 4]], [0, 2], [0, 3]),
    ("REM-3", "", ["s32[2]", "s32[2]"], "s32[2] remainder(p0, p1)", [[-(2**31), 6], [-1, 4]], [7, 2], [7, 3]),
    ("CONV-TYPE-7", "", ["f32[3]"], "s32[3] convert(p0)", [[NAN, 1e20, 5]], [7, -(2**31), 5], [0, 0, 6]),
    ("CONV-TYPE-11", "", ["f32[2]"], "f8e4m3fn[2] convert(p0)", [[1e5, 2]], [448, 2], [448, 6]),
    ("EXP-2", "", ["c64[2]"], "c64[2] exponential(p0)", [[complex(-INF, -INF), 0]], [complex(NAN, NAN), 1], [0, NAN]),
    ("SQRT-2", "", ["c64[2]"], "c64[2] sqrt(p0)", [[complex(-1, -0.0), complex(-4, 0.0)]], [1j, 2j], [-1j, -2j]),
    ("IOTA-8", "", [], "s8[130] iota(), iota_dimension=0", [], [*range(128), 127, 127], [1, *range(1, 128), 127, 127]),
]  # fmt: skip


def program(computations: str, parameters: list[str], root: str) -> hk.HloModule:
    lines = "".join(f" p{k} = {shape} parameter({k})\n" for k, shape in enumerate(parameters))
    return hk.parse(f"HloModule m\n{computations}\nENTRY e {{\n{lines} ROOT r = {root}\n}}")


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(
    ("label", "computations", "parameters", "root", "given", "allowed", "wrong"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
@rule(*OPEN)
def test_what_a_rule_allows_and_what_none_does(
    label: str, computations: str, parameters: list[str], root: str, given: list[Any], allowed: Any, wrong: Any
) -> None:
    module = program(computations, parameters, root)
    arguments = [np.asarray(a, p.shape.dtype.numpy) for a, p in zip(given, module.entry.parameters, strict=True)]
    expected = results(hk.evaluate(module, *arguments))
    for other, labels in ((allowed, (label,)), (wrong, ())):
        if other is None:
            continue
        theirs = tuple(np.asarray(t).astype(e.dtype) for t, e in zip(results(other), expected, strict=True))
        assert near(theirs, expected, module, arguments, 0, overflows=False) is not None
        assert rules_that_allow(theirs, expected, module, arguments) == labels
        if len(expected) == 1:
            assert left_open_by(module.entry.root, arguments, expected[0], theirs[0]) == "".join(labels)


def test_every_rule_of_the_table_has_a_case() -> None:
    assert {case[0] for case in CASES} - {""} == set(OPEN)


def test_two_rules_together() -> None:
    text = """HloModule m
ENTRY e {
  x = s32[2] parameter(0)
  y = s32[2] parameter(1)
  d = s32[2] divide(x, y)
  r = s32[2] remainder(x, y)
  ROOT t = (s32[2], s32[2]) tuple(d, r)
}"""
    module, arguments = hk.parse(text), [np.int32([4, 6]), np.int32([0, 3])]
    expected = hk.evaluate(module, *arguments)
    assert rules_that_allow((np.int32([0, 2]), np.int32([0, 0])), expected, module, arguments) == ("DIV-3", "REM-2")


def test_the_verdict_has_the_rule_and_its_text(tmp_path: Path) -> None:
    module = hk.parse(
        "HloModule m\nENTRY e { x = s32[2] parameter(0) y = s32[2] parameter(1) ROOT d = s32[2] divide(x, y) }"
    )
    with CommandEngine(tool(tmp_path, "divide", "np.where(a[1] == 0, np.int32(0), true(self, *a, **k))")) as engine:
        found = hk.compare_engines(module, np.int32([4, 6]), np.int32([0, 3]), engines=[engine])
    (judgement,) = found.judgements
    assert (judgement.verdict, judgement.rules) == ("allowed", ("DIV-3",))
    assert "left open by DIV-3" in str(found)
    assert f"DIV-3: {hk.explain('DIV-3').text}" in str(found)
    assert found.is_equal


@rule("TYPE-13")
def test_bits_of_nans_are_left_open(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0) y = f32[2] add(x, x) ROOT b = s32[2] bitcast-convert(y) }"
    flipped = "np.where(np.isnan(a[0]), np.copysign(np.float32(np.nan), -1), true(self, *a, **k)).astype(np.float32)"
    with CommandEngine(tool(tmp_path, "add", flipped)) as engine:
        (found,) = hk.compare_engines(hk.parse(text), np.float32([1, NAN]), engines=[engine]).judgements
    assert (found.verdict, found.rules) == ("allowed", ("TYPE-13",))


def test_a_reduction_to_nothing_leaves_nothing_open() -> None:
    module = hk.parse(
        "HloModule m\n" + ADD + "\nENTRY e { x = s32[2,0] parameter(0) i = s32[] constant(0) "
        "r = s32[0] reduce(x, i), dimensions={0}, to_apply=f ROOT t = (s32[0], s32[]) tuple(r, i) }"
    )
    given = [np.zeros((2, 0), np.int32)]
    expected = hk.evaluate(module, *given)
    assert rules_that_allow((expected[0], np.int32(1)), expected, module, given) == ()


@rule("REDUCE-9")
def test_a_reduce_in_a_loop_may_leave_init_out_each_time() -> None:
    """A run that draws it anew in each of ten passes hardly ever does, and XLA always does."""
    module = hk.parse("""HloModule m
f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT m = s32[] maximum(a, b) }
b { t = (s32[], s32[1,2]) parameter(0) i = s32[] get-tuple-element(t), index=0 o = s32[] constant(1)
    n = s32[] add(i, o) x = s32[1,2] get-tuple-element(t), index=1 z = s32[] constant(0)
    r = s32[2] reduce(x, z), dimensions={0}, to_apply=f y = s32[1,2] reshape(r) ROOT u = (s32[], s32[1,2]) tuple(n, y) }
c { t = (s32[], s32[1,2]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(10)
    ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e { x = s32[1,2] parameter(0) z = s32[] constant(0) t = (s32[], s32[1,2]) tuple(z, x)
    w = (s32[], s32[1,2]) while(t), condition=c, body=b ROOT g = s32[1,2] get-tuple-element(w), index=1 }""")
    given, expected = np.int32([[-3, 5]]), np.int32([[0, 5]])
    assert np.array_equal(hk.evaluate(module, given), expected)
    assert rules_that_allow((given,), (expected,), module, [given]) == ("REDUCE-9",)
    assert rules_that_allow((np.int32([[-3, 4]]),), (expected,), module, [given]) == ()


@rule("SORT-10")
def test_a_stable_sort_may_leave_nan_among_equal_numbers() -> None:
    """As XLA does: -1 and -1 are in order beside a NaN, which a comparison with GT does not tell from them; hlokit puts
    NaN last. The other line, which has no NaN, is in order."""
    module = hk.parse("""HloModule m
g { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT c = pred[] compare(a, b), direction=GT }
ENTRY e { x = bf16[2,3] parameter(0) ROOT s = bf16[2,3] sort(x), dimensions={1}, is_stable=true, to_apply=g }""")
    given = np.array([[NAN, -1, -1], [2, 3, 1]], hk.bf16.numpy)
    expected = hk.evaluate(module, given)
    for line, labels in (([3, 2, 1], "SORT-10"), ([2, 3, 1], "")):
        found = np.array([[NAN, -1, -1], line], hk.bf16.numpy)
        assert left_open_by(module.entry.root, [given], expected, found) == labels


@pytest.mark.parametrize(
    ("given", "value", "verdict", "labels"),
    [
        ([3, 1, NAN, 2], [1, 3, NAN, 2], "allowed", ("SORT-10",)),
        ([3, 1, NAN, 2], [1, 1, NAN, 2], "wrong", ()),
        ([1] * 39 + [NAN], [1] * 30 + [NAN] + [1] * 9, "allowed", ("SORT-9",)),
        ([1] * 38 + [NAN, 0], [1] * 30 + [NAN, 0] + [1] * 8, "allowed", ("SORT-10",)),
        ([1] * 38 + [NAN, 0], [1] * 30 + [NAN, 2] + [1] * 8, "wrong", ()),
    ],
)
@rule("SORT-9", "SORT-10")
def test_sorted_lines_are_told_from_others(
    tmp_path: Path, given: list[float], value: list[float], verdict: str, labels: tuple[str, ...]
) -> None:
    """By what they are, not by what a few draws of an order show."""
    module = hk.parse(f"""HloModule m
g {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }}
ENTRY e {{
  x = f32[{len(given)}] parameter(0)
  s = f32[{len(given)}] sort(x), dimensions={{0}}, to_apply=g
  ROOT n = f32[{len(given)}] negate(s)
}}""")
    returned = "np.float32(" + repr(value).replace("nan", "np.nan") + ")"
    with CommandEngine(tool(tmp_path, "sort", returned)) as engine:
        (found,) = hk.compare_engines(module, np.float32(given), engines=[engine]).judgements
    assert found.verdict == verdict
    assert found.rules == labels if labels else "sort" in found.instruction


@rule("SORT-9")
def test_all_operands_of_a_sort_are_looked_at() -> None:
    text = """HloModule m
g { a = s32[] parameter(0) b = s32[] parameter(1) k = s32[] parameter(2) l = s32[] parameter(3) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = s32[3] parameter(0) y = s32[3] parameter(1)
  s = (s32[3], s32[3]) sort(x, y), dimensions={0}, to_apply=g
  ROOT r = s32[3] get-tuple-element(s), index=1
}"""
    root, given = hk.parse(text).entry.root, [np.int32([2, 1, 1]), np.int32([0, 1, 2])]
    keys, ours = np.int32([1, 1, 2]), np.int32([1, 2, 0])
    assert left_open_by(root, given, ours, np.int32([2, 1, 0]), {0: keys}) == "SORT-9"
    assert left_open_by(root, given, ours, np.int32([0, 1, 2]), {0: keys}) == ""
    assert left_open_by(root, given, ours, np.int32([0, 1, 2]), {0: np.int32([2, 1, 1])}) == ""


def test_a_long_line_that_no_order_sorts_may_be_in_any() -> None:
    values = np.linspace(0, 1, 100, dtype=np.float32)
    values[90] = np.nan
    module = hk.parse("""HloModule m
g { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[100] parameter(0) ROOT s = f32[100] sort(x), dimensions={0}, to_apply=g }""")
    expected = hk.evaluate(module, values)
    other = np.array(expected)
    other[[3, 4]] = other[[4, 3]]
    assert rules_that_allow((other,), (expected,), module, [values]) == ("SORT-10",)


@rule("SORT-10")
def test_a_nan_far_down_a_long_line_is_looked_at() -> None:
    """The first 256 elements alone were, and XLA's order of a line with its first NaN at 899 was called wrong."""
    values = np.linspace(0, 1, 1000, dtype=np.float32)
    module = hk.parse("""HloModule m
g { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[1000] parameter(0) ROOT s = f32[1000] sort(x), dimensions={0}, is_stable=true, to_apply=g }""")
    for last, labels in ((np.nan, "SORT-10"), (0.0, "")):
        values[900] = last
        expected = hk.evaluate(module, values)
        other = np.array(expected)
        other[[3, 4]] = other[[4, 3]]
        assert left_open_by(module.entry.root, [values], expected, other) == labels
