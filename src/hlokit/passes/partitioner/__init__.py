"""Partitioner: converts a program on whole values to one that each device runs on its parts.

p = partition(module, mesh="a=2,b=4")
results = p.join(hk.compile(p.module)(*p.split(*arguments)))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.errors import ArgumentError, ShapeError, UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule, check_is_module
from hlokit.hlo.verifier import verify
from hlokit.ops.control_flow import Call, Fusion
from hlokit.ops.elementwise import Copy
from hlokit.ops.movement import Broadcast
from hlokit.ops.reshaping import Reshape
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.passes.call_inliner import CallInliner
from hlokit.passes.defuser import Defuser
from hlokit.passes.op_expander import OpExpander
from hlokit.passes.partitioner.combining import combined
from hlokit.passes.partitioner.lowering import Lowering, Partitioner, Value, flat
from hlokit.passes.partitioner.placement import Grid, Placement, leaves_of, mesh_of_shardings, mesh_of_text
from hlokit.passes.partitioner.plan import Network, Planner
from hlokit.passes.partitioner.propagation import Propagation, propagate, stated
from hlokit.passes.partitioner.reasons import Reason
from hlokit.passes.partitioner.regions import has_regions, within_regions
from hlokit.passes.partitioner.splitting import split
from hlokit.stablehlo.manual import GROUPS, OPEN, WISH
from hlokit.text.groups import parse_sharding
from hlokit.types.mesh import Mesh
from hlokit.types.shape import Shape
from hlokit.types.sharding import NamedSharding, Sharding

if TYPE_CHECKING:
    from hlokit.view.page import View

MOST_DEVICES = 1 << 12
"""Devices that a program is partitioned for."""


@dataclass(frozen=True, eq=False)
class Partitioned:
    """A program for each device of a mesh.

    Attributes
    ----------
    module : HloModule
        The program of one device, on parts and with collectives. Its `num_partitions` is the number of devices.
    reasons : tuple of Reason
        The reason of each collective, and of each op that runs on whole values.
    in_shardings, out_shardings : tuple of NamedSharding
        The sharding of each array of the parameters, and of the result.
    propagation : Propagation
        The sharding of every array of the program, with its reason.
    """

    module: HloModule
    reasons: tuple[Reason, ...]
    in_shardings: tuple[NamedSharding, ...]
    out_shardings: tuple[NamedSharding, ...]
    propagation: Propagation
    _grid: Grid
    _inputs: tuple[tuple[Shape, tuple[Placement, ...]], ...]
    _output: tuple[Shape, tuple[Placement, ...]]

    def view(self) -> View:
        """A page that shows the program on whole values with its shardings, and a device's program with collectives.

        Returns
        -------
        View
            The page: `save` it as a file, or let a notebook show it.
        """
        return import_module("hlokit.view.making").view_partitioned(self)

    def split(self, *arguments: Any) -> list[list[Any]]:
        """Divides whole arguments into those of each device.

        Parameters
        ----------
        arguments : array or nested tuple of arrays
            The program's arguments.

        Returns
        -------
        list of lists
            The arguments of each device. A part that extends beyond the array is padded with zeros. Parts of donated
            arguments are copies, which the compiled program overwrites; others may be views of the arguments.

        Raises
        ------
        ArgumentError
            The arguments do not match the program's parameters.
        """
        if len(arguments) != len(self._inputs):
            raise ArgumentError(f"split: {len(arguments)} arguments, expected {len(self._inputs)}")
        found: list[list[Any]] = [[] for _ in range(self._grid.size)]
        donated = {alias.parameter for alias in self.module.input_output_alias}
        donated |= {number for number, _ in self.module.buffer_donor}
        for number, (argument, (shape, placements)) in enumerate(zip(arguments, self._inputs, strict=True)):
            rest = list(placements)
            for device, part in enumerate(self._parts(argument, shape, rest, f"argument {number}")):
                found[device].append(_copied(part) if number in donated else part)
        return found

    def join(self, results: Sequence[Any]) -> Any:
        """Assembles the whole result from the devices' results.

        Parameters
        ----------
        results : sequence
            The result of each device.

        Returns
        -------
        array or nested tuple of arrays
            The result of the program.

        Raises
        ------
        ArgumentError
            The number of results differs from the number of devices.
        """
        if len(results) != self._grid.size:
            raise ArgumentError(f"join: results of {len(results)} devices, expected {self._grid.size}")
        shape, placements = self._output
        return self._whole(list(results), shape, list(placements))

    def _parts(self, argument: Any, shape: Shape, placements: list[Placement], what: str) -> list[Any]:
        if shape.is_tuple:
            if not isinstance(argument, (tuple, list)) or len(argument) != len(shape.elements):  # pyright: ignore[reportUnknownArgumentType]
                raise ArgumentError(f"split: {what}: expected a tuple of {len(shape.elements)}")
            given: list[Any] = list(argument)  # pyright: ignore[reportUnknownArgumentType]
            pairs = zip(given, shape.elements, strict=True)
            elements = [self._parts(a, s, placements, what) for a, s in pairs]
            return [tuple(e[device] for e in elements) for device in range(self._grid.size)]
        placement = placements.pop(0)
        if not shape.is_array:
            return [argument] * self._grid.size
        array = np.asarray(argument)
        if array.shape != shape.dimensions:
            raise ArgumentError(f"split: {what}: an array of {array.shape}, expected {shape}")
        if array.dtype != shape.dtype.numpy:
            if not np.can_cast(array.dtype, shape.dtype.numpy, "same_kind") and not isinstance(
                argument, (list, int, float)
            ):
                raise ArgumentError(f"split: {what}: an array of {array.dtype}, expected {shape.dtype}")
            array = array.astype(shape.dtype.numpy)
        local = self._grid.local(shape.dimensions, placement)
        places = [self._grid.places(parts) for parts in placement.dimensions]
        first = self._grid.places(placement.unreduced)
        counts = [self._grid.count(parts) for parts in placement.dimensions]
        padding = [(0, n * c - size) for n, c, size in zip(local, counts, shape.dimensions, strict=True)]
        padded = np.pad(array, padding) if any(after for _, after in padding) else array
        found: list[Any] = []
        for device in range(self._grid.size):
            block = tuple(slice(p[device] * n, (p[device] + 1) * n) for p, n in zip(places, local, strict=True))
            part = np.ascontiguousarray(padded[block]).reshape(local)
            found.append(part if first[device] == 0 else np.zeros_like(part))
        return found

    def _whole(self, results: list[Any], shape: Shape, placements: list[Placement]) -> Any:
        if shape.is_tuple:
            elements = enumerate(shape.elements)
            return tuple(self._whole([result[i] for result in results], s, placements) for i, s in elements)
        placement = placements.pop(0)
        if not shape.is_array:
            return results[0]
        arrays = [np.asarray(result) for result in results]
        local = self._grid.local(shape.dimensions, placement)
        counts = [self._grid.count(parts) for parts in placement.dimensions]
        places = [self._grid.places(parts) for parts in placement.dimensions]
        whole = np.zeros([n * c for n, c in zip(local, counts, strict=True)], arrays[0].dtype)
        seen: set[tuple[tuple[int, ...], int]] = set()
        term = self._grid.places(placement.unreduced)
        for device, array in enumerate(arrays):
            place = tuple(int(p[device]) for p in places)
            if (place, int(term[device])) in seen:
                continue
            seen.add((place, int(term[device])))
            block = tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, local, strict=True))
            whole[block] = whole[block] + array if placement.unreduced else array
        return np.ascontiguousarray(whole[tuple(map(slice, shape.dimensions))]).reshape(shape.dimensions)


def partition(
    module: HloModule,
    mesh: Mesh | str | None = None,
    in_shardings: Sequence[Sharding | str | None] | None = None,
    out_shardings: Sequence[Sharding | str | None] | None = None,
    network: Network | None = None,
) -> Partitioned:
    """See `hlokit.partition`."""
    found = propagated(module, mesh, in_shardings, out_shardings)
    return partitioned(found.module, found, network)


def propagated(
    module: HloModule,
    mesh: Mesh | str | None = None,
    in_shardings: Sequence[Sharding | str | None] | None = None,
    out_shardings: Sequence[Sharding | str | None] | None = None,
) -> Propagation:
    """The placements of a module's arrays, and a copy of it that is prepared and split."""
    check_is_module(module)
    verify(module)
    if module.replica_count != 1:
        raise UnsupportedError(f"partition: {module.name} of {module.replica_count} replicas")
    module = module.clone()
    _give(module, in_shardings, out_shardings)
    module = prepared(module)
    found = [leaf for i in module.instructions() for s in [stated(i)] if s is not None for leaf in leaves_of(s)]
    if isinstance(mesh, str):
        mesh = mesh_of_text(mesh)
    if mesh is not None and not isinstance(mesh, Mesh):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"partition: mesh={mesh!r}, expected a Mesh or its axes, as 'a=2,b=4'")
    mesh = mesh or mesh_of_shardings(found, module.num_partitions)
    if mesh is None:
        raise ArgumentError(f"partition: {module.name} has no shardings and no partitions: give the devices with mesh=")
    mesh.check()
    if mesh.size > MOST_DEVICES:
        raise ShapeError("PART-1", "mesh", str(mesh), f"at most {MOST_DEVICES} devices")
    for leaf in found:
        if leaf.kind == "maximal" and not 0 <= leaf.device < mesh.size:
            raise ShapeError("PART-1", "sharding", str(leaf), f"one of the {mesh.size} devices of {mesh}")
    if module.num_partitions not in (1, mesh.size):
        raise ShapeError("PART-1", "mesh", str(mesh), f"{module.num_partitions} devices, as num_partitions says")
    module, _ = split(module)
    return propagate(module, Grid(mesh, found))


