"""jax.experimental.sparse on hlokit, and the custom call behind its matrices in compressed rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import hlokit as hk
from hlokit.errors import EvaluationError
from tests.jax.interop.compare import agrees, matrix

DENSE = np.where(np.abs(matrix(5, 7)) > 1, matrix(5, 7), np.float32(0))
VECTOR, RIGHT = matrix(7, seed=1), matrix(7, 3, seed=2)


@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR, sparse.CSR, sparse.CSC, sparse.COO])
def test_sparse_products(kind: Any) -> None:
    a = kind.fromdense(DENSE)
    agrees(lambda a, v, b: (a @ v, a @ b, a.todense()), a, VECTOR, RIGHT)


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.complex64, np.complex128])
def test_sparse_rows_of_other_types(dtype: Any) -> None:
    with jax.enable_x64(True):
        a = sparse.BCSR.fromdense((DENSE * 4).astype(dtype))
        agrees(lambda a, b: a @ b, a, (RIGHT * 4).astype(dtype))


def test_sparse_gradients_and_batches() -> None:
    a = sparse.BCOO.fromdense(DENSE)
    agrees(jax.grad(lambda d, b: (sparse.BCOO((d, a.indices), shape=a.shape) @ b).sum(), (0, 1)), a.data, RIGHT)
    agrees(sparse.sparsify(lambda a, b: jnp.sin(a @ b).sum()), a, RIGHT)
    batched = sparse.BCOO.fromdense(np.stack([DENSE, -DENSE]), n_batch=1)
    agrees(lambda a, b: sparse.bcoo_dot_general(a, b, dimension_numbers=(((2,), (0,)), ((), ()))), batched, RIGHT)
    rows = sparse.BCSR.fromdense(DENSE)
    agrees(jax.vmap(lambda b: rows @ b, in_axes=1), RIGHT)


ROWS = """HloModule rows
ENTRY e {
  values = f32[3] parameter(0)
  starts = s32[3] parameter(1)
  columns = s32[3] parameter(2)
  right = f32[4] parameter(3)
  ROOT r = f32[2] custom-call(values, starts, columns, right), custom_call_target="cpu_csr_sparse_dense_ffi",
    api_version=API_VERSION_TYPED_FFI
}"""


def test_rows_that_are_none() -> None:
    """What is outside the arrays is refused, not read."""
    run = hk.compile(hk.parse(ROWS))
    values, right = np.ones(3, np.float32), np.arange(4, dtype=np.float32)
    columns = np.int32([0, 3, 9])
    np.testing.assert_array_equal(run(values, np.int32([0, 1, 2]), columns, right), [0, 3])  # the last is padding
    for starts, places in [([0, 1, 3], columns), ([0, 2, 1], columns), ([0, 1, 4], columns), ([1, 1, 2], columns)]:
        with pytest.raises(EvaluationError, match="cpu_csr_sparse_dense_ffi"):
            run(values, np.int32(starts), places, right)
    with pytest.raises(EvaluationError, match="column"):
        run(values, np.int32([0, 1, 2]), np.int32([0, -1, 0]), right)
