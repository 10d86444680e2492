"""What random programs found: one program per fault that they showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.proto.module import module_from_proto, module_to_proto
from tests.fuzz.properties import leaves
from tests.rules.labels import rejects, rule

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def run(body: str, *arguments: Any) -> Any:
    return hk.evaluate(hk.parse(f"HloModule t\n{body}"), *arguments)


@rule("GATHER-19")
def test_gather_of_f8e5m2() -> None:
    body = """ENTRY e { x = f32[4] iota(), iota_dimension=0
      n = f8e5m2[4] convert(x)
      i = s32[2,1] constant({{3},{1}})
      ROOT g = f8e5m2[2] gather(n, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1} }"""
    assert run(body).astype(np.float32).tolist() == [3, 1]


@rule("MAP-6")
def test_map_of_scalars_from_proto() -> None:
    text = """HloModule t
    f { p = f32[] parameter(0)
      ROOT r = f32[] negate(p) }
    ENTRY e { p = f32[] parameter(0)
      ROOT m = f32[] map(p), dimensions={}, to_apply=f }"""
    module = hk.parse(text)
    assert str(module_from_proto(module_to_proto(module))) == str(module)


def with_sizes(rest: str) -> str:
    """A program on x [3,2], on d, of which the first dimension has 2 elements at run time, and on v [2] alike (1)."""
    return f"""lt {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      c = f32[] parameter(2)
      d = f32[] parameter(3)
      ROOT r = pred[] compare(a, b), direction=LT }}
    sum {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      c = f32[] parameter(2)
      d = f32[] parameter(3)
      ac = f32[] add(a, c)
      bd = f32[] add(b, d)
      ROOT r = (f32[], f32[]) tuple(ac, bd) }}
    ENTRY e {{ x = f32[3,2] parameter(0)
      one = s32[] constant(1)
      two = s32[] constant(2)
      zero = f32[] constant(0)
      d = f32[<=3,2] set-dimension-size(x, two), dimensions={{0}}
      w = f32[2] constant({{1,2}})
      v = f32[<=2] set-dimension-size(w, one), dimensions={{0}}
      {rest} }}"""


@rule("DYN-14", "SORT-15")
def test_sort_of_operands_with_different_sizes_at_run_time() -> None:
    call = "ROOT s = (f32[3,2], f32[<=3,2]) sort(x, d), dimensions={0}, to_apply=lt"
    whole, cut = run(with_sizes(call), X)
    assert whole.tolist() == [[1, 2], [3, 4], [5, 6]] and cut.tolist() == [[1, 2], [3, 4]]


@rule("DYN-10")
def test_reduce_of_operands_with_different_sizes_at_run_time() -> None:
    call = "ROOT s = (f32[3], f32[<=3]) reduce(x, d, zero, zero), dimensions={1}, to_apply=sum"
    whole, cut = run(with_sizes(call), X)
    assert whole.tolist() == [3, 7, 0] and cut.tolist() == [3, 7]


@rule("BNI-2")
def test_batch_norm_with_fewer_features_at_run_time() -> None:
    call = "ROOT n = f32[3,2] batch-norm-inference(x, v, w, w, w), epsilon=0, feature_index=1"
    assert run(with_sizes(call), X).tolist() == [[1, 0], [3, 0], [5, 0]]


@rule("RWIN-6")
def test_reduce_window_whose_results_change_places() -> None:
    """The reference wrote one accumulator while another's new value was still a view of it."""
    body = """swap { a = s8[] parameter(0)
      b = s8[] parameter(1)
      c = s8[] parameter(2)
      d = s8[] parameter(3)
      ROOT t = (s8[], s8[]) tuple(b, a) }
    ENTRY e { x = s8[9] iota(), iota_dimension=0
      i = s8[] constant(7)
      j = s8[] constant(3)
      ROOT r = (s8[10], s8[10]) reduce-window(x, x, i, j), window={size=2 pad=1_1}, to_apply=swap }"""
    first, second = run(body)
    assert first.tolist() == [3, *[7] * 8, 3] and second.tolist() == [7, *[3] * 8, 7]


