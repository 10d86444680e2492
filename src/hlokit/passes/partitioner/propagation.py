"""Propagation: a placement for every array of a program, derived from the stated ones, as in Shardy.

An instruction's factors (analysis/factors) pass on the axes that arrays are divided along. Ops come in rounds: those
that pass everything on first, what would communicate last; stated dimensions of a lower priority wait for those before.
Where arrays disagree, a factor takes the axes that all agree on from the major one on; where two factors of an array
want one axis, the one that the larger array brings has it. A stated dimension is closed: it keeps what it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from hlokit.analysis.factors import Dimensions, Relation, relation_of
from hlokit.errors import ShapeError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import AddDependency, Call, Conditional, While
from hlokit.ops.movement import Broadcast, Concatenate
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice
from hlokit.ops.sorting import Sort, TopK
from hlokit.ops.structure import GetTupleElement, OptBarrier, Parameter, Tuple
from hlokit.passes.partitioner.placement import Grid, Parts, Placement, leaves_of
from hlokit.passes.partitioner.regions import SHARDING, target_of
from hlokit.stablehlo.manual import BARRIER_FROM, BARRIER_TO, GROUPS, OPEN, PRIORITIES, WISH
from hlokit.text.groups import parse_sharding
from hlokit.types.shape import Shape
from hlokit.types.sharding import NamedSharding, Sharding

_ROUNDS = 5
"""Rounds of ops: see `_Step.direction`."""
_MOST_VISITS = 64
"""Visits of each step in a round, on average, before it ends."""


def stated(instruction: Instruction) -> Sharding | None:
    """The sharding that the program says of a value: its own, or what a constraint wants."""
    extra = instruction.extra
    if extra is None:
        return None
    if extra.sharding is not None:
        return extra.sharding
    wish = extra.frontend_attributes.get(WISH)
    return parse_sharding(wish) if wish is not None else None


@dataclass(frozen=True)
class Origin:
    """The cause that a dimension of an array is divided along some parts of axes.

    by      the instruction that passed them on, or whose value they are stated of
    source  what brought them to it: "operand 0", "the result", "an edge" of control flow; "" where they are stated
    """

    by: Instruction
    source: str = ""

    def __str__(self) -> str:
        return f"from {self.source} of {self.by.opcode} {self.by.name}" if self.source else "stated"


@dataclass(frozen=True, eq=False)
class Propagation:
    """The placements of a module's arrays.

    module      the module, prepared and split
    placements  of each instruction's arrays, in order; results: of the entry's result's
    origins     for each array of an instruction the cause of each part that it is divided along
    """

    grid: Grid
    module: HloModule
    placements: dict[Instruction, tuple[Placement, ...]]
    results: tuple[Placement, ...]
    origins: dict[Instruction, tuple[dict[int, Origin], ...]]

    def annotated(self) -> HloModule:
        """The module, each of whose instructions has its placement as its sharding from now on."""
        return self.annotate(self.module)

    def annotate(self, module: HloModule) -> HloModule:
        """The same of a copy of the module, whose instructions have the same names."""
        named = {i.name: i for i in module.instructions()}
        for own, placements in self.placements.items():
            instruction = named[own.name]
            shardings = tuple(Sharding("named", named=self.grid.sharding(p)) for p in placements)
            if instruction.shape.is_tuple:
                instruction.ensure_extra().sharding = Sharding("tuple", elements=shardings)
            elif instruction.shape.is_array:
                instruction.ensure_extra().sharding = shardings[0]
        return module

    def reasons(self) -> list[str]:
        """A line for each array that is divided, and whence it has each axis."""
        lines: list[str] = []
        for instruction, placements in self.placements.items():
            if isinstance(instruction.op, (Call, Tuple, GetTupleElement)):
                continue
            for leaf, (placement, origins) in enumerate(zip(placements, self.origins[instruction], strict=True)):
                if placement.is_whole:
                    continue
                name = f"{instruction.name}[{leaf}]" if instruction.shape.is_tuple else instruction.name
                sharding = str(self.grid.sharding(placement)).split(", ", 1)[-1]
                causes: dict[str, list[int]] = {}
                for part in chain.from_iterable(placement.dimensions):
                    causes.setdefault(str(origins[part]) if part in origins else "stated", []).append(part)
                said = "; ".join(
                    f"{', '.join(map(str, self.grid.axes_of(tuple(parts))))} {cause}" for cause, parts in causes.items()
                )
                lines.append(f"{instruction.opcode} {name} {sharding}: {said or 'stated'}")
        return lines


def propagate(module: HloModule, grid: Grid) -> Propagation:
    """The placements of the arrays of a module whose called computations have one caller each.

    Raises ShapeError (PART-2, PART-3) for stated shardings that do not fit their values or the mesh.

    >>> import hlokit as hk
    >>> from hlokit.passes.partitioner.placement import Grid, mesh_of_text
    >>> module = hk.parse('''ENTRY e {
    ...   x = f32[8,6] parameter(0), sharding={mesh['a'=2], [{'a'}, {}]}
    ...   t = f32[6,8] transpose(x), dimensions={1,0}
    ...   ROOT y = f32[6,8] tanh(t) }''')
    >>> print(*propagate(module, Grid(mesh_of_text("a=2"))).reasons(), sep="\\n")
    parameter x [{'a'}, {}]: 'a' stated
    transpose t [{}, {'a'}]: 'a' from operand 0 of transpose t
    tanh y [{}, {'a'}]: 'a' from operand 0 of tanh y
    """
    graph = _Graph(grid)
    results = graph.entry(module.entry)
    for priority in sorted({0, *(p for cell in graph.cells for p in cell.waiting)}):
        for cell in graph.cells:
            cell.release(priority)
        for round in range(_ROUNDS):
            graph.run(round)
    placements = {i: tuple(a.cell.placement for a in arrays) for i, arrays in graph.arrays.items()}
    origins = {i: tuple(a.cell.origins for a in arrays) for i, arrays in graph.arrays.items()}
    return Propagation(grid, module, placements, tuple(a.cell.placement for a in results), origins)


# -- arrays


@dataclass(frozen=True)
class _Said:
    """The stated sharding of an array; of each dimension its parts, whether it is closed, and its priority."""

    dimensions: tuple[Parts, ...]
    closed: tuple[bool, ...]
    priorities: tuple[int, ...]
    replicated: Parts = ()
    unreduced: Parts = ()
    group: str | None = None


class _Cell:
    """The placement of an array while it grows; arrays between which a value flows unchanged may share one."""

    def __init__(self, rank: int) -> None:
        self.dimensions: tuple[Parts, ...] = ((),) * rank
        self.closed = [False] * rank
        self.replicated: frozenset[int] = frozenset()
        self.unreduced: Parts = ()
        self.waiting: dict[int, dict[int, tuple[Parts, bool]]] = {}
        self.origins: dict[int, Origin] = {}
        self.alike: list[_Cell] = []
        self.steps: list[_Step] = []
        self.version = 0
        self.is_stated = False

    @property
    def placement(self) -> Placement:
        return Placement(self.dimensions, self.unreduced)

    def state(self, said: _Said, origin: Origin) -> None:
        """Takes what is stated; dimensions of a later priority are closed until then, and their axes kept free."""
        self.is_stated = True
        dimensions = list(self.dimensions)
        kept = set(said.replicated)
        for d, (parts, is_closed, priority) in enumerate(
            zip(said.dimensions, said.closed, said.priorities, strict=True)
        ):
            if priority:
                self.waiting.setdefault(priority, {})[d] = (parts, is_closed)
                kept |= set(parts)
            dimensions[d] = () if priority else parts
            self.closed[d] = is_closed or priority > 0
        self.dimensions, self.replicated, self.unreduced = tuple(dimensions), frozenset(kept), said.unreduced
        for part in chain.from_iterable(said.dimensions):
            self.origins[part] = origin

    def release(self, priority: int) -> None:
        """The dimensions of this priority are as they were stated."""
        for d, (parts, is_closed) in self.waiting.pop(priority, {}).items():
            self.dimensions = (*self.dimensions[:d], parts, *self.dimensions[d + 1 :])
            self.closed[d] = is_closed
            self.replicated -= set(parts)
            self.version += 1


@dataclass(eq=False)
class _Array:
    """A value of the program: its cell, and how many operands it is."""

    cell: _Cell
    rank: int
    uses: int = 0


# -- steps


class _Direction(Flag):
    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


_FLOWS = {SHARDING: _Direction.BOTH, BARRIER_FROM: _Direction.BACKWARD, BARRIER_TO: _Direction.FORWARD}
"""Where axes go through custom calls that give their operand, by target."""
_Sort: TypeAlias = Literal["elementwise", "rearranged", "edge", "sliced", "broadcast", "other"]


@dataclass(eq=False)
class _Step:
    """An instruction, or an edge along which a value flows unchanged, between arrays.

    sizes           of the factors
    arrays          for each operand, then each result, the factors of its dimensions
    blocked         factors that nothing is passed on along; passed: those of which elements stay with each other
    allowed         whether axes go from operands to results, and back
    """

    instruction: Instruction
    sort: _Sort
    operands: list[_Array]
    results: list[_Array]
    sizes: tuple[int, ...]
    arrays: tuple[Dimensions, ...]
    blocked: frozenset[int] = frozenset()
    passed: frozenset[int] = frozenset()
    seen: tuple[int, ...] = ()
    allowed: _Direction = _Direction.BOTH

    @cached_property
    def cells(self) -> list[_Cell]:
        return [array.cell for array in (*self.operands, *self.results)]

    @cached_property
    def _is_single_use(self) -> bool:
        """Whether no operand has other users, with which there could be a conflict."""
        return all(array.uses == 1 for array in self.operands if array.rank)

    def direction(self, round: int, factor: int) -> _Direction:
        """Where a factor's axes go in this round, in which those before are repeated.

        0 through ops that compute element by element, reshape or transpose, whose operands have no other users
        1 through all of those
        2 along the factors of which elements stay with each other; of a broadcast to its operand only
        3 along all factors; of a broadcast to its operand only
        4 everywhere
        """
        if factor in self.blocked:
            return _Direction.NONE
        found = _Direction.NONE
        if self.sort == "edge" or (
            self.sort in ("elementwise", "rearranged", "sliced") and (round >= 1 or self._is_single_use)
        ):
            found = _Direction.FORWARD if self.sort == "sliced" else _Direction.BOTH
        if round >= 3 or (round == 2 and (factor in self.passed or self.sort == "edge")):
            found |= _Direction.BACKWARD if self.sort == "broadcast" else _Direction.BOTH
        return (_Direction.BOTH if round >= 4 else found) & self.allowed


def _step(instruction: Instruction, relation: Relation, operands: list[_Array], results: list[_Array]) -> _Step:
    factors = relation.factors
    sort: _Sort = "other"
    if instruction.op.form == "map":
        sort = "elementwise"
    elif isinstance(instruction.op, (DynamicSlice, DynamicUpdateSlice)):
        sort = "sliced"
    elif isinstance(instruction.op, Broadcast):
        sort = "broadcast"
    elif len(operands) == 1 and all(f.kind == "same" and not f.is_numbered for f in factors):
        of_operand, of_result = (
            {f for f in chain.from_iterable(array[0]) if factors[f].size > 1}
            for array in (relation.operands, relation.results)
        )
        sort = "rearranged" if of_operand == of_result else "other"
    blocked = {i for i, f in enumerate(factors) if f.kind == "looked up"}
    if isinstance(instruction.op, Sort) and sum(f.size > 1 for f in factors) == 1:
        blocked = set(range(len(factors)))  # nothing is kept in parts
    if isinstance(instruction.op, TopK):
        blocked |= {i for i, f in enumerate(factors) if f.kind == "whole"}  # a place in a result is a rank
    passed = frozenset(i for i, f in enumerate(factors) if f.kind == "same")
    if isinstance(instruction.op, Concatenate):
        joined = instruction.op.dimension
        step = _flow(instruction, instruction.shape, operands, results[0], "other")
        return replace(step, passed=step.passed - {joined})
    sizes = tuple(f.size for f in factors)
    arrays = tuple(
        tuple(tuple(f for f in dimension if sizes[f] > 1) or dimension[:1] for dimension in dimensions)
        for dimensions in (*relation.operands, *relation.results)
    )
    return _Step(instruction, sort, operands, results, sizes, arrays, frozenset(blocked), passed)


def _flow(instruction: Instruction, shape: Shape, sources: list[_Array], target: _Array, sort: _Sort = "edge") -> _Step:
    """A value flows unchanged from each of the sources."""
    numbers = tuple((d,) for d in range(shape.rank))
    every = frozenset(range(shape.rank))
    arrays = (numbers,) * (len(sources) + 1)
    return _Step(instruction, sort, sources, [target], shape.dimensions, arrays, frozenset(), every)


# -- the program as arrays and steps


class _Graph:
    """The arrays and steps of a program, and the rounds over them."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.cells: list[_Cell] = []
        self.steps: list[_Step] = []
        self.arrays: dict[Instruction, list[_Array]] = {}
        self._outputs: list[_Step] = []
        self._groups: dict[str, list[_Cell]] = {}

    def entry(self, computation: Computation) -> list[_Array]:
        """Adds the entry computation. The arrays of its result, which may lie otherwise than the values returned."""
        parameters: dict[int, list[_Array]] = {}
        for parameter in computation.parameters:
            op = parameter.op
            assert isinstance(op, Parameter)
            parameters[op.number] = self._new(parameter.shape)
        values = self._add(computation, parameters)
        for value in values:
            value.uses += 1
        root = computation.root
        results = values
        if isinstance(root.op, Tuple):
            results = self._new(root.shape)
            self._state(root, results)
            self.arrays[root] = results
            for shape, value, result in zip(root.shape.leaves(), values, results, strict=True):
                if shape.is_array:
                    self._outputs.append(_flow(root, shape, [value], result))
        for step in self.steps:
            for cell in dict.fromkeys(step.cells):
                cell.steps.append(step)
        for members in self._groups.values():
            _make_alike(members)
        return results

    def _new(self, shape: Shape) -> list[_Array]:
        found: list[_Array] = []
        for leaf in shape.leaves():
            rank = leaf.rank if leaf.is_array else 0
            found.append(_Array(_Cell(rank), rank))
            self.cells.append(found[-1].cell)
        return found

    def _add(self, computation: Computation, parameters: dict[int, list[_Array]]) -> list[_Array]:
        for instruction in computation.post_order():
            op = instruction.op
            if isinstance(op, Parameter):
                found = parameters[op.number]
            elif isinstance(op, (Call, Tuple, GetTupleElement)):
                found = self._parts(instruction)
                if instruction is not computation.root and stated(instruction) is not None:
                    found = self._constrained(instruction, found)
            else:
                found = self._made(instruction)
            self.arrays[instruction] = found
            if not isinstance(op, (Call, Tuple, GetTupleElement)):
                self._state(instruction, found)
        return self.arrays[computation.root]

    def _parts(self, instruction: Instruction) -> list[_Array]:
        """The arrays of a tuple that is put together, of an element of one, or of what a function gives."""
        op = instruction.op
        if isinstance(op, Call):
            given = [self.arrays[operand] for operand in instruction.operands]
            return self._add(instruction.called[0], dict(enumerate(given)))
        if isinstance(op, GetTupleElement):
            (operand,) = instruction.operands
            first = sum(1 for element in operand.shape.elements[: op.index] for _ in element.leaves())
            count = sum(1 for _ in instruction.shape.leaves())
            return self.arrays[operand][first : first + count]
        return [array for operand in instruction.operands for array in self.arrays[operand]]

    def _constrained(self, instruction: Instruction, given: list[_Array]) -> list[_Array]:
        """Arrays of their own for what lies elsewhere than the tuple, or element, that it is of."""
        found = self._new(instruction.shape)
        self._state(instruction, found)
        for shape, old, new in zip(instruction.shape.leaves(), given, found, strict=True):
            old.uses += 1
            if shape.is_array:
                self.steps.append(_flow(instruction, shape, [old], new, "elementwise"))
        return found

    def _made(self, instruction: Instruction) -> list[_Array]:
        """The arrays of an instruction that computes them, or that control reaches."""
        op = instruction.op
        found = self._new(instruction.shape)
        given = [self.arrays[operand] for operand in instruction.operands]
        sources: list[list[_Array]] = []
        if isinstance(op, While):
            inner = [[_Array(array.cell, array.rank) for array in found] for _ in instruction.called]
            roots = [self._add(c, {0: state}) for c, state in zip(instruction.called, inner, strict=True)]
            sources = [given[0], roots[1]]
        elif isinstance(op, Conditional):
            pairs = zip(instruction.called, given[1:], strict=True)
            sources = [self._add(c, {0: operand}) for c, operand in pairs]
        elif isinstance(op, (OptBarrier, AddDependency)):
            sources = given[:1]
        if sources:
            for array in chain.from_iterable(sources):
                array.uses += 1
            for number, (shape, target) in enumerate(zip(instruction.shape.leaves(), found, strict=True)):
                if shape.is_array and not shape.is_dynamic:
                    self.steps.append(_flow(instruction, shape, [source[number] for source in sources], target))
            return found
        operands = list(chain.from_iterable(given))
        for array in operands:
            array.uses += 1
        target = target_of(instruction)
        if target in _FLOWS:
            step = _flow(instruction, instruction.shape, operands, found[0], "elementwise")
            step.allowed = _FLOWS[target]
            self.steps.append(step)
            return found
        relation = relation_of(instruction)
        if relation is not None:
            self.steps.append(_step(instruction, relation, operands, found))
        return found

    # -- what the program states

    def _state(self, instruction: Instruction, arrays: list[_Array]) -> None:
        said = said_of(self.grid, instruction)
        for found, array in zip(said, arrays, strict=True):
            if found is None:
                continue
            cell = array.cell
            if not cell.is_stated and (found.dimensions or found.unreduced):
                cell.state(found, Origin(instruction))
        groups = [found.group for found in said if found is not None and found.group is not None]
        extra = instruction.extra
        if extra is not None and GROUPS in extra.frontend_attributes:
            groups += extra.frontend_attributes[GROUPS].split(",")
        for group in groups:
            for array in arrays:
                self._groups.setdefault(f"{group} {array.rank}", []).append(array.cell)

    # -- rounds

    def run(self, round: int) -> None:
        """One round: every step, and again those whose arrays change."""
        self._return()
        pending = list(reversed(self.steps))
        waiting = set(pending)
        visits = _MOST_VISITS * max(16, len(pending))
        while pending and visits:
            visits -= 1
            step = pending.pop()
            waiting.discard(step)
            for cell in self._visit(step, round):
                for other in reversed(cell.steps):
                    if other is not step and other not in waiting:
                        waiting.add(other)
                        pending.append(other)
        self._return()

    def _return(self) -> None:
        for step in self._outputs:
            self._visit(step, _ROUNDS)

    def _visit(self, step: _Step, round: int) -> list[_Cell]:
        """Passes on the axes of a step; the cells that changed."""
        now = (round, *(cell.version for cell in step.cells))
        if now == step.seen or not any(map(any, (cell.dimensions for cell in step.cells))):
            return []
        step.seen = now
        changed: list[_Cell] = []
        for cell, parts, origin in _passed_on(self.grid, step, round):
            if parts == cell.dimensions:
                continue
            for member in [cell, *cell.alike]:
                member.dimensions = parts
                member.closed = list(cell.closed)
                member.version += 1
                for part, found in origin.items():
                    member.origins.setdefault(part, found)
                changed.append(member)
        return changed


