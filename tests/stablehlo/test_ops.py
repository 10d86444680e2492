"""Operations: texts that JAX wrote in both forms, and values of those that JAX seldom writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.compare import same_module
from hlokit.hlo.module import HloModule

_FORMS = Path(__file__).parents[1] / "data" / "stablehlo_forms.jsonl.gz"
FORMS = [json.loads(line) for line in gzip.decompress(_FORMS.read_bytes()).splitlines()]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def without_metadata(text: str) -> HloModule:
    module = hk.parse(text)
    for instruction in module.instructions():
        if instruction.extra is not None:
            instruction.extra.metadata = None
    return module


@pytest.mark.parametrize("forms", FORMS, ids=range(len(FORMS)))
def test_both_forms_of_what_jax_writes(forms: dict[str, str]) -> None:
    pretty, generic = without_metadata(forms["pretty"]), without_metadata(forms["generic"])
    hk.verify(pretty)
    assert same_module(pretty, generic, names=False) is None


_ADD = "({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32> })"


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        ('"stablehlo.map"(%x, %x) <{dimensions = array<i64: 0, 1>}> ' + _ADD, "tensor<2x3xf32>", 2 * X),
        ("stablehlo.broadcast %x, sizes = [2]", "tensor<2x2x3xf32>", np.stack([X, X])),
        ('stablehlo.einsum %x, %x, config = "ij,kj->ik"', "tensor<2x2xf32>", X @ X.T),
        ('"stablehlo.unary_einsum"(%x) <{einsum_config = "ij->j"}>', "tensor<3xf32>", X.sum(0)),
        ("stablehlo.torch_index_select %x, %i, dim = 1, batch_dims = 0", "tensor<2x2xf32>", X[:, [2, 0]]),
        ("stablehlo.dynamic_pad %x, %z, %i, %i, %i", "tensor<?x?xf32>", None),
        ("stablehlo.real_dynamic_slice %x, %o, %l, %t", "tensor<?x?xf32>", X[0:2:1, 1:3:1]),
        ("stablehlo.dynamic_broadcast_in_dim %z, %l, dims = []", "tensor<?x?xf32>", np.zeros((2, 3), np.float32)),
        ("chlo.broadcast_subtract %x, %v", "tensor<2x3xf32>", X - X[0]),
        ("chlo.broadcast_compare %x, %v {comparison_direction = #chlo<comparison_direction GT>}", "tensor<2x3xi1>", X[0] < X),
        ("chlo.constant_like %x {value = 2.0 : f32}", "tensor<2x3xf32>", np.full((2, 3), 2, np.float32)),
        ('stablehlo.custom_call @mhlo.erf(%z) {mhlo.attributes = {}}', "tensor<f32>", np.float32(0)),
        ('stablehlo.custom_call @mhlo.topk(%v) {mhlo.attributes = {k = 2 : i64, largest = true}}', "tensor<2xf32>, tensor<2xi32>", None),
        ('"stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ' + _ADD, "tensor<2x3xf32>", X),
        ('"stablehlo.batch_norm_inference"(%x, %v, %v, %v, %w) <{epsilon = 0.0 : f32, feature_index = 1 : i64}>', "tensor<2x3xf32>", (X - X[0]) / np.sqrt(X[1]) * X[0] + X[0]),
    ],
)  # fmt: skip
def test_values(operation: str, result: str, expected: np.ndarray | None) -> None:
    names = {"x": "tensor<2x3xf32>", "v": "tensor<3xf32>", "w": "tensor<3xf32>", "z": "tensor<f32>"}
    names |= dict.fromkeys("iolt", "tensor<2xi64>")
    used = operation.partition("({")[0]
    types = [names[part[0]] for part in used.split("%")[1:]]
    count = result.count("tensor")
    bound = f"%r:{count}" if count > 1 else "%r"
    returned = ", ".join(f"%r#{i}" for i in range(count)) if count > 1 else "%r"
    text = f"""func.func @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>, %w: tensor<3xf32>) -> ({result}) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.constant dense<[2, 0]> : tensor<2xi64>
  %o = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
  %l = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %t = stablehlo.constant dense<1> : tensor<2xi64>
  {bound} = {operation} : ({", ".join(types)}) -> ({result})
  return {returned} : {result}
}}"""
    found = hk.evaluate(hk.parse(text), X, X[0], X[1])
    if expected is None:
        assert found is not None
    else:
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


def test_composites_keep_their_name() -> None:
    text = """module {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.composite "my.op" %x {composite_attributes = {s = 2 : i32}, decomposition = @f, version = 3 : i32} : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @f(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}"""
    root = hk.parse(text).entry.root
    assert root.op.is_composite
    assert root.extra.frontend_attributes == {
        "composite.name": "my.op",
        "composite.attributes": "{s = 2 : i32}",
        "composite.version": "3",
    }


def test_a_composite_for_top_k_is_topk() -> None:
    """The decomposition is not called, whatever it is: XLA does not look at it, either."""
    text = """module {
  func.func @main(%x: tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %0:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 2 : i64}, decomposition = @f, version = 1 : i32} : (tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>)
    return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>
  }
  func.func private @f(%x: tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %0 = stablehlo.slice %x [0:2] : (tensor<5xf32>) -> tensor<2xf32>
    %1 = stablehlo.constant dense<0> : tensor<2xi32>
    return %0, %1 : tensor<2xf32>, tensor<2xi32>
  }
}"""
    values, places = hk.evaluate(hk.parse(text), np.array([1, 5, 3, 5, 2], np.float32))
    assert values.tolist() == [5, 5] and places.tolist() == [1, 3]
    other = hk.parse(text.replace("version = 1", "version = 2"))
    assert hk.evaluate(other, np.array([1, 5, 3, 5, 2], np.float32))[0].tolist() == [1, 5]


@pytest.mark.parametrize(("one", "other"), [("f32", "bf16"), ("bf16", "f32"), ("f8E4M3FN", "f8E5M2"), ("f16", "bf16")])
def test_products_of_two_types(one: str, other: str) -> None:
    """Exact: small integers."""
    body = f"stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3x{one}>, tensor<3x2x{other}>)"
    module = hk.parse(f"""func.func @main(%a: tensor<2x3x{one}>, %b: tensor<3x2x{other}>) -> tensor<2x2xf32> {{
      %r = {body} -> tensor<2x2xf32>
      return %r : tensor<2x2xf32>
    }}""")
    a, b = (p.shape.dtype.numpy for p in module.entry.parameters)
    x, y = np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)
    for run in (hk.compile(module), lambda *v: hk.evaluate(module, *v)):
        np.testing.assert_array_equal(run(x.astype(a), y.astype(b)), x @ y)
