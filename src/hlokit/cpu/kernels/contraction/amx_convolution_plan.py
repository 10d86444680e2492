"""The division of a convolution for AMX: the contents of lines, and the outputs of a chunk.

A *line* is what a row of a register holds, 64 bytes: the factors that one output meets for one tap, all features (in
groups, if they are many); where features are few, those of several taps along one axis (`merged`). Lines lie in a
*grid* of the places along the axes, so that an output's number in it, plus a constant for each tap, gives the line that
it meets. With strides the places are sorted by what they leave over, into grids of their own. Outputs are all numbers
of the grid: those at the end of a row, where the next one begins, are computed and thrown away.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import AmxFactors, amx_factors
from hlokit.cpu.kernels.contraction.windows import CutAxis, WindowAxis, WindowSpace
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.target import Target

LINE = 64
ROWS = 16
"""Lines, or columns of sums, of a register."""

_STEPS = 4096
"""Lines of one sum, at most: their places are a table."""


@dataclass(frozen=True)
class Placed(CutAxis):
    """An axis in the grid.

    block     outputs of a chunk
    extent    places, of each phase
    phases    grids by what a place leaves over
    stride    places (of the input, in steps) from one output to the next, hence the number of phases at most
    shared    places at a row's end that are those at the next one's beginning: all padding
    """

    @cached_property
    def stride(self) -> int:
        return self.axis.stride // self.step if self.axis.outputs > 1 else 1

    def tap(self, k: int) -> tuple[int, int]:
        """(phase, places on) of a tap."""
        on, phase = divmod(k * self.axis.tap // self.step if self.taps > 1 else 0, self.stride)
        return phase, on

    @cached_property
    def phases(self) -> int:
        return 1 + max(self.tap(k)[0] for k in range(self.taps))

    @cached_property
    def reach(self) -> int:
        return self.tap(self.taps - 1)[1]

    @property
    def extent(self) -> int:
        return self.block + self.reach

    @cached_property
    def shared(self) -> int:
        if self.block < self.axis.outputs or self.taps != self.axis.taps:
            return 0
        return min(min(self._zeros(r)) for r in range(self.phases))

    def _zeros(self, phase: int) -> tuple[int, int]:
        """Places at the beginning and at the end that are padding."""
        places = [(q * self.stride + phase) * self.step - self.axis.low for q in range(self.extent)]
        before = sum(p < 0 for p in places)
        return before, min(sum(p >= self.axis.inputs for p in places), self.extent - before)

    @property
    def blocks(self) -> int:
        return -(-self.axis.outputs // self.block)


@dataclass(frozen=True)
class AmxPlan:
    """A convolution's chunks.

    axes          in the order of lhs in memory
    merged        the axis whose taps lie within lines
    turned        the axis along which inputs are read by vectors and turned; None: lines are read as they lie
    panel_blocks  chunks with the same outputs for different output features
    passes        in which a chunk sums its products: of some of the features at a time, or of some taps
    split         the axis whose taps are summed in passes; None: features are
    """

    space: WindowSpace
    factors: AmxFactors
    axes: tuple[Placed, ...]
    merged: int | None
    turned: int | None
    panel_blocks: int = 1
    passes: int = 1
    split: int | None = None

    @cached_property
    def channel(self) -> WindowAxis:
        return self.space.axes[1]

    @property
    def contents(self) -> int:
        """Factors of an output's lines for one tap."""
        merged = 1 if self.merged is None else self.axes[self.merged].axis.taps
        return self.channel.taps * merged

    @property
    def lines(self) -> int:
        return -(-self.contents // self.factors.depth)

    @property
    def lines_at_once(self) -> int:
        """Lines that a chunk has laid out at once."""
        return self.lines // self.passes if self.split is None else self.lines

    @cached_property
    def pitches(self) -> list[int]:
        """Lines from one output to the next along each axis."""
        found, pitch = list[int](), 1
        for a in reversed(self.axes):
            found.append(pitch)
            pitch *= a.extent - a.shared
        return found[::-1]

    @cached_property
    def outputs(self) -> int:
        """Outputs of a chunk's grid, from the first to the last."""
        return 1 + sum((a.block - 1) * p for a, p in zip(self.axes, self.pitches, strict=True))

    @cached_property
    def grid(self) -> int:
        """Lines of a grid, with those that a tile may read beyond, and an odd number of them."""
        reach = sum(a.reach * p for a, p in zip(self.axes, self.pitches, strict=True))
        return (up(self.outputs, ROWS) + reach + ROWS) | 1

    @cached_property
    def grids(self) -> int:
        return math.prod(a.phases for a in self.axes)

    @property
    def part(self) -> int:
        """Lines from one part of the inputs to the next."""
        return self.grids * self.grid

    @property
    def patch(self) -> int:
        """Bytes of a chunk's lines."""
        return self.lines_at_once * self.factors.parts * self.part * LINE

    @property
    def rows(self) -> int:
        """Rows of sums of a pair of panels, with those that a square of results may read beyond."""
        width = 1 if self.turned_result is None else self.pitches[self.turned_result]
        return up(self.outputs, ROWS) + ROWS * width

    @property
    def kept(self) -> int:
        """Pairs of panels whose sums are kept at a time."""
        return 1 if self.passes == 1 else -(-self.pairs // self.panel_blocks)

    @property
    def turned_result(self) -> int | None:
        """The axis along which the result lies in memory; None: features do."""
        last = len(self.space.dimensions) - 1
        return next((i for i, a in enumerate(self.axes) if a.axis.dim == last), None)

    @property
    def panels(self) -> int:
        """Panels of 16 output features in a group."""
        return -(-self.space.output.size // ROWS)

    @property
    def pairs(self) -> int:
        """Pairs of panels, which are multiplied together."""
        return -(-self.panels // 2)

    @cached_property
    def taps(self) -> list[tuple[int, ...]]:
        """All combinations, in the order in which products are summed."""
        return list(itertools.product(*(range(a.taps) for a in self.axes)))

    @property
    def steps(self) -> int:
        return math.prod(a.taps for a in self.axes) * self.lines_at_once * self.passes

    @property
    def panel(self) -> int:
        """Bytes of a packed panel."""
        return self.steps * self.factors.parts * ROWS * LINE

    @property
    def places(self) -> Iterator[int]:
        """The first output's line for each step of a pass."""
        for taps in self.taps:
            number, place = 0, 0
            for a, k, pitch in zip(self.axes, taps, self.pitches, strict=True):
                phase, on = a.tap(k)
                number, place = number * a.phases + phase, place + on * pitch
            for line in range(self.lines_at_once):
                yield line * self.factors.parts * self.part + number * self.grid + place

    @property
    def chunks(self) -> int:
        return self.space.group.size * self.panel_blocks * math.prod(a.blocks for a in self.axes)


def amx_plan(s: WindowSpace, target: Target) -> AmxPlan | None:
    """A plan; None where the machine has no such registers, or it would not be faster."""
    factors = amx_factors(s.operand, s.result, s.steps, target)
    if factors is None or factors.parts == 2 or s.operand.bits < 8 or s.shared:
        return None  # f16 has no sums by vectors, and lines are copied as they lie in memory
    if s.elements * s.steps < costs.AMX_FEW or s.steps > _STEPS * factors.depth:
        return None
    order = sorted((a for a in s.axes if a is not s.axes[1]), key=lambda a: (-a.lhs, a.inputs == 1))
    merged = _merged(s, order, factors)
    channel = s.axes[1]
    is_line = channel.lhs == 1 and (merged is None or (order[merged].lhs == channel.taps and order[merged].tap == 1))
    lines = [i for i, a in enumerate(order) if a.lhs == 1 and a.outputs > 1]
    if not is_line and not lines:
        return None
    plan = AmxPlan(s, factors, (), merged, None if is_line else lines[-1])
    choices = [q for axes in _cuts(order, merged) for q in _variants(replace(plan, axes=axes))]
    if not choices:
        return None
    p = min(choices, key=_cost)
    last = p.turned_result
    if p.turned is not None and p.pitches[p.turned] != 1:
        return None
    is_handed_out = s.feature_dim == len(s.dimensions) - 1 if last is None else p.axes[last].axis.step == 1
    if not is_handed_out:
        return None
    vectors = costs.VECTOR_CYCLES * (costs.LARGE_WINDOWS if _has_large_windows(order) else 1) * s.elements * s.steps
    return p if _cycles(p) < vectors else None


def _has_large_windows(order: Sequence[WindowAxis]) -> bool:
    """Whether outputs share most of what they read."""
    return any(a.taps > 2 * a.outputs for a in order)


def _merged(s: WindowSpace, order: Sequence[WindowAxis], factors: AmxFactors) -> int | None:
    """The axis whose taps share a line: the last in memory, where the features of a tap fill no half of it."""
    taps = [i for i, a in enumerate(order) if a.taps > 1]
    if s.axes[1].taps * 2 > factors.depth or not taps:
        return None
    return taps[-1]


def _cuts(order: Sequence[WindowAxis], merged: int | None) -> Iterator[tuple[Placed, ...]]:
    """Chunks that have all outputs along inner axes, one along outer axes, a part of those along one axis.

    Where outputs share most of what they read, the axis of the most is cut.
    """
    numbers = list(range(len(order)))
    if _has_large_windows(order):
        numbers = [max(numbers, key=lambda i: order[i].outputs)]
    blocks = [1 if i in numbers else a.outputs for i, a in enumerate(order)]
    axes = [Placed(a, 1 if i == merged else a.taps, blocks[i]) for i, a in enumerate(order)]
    for cut in reversed(numbers):
        outputs, last, parts = order[cut].outputs, 0, 1
        while parts <= outputs:
            block = -(-outputs // parts)
            if block != last and (block > 1 or cut == numbers[0]):
                yield (*axes[:cut], replace(axes[cut], block=block), *axes[cut + 1 :])
            last, parts = block, parts + 1 + parts // 4
        axes[cut] = replace(axes[cut], block=outputs)


def _variants(p: AmxPlan) -> Iterator[AmxPlan]:
    """Panels apart, if there are too few chunks else; as few passes as let all that is worked on fit L2."""
    divides_features = p.merged is None and p.contents % p.factors.depth == 0
    ways: list[int | None] = [None, *(i for i, a in enumerate(p.axes) if a.taps > 2 * a.axis.outputs)]
    for way in ways:
        for blocks in sorted({1, min(p.pairs, -(-_wanted(p.space) // p.chunks))}):
            q = replace(p, panel_blocks=blocks)
            for passes in _divisors((p.lines if divides_features else 1) if way is None else p.axes[way].taps):
                q = replace(p, panel_blocks=blocks, passes=passes) if way is None else _split(q, way, passes)
                if _working(q) <= costs.AMX_WORKING_BYTES:
                    break
            if q.patch + _sums(q) <= costs.AMX_PATCH_BYTES:
                yield q


def _split(p: AmxPlan, number: int, passes: int) -> AmxPlan:
    """With an axis's taps in passes."""
    axis = p.axes[number]
    axis = replace(axis, taps=axis.axis.taps // passes)
    return replace(p, axes=(*p.axes[:number], axis, *p.axes[number + 1 :]), passes=passes, split=number)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _sums(p: AmxPlan) -> int:
    """Bytes of sums that are kept."""
    return p.rows * p.kept * 2 * LINE


def _working(p: AmxPlan) -> int:
    """Bytes that a chunk works on."""
    return p.patch + _sums(p) + 2 * p.panel // p.passes


def _wanted(s: WindowSpace) -> int:
    return min(costs.CHUNKS, max(1, s.elements * s.steps // costs.AMX_CONVOLUTION_CHUNK))


def _cost(p: AmxPlan) -> float:
    """Cycles with the cores' idle ones, roughly."""
    return _cycles(p) * max(1.0, _wanted(p.space) / p.chunks) ** 0.5


def _cycles(p: AmxPlan) -> float:
    """Cycles of all cores, roughly."""
    rows = -(-p.outputs // ROWS)
    products = rows * p.panels * (p.steps * p.factors.count * ROWS + 50 * p.passes)
    extents = [up(a.extent, ROWS) if i == p.turned else a.extent for i, a in enumerate(p.axes)]
    lines = p.passes * p.lines_at_once * p.grids * math.prod(extents) * p.panel_blocks
    lines *= (12 if p.turned is None else 20) * p.factors.parts
    weights = p.panels * p.panel / (8 if p.panels * p.panel > 1 << 19 else 32)
    weights += rows * p.panels * p.panel / 32 * max(0.0, _working(p) / costs.AMX_WORKING_BYTES - 1)
    results = rows * p.panels * 4 * ROWS
    chunks = math.prod(a.blocks for a in p.axes) * p.space.group.size
    return chunks * (products + lines + weights + results)
