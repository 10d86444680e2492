"""Operations of newer StableHLO, CHLO and Shardy: futures, scans, what moves shards about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools.main import main

X = np.arange(12, dtype=np.float32).reshape(3, 4)

BODY = """{
  ^bb0(%x: tensor<4xf32>, %c: tensor<4xf32>):
    %s = stablehlo.add %x, %c : tensor<4xf32>
    stablehlo.return %s, %s : tensor<4xf32>, tensor<4xf32>
  }"""
TYPES = "(tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        "chlo.scan(%a) inits (%b) dimension=0 attributes {{is_associative = true, is_reverse = {0}}} {1} : {2}",
        '"chlo.scan"(%a, %b) <{{dimension = 0 : i64, is_reverse = {0}, operandSegmentSizes = array<i32: 1, 1>, '
        "resultSegmentSizes = array<i32: 1, 1>}}> ({1}) : {2}",
    ],
)
def test_scan(form: str, reverse: bool) -> None:
    text = f"""func.func @main(%a: tensor<3x4xf32>, %b: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>) {{
  %0:2 = {form.format(str(reverse).lower(), BODY, TYPES)}
  return %0#0, %0#1 : tensor<3x4xf32>, tensor<4xf32>
}}"""
    outputs, carry = hk.evaluate(hk.parse(text), X, np.ones(4, np.float32))
    rows = X[::-1] if reverse else X
    expected = np.cumsum(rows, 0) + 1
    assert np.array_equal(outputs, expected[::-1] if reverse else expected)
    assert np.array_equal(carry, X.sum(0) + 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dimension = 0", "dimension = 2", "no dimension 2"),
        ("array<i32: 1, 1>, resultSegmentSizes", "array<i32: 2, 1>, resultSegmentSizes", "operandSegmentSizes"),
    ],
)
def test_scans_that_are_none(old: str, new: str, message: str) -> None:
    text = f"""func.func @main(%a: tensor<3x4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {{
  %0:2 = "chlo.scan"(%a, %b) <{{dimension = 0 : i64, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}}> ({BODY}) : {TYPES}
  return %0#1 : tensor<4xf32>
}}"""
    assert old in text
    with pytest.raises(hk.ParseError, match=message):
        hk.parse(text.replace(old, new))


@pytest.mark.parametrize("count", [1, 2])
def test_futures(count: int) -> None:
    types = ", ".join(["tensor<4xf32>"] * count)
    names = ", ".join(f"%r#{i}" for i in range(count)) if count > 1 else "%r"
    text = f"""func.func @main(%a: tensor<2xf32>) -> ({types}) {{
  %f = "stablehlo.async_start"(%a) ({{
  ^bb0(%x: tensor<2xf32>):
    %g = "stablehlo.all_gather"(%x) <{{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}> : (tensor<2xf32>) -> tensor<4xf32>
    stablehlo.return {", ".join(["%g"] * count)} : {types}
  }}) : (tensor<2xf32>) -> !stablehlo.future<{types}>
  "stablehlo.trace"(%a) {{tag = "between"}} : (tensor<2xf32>) -> ()
  {"%r:2" if count > 1 else "%r"} = "stablehlo.async_done"(%f) : (!stablehlo.future<{types}>) -> ({types})
  return {names} : {types}
}}"""
    results = hk.evaluate(hk.parse(text), [X[0, :2]], [X[1, :2]], replicas=2)
    for result in results:
        for part in result if count > 1 else (result,):
            assert part.tolist() == [0, 1, 4, 5]


def test_what_shardy_does_with_shards_leaves_whole_values() -> None:
    text = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %c = sdy.constant dense<1.0> : tensor<4x4xf32>
  %0 = stablehlo.add %a, %c : tensor<4x4xf32>
  %1 = sdy.all_gather [{"x"}, {}] %0 out_sharding=<@mesh, [{}, {}]> : tensor<4x4xf32>
  %2 = sdy.all_reduce {"x"} %1 out_sharding=<@mesh, [{}, {}]> : tensor<4x4xf32>
  %3 = sdy.all_slice [{"x"}, {}] %2 out_sharding=<@mesh, [{"x"}, {}]> : tensor<4x4xf32>
  %4 = sdy.all_to_all [{"x"}: 0->1] %3 out_sharding=<@mesh, [{}, {"x"}]> : tensor<4x4xf32>
  %5 = sdy.collective_permute %4 out_sharding=<@mesh, [{}, {"x"}]> : tensor<4x4xf32>
  %6 = sdy.data_flow_edge %5 sharding=<@mesh, [{}, {"x"}]> : tensor<4x4xf32>
  %7 = sdy.propagation_barrier %6 allowed_direction=BACKWARD : tensor<4x4xf32>
  %8 = sdy.reshard %7 <@mesh, [{"x"}, {}]> : tensor<4x4xf32>
  sdy.sharding_group %8 group_id=21 : tensor<4x4xf32>
  return %8 : tensor<4x4xf32>
}"""
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    for result in hk.evaluate(hk.parse(text), [values], [values]):
        assert np.array_equal(result, values + 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @main(%a: tensor<*xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }", "without a rank"),
        ("func.func @main(%a: tensor<2xtf32>) -> tensor<2xtf32> { return %a : tensor<2xtf32> }", "tf32"),
        ("func.func @main() {\n  cf.br ^bb1\n^bb1:\n  return\n}", "line 2: .*branches"),
        ("func.func @main(%a: tensor<i1>) {\n  cf.assert %a, \"m\"\n  return\n}", r"line 2: cf\.assert"),
        ("func.func @main(%a: tensor<2xf32>) {\n  %0 = shape.shape_of %a : tensor<2xf32> -> tensor<1xindex>\n  return\n}", r"line 2: shape\.shape_of"),
        ("module {\n  module @x {\n  }\n  func.func @main() { return }\n}", "line 2: module"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named(text: str, message: str) -> None:
    with pytest.raises(hk.UnsupportedError, match=message):
        hk.parse(text)


_SUM = """({
      ^bb0(%p: tensor<i64>, %q: tensor<i64>):
        %s = stablehlo.add %p, %q : tensor<i64>
        stablehlo.return %s : tensor<i64>
    })"""


def collective(name: str, attributes: str) -> hk.HloModule:
    return hk.parse(f"""func.func @main(%a: tensor<1xi64>) -> tensor<1xi64> {{
    %0 = "stablehlo.{name}"(%a) {_SUM} {{{attributes}}} : (tensor<1xi64>) -> tensor<1xi64>
    return %0 : tensor<1xi64>
}}""")


NONE = "channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>"
ONE = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"


@pytest.mark.parametrize(
    ("groups", "grid", "expected"),
    [
        (f"replica_groups = dense<[[2, 0], [1, 3]]> : tensor<2x2xi64>, {NONE}", (4, 1), [0, 6, 4, 0]),
        (f"replica_groups = dense<> : tensor<0x0xi64>, {NONE}", (4, 1), [10, 0, 0, 0]),
        (f"replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>, {ONE}", (2, 2), [0, 0, 10, 0]),
        (f"replica_groups = dense<[[3, 0], [1, 2]]> : tensor<2x2xi64>, {ONE}, use_global_device_ids", (4, 1), [0, 5, 0, 5]),
    ],
)  # fmt: skip
def test_collective_reduce_gives_the_first_of_each_group_the_result(
    groups: str, grid: tuple[int, int], expected: list[int]
) -> None:
    values = [[np.array([d + 1])] for d in range(4)]
    results = hk.evaluate(collective("collective_reduce", groups), *values, replicas=grid[0], partitions=grid[1])
    assert [int(result[0]) for result in results] == expected


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ('name = "y", sub_axis_info = (1)2', [40, 60, 40, 60, 120, 140, 120, 140]),
        (
            'name = "y", sub_axis_info = #stablehlo.sub_axis_info<pre_size = 2, size = 2>',
            [30, 30, 70, 70, 110, 110, 150, 150],
        ),
        ('name = "x"', [60, 80, 100, 120] * 2),
    ],
)
def test_groups_along_axes_of_a_mesh_written_in_place(axis: str, expected: list[int]) -> None:
    axes = ", ".join(f'#stablehlo.mesh_axis<name = "{name}", size = {size}>' for name, size in (("x", 2), ("y", 4)))
    groups = f"#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [{axes}]>, axes = [#stablehlo.axis_ref<{axis}>]>"
    module = collective("all_reduce", f"replica_groups = {groups}, {NONE}")
    results = hk.evaluate(module, *([np.array([10 * (d + 1)])] for d in range(8)), replicas=8)
    assert [int(result[0]) for result in results] == expected


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ('#stablehlo.replica_group_mesh_axes<mesh = @none, axes = [#stablehlo.axis_ref<name = "x">]>', "@none"),
        ("#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = 3>, axes = []>", "axes"),
        ("#stablehlo.replica_group_mesh_axes<axes = []>", "mesh"),
        ("#stablehlo.other<axes = []>", "axes of a mesh"),
    ],
)
def test_groups_that_are_none(groups: str, message: str) -> None:
    with pytest.raises(hk.ParseError, match=message):
        collective("all_reduce", f"replica_groups = {groups}, {NONE}")


