"""What StableHLO text may look like: forms, literals, locations, functions, errors."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk


def function(body: str, signature: str = "%x: tensor<2x3xf32>", result: str = "tensor<2x3xf32>") -> str:
    return f"module @m {{\n  func.func public @main({signature}) -> {result} {{\n{body}\n  }}\n}}\n"


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def value_of(text: str, *arguments: object) -> object:
    module = hk.parse(text)
    hk.verify(module)
    return hk.evaluate(module, *arguments)


def test_pretty_and_generic_forms_say_the_same() -> None:
    pretty = function(
        """    %c = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
    %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x2xf32>, tensor<f32>) -> tensor<3xf32>
    return %1 : tensor<3xf32>""",
        result="tensor<3xf32>",
    )
    generic = """"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<2x3xf32>) -> tensor<3xf32>, sym_name = "main"}> ({
  ^bb0(%x: tensor<2x3xf32>):
    %0 = "stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
    %2 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %3 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%3) : (tensor<f32>) -> ()
    }) : (tensor<3x2xf32>, tensor<f32>) -> tensor<3xf32>
    "func.return"(%2) : (tensor<3xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    for text in (pretty, generic):
        np.testing.assert_array_equal(value_of(text, X), X.sum(0))


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("dense<[[1, -2], [3, 4]]> : tensor<2x2xi8>", np.array([[1, -2], [3, 4]], np.int8)),
        ("dense<7> : tensor<3xui16>", np.full(3, 7, np.uint16)),
        ("dense<true> : tensor<2xi1>", np.array([True, True])),
        ("dense<[true, false]> : tensor<2xi1>", np.array([True, False])),
        ('dense<"0x05"> : tensor<4xi1>', np.array([True, False, True, False])),
        ('dense<"0x0000803F000000C0"> : tensor<2xf32>', np.array([1, -2], np.float32)),
        ("dense<0xFF800000> : tensor<f32>", np.float32(-np.inf)),
        ("dense<(1.0, -2.0)> : tensor<2xcomplex<f32>>", np.full(2, 1 - 2j, np.complex64)),
        ("dense<[(1.0, -2.0), (0.5, 3.0)]> : tensor<2xcomplex<f64>>", np.array([1 - 2j, 0.5 + 3j])),
        ("dense<> : tensor<0x2xf64>", np.zeros((0, 2))),
        ("dense_resource<weights> : tensor<2xf32>", np.array([1, -2], np.float32)),
    ],
)
def test_literals(literal: str, expected: np.ndarray) -> None:
    kind = literal.rpartition(" : ")[2]
    text = function(f"    %0 = stablehlo.constant {literal}\n    return %0 : {kind}", "", kind)
    text += (
        '{-#\n  dialect_resources: {\n    builtin: {\n      weights: "0x040000000000803F000000C0"\n    }\n  }\n#-}\n'
    )
    found = np.asarray(value_of(text))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_locations_become_metadata() -> None:
    text = """#loc1 = loc("x")
module @m {
  func.func public @main(%arg0: tensor<f32> loc("x")) -> tensor<f32> {
    %0 = stablehlo.sine %arg0 : tensor<f32> loc(#loc4)
    return %0 : tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("f.py":16:15 to :29)
#loc3 = loc(callsite(#loc2 at #loc1))
#loc4 = loc("jit(f)/sin"(#loc3))
"""
    metadata = hk.parse(text).entry.root.extra.metadata
    assert (metadata.op_name, metadata.source_file, metadata.source_line) == ("jit(f)/sin", "f.py", 16)


def test_functions_attributes_and_aliasing() -> None:
    text = """module @jit_f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=1]>
  func.func public @main(%arg0: tensor<4xf32> {tf.aliasing_output = 1 : i32, mhlo.sharding = "{devices=[2]<=[2]}"}, %arg1: tensor<4xf32> {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32> {jax.result_info = "a"}, tensor<4xf32>) {
    %0:2 = call @swap(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
  }
  func.func private @swap(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    return %arg1, %arg0 : tensor<4xf32>, tensor<4xf32>
  }
}"""
    module = hk.parse(text)
    assert (module.name, module.num_partitions) == ("jit_f", 2)
    assert [(a.output_index, a.parameter) for a in module.input_output_alias] == [((1,), 0)]
    assert module.buffer_donor == [(1, ())]
    shardings = [str(p.extra.sharding) for p in module.entry.parameters]
    assert shardings == ["{devices=[2]<=[2]}"] * 2