def said_of(grid: Grid, instruction: Instruction) -> list[_Said | None]:
    """The stated sharding of each array of a value; None where it says nothing."""
    leaves = list(instruction.shape.leaves())
    sharding = stated(instruction)
    if sharding is None:
        return [None] * len(leaves)
    found = leaves_of(sharding)
    if len(found) == 1 and len(leaves) != 1:
        found *= len(leaves)
    if len(found) != len(leaves):
        raise ShapeError("PART-3", f"sharding of {instruction.name}", str(sharding), f"{len(leaves)} shardings")
    return [_said(grid, instruction, s, leaf) for s, leaf in zip(found, leaves, strict=True)]


def _said(grid: Grid, instruction: Instruction, sharding: Sharding, shape: Shape) -> _Said | None:
    if not shape.is_array:
        return None
    rank = shape.rank
    group = f"{sharding.group[0]} {sharding.group[1]}" if sharding.group is not None else None
    placement = grid.placement(sharding, rank)
    named = sharding.named
    replicated: Parts = ()
    closed = (True,) * rank
    if named is not None:
        closed = _closed(named, rank)
        replicated = grid.parts_of(named.replicated) if named.mesh.axes == grid.mesh.axes else ()
    attributes = instruction.extra.frontend_attributes if instruction.extra is not None else {}
    if OPEN in attributes:
        open = {int(number) for number in attributes[OPEN].split(",")}
        closed = tuple(d not in open for d in range(rank))
    if placement is None:
        if not replicated and group is None:
            return None
        placement, closed = Placement.whole(rank), (False,) * rank
    priorities = (0,) * rank
    if PRIORITIES in attributes:
        given = [int(number) for number in attributes[PRIORITIES].split(",")]
        priorities = tuple(given) if len(given) == rank else priorities
    return _Said(placement.dimensions, closed, priorities, replicated, placement.unreduced, group)


