"""Linear algebra and callbacks of JAX programs on the platform: run by test_linear_algebra.py."""

import contextlib
import gc
import io
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback

from tests.jax.interop.compare import same
from tests.jax.interop.linalg_cases import ALL

CPU = jax.devices("cpu")[0]
X = np.float32([0.5, 1.5, -2.0])
SCALAR = jax.ShapeDtypeStruct((), np.int32)
FEW = ["numpy.eigh", "numpy.svd", "numpy.qr", "numpy.eig", "numpy.solve", "scipy.schur", "scipy.lu", "lax.tridiagonal"]


def agrees(f, *args, scale=1.0):
    """hlokit's results are those of JAX's CPU client."""
    found, tree = jax.tree.flatten(jax.jit(f)(*args))
    with jax.default_device(CPU):
        wanted, wanted_tree = jax.tree.flatten(jax.jit(f)(*jax.device_put(args, CPU)))
    assert tree == wanted_tree
    for got, expected in zip(found, wanted, strict=True):
        assert {d.platform for d in got.devices()} == {"hlokit"}
        same(np.asarray(got), np.asarray(expected), scale)


def host_sine(x, vmap_method=None):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method=vmap_method)


def fails_with(text, f, *args):
    try:
        jax.block_until_ready(f(*args))
    except jax.errors.JaxRuntimeError as error:
        assert text in str(error), str(error)
        return
    raise AssertionError("nothing was raised")


def check_linear_algebra():
    failed = {}
    for name in ALL if os.environ.get("ALL_OF_LINALG") else FEW:
        f, *args = ALL[name]
        try:
            agrees(f, *args, scale=2)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    assert not failed, failed


def check_linear_algebra_in_batches_and_gradients():
    a = np.stack([ALL["numpy.eigh"][1]] * 3)
    agrees(jax.vmap(jnp.linalg.eigh), a)
    agrees(jax.vmap(jax.grad(lambda a: jnp.linalg.slogdet(a)[1])), a)


def check_choices():
    agrees(lambda x: jax.lax.top_k(x, 2), X)
    agrees(lambda x: jax.lax.approx_max_k(x, 2), X)
    agrees(lambda x: jnp.fft.rfft(x), X)
    agrees(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X)


def check_sparse_rows():
    from jax.experimental import sparse

    rows = sparse.BCSR.fromdense(np.diag(X))
    assert np.asarray(jax.jit(lambda a, b: a @ b)(rows, X)).tolist() == (X * X).tolist()


def check_prints():
    def f(x):
        def step(carry, i):
            jax.debug.print("{}", i, ordered=True)
            return carry + i, None

        jax.debug.print("x = {x}", x=x, ordered=True)
        return jax.lax.scan(step, x, jnp.arange(3))[0]

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert jax.jit(f)(1) == 4
        assert jax.jit(f)(2) == 5
        jax.effects_barrier()
    assert out.getvalue().split("\n") == ["x = 1", "0", "1", "2", "x = 2", "0", "1", "2", ""]


def check_debug_callback_in_a_gradient():
    seen = []

    def f(x):
        jax.debug.callback(seen.append, jnp.sin(x))
        return jnp.sin(x).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(f))(X), np.cos(X), rtol=1e-6)
    jax.effects_barrier()
    np.testing.assert_allclose(seen, [np.sin(X)], rtol=1e-6)


def check_pure_callbacks():
    agrees(host_sine, X)
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"):
        agrees(jax.vmap(lambda x, m=method: host_sine(x, m)), np.arange(12, dtype=np.float32).reshape(4, 3))
    agrees(lambda x: jax.lax.cond(x[0] > 0, host_sine, jnp.cos, x), X)
    agrees(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: host_sine(c) + i, x), X)
    np.testing.assert_allclose(host_sine(jnp.asarray(X)), np.sin(X), rtol=1e-6)  # not jitted


def check_element_types():
    for dtype in ("bool", "int8", "float16", "bfloat16", "complex64"):
        x = np.asarray([0, 1, 3]).astype(dtype) if dtype != "bfloat16" else jnp.asarray([0, 1, 3], dtype)
        agrees(lambda x: jax.pure_callback(lambda v: v[::-1], jax.ShapeDtypeStruct(x.shape, x.dtype), x), x)


def check_io_callbacks():
    for ordered in (True, False):
        seen = []

        def count(x, seen=seen):
            seen.append(float(x))
            return np.int32(len(seen))

        def f(x, ordered=ordered, count=count):
            io_callback(count, SCALAR, x, ordered=ordered)  # its result is not used, and yet it runs
            return io_callback(count, SCALAR, x * 2, ordered=ordered)

        run = jax.jit(f)
        first, second = run(np.float32(1)), run(np.float32(5))
        jax.effects_barrier()
        assert sorted(seen) == [1, 2, 5, 10]
        assert not ordered or (seen == [1, 2, 5, 10] and first == 2 and second == 4)


def check_buffer_callback():
    def host(context, out, x):
        np.asarray(out)[...] = np.asarray(x) * 3

    np.testing.assert_array_equal(jax.jit(buffer_callback(host, jax.ShapeDtypeStruct((3,), np.float32)))(X), X * 3)


def check_errors_are_raised():
    def fails(x):
        raise KeyError("no such row")

    kind = jax.ShapeDtypeStruct((3,), np.float32)
    pure = jax.jit(lambda x: jax.pure_callback(fails, kind, x))
    ordered = jax.jit(lambda x: io_callback(fails, kind, x, ordered=True))
    for _ in range(2):
        fails_with("KeyError: 'no such row'", pure, X)
        fails_with("KeyError: 'no such row'", ordered, X)
    agrees(host_sine, X)  # and the next program runs
    wrong = jax.jit(lambda x: jax.pure_callback(lambda v: np.zeros(2, np.float32), kind, x))
    fails_with("Expected: (3,), Actual: (2,)", wrong, X)


def check_callbacks_live_as_long_as_their_programs():
    """JAX's fast path holds the executable alone."""
    run = jax.jit(host_sine)
    x = jnp.asarray(X)
    for _ in range(3):
        run(x)
    for module in (jax._src.pjit, jax._src.interpreters.pxla):
        for cache in vars(module).values():
            if hasattr(cache, "cache_clear"):
                cache.cache_clear()
    gc.collect()
    np.testing.assert_allclose(run(x), np.sin(X), rtol=1e-6)


def check_programs_in_callbacks():
    inner = jax.jit(lambda x: x * 2)

    def host(x):
        return np.asarray(inner(np.asarray(x)))

    run = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((3,), np.float32), x) + 1)
    np.testing.assert_array_equal(run(X), 2 * X + 1)


def check_without_the_platform():
    """hlokit.interop.jax.jit beside it."""
    import hlokit.interop.jax as hj

    run = hj.jit(lambda x: host_sine(x) + jnp.linalg.norm(x))
    np.testing.assert_allclose(run(jnp.asarray(X)), np.sin(X) + np.linalg.norm(X), rtol=1e-6)
