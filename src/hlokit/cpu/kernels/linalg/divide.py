"""Eigenvectors of a symmetric tridiagonal matrix, divide and conquer (Cuppen 1981; Gu, Eisenstat 1995).

T is cut into blocks by changes of rank one. LAPACK solves the blocks (stedc); pairs of them are joined level by level:
LAPACK deflates (laed2) and finds the roots of the secular equation (laed4), each for itself; their eigenvectors come
from weights that fit the roots found, and are multiplied by those of the halves. Eigenvectors are columns,
[column][tall], and in the end stripes, [row][width], in the order of their eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg import LAPACK
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import blocked_update, rank_update
from hlokit.cpu.kernels.linalg.stepped import Part
from hlokit.cpu.kernels.linalg.tridiagonal import Tridiagonal, power_of_two
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import (
    I8,
    I32,
    I64,
    POINTER,
    Function,
    Global,
    IfElse,
    Index,
    Module,
    Pointer,
    Prototype,
    Value,
    While,
)

LEAF = 64
"""Rows of the largest block that LAPACK solves whole: too few for OpenBLAS's threads."""
_INTEGERS = ("indxq", "indx", "indxc", "indxp", "coltyp")


@dataclass(frozen=True)
class Eigen(Tridiagonal):
    """The reduction to a tridiagonal matrix, and the joining of blocks."""

    @cached_property
    def blocks(self) -> int:
        """A power of two."""
        blocks = 1
        while -(-self.m.rows // blocks) > LEAF:
            blocks *= 2
        return blocks

    @property
    def levels(self) -> int:
        return self.blocks.bit_length() - 1

    def largest(self, level: int) -> int:
        """Rows of the largest pair of a level; of the largest block for level -1."""
        return -(-self.m.rows * 2 ** (level + 1) // self.blocks)

    def pairs(self, level: int) -> int:
        return self.blocks >> (level + 1)

    def stripes_of_pair(self, level: int) -> int:
        return -(-self.largest(level) // self.p.width)

    @property
    def most_stripes(self) -> int:
        return max(self.pairs(level) * self.stripes_of_pair(level) for level in range(self.levels))

    @property
    def leaf_memory(self) -> tuple[int, int]:
        """Numbers and integers that LAPACK needs for a block."""
        size = self.largest(-1)
        return 1 + 4 * size + size * size, 3 + 5 * size

    @property
    def leaf_bytes(self) -> tuple[int, int]:
        numbers, integers = self.leaf_memory
        return up(numbers * self.p.bytes, 64), up(integers * 4, 64)

    @cached_property
    def areas(self) -> dict[str, int]:
        """
        q         eigenvectors of the blocks
        packed    those that laed2 has not deflated, in the order of their kinds, then those that it has
        halves    the former, with zeros around: the upper halves of the first kinds, the lower halves of the last
        deltas    [root][tall]: its distances from the poles
        poles, weights, signs    of the secular equations; z in `signs` before
        other     a second array of eigenvalues: levels use them in turn
        rho       [pair], counts [pair][count, upper, lower]: what is multiplied
        factors   [stripe][row][width]: the vectors that the halves' are multiplied by
        vectors   [stripe][row][width]: eigenvectors
        """
        n, column, b = self.m.rows, self.column_bytes, self.p.bytes
        stripes = self.most_stripes * self.stripe_bytes
        mine = dict.fromkeys(("q", "halves", "deltas"), n * column)
        mine |= {"packed": up(n * n * b, 64), "factors": stripes, "vectors": stripes}
        mine |= {"leaves": self.blocks * sum(self.leaf_bytes)}
        mine |= dict.fromkeys(("poles", "weights", "signs", "other"), column)
        mine |= dict.fromkeys(_INTEGERS, up(4 * (n + 4 * self.blocks), 64))
        return super().areas | mine | {"rho": up(self.blocks * b, 64), "counts": up(self.blocks * 32, 64)}

    @cached_property
    def bounds(self) -> Global:
        """The first row of each block, and what comes after the last. Upper halves are not the larger ones."""
        bounds = [0, self.m.rows]
        for _ in range(self.levels):
            middles = [(a + b) // 2 for a, b in pairwise(bounds)]
            bounds = sorted(bounds + middles)
        return Global(f"{self.name}_bounds", I64, len(bounds), initial=bounds, constant=True, align=64)

    def bound(self, f: Function, number: Index, level: Index | int = 0) -> Index:
        """The first row of block number * 2^level."""
        return f.index(f.address(self.bounds)[number << level].load())

    def values(self, f: Part, level: Index) -> Pointer:
        """The place of the eigenvalues that a level begins with."""
        return level.trunc(1).select(self.area(f, "other"), self.area(f, "diagonal"))


def call(f: Part, s: Eigen, routine: str, *arguments: Value | int) -> None:
    """Calls LAPACK's: pointers are given as they are; counts get a place on the stack."""
    places: list[Pointer] = []
    for argument in arguments:
        if isinstance(argument, Pointer):
            places.append(argument)
        else:
            place = f.local(I32, 1, 64)
            place.store(f.index(argument).trunc(32))
            places.append(place)
    name = f"{LAPACK}{'s' if s.p.bytes == 4 else 'd'}{routine}"
    f.call(Prototype(name, None, [POINTER] * len(places)), *places)


def _note(f: Part, s: Eigen, info: Pointer) -> None:
    """Remembers that a routine failed."""
    with f.when(info.load().ne(0)):
        s.flags(f)[0].store(1)


# -- blocks


def cut(s: Eigen, module: Module) -> str:
    """The part that scales T to a largest element of about 1, and cuts it into blocks."""
    p, n = s.p, s.m.rows
    f = s.part("cut", is_cold=True)
    diagonal, off_diagonal = s.area(f, "diagonal"), s.area(f, "off_diagonal")
    off_diagonal[n - 1].store(0.0)
    with f.loop(0, n, carries=[f.constant(0.0, p.scalar)]) as row:
        (most,) = row.carried
        for x in (diagonal, off_diagonal):
            most = most.maxnum(x[row.index].load().abs())
        row.next = [most]
    scale = power_of_two(row.results[0])
    s.area(f, "scales")[1].store(scale)
    factor = 1.0 / scale
    with f.loop(0, n) as row:
        for x in (diagonal, off_diagonal):
            x[row.index].store(x[row.index].load() * factor)
    with f.loop(1, s.blocks) as block:
        row = s.bound(f, block.index)
        rho = off_diagonal[row - 1].load().abs()
        for i in (row - 1, row):
            diagonal[i].store(diagonal[i].load() - rho)
    return module.end(f)


def leaf(s: Eigen, module: Module) -> str:
    """The part that solves block `number`."""
    f = s.part("leaf", is_cold=True)
    first = s.bound(f, f.number)
    size = s.bound(f, f.number + 1) - first
    columns = s.area(f, "q") + first * s.column_bytes
    f.memset(columns, 0, size * s.column_bytes)
    (numbers, integers), (number_bytes, integer_bytes) = s.leaf_memory, s.leaf_bytes
    work = s.area(f, "leaves") + f.number * (number_bytes + integer_bytes)
    letter, info = f.local(I8, 1, 64), f.local(I32, 1, 64)
    letter.store(ord("I"))
    t = s.element(f, "diagonal", first), s.element(f, "off_diagonal", first)
    sizes = s.column_bytes // s.p.bytes, work, numbers, work + number_bytes, integers
    call(f, s, "stedc", letter, size, *t, columns[first], *sizes, info)
    _note(f, s, info)
    return module.end(f)


# -- pairs


class _Pair:
    """The pair of blocks that piece `number` of a level belongs to, and where things of it are."""

    def __init__(self, f: Part, s: Eigen, has_stripes: bool = False) -> None:
        """has_stripes: whether a piece is a stripe of a pair"""
        self._f, self._s = f, s
        self.number, self.piece = f.number, f.index(0)
        level = f.step + 1
        if has_stripes:
            rows = (f.index(s.m.rows) << level) + (s.blocks - 1)
            pieces = ((rows >> s.levels) + (s.p.width - 1)) // s.p.width  # stripes_of_pair
            self.number, self.piece = f.number // pieces, f.number % pieces
        self.first = s.bound(f, self.number, level)
        self.upper = s.bound(f, self.number << 1 | 1, f.step) - self.first
        self.size = s.bound(f, self.number + 1, level) - self.first
        self.lower = self.size - self.upper
        self.low = (self.upper + (s.p.rows - 1)) & -s.p.rows  # the lower half's row in `halves`

    def at(self, area: str) -> Pointer:
        """The place of the pair's in an area of numbers."""
        return self._s.element(self._f, area, self.first)

    def column(self, area: str, number: Index | int = 0) -> Pointer:
        """The place of a column of the pair's in an area of columns, from row 0 on."""
        return self._s.area(self._f, area) + (self.first + number) * self._s.column_bytes

    def integers(self, area: str) -> Pointer:
        return self._s.area(self._f, area).to(I32)[self.first] + self.number * 16

    @property
    def values(self) -> Pointer:
        return self._s.values(self._f, self._f.step)[self.first]

    @property
    def weights(self) -> Pointer:
        """The place of the weights that are made: with room for a whole vector at the end."""
        return self._s.area(self._f, "w")[self.first + self.number * self._s.p.lanes]

    @property
    def rho(self) -> Pointer:
        return self._s.element(self._f, "rho", self.number)

    @property
    def packed(self) -> Pointer:
        return self._s.area(self._f, "packed") + self.first * (self._s.m.rows * self._s.p.bytes)

    @property
    def counts(self) -> Pointer:
        """The place of counts: roots, columns of upper halves, of lower ones, and those before the first of these."""
        return (self._s.area(self._f, "counts") + self.number * 32).to(I64)

    def count(self, number: int) -> Index:
        return self._f.index(self.counts[number].load())


def deflate(s: Eigen, module: Module) -> str:
    """The part that makes the secular equation of pair `number`, or finds that there is none."""
    f = s.part("deflate", is_cold=True)
    pair = _Pair(f, s)
    q, z, above = pair.column("q")[pair.first], pair.at("signs"), pair.upper - 1
    with f.loop(0, pair.size) as row:  # z: the last row of the upper eigenvectors, the first of the lower ones
        is_upper = row.index < pair.upper
        at, start = (is_upper.select(x, pair.upper) for x in (above, f.index(0)))
        z[row.index].store((q + row.index * s.column_bytes)[at].load())
        pair.integers("indxq")[row.index].store((row.index - start + 1).trunc(32))
    pair.rho.store(pair.at("off_diagonal")[above].load())
    count, info = f.local(I32, 1, 64), f.local(I32, 1, 64)
    head = count, pair.size, pair.upper, pair.values, q, s.column_bytes // s.p.bytes
    middle = pair.integers("indxq"), pair.rho, z, pair.at("poles"), pair.at("weights"), pair.packed
    call(f, s, "laed2", *head, *middle, *(pair.integers(name) for name in _INTEGERS[1:]), info)
    _note(f, s, info)
    roots = f.index(count.load().sext(64))
    written = roots.ne(0)
    kinds = [written.select(_integer(pair.integers("coltyp"), f.index(i)), 0) for i in range(3)]
    for i, value in enumerate((roots, kinds[0] + kinds[1], kinds[1] + kinds[2], kinds[0])):
        pair.counts[i].store(value)
    return module.end(f)


def roots(s: Eigen, module: Module) -> str:
    """The part that finds the roots of a stripe of a pair, and lays out as many columns of the halves."""
    p = s.p
    f = s.part("roots", is_cold=True)
    pair = _Pair(f, s, has_stripes=True)
    count, uppers, lowers = (pair.count(i) for i in range(3))
    low = pair.piece * p.width
    high = low + p.width
    info = f.local(I32, 1, 64)
    with f.loop(low, high.smin(count)) as root:
        delta, value = pair.column("deltas", root.index), pair.values[root.index]
        equation = count, root.index + 1, pair.at("poles"), pair.at("weights")
        call(f, s, "laed4", *equation, delta, pair.rho, value, info)
        _note(f, s, info)
    lower_start, zero = pair.packed[uppers * pair.upper], f.index(0)
    halves = (uppers, pair.packed, zero, pair.upper), (lowers, lower_start, pair.low, pair.lower)
    for columns, source, row, size in halves:
        with f.loop(low, high.smin(columns)) as number:
            target = pair.column("halves", number.index)[row]
            f.memset(target[size & -p.rows], 0, p.rows * p.bytes)
            f.memcpy(target, source[number.index * size], size * p.bytes)
    return module.end(f)


def weights(s: Eigen, module: Module) -> str:
    """The part that makes the weights of which the roots are the exact ones, and sorts the values of pair `number`.

    By Loewner's formula w_i^2 = product over j of (d_i - root_j) / (d_i - d_j), without the denominator for j = i.
    """
    p = s.p
    f = s.part("weights")
    pair = _Pair(f, s)
    count, poles, deltas = pair.count(0), pair.at("poles"), pair.column("deltas")
    one = f.constant(1.0, p.vector)
    with f.loop(0, count, p.lanes) as i:
        pole = poles[i.index].load(p.lanes)
        with f.loop(0, count, carries=[one]) as j:
            delta = (deltas + j.index * s.column_bytes)[i.index].load(p.lanes)
            gap = pole - poles[j.index].load().splat(p.lanes)
            is_own = (j.index - i.index).splat(p.lanes).eq(f.lane_numbers(I64.of(p.lanes)))
            j.next = [j.carried[0] * (delta / is_own.select(one, gap))]
        sign = pair.at("weights")[i.index].load(p.lanes)
        pair.weights[i.index].store((-j.results[0]).sqrt().copysign(sign))
    # without roots all are sorted, else LAPACK leaves the deflated ones from the greatest on
    step = count.eq(0).select(f.index(1), -1)
    order = pair.integers("indxq")
    call(f, s, "lamrg", count, pair.size - count, pair.values, 1, step, order)
    _sort(order, pair.values, pair.size)
    return module.end(f)


def _sort(order: Pointer, values: Pointer, count: Index) -> None:
    """Sorts the numbers from 1 on of values which are nearly so: LAPACK's rotations leave neighbours by rounding."""
    f = count.fn
    with f.loop(1, count) as loop:
        mine = _integer(order, loop.index)
        key = values[mine - 1].load()
        insertion = While(f, [loop.index])
        (place,) = insertion.values
        insertion.test(place > 0)
        before = place - 1
        other = _integer(order, before)
        insertion.test(values[other - 1].load() > key)
        order[place].store(other.trunc(32))
        insertion.again(before)
        order[insertion.values[0]].store(mine.trunc(32))


def vectors(s: Eigen, module: Module) -> str:
    """The part that makes a stripe of a pair's eigenvectors; below the last level columns of them too."""
    p = s.p
    f = s.part("vectors")
    pair = _Pair(f, s, has_stripes=True)
    count, uppers, lowers, skipped = (pair.count(i) for i in range(4))
    low = pair.piece * p.width
    stripe, factors = (s.area(f, x) + f.number * s.stripe_bytes for x in ("vectors", "factors"))
    f.memset(stripe, 0, s.stripe_bytes)
    f.memset(factors, 0, count * p.stripe_row)
    deflated = pair.packed[uppers * pair.upper + lowers * pair.lower]
    after = s.values(f, f.step + 1)[pair.first]
    columns = (pair.size - low).smin(p.width).smax(0)
    with f.loop(0, columns) as column:
        position = low + column.index
        source = _integer(pair.integers("indxq"), position) - 1
        after[position].store(pair.values[source].load())
        is_root = IfElse(f, source < count)
        delta = pair.column("deltas", source)
        scale = f.call_for(p.scalar, _normalize(s, module), delta, pair.weights, count)
        with f.loop(0, count) as row:
            at = _integer(pair.integers("indxc"), row.index) - 1
            (factors + row.index * p.stripe_row)[column.index].store(delta[at].load() * scale)
        is_root.otherwise()
        line = deflated[(source - count) * pair.size]
        with f.loop(0, pair.size) as row:
            (stripe + row.index * p.stripe_row)[column.index].store(line[row.index].load())
        is_root.end()
    halves, multiply = pair.column("halves"), _product(s, module)
    f.call(multiply, stripe, halves, factors, pair.upper, uppers)
    lower_factors = factors + skipped * p.stripe_row
    f.call(multiply, stripe + pair.upper * p.stripe_row, halves[pair.low], lower_factors, pair.lower, lowers)
    with f.when(f.step < s.levels - 1):
        turn = copy(module, p, p.width, Strides(p.bytes, s.column_bytes), False)
        f.call(turn, stripe, pair.column("q", low)[pair.first], pair.size, columns)
    return module.end(f)


def _integer(array: Pointer, number: Index) -> Index:
    return array.fn.index(array[number].load().sext(64))


def _normalize(s: Eigen, module: Module) -> str:
    """The function (delta, weights, count): delta becomes weights / delta; minus its norm's reciprocal.

    Of less than three poles LAPACK has made the vectors themselves.
    """
    p = s.p
    name = f"{s.name}_normalize"
    if name in module.functions:
        return name
    f = Function(name, [(POINTER, "delta"), (POINTER, "weights"), (I64, "count")], p.scalar, "noinline")
    delta, weights, count = f.arguments(p.scalar)
    f.return_if(count < 3, -1.0)

    def divided(row: Index, lanes: int) -> Value:
        value = weights[row].load(lanes) / delta[row].load(lanes)
        delta[row].store(value)
        return value

    whole = count & -p.lanes
    with f.loop(0, whole, p.lanes, carries=[f.constant(0.0, p.vector)]) as row:
        value = divided(row.index, p.lanes)
        row.next = [value.fmuladd(value, row.carried[0])]
    square = row.results[0].sum()
    with f.loop(whole, count, carries=[f.constant(0.0, p.scalar)]) as row:
        value = divided(row.index, 1)
        row.next = [row.carried[0] + value * value]
    f.returns(-1.0 / (square + row.results[0]).sqrt())
    module.add(f)
    return name


def _product(s: Eigen, module: Module) -> str:
    """The function (c, a, b, rows, count): c[rows][width] -= a[count][tall]^T b[count][width]."""
    p = s.p
    name = f"{s.name}_product"
    if name in module.functions:
        return name
    f, (c, a, b, rows, count) = subroutine(name, p.scalar, c=POINTER, a=POINTER, b=POINTER, rows=I64, count=I64)
    blocked_update(rank_update(module, s.tall), p, c, rows, (a, s.column_bytes), b, 0, count)
    return module.end(f)
