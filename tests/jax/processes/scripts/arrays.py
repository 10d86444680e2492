"""What JAX says of devices, arrays and programs that several processes have."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

P = jax.P
RANK, COUNT = jax.process_index(), jax.process_count()
EACH = int(os.environ.get("HLOKIT_NUM_DEVICES", "1"))
MESH = jax.make_mesh((COUNT * EACH,), ("x",), (jax.sharding.AxisType.Auto,))
ROWS, WHOLE = jax.NamedSharding(MESH, P("x")), jax.NamedSharding(MESH, P())
VALUES = np.arange(24.0 * COUNT * EACH, dtype=np.float32).reshape(-1, 12)


def own(values: np.ndarray) -> np.ndarray:
    """The rows of this process's devices."""
    size = len(values) // COUNT
    return values[RANK * size : (RANK + 1) * size]


def same(array: jax.Array, values: np.ndarray) -> None:
    """The array is this value: every shard of this process's is its part, and there are all of them."""
    assert array.shape == values.shape and array.dtype == values.dtype, (array.shape, array.dtype)
    assert len(array.addressable_shards) == EACH
    for shard in array.addressable_shards:
        assert shard.device.process_index == RANK
        np.testing.assert_array_equal(shard.data, values[shard.index])


def check_processes() -> None:
    assert (jax.process_index(), jax.process_count()) == (RANK, COUNT)
    assert (jax.device_count(), jax.local_device_count()) == (COUNT * EACH, EACH)
    assert [d.id for d in jax.devices()] == list(range(COUNT * EACH))
    assert [d.process_index for d in jax.devices()] == [n // EACH for n in range(COUNT * EACH)]
    assert jax.local_devices() == [d for d in jax.devices() if d.process_index == RANK]
    other = (RANK + 1) % COUNT
    assert jax.local_devices(process_index=other) == jax.devices()[other * EACH : (other + 1) * EACH]
    assert [d.local_hardware_id for d in jax.local_devices()] == list(range(EACH))
    assert "hlokit" in jax.devices()[0].client.platform_version
    kinds = {m.kind for m in jax.local_devices()[0].addressable_memories()}
    assert kinds == {"device", "pinned_host", "unpinned_host"}


def check_one_process_alone() -> None:
    x = jnp.arange(4.0) * (RANK + 1)
    assert x.is_fully_addressable and x.devices() == {jax.local_devices()[0]}
    assert float(x.sum()) == 6 * (RANK + 1)
    own_mesh = jax.sharding.Mesh(np.array(jax.local_devices()), "y")
    y = jax.device_put(np.ones(4 * EACH), jax.NamedSharding(own_mesh, P("y")))
    assert float(jax.jit(lambda y: (y * RANK).sum())(y)) == 4 * EACH * RANK


def check_global_arrays() -> None:
    for x in (
        jax.make_array_from_process_local_data(ROWS, own(VALUES)),
        jax.make_array_from_callback(VALUES.shape, ROWS, lambda index: VALUES[index]),
        jax.device_put(VALUES, ROWS),
    ):
        assert not x.is_fully_addressable and len(x.global_shards) == COUNT * EACH
        same(x, VALUES)
    same(jax.device_put(VALUES, WHOLE), VALUES)


def check_programs() -> None:
    x = jax.device_put(VALUES, ROWS)
    same(jax.jit(lambda x: x * 2 + 1)(x), VALUES * 2 + 1)
    total = jax.jit(jnp.sum)(x)
    assert total.is_fully_replicated and float(total) == VALUES.sum()
    same(jax.jit(lambda x: x.T @ x, out_shardings=WHOLE)(x), VALUES.T @ VALUES)
    same(jax.jit(lambda x: x[::-1], out_shardings=ROWS)(x), VALUES[::-1])
    loss = jax.jit(jax.value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w))))
    value, gradient = loss(jax.device_put(np.ones((12, 3), np.float32), WHOLE), x)
    multihost_utils.assert_equal([np.asarray(value), np.asarray(gradient)], "other gradients")


