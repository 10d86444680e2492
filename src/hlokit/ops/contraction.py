"""Products of arrays: dot, ragged-dot, scaled-dot, and the arithmetic that they share with convolution."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np

from hlokit.forms.contraction import Contraction, ContractionDimension, Move
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.memory import require
from hlokit.ops.numerics import convert, narrow, widen
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Dims, Kind, Precision, ResultShape, choice
from hlokit.types.dtype import DType
from hlokit.types.shape import UNBOUNDED, Shape

_ALGORITHM = choice(
    "algorithm",
    *("dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum"),
    *("dot_f16_f16_f16", "dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32"),
    *("dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_bf16_bf16_f32_x9"),
    *("dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64"),
    *("dot_bf16_bf16_fp8x3", "dot_bf16_bf16_fp8x4"),
)

_OPTIONAL_ALGORITHM = Kind("algorithm", lambda value: value and _ALGORITHM.normal(value), _ALGORITHM.choices)
Algorithm: TypeAlias = Annotated[str | None, _OPTIONAL_ALGORITHM]
"""The algorithm of a product; None leaves it open. hlokit carries it and ignores it (BEY-41)."""

_EXACT_IN_F64 = 2.0**53

_BLAS_ALONE = 1 << 18
_BLOCK = 64
"""BLAS works alone on products of at most so many steps; blocks of 64 x 64 x 64 have just as many."""
_BLAS_BUFFER = 64 << 20
"""Bytes that OpenBLAS takes for itself at its first large product: 32 MB on a Zen 5."""
_FEW = 32
_SMALL = 1 << 15
"""Sums of so few products, in so few steps, are made in order."""


def check_result_type(operand: DType, result: DType) -> None:
    """DOTG-13: an integer or complex product is never narrower than its operands."""
    check(result.is_array, "DOTG-13", "preferred_element_type", result, "an array element type")
    if result is operand or operand.is_floating:
        return
    check(result.bits >= operand.bits, "DOTG-13", "preferred_element_type", result, f"at least {operand.bits} bits")
    if operand.is_complex:
        check(result.is_complex, "DOTG-13", "preferred_element_type", result, "a complex type")


def check_equal_types(lhs: Shape, rhs: Shape, label: str = "DOTG-16") -> None:
    """The operands of a product whose result type is not given, and those of other products than dot."""
    check(lhs.dtype is rhs.dtype, label, "element types", (lhs.dtype, rhs.dtype), "equal ones")


def check_precision(precision: tuple[str, ...], *counts: int) -> None:
    """HATTR-8: one entry per operand, or none."""
    if precision:
        check(len(precision) in counts, "HATTR-8", "operand_precision", precision, f"{counts} entries")


def agree(lhs: int, rhs: int) -> bool:
    """Whether two sizes can be equal when the program runs."""
    return lhs == rhs or UNBOUNDED in (lhs, rhs)


def compute_type(operand: DType, result: DType) -> np.dtype[Any]:
    """The type that products are accumulated in: integers wrap, narrow floats take f32 (DOTG-14, DOTG-17)."""
    if result.is_complex or operand.is_complex:
        return np.result_type(np.complex64, operand.numpy if operand.is_complex else np.float32, result.numpy)
    if operand.is_floating or result.is_floating:
        return np.dtype(np.float64 if dtypes.f64 in (operand, result) else np.float32)
    if result.kind == "pred":
        return np.dtype(np.float32)
    return np.dtype(np.uint64 if result is dtypes.u64 else np.int64)


def promoted_type(lhs: DType, rhs: DType, result: DType) -> DType:
    """The element type that both operands of a product are converted to if their types differ (DOTG-16)."""
    if result.is_integral and not (lhs.is_floating or rhs.is_floating or lhs.is_complex or rhs.is_complex):
        return result
    return dtypes.dtype(np.promote_types(compute_type(lhs, result), compute_type(rhs, result)))


def operands_in_wide(lhs: Array, rhs: Array, result: DType) -> tuple[Array, Array]:
    """Both operands of a product in the type of the computation."""
    left, right = dtypes.dtype(lhs.dtype), dtypes.dtype(rhs.dtype)
    wide = compute_type(left if left is right else promoted_type(left, right, result), result)
    return operand_in(lhs, wide), operand_in(rhs, wide)


def operand_in(array: Array, wide: np.dtype[Any]) -> Array:
    """An operand in the type of the computation."""
    if array.dtype == np.bool_:
        return array.astype(wide)
    return convert(widen(array), wide) if array.dtype != wide else array


def product(lhs: Array, rhs: Array) -> Array:
    """Matrix product over the last two dimensions, in the operands' type."""
    if lhs.size == 0 or rhs.size == 0:
        return np.matmul(lhs, rhs)
    if lhs.dtype.kind not in "iu":
        return _product_of_floats(lhs, rhs)
    largest = [float(max(abs(int(a.max())), abs(int(a.min())))) for a in (lhs, rhs)]
    if math.prod(largest) * lhs.shape[-1] < _EXACT_IN_F64:  # NumPy's integer product is naive: 100 times slower
        _reserve_blas_buffer()
        return np.matmul(lhs.astype(np.float64), rhs.astype(np.float64)).astype(lhs.dtype)
    return np.matmul(lhs, rhs)


