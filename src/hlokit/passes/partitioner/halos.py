"""Halos: elements of other devices' parts that a part of a result needs, at positions given by the op's attributes.

A slice, pad, reverse, concatenation or window reads, for result i along a dimension, elements about step * i + first.
The part of a device is a range of results, so it needs a range of elements, which overlaps the parts of some devices:
these send it what it lacks, and what no part has is filled. Then the op runs on that range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from hlokit.builder import collectives, constants, elementwise, indexing, movement
from hlokit.builder.core import XlaOp
from hlokit.hlo.op import Op
from hlokit.ops.convolution import Convolution
from hlokit.ops.movement import Concatenate, Pad, Reverse
from hlokit.ops.slicing import DynamicSlice, Slice
from hlokit.ops.windows import ReduceWindow
from hlokit.passes.partitioner.emission import Emission
from hlokit.passes.partitioner.placement import Parts, Placement
from hlokit.passes.partitioner.plan import Network, Step
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape
from hlokit.types.window import Window, WindowDimension

_T = TypeVar("_T")
ZERO, NEUTRAL = -1, -2


@dataclass(frozen=True)
class Reach:
    """The elements of an operand that parts of a result need along a dimension: `count` from `step` * part + `first`.

    fill    what stands where there is no element: an operand by number, ZERO, or what is NEUTRAL to the fold; None:
            nothing reads it
    """

    step: int
    first: int
    count: int
    fill: int | None = None


@dataclass(frozen=True)
class Piece:
    """Elements first..first+size of a part, sent from place to place in rounds. `own`: places that have their piece."""

    first: int
    size: int
    rounds: tuple[tuple[tuple[int, int], ...], ...]
    own: frozenset[int]


@dataclass(frozen=True)
class Exchange:
    """The pieces that make up, one behind the other, what each place needs.

    starts   where that begins in them, by place; low, high: elements that are put around them first
    """

    pieces: tuple[Piece, ...]
    starts: tuple[int, ...]
    low: int
    high: int

    @property
    def sent(self) -> int:
        """Elements along the dimension that a device sends, at most."""
        return sum(piece.size * len(piece.rounds) for piece in self.pieces)

    @property
    def rounds(self) -> int:
        """The number of times that devices send."""
        return sum(len(piece.rounds) for piece in self.pieces)


HALOS = (Slice, Pad, Reverse, Concatenate, ReduceWindow, Convolution)
"""Ops whose shifted dimensions may be divided."""


def reach(op: Op, operands: Sequence[Shape], number: int, d: int, local: int) -> Reach | None:
    """The places that parts of `local` results need of an operand along dimension d; None: there is no such form."""
    size = operands[number].dimensions[d]
    if isinstance(op, Slice):
        start, _, stride = op.ranges[d]
        return Reach(stride * local, start, stride * (local - 1) + 1)
    if isinstance(op, Reverse):
        return Reach(-local, size - local, local)
    if isinstance(op, Concatenate):
        before = sum(shape.dimensions[d] for shape in operands[:number])
        return Reach(local, -before, local)
    window = _window(op, d)
    if window is None:
        return None
    placed = _placed(window, local)
    if placed is None:
        return None
    first, count, _ = placed
    step = local * window.stride // window.base_dilation
    return Reach(step, first, count, 1 if isinstance(op, Pad) else ZERO if isinstance(op, Convolution) else NEUTRAL)


def on_reach(op: Op, d: int, local: int) -> Op:
    """The op on what parts of `local` results need along the operand's dimension d, where nothing else is around."""
    if isinstance(op, Slice):
        stride = op.ranges[d][2]
        return op.replace(ranges=_with(op.ranges, d, (0, stride * (local - 1) + 1, stride)))
    window = _window(op, d)
    placed = _placed(window, local) if window is not None else None
    if window is None or placed is None:
        return op
    if isinstance(op, Pad):
        low, high = placed[2]
        around = replace(op.padding[d], edge_padding_low=low, edge_padding_high=high)
        return op.replace(padding=_with(op.padding, d, around))
    own = replace(window, padding_low=placed[2][0], padding_high=placed[2][1])
    assert isinstance(op, (ReduceWindow, Convolution))
    number = d if isinstance(op, ReduceWindow) else op.dim_labels.input_spatial_dimensions.index(d)
    return op.replace(window=Window(_with(op.window.dimensions, number, own)))


def reach_of_taps(op: Convolution, d: int, outputs: int, local: int) -> Reach | None:
    """The places of the image's dimension d that parts of `local` taps of a kernel need for all outputs."""
    window = _window(op, d)
    if window is None or window.base_dilation != 1 or window.reversal:
        return None
    count = (outputs - 1) * window.stride + (local - 1) * window.window_dilation + 1
    return Reach(local * window.window_dilation, -window.padding_low, count, ZERO)


