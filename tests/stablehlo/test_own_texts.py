"""What the files of StableHLO's and Shardy's own tests found, and the command that reads them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hlokit as hk
from tests.stablehlo.own_texts import Program, answer, programs_of, table

REGION = """({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %sum = stablehlo.add %a, %b : tensor<f64>
      stablehlo.return %sum : tensor<f64>
  })"""
SELECT = """({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %ge : tensor<i1>
  }, """
X = np.array([1, 2**24, 1, 1], np.float32)
WIDE = float(2**24 + 3)
"""The sum of X, which f32 cannot hold."""


def program(operation: str, result: str, arguments: str = "%x: tensor<4xf32>") -> str:
    return f"""func.func @main({arguments}) -> {result} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<1xf32>
  %index = stablehlo.constant dense<0> : tensor<4x1xi32>
  %0 = {operation}
  return %0 : {result}
}}"""


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        (f'"stablehlo.reduce"(%x, %zero) {REGION} {{dimensions = array<i64: 0>}} : (tensor<4xf32>, tensor<f32>) -> tensor<f64>', "tensor<f64>", WIDE),
        (f'"stablehlo.reduce_window"(%x, %zero) {REGION} {{window_dimensions = array<i64: 4>}} : (tensor<4xf32>, tensor<f32>) -> tensor<1xf64>', "tensor<1xf64>", [WIDE]),
        (f'"stablehlo.scatter"(%zeros, %index, %x) {REGION} {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : (tensor<1xf32>, tensor<4x1xi32>, tensor<4xf32>) -> tensor<1xf64>', "tensor<1xf64>", [WIDE]),
        (f'"stablehlo.select_and_scatter"(%x, %x, %zero) {SELECT}{REGION[1:]} {{window_dimensions = array<i64: 2>, padding = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf64>', "tensor<4xf64>", [0, WIDE - 2, 1, 1]),
    ],
    ids=["reduce", "reduce_window", "scatter", "select_and_scatter"],
)  # fmt: skip
def test_reductions_in_a_wider_type(operation: str, result: str, expected: object) -> None:
    module = hk.parse(program(operation, result))
    for found in (hk.evaluate(module, X), hk.compile(module)(X)):
        assert np.asarray(found).dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_collectives_in_a_wider_type() -> None:
    groups = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
    heads = {
        "all_reduce": (groups, "tensor<4xf64>"),
        "reduce_scatter": (f"scatter_dimension = 0 : i64, {groups}", "tensor<2xf64>"),
        "collective_reduce": (groups, "tensor<4xf64>"),
    }
    for name, (attributes, result) in heads.items():
        text = program(f'"stablehlo.{name}"(%x) {REGION} {{{attributes}}} : (tensor<4xf32>) -> {result}', result)
        module = hk.parse(f"module @m attributes {{mhlo.num_replicas = 2 : i32}} {{\n{text}\n}}")
        first, _ = hk.evaluate(module, [X], [np.ones_like(X)])
        assert first.dtype == np.float64 and first[1] == 2.0**24 + 1, name


@pytest.mark.parametrize(
    ("operation", "match"),
    [
        ('"stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1, 2]]> : tensor<1x3xi64>} : (tensor<4xf32>) -> tensor<4xf32>', "source_target_pairs is not a list of pairs"),
        ("stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<atol = 1.0, mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<4xf32>", "mode HIGHEST has tolerances"),
        ("stablehlo.custom_call @f(%x) {operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<4xf32>) -> tensor<4xf32>", "not an order of the dimensions"),
        ("stablehlo.custom_call @f(%x) {operand_layouts = [], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<4xf32>) -> tensor<4xf32>", "operand_layouts are 0, for 1 values"),
        ("stablehlo.dot %x, %x, precision = [DEFAULT, DEFAULT, HIGH] : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>", "at most 2 elements"),
        ("stablehlo.rng %zero, %zero, %index, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<4x1xi32>) -> tensor<4xf32>", "the sizes are a vector"),
    ],
)  # fmt: skip
def test_what_stablehlos_verifier_refuses(operation: str, match: str) -> None:
    with pytest.raises(hk.ParseError, match=match):
        hk.parse(program(operation, "tensor<4xf32>"))


@pytest.mark.parametrize("name", ["", "plain", "a.b.", "1.b", "a b.c"])
def test_composites_have_names_with_a_namespace(name: str) -> None:
    text = program(f'stablehlo.composite "{name}" %x {{decomposition = @f}} : (tensor<4xf32>) -> tensor<4xf32>', "tensor<4xf32>")  # fmt: skip
    text += "\nfunc.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    with pytest.raises(hk.ParseError, match="not a name with a namespace"):
        hk.parse(text)


def test_checks_read_back_are_as_strict() -> None:
    text = """func.func @main(%x: tensor<f32>) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  check.expect_almost_eq %x, %one : tensor<f32>
  return
}"""
    again = hk.to_stablehlo(hk.parse(text))
    assert hk.to_stablehlo(hk.parse(again)) == again
    for module in (hk.parse(text), hk.parse(again)):
        with pytest.raises(hk.EvaluationError, match="line 3"):
            hk.evaluate(module, np.float32(1.0005))


def test_terms_of_a_sum_are_summed_once() -> None:
    text = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], unreduced={"x"}>}) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}"""
    terms = [np.array([1, 2], np.float32)], [np.array([10, 20], np.float32)]
    module = hk.parse(text)
    again = hk.parse(hk.to_stablehlo(module))
    for each in (module, again):
        np.testing.assert_array_equal(hk.evaluate(each, *terms)[0], [11, 22])
    assert "unreduced" not in hk.to_stablehlo(module)


