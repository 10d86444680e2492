"""Values: nodes become code in the outermost loop that binds all they need; lanes, affines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.cpu.emit.loops import LoopWriter
from hlokit.cpu.emit.scope import Scope, Val
from hlokit.cpu.llvm import float_constant, memory_type, scalar_type, splat, vector
from hlokit.cpu.loops.expr import Axis, Buffer, Node, RuntimeInt, children, reachable
from hlokit.cpu.math import primitives
from hlokit.cpu.math.functions import has_short_rsqrt
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


class ValueWriter(LoopWriter):
    """Writes the values of nodes. Memory and folds are in the classes derived from it."""

    # -- tiles

    def _shifted(self, affine: Affine, scope: Scope) -> int:
        """What the step of a tile adds to an affine."""
        tile, outer = self.loops.tile, scope
        while tile is not None and outer.parent is not None:
            if outer.bits & tile.bit:
                return affine.coefficient(tile) * outer.shift
            outer = outer.parent
        return 0

    # -- values

    def value(self, node: Node, scope: Scope) -> Val:
        """The node's value, readable in `scope`."""
        found = scope.holder(node.deps).memo.get(node)
        if found is not None:
            return found
        if self.loops.spills and scope.lane_axis is self.loops.vector:
            for below in self._order(node):  # folds outside, which fill rows, before what reads the rows
                if below.op == "fold" and below not in scope.holder(below.deps).memo:
                    if not below.deps & self.loops.vector.bit and below.data.scan is None:  # type: ignore[union-attr]
                        self.value(below, scope.holder(below.deps))
        kept = self._kept(scope)
        for below in self._order_to(node, kept) if kept else self._order(node):
            holder = scope.holder(below.deps)
            if below not in holder.memo:
                row = kept.get(below)
                holder.memo[below] = self._made(below, holder) if row is None else self._from_row(row, below, holder)
        return scope.holder(node.deps).memo[node]

    # -- rows: what a fold computed and the main loop needs again

    def _kept(self, scope: Scope) -> dict[Node, str]:
        """The nodes that a row holds for the lanes of this scope."""
        if not self.loops.spills or scope.lane_axis is not self.loops.vector:
            return {}
        found: dict[Node, str] = {}
        outer: Scope | None = scope
        while outer is not None:
            for node in self.loops.spills:
                row = outer.memo.get(("row", node))
                if row is not None:
                    found.setdefault(node, row)
            outer = outer.parent
        return found

    def _order_to(self, node: Node, kept: dict[Node, str]) -> list[Node]:
        """As _order, but rows need nothing."""
        return reachable([node], lambda here: [] if here in kept else _needed(here))

    def _row_place(self, row: str, node: Node, scope: Scope) -> str:
        axis = scope.lane_axis
        assert axis is not None
        return self.fn.let(f"getelementptr {scalar_type(node.dtype)}, ptr {row}, i64 {scope.of_axis(axis).axes[axis]}")

    def _from_row(self, row: str, node: Node, scope: Scope) -> Val:
        type = vector(scalar_type(node.dtype), scope.lanes)
        with self.at(scope) as fn:
            return Val(fn.let(f"load {type}, ptr {self._row_place(row, node, scope)}, align 4"), scope.lanes)

    def _order(self, node: Node) -> list[Node]:
        """What the node needs, children first; a fold's insides are its own affair."""
        found = self._orders.get(node)
        if found is None:
            found = self._orders[node] = reachable([node], _needed)
        return found

    def _made(self, node: Node, scope: Scope) -> Any:
        if node.op == "const":
            return Val(primitives.constant(node.data, node.dtype))
        if node.op == "number":
            return self._number(node.data, node.dtype, scope)
        if node.op == "range":
            affine, low, high = node.data
            return self._range(affine, low, high, scope)
        if node.op in ("load", "current"):
            return self._load(node, scope)
        if node.op == "fold":
            return self._fold(node, scope)
        if node.op == "part":
            return scope.holder(node.args[0].deps).memo[node.args[0]][node.data]
        if node.op == "hole":
            raise AssertionError("a hole outside a combiner")
        return self._primitive(node, [scope.holder(a.deps).memo[a] for a in node.args], scope)

    def _primitive(self, node: Node, values: list[Val], scope: Scope) -> Val:
        lanes = max(v.lanes for v in values)
        args = node.args
        uniform = False
        if node.op == "select" and values[0].lanes == 1 and lanes > 1:
            uniform = True
        names = [v.name if uniform and k == 0 else self._spread(v, lanes, a.dtype, scope)
                 for k, (v, a) in enumerate(zip(values, args, strict=True))]  # fmt: skip
        of = args[1].dtype if node.op == "select" else args[0].dtype
        if node.op == "div" and lanes > 1 and self._is_inverted(values[1], of):
            return self._divided(names[0], values[1], lanes, node, scope)
        if node.op == "div" and (squared := self._under_root(args[1], scope)) is not None:
            return self._divided_by_root(node, names[0], self._spread(squared, lanes, of, scope), lanes, scope)
        with self.at(scope) as fn:
            more: dict[str, Any] = {"uniform_condition": True} if uniform else {}
            name = primitives.emit(fn, node.op, of, lanes, names, node.dtype, strict=self.loops.strict, **more)
        return Val(name, lanes)

    def _under_root(self, divisor: Node, scope: Scope) -> Val | None:
        """What the divisor is the root of, where x * rsqrt takes less than the division."""
        if divisor.op != "sqrt" or divisor.dtype.name != "f32" or self.loops.strict or not has_short_rsqrt(self.target):
            return None
        return scope.holder(divisor.args[0].deps).memo.get(divisor.args[0])

    def _divided_by_root(self, node: Node, name: str, squared: str, lanes: int, scope: Scope) -> Val:
        dtype = node.dtype
        with self.at(scope) as fn:
            root = primitives.emit(fn, "rsqrt", dtype, lanes, [squared], dtype)
            if node.args[0].op == "const" and node.args[0].data == 1:
                return Val(root, lanes)
            return Val(primitives.emit(fn, "mul", dtype, lanes, [name, root], dtype), lanes)

    def _is_inverted(self, divisor: Val, dtype: DType) -> bool:
        """Whether all lanes are divided by one number, found at run time: its reciprocal is taken once."""
        return divisor.lanes == 1 and not divisor.is_constant and dtype.name in ("f32", "f64") and not self.loops.strict

    def _divided(self, name: str, divisor: Val, lanes: int, node: Node, scope: Scope) -> Val:
        """x / s as q = x * (1 / s), corrected by what q * s - x leaves: rounded as a division is (Markstein).

        But for divisors whose bits are all ones and quotients near the ends of the range, where the last bit may
        differ. The corrections' signs keep that of a zero; an infinite q has none. Divisors that are negative or have
        no good reciprocal divide.
        """
        dtype = node.dtype
        scalar, type = scalar_type(dtype), vector(scalar_type(dtype), lanes)
        holder = scope.holder(node.args[1].deps)
        key = ("inverse", divisor.name)
        if key not in holder.memo:
            low, high = (float_constant(2.0**n, scalar) for n in ((-126, 125) if dtype.bits == 32 else (-1022, 1021)))
            with self.at(holder) as fn:
                inverse = fn.let(f"fdiv {scalar} {float_constant(1.0, scalar)}, {divisor.name}")
                tests = [
                    f"fcmp {test} {scalar} {divisor.name}, {bound}" for test, bound in (("oge", low), ("ole", high))
                ]
                holder.memo[key] = inverse, fn.let(f"and i1 {fn.let(tests[0])}, {fn.let(tests[1])}")
        inverse, is_good = holder.memo[key]
        by, times = (self._spread(v, lanes, dtype, scope) for v in (divisor, Val(inverse)))
        with self.at(scope) as fn:
            good, bad, after = (fn.new_block(label) for label in ("times", "divide", "quotient"))
            fn.branch(is_good, good, bad)
            fn.start(good)
            fma = f"call {type} @llvm.fma.v{lanes}{dtype.name}({type}"
            first = fn.let(f"fmul {type} {name}, {times}")
            left = fn.let(f"{fma} {first}, {type} {by}, {type} {fn.let(f'fneg {type} {name}')})")
            better = fn.let(f"{fma} {fn.let(f'fneg {type} {left}')}, {type} {times}, {type} {first})")
            some = fn.let(f"fcmp ord {type} {better}, {better}")
            product = fn.let(f"select <{lanes} x i1> {some}, {type} {better}, {type} {first}")
            fn.jump(after)
            fn.start(bad)
            quotient = fn.let(f"fdiv {type} {name}, {by}")
            fn.jump(after)
            fn.start(after)
            return Val(fn.let(f"phi {type} [ {product}, %{good} ], [ {quotient}, %{bad} ]"), lanes)

    def _spread(self, value: Val, lanes: int, dtype: DType, scope: Scope) -> str:
        """The value with so many lanes."""
        if value.lanes == lanes:
            return value.name
        scalar = scalar_type(dtype)
        if value.is_constant:
            return splat(value.name, scalar, lanes)
        return self._splatted(value.name, scalar, lanes, scope)

    def _splatted(self, name: str, scalar: str, lanes: int, scope: Scope) -> str:
        key = ("splat", name, lanes)
        found = scope.memo.get(key)
        if found is None:
            type = vector(scalar, lanes)
            with self.at(scope) as fn:
                one = fn.let(f"insertelement {type} poison, {scalar} {name}, i64 0")
                found = fn.let(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
            scope.memo[key] = found
        return found

    # -- affines

    def _terms(self, affine: Affine, scope: Scope) -> tuple[int, list[tuple[Scope, str, int]], list[tuple[str, int]]]:
        """(coefficient of the lane axis, scalar terms: (scope, i64 name, factor), vector terms: (i64 name, factor))."""
        lane = 0
        scalars: list[tuple[Scope, str, int]] = []
        vectors: list[tuple[str, int]] = []
        for key, c in affine.terms:
            if isinstance(key, Axis):
                owner = scope.of_axis(key)
                if key is scope.lane_axis:
                    lane = c
                scalars.append((owner, owner.axes[key], c))
                continue
            assert isinstance(key, RuntimeInt)
            value = self.value(key.node, scope)
            owner = scope.holder(key.node.deps)
            memo = ("wide", value.name)
            name = owner.memo.get(memo)
            if name is None:
                with self.at(owner) as fn:
                    old, new = vector(scalar_type(key.node.dtype), value.lanes), vector("i64", value.lanes)
                    name = fn.let(f"sext {old} {value.name} to {new}") if old != new else value.name
                owner.memo[memo] = name
            if value.lanes > 1:
                vectors.append((name, c))
            else:
                scalars.append((owner, name, c))
        scalars.sort(key=lambda term: term[0].depth)
        return lane, scalars, vectors

    def _constant_part(self, affine: Affine, scope: Scope) -> int:
        """The constant, with what loops of one step add to it."""
        total = affine.constant + self._shifted(affine, scope)
        for key, c in affine.terms:
            if isinstance(key, Axis):
                name = scope.of_axis(key).axes[key]
                if name.isdigit():
                    total += c * int(name)
        return total

    def _address(self, buffer: Buffer, affine: Affine, scope: Scope) -> tuple[str, int, list[tuple[str, int]]]:
        """(pointer to the first lane's element, lane coefficient, vector terms)."""
        type = memory_type(buffer.dtype)
        lane, scalars, vectors = self._terms(affine, scope)
        constant = affine.constant + self._shifted(affine, scope)
        pointer = self._pointer(buffer)
        key: tuple[Any, ...] = ()
        for owner, name, c in scalars:
            if name.isdigit():
                constant += c * int(name)
                continue
            key = (*key, name, c)
            memo = owner.memo.get(("address", buffer, key))
            if memo is None:
                with self.at(owner) as fn:
                    product = owner.memo.get(("product", name, c))
                    if product is None:
                        product = name if c == 1 else fn.let(f"mul nsw i64 {name}, {c}")
                        owner.memo[("product", name, c)] = product
                    memo = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {product}", "p")
                owner.memo[("address", buffer, key)] = memo
            pointer = memo
        if constant:
            memo = scope.memo.get(("at", pointer, constant))
            if memo is None:
                with self.at(scope) as fn:
                    memo = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {constant}", "p")
                scope.memo[("at", pointer, constant)] = memo
            pointer = memo
        return pointer, lane, vectors

    def _pointer(self, buffer: Buffer) -> str:
        found = self._pointers.get(buffer)
        if found is None:
            found = self._pointers[buffer] = self.fn.table_pointer(len(self.buffers))
            self.buffers.append(buffer)
        return found

    def _lane_numbers(self, scalar: str, lanes: int, factor: int) -> str:
        return "<" + ", ".join(f"{scalar} {k * factor}" for k in range(lanes)) + ">"

    def _number(self, affine: Affine, dtype: DType, scope: Scope) -> Val:
        """An affine as a value of an integer type that holds it."""
        lane, total, vectors = self._scalar_sum(affine, scope)
        scalar = scalar_type(dtype)
        constant = self._constant_part(affine, scope)
        with self.at(scope) as fn:
            if total is None:
                base = str(constant)
            else:
                base = fn.let(f"add nsw i64 {total}, {constant}") if constant else total
                if scalar != "i64":
                    base = fn.let(f"trunc i64 {base} to {scalar}")
        lanes = scope.lanes if lane or vectors else 1
        if lanes == 1:
            return Val(base)
        type = vector(scalar, lanes)
        name = splat(base, scalar, lanes) if total is None else self._splatted(base, scalar, lanes, scope)
        with self.at(scope) as fn:
            if lane:
                name = fn.let(f"add {type} {name}, {self._lane_numbers(scalar, lanes, lane)}")
            for term, c in vectors:
                if scalar != "i64":
                    term = fn.let(f"trunc {vector('i64', lanes)} {term} to {type}")
                if c != 1:
                    term = fn.let(f"mul {type} {term}, {splat(str(c), scalar, lanes)}")
                name = fn.let(f"add {type} {name}, {term}")
        return Val(name, lanes)

    def _scalar_sum(self, affine: Affine, scope: Scope) -> tuple[int, str | None, list[tuple[str, int]]]:
        lane, scalars, vectors = self._terms(affine, scope)
        total: str | None = None
        key: tuple[Any, ...] = ()
        for owner, name, c in scalars:
            if name.isdigit():
                continue
            key = (*key, name, c)
            memo = owner.memo.get(("sum", key))
            if memo is None:
                with self.at(owner) as fn:
                    memo = name if c == 1 else fn.let(f"mul nsw i64 {name}, {c}")
                    if total is not None:
                        memo = fn.let(f"add nsw i64 {total}, {memo}")
                owner.memo[("sum", key)] = memo
            total = memo
        return lane, total, vectors

    def _range(self, affine: Affine, low: int, high: int, scope: Scope) -> Val:
        """low <= affine < high."""
        small = affine.low >= -(2**31) and affine.high < 2**31
        dtype = dtypes.s32 if small else dtypes.s64
        value = self._number(affine - low, dtype, scope) if small else self._number(affine, dtype, scope)
        scalar = scalar_type(dtype)
        type = vector(scalar, value.lanes)
        with self.at(scope) as fn:
            name = value.name
            if not small and low:
                name = fn.let(f"sub {type} {name}, {splat(str(low), scalar, value.lanes)}")
            if low <= affine.low:
                name = fn.let(f"icmp slt {type} {name}, {splat(str(high - low), scalar, value.lanes)}")
            elif high > affine.high:
                name = fn.let(f"icmp sge {type} {name}, {splat('0', scalar, value.lanes)}")
            else:
                name = fn.let(f"icmp ult {type} {name}, {splat(str(high - low), scalar, value.lanes)}")
        return Val(name, value.lanes)

    # -- what derived classes give

    def _load(self, node: Node, scope: Scope) -> Val:
        raise NotImplementedError

    def _fold(self, node: Node, scope: Scope) -> list[Val]:
        raise NotImplementedError


def _needed(node: Node) -> Sequence[Node]:
    """What a node's code reads; a fold's insides are written by the fold."""
    return node.data.inits if node.op == "fold" else children(node)
