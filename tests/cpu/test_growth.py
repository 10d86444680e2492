"""Nothing explodes: what each stage does for a program of four times the size, counted in calls, is four times as much.

One dimension grows at a time: how deep computations nest, how much a loop carries, how wide tuples and fans are, how
long chains are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hlokit as hk
from hlokit.cpu.compiler import PIPELINE, compile_program
from hlokit.cpu.folding import Folding
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


def users_of_a_norm(count: int) -> str:
    """Each result needs one number that costs what several kernels of their own do."""
    lines = ["z = f32[] constant(0)", "sum0 = f32[] constant(0)"]
    for k in range(12):
        lines += [
            f"x{k} = f32[32] parameter({k})",
            f"square{k} = f32[32] multiply(x{k}, x{k})",
            f"part{k} = f32[] reduce(square{k}, z), dimensions={{0}}, to_apply=add",
            f"sum{k + 1} = f32[] add(sum{k}, part{k})",
        ]
    lines.append("norm = f32[32] broadcast(sum12), dimensions={}")
    for k in range(count):
        lines += [f"a{k} = f32[32] parameter({12 + k})", f"y{k} = f32[32] divide(a{k}, norm)"]
    return program([*lines, tuple_of([f"y{k}" for k in range(count)], "f32[32]")], ADD)


def tuple_of(names: list[str], shape: str) -> str:
    return f"ROOT t = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"


def test_loops_in_loops_without_end_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="nest deeper than 150"):
        hk.compile(hk.parse(nested_loops(300)))


FAMILIES: dict[str, tuple[Callable[[int], str], int]] = {
    "nested loops": (nested_loops, 12),
    "nested conditionals": (nested_conditionals, 12),
}
"""Programs by what grows, and a small size."""

_MOST = 5.0
"""For four times the program: what is linear has also its n log n."""


Stage = Callable[[str], Callable[[], object]]
"""Makes of a program's text the function whose work is counted."""


def ratio(make: Callable[[int], str], small: int, stage: Stage) -> float:
    stage(make(2))()
    once, fourfold = stage(make(small)), stage(make(4 * small))
    return function_calls(fourfold) / function_calls(once)


def passes(text: str) -> Callable[[], object]:
    module = hk.parse(text)
    return lambda: hk.optimize(module, PIPELINE)


def lowering(text: str) -> Callable[[], object]:
    module = hk.optimize(hk.parse(text), PIPELINE)
    return lambda: compile_program(module, host(), optimised=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_reading_and_printing(family: str) -> None:
    assert ratio(*FAMILIES[family], lambda text: lambda: str(hk.parse(text))) < _MOST


@pytest.mark.parametrize("family", FAMILIES)
def test_passes(family: str) -> None:
    assert ratio(*FAMILIES[family], passes) < _MOST


@pytest.mark.parametrize("family", FAMILIES)
def test_lowering(family: str) -> None:
    assert ratio(*FAMILIES[family], lowering) < _MOST


def test_what_many_kernels_share_is_not_built_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    fold = Folding._fold
    monkeypatch.setattr(Folding, "_fold", lambda self, *given: (built.append(1), fold(self, *given))[1])
    monkeypatch.setattr("hlokit.cpu.grouping._ROUND", 1500)
    lowering(users_of_a_norm(100))()
    assert len(built) < 12 * 50
