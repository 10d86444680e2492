"""A collective between processes, by the data that its op's `transfer` says each member needs of each other.

What only moves goes by the engine's own collectives. A reduction that no order can change is MPI's too; in every other
one, and over gloo, each rank folds a share of the elements, in group order, and all gather the shares: the bytes are
those of threads. A rank with several devices moves for all of them at once, and what several of its devices need only
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hlokit.devices.processes.engine import Engine, Group
from hlokit.devices.processes.packing import buffer, pack, packed_size, unpacked
from hlokit.hlo.values import TOKEN_VALUE, Array, Block, Function, Move, Source, Transfer, is_ndarray, is_sequence
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


class Collective:
    """One instruction on the devices of a group.

    members   the devices, in the group's order; `homes`: the rank that each has
    own       this process's rank; the devices that it has are `local`, by their positions among the members
    is_all    the group is of all devices
    """

    def __init__(
        self, transfer: Transfer, members: list[int], homes: Sequence[int], own: int, operands: list[Shape],
        shape: Shape, is_all: bool,
    ) -> None:  # fmt: skip
        self.members = members
        self._homes = list(homes)
        self.group = group_of(members, homes, is_all)
        self._own = self.group.ranks.index(own)
        self._positions = [[i for i, home in enumerate(homes) if home == rank] for rank in self.group.ranks]
        self.local = self._positions[self._own]
        self._shape = shape
        self._results = [leaf for leaf in shape.leaves() if leaf.is_array]
        self._moves = transfer.moves
        self._operands = operands
        first = transfer.moves[0]
        self.is_reduction = len(members) > 1 and all(
            moves is first or moves == first for moves in transfer.moves
        ) and all(_is_fold_of_all(move, len(members)) for move in first)  # fmt: skip
        self._needs = [[self._needed(rank, takers) for takers in self._positions] for rank in self.group.ranks]

    def _needed(self, rank: int, takers: Sequence[int]) -> list[Source]:
        """The parts of a rank's data that these members take."""
        moves = (move for taker in takers for move in self._moves[taker])
        return list(dict.fromkeys(p for move in moves for p in move.sources if self._homes[p.member] == rank))

    def run(self, engine: Engine, given: Mapping[int, Sequence[Array]], function: Function | None) -> Any:
        """The results of this rank's devices, from their operands and the others'; both by position."""
        if not self.is_reduction:
            return self._moved(engine, given, function)
        assert function is not None
        arrays = self._reduced(engine, given, function)
        if arrays is None:
            arrays = self._folded_whole(engine, given, function)
        return dict.fromkeys(self.local, tree(self._shape, iter(arrays)))

    def _moved(self, engine: Engine, given: Mapping[int, Sequence[Array]], function: Function | None) -> dict[int, Any]:
        found = self._received(engine, given)
        return {taker: self._put_together(taker, found, function) for taker in self.local}

    def _put_together(self, taker: int, found: Mapping[Source, Array], function: Function | None) -> Any:
        results: list[Any] = [None] * len(self._results)
        for number, block, sources in self._moves[taker]:
            values = [found[place] for place in sources]
            if len(values) > 1:
                assert function is not None
                values = [folded(values, function)]
            if block is None and values:
                results[number] = values[0]
                continue
            if results[number] is None:
                shape = self._results[number]
                results[number] = np.zeros(shape.dimensions, shape.dtype.numpy)
            if values:
                results[number][_slices(results[number].ndim, block, results[number].shape)] = values[0]
        return tree(self._shape, iter(results))

    def _received(self, engine: Engine, given: Mapping[int, Sequence[Array]]) -> dict[Source, Array]:
        """The parts that this rank's devices need, in memory of their own."""
        own, needs, group = self._own, self._needs, self.group
        kinds = [[[self._kind(place) for place in places] for places in row] for row in needs]
        sizes = [[packed_size(kind) for kind in row] for row in kinds]
        parts = [[_part(given[p.member][p.operand], p.block) for p in places] for places in needs[own]]
        if all(row[0] == places for row in needs for places in row):
            packed = buffer(sizes[own][0])
            pack(parts[0], packed)
            senders = [i for i, row in enumerate(sizes) if row[0]]
            if len(senders) == 1:
                data = packed if senders == [own] else buffer(sizes[senders[0]][0])
                engine.broadcast(group, senders[0], data)
                taken = [data if i == senders[0] else packed[:0] for i in range(len(sizes))]
            else:
                taken = engine.gather(group, packed, [row[0] for row in sizes])
        else:
            packed = buffer(sum(sizes[own]))
            start = 0
            for part, size in zip(parts, sizes[own], strict=True):
                pack(part, packed[start : start + size])
                start += size
            taken = engine.exchange(group, packed, sizes[own], [row[own] for row in sizes])
        found: dict[Source, Array] = {}
        for row, data, kind in zip(needs, taken, kinds, strict=True):
            found.update(zip(row[own], unpacked(data, kind[own]), strict=True))
        return found

    def _kind(self, place: Source) -> tuple[np.dtype[Any], tuple[int, ...]]:
        shape, block = self._operands[place.operand], place.block
        sizes = list(shape.dimensions)
        if block is not None:
            sizes[block.dimension] //= block.parts
        return shape.dtype.numpy, tuple(sizes)

    # -- all-reduce: the fold of all operands of all members, which are of one type

    def _reduced(self, engine: Engine, given: Mapping[int, Sequence[Array]], function: Function) -> list[Array] | None:
        """None if a member has a NaN: which of two a sum takes over is a matter of their place in the array, so every
        rank then folds whole arrays."""
        any_nan = any(_has_nan(array) for i in self.local for array in given[i])
        exact = exact_reduction(function, self._operands[0].dtype)
        results: list[Array] = []
        for some in self._some_at_a_time(function):
            flats = [_flat(given[i][some]) for i in self.local]
            whole = None if exact is None else _exactly(engine, self.group, folded(flats, function), any_nan, *exact)
            if whole is None:
                whole = self._folded_in_pieces(engine, flats, any_nan, function)
            if whole is _NAN:
                return None
            arrays = given[self.local[0]][some]
            pieces = np.split(whole, np.cumsum([array.size for array in arrays])[:-1])
            results += [piece.reshape(array.shape) for piece, array in zip(pieces, arrays, strict=True)]
        return results

    def _some_at_a_time(self, function: Function) -> Iterator[slice]:
        """Operands that are folded together: so many that they fill a piece, or all of them."""
        start, size = 0, 0
        for end, shape in enumerate(self._operands, 1):
            size += shape.nbytes
            if size >= _PIECE and _folds_anywhere(function):
                yield slice(start, end)
                start, size = end, 0
        if start < len(self._operands):
            yield slice(start, len(self._operands))

    def _folded_whole(self, engine: Engine, given: Mapping[int, Sequence[Array]], function: Function) -> list[Array]:
        kinds = [(array.dtype, array.shape) for array in given[self.local[0]]]
        size = packed_size(kinds)
        data = buffer(size * len(self.local))
        for place, i in enumerate(self.local):
            pack(given[i], data[place * size : (place + 1) * size])
        parts = engine.gather(self.group, data, [size * len(positions) for positions in self._positions])
        rows = self._in_order([[part[k : k + size] for k in range(0, part.size, size)] for part in parts])
        columns = zip(*(unpacked(row, kinds) for row in rows), strict=True)
        return [folded(column, function) for column in columns]

    def _folded_in_pieces(self, engine: Engine, flats: Sequence[Array], any_nan: bool, function: Function) -> Array:
        """Pieces of many elements, one after the other: what is under way takes little memory."""
        size, count = flats[0].size, _PIECE // flats[0].itemsize
        if size <= count or not _folds_anywhere(function):
            return self._folded_in_shares(engine, flats, any_nan, function)
        whole = np.empty(size, flats[0].dtype)
        for start in range(0, size, count):
            piece = [flat[start : start + count] for flat in flats]
            found = self._folded_in_shares(engine, piece, any_nan, function)
            if found is _NAN:
                return _NAN
            whole[start : start + count] = found
        return whole

    def _folded_in_shares(self, engine: Engine, flats: Sequence[Array], any_nan: bool, function: Function) -> Array:
        """Each rank folds a share of the elements, behind which an element says whether its giver has a NaN."""
        count, flat = len(self.group.ranks), flats[0]
        size = flat.dtype.itemsize
        cuts = [flat.size * k // count for k in range(count + 1)]
        lengths = [size * (end - start) for start, end in pairwise(cuts)]
        flag = np.full(size, any_nan, np.uint8).view(flat.dtype)
        rows = [[*(part[start:end] for part in flats), flag] for start, end in pairwise(cuts)]
        data = np.concatenate([part for row in rows for part in row])
        own, locals_ = lengths[self._own], [len(positions) for positions in self._positions]
        given = [length * len(flats) + size for length in lengths]
        parts = engine.exchange(self.group, data.view(np.uint8), given, [own * count + size for count in locals_])
        if any(part[-1] for part in parts):
            return _NAN
        taken = [[part[k * own : (k + 1) * own] for k in range(n)] for part, n in zip(parts, locals_, strict=True)]
        shares = [row.view(flat.dtype) for row in self._in_order(taken)]
        share = np.ascontiguousarray(folded(shares, function)).view(np.uint8)
        return np.concatenate(engine.gather(self.group, share, lengths)).view(flat.dtype)

    def _in_order(self, rows: Sequence[Sequence[Array]]) -> list[Array]:
        """The parts that came from each rank, one for each of its devices, in the order of the members."""
        pairs = zip(self._positions, rows, strict=True)
        found = dict(pair for positions, row in pairs for pair in zip(positions, row, strict=True))
        return [found[i] for i in range(len(self.members))]


def group_of(members: Sequence[int], homes: Sequence[int], is_all: bool) -> Group:
    """The group of these devices, which are at home on these ranks."""
    pairs = tuple(sorted(zip(members, homes, strict=True)))
    return Group(tuple(sorted(set(homes))), None if is_all else pairs)


def _is_fold_of_all(move: Move, count: int) -> bool:
    return move.block is None and move.sources == tuple(Source(m, move.result) for m in range(count))


def _part(array: Array, block: Block | None) -> Array:
    return array[_slices(array.ndim, block, array.shape)]


def _slices(rank: int, block: Block | None, sizes: Sequence[int]) -> tuple[slice, ...]:
    if block is None:
        return (slice(None),) * rank
    size = sizes[block.dimension] // block.parts
    return (slice(None),) * block.dimension + (slice(block.number * size, (block.number + 1) * size),)


def folded(values: Sequence[Array], function: Function) -> Array:
    """From the left."""
    result = values[0]
    for value in values[1:]:
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
_NAN = np.zeros(0)
"""In place of a result: a member has a NaN."""


def _exactly(
    engine: Engine, group: Group, flat: Array, any_nan: bool, name: str, integers: np.dtype[Any]
) -> Array | None:
    bits = np.ascontiguousarray(flat).view(integers)
    if flat.dtype.kind in "iub":
        found = engine.reduce(group, bits, name)
        return None if found is None else found.view(flat.dtype)
    flag = np.array([any_nan if name == "MAX" else -any_nan], integers)
    found = engine.reduce(group, np.concatenate([_ordered(bits), flag]), name)
    if found is not None and found[-1]:
        return _NAN
    return None if found is None else _ordered(found[:-1]).view(flat.dtype)


def _ordered(bits: Array) -> Array:
    """The bits of floats as integers in the same order; the bits again if done twice."""
    width = 8 * bits.dtype.itemsize
    return bits ^ ((bits >> (width - 1)) & np.array(2 ** (width - 1) - 1, bits.dtype))


def _folds_anywhere(function: Function) -> bool:
    """Whether NumPy's bits do not depend on where in an array an element is: of one op, not of several."""
    return function.is_associative or function.fold_ufunc() is not None


def _flat(arrays: Sequence[Array]) -> Array:
    return arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([array.reshape(-1) for array in arrays])


def _has_nan(array: Array) -> bool:
    return array.dtype.kind not in "iub" and bool(np.any(array != array))


def shapes_of(instruction: Any) -> list[Shape]:
    """Those of the arrays that an instruction takes."""
    return [leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array]
