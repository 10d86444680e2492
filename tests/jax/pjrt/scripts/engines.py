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


def check_step_hooks():
    from hlokit.interop.jax import step_hooks

    seen = []
    f = jax.jit(lambda x: jnp.sin(x) * 2)
    with step_hooks(after=lambda instruction, values: seen.append(instruction.opcode)):
        f(jnp.ones(3))
    assert ("sine" in seen and "multiply" in seen) == (os.environ.get("HLOKIT_BACKEND") == "interpreter"), seen
    count = len(seen)
    f(jnp.ones(3))
    assert len(seen) == count


def check_nan_trap():
    f = jax.jit(lambda x: jnp.log(x - 1) * 2)
    assert np.isfinite(f(jnp.full(3, 2.0))).all()
    os.environ["HLOKIT_TRAP_NAN"] = "1"
    try:
        f(jnp.zeros(3))
        trapped = False
    except jax.errors.JaxRuntimeError as error:
        assert "log" in str(error) and "a NaN" in str(error), str(error)
        trapped = True
    finally:
        del os.environ["HLOKIT_TRAP_NAN"]
    assert trapped == (os.environ.get("HLOKIT_BACKEND") == "interpreter")


def check_several_devices():
    from jax import lax, shard_map
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    f = shard_map(
        lambda v: lax.psum(v, "i"), mesh=Mesh(np.array(jax.devices()), ("i",)), in_specs=P("i"), out_specs=P()
    )
    assert jax.jit(f)(jnp.arange(4.0)).tolist() == [2, 4]
