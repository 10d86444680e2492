"""Collective ops, which the devices of a group compute together (GRP rules).

Those that only exchange values are in exchanges.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.forms.cost import Cost, moved
from hlokit.hlo.communication import CommunicationTraits
from hlokit.hlo.computation import counted
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Block, Contributions, Device, Function, Take, Transfer
from hlokit.ops.asynchronous import placeholder
from hlokit.ops.numerics import convert
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Groups, ResultShape, Single
from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import ProgramShape, Shape

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction


class AllReduce(Op, name="all-reduce"):
    """Elementwise reduction over the members of each group, in group order; every member receives the result."""

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    use_global_device_ids: bool = attr(False)

    roles = ("to_apply",)
    form = "communicate"
    rules = "ARED"
    shape_required = True
    precision_by_shape = True
    side_effect = True
    communication = CommunicationTraits(is_collective=True, same_in_group=True)
    ignored_attributes = ("mode",)

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check_groups(self.replica_groups, self.channel_id, self.use_global_device_ids, equal=False)
        _check_combined(operands, to_apply, "ARED-4", "ARED-6", whole=True)
        return operands[0] if len(operands) == 1 else Shape.tuple(operands)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Each element of the operands meets one other."""
        return moved(operands, result) + called[0].times(sum(o.size for o in operands))

    def reference(self, *operands: Array, to_apply: Function, process: Device, shape: Shape) -> Any:
        results = shape.elements if shape.is_tuple else (shape,)
        given = [convert(o, r.dtype.numpy) for o, r in zip(operands, results, strict=True)]
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        return one_or_tuple(_reduced(process.meet(self, members, given), to_apply))

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        if [o.dtype for o in operands] != [r.dtype for r in results]:
            return None
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        takes = [Take(k, range(len(members)), k) for k in range(len(operands))]
        return Transfer(members, [takes] * len(members))


class AllReduceStart(AllReduce, name="all-reduce-start"):
    """Begins an all-reduce; the value is computed here (HASYNC-6)."""

    communication = replace(AllReduce.communication, stage="start")


class AllReduceDone(Op, name="all-reduce-done"):
    """Waits for an all-reduce and returns its result."""

    example = """
        %add (a: f32[], b: f32[]) -> f32[] {
          %a = f32[] parameter(0)
          %b = f32[] parameter(1)
          ROOT %sum = f32[] add(%a, %b)
        }

        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          %start = f32[2] all-reduce-start(%x), replica_groups={}, to_apply=%add
          ROOT %done = f32[2] all-reduce-done(%start)
        }
    """

    arity = 1
    passes_on = True
    form = "communicate"
    rules = "HASYNC"
    communication = CommunicationTraits(stage="done", waits_for=("all-reduce-start",))
    shape_required = True
    side_effect = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        return state

    def reference(self, state: Any) -> Any:
        return state


class CollectiveReduce(Op, name="collective-reduce"):
    """An all-reduce whose result only the root of each group has; it is zero on the other members (BEY-82).

    The root is the first member. With `has_dynamic_root` the last operand holds the number of the member that is the
    root, for each of the other operands.
    """

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    use_global_device_ids: bool = attr(False)
    has_dynamic_root: bool = attr(False, always=True)

    roles = ("to_apply",)
    form = "communicate"
    communication = CommunicationTraits(is_collective=True)
    rules = "BEY-82"
    shape_required = True
    side_effect = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check_groups(self.replica_groups, self.channel_id, self.use_global_device_ids, equal=False)
        data = data_operands(operands, self.has_dynamic_root, "BEY-82")
        _check_combined(data, to_apply, "BEY-82", "ARED-6")
        return data[0] if len(data) == 1 else Shape.tuple(data)

    def reference(self, *operands: Array, to_apply: Function, process: Device) -> Any:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        given = process.meet(self, members, operands)
        roots = dynamic_roots(given, "BEY-82") if self.has_dynamic_root else [0] * len(operands)
        data = given if not self.has_dynamic_root else [values[:-1] for values in given]
        own = members.index((process.replica_id, process.partition_id))
        reduced = _reduced(data, to_apply)
        return one_or_tuple(
            [array if root == own else np.zeros_like(array) for array, root in zip(reduced, roots, strict=True)]
        )

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        if self.has_dynamic_root:
            return None
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        everyone = range(len(members))
        takes = [[Take(k, () if own else everyone, k) for k in range(len(operands))] for own in everyone]
        return Transfer(members, takes)


