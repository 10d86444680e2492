"""Slices, pads, concatenations and windows of divided dimensions: neighbours send what a part needs."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.partitioner import Network, partition
from hlokit.passes.partitioner.halos import Reach, exchange
from tests.partition.test_partition import ADD, kinds

FAR = Network(bandwidth=1e3, latency=0.0)
"""Where bytes are all that counts: whatever moves fewer is taken."""


def in_parts(text: str, network: Network = FAR, compiled: bool = True) -> Any:
    """The partitioned module, whose results are those of the program whole, bit for bit."""
    module = hk.parse(text)
    found = partition(module, network=network)
    numbers = np.random.default_rng(0)
    arguments = [
        numbers.integers(-9, 10, p.shape.dimensions).astype(p.shape.dtype.numpy) for p in module.entry.parameters
    ]
    whole = hk.evaluate(module, *arguments, partitions=1)
    runs = [lambda *parts: hk.evaluate(found.module, *parts), *([hk.compile(found.module)] if compiled else [])]
    for run in runs:
        np.testing.assert_array_equal(found.join(run(*found.split(*arguments))), whole)
    return found


OPS = [
    "f32[8,6] slice(x), slice={[2:10],[0:6]}", "f32[16,6] slice(x), slice={[0:16],[0:6]}",
    "f32[8,6] slice(x), slice={[1:16:2],[0:6]}", "f32[5,6] slice(x), slice={[11:16],[0:6]}",
    "f32[20,6] pad(x, z), padding=1_3x0_0", "f32[14,6] pad(x, z), padding=-1_-1x0_0", "f32[8,7] pad(x, z), padding=-8_0x0_1",
    "f32[16,6] reverse(x), dimensions={0}", "f32[25,6] concatenate(x, y), dimensions={0}",
    "f32[41,6] concatenate(y, x, x), dimensions={0}",
    "f32[16,6] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, to_apply=add",
    "f32[16,6] reduce-window(x, z), window={size=16x1 pad=15_0x0_0}, to_apply=add",
    "f32[5,6] reduce-window(x, z), window={size=3x1 stride=3x1}, to_apply=add",
    "f32[29,6] reduce-window(x, z), window={size=3x1 lhs_dilate=2x1}, to_apply=add",
    "f32[12,6] reduce-window(x, z), window={size=3x1 rhs_dilate=2x1}, to_apply=add",
    "f32[31,6] pad(x, z), padding=0_0_1x0_0", "f32[49,6] pad(x, z), padding=-1_4_2x0_0", "f32[32,6] pad(x, z), padding=1_0_1x0_0",
]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("count", [2, 4, 3])
def test_ops(op: str, count: int) -> None:
    """However many parts there are, and whether they divide the sizes or not."""
    found = in_parts(
        f"""HloModule m
{ADD}ENTRY e {{
  x = f32[16,6] parameter(0), sharding={{devices=[{count},1]<=[{count}]}}
  y = f32[9,6] parameter(1), sharding={{devices=[{count},1]<=[{count}]}}
  z = f32[] constant(0)
  ROOT r = {op}, sharding={{devices=[{count},1]<=[{count}]}}
}}""",
        compiled=count == 2,
    )
    if count != 3 and any(text in op for text in ("[0:16],", "reverse", "[2:10]", "pad=1_1", "stride", "0_0_1", "1_0_1")):
        assert "all-gather" not in kinds(found), found.reasons


CONVOLUTIONS = [
    "f32[2,16,12,4] convolution(im, k), window={size=3x3 pad=1_1x1_1}",
    "f32[2,8,6,4] convolution(im, k), window={size=3x3 stride=2x2 pad=0_1x0_1}",
    "f32[2,12,8,4] convolution(im, k), window={size=3x3 rhs_dilate=2x2}",
    "f32[2,32,24,4] convolution(im, k), window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2}",
]


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_convolutions(op: str) -> None:
    """Both dimensions of an image divided: corners come with the second exchange."""
    found = in_parts(f"""HloModule m