def check_regions() -> None:
    @jax.jit
    @partial(jax.shard_map, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    def turned(x: jax.Array) -> jax.Array:
        count = COUNT * EACH
        x = jax.lax.ppermute(x, "x", [(n, (n + 1) % count) for n in range(count)])
        return x + jax.lax.psum(jax.lax.axis_index("x"), "x").astype(x.dtype)

    count = COUNT * EACH
    same(turned(jax.device_put(VALUES, ROWS)), np.roll(VALUES, 2, 0) + np.float32(count * (count - 1) // 2))


def check_donation() -> None:
    x = jax.device_put(VALUES, ROWS)
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    same(y, VALUES + 1)
    scaled = jax.jit(lambda a, b: (a * b, b), donate_argnums=(0, 1))
    a = jax.device_put(VALUES, ROWS)
    for _ in range(3):
        a, y = scaled(a, y)
    same(a, VALUES * (VALUES + 1) * (VALUES + 1) * (VALUES + 1))


def check_subsets() -> None:
    """The last process runs a program alone, then all go on together."""
    if RANK == COUNT - 1:
        few = jax.sharding.Mesh(np.array(jax.local_devices()), "z")
        x = jax.jit(lambda x: x.sum(), out_shardings=jax.NamedSharding(few, P()))(np.ones(5))
        assert float(x) == 5
    reordered = jax.sharding.Mesh(np.array(jax.devices())[::-1], "x")
    backwards = jax.NamedSharding(reordered, P("x"))
    x = jax.make_array_from_callback(VALUES.shape, backwards, lambda index: VALUES[index])
    y = jax.jit(lambda x: jnp.cumsum(x, 0), out_shardings=backwards)(x)
    same(y, np.cumsum(VALUES, 0))
    assert y.sharding == backwards


def check_devices_of_another_process() -> None:
    """A program of devices that this process has none of: its result has no shards here."""
    others = jax.local_devices(process_index=COUNT - 1)
    mesh = jax.sharding.Mesh(np.array(others), "z")
    divided, alone = jax.NamedSharding(mesh, P("z")), jax.sharding.SingleDeviceSharding(others[0])
    for x in (jax.device_put(VALUES, divided), jax.device_put(VALUES, alone)):
        y, total = jax.jit(lambda x: (x + 1, x.sum()))(x)
        assert not y.is_fully_addressable or RANK == COUNT - 1
        if RANK == COUNT - 1:
            np.testing.assert_array_equal(y, VALUES + 1)
            assert float(total) == VALUES.sum()
        else:
            assert y.addressable_shards == [] and total.addressable_shards == []


def check_multihost_utils() -> None:
    multihost_utils.sync_global_devices("here")
    np.testing.assert_array_equal(
        multihost_utils.process_allgather(np.arange(3) + RANK), np.arange(3) + np.arange(COUNT)[:, None]
    )
    x = jax.device_put(VALUES, ROWS)
    np.testing.assert_array_equal(multihost_utils.process_allgather(x, tiled=True), VALUES)
    sent = multihost_utils.broadcast_one_to_all({"a": np.arange(3) + RANK, "b": np.float32(RANK)})
    np.testing.assert_array_equal(sent["a"], np.arange(3))
    assert sent["b"] == 0
    multihost_utils.assert_equal(np.arange(3), "different")
    local = multihost_utils.global_array_to_host_local_array(x, MESH, P("x"))
    np.testing.assert_array_equal(local, own(VALUES))
    same(multihost_utils.host_local_array_to_global_array(own(VALUES), MESH, P("x")), VALUES)
    try:
        multihost_utils.assert_equal(np.arange(3) + RANK, "different values")
    except AssertionError as error:
        assert "different values" in str(error)
    else:
        raise AssertionError("not noticed")


def check_resharding() -> None:
    x = jax.device_put(VALUES, ROWS)
    same(jax.device_put(x, WHOLE), VALUES)
    columns = jax.NamedSharding(jax.make_mesh((COUNT, EACH), ("p", "q")), P("q", "p"))
    same(jax.device_put(x, columns), VALUES)


def check_text() -> None:
    kind = jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype)
    compiled = jax.jit(lambda x: x.sum(0), in_shardings=ROWS, out_shardings=WHOLE).lower(kind).compile()
    assert "all-reduce" in compiled.as_text()
    same(compiled(jax.device_put(VALUES, ROWS)), VALUES.sum(0))


def check_callbacks() -> None:
    """In a region every device calls with its shard; elsewhere the first device, with the whole value, for all."""
    seen: list[np.ndarray] = []

    def noted(x: np.ndarray) -> np.ndarray:
        seen.append(np.array(x))
        return np.asarray(x) * 2

    def twice(x: jax.Array) -> jax.Array:
        return jax.pure_callback(noted, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x = jax.device_put(VALUES, ROWS)
    same(jax.jit(lambda x: twice(x) + 1, out_shardings=ROWS)(x), VALUES * 2 + 1)
    assert [a.tolist() for a in seen] == [VALUES.tolist()] * (RANK == 0), seen
    seen.clear()
    region = partial(jax.shard_map, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    same(jax.jit(region(lambda x: twice(x) - jax.lax.axis_index("x")))(x), VALUES * 2 - np.float32(np.arange(len(VALUES))[:, None] // 2))
    assert sorted(a.tolist() for a in seen) == [own(VALUES)[2 * n : 2 * n + 2].tolist() for n in range(EACH)], seen
    seen.clear()

    def told(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda a, i: seen.append(np.array(i)), x, jax.lax.axis_index("x"))
        jax.debug.print("of a device")
        return jax.lax.psum(x, "x")

    same(jax.jit(region(told))(x), np.tile(VALUES.reshape(-1, 2, 12).sum(0), (COUNT * EACH, 1)))
    jax.effects_barrier()
    assert sorted(map(int, seen)) == list(range(RANK * EACH, (RANK + 1) * EACH)), seen
    seen.clear()

    @jax.jit
    def looped(x: jax.Array) -> jax.Array:
        def body(i: jax.Array, x: jax.Array) -> jax.Array:
            jax.experimental.io_callback(lambda a, i: seen.append(np.array(i)), None, x.sum(), i)
            return x + 1

        return jax.lax.fori_loop(0, 3, body, x)

    same(looped(x), VALUES + 3)
    jax.effects_barrier()
    assert sorted(map(int, seen)) == [0, 1, 2] * (RANK == 0), seen


def check_an_error_in_a_callback() -> None:
    """It is everyone's."""
    def broken(x: np.ndarray) -> np.ndarray:
        raise ValueError("broken")

    def called(x: jax.Array) -> jax.Array:
        return jax.pure_callback(broken, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    try:
        jax.block_until_ready(jax.jit(called)(jax.device_put(VALUES, ROWS)))
    except jax.errors.JaxRuntimeError as error:
        assert "ValueError: broken" in str(error), error
    else:
        raise AssertionError("no error")
