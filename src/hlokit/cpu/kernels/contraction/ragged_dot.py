"""Ragged products: blocks over ranges that the sizes of groups give at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.arithmetic import arithmetic
from hlokit.cpu.kernels.contraction.elements import element_bytes, read
from hlokit.cpu.kernels.contraction.gemm import Bounds, Places, Product, ProductPlan
from hlokit.cpu.kernels.contraction.gemm_plan import blocking, sides_of
from hlokit.cpu.kernels.contraction.space import Strided, row_major_strides, space, stride_of, strided
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import I64, Index, Module, Pointer
from hlokit.forms.contraction import Contraction, ContractionGroups, Role


@dataclass(frozen=True, kw_only=True)
class RaggedPlan(ProductPlan):
    """The plan of a product whose ranges come from group sizes.

    prefix        of the batch dimensions, the first ones, that index the groups' sizes
    extent, rest  indices that come in groups, and how many of the space's rows or inner axis each has
    group_stride  elements of rhs from one group's matrix to the next
    """

    prefix: int
    extent: int
    rest: int
    group_stride: int = 0


class _Ragged(Product):
    """A product whose ranges come from group sizes: lhs is packed, tiles are whole, results go through the stack."""

    is_ragged = True

    def __init__(self, module: Module, plan: RaggedPlan) -> None:
        self.groups = plan.call.operands[2].dimensions[-1]
        self.prefix, self.extent, self.rest, self.group_stride = plan.prefix, plan.extent, plan.rest, plan.group_stride
        super().__init__(module, plan)

    def sizes_of(self, batch: Index) -> Pointer:
        """The address of the group sizes for an index of the batch."""
        sizes = self.pointer(2)
        if not self.prefix:
            return sizes
        row = batch // math.prod(self.space.batch.sizes[self.prefix :])
        return sizes + row * (self.groups * element_bytes(self.call.operands[2].dtype))

    def end_of(self, sizes: Pointer, group: Index, begin: Index) -> tuple[Index, Index]:
        """Where the group ends: as the sizes add up, and as that lies in the array."""
        (size,) = read(self.call.operands[2].dtype, sizes, group, 1, I64)
        total = self.fn.index(size + begin)  # of a Value, which may overflow
        return total, total.greatest(0).least(self.extent)


class _ByRows(_Ragged):
    """The rows come in groups, each with its own matrix of rhs; rows past the last group are 0."""

    def batch(self, index: Index, rows: Bounds, columns: Bounds) -> None:
        fn, places, sizes = self.fn, self.places(index), self.sizes_of(index)
        with fn.loop(0, self.groups, 1, [fn.index(0)] * 3) as group:
            total, end = self.end_of(sizes, group.index, group.carried[0])
            here = {**places, "rhs": places["rhs"] + group.index * self.group_stride}
            self._between(here, (group.carried[1], end), rows, columns, self.space.inner.size)
            group.next = [total, end, group.carried[2].greatest(end)]
        self._between(places, (group.results[2], fn.index(self.extent)), rows, columns, 0)

    def _between(self, places: Places, ragged: Bounds, rows: Bounds, columns: Bounds, inner: int) -> None:
        """The block of rows whose ragged index is in the range."""
        fn = self.fn
        low, high = rows[0].greatest(ragged[0] * self.rest), rows[1].least(ragged[1] * self.rest)
        with fn.when(low < high):
            self.block(places, (low, high), columns, (fn.index(0), fn.index(inner)))


class _ByInner(_Ragged):
    """The inner axis comes in groups, each with its own result."""

    def batch(self, index: Index, rows: Bounds, columns: Bounds) -> None:
        fn, places, sizes = self.fn, self.places(index), self.sizes_of(index)
        each = math.prod(self.result.dimensions[1:])
        with fn.loop(0, self.groups, 1, [fn.index(0)] * 2) as group:
            total, end = self.end_of(sizes, group.index, group.carried[0])
            here = {**places, "out": places["out"] + group.index * each}
            last = group.carried[1].greatest(end)
            self.block(here, rows, columns, (group.carried[1] * self.rest, last * self.rest))
            group.next = [total, end]


def plan_ragged_dot(call: Call, form: Contraction, groups: ContractionGroups) -> RaggedPlan | None:
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
    how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target)
    if groups.rhs is not None:
        each, stride = left, stride_of(groups.rhs, row_major_strides(call.operands[1].dimensions))
        index, product = space(batch, [ragged, *left], right, summed, may_swap=False), _ByRows
    else:
        each, stride = summed, 0
        index, product = space(batch, left, right, [ragged, *summed], may_swap=False), _ByInner
    return RaggedPlan(
        call,
        index,
        how,
        blocking(call, index, how, sides_of(call, index, how), is_ragged=True),
        product,
        prefix=prefix,
        extent=extent,
        rest=math.prod(one.size for one in each),
        group_stride=stride,
    )
