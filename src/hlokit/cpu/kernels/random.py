"""rng-bit-generator: ThreeFry2x32 and Philox4x32, many counters at once. Results are bit for bit the reference's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import Element, extended, least, table_pointer, unused_name
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, vector
from hlokit.types.shape import Shape

_CHUNK = 1 << 14  # blocks of a chunk
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def rng_bit_generator(call: Call, module: Module) -> Routine | None:
    """(new state, bits). Blocks of words are counted; a chunk makes some thousands of them."""
    algorithm: str = call.op.algorithm  # type: ignore[attr-defined]
    name = unused_name(module, "random")
    writer = _ThreeFry(call, name) if algorithm == "rng_three_fry" else _Philox(call, name)
    phases: list[Phase] = []
    if call.results[1].size:
        phases.append(Phase(writer.write_blocks(module), -(-writer.blocks // _CHUNK)))
    phases.append(Phase(writer.write_state(module)))
    return Routine(tuple(phases))


@dataclass(frozen=True)
class _Generator:
    """A generator of blocks of 32-bit words, numbered from the state's counter on."""

    call: Call
    name: str

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

    def write_blocks(self, module: Module) -> str:
        """The function of the phase that makes the data."""
        f = Function(f"{self.name}_bits", PHASE)
        state = self._state(f)
        low = f.let(f"mul i64 %begin, {_CHUNK}")
        high = least(f, f.let(f"mul i64 %end, {_CHUNK}"), str(self.blocks))
        with f.loop(low, high, self.lanes) as loop:
            self._store_words(f, loop.index, high, self._words(f, state, loop.index))
        f.do("ret void")
        module.add(f)
        return f.name

    def write_state(self, module: Module) -> str:
        f = Function(f"{self.name}_state", PHASE)
        target = table_pointer(f, 1)
        for k, word in enumerate(self._new_state(f, self._state(f))):
            f.do(f"store i64 {word}, ptr {f.let(f'getelementptr i64, ptr {target}, i64 {k}')}")
        f.do("ret void")
        module.add(f)
        return f.name

    def _state(self, f: Function) -> list[str]:
        source = table_pointer(f, 0)
        places = [f.let(f"getelementptr i64, ptr {source}, i64 {k}") for k in range(self.call.operands[0].size)]
        return [f.let(f"load i64, ptr {p}") for p in places]

    def _new_state(self, f: Function, state: list[str]) -> list[str]:
        raise NotImplementedError

    def _words(self, f: Function, state: list[str], block: str) -> list[str]:
        """The words of `lanes` blocks from `block` on, as vectors of i32."""
        raise NotImplementedError

    def _store_words(self, f: Function, block: str, end: str, words: list[str]) -> None:
        """Stores what belongs to the result of `lanes` blocks, those before `end`."""
        raise NotImplementedError

    def _store_run(self, f: Function, index: str, end: str, words: str, count: int) -> None:
        """Stores elements of `count` consecutive words from element `index` on, those before `end`."""
        bits = self.data.dtype.bits
        elements = count * 32 // max(32, bits)
        values = words
        if bits == 64:
            values = f.let(f"bitcast {vector('i32', count)} {words} to {vector('i64', elements)}")
        elif bits < 32:
            values = f.let(f"trunc {vector('i32', count)} {words} to {vector(f'i{max(8, bits)}', count)}")
        if bits < 8:
            values = f.let(f"and {vector('i8', count)} {values}, splat (i8 {(1 << bits) - 1})")
        whole = f.let(f"icmp sle i64 {f.let(f'add i64 {index}, {elements}')}, {end}")
        full, rest, after = f.new_block("full"), f.new_block("rest"), f.new_block("stored")
        f.branch(whole, full, rest)
        f.start(full)
        self._store_vector(f, index, values, elements)
        f.jump(after)
        f.start(rest)
        size = Element(self.data.dtype).size
        type = vector(f"i{8 * size}", elements)
        stack = f.alloca(type)
        f.do(f"store {type} {values}, ptr {stack}, align 64")
        with f.loop(index, end) as loop:
            offset = f.let(f"sub i64 {loop.index}, {index}")
            value = f.let(f"load i{8 * size}, ptr {f.let(f'getelementptr i{8 * size}, ptr {stack}, i64 {offset}')}")
            self._store_vector(f, loop.index, value, 1)
        f.jump(after)
        f.start(after)

    def _store_vector(self, f: Function, index: str, values: str, lanes: int) -> None:
        """Stores elements from element `index` of the result on, whatever dimensions it has."""
        dtype = self.data.dtype
        size = Element(dtype).size
        type = f"i{8 * size}"
        store = self.call.store
        if store is None:
            place = f.let(f"getelementptr {type}, ptr {table_pointer(f, 2)}, i64 {index}")
            f.do(f"store {vector(type, lanes)} {values}, ptr {place}, align {size}")
            return
        last = self.data.dimensions[-1] if self.data.rank else 1
        part = math.gcd(lanes, last)
        for start in range(0, lanes, part):
            if part == lanes:
                taken = values
            elif part == 1:
                taken = f.let(f"extractelement {vector(type, lanes)} {values}, i64 {start}")
            else:
                chosen = ", ".join(f"i32 {start + i}" for i in range(part))
                taken = f.let(
                    f"shufflevector {vector(type, lanes)} {values}, {vector(type, lanes)} poison, "
                    f"<{part} x i32> <{chosen}>"
                )
            taken = extended(f, taken, dtype, vector("i8", part)) if dtype.bits < 8 else taken
            position = f.let(f"add i64 {index}, {start}")
            store(f, self._coordinates(f, position), taken, part, None)

    def _coordinates(self, f: Function, position: str) -> list[str]:
        """The index of the element at this place of the row-major order."""
        index: list[str] = []
        for size in reversed(self.data.dimensions):
            index.append(f.let(f"urem i64 {position}, {size}"))
            position = f.let(f"udiv i64 {position}, {size}")
        return index[::-1]


