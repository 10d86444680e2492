"""Collective ops by which devices exchange values: all-to-all, collective-permute, collective-broadcast."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import le
from typing import Annotated, Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.communication import CommunicationTraits
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Block, Device, Take, Transfer
from hlokit.ops.asynchronous import placeholder
from hlokit.ops.collectives import check_groups, data_operands, dynamic_roots, joined, one_or_tuple
from hlokit.types.attributes import INT_LISTS, OPTIONAL_SINGLE, Groups, Pairs, ResultShape
from hlokit.types.dtype import DType
from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import Shape


class AllToAll(Op, name="all-to-all"):
    """Every member sends block j of its operand to the j-th member of the group.

    With `dimension`: blocks are cut and concatenated along it. Without: operand j is block j, the result a tuple.
    """

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    dimension: Annotated[int | None, OPTIONAL_SINGLE] = attr(None, text="dimensions")

    form = "communicate"
    communication = CommunicationTraits(is_collective=True)
    rules = "A2A"
    shape_required = True
    side_effect = True

    def infer(self, *operands: Shape) -> Shape:
        check_groups(self.replica_groups, self.channel_id)
        size, d = self.replica_groups.group_size, self.dimension
        check(len(operands) > 0, "A2A-9", "operands", 0, "at least one")
        for operand in operands:
            check(operand.is_array, "A2A-6", "operand", operand, "an array")
            check(operand.static is operands[0].static, "A2A-9", "operand", operand, operands[0])
        if d is None:
            check(size in (None, len(operands)), "A2A-5", "operands", len(operands), size)
            return Shape.tuple(operands)
        check(len(operands) == 1, "A2A-6", "operands with dimensions", len(operands), 1)
        operand = operands[0]
        check(0 <= d < operand.rank, "A2A-3", "split dimension", d, f"in [0, {operand.rank})")
        length = operand.dimensions[d]
        check(size is None or length % size == 0, "A2A-4", f"dimension {d}", length, f"a multiple of {size}")
        return operand

    def reference(self, *operands: Array, process: Device) -> Any:
        members = process.members(self.replica_groups, self.channel_id, False, over_partitions=True)
        position = members.index((process.replica_id, process.partition_id))
        if self.dimension is None:
            if len(operands) != len(members):
                raise EvaluationError(f"all-to-all: {len(operands)} operands for {len(members)} devices [A2A-5]")
            return tuple(sent[position] for sent in process.meet(self, members, operands))
        if operands[0].shape[self.dimension] % len(members):
            raise EvaluationError(f"all-to-all: {operands[0].shape} cannot be cut for {len(members)} devices [A2A-4]")
        blocks = tuple(np.split(operands[0], len(members), self.dimension))
        return joined([sent[position] for sent in process.meet(self, members, blocks)], self.dimension)

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        members = process.members(self.replica_groups, self.channel_id, False, over_partitions=True)
        d, count = self.dimension, len(members)
        if len(operands) != count if d is None else operands[0].dimensions[d] % count:
            return None

        everyone = range(count)
        if d is None:
            takes = [[Take(sender, (sender,), own) for sender in everyone] for own in everyone]
        else:
            takes = [[Take(0, everyone, 0, Block(d, own, count), d)] for own in everyone]
        return Transfer(members, takes)


class RaggedAllToAll(Op, name="ragged-all-to-all"):
    """Sends send_sizes[j] rows, starting at input_offsets[j], to member j, which writes them at output_offsets[j].

    Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes. Rows of output that no
    member writes are kept (BEY-65). The offsets are divided into equal runs, one for each member: rows of a matrix.
    """

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)

    arity = 6
    form = "communicate"
    communication = CommunicationTraits(is_collective=True)
    rules = "BEY-65"
    shape_required = True
    side_effect = True
    ignored_attributes = ("dimensions",)

    def infer(self, data: Shape, output: Shape, *tables: Shape) -> Shape:
        check_groups(self.replica_groups, self.channel_id)
        check(data.is_array and data.rank >= 1, "BEY-65", "input", data, "an array of rank >= 1")
        same = output.is_array and output.dtype is data.dtype and output.dimensions[1:] == data.dimensions[1:]
        check(same and output.rank == data.rank, "BEY-65", "output", output, f"{data} with any number of rows")
        for table in tables:
            fits = table.is_array and table.rank in (1, 2) and table.dtype.kind in ("signed", "unsigned")
            check(fits, "BEY-65", "offsets and sizes", table, "a vector or a matrix of integers")
            check(table.dimensions == tables[0].dimensions, "BEY-65", "offsets and sizes", table, tables[0])
        size, length = self.replica_groups.group_size, tables[0].dimensions[0]
        if tables[0].rank == 2:
            check(size in (None, length), "BEY-65", "rows of offsets", length, size)
        check(size is None or length % size == 0, "BEY-65", "number of offsets", length, f"a multiple of {size}")
        return output

    def reference(self, data: Array, output: Array, *tables: Array, process: Device) -> Array:
        members = process.members(self.replica_groups, self.channel_id, False, over_partitions=True)
        position = members.index((process.replica_id, process.partition_id))
        result = output.copy()
        tables = tuple(table.reshape(-1) for table in tables)
        for rows, (starts, sizes, targets, _) in process.meet(self, members, (data, tables)):
            run = starts.size // len(members)
            for i in range(position * run, (position + 1) * run):
                start, size, target = int(starts[i]), int(sizes[i]), int(targets[i])
                if min(start, size, target) < 0 or start + size > len(rows) or target + size > len(result):
                    raise EvaluationError(
                        f"ragged-all-to-all: {size} rows from {start} to {target} do not fit [BEY-65]"
                    )
                result[target : target + size] = rows[start : start + size]
        return result


class CollectiveBroadcast(Op, name="collective-broadcast"):
    """The operand of the root of each group, on all its members; zeros on devices in no group (BEY-63).

    The root is the first member. With `has_dynamic_root` the last operand holds the number of the member that is the
    root, for each of the other operands.
    """

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    has_dynamic_root: bool = attr(False)

    form = "communicate"
    rules = "BEY-63"
    shape_required = True
    side_effect = True
    communication = CommunicationTraits(is_collective=True, same_in_group=True)

    def infer(self, *operands: Shape) -> Shape:
        check_groups(self.replica_groups, self.channel_id, equal=False, dense=False)
        check(len(operands) > 0, "BEY-63", "operands", 0, "at least one")
        data = data_operands(operands, self.has_dynamic_root, "BEY-63")
        for operand in data:
            check(operand.is_array, "BEY-63", "operand", operand, "an array")
        return data[0] if len(data) == 1 else Shape.tuple(data)

    def reference(self, *operands: Array, process: Device) -> Any:
        members = self._members(process)
        if not members:
            return one_or_tuple([np.zeros_like(o) for o in operands[: -1 if self.has_dynamic_root else None]])
        given = process.meet(self, members, operands)
        if not self.has_dynamic_root:
            return one_or_tuple(given[0])
        return one_or_tuple([given[root][k] for k, root in enumerate(dynamic_roots(given, "BEY-63"))])

    def _members(self, process: Device) -> list[tuple[int, int]]:
        """The device's group; empty for a member of no group."""
        over_replicas = self.channel_id is None
        own, count = (
            (process.replica_id, process.replica_count)
            if over_replicas
            else (process.partition_id, process.partition_count)
        )
        group = next((g for g in self.replica_groups.expand(count) if own in g), ())
        return [(i, process.partition_id) if over_replicas else (process.replica_id, i) for i in group]

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        if self.has_dynamic_root:
            return None
        members = self._members(process)
        takes = [Take(k, (0,) if members else (), k) for k in range(len(operands))]
        alone = [(process.replica_id, process.partition_id)]
        return Transfer(members or alone, [takes] * len(members or alone))


