"""Lineage through passes: complete, right by values, narrow, and free where it is not asked for."""

import statistics

import pytest

import hlokit as hk
from hlokit.cpu.compiler import PIPELINE
from hlokit.hlo.lineage import Mark
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from hlokit.passes.pipeline import DEFAULT
from tests.golden.programs import BUNDLED, read_program
from tests.lineage import EXACT, complete, wrong

LOOP = """HloModule m
body { s = (s32[], f32[4], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1) next = s32[] add(i, one) x = f32[4] get-tuple-element(s), index=1
  w = f32[4] get-tuple-element(s), index=2 scale = f32[4] exponential(w) y = f32[4] multiply(x, scale)
  ROOT t = (s32[], f32[4], f32[4]) tuple(next, y, w) }
cond { s = (s32[], f32[4], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100) ROOT less = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[4] parameter(0) w = f32[4] parameter(1) zero = s32[] constant(0)
  t = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  loop = (s32[], f32[4], f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(loop), index=1 }
"""


@pytest.mark.parametrize("name", ["gru_scan_grad", "cnn_train_step", "rope_attention_kv_cache"])
def test_recorded_programs(name: str) -> None:
    recorded = read_program(BUNDLED, name)
    assert wrong(hk.parse(recorded.hlo), EXACT, recorded.inputs) == []


def test_random_programs() -> None:
    for seed in range(40):
        module = random_module(seed, Options(instructions=12))
        try:
            assert wrong(module, EXACT, arguments(module, seed)) == [], seed
        except (hk.EvaluationError, hk.UnsupportedError):
            continue
        assert complete(hk.optimize(module, PIPELINE, lineage=True)) == [], seed


def test_the_check_finds_a_pass_that_changes_values() -> None:
    module = hk.parse("HloModule m\nENTRY e { x = f32[2] parameter(0) y = f32[2] exponential(x) ROOT z = f32[2] negate(y) }")

    def breaks(module: hk.HloModule) -> None:
        root = module.entry.root
        module.entry.replace(root, root.operands[0])

    assert wrong(module, [breaks], arguments(module, 0)) == ["y is not z"]


def test_what_moves_out_of_a_loop_comes_from_the_body() -> None:
    module = hk.parse(LOOP)
    lineage = hk.optimize(module, [*DEFAULT, "dce"], lineage=True).lineage
    assert lineage is not None
    moved, carried = lineage.results("scale")
    assert (str(carried.mark), carried.instruction.opcode) == ("same value", "get-tuple-element")
    assert (str(moved.mark), moved.instruction.opcode) == ("same value", "exponential")
    (loop,) = (i for i in lineage.module.instructions() if i.opcode == "while")
    assert [repr(origin) for origin in lineage.origins(loop)] == ["loop: part of"]


def test_an_unrolled_instruction_is_there_once_for_each_pass() -> None:
    module = hk.parse(LOOP.replace("constant(100)", "constant(3)"))
    lineage = hk.optimize(module, ["while-loop-unroller"], lineage=True).lineage
    assert lineage is not None
    found = [origin for origin in lineage.results("y") if origin.instruction.parent is lineage.module.entry]
    assert [origin.mark for origin in found] == [Mark.SAME] * 3


def test_stages_compose_to_the_whole() -> None:
    recorded = read_program(BUNDLED, "gru_scan_grad")
    lineage = hk.optimize(hk.parse(recorded.hlo), lineage="stages").lineage
    assert lineage is not None and len(lineage.stages) > 3
    assert lineage.stages[0].module is lineage.source
    assert str(lineage.stages[-1].module) == str(lineage.module)
    for before, stage in zip(lineage.stages, lineage.stages[1:], strict=False):
        known = set(before.module.instructions())
        for instruction in stage.module.instructions():
            assert stage.origins[instruction] and set(stage.origins[instruction]) <= known


def test_lineage_changes_nothing_and_is_narrow() -> None:
    recorded = read_program(BUNDLED, "transformer_block_forward")
    module = hk.parse(recorded.hlo)
    plain, traced = hk.optimize(module), hk.optimize(module, lineage=True)
    assert str(plain) == str(traced)
    assert plain.lineage is None and traced.clone().lineage is None and traced.lineage is not None
    assert statistics.median(traced.lineage.sizes().values()) == 1
    with pytest.raises(hk.ArgumentError, match="has no instruction 'nothing'"):
        traced.lineage.origins("nothing")
    with pytest.raises(hk.ArgumentError, match="is not an instruction of this lineage's"):
        traced.lineage.origins(module.entry.root)
    with pytest.raises(hk.ArgumentError, match="is not an instruction of this lineage's"):
        traced.lineage.results(plain.entry.root)
