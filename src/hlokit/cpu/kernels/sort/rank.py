"""Sorting short lines: each element is compared with all others at once; the number of smaller ones is its position."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine, chunk_bounds, up
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.lines import copy, lines_per_chunk
from hlokit.cpu.llvm import Index, Module, Pointer, Value

_UNROLLED = 2  # divides all numbers of lanes


@dataclass(frozen=True)
class RankSort:
    """A sort of lines of some dozens of elements by keys. The order of equals is kept.

    vector_bytes  of the target's registers
    """

    name: str
    data: KeyedLines
    vector_bytes: int

    @property
    def _lanes(self) -> int:
        return 8 * self.vector_bytes // self.data.bits

    def write(self, module: Module) -> Routine:
        data = self.data
        per_chunk = lines_per_chunk(data.lines, data.size, costs.COMPARISON_SORT_CHUNK)
        padded = up(data.size, self._lanes)
        with module.function(f"{self.name}_lines", PHASE) as f:
            operands, results, _ = data.table(f)
            keys, ranks = (f.local(data.key_type, padded, 64) for _ in range(2))
            low, high = (chunk * per_chunk for chunk in chunk_bounds(f))
            with f.loop(data.size, padded) as loop:  # the last keys: they go before none
                keys[loop.index].store(-1)
            with f.loop(low, high.smin(data.lines)) as line:
                source, target = (data.line(arrays, line.index) for arrays in (operands, results))
                with f.loop(0, data.size) as loop:
                    keys[loop.index].store(data.key(source, loop.index)[0])
                with f.loop(0, data.size, self._lanes) as block:
                    ranks[block.index].store(self._rank(keys, block.index, padded))
                with f.loop(0, data.size) as loop:
                    place = f.index(ranks[loop.index].load().zext(64))
                    copy(data.elements_at(source, loop.index), data.elements_at(target, place))
        return Routine((Phase(f.name, -(-data.lines // per_chunk)),))

    def _rank(self, keys: Pointer, block: Index, end: int) -> Value:
        """The ranks of a vector of keys; of equal ones the left go before. Lanes past the end are junk."""
        f, type = keys.fn, self.data.key_type.of(self._lanes)
        own = keys[block].load(self._lanes)
        after = block + self._lanes
        before = self._count(keys, (f.index(0), block), own, "ule", f.constant(0, type))
        with f.loop(block, after, carries=[before]) as loop:
            other = keys[loop.index].load().splat(self._lanes)
            lane = (loop.index - block).trunc(self.data.bits).splat(self._lanes)
            is_left = lane.compare("ult", f.lane_numbers(type))
            goes_before = other.compare("ult", own) | (other.eq(own) & is_left)
            loop.next = [self._incremented(loop.carried[0], goes_before)]
        return self._count(keys, (after, f.index(end)), own, "ult", loop.results[0])

    def _count(self, keys: Pointer, bounds: tuple[Index, Index], own: Value, predicate: str, counted: Value) -> Value:
        """Adds to each lane of `counted` how many keys within the bounds are `predicate` than its own."""
        with keys.fn.loop(*bounds, _UNROLLED, carries=[counted]) as loop:
            total = loop.carried[0]
            for step in range(_UNROLLED):
                other = keys[loop.index + step].load().splat(self._lanes)
                total = self._incremented(total, other.compare(predicate, own))
            loop.next = [total]
        return loop.results[0]

    def _incremented(self, total: Value, mask: Value) -> Value:
        """One more where the mask is set: an addition under it with AVX-512, else one of the comparison's result."""
        if self.vector_bytes < 64:
            return total - mask.cast("sext", total.scalar)
        return (total + 1).where(mask, total)