def on_taps(op: Convolution, d: int, local: int) -> Convolution:
    """The op on what parts of `local` taps need along the image's dimension d."""
    number = op.dim_labels.input_spatial_dimensions.index(d)
    own = replace(op.window.dimensions[number], size=local, padding_low=0, padding_high=0)
    return op.replace(window=Window(_with(op.window.dimensions, number, own)))


def _window(op: Op, d: int) -> WindowDimension | None:
    """The window that moves along the operand's dimension d; of a pad it is one element."""
    if isinstance(op, Pad):
        around = op.padding[d]
        low, high = around.edge_padding_low, around.edge_padding_high
        return WindowDimension(1, padding_low=low, padding_high=high, base_dilation=around.interior_padding + 1)
    if isinstance(op, ReduceWindow):
        return op.window.dimensions[d]
    if isinstance(op, Convolution) and d in op.dim_labels.input_spatial_dimensions:
        return op.window.dimensions[op.dim_labels.input_spatial_dimensions.index(d)]
    return None


def _placed(window: WindowDimension, local: int) -> tuple[int, int, tuple[int, int]] | None:
    """(first element, count, padding) of the first part of `local` results; None where the next has another padding."""
    holes = window.base_dilation
    if local * window.stride % holes:
        return None
    span = (local - 1) * window.stride + (window.size - 1) * window.window_dilation + 1
    first = -(window.padding_low // holes)
    low = first * holes + window.padding_low
    if low >= span:
        return None
    count = (span - low - 1) // holes + 1
    return first, count, (low, span - low - (count - 1) * holes - 1)


def _with(values: Sequence[_T], number: int, value: _T) -> tuple[_T, ...]:
    return (*values[:number], value, *values[number + 1 :])


@lru_cache(maxsize=1024)
def exchange(size: int, count: int, found: Reach) -> Exchange | None:
    """The exchange by which `count` places with equal parts of `size` elements get what they reach; None: no need.

    Of two ways the one that sends less: pieces counted from the first part that a place needs, or from its own.
    """
    part = -(-size // count)
    starts = [found.step * place + found.first for place in range(count)]
    needs = {p: (max(s, 0), min(s + found.count, size)) for p, s in enumerate(starts)}
    needs = {place: (low, high) for place, (low, high) in needs.items() if low < high}
    if not needs:
        return None
    by_need = {place: low // part for place, (low, _) in needs.items()}
    behind = min(first - place for place, first in by_need.items())
    by_place = {place: place + behind for place in needs}
    ways = [_exchange(starts, needs, part, firsts, found.count) for firsts in (by_need, by_place)]
    return min(ways, key=lambda way: (way.sent, way.rounds))


def _exchange(
    starts: Sequence[int], needs: Mapping[int, tuple[int, int]], part: int, firsts: Mapping[int, int], count: int
) -> Exchange:
    """The exchange whose piece j is, of each place, the part firsts[place] + j.

    starts  where what a place needs begins, with what is outside of the array; needs: (begin, end) within it
    """
    last = max((high - 1) // part - firsts[place] for place, (_, high) in needs.items())
    begin = min((low - firsts[p] * part for p, (low, _) in needs.items() if low // part == firsts[p]), default=0)
    pieces: list[Piece] = []
    for j in range(last + 1):
        pairs = [
            (firsts[place] + j, place)
            for place, (low, high) in needs.items()
            if low // part <= firsts[place] + j <= (high - 1) // part
        ]
        end = part if j < last else max(min(needs[place][1] - block * part, part) for block, place in pairs)
        start = begin if j == 0 else 0
        own = frozenset(place for block, place in pairs if block == place)
        rounds = _rounds([pair for pair in pairs if pair[0] != pair[1]])
        if len(rounds) == 1 and own and not own & {block for block, _ in rounds[0]}:
            rounds = [tuple(sorted([*rounds[0], *((place, place) for place in own)]))]
            own = frozenset[int]()
        pieces.append(Piece(start, end - start, tuple(rounds), own))
    total = sum(piece.size for piece in pieces)
    at = [s - (firsts[place] * part + begin) if place in firsts else 0 for place, s in enumerate(starts)]
    low = max(0, *(-a for a in at))
    high = max(0, *(a + count - total for a in at))
    return Exchange(tuple(pieces), tuple(a + low for a in at), low, high)


def _rounds(pairs: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """Pairs in which nobody sends twice."""
    found: list[list[tuple[int, int]]] = []
    for pair in pairs:
        row = next((row for row in found if pair[0] not in {source for source, _ in row}), None)
        if row is None:
            found.append([pair])
        else:
            row.append(pair)
    return [tuple(row) for row in found]


def seconds(network: Network, way: Exchange, nbytes_of_one: float) -> float:
    """The time of an exchange of elements of so many bytes, as many as lie at one place of the dimension."""
    return way.rounds * network.latency + way.sent * nbytes_of_one / network.bandwidth


def reached(
    emission: Emission, value: XlaOp, size: int, d: int, parts: Parts, found: Reach, way: Exchange,
    fill: XlaOp | None, placement: Placement,
) -> XlaOp:  # fmt: skip
    """The elements that a device's part of a result needs along a dimension. `fill`: a scalar for where nothing is."""
    builder = emission.builder
    pieces = [_piece(emission, value, d, parts, piece, placement) for piece in way.pieces]
    row = pieces[0] if len(pieces) == 1 else movement.concat_in_dim(pieces, d)
    rank, other = row.rank, fill if fill is not None else constants.zero(builder, value.dtype)
    if way.low or way.high:
        row = movement.pad(row, other, [(way.low, way.high, 0) if i == d else (0, 0, 0) for i in range(rank)])
    local = [found.count if i == d else n for i, n in enumerate(row.shape.dimensions)]
    if len(set(way.starts)) == 1:
        first = [way.starts[0] if i == d else 0 for i in range(rank)]
        row = indexing.slice(row, first, [a + n for a, n in zip(first, local, strict=True)], [1] * rank)
    else:
        starts = [builder.constant(np.int32(0))] * rank
        starts[d] = emission.looked_up(parts, way.starts)
        row = builder.emit(DynamicSlice(tuple(local)), [row, *starts])
    begins = [found.step * place + found.first for place in range(emission.grid.count(parts))]
    if fill is None or all(b >= 0 and b + found.count <= size for b in begins):
        return row
    begin = movement.broadcast(emission.looked_up(parts, begins), local)
    numbers = builder.iota(dtypes.s32[tuple(local)], d) + begin
    above = elementwise.ge(numbers, movement.broadcast(builder.constant(np.int32(0)), local))
    below = elementwise.lt(numbers, movement.broadcast(builder.constant(np.int32(size)), local))
    return elementwise.select(elementwise.and_(above, below), row, movement.broadcast(other, local))


def joined(emission: Emission, rows: Sequence[XlaOp], sizes: Sequence[int], d: int, parts: Parts) -> XlaOp:
    """Each operand's elements where the device's part of the concatenation has them."""
    builder, local = emission.builder, rows[0].shape.dimensions
    count = emission.grid.count(parts)
    begin = emission.looked_up(parts, [local[d] * place for place in range(count)])
    numbers = builder.iota(dtypes.s32[local], d) + movement.broadcast(begin, local)
    result, end = rows[-1], sum(sizes[:-1])
    for row, size in zip(reversed(rows[:-1]), reversed(sizes[:-1]), strict=True):
        before = elementwise.lt(numbers, movement.broadcast(builder.constant(np.int32(end)), local))
        result = elementwise.select(before, row, result)
        end -= size
    return result


def _piece(emission: Emission, value: XlaOp, d: int, parts: Parts, piece: Piece, placement: Placement) -> XlaOp:
    """The device's piece: its own, or what another sends."""
    sizes = list(value.shape.dimensions)
    first = [piece.first if i == d else 0 for i in range(len(sizes))]
    limits = [piece.first + piece.size if i == d else n for i, n in enumerate(sizes)]
    here = value
    if piece.size != sizes[d]:
        here = indexing.slice(value, first, limits, [1] * len(sizes))
    found = here if piece.own or not piece.rounds else None
    for row in piece.rounds:
        pairs = sorted((group[a], group[b]) for group in emission.grid.groups(parts) for a, b in row)
        sent = collectives.collective_permute(here, pairs, emission.channel())
        nbytes = sent.shape.size * sent.dtype.bits // 8
        step = Step("collective-permute", parts, placement, placement, d, d, nbytes)
        emission.record(sent.instruction, step)
        if found is None:
            found = sent
            continue
        targets = {b for _, b in row}
        mine = [int(place in targets) for place in range(emission.grid.count(parts))]
        takes = emission.looked_up(parts, mine) == emission.builder.constant(np.int32(1))
        found = elementwise.select(movement.broadcast(takes, sent.shape.dimensions), sent, found)
    assert found is not None
    return found


__all__ = [
    "HALOS",
    "NEUTRAL",
    "ZERO",
    "Exchange",
    "Reach",
    "exchange",
    "joined",
    "on_reach",
    "on_taps",
    "reach",
    "reach_of_taps",
    "reached",
    "seconds",
]
