"""sort: by keys if the comparator is a known order of keys, else by merging with the comparator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import Element, unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, EmptyPlan, PlannedKernel, Routine, RoutinePlan
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.comparators import recognise
from hlokit.cpu.kernels.sort.lines import SortedLines
from hlokit.cpu.kernels.sort.merge import MergeSort
from hlokit.cpu.kernels.sort.quick import fits, quick_sort
from hlokit.cpu.kernels.sort.radix import RadixSort
from hlokit.cpu.kernels.sort.rank import RankSort
from hlokit.cpu.kernels.sort.vector import supports
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target


@dataclass(frozen=True)
class SortPlan:
    """The algorithm that sorts lines.

    algorithm    "vector": quicksort and networks of AVX-512, "rank", "radix", all three by keys; or "merge"
    lines        KeyedLines where keys are compared
    comparator   the LLVM function that merges call
    """

    algorithm: str
    lines: SortedLines
    comparator: str
    target: Target

    def write(self, module: Module) -> Routine:
        name, lines = unused_name(module, "sort"), self.lines
        if not isinstance(lines, KeyedLines):
            return MergeSort(lines.elements, lines.outer, lines.size, lines.inner, name, self.comparator).write(module)
        if self.algorithm == "vector":
            return quick_sort(name, lines, module)
        if self.algorithm == "rank":
            return RankSort(name, lines, self.target.vector_bytes).write(module)
        return RadixSort(name, lines, module).write()


def plan(call: Call) -> RoutinePlan:
    """Any operands, dimension and comparator; the order of equal elements is kept.

    Results may not lie where operands do. Without `computations` no order is recognised.
    """
    sizes = call.operands[0].dimensions
    dimension: int = call.op.dimension  # type: ignore[attr-defined]
    outer, size, inner = math.prod(sizes[:dimension]), sizes[dimension], math.prod(sizes[dimension + 1 :])
    if not outer * size * inner:
        return EmptyPlan()
    elements = tuple(Element(o.dtype) for o in call.operands)
    comparator = call.computations.get("to_apply")
    order = recognise(comparator) if comparator is not None else None
    if order is not None and size < 2**31:
        data = KeyedLines(elements, outer, size, inner, order)
        if data.key_bits <= 64:
            return SortPlan(_algorithm(data, call.target), data, "", call.target)
    return SortPlan("merge", SortedLines(elements, outer, size, inner), call.functions["to_apply"], call.target)


def _algorithm(data: KeyedLines, target: Target) -> str:
    if supports(target) and fits(data) and data.size > costs.RANKED_TINY:
        return "vector"
    return "rank" if data.size <= costs.RANKED_LINES[data.bits] else "radix"


KERNELS["sort"] = PlannedKernel(plan)
