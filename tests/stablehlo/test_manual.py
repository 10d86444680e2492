"""What devices run by themselves: jax.shard_map programs on values of the whole program, and meshes written by hand."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.interop.pjrt.propagation import shardings
from hlokit.passes.call_inliner import CallInliner
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


def unreduced(given: str, made: str, body: str, argument: str = "4x4", result: str = "4x4", mesh: str = '["x"=2, "y"=2]') -> str:
    return f"""module {{
  sdy.mesh @mesh = <{mesh}>
  func.func @main(%a: tensor<{argument}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {given}>}}) -> (tensor<{result}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {made}>}}) {{
    {body}
    return %r : tensor<{result}xf32>
  }}
}}"""


SUM = """%z = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>"""
ONE = """%z = stablehlo.constant dense<1.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>"""
LARGEST = SUM.replace("add", "maximum")
PRODUCT = "%r = stablehlo.dot_general %a, %a, contracting_dims = [0] x [1] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>"
LINEAR = """%b = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %c = stablehlo.subtract %b, %a : tensor<4x4xf32>
    %r = stablehlo.negate %c : tensor<4x4xf32>"""
TERMS = [
    ("[{}, {}]", "[{}], unreduced={\"x\"}", SUM, "4", lambda a: a.sum(0)),
    ("[{\"x\"}, {}]", "[{}], unreduced={\"x\"}", SUM, "4", lambda a: a.sum(0)),
    ("[{\"x\", \"y\"}, {}]", "[{}], unreduced={\"y\"}", SUM, "4", lambda a: a.sum(0)),
    ("[{\"y\", \"x\"}, {}]", "[{}], unreduced={\"y\", \"x\"}", SUM, "4", lambda a: a.sum(0)),
    ("[{\"x\"}, {}]", "[{}], unreduced={\"x\"}", ONE, "4", lambda a: a.sum(0) + 1),
    ("[{\"x\"}, {}]", "[{}], unreduced={\"x\"}", LARGEST, "4", lambda a: a.max(0)),
    ("[{\"x\"}, {}]", "[{}, {}], unreduced={\"x\"}", PRODUCT, "4x4", lambda a: (a @ a).T),
    ("[{}, {\"y\"}]", "[{}, {}], unreduced={\"x\", \"y\"}", PRODUCT, "4x4", lambda a: (a @ a).T),
    ("[{\"x\"}, {\"y\"}]", "[{}, {}], unreduced={\"x\", \"y\"}", LINEAR, "4x4", lambda a: a - a.T),
    ("[{}, {}], unreduced={\"x\"}", "[{}, {}], unreduced={\"y\"}", LINEAR, "4x4", lambda a: 2 * (a - a.T)),
    ("[{}, {}], unreduced={\"x\", \"y\"}", "[{}, {}], unreduced={\"x\"}", PRODUCT, "4x4", lambda a: 16 * (a @ a).T),
]


@pytest.mark.parametrize(("given", "made", "body", "sizes", "expected"), TERMS, ids=range(len(TERMS)))
def test_the_devices_terms_sum_up_to_the_value(given: str, made: str, body: str, sizes: str, expected: Any) -> None:
    """Each device has the same argument; where the program says that it is a term, it counts as often."""
    array = np.arange(16, dtype=np.float32).reshape(4, 4) + 1
    results = on_all(hk.parse(unreduced(given, made, body, result=sizes)), array)
    axes = tuple(i for i, name in enumerate("xy") if f'"{name}"' in made.partition("unreduced")[2])
    total = np.reshape(results, (2, 2, *results[0].shape)).sum(axes, keepdims=True)
    np.testing.assert_array_equal(total, np.broadcast_to(expected(array), total.shape))


def test_terms_along_a_part_of_an_axis() -> None:
    text = unreduced("[{}, {}]", '[{}, {}], unreduced={"x":(2)2}', LINEAR, mesh='["x"=4]')
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    results = on_all(hk.parse(text), array)
    for pair in (results[:2], results[2:]):
        assert np.array_equal(pair[0] + pair[1], array - array.T) and not pair[1].any()


def test_the_header_says_which_values_are_to_be_summed() -> None:
    module = hk.parse(unreduced('[{"y"}, {}], unreduced={"x"}', '[{}, {}], unreduced={"y"}', LINEAR))
    (parameter,) = module.entry.parameters
    assert str(parameter.extra.sharding) == "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={unreduced}}"
    expected = "{devices=[1,1,2,2]<=[2,2]T(1,0) last_tile_dims={unreduced, replicated}}"
    assert str(module.entry.root.extra.sharding) == expected


@pytest.mark.parametrize("place", ["given", "made", "constraint"])
def test_reductions_other_than_sums_are_refused(place: str) -> None:
    largest, plain = '[{}, {}], unreduced=max{"x"}', "[{}, {}]"
    body = f"%r = sdy.sharding_constraint %a <@mesh, {largest if place == 'constraint' else plain}> : tensor<4x4xf32>"
    text = unreduced(largest if place == "given" else plain, largest if place == "made" else plain, body)
    with pytest.raises(hk.UnsupportedError, match=r"unreduced=max.*only sums are supported"):
        hk.parse(text)


def test_an_unreduced_sharding_of_xla_on_a_conversion_to_shards_is_refused() -> None:
    text = """module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[1,2]<=[2] last_tile_dims={unreduced}}"} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}"""
    with pytest.raises(hk.UnsupportedError, match="unreduced"):
        hk.parse(text)


def test_a_constraint_on_the_result_of_a_call_stays_where_calls_are_inlined() -> None:
    """As jax.export's programs have it."""
    module = hk.parse("""module { sdy.mesh @mesh = <["x"=2]>
      func.func private @f(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
        %0 = stablehlo.negate %a : tensor<4x4xf32>
        return %0 : tensor<4x4xf32>
      }
      func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
        %0 = call @f(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
        %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"x"}]> : tensor<4x4xf32>
        return %1 : tensor<4x4xf32>
      } }""")
    CallInliner().run(module)
    assert str(shardings(module)[module.entry.root]) == "{devices=[1,2]<=[2]}"
