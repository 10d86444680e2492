"""sort: a radix sort where the comparator is a known order of keys, else merges by the comparator itself."""

from __future__ import annotations

import math

from hlokit.cpu.kernels.flow import Element, unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.kernels.sort_merge import MergeSort
from hlokit.cpu.llvm import Module


def sort(call: Call, module: Module) -> Routine | None:
    """Any operands, dimension and comparator. Results may not lie where operands do."""
    sizes = call.operands[0].dimensions
    dimension: int = call.op.dimension  # type: ignore[attr-defined]
    outer, size, inner = math.prod(sizes[:dimension]), sizes[dimension], math.prod(sizes[dimension + 1 :])
    if not outer * size * inner:
        return Routine(())
    name = unused_name(module, "sort")
    elements = tuple(Element(o.dtype) for o in call.operands)
    return MergeSort(name, call.functions["to_apply"], elements, outer, size, inner).write(module)


KERNELS["sort"] = sort
