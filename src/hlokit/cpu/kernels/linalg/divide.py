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

from hlokit.cpu.kernels.flow import greatest, least
from hlokit.cpu.kernels.linalg import panels
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import DEPTH, clear, everywhere, fma, load, offset, plus, spread, store, times, up
from hlokit.cpu.kernels.linalg.qr import total
from hlokit.cpu.kernels.linalg.tridiagonal import Tridiagonal, power_of_two
from hlokit.cpu.llvm import Function, Module, While, float_constant

LEAF = 64
"""Rows of the largest block that LAPACK solves whole: too few for OpenBLAS's threads."""
_INTEGERS = ("indxq", "indx", "indxc", "indxp", "coltyp")


@dataclass(frozen=True)
class Eigen(Tridiagonal):
    """What a reduction needs, and the joining of blocks."""

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
        n, column, b = self.m.rows, self.tall.panel_column, self.p.bytes
        stripes = self.most_stripes * self.stripe_bytes
        numbers, integers = self.leaf_memory
        leaf = up(numbers * b, 64) + up(integers * 4, 64)
        mine = dict.fromkeys(("q", "halves", "deltas"), n * column)
        mine |= {"packed": up(n * n * b, 64), "factors": stripes, "vectors": stripes, "leaves": self.blocks * leaf}
        mine |= dict.fromkeys(("poles", "weights", "signs", "other"), column)
        mine |= dict.fromkeys(_INTEGERS, up(4 * (n + 4 * self.blocks), 64))
        return super().areas | mine | {"rho": up(self.blocks * b, 64), "counts": up(self.blocks * 32, 64)}

    @property
    def bounds(self) -> list[int]:
        """The first row of each block, and what comes after the last. Upper halves are not the larger ones."""
        bounds = [0, self.m.rows]
        for _ in range(self.levels):
            middles = [(a + b) // 2 for a, b in pairwise(bounds)]
            bounds = sorted(bounds + middles)
        return bounds

    def bound(self, f: Function, number: str, level: int | str = 0) -> str:
        """The first row of block number * 2^level."""
        place = offset(f, f"@{self.name}_bounds", (f.let(f"shl i64 {number}, {level}"), 8))
        return f.let(f"load i64, ptr {place}, align 8")

    def values(self, f: Function, level: str) -> str:
        """The place of the eigenvalues that a level begins with."""
        odd = f.let(f"trunc i64 {level} to i1")
        return f.let(f"select i1 {odd}, ptr {self.area(f, 'other')}, ptr {self.area(f, 'diagonal')}")


def call(f: Function, module: Module, s: Eigen, routine: str, *arguments: str) -> None:
    """Calls LAPACK's: pointers are given as they are; i64 values as "i64 %x" get a place on the stack."""
    places: list[str] = []
    for argument in arguments:
        if argument.startswith("i64 "):
            place = f.alloca("i32")
            f.do(f"store i32 {f.let(f'trunc {argument} to i32')}, ptr {place}, align 4")
            argument = place
        places.append(f"ptr {argument}")
    name = f"hlokit_lapack_{'s' if s.p.bytes == 4 else 'd'}{routine}"
    module.declare(name, ["ptr"] * len(places))
    f.do(f"call void @{name}({', '.join(places)})")


def _note(f: Function, s: Eigen, info: str) -> None:
    """Remembers that a routine failed."""
    with f.when(f.let(f"icmp ne i32 {f.let(f'load i32, ptr {info}, align 4')}, 0")):
        f.do(f"store i32 1, ptr {s.area(f, 'failed')}, align 4")


# -- blocks


def cut(s: Eigen, module: Module) -> str:
    """The part that scales T to a largest element of about 1, and cuts it into blocks."""
    p, n = s.p, s.m.rows
    f = s.part("cut", is_cold=True)
    kind, bits = p.scalar, 8 * p.bytes
    module.table(f"{s.name}_bounds", "i64", s.bounds)
    diagonal, beside = s.area(f, "diagonal"), s.area(f, "beside")
    store(f, p, float_constant(0.0, kind), offset(f, beside, (n - 1) * p.bytes))

    def size(place: str) -> str:
        return f.let(f"call {kind} @llvm.fabs.f{bits}({kind} {load(f, p, place)})")

    with f.loop("0", str(n), carries=[(kind, float_constant(0.0, kind))]) as row:
        (most,) = row.carried
        for x in (diagonal, beside):
            most = f.let(
                f"call {kind} @llvm.maxnum.f{bits}({kind} {most}, {kind} {size(offset(f, x, (row.index, p.bytes)))})"
            )
        row.next = [most]
    scale = power_of_two(f, p, row.results[0])
    store(f, p, scale, offset(f, s.area(f, "scales"), p.bytes))
    factor = f.let(f"fdiv {kind} {float_constant(1.0, kind)}, {scale}")
    with f.loop("0", str(n)) as row:
        for x in (diagonal, beside):
            place = offset(f, x, (row.index, p.bytes))
            store(f, p, f.let(f"fmul {kind} {load(f, p, place)}, {factor}"), place)
    with f.loop("1", str(s.blocks)) as block:
        row = s.bound(f, block.index)
        rho = size(offset(f, beside, (row, p.bytes), -p.bytes))
        for i in (-1, 0):
            place = offset(f, diagonal, (row, p.bytes), i * p.bytes)
            store(f, p, f.let(f"fsub {kind} {load(f, p, place)}, {rho}"), place)
    return s.end(f, module)


def leaf(s: Eigen, module: Module) -> str:
    """The part that solves block `number`."""
    p, column = s.p, s.tall.panel_column
    f = s.part("leaf", is_cold=True)
    first, last = s.bound(f, "%number"), s.bound(f, plus(f, "%number", 1))
    size = f.let(f"sub nsw i64 {last}, {first}")
    columns = offset(f, s.area(f, "q"), (first, column))
    clear(f, columns, times(f, size, column))
    numbers, integers = s.leaf_memory
    work = offset(f, s.area(f, "leaves"), ("%number", up(numbers * p.bytes, 64) + up(integers * 4, 64)))
    more, letter, info = offset(f, work, up(numbers * p.bytes, 64)), f.alloca("i8"), f.alloca("i32")
    f.do(f"store i8 {ord('I')}, ptr {letter}")
    d, e = s.element(f, "diagonal", first), s.element(f, "beside", first)
    q = offset(f, columns, (first, p.bytes))
    sizes = f"i64 {column // p.bytes}", work, f"i64 {numbers}", more, f"i64 {integers}", info
    call(f, module, s, "stedc", letter, f"i64 {size}", d, e, q, *sizes)
    _note(f, s, info)
    return s.end(f, module)


# -- pairs


class _Pair:
    """What a part of a level knows of the pair that piece %number of it belongs to."""

    def __init__(self, f: Function, s: Eigen, has_stripes: bool = False):
        """has_stripes: whether a piece is a stripe of a pair"""
        self._f, self._s = f, s
        self.number, self.piece = "%number", "0"
        level = plus(f, "%step", 1)
        if has_stripes:
            rows = plus(f, f.let(f"shl i64 {s.m.rows}, {level}"), s.blocks - 1)
            pieces = plus(f, f.let(f"lshr i64 {rows}, {s.levels}"), s.p.width - 1)
            pieces = f.let(f"udiv i64 {pieces}, {s.p.width}")  # stripes_of_pair
            self.number, self.piece = (f.let(f"{x} i64 %number, {pieces}") for x in ("udiv", "urem"))
        self.first = s.bound(f, self.number, level)
        middle = f.let(f"or i64 {f.let(f'shl i64 {self.number}, 1')}, 1")
        self.upper = f.let(f"sub nsw i64 {s.bound(f, middle, '%step')}, {self.first}")
        self.size = f.let(f"sub nsw i64 {s.bound(f, plus(f, self.number, 1), level)}, {self.first}")
        self.lower = f.let(f"sub nsw i64 {self.size}, {self.upper}")
        self.low = f.let(
            f"and i64 {plus(f, self.upper, s.p.rows - 1)}, {-s.p.rows}"
        )  # the lower half's row in `halves`

    def at(self, area: str) -> str:
        """The place of the pair's in an area of numbers."""
        return self._s.element(self._f, area, self.first)

    def column(self, area: str, number: str = "0") -> str:
        """The place of a column of the pair's in an area of columns, from row 0 on."""
        return offset(
            self._f, self._s.area(self._f, area), (plus(self._f, self.first, number), self._s.tall.panel_column)
        )

    def integers(self, area: str) -> str:
        return offset(self._f, self._s.area(self._f, area), (self.first, 4), (self.number, 16))

    @property
    def values(self) -> str:
        return offset(self._f, self._s.values(self._f, "%step"), (self.first, self._s.p.bytes))

    @property
    def weights(self) -> str:
        """The place of the weights that are made: with room for a whole vector at the end."""
        return offset(
            self._f,
            self._s.area(self._f, "w"),
            (plus(self._f, self.first, times(self._f, self.number, self._s.p.lanes)), self._s.p.bytes),
        )

    @property
    def rho(self) -> str:
        return self._s.element(self._f, "rho", self.number)

    @property
    def packed(self) -> str:
        return offset(self._f, self._s.area(self._f, "packed"), (self.first, self._s.m.rows * self._s.p.bytes))

    @property
    def counted(self) -> str:
        """The place of counts: roots, columns of upper halves, of lower ones, and those before the first of these."""
        return offset(self._f, self._s.area(self._f, "counts"), (self.number, 32))

    def count(self, number: int) -> str:
        return self._f.let(f"load i64, ptr {offset(self._f, self.counted, 8 * number)}, align 8")


def deflate(s: Eigen, module: Module) -> str:
    """The part that makes the secular equation of pair `number`, or finds that there is none."""
    p, column = s.p, s.tall.panel_column
    f = s.part("deflate", is_cold=True)
    pair = _Pair(f, s)
    q = offset(f, pair.column("q"), (pair.first, p.bytes))
    z = pair.at("signs")
    above = f.let(f"sub nsw i64 {pair.upper}, 1")
    with f.loop("0", pair.size) as row:
        is_upper = f.let(f"icmp slt i64 {row.index}, {pair.upper}")
        at = f.let(f"select i1 {is_upper}, i64 {above}, i64 {pair.upper}")
        value = load(f, p, offset(f, q, (row.index, column), (at, p.bytes)))
        store(f, p, value, offset(f, z, (row.index, p.bytes)))
        start = f.let(f"select i1 {is_upper}, i64 0, i64 {pair.upper}")
        rank = plus(f, f.let(f"sub nsw i64 {row.index}, {start}"), 1)
        place = offset(f, pair.integers("indxq"), (row.index, 4))
        f.do(f"store i32 {f.let(f'trunc i64 {rank} to i32')}, ptr {place}, align 4")
    beside = offset(f, pair.at("beside"), (above, p.bytes))
    store(f, p, load(f, p, beside), pair.rho)
    count, info = f.alloca("i32"), f.alloca("i32")
    head = count, f"i64 {pair.size}", f"i64 {pair.upper}", pair.values, q, f"i64 {column // p.bytes}"
    middle = pair.integers("indxq"), pair.rho, z, pair.at("poles"), pair.at("weights"), pair.packed
    call(f, module, s, "laed2", *head, *middle, *(pair.integers(name) for name in _INTEGERS[1:]), info)
    _note(f, s, info)
    roots = f.let(f"sext i32 {f.let(f'load i32, ptr {count}, align 4')} to i64")
    kinds = [f.let(f"load i32, ptr {offset(f, pair.integers('coltyp'), 4 * i)}, align 4") for i in range(3)]
    is_any = f.let(f"icmp ne i64 {roots}, 0")  # else they are not written
    kinds = [f.let(f"select i1 {is_any}, i64 {f.let(f'sext i32 {kind} to i64')}, i64 0") for kind in kinds]
    counts = roots, plus(f, kinds[0], kinds[1]), plus(f, kinds[1], kinds[2]), kinds[0]
    for i, value in enumerate(counts):
        f.do(f"store i64 {value}, ptr {offset(f, pair.counted, 8 * i)}, align 8")
    return s.end(f, module)


def roots(s: Eigen, module: Module) -> str:
    """The part that finds the roots of a stripe of a pair, and lays out as many columns of the halves."""
    p = s.p
    f = s.part("roots", is_cold=True)
    pair = _Pair(f, s, has_stripes=True)
    count, uppers, lowers = (pair.count(i) for i in range(3))
    low = times(f, pair.piece, p.width)
    high = plus(f, low, p.width)
    info = f.alloca("i32")
    with f.loop(low, least(f, high, count)) as root:
        delta, value = pair.column("deltas", root.index), offset(f, pair.values, (root.index, p.bytes))
        sizes = f"i64 {count}", f"i64 {plus(f, root.index, 1)}"
        call(f, module, s, "laed4", *sizes, pair.at("poles"), pair.at("weights"), delta, pair.rho, value, info)
        _note(f, s, info)
    start = offset(f, pair.packed, (f.let(f"mul nsw i64 {uppers}, {pair.upper}"), p.bytes))
    for columns, source, row, size in ((uppers, pair.packed, "0", pair.upper), (lowers, start, pair.low, pair.lower)):
        with f.loop(low, least(f, high, columns)) as number:
            target = offset(f, pair.column("halves", number.index), (row, p.bytes))
            nbytes = times(f, size, p.bytes)
            clear(f, offset(f, target, (f.let(f"and i64 {size}, {-p.rows}"), p.bytes)), str(p.rows * p.bytes))
            line = offset(f, source, (f.let(f"mul nsw i64 {number.index}, {size}"), p.bytes))
            f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {line}, i64 {nbytes}, i1 false)")
    return s.end(f, module)


