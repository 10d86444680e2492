"""JAX on the interpreter, and in shadow mode: as HLOKIT_BACKEND and HLOKIT_SHADOW say."""

import os

import jax
import jax.numpy as jnp
import numpy as np


def check_results():
    f = jax.jit(lambda x: jax.lax.scan(lambda c, v: (jnp.tanh(c @ c) + v, c.sum()), x, jnp.arange(3.0)))
    with jax.default_device(jax.devices("cpu")[0]):
        expected = jax.tree.map(np.asarray, f(np.eye(3, dtype=np.float32)))
    made = f(np.eye(3, dtype=np.float32))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), made, expected)


def check_donation():
    x = jnp.arange(5.0)
    seen = np.asarray(x)
    assert jax.jit(lambda x: x * 2, donate_argnums=0)(x).tolist() == [0, 2, 4, 6, 8]
    assert x.is_deleted() and seen.tolist() == [0, 1, 2, 3, 4]


def check_errors():
    def broken(x):
        raise ValueError("by design")

    try:
        jax.jit(lambda x: jax.pure_callback(broken, jax.ShapeDtypeStruct((), np.float32), x))(1.0)
    except jax.errors.JaxRuntimeError as error:
        assert "by design" in str(error)
    else:
        raise AssertionError("no error")


def check_it_is_this_engine():
    """Only machine code has a size."""
    compiled = jax.jit(lambda x: x + 1).lower(1.0).compile()
    found = compiled.memory_analysis() if os.environ.get("HLOKIT_BACKEND") != "interpreter" else None
    assert (found is None) == (os.environ.get("HLOKIT_BACKEND") == "interpreter")
