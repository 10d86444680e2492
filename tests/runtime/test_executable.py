"""Executables: calls, donation, limits, signals, threads, the cache of whole plans."""

import gc
import json
import logging
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu import target as targets
from hlokit.cpu.jit.cache import recorded
from hlokit.cpu.target import host
from hlokit.errors import ArgumentError, EvaluationError, UnsupportedError
from hlokit.runtime import executable as executables
from hlokit.runtime.compile import compile_module
from hlokit.runtime.executable import Executable

N = 1 << 10
X = np.arange(N, dtype=np.float32)
Y = np.full(N, 0.5, np.float32)


def parse(body: str, header: str = "") -> hk.HloModule:
    return hk.parse(f"HloModule m{header}\n\n{body}\n")


def elementwise(n: int = N, header: str = "") -> hk.HloModule:
    """x * y - x"""
    return parse(
        f"""ENTRY e {{
  x = f32[{n}] parameter(0)
  y = f32[{n}] parameter(1)
  m = f32[{n}] multiply(x, y)
  ROOT s = f32[{n}] subtract(m, x)
}}""",
        header,
    )


def loop(body: str, shape: str = f"f32[{N}]", count: int = 10, more: str = "") -> hk.HloModule:
    """`body` gives %new from %old, `count` times over."""
    return parse(
        f"""{more}
body {{
  p = (s32[], {shape}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  old = {shape} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {body}
  ROOT t = (s32[], {shape}) tuple(next, new)
}}
condition {{
  p = (s32[], {shape}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({count})
  ROOT lt = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = {shape} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], {shape}) tuple(zero, x)
  w = (s32[], {shape}) while(t), condition=condition, body=body
  ROOT r = {shape} get-tuple-element(w), index=1
}}"""
    )


# -- calls


