"""Fusion: the leaves that are stored, and the kernel that computes each, determined by building and counting."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice

from hlokit.cpu.lower.chain_cuts import MAX_FOLDS
from hlokit.cpu.lower.drafts import Draft
from hlokit.cpu.lower.evaluations import Evaluations
from hlokit.cpu.lower.kernels import element_draft, element_kernel
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Key, Leaves, key_of
from hlokit.cpu.lower.reach import Reach
from hlokit.cpu.lower.retries import NoElementLoop, NoKernel, too_often
from hlokit.cpu.lower.scatters import scatter_kernel
from hlokit.cpu.lower.traits import leaf_count
from hlokit.ops.control_flow import While

_MOST_ROOTS = 8
"""Leaves that kernels which become one store."""
_PARTNERS = 12
"""Kernels before one of which it is asked whether the two become one."""
_LEAST_ROWS = 64
_LONGEST_ROW = 1 << 15
"""Bounds of rows for kernels that leave values of rows besides whole rows: chunks share rows, which stay in cache."""


class SharedKernels:
    """The keys whose leaves one kernel makes, under the first of them, and those for which this was tried in vain."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._first: dict[Key, Key] = {}
        self._apart: set[Key] = set()

    def __iter__(self) -> Iterator[Key]:
        """The keys of shared kernels."""
        return iter(dict.fromkeys(self._first.values()))

    def key(self, key: Key) -> Key:
        """The key of the kernel that makes what is under this one."""
        return self._first.get(key, key)

    def members(self, key: Key) -> list[Key]:
        """The keys whose leaves the kernel of this key makes."""
        return [each for each, first in self._first.items() if first == key] or [key]

    def roots(self, key: Key) -> list[Leaf]:
        """The leaves that the kernel of this key stores."""
        leaves = [Leaf(i, k) for i, _ in self.members(key) for k in range(leaf_count(i.shape))]
        return [leaf for leaf in leaves if leaf in self._leaves.stored and leaf.shape.dimensions == key[1]]

    def may_join(self, keys: Collection[Key]) -> bool:
        """Whether none of them was parted from others."""
        return self._apart.isdisjoint(keys)

    def join(self, keys: Sequence[Key]) -> None:
        """Makes their kernels one, under the first key."""
        self._first |= {each: keys[0] for key in keys for each in self.members(key)}

    def part(self, members: Collection[Key]) -> None:
        """Gives each of them a kernel of its own, for good."""
        self._apart |= set(members)
        for member in members:
            del self._first[member]


