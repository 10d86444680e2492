"""Convolution element by element: right for every type, layout, group and dilation; the one that the others are for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.elements import read, rounded, write, write_complex
from hlokit.cpu.kernels.contraction.windows import WindowAxis, WindowSpace, finished, kernel_function, strides
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, scalar_type
from hlokit.types.dtype import DType

_STEPS_A_CHUNK = 100_000


def element_by_element(call: Call, module: Module, s: WindowSpace) -> Routine:
    """One sum after the other. Padding and holes are zeros that are multiplied, as in the reference."""
    total = s.elements
    chunks = max(1, min(total, 64, total * s.steps // _STEPS_A_CHUNK))
    f, pointers = kernel_function(3)
    first = f.let(f"udiv i64 {f.let(f'mul i64 %begin, {total}')}, {chunks}")
    last = f.let(f"udiv i64 {f.let(f'mul i64 %end, {total}')}, {chunks}")
    placed = [a for a in s.axes if a.dim >= 0]
    sizes = {a.dim: a.outputs for a in placed} | {s.feature_dim: s.group.size * s.output.size}
    with f.loop(first, last) as loop:
        outputs = decoded(f, loop.index, [sizes[d] for d in range(len(sizes))])
        sums = _sum(f, module, s, pointers, outputs)
        index = list(outputs)
        for a in placed:
            index[a.dim] = affine(f, a.first, [(outputs[a.dim], a.step)])
        store_element(f, call, s, pointers[2], index, sums)
    return Routine((Phase(finished(f, module, "convolution_scalar"), chunks),))


def decoded(f: Function, number: str, sizes: Sequence[int]) -> list[str]:
    """The index of the element with this number in row-major order."""
    index: list[str] = []
    if math.prod(sizes) == 1:
        return ["0"] * len(sizes)
    for size in reversed(sizes[1:]):
        index.append(f.let(f"urem i64 {number}, {size}") if size > 1 else "0")
        number = f.let(f"udiv i64 {number}, {size}") if size > 1 else number
    return [*([number] if sizes else []), *reversed(index)]


def _sum(f: Function, module: Module, s: WindowSpace, pointers: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The sum of the output with this index; a complex one as two."""
    feature = outputs[s.feature_dim]
    group = f.let(f"udiv i64 {feature}, {s.output.size}")
    output = f.let(f"urem i64 {feature}, {s.output.size}")
    scalar = scalar_type(s.wide.real)
    none = zero(s.wide.real)

    def over(axes: Sequence[WindowAxis], left: str, right: str, inside: str, sums: list[str]) -> list[str]:
        if not axes:
            left = f.let(f"select i1 {inside}, i64 {left}, i64 0")
            lhs = _parts(f, module, s, pointers[0], left)
            lhs = [f.let(f"select i1 {inside}, {scalar} {part}, {scalar} {none}") for part in lhs]
            return multiplied(f, s.wide, sums, lhs, _parts(f, module, s, pointers[1], right))
        a = axes[0]
        with f.loop("0", str(a.taps), carries=[(scalar, v) for v in sums]) as loop:
            place = affine(f, -a.low, [(outputs[a.dim] if a.dim >= 0 else "0", a.stride), (loop.index, a.tap)])
            here, element = _element(f, a, place)
            here = f.let(f"and i1 {here}, {inside}")
            lhs, rhs = affine(f, 0, [(left, 1), (element, a.lhs)]), affine(f, 0, [(right, 1), (loop.index, a.rhs)])
            loop.next = over(axes[1:], lhs, rhs, here, loop.carried)
        return loop.results

    left = affine(f, 0, [(group, s.group.lhs)])
    right = affine(f, s.rhs_start, [(group, s.group.rhs), (output, s.output.rhs)])
    return over(s.axes, left, right, "true", [none] * (2 if s.wide.is_complex else 1))


def _parts(f: Function, module: Module, s: WindowSpace, pointer: str, number: str) -> list[str]:
    """One element, widened; two parts where sums are complex."""
    parts = read(f, module, s.operand, pointer, number, 1, scalar_type(s.wide.real))
    return [*parts, zero(s.wide.real)] if s.wide.is_complex and len(parts) == 1 else parts


def _element(f: Function, a: WindowAxis, place: str) -> tuple[str, str]:
    """Whether an element lies at the place, and which."""
    element = place if a.spread == 1 else f.let(f"sdiv i64 {place}, {a.spread}")
    inside = f.let(f"icmp ult i64 {place}, {max(0, (a.inputs - 1) * a.spread + 1)}")
    if a.spread > 1:
        whole = f.let(f"icmp eq i64 {f.let(f'mul i64 {element}, {a.spread}')}, {place}")
        inside = f.let(f"and i1 {inside}, {whole}")
    return inside, element


def affine(f: Function, constant: int, terms: Sequence[tuple[str, int]]) -> str:
    """constant + sum of value * factor."""
    total = ""
    for value, factor in terms:
        if is_number(value):
            constant += int(value) * factor
        elif factor:
            product = value if factor == 1 else f.let(f"mul i64 {value}, {factor}")
            total = f.let(f"add i64 {total}, {product}") if total else product
    if not total:
        return str(constant)
    return f.let(f"add i64 {total}, {constant}") if constant else total


def is_number(value: object) -> bool:
    return not str(value).startswith("%")


def zero(wide: DType) -> str:
    """0 of a sum's component."""
    return "0.0" if wide.is_floating else "0"


def multiplied(f: Function, wide: DType, sums: Sequence[str], lhs: Sequence[str], rhs: Sequence[str]) -> list[str]:
    """sums + lhs * rhs."""
    scalar = scalar_type(wide.real)

    def fused(x: str, y: str, total: str) -> str:
        if wide.is_integral:
            return f.let(f"add {scalar} {total}, {f.let(f'mul {scalar} {x}, {y}')}")
        return f.let(f"call {scalar} @llvm.fma.f{wide.real.bits}({scalar} {x}, {scalar} {y}, {scalar} {total})")

    if len(sums) == 1:
        return [fused(lhs[0], rhs[0], sums[0])]
    minus = f.let(f"fneg {scalar} {lhs[1]}")
    real = fused(minus, rhs[1], fused(lhs[0], rhs[0], sums[0]))
    imag = fused(lhs[1], rhs[0], fused(lhs[0], rhs[1], sums[1]))
    return [real, imag]


def store_element(
    f: Function, call: Call, s: WindowSpace, pointer: str, index: Sequence[str], sums: Sequence[str]
) -> None:
    """One finished sum: to the epilogue, or to the result's element at this index."""
    result, scalar = s.result, scalar_type(s.wide.real)
    parts = [rounded(f, result.real, v, 1, scalar) for v in sums]
    number = affine(f, 0, list(zip(index, strides(s.dimensions), strict=True)))
    if result.is_complex:
        if call.store is not None:
            call.store(f, index, joined(f, parts, result), 1, None)
        else:
            write_complex(f, result, pointer, number, parts, 1)
        return
    value = f.let(f"or i1 {parts[0]}, {parts[1]}") if result.kind == "pred" and len(parts) > 1 else parts[0]
    if call.store is not None:
        call.store(f, index, value, 1, None)
    else:
        write(f, result, pointer, number, value, 1)


def joined(f: Function, parts: Sequence[str], dtype: DType) -> str:
    """A complex number as a literal struct of its parts."""
    scalar = scalar_type(dtype.real)
    pair = f"{{ {scalar}, {scalar} }}"
    value = f.let(f"insertvalue {pair} poison, {scalar} {parts[0]}, 0")
    return f.let(f"insertvalue {pair} {value}, {scalar} {parts[1]}, 1")
