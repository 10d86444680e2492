"""Compiled code touches nothing outside its arrays: it runs between forbidden pages, in a process that may die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.guard import PAGE, fenced
from tests.targets import targets

ROOT = Path(__file__).parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)


@pytest.mark.parametrize("at_end", [True, False])
def test_a_fence_kills(at_end: bool) -> None:
    place = 8 if at_end else -1
    code = f"""
import ctypes, numpy as np
from tests.fuzz.guard import fenced
array = fenced((8,), np.dtype(np.uint8), {at_end})
array[...] = 1
print("inside", flush=True)
ctypes.c_uint8.from_address(array.__array_interface__["data"][0] + {place}).value
"""
    done = run(code)
    assert done.stdout == "inside\n" and done.returncode < 0


def test_fences_are_where_arrays_end() -> None:
    import numpy as np

    array = fenced((PAGE + 3,), np.dtype(np.float32), True)
    assert (array.__array_interface__["data"][0] + array.nbytes) % PAGE == 0
    assert fenced((3, 5), np.dtype(np.float32), False).__array_interface__["data"][0] % PAGE == 0


SIZES = (1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 127)

OUTSIDE = """
HloModule outside
add {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b) }}
ENTRY e {{
  x = {t}[{n},{m}] parameter(0)
  v = {t}[{n}] parameter(1)
  at = s32[7] parameter(2)
  i = s32[] parameter(3)
  u = {t}[1,{m}] parameter(4)
  updates = {t}[7] parameter(5)
  rows = {t}[7,{m}] gather(x, at), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,{m}}}
  elements = {t}[7] gather(v, at), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1}}
  zero = s32[] constant(0)
  part = {t}[1,{m}] dynamic-slice(x, i, zero), dynamic_slice_sizes={{1,{m}}}
  column = {t}[{n},1] dynamic-slice(x, i, i), dynamic_slice_sizes={{{n},1}}
  put = {t}[{n},{m}] dynamic-update-slice(x, u, i, i)
  sums = {t}[{n}] scatter(v, at, updates), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
  windows = {t}[{n},{m}] scatter(x, at, rows), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
  back = {t}[{n},{m}] reverse(x), dimensions={{0,1}}
  over = {t}[{m},{n}] transpose(x), dimensions={{1,0}}
  init = {t}[] parameter(6)
  totals = {t}[{n}] reduce(x, init), dimensions={{1}}, to_apply=add
  columns = {t}[{m}] reduce(x, init), dimensions={{0}}, to_apply=add
  ROOT all = ({t}[7,{m}], {t}[7], {t}[1,{m}], {t}[{n},1], {t}[{n},{m}], {t}[{n}], {t}[{n},{m}], {t}[{n},{m}],
    {t}[{m},{n}], {t}[{n}], {t}[{m}])
    tuple(rows, elements, part, column, put, sums, windows, back, over, totals, columns)
}}
"""

INDICES = """
import numpy as np, hlokit as hk
from tests.cpu.test_guard_pages import OUTSIDE, SIZES
from tests.fuzz.guard import guarded
from hlokit.judge.closeness.equality import differs, same_bytes
from tests.fuzz.machine_code import many_chunks
from hlokit.judge.fuzz.values import random_array
source = np.random.default_rng(0)
least, most = -2**31, 2**31 - 1
for number, n in enumerate(SIZES):
    m = SIZES[(number * 3 + {at_end:d}) % len(SIZES)]
    element = (hk.f32, hk.s8, hk.f64, hk.bf16, hk.c64)[number % 5]
    module = hk.parse(OUTSIDE.format(n=n, m=m, t=element.name))
    shapes = [p.shape for p in module.entry.parameters]
    inputs = [random_array(source, s.dtype, s.dimensions, 0.0) for s in shapes]
    inputs[2] = np.array([0, n - 1, n, -1, least, most, n + 1], np.int32)
    with guarded({at_end}), many_chunks():
        one, two, strict = (hk.compile(module, threads=k, strict=k == 3) for k in (1, 2, 3))
        for place in (least, -1, n, most):
            inputs[3] = np.array(place, np.int32)
            assert same_bytes(one(*inputs), two(*inputs))
            assert differs(strict(*inputs), hk.evaluate(module, *inputs)) is None
