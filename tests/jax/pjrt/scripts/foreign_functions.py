"""jax.ffi: handlers of tests/ffi registered for the platform that PLATFORM names, called by programs on hlokit.

Run by tests/jax/pjrt/scripts/run.py.
"""

import ctypes
import functools
import gc
import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.ffi import build

jax.config.update("jax_enable_x64", True)
PLATFORM = os.environ["PLATFORM"]
C, CC = build.load("handlers.c"), build.load("handlers.cc")
call, Struct = jax.ffi.ffi_call, jax.ShapeDtypeStruct
X = np.arange(4, dtype=np.float32)
FLOATS = Struct((4,), np.float32)
INTEGER = Struct((), np.int64)


def register():
    for function in (CC.CounterId, CC.CounterInfo, CC.TraceId, CC.TraceInfo, CC.DataId):
        function.restype = ctypes.c_void_p
    capsule = jax.ffi.pycapsule

    def of_type(id, info):
        return {"type_id": capsule(id()), "type_info": capsule(info())}

    jax.ffi.register_ffi_type("checks counter", of_type(CC.CounterId, CC.CounterInfo), platform=PLATFORM)
    jax.ffi.register_ffi_type("checks trace", of_type(CC.TraceId, CC.TraceInfo), platform=PLATFORM)
    for name in ("Describe", "Fail", "InPlace", "Later"):
        jax.ffi.register_ffi_target(name, capsule(getattr(C, name)), platform=PLATFORM)
    for name in ("Scale", "Attrs", "Sum", "Token", "Where", "Stream", "Pool", "LaterCc", "Sleep", "FailCc", "Throw"):
        jax.ffi.register_ffi_target(name, capsule(getattr(CC, name)), platform=PLATFORM)
    jax.ffi.register_ffi_target("Counter", {
        "instantiate": capsule(CC.CounterInstantiate), "execute": capsule(CC.CounterExecute),
    }, platform=PLATFORM)  # fmt: skip
    jax.ffi.register_ffi_target("Trace", {
        "prepare": capsule(CC.TracePrepare), "initialize": capsule(CC.TraceInitialize),
        "execute": capsule(CC.TraceExecute),
    }, platform=PLATFORM)  # fmt: skip


if os.environ.get("REGISTER", "before") == "after":
    jax.devices()
register()
assert "hlokit" in jax.devices()[0].client.platform_version
assert len(jax.devices()) == 4


def scale(x, factor=2.0, **options):
    return call("Scale", Struct(x.shape, np.float32), **options)(x, scale=np.float32(factor))


def described(*operands, results=(), **attributes):
    text, *rest = call("Describe", [Struct((4000,), np.uint8), *results])(*operands, **attributes)
    return bytes(np.asarray(text)).rstrip(b"\0").decode().splitlines(), rest


def raises(text, f, type=jax.errors.JaxRuntimeError):
    try:
        jax.block_until_ready(f())
    except type as error:
        assert text in str(error), str(error)
        return
    raise AssertionError(f"{type.__name__} was not raised")


def equal(found, expected):
    np.testing.assert_array_equal(np.asarray(found), expected)


def check_operands_and_results():
    equal(scale(X), 2 * X)
    equal(jax.jit(lambda x: scale(x + 1) * 2)(X), 4 * (X + 1))
    for result in call("Sum", [FLOATS] * 3)(X, X, X):
        equal(result, 3 * X)
    equal(scale(np.zeros((0, 3), np.float32)), np.zeros((0, 3)))


def check_attributes():
    found = call("Attrs", Struct((8,), np.float64))(
        b=True, i8=np.int8(-3), u64=np.uint64(7), f64=np.float64(2.5), text="hello", axes=np.array([1, 2, 3]),
        nested={"inner": np.int32(9)},
    )  # fmt: skip
    equal(found, [1, -3, 7, 2.5, 5, 123, 9, 1])
    lines, _ = described(
        a=np.array([[1, 2], [3, 4]], np.int16), b=np.array(True), c=np.float32(np.nan), d={"z": 1, "a": 's\n"é'},
        e=np.arange(101, dtype=np.uint8), f=1, g=2.0, h=True, i="", j=np.float16(1),
    )  # fmt: skip
    assert lines == [
        "attr 61 array 3 4 0100020003000400", "attr 62 array 1 1 01", "attr 63 scalar 11 0000c07f", "attr 64 {",
        "attr 61 string 730a22c3a9", "attr 7a scalar 5 0100000000000000", "}",
        f"attr 65 array 6 101 {bytes(range(101)).hex()}", "attr 66 scalar 5 0100000000000000",
        "attr 67 scalar 12 0000000000000040", "attr 68 scalar 1 01", "attr 69 string ", "attr 6a scalar 10 003c",
    ], lines  # fmt: skip


