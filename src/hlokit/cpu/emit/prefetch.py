"""Prefetching: prefetch instructions for later reads that the machine's own prefetcher does not predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.cpu import costs
from hlokit.cpu.emit.scope import Emission, Scope
from hlokit.cpu.llvm import Pointer
from hlokit.cpu.loops.expr import Buffer, LoopAxis, Node, RuntimeInt
from hlokit.cpu.loops.nest import Store, runtime_deps
from hlokit.cpu.loops.substitution import nodes_of
from hlokit.forms.affine import Affine

_PICKED = 4
"""Elements of a row for each that is picked from it, at most, for the whole row to be asked for."""


class Prefetcher:
    """Writes the prefetches that go with loads."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self._first: dict[Node, Node | None] = {}  # for loads the fold that reads them first
        self._asking: dict[Node, Node | None] = {}  # and the one that asks for the next row
        self._constants: tuple[Sequence[Store], dict[tuple[Buffer, Any], int]] = (), {}

    def ahead(self, node: Node, pointer: Pointer, scope: Scope) -> None:
        """Asks for what is read later, from `pointer`, what the node reads now.

        Where a row is gone through for the second time, for the next row: then there is time to fetch it, and each row
        is a stream of its own, which the machine's prefetching sees when much of it is read. The first time for what
        comes soon: the machine's own stops at each page, and long chains of operations leave no room to wait.
        """
        if not self.emission.asks:
            return
        fold = self.emission.fold
        buffer, affine = node.data[:2]
        axis, loops = scope.lane_axis, self.emission.loops
        if self._first.setdefault(node, fold) is fold:
            if axis is not None and self._goes_on(buffer, affine, axis, scope):
                distance = self.emission.beside * scope.lanes * pointer.element.bytes or costs.PREFETCH_AHEAD
                _prefetch(pointer, distance * affine.coefficient(axis), scope.lanes, near=True)
            return
        if buffer.nbytes < costs.PREFETCHED_ARRAY or axis is None or axis not in loops.order:
            return
        if self._asking.setdefault(node, fold) is not fold:
            return
        outer = [a for a in loops.order[: loops.order.index(axis)] if affine.coefficient(a)]
        size = buffer.dtype.numpy.itemsize
        row = axis.extent * size
        if not outer or not costs.PREFETCHED_ROWS[0] <= row <= costs.PREFETCHED_ROWS[1]:
            return
        rows = -(-costs.PREFETCH_AHEAD // row) * affine.coefficient(outer[-1])
        _prefetch(pointer, rows * size, scope.lanes, near=row <= costs.PREFETCHED_NEAR)

    def window(self, buffer: Buffer, affine: Affine, place: Pointer, scope: Scope) -> None:
        """Asks for the next row of a large array, in each of which a loop picks elements from anywhere.

        `place`: where the row begins that is picked from now.
        """
        axis, loops = scope.lane_axis, self.emission.loops
        if not self.emission.asks or axis is None or axis not in scope.axes or axis not in loops.order:
            return
        picked = [(key, c) for key, c in affine.terms if isinstance(key, RuntimeInt)]
        outer = [a for a in loops.order[: loops.order.index(axis)] if affine.coefficient(a)]
        if len(picked) != 1 or not outer or affine.coefficient(axis):
            return
        (key, c), size = picked[0], buffer.dtype.numpy.itemsize
        row = abs(c) * (key.high - key.low + 1)
        if affine.coefficient(outer[-1]) != row or row > axis.extent * _PICKED:
            return
        least, most = costs.PREFETCHED_ROWS[0], costs.PREFETCHED_NEAR
        if buffer.nbytes < costs.PREFETCHED_ARRAY or not least <= row * size <= most:
            return
        each = -(-row // axis.extent)
        _prefetch(place[scope.axes[axis] * each + row], 0, scope.lanes * each, near=True)

    def _goes_on(self, buffer: Buffer, affine: Affine, axis: LoopAxis, scope: Scope) -> bool:
        """Whether the loop goes along a row of a large array, or along many that lie one behind the other.

        Of loads that differ by a constant the last one counts, which is the first to read a line.
        """
        fold = self.emission.fold
        if buffer.nbytes < costs.PREFETCHED_ALONG or axis not in scope.axes:
            return False
        around = [*self.emission.loops.order, *(fold.data.bound if fold is not None else ())]
        outer = [a for a in around if a is not axis and affine.coefficient(a)]
        far = runtime_deps(affine) or (outer and affine.coefficient(outer[-1]) != axis.extent)
        if far and axis.extent * buffer.dtype.numpy.itemsize < 4 * costs.PREFETCH_AHEAD:
            return False
        return affine.constant == self._last_of(buffer, affine)

    def _last_of(self, buffer: Buffer, affine: Affine) -> int:
        """The greatest constant of the loads of the buffer, without guards, by affines that are else like this one."""
        if self._constants[0] is not self.emission.stores:
            self._constants = self.emission.stores, {}
            for node in nodes_of(self.emission.stores):
                if node.op == "load" and not node.args:
                    key = node.data[0], node.data[1].terms
                    self._constants[1][key] = max(node.data[1].constant, self._constants[1].get(key, -(1 << 62)))
        return self._constants[1].get((buffer, affine.terms), affine.constant)


def _prefetch(pointer: Pointer, distance: int, lanes: int, *, near: bool) -> None:
    """Asks for the lines of so many elements that lie so many bytes behind the pointer."""
    for line in range(max(1, lanes * pointer.element.bytes // costs.LINE_BYTES)):
        (pointer + (distance + line * costs.LINE_BYTES)).prefetch(3 if near else 2)
