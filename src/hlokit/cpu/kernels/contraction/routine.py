"""The routine of the contraction form: the choice of the method for a contraction."""

from __future__ import annotations

import math

from hlokit.cpu.kernels.contraction import dot
from hlokit.cpu.kernels.contraction.dot import dot_packing, plan_dot, plan_scaled_dot
from hlokit.cpu.kernels.routine import KERNELS, LOADERS, PACKERS, Call, EmptyPlan, Packing, PlannedKernel, RoutinePlan
from hlokit.cpu.llvm import Module
from hlokit.ops.contraction import compute_type


def plan(call: Call) -> RoutinePlan | None:
    """Any contraction; None for dynamic dimensions, strict sums whose order counts, and ragged ones of other groups."""
    if _is_refused(call):
        return None
    form = call.op.contraction(call.operands)
    if math.prod(call.results[0].dimensions) == 0:
        return EmptyPlan()
    if form.windows is not None:  # imported here: 12 ms that programs without convolutions do without
        from hlokit.cpu.kernels.contraction.convolution import plan_convolution

        return plan_convolution(call, form)
    if form.groups is not None:
        from hlokit.cpu.kernels.contraction.ragged_dot import plan_ragged_dot

        return plan_ragged_dot(call, form, form.groups)
    return plan_scaled_dot(call, form) if form.is_scaled else plan_dot(call, form)


contraction = PlannedKernel(plan)


def packing(call: Call, module: Module) -> Packing | None:
    """The operand that a product finds packed apart, if it is one for that."""
    if _is_refused(call) or math.prod(call.results[0].dimensions) == 0:
        return None
    return dot_packing(call, module, call.op.contraction(call.operands))


def reads_loaded(call: Call) -> bool:
    """Whether the contraction is a plain product that reads the operand of the call's loader as that gives it."""
    if _is_refused(call) or math.prod(call.results[0].dimensions) == 0:
        return False
    form = call.op.contraction(call.operands)
    is_plain = form.windows is None and form.groups is None and not form.is_scaled
    return is_plain and dot.reads_loaded(call, form)


def _is_refused(call: Call) -> bool:
    """Dynamic dimensions have no code; strict asks for the reference's order, which only integers do not have."""
    shapes = (*call.operands, *call.results)
    if any(shape.is_dynamic for shape in shapes):
        return True
    return call.strict and compute_type(call.operands[0].dtype, call.results[0].dtype).kind not in "iu"


for _opcode in ("dot", "convolution", "ragged-dot", "scaled-dot"):
    KERNELS[_opcode] = contraction
PACKERS["dot"] = packing
LOADERS["dot"] = reads_loaded
