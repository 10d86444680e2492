"""The division of a convolution: tiles of outputs that fill the registers, chunks, and the layout of operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.elements import memory_of
from hlokit.cpu.kernels.contraction.windows import CutAxis, WindowAxis, WindowSpace, may_keep_weights
from hlokit.cpu.kernels.routine import up
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
        is_even = self.axis.taps % self.taps == 0
        return self.axis.is_inside and is_even and all(first + wanted <= outputs for first in firsts)

    @property
    def tap_blocks(self) -> int:
        """The number of blocks of taps."""
        return -(-self.axis.taps // self.taps)

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
class ProductLoop:
    """A loop over products of a tile: over so many `taps`, or those of the block (`is_cut`), `together` at a time.

    lhs, rhs  bytes from one step to the next, in lhs as it is laid out and in rhs
    """

    taps: int
    together: int
    lhs: int
    rhs: int
    is_cut: bool = False


@dataclass(frozen=True)
class WindowPlan:
    """See the fields' types. axes are in the order of lhs in memory; rows and columns tell which span a tile.

    parts      chunks that share the blocks of taps of the same sums, which are added up at the end
    keeps_rhs  weights are read where they lie
    by_rows    tile by tile all panels are gone through, not panel by panel all tiles
    """

    space: WindowSpace
    axes: tuple[Laid, ...]
    rows: int
    columns: int
    lanes: int
    panels: tuple[Panel, ...]
    panel_blocks: int
    is_direct: bool
    patch: int
    parts: int = 1
    keeps_rhs: bool = False
    by_rows: bool = False

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
        return self.space.group.size * self.panel_blocks * math.prod(a.blocks for a in self.axes) * self.parts

    @property
    def tap_blocks(self) -> int:
        """Blocks of taps, one after the other: each with inputs of its own, for the same sums."""
        return math.prod(a.tap_blocks for a in self.axes)

    @property
    def weights(self) -> int:
        """Elements of packed weights."""
        return 0 if self.keeps_rhs else self.space.group.size * self.features * self.space.steps

    @property
    def cut_axis(self) -> int | None:
        """The number of the axis whose last block has fewer taps."""
        return next((i for i, a in enumerate(self.axes) if a.axis.taps % a.taps), None)

    @property
    def sums(self) -> int:
        """Elements of the sums of a block of outputs and panels, where they are kept between blocks of taps."""
        return self.tile * self.tiles * -(-sum(p.count for p in self.panels) // self.panel_blocks)

    @property
    def moved(self) -> int:
        """Elements that are laid out, packed, or kept as sums of parts, each as often as that is done."""
        inputs = self.chunks // self.parts * self.tap_blocks * math.prod(a.extent for a in self.axes)
        return inputs + 2 * self.weights + (2 * self.chunks * self.sums if self.parts > 1 else 0)

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

    @property
    def prefetched(self) -> int:
        """Lines of the next panel's weights that a tile prefetches with each of its steps."""
        is_in_rows = self.keeps_rhs and self.space.together == 1 and not self.space.shared
        return -(-self.panel_lines // self.tiles) if is_in_rows and self.tiles > 1 else 0

    @property
    def panel_lines(self) -> int:
        """Lines of a full panel's weights for each step."""
        return -(-self.width * self.space.arithmetic.total.bytes // LINE_BYTES)

    def steps(self, width: int) -> list[ProductLoop]:
        """Loops over products, outermost first, for panels of so many features; what is one loop is merged."""
        loops, size, cut = list[ProductLoop](), self.space.arithmetic.total.bytes, self.cut_axis
        for laid, rest in self._tails():
            together, taps = laid.axis.together, laid.taps
            right = laid.axis.rhs * together if self.keeps_rhs else rest * width
            lhs, rhs, is_cut = laid.per_tap * together * size, right * size, cut is not None and laid is self.axes[cut]
            if taps == together and not is_cut:
                continue
            former, is_whole = loops[-1] if loops else None, taps % together == 0 and not is_cut
            count = taps // together
            if former and is_whole and not former.is_cut and (former.lhs, former.rhs) == (count * lhs, count * rhs):
                taps *= loops.pop().taps
            loops.append(ProductLoop(taps, together, lhs, rhs, is_cut))
        return loops

    def rest(self, number: int) -> int:
        """Vectors of products from one tap of the axis with this number to the next."""
        return next((rest for laid, rest in self._tails() if laid is self.axes[number]), 0)

    def _tails(self) -> Iterator[tuple[Laid, int]]:
        """Each axis with taps, and the vectors of products inside of it."""
        axes = self.tap_axes
        for i, laid in enumerate(axes):
            yield laid, math.prod(a.axis.taps // a.axis.together for a in axes[i + 1 :])


def planned(s: WindowSpace, target: Target) -> WindowPlan | None:
    """A plan for sums of real numbers over at least one product; None where it would not be fast."""
    lanes = s.arithmetic.lanes(target)
    registers = 32 if target.vector_bytes == 64 or target.arch == "aarch64" else 16
    panels = [Panel(0, 1, lanes, s.output.size)] if s.together > 1 else _panels(s.output.size, lanes)
    vectors = panels[0].vectors
    kept = 4 if s.together == 1 else vectors + 1  # beside the sums: factors of rhs, and one of lhs at a time
    order = sorted(s.axes, key=lambda a: (-a.lhs, a.inputs == 1))
    rows, columns, cuts = _tile(order, (registers - kept) // vectors)
    laid = [Laid(a, a.taps, 1, cuts.get(i, OutputCut(a.outputs, a.outputs))) for i, a in enumerate(order)]
    is_direct = all(a.is_inside for a in order) and memory_of(s.operand) is s.arithmetic.total and not s.shared
    if is_direct:
        direct = [replace(a, place=a.step * a.axis.lhs) for a in laid]
        clash = max((direct[i].per_output for i in (rows, columns) if laid[i].axis.outputs > 1), default=0)
        is_direct = clash * s.arithmetic.total.bytes % costs.SETS_BYTES != 0 or clash == 0
        laid = direct if is_direct else laid
    plan = WindowPlan(s, tuple(laid), rows, columns, lanes, tuple(panels), 1, is_direct, 0)
    by_outputs, by_taps = _by_outputs(plan, target), _by_taps(plan, target)
    if by_outputs is None or by_taps is None:
        return by_outputs or by_taps
    return by_taps if by_taps.moved < by_outputs.moved else by_outputs


def _by_outputs(plan: WindowPlan, target: Target) -> WindowPlan | None:
    """Each chunk has outputs of its own."""
    s, lanes, panels = plan.space, plan.lanes, plan.panels
    laid, size = list(plan.axes), s.arithmetic.total.bytes
    count, width, is_cut = sum(p.count for p in panels), panels[0].vectors * lanes if s.shared else 1, False
    if not plan.is_direct:
        laid, is_cut = _split(laid, width, lanes, size)
    wanted = _wanted(s)
    if s.shared or is_cut:
        wanted = -(-wanted // count)

    def bytes_of(axes: Sequence[Laid]) -> int:
        """Inputs of a chunk, and its sums where they are kept."""
        sums = math.prod(a.cut.largest * a.block for a in axes) * panels[0].vectors * lanes if is_cut else 0
        return (_laid_out(axes, width, lanes, size)[1] + sums) * size

    laid = _grown(laid, wanted, bytes_of, s)
    blocks = count if s.shared or is_cut else min(count, max(1, wanted // _chunks(s, laid)))
    patch = 0
    if not plan.is_direct:
        laid, patch = _laid_out(laid, width, lanes, size)
        if patch * size > costs.MOST_PATCH_BYTES:
            return None
    keeps_rhs = s.together > 1 and may_keep_weights(s, target)
    plan = replace(plan, axes=tuple(laid), panel_blocks=blocks, patch=patch, keeps_rhs=keeps_rhs)
    return replace(plan, by_rows=_goes_by_rows(plan))


def _goes_by_rows(plan: WindowPlan) -> bool:
    """Whether the result is large, has its features in rows, and each row takes little work."""
    s = plan.space
    size, panels = s.arithmetic.total.bytes, sum(p.count for p in plan.panels)
    is_apart = s.shared or s.together > 1 or plan.keeps_rhs or plan.tap_blocks > 1
    if is_apart or s.feature_dim != len(s.dimensions) - 1 or panels == 1:
        return False
    return s.elements * size >= costs.LARGE_RESULT and s.steps * plan.width * size <= costs.SHORT_PANEL


def _by_taps(plan: WindowPlan, target: Target) -> WindowPlan | None:
    """Chunks have all outputs, each with taps of its own: inputs are read once where sums are few and long.

    A block of taps has one tap of each outer axis, and so many of the next one that the inputs which they meet fit the
    cache.
    """
    s, lanes, size = plan.space, plan.lanes, plan.space.arithmetic.total.bytes
    axes = [replace(a, block=a.cut.parts) for a in plan.axes]
    tiles = math.prod(a.cut.parts for a in axes)
    plan = replace(plan, axes=tuple(axes), keeps_rhs=may_keep_weights(s, target, tiles))
    whole = [replace(plan, panel_blocks=blocks) for blocks in (1, sum(p.count for p in plan.panels))]
    fitting = [one for one in whole if one.sums * size <= costs.PATCH_BYTES]
    if s.shared or not fitting:
        return None
    wanted = -(-_wanted(s) // fitting[0].chunks)
    for number, a in enumerate(axes):
        outer, most = math.prod(b.axis.taps for b in axes[:number]), a.axis.taps
        if a.axis.together > 1:
            most = max(1, most // (costs.LEAST_ALONG * a.axis.together))
        count = min(-(-wanted // outer), most)
        while count <= most:
            laid = [*(replace(b, taps=1) for b in axes[:number]), _in_blocks(a, count), *axes[number + 1 :]]
            laid, patch = _laid_out(laid, 1, lanes, size)
            if patch * size <= costs.PATCH_BYTES // (2 if s.together > 1 else 4):
                if plan.is_direct:
                    laid, patch = [replace(b, place=b.step * b.axis.lhs) for b in laid], 0
                found = replace(fitting[0], axes=tuple(laid), patch=patch)
                return replace(found, parts=min(wanted, found.tap_blocks))
            count += -(-count // 4)
    return None


def _in_blocks(laid: Laid, count: int) -> Laid:
    """The axis in blocks of as equal numbers of taps as can be."""
    return replace(laid, taps=min(laid.axis.taps, up(-(-laid.axis.taps // count), laid.axis.together)))


def _wanted(s: WindowSpace) -> int:
    """Chunks."""
    return min(costs.CHUNKS, max(1, s.elements * s.steps // costs.CONVOLUTION_CHUNK))


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


def _split(axes: Sequence[Laid], width: int, lanes: int, size: int) -> tuple[list[Laid], bool]:
    """Where the inputs of one tile are too many: fewer taps of one axis at a time. And whether it is so."""

    def bytes_of(laid: Sequence[Laid]) -> int:
        return _laid_out(laid, width, lanes, size)[1] * size

    if bytes_of(axes) <= costs.PATCH_BYTES // 2:
        return list(axes), False
    for limit in (costs.PATCH_BYTES // 2, 2 * costs.PATCH_BYTES, costs.MOST_PATCH_BYTES):
        for a in (a for a in axes if a.axis.together == 1):
            for taps in (t for t in range(a.axis.taps - 1, 0, -1) if a.axis.taps % t == 0):
                laid = [replace(b, taps=taps) if b is a else b for b in axes]
                if bytes_of(laid) <= limit:
                    return laid, True
    return list(axes), False


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