def _closed(named: NamedSharding, rank: int) -> tuple[bool, ...]:
    return tuple(not d.is_open for d in named.dimensions) or (True,) * rank


def _make_alike(members: list[_Cell]) -> None:
    """The cells of a group lie alike: as the one of them of which something is said. None do if two say otherwise."""
    members = list(dict.fromkeys(members))
    said = [cell for cell in members if cell.is_stated]
    if any((c.dimensions, c.closed) != (said[0].dimensions, said[0].closed) for c in said):
        return
    for cell in members:
        cell.alike += [other for other in members if other is not cell and other not in cell.alike]
        if said and cell is not said[0]:
            cell.dimensions, cell.closed = said[0].dimensions, list(said[0].closed)
            cell.replicated = said[0].replicated
            cell.origins = dict(said[0].origins)


# -- one step


@dataclass
class _Factored:
    """An array's axes by factors.

    axes      of each factor of the array; overflow: those behind them that the factor does not divide by
    closed    factors that take no more; minor: those that are the last of their dimensions
    """

    axes: dict[int, Parts] = field(default_factory=dict[int, Parts])
    overflow: dict[int, Parts] = field(default_factory=dict[int, Parts])
    closed: set[int] = field(default_factory=set[int])
    minor: set[int] = field(default_factory=set[int])

    def others(self, factor: int) -> set[int]:
        """The parts that other factors have."""
        return {
            part
            for held in (self.axes, self.overflow)
            for number, parts in held.items()
            if number != factor
            for part in parts
        }


