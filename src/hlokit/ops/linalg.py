"""Linear algebra: cholesky, triangular-solve."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import numpy as np

from hlokit.forms.cost import Cost
from hlokit.forms.kernel import Kernel
from hlokit.hlo.op import REARRANGED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.stack import interruptible
from hlokit.types.attributes import choice
from hlokit.types.shape import Shape

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


class Cholesky(Op, name="cholesky"):
    """The triangular factor with positive diagonal of each matrix of the batch: a = l l^H (lower) or a = u^H u."""

    lower: bool = attr(False, proto="cholesky_options.lower")

    rounding = REARRANGED
    arity = 1
    form = "kernel"
    rules = "CHOL"

    def infer(self, a: Shape) -> Shape:
        check(a.is_array and a.dtype.kind in ("floating", "complex"), "CHOL-2", "a", a, "a floating or complex array")
        check(a.rank >= 2, "CHOL-3", "rank of a", a.rank, ">= 2")
        check(
            a.dimensions[-1] == a.dimensions[-2], "CHOL-4", "last two dimensions of a", a.dimensions[-2:], "equal sizes"
        )
        return a.logical

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Half of the matrix is read, half of the result written."""
        return Cost(result.size * result.dimensions[-1] // 3, 0, result.nbytes)

    def reference(self, a: Array) -> Array:
        if not a.size:
            return a
        size = min(a.shape[-2:])  # at run time one dimension may be smaller than the other
        wide = computed(a[..., :size, :size])
        try:
            factor = by_lapack(lambda: np.linalg.cholesky(wide, upper=not self.lower), wide)
        except np.linalg.LinAlgError:  # says only that some matrix of the batch is not positive definite (CHOL-8)
            factor = np.full_like(wide, np.nan)
            for index in np.ndindex(*wide.shape[:-2]):
                factor[index] = self._factor_or_nan(wide[index])
        factor[np.isnan(factor).any((-2, -1))] = np.nan  # LAPACK goes on after a NaN
        return factor.astype(a.dtype, copy=False)

    def _factor_or_nan(self, matrix: Array) -> Array | float:
        try:
            return by_lapack(lambda: np.linalg.cholesky(matrix, upper=not self.lower), matrix)
        except np.linalg.LinAlgError:
            return np.nan

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("cholesky", prologue=(0,), whole=(-2, -1))


class TriangularSolve(Op, name="triangular-solve"):
    """Solves op(a) x = b (left_side) or x op(a) = b for x, where op(a) is a, its transpose or its adjoint."""

    left_side: bool = attr(False, proto="triangular_solve_options.left_side")
    lower: bool = attr(False, proto="triangular_solve_options.lower")
    unit_diagonal: bool = attr(False, proto="triangular_solve_options.unit_diagonal")
    transpose_a: Annotated[str, choice("transpose_a", "TRANSPOSE_INVALID", *TRANSPOSES)] = attr(
        "TRANSPOSE_INVALID", proto="triangular_solve_options.transpose_a"
    )
    """TRANSPOSE_INVALID: not given, which means NO_TRANSPOSE (HOP-25)."""

    rounding = REARRANGED
    arity = 2
    form = "kernel"
    rules = "TRISOLVE"

    def infer(self, a: Shape, b: Shape) -> Shape:
        check(
            a.is_array and a.dtype.kind in ("floating", "complex"), "TRISOLVE-3", "a", a, "a floating or complex array"
        )
        check(b.dtype is a.dtype, "TRISOLVE-3", "element type of b", b.dtype, a.dtype)
        check(a.rank == b.rank >= 2, "TRISOLVE-4", "ranks of a and b", (a.rank, b.rank), "equal and >= 2")
        size = a.dimensions[-1]
        check(a.dimensions[-2] == size, "TRISOLVE-5", "last two dimensions of a", a.dimensions[-2:], "equal sizes")
        solved = -2 if self.left_side else -1
        check(b.dimensions[solved] == size, "TRISOLVE-6", "solved dimension of b", b.dimensions[solved], size)
        batch = a.dimensions[:-2]
        check(b.dimensions[:-2] == batch, "TRISOLVE-7", "batch dimensions of b", b.dimensions[:-2], batch)
        return b.logical

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        a, b = operands
        return Cost(2 * b.size * a.dimensions[-1], 0, a.nbytes / 2 + b.nbytes + result.nbytes)

    def reference(self, a: Array, b: Array) -> Array:
        matrix, right = (computed(x) for x in self._cut(a, b))
        lower = self.lower
        if self.transpose_a in ("TRANSPOSE", "ADJOINT"):
            matrix, lower = matrix.swapaxes(-1, -2), not lower
        if self.transpose_a == "ADJOINT":
            matrix = matrix.conj()
        if self.left_side:
            solution = _substitute(matrix, right, lower, self.unit_diagonal)
        else:  # x a = b is a^T x^T = b^T
            transposed = matrix.swapaxes(-1, -2), right.swapaxes(-1, -2)
            solution = _substitute(*transposed, not lower, self.unit_diagonal).swapaxes(-1, -2)
        return solution.astype(b.dtype, copy=False)

    def _cut(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Both of the same batch and M at run time: dynamic dimensions may be smaller in one than in the other."""
        batch = tuple(slice(min(sizes)) for sizes in zip(a.shape[:-2], b.shape[:-2], strict=True))
        size = slice(min(*a.shape[-2:], b.shape[-2 if self.left_side else -1]))
        every = slice(None)
        return a[*batch, size, size], b[*batch, size, every] if self.left_side else b[*batch, every, size]

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("triangular-solve", prologue=(1,), whole=(-2, -1))


def _substitute(a: Array, b: Array, lower: bool, unit_diagonal: bool) -> Array:
    """Solves a x = b row by row, all matrices and right sides at once; reads only one triangle of a."""
    size = a.shape[-1]
    x = np.empty_like(b)
    for i in range(size) if lower else reversed(range(size)):
        known = slice(i) if lower else slice(i + 1, size)
        row = b[..., i, :] - (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] = row if unit_diagonal else row / a[..., i, i, None]
    return x


_LONG = 30_000_000
"""Elements of matrices times their longer side: from that on a factorization may take a tenth of a second."""
_T = TypeVar("_T")


def by_lapack(function: Callable[[], _T], matrices: Array) -> _T:
    """The result of `function`, which calls LAPACK on the matrices; if that takes long, signals are heard."""
    return interruptible(function) if is_long(matrices.shape) else function()


def is_long(sizes: Sequence[int]) -> bool:
    """Whether LAPACK may well take a tenth of a second for something with matrices of these sizes."""
    return math.prod(sizes) * max(sizes[-2:], default=1) > _LONG


def computed(array: Array) -> Array:
    """`array` in a type that LAPACK has: f32 for the narrower floating types (TYPE-10). In row-major order, since the
    last bits of NumPy's products depend on the order in memory."""
    has = array.dtype in (np.float32, np.float64, np.complex64, np.complex128)
    return np.ascontiguousarray(array, None if has else np.float32)
