"""The transform of many sequences at once, one in each lane: Stockham's passes over a work buffer, without shuffles.

Only the forward transform is written: swapping real and imaginary parts before and after it makes the inverse.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hlokit.cpu import costs
from hlokit.cpu.kernels.fft.memory import Work, complex_array, load_splat
from hlokit.cpu.kernels.fft.twiddles import Numbers, roots, table
from hlokit.cpu.llvm import I64, POINTER, Complex, Function, Index, Module, Pointer, Type

LARGEST_PRIME = 31
LARGEST = 1024  # elements of a work buffer: both are on the stack


def factors(n: int) -> list[int] | None:
    """Radices whose product is n: odd primes, then 8s, then 4s and 2s; None if a prime is too large.

    The last pass, which has no weights, is then another function than the 8s' pass, whose code is the longest.
    """
    twos = (n & -n).bit_length() - 1
    rest = n >> twos
    found: list[int] = []
    prime = 3
    while rest > 1:
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
        prime += 2
        if prime > LARGEST_PRIME and rest > 1:
            return None
    eights = max(0, (twos - 1) // 3) if twos != 4 else 0
    return found + [8] * eights + {0: [], 1: [2], 2: [4], 3: [2, 4], 4: [4, 4]}[twos - 3 * eights]


def work_size(n: int) -> int | None:
    """The elements of a work buffer for sequences of length n; None: too many."""
    if factors(n) is not None:
        return n if n <= LARGEST else None
    needed = convolution_size(n)
    return needed if needed <= 2 * LARGEST else None


def convolution_size(n: int, unit: int = 1) -> int:
    """The length that makes a transform of n a convolution: of at least 2 n - 1, the cheapest multiple of `unit`."""
    units = -(-(2 * n - 1) // unit)
    sizes = [unit * (m << max(0, (-(-units // m) - 1).bit_length())) for m in (1, 3, 5, 9, 15)]
    return min(sizes, key=lambda size: (size * len(factors(size) or ()), size))


class Core(NamedTuple):
    """A function (ptr %a, ptr %b) that transforms the elements in work buffer a; whether the result is in b."""

    function: str
    in_other: bool

    def call(self, work: tuple[Work, Work]) -> Work:
        """Transforms work[0]; gives the buffer of the result."""
        work[0].base.fn.call(self.function, work[0].base, work[1].base)
        return work[self.in_other]


def write_core(module: Module, vector: Type, n: int) -> Core:
    """Writes the transform of n elements."""
    found = factors(n)
    radices = _passes(vector, found) if found is not None else []
    core = Core(f"fft_{vector.element}{vector.lanes}_{n}", len(radices) % 2 == 1)
    if core.function in module.functions:
        return core
    f = Function(core.function, [(POINTER, "a"), (POINTER, "b")], attributes="noinline", fast_math="contract")
    source, target = (Work.at(f.pointer(name), vector) for name in ("a", "b"))
    if found is None:
        _write_bluestein(f, module, n, source, target)
    largest = max((a * b for a, b in radices if b > 1), default=0)
    between = Work.local(f, vector, largest) if largest else source
    stride = 1
    for first, second in radices:
        p = _Pass(f, module, source, target, n // stride // (first * second), stride)
        if second == 1:
            p.single(first)
        else:
            p.double(first, second, between)
        source, target = target, source
        stride *= first * second
    module.end(f)
    return core


def _passes(vector: Type, radices: list[int]) -> list[tuple[int, int]]:
    """The radices by ones (with 1), or by twos if the buffers leave the first-level cache: half as many passes."""
    by_twos = math.prod(radices) * 2 * vector.lanes * vector.bytes > costs.FFT_NEAR_BYTES
    if not by_twos:
        return [(radix, 1) for radix in radices]
    odd = radices[: len(radices) % 2]
    even = radices[len(odd) :]
    return [*((radix, 1) for radix in odd), *zip(even[: len(even) // 2], even[len(even) // 2 :], strict=True)]


def _write_bluestein(f: Function, module: Module, n: int, a: Work, b: Work) -> None:
    """Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2 makes a transform of any length a convolution with a chirp."""
    size = work_size(n)
    assert size is not None
    inner, scalar = write_core(module, a.vector, size), a.vector.element
    chirp = roots(np.arange(n) ** 2, 2 * n)
    padded = np.zeros(size, np.complex128)
    padded[:n] = chirp.conj()
    padded[size - n + 1 :] = chirp.conj()[:0:-1]
    chirps = table(f, f"chirp_{n}", scalar, chirp)
    filters = table(f, f"filter_{n}", scalar, np.fft.fft(padded) / size)

    def multiply(buffer: Work, count: int, factors: Pointer, before: bool = False, after: bool = False) -> None:
        """Multiplies by a table, with the parts swapped before or after."""
        with f.loop(0, count) as loop:
            value = buffer.load(loop.index)
            value = (value.swapped() if before else value) * load_splat(factors[loop.index], a.vector.lanes)
            buffer.store(loop.index, value.swapped() if after else value)

    multiply(a, n, chirps)
    zero = f.constant(0.0, a.vector)
    with f.loop(n, size) as loop:
        a.store(loop.index, Complex(zero, zero))
    # the inner transform twice: what the first one leaves in b, the second one brings back
    there = inner.call((a, b))
    multiply(there, size, filters, after=True)
    inner.call((there, a if there is b else b))
    multiply(a, n, chirps, before=True)


@dataclass(frozen=True)
class _Pass:
    """Writes y[q + s(rp + k)] = w^(pk) DFT_k of x[q + s(p + mj)] over j, for all q < s and p < m, from radix r.

    w = exp(-2 pi i / rm): without twiddle factors m is 1.
    """

    f: Function
    module: Module
    source: Work
    target: Work
    m: int
    s: int

    def single(self, radix: int) -> None:
        """One radix r: for each p all q, or all p where there is one q."""
        m, s = self.m, self.s
        step = _write_butterflies(self.module, self.source.vector, radix, 1 if m > 1 else radix)
        twiddles = self._twiddles(f"{radix}_{m}", np.arange(1, radix), radix)
        if s == 1:
            self._call(step, (self.source, m, 1), (self.target, 1, radix), (twiddles, radix - 1), m)
            return
        with self._each(m) as p:
            source, target = self.source[p * s], self.target[p * (s * radix)]
            self._call(step, (source, m * s, 1), (target, s, 1), (twiddles[p * (radix - 1)], 0), s)

    def double(self, first: int, second: int, between: Work) -> None:
        """Radix first * second in two steps: what is between them stays in the first-level cache."""
        m, s, radix, vector = self.m, self.s, first * second, self.source.vector
        begin = _write_butterflies(self.module, vector, first, 1)
        end = _write_butterflies(self.module, vector, second, 0 if m > 1 else second)
        inner = self._table(f"{first}_{second}", np.outer(np.arange(second), np.arange(1, first)), radix)
        places = np.arange(radix).reshape(second, first).T.reshape(-1)  # as the second step's butterflies have them
        twiddles = self._twiddles(f"{first}x{second}_{m}", places, radix)
        with self._each(m) as p, self._each(s) as q:
            source, target = self.source[q + p * s], self.target[q + p * (s * radix)]
            self._call(begin, (source, m * s * second, m * s), (between, second, 1), (inner, first - 1), second)
            outer = (twiddles[p * radix], second)
            self._call(end, (between, 1, second), (target, s * first, s), outer, first)

    @contextmanager
    def _each(self, count: int) -> Generator[Index]:
        """The numbers below `count`; no loop for 0 alone."""
        if count == 1:
            yield self.f.index(0)
            return
        with self.f.loop(0, count) as loop:
            yield loop.index

    def _call(
        self,
        butterflies: str,
        source: tuple[Work, int, int],
        target: tuple[Work, int, int],
        twiddles: tuple[Pointer, int],
        count: int,
    ) -> None:
        ends = (x for work, *steps in (source, target) for x in (work.base, *map(self.f.index, steps)))
        self.f.call(butterflies, *ends, twiddles[0], self.f.index(twiddles[1]), self.f.index(count))

    def _twiddles(self, name: str, places: Numbers, radix: int) -> Pointer:
        return self._table(name, np.outer(np.arange(self.m), places), radix * self.m) if self.m > 1 else self.f.null()

    def _table(self, name: str, exponents: Numbers, n: int) -> Pointer:
        return table(self.f, f"roots_{name}", self.source.vector.element, roots(exponents, n).reshape(-1))


def _write_butterflies(module: Module, vector: Type, radix: int, weighted_from: int) -> str:
    """void f(ptr source, i64 step, i64 next, ptr target, i64 step, i64 next, ptr twiddles, i64 next, i64 count).

    `count` transforms of `radix` elements, which lie `step` apart; `next`: from one transform to the next. Results from
    `weighted_from` on are multiplied by twiddle factors, one after the other. All in elements, or complex numbers.
    """
    kind = {0: "_all", radix: "_last"}.get(weighted_from, "")
    name = f"fft_{vector.element}{vector.lanes}_by{radix}{kind}"
    if name in module.functions:
        return name
    ends = [(type, f"{end}{part}") for end in ("source", "target") for type, part in _STRIDED]
    parameters = [*ends, ("ptr noalias", "twiddles"), (I64, "twiddles_next"), (I64, "count")]
    f = Function(name, parameters, attributes="noinline", shared=name, fast_math="contract")
    step = {end: f.index_argument(f"{end}_step") for end in ("source", "target")}
    following = {end: f.index_argument(f"{end}_next") for end in ("source", "target", "twiddles")}
    buffers = [Work.at(f.pointer(end), vector).base for end in ("source", "target")]
    carries = [*buffers, complex_array(f.pointer("twiddles"), vector.element)]
    with f.loop(0, f.index_argument("count"), carries=carries) as loop:
        source, target = (Work.at(pointer, vector) for pointer in loop.carried[:2])
        twiddles: Pointer = loop.carried[2]
        place, values = source, list[Complex]()
        for _ in range(radix):
            values.append(place.load(0))
            place = place[step["source"]]
        place = target
        for k, value in enumerate(butterfly(values)):
            if k >= weighted_from:
                value = value * load_splat(twiddles[k - weighted_from], vector.lanes)
            place.store(0, value)
            place = place[step["target"]]
        ends = zip(following.values(), (source.base, target.base, twiddles), strict=True)
        loop.next = [pointer[by] for by, pointer in ends]
    module.end(f)
    return name


_STRIDED = (("ptr noalias", ""), (I64, "_step"), (I64, "_next"))


def butterfly(x: list[Complex]) -> list[Complex]:
    """The transform of a few elements."""
    if len(x) == 1:
        return x
    if len(x) == 2:
        return [x[0] + x[1], x[0] - x[1]]
    if len(x) == 4:
        return _butterfly4(x)
    if len(x) == 8:
        return _butterfly8(x)
    return _odd_butterfly(x)


def _butterfly4(x: list[Complex]) -> list[Complex]:
    a, b = x[0] + x[2], x[0] - x[2]
    c, d = x[1] + x[3], x[1] - x[3]
    return [a + c, b.minus_i(d), a - c, b.plus_i(d)]


def _butterfly8(x: list[Complex]) -> list[Complex]:
    even, odd = _butterfly4(x[::2]), _butterfly4(x[1::2])
    # times (1 - i) / sqrt 2 and, but for a factor of -i, (-1 - i) / sqrt 2
    first, third = (Complex(y.real + y.imag, y.imag - y.real).scaled(math.sqrt(0.5)) for y in odd[1::2])
    low = [even[0] + odd[0], even[1] + first, even[2].minus_i(odd[2]), even[3].minus_i(third)]
    return [*low, even[0] - odd[0], even[1] - first, even[2].plus_i(odd[2]), even[3].plus_i(third)]


def _odd_butterfly(x: list[Complex]) -> list[Complex]:
    """By sums and differences of the elements j and n - j: cosines go with the ones, sines with the others."""
    n = len(x)
    half = n // 2
    sums = [x[j] + x[n - j] for j in range(1, half + 1)]
    differences = [x[j] - x[n - j] for j in range(1, half + 1)]
    result = [sum(sums, x[0])] * n
    for k in range(1, half + 1):
        angles = [2 * math.pi * (j * k % n) / n for j in range(1, half + 1)]
        even = sum((s.scaled(math.cos(angle)) for s, angle in zip(sums, angles, strict=True)), x[0])
        first, *others = (d.scaled(math.sin(angle)) for d, angle in zip(differences, angles, strict=True))
        odd = sum(others, first)
        result[k], result[n - k] = even.minus_i(odd), even.plus_i(odd)
    return result