def weights(s: Eigen, module: Module) -> str:
    """The part that makes the weights of which the roots are the exact ones, and the order of pair `number`'s values.

    w_i^2 = product over j of (d_i - root_j) / (d_i - d_j), without the denominator for j = i.
    """
    p, column = s.p, s.tall.panel_column
    f = s.part("weights")
    pair = _Pair(f, s)
    count = pair.count(0)
    poles, deltas = pair.at("poles"), pair.column("deltas")
    integers = f"<{p.lanes} x i64>"
    lanes = f"<{', '.join(f'i64 {i}' for i in range(p.lanes))}>"
    with f.loop("0", count, p.lanes) as row:
        pole = load(f, p, offset(f, poles, (row.index, p.bytes)), p.lanes)
        with f.loop("0", count, carries=[(p.vector, everywhere(p, 1.0))]) as root:
            delta = load(f, p, offset(f, deltas, (root.index, column), (row.index, p.bytes)), p.lanes)
            other = spread(f, p, load(f, p, offset(f, poles, (root.index, p.bytes))))
            gap = f.let(f"fsub {p.vector} {pole}, {other}")
            own = f.let(
                f"insertelement {integers} poison, i64 {f.let(f'sub nsw i64 {root.index}, {row.index}')}, i32 0"
            )
            own = f.let(f"shufflevector {integers} {own}, {integers} poison, <{p.lanes} x i32> zeroinitializer")
            is_own = f.let(f"icmp eq {integers} {own}, {lanes}")
            gap = f.let(f"select <{p.lanes} x i1> {is_own}, {p.vector} {everywhere(p, 1.0)}, {p.vector} {gap}")
            share = f.let(f"fdiv {p.vector} {delta}, {gap}")
            root.next = [f.let(f"fmul {p.vector} {root.carried[0]}, {share}")]
        square = f.let(f"fneg {p.vector} {root.results[0]}")
        size = f.let(f"call {p.vector} @llvm.sqrt.{p.suffix}({p.vector} {square})")
        sign = load(f, p, offset(f, pair.at("weights"), (row.index, p.bytes)), p.lanes)
        value = f.let(f"call {p.vector} @llvm.copysign.{p.suffix}({p.vector} {size}, {p.vector} {sign})")
        store(f, p, value, offset(f, pair.weights, (row.index, p.bytes)), p.lanes)
    is_sorted = f.let(f"icmp eq i64 {count}, 0")  # else LAPACK leaves the deflated ones from the greatest on
    step = f.let(f"select i1 {is_sorted}, i64 1, i64 -1")
    rest = f.let(f"sub nsw i64 {pair.size}, {count}")
    call(
        f,
        module,
        s,
        "lamrg",
        f"i64 {count}",
        f"i64 {rest}",
        pair.values,
        "i64 1",
        f"i64 {step}",
        pair.integers("indxq"),
    )
    _sort(f, s, pair.integers("indxq"), pair.values, pair.size)
    return s.end(f, module)


