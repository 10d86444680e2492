"""What does not fit is an error that says so, before LLVM or the system ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit import memory
from hlokit.runtime.arena import Recycler

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")

SCRIPT = """
import resource, numpy as np, hlokit as hk
size, text = {size}, {text!r}
module = hk.parse(text)
argument = np.ones([d for d in module.entry.parameters[0].shape.dimensions], np.float32)
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (size << 20),) * 2)
for function in (lambda: hk.evaluate(module, argument), lambda: hk.compile(module)(argument)):
    try:
        print("fine", np.shape(function()))
    except hk.HlokitError as error:
        assert isinstance(error, MemoryError), repr(error)
        print(type(error).__name__)
"""
SMALL = "HloModule m\nENTRY e { x = f32[300,300] parameter(0)\n" + (
    " ROOT r = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
)
LARGE = "HloModule m\nENTRY e { x = f32[] parameter(0)\n ROOT r = f32[1000000000] broadcast(x), dimensions={} }"


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        (SMALL, 10, ["OutOfMemoryError", "OutOfMemoryError"]),
        (SMALL, 100, ["fine (300, 300)", "OutOfMemoryError"]),
        (SMALL, 1000, ["fine (300, 300)", "fine (300, 300)"]),
        (LARGE, 1000, ["OutOfMemoryError"] * 2),
    ],
)
def test_under_a_limit(text: str, size: int, expected: list[str], tmp_path: Path) -> None:
    script = f"import os; os.environ['HLOKIT_CACHE_DIR'] = {str(tmp_path)!r}\n" + SCRIPT.format(size=size, text=text)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


def test_limits_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (
        ("memory.max", "1000000000"),
        ("memory.current", "600000000"),
        ("memory.stat", "anon 5\ninactive_file 1000\nactive_file 20\n"),
    ):
        (tmp_path / name).write_text(content + "\n")
    monkeypatch.setattr(memory, "_groups", lambda: [(str(tmp_path), "memory.max", "memory.current")])
    assert memory.most() <= 1_000_000_000 and memory.left() <= 400_001_020
    module = hk.parse(LARGE)
    for function in (hk.evaluate, lambda m, x: hk.compile(m)(x)):
        with pytest.raises(hk.OutOfMemoryError, match="limit"):
            function(module, np.float32(1))
    with pytest.raises(hk.OutOfMemoryError, match="it takes some 500,000,000 bytes"):
        memory.require(500_000_000, "it")
    memory.require(100_000, "it")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.most() > 1_000_000_000 or memory._physical() <= 1_000_000_000


def test_buffers_ask_control_groups_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would give the memory, and end the process that writes to it."""
    for name, content in (("memory.max", "400000000"), ("memory.current", "100000000"), ("memory.stat", "")):
        (tmp_path / name).write_text(content + "\n")
    module = hk.parse(LARGE.replace("1000000000", "90000000"))
    program = hk.compile(module)
    monkeypatch.setattr(memory, "_groups", lambda: [(str(tmp_path), "memory.max", "memory.current")])
    with pytest.raises(hk.OutOfMemoryError, match=r"a buffer takes some .* 300,000,000 are left"):
        program(np.float32(1))
    recycler = Recycler()
    kept = recycler.take(200_000_000)
    recycler.give(kept)
    del kept
    (tmp_path / "memory.current").write_text("300000000\n")
    monkeypatch.setattr(Recycler, "clear", lambda self: (tmp_path / "memory.current").write_text("100000000\n"))
    assert recycler.take(250_000_000).capacity >= 250_000_000, "what waits was not freed first"


ON_THE_WAY = {
    "iota": "HloModule m\nENTRY e { ROOT r = s8[40000000] iota(), iota_dimension=0 }",
    "exponential": """HloModule m
        ENTRY e { x = f32[] constant(1)
          b = f32[40000000] broadcast(x), dimensions={}
          ROOT r = f32[40000000] exponential(b) }""",
    "sort": """HloModule m
        f { a = s32[] parameter(0)
          b = s32[] parameter(1)
          ROOT l = pred[] compare(a, b), direction=LT }
        ENTRY e { x = s32[] constant(1)
          b = s32[17000000] broadcast(x), dimensions={}
          ROOT r = s32[17000000] sort(b), dimensions={0}, to_apply=f }""",
    "fft": """HloModule m
        ENTRY e { x = f32[] constant(1)
          b = f32[4999999] broadcast(x), dimensions={}
          ROOT r = c64[2500000] fft(b), fft_type=RFFT, fft_length={4999999} }""",
    "result": """HloModule m
        ENTRY e { x = f32[5000000] iota(), iota_dimension=0
          ROOT r = f32[15,5000000] broadcast(x), dimensions={1} }""",
}


