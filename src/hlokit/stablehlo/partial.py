"""Values that are the sum of several devices' values: Shardy's `unreduced` axes.

The operations of a program run on whole values. Where a value enters or leaves the program, or a region that devices
run by themselves, with unreduced axes, each device has a term of it: terms are summed where they enter, and a whole
value is taken apart into terms where it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from hlokit.builder import collectives, constants, elementwise, movement
from hlokit.builder.core import Builder, XlaOp
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.collectives import AllReduce
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Call
from hlokit.ops.conversion import Convert
from hlokit.ops.elementwise import Add, Copy, Negate, Subtract
from hlokit.ops.movement import Broadcast, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicSlice
from hlokit.ops.structure import Constant
from hlokit.stablehlo.shardings import Cut, Placement, cut_along
from hlokit.types import dtype as dtypes
from hlokit.types.groups import ReplicaGroups
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.shape import Shape

Groups: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The partitions whose terms are summed, group by group."""

_OF_EACH = (Add, Subtract)
_OF_ONE = (Broadcast, Convert, Copy, Negate, Reshape, Transpose)
_CHANNEL = 1


@dataclass
class Terms:
    """Terms and placements of a program's values on its devices, as far as they are known.

    channel   gives the channel of a collective with a handle, for its kind and groups
    placed    where a value is wanted, by what the program says
    sums      the values that were summed, by the instruction that is their sum: their groups
    """

    partitions: int
    replicas: int
    channel: Callable[..., int]
    placed: dict[Instruction, Placement] = field(default_factory=dict[Instruction, Placement])
    sums: dict[Instruction, Groups] = field(default_factory=dict[Instruction, Groups])

    def attributes(self, kind: str, groups: Groups) -> dict[str, Any]:
        """A collective's attributes for groups of partitions, in each replica, by global device ids."""
        rows = [[r * self.partitions + device for device in group] for r in range(self.replicas) for group in groups]
        found = ReplicaGroups.explicit(rows)
        return {
            "channel_id": self.channel(_CHANNEL, kind, found), "replica_groups": found, "use_global_device_ids": True,
        }  # fmt: skip

    def summed(self, value: XlaOp, groups: Groups) -> XlaOp:
        """The sum of the terms that the devices of each group have."""
        if not groups or max(map(len, groups)) < 2:
            return value
        op = AllReduce(**self.attributes("sum", groups))
        total = value.builder.emit(op, [value], [_addition(value)])
        self.sums[total.instruction] = groups
        return total

    def term(self, value: XlaOp, groups: Groups, placement: Placement | None = None) -> XlaOp:
        """A term of a whole value on each device; over each group they sum up to it.

        The terms are those that computing where the operands are gives, as far as the program says where (a product's
        or a sum's operands cut along the `placement`'s unreduced axes), else the parts that devices have, else the
        value on a group's first device; the rest is zeros.
        """
        if not groups or max(map(len, groups)) < 2:
            return value
        splitting = _Splitting(self, value.builder, groups, placement)
        return splitting.term(value.instruction)

    def remove_unused(self) -> None:
        """Takes out the sums that nothing uses, so that devices do not meet for them."""
        for total in reversed(self.sums):
            parent = total.parent
            if parent is not None and not total.users and parent.root is not total:
                parent.remove(total)


