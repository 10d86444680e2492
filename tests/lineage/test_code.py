"""Lineage of machine code: every step, buffer and line of the listing has instructions that it comes from."""

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.runtime.executable import Executable
from tests.golden.programs import BUNDLED, program_names, read_program


def check(executable: Executable) -> None:
    lineage = executable.lineage
    source = set(lineage.passes.source.instructions())
    assert "".join(f"{line.text}\n" for line in lineage.lines) == executable.as_text("loops")
    for step in lineage.steps:
        assert step.instructions and set(step.results) <= set(step.instructions)
        assert {o.instruction for o in lineage.origins(step)} <= source and lineage.origins(step)
        if step.kind in ("kernel", "routine"):
            assert step.functions and all(name in executable.as_text("loops") for name in step.functions)
    for line in lineage.lines:
        assert line.step is None or line.instructions
    for name, instructions in lineage.buffers.items():
        assert instructions and lineage.origins(name)


@pytest.mark.parametrize("name", ["gru_scan_grad", "layernorm_grad", "cnn_train_step"])
def test_recorded_programs(name: str) -> None:
    check(hk.compile(hk.parse(read_program(BUNDLED, name).hlo)))


@pytest.mark.slow
@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_all_recorded_programs(name: str) -> None:
    check(hk.compile(hk.parse(read_program(BUNDLED, name).hlo)))


def test_random_programs() -> None:
    for seed in range(8):
        module = random_module(seed, Options(instructions=8, dynamic=False))
        try:
            executable = hk.compile(module)
        except hk.UnsupportedError:
            continue
        check(executable)


def test_a_stored_line_comes_from_the_value_alone() -> None:
    b = hk.Builder("softmax")
    x = b.parameter(0, hk.f32[64, 128], "x")
    largest = hk.reduce(x, b.constant(-np.inf, hk.f32), hk.max, [1])
    e = hk.exp(hk.sub(x, largest, [0]))
    module = b.build(hk.div(e, hk.reduce(e, b.constant(0.0), hk.add, [1]), [0]))
    lineage = hk.compile(module).lineage
    (stored,) = (line for line in lineage.lines if line.text.strip().startswith("divide") and " = " in line.text)
    assert [i.opcode for i in stored.instructions] == ["divide"]
    (exponential,) = (i for i in module.entry.instructions if i.opcode == "exponential")
    assert [step.kind for step in lineage.steps_of(exponential)] == ["kernel"]
    with pytest.raises(hk.ArgumentError, match="has no buffer 'nothing'"):
        lineage.origins("nothing")