class CollectivePermute(Op, name="collective-permute"):
    """Sends the source's operand to the target, for each pair; the result is zero on devices that are not a target.

    With `slice_sizes` (the in-place form) the operands are input, output, input starts, output starts: slices of
    the source's input overwrite slices of the target's output (BEY-64).
    """

    channel_id: int | None = attr(None)
    source_target_pairs: Pairs = attr()
    slice_sizes: Annotated[tuple[tuple[int, ...], ...], INT_LISTS] = attr((), proto="dynamic_slice_sizes")

    form = "communicate"
    communication = CommunicationTraits(is_collective=True)
    rules = "CPERM"
    shape_required = True
    side_effect = True

    def infer(self, *operands: Shape) -> Shape:
        self._check_pairs(operands)
        return self._moved(operands)

    def _check_pairs(self, operands: Sequence[Shape]) -> None:
        """CPERM-4, CPERM-5; in place, a device may be in as many pairs as there are slices of each array (BEY-64)."""
        pairs = self.source_target_pairs
        check(all(len(pair) == 2 for pair in pairs), "HGRP-7", "source_target_pairs", pairs, "pairs")
        for position, what in enumerate(("source", "target")):
            ids = [pair[position] for pair in pairs]
            most = _slices_each(*operands[position::2]) if self.slice_sizes and len(operands) == 4 else 1
            often = max(map(ids.count, set(ids)), default=0)
            limit = f"no {what} {'twice' if most == 1 else f'more than {most} times'}"
            check(often <= most, "CPERM-4", f"{what}s of source_target_pairs", ids, limit)
            check(min(ids, default=0) >= 0, "CPERM-5", f"{what}s of source_target_pairs", ids, ">= 0")

    def _moved(self, operands: Sequence[Shape]) -> Shape:
        if self.slice_sizes:
            check(len(operands) == 4, "BEY-64", "operands with slice_sizes", len(operands), 4)
            read, written = (self._checked_slices(*pair) for pair in zip(operands[:2], operands[2:], strict=True))
            check(read == written, "BEY-64", "element types of input and output", read, written)
            return operands[1]
        check(len(operands) > 0, "CPERM-8", "operands", 0, "at least one")
        for operand in operands:
            check(operand.is_array, "CPERM-8", "operand", operand, "an array")
        return operands[0] if len(operands) == 1 else Shape.tuple(operands)

    def _checked_slices(self, buffer: Shape, starts: Shape) -> list[DType]:
        """The slices' element types, once each has start indices for all dimensions of its array and fits into it."""
        slices = _slices(buffer, starts)
        sizes_of = self._sizes_of(len(slices))
        check(len(slices) == len(sizes_of), "BEY-64", "slices", len(slices), f"one of {self.slice_sizes} each")
        for (array, start), sizes in zip(slices, sizes_of, strict=True):
            fits = array.is_array and len(sizes) == array.rank and all(map(le, sizes, array.dimensions))
            check(fits and min(sizes, default=0) >= 0, "BEY-64", "slice_sizes", sizes, f"sizes of a part of {array}")
            indices = [e for e in start.elements if e.is_scalar and e.dtype.is_integral]
            good = len(indices) == len(start.elements) == array.rank
            check(good, "BEY-64", "start indices", start, f"a tuple of {array.rank} integers")
        return [array.dtype for array, _ in slices]

    def _sizes_of(self, count: int) -> tuple[tuple[int, ...], ...]:
        """The sizes of each of so many slices: one entry stands for all."""
        return self.slice_sizes * count if len(self.slice_sizes) == 1 else self.slice_sizes

    def reference(self, *operands: Any, process: Device) -> Any:
        members = process.members(ReplicaGroups(), self.channel_id, False, over_partitions=True)
        for pair in self.source_target_pairs:
            if not all(0 <= i < len(members) for i in pair):
                raise EvaluationError(f"collective-permute: pair {pair} of {len(members)} devices [CPERM-5]")
        contributions = process.meet(self, members, operands)
        own = members.index((process.replica_id, process.partition_id))
        if self.slice_sizes:
            return self._written(contributions, operands, own)
        source = next((s for s, t in self.source_target_pairs if t == own), None)
        return one_or_tuple(contributions[source] if source is not None else [np.zeros_like(o) for o in operands])

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        members = process.members(ReplicaGroups(), self.channel_id, False, over_partitions=True)
        sources = {target: source for source, target in self.source_target_pairs}
        if self.slice_sizes or any(max(pair) >= len(members) for pair in sources.items()):
            return None
        senders = [(sources[own],) if own in sources else () for own in range(len(members))]
        return Transfer(members, [[Take(k, sender, k) for k in range(len(operands))] for sender in senders])

    def _written(self, sent: Sequence[Sequence[Any]], own: Sequence[Any], device: int) -> Any:
        """The output with the senders' slices in it, at this device's target positions."""
        single = isinstance(own[1], np.ndarray)
        outputs: list[Array] = [output.copy() for output in ((own[1],) if single else own[1])]
        writes = list(_places(own[1], own[3]))
        each = len(writes) // max(1, len(outputs))
        sizes_of = self._sizes_of(len(writes))
        for source, reading, writing in self._incoming(device, each):
            reads = list(_places(sent[source][0], sent[source][2]))
            for first in range(0, len(writes), each):
                for k, n in zip(reading, writing, strict=True):
                    (data, _, start), (_, number, target) = reads[first + k], writes[first + n]
                    sizes = sizes_of[first + n]
                    outputs[number][_block(outputs[number], target, sizes)] = data[_block(data, start, sizes)]
        return outputs[0] if single else tuple(outputs)

    def _incoming(self, device: int, each: int) -> list[tuple[int, Sequence[int], Sequence[int]]]:
        """(source, which of the slices of each array it reads, and which they overwrite) of what a device receives.

        All, where no device is twice a source or target; else each pair the next one of either device.
        """
        pairs = self.source_target_pairs
        sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
        if len(set(sources)) == len(set(targets)) == len(pairs):
            return [(s, range(each), range(each)) for s, t in pairs if t == device]
        places = [(sources[:i].count(s), targets[:i].count(t)) for i, (s, t) in enumerate(pairs)]
        return [(s, (k,), (n,)) for (s, t), (k, n) in zip(pairs, places, strict=True) if t == device]


