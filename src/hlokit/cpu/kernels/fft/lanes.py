"""The transform of many sequences at once, one a lane: Stockham's passes over a work buffer, no shuffles.

A work buffer holds for each element of the sequences two vectors, the real and the imaginary parts. Only the forward
transform is written: swapping the parts before and after it makes the inverse.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hlokit.cpu.kernels.linalg.panels import plus, times
from hlokit.cpu.llvm import Function, Module, float_constant, splat, vector

Complex = tuple[str, str]
Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
LARGEST_PRIME = 31
_L1_BYTES = 1 << 14
LARGEST = 1024  # elements of a work buffer: both are on the stack


def swapped(value: Complex) -> Complex:
    return value[1], value[0]


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


@dataclass(frozen=True)
class Lanes:
    """Arithmetic on vectors of `count` lanes of float or double.

    width  lanes of the work buffers, if more: these are then some of them, and pointers are to the first of these
    """

    scalar: str
    count: int
    width: int = 0

    @property
    def type(self) -> str:
        return vector(self.scalar, self.count)

    @property
    def scalar_bytes(self) -> int:
        return 4 if self.scalar == "float" else 8

    def half(self) -> Lanes:
        """The first half of the lanes."""
        return Lanes(self.scalar, self.count // 2, self.count)

    def constant(self, value: float) -> str:
        return splat(float_constant(value, self.scalar), self.scalar, self.count)

    def do(self, f: Function, operation: str, a: str, b: str) -> str:
        return f.let(f"{operation} contract {self.type} {a}, {b}")

    def add(self, f: Function, a: Complex, b: Complex) -> Complex:
        return self.do(f, "fadd", a[0], b[0]), self.do(f, "fadd", a[1], b[1])

    def sub(self, f: Function, a: Complex, b: Complex) -> Complex:
        return self.do(f, "fsub", a[0], b[0]), self.do(f, "fsub", a[1], b[1])

    def mul(self, f: Function, a: Complex, b: Complex) -> Complex:
        """As two products and two fused ones."""
        real = self.do(f, "fsub", self.do(f, "fmul", a[0], b[0]), self.do(f, "fmul", a[1], b[1]))
        return real, self.do(f, "fadd", self.do(f, "fmul", a[0], b[1]), self.do(f, "fmul", a[1], b[0]))

    def scale(self, f: Function, a: Complex, factor: float) -> Complex:
        return self.do(f, "fmul", a[0], self.constant(factor)), self.do(f, "fmul", a[1], self.constant(factor))

    def minus_i(self, f: Function, a: Complex, b: Complex) -> tuple[Complex, Complex]:
        """(a - i b, a + i b)."""
        less = self.do(f, "fadd", a[0], b[1]), self.do(f, "fsub", a[1], b[0])
        more = self.do(f, "fsub", a[0], b[1]), self.do(f, "fadd", a[1], b[0])
        return less, more

    def reverse(self, f: Function, a: Complex) -> Complex:
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(self.count)))
        head, rest = f"shufflevector {self.type}", f"{self.type} poison, <{self.count} x i32> <{order}>"
        return f.let(f"{head} {a[0]}, {rest}"), f.let(f"{head} {a[1]}, {rest}")

    def load(self, f: Function, base: str, index: str) -> Complex:
        """An element of a work buffer."""
        places = self._places(f, base, index)
        real, imag = (f.let(f"load {self.type}, ptr {p}, align {self.count * self.scalar_bytes}") for p in places)
        return real, imag

    def store(self, f: Function, value: Complex, base: str, index: str) -> None:
        for part, place in zip(value, self._places(f, base, index), strict=True):
            f.do(f"store {self.type} {part}, ptr {place}, align {self.count * self.scalar_bytes}")

    def _places(self, f: Function, base: str, index: str) -> tuple[str, str]:
        width = self.width or self.count
        place = f.let(f"getelementptr [{2 * width} x {self.scalar}], ptr {base}, i64 {index}")
        return place, f.let(f"getelementptr {self.scalar}, ptr {place}, i64 {width}")

    def spread(self, f: Function, base: str, index: str) -> str:
        """A scalar of a table in every lane."""
        value = f.let(f"load {self.scalar}, ptr {f.let(f'getelementptr {self.scalar}, ptr {base}, i64 {index}')}")
        if self.count == 1:
            return value
        one = f.let(f"insertelement {self.type} poison, {self.scalar} {value}, i64 0")
        return f.let(f"shufflevector {self.type} {one}, {self.type} poison, <{self.count} x i32> zeroinitializer")


def roots(numbers: Numbers, n: int) -> np.ndarray:  # type: ignore[type-arg]
    """exp(-2 pi i numbers / n), each part rounded once, by reduction to the first eighth of the circle."""
    eighths = (8 * (numbers % n)) // n
    turned = (numbers % n) * 8 - eighths * n  # eighths of 1 / n
    odd = eighths % 2 == 1
    turned = np.where(odd, n - turned, turned)
    angle = turned * (math.pi / 4 / n)
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(odd, s, c), np.where(odd, c, s)  # within a quarter
    quarter = eighths // 2
    real = np.choose(quarter, [c, -s, -c, s])
    imag = np.choose(quarter, [-s, -c, s, c])
    return real + 1j * imag


def table(module: Module, name: str, scalar: str, values: np.ndarray) -> str:  # type: ignore[type-arg]
    """A constant table of numbers, real and imaginary parts by turns; as bytes, which LLVM reads ten times faster."""
    kind = np.complex64 if scalar == "float" else np.complex128
    data = np.ascontiguousarray(values, kind).tobytes()
    shown = "".join(f"\\{byte:02X}" for byte in data)
    text = f'@{name} = internal unnamed_addr constant [{len(data)} x i8] c"{shown}", align 64'
    if module.globals.setdefault(name, text) != text:
        raise AssertionError(f"two tables named {name}")
    return f"@{name}"


def write_core(module: Module, lanes: Lanes, n: int) -> tuple[str, bool]:
    """(a function (ptr %a, ptr %b) that transforms the n elements in work buffer a, whether the result is in b)."""
    found = factors(n)
    if found is None:
        return _write_convolution(module, lanes, n), False
    radices = _passes(lanes, found)
    name = f"fft_{lanes.scalar}{lanes.count}_{n}"
    in_other = len(radices) % 2 == 1
    if name in module.functions:
        return name, in_other
    f = Function(name, [("ptr", "a"), ("ptr", "b")], attributes="noinline")
    largest = max((a * b for a, b in radices if b > 1), default=0)
    between = f.alloca(lanes.type, 2 * largest) if largest else ""
    source, target = "%a", "%b"
    stride = 1
    for first, second in radices:
        p = _Pass(f, module, lanes, source, target, n // stride // (first * second), stride)
        if second == 1:
            p.single(first)
        else:
            p.double(first, second, between)
        source, target = target, source
        stride *= first * second
    f.do("ret void")
    module.add(f)
    return name, in_other


def _passes(lanes: Lanes, radices: list[int]) -> list[tuple[int, int]]:
    """The radices by ones (with 1), or by twos if the buffers leave the first-level cache: half as many passes."""
    by_twos = math.prod(radices) * 2 * lanes.count * lanes.scalar_bytes > _L1_BYTES
    if not by_twos:
        return [(radix, 1) for radix in radices]
    odd = radices[: len(radices) % 2]
    even = radices[len(odd) :]
    return [*((radix, 1) for radix in odd), *zip(even[: len(even) // 2], even[len(even) // 2 :], strict=True)]


def _write_convolution(module: Module, lanes: Lanes, n: int) -> str:
    """Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2 makes a transform of any length a convolution with a chirp."""
    name = f"fft_{lanes.scalar}{lanes.count}_{n}"
    if name in module.functions:
        return name
    size = work_size(n)
    assert size is not None
    inner, in_other = write_core(module, lanes, size)
    chirp = roots(np.arange(n) ** 2, 2 * n)
    padded = np.zeros(size, np.complex128)
    padded[:n] = chirp.conj()
    padded[size - n + 1 :] = chirp.conj()[:0:-1]
    chirps = table(module, f"chirp_{lanes.scalar}_{n}", lanes.scalar, chirp)
    filters = table(module, f"filter_{lanes.scalar}_{n}", lanes.scalar, np.fft.fft(padded) / size)
    f = Function(name, [("ptr", "a"), ("ptr", "b")], attributes="noinline")
    # the inner transform twice: what the first one leaves in b, the second one brings back
    there, back = ("%b", "%a") if in_other else ("%a", "%b")

    def weight(values: str, k: str) -> Complex:
        place = f.let(f"shl i64 {k}, 1")
        return lanes.spread(f, values, place), lanes.spread(f, values, f.let(f"add i64 {place}, 1"))

    def weighted(buffer: str, count: int, values: str, before: bool, after: bool) -> None:
        """Multiplies by a table, with the parts swapped before or after."""
        with f.loop("0", str(count)) as loop:
            value = lanes.load(f, buffer, loop.index)
            value = lanes.mul(f, swapped(value) if before else value, weight(values, loop.index))
            lanes.store(f, swapped(value) if after else value, buffer, loop.index)

    weighted("%a", n, chirps, False, False)
    zero = lanes.constant(0.0)
    with f.loop(str(n), str(size)) as loop:
        lanes.store(f, (zero, zero), "%a", loop.index)
    f.do(f"call void @{inner}(ptr %a, ptr %b)")
    weighted(there, size, filters, False, True)
    f.do(f"call void @{inner}(ptr {there}, ptr {back})")
    weighted("%a", n, chirps, True, False)
    f.do("ret void")
    module.add(f)
    return name


@dataclass(frozen=True)
class _Pass:
    """Writes y[q + s(rp + k)] = w^(pk) DFT_k of x[q + s(p + mj)] over j, for all q < s and p < m, from radix r.

    w = exp(-2 pi i / rm): without weights m is 1.
    """

    f: Function
    module: Module
    lanes: Lanes
    source: str
    target: str
    m: int
    s: int

    def single(self, radix: int) -> None:
        """One radix r: for each p all q, or all p where there is one q."""
        f, m, s = self.f, self.m, self.s
        step = _write_butterflies(self.module, self.lanes, radix, 1 if m > 1 else radix)
        weights = self._weights(f"{radix}_{m}", np.arange(1, radix), radix)
        if s == 1:
            self._call(step, (self.source, m, 1), (self.target, 1, radix), (weights, radix - 1), m)
            return
        with self._each(m) as p:
            source = self._element(self.source, times(f, p, s))
            target = self._element(self.target, times(f, p, s * radix))
            self._call(step, (source, m * s, 1), (target, s, 1), (self._weight(weights, p, radix - 1), 0), s)

    def double(self, first: int, second: int, between: str) -> None:
        """Radix first * second in two steps: what is between them stays in the first-level cache."""
        f, m, s, radix = self.f, self.m, self.s, first * second
        begin = _write_butterflies(self.module, self.lanes, first, 1)
        end = _write_butterflies(self.module, self.lanes, second, 0 if m > 1 else second)
        inner = self._table(f"{first}_{second}", np.outer(np.arange(second), np.arange(1, first)), radix)
        places = np.arange(radix).reshape(second, first).T.reshape(-1)  # as the second step's butterflies have them
        weights = self._weights(f"{first}x{second}_{m}", places, radix)
        with self._each(m) as p, self._each(s) as q:
            source = self._element(self.source, plus(f, q, times(f, p, s)))
            target = self._element(self.target, plus(f, q, times(f, p, s * radix)))
            weight = self._weight(weights, p, radix)
            self._call(begin, (source, m * s * second, m * s), (between, second, 1), (inner, first - 1), second)
            self._call(end, (between, 1, second), (target, s * first, s), (weight, second), first)

    @contextmanager
    def _each(self, count: int) -> Generator[str]:
        """The numbers below `count`; no loop for 0 alone."""
        if count == 1:
            yield "0"
            return
        with self.f.loop("0", str(count)) as loop:
            yield loop.index

    def _call(
        self,
        butterflies: str,
        source: tuple[str, int, int],
        target: tuple[str, int, int],
        weights: tuple[str, int],
        count: int,
    ) -> None:
        ends = (f"ptr {place}, i64 {step}, i64 {following}" for place, step, following in (source, target))
        given = f"ptr {weights[0]}, i64 {weights[1]}, i64 {count}"
        self.f.do(f"call void @{butterflies}({', '.join(ends)}, {given})")

    def _element(self, buffer: str, index: str) -> str:
        return self.f.let(f"getelementptr [{2 * self.lanes.count} x {self.lanes.scalar}], ptr {buffer}, i64 {index}")

    def _weights(self, name: str, places: Numbers, radix: int) -> str:
        return self._table(name, np.outer(np.arange(self.m), places), radix * self.m) if self.m > 1 else "null"

    def _table(self, name: str, exponents: Numbers, n: int) -> str:
        values = roots(exponents, n).reshape(-1)
        return table(self.module, f"roots_{self.lanes.scalar}_{name}", self.lanes.scalar, values)

    def _weight(self, weights: str, p: str, count: int) -> str:
        """The first one for p."""
        place = times(self.f, p, count)
        return self.f.let(f"getelementptr [2 x {self.lanes.scalar}], ptr {weights}, i64 {place}")


def _write_butterflies(module: Module, lanes: Lanes, radix: int, weighted_from: int) -> str:
    """void f(ptr source, i64 step, i64 next, ptr target, i64 step, i64 next, ptr weights, i64 next, i64 count).

    `count` transforms of `radix` elements, which lie `step` apart; `next`: from one transform to the next. Results from
    `weighted_from` on are multiplied by weights, one after the other. All in elements, or complex numbers.
    """
    kind = {0: "_all", radix: "_last"}.get(weighted_from, "")
    name = f"fft_{lanes.scalar}{lanes.count}_by{radix}{kind}"
    if name in module.functions:
        return name
    parameters = [("ptr noalias", "source"), ("i64", "source_step"), ("i64", "source_next")]
    parameters += [("ptr noalias", "target"), ("i64", "target_step"), ("i64", "target_next")]
    parameters += [("ptr noalias", "weights"), ("i64", "weights_next"), ("i64", "count")]
    f = Function(name, parameters, attributes="noinline", shared=name)
    element = f"[{2 * lanes.count} x {lanes.scalar}]"
    carries = [("ptr", "%source"), ("ptr", "%target"), ("ptr", "%weights")]
    with f.loop("0", "%count", carries=carries) as loop:
        source, target, weights = loop.carried
        place, values = source, list[Complex]()
        for _ in range(radix):
            values.append(lanes.load(f, place, "0"))
            place = f.let(f"getelementptr {element}, ptr {place}, i64 %source_step")
        place = target
        for k, value in enumerate(butterfly(f, lanes, values)):
            if k >= weighted_from:
                number = 2 * (k - weighted_from)
                weight = lanes.spread(f, weights, str(number)), lanes.spread(f, weights, str(number + 1))
                value = lanes.mul(f, value, weight)
            lanes.store(f, value, place, "0")
            place = f.let(f"getelementptr {element}, ptr {place}, i64 %target_step")
        loop.next = [
            f.let(f"getelementptr {element}, ptr {source}, i64 %source_next"),
            f.let(f"getelementptr {element}, ptr {target}, i64 %target_next"),
            f.let(f"getelementptr [2 x {lanes.scalar}], ptr {weights}, i64 %weights_next"),
        ]
    f.do("ret void")
    module.add(f)
    return name


def butterfly(f: Function, lanes: Lanes, x: list[Complex]) -> list[Complex]:
    """The transform of a few elements."""
    if len(x) == 1:
        return x
    if len(x) == 2:
        return [lanes.add(f, *x), lanes.sub(f, *x)]
    if len(x) == 4:
        return _butterfly4(f, lanes, x)
    if len(x) == 8:
        return _butterfly8(f, lanes, x)
    return _odd_butterfly(f, lanes, x)


def _butterfly4(f: Function, lanes: Lanes, x: list[Complex]) -> list[Complex]:
    a, b = lanes.add(f, x[0], x[2]), lanes.sub(f, x[0], x[2])
    c, d = lanes.add(f, x[1], x[3]), lanes.sub(f, x[1], x[3])
    first, third = lanes.minus_i(f, b, d)
    return [lanes.add(f, a, c), first, lanes.sub(f, a, c), third]


def _butterfly8(f: Function, lanes: Lanes, x: list[Complex]) -> list[Complex]:
    even, odd = _butterfly4(f, lanes, x[::2]), _butterfly4(f, lanes, x[1::2])
    result: list[Complex] = [("", "")] * 8
    result[0], result[4] = lanes.add(f, even[0], odd[0]), lanes.sub(f, even[0], odd[0])
    result[2], result[6] = lanes.minus_i(f, even[2], odd[2])
    for k, (real, imag) in ((1, odd[1]), (3, odd[3])):
        total = lanes.do(f, "fadd", real, imag)
        difference = lanes.do(f, "fsub", imag, real)
        half = lanes.constant(math.sqrt(0.5))
        total, difference = lanes.do(f, "fmul", total, half), lanes.do(f, "fmul", difference, half)
        if k == 1:  # (1 - i) / sqrt 2
            turned = total, difference
            result[1], result[5] = lanes.add(f, even[1], turned), lanes.sub(f, even[1], turned)
        else:  # (-1 - i) / sqrt 2
            e = even[3]
            result[3] = lanes.do(f, "fadd", e[0], difference), lanes.do(f, "fsub", e[1], total)
            result[7] = lanes.do(f, "fsub", e[0], difference), lanes.do(f, "fadd", e[1], total)
    return result


def _odd_butterfly(f: Function, lanes: Lanes, x: list[Complex]) -> list[Complex]:
    """By sums and differences of the elements j and n - j: cosines go with the ones, sines with the others."""
    n = len(x)
    half = n // 2
    sums = [lanes.add(f, x[j], x[n - j]) for j in range(1, half + 1)]
    differences = [lanes.sub(f, x[j], x[n - j]) for j in range(1, half + 1)]
    result: list[Complex] = [x[0]] * n
    for s in sums:
        result[0] = lanes.add(f, result[0], s)
    for k in range(1, half + 1):
        even, odd = x[0], None
        for j in range(1, half + 1):
            angle = 2 * math.pi * (j * k % n) / n
            even = lanes.add(f, even, lanes.scale(f, sums[j - 1], math.cos(angle)))
            turned = lanes.scale(f, differences[j - 1], math.sin(angle))
            odd = turned if odd is None else lanes.add(f, odd, turned)
        assert odd is not None
        result[k], result[n - k] = lanes.minus_i(f, even, odd)
    return result
