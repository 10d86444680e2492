"""Kernels in the making: building one finds what has to lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hlokit.cpu.loops import scattering
from hlokit.cpu.loops.arithmetic import parts_of
from hlokit.cpu.loops.build import MAX_DEPTH, Build
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.loops.expr import Axis, Buffer, Node, Pair, affine_deps, children, reachable, runtime_nodes
from hlokit.cpu.loops.folding import Group
from hlokit.cpu.loops.nest import Store
from hlokit.cpu.lower.chain_cuts import ChainCuts
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Key
from hlokit.cpu.lower.retries import Materialise, NoElementLoop, Reference, Split, Turn
from hlokit.cpu.lower.traits import is_small_update, leaf_count
from hlokit.cpu.math.half import computes_half
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Affine, row_major
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import While
from hlokit.ops.slicing import DynamicUpdateSlice

_LONG_CHAINS = 8
"""After so many chains that are too long for one kernel all of the kernel are cut at once, then shorter ones."""


@dataclass(eq=False)
class Draft:
    """A kernel in the making: its root leaves, and what building them found."""

    roots: list[Leaf]
    build: Build
    stores: list[Store]
    axes: list[Axis]
    serial: int = 0
    source: Buffer | None = None
    fills: dict[int, Draft] = field(default_factory=dict[int, "Draft"])
    """The kernels that put a scatter's operands where its results are, by number; stored ones are copied."""

    @cached_property
    def folds(self) -> int:
        """The number of folds that need each other in a row."""
        levels: dict[Node, int] = {}
        for node in reachable([store.node for store in self.stores]):
            levels[node] = max((levels[child] for child in children(node)), default=0) + (node.op == "fold")
        return max(levels.values(), default=0)