def test_regions_use_values_of_the_outside() -> None:
    text = function(
        """    %n = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %n, %s = %x) : tensor<i32>, tensor<2x3xf32>
    cond {
      %k = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %k, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = "stablehlo.case"(%i) ({
        %3 = stablehlo.add %s, %x : tensor<2x3xf32>
        stablehlo.return %3 : tensor<2x3xf32>
      }, {
        stablehlo.return %x : tensor<2x3xf32>
      }) : (tensor<i32>) -> tensor<2x3xf32>
      %4 = stablehlo.add %s, %2 : tensor<2x3xf32>
      stablehlo.return %1, %4 : tensor<i32>, tensor<2x3xf32>
    }
    return %0#1 : tensor<2x3xf32>"""
    )
    np.testing.assert_array_equal(value_of(text, X), X * 5)


def test_dynamic_operations_of_constant_sizes() -> None:
    text = function(
        """    %s = stablehlo.constant dense<[3, 2]> : tensor<2xi32>
    %0 = stablehlo.dynamic_reshape %x, %s : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    %1 = stablehlo.abs %0 : tensor<?x?xf32>
    %d = stablehlo.get_dimension_size %1, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %e = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
    %2 = stablehlo.dynamic_iota %e, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    return %2 : tensor<?xf32>""",
        result="tensor<?xf32>",
    )
    np.testing.assert_array_equal(value_of(text, X), np.arange(3, dtype=np.float32))


def test_bounded_dimensions() -> None:
    text = function(
        "    %0 = stablehlo.abs %x : tensor<?xf32, #stablehlo.bounds<5>>\n"
        "    return %0 : tensor<?xf32, #stablehlo.bounds<5>>",
        "%x: tensor<?xf32, #stablehlo.bounds<5>>",
        "tensor<?xf32, #stablehlo.bounds<5>>",
    )
    assert str(hk.parse(text).program_shape.result) == "f32[<=5]"


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("    %0 = stablehlo.add %x, %y : tensor<2x3xf32>\n    return %0 : tensor<2x3xf32>", 3, "%y is not defined"),
        ("    %0 = stablehlo.sine %x : tensor<2x4xf32>\n    return %0 : tensor<2x4xf32>", 3, "the value has f32[2,3]"),
        ("    %0 = stablehlo.transpose %x, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>\n    return %0 : tensor<2x2xf32>", 3, "permutation"),
        ("    %0 = stablehlo.sine %x : tensor<2x3xf32>", 2, "without a return"),
        ("    %0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>\n    return %x : tensor<2x3xf32>", 3, "sizes [2]"),
        ("    return %x : tensor<2x3xf32", 4, "expected '>'"),
        ("    %0 = stablehlo.sine %x : tensor<2x3xf32>\n    %0 = stablehlo.sine %x : tensor<2x3xf32>\n    return %0 : tensor<2x3xf32>", 4, "defined twice"),
        ("    %0 = call @main(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n    return %0 : tensor<2x3xf32>", 2, "calls itself"),
    ],
)  # fmt: skip
def test_errors_show_the_place(body: str, line: int, message: str) -> None:
    with pytest.raises(hk.ParseError) as raised:
        hk.parse(function(body))
    assert message in str(raised.value)
    assert raised.value.line == line and "^" in str(raised.value)


@pytest.mark.parametrize(
    ("body", "signature", "message"),
    [
        ("    %0 = stablehlo.tracks %x : tensor<2x3xf32>\n    return %x : tensor<2x3xf32>", "%x: tensor<2x3xf32>", "line 3: stablehlo.tracks"),
        ("    return %x : tensor<2x3xf32>", "%x: tensor<2x?xf32>", "line 2: func.func @main: argument 0"),
        ("    %0 = stablehlo.uniform_dequantize %x : (tensor<2x!quant.any<i8:f32>>) -> tensor<2xf32>\n    return %0 : tensor<2xf32>", "%x: tensor<2x!quant.any<i8:f32>>", "quant.any<i8:f32>"),
    ],
)  # fmt: skip
def test_unsupported_is_named(body: str, signature: str, message: str) -> None:
    with pytest.raises(hk.UnsupportedError, match="line") as raised:
        hk.parse(function(body, signature))
    assert message in str(raised.value)


_DEEP = (
    "return %x : " + "tuple<" * 10_000,
    "return %x : tensor<" + "complex<" * 10_000,
    '"stablehlo.case"(%x) ' + '({ "stablehlo.case"(%x) ' * 10_000,
    '"stablehlo.abs"(%x) {a = ' + "[" * 10_000,
    '"stablehlo.abs"(%x) {a = ' + "#stablehlo.a<b = " * 10_000 + ">" * 10_000,
    "%0 = stablehlo.constant dense<" + "[" * 10_000 + "]" * 10_000 + "> : tensor<1xf32>",
)


