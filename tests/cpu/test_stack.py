"""Programs run on threads whose stack is small, whatever the application chose: 32 KB is the least that Python gives."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit import stack
from hlokit.cpu.jit.frames import deepest
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.routine import STACK
from hlokit.cpu.llvm import I8, I32, POINTER, Module, Record, type_of
from hlokit.cpu.target import baseline
from hlokit.judge.closeness.equality import differs
from hlokit.runtime import on_stack

KB = 1 << 10
BOOLEAN = "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=LT }\n"
ADD = "add { a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT r = TYPE[] add(a, b) }\n"
FAMILIES = {
    "product": "ENTRY e { x = f32[300,300] parameter(0)\n"
    " ROOT r = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }",
    "product of complex numbers": "ENTRY e { x = c128[100,100] parameter(0)\n"
    " ROOT r = c128[100,100] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }",
    "product of bf16": "ENTRY e { x = bf16[256,256] parameter(0)\n"
    " ROOT r = f32[256,256] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0} }",
    "convolution": "ENTRY e { x = f32[1,40,40,16] parameter(0)\n y = f32[3,3,16,16] parameter(1)\n"
    " ROOT r = f32[1,38,38,16] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f }",
    "convolution of depth": "ENTRY e { x = f64[1,40,40,16] parameter(0)\n y = f64[3,3,1,16] parameter(1)\n"
    " ROOT r = f64[1,38,38,16] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f,"
    " feature_group_count=16 }",
    "sort": BOOLEAN + "ENTRY e { x = f32[20000] parameter(0)\n"
    " ROOT r = f32[20000] sort(x), dimensions={0}, to_apply=less }",
    "sort of columns": BOOLEAN + "ENTRY e { x = f32[500,40] parameter(0)\n"
    " ROOT r = f32[500,40] sort(x), dimensions={0}, is_stable=true, to_apply=less }",
    "topk": "ENTRY e { x = f32[4,5000] parameter(0)\n"
    " ROOT r = (f32[4,10], s32[4,10]) topk(x), k=10, largest=true }",
    "fft": "ENTRY e { x = c64[8,509] parameter(0)\n ROOT r = c64[8,509] fft(x), fft_type=FFT, fft_length={509} }",
    "fft of real numbers": "ENTRY e { x = f64[8,4096] parameter(0)\n"
    " ROOT r = c128[8,2049] fft(x), fft_type=RFFT, fft_length={4096} }",
    "cholesky": "ENTRY e { x = f32[128,128] parameter(0)\n i = f32[128,128] parameter(1)\n"
    " ROOT r = f32[128,128] cholesky(x), lower=true }",
    "triangular solve": "ENTRY e { x = f32[128,128] parameter(0)\n y = f32[128,128] parameter(1)\n"
    " ROOT r = f32[128,128] triangular-solve(x, y), left_side=true, lower=true, transpose_a=NO_TRANSPOSE }",
    "lu": "ENTRY e { x = f64[128,128] parameter(0)\n"
    ' ROOT r = (f64[128,128], s32[128], s32[]) custom-call(x), custom_call_target="lapack_dgetrf_ffi" }',
    "eigenvectors": "ENTRY e { x = f32[80,80] parameter(0)\n"
    ' ROOT r = (f32[80,80], f32[80], s32[]) custom-call(x), custom_call_target="lapack_ssyevd_ffi",'
    " backend_config={mode = 86 : ui8, uplo = 76 : ui8} }",
    "random bits": "ENTRY e { x = u64[2] parameter(0)\n"
    " ROOT r = (u64[2], u32[50000]) rng-bit-generator(x), algorithm=rng_three_fry }",
    "sums": ADD + "ENTRY e { x = TYPE[4,20000] parameter(0)\n z = TYPE[] constant(0)\n e = TYPE[4,20000] exponential(x)\n"
    " s = TYPE[4] reduce(e, z), dimensions={1}, to_apply=add\n b = TYPE[4,20000] broadcast(s), dimensions={0}\n"
    " ROOT r = TYPE[4,20000] divide(e, b) }",
    "gather and scatter": ADD + "ENTRY e { x = TYPE[5000,8] parameter(0)\n i = s32[300] iota(), iota_dimension=0\n"
    " g = TYPE[300,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,8}\n"
    " ROOT r = TYPE[5000,8] scatter(x, i, g), update_window_dims={1}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add }",
    "a scan": ADD + "ENTRY e { x = TYPE[5000] parameter(0)\n z = TYPE[] constant(0)\n"
    " ROOT r = TYPE[5000] reduce-window(x, z), window={size=5000 pad=4999_0}, to_apply=add }",
    "the reference": "ENTRY e { x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
    " ROOT r = f32[500] rng(x, y), distribution=rng_uniform }",
}

DOT = """ENTRY e {{
  x = {0}[2048,2048] parameter(0)
  y = {0}[2048,2048] parameter(1)
  ROOT r = {0}[2048,2048] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
}}"""
CONVOLUTION = """ENTRY e {{
  x = {0}[1,512,512,2048] parameter(0)
  y = {0}[3,3,2048,8] parameter(1)
  ROOT r = {0}[1,510,510,8] convolution(x, y), window={{size=3x3}}, dim_labels=b01f_01io->b01f
}}"""
FFT = "ENTRY e {{ x = {0}[64,509] parameter(0)\n ROOT r = {0}[64,509] fft(x), fft_type=FFT, fft_length={{509}} }}"
ROWS = """sum {{ a = {0}[] parameter(0) b = {0}[] parameter(1) ROOT r = {0}[] add(a, b) }}
ENTRY e {{
  x = {0}[4,65536] parameter(0)
  zero = {0}[] constant(0)
  p = {0}[4,65536] exponential(x)
  q = {0}[4,65536] cosine(x)
  f = {0}[4] reduce(p, zero), dimensions={{1}}, to_apply=sum
  g = {0}[4] reduce(q, zero), dimensions={{1}}, to_apply=sum
  fb = {0}[4,65536] broadcast(f), dimensions={{0}}
  gb = {0}[4,65536] broadcast(g), dimensions={{0}}
  d = {0}[4,65536] divide(p, fb)
  e = {0}[4,65536] divide(q, gb)
  ROOT r = {0}[4,65536] add(d, e)
}}"""


def text(name: str) -> str:
    return "HloModule m\n" + FAMILIES[name].replace("TYPE", "f32")


def inputs(module: hk.HloModule) -> list[Any]:
    generator = np.random.default_rng(0)
    found: list[Any] = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        array = generator.uniform(0, 1, shape.dimensions)
        if shape.rank == 2 and shape.dimensions[0] == shape.dimensions[1]:
            array = array + array.T + 200 * np.eye(shape.dimensions[0])
        found.append(np.asarray(array).astype(shape.dtype.numpy))
    return found


def on_thread(work: Callable[[], Any], size: int) -> Any:
    """What `work` gives on a thread with so many bytes of stack."""
    given: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            given.append(work())
        except BaseException as error:
            errors.append(error)

    former = threading.stack_size(size)
    try:
        thread = threading.Thread(target=body)
        thread.start()
    finally:
        threading.stack_size(former)
    thread.join()
    if errors:
        raise errors[0]
    return given[0]


@pytest.mark.parametrize("size", [32, 64, 128, 256, 512])
def test_kernels_run_on_threads_of_any_stack(size: int) -> None:
    for name in FAMILIES:
        module = hk.parse(text(name))
        arrays = inputs(module)
        expected = hk.compile(module)(*arrays)
        for _ in range(2):  # the second call takes another way
            got = on_thread(lambda: hk.compile(module, threads=2)(*arrays), size * KB)  # noqa: B023
            assert differs(got, expected) is None, (name, differs(got, expected))


def test_the_rest_of_the_package_runs_on_threads_of_any_stack() -> None:
    words = text("sort")

    def all_of_it() -> list[str]:
        module = hk.parse(words)
        hk.verify(module)
        x = np.arange(20000, dtype=np.float32)[::-1].copy()
        assert (hk.evaluate(module, x) == x[::-1]).all()
        executable = hk.compile(hk.optimize(module))
        return [str(module), hk.to_stablehlo(module), executable.as_text("llvm"), executable.as_text("asm")]

    assert on_thread(all_of_it, 32 * KB) == all_of_it()


def test_the_applications_stack_size_is_not_ours() -> None:
    """Code generation's threads, with a new cache; in a process of its own, since what crashes is the process."""
    script = f"""
import threading
threading.stack_size({32 * KB})
import hlokit as hk
for devices in ("", ", replica_count=4"):
    text = {text("product")!r}.replace("HloModule m", "HloModule m" + devices)
    module = hk.parse(text)
    x = __import__("numpy").ones((300, 300), "f")
    hk.compile(module, threads=2)(*([x] if not devices else [[x]] * 4))
    hk.evaluate(module, *([x] if not devices else [[x]] * 4))
assert threading.stack_size() == {32 * KB}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_errors_and_interrupts_pass_from_thread_to_thread() -> None:
    def fails() -> None:
        raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        stack.Thread(fails).join()
    with pytest.raises(hk.ParseError):
        on_thread(lambda: hk.parse("HloModule m\nENTRY e { x }"), 64 * KB)
    ended: list[str] = []
    release = threading.Event()

    def waits() -> None:
        try:
            while not release.wait(0.01):
                pass
        except KeyboardInterrupt:
            ended.append("interrupted")
            raise

    thread = stack.Thread(waits)
    thread._done.wait = _interrupted  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.join()
    finally:
        release.set()
    assert ended == ["interrupted"]


def _interrupted(timeout: float | None = None) -> bool:
    raise KeyboardInterrupt


def test_the_size_is_known() -> None:
    assert on_thread(stack.size, 256 * KB) == pytest.approx(256 * KB, abs=64 * KB)
    found: list[int] = []
    stack.Thread(lambda: found.append(stack.size())).join()
    assert found[0] == pytest.approx(stack.SIZE, abs=64 * KB)


def test_frames_are_counted() -> None:
    module = Module()
    event = Record("Event", {"kind": I32, "next": POINTER})
    floats = type_of("float", 8)
    takes = {"a": (floats.array(4), 2), "b": (I8, 1000), "c": (I32, 1), "d": (event, 2), "e": (floats, 3)}
    calls = {"a": ["b", "c", "d"], "b": ["c"], "c": ["c"], "d": ["e"], "e": []}
    for name, (type, count) in takes.items():
        with module.function(name, []) as f:
            f.local(type, count)
            for called in calls[name]:
                f.call(called)
    assert [d.stack for d in module.functions.values()] == [256, 1000, 4, 32, 96]
    assert deepest(module.functions, "a") == 256 + 1000 + 4
    assert deepest(module.functions, "d") == 32 + 96


def test_small_programs_are_called_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "KEPT_ROWS_OF", {})  # so that products pack
    module = hk.parse("HloModule m\nENTRY e { x = f32[8] parameter(0)\n ROOT r = f32[8] add(x, x) }")
    assert "hlokit_on_stack" not in hk.compile(module).as_text("llvm")
    assert "hlokit_on_stack" in hk.compile(hk.parse(text("product"))).as_text("llvm")


def test_an_error_keeps_nothing_once_it_is_handled() -> None:
    """What the frames of its traceback refer to may be gigabytes, which a collection of cycles would find much later."""

    class Large:
        pass

    def fails() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise KeyError

    kept: list[weakref.ref[Large]] = []
    gc.disable()
    try:
        for run in (stack.interruptible, lambda f: stack.Thread(f).join()):
            with contextlib.suppress(KeyError):
                run(fails)
    finally:
        gc.enable()
    assert [ref() for ref in kept] == [None, None]


def test_the_code_is_made_for_other_machines() -> None:
    from hlokit.cpu.jit import objects as jit

    for name in ("x86-64", "aarch64"):
        assert "hlokit_on_stack" in jit.assembly(on_stack.written(baseline(name)), baseline(name))


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        (DOT, "f32"),
        (DOT, "bf16"),
        (DOT, "c128"),
        (CONVOLUTION, "f32"),
        (CONVOLUTION, "f64"),
        (FFT, "c128"),
        (ROWS, "f64"),
    ],
)
def test_the_stack_that_headers_of_objects_ask_for_is_large_enough(words: str, dtype: str) -> None:
    program = hk.compile(hk.parse(words.format(dtype))).program
    assert 0 < deepest(program.written.module.functions, "hlokit_entry") < 0.75 * STACK