def _factored(grid: Grid, cell: _Cell, dimensions: Dimensions, sizes: Sequence[int]) -> _Factored:
    """The parts of each dimension dealt to its factors, major first; the last takes all that are left."""
    found = _Factored()
    for d, factors in enumerate(dimensions):
        rest = cell.dimensions[d]
        is_stuck = False
        for number in factors:
            if number in found.axes:
                continue  # a dimension that is another as well, as in a diagonal: the first one counts
            if cell.closed[d] or is_stuck:
                found.closed.add(number)
            if number == factors[-1]:
                found.minor.add(number)
                found.axes[number], rest = ((), rest) if is_stuck else (rest, ())
                continue
            size, taken = sizes[number], 0
            while not is_stuck and taken < len(rest) and size % grid.sizes[rest[taken]] == 0:
                size //= grid.sizes[rest[taken]]
                taken += 1
            found.axes[number], rest = rest[:taken], rest[taken:]
            if rest and size > 1 and not is_stuck:
                found.overflow[number], rest, is_stuck = rest, (), True
    return found


def _dimensions(grid: Grid, held: _Factored, dimensions: Dimensions, sizes: Sequence[int]) -> tuple[Parts, ...]:
    """The parts of each dimension, of its factors': a factor counts while those before it are used up."""
    found: list[Parts] = []
    for factors in dimensions:
        parts: Parts = ()
        for number in factors:
            parts = (*parts, *held.axes[number], *held.overflow.get(number, ()))
            if number in held.overflow or grid.count(held.axes[number]) < sizes[number]:
                break
        found.append(parts)
    return tuple(found)


