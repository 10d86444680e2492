"""Devices, buffers and executables of xla_client: what XLA's own tests ask of them, and more of the same kinds."""

from __future__ import annotations

import _thread
import copy
import gc
import threading
import traceback
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlokit.interop import xla_client as xc
from hlokit.interop.xla_client import feeds

o, S = xc.ops, xc.Shape
to_dlpack = xc._xla.buffer_to_dlpack_managed_tensor
from_dlpack = xc._xla.dlpack_managed_tensor_to_buffer


@pytest.fixture
def client() -> xc.Client:
    return xc.make_cpu_client(num_devices=2)


def run(client: xc.Client, builder: xc.XlaBuilder, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    return xc.execute_with_python_values(client.compile(builder.build()), arguments, client)


# -- DLPack

DLPACK_TYPES = [np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float32, np.complex64, np.complex128,
                ml_dtypes.bfloat16]  # fmt: skip


@pytest.mark.parametrize("dtype", DLPACK_TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 0), (4, 1, 2)])
def test_dlpack_out_and_in(client: xc.Client, dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for device in (client.devices()[1], client):
        buffer = client.buffer_from_pyval(x)
        address = buffer.unsafe_buffer_pointer()
        capsule = to_dlpack(buffer)
        assert type(capsule).__name__ == "PyCapsule"
        del buffer
        got = from_dlpack(capsule, device, None)
        assert got.dtype == x.dtype and got.shape == shape
        assert np.asarray(got).tobytes() == x.tobytes()
        assert got.unsafe_buffer_pointer() == address or not x.size
        with pytest.raises(xc.XlaRuntimeError, match="a DLPack tensor may be consumed at most once"):
            from_dlpack(capsule, device, None)
    assert got.device() is client.devices()[0]


def test_dlpack_shares_memory_that_is_compact_and_aligned(client: xc.Client) -> None:
    device = client.devices()[0]
    room = np.arange(64, dtype=np.float32)
    start = -room.ctypes.data // 4 % 4
    aligned = room[start : start + 24].reshape(2, 3, 4)
    for array in (aligned, aligned.T, aligned.transpose(1, 0, 2)):
        got = from_dlpack(array.__dlpack__(), device, None)
        assert got.unsafe_buffer_pointer() == array.ctypes.data
        assert np.asarray(got).strides == array.strides
        assert np.array_equal(np.asarray(got), array)
    assert str(from_dlpack(aligned.T.__dlpack__(), device, None).xla_shape()) == "f32[4,3,2]{0,1,2}"
    repeated = np.lib.stride_tricks.as_strided(aligned, (2, 2, 3), (0, 48, 16))
    unaligned = room[start + 1 : start + 25].reshape(2, 3, 4)
    for array in (unaligned, unaligned.T, aligned[:, ::2], aligned[:, :, :2], repeated):
        got = from_dlpack(array.__dlpack__(), device, None)
        assert not np.may_share_memory(np.asarray(got), room)
        assert got.unsafe_buffer_pointer() % 16 == 0
        assert np.array_equal(np.asarray(got), array)


def test_what_dlpack_cannot_carry(client: xc.Client) -> None:
    device = client.devices()[0]
    buffer = client.buffer_from_pyval(np.ones(3, ml_dtypes.float8_e5m2))
    with pytest.raises(xc.XlaRuntimeError, match="XLA type F8E5M2 has no DLPack equivalent"):
        to_dlpack(buffer)
    buffer.delete()
    with pytest.raises(xc.XlaRuntimeError, match="deleted"):
        to_dlpack(buffer)
    with pytest.raises(TypeError, match="expected a buffer, got ndarray"):
        to_dlpack(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a capsule, got ndarray"):
        from_dlpack(np.ones(3), device, None)
    with pytest.raises(xc.XlaRuntimeError, match="no CPU backend"):
        from_dlpack(np.ones(3).__dlpack__())
    with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED"):
        device.get_stream_for_external_ready_events()


def test_a_capsule_keeps_the_memory_that_a_result_had(client: xc.Client) -> None:
    builder = xc.XlaBuilder("iota")
    o.Iota(builder, xc.PrimitiveType.F32, 100_000)
    executable = client.compile(builder.build())
    (buffer,) = executable.execute([])
    capsule = to_dlpack(buffer)
    buffer.delete()
    del buffer
    gc.collect()
    executable.execute([])
    assert np.array_equal(np.asarray(from_dlpack(capsule, client)), np.arange(100_000, dtype=np.float32))


# -- layouts


def transposing(builder: xc.XlaBuilder) -> xc.XlaComputation:
    x = o.Parameter(builder, 0, S("f32[2,3]{0,1}"))
    y = o.Parameter(builder, 1, S("s32[4]{0}"))
    return builder.build(o.Tuple(builder, [o.Add(x, x), y]))


def test_layouts_of_arguments_and_results(client: xc.Client) -> None:
    computation = transposing(xc.XlaBuilder("layouts"))
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.int32)
    options = xc.CompileOptions()
    plain = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(computation), options)
    assert list(map(str, plain.get_parameter_layouts())) == ["{1,0}", "{0}"]
    assert list(map(str, plain.get_output_layouts())) == ["{1,0}", "{0}"]
    said = client.compile(computation, options)
    assert list(map(str, said.get_parameter_layouts())) == ["{0,1}", "{0}"]
    options.argument_layouts = [S("f32[2,3]{0,1}"), S("s32[4]{0}")]
    options.executable_build_options.result_layout = S("(f32[2,3]{0,1}, s32[4]{0})")
    both = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(computation), options)
    assert both.get_parameter_layouts() == said.get_parameter_layouts()
    assert copy.deepcopy(both.get_output_layouts()) == both.get_output_layouts()
    for executable, strides in ((plain, (12, 4)), (said, (4, 8)), (both, (4, 8))):
        got, same = xc.execute_with_python_values(executable, [x, y], client)
        assert np.array_equal(got, x + x) and np.array_equal(same, y)
        assert got.strides == strides
    column_major = from_dlpack(np.asfortranarray(x).__dlpack__(), client)
    assert np.array_equal(np.asarray(plain.execute([column_major, client.buffer_from_pyval(y)])[0]), x + x)