class AllGather(Op, name="all-gather"):
    """The operands of the group's members, concatenated in group order; every member receives the result."""

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    dimension: Single = attr(text="dimensions")
    use_global_device_ids: bool = attr(False)
    result: ResultShape

    form = "communicate"
    rules = "AGATHER"
    side_effect = True
    communication = CommunicationTraits(is_collective=True, same_in_group=True)

    def infer(self, *operands: Shape) -> Shape:
        self._check_gathered(operands, self.result)
        return self.result

    def _check_gathered(self, operands: Sequence[Shape], result: Shape) -> None:
        check_groups(self.replica_groups, self.channel_id, self.use_global_device_ids)
        size = _known_size(self.replica_groups, self.channel_id, self.use_global_device_ids)
        d = self.dimension
        for operand, gathered in zip(operands, _results(operands, result, "AGATHER-1"), strict=True):
            check(operand.is_array, "TOKEN-6", "operand", operand, "an array")
            check(0 <= d < operand.rank, "AGATHER-3", "dimensions", d, f"in [0, {operand.rank})")
            count = _ratio(gathered, operand, d, "AGATHER-1")
            check(count > 0 and size in (None, count), "AGATHER-4", "shard_count", count, size or "> 0")

    def reference(self, *operands: Array, process: Device) -> Any:
        return one_or_tuple(self._gathered(operands, self.result, process))

    def _gathered(self, operands: Sequence[Array], result: Shape, process: Device) -> list[Array]:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        contributions = process.meet(self, members, operands)
        gathered = [joined(parts, self.dimension) for parts in zip(*contributions, strict=True)]
        for array, shape in zip(gathered, result.elements or (result,), strict=True):
            if array.shape[self.dimension] != shape.dimensions[self.dimension] and not shape.is_dynamic:
                raise EvaluationError(f"all-gather: {len(members)} devices, but a result of {shape} [AGATHER-4]")
        return gathered

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        d, count = self.dimension, len(members)
        if any(r.dimensions[d] != count * o.dimensions[d] for o, r in zip(operands, results, strict=True)):
            return None
        takes = [Take(k, range(count), k, dimension=d) for k in range(len(operands))]
        return Transfer(members, [takes] * count)


class AllGatherStart(AllGather, name="all-gather-start"):
    """Begins an all-gather; the state holds (operand, result), or a tuple of each (HOP-32)."""

    communication = replace(AllGather.communication, stage="start", keeps_operands=True)

    def infer(self, *operands: Shape) -> Shape:
        parts = self.result.elements
        given = Shape.tuple(operands) if parts and parts[0].is_tuple else operands[0]
        good = parts[1:] != () and parts[0].static is given.static
        check(good, "HOP-32", "result shape", self.result, "(operands, results)")
        self._check_gathered(operands, parts[1])
        return self.result

    def reference(self, *operands: Array, process: Device) -> Any:
        inputs, results = self.result.elements[:2]
        gathered = tuple(self._gathered(operands, results, process))
        given = operands if inputs.is_tuple else operands[0]
        return (given, gathered if results.is_tuple else gathered[0], *map(placeholder, self.result.elements[2:]))

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        kept = len(operands)
        found = super().transfer(operands, results[kept : 2 * kept], process)
        return None if found is None else found.started(kept, len(results))


class AllGatherDone(Op, name="all-gather-done"):
    """Waits for an all-gather and returns its result."""

    example = """
        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          %start = (f32[2], f32[2]) all-gather-start(%x), replica_groups={{0}}, dimensions={0}
          ROOT %done = f32[2] all-gather-done(%start)
        }
    """

    arity = 1
    picks = 1
    form = "communicate"
    rules = "HASYNC"
    communication = CommunicationTraits(stage="done", waits_for=("all-gather-start",))
    shape_required = True
    side_effect = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        check(state.elements[1:] != (), "HOP-32", "operand", state, "(operands, results)")
        return state.elements[1]

    def reference(self, state: Any) -> Any:
        return state[1]


