"""Loads: elements, vectors and gathers, with the masks that keep them inside their arrays."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu import costs
from hlokit.cpu.emit.addresses import Addresses, LanePlace
from hlokit.cpu.emit.prefetch import Prefetcher
from hlokit.cpu.emit.scope import Scope, is_static
from hlokit.cpu.emit.strided import StridedLoads
from hlokit.cpu.emit.values import Values
from hlokit.cpu.llvm import Pointer, Pointers, Value, is_one_lane, type_of
from hlokit.cpu.loops import tiles
from hlokit.cpu.loops.expr import Buffer, Node, RuntimeInt
from hlokit.cpu.math import primitives
from hlokit.cpu.math.formats import extended
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_PAGE = 4096
"""Bytes beyond an array that are taken to be mapped: what lies there is met by few steps."""


class Loads:
    """Writes loads, and conversions that are made as one reads."""

    def __init__(self, values: Values, addresses: Addresses) -> None:
        self.values, self.addresses = values, addresses
        self.loops = values.emission.loops
        self.strided = StridedLoads(addresses)
        self.prefetcher = Prefetcher(values.emission)
        values.writers |= {"load": self._load, "current": self._load, "convert": self._convert}

    # -- guards

    def guard(self, nodes: Sequence[Node], scope: Scope) -> Value | None:
        """The conjunction of the guards; None where all are known to hold."""
        total: Value | None = None
        for node in nodes:
            value = self.values.value(node, scope)
            if value.number:
                continue
            if total is None:
                total = value
                continue
            lanes = max(total.lanes, value.lanes)
            a, b = (self.values.spread(v, lanes, scope) for v in (total, value))
            with scope.region:
                total = a & b
        return total

    def mask(self, guard: Value | None, scope: Scope) -> Value | None:
        """The lanes that may be touched; None for all."""
        if guard is None:
            return scope.mask
        mask = self.values.spread(guard, scope.lanes, scope)
        if scope.mask is None:
            return mask
        with scope.region:
            return mask & scope.mask

    # -- loads

    def _load(self, node: Node, scope: Scope) -> Value:
        buffer, affine = node.data[:2]
        tile, axis = self.loops.tile, scope.lane_axis
        if tile is not None and axis is not None and tiles.is_transposed(affine, axis, tile, node.args):
            return from_memory(self.strided.transposed(buffer, affine, scope), buffer.dtype, scope)
        guard = self.guard(node.args, scope)
        lane = affine.coefficient(axis) if axis is not None else 0
        if 2 <= abs(lane) <= costs.DEINTERLEAVED and guard is None and is_static(scope.mask):
            strided = self.strided.load(buffer, affine, lane, scope)
            if strided is not None:
                return from_memory(strided, buffer.dtype, scope)
        place = self.addresses.address(buffer, affine, scope)
        if place.lane == 0 and not place.vectors:
            return self._one_for_all(place.pointer, buffer, guard, scope)
        mask = self.mask(guard, scope)
        with scope.region:
            if abs(lane) == 1 and not place.vectors:
                place = self._mapped(place, node, mask, scope)
                value = self._contiguous(node, place, mask, scope)
            else:
                self.prefetcher.window(buffer, affine, place.pointer, scope)
                value = self._gather(buffer, pointers(place, affine, scope), mask, scope)
        return from_memory(value, buffer.dtype, scope)

    def _mapped(self, place: LanePlace, node: Node, mask: Value | None, scope: Scope) -> LanePlace:
        """The place, or the buffer's start where a guard holds for no lane: a load of none takes a microsecond where no
        memory is mapped."""
        buffer, affine = node.data[:2]
        tests = [self.values.value(guard, scope) for guard in node.args]
        tests = [test for test in tests if test.lanes == 1 and not test.number]
        beyond = max(-affine.low, affine.high - buffer.size + 1) * buffer.dtype.numpy.itemsize
        if beyond > _PAGE and mask is not None and not is_static(mask) and not is_one_lane(mask):
            tests.append(mask.any())
        for test in tests:
            start = self.addresses.pointer(buffer)
            first = start if place.lane == 1 else start[scope.lanes - 1]
            place = place._replace(pointer=test.select(place.pointer, first))
        return place

    def _contiguous(self, node: Node, place: LanePlace, mask: Value | None, scope: Scope) -> Value:
        if mask is not None:
            mask = mask.apart()
        if place.lane == 1 or is_one_lane(mask):
            value = place.pointer.load(scope.lanes, mask)
            if mask is None:
                self.prefetcher.ahead(node, place.pointer, scope)
            return value
        pointer = place.pointer[1 - scope.lanes]
        value = pointer.load(scope.lanes, None if mask is None else mask.reversed())
        if mask is None:
            self.prefetcher.ahead(node, pointer, scope)
        return value.reversed()

    def _gather(self, buffer: Buffer, places: Pointers, mask: Value | None, scope: Scope) -> Value:
        """The elements at these addresses; 0 where the mask is not set."""
        if is_static(mask) or scope.region.fn.target.gathers(buffer.dtype.numpy.itemsize):
            return places.gather(mask)
        assert mask is not None
        # LLVM would write a branch for each lane
        start = self.values.spread(self.addresses.pointer(buffer), scope.lanes, scope)
        value = mask.select(places, start).gather()
        return mask.select(value, value.fn.zeros(value.type))

    def _one_for_all(self, pointer: Pointer, buffer: Buffer, guard: Value | None, scope: Scope) -> Value:
        """A load by all lanes from one address; below a false guard it reads the buffer's start."""
        with scope.region:
            if guard is not None:
                if guard.lanes > 1:
                    guard = (guard if scope.mask is None else guard & scope.mask).reduce("or")
                pointer = guard.select(pointer, self.addresses.pointer(buffer))
            value = pointer.load()
        return from_memory(value, buffer.dtype, scope)

    def _convert(self, node: Node, scope: Scope) -> Value:
        load = node.args[0]
        if load.op == "load" and node.dtype in (dtypes.s32, dtypes.u32, dtypes.f32):
            value = self.strided.widened_bytes(load, scope)
            if value is not None:
                with scope.region:
                    if node.dtype is dtypes.f32:
                        value = primitives.emit("convert", dtypes.s32, [value], dtypes.f32)
                    return value
        return self.values.primitive(node, scope)