class _ThreeFry(_Generator):
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

    def _new_state(self, f: Function, state: list[str]) -> list[str]:
        return [state[0], f.let(f"add i64 {state[1]}, {self.blocks}")]

    def _words(self, f: Function, state: list[str], block: str) -> list[str]:
        wide, type = vector("i64", self.lanes), vector("i32", self.lanes)
        numbers = _counted(f, f.let(f"add i64 {state[1]}, {block}"), self.lanes)
        low, high = f.let(f"trunc i64 {state[0]} to i32"), _upper_word(f, state[0])
        third = f.let(f"xor i32 {f.let(f'xor i32 {low}, {high}')}, {_PARITY}")
        keys = [_splat(f, k, "i32", self.lanes) for k in (low, high, third)]
        upper = f.let(f"lshr {wide} {numbers}, splat (i64 32)")
        x0 = f.let(f"add {type} {f.let(f'trunc {wide} {numbers} to {type}')}, {keys[0]}")
        x1 = f.let(f"add {type} {f.let(f'trunc {wide} {upper} to {type}')}, {keys[1]}")
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x0 = f.let(f"add {type} {x0}, {x1}")
                suffix = f"v{self.lanes}i32"
                amount = f"splat (i32 {rotation})"
                turned = f.let(f"call {type} @llvm.fshl.{suffix}({type} {x1}, {type} {x1}, {type} {amount})")
                x1 = f.let(f"xor {type} {turned}, {x0}")
            x0 = f.let(f"add {type} {x0}, {keys[(group + 1) % 3]}")
            step = f.let(f"add {type} {keys[(group + 2) % 3]}, splat (i32 {group + 1})")
            x1 = f.let(f"add {type} {x1}, {step}")
        return [x0, x1]

    def _store_words(self, f: Function, block: str, end: str, words: list[str]) -> None:
        _, split, inner = self._view
        if inner == 1 and split % 2 == 0:
            wide = self.data.dtype.bits == 64
            first, last = (block, end) if wide else (f.let(f"shl i64 {n}, 1") for n in (block, end))
            joined = _interleaved(f, words, "i32", self.lanes)
            self._store_run(f, first, last, joined, 2 * self.lanes)
            return
        if inner >= self.lanes:
            self._store_rows(f, block, end, words)
            return
        self._store_singly(f, block, end, words)

    def _store_rows(self, f: Function, block: str, end: str, words: list[str]) -> None:
        """Each word's elements are consecutive in a row; where a row ends within, elements go one by one."""
        inner = self._view[2]
        last = f.let(f"add i64 {block}, {self.lanes - 1}")
        row, last_row = f.let(f"udiv i64 {block}, {inner}"), f.let(f"udiv i64 {last}, {inner}")
        one = f.let(f"icmp eq i64 {row}, {last_row}")
        whole = f.let(f"and i1 {one}, {f.let(f'icmp slt i64 {last}, {end}')}")
        together, apart, after = f.new_block("row"), f.new_block("apart"), f.new_block("stored")
        f.branch(whole, together, apart)
        f.start(together)
        for place, valid, word in self._places(f, block, words):
            with f.when(valid):
                self._store_run(f, place, f.let(f"add i64 {place}, {self.lanes}"), word, self.lanes)
        f.jump(after)
        f.start(apart)
        self._store_singly(f, block, end, words)
        f.jump(after)
        f.start(after)

    def _store_singly(self, f: Function, block: str, end: str, words: list[str]) -> None:
        type = vector("i32", self.lanes)
        stacks = [f.alloca(type) for _ in words]
        for stack, word in zip(stacks, words, strict=True):
            f.do(f"store {type} {word}, ptr {stack}, align 64")
        high = least(f, f.let(f"add i64 {block}, {self.lanes}"), end)
        with f.loop(block, high) as loop:
            lane = f.let(f"sub i64 {loop.index}, {block}")
            loaded = [f.let(f"load i32, ptr {f.let(f'getelementptr i32, ptr {s}, i64 {lane}')}") for s in stacks]
            for place, valid, word in self._places(f, loop.index, loaded):
                with f.when(valid):
                    self._store_word(f, place, word)

    def _store_word(self, f: Function, place: str, word: str) -> None:
        bits = self.data.dtype.bits
        if bits < 32:
            word = f.let(f"trunc i32 {word} to i{max(8, bits)}")
        if bits < 8:
            word = f.let(f"and i8 {word}, {(1 << bits) - 1}")
        self._store_vector(f, place, word, 1)

    def _places(self, f: Function, block: str, words: list[str]) -> list[tuple[str, str, str]]:
        """For each word of a block: its element, whether it has one, the word."""
        _, split, inner = self._view
        half = -(-split // 2)
        row, column = f.let(f"udiv i64 {block}, {inner}"), f.let(f"urem i64 {block}, {inner}")
        first = f.let(f"shl i64 {f.let(f'urem i64 {row}, {half}')}, 1")
        outer = f.let(f"udiv i64 {row}, {half}")
        line = f.let(f"add i64 {f.let(f'mul i64 {outer}, {split}')}, {first}")
        place = f.let(f"add i64 {f.let(f'mul i64 {line}, {inner}')}, {column}")
        has_second = f.let(f"icmp slt i64 {first}, {split - 1}")
        return [(place, "true", words[0]), (f.let(f"add i64 {place}, {inner}"), has_second, words[1])]


class _Philox(_Generator):
    """Blocks of four words, one after the other in row-major order."""

    @property
    def blocks(self) -> int:
        return -(-self.data.size * (2 if self.data.dtype.bits == 64 else 1) // 4)

    @property
    def lanes(self) -> int:
        """Two vectors of products."""
        return self.call.target.vector_bytes // 4

    def _new_state(self, f: Function, state: list[str]) -> list[str]:
        high = state[2] if len(state) == 3 else state[0]
        low = f.let(f"add i64 {state[1]}, {self.blocks}")
        carry = f.let(f"zext i1 {f.let(f'icmp ult i64 {low}, {state[1]}')} to i64")
        return [state[0], low, f.let(f"add i64 {high}, {carry}")][: len(state)]

    def _words(self, f: Function, state: list[str], block: str) -> list[str]:
        """The words' values in vectors of i64."""
        type = vector("i64", self.lanes)
        mask = f"splat (i64 {_LOW})"
        high = state[2] if len(state) == 3 else state[0]
        lows = _counted(f, f.let(f"add i64 {state[1]}, {block}"), self.lanes)
        wrapped = f.let(f"icmp ult {type} {lows}, {_splat(f, state[1], 'i64', self.lanes)}")
        carries = f.let(f"zext {vector('i1', self.lanes)} {wrapped} to {type}")
        highs = f.let(f"add {type} {_splat(f, high, 'i64', self.lanes)}, {carries}")
        c0, c2 = (f.let(f"and {type} {c}, {mask}") for c in (lows, highs))
        c1, c3 = (f.let(f"lshr {type} {c}, splat (i64 32)") for c in (lows, highs))
        keys = [f.let(f"and i64 {state[0]}, {_LOW}"), f.let(f"lshr i64 {state[0]}, 32")]
        for _ in range(10):
            p0 = f.let(f"mul {type} {c0}, splat (i64 {_MULTIPLIERS[0]})")
            p1 = f.let(f"mul {type} {c2}, splat (i64 {_MULTIPLIERS[1]})")
            k0, k1 = (_splat(f, k, "i64", self.lanes) for k in keys)
            u0, u1 = (f.let(f"lshr {type} {p}, splat (i64 32)") for p in (p0, p1))
            c0 = f.let(f"xor {type} {f.let(f'xor {type} {u1}, {c1}')}, {k0}")
            c2 = f.let(f"xor {type} {f.let(f'xor {type} {u0}, {c3}')}, {k1}")
            c1, c3 = (f.let(f"and {type} {p}, {mask}") for p in (p1, p0))
            stepped = [f.let(f"add i64 {k}, {s}") for k, s in zip(keys, _KEY_STEPS, strict=True)]
            keys = [f.let(f"and i64 {k}, {_LOW}") for k in stepped]
        return [c0, c1, c2, c3]

    def _store_words(self, f: Function, block: str, end: str, words: list[str]) -> None:
        type = vector("i64", self.lanes)
        raised = [f.let(f"shl {type} {w}, splat (i64 32)") for w in words[1::2]]
        pairs = [f.let(f"or {type} {a}, {b}") for a, b in zip(words[::2], raised, strict=True)]
        joined = _interleaved(f, pairs, "i64", self.lanes)
        count = 4 * self.lanes
        run = f.let(f"bitcast {vector('i64', 2 * self.lanes)} {joined} to {vector('i32', count)}")
        per_block = 2 if self.data.dtype.bits == 64 else 4
        first = f.let(f"mul i64 {block}, {per_block}")
        last = least(f, f.let(f"mul i64 {end}, {per_block}"), str(self.data.size))
        self._store_run(f, first, last, run, count)


def _upper_word(f: Function, value: str) -> str:
    return f.let(f"trunc i64 {f.let(f'lshr i64 {value}, 32')} to i32")


def _splat(f: Function, value: str, type: str, lanes: int) -> str:
    whole = vector(type, lanes)
    one = f.let(f"insertelement {whole} poison, {type} {value}, i64 0")
    return f.let(f"shufflevector {whole} {one}, {whole} poison, <{lanes} x i32> zeroinitializer")


def _counted(f: Function, start: str, lanes: int) -> str:
    """start, start + 1, ... as i64."""
    type = vector("i64", lanes)
    steps = ", ".join(f"i64 {i}" for i in range(lanes))
    return f.let(f"add {type} {_splat(f, start, 'i64', lanes)}, <{steps}>")


def _interleaved(f: Function, pair: list[str], type: str, lanes: int) -> str:
    """The vectors' elements by turns."""
    chosen = ", ".join(f"i32 {i}, i32 {lanes + i}" for i in range(lanes))
    whole = vector(type, lanes)
    return f.let(f"shufflevector {whole} {pair[0]}, {whole} {pair[1]}, <{2 * lanes} x i32> <{chosen}>")


KERNELS["rng-bit-generator"] = rng_bit_generator
