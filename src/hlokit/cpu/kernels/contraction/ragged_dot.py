"""ragged-dot as a routine: blocks of the product over ranges that the group sizes say at run time."""

from __future__ import annotations

import math
from typing import cast

from hlokit.cpu.kernels.contraction.axes import Space, added, least, row_major_strides, scaled, space
from hlokit.cpu.kernels.contraction.denormals import may_flush
from hlokit.cpu.kernels.contraction.dot import arithmetic, dimensions, dot_space, is_refused, no_result, number_results
from hlokit.cpu.kernels.contraction.elements import element_bytes, load, pointer
from hlokit.cpu.kernels.contraction.gemm import Product
from hlokit.cpu.kernels.routine import KERNELS, Call, Phase, Routine
from hlokit.cpu.llvm import Module, memory_type
from hlokit.ops.contraction import free_dimensions
from hlokit.ops.ragged_dot import RaggedDot


class _Ragged(Product):
    """A product whose ranges come from group sizes: lhs is packed, tiles are whole, results go through the stack.

    `prefix` of the batch dimensions, the first ones, stand before the groups in `group_sizes`.
    """

    is_ragged = True

    def __init__(self, call: Call, module: Module, index: Space, prefix: int) -> None:
        op = cast(RaggedDot, call.op)
        how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target)
        self.groups = call.operands[2].dimensions[-1]
        self.prefix = prefix
        self.extent = call.operands[0].dimensions[op.lhs_ragged_dims[0]]
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

    def __init__(self, call: Call, module: Module, index: Space, prefix: int, rest: int, group_stride: int) -> None:
        self.rest, self.group_stride = rest, group_stride
        super().__init__(call, module, index, prefix)

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

    def __init__(self, call: Call, module: Module, index: Space, prefix: int, rest: int) -> None:
        self.rest = rest
        super().__init__(call, module, index, prefix)

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


def ragged_dot(call: Call, module: Module) -> Routine | None:
    """The modes of ragged-dot (BEY-43): a ragged batch dimension is like any other."""
    op = cast(RaggedDot, call.op)
    if is_refused(call):
        return None
    if math.prod(call.results[0].dimensions) == 0:
        return no_result(module)
    ragged = op.lhs_ragged_dims[0]
    if ragged in op.lhs_batch_dims:
        how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target)
        return Routine((Product(call, module, dot_space(call), how).write(),), flushes=may_flush(call))
    phase = _by_inner(call, module) if ragged in op.lhs_contracting_dims else _by_rows(call, module)
    return None if phase is None else Routine((phase,), flushes=may_flush(call))


def _by_rows(call: Call, module: Module) -> Phase:
    op = cast(RaggedDot, call.op)
    ragged, (group,) = op.lhs_ragged_dims[0], op.rhs_group_dims
    numbers = free_dimensions(call.operands[0].rank, op.lhs_batch_dims, op.lhs_contracting_dims)
    batch, rows, columns, inner = dimensions(call)
    free_right = free_dimensions(call.operands[1].rank, op.rhs_batch_dims, op.rhs_contracting_dims)
    columns = [d for d, number in zip(columns, free_right, strict=True) if number != group]
    number_results([*batch, *rows, *columns])
    by_number = dict(zip(numbers, rows, strict=True))
    prefix = 0
    if call.operands[2].rank > 1:
        before = [d for d in numbers if d < ragged]
        batch += [by_number.pop(d) for d in before]
        prefix = len(batch)
    first = by_number.pop(ragged)
    rest = math.prod(d.size for d in by_number.values())
    index = space(batch, [first, *by_number.values()], columns, inner, may_swap=False)
    stride = row_major_strides(call.operands[1].dimensions)[group]
    return _ByRows(call, module, index, prefix, rest, stride).write()


def _by_inner(call: Call, module: Module) -> Phase | None:
    op = cast(RaggedDot, call.op)
    batch, rows, columns, inner = dimensions(call)
    number_results([*batch, *rows, *columns])
    position = op.lhs_contracting_dims.index(op.lhs_ragged_dims[0])
    prefix = 0
    if call.operands[2].rank > 1:
        if position > 0:  # group sizes that depend on what is summed over
            return None
        prefix = len(batch)
    ragged = inner.pop(position)
    rest = math.prod(d.size for d in inner)
    index = space(batch, rows, columns, [ragged, *inner], may_swap=False)
    return _ByInner(call, module, index, prefix, rest).write()


KERNELS["ragged-dot"] = ragged_dot