def prepared(module: HloModule) -> HloModule:
    """A copy of the module as propagation and lowering take it: no fusions, ops that have relations.

    Raises UnsupportedError for dynamic shapes, and for parameters and results of manual axes.
    """
    module = module.clone()
    _keep_stated(module)
    Defuser().run(module)
    CallInliner(composites=True).run(module)
    OpExpander().run(module)
    CallInliner().run(module)
    _take_tuples_apart(module)
    module.settle()
    _refuse_dynamic(module)
    _reshape_broadcasts(module)
    _refuse_manual(module)
    _plain_combiners(module)
    _part_groups(module)
    return module


def partitioned(module: HloModule, propagation: Propagation, network: Network | None = None) -> Partitioned:
    """The parts of a module that is prepared and split, whose arrays are to lie as propagation says."""
    grid = propagation.grid
    instructions = list(module.instructions())
    channels = (getattr(i.op, "channel_id", None) or 0 for i in instructions)
    partitioner = Partitioner(grid, Planner(grid, network), propagation, channels=max(channels, default=0))
    partitioner.has_regions = has_regions(instructions)
    partitioner.inside = within_regions(module) if partitioner.has_regions else set()
    lowering = Lowering(partitioner, module.entry.name)
    inputs: list[tuple[Shape, tuple[Placement, ...]]] = []
    parameters: list[Value] = []
    for number, parameter in enumerate(module.entry.parameters):
        placements = propagation.placements[parameter]
        inputs.append((parameter.shape, placements))
        parameters.append(lowering.parameter(number, parameter.shape, placements, parameter.name))
    wanted = list(propagation.results)
    root = lowering.run(module.entry, parameters, wanted)
    root = lowering.placed(module.entry.root, root, wanted, "result")
    placements = tuple(leaf.placement for leaf in flat(root))
    local = lowering.builder.build(lowering.put_together(root))
    local.name = module.name
    local.num_partitions = grid.size
    _donate(module, local)
    gone = combined(local)
    verify(local)
    pairs = [(gone.get(made, made) if made is not None else None, r) for made, r in partitioner.reasons]
    reasons = tuple(replace(r, collective=made.name if made is not None else "") for made, r in pairs)
    ins = tuple(grid.sharding(p) for _, placements in inputs for p in placements)
    outs = tuple(grid.sharding(p) for p in placements)
    output = (module.entry.root.shape, placements)
    return Partitioned(local, reasons, ins, outs, propagation, grid, tuple(inputs), output)


