"""operand-upcaster: converts products of two element types, and collectives combined in another type, to one type."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.collectives import AllReduce, ReduceScatter
from hlokit.ops.contraction import Dot, ScaledDot, promoted_type
from hlokit.ops.control_flow import Call, Map
from hlokit.ops.conversion import Convert
from hlokit.ops.convolution import Convolution
from hlokit.ops.reduction import Reduce
from hlokit.ops.scatter import Scatter
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.ops.windows import ReduceWindow
from hlokit.passes.pipeline import Pass
from hlokit.types.dtype import DType


class OperandUpcaster(Pass):
    """Writes out the conversions that DOTG-16, CONV-24 and ARED-6 ask for.

    Reductions, scatters and maps get operands of the types that their computations take (REDUCER-7, MAP-7).
    A dot or convolution of operands of two types becomes that of the operands converted to one type. The operands of
    a collective become of the result's type; its combiner of another one becomes a computation that converts its
    arguments and its result.
    """

    name = "operand-upcaster"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                new = _in_one_type(instruction, module)
                if new is not None:
                    computation.replace(instruction, new)
                    changed = True
            changed |= computation.remove_dead() > 0
        return changed


def _in_one_type(instruction: Instruction, module: HloModule) -> Instruction | None:
    """The instruction on operands of one type; None if its types are one already."""
    computation, op, operands = instruction.parent, instruction.op, instruction.operands
    assert computation is not None
    types = [operand.shape.dtype for operand in operands if operand.shape.is_array]
    called = instruction.called
    if isinstance(op, (Reduce, ReduceWindow, Scatter, Map)):
        return _of_called(instruction)
    if isinstance(op, (Dot, ScaledDot, Convolution)):
        if types[0] is types[1]:
            return None
        wide = promoted_type(types[0], types[1], instruction.shape.dtype)
        operands = (*(_converted(computation, operand, wide) for operand in operands[:2]), *operands[2:])
    elif isinstance(op, (AllReduce, ReduceScatter)):
        result = next(leaf.dtype for leaf in instruction.shape.leaves())
        if types[0] is called[0].root.shape.dtype is result:
            return None
        operands = tuple(_converted(computation, operand, result) for operand in operands)
        if result is not called[0].root.shape.dtype:
            called = (_of_type(called[0], result, module),)
    else:
        return None
    new = computation.add(op, operands, called, shape=instruction.shape)
    new.extra = instruction.extra
    return new


def _of_called(instruction: Instruction) -> Instruction | None:
    """A reduction, scatter or map on operands of the types that its computation takes, its results converted back."""
    computation, function = instruction.parent, instruction.called[0]
    assert computation is not None
    taken = [parameter.shape.dtype for parameter in function.parameters]
    given = [leaf.dtype for leaf in function.root.shape.leaves()]
    wanted = [leaf.dtype for leaf in instruction.shape.leaves()]
    if isinstance(instruction.op, Scatter):
        half = len(taken) // 2
        taken.insert(half, instruction.operands[half].shape.dtype)  # of the indices
    if [o.shape.dtype for o in instruction.operands] == taken and given == wanted:
        return None
    operands = [_converted(computation, o, t) for o, t in zip(instruction.operands, taken, strict=True)]
    new = computation.add(instruction.op, operands, instruction.called)
    new.extra = instruction.extra
    if given == wanted:
        return new
    if not instruction.shape.is_tuple:
        return _converted(computation, new, wanted[0])
    parts = [computation.add(GetTupleElement(i), [new]) for i in range(len(wanted))]
    return computation.add(Tuple(), [_converted(computation, p, t) for p, t in zip(parts, wanted, strict=True)])


def _converted(computation: Computation, operand: Instruction, dtype: DType) -> Instruction:
    if operand.shape.dtype is dtype:
        return operand
    return computation.add(Convert(operand.shape.with_dtype(dtype)), [operand])


def _of_type(combiner: Computation, dtype: DType, module: HloModule) -> Computation:
    """The combiner of scalars (or arrays) of its own type as one of this type."""
    made = module.add_computation(Computation(f"{combiner.name}.{dtype}", module))
    scalars = [made.add(Parameter(number, combiner.root.shape.with_dtype(dtype))) for number in range(2)]
    wide = [_converted(made, scalar, combiner.root.shape.dtype) for scalar in scalars]
    made.set_root(_converted(made, made.add(Call(is_composite=False), wide, [combiner]), dtype))
    return made
