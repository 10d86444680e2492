"""Whole models of JAX: no more bytes in collectives than XLA's partitioner needs."""

from pathlib import Path

import pytest

import hlokit as hk
from tests.partition import models


@pytest.mark.outside
@pytest.mark.parametrize("names", [["spatial"], pytest.param(list(models.NAMES), marks=pytest.mark.slow)])
def test_models_send_no_more_than_xla(names: list[str], tmp_path: Path) -> None:
    models.recorded(names, tmp_path)
    results = [models.compared(name, tmp_path) for name in names]
    assert [(r.name, r.problem) for r in results if r.problem] == []
    assert [(r.name, r.whole) for r in results if r.whole] == []
    assert [(r.name, r.ours, r.xla) for r in results if r.ratio > 1] == []


def test_an_axis_goes_on_through_a_broadcast_that_adds_dimensions_of_size_1() -> None:
    """Activations that are looked up lie as the numbers of the words: weights are gathered, as FSDP means."""
    module = hk.parse("""HloModule m
ENTRY e {
  w = f32[64,32] parameter(0), sharding={mesh['d'=4], [{'d'}, {}]}
  i = s32[8,6] parameter(1), sharding={mesh['d'=4], [{'d'}, {}]}
  b = s32[8,6,1] broadcast(i), dimensions={0,1}
  x = f32[8,6,32] gather(w, b), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,32}
  v = f32[32,32] parameter(2), sharding={mesh['d'=4], [{}, {'d'}]}
  ROOT y = f32[8,6,32] dot(x, v), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}""")
    found = hk.partition(module)
    assert str(found.out_shardings[0]) == "mesh['d'=4], [{'d'}, {}, {}]"
    assert [r.kind for r in found.reasons if r.op == "y"] == ["all-gather"]


def test_what_is_moved_twice_in_a_row_is_moved_once() -> None:
    module = hk.parse("""HloModule m
ENTRY e {
  x = f32[8,16] parameter(0), sharding={mesh['d'=4], [{'d'}, {}]}
  v = f32[8,12] parameter(1), sharding={mesh['d'=4], [{}, {'d'}]}
  w = f32[8,20] parameter(2), sharding={mesh['d'=4], [{}, {'d'}]}
  p = f32[16,12] dot(x, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}, sharding={mesh['d'=4], [{}, {'d'}]}
  q = f32[16,20] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}, sharding={mesh['d'=4], [{}, {'d'}]}
  ROOT t = (f32[16,12], f32[16,20]) tuple(p, q)
}""")
    found = hk.partition(module)
    assert models.sent(found.module) == {"all-gather": 8 * 16 * 4 * 3 // 4}
    assert len({r.collective for r in found.reasons}) == 1