def test_layouts_that_do_not_fit_the_program(client: xc.Client) -> None:
    module = xc._xla.mlir.xla_computation_to_mlir_module(transposing(xc.XlaBuilder("layouts")))
    options = xc.CompileOptions()
    options.argument_layouts = [S("f32[2,3]{0,1}")]
    with pytest.raises(xc.XlaRuntimeError, match="specify 1 argument layouts, but computation has 2 arguments"):
        client.compile(module, options)
    for wrong in ("s32[2,3]", "f32[3,2]"):
        options.argument_layouts = [S(wrong), S("s32[4]")]
        with pytest.raises(xc.XlaRuntimeError, match=r"parameter 0: want f32\[2,3\], got " + wrong[:3]):
            client.compile(module, options)
    options.argument_layouts = None
    options.executable_build_options.result_layout = S("f32[2,3]")
    with pytest.raises(xc.XlaRuntimeError, match="Result layout does not match"):
        client.compile(module, options)


# -- buffers


def test_live_buffers(client: xc.Client) -> None:
    first, second = (client.buffer_from_pyval(np.ones(3), device) for device in client.devices())
    assert client.live_buffers() == [second, first]
    assert client.devices()[0].live_buffers() == [first]
    first.delete()
    assert client.live_arrays() == [second]
    del second
    gc.collect()
    assert client.live_buffers() == []


def test_deleted_buffers_say_what_was_asked_of_them(client: xc.Client) -> None:
    buffer = client.buffer_from_pyval(np.ones(3))
    buffer.delete()
    for ask, name in [
        (lambda: buffer.block_until_ready(), "BlockHostUntilReady"),
        (lambda: buffer.unsafe_buffer_pointer(), "UnsafeBufferPointer"),
        (lambda: np.asarray(buffer), "FullyReplicatedShard"),
    ]:
        with pytest.raises(xc.XlaRuntimeError, match=rf"{name}\(\) called on deleted or donated buffer"):
            ask()
    assert str(buffer.xla_shape()) == "f64[3]{0}"


def test_masked_elements_are_refused(client: xc.Client) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    builder = xc.XlaBuilder("masked")
    for give in (
        client.buffer_from_pyval,
        client.devices()[0].transfer_to_infeed,
        lambda value: client.devices()[0].transfer_to_infeed((value, value)),
        lambda value: o.Constant(builder, value),
    ):
        with pytest.raises(xc.XlaRuntimeError, match="MaskedArray"):
            give(masked)
    assert np.asarray(client.buffer_from_pyval(np.ma.array([1.0]))).tolist() == [1]


