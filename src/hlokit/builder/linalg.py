"""Linear algebra, Fourier transforms, random numbers and sorting: cholesky, fft, rng_uniform, sort, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.builder.core import Builder, ComputationLike, XlaOp, as_shape, checks_as, computation_of, emit, handles
from hlokit.errors import ShapeError
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import check
from hlokit.ops.comparison import Compare
from hlokit.ops.fourier import Fft
from hlokit.ops.linalg import TRANSPOSES, Cholesky, TriangularSolve
from hlokit.ops.random import Rng, RngBitGenerator
from hlokit.ops.sorting import Sort, TopK
from hlokit.types.dtype import DType, unsigned_of
from hlokit.types.integers import dims
from hlokit.types.shape import Shape

__all__ = [
    "cholesky",
    "create_scalar_gt_computation",
    "create_scalar_lt_computation",
    "fft",
    "rng_bit_generator",
    "rng_normal",
    "rng_uniform",
    "sort",
    "top_k",
    "triangular_solve",
]

_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")


def cholesky(a: XlaOp, lower: bool = True) -> XlaOp:
    """The Cholesky factor of each matrix in a: [..., n, n], of a's shape: a = l l^H, or a = u^H u unless `lower`.

    Only that triangle of a is read; the factor's other triangle is zero (CHOL rules). A matrix that is not Hermitian
    positive definite gives NaN.

    Parameters
    ----------
    a : XlaOp
        Hermitian positive definite matrices, [..., n, n], floating or complex.
    lower : bool, optional
        Whether the lower triangle is read and the factor is lower triangular; else the upper.

    Returns
    -------
    XlaOp
        The factors, of the shape and element type of `a`.

    Raises
    ------
    ShapeError
        A constraint does not hold: CHOL-2 to CHOL-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.cholesky(b.constant([[4.0, 2.0], [2.0, 5.0]]))))
    array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    return emit(Cholesky(lower), a)


