"""Names, arguments and defaults are jaxlib 0.4.30's; what hlokit does of its own."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.interop import xla_client as xc
from hlokit.interop.xla_client.ops.elementwise import ACCURATE
from hlokit.interop.xla_client.ops.signatures import REQUIRED

o, S = xc.ops, xc.Shape
SIGNATURES: dict[str, Any] = json.loads((Path(__file__).parent / "signatures_0_4_30.json").read_text())


def default_text(value: Any) -> str | None:
    if value is REQUIRED:
        return None
    if hasattr(value, "name"):
        return f"ops.{value}"
    return "[]" if value == () else repr(value)


def test_there_are_exactly_its_144_functions() -> None:
    assert len(SIGNATURES) == 144
    assert o.FUNCTIONS.keys() == SIGNATURES.keys()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    function = getattr(o, name)
    found = [
        {
            "parameters": [[p.name, p.argument.name, default_text(p.default)] for p in s.parameters],
            "returns": s.returns,
            **({"positional_only": True} if s.positional_only else {}),
        }
        for s in function.signatures
    ]
    if name in ACCURATE:
        assert [p[0] for p in found.pop()["parameters"]] == ["operand", "result_accuracy"]
    assert found == SIGNATURES[name]


def test_errors_carry_the_label_and_are_both_kinds() -> None:
    builder = xc.XlaBuilder("wrong")
    o.Transpose(o.Parameter(builder, 0, S("f32[2,3]")), (0, 0))
    with pytest.raises(RuntimeError, match=r"^INVALID_ARGUMENT: .*\[TRANSP-3\]") as caught:
        builder.build()
    assert isinstance(caught.value, hk.HlokitError)
    assert isinstance(caught.value, xc.XlaRuntimeError)


STABLEHLO = """module @m {
  func.func public @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<f32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %twice = stablehlo.add %x, %x : tensor<3xf32>
    return %twice, %sum : tensor<3xf32>, tensor<f32>
  }
}"""


@pytest.mark.parametrize("convert", [str, str.encode, xc._xla.mlir.mlir_module_to_xla_computation])
def test_stablehlo_is_compiled(convert: Any) -> None:
    client = xc.make_cpu_client()
    twice, total = xc.execute_with_python_values(client.compile(convert(STABLEHLO)), [np.ones(3, np.float32)], client)
    assert twice.tolist() == [2, 2, 2]
    assert total.tolist() == 3


def test_texts_that_are_no_program() -> None:
    client = xc.make_cpu_client()
    for text in ("", "module @m {", b"ML\xefR\0", b"\xff"):
        with pytest.raises(xc.XlaRuntimeError):
            client.compile(text)
    with pytest.raises(xc.XlaRuntimeError, match=r"^UNIMPLEMENTED: .*no_such"):
        client.compile(STABLEHLO.replace("stablehlo.add %x", "stablehlo.no_such %x"))
    with pytest.raises(xc.XlaRuntimeError, match=r"^UNIMPLEMENTED"):
        xc._xla.mlir.mlir_module_to_xla_computation(STABLEHLO, return_tuple=True)


@pytest.mark.parametrize("form", ["computation", "module", "mlir", "text"])
def test_compile_takes(form: str) -> None:
    builder = xc.XlaBuilder("twice")
    x = o.Parameter(builder, 0, S("f32[3]"))
    computation = builder.build(o.Add(x, x))
    mlir = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    forms = {"computation": computation, "module": computation.as_hlo_module(), "mlir": mlir, "text": str(mlir)}
    client = xc.make_cpu_client()
    (result,) = xc.execute_with_python_values(client.compile(forms[form]), [np.ones(3, np.float32)], client)
    assert result.tolist() == [2, 2, 2]
    assert xc._xla.mlir.mlir_module_to_xla_computation(mlir) is computation


def test_python_function_as_custom_call_target() -> None:
    xc.register_custom_call_target("interop_halves", lambda x: x / np.float32(2))
    builder = xc.XlaBuilder("halves")
    x = o.Parameter(builder, 0, S("f32[2]"))
    computation = builder.build(o.CustomCall(builder, b"interop_halves", [x], S("f32[2]")))
    client = xc.make_cpu_client()
    (result,) = xc.execute_with_python_values(client.compile(computation), [np.array([2, 4], np.float32)], client)
    assert result.tolist() == [1, 2]
    hk.unregister_custom_call("interop_halves")


def test_what_is_no_handler_of_a_typed_interface_is_refused() -> None:
    with pytest.raises(xc.XlaRuntimeError, match=r"^UNIMPLEMENTED: .*api_version"):
        xc.register_custom_call_target("typed", lambda x: x, api_version=2)
    with pytest.raises(xc.XlaRuntimeError, match=r"FFI handler 'typed': .* is not the address of a function"):
        xc.register_custom_call_target("typed", lambda x: x, api_version=1)


def test_infeed_and_outfeed_go_through_the_device() -> None:
    builder = xc.XlaBuilder("feeds")
    shape = S("s32[2]")
    fed = o.InfeedWithToken(o.CreateToken(builder), shape)
    value = o.GetTupleElement(fed, 0)
    o.OutfeedWithToken(o.Neg(value), o.GetTupleElement(fed, 1), shape)
    client = xc.make_cpu_client()
    device = client.devices()[0]
    executable = client.compile(builder.build(o.Add(value, value)))
    device.transfer_to_infeed(np.array([1, 2], np.int32))
    assert np.asarray(executable.execute([])[0]).tolist() == [2, 4]
    assert np.asarray(device.transfer_from_outfeed(shape)).tolist() == [-1, -2]
    with pytest.raises(xc.XlaRuntimeError, match="INFEED-9"):
        executable.execute([])
    thread = threading.Thread(target=time.sleep, args=(0.2,))  # which could add a value, but ends
    thread.start()
    with pytest.raises(xc.XlaRuntimeError, match="INFEED-9"):
        executable.execute([])
    thread.join()


def test_two_replicas() -> None:
    builder = xc.XlaBuilder("sum")
    x = o.Parameter(builder, 0, S("f32[2]"))
    fed = o.InfeedWithToken(o.CreateToken(builder), S("f32[2]"))
    o.OutfeedWithToken(x, o.GetTupleElement(fed, 1), S("f32[2]"))
    computation = builder.build(o.CrossReplicaSum(o.Add(x, o.GetTupleElement(fed, 0))))
    client = xc.make_cpu_client(num_devices=3)
    options = xc.CompileOptions()
    options.num_replicas = 2
    executable = client.compile(computation, options)
    assert [d.id for d in executable.local_devices()] == [0, 1]
    assert executable.local_logical_device_ids() == [(0, 0), (1, 0)]
    for number, device in enumerate(executable.local_devices()):
        device.transfer_to_infeed(np.full(2, 10 * number, np.float32))
    values = [[np.array([1, 2], np.float32)], [np.array([3, 4], np.float32)]]
    results = xc.execute_with_python_values_replicated(executable, values, client)
    assert [r[0].tolist() for r in results] == [[14, 16]] * 2
    assert [d.transfer_from_outfeed(S("f32[2]")).tolist() for d in executable.local_devices()] == [[1, 2], [3, 4]]
    with pytest.raises(xc.XlaRuntimeError, match="to have 2 shards, got: 1"):
        executable.execute([client.buffer_from_pyval(values[0][0])])
    options.device_assignment = xc.DeviceAssignment.create(np.array([[2], [0]]))
    assert [d.id for d in client.compile(computation, options).local_devices()] == [2, 0]
    options.num_replicas = 4
    with pytest.raises(xc.XlaRuntimeError, match="Requested 4 devices; this client has 3"):
        client.compile(computation, options)


def test_a_tuple_parameter_takes_a_buffer_per_leaf() -> None:
    builder = xc.XlaBuilder("tuple")
    pair = o.Parameter(builder, 0, S("(f32[2], (s32[], s32[]))"))
    nested = o.GetTupleElement(pair, 1)
    computation = builder.build(o.Tuple(builder, [o.GetTupleElement(nested, 1), o.GetTupleElement(pair, 0)]))
    client = xc.make_cpu_client()
    values = [np.ones(2, np.float32), np.int32(3), np.int32(4)]
    results = xc.execute_with_python_values(client.compile(computation), values, client)
    assert [r.tolist() for r in results] == [4, [1, 1]]


def test_buffers_share_memory_only_where_they_may() -> None:
    client = xc.make_cpu_client()
    array = np.ones(3, np.float32)
    assert np.shares_memory(np.asarray(client.buffer_from_pyval(array)), array)
    assert not np.shares_memory(np.asarray(client.buffer_from_pyval(array, force_copy=True)), array)
    during_call = xc.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    copied = client.buffer_from_pyval(array, host_buffer_semantics=during_call)
    assert not np.shares_memory(np.asarray(copied), array)
    assert not np.asarray(copied).flags.writeable
    assert (copied.shape, copied.dtype, copied.xla_shape()) == ((3,), np.float32, S("f32[3]"))
    copied.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(copied)


def test_more_devices_than_there_are() -> None:
    builder = xc.XlaBuilder("replicas")
    computation = builder.build(o.ReplicaId(builder))
    options = xc.CompileOptions()
    options.num_replicas = 2
    with pytest.raises(xc.XlaRuntimeError, match=r"^INVALID_ARGUMENT: Requested 2 devices"):
        xc.make_cpu_client().compile(computation, options)
