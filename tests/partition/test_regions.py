"""Regions that devices run by themselves, terms of sums, calls: in parts and whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.partitioner import partition
from hlokit.tools.main import main
from tests.partition.test_partition import MESH, kinds, parted

REGION = """
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>},
      %w: tensor<6x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {}]>})
      -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>}, tensor<4x4xf32>) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %r:2 = sdy.manual_computation(%y) in_shardings=[<@mesh, [{"a", ?}, {?}]>]
        out_shardings=[<@mesh, [{"a", ?}, {?}]>, <@mesh, [{?}, {?}]>] manual_axes={"a"} (%p: tensor<4x4xf32>) {
      %i = stablehlo.partition_id : tensor<ui32>
      %f = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %n = stablehlo.multiply %f, %zero : tensor<f32>
      %m = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %q = "stablehlo.collective_permute"(%p) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          source_target_pairs = dense<[[0, 2], [2, 0], [1, 3], [3, 1]]> : tensor<4x2xi64>}>
          : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %s = stablehlo.add %q, %m : tensor<4x4xf32>
      %t = "stablehlo.all_reduce"(%p) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        %d = sdy.sharding_constraint %c <@mesh, []> : tensor<f32>
        stablehlo.return %d : tensor<f32>
      }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      sdy.return %s, %t : tensor<4x4xf32>, tensor<4x4xf32>
    } : (tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>)
    return %r#0, %r#1 : tensor<8x4xf32>, tensor<4x4xf32>
  }
}"""


def same(found: Any, module: hk.HloModule, arguments: list[Any]) -> None:
    """Parts joined, in the interpreter and in machine code, are what the module gives on whole values."""
    count = found.module.num_partitions
    whole = hk.evaluate(module, *[arguments] * count, partitions=count)[0]
    parts = found.split(*arguments)
    for run in (lambda *p: hk.evaluate(found.module, *p), hk.compile(found.module)):
        for got, want in zip(found.join(run(*parts)), whole, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_region() -> None:
    """Its collectives run on what the other axes leave; its ends move nothing."""
    found = partition(hk.parse(REGION, keeps_regions=True))
    assert set(kinds(found)) == {"all-reduce"} or "reduce-scatter" in kinds(found)
    assert "all-gather" not in kinds(found)
    numbers = np.random.default_rng(0)
    arguments = [numbers.integers(-9, 10, s).astype(np.float32) for s in ((8, 6), (6, 4))]
    same(found, hk.parse(REGION), arguments)


def test_region_in_a_file(tmp_path: Path) -> None:
    """`hlokit partition` reads regions as regions, and writes the program of a device."""
    file, out = tmp_path / "region.mlir", tmp_path / "parts.hlo"
    file.write_text(REGION, encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["partition", str(file), "--output", str(out)])
    found = hk.load(out)
    assert found.to_text() == partition(hk.load(file, keeps_regions=True)).module.to_text()
    assert [p.shape for p in found.entry.parameters] == [hk.f32[8, 3], hk.f32[3, 4]]


def test_region_as_xla_writes_it() -> None:
    """GSPMD's custom calls with shardings in tiles."""
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}
  s = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  p = f32[4,6] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}
  q = f32[4,6] collective-permute(p), channel_id=1, source_target_pairs={{0,2},{1,3},{2,0},{3,1}}
  t = f32[4,6] custom-call(q), custom_call_target="Sharding", sharding={devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}
  ROOT r = f32[8,6] custom-call(t), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
}"""
    found = hk.partition(hk.parse(text))
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    for run in (lambda *p: hk.evaluate(found.module, *p), hk.compile(found.module)):
        assert np.array_equal(found.join(run(*found.split(x))), np.concatenate([x[4:], x[:4]]))


def test_sizes_at_the_ends_of_a_region() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  p = f32[3] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  ROOT r = f32[8] custom-call(p), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}
}"""
    with pytest.raises(hk.ShapeError, match=r"found f32\[3\], expected f32\[8\] in 2 parts \[PART-6\]"):
        hk.partition(hk.parse(text))


def test_collective_without_a_region() -> None:
    text = REGION.replace("sdy.manual_computation", "other.region")
    with pytest.raises(hk.HlokitError):
        partition(hk.parse(text, keeps_regions=True))