@checks_as("triangular-solve")
def triangular_solve(a: XlaOp, b: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> XlaOp:
    """x, of b's shape, with op(a) x = b (`left_side`) or x op(a) = b, for triangular a: [..., m, m] (TRISOLVE rules).

    `lower` says which triangle of a is read; with `unit_diagonal` its diagonal is taken to be ones; `transpose_a` is
    NO_TRANSPOSE, TRANSPOSE or ADJOINT. b is [..., m, k], or [..., k, m] on the right side.

    Parameters
    ----------
    a : XlaOp
        Triangular matrices, [..., m, m], floating or complex.
    b : XlaOp
        Right-hand sides of the element type of `a`: [..., m, k], or [..., k, m] unless `left_side`.
    left_side : bool
        Whether op(a) x = b is solved; else x op(a) = b.
    lower : bool
        Whether the lower triangle of `a` is read; else the upper.
    unit_diagonal : bool
        Whether ones are taken in place of the diagonal of `a`.
    transpose_a : str
        op: "NO_TRANSPOSE", "TRANSPOSE" or "ADJOINT".

    Returns
    -------
    XlaOp
        An array of the shape of `b`.

    Raises
    ------
    ShapeError
        A constraint does not hold: TRISOLVE-3 to TRISOLVE-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.triangular_solve(
    ...     b.constant([[2.0, 0.0], [1.0, 4.0]]), b.constant([[2.0], [9.0]]), True, True, False, "NO_TRANSPOSE"
    ... )
    >>> hk.evaluate(b.build(result))
    array([[1.],
           [2.]], dtype=float32)
    """
    check(transpose_a in TRANSPOSES, "TRISOLVE-8", "transpose_a", transpose_a, "one of " + " ".join(TRANSPOSES))
    return emit(TriangularSolve(left_side, lower, unit_diagonal, transpose_a), a, b)


@checks_as("fft")
def fft(operand: XlaOp, fft_type: str, fft_length: Sequence[int]) -> XlaOp:
    """The Fourier transform over the last len(fft_length) dimensions, 1 to 3 of them (FFT rules).

    `fft_type`: FFT, IFFT (complex to complex), RFFT (real to the first half of the spectrum), IRFFT (back).
    `fft_length`: the sizes in the real or full domain.

    Parameters
    ----------
    operand : XlaOp
        An array: complex for FFT, IFFT and IRFFT, real floating for RFFT.
    fft_type : str
        "FFT", "IFFT", "RFFT" or "IRFFT".
    fft_length : sequence of int
        The sizes of the last 1 to 3 dimensions, in the real or full domain.

    Returns
    -------
    XlaOp
        The transform: for RFFT the last dimension has fft_length[-1] // 2 + 1 elements, for IRFFT fft_length[-1].

    Raises
    ------
    ShapeError
        A constraint does not hold: FFT-1 to FFT-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.fft(b.constant([1 + 0j, 0j, 0j, 0j]), "FFT", [4])))
    array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return emit(Fft(fft_type, dims(fft_length, "fft_length")), operand)


def rng_normal(mu: Any, sigma: Any, shape: Shape | DType) -> XlaOp:
    """`shape` of normally distributed numbers of mean mu and deviation sigma, two scalars of its type (RNG rules).

    Parameters
    ----------
    mu : XlaOp, number or array
        The mean, a scalar of the result's element type.
    sigma : XlaOp, number or array
        The standard deviation, a scalar of the same type.

    Returns
    -------
    XlaOp
        An array of `shape`.

    Raises
    ------
    ShapeError
        A constraint does not hold: RNG-2, RNG-3, RNG-10.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.rng_normal(b.constant(0.0), b.constant(1.0), hk.f32[3]))
    >>> hk.evaluate(module, seed=0).shape
    (3,)
    """
    return _rng("rng_normal", mu, sigma, shape)


def rng_uniform(a: Any, b: Any, shape: Shape | DType) -> XlaOp:
    """`shape` of numbers uniform in [a, b), two scalars of its type (RNG rules).

    Parameters
    ----------
    a : XlaOp, number or array
        The smallest number, a scalar of the result's element type.
    b : XlaOp, number or array
        The exclusive upper bound of the numbers, a scalar of the same type.

    Returns
    -------
    XlaOp
        An array of `shape`.

    Raises
    ------
    ShapeError
        A constraint does not hold: RNG-2, RNG-4, RNG-10.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.rng_uniform(b.constant(0.0), b.constant(1.0), hk.f32[3]))
    >>> drawn = hk.evaluate(module, seed=0)
    >>> bool((0 <= drawn).all() and (drawn < 1).all())
    True
    """
    return _rng("rng_uniform", a, b, shape)


def _rng(distribution: str, first: Any, second: Any, shape: Shape | DType) -> XlaOp:
    return emit(Rng(distribution, as_shape(shape)), first, second)


@checks_as("rng-bit-generator")
def rng_bit_generator(algorithm: str, initial_state: XlaOp, shape: Shape | DType) -> XlaOp:
    """The tuple (new state, random bits in `shape` with its element type made unsigned) (RBG rules).

    `algorithm`: rng_default, rng_three_fry (u64[2] state) or rng_philox (u64[3] or u64[2] state), in either case of
    letters.

    Parameters
    ----------
    algorithm : str
        rng_default, rng_three_fry or rng_philox, in either case of letters.
    initial_state : XlaOp
        The state: u64[2] for ThreeFry, u64[3] or u64[2] for Philox.

    Returns
    -------
    XlaOp
        The tuple (new state, bits).

    Raises
    ------
    ShapeError
        A constraint does not hold: RBG-5, RBG-6, RBG-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> state, bits = hk.rng_bit_generator("RNG_THREE_FRY", b.constant([1, 0], hk.u64), hk.u32[2])
    >>> hk.evaluate(b.build(bits))
    array([3023415290, 2531993477], dtype=uint32)
    """
    name = algorithm.lower()
    check(name in _ALGORITHMS, "RBG-7", "algorithm", algorithm, "one of " + " ".join(_ALGORITHMS))
    data = as_shape(shape)
    unsigned = unsigned_of(data.dtype.bits) if data.is_array else None
    if unsigned is None:
        raise ShapeError("RBG-2", "shape", data, "an array of elements as wide as an unsigned integer")
    return emit(RngBitGenerator(name, Shape.tuple((initial_state.shape, data.with_dtype(unsigned)))), initial_state)


@checks_as("sort")
def sort(
    operands: XlaOp | Sequence[XlaOp],
    comparator: ComputationLike | None = None,
    dimension: int = -1,
    is_stable: bool = False,
) -> XlaOp:
    """Sorts all operands along `dimension` (-1: the last) in the same way, by the comparator (SORT rules).

    The comparator takes (a0, b0, a1, b1, ...), the elements of each operand at two positions, and returns whether the
    elements at the first position come first. Without one, operand 0 is sorted in ascending total order. Equal elements
    keep their order. The result has the operand's shape, or is a tuple of the operands' shapes if there are several.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        An array, or several of the same dimensions.
    comparator : Computation, HloModule or callable, optional
        Takes (a0, b0, a1, b1, ...), the elements of each operand at two positions, to pred[]: whether the elements at
        the first position come first. By default operand 0 is sorted in ascending total order.
    dimension : int, optional
        The dimension that is sorted along; -1: the last.
    is_stable : bool, optional
        Whether equal elements must keep their order; in hlokit they always do.

    Returns
    -------
    XlaOp
        An array of the operand's shape; a tuple for several operands.

    Raises
    ------
    ShapeError
        A constraint does not hold: SORT-2 to SORT-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sort(b.constant([3, 1, 2]), lambda x, y: x > y)))
    array([3, 2, 1], dtype=int32)
    """
    listed = (operands,) if isinstance(operands, XlaOp) else tuple(operands)
    check(len(listed) > 0, "SORT-2", "operands", 0, "at least one")
    values = handles(*listed)
    types = [v.dtype for v in values]
    if comparator is None:
        called = create_scalar_lt_computation(types)
    else:
        called = computation_of(comparator, [t[()] for t in types for _ in range(2)], values[0].builder)
    axis = values[0].rank - 1 if dimension == -1 else dimension
    return emit(Sort(axis, is_stable), *values, called=(called,))


def top_k(operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
    """The tuple (k largest or smallest elements of each line of the last dimension, their s32 indices), in order.

    Elements are ordered by the total order, with NaN above all others, and equal elements by their index (BEY-38).

    Parameters
    ----------
    operand : XlaOp
        A real array of rank 1 at least.
    k : int
        The number of elements that are kept, at most the size of the last dimension.
    largest : bool, optional
        Whether the largest are kept; else the smallest.

    Returns
    -------
    XlaOp
        The tuple (values, indices): the operand's dimensions with k in place of the last; indices are s32.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-36, BEY-37.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.top_k(b.constant([3.0, 9.0, 5.0]), 2)))
    (array([9., 5.], dtype=float32), array([1, 2], dtype=int32))
    """
    return emit(TopK(k, largest), operand)


def create_scalar_lt_computation(operand_types: Sequence[DType]) -> Computation:
    """The comparator by which sort puts operand 0 in ascending order, floats in the total order (BEY-39).

    Parameters
    ----------
    operand_types : sequence of DType
        The element types of the operands that are sorted together.

    Returns
    -------
    Computation
        A comparator for `sort`.

    Raises
    ------
    ShapeError
        There are no types, or one is not an array's (BEY-39).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sort(b.constant([3.0, 1.0, 2.0]), hk.create_scalar_lt_computation([hk.f32]))))
    array([1., 2., 3.], dtype=float32)
    """
    return _comparator("compare-less-than", "LT", operand_types)


def create_scalar_gt_computation(operand_types: Sequence[DType]) -> Computation:
    """The comparator by which sort puts operand 0 in descending order, floats in the total order (BEY-39).

    Parameters
    ----------
    operand_types : sequence of DType
        The element types of the operands that are sorted together.

    Returns
    -------
    Computation
        A comparator for `sort`.

    Raises
    ------
    ShapeError
        There are no types, or one is not an array's (BEY-39).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sort(b.constant([3.0, 1.0, 2.0]), hk.create_scalar_gt_computation([hk.f32]))))
    array([3., 2., 1.], dtype=float32)
    """
    return _comparator("compare-greater-than", "GT", operand_types)


def _comparator(name: str, direction: str, operand_types: Sequence[DType]) -> Computation:
    check(len(operand_types) > 0, "BEY-39", "operand_types", "none", "one for each operand of the sort")
    builder = Builder(name, source_info=False)
    for number, element_type in enumerate(t for t in operand_types for _ in range(2)):
        builder.parameter(number, element_type[()], f"p.{number // 2}.{'rhs' if number % 2 else 'lhs'}")
    lhs, rhs = (XlaOp(builder, p) for p in builder.computation.parameters[:2])
    comparison = Compare(direction, "TOTALORDER" if operand_types[0].is_floating else None, None)
    return builder.build_computation(emit(comparison, lhs, rhs))