@pytest.mark.parametrize("name", ON_THE_WAY)
def test_arrays_of_the_interpreter_ask_control_groups_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that NumPy makes on the way too, which may be many times the result."""
    for file, content in (("memory.max", "400000000"), ("memory.current", "100000000"), ("memory.stat", "")):
        (tmp_path / file).write_text(content + "\n")
    monkeypatch.setattr(memory, "_groups", lambda: [(str(tmp_path), "memory.max", "memory.current")])
    module = hk.parse(ON_THE_WAY[name])
    with pytest.raises(hk.OutOfMemoryError, match="Unable to allocate"):
        hk.evaluate(module)
    before = np._core.multiarray.get_handler_name()  # type: ignore[attr-defined]
    fits = hk.parse("HloModule m\nENTRY e { x = f32[6000000] parameter(0)\n ROOT r = f32[6000000] add(x, x) }")
    for _ in range(20):  # what is freed is there for the next
        result = hk.evaluate(fits, np.ones(6_000_000, np.float32))
        assert result[-1] == 2
    assert before == np._core.multiarray.get_handler_name() == "default_allocator"  # type: ignore[attr-defined]


ALIVE_AT_EXIT = """
import gc, sys, numpy as np, hlokit as hk
from hlokit import memory
memory._groups = lambda: [(sys.argv[1], "memory.max", "memory.current")]
kept = hk.evaluate(hk.parse(sys.argv[2]), np.float32(1))
print(np._core.multiarray.get_handler_name(kept if kept.base is None else kept.base))
sys.modules["kept"] = kept
gc.freeze()
"""


def test_arrays_outlive_the_interpreter(tmp_path: Path) -> None:
    """An array's memory is freed by the functions that made it, perhaps at the very end."""
    for file, content in (("memory.max", "400000000"), ("memory.current", "0"), ("memory.stat", "")):
        (tmp_path / file).write_text(content + "\n")
    text = LARGE.replace("1000000000", "10000000")
    command = [sys.executable, "-X", "dev", "-c", ALIVE_AT_EXIT, str(tmp_path), text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hlokit\n"), done.stderr


_GROUPS = Path("/sys/fs/cgroup/memory")  # of version 1; those of version 2 need their controllers handed down
IN_A_GROUP = """
import sys, pathlib, os
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import numpy as np, hlokit as hk
module = hk.parse(sys.argv[2])
program = hk.compile(module) if sys.argv[3] == "compiled" else lambda *x: hk.evaluate(module, *x)
for _ in range(2):
    try:
        print("fine", program(*[np.float32(1)] * len(module.entry.parameters)).shape)
    except hk.OutOfMemoryError as error:
        print(error)
"""


@pytest.mark.skipif(not os.access(_GROUPS, os.W_OK), reason="control groups cannot be made here")
@pytest.mark.parametrize(
    ("engine", "text", "expected"),
    [
        ("compiled", LARGE.replace("1000000000", "60000000"), "fine"),
        ("compiled", LARGE.replace("1000000000", "100000000"), "a buffer takes some"),
        ("interpreted", ON_THE_WAY["iota"].replace("40000000", "20000000"), "fine"),
        ("interpreted", ON_THE_WAY["iota"].replace("40000000", "80000000"), "r: Unable to allocate"),
        ("interpreted", ON_THE_WAY["exponential"], "r: Unable to allocate"),
    ],
)
def test_in_a_control_group(engine: str, text: str, expected: str) -> None:
    group = _GROUPS / f"hlokit-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(400 << 20))
        command = [sys.executable, "-c", IN_A_GROUP, str(group), text, engine]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        group.rmdir()
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert [line.startswith(expected) for line in done.stdout.splitlines()] == [True, True]


def test_what_the_system_has_not() -> None:
    with pytest.raises(hk.OutOfMemoryError):
        Recycler().take(1 << 60)
    assert issubclass(hk.OutOfMemoryError, MemoryError) and issubclass(hk.OutOfMemoryError, hk.EvaluationError)


def test_memory_errors_get_a_name() -> None:
    def fails() -> None:
        raise MemoryError("of NumPy")

    with pytest.raises(hk.OutOfMemoryError, match="of NumPy"):
        memory.named(fails)()
