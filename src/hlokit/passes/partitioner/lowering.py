"""Local lowering: each instruction on the parts that a device has, by its relation (analysis/factors)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np

from hlokit.analysis.factors import BATCH_DIMS, Relation, Start, batch_dims_of, relation, relation_of
from hlokit.analysis.reducers import is_choice, neutral_value
from hlokit.builder import collectives, constants, control, elementwise, indexing, movement
from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import ShapeError, UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.op import OPS, Op, infer_shape
from hlokit.ops.control_flow import Call, Conditional, While
from hlokit.ops.convolution import Convolution
from hlokit.ops.custom import CustomCall
from hlokit.ops.movement import Concatenate
from hlokit.ops.random import RngBitGenerator
from hlokit.ops.reduction import Reduce
from hlokit.ops.structure import Constant, GetTupleElement, OptBarrier, Parameter, Tuple
from hlokit.passes.partitioner.emission import Emission, addition
from hlokit.passes.partitioner.halos import (
    HALOS,
    NEUTRAL,
    ZERO,
    Exchange,
    Reach,
    exchange,
    joined,
    on_reach,
    on_taps,
    reach,
    reach_of_taps,
    reached,
)
from hlokit.passes.partitioner.halos import seconds as halo_seconds
from hlokit.passes.partitioner.placement import Grid, Parts, Placement, leaves_of
from hlokit.passes.partitioner.plan import Planner, Step
from hlokit.passes.partitioner.projection import parts_of_factors, placement_of_factors
from hlokit.passes.partitioner.propagation import Propagation, said_of, stated
from hlokit.passes.partitioner.random_bits import random_bits
from hlokit.passes.partitioner.reasons import Reason
from hlokit.passes.partitioner.regions import SHARDING, TO_SHARD, TO_WHOLE, collective, entered, left, target_of
from hlokit.passes.partitioner.terms import linear_operands
from hlokit.stablehlo.manual import BARRIER_FROM, BARRIER_TO
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Leaf:
    """An array on the devices: the part that each has, and where the parts lie in the whole of these sizes."""

    part: XlaOp
    sizes: tuple[int, ...]
    placement: Placement


Value: TypeAlias = "Leaf | list[Value]"
"""An array, or a tuple of values. Tokens are no arrays of dimensions: their placement has none."""


@dataclass
class Partitioner:
    """The state of one module's partitioning: channels and reasons; computations are lowered one by one.

    has_regions   whether devices run parts of the program by themselves: collectives stand there; `inside`: the
                  instructions of these parts
    channels      the last number that is taken
    """

    grid: Grid
    planner: Planner
    propagation: Propagation
    reasons: list[tuple[Instruction | None, Reason]] = field(default_factory=list[tuple["Instruction | None", Reason]])
    channels: int = 0
    has_regions: bool = False
    inside: set[Instruction] = field(default_factory=set["Instruction"])

    def channel(self) -> int:
        self.channels += 1
        return self.channels


class Lowering:
    """One computation."""

    def __init__(self, partitioner: Partitioner, name: str) -> None:
        self.partitioner, self.grid, self.planner = partitioner, partitioner.grid, partitioner.planner
        self.builder = Builder(name, source_info=False)
        self.emission = Emission(self.grid, self.builder, partitioner.channel, self._record)
        self.values: dict[Instruction, Value] = {}
        self._cause: tuple[Instruction, str, str, str] | None = None
        self._terms: dict[Instruction, Parts] = {}
        self._summed: dict[tuple[Instruction, Placement, Placement], Leaf] = {}

    # -- computations

    def run(self, computation: Computation, parameters: Sequence[Value], results: Sequence[Placement] = ()) -> Value:
        """Lowers all instructions; gives the root's value. `results`: where its arrays are wanted, if that is known."""
        self._want_terms(computation, results or self.wanted(computation.root))
        for instruction in computation.post_order():
            if isinstance(instruction.op, Parameter):
                value = parameters[instruction.op.number]
            else:
                first = len(self.builder.computation)
                value = self._lowered(instruction)
                self._describe(instruction, first)
            self.values[instruction] = self._as_stated(instruction, value)
        return self.values[computation.root]

    def parameter(self, number: int, shape: Shape, placements: Sequence[Placement], name: str) -> Value:
        """A parameter whose arrays lie there."""
        local = _with_leaves(shape, [self._local(s, p) for s, p in zip(shape.leaves(), placements, strict=True)])
        op = self.builder.parameter(number, local, name)
        return self.taken_apart(op, shape, list(placements))

    def taken_apart(self, op: XlaOp, shape: Shape, placements: list[Placement]) -> Value:
        if not shape.is_tuple:
            return Leaf(op, shape.dimensions if shape.is_array else (), placements.pop(0))
        elements = enumerate(shape.elements)
        return [self.taken_apart(control.get_tuple_element(op, i), s, placements) for i, s in elements]

    def leaf(self, instruction: Instruction) -> Leaf:
        """The value of an instruction that gives an array. UnsupportedError for a token or a tuple."""
        value = self.values[instruction]
        if isinstance(value, list) or not instruction.shape.is_array:
            raise UnsupportedError(f"partition: {instruction.name} of {instruction.shape} at an end of a region")
        return value

    def put_together(self, value: Value) -> XlaOp:
        """A value as one handle: a tuple is made of its elements."""
        if isinstance(value, Leaf):
            return value.part
        return control.tuple_(self.builder, [self.put_together(element) for element in value])

    def placed(self, instruction: Instruction, value: Value, placements: list[Placement], what: str) -> Value:
        """The value, its arrays resharded to these placements, in order."""
        numbers = iter(range(len(placements)))

        def place(value: Value) -> Value:
            if isinstance(value, list):
                return [place(element) for element in value]
            number = next(numbers)
            because = f"{what} must have this placement"
            if what == "state":
                because = f"state {number} has this placement between iterations"
            return self.resharded(instruction, value, placements[number], f"{what} {number}", because)

        return place(value)

    def _local(self, shape: Shape, placement: Placement) -> Shape:
        if not shape.is_array:
            return shape
        return Shape.array(shape.dtype, self.grid.local(shape.dimensions, placement))

    def _describe(self, instruction: Instruction, first: int) -> None:
        """The metadata of what was made for an instruction is its own; the same op has its configuration."""
        extra = instruction.extra
        if extra is None:
            return
        for made in self.builder.computation.instructions[first:]:
            if extra.metadata is not None:
                made.extra = Extra(metadata=extra.metadata.copied())
            if type(made.op) is not type(instruction.op):
                continue
            if extra.backend_config:
                own = made.ensure_extra()
                own.backend_config, own.backend_config_is_json = extra.backend_config, extra.backend_config_is_json
            if BATCH_DIMS in extra.frontend_attributes:
                made.ensure_extra().frontend_attributes[BATCH_DIMS] = extra.frontend_attributes[BATCH_DIMS]

    # -- placements

    def _as_stated(self, instruction: Instruction, value: Value) -> Value:
        """The value where the program says, with what more propagation divides of its open dimensions."""
        if isinstance(instruction.op, Parameter) or stated(instruction) is None:
            return value
        said = said_of(self.grid, instruction)
        pairs = zip(said, self.wanted(instruction), flat(value), strict=True)
        placements = [wanted if s is not None else leaf.placement for s, wanted, leaf in pairs]
        return self.placed(instruction, value, placements, "result")

    def _want_terms(self, computation: Computation, results: Sequence[Placement]) -> None:
        """The parts along which values are wanted as terms: as what is linear in them is to be."""
        root = computation.root
        made = root.operands if isinstance(root.op, Tuple) else [root]
        wanted = {i: p.unreduced for i, p in zip(made, results, strict=False) if i.shape.is_array}
        for instruction in reversed(computation.post_order()):
            if not instruction.shape.is_array:
                continue
            is_said = stated(instruction) is not None
            terms = self.wanted(instruction)[0].unreduced if is_said else wanted.get(instruction, ())
            for user in instruction.users:
                is_index = user.op.form in ("map", "index")
                if is_said or terms or not is_index or not self._terms.get(user) or relation_of(user) is None:
                    continue
                if user.operands.index(instruction) in linear_operands(user, [o is instruction for o in user.operands]):
                    terms = self._terms[user]
            self._terms[instruction] = terms

    def wanted(self, instruction: Instruction) -> list[Placement]:
        """Where each array of a value is best: as propagated, and as the terms that are wanted of it."""
        placements = self.partitioner.propagation.placements[instruction]
        terms = self._terms.get(instruction, ())
        if not terms or terms == placements[0].unreduced:
            return list(placements)
        dimensions = [tuple(takewhile(lambda part: part not in terms, parts)) for parts in placements[0].dimensions]
        return [Placement(tuple(dimensions), terms)]

    def resharded(
        self, instruction: Instruction, leaf: Leaf, target: Placement, what: str, because: str, combiner: Any = None
    ) -> Leaf:
        """The array at another placement; `combiner`: what folds terms, addition without it."""
        new = tuple(part for part in target.unreduced if part not in leaf.placement.unreduced)
        if new:
            spread = self._spread(leaf, target, new)
            if spread is not None:
                return self.resharded(instruction, spread, target, what, because, combiner)
            kept = tuple(part for part in target.unreduced if part in leaf.placement.unreduced)
            whole = self.resharded(instruction, leaf, Placement(target.dimensions, kept), what, because, combiner)
            return Leaf(self.emission.term(whole.part, new), leaf.sizes, target)
        is_sum = bool(leaf.placement.unreduced) and not target.unreduced and combiner is None
        key = (leaf.part.instruction, leaf.placement, target)
        if is_sum and key in self._summed:
            return self._summed[key]
        part = leaf.part
        if 0 in leaf.sizes:
            nothing = constants.zero(self.builder, part.dtype)
            return Leaf(movement.broadcast(nothing, self.grid.local(leaf.sizes, target)), leaf.sizes, target)
        for step in self.planner.plan(leaf.sizes, _itemsize(part.shape), leaf.placement, target):
            advice = f"a sharding {self._shown(target)} of {what}, stated where it is computed"
            self._cause = (instruction, what, because, advice)
            part = self.emission.moved(part, leaf.sizes, step, combiner)
        found = Leaf(part, leaf.sizes, target)
        if is_sum:
            self._summed[key] = found
        return found

    def _spread(self, leaf: Leaf, target: Placement, new: Parts) -> Leaf | None:
        """Terms of a value that is divided along the new parts: each device has its part, and zeros around it."""
        for d, along in enumerate(leaf.placement.dimensions):
            count = next((n for n in range(len(along)) if set(along[n:]) <= set(new)), len(along))
            inner, outer = along[count:], along[:count]
            if not inner or set(outer) & set(new) or leaf.sizes[d] % self.grid.count(along):
                continue
            unreduced = tuple(part for part in target.unreduced if part in (*leaf.placement.unreduced, *inner))
            after = Placement(leaf.placement.with_dimension(d, outer).dimensions, unreduced)
            return Leaf(self.emission.spread(leaf.part, d, inner), leaf.sizes, after)
        return None

    def because(self, instruction: Instruction, what: str, because: str) -> None:
        """The cause of what is recorded next."""
        self._cause = (instruction, what, because, "")

    def _shown(self, placement: Placement) -> str:
        text = str(self.grid.sharding(placement))
        return text.split(", ", 1)[1] if ", " in text else "[]"

    def _record(self, made: Instruction, step: Step) -> None:
        assert self._cause is not None
        asked, what, because, advice = self._cause
        axes = self.grid.axes_of(step.parts)
        before, after = (self._shown(p) for p in (step.before, step.after))
        reason = Reason(
            "", step.kind, asked.name, asked.opcode, axes, what, before, after, step.nbytes, step.seconds, because,
            "" if step.kind in ("all-reduce", "reduce-scatter") else advice,
        )  # fmt: skip
        self.partitioner.reasons.append((made, reason))

    # -- instructions

    def _lowered(self, instruction: Instruction) -> Value:
        op = instruction.op
        if isinstance(op, Tuple):
            return [self.values[operand] for operand in instruction.operands]
        if isinstance(op, GetTupleElement):
            value = self.values[instruction.operands[0]]
            assert isinstance(value, list)
            return value[op.index]
        if isinstance(op, OptBarrier):
            value = self.values[instruction.operands[0]]
            placements = [leaf.placement for leaf in flat(value)]
            barrier = self.builder.emit(op, [self.put_together(value)])
            return self.taken_apart(barrier, instruction.shape, placements)
        if isinstance(op, While):
            return self._while(instruction)
        if isinstance(op, Conditional):
            return self._conditional(instruction)
        if isinstance(op, Call):
            return self._call(instruction)
        if isinstance(op, Constant):
            return self._whole(instruction, "")
        target = target_of(instruction)
        if target in (SHARDING, BARRIER_FROM, BARRIER_TO):
            return self.values[instruction.operands[0]]
        if target == TO_SHARD:
            return entered(self, instruction, self.leaf(instruction.operands[0]))
        if target == TO_WHOLE:
            return left(self, instruction, self.leaf(instruction.operands[0]))
        if self.partitioner.has_regions and (op.form == "communicate" or op.asks_device):
            return collective(self, instruction)
        if isinstance(op, CustomCall):
            device = _only_device(instruction)
            if device is not None:
                return self._on_one(instruction, device)
            if instruction in self.partitioner.inside or (self.partitioner.has_regions and not instruction.operands):
                return self._whole(instruction, "")
        _refuse(instruction)
        if isinstance(op, RngBitGenerator) and (bits := random_bits(self, instruction, op)) is not None:
            return bits
        relation = relation_of(instruction)
        if relation is None:
            return self._whole(instruction, f"{op.opcode} has no known relation of dimensions and runs on whole values")
        return _Related(self, instruction, relation).lowered()

    def _while(self, instruction: Instruction) -> Value:
        """The state lies between steps as propagation says."""
        given = self.values[instruction.operands[0]]
        placements = self.wanted(instruction)
        init = self.placed(instruction, given, placements, "state")
        condition, body = instruction.called
        shape = instruction.shape
        parts: list[Computation] = []
        for computation in (condition, body):
            inner = Lowering(self.partitioner, computation.name)
            state = inner.parameter(0, shape, placements, "state")
            value = inner.run(computation, [state], placements if computation is body else ())
            wanted = placements if computation is body else [Placement.whole(0)]
            value = inner.placed(computation.root, value, wanted, "state" if computation is body else "predicate")
            parts.append(inner.builder.build_computation(inner.put_together(value)))
        loop = self.builder.emit(While(), [self.put_together(init)], parts)
        return self.taken_apart(loop, shape, list(placements))

    def _conditional(self, instruction: Instruction) -> Value:
        """Branches take their operands as they lie; results lie as propagation says."""
        index, *operands = instruction.operands
        chosen = self.placed(instruction, self.values[index], [Placement.whole(0)], "predicate")
        wanted = self.wanted(instruction)
        parts: list[Computation] = []
        for computation, operand in zip(instruction.called, operands, strict=True):
            inner = Lowering(self.partitioner, computation.name)
            placements = [leaf.placement for leaf in flat(self.values[operand])]
            value = inner.run(computation, [inner.parameter(0, operand.shape, placements, "operand")])
            value = inner.placed(computation.root, value, wanted, "result")
            parts.append(inner.builder.build_computation(inner.put_together(value)))
        given = [self.put_together(value) for value in (chosen, *(self.values[o] for o in operands))]
        made = self.builder.emit(instruction.op, given, parts)
        return self.taken_apart(made, instruction.shape, list(wanted))

    def _call(self, instruction: Instruction) -> Value:
        """The function takes its operands as they lie, and is lowered for each call: their placements differ."""
        (function,) = instruction.called
        inner = Lowering(self.partitioner, function.name)
        given: list[Value] = []
        for number, operand in enumerate(instruction.operands):
            placements = [leaf.placement for leaf in flat(self.values[operand])]
            given.append(inner.parameter(number, operand.shape, placements, function.parameters[number].name))
        value = inner.run(function, given)
        made = [leaf.placement for leaf in flat(value)]
        body = inner.builder.build_computation(inner.put_together(value))
        call = self.builder.emit(
            Call(is_composite=False), [self.put_together(self.values[o]) for o in instruction.operands], [body]
        )
        return self.taken_apart(call, instruction.shape, made)

    def _whole(self, instruction: Instruction, because: str) -> Value:
        """The instruction as it stands, on whole values."""
        operands: list[XlaOp] = []
        gathered = False
        for number, operand in enumerate(instruction.operands):
            value = self.values[operand]
            whole = [Placement.whole(len(leaf.sizes)) for leaf in flat(value)]
            gathered |= any(leaf.placement != p for leaf, p in zip(flat(value), whole, strict=True))
            operands.append(self.put_together(self._gathered(instruction, value, f"operand {number}", because)))
        if gathered:
            here = self._shown(Placement.whole(0))
            reason = Reason(
                "", "whole", instruction.name, instruction.opcode, (), "operands", here, "", 0, 0.0, because
            )
            self.partitioner.reasons.append((None, reason))
        made = self.builder.emit(instruction.op, operands, instruction.called, shape=instruction.shape)
        return self.taken_apart(
            made, instruction.shape, [Placement.whole(leaf.rank) for leaf in instruction.shape.leaves()]
        )

    def _on_one(self, instruction: Instruction, device: int) -> Value:
        """A call that only this device makes, on whole values; the others get its results."""
        because = f"only device {device} makes the call, with whole values"
        given = [
            self.put_together(self._gathered(instruction, self.values[operand], f"operand {number}", because))
            for number, operand in enumerate(instruction.operands)
        ]
        operand = control.tuple_(self.builder, given)
        here, elsewhere = (Builder(f"{instruction.name}{name}", source_info=False) for name in (".here", ".elsewhere"))
        inside = here.parameter(0, operand.shape, "operand")
        elsewhere.parameter(0, operand.shape, "operand")
        taken = [control.get_tuple_element(inside, number) for number in range(len(given))]
        made = here.emit(instruction.op, taken, instruction.called, shape=instruction.shape)
        made.instruction.extra = _configuration(instruction)
        nothing = _zeros(elsewhere, instruction.shape)
        branches = [here.build_computation(made), elsewhere.build_computation(nothing)]
        is_here = elementwise.eq(collectives.partition_id(self.builder), self.builder.constant(np.uint32(device)))
        chosen = self.builder.emit(Conditional(), [is_here, operand, operand], branches)
        others = [number for number in range(self.grid.size) if number != device]
        placements = [Placement.whole(leaf.rank) for leaf in instruction.shape.leaves()]
        value = self.taken_apart(chosen, instruction.shape, placements)
        return self._sent(value, [[device, *others]])

    def _sent(self, value: Value, groups: list[list[int]]) -> Value:
        """Arrays as the first device of the group has them."""
        if isinstance(value, list):
            return [self._sent(element, groups) for element in value]
        part = collectives.collective_broadcast(value.part, groups, self.partitioner.channel())
        return Leaf(part, value.sizes, value.placement)

    def _gathered(self, instruction: Instruction, value: Value, what: str, because: str) -> Value:
        if isinstance(value, list):
            return [self._gathered(instruction, element, what, because) for element in value]
        return self.resharded(instruction, value, Placement.whole(len(value.sizes)), what, because)


