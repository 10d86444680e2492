"""hlokit in place of JAX's CPU client: what asks for a CPU finds one."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import io_callback, serialize_executable
from jax.experimental.buffer_callback import buffer_callback
from jax.experimental.custom_partitioning import custom_partitioning

X = jnp.arange(6.0).reshape(2, 3)
LIKE_X = jax.ShapeDtypeStruct(X.shape, X.dtype)
DEVICE = jax.devices()[0]


def check_everything_says_cpu():
    assert jax.default_backend() == DEVICE.platform == DEVICE.client.platform == DEVICE.device_kind == "cpu"
    assert "hlokit" in DEVICE.client.platform_version, "and JAX's own client is not there"
    assert jax.devices("cpu") == jax.local_devices(backend="cpu") == [DEVICE]
    assert (repr(DEVICE), str(DEVICE)) == ("CpuDevice(id=0)", "cpu:0")
    assert X.devices() == {DEVICE} and X.platform() == "cpu"
    assert jax.device_put(np.ones(3), jax.devices("cpu")[0]).devices() == {DEVICE}
    with jax.default_device("cpu"):
        assert jnp.ones(2).devices() == {DEVICE}
    assert jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos))(0.0) == 0
    assert "hlokit" not in jax._src.xla_bridge._backends


def check_dlpack_both_ways():
    assert X.__dlpack_device__() == (1, 0), "kDLCPU"
    array = np.from_dlpack(X)
    assert array.ctypes.data == X.unsafe_buffer_pointer()
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))
    given = np.arange(64, dtype=np.float32)
    taken = jnp.from_dlpack(given)
    assert taken.devices() == {DEVICE}
    np.testing.assert_array_equal(taken + 1, given + 1)
    np.testing.assert_array_equal(jnp.from_dlpack(X), X)
    cube = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for order in ((2, 1, 0), (1, 2, 0), (0, 2, 1)):  # copied into row-major order
        turned = cube.transpose(order)
        given = sys.getrefcount(cube)
        taken = jnp.from_dlpack(turned)
        np.testing.assert_array_equal(taken, turned)
        assert sys.getrefcount(cube) == given, "and the other library's array is let go"
    alive = np.from_dlpack(jnp.full(1000, 7.0))  # the JAX array is gone, its memory is not
    jnp.full(1000, 8.0).block_until_ready()
    assert (alive == 7).all()


def check_callbacks():
    f = jax.jit(lambda x: jax.pure_callback(np.sin, LIKE_X, x) + jax.pure_callback(jnp.cos, LIKE_X, x))
    np.testing.assert_allclose(f(X), np.sin(X) + np.cos(X), rtol=1e-6)
    seen = []
    jax.block_until_ready(jax.jit(lambda x: io_callback(lambda v: seen.append(v), None, x, ordered=True))(X))
    jax.effects_barrier()
    np.testing.assert_array_equal(seen[0], X)

    def double(context, out, x):
        np.asarray(out)[...] = 2 * np.asarray(x)

    np.testing.assert_array_equal(jax.jit(buffer_callback(double, LIKE_X))(X), 2 * X)


def check_rules_of_the_cpu():
    a = np.float32([[4, 1, 0], [1, 3, 1], [0, 1, 2]])
    np.testing.assert_allclose(jnp.linalg.eigh(a)[0], np.linalg.eigvalsh(a), rtol=1e-5)
    np.testing.assert_allclose(np.sort(jnp.linalg.eigvals(a).real), np.linalg.eigvalsh(a), rtol=1e-5)
    np.testing.assert_allclose(jnp.fft.fft(jnp.ones(8)), np.fft.fft(np.ones(8)), atol=1e-6)

    @custom_partitioning
    def add(x):
        return x + 1

    add.def_partition(lambda *_: None, infer_sharding_from_operands=lambda *_: None, sharding_rule="i j -> i j")
    np.testing.assert_array_equal(jax.jit(add)(X), X + 1)


def check_exported_programs():
    made = export.export(jax.jit(jnp.sin))(X)
    assert made.platforms == ("cpu",)
    np.testing.assert_allclose(jax.jit(made.call)(X), np.sin(X), rtol=1e-6)


def check_serialized_executables():
    compiled = jax.jit(jnp.sin).lower(X).compile()
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    np.testing.assert_array_equal(loaded(X), compiled(X))


def check_donation():
    given = jnp.ones(4)
    assert (jax.jit(lambda x: x + 1, donate_argnums=0)(given) == 2).all()
    assert given.is_deleted()


def check_functions_without_a_platform():
    import hlokit.interop.jax as hj

    np.testing.assert_allclose(hj.jit(lambda x: jnp.sin(x) * 2)(np.float32(1)), 2 * np.sin(np.float32(1)), rtol=1e-6)


def check_no_second_choice():
    import hlokit.interop.jax as hj
    from hlokit import ArgumentError

    hj.use(as_cpu=True)  # it is that already
    try:
        hj.use()
    except ArgumentError as error:
        assert "its backends already: cpu, with the default 'cpu'" in str(error)
    else:
        raise AssertionError("no error")


def check_cleared_backends():
    from jax.extend.backend import clear_backends

    clear_backends()
    assert jax.jit(jnp.sin)(0.0) == 0
    assert "hlokit" in jax.devices()[0].client.platform_version
    assert "llvmlite" in sys.modules


def check_programs_of_several_platforms_are_lowered_once():
    like = jax.ShapeDtypeStruct((5,), np.float32)
    exported = export.export(jax.jit(jnp.sin), platforms=("cpu", "tpu", "cuda"))(like)
    for f in (exported.call, lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)):
        module = str(export.export(jax.jit(f), platforms=("cpu", "cuda"))(like).mlir_module())
        assert module.count("stablehlo.sine") == 1, module
