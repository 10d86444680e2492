"""Small types, 64 bits, Pallas' interpreter, layouts, memories, custom partitioning: the outer parts of JAX."""

import contextlib
import io
import tempfile

import jax
import jax.experimental.custom_partitioning
import jax.experimental.layout
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.compute_on import compute_on
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.jax.functions.areas.several_devices import FOUR
from tests.jax.functions.table import KEY, case, devices, integers, normal, positive

X, Y = normal(4, 8), normal(4, 8, seed=1)


def add_kernel(x, y, out):
    out[...] = x[...] + jnp.sin(y[...])


def scaled(x, y):
    return pl.pallas_call(add_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x, y)


def blocked(x, y):
    spec = pl.BlockSpec((2, 8), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        add_kernel, out_shape=shape, grid=(2,), in_specs=[spec, spec], out_specs=spec, interpret=True
    )(x, y)


def wide(f):
    """With 64-bit types."""

    def run(*args):
        with jax.enable_x64(True):
            return f(*(jnp.asarray(np.asarray(a).astype({"f": "f8", "i": "i8"}[a.dtype.kind])) for a in args))

    return run


def with_types(*names):
    return lambda x: [(x.astype(name).astype(jnp.float32) * 2).astype(name) for name in names]


def donated(x):
    return jax.jit(lambda v: v + 1, donate_argnums=0)(x)


def partitioned(x):
    @jax.experimental.custom_partitioning.custom_partitioning
    def f(v):
        return jnp.sin(v) * 2

    f.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=lambda mesh, args, result: (mesh, f, args[0].sharding, (args[0].sharding,)),
        sharding_rule="i j -> i j",
    )
    mesh = Mesh(np.array(devices()[:4]), ("i",))
    return jax.jit(f)(jax.device_put(x, NamedSharding(mesh, P("i"))))


def shown(x):
    seen = []
    jax.jit(lambda v: (jax.debug.inspect_array_sharding(v, callback=lambda s: seen.append(1)), v + 1)[1])(x)
    return seen


def traced(x):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()), jax.profiler.trace(folder):
        return jax.block_until_ready(jnp.sin(x))


def on_host(x):
    def f(v):
        with compute_on("device_host"):
            w = jax.jit(jnp.sin)(v)
        return w * 2

    return jax.jit(f)(x)


def on_loan(x):
    return np.asarray(jnp.asarray(np.from_dlpack(x + 1))).copy()


CASES = [
    case("jax.experimental.pallas.pallas_call", lambda x, y: (pl.pallas_call, scaled(x, y))[1], X, Y, no_grad=True),
    case("jax.experimental.pallas.BlockSpec", lambda x, y: (pl.BlockSpec, blocked(x, y))[1], X, Y, no_grad=True),
    case("jax.enable_x64", lambda x: (jax.enable_x64, wide(lambda v: (jnp.sin(v), jnp.cumsum(v), v @ v.T))(x))[1], X, host=True, label="f64"),
    case("jax.numpy.linalg.eigh", wide(jnp.linalg.eigh), positive(4), host=True, label="f64"),
    case("jax.numpy.linalg.svd", wide(lambda a: jnp.linalg.svd(a)), X, host=True, label="f64"),
    case("jax.numpy.fft.fft", wide(lambda a: jnp.fft.fft(a)), X, host=True, label="f64"),
    case("jax.numpy.bitwise_count", wide(lambda n: jnp.bitwise_count(n << 40)), integers(3, 4), host=True, label="i64"),
    case("jax.lax.convert_element_type", lambda x: (lax.convert_element_type, with_types("float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3b11fnuz")(x))[1], X, label="float8"),
    case("jax.lax.convert_element_type", lambda n: [lax.convert_element_type(n, t).astype(jnp.int32) for t in ("int4", "uint4", "int2", "uint2")], integers(3, 4, high=3), label="int4"),
    case("jax.numpy.exp", lambda x: jnp.exp(x), X, types="f16", label="f16"),
    case("jax.numpy.matmul", lambda x, y: jnp.matmul(x, y.T), X, Y, types="f16", label="f16"),
    case("jax.lax.dot_general", lambda x, y: lax.dot_general(x.astype("float8_e4m3fn"), y.astype("float8_e4m3fn"), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32), X, Y, label="float8"),
    case("jax.numpy.sum", lambda x: jnp.sum(x[:0]), X, label="empty"),
    case("jax.numpy.sort", lambda x: jnp.sort(x), np.float32([[3, np.nan, -0.0, 0.0, np.inf, -np.inf, np.nan, 1]]), label="nan"),
    case("jax.jit", lambda x: (jax.jit, donated(x))[1], X, host=True, label="donation"),
    case("jax.experimental.custom_partitioning.custom_partitioning", lambda x: (jax.experimental.custom_partitioning, partitioned(x))[1], X, environment=FOUR, host=True),
    case("jax.debug.inspect_array_sharding", lambda x: (jax.debug.inspect_array_sharding, shown(x))[1], X, host=True),
    case("jax.debug.visualize_array_sharding", lambda x: _drawn(x), X, host=True),
    case("jax.profiler.trace", lambda x: (jax.profiler.trace, traced(x))[1], X, host=True),
    case("jax.experimental.compute_on.compute_on", lambda x: (compute_on, on_host(x))[1], X, host=True),
    case("jax.experimental.layout.Layout", lambda x: _laid_out(x), X, host=True,
         unsupported="arrays have one order in memory, row-major",
         reason="all arrays are row-major, and another layout is an error ([differences](#differences-from-jaxs-cpu-client))"),
    case("jax.numpy.from_dlpack", lambda x: (jnp.from_dlpack, on_loan(x))[1], X, host=True, label="out",
         unsupported="cannot be used as a DLPack device",
         reason="`np.from_dlpack(x)` of an array on hlokit: jaxlib knows no DLPack number for the platform"),
    case("jax.lax.rng_uniform", lambda a: lax.rng_uniform(a, a + 1, (1000,)).mean().round(0), np.float32(0.1), host=True),
    case("jax.random.normal", lambda key: jax.random.normal(jax.random.wrap_key_data(key), (257,)), KEY, label="many"),
]  # fmt: skip


def _drawn(x):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        jax.debug.visualize_array_sharding(jax.device_put(x, devices()[0]))
    return bool(out.getvalue())


def _laid_out(x):
    order = jax.experimental.layout.Format(
        jax.experimental.layout.Layout((1, 0)), jax.sharding.SingleDeviceSharding(devices()[0])
    )
    return jax.jit(lambda v: v + 1, out_shardings=order)(x)