@dataclass(frozen=True)
class _Choice:
    """The parts that the factors are divided along, and what that would take."""

    parts: dict[int, Parts]
    seconds: float


class _Related:
    """An instruction whose dimensions have a relation, on parts of its factors."""

    def __init__(self, lowering: Lowering, instruction: Instruction, relation: Relation) -> None:
        self.lowering, self.instruction, self.relation = lowering, instruction, relation
        self.grid, self.planner = lowering.grid, lowering.planner
        self.leaves = [leaf for operand in instruction.operands for leaf in flat(lowering.values[operand])]
        self.results = list(instruction.shape.leaves())
        self.wanted = lowering.wanted(instruction)
        self.fold = self._fold()
        self.chosen = self._chosen()
        self.terms, self.linear = self._terms()
        self.shifted = self._shifted()
        self.taps = self._taps()
        self.starts = {s.factor: s for s in relation.starts if self._has_ranges(s)}

    def lowered(self) -> Value:
        choice = min(self._choices(), key=lambda choice: choice.seconds)
        operands = [self._operand(number, choice.parts) for number in range(len(self.leaves))]
        results = [self._placement(dimensions, self._of_results(choice.parts)) for dimensions in self.relation.results]
        local = self._local_op(operands, results, choice.parts)
        if local is None:
            return self.lowering._whole(self.instruction, f"{self.instruction.opcode} cannot run on parts")  # pyright: ignore[reportPrivateUsage]
        return self._emitted(local, choice, operands, results)

    # -- which factors are divided, and along what

    def _shifted(self) -> dict[int, tuple[int, list[tuple[int, int]]]]:
        """The shifted factors that may be divided: the dimension of the result, and (operand, dimension) that move."""
        found: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        if not isinstance(self.instruction.op, HALOS) or len(self.results) != 1:
            return found
        for number, factor in enumerate(self.relation.factors):
            of_result = [d for d, factors in enumerate(self.relation.results[0]) if factors == (number,)]
            of_operands = [
                (i, d)
                for i, dimensions in enumerate(self.relation.operands)
                for d, factors in enumerate(dimensions)
                if factors == (number,)
            ]
            joins = isinstance(self.instruction.op, Concatenate) and len(of_operands) != len(self.leaves)
            if factor.kind == "shifted" and len(of_result) == 1 and of_operands and not joins:
                found[number] = (of_result[0], of_operands)
        return found

    def _taps(self) -> dict[int, tuple[int, int]]:
        """The factors of a convolution's taps: devices have terms of the result, of their taps. For each the number of
        taps, and the image's dimension that they move along."""
        op, found = self.instruction.op, dict[int, tuple[int, int]]()
        if not isinstance(op, Convolution):
            return found
        labels = op.dim_labels
        for d, e in zip(labels.input_spatial_dimensions, labels.kernel_spatial_dimensions, strict=True):
            factors = self.relation.operands[1][e]
            if len(factors) == 1 and self.relation.factors[factors[0]].kind == "whole":
                found[factors[0]] = self.leaves[1].sizes[e], d
        return found

    def _reaches(self, number: int, along: Parts) -> list[tuple[int, int, Reach, Exchange]] | None:
        """The places reached of each operand along a shifted factor, or along taps; None where that has no form in
        these parts."""
        count = self.grid.count(along)
        shapes = [_shape(leaf) for leaf in self.leaves]
        found: list[tuple[int, int, Reach, Exchange]] = []
        size, places = self._moved(number)
        local = -(-size // count)
        for operand, e in places:
            one = self._place_reached(number, shapes, operand, e, local)
            way = exchange(shapes[operand].dimensions[e], count, one) if one is not None else None
            if (
                one is None
                or way is None
                or (one.fill == NEUTRAL and neutral_value(self.instruction.called[0]) is None)
            ):
                return None
            found.append((operand, e, one, way))
        return found

    def _moved(self, number: int) -> tuple[int, Sequence[tuple[int, int]]]:
        """The size of a shifted factor, or of taps, in parts; and the (operand, dimension) that move along it."""
        if number in self.taps:
            size, d = self.taps[number]
            return size, [(0, d)]
        d, places = self.shifted[number]
        return self.results[0].dimensions[d], places

    def _place_reached(self, number: int, shapes: Sequence[Shape], operand: int, d: int, local: int) -> Reach | None:
        op = self.instruction.op
        if number not in self.taps:
            return reach(op, shapes, operand, d, local)
        assert isinstance(op, Convolution)
        labels = op.dim_labels
        result = labels.output_spatial_dimensions[labels.input_spatial_dimensions.index(d)]
        return reach_of_taps(op, d, self.results[0].dimensions[result], local)

    def _divided_shifts(self, parts: dict[int, Parts]) -> list[int]:
        return [number for number in (*self.shifted, *self.taps) if parts.get(number)]

    def _on_halos(self, parts: dict[int, Parts], given: list[Shape], made: list[Shape]) -> tuple[Op, list[Shape]]:
        """The op and its operands' shapes where parts of shifted factors are what they reach."""
        op = self.instruction.op
        for number in self._divided_shifts(parts):
            for operand, e, one, _ in self._reaches(number, parts[number]) or ():
                given[operand] = given[operand].with_dimensions(
                    [one.count if i == e else n for i, n in enumerate(given[operand].dimensions)]
                )
                if number in self.taps:
                    assert isinstance(op, Convolution)
                    op = on_taps(op, e, -(-self.taps[number][0] // self.grid.count(parts[number])))
                else:
                    op = on_reach(op, e, made[0].dimensions[self.shifted[number][0]])
        return op, given

    def _exchanged(
        self, operands: list[XlaOp], parts: dict[int, Parts], placements: Sequence[Placement]
    ) -> list[XlaOp]:
        """The operands that the op on parts needs, of which some lies in other devices' parts."""
        lowering, found = self.lowering, list(operands)
        for number in self._divided_shifts(parts):
            axes = ", ".join(map(str, self.grid.axes_of(parts[number])))
            for operand, e, one, way in self._reaches(number, parts[number]) or ():
                because = f"{axes} divides dimension {e} of operand {operand}, and results need its neighbours"
                lowering.because(self.instruction, f"operand {operand}", because)
                dtype, fill = found[operand].dtype, None
                if one.fill == ZERO:
                    fill = constants.zero(lowering.builder, dtype)
                elif one.fill == NEUTRAL:
                    fill = lowering.builder.constant(neutral_value(self.instruction.called[0]), dtype)
                elif one.fill is not None:
                    fill = operands[one.fill]
                size, at = self.leaves[operand].sizes[e], placements[operand]
                found[operand] = reached(lowering.emission, found[operand], size, e, parts[number], one, way, fill, at)
        return found

    def _terms(self) -> tuple[Parts, tuple[int, ...]]:
        """The parts along which operands are terms, if the op is computed from terms; and those operands by number."""
        linear = linear_operands(self.instruction, [bool(leaf.placement.unreduced) for leaf in self.leaves])
        found = {self.leaves[i].placement.unreduced for i in linear} - {()}
        if len(found) != 1:
            return (), ()
        terms, wanted = found.pop(), self.wanted[0]
        if set(terms) <= set(wanted.unreduced):
            return terms, linear
        larger = self.results[0].size > max(math.prod(self.leaves[i].sizes) for i in linear)
        shared = any(len(self.instruction.operands[i].users) > 1 for i in linear)
        if larger or shared or not all(self.leaves[i].placement.unreduced for i in linear):
            return (), ()
        return terms, linear

    def _target(self, number: int, placement: Placement) -> Placement:
        """Where an operand is taken from."""
        return Placement(placement.dimensions, self.terms) if number in self.linear else placement

    def _kept(self, made: Placement, wanted: Placement) -> Placement:
        """Where a result goes that is made there: terms of a sum stay those that are wanted, others are folded."""
        terms = made.unreduced if self._adds() else self.terms
        return Placement(wanted.dimensions, tuple(part for part in terms if part in wanted.unreduced))

    def _adds(self) -> bool:
        """Whether what devices along folded dimensions have adds up to the result, as terms do; preds by or."""
        by = self.fold[2] if self.fold is not None else None
        return by is None or by.opcode == ("or" if self.results[0].dtype is dtypes.pred else "add")

    def _choices(self) -> list[_Choice]:
        """As the operands lie, as the result is wanted; with folded factors divided and without; and not at all."""
        given = [(d, leaf.placement) for d, leaf in zip(self.relation.operands, self.leaves, strict=True)]
        given.sort(key=lambda pair: -sum(len(p) for p in pair[1].dimensions))
        asked = list(zip(self.relation.results, self.wanted, strict=True))
        found: dict[tuple[Any, ...], _Choice] = {}
        for order in ([*given, *asked], [*asked, *given]):
            for folds in (True, False):
                for folded_first in (True, False):
                    parts = self._assigned(order, folds, folded_first)
                    key = tuple(sorted(parts.items()))
                    if key not in found:
                        found[key] = _Choice(parts, self._seconds(parts))
        found.setdefault((), _Choice({}, self._seconds({})))
        return list(found.values())

    def _assigned(self, arrays: Sequence[Any], folds: bool, folded_first: bool) -> dict[int, Parts]:
        """Each factor takes the parts of the first array that divides it, less those that others have taken."""
        parts: dict[int, Parts] = {}
        taken: set[int] = set(self.terms)
        for is_for_folded in (folded_first, not folded_first):
            for dimensions, placement in arrays:
                for factors, along in zip(dimensions, placement.dimensions, strict=True):
                    for number, mine in parts_of_factors(self.grid, self.relation, factors, along):
                        factor = self.relation.factors[number]
                        free = mine if not taken & set(mine) else ()
                        is_term = factor.kind in ("folded", "looked up") or number in self.taps
                        if number in parts or not free or is_for_folded != is_term:
                            continue
                        if not self._may_divide(number, folds):
                            continue
                        parts[number] = free
                        taken |= set(free)
        while (number := self._impossible(parts)) is not None:
            del parts[number]
        return parts

    def _may_divide(self, number: int, folds: bool) -> bool:
        """Whether results of parts are parts of the results; or terms of them, which `folds` allows."""
        factor = self.relation.factors[number]
        if number in self.starts:
            return folds or factor.kind == "same"
        if number in self.taps:
            return folds
        if factor.kind == "folded":
            return folds and (self.fold is not None or number == self.chosen)
        if factor.kind == "shifted":
            return number in self.shifted
        in_all = all(any(number in factors for factors in dimensions) for dimensions in self.relation.results)
        return factor.kind == "same" and in_all and (not factor.is_numbered or self._is_iota)

    @property
    def _is_iota(self) -> bool:
        return not self.instruction.operands and len(self.results) == 1

    def _operand(self, number: int, parts: dict[int, Parts]) -> Placement:
        """Where an operand is needed; the image of divided taps in parts that are then exchanged."""
        found = self._placement(self.relation.operands[number], parts)
        for tap, (_, d) in self.taps.items() if not number else ():
            if parts.get(tap):
                found = found.with_dimension(d, parts[tap])
        return found

    def _placement(self, dimensions: Sequence[Sequence[int]], parts: dict[int, Parts]) -> Placement:
        return placement_of_factors(self.grid, self.relation, dimensions, parts)

    def _seconds(self, parts: dict[int, Parts]) -> float:
        """The time of reshards of operands and results, and of computing."""
        seconds = 0.0
        for number, leaf in enumerate(self.leaves):
            target = self._target(number, self._operand(number, parts))
            kept = tuple(part for part in leaf.placement.unreduced if part in target.unreduced)
            target = Placement(target.dimensions, kept)
            seconds += self.planner.seconds(leaf.sizes, _itemsize(leaf.part.shape), leaf.placement, target)
        unreduced = (*self.terms, *self._unreduced(parts))
        for shape, dimensions, wanted in zip(self.results, self.relation.results, self.wanted, strict=True):
            made = Placement(self._placement(dimensions, self._of_results(parts)).dimensions, unreduced)
            target = self._kept(made, wanted)
            missing = len(wanted.unreduced) > len(target.unreduced)
            seconds += self.planner.seconds(shape.dimensions, _itemsize(shape), made, target) + _NO_TERMS * missing
        if parts.get(self.chosen):
            for shape, dimensions in zip(self.results, self.relation.results, strict=True):
                each, rows = self._rows(self._placement(dimensions, parts), shape, parts[self.chosen])
                seconds += self.planner.seconds(rows, _itemsize(shape), each, each.with_dimension(0, ()))
        for number in self._divided_shifts(parts):
            for operand, e, _, way in self._reaches(number, parts[number]) or ():
                leaf = self.leaves[operand]
                local = list(self.grid.local(leaf.sizes, self._operand(operand, parts)))
                nbytes = math.prod(local) / local[e] * _itemsize(leaf.part.shape)
                seconds += halo_seconds(self.planner.network, way, nbytes)
        sizes = (-(-f.size // self.grid.count(parts.get(i, ()))) for i, f in enumerate(self.relation.factors))
        return seconds + 2 * math.prod(sizes) / _FLOPS

    def _impossible(self, parts: dict[int, Parts]) -> int | None:
        """A factor that cannot be divided so: dimensions of several are divided into equal blocks only, major first."""
        for number in self._divided_shifts(parts):
            if self._reaches(number, parts[number]) is None:
                return number
            if number in self.taps:
                other = next((i for i in self.relation.operands[0][self.taps[number][1]] if parts.get(i)), None)
                if other is not None:
                    return other
        if self.chosen in parts and self.relation.factors[self.chosen].size % self.grid.count(parts[self.chosen]):
            return self.chosen
        arrays = [(leaf.sizes, d) for leaf, d in zip(self.leaves, self.relation.operands, strict=True)]
        arrays += [(shape.dimensions, d) for shape, d in zip(self.results, self.relation.results, strict=True)]
        for number, along in parts.items():
            if number in self.shifted or number in self.starts:
                continue
            # of 5 elements and of the first 4 of them, the second half begins elsewhere
            found = {
                -(-size // self.grid.count(along))
                for sizes, dimensions in arrays
                for size, factors in zip(sizes, dimensions, strict=True)
                if factors == (number,)
            }
            if len(found) > 1:
                return number
        for dimensions in (*self.relation.operands, *self.relation.results):
            for factors in dimensions:
                is_used_up = True
                for number in factors:
                    count, size = self.grid.count(parts.get(number, ())), self.relation.factors[number].size
                    if count > 1 and (not is_used_up or (len(factors) > 1 and size % count)):
                        return number
                    is_used_up = is_used_up and count == size
        return None

    def _unreduced(self, parts: dict[int, Parts]) -> Parts:
        """The parts whose devices have terms of the results: of what is folded, and of what only one of them finds."""
        kinds = ("folded", "looked up")
        of_terms = (i for i, f in enumerate(self.relation.factors) if f.kind in kinds or i in self.taps)
        terms = (parts.get(i, ()) for i in of_terms if i != self.chosen)
        return tuple(part for mine in terms for part in mine)

    def _folded(self, parts: dict[int, Parts]) -> Parts:
        """The parts that folded factors are divided along."""
        folded = (parts.get(i, ()) for i, f in enumerate(self.relation.factors) if f.kind == "folded")
        return tuple(part for mine in folded for part in mine)

    def _of_results(self, parts: dict[int, Parts]) -> dict[int, Parts]:
        """The parts of the factors that results are divided along: not of what is looked up."""
        return {i: mine for i, mine in parts.items() if self.relation.factors[i].kind != "looked up"}

    # -- what is looked up or written at places that are known when the program runs

    def _has_ranges(self, start: Start) -> bool:
        """Whether each device can take the places in its own range, and the devices' findings be added up."""
        factor, source = self.relation.factors[start.factor], self.leaves[start.source]
        wide = source.part.dtype.is_integral and source.part.dtype.bits >= 32
        if not wide or factor.size >= 2**31 or len(self.results) != 1 or factor.kind not in ("same", "looked up"):
            return False
        return factor.kind == "same" or OPS["add"]().neutral(self.results[0].dtype) is not None

    def _reach(self, start: Start) -> int:
        """So many elements from its start on are looked up or written."""
        return self.relation.factors[start.factor].size - start.last

    def _divided_starts(self, parts: dict[int, Parts]) -> list[Start]:
        return [start for number, start in self.starts.items() if parts.get(number)]

    def _widened(self, shape: Shape, dimensions: Sequence[Sequence[int]], parts: dict[int, Parts]) -> Shape:
        """A part's shape with the elements before and behind it that a place near its end reaches."""
        sizes = list(shape.dimensions)
        for start in self._divided_starts(parts):
            for d, factors in enumerate(dimensions):
                sizes[d] += 2 * self._reach(start) if start.factor in factors else 0
        return Shape.array(shape.dtype, sizes)

    def _in_ranges(self, operands: list[XlaOp], parts: dict[int, Parts]) -> list[XlaOp]:
        """Operands so that the op finds or writes what lies in the device's range, and else meets padding."""
        builder, found = self.lowering.builder, list(operands)
        for start in self._divided_starts(parts):
            reach, source = self._reach(start), found[start.source]
            local = -(-self.relation.factors[start.factor].size // self.grid.count(parts[start.factor]))
            dtype = source.dtype
            for number, dimensions in enumerate(self.relation.operands):
                for d, factors in enumerate(dimensions):
                    if start.factor in factors:
                        value = OPS["add"]().neutral(found[number].dtype)
                        fill = builder.constant(0 if value is None else value, found[number].dtype)
                        padding = [(reach, reach, 0) if i == d else (0, 0, 0) for i in range(found[number].rank)]
                        found[number] = movement.pad(found[number], fill, padding)
            offset = self.lowering.emission.place(parts[start.factor]) * builder.constant(np.int32(-local))
            offset = elementwise.convert_element_type(offset + builder.constant(np.int32(reach)), dtype)

            def spread(value: XlaOp, like: XlaOp = source) -> XlaOp:
                return movement.broadcast(value, like.shape.dimensions)

            zero, last = (spread(builder.constant(n, dtype)) for n in (0, start.last))
            if self.instruction.op.form == "scatter":  # what begins outside is dropped, before and now
                inside = elementwise.and_(elementwise.ge(source, zero), elementwise.le(source, last))
                outside = spread(elementwise.sub(builder.constant(0, dtype), builder.constant(1, dtype)))
                moved = elementwise.select(inside, source + spread(offset), outside)
            else:
                moved = elementwise.min(elementwise.max(source, zero), last) + spread(offset)
            if start.component is not None:
                d, place = start.component
                numbers = builder.iota(dtypes.s32[source.shape.dimensions], d)
                mine = elementwise.eq(numbers, spread(builder.constant(np.int32(place))))
                moved = elementwise.select(mine, moved, source)
            found[start.source] = moved
        return found

    def _unwidened(self, made: XlaOp, parts: dict[int, Parts], wanted: Shape) -> XlaOp:
        """The result without the elements around a part."""
        first = [0] * wanted.rank
        for start in self._divided_starts(parts):
            for d, factors in enumerate(self.relation.results[0]):
                if start.factor in factors and self.relation.factors[start.factor].kind == "same":
                    first[d] = self._reach(start)
        if not any(first):
            return made
        limits = [a + n for a, n in zip(first, wanted.dimensions, strict=True)]
        return indexing.slice(made, first, limits, [1] * wanted.rank)

    # -- folds

    def _fold(self) -> Any:
        """(combiner or None for addition, neutral value, its op) of a fold that devices may share; else None."""
        form = self.instruction.op.form
        if form == "contraction":
            return (None, 0, None)
        if form == "scatter" and len(self.results) == 1:
            combiner = self.instruction.called[0]
            by = combiner.single_op
            adds = by is not None and by.opcode == "add" and self.results[0].dtype is not dtypes.pred
            return (combiner, 0, None) if adds else None
        if form != "fold" or len(self.results) != 1:
            return None
        combiner = self.instruction.called[0]
        by, neutral = combiner.single_op, neutral_value(combiner)
        if by is None or neutral is None or not by.commutative or by.opcode not in _SHARED:
            return None
        return (combiner, neutral, by)

    def _chosen(self) -> int:
        """The folded factor of a fold of several arrays that chooses among their elements, as argmax does: devices
        choose among theirs, and then all among what each has chosen. -1 for others, and if several are folded: the
        first of equal elements would be another."""
        op, folded = self.instruction.op, [i for i, f in enumerate(self.relation.factors) if f.kind == "folded"]
        if not isinstance(op, Reduce) or len(self.results) < 2 or len(folded) != 1:
            return -1
        starts = [o.op.literal.value for o in self.instruction.operands if isinstance(o.op, Constant)]
        starts = starts[-len(self.results) :]
        is_constant = all(isinstance(o.op, Constant) for o in self.instruction.operands[len(self.results) :])
        return folded[0] if is_constant and is_choice(self.instruction.called[0], starts) else -1

    def _rows(self, placement: Placement, shape: Shape, along: Parts) -> tuple[Placement, tuple[int, ...]]:
        """Where what each device has chosen is a row of an array, and that array's sizes."""
        return Placement((along, *placement.dimensions)), (self.grid.count(along), *shape.dimensions)

    def _chosen_of_all(self, made: XlaOp, along: Parts, results: Sequence[Placement], starts: list[XlaOp]) -> XlaOp:
        """The choice among what the devices along the folded dimension have chosen, in their order."""
        lowering, rows = self.lowering, list[XlaOp]()
        axes = ", ".join(map(str, self.grid.axes_of(along)))
        because = f"the reduced dimension is divided along {axes}: each device has selected among its elements"
        for number, (shape, placement) in enumerate(zip(self.results, results, strict=True)):
            each, sizes = self._rows(placement, shape, along)
            part = control.get_tuple_element(made, number)
            row = Leaf(movement.reshape(part, (1, *part.shape.dimensions)), sizes, each)
            whole = each.with_dimension(0, ())
            rows.append(lowering.resharded(self.instruction, row, whole, f"result {number}", because).part)
        return lowering.builder.emit(Reduce((0,)), [*rows, *starts], self.instruction.called)

    # -- writing it

    def _local_op(
        self, operands: Sequence[Placement], results: Sequence[Placement], parts: dict[int, Parts]
    ) -> Op | None:
        """The op for a device's parts; None where its shape rule gives something else for them."""
        instruction = self.instruction
        given = [self.lowering._local(_shape(leaf), p) for leaf, p in zip(self.leaves, operands, strict=True)]  # pyright: ignore[reportPrivateUsage]
        made = [self.lowering._local(shape, p) for shape, p in zip(self.results, results, strict=True)]  # pyright: ignore[reportPrivateUsage]
        if self._divided_starts(parts):
            given = [self._widened(s, d, parts) for s, d in zip(given, self.relation.operands, strict=True)]
            kept = self._of_results(parts)
            made = [self._widened(s, d, kept) for s, d in zip(made, self.relation.results, strict=True)]
        wanted = _with_leaves(instruction.shape, made)
        op = instruction.op
        if self._divided_shifts(parts):
            op, given = self._on_halos(parts, given, made)
            if isinstance(op, Concatenate):
                return op
        try:
            op = op.resized(given, wanted)
            called = [(role, _signatures(c)) for role, c in instruction.called_by_role()]
            found = infer_shape(op, given, called)
        except ShapeError:
            return None
        if found.logical.static is not wanted.logical.static:
            return None
        local = relation(op, tuple(given), wanted, batch_dims_of(instruction))
        return op if local is not None and self._is_alike(local, [*operands, *results], [*given, *made]) else None

    def _is_alike(self, local: Relation, placements: Sequence[Placement], shapes: Sequence[Shape]) -> bool:
        """Whether divided dimensions are to the op on parts what they are to it whole: its attributes may differ."""
        arrays = zip([*self.relation.operands, *self.relation.results], [*local.operands, *local.results], strict=True)
        for (whole, part), placement, shape in zip(arrays, placements, shapes, strict=True):
            for d, along in enumerate(placement.dimensions):
                if along and shape.dimensions[d] > 1 and not any(i in self.shifted for i in whole[d]):
                    kinds = ({(self.relation.factors[i].kind, self.relation.factors[i].is_numbered) for i in whole[d]},
                             {(local.factors[i].kind, local.factors[i].is_numbered) for i in part[d]})  # fmt: skip
                    if not kinds[1] <= kinds[0]:
                        return False
        return True

    def _emitted(self, op: Op, choice: _Choice, placements: Sequence[Placement], results: Sequence[Placement]) -> Value:
        lowering, instruction = self.lowering, self.instruction
        parts: list[XlaOp] = []
        for number, (leaf, placement) in enumerate(zip(self.leaves, placements, strict=True)):
            because = self._conflict(number, choice.parts)
            target = self._target(number, placement)
            moved = lowering.resharded(instruction, leaf, target, f"operand {number}", because)
            parts.append(self._masked(moved, number))
        own = self._unreduced(choice.parts)
        unreduced = (*self.terms, *own)
        made_at = Placement(results[0].dimensions, unreduced)
        target = self._kept(made_at, self.wanted[0])
        init: XlaOp | None = None
        if self.fold is not None and self.fold[2] is not None and own and not self._is_idempotent():
            if target.unreduced:
                parts[1] = lowering.emission.term(parts[1], own)
            else:
                init, parts[1] = parts[1], lowering.builder.constant(self.fold[1], parts[1].dtype)
        if instruction.op.form == "scatter" and self._folded(choice.parts):
            parts[0] = lowering.emission.term(parts[0], self._folded(choice.parts))
        local = [lowering._local(shape, p) for shape, p in zip(self.results, results, strict=True)]  # pyright: ignore[reportPrivateUsage]
        if self._divided_shifts(choice.parts):
            parts = self._exchanged(parts, choice.parts, placements)
        if isinstance(op, Concatenate) and self._divided_shifts(choice.parts):
            (number,) = self._divided_shifts(choice.parts)
            sizes = [leaf.sizes[op.dimension] for leaf in self.leaves]
            made = joined(lowering.emission, parts, sizes, op.dimension, choice.parts[number])
        elif self._divided_starts(choice.parts):
            made = lowering.builder.emit(op, self._in_ranges(parts, choice.parts), instruction.called)
            made = self._unwidened(made, choice.parts, local[0])
        else:
            shape = None if instruction.shape.is_tuple else local[0]
            made = lowering.builder.emit(op, parts, instruction.called, shape=shape)
        if choice.parts.get(self.chosen):
            starts = parts[len(self.results) :]
            made = self._chosen_of_all(made, choice.parts[self.chosen], results, starts)
        if self._is_iota and choice.parts:
            made = self._numbered(made, results[0])
        value = lowering.taken_apart(made, instruction.shape, [Placement(p.dimensions, unreduced) for p in results])
        if not unreduced:
            return value
        assert isinstance(value, Leaf)
        axes = ", ".join(map(str, self.grid.axes_of(unreduced)))
        because = f"the reduced dimension is divided along {axes}: devices have partial results"
        if not own:
            because = f"its operands are unreduced along {axes}, but its result is not"
        elif self.fold is None:
            because = f"the array that it indexes is divided along {axes}: each device reads the elements in its part"
        combiner = self.fold[0] if self.fold is not None else None
        reduced = lowering.resharded(instruction, value, target, "result", because, combiner)
        if init is None or self.fold is None:
            return reduced
        start = movement.broadcast(init, reduced.part.shape.dimensions)
        return Leaf(lowering.builder.emit(self.fold[2], [start, reduced.part]), reduced.sizes, reduced.placement)

    def _is_idempotent(self) -> bool:
        """Starting each device's fold at the start of the whole changes nothing."""
        start = self.instruction.operands[1].op
        if not isinstance(start, Constant):
            return False
        value = np.asarray(start.literal.value)
        with np.errstate(all="ignore"):
            twice = np.asarray(self.fold[2].reference(value, value))
        return twice.tobytes() == value.tobytes()

    def _masked(self, leaf: Leaf, number: int) -> XlaOp:
        """The operand, neutral where a folded dimension that parts do not divide, or one of taps, is padded."""
        part = leaf.part
        for d, factors in enumerate(self.relation.operands[number]):
            folded = any(self.relation.factors[i].kind == "folded" or i in self.taps for i in factors)
            if folded and leaf.sizes[d] % self.grid.count(leaf.placement.dimensions[d]):
                assert self.fold is not None
                part = self.lowering.emission.masked(part, leaf.sizes, leaf.placement, d, self.fold[1])
        return part

    def _numbered(self, made: XlaOp, placement: Placement) -> XlaOp:
        """An iota of a device's part, which begins where the parts before it end."""
        emission, builder, shape = self.lowering.emission, self.lowering.builder, made.shape
        (d,) = (i for i, f in enumerate(self.relation.results[0]) if self.relation.factors[f[0]].is_numbered)
        along = placement.dimensions[d]
        if not along:
            return made
        numbers = builder.iota(dtypes.s32[shape.dimensions], d)
        start = emission.place(along) * builder.constant(np.int32(shape.dimensions[d]))
        return elementwise.convert_element_type(numbers + movement.broadcast(start, shape.dimensions), shape.dtype)

    def _conflict(self, number: int, parts: dict[int, Parts]) -> str:
        """Why an operand does not stay where it is."""
        leaf = self.leaves[number]
        opcode = self.instruction.opcode
        for d, (factors, along) in enumerate(
            zip(self.relation.operands[number], leaf.placement.dimensions, strict=True)
        ):
            if not along:
                continue
            axes = ", ".join(map(str, self.grid.axes_of(along)))
            for i in factors:
                factor = self.relation.factors[i]
                if not self._may_divide(i, folds=True):
                    kind = "numbered" if factor.kind == "same" else factor.kind
                    return f"{axes} divides dimension {d} of operand {number}, which {opcode} needs whole ({kind})"
                if i == self.chosen and factor.size % self.grid.count(along):
                    return f"{axes} does not divide dimension {d} of operand {number} into equal parts"
                if parts.get(i, ()) != along:
                    others = [j for j, p in parts.items() if set(p) & set(along) and j != i]
                    if others:
                        return f"{axes} divides dimension {d} of operand {number} and another dimension of {opcode}"
                    return f"dimension {d} of operand {number} is divided along {axes}, but other operands are not"
        return f"operand {number} must have the same placement as the other operands of {opcode}"


_NO_TERMS = 1.0
"""Seconds that an op counts for whose result is to be terms and is computed whole, which is the last choice."""
_FLOPS = 1e12
"""Operations a second of a device that choices assume."""

_SHARED = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
"""Ops that fold what devices have in any order: those that an all-reduce is made of."""


def flat(value: Value) -> list[Leaf]:
    """The arrays of a value."""
    return [value] if isinstance(value, Leaf) else [leaf for element in value for leaf in flat(element)]


def _shape(leaf: Leaf) -> Shape:
    return Shape.array(leaf.part.dtype, leaf.sizes)


def _itemsize(shape: Shape) -> float:
    return shape.dtype.bits / 8 if shape.is_array else 0


def _signatures(called: Any) -> Any:
    return [c.signature() for c in called] if isinstance(called, list) else called.signature()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _with_leaves(shape: Shape, leaves: Sequence[Shape]) -> Shape:
    """A shape of this structure with other arrays."""
    rest = list(leaves)

    def build(shape: Shape) -> Shape:
        return Shape.tuple(map(build, shape.elements)) if shape.is_tuple else rest.pop(0)

    return build(shape)


def _only_device(instruction: Instruction) -> int | None:
    """The device of a maximal sharding."""
    sharding = stated(instruction)
    leaves = leaves_of(sharding) if sharding is not None else []
    return leaves[0].device if leaves and leaves[0].kind == "maximal" else None


def _zeros(builder: Builder, shape: Shape) -> XlaOp:
    if shape.is_tuple:
        return control.tuple_(builder, [_zeros(builder, element) for element in shape.elements])
    return constants.zeros(builder, shape)


def _configuration(instruction: Instruction) -> Extra:
    found = Extra()
    if instruction.extra is not None:
        found.backend_config = instruction.extra.backend_config
        found.backend_config_is_json = instruction.extra.backend_config_is_json
        found.metadata = instruction.extra.metadata
    return found


def _refuse(instruction: Instruction) -> None:
    """UnsupportedError for what would be done once on each device, and means something else then."""
    op = instruction.op
    if op.has_side_effect() or op.asks_device or op.form == "communicate":
        raise UnsupportedError(f"partition: {op.opcode} ({instruction.name}) in a program on whole values")
    if op.reads_layout:
        for shape in (instruction.shape, *(o.shape for o in instruction.operands)):
            if shape.is_array and shape.layout is not None and shape.layout != shape.logical.layout_or_default:
                raise UnsupportedError(f"partition: {op.opcode} ({instruction.name}) of a layout that is not row-major")


__all__ = ["Leaf", "Lowering", "Partitioner", "Value", "addition", "flat"]