BUILT: list[tuple[str, Callable[[hk.XlaOp], Any]]] = [
    ("TRANSP-3", lambda x: hk.transpose(x, [1.0, 0.0])),  # type: ignore[list-item]
    ("TRANSP-3", lambda x: hk.transpose(x, None)),  # type: ignore[arg-type]
    ("REV-3", lambda x: hk.rev(x, [[0]])),  # type: ignore[list-item]
    ("REV-3", lambda x: hk.rev(x, "0")),  # type: ignore[arg-type]
    ("HINST-6", lambda x: hk.concat_in_dim([x, x], 0.5)),  # type: ignore[arg-type]
    ("BCAST-6", lambda x: hk.add(x, x, [None])),  # type: ignore[list-item]
    ("SHAPE-3", lambda x: x.builder.parameter(1, hk.f32[2.5])),  # type: ignore[index]
    ("TYPE-1", lambda x: hk.convert_element_type(x, x)),  # type: ignore[arg-type]
    ("WIN-5", lambda x: hk.make_padding([1], [1], [1], 3)),  # type: ignore[arg-type]
    ("WIN-6", lambda x: hk.make_padding([1.5], [1], [1], "SAME")),  # type: ignore[list-item]
    ("GRP-2", lambda x: hk.ReplicaGroups.explicit([0, 1])),  # type: ignore[list-item]
    ("WIN-3", lambda x: hk.Window.make([2, 2], padding=[1, 1])),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("label", "build"), BUILT, ids=range(len(BUILT)))
def test_arguments_of_wrong_types(label: str, build: Callable[[hk.XlaOp], Any]) -> None:
    x = hk.Builder("t").parameter(0, hk.f32[3, 2])
    with rejects(label):
        build(x)


IN_ANY_ORDER = {
    "batch-norm-training": "x = f32[6,5,7] parameter(0) s = f32[5] parameter(1) "
    "ROOT r = (f32[6,5,7], f32[5], f32[5]) batch-norm-training(x, s, s), epsilon=0.5, feature_index=1",
    "batch-norm-grad": "x = f64[6,5,7] parameter(0) s = f64[5] parameter(1) ROOT r = (f64[6,5,7], f64[5], f64[5]) "
    "batch-norm-grad(x, s, s, s, x), epsilon=0.5, feature_index=1",
    "fft": "x = c64[4,6,5] parameter(0) ROOT r = c64[4,6,5] fft(x), fft_type=FFT, fft_length={6,5}",
    "inverse fft": "x = c64[2,3,5] parameter(0) ROOT r = c64[2,3,5] fft(x), fft_type=IFFT, fft_length={2,3,5}",
    "real fft": "x = f32[4,6,5] parameter(0) ROOT r = c64[4,6,3] fft(x), fft_type=RFFT, fft_length={5}",
    "triangular-solve": "x = f32[3,9,9] parameter(0) y = f32[3,9,4] parameter(1) ROOT r = f32[3,9,4] "
    "triangular-solve(x, y), left_side=true, unit_diagonal=true, lower=true, transpose_a=ADJOINT",
    "cholesky": "x = f32[9,9] parameter(0) t = f32[9,9] transpose(x), dimensions={1,0} d = f32[9,9] dot(x, t), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0} ROOT r = f32[9,9] cholesky(d), lower=true",
    "dot": "x = f32[9,70] parameter(0) y = f32[70,5] parameter(1) "
    "ROOT r = f32[9,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "x = f32[2,9,9,5] parameter(0) y = f32[3,3,5,4] parameter(1) "
    "ROOT r = f32[2,7,7,4] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f",
}


@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_values_do_not_depend_on_the_order_in_memory(name: str) -> None:
    """Of their operands: transposed arrays, and those of Fortran's order, gave other last bits."""
    module = hk.parse(f"HloModule t\nENTRY e {{ {IN_ANY_ORDER[name]} }}")
    source = np.random.default_rng(3)
    given = [source.random(p.shape.dimensions).astype(p.shape.dtype.numpy) for p in module.entry.parameters]
    orders = [given, [np.asfortranarray(a) for a in given], [np.flip(np.flip(a).copy()) for a in given]]
    results = [[leaf.tobytes() for leaf in leaves(hk.evaluate(module, *arrays))] for arrays in orders]
    assert results[0] == results[1] == results[2]