def _product_of_floats(lhs: Array, rhs: Array) -> Array:
    """The same bits whatever the number of BLAS's threads, which cut large products differently.

    So BLAS gets blocks that it does not share out (OpenBLAS: below 2^18 steps), and no products with vectors. Nor do
    the bits depend on where the elements lie: NumPy sums what is broadcast before it multiplies.
    """
    lhs, rhs = np.ascontiguousarray(lhs), np.ascontiguousarray(rhs)
    (m, k), n = lhs.shape[-2:], rhs.shape[-1]
    if k <= _FEW and m * n * k <= _SMALL:
        return _in_order(lhs, rhs)
    if m == 1 or n == 1:
        return np.einsum("...ij,...jk->...ik", lhs, rhs)
    _reserve_blas_buffer()
    if m * n * k <= _BLAS_ALONE:
        return np.matmul(lhs, rhs)
    rows, columns = min(m, _BLOCK), min(n, _BLOCK)
    inner = _BLAS_ALONE // (rows * columns)
    result = np.zeros((*np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]), m, n), lhs.dtype)
    for i in range(0, m, rows):
        for j in range(0, n, columns):
            for c in range(0, k, inner):
                block = np.matmul(lhs[..., i : i + rows, c : c + inner], rhs[..., c : c + inner, j : j + columns])
                result[..., i : i + rows, j : j + columns] += block
    return result


@cache
def _reserve_blas_buffer() -> None:
    """Raises OutOfMemoryError if the process has no room for OpenBLAS's buffer, without which it is ended."""
    require(_BLAS_BUFFER, "the buffer of BLAS")


def _in_order(lhs: Array, rhs: Array) -> Array:
    """Products added one after the other, each rounded: the same bits on every processor, which BLAS and NumPy's
    complex products do not have, as they use fused operations where there are some."""
    shape = (*np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]), lhs.shape[-2], rhs.shape[-1])
    total = np.zeros(shape, lhs.dtype)
    with np.errstate(all="ignore"):
        for i in range(lhs.shape[-1]):
            a, b = lhs[..., :, i, None], rhs[..., i, None, :]
            if lhs.dtype.kind != "c":
                total += a * b
            else:
                total.real += a.real * b.real - a.imag * b.imag
                total.imag += a.real * b.imag + a.imag * b.real
    return total


def rounded(wide: Array, result: DType) -> Array:
    """A product in the result's type: rounded once, wrapped, or for pred whether it is not zero."""
    if result.kind == "pred":
        return np.not_equal(wide, 0)
    return convert(wide, result.numpy) if wide.dtype.kind in "fc" else _wrapped(wide, result)


def _wrapped(wide: Array, result: DType) -> Array:
    return narrow(wide, result.numpy) if result.is_integral else convert(wide, result.numpy)


class Numbers(Protocol):
    """The dimension numbers of a dot, under the names of its attributes."""

    @property
    def lhs_batch_dims(self) -> tuple[int, ...]: ...

    @property
    def lhs_contracting_dims(self) -> tuple[int, ...]: ...

    @property
    def rhs_batch_dims(self) -> tuple[int, ...]: ...

    @property
    def rhs_contracting_dims(self) -> tuple[int, ...]: ...


def check_numbers(numbers: Numbers, lhs: Shape, rhs: Shape) -> None:
    """DOTG-3..8 and DOTG-23."""
    check(lhs.is_array and rhs.is_array, "DOTG-23", "operands", (lhs, rhs), "arrays")
    left, right = numbers.lhs_contracting_dims, numbers.rhs_contracting_dims
    left_batch, right_batch = numbers.lhs_batch_dims, numbers.rhs_batch_dims
    check(len(left) == len(right), "DOTG-3", "contracting dimensions", (left, right), "equally many")
    check(len(left_batch) == len(right_batch), "DOTG-5", "batch dimensions", (left_batch, right_batch), "equally many")
    left, right = (*left_batch, *left), (*right_batch, *right)
    _check_side("lhs", left, lhs)
    _check_side("rhs", right, rhs)
    sizes = [lhs.dimensions[d] for d in left], [rhs.dimensions[d] for d in right]
    if sizes[0] != sizes[1]:
        _check_sizes(sizes, len(left_batch))


