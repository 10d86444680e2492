"""Which values one kernel makes: found by building kernels and counting what they compute."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.chain_cuts import MAX_FOLDS
from hlokit.cpu.lower.drafts import Draft, Drafting
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Key, Leaves, key_of
from hlokit.cpu.lower.retries import too_often
from hlokit.cpu.lower.traits import leaf_count
from hlokit.errors import UnsupportedError
from hlokit.hlo.instruction import Instruction


class Grouping(Drafting):
    """The kernels of a computation."""

    def _kernels(self) -> list[Draft]:
        kernels: dict[Key, Draft] = {}
        totals = _Totals(self.position)
        waiting: list[Key] = []
        seen = 0
        while True:
            latest = [*islice(reversed(self.stored), len(self.stored) - seen)]
            seen = len(self.stored)
            new = [leaf for leaf in reversed(latest) if self._is_kernel(leaf.instruction)]
            keys = (self._together.get(key_of(leaf), key_of(leaf)) for leaf in new)
            waiting += [key for key in keys if key not in kernels or kernels[key].roots != self._roots(*key)]
            waiting = waiting or self._tangled(kernels)
            if not waiting:
                break
            waiting = list(dict.fromkeys(self._together.get(key, key) for key in waiting))
            nodes = done = 0
            while done < len(waiting) and nodes < _ROUND:
                key = waiting[done]
                done += 1
                if key in kernels:
                    totals.remove(key, kernels.pop(key))
                for each, kernel in self._built_together(key):
                    kernels[each] = kernel
                    totals.add(each, kernel)
                    nodes += len(kernel.build.expressions.nodes)
            waiting = [*self._too_often(totals, kernels), *waiting[done:]]
        found = sorted(kernels.values(), key=lambda k: self.position[k.roots[0].instruction])
        return self._joined(found)

    def _too_often(self, totals: _Totals, kernels: dict[Key, Draft]) -> list[Key]:
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

    def _may_be_one(self, kernels: Sequence[Draft]) -> bool:
        """Whether kernels that compute the same values could do so at once."""
        roots = [leaf for kernel in kernels for leaf in kernel.roots]
        if len(kernels) < 2 or len(roots) > 8 or sum(kernel.folds for kernel in kernels) > MAX_FOLDS:
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

    def _built_together(self, key: Key) -> list[tuple[Key, Draft]]:
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

    def _part(self, members: Sequence[Key]) -> None:
        self._apart |= set(members)
        for member in members:
            del self._together[member]

    def _tangled(self, kernels: dict[Key, Draft]) -> list[Key]:
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

    def _joined(self, kernels: list[Draft]) -> list[Draft]:
        """Kernels over equal dimensions that read the same large array, or each other, become one."""
        joined: list[Draft] = []
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
                    too_often(n, leaf.shape.size, both.build.weights.get(leaf, 1))
                    for leaf, n in both.build.spent.items()
                ):
                    joined[joined.index(partner)] = both
                    reach.join(both.roots)
                    continue
            joined.append(kernel)
        return joined

    def _joins(self, first: Draft, second: Draft, reach: _Reach) -> bool:
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
        if feeds and first.folds + second.folds > MAX_FOLDS:
            return False
        return (large or feeds) and not reach.between(one, two) and not reach.between(two, one)


class _Totals:
    """The number of times that all kernels together compute each leaf.

    users    the kernels that do, with the nodes that it is there
    changed  a heap of leaves whose number may have grown since someone looked, the last first
    """

    def __init__(self, position: Mapping[Instruction, int]) -> None:
        self._position = position
        self.evaluations: dict[Leaf, int] = {}
        self.users: dict[Leaf, dict[Key, int]] = {}
        self.changed: list[tuple[tuple[int, int], Leaf]] = []

    def add(self, key: Key, kernel: Draft) -> None:
        for leaf, evaluations in kernel.build.spent.items():
            self.evaluations[leaf] = self.evaluations.get(leaf, 0) + evaluations
            self.users.setdefault(leaf, {})[key] = kernel.build.weights.get(leaf, 1)
            if leaf.instruction in self._position:  # not in a loop's body
                heappush(self.changed, ((-self._position[leaf.instruction], leaf.number), leaf))

    def remove(self, key: Key, kernel: Draft) -> None:
        for leaf, evaluations in kernel.build.spent.items():
            self.evaluations[leaf] -= evaluations
            self.users[leaf].pop(key)

    def weight(self, leaf: Leaf) -> int:
        return max(self.users[leaf].values(), default=0)


class _Reach:
    """Whether a kernel's result reaches another through steps that are neither."""

    def __init__(self, lowering: Leaves) -> None:
        self.lowering = lowering
        self._with: dict[Instruction, set[Instruction]] = {}
        effects = [i for i in lowering.order if lowering.context.has_effect(i)]
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
        """The instructions before it: its operands, what its kernel computes too, what the order of effects asks."""
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


def _others(leaves: Sequence[Leaf], own: Sequence[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf not in own]


def _loads(kernel: Draft) -> set[Buffer]:
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


def _largest_first(first: Draft, second: Draft) -> list[list[Leaf]]:
    """Their roots; those of more dimensions first."""
    is_larger = first.roots[0].shape.rank >= second.roots[0].shape.rank
    return [first.roots, second.roots] if is_larger else [second.roots, first.roots]


def _kind(kernel: Draft) -> bool:
    """Whether a prefix fold is in it."""
    return any(n.op == "fold" and n.data.scan is not None for n in kernel.build.expressions.nodes.values())


_ROUND = 2_000
"""Nodes of kernels that are built before anyone looks what they all compute: it is not built for the others too."""
_LEAST_ROWS = 64
_LONGEST_ROW = 1 << 15
"""Bounds of rows for kernels that leave values of rows besides whole rows: chunks share rows, which stay in cache."""