def _agreed(old: Parts, new: Parts, can_expand: bool) -> tuple[Parts, bool]:
    """The major parts on which two agree, all of the longer one; and whether they may still be more."""
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return old[:i], False
    return (new if can_expand and len(new) > len(old) else old), can_expand


def _passed_on(grid: Grid, step: _Step, round: int) -> Iterable[tuple[_Cell, tuple[Parts, ...], dict[int, Origin]]]:
    """The placements that a step's arrays take from each other, and whence the new parts are."""
    sizes, count = step.sizes, len(step.operands)
    held = [_factored(grid, cell, d, sizes) for cell, d in zip(step.cells, step.arrays, strict=True)]
    wanted = [_wanted(step, held, factor, round) for factor in range(len(sizes))]
    if not any(wanted):
        return
    sources = _sources(sizes, held, wanted)
    is_elementwise = step.sort == "elementwise"

    def rank(factor: int) -> tuple[int, int, int, int]:
        size, number = sources[factor]
        return (-size, -grid.count(wanted[factor]) if is_elementwise else 0, number, factor)

    order = sorted((f for f in range(len(sizes)) if wanted[f]), key=rank)
    for number in [*range(count, len(held)), *range(count)]:  # results first: operands look at them
        cell, mine = step.cells[number], held[number]
        news: dict[int, Origin] = {}
        for factor in order:
            if factor not in mine.axes:
                continue
            parts = _fitting(grid, cell, mine, factor, sizes[factor], wanted[factor])
            if is_elementwise and number < count:
                for result in held[count:]:
                    theirs = result.axes.get(factor)
                    if theirs is not None and len(theirs) < len(parts) and parts[: len(theirs)] == theirs:
                        parts = theirs
            old = mine.axes[factor]
            if len(parts) > len(old) and parts[: len(old)] == old:
                mine.axes[factor] = parts
                source = f"operand {sources[factor][1]}" if sources[factor][1] < count else "the result"
                origin = Origin(step.instruction, "an edge" if step.sort == "edge" else source)
                news |= dict.fromkeys(parts[len(old) :], origin)
        if news:
            yield cell, _dimensions(grid, mine, step.arrays[number], sizes), news


