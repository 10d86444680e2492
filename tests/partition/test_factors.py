"""The factors of instructions, against the rules that jaxlib 0.10.2's Shardy gives the same operations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import hlokit as hk
from hlokit.analysis.factors import relation_of
from tests.partition.factors_witness import difference

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "data/factors.jsonl").read_text("utf-8").splitlines()]

DEVIATIONS = {
    "bitcast": "reshape",
    "bitcast-convert": "reshape",
    "concatenate": "concatenate",
    "convolution": "windows",
    "dynamic-update-slice": "operands that are not read",
    "gather": "operands that are not read",
    "pad": "windows",
    "reduce-window": "windows",
    "reshape": "reshape",
    "rng-bit-generator": "random bits",
    "scatter": "scatter",
}
"""Where factors differ from Shardy's: the classes of docs/decisions/0014."""


def test_recorded_rules() -> None:
    """Equal up to names, but for the classes that the decision describes, which stay the minority of each op."""
    equal: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for case in RECORDED:
        root = hk.parse(case["text"]).entry.root
        relation = relation_of(root)
        assert relation is not None, root
        found = difference(root, relation, case["rule"])
        (apart if found else equal)[root.opcode] += 1
        assert not found or root.opcode in DEVIATIONS, f"{root}\n{relation}\n{case['rule']}: {found}"
    assert len(equal) > 50 and len(RECORDED) > 200
    assert sum(equal.values()) > 0.85 * len(RECORDED)


HEADER = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[4,6] parameter(0)
  y = f32[6,5] parameter(1)
  z = f32[] constant(0)
  s = s32[] parameter(2)
  u = f32[1,6] parameter(3)
  k = s32[3,1] parameter(4)
  v = f32[3,6] parameter(5)
  ROOT r = """


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[2,12] reshape(x)", "([ij, k])->([i, jk]) {i=2, j=2, k=6}"),
        ("f32[24] reshape(x)", "([i, j])->([ij]) {i=4, j=6}"),
        ("f32[6,4] transpose(x), dimensions={1,0}", "([j, i])->([i, j]) {i=6, j=4}"),
        ("f32[4,3] slice(x), slice={[0:4],[1:4]}", "([i, j])->([i, j]) {i=4, j=6} shifted={j}"),
        ("f32[4,8] pad(x, z), padding=0_0x1_1", "([i, j], [])->([i, j]) {i=4, j=6} shifted={j}"),
        ("f32[4,6] reverse(x), dimensions={0}", "([i, j])->([i, j]) {i=4, j=6} shifted={i}"),
        ("f32[4,7,6] broadcast(x), dimensions={0,2}", "([i, k])->([i, j, k]) {i=4, j=7, k=6}"),
        ("f32[4] reduce(x, z), dimensions={1}, to_apply=add", "([i, j], [])->([i]) {i=4, j=6} folded={j}"),
        ("f32[4,6] sort(x), dimensions={1}, to_apply=less", "([i, j])->([i, j]) {i=4, j=6} whole={j}"),
        (
            "f32[4,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "([i, k], [k, j])->([i, j]) {i=4, j=5, k=6} folded={k}",
        ),
        (
            "f32[4,2] dynamic-slice(x, s, s), dynamic_slice_sizes={4,2}",
            "([i, j], [], [])->([i, j]) {i=4, j=6} looked up={j}",
        ),
        ("f32[4,6] dynamic-update-slice(x, u, s, s)", "([i, j], [k, j], [], [])->([i, j]) {i=4, j=6, k=1}"),
        (
            "f32[3,6] gather(x, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
            " slice_sizes={1,6}",
            "([k, j], [i, l])->([i, j]) {i=3, j=6, k=4, l=1} looked up={k}",
        ),
        (
            "f32[4,6] scatter(x, k, v), update_window_dims={1}, inserted_window_dims={0},"
            " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
            "([i, j], [k, l], [k, j])->([i, j]) {i=4, j=6, k=3, l=1} folded={k}",
        ),
    ],
)
def test_relations(text: str, expected: str) -> None:
    relation = relation_of(hk.parse(HEADER + text + " }").entry.root)
    assert str(relation) == expected


def test_numbers_that_matter() -> None:
    """iota and guards look at the number of a place; a transposition does not."""
    iota = relation_of(hk.parse("HloModule m\nENTRY e { ROOT i = s32[4,6] iota(), iota_dimension=1 }").entry.root)
    assert iota is not None and [f.is_numbered for f in iota.factors] == [False, True]
    update = relation_of(hk.parse(HEADER + "f32[4,6] dynamic-update-slice(x, u, s, s) }").entry.root)
    assert update is not None and [f.is_numbered for f in update.factors] == [True, False, False]


def test_nothing_to_relate() -> None:
    """Control flow, dynamic sizes, and arrays without elements."""
    empty = hk.parse("HloModule m\nENTRY e { x = f32[0,3] parameter(0) ROOT r = f32[0,3] negate(x) }").entry.root
    dynamic = hk.parse("HloModule m\nENTRY e { x = f32[<=4] parameter(0) ROOT r = f32[<=4] negate(x) }").entry.root
    assert relation_of(empty) is None and relation_of(dynamic) is None
    assert relation_of(empty.operands[0]) is None