def check_element_types():
    for name, number, data in (
        ("int4", 21, "01f10000"), ("uint4", 22, "01f10000"), ("int2", 26, "d1000000"), ("bool", 1, "01000101"),
        ("bfloat16", 16, "803f0000803f80bf"), ("float8_e5m2", 19, "3c003cbc"), ("float4_e2m1fn", 32, "02a20000"),
        ("complex64", 15, "0000803f0000000000000000000000000000803f00000000000080bf00000000"),
        ("int64", 5, "01000000000000000000000000000000" + "0100000000000000" + "ff" * 8),
    ):  # fmt: skip
        dtype = jnp.dtype(name)
        given = jnp.array([1, 0, 1, 15 if name == "uint4" else -1]).astype(dtype)
        lines, (copy,) = described(given, results=[Struct((4,), dtype)])
        assert lines == [f"arg {number} [4] {data}", f"ret {number} [4] "], lines
        assert copy.dtype == dtype
        equal(np.asarray(copy).astype(np.complex128), np.asarray(given).astype(np.complex128))


def check_layouts():
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    f = call(
        "Describe", [Struct((400,), np.uint8), Struct((2, 3), np.int8)], input_layouts=[(1, 0)],
        output_layouts=[None, (1, 0)],
    )  # fmt: skip
    text, copy = f(x)
    assert b"arg 2 [2,3] 000301040205\n" in bytes(np.asarray(text))
    equal(copy, x)


def check_tokens():
    def f(x):
        token = jax.lax.create_token()
        return call("Token", [jax.typeof(token), FLOATS])(token, x)[1]

    equal(jax.jit(f)(X), X)


def check_transformations():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"):
        equal(jax.vmap(functools.partial(scale, vmap_method=method))(rows), 2 * rows)
    equal(jax.jit(lambda x: jax.lax.scan(lambda c, _: (scale(c), c), x, length=5))(X)[0], 32 * X)
    equal(jax.jit(lambda x: jax.lax.while_loop(lambda x: x[1] < 100, scale, x))(X), 128 * X)
    branch = jax.jit(lambda p, x: jax.lax.cond(p, scale, lambda x: x, x))
    equal(branch(True, X), 2 * X)
    equal(branch(False, X), X)

    @jax.custom_jvp
    def twice(x):
        return scale(x)

    twice.defjvp(lambda primals, tangents: (twice(*primals), scale(*tangents)))
    equal(jax.jvp(twice, (X,), (X,))[1], 2 * X)


def check_aliases_and_donation():
    x = jnp.asarray(X)
    f = call("InPlace", FLOATS, input_output_aliases={0: 0})
    equal(f(x), X + 1)
    equal(x, X)
    given = x + 0
    equal(jax.jit(f, donate_argnums=0)(given), X + 1)
    assert given.is_deleted()


def check_context():
    number, run = call("Where", Struct((2,), np.int64))()
    again = jax.jit(call("Where", Struct((2,), np.int64)))()
    assert number == again[0] == 0 and again[1] != run
    with jax.default_device(jax.devices()[2]):
        assert jax.jit(lambda x: x[:1] * 0 + call("Where", Struct((2,), np.int64))())(jnp.ones(2, np.int64))[0] == 2
    raises("XLA_FFI_Stream_Get: the platform has no streams", lambda: call("Stream", FLOATS)())


def check_futures_and_threads():
    x = np.arange(1000, dtype=np.float32)
    equal(call("Pool", Struct((1000,), np.float32))(x), 2 * x)
    equal(call("Later", FLOATS)(), np.full(4, 7))
    equal(call("LaterCc", FLOATS)(X, milliseconds=np.int32(20), error=""), X)
    raises("DATA_LOSS", lambda: call("LaterCc", FLOATS)(X, milliseconds=np.int32(20), error="it is lost"))


def destroy():
    """What was dropped is destroyed when the plugin is entered again."""
    jax.clear_caches()
    gc.collect()
    jax.jit(lambda x: x - 3)(X)
    gc.collect()


