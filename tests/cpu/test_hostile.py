"""Programs and arguments that nobody would write: compiled code takes them as the reference does, or says what is wrong."""

from __future__ import annotations

import array
import copy
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.equality import differs
from tests.fuzz.properties import within

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TWO = """HloModule two
ENTRY e { x = f32[2,3] parameter(0)
  n = s32[] parameter(1)
  f = f32[] convert(n)
  s = f32[2,3] broadcast(f), dimensions={}
  ROOT r = f32[2,3] add(x, s) }"""


@pytest.fixture(scope="module")
def two() -> Any:
    return hk.compile(hk.parse(TWO))


WRONG = {
    "too few": (X,),
    "too many": (X, 1, 2),
    "another type": (X.astype(np.float64), 1),
    "another shape": (X.T, 1),
    "another rank": (X[0], 1),
    "no array": ("x", 1),
    "a tuple": ((X,), 1),
    "nothing": (None, 1),
    "objects": (X.astype(object), 1),
    "an array for a number": (X, np.ones(1, np.int32)),
    "a number that does not fit": (X, 2**40),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(two: Any, name: str) -> None:
    with pytest.raises(hk.ArgumentError):
        two(*WRONG[name])
    with pytest.raises(hk.ArgumentError):
        hk.evaluate(two.source, *WRONG[name])


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


def unaligned() -> Any:
    array = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    array[...] = X
    return array


ODD = {
    "transposed": np.ascontiguousarray(X.T).T,
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "broadcast": np.broadcast_to(np.float32(2), (2, 3)),
    "read-only": read_only(),
    "unaligned": unaligned(),
    "other byte order": X.astype(X.dtype.newbyteorder()),
    "a list": X.tolist(),
    "a buffer": memoryview(X),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("donate", [(), (0,)])
def test_odd_arrays(name: str, donate: tuple[int, ...]) -> None:
    program = hk.compile(hk.parse(TWO), donate=donate)
    before = np.array(ODD[name])
    assert program(ODD[name], 3).tolist() == (before + 3).tolist()
    if not donate:
        assert np.array_equal(np.array(ODD[name]), before)


def test_one_array_given_twice() -> None:
    program = hk.compile(hk.parse("""HloModule t
      ENTRY e { x = f32[64] parameter(0)
        y = f32[64] parameter(1)
        a = f32[64] add(x, y)
        r = f32[64] reverse(x), dimensions={0}
        ROOT t = (f32[64], f32[64]) tuple(a, r) }"""), donate=(0, 1))  # fmt: skip
    x = np.arange(64, dtype=np.float32)
    total, back = program(x, x)
    assert total.tolist() == [2.0 * k for k in range(64)] and back.tolist() == [63.0 - k for k in range(64)]


@pytest.mark.parametrize("given", [None, TWO, 3, X])
def test_what_is_no_module(given: Any) -> None:
    for function in (hk.compile, hk.evaluate, hk.verify, hk.optimize, hk.to_stablehlo, hk.export_object):
        with pytest.raises(hk.ArgumentError, match="expected an HloModule"):
            function(given)
    if not isinstance(given, str):
        with pytest.raises(hk.ArgumentError, match="expected str or bytes"):
            hk.parse(given)


@pytest.mark.parametrize("strict", [False, True])
def test_executables_are_copied(strict: bool) -> None:
    program = hk.compile(hk.parse(TWO), strict=strict, donate=(0,))
    for other in (copy.copy(program), copy.deepcopy(program)):
        x = X.copy()
        result = other(x, 3)
        assert result is x and result.tolist() == (X + 3).tolist() and other.strict == strict


def test_typed_buffers_keep_their_type() -> None:
    module = hk.parse("HloModule t\nENTRY e { ROOT x = f64[2] parameter(0) }")
    for program in (hk.compile(module), lambda *a: hk.evaluate(module, *a)):
        assert program(array.array("d", [0.1, 2])).tolist() == [0.1, 2]
        with pytest.raises(hk.ArgumentError):
            program(array.array("f", [0.1, 2]))


@pytest.mark.parametrize("strict", [False, True])
def test_empty_arrays(strict: bool) -> None:
    module = hk.parse("""HloModule t
      add { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT r = f32[] add(a, b) }
      ENTRY e { x = f32[0,3] parameter(0)
        y = f32[3,0] parameter(1)
        i = f32[] parameter(2)
        m = f32[3,3] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        n = f32[0,0] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        s = f32[3] reduce(x, i), dimensions={0}, to_apply=add
        p = f32[2,3] pad(x, i), padding=1_1x0_0
        c = f32[0,6] concatenate(x, x), dimensions={1}
        z = s32[0] iota(), iota_dimension=0
        g = f32[0,3] gather(m, z), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
          slice_sizes={1,3}
        ROOT t = (f32[3,3], f32[0,0], f32[3], f32[2,3], f32[0,6], f32[0,3]) tuple(m, n, s, p, c, g) }""")
    inputs = (np.ones((0, 3), np.float32), np.ones((3, 0), np.float32), np.float32(2))
    assert differs(hk.compile(module, strict=strict)(*inputs), hk.evaluate(module, *inputs)) is None


# -- many instructions: no RecursionError, no hang


def program(lines: list[str], size: int = 8) -> str:
    return f"HloModule t\nENTRY e {{ x0 = f32[{size}] parameter(0)\n" + "\n".join(lines[:-1]) + f"\nROOT {lines[-1]} }}"


def adds(count: int) -> str:
    return program([f"x{k + 1} = f32[8] add(x{k}, x0)" for k in range(count)])


def squares(count: int) -> str:
    return program([f"x{k + 1} = f32[8] multiply(x{k}, x{k})" for k in range(count)])


def results(count: int) -> str:
    lines = [f"x{k + 1} = f32[8] add(x{k}, x0)" for k in range(count)]
    shapes, names = ", ".join(["f32[8]"] * count), ", ".join(f"x{k + 1}" for k in range(count))
    return program([*lines, f"t = ({shapes}) tuple({names})"])


def stencil(steps: int, size: int = 512) -> str:
    """A three-point stencil by pads and slices, unrolled."""
    lines = ["z = f32[] constant(0)"]
    for k in range(steps):
        lines += [
            f"a{k} = f32[{size - 1}] slice(x{k}), slice={{[0:{size - 1}]}}",
            f"b{k} = f32[{size}] pad(a{k}, z), padding=1_0",
            f"c{k} = f32[{size - 1}] slice(x{k}), slice={{[1:{size}]}}",
            f"d{k} = f32[{size}] pad(c{k}, z), padding=0_1",
            f"e{k} = f32[{size}] add(b{k}, d{k})",
            f"g{k} = f32[{size}] subtract(e{k}, x{k})",
            f"x{k + 1} = f32[{size}] maximum(g{k}, x{k})",
        ]
    return program(lines, size)


def rolls(count: int, size: int = 512) -> str:
    lines: list[str] = []
    for k in range(count):
        lines += [
            f"a{k} = f32[{size - 1}] slice(x{k}), slice={{[1:{size}]}}",
            f"b{k} = f32[1] slice(x{k}), slice={{[0:1]}}",
            f"x{k + 1} = f32[{size}] concatenate(a{k}, b{k}), dimensions={{0}}",
        ]
    return program(lines, size)


MANY = {
    "adds": adds(1500),
    "squares": squares(300),
    "results": results(500),
    "stencil": stencil(50),
    "rolls": rolls(60),
}


@pytest.mark.parametrize("name", MANY)
def test_many_instructions(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path))
    module = hk.parse(MANY[name])
    size = module.entry.parameters[0].shape.size
    x = (np.arange(size) % 7 / 64).astype(np.float32)
    with within(120):
        got = hk.compile(module)(x)
    expected = hk.evaluate(module, x)
    assert all(np.allclose(a, b, 1e-4, 1e-4, equal_nan=True) for a, b in zip(got, expected, strict=True))


MASKED = {
    "an array": np.ma.array(X, mask=X > 4),
    "rows": [np.ma.array(X[0], mask=[0, 1, 0]), X[1]],
    "numbers": [[1.0, 2.0, 3.0], [4.0, np.ma.masked, 5.0]],
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_elements_are_refused(two: Any, name: str) -> None:
    for function in (two, lambda *a: hk.evaluate(two.source, *a)):
        with pytest.raises(hk.ArgumentError, match="MaskedArray"):
            function(MASKED[name], 1)
    with pytest.raises(hk.HlokitError, match="MaskedArray"):
        hk.Builder("b").constant(MASKED[name])
    assert two(np.ma.array(X), 1).tolist() == (X + 1).tolist()
