"""Transforms from and to real sequences; those of even length are treated as half as many complex numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlokit.cpu.kernels.fft.along import transform
from hlokit.cpu.kernels.fft.axis import Place, TransformAxis
from hlokit.cpu.kernels.fft.memory import Work, load_real_rows, load_rows, load_splat, store_real_rows, store_rows
from hlokit.cpu.kernels.fft.phases import Phases
from hlokit.cpu.kernels.fft.stockham import work_size, write_core
from hlokit.cpu.kernels.fft.twiddles import TwiddleFactors, roots, table
from hlokit.cpu.llvm import Complex, Function, Index, Pointer, Value, type_of

OPERAND, RESULT = Place(0), Place(1)
_INVERSE = (True, True)


def packed(n: int) -> int:
    """Elements of the complex sequence for a real one of n."""
    return n // 2 if n % 2 == 0 else n


def _unpacked(z: Complex, y: Complex, root: Complex) -> Complex:
    """X_k = E_k + w^k O_k, for elements k and half - k of the transform of E + i O: of even and odd places."""
    even = Complex(z.real + y.real, z.imag - y.imag)
    odd = Complex(z.imag + y.imag, y.real - z.real)
    return (even + odd * root).scaled(0.5)


def _repacked(z: Complex, y: Complex, root: Complex) -> Complex:
    """Twice E + i O from X: what `_unpacked` undoes."""
    even = Complex(z.real + y.real, z.imag - y.imag)
    odd = Complex(z.real - y.real, z.imag + y.imag)
    return even.plus_i(odd * root.conjugate())


def real_to_complex(phases: Phases, outer: int, n: int) -> None:
    """Adds the phases of transforms of real sequences of n: the first halves of the spectra."""
    half, count = packed(n), n // 2 + 1
    if work_size(half) is None or phases.are_few(outer, half):
        (_real_to_complex_whole if n % 2 else _real_to_complex_long)(phases, outer, n)
        return
    core = write_core(phases.module, phases.vector, half)
    with phases.map_groups(phases.groups(outer, 1), n) as (f, group):
        work, first = phases.work(f, half), group * phases.lanes
        source, target = OPERAND.pointer(f), phases.array(f, RESULT)
        if n % 2:
            zero = f.constant(0.0, phases.vector)
            rows = phases.rows(source.to(phases.scalar), first, outer, n)
            load_real_rows(rows, n, phases.vector, lambda k, value: work[0].store(k, Complex(value, zero)))
        else:
            load_rows(phases.rows(phases.array(f, OPERAND), first, outer, half), half, work[0])
        done = core.call(work)
        rows = phases.rows(target, first, outer, count)
        get = Work.load if n % 2 else _unpacking(phases, done, n)
        store_rows(rows, count, done, get)


def _unpacking(phases: Phases, done: Work, n: int) -> Callable[[Work, Index], Complex]:
    """Element k of the real sequences' transforms from those in buffer `done`."""
    f, half = done.base.fn, n // 2
    done.store(half, done.load(0))
    twiddles = _unpacking_roots(phases, f, n)

    def get(part: Work, k: Index) -> Complex:
        return _unpacked(part.load(k), part.load(half - k), load_splat(twiddles[k], part.vector.lanes))

    return get


