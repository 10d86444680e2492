"""Functions of matrices, the last two dimensions of arrays (xla/hlo/builder/lib/matrix.h, BEY-80)."""

from __future__ import annotations

from builtins import max as larger
from builtins import min as smaller

from hlokit.builder.broadcasting import scalar_to
from hlokit.builder.constants import zeros_like
from hlokit.builder.contraction import PrecisionConfig, dot_general
from hlokit.builder.core import Builder, XlaOp, handles
from hlokit.builder.domain import reject
from hlokit.builder.elementwise import add, complex, conj, convert_element_type, eq, ge, real, select
from hlokit.builder.indexing import gather
from hlokit.builder.movement import broadcast_in_dim, concat_in_dim, iota, pad, transpose
from hlokit.types import dtype as dtypes
from hlokit.types.dimension_numbers import DotDimensionNumbers, GatherDimensionNumbers
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

__all__ = [
    "batch_dot",
    "diagonal_matrix",
    "get_diagonal_mask",
    "get_matrix_diagonal",
    "identity_matrix",
    "lower_triangle",
    "maybe_transpose_in_minor_dims",
    "set_matrix_diagonal",
    "symmetrize",
    "transpose_in_minor_dims",
    "triangle",
    "triangle_mask",
    "upper_triangle",
]


def identity_matrix(builder: Builder, dtype: DType, m: int, n: int) -> XlaOp:
    """dtype[m, n] with ones on the main diagonal, zeros elsewhere (BEY-80).

    Parameters
    ----------
    m, n : int
        The numbers of rows and columns.

    Returns
    -------
    XlaOp
        [m, n], of element type `dtype`.

    Raises
    ------
    ShapeError
        `dtype` is not an array's element type (CONV-TYPE-2).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.identity_matrix(b, hk.s32, 2, 3)))
    array([[1, 0, 0],
           [0, 1, 0]], dtype=int32)
    """
    shape = dtypes.s32[m, n]
    return convert_element_type(eq(iota(builder, shape, 0), iota(builder, shape, 1)), dtype)


def get_diagonal_mask(x: XlaOp, diagonal: int = 0) -> XlaOp:
    """pred[..., m, n]: whether column - row is `diagonal`.

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].
    diagonal : int, optional
        The diagonal: column - row.

    Returns
    -------
    XlaOp
        pred[..., m, n].

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.get_diagonal_mask(b.constant([[1, 2, 3], [4, 5, 6]]), 1)))
    array([[False,  True, False],
           [False, False,  True]])
    """
    row, column = _row_and_column("get_diagonal_mask", x)
    return eq(column, _shifted(row, diagonal))


def triangle_mask(x: XlaOp, diagonal: int) -> XlaOp:
    """pred[..., m, n]: whether column - row is at most `diagonal`.

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].
    diagonal : int
        The last diagonal that belongs to the triangle: column - row.

    Returns
    -------
    XlaOp
        pred[..., m, n].

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.triangle_mask(b.constant([[1, 2], [3, 4]]), 0)))
    array([[ True, False],
           [ True,  True]])
    """
    row, column = _row_and_column("triangle_mask", x)
    return ge(_shifted(row, diagonal), column)


def triangle(x: XlaOp, lower: bool) -> XlaOp:
    """x[..., m, n] with zeros above the main diagonal (`lower`) or below it.

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].
    lower : bool
        Whether the lower triangle is kept; else the upper.

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.triangle(b.constant([[1, 2], [3, 4]]), False)))
    array([[1, 2],
           [0, 4]], dtype=int32)
    """
    if lower:
        return select(triangle_mask(x, 0), x, zeros_like(x))
    return select(triangle_mask(x, -1), zeros_like(x), x)


def upper_triangle(x: XlaOp) -> XlaOp:
    """x[..., m, n] with zeros below the main diagonal (BEY-80).

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        The rank of `x` is below 2 (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.upper_triangle(b.constant([[1, 2], [3, 4]]))))
    array([[1, 2],
           [0, 4]], dtype=int32)
    """
    return triangle(x, lower=False)


def lower_triangle(x: XlaOp) -> XlaOp:
    """x[..., m, n] with zeros above the main diagonal (BEY-80).

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        The rank of `x` is below 2 (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.lower_triangle(b.constant([[1, 2], [3, 4]]))))
    array([[1, 0],
           [3, 4]], dtype=int32)
    """
    return triangle(x, lower=True)


