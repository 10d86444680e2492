"""Operands of products and convolutions that are reshapes and parts of arrays in memory: they are read where these lie."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk


def listing(text: str) -> str:
    return hk.compile(hk.parse(text), threads=1).as_text("loops")


def equal(text: str, *shapes: tuple[int, ...], seed: int = 0) -> None:
    """Compiled code has the reference's values, of whole numbers, which round nowhere."""
    module, source = hk.parse(text), np.random.default_rng(seed)
    given = [source.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    want, got = hk.evaluate(module, *given), hk.compile(module, threads=1)(*given)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (want, got)), strict=True):
        np.testing.assert_array_equal(a, b)


PARTS = """HloModule m
ENTRY e {{
  x = f32[6,32,64] parameter(0)
  y = f32[64,16] parameter(1)
  part = {part}
  a = f32[32,64] reshape(part)
  d = f32[32,16] dot(a, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  n = f32[32,16] negate(d)
  ROOT t = (f32[32,16], f32[32,16]) tuple(n, d)
}}"""


@pytest.mark.parametrize(
    ("part", "is_copied"),
    [
        ("f32[1,32,64] slice(x), slice={[2:3],[0:32],[0:64]}", False),
        ("f32[1,32,64] slice(x), slice={[0:1],[0:32],[0:64]}", False),
        ("f32[2,16,64] slice(x), slice={[2:6:2],[0:16],[0:64]}", True),
        ("f32[1,32,64] slice(x), slice={[5:6],[0:32:1],[0:64]}", False),
        ("f32[2,32,32] slice(x), slice={[1:3],[0:32],[32:64]}", True),
    ],
)
def test_parts_without_gaps_are_not_copied(part: str, is_copied: bool) -> None:
    text = PARTS.format(part=part)
    assert ("kernel %" in listing(text)) == is_copied
    equal(text, (6, 32, 64), (64, 16))


