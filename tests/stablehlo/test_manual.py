"""What devices run by themselves: jax.shard_map programs on values of the whole program, and meshes written by hand."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.stablehlo.record_manual import PATH, X

PROGRAMS = [json.loads(line) for line in gzip.decompress(PATH.read_bytes()).splitlines()]


def on_all(module: hk.HloModule, *arguments: Any) -> list[Any]:
    """The results of all devices, each of which has the whole arguments."""
    return hk.evaluate(module, *[list(arguments)] * (module.num_partitions * module.replica_count))


@pytest.mark.parametrize(
    ("program", "form"),
    [pytest.param(p, form, id=f"{p['name']}-{form}") for p in PROGRAMS for form in ("text", "generic") if form in p],
)
def test_devices_give_the_whole_results_of_jax(program: dict[str, Any], form: str) -> None:
    module = hk.parse(program[form])
    hk.verify(module)
    results = on_all(module, *(X[:rows] for rows in program["arguments"]))
    assert f"num_partitions = {len(results)} " in program["text"]
    for result in results:
        parts = result if isinstance(result, tuple) else (result,)
        for part, expected in zip(parts, program["results"], strict=True):
            np.testing.assert_allclose(part, np.float32(expected), rtol=1e-5, atol=1e-5)


def test_machine_code_gives_them_too() -> None:
    program = next(p for p in PROGRAMS if p["name"] == "mixed")
    for result in hk.compile(hk.parse(program["text"]))(*[[X]] * 8):
        np.testing.assert_allclose(result, np.float32(program["results"][0]), rtol=1e-5)


def test_arguments_and_results_say_how_they_are_shared() -> None:
    module = hk.parse(next(p for p in PROGRAMS if p["name"] == "pmap")["text"])
    assert [str(p.extra.sharding) for p in module.entry.parameters] == ["{devices=[4,1]<=[4]}"]
    assert str(module.entry.root.extra.sharding) == "{{devices=[4,1]<=[4]}, {devices=[4,1]<=[4]}}"
    again = hk.parse(module.to_text())
    assert np.array_equal(on_all(again, X[:4])[0][0], on_all(module, X[:4])[0][0])


def region(mesh: str, given: str, made: str, axes: str, local: str, whole: str = "8x4", result: str = "8x4") -> str:
    """A program that adds its partition's number to each shard."""
    return f"""module {{
  sdy.mesh @mesh = <{mesh}>
  func.func @main(%x: tensor<{whole}xf32>) -> tensor<{result}xf32> {{
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, {given}>] out_shardings=[<@mesh, {made}>] manual_axes={{{axes}}} (%a: tensor<{local}xf32>) {{
      %1 = stablehlo.partition_id : tensor<ui32>
      %2 = stablehlo.convert %1 : (tensor<ui32>) -> tensor<f32>
      %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<{local}xf32>
      %4 = stablehlo.add %a, %3 : tensor<{local}xf32>
      sdy.return %4 : tensor<{local}xf32>
    }} : (tensor<{whole}xf32>) -> tensor<{result}xf32>
    return %0 : tensor<{result}xf32>
  }}
}}"""


def test_devices_of_a_mesh_in_another_order() -> None:
    text = region('["x"=4], device_ids=[3, 1, 0, 2]', '[{"x"}, {}]', '[{"x"}, {}]', '"x"', "2x4")
    expected = X + np.repeat([3, 1, 0, 2], 2)[:, None]
    for result in on_all(hk.parse(text), X):
        assert np.array_equal(result, expected)


def test_parts_of_axes() -> None:
    """Of x = 4 the minor half cuts the rows, the major half the columns."""
    halves = '[{"x":(2)2}, {"x":(1)2}]'
    device = np.array([[0, 2], [1, 3]])
    expected = X + np.kron(device, np.ones((4, 2)))
    for result in on_all(hk.parse(region('["x"=4]', halves, halves, '"x"', "4x2")), X):
        assert np.array_equal(result, expected)


def test_axes_that_cut_nothing_leave_each_device_its_own() -> None:
    results = on_all(hk.parse(region('["x"=2, "y"=2]', '[{"y"}, {}]', '[{"y"}, {}]', '"x", "y"', "4x4")), X)
    for device, result in enumerate(results):
        x = 2 * (device // 2)
        assert np.array_equal(result, X + np.repeat([x, x + 1], 4)[:, None])


def test_free_axes_are_whole() -> None:
    for result in on_all(hk.parse(region('["x"=2, "y"=2]', '[{"x", "y", ?}, {?}]', '[{"x"}, {}]', '"x"', "4x4")), X):
        assert result.shape == (8, 4)


def test_groups_by_the_axes_of_a_mesh() -> None:
    text = """module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.partition_id : tensor<ui32>
    %1 = stablehlo.convert %0 : (tensor<ui32>) -> tensor<f32>
    %2 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %3 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
}"""
    assert on_all(hk.parse(text), 0.0) == [2.0, 4.0, 2.0, 4.0]


def test_replicas_of_partitions() -> None:
    text = region('["x"=2]', '[{"x"}, {}]', '[{"x"}, {}]', '"x"', "4x4")
    text = text.replace("module {", "module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} {")
    results = hk.evaluate(hk.parse(text), *([X + 100 * r] for r in (0, 0, 1, 1)))
    for device, result in enumerate(results):
        assert np.array_equal(result, X + 100 * (device // 2) + np.repeat([0, 1], 4)[:, None])


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('[{"x"}, {}]>] out', '[{"z"}, {}]>] out', hk.ParseError, "z"),
        ('[{"x"}, {}]>] out', '[{"z":(1)2}, {}]>] out', hk.ParseError, "z"),
        ('[{"x"}, {}]>] out', '[{"x":(3)2}, {}]>] out', hk.ParseError, "axis"),
        ("in_shardings=[<@mesh", "in_shardings=[<@other", hk.ParseError, "other"),
        ('"x"=4', '"x"=3', hk.UnsupportedError, "3 parts"),
        ('"x"=4', '"x"=8', hk.ParseError, "the type"),
        ('"x"=4', '"x"=99999999', hk.ParseError, "mesh"),
        ('["x"=4]', '["x"=4], device_ids=[0, 0, 1, 2]', hk.ParseError, "device_ids"),
        ('[{"x"}, {}]>] out', '[{"x"}, {"x"}]>] out', hk.ParseError, "the type"),
        ('[{"x"}, {}]>] out', '[{"x", "x"}, {}]>] out', hk.ParseError, "axes"),
        ("module {", "module attributes {mhlo.num_partitions = 2 : i32} {", hk.ParseError, "mesh of 4"),
        ("in_shardings=[<@mesh", "in_shardings=[<@mesh, []>, <@mesh", hk.ParseError, "2 shardings for 1"),
    ],
)
def test_what_does_not_fit(old: str, new: str, error: type[Exception], message: str) -> None:
    text = region('["x"=4]', '[{"x"}, {}]', '[{"x"}, {}]', '"x"', "2x4")
    assert old in text
    with pytest.raises(error, match=message):
        hk.parse(text.replace(old, new, 1))
