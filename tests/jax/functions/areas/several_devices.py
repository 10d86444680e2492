"""jax.shard_map and its collectives, jax.pmap, jax.sharding: on four devices."""

import jax
import jax.experimental.mesh_utils
import jax.experimental.multihost_utils
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.jax.functions.table import case, devices, normal

FOUR = (("HLOKIT_NUM_DEVICES", "4"), ("XLA_FLAGS", "--xla_force_host_platform_device_count=4"))
X, Y = normal(8, 4), normal(8, 4, seed=1)
ROWS = P("i")
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mesh(*shape, names=("i", "j")):
    shape = shape or (4,)
    return Mesh(np.array(devices()[:4]).reshape(shape), names[: len(shape)])


def mapped(body, to=ROWS, check_vma=True):
    """Each device has two rows of x."""
    return lambda x: jax.shard_map(body, mesh=mesh(), in_specs=P("i"), out_specs=to, check_vma=check_vma)(x)


def collective(name, body, to=ROWS, **flags):
    return case(f"jax.lax.{name}", mapped(body, to), X, environment=FOUR, **flags)


def over(name, body, *args, **flags):
    return case(f"jax.{name}", body, *args, environment=FOUR, **flags)


def spread(x, *spec):
    return jax.device_put(x, NamedSharding(mesh(), jax.sharding.PartitionSpec(*spec)))


def constrained(x):
    return lax.with_sharding_constraint(jnp.sin(x) @ x.T, NamedSharding(mesh(), P("i")))


def ring_attention(q, k):
    def body(q, k):
        def step(carry, _):
            total, k = carry
            return (total + jnp.tanh(q @ k.T).sum(1), lax.ppermute(k, "i", RING)), None

        return lax.scan(step, (lax.pcast(jnp.zeros(2), "i", to="varying"), k), None, length=4)[0][0]

    return jax.shard_map(body, mesh=mesh(), in_specs=P("i"), out_specs=P("i"))(q, k)


def matmul_2d(x, y):
    def body(a, b):
        return lax.psum(a @ b, "j")

    return jax.shard_map(body, mesh=mesh(2, 2), in_specs=(P("i", "j"), P("j", None)), out_specs=P("i", None))(x, y.T)


def train_step(w, x):
    """Data parallel: gradients are averaged over the devices."""

    def body(w, x):
        return lax.pmean(jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(lax.pcast(w, "i", to="varying")), "i")

    return w - jax.shard_map(body, mesh=mesh(), in_specs=(P(), P("i")), out_specs=P())(w, x)


def by_callback(x):
    sharding = NamedSharding(mesh(), P("i"))
    return jax.make_array_from_callback(x.shape, sharding, lambda index: np.asarray(x)[index]) + 1


def of_pieces(x):
    pieces = [jax.device_put(x[2 * n : 2 * n + 2], device) for n, device in enumerate(devices()[:4])]
    return jax.make_array_from_single_device_arrays(x.shape, NamedSharding(mesh(), P("i")), pieces) * 2


def layout(x):
    y = jax.jit(lambda v: v @ v.T, out_shardings=NamedSharding(mesh(2, 2), P("i", "j")))(spread(x, "i"))
    return [(shard.index[0].start, shard.index[1].start, np.asarray(shard.data)) for shard in y.addressable_shards], y


CASES = [
    collective("psum", lambda x: lax.psum(x, "i"), P()),
    collective("pmean", lambda x: lax.pmean(jnp.sin(x), "i"), P()),
    collective("pmax", lambda x: lax.pmax(x, "i"), P(), no_grad=True),
    collective("pmin", lambda x: lax.pmin(x, "i"), P(), no_grad=True),
    collective("all_gather", lambda x: jnp.cumsum(lax.all_gather(x, "i", tiled=True), 0)[2:4]),
    collective("all_to_all", lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True)),
    collective("ppermute", lambda x: x + lax.ppermute(x, "i", RING)),
    collective("pshuffle", lambda x: lax.pshuffle(x, "i", [2, 0, 3, 1])),
    collective("pswapaxes", lambda x: lax.pswapaxes(x, "i", 1)),
    collective("psum_scatter", lambda x: lax.psum_scatter(jnp.sin(x), "i", scatter_dimension=1, tiled=True)),
    collective("axis_index", lambda x: x * lax.axis_index("i")),
    collective("axis_size", lambda x: x * lax.axis_size("i")),
    collective("pcast", lambda x: x + lax.pcast(jnp.float32(3), "i", to="varying")),
    over("shard_map", matmul_2d, X, Y),
    over("shard_map", ring_attention, X, Y, label="ring"),
    over("shard_map", train_step, normal(4, 3), X, label="training step"),
    over("shard_map", mapped(lambda x: jnp.sort(x, axis=0) * 2), X, types="f32 bf16 i32", label="types"),
    over("pmap", lambda x: jax.pmap(lambda v: lax.psum(jnp.sin(v), "i") + v, axis_name="i", devices=devices()[:4])(x),
         normal(4, 3), host=True),
    over("make_mesh", lambda x: jax.device_put(x, NamedSharding(jax.make_mesh((2, 2), ("i", "j"), devices=devices()[:4]), P("j", "i"))) @ x.T, X, host=True),
    over("sharding.NamedSharding", lambda x: spread(x, "i") * 2 + x.sum(), X, host=True),
    over("sharding.PartitionSpec", layout, X, host=True),
    over("sharding.Mesh", lambda x: jax.jit(lambda v: v.sum(0))(jax.device_put(x, NamedSharding(mesh(2, 2), P("j")))), X, host=True),
    over("sharding.SingleDeviceSharding", lambda x: jax.device_put(x, jax.sharding.SingleDeviceSharding(devices()[3])) + 1, X, host=True),
    over("sharding.set_mesh", lambda x: _under_mesh(x), X, host=True),
    over("sharding.reshard", lambda x: _resharded(x), X, host=True),
    over("make_array_from_callback", by_callback, X, host=True),
    over("make_array_from_single_device_arrays", of_pieces, X, host=True),
    over("devices", lambda: len(jax.devices(devices()[0].platform)), host=True),
    over("local_device_count", lambda: jax.local_device_count(devices()[0].platform), host=True),
    over("experimental.mesh_utils.create_device_mesh", lambda x: jax.device_put(x, NamedSharding(Mesh(jax.experimental.mesh_utils.create_device_mesh((2, 2), devices()[:4]), ("i", "j")), P("i", "j"))) * 2, X, host=True),
    over("experimental.multihost_utils.process_allgather", lambda x: jax.experimental.multihost_utils.process_allgather(spread(x, "i"), tiled=True), X, host=True),
    case("jax.lax.with_sharding_constraint", constrained, X, environment=FOUR),
]  # fmt: skip


def _under_mesh(x):
    with jax.sharding.set_mesh(jax.make_mesh((4,), ("i",), devices=devices()[:4])):
        return jax.jit(jnp.sin)(jax.device_put(x, P("i")))


def _resharded(x):
    with jax.sharding.set_mesh(
        jax.make_mesh((4,), ("i",), devices=devices()[:4], axis_types=(jax.sharding.AxisType.Explicit,))
    ):
        return jax.jit(lambda v: jax.sharding.reshard(jnp.sin(v), P(None, "i")))(jax.device_put(x, P("i")))
