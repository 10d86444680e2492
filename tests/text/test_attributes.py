"""HATTR rules, and that every kind of attribute can be read and written."""

# tables: a case a row

from __future__ import annotations

from hlokit.hlo.op import OPS
from hlokit.text.attributes import labels_text, window_text
from hlokit.text.spelling import spelling_of
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.window import Window
from tests.rules.labels import rule
from tests.text.texts import by_label, entry, printed, refused

P = "p = f32[4,4] parameter(0)\nz = f32[] constant(0)\n"
V = "p = f32[4] parameter(0)\n"
W = P + "y = reduce-window(p, z), to_apply=add, window="
C = "l = f32[1,8,8,2] parameter(0)\nr = f32[3,3,2,5] parameter(1)\n"
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) }"

ACCEPTED = [
    ("HATTR-1: any order", W + "{pad=1_1x0_0 stride=2x1 size=2x2}", "window={size=2x2 stride=2x1 pad=1_1x0_0}"),
    ("HATTR-1: all fields", W + "{rhs_reversal=1x0 rhs_dilate=2x1 lhs_dilate=1x2 pad=0_1x1_0 stride=1x2 size=2x2}",
     "window={size=2x2 stride=1x2 pad=0_1x1_0 lhs_dilate=1x2 rhs_dilate=2x1 rhs_reversal=1x0}"),
    ("HATTR-1: rank 1", V + "z = f32[] constant(0)\ny = reduce-window(p, z), to_apply=add, window={size=2}", "window={size=2}"),
    ("HATTR-2: rank 0", "p = f32[] parameter(0)\ny = f32[] reduce-window(p, p), to_apply=add, window={}", "to_apply=%add"),
    ("HATTR-3: defaults are not printed", W + "{size=2x2 stride=1x1 pad=0_0x0_0 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}",
     "window={size=2x2}"),
    ("HATTR-4: labels", C + "y = convolution(l, r), window={size=3x3}, dim_labels=b01f_01io->b01f", "dim_labels=b01f_01io->b01f"),
    ("HATTR-6: without stride", V + "y = f32[2] slice(p), slice={[1:3]}", "slice={[1:3]}"),
    ("HATTR-6: strides", P + "y = f32[2,3] slice(p), slice={[0:4:2], [1:4]}", "slice={[0:4:2], [1:4:1]}"),
    ("HATTR-6: rank 0", "p = f32[] parameter(0)\ny = f32[] slice(p), slice={}", "slice={}"),
    ("HATTR-7: no interior", P + "y = pad(p, z), padding=0_1x-1_2", "padding=0_1x-1_2"),
    ("HATTR-7: interior for all", P + "y = pad(p, z), padding=0_1_1x-1_2", "padding=0_1_1x-1_2_0"),
    ("HATTR-7: rank 0", "p = f32[] parameter(0)\ny = pad(p, p), padding=", "padding="),
    ("HATTR-8: precision", P + "y = dot(p, p), operand_precision={default,highest}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "operand_precision={default,highest}"),
    ("HATTR-8: upper case", P + "y = dot(p, p), operand_precision={HIGH,Highest}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "operand_precision={high,highest}"),
    ("HATTR-8: all default", P + "y = dot(p, p), operand_precision={default,default}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "rhs_contracting_dims={0}"),
    ("HATTR-9: algorithm", P + "y = dot(p, p), algorithm=dot_bf16_bf16_f32_x3, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "algorithm=dot_bf16_bf16_f32_x3"),
    ("HATTR-10: highest", V + "y = exponential(p), result_accuracy={mode=highest}", "result_accuracy={mode=highest}"),
    ("HATTR-10: tolerance", V + "y = exponential(p), result_accuracy={tolerance={ulps=5,rtol=0.1,atol=1e-3}}",
     "result_accuracy={tolerance={atol=0.001,rtol=0.1,ulps=5}}"),
    ("HATTR-10: default", V + "y = exponential(p), result_accuracy={mode=default}", "exponential(%p)"),
    ("HOP-8: bits", V + "y = f32[4] reduce-precision(p), mantissa_bits=7, exponent_bits=5", "exponent_bits=5, mantissa_bits=7"),
    ("HOP-42: sharding in a domain", V + 'y = domain(p), domain={kind="sharding", entry={replicated}, exit={maximal device=1}}',
     'domain={kind="sharding", entry={replicated}, exit={maximal device=1}}'),
]  # fmt: skip


@by_label(ACCEPTED)
def test_accepted(text: str, expected: str) -> None:
    line = printed(text, before=ADD)
    assert f", {expected}, " in f"{line}, " or line.endswith(expected)


REFUSED = [
    ("HATTR-2: size missing", W + "{stride=1x1}", "HATTR-2"),
    ("HATTR-2: ranks differ", W + "{size=2x2 stride=2}", "HATTR-2"),
    ("HATTR-2: zero", W + "{size=2x2 stride=0x1}", "HATTR-2"),
    ("HATTR-2: twice", W + "{size=2x2 size=2x2}", "HATTR-2"),
    ("HATTR-1: unknown field", W + "{size=2x2 step=1x1}", "HATTR-1"),
    ("HATTR-1: interior in a window", W + "{size=2x2 pad=0_0_1x0_0_1}", "HATTR-1"),
    ("HATTR-4: no labels", C + "y = convolution(l, r), window={size=3x3}, dim_labels=b01f", "HATTR-4"),
    ("HATTR-5: missing letter", C + "y = convolution(l, r), window={size=3x3}, dim_labels=b012_01io->b01f", "HATTR-5"),
    ("HATTR-5: digits", C + "y = convolution(l, r), window={size=3x3}, dim_labels=b02f_02io->b02f", "HATTR-5"),
    ("HATTR-5: spatial ranks", C + "y = convolution(l, r), window={size=3x3}, dim_labels=b01f_0io->b01f", "HATTR-5"),
    ("HATTR-5: a letter twice", C + "y = convolution(l, r), window={size=3x3}, dim_labels=bb01f_01io->b01f", "HATTR-5"),
    ("HATTR-6: no range", V + "y = f32[2] slice(p), slice={1:3}", "HATTR-6"),
    ("HATTR-6: negative", V + "y = f32[2] slice(p), slice={[-2:4]}", "SLICE-4"),
    ("HATTR-8: unknown", P + "y = dot(p, p), operand_precision={best}", "HATTR-8"),
    ("HATTR-9: unknown", P + "y = dot(p, p), algorithm=dot_best", "HINST-6", ),
    ("HOP-8: both are needed", V + "y = f32[4] reduce-precision(p), exponent_bits=5", "HINST-6"),
    ("HATTR-10: unknown mode", V + "y = exponential(p), result_accuracy={mode=best}", "HATTR-10"),
    ("HINST-6: two dimensions where one belongs", P + "y = f32[8,4] concatenate(p, p), dimensions={0,1}", "HINST-6"),
    ("HINST-6: no bool", "p = c64[4] parameter(0)\ny = cholesky(p), lower=2", "HINST-6"),
]  # fmt: skip


@by_label(REFUSED)
def test_refused(text: str, expected: str) -> None:
    refused(entry(text, before=ADD), expected)


@rule("HATTR-11")
def test_every_op_has_a_spelling() -> None:
    for op_class in OPS.values():
        spelling = spelling_of(op_class)
        assert len(spelling.writers) <= len(op_class.attributes)
        assert all(prefix.startswith(", ") and prefix.endswith("=") for _, _, prefix, _ in spelling.writers)


def test_labels_and_windows_without_text() -> None:
    assert labels_text(ConvolutionDimensionNumbers.default(2)) == "bf01_oi01->bf01"
    assert labels_text(ConvolutionDimensionNumbers(0, 2, (), 0, 1, (), 0, 1, ())) == "b?f_io->bf"
    assert window_text(Window.make((2, 3), strides=(1, 2))) == "{size=2x3 stride=1x2}"