def symmetrize(x: XlaOp, lower: bool = True) -> XlaOp:
    """The symmetric (complex: Hermitian) matrices that have x's lower or upper triangle; x: [..., n, n] (BEY-80).

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., n, n].
    lower : bool, optional
        Whether the lower triangle is kept; else the upper.

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        `x` is not of square matrices (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.symmetrize(b.constant([[1, 9], [2, 3]]))))
    array([[1, 2],
           [2, 3]], dtype=int32)
    """
    if x.rank < 2 or x.shape.dimensions[-1] != x.shape.dimensions[-2]:
        raise reject("BEY-80", "symmetrize", "operand", "square matrices", x)
    mirrored = transpose_in_minor_dims(x)
    diagonal = x
    if x.dtype.is_complex:
        mirrored, diagonal = conj(mirrored), complex(real(x), zeros_like(real(x)))
    kept = select(get_diagonal_mask(x), diagonal, x)
    mask = triangle_mask(x, 0 if lower else -1)
    return select(mask, kept, mirrored) if lower else select(mask, mirrored, kept)


def get_matrix_diagonal(x: XlaOp, k: int = 0) -> XlaOp:
    """The k-th diagonal of x[..., m, n], [..., d] where d = min(m + min(k, 0), n - max(k, 0)).

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].
    k : int, optional
        The diagonal: column - row.

    Returns
    -------
    XlaOp
        [..., d].

    Raises
    ------
    ShapeError
        The rank of `x` is below 2, or there is no such diagonal (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.get_matrix_diagonal(b.constant([[1, 2, 3], [4, 5, 6]]), 1)))
    array([2, 6], dtype=int32)
    """
    size = _diagonal_size("get_matrix_diagonal", x, k)
    batch = x.shape.dimensions[:-2]
    numbers = iota(x.builder, dtypes.s32[size, 1], 0)
    indices = concat_in_dim([_shifted(numbers, -smaller(k, 0)), _shifted(numbers, larger(k, 0))], 1)
    return gather(
        x,
        indices,
        GatherDimensionNumbers(
            offset_dims=range(len(batch)),
            collapsed_slice_dims=(x.rank - 2, x.rank - 1),
            start_index_map=(x.rank - 2, x.rank - 1),
            index_vector_dim=1,
        ),
        (*batch, 1, 1),
    )


def set_matrix_diagonal(matrix: XlaOp, diagonal: XlaOp, k: int = 0) -> XlaOp:
    """matrix[..., m, n] with `diagonal`, [..., d], as its k-th diagonal (see get_matrix_diagonal).

    Parameters
    ----------
    matrix : XlaOp
        Matrices, [..., m, n].
    diagonal : XlaOp
        The new diagonals, [..., d] as get_matrix_diagonal gives them, of the element type of `matrix`.
    k : int, optional
        The diagonal: column - row.

    Returns
    -------
    XlaOp
        An array of the shape of `matrix`.

    Raises
    ------
    ShapeError
        The diagonal has another type or size, or there is no such diagonal (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.set_matrix_diagonal(b.constant([[1, 2], [3, 4]]), b.constant([7, 8]))))
    array([[7, 2],
           [3, 8]], dtype=int32)
    """
    matrix, diagonal = handles(matrix, diagonal)
    size = _diagonal_size("set_matrix_diagonal", matrix, k)
    *batch, m, _ = matrix.shape.dimensions
    if diagonal.shape.static is not Shape.array(matrix.dtype, (*batch, size)):
        raise reject("BEY-80", "set_matrix_diagonal", "operands", f"a diagonal of size {size}", matrix, diagonal)
    low = -smaller(k, 0)
    padding = [(0, 0, 0)] * len(batch) + [(low, m - size - low, 0)]
    column = pad(diagonal, matrix.builder.constant_r0(0, matrix.dtype), padding)
    spread = broadcast_in_dim(column, matrix.shape.dimensions, range(matrix.rank - 1))
    return select(get_diagonal_mask(matrix, k), spread, matrix)


