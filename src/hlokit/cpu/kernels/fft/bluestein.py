"""Transforms of any length (Bluestein's) through two of a supported length: a convolution with a chirp.

jk = (j^2 + k^2 - (k - j)^2) / 2: with c_j = exp(-pi i j^2 / n), X_k = c_k sum over j of (x_j c_j) conj(c_(k - j)). The
chirp and its transform are made in each call, once for all sequences: no table is as long as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hlokit.cpu import costs
from hlokit.cpu.kernels.fft.axis import Place, TransformAxis
from hlokit.cpu.kernels.fft.memory import load_splat
from hlokit.cpu.kernels.fft.phases import Phases
from hlokit.cpu.kernels.fft.stockham import convolution_size
from hlokit.cpu.kernels.fft.twiddles import TwiddleFactors
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import Complex, Index, type_of

LONGEST = 1 << 25
"""Squares of places are exact in doubles."""
_UNIT = 64
"""Lengths of convolutions are multiples of it: whole vectors, and products of two short ones."""


@dataclass(frozen=True)
class _Sequences:
    """outer x length x inner complex numbers at a place."""

    place: Place
    length: int


def write_bluestein(phases: Phases, axis: TransformAxis, transform: Callable[[Phases, TransformAxis], None]) -> None:
    """Adds the phases of transforms along an axis; `transform` adds those along another one."""
    n, size, w = axis.n, convolution_size(axis.n, _UNIT), phases.lanes
    chirp, filters = phases.take(up(n, w)), phases.take(size)
    wide = phases.take(axis.outer * size * axis.inner)
    source, target, between = _Sequences(axis.source, n), _Sequences(axis.target, n), _Sequences(wide, size)
    _write_chirp(phases, n, chirp)
    _write_filter(phases, n, size, chirp, filters)
    transform(phases, TransformAxis(1, size, 1, filters, filters))
    _write_product(phases, replace(axis, swapped=(axis.swapped[0], False), factor=1.0), source, between, chirp)
    inner = TransformAxis(axis.outer, size, axis.inner, wide, wide)
    transform(phases, inner)
    # the parts are swapped for the way back
    _write_product(phases, replace(axis, swapped=(False, True), factor=1.0), between, between, filters)
    transform(phases, inner)
    last = replace(axis, swapped=(True, axis.swapped[1]), factor=axis.factor / size)
    _write_product(phases, last, between, target, chirp)


def _write_chirp(phases: Phases, n: int, target: Place) -> None:
    """c_j: j^2 modulo 2 n in doubles, then a product of two numbers of tables."""
    w = phases.lanes
    with phases.map(n, w) as (f, j):
        twiddles = TwiddleFactors(f, phases.vector, 2 * n, n)
        places = j.cast("sitofp", "double").splat(w) + f.lane_numbers(type_of("double", w))
        squares = places * places
        rest = squares - (squares * (1 / (2 * n))).intrinsic("floor") * (2 * n)  # exact: all are integers below 2^53
        rest = (rest + 2 * n).where(rest < 0, rest)
        rest = (rest - 2 * n).where(rest >= 2 * n, rest)
        phases.vector_at(phases.array(f, target), j).store(0, twiddles.powers(rest.cast("fptosi", "i64")))


def _write_filter(phases: Phases, n: int, size: int, chirp: Place, target: Place) -> None:
    """conj(c_j) at places j and size - j, zeros between."""
    w = phases.lanes
    with phases.map(size, w) as (f, k):
        source, array = phases.array(f, chirp), phases.array(f, target)
        back = f.index(size - w + 1) - k
        near, far = (phases.vector_at(source, at, _valid(at, n, w)).load(0) for at in (k, back))
        phases.vector_at(array, k).store(0, (near + far.reversed()).conjugate())


def _valid(first: Index, count: int, lanes: int) -> Index:
    """The number of lanes from place `first` on that are below `count`: none may be."""
    return (first.fn.index(count) - first).smax(0).smin(lanes)


def _write_product(phases: Phases, axis: TransformAxis, source: _Sequences, target: _Sequences, factors: Place) -> None:
    """target[o][k][i] = source[o][k][i] factors[k], zeros where the source has no k."""
    count, w = min(source.length, target.length), phases.lanes

    def put(places: tuple[Index, Index], valid: tuple[Index | None, Index | None], factor: Complex) -> None:
        given, taken = (
            phases.vector_at(phases.array(place.fn, rows.place), place, lanes)
            for rows, place, lanes in zip((source, target), places, valid, strict=True)
        )
        taken.store(0, axis.stored(axis.loaded(given.load(0)) * factor))

    if axis.inner == 1:
        with phases.map_rows(axis.outer, target.length) as (f, row, low, high):
            starts = row * source.length, row * target.length
            with f.loop(low, high, w) as loop:
                k = loop.index
                has = None if count == target.length and count % w == 0 else _valid(k, count, w)
                goes = None if target.length % w == 0 else _valid(k, target.length, w)
                factor = phases.vector_at(phases.array(f, factors), k, has).load(0)
                put((starts[0] + k, starts[1] + k), (has, goes), factor)
        return
    with phases.map(axis.outer * target.length, 1, max(1, costs.FFT_CHUNK // axis.inner)) as (f, item):
        row, k = item // target.length, item % target.length
        exists = k < count
        factor = load_splat(phases.array(f, factors)[k.smin(count - 1)], w)
        starts = (row * source.length + k) * axis.inner, (row * target.length + k) * axis.inner
        with f.loop(0, axis.inner, w) as loop:
            goes = _valid(loop.index, axis.inner, w)
            has = f.index(exists.select(goes, 0))
            put((starts[0] + loop.index, starts[1] + loop.index), (has, goes), factor)