def check_state():
    destroy()
    before = CC.Alive()
    f = jax.jit(lambda x: call("Counter", INTEGER)(x, first=np.int64(5)))
    assert [int(f(X)) for _ in range(3)] == [5, 6, 7]
    assert CC.Alive() == before + 1
    g = jax.jit(lambda x: call("Counter", INTEGER)(x, first=np.int64(-5)))
    raises("INVALID_ARGUMENT: FFI handler 'Counter' (instantiate): first is negative", lambda: g.lower(X).compile())
    for _ in range(2):
        assert int(call("Trace", INTEGER)(X)) == 100
    del f
    destroy()
    assert CC.Alive() == before


def check_errors():
    names = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED", 12: "UNIMPLEMENTED", 13: "INTERNAL"}
    for code, name in names.items():
        error = functools.partial(call("FailCc", FLOATS), code=np.int32(code), message=f"message {code}")
        raises(f"{name}: ", error)
        raises(f"message {code}", error)
    raises("Wrong number of arguments: expected 1 but got 2", lambda: call("Scale", FLOATS)(X, X, scale=np.float32(1)))
    raises("expected F32 but got S64", lambda: call("Scale", FLOATS)(X.astype(int), scale=np.float32(1)))
    raises("threw an exception: thrown", lambda: call("Throw", FLOATS)(what=np.int32(0)))
    for text in ("no target 'Nope' is registered for", "JAX's platform hlokit", "JAX's platform cpu"):
        raises(text, lambda: call("Nope", FLOATS)(X))
    equal(scale(X), 2 * X)


def check_registration():
    from hlokit.errors import BuildError

    capsule = jax.ffi.pycapsule
    wrong = BuildError if PLATFORM == "hlokit" else Exception
    raises("0.99", lambda: jax.ffi.register_ffi_target("new", capsule(C.TooNew), platform=PLATFORM), wrong)
    raises("Scale", lambda: jax.ffi.register_ffi_target("Scale", capsule(CC.Sum), platform=PLATFORM), wrong)
    jax.ffi.register_ffi_target("Scale", capsule(CC.Scale), platform=PLATFORM)
    jax.ffi.register_ffi_target("late", capsule(CC.Scale), platform=PLATFORM)
    equal(call("late", FLOATS)(X, scale=np.float32(3)), 3 * X)


def check_compiled_programs_can_be_stored():
    compiled = jax.jit(lambda x: call("Counter", INTEGER)(x, first=np.int64(8))).lower(X).compile()
    stored = serialize_executable.serialize(compiled)
    loaded = serialize_executable.deserialize_and_load(*stored, execution_devices=jax.devices()[:1])
    assert [int(compiled(X)), int(compiled(X)), int(loaded(X))] == [8, 9, 8]


def check_devices():
    mesh = Mesh(np.array(jax.devices()), ("i",))
    spec = PartitionSpec("i")
    x = np.arange(8, dtype=np.float32)
    shard_map = functools.partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    equal(jax.jit(shard_map(scale))(x), 2 * x)
    where = np.asarray(jax.jit(shard_map(lambda _: call("Where", Struct((2,), np.int64))()))(x)).reshape(4, 2)
    assert where[:, 0].tolist() == [0, 1, 2, 3] and len(set(where[:, 1])) == 1, where
    reverse = Mesh(np.array(jax.devices()[::-1]), ("i",))
    where = jax.jit(functools.partial(
        jax.shard_map, mesh=reverse, in_specs=spec, out_specs=spec, check_vma=False
    )(lambda _: call("Where", Struct((2,), np.int64))()))(x)  # fmt: skip
    assert np.asarray(where)[::2].tolist() == [3, 2, 1, 0], where
    equal(jax.jit(scale)(jax.device_put(x, NamedSharding(mesh, spec))), 2 * x)

    def fails_on_one(x):
        fails = call("FailCc", Struct(x.shape, x.dtype))
        return jax.lax.cond(
            jax.lax.axis_index("i") == 2, lambda x: fails(code=np.int32(13), message="on device 2"), lambda x: x, x
        )

    raises("on device 2", lambda: jax.jit(shard_map(fails_on_one))(x))


def check_threads_of_the_application():
    f = jax.jit(lambda x: scale(x))
    failed = []

    def work():
        for _ in range(20):
            if not (np.asarray(f(X)) == 2 * X).all():
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def check_interrupts():
    f = jax.jit(call("Sleep", Struct((), np.int32)))
    f(np.int32(1))
    heard = 0
    for _ in range(3):
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            try:
                f(np.int32(150)).block_until_ready()
            except Exception as error:
                assert "KeyboardInterrupt" in str(error)
            time.sleep(0.3)
        except KeyboardInterrupt:
            heard += 1
        timer.join()
    assert heard == 3, heard
    assert f(np.int32(3)) == 3
