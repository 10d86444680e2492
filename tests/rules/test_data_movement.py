"""Data movement from broadcast to iota, bitcast: BRD .. IOTA, BEY-19 .. BEY-30, HOP-7 .. HOP-11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.movement import Bitcast, Broadcast
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, s32, shape
from tests.rules.running import built, from_text, value

V = s32(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)
ROWS = s32([[0, 1, 2], [3, 4, 5]])
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
NO_ELEMENT = np.zeros((0,), np.float32)


def case(id: str, function: Callable[..., Any], inputs: Any, expected: Any) -> Any:
    """A row: with these inputs the function gives the expected array (of the first input's type)."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return pytest.param(function, inputs, np.asarray(expected, inputs[0].dtype), id=id)


def wrong(id: str, function: Callable[..., Any], *shapes: hk.Shape) -> Any:
    """A row: on parameters of these shapes the function is rejected by the rule that the id starts with."""
    return pytest.param(id.split(":")[0].split(" "), function, shapes, id=id)


def padded(*config: tuple[int, int, int]) -> Callable[..., Any]:
    return lambda x, v: hk.pad(x, v, config)


def first(x: hk.XlaOp) -> hk.XlaOp:
    return hk.slice_in_dim(x, 0, 1)


COUNT, MINUS = s32([0, 1, 2, 3, 4]), s32(-1)

VALUES = [
    case("BRD-1 BRD-2 rows repeat", lambda x: hk.broadcast(x, [2, 2]), s32([1, 2, 3]), [[[1, 2, 3]] * 2] * 2),
    case("BRD-4 size 0", lambda x: hk.broadcast(x, [0]), s32([1, 2]), np.zeros((0, 2))),
    case("BRD-4 no sizes", lambda x: hk.broadcast(x, []), s32([1, 2]), [1, 2]),
    case("BRD-5", lambda x: hk.broadcast(x, [2, 3]), f32(2.0), [[2.0] * 3] * 2),
    case("BIDIM-1 BIDIM-2", lambda x: hk.broadcast_in_dim(x, [2, 3, 2], [0, 2]), s32([[1, 2]]), [[[1, 2]] * 3] * 2),
    case("BIDIM-9 scalar", lambda x: hk.broadcast_in_dim(x, [2, 2], []), s32(7), [[7, 7], [7, 7]]),
    case("BIDIM-10 {1}", lambda x: hk.broadcast_in_dim(x, [2, 2], [1]), s32([1, 2]), [[1, 2], [1, 2]]),
    case("BIDIM-10 {0}", lambda x: hk.broadcast_in_dim(x, [2, 2], [0]), s32([1, 2]), [[1, 1], [2, 2]]),
    case("BIDIM-10 size 1", lambda x: hk.broadcast_in_dim(x, [3, 2], [0]), s32([7]), [[7, 7]] * 3),
    case("BIDIM-8 size 0", lambda x: hk.broadcast_in_dim(x, [0, 2], [1]), s32([1, 2]), np.zeros((0, 2))),
    case("RESHAPE-1 RESHAPE-4", lambda x: hk.reshape(x, [3, 2]), ROWS, [[0, 1], [2, 3], [4, 5]]),
    case("RESHAPE-8 empty", lambda x: hk.reshape(x, [3, 0]), np.zeros((0, 3), np.float32), np.zeros((3, 0))),
    case("RESHAPE-9", lambda x: hk.reshape(x, [24], [0, 1, 2]), V, V.reshape(24)),
    case("RESHAPE-10", lambda x: hk.reshape(x, [8, 3], [0, 1, 2]), V, V.reshape(8, 3)),
    case(
        "RESHAPE-11 RESHAPE-5",
        lambda x: hk.reshape(x, [24], [1, 2, 0]),
        V,
        [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47],
    ),
    case(
        "RESHAPE-12",
        lambda x: hk.reshape(x, [8, 3], [1, 2, 0]),
        V,
        [
            [10, 20, 30],
            [40, 11, 21],
            [31, 41, 12],
            [22, 32, 42],
            [15, 25, 35],
            [45, 16, 26],
            [36, 46, 17],
            [27, 37, 47],
        ],
    ),
    case(
        "RESHAPE-13 RESHAPE-7",
        lambda x: hk.reshape(x, [2, 6, 2], [1, 2, 0]),
        V,
        [
            [[10, 20], [30, 40], [11, 21], [31, 41], [12, 22], [32, 42]],
            [[15, 25], [35, 45], [16, 26], [36, 46], [17, 27], [37, 47]],
        ],
    ),
    case("RESHAPE-14 to a scalar", lambda x: hk.reshape(x, [], [0, 1]), s32([[5]]), 5),
    case("RESHAPE-14 from a scalar", lambda x: hk.reshape(x, [1, 1], []), s32(5), [[5]]),
    case("COLLAPSE-1 COLLAPSE-2", lambda x: hk.collapse(x, [1, 2]), CUBE, CUBE.reshape(2, 12)),
    case("COLLAPSE-6 all", lambda x: hk.collapse(x, [0, 1, 2]), V, V.reshape(24)),
    case("COLLAPSE-6 {0,1}", lambda x: hk.collapse(x, [0, 1]), V, V.reshape(8, 3)),
    case(
        "COLLAPSE-6 {1,2}",
        lambda x: hk.collapse(x, [1, 2]),
        V,
        [[10, 11, 12, 15, 16, 17], [20, 21, 22, 25, 26, 27], [30, 31, 32, 35, 36, 37], [40, 41, 42, 45, 46, 47]],
    ),
    case("TRANSP-1 TRANSP-2", lambda x: hk.transpose(x, [2, 0, 1]), CUBE, CUBE.transpose(2, 0, 1)),
    case("TRANSP-4", lambda x: hk.transpose(x, []), s32(3), 3),
    case("TRANSP-5", lambda x: hk.reshape(x, [4, 2, 3], [2, 0, 1]), CUBE, CUBE.transpose(2, 0, 1)),
    case("TRANSP-6", lambda x: hk.transpose(x, [1, 0]), ROWS, [[0, 3], [1, 4], [2, 5]]),
    case("TRANSP-6 first plane", lambda x: first(hk.transpose(x, [2, 0, 1])), CUBE, [[[0, 4, 8], [12, 16, 20]]]),
    case("REV-1 REV-2", lambda x: hk.rev(x, [1]), ROWS, [[2, 1, 0], [5, 4, 3]]),
    case("REV-5 none", lambda x: hk.rev(x, []), ROWS, ROWS),
    case("REV-5 order", lambda x: hk.rev(x, [1, 0]), ROWS, [[5, 4, 3], [2, 1, 0]]),
    case("REV-6", lambda x: hk.rev(x, [0, 1]), ROWS, [[5, 4, 3], [2, 1, 0]]),
    case(
        "CONCAT-1 CONCAT-2",
        lambda x, y: hk.concatenate([y, x], 1),
        (ROWS, s32([[8], [9]])),
        [[8, 0, 1, 2], [9, 3, 4, 5]],
    ),
    case("CONCAT-8 empty", lambda x, y: hk.concat_in_dim([x, y, x], 0), (f32([1]), NO_ELEMENT), [1, 1]),
    case("CONCAT-8 single", lambda x: hk.concat_in_dim([x], 1), ROWS, ROWS),
    case(
        "CONCAT-9",
        lambda x, y, z: hk.concat_in_dim([x, y, z], 0),
        (s32([2, 3]), s32([4, 5]), s32([6, 7])),
        [2, 3, 4, 5, 6, 7],
    ),
    case(
        "CONCAT-10",
        lambda a, b: hk.concat_in_dim([a, b], 0),
        (s32([[1, 2], [3, 4], [5, 6]]), s32([[7, 8]])),
        [[1, 2], [3, 4], [5, 6], [7, 8]],
    ),
    case(
        "PAD-1 PAD-6",
        padded((1, 0, 0), (0, 1, 1)),
        (ROWS, MINUS),
        [[-1] * 6, [0, -1, 1, -1, 2, -1], [3, -1, 4, -1, 5, -1]],
    ),
    case("PAD-8", padded((0, 0, 0)), (COUNT, MINUS), COUNT),
    case("PAD-9 size 0", padded((1, 2, 5)), (NO_ELEMENT, f32(-1)), [-1, -1, -1]),
    case("PAD-11 (1,2,1)", padded((1, 2, 1)), (COUNT, MINUS), [-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, -1]),
    case("PAD-11 (-1,-2,0)", padded((-1, -2, 0)), (COUNT, MINUS), [1, 2]),
    case("PAD-7 PAD-11 (-2,-1,1)", padded((-2, -1, 1)), (COUNT, MINUS), [1, -1, 2, -1, 3, -1]),
    case(
        "PAD-6 an element is removed, not the hole behind it",
        padded((-1, -2, 1)),
        (COUNT, MINUS),
        [-1, 1, -1, 2, -1, 3],
    ),
    case("PAD-11 (-3,4,2)", padded((-3, 4, 2)), (COUNT, MINUS), [1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, -1, -1]),
    case("PAD-11 (-3,-2,0)", padded((-3, -2, 0)), (COUNT, MINUS), []),
    case("PAD-10 PAD-11 (-7,10,0)", padded((-7, 10, 0)), (COUNT, MINUS), [-1] * 8),
    case("PAD-10 the other way", padded((10, -7, 0)), (COUNT, MINUS), [-1] * 8),
    case("PAD-9 PAD-11 size 1", padded((0, 0, 5)), (s32([7]), MINUS), [7]),
    case("BEY-26", lambda x: hk.pad_in_dim(x, -1, 1, 1, -1), ROWS, [[-1, 0, 1], [-1, 3, 4]]),
    case("BEY-22 Reshape(shape, operand)", lambda x: hk.reshape(x, hk.s32[3, 2]), ROWS, [[0, 1], [2, 3], [4, 5]]),
]


@pytest.mark.parametrize(("function", "inputs", "expected"), VALUES)
def test_value(function: Callable[..., Any], inputs: Any, expected: Any) -> None:
    got = value(function, *inputs)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


TWO, PAIR, SCALAR = hk.f32[2, 3], hk.Shape.tuple([hk.f32[2], hk.f32[2]]), hk.f32[()]

WRONG = [
    wrong("BRD-3: negative size", lambda x: hk.broadcast(x, [2, -1]), TWO),
    wrong("BRD-6: tuple", lambda x: hk.broadcast(x, [2]), PAIR),
    wrong("BIDIM-3: one dimension for two", lambda x: hk.broadcast_in_dim(x, [2, 3], [0]), TWO),
    wrong("BIDIM-4: result of lower rank", lambda x: hk.broadcast_in_dim(x, [2], [0, 1]), TWO),
    wrong("BIDIM-5: beyond the result", lambda x: hk.broadcast_in_dim(x, [2, 3], [0, 2]), TWO),
    wrong("BIDIM-5: negative", lambda x: hk.broadcast_in_dim(x, [2, 3], [-1, 1]), TWO),
    wrong("BIDIM-6: descending", lambda x: hk.broadcast_in_dim(x, [3, 2], [1, 0]), TWO),
    wrong("BIDIM-6: repeated", lambda x: hk.broadcast_in_dim(x, [2, 2], [0, 0]), hk.f32[2, 2]),
    wrong("BIDIM-7: other size", lambda x: hk.broadcast_in_dim(x, [2, 4], [0, 1]), TWO),
    wrong("BIDIM-8: negative size", lambda x: hk.broadcast_in_dim(x, [2, 3, -1], [0, 1]), TWO),
    wrong("BIDIM-11: no size-1 expansion in HLO", lambda x: emit(Broadcast((0,), hk.f32[3]), x), hk.f32[1]),
    wrong("BIDIM-11: repeated dimension", lambda x: emit(Broadcast((0, 0), hk.f32[2, 2]), x), hk.f32[2, 2]),
    wrong("RESHAPE-2: 6 elements as 5", lambda x: hk.reshape(x, [5]), TWO),
    wrong("RESHAPE-3: wildcard", lambda x: hk.reshape(x, [-1, 3]), TWO),
    wrong("RESHAPE-3: negative sizes of the right product", lambda x: hk.reshape(x, [-2, -3]), TWO),
    wrong("RESHAPE-6: repeated", lambda x: hk.reshape(x, [6], [0, 0]), TWO),
    wrong("RESHAPE-6: too few", lambda x: hk.reshape(x, [6], [0]), TWO),
    wrong("COLLAPSE-3: descending", lambda x: hk.collapse(x, [1, 0]), hk.f32[2, 3, 4]),
    wrong("COLLAPSE-3: gap", lambda x: hk.collapse(x, [0, 2]), hk.f32[2, 3, 4]),
    wrong("COLLAPSE-4: beyond the rank", lambda x: hk.collapse(x, [1, 2]), TWO),
    wrong("COLLAPSE-4: negative", lambda x: hk.collapse(x, [-1, 0]), TWO),
    wrong("TRANSP-3: repeated dimension", lambda x: hk.transpose(x, [0, 0]), TWO),
    wrong("TRANSP-3: too long", lambda x: hk.transpose(x, [0, 1, 2]), TWO),
    wrong("TRANSP-3: out of range", lambda x: hk.transpose(x, [1, 2]), TWO),
    wrong("REV-3: out of range", lambda x: hk.rev(x, [2]), TWO),
    wrong("REV-3: negative", lambda x: hk.rev(x, [-1]), TWO),
    wrong("REV-4: repeated", lambda x: hk.rev(x, [0, 0]), TWO),
    wrong("CONCAT-3: none", lambda x: hk.concat_in_dim([], 0), TWO),
    wrong("CONCAT-4: ranks", lambda x, y: hk.concat_in_dim([x, y], 0), TWO, hk.f32[2]),
    wrong("CONCAT-5: types", lambda x, y: hk.concat_in_dim([x, y], 0), TWO, hk.s32[2, 3]),
    wrong("CONCAT-6: sizes", lambda x, y: hk.concat_in_dim([x, y], 1), TWO, hk.f32[3, 3]),
    wrong("CONCAT-7: dimension", lambda x, y: hk.concat_in_dim([x, y], 2), TWO, TWO),
    wrong("CONCAT-7: scalars", lambda x, y: hk.concat_in_dim([x, y], 0), SCALAR, SCALAR),
    wrong("PAD-2 PAD-11: (-3,-4,0)", padded((-3, -4, 0)), hk.s32[5], hk.s32[()]),
    wrong("PAD-3: negative interior", padded((0, 0, -1)), hk.s32[5], hk.s32[()]),
    wrong("PAD-4: one entry for two", padded((0, 0, 0)), TWO, SCALAR),
    wrong("PAD-5: other type", padded((0, 0, 0), (0, 0, 0)), TWO, hk.s32[()]),
    wrong("PAD-5: not a scalar", padded((0, 0, 0), (0, 0, 0)), TWO, hk.f32[1]),
    wrong("BEY-26: dimno", lambda x: hk.pad_in_dim(x, 0.0, -1, 0, 0), TWO),
    wrong("IOTA-4: scalar", lambda x: x.builder.iota(SCALAR, 0), SCALAR),
    wrong("IOTA-5: dimension", lambda x: x.builder.iota(TWO, 2), SCALAR),
    wrong("IOTA-5: negative", lambda x: x.builder.iota(TWO, -1), SCALAR),
    wrong("IOTA-6: pred", lambda x: x.builder.iota(hk.pred[2], 0), SCALAR),
    wrong("IOTA-7 DYN-15: dynamic", lambda x: x.builder.iota(hk.f32["<=3"], 0), SCALAR),
    wrong("BEY-19: other number of bits", lambda x: emit(Bitcast(hk.f32[3]), x), hk.f32[2]),
]


NO_LIST = [
    (lambda x, no: hk.broadcast(x, no), "BRD-3", "broadcast_sizes"),
    (lambda x, no: hk.broadcast_in_dim(x, no, [0, 1]), "BIDIM-8", "out_dim_size"),
    (lambda x, no: hk.broadcast_in_dim(x, [2, 3], no), "BIDIM-5", "broadcast_dimensions"),
    (lambda x, no: hk.reshape(x, no), "RESHAPE-3", "new_sizes"),
    (lambda x, no: hk.reshape(x, [6], no), "RESHAPE-6", "dimensions"),
    (lambda x, no: hk.collapse(x, no), "COLLAPSE-4", "dimensions"),
    (lambda x, no: hk.transpose(x, no), "TRANSP-3", "permutation"),
    (lambda x, no: hk.rev(x, no), "REV-3", "dimensions"),
    (lambda x, no: hk.pad(x, 0, no), "HINST-6", "pad padding"),
    (lambda x, no: hk.slice(x, no, [1, 1]), "SLICE-3", "start_indices"),
    (lambda x, no: hk.slice(x, [0, 0], [1, 1], no), "SLICE-3", "strides"),
    (lambda x, no: hk.dynamic_slice(x, [0, 0], no), "DSLICE-7", "slice_sizes"),
]


@rule("HINST-6")
@pytest.mark.parametrize(("function", "label", "argument"), NO_LIST)
@pytest.mark.parametrize("value", [1, 1.5, "1", [1.0, 0.0]], ids=repr)
def test_what_is_no_list_of_integers(function: Callable[..., Any], label: str, argument: str, value: Any) -> None:
    with pytest.raises(hk.ShapeError, match=f"{argument}: found .*{label}"):
        shape(lambda x: function(x, value), TWO)


@rule("DSLICE-6")
def test_start_indices_that_are_no_sequence() -> None:
    for starts in (0, lambda x: x, lambda x: x.builder.constant(1)):
        with pytest.raises(hk.ShapeError, match=r"start_indices: found .*DSLICE-6"):
            shape(lambda x, s=starts: hk.dynamic_slice(x, s(x) if callable(s) else s, [1, 1]), TWO)


@rule("BUILDER-3")
@pytest.mark.parametrize(
    "function",
    [lambda v: hk.broadcast(v, [2]), lambda v: hk.broadcast_in_dim(v, [3], [0]), lambda v: hk.reshape(v, [3]),
     lambda v: hk.dynamic_reshape(v, [3], [3], [True]), lambda v: hk.collapse(v, [0]), lambda v: hk.transpose(v, [0]),
     lambda v: hk.pad_in_dim(v, 0, 0, 1, 1), lambda v: hk.slice(v, [0], [1]), lambda v: hk.slice_in_dim(v, 0, 1),
     lambda v: hk.dynamic_slice(v, [0], [1]), lambda v: hk.get_dimension_size(v, 0), lambda v: hk.concat_in_dim(v, 0),
     lambda v: hk.set_dimension_size(v, 1, 0), lambda v: hk.remove_dynamic_dimension(v, 0), lambda v: hk.neg(v),
     lambda v: hk.convert_element_type(v, hk.s8), lambda v: hk.bitcast_convert_type(v, hk.s8)],
)  # fmt: skip
def test_an_array_is_no_handle(function: Callable[..., Any]) -> None:
    with rejects("BUILDER-3"):
        function(np.ones(3, np.float32))


@rule("CONCAT-3")
def test_concatenation_takes_a_sequence_or_a_tuple() -> None:
    with rejects("CONCAT-3"):
        shape(lambda x: hk.concat_in_dim(x, 0), TWO)
    assert value(lambda x: hk.concat_in_dim(hk.tuple_(x.builder, [x, x]), 0), s32([1, 2])).tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(("labels", "function", "shapes"), WRONG)
def test_rejected(labels: list[str], function: Callable[..., Any], shapes: tuple[hk.Shape, ...]) -> None:
    with rejects(*labels):
        shape(function, *shapes)


@rule("RESHAPE-7")
def test_three_argument_reshape_adds_a_transpose_unless_in_order() -> None:
    def opcodes(order: list[int]) -> list[str]:
        return [i.opcode for i in built(lambda x: hk.reshape(x, [6], order), TWO).entry.instructions]

    assert opcodes([0, 1]) == ["parameter", "reshape"]
    assert opcodes([1, 0]) == ["parameter", "transpose", "reshape"]


@rule("COLLAPSE-5")
def test_collapse_of_at_most_one_dimension_adds_nothing() -> None:
    for dimensions in ([], [1]):
        assert len(built(lambda x, d=dimensions: hk.collapse(x, d), TWO).entry) == 1


@rule("BIDIM-11")
def test_unordered_broadcast_dimensions_transpose() -> None:
    got = value(lambda x: emit(Broadcast((2, 0), hk.s32[3, 2, 2]), x), ROWS)
    assert got.tolist() == [[[0, 3]] * 2, [[1, 4]] * 2, [[2, 5]] * 2]


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64, np.bool_, ml_dtypes.int4]
)
@rule("BRD-2", "RESHAPE-4", "TRANSP-2", "REV-2", "CONCAT-2", "PAD-6")
def test_bits_are_kept_in_every_type(dtype: Any) -> None:
    dtype = np.dtype(dtype)
    bits = (
        np.arange(6, dtype=np.uint8) % 2
        if dtype.itemsize == 1
        else np.arange(6 * dtype.itemsize, dtype=np.uint8) * 7 | 0x7F
    )
    x = bits.view(dtype).reshape(2, 3)

    def program(x: hk.XlaOp, v: hk.XlaOp) -> hk.XlaOp:
        turned, wide = hk.rev(hk.transpose(x, [1, 0]), [0]), hk.pad(hk.reshape(x, [3, 2]), v, [(0, 0, 0)] * 2)
        return hk.concatenate([turned, wide], 0)

    got = value(program, x, x[0, 0])
    assert got.tobytes() == np.concatenate([x.T[::-1], x.reshape(3, 2)]).tobytes()