def _donate(module: HloModule, local: HloModule) -> None:
    """A device may overwrite its parts of the arguments that the module may overwrite.

    Where the part of the result has another size, the argument's part may hold another result.
    """
    local.buffer_donor = list(module.buffer_donor)
    for alias in module.input_output_alias:
        result = local.entry.root.shape.at(alias.output_index)
        parameter = local.entry.parameters[alias.parameter].shape.at(alias.parameter_index)
        if result.nbytes == parameter.nbytes:
            local.input_output_alias.append(alias)
        elif (alias.parameter, alias.parameter_index) not in local.buffer_donor:
            local.buffer_donor.append((alias.parameter, alias.parameter_index))


def _copied(value: Any) -> Any:
    """The arrays of a value, in memory of their own."""
    return tuple(map(_copied, value)) if isinstance(value, tuple) else np.array(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _give(module: HloModule, ins: Sequence[Any] | None, outs: Sequence[Any] | None) -> None:
    """Sets the shardings of parameters and of the result's arrays."""
    if ins is not None:
        parameters = module.entry.parameters
        if len(ins) != len(parameters):
            raise ArgumentError(f"in_shardings: {len(ins)}, expected {len(parameters)}: one for each parameter")
        for parameter, sharding in zip(parameters, ins, strict=True):
            _set(parameter, sharding)
    if outs is not None:
        root = module.entry.root
        leaves = list(root.shape.leaves())
        if len(outs) != len(leaves):
            raise ArgumentError(f"out_shardings: {len(outs)}, expected {len(leaves)}: one for each array of the result")
        is_open = root.extra is not None and OPEN in root.extra.frontend_attributes
        if isinstance(root.op, (Parameter, GetTupleElement)) or is_open:
            root = module.entry.add(Copy(), [root])
            module.entry.set_root(root)
        found = [_parsed(s) or Sharding("unknown") for s in outs]
        root.ensure_extra().sharding = Sharding("tuple", elements=tuple(found)) if root.shape.is_tuple else found[0]


def _set(instruction: Instruction, sharding: Any) -> None:
    found = _parsed(sharding)
    if found is not None:
        instruction.ensure_extra().sharding = found


def _parsed(sharding: Sharding | str | None) -> Sharding | None:
    found = parse_sharding(sharding) if isinstance(sharding, str) else sharding
    if found is not None and not isinstance(found, Sharding):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"partition: the sharding {found!r}, expected a Sharding or its text")
    if found is not None:
        found.check()
    return found


