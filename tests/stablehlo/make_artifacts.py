"""Makes tests/data/artifacts: what jaxlib serialises, for tests without it: python -m tests.stablehlo.make_artifacts.

Texts with locations, each with its artifacts: for the oldest version that has its operations, for the newest, and as
plain MLIR bytecode. The texts are those of stablehlo_forms.jsonl.gz, one for each operation below, and JAX functions
on several devices. `newer` as an argument makes newer.jsonl.gz of NEWER instead, with a jaxlib of 2026.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.stablehlo.test_ops import FORMS

ARTIFACTS = Path(__file__).parents[1] / "data" / "artifacts" / "artifacts.jsonl.gz"
NEWER_ARTIFACTS = ARTIFACTS.with_name("newer.jsonl.gz")
VERSIONS = ("0.9.0", "0.17.0", "0.19.0", "1.0.0", "1.8.0")
ADD = (
    "({ ^bb0(%aa: tensor<f32>, %bb: tensor<f32>): %ss = stablehlo.add %aa, %bb : tensor<f32> "
    "stablehlo.return %ss : tensor<f32> })"
)
OPERATIONS = (
    '"stablehlo.after_all"(%t0, %t0) : (!stablehlo.token, !stablehlo.token) -> !stablehlo.token',
    '"stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, use_global_device_ids}> : (tensor<2x3xf32>) -> tensor<4x3xf32>',
    '"stablehlo.all_gather"(%x, %v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<6xf32>)',
    '"stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}> ADD : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<1x6xf32>',
    '"stablehlo.batch_norm_grad"(%x, %v, %v, %v, %y) <{epsilon = 0.001 : f32, feature_index = 1 : i64}> : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)',
    '"stablehlo.batch_norm_inference"(%x, %v, %v, %v, %v) <{epsilon = 0.1 : f32, feature_index = 1 : i64}> : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.batch_norm_training"(%x, %v, %v) <{epsilon = 0.1 : f32, feature_index = 1 : i64}> : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)',
    '"stablehlo.broadcast"(%x) <{broadcast_sizes = array<i64: 4>}> : (tensor<2x3xf32>) -> tensor<4x2x3xf32>',
    '"stablehlo.cholesky"(%m) <{lower = true}> : (tensor<3x3xf32>) -> tensor<3x3xf32>',
    '"stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.cross-replica-sum"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.reduce_scatter"(%x) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, use_global_device_ids}> ADD : (tensor<2x3xf32>) -> tensor<1x3xf32>',
    '"stablehlo.partition_id"() : () -> tensor<ui32>',
    '"stablehlo.replica_id"() : () -> tensor<ui32>',
    '"stablehlo.einsum"(%x, %x) <{einsum_config = "ij,kj->ik"}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>',
    '"stablehlo.unary_einsum"(%x) <{einsum_config = "ij->j"}> : (tensor<2x3xf32>) -> tensor<3xf32>',
    '"stablehlo.get_dimension_size"(%x) <{dimension = 1 : i64}> : (tensor<2x3xf32>) -> tensor<i32>',
    '"stablehlo.set_dimension_size"(%x, %n) <{dimension = 1 : i64}> : (tensor<2x3xf32>, tensor<i32>) -> tensor<2x?xf32, #stablehlo.bounds<?, 3>>',
    '"stablehlo.if"(%p) ({ stablehlo.return %x : tensor<2x3xf32> }, { stablehlo.return %y : tensor<2x3xf32> }) : (tensor<i1>) -> tensor<2x3xf32>',
    '"stablehlo.case"(%n) ({ stablehlo.return %x : tensor<2x3xf32> }, { stablehlo.return %y : tensor<2x3xf32> }, { %w = stablehlo.add %x, %y : tensor<2x3xf32> stablehlo.return %w : tensor<2x3xf32> }) : (tensor<i32>) -> tensor<2x3xf32>',
    '"stablehlo.infeed"(%t0) <{infeed_config = "conf", layout = [[0, 1]]}> : (!stablehlo.token) -> (tensor<2x3xf32>, !stablehlo.token)',
    '"stablehlo.outfeed"(%x, %t0) <{outfeed_config = "conf"}> : (tensor<2x3xf32>, !stablehlo.token) -> !stablehlo.token',
    '"stablehlo.send"(%x, %t0) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true}> : (tensor<2x3xf32>, !stablehlo.token) -> !stablehlo.token',
    '"stablehlo.recv"(%t0) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<3x4xi32>, !stablehlo.token)',
    '"stablehlo.logistic"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.exponential"(%x) <{result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, rtol = 0.5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.tanh"(%x) <{result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ADD : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.rng"(%s, %s, %z0) <{rng_distribution = #stablehlo<rng_distribution NORMAL>}> : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x3xf32>',
    '"stablehlo.torch_index_select"(%x, %i) <{dim = 1 : i64, batch_dims = 0 : i64}> : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2x2xf32>',
    '"stablehlo.tuple"(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tuple<tensor<2x3xf32>, tensor<3xf32>>',
    '"stablehlo.get_tuple_element"(%tu) <{index = 1 : i32}> : (tuple<tensor<2x3xf32>, tensor<3xf32>>) -> tensor<3xf32>',
    '"stablehlo.dynamic_iota"(%z0) <{iota_dimension = 1 : i64}> : (tensor<2xi64>) -> tensor<?x?xi32>',
    '"stablehlo.dynamic_reshape"(%x, %z1) : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?x?xf32>',
    '"stablehlo.dynamic_broadcast_in_dim"(%v, %z0) <{broadcast_dimensions = array<i64: 1>, known_expanding_dimensions = array<i64>, known_nonexpanding_dimensions = array<i64: 0>}> : (tensor<3xf32>, tensor<2xi64>) -> tensor<?x?xf32>',
    '"stablehlo.dynamic_pad"(%x, %s, %z0, %z0, %z0) : (tensor<2x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>',
    '"stablehlo.real_dynamic_slice"(%x, %zz, %z0, %zo) : (tensor<2x3xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>',
    '"stablehlo.dynamic_gather"(%x, %i, %z2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true}> : (tensor<2x3xf32>, tensor<2xi32>, tensor<2xi64>) -> tensor<2x3xf32>',
    '"stablehlo.dynamic_conv"(%im, %k, %pp) <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, window_strides = array<i64: 2, 1>}> : (tensor<1x4x4x1xf32>, tensor<2x2x1x1xf32>, tensor<2x2xi64>) -> tensor<1x2x5x1xf32>',
    '"stablehlo.convolution"(%im, %k) <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, window_strides = array<i64: 2, 1>, padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 2>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: true, false>, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGHEST>]}> : (tensor<1x4x4x1xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x7x1xf32>',
    '"stablehlo.dot_general"(%x, %m) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false>}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.dot_general"(%x, %m) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.dot"(%x, %m) : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.dot"(%x, %m) <{precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.fft"(%c) <{fft_type = #stablehlo<fft_type IFFT>, fft_length = array<i64: 3>}> : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xcomplex<f32>>',
    '"stablehlo.triangular_solve"(%m, %m) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose ADJOINT>}> : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>',
    '"stablehlo.reduce_window"(%d, %s) <{window_dimensions = array<i64: 2, 2>}> ADD : (tensor<4x4xf32>, tensor<f32>) -> tensor<3x3xf32>',
    '"stablehlo.reduce_window"(%d, %s) <{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 1>, base_dilations = array<i64: 1, 2>, window_dilations = array<i64: 1, 1>, padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>}> ADD : (tensor<4x4xf32>, tensor<f32>) -> tensor<3x6xf32>',
    '"stablehlo.select_and_scatter"(%d, %e, %s) <{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}> ({ ^bb0(%aa: tensor<f32>, %bb: tensor<f32>): %rr = "stablehlo.compare"(%aa, %bb) <{comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %rr : tensor<i1> }, { ^bb0(%aa: tensor<f32>, %bb: tensor<f32>): %rr = stablehlo.add %aa, %bb : tensor<f32> stablehlo.return %rr : tensor<f32> }) : (tensor<4x4xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x4xf32>',
    '"stablehlo.rng_bit_generator"(%st) <{rng_algorithm = #stablehlo<rng_algorithm PHILOX>}> : (tensor<3xui64>) -> (tensor<3xui64>, tensor<5xui32>)',
    '"stablehlo.compare"(%x, %y) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type TOTALORDER>}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>',
    r'"stablehlo.custom_call"(%x, %v) <{call_target_name = "foo", has_side_effect = true, backend_config = "bar \22 q", api_version = 2 : i32, operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], called_computations = [@f]}> : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.custom_call"(%x) <{call_target_name = "typed", api_version = 4 : i32, backend_config = {a = 1 : i64, b = 2.5 : f32, c = "str", d = true, e = [1 : i8, "x"], f = dense<[1, 2]> : tensor<2xi64>, g = {h = 1.23456789 : f64}, i = dense<[1.5, 2.5]> : tensor<2xf32>, j = 7 : ui8}}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.composite"(%x) <{name = "my.op", decomposition = @g, version = 3 : i32, composite_attributes = {n = 1 : i32, s = "t", w = 2.0 : f64}}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.constant"() <{value = dense<[[true, false, true], [false, false, true]]> : tensor<2x3xi1>}> : () -> tensor<2x3xi1>',
    '"stablehlo.constant"() <{value = dense<[true, false, true, true, false, true, true, true]> : tensor<8xi1>}> : () -> tensor<8xi1>',
    '"stablehlo.constant"() <{value = dense<true> : tensor<8xi1>}> : () -> tensor<8xi1>',
    '"stablehlo.constant"() <{value = dense<true> : tensor<2xi1>}> : () -> tensor<2xi1>',
    '"stablehlo.constant"() <{value = dense<[1, -2, 3]> : tensor<3xi4>}> : () -> tensor<3xi4>',
    '"stablehlo.constant"() <{value = dense<[1, 3, 15]> : tensor<3xui4>}> : () -> tensor<3xui4>',
    '"stablehlo.constant"() <{value = dense<-1> : tensor<3xi4>}> : () -> tensor<3xi4>',
    '"stablehlo.constant"() <{value = dense<[1, -2, 0]> : tensor<3xi2>}> : () -> tensor<3xi2>',
    '"stablehlo.constant"() <{value = dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f64>>}> : () -> tensor<2xcomplex<f64>>',
    '"stablehlo.constant"() <{value = dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>}> : () -> tensor<2xcomplex<f32>>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E3M4>}> : () -> tensor<2xf8E3M4>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E4M3>}> : () -> tensor<2xf8E4M3>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E4M3FN>}> : () -> tensor<2xf8E4M3FN>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E5M2>}> : () -> tensor<2xf8E5M2>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E4M3FNUZ>}> : () -> tensor<2xf8E4M3FNUZ>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E5M2FNUZ>}> : () -> tensor<2xf8E5M2FNUZ>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf8E4M3B11FNUZ>}> : () -> tensor<2xf8E4M3B11FNUZ>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf4E2M1FN>}> : () -> tensor<2xf4E2M1FN>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf16>}> : () -> tensor<2xf16>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xbf16>}> : () -> tensor<2xbf16>',
    '"stablehlo.constant"() <{value = dense<[1.0, -2.0]> : tensor<2xf64>}> : () -> tensor<2xf64>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi8>}> : () -> tensor<2xi8>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi16>}> : () -> tensor<2xi16>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi64>}> : () -> tensor<2xi64>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xui8>}> : () -> tensor<2xui8>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xui16>}> : () -> tensor<2xui16>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xui32>}> : () -> tensor<2xui32>',
    '"stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xui64>}> : () -> tensor<2xui64>',
    '"stablehlo.constant"() <{value = dense<[1.0, 2.0]> : tensor<2xf8E8M0FNU>}> : () -> tensor<2xf8E8M0FNU>',
    '"stablehlo.constant"() <{value = dense<> : tensor<0x3xf32>}> : () -> tensor<0x3xf32>',
    '"stablehlo.slice"(%x) <{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 3>, strides = array<i64: 1, 2>}> : (tensor<2x3xf32>) -> tensor<2x1xf32>',
    '"stablehlo.reduce_precision"(%x) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"stablehlo.optimization_barrier"(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)',
    '"stablehlo.uniform_quantize"(%x) : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>',
    '"stablehlo.uniform_dequantize"(%qq) : (tensor<2x3x!quant.uniform<i8<-127:127>:f32:1, {0.5:3, 0.25, 2.0:7}>>) -> tensor<2x3xf32>',
    '"chlo.broadcast_add"(%x, %v) <{broadcast_dimensions = array<i64: 1>}> : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>',
    '"chlo.broadcast_compare"(%x, %v) <{comparison_direction = #chlo<comparison_direction GT>, compare_type = #chlo<comparison_type FLOAT>}> : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>',
    '"chlo.broadcast_select"(%b, %x, %y) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"chlo.constant_like"(%x) <{value = 2.0 : f32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"chlo.is_inf"(%x) : (tensor<2x3xf32>) -> tensor<2x3xi1>',
    '"chlo.top_k"(%x) <{k = 2 : i64}> : (tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)',
    '"chlo.erf"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    '"chlo.ragged_dot"(%rl, %rhs, %rg) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, precision_config = [#chlo<precision DEFAULT>, #chlo<precision HIGH>]}> : (tensor<11x5xf32>, tensor<3x5x7xf32>, tensor<3xi64>) -> tensor<11x7xf32>',
)
PROGRAMS = (
    """func.func @main(%a: tensor<3x4xf32>, %b: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>) {
 %0:2 = "chlo.scan"(%a, %b) <{dimension = 0 : i64, is_reverse = true, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({^bb0(%x: tensor<4xf32>, %s: tensor<4xf32>):
 %r = stablehlo.add %x, %s : tensor<4xf32>
 stablehlo.return %r, %r : tensor<4xf32>, tensor<4xf32>}) : (tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)
 func.return %0#0, %0#1 : tensor<3x4xf32>, tensor<4xf32> }""",
    """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
 %f = "stablehlo.async_start"(%a) ({
 ^bb0(%x: tensor<4xf32>):
   %g = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
   stablehlo.return %g : tensor<4xf32>
 }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
 %0 = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
 func.return %0 : tensor<4xf32> }""",
    """sdy.mesh @m = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) -> tensor<8x8xf32> {
 %0 = sdy.all_gather [{"x"}, {}] %a out_sharding=<@m, [{}, {"y"}]> : tensor<8x8xf32>
 %1 = sdy.all_slice [{"x"}, {}] %0 out_sharding=<@m, [{"x"}, {"y"}]> : tensor<8x8xf32>
 %2 = sdy.collective_permute %1 out_sharding=<@m, [{"y"}, {"x"}]> : tensor<8x8xf32>
 %4 = sdy.reshard %2 <@m, [{"y"}, {"x"}]> : tensor<8x8xf32>
 sdy.sharding_group %4 group_id=1 : tensor<8x8xf32>
 %5 = sdy.propagation_barrier %4 allowed_direction=FORWARD : tensor<8x8xf32>
 %6 = sdy.named_computation<"foo">(%5) (%arg: tensor<8x8xf32>) { sdy.return %arg : tensor<8x8xf32> } : (tensor<8x8xf32>) -> tensor<8x8xf32>
 func.return %6 : tensor<8x8xf32> }""",
    """sdy.mesh @m = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x", ?}p1, {"y":(1)2}]>}) -> tensor<8x8xf32> {
 %3 = sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@m, [{?}, {"y":(1)2, "x"}p0]> : tensor<8x8xf32>
 %b = stablehlo.custom_call @foo(%3) {mhlo.backend_config = {}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
 func.return %b : tensor<8x8xf32> }""",
    """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
 %r = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>]>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> ({
 ^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32> }) : (tensor<4xf32>) -> tensor<4xf32>
 func.return %r : tensor<4xf32> }
 sdy.mesh @m = <["x"=4]>""",
)
"""Newer operations."""
NEWER_VERSIONS = ("1.18.0", "1.19.0", "1.20.0", "1.22.0")
NEWER = (
    """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.custom_call @foo(%x) {result_layouts = [dense<[0, 1]> : tensor<2xindex>], operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_tilings = [[dense<[8, 128]> : tensor<2xindex>]]} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32> }""",
    """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32> }""",
    """func.func @main(%x: tensor<2xf32>, %y: tensor<3xf32>, %r: tensor<2xi32>) -> (tensor<2xf32>, tensor<3xf32>) {
  %0:2 = "stablehlo.collective_broadcast"(%x, %y, %r) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, has_dynamic_root} : (tensor<2xf32>, tensor<3xf32>, tensor<2xi32>) -> (tensor<2xf32>, tensor<3xf32>)
  return %0#0, %0#1 : tensor<2xf32>, tensor<3xf32> }""",
    """func.func @main(%x: tensor<2xf32>) -> tensor<10xf6E2M3FN> {
  %0 = stablehlo.constant dense<[0.0, 0.125, 1.0, 1.5, 2.0, 4.0, 7.5, -0.0, -1.0, -7.5]> : tensor<10xf6E2M3FN>
  return %0 : tensor<10xf6E2M3FN> }""",
    """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.collective_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32> }) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32> }""",
    """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
 %r = "stablehlo.all_reduce"(%x) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 4>], device_ids = dense<[0, 1, 2, 3]> : tensor<4xi64>>, axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>]>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32> }) : (tensor<4xf32>) -> tensor<4xf32>
 func.return %r : tensor<4xf32> }""",
    """func.func @main(%x: tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %0:2 = chlo.top_k(%x, k = 2) : tensor<5xf32> -> (tensor<2xf32>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32> }""",
    """func.func @main(%x: tensor<4x8xf8E4M3FN>, %y: tensor<8x3xf8E5M2>) -> tensor<4x3xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = f8E4M3FN, rhs_precision_type = f8E5M2, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x8xf8E4M3FN>, tensor<8x3xf8E5M2>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32> }""",
)
"""What StableHLO 1.18 to 1.22 brought, and what they say in another way."""
ARGUMENTS = {
    "x": "tensor<2x3xf32>", "y": "tensor<2x3xf32>", "v": "tensor<3xf32>", "s": "tensor<f32>", "i": "tensor<2xi32>",
    "n": "tensor<i32>", "p": "tensor<i1>", "m": "tensor<3x3xf32>", "im": "tensor<1x4x4x1xf32>",
    "k": "tensor<2x2x1x1xf32>", "b": "tensor<2x3xi1>", "c": "tensor<2x3xcomplex<f32>>", "d": "tensor<4x4xf32>",
    "e": "tensor<2x2xf32>", "st": "tensor<3xui64>", "rl": "tensor<11x5xf32>", "rhs": "tensor<3x5x7xf32>",
    "rg": "tensor<3xi64>", "qq": "tensor<2x3x!quant.uniform<i8<-127:127>:f32:1, {0.5:3, 0.25, 2.0:7}>>",
}  # fmt: skip
MADE = {
    "t0": '"stablehlo.create_token"() : () -> !stablehlo.token',
    "z0": "stablehlo.constant dense<[2, 3]> : tensor<2xi64>",
    "z1": "stablehlo.constant dense<[3, 2]> : tensor<2xi64>",
    "z2": "stablehlo.constant dense<[1, 3]> : tensor<2xi64>",
    "zz": "stablehlo.constant dense<0> : tensor<2xi64>",
    "zo": "stablehlo.constant dense<1> : tensor<2xi64>",
    "pp": "stablehlo.constant dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>",
    "tu": '"stablehlo.tuple"(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tuple<tensor<2x3xf32>, tensor<3xf32>>',
}
"""The values that operations use, as arguments of the program or made in it."""


def program(operation: str) -> str:
    """A module whose entry is one operation on arguments."""
    operation = operation.replace("ADD", ADD)
    made = [f"%{name} = {how}" for name, how in MADE.items() if re.search(rf"%{name}\b", operation)]
    whole = "\n  ".join([*made, operation])
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in ARGUMENTS.items() if re.search(rf"%{name}\b", whole))
    result = operation.rpartition(" -> ")[2]
    types = result.removeprefix("(").removesuffix(")") if result.startswith("(") else result
    count = len(re.findall(r", (?=tensor|!|tuple)", types)) + 1 if result.startswith("(") else 1
    names = ", ".join(f"%r#{i}" for i in range(count)) if count > 1 else "%r"
    lines = "\n  ".join([*made, f"%r{f':{count}' if count > 1 else ''} = {operation}"])
    return f"""module @m attributes {{mhlo.num_partitions = 1 : i32}} {{
  func.func public @main({arguments}) -> ({types}) {{
  {lines}
  func.return {names} : {types}
  }}
  func.func private @f(%a: tensor<f32>) -> tensor<f32> {{ func.return %a : tensor<f32> }}
  func.func private @g(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {{ func.return %a : tensor<2x3xf32> }}
}}"""


