"""The innermost part of a convolution: a tile of outputs whose sums stay in registers from first to last."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from hlokit.cpu.kernels.contraction.convolution_plan import Panel, Plan, Steps
from hlokit.cpu.kernels.contraction.elements import broadcast, constant_mask, load, mangled, rounded, store, write
from hlokit.cpu.kernels.contraction.scalar_convolution import affine
from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.kernels.contraction.windows import strides
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Function, Module, scalar_type, vector
from hlokit.types.dtype import DType


class Tile:
    """Writes `void @tile(ptr table, ptr lhs, ptr rhs, i64 index...)` for tiles of rows x columns x a panel's features.

    lhs, rhs  the first input and weight, where the plan lays them
    index     of the tile's first output, in the result
    sums, last  where a plan sums in several goes: what the tile has so far, and whether this is the last
    """

    def __init__(self, call: Call, plan: Plan, panel: Panel, rows: int, columns: int) -> None:
        s = plan.sliding
        self.call, self.plan, self.panel, self.s = call, plan, panel, s
        self.lanes, self.scalar = plan.lanes, scalar_type(s.wide)
        self.type = vector(self.scalar, self.lanes)
        self.parameters = [f"d{i}" for i in range(len(s.dimensions))]
        fields = [("ptr", "table"), ("ptr", "lhs"), ("ptr", "rhs"), *(("i64", name) for name in self.parameters)]
        if plan.split is not None:
            fields += [("ptr", "sums"), ("i1", "last")]
        self.f = Function("", fields, attributes="noinline nounwind")
        self.is_turned = plan.axes[plan.rows].axis.dim == len(s.dimensions) - 1
        outer, inner = (columns, rows) if self.is_turned else (rows, columns)
        self.inner = inner
        pairs = [(i, j) for i in range(outer) for j in range(inner)]
        self.outputs = [(j, i) if self.is_turned else (i, j) for i, j in pairs]
        """(row, column) of each output; those along the result's last dimension are neighbours."""

    def written(self, module: Module) -> str:
        """Adds the function; gives its name."""
        f = self.f
        is_split = self.plan.split is not None
        sums = self._kept() if is_split else self._count * ["zeroinitializer"]
        sums = self._summed(self.plan.steps(self.panel.vectors * self.lanes), "%lhs", "%rhs", sums)
        if is_split:
            for i, value in enumerate(sums):
                store(f, self.scalar, self.lanes, value, self._place("%sums", i * self.lanes))
            with f.when("%last"):
                self._store(sums)
        else:
            self._store(sums)
        f.do("ret void")
        f.name = f"convolution_tile_{sha256(f.text().encode()).hexdigest()[:16]}"
        module.add(f)
        return f.name

    def _kept(self) -> list[str]:
        return [self._vector("%sums", i * self.lanes) for i in range(self._count)]

    def _place(self, base: str, offset: int) -> str:
        return self.f.let(f"getelementptr {self.scalar}, ptr {base}, i64 {offset}")

    def _at(self, base: str, number: str) -> str:
        return self.f.let(f"getelementptr {self.scalar}, ptr {base}, i64 {number}")

    def _store(self, sums: Sequence[str]) -> None:
        last = len(self.s.dimensions) - 1
        if self.s.feature_dim == last:
            self._store_features(sums)
        elif last in self._spanned() and self.plan.axes[self._spanned()[last]].axis.step == 1:
            self._store_turned(sums)
        else:
            self._store_each(sums)

    @property
    def _count(self) -> int:
        return len(self.outputs) * self.panel.vectors

    def _spanned(self) -> dict[int, int]:
        """The result's dimensions that the tile spans beside the features, with the axes' numbers."""
        plan = self.plan
        return {plan.axes[i].axis.dim: i for i in (plan.rows, plan.columns) if plan.axes[i].axis.dim >= 0}

    # -- products

    def _summed(self, steps: Sequence[Steps], lhs: str, rhs: str, sums: list[str]) -> list[str]:
        if not steps:
            return self._products(lhs, rhs, sums, 0, 0)
        f, now = self.f, steps[0]
        unroll = self._unrolled(now) if len(steps) == 1 else 1
        carries = [(self.type, v) for v in sums] + [("ptr", lhs), ("ptr", rhs)]
        if now.count == unroll:
            for i in range(unroll):
                sums = self._products(lhs, rhs, sums, i * now.lhs, i * now.rhs)
            return sums
        with f.loop("0", str(now.count), unroll, carries=carries) as loop:
            *inner, left, right = loop.carried
            if len(steps) == 1:
                for i in range(unroll):
                    inner = self._products(left, right, inner, i * now.lhs, i * now.rhs)
            else:
                inner = self._summed(steps[1:], left, right, inner)
            left = f.let(f"getelementptr {self.scalar}, ptr {left}, i64 {unroll * now.lhs}")
            right = f.let(f"getelementptr {self.scalar}, ptr {right}, i64 {unroll * now.rhs}")
            loop.next = [*inner, left, right]
        return loop.results[:-2]

    def _unrolled(self, now: Steps) -> int:
        """Steps in a row: none that read an input twice, for LLVM would keep it in a register that is not there."""
        row, column = (self.plan.axes[n].per_output for n in (self.plan.rows, self.plan.columns))
        places = [i * row + j * column for i, j in self.outputs]
        for unroll in (now.count, 2, 3):
            if unroll <= 4 and now.count % unroll == 0:
                read = {i * now.lhs + place for i in range(unroll) for place in places}
                if len(read) == unroll * len(places):
                    return unroll
        return 1

    def _products(self, lhs: str, rhs: str, sums: Sequence[str], lhs_at: int, rhs_at: int) -> list[str]:
        f, scalar, plan = self.f, self.scalar, self.plan
        weights = [self._vector(rhs, rhs_at + v * self.lanes) for v in range(self.panel.vectors)]
        row, column = plan.axes[plan.rows].per_output, plan.axes[plan.columns].per_output
        result: list[str] = []
        x = ""
        for m, (i, j) in enumerate(self.outputs):
            at = lhs_at + i * row + j * column
            if not self.s.shared:
                place = f.let(f"getelementptr {scalar}, ptr {lhs}, i64 {at}")
                x = broadcast(f, f.let(f"load {scalar}, ptr {place}"), scalar, self.lanes)
            for v, weight in enumerate(weights):
                if self.s.shared:
                    x = self._vector(lhs, at + v * self.lanes)
                result.append(multiplied(f, self.s.wide, x, weight, sums[m * len(weights) + v], self.lanes))
        return result

    def _vector(self, base: str, offset: int) -> str:
        return load(
            self.f, self.scalar, self.lanes, self.f.let(f"getelementptr {self.scalar}, ptr {base}, i64 {offset}")
        )

    # -- outputs

    def _index(self, output: tuple[int, int], feature: str) -> list[str]:
        """The result's index of one output, at a feature of the panel."""
        f, plan = self.f, self.plan
        index = [f"%{name}" for name in self.parameters]
        for number, offset in zip((plan.rows, plan.columns), output, strict=True):
            axis = plan.axes[number].axis
            if axis.dim >= 0 and offset:
                index[axis.dim] = affine(f, offset * axis.step, [(index[axis.dim], 1)])
        if feature != "0":
            index[self.s.feature_dim] = f.let(f"add i64 {index[self.s.feature_dim]}, {feature}")
        return index

    def _put(self, index: Sequence[str], value: str, lanes: int, mask: str | None) -> None:
        """Sums that lie along the result's last dimension, to the epilogue or the result."""
        f, s = self.f, self.s
        value = rounded(f, s.result, value, lanes, self.scalar)
        if self.call.store is not None:
            self.call.store(f, index, value, lanes, mask)
            return
        out = f.let(f"load ptr, ptr {f.let('getelementptr ptr, ptr %table, i64 2')}")
        number = affine(f, 0, list(zip(index, strides(s.dimensions), strict=True)))
        write(f, s.result, out, number, value, lanes, mask)

    def _store_features(self, sums: Sequence[str]) -> None:
        vectors = self.panel.vectors
        if self.call.store is not None:
            self._store_looped(sums)
            return
        for m, output in enumerate(self.outputs):
            for v in range(vectors):
                count = self.panel.valid if v == vectors - 1 else self.lanes
                index, value = self._index(output, str(v * self.lanes)), sums[m * vectors + v]
                if count == 1:  # LLVM 20 stores too many bytes for a masked store of one constant lane that truncates
                    value = self.f.let(f"extractelement {self.type} {value}, i64 0")
                    self._put(index, value, 1, None)
                else:
                    self._put(index, value, self.lanes, constant_mask(count, self.lanes))

    def _store_looped(self, sums: Sequence[str]) -> None:
        """Output by output, from memory: an epilogue is written out once for all of them."""
        f, lanes, vectors, plan = self.f, self.lanes, self.panel.vectors, self.plan
        kept = f.alloca(self.scalar, len(sums) * lanes)
        for i, value in enumerate(sums):
            store(f, self.scalar, lanes, value, self._place(kept, i * lanes))
        rows, columns = (max(output[k] for output in self.outputs) + 1 for k in (0, 1))
        with f.loop("0", str(rows)) as row, f.loop("0", str(columns)) as column:
            index = [f"%{name}" for name in self.parameters]
            for number, offset in ((plan.rows, row.index), (plan.columns, column.index)):
                axis = plan.axes[number].axis
                if axis.dim >= 0:
                    index[axis.dim] = affine(f, 0, [(index[axis.dim], 1), (offset, axis.step)])
            line = self._at(
                kept, affine(f, 0, [(row.index, columns * vectors * lanes), (column.index, vectors * lanes)])
            )
            for v in range(vectors):
                count = self.panel.valid if v == vectors - 1 else lanes
                few = 1 if count == 1 else lanes
                value = load(f, self.scalar, few, self._place(line, v * lanes))
                feature = index[self.s.feature_dim]
                place = list(index)
                if v:
                    place[self.s.feature_dim] = f.let(f"add i64 {feature}, {v * lanes}")
                self._put(place, value, few, None if few == 1 else constant_mask(count, lanes))

    def _store_turned(self, sums: Sequence[str]) -> None:
        """Turned in registers, then feature by feature, a line of outputs at a time."""
        f, lanes, vectors = self.f, self.lanes, self.panel.vectors
        room, width = -(-len(self.outputs) // lanes) * lanes, vectors * lanes
        kept, turned = f.alloca(self.scalar, width * room), f.alloca(self.scalar, (width + 1) * room)
        for i, value in enumerate(sums):
            store(f, self.scalar, lanes, value, self._place(kept, i * lanes))
        squares = vectors * room // lanes
        with f.loop("0", str(squares)) as loop:
            first = f.let(f"udiv i64 {loop.index}, {vectors}")
            v = f.let(f"urem i64 {loop.index}, {vectors}")
            source = self._at(kept, affine(f, 0, [(first, lanes * width), (v, lanes)]))
            target = self._at(turned, affine(f, 0, [(v, lanes * room), (first, lanes)]))
            block = [self._vector(source, i * width) for i in range(lanes)]
            for i, line in enumerate(transposed(f, block, self.scalar)):
                store(f, self.scalar, lanes, line, self._place(target, i * room))
        with f.loop("0", str((vectors - 1) * lanes + self.panel.valid)) as loop:
            line = f.let(f"getelementptr [{room} x {self.scalar}], ptr {turned}, i64 {loop.index}")
            for first in range(0, len(self.outputs), self.inner):
                for part in range(0, self.inner, lanes):
                    count = min(lanes, self.inner - part)
                    few = 1 << (count - 1).bit_length()
                    place = f.let(f"getelementptr {self.scalar}, ptr {line}, i64 {first + part}")
                    value = load(f, self.scalar, few, place)
                    index = self._index(self.outputs[first + part], loop.index)
                    self._put(index, value, few, constant_mask(count, few))
            loop.next = []

    def _store_each(self, sums: Sequence[str]) -> None:
        """One by one, where the result's last dimension is one that the tile does not span."""
        f, lanes, vectors = self.f, self.lanes, self.panel.vectors
        kept = f.alloca(self.scalar, len(sums) * lanes)
        for i, value in enumerate(sums):
            store(f, self.scalar, lanes, value, f.let(f"getelementptr {self.scalar}, ptr {kept}, i64 {i * lanes}"))
        for m, output in enumerate(self.outputs):
            with f.loop("0", str((vectors - 1) * lanes + self.panel.valid)) as loop:
                place = affine(f, m * vectors * lanes, [(loop.index, 1)])
                value = load(f, self.scalar, 1, f.let(f"getelementptr {self.scalar}, ptr {kept}, i64 {place}"))
                self._put(self._index(output, loop.index), value, 1, None)


def multiplied(f: Function, wide: DType, x: str, y: str, total: str, lanes: int) -> str:
    """total + x * y, rounded once where it rounds."""
    scalar = scalar_type(wide)
    type = vector(scalar, lanes)
    if wide.is_integral:
        return f.let(f"add {type} {total}, {f.let(f'mul {type} {x}, {y}')}")
    return f.let(f"call {type} @llvm.fma.{mangled(scalar, lanes)}({type} {x}, {type} {y}, {type} {total})")
