"""Every kernel hears signals while it runs, and is none the worse for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.jit import pool_code
from hlokit.cpu.target import baseline
from hlokit.runtime import long_kernels
from tests.fuzz.properties import leaves

ADD = "add { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT r = TYPE[] add(a, b) }"
MOST = "most { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT r = TYPE[] maximum(a, b) }"
AFFINE = "affine { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  c = TYPE[] multiply(a, b)\n" + (
    "  d = TYPE[] constant(0.5)\n  ROOT r = TYPE[] add(c, d) }"
)
BELOW = "below { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT }"
ODD_ORDER = """odd { a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = TYPE[] sine(a)
  d = TYPE[] sine(b)
  ROOT r = pred[] compare(c, d), direction=LT }"""
WAVY = "wavy { w0 = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n" + "".join(
    f"  v{k} = TYPE[] sine(w{k})\n  p{k} = TYPE[] power(v{k}, b)\n  w{k + 1} = TYPE[] add(p{k}, b)\n" for k in range(6)
) + "  ROOT r = TYPE[] cosine(w6) }"
SINE = "turned { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  c = TYPE[] sine(a)\n  ROOT r = TYPE[] add(c, b) }"
GE = "atleast { a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=GE }"
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
AXES = ",".join("N" * 17)
WAVES = "\n".join(f"  w{k + 1} = TYPE[N] sine(w{k})" for k in range(40))

# name: (element type, size N, called computations, body); p0, p1: parameters. Each takes about a second of one core.
FAMILIES: dict[str, tuple[str, int, Sequence[str], str]] = {
    "product of f32": ("f32", 4096, (), f"ROOT r = f32[N,N] dot(f32[N,N] p0, f32[N,N] p1), {PRODUCT}"),
    "product of f64": ("f64", 3072, (), f"ROOT r = f64[N,N] dot(f64[N,N] p0, f64[N,N] p1), {PRODUCT}"),
    "product of bf16": ("bf16", 5120, (), f"ROOT r = f32[N,N] dot(bf16[N,N] p0, bf16[N,N] p1), {PRODUCT}"),
    "product of bytes": ("s8", 6144, (), f"ROOT r = s32[N,N] dot(s8[N,N] p0, s8[N,N] p1), {PRODUCT}"),
    "batches of products": (
        "f32",
        1000,
        (),
        "ROOT r = f32[50,N,N] dot(f32[50,N,N] p0, f32[50,N,N] p1), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "convolution": (
        "f32",
        128,
        (),
        "ROOT r = f32[8,N,N,128] convolution(f32[8,N,N,128] p0, f32[5,5,128,128] p1), window={size=5x5 pad=2_2x2_2},"
        " dim_labels=b01f_01io->b01f",
    ),
    "reduction": (
        "f64",
        4000,
        (ADD,),
        """i0 = s64[N,200000] iota(), iota_dimension=0
  i1 = s64[N,200000] iota(), iota_dimension=1
  i2 = s64[N,200000] add(i0, i1)
  x = f64[N,200000] convert(i2)
  y = f64[N,200000] sine(x)
  z = f64[] constant(0)
  ROOT r = f64[N] reduce(y, z), dimensions={1}, to_apply=add""",
    ),
    "one long sum": (
        "f32",
        400_000_000,
        (AFFINE,),
        """i = s32[N] iota(), iota_dimension=0
  x = f32[N] convert(i)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=affine""",
    ),
    "window": (
        "f32",
        100_000_000,
        (AFFINE,),
        """z = f32[] constant(0)
  ROOT r = f32[3] reduce-window(f32[2] p0, z), window={size=N pad=H_H}, to_apply=affine""",
    ),
    "windows in a plane": (
        "f32",
        3000,
        (AFFINE,),
        """z = f32[] constant(0)
  ROOT r = f32[N,N] reduce-window(f32[N,N] p0, z), window={size=25x25 pad=12_12x12_12}, to_apply=affine""",
    ),
    "cumulative sums": (
        "f64",
        20_000_000,
        (SINE,),
        """z = f64[] constant(0)
  ROOT r = f64[N] reduce-window(f64[N] p0, z), window={size=N pad=M_0}, to_apply=turned""",
    ),
    "sort": ("f32", 60_000_000, (BELOW,), "ROOT r = f32[N] sort(f32[N] p0), dimensions={0}, to_apply=below"),
    "sort by any order": (
        "f32",
        3_000_000,
        (ODD_ORDER,),
        "ROOT r = f32[N] sort(f32[N] p0), dimensions={0}, to_apply=odd",
    ),
    "largest": ("f32", 20000, (), "ROOT r = (f32[N,500], s32[N,500]) topk(f32[N,20000] p0), k=500, largest=true"),
    "Fourier transform": ("c64", 1 << 26, (), "ROOT r = c64[N] fft(c64[N] p0), fft_type=FFT, fft_length={N}"),
    "transform of a prime": ("c64", 7_000_003, (), "ROOT r = c64[N] fft(c64[N] p0), fft_type=FFT, fft_length={N}"),
    "Cholesky factor": ("f64", 5000, (), "ROOT r = f64[N,N] cholesky(f64[N,N] p0), lower=true"),
    "triangular system": (
        "f64",
        3500,
        (),
        "ROOT r = f64[N,N] triangular-solve(f64[N,N] p0, f64[N,N] p1), left_side=true, lower=true,"
        " unit_diagonal=false, transpose_a=NO_TRANSPOSE",
    ),
    "gather": (
        "s32",
        40_000_000,
        (),
        """ROOT r = f32[N] gather(f32[N] p1, s32[N] p0), offset_dims={},
  collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}""",
    ),
    "scatter": (
        "s32",
        60_000_000,
        (ADD.replace("TYPE", "f32"),),
        """ROOT r = f32[N] scatter(f32[N] p1, s32[N,1] p0,
  f32[N] p2), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,
  to_apply=add""",
    ),
    "elements": (
        "f32",
        30_000_000,
        (),
        "w0 = f32[N] add(f32[N] p0, f32[N] p0)\n" + WAVES + "\n  ROOT r = f32[N] add(w40, w40)",
    ),
    "copy": (
        "s8",
        3,
        (),
        f"ROOT r = s8[{AXES}] transpose(s8[{AXES}] p0), dimensions={{{','.join(map(str, reversed(range(17))))}}}",
    ),
    "map": ("f32", 80_000_000, (WAVY,), "ROOT r = f32[N] map(f32[N] p0, f32[N] p0), dimensions={0}, to_apply=wavy"),
    "random bits": (
        "u64",
        500_000_000,
        (),
        "ROOT r = (u64[2], u32[N]) rng-bit-generator(u64[2] p0), algorithm=rng_three_fry",
    ),
    "select and scatter": (
        "f32",
        2000,
        (GE, ADD),
        """z = f32[] constant(0)
  ROOT r = f32[N,N] select-and-scatter(f32[N,N] p0, f32[Q,Q] p1, z), window={size=20x20 stride=2x2}, select=atleast,
  scatter=add""",
    ),
}

LAPACK = "api_version=API_VERSION_TYPED_FFI, backend_config="
WHOLE: dict[str, str] = {
    "passes of a loop": """