def of_devices() -> Iterator[Any]:
    """JAX functions on four devices, as modules."""
    import jax
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    cut = jax.device_put(x, NamedSharding(mesh, P(("y", "x"), None)))
    for function, inside, outside in (
        (lambda a: lax.psum(a, "x"), P("x", "y"), P(None, "y")),
        (lambda a: lax.all_gather(a, "y", tiled=True), P("x", "y"), P("x", None)),
        (lambda a: lax.all_to_all(a, "x", 1, 0, tiled=True), P("x", "y"), P("x", "y")),
        (lambda a: lax.ppermute(a, "x", [(0, 1), (1, 0)]), P("x", "y"), P("x", "y")),
        (lambda a: lax.psum_scatter(a, "x", tiled=True), P(None, "y"), P("x", "y")),
        (lambda a: a + lax.axis_index("x"), P("x", "y"), P("x", "y")),
    ):
        mapped = jax.shard_map(function, mesh=mesh, in_specs=inside, out_specs=outside, check_vma=False)
        yield jax.jit(mapped).lower(x).compiler_ir("stablehlo")
    constrained = jax.jit(lambda a: lax.with_sharding_constraint(a @ a, NamedSharding(mesh, P("x", "y"))))
    yield constrained.lower(x).compiler_ir("stablehlo")
    yield jax.jit(lambda a: a @ a.T).lower(cut).compiler_ir("stablehlo")