IOTA = [
    pytest.param(hk.s32[4, 8], 0, [[r] * 8 for r in range(4)], id="IOTA-1 IOTA-2 IOTA-9 rows"),
    pytest.param(hk.s32[4, 8], 1, [[*range(8)]] * 4, id="IOTA-9 columns"),
    pytest.param(hk.c64[2], 0, [0, 1], id="IOTA-3 complex"),
    pytest.param(hk.f32[3, 0], 0, np.zeros((3, 0)), id="IOTA-10"),
]


@pytest.mark.parametrize(("wanted", "dimension", "expected"), IOTA)
def test_iota(wanted: hk.Shape, dimension: int, expected: Any) -> None:
    got = value(lambda x: x.builder.iota(wanted, dimension), s32(0))
    assert got.dtype == wanted.dtype.numpy and np.array_equal(got, expected)


@rule("IOTA-3", "IOTA-8", "BEY-29")
def test_iota_rounds_to_narrow_floats_and_wraps_in_narrow_integers() -> None:
    def count(dtype: hk.DType, n: int) -> Any:
        return value(lambda x: x.builder.iota(dtype, iota_dimension=0, size=n), s32(0))

    assert count(hk.s8, 300)[128] == -128 and count(hk.u8, 260)[256] == 0
    bf16 = count(hk.bf16, 260)
    assert [float(bf16[i]) for i in (256, 257, 258, 259)] == [256, 256, 258, 260]


