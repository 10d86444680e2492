"""StableHLO text: a module that verifies, or ParseError with a line, ArgumentError or UnsupportedError."""

from __future__ import annotations

import gzip
import json
import random
import re

from hlokit.errors import ParseError
from hlokit.hlo.module import HloModule
from hlokit.stablehlo.lowering import UnknownSizes, parse_stablehlo
from hlokit.stablehlo.tree import QuantizedTensor
from hlokit.types.shape import Shape
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, decoded, edited, noise, sound
from tests.golden.programs import BUNDLED, STABLEHLO

_RECORDED = [BUNDLED.parent / f"stablehlo_{name}.jsonl.gz" for name in ("manual", "dynamic", "forms")]
_TOKEN = re.compile(r"[A-Za-z_%#@!][\w.$\-]*|-?[0-9][\w.\-]*|\s+|.", re.DOTALL)
_WORDS = [
    "0",
    "-1",
    "1",
    "2",
    "9223372036854775807",
    "18446744073709551616",
    "1.0e400",
    "0x7FC00000",
    "true",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    "=",
    ":",
    "x",
    "->",
    ":",
    "?",
    "tensor<f32>",
    "tensor<?xf32>",
    "tensor<1000000000000x1000000000000xf32>",
    "tensor<0xi1>",
    "tensor<2x3xi4>",
    "tuple<>",
    "tuple<tensor<f32>>",
    "!stablehlo.token",
    "tensor<*xf32>",
    "complex<f32>",
    "tensor<complex<f32>>",
    "i1",
    "index",
    "none",
    "loc(",
    "#loc",
    "dense<0>",
    "dense<[]>",
    "array<i64:",
    "dense_resource<x>",
    "%0",
    "%arg0",
    "%0#1",
    "@main",
    "#stablehlo<precision",
    "DEFAULT>",
    "%9",
    "^bb0",
    "#stablehlo.gather<offset_dims=[0]>",
    "loc(unknown)",
    "attributes",
    "func.func",
    "module",
    "stablehlo.add",
    "stablehlo.return",
    "return",
    "call",
    "chlo.erf",
    "stablehlo.custom_call",
    "@Qr",
    "stablehlo.dynamic_reshape",
    "stablehlo.get_dimension_size",
    "//",
    '"',
    "\\",
    "stablehlo.tuple",
    "stablehlo.iota",
    "stablehlo.reshape",
    "dim",
    "dims",
    "init",
    "applies",
    "across",
    "sizes",
    "<{",
    "}>",
    "({",
    "})",
    "!quant.uniform<i8:f32, 0.5:3>",
    "!quant.uniform<u8<1:255>:f32:0, {2.0:7, 0.5:7}>",
    "tensor<2x!quant.uniform<i4:bf16, 0.5>>",
    "stablehlo.uniform_quantize",
    "stablehlo.uniform_dequantize",
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.set_dimension_size",
    "#stablehlo.bounds<4, ?>",
    "sdy.manual_computation",
    "sdy.mesh",
    "sdy.return",
    "manual_axes={",
    "in_shardings=[",
    "<@mesh, [{}]>",
    "check.expect_eq",
    "interpreter.run_parallel",
    "interpreter.probe",
    "indices_of_shape_operands",
]
_WRITTEN = [
    """module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<4x2xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> (tensor<4x2xf32> {mhlo.sharding = "{replicated}"}) {
  %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2,1]0,1}"} : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<4x2xf32>) -> tensor<2x2xf32>
  %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {mhlo.sharding = "{devices=[2,1]<=[2]}"} : (tensor<2x2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}
}""",
    """func.func @main(%a: tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, %w: tensor<3x4x!quant.uniform<i8:f32:1, {0.5, 1.0, 2.0, 0.25}>>) -> tensor<2x4x!quant.uniform<u8:f32, 2.0:128>> {
  %0 = stablehlo.uniform_dequantize %a : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3xf32>
  %1 = stablehlo.tanh %0 : tensor<2x3xf32>
  %2 = stablehlo.uniform_quantize %1 : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>
  %3 = stablehlo.reverse %2, dims = [1] : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>
  %4 = stablehlo.dot_general %3, %w, contracting_dims = [1] x [0] : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<3x4x!quant.uniform<i8:f32:1, {0.5, 1.0, 2.0, 0.25}>>) -> tensor<2x4x!quant.uniform<u8:f32, 2.0:128>>
  %i = stablehlo.constant() {value = dense<3> : tensor<i8>} : () -> tensor<!quant.uniform<i8:f32, 0.5:3>>
  %5 = stablehlo.reduce(%a init: %i) applies stablehlo.add across dimensions = [1] : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
  return %4 : tensor<2x4x!quant.uniform<u8:f32, 2.0:128>>
}""",
    """module {
func.func public @main() -> (tensor<2xi32>) {
  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %b = stablehlo.add %a, %a : tensor<2xi32>
  check.expect_eq_const %b, dense<[2, 4]> : tensor<2xi32>
  check.expect_eq %a, %a : tensor<2xi32>
  %c = interpreter.probe %b, probe_id = "p" : tensor<2xi32>
  interpreter.print %c : tensor<2xi32>
  %d = stablehlo.constant dense<2.0> : tensor<f64>
  check.expect_almost_eq %d, %d, tolerance = 0.6 : tensor<f64>
  check.expect_close %d, %d, max_ulp_difference = 1 : tensor<f64>, tensor<f64>
  %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@one, @one]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  func.return %r#1 : tensor<2xi32>
}
func.func private @one(%a: tensor<2xi32>) -> tensor<2xi32> {
  %0 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %1 = stablehlo.add %x, %y : tensor<i32>
      stablehlo.return %1 : tensor<i32>
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<2xi32>) -> tensor<2xi32>
  func.return %0 : tensor<2xi32>
}
}""",
]
"""Quantised types, checks and grids of processes, which JAX does not write."""


def mutated(text: str, other: str, random_: random.Random) -> str:
    """`text` after a few random edits, some with parts of `other`."""
    return "".join(edited(_TOKEN.findall(text), _TOKEN.findall(other), _WORDS, lambda: noise(random_), random_))


def check(text: str) -> str:
    """Reads; sizes that the program itself refuses are refused."""
    try:
        module = parsed(text)
    except ParseError as error:
        if not (error.line and str(error)):
            raise Broken(f"an error without line: {error}") from None
        raise
    sound(module, text.encode(errors="surrogatepass"))
    return "read"


def parsed(text: str) -> HloModule:
    """The module; sizes of the entry's arguments that are not known are 2."""
    try:
        return parse_stablehlo(text)
    except UnknownSizes as error:
        types = [t.shape if isinstance(t, QuantizedTensor) else t for _, t in error.parameters]
        return parse_stablehlo(text, [_sized(t) if t.is_unbounded else t for t in types])


def _sized(shape: Shape) -> Shape:
    return Shape.array(shape.dtype, [2 if size < 0 else size for size in shape.dimensions])


def programs() -> list[str]:
    """The bundled and the recorded texts."""
    bundled = [gzip.decompress(path.read_bytes()).decode() for path in sorted(BUNDLED.glob(f"*{STABLEHLO}.gz"))]
    recorded = [json.loads(line) for path in _RECORDED for line in gzip.decompress(path.read_bytes()).splitlines()]
    return bundled + [text for record in recorded for text in record.values() if "func.func" in str(text)] + _WRITTEN


def short_programs() -> list[str]:
    """Those that are read many times a second."""
    return [text for text in programs() if len(text) < 20_000]


FUZZER = Fuzzer(short_programs, mutated, check, (".mlir",), decoded)
