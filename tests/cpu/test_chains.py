"""Batched products with loops between them run one batch index after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk

ATTENTION = """HloModule m
add {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }}
max {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] maximum(p, q) }}
ENTRY e {{ q = f32[{b},{h},{s},{d}] parameter(0) k = f32[{b},{h},{s},{d}] parameter(1) v = f32[{b},{h},{s},{d}] parameter(2)
 z = f32[] constant(0) i = f32[] constant(-inf) c = f32[] constant(0.125) cc = f32[{b},{h},{s},{s}] broadcast(c), dimensions={{}}
 a = f32[{b},{h},{s},{s}] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
 t = f32[{b},{h},{s},{s}] multiply(a, cc) m = f32[{b},{h},{s}] reduce(t, i), dimensions={{3}}, to_apply=max
 mm = f32[{b},{h},{s},{s}] broadcast(m), dimensions={{0,1,2}} u = f32[{b},{h},{s},{s}] subtract(t, mm)
 x = f32[{b},{h},{s},{s}] exponential(u) n = f32[{b},{h},{s}] reduce(x, z), dimensions={{3}}, to_apply=add
 nn = f32[{b},{h},{s},{s}] broadcast(n), dimensions={{0,1,2}} p = f32[{b},{h},{s},{s}] divide(x, nn)
 {last} }}"""
PRODUCT = (
    "ROOT o = f32[{b},{h},{s},{d}] dot(p, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, "
    "lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}"
)
TURNED = (
    "w = f32[{h},{b},{s},{s}] transpose(p), dimensions={{1,0,2,3}} g = f32[{h},{b},{s},{d}] transpose(v), dimensions={{1,0,2,3}} "
    "ROOT o = f32[{h},{b},{s},{d}] dot(w, g), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, "
    "lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}"
)


def attention(last: str, **sizes: int) -> Any:
    module = hk.parse(ATTENTION.replace("{last}", last).format(**sizes))
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal(p.shape.dimensions, np.float32) for p in module.entry.parameters)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * np.float32(0.125)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bhqk,bhkd->bhqd", p / p.sum(-1, keepdims=True), v)
    return module, (q, k, v), want


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(2, 3, 512, 32), (3, 2, 449, 33)])
def test_attention(sizes: tuple[int, int, int, int], threads: int) -> None:
    b, h, s, d = sizes
    module, arrays, want = attention(PRODUCT, b=b, h=h, s=s, d=d)
    executable = hk.compile(module, threads=threads)
    for _ in range(2):
        np.testing.assert_allclose(executable(*arrays), want, atol=2e-5)
    assert len(executable.program.block.chains) == 1
    assert any(name.startswith("hlokit_chain") for name in executable.program.written.module.functions)


def test_small_scores_are_in_the_cache_anyway() -> None:
    module, arrays, want = attention(PRODUCT, b=2, h=3, s=64, d=16)
    executable = hk.compile(module, threads=1)
    np.testing.assert_allclose(executable(*arrays), want, atol=2e-5)
    assert not executable.program.block.chains


def test_other_batch_order() -> None:
    module, arrays, want = attention(TURNED, b=2, h=3, s=512, d=16)
    executable = hk.compile(module, threads=1)
    np.testing.assert_allclose(executable(*arrays), want.transpose(1, 0, 2, 3), atol=2e-5)
