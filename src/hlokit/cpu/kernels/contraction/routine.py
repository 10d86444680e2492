"""The routine of the contraction form: which way a contraction goes."""

from __future__ import annotations

import math

from hlokit.cpu.kernels.contraction.convolution import convolution
from hlokit.cpu.kernels.contraction.dot import dot, dot_packing, scaled_dot
from hlokit.cpu.kernels.contraction.ragged_dot import ragged_dot
from hlokit.cpu.kernels.routine import KERNELS, PACKERS, PHASE, Call, Packing, Phase, Routine
from hlokit.cpu.llvm import Function, Module
from hlokit.ops.contraction import compute_type


def contraction(call: Call, module: Module) -> Routine | None:
    """Any contraction; None for dynamic dimensions, strict sums whose order counts, and ragged ones of other groups."""
    if _is_refused(call):
        return None
    form = call.op.contraction(call.operands)
    if form.windows is not None:
        return convolution(call, module, form)
    if math.prod(call.results[0].dimensions) == 0:
        return _no_result(module)
    if form.groups is not None:
        return ragged_dot(call, module, form, form.groups)
    return scaled_dot(call, module, form) if form.is_scaled else dot(call, module, form)


def packing(call: Call, module: Module) -> Packing | None:
    """The operand that a product finds packed apart, if it is one for that."""
    if _is_refused(call) or math.prod(call.results[0].dimensions) == 0:
        return None
    return dot_packing(call, module, call.op.contraction(call.operands))


def _is_refused(call: Call) -> bool:
    """Dynamic dimensions have no code; strict asks for the reference's order, which only integers do not have."""
    shapes = (*call.operands, *call.results)
    if any(shape.is_dynamic for shape in shapes):
        return True
    return call.strict and compute_type(call.operands[0].dtype, call.results[0].dtype).kind not in "iu"


def _no_result(module: Module) -> Routine:
    """For results without elements."""
    function = Function("dot_nothing", PHASE)
    function.returns()
    module.add(function)
    return Routine((Phase(function.name),))


for _opcode in ("dot", "convolution", "ragged-dot", "scaled-dot"):
    KERNELS[_opcode] = contraction
PACKERS["dot"] = packing
