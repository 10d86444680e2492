"""Builder functions: dot, ragged-dot, scaled-dot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hlokit.builder.core import XlaOp, emit, handles
from hlokit.builder.reduction import made
from hlokit.hlo.op import Op, infer_shape
from hlokit.ops.contraction import Dot, ScaledDot, check_equal_types
from hlokit.ops.ragged_dot import RaggedDot
from hlokit.types.dimension_numbers import DotDimensionNumbers, RaggedDotDimensionNumbers
from hlokit.types.dtype import DType, dtype, f32

__all__ = ["dot", "dot_general", "ragged_dot", "scaled_dot"]
_Dims: TypeAlias = tuple[int, ...]
PrecisionConfig: TypeAlias = "Sequence[str] | str | None"
"""default, high, highest or packed_nibble, in either case: one for each operand, or one for all."""


def dot(
    lhs: XlaOp,
    rhs: Any,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
    *,
    algorithm: str | None = None,
) -> XlaOp:
    """Sum of products over lhs dimension 1 (0 for a vector) and rhs dimension 0: [m,k] . [k,n] -> [m,n].

    Rules DOT, DOTG.

    Parameters
    ----------
    lhs : XlaOp
        A vector [k] or matrix [m, k].
    rhs : XlaOp, number or array
        A vector [k] or matrix [k, n], of the element type of `lhs`.

    Returns
    -------
    XlaOp
        [m, n], without m where `lhs` is a vector and without n where `rhs` is.

    Raises
    ------
    ShapeError
        A constraint does not hold: DOT-3, DOT-5, DOTG-3 to DOTG-8, DOTG-13, DOTG-23.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.dot(b.constant([[1, 2], [3, 4]]), b.constant([10, 1]))))
    array([12, 34], dtype=int32)
    """
    contracting = (0,) if lhs.rank <= 1 else (1,)
    return dot_general(
        lhs,
        rhs,
        DotDimensionNumbers(contracting, (0,)),
        precision_config,
        preferred_element_type,
        algorithm=algorithm,
    )


def dot_general(
    lhs: XlaOp,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers | Any,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
    *,
    algorithm: str | None = None,
) -> XlaOp:
    """The sum of products over paired contracting dimensions, for each index of the paired batch dimensions.

    Rules DOTG.

    Parameters
    ----------
    lhs : XlaOp
        An array.
    rhs : XlaOp, number or array
        An array; its contracting and batch dimensions have the sizes of those of `lhs` that they are paired with.
    dimension_numbers : DotDimensionNumbers, tuple, mapping or object with its fields
        The pairs of contracting and of batch dimensions. A tuple is ((lhs contracting, rhs contracting), (lhs batch,
        rhs batch)), as JAX writes them.

    Returns
    -------
    XlaOp
        An array of the batch dimensions, the remaining dimensions of `lhs` and those of `rhs`, in this order.

    Raises
    ------
    ShapeError
        A constraint does not hold: DOTG-3 to DOTG-8, DOTG-13, DOTG-23.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, y = b.constant([[1, 2], [3, 4]]), b.constant([[1, 1], [0, 10]])
    >>> numbers = hk.DotDimensionNumbers([1], [1], [0], [0])  # contracting, then batch
    >>> hk.evaluate(b.build(hk.dot_general(x, y, numbers)))
    array([ 3, 40], dtype=int32)
    """
    lhs, rhs = handles(lhs, rhs)
    numbers = made(DotDimensionNumbers.of, "dot", (lhs, rhs), dimension_numbers)
    draft = Dot(
        *_lists(numbers),
        precisions(precision_config, 2),
        algorithm,
        result_type("dot", lhs, rhs, preferred_element_type)[()],
    )
    return emit_typed(draft, lhs, rhs)


def ragged_dot(
    lhs: XlaOp,
    rhs: Any,
    group_sizes: Any,
    dimension_numbers: RaggedDotDimensionNumbers | Any,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """`dot_general` in groups: `group_sizes` divides one dimension of lhs into consecutive ranges (BEY-42, BEY-43).

    Parameters
    ----------
    lhs : XlaOp
        An array, e.g. [m, k].
    rhs : XlaOp, number or array
        An array of the element type of `lhs`: [g, k, n] where the ragged dimension is free, [k, n] where it is
        contracted.
    group_sizes : XlaOp, number or array
        The sizes of the ranges, [g], integers.
    dimension_numbers : RaggedDotDimensionNumbers, mapping or object with its fields
        The pairs of contracting and of batch dimensions, the ragged dimension of lhs, the group dimension of rhs.

    Returns
    -------
    XlaOp
        [m, n] where the ragged dimension is free, [g, m, n] where it is contracted.

    Raises
    ------
    ShapeError
        The operands and dimension numbers do not match: BEY-42, BEY-43, DOTG-3 to DOTG-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, sizes = b.constant([[1, 2], [3, 4], [5, 6]]), b.constant([1, 2])
    >>> y = b.constant([[[1], [1]], [[10], [10]]])
    >>> numbers = hk.RaggedDotDimensionNumbers(hk.DotDimensionNumbers([1], [1]), [0], [0])
    >>> hk.evaluate(b.build(hk.ragged_dot(x, y, sizes, numbers)))
    array([[  3],
           [ 70],
           [110]], dtype=int32)
    """
    lhs, rhs, group_sizes = handles(lhs, rhs, group_sizes)
    numbers = made(RaggedDotDimensionNumbers.of, "ragged-dot", (lhs, rhs, group_sizes), dimension_numbers)
    draft = RaggedDot(
        *_lists(numbers.dot_dimension_numbers),
        tuple(numbers.lhs_ragged_dimensions),
        tuple(numbers.rhs_group_dimensions),
        precisions(precision_config, 2),
        None,
        result_type("ragged-dot", lhs, rhs, preferred_element_type)[()],
    )
    return emit_typed(draft, lhs, rhs, group_sizes)


def scaled_dot(
    lhs: XlaOp,
    rhs: Any,
    lhs_scale: Any,
    rhs_scale: Any,
    dimension_numbers: DotDimensionNumbers | Any,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """`dot_general` of lhs * lhs_scale and rhs * rhs_scale, where each scale applies to a block (BEY-44).

    Parameters
    ----------
    lhs : XlaOp
        An array.
    rhs : XlaOp, number or array
        An array; its contracting and batch dimensions have the sizes of those of `lhs` that they are paired with.
    lhs_scale, rhs_scale : XlaOp, number or array
        The scales: of the rank of the operand, each dimension a divisor of the operand's.
    dimension_numbers : DotDimensionNumbers, tuple, mapping or object with its fields
        The pairs of contracting and of batch dimensions. A tuple is ((lhs contracting, rhs contracting), (lhs batch,
        rhs batch)), as JAX writes them.

    Returns
    -------
    XlaOp
        An array of the batch dimensions, the remaining dimensions of `lhs` and those of `rhs`, in this order.

    Raises
    ------
    ShapeError
        The operands and dimension numbers do not match: BEY-44, DOTG-3 to DOTG-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.constant([[1.0, 2.0, 3.0, 4.0]], hk.f8e4m3fn)
    >>> y = b.constant([[1.0], [1.0], [1.0], [1.0]], hk.f8e4m3fn)
    >>> scales = b.constant([[2.0, 0.5]], hk.f8e8m0fnu), b.constant([[1.0], [4.0]], hk.f8e8m0fnu)
    >>> numbers = hk.DotDimensionNumbers([1], [0])
    >>> hk.evaluate(b.build(hk.scaled_dot(x, y, *scales, numbers, preferred_element_type=hk.f32)))
    array([[20.]], dtype=float32)
    """
    lhs, rhs, lhs_scale, rhs_scale = handles(lhs, rhs, lhs_scale, rhs_scale)
    numbers = made(DotDimensionNumbers.of, "scaled-dot", (lhs, rhs, lhs_scale, rhs_scale), dimension_numbers)
    draft = ScaledDot(
        *_lists(numbers),
        precisions(precision_config, 2),
        None,
        result_type("scaled-dot", lhs, rhs, preferred_element_type)[()],
    )
    return emit_typed(draft, lhs, rhs, lhs_scale, rhs_scale)


def emit_typed(draft: Op, *operands: XlaOp) -> XlaOp:
    """Emits an op whose `output_shape` so far holds only the element type: the rest follows from the operands."""
    shape = made(infer_shape, draft.opcode, operands, draft, [o.shape for o in operands])
    return emit(draft.replace(output_shape=shape), *operands)


def _lists(numbers: DotDimensionNumbers) -> tuple[_Dims, _Dims, _Dims, _Dims]:
    """The numbers in the order of the ops' attributes."""
    return (
        tuple(numbers.lhs_batch_dimensions),
        tuple(numbers.lhs_contracting_dimensions),
        tuple(numbers.rhs_batch_dimensions),
        tuple(numbers.rhs_contracting_dimensions),
    )


def result_type(
    opcode: str, lhs: XlaOp, rhs: XlaOp, preferred: DType | None, label: str = "DOTG-16"
) -> DType:
    """The preferred element type, or that of both operands (DOTG-12); any array type for operands that have none.

    Raises ShapeError with the label for operands of two types and no preferred one.
    """
    if preferred is not None:
        return dtype(preferred)
    if not (lhs.shape.is_array and rhs.shape.is_array):
        return f32
    made(check_equal_types, opcode, (lhs, rhs), lhs.shape, rhs.shape, label)
    return lhs.dtype


def precisions(config: PrecisionConfig, count: int) -> tuple[str, ...]:
    """One precision for each operand; none means default."""
    if config is None:
        return ()
    return (config,) * count if isinstance(config, str) else tuple(config)