def _keep_stated(module: HloModule) -> None:
    """Puts copies behind calls, fusions, elements of tuples and what is expanded whose shardings are stated: these are
    the copies' then."""
    for computation in module.computations():
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        for old in list(computation.instructions):
            sharding = stated(old)
            goes = isinstance(old.op, (Call, Fusion)) or old.op.form == "expand" or _differs_from_its_tuple(old)
            if sharding is None or not goes or old in waited_for:
                continue
            new = computation.add(old.op, old.operands, old.called, shape=old.shape)
            assert old.extra is not None
            attributes = {name: text for name, text in old.extra.frontend_attributes.items() if name != WISH}
            new.extra = replace(old.extra, sharding=None, frontend_attributes=attributes)
            computation.replace(old, _kept(computation, new, iter(leaves_of(sharding))))
            computation.remove(old)


def _differs_from_its_tuple(element: Instruction) -> bool:
    """Whether an array is an element of a tuple whose stated sharding is not the one that the tuple states for it."""
    if not isinstance(element.op, GetTupleElement) or not element.shape.is_array:
        return False
    whole = element.operands[0]
    if (sharding := stated(whole)) is None:
        return True
    before = sum(1 for shape in whole.shape.elements[: element.op.index] for _ in shape.leaves())
    leaves = leaves_of(sharding)
    return before >= len(leaves) or leaves[before] != stated(element)


