"""Programs whose numbers are vast: they run, or end in an EvaluationError; they do not try to allocate or to count."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.fuzz.properties import within
from tests.rules.labels import rule

BIG = 10**10
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
GE = "ge { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=GE }\n"
X = np.array([1, 2, 3], np.float32)


def run(body: str, *arguments: Any, **options: Any) -> Any:
    with within(10):
        return hk.evaluate(hk.parse(f"HloModule t\n{body}"), *arguments, **options)


def convolution(window: str, size: int) -> str:
    operands = "x = f32[1,1,3] parameter(0)\n k = f32[1,1,2] parameter(1)\n"
    return f"ENTRY e {{ {operands} ROOT c = f32[1,1,{size}] convolution(x, k), window={{{window}}}, dim_labels=bf0_oi0->bf0 }}"


def reduce_window(window: str, size: int) -> str:
    operands = "x = f32[3] parameter(0)\n i = f32[] constant(0)\n"
    return f"{ADD}ENTRY e {{ {operands} ROOT c = f32[{size}] reduce-window(x, i), window={{{window}}}, to_apply=add }}"


def pad(padding: str, size: int) -> str:
    return f"ENTRY e {{ x = f32[3] parameter(0)\n i = f32[] constant(9)\n ROOT c = f32[{size}] pad(x, i), padding={padding} }}"


def select_and_scatter(window: str, size: int) -> str:
    operands = f"x = f32[3] parameter(0)\n s = f32[{size}] iota(), iota_dimension=0\n i = f32[] constant(0)\n"
    call = f"select-and-scatter(x, s, i), window={{{window}}}, select=ge, scatter=add"
    return f"{ADD}{GE}ENTRY e {{ {operands} ROOT c = f32[3] {call} }}"


CONVOLUTIONS = [
    (f"size=2 stride={BIG} pad={BIG}_{BIG}", [0, 21, 0]),
    (f"size=2 stride={BIG} lhs_dilate={BIG}", [1, 2]),
    (f"size=2 pad=0_{BIG} rhs_dilate={BIG}", [1, 2, 3]),
    (f"size=2 pad={2**61}_{2**61} stride={2**60} rhs_dilate={2**60}", [0, 10, 1, 0]),
]


@rule("CONV-6", "CONV-10")
@pytest.mark.parametrize(("window", "expected"), CONVOLUTIONS)
def test_convolution_looks_at_no_padding(window: str, expected: list[float]) -> None:
    kernel = np.array([[[1, 10]]], np.float32)
    assert run(convolution(window, len(expected)), X.reshape(1, 1, 3), kernel).reshape(-1).tolist() == expected


WINDOWS = [
    (reduce_window(f"size=2 stride={BIG} pad={BIG}_{BIG}", 3), [0, 3, 0]),
    (reduce_window(f"size={BIG} stride={BIG} pad={BIG}_{BIG}", 2), [0, 6]),
    (reduce_window(f"size={2**62} stride={2**62} pad={2**62}_{2**62}", 2), [0, 6]),
    (reduce_window(f"size=2 stride={BIG} lhs_dilate={BIG}", 2), [1, 2]),
    (select_and_scatter(f"size={BIG} stride={BIG} pad={BIG}_{BIG}", 2), [0, 0, 1]),
    (pad(f"-{2**62}_-{2**62}_{2**62}", 3), [9, 2, 9]),
    (pad(f"{2**62}_-{2**62}", 3), [9, 9, 9]),
]


@rule("RWIN-6", "SAS-8", "PAD-1")
@pytest.mark.parametrize(("body", "expected"), WINDOWS, ids=range(len(WINDOWS)))
def test_windows_look_at_no_padding(body: str, expected: list[float]) -> None:
    assert run(body, X).tolist() == expected


TOO_LARGE = {
    "an iota": f"ENTRY e {{ ROOT r = s8[{2**60}] iota(), iota_dimension=0 }}",
    "empty, but of sizes that NumPy lacks": f"ENTRY e {{ ROOT r = s32[{2**62},0,{2**62}] iota(), iota_dimension=1 }}",
    "a padded array": pad(f"{2**60}_0", 2**60 + 3).replace("parameter(0)", "iota(), iota_dimension=0"),
    "an intermediate": f"ENTRY e {{ c = s8[] constant(1)\n b = s8[{2**60}] broadcast(c), dimensions={{}}\n ROOT s = s8[1] slice(b), slice={{[0:1]}} }}",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_no_memory_holds_is_refused_before_it_runs(name: str) -> None:
    with pytest.raises(hk.EvaluationError, match=r"more than the limit|too large"):
        run(TOO_LARGE[name])


def calls(depth: int, last: str) -> str:
    first = "c0 { p = f32[] parameter(0)\n ROOT r = f32[] negate(p) }\n"
    body = "{{ p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=c{0} }}\n"
    return first + "".join(f"c{i} " + body.format(i - 1) for i in range(1, depth)) + f"ENTRY e {{ {last} }}"


@pytest.mark.parametrize("depth", [400, 3000])
@pytest.mark.parametrize(
    "last",
    [
        "p = f32[] constant(1)\n ROOT r = f32[] call(p), to_apply=c{0}",
        "p = f32[3] constant({{1,2,3}})\n ROOT r = f32[3] map(p), dimensions={{0}}, to_apply=c{0}",
    ],
    ids=["call", "map"],
)
def test_deep_calls(depth: int, last: str) -> None:
    value = run(calls(depth, last.format(depth - 1)))
    assert np.array_equal(value, -np.arange(1, np.size(value) + 1, dtype=np.float32).reshape(np.shape(value)))


@rule("DYN-12")
def test_dot_whose_rhs_alone_has_a_dynamic_batch_dimension() -> None:
    body = """ENTRY e { a = f32[3,2] parameter(0)
      n = s32[] constant(2)
      d = f32[<=3,2] set-dimension-size(a, n), dimensions={0}
      ROOT r = f32[3] dot(a, d), lhs_batch_dims={0}, lhs_contracting_dims={1},
        rhs_batch_dims={0}, rhs_contracting_dims={1} }"""
    assert run(body, np.ones((3, 2), np.float32)).tolist() == [2, 2, 0]


WRONG_ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("slice", {"ranges": ((0, 1),)}),
    ("slice", {"ranges": "abc"}),
    ("slice", {"ranges": None}),
    ("transpose", {"dimensions": (1.5, 0)}),
    ("transpose", {"dimensions": [[0], [1]]}),
    ("transpose", {"dimensions": 1}),
    ("transpose", {"dimensions": (2**64, 0)}),
    ("iota", {"iota_dimension": "0", "output_shape": hk.f32[2]}),
    ("iota", {"iota_dimension": 0, "output_shape": "f32[2]"}),
    ("concatenate", {"dimension": 1.0}),
    ("exponential", {"result_accuracy": ("tolerance", "1")}),
    ("rng-get-and-update-state", {"delta": 2**70, "output_shape": hk.u64[2]}),
    ("reduce-window", {"window": [2]}),
    ("compare", {"direction": ["EQ"]}),
    ("pad", {"padding": ((1, "x", 0),)}),
]


@rule("HINST-6")
@pytest.mark.parametrize(("opcode", "attributes"), WRONG_ATTRIBUTES)
def test_attributes_of_wrong_types(opcode: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(hk.ShapeError, match="HINST-6"):
        hk.OPS[opcode](**attributes)


def test_integers_of_numpy_are_integers() -> None:
    op = hk.OPS["transpose"]((np.int64(1), np.uint8(0)))
    assert op is hk.OPS["transpose"]((1, 0))


@rule("BEY-78")
def test_shifts_of_a_number_by_a_handle() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.s32[2])
    u = b.parameter(1, hk.u8[2])
    module = b.build([1 << x, -64 >> x, 255 >> u])
    left, right, logical = hk.evaluate(module, [1, 3], [1, 3])
    assert left.tolist() == [2, 8] and right.tolist() == [-32, -8] and logical.tolist() == [127, 31]


@rule("HMOD-1")
def test_tuples_nest_as_deep_as_text_can_say() -> None:
    b = hk.Builder("t")
    value = b.parameter(0, hk.f32[2])
    for _ in range(63):
        value = hk.tuple_(b, [value])
    with pytest.raises(hk.ShapeError, match="HMOD-1"):
        hk.tuple_(b, [value])
    text = str(b.build(value))
    assert str(hk.parse(text)) == text


def test_interrupts_reach_the_deepest_call() -> None:
    """Calls this deep are on several stacks; the one that waits for all others is interrupted."""
    counts = (
        "c { i = s32[] parameter(0)\n l = s32[] constant(2000000000)\n ROOT r = pred[] compare(i, l), direction=LT }\n"
    )
    counts += "b { i = s32[] parameter(0)\n o = s32[] constant(1)\n ROOT r = s32[] add(i, o) }\n"
    text = counts + "c0 { p = s32[] parameter(0)\n ROOT r = s32[] while(p), condition=c, body=b }\n"
    for i in range(1, 200):
        text += f"c{i} {{ p = s32[] parameter(0)\n ROOT r = s32[] call(p), to_apply=c{i - 1} }}\n"
    module = hk.parse(
        f"HloModule t\n{text} ENTRY e {{ p = s32[] constant(0)\n ROOT r = s32[] call(p), to_apply=c199 }}"
    )
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), within(60):
        hk.evaluate(module)