class ReduceScatter(Op, name="reduce-scatter"):
    """An all-reduce in which each member keeps one block of the result, by its position in the group."""

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    use_global_device_ids: bool = attr(False)
    dimension: Single = attr(text="dimensions")
    result: ResultShape

    roles = ("to_apply",)
    form = "communicate"
    communication = CommunicationTraits(is_collective=True)
    rules = "RSCAT"
    side_effect = True
    ignored_attributes = ("mode",)

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check_groups(self.replica_groups, self.channel_id, self.use_global_device_ids, equal_label="RSCAT-6")
        _check_combined(operands, to_apply, "RSCAT-7", "RSCAT-10")
        size = _known_size(self.replica_groups, self.channel_id, self.use_global_device_ids)
        d = self.dimension
        for operand, block in zip(operands, _results(operands, self.result, "RSCAT-1"), strict=True):
            check(0 <= d < operand.rank, "RSCAT-5", "dimensions", d, f"in [0, {operand.rank})")
            count = _ratio(operand, block, d, "RSCAT-1")
            check(count > 0 and size in (None, count), "RSCAT-4", "shard_count", count, size or "> 0")
        return self.result

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Each element of the operands meets one other."""
        return moved(operands, result) + called[0].times(sum(o.size for o in operands))

    def reference(self, *operands: Array, to_apply: Function, process: Device) -> Any:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        reduced = _reduced(process.meet(self, members, operands), to_apply)
        results = self.result.elements if self.result.is_tuple else (self.result,)
        position = members.index((process.replica_id, process.partition_id))
        for array, shape in zip(reduced, results, strict=True):
            count, rest = divmod(array.shape[self.dimension], len(members))
            if rest or (count != shape.dimensions[self.dimension] and not shape.is_dynamic):
                raise EvaluationError(f"reduce-scatter: {len(members)} devices, but {shape} for each [RSCAT-4]")
        return one_or_tuple([np.split(array, len(members), self.dimension)[position] for array in reduced])

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        d, count = self.dimension, len(members)
        if any(o.dimensions[d] != count * r.dimensions[d] for o, r in zip(operands, results, strict=True)):
            return None
        everyone, given = range(count), range(len(operands))
        return Transfer(members, [[Take(k, everyone, k, Block(d, own, count)) for k in given] for own in everyone])


class ReplicaId(Op, name="replica-id"):
    """The number of the replica that runs the program."""

    arity = 0
    asks_device = True
    form = "communicate"
    free = True
    rules = "REPID"

    def infer(self) -> Shape:
        return dtypes.u32[()]

    def reference(self, process: Device) -> Array:
        return np.array(process.replica_id, np.uint32)


class PartitionId(Op, name="partition-id"):
    """The number of the partition that runs the program (BEY-66)."""

    arity = 0
    asks_device = True
    form = "communicate"
    free = True
    rules = "BEY-66"

    def infer(self) -> Shape:
        return dtypes.u32[()]

    def reference(self, process: Device) -> Array:
        return np.array(process.partition_id, np.uint32)


# -- what the cards share


@lru_cache(maxsize=4096)
def _check_listed(groups: ReplicaGroups, equal_label: str, dense: bool) -> None:
    """GRP-2, GRP-3. Remembered: the same groups come with every collective of a program."""
    if groups.iota_dimensions is not None or not groups.groups:
        return
    ids = [i for group in groups.groups for i in group]
    check(all(groups.groups), "GRP-2", "replica_groups", groups, "no empty group")
    if dense:
        wanted = f"each id of 0..{len(ids) - 1} once"
        check(sorted(ids) == list(range(len(ids))), "GRP-2", "replica_groups", groups, wanted)
    check(len(set(ids)) == len(ids) and min(ids) >= 0, "GRP-2", "replica_groups", groups, "no id twice, none negative")
    if equal_label:
        check(len(set(map(len, groups.groups))) == 1, equal_label, "replica_groups", groups, "groups of equal size")


def check_groups(
    groups: ReplicaGroups,
    channel_id: int | None,
    use_global_device_ids: bool = False,
    *,
    equal: bool = True,
    equal_label: str = "GRP-3",
    dense: bool = True,
) -> None:
    """GRP-2, 3, 5: what is wrong with groups whatever the number of devices."""
    _check_listed(groups, equal_label if equal else "", dense)
    if use_global_device_ids:
        check(channel_id is not None, "GRP-5", "use_global_device_ids", "no channel_id", "a channel_id")
        check(groups.group_size is not None, "GRP-5", "replica_groups", groups, "not empty with use_global_device_ids")


def _known_size(groups: ReplicaGroups, channel_id: int | None, use_global_device_ids: bool) -> int | None:
    """The number of devices in a group, where that does not depend on the number of partitions (GRP-4)."""
    return groups.group_size if channel_id is None or use_global_device_ids else None


def data_operands(operands: Sequence[Shape], has_dynamic_root: bool, label: str) -> Sequence[Shape]:
    """The operands that are moved: all of them, or those before the vector of roots."""
    if not has_dynamic_root:
        return operands
    check(len(operands) > 1, label, "operands with has_dynamic_root", len(operands), "at least one and the roots")
    roots, data = operands[-1], operands[:-1]
    check(roots.static is dtypes.s32[len(data)], label, "roots", roots, dtypes.s32[len(data)])
    return data


def dynamic_roots(contributions: Sequence[Sequence[Array]], label: str) -> list[int]:
    """The roots that the members' last operands say. EvaluationError where they differ, or name no member."""
    roots = contributions[0][-1]
    if any(not np.array_equal(values[-1], roots) for values in contributions):
        raise EvaluationError(f"the members of a group name different roots [{label}]")
    if not all(0 <= root < len(contributions) for root in roots):
        raise EvaluationError(f"roots {list(map(int, roots))} among {len(contributions)} devices [{label}]")
    return list(map(int, roots))


