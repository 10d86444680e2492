"""The division of a convolution: tiles of outputs that fill the registers, chunks, and the layout of operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.elements import memory_of
from hlokit.cpu.kernels.contraction.windows import CutAxis, WindowAxis, WindowSpace
from hlokit.cpu.target import Target


@dataclass(frozen=True)
class OutputCut:
    """`count` outputs in `parts` of as equal size as can be: the first `extra` ones are one larger than `least`."""

    count: int
    parts: int

    @property
    def least(self) -> int:
        return self.count // self.parts

    @property
    def extra(self) -> int:
        return self.count % self.parts

    @property
    def largest(self) -> int:
        return -(-self.count // self.parts)

    @property
    def sizes(self) -> list[tuple[int, int, int]]:
        """(size, first part, past the last part)."""
        return [
            (n, a, b) for n, a, b in ((self.least + 1, 0, self.extra), (self.least, self.extra, self.parts)) if b > a
        ]


@dataclass(frozen=True)
class Laid(CutAxis):
    """An axis with how its outputs are cut, and how its inputs lie for a chunk.

    block   parts of `cut` that a chunk takes, of which there are `blocks`
    place   elements between inputs `step` places apart; every `step`-th place is there
    extent  number of these
    """

    cut: OutputCut
    place: int = 0

    @property
    def blocks(self) -> int:
        return -(-self.cut.parts // self.block)

    @property
    def extent(self) -> int:
        a = self.axis
        outputs = min(a.outputs, self.block * self.cut.largest)
        return ((outputs - 1) * a.stride + (self.taps - 1) * a.tap) // self.step + 1

    @property
    def is_inside(self) -> bool:
        """Whether no chunk reaches beyond the inputs, those of the last outputs included, which may be fewer."""
        outputs, cut = self.axis.outputs, self.cut
        wanted = min(outputs, self.block * cut.largest)
        firsts = (part * cut.least + min(part, cut.extra) for part in range(0, cut.parts, self.block))
        return self.axis.is_inside and all(first + wanted <= outputs for first in firsts)

    @property
    def per_output(self) -> int:
        """Elements between the inputs of neighbouring outputs for the same tap."""
        return self.axis.stride // self.step * self.place if self.axis.outputs > 1 else 0

    @property
    def per_tap(self) -> int:
        return self.axis.tap // self.step * self.place if self.taps > 1 else 0


@dataclass(frozen=True)
class Panel:
    """Panels alike of output features: from first + i * width on, i < count; the last vector has `valid` of them.

    Where vectors lie along inputs there is one panel, with a vector for each output feature."""

    first: int
    count: int
    valid: int
    vectors: int


@dataclass(frozen=True)
class WindowPlan:
    """See the fields' types. axes are in the order of lhs in memory; rows and columns tell which span a tile,
    split along which one sums are taken in several goes."""

    space: WindowSpace
    axes: tuple[Laid, ...]
    rows: int
    columns: int
    lanes: int
    panels: tuple[Panel, ...]
    panel_blocks: int
    is_direct: bool
    patch: int
    split: int | None

    @property
    def tile(self) -> int:
        """Elements of the sums of the largest tile."""
        outputs = self.axes[self.rows].cut.largest * self.axes[self.columns].cut.largest
        return outputs * self.width

    @property
    def tiles(self) -> int:
        """Tiles of a chunk and panel, at most."""
        return math.prod(min(a.block, a.cut.parts) for a in self.axes)

    @property
    def width(self) -> int:
        """Output features of a full panel."""
        return self.panels[0].vectors * self.lanes

    @property
    def features(self) -> int:
        """Output features of a group, with those that fill the last vector."""
        return sum(p.count * p.vectors * self.lanes for p in self.panels) // self.space.together

    @property
    def chunks(self) -> int:
        return self.space.group.size * self.panel_blocks * math.prod(a.blocks for a in self.axes)

    @property
    def order(self) -> list[int]:
        """The axes' numbers, those that a tile spans last; first, where lines read once are all that is read again."""
        spanned = (self.rows, self.columns)
        others = [i for i in range(len(self.axes)) if i not in spanned]
        return [*spanned, *others] if self.space.shared else [*others, *spanned]

    @property
    def tap_axes(self) -> list[Laid]:
        """Those with several taps, so that lhs is walked forwards: the order in which products are summed."""
        return sorted((a for a in self.axes if a.axis.taps > 1), key=lambda a: -a.place * a.axis.tap // a.step)

    def steps(self, width: int) -> list[tuple[int, int, int]]:
        """Loops over products, outermost first, for panels of so many features; what is one loop is merged.

        Each: how many, and bytes from one to the next in lhs as it is laid out and in rhs.
        """
        loops, size = list[tuple[int, int, int]](), self.space.arithmetic.total.bytes
        for laid, rest in self._tails():
            together = laid.axis.together
            count, lhs, rhs = laid.taps // together, laid.per_tap * together * size, rest * width * size
            if count == 1:
                continue
            if loops and loops[-1][1:] == (count * lhs, count * rhs):
                count *= loops.pop()[0]
            loops.append((count, lhs, rhs))
        return loops

    def rest(self, number: int) -> int:
        """Vectors of products from one tap of the axis with this number to the next."""
        return next((rest for laid, rest in self._tails() if laid is self.axes[number]), 0)

    @property
    def is_by_panel(self) -> bool:
        """Inputs are laid out anew for each panel."""
        return self.split is not None or self.space.shared > 0

    def _tails(self) -> Iterator[tuple[Laid, int]]:
        """Each axis with taps, and the vectors of products inside of it."""
        axes = self.tap_axes
        for i, laid in enumerate(axes):
            yield laid, math.prod(a.axis.taps // a.axis.together for a in axes[i + 1 :])


def planned(s: WindowSpace, target: Target) -> WindowPlan | None:
    """A plan for sums of real numbers over at least one product; None where it would not be fast."""
    lanes, size = s.arithmetic.lanes(target), s.arithmetic.total.bytes
    registers = 32 if target.vector_bytes == 64 or target.arch == "aarch64" else 16
    panels = [Panel(0, 1, lanes, s.output.size)] if s.together > 1 else _panels(s.output.size, lanes)
    vectors = panels[0].vectors
    kept = 4 if s.together == 1 else vectors + 1  # beside the sums: factors of rhs, and one of lhs at a time
    most = (registers - kept) // vectors
    order = sorted(s.axes, key=lambda a: (-a.lhs, a.inputs == 1))
    rows, columns, cuts = _tile(order, most)
    laid = [Laid(a, a.taps, 1, cuts.get(i, OutputCut(a.outputs, a.outputs))) for i, a in enumerate(order)]
    is_direct = all(a.is_inside for a in order) and memory_of(s.operand) is s.arithmetic.total and not s.shared
    if is_direct:
        laid = [replace(a, place=a.step * a.axis.lhs) for a in laid]
        clash = max((laid[i].per_output for i in (rows, columns) if laid[i].axis.outputs > 1), default=0)
        is_direct = clash * size % costs.SETS_BYTES != 0 or clash == 0
    count, width = sum(p.count for p in panels), panels[0].vectors * lanes if s.shared else 1
    split = None
    if not is_direct:
        laid, split = _split(laid, width, lanes, size)
    wanted = min(costs.CHUNKS, max(1, s.elements * s.steps // costs.CONVOLUTION_CHUNK))
    if s.shared or split is not None:
        wanted = -(-wanted // count)

    def bytes_of(axes: Sequence[Laid]) -> int:
        """Inputs of a chunk, and its sums where they are kept."""
        sums = 0 if split is None else math.prod(a.cut.largest * a.block for a in axes) * panels[0].vectors * lanes
        return (_laid_out(axes, width, lanes, size)[1] + sums) * size

    laid = _grown(laid, wanted, bytes_of, s)
    blocks = count if s.shared or split is not None else min(count, max(1, wanted // _chunks(s, laid)))
    patch = 0
    if not is_direct:
        laid, patch = _laid_out(laid, width, lanes, size)
        if patch * size > costs.MOST_PATCH_BYTES:
            return None
    return WindowPlan(s, tuple(laid), rows, columns, lanes, tuple(panels), blocks, is_direct, patch, split)


def _panels(features: int, lanes: int) -> list[Panel]:
    """Two vectors side by side, or one where there is no more; the last may be filled in part."""
    width = 2 * lanes if features > lanes else lanes
    full, rest = divmod(features, width)
    panels = [Panel(0, full, lanes, width // lanes)] if full else []
    if rest:
        panels.append(Panel(full * width, 1, (rest - 1) % lanes + 1, -(-rest // lanes)))
    return panels


def _tile(axes: Sequence[WindowAxis], most: int) -> tuple[int, int, dict[int, OutputCut]]:
    """The two axes that a tile spans, with their cuts: the most outputs a tile, and along axes late in memory."""
    best = (0.0, 0, 0, dict[int, OutputCut]())
    for column in reversed(range(len(axes))):
        count = axes[column].outputs
        cut = OutputCut(count, -(-count // most))
        for row in [i for i in reversed(range(len(axes))) if i != column]:
            cuts = {column: cut, row: OutputCut(axes[row].outputs, axes[row].outputs)}
            mean = count / cut.parts
            high = most // cut.largest
            if cut.parts == 1 and high > 1:
                cuts[row] = OutputCut(axes[row].outputs, -(-axes[row].outputs // high))
                mean *= axes[row].outputs / cuts[row].parts
            score = min(mean, most * 0.8) - 0.01 * len([c for c in cuts.values() if c.extra])
            if score > best[0] + 0.3:
                best = (score, row, column, cuts)
    return best[1:]


def _split(axes: Sequence[Laid], width: int, lanes: int, size: int) -> tuple[list[Laid], int | None]:
    """Where the inputs of one tile are too many: fewer taps of one axis at a time."""

    def bytes_of(laid: Sequence[Laid]) -> int:
        return _laid_out(laid, width, lanes, size)[1] * size

    if bytes_of(axes) <= costs.PATCH_BYTES // 2:
        return list(axes), None
    for limit in (costs.PATCH_BYTES // 2, 2 * costs.PATCH_BYTES, costs.MOST_PATCH_BYTES):
        for number, a in [(i, a) for i, a in enumerate(axes) if a.axis.together == 1]:
            for taps in (t for t in range(a.axis.taps - 1, 0, -1) if a.axis.taps % t == 0):
                laid = [replace(b, taps=taps) if b is a else b for b in axes]
                if bytes_of(laid) <= limit:
                    return laid, number
    return list(axes), None


def _chunks(s: WindowSpace, axes: Sequence[Laid]) -> int:
    return s.group.size * math.prod(a.blocks for a in axes)


def _grown(axes: Sequence[Laid], wanted: int, size: Callable[[Sequence[Laid]], int], s: WindowSpace) -> list[Laid]:
    """Chunks grow while they are many and their inputs fit the cache, first where that adds the fewest inputs."""
    laid = list(axes)
    while True:
        best: tuple[float, list[Laid]] | None = None
        for i in reversed(range(len(laid))):
            block = min(laid[i].cut.parts, 2 * laid[i].block)
            grown = [*laid[:i], replace(laid[i], block=block), *laid[i + 1 :]]
            if block == laid[i].block or _chunks(s, grown) < wanted or size(grown) > costs.PATCH_BYTES:
                continue
            cost = size(grown) / size(laid) * laid[i].block / block
            if best is None or cost < best[0] - 1e-9:
                best = (cost, grown)
        if best is None:
            return laid
        laid = best[1]


def _laid_out(axes: Sequence[Laid], width: int, lanes: int, size: int) -> tuple[list[Laid], int]:
    """The chunk's inputs in the order of lhs: the axes with the distances, and the number of elements with slack."""
    laid, place = list(axes), width
    for i in reversed(range(len(laid))):
        laid[i] = replace(laid[i], place=place)
        place *= laid[i].extent
        if place > width and place * size % costs.SETS_BYTES == 0:
            place += lanes
    # a line of lhs is copied by vectors, the last of which goes beyond its end: by places of the line's axis where they
    # are turned (depthwise.py)
    turned = [a.place for a in laid if a.axis.lhs == 1 and a.step == 1 and a.extent > 1] if width > 1 else []
    return laid, place + lanes * max([width, *turned])