def _check_sizes(sizes: tuple[list[int], list[int]], batch_count: int) -> None:
    for position, pair in enumerate(zip(*sizes, strict=True)):
        label = "DOTG-6" if position < batch_count else "DOTG-4"
        check(agree(*pair), label, "sizes of paired dimensions", pair, "equal sizes")


def _check_side(side: str, numbers: tuple[int, ...], shape: Shape) -> None:
    for d in numbers:
        if not 0 <= d < shape.rank:
            check(False, "DOTG-7", f"{side} dimension number", d, f"in [0, {shape.rank})")
    if len(set(numbers)) != len(numbers):
        check(False, "DOTG-8", f"{side} batch and contracting dimensions", numbers, "no repetition")


def shape_of_dimensions(dtype: DType, lhs: Shape, left: Sequence[int], rhs: Shape, right: Sequence[int]) -> Shape:
    """An array of some of lhs's dimensions, then some of rhs's, with their flags."""
    sizes = [lhs.dimensions[d] for d in left] + [rhs.dimensions[d] for d in right]
    return Shape.array(dtype, sizes, [lhs.dynamic[d] for d in left] + [rhs.dynamic[d] for d in right])


def free_dimensions(rank: int, *taken: Sequence[int]) -> list[int]:
    """The dimensions that are in none of the lists."""
    all_taken = {d for dims in taken for d in dims}
    return [d for d in range(rank) if d not in all_taken]


def dot_dimensions(
    numbers: Numbers, lhs: Shape, rhs: Shape, group_dims: Sequence[int] = (), first: int = 0
) -> tuple[ContractionDimension, ...]:
    """The dimensions of a dot, whose result has batch, lhs's free and rhs's free dimensions, from number `first` on.

    `group_dims`: dimensions of rhs that are none of them.
    """
    free_left = free_dimensions(lhs.rank, numbers.lhs_batch_dims, numbers.lhs_contracting_dims)
    free_right = free_dimensions(rhs.rank, numbers.rhs_batch_dims, numbers.rhs_contracting_dims, group_dims)
    batch = list(zip(numbers.lhs_batch_dims, numbers.rhs_batch_dims, strict=True))
    kept = [*batch, *((i, None) for i in free_left), *((None, j) for j in free_right)]
    summed = zip(numbers.lhs_contracting_dims, numbers.rhs_contracting_dims, strict=True)
    pairs = [*((i, j, Move(first + k)) for k, (i, j) in enumerate(kept)), *((i, j, None) for i, j in summed)]
    return tuple(
        ContractionDimension(
            rhs.dimensions[j] if i is None and j is not None else lhs.dimensions[i or 0],
            None if i is None else Move(i),
            None if j is None else Move(j),
            result,
        )
        for i, j, result in pairs
    )


class DotLike(Op):
    """Base class of dot and scaled-dot; `output_shape` has the result's element type, `preferred_element_type`."""

    lhs_batch_dims: Dims = attr((), proto="dot_dimension_numbers.lhs_batch_dimensions")
    lhs_contracting_dims: Dims = attr((), always=True, proto="dot_dimension_numbers.lhs_contracting_dimensions")
    rhs_batch_dims: Dims = attr((), proto="dot_dimension_numbers.rhs_batch_dimensions")
    rhs_contracting_dims: Dims = attr((), always=True, proto="dot_dimension_numbers.rhs_contracting_dimensions")
    operand_precision: Precision = attr((), proto="precision_config.operand_precision")
    algorithm: Algorithm = attr(None, proto="precision_config.algorithm")
    output_shape: ResultShape

    form = "contraction"
    shape_implied = True

    def product_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        """The result's shape, after the rules that hold for lhs and rhs alone (DOTG-1, DYN-12)."""
        check_numbers(self, lhs, rhs)
        element_type = self.output_shape.dtype
        check_result_type(lhs.dtype, element_type)
        check_result_type(rhs.dtype, element_type)
        free_left = free_dimensions(lhs.rank, self.lhs_batch_dims, self.lhs_contracting_dims)
        free_right = free_dimensions(rhs.rank, self.rhs_batch_dims, self.rhs_contracting_dims)
        return shape_of_dimensions(element_type, lhs, (*self.lhs_batch_dims, *free_left), rhs, free_right)

    def contraction(self, operands: Sequence[Shape]) -> Contraction:
        lhs, rhs, *scales = operands
        return Contraction(dot_dimensions(self, lhs, rhs), is_scaled=bool(scales))