@rule("BEY-19", "HLAY-7")
def test_bitcast_reads_the_operands_memory_by_the_results_layout() -> None:
    text = """
    ENTRY e {
      x = s32[2,3]{0,1} parameter(0)
      flat = s32[6]{0} bitcast(x)
      other = s32[3,2]{0,1} bitcast(x)
      bytes = u8[2,3,4]{2,0,1} bitcast(x)
      ROOT t = (s32[6], s32[3,2]{0,1}, u8[2,3,4]{2,0,1}) tuple(flat, other, bytes)
    }"""
    flat, other, as_bytes = from_text(text, ROWS)
    memory = [0, 3, 1, 4, 2, 5]
    assert flat.tolist() == memory
    assert other.tolist() == [[0, 4], [3, 2], [1, 5]]
    assert as_bytes.tobytes() == ROWS.tobytes()


@rule("BEY-19")
def test_bitcast_of_packed_elements_to_another_width_is_not_supported() -> None:
    with pytest.raises(hk.UnsupportedError, match="packed"):
        value(lambda x: emit(Bitcast(hk.u8[2]), x), np.ones(4, ml_dtypes.uint4))


@rule("HOP-7", "HOP-9", "HOP-10", "HOP-11")
def test_attributes_in_text() -> None:
    text = """
    ENTRY e {
      x = s32[2,3] parameter(0)
      zero = s32[] constant(0)
      fill = s32[3,2] broadcast(zero)
      turned = s32[3,2] transpose(x), dimensions={1,0}
      back = s32[3,2] reverse(turned), dimensions={0}
      both = s32[6,2] concatenate(back, fill), dimensions={0}
      wide = s32[6,3] pad(both, zero), padding=0_0x1_0
      i = s32[6,3] iota(), iota_dimension=1
      ROOT r = s32[6,3] add(wide, i)
    }"""
    expected = [[0, 3, 7], [0, 2, 6], [0, 1, 5]] + [[0, 1, 2]] * 3
    assert from_text(text, ROWS).tolist() == expected
    printed = str(hk.parse(f"HloModule t\n{text}"))
    for words in ("dimensions={}", "dimensions={1,0}", "dimensions={0}", "padding=0_0x1_0", "iota_dimension=1"):
        assert words in printed


