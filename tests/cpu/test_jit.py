"""LLVM text becomes object code, object code becomes functions."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from hlokit.cpu.jit import objects as jit
from hlokit.cpu.jit.pool import pool
from hlokit.cpu.llvm import COLD, I64, POINTER, Function, Global, Module, Prototype, type_of
from hlokit.cpu.target import BASELINES, Target, available_threads, baseline, host, parse, quota
from hlokit.errors import ArgumentError, UnsupportedError
from tests.leaks import main

F32 = type_of("float")
TEXT = """
define internal i64 @square(i64 %x) alwaysinline {
  %y = mul i64 %x, %x
  ret i64 %y
}

define internal i64 @unused(i64 %x) {
  ret i64 %x
}

define i64 @f(i64 %x) {
  %y = call i64 @square(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
VECTOR = Module()
with VECTOR.function("scale", [(POINTER, "x")]) as scale:
    scale.pointer("x", F32).store(scale.pointer("x", F32).load(16) * 3.0)
VECTOR.exported["scale"] = None


def function(address: int, result=ctypes.c_int64, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def load(text: str, name: str = "f", **symbols: int) -> tuple[jit.Library, int]:
    library = jit.Library([jit.compile_object(text, host())], symbols)
    return library, library.address(name)


def test_code_runs():
    library, address = load(TEXT)
    assert function(address, ctypes.c_int64, ctypes.c_int64)(12) == 145
    assert library.address("f") == address


def test_vectors_of_constants_are_within_reach():
    library, address = load(VECTOR, "scale")
    values = (ctypes.c_float * 16)(*range(16))
    function(address, None, ctypes.c_void_p)(ctypes.addressof(values))
    assert list(values) == [3.0 * i for i in range(16)]
    del library


def test_code_of_another_machine_is_not_linked() -> None:
    """JITLink links it, and calling it executes what are no instructions here."""
    other = baseline("x86-64" if host().arch == "aarch64" else "aarch64")
    with pytest.raises(ValueError, match="the object is for ELF machine"):
        jit.Library([jit.compile_object(TEXT, other)])


_INTERRUPTED = """
import signal, threading
from hlokit.cpu.target import llvm_library
from hlokit.cpu.jit import objects

lib = llvm_library().ffi.lib

class Interrupt(Exception):
    pass

def handle(*_):
    raise Interrupt

def others_call():
    thread = threading.Thread(target=lib.LLVMPY_GetVersionInfo, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()

signal.signal(signal.SIGALRM, handle)
for _ in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        while True:
            lib.LLVMPY_GetVersionInfo()
    except Interrupt:
        pass
assert others_call(), "the lock was left taken"
seen = []
lib._lock.register(lambda: seen.append("taken"), lambda: seen.append("released"))
lib.LLVMPY_GetVersionInfo()
lib._lock.unregister(*lib._lock._cblist[0])
lib.LLVMPY_GetVersionInfo()
assert seen == ["taken", "released"]
"""


def test_an_interrupt_does_not_leave_the_lock_of_llvmlite_taken() -> None:
    """Ctrl-C on the main thread made jaxlib's threads wait forever in their next compile."""
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_equal_texts_make_equal_objects():
    assert jit.compile_object(TEXT, host()) == jit.compile_object(TEXT, host())


def test_inlined_and_unused_functions_are_gone():
    text = jit.optimised_llvm(TEXT, host())
    assert "@f" in text and "@square" not in text and "@unused" not in text


def test_assembly_uses_whole_registers():
    assert "zmm" in jit.assembly(VECTOR, baseline("x86-64-avx512"))
    assert "ymm" in jit.assembly(VECTOR, baseline("x86-64-avx2"))
    assert "fmul\tv0.4s" in jit.assembly(VECTOR, baseline("aarch64"))


@pytest.mark.parametrize(
    "name, machine", [("x86-64", 62), ("x86-64-avx2", 62), ("x86-64-avx512", 62), ("aarch64", 183)]
)
def test_objects_are_made_for_other_machines(name, machine):
    target = Target(baseline(name).triple.replace("apple-darwin", "unknown-linux-gnu"), *_rest(baseline(name)))
    data = jit.compile_object(VECTOR, target)
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == machine


def test_objects_for_macos():
    data = jit.compile_object(VECTOR, Target("arm64-apple-darwin", *_rest(baseline("aarch64"))))
    assert data[:4] == b"\xcf\xfa\xed\xfe"


def _rest(target: Target) -> tuple[str, str, int]:
    return target.cpu, target.features, target.vector_bytes


def test_symbols_of_the_process_and_of_the_caller():
    text = """
declare void @hook(i64)
declare ptr @memset(ptr, i32, i64)
define void @f(ptr %x) {
  call ptr @memset(ptr %x, i32 7, i64 8)
  call void @hook(i64 5)
  ret void
}
"""
    seen = []
    hook = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    library, address = load(text, hook=ctypes.cast(hook, ctypes.c_void_p).value)
    bytes8 = (ctypes.c_uint8 * 8)()
    function(address, None, ctypes.c_void_p)(ctypes.addressof(bytes8))
    assert list(bytes8) == [7] * 8 and seen == [5]
    del library


def test_objects_are_linked_to_each_other():
    first = jit.compile_object("declare i64 @g()\ndefine i64 @f() {\n %x = call i64 @g()\n ret i64 %x\n}", host())
    second = jit.compile_object("define i64 @g() {\n ret i64 77\n}", host())
    library = jit.Library([first, second])
    assert function(library.address("f"))() == 77


def test_errors():
    with pytest.raises(ValueError, match="undefined value '%y'"):
        jit.compile_object("define i32 @f() {\n %x = add i32 1, %y\n ret i32 %x\n}", host())
    with pytest.raises(ValueError, match="refuses"):
        jit.compile_object("define i64 @f() {\n %x = add i64 1, %x\n ret i64 %x\n}", host())
    with pytest.raises(ValueError, match="nothere"):
        load(TEXT, "nothere")
    with pytest.raises(ValueError, match="f"):
        load("declare void @no_such_symbol()\ndefine void @f() {\n call void @no_such_symbol()\n ret void\n}")
    with pytest.raises(ValueError):
        jit.Library([b"not an object"]).address("f")


def test_code_is_freed_with_its_library():
    data = jit.compile_object(TEXT, host())
    for _ in range(100):
        assert jit.Library([data]).address("f")
    gc.collect()
    assert len(jit.Library([data])._trackers) == 1


def test_threads_compile_at_once():
    objects: list[bytes] = []
    threads = [threading.Thread(target=lambda: objects.append(jit.compile_object(TEXT, host()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(objects) == 4 and len(set(objects)) == 1


def test_the_level_falls_when_time_is_short():
    code = jit.compile_object(TEXT, host(), opt=1, time_limit=1e-9)
    assert code.opt == 0 and "level 1 took more than 1e-09 s" in code.note
    assert function(jit.Library([code]).address("f"), ctypes.c_int64, ctypes.c_int64)(3) == 10


def test_the_level_stays_when_time_is_enough(monkeypatch):
    monkeypatch.setattr(jit, "_BYTES_A_SECOND", 0)
    code = jit.compile_object(TEXT, host(), opt=1, time_limit=60)
    assert (code.opt, code.note) == (1, "") and code == jit.compile_object(TEXT, host(), opt=1)


def test_modules_where_it_runs_are_not_imported(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.setattr(jit, "_BYTES_A_SECOND", 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jit, "_emit", lambda *_: pytest.fail("the other process failed"))
    assert jit.compile_object(TEXT, host(), opt=1, time_limit=60).opt == 1
    assert not (tmp_path / "imported").exists()


def test_the_host_is_detected():
    target = host()
    assert target.vector_bytes in (16, 32, 64) and target.threads >= 1
    assert target.has("avx512f") == (target.vector_bytes == 64)
    assert parse("host") == target
    assert parse(str(target)).features == target.features


@pytest.mark.parametrize(
    "content, cores", [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 2**31), ("", 2**31)]
)
def test_a_container_has_a_share_of_the_cores(tmp_path, content, cores):
    (tmp_path / "cpu.max").write_text(content)
    assert quota(tmp_path / "none", tmp_path) == cores and quota(tmp_path / "none", tmp_path / "none") == 2**31
    assert 1 <= available_threads() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    "own, files, cores",
    [
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "200000 100000"}, 2),
        ("0::/a", {"b/cpu.max": "100000 100000"}, 2**31),
        ("4:memory:/m\n1:cpu:/c\n0::/", {"cpu/c/cpu.cfs_quota_us": "250000", "cpu/c/cpu.cfs_period_us": "100000"}, 3),
        ("3:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 2**31),
        ("no group", {"cpu.max": "100000 0"}, 2**31),
    ],
)
def test_the_least_share_of_the_groups_around_a_process_counts(tmp_path, own, files, cores):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "own").write_text(own)
    assert quota(tmp_path / "own", tmp_path) == cores


def test_the_environment_says_how_many_threads(monkeypatch):
    monkeypatch.setenv("HLOKIT_THREADS", "3")
    assert available_threads() == 3 and pool().threads == 3 and pool(2).threads == 2
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("HLOKIT_THREADS", text)
        with pytest.raises(ArgumentError, match=f"HLOKIT_THREADS='{text}' is not a number of threads"):
            available_threads()


def test_targets_that_users_name():
    avx2 = parse("x86-64-avx2")
    assert avx2 == baseline("x86-64-avx2") and avx2.vector_bytes == 32 and avx2.has("fma") and not avx2.has("avx512f")
    assert parse("x86-64-avx2, -fma") != avx2 and not parse("x86-64-avx2,-fma").has("fma")
    assert parse("x86-64-avx512").vector_bytes == 64
    assert parse("aarch64-linux-gnu/neoverse-n1,+fp-armv8,+neon,+fullfp16").has("fullfp16")
    assert [baseline(name).arch for name in BASELINES] == ["x86_64"] * 3 + ["aarch64"]
    for wrong in ("mips64", "x86-64,+nosuch", "x86-64,fma", "riscv64-linux/generic"):
        with pytest.raises(UnsupportedError, match="target"):
            parse(wrong)


OUTSIDE = Prototype("outside", I64, {"x": I64})


def parts(cold=(), shared=(), name="f"):
    """A module whose function `name` gives outside(2 (2 x + 40)) for x: by @second, which calls @first."""
    module = Module()
    table = module.table("table", I64, [40, 2])

    def begin(own, attributes=""):
        home = "some" if own in shared else ""
        return Function(own, [(I64, "x")], I64, attributes, own in cold, home)

    f = begin("twice", "alwaysinline")
    f.returns(f.argument("x") + f.argument("x"))
    module.add(f)
    f = begin("first")
    f.returns(f.call_for(I64, "twice", f.argument("x")) + f.address(table).load())
    module.add(f)
    f = begin("second", "nounwind")
    f.returns(f.call_for(I64, "first", f.argument("x")) * f.address(table)[1].load())
    module.add(f)
    f = begin(name)
    f.returns(f.call(OUTSIDE, f.call_for(I64, "second", f.argument("x"))))
    module.add(f, exported=True)
    return module


def result(objects, name="f"):
    """What the function gives for 5."""
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 1000)
    library = jit.Library(objects, {"outside": ctypes.cast(outside, ctypes.c_void_p).value})
    return function(library.address(name), ctypes.c_int64, ctypes.c_int64)(5)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_a_split_module_is_the_same_program(count, monkeypatch):
    monkeypatch.setattr(jit, "_WORTH_A_THREAD", 10)
    shared, texts, cold = jit.split(parts(), count)
    assert len(texts) == min(count, 3) and not shared and not cold and texts == jit.split(parts(), count)[1]
    assert result([jit.compile_object(each, host()) for each in texts]) == 1100


def test_a_module_with_variables_is_not_split(monkeypatch):
    monkeypatch.setattr(jit, "_WORTH_A_THREAD", 10)
    for own, is_split in (
        (Global("n", I64), False),
        (Global("n", I64, constant=True, exported=True), False),
        (Global("n", I64, constant=True), True),
        (Global("n", I64, external=True), True),
    ):
        module = parts()
        module.use(own)
        shared, texts, cold = jit.split(module, 2)
        assert (len(texts), shared, cold) == (1 + is_split, [], "")
        assert is_split or texts == [module.text()]


@pytest.mark.parametrize("threads", [1, 2])
def test_cold_functions_are_an_object_of_level_0(threads, monkeypatch):
    module = parts(cold=["second"])
    ((usual,), cold) = jit.split(module, 1)[1:]
    assert not cold and COLD not in usual and "noinline optnone" in usual, "too little for a module of its own"
    monkeypatch.setattr(jit, "_WORTH_A_MODULE", 10)
    ((usual,), cold) = jit.split(module, 1)[1:]
    assert "declare i64 @second" in usual and "@table" in usual and "define hidden i64 @second" in cold
    assert "declare i64 @first" in cold and "alwaysinline" in usual and "alwaysinline" not in cold
    levels = list[int]()
    emit = jit._emit
    monkeypatch.setattr(jit, "_emit", lambda t, m, level, o: levels.append(level) or emit(t, m, level, o))
    objects = jit.compile_objects(module, host(), threads=threads)
    assert sorted(levels) == [0, 2] and [code.opt for code in objects] == [2, 2]
    assert result(objects) == 1100
    assert "second:" in jit.assembly(module, host()) and "first:" in jit.assembly(module, host())


def test_functions_that_programs_share_are_made_once(monkeypatch):
    shared, other = parts(shared=["second"]), parts(shared=["second"], name="g")
    ((text,), (rest,), cold) = jit.split(shared, 1)
    assert jit.split(other, 1)[0] == [text] and jit.split(parts(), 1) == ([], [parts().text()], "") and not cold
    assert "define hidden i64 @second" in text and "@f(" not in text
    assert "declare i64 @second" in rest and "@f(" in rest
    monkeypatch.setattr(jit, "_made_before", {})
    asked = list[str]()

    def make(text, target, opt):
        asked.append(text)
        return jit.compile_object(text, target, opt)

    for program, name in ((shared, "f"), (other, "g"), (shared, "f")):
        assert result(jit.compile_objects(program, host(), make_shared=make), name) == 1100
    assert asked == [text]
    assert "second:" in jit.assembly(shared, host())
    jit.compile_objects(shared, host(), 1, make_shared=make)
    assert len(asked) == 2, "another level is another object"
    jit.forget()
    jit.compile_objects(shared, host(), make_shared=make)
    assert len(asked) == 3
    monkeypatch.setattr(jit, "_MOST_MADE", 1)
    jit.compile_objects(shared, host(), 3, make_shared=make)
    assert [key[2] for key in jit._made_before] == [3]


def test_what_is_cold_beside_shared_functions_is_at_level_0(monkeypatch):
    module = parts(cold=["f"], shared=["first", "second"])
    levels = list[int]()
    emit = jit._emit
    monkeypatch.setattr(jit, "_made_before", {})
    monkeypatch.setattr(jit, "_emit", lambda t, m, level, o: levels.append(level) or emit(t, m, level, o))
    assert result(jit.compile_objects(module, host(), threads=1)) == 1100
    assert levels == [2, 0]


def test_a_text_has_the_constants_that_it_uses(monkeypatch):
    monkeypatch.setattr(jit, "_WORTH_A_MODULE", 10)
    ((usual,), cold) = jit.split(parts(cold=["f"]), 1)[1:]
    assert "@table" in usual and "@table" not in cold


def test_large_modules_are_compiled_by_several_threads(monkeypatch):
    monkeypatch.setattr(jit, "_WORTH_A_THREAD", 100)
    assert len(jit.compile_objects(parts(), host(), threads=2)) == 2
    assert len(jit.compile_objects(parts(), host(), threads=1)) == 1
    module = parts()
    with module.function("g", []) as f:
        f.call("nowhere")
    with pytest.raises(ValueError, match="undefined"):
        jit.compile_objects(module, host(), threads=3)


def test_modules_that_an_interrupt_left_to_the_collector() -> None:
    """It finalizes in any order: a module's context must still be there. None stays behind."""
    before = len(jit._contexts)
    for _ in range(10):
        with jit._machine(host(), 2) as machine:
            module = jit._prepared("define void @f() {\n  ret void\n}\n", machine)
        module.itself = module
        assert len(jit._contexts) == before + 1
        del module
        gc.collect()
        assert len(jit._contexts) == before
    with pytest.raises(ValueError, match="cannot read"), jit._machine(host(), 2) as machine:
        jit._prepared("no LLVM", machine)
    assert len(jit._contexts) == before


_PAGES = """
import re
from pathlib import Path
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.target import drop_llvm_pages, host, llvm_library

def resident():
    mappings = re.split("^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    return sum(int(re.search("Rss: +([0-9]+)", m)[1]) for m in mappings if "libllvmlite" in m.partition("\\n")[0]) / 1e3

llvm_library()
assert resident() < 12, resident()
made = jit.compile_object("define i32 @f() { ret i32 7 }", host())
compiling = resident()
drop_llvm_pages()
assert resident() < 12 < compiling, (resident(), compiling)
assert jit.compile_object("define i32 @f() { ret i32 7 }", host()) == made
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is known there")
def test_pages_of_llvm_that_only_its_start_needed_are_given_back() -> None:
    subprocess.run([sys.executable, "-c", _PAGES], check=True)


def test_code_that_is_dropped_leaves_no_memory_behind() -> None:
    """Before, 10 KB each of the linker's tables and 7 KB of the passes'."""
    script = """
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.target import host
from tests.leaks import resident

def some(count):
    for _ in range(count):
        jit.Library([jit.compile_object("define i32 @f() {\\n  ret i32 1\\n}\\n", host())]).address("f")

some(100)
before = resident()
some(300)
print((resident() - before) / 300)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("way", ["cold", "cached", "jax"])
def test_programs_leave_no_memory_behind(way: str) -> None:
    assert main(["4000", way]) == 0


def test_linkers_go_with_their_libraries() -> None:
    code = jit.compile_object("define i32 @f() {\n  ret i32 1\n}\n", host())
    libraries = [jit.Library([code]) for _ in range(3 * jit._LIBRARIES)]
    linkers = [weakref.ref(library._linker) for library in libraries]
    assert 3 <= len(set(linkers)) <= 4
    assert all(library.address("f") for library in libraries)
    del libraries
    gc.collect()
    assert sum(linker() is not None for linker in set(linkers)) <= 2  # the first and the last have others' libraries, too