def pointers(place: LanePlace, affine: Affine, scope: Scope) -> Pointers:
    """The lanes' addresses; their distances are counted in 32 bits where that is enough."""
    lanes, fn = scope.lanes, scope.region.fn
    reach = abs(place.lane) * lanes
    for key, c in affine.terms:
        reach += abs(c) * max(abs(key.low), abs(key.high)) if isinstance(key, RuntimeInt) else 0
    type = type_of("i32" if reach < 2**31 else "i64")
    total: Value | None = None
    if place.lane:
        total = fn.vector_constant(range(0, place.lane * lanes, place.lane), type)
    for number, c in place.vectors:
        term = fn.index(number.cast("trunc", type.scalar)) * c
        total = term if total is None else term + total
    assert total is not None
    return place.pointer.elements(total)


def from_memory(value: Value, dtype: DType, scope: Scope) -> Value:
    """A loaded value as registers hold it: pred as i1; integers below a byte extended."""
    if dtype.kind == "pred":
        with scope.region:
            return value.ne(0)
    if dtype.is_integral and dtype.bits < 8:
        with scope.region:
            return extended(value, dtype)
    return value


def to_memory(value: Value, dtype: DType) -> Value:
    """The reverse; bits above an integer's own are 0 in memory, as ml_dtypes has it."""
    if dtype.kind == "pred":
        return value.zext(8)
    if dtype.is_integral and dtype.bits < 8:
        return value & ((1 << dtype.bits) - 1)
    return value