below { s = (s64[], f32[4]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(60000000)
  ROOT r = pred[] compare(i, n), direction=LT }
pass { s = (s64[], f32[4]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s64[] constant(1)
  j = s64[] add(i, one)
  y = f32[4] cosine(x)
  ROOT r = (s64[], f32[4]) tuple(j, y) }
ENTRY e { x = f32[4] parameter(0)
  z = s64[] constant(0)
  s = (s64[], f32[4]) tuple(z, x)
  ROOT r = (s64[], f32[4]) while(s), condition=below, body=pass }""",
    "updates in a loop": """
below { s = (s64[], f32[1000]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(120000000)
  ROOT r = pred[] compare(i, n), direction=LT }
pass { s = (s64[], f32[1000]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = f32[1000] get-tuple-element(s), index=1
  one = s64[] constant(1)
  j = s64[] add(i, one)
  k = s64[] constant(1000)
  at = s64[] remainder(i, k)
  e = f32[1] dynamic-slice(x, at), dynamic_slice_sizes={1}
  f = f32[1] cosine(e)
  y = f32[1000] dynamic-update-slice(x, f, at)
  ROOT r = (s64[], f32[1000]) tuple(j, y) }
ENTRY e { x = f32[1000] parameter(0)
  z = s64[] constant(0)
  s = (s64[], f32[1000]) tuple(z, x)
  ROOT r = (s64[], f32[1000]) while(s), condition=below, body=pass }""",
    "branches in a loop": """
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
one { x = f32[2000,2000] parameter(0)
  ROOT r = f32[2000,2000] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
other { x = f32[2000,2000] parameter(0)
  ROOT r = f32[2000,2000] transpose(x), dimensions={1,0} }
below { s = (s64[], f32[2000,2000]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(16)
  ROOT r = pred[] compare(i, n), direction=LT }
pass { s = (s64[], f32[2000,2000]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = f32[2000,2000] get-tuple-element(s), index=1
  j1 = s64[] constant(1)
  j = s64[] add(i, j1)
  two = s64[] constant(2)
  rest = s64[] remainder(i, two)
  nil = s64[] constant(0)
  even = pred[] compare(rest, nil), direction=EQ
  y = f32[2000,2000] conditional(even, x, x), true_computation=one, false_computation=other
  z = f32[2000,2000] sine(y)
  ROOT r = (s64[], f32[2000,2000]) tuple(j, z) }
ENTRY e { x = f32[2000,2000] parameter(0)
  z = s64[] constant(0)
  s = (s64[], f32[2000,2000]) tuple(z, x)
  ROOT r = (s64[], f32[2000,2000]) while(s), condition=below, body=pass }""",
    "QR": f"""
ENTRY e {{ x = f64[3000,3000] parameter(0)
  ROOT r = (f64[3000,3000], f64[3000]) custom-call(x), custom_call_target="lapack_dgeqrf_ffi", {LAPACK}"" }}""",
    "LU": f"""
ENTRY e {{ x = f64[3500,3500] parameter(0)
  ROOT r = (f64[3500,3500], s32[3500], s32[]) custom-call(x), custom_call_target="lapack_dgetrf_ffi", {LAPACK}"" }}""",
    "eigenvectors": f"""
ENTRY e {{ x = f64[8,1000,1000] parameter(0)
  ROOT r = (f64[8,1000,1000], f64[8,1000], s32[8]) custom-call(x), custom_call_target="lapack_dsyevd_ffi",
  {LAPACK}"{{mode = 86 : ui8, uplo = 76 : ui8}}" }}""",
    "eigenvectors by LAPACK": f"""
ENTRY e {{ x = f64[1500,1500] parameter(0)
  ROOT r = (f64[1500,1500], f64[1500], s32[]) custom-call(x), custom_call_target="lapack_dsyevd_ffi",
  {LAPACK}"{{mode = 86 : ui8, uplo = 76 : ui8}}" }}""",
    "singular vectors by LAPACK": f"""
ENTRY e {{ x = f64[1000,1000] parameter(0)
  ROOT r = (f64[1000,1000], f64[1000], f64[1000,1000], f64[1000,1000], s32[]) custom-call(x),
  custom_call_target="lapack_dgesdd_ffi", {LAPACK}"{{mode = 83 : ui8}}" }}""",
    "singular vectors by NumPy": """
ENTRY e { x = f64[1000,1000] parameter(0)
  ROOT r = (f64[1000,1000], f64[1000], f64[1000,1000]) custom-call(x), custom_call_target="Svd" }""",
}
"""Programs whose text is given whole."""


def program(name: str, size: int = 0) -> hk.HloModule:
    """The program; of a family of one size N, by default of that in the table."""
    if name in WHOLE:
        return hk.parse("HloModule m\n" + WHOLE[name])
    type, usual, called, body = FAMILIES[name]
    size = size or usual
    for word, number in (("N", size), ("M", size - 1), ("H", size // 2), ("Q", (size - 20) // 2 + 1)):
        body = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", str(number), body)
    kinds = {number: shape for shape, number in re.findall(r"(\w+\[[\d,]*\]) p(\d)", body)}
    lines = [f"  p{number} = {shape} parameter({number})" for number, shape in sorted(kinds.items())]
    text = "\n".join([*called, "ENTRY e {", *lines, body, "}"])
    return hk.parse("HloModule m\n" + text.replace("TYPE", type))


def numbers(module: hk.HloModule) -> list[np.ndarray]:
    source = np.random.default_rng(3)
    found: list[np.ndarray] = []
    for number, parameter in enumerate(module.entry.parameters):
        shape = parameter.shape
        if shape.dtype.is_integral:
            high = 100 if shape.dtype.bits == 8 else min(shape.dimensions[0], 1 << 30)
            values = source.integers(0, max(high, 2), shape.dimensions, np.int32)
        else:
            values = source.random(shape.dimensions, np.float32)
        values = values.astype(shape.dtype.numpy)
        if module.entry.root.opcode in ("cholesky", "triangular-solve") and number == 0:
            values = values + len(values) * np.eye(len(values), dtype=values.dtype)
            values = (values + values.T) / 2
        found.append(values)
    return found


class Stop(BaseException):
    """What the signal's handler raises."""


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Generator[None]:
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, former)


@contextmanager
def signalled(after: float, again: bool = False) -> Generator[None]:
    """The signal comes when the process has worked for so many seconds, which is no matter of how busy the machine is;
    then every time that it has worked for as long again."""
    over = threading.Event()

    def send() -> None:
        due = time.process_time() + after
        while not over.wait(0.002):
            if time.process_time() >= due:
                os.kill(os.getpid(), signal.SIGUSR1)
                due += after
                if not again:
                    return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def bits(value: Any) -> list[bytes]:
    return [np.ascontiguousarray(leaf).tobytes() for leaf in leaves(value)]


LEAST = 0.3
"""Seconds of work that a whole run must take for this to be a test."""


class Measured(NamedTuple):
    """A program with its arguments and its result, and the seconds of work that a run takes."""

    executable: Any
    given: list[np.ndarray]
    expected: list[bytes]
    whole: float


def measured(module: hk.HloModule) -> Measured:
    given = numbers(module)
    executable = hk.compile(module, threads=2)
    expected = bits(executable(*given))
    begun = time.process_time()
    result = executable(*given)
    whole = time.process_time() - begun
    assert bits(result) == expected
    return Measured(executable, given, expected, whole)


def check(program: Measured) -> None:
    """A run that a handler stops is stopped long before its end, and leaves no trace; a handler that returns does not
    change the result."""
    executable, given, expected, whole = program
    assert whole > LEAST, f"too short a program for a test: {whole} s"
    ran = False

    with handled(stop):
        begun = time.process_time()
        with signalled(0.1 * whole), pytest.raises(Stop):
            executable(*given)
            ran = True
        worked = time.process_time() - begun
    assert not ran
    assert worked < 0.7 * whole, f"{worked} s of work, of {whole}"
    seen: list[int] = []
    with handled(lambda number, frame: seen.append(number)), signalled(0.1 * whole, again=True):
        assert bits(executable(*given)) == expected
    assert seen


@pytest.mark.parametrize(("name", "size"), [("product of f64", 3500), ("window", 100_000_000)])
def test_parallel_and_single_kernels(name: str, size: int) -> None:
    """On a fast machine of a larger size."""
    found = measured(program(name, size))
    while found.whole <= LEAST:
        size = size * 3 // 2
        found = measured(program(name, size))
    check(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, *WHOLE])
def test_every_family(name: str) -> None:
    check(measured(program(name)))


PAIR = "ENTRY e {\n  p0 = f64[N,N] parameter(0)\n  x = f64[N,N] dot(p0, p0), PRODUCT\n  ROOT r = f64[N,N] dot(x, p0), PRODUCT\n}"


def pair(size: int) -> tuple[hk.HloModule, np.ndarray]:
    """Two products, the second on what the first gave."""
    text = "HloModule m\n" + PAIR.replace("PRODUCT", PRODUCT).replace("[N,N]", f"[{size},{size}]")
    return hk.parse(text), np.random.default_rng(5).random((size, size))


def stop(number: int, frame: Any) -> None:
    raise Stop


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_interrupts_at_any_time_leave_no_trace(threads: int) -> None:
    module, given = pair(700)
    executable = hk.compile(module, threads=threads)
    expected = bits(executable(given))
    begun = time.process_time()
    assert bits(executable(given)) == expected
    whole = time.process_time() - begun
    stopped = 0
    with handled(stop):
        for k in range(12):
            try:
                with signalled(whole * k / 12):
                    executable(given)
                    time.sleep(0)
            except Stop:
                stopped += 1
            assert bits(executable(given)) == expected


def test_other_threads_calls_go_on() -> None:
    """Of the same executable, with the same pool."""
    module, given = pair(1500)
    executable = hk.compile(module, threads=2)
    expected = bits(executable(given))
    results: list[list[bytes]] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            results.append(bits(executable(given)))

    others = [threading.Thread(target=work) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        with handled(stop):
            for _ in range(3):
                with pytest.raises(Stop), signalled(0.2):
                    while True:
                        executable(given)
    finally:
        over.set()
        for thread in others:
            thread.join()
    assert len(results) >= 2
    assert all(result == expected for result in results)


@pytest.mark.slow
def test_an_interrupt_stops_all_devices() -> None:
    text = """HloModule m, replica_count=2
add { a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = f64[] add(a, b) }
ENTRY e { p = f64[2000,2000] parameter(0)
  x = f64[2000,2000] dot(p, p), PRODUCT
  y = f64[2000,2000] dot(x, p), PRODUCT
  ROOT r = f64[2000,2000] all-reduce(y), replica_groups={}, to_apply=add }""".replace("PRODUCT", PRODUCT)
    executable: Any = hk.compile(hk.parse(text), replicas=2)
    given = [np.random.default_rng(k).random((2000, 2000)) for k in range(2)]
    expected = bits(executable([given[0]], [given[1]]))
    begun = time.process_time()
    assert bits(executable([given[0]], [given[1]])) == expected
    whole = time.process_time() - begun
    with handled(stop):
        begun = time.process_time()
        with pytest.raises(Stop), signalled(0.1 * whole):
            executable([given[0]], [given[1]])
        assert time.process_time() - begun < 0.8 * whole
    assert bits(executable([given[0]], [given[1]])) == expected


def test_donated_memory_can_be_used_again() -> None:
    module, given = pair(1000)
    executable = hk.compile(module, threads=2, donate=(0,))
    expected = bits(executable(given.copy()))
    with handled(stop):
        donated = given.copy()
        with pytest.raises(Stop), signalled(0.1):
            while True:
                executable(donated)
    donated[...] = given
    assert bits(executable(donated)) == expected


def test_the_signal_is_whose_it_was() -> None:
    seen: list[int] = []
    former = signal.signal(signal.SIGURG, lambda number, frame: seen.append(number))
    try:
        module, given = pair(2000)
        executable = hk.compile(module, threads=2)
        with handled(stop), pytest.raises(Stop), signalled(0.1):
            while True:
                executable(given)
        assert not seen
        signal.raise_signal(signal.SIGURG)
        assert seen == [signal.SIGURG]
    finally:
        signal.signal(signal.SIGURG, former)


def test_a_thread_of_a_small_stack() -> None:
    """The thread that a kernel runs on does not take it over."""
    former = threading.stack_size(1 << 18)
    try:
        module, given = pair(600)
        executable = hk.compile(module)
        results: list[list[bytes]] = []
        thread = threading.Thread(target=lambda: results.append(bits(executable(given))))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(former)
    assert results == [bits(executable(given))]


EVALUATED = {
    "sort": ("sort", 12_000_000),
    "elements": ("elements", 10_000_000),
    "singular vectors": ("singular vectors by NumPy", 0),
}


@pytest.mark.parametrize("name", ["sort", pytest.param("elements", marks=pytest.mark.slow), "singular vectors"])
def test_the_interpreter_hears_signals(name: str) -> None:
    family, size = EVALUATED[name]
    module = program(family, size)
    given = numbers(module)
    ended = False
    with handled(stop), pytest.raises(Stop), signalled(0.2):
        hk.evaluate(module, *given)
        ended = True
    assert not ended


EXIT = """
import os, signal, sys, threading
import numpy as np
import hlokit as hk

text = 'ENTRY e { x = f64[400,400] parameter(0)\\n  ROOT r = (f64[400,400], f64[400], f64[400,400]) custom-call(x),'
module = hk.parse("HloModule m\\n" + text + ' custom_call_target="Svd" }')
x = np.random.default_rng(0).random((400, 400))
hk.evaluate(module, x[:] * 0 + np.eye(400))
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        hk.evaluate(module, x)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_process_ends_cleanly_after_an_interrupt() -> None:
    """What LAPACK is still at must be there until it is done."""
    ended = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_the_code_is_made_for_other_machines() -> None:
    for name in ("x86-64", "aarch64"):
        target = baseline(name)
        assert "hlokit_interruptible" in jit.assembly(long_kernels.written(target), target)
        assert "hlokit_hold" in jit.assembly(pool_code.written(target), target)
