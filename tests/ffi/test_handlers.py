"""Handlers of XLA's FFI without JAX: hk.register_ffi_target, in the interpreter and in machine code."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import BuildError, EvaluationError, HandlerError, UnsupportedError
from hlokit.ops.custom_targets.ffi_attributes import typed_attributes
from tests.ffi import build
from tests.ffi.fuzz import differences

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing() or "-")

NAMES = ("Describe", "Fail", "InPlace", "Later", "Misuse")
NAMES_CC = (
    "Scale", "Attrs", "Sum", "Token", "Where", "Stream", "Scratch", "TooMuch", "Pool", "LaterCc", "Sleep", "UserData",
    "FailCc", "Throw",
)  # fmt: skip
Run = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    c, cc = build.load("handlers.c"), build.load("handlers.cc")
    for function in (cc.CounterId, cc.CounterInfo, cc.TraceId, cc.TraceInfo, cc.DataId):
        function.restype = ctypes.c_void_p
    hk.register_ffi_type("test counter", cc.CounterId(), cc.CounterInfo())
    hk.register_ffi_type("test trace", cc.TraceId(), cc.TraceInfo())
    hk.register_ffi_type("test data", cc.DataId())
    handlers = {name: getattr(c, name) for name in NAMES} | {name: getattr(cc, name) for name in NAMES_CC}
    handlers["Counter"] = {"instantiate": cc.CounterInstantiate, "execute": cc.CounterExecute}
    handlers["Trace"] = {"prepare": cc.TracePrepare, "initialize": cc.TraceInitialize, "execute": cc.TraceExecute}
    for name, handler in handlers.items():
        hk.register_ffi_target(name, handler)
    yield cc
    for name in handlers:
        hk.unregister_custom_call(name)


@pytest.fixture(params=["interpreter", "compiled"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "interpreter":
        return hk.evaluate
    return lambda module, *args: hk.compile(module)(*args)


def module(target: str, operands: list[hk.Shape], shape: Any, config: str = "", **options: Any) -> hk.HloModule:
    b = hk.Builder(target)
    values = [b.parameter(i, operand) for i, operand in enumerate(operands)]
    options = {"api_version": "API_VERSION_TYPED_FFI", **options}
    return b.build(hk.custom_call(b, target, values, shape, config, **options))


def said(value: Any) -> str:
    """The text in a result of bytes."""
    return bytes(value).rstrip(b"\0").decode()


def test_a_frame_holds_operands_results_and_attributes(run: Run) -> None:
    shape = hk.Shape.tuple([hk.u8[2000], hk.f32[2, 3]])
    config = '{b = 1 : i8, a = {y = "h\\00i", x = array<f64: 1.0, 2.5>}, t = true}'
    text, copy = run(module("Describe", [hk.f32[2, 3], hk.s8[()]], shape, config), np.ones((2, 3), np.float32), 3)
    assert said(text).splitlines() == [
        "arg 11 [2,3] " + "0000803f" * 6,
        "arg 2 [] 03",
        "ret 11 [2,3] ",
        "attr 61 {",
        "attr 78 array 12 2 000000000000f03f0000000000000440",
        "attr 79 string 680069",
        "}",
        "attr 62 scalar 2 01",
        "attr 74 scalar 1 01",
    ]
    assert (copy == 1).all()


def test_elements_below_a_byte_share_bytes(run: Run) -> None:
    shape = hk.Shape.tuple([hk.u8[2000], hk.s4[3], hk.u2[5]])
    fours, twos = np.array([1, -8, -1], hk.s4.numpy), np.array([3, 0, 1, 2, 1], hk.u2.numpy)
    text, *copies = run(module("Describe", [hk.s4[3], hk.u2[5]], shape), fours, twos)
    assert said(text).splitlines()[:2] == ["arg 21 [3] 810f00", "arg 27 [5] 9301000000"]
    assert [copy.astype(int).tolist() for copy in copies] == [[1, -8, -1], [3, 0, 1, 2, 1]]


def test_layouts_are_those_of_the_instruction(run: Run) -> None:
    layout = hk.Layout((0, 1))
    shape = hk.Shape.tuple([hk.u8[2000], hk.s8[2, 3].with_layout(layout)])
    b = hk.Builder("layouts")
    x = b.parameter(0, hk.s8[2, 3])
    call = hk.custom_call_with_layout(
        b, "Describe", [x], shape, [hk.s8[2, 3].with_layout(layout)], api_version="API_VERSION_TYPED_FFI"
    )
    value = np.arange(6, dtype=np.int8).reshape(2, 3)
    text, copy = run(b.build(call), value)
    assert said(text).splitlines()[0] == "arg 2 [2,3] 000301040205"
    assert (copy == value).all()


def test_random_frames_are_what_handlers_see() -> None:
    assert differences(seed=1, count=60) == []


def test_every_wrong_call_says_what_is_wrong(run: Run) -> None:
    destroyed = build.load("handlers.c").Destroyed
    before, program = destroyed(), module("Misuse", [], hk.u8[4000])
    assert said(run(program)).splitlines() == [
        "api 1 0 5",
        "XLA_FFI_Stream_Get: the platform has no streams",
        "XLA_FFI_Stream_Get: its arguments take 8 bytes, expected at least 16: check versions",
        "XLA_FFI_Handler_Register: register handlers by jax.ffi.register_ffi_target or hlokit.register_ffi_target",
        "ok",
        "ok",
        "XLA_FFI_Type_Register: another type of this name is registered",
        "XLA_FFI_Type_Register: another type has this id",
        "ok",
        "adopted",
        "XLA_FFI_State_Get: the state is not set",
        "XLA_FFI_State_Set: the type id is not registered",
        "ok",
        "XLA_FFI_State_Set: the state is set already",
        "XLA_FFI_State_Get: the state is of another type",
        "ok",
        "same",
        "XLA_FFI_State_Get: the stage has no state",
        "XLA_FFI_State_Get: the stage has no state",
        "ok",
        "same",
        "XLA_FFI_InvokeContext_Get: the execution context has no user data of this type",
        "XLA_FFI_InvokeContext_Get: the execution context is null",
        "XLA_FFI_DeviceMemory_Allocate: the alignment is not a power of two",
        "ok",
        "aligned",
        "ok",
        "XLA_FFI_DeviceMemory_Allocate: out of memory",
        "ok",
        "XLA_FFI_Future_SetError: the error is null",
        "ok",
        "XLA_FFI_Future_SetAvailable: the future is completed already",
        "",
        "aborted 10",
        "aborted",
        "ok",
        "ok",
        "0 0",
    ]
    del program
    gc.collect()
    assert destroyed() == before + 1


def test_aliased_buffers_are_one(run: Run) -> None:
    program = module("InPlace", [hk.f32[3]], hk.f32[3], output_operand_aliasing=[((), (0, ()))])
    given = np.ones(3, np.float32)
    assert run(program, given).tolist() == [2, 2, 2]
    assert given.tolist() == [1, 1, 1]


def test_attributes_of_a_wrong_type_are_the_handlers_to_refuse(run: Run) -> None:
    with pytest.raises(HandlerError, match="expected F32 but got F64") as caught:
        run(module("Scale", [hk.f32[2]], hk.f32[2], "{scale = 2.0 : f64}"), [1.0, 2.0])
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(HandlerError, match="Wrong number of arguments: expected 1 but got 2"):
        run(module("Scale", [hk.f32[2]] * 2, hk.f32[2], "{scale = 2.0 : f32}"), [1.0, 2.0], [1.0, 2.0])
    with pytest.raises(HandlerError, match="Wrong number of attributes"):
        run(module("Scale", [hk.f32[2]], hk.f32[2]), [1.0, 2.0])
    with pytest.raises(HandlerError, match="Wrong buffer dtype: expected F32 but got S32"):
        run(module("Scale", [hk.s32[2]], hk.f32[2], "{scale = 2.0 : f32}"), [1, 2])


@pytest.mark.parametrize("value", ["[1, 2]", "unit"])
def test_kinds_of_attributes_that_there_are_not_are_refused_by_name(run: Run, value: str) -> None:
    with pytest.raises(UnsupportedError, match="FFI handler 'Scale': attribute 'scale' is a "):
        run(module("Scale", [hk.f32[2]], hk.f32[2], f"{{scale = {value}}}"), [1.0, 2.0])


def test_any_number_of_operands_and_results(run: Run) -> None:
    results = run(module("Sum", [hk.f32[2]] * 3, hk.Shape.tuple([hk.f32[2]] * 4)), [1.0, 2], [3.0, 4], [5.0, 6])
    assert [r.tolist() for r in results] == [[9, 12]] * 4


def test_empty_buffers(run: Run) -> None:
    assert (
        run(module("Scale", [hk.f32[0, 3]], hk.f32[0, 3], "{scale = 2.0 : f32}"), np.ones((0, 3), np.float32)).size == 0
    )


def test_tuples_are_their_arrays_and_tokens_are_buffers(run: Run) -> None:
    b = hk.Builder("tokens")
    call = hk.custom_call(
        b, "Token", [hk.create_token(b), b.parameter(0, hk.s16[2])], hk.Shape.tuple([hk.TOKEN, hk.s16[2]]),
        api_version="API_VERSION_TYPED_FFI",
    )  # fmt: skip
    assert run(b.build(hk.get_tuple_element(call, 1)), [1, 2]).tolist() == [1, 2]
    b = hk.Builder("tuples")
    pair = hk.tuple_(b, [b.parameter(0, hk.f32[2]), b.parameter(1, hk.f32[2])])
    call = hk.custom_call(b, "Sum", [pair], hk.f32[2], api_version="API_VERSION_TYPED_FFI")
    assert run(b.build(call), [1.0, 2.0], [3.0, 4.0]).tolist() == [4, 6]


def test_scratch_memory(run: Run) -> None:
    assert run(module("Scratch", [hk.f32[3]], hk.f32[3]), [1.0, 2, 3]).tolist() == [2, 3, 4]
    with pytest.raises(HandlerError, match="no scratch") as caught:
        run(module("TooMuch", [], hk.f32[1]))
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_what_is_not_there_says_so_by_name(run: Run) -> None:
    with pytest.raises(HandlerError, match="XLA_FFI_Stream_Get: the platform has no streams"):
        run(module("Stream", [], hk.f32[1]))
    with pytest.raises(HandlerError, match="XLA_FFI_InvokeContext_Get: the execution context has no user data"):
        run(module("UserData", [], hk.f32[1]))


def test_tasks_on_the_pool_and_futures(run: Run) -> None:
    value = np.arange(1000, dtype=np.float32)
    assert (run(module("Pool", [hk.f32[1000]], hk.f32[1000]), value) == 2 * value).all()
    assert run(module("Later", [], hk.f32[3])).tolist() == [7, 7, 7]
    later = '{milliseconds = 20 : i32, error = "%s"}'
    assert run(module("LaterCc", [hk.f32[2]], hk.f32[2], later % ""), [1.0, 2.0]).tolist() == [1, 2]
    with pytest.raises(HandlerError, match="it is lost") as caught:
        run(module("LaterCc", [hk.f32[2]], hk.f32[2], later % "it is lost"), [1.0, 2.0])
    assert caught.value.code == "DATA_LOSS"


@pytest.mark.parametrize("code", range(1, 17))
def test_errors_keep_code_and_message(run: Run, code: int) -> None:
    from hlokit.runtime.ffi.layouts import ERROR_CODES

    for target in ("Fail", "FailCc"):
        with pytest.raises(HandlerError, match=f"FFI handler '{target}': the message") as caught:
            run(module(target, [], hk.f32[1], f'{{code = {code} : i32, message = "the message"}}'))
        assert caught.value.code == ERROR_CODES[code]


def test_exceptions_become_errors(run: Run) -> None:
    with pytest.raises(HandlerError, match="threw an exception: thrown"):
        run(module("Throw", [], hk.f32[1], "{what = 0 : i32}"))
    with pytest.raises(HandlerError, match="threw an exception"):
        run(module("Throw", [], hk.f32[1], "{what = 1 : i32}"))
    assert run(module("Throw", [], hk.f32[1], "{what = 2 : i32}")).tolist() == [0]


def test_state_lives_as_long_as_the_program(registered: Any) -> None:
    gc.collect()
    before = registered.Alive()
    program = hk.compile(module("Counter", [hk.f32[1]], hk.s64[()], "{first = 5 : i64}"))
    other = hk.compile(module("Counter", [hk.f32[1]], hk.s64[()], "{first = 7 : i64}"))
    assert registered.Alive() == before + 2
    assert [int(program([1.0])) for _ in range(3)] == [5, 6, 7]
    assert int(other([1.0])) == 7
    del program, other
    gc.collect()
    assert registered.Alive() == before


def test_state_is_made_when_the_program_is_compiled() -> None:
    with pytest.raises(HandlerError, match=r"FFI handler 'Counter' \(instantiate\): first is negative"):
        hk.compile(module("Counter", [hk.f32[1]], hk.s64[()], "{first = -1 : i64}"))


def test_state_of_a_run(run: Run, registered: Any) -> None:
    gc.collect()
    before = registered.Alive()
    b = hk.Builder("loop")
    body = hk.Builder("body")
    state = body.parameter(0, hk.Shape.tuple([hk.s64[()], hk.s64[()]]))
    call = hk.custom_call(
        body, "Trace", [hk.get_tuple_element(state, 0)], hk.s64[()], api_version="API_VERSION_TYPED_FFI",
        has_side_effect=True,
    )  # fmt: skip
    step = hk.add(hk.get_tuple_element(state, 0), body.constant(1, hk.s64))
    total = hk.add(hk.mul(hk.get_tuple_element(state, 1), body.constant(1000, hk.s64)), call)
    looped = body.build(hk.tuple_(body, [step, total]))
    condition = hk.Builder("condition")
    state = condition.parameter(0, hk.Shape.tuple([hk.s64[()], hk.s64[()]]))
    bound = condition.constant(3, hk.s64)
    stop = condition.build(hk.lt(hk.get_tuple_element(state, 0), bound))
    start = hk.tuple_(b, [b.parameter(0, hk.s64[()]), b.constant(0, hk.s64)])
    program = b.build(hk.get_tuple_element(hk.while_(stop, looped, start), 1))
    for _ in range(2):  # each run makes it anew
        assert int(run(program, 0)) == 100_101_102
    gc.collect()
    assert registered.Alive() == before


def test_runs_have_numbers_and_devices_too() -> None:
    program = module("Where", [], hk.s64[2])
    first, second = hk.evaluate(program), hk.evaluate(program)
    assert first[0] == second[0] == 0 and first[1] != second[1]
    for made in (hk.evaluate(program, [], [], [], replicas=3), hk.compile(program, replicas=3)([], [], [])):
        assert [int(m[0]) for m in made] == [0, 1, 2]
        assert len({int(m[1]) for m in made}) == 1


def test_devices_call_at_the_same_time() -> None:
    program = hk.compile(module("Sleep", [hk.s32[()]], hk.s32[()]), replicas=4)
    start = time.monotonic()
    assert [int(result) for result in program(*([300] for _ in range(4)))] == [300] * 4
    assert time.monotonic() - start < 1.1  # one after the other would take 1.2 s


def test_the_interpreter_runs_meanwhile() -> None:
    program, counted = hk.compile(module("Sleep", [hk.s32[()]], hk.s32[()])), 0
    thread = threading.Thread(target=program, args=(200,))
    thread.start()
    while thread.is_alive():
        counted += 1
    assert counted > 100


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_interrupt_waits_for_the_handler(asynchronous: bool) -> None:
    if asynchronous:
        config = '{milliseconds = 300 : i32, error = ""}'
        program, value = hk.compile(module("LaterCc", [hk.f32[1]], hk.f32[1], config)), [1.0]
    else:
        program, value = hk.compile(module("Sleep", [hk.s32[()]], hk.s32[()])), 300
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        program(value)
        time.sleep(5)
    assert time.monotonic() - start > 0.25
    timer.join()
    program(value)


def test_what_is_no_handler_is_refused() -> None:
    c = build.load("handlers.c")
    with pytest.raises(BuildError, match=r"'x' \(execute\) is of version 0.99 of XLA's FFI; versions 0.1 to 0.5"):
        hk.register_ffi_target("x", c.TooNew)
    with pytest.raises(BuildError, match=r"is of version 0.0"):
        hk.register_ffi_target("x", c.TooOld)
    with pytest.raises(BuildError, match="no metadata today"):
        hk.register_ffi_target("x", c.Unwilling)
    with pytest.raises(BuildError, match="has the stages prepare; expected execute"):
        hk.register_ffi_target("x", {"prepare": c.Describe})
    with pytest.raises(BuildError, match="has the stages execute, run; expected execute"):
        hk.register_ffi_target("x", {"execute": c.Describe, "run": c.Describe})
    with pytest.raises(BuildError, match="'Describe' is registered already"):
        hk.register_ffi_target("Describe", c.Fail)
    hk.register_ffi_target("Describe", c.Describe)
    with pytest.raises(
        UnsupportedError, match=r"no target 'x' is registered for hlokit.*; register_ffi_target adds one"
    ):
        hk.evaluate(module("x", [], hk.f32[1]))


@pytest.mark.parametrize("given", [None, 0, -1, 1 << 64, 1.5, "Scale", print, {"execute": None}])
def test_what_is_no_address_is_refused(given: Any) -> None:
    with pytest.raises(BuildError, match=r"FFI handler 'x': .* is not the address of a function"):
        hk.register_ffi_target("x", given)
    with pytest.raises(BuildError, match=r"FFI type 'x': .* is not the address of a function"):
        hk.register_ffi_type("x", given)


def test_jaxlibs_names_register_handlers_too() -> None:
    from hlokit.interop import xla_client as xc

    xc.register_custom_call_target("typed", build.load("handlers.cc").Scale, api_version=1)
    assert hk.evaluate(module("typed", [hk.f32[2]], hk.f32[2], "{scale = 2.0 : f32}"), [1.0, 2.0]).tolist() == [2, 4]
    hk.unregister_custom_call("typed")


def test_the_instruction_says_which_interface_it_means() -> None:
    with pytest.raises(UnsupportedError, match="api_version is API_VERSION_ORIGINAL, expected API_VERSION_TYPED_FFI"):
        hk.evaluate(module("Scale", [hk.f32[1]], hk.f32[1], api_version="API_VERSION_ORIGINAL"), [1.0])
    hk.register_custom_call_pointer("a C function", build.load("handlers.c").Destroyed)
    try:
        with pytest.raises(UnsupportedError, match="is a C function of API_VERSION_ORIGINAL"):
            hk.evaluate(module("a C function", [], hk.f32[1]))
    finally:
        hk.unregister_custom_call("a C function")


def test_dynamic_dimensions_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"FFI handler 'Scale': .* has a dynamic dimension"):
        hk.evaluate(module("Scale", [hk.f32["<=3"]], hk.f32["<=3"], "{scale = 2.0 : f32}"), [1.0])


@pytest.mark.parametrize(
    "text",
    [
        "{a = dense<[1, 2]> : tensor<3xi64>}", "{a = dense<1>}", '{a = dense<"0x00"> : tensor<3xi64>}',
        "{a = dense<1> : tensor<?xi64>}", "{a = 256 : i8}", "{a = -1 : ui8}", "{a = 1 : i7}", "{a = 1.5 : i8}",
        "{a = dense<1.0> : tensor<2xtoken>}", "{a = 1, a = 2}", "{a = dense_resource<x> : tensor<2xi8>}",
        "{a = " + "[" * 100 + "]" * 100 + "}", "{a = " * 100 + "1" + "}" * 100, "{a = true : f32 x}",
        "{a = dense<true> : tensor<2xf32>}", "{a = array<complex<f32>: 1>}",
    ],
)  # fmt: skip
def test_wrong_attributes_are_refused(text: str) -> None:
    with pytest.raises(EvaluationError, match="is not a dictionary of attributes"):
        typed_attributes(text)
