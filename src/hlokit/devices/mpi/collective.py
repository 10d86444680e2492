"""A collective over MPI, from what its op's `transfer` says of who needs what of whom.

What only moves goes by MPI's own collectives. A reduction that no order can change is MPI's too; in every other one
each member folds a share of the elements, in group order, and all gather the shares: the bytes are those of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.devices.mpi.packing import buffer, pack, packed_size, unpacked
from hlokit.hlo.values import TOKEN_VALUE, Array, Block, Function, Move, Source, Transfer, is_ndarray, is_sequence
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.devices.mpi.mover import Mover

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
    """One instruction on one device: `own` is the device's position among the `members`, which are devices."""

    def __init__(self, transfer: Transfer, own: int, members: list[int], operands: list[Shape], shape: Shape) -> None:
        self.members = members
        self._own = own
        self._shape = shape
        self._results = [leaf for leaf in shape.leaves() if leaf.is_array]
        self._moves = transfer.moves[own]
        self._operands = operands
        everyone = range(len(members))
        self.is_reduction = len(members) > 1 and all(
            moves is self._moves or moves == self._moves for moves in transfer.moves
        ) and all(_is_fold_of_all(move, len(members)) for move in self._moves)  # fmt: skip
        self._needs = [[_needed(transfer.moves[j], i) for j in everyone] for i in everyone]

    def moved(self, mover: Mover, arrays: Sequence[Array], function: Function | None) -> Any:
        """The result, from own operands and the others'."""
        from_each = self._received(mover, arrays)
        results: list[Any] = [None] * len(self._results)
        for number, block, sources in self._moves:
            values = [from_each[place.member][place] for place in sources]
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

    def _received(self, mover: Mover, arrays: Sequence[Array]) -> list[dict[Source, Array]]:
        """For each member, its parts that this device needs."""
        own, needs = self._own, self._needs
        kinds = [[[self._kind(place) for place in places] for places in row] for row in needs]
        sizes = [[packed_size(kind) for kind in row] for row in kinds]
        parts = [[_part(arrays[place.operand], place.block) for place in places] for places in needs[own]]
        if len(self.members) == 1:
            return [dict(zip(needs[0][0], parts[0], strict=True))]
        if all(row[0] == places for row in needs for places in row):
            given = buffer(sizes[own][0])
            pack(parts[0], given)
            senders = [i for i, row in enumerate(sizes) if row[0]]
            if len(senders) == 1:
                data = given if senders == [own] else buffer(sizes[senders[0]][0])
                mover.broadcast(self.members, senders[0], data)
                taken = [data if i == senders[0] else given[:0] for i in range(len(sizes))]
            else:
                taken = mover.gather(self.members, given, [row[0] for row in sizes])
        else:
            given = buffer(sum(sizes[own]))
            start = 0
            for part, size in zip(parts, sizes[own], strict=True):
                pack(part, given[start : start + size])
                start += size
            taken = mover.exchange(self.members, given, sizes[own], [row[own] for row in sizes])
        return [
            dict(zip(row[own], unpacked(data, kind[own]), strict=True))
            for row, data, kind in zip(needs, taken, kinds, strict=True)
        ]

    def _kind(self, place: Source) -> tuple[np.dtype[Any], tuple[int, ...]]:
        shape, block = self._operands[place.operand], place.block
        sizes = list(shape.dimensions)
        if block is not None:
            sizes[block.dimension] //= block.parts
        return shape.dtype.numpy, tuple(sizes)

    # -- all-reduce

    def reduced(self, mover: Mover, arrays: Sequence[Array], function: Function, any_nan: bool) -> Any:
        """The result of a reduction over all members of all operands, which are of one type.

        any_nan     a member has a NaN: which of two a sum takes over is a matter of their place in the array, so every
                    member then folds whole arrays
        """
        if any_nan:
            return tree(self._shape, iter(self._folded_whole(mover, arrays, function)))
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        exact = exact_reduction(function, self._operands[0].dtype)
        if exact is not None:
            whole = _exactly(mover, self.members, flat, *exact)
        else:
            whole = self._folded_in_shares(mover, flat, function)
        ends = np.cumsum([array.size for array in arrays])
        pieces = np.split(whole, ends[:-1])
        results = [piece.reshape(array.shape) for piece, array in zip(pieces, arrays, strict=True)]
        return tree(self._shape, iter(results))

    def _folded_whole(self, mover: Mover, arrays: Sequence[Array], function: Function) -> list[Array]:
        kinds = [(array.dtype, array.shape) for array in arrays]
        data = buffer(packed_size(kinds))
        pack(arrays, data)
        parts = mover.gather(self.members, data, [data.nbytes] * len(self.members))
        columns = zip(*(unpacked(part, kinds) for part in parts), strict=True)
        return [folded(column, function) for column in columns]

    def _folded_in_shares(self, mover: Mover, flat: Array, function: Function) -> Array:
        count, size = len(self.members), flat.dtype.itemsize
        cuts = [flat.size * k // count for k in range(count + 1)]
        lengths = [size * (end - start) for start, end in pairwise(cuts)]
        own = lengths[self._own]
        data = np.ascontiguousarray(flat).view(np.uint8)
        shares = [part.view(flat.dtype) for part in mover.exchange(self.members, data, lengths, [own] * count)]
        share = np.ascontiguousarray(folded(shares, function)).view(np.uint8)
        return np.concatenate(mover.gather(self.members, share, lengths)).view(flat.dtype)


def _is_fold_of_all(move: Move, count: int) -> bool:
    return move.block is None and move.sources == tuple(Source(m, move.result) for m in range(count))


def _needed(moves: Sequence[Move], member: int) -> list[Source]:
    """The parts of a member's data that these moves take."""
    return list(dict.fromkeys(place for move in moves for place in move.sources if place.member == member))


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


def _exactly(mover: Mover, members: Sequence[int], flat: Array, name: str, integers: np.dtype[Any]) -> Array:
    bits = np.ascontiguousarray(flat).view(integers)
    if flat.dtype.kind in "iub":
        return mover.reduce(members, bits, name).view(flat.dtype)
    return _ordered(mover.reduce(members, _ordered(bits), name)).view(flat.dtype)


def _ordered(bits: Array) -> Array:
    """The bits of floats as integers in the same order; the bits again if done twice."""
    width = 8 * bits.dtype.itemsize
    return bits ^ ((bits >> (width - 1)) & np.array(2 ** (width - 1) - 1, bits.dtype))


def has_nan(arrays: Sequence[Array]) -> bool:
    return arrays[0].dtype.kind not in "iub" and any(bool(np.any(array != array)) for array in arrays)


def shapes_of(instruction: Any) -> list[Shape]:
    """Those of the arrays that an instruction takes."""
    return [leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array]