class Fusion:
    """The kernels of a computation in the making, by key, and how often all of them compute what."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self.shared = SharedKernels(leaves)
        self._kernels: dict[Key, Draft] = {}
        self._evaluations = Evaluations(leaves.position)

    def kernels(self) -> list[Draft]:
        """The kernels of all leaves that are stored by now, or that building them finds to be stored, in order.

        Raises NoElementLoop for a loop that was taken for one over elements and is none.
        """
        leaves, shared = self.leaves, self.shared
        waiting: deque[Key] = deque()
        seen = 0
        while True:
            latest = [*islice(reversed(leaves.stored), len(leaves.stored) - seen)]
            seen = len(leaves.stored)
            made = [leaf for leaf in reversed(latest) if leaf not in leaves.reshaped]
            waiting += [key_of(leaf) for leaf in made if leaves.is_kernel(leaf.instruction)]
            waiting = waiting or deque(self._tangled())
            if not waiting:
                break
            key = shared.key(waiting.popleft())
            if key in self._kernels and self._kernels[key].roots == shared.roots(key):
                continue
            self._build(key)
            waiting.extendleft(reversed(self._computed_too_often()))
        found = sorted(self._kernels.values(), key=lambda kernel: leaves.position[kernel.roots[0].instruction])
        return joined(leaves, shared, found)

    def _build(self, key: Key) -> None:
        """Builds the kernel of a key anew."""
        if key in self._kernels:
            self._remove(key)
        for each, kernel in self._built(key):
            self._kernels[each] = kernel
            self._evaluations.add(each, kernel)

    def _remove(self, key: Key) -> None:
        self._evaluations.remove(key, self._kernels.pop(key))

    def _built(self, key: Key) -> list[tuple[Key, Draft]]:
        """The kernel of the values under the key; the kernels of each, where one cannot make them."""
        members = self.shared.members(key)
        if len(members) > 1:
            roots = self.shared.roots(key)
            try:
                return [(key, element_draft(self.leaves, [roots], cuts=False))]
            except NoKernel:
                self.shared.part(members)
        return [(member, self._kernel(member)) for member in members]

    def _kernel(self, key: Key) -> Draft:
        """The kernel of one key; if there is none, the reference evaluates the instruction."""
        instruction, roots = key[0], self.shared.roots(key)
        try:
            if instruction.op.form == "scatter":
                return scatter_kernel(self.leaves, instruction, roots)
            return element_kernel(self.leaves, instruction, roots)
        except NoKernel as error:
            loop = next((i for i in (instruction, *error.inlined) if isinstance(i.op, While)), None)
            if loop is not None:
                raise NoElementLoop(loop) from None
            self.leaves.host(instruction, str(error) or f"{instruction.opcode} has no form")
            return Draft(roots)

    def _computed_too_often(self) -> Sequence[Key]:
        """Stores what all kernels together compute too often, or has one kernel do what they do; gives the kernels that
        have to be built again."""
        evaluations, shared = self._evaluations, self.shared
        leaf = evaluations.too_many(self.leaves.stored)
        if leaf is None:
            return ()
        users, times = list(evaluations.users[leaf]), evaluations.evaluations[leaf]
        may_join = self._may_be_one([self._kernels[key] for key in users]) and shared.may_join(users)
        for key in users:
            self._remove(key)
        if may_join:
            shared.join(users)
            return users[:1]
        self.leaves.store(leaf, f"it would be computed {times} times for {leaf.shape.size} elements")
        return users

    def _may_be_one(self, kernels: Sequence[Draft]) -> bool:
        """Whether kernels that compute the same values could do so at once."""
        roots = [leaf for kernel in kernels for leaf in kernel.roots]
        if len(kernels) < 2 or len(roots) > _MOST_ROOTS or sum(kernel.folds for kernel in kernels) > MAX_FOLDS:
            return False
        if any(not k.stores or k.source or k.serial or k.fills or k.has_scan for k in kernels):
            return False
        if any(leaf.instruction.op.form == "scatter" for leaf in roots):
            return False
        if len({leaf.shape.dimensions for leaf in roots}) > 1:
            return False
        return not any(self._reach.between(kernel.roots, _others(roots, kernel.roots)) for kernel in kernels)

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self.leaves)

    def _tangled(self) -> Sequence[Key]:
        """Parts a kernel, if there is one, whose values need each other through what another stores by now."""
        reach = Reach(self.leaves)
        for key in self.shared:
            members = self.shared.members(key)
            roots = self._kernels[key].roots
            for member in members:
                own = [leaf for leaf in roots if key_of(leaf) == member]
                if reach.between(own, _others(roots, own)):
                    self.shared.part(members)
                    return members
            reach.join(roots)
        return ()


def joined(leaves: Leaves, shared: SharedKernels, kernels: Sequence[Draft]) -> list[Draft]:
    """Kernels over equal dimensions that read the same large array, or each other, become one."""
    found: list[Draft] = []
    reach = Reach(leaves)
    for key in shared:
        reach.join(shared.roots(key))
    for kernel in kernels:
        partner = next((k for k in reversed(found[-_PARTNERS:]) if _joins(leaves, k, kernel, reach)), None)
        both = _both(leaves, partner, kernel) if partner is not None else None
        if partner is not None and both is not None:
            found[found.index(partner)] = both
            reach.join(both.roots)
        else:
            found.append(kernel)
    return found


def _both(leaves: Leaves, first: Draft, second: Draft) -> Draft | None:
    """One kernel of two; None where there is none, or it would compute something too often."""
    with suppress(NoKernel):
        groups = _largest_first(first, second)
        both = element_draft(leaves, groups, cuts=False)
        if not any(too_often(n, leaf.shape.size, both.weight(leaf)) for leaf, n in both.spent.items()):
            return both
    return None


def _joins(leaves: Leaves, first: Draft, second: Draft, reach: Reach) -> bool:
    one, two = first.roots, second.roots
    if not one or not two or not first.stores or not second.stores or first.source or second.source:
        return False
    if first.serial or second.serial or first.has_scan != second.has_scan or len(one) + len(two) > _MOST_ROOTS:
        return False
    rows = one[0].shape.dimensions
    if (rows != two[0].shape.dimensions and not _is_of_rows(one, two)) or one[0].shape.size < 2:
        return False
    if one[0].instruction.op.form == "scatter" or two[0].instruction.op.form == "scatter":
        return False
    read = second.loaded
    is_large = any(b.size * 2 >= two[0].shape.size for b in first.loaded if b in read)
    feeds = any(leaves.stored[leaf] in read for leaf in one)
    if rows != two[0].shape.dimensions and not (is_large and (feeds or any(map(second.computes, one)))):
        return False
    if feeds and first.folds + second.folds > MAX_FOLDS:
        return False
    return (is_large or feeds) and not reach.between(one, two) and not reach.between(two, one)


def _others(leaves: Sequence[Leaf], own: Sequence[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf not in own]


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
