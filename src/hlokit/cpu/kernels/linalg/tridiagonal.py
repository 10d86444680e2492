"""Householder's reduction of a symmetric matrix to a tridiagonal one (LAPACK's sytrd), A = Q T Q^T, by stripes.

The matrix lies in stripes [row][width], of each what is not above its square on the diagonal. A panel is as many
columns as a stripe has: each is changed by those before it, made a reflector, and multiplied by the rest of the matrix,
which lags behind by a panel; then the rest is changed by the panel, as products: A -= V W^T + W V^T (Dongarra,
Hammarling, Sorensen 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import PanelShape, flat, rank_update
from hlokit.cpu.kernels.linalg.qr import reflector
from hlokit.cpu.kernels.linalg.reflectors import Reflecting
from hlokit.cpu.kernels.linalg.stepped import Part
from hlokit.cpu.kernels.linalg.stripes import Rows, masked, tall_as
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import I32, I64, POINTER, Index, Module, Pointer, Value

_UNROLLED = 4
"""Rows, or columns, that are multiplied together."""


@dataclass(frozen=True)
class Tridiagonal(Reflecting):
    """Stripes of the matrix, columns and stripes of V with T, and vectors.

    lower   which triangle of the operand counts
    """

    lower: bool = True

    @cached_property
    def tall(self) -> PanelShape:
        return tall_as(self.p, max(self.count * self.p.width, self.m.rows + 2 * self.p.rows))

    @property
    def extra(self) -> int:
        return super().extra + self.stripe_bytes

    @cached_property
    def areas(self) -> dict[str, int]:
        """Bytes of what there is besides stripes and V, by name.

        diagonal, off_diagonal, taus   of T and of the reflectors
        panel, w                 columns of the panel, and of W
        sizes                    [stripe]: the largest magnitude in it
        scales                   of the matrix, of T: both have been divided by these powers of two
        failed                   i32: what a routine of LAPACK says; i32: whether elements are not finite
        """
        vectors = dict.fromkeys(("diagonal", "off_diagonal", "taus"), self.column_bytes)
        matrices = dict.fromkeys(("panel", "w"), self.p.width * self.column_bytes)
        return vectors | matrices | {"sizes": up(self.count * self.p.bytes, 64), "scales": 64, "failed": 64}

    @property
    def memory(self) -> int:
        return super().memory + sum(self.areas.values())

    def area(self, f: Part, name: str) -> Pointer:
        """The place of one of `areas`."""
        before = list(self.areas).index(name)
        return f.memory + (super().memory + sum(list(self.areas.values())[:before]))

    def element(self, f: Part, area: str, number: Index) -> Pointer:
        """The place of a number in an area."""
        return self.area(f, area)[number]

    def flags(self, f: Part) -> tuple[Pointer, Pointer]:
        """The places of the area `failed`."""
        failed = self.area(f, "failed").to(I32)
        return failed, failed[1]

    def v_stripe(self, f: Part, number: Index) -> Pointer:
        return self.spare(f, number) + self.column_bytes


# -- the operand


def pack(s: Tridiagonal, module: Module) -> str:
    """The part that makes a stripe from its diagonal on out of a triangle, and notes its largest magnitude."""
    p, n = s.p, s.m.rows
    f = s.part("pack")
    stripe, first = s.stripe(f, f.number), f.number * p.width
    s.read(f, module, stripe)
    count = s.columns_of(first)
    if not s.lower:
        below = first + p.width
        array = f.array(0, s.m.bytes) + first * s.m.row
        turn = copy(module, p, p.width, Strides(p.bytes, s.m.row), True)
        f.call(turn, stripe + below * p.stripe_row, array[below], (n - below).smax(0), count)
    square = stripe + first * p.stripe_row
    with f.loop(0, count) as row, f.loop(0, row.index) as column:
        under, over = (
            (square + i * p.stripe_row)[j] for i, j in ((row.index, column.index), (column.index, row.index))
        )
        source, target = (under, over) if s.lower else (over, under)
        target.store(source.load())
    zero = f.constant(0.0, p.vector)
    with f.loop(first * p.width, n * p.width, p.lanes, carries=[zero, zero]) as loop:
        most, unfinite = loop.carried
        value = stripe[loop.index].load(p.lanes)
        loop.next = [value.abs().maxnum(most), value.fmuladd(zero, unfinite)]  # 0 times what is not finite is a NaN
    most, unfinite = loop.results
    s.element(f, "sizes", f.number).store(most.reduce("fmax") + unfinite.sum())
    with f.when(f.number < s.factored):
        f.memset(s.columns(f, f.number), 0, p.width * s.column_bytes)
    return module.end(f)


def power_of_two(value: Value) -> Value:
    """The largest one that is no greater than a positive number; within bounds where the reciprocal is normal."""
    low, exponent = (2.0**-120, 0x7F800000) if value.bits == 32 else (2.0**-1000, 0x7FF0000000000000)
    return (value.as_bits() & exponent).as_float().maxnum(low).minnum(1 / low)


def begin(s: Tridiagonal, module: Module) -> str:
    """The part that scales a matrix whose squares would overflow or underflow, and clears one that is not finite."""
    p = s.p
    f = s.part("begin", is_cold=True)
    reach = 30 if p.bytes == 4 else 300
    with f.loop(0, s.count, carries=[f.constant(0.0, p.scalar)]) as loop:
        loop.next = [s.element(f, "sizes", loop.index).load().maximum(loop.carried[0])]
    (most,) = loop.results
    spoilt = most.compare("uno", most)
    failed, is_spoilt = s.flags(f)
    failed.store(0)
    is_spoilt.store(spoilt.zext(32))
    extreme = (most < 2.0**-reach) | (most > 2.0**reach)
    scale = extreme.select(power_of_two(most), 1.0)
    s.area(f, "scales").store(scale)
    stripes = s.stripe(f, 0)
    with f.when(extreme):
        factor = (1.0 / scale).splat(p.lanes)
        with f.loop(0, s.count * s.rows * p.width, p.lanes) as loop:
            place = stripes[loop.index]
            place.store(place.load(p.lanes) * factor)
    with f.when(spoilt):
        f.memset(stripes, 0, s.count * s.stripe_bytes)
    return module.end(f)


# -- a panel


def panel(s: Tridiagonal, module: Module) -> str:
    """The part that makes reflectors of the columns of stripe `step`: V, W, taus, diagonals (LAPACK's latrd).

    A is what the panels before have left of the matrix. Column by column, with V and W of the columns before it:

        a = a - V W[row]^T - W V[row]^T                   the column as the reflectors before it have left it
        v, tau, off_diagonal = reflector of a below `row`
        w = A v - V (W^T v) - W (V^T v)
        w = tau w - (tau^2 w^T v / 2) v
    """
    p = s.p
    f = s.part("panel")
    first = f.step * p.width
    panel, w, v = s.area(f, "panel"), s.area(f, "w"), s.columns(f, f.step)
    s.transpose(module, s.stripe(f, f.step), panel, first, True)
    factors = f.local(p.scalar, 2 * p.width, 64)
    subtract = _subtract_products(s, module)
    with f.loop(0, s.columns_of(first)) as step:
        row, here = first + step.index, step.index * s.column_bytes
        column = panel + here
        with f.loop(0, step.index) as before:
            for i, source in enumerate((w, v)):
                value = (source + before.index * s.column_bytes)[row].load()
                (factors + before.index * (2 * p.bytes))[i].store(value)
        f.call(subtract, column, v, w, factors, step.index, row)
        s.element(f, "diagonal", row).store(column[row].load())
        with f.when(row < s.m.rows - 1):
            below, new_v, new_w, tau = row + 1, v + here, w + here, s.element(f, "taus", row)
            f.call(_reflect(s, module), column, new_v, tau, below)
            s.element(f, "off_diagonal", row).store(column[row][1].load())
            f.call(_symmetric_product(s, module), new_w, s.stripe(f, 0), new_v, f.step, below)
            f.call(_dots(s, module), factors, v, w, new_v, step.index, below)
            f.call(subtract, new_w, v, w, factors, step.index, below)
            f.call(_scale_w(s, module), new_w, new_v, tau, below)
    return module.end(f)


def _reflect(s: Tridiagonal, module: Module) -> str:
    """The function (column, spare, tau, row): the reflector of the column's rows from `row` on."""
    name = f"{s.name}_reflector"
    if name in module.functions:
        return name
    f, (column, spare, tau, row) = subroutine(name, s.p.scalar, column=POINTER, spare=POINTER, tau=POINTER, row=I64)
    tau.store(reflector(s, column, spare, row))
    return module.end(f)


def _symmetric_product(s: Tridiagonal, module: Module) -> str:
    """The function (y, stripes, v, number, row): y = A v, from stripe `number` on; v begins at `row` (BLAS's symv).

    A stripe below its square on the diagonal is read once for two products: its columns' with v, and, as the part of A
    above the diagonal, its rows' with v.
    """
    p = s.p
    name = f"{s.name}_multiply"
    if name in module.functions:
        return name
    f, (y, stripes, v, number, row) = subroutine(
        name, p.scalar, y=POINTER, stripes=POINTER, v=POINTER, number=I64, row=I64
    )
    f.memset(y + number * p.stripe_row, 0, (s.count - number) * p.stripe_row)
    together = min(_UNROLLED, p.lanes)
    row_products = f.local(p.scalar, p.lanes * p.lanes, 64)
    start = row & -_UNROLLED

    def add_rows(
        stripe: Pointer, row: Index, sums: Sequence[Value], v_here: Sequence[Value] = (), target: Pointer | None = None
    ) -> list[Value]:
        """The columns' sums with some rows' products added. `target` gets, lane by lane, the rows' products with the
        columns' elements of v, `v_here`."""
        added: list[Value] = []
        elements, line = v[row], stripe + row * p.stripe_row
        for i in range(together):
            factor = elements[i].load().splat(p.lanes)
            values = flat(p.load_row(line + i * p.stripe_row))
            before = sums[i * p.vectors : (i + 1) * p.vectors]
            added += [x.fmuladd(factor, c) for x, c in zip(values, before, strict=True)]
            if target is not None:
                product = f.constant(0.0, p.vector)
                for x, y in zip(values, v_here, strict=True):
                    product = x.fmuladd(y, product)
                target[i * p.lanes].store(product)
        return added

    with f.loop(number, s.count) as loop:
        stripe = stripes + loop.index * s.stripe_bytes
        first, y_here = loop.index * p.width, y + loop.index * p.stripe_row
        v_here = flat(p.load_row(v + loop.index * p.stripe_row))
        zeros = [f.constant(0.0, p.vector)] * (together * p.vectors)
        below = first + p.width
        with f.loop(start.smax(first), below, together, carries=zeros) as square:
            square.next = add_rows(stripe, square.index, square.carried)
        with f.loop(below, s.m.rows, p.lanes, carries=square.results) as block:
            with f.loop(0, p.lanes, together, carries=block.carried) as inner:
                target = row_products[inner.index * p.lanes]
                inner.next = add_rows(stripe, block.index + inner.index, inner.carried, v_here, target)
            block.next = inner.results
            totals = _lane_sums([row_products[i * p.lanes].load(p.lanes) for i in range(p.lanes)])
            y[block.index].store(y[block.index].load(p.lanes) + totals)
        for i in range(p.vectors):
            place = y_here[i * p.lanes]
            place.store(place.load(p.lanes) + _sum_of(block.results[i :: p.vectors]))
    return module.end(f)


def _lane_sums(vectors: Sequence[Value]) -> Value:
    """The sum of each vector's lanes: as many of them as there are lanes."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_sum_of([a.shuffled(range(i, 2 * a.lanes, 2), b) for i in (0, 1)]) for a, b in pairs]
    return vectors[0]


def _sum_of(vectors: Sequence[Value]) -> Value:
    """The sum of vectors, by halves."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    return _sum_of(vectors[:half]) + _sum_of(vectors[half:])


def _subtract_products(s: Tridiagonal, module: Module) -> str:
    """The function (y, v, w, factors, count, row): y -= V a + W b from about `row` on.

    factors: (a, b) of each of the first `count` columns of V and W
    """
    p = s.p
    name = f"{s.name}_subtract"
    if name in module.functions:
        return name
    pointers = dict.fromkeys(("y", "v", "w", "factors"), POINTER)
    f, (y, v, w, factors, count, row) = subroutine(name, p.scalar, **pointers, count=I64, row=I64)
    low, end = row & -p.lanes, up(s.m.rows, p.lanes)
    for vectors in (_UNROLLED, 1):
        high = end - (end - low) % (vectors * p.lanes)
        with f.loop(low, high, vectors * p.lanes) as loop:
            place, *lines = (x[loop.index] for x in (y, v, w))
            sums = [place[i * p.lanes].load(p.lanes) for i in range(vectors)]
            with f.loop(0, count, carries=sums) as step:
                sums = step.carried
                for i, line in enumerate(lines):
                    column = line + step.index * s.column_bytes
                    minus = (-(factors + step.index * (2 * p.bytes))[i].load()).splat(p.lanes)
                    values = [column[j * p.lanes].load(p.lanes) for j in range(vectors)]
                    sums = [x.fmuladd(minus, c) for x, c in zip(values, sums, strict=True)]
                step.next = sums
            for i, value in enumerate(step.results):
                place[i * p.lanes].store(value)
        low = high
    return module.end(f)


def _dots(s: Tridiagonal, module: Module) -> str:
    """The function (factors, v, w, x, count, row): (W^T x, V^T x) of x's rows from `row` on.

    Of the first `count` columns and maybe a few more, which are nothing's.
    """
    p, together = s.p, 4
    name = f"{s.name}_dots"
    if name in module.functions:
        return name
    pointers = dict.fromkeys(("factors", "v", "w", "x"), POINTER)
    f, (factors, v, w, x, count, row) = subroutine(name, p.scalar, **pointers, count=I64, row=I64)
    with f.loop(0, count, together) as step:
        first = [source + step.index * s.column_bytes for source in (w, v)]
        columns = [source + i * s.column_bytes for i in range(together) for source in first]
        zeros = [f.constant(0.0, p.vector)] * len(columns)
        with f.loop(row & -p.lanes, s.m.rows, p.lanes, carries=zeros) as loop:
            value, *values = (column[loop.index].load(p.lanes) for column in (x, *columns))
            loop.next = [value.fmuladd(y, c) for y, c in zip(values, loop.carried, strict=True)]
        target = factors + step.index * (2 * p.bytes)
        for i, total in enumerate(loop.results):
            target[i].store(total.sum())
    return module.end(f)


def _scale_w(s: Tridiagonal, module: Module) -> str:
    """The function (w, v, tau, row): w = tau w - (tau^2 w^T v / 2) v, of the rows from `row` on."""
    p = s.p
    name = f"{s.name}_complete"
    if name in module.functions:
        return name
    f, (w, v, tau, row) = subroutine(name, p.scalar, w=POINTER, v=POINTER, tau=POINTER, row=I64)
    rows = Rows(s, row)

    def vector(array: Pointer, row: Index, mask: Value | None) -> Value:
        return masked(mask, array[row].load(p.lanes))

    def add(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        return [vector(w, row, mask).fmuladd(vector(v, row, mask), carried[0])]

    product = rows.each([f.constant(0.0, p.vector)], add, is_short=True)[0].sum()
    factor = tau.load()
    share = (factor * -0.5 * (factor * product)).splat(p.lanes)
    factor = factor.splat(p.lanes)

    def change(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        scaled = vector(w, row, mask) * factor
        w[row].store(vector(v, row, mask).fmuladd(share, scaled))
        return []

    rows.each([], change, is_short=True)
    return module.end(f)


# -- the rest


def update(s: Tridiagonal, module: Module) -> str:
    """The part that changes stripe `number` of those after stripe `step` by the panel: A -= V W^T + W V^T."""
    p = s.p
    f = s.part("update")
    number = f.step + 1 + f.number
    stripe, left = s.stripe(f, number), number * p.width
    v, w = s.columns(f, f.step), s.area(f, "w")
    rights = [s.stack_square(f) for _ in range(2)]
    with f.loop(0, p.width) as step:
        for target, source in zip(rights, (w, v), strict=True):
            row = (source + step.index * s.column_bytes)[left]
            f.memcpy(target + step.index * p.stripe_row, row, p.stripe_row)
    change = rank_update(module, s.tall)
    with f.loop(left, s.m.rows, p.rows) as row:
        rows = stripe + row.index * p.stripe_row
        for a, b in zip((v, w), rights, strict=True):
            f.call(change, rows, a[row.index], b, p.width)
    return module.end(f)


def reflector_block(s: Tridiagonal, module: Module) -> str:
    """The part that makes T and the stripe of V of stripe `number`."""
    f = s.part("block", is_cold=True)
    v = s.v_stripe(f, f.number)
    s.transpose(module, v, s.columns(f, f.number), f.number * s.p.width, False)
    s.make_factor(f, module, v, s.area(f, "taus"), f.number, True)
    return module.end(f)


def back_transform(s: Tridiagonal, module: Module, f: Part, stripe: Pointer) -> None:
    """Multiplies a stripe by Q."""
    with f.loop(0, s.factored) as step:
        number = s.factored - 1 - step.index
        s.apply(f, module, s.v_stripe(f, number), number, stripe, True)
