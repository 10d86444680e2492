"""The order of steps: less memory in use at once, the same bits."""

from collections.abc import Callable

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import XlaOp
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.lower import schedule
from hlokit.cpu.target import this_machine

Made = Callable[[hk.Builder, XlaOp, XlaOp, XlaOp], XlaOp]
LAYERS, SIZE = 20, 256
NBYTES = 4 * SIZE * SIZE
"""Of a layer."""


def column(x: XlaOp, w: XlaOp, u: XlaOp) -> XlaOp:
    """A sum over products of each of many layers, that of the last layer first in the instructions' order."""
    layers = [x]
    for _ in range(LAYERS):
        layers.append(hk.tanh(hk.dot(layers[-1], w)))
    total = hk.dot(layers[-1], u)
    for layer in reversed(layers[1:-1]):
        total = hk.cos(total) - hk.dot(layer, u)
    return total


def straight(b: hk.Builder, x: XlaOp, w: XlaOp, u: XlaOp) -> XlaOp:
    return column(x, w, u)


def in_a_loop(b: hk.Builder, x: XlaOp, w: XlaOp, u: XlaOp) -> XlaOp:
    """Three passes, of which each puts its sum into a column of x."""

    def body(i: XlaOp, x: XlaOp, w: XlaOp, u: XlaOp) -> list[XlaOp]:
        return [i + 1, hk.dynamic_update_slice(x, column(x, w, u), [i, i]), w, u]

    def condition(i: XlaOp, *_: XlaOp) -> XlaOp:
        return hk.lt(i, 3)

    return hk.while_loop(condition, body, [b.constant(np.int32(0)), x, w, u])[1]


def module(made: Made) -> hk.HloModule:
    b = hk.Builder("layers")
    shapes = [hk.f32[SIZE, SIZE], hk.f32[SIZE, SIZE], hk.f32[SIZE, 1]]
    return b.build(made(b, *(b.parameter(k, shape) for k, shape in enumerate(shapes))))


@pytest.mark.parametrize("made", [straight, in_a_loop])
def test_layers_are_used_before_the_next_ones_are_made(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compile_program(module(made), this_machine()).assignment.nbytes
    assert found < 5 * NBYTES
    monkeypatch.setattr(schedule, "_WORTH", 1 << 60)
    assert compile_program(module(made), this_machine()).assignment.nbytes >= LAYERS * NBYTES


@pytest.mark.parametrize("made", [straight, in_a_loop])
def test_the_order_changes_no_bit(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    arguments = [chance.normal(size=s).astype(np.float32) / 16 for s in ((SIZE, SIZE), (SIZE, SIZE), (SIZE, 1))]
    found = hk.compile(module(made))(*arguments)
    monkeypatch.setattr(schedule, "_WORTH", 1 << 60)
    np.testing.assert_array_equal(found, hk.compile(module(made))(*arguments))


def test_arrays_that_save_nothing_stay_in_order() -> None:
    """What fits in less than a megabyte is not reordered."""
    b = hk.Builder("small")
    x = b.parameter(0, hk.f32[64, 64])
    program = compile_program(b.build(hk.dot(hk.dot(x, x), hk.dot(hk.tanh(x), x))), this_machine())
    names = [step.name for step in program.block.steps]
    program.block.steps.reverse()
    schedule.lighten(program.block, program.context, program.results)
    assert [step.name for step in program.block.steps] == names[::-1]
