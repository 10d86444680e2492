"""Batches of matrices for Cholesky factorization, and the results for matrices without a factor."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.linalg.panel_copy import Strides
from hlokit.types.dtype import DType


@dataclass(frozen=True)
class CholeskyBatch:
    """A batch of size x size matrices; the table has operand, result, perhaps info, scratch.

    info   whether the table has an s32 for each matrix: 0, or the order of the first minor that is not positive. The
           other triangle is then the operand's (LAPACK's potrf). Else it is zeros, and without factor all is NaN
    """

    dtype: DType
    batch: int
    size: int
    lower: bool
    info: bool = False

    @property
    def scratch(self) -> int:
        """The table's place of scratch memory."""
        return 3 if self.info else 2

    @property
    def element(self) -> int:
        return self.dtype.bits // 8

    @property
    def matrix(self) -> int:
        """Bytes of a matrix."""
        return self.size * self.size * self.element

    @property
    def strides(self) -> Strides:
        """From u[k][j] to the next k and the next j in the triangle that is read and written."""
        row = self.size * self.element
        return Strides(self.element, row, conjugate=True) if self.lower else Strides(row, self.element)

    @property
    def name(self) -> str:
        return f"{self.batch}_{self.size}_{'lower' if self.lower else 'upper'}{'_info' if self.info else ''}"


INFO = 2
"""The table's place of info."""
