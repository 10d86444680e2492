"""sort: by keys where the comparator is a known order of them, else merges by the comparator itself."""

from __future__ import annotations

import math

from hlokit.cpu.kernels.flow import Element, unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.comparators import KeyOrder, recognise
from hlokit.cpu.kernels.sort.merge import MergeSort
from hlokit.cpu.kernels.sort.quick import fits, quick_sort
from hlokit.cpu.kernels.sort.radix import RadixSort
from hlokit.cpu.kernels.sort.rank import RankSort
from hlokit.cpu.kernels.sort.vector import supports
from hlokit.cpu.llvm import Module

__all__ = ["KeyOrder", "recognise", "sort"]

_RANKED = {32: 192, 64: 96}
"""By the bits of the keys: the longest lines for which comparing all with all is faster than counting digits."""
_TINY = 16
"""The longest lines for which that is faster than networks."""


def sort(call: Call, module: Module) -> Routine | None:
    """Any operands, dimension and comparator; the order of equal elements is kept.

    Results may not lie where operands do. Without `computations` no order is recognised.
    """
    sizes = call.operands[0].dimensions
    dimension: int = call.op.dimension  # type: ignore[attr-defined]
    outer, size, inner = math.prod(sizes[:dimension]), sizes[dimension], math.prod(sizes[dimension + 1 :])
    if not outer * size * inner:
        return Routine(())
    name = unused_name(module, "sort")
    elements = tuple(Element(o.dtype) for o in call.operands)
    comparator = call.computations.get("to_apply")
    order = recognise(comparator) if comparator is not None else None
    if order is not None:
        data = KeyedLines(elements, outer, size, inner, order)
        if data.key_bits <= 64 and size < 2**31:
            if supports(call.target) and fits(data) and size > _TINY:
                return quick_sort(name, data, module)
            if size <= _RANKED[data.bits]:
                return RankSort(name, data, call.target.vector_bytes).write(module)
            return RadixSort(name, data, module).write()
    return MergeSort(elements, outer, size, inner, name, call.functions["to_apply"]).write(module)


KERNELS["sort"] = sort
