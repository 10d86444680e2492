"""Each rule of algsimp: what it makes of a program, where it must not apply, and that every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.simplify.rules import FAST_RULES, RULES
from tests.fuzz.properties import leaves

NAN, INF = float("nan"), float("inf")


def entry(body: str, parameters: str = "x = f32[4] parameter(0)") -> str:
    return f"HloModule m\n{CALLED}ENTRY e {{\n{parameters}\n{body}\n}}\n"


CALLED = (
    "sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
    "last { p = f32[] parameter(0) ROOT q = f32[] parameter(1) }\n"
    "less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = pred[] compare(p, q), direction=LT }\n"
)
L, U = "x = f32[12] parameter(0)", "x = u32[4] parameter(0)"
ZC, UINT = "c = f32[] constant(0) ", "c = u32[] constant(8) z = u32[4] broadcast(c), dimensions={} "
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
    # slices, pads, concatenations
    ("slice_of_slice", L, "y = f32[5] slice(x), slice={[1:10:2]} ROOT r = f32[2] slice(y), slice={[1:4:2]}", ["slice"]),
    ("slice_of_concatenate", L, "n = f32[12] negate(x) c = f32[24] concatenate(x, n), dimensions={0} ROOT r = f32[4] slice(c), slice={[13:21:2]}", ["negate", "slice"]),
    ("slice_of_broadcast", X, "b = f32[3,4] broadcast(x), dimensions={1} ROOT r = f32[2,2] slice(b), slice={[0:2],[1:3]}", ["broadcast", "slice"]),
    ("slice_of_pad", L, ZC + "p = f32[17] pad(x, c), padding=2_3 ROOT r = f32[5] slice(p), slice={[3:12:2]}", ["slice"]),
    ("slice_of_pad", L, ZC + "p = f32[17] pad(x, c), padding=2_3 ROOT r = f32[2] slice(p), slice={[14:16]}", ["broadcast", "constant"]),
    ("slice_of_iota", X, "i = s32[6,4] iota(), iota_dimension=1 s = s32[2,4] slice(i), slice={[1:3],[0:4]} ROOT t = (s32[2,4], f32[4]) tuple(s, x)", ["broadcast", "iota", "tuple"]),
    ("concatenate_of_concatenate", X, "n = f32[4] negate(x) c = f32[8] concatenate(x, n), dimensions={0} ROOT r = f32[12] concatenate(c, x), dimensions={0}", ["concatenate", "negate"]),
    ("concatenate_of_neighbours", L, "a = f32[5] slice(x), slice={[0:5]} b = f32[7] slice(x), slice={[5:12]} ROOT r = f32[12] concatenate(a, b), dimensions={0}", []),
    ("concatenate_of_padding", X, ONE + "ROOT r = f32[8] concatenate(o, x), dimensions={0}", ["constant", "pad"]),
    ("pad_of_pad", X, ZC + "p = f32[6] pad(x, c), padding=0_2 ROOT r = f32[9] pad(p, c), padding=1_2", ["constant", "pad"]),
    ("pad_of_pad", X, ZC + "z = f32[4] broadcast(c), dimensions={} p = f32[6] pad(z, c), padding=0_2 ROOT r = (f32[6], f32[4]) tuple(p, x)", ["broadcast", "constant", "tuple"]),
    ("negative_pad", L, ZC + "ROOT r = f32[8] pad(x, c), padding=-1_-3", ["slice"]),
    ("dynamic_slice_of_constant", L, "i = s32[] constant(11) ROOT r = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}", ["slice"]),
    ("scatter_of_one_window", X, 'c = s32[] constant(2) i = s32[1] broadcast(c), dimensions={} u = f32[1] slice(x), slice={[0:1]} ROOT r = f32[4] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=sum', ["constant", "dynamic-update-slice", "map", "slice", "slice"]),
    ("scatter_of_one_window", X, 'i = s32[1] constant({7}) u = f32[] constant(1) ROOT r = f32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=sum', []),
    ("dynamic_update_slice_of_constant", X, "c = f32[] constant(2) z = f32[9] broadcast(c), dimensions={} i = s32[] constant(-3) ROOT r = f32[9] dynamic-update-slice(z, x, i)", ["constant", "pad"]),
    ("reverse_of_reverse", "x = f32[2,3] parameter(0)", "y = f32[2,3] reverse(x), dimensions={0,1} ROOT r = f32[2,3] reverse(y), dimensions={1}", ["reverse"]),
    ("iota_of_one", X, "i = s32[1,4] iota(), iota_dimension=0 ROOT t = (s32[1,4], f32[4]) tuple(i, x)", ["broadcast", "constant", "tuple"]),
    ("iota_of_one", X, "i = s32[3,4] iota(), iota_dimension=0 ROOT t = (s32[3,4], f32[4]) tuple(i, x)", ["broadcast", "iota", "tuple"]),
    ("reshape_of_pad", X, ZC + "p = f32[5] pad(x, c), padding=1_0 y = f32[1,5] reshape(p) ROOT r = f32[1,7] pad(y, c), padding=0_0x0_2", ["constant", "pad", "reshape"]),
    # broadcasts, reshapes, transposes
    ("reshape_of_broadcast", X, "b = f32[1,4,3] broadcast(x), dimensions={1} ROOT r = f32[4,1,3] reshape(b)", ["broadcast"]),
    ("broadcast_of_reshape", X, "y = f32[4,1] reshape(x) ROOT r = f32[4,3,1] broadcast(y), dimensions={0,2}", ["broadcast"]),
    ("broadcast_to_one", X, "ROOT r = f32[1,4] broadcast(x), dimensions={1}", ["reshape"]),
    ("transpose_of_broadcast", X, "b = f32[4,3] broadcast(x), dimensions={0} ROOT r = f32[3,4] transpose(b), dimensions={1,0}", ["broadcast"]),
    ("transpose_of_ones", "x = f32[2,1,3] parameter(0)", "ROOT r = f32[1,2,3]{2,1,0} transpose(x), dimensions={1,0,2}", ["reshape"]),
    ("bitcast_of_default_layouts", X, "ROOT r = f32[2,2] bitcast(x)", ["reshape"]),
    ("bitcast_convert_of_bitcast_convert", X, "u = u32[4] bitcast-convert(x) ROOT r = s32[4] bitcast-convert(u)", ["bitcast-convert"]),
    ("elementwise_of_broadcasts", X, "a = f32[4,3] broadcast(x), dimensions={0} e = f32[4] exponential(x) b = f32[4,3] broadcast(e), dimensions={0} ROOT r = f32[4,3] add(a, b)", ["add", "broadcast", "exponential"]),
    ("select_of_broadcast_pred", "x = f32[4] parameter(0) p = pred[] parameter(1)", "b = pred[4] broadcast(p), dimensions={} n = f32[4] negate(x) ROOT r = f32[4] select(b, x, n)", ["negate", "select"]),
    # conversions, predicates, sizes
    ("convert_of_widening_convert", "x = bf16[4] parameter(0)", "y = f32[4] convert(x) ROOT r = s32[4] convert(y)", ["convert"]),
    ("convert_of_widening_convert", "x = s16[4] parameter(0)", "y = f32[4] convert(x) ROOT r = s16[4] convert(y)", []),
    ("reduce_precision_of_enough", X, "ROOT r = f32[4] reduce-precision(x), exponent_bits=8, mantissa_bits=23", []),
    ("part_of_complex", "x = f32[4] parameter(0) y = f32[4] parameter(1)", "z = c64[4] complex(x, y) ROOT r = f32[4] imag(z)", []),
    ("complex_of_parts", "x = c64[4] parameter(0)", "a = f32[4] real(x) b = f32[4] imag(x) ROOT r = c64[4] complex(a, b)", []),
    ("not_of_compare", "x = f32[4] parameter(0) y = f32[4] parameter(1)", "c = pred[4] compare(x, y), direction=EQ ROOT r = pred[4] not(c)", ["compare"]),
    ("select_of_not", "x = pred[4] parameter(0) y = f32[4] parameter(1)", "n = pred[4] not(x) m = f32[4] negate(y) ROOT r = f32[4] select(n, y, m)", ["negate", "select"]),
    ("select_of_truth", P, "a = pred[] constant(true) t = pred[4] broadcast(a), dimensions={} b = pred[] constant(false) f = pred[4] broadcast(b), dimensions={} ROOT r = pred[4] select(x, f, t)", ["not"]),
    ("select_of_select", "x = pred[4] parameter(0) y = f32[4] parameter(1)", "n = f32[4] negate(y) e = f32[4] tanh(y) s = f32[4] select(x, y, n) ROOT r = f32[4] select(x, s, e)", ["select", "tanh"]),
    ("compare_beyond_the_range", N, "i = s32[4] iota(), iota_dimension=0 " + INT.format(4) + "c0 = pred[4] compare(i, z), direction=LT ROOT t = (pred[4], s32[4]) tuple(c0, x)", ["broadcast", "constant", "tuple"]),
    ("convert_of_iota", X, "i = u64[4] iota(), iota_dimension=0 y = u32[4] convert(i) ROOT t = (u32[4], f32[4]) tuple(y, x)", ["iota", "tuple"]),
    ("shift_of_small", X, "i = u64[4] iota(), iota_dimension=0 c = u64[] constant(32) z = u64[4] broadcast(c), dimensions={} y = u64[4] shift-right-logical(i, z) ROOT t = (u64[4], f32[4]) tuple(y, x)", ["broadcast", "constant", "tuple"]),
    ("size_of_static_dimension", X, "n = s32[] get-dimension-size(x), dimensions={0} ROOT t = (s32[], f32[4]) tuple(n, x)", ["constant", "tuple"]),
    ("size_that_stays", X, "n = s32[] constant(4) ROOT r = f32[4] set-dimension-size(x, n), dimensions={0}", []),
    # arithmetic
    ("maximum_of_lowest", X, "c = f32[] constant(-inf) z = f32[4] broadcast(c), dimensions={} ROOT r = f32[4] maximum(x, z)", []),
    ("minimum_of_highest", N, INT.format(2**31 - 1) + "ROOT r = s32[4] minimum(z, x)", []),
    ("constants_together", N, INT.format(2**31 - 1) + "d = s32[] constant(5) w = s32[4] broadcast(d), dimensions={} a = s32[4] add(x, z) ROOT r = s32[4] add(w, a)", ["add", "add", "broadcast", "constant", "constant"]),
    ("subtract_of_constant", N, INT.format(-(2**31)) + "ROOT r = s32[4] subtract(x, z)", ["add", "broadcast", "constant"]),
    ("divide_by_power_of_two", X, "c = f32[] constant(0.125) z = f32[4] broadcast(c), dimensions={} ROOT r = f32[4] divide(x, z)", ["broadcast", "constant", "multiply"]),
    ("divide_of_unsigned_by_power_of_two", U, UINT + "ROOT r = u32[4] divide(x, z)", ["broadcast", "constant", "shift-right-logical"]),
    ("remainder_of_unsigned_by_power_of_two", U, UINT + "ROOT r = u32[4] remainder(x, z)", ["and", "broadcast", "constant"]),
    ("power_of_simple", X, ZERO + "ROOT r = f32[4] power(x, z)", ["broadcast", "constant"]),
    ("power_of_simple", X, ONE + "ROOT r = f32[4] power(x, o)", []),
    # folds, products, indexing
    ("reduce_of_one", "x = f32[4,1] parameter(0)", ZC + "ROOT r = f32[4] reduce(x, c), dimensions={1}, to_apply=sum", ["add", "broadcast", "constant", "reshape"]),
    ("reduce_of_one", "x = f32[4,0] parameter(0)", ZC + "ROOT r = f32[4] reduce(x, c), dimensions={1}, to_apply=sum", ["broadcast", "constant"]),
    ("reduce_of_reshape", "x = f32[3,4] parameter(0)", ZC + "y = f32[1,3,4] reshape(x) ROOT r = f32[3] reduce(y, c), dimensions={0,2}, to_apply=sum", ["constant", "reduce"]),
    ("reduce_of_transpose", "x = f32[3,4] parameter(0)", ZC + "y = f32[4,3] transpose(x), dimensions={1,0} ROOT r = f32[3] reduce(y, c), dimensions={0}, to_apply=sum", ["constant", "reduce"]),
    ("dot_of_nothing", "x = f32[4,0] parameter(0) y = f32[0,3] parameter(1)", "ROOT r = f32[4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ["broadcast", "constant"]),
    ("dot_of_transpose", "x = f32[4,2] parameter(0) y = f32[3,4] parameter(1)", "a = f32[2,4] transpose(x), dimensions={1,0} b = f32[4,3] transpose(y), dimensions={1,0} ROOT r = f32[2,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ["dot"]),
    ("dot_of_ones", "x = f32[1,2,4,1] parameter(0) y = f32[1,4,1,3] parameter(1)", "ROOT r = f32[1,2,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_contracting_dims={1,2}", ["dot", "reshape", "reshape", "reshape"]),
    ("convolution_of_transpose", "x = f32[1,2,6] parameter(0) k = f32[3,3,2] parameter(1)", "t = f32[1,6,2] transpose(x), dimensions={0,2,1} u = f32[2,3,3] transpose(k), dimensions={2,1,0} ROOT r = f32[1,4,3] convolution(t, u), window={size=3}, dim_labels=b0f_i0o->b0f", ["convolution"]),
    ("transpose_of_convolution", "x = f32[1,6,2] parameter(0) k = f32[2,3,3] parameter(1)", "c = f32[1,4,3] convolution(x, k), window={size=3}, dim_labels=b0f_i0o->b0f ROOT r = f32[3,1,4] transpose(c), dimensions={2,0,1}", ["convolution"]),
    ("convolution_of_reverse", "x = f32[1,6,2] parameter(0) k = f32[2,3,3] parameter(1)", "v = f32[2,3,3] reverse(k), dimensions={1} ROOT r = f32[1,4,3] convolution(x, v), window={size=3}, dim_labels=b0f_i0o->b0f", ["convolution"]),
    ("convolution_of_pad", "x = f32[1,3,2] parameter(0) k = f32[2,3,3] parameter(1)", ZC + "p = f32[1,7,2] pad(x, c), padding=0_0x1_1_1x0_0 ROOT r = f32[1,6,3] convolution(p, k), window={size=3 pad=0_1}, dim_labels=b0f_i0o->b0f", ["convolution"]),
    ("gather_of_one", "x = f32[5,4] parameter(0) i = s32[2] parameter(1)", "ROOT r = f32[4] gather(x, i), offset_dims={0}, collapsed_slice_dims={0}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,4}", ["dynamic-slice", "reshape", "reshape", "reshape", "slice", "slice"]),
    ("scatter_of_one", "x = f32[5,4] parameter(0) y = f32[3,1] parameter(1)", "c = s32[] constant(1) i = s32[2] broadcast(c), dimensions={} ROOT r = f32[5,4] scatter(x, i, y), update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, to_apply=sum", ["constant", "constant", "dynamic-update-slice", "map", "slice"]),
    ("scatter_of_one", "x = f32[5,4] parameter(0) y = f32[1,4] parameter(1)", "i = s32[1] constant({5}) ROOT r = f32[5,4] scatter(x, i, y), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum", []),
    ("scatter_of_one", "x = f32[5,4] parameter(0) y = f32[1,4] parameter(1)", "i = s32[1] constant({4}) ROOT r = f32[5,4] scatter(x, i, y), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last", ["constant", "constant", "dynamic-update-slice"]),
    ("sort_of_one", "x = f32[4,1] parameter(0)", "ROOT r = f32[4,1] sort(x), dimensions={1}, to_apply=less", []),
]  # fmt: skip


INTEGERS = {"s32": [0, 1, -3, 2**31 - 1], "s16": [0, 1, -3, 2**15 - 1], "u32": [0, 1, 29, 2**32 - 1]}


def arguments(module: hk.HloModule) -> list[np.ndarray]:
    values = [NAN, -0.0, INF, 3.0, -INF, 0.0, 1.5, -2.0]
    made: list[np.ndarray] = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        source = (
            values
            if shape.dtype.is_floating or shape.dtype.is_complex
            else INTEGERS[shape.dtype.name]
            if shape.dtype.is_integral
            else [0, 1]
        )
        made.append(np.resize(np.array(source, shape.dtype.numpy), shape.dimensions))
    return made


@pytest.mark.parametrize(
    ("rule", "parameters", "body", "left"), APPLIES, ids=[f"{r[0]}-{i}" for i, r in enumerate(APPLIES)]
)
def test_rule_applies_and_keeps_every_bit(rule: str, parameters: str, body: str, left: list[str]) -> None:
    module = hk.parse(entry(body, parameters))
    before = hk.evaluate(module, *arguments(module))
    after = hk.optimize(module, ["algsimp", "dce"], verify_each=True)
    assert sorted(i.opcode for i in after.entry.instructions if i.opcode != "parameter") == sorted(left)
    got = hk.evaluate(after, *arguments(module))
    assert [a.tobytes() for a in leaves(got)] == [a.tobytes() for a in leaves(before)]
    assert rule in {r.__name__ for rules in RULES.values() for r in rules}


@pytest.mark.parametrize(
    ("parameters", "body"),
    [
        (X, ZERO + "ROOT r = f32[4] add(x, z)"),
        (X, "ROOT r = f32[4] subtract(x, x)"),
        (X, ZERO + "ROOT r = f32[4] multiply(x, z)"),
        (X, NEGATIVE_ZERO + "ROOT r = f32[4] subtract(x, z)"),
        (X, "ROOT r = pred[4] compare(x, x), direction=EQ"),
        (
            "x = c64[4] parameter(0)",
            "c = c64[] constant((1, 0)) o = c64[4] broadcast(c), dimensions={} ROOT r = c64[4] multiply(x, o)",
        ),
        ("x = f32[<=4] parameter(0)", "ROOT r = f32[<=4] slice(x), slice={[0:4]}"),
        (X, "ROOT r = f32[4] pad(x, c), padding=1_-1"),
        (X, "ROOT r = f32[4] pad(x, c), padding=0_-3_1"),
        ("x = s32[4] parameter(0)", "y = f32[4] convert(x) ROOT r = s32[4] convert(y)"),
        ("x = s8[4] parameter(0)", "y = u8[4] convert(x) ROOT r = s32[4] convert(y)"),
        (X, "y = f32[4] negate(x) c0 = pred[4] compare(x, y), direction=LT ROOT r = pred[4] not(c0)"),
        (X, "c1 = f32[] constant(0.1) z = f32[4] broadcast(c1), dimensions={} ROOT r = f32[4] divide(x, z)"),
        (X, "c1 = f32[] constant(2) z = f32[4] broadcast(c1), dimensions={} ROOT r = f32[4] power(x, z)"),
        (
            "x = s32[4] parameter(0)",
            "c1 = s32[] constant(4) z = s32[4] broadcast(c1), dimensions={} ROOT r = s32[4] divide(x, z)",
        ),
        (
            "x = f32[2,3,4] parameter(0)",
            "c1 = f32[] constant(0) y = f32[3,2,4] transpose(x), dimensions={1,0,2} ROOT r = f32[4] reduce(y, c1), dimensions={0,1}, to_apply=sum",
        ),
        (
            "x = f32[2,3,4] parameter(0) k = f32[4] parameter(1)",
            "y = f32[3,2,4] transpose(x), dimensions={1,0,2} ROOT r = f32[3,2] dot(y, k), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
        ),
    ],
    ids=[
        "-0 + 0",
        "inf - inf",
        "nan * 0",
        "0 - -0",
        "nan == nan",
        "complex",
        "dynamic",
        "shifting pad",
        "pad of holes",
        "rounding convert",
        "wrapping convert",
        "nan < nan",
        "inexact reciprocal",
        "inexact square",
        "signed division",
        "order of a sum",
        "order of dimensions",
    ],
)
def test_rule_must_not_apply(parameters: str, body: str) -> None:
    constant = "c = f32[] constant(0)\n" if "pad(x, c)" in body else ""
    module = hk.parse(entry(constant + body, parameters))
    after = hk.optimize(module, ["algsimp"], verify_each=True)
    assert after.entry.root.opcode == module.entry.root.opcode


def test_every_rule_has_its_law_and_a_case() -> None:
    rules = {rule.__name__: rule for declared in RULES.values() for rule in declared}
    assert all(rule.__doc__ for rule in rules.values())
    assert set(rules) == {row[0] for row in APPLIES}
    fast = {rule.__name__: rule for declared in FAST_RULES.values() for rule in declared}
    assert all(rule.__doc__ for rule in fast.values()) and set(fast) == {name for name, _ in FAST} | OF_PRODUCTS


OF_PRODUCTS = {"transpose_of_dot", "dot_of_few", "dot_of_turned_dot"}
"""Tested below, and compiled in tests/cpu/test_short_axes.py."""
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
