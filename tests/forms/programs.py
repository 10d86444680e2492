"""One-instruction programs and their inputs, from shapes in text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.ops.numerics import convert
from hlokit.types.shape import Shape
from tests.forms.checking import Checker

Array = np.ndarray[Any, np.dtype[Any]]

COMPUTATIONS = """
%add (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
%weighted (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  two = f32[] constant(2)
  twice = f32[] multiply(a, two)
  ROOT r = f32[] subtract(twice, b)
}
%add_bf16 (a: bf16[], b: bf16[]) -> bf16[] {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b)
}
%greater (a: f32[], b: f32[]) -> pred[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
%less (a: f32[], b: f32[]) -> pred[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
%argmax (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k)
}
%step (x: f32[3], c: f32[3]) -> (f32[3], f32[3]) {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  d = f32[3] add(x, c)
  e = f32[3] multiply(x, d)
  ROOT r = (f32[3], f32[3]) tuple(e, d)
}
%count (c: s32[]) -> (s32[], s32[]) {
  c = s32[] parameter(0)
  one = s32[] constant(1)
  d = s32[] add(c, one)
  ROOT r = (s32[], s32[]) tuple(c, d)
}
"""
_COMPUTATIONS = {text.split()[0]: f"%{text.strip()}\n" for text in COMPUTATIONS.split("%")[1:]}


def program(result: str, opcode: str, operands: str, attributes: str = "") -> Any:
    """A module whose one instruction is `result = opcode(operands)`; operands are shapes, separated by spaces."""
    shapes = operands.split()
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes)]
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    root = f"  ROOT r = {result} {opcode}({names}){', ' + attributes if attributes else ''}"
    called = "\n".join(text for name, text in _COMPUTATIONS.items() if re.search(rf"={name}\b", attributes))
    return hk.parse(f"HloModule m\n\n{called}\nENTRY e {{\n" + "\n".join([*lines, root]) + "\n}\n")


def inputs(module: Any, seed: int = 0) -> list[Array]:
    """Random elements for every parameter: any bits of an integer type up to 8 bits, else small numbers."""
    random = np.random.default_rng(seed)
    return [_random(p.shape, random) for p in module.entry.parameters]


def _random(shape: Shape, random: np.random.Generator) -> Array:
    sizes, dtype = shape.dimensions, shape.dtype
    if dtype.kind == "pred":
        return random.integers(0, 2, sizes).astype(bool)
    if dtype.is_complex:
        return (random.normal(size=sizes) + 1j * random.normal(size=sizes)).astype(dtype.numpy)
    if dtype.is_floating:
        return convert(np.asarray(random.normal(size=sizes) * 4, np.float32), dtype.numpy)
    return convert(np.asarray(random.integers(-9, 12, sizes)), dtype.numpy)


def check(module: Any, *arrays: Array) -> set[str]:
    """Runs the module, checks every form on the way; the opcodes that were checked."""
    checker = Checker()
    checker.run(module, *arrays)
    assert not checker.wrong, "\n".join(checker.wrong)
    return checker.seen