class Drafting(ChainCuts):
    """Builds kernels: again and again, until nothing more has to be stored."""

    def _members(self, key: Key) -> list[Key]:
        return [each for each, first in self._together.items() if first == key] or [key]

    def _roots(self, instruction: Instruction, dimensions: tuple[int, ...]) -> list[Leaf]:
        """The leaves that its kernel stores."""
        members = self._members((instruction, dimensions))
        leaves = [Leaf(i, k) for i, _ in members for k in range(leaf_count(i.shape))]
        return [leaf for leaf in leaves if leaf in self.stored and leaf.shape.dimensions == dimensions]

    def _built(self, instruction: Instruction, dimensions: tuple[int, ...]) -> Draft:
        roots = self._roots(instruction, dimensions)
        try:
            if instruction.op.form == "scatter":
                kernel = self._retried(lambda splits: self._scatter(instruction, roots, splits))
                kernel.fills = self._fills(instruction)
                return kernel
            if isinstance(instruction.op, DynamicUpdateSlice) and self.leaf(instruction.operands[0]) in self.stored:
                if is_small_update(instruction):
                    return self._retried(lambda splits: self._update(instruction, splits))
            return self._retried(lambda splits: self._map([roots], splits))
        except (UnsupportedError, NotImplementedError) as error:
            self._open = frozenset()
            loop = next((i for i in self._reached(instruction) if isinstance(i.op, While)), None)
            if loop is not None:
                raise NoElementLoop(loop) from None
            self._host(instruction, str(error) or f"{instruction.opcode} has no form")
            build = Build(self, {})
            return Draft(roots, build, [], [])

    def _fills(self, instruction: Instruction) -> dict[int, Draft]:
        """Kernels that put a scatter's operands straight into its results."""
        found: dict[int, Draft] = {}
        for k, buffer in enumerate(self._scatter_buffers(instruction)):
            source = self.leaf(instruction.operands[k])
            if source in self.stored:
                continue
            self.stored[source] = buffer
            try:
                found[k] = self._retried(lambda splits, source=source: self._map([[source]], splits))
            except UnsupportedError:
                self._open = frozenset()
            del self.stored[source]
            if k not in found:
                self._store(source, f"{instruction.name} starts from it")
        return found

    def _scatter_buffers(self, instruction: Instruction) -> list[Buffer]:
        return [self.stored[Leaf(instruction, k)] for k in range(leaf_count(instruction.shape))]

    def _reached(self, instruction: Instruction) -> Iterator[Instruction]:
        """The instructions that were inlined into the kernel that was being built."""
        yield instruction
        for leaf in self._last.reads:
            yield leaf.instruction

    def _retried(self, make: Callable[[Mapping[int, Sequence[int]]], Draft], *, cuts: bool = True) -> Draft:
        """Builds until no leaf has to be cut and no axis split. Without `cuts` nothing new is stored."""
        splits: dict[int, list[int]] = {}
        self._turned: frozenset[int] = frozenset()
        found_long = 0
        for _ in range(200):
            build_groups: list[Group] = []
            try:
                return make(splits)
            except Turn as turn:
                number = next(k for k, g in enumerate(self._last.groups) if turn.axis in g.axes)
                self._turned |= {number}
            except Split as split:
                build_groups = self._last.groups
                number = next(k for k, g in enumerate(build_groups) if split.axis in g.axes)
                group = build_groups[number]
                factors = [axis.extent for axis in group.axes]
                place = group.axes.index(split.axis)
                factors[place : place + 1] = [split.axis.extent // split.factor, split.factor]
                splits[number] = factors
            except (Materialise, Reference) as found:
                leaf = found.leaf
                is_here = leaf.instruction in self.position  # else in the body of a loop over elements
                if leaf in self._last_roots or not cuts or not is_here or leaf.instruction.op.form == "scatter":
                    raise UnsupportedError(f"{leaf.instruction.name}: {found}") from None
                if isinstance(found, Materialise):
                    self._store(leaf, str(found))
                    found_long += found.is_size
                    if found.is_size and not found_long % _LONG_CHAINS:  # each would be found by building again
                        self._store_deep(self._inside(self._last_roots), MAX_DEPTH * _LONG_CHAINS // found_long)
                else:
                    self._host(leaf.instruction, str(found))
                splits, self._turned = {}, frozenset()
        raise UnsupportedError("no kernel was found in 200 tries")

    def _inside(self, roots: Sequence[Leaf]) -> set[Instruction]:
        """The instructions that a kernel computes: the roots, and what they are made of up to what lies in memory."""
        found = {leaf.instruction for leaf in roots}
        stack = list(found)
        while stack:
            instruction = stack.pop()
            for operand in instruction.operands:
                for leaf in (self.leaf(operand, k) for k in range(leaf_count(operand.shape))):
                    if leaf not in self.stored and leaf.instruction not in found:
                        found.add(leaf.instruction)
                        stack.append(leaf.instruction)
        return found

    _last: Build
    _last_roots: Sequence[Leaf] = ()

    def _new_build(self, splits: Mapping[int, Sequence[int]], roots: Sequence[Leaf], *, in_order: bool = True) -> Build:
        """`in_order`: the kernel's axes are walked from first to last."""
        turned = None if in_order else self._turned
        half = computes_half(self.context.target)
        self._last = Build(self, splits, turned=turned, strict=self.context.strict, half=half)
        self._last_roots = roots
        self._open = frozenset(roots)
        return self._last

    def _map(self, groups: Sequence[Sequence[Leaf]], splits: Mapping[int, Sequence[int]]) -> Draft:
        """Leaves of equal dimensions, or of the leading ones of the first, each element stored where it belongs."""
        roots = [leaf for group in groups for leaf in group]
        build = self._new_build(splits, roots, in_order=False)
        dimensions = roots[0].shape.dimensions
        index = build.index(dimensions)
        axes = [axis for group in build.groups for axis in group.axes]
        build.around = axes
        stores: list[Store] = []
        for leaf in roots:
            sizes = leaf.shape.dimensions
            value = build.element(leaf, index[: len(sizes)])
            stores += _stores_of(self.stored[leaf], row_major(index[: len(sizes)], sizes), value)
        self._open = frozenset()
        return Draft(roots, build, stores, axes)

    def _update(self, instruction: Instruction, splits: Mapping[int, Sequence[int]]) -> Draft:
        """dynamic-update-slice in place: only the update's elements are written."""
        root = Leaf(instruction, 0)
        build = self._new_build(splits, [root])
        array, update, *starts = build.readers(instruction)
        index = build.index(update.shape.dimensions)
        axes = [axis for group in build.groups for axis in group.axes]
        place: list[Affine] = []
        for start, i, bound, size in zip(starts, index, array.shape.dimensions, update.shape.dimensions, strict=True):
            value = start(())
            place.append(build.as_index(value, 0, bound - size + 1) + i)
        value = update(index)
        self._check_apart(instruction, 1, parts_of([value]))
        stores = _stores_of(self.stored[root], row_major(tuple(place), array.shape.dimensions), value)
        self._open = frozenset()
        source = self.stored[self.leaf(instruction.operands[0])]
        return Draft([root], build, stores, axes, source=source)

    def _scatter(self, instruction: Instruction, roots: list[Leaf], splits: Mapping[int, Sequence[int]]) -> Draft:
        """Every update combined with what is at its target, in order."""
        build = self._new_build(splits, [])
        readers, op = build.readers(instruction), instruction.op
        spec = op.scatter([r.shape for r in readers])
        sizes = readers[spec.count + 1].shape.dimensions
        index = build.index(sizes)
        axes = [axis for group in build.groups for axis in group.axes]
        target = op.target(build, index, *readers)
        guards: list[Any] = [g for g in target.guards if not isinstance(g, bool)]
        guards = [g for g in scattering.joined(build, guards) if g.op != "const" or not g.data]
        if any(g is False for g in target.guards):
            guards = [build.expressions.flag(False)]
        outer = build.guards
        build.guards = tuple(guards)
        place = row_major(target.index, readers[0].shape.dimensions)
        everything = 0
        for axis in axes:
            everything |= axis.bit
        current = [
            self._current(build, Leaf(instruction, k), place, tuple(guards), everything) for k in range(spec.count)
        ]
        updates = [readers[spec.count + 1 + k](index) for k in range(spec.count)]
        made = [(spec.count, (*guards, *runtime_nodes(place)))]
        made += [(spec.count + 1 + k, parts_of([update])) for k, update in enumerate(updates)]
        for number, nodes in made:
            leaf = self.leaf(instruction.operands[number])
            if leaf not in self.stored and scattering.goes_one_by_one(spec, sizes):
                if scattering.is_work_for_vectors(nodes):
                    raise Materialise(leaf, f"{instruction.name} goes one by one")
            self._check_apart(instruction, number, nodes)
        build.guards = ()
        combined = _combiner(build, instruction, spec.combiner).results(*current, *updates)
        build.guards = outer
        stores: list[Store] = []
        for leaf in (Leaf(instruction, k) for k in range(spec.count)):
            if leaf not in self.stored:
                self._store(leaf, "scatter writes it")
            stores += _stores_of(self.stored[leaf], place, combined[leaf.number], tuple(guards))
        serial = 0
        apart = [axis for axis in axes if scattering.keeps_apart(axis, place)]
        axes = [*apart, *(axis for axis in axes if axis not in apart)]
        moving = {u for u, _ in spec.window}
        last = max((u for u in range(len(index)) if u not in moving and sizes[u] > 1), default=-1)
        for u, affine in enumerate(index):
            if u <= last and not spec.is_unique:  # windows overlap: an axis of theirs outside such a loop is no other
                serial |= affine_deps(affine)
        for axis in apart:
            serial &= ~axis.bit
        return Draft(roots, build, stores, axes, serial)

    def _check_apart(self, instruction: Instruction, number: int, nodes: Sequence[Node]) -> None:
        """An operand that is computed from the array of which a small part is updated is stored before: the array is
        then read no more, and need not be copied."""
        array, leaf = self.leaf(instruction.operands[0]), self.leaf(instruction.operands[number])
        source = self.stored.get(array)
        if source is None or leaf in self.stored or leaf.shape.size * 4 > array.shape.size:
            return
        if any(node.op == "load" and node.data[0] is source for node in reachable(nodes)):
            raise Materialise(leaf, f"it is computed from what {instruction.name} updates")

    def _current(self, build: Build, leaf: Leaf, place: Affine, guards: tuple[Node, ...], deps: int) -> Any:
        """The target's value now: read anew for every update."""
        if leaf not in self.stored:
            self._store(leaf, "scatter writes it")
        buffer, shape = self.stored[leaf], leaf.shape

        def read(affine: Affine) -> Node:
            return build.expressions.node("current", buffer.dtype, guards, (buffer, affine, deps))

        if shape.dtype.is_complex:
            return Pair(shape.dtype, read(place * 2), read(place * 2 + 1))
        return read(place)


def _combiner(build: Build, instruction: Instruction, role: str) -> CalledFunction:
    return CalledFunction(build, dict(instruction.called_by_role())[role])


def _stores_of(buffer: Buffer, place: Affine, value: Any, guards: tuple[Node, ...] = ()) -> list[Store]:
    if isinstance(value, Pair):
        parts = (value.real, value.imag)
        return [Store(buffer, place * 2 + k, part, guards) for k, part in enumerate(parts)]
    return [Store(buffer, place, value, guards)]