@pytest.mark.parametrize("body", _DEEP, ids=range(len(_DEEP)))
def test_deep_nesting_is_an_error(body: str) -> None:
    with pytest.raises(hk.ParseError, match="deep"):
        hk.parse(function(body))


def test_calls_do_not_nest() -> None:
    calls = "".join(
        f"  func.func private @f{i}(%x: tensor<f32>) -> tensor<f32> {{\n"
        f"    %0 = call @f{i + 1}(%x) : (tensor<f32>) -> tensor<f32>\n    return %0 : tensor<f32>\n  }}\n"
        for i in range(500)
    )
    last = "  func.func private @f500(%x: tensor<f32>) -> tensor<f32> {\n    return %x : tensor<f32>\n  }\n"
    main = "  func.func @main(%x: tensor<f32>) -> tensor<f32> {\n    %0 = call @f0(%x) : (tensor<f32>) -> tensor<f32>\n    return %0 : tensor<f32>\n  }\n"
    assert len(hk.parse(f"module {{\n{main}{calls}{last}}}").all_computations) == 502


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ('callsite("f"("f.py":3:1) at ', ")"),
        ("callsite(", ' at "f")'),
        ('"f"(', ")"),
        ("fused[", ', "f"]'),
        ('fused<{a = [1]}>["f", ', "]"),
    ],
)
def test_locations_are_as_deep_as_call_stacks(opening: str, closing: str) -> None:
    place = opening * 10_000 + '"g.py":7:1' + closing * 10_000
    text = f"""func.func @main(%a: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.sine %a : tensor<f32> loc({place})
  return %0 : tensor<f32>
}}"""
    metadata = hk.parse(text).entry.root.extra.metadata
    assert {"f.py": 3, "g.py": 7, "": 0}[metadata.source_file] == metadata.source_line
    with pytest.raises(hk.ParseError):
        hk.parse(text.replace(closing * 10_000, closing * 9_999))


def test_frontend_attributes_of_several_results() -> None:
    """They are the tuple's and its elements', as in XLA."""
    module = hk.parse(
        """module { func.func public @main(%x: tensor<2x3xf32>) -> tensor<2xf32> {
      %0:2 = stablehlo.custom_call @f(%x) {api_version = 4 : i32, backend_config = {},
        mhlo.frontend_attributes = {num_batch_dims = "1"}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)
      return %0#1 : tensor<2xf32> } }"""
    )
    call = module.entry.root.operands[0]
    for instruction in (call, module.entry.root):
        assert instruction.extra is not None and instruction.extra.frontend_attributes == {"num_batch_dims": "1"}
    assert call.extra is not None and call.extra.backend_config == "{}"


def test_operations_of_other_dialects() -> None:
    """arith.constant of a tensor is a constant; what else stands there is named."""
    text = """func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
      %c = arith.constant {name = "c"} dense<[1, 2]> : tensor<2xi32>
      %r = OP
      return %r : tensor<2xi32> }"""
    module = hk.parse(text.replace("OP", "stablehlo.add %x, %c : tensor<2xi32>"))
    assert hk.evaluate(module, np.int32([10, 20])).tolist() == [11, 22]
    with pytest.raises(hk.UnsupportedError, match=r"line 3: arith\.addi is not an operation of StableHLO"):
        hk.parse(text.replace("OP", "arith.addi %x, %c : tensor<2xi32>"))
    with pytest.raises(hk.HlokitError, match=r"arith\.constant: the value is not a dense"):
        hk.parse(text.replace("dense<[1, 2]> : tensor<2xi32>", "1 : index").replace("OP", "stablehlo.add %x, %x : tensor<2xi32>"))


def test_layouts_of_a_custom_call_without_results() -> None:
    """Portable bytecode leaves out the empty list of layouts of no results or no operands; of values, both are given."""
    text = """func.func @main(%x: tensor<2x3xi32>) -> tensor<2x3xi32> {
      stablehlo.custom_call @f(%x) {api_version = 4 : i32, has_side_effect = true, LAYOUTS} : (tensor<2x3xi32>) -> RESULT
      return %x : tensor<2x3xi32> }"""
    layouts = "operand_layouts = [dense<[0, 1]> : tensor<2xindex>]"
    module = hk.parse(text.replace("LAYOUTS", layouts).replace("RESULT", "()"))
    assert "operand_layout_constraints={s32[2,3]{0,1}}" in str(module)
    with pytest.raises(hk.HlokitError, match="layouts are given for operands and results, or for neither"):
        hk.parse(text.replace("LAYOUTS", layouts).replace("RESULT", "tensor<2xi32>").replace("stablehlo.c", "%r = stablehlo.c"))
