"""Op functions that create values, and elementwise ones that are not in a table."""

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def Parameter(
    builder: t.Builder,
    parameter_number: t.Int,
    shape: t.ShapeOf,
    name: t.Str = "",
    replicated_at_leaf_buffers: t.Bools = (),
) -> hk.XlaOp:
    """The argument of this number."""
    return builder.parameter(parameter_number, shape, name, replicated_at_leaf_buffers)


@op()
def Constant(builder: t.Builder, literal: t.Constant) -> hk.XlaOp:
    """A constant from an array, a number (64 bits wide, as NumPy has it) or a tuple of such."""
    return builder.constant(literal)


@op()
def ConstantLiteral(builder: t.Builder, literal: t.Constant) -> hk.XlaOp:
    """Same as Constant."""
    return builder.constant(literal)


@op()
def Iota(builder: t.Builder, shape: t.ShapeOf, iota_dimension: t.Int) -> hk.XlaOp:
    """Counts along a dimension of `shape`, or from 0 to `size` - 1."""
    return builder.iota(shape, iota_dimension)


@Iota.overload
def _(builder: t.Builder, type: t.Type, size: t.Int) -> hk.XlaOp:
    return builder.iota(type, size=size)


@op()
def ReplicaId(builder: t.Builder) -> hk.XlaOp:
    """The number of the replica that runs the program."""
    return builder.replica_id()


@op()
def CreateToken(builder: t.Builder) -> hk.XlaOp:
    """A token that waits for nothing."""
    return builder.create_token()


@op()
def AfterAll(builder: t.Builder, tokens: t.Ops) -> hk.XlaOp:
    """A token that waits for all of `tokens`."""
    return builder.after_all(tokens)


@op()
def ConvertElementType(operand: t.Op, new_element_type: t.Type) -> hk.XlaOp:
    """The values in another element type."""
    return hk.convert_element_type(operand, new_element_type)


@op()
def BitcastConvertType(operand: t.Op, new_element_type: t.Type) -> hk.XlaOp:
    """The bits read as another element type."""
    return hk.bitcast_convert_type(operand, new_element_type)


@op()
def ReducePrecision(operand: t.Op, exponent_bits: t.Int, mantissa_bits: t.Int) -> hk.XlaOp:
    """The values rounded to a narrower floating type."""
    return hk.reduce_precision(operand, exponent_bits, mantissa_bits)


@op()
def Select(pred: t.Op, on_true: t.Op, on_false: t.Op) -> hk.XlaOp:
    """on_true where pred, else on_false."""
    return hk.select(pred, on_true, on_false)


@op()
def Clamp(min: t.Op, operand: t.Op, max: t.Op) -> hk.XlaOp:
    """The operand, no less than min and no more than max."""
    return hk.clamp(min, operand, max)


@op()
def NextAfter(from_: t.Op, to: t.Op) -> hk.XlaOp:
    """The next number from `from` towards `to`."""
    return hk.next_after(from_, to)


@op()
def Igamma(a: t.Op, x: t.Op) -> hk.XlaOp:
    """The regularized lower incomplete gamma function."""
    return hk.igamma(a, x)


@op()
def IgammaGradA(a: t.Op, x: t.Op) -> hk.XlaOp:
    """The derivative of Igamma by a."""
    return hk.igamma_grad_a(a, x)


@op()
def Igammac(a: t.Op, x: t.Op) -> hk.XlaOp:
    """1 - Igamma."""
    return hk.igammac(a, x)


@op()
def RandomGammaGrad(a: t.Op, x: t.Op) -> hk.XlaOp:
    """The derivative of a sample of the gamma distribution by its shape."""
    return hk.random_gamma_grad(a, x)


@op()
def RegularizedIncompleteBeta(a: t.Op, b: t.Op, x: t.Op) -> hk.XlaOp:
    """The regularized incomplete beta function."""
    return hk.regularized_incomplete_beta(a, b, x)


@op()
def Zeta(x: t.Op, q: t.Op) -> hk.XlaOp:
    """The Hurwitz zeta function."""
    return hk.zeta(x, q)
