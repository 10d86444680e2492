"""Calls: from arrays to a native entry and back, by the builtin function and without it."""

import ctypes
import gc
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.target import host
from hlokit.errors import ArgumentError, EvaluationError
from hlokit.runtime import call as calling
from hlokit.runtime.call import Caller
from hlokit.runtime.native_call import native_call
from hlokit.types.shape import Shape

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
ADD = """
; c = a + b, for 4 numbers
define i32 @entry(ptr %t) {
  %a = load ptr, ptr %t
  %b.at = getelementptr ptr, ptr %t, i64 1
  %b = load ptr, ptr %b.at
  %c.at = getelementptr ptr, ptr %t, i64 2
  %c = load ptr, ptr %c.at
  %x = load <4 x float>, ptr %a, align 4
  %y = load <4 x float>, ptr %b, align 4
  %z = fadd <4 x float> %x, %y
  store <4 x float> %z, ptr %c, align 4
  ret i32 0
}
"""
F = hk.f32[2, 2]
X = np.array([[1, 2], [3, 4]], np.float32)
Y = np.array([[10, 20], [30, 40]], np.float32)


@pytest.fixture(params=["builtin", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(calling, "_early", False)
    if request.param == "python":
        monkeypatch.setattr(calling, "native_call", lambda: None)
        monkeypatch.setattr(calling, "layout_is_known", lambda: False)
    elif native_call() is None:
        pytest.skip("not this Python")
    return request.param


def add(**options) -> Caller:
    library = jit.Library([jit.compile_object(ADD, host())])
    options.setdefault("names", ["a", "b"])
    return Caller(library.address("entry"), [F, F], [F], keep=library, program="add", **options)


def entry_of(body) -> tuple[int, object]:
    """A native entry that calls `body(pointers)` in Python."""
    function = ENTRY(lambda table: body(ctypes.cast(table, ctypes.POINTER(ctypes.c_uint64))) or 0)
    return ctypes.cast(function, ctypes.c_void_p).value or 0, function


def caller_of(body, parameters: list[Shape], results: list[Shape], **options) -> Caller:
    entry, keep = entry_of(body)
    return Caller(entry, parameters, results, keep=keep, **options)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_temporaries_of_a_first_call_are_those_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a process goes another way than those after it, which took memory of their own."""
    monkeypatch.setattr(calling, "_early", True)
    seen: list[int] = []
    caller = caller_of(lambda table: seen.append(table[2]), [F], [F], temporaries=2**22)
    for _ in range(3):
        caller.call(X)
    assert len(set(seen)) == 1, seen


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("temporaries", [0, 100])
def test_result_alone_or_in_a_tuple(way: str, release: bool, temporaries: int) -> None:
    single = add(unwrap=True, release=release, temporaries=temporaries)
    assert isinstance(single.call, type(len)) == (way == "builtin")
    for _ in range(3):
        result = single.call(X, Y)
        assert result.dtype == np.float32 and result.flags.owndata and result.flags.writeable
        np.testing.assert_array_equal(result, X + Y)
    several = add(release=release, temporaries=temporaries).call(X, Y)
    assert isinstance(several, tuple) and len(several) == 1
    np.testing.assert_array_equal(several[0], X + Y)


def test_builtin_function_is_made_for_the_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_early", True)
    first = add(unwrap=True)
    assert not isinstance(first.call, type(len))
    np.testing.assert_array_equal(first.call(X, Y), X + Y)
    assert not isinstance(first.call, type(len))
    np.testing.assert_array_equal(first.call(X, Y), X + Y)
    assert isinstance(first.call, type(len)) == (native_call() is not None)
    assert isinstance(add().call, type(len)) == (native_call() is not None)


@pytest.mark.parametrize(
    "argument",
    [
        [[1, 2], [3, 4]],
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X.astype(">f4"),
        np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 2),
        X.view(np.matrix),
        np.broadcast_to(np.float32(1), (2, 2)),
    ],
)
def test_arguments_of_any_kind(way: str, argument) -> None:
    np.testing.assert_array_equal(add(unwrap=True).call(argument, Y), np.asarray(argument, np.float32) + Y)


def test_wrong_arguments(way: str) -> None:
    call = add().call
    for arguments, message in [
        ((X,), "add takes 2 arguments, got 1"),
        ((X, Y, X), "add takes 2 arguments, got 3"),
        ((), "got 0"),
        ((X, np.float32([1, 2])), r"argument 1 \(b\): found f32\[2\], expected f32\[2,2\]"),
        ((X.astype(np.float64), Y), r"argument 0 \(a\): found f64\[2,2\], expected f32\[2,2\]"),
        ((X.reshape(4), Y), r"found f32\[4\]"),
        ((X.reshape(2, 2, 1), Y), r"found f32\[2,2,1\]"),
        ((X, None), r"argument 1 \(b\): cannot be read"),
        ((X, "ab"), r"cannot be read"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            call(*arguments)
    with pytest.raises(TypeError):
        call(X, b=Y)


def test_the_table(way: str) -> None:
    seen: list[int] = []

    def body(table) -> None:
        seen[:] = [table[i] for i in range(8)]
        ctypes.memset(table[2], 0, 8)
        ctypes.memset(table[5], 7, 1000)

    caller = caller_of(body, [hk.s8[3], hk.f32[()]], [hk.f64[()]], constants=[11, 12], temporaries=1000, more=[13, 14])
    data, scalar = np.zeros(3, np.int8), np.array(0, np.float32)
    (result,) = caller.call(data, scalar)
    assert seen[:2] == [address(data), address(scalar)] and seen[2] == address(result)
    assert seen[3:5] == [11, 12] and seen[5] % 64 == 0 and seen[5] and seen[6:] == [13, 14]
    assert result.shape == () and result == 0.0


def test_no_arrays_and_no_memory(way: str) -> None:
    seen: list[int] = []
    assert caller_of(lambda table: seen.append(table[0]), [], []).call() == ()
    assert seen == [0]


@pytest.mark.parametrize("dtype", [hk.bf16, hk.pred, hk.s4, hk.f8e4m3fn, hk.c64, hk.u64, hk.f16, hk.c128, hk.s64])
def test_types(way: str, dtype) -> None:
    def copy(table) -> None:
        ctypes.memmove(table[1], table[0], 3 * dtype.numpy.itemsize)

    call = caller_of(copy, [dtype[3]], [dtype[3]], unwrap=True).call
    value = np.array([1, 0, 1]).astype(dtype.numpy)
    result = call(value)
    assert result.dtype == value.dtype and result.tobytes() == value.tobytes()
    assert call([1, 0, 1]).tobytes() == value.tobytes()
    if dtype is hk.s64:
        assert call(value.astype(np.longlong)).tobytes() == value.tobytes()
    if dtype is hk.bf16:
        assert result.dtype == ml_dtypes.bfloat16


def test_empty_and_large_arrays(way: str) -> None:
    def fill(table) -> None:
        ctypes.memset(table[2], 1, 2**21)

    caller = caller_of(fill, [hk.f32[0, 3]], [hk.f32[5, 0], hk.u8[2**21]])
    empty, large = caller.call(np.empty((0, 3), np.float32))
    assert empty.shape == (5, 0) and large.shape == (2**21,) and large.min() == 1
    assert address(large) % 2**21 == 0


def test_an_entry_that_stops_midway(way: str) -> None:
    def reason() -> None:
        raise KeyboardInterrupt

    stop = caller_of(lambda table: 1, [F], [F, hk.u8[2**21]], failed=reason, temporaries=64)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            stop.call(X)
    with pytest.raises(EvaluationError, match="p: stopped midway"):
        caller_of(lambda table: -1, [F], [F], unwrap=True, program="p").call(X)


def test_results_over_arguments(way: str) -> None:
    def body(table) -> None:
        values = (ctypes.c_float * 4).from_address(table[0])
        assert table[0] == table[2]
        values[:] = [v + 1 for v in values]

    caller = caller_of(body, [F, F], [F], aliases={0: 0}, unwrap=True)
    mine = X.copy()
    assert caller.call(mine, Y) is mine
    np.testing.assert_array_equal(mine, X + 1)
    fixed = X.copy()
    fixed.flags.writeable = False
    for first, second in [(fixed, Y), (mine, mine), (mine, mine[:]), (X.T.copy().T, Y)]:
        before = first.copy()
        result = caller.call(first, second)
        assert result is not first
        np.testing.assert_array_equal(result, before + 1)
        np.testing.assert_array_equal(first, before)


def test_nothing_leaks(way: str) -> None:
    caller = add()
    dtype = np.dtype(np.float32)
    before = sys.getrefcount(X), sys.getrefcount(dtype), sys.getrefcount(np.ndarray)
    for _ in range(1000):
        caller.call(X, Y)
    for _ in range(10):
        with pytest.raises(ArgumentError):
            caller.call(X)
    after = sys.getrefcount(X), sys.getrefcount(dtype), sys.getrefcount(np.ndarray)
    assert all(abs(a - b) < 10 for a, b in zip(after, before))
    watch = weakref.ref(caller)
    del caller
    gc.collect()
    assert watch() is None


def test_calls_outlive_their_caller(way: str) -> None:
    call = add(temporaries=100, unwrap=True).call
    gc.collect()
    np.testing.assert_array_equal(call(X, Y), X + Y)


def test_threads_call_at_once(way: str) -> None:
    barrier = threading.Barrier(4, timeout=10)
    memory: list[int] = []

    def body(table) -> None:
        memory.append(table[1])
        barrier.wait()  # all four are inside, each with memory of its own

    caller = caller_of(body, [], [F], temporaries=4096)
    threads = [threading.Thread(target=caller.call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(memory)) == 4