def test_other_forms_that_are_read() -> None:
    module = hk.parse(program("chlo.conj %x : tensor<4xf32> -> tensor<4xf32>", "tensor<4xf32>"))
    np.testing.assert_array_equal(hk.evaluate(module, X), X)
    like = hk.parse(program('"chlo.constant_like"(%x) {value = 3.5 : f64} : (tensor<4xf32>) -> tensor<4xf64>', "tensor<4xf64>"))
    np.testing.assert_array_equal(hk.evaluate(like, X), np.full(4, 3.5))
    bounded = hk.parse("func.func @main(%x: tensor<?x?xf32, #stablehlo.type_extensions<bounds = [3, 2]>>) -> tensor<f32> {\n  %0 = stablehlo.constant dense<0.0> : tensor<f32>\n  return %0 : tensor<f32>\n}")
    assert str(bounded.entry.parameters[0].shape.logical) == "f32[<=3,<=2]"
    with pytest.raises(hk.HlokitError, match="unknown size"):
        hk.parse("func.func @main(%x: tensor<?x?xf32, #stablehlo.type_extensions<bounds = [3, ?]>>) {\n  return\n}")
    narrow = hk.parse("func.func @main(%x: tensor<1x2xi4>) -> tensor<1x1xi8> {\n  %y = stablehlo.reshape %x : (tensor<1x2xi4>) -> tensor<2x1xi4>\n  %0 = stablehlo.einsum %x, %y, config = \"ab,bc->ac\" : (tensor<1x2xi4>, tensor<2x1xi4>) -> tensor<1x1xi8>\n  return %0 : tensor<1x1xi8>\n}")
    assert hk.evaluate(narrow, np.array([[7, 7]], np.int8).astype(hk.s4.numpy)).tolist() == [[98]]


SOURCE = """// RUN: stablehlo-opt %s
sdy.mesh @mesh = <["x"=2]>
func.func @a(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @b(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @b(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
// -----
func.func @bad(%x: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{types}}
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<f32>
}
// -----
func.func @open(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }
func.func @other() {
  "scf.yield"() : () -> ()
}
func.func @wrong(%x: tensor<f32>) { return %y : tensor<f32> }
"""


def test_programs_of_files_and_their_classes() -> None:
    found = list(programs_of("tests", "file", SOURCE))
    assert [p.name for p in found] == ["file.0.a", "file.1", "file.2.open", "file.2.other", "file.2.wrong"]
    classes = [answer(p)[0] for p in found]
    assert classes == ["same", "refused", "sizes", "dialects", "not read"]
    accepted = Program("tests", "x", "func.func @main() {\n  return // expected-error\n}", True)
    assert answer(accepted) == ("accepted", "expected-error")
    assert table({"tests": Counter(classes)})[2] == "| tests | 1 | 1 | 1 | 1 | 1 |"