@pytest.mark.parametrize("sharding", ["{devices=[2,1]0,1}", r"\08\03\1A\02\02\01\22\02\00\01"])
def test_shardings_as_the_bytes_of_a_proto(sharding: str) -> None:
    """As older JAX and TensorFlow wrote them."""
    module = hk.parse(f"""module @m attributes {{mhlo.num_partitions = 2 : i32}} {{
      func.func @main(%a: tensor<4x3xf32> {{mhlo.sharding = "{sharding}"}}) -> tensor<4x3xf32> {{
        %0 = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{sharding}"}} : (tensor<4x3xf32>) -> tensor<4x3xf32>
        return %0 : tensor<4x3xf32> }} }}""")
    assert "parameter(0), sharding={devices=[2,1]0,1}" in str(module)


def test_bytes_that_are_no_sharding() -> None:
    with pytest.raises(hk.ParseError, match=r"mhlo\.sharding: "):
        hk.parse(r"""func.func @main(%a: tensor<4xf32> {mhlo.sharding = "\08\03\1A\FF"}) -> tensor<4xf32> {
          return %a : tensor<4xf32> }""")


def test_arguments_that_are_memrefs_are_buffers() -> None:
    module = hk.parse("func.func @main(%a: tuple<tensor<2xf32>, memref<2xf32>>) -> tuple<tensor<2xf32>, memref<2xf32>> "
                      "{ return %a : tuple<tensor<2xf32>, memref<2xf32>> }")  # fmt: skip
    assert str(module.entry.parameters[0].shape) == "(f32[2], b(f32[2]))"
    again = hk.parse(hk.to_stablehlo(module))  # where arguments and results are not tuples
    assert [str(p.shape) for p in again.entry.parameters] == ["f32[2]", "b(f32[2])"]
    assert str(again.entry.root.shape) == "(f32[2], b(f32[2]))"


