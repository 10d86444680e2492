"""Nothing explodes: what each stage does for a program of four times the size, counted in calls, is four times as much.

One dimension grows at a time: how deep computations nest, how much a loop carries, how wide tuples and fans are, how
long chains are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hlokit as hk
from hlokit.cpu.compiler import PIPELINE, compile_program
from hlokit.cpu.target import host
from hlokit.errors import UnsupportedError
from tests.counting import function_calls

ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
STATE = "(s32[], f32[8])"


def program(lines: list[str], computations: str = "") -> str:
    return "HloModule m\n" + computations + "ENTRY e {\n" + "\n".join(lines) + "\n}\n"


def nested_loops(depth: int) -> str:
    text = ""
    for k in range(depth):
        inner = (
            f"t = {STATE} tuple(z, v) u = {STATE} while(t), condition=condition{k - 1}, body=body{k - 1}"
            " w = f32[8] get-tuple-element(u), index=1"
        )
        text += (
            f"condition{k} {{ p = {STATE} parameter(0) k = s32[] get-tuple-element(p), index=0"
            " c = s32[] constant(10) ROOT r = pred[] compare(k, c), direction=LT }\n"
            f"body{k} {{ p = {STATE} parameter(0) k = s32[] get-tuple-element(p), index=0 o = s32[] constant(1)"
            " z = s32[] constant(0) n = s32[] add(k, o) v = f32[8] get-tuple-element(p), index=1"
            f" {inner if k else 'w = f32[8] sine(v)'} ROOT r = {STATE} tuple(n, w) }}\n"
        )
    head = ["k = s32[] parameter(0)", "v = f32[8] parameter(1)", f"t = {STATE} tuple(k, v)"]
    return program([*head, f"ROOT r = {STATE} while(t), condition=condition{depth - 1}, body=body{depth - 1}"], text)


def nested_conditionals(depth: int) -> str:
    state = "(pred[], f32[8])"
    head = f"{{ p = {state} parameter(0) k = pred[] get-tuple-element(p), index=0"
    text = f"other {{ p = {state} parameter(0) v = f32[8] get-tuple-element(p), index=1 ROOT r = f32[8] cosine(v) }}\n"
    text += f"branch0 {{ p = {state} parameter(0) v = f32[8] get-tuple-element(p), index=1 ROOT r = f32[8] sine(v) }}\n"
    for k in range(1, depth):
        called = f"true_computation=branch{k - 1}, false_computation=other"
        text += f"branch{k} {head} ROOT r = f32[8] conditional(k, p, p), {called} }}\n"
    called = f"true_computation=branch{depth - 1}, false_computation=other"
    return program(
        [f"t = {state} parameter(0)", "k = pred[] parameter(1)", f"ROOT r = f32[8] conditional(k, t, t), {called}"],
        text,
    )


def clipped_gradients(count: int) -> str:
    """Every result needs one number that is made of all arguments."""
    lines = ["z = f32[] constant(0)", "sum0 = f32[] constant(0)"]
    for k in range(count):
        lines += [
            f"x{k} = f32[8] parameter({k})",
            f"square{k} = f32[8] multiply(x{k}, x{k})",
            f"part{k} = f32[] reduce(square{k}, z), dimensions={{0}}, to_apply=add",
            f"sum{k + 1} = f32[] add(sum{k}, part{k})",
        ]
    lines.append(f"norm = f32[8] broadcast(sum{count}), dimensions={{}}")
    lines += [f"y{k} = f32[8] divide(x{k}, norm)" for k in range(count)]
    return program([*lines, tuple_of([f"y{k}" for k in range(count)], "f32[8]")], ADD)


def tuple_of(names: list[str], shape: str) -> str:
    return f"ROOT t = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"


def test_loops_in_loops_without_end_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="nest deeper than 150"):
        hk.compile(hk.parse(nested_loops(300)))


FAMILIES: dict[str, tuple[Callable[[int], str], int]] = {
    "nested loops": (nested_loops, 12),
    "nested conditionals": (nested_conditionals, 12),
    "clipped gradients": (clipped_gradients, 60),
}
"""Programs by what grows, and a small size."""

_MOST = 5.0
"""For four times the program: what is linear has also its n log n."""


def ratio(family: str, stage: Callable[[str], Callable[[], object]]) -> float:
    make, small = FAMILIES[family]
    stage(make(2))()
    once, fourfold = stage(make(small)), stage(make(4 * small))
    return function_calls(fourfold) / function_calls(once)


@pytest.mark.parametrize("family", FAMILIES)
def test_reading_and_printing(family: str) -> None:
    assert ratio(family, lambda text: lambda: str(hk.parse(text))) < _MOST


@pytest.mark.parametrize("family", FAMILIES)
def test_passes(family: str) -> None:
    def stage(text: str) -> Callable[[], object]:
        module = hk.parse(text)
        return lambda: hk.optimize(module, PIPELINE)

    assert ratio(family, stage) < _MOST


@pytest.mark.parametrize("family", FAMILIES)
def test_lowering(family: str) -> None:
    def stage(text: str) -> Callable[[], object]:
        module = hk.optimize(hk.parse(text), PIPELINE)
        return lambda: compile_program(module, host(), optimised=True)

    assert ratio(family, stage) < _MOST
