"""Forms of text that XLA's own passes and tests write (docs/decisions/0003): read, printed, and of one meaning in the
reference, after passes, and in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule

F = np.float32
GATHER = """ENTRY e { x = s32[2,3] parameter(0)
 i = s32[2,4,1] parameter(1)
 ROOT r = s32[2,4,3] gather(x, i), offset_dims={2}, collapsed_slice_dims={}, start_index_map={0},
   operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,3} }"""
RESHAPE = """ENTRY e { x = s32[2,4,2] parameter(0)
 n = s32[] constant(2)
 d = s32[2,<=4,2] set-dimension-size(x, n), dimensions={1}
 ROOT r = s32[<=4,4] reshape(d), inferred_dimension=0 }"""


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


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        (GATHER, ([[1, 2, 3], [4, 5, 6]], np.ones((2, 4, 1))), [[[1, 2, 3]] * 4, [[4, 5, 6]] * 4]),
        (RESHAPE, (np.arange(16).reshape(2, 4, 2),), [[0, 1, 2, 3], [8, 9, 10, 11]]),
        (
            "ENTRY e { x = c64[2,0] parameter(0)\n ROOT r = c64[2,0] fft(x), fft_type=FFT, fft_length={1} }",
            (np.zeros((2, 0)),),
            np.zeros((2, 0), np.complex64),
        ),
        (
            """ENTRY e { s = u64[3] parameter(0)
 ROOT r = u32[4] rng-bit-generator(s), algorithm=rng_philox }""",
            (np.zeros(3),),
            [1713891541, 3781805453, 3159862348, 2600524760],
        ),
    ],
    ids=["BEY-31: mapped as well", "DYN-5: inferred_dimension", "FFT-4: of size 0", "RBG-1: bits alone"],
)
def test_one_device(body: str, arguments: tuple[Any, ...], expected: Any) -> None:
    module = read(body)
    dtypes = [p.shape.dtype.numpy for p in module.entry.parameters]
    arrays = [np.asarray(a).astype(d) for a, d in zip(arguments, dtypes, strict=True)]
    for result in meanings(module, *arrays):
        np.testing.assert_array_equal(result, expected)


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
@pytest.mark.parametrize(("second", "count"), [("<=3", 3), ("3", 1)], ids=["both dynamic", "one dynamic"])
def test_a_run_time_size_of_one_is_repeated(second: str, count: int) -> None:
    module = read(f"""ENTRY e {{ a = s32[2,<=3] parameter(0)
 b = s32[2,{second}] parameter(1)
 ROOT r = s32[2,<=3] add(a, b) }}""")
    a, b = np.array([[1], [2]], np.int32), np.array([[10, 20, 30], [40, 50, 60]], np.int32)
    for result in (hk.evaluate(module, a, b), hk.compile(module)(a, b), hk.compile(module, strict=True)(a, b)):
        np.testing.assert_array_equal(result, (a + b)[:, :count])


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


@rule("SDS-10")
def test_other_dimensions_keep_their_run_time_sizes() -> None:
    module = read("""add { x = s32[] parameter(0)
 y = s32[] parameter(1)
 ROOT r = s32[] add(x, y) }
ENTRY e { a = s32[2,2] parameter(0)
 n = s32[] constant(1)
 b = s32[<=2,2] set-dimension-size(a, n), dimensions={0}
 c = s32[2,<=2] set-dimension-size(b, n), dimensions={1}
 flat = s32[<=4] reshape(c)
 zero = s32[] constant(0)
 ROOT sum = s32[] reduce(flat, zero), dimensions={0}, to_apply=add }""")
    for result in meanings(module, np.array([[1, 10], [100, 1000]], np.int32)):
        assert result == 1


SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
PAIR = """two { a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 s = f32[] add(a, b)
 m = s32[] maximum(i, j)
 ROOT r = (f32[], s32[]) tuple(s, m) }
"""


@rule("REDUCER-7")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SUM + "ENTRY e { x = f16[4] parameter(0)\n z = f16[] constant(0)\n ROOT r = f16[] reduce(x, z), "
         "dimensions={0}, to_apply=add }", np.float16(2052)),
        (SUM + "ENTRY e { x = f16[4] parameter(0)\n z = f64[] constant(0)\n ROOT r = f32[] reduce(x, z), "
         "dimensions={0}, to_apply=add }", F(2051)),
        (SUM + "ENTRY e { x = f16[4] parameter(0)\n z = f16[] constant(0)\n ROOT r = f16[2] reduce-window(x, z), "
         "window={size=3}, to_apply=add }", np.array([2050, 3], np.float16)),
        (PAIR + "ENTRY e { x = f16[4] parameter(0)\n y = s32[4] iota(), iota_dimension=0\n z = f16[] constant(0)\n "
         "w = s32[] constant(0)\n ROOT r = (f16[], s32[]) reduce(x, y, z, w), dimensions={0}, to_apply=two }",
         (np.float16(2052), np.int32(3))),
    ],
    ids=["narrow", "wide", "window", "pair"],
)  # fmt: skip
def test_reducers_of_another_floating_type(body: str, expected: Any) -> None:
    """Sums in f32: 2048 + 1 + 1 + 1 would stay 2048 in f16, and 2051 rounds to 2052."""
    for result in meanings(read(body), np.array([2048, 1, 1, 1], np.float16)):
        for one, other in zip(np.atleast_1d(result), np.atleast_1d(expected), strict=True):
            assert one.dtype == other.dtype and one == other


@rule("MAP-7")
def test_maps_of_another_floating_type() -> None:
    module = read("""c { p = f32[] parameter(0)
 one = f32[] constant(1)
 ROOT r = f32[] add(p, one) }
ENTRY e { x = f64[2] parameter(0)
 ROOT r = f32[2] map(x), dimensions={0}, to_apply=c }""")
    for result in meanings(module, np.array([1, 2.0**24], np.float64)):
        np.testing.assert_array_equal(result, np.array([2, 2**24], F), strict=True)


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
    with rejects("REDUCER-4"):
        hk.parse(f"""HloModule m
{SUM}ENTRY e {{ x = f16[4] parameter(0)
 i = s32[1] parameter(1)
 u = f16[1] parameter(2)
 ROOT r = f16[4] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}},
   index_vector_dim=1, to_apply=add }}""")
