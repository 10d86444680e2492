"""Sorting unsigned integers in place with AVX-512: vectorised quicksort, and networks for lines that fit in registers.

Partitions compress what goes left and what goes right to the front of vectors. Some hundred items are a matrix of
vectors: a network sorts its columns, then bitonic merges join neighbouring columns, until one is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import I64, Function, IfElse, Index, Module, Pointer, Type, Value, While, type_of
from hlokit.cpu.target import Target

_ROWS = 8  # of a matrix: with what merges need they fill half of the registers


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
    def item(self) -> Type:
        return type_of(f"i{self.bits}")

    @property
    def items(self) -> Type:
        """A vector of them."""
        return self.item.of(self.lanes)

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
        most = self.size if self.size * self.bits <= costs.MERGED_BITS else costs.PARTED_LEAST_BITS // self.bits
        return up(most, self._block)

    def write(self, module: Module) -> None:
        self._write_network(module)
        if self.size <= self._most:
            return
        self._write_partition(module)
        parameters = [("ptr", "items"), ("i64", "n"), ("ptr", "spare"), ("i64", "patience")]
        parameters += [(self.item.text, "low"), (self.item.text, "high")]
        if self.selects:
            parameters.append(("i64", "wanted"))
        f = Function(self.name, parameters, attributes="noinline", shared="sort")
        spare, high = f.pointer("spare", self.item), f.argument("high")
        counts = f.index_argument("n"), f.index_argument("patience")
        carries = [f.pointer("items", self.item), *counts, f.argument("low")]
        if self.selects:
            carries.append(f.index_argument("wanted"))
        rest = While(f, carries)
        items, n, patience, low, *wanted = rest.values
        rest.test(n > self._most)
        patient = patience > 0
        sampled, middle = self._sampled_median(items, n), self._middle(low, high)
        pivot = patient.select(sampled, middle)
        left = self.part(items, n, spare, pivot)
        choice = IfElse(f, left.eq(0))
        above = pivot + 1  # nothing is below the pivot: part off those that equal it
        equal = self.part(items, n, spare, above)
        f.return_if(above.eq(0))
        choice.otherwise(equal, above)
        f.call(self.name, items, left, spare, patience - 1, low, pivot - 1, *wanted)
        done, least_item = choice.end(left, pivot)
        still = [w - done for w in wanted]
        for count in still:
            f.return_if(count <= 0)
        rest.again(items[done], n - done, patience - 1, least_item, *still)
        f.call(f"{self.name}_network", items, n)
        f.returns()
        module.add(f)

    def call(self, items: Pointer, n: Index | int, spare: Pointer, wanted: int = 0) -> None:
        """Sorts; `wanted`: so many of the least, if it selects."""
        f = items.fn
        if self.size <= self._most:
            f.call(f"{self.name}_network", items, f.index(n))
            return
        more = [f.index(wanted)] if wanted else []
        bounds = f.constant(0, self.item), f.constant(-1, self.item)
        f.call(self.name, items, f.index(n), spare, f.index(self.patience), *bounds, *more)

    def part(self, items: Pointer, n: Index, spare: Pointer, pivot: Value) -> Index:
        """Brings the items below the pivot before the others; gives how many they are."""
        return items.fn.index(items.fn.call_for(I64, f"{self.name}_part", items, n, spare, pivot))

    # -- pivots

    def _sampled_median(self, items: Pointer, n: Index) -> Value:
        """About the median: of nine vectors lane by lane, then of lanes, always medians of three."""
        stride = (n - self.lanes) >> 3
        with items.fn.loop(0, 9, 3, carries=[(self.items.text, "poison")] * 3) as loop:
            places = [stride * (loop.index + k) for k in range(3)]
            loop.next = [*loop.carried[1:], _median(*(items[place].load(self.lanes) for place in places))]
        lanes = _median(*loop.results)
        for step in (-(-self.lanes // 3), 1):
            lanes = _median(lanes, lanes.rotated(step), lanes.rotated(2 * step))
        return lanes.lane(0)

    def _middle(self, low: Value, high: Value) -> Value:
        """Halfway between the bounds of a range, at least 1 above the lower one if there is more in it."""
        span = high - low
        return low + (span - (span >> 1))

    # -- partitions

    def _write_partition(self, module: Module) -> None:
        """Items below the pivot stay, moved to the front; the others go to the spare memory, then back."""
        parameters = [("ptr", "items"), ("i64", "n"), ("ptr", "spare"), (self.item.text, "pivot")]
        f = Function(f"{self.name}_part", parameters, "i64", "noinline", shared="sort")
        items, spare, n = f.pointer("items", self.item), f.pointer("spare", self.item), f.index_argument("n")
        pivots = f.argument("pivot").splat(self.lanes)
        whole = n & -self.lanes
        with f.loop(0, whole, self.lanes, carries=[f.index(0)]) as loop:
            (left,) = loop.carried
            value = items[loop.index].load(self.lanes)
            below = value.compare("ult", pivots)
            items[left].store(value.compressed(below))
            spare[loop.index - left].store(value.compressed(~below))
            loop.next = [left + below.count_set()]
        (left,) = loop.results
        inside = self.inside(n - whole)
        value = items[whole].load(self.lanes, inside, "poison")
        below = value.compare("ult", pivots) & inside
        spare[whole - left].store(value.compressed(~below))
        count = below.count_set()
        items[left].store(value.compressed(below), self.inside(count))
        left = left + count
        right = n - left
        whole = right & -self.lanes
        goal = items[left]
        with f.loop(0, whole, self.lanes) as back:
            goal[back.index].store(spare[back.index].load(self.lanes))
        goal[whole].store(spare[whole].load(self.lanes), self.inside(right - whole))
        f.returns(left)
        module.add(f)

    # -- networks

    def _write_network(self, module: Module) -> None:
        """Sorts the first n items, `_most` at most, and those that follow in the last block."""
        f = Function(f"{self.name}_matrix", [("ptr", "items")], attributes="noinline", shared="sort_network")
        items = f.pointer("items", self.item)
        self._store_rows(items, self._sorted_matrix(f, self._load_rows(items)))
        f.returns()
        module.add(f)
        self._write_merges(module)

    def _write_merges(self, module: Module) -> None:
        """Sorts blocks, then merges them: what is not there, from the end of the last block on, is greatest."""
        parameters = [("ptr", "items"), ("i64", "n")]
        f = Function(f"{self.name}_network", parameters, attributes="noinline", shared="sort_network")
        items, n, block = f.pointer("items", self.item), f.index_argument("n"), self._block
        end = (n + (block - 1)) & -block
        with f.loop(0, end, block) as part:
            f.call(f"{self.name}_matrix", items[part.index])
        if self._most > block:
            level = While(f, [f.index(block)])
            (width,) = level.values
            level.test(width < end)
            pair = While(f, [f.index(0)])
            (first,) = pair.values
            middle = first + width
            pair.test(middle < end)
            self._merge(items, (first, middle, end), width)
            pair.again(middle + width)
            level.again(width * 2)
        f.returns()
        module.add(f)

    def _load_rows(self, items: Pointer) -> list[Value]:
        return [items[k * self.lanes].load(self.lanes) for k in range(self._height)]

    def _store_rows(self, items: Pointer, rows: Sequence[Value]) -> None:
        for k, row in enumerate(rows):
            items[k * self.lanes].store(row)

    def _sorted_matrix(self, f: Function, rows: list[Value]) -> list[Value]:
        """Sorts columns, then merges neighbouring ones, which are sorted row by row, until all are one."""
        for a, b in _odd_even_network(len(rows)):
            rows[a], rows[b] = _sorted(rows[a], rows[b])
        merge = While(f, [f.index(1), *rows])
        width, *rows = merge.values  # columns that are sorted together
        merge.test(width < self.lanes)
        mirror = width * 2 - 1
        lanes = self._lanes_xor(mirror)
        height = len(rows)
        while height > 1:  # each row with its mirror image, in halves of halves
            for first in range(0, len(rows), height):
                self._sort_mirrored(rows, range(first, first + height), lanes)
            height //= 2
        merge.again(width * 2, *self._merged_within(f, rows, mirror, width))
        return list(merge.values[1:])

    def _merge(self, items: Pointer, bounds: tuple[Index, Index, Index], width: Index) -> None:
        """Merges [first, middle) and [middle, middle + width), of which nothing from `end` on is there."""
        f, (first, middle, end) = items.fn, bounds
        top = (middle + width).smin(end)
        backwards = self._lanes_xor(f.index(self.lanes - 1))
        mirror = middle * 2 - self.lanes
        with f.loop(middle, top, self.lanes) as loop:
            self._sort_places(items[mirror - loop.index], items[loop.index], backwards)
        stage = While(f, [f.index(width >> 1)])
        (distance,) = stage.values
        stage.test(distance >= self._block)
        with f.loop(0, width, self.lanes) as loop:
            inner = loop.index & (distance - 1)
            low = first + ((loop.index - inner) * 2 + inner)
            high = low + distance
            with f.when(high < end):
                self._sort_places(items[low], items[high])
        stage.again(distance >> 1)
        with f.loop(first, top, self._block) as part:
            block = items[part.index]
            rows = self._load_rows(block)
            step = len(rows) // 2
            while step:
                for k in range(len(rows)):
                    if not k & step:
                        rows[k], rows[k + step] = _sorted(rows[k], rows[k + step])
                step //= 2
            half = f.index(self.lanes // 2)
            self._store_rows(block, self._merged_within(f, rows, half, half))

    def _sort_places(self, low: Pointer, high: Pointer, lanes: Value | None = None) -> None:
        """Sorts two vectors in memory lane by lane, the second with its lanes permuted."""
        other = high.load(self.lanes)
        other = self._permuted(other, lanes) if lanes is not None else other
        less, greater = _sorted(low.load(self.lanes), other)
        low.store(less)
        high.store(greater)

    def _sort_mirrored(self, rows: list[Value], span: range, lanes: Value) -> None:
        for k in range(len(span) // 2):
            a, b = span[k], span[-1 - k]
            rows[a], rows[b] = _sorted(rows[a], self._permuted(rows[b], lanes))

    def _merged_within(self, f: Function, rows: Sequence[Value], flip: Index, width: Index) -> list[Value]:
        """The stages of a merge inside rows: lanes `flip` apart, then `width` / 2 apart, a quarter, ..., 1.

        Two rows at a time: the lower lanes of both, and the upper ones, make a vector each. So they trade the bit that
        tells the rows apart with a bit of the lanes' number at each stage, and get it back in the end.
        """
        numbers = f.lane_numbers(self.items)
        stage = While(f, [flip, width, *rows])
        flip, distance, *rows = stage.values
        stage.test(distance.ne(0))
        other = distance | self.lanes  # of the second row
        upper = (numbers & self._everywhere(distance)).ne(0)
        low = numbers ^ self._everywhere(other).where(upper, 0)
        high = low ^ self._everywhere(flip)
        after: list[Value] = []
        for a, b in zip(rows[::2], rows[1::2], strict=True):
            after += _sorted(self._picked(a, low, b), self._picked(a, high, b))
        nearer = distance >> 1
        stage.again(nearer, nearer, *after)
        inner = numbers & self._everywhere(width * 2 - 1)
        outer = numbers ^ inner
        first = (outer | inner >> 1) | (inner & 1) * self.lanes
        second = first | self._everywhere(width)
        rows = stage.values[2:]
        return [self._picked(a, lanes, b) for a, b in zip(rows[::2], rows[1::2]) for lanes in (first, second)]

    # -- lanes

    def _lanes_xor(self, flip: Index) -> Value:
        return flip.fn.lane_numbers(self.items) ^ self._everywhere(flip)

    def _permuted(self, value: Value, lanes: Value) -> Value:
        kind = "si" if self.bits == 32 else "di"
        return value.fn.call_for(self.items, f"llvm.x86.avx512.permvar.{kind}.512", value, lanes)

    def _picked(self, a: Value, lanes: Value, b: Value) -> Value:
        """Lanes of two vectors by their numbers."""
        kind = "d" if self.bits == 32 else "q"
        return a.fn.call_for(self.items, f"llvm.x86.avx512.vpermi2var.{kind}.512", a, lanes, b)

    def _everywhere(self, number: Value) -> Value:
        """An i64 as an item, in every lane."""
        return number.trunc(self.bits).splat(self.lanes)

    def inside(self, count: Index) -> Value:
        """Mask of the first `count` lanes; of all if it is greater, of none if it is less than 1."""
        return count.first_lanes(self.lanes, self.bits)


def _sorted(a: Value, b: Value) -> tuple[Value, Value]:
    return a.umin(b), a.umax(b)


def _median(a: Value, b: Value, c: Value) -> Value:
    less, greater = _sorted(a, b)
    return less.umax(greater.umin(c))


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
