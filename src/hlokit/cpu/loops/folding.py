"""Folding: the axes of a kernel, and folds over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from math import prod
from typing import Any

from hlokit.analysis.reducers import is_semigroup, takes_any_order_of_numbers
from hlokit.cpu.loops.arithmetic import Arithmetic, parts_of
from hlokit.cpu.loops.called import CalledFunction, Turned
from hlokit.cpu.loops.expr import Axis, Fold, Node, Pair, identity_name, index_deps
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.retries import Materialise, Turn
from hlokit.forms.affine import Affine, Index
from hlokit.forms.emitter import Condition
from hlokit.forms.fold import FoldDimension
from hlokit.forms.primitives import PRIMITIVES
from hlokit.hlo.instruction import Instruction
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_UNROLLED = 32
"""Folds of at most so many steps are written out."""

_NEAR = 1 << 19
"""Bytes of an array that may be gone through column by column: they stay in the second-level cache."""


class Group:
    """A dimension's extent as axes, outer first: one axis, or several where reshapes cut it.

    `turned`: its places are counted from the last to the first.
    """

    def __init__(self, extent: int, axes: Sequence[Axis], turned: bool = False) -> None:
        self.extent = extent
        self.axes = tuple(axes)
        self.turned = turned
        self.affine = Affine.of(0)
        for axis in axes:
            self.affine = self.affine * axis.extent + axis
        if turned:
            self.affine = self.affine * -1 + (extent - 1)
        self.deps = 0
        for axis in axes:
            self.deps |= axis.bit


class Reader:
    """A reader of an operand."""

    def __init__(self, build: Folding, leaf: Leaf) -> None:
        self.build = build
        self.leaf = leaf
        self.shape = leaf.shape

    def __call__(self, index: Index) -> Any:
        return self.build.element(self.leaf, index)


@dataclass(eq=False)
class Folding(Arithmetic):
    """The axes of one kernel, and folds.

    splits        factors of its groups by their number
    turned        numbers of groups that are walked backwards; None: none may be
    around        the kernel's loops, outermost first, where nothing else orders them
    _folding      the axes that each fold binds whose bodies are being built; None for one that is written out
    _folded_for   the axes on which folds that are in no other fold depend
    _inside       the axes on which the fold depends whose bodies are being built
    _scanned      along which cumulative folds go
    """

    splits: Mapping[int, Sequence[int]]
    _: KW_ONLY
    turned: AbstractSet[int] | None = None
    around: Sequence[Axis] = field(default=(), init=False)
    groups: list[Group] = field(default_factory=list[Group], init=False)
    _bits: int = field(default=1, init=False)
    _folding: list[int | None] = field(default_factory=list[int | None], init=False)
    _folded_for: list[int] = field(default_factory=list[int], init=False)
    _inside: int = field(default=0, init=False)
    _scanned: set[Axis] = field(default_factory=set[Axis], init=False)

    @abstractmethod
    def element(self, leaf: Leaf, index: Index) -> Any:
        """The element of an array."""

    # -- axes

    def group(self, extent: int) -> Group:
        """A new dimension of the iteration space."""
        factors = self.splits.get(len(self.groups), (extent,))
        axes: list[Axis] = []
        for factor in factors:
            self._bits += 1
            axes.append(Axis(f"i{self._bits - 2}", factor, 1 << (self._bits - 1)))
        self.groups.append(Group(extent, axes, self.turned is not None and len(self.groups) in self.turned))
        return self.groups[-1]

    def index(self, sizes: Sequence[int]) -> Index:
        """One new group for each dimension that has not just one place."""
        return tuple(self.group(n).affine if n != 1 else Affine.of(0) for n in sizes)

    def readers(self, instruction: Instruction) -> list[Reader]:
        return [Reader(self, self.source.leaf(operand)) for operand in instruction.operands]

    # -- folds

    def _fold(self, instruction: Instruction, index: Index) -> Sequence[Any]:
        op = instruction.op
        readers = self.readers(instruction)
        spec = op.fold([r.shape for r in readers])
        combiner = CalledFunction(self, dict(instruction.called_by_role())[spec.combiner])
        operands, inits = readers[: spec.count], [readers[k](()) for k in spec.inits]
        sizes = operands[0].shape.dimensions
        if 0 in sizes:
            return inits
        scanned = [k for k, d in enumerate(spec.dimensions) if d.size > 1]
        if len(scanned) == 1 and sizes[scanned[0]] > 4 and all(d.is_kept for d in spec.dimensions if d.size <= 1):
            (k,) = scanned
            if spec.dimensions[k].is_scan(sizes[k]):
                return self._scan(instruction, operands, inits, combiner, index, k, forwards=True)
            if spec.dimensions[k].is_reverse_scan(sizes[k]) and self._may_turn(inits, combiner):
                return self._scan(instruction, operands, inits, Turned(combiner), index, k, forwards=False)
        steps = prod(d.size for d in spec.dimensions)
        places: list[Affine] = []
        bound: list[Axis] = []
        own = index_deps(index)
        for guard in self.guards:  # they are about the axes round the fold, and hold in it
            own |= guard.deps
        conditions: list[Condition] = []
        if steps <= _UNROLLED:
            self._folding.append(None)
            values = self._written_out(spec.dimensions, sizes, operands, inits, combiner, index)
            self._folding.pop()
            return values
        self._check_columns(instruction, own)
        self._check_nesting(instruction, own)
        for d, size in zip(spec.dimensions, sizes, strict=True):
            step = Affine.of(0)
            if d.size > 1:
                group = self._bound_group(d.size, own)
                own |= group.deps
                bound += group.axes
                step = group.affine
            place, found = self._place(d, size, index, step)
            places.append(place)
            conditions += found
        valid = self._all(conditions)
        if valid is False:
            return inits
        outer = self.guards
        if valid is not True:
            self.guards = self._with(outer, valid)
        self._folding.append(sum(axis.bit for axis in bound))
        inside, self._inside = self._inside, own
        bodies = [operand(tuple(places)) for operand in operands]
        self._inside = inside
        self._folding.pop()
        self.guards = outer
        return self._folded(inits, bodies, combiner, tuple(bound), None if valid is True else valid)

    def _check_columns(self, instruction: Instruction, own: int) -> None:
        """Columns of a large array are folded before: with them the kernel would go through it column by column."""
        if not self.around or not self.around[-1].bit & own:
            return
        missing = [k for k, axis in enumerate(self.around) if axis.extent > 1 and not axis.bit & own]
        operand = self.source.leaf(instruction.operands[0]).shape
        if missing and operand.nbytes >= _NEAR * prod(axis.extent for axis in self.around[: missing[0]]):
            raise Materialise(self.source.leaf(instruction, 0), "rows are gone through, of which it folds columns")

    def _check_nesting(self, instruction: Instruction, own: int) -> None:
        """One of two folds, of which each needs an axis that the other does not, is computed anew for all of them."""
        if any(axes is not None for axes in self._folding):
            return
        if any(own & ~other and other & ~own for other in self._folded_for):
            raise Materialise(self.source.leaf(instruction, 0), "another fold needs other loops around it")
        self._folded_for.append(own)

    def _place(self, d: FoldDimension, size: int, index: Index, step: Affine) -> tuple[Affine, list[Condition]]:
        """The operand's place at a step, and where it is one."""
        start = index[d.output] * d.stride if d.output is not None else Affine.of(0)
        place = start + step * d.dilation - d.low
        conditions: list[Condition] = []
        if d.base_dilation > 1:
            conditions.append(self.inrange(self.mod(place, d.base_dilation), 0, 1))
            place = self.floordiv(place, d.base_dilation)
        conditions.append(self.inrange(place, 0, size))
        return place, conditions

    def _bound_group(self, extent: int, own: int) -> Group:
        """The first group of this extent that is not in the fold's own index: so equal bodies become one node."""
        for group in self.groups:
            if group.extent == extent and not group.deps & own:
                return group
        return self.group(extent)

    def _folded(
        self,
        inits: Sequence[Any],
        bodies: Sequence[Any],
        combiner: CalledFunction | Turned,
        bound: tuple[Axis, ...],
        valid: Node | None,
        scan: Axis | None = None,
    ) -> Sequence[Any]:
        results, slots = self._combining(inits, bodies, combiner)
        dtype = results[0].dtype
        is_extreme = len(results) == 1 and identity_name(results[0]) in ("max", "min")
        if is_extreme and dtype.is_floating and dtype.bits < 32:  # nothing rounds, so it is narrowed once, at the end
            inits, bodies = ([self.convert(v, dtypes.f32) for v in values] for values in (inits, bodies))
            holes = [self._hole(dtypes.f32, k) for k in (0, 1)]
            extreme = self.primitive(PRIMITIVES[identity_name(results[0]) or ""], holes, dtypes.f32)
            fold = Fold(bound, parts_of(inits), parts_of(bodies), (extreme,), slots, valid, scan)  # type: ignore[arg-type]
            node = self.expressions.node("fold", dtypes.f32, (), fold)
            return [self.convert(v, dtype) for v in self._assembled(node, [dtypes.f32])]
        fold = Fold(bound, parts_of(inits), parts_of(bodies), results, slots, valid, scan)
        node = self.expressions.node("fold", fold.inits[0].dtype, (), fold)
        return self._assembled(node, [v.dtype for v in inits])

    def _combining(
        self, inits: Sequence[Any], bodies: Sequence[Any], combiner: CalledFunction | Turned
    ) -> tuple[tuple[Node, ...], tuple[tuple[int, int], ...]]:
        """The combiner on holes, and what these hold: accumulators, then elements."""
        accumulators = [self._hole(v.dtype, k) for k, v in enumerate(inits)]
        elements = [self._hole(v.dtype, k + len(inits)) for k, v in enumerate(bodies)]
        outer, self.guards = self.guards, ()
        results = combiner.results(*accumulators, *elements)
        self.guards = outer
        return parts_of(results), tuple(hole.data for hole in parts_of([*accumulators, *elements]))

    def _hole(self, dtype: DType, place: int) -> Any:
        if dtype.is_complex:
            parts = [self.expressions.node("hole", dtype.real, (), (place, k)) for k in (0, 1)]
            return Pair(dtype, *parts)
        return self.expressions.node("hole", dtype, (), (place, 0))

    def _assembled(self, node: Node, types: Sequence[DType]) -> list[Any]:
        values: list[Any] = []
        k = 0
        for dtype in types:
            if dtype.is_complex:
                both = [self.expressions.node("part", dtype.real, (node,), k + j) for j in (0, 1)]
                values.append(Pair(dtype, *both))
                k += 2
            else:
                values.append(self.expressions.node("part", dtype, (node,), k))
                k += 1
        return values

    def _scan(
        self,
        instruction: Instruction,
        operands: Sequence[Reader],
        inits: Sequence[Any],
        combiner: CalledFunction | Turned,
        index: Index,
        dimension: int,
        *,
        forwards: bool,
    ) -> Sequence[Any]:
        """Folds up to each element, or from it on, where the kernel goes along the whole axis; else they are stored."""
        place = index[dimension]
        reading = {Affine.of(a): a for g in self.groups for a in g.axes}
        backwards = {Affine.of(a) * -1 + (a.extent - 1): a for a in reading.values()}
        axis = reading.get(place) or backwards.get(place)
        others = index_deps((*index[:dimension], *index[dimension + 1 :]))
        if axis is None or axis.extent != operands[0].shape.dimensions[dimension] or self.guards or others & axis.bit:
            raise Materialise(self.source.leaf(instruction, 0), "a cumulative fold read elsewhere than along its axis")
        if (place in reading) is not forwards:
            group = next(g for g in self.groups if axis in g.axes)
            if self.turned is None or group.turned or len(group.axes) > 1 or self._folding or axis in self._scanned:
                raise Materialise(self.source.leaf(instruction, 0), "a cumulative fold against its kernel's direction")
            raise Turn(axis)
        if self._scanned - {axis}:
            raise Materialise(self.source.leaf(instruction, 0), "another cumulative fold goes along another axis")
        self._scanned.add(axis)
        self._folding.append(axis.bit)
        bodies = [operand(index) for operand in operands]
        self._folding.pop()
        return self._folded(inits, bodies, combiner, (), None, axis)

    def _may_turn(self, inits: Sequence[Any], combiner: CalledFunction) -> bool:
        """Whether a fold may go from the last element to the first: as one of f(first, f(second, ...)). In strict code
        if that changes nothing: sums of floats begin at each element anew (RWIN-5), and cost the square of the size."""
        if self.strict:
            return len(inits) == 1 and takes_any_order_of_numbers(combiner.computation)
        combined, _ = self._combining(inits, inits, combiner)
        if len(combined) != 1:
            return False
        if identity_name(combined[0]) is not None:
            return True
        return inits[0].op == "const" and is_semigroup(combiner.computation, inits[0].data)

    def _written_out(
        self,
        dimensions: Sequence[Any],
        sizes: Sequence[int],
        operands: Sequence[Reader],
        inits: Sequence[Any],
        combiner: CalledFunction,
        index: Index,
    ) -> Sequence[Any]:
        values = list(inits)
        outer = self.guards
        for flat in range(prod(d.size for d in dimensions)):
            places: list[Affine] = []
            conditions: list[Condition] = []
            rest = flat
            for d in reversed(dimensions):
                rest, step = divmod(rest, d.size)
                places.append(Affine.of(step))
            for k, (d, size) in enumerate(zip(dimensions, sizes, strict=True)):
                place, found = self._place(d, size, index, places[-1 - k])
                conditions += found
                places[-1 - k] = place
            valid = self._all(conditions)
            if valid is False:
                continue
            if valid is True:
                values = list(combiner.results(*values, *(o(tuple(reversed(places))) for o in operands)))
                continue
            self.guards = self._with(outer, valid)
            new = combiner.results(*values, *(o(tuple(reversed(places))) for o in operands))
            self.guards = outer
            values = [self._select(valid, a, b) for a, b in zip(new, values, strict=True)]
        return values
