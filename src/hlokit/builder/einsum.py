"""Sums of products in Einstein's notation (xla/hlo/builder/lib/matrix.h, BEY-80)."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.builder.constants import zero
from hlokit.builder.contraction import PrecisionConfig, dot_general
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import reject
from hlokit.builder.elementwise import add
from hlokit.builder.matrix import get_matrix_diagonal
from hlokit.builder.movement import transpose
from hlokit.builder.reduction import reduce
from hlokit.errors import BuildError
from hlokit.types.dimension_numbers import DotDimensionNumbers
from hlokit.types.dtype import DType

__all__ = ["einsum", "parse_einsum_string"]

_ELLIPSIS = "..."


def einsum(
    x: XlaOp,
    y: XlaOp,
    einsum_config: str,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """For "ab,bc->ac", the sum of x[a,b] y[b,c] over the labels that the result does not have.

    A label that an operand has twice stands for its diagonal; "..." for dimensions without labels, paired from the
    right. Dimensions of one label have one size.

    Parameters
    ----------
    x, y : XlaOp
        The operands, of one element type. Dimensions of one label have one size.
    einsum_config : str
        "labels,labels->labels", a letter for each dimension.

    Returns
    -------
    XlaOp
        An array with a dimension for each label after "->".

    Raises
    ------
    ShapeError
        For a text that does not fit the operands (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.einsum(b.constant([[1, 2], [3, 4]]), b.constant([[1, 0], [0, 10]]), "ab,bc->ac")
    >>> hk.evaluate(b.build(result))
    array([[ 1, 20],
           [ 3, 40]], dtype=int32)
    """
    x_labels, y_labels, out_labels = parse_einsum_string(einsum_config, x, y)
    x, x_labels = _diagonals_taken(x, x_labels)
    y, y_labels = _diagonals_taken(y, y_labels)
    x, x_labels = _summed(x, x_labels, set(y_labels) | set(out_labels))
    y, y_labels = _summed(y, y_labels, set(x_labels) | set(out_labels))
    _check_sizes(x, x_labels, y, y_labels)
    batch = [label for label in x_labels if label in y_labels and label in out_labels]
    contracted = [label for label in x_labels if label in y_labels and label not in out_labels]
    product = dot_general(
        x,
        y,
        DotDimensionNumbers(
            [x_labels.index(c) for c in contracted],
            [y_labels.index(c) for c in contracted],
            [x_labels.index(b) for b in batch],
            [y_labels.index(b) for b in batch],
        ),
        precision_config,
        preferred_element_type,
    )
    paired = {*batch, *contracted}
    made = [*batch, *(c for c in x_labels if c not in paired), *(c for c in y_labels if c not in paired)]
    order = [made.index(label) for label in out_labels]
    return product if order == sorted(order) else transpose(product, order)


def parse_einsum_string(einsum_config: str, x: XlaOp, y: XlaOp) -> tuple[list[str], list[str], list[str]]:
    """The labels of x's dimensions, of y's and of the result's; dimensions of an ellipsis are called "-1", "-2", ...

    Parameters
    ----------
    einsum_config : str
        "labels,labels->labels", a letter for each dimension.
    x, y : XlaOp
        The operands.

    Returns
    -------
    tuple of list of str
        The labels of the dimensions of `x`, of `y` and of the result.

    Raises
    ------
    ShapeError
        For a text that is not "labels,labels->labels" or does not fit the ranks (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.parse_einsum_string("ab,bc->ac", b.constant([[1.0]]), b.constant([[1.0]]))
    (['a', 'b'], ['b', 'c'], ['a', 'c'])
    """
    if not isinstance(einsum_config, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError("einsum(x, y, einsum_config): the text comes after the operands", "BEY-80")
    text = einsum_config.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    parts = inputs.split(",")
    if not arrow or len(parts) != 2:
        raise reject("BEY-80", "einsum", f"einsum_config {einsum_config!r} of operands", "labels,labels->labels", x, y)
    x_labels = _labels(parts[0], x.rank)
    y_labels = _labels(parts[1], y.rank)
    named = len(output.replace(_ELLIPSIS, ""))
    unnamed = max(_count_unnamed(x_labels), _count_unnamed(y_labels)) if _ELLIPSIS in output else 0
    out_labels = _labels(output, named + unnamed)
    if x_labels is None or y_labels is None or out_labels is None:
        raise reject("BEY-80", "einsum", f"einsum_config {einsum_config!r} of operands", "a label per dimension", x, y)
    if len(set(out_labels)) != len(out_labels) or not set(out_labels) <= {*x_labels, *y_labels}:
        expected = "different labels of the operands in the result"
        raise reject("BEY-80", "einsum", f"einsum_config {einsum_config!r} of operands", expected, x, y)
    return x_labels, y_labels, out_labels


def _count_unnamed(labels: Sequence[str] | None) -> int:
    return sum(label.startswith("-") for label in labels or ())


def _labels(text: str, rank: int) -> list[str] | None:
    """A label for each of `rank` dimensions, or None if the text does not give them."""
    before, ellipsis, after = text.partition(_ELLIPSIS)
    count = rank - len(before) - len(after)
    if (not (before + after).isalpha() and before + after) or count < 0 or (count > 0 and not ellipsis):
        return None
    return [*before, *(f"-{count - i}" for i in range(count)), *after]


def _diagonals_taken(operand: XlaOp, labels: list[str]) -> tuple[XlaOp, list[str]]:
    """The operand with each label once: two dimensions of one label become their diagonal."""
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    while repeated is not None:
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        if operand.shape.dimensions[first] != operand.shape.dimensions[second]:
            raise reject("BEY-80", "einsum", f"dimensions {repeated!r} of operand", "equal sizes", operand)
        others = [d for d in range(operand.rank) if d not in (first, second)]
        operand = get_matrix_diagonal(transpose(operand, [*others, first, second]))
        labels = [*(labels[d] for d in others), repeated]
        repeated = next((label for label in labels if labels.count(label) > 1), None)
    return operand, labels


def _summed(operand: XlaOp, labels: list[str], kept: set[str]) -> tuple[XlaOp, list[str]]:
    """The operand summed over the dimensions whose labels occur nowhere else."""
    lost = [d for d, label in enumerate(labels) if label not in kept]
    if not lost:
        return operand, labels
    total = reduce(operand, zero(operand.builder, operand.dtype), add, lost)
    return total, [label for label in labels if label in kept]


def _check_sizes(x: XlaOp, x_labels: list[str], y: XlaOp, y_labels: list[str]) -> None:
    for label in x_labels:
        if label not in y_labels:
            continue
        if x.shape.dimensions[x_labels.index(label)] != y.shape.dimensions[y_labels.index(label)]:
            raise reject("BEY-80", "einsum", f"dimensions {label!r} of operands", "equal sizes", x, y)