def test_number_of_devices_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    assert xc.make_cpu_client().device_count() == 3
    assert xc.make_cpu_client(num_devices=2).device_count() == 2
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=none")
    with pytest.raises(xc.XlaRuntimeError, match="expected a number of devices"):
        xc.make_cpu_client()
    monkeypatch.delenv("XLA_FLAGS")
    assert xc.make_cpu_client().device_count() == 1


# -- tracebacks


def test_tracebacks(client: xc.Client) -> None:
    def outer() -> xc.Traceback:
        def inner() -> xc.Traceback | None:
            return xc.Traceback.get_traceback()

        found = inner()
        assert found is not None
        return found

    found = outer()
    names = [frame.function_name for frame in found.frames[:3]]
    assert names == ["inner", "outer", "test_tracebacks"]
    assert found.frames[0].function_start_line == found.frames[0].line_num - 1
    assert str(found).splitlines()[0] == f"{__file__}:{found.frames[0].line_num} (inner)"
    assert repr(found.frames[1]) == f"outer;{__file__}:{found.frames[1].line_num}"
    shown = traceback.format_tb(found.as_python_traceback())
    assert "in inner" in shown[-1] and "return xc.Traceback.get_traceback()" in shown[-1]
    assert [frame.f_locals for frame, _ in traceback.walk_tb(found.as_python_traceback())] == [{}] * len(found.frames)
    codes, instructions = found.raw_frames()
    assert xc.Traceback.code_addr2line(codes[0], instructions[0]) == found.frames[0].line_num
    assert xc.Traceback.code_addr2location(codes[0], instructions[0])[0] == found.frames[0].line_num
    twice = [outer() for _ in range(2)]
    assert twice[0] == twice[1] and hash(twice[0]) == hash(twice[1]) and twice[0] != found


def test_what_has_a_traceback(client: xc.Client) -> None:
    builder = xc.XlaBuilder("one")
    o.Constant(builder, np.int32(1))
    computation = builder.build()
    for make in (lambda: client.buffer_from_pyval(np.ones(3)), lambda: client.compile(computation)):
        found = make().traceback
        assert found is not None
        assert found.frames[1].function_name == "test_what_has_a_traceback"
        with xc.tracebacks(enabled=False):
            assert make().traceback is None
            assert xc.Traceback.get_traceback() is None


def test_a_traceback_does_not_keep_variables_alive(client: xc.Client) -> None:
    class Large:
        pass

    def make() -> xc.ArrayImpl:
        large = Large()
        gone.append(threading.Event())
        import weakref

        weakref.finalize(large, gone[0].set)
        return client.buffer_from_pyval(np.ones(3))

    gone: list[threading.Event] = []
    buffer = make()
    gc.collect()
    assert gone[0].is_set() and buffer.traceback is not None


# -- builders


def test_a_builder_builds_one_computation_after_another(client: xc.Client) -> None:
    builder = xc.XlaBuilder("again")
    first = o.Add(o.Constant(builder, np.int32(1)), o.Constant(builder, np.int32(2)))
    assert run(client, builder)[0] == 3
    o.Constant(builder, np.float32(2.5))
    assert run(client, builder)[0] == 2.5
    with pytest.raises(xc.XlaRuntimeError, match="BUILDER-4"):
        builder.build()
    builder = xc.XlaBuilder("other")
    o.Neg(first)
    with pytest.raises(xc.XlaRuntimeError, match="BUILDER-3"):
        first.builder.build()


@pytest.mark.parametrize("mode", xc.ResultAccuracyMode)
def test_result_accuracy(client: xc.Client, mode: xc.ResultAccuracyMode) -> None:
    builder = xc.XlaBuilder("accurate")
    accuracy = xc.ResultAccuracy()
    accuracy.mode = mode
    x = np.array([0.5, 2], np.float32)
    o.Exp(o.Constant(builder, x), accuracy)
    o.Log1p(o.Constant(builder, x), result_accuracy=accuracy)
    assert np.allclose(run(client, builder)[0], np.log1p(x), 1e-6)
    accuracy.ulps = 2
    o.Tanh(o.Constant(builder, x), accuracy)
    text = builder.build().as_hlo_text()
    assert ("ulps" in text) == (mode == xc.ResultAccuracyMode.DEFAULT)
    assert ("highest" in text) == (mode == xc.ResultAccuracyMode.HIGHEST)


# -- infeed and outfeed