def _sort(f: Function, s: Eigen, order: str, values: str, count: str) -> None:
    """Sorts the numbers from 1 on of values which are nearly so: LAPACK's rotations leave neighbours by rounding."""

    def value(number: str) -> str:
        return load(f, s.p, offset(f, values, (plus(f, number, -1), s.p.bytes)))

    def put(number: str, place: str) -> None:
        f.do(f"store i32 {f.let(f'trunc i64 {number} to i32')}, ptr {offset(f, order, (place, 4))}, align 4")

    with f.loop("1", count) as loop:
        mine = _integer(f, order, loop.index)
        key = value(mine)
        w = While(f, [("i64", loop.index)])
        w.test(f.let(f"icmp sgt i64 {w.values[0]}, 0"))
        before = plus(f, w.values[0], -1)
        other = _integer(f, order, before)
        w.test(f.let(f"fcmp ogt {s.p.scalar} {value(other)}, {key}"))
        put(other, w.values[0])
        w.again(before)
        put(mine, w.values[0])


def vectors(s: Eigen, module: Module) -> str:
    """The part that makes a stripe of a pair's eigenvectors; below the last level columns of them too."""
    p, column = s.p, s.tall.panel_column
    f = s.part("vectors")
    pair = _Pair(f, s, has_stripes=True)
    count, uppers, lowers, skipped = (pair.count(i) for i in range(4))
    low = times(f, pair.piece, p.width)
    stripe, factors = (offset(f, s.area(f, x), ("%number", s.stripe_bytes)) for x in ("vectors", "factors"))
    clear(f, stripe, str(s.stripe_bytes))
    clear(f, factors, times(f, count, p.stripe_row))
    used = plus(f, f.let(f"mul nsw i64 {uppers}, {pair.upper}"), f.let(f"mul nsw i64 {lowers}, {pair.lower}"))
    deflated = offset(f, pair.packed, (used, p.bytes))
    after = offset(f, s.values(f, plus(f, "%step", 1)), (pair.first, p.bytes))
    columns = greatest(f, "0", least(f, f.let(f"sub nsw i64 {pair.size}, {low}"), str(p.width)))
    with f.loop("0", columns) as number:
        position = plus(f, low, number.index)
        source = plus(f, _integer(f, pair.integers("indxq"), position), -1)
        value = load(f, p, offset(f, pair.values, (source, p.bytes)))
        store(f, p, value, offset(f, after, (position, p.bytes)))
        is_root = f.let(f"icmp slt i64 {source}, {count}")
        with f.when(is_root):
            delta = pair.column("deltas", source)
            scale = f.let(f"call {p.scalar} @{_normalize(s, module)}(ptr {delta}, ptr {pair.weights}, i64 {count})")
            with f.loop("0", count) as row:
                at = plus(f, _integer(f, pair.integers("indxc"), row.index), -1)
                value = f.let(f"fmul {p.scalar} {load(f, p, offset(f, delta, (at, p.bytes)))}, {scale}")
                store(f, p, value, offset(f, factors, (row.index, p.stripe_row), (number.index, p.bytes)))
        with f.when(f.let(f"xor i1 {is_root}, true")):
            line = f.let(f"mul nsw i64 {f.let(f'sub nsw i64 {source}, {count}')}, {pair.size}")
            with f.loop("0", pair.size) as row:
                value = load(f, p, offset(f, deflated, (line, p.bytes), (row.index, p.bytes)))
                store(f, p, value, offset(f, stripe, (row.index, p.stripe_row), (number.index, p.bytes)))
    halves, multiply = pair.column("halves"), _product(s, module)
    f.do(f"call void @{multiply}(ptr {stripe}, ptr {halves}, ptr {factors}, i64 {pair.upper}, i64 {uppers})")
    under, lows = offset(f, stripe, (pair.upper, p.stripe_row)), offset(f, halves, (pair.low, p.bytes))
    rights = offset(f, factors, (skipped, p.stripe_row))
    f.do(f"call void @{multiply}(ptr {under}, ptr {lows}, ptr {rights}, i64 {pair.lower}, i64 {lowers})")
    with f.when(f.let(f"icmp slt i64 %step, {s.levels - 1}")):
        q = offset(f, pair.column("q", low), (pair.first, p.bytes))
        turn = copy(module, p, p.width, Strides(p.bytes, column), False)
        f.do(f"call void @{turn}(ptr {stripe}, ptr {q}, i64 {pair.size}, i64 {columns})")
    return s.end(f, module)


