"""Convolution in matrix registers (Intel's AMX): bf16 and 8-bit integers, and f32 as sums of three bf16 (split.py).

First all weights are packed, then each chunk lays out the lines that it reads, split into parts, multiplies them panel
by panel, and hands out the sums. A chunk whose numbers do not fit the registers' range is done by vectors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from hlokit.cpu.kernels.contraction.depthwise import each
from hlokit.cpu.kernels.contraction.elements import pointer
from hlokit.cpu.kernels.contraction.matrix_convolution_lines import Patch, Weights, head
from hlokit.cpu.kernels.contraction.matrix_convolution_plan import LINE, ROWS, MatrixPlan, matrix_plan
from hlokit.cpu.kernels.contraction.matrix_convolution_results import Results
from hlokit.cpu.kernels.contraction.matrix_convolution_tile import SUMS_BYTES, tile, whole
from hlokit.cpu.kernels.contraction.matrix_registers import configure, release
from hlokit.cpu.kernels.contraction.scalar_convolution import affine, decoded, is_number
from hlokit.cpu.kernels.contraction.split import RANGE_BYTES, fits, has_raw
from hlokit.cpu.kernels.contraction.windows import WindowSpace, finished, kernel_function
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.llvm import Module, memory_type


def in_matrix_registers(call: Call, module: Module, s: WindowSpace) -> Routine | None:
    """Sums without holes, over at least one product. None: the machine has no such registers, or vectors are faster."""
    plan = matrix_plan(s, call.target)
    if plan is None:
        return None
    phases = (Weights(module, plan).written(), _Chunks(call, module, plan).written())
    return Routine(phases, head(plan) + s.group.size * plan.panels * plan.panel)


class _Chunks:
    """The products, and what becomes of the sums."""

    def __init__(self, call: Call, module: Module, plan: MatrixPlan) -> None:
        self.call, self.module, self.plan, self.s = call, module, plan, plan.sliding
        self.scalar = memory_type(self.s.operand)
        self.parts = plan.factors.parts

    def written(self) -> Phase:
        p, s = self.plan, self.s
        f, (lhs, _, _, scratch) = kernel_function(4)
        self.f = f
        self.places = _table(self.module, [LINE * place for place in p.places])
        self.patch, self.scratch = f.alloca("i8", p.patch), scratch
        self.sums, self.bounds_at = f.alloca("i8", p.kept * p.rows * SUMS_BYTES), f.alloca("i8", RANGE_BYTES)
        self.lay_out = Patch(self.module, p).written()
        self.hand_out = Results(self.call, self.module, p).written()
        configure(f, self.module)
        with f.loop("%begin", "%end") as chunk:
            sizes = [s.group.size, *(a.blocks for a in p.axes), p.panel_blocks]
            group, *blocks, panels = decoded(f, chunk.index, sizes)
            firsts = [affine(f, 0, [(b, a.block)]) for a, b in zip(p.axes, blocks, strict=True)]
            counts = [self._count(a.axis.outputs, a.block, first) for a, first in zip(p.axes, firsts, strict=True)]
            self.group, self.firsts, self.counts = group, firsts, counts
            self.outputs = affine(f, 1 - sum(p.pitches), list(zip(counts, p.pitches, strict=True)))
            self.group_panel = affine(f, 0, [(group, p.panels)])
            self.low, self.high = self._panels(panels)
            base = f.let(f"getelementptr {self.scalar}, ptr {lhs}, i64 {affine(f, 0, [(group, s.group.lhs)])}")
            starts = [affine(f, -a.axis.low, [(b, a.axis.stride)]) for a, b in zip(p.axes, firsts, strict=True)]
            with each(f, p.goes) as go:
                if p.split is None:
                    features = affine(f, 0, [(go, p.lines_at_once * p.factors.deep * p.channel.lhs)])
                    self._go(f.let(f"getelementptr {self.scalar}, ptr {base}, i64 {features}"), starts, go)
                else:
                    a, moved = p.axes[p.split], list(starts)
                    moved[p.split] = affine(f, 0, [(starts[p.split], 1), (go, a.taps * a.axis.tap)])
                    self._go(base, moved, go)
            if p.goes > 1:
                self._pairs(lambda rhs, panel, columns: self._results(panel, columns))
        release(f)
        f.is_cold = True
        return Phase(finished(f, self.module, "convolution"), p.chunks)

    def _go(self, lhs: str, starts: Sequence[str], go: str) -> None:
        """Lays out lines and adds their products."""
        f = self.f

        def lines(is_raw: str) -> None:
            shown = ", ".join(f"i64 {v}" for v in starts)
            f.do(f"call void @{self.lay_out}(ptr {lhs}, ptr {self.patch}, {shown}, i1 {is_raw}, ptr {self.bounds_at})")

        def multiplied(multiply: Callable[[str, str, int, str], None]) -> None:
            def one(rhs: str, panel: str, columns: int) -> None:
                multiply(rhs, panel, columns, go)
                if self.plan.goes == 1:
                    self._results(panel, columns)

            self._pairs(one)

        lines("false")
        if self.parts == 1:
            multiplied(self._tiles)
            return
        good, bad, done = (f.new_block(n) for n in ("good", "bad", "done"))
        f.branch(self._fits(), good, bad)
        f.start(good)
        multiplied(self._tiles)
        f.jump(done)
        f.start(bad)
        lines("true")
        multiplied(self._whole)
        f.jump(done)
        f.start(done)

    def _count(self, outputs: int, block: int, first: str) -> str:
        """The chunk's outputs along an axis."""
        return str(block) if outputs % block == 0 else least(self.f, affine(self.f, outputs, [(first, -1)]), str(block))

    def _panels(self, block: str) -> tuple[str, str]:
        """The chunk's panels, by pairs."""
        p, f = self.plan, self.f
        if p.panel_blocks == 1:
            return "0", str(p.panels)
        pairs = p.pairs
        low, high = (
            affine(f, 0, [(f.let(f"udiv i64 {affine(f, n, [(block, pairs)])}, {p.panel_blocks}"), 2)])
            for n in (0, pairs)
        )
        return low, least(f, high, str(p.panels))

    def _range(self, panel: str) -> str:
        return pointer(self.f, self.scratch, affine(self.f, 0, [(self.group_panel, 1), (panel, 1)]), RANGE_BYTES)

    def _fits(self) -> str:
        """Whether the lines fit the weights of all of the chunk's panels."""
        f = self.f
        with f.loop(self.low, self.high, carries=[("i1", "true")]) as loop:
            here = fits(f, self.bounds_at, self._range(loop.index), self.s.steps)
            loop.next = [f.let(f"and i1 {loop.carried[0]}, {here}")]
        return loop.results[0]

    def _pairs(self, body: Callable[[str, str, int], None]) -> None:
        """body(packed panel, its number, columns) for the chunk's panels, two at once."""
        p, f = self.plan, self.f
        packed = pointer(f, self.scratch, str(head(p)), 1)

        def over(panel: str, columns: int) -> None:
            body(pointer(f, packed, affine(f, 0, [(self.group_panel, 1), (panel, 1)]), p.panel), panel, columns)

        if p.panels > 1:
            full = self.high if p.panels % 2 == 0 else least(f, self.high, str(p.panels - 1))
            with f.loop(self.low, full, 2) as loop:
                over(loop.index, 2)
        if p.panels % 2:
            with f.when("true" if p.panel_blocks == 1 else f.let(f"icmp eq i64 {self.high}, {p.panels}")):
                over(str(p.panels - 1), 1)

    def _sums(self, panel: str) -> str:
        """Where the pair of panels that begins with this one has its sums."""
        p, f = self.plan, self.f
        if p.kept == 1:
            return self.sums
        pair = f.let(f"lshr i64 {affine(f, 0, [(panel, 1), (self.low, -1)])}, 1")
        return pointer(f, self.sums, pair, p.rows * SUMS_BYTES)

    def _results(self, panel: str, columns: int) -> None:
        f, size = self.f, self.s.output.size
        feature, valid = affine(f, 0, [(self.group, size), (panel, ROWS)]), affine(f, size, [(panel, -ROWS)])
        valid = str(min(int(valid), columns * ROWS)) if is_number(valid) else least(f, valid, str(columns * ROWS))
        shown = ", ".join(f"i64 {v}" for v in (feature, valid, *self.firsts, *self.counts))
        f.do(f"call void @{self.hand_out}(ptr %table, ptr {self._sums(panel)}, {shown})")

    def _step(self, rhs: str, go: str) -> tuple[str, str, str]:
        """(rhs of the go, arguments that tell its steps, whether it is the first)."""
        p, f = self.plan, self.f
        first = "true" if p.goes == 1 else f.let(f"icmp eq i64 {go}, 0")
        steps = p.steps // p.goes
        return pointer(f, rhs, go, p.panel // p.goes), f"i64 {steps}, i64 {p.part * LINE}", first

    def _tiles(self, rhs: str, panel: str, columns: int, go: str) -> None:
        p, f = self.plan, self.f
        rhs, sizes, first = self._step(rhs, go)
        sums = self._sums(panel)
        more = affine(f, ROWS - 1, [(self.outputs, 1)])
        done = str(int(more) & -2 * ROWS) if is_number(more) else f.let(f"and i64 {more}, {-2 * ROWS}")

        def one(row: str, rows: int) -> None:
            lhs, out = pointer(f, self.patch, row, LINE), pointer(f, sums, row, SUMS_BYTES)
            name = tile(self.module, p.factors, rows)
            for j in range(columns):
                pointers = f"ptr {lhs}, ptr {pointer(f, rhs, str(j), p.panel)}, ptr {pointer(f, out, str(j), LINE)}"
                f.do(f"call void @{name}({pointers}, ptr {self.places}, {sizes}, i1 {first})")

        with f.loop("0", done, 2 * ROWS) as loop:
            one(loop.index, 2)
        if is_number(more) and int(done) >= int(self.outputs):
            return
        with f.when(f.let(f"icmp slt i64 {done}, {self.outputs}")):
            one(done, 1)

    def _whole(self, rhs: str, panel: str, columns: int, go: str) -> None:
        p, f = self.plan, self.f
        rhs, sizes, first = self._step(rhs, go)
        sums = self._sums(panel)
        for j in range(columns):
            is_raw = has_raw(f, self._range(affine(f, j, [(panel, 1)])))
            pointers = f"ptr {self.patch}, ptr {pointer(f, rhs, str(j), p.panel)}, ptr {pointer(f, sums, str(j), LINE)}"
            how = f"{sizes}, i64 {self.outputs}, i1 {is_raw}, i1 {first}"
            f.do(f"call void @{whole(self.module)}({pointers}, ptr {self.places}, {how})")


def _table(module: Module, values: Sequence[int]) -> str:
    """A table of i64 that is named by what it holds."""
    name = "places_" + sha256(repr(values).encode()).hexdigest()[:16]
    return module.table(name, "i64", values)
