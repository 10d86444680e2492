"""Sorting by any comparator: insertion sort of short runs, then merges from the bottom up. Keeps the order of equals.

A comparator that is no strict weak order gives some permutation; nothing outside the line is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.flow import greatest, least
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.kernels.sort.lines import Lines
from hlokit.cpu.llvm import Function, Module, While

_RUN = 16  # elements of a run that is sorted by insertion
_LONG = 1 << 15  # elements from which a line is worth more than one chunk
_BLOCKS = 16  # that a long line is split into
_CHUNK = 2048  # elements that make a chunk worth its start


@dataclass(frozen=True)
class MergeSort(Lines):
    """A sort of lines by a comparator.

    comparator  LLVM function of two elements of each operand: whether the first goes before the second
    """

    name: str
    comparator: str

    @property
    def _operands(self) -> range:
        return range(len(self.elements))

    @cached_property
    def _is_split(self) -> bool:
        return self.size >= _LONG and self.lines < _BLOCKS

    @property
    def _block(self) -> int:
        """Elements of a line that one chunk sorts."""
        return -(-self.size // _BLOCKS) if self._is_split else self.size

    @property
    def _block_merges(self) -> int:
        """How many times a block's elements are merged; the same in the last, shorter block."""
        return max(0, math.ceil(math.log2(max(1, self._block) / _RUN)))

    def write(self, module: Module) -> Routine:
        """Writes the functions; gives the phases."""
        self._write_merge(module)
        self._write_block(module)
        return self._split_lines(module) if self._is_split else self._whole_lines(module)

    # -- whole lines, several to a chunk

    def _whole_lines(self, module: Module) -> Routine:
        per_chunk = max(-(-self.lines // 64), min(self.lines, -(-_CHUNK // max(1, self.size))))
        chunks = -(-self.lines // per_chunk)
        spare = 1 if self.inner == 1 else 2  # lines of scratch: the result's own line is no use if it is strided
        offsets = self._scratch_offsets(chunks * spare * self.size)
        f = Function(f"{self.name}_lines", PHASE)
        operands, results, scratch = self._table(f, offsets)
        with f.loop("%begin", "%end") as chunk:
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            high = least(f, f.let(f"add i64 {low}, {per_chunk}"), str(self.lines))
            spare_at = f.let(f"mul i64 {chunk.index}, {spare * self.size}")
            with f.loop(low, high) as line:
                start = self.line_start(f, line.index)
                lines = self.moved(f, operands, start)
                other = self.moved(f, scratch, spare_at)
                if self.inner == 1:
                    goal = self.moved(f, results, start)
                    self._call_block(f, lines, goal, other, str(self.size))
                else:
                    second = self.moved(f, other, str(self.size))
                    self._call_block(f, lines, second, other, str(self.size))
                    self._scatter(f, second, self.moved(f, results, start))
        f.do("ret void")
        module.add(f)
        return Routine((Phase(f.name, chunks),), self._scratch_bytes(chunks * spare * self.size))

    # -- long lines: blocks, then merges of pairs of sorted stretches, each by several chunks

    def _split_lines(self, module: Module) -> Routine:
        phases = [Phase(self._write_blocks_of_lines(module), self.lines * _BLOCKS)]
        self._write_merges_of_lines(module)
        for level in range(_BLOCKS.bit_length() - 1):
            f = Function(f"{self.name}_merges{level}", PHASE)
            f.do(f"call void @{self.name}_merges(ptr %table, i64 %begin, i64 %end, i64 {level})")
            f.do("ret void")
            module.add(f)
            phases.append(Phase(f.name, self.lines * _BLOCKS))
        if self.inner > 1:
            phases.append(Phase(self._write_scatter_of_lines(module), self.lines))
        return Routine(tuple(phases), self._scratch_bytes(self.lines * self.size))

    def _line_buffers(self, results: list[str], scratch: list[str], merges_left: int) -> tuple[list[str], list[str]]:
        """(where the elements lie while so many merges are left, the other buffers); lines are contiguous in both.

        Lines end in the results, or, if those are strided, in the scratch memory.
        """
        last, other = (results, scratch) if self.inner == 1 else (scratch, results)
        return (last, other) if merges_left % 2 == 0 else (other, last)

    def _write_blocks_of_lines(self, module: Module) -> str:
        f = Function(f"{self.name}_blocks", PHASE)
        operands, results, scratch = self._table(f, self._scratch_offsets(self.lines * self.size))
        goal, other = self._line_buffers(results, scratch, _BLOCKS.bit_length() - 1)
        with f.loop("%begin", "%end") as chunk:
            line = f.let(f"sdiv i64 {chunk.index}, {_BLOCKS}")
            low = f.let(f"mul i64 {f.let(f'srem i64 {chunk.index}, {_BLOCKS}')}, {self._block}")
            count = greatest(f, least(f, str(self._block), f.let(f"sub i64 {self.size}, {low}")), "0")
            strided = f.let(f"add i64 {self.line_start(f, line)}, {f.let(f'mul i64 {low}, {self.inner}')}")
            dense = f.let(f"add i64 {f.let(f'mul i64 {line}, {self.size}')}, {low}")
            buffers = [self.moved(f, b, dense) for b in (goal, other)]
            self._call_block(f, self.moved(f, operands, strided), buffers[0], buffers[1], count)
        f.do("ret void")
        module.add(f)
        return f.name

    def _write_merges_of_lines(self, module: Module) -> None:
        """Merges stretches of 2^level blocks."""
        self._write_border(module)
        f = Function(f"{self.name}_merges", [*PHASE, ("i64", "level")], attributes="noinline")
        _, results, scratch = self._table(f, self._scratch_offsets(self.lines * self.size))
        even, odd = self._line_buffers(results, scratch, _BLOCKS.bit_length() - 1)
        is_even = f.let(f"icmp eq i64 {f.let('and i64 %level, 1')}, 0")
        pairs = list(zip(even, odd, strict=True))
        source = [f.let(f"select i1 {is_even}, ptr {a}, ptr {b}") for a, b in pairs]
        target = [f.let(f"select i1 {is_even}, ptr {b}, ptr {a}") for a, b in pairs]
        width = f.let(f"shl i64 {self._block}, %level")
        with f.loop("%begin", "%end") as chunk:
            line = f.let(f"sdiv i64 {chunk.index}, {_BLOCKS}")
            start = f.let(f"mul i64 {line}, {self.size}")
            own = f.let(f"srem i64 {chunk.index}, {_BLOCKS}")
            first = f.let(f"and i64 {own}, {f.let('shl i64 -2, %level')}")  # block at which the two stretches begin
            low = least(f, f.let(f"mul i64 {first}, {self._block}"), str(self.size))
            middle = least(f, f.let(f"add i64 {low}, {width}"), str(self.size))
            high = least(f, f.let(f"add i64 {middle}, {width}"), str(self.size))
            lines = self.moved(f, source, start)
            begin, end = self._borders(f, lines, (low, middle, high), f.let(f"sub i64 {own}, {first}"))
            goal = self.moved(f, target, start)
            left = [f.let(f"add i64 {low}, {border[0]}") for border in (begin, end)]
            right = [f.let(f"add i64 {middle}, {f.let(f'sub i64 {b[1]}, {b[0]}')}") for b in (begin, end)]
            self._call_merge(f, lines, goal, [*left, *right, f.let(f"add i64 {low}, {begin[1]}")])
        f.do("ret void")
        module.add(f)

    def _borders(
        self, f: Function, lines: list[str], bounds: tuple[str, str, str], number: str
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Both ends of a pair's `number`th block: (elements of the left stretch before it, elements before it).

        Found one after the other from the pair's beginning, since no order, if the comparator is none, makes them
        increase: each is kept between the one before and that plus a block.
        """
        low, middle, high = bounds
        total = f.let(f"sub i64 {high}, {low}")
        in_left = f.let(f"sub i64 {middle}, {low}")
        in_right = f.let(f"sub i64 {high}, {middle}")
        last = f.let(f"add i64 {number}, 1")
        carries = [("i64", "0")] * 4
        with f.loop("0", last, carries=carries) as loop:
            _, _, left, before = loop.carried
            ahead = least(f, f.let(f"add i64 {before}, {self._block}"), total)
            pointers = "".join(f"ptr {p}, " for p in lines)
            found = f.let(f"call i64 @{self.name}_border({pointers}i64 {low}, i64 {middle}, i64 {high}, i64 {ahead})")
            found = greatest(f, found, greatest(f, left, f.let(f"sub i64 {ahead}, {in_right}")))
            grown = f.let(f"add i64 {left}, {f.let(f'sub i64 {ahead}, {before}')}")
            loop.next = [left, before, least(f, found, least(f, grown, in_left)), ahead]
        values = loop.results
        return (values[0], values[1]), (values[2], values[3])

    def _write_scatter_of_lines(self, module: Module) -> str:
        f = Function(f"{self.name}_spread", PHASE)
        _, results, scratch = self._table(f, self._scratch_offsets(self.lines * self.size))
        with f.loop("%begin", "%end") as line:
            source = self.moved(f, scratch, f.let(f"mul i64 {line.index}, {self.size}"))
            self._scatter(f, source, self.moved(f, results, self.line_start(f, line.index)))
        f.do("ret void")
        module.add(f)
        return f.name

    # -- parts

    def _write_block(self, module: Module) -> None:
        """Sorts `n` elements of the operand's stride into the dense memory `goal`, with `other` of the same size."""
        names = [*self._names("in"), *self._names("goal"), *self._names("other")]
        f = Function(f"{self.name}_block", [*(("ptr", n) for n in names), ("i64", "n")], attributes="noinline")
        goal, other = ([f"%{n}" for n in self._names(kind)] for kind in ("goal", "other"))
        if self._block_merges % 2:
            goal, other = other, goal
        self._insertion_runs(f, [f"%{n}" for n in self._names("in")], goal)
        if self._block_merges:
            carries = [("i64", str(_RUN)), *(("ptr", p) for p in (*goal, *other))]
            level = While(f, carries)
            width, *pointers = level.values
            level.test(f.let(f"icmp slt i64 {width}, {self._block}"))
            source, target = pointers[: len(goal)], pointers[len(goal) :]
            double = f.let(f"shl i64 {width}, 1")
            pair = While(f, [("i64", "0")])
            (low,) = pair.values
            pair.test(f.let(f"icmp slt i64 {low}, %n"))
            middle = least(f, f.let(f"add i64 {low}, {width}"), "%n")
            high = least(f, f.let(f"add i64 {low}, {double}"), "%n")
            self._call_merge(f, source, target, [low, middle, middle, high, low])
            pair.again(f.let(f"add i64 {low}, {double}"))
            level.again(double, *target, *source)
        f.do("ret void")
        module.add(f)

    def _insertion_runs(self, f: Function, source: list[str], target: list[str]) -> None:
        """Sorts each run; `source` has the operand's stride."""
        with f.loop("0", "%n") as loop:
            place = f.let(f"mul i64 {loop.index}, {self.inner}") if self.inner > 1 else loop.index
            addresses = self.moved(f, source, place)
            own = [e.read(f, a) for e, a in zip(self.elements, addresses, strict=True)]
            raw = [e.load(f, a) for e, a in zip(self.elements, addresses, strict=True)]
            first = f.let(f"and i64 {loop.index}, {-_RUN}")
            free = While(f, [("i64", loop.index)])
            (hole,) = free.values
            free.test(f.let(f"icmp sgt i64 {hole}, {first}"))
            left = f.let(f"sub i64 {hole}, 1")
            before = self.moved(f, target, left)
            free.test(self._less(f, own, self._read(f, before)))
            self.copy(f, before, self.moved(f, target, hole))
            free.again(left)
            for element, value, address in zip(self.elements, raw, self.moved(f, target, free.values[0]), strict=True):
                element.store(f, value, address)

    def _write_merge(self, module: Module) -> None:
        """Merges the sorted stretches [a, a_end) and [b, b_end) of the sources to the targets from `o` on."""
        names = [*self._names("from"), *self._names("to")]
        numbers = ["a", "a_end", "b", "b_end", "o"]
        parameters = [*(("ptr", n) for n in names), *(("i64", n) for n in numbers)]
        f = Function(f"{self.name}_merge", parameters, attributes="noinline")
        source, target = ([f"%{n}" for n in self._names(kind)] for kind in ("from", "to"))
        loop = While(f, [("i64", "%a"), ("i64", "%b"), ("i64", "%o")])
        a, b, o = loop.values
        loop.test(f.let(f"icmp slt i64 {a}, %a_end"))
        loop.test(f.let(f"icmp slt i64 {b}, %b_end"))
        left, right = self.moved(f, source, a), self.moved(f, source, b)
        take = self._less(f, self._read(f, right), self._read(f, left))
        chosen = f.let(f"select i1 {take}, i64 {b}, i64 {a}, !unpredictable !{{}}")
        self.copy(f, self.moved(f, source, chosen), self.moved(f, target, o))
        step = f.let(f"zext i1 {take} to i64")
        kept = f.let(f"xor i64 {step}, 1")
        loop.again(f.let(f"add i64 {a}, {kept}"), f.let(f"add i64 {b}, {step}"), f.let(f"add i64 {o}, 1"))
        for start, end in ((a, "%a_end"), (b, "%b_end")):
            with f.loop(start, end, carries=[("i64", o)]) as rest:
                (goal,) = rest.carried
                self.copy(f, self.moved(f, source, rest.index), self.moved(f, target, goal))
                rest.next = [f.let(f"add i64 {goal}, 1")]
            (o,) = rest.results
        f.do("ret void")
        module.add(f)

    def _write_border(self, module: Module) -> None:
        """How many of the first `ahead` elements merged of [low, middle) and [middle, high) come from the left one."""
        numbers = ["low", "middle", "high", "ahead"]
        parameters = [*(("ptr", n) for n in self._names("from")), *(("i64", n) for n in numbers)]
        f = Function(f"{self.name}_border", parameters, "i64", "noinline")
        source = [f"%{n}" for n in self._names("from")]
        in_right = f.let("sub i64 %high, %middle")
        start = greatest(f, "0", f.let(f"sub i64 %ahead, {in_right}"))
        loop = While(f, [("i64", start), ("i64", least(f, "%ahead", f.let("sub i64 %middle, %low")))])
        low, high = loop.values
        loop.test(f.let(f"icmp slt i64 {low}, {high}"))
        half = f.let(f"lshr i64 {f.let(f'add i64 {low}, {high}')}, 1")
        in_front = f.let(f"sub i64 {f.let(f'sub i64 %ahead, {half}')}, 1")
        left = self.moved(f, source, f.let(f"add i64 %low, {half}"))
        right = self.moved(f, source, f.let(f"add i64 %middle, {in_front}"))
        enough = self._less(f, self._read(f, right), self._read(f, left))
        above = f.let(f"add i64 {half}, 1")
        loop.again(
            f.let(f"select i1 {enough}, i64 {low}, i64 {above}"), f.let(f"select i1 {enough}, i64 {half}, i64 {high}")
        )
        f.do(f"ret i64 {low}")
        module.add(f)

    def _scatter(self, f: Function, source: list[str], target: list[str]) -> None:
        """Copies a dense line to a strided one."""
        with f.loop("0", str(self.size)) as loop:
            place = f.let(f"mul i64 {loop.index}, {self.inner}")
            self.copy(f, self.moved(f, source, loop.index), self.moved(f, target, place))

    def _names(self, kind: str) -> list[str]:
        return [f"{kind}{k}" for k in self._operands]

    def _table(self, f: Function, offsets: list[int]) -> tuple[list[str], list[str], list[str]]:
        """Operands, results, and each operand's scratch memory."""
        operands, results, base = self.table(f)
        return operands, results, [f.let(f"getelementptr i8, ptr {base}, i64 {o}") for o in offsets]

    def _scratch_offsets(self, count: int) -> list[int]:
        sizes = [-(-count * e.size // 64) * 64 for e in self.elements]
        return [sum(sizes[:k]) for k in self._operands]

    def _scratch_bytes(self, count: int) -> int:
        return self._scratch_offsets(count)[-1] + count * self.elements[-1].size

    def _read(self, f: Function, addresses: list[str]) -> list[list[str]]:
        return [e.read(f, a) for e, a in zip(self.elements, addresses, strict=True)]

    def _less(self, f: Function, first: list[list[str]], second: list[list[str]]) -> str:
        """Whether the first element goes before the second."""
        arguments = [
            f"{type} {value}"
            for element, pair in zip(self.elements, zip(first, second, strict=True), strict=True)
            for scalars in pair
            for type, value in zip(element.registers, scalars, strict=True)
        ]
        return f.let(f"call i1 @{self.comparator}({', '.join(arguments)})")

    def _call_block(self, f: Function, source: list[str], goal: list[str], other: list[str], count: str) -> None:
        f.do(f"call void @{self.name}_block({_pointers(source, goal, other)}, i64 {count})")

    def _call_merge(self, f: Function, source: list[str], target: list[str], numbers: list[str]) -> None:
        shown = ", ".join(f"i64 {n}" for n in numbers)
        f.do(f"call void @{self.name}_merge({_pointers(source, target)}, {shown})")


def _pointers(*groups: Sequence[str]) -> str:
    return ", ".join(f"ptr {p}" for group in groups for p in group)