def talking() -> xc.XlaComputation:
    """Reads an s32[2], sends twice its value, reads another, and gives the sum of both."""
    builder = xc.XlaBuilder("talking")
    shape = S("s32[2]")
    first = o.InfeedWithToken(o.CreateToken(builder), shape)
    x = o.GetTupleElement(first, 0)
    token = o.OutfeedWithToken(o.Add(x, x), o.GetTupleElement(first, 1), shape)
    second = o.InfeedWithToken(token, shape)
    return builder.build(o.Add(x, o.GetTupleElement(second, 0)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_program_talks_with_its_host(client: xc.Client, count: int) -> None:
    options = xc.CompileOptions()
    options.num_replicas = count
    executable = client.compile(talking(), options)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(executable.execute_sharded_on_local_devices([])))
    thread.start()
    for number, device in enumerate(executable.local_devices()):
        device.transfer_to_infeed(np.array([number, 1], np.int32))
        answer = device.transfer_from_outfeed(S("s32[2]"))
        assert answer.tolist() == [2 * number, 2]
        device.transfer_to_infeed(answer + 10)
    thread.join()
    assert [np.asarray(result).tolist() for result in results[0]] == [[3 * n + 10, 13] for n in range(count)]


@pytest.mark.parametrize("count", [1, 2])
def test_waiting_for_an_infeed_can_be_interrupted(client: xc.Client, count: int) -> None:
    options = xc.CompileOptions()
    options.num_replicas = count
    executable = client.compile(talking(), options)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable.execute_sharded_on_local_devices([])
    timer.join()
    for device in executable.local_devices():
        for value in (1, 2):
            device.transfer_to_infeed(np.full(2, value, np.int32))
    assert np.asarray(executable.execute_sharded_on_local_devices([])[0][0]).tolist() == [3, 3]


def test_what_a_run_does_not_read_stays(client: xc.Client) -> None:
    device = client.devices()[0]
    builder = xc.XlaBuilder("one")
    o.GetTupleElement(o.InfeedWithToken(o.CreateToken(builder), S("(s32[], f32[2])")), 0)
    executable = client.compile(builder.build())
    value = np.ones(2, np.float32)
    for number in range(3):
        device.transfer_to_infeed((np.int32(number), value))
        value += 1
    for number in range(3):
        scalar, vector = map(np.asarray, executable.execute([]))
        assert scalar == number and vector.tolist() == [number + 1] * 2


def test_nothing_can_arrive(client: xc.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_others_than", lambda reader: False)
    with pytest.raises(xc.XlaRuntimeError, match="INFEED-9"):
        client.compile(talking()).execute([])
    with pytest.raises(xc.XlaRuntimeError, match="the outfeed queue is empty"):
        client.devices()[0].transfer_from_outfeed(S("s32[2]"))


def test_outfed_values_come_in_the_layout_asked_for(client: xc.Client) -> None:
    builder = xc.XlaBuilder("send")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    token = o.CreateToken(builder)
    for _ in range(3):
        token = o.OutfeedWithToken(o.Constant(builder, x), token, S("f32[2,3]"))
    client.compile(builder.build(o.Constant(builder, np.int32(0)))).execute([])
    device = client.devices()[0]
    for shape, strides in (("f32[2,3]{1,0}", (12, 4)), ("f32[2,3]{0,1}", (4, 8))):
        got = device.transfer_from_outfeed(S(shape))
        assert np.array_equal(got, x) and got.strides == strides
    with pytest.raises(xc.XlaRuntimeError, match=r"value is f32\[2,3\], expected s32"):
        device.transfer_from_outfeed(S("s32[2,3]"))


# -- options and programs


def chosen_options() -> xc.CompileOptions:
    options = xc.CompileOptions()
    options.num_replicas = 3
    options.num_partitions = 2
    options.profile_version = 1337
    options.compile_portable_executable = True
    options.tuple_arguments = True
    options.argument_layouts = [S("f32[2,3]{0,1}"), S("(s32[4]{0}, pred[])")]
    options.env_option_overrides = [("a", "text"), ("b", True), ("c", -3), ("d", 2.5)]
    options.device_assignment = xc.DeviceAssignment.create(np.array([[0, 3], [1, 4], [2, 5]]))
    build = options.executable_build_options
    build.result_layout = S("f32[2,3]{0,1}")
    build.fdo_profile = b"\0profile"
    build.use_spmd_partitioning = True
    build.auto_spmd_partitioning_mesh_shape = [2, 3]
    build.allow_spmd_sharding_propagation_to_output = [True, False]
    build.memory_fitting_effort = -0.5
    build.debug_options.xla_dump_to = "/tmp/x"
    build.debug_options.xla_disable_hlo_passes = "fusion,cse"
    build.debug_options.xla_dump_max_hlo_modules = 7
    build.debug_options.xla_gpu_experimental_autotune_cache_mode = xc.AutotuneCacheMode.READ
    return options


def described(options: xc.CompileOptions) -> dict[str, Any]:
    found = dict(vars(options))
    build = dict(vars(found.pop("executable_build_options")))
    debug = vars(build.pop("debug_options"))
    assignment = build.pop("device_assignment")
    return {**found, **build, **debug, "assignment": None if assignment is None else assignment.serialize()}


@pytest.mark.parametrize("make", [xc.CompileOptions, chosen_options])
def test_options_are_read_back(make: Any) -> None:
    pytest.importorskip("google.protobuf")
    options = make()
    for again in (xc.CompileOptions.ParseFromString(options.SerializeAsString()), copy.deepcopy(options)):
        assert described(again) == described(options)
        assert again.SerializeAsString() == options.SerializeAsString()


def test_bytes_that_are_no_options() -> None:
    pytest.importorskip("google.protobuf")
    for data in (b"\xff", b"\x1a\xff\x01"):
        with pytest.raises(xc.XlaRuntimeError, match="CompileOptionsProto"):
            xc.CompileOptions.ParseFromString(data)


def test_counts_are_those_of_the_build_options() -> None:
    options = xc.CompileOptions()
    options.executable_build_options.num_replicas = 2
    assert options.num_replicas == 2
    options.num_partitions = 3
    assert options.executable_build_options.num_partitions == 3
    options.parameter_is_tupled_arguments = True
    assert options.tuple_arguments is True
    with pytest.raises(TypeError, match=r"num_replicas: expected int, got 'x'"):
        options.num_replicas = "x"
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        options.no_such = 1  # type: ignore[attr-defined]


def test_ifrt_programs(client: xc.Client) -> None:
    builder = xc.XlaBuilder("iota")
    o.Iota(builder, xc.PrimitiveType.F32, 3)
    make = xc._xla.ifrt_programs
    program = make.make_hlo_program(xc._xla.mlir.xla_computation_to_mlir_module(builder.build()))
    executable = client.compile_ifrt_program(program, make.make_xla_compile_options(xc.CompileOptions(), []))
    assert np.asarray(executable.execute([])[0]).tolist() == [0, 1, 2]
    with pytest.raises(xc.XlaRuntimeError, match="PjRtCompiler requires an HloProgram"):
        client.compile_ifrt_program(make.make_plugin_program("foobar"), make.make_plugin_compile_options())


def test_fingerprints(client: xc.Client) -> None:
    def made(value: float, options: xc.CompileOptions) -> bytes:
        builder = xc.XlaBuilder("program")
        o.Constant(builder, np.float32(value))
        return client.compile(builder.build(), options).fingerprint

    options = xc.CompileOptions()
    assert made(1, options) == made(1, options) != made(2, options)
    one = made(1, options)
    options.num_replicas = 2
    assert made(1, options) != one


def test_an_unknown_target_is_not_found(client: xc.Client) -> None:
    builder = xc.XlaBuilder("call")
    o.CustomCall(builder, b"no such target", [], S("f32[2]"))
    with pytest.raises(xc.XlaRuntimeError, match=r"^NOT_FOUND: .*no such target"):
        run(client, builder)


def test_jaxlib_reads_the_options_and_writes_what_is_read_here() -> None:
    pytest.importorskip("google.protobuf")
    jaxlib = pytest.importorskip("jaxlib.xla_client")
    theirs = jaxlib.CompileOptions.ParseFromString(chosen_options().SerializeAsString())
    assert (theirs.num_replicas, theirs.num_partitions, theirs.profile_version) == (3, 2, 1337)
    assert str(theirs.executable_build_options.result_layout) == "f32[2,3]{0,1}"
    assert theirs.executable_build_options.debug_options.xla_dump_max_hlo_modules == 7
    assert dict(theirs.env_option_overrides) == dict(chosen_options().env_option_overrides)
    ours = xc.CompileOptions.ParseFromString(theirs.SerializeAsString())
    assert described(ours)["assignment"] == chosen_options().device_assignment.serialize()
    assert ours.argument_layouts == chosen_options().argument_layouts
    debug = ours.executable_build_options.debug_options
    assert (debug.xla_dump_to, debug.xla_disable_hlo_passes) == ("/tmp/x", "fusion,cse")
