"""Forms of text that XLA's own passes and tests write (docs/decisions/0003): read, printed, and of one meaning in the
reference, after passes, and in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule

F = np.float32
def meanings(module: hk.HloModule, *arguments: Any, **options: Any) -> list[Any]:
    """What the module gives by the reference, by the reference after passes, and in machine code, strict and not."""
    return [
        hk.evaluate(module, *arguments, **options),
        hk.evaluate(hk.optimize(module), *arguments, **options),
        hk.compile(module)(*arguments, **options),
        hk.compile(module, strict=True)(*arguments, **options),
    ]


def read(body: str, header: str = "") -> hk.HloModule:
    module = hk.parse(f"HloModule m{header}\n{body}")
    hk.verify(module)
    assert str(hk.parse(str(module))) == str(module)
    return module


@rule("ARED-6")
@pytest.mark.parametrize(
    ("own", "combined", "result", "expected"),
    [
        ("bf16", "f32[]", "f32", 1 + 2**-7 + 2**-9),
        ("f32", "f32[3]", "f32", 1 + 2**-7 + 2**-9),
        ("bf16", "bf16[3]", "bf16", 1 + 2**-7),  # which loses the last term
        ("bf16", "f32[3]", "f32", 1 + 2**-7 + 2**-9),
    ],
)
def test_all_reduce_of_other_types(own: str, combined: str, result: str, expected: float) -> None:
    module = read(
        f"""add {{ a = {combined} parameter(0)
 b = {combined} parameter(1)
 ROOT c = {combined} add(a, b) }}
ENTRY e {{ x = {own}[3] parameter(0)
 ROOT r = {result}[3] all-reduce(x), replica_groups={{}}, to_apply=add }}""",
        ", replica_count=3",
    )
    dtype = module.entry.parameters[0].shape.dtype.numpy
    given = [[np.full(3, value).astype(dtype)] for value in (1, 2**-7, 2**-9)]
    for results in meanings(module, *given):
        assert all(r.dtype == module.entry.root.shape.dtype.numpy for r in results)
        np.testing.assert_array_equal(np.asarray(results, F), np.full((3, 3), expected, F))


@rule("ARED-6", "RSCAT-10")
def test_arrays_are_not_combined_in_blocks() -> None:
    body = """add { a = f32[4] parameter(0)
 b = f32[4] parameter(1)
 ROOT c = f32[4] add(a, b) }
