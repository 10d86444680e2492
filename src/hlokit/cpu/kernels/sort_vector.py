"""Sorting unsigned integers in place with AVX-512: quicksort that parts many at once, networks for what fits registers.

Partitions compress what goes left and what goes right to the front of vectors. Some hundred items are a matrix of
vectors: a network sorts its columns, then bitonic merges join neighbouring columns, until one is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import at, least
from hlokit.cpu.llvm import Function, Module, While, splat, vector
from hlokit.cpu.target import Target

_ROWS = 8  # of a matrix: with what merges need they fill half of the registers
_MERGED = 1 << 16  # bits of items up to which networks are as fast as partitions, and less code
_LEAST = 1 << 14  # bits of items that partitions end with


def supports(target: Target) -> bool:
    """Whether the machine can."""
    return target.vector_bytes == 64


@dataclass(frozen=True)
class VectorSort:
    """Sorts n items of `bits` bits, 32 or 64, n up to `size`.

    The `overrun` items after them, which must all be greater than or equal to each of them, are permuted: networks take
    no notice of ends. `spare` has n + `padding` items of memory.

    Pivots are medians of samples in the first `patience` of partitions inside one another; then they halve the range of
    what items may be, which `bits` further ones end. If it `selects`, only some of the least items are sorted, in
    front; the others follow in any order.
    """

    name: str
    bits: int
    size: int
    patience: int = 64
    selects: bool = False

    @property
    def lanes(self) -> int:
        return 512 // self.bits

    @property
    def padding(self) -> int:
        """Items that `spare` is longer."""
        return self.lanes

    @property
    def overrun(self) -> int:
        """Items that follow and may be permuted."""
        return self._block

    @property
    def _scalar(self) -> str:
        return f"i{self.bits}"

    @property
    def _type(self) -> str:
        return vector(self._scalar, self.lanes)

    @property
    def _mask(self) -> str:
        return vector("i1", self.lanes)

    @property
    def _height(self) -> int:
        """Rows of a matrix."""
        return 4 if self.size <= 4 * self.lanes else _ROWS

    @property
    def _block(self) -> int:
        """Items of a matrix."""
        return self._height * self.lanes

    @property
    def _most(self) -> int:
        """Items that networks sort, in whole blocks."""
        most = self.size if self.size * self.bits <= _MERGED else _LEAST // self.bits
        return -(-most // self._block) * self._block

    def write(self, module: Module) -> None:
        self._write_network(module)
        if self.size <= self._most:
            return
        self._write_partition(module)
        parameters = [("ptr", "items"), ("i64", "n"), ("ptr", "spare"), ("i64", "patience")]
        parameters += [(self._scalar, "low"), (self._scalar, "high")]
        if self.selects:
            parameters.append(("i64", "wanted"))
        f = Function(self.name, parameters, attributes="noinline", shared="sort")
        scalar = self._scalar
        carries = [("ptr", "%items"), ("i64", "%n"), ("i64", "%patience"), (scalar, "%low")]
        if self.selects:
            carries.append(("i64", "%wanted"))
        rest = While(f, carries)
        items, n, patience, low, *wanted = rest.values
        rest.test(f.let(f"icmp sgt i64 {n}, {self._most}"))
        patient = f.let(f"icmp sgt i64 {patience}, 0")
        sampled, middle = self._sampled_median(f, items, n), self._middle(f, low, "%high")
        pivot = f.let(f"select i1 {patient}, {scalar} {sampled}, {scalar} {middle}")
        left = self.part(f, items, n, "%spare", pivot)
        none, some, follow, done = (f.new_block(b) for b in ("none", "some", "follow", "sorted"))
        f.branch(f.let(f"icmp eq i64 {left}, 0"), none, some)
        f.start(none)  # below the pivot: part off those that equal it
        above = f.let(f"add {scalar} {pivot}, 1")
        equal = self.part(f, items, n, "%spare", above)
        f.branch(f.let(f"icmp eq {scalar} {above}, 0"), done, follow)
        f.start(some)
        less, below = f.let(f"sub i64 {patience}, 1"), f.let(f"sub {scalar} {pivot}, 1")
        arguments = f"ptr {items}, i64 {left}, ptr %spare, i64 {less}, {scalar} {low}, {scalar} {below}"
        f.do(f"call void @{self.name}({arguments}{''.join(f', i64 {w}' for w in wanted)})")
        f.jump(follow)
        f.start(follow)
        sorted_count = f.let(f"phi i64 [ {equal}, %{none} ], [ {left}, %{some} ]")
        least_item = f.let(f"phi {scalar} [ {above}, %{none} ], [ {pivot}, %{some} ]")
        still = [f.let(f"sub i64 {w}, {sorted_count}") for w in wanted]
        if wanted:
            more = f.new_block("more")
            f.branch(f.let(f"icmp sgt i64 {still[0]}, 0"), more, done)
            f.start(more)
        rest.again(
            at(f, items, sorted_count, self.bits // 8),
            f.let(f"sub i64 {n}, {sorted_count}"),
            f.let(f"sub i64 {patience}, 1"),
            least_item,
            *still,
        )
        f.do(f"call void @{self.name}_network(ptr {items}, i64 {n})")
        f.jump(done)
        f.start(done)
        f.do("ret void")
        module.add(f)

    def call(self, f: Function, items: str, n: str, spare: str, wanted: str = "") -> None:
        """Sorts; `wanted`: so many of the least, if it selects."""
        if self.size <= self._most:
            f.do(f"call void @{self.name}_network(ptr {items}, i64 {n})")
        else:
            bounds = f"{self._scalar} 0, {self._scalar} -1{f', i64 {wanted}' if wanted else ''}"
            f.do(f"call void @{self.name}(ptr {items}, i64 {n}, ptr {spare}, i64 {self.patience}, {bounds})")

    def part(self, f: Function, items: str, n: str, spare: str, pivot: str) -> str:
        """Brings the items below the pivot before the others; gives how many they are."""
        return f.let(f"call i64 @{self.name}_part(ptr {items}, i64 {n}, ptr {spare}, {self._scalar} {pivot})")

    # -- pivots

    def _sampled_median(self, f: Function, items: str, n: str) -> str:
        """About the median: of nine vectors lane by lane, then of lanes, always medians of three."""
        stride = f.let(f"lshr i64 {f.let(f'sub i64 {n}, {self.lanes}')}, 3")
        with f.loop("0", "9", 3, carries=[(self._type, "poison")] * 3) as loop:
            places = [f.let(f"mul i64 {stride}, {f.let(f'add i64 {loop.index}, {k}')}") for k in range(3)]
            loop.next = [*loop.carried[1:], self._median(f, *(self._load(f, items, place) for place in places))]
        lanes = self._median(f, *loop.results)
        for step in (-(-self.lanes // 3), 1):
            lanes = self._median(f, lanes, self._rotated(f, lanes, step), self._rotated(f, lanes, 2 * step))
        return f.let(f"extractelement {self._type} {lanes}, i64 0")

    def _median(self, f: Function, a: str, b: str, c: str) -> str:
        less, greater = self._sorted(f, a, b)
        return self._call2(f, "umax", less, self._call2(f, "umin", greater, c))

    def _rotated(self, f: Function, value: str, by: int) -> str:
        lanes = ", ".join(f"i32 {(k + by) % self.lanes}" for k in range(self.lanes))
        return f.let(f"shufflevector {self._type} {value}, {self._type} poison, <{self.lanes} x i32> <{lanes}>")

    def _middle(self, f: Function, low: str, high: str) -> str:
        """Halfway between the bounds of a range, at least 1 above the lower one if there is more in it."""
        span = f.let(f"sub {self._scalar} {high}, {low}")
        half = f.let(f"sub {self._scalar} {span}, {f.let(f'lshr {self._scalar} {span}, 1')}")
        return f.let(f"add {self._scalar} {low}, {half}")

    # -- partitions

    def _write_partition(self, module: Module) -> None:
        """Items below the pivot stay, moved to the front; the others go to the spare memory, then back."""
        parameters = [("ptr", "items"), ("i64", "n"), ("ptr", "spare"), (self._scalar, "pivot")]
        f = Function(f"{self.name}_part", parameters, "i64", "noinline", shared="sort")
        pivots = self.spread(f, "%pivot")
        whole = f.let(f"and i64 %n, {-self.lanes}")
        with f.loop("0", whole, self.lanes, carries=[("i64", "0")]) as loop:
            (left,) = loop.carried
            value = self._load(f, "%items", loop.index)
            below = f.let(f"icmp ult {self._type} {value}, {pivots}")
            above = f.let(f"xor {self._mask} {below}, splat (i1 true)")
            self._store(f, self._compressed(f, value, below), "%items", left)
            self._store(f, self._compressed(f, value, above), "%spare", f.let(f"sub i64 {loop.index}, {left}"))
            loop.next = [f.let(f"add i64 {left}, {self._count(f, below)}")]
        (left,) = loop.results
        inside = self.inside(f, f.let(f"sub i64 %n, {whole}"))
        value = self._masked_load(f, "%items", whole, inside, "poison")
        less = f.let(f"icmp ult {self._type} {value}, {pivots}")
        below = f.let(f"and {self._mask} {less}, {inside}")
        above = f.let(f"xor {self._mask} {below}, splat (i1 true)")
        self._store(f, self._compressed(f, value, above), "%spare", f.let(f"sub i64 {whole}, {left}"))
        count = self._count(f, below)
        self._masked_store(f, self._compressed(f, value, below), "%items", left, self.inside(f, count))
        left = f.let(f"add i64 {left}, {count}")
        right = f.let(f"sub i64 %n, {left}")
        whole = f.let(f"and i64 {right}, {-self.lanes}")
        goal = self._place(f, "%items", left)
        with f.loop("0", whole, self.lanes) as back:
            self._store(f, self._load(f, "%spare", back.index), goal, back.index)
        inside = self.inside(f, f.let(f"sub i64 {right}, {whole}"))
        self._masked_store(f, self._load(f, "%spare", whole), goal, whole, inside)
        f.do(f"ret i64 {left}")
        module.add(f)

    def _compressed(self, f: Function, value: str, mask: str) -> str:
        """The lanes that are set, in front."""
        return f.let(
            f"call {self._type} @llvm.experimental.vector.compress.v{self.lanes}{self._scalar}"
            f"({self._type} {value}, {self._mask} {mask}, {self._type} poison)"
        )

    def _count(self, f: Function, mask: str) -> str:
        bits = f"i{self.lanes}"
        count = f.let(f"call {bits} @llvm.ctpop.{bits}({bits} {f.let(f'bitcast {self._mask} {mask} to {bits}')})")
        return f.let(f"zext {bits} {count} to i64")

    # -- networks

    def _write_network(self, module: Module) -> None:
        """Sorts the first n items, `_most` at most, and those that follow in the last block."""
        f = Function(f"{self.name}_matrix", [("ptr", "items")], attributes="noinline", shared="sort_network")
        self._store_rows(f, "%items", self._sorted_matrix(f, self._load_rows(f, "%items")))
        f.do("ret void")
        module.add(f)
        self._write_merges(module)

    def _write_merges(self, module: Module) -> None:
        """Sorts blocks, then merges them: what is not there, from the end of the last block on, is greatest."""
        parameters = [("ptr", "items"), ("i64", "n")]
        f = Function(f"{self.name}_network", parameters, attributes="noinline", shared="sort_network")
        block = self._block
        end = f.let(f"and i64 {f.let(f'add i64 %n, {block - 1}')}, {-block}")
        with f.loop("0", end, block) as part:
            f.do(f"call void @{self.name}_matrix(ptr {self._place(f, '%items', part.index)})")
        if self._most > block:
            level = While(f, [("i64", str(block))])
            (width,) = level.values
            level.test(f.let(f"icmp slt i64 {width}, {end}"))
            double = f.let(f"shl i64 {width}, 1")
            pair = While(f, [("i64", "0")])
            (first,) = pair.values
            middle = f.let(f"add i64 {first}, {width}")
            pair.test(f.let(f"icmp slt i64 {middle}, {end}"))
            self._merge(f, (first, middle, end), width)
            pair.again(f.let(f"add i64 {first}, {double}"))
            level.again(double)
        f.do("ret void")
        module.add(f)

    def _load_rows(self, f: Function, items: str) -> list[str]:
        return [self._load(f, items, str(k * self.lanes)) for k in range(self._height)]

    def _store_rows(self, f: Function, items: str, rows: list[str]) -> None:
        for k, row in enumerate(rows):
            self._store(f, row, items, str(k * self.lanes))

    def _sorted_matrix(self, f: Function, rows: list[str]) -> list[str]:
        """Sorts columns, then merges neighbouring ones, which are sorted row by row, until all are one."""
        for a, b in _odd_even_network(len(rows)):
            rows[a], rows[b] = self._sorted(f, rows[a], rows[b])
        merge = While(f, [("i64", "1"), *((self._type, row) for row in rows)])
        width, *rows = merge.values  # columns that are sorted together
        merge.test(f.let(f"icmp slt i64 {width}, {self.lanes}"))
        double = f.let(f"shl i64 {width}, 1")
        mirror = f.let(f"sub i64 {double}, 1")
        lanes = self._lanes_xor(f, mirror)
        height = len(rows)
        while height > 1:  # each row with its mirror image, in halves of halves
            for first in range(0, len(rows), height):
                self._sort_mirrored(f, rows, range(first, first + height), lanes)
            height //= 2
        merge.again(double, *self._merged_within(f, rows, mirror, width))
        return list(merge.values[1:])

    def _merge(self, f: Function, bounds: tuple[str, str, str], width: str) -> None:
        """Merges [first, middle) and [middle, middle + width), of which nothing from `end` on is there."""
        first, middle, end = bounds
        top = least(f, f.let(f"add i64 {middle}, {width}"), end)
        backwards = self._lanes_xor(f, str(self.lanes - 1))
        mirror = f.let(f"sub i64 {f.let(f'shl i64 {middle}, 1')}, {self.lanes}")
        with f.loop(middle, top, self.lanes) as loop:
            self._sort_places(f, f.let(f"sub i64 {mirror}, {loop.index}"), loop.index, backwards)
        stage = While(f, [("i64", f.let(f"lshr i64 {width}, 1"))])
        (distance,) = stage.values
        stage.test(f.let(f"icmp sge i64 {distance}, {self._block}"))
        with f.loop("0", width, self.lanes) as loop:
            inner = f.let(f"and i64 {loop.index}, {f.let(f'sub i64 {distance}, 1')}")
            outer = f.let(f"shl i64 {f.let(f'sub i64 {loop.index}, {inner}')}, 1")
            low = f.let(f"add i64 {first}, {f.let(f'add i64 {outer}, {inner}')}")
            high = f.let(f"add i64 {low}, {distance}")
            with f.when(f.let(f"icmp slt i64 {high}, {end}")):
                self._sort_places(f, low, high)
        stage.again(f.let(f"lshr i64 {distance}, 1"))
        with f.loop(first, top, self._block) as part:
            items = self._place(f, "%items", part.index)
            rows = self._load_rows(f, items)
            step = len(rows) // 2
            while step:
                for k in range(len(rows)):
                    if not k & step:
                        rows[k], rows[k + step] = self._sorted(f, rows[k], rows[k + step])
                step //= 2
            half = str(self.lanes // 2)
            self._store_rows(f, items, self._merged_within(f, rows, half, half))

    def _sort_places(self, f: Function, low: str, high: str, lanes: str = "") -> None:
        """Sorts two vectors in memory lane by lane, the second with its lanes permuted."""
        other = self._load(f, "%items", high)
        other = self._permuted(f, other, lanes) if lanes else other
        less, greater = self._sorted(f, self._load(f, "%items", low), other)
        self._store(f, less, "%items", low)
        self._store(f, greater, "%items", high)

    def _sort_mirrored(self, f: Function, rows: list[str], span: range, lanes: str) -> None:
        for k in range(len(span) // 2):
            a, b = span[k], span[-1 - k]
            rows[a], rows[b] = self._sorted(f, rows[a], self._permuted(f, rows[b], lanes))

    def _merged_within(self, f: Function, rows: list[str], flip: str, width: str) -> list[str]:
        """The stages of a merge inside rows: lanes `flip` apart, then `width` / 2 apart, a quarter, ..., 1.

        Two rows at a time: the lower lanes of both, and the upper ones, make a vector each. So they trade the bit that
        tells the rows apart with a bit of the lanes' number at each stage, and get it back in the end.
        """
        stage = While(f, [("i64", flip), ("i64", width), *((self._type, row) for row in rows)])
        flip, distance, *rows = stage.values
        stage.test(f.let(f"icmp ne i64 {distance}, 0"))
        other = f.let(f"or i64 {distance}, {self.lanes}")  # of the second row
        bit = f.let(f"and {self._type} {self.lane_numbers}, {self._spread_narrow(f, distance)}")
        upper = f.let(f"icmp ne {self._type} {bit}, zeroinitializer")
        moved = self._select(f, upper, self._spread_narrow(f, other), "zeroinitializer")
        low = f.let(f"xor {self._type} {self.lane_numbers}, {moved}")
        high = f.let(f"xor {self._type} {low}, {self._spread_narrow(f, flip)}")
        after: list[str] = []
        for a, b in zip(rows[::2], rows[1::2], strict=True):
            after += self._sorted(f, self._picked(f, a, low, b), self._picked(f, a, high, b))
        nearer = f.let(f"lshr i64 {distance}, 1")
        stage.again(nearer, nearer, *after)
        ends = f.let(f"sub i64 {f.let(f'shl i64 {width}, 1')}, 1")
        inner = f.let(f"and {self._type} {self.lane_numbers}, {self._spread_narrow(f, ends)}")
        outer = f.let(f"xor {self._type} {self.lane_numbers}, {inner}")
        half = f.let(f"lshr {self._type} {inner}, {splat('1', self._scalar, self.lanes)}")
        odd = f.let(f"and {self._type} {inner}, {splat('1', self._scalar, self.lanes)}")
        row = f.let(f"mul {self._type} {odd}, {splat(str(self.lanes), self._scalar, self.lanes)}")
        first = f.let(f"or {self._type} {f.let(f'or {self._type} {outer}, {half}')}, {row}")
        second = f.let(f"or {self._type} {first}, {self._spread_narrow(f, width)}")
        rows = list(stage.values[2:])
        return [self._picked(f, a, lanes, b) for a, b in zip(rows[::2], rows[1::2]) for lanes in (first, second)]

    # -- parts

    @property
    def lane_numbers(self) -> str:
        return f"<{', '.join(f'{self._scalar} {k}' for k in range(self.lanes))}>"

    def _lanes_xor(self, f: Function, flip: str) -> str:
        return f.let(f"xor {self._type} {self.lane_numbers}, {self.spread(f, self._narrow(f, flip))}")

    def _permuted(self, f: Function, value: str, lanes: str) -> str:
        kind = "si" if self.bits == 32 else "di"
        return f.let(
            f"call {self._type} @llvm.x86.avx512.permvar.{kind}.512({self._type} {value}, {self._type} {lanes})"
        )

    def _picked(self, f: Function, a: str, lanes: str, b: str) -> str:
        """Lanes of two vectors by their numbers."""
        kind = "d" if self.bits == 32 else "q"
        return f.let(
            f"call {self._type} @llvm.x86.avx512.vpermi2var.{kind}.512({self._type} {a}, {self._type} {lanes}, "
            f"{self._type} {b})"
        )

    def _select(self, f: Function, mask: str, a: str, b: str) -> str:
        return f.let(f"select {self._mask} {mask}, {self._type} {a}, {self._type} {b}")

    def _spread_narrow(self, f: Function, value: str) -> str:
        return self.spread(f, self._narrow(f, value))

    def _sorted(self, f: Function, a: str, b: str) -> tuple[str, str]:
        return self._call2(f, "umin", a, b), self._call2(f, "umax", a, b)

    def _call2(self, f: Function, kind: str, a: str, b: str) -> str:
        return f.let(f"call {self._type} @llvm.{kind}.v{self.lanes}{self._scalar}({self._type} {a}, {self._type} {b})")

    def _narrow(self, f: Function, value: str) -> str:
        return value if self.bits == 64 else f.let(f"trunc i64 {value} to i32")

    def spread(self, f: Function, value: str) -> str:
        one = f.let(f"insertelement {self._type} poison, {self._scalar} {value}, i64 0")
        return f.let(f"shufflevector {self._type} {one}, {self._type} poison, <{self.lanes} x i32> zeroinitializer")

    def inside(self, f: Function, count: str) -> str:
        """Mask of the first `count` lanes; of all if it is greater, of none if it is less than 1."""
        end = self.spread(f, self._narrow(f, count))
        return f.let(f"icmp slt {self._type} {self.lane_numbers}, {end}")

    def _place(self, f: Function, base: str, index: str) -> str:
        return f.let(f"getelementptr {self._scalar}, ptr {base}, i64 {index}")

    def _load(self, f: Function, base: str, index: str) -> str:
        return f.let(f"load {self._type}, ptr {self._place(f, base, index)}, align {self.bits // 8}")

    def _store(self, f: Function, value: str, base: str, index: str) -> None:
        f.do(f"store {self._type} {value}, ptr {self._place(f, base, index)}, align {self.bits // 8}")

    def _masked_load(self, f: Function, base: str, index: str, mask: str, other: str) -> str:
        return f.let(
            f"call {self._type} @llvm.masked.load.v{self.lanes}{self._scalar}.p0(ptr align {self.bits // 8} "
            f"{self._place(f, base, index)}, {self._mask} {mask}, {self._type} {other})"
        )

    def _masked_store(self, f: Function, value: str, base: str, index: str, mask: str) -> None:
        f.do(
            f"call void @llvm.masked.store.v{self.lanes}{self._scalar}.p0({self._type} {value}, "
            f"ptr align {self.bits // 8} {self._place(f, base, index)}, {self._mask} {mask})"
        )


def _odd_even_network(size: int) -> list[tuple[int, int]]:
    """Batcher's comparators for a power of two."""
    pairs: list[tuple[int, int]] = []
    width = 1
    while width < size:
        step = width
        while step:
            for start in range(step % width, size - step, 2 * step):
                for k in range(start, start + step):
                    if k // (2 * width) == (k + step) // (2 * width):
                        pairs.append((k, k + step))
            step //= 2
        width *= 2
    return pairs