def _kept(computation: Computation, value: Instruction, shardings: Iterator[Sharding]) -> Instruction:
    if value.shape.is_tuple:
        parts = [computation.add(GetTupleElement(k), [value]) for k in range(len(value.shape.elements))]
        return computation.add(Tuple(), [_kept(computation, part, shardings) for part in parts])
    sharding = next(shardings, None)
    if sharding is None or not value.shape.is_array:
        return value
    copy = computation.add(Copy(), [value])
    copy.ensure_extra().sharding = sharding
    return copy


def _refuse_manual(module: HloModule) -> None:
    """UnsupportedError for parameters and results of manual axes, ShapeError for other values outside of regions."""
    inside = within_regions(module)
    for instruction in module.instructions():
        sharding = stated(instruction)
        for leaf in leaves_of(sharding) if sharding is not None else ():
            if leaf.kind != "manual" and "manual" not in leaf.last_tile_dims and not (leaf.named and leaf.named.manual):
                continue
            if instruction in (*module.entry.parameters, module.entry.root):
                raise UnsupportedError(f"partition: the manual axes of {instruction.name}: {leaf}")
            if instruction not in inside:
                what = f"sharding of {instruction.name}"
                raise ShapeError("PART-6", what, str(leaf), "manual axes between SPMDFullToShardShape and its end only")


def _plain_combiners(module: HloModule) -> None:
    """Takes copies out of computations of scalars: what is said of where a scalar lies says nothing of a fold."""
    called = {c for i in module.instructions() if i.op.form != "control" for c in i.called}
    for computation in called:
        for instruction in list(computation.instructions):
            if isinstance(instruction.op, Copy):
                computation.replace(instruction, instruction.operands[0])
        computation.remove_dead()


def _take_tuples_apart(module: HloModule) -> None:
    """Elements of tuples become what these are made of, and what only other elements need goes: axes would propagate
    through it."""
    for computation in module.all_computations:
        for element in computation.post_order():
            if not isinstance(element.op, GetTupleElement) or not isinstance(element.operands[0].op, Tuple):
                continue
            if stated(element) is None and stated(element.operands[0]) is None:
                computation.replace(element, element.operands[0].operands[element.op.index])
        computation.remove_dead()


def _part_groups(module: HloModule) -> None:
    """Copies of values that are stated to lie differently take their places in a group, as in Shardy."""
    groups: dict[tuple[str, int], list[Instruction]] = {}
    for instruction in module.instructions():
        attributes = instruction.extra.frontend_attributes if instruction.extra is not None else {}
        for group in attributes[GROUPS].split(",") if GROUPS in attributes and instruction.shape.is_array else ():
            groups.setdefault((group, instruction.shape.rank), []).append(instruction)
    for members in groups.values():
        said = [member for member in members if stated(member) is not None]
        if len({str(stated(member)) for member in said}) < 2:
            continue
        for member in said:
            take_out_of_groups(member)


def take_out_of_groups(member: Instruction) -> None:
    """A copy of the value, which its users get, is in its groups."""
    attributes = member.extra.frontend_attributes if member.extra is not None else {}
    if member.parent is not None and GROUPS in attributes:
        copy = member.parent.add(Copy(), [member])
        copy.ensure_extra().frontend_attributes[GROUPS] = attributes.pop(GROUPS)
        member.parent.replace(member, copy)


def _reshape_broadcasts(module: HloModule) -> None:
    """Broadcasts that only add dimensions of size 1 become reshapes, along which propagation passes axes both ways."""
    for instruction in module.instructions():
        op = instruction.op
        if isinstance(op, Broadcast) and op.dimensions == tuple(sorted(op.dimensions)):
            (operand,) = instruction.operands
            if operand.shape.rank and operand.shape.size == instruction.shape.size:
                instruction.op = Reshape(None, instruction.shape.logical)


def _refuse_dynamic(module: HloModule) -> None:
    for instruction in module.instructions():
        if any(leaf.is_array and leaf.is_dynamic for leaf in instruction.shape.leaves()):
            raise UnsupportedError(f"partition: {instruction.name} of the dynamic shape {instruction.shape}")


__all__ = ["Network", "Partitioned", "Reason", "partition"]
