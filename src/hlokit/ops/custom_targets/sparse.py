"""Products of sparse matrices in compressed rows, which JAX's CPU lowering uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in


@built_in("cpu_csr_sparse_dense_ffi")
def csr_times_dense(call: Invocation) -> Array:
    """matrix [m, n] times right [n] or [n, k]: (values [z], row starts [m + 1], columns [z], right).

    Values and columns from the last row start on are padding. SciPy's routine adds in the order of the columns given.
    """
    from scipy.sparse import csr_array  # pyright: ignore

    values, starts, columns, right = call.operands
    rows = call.shape.dimensions[0] if call.shape.is_array and call.shape.rank else -1
    fits = values.ndim == columns.ndim == starts.ndim == 1 and right.ndim in (1, 2) and values.shape == columns.shape
    if not fits or starts.shape != (rows + 1,):
        found = ", ".join(str(list(operand.shape)) for operand in call.operands)
        raise EvaluationError(f"{call.op.custom_call_target}: operands of sizes {found} for {call.shape} [CCALL-6]")
    if values.dtype != right.dtype or values.dtype.kind not in "ifc" or values.dtype.itemsize < 4:
        raise EvaluationError(f"{call.op.custom_call_target}: elements {values.dtype} and {right.dtype} [CCALL-6]")
    count = int(starts[-1])
    used = columns[: max(count, 0)]
    if starts[0] != 0 or count > values.size or (np.diff(starts) < 0).any():
        raise EvaluationError(f"{call.op.custom_call_target}: row starts do not ascend from 0 to at most {values.size}")
    if used.size and not 0 <= used.min() <= used.max() < right.shape[0]:
        raise EvaluationError(f"{call.op.custom_call_target}: a column is not in [0, {right.shape[0]})")
    matrix: Any = csr_array((values[:count], used, starts), shape=(rows, right.shape[0]))  # pyright: ignore
    return matrix @ right
