"""Stores: of elements, of vectors, of interleaved values, and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hlokit.cpu import costs
from hlokit.cpu.emit.addresses import Addresses
from hlokit.cpu.emit.loads import Loads, pointers, to_memory
from hlokit.cpu.emit.scope import Scope, is_static, lanes_of
from hlokit.cpu.emit.values import Values
from hlokit.cpu.llvm import LaneMask, Pointer, Value, is_one_lane
from hlokit.cpu.loops.nest import Store


class Stores:
    """Writes stores."""

    def __init__(self, values: Values, addresses: Addresses, loads: Loads) -> None:
        self.values, self.addresses, self.loads = values, addresses, loads
        self.emission = values.emission

    def write(self, stores: Sequence[Store], scope: Scope) -> None:
        """Writes them and what they need: all values first, since a result may lie where an operand does."""
        for store in stores:
            for node in (store.node, *store.guards):
                self.values.value(node, scope)
        for _, same in groupby(stores, key=lambda s: id(s.buffer)):
            run = list(same)
            while run:
                count = self._side_by_side(run, scope)
                if count == 1:
                    self._store(run[0], scope)
                else:
                    self._interleaved(run[:count], scope)
                run = run[count:]

    # -- one

    def _store(self, store: Store, scope: Scope) -> None:
        value = self.values.value(store.node, scope)
        guard = self.loads.guard(store.guards, scope)
        place = self.addresses.address(store.buffer, store.place, scope)
        if place.lane == 0 and not place.vectors:
            _store_scalar(value, guard, place.pointer, store, scope)
            return
        lanes, pointer = scope.lanes, place.pointer
        value = self.values.spread(value, lanes, scope)
        mask = self.loads.mask(guard, scope)
        with scope.region:
            value = to_memory(value, store.buffer.dtype)
            if abs(place.lane) != 1 or place.vectors:
                pointers(place, store.place, scope).scatter(value, mask)
                return
            if place.lane == -1 and not is_one_lane(mask):
                pointer, value = pointer[1 - lanes], value.reversed()
                mask = None if mask is None else mask.reversed()
            if mask is None and self._is_streamed(store, lanes, scope):
                self.emission.streams = True
                pointer.to(pointer.element, costs.LINE_BYTES).store(value, nontemporal=True)
            else:
                pointer.store(value, mask)

    def _is_streamed(self, store: Store, lanes: int, scope: Scope) -> bool:
        """Whether the lanes are whole cache lines that are worth going past the caches."""
        loops, size = self.emission.loops, store.buffer.dtype.numpy.itemsize
        if not loops.streamed or lanes * size < costs.LINE_BYTES or store.buffer.nbytes < costs.STREAMED_ARRAY_BYTES:
            return False
        unit = costs.LINE_BYTES // size
        axis = scope.lane_axis
        assert axis is not None
        bounds = [bound for span in loops.pieces.get(axis, ()) for bound in span if bound < axis.extent]
        return (
            store.buffer not in loops.in_place
            and all(bound % unit == 0 for bound in bounds)  # pieces begin with a line
            and all(c % unit == 0 for key, c in store.place.terms if key is not axis)
            and store.place.constant % unit == 0
            and lanes % unit == 0
        )

    # -- several side by side

    def _side_by_side(self, run: Sequence[Store], scope: Scope) -> int:
        """The number of stores that fill memory together: each lane's elements lie side by side. 1: the first alone."""
        first = run[0]
        count = first.place.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        if not 2 <= count <= min(len(run), costs.DEINTERLEAVED) or self.addresses.terms(first.place, scope).vectors:
            return 1
        if not is_static(scope.mask):
            return 1
        if any(s.guards or s.place is not first.place + k for k, s in enumerate(run[:count])):
            return 1
        return count

    def _interleaved(self, stores: Sequence[Store], scope: Scope) -> None:
        """Whole vectors of what the stores put side by side."""
        count, lanes, buffer = len(stores), scope.lanes, stores[0].buffer
        values = [self.values.spread(self.values.value(s.node, scope), lanes, scope) for s in stores]
        pointer = self.addresses.address(buffer, stores[0].place, scope).pointer
        valid = count * lanes_of(scope)
        width = min(lanes, 64 // buffer.dtype.numpy.itemsize)
        with scope.region as fn:
            values = [to_memory(value, buffer.dtype) for value in values]
            for start in range(0, valid, width):
                mask = LaneMask(fn, valid - start, width) if start + width > valid else None
                value = _mixed(values, range(start, start + width))
                pointer[start].store(value, mask)


def _store_scalar(value: Value, guard: Value | None, pointer: Pointer, store: Store, scope: Scope) -> None:
    if value.lanes > 1:
        raise AssertionError("a vector for one place")
    with scope.region as fn:
        value = to_memory(value, store.buffer.dtype)
        if guard is None:
            pointer.store(value)
        else:
            with fn.when(guard):
                pointer.store(value)


def _mixed(values: Sequence[Value], places: range) -> Value:
    """Those places of the values' elements in turn: one of the first, one of the second, and so on."""
    count, width = len(values), len(places)
    first = 0
    if values[0].lanes > width:  # what the places come from fits a register
        first = min(places.start // count, values[0].lanes - width)
        values = [value.shuffled(range(first, first + width)) for value in values]
    mixed = values[0]
    for number in range(1, count):
        order = [
            width + p // count - first if p % count == number
            else p // count - first if number == 1 and p % count == 0
            else k if p % count < number
            else None
            for k, p in enumerate(places)
        ]  # fmt: skip
        mixed = mixed.shuffled(order, values[number])
    return mixed
