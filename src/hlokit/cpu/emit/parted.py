"""Scatters in parts: loops over the updates that belong to the chunk's part of the operand."""

from __future__ import annotations

from collections.abc import Callable

from hlokit.cpu.emit.elements import Elements
from hlokit.cpu.emit.loops import axis_loop, by_vectors
from hlokit.cpu.emit.scope import Scope
from hlokit.cpu.llvm import I1, I32, Index, Pointer, Value, register_type
from hlokit.cpu.loops import parted
from hlokit.cpu.loops.expr import LoopAxis
from hlokit.cpu.loops.nest import Parted
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes


class PartedLoops:
    """Writes the loops over updates. `inner` writes the rest of the nest, from a level on, for one update.

    lists  memory for the updates that were found: their numbers along the plan's axis, then each of its values
    """

    def __init__(self, elements: Elements, plan: Parted, inner: Callable[[Scope, int], list[Value]]) -> None:
        self.elements, self.plan, self.inner = elements, plan, inner
        self.emission = elements.emission
        self.lanes = self.emission.fn.target.vector_bytes // 4
        self.lists: list[Pointer] = []

    def write(self, scope: Scope, level: int) -> None:
        """The loops from this level on."""
        axis, fn = self.emission.loops.order[level], self.emission.fn
        if axis is not self.plan.axis:

            def outer(inner: Scope, _: Index, _carried: list[Value]) -> list[Value]:
                self.write(inner, level + 1)
                return []

            axis_loop(scope, axis, [], outer)
            return
        with self.emission.root.region:
            count = parted.LIST + self.lanes
            self.lists = [fn.local(I32, count, 64).to(I32) for _ in range(1 + len(self.plan.values))]
            ends = [fn.argument(name) * self.plan.size for name in ("begin", "end")]
            low, high = (end.trunc(32) for end in ends)
            part = low, high - low

        def block(inner: Scope, start: Index, _: list[Value]) -> list[Value]:
            self._block(inner, level, axis, start, part)
            return []

        scope.loop(fn.index(0), fn.index(axis.extent), parted.LIST, [], block, runs=True)

    def _block(self, scope: Scope, level: int, axis: LoopAxis, start: Index, part: tuple[Value, Value]) -> None:
        """Lists the updates of a block of the axis that are in the part, and does them."""
        fn = self.emission.fn
        end = fn.index(axis.extent)
        if start.number is None:
            with scope.region:
                end = (start + parted.LIST).smin(axis.extent)

        def find(inner: Scope, _: Index, carried: list[Value]) -> list[Value]:
            return [self._find(inner, axis, fn.index(carried[0]), part)]

        def found(inner: Scope, number: Index, _: list[Value]) -> list[Value]:
            with inner.region:
                update = self.lists[0][number].load().zext(64)
            self._recall(inner, axis, update, number)
            return self.inner(inner, level + 1)

        def every(inner: Scope, number: Index, _: list[Value]) -> list[Value]:
            with inner.region:
                update = start + number
            self._recall(inner, axis, update, number)
            return self.inner(inner, level + 1)

        (count,) = scope.loop(
            start, end, self.lanes, [fn.index(0)], by_vectors(axis, self.lanes, None, find), runs=True
        )
        with scope.region:
            is_whole = count.eq(end - start)
            is_part = ~is_whole
        for holds, body in ((is_whole, every), (is_part, found)):
            with scope.region.when(holds):
                scope.beside().loop(fn.index(0), fn.index(count), 1, [], body)

    def _find(self, scope: Scope, axis: LoopAxis, count: Index, part: tuple[Value, Value]) -> Index:
        """Adds those of a vector of updates that are in the part to the lists; gives how many these have then."""
        lanes, values, addresses = self.lanes, self.elements.values, self.elements.addresses
        numbers = values.spread(addresses.number(Affine.of(axis), dtypes.s32, scope), lanes, scope)
        if axis.extent % lanes:
            with scope.region:
                scope.mask = numbers < axis.extent
        place = values.spread(addresses.number(self.plan.place, dtypes.s32, scope), lanes, scope)
        mask = self.elements.loads.mask(self.elements.loads.guard(self.plan.guards, scope), scope)
        low, size = (values.spread(value, lanes, scope) for value in part)
        given = [values.spread(values.value(n, scope), lanes, scope) for n in self.plan.values]
        with scope.region as fn:
            mine = (place - low).compare("ult", size)
            if mask is not None:
                mine = mask.select(mine, fn.zeros(mine.type))
            for memory, value in zip(self.lists, [numbers, *given], strict=True):
                packed = value.cast("sext", "i32").compressed(mine)
                memory[count].store(packed)
            return count + mine.count_set()

    def _recall(self, scope: Scope, axis: LoopAxis, update: Value, number: Index) -> None:
        """Puts the update, which has this number in the lists, and what these have of it into the scope."""
        with scope.region as fn:
            values = [memory[number].load() for memory in self.lists[1:]]
            scope.binds(axis, fn.index(update))
            for node, value in zip(self.plan.values, values, strict=True):
                scope.memo[node] = value.cast("trunc", register_type(node.dtype).scalar)
            scope.memo |= dict.fromkeys(self.plan.guards, fn.constant(True, I1))
