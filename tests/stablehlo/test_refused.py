"""What StableHLO's own verifier refuses, rule by rule, each beside a program that keeps to it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import hlokit as hk

Q = "!quant.uniform<i8:f32, 0.5:3>"
ZERO = "!quant.uniform<i8:f32, 0.5>"
SHORT = "!quant.uniform<i16:f32, 0.5>"
HALF = "!quant.uniform<i8:bf16, 0.5>"


def axis(number: int, scales: str = "0.5, 2.0") -> str:
    return f"!quant.uniform<i8:f32:{number}, {{{scales}}}>"


@dataclass
class Refused:
    """An operation whose types stand for letters in it: with `right` it is read, with `wrong` refused."""

    operation: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    message: str

    def program(self, types: tuple[str, ...]) -> str:
        *operands, result = types
        listed = ", ".join(f"%{'abc'[i]}: {t}" for i, t in enumerate(operands))
        signature = f"({', '.join(operands)}) -> {result}"
        return f"func.func @main({listed}) -> {result} {{\n  %r = {self.operation} : {signature}\n  return %r : {result}\n}}"


def tensors(*elements: str) -> tuple[str, ...]:
    """Matrices of 2x2 of these elements."""
    return tuple(f"tensor<2x2x{e}>" for e in elements)


ADD = '"stablehlo.add"(%a, %b)'
DOT = "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"
CONVOLUTION = "stablehlo.convolution(%a, %b) dim_numbers = [b, f]x[i, o]->[b, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
TYPES = [
    Refused('"stablehlo.abs"(%a)', tensors(Q, Q), tensors(axis(0), axis(0)), "takes one scale for all elements"),
    Refused('"stablehlo.multiply"(%a, %b)', tensors(Q, Q, Q), tensors(Q, Q, axis(1)), "takes one scale for all elements"),
    Refused('"stablehlo.uniform_quantize"(%a)', tensors("f32", Q), tensors("f64", Q), "the operand for f64"),
    Refused('"stablehlo.uniform_quantize"(%a)', tensors(Q, ZERO), tensors(Q, HALF), "the result stands for bf16"),
    Refused(ADD, tensors(Q, ZERO, Q), tensors(Q, ZERO, "f32"), "all quantised, or none"),
    Refused(ADD, tensors(axis(0), axis(0), axis(0)), tensors(Q, Q, SHORT), "storage or expressed types"),
    Refused(ADD, tensors(Q, Q, ZERO), tensors(Q, Q, HALF), "storage or expressed types"),
    Refused(ADD, tensors(Q, Q, axis(0)), tensors(Q, axis(0), Q), "the result has one for all"),
    Refused(ADD, tensors(axis(1), Q, axis(1)), tensors(axis(1), axis(0), axis(1)), "another dimension than the result"),
    Refused(DOT, tensors(Q, ZERO, Q), tensors("f32", ZERO, Q), "either both or neither"),
    Refused(DOT, tensors("f32", ZERO, "f32"), tensors("f32", Q, "f32"), "zero points of rhs are 0"),
    Refused(DOT, tensors(Q, axis(1), axis(1)), tensors(Q, axis(0), axis(1)), "contracting dimension 0"),
    Refused(DOT, tensors(Q, ZERO, Q), tensors(SHORT, ZERO, Q), "storage types of lhs and rhs differ: s16 and s8"),
    Refused(DOT, tensors(Q, ZERO, Q), tensors(Q, HALF, Q), "rhs stands for bf16, lhs and result for f32 and f32"),
    Refused(DOT, tensors("f32", ZERO, "f32"), tensors("f32", HALF, "f32"), "rhs stands for bf16"),
    Refused(DOT, tensors(Q, axis(1), axis(1)), tensors(Q, ZERO, axis(1)), "the result one for each index"),
    Refused(CONVOLUTION, tensors(Q, Q, Q), tensors("f32", Q, Q), "either both or neither"),
    Refused(CONVOLUTION, tensors(Q, axis(1), axis(1)), tensors(Q, axis(0), axis(1)), "than its output features"),
    Refused(CONVOLUTION, tensors(Q, axis(1), Q), tensors(Q, axis(1), axis(0)), "than its features"),
    Refused(CONVOLUTION, tensors("f32", "f32", "f32"), tensors("f32", "bf16", "f32"), "element types of lhs and rhs differ"),
    Refused(
        '"stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}',
        tensors(Q, Q), tensors(axis(0), axis(0)), "takes one scale for all elements",
    ),
    Refused('"stablehlo.negate"(%a)', tensors(Q, ZERO), tensors(Q, axis(1)), "takes one scale for all elements"),
]  # fmt: skip


@pytest.mark.parametrize("case", TYPES, ids=lambda case: f"{case.operation.split()[0]} {case.message}")
def test_types(case: Refused) -> None:
    hk.verify(hk.parse(case.program(case.right)))
    with pytest.raises(hk.ParseError, match=case.message):
        hk.parse(case.program(case.wrong))


@pytest.mark.parametrize("scale", ["1.0e5", "4.9e-8"])
def test_a_scale_is_one_of_the_expressed_type_s_numbers(scale: str) -> None:
    text = f"func.func @main(%a: tensor<2x!quant.uniform<i4:f16, {scale}>>) {{\n  return\n}}"
    with pytest.raises(hk.ParseError, match="a scale is out of the range of f16"):
        hk.parse(text)


SCAN = """%0:2 = "chlo.scan"(%a, %b) <{dimension = 0 : i64, scan_dim_size = 2 : i64, operandSegmentSizes = array<i32: 1, 1>}> ({
^bb0(%x: tensor<3xf32>, %c: tensor<3xf32>):
  %s = stablehlo.add %x, %c : tensor<3xf32>
  stablehlo.return %s, %s : tensor<3xf32>, tensor<3xf32>
}) : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)"""
REDUCED = """"stablehlo.all_reduce"(%x) ({
  ^bb1(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>"""
ASYNC = f"""%r = "stablehlo.async_start"(%a) ({{
^bb0(%x: tensor<4xf32>):
  %y = {REDUCED}
  stablehlo.return %y : tensor<4xf32>
}}) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>"""
GATHER = """%r = "stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1],
  operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,
  slice_sizes = array<i64: 1, 1, 8>} : (tensor<2x4x9xi32>, tensor<2x5x1xi32>) -> tensor<2x5x8xi32>"""
CALL = '%r = "stablehlo.custom_call"(%a) {call_target_name = "f", MORE} : (tensor<2xf32>) -> tensor<2xf32>'
LAYOUTS = "operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>"
ATTRIBUTES = [
    (
        "tensor<4x16xf32>",
        '%r = "stablehlo.all_to_all"(%a) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, '
        "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4x16xf32>) -> tensor<16x4xf32>",
        "dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>", "dense<0> : tensor<0x2xi64>", "groups of 2 devices",
    ),
    (
        "tensor<4xf32>",
        '%r = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>',
        "dense<[[0, 1]]> : tensor<1x2xi64>", "dense<[0, 1]> : tensor<2xi64>", "is not a matrix",
    ),
    (
        "tensor<4x4xf32>, %b: tensor<4x4xf32>",
        '%r = "stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true, unit_diagonal = true, transpose_a = '
        "#stablehlo<transpose ADJOINT>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "ADJOINT", "TRANSPOSE_INVALID", "transpose_a",
    ),
    (
        "tensor<f32>, %b: tensor<f32>",
        '%r = "stablehlo.rng"(%a, %b, %size) {rng_distribution = #stablehlo<rng_distribution NORMAL>} : '
        "(tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<7xf32>",
        "tensor<7xf32>", "tensor<12xf32>", r"the sizes are \[7\]",
    ),
    ("tensor<2x3xf32>, %b: tensor<3xf32>", SCAN, "scan_dim_size = 2", "scan_dim_size = 3", "scan_dim_size is 3"),
    ("tensor<4xf32>", ASYNC, REDUCED, '"stablehlo.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>', "a collective or a slice"),
    ("tensor<4xf32>", ASYNC, "  stablehlo.return %y ", f"  %z = {REDUCED}\n  stablehlo.return %z ", "a collective or a slice"),
    ("tensor<2x4x9xi32>, %b: tensor<2x5x1xi32>", GATHER, "start_index_map = [1]", "start_index_map = [0]", "in start_index_map and in"),
    (
        "tensor<1x2xi64>", '%r = "chlo.constant_like"(%a) {value = 3 : i32} : (tensor<1x2xi64>) -> tensor<1x2xi32>',
        "3 : i32", "3.2 : f32", "is not of the result's type s32",
    ),
    ("tensor<2xf32>", CALL.replace("MORE", LAYOUTS), ", result_layouts = [dense<0> : tensor<1xindex>]", "", "for operands and results"),
    (
        "tensor<2xf32>", CALL.replace("MORE", 'api_version = 3 : i32, backend_config = "x"'),
        '"x"', "{x = 1 : i32}", "api_version 3 is a string",
    ),
    (
        "tensor<2xf32>", CALL.replace("MORE", "api_version = 4 : i32, backend_config = {x = 1 : i32}"),
        "{x = 1 : i32}", '"x"', "api_version 4 is a dictionary",
    ),
    (
        "!stablehlo.token", '%r:2 = "stablehlo.infeed"(%a) {layout = [[0, 1]]} : (!stablehlo.token) -> (tensor<3x3xi32>, !stablehlo.token)',
        "[[0, 1]]", "[[0, 1], [0]]", "layout is not a list of 1",
    ),
    (
        "!stablehlo.token", '%r:2 = "stablehlo.infeed"(%a) {layout = [[0, 1]]} : (!stablehlo.token) -> (tensor<3x3xi32>, !stablehlo.token)',
        "[[0, 1]]", "[0]", "layout is not a list of 1",
    ),
    (
        "!stablehlo.token", f'%r:2 = "stablehlo.recv"(%a) {{{CHANNEL.replace("2>", "1>")}}} : (!stablehlo.token) -> (tensor<3xi32>, !stablehlo.token)',
        "(tensor<3xi32>, !stablehlo.token)", "(!stablehlo.token, !stablehlo.token)", "gives arrays, and a token",
    ),
    (
        "tensor<2xi64>, %b: !stablehlo.token",
        f'%r = "stablehlo.send"(%a, %b) {{{CHANNEL}, is_host_transfer = true}} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token',
        "type = 2", "type = 1", "is not device_to_host",
    ),
    (
        "tensor<2x2xf32>, %b: tensor<2x2xf32>",
        "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, "
        "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
        "allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>",
        "lhs_component_count = 1", "lhs_component_count = 3", "several components",
    ),
    (
        "tensor<1x4x1xf32>, %b: tensor<3x1x1xf32>",
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x1xf32>, tensor<3x1x1xf32>) -> tensor<1x4x1xf32>",
        "[[1, 1]]", "[[1, 1, 1, 1]]", "two numbers, found 4",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "operation", "old", "new", "message"), ATTRIBUTES)
def test_attributes(arguments: str, operation: str, old: str, new: str, message: str) -> None:
    def read(text: str) -> hk.HloModule:
        size = "%size = stablehlo.constant dense<7> : tensor<1xi64>"
        return hk.parse(f"func.func @main(%a: {arguments}) {{\n  {size}\n  {text}\n  return\n}}")

    assert old in operation
    hk.verify(read(operation))
    with pytest.raises(hk.ParseError, match=message):
        read(operation.replace(old, new))


def test_a_bound_is_of_a_size_that_is_not_known() -> None:
    with pytest.raises(hk.ParseError, match="dimension 0 of size 3 has a bound"):
        hk.parse("func.func @main(%a: tensor<3xf32, #stablehlo.bounds<3>>) {\n  return\n}")


def test_select_and_scatter_has_a_window() -> None:
    text = """func.func @main(%a: tensor<4xf32>, %b: tensor<2xf32>, %c: tensor<f32>) -> tensor<4xf32> {
  %r = "stablehlo.select_and_scatter"(%a, %b, %c) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }, {
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>} : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}"""
    hk.verify(hk.parse(text))
    with pytest.raises(hk.ParseError, match="window_dimensions are 0"):
        hk.parse(text.replace("window_dimensions = array<i64: 2>, ", ""))
