"""A collective between processes, by the data that each member needs from the others (`Op.transfer`).

What only moves goes by the engine's own collectives. A reduction that no order can change is MPI's too; in every other
one, and over gloo, each rank folds a share of the elements, in group order, and all gather the shares: the bytes are
those of threads. A rank with several devices moves for all of them at once, and what several of its devices need only
once. What is much goes in rounds, through the same memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from hlokit.devices.processes.engine import Engine, Group, cut
from hlokit.devices.processes.packing import Staging, buffer, pack, packed_size, unpacked
from hlokit.hlo.values import TOKEN_VALUE, Array, Block, Function, Source, Take, Transfer, is_ndarray, is_sequence
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_OF_BITS = {
    "add": "BOR",
    "maximum": "BOR",
    "or": "BOR",
    "multiply": "BAND",
    "minimum": "BAND",
    "and": "BAND",
    "xor": "BXOR",
}
_OF_FLOATS = {"maximum": "MAX", "minimum": "MIN"}
_OF_INTEGERS = {"add": "SUM", "multiply": "PROD", "and": "BAND", "or": "BOR", "xor": "BXOR", **_OF_FLOATS}
"""MPI's operations by opcode: of pred, of integers, of floats by the order of their bits."""
Span = tuple[int, int]
"""The first of some elements, and the one behind the last."""
Arrays = Mapping[int, Sequence[Array]]
Made = Mapping[int, Sequence[Array | None]]