@rule("HOP-7", "HOP-9", "HOP-10", "HOP-11", "HINST-1")
@pytest.mark.parametrize(
    "instruction",
    [
        "s32[2,2] broadcast(x)",
        "s32[3,2] transpose(x)",
        "s32[2] reverse(x)",
        "s32[4] concatenate(x, x), dimensions={0,1}",
        "s32[4] pad(x, x)",
        "iota(), iota_dimension=0",
        "reshape(x)",
        "bitcast(x)",
    ],
)
def test_missing_attributes_and_shapes_in_text(instruction: str) -> None:
    with pytest.raises(hk.HlokitError):
        hk.parse(f"HloModule t\nENTRY e {{\n x = s32[2] parameter(0)\n ROOT r = {instruction}\n}}")


@rule("BEY-30")
def test_unbounded_dimensions_propagate_and_cannot_be_run() -> None:
    x = hk.f32["?", 3]
    assert shape(lambda x: hk.transpose(x, [1, 0]), x).static is hk.f32[3, "?"].static
    assert str(shape(lambda x: hk.concat_in_dim([x, x], 0), x)) == "f32[?,3]"
    assert str(shape(lambda x, y: hk.concat_in_dim([x, y], 1), x, hk.f32[2, 3])) == "f32[2,6]"
    assert str(shape(lambda x: hk.pad(x, 0.0, [(1, 1, 0), (1, 0, 0)]), x)) == "f32[?,4]"
    assert str(shape(lambda x: hk.broadcast(x, [2]), x)) == "f32[2,?,3]"
    assert str(shape(lambda x: hk.slice_in_dim(x, 0, 2, 1, 1), x)) == "f32[?,2]"
    with pytest.raises(hk.UnsupportedError):
        hk.evaluate(built(lambda x: hk.rev(x, [0]), x), np.zeros((2, 3), np.float32))


@rule("BEY-29")
def test_iota_of_a_type_and_a_size() -> None:
    b = hk.Builder("t")
    assert hk.evaluate(b.build(b.iota(hk.f32, 5))).tolist() == [0, 1, 2, 3, 4]
