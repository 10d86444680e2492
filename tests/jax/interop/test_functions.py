"""jax.numpy.fft, top_k and its approximations, random numbers on hlokit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlokit.interop.jax as hj
from tests.jax.interop.compare import agrees, matrix

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


def test_one_function_on_a_program_of_the_others() -> None:
    """A step of everything: what is lowered for hlokit alone fits together."""

    def step(key: Any, x: Any) -> Any:
        noise = jax.random.normal(key, x.shape)
        values, places = lax.top_k(jnp.abs(jnp.fft.rfft(x + noise)), 2)
        return jnp.linalg.svd(values.T @ values)[1], places, lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    agrees(step, jax.random.key(0), X)
    np.testing.assert_allclose(hj.jit(step)(jax.random.key(0), X)[2], np.sin(X), rtol=1e-5)