LINEAR = """HloModule m
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
ENTRY e {
  x = f32[8,4] parameter(0), sharding={MESH, [{}, {}], unreduced={'a'}}
  y = f32[8,4] parameter(1), sharding={MESH, [{}, {}], unreduced={'a'}}
  w = f32[4,6] parameter(2)
  z = f32[] constant(0)
  OP
}"""


@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("ROOT r = f32[8,4] add(x, y), sharding={MESH, [{}, {}], unreduced={'a'}}", 0),
        ("ROOT r = f32[8,4] add(x, y)", 1),
        ("t = f32[4,8] transpose(x), dimensions={1,0} ROOT r = f32[32] reshape(t), sharding={MESH, [{}], unreduced={'a'}}", 0),
        ("ROOT r = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={MESH, [{}, {'b'}], unreduced={'a'}}", 0),
        ("ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=add", 1),
        ("ROOT r = f32[8,4] multiply(x, y)", 2),
        ("t = f32[8,4] tanh(x) ROOT r = f32[8,4] multiply(t, x)", 1),
    ],
)  # fmt: skip
def test_terms(op: str, count: int) -> None:
    """What is linear in terms gives terms; devices meet where something else needs the sum, once for each value."""
    assert kinds(parted(LINEAR.replace("OP", op))).count("all-reduce") == count


def test_sums_meet_once() -> None:
    """All-reduces that do not wait for each other are one."""
    text = f"""HloModule m
ENTRY e {{
  x = f32[8,6] parameter(0), sharding={{{MESH}, [{{'a'}}, {{}}]}}
  y = f32[8,4] parameter(1), sharding={{{MESH}, [{{'a'}}, {{}}]}}
  p = f32[6,6] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  q = f32[6,4] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[6,6], f32[6,4]) tuple(p, q)
}}"""
    found = parted(text)
    assert len({r.collective for r in found.reasons if r.kind == "all-reduce"}) == 1 < len(found.reasons)
    assert [i.opcode for i in found.module.entry.instructions].count("all-reduce") == 1


def test_added_updates() -> None:
    """Updates that devices have are added where they are; the array they are added to counts once."""
    text = """HloModule m
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
ENTRY e {
  x = f32[6,4] parameter(0)
  k = s32[8,1] parameter(1), sharding={MESH, [{'a'}, {}]}
  v = f32[8,4] parameter(2), sharding={MESH, [{'a'}, {}]}
  ROOT r = f32[6,4] scatter(x, k, v), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}"""
    assert kinds(parted(text)) == ["all-reduce"]


def test_calls() -> None:
    """A large function that is called twice stays one for each way its operands lie."""
    body = "\n".join(f"  y{i + 1} = f32[8,4] add(y{i}, x)" for i in range(1100))
    text = f"""HloModule m
long {{
  x = f32[8,4] parameter(0)
  y0 = f32[8,4] copy(x)
{body}
  ROOT y = f32[8,4] copy(y1100)
}}
ENTRY e {{
  x = f32[8,4] parameter(0), sharding={{{MESH}, [{{'a'}}, {{'b'}}]}}
  y = f32[8,4] call(x), to_apply=long
  ROOT z = f32[8,4] call(y), to_apply=long
}}"""
    found = hk.partition(hk.parse(text))
    assert not found.reasons and found.module.entry.root.shape is hk.f32[4, 2]
    x = np.ones((8, 4), np.float32)
    assert np.all(found.join(hk.evaluate(found.module, *found.split(x))) == 1101**2)


def test_configurations_of_custom_calls() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  ROOT r = f32[8] custom-call(x), custom_call_target="mine", backend_config="kept"
}"""
    (call,) = [i for i in hk.partition(hk.parse(text)).module.entry.instructions if i.opcode == "custom-call"]
    assert call.extra is not None and call.extra.backend_config == "kept"


def test_a_result_lies_elsewhere_than_where_the_region_gives_it() -> None:
    """What is said of the program's result is not said of the region's end."""
    text = """
sdy.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>}) {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"b"}, {}]>] out_shardings=[<@mesh, [{"b"}, {}]>]
      manual_axes={"b"} (%p: tensor<2x6xf32>) {
    %1 = stablehlo.add %p, %p : tensor<2x6xf32>
    sdy.return %1 : tensor<2x6xf32>
  } : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}"""
    found = hk.partition(hk.parse(text, keeps_regions=True))
    assert str(found.out_shardings[0]).endswith("[{}, {'a'}]")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(found.join(hk.evaluate(found.module, *found.split(x))), 2 * x)
