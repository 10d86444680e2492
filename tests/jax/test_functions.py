"""jax.numpy.fft, top_k and its approximations, sparse matrices, random numbers on hlokit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse

import hlokit as hk
import hlokit.interop.jax as hj
from hlokit.errors import EvaluationError
from tests.jax.compare import agrees, matrix

X, Z = matrix(4, 6), matrix(4, 6, dtype=np.complex64)
CUBE, COMPLEX_CUBE = matrix(2, 3, 5), matrix(2, 3, 5, dtype=np.complex64)

FFT: dict[str, tuple[Any, ...]] = {
    "fft": (jnp.fft.fft, Z),
    "fft_axis": (lambda z: jnp.fft.fft(z, n=5, axis=0, norm="ortho"), Z),
    "fft2": (jnp.fft.fft2, Z),
    "fftfreq": (lambda x: x + jnp.fft.fftfreq(6), X),
    "fftn": (jnp.fft.fftn, COMPLEX_CUBE),
    "fftshift": (jnp.fft.fftshift, X),
    "hfft": (jnp.fft.hfft, Z),
    "ifft": (jnp.fft.ifft, Z),
    "ifft2": (jnp.fft.ifft2, Z),
    "ifftn": (jnp.fft.ifftn, COMPLEX_CUBE),
    "ifftshift": (jnp.fft.ifftshift, X),
    "ihfft": (jnp.fft.ihfft, X),
    "irfft": (jnp.fft.irfft, Z),
    "irfft_odd": (lambda z: jnp.fft.irfft(z, n=7), Z),
    "irfft2": (jnp.fft.irfft2, Z),
    "irfftn": (jnp.fft.irfftn, COMPLEX_CUBE),
    "rfft": (jnp.fft.rfft, X),
    "rfft2": (jnp.fft.rfft2, X),
    "rfftfreq": (lambda x: x[:, :4] + jnp.fft.rfftfreq(6), X),
    "rfftn": (jnp.fft.rfftn, CUBE),
}

CHOICES: dict[str, tuple[Any, ...]] = {
    "approx_max_k": (lambda x: lax.approx_max_k(x, 3), matrix(5, 40)),
    "approx_max_k_axis": (
        lambda x: lax.approx_max_k(x, 2, reduction_dimension=0, aggregate_to_topk=True),
        matrix(30, 5),
    ),
    "approx_min_k": (lambda x: lax.approx_min_k(x, 3, recall_target=0.9), matrix(40)),
    "argpartition": (lambda x: jnp.sort(jnp.argpartition(x, 3)[..., :3]), X),
    "argsort": (lambda x: jnp.argsort(x, descending=True), X),
    "partition": (lambda x: jnp.sort(jnp.partition(x, 2)[..., :2]), X),
    "sort": (jnp.sort, X),
    "top_k": (lambda x: lax.top_k(x, 3), X),
    "top_k_integers": (lambda x: lax.top_k(x, 4), np.int32([[3, 1, 3, 2, 1, 3], [5, -1, 0, 2, 2, 7]])),
    "top_k_under_vmap": (jax.vmap(lambda x: lax.top_k(x, 2)), CUBE),
    "top_k_gradient": (jax.grad(lambda x: (lax.top_k(x, 3)[0] ** 2).sum()), X),
}

RANDOM: dict[str, Any] = {
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (20,)),
    "bits": lambda k: jax.random.bits(k, (5,)),
    "categorical": lambda k: jax.random.categorical(k, jnp.log(jnp.array([0.2, 0.3, 0.5])), shape=(10,)),
    "choice": lambda k: jax.random.choice(k, 10, (4,), replace=False),
    "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(k, 3)),
    "gamma": lambda k: jax.random.gamma(k, 2.0, (5,)),
    "normal": lambda k: jax.random.normal(k, (20,)),
    "orthogonal": lambda k: jax.random.orthogonal(k, 4),
    "multivariate_normal": lambda k: jax.random.multivariate_normal(k, jnp.zeros(3), jnp.eye(3), (4,)),
    "permutation": lambda k: jax.random.permutation(k, 12),
    "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
    "truncated_normal": lambda k: jax.random.truncated_normal(k, -1.0, 1.0, (10,)),
    "uniform": lambda k: jax.random.uniform(k, (20,), minval=-1),
}

DENSE = np.where(np.abs(matrix(5, 7)) > 1, matrix(5, 7), np.float32(0))
VECTOR, RIGHT = matrix(7, seed=1), matrix(7, 3, seed=2)


@pytest.mark.parametrize("name", FFT)
def test_fft(name: str) -> None:
    agrees(*FFT[name])


def test_fft_of_doubles_and_gradients() -> None:
    with jax.enable_x64(True):
        agrees(lambda z: (jnp.fft.fftn(z), jax.vmap(jnp.fft.ifft)(z)), matrix(4, 9, dtype=np.complex128))
    agrees(jax.grad(lambda x: jnp.abs(jnp.fft.rfft(x) ** 2).sum()), X, scale=5)


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    agrees(*CHOICES[name])


@pytest.mark.parametrize("name", RANDOM)
def test_random(name: str) -> None:
    agrees(RANDOM[name], jax.random.key(7))


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg", "threefry2x32"])
def test_generators(implementation: str) -> None:
    key = jax.random.key(3, impl=implementation)
    agrees(lambda k: jax.random.uniform(jax.random.split(k)[1], (5,)), key)


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


def test_one_function_on_a_program_of_the_others() -> None:
    """A step of everything: what is lowered for hlokit alone fits together."""

    def step(key: Any, x: Any) -> Any:
        noise = jax.random.normal(key, x.shape)
        values, places = lax.top_k(jnp.abs(jnp.fft.fft(x + noise)), 2)
        return jnp.linalg.svd(values.T @ values)[1], places, lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    agrees(step, jax.random.key(0), X)
    np.testing.assert_allclose(hj.jit(step)(jax.random.key(0), X)[2], np.sin(X), rtol=1e-5)
