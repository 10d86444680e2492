"""The routine "convolution": picks the way that suits the shapes."""

from __future__ import annotations

from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.kernels.scalar_convolution import element_by_element
from hlokit.cpu.kernels.sliding import sliding
from hlokit.cpu.llvm import Module
from hlokit.ops.convolution import Convolution


def convolution(call: Call, module: Module) -> Routine | None:
    """A convolution. Positions in padding and in the holes of a dilated lhs add zeros (CONV-6).

    strict: only integers, whose sums are the same in any order.
    """
    op = call.op
    assert isinstance(op, Convolution)
    s = sliding(op, *call.operands, call.results[0])
    if call.strict and not s.wide.is_integral:
        return None
    if s.elements == 0:
        return Routine(())
    return element_by_element(call, module, s)


KERNELS["convolution"] = convolution
