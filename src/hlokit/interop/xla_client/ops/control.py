"""Op functions of tuples and called computations."""

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def Tuple(builder: t.Builder, elements: t.Ops) -> hk.XlaOp:
    """The tuple of the elements."""
    return hk.tuple_(builder, elements)


@op()
def GetTupleElement(tuple_data: t.Op, index: t.Int) -> hk.XlaOp:
    """An element of a tuple."""
    return hk.get_tuple_element(tuple_data, index)


@op()
def Call(builder: t.Builder, computation: t.Computation, operands: t.Ops) -> hk.XlaOp:
    """The computation on the operands."""
    return hk.call(builder, computation, operands)


@op()
def Map(
    builder: t.Builder,
    operands: t.Ops,
    computation: t.Computation,
    dimensions: t.Ints,
    static_operands: t.Ops = (),
) -> hk.XlaOp:
    """The computation of scalars on each element."""
    return hk.map(operands, computation, dimensions, static_operands)


@op()
def While(condition: t.Computation, body: t.Computation, init: t.Op) -> hk.XlaOp:
    """The body again and again, as long as the condition holds."""
    return hk.while_(condition, body, init)


@op()
def Conditional(branch_index: t.Op, branch_computations: t.Computations, branch_operands: t.Ops) -> hk.XlaOp:
    """One of several computations, on its own operand."""
    return hk.conditional(branch_index, branch_computations, branch_operands)


@Conditional.overload
def _(
    predicate: t.Op,
    true_operand: t.Op,
    true_computation: t.Computation,
    false_operand: t.Op,
    false_computation: t.Computation,
) -> hk.XlaOp:
    return hk.conditional(predicate, true_operand, true_computation, false_operand, false_computation)