class CollectivePermuteStart(CollectivePermute, name="collective-permute-start"):
    """Begins a collective-permute; the state holds (operand, result) and perhaps contexts (HOP-35)."""

    state: ResultShape

    communication = replace(CollectivePermute.communication, stage="start", keeps_operands=True)

    def infer(self, *operands: Shape) -> Shape:
        self._check_pairs(operands)
        moved, parts = self._moved(operands), self.state.elements
        given = [shape.static for shape in (operands[0], Shape.tuple(operands))]
        good = parts[1:] != () and parts[0].static in given and parts[1].static is moved.static
        check(good, "HOP-35", "result shape", self.state, f"({operands[0]}, {moved}, ...)")
        return self.state

    def reference(self, *operands: Any, process: Device) -> Any:
        given, _, *contexts = self.state.elements
        moved = super().reference(*operands, process=process)
        takes_all = given.is_tuple and not isinstance(operands[0], tuple)
        return (operands if takes_all else operands[0], moved, *map(placeholder, contexts))

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        found = super().transfer(operands, results, process)
        kept = sum(1 for _ in self.state.elements[0].leaves())
        return None if found is None else found.started(kept, len(results))


class CollectivePermuteDone(Op, name="collective-permute-done"):
    """Waits for a collective-permute and returns its result."""

    example = """
        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          %start = (f32[2], f32[2], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,0}}
          ROOT %done = f32[2] collective-permute-done(%start)
        }
    """

    arity = 1
    picks = 1
    form = "communicate"
    rules = "HASYNC"
    communication = CommunicationTraits(stage="done", waits_for=("collective-permute-start",))
    shape_required = True
    side_effect = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        check(state.elements[1:] != (), "HOP-35", "operand", state, "(operand, result, ...)")
        return state.elements[1]

    def reference(self, state: Any) -> Any:
        return state[1]


