"""Index forms of ops that read the same elements or bits with other dimensions or as another type."""

from collections.abc import Callable, Sequence

from hlokit.forms.affine import Affine
from hlokit.forms.emitter import Emitter, Value
from hlokit.ops.scalar_rules import joined, part_of
from hlokit.types.dtype import DType


def digits_of(emit: Emitter, number: Affine, sizes: Sequence[int]) -> list[Affine]:
    """The index at which the element with this number lies, in the row-major order of these sizes."""
    digits: list[Affine] = []
    for size in reversed(sizes[1:]):
        if size == 0:  # there is no element
            return [Affine.of(0)] * len(sizes)
        quotient = emit.floordiv(number, size)
        digits.append(number - quotient * size)
        number = quotient
    return [*([number] if sizes else []), *reversed(digits)]


def reinterpreted(emit: Emitter, read: Callable[[Affine], Value], place: Affine, source: DType, target: DType) -> Value:
    """The element of `target` number `place` in memory that holds the elements of `source` that `read` gives."""
    if source is target:
        return read(place)
    if target.is_complex:
        parts = (reinterpreted(emit, read, 2 * place + k, source, target.real) for k in range(2))
        return emit.complex(*parts)
    if source.is_complex:
        return reinterpreted(emit, lambda number: _component(emit, read, number), place, source.real, target)
    if source.bits == target.bits:
        return emit.from_bits(emit.to_bits(read(place)), target)
    if source.bits > target.bits:
        parts = source.bits // target.bits
        whole = emit.floordiv(place, parts)
        return part_of(emit, read(whole), place - whole * parts, target)
    parts = target.bits // source.bits
    return joined(emit, [read(place * parts + k) for k in range(parts)], target)


def _component(emit: Emitter, read: Callable[[Affine], Value], number: Affine) -> Value:
    """Complex numbers as twice as many floats: the real part first."""
    place = emit.floordiv(number, 2)
    value = read(place)
    is_real = emit.eq(emit.number(number - 2 * place), 0)
    return emit.select(is_real, emit.real(value), emit.imag(value))
