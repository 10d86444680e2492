"""Memory: loads and stores, their masks and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from hlokit.cpu.emit.scope import Scope, Val
from hlokit.cpu.emit.values import ValueWriter
from hlokit.cpu.llvm import memory_type, splat, vector
from hlokit.cpu.loops import tiles
from hlokit.cpu.loops.expr import Buffer, Node, RuntimeInt
from hlokit.cpu.loops.nest import Loops, Store, runtime_deps
from hlokit.cpu.loops.substitution import nodes_of
from hlokit.cpu.math import primitives
from hlokit.cpu.target import Target
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_FAR = 4 << 20
"""Bytes of an array from which on its rows are asked for before they are read."""
_ROWS = (256, 256 << 10)
"""Bytes of rows that are asked for: of shorter ones there are several in a page, longer ones would be gone again."""
_NEAR = 16 << 10
"""Bytes of a row that the nearest cache has room for, besides what is being done."""
_AHEAD = 2048
"""Bytes to ask ahead, at least."""
_LARGE = 1 << 20
"""Bytes of an array from which on it is asked for along its rows: a smaller one may lie in a near cache."""


class MemoryWriter(ValueWriter):
    """Writes loads and stores."""

    def __init__(self, loops: Loops, name: str, target: Target) -> None:
        super().__init__(loops, name, target)
        self._pass: Node | None = None  # the fold whose loop is being written
        self._first: dict[Node, Node | None] = {}  # for loads the pass that reads them first
        self._asking: dict[Node, Node | None] = {}  # and the one that asks for the next row
        self._constants: tuple[Sequence[Store], dict[tuple[Buffer, Any], int]] = (), {}

    # -- tiles

    def _transposed(self, buffer: Buffer, affine: Affine, scope: Scope) -> Val:
        """A load of which rows are read, for all steps of the tile that lie in them."""
        tile = self.loops.tile
        assert tile is not None
        outer = scope.of_axis(tile)
        step, size = affine.coefficient(tile), buffer.dtype.numpy.itemsize
        offset = affine.constant % step
        if any(c % step for _, c in affine.terms):
            offset = 0
        column = self._shifted(affine, scope) + offset
        width = tiles.piece(size)
        start = affine - offset + column // width * width
        key = ("transposed", buffer, start)
        found = outer.memo.get(key)
        if found is None:
            lane, lanes = affine.coefficient(scope.lane_axis), scope.lanes  # type: ignore[arg-type]
            rows = lanes if scope.mask is None else scope.mask.count("true")
            valid = outer.memo["columns"] * step - column // width * width
            if offset == 0 and (buffer.size % step or any(c % step for _, c in affine.terms)):
                valid -= step - 1  # the last pair may lie half outside
            pointer, _, _ = self._address(buffer, start, outer)
            type = memory_type(buffer.dtype)
            with self.at(outer) as fn:

                def place(row: int) -> str:
                    return fn.let(f"getelementptr {type}, ptr {pointer}, i64 {row * lane}") if row else pointer

                found = outer.memo[key] = tiles.columns(fn, type, size, lanes, rows, valid, place)
        return self._from_memory(Val(found[column % width], scope.lanes), buffer.dtype, scope)

    # -- memory

    def _guard(self, nodes: Sequence[Node], scope: Scope) -> Val | None:
        """The conjunction of the guards."""
        total: Val | None = None
        for node in nodes:
            value = self.value(node, scope)
            if value.name == "true":
                continue
            if total is None:
                total = value
                continue
            lanes = max(total.lanes, value.lanes)
            a, b = (self._spread(v, lanes, dtypes.pred, scope) for v in (total, value))
            with self.at(scope) as fn:
                total = Val(fn.let(f"and {vector('i1', lanes)} {a}, {b}"), lanes)
        return total

    def _mask(self, guard: Val | None, scope: Scope, lanes: int) -> str | None:
        """The lanes that may be touched; None for all."""
        if guard is None:
            return scope.mask
        name = self._spread(guard, lanes, dtypes.pred, scope)
        if scope.mask is None:
            return name
        with self.at(scope) as fn:
            return fn.let(f"and {vector('i1', lanes)} {name}, {scope.mask}")

    def _load(self, node: Node, scope: Scope) -> Val:
        buffer, affine = node.data[:2]
        tile, axis = self.loops.tile, scope.lane_axis
        if tile is not None and axis is not None and tiles.is_transposed(affine, axis, tile, node.args):
            return self._transposed(buffer, affine, scope)
        guard = self._guard(node.args, scope)
        lane = affine.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        if 2 <= abs(lane) <= 8 and guard is None and (scope.mask is None or scope.mask.startswith("<")):
            strided = self._strided(buffer, affine, lane, scope)
            if strided is not None:
                return self._from_memory(strided, buffer.dtype, scope)
        pointer, lane, vectors = self._address(buffer, affine, scope)
        type = memory_type(buffer.dtype)
        lanes = scope.lanes
        if lane == 0 and not vectors:
            return self._scalar_load(pointer, buffer, guard, scope)
        mask = self._mask(guard, scope, lanes)
        whole = vector(type, lanes)
        align = buffer.dtype.numpy.itemsize
        with self.at(scope) as fn:
            if abs(lane) == 1 and not vectors:
                if lane == -1:
                    pointer = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {1 - lanes}")
                    if mask is not None:
                        mask = self._reversed(mask, "i1", lanes)
                if mask is None:
                    name = fn.let(f"load {whole}, ptr {pointer}, align {align}")
                    self._ask_ahead(node, pointer, scope)
                else:
                    suffix = f"v{lanes}{_mangled(type)}"
                    name = fn.let(
                        f"call {whole} @llvm.masked.load.{suffix}.p0(ptr align {align} {pointer}, "
                        f"{vector('i1', lanes)} {mask}, {whole} zeroinitializer)"
                    )
                if lane == -1:
                    name = self._reversed(name, type, lanes)
            else:
                places = self._gathered(pointer, type, affine, lane, vectors, scope)
                name = self._gather(buffer, places, mask, scope)
        return self._from_memory(Val(name, lanes), buffer.dtype, scope)

    def _gather(self, buffer: Buffer, places: str, mask: str | None, scope: Scope) -> str:
        """The elements at these addresses; 0 where the mask is not set."""
        fn, lanes, type, align = self.fn, scope.lanes, memory_type(buffer.dtype), buffer.dtype.numpy.itemsize
        whole, pointers, bits = vector(type, lanes), vector("ptr", lanes), vector("i1", lanes)
        chosen = splat("true", "i1", lanes)
        emulated = mask is not None and not mask.startswith("<") and not self.target.gathers(align)
        if emulated:  # LLVM would write a branch for each lane
            start = self._splatted(self._pointer(buffer), "ptr", lanes, scope)
            places = fn.let(f"select {bits} {mask}, {pointers} {places}, {pointers} {start}")
        elif mask is not None:
            chosen = mask
        name = fn.let(
            f"call {whole} @llvm.masked.gather.v{lanes}{_mangled(type)}.v{lanes}p0({pointers} align {align} {places}, "
            f"{bits} {chosen}, {whole} zeroinitializer)"
        )
        return fn.let(f"select {bits} {mask}, {whole} {name}, {whole} zeroinitializer") if emulated else name

    def _ask_ahead(self, node: Node, pointer: str, scope: Scope) -> None:
        """Asks for what is read later, from `pointer`, what the node reads now.

        Where a row is gone through for the second time, for the next row: then there is time to fetch it, and each row
        is a stream of its own, which the machine's prefetching sees when much of it is read. The first time for what
        comes soon: the machine's own stops at each page, and long chains of operations leave no room to wait.
        """
        if self._first.setdefault(node, self._pass) is self._pass:
            if self._goes_on(node, scope):
                self._ask(pointer, _AHEAD * node.data[1].coefficient(scope.lane_axis), scope.lanes, node, near=True)
            return
        buffer, affine = node.data[:2]
        axis, loops = scope.lane_axis, self.loops
        if buffer.nbytes < _FAR or axis not in loops.order:
            return
        if self._asking.setdefault(node, self._pass) is not self._pass:
            return
        outer = [a for a in loops.order[: loops.order.index(axis)] if affine.coefficient(a)]
        size = buffer.dtype.numpy.itemsize
        row = axis.extent * size
        if not outer or not _ROWS[0] <= row <= _ROWS[1]:
            return
        rows = -(-_AHEAD // row) * affine.coefficient(outer[-1])
        self._ask(pointer, rows * size, scope.lanes, node, near=row <= _NEAR)

    def _goes_on(self, node: Node, scope: Scope) -> bool:
        """Whether the loop goes along a row of a large array, or along many that lie one behind the other.

        Of loads that differ by a constant the last one counts, which is the first to read a line.
        """
        buffer, affine = node.data[:2]
        axis, loops = scope.lane_axis, self.loops
        if buffer.nbytes < _LARGE or axis is None or axis not in scope.axes:
            return False
        around = [*loops.order, *(self._pass.data.bound if self._pass is not None else ())]
        outer = [a for a in around if a is not axis and affine.coefficient(a)]
        far = runtime_deps(affine) or (outer and affine.coefficient(outer[-1]) != axis.extent)
        if far and axis.extent * buffer.dtype.numpy.itemsize < 4 * _AHEAD:
            return False
        return affine.constant == self._last_of(buffer, affine)

    def _last_of(self, buffer: Buffer, affine: Affine) -> int:
        """The greatest constant of the loads of the buffer, without guards, by affines that are else like this one."""
        if self._constants[0] is not self._stored:
            self._constants = self._stored, {}
            for node in nodes_of(self._stored):
                if node.op == "load" and not node.args:
                    key = node.data[0], node.data[1].terms
                    self._constants[1][key] = max(node.data[1].constant, self._constants[1].get(key, -(1 << 62)))
        return self._constants[1].get((buffer, affine.terms), affine.constant)

    def _ask(self, pointer: str, distance: int, lanes: int, node: Node, *, near: bool) -> None:
        """Asks for the lines of so many elements that lie so many bytes behind the pointer."""
        fn = self.fn
        for line in range(max(1, lanes * node.data[0].dtype.numpy.itemsize // 64)):
            at = fn.let(f"getelementptr i8, ptr {pointer}, i64 {distance + line * 64}")
            fn.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 {3 if near else 2}, i32 1)")

    def _from_memory(self, value: Val, dtype: DType, scope: Scope) -> Val:
        """What was loaded, as registers hold it: pred as i1; integers below a byte extended."""
        type, lanes, name = vector("i8", value.lanes), value.lanes, value.name
        if dtype.kind == "pred":
            with self.at(scope) as fn:
                return Val(fn.let(f"icmp ne {type} {name}, {splat('0', 'i8', lanes)}"), lanes)
        if dtype.is_integral and dtype.bits < 8:
            unused = splat(str(8 - dtype.bits), "i8", lanes)
            with self.at(scope) as fn:
                name = fn.let(f"shl {type} {name}, {unused}")
                return Val(fn.let(f"{'ashr' if dtype.is_signed else 'lshr'} {type} {name}, {unused}"), lanes)
        return value

    def _to_memory(self, name: str, dtype: DType, lanes: int) -> str:
        """The reverse; bits above an integer's own are 0 in memory, as ml_dtypes has it."""
        type = vector("i8", lanes)
        if dtype.kind == "pred":
            return self.fn.let(f"zext {vector('i1', lanes)} {name} to {type}")
        if dtype.is_integral and dtype.bits < 8:
            return self.fn.let(f"and {type} {name}, {splat(str((1 << dtype.bits) - 1), 'i8', lanes)}")
        return name

    def _reversed(self, name: str, scalar: str, lanes: int) -> str:
        type = vector(scalar, lanes)
        order = "<" + ", ".join(f"i32 {lanes - 1 - k}" for k in range(lanes)) + ">"
        return self.fn.let(f"shufflevector {type} {name}, {type} poison, <{lanes} x i32> {order}")

    def _scalar_load(self, pointer: str, buffer: Buffer, guard: Val | None, scope: Scope) -> Val:
        """A load by all lanes from one address; below a false guard it reads the buffer's start."""
        with self.at(scope) as fn:
            if guard is not None:
                chosen = guard.name
                if guard.lanes > 1:
                    type = vector("i1", guard.lanes)
                    if scope.mask is not None:
                        chosen = fn.let(f"and {type} {chosen}, {scope.mask}")
                    chosen = fn.let(f"call i1 @llvm.vector.reduce.or.v{guard.lanes}i1({type} {chosen})")
                pointer = fn.let(f"select i1 {chosen}, ptr {pointer}, ptr {self._pointer(buffer)}")
            type = memory_type(buffer.dtype)
            name = fn.let(f"load {type}, ptr {pointer}, align {buffer.dtype.numpy.itemsize}")
        return self._from_memory(Val(name), buffer.dtype, scope)

    def _among_groups(self, buffer: Buffer, affine: Affine, stride: int, scope: Scope) -> tuple[bool, int]:
        """Whether groups of `stride` elements are read whole, by other loads too; the place in its group, else 0."""
        shares = not any(c % stride for _, c in affine.terms) and buffer.size % stride == 0
        return shares, (affine.constant + self._shifted(affine, scope)) % stride if shares else 0

    def _strided(self, buffer: Buffer, affine: Affine, lane: int, scope: Scope) -> Val | None:
        """Every 2nd to 8th element by whole vectors and shuffles; what may lie outside the buffer is masked."""
        lanes, stride = scope.lanes, abs(lane)
        if runtime_deps(affine) & scope.lane_axis.bit:  # type: ignore[union-attr]
            return None
        shares, offset = self._among_groups(buffer, affine, stride, scope)
        count = lanes if scope.mask is None else scope.mask.count("true")
        needed = count * stride if shares else (count - 1) * stride + 1
        if scope.mask is None and not shares and affine.high + stride <= buffer.size:
            needed = lanes * stride
        if lane < 0 and needed < lanes * stride:
            return None
        start = affine - offset if lane > 0 else affine - offset - (lanes - 1) * stride
        pointer, _, _ = self._address(buffer, start, scope)
        type, size = memory_type(buffer.dtype), buffer.dtype.numpy.itemsize
        whole, total = vector(type, lanes * stride), lanes * stride
        loaded = scope.memo.get(("strided", pointer, stride))
        with self.at(scope) as fn:
            if loaded is None:
                if needed == total:
                    loaded = fn.let(f"load {whole}, ptr {pointer}, align {size}")
                else:
                    mask = ", ".join(f"i1 {'true' if k < needed else 'false'}" for k in range(total))
                    loaded = fn.let(
                        f"call {whole} @llvm.masked.load.v{total}{_mangled(type)}.p0("
                        f"ptr align {size} {pointer}, <{total} x i1> <{mask}>, {whole} zeroinitializer)"
                    )
                scope.memo[("strided", pointer, stride)] = loaded
            places = [offset + k * stride for k in range(lanes)]
            order = "<" + ", ".join(f"i32 {k}" for k in (places if lane > 0 else reversed(places))) + ">"
            name = fn.let(f"shufflevector {whole} {loaded}, {whole} poison, <{lanes} x i32> {order}")
        return Val(name, lanes)

    def _made(self, node: Node, scope: Scope) -> Any:
        if node.op == "convert" and node.args[0].op == "load" and node.dtype in (dtypes.s32, dtypes.u32, dtypes.f32):
            value = self._interleaved_bytes(node.args[0], scope)
            if value is not None:
                name, lanes = value.name, value.lanes
                if node.dtype is dtypes.f32:
                    with self.at(scope) as fn:
                        name = primitives.emit(fn, "convert", dtypes.s32, lanes, [name], dtypes.f32)
                return Val(name, lanes)
        return super()._made(node, scope)

    def _interleaved_bytes(self, load: Node, scope: Scope) -> Val | None:
        """Every 2nd to 4th byte as 32 bits: one permutation of 64 bytes makes 16 lanes, where the machine has it."""
        buffer, affine = load.data[:2]
        stride = affine.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        lanes, mask = scope.lanes, scope.mask
        if not 2 <= stride <= 4 or lanes % 16 or load.args or not self.target.has("avx512bw"):
            return None
        if load.dtype not in (dtypes.u8, dtypes.s8) or (mask is not None and not mask.startswith("<")):
            return None
        if self.loops.tile is not None or runtime_deps(affine) & scope.lane_axis.bit:  # type: ignore[union-attr]
            return None
        shares, offset = self._among_groups(buffer, affine, stride, scope)
        count = lanes if mask is None else mask.count("true")
        pointer, _, _ = self._address(buffer, affine - offset, scope)
        parts: list[str] = []
        for first in range(0, lanes, 16):
            here = min(16, count - first)
            if here <= 0:
                parts.append("poison")
                continue
            needed = here * stride if shares else (here - 1) * stride + 1
            parts.append(self._spread_bytes(pointer, first * stride, needed, offset, stride, load.dtype, scope))
        with self.at(scope) as fn:
            return Val(tiles.joined(fn, "i32", 16, parts), lanes)

    def _spread_bytes(
        self, pointer: str, at: int, needed: int, offset: int, stride: int, dtype: DType, scope: Scope
    ) -> str:
        """16 lanes of 32 bits: of the needed bytes from `at` on those at offset, offset + stride and so on."""
        key = ("bytes", pointer, at)
        loaded = scope.memo.get(key)
        type = "<64 x i8>"
        with self.at(scope) as fn:
            if loaded is None:
                place = fn.let(f"getelementptr i8, ptr {pointer}, i64 {at}") if at else pointer
                mask = ", ".join(f"i1 {'true' if k < needed else 'false'}" for k in range(64))
                loaded = scope.memo[key] = fn.let(
                    f"call {type} @llvm.masked.load.v64i8.p0(ptr align 1 {place}, <64 x i1> <{mask}>, {type} poison)"
                )
            if stride == 4:
                name = fn.let(f"bitcast {type} {loaded} to <16 x i32>")
                if offset < 3:
                    name = fn.let(f"shl <16 x i32> {name}, splat (i32 {24 - 8 * offset})")
            else:
                order = ["i32 poison"] * 64
                order[3::4] = [f"i32 {min(offset + k * stride, 63)}" for k in range(16)]
                name = fn.let(f"shufflevector {type} {loaded}, {type} poison, <64 x i32> <{', '.join(order)}>")
                name = fn.let(f"bitcast {type} {name} to <16 x i32>")
            return fn.let(f"{'ashr' if dtype.is_signed else 'lshr'} <16 x i32> {name}, splat (i32 24)")

    def _gathered(
        self, pointer: str, type: str, affine: Affine, lane: int, vectors: Sequence[tuple[str, int]], scope: Scope
    ) -> str:
        """The lanes' pointers; their distances are counted in 32 bits where that is enough."""
        lanes, fn = scope.lanes, self.fn
        reach = abs(lane) * lanes
        for key, c in affine.terms:
            reach += abs(c) * max(abs(key.low), abs(key.high)) if isinstance(key, RuntimeInt) else 0
        scalar = "i32" if reach < 2**31 else "i64"
        type_of_places = vector(scalar, lanes)
        places = self._lane_numbers(scalar, lanes, lane) if lane else None
        for name, c in vectors:
            if scalar == "i32":
                name = fn.let(f"trunc {vector('i64', lanes)} {name} to {type_of_places}")
            if c != 1:
                name = fn.let(f"mul nsw {type_of_places} {name}, {splat(str(c), scalar, lanes)}")
            places = name if places is None else fn.let(f"add nsw {type_of_places} {name}, {places}")
        return fn.let(f"getelementptr {type}, ptr {pointer}, {type_of_places} {places}")

    def _stores(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:  # all values before the first store: a result may lie where an operand does
            for node in (store.node, *store.guards):
                self.value(node, scope)
        for _, same in groupby(stores, key=lambda s: id(s.buffer)):
            run = list(same)
            while run:
                count = self._side_by_side(run, scope)
                if count == 1:
                    self._store(run[0], scope)
                else:
                    self._interleaved(run[:count], scope)
                run = run[count:]

    def _side_by_side(self, run: Sequence[Store], scope: Scope) -> int:
        """How many of the stores fill memory together: every lane's elements lie side by side. 1: the first alone."""
        first = run[0]
        count = first.place.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        if not 2 <= count <= 8 or len(run) < count or self._terms(first.place, scope)[2]:
            return 1
        if scope.mask is not None and not scope.mask.startswith("<"):
            return 1
        if any(s.guards or s.place is not first.place + k for k, s in enumerate(run[:count])):
            return 1
        return count

    def _interleaved(self, stores: Sequence[Store], scope: Scope) -> None:
        """Whole vectors of what the stores put side by side."""
        count, lanes, buffer = len(stores), scope.lanes, stores[0].buffer
        type, size = memory_type(buffer.dtype), buffer.dtype.numpy.itemsize
        names = [self._spread(self.value(s.node, scope), lanes, s.node.dtype, scope) for s in stores]
        pointer, _, _ = self._address(buffer, stores[0].place, scope)
        valid = count * (lanes if scope.mask is None else scope.mask.count("true"))
        width = min(lanes, 64 // size)
        whole = vector(type, width)
        with self.at(scope) as fn:
            names = [self._to_memory(name, buffer.dtype, lanes) for name in names]
            for start in range(0, lanes * count, width):
                if start >= valid:
                    break
                name = self._mixed(names, type, lanes, range(start, start + width))
                place = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {start}") if start else pointer
                if start + width <= valid:
                    fn.do(f"store {whole} {name}, ptr {place}, align {size}")
                    continue
                mask = ", ".join(f"i1 {'true' if start + k < valid else 'false'}" for k in range(width))
                fn.do(
                    f"call void @llvm.masked.store.v{width}{_mangled(type)}.p0({whole} {name}, "
                    f"ptr align {size} {place}, <{width} x i1> <{mask}>)"
                )

    def _mixed(self, names: Sequence[str], type: str, lanes: int, places: range) -> str:
        """Those places of the values' elements in turn: one of the first, one of the second, and so on."""
        fn, count, width = self.fn, len(names), len(places)
        low = places.start // count
        first = min(low, lanes - width)
        if lanes > width:  # what the places come from fits a register
            order = ", ".join(f"i32 {first + k}" for k in range(width))
            given = vector(type, lanes)
            names = [fn.let(f"shufflevector {given} {n}, {given} poison, <{width} x i32> <{order}>") for n in names]
        else:
            first = 0
        given = vector(type, width)
        mixed = names[0]
        for number in range(1, count):
            order = ", ".join(
                f"i32 {width + p // count - first}" if p % count == number
                else f"i32 {p // count - first}" if number == 1 and p % count == 0
                else f"i32 {k}" if p % count < number
                else "i32 poison"
                for k, p in enumerate(places)
            )  # fmt: skip
            mixed = fn.let(f"shufflevector {given} {mixed}, {given} {names[number]}, <{width} x i32> <{order}>")
        return mixed

    def _store(self, store: Store, scope: Scope) -> None:
        value = self.value(store.node, scope)
        guard = self._guard(store.guards, scope)
        pointer, lane, vectors = self._address(store.buffer, store.place, scope)
        dtype = store.buffer.dtype
        type, align = memory_type(dtype), dtype.numpy.itemsize
        if lane == 0 and not vectors:
            self._scalar_store(value, guard, pointer, store, scope)
            return
        lanes = scope.lanes
        name = self._spread(value, lanes, store.node.dtype, scope)
        mask = self._mask(guard, scope, lanes)
        whole = vector(type, lanes)
        with self.at(scope) as fn:
            name = self._to_memory(name, dtype, lanes)
            if abs(lane) == 1 and not vectors:
                if lane == -1:
                    pointer = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {1 - lanes}")
                    name = self._reversed(name, type, lanes)
                    mask = None if mask is None else self._reversed(mask, "i1", lanes)
                if mask is None:
                    hint = self._stream_hint(store, lanes, align, scope)
                    fn.do(f"store {whole} {name}, ptr {pointer}, align {64 if hint else align}{hint}")
                else:
                    fn.do(
                        f"call void @llvm.masked.store.v{lanes}{_mangled(type)}.p0({whole} {name}, "
                        f"ptr align {align} {pointer}, {vector('i1', lanes)} {mask})"
                    )
            else:
                places = self._gathered(pointer, type, store.place, lane, vectors, scope)
                chosen = mask if mask is not None else splat("true", "i1", lanes)
                fn.do(
                    f"call void @llvm.masked.scatter.v{lanes}{_mangled(type)}.v{lanes}p0({whole} {name}, "
                    f"{vector('ptr', lanes)} align {align} {places}, {vector('i1', lanes)} {chosen})"
                )

    def _stream_hint(self, store: Store, lanes: int, align: int, scope: Scope) -> str:
        if not self.loops.streamed or lanes * align < 64 or store.buffer.nbytes < 1 << 20:
            return ""
        if store.buffer in self.loops.in_place:
            return ""
        unit = 64 // align
        aligned = (
            all(c % unit == 0 for key, c in store.place.terms if key is not scope.lane_axis)
            and store.place.constant % unit == 0
        )
        if not aligned or lanes % unit:
            return ""
        self._streams = True
        return ", !nontemporal !0"

    def _scalar_store(self, value: Val, guard: Val | None, pointer: str, store: Store, scope: Scope) -> None:
        dtype = store.buffer.dtype
        if value.lanes > 1:
            raise AssertionError("a vector for one place")
        with self.at(scope) as fn:
            name = self._to_memory(value.name, dtype, 1)
            text = f"store {memory_type(dtype)} {name}, ptr {pointer}, align {dtype.numpy.itemsize}"
            if guard is None:
                fn.do(text)
            else:
                with fn.when(guard.name):
                    fn.do(text)


def _mangled(type: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(type, type)