def _results(operands: Sequence[Shape], result: Shape, label: str) -> Sequence[Shape]:
    """The result shapes, one for each operand: the result itself, or a tuple's elements."""
    check(len(operands) > 0, label, "operands", 0, "at least one")
    results = result.elements if result.is_tuple else (result,)
    check(len(results) == len(operands), label, "result shape", result, counted(len(operands), "array"))
    return results


def _ratio(large: Shape, small: Shape, dimension: int, label: str) -> int:
    """The number of times that `small` goes into `large` along a dimension; both are the same otherwise."""
    a, b = large.dimensions, small.dimensions
    fits = large.dtype is small.dtype and len(a) == len(b)
    fits = fits and a[:dimension] == b[:dimension] and a[dimension + 1 :] == b[dimension + 1 :]
    check(fits, label, "result shape", large, f"{small} but for dimension {dimension}")
    whole, part = a[dimension], b[dimension]
    check(whole % part == 0 if part else whole == 0, label, f"dimension {dimension}", whole, f"a multiple of {part}")
    return whole // part if part else 1


def _check_combined(
    operands: Sequence[Shape], to_apply: ProgramShape, operand_label: str, combiner_label: str, whole: bool = False
) -> None:
    """Arrays of one element type, combined by a computation of two scalars of it, or of another floating type.

    whole   the computation may also take arrays, of the operands' shape
    """
    check(len(operands) > 0, operand_label, "operands", 0, "at least one")
    dtype = operands[0].dtype
    for operand in operands:
        check(operand.is_array, operand_label, "operand", operand, "an array")
        check(operand.dtype is dtype, operand_label, "operand", operand, f"an array of {dtype}")
    result = to_apply.result
    arrays = whole and result.is_array and all(o.dimensions == result.dimensions for o in operands)
    floating = dtype.is_floating and result.dtype.is_floating and (result.is_scalar or arrays)
    scalar = (result.dtype if floating else dtype)[result.dimensions if arrays else ()]
    found = [p.static for p in to_apply.parameters]
    check(found == [scalar, scalar], combiner_label, "to_apply parameters", found, (scalar, scalar))
    check(result.static is scalar, combiner_label, "to_apply result", result, scalar)


def combines_elements(instruction: "Instruction") -> bool:
    """Whether what it calls combines two elements, not two arrays (ARED-6)."""
    return all(computation.root.shape.is_scalar for computation in instruction.called)


def _reduced(contributions: Sequence[Sequence[Array]], to_apply: Function) -> list[Array]:
    """Each operand folded over the members, in group order (ARED-7)."""
    if isinstance(contributions, Contributions):
        return contributions.once(lambda: _folded(contributions, to_apply))
    return _folded(contributions, to_apply)


def _folded(contributions: Sequence[Sequence[Array]], to_apply: Function) -> list[Array]:
    wide = to_apply.result.dtype.numpy
    combined = to_apply.batched if to_apply.result.is_scalar else to_apply
    results: list[Array] = []
    for parts in zip(*contributions, strict=True):
        _check_sizes(parts)
        result = parts[0]
        own = result.dtype
        for part in parts[1:]:
            result = convert(combined(convert(result, wide), convert(part, wide)), own)
        results.append(result)
    return results


def _check_sizes(parts: Sequence[Array], but: int | None = None) -> None:
    """Run-time sizes are the same for all members, `but` for one dimension. EvaluationError (GRP-6)."""
    sizes = dict.fromkeys(tuple(n for d, n in enumerate(part.shape) if d != but) for part in parts)
    if len(sizes) > 1:
        raise EvaluationError(f"members' operands have sizes that differ: {', '.join(map(str, sizes))} [GRP-6]")


def joined(parts: Sequence[Array], dimension: int) -> Array:
    """The members' parts, side by side along a dimension."""
    _check_sizes(parts, dimension)
    return np.concatenate(parts, dimension)


def one_or_tuple(values: Sequence[Array]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
