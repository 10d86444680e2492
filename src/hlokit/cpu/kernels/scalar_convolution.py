"""Convolution element by element: right for every type, layout, group and dilation; the one that the others are for."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.elements import narrowed, widened, zero
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.kernels.sliding import Sliding, Spatial, finished, kernel_function
from hlokit.cpu.llvm import Function, Module, memory_type, scalar_type
from hlokit.types.dtype import DType

_STEPS_A_CHUNK = 100_000


def element_by_element(call: Call, module: Module, sliding: Sliding) -> Routine:
    """One sum after the other. Padding and holes are zeros that are multiplied, as in the reference."""
    dimensions = call.results[0].dimensions
    total = sliding.elements
    chunks = max(1, min(total, 64, total * sliding.steps // _STEPS_A_CHUNK))
    f, pointers = kernel_function(3)
    first = f.let(f"udiv i64 {f.let(f'mul i64 %begin, {total}')}, {chunks}")
    last = f.let(f"udiv i64 {f.let(f'mul i64 %end, {total}')}, {chunks}")
    with f.loop(first, last) as loop:
        index = decoded(f, loop.index, dimensions)
        sums = _sum(f, module, call, sliding, pointers, index)
        store_element(f, module, call, sliding, pointers[2], index, loop.index, sums)
    return Routine((Phase(finished(f, module, "convolution_scalar"), chunks),))


def decoded(f: Function, number: str, sizes: Sequence[int]) -> list[str]:
    """The index of the element with this number in row-major order."""
    index: list[str] = []
    for size in reversed(sizes[1:]):
        index.append(f.let(f"urem i64 {number}, {size}") if size > 1 else "0")
        number = f.let(f"udiv i64 {number}, {size}") if size > 1 else number
    return [*([number] if sizes else []), *reversed(index)]


def _sum(
    f: Function, module: Module, call: Call, sliding: Sliding, pointers: Sequence[str], index: Sequence[str]
) -> list[str]:
    """The sum at an index of the result; a complex one as two."""
    numbers = call.op.dim_labels  # pyright: ignore[reportAttributeAccessIssue]
    batch, feature, *places = (index[d] for d in numbers.output)
    group = f.let(f"udiv i64 {feature}, {sliding.output.size}")
    output = f.let(f"urem i64 {feature}, {sliding.output.size}")
    left = affine(f, 0, [(group, sliding.group.lhs), (batch, sliding.batch.lhs)])
    right = affine(f, sliding.rhs_start, [(group, sliding.group.rhs), (output, sliding.output.rhs)])
    scalar = scalar_type(sliding.wide.real)
    parts = 2 if sliding.wide.is_complex else 1
    begin = [(scalar, zero(sliding.wide.real))] * parts

    def taps(spatial: Sequence[Spatial], left: str, right: str, inside: str, sums: list[str]) -> list[str]:
        if not spatial:
            return features(left, right, inside, sums)
        s, place = spatial[0], places[len(places) - len(spatial)]
        with f.loop("0", str(s.taps), carries=[(scalar, v) for v in sums]) as loop:
            position = affine(f, -s.low, [(place, s.stride), (loop.index, s.tap)])
            here, element = _element(f, s, position)
            here = f.let(f"and i1 {here}, {inside}")
            loop.next = taps(
                spatial[1:],
                affine(f, 0, [(left, 1), (element, s.lhs)]),
                affine(f, 0, [(right, 1), (loop.index, s.rhs)]),
                here,
                loop.carried,
            )
        return loop.results

    def features(left: str, right: str, inside: str, sums: list[str]) -> list[str]:
        with f.loop("0", str(sliding.feature.size), carries=[(scalar, v) for v in sums]) as loop:
            a = affine(f, 0, [(left, 1), (loop.index, sliding.feature.lhs)])
            b = affine(f, 0, [(right, 1), (loop.index, sliding.feature.rhs)])
            a = f.let(f"select i1 {inside}, i64 {a}, i64 0")
            lhs = [
                f.let(f"select i1 {inside}, {scalar} {part}, {scalar} {zero(sliding.wide.real)}")
                for part in load_element(f, module, sliding, pointers[0], a)
            ]
            rhs = load_element(f, module, sliding, pointers[1], b)
            loop.next = multiplied(f, sliding.wide, loop.carried, lhs, rhs)
        return loop.results

    return taps(sliding.spatial, left, right, "true", [value for _, value in begin])


def _element(f: Function, s: Spatial, position: str) -> tuple[str, str]:
    """Whether an element lies at the place, and which."""
    element = position if s.spread == 1 else f.let(f"sdiv i64 {position}, {s.spread}")
    inside = f.let(f"icmp ult i64 {position}, {max(0, (s.inputs - 1) * s.spread + 1)}")
    if s.spread > 1:
        whole = f.let(f"icmp eq i64 {f.let(f'mul i64 {element}, {s.spread}')}, {position}")
        inside = f.let(f"and i1 {inside}, {whole}")
    return inside, element


def affine(f: Function, constant: int, terms: Sequence[tuple[str, int]]) -> str:
    """constant + sum of value * factor."""
    total = str(constant) if constant else ""
    for value, factor in terms:
        if factor == 0 or value == "0":
            continue
        product = value if factor == 1 else f.let(f"mul i64 {value}, {factor}")
        total = f.let(f"add i64 {total}, {product}") if total else product
    return total or "0"


def load_element(f: Function, module: Module, sliding: Sliding, pointer: str, number: str) -> list[str]:
    """One element, widened; two parts where sums are complex."""
    operand, wide = sliding.operand, sliding.wide
    kind = memory_type(operand.real)
    if operand.is_complex:
        number = f.let(f"mul i64 {number}, 2")
    place = f.let(f"getelementptr {kind}, ptr {pointer}, i64 {number}")
    values = [f.let(f"load {kind}, ptr {place}")]
    if operand.is_complex:
        place = f.let(f"getelementptr {kind}, ptr {place}, i64 1")
        values.append(f.let(f"load {kind}, ptr {place}"))
    values = [widened(f, module, v, operand.real, wide.real) for v in values]
    return [*values, zero(wide.real)] if wide.is_complex and len(values) == 1 else values


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
    f: Function,
    module: Module,
    call: Call,
    sliding: Sliding,
    pointer: str,
    index: Sequence[str],
    number: str,
    sums: Sequence[str],
) -> None:
    """One finished sum: to the epilogue, or to the result's element with this number."""
    result = sliding.result
    if result.kind == "pred" and sliding.wide.is_complex:
        tests = [narrowed(f, module, v, sliding.wide.real, result) for v in sums]
        values = [f.let(f"or i1 {tests[0]}, {tests[1]}")]
    else:
        kept = sums if result.is_complex else sums[:1]
        values = [narrowed(f, module, v, sliding.wide.real, result.real) for v in kept]
    if call.store is not None:
        call.store(f, index, values[0] if len(values) == 1 else joined(f, values, result), 1, None)
        return
    kind = memory_type(result.real)
    if result.is_complex:
        number = f.let(f"mul i64 {number}, 2")
    for i, value in enumerate(values):
        at = number if i == 0 else f.let(f"add i64 {number}, 1")
        place = f.let(f"getelementptr {kind}, ptr {pointer}, i64 {at}")
        if result.kind == "pred":
            value = f.let(f"zext i1 {value} to i8")
        f.do(f"store {kind} {value}, ptr {place}")


def joined(f: Function, parts: Sequence[str], dtype: DType) -> str:
    """A complex number as a literal struct of its parts."""
    scalar = scalar_type(dtype.real)
    pair = f"{{ {scalar}, {scalar} }}"
    value = f.let(f"insertvalue {pair} poison, {scalar} {parts[0]}, 0")
    return f.let(f"insertvalue {pair} {value}, {scalar} {parts[1]}, 1")
