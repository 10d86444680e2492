"""Transforms of any length (Bluestein's) by two of a length that has passes: a convolution with a chirp.

jk = (j^2 + k^2 - (k - j)^2) / 2: with c_j = exp(-pi i j^2 / n), X_k = c_k sum over j of (x_j c_j) conj(c_(k - j)). The
chirp and its transform are made in each call, once for all sequences: no table is as long as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu.kernels.fft.axis import Axis, Place
from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, convolution_size, swapped
from hlokit.cpu.kernels.fft.memory import Columns, load_column, store_column
from hlokit.cpu.kernels.fft.phases import CHUNK
from hlokit.cpu.kernels.fft.weights import Weights
from hlokit.cpu.kernels.flow import greatest, least
from hlokit.cpu.kernels.routine import PHASE, Phase
from hlokit.cpu.llvm import Function, Module, float_constant, vector

LONGEST = 1 << 25
"""Squares of places are exact in doubles."""
_UNIT = 64
"""Lengths of convolutions are multiples of it: whole vectors, and products of two short ones."""


@dataclass(frozen=True)
class _Rows:
    """outer x length x inner complex numbers at a place."""

    place: Place
    length: int


@dataclass(frozen=True)
class Chirp:
    """The phases of transforms along an axis.

    along    adds the phases of transforms along another axis
    taken    scratch memory for complex numbers
    """

    name: str
    module: Module
    lanes: Lanes
    phases: list[Phase]
    along: Callable[[Axis], None]
    taken: Callable[[int], Place]

    def write(self, axis: Axis) -> None:
        n, size, w = axis.n, convolution_size(axis.n, _UNIT), self.lanes.count
        chirp, filters = self.taken(-(-n // w) * w), self.taken(size)
        wide = self.taken(axis.outer * size * axis.inner)
        source, target, between = _Rows(axis.source, n), _Rows(axis.target, n), _Rows(wide, size)
        self._chirp(n, chirp)
        self._filter(n, size, chirp, filters)
        self.along(Axis(1, size, 1, filters, filters))
        self._times(axis, source, between, chirp, (axis.turned[0], False), 1.0)
        inner = Axis(axis.outer, size, axis.inner, wide, wide)
        self.along(inner)
        # the parts are swapped for the way back
        self._times(axis, between, between, filters, (False, True), 1.0)
        self.along(inner)
        self._times(axis, between, target, chirp, (True, axis.turned[1]), axis.factor / size)

    def _begin(self) -> Function:
        return Function(f"{self.name}_{len(self.phases)}", PHASE)

    def _end(self, f: Function, chunks: int) -> None:
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, chunks))

    def _chirp(self, n: int, target: Place) -> None:
        """c_j: j^2 modulo 2 n in doubles, then a product of two numbers of tables."""
        f, w = self._begin(), self.lanes.count
        weights = Weights(self.module, self.lanes, 2 * n, n)
        doubles, integers = vector("double", w), vector("i64", w)

        def everywhere(value: float) -> str:
            return f"splat (double {float_constant(value, 'double')})"

        def op(name: str, a: str, b: str) -> str:
            return f.let(f"{name} {doubles} {a}, {b}")

        array = target.pointer(f)
        numbers = ", ".join(f"double {float_constant(i, 'double')}" for i in range(w))
        with f.loop(f.let(f"mul i64 %begin, {CHUNK}"), least(f, f.let(f"mul i64 %end, {CHUNK}"), str(n)), w) as loop:
            first = f.let(
                f"insertelement {doubles} poison, double {f.let(f'sitofp i64 {loop.index} to double')}, i64 0"
            )
            first = f.let(f"shufflevector {doubles} {first}, {doubles} poison, <{w} x i32> zeroinitializer")
            places = op("fadd", first, f"<{numbers}>")
            squares = op("fmul", places, places)
            whole = f.let(
                f"call {doubles} @llvm.floor.v{w}f64({doubles} {op('fmul', squares, everywhere(1 / (2 * n)))})"
            )
            rest = op("fsub", squares, op("fmul", whole, everywhere(2 * n)))  # exact: all are integers below 2^53
            for relation, start, change in (("olt", 0, "fadd"), ("oge", 2 * n, "fsub")):
                is_out = f.let(f"fcmp {relation} {doubles} {rest}, {everywhere(start)}")
                moved = op(change, rest, everywhere(2 * n))
                rest = f.let(f"select {vector('i1', w)} {is_out}, {doubles} {moved}, {doubles} {rest}")
            value = weights.powers(f, f.let(f"fptosi {doubles} {rest} to {integers}"))
            store_column(f, self.lanes, Columns(array, loop.index, 0), "0", value)
        self._end(f, -(-n // CHUNK))

    def _filter(self, n: int, size: int, chirp: Place, target: Place) -> None:
        """conj(c_j) at places j and size - j, zeros between."""
        f, lanes, w = self._begin(), self.lanes, self.lanes.count
        source, array = chirp.pointer(f), target.pointer(f)
        low, high = f.let(f"mul i64 %begin, {CHUNK}"), f.let(f"mul i64 %end, {CHUNK}")
        with f.loop(low, least(f, high, str(size)), w) as loop:
            back = f.let(f"sub i64 {size - w + 1}, {loop.index}")
            near = load_column(f, lanes, Columns(source, loop.index, 0, self._valid(f, loop.index, n)), "0")
            far = load_column(f, lanes, Columns(source, back, 0, self._valid(f, back, n)), "0")
            real, imag = lanes.add(f, near, lanes.reverse(f, far))
            value = real, f.let(f"fneg {lanes.type} {imag}")
            store_column(f, lanes, Columns(array, loop.index, 0), "0", value)
        self._end(f, -(-size // CHUNK))

    def _valid(self, f: Function, first: str, count: int) -> str:
        """How many lanes of the vector that begins with element `first` are below `count`."""
        return least(f, greatest(f, f.let(f"sub i64 {count}, {first}"), "0"), str(self.lanes.count))

    def _times(
        self, axis: Axis, source: _Rows, target: _Rows, table: Place, turned: tuple[bool, bool], factor: float
    ) -> None:
        """target[o][k][i] = source[o][k][i] table[k], zeros where the source has no k."""
        f, lanes, w = self._begin(), self.lanes, self.lanes.count
        arrays = source.place.pointer(f), target.place.pointer(f), table.pointer(f)
        count = min(source.length, target.length)

        def put(places: tuple[str, str], valid: tuple[str, str], weight: Complex) -> None:
            value = load_column(f, lanes, Columns(arrays[0], places[0], 0, valid[0]), "0")
            value = lanes.mul(f, swapped(value) if turned[0] else value, weight)
            value = lanes.scale(f, value, factor) if factor != 1.0 else value
            store_column(
                f, lanes, Columns(arrays[1], places[1], 0, valid[1]), "0", swapped(value) if turned[1] else value
            )

        if axis.inner == 1:
            parts = -(-target.length // CHUNK)
            with f.loop("%begin", "%end") as chunk:
                row, part = f.let(f"udiv i64 {chunk.index}, {parts}"), f.let(f"urem i64 {chunk.index}, {parts}")
                starts = [f.let(f"mul i64 {row}, {x.length}") for x in (source, target)]
                low = f.let(f"mul i64 {part}, {CHUNK}")
                high = least(f, f.let(f"add i64 {low}, {CHUNK}"), str(target.length))
                with f.loop(low, high, w) as loop:
                    k = loop.index
                    places = f.let(f"add i64 {starts[0]}, {k}"), f.let(f"add i64 {starts[1]}, {k}")
                    has = "" if count == target.length and count % w == 0 else self._valid(f, k, count)
                    goes = "" if target.length % w == 0 else self._valid(f, k, target.length)
                    put(places, (has, goes), load_column(f, lanes, Columns(arrays[2], k, 0, has), "0"))
            self._end(f, axis.outer * parts)
            return
        rows, per_chunk = axis.outer * target.length, max(1, CHUNK // axis.inner)
        low, high = f.let(f"mul i64 %begin, {per_chunk}"), f.let(f"mul i64 %end, {per_chunk}")
        with f.loop(low, least(f, high, str(rows))) as item:
            row, k = f.let(f"udiv i64 {item.index}, {target.length}"), f.let(f"urem i64 {item.index}, {target.length}")
            exists = f.let(f"icmp slt i64 {k}, {count}")
            place = f.let(f"shl i64 {least(f, k, str(count - 1))}, 1")
            weight = lanes.spread(f, arrays[2], place), lanes.spread(f, arrays[2], f.let(f"add i64 {place}, 1"))
            starts: list[str] = []
            for x in (source, target):
                line = f.let(f"add i64 {f.let(f'mul i64 {row}, {x.length}')}, {k}")
                starts.append(f.let(f"mul i64 {line}, {axis.inner}"))
            with f.loop("0", str(axis.inner), w) as loop:
                places = f.let(f"add i64 {starts[0]}, {loop.index}"), f.let(f"add i64 {starts[1]}, {loop.index}")
                goes = self._valid(f, loop.index, axis.inner)
                put(places, (f.let(f"select i1 {exists}, i64 {goes}, i64 0"), goes), weight)
        self._end(f, -(-rows // per_chunk))