def _integer(f: Function, array: str, number: str) -> str:
    value = f.let(f"load i32, ptr {offset(f, array, (number, 4))}, align 4")
    return f.let(f"sext i32 {value} to i64")


def _normalize(s: Eigen, module: Module) -> str:
    """scalar f(ptr delta, ptr weights, i64 count): delta becomes weights / delta; minus its norm's reciprocal.

    Of less than three poles LAPACK has made the vectors themselves.
    """
    p = s.p
    name = f"{s.name}_normalize"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "delta"), ("ptr", "weights"), ("i64", "count")], p.scalar, "noinline")
    is_made = f.let("icmp slt i64 %count, 3")
    made, rest = f.new_block("made"), f.new_block("rest")
    f.branch(is_made, made, rest)
    f.start(made)
    f.do(f"ret {p.scalar} {float_constant(-1.0, p.scalar)}")
    f.start(rest)
    zero = float_constant(0.0, p.scalar)
    whole = f.let(f"and i64 %count, {-p.lanes}")
    with f.loop("0", whole, p.lanes, carries=[(p.vector, everywhere(p, 0.0))]) as row:
        place = offset(f, "%delta", (row.index, p.bytes))
        weight = load(f, p, offset(f, "%weights", (row.index, p.bytes)), p.lanes)
        value = f.let(f"fdiv {p.vector} {weight}, {load(f, p, place, p.lanes)}")
        store(f, p, value, place, p.lanes)
        row.next = [fma(f, p, value, value, row.carried[0])]
    square = total(f, p, row.results[0])
    with f.loop(whole, "%count", carries=[(p.scalar, zero)]) as row:
        place = offset(f, "%delta", (row.index, p.bytes))
        weight = load(f, p, offset(f, "%weights", (row.index, p.bytes)))
        value = f.let(f"fdiv {p.scalar} {weight}, {load(f, p, place)}")
        store(f, p, value, place)
        row.next = [f.let(f"fadd {p.scalar} {row.carried[0]}, {f.let(f'fmul {p.scalar} {value}, {value}')}")]
    square = f.let(f"fadd {p.scalar} {square}, {row.results[0]}")
    root = f.let(f"call {p.scalar} @llvm.sqrt.f{8 * p.bytes}({p.scalar} {square})")
    f.do(f"ret {p.scalar} {f.let(f'fdiv {p.scalar} {float_constant(-1.0, p.scalar)}, {root}')}")
    module.add(f)
    return name


def _product(s: Eigen, module: Module) -> str:
    """void f(ptr c, ptr a, ptr b, i64 rows, i64 count): c[rows][width] -= a[count][tall]^T b[count][width]."""
    p, column = s.p, s.tall.panel_column
    name = f"{s.name}_product"
    if name in module.functions:
        return name
    parameters = [("ptr", "c"), ("ptr", "a"), ("ptr", "b"), ("i64", "rows"), ("i64", "count")]
    f = Function(name, parameters, attributes="noinline")
    change = panels.update(module, s.tall)
    with f.loop("0", "%count", DEPTH) as outer:
        count = least(f, f.let(f"sub nsw i64 %count, {outer.index}"), str(DEPTH))
        a, b = offset(f, "%a", (outer.index, column)), offset(f, "%b", (outer.index, p.stripe_row))
        with f.loop("0", "%rows", p.rows) as row:
            c, left = offset(f, "%c", (row.index, p.stripe_row)), offset(f, a, (row.index, p.bytes))
            f.do(f"call void @{change}(ptr {c}, ptr {left}, ptr {b}, i64 {count})")
    f.do("ret void")
    module.add(f)
    return name
