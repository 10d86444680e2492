"""Nothing explodes: what each stage does for a program of four times the size, counted in calls, is four times as much.

One dimension grows at a time: how deep computations nest, how much a loop carries, how wide tuples and fans are, how
long chains are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.compiler import PIPELINE, compile_program
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.lower.drafts import retried
from hlokit.cpu.target import host
from hlokit.errors import UnsupportedError
from hlokit.judge.fuzz.values import arguments
from hlokit.proto.module import module_from_proto, module_to_proto
from tests.counting import function_calls
from tests.fuzz.properties import leaves, normal

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


def clipped(count: int) -> str:
    """So many arrays, each divided by the sum of the squares of all."""
    lines = ["z = f32[] constant(0)", "sum0 = f32[] constant(0)"]
    for k in range(count):
        lines += [
            f"x{k} = f32[{8 + k % 7}] parameter({k})",
            f"square{k} = f32[{8 + k % 7}] multiply(x{k}, x{k})",
            f"part{k} = f32[] reduce(square{k}, z), dimensions={{0}}, to_apply=add",
            f"sum{k + 1} = f32[] add(sum{k}, part{k})",
        ]
    for k in range(count):
        lines += [f"norm{k} = f32[{8 + k % 7}] broadcast(sum{count}), dimensions={{}}"]
        lines += [f"y{k} = f32[{8 + k % 7}] divide(x{k}, norm{k})"]
    shapes = ", ".join(f"f32[{8 + k % 7}]" for k in range(count))
    names = ", ".join(f"y{k}" for k in range(count))
    return program([*lines, f"ROOT r = ({shapes}) tuple({names})"], ADD)


def residual_layers(count: int) -> str:
    """Products of what is left of rows without their means, each added to what it is made from."""
    lines = ["x0 = f32[16,32] parameter(0)", "w = f32[32,32] parameter(1)", "z = f32[] constant(0)"]
    for k in range(count):
        lines += [
            f"m{k} = f32[16] reduce(x{k}, z), dimensions={{1}}, to_apply=add",
            f"b{k} = f32[16,32] broadcast(m{k}), dimensions={{0}}",
            f"c{k} = f32[16,32] subtract(x{k}, b{k})",
            f"d{k} = f32[16,32] dot(c{k}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"t{k} = f32[16,32] tanh(d{k})",
            f"x{k + 1} = f32[16,32] add(x{k}, t{k})",
        ]
    return program([*lines[:-1], "ROOT " + lines[-1]], ADD)


def loop_of(count: int, next_values: Callable[[int], str]) -> str:
    """A loop that carries so many arrays, v0, v1, ...; `next_values`: what a pass makes of one."""
    state = f"(s32[], {', '.join(['f32[8]'] * count)})"
    head = f"p = {state} parameter(0)\nk = s32[] get-tuple-element(p), index=0\n"
    made = [f"v{k} = f32[8] get-tuple-element(p), index={k + 1}" for k in range(count)]
    made += [f"w{k} = f32[8] {next_values(k)}" for k in range(count)]
    body = "\n".join(["o = s32[] constant(1)", "n = s32[] add(k, o)", *made])
    names = ", ".join(f"w{k}" for k in range(count))
    text = f"condition {{\n{head}c = s32[] constant(10)\nROOT r = pred[] compare(k, c), direction=LT\n}}\n"
    text += f"body {{\n{head}{body}\nROOT r = {state} tuple(n, {names})\n}}\n"
    given = ["k = s32[] parameter(0)", *(f"v{k} = f32[8] parameter({k + 1})" for k in range(count))]
    start = f"t = {state} tuple(k, {', '.join(f'v{k}' for k in range(count))})"
    return program([*given, start, f"ROOT r = {state} while(t), condition=condition, body=body"], text)


def wide_loop(count: int) -> str:
    return loop_of(count, lambda k: f"sine(v{k})")


def turning_loop(count: int) -> str:
    return loop_of(count, lambda k: f"copy(v{(k + 1) % count})")


def layers(count: int) -> str:
    """Products, each with a function of its elements on top."""
    lines = ["x0 = f32[16,16] parameter(0)", "w = f32[16,16] parameter(1)"]
    for k in range(count):
        dot = f"dot(x{k}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        lines += [f"d{k} = f32[16,16] {dot}", f"x{k + 1} = f32[16,16] tanh(d{k})"]
    return program([*lines[:-1], "ROOT " + lines[-1]])


def one_after_the_other(count: int) -> str:
    waits = [f", control-predecessors={{y{k - 1}}}" if k else "" for k in range(count)]
    lines = ["x = f32[8] parameter(0)", *(f"y{k} = f32[8] sine(x){wait}" for k, wait in enumerate(waits))]
    return program([*lines, tuple_of([f"y{k}" for k in range(count)], "f32[8]")])


def appended(count: int) -> str:
    lines = ["x0 = f32[8] parameter(0)", "y = f32[1] parameter(1)"]
    lines += [f"x{k + 1} = f32[{k + 9}] concatenate(x{k}, y), dimensions={{0}}" for k in range(count)]
    return program([*lines[:-1], "ROOT " + lines[-1]])


def recurrence(steps: int) -> str:
    """All states of a recurrence side by side: each is made of all before it."""
    lines = ["x = f32[8] parameter(0)", "h0 = f32[8] parameter(1)"]
    for k in range(steps):
        lines += [
            f"t{k} = f32[8] tanh(h{k})",
            f"a{k} = f32[8] add(t{k}, x)",
            f"m{k} = f32[8] multiply(a{k}, x)",
            f"h{k + 1} = f32[8] add(m{k}, h{k})",
        ]
    states = ", ".join(f"h{k + 1}" for k in range(steps))
    return program([*lines, f"ROOT r = f32[{8 * steps}] concatenate({states}), dimensions={{0}}"])


_UNARY = ("sine", "negate", "abs", "tanh")


def chain(count: int) -> str:
    """So many instructions, one after the other."""
    lines = ["x0 = f32[8] parameter(0)"]
    lines += [f"x{k + 1} = f32[8] {_UNARY[k % 4]}(x{k})" for k in range(count)]
    return program([*lines[:-1], "ROOT " + lines[-1]])


def side_by_side(count: int) -> str:
    """So many instructions of one parameter and a constant each, side by side."""
    lines = ["x = f32[8] parameter(0)"]
    for k in range(count // 3):
        values = ", ".join(str(k + i) for i in range(8))
        lines += [f"y{k} = f32[8] {_UNARY[k % 4]}(x)", f"k{k} = f32[8] constant({{{values}}})"]
        lines.append(f"z{k} = f32[8] add(y{k}, k{k})")
    return program([*lines, tuple_of([f"z{k}" for k in range(count // 3)], "f32[8]")])


def parameters(count: int) -> str:
    """A sum of so many parameters, and a result for each."""
    lines = [f"p{k} = f32[8] parameter({k})" for k in range(count)]
    lines += [f"t{k} = f32[8] {'abs(p0)' if not k else f'add(t{k - 1}, p{k})'}" for k in range(count)]
    lines += [f"y{k} = f32[8] sine(p{k})" for k in range(count)]
    return program([*lines, tuple_of([*(f"y{k}" for k in range(count)), f"t{count - 1}"], "f32[8]")])


def computations(count: int) -> str:
    """So many computations, each called once, by turns as a function and as a reducer."""
    text = ""
    lines = ["x0 = f32[8] parameter(0)", "w = f32[8,4] parameter(1)", "z = f32[] constant(0)"]
    for k in range(count // 2):
        text += f"f{k} {{ p = f32[8] parameter(0) a = f32[8] {_UNARY[k % 4]}(p) ROOT r = f32[8] negate(a) }}\n"
        op = ("add", "maximum", "minimum")[k % 3]
        text += f"g{k} {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] {op}(p, q) }}\n"
        lines += [f"x{k + 1} = f32[8] call(x{k}), to_apply=f{k}"]
        lines += [f"y{k} = f32[8] reduce(w, z), dimensions={{1}}, to_apply=g{k}"]
    names = [*(f"y{k}" for k in range(count // 2)), f"x{count // 2}"]
    return program([*lines, tuple_of(names, "f32[8]")], text)


def tuple_of(names: list[str], shape: str) -> str:
    return f"ROOT t = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"


def test_loops_in_loops_without_end_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="nest deeper than 150"):
        hk.compile(hk.parse(nested_loops(300)))


MANY: dict[str, tuple[Callable[[int], str], int]] = {
    "chain": (chain, 200),  # a chain of 100 is one kernel
    "side by side": (side_by_side, 90),
    "parameters": (parameters, 120),  # one kernel adds up to some 100
    "computations": (computations, 30),
}
FAMILIES: dict[str, tuple[Callable[[int], str], int]] = {
    "nested loops": (nested_loops, 12),
    "nested conditionals": (nested_conditionals, 12),
    "wide loop": (wide_loop, 40),
    "turning loop": (turning_loop, 40),
    "layers": (layers, 12),
    "residual layers": (residual_layers, 12),
    "clipped": (clipped, 20),
    "one after the other": (one_after_the_other, 40),
    "appended": (appended, 40),
    "recurrence": (recurrence, 20),
    **MANY,
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


@pytest.mark.parametrize("family", MANY)
def test_checking(family: str) -> None:
    assert ratio(*MANY[family], lambda text: partial(hk.verify, hk.parse(text))) < _MOST


@pytest.mark.parametrize("family", MANY)
def test_protos(family: str) -> None:
    assert ratio(*MANY[family], lambda text: partial(_by_proto, hk.parse(text))) < _MOST


@pytest.mark.parametrize("family", MANY)
def test_stablehlo(family: str) -> None:
    assert ratio(*MANY[family], lambda text: partial(_by_stablehlo, hk.parse(text))) < _MOST


@pytest.mark.parametrize("family", MANY)
def test_evaluation(family: str) -> None:
    def evaluation(text: str) -> Callable[[], object]:
        module = hk.parse(text)
        return partial(hk.evaluate, module, *arguments(module, 0))

    assert ratio(*MANY[family], evaluation) < _MOST


def _by_proto(module: hk.HloModule) -> hk.HloModule:
    return module_from_proto(module_to_proto(module))


def _by_stablehlo(module: hk.HloModule) -> hk.HloModule:
    return hk.parse(hk.to_stablehlo(module))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count"), [(chain, 100_000), (side_by_side, 100_000), (parameters, 5_000), (computations, 10_000)]
)
def test_large_programs(make: Callable[[int], str], count: int) -> None:
    module = normal(hk.parse(make(count)))
    hk.verify(module)
    assert str(hk.parse(str(module))) == str(module)
    given = arguments(module, 0, wild=0)
    expected = hk.evaluate(module, *given)
    for other in (_by_proto(module), _by_stablehlo(module), hk.optimize(module)):
        for ours, theirs in zip(leaves(hk.evaluate(other, *given)), leaves(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(leaves(hk.compile(module)(*given)), leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_states_side_by_side_are_right() -> None:
    module = hk.parse(recurrence(60))
    given: list[Any] = [np.linspace(-1, 1, 8, dtype=np.float32), np.linspace(0.5, -0.5, 8, dtype=np.float32)]
    np.testing.assert_allclose(hk.compile(module)(*given), hk.evaluate(module, *given), rtol=1e-5, atol=1e-6)


def test_equal_values_become_one_at_once() -> None:
    lines = ["x = f32[8] parameter(0)"]
    for k in range(50):
        lines += [f"a{k} = f32[8] sine(x)", f"b{k} = f32[8] {('abs', 'negate')[k % 2]}(a{k})"]
    text = program([*lines, tuple_of([f"b{k}" for k in range(50)], "f32[8]")])
    root = hk.optimize(hk.parse(text), ["cse"], verify_each=True).entry.root
    assert root.operands == root.operands[:2] * 25
    assert len({o.operands for o in root.operands}) == 1
    assert dict(root.operands[0].users) == {root: None}


def test_equal_layers_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def counted(*given: Any, **named: Any) -> Any:
        built.append(given)
        return retried(*given, **named)

    monkeypatch.setattr("hlokit.cpu.lower.kernels.retried", counted)
    lowering(residual_layers(20))()
    once = len(built)
    lowering(residual_layers(40))()
    assert len(built) == 2 * once


def test_what_many_kernels_share_is_not_built_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    results = CalledFunction.results

    def counted(self: CalledFunction, *given: Any) -> Any:
        built.append(self)
        return results(self, *given)

    monkeypatch.setattr(CalledFunction, "results", counted)
    lowering(users_of_a_norm(100))()
    assert len(built) <= 12 * 4
