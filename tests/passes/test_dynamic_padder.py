"""dynamic-padder: the static program on padded inputs gives what the reference gives of the dynamic one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from hlokit.passes.dynamic_padder.padder import padded
from tests.fuzz.properties import MEMORY, leaves

ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
FIRST = "first { p = f32[] parameter(0) q = f32[] parameter(1) c = pred[] compare(p, p), direction=EQ ROOT r = f32[] select(c, p, q) }\n"
LESS = "less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = pred[] compare(p, q), direction=LT }\n"
LESS3 = """less3 { p = f32[] parameter(0) q = f32[] parameter(1) a = f32[] parameter(2) b = f32[] parameter(3)
i = s32[] parameter(4) j = s32[] parameter(5) ROOT r = pred[] compare(p, q), direction=LT }
"""
MORE2 = """more2 { i = f32[] parameter(0) j = f32[] parameter(1) p = f32[] parameter(2) q = f32[] parameter(3)
ROOT r = pred[] compare(i, j), direction=GT }
"""
ARGMAX = """argmax { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
c = pred[] compare(v, w), direction=GE a = f32[] select(c, v, w) b = s32[] select(c, i, j) ROOT t = (f32[], s32[]) tuple(a, b) }
"""
X, N = (
    "x = f32[<=5] parameter(0)\n",
    "n = s32[] parameter(0) y = f32[6] constant({4,-1,3,-7,2,9})\nx = f32[<=6] set-dimension-size(y, n), dimensions={0}\n",
)
Z = "z = f32[] constant(0)\n"

PROGRAMS = {
    "sum": (N + Z + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add", ADD),
    "a reducer without neutral value": (N + Z + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=first", FIRST),
    "argmax": (
        N + "m = f32[] constant(-inf) k = s32[] constant(0) i = s32[6] iota(), iota_dimension=0\nROOT r = (f32[], s32[]) reduce(x, i, m, k), dimensions={0}, to_apply=argmax",
        ARGMAX,
    ),
    "window": (N + Z + "ROOT r = f32[<=6] reduce-window(x, z), window={size=3 stride=1 pad=1_1}, to_apply=add", ADD),
    "sort": (N + "ROOT r = f32[<=6] sort(x), dimensions={0}, to_apply=less", LESS),
    "sort of three sizes": (
        N + "k = s32[] constant(4) w = f32[<=6] set-dimension-size(y, k), dimensions={0} i = s32[6] iota(), iota_dimension=0\n"
        "s = (f32[<=6], f32[<=6], s32[6]) sort(x, w, i), dimensions={0}, to_apply=less3 j = s32[6] get-tuple-element(s), index=2\n"
        "p = s32[3] slice(j), slice={[3:6]} ROOT r = ((f32[<=6], f32[<=6], s32[6]), s32[3]) tuple(s, p)",
        LESS3,
    ),
    "sort of a dynamic number of lines": (
        N + "v = f32[<=6,2] broadcast(x), dimensions={0} i = f32[6,2] iota(), iota_dimension=1\n"
        "s = (f32[6,2], f32[<=6,2]) sort(i, v), dimensions={1}, to_apply=more2 j = f32[6,2] get-tuple-element(s), index=0\n"
        "p = f32[4,2] slice(j), slice={[2:6], [0:2]} ROOT r = (f32[4,2], (f32[6,2], f32[<=6,2])) tuple(p, s)",
        MORE2,
    ),
    "reverse": (N + "ROOT r = f32[<=6] reverse(x), dimensions={0}", ""),
    "concatenate": (N + "c = f32[2] constant({7,8})\nROOT r = f32[<=8] concatenate(x, c), dimensions={0}", ""),
    "pad": (N + Z + "ROOT r = f32[<=14] pad(x, z), padding=2_1_1", ""),
    "negative pad": (N + Z + "ROOT r = f32[<=3] pad(x, z), padding=-1_-2", ""),
    "strided slice": (N + "ROOT r = f32[<=2] slice(x), slice={[1:5:2]}", ""),
    "hidden elements come back": (N + "m = s32[] constant(6)\nROOT r = f32[<=6] set-dimension-size(x, m), dimensions={0}", ""),
    "computed ones are zero": (N + "a = f32[<=6] negate(x) i = s32[] constant(2)\nROOT r = f32[4] dynamic-slice(a, i), dynamic_slice_sizes={4}", ""),
    "normalised": (N + "v = f32[2,<=6] broadcast(x), dimensions={1} ROOT r = f32[2,<=6] batch-norm-inference(v, x, x, x, x), epsilon=99, feature_index=1", ""),
    "two sizes": (N + "k = s32[] constant(4) w = f32[<=6] set-dimension-size(y, k), dimensions={0}\nROOT r = f32[<=6] add(x, w)", ""),
    "merge": (N + "b = f32[3,<=6] broadcast(x), dimensions={1}\nROOT r = f32[<=18] reshape(b)", ""),
    "split": (
        "n = s32[] parameter(0) two = s32[] constant(2) c = s32[] multiply(n, two) i = f32[12] iota(), iota_dimension=0\n"
        "x = f32[<=12] set-dimension-size(i, c), dimensions={0}\nROOT r = f32[2,<=6] reshape(x), inferred_dimension=1",
        "",
    ),
    "product": (N + "ROOT r = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}", ""),
    "convolution": (
        N + "v = f32[1,<=6,1] broadcast(x), dimensions={1} k = f32[2,1,1] constant({{{1}},{{2}}})\n"
        "ROOT r = f32[1,<=7,1] convolution(v, k), window={size=2 pad=1_1}, dim_labels=b0f_0io->b0f",
        "",
    ),
    "gather": (N + "i = s32[3] constant({0,9,1})\nROOT r = f32[3] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}", ""),
    "scatter": (
        "n = s32[] parameter(0) i = s32[6] constant({0,0,1,2,3,3}) j = s32[<=6] set-dimension-size(i, n), dimensions={0}\n"
        "u = f32[6] iota(), iota_dimension=0 v = f32[<=6] set-dimension-size(u, n), dimensions={0}\n"
        "o = f32[4] constant({1,1,1,1})\nROOT r = f32[4] scatter(o, j, v), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        ADD,
    ),
    "loop": (
        N + "i = s32[] constant(0) t = (s32[], f32[<=6]) tuple(i, x)\nROOT w = (s32[], f32[<=6]) while(t), condition=c, body=b",
        "c { p = (s32[], f32[<=6]) parameter(0) i = s32[] get-tuple-element(p), index=0 k = s32[] constant(3) ROOT l = pred[] compare(i, k), direction=LT }\n"
        "b { p = (s32[], f32[<=6]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[<=6] get-tuple-element(p), index=1\n"
        "one = s32[] constant(1) j = s32[] add(i, one) n = s32[] get-dimension-size(x), dimensions={0} m = s32[] subtract(n, one)\n"
        "zero = s32[] constant(0) k = s32[] maximum(m, zero) y = f32[<=6] set-dimension-size(x, k), dimensions={0} ROOT t = (s32[], f32[<=6]) tuple(j, y) }\n",
    ),
    "branches": (
        N + "p = pred[] constant(true) ROOT r = f32[<=6] conditional(p, x, y), true_computation=a, false_computation=b",
        "a { q = f32[<=6] parameter(0) ROOT n = f32[<=6] negate(q) }\nb { q = f32[6] parameter(0) ROOT n = f32[6] abs(q) }\n",
    ),
}  # fmt: skip


def program(body: str, computations: str = "") -> hk.HloModule:
    return hk.parse(f"HloModule m\n{computations}ENTRY e {{\n{body}\n}}\n")


def same(module: hk.HloModule, *args: Any, exactly: bool = True) -> None:
    want = hk.evaluate(module, *args, memory_limit=MEMORY)
    static, signature = padded(module)
    hk.verify(static)
    assert not any(i.shape.is_dynamic for i in static.instructions())
    got = signature.result(hk.evaluate(static, *signature.arguments(args), memory_limit=4 * MEMORY))
    for a, b in zip(leaves(want), leaves(got), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if exactly:
            assert a.tobytes() == b.tobytes()
        else:
            np.testing.assert_allclose(a.astype(complex), b.astype(complex), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ops(name: str) -> None:
    module = program(*PROGRAMS[name])
    for size in range(7):
        same(module, size)


@pytest.mark.rule("DYN-17", "SDS-5")
def test_parameters_and_results_carry_their_sizes() -> None:
    module = program(
        "x = f32[<=5,2] parameter(0) s = (s32[], f32[3,<=4]) parameter(1) y = f32[3,<=4] get-tuple-element(s), index=1\nROOT t = (f32[3,<=4], f32[<=5,2]) tuple(y, x)"
    )
    static, signature = padded(module)
    assert [p.shape for p in static.entry.parameters] == [
        hk.f32[5, 2],
        hk.Shape.tuple([hk.s32[()], hk.f32[3, 4]]),
        hk.s32[()],
        hk.s32[()],
    ]
    assert [(d.path, d.dimension, d.size) for d in signature.sizes_in] == [((0,), 0, 2), ((1, 1), 1, 3)]
    assert [(d.path, d.dimension, d.size) for d in signature.sizes_out] == [((0,), 1, 2), ((1,), 0, 3)]
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3, dtype=np.float32).reshape(3, 1)
    same(module, x, (np.int32(0), y))


def test_no_size_reaches_beyond_its_bound() -> None:
    static, signature = padded(program(N + Z + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add", ADD))
    assert signature.result(hk.evaluate(static, 15)) == 10.0 and signature.result(hk.evaluate(static, -3)) == 0.0


def test_a_static_program_stays_as_it_is() -> None:
    module = program("x = f32[4] parameter(0) ROOT r = f32[4] negate(x)")
    static, signature = padded(module)
    assert str(static) == str(module) and not signature.sizes_in and not signature.sizes_out


def test_what_it_cannot_do_is_named() -> None:
    module = program(
        "n = s32[] parameter(0) y = c64[4] parameter(1) x = c64[<=4] set-dimension-size(y, n), dimensions={0}\nROOT f = c64[<=4] fft(x), fft_type=FFT, fft_length={4}"
    )
    with pytest.raises(hk.UnsupportedError, match="dynamic-padder: f: fft"):
        padded(module)


def test_random_programs() -> None:
    inexact, count = {"dot", "convolution", "fft", "cholesky", "triangular-solve"}, 0
    for seed in range(400):
        module = random_module(seed)
        if not any(i.shape.is_dynamic for i in module.instructions()):
            continue
        args = arguments(module, seed)
        try:
            hk.evaluate(module, *args, memory_limit=MEMORY)
            padded(module)
        except hk.HlokitError:
            continue
        same(module, *args, exactly=not inexact & {i.opcode for i in module.instructions()})
        count += 1
    assert count > 25