def _wanted(step: _Step, held: Sequence[_Factored], factor: int, round: int) -> Parts:
    """The axes of a factor on which its arrays agree, of which those behind the direction bring none."""
    direction = step.direction(round, factor)
    if not direction:
        return ()
    count = len(step.operands)
    first, last = held[:count], held[count:]
    if direction is _Direction.BACKWARD:
        first, last = last, first
    found, can_expand = (), True
    for array in first:
        if factor in array.axes:
            found, can_expand = _agreed(found, array.axes[factor], can_expand)
    can_expand &= direction is _Direction.BOTH
    for array in last:
        if factor in array.axes:
            found, can_expand = _agreed(found, array.axes[factor], can_expand)
    return found


def _sources(sizes: Sequence[int], held: Sequence[_Factored], wanted: Sequence[Parts]) -> list[tuple[int, int]]:
    """For each factor the size and the number of the largest array that has all its axes."""
    found = [(-1, -1)] * len(sizes)
    for number, array in enumerate(held):
        size = math.prod(sizes[factor] for factor in array.axes)
        for factor, parts in array.axes.items():
            is_source = wanted[factor] and parts[: len(wanted[factor])] == wanted[factor]
            if is_source and size > found[factor][0]:
                found[factor] = (size, number)
    return found


def _fitting(grid: Grid, cell: _Cell, mine: _Factored, factor: int, size: int, wanted: Parts) -> Parts:
    """As many of the axes as the array can take along the factor."""
    old = mine.axes[factor]
    kept = cell.replicated | set(cell.unreduced)
    is_open = factor not in mine.closed and factor not in mine.overflow
    count = 1
    for i, part in enumerate(wanted):
        fits = part in old or (
            is_open and (factor in mine.minor or (size % count == 0 and size // count % grid.sizes[part] == 0))
        )
        if part in kept or not fits:
            wanted = wanted[:i]
            break
        count *= grid.sizes[part]
    if len(wanted) <= len(old) or wanted[: len(old)] != old:
        return ()
    others = mine.others(factor)
    return tuple(wanted[: next((i for i, part in enumerate(wanted) if part in others), len(wanted))])


__all__ = ["Origin", "Propagation", "propagate", "said_of", "stated"]
