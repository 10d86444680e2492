"""Paths from kernel to kernel through other steps: kernels on such a path cannot be merged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.traits import leaf_count
from hlokit.hlo.instruction import Instruction


class Reach:
    """Whether a kernel's result reaches another through steps that are neither."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self._with: dict[Instruction, set[Instruction]] = {}
        effects = [i for i in leaves.order if leaves.context.has_effect(i)]
        self._last_effect = dict(zip(effects[1:], effects, strict=False))  # effects keep their order
        self._spans: list[tuple[int, int]] = []  # of joined kernels, from first to last position, disjoint and sorted

    def between(self, first: Sequence[Leaf], second: Sequence[Leaf]) -> bool:
        """A path from one of the first roots to one of the second through a value in memory that is neither."""
        leaves = self.leaves
        targets = {leaf.instruction for leaf in first}
        low = self._before(min(leaves.position[i] for i in targets))
        stack = [leaf.instruction for leaf in second]
        own = set(stack)
        seen: set[Instruction] = set(stack)
        tainted: list[Instruction] = []
        while stack:  # second's own inlined part: operands up to what is stored
            instruction = stack.pop()
            for operand in instruction.operands:
                if operand in seen or leaves.position[operand] < low:
                    continue
                seen.add(operand)
                if operand in targets:
                    continue
                is_stored = any(Leaf(operand, k) in leaves.stored for k in range(leaf_count(operand.shape)))
                (tainted if is_stored and operand not in own else stack).append(operand)
            tainted += instruction.control_predecessors
        seen = set(tainted)
        while tainted:  # behind a stored value: reaching a target is a path through another step
            instruction = tainted.pop()
            for before in self._awaited(instruction):
                if before in targets:
                    return True
                if before not in seen and leaves.position[before] >= low:
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
        positions = [self.leaves.position[i] for i in together]
        low, high = min(positions), max(positions)
        apart = [span for span in self._spans if span[1] <= low or high <= span[0]]
        merged = [span for span in self._spans if not (span[1] <= low or high <= span[0])]
        low, high = min(low, *(a for a, _ in merged), low), max(high, *(b for _, b in merged), high)
        self._spans = sorted([*apart, (low, high)])

    def _before(self, position: int) -> int:
        """The first position that what stands at this one can be reached from backwards: joined kernels lead ahead."""
        k = bisect_left(self._spans, (position, position)) - 1
        return self._spans[k][0] if k >= 0 and self._spans[k][1] >= position else position