def _slices(buffer: Shape, starts: Shape) -> list[tuple[Shape, Shape]]:
    """(array, start indices) of each slice: one array or several, one slice of each or several."""
    if buffer.is_tuple:
        same_count = len(buffer.elements) == len(starts.elements)
        check(same_count, "BEY-64", "start indices", starts, f"some for each of {buffer}")
        return [found for pair in zip(buffer.elements, starts.elements, strict=True) for found in _slices(*pair)]
    several = starts.elements[:1] != () and starts.elements[0].is_tuple
    return [(buffer, start) for start in (starts.elements if several else (starts,))]


def _slices_each(buffer: Shape, starts: Shape) -> int:
    """The number of slices of each array."""
    slices = _slices(buffer, starts)
    return max(1, len(slices) // max(1, len(buffer.elements) if buffer.is_tuple else 1))


def _places(buffers: Any, starts: Any) -> Iterator[tuple[Array, int, Sequence[Any]]]:
    """(buffer, its number, start indices) of each slice: one buffer or several, one slice of each or several."""
    if not isinstance(buffers, np.ndarray):
        for number, (buffer, own) in enumerate(zip(buffers, starts, strict=True)):
            yield from ((b, number, s) for b, _, s in _places(buffer, own))
    elif starts and isinstance(starts[0], tuple):
        yield from ((buffers, 0, start) for start in starts)
    else:
        yield buffers, 0, starts


def _block(array: Array, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The block of these sizes at `starts`, clamped into the array as dynamic-slice does."""
    places = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, array.shape, sizes, strict=True)]
    return tuple(slice(place, place + size) for place, size in zip(places, sizes, strict=True))