ENTRY e {{
  im = f32[2,16,12,3] parameter(0), sharding={{devices=[1,2,2,1]<=[4]}}
  k = f32[3,3,3,4] parameter(1)
  ROOT r = {op}, dim_labels=b01f_01io->b01f, sharding={{devices=[1,2,2,1]<=[4]}}
}}""")
    if "rhs_dilate" in op:  # parts of results and of elements drift apart: gathering is as good
        assert found.reasons
    else:
        assert set(kinds(found)) == {"collective-permute"}
        sent = sum(reason.nbytes for reason in found.reasons)
        assert sent < 2 * 16 * 12 * 3 * 4 / 2  # edges, no halves


GRADIENTS = [
    ("f32[3,3,3,4]", "window={size=16x12 pad=1_1x1_1}", (16, 12)),
    ("f32[4,3,3,4]", "window={size=7x12 pad=0_0x1_1 rhs_dilate=2x1}", (7, 12)),
    ("f32[2,3,3,4]", "window={size=7x12 pad=0_0x1_1 stride=3x1 rhs_dilate=2x1}", (7, 12)),
]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("shape", "window", "sizes"), GRADIENTS)
def test_gradients_of_kernels(shape: str, window: str, sizes: tuple[int, int], count: int) -> None:
    """The image and the output's gradient are divided by rows: devices have terms of the kernel's gradient."""
    found = in_parts(f"""HloModule m
ENTRY e {{
  im = f32[2,16,12,3] parameter(0), sharding={{devices=[1,{count},1,1]<=[{count}]}}
  dy = f32[2,{sizes[0]},{sizes[1]},4] parameter(1), sharding={{devices=[1,{count},1,1]<=[{count}]}}
  ROOT r = {shape} convolution(im, dy), {window}, dim_labels=f01b_i01o->01bf, sharding={{replicated}}
}}""")
    assert "all-gather" not in kinds(found) and "all-reduce" in kinds(found), found.reasons


def test_one_row_joined() -> None:
    """An operand of one row moves along no factor: the concatenation is whole."""
    in_parts("""HloModule m
ENTRY e {
  x = f32[7,4] parameter(0), sharding={devices=[2,1]<=[2]}
  y = f32[1,4] parameter(1)
  ROOT r = f32[8,4] concatenate(x, y), dimensions={0}, sharding={devices=[2,1]<=[2]}
}""")


def test_a_stencil_in_a_loop_sends_edges() -> None:
    text = f"""HloModule m
{ADD}body {{
  s = (s32[], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,32] get-tuple-element(s), index=1
  z = f32[] constant(0)
  y = f32[64,32] reduce-window(x, z), window={{size=3x1 pad=1_1x0_0}}, to_apply=add
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[64,32]) tuple(j, y)
}}
condition {{
  s = (s32[], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[64,32] parameter(0), sharding={{devices=[4,1]<=[4]}}
  o = s32[] constant(0)
  t = (s32[], f32[64,32]) tuple(o, x)
  w = (s32[], f32[64,32]) while(t), condition=condition, body=body
  ROOT r = f32[64,32] get-tuple-element(w), index=1
}}"""
    found = in_parts(text, Network())
    assert kinds(found) == ["collective-permute"] * 2 and {r.nbytes for r in found.reasons} == {32 * 4}


def test_exchanges() -> None:
    """What each place gets is what it reaches, for all small sizes, steps and counts."""
    chance = random.Random(0)
    cases = list(product(range(1, 14), range(1, 6), range(-7, 8), range(-9, 10), range(1, 12)))
    for size, count, step, first, length in chance.sample(cases, 3000):
        way = exchange(size, count, Reach(step, first, length))
        part = -(-size // count)
        blocks = [[e if e < size else None for e in range(b * part, (b + 1) * part)] for b in range(count)]
        for place in range(count):
            wanted = list(range(step * place + first, step * place + first + length))
            if way is None:
                assert not any(0 <= e < size for e in wanted)
                continue
            row: list[Any] = [None] * way.low
            for piece in way.pieces:
                sources = [a for pairs in piece.rounds for a, b in pairs if b == place]
                sources += [place] if place in piece.own else []
                assert len(sources) <= 1
                block = blocks[sources[0]] if sources else [None] * part
                row += block[piece.first : piece.first + piece.size]
            row = (row + [None] * way.high)[way.starts[place] :][:length]
            assert len(row) == length
            for got, want in zip(row, wanted, strict=True):
                assert got == want or not 0 <= want < size
        for piece in way.pieces if way is not None else ():
            assert all(len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs) for pairs in piece.rounds)
