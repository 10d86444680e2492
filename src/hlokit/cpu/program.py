"""Program: a computation as steps on buffers. Fusion is decided here, by building kernels and counting their work."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, TypeAlias

from hlokit.analysis.loops import counter
from hlokit.cpu import scattering
from hlokit.cpu.build import (
    MAX_DEPTH,
    Build,
    CalledFunction,
    Cut,
    Group,
    Leaf,
    Reference,
    Source,
    Split,
    Turn,
    array_leaves,
    parts_of,
    too_often,
)
from hlokit.cpu.chain_cuts import smallest_frontier
from hlokit.cpu.expr import Axis, Buffer, Node, Pair, affine_deps, children, reachable
from hlokit.cpu.half import computes_half
from hlokit.cpu.kernels.routine import KERNELS
from hlokit.cpu.order import STREAM_BYTES, Store, arrange, runtime_nodes
from hlokit.cpu.steps import (
    Block,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Reasons,
    RoutineStep,
    Step,
    WhileStep,
)
from hlokit.cpu.target import Target
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Affine, row_major
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter.order import evaluation_order
from hlokit.ops.control_flow import Conditional, While
from hlokit.ops.custom import CustomCall
from hlokit.ops.slicing import DynamicUpdateSlice
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

# -- kernels


_Key: TypeAlias = "tuple[Instruction, tuple[int, ...]]"
"""The leaves of an instruction that have these dimensions: they are made by one kernel."""


def _key(leaf: Leaf) -> _Key:
    return leaf.instruction, leaf.shape.dimensions


@dataclass(eq=False)
class _Kernel:
    """A kernel in the making: its root leaves, and what building them found."""

    roots: list[Leaf]
    build: Build
    stores: list[Store]
    axes: list[Axis]
    serial: int = 0
    source: Buffer | None = None
    inlined: dict[Leaf, int] = field(default_factory=dict[Leaf, int])

    @cached_property
    def folds(self) -> int:
        """How many of its folds need each other in a row."""
        levels: dict[Node, int] = {}
        for node in reachable([store.node for store in self.stores]):
            levels[node] = max((levels[child] for child in children(node)), default=0) + (node.op == "fold")
        return max(levels.values(), default=0)

    fills: dict[int, _Kernel] = field(default_factory=dict[int, "_Kernel"])
    """Of a scatter: the kernels that put its operands where its results are, by number; stored ones are copied."""


class Lowering(Source):
    """One computation on its way to steps; its buffers' makers and constants are shared by the whole program.

    `is_pass`: a loop's body.
    """

    def __init__(
        self,
        computation: Computation,
        arguments: Sequence[Sequence[Buffer]],
        context: Context,
        is_pass: bool = False,
    ) -> None:
        self.computation = computation
        self.is_pass = is_pass
        self.context = context
        self.order = list(evaluation_order(computation))
        self.position = {instruction: k for k, instruction in enumerate(self.order)}
        self.stored: dict[Leaf, Buffer] = {}
        self.reasons: dict[Leaf, str] = {}
        self._leaves: dict[tuple[Instruction, int], Leaf] = {}
        self._counts: dict[Instruction, list[int]] = {}
        self._together: dict[_Key, _Key] = {}
        self._apart: set[_Key] = set()
        for parameter, buffers in zip(computation.parameters, arguments, strict=True):
            for k, buffer in enumerate(buffers):
                self.stored[Leaf(parameter, k)] = buffer

    # -- Source

    def leaf(self, instruction: Instruction, number: int = 0) -> Leaf:
        """Where a leaf of this value is made: through tuples and identities."""
        key = (instruction, number)
        found = self._leaves.get(key)
        if found is None:
            here, k = key
            while True:
                step = self._behind(here, k)
                if step is None:
                    break
                here, k = step
            found = self._leaves[key] = Leaf(here, k)
        return found

    def _behind(self, instruction: Instruction, number: int) -> tuple[Instruction, int] | None:
        op: Any = instruction.op
        if isinstance(op, Tuple):
            for operand in instruction.operands:
                count = leaf_count(operand.shape)
                if number < count:
                    return operand, number
                number -= count
        if isinstance(op, GetTupleElement):
            operand = instruction.operands[0]
            before = sum(leaf_count(s) for s in operand.shape.elements[: op.index])
            return operand, before + number
        if op.picks is not None:
            operand = instruction.operands[0]
            return operand, number + sum(leaf_count(s) for s in operand.shape.elements[: op.picks])
        if number < op.kept(instruction.shape):
            for operand in instruction.operands:
                count = leaf_count(operand.shape)
                if number < count:
                    return operand, number
                number -= count
        if _only_marks(instruction):
            return instruction.operands[0], number
        return None

    def buffer(self, leaf: Leaf) -> Buffer | None:
        if leaf in self._open:
            return None
        return self.stored.get(leaf)

    def constant(self, literal: Literal) -> Buffer:
        return self.context.constant(literal)

    _open: frozenset[Leaf] = frozenset()

    # -- which leaves are stored

    def lower(self) -> Block:
        """The steps. A loop that was taken for one over elements and is none is tried as a loop over steps."""
        while True:
            given = dict(self.stored)
            try:
                return self._lowered()
            except _NoElementLoop as found:
                self.context.step_loops.add(found.loop)
                self.stored, self._leaves = given, {}
                self._together, self._apart = {}, set()

    def _lowered(self) -> Block:
        root = self.computation.root
        results = [self.leaf(root, k) for k in range(leaf_count(root.shape))]
        live = self._live()
        for instruction in self.order:
            if instruction not in live or isinstance(instruction.op, Parameter):
                continue
            if self._is_fusible(instruction) and instruction.op.form != "scatter":
                continue
            if _makes_nothing(instruction):
                continue
            for operand in self._needed_in_memory(instruction):
                self._store(operand, f"{instruction.opcode} {instruction.name} reads it from memory")
            for k in range(leaf_count(instruction.shape)):
                self._store(self.leaf(instruction, k), "other kernels cannot hold it")
        for leaf in results:
            self._store(leaf, "a result")
        self._store_small_updates()
        self._store_deep(live)
        kernels = self._kernels()
        steps = self._steps(kernels, live)
        return Block(self._ordered(steps), tuple(self.stored[leaf] for leaf in results), self)

    def _live(self) -> set[Instruction]:
        """Instructions that the root or an effect needs."""
        stack = [i for i in self.order if i.is_root or _has_effect(i)]
        seen = set(stack)
        while stack:
            for operand in stack.pop().operands:
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return seen

    def _needed_in_memory(self, instruction: Instruction) -> Iterator[Leaf]:
        if instruction.op.form == "scatter":
            return  # its kernel reads indices and updates by element
        for operand in instruction.operands:
            for k in range(leaf_count(operand.shape)):
                yield self.leaf(operand, k)

    def _store(self, leaf: Leaf, reason: str) -> None:
        if leaf not in self.stored:
            op = leaf.instruction.op
            if isinstance(op, Constant):
                self.stored[leaf] = self.context.constant(_literals(op.literal)[leaf.number])
                return
            self.stored[leaf] = self.context.buffer(_buffer_name(leaf), leaf.shape)
            self.reasons[leaf] = reason
            self.context.reasons.add(leaf.instruction.name, "not fused", reason)

    def _store_small_updates(self) -> None:
        """An update of a small part of an array is done in place: its update is stored, and the array that it is of."""
        for instruction in self.order:
            if isinstance(instruction.op, DynamicUpdateSlice) and Leaf(instruction, 0) in self.stored:
                if _is_small_update(instruction):
                    self._store(self.leaf(instruction.operands[0]), "it is updated in place")

    # -- building kernels

    def _store_deep(self, live: set[Instruction]) -> None:
        """Long chains are cut at the same places, whatever reads them: else what each reader cuts is the others' work.

        Of folds that need each other each goes through all before it again, so that few make a chain too long.
        """
        order = [i for i in self.order if i in live and i.operands and self._is_kernel(i)]
        depths: dict[Instruction, int] = {}
        folds: dict[Instruction, int] = {}

        def inside(instruction: Instruction) -> list[Leaf]:
            leaves = [self.leaf(o, k) for o in instruction.operands for k in range(leaf_count(o.shape))]
            return [leaf for leaf in leaves if leaf.instruction in depths and leaf not in self.stored]

        k = 0
        while k < len(order):
            instruction = order[k]
            is_fold = instruction.op.form == "fold"
            if is_fold and max((folds[leaf.instruction] for leaf in inside(instruction)), default=0) >= _MAX_FOLDS:
                for leaf in inside(instruction):
                    self._store(leaf, "too many folds need each other")
            before = [leaf.instruction for leaf in inside(instruction)]
            depths[instruction] = 1 + max((depths[i] for i in before), default=0)
            folds[instruction] = is_fold + max((folds[i] for i in before), default=0)
            if depths[instruction] >= _DEEP:
                k, cut = smallest_frontier(order, k, depths, inside)
                for leaf in cut or [Leaf(instruction, n) for n in range(leaf_count(instruction.shape))]:
                    self._store(leaf, "the chain of instructions is too long for one kernel")
            k += 1

    def _kernels(self) -> list[_Kernel]:
        kernels: dict[_Key, _Kernel] = {}
        totals = _Totals(self.position)
        waiting: list[_Key] = []
        seen = 0
        while True:
            new = [leaf for leaf in islice(self.stored, seen, None) if self._is_kernel(leaf.instruction)]
            seen = len(self.stored)
            keys = (self._together.get(_key(leaf), _key(leaf)) for leaf in new)
            waiting += [key for key in keys if key not in kernels or kernels[key].roots != self._roots(*key)]
            waiting = waiting or self._tangled(kernels)
            if not waiting:
                break
            for key in dict.fromkeys(waiting):
                if key in kernels:
                    totals.remove(key, kernels.pop(key))
                for each, kernel in self._built_together(key):
                    kernels[each] = kernel
                    totals.add(each, kernel)
            waiting = self._too_often(totals, kernels)
        found = sorted(kernels.values(), key=lambda k: self.position[k.roots[0].instruction])
        return self._joined(found)

    def _is_kernel(self, instruction: Instruction) -> bool:
        if isinstance(instruction.op, Constant):
            return False
        return self._is_fusible(instruction) and instruction not in self._hosted

    def _is_fusible(self, instruction: Instruction) -> bool:
        """Whether loops over elements compute it."""
        if instruction.op.form in _PLAIN_FORMS:
            return True
        if not isinstance(instruction.op, While) or instruction in self.context.step_loops:
            return False
        return _may_be_element_loop(instruction)

    @property
    def _hosted(self) -> dict[Instruction, str]:
        return self.context.hosted

    def _roots(self, instruction: Instruction, dimensions: tuple[int, ...]) -> list[Leaf]:
        """The leaves that its kernel stores."""
        members = self._members((instruction, dimensions))
        leaves = [Leaf(i, k) for i, _ in members for k in range(leaf_count(i.shape))]
        return [leaf for leaf in leaves if leaf in self.stored and leaf.shape.dimensions == dimensions]

    def _built(self, instruction: Instruction, dimensions: tuple[int, ...]) -> _Kernel:
        roots = self._roots(instruction, dimensions)
        try:
            if instruction.op.form == "scatter":
                kernel = self._retried(lambda splits: self._scatter(instruction, roots, splits))
                kernel.fills = self._fills(instruction)
                return kernel
            if isinstance(instruction.op, DynamicUpdateSlice) and self.leaf(instruction.operands[0]) in self.stored:
                if _is_small_update(instruction):
                    return self._retried(lambda splits: self._update(instruction, splits))
            return self._retried(lambda splits: self._map([roots], splits))
        except (UnsupportedError, NotImplementedError) as error:
            self._open = frozenset()
            loop = next((i for i in self._reached(instruction) if isinstance(i.op, While)), None)
            if loop is not None:
                raise _NoElementLoop(loop) from None
            self._host(instruction, str(error) or f"{instruction.opcode} has no form")
            build = Build(self, {})
            return _Kernel(roots, build, [], [])

    def _host(self, instruction: Instruction, reason: str) -> None:
        """The reference evaluates it, from memory to memory."""
        self._hosted[instruction] = reason
        for k in range(leaf_count(instruction.shape)):
            self._store(Leaf(instruction, k), "the reference makes it")
        for operand in instruction.operands:
            for k in range(leaf_count(operand.shape)):
                self._store(self.leaf(operand, k), "the reference reads it")

    def _reached(self, instruction: Instruction) -> Iterator[Instruction]:
        """What was inlined into the kernel that was being built."""
        yield instruction
        for leaf in self._last.reads:
            yield leaf.instruction

    def _retried(self, make: Callable[[Mapping[int, Sequence[int]]], _Kernel], *, cuts: bool = True) -> _Kernel:
        """Builds until no leaf has to be cut and no axis split. Without `cuts` nothing new is stored."""
        splits: dict[int, list[int]] = {}
        self._turned: frozenset[int] = frozenset()
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
            except (Cut, Reference) as found:
                leaf = found.leaf
                is_here = leaf.instruction in self.position  # else in the body of a loop over elements
                if leaf in self._last_roots or not cuts or not is_here or leaf.instruction.op.form == "scatter":
                    raise UnsupportedError(f"{leaf.instruction.name}: {found}") from None
                if isinstance(found, Cut):
                    self._store(leaf, str(found))
                else:
                    self._host(leaf.instruction, str(found))
                splits, self._turned = {}, frozenset()
        raise UnsupportedError("no kernel was found in 200 tries")

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

    def _map(self, groups: Sequence[Sequence[Leaf]], splits: Mapping[int, Sequence[int]]) -> _Kernel:
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
        return _Kernel(roots, build, stores, axes, inlined=_evaluations(build, stores, axes))

    def _update(self, instruction: Instruction, splits: Mapping[int, Sequence[int]]) -> _Kernel:
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
        return _Kernel([root], build, stores, axes, source=source, inlined=_evaluations(build, stores, axes))

    def _scatter(self, instruction: Instruction, roots: list[Leaf], splits: Mapping[int, Sequence[int]]) -> _Kernel:
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
                    raise Cut(leaf, f"{instruction.name} goes one by one")
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
        kernel = _Kernel(roots, build, stores, axes, serial, inlined=_evaluations(build, stores, axes))
        return kernel

    def _check_apart(self, instruction: Instruction, number: int, nodes: Sequence[Node]) -> None:
        """An operand that is computed from the array of which a small part is updated is stored before: the array is
        then read no more, and need not be copied."""
        array, leaf = self.leaf(instruction.operands[0]), self.leaf(instruction.operands[number])
        source = self.stored.get(array)
        if source is None or leaf in self.stored or leaf.shape.size * 4 > array.shape.size:
            return
        if any(node.op == "load" and node.data[0] is source for node in reachable(nodes)):
            raise Cut(leaf, f"it is computed from what {instruction.name} updates")

    def _current(self, build: Build, leaf: Leaf, place: Affine, guards: tuple[Node, ...], deps: int) -> Any:
        """What is at the target now: read anew for every update."""
        if leaf not in self.stored:
            self._store(leaf, "scatter writes it")
        buffer, shape = self.stored[leaf], leaf.shape

        def read(affine: Affine) -> Node:
            return build.expressions.node("current", buffer.dtype, guards, (buffer, affine, deps))

        if shape.dtype.is_complex:
            return Pair(shape.dtype, read(place * 2), read(place * 2 + 1))
        return read(place)

    def _too_often(self, totals: _Totals, kernels: dict[_Key, _Kernel]) -> list[_Key]:
        """Stores what all kernels together compute too often, or has one kernel do what they do; gives the kernels that
        have to be built again."""
        while totals.changed:
            _, leaf = heappop(totals.changed)
            if leaf in self.stored or not too_often(totals.evaluations[leaf], leaf.shape.size, totals.weight(leaf)):
                continue
            users = list(totals.users[leaf])
            if self._may_be_one([kernels[key] for key in users]) and self._apart.isdisjoint(users):
                for key in users:
                    totals.remove(key, kernels.pop(key))
                self._together |= {each: users[0] for key in users for each in self._members(key)}
                return users[:1]
            self._store(leaf, f"it would be computed {totals.evaluations[leaf]} times for {leaf.shape.size} elements")
            return users
        return []

    # -- values that one kernel makes from the beginning: apart, each would store the others' values one by one

    def _members(self, key: _Key) -> list[_Key]:
        return [each for each, first in self._together.items() if first == key] or [key]

    def _may_be_one(self, kernels: Sequence[_Kernel]) -> bool:
        """Whether kernels that compute the same values could do so at once."""
        roots = [leaf for kernel in kernels for leaf in kernel.roots]
        if len(kernels) < 2 or len(roots) > 8 or sum(kernel.folds for kernel in kernels) > _MAX_FOLDS:
            return False
        if any(not k.stores or k.source or k.serial or k.fills or _kind(k) for k in kernels):
            return False
        if any(leaf.instruction.op.form == "scatter" for leaf in roots):
            return False
        if len({leaf.shape.dimensions for leaf in roots}) > 1:
            return False
        return not any(self._reach.between(kernel.roots, _others(roots, kernel.roots)) for kernel in kernels)

    @cached_property
    def _reach(self) -> _Reach:
        return _Reach(self)

    def _built_together(self, key: _Key) -> list[tuple[_Key, _Kernel]]:
        """The kernel of the values under the key; the kernels of each, where one cannot make them."""
        members = self._members(key)
        if len(members) > 1:
            roots = self._roots(*key)
            try:
                return [(key, self._retried(lambda splits: self._map([roots], splits), cuts=False))]
            except (UnsupportedError, NotImplementedError):
                self._open = frozenset()
                self._part(members)
        return [(member, self._built(*member)) for member in members]

    def _part(self, members: Sequence[_Key]) -> None:
        self._apart |= set(members)
        for member in members:
            del self._together[member]

    def _tangled(self, kernels: dict[_Key, _Kernel]) -> list[_Key]:
        """Parts a kernel, if there is one, whose values need each other through what another stores by now."""
        reach = _Reach(self)
        for key in dict.fromkeys(self._together.values()):
            members = self._members(key)
            roots = kernels[key].roots
            for instruction, dimensions in members:
                own = [
                    leaf for leaf in roots if leaf.instruction is instruction and leaf.shape.dimensions == dimensions
                ]
                if reach.between(own, _others(roots, own)):
                    self._part(members)
                    return members
            reach.join(roots)
        return []

    # -- several results from one kernel

    def _joined(self, kernels: list[_Kernel]) -> list[_Kernel]:
        """Kernels over equal dimensions that read the same large array, or each other, become one."""
        joined: list[_Kernel] = []
        reach = _Reach(self)
        for key in dict.fromkeys(self._together.values()):
            reach.join(self._roots(*key))
        for kernel in kernels:
            partner = next((k for k in reversed(joined[-12:]) if self._joins(k, kernel, reach)), None)
            if partner is not None:
                try:
                    both = self._retried(
                        lambda splits, a=partner, b=kernel: self._map(_largest_first(a, b), splits), cuts=False
                    )
                except UnsupportedError:
                    self._open = frozenset()
                    both = None
                if both is not None and not any(
                    too_often(n, leaf.shape.size, both.build.weights.get(leaf, 1)) for leaf, n in both.inlined.items()
                ):
                    joined[joined.index(partner)] = both
                    reach.join(both.roots)
                    continue
            joined.append(kernel)
        return joined

    def _joins(self, first: _Kernel, second: _Kernel, reach: _Reach) -> bool:
        one, two = first.roots, second.roots
        if not one or not two or not first.stores or not second.stores or first.source or second.source:
            return False
        if first.serial or second.serial or _kind(first) != _kind(second) or len(one) + len(two) > 8:
            return False
        rows = one[0].shape.dimensions
        if (rows != two[0].shape.dimensions and not _is_of_rows(one, two)) or one[0].shape.size < 2:
            return False
        if one[0].instruction.op.form == "scatter" or two[0].instruction.op.form == "scatter":
            return False
        mine = {self.stored[leaf] for leaf in one}
        shared = _loads(first) & _loads(second)
        large = any(b.size * 2 >= two[0].shape.size for b in shared)
        feeds = bool(mine & _loads(second))
        if rows != two[0].shape.dimensions and not (
            large and (feeds or any(leaf in second.build.reads for leaf in one))
        ):
            return False
        if feeds and first.folds + second.folds > _MAX_FOLDS:
            return False
        return (large or feeds) and not reach.between(one, two)

    def _steps(self, kernels: Sequence[_Kernel], live: set[Instruction]) -> list[Step]:
        steps: list[Step] = []
        made: dict[Instruction, Step] = {}
        for kernel in kernels:
            if not kernel.stores:
                continue
            for step in self._kernel_steps(kernel):
                steps.append(step)
                for leaf in kernel.roots:
                    made[leaf.instruction] = step
        for instruction in self.order:
            if instruction not in live or instruction in made or isinstance(instruction.op, Parameter):
                continue
            if _makes_nothing(instruction):
                continue
            if self._is_fusible(instruction) and instruction not in self._hosted:
                continue
            steps += self._other_steps(instruction)
        return steps

    def _kernel_steps(self, kernel: _Kernel) -> list[Step]:
        instructions = tuple(dict.fromkeys(leaf.instruction for leaf in kernel.roots))
        writes = tuple(dict.fromkeys(store.buffer for store in kernel.stores))
        steps: list[Step] = []
        if instructions[0].op.form == "scatter":
            for k, buffer in enumerate(self._scatter_buffers(instructions[0])):
                steps += self._filled(instructions[0], k, buffer, kernel.fills.get(k))
        if kernel.source is not None:
            steps.append(CopyStep(instructions, (kernel.source,), writes, "an array that is updated in place"))
        if not any(b.size for b in writes) or any(axis.extent == 0 for axis in kernel.axes):
            return steps
        loops = arrange(
            kernel.axes,
            kernel.stores,
            vector_bytes=self.context.target.vector_bytes,
            serial=kernel.serial,
            strict=self.context.strict,
            stream_bytes=STREAM_BYTES * (2 if self.is_pass else 1),
        )
        reads = tuple(_buffers_read(kernel.stores))
        if kernel.source is not None or instructions[0].op.form == "scatter":
            reads = tuple(dict.fromkeys((*reads, *writes)))
        roots = tuple((leaf, self.stored.get(leaf, kernel.stores[0].buffer)) for leaf in kernel.roots)
        steps.append(KernelStep(instructions, reads, writes, loops, kernel.source, roots))
        return steps

    def _scatter_buffers(self, instruction: Instruction) -> list[Buffer]:
        return [self.stored[Leaf(instruction, k)] for k in range(leaf_count(instruction.shape))]

    def _fills(self, instruction: Instruction) -> dict[int, _Kernel]:
        """Kernels that put a scatter's operands straight into its results."""
        found: dict[int, _Kernel] = {}
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

    def _filled(self, user: Instruction, number: int, buffer: Buffer, fill: _Kernel | None) -> list[Step]:
        """Steps that put a leaf's elements into a buffer which is then changed."""
        source = self.stored.get(self.leaf(user.operands[number]))
        if source is not None or fill is None:
            assert source is not None
            return [CopyStep((user,), (source,), (buffer,), "an array that is scattered into")]
        return self._kernel_steps(fill)

    def _other_steps(self, instruction: Instruction) -> list[Step]:
        op = instruction.op
        reads = [self.stored[leaf] for o in instruction.operands for leaf in self._array_leaves(o)]
        writes = [self.stored[leaf] for leaf in self._array_leaves(instruction) if leaf.instruction is instruction]
        if isinstance(op, While):
            return self._while(instruction, reads, writes)
        if isinstance(op, Conditional):
            return self._conditional(instruction, reads, writes)
        if op.form == "kernel" and instruction not in self._hosted:
            routine = op.kernel([o.shape for o in instruction.operands]).routine
            if routine in KERNELS:
                functions = dict(instruction.called_by_role())
                return [RoutineStep((instruction,), tuple(reads), tuple(writes), routine, functions)]
        if isinstance(op, CustomCall) and instruction not in self._hosted:
            routine = f"custom-call:{op.custom_call_target}"
            if routine in KERNELS:
                return [RoutineStep((instruction,), tuple(reads), tuple(writes), routine, {})]
        reason = self._hosted.get(instruction, f"{op.opcode} is evaluated by the reference")
        self.context.reasons.add(instruction.name, "not compiled", reason)
        return [HostStep((instruction,), tuple(reads), tuple(writes), reason)]

    def _array_leaves(self, instruction: Instruction) -> Iterator[Leaf]:
        for k in range(leaf_count(instruction.shape)):
            yield self.leaf(instruction, k)

    def _while(self, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
        by_role = dict(instruction.called_by_role())
        name = instruction.name
        shapes = list(array_leaves(instruction.shape))
        body_lowering = Lowering(by_role["body"], [writes], self.context, is_pass=True)
        body = body_lowering.lower()
        condition = Lowering(by_role["condition"], [writes], self.context).lower()
        carries: list[tuple[Buffer, Buffer]] = []
        taken: set[Buffer] = set()
        for k, (current, result) in enumerate(zip(writes, body.results, strict=True)):
            if result is current:
                continue
            if result in self.context.fresh and result not in taken and result not in writes:
                taken.add(result)
                carries.append((current, result))
                continue
            spare = self.context.buffer(f"{name}.next{k}", shapes[k])
            body.steps.append(
                CopyStep((instruction,), (result,), (spare,), "a value that the next pass takes as it is")
            )
            carries.append((current, spare))
        copies: list[Step] = [
            CopyStep((instruction,), (initial,), (current,), "where a loop starts")
            for initial, current in zip(reads, writes, strict=True)
        ]
        inner = _touched(body.steps) | _touched(condition.steps)
        outside = tuple(b for b in inner if b not in writes)
        step = WhileStep(
            (instruction,),
            tuple(dict.fromkeys([*writes, *outside])),
            tuple(writes),
            condition,
            condition.results[0],
            body,
            tuple(carries),
        )
        return [*copies, step]

    def _conditional(self, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
        selector, *operands = instruction.operands
        branches: list[Block] = []
        ((_, computations),) = instruction.called_by_role()
        for operand, computation in zip(operands, computations, strict=True):
            arguments = [self.stored[leaf] for leaf in self._array_leaves(operand)]
            block = Lowering(computation, [arguments], self.context).lower()
            for result, write in zip(block.results, writes, strict=True):
                block.steps.append(CopyStep((instruction,), (result,), (write,), "the result of a branch"))
            branches.append(block)
        outside: dict[Buffer, None] = {}
        for block in branches:
            outside |= dict.fromkeys(b for b in _touched(block.steps) if b not in writes)
        return [
            ConditionalStep(
                (instruction,), tuple(dict.fromkeys([*reads, *outside])), tuple(writes), selector, tuple(branches)
            )
        ]

    # -- order

    def _ordered(self, steps: list[Step]) -> list[Step]:
        """The steps so that each comes after what makes its operands, else in the instructions' order."""
        makers: dict[Buffer, list[int]] = {}
        for k, step in enumerate(steps):
            for buffer in step.writes:
                makers.setdefault(buffer, []).append(k)
        missing = [0] * len(steps)
        followers: list[list[int]] = [[] for _ in steps]

        def after(before: int, then: int) -> None:
            followers[before].append(then)
            missing[then] += 1

        effects: int | None = None
        for k, step in enumerate(steps):
            for buffer in step.reads:
                for maker in makers.get(buffer, ()):
                    if maker != k and not (buffer in step.writes and maker > k):
                        after(maker, k)
            for buffer in step.writes:
                for maker in makers[buffer]:
                    if maker < k and buffer not in step.reads:
                        after(maker, k)
            if any(_has_effect(i) for i in step.instructions):
                if effects is not None:
                    after(effects, k)
                effects = k
        for k, step in enumerate(steps):
            for instruction in step.instructions:
                for before in instruction.control_predecessors:
                    for j, other in enumerate(steps):
                        if before in other.instructions and j != k:
                            after(j, k)
        ready = [(self._when(steps[k]), k) for k in range(len(steps)) if not missing[k]]
        heapify(ready)
        order: list[Step] = []
        while ready:
            _, k = heappop(ready)
            order.append(steps[k])
            for then in followers[k]:
                missing[then] -= 1
                if not missing[then]:
                    heappush(ready, (self._when(steps[then]), then))
        if len(order) != len(steps):
            raise AssertionError(f"{self.computation.name}: steps need each other")
        return order

    def _when(self, step: Step) -> int:
        return max((self.position.get(i, 0) for i in step.instructions), default=0)


class _Totals:
    """How often all kernels together compute each leaf.

    users    the kernels that do, with the nodes that it is there
    changed  a heap of leaves whose number may have grown since someone looked, the last first
    """

    def __init__(self, position: Mapping[Instruction, int]) -> None:
        self._position = position
        self.evaluations: dict[Leaf, int] = {}
        self.users: dict[Leaf, dict[_Key, int]] = {}
        self.changed: list[tuple[tuple[int, int], Leaf]] = []

    def add(self, key: _Key, kernel: _Kernel) -> None:
        for leaf, evaluations in kernel.inlined.items():
            self.evaluations[leaf] = self.evaluations.get(leaf, 0) + evaluations
            self.users.setdefault(leaf, {})[key] = kernel.build.weights.get(leaf, 1)
            if leaf.instruction in self._position:  # not in a loop's body
                heappush(self.changed, ((-self._position[leaf.instruction], leaf.number), leaf))

    def remove(self, key: _Key, kernel: _Kernel) -> None:
        for leaf, evaluations in kernel.inlined.items():
            self.evaluations[leaf] -= evaluations
            self.users[leaf].pop(key)

    def weight(self, leaf: Leaf) -> int:
        return max(self.users[leaf].values(), default=0)


class _Reach:
    """Whether a kernel's result reaches another through steps that are neither."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self._with: dict[Instruction, set[Instruction]] = {}
        effects = [i for i in lowering.order if _has_effect(i)]
        self._last_effect = dict(zip(effects[1:], effects, strict=False))  # effects keep their order
        self._spans: list[tuple[int, int]] = []  # of joined kernels, from first to last position, disjoint and sorted

    def between(self, first: Sequence[Leaf], second: Sequence[Leaf]) -> bool:
        """A path from one of the first roots to one of the second through a value in memory that is neither."""
        lowering = self.lowering
        targets = {leaf.instruction for leaf in first}
        low = self._before(min(lowering.position[i] for i in targets))
        stack = [leaf.instruction for leaf in second]
        own = set(stack)
        seen: set[Instruction] = set(stack)
        tainted: list[Instruction] = []
        while stack:  # second's own inlined part: operands up to what is stored
            instruction = stack.pop()
            for operand in instruction.operands:
                if operand in seen or lowering.position[operand] < low:
                    continue
                seen.add(operand)
                if operand in targets:
                    continue
                is_stored = any(Leaf(operand, k) in lowering.stored for k in range(leaf_count(operand.shape)))
                (tainted if is_stored and operand not in own else stack).append(operand)
            tainted += instruction.control_predecessors
        seen = set(tainted)
        while tainted:  # behind a stored value: reaching a target is a path through another step
            instruction = tainted.pop()
            for before in self._awaited(instruction):
                if before in targets:
                    return True
                if before not in seen and lowering.position[before] >= low:
                    seen.add(before)
                    tainted.append(before)
        return bool(targets & seen)

    def _awaited(self, instruction: Instruction) -> Iterator[Instruction]:
        """What is done before it: its operands, what its kernel computes too, and what the order of effects asks."""
        yield from instruction.operands
        yield from self._with.get(instruction, ())
        yield from instruction.control_predecessors
        if instruction in self._last_effect:
            yield self._last_effect[instruction]

    def join(self, roots: Sequence[Leaf]) -> None:
        """From now on each of them needs what the others need."""
        together = {leaf.instruction for leaf in roots}
        for instruction in together:
            self._with[instruction] = together - {instruction}
        positions = [self.lowering.position[i] for i in together]
        low, high = min(positions), max(positions)
        apart = [span for span in self._spans if span[1] <= low or high <= span[0]]
        merged = [span for span in self._spans if not (span[1] <= low or high <= span[0])]
        low, high = min(low, *(a for a, _ in merged), low), max(high, *(b for _, b in merged), high)
        self._spans = sorted([*apart, (low, high)])

    def _before(self, position: int) -> int:
        """The first position that what stands at this one can be reached from backwards: joined kernels lead ahead."""
        k = bisect_left(self._spans, (position, position)) - 1
        return self._spans[k][0] if k >= 0 and self._spans[k][1] >= position else position


class Context:
    """What all computations of a program share: buffers, constants, reasons."""

    def __init__(self, target: Target, *, strict: bool = False) -> None:
        self.target = target
        self.strict = strict
        self.reasons = Reasons()
        self.hosted: dict[Instruction, str] = {}
        self.step_loops: set[Instruction] = set()
        self.buffers: list[Buffer] = []
        self.fresh: set[Buffer] = set()
        self.constants: dict[Literal, Buffer] = {}

    def buffer(self, name: str, shape: Shape, *, fresh: bool = True) -> Buffer:
        buffer = Buffer(name, shape.dtype, shape.size, len(self.buffers))
        self.buffers.append(buffer)
        if fresh:
            self.fresh.add(buffer)
        return buffer

    def like(self, name: str, other: Buffer) -> Buffer:
        """A new buffer of the same size."""
        buffer = Buffer(name, other.dtype, other.size, len(self.buffers))
        self.buffers.append(buffer)
        self.fresh.add(buffer)
        return buffer

    def constant(self, literal: Literal) -> Buffer:
        found = self.constants.get(literal)
        if found is None:
            found = self.constants[literal] = self.buffer(f"constant{len(self.constants)}", literal.shape, fresh=False)
        return found


# -- small helpers


class _NoElementLoop(Exception):
    def __init__(self, loop: Instruction) -> None:
        super().__init__(loop.name)
        self.loop = loop


def _may_be_element_loop(loop: Instruction) -> bool:
    """A counted loop that works element by element, as far as the ops tell: nothing but maps of arrays and scalars."""
    found = counter(loop)
    if found is None or found.index is None or not all(e.is_array for e in loop.shape.elements):
        return False
    if found.trips > _MOST_TRIPS:
        return False
    for instruction in loop.called[1].instructions:
        op = instruction.op
        if op.form not in ("map", "index") and op.opcode not in ("parameter", "tuple", "get-tuple-element"):
            return False
        if isinstance(op, DynamicUpdateSlice) and _is_small_update(instruction):
            return False  # in place it costs what the update is; as a fold every pass goes through the array
    return True


def _is_small_update(instruction: Instruction) -> bool:
    """Whether a dynamic-update-slice is of a small part of its array."""
    array, update = (operand.shape for operand in instruction.operands[:2])
    return update.size * 4 <= array.size


_DEEP = 3 * MAX_DEPTH
"""Instructions in a row: where values are used again, building meets its limit later."""
_MAX_FOLDS = 6
"""Folds in a kernel that need each other: each goes through what is between it and memory again."""
_MOST_TRIPS = 2**24
"""Passes of a loop in one kernel, which no signal ends before it is done."""


def _only_marks(instruction: Instruction) -> bool:
    """Its leaves are its first operand's, wherever these lie."""
    return instruction.op.passes_on and instruction.op.form in ("control", "communicate")


def _makes_nothing(instruction: Instruction) -> bool:
    """It groups, picks or marks what others make, or has no array at all: nothing has to run for it."""
    op = instruction.op
    if isinstance(op, (Tuple, GetTupleElement)) or op.picks is not None or _only_marks(instruction):
        return True
    is_plain = instruction.op.form == "control" and not instruction.called and not _has_effect(instruction)
    return is_plain and not leaf_count(instruction.shape)


_PLAIN_FORMS = ("map", "index", "fold", "scatter")


def _has_effect(instruction: Instruction) -> bool:
    return instruction.op.has_side_effect() or any(
        _has_effect(i) for computation in instruction.called for i in computation.instructions
    )


def leaf_count(shape: Shape) -> int:
    return 1 if shape.is_array else sum(1 for _ in array_leaves(shape))


def _buffer_name(leaf: Leaf) -> str:
    return leaf.instruction.name + (f".{leaf.number}" if leaf.instruction.shape.is_tuple else "")


def _literals(literal: Literal) -> list[Literal]:
    """A constant's arrays."""
    if isinstance(literal.value, tuple):
        return [leaf for part in literal.value for leaf in _literals(part)]
    return [literal]


def _combiner(build: Build, instruction: Instruction, role: str) -> CalledFunction:
    return CalledFunction(build, dict(instruction.called_by_role())[role])


def _stores_of(buffer: Buffer, place: Affine, value: Any, guards: tuple[Node, ...] = ()) -> list[Store]:
    if isinstance(value, Pair):
        parts = (value.real, value.imag)
        return [Store(buffer, place * 2 + k, part, guards) for k, part in enumerate(parts)]
    return [Store(buffer, place, value, guards)]


def _evaluations(build: Build, stores: Sequence[Store], axes: Sequence[Axis]) -> dict[Leaf, int]:
    """How often each inlined leaf's elements are computed."""
    return dict(build.spent)


def _others(leaves: Sequence[Leaf], own: Sequence[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf not in own]


def _loads(kernel: _Kernel) -> set[Buffer]:
    found: set[Buffer] = set()
    for node in kernel.build.expressions.nodes.values():
        if node.op == "load":
            found.add(node.data[0])
    return found


def _is_of_rows(one: Sequence[Leaf], two: Sequence[Leaf]) -> bool:
    """Whether `one` has an element for each row of `two`, of which there are many, none of them long."""
    rows, whole = one[0].shape, two[0].shape
    if rows.dimensions != whole.dimensions[: rows.rank] or any(
        leaf.shape.dimensions != rows.dimensions for leaf in one
    ):
        return False
    return rows.size >= _LEAST_ROWS and whole.size <= rows.size * _LONGEST_ROW


def _largest_first(first: _Kernel, second: _Kernel) -> list[list[Leaf]]:
    """Their roots; those of more dimensions first."""
    is_larger = first.roots[0].shape.rank >= second.roots[0].shape.rank
    return [first.roots, second.roots] if is_larger else [second.roots, first.roots]


_LEAST_ROWS = 64
_LONGEST_ROW = 1 << 15
"""Of kernels that leave values of rows besides whole rows: chunks share rows, which stay in the cache."""


def _kind(kernel: _Kernel) -> bool:
    """Whether a prefix fold is in it."""
    return any(n.op == "fold" and n.data.scan is not None for n in kernel.build.expressions.nodes.values())


def _buffers_read(stores: Sequence[Store]) -> Iterator[Buffer]:
    roots = [r for s in stores for r in (s.node, *s.guards)]
    for store in stores:
        roots += [key.node for key, _ in store.place.terms if hasattr(key, "node")]  # type: ignore[attr-defined]
    found: dict[Buffer, None] = {}
    for node in reachable(roots):
        if node.op in ("load", "current"):
            found[node.data[0]] = None
    return iter(found)


def _touched(steps: Sequence[Step]) -> dict[Buffer, None]:
    """Every buffer that the steps, and the steps in them, read or write."""
    found: dict[Buffer, None] = {}
    for step in steps:
        found |= dict.fromkeys((*step.reads, *step.writes))
    return found