class _Splitting:
    """One value into terms, along the unreduced axes of a placement (which may be unknown)."""

    def __init__(self, terms: Terms, builder: Builder, groups: Groups, placement: Placement | None) -> None:
        self.terms, self.builder, self.groups = terms, builder, groups
        self.mesh: Mesh | None = placement.mesh if placement is not None else None
        self.axes = placement.unreduced if placement is not None else ()

    def term(self, root: Instruction) -> XlaOp:
        """Operands first: the terms of the values that `root` is a linear function of make its own."""
        needed: dict[Instruction, tuple[int, ...]] = {}
        pending = [root]
        while pending:
            instruction = pending.pop()
            if instruction not in needed:
                needed[instruction] = self._linear_in(instruction)
                pending += [instruction.operands[i] for i in needed[instruction]]
        made: dict[Instruction, XlaOp] = {}
        for instruction in sorted(needed, key=lambda instruction: instruction.id):
            places = needed[instruction]
            if not places:
                made[instruction] = self._leaf(instruction)
                continue
            operands = [
                made[o] if i in places else XlaOp(self.builder, o) for i, o in enumerate(instruction.operands)
            ]
            made[instruction] = self.builder.emit(instruction.op, operands, shape=instruction.shape)
        return made[root]

    def _linear_in(self, instruction: Instruction) -> tuple[int, ...]:
        """The operands, by number, in whose terms the value is linear; () if it is to be split itself."""
        if instruction in self.terms.sums or not self._is_unreduced(instruction):
            return ()
        if isinstance(instruction.op, _OF_EACH):
            return (0, 1)
        if isinstance(instruction.op, Convert) and not _is_exact(instruction):
            return ()
        return (0,) if isinstance(instruction.op, _OF_ONE) else ()

    def _is_unreduced(self, instruction: Instruction) -> bool:
        """Whether the program leaves it open, or says that the value is unreduced along the axes."""
        placement = self.terms.placed.get(instruction)
        return placement is None or (bool(self.axes) and set(self.axes) <= set(placement.unreduced))

    def _leaf(self, instruction: Instruction) -> XlaOp:
        value = XlaOp(self.builder, instruction)
        if self.terms.sums.get(instruction) == self.groups:
            return XlaOp(self.builder, instruction.operands[0])
        if not self._is_unreduced(instruction):
            return self._parts(value, self.terms.placed[instruction])
        if self.mesh is not None and isinstance(instruction.op, Dot):
            return self._product(instruction, instruction.op)
        if self.mesh is not None and isinstance(instruction.op, Reduce) and _is_sum(instruction):
            return self._total(instruction, instruction.op)
        if self.mesh is not None and isinstance(instruction.op, Scatter) and _is_scattered_sum(instruction):
            return self._scattered(instruction, instruction.op)
        return self._on_first(value, self.axes)

    def _product(self, instruction: Instruction, op: Dot) -> XlaOp:
        """Each device multiplies what it has along the contracting dimensions."""
        lhs, rhs = instruction.operands
        cuts: tuple[dict[int, Cut], dict[int, Cut]] = ({}, {})
        rest = list(self.axes)
        for d, e in zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True):
            axes = self._taken(rest, lhs, d) or self._taken(rest, rhs, e)
            cut = self._cut(axes, lhs.shape.dimensions[d])
            if cut is not None and lhs.shape.dimensions[d] == rhs.shape.dimensions[e]:
                cuts[0][d] = cuts[1][e] = cut
                rest = [axis for axis in rest if axis not in axes]
        pieces = [shard(XlaOp(self.builder, o), c) for o, c in zip((lhs, rhs), cuts, strict=True)]
        return self._on_first(self.builder.emit(op, pieces, shape=instruction.shape), rest)

    def _total(self, instruction: Instruction, op: Reduce) -> XlaOp:
        """Each device sums up what it has along the dimensions."""
        array, init = instruction.operands
        rest, cuts = list(self.axes), dict[int, Cut]()
        for d in op.dimensions:
            axes = self._taken(rest, array, d)
            cut = self._cut(axes, array.shape.dimensions[d])
            if cut is not None:
                cuts[d] = cut
                rest = [axis for axis in rest if axis not in axes]
        piece = shard(XlaOp(self.builder, array), cuts)
        total = self.builder.emit(op, [piece, XlaOp(self.builder, init)], instruction.called, shape=instruction.shape)
        return self._on_first(total, rest)

    def _scattered(self, instruction: Instruction, op: Scatter) -> XlaOp:
        """Each device adds the updates that it has; the first has the array that they are added to."""
        array, indices, updates = instruction.operands
        listed = [d for d in range(indices.shape.rank) if d != op.index_vector_dim]
        counted = [d for d in range(updates.shape.rank) if d not in op.update_window_dims]
        rest, taken = list(self.axes), list[Axis]()
        cuts: tuple[dict[int, Cut], dict[int, Cut]] = ({}, {})
        for i, u in zip(listed, counted, strict=True):
            axes = self._taken(rest, updates, u) or self._taken(rest, indices, i)
            cut = self._cut(axes, updates.shape.dimensions[u])
            if cut is not None:
                cuts[0][i] = cuts[1][u] = cut
                taken += axes
                rest = [axis for axis in rest if axis not in axes]
        pieces = [shard(XlaOp(self.builder, o), c) for o, c in zip((indices, updates), cuts, strict=True)]
        start = self._on_first(XlaOp(self.builder, array), taken)
        total = self.builder.emit(op, [start, *pieces], instruction.called, shape=instruction.shape)
        return self._on_first(total, rest)

    def _taken(self, rest: Sequence[Axis], value: Instruction, dimension: int) -> list[Axis]:
        """Those of the axes that a dimension of the value is cut along: as the program says it, else as the value's
        operands are, where it is made element by element."""
        pending, seen = [(value, dimension)], set[tuple[Instruction, int]]()
        while pending:
            value, dimension = pending.pop()
            if (value, dimension) in seen:
                continue
            seen.add((value, dimension))
            placement = self.terms.placed.get(value)
            if placement is not None and placement.mesh == self.mesh and dimension < len(placement.dimensions):
                axes = [axis for axis in placement.dimensions[dimension] if axis in rest]
                if axes:
                    return axes
            elif isinstance(value.op, Call):
                pending.append((value.called[0].root, dimension))
            elif isinstance(value.op, Broadcast) and dimension in value.op.dimensions:
                pending.append((value.operands[0], value.op.dimensions.index(dimension)))
            elif value.op.elementwise:
                pending += [(o, dimension) for o in reversed(value.operands) if o.shape.rank == value.shape.rank]
        return []

    def _cut(self, axes: Sequence[Axis], size: int) -> Cut | None:
        """None if there is nothing to cut along, or parts would not be of one size."""
        cut = cut_along(self.mesh, axes) if self.mesh is not None and axes else None
        return cut if cut is not None and cut.count > 1 and size % cut.count == 0 else None

    def _parts(self, value: XlaOp, placement: Placement) -> XlaOp:
        """Each device has the part that its place says, zeros elsewhere."""
        rest = list(self.axes)
        for d, axes in enumerate(placement.dimensions):
            if placement.mesh != self.mesh or not set(axes) & set(rest):
                continue
            sizes = list(map(placement.mesh.size_of, axes))
            step = -(-value.shape.dimensions[d] // math.prod(sizes))
            index = movement.iota(self.builder, Shape.array(dtypes.s64, value.shape.dimensions), d)
            part = elementwise.div(index, np.int64(max(step, 1)))
            for i, axis in enumerate(axes):
                if axis in rest:
                    outer = elementwise.div(part, np.int64(math.prod(sizes[i + 1 :])))
                    digit = elementwise.rem(outer, np.int64(sizes[i]))
                    here = self._of_device(cut_along(placement.mesh, [axis]).part.astype(np.int64))
                    value = elementwise.select(elementwise.eq(digit, here), value, constants.zeros_like(value))
                    rest.remove(axis)
        return self._on_first(value, rest)

    def _on_first(self, value: XlaOp, axes: Sequence[Axis]) -> XlaOp:
        """The value on the first device along the axes, zeros on the others."""
        if self.mesh is None:
            groups = self.groups
        elif axes:
            groups = cut_along(self.mesh, axes).groups
        else:
            return value
        first = np.zeros(self.terms.partitions, np.bool_)
        first[[group[0] for group in groups]] = True
        return elementwise.select(self._of_device(first), value, constants.zeros_like(value))

    def _of_device(self, table: np.ndarray[Any, Any]) -> XlaOp:
        """The device's row of a table, a scalar."""
        device = collectives.partition_id(self.builder)
        row = self.builder.emit(DynamicSlice((1,)), [self.builder.constant(table), device])
        return movement.reshape(row, ())


def shard(value: XlaOp, cuts: dict[int, Cut]) -> XlaOp:
    """The block of a whole value that belongs to the device: of the cuts of its dimensions, which divide them."""
    if not cuts:
        return value
    builder, sizes = value.builder, list(value.shape.dimensions)
    device = collectives.partition_id(builder)
    starts = [builder.constant(np.uint32(0))] * len(sizes)
    for d, cut in cuts.items():
        sizes[d] //= cut.count
        table = builder.constant((cut.part * sizes[d]).astype(np.uint32))
        starts[d] = movement.reshape(builder.emit(DynamicSlice((1,)), [table, device]), dtypes.u32[()])
    return builder.emit(DynamicSlice(tuple(sizes)), [value, *starts])


def groups_along(mesh: Mesh, axes: Iterable[Axis]) -> Groups:
    """The devices that lie along the axes; () if there is one in each group."""
    axes = list(axes)
    cut = cut_along(mesh, axes) if axes else None
    return tuple(sorted(cut.groups)) if cut is not None and cut.count > 1 else ()


def within(placement: Placement, names: Iterable[str]) -> Placement:
    """The placement, unreduced along these axes alone."""
    known = set(names)
    return replace(placement, unreduced=tuple(axis for axis in placement.unreduced if axis.name in known))


def _addition(value: XlaOp) -> Computation:
    inner = Builder("sum", source_info=False)
    scalar = Shape.array(value.dtype, ())
    x, y = inner.parameter(0, scalar, "x"), inner.parameter(1, scalar, "y")
    return inner.build_computation(elementwise.or_(x, y) if value.dtype is dtypes.pred else elementwise.add(x, y))


def _is_exact(instruction: Instruction) -> bool:
    """A conversion among floats that rounds nothing."""
    (operand,) = instruction.operands
    given, made = operand.shape.dtype, instruction.shape.dtype
    if not given.is_floating or not made.is_floating:
        return False
    return bool(np.can_cast(given.numpy, made.numpy, "safe"))


def _is_sum(instruction: Instruction) -> bool:
    """The plain sum of one array's elements."""
    init = instruction.operands[-1]
    if len(instruction.operands) != 2 or not isinstance(init.op, Constant):
        return False
    return _adds(instruction.called[0]) and not np.any(np.asarray(init.op.literal.to_python()) != 0)


def _is_scattered_sum(instruction: Instruction) -> bool:
    """Updates that are added to one array."""
    op: Any = instruction.op
    return len(instruction.operands) == 3 and not op.input_batching_dims and _adds(instruction.called[0])


def _adds(body: Computation) -> bool:
    return isinstance(body.root.op, Add) and list(body.root.operands) in (body.parameters, body.parameters[::-1])
