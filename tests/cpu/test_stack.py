"""Kernels stay within the stack that threads are asked to have."""

import re

import pytest

import hlokit as hk
from hlokit.cpu.kernels.routine import STACK

_BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}
_ALLOCA = re.compile(r"= alloca (?:[<\[](\d+) x )?(\w+)[>\]]?(?:, i64 (\d+))?")
DOT = """ENTRY e {{
  x = {0}[2048,2048] parameter(0)
  y = {0}[2048,2048] parameter(1)
  ROOT r = {0}[2048,2048] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
}}"""
CONVOLUTION = """ENTRY e {{
  x = {0}[1,512,512,2048] parameter(0)
  y = {0}[3,3,2048,8] parameter(1)
  ROOT r = {0}[1,510,510,8] convolution(x, y), window={{size=3x3}}, dim_labels=b01f_01io->b01f
}}"""
FFT = "ENTRY e {{ x = {0}[64,509] parameter(0)\n ROOT r = {0}[64,509] fft(x), fft_type=FFT, fft_length={{509}} }}"
ROWS = """sum {{ a = {0}[] parameter(0) b = {0}[] parameter(1) ROOT r = {0}[] add(a, b) }}
ENTRY e {{
  x = {0}[4,65536] parameter(0)
  zero = {0}[] constant(0)
  p = {0}[4,65536] exponential(x)
  q = {0}[4,65536] cosine(x)
  f = {0}[4] reduce(p, zero), dimensions={{1}}, to_apply=sum
  g = {0}[4] reduce(q, zero), dimensions={{1}}, to_apply=sum
  fb = {0}[4,65536] broadcast(f), dimensions={{0}}
  gb = {0}[4,65536] broadcast(g), dimensions={{0}}
  d = {0}[4,65536] divide(p, fb)
  e = {0}[4,65536] divide(q, gb)
  ROOT r = {0}[4,65536] add(d, e)
}}"""


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (DOT, "f32"),
        (DOT, "bf16"),
        (DOT, "c128"),
        (CONVOLUTION, "f32"),
        (CONVOLUTION, "f64"),
        (FFT, "c128"),
        (ROWS, "f64"),
    ],
)
def test_the_stack_is_large_enough(text: str, dtype: str) -> None:
    program = hk.compile(hk.parse(text.format(dtype))).program
    functions = program.text.split("\ndefine ")
    taken = [
        sum(int(lanes or 1) * _BYTES[type] * int(count or 1) for lanes, type, count in _ALLOCA.findall(function))
        for function in functions
    ]
    assert max(taken) > 0 and sum(sorted(taken)[-2:]) < 0.75 * STACK