class Collective:
    """One instruction on the devices of a group.

    members   the devices, in the group's order; `homes`: the rank that each has
    own       this process's rank; the devices that it has are `local`, by their positions among the members
    is_all    the group is of all devices
    """

    def __init__(
        self, transfer: Transfer, members: list[int], homes: Sequence[int], own: int, operands: list[Shape],
        results: list[Shape], is_all: bool,
    ) -> None:  # fmt: skip
        self.members = members
        self.group = group_of(members, homes, is_all)
        self._own = self.group.ranks.index(own)
        self._positions = positions_of(self.group, homes)
        self.local = self._positions[self._own]
        self.results = results
        self._kept = transfer.kept
        self._moves = {i: transfer.moves(i) for i in self.local}
        self._operands = operands
        first = transfer.takes[0]
        self.is_reduction = len(members) > 1 and all(
            takes is first or takes == first for takes in transfer.takes
        ) and all(take == Take(take.result, range(len(members)), take.result) for take in first)  # fmt: skip
        wanted = [_wanted(take for i in positions for take in transfer.takes[i]) for positions in self._positions]
        self._is_alike = all(wants == wanted[0] for wants in wanted)
        """Every rank gives all others the same."""
        self._rounds = self._counted_rounds(wanted)
        takers = wanted[:1] if self._is_alike else wanted
        self._gives = [self._needed(self.local, wants) for wants in takers]
        """The parts of this rank's data that each rank takes; `_gets`: that this rank takes of each."""
        self._gets = [self._needed(positions, wanted[self._own]) for positions in self._positions]

    def _counted_rounds(self, wanted: Sequence[Sequence[_Want]]) -> int:
        """The least number of rounds in none of which a rank gives or takes much more than a piece."""
        if self._is_alike:
            return max(1, -(-sum(len(want.senders) * self._size(want) for want in wanted[0]) // _PIECE))
        given, taken = [0] * len(wanted), [0] * len(wanted)
        asked = Counter[Sequence[int]]()
        """Bytes that are taken of these senders."""
        for rank, (wants, positions) in enumerate(zip(wanted, self._positions, strict=True)):
            for want in wants:
                size, own = self._size(want), sum(i in want.senders for i in positions)
                asked[want.senders] += size
                given[rank] -= size * own
                taken[rank] += size * (len(want.senders) - own)
        rank_of = {i: rank for rank, positions in enumerate(self._positions) for i in positions}
        for senders, size in asked.items():
            for i in senders:
                given[rank_of[i]] += size
        return max(1, -(-max(*given, *taken) // _PIECE))

    def _size(self, want: _Want) -> int:
        """Bytes that are taken of each sender."""
        return packed_size([self._kind(Source(0, want.operand, want.block), _all)])

    def _needed(self, givers: Sequence[int], wants: Sequence[_Want]) -> list[Source]:
        """The parts of the givers' data among these."""
        return [Source(i, want.operand, want.block) for want in wants for i in givers if i in want.senders]

    def run(self, engine: Engine, staging: Staging, given: Arrays, made: Made, function: Function | None) -> None:
        """Fills the results of this rank's devices, from their operands and the others'; both by position.

        given   dense arrays; `made`: dense arrays that share no memory with them, or None where nothing is to be put

        All bytes that the engine reads and writes are in memory of `staging`: of an operation that is left undone the
        engine may still use it, when the operands and results are gone.
        """
        if not self.is_reduction:
            self._moved(engine, staging, given, made, function)
            return
        assert function is not None
        if not self._reduced(engine, staging, given, made, function):
            self._folded_whole(engine, given, made, function)

    # -- what moves, or is folded in parts

    def _moved(
        self, engine: Engine, staging: Staging, given: Arrays, made: Made, function: Function | None
    ) -> None:
        for taker in self.local:
            for number in range(self._kept):
                result = made[taker][number]
                if result is not None:
                    result[...] = given[taker][number]
        targets = [
            (_rows(result, block), sources)
            for taker in self.local
            for number, block, sources in self._moves[taker]
            if (result := made[taker][number]) is not None
        ]
        for target, sources in targets:
            if not sources:
                target[...] = 0
        wanted = dict.fromkeys(source for _, sources in targets for source in sources)
        own = dict.fromkeys(chain(self._gets[self._own], *self._gives))
        rows = {p: _rows(given[p.member][p.operand], p.block) for p in own}
        rounds = self._rounds if function is None or _folds_anywhere(function) else 1
        for number in range(rounds):
            part = partial(_part_of, number, rounds)
            with self._received(engine, staging, rows, part) as found:
                values = {p: found[p] if p in found else _flat(rows[p], part(rows[p].size)) for p in wanted}
                for target, sources in targets:
                    if sources:
                        value = folded([values[p] for p in sources], function)
                        _put(target, part(target.size), value)

    @contextmanager
    def _received(
        self, engine: Engine, staging: Staging, rows: Mapping[Source, Array], part: Callable[[int], Span]
    ) -> Generator[dict[Source, Array]]:
        """The parts of this round that this rank's devices need of the other ranks."""
        own, group, gives, takes = self._own, self.group, self._gives, self._gets
        if len(group.ranks) == 1:
            yield {}
            return
        if not self._is_alike:
            gives, takes = ([*places[:own], [], *places[own + 1 :]] for places in (gives, takes))
        kinds = [[self._kind(place, part) for place in places] for places in takes]
        given, taken = self._sizes(gives, part), self._sizes(takes, part)
        with staging.taken(sum(given)) as data, staging.taken(sum(taken)) as whole:
            for places, block in zip(gives, cut(data, given), strict=True):
                for place, view in zip(places, unpacked(block, [self._kind(p, part) for p in places]), strict=True):
                    _take(rows[place], part(rows[place].size), view)
            senders = [rank for rank, size in enumerate(taken) if size]
            if not self._is_alike:
                engine.exchange(group, data, given, whole, taken)
            elif len(senders) == 1:
                whole = data if senders == [own] else whole
                engine.broadcast(group, senders[0], whole)
            else:
                engine.gather(group, data, whole, taken)
            found: dict[Source, Array] = {}
            for places, block, kind in zip(takes, cut(whole, taken), kinds, strict=True):
                found.update(zip(places, unpacked(block, kind), strict=True))
            yield found

    def _sizes(self, rows: Sequence[Sequence[Source]], part: Callable[[int], Span]) -> list[int]:
        """Bytes of what is given to each rank, or taken of it."""
        return [packed_size(self._kind(place, part) for place in places) for places in rows]

    def _kind(self, place: Source, part: Callable[[int], Span]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        shape, block = self._operands[place.operand], place.block
        start, end = part(shape.size // (1 if block is None else block.parts))
        return shape.dtype.numpy, (end - start,)

    # -- all-reduce: the fold of all operands of all members, which are of one type

    def _reduced(
        self, engine: Engine, staging: Staging, given: Arrays, made: Made, function: Function
    ) -> bool:
        """False if a member has a NaN: which of two a sum takes over is a matter of their place in the array, so every
        rank then folds whole arrays."""
        any_nan = any(_has_nan(array) for i in self.local for array in given[i])
        exact = exact_reduction(function, self._operands[0].dtype) if engine.reduces else None
        flats = [[array.reshape(-1) for array in given[i]] for i in self.local]
        results = [[array.reshape(-1) for array in made[i] if array is not None] for i in self.local]
        for spans in self._pieces(function):
            values = [[flat[number][start:end] for number, start, end in spans] for flat in flats]
            with staging.taken(sum(part.nbytes for part in values[0])) as memory:
                whole = memory.view(values[0][0].dtype)
                if exact is not None:
                    reduce = partial(_reduce_exactly, engine, self.group, *exact)
                    is_done = reduce(folded([*map(_joined, values)], function), any_nan, whole)
                else:
                    is_done = self._fold_in_shares(engine, staging, values, any_nan, function, whole)
                for result in results if is_done else ():
                    _spread(whole, [result[number][start:end] for number, start, end in spans])
            if not is_done:
                return False
        return True

    def _pieces(self, function: Function) -> Iterator[list[tuple[int, int, int]]]:
        """The elements of all operands in pieces of so many bytes: (operand, start, end) of each part of one."""
        sizes = [shape.size for shape in self._operands]
        most = max(1, _PIECE // self._operands[0].dtype.numpy.itemsize) if _folds_anywhere(function) else sum(sizes)
        spans: list[tuple[int, int, int]] = []
        room = most
        for number, size in enumerate(sizes):
            start = 0
            while start < size:
                end = min(size, start + room)
                spans.append((number, start, end))
                room -= end - start
                start = end
                if not room:
                    yield spans
                    spans, room = [], most
        if spans:
            yield spans

    def _folded_whole(self, engine: Engine, given: Arrays, made: Made, function: Function) -> None:
        kinds = [(array.dtype, array.shape) for array in given[self.local[0]]]
        size = packed_size(kinds)
        data = buffer(size * len(self.local))
        for place, i in enumerate(self.local):
            pack(given[i], data[place * size : (place + 1) * size])
        sizes = [size * len(positions) for positions in self._positions]
        whole = buffer(sum(sizes))
        engine.gather(self.group, data, whole, sizes)
        rows = self._in_order([[part[k : k + size] for k in range(0, part.size, size)] for part in cut(whole, sizes)])
        for number, column in enumerate(zip(*(unpacked(row, kinds) for row in rows), strict=True)):
            value = folded(column, function)
            for i in self.local:
                result = made[i][number]
                assert result is not None
                result[...] = value

    def _fold_in_shares(
        self, engine: Engine, staging: Staging, values: Sequence[Sequence[Array]], any_nan: bool, function: Function,
        whole: Array,
    ) -> bool:  # fmt: skip
        """The fold of these elements of each device, one after the other. Each rank folds a share of them, behind which
        an element says whether its giver has a NaN: then it is False."""
        count, dtype = len(self.group.ranks), values[0][0].dtype
        length = sum(map(len, values[0]))
        cuts = [length * k // count for k in range(count + 1)]
        lengths = [end - start for start, end in pairwise(cuts)]
        locals_ = [len(positions) for positions in self._positions]
        own, size = lengths[self._own], dtype.itemsize
        given = [size * (n * len(values) + 1) for n in lengths]
        taken = [size * (n * own + 1) for n in locals_]
        with staging.taken(sum(given)) as data, staging.taken(sum(taken)) as received:
            row = data.view(dtype)
            for start, end in pairwise(cuts):
                for parts in values:
                    _join(parts, start, end, row)
                    row = row[end - start :]
                row[:1].view(np.uint8)[...] = any_nan
                row = row[1:]
            engine.exchange(self.group, data, given, received, taken)
            parts = [part.view(dtype) for part in cut(received, taken)]
            if any(part[-1:].view(np.uint8)[0] for part in parts):
                return False
            rows = [[part[k * own : (k + 1) * own] for k in range(n)] for part, n in zip(parts, locals_, strict=True)]
            share = np.ascontiguousarray(folded(self._in_order(rows), function)).view(np.uint8)
            engine.gather(self.group, share, whole.view(np.uint8), [size * n for n in lengths])
            return True

    def _in_order(self, rows: Sequence[Sequence[Array]]) -> list[Array]:
        """The parts that came from each rank, one for each of its devices, in the order of the members."""
        pairs = zip(self._positions, rows, strict=True)
        found = dict(pair for positions, row in pairs for pair in zip(positions, row, strict=True))
        return [found[i] for i in range(len(self.members))]


def group_of(members: Sequence[int], homes: Sequence[int], is_all: bool) -> Group:
    """The group of these devices, which are at home on these ranks."""
    pairs = tuple(sorted(zip(members, homes, strict=True)))
    return Group(tuple(sorted(set(homes))), None if is_all else pairs)


def positions_of(group: Group, homes: Sequence[int]) -> list[list[int]]:
    """The positions of the members on each rank of the group; `homes`: the ranks of the members."""
    positions: dict[int, list[int]] = {rank: [] for rank in group.ranks}
    for i, home in enumerate(homes):
        positions[home].append(i)
    return [*positions.values()]


class _Want(NamedTuple):
    """An operand, or a block of it, that a rank takes of each of some members."""

    senders: range | tuple[int, ...]
    operand: int
    block: Block | None


def _wanted(takes: Iterable[Take]) -> list[_Want]:
    return list(dict.fromkeys(_Want(take.senders, take.operand, take.block) for take in takes if take.senders))


def _rows(array: Array, block: Block | None) -> Array:
    """The elements of a dense array, or of a block of it: rows that each lie together."""
    if block is None:
        return array.reshape(1, array.size)
    outer, sizes = math.prod(array.shape[: block.dimension]), math.prod(array.shape[block.dimension :])
    return array.reshape(outer, block.parts, sizes // block.parts)[:, block.number]


def _all(size: int) -> Span:
    return 0, size


def _part_of(number: int, rounds: int, size: int) -> Span:
    """The elements of this many that go in a round."""
    if rounds == 1:
        return 0, size
    step = -(-size // (rounds * _ALIGNED)) * _ALIGNED
    return min(size, number * step), min(size, (number + 1) * step)


def _runs(rows: Array, span: Span) -> Iterator[Array]:
    """The elements of a span, in views of one row or of several whole ones."""
    start, end = span
    inner = rows.shape[1]
    while start < end:
        row, column = divmod(start, inner)
        count = (end - start) // inner
        if column or not count:
            run = rows[row, column : column + end - start]
        else:
            run = rows[row : row + count]
        yield run
        start += run.size


def _take(rows: Array, span: Span, out: Array) -> None:
    for run in _runs(rows, span):
        out[: run.size].reshape(run.shape)[...] = run
        out = out[run.size :]


def _put(rows: Array, span: Span, values: Array) -> None:
    for run in _runs(rows, span):
        run[...] = values[: run.size].reshape(run.shape)
        values = values[run.size :]


def _flat(rows: Array, span: Span) -> Array:
    """The elements of a span: where they lie, if that is in one row."""
    start, end = span
    if len(rows) == 1:
        return rows[0, start:end]
    flat = np.empty(end - start, rows.dtype)
    _take(rows, span, flat)
    return flat


def _spread(flat: Array, parts: Sequence[Array]) -> None:
    """Copies elements to the parts, one after the other."""
    for part in parts:
        part[...] = flat[: part.size]
        flat = flat[part.size :]


def _join(parts: Sequence[Array], start: int, end: int, out: Array) -> None:
    """Copies elements of the parts, one after the other."""
    for part in parts:
        piece = part[max(0, start) : max(0, end)]
        out[: piece.size] = piece
        out = out[piece.size :]
        start, end = start - part.size, end - part.size


def folded(values: Sequence[Array], function: Function | None) -> Array:
    """From the left. `function`: of two values or more."""
    result = values[0]
    for value in values[1:]:
        assert function is not None
        result = function.batched(result, value)
    return result


def leaves(values: Any) -> Iterator[Array]:
    """The arrays of a value, in order."""
    if is_sequence(values):
        for value in values:
            yield from leaves(value)
    elif is_ndarray(values):
        yield values


def tree(shape: Shape, arrays: Iterator[Array]) -> Any:
    """The arrays in the shape's structure."""
    if shape.is_tuple:
        return tuple(tree(part, arrays) for part in shape.elements)
    return next(arrays) if shape.is_array else TOKEN_VALUE


# -- reductions that no order can change


def exact_reduction(function: Function, dtype: DType) -> tuple[str, np.dtype[Any]] | None:
    """MPI's operation, and the integers that it is to see, where its result has the bytes of the fold.

    Sums and products modulo 2^n are those of unsigned integers. Floats have the greatest and the least by the order of
    their bits, -0 below +0 (MAX-2), if none of them is a NaN.
    """
    opcode, bits = function.computation.root.opcode, 8 * dtype.numpy.itemsize
    if not function.is_associative:
        return None
    if dtype.kind == "pred":
        name, kind = _OF_BITS.get(opcode), "u"
    elif dtype.kind in ("signed", "unsigned") and dtype.bits >= 8:
        name = _OF_INTEGERS.get(opcode)
        kind = "i" if dtype.kind == "signed" and opcode in _OF_FLOATS else "u"
    elif dtype.is_floating and dtype.bits >= 16:
        name, kind = _OF_FLOATS.get(opcode), "i"
    else:
        return None
    return None if name is None else (name, np.dtype(f"{kind}{bits // 8}"))


_PIECE = 1 << 22
"""Bytes of a device's operands."""
_NAN_BLOCK = 1 << 16
"""Elements that are looked at together."""
_ALIGNED = 1024
"""Elements: where a round begins, NumPy's loops over whole arrays begin a vector, too."""


def _reduce_exactly(
    engine: Engine, group: Group, name: str, integers: np.dtype[Any], flat: Array, any_nan: bool, whole: Array
) -> bool:
    """False if a member has a NaN."""
    if flat.dtype.kind in "iub":
        whole.view(integers)[...] = engine.reduce(group, np.array(flat).view(integers), name)
        return True
    flag = np.array([any_nan if name == "MAX" else -any_nan], integers)
    found = engine.reduce(group, np.concatenate([_ordered(flat.view(integers)), flag]), name)
    whole.view(integers)[...] = _ordered(found[:-1])
    return not found[-1]


def _ordered(bits: Array) -> Array:
    """The bits of floats as integers in the same order; the bits again if done twice."""
    width = 8 * bits.dtype.itemsize
    return bits ^ ((bits >> (width - 1)) & np.array(2 ** (width - 1) - 1, bits.dtype))


def _folds_anywhere(function: Function) -> bool:
    """Whether NumPy's bits do not depend on where in an array an element is: of one op, not of several."""
    return function.is_associative or function.fold_ufunc() is not None


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _has_nan(array: Array) -> bool:
    if array.dtype.kind in "iub" or not array.size:
        return False
    if array.dtype.kind == "f":
        return bool(np.isnan(array.min()))
    flat = array.reshape(-1)
    return any(bool(np.any(p != p)) for p in np.split(flat, range(_NAN_BLOCK, flat.size, _NAN_BLOCK)))


def shapes_of(instruction: Any) -> list[Shape]:
    """Those of the arrays that an instruction takes."""
    return [leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array]