def test_parts_that_begin_at_no_multiple_of_64_bytes_are_copied() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[40,36] parameter(0)
      y = f32[36,16] parameter(1)
      a = f32[32,36] slice(x), slice={[1:33],[0:36]}
      ROOT d = f32[32,16] dot(a, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    assert "kernel %a" in listing(text)
    equal(text, (40, 36), (36, 16))


def test_reshapes_of_arguments_and_of_products_are_not_copied() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[8,4,32] parameter(0)
      y = f32[32,32] parameter(1)
      a = f32[32,32] reshape(x)
      d = f32[32,32] dot(a, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      b = f32[16,64] reshape(d)
      g = f32[16,16] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
      ROOT t = (f32[16,16], f32[1024], f32[32,32], f32[32,4,8]) tuple(g, f32[1024] reshape(b), d, f32[32,4,8] reshape(x))
    }"""
    assert "kernel %" not in listing(text)
    equal(text, (8, 4, 32), (32, 32))


def test_a_strided_slice_that_is_reshaped_is_copied_in_its_own_rows() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[6,34,8] parameter(0)
      y = f32[24,16] parameter(1)
      half = f32[3,17,8] slice(x), slice={[0:6:2],[0:34:2],[0:8]}
      a = f32[17,24] reshape(half)
      ROOT d = f32[17,16] dot(a, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    assert "kernel %half" in listing(text) and "kernel %a" not in listing(text)
    equal(text, (6, 34, 8), (24, 16))


def test_both_operands_may_be_the_same_part() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[6,32,64] parameter(0)
      a = f32[2,32,64] slice(x), slice={[3:5],[0:32],[0:64]}
      d = f32[2,32,32] dot(a, a), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
      ROOT n = f32[2,32,32] negate(d)
    }"""
    equal(text, (6, 32, 64))


def test_a_convolution_of_a_part() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[3,2,8,8,16] parameter(0)
      k = f32[2,3,3,16,16] parameter(1)
      x1 = f32[1,2,8,8,16] slice(x), slice={[1:2],[0:2],[0:8],[0:8],[0:16]}
      k1 = f32[1,3,3,16,16] slice(k), slice={[1:2],[0:3],[0:3],[0:16],[0:16]}
      a = f32[2,8,8,16] reshape(x1)
      b = f32[3,3,16,16] reshape(k1)
      ROOT c = f32[2,8,8,16] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
    }"""
    assert "kernel %" not in listing(text)
    equal(text, (3, 2, 8, 8, 16), (2, 3, 3, 16, 16))


LOOP = """HloModule m
body {
  s = (s32[], f32[4,16,32], f32[16,16], f32[2,32,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,16,32] get-tuple-element(s), index=1
  t = f32[16,16] get-tuple-element(s), index=2
  w = f32[2,32,16] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  old = f32[1,16,32] slice(x), slice={[2:3],[0:16],[0:32]}
  a = f32[16,32] reshape(old)
  w1 = f32[1,32,16] slice(w), slice={[1:2],[0:32],[0:16]}
  b = f32[32,16] reshape(w1)
  d = f32[16,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  half = f32[] constant(0.5)
  halves = f32[16,16] broadcast(half), dimensions={}
  h = f32[16,16] multiply(t, halves)
  u = f32[16,16] add(h, d)
  row = f32[1,16,32] broadcast(i2), dimensions={}
  y = f32[4,16,32] dynamic-update-slice(x, row, two, zero, zero)
  ROOT r = (s32[], f32[4,16,32], f32[16,16], f32[2,32,16]) tuple(next, y, u, w)
}
condition {
  s = (s32[], f32[4,16,32], f32[16,16], f32[2,32,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4,16,32] parameter(0)
  w = f32[2,32,16] parameter(1)
  i = s32[] constant(0)
  z = f32[] constant(0)
  t = f32[16,16] broadcast(z), dimensions={}
  s = (s32[], f32[4,16,32], f32[16,16], f32[2,32,16]) tuple(i, x, t, w)
  l = (s32[], f32[4,16,32], f32[16,16], f32[2,32,16]) while(s), condition=condition, body=body
  t1 = f32[16,16] get-tuple-element(l), index=2
  x1 = f32[4,16,32] get-tuple-element(l), index=1
  ROOT o = (f32[16,16], f32[4,16,32]) tuple(t1, x1)
}""".replace("  row =", "  two = s32[] constant(2)\n  i2 = f32[] convert(i)\n  row =")


def test_a_part_of_an_array_that_a_loop_updates_in_place() -> None:
    """Each pass multiplies the part as it was before its own update, and weights that all passes share."""
    equal(LOOP, (4, 16, 32), (2, 32, 16))
    assert "operand 0 from byte 4096 on; operand 1 from byte 2048 on" in listing(LOOP)


def test_a_result_may_be_the_reshape_of_a_loop_s_state() -> None:
    text = """HloModule m
    body {
      s = (f32[8,4], f32[32]) parameter(0)
      a = f32[8,4] get-tuple-element(s), index=0
      b = f32[32] get-tuple-element(s), index=1
      ROOT r = (f32[8,4], f32[32]) tuple(f32[8,4] reshape(b), f32[32] reshape(a))
    }
    condition {
      s = (f32[8,4], f32[32]) parameter(0)
      b = f32[32] get-tuple-element(s), index=1
      first = f32[1] slice(b), slice={[0:1]}
      z = f32[] constant(0)
      ROOT c = pred[] compare(f32[] reshape(first), z), direction=LT
    }
    ENTRY e {
      x = f32[8,4] parameter(0)
      y = f32[32] parameter(1)
      s = (f32[8,4], f32[32]) tuple(x, y)
      ROOT w = (f32[8,4], f32[32]) while(s), condition=condition, body=body
    }"""
    module = hk.parse(text)
    x, y = np.arange(32, dtype=np.float32).reshape(8, 4), -1 - np.arange(32, dtype=np.float32)
    for a, b in zip(hk.evaluate(module, x, y), hk.compile(module)(x, y), strict=True):
        np.testing.assert_array_equal(a, b)
