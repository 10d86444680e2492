"""JAX on one device."""

import os
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import SingleDeviceSharding

jax.config.update("jax_enable_x64", True)
DEVICE = jax.devices()[0]


def cpu(f, *args):
    """f's result on JAX's own CPU client."""
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.tree.map(np.asarray, f(*args))


def raises(type, text, f, *args):
    try:
        f(*args)
    except type as error:
        assert text in str(error), str(error)
        return
    raise AssertionError(f"{type} was not raised")


def aligned(size):
    """Zeros that JAX may use in place."""
    raw = np.zeros(8 * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 8 * size].view(np.float64)


def check_platform():
    assert jax.default_backend() == "hlokit"
    assert [d.platform for d in jax.devices()] == ["hlokit"] and jax.devices("cpu")
    assert DEVICE.id == 0 and DEVICE.device_kind == "hlokit" and str(DEVICE) == "HlokitDevice(id=0)"
    assert DEVICE.process_index == 0 and DEVICE.local_hardware_id == 0
    assert DEVICE.client.platform_version.splitlines()[-1].startswith("hlokit ")


def check_round_trips_of_all_types():
    names = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
        bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2 float8_e5m2fnuz float8_e3m4 float8_e4m3
        int4 uint4 int2 uint2 float4_e2m1fn"""
    for name in names.split():
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        for shape in ((), (0,), (3,), (2, 3), (2, 0, 3), (1, 2, 1, 5)):
            array = np.resize(np.array([0, 1, 1, 0, 1]), shape).astype(dtype)
            there = jax.device_put(array)
            assert there.dtype == dtype and there.shape == shape, name
            for back in (there, jax.jit(lambda x: x)(there), jax.device_put(array.T).T):
                np.testing.assert_array_equal(np.asarray(back).astype(np.complex128), array.astype(np.complex128), name)


def check_exponents_only():
    array = np.array([1, 2, 4], ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(np.asarray(jax.device_put(array)).astype(float), [1, 2, 4])


def check_arrays_with_gaps():
    array = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    for seen in (
        array[::2],
        array[:, ::-1],
        array.transpose(2, 0, 1),
        array[1:, ::3, ::-2],
        np.broadcast_to(array[0], (2, 4, 5)),
    ):
        np.testing.assert_array_equal(np.asarray(jax.device_put(seen)), seen)


def check_jit():
    f = jax.jit(lambda x, y: {"sum": x + y, "product": (x * y, x @ y)})
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[5, 6], [7, 8]])
    jax.tree.map(np.testing.assert_allclose, jax.tree.map(np.asarray, f(x, y)), cpu(f, x, y))


def check_no_arguments_and_no_results():
    assert jax.jit(lambda: 3)() == 3
    assert jax.jit(lambda x: ())(1.0) == ()
    assert jax.jit(lambda x: None)(jnp.ones(3)) is None


def check_many_arguments():
    xs = [jnp.float32(i) for i in range(300)]
    assert [float(v) for v in jax.jit(lambda *xs: [x + 1 for x in xs])(*xs)] == [i + 1.0 for i in range(300)]


def check_grad():
    f = jax.jit(jax.value_and_grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)))
    x = np.linspace(-1, 1, 7)
    jax.tree.map(np.testing.assert_allclose, jax.tree.map(np.asarray, f(x)), cpu(f, x))


def check_scan_and_cond():
    def f(x):
        return jax.lax.scan(lambda c, v: (jax.lax.cond(v > 2, jnp.sin, jnp.cos, c) + v, c * v), x, jnp.arange(5.0))

    jax.tree.map(np.testing.assert_allclose, jax.tree.map(np.asarray, jax.jit(f)(0.5)), cpu(jax.jit(f), 0.5))


def check_vmap():
    f = jax.vmap(lambda a, b: jnp.dot(a, b) / jnp.linalg.norm(a))
    x, y = np.arange(12.0).reshape(3, 4) + 1, np.ones((3, 4))
    np.testing.assert_allclose(f(x, y), cpu(f, x, y))


def check_random():
    def f():
        key = jax.random.key(7)
        return jax.random.bits(key, (5,)), jax.random.uniform(key, (5,)), jax.random.permutation(key, 9)

    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, jax.jit(f)()), cpu(jax.jit(f)))


def check_threads():
    import threading

    f, failures = jax.jit(lambda x: jnp.cumsum(x) * 2), []

    def work(k):
        for _ in range(50):
            if float(f(jnp.full(100, k * 1.0))[-1]) != 200.0 * k:
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def check_donation():
    f = jax.jit(lambda x, y: (x + y, x - y), donate_argnums=0)
    for size in (5, 1 << 19):
        x, y = jnp.full(size, 3.0), jnp.ones(size)
        address = x.unsafe_buffer_pointer()
        total, difference = f(x, y)
        assert x.is_deleted() and not y.is_deleted()
        assert address in (total.unsafe_buffer_pointer(), difference.unsafe_buffer_pointer())
        assert float(total[0]) == 4 and float(difference[-1]) == 2
    raises(RuntimeError, "deleted", lambda: x + 1)


def check_donated_memory_of_others_is_copied():
    """What NumPy sees must not change."""
    f = jax.jit(lambda x: x * 2, donate_argnums=0)
    x = jnp.arange(1000.0) + 1
    seen = np.asarray(x)
    before = seen.copy()
    twice = f(x)
    np.testing.assert_array_equal(seen, before)
    np.testing.assert_array_equal(np.asarray(twice), before * 2)
    mine = aligned(1 << 13)
    there = jax.device_put(mine)
    assert there.unsafe_buffer_pointer() == mine.ctypes.data
    f(there)
    assert not mine.any()


def check_donating_twice():
    f = jax.jit(lambda x, y: x + y, donate_argnums=0)
    g = jax.jit(lambda x, y: x + y, donate_argnums=(0, 1))
    for call in (f, g):
        x = jnp.ones(5)
        raises((ValueError, RuntimeError), "donated", call, x, x)
        assert not x.is_deleted() and float(x.sum()) == 5


def check_memory_is_used_again():
    def address(size):
        """Of an array that is gone, which was copied: its elements were not aligned."""
        return jax.device_put(np.ones(size + 1, np.float32)[1:]).unsafe_buffer_pointer()

    assert address(1 << 15) == address(1 << 15)
    for size in range(1 << 14, 1 << 18, 1 << 10):  # more sizes than memory is kept for
        assert address(size) == address(size)


def check_copies_share_until_deleted():
    x = jnp.arange(4.0)
    there = jax.device_put(x, SingleDeviceSharding(DEVICE, memory_kind="pinned_host"))
    x.delete()
    assert there.sharding.memory_kind == "pinned_host" and there.tolist() == [0, 1, 2, 3]


def check_memory_kinds():
    kinds = [m.kind for m in DEVICE.addressable_memories()]
    assert kinds == ["device", "pinned_host", "unpinned_host"] and DEVICE.default_memory().kind == "device"
    host = SingleDeviceSharding(DEVICE, memory_kind="pinned_host")
    out = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(host, None))(jnp.arange(3.0))
    assert [v.sharding.memory_kind for v in out] == ["pinned_host", "device"]
    moved = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1)(out[0])
    assert moved.tolist() == [1, 3, 5]


def check_views():
    x = jnp.arange(100.0)
    array = np.asarray(x)
    assert array.ctypes.data == x.unsafe_buffer_pointer() and not array.flags.writeable
    assert memoryview(x).nbytes == 800
    del x
    assert array[99] == 99.0


def check_dlpack_in():
    array = aligned(1 << 15)
    array[:] = np.arange(1 << 15)
    x = jnp.from_dlpack(array)
    assert np.shares_memory(np.asarray(x), array) and float((x + 1).sum()) == array.sum() + (1 << 15)


def check_errors():
    raises(jax.errors.JaxRuntimeError, "more than the limit", jax.jit(lambda x: jnp.zeros((1 << 21, 1 << 21)) + x), 1.0)
    x = jnp.ones(3)
    x.delete()
    raises(RuntimeError, "deleted", np.asarray, x)


def check_error_while_an_exception_is_pending():
    raises(TypeError, "isinstance", lambda: isinstance(jnp.ones(3) + 1, 5))


def check_callbacks():
    def f(x):
        return jax.pure_callback(lambda v: np.sort(v), jax.ShapeDtypeStruct((4,), np.float64), x) + 1

    assert jax.jit(f)(jnp.array([3.0, 1.0, 2.0, 0.0])).tolist() == [1, 2, 3, 4]

    def broken(x):
        raise ValueError("by design")

    g = jax.jit(lambda x: jax.pure_callback(broken, jax.ShapeDtypeStruct((), np.float64), x))
    raises(jax.errors.JaxRuntimeError, "by design", g, 1.0)


def check_serialization():
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    compiled = jax.jit(lambda x: jnp.sin(x) @ x.T).lower(jnp.ones((3, 3))).compile()
    again = deserialize_and_load(*serialize(compiled))
    np.testing.assert_array_equal(again(jnp.ones((3, 3))), compiled(jnp.ones((3, 3))))


def check_analysis():
    compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((8, 8))).compile()
    assert compiled.cost_analysis()["flops"] >= 2 * 8**3 - 64
    stats = compiled.memory_analysis()
    assert stats.argument_size_in_bytes == stats.output_size_in_bytes == 512
    assert "dot" in compiled.as_text() and "replica_count=0" not in compiled.as_text()


def check_compilation_cache():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        try:
            assert jax.jit(lambda x: x * 7 + 3)(jnp.ones(9)).tolist() == [10] * 9
            stored = [name for name in os.listdir(folder) if name.endswith("-cache")]
            jax.clear_caches()
            assert stored and jax.jit(lambda x: x * 7 + 3)(jnp.ones(9)).tolist() == [10] * 9
        finally:
            jax.config.update("jax_compilation_cache_dir", None)


def check_ctrl_c():
    """JAX raises its own error first; Python raises the interrupt as soon as it runs."""
    import signal
    import threading
    import time

    f = jax.jit(lambda n: jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0.0, 1.0))[1])
    f(3.0)
    start = time.monotonic()
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        try:
            f(1e15)
        except Exception as error:
            assert "KeyboardInterrupt" in str(error)
            time.sleep(60)
    except KeyboardInterrupt:
        assert time.monotonic() - start < 50
    else:
        raise AssertionError("no interrupt")
    np.testing.assert_allclose(float(f(1.0)), np.sin(1.0))


def check_a_call_stack_of_a_thousand_frames():
    def at(depth, f):
        return f() if depth == 0 else at(depth - 1, f)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        made = at(1000, lambda: jax.jit(lambda x: x * 2 + 1)(jnp.ones(3)))
    finally:
        sys.setrecursionlimit(limit)
    assert made.tolist() == [3, 3, 3]


def check_ordered_effects_of_what_was_exported_for_the_cpu():
    from jax import export
    from jax._src import core, effects
    from jax._src.interpreters import mlir

    class Ordered(effects.Effect):
        pass

    effect, primitive = Ordered(), core.Primitive("with_effect")
    for kinds in (effects.lowerable_effects, effects.ordered_effects):
        kinds.add_type(Ordered)
    Ordered.__eq__ = lambda self, other: type(self) is type(other)
    Ordered.__hash__ = lambda self: hash("Ordered")
    primitive.def_effectful_abstract_eval(lambda x: (x, {effect}))

    def lowering(context, x):
        context.set_tokens_out(mlir.TokenSet({effect: context.tokens_in.get(effect)}))
        return [x]

    mlir.register_lowering(primitive, lowering)
    exported = export.export(jax.jit(lambda x: primitive.bind(x + 1)), platforms=("cpu",))(np.float32([0, 0]))
    assert jax.jit(exported.call)(np.ones(2, np.float32)).tolist() == [2, 2]


def check_buffer_callbacks_are_told_of_their_call():
    from jax.experimental import buffer_callback

    seen = []

    def f(context, out, x):
        try:
            seen.append(context.stream)
        except jax.errors.JaxRuntimeError as error:
            seen.append("GPU" in str(error))
        seen.extend((context.stage, x.shape, x.dtype, x.ndim, x.writeable, out.writeable, np.from_dlpack(out).shape))
        np.asarray(out)[...] = np.asarray(x) + 1

    call = buffer_callback.buffer_callback(f, jax.ShapeDtypeStruct((3,), np.float32))
    made = jax.jit(lambda x: call(x))(np.ones(3, np.float32))
    assert made.tolist() == [2, 2, 2]
    execute = buffer_callback.ExecutionStage.EXECUTE
    assert seen == [True, execute, (3,), np.dtype(np.float32), 1, False, True, (3,)], seen


def check_topologies():
    from jax.experimental import topologies

    expected = f"topology not implemented for {jax.default_backend()}"
    try:
        topologies.get_topology_desc(platform=jax.default_backend())
    except NotImplementedError as error:
        assert str(error) == expected, error
    else:
        raise AssertionError


def check_layouts():
    from jax.experimental.layout import Format, Layout, with_layout_constraint

    transposed = jax.jit(lambda x: x.transpose(2, 1, 0)).lower(jnp.ones((4, 8, 16))).compile()
    assert transposed.input_formats[0][0].layout.major_to_minor == (0, 1, 2)
    assert transposed.output_formats.layout.major_to_minor == (0, 1, 2)
    x, place = jnp.ones((8, 16)), SingleDeviceSharding(jax.devices()[0])
    for order, is_there in (((0, 1), True), ((1, 0), False)):
        made = jax.jit(lambda x, o=order: x + 1, out_shardings=Format(Layout(order), place))
        taken = jax.jit(lambda x, o=order: x + 1, in_shardings=Format(Layout(order), place))
        inside = jax.jit(lambda x, o=order: with_layout_constraint(x * 2, Layout(o)))
        for f in (made, taken, inside):
            try:
                assert f(x).tolist() == [[2.0] * 16] * 8 and is_there
            except (jax.errors.JaxRuntimeError, ValueError) as error:
                assert not is_there, error
                assert f is taken or "in the layout {0,1}: arrays have one order in memory, row-major" in str(error)


def check_algorithms_of_products():
    for name, dtype in [
        ("F16_F16_F32", jnp.float16), ("BF16_BF16_BF16", jnp.bfloat16), ("BF16_BF16_F32_X9", jnp.float32),
        ("TF32_TF32_F32", jnp.float32), ("TF32_TF32_F32_X3", jnp.float32), ("ANY_F8_ANY_F8_F32", jnp.float8_e4m3fn),
    ]:  # fmt: skip
        x = (jnp.arange(12.0).reshape(3, 4) / 4).astype(dtype)
        product = jax.lax.dot(x, x.T, precision=name)
        expected = np.asarray(x, np.float64) @ np.asarray(x, np.float64).T
        assert product.dtype == dtype, name
        assert np.array_equal(np.asarray(product), expected.astype(product.dtype)), name


def check_events_of_the_compilation_cache():
    from jax._src import compilation_cache, config, monitoring

    counts = {}

    def count(event, **_):
        counts[event] = counts.get(event, 0) + 1

    monitoring.register_event_listener(count)
    try:
        for is_enabled, event in ((False, "task_disabled_cache"), (True, "tasks_using_cache")):
            compilation_cache.reset_cache()
            counts.clear()
            with config.enable_compilation_cache(is_enabled):
                jax.jit(lambda x: x + 1)(1)
                jax.jit(lambda x: x + 3)(3)
            assert counts.get(f"/jax/compilation_cache/{event}") == 1, counts
    finally:
        monitoring.unregister_event_listener(count)
        compilation_cache.reset_cache()


def check_products_with_masks_are_selects_unless_the_pass_is_disabled():
    x, mask = jnp.array([jnp.inf, jnp.nan, 3.0]), jnp.array([False, False, True])

    def f(x, mask):
        return x * mask.astype(x.dtype)

    assert jax.jit(f)(x, mask).tolist() == [0, 0, 3]
    kept = jax.jit(f, compiler_options={"xla_disable_hlo_passes": "pred-multiply-simplifier"})
    assert jnp.isnan(kept(x, mask)).tolist() == [True, True, False]
