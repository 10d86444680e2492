"""rng-bit-generator: ThreeFry2x32 and Philox4x32, many counters at once. Results are bit for bit the reference's."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import Element, extended, unused_name
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, PlannedKernel, Routine, chunk_bounds
from hlokit.cpu.llvm import I32, I64, Function, IfElse, Index, Module, Value
from hlokit.types.shape import Shape

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class RngBitGeneratorPlan:
    """A generator of blocks of 32-bit words, numbered from the state's counter on: ThreeFry or Philox."""

    call: Call

    @property
    def data(self) -> Shape:
        return self.call.results[1]

    @property
    def blocks(self) -> int:
        raise NotImplementedError

    @property
    def lanes(self) -> int:
        """Blocks that are made at once: two vectors of words."""
        return self.call.target.vector_bytes // 2

    def write(self, module: Module) -> Routine:
        name = unused_name(module, "random")
        phases: list[Phase] = []
        if self.data.size:
            with module.function(f"{name}_bits", PHASE) as f:
                state = self._state(f)
                low, high = (chunk * costs.RANDOM_CHUNK for chunk in chunk_bounds(f))
                high = high.smin(self.blocks)
                with f.loop(low, high, self.lanes) as loop:
                    self._store_words(loop.index, high, self._words(state, loop.index))
            phases.append(Phase(f.name, -(-self.blocks // costs.RANDOM_CHUNK)))
        with module.function(f"{name}_state", PHASE) as f:
            for k, word in enumerate(self._new_state(self._state(f))):
                f.table(1, I64)[k].store(word)
        phases.append(Phase(f.name))
        return Routine(tuple(phases))

    def _state(self, f: Function) -> list[Value]:
        return [f.table(0, I64)[k].load() for k in range(self.call.operands[0].size)]

    def _new_state(self, state: list[Value]) -> list[Value]:
        raise NotImplementedError

    def _words(self, state: list[Value], block: Index) -> list[Value]:
        """The words of `lanes` blocks from `block` on, as vectors."""
        raise NotImplementedError

    def _store_words(self, block: Index, end: Index, words: list[Value]) -> None:
        """Stores the results of `lanes` blocks, those before `end`."""
        raise NotImplementedError

    def _counters(self, start: Value) -> Value:
        """start, start + 1, ... in the lanes."""
        return start.splat(self.lanes) + start.fn.lane_numbers(I64.of(self.lanes))

    def _elements(self, words: Value) -> Value:
        """The elements that words of 32 bits make: one or several a word, or of two words one."""
        bits = self.data.dtype.bits
        if bits == 64:
            return words.bitcast(I64.of(words.lanes // 2))
        elements = words.trunc(min(32, max(8, bits)))
        return elements & ((1 << bits) - 1) if bits < 8 else elements

    def _store_run(self, index: Index, end: Index, words: Value) -> None:
        """Stores elements of consecutive words from element `index` on, those before `end`."""
        f, values = index.fn, self._elements(words)
        choice = IfElse(f, index + values.lanes <= end)
        self._store(index, values)
        choice.otherwise()
        stack = f.local(values.type.element, values.lanes, 64)
        stack.store(values)
        with f.loop(index, end) as loop:
            self._store(loop.index, stack[loop.index - index].load())
        choice.end()

    def _store(self, index: Index, values: Value) -> None:
        """Stores elements from element `index` of the result on, whatever dimensions it has."""
        f, dtype, store = index.fn, self.data.dtype, self.call.store
        if store is None:
            Element(dtype).array(f.table(2))[index].store(values)
            return
        together = math.gcd(values.lanes, self.data.dimensions[-1] if self.data.rank else 1)
        for start in range(0, values.lanes, together):
            taken = values
            if together < values.lanes:
                taken = values.lane(start) if together == 1 else values.shuffled(range(start, start + together))
            store(f, self._coordinates(index + start), [extended(taken, dtype)], None)

    def _coordinates(self, position: Index) -> list[Index]:
        """The index of the element at this place of the row-major order."""
        index: list[Index] = []
        for size in reversed(self.data.dimensions):
            index.append(position % size)
            position = position // size
        return index[::-1]


class _ThreeFry(RngBitGeneratorPlan):
    """Blocks of two words.

    Where elements are at most 32 bits wide, a block's words go to neighbours along the first dimension of even size,
    else the first of the largest, whose last element then gets no second one (RBG-11).
    """

    @property
    def _view(self) -> tuple[int, int, int]:
        """The data as outer x split x inner; the two words of a block are neighbours along the middle."""
        if self.data.dtype.bits == 64:
            return self.data.size, 2, 1
        sizes = self.data.dimensions
        if not sizes:
            return 1, 1, 1
        even = [d for d, size in enumerate(sizes) if size % 2 == 0]
        split = even[0] if even else sizes.index(max(sizes))
        return math.prod(sizes[:split]), sizes[split], math.prod(sizes[split + 1 :])

    @property
    def blocks(self) -> int:
        outer, split, inner = self._view
        return outer * -(-split // 2) * inner

    def _new_state(self, state: list[Value]) -> list[Value]:
        return [state[0], state[1] + self.blocks]

    def _words(self, state: list[Value], block: Index) -> list[Value]:
        counters = self._counters(state[1] + block)
        low, high = state[0].trunc(32), (state[0] >> 32).trunc(32)
        keys = [key.splat(self.lanes) for key in (low, high, low ^ high ^ _PARITY)]
        x0, x1 = counters.trunc(32) + keys[0], (counters >> 32).trunc(32) + keys[1]
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = x1.intrinsic("fshl", x1, rotation) ^ x0
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + (keys[(group + 2) % 3] + (group + 1))
        return [x0, x1]

    def _store_words(self, block: Index, end: Index, words: list[Value]) -> None:
        _, split, inner = self._view
        if inner == 1 and split % 2 == 0:
            per_block = 1 if self.data.dtype.bits == 64 else 2
            self._store_run(block * per_block, end * per_block, words[0].interleaved(words[1]))
        elif inner >= self.lanes:
            self._store_rows(block, end, words)
        else:
            self._store_singly(block, end, words)

    def _store_rows(self, block: Index, end: Index, words: list[Value]) -> None:
        """Each word's elements are consecutive in a row; where a row ends within, elements go one by one."""
        f, inner, last = block.fn, self._view[2], block + (self.lanes - 1)
        is_one_row = (block // inner).eq(last // inner)
        choice = IfElse(f, is_one_row & (last < end))
        for place, valid, word in self._places(block, words):
            with f.when(valid) if valid is not None else nullcontext():
                self._store_run(place, place + self.lanes, word)
        choice.otherwise()
        self._store_singly(block, end, words)
        choice.end()

    def _store_singly(self, block: Index, end: Index, words: list[Value]) -> None:
        f = block.fn
        stacks = [f.local(I32, self.lanes, 64) for _ in words]
        for stack, word in zip(stacks, words, strict=True):
            stack.store(word)
        with f.loop(block, (block + self.lanes).smin(end)) as loop:
            loaded = [stack[loop.index - block].load() for stack in stacks]
            for place, valid, word in self._places(loop.index, loaded):
                with f.when(valid) if valid is not None else nullcontext():
                    self._store(place, self._elements(word))

    def _places(self, block: Index, words: list[Value]) -> list[tuple[Index, Value | None, Value]]:
        """For each word of a block: its element, whether it has one (None: always), the word."""
        _, split, inner = self._view
        half = -(-split // 2)
        row, column = block // inner, block % inner
        first = row % half * 2
        place = (row // half * split + first) * inner + column
        return [(place, None, words[0]), (place + inner, first < split - 1, words[1])]


class _Philox(RngBitGeneratorPlan):
    """Blocks of four words, one after the other in row-major order."""

    @property
    def blocks(self) -> int:
        return -(-self.data.size * (2 if self.data.dtype.bits == 64 else 1) // 4)

    @property
    def lanes(self) -> int:
        """Two vectors of products."""
        return self.call.target.vector_bytes // 4

    def _new_state(self, state: list[Value]) -> list[Value]:
        high = state[2] if len(state) == 3 else state[0]
        low = state[1] + self.blocks
        carry = low.compare("ult", state[1]).zext(64)
        return [state[0], low, high + carry][: len(state)]

    def _words(self, state: list[Value], block: Index) -> list[Value]:
        """The words' values in vectors of i64."""
        high = state[2] if len(state) == 3 else state[0]
        lows = self._counters(state[1] + block)
        carries = lows.compare("ult", state[1].splat(self.lanes)).zext(64)
        highs = high.splat(self.lanes) + carries
        (c0, c1), (c2, c3) = ((counter & _LOW, counter >> 32) for counter in (lows, highs))
        keys = [state[0] & _LOW, state[0] >> 32]
        for _ in range(10):
            p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
            k0, k1 = (key.splat(self.lanes) for key in keys)
            c0, c2 = (p1 >> 32) ^ c1 ^ k0, (p0 >> 32) ^ c3 ^ k1
            c1, c3 = p1 & _LOW, p0 & _LOW
            keys = [(key + step) & _LOW for key, step in zip(keys, _KEY_STEPS, strict=True)]
        return [c0, c1, c2, c3]

    def _store_words(self, block: Index, end: Index, words: list[Value]) -> None:
        first, second = (low | (high << 32) for low, high in zip(words[::2], words[1::2], strict=True))
        run = first.interleaved(second).bitcast(I32.of(4 * self.lanes))
        per_block = 2 if self.data.dtype.bits == 64 else 4
        self._store_run(block * per_block, (end * per_block).smin(self.data.size), run)


def plan(call: Call) -> RngBitGeneratorPlan:
    """(new state, bits). Blocks of words are counted; a chunk makes some thousands of them."""
    algorithm: str = call.op.algorithm  # type: ignore[attr-defined]
    return _ThreeFry(call) if algorithm == "rng_three_fry" else _Philox(call)


KERNELS["rng-bit-generator"] = PlannedKernel(plan)