def diagonal_matrix(diagonal: XlaOp) -> XlaOp:
    """[..., n, n] with `diagonal`, [..., n], as the main diagonal and zeros elsewhere (BEY-80).

    Parameters
    ----------
    diagonal : XlaOp
        The diagonals, [..., n].

    Returns
    -------
    XlaOp
        [..., n, n], of the element type of `diagonal`.

    Raises
    ------
    ShapeError
        `diagonal` is a scalar (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.diagonal_matrix(b.constant([1, 2]))))
    array([[1, 0],
           [0, 2]], dtype=int32)
    """
    sizes = diagonal.shape.dimensions
    if not sizes:
        raise reject("BEY-80", "diagonal_matrix", "operand", "rank 1 at least", diagonal)
    zeros = scalar_to(diagonal.builder.constant_r0(0, diagonal.dtype), (*sizes, sizes[-1]))
    return set_matrix_diagonal(zeros, diagonal)


def transpose_in_minor_dims(x: XlaOp) -> XlaOp:
    """x[..., m, n] as [..., n, m].

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    XlaOp
        [..., n, m].

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.transpose_in_minor_dims(b.constant([[1, 2, 3], [4, 5, 6]]))))
    array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int32)
    """
    _check_matrices("transpose_in_minor_dims", x)
    return transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def maybe_transpose_in_minor_dims(x: XlaOp, transpose: bool) -> XlaOp:
    """transpose_in_minor_dims(x) if `transpose`, else x (BEY-80).

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, n].
    transpose : bool
        Whether to transpose.

    Returns
    -------
    XlaOp
        [..., n, m], or `x`.

    Raises
    ------
    ShapeError
        The rank of `x` is below 2 (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.maybe_transpose_in_minor_dims(b.constant([[1, 2, 3]]), True)))
    array([[1],
           [2],
           [3]], dtype=int32)
    """
    return transpose_in_minor_dims(x) if transpose else x


def batch_dot(
    x: XlaOp,
    y: XlaOp,
    transpose_x: bool = False,
    transpose_y: bool = False,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """Products of the matrices x[..., m, k] and y[..., k, n], [..., m, n]; either may be given transposed.

    The dimensions before the last two are equal.

    Parameters
    ----------
    x : XlaOp
        Matrices, [..., m, k] ([..., k, m] with `transpose_x`).
    y : XlaOp
        Matrices, [..., k, n] ([..., n, k] with `transpose_y`), of the rank, leading dimensions and element type of `x`.
    transpose_x, transpose_y : bool, optional
        Whether the last two dimensions of the operand are exchanged.

    Returns
    -------
    XlaOp
        The products, [..., m, n].

    Raises
    ------
    ShapeError
        The operands do not match: BEY-80, DOTG-3 to DOTG-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.batch_dot(
    ...     b.constant([[[1.0, 2.0]], [[3.0, 4.0]]]), b.constant([[[1.0], [1.0]], [[1.0], [0.0]]])
    ... )
    >>> hk.evaluate(b.build(result))
    array([[[3.]],
    <BLANKLINE>
           [[3.]]], dtype=float32)
    """
    if x.rank < 2 or x.rank != y.rank:
        raise reject("BEY-80", "batch_dot", "operands", "one rank of 2 or more", x, y)
    batch = tuple(range(x.rank - 2))
    return dot_general(
        x,
        y,
        DotDimensionNumbers(
            (x.rank - 2 if transpose_x else x.rank - 1,), (x.rank - 1 if transpose_y else x.rank - 2,), batch, batch
        ),
        precision_config,
        preferred_element_type,
    )


def _check_matrices(function: str, x: XlaOp) -> None:
    if x.rank < 2:
        raise reject("BEY-80", function, "operand", "rank 2 at least", x)


def _row_and_column(function: str, x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """s32[..., m, n] of row numbers and of column numbers."""
    _check_matrices(function, x)
    shape = Shape.array(dtypes.s32, x.shape.dimensions)
    return iota(x.builder, shape, x.rank - 2), iota(x.builder, shape, x.rank - 1)


def _shifted(numbers: XlaOp, offset: int) -> XlaOp:
    return add(numbers, offset) if offset else numbers


def _diagonal_size(function: str, x: XlaOp, k: int) -> int:
    _check_matrices(function, x)
    m, n = x.shape.dimensions[-2:]
    size = smaller(m + smaller(k, 0), n - larger(k, 0))
    if size < 0:
        raise reject("BEY-80", function, "operand", f"matrices with a diagonal {k}", x)
    return size
