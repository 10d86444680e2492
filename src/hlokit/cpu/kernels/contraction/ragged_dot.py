"""Ragged products: blocks over ranges that the sizes of groups say at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.denormals import may_flush
from hlokit.cpu.kernels.contraction.dot import arithmetic
from hlokit.cpu.kernels.contraction.elements import element_bytes, load, pointer
from hlokit.cpu.kernels.contraction.gemm import Product
from hlokit.cpu.kernels.contraction.space import (
    Space,
    Strided,
    added,
    least,
    row_major_strides,
    scaled,
    space,
    stride_of,
    strided,
)
from hlokit.cpu.kernels.routine import Call, Routine
from hlokit.cpu.llvm import Module, memory_type
from hlokit.forms.contraction import Contraction, ContractionGroups, Role


class _Ragged(Product):
    """A product whose ranges come from group sizes: lhs is packed, tiles are whole, results go through the stack.

    `prefix` of the batch dimensions, the first ones, index the groups' sizes; `extent` indices come in groups.
    """

    is_ragged = True

    def __init__(self, call: Call, module: Module, index: Space, extent: int, prefix: int) -> None:
        how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target)
        self.groups = call.operands[2].dimensions[-1]
        self.prefix = prefix
        self.extent = extent
        super().__init__(call, module, index, how)
        self.sizes = self.pointer(2)

    def sizes_of(self, batch: str) -> str:
        """The address of the group sizes for an index of the batch."""
        if not self.prefix:
            return self.sizes
        after = math.prod(self.space.batch.sizes[self.prefix :])
        row = batch if after == 1 else self.fn.let(f"udiv i64 {batch}, {after}")
        return pointer(self.fn, self.sizes, row, self.groups * element_bytes(self.call.operands[2].dtype))

    def end_of(self, sizes: str, group: str, begin: str) -> tuple[str, str]:
        """Where the group ends: as the sizes add up, and as that lies in the array."""
        fn, dtype = self.fn, self.call.operands[2].dtype
        size = load(fn, memory_type(dtype), 1, pointer(fn, sizes, group, element_bytes(dtype)))
        if dtype.bits < 8:
            size = fn.let(f"shl i8 {size}, {8 - dtype.bits}")
            size = fn.let(f"{'ashr' if dtype.is_signed else 'lshr'} i8 {size}, {8 - dtype.bits}")
        if dtype.bits < 64:
            size = fn.let(f"{'sext' if dtype.is_signed else 'zext'} {memory_type(dtype)} {size} to i64")
        total = fn.let(f"add i64 {begin}, {size}")
        return total, self.inside(total)

    def inside(self, total: str) -> str:
        positive = self.fn.let(f"call i64 @llvm.smax.i64(i64 {total}, i64 0)")
        return least(self.fn, positive, str(self.extent))


class _ByRows(_Ragged):
    """The rows come in groups, each with its own matrix of rhs; rows past the last group are 0."""

    def __init__(
        self, call: Call, module: Module, index: Space, extent: int, prefix: int, rest: int, group_stride: int
    ) -> None:
        self.rest, self.group_stride = rest, group_stride
        super().__init__(call, module, index, extent, prefix)

    def batch(self, index: str, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        fn = self.fn
        places = {role: self.space.batch.offset(fn, role, index) for role in ("lhs", "rhs", "out")}
        sizes = self.sizes_of(index)
        with fn.loop("0", str(self.groups), 1, [("i64", "0")] * 3) as group:
            total, end = self.end_of(sizes, group.index, group.carried[0])
            here = {**places, "rhs": added(fn, places["rhs"], scaled(fn, group.index, self.group_stride))}
            self._between(here, group.carried[1], end, rows, columns, str(self.space.inner.size))
            reached = fn.let(f"call i64 @llvm.smax.i64(i64 {group.carried[2]}, i64 {end})")
            group.next = [total, end, reached]
        self._between(places, group.results[2], str(self.extent), rows, columns, "0")

    def _between(
        self, places: dict[str, str], begin: str, end: str, rows: tuple[str, str], columns: tuple[str, str], inner: str
    ) -> None:
        """The block of rows whose ragged index is in the range; each has `rest` rows."""
        fn = self.fn
        low = fn.let(f"call i64 @llvm.smax.i64(i64 {rows[0]}, i64 {scaled(fn, begin, self.rest)})")
        high = least(fn, rows[1], scaled(fn, end, self.rest))
        with fn.when(fn.let(f"icmp slt i64 {low}, {high}")):
            self.block(places, (low, high), columns, ("0", inner))


class _ByInner(_Ragged):
    """The inner axis comes in groups, each with its own result."""

    def __init__(self, call: Call, module: Module, index: Space, extent: int, prefix: int, rest: int) -> None:
        self.rest = rest
        super().__init__(call, module, index, extent, prefix)

    def batch(self, index: str, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        fn = self.fn
        places = {role: self.space.batch.offset(fn, role, index) for role in ("lhs", "rhs", "out")}
        sizes = self.sizes_of(index)
        each = math.prod(self.result.dimensions[1:])
        with fn.loop("0", str(self.groups), 1, [("i64", "0"), ("i64", "0")]) as group:
            total, end = self.end_of(sizes, group.index, group.carried[0])
            here = {**places, "out": added(fn, places["out"], scaled(fn, group.index, each))}
            last = fn.let(f"call i64 @llvm.smax.i64(i64 {group.carried[1]}, i64 {end})")
            bounds = scaled(fn, group.carried[1], self.rest), scaled(fn, last, self.rest)
            self.block(here, rows, columns, bounds)
            group.next = [total, end]


def ragged_dot(call: Call, module: Module, form: Contraction, groups: ContractionGroups) -> Routine | None:
    """A contraction with groups (BEY-43). None where sizes of groups depend on what is summed over."""
    sizes = strided(form, call.operands, call.results[0])
    numbered = [(d.role, number, one) for number, (d, one) in enumerate(zip(form.dimensions, sizes, strict=True))]
    before, ragged = groups.before, sizes[groups.dimension]

    def of(role: Role, *, outside: Sequence[int] = ()) -> list[Strided]:
        return [one for own, number, one in numbered if own == role and number not in (groups.dimension, *outside)]

    if any(form.dimensions[number].role == "summed" for number in before):
        return None
    batch = [*of("batch"), *(sizes[number] for number in before if form.dimensions[number].role == "left")]
    prefix, extent = (len(batch) if before else 0), ragged.size
    left, right, summed = of("left", outside=before), of("right"), of("summed")
    if groups.rhs is not None:
        rest = math.prod(one.size for one in left)
        index = space(batch, [ragged, *left], right, summed, may_swap=False)
        stride = stride_of(groups.rhs, row_major_strides(call.operands[1].dimensions))
        product: _Ragged = _ByRows(call, module, index, extent, prefix, rest, stride)
    else:
        rest = math.prod(one.size for one in summed)
        index = space(batch, left, right, [ragged, *summed], may_swap=False)
        product = _ByInner(call, module, index, extent, prefix, rest)
    return Routine((product.write(),), flushes=may_flush(call))
