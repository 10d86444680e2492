"""hk.parse(text, verify=False): read as it stands, printed back, told by hk.verify, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.proto.module import module_to_proto
from hlokit.text.parser import parse_hlo

WRONG = """HloModule wrong, input_output_alias={ {9}: (0, {}, may-alias) }, entry_computation_layout={(f32[2]{0})->f32[7]{0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}

ENTRY %e (p: f32[2], q: s32[4]) -> (f32[3], f32[5]) {
  %p = f32[2]{0} parameter(0)
  %c = f32[9]{0} bitcast(%p)
  %s = f32[9]{0} all-gather(%c), replica_groups={{0,1}}, dimensions={4}
  %q = s32[4]{0} parameter(1)
  %f = f32[] reduce(%p, %q), dimensions={7}, to_apply=%add
  %a = f32[3]{0} add(%p, %p)
  %b = f32[5]{0} multiply(%p, %q)
  ROOT %t = (f32[3]{0}, f32[5]{0}) tuple(%a, %b)
}

"""
LABELS = ["BEY-19", "AGATHER-3", "REDUCE-4", "HINST-2", "BIN-2", "HMOD-5", "HMOD-5", "HMOD-7"]


def test_it_prints_back_as_it_was_read() -> None:
    module = hk.parse(WRONG, verify=False)
    assert str(module) == WRONG
    assert str(hk.parse(str(module), verify=False)) == WRONG
    for preset in ("short_parsable", "canonical", "fingerprint"):
        assert module.to_text(preset)


def test_all_findings_are_told() -> None:
    with pytest.raises(hk.VerifyError) as caught:
        hk.verify(hk.parse(WRONG, verify=False))
    assert [finding.rpartition("[")[2].rstrip("]") for finding in caught.value.findings] == LABELS


@pytest.mark.parametrize(
    "use",
    [
        lambda m: hk.evaluate(m, np.zeros(2, np.float32), np.zeros(4, np.int32)),
        hk.compile,
        hk.optimize,
        hk.export_object,
        lambda m: hk.evaluate(m.clone(), np.zeros(2, np.float32), np.zeros(4, np.int32)),
        lambda m: hk.compile(m, strict=True, replicas=2),
        lambda m: hk.evaluate(m, replicas=2),
        lambda m: hk.evaluate_mpmd([(m, ()), (m, ())]),
        hk.to_stablehlo,
    ],
    ids=["evaluate", "compile", "optimize", "export", "clone", "replicas", "grid", "mpmd", "stablehlo"],
)
def test_nothing_runs_or_changes_it(use: Any) -> None:
    with pytest.raises(hk.VerifyError):
        use(hk.parse(WRONG, verify=False))


def test_what_is_right_runs() -> None:
    text = "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] add(p, p) }"
    module = hk.parse(text, verify=False)
    assert str(module) == str(hk.parse(text))
    np.testing.assert_array_equal(hk.evaluate(module, np.ones(2, np.float32)), [2, 2])
    np.testing.assert_array_equal(hk.compile(module)(np.ones(2, np.float32)), [2, 2])


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\nENTRY e { ROOT r = f32[2] add(p, p) }",
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] sum(p, p) }",
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = add(p, p, p) }",  # whose shape must be inferred
        "HloModule m\nENTRY e { ROOT r = f32[2] async-done() }",
    ],
    ids=["a name", "an opcode", "no shape", "no operand"],
)
def test_what_text_cannot_say_is_refused_all_the_same(text: str) -> None:
    with pytest.raises(hk.ParseError, match=r"line [23]"):
        hk.parse(text, verify=False)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pb"
    module = parse_hlo(WRONG.replace(", entry_computation_layout={(f32[2]{0})->f32[7]{0}}", ""), verify=False)
    path.write_bytes(module_to_proto(module))
    with pytest.raises(hk.ParseError, match="BEY-19"):
        hk.load(path)
    again = hk.load(path, verify=False)
    assert [str(i) for i in again.entry.instructions] == [str(i) for i in module.entry.post_order()]
    with pytest.raises(hk.VerifyError):
        hk.evaluate(again)