def complex_to_real(phases: Phases, outer: int, n: int, given: int, source_place: Place) -> None:
    """Adds the phases of inverse transforms to real sequences of n, from the first halves of their spectra.

    The spectra are rows of `given` numbers.
    """
    half = packed(n)
    if work_size(half) is None or phases.are_few(outer, half):
        (_complex_to_real_whole if n % 2 else _complex_to_real_long)(phases, outer, n, given, source_place)
        return
    core = write_core(phases.module, phases.vector, half)
    axis = TransformAxis(outer, half, 1, source_place, RESULT, _INVERSE, 1 / phases.total)
    with phases.map_groups(phases.groups(outer, 1), n) as (f, group):
        work, first = phases.work(f, half), group * phases.lanes
        load_rows(phases.rows(phases.array(f, source_place), first, outer, given), n // 2 + 1, work[1])
        _clear_imaginary(work[1], 0)
        if n % 2:
            _mirror(work, n)
        else:
            _clear_imaginary(work[1], half)
            _pack(phases, work, n)
        done = core.call(work)
        if n % 2:
            rows = phases.rows(RESULT.pointer(f).to(phases.scalar), first, outer, n)
            store_real_rows(rows, n, phases.vector, lambda k: axis.stored(done.load(k)).real)
        else:
            rows = phases.rows(phases.array(f, RESULT), first, outer, half)
            store_rows(rows, half, done, lambda part, k: axis.stored(part.load(k)))


def _clear_imaginary(buffer: Work, k: int) -> None:
    real = buffer.load(k).real
    buffer.store(k, Complex(real, real.value(0.0)))


def _mirror(work: tuple[Work, Work], n: int) -> None:
    """The whole sequence from its first half, parts swapped."""
    work[0].store(0, work[1].load(0).swapped())
    with work[0].base.fn.loop(1, n // 2 + 1) as loop:
        value = work[1].load(loop.index)
        work[0].store(loop.index, value.swapped())
        work[0].store(n - loop.index, value.conjugate().swapped())


def _pack(phases: Phases, work: tuple[Work, Work], n: int) -> None:
    """Twice E + i O from X, parts swapped: what `_unpacked` undoes."""
    f, half = work[0].base.fn, n // 2
    twiddles = _unpacking_roots(phases, f, n)
    with f.loop(0, half) as loop:
        z, y = work[1].load(loop.index), work[1].load(half - loop.index)
        own = _repacked(z, y, load_splat(twiddles[loop.index], phases.lanes))
        work[0].store(loop.index, own.swapped())


def _unpacking_roots(phases: Phases, f: Function, n: int) -> Pointer:
    return table(f, f"roots_real_{n}", phases.scalar, roots(np.arange(n // 2 + 1), n))


def _real_to_complex_long(phases: Phases, outer: int, n: int) -> None:
    half, done = n // 2, phases.take(outer * (n // 2))
    transform(phases, TransformAxis(outer, half, 1, OPERAND, done))
    _map_pairs(phases, outer, half, (done, half), (RESULT, half + 1), _unpacked)


def _complex_to_real_long(phases: Phases, outer: int, n: int, given: int, source: Place) -> None:
    half, packed = n // 2, phases.take(outer * (n // 2))
    _map_pairs(phases, outer, half, (source, given), (packed, half), _repacked)
    transform(phases, TransformAxis(outer, half, 1, packed, RESULT, _INVERSE, 1 / phases.total))


def _map_pairs(
    phases: Phases,
    outer: int,
    half: int,
    source: tuple[Place, int],
    target: tuple[Place, int],
    combined: Callable[[Complex, Complex, Complex], Complex],
) -> None:
    """A phase: combined(x[k], x[half - k], exp(-pi i k / half)) in each row. Source and target are a place and the
    length of its rows.

    A packed row has no element `half`: it is element 0. Of spectra both ends are real.
    """
    spectra, width, scalar = combined is _repacked, phases.lanes, phases.scalar
    with phases.map_rows(outer, target[1]) as (f, row, low, high):
        given, taken = (phases.array(f, place)[row * length] for place, length in (source, target))
        ones = Work.at(given, scalar), Work.at(taken, scalar)
        twiddles = TwiddleFactors(f, phases.vector, 2 * half, half)
        # all lanes of a vector, and what goes with them, lie inside of the row
        inner = low.smax(width)
        last = inner.smax(high.smin(half - half % width))

        def single(k: Index) -> None:
            z, y = (ones[0].load(place if spectra else place % half) for place in (k, half - k))
            if spectra:
                at_end = (k % half).eq(0)
                z, y = (Complex(x.real, x.imag.value(0.0).where(at_end, x.imag)) for x in (z, y))
            ones[1].store(k, combined(z, y, twiddles.one(k)))

        with f.loop(low, inner.smin(high)) as loop:
            single(loop.index)
        with f.loop(inner, last, width) as loop:
            k = loop.index
            z, y = (phases.vector_at(given, place).load(0) for place in (k, half - width + 1 - k))
            phases.vector_at(taken, k).store(0, combined(z, y.reversed(), twiddles.next(k)))
        with f.loop(last, high) as loop:
            single(loop.index)


def _real_to_complex_whole(phases: Phases, outer: int, n: int) -> None:
    """By way of complex numbers."""
    wide, done = phases.take(outer * n), phases.take(outer * n)
    scalar, count = phases.scalar, n // 2 + 1
    with phases.map(outer * n) as (f, index):
        real = OPERAND.pointer(f).to(scalar)[index].load()
        _one(phases, f, wide).store(index, Complex(real, real.value(0.0)))
    transform(phases, TransformAxis(outer, n, 1, wide, done))
    with phases.map(outer * count) as (f, index):
        place = index // count * n + index % count
        bits = type_of(f"i{2 * scalar.bits}")
        source, target = (phases.array(f, array) for array in (done, RESULT))
        target[index].to(bits, scalar.bytes).store(source[place].to(bits, scalar.bytes).load())


def _complex_to_real_whole(phases: Phases, outer: int, n: int, given: int, source: Place) -> None:
    """By way of the whole complex sequence, whose second half are the conjugates of the first."""
    wide, done = phases.take(outer * n), phases.take(outer * n)
    with phases.map(outer * n) as (f, index):
        line, k = index // n, index % n
        back = n - k
        in_first = k < n // 2 + 1
        taken = in_first.select(k, back)
        value = _one(phases, f, source).load(line * given + taken)
        imag: Value = value.imag.where(in_first, -value.imag)
        alone = k.eq(back % n)
        _one(phases, f, wide).store(index, Complex(value.real, imag.value(0.0).where(alone, imag)))
    transform(phases, TransformAxis(outer, n, 1, wide, done, _INVERSE, 1 / phases.total))
    with phases.map(outer * n) as (f, index):
        real = _one(phases, f, done).load(index).real
        RESULT.pointer(f).to(phases.scalar)[index].store(real)


def _one(phases: Phases, f: Function, place: Place) -> Work:
    """An array of which single numbers are loaded and stored."""
    return Work.at(place.pointer(f), phases.scalar)