print("done")
"""


@pytest.mark.parametrize("at_end", [True, False])
def test_indices_outside_touch_nothing_outside(at_end: bool) -> None:
    done = run(INDICES.format(at_end=at_end))
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout == "done\n"


CHUNKS = """
import numpy as np, hlokit as hk
from tests.fuzz.guard import guarded
from hlokit.judge.fuzz.values import random_array
source = np.random.default_rng(0)
for height, features in ((9, 64), (9, 65), (8, 33)):
    text = f"x = f16[2,{height},20,117] parameter(0) k = f16[5,3,117,{features}] parameter(1)"
    module = hk.parse(f'''HloModule m
ENTRY e {{ {text}
  ROOT r = f16[2,{height - 4},6,{features}] convolution(x, k), window={{size=5x3 stride=1x3}}, dim_labels=b01f_01io->b01f }}''')
    inputs = [random_array(source, p.shape.dtype, p.shape.dimensions, 0.0) for p in module.entry.parameters]
    with guarded(True):
        hk.compile(module, threads=1)(*inputs)
print("done")
"""


def test_a_last_chunk_of_fewer_outputs_reads_no_rows_beyond() -> None:
    """Of a convolution whose chunks are several rows of outputs, and whose inputs are converted before."""
    done = run(CHUNKS)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])


PIECES = """
from contextlib import nullcontext
import hlokit as hk, numpy as np
from tests.fuzz.guard import guarded
from hlokit.judge.closeness.equality import same_bytes
from tests.fuzz.machine_code import many_chunks
from hlokit.judge.fuzz.values import random_array
source = np.random.default_rng(0)
for rows, t in ((7, "f32"), (1, "u8"), (1, "c64"), (3, "f64")):
    sizes = [1 + k * 5 % 37 for k in range(18)]
    body = "".join(f"p{k} = {t}[{rows},{n}] parameter({k})\\n" for k, n in enumerate(sizes))
    body += "".join(f"q{k} = {t}[{rows},{-(-n // 3)}] slice(p{k}), slice={{[0:{rows}], [0:{n}:3]}}\\n"
                    for k, n in enumerate(sizes))
    body += f"ROOT r = {t}[{rows},{sum(n + -(-n // 3) for n in sizes)}] concatenate("
    module = hk.parse("HloModule m\\nENTRY e {" + body + ",".join(f"p{k}, q{k}" for k in range(18)) + "), dimensions={1} }")
    inputs = [random_array(source, p.shape.dtype, p.shape.dimensions, 0.0) for p in module.entry.parameters]
    for chunks in (False, True):
        for at_end in (False, True):
            with guarded(at_end), many_chunks() if chunks else nullcontext():
                assert same_bytes(hk.compile(module, threads=1)(*inputs), hk.evaluate(module, *inputs))
print("done")
"""


def test_pieces_of_a_concatenation_touch_their_operands_alone() -> None:
    done = run(PIECES)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])


BYTES = """
import hlokit as hk, numpy as np
from tests.fuzz.guard import guarded
from hlokit.judge.closeness.equality import same_bytes
for step in (2, 3, 4):
    for pixels in (16, 17, 31, 45, 64, 1003):
        body = f"x = u8[{pixels},{step}] parameter(0)\\n"
        for k in range(step):
            body += f"a{k} = u8[{pixels},1] slice(x), slice={{[0:{pixels}], [{k}:{k + 1}]}} "
            body += f"b{k} = s32[{pixels},1] convert(a{k})\\n"
        module = hk.parse("HloModule m\\nENTRY e {" + body + f"ROOT r = s32[{pixels},1] multiply(b0, b{step - 1}) }}")
        data = np.arange(pixels * step).astype(np.uint8).reshape(pixels, step)
        for at_end in (False, True):
            with guarded(at_end):
                assert same_bytes(hk.compile(module, threads=1)(data), hk.evaluate(module, data))
print("done")
"""


def test_interleaved_bytes_are_read_inside() -> None:
    done = run(BYTES)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])


WINDOWS = """
import hlokit as hk
from tests.fuzz.guard import guarded
from hlokit.judge.closeness.equality import differs
from hlokit.judge.fuzz.values import random_array
import numpy as np
source = np.random.default_rng(0)
for t in ("f32", "f64", "s32", "s8"):
    for name, first in (("maximum", "-inf" if t[0] == "f" else -100), ("add", 0)):
        for rows, columns in ((12, 24), (20, 40), (9, 104), (5, 264)):
            module = hk.parse(f'''HloModule m
f {{ a = {t}[] parameter(0) b = {t}[] parameter(1) ROOT r = {t}[] {name}(a, b) }}
ENTRY e {{ x = {t}[{rows},{columns}] parameter(0) z = {t}[] constant({first})
  ROOT w = {t}[{rows},{columns}] reduce-window(x, z), window={{size=3x3 pad=1_1x1_1}}, to_apply=f }}''')
            (x,) = (random_array(source, p.shape.dtype, p.shape.dimensions, 0.0) for p in module.entry.parameters)
            for at_end in (False, True):
                with guarded(at_end):
                    assert differs(hk.compile(module, threads=1)(x), hk.evaluate(module, x)) is None
