"""Kernels and routines that differ by their buffers alone are built and written once, and each does its own work."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.emit import KernelWriter
from hlokit.cpu.kernels.epilogue import EpilogueWriter
from hlokit.cpu.loops import build
from hlokit.cpu.lower import drafts

ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"


def program(lines: list[str], results: list[str], computations: str = ADD) -> hk.HloModule:
    root = f"ROOT r = ({', '.join(results)}) tuple({', '.join(f'r{k}' for k in range(len(results)))})"
    return hk.parse("HloModule m\n" + computations + "ENTRY e {\n" + "\n".join([*lines, root]) + "\n}\n")


def layers(count: int) -> hk.HloModule:
    """Products with the same epilogue on other arrays, and sums over rows of what they give."""
    lines = ["x0 = f32[24,16] parameter(0)", "z = f32[] constant(0)"]
    for k in range(count):
        dot = f"dot(x{k}, w{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        lines += [
            f"w{k} = f32[16,16] parameter({2 * k + 1})",
            f"b{k} = f32[16] parameter({2 * k + 2})",
            f"d{k} = f32[24,16] {dot}",
            f"c{k} = f32[24,16] broadcast(b{k}), dimensions={{1}}",
            f"y{k} = f32[24,16] add(d{k}, c{k})",
            f"x{k + 1} = f32[24,16] tanh(y{k})",
            f"r{k} = f32[16] reduce(x{k + 1}, z), dimensions={{0}}, to_apply=add",
        ]
    return program(lines, ["f32[16]"] * count)


def arguments(module: hk.HloModule) -> list[Any]:
    draw = np.random.default_rng(1)
    shapes = [p.shape for p in module.entry.parameters]
    found: list[Any] = []
    for shape in shapes:
        values = (
            draw.normal(size=shape.dimensions) if shape.dtype.is_floating else draw.integers(0, 4, shape.dimensions)
        )
        found.append(values.astype(shape.dtype.numpy))
    return found


def check(module: hk.HloModule, **options: Any) -> None:
    given = arguments(module)
    wanted = hk.evaluate(module, *given)
    for got, want in zip(hk.compile(module, **options)(*given), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def counted(monkeypatch: pytest.MonkeyPatch, module: hk.HloModule) -> Counter[str]:
    """How often each stage works on a kernel of the module."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            counts[f"{getattr(owner, '__name__', owner)}.{name}"] += 1
            return function(*given, **named)

        monkeypatch.setattr(owner, name, call)

    with monkeypatch.context():
        for owner, name in ((build.Build, "__init__"), (drafts, "arrange"), (KernelWriter, "write"),
                            (EpilogueWriter, "__call__")):  # fmt: skip
            count(owner, name)
        hk.compile(module)
    monkeypatch.undo()
    return counts


def test_equal_kernels_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = counted(monkeypatch, layers(6)), counted(monkeypatch, layers(24))
    assert few == many
    assert all(few.values()) and len(few) == 4


def test_layers() -> None:
    check(layers(5))
    check(layers(5), strict=True)


def test_only_what_is_equal_shares_a_kernel() -> None:
    """The same ops on other constants, types, sizes, places and equal operands are other kernels."""
    lines = ["z = f32[] constant(0)"]
    lines += [f"p{k} = f32[8,12] parameter({k})" for k in range(4)]
    lines += ["q = f32[12,8] parameter(4)", "i = s32[8,12] parameter(5)"]
    lines += ["one = f32[] constant(1)", "two = f32[] constant(2)"]
    lines += ["ones = f32[8,12] broadcast(one), dimensions={}", "twos = f32[8,12] broadcast(two), dimensions={}"]
    lines += [
        "r0 = f32[8,12] multiply(p0, p1)",
        "r1 = f32[8,12] multiply(p2, p3)",
        "r2 = f32[8,12] multiply(p1, p1)",
        "r3 = f32[8,12] multiply(p2, ones)",
        "r4 = f32[8,12] add(p2, twos)",
        "r5 = f32[8,12] add(p1, ones)",
        "t = f32[8,12] transpose(q), dimensions={1,0}",
        "r6 = f32[8,12] multiply(t, p1)",
        "r7 = s32[8,12] multiply(i, i)",
        "r8 = f32[8] reduce(p0, z), dimensions={1}, to_apply=add",
        "r9 = f32[8] reduce(p1, one), dimensions={1}, to_apply=add",
        "r10 = f32[8] reduce(p2, z), dimensions={1}, to_apply=largest",
        "r11 = f32[8] reduce(p3, z), dimensions={1}, to_apply=sum",
    ]
    largest = "largest { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] maximum(p, q) }\n"
    again = ADD.replace("add {", "sum {")
    shapes = ["f32[8,12]"] * 7 + ["s32[8,12]"] + ["f32[8]"] * 4
    check(program(lines, shapes, ADD + largest + again))


def test_kernels_that_read_at_places_of_run_time() -> None:
    """Places that another array holds: the array differs from kernel to kernel too."""
    lines: list[str] = []
    for k in range(4):
        taken = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}"
        lines += [
            f"a{k} = f32[4,6] parameter({2 * k})",
            f"i{k} = s32[9] parameter({2 * k + 1})",
            f"g{k} = f32[9,6] gather(a{k}, i{k}), {taken}",
            f"r{k} = f32[9,6] negate(g{k})",
        ]
    check(program(lines, ["f32[9,6]"] * 4))


def test_kernels_that_two_of_the_same_buffer_make() -> None:
    """Chains in which each kernel reads what the one before has stored, once as both operands."""
    lines = ["z = f32[] constant(0)", "x = f32[16,64] parameter(0)", "y = f32[16,64] parameter(1)"]
    for k, (a, b) in enumerate((("x", "y"), ("y", "x"), ("x", "x"))):
        lines += [
            f"m{k} = f32[16,64] multiply({a}, {b})",
            f"y{k} = f32[16] reduce(m{k}, z), dimensions={{1}}, to_apply=add",
            f"e{k} = f32[16,64] broadcast(y{k}), dimensions={{0}}",
            f"r{k} = f32[16,64] divide(m{k}, e{k})",
        ]
    check(program(lines, ["f32[16,64]"] * 3))


def test_epilogues_on_other_arrays() -> None:
    """Products whose epilogues read one array, two, or the product's own operand."""
    lines = [f"x{k} = f32[20,20] parameter({k})" for k in range(4)]
    for k, (a, b, c, d) in enumerate(((0, 1, 2, 3), (1, 2, 3, 0), (0, 1, 2, 2), (0, 1, 1, 0), (2, 2, 2, 2))):
        dot = f"dot(x{a}, x{b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        lines += [
            f"d{k} = f32[20,20] {dot}",
            f"m{k} = f32[20,20] multiply(d{k}, x{c})",
            f"r{k} = f32[20,20] subtract(m{k}, x{d})",
        ]
    check(program(lines, ["f32[20,20]"] * 5))