ENTRY e { x = f32[SIZE] parameter(0)
 ROOT r = f32[RESULT] OP, replica_groups={{0,1}}, to_apply=add }"""
    for size, result, op, label in (
        ("4", "2", "reduce-scatter(x), dimensions={0}", "RSCAT-10"),
        ("3", "3", "all-reduce(x)", "ARED-6"),
    ):
        text = body.replace("SIZE", size).replace("RESULT", result).replace("OP", op)
        with rejects(label):
            hk.parse(f"HloModule m, replica_count=2\n{text}")


IN_PLACE = """ENTRY e { x = f32[4] parameter(0)
 y = f32[4] parameter(1)
 i0 = s32[] constant(0)
 i1 = s32[] constant(1)
 i2 = s32[] constant(2)
 t0 = (s32[]) tuple(i0)
 t1 = (s32[]) tuple(i1)
 t2 = (s32[]) tuple(i2)
 from = ((s32[]), (s32[])) tuple(t0, t1)
 to = ((s32[]), (s32[])) tuple(t0, t2)
 ROOT r = f32[4] collective-permute(x, y, from, to), source_target_pairs=PAIRS, slice_sizes=SIZES }"""


@rule("CPERM-4", "BEY-64")
@pytest.mark.parametrize(
    ("pairs", "sizes", "expected"),
    [
        ("{{0,1},{1,0}}", "{{1},{1}}", [[5, 0, 6, 0], [1, 0, 2, 0]]),
        ("{{0,1},{1,0}}", "{{2}}", [[5, 6, 6, 7], [1, 2, 2, 3]]),
        ("{{0,1},{0,1},{1,0}}", "{{1},{1}}", [[5, 0, 0, 0], [1, 0, 2, 0]]),
        ("{{1,0},{0,0},{0,1}}", "{{1}}", [[5, 0, 1, 0], [2, 0, 0, 0]]),
    ],
    ids=["all slices", "one size for all", "a source and target twice", "two sources of a target"],
)
def test_permutes_in_place(pairs: str, sizes: str, expected: Any) -> None:
    module = read(IN_PLACE.replace("PAIRS", pairs).replace("SIZES", sizes), ", replica_count=2")
    zeros = np.zeros(4, F)
    given = [[np.arange(1, 5, dtype=F), zeros], [np.arange(5, 9, dtype=F), zeros]]
    for results in meanings(module, *given):
        np.testing.assert_array_equal(results, np.array(expected, F))


@rule("CPERM-4")
def test_a_device_is_in_no_more_pairs_than_there_are_slices() -> None:
    with rejects("CPERM-4"):
        read(IN_PLACE.replace("PAIRS", "{{0,1},{0,0},{0,2}}").replace("SIZES", "{{1}}"), ", replica_count=3")


@rule("HINST-2")
def test_shapes_that_are_not_read() -> None:
    module = read("""ENTRY e { x = f32[2] parameter(0)
 t = token[] after-all()
 s = f32[7] send(x, t), channel_id=1, is_host_transfer=true
 d = token[] send-done(s), channel_id=1, is_host_transfer=true
 r = (f32[2], u32[], token[]) recv(t), channel_id=2, is_host_transfer=true
 e = (f32[3], token[]) recv-done(r), channel_id=2, is_host_transfer=true
 g = f32[2] get-tuple-element(e), index=0
 o = () outfeed(g, t)
 ROOT a = f32[2] add(x, g) }""")
    shapes = {i.name: str(i.shape) for i in module.entry.instructions}
    assert shapes["s"] == "(f32[2], u32[], token[])"
    assert shapes["e"] == "(f32[2], token[])" and shapes["o"] == "token[]"
    result, outfed = hk.evaluate(
        module, np.array([1, 2], F), from_host={2: [np.array([10, 20], F)]}, return_outfeed=True
    )
    np.testing.assert_array_equal(result, [11, 22])
    np.testing.assert_array_equal(outfed, [[10, 20]])


@rule("HMOD-7")
def test_outputs_of_another_size_may_alias() -> None:
    body = "ENTRY e { x = f32[4] parameter(0)\n i = s32[] parameter(1)\n ROOT r = (f32[4], s32[]) tuple(x, i) }"
    module = read(body, ", input_output_alias={ {1}: (0, {}, may-alias), {0}: (1, {}, may-alias) }")
    for x, i in meanings(module, np.arange(4, dtype=F), np.int32(3)):
        np.testing.assert_array_equal(x, np.arange(4, dtype=F))
        assert i == 3


@rule("DYN-BCAST-4")
def test_of_other_run_time_sizes_the_least_counts() -> None:
    module = read("ENTRY e { a = s32[<=4] parameter(0)\n b = s32[<=4] parameter(1)\n ROOT r = s32[<=4] add(a, b) }")
    compiled = hk.compile(module)
    for m in range(5):
        for n in range(5):
            a, b = np.arange(m, dtype=np.int32), 10 + np.arange(n, dtype=np.int32)
            expected = a + b if 1 in (m, n) and 0 not in (m, n) else a[:n] + b[:m]
            for result in (hk.evaluate(module, a, b), compiled(a, b)):
                np.testing.assert_array_equal(result, expected)


SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
@rule("REDUCER-7", "MAP-7")
def test_builders_and_other_ops_mix_no_types() -> None:
    b = hk.Builder("t")
    x, zero = b.parameter(0, hk.f16[4]), b.constant(0, hk.f16)
    wide = hk.parse(SUM + "ENTRY e { p = f32[] parameter(0)\n ROOT r = f32[] copy(p) }").computations()[0]
    with rejects("REDUCER-4"):
        hk.reduce(x, zero, wide, [0])
    with rejects("REDUCER-4"):
        hk.reduce_window(x, zero, wide, [2], [1], "VALID")
    with rejects("MAP-7"):
        hk.map([x, x], wide, [0])
    numbers = hk.ScatterDimensionNumbers(inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1)
    places, updates = b.parameter(1, hk.s32[1]), b.parameter(2, hk.f16[1])
    with rejects("REDUCER-4"):
        hk.scatter(x, places, updates, wide, numbers)
    with rejects("SCATTER-4"):
        hk.scatter(x, places, hk.convert_element_type(updates, hk.f32), hk.add, numbers)
    with rejects("SAS-2"):
        hk.parse(f"""HloModule m
{SUM}ENTRY e {{ x = f16[4] parameter(0)
 s = f16[1] parameter(1)
 z = f16[] constant(0)
 ROOT r = f16[4] select-and-scatter(x, s, z), window={{size=4 stride=4}}, select=add, scatter=add }}""")