print("done")
"""


def test_windows_over_padding_read_inside() -> None:
    """LLVM folds a masked load into a maximum, and takes it out again without the mask."""
    done = run(WINDOWS)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])


NARROWED = """
import hlokit as hk, numpy as np
from tests.fuzz.guard import guarded
from hlokit.judge.closeness.equality import same_bytes
from hlokit.judge.fuzz.values import random_array
source = np.random.default_rng(0)
bodies = [f"{order} ROOT r = {t}[{{n}}] convert(y)" for t in ("s8", "s16", "s32")
          for order in ("y = s64[{n}] add(x, x)", "y = s64[{n}] reverse(x), dimensions={{0}}")]
bodies.append("y = s32[{n}] convert(x) ROOT r = s32[{n}] mulhi(y, y)")
for body in bodies:
    for n in (3, 5, 9, 10, 12, 17, 33):
        module = hk.parse("HloModule m\\nENTRY e { x = s64[%d] parameter(0) " % n + body.format(n=n) + " }")
        x = random_array(source, hk.s64, (n,), 0.0)
        for at_end in (False, True):
            with guarded(at_end):
                assert same_bytes(hk.compile(module, threads=1)(x), hk.evaluate(module, x))
print("done")
"""


def test_a_last_narrowed_element_is_stored_alone() -> None:
    """LLVM stores 8 bytes for one lane of a vector that was truncated from 64 bits."""
    done = run(NARROWED)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])


RANDOM = """
from tests.fuzz.guard import guarded
from tests.fuzz.machine_code import wrong
from hlokit.judge.fuzz.programs import random_draw
from hlokit.judge.fuzz.shapes import shaped_draw
for seed in range({first}, {first} + 12):
    for draw in (random_draw, shaped_draw):
        with guarded(bool(seed % 2)):
            found = wrong(draw(seed).module, seed, passes=False)
        assert not found, (draw.__name__, seed, found)
print("done")
"""


@pytest.mark.parametrize("first", [0])
def test_random_programs_stay_inside(first: int) -> None:
    """The long version: python -m tests.fuzz.run --compiled --guard."""
    done = run(RANDOM.format(first=first))
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


STACK = """
import ctypes
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.llvm import I8, I64, Function, Module
from hlokit.cpu.target import host
from tests.fuzz.guard import guarded_stack
module = Module()
with guarded_stack({at_end}):
    function = Function("f", [("i64", "place")])
    array = function.local(I8, 100, 32)
    array[function.index_argument("place")].store(function.constant(1, I8))
    function.returns()
    module.add(function, exported=True)
library = Library([compile_object(module, host())])
f = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("f"))
f(0), f(99)
print("inside", flush=True)
f({place})
"""


@pytest.mark.parametrize(("at_end", "place"), [(True, 100), (True, 128), (False, -1), (False, 101)])
def test_arrays_on_the_stack_have_fences(at_end: bool, place: int) -> None:
    """What is written between an array's end and the forbidden page is seen when the function returns."""
    done = run(STACK.format(at_end=at_end, place=place))
    assert done.stdout == "inside\n" and done.returncode < 0


KERNELS = """
from tests.cpu.test_convolution import test_random
from tests.cpu.test_families import FAMILIES, case
from tests.fuzz.guard import guarded_stack
from tests.targets import targets
import hlokit as hk
with guarded_stack({at_end}):
    for seed in (0, 1, 2):
        test_random(seed)
    for family in {families}:
        module, given, _ = case(family, FAMILIES[family][0].split()[0])
        hk.compile(module, target=targets()["host"])(*given)
print("done")
"""
ON_THE_STACK = (
    "angles", "transposition", "products", "products of bytes", "ragged products", "convolutions", "depthwise convolutions",
    "sorts", "sorts of columns", "largest", "Fourier transforms", "transforms of primes", "Cholesky factors",
    "triangular systems", "random bits",
)  # fmt: skip
"""Families of kernels that have arrays there."""


@pytest.mark.parametrize(("target", "at_end"), [("host", True), ("host", False), ("SSE2", True)])
def test_kernels_stay_inside_their_arrays_on_the_stack(
    target: str, at_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all tests of kernels: pytest tests/cpu --guarded-stack=end."""
    if target not in targets():
        pytest.skip("an x86-64 processor's")
    monkeypatch.setenv("HLOKIT_TARGET", targets()[target])
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    done = run(KERNELS.format(at_end=at_end, families=ON_THE_STACK))
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-2000:])