def test_result_forms() -> None:
    assert hk.compile(elementwise())(X, Y).shape == (N,)
    nested = parse(
        "ENTRY e {\n  a = (f32[2], (s32[], token[])) parameter(0)\n  b = f32[2] get-tuple-element(a), index=0\n"
        "  c = (s32[], token[]) get-tuple-element(a), index=1\n  n = f32[2] negate(b)\n"
        "  ROOT t = ((s32[], token[]), f32[2]) tuple(c, n)\n}"
    )
    exe = hk.compile(nested)
    (number, token), negated = exe((np.float32([1, 2]), (3, None)))
    assert number == 3 and token is None and negated.tolist() == [-1, -2]
    with pytest.raises(ArgumentError, match=r"takes 1 argument, got 2"):
        exe(1, 2)
    with pytest.raises(ArgumentError, match=r"argument 0 \(a\)"):
        exe((np.float32([1, 2, 3]), (3, None)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads=0 is not an integer above 0"),
        ({"threads": "two"}, "threads='two' is not an integer above 0"),
        ({"time_limit": -1}, "time_limit=-1 is not a number of seconds above 0"),
        ({"time_limit": "1 s"}, "time_limit='1 s' is not a number of seconds above 0"),
        ({"memory_limit": -1}, "memory_limit=-1 is not a number of bytes above 0"),
        ({"memory_limit": 1e9}, r"memory_limit=1000000000.0 is not a number of bytes above 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        hk.compile(elementwise(), **options)


def test_scalars_of_numpy_and_python() -> None:
    b = hk.Builder("add")
    exe = hk.compile(b.build(b.parameter(0, hk.f32[()]) + b.parameter(1, hk.f32[()])))
    for x, y in [(np.float32(1), np.float32(2)), (1.0, 2), (np.array(1, np.float32), np.float32(2))]:
        assert exe(x, y) == 3.0
    with pytest.raises(ArgumentError):
        exe(np.int64(1), np.float32(2))


def test_errors_are_those_of_evaluate() -> None:
    module = elementwise()
    exe = hk.compile(module)
    for args in [(X,), (X, Y, Y), (X, Y[:3]), (X, Y.astype(np.float64)), (X, "?")]:
        messages = []
        for run in (lambda *a: hk.evaluate(module, *a), exe):
            with pytest.raises(ArgumentError) as error:
                run(*args)
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="2 devices"):
        compile_module(elementwise(header=", replica_count=2"))


def test_infeed_and_outfeed() -> None:
    module = parse(
        "ENTRY e {\n  t = token[] after-all()\n  i = (f32[2], token[]) infeed(t)\n  a = f32[2] get-tuple-element(i), index=0\n"
        "  d = f32[2] add(a, a)\n  u = token[] get-tuple-element(i), index=1\n"
        "  o = token[] outfeed(d, u), outfeed_shape=f32[2]\n  ROOT n = f32[2] negate(d)\n}"
    )
    exe = hk.compile(module)
    result, outfed = exe(infeed=[np.float32([1, 2])], return_outfeed=True)
    assert result.tolist() == [-2, -4] and [v.tolist() for v in outfed] == [[2, 4]]
    with pytest.raises(EvaluationError, match="INFEED-9"):
        exe()
    assert hk.compile(elementwise())(X, Y, return_outfeed=True)[1] == []


def test_random_numbers_by_seed() -> None:
    module = parse(
        "ENTRY e {\n  a = f32[] constant(0)\n  b = f32[] constant(1)\n  ROOT r = f32[9] rng(a, b), distribution=rng_uniform\n}"
    )
    exe = hk.compile(module)
    for seed in (0, 7):
        np.testing.assert_array_equal(exe(seed=seed), hk.evaluate(module, seed=seed))


def test_calls_at_once() -> None:
    """From several threads, each with memory of its own: loops, temporaries, steps of the reference."""
    sorted_rows = loop("new = f32[1024] negate(old)", count=3001)
    exe = hk.compile(sorted_rows)
    inputs = [np.full(N, k, np.float32) for k in range(4)]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not np.array_equal(exe(inputs[k]), -inputs[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_keeps_an_executable() -> None:
    exe = hk.compile(elementwise())
    exe(X, Y)
    watch = weakref.ref(exe)
    del exe
    gc.collect()
    assert watch() is None


# -- donation


def test_elementwise_over_a_donated_argument() -> None:
    exe = hk.compile(elementwise(), donate=(0,))
    assert exe.plan.aliases == {0: 0}
    mine = X.copy()
    assert exe(mine, Y) is mine
    np.testing.assert_array_equal(mine, X * Y - X)
    assert hk.compile(elementwise()).plan.aliases == {}


def test_the_module_donates() -> None:
    module = elementwise(header=", input_output_alias={ {}: (1, {}, may-alias) }")
    assert hk.compile(module).plan.aliases == {0: 1}
    assert hk.compile(module, donate=()).plan.aliases == {}
    with pytest.raises(ArgumentError, match="donate=2"):
        hk.compile(module, donate=(2,))


def test_hazards_of_donation(caplog: pytest.LogCaptureFixture) -> None:
    """The array twice, a view of it, part of it, a read-only one: copied first, and the log says why."""
    exe = hk.compile(elementwise(), donate=(0,))
    long = np.arange(2 * N, dtype=np.float32)
    fixed = X.copy()
    fixed.flags.writeable = False
    mine = X.copy()
    for first, second, why in [
        (mine, mine, "shares memory"),
        (mine, mine[:], "shares memory"),
        (long[:N], long[N // 2 : N // 2 + N], "shares memory"),
        (fixed, Y, "read-only"),
    ]:
        before, other = first.copy(), second.copy()
        with caplog.at_level(logging.INFO, "hlokit"):
            caplog.clear()
            result = exe(first, second)
        assert why in caplog.text
        np.testing.assert_array_equal(result, before * other - before)
        np.testing.assert_array_equal(first, before)
        np.testing.assert_array_equal(second, other)


def test_donated_but_read_elsewhere() -> None:
    """Neighbours are read after they would have been overwritten: the result gets memory of its own."""
    for text in [
        "r = f32[1024] reverse(x), dimensions={0}\n  ROOT s = f32[1024] add(x, r)",
        "z = f32[] constant(0)\n  p = f32[1025] pad(x, z), padding=1_0\n  q = f32[1024] slice(p), slice={[0:1024]}\n"
        "  ROOT s = f32[1024] add(x, q)",
        "g = f32[32,32] reshape(x)\n  t = f32[32,32] transpose(g), dimensions={1,0}\n  f = f32[1024] reshape(t)\n"
        "  ROOT s = f32[1024] subtract(x, f)",
    ]:
        module = parse(f"ENTRY e {{\n  x = f32[1024] parameter(0)\n  {text}\n}}")
        expected = hk.evaluate(module, X)
        exe = hk.compile(module, donate=(0,))
        np.testing.assert_array_equal(exe(X.copy()), expected)


def test_rows_over_a_donated_argument() -> None:
    """Softmax in place: a row is read whole before it is written. The sum of all is not."""
    row = parse(
        """max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] add(a, b) }
ENTRY e {
  x = f32[64,512] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  most = f32[64] reduce(x, low), dimensions={1}, to_apply=max
  spread = f32[64,512] broadcast(most), dimensions={0}
  less = f32[64,512] subtract(x, spread)
  power = f32[64,512] exponential(less)
  total = f32[64] reduce(power, zero), dimensions={1}, to_apply=sum
  totals = f32[64,512] broadcast(total), dimensions={0}
  ROOT r = f32[64,512] divide(power, totals)
}"""
    )
    x = np.random.default_rng(0).standard_normal((64, 512), np.float32)
    exe = hk.compile(row, donate=(0,))
    np.testing.assert_allclose(exe(x.copy()), hk.evaluate(row, x), rtol=1e-5)
    whole = parse(
        """sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] add(a, b) }
ENTRY e {
  x = f32[65536] parameter(0)
  zero = f32[] constant(0)
  total = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  totals = f32[65536] broadcast(total), dimensions={}
  ROOT r = f32[65536] divide(x, totals)
}"""
    )
    x = np.abs(x.reshape(-1)[:1]).repeat(65536)
    np.testing.assert_allclose(hk.compile(whole, donate=(0,))(x.copy()), hk.evaluate(whole, x), rtol=1e-3)


def test_complex_parts_over_each_other() -> None:
    """i * x stores the real part before it reads what was there for the imaginary one."""
    module = parse(
        "ENTRY e {\n  x = c64[100] parameter(0)\n  i = c64[] constant((0, 1))\n"
        "  b = c64[100] broadcast(i), dimensions={}\n  ROOT m = c64[100] multiply(x, b)\n}"
    )
    x = (np.arange(100) + 3j).astype(np.complex64)
    np.testing.assert_array_equal(hk.compile(module, donate=(0,))(x.copy()), hk.evaluate(module, x))


def test_a_small_update_of_a_donated_argument() -> None:
    module = parse(
        "ENTRY e {\n  x = f32[64,16] parameter(0)\n  u = f32[1,16] parameter(1)\n  i = s32[] parameter(2)\n"
        "  z = s32[] constant(0)\n  ROOT d = f32[64,16] dynamic-update-slice(x, u, i, z)\n}"
    )
    exe = hk.compile(module, donate=(0,))
    x, u = X.reshape(64, 16).copy(), np.zeros((1, 16), np.float32)
    expected = hk.evaluate(module, x.copy(), u, 70)
    assert exe(x, u, np.int32(70)) is x and exe.program.assignment.copies == []
    np.testing.assert_array_equal(x, expected)


def test_a_loop_over_a_donated_argument() -> None:
    for body in ("new = f32[1024] sqrt(old)", "new = f32[1024] reverse(old), dimensions={0}"):
        module = loop(body, count=1001)
        x = np.linspace(0.9, 1.1, N, dtype=np.float32)
        expected = hk.evaluate(module, x)
        mine = x.copy()
        assert hk.compile(module, donate=(0,))(mine) is mine
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
        np.testing.assert_allclose(hk.compile(module)(x), expected, rtol=1e-6)


def test_what_stores_past_the_caches_is_aligned(caplog: pytest.LogCaptureFixture) -> None:
    n = 1 << 22
    module = parse(
        f"ENTRY e {{\n  x = f32[{n}] parameter(0)\n  y = f32[{n}] parameter(1)\n  ROOT r = f32[{n}] multiply(y, y)\n}}"
    )
    exe = hk.compile(module, donate=(0,))
    assert exe.plan.aliases == {0: 0} and exe.plan.aligned
    memory = np.zeros(n + 32, np.float32)
    start = -memory.__array_interface__["data"][0] % 64 // 4
    y = np.full(n, 2, np.float32)
    assert exe(x := memory[start : start + n], y) is x
    with caplog.at_level(logging.INFO, "hlokit"):
        result = exe(memory[start + 1 : start + 1 + n], y)
    assert "not aligned" in caplog.text and result.__array_interface__["data"][0] % 64 == 0


# -- limits and signals


def test_too_much_memory_is_refused_before_code_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(
        "lt {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT l = pred[] compare(a, b), direction=LT\n}\n"
        "ENTRY e {\n  x = f32[1000] parameter(0)\n  b = f32[1000,1000] broadcast(x), dimensions={1}\n"
        "  big = f32[1000,1000] sort(b), dimensions={1}, to_apply=lt\n"
        "  f = f32[1000,1] slice(big), slice={[0:1000], [5:6]}\n  ROOT r = f32[1000] reshape(f)\n}"
    )
    peak = hk.compile(module).plan.peak
    assert peak.total >= 4_000_000 and peak.held == 4_000_000
    monkeypatch.setattr(executables.plans, "made", lambda *_: pytest.fail("compiled"))
    with pytest.raises(
        EvaluationError,
        match=r"needs at least [\d,]+ bytes, more than the limit of 1,000,000, .* is [\w.]+, 4,000,000 bytes",
    ):
        hk.compile(module, memory_limit=1_000_000)


def test_a_time_limit_lowers_the_level(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    exe = hk.compile(elementwise(), time_limit=1e-9)
    assert "took more than" in exe.notes[0] and exe.notes[0] in caplog.text
    assert ("m", "lower level", exe.notes[0]) in exe.reasons
    np.testing.assert_array_equal(exe(X, Y), X * Y - X)


class Stop(Exception):
    pass


@pytest.mark.parametrize("body", ["new = f32[4] negate(old)", "new = f32[4] sort(old), dimensions={0}, to_apply=lt"])
def test_a_signal_ends_a_long_loop(body: str) -> None:
    def raising(number: int, frame: object) -> None:
        raise Stop

    lt = "lt {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT l = pred[] compare(a, b), direction=LT\n}\n"
    exe = hk.compile(loop(body, "f32[4]", 2**31 - 1, lt if "sort" in body else ""))
    former = signal.signal(signal.SIGALRM, raising)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        start = time.perf_counter()
        with pytest.raises(Stop):
            exe(np.zeros(4, np.float32))
        assert time.perf_counter() - start < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


# -- the cache of plans


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path))
    return tmp_path


def lowered(exe: Executable) -> bool:
    return "program" in vars(exe.compilation)


def test_a_hit_skips_passes_and_lowering(cache: Path) -> None:
    module = elementwise(header=", input_output_alias={ {}: (0, {}, may-alias) }")
    assert lowered(hk.compile(module))
    with recorded() as events:
        exe = hk.compile(hk.parse(str(module)))
    assert not lowered(exe) and all(event.hit for event in events)
    mine = X.copy()
    assert exe(mine, Y) is mine
    np.testing.assert_array_equal(mine, X * Y - X)
    assert exe.program.results and lowered(exe)


def test_what_a_hit_depends_on(cache: Path) -> None:
    module = elementwise()
    assert lowered(hk.compile(module))
    assert not lowered(hk.compile(module, threads=1))
    assert lowered(hk.compile(module, strict=True))
    assert lowered(hk.compile(module, donate=(1,)))
    for value in (1.5, 2.5):
        constants = parse(
            f"ENTRY e {{\n  x = f32[] parameter(0)\n  c = f32[] constant({value})\n  ROOT a = f32[] add(x, c)\n}}"
        )
        exe = hk.compile(constants)
        assert lowered(exe) and exe(np.float32(1)) == 1 + value
        assert hk.compile(constants)(np.float32(1)) == 1 + value


def test_large_constants_are_not_kept_twice(cache: Path) -> None:
    table = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    b = hk.Builder("t")
    index = b.parameter(0, hk.s32[1])
    module = b.build(hk.dynamic_slice(b.constant(table), [hk.reshape(index, ())], (3,)))
    for kind in (True, False):
        exe = hk.compile(module)
        assert lowered(exe) is kind
        np.testing.assert_array_equal(exe(np.int32([5])), table[5:8])
    assert sum(path.stat().st_size for path in cache.iterdir()) < 100_000


def test_a_damaged_plan_is_made_again(cache: Path) -> None:
    module = elementwise()
    hk.compile(module)
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    exe = hk.compile(module)
    assert lowered(exe)
    np.testing.assert_array_equal(exe(X, Y), X * Y - X)


def test_a_plan_whose_objects_are_gone_is_made_again(cache: Path) -> None:
    module = elementwise()
    hk.compile(module)
    for path in cache.iterdir():
        header = json.loads(path.read_bytes().split(b"\n")[1])
        if not header["name"].endswith("(plan)"):
            path.unlink()
    assert lowered(hk.compile(module))


def test_programs_with_steps_of_the_reference_are_kept(cache: Path) -> None:
    module = parse(
        "ENTRY e {\n  a = f32[] constant(0)\n  b = f32[] constant(1)\n  ROOT r = f32[9] rng(a, b), distribution=rng_normal\n}"
    )
    for is_new in (True, False):
        exe = hk.compile(module)
        assert lowered(exe) == is_new
        np.testing.assert_array_equal(exe(seed=3), hk.evaluate(module, seed=3))


def test_a_donated_argument_that_holds_no_result() -> None:
    """Its memory serves what is between; what shares it is copied first too."""
    module = loop("new = f32[1024] reverse(old), dimensions={0}", count=1001)
    exe = hk.compile(module, donate=(0,))
    fixed = np.linspace(1, 2, N, dtype=np.float32)
    before = fixed.copy()
    fixed.flags.writeable = False
    exe(fixed)
    np.testing.assert_array_equal(fixed, before)
    assert set(exe.plan.aliases.values()) <= set(exe.plan.overwritten)


def test_other_threads_run_during_a_loop() -> None:
    exe = hk.compile(loop("new = f32[4] sqrt(old)", "f32[4]", 2**31 - 1))
    assert exe._caller.release
    assert not hk.compile(elementwise())._caller.release


NEGATE = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x)\n}"


@pytest.mark.parametrize("text", [NEGATE, NEGATE.replace("f32[4]", "f32[<=4]")])
def test_code_for_another_machine_is_not_run(text: str) -> None:
    other = "x86-64" if host().arch == "aarch64" else "aarch64"
    executable = hk.compile(hk.parse(text), target=other)
    with pytest.raises(UnsupportedError, match=f"m is for .*: this machine lacks {targets.parse(other).arch}"):
        executable(np.ones(4, np.float32))
    assert executable.as_text("asm") and executable.memory_analysis().argument_size_in_bytes


def test_a_machine_with_less_is_named_by_what_it_lacks() -> None:
    assert targets.parse("x86-64-avx2").lacks(targets.parse("x86-64-avx512,+amx-tile"))[-1] == "amx-tile"
    assert targets.parse("x86-64-avx512").lacks(targets.parse("x86-64-avx2")) == host().lacks(host()) == []


@pytest.fixture
def taken_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets HLOKIT_TARGET for what asks for the host from then on."""

    def set_to(name: str) -> None:
        monkeypatch.setenv("HLOKIT_TARGET", name)
        targets._host.cache_clear()

    yield set_to
    monkeypatch.undo()
    targets._host.cache_clear()


def test_the_machine_taken_for_a_lesser_one(taken_for: Callable[[str], None]) -> None:
    module, x = hk.parse(NEGATE), np.float32([1, -2, 3, 0])
    least = targets.BASELINES[0] if targets.this_machine().arch == "x86_64" else "aarch64"
    taken_for(least)
    assert host().cpu == targets.baseline(least).cpu and host().vector_bytes == 16
    program = hk.compile(module)
    assert program.target == host()
    np.testing.assert_array_equal(program(x), -x)
    whole = hk.compile(module, target=targets.this_machine())  # what it has still runs
    np.testing.assert_array_equal(whole(x), -x)


def test_the_machine_is_not_taken_for_another(taken_for: Callable[[str], None]) -> None:
    other = "x86-64" if targets.this_machine().arch == "aarch64" else "aarch64"
    taken_for(other)
    with pytest.raises(UnsupportedError, match=f"HLOKIT_TARGET='{other}'.* lacks "):
        hk.compile(hk.parse(NEGATE))


def test_options() -> None:
    module = hk.parse(NEGATE)
    assert hk.compile(module, target="host").target == host()
    with pytest.raises(ArgumentError, match="threads=0 is not an integer above 0"):
        hk.compile(module, threads=0)
    with pytest.raises(UnsupportedError, match="m68k"):
        hk.compile(module, target="m68k")
    with pytest.raises(TypeError, match=r"compile\(\) got an unexpected keyword argument 'thread'"):
        hk.compile(module, thread=2)


def test_small_programs_need_no_threads() -> None:
    b = hk.Builder("small")
    x = b.parameter(0, hk.f32[8])
    assert not hk.compile(b.build(x * 2.0)).plan.parallel
    b = hk.Builder("large")
    x = b.parameter(0, hk.f32[1 << 20])
    large = hk.compile(b.build(hk.tanh(x)), threads=2)
    assert large.plan.parallel and large.workers == 2


def test_what_executables_are_shown_as() -> None:
    b = hk.Builder("m")
    module = b.build(hk.neg(b.parameter(0, hk.f32[2])))
    executable = hk.compile(module)
    assert repr(executable) == f"<Executable m: (f32[2]) -> f32[2], for {executable.target.cpu}>"
    assert repr(hk.compile(module, replicas=2)) == "<DeviceExecutable m: (f32[2]) -> f32[2], on 2 replicas of 1 partition>"
