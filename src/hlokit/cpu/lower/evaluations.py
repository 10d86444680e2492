"""Evaluations: how often all kernels of a computation together compute each leaf, and the code that this takes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from heapq import heappop, heappush

from hlokit.cpu.lower.drafts import Draft
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Key
from hlokit.cpu.lower.retries import too_often
from hlokit.hlo.instruction import Instruction

_REPEATED = 200
"""Nodes up to which a leaf's code may be in kernels besides the first. This matters for few elements: of many, the
work is too much before."""


class Evaluations:
    """The number of times that all kernels together compute each leaf.

    users     the kernels that do, with the nodes that it is there
    _changed  a heap of leaves whose number may have grown since someone looked, the last first
    """

    def __init__(self, position: Mapping[Instruction, int]) -> None:
        self._position = position
        self.evaluations: dict[Leaf, int] = {}
        self.users: dict[Leaf, dict[Key, int]] = {}
        self._changed: list[tuple[tuple[int, int], Leaf]] = []

    def add(self, key: Key, kernel: Draft) -> None:
        for leaf, evaluations in kernel.spent.items():
            self.evaluations[leaf] = self.evaluations.get(leaf, 0) + evaluations
            self.users.setdefault(leaf, {})[key] = kernel.weight(leaf)
            if leaf.instruction in self._position:  # not in a loop's body
                heappush(self._changed, ((-self._position[leaf.instruction], leaf.number), leaf))

    def remove(self, key: Key, kernel: Draft) -> None:
        for leaf, evaluations in kernel.spent.items():
            self.evaluations[leaf] -= evaluations
            self.users[leaf].pop(key)

    def too_many(self, stored: Container[Leaf]) -> Leaf | None:
        """The next leaf that costs more, by its work or its code, than memory does, unless it is stored; None: there is
        none."""
        while self._changed:
            _, leaf = heappop(self._changed)
            weights = self.users[leaf].values()
            weight = max(weights, default=0)
            if leaf in stored:
                continue
            if too_often(self.evaluations[leaf], leaf.shape.size, weight) or sum(weights) - weight > _REPEATED:
                return leaf
        return None