SEVERAL = """func.func @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @half(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.negate %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func private @nowhere(tensor<2xf32>) -> tensor<2xf32>
"""


def test_the_entry_is_chosen_among_functions(tmp_path: Path) -> None:
    module = hk.parse(SEVERAL, entry="twice")
    assert module.entry.name == "twice" and hk.evaluate(module, [1.0, 2.0]).tolist() == [2, 4]
    assert hk.parse(SEVERAL, entry="half", arguments=[hk.f32[3]]).program_shape.result is hk.f32[3]
    (tmp_path / "several.mlir").write_text(SEVERAL)
    assert str(hk.load(tmp_path / "several.mlir", entry="@twice")) == str(module)
    artifact = hk.to_stablehlo_artifact(SEVERAL.replace("func.func private @nowhere(tensor<2xf32>) -> tensor<2xf32>", ""))
    assert str(hk.parse(artifact, entry="twice")).replace("arg0", "x") == str(module)
    with pytest.raises(SystemExit) as end:
        main(["convert", str(tmp_path / "several.mlir"), str(tmp_path / "twice.hlo"), "--entry", "twice"])
    assert not end.value.code and str(hk.load(tmp_path / "twice.hlo")) == str(module)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "no function is called main, and 2 are public: @twice, @half"),
        ("no", "no function is called 'no'; found @twice, @half, @nowhere"),
        ("nowhere", "the function @nowhere has no body"),
    ],
)
def test_entries_that_are_none(entry: str | None, message: str) -> None:
    with pytest.raises(hk.HlokitError, match=message):
        hk.parse(SEVERAL, entry=entry)


def test_the_entry_of_hlo_is_named_there() -> None:
    text = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"
    assert hk.parse(text, entry="e").name == "m"
    with pytest.raises(hk.ArgumentError, match="that of m is 'e'"):
        hk.parse(text, entry="f")