class Dot(DotLike, name="dot"):
    """The sum of products over the contracting dimensions, for each index of the batch and free dimensions.

    The result's dimensions are the batch dimensions, then the free dimensions of lhs, then those of rhs.
    """

    rounding = SUMMED
    arity = 2
    rules = "DOTG"

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check_precision(self.operand_precision, 2)
        return self.product_shape(lhs, rhs)

    def reference(self, lhs: Array, rhs: Array) -> Array:
        element_type = self.output_shape.dtype
        return rounded(dot_wide(self, *operands_in_wide(lhs, rhs, element_type)), element_type)


def dot_wide(numbers: Numbers, lhs: Array, rhs: Array) -> Array:
    """DOTG-2 in the operands' type."""
    batch_left, batch_right = numbers.lhs_batch_dims, numbers.rhs_batch_dims
    left, right = numbers.lhs_contracting_dims, numbers.rhs_contracting_dims
    lhs, rhs = _cut_pairs(lhs, rhs, (*batch_left, *left), (*batch_right, *right))
    free_left = free_dimensions(lhs.ndim, batch_left, left)
    free_right = free_dimensions(rhs.ndim, batch_right, right)
    batch = [lhs.shape[d] for d in batch_left]
    rows, columns = [lhs.shape[d] for d in free_left], [rhs.shape[d] for d in free_right]
    inner = math.prod(lhs.shape[d] for d in left)
    lhs = lhs.transpose([*batch_left, *free_left, *left]).reshape(*batch, math.prod(rows), inner)
    rhs = rhs.transpose([*batch_right, *right, *free_right]).reshape(*batch, inner, math.prod(columns))
    return product(lhs, rhs).reshape((*batch, *rows, *columns))


def _cut_pairs(lhs: Array, rhs: Array, left: Sequence[int], right: Sequence[int]) -> tuple[Array, Array]:
    """Both operands with paired dynamic dimensions cut to the smaller run-time size (DYN-12)."""
    for i, j in zip(left, right, strict=True):
        if lhs.shape[i] != rhs.shape[j]:
            size = min(lhs.shape[i], rhs.shape[j])
            lhs, rhs = lhs.take(range(size), i), rhs.take(range(size), j)
    return lhs, rhs


class ScaledDot(DotLike, name="scaled-dot"):
    """dot(lhs * lhs_scale, rhs * rhs_scale): an element of a scale applies to a block of its operand (BEY-44)."""

    rounding = SUMMED
    arity = 4
    rules = "BEY-44"

    def infer(self, lhs: Shape, rhs: Shape, lhs_scale: Shape, rhs_scale: Shape) -> Shape:
        check_precision(self.operand_precision, 2, 4)
        if not (lhs.dtype.is_floating and rhs.dtype.is_floating):
            check_equal_types(lhs, rhs)
        result = self.product_shape(lhs, rhs)
        for name, operand, scale in (("lhs_scale", lhs, lhs_scale), ("rhs_scale", rhs, rhs_scale)):
            check(scale.dtype.is_floating, "BEY-44", f"{name} type", scale.dtype, "a floating type")
            if scale.is_scalar:
                continue
            fits = scale.rank == operand.rank and all(map(_divides, scale.dimensions, operand.dimensions))
            check(fits, "BEY-44", f"{name} dimensions", scale, f"a scalar, or sizes that divide those of {operand}")
        return result

    def reference(
        self, lhs: Array, rhs: Array, lhs_scale: Array, rhs_scale: Array, operand_shapes: Sequence[Shape]
    ) -> Array:
        element_type = self.output_shape.dtype
        left, right = dtypes.dtype(lhs.dtype), dtypes.dtype(rhs.dtype)
        wide = compute_type(left if left is right else promoted_type(left, right, element_type), element_type)
        lhs = _scaled(operand_in(lhs, wide), operand_in(lhs_scale, wide), operand_shapes[0], operand_shapes[2])
        rhs = _scaled(operand_in(rhs, wide), operand_in(rhs_scale, wide), operand_shapes[1], operand_shapes[3])
        return rounded(dot_wide(self, lhs, rhs), element_type)


def _divides(part: int, whole: int) -> bool:
    return part == whole or (part > 0 and whole % part == 0)


def _scaled(operand: Array, scale: Array, declared: Shape, declared_scale: Shape) -> Array:
    """The operand times its block scale; dynamic dimensions of both are cut to the smaller run-time size (DYN-12)."""
    for axis in range(scale.ndim):
        scale = scale.repeat(declared.dimensions[axis] // max(1, declared_scale.dimensions[axis]), axis)
        size = min(operand.shape[axis], scale.shape[axis])
        operand, scale = (
            array if array.shape[axis] == size else array.take(range(size), axis) for array in (operand, scale)
        )
    return operand * scale