def texts() -> Iterator[str]:
    """The programs in the generic form, with locations."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    for text in (*(forms["generic"] for forms in FORMS), *map(program, OPERATIONS), *PROGRAMS):
        if "!quant" in text:  # a dialect that Python's contexts lack
            yield text
            continue
        with make_ir_context(), ir.Location.unknown():
            yield _written(ir.Module.parse(text))
    yield from map(_written, of_devices())


def _written(module: Any) -> str:
    return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def artifacts(text: str) -> dict[str, bytes]:
    """By version, and "plain"."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    found: dict[str, bytes] = {}
    newest = stablehlo.get_current_version()
    if "!quant" in text:
        return {newest: stablehlo.serialize_portable_artifact_str(text, newest)}
    with make_ir_context(), ir.Location.unknown():
        for version in (*VERSIONS, newest):
            if found and version != newest:
                continue
            try:  # it changes the module
                found[version] = stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, True)
            except ValueError:
                continue
        stream = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(stream)
    return found | {"plain": stream.getvalue()}


def newer_artifacts(text: str) -> dict[str, bytes]:
    """By version, for those that have the operation, and "plain"."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    found: dict[str, bytes] = {}
    with make_ir_context(), ir.Location.unknown():
        for version in NEWER_VERSIONS:
            try:
                found[version] = stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, True)
            except ValueError:
                continue
        stream = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(stream)
    return found | {"plain": stream.getvalue()}


def recorded(path: Path = ARTIFACTS) -> list[dict[str, Any]]:
    """The texts ("text"), each with its artifacts by version ("artifacts")."""
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for record in records:
        record["artifacts"] = {v: base64.b64decode(data) for v, data in record["artifacts"].items()}
    return records


def main() -> None:
    is_newer = sys.argv[1:] == ["newer"]
    lines: list[str] = []
    for text in NEWER if is_newer else texts():
        made = newer_artifacts(text) if is_newer else artifacts(text)
        encoded = {version: base64.b64encode(data).decode() for version, data in made.items()}
        lines.append(json.dumps({"text": text, "artifacts": encoded}))
    path = NEWER_ARTIFACTS if is_newer else ARTIFACTS
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
