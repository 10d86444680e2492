"""Cumulative folds, from the first element and from the last; loops that are none over elements."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.loops.expr import reachable

WINDOWS = """HloModule m
fold {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {op}(a, b) }}
ENTRY e {{
  x = f32[7,50,9] parameter(0)
  i = f32[] constant({init})
  first = f32[7,50,9] reduce-window(x, i), window={{size=1x50x1 pad=0_0x49_0x0_0}}, to_apply=fold
  last = f32[7,50,9] reduce-window(x, i), window={{size=1x50x1 pad=0_0x0_49x0_0}}, to_apply=fold
  ROOT r = {root}
}}
"""
ROOTS = {
    "f32[7,50,9] negate(last)": lambda first, last: -last,
    "f32[7,50,9] reverse(last), dimensions={1}": lambda first, last: last[:, ::-1],
    "f32[7,50,9] subtract(first, last)": lambda first, last: first - last,
    "f32[7,50,9] subtract(last, first)": lambda first, last: last - first,
    "(f32[7,50,9], f32[7,50,9]) tuple(last, first)": lambda first, last: (last, first),
    "f32[7,1,4] slice(last), slice={[0:7],[3:4],[2:6]}": lambda first, last: last[:, 3:4, 2:6],
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_from_either_end(op: str, root: str) -> None:
    x = np.random.default_rng(0).normal(size=(7, 50, 9)).astype(np.float32)
    run = np.cumsum if op == "add" else np.maximum.accumulate
    first, last = run(x, axis=1), np.flip(run(np.flip(x, 1), axis=1), 1)
    compiled = hk.compile(hk.parse(WINDOWS.format(op=op, init="0" if op == "add" else "-inf", root=root)), threads=1)
    want = ROOTS[root](first, last)
    got = compiled(x)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    if "slice" not in root:
        assert " over " not in compiled.as_text("loops"), "no window is gone through"


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (1, 2), (3, 3), (2, 4), (2, 5), (3, 40), (1, 70_000)])
def test_strict_sums_from_the_end_have_the_bits_of_the_reference(rows: int, size: int) -> None:
    """RWIN-5: each is one step from its neighbour's, and so are the reference's."""
    text = f"""HloModule m
    fold {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(b, a) }}
    ENTRY e {{
      x = f32[{rows},{size}] parameter(0)
      i = f32[] parameter(1)
      s = f32[{rows},{size}] reduce-window(x, i), window={{size=1x{size} pad=0_0x0_{size - 1}}}, to_apply=fold
      ROOT r = f32[{rows},{size}] multiply(s, x)
    }}"""
    module = hk.parse(text)
    x = np.random.default_rng(size).normal(size=(rows, size)).astype(np.float32)
    want = hk.evaluate(module, x, np.float32(0.3))
    ends = np.concatenate([np.full((rows, 1), 0.3, np.float32), x[:, ::-1]], 1)
    np.testing.assert_array_equal(want, np.cumsum(ends, axis=1, dtype=np.float32)[:, :0:-1] * x)
    np.testing.assert_array_equal(hk.compile(module, strict=True)(x, np.float32(0.3)), want)


def test_strict_sums_over_bounded_windows_at_run_time() -> None:
    """A window that is longer than the elements of one run, not of all, is gone through forward as in other runs."""
    text = """HloModule m
    fold { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
    ENTRY e {
      x = f32[9] parameter(0)
      n = s32[] parameter(1)
      d = f32[<=9] set-dimension-size(x, n), dimensions={0}
      i = f32[] constant(0.3)
      ROOT s = f32[<=9] reduce-window(d, i), window={size=SIZE pad=0_HIGH}, to_apply=fold
    }"""
    x = np.random.default_rng(5).normal(size=9).astype(np.float32)
    for size in (5, 9, 12):
        module = hk.parse(text.replace("SIZE", str(size)).replace("HIGH", str(size - 1)))
        strict = hk.compile(module, strict=True)
        for n in (1, 4, 5, 9):
            np.testing.assert_array_equal(strict(x, np.int32(n)), hk.evaluate(module, x, np.int32(n)), f"{size} {n}")


def test_no_order_is_changed_that_matters() -> None:
    """A subtraction from the end goes through each window, and strict code has the reference's order."""
    x = np.random.default_rng(1).normal(size=(7, 50, 9)).astype(np.float32)
    for op, strict in (("subtract", False), ("add", True)):
        module = hk.parse(WINDOWS.format(op=op, init="0", root="f32[7,50,9] negate(last)"))
        np.testing.assert_array_equal(hk.compile(module, threads=1, strict=strict)(x), hk.evaluate(module, x))


UPDATES = """HloModule m
body {{
  p = (s32[], s32[], f32[{rows},16], f32[16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] get-tuple-element(p), index=1
  a = f32[{rows},16] get-tuple-element(p), index=2
  x = f32[16] get-tuple-element(p), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  i2 = s32[] add(i, one)
  k2 = s32[] add(k, one)
  f = f32[] convert(k)
  fb = f32[16] broadcast(f), dimensions={{}}
  y = f32[16] multiply(x, fb)
  u = f32[1,16] reshape(y)
  d = f32[{rows},16] dynamic-update-slice(a, u, k, zero)
  ROOT t = (s32[], s32[], f32[{rows},16], f32[16]) tuple(i2, k2, d, x)
}}
condition {{
  p = (s32[], s32[], f32[{rows},16], f32[16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({rows})
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[16] parameter(0)
  zero = s32[] constant(0)
  z = f32[] constant(0)
  a = f32[{rows},16] broadcast(z), dimensions={{}}
  t = (s32[], s32[], f32[{rows},16], f32[16]) tuple(zero, zero, a, x)
  w = (s32[], s32[], f32[{rows},16], f32[16]) while(t), condition=condition, body=body
  ROOT r = f32[{rows},16] get-tuple-element(w), index=2
}}
"""


@pytest.mark.parametrize("rows", [3, 40])
def test_a_loop_that_updates_at_a_place_in_its_state(rows: int) -> None:
    x = np.arange(16, dtype=np.float32)
    want = x * np.arange(rows, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(hk.compile(hk.parse(UPDATES.format(rows=rows)), threads=1)(x), want)


def test_exp_of_what_vanishes() -> None:
    """Below the least normal number machine code gives 0."""
    for dtype, least in ((hk.f32, -87.3365), (hk.f64, -708.396)):
        b = hk.Builder("exp")
        exp = hk.compile(b.build(hk.exp(b.parameter(0, dtype[37], "x"))), threads=1)
        x = np.linspace(least * 1.01, least * 0.99, 37).astype(dtype.numpy)
        x[:4] = [-np.inf, -1e30, np.nan, np.inf]
        with np.errstate(all="ignore"):
            want = np.exp(x)
        limits = np.finfo(dtype.numpy)
        want[want < limits.tiny] = 0
        np.testing.assert_allclose(exp(x), want, rtol=2 * limits.eps, atol=0)


LOG_SUM = """HloModule m
combine {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  d = f32[] subtract(a, b)
  n = pred[] compare(d, d), direction=NE
  s = f32[] add(a, b)
  m = f32[] maximum(a, b)
  abs = f32[] abs(d)
  neg = f32[] negate(abs)
  e = f32[] exponential(neg)
  l = f32[] log-plus-one(e)
  t = f32[] add(m, l)
  ROOT r = f32[] select(n, s, t)
}
ENTRY e {
  x = f32[20,37] parameter(0)
  low = f32[] constant(-inf)
  ROOT r = f32[20,37] reduce-window(x, low), window={WINDOW}, to_apply=combine
}
"""


@pytest.mark.parametrize(("window", "axis"), [("size=1x37 pad=0_0x0_36", 1), ("size=20x1 pad=0_19x0_0", 0)])
def test_associative_combiners_go_from_the_end(window: str, axis: int) -> None:
    """Of several ops: found to be associative, and done once for each element."""
    compiled = hk.compile(hk.parse(LOG_SUM.replace("WINDOW", window)), threads=1)
    x = np.random.default_rng(0).normal(size=(20, 37)).astype(np.float32) * 5
    want = np.flip(np.logaddexp.accumulate(np.flip(x.astype(np.float64), axis), axis), axis)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)
    loops = [step.loops for step in compiled.program.block.steps]  # type: ignore[attr-defined]
    nodes = reachable([store.node for store in loops[0].stores])
    assert [node.data.scan is not None for node in nodes if node.op == "fold"] == [True]


@pytest.mark.parametrize("root", ["subtract(m, b)", "add(m, d)", "maximum(d, b)"])
def test_combiners_that_are_not_associative_keep_their_order(root: str) -> None:
    text = LOG_SUM.replace("WINDOW", "size=1x37 pad=0_0x0_36")
    start, end = text.index("  ROOT r = f32[] select"), text.index("\n}\nENTRY")
    module = hk.parse(f"{text[:start]}  ROOT r = f32[] {root}{text[end:]}".replace("constant(-inf)", "constant(0)"))
    x = np.random.default_rng(0).normal(size=(20, 37)).astype(np.float32)
    np.testing.assert_allclose(hk.compile(module, threads=1)(x), hk.evaluate(module, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("root", ["add(down, along)", "tuple(down, along)", "tuple(along, down, twice)"])
def test_cumulative_folds_along_two_axes(root: str) -> None:
    kind = "(s32[30,70]" + ", s32[30,70]" * root.count(",") + ")" if root.startswith("tuple") else "s32[30,70]"
    text = f"""HloModule m
    fold {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }}
    ENTRY e {{ x = s32[30,70] parameter(0) i = s32[] constant(0)
      down = s32[30,70] reduce-window(x, i), window={{size=30x1 pad=29_0x0_0}}, to_apply=fold
      along = s32[30,70] reduce-window(x, i), window={{size=1x70 pad=0_0x69_0}}, to_apply=fold
      twice = s32[30,70] reduce-window(down, i), window={{size=1x70 pad=0_0x69_0}}, to_apply=fold
      ROOT r = {kind} {root} }}"""
    x = np.random.default_rng(0).integers(-99, 99, (30, 70)).astype(np.int32)
    down, along = np.cumsum(x, 0), np.cumsum(x, 1)
    found = hk.compile(hk.parse(text), threads=1)(x)
    wanted = (along, down, np.cumsum(down, 1)) if "twice" in root else (down, along)
    for a, b in zip(
        (found,) if root.startswith("add") else found, (down + along,) if root.startswith("add") else wanted
    ):
        np.testing.assert_array_equal(a, b)


def _by_halves(x: str, n: int, lines: list[str]) -> str:
    """Appends prefix sums of x as JAX's associative_scan has them: those of neighbours' sums, then those between."""
    if n == 1:
        return x

    def new(size: int, text: str) -> str:
        lines.append(f"v{len(lines)} = f32[{size}] {text}")
        return f"v{len(lines) - 1}"

    half, odd = n // 2, (n - 1) // 2
    pair = [new(half, f"slice({x}), slice={{[{k}:{2 * half}:2]}}") for k in (0, 1)]
    sums = new(half, f"add({', '.join(pair)})")
    after = _by_halves(sums, half, lines)
    first = new(1, f"slice({x}), slice={{[0:1]}}")
    before = [first]
    if odd:
        among, next_ = new(odd, f"slice({after}), slice={{[0:{odd}]}}"), new(odd, f"slice({x}), slice={{[2:{n}:2]}}")
        before.append(new(odd, f"add({among}, {next_})"))
    even = new(odd + 1, f"concatenate({', '.join(before)}), dimensions={{0}}")
    low = new(n, f"pad({even}, zero), padding=0_{n - 2 * odd - 1}_1")
    high = new(n, f"pad({after}, zero), padding=1_{n - 2 * half}_1")
    return new(n, f"add({low}, {high})")


@pytest.mark.parametrize("n", [5, 64, 100, 777])
def test_prefix_sums_by_halves(n: int) -> None:
    """No kernel spreads what it has spread: places would be divided again and again, element by element."""
    lines = ["x = f32[" + str(n) + "] parameter(0)", "zero = f32[] constant(0)"]
    root = _by_halves("x", n, lines)
    lines.append(f"ROOT r = f32[{n}] negate({root})")
    module = hk.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    x = np.random.default_rng(n).integers(-9, 9, n).astype(np.float32)
    compiled = hk.compile(module, threads=1)
    np.testing.assert_array_equal(compiled(x), -np.cumsum(x))
    for step in compiled.program.block.steps:
        nodes = reachable([store.node for store in step.loops.stores])
        assert len(nodes) < 120, (step, len(nodes))


@pytest.mark.parametrize(("op", "dtype"), [("maximum", "f32"), ("minimum", "f64"), ("add", "s32"), ("multiply", "u8")])
def test_strict_folds_from_the_end_are_linear_where_order_is_nothing(op: str, dtype: str) -> None:
    def made(n: int) -> hk.HloModule:
        return hk.parse(f"""HloModule t
          f {{ a = {dtype}[] parameter(0)
            b = {dtype}[] parameter(1)
            ROOT r = {dtype}[] {op}(a, b) }}
          ENTRY e {{ x = {dtype}[{n}] parameter(0)
            i = {dtype}[] constant(1)
            ROOT r = {dtype}[{n}] reduce-window(x, i), window={{size={n} pad=0_{n - 1}}}, to_apply=f }}""")

    module = made(1000)
    x = np.random.default_rng(0).integers(0, 255, 1000).astype(module.entry.root.shape.dtype.numpy)
    if op == "maximum":
        x[[3, 500, 999]] = -0.0, np.nan, 0.0
    assert np.array_equal(hk.compile(module, strict=True)(x), hk.evaluate(module, x), equal_nan=dtype[0] == "f")
    small, large = (hk.compile(made(n), strict=True).program.work for n in (10_000, 80_000))
    assert large < 12 * small


def test_strict_sums_of_floats_from_the_end_keep_their_order() -> None:
    module = hk.parse("""HloModule t
      f { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT r = f32[] add(a, b) }
      ENTRY e { x = f32[999] parameter(0)
        i = f32[] constant(0)
        ROOT r = f32[999] reduce-window(x, i), window={size=999 pad=0_998}, to_apply=f }""")
    x = np.random.default_rng(0).normal(size=999).astype(np.float32)
    assert np.array_equal(hk.compile(module, strict=True)(x), hk.evaluate(module, x))


def test_what_a_cumulative_fold_goes_over_is_stored_if_it_would_split_the_axis() -> None:
    """A reshape of a one-hot array, whose rows are two dimensions: it was left to the reference."""
    module = hk.parse("""HloModule m
add { p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q) }
ENTRY e {
  x = f32[64,2] parameter(0)
  b = f32[64,2,8] broadcast(x), dimensions={0,1}
  i = f32[64,2,8] iota(), iota_dimension=2
  c = pred[64,2,8] compare(b, i), direction=EQ
  v = f32[64,2,8] convert(c)
  w = f32[128,8] reshape(v)
  z = f32[] constant(0)
  ROOT r = f32[128,8] reduce-window(w, z), window={size=128x1 pad=127_0x0_0}, to_apply=add
}""")
    executable = hk.compile(module)
    assert [reason for reason in executable.reasons if reason[1] == "not compiled"] == []
    x = np.random.default_rng(0).integers(0, 8, (64, 2)).astype(np.float32)
    assert np.array_equal(executable(x), hk.evaluate(module, x))


def test_a_fold_of_a_cumulative_fold_over_its_axis() -> None:
    """The fold's loop over the row has no place for a cumulative fold, whose steps are those of the kernel's own loop."""
    module = hk.parse("""HloModule m
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT a = f32[] add(p, q) }
ENTRY e { x = f32[3,40] parameter(0) z = f32[] constant(0)
  c = f32[3,40] reduce-window(x, z), window={size=1x40 pad=0_0x39_0}, to_apply=add
  l = pred[3,40] compare(c, x), direction=LT
  w = f32[3,40] select(l, x, c)
  t = f32[3] reduce(w, z), dimensions={1}, to_apply=add
  b = f32[3,40] broadcast(t), dimensions={0}
  ROOT r = f32[3,40] divide(w, b) }""")
    x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    expected = hk.evaluate(module, x)
    np.testing.assert_allclose(hk.compile(module)(x), expected, rtol=1e-4)
    np.testing.assert_array_equal(hk.compile(module, strict=True)(x), expected)


@pytest.mark.parametrize("root", ["t", "s"])
def test_a_fold_of_cumulative_folds_across_their_axis(root: str) -> None:
    """Each step of the fold's loop would need a carry of its own: what it folds is stored before."""
    module = hk.parse(f"""HloModule m
add {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT a = f32[] add(p, q) }}
max {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT m = f32[] maximum(p, q) }}
of_sums {{ x = f32[16,16] parameter(0) z = f32[] constant(0) n = f32[] constant(-inf)
  c = f32[16,16] reduce-window(x, z), window={{size=16x1 pad=15_0x0_0}}, to_apply=add
  t = f32[16] reduce(c, n), dimensions={{1}}, to_apply=max
  b = f32[16,16] broadcast(t), dimensions={{0}}
  s = f32[16,16] subtract(c, b)
  ROOT r = f32[16{",16" if root == "s" else ""}] copy({root}) }}""".replace("of_sums", "ENTRY of_sums"))
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    for strict in (False, True):
        np.testing.assert_allclose(hk.compile(module, strict=strict)(x), hk.evaluate(module, x), rtol=1e-4, atol=1e-6)
