"""Programs with steps of the reference in the persistent cache: their machine code is kept, the steps are bound again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.custom_calls import Invocation
from hlokit.runtime import compilation, kept_steps

_Array = np.ndarray[Any, Any]
TEXT = """HloModule m, frontend_attributes={a="b"}
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT a = f32[] add(p, q) }
then { x = f32[2] parameter(0) ROOT y = f32[2] custom-call(x), custom_call_target="kept_steps_scaled", backend_config="3" }
other { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }
ENTRY e { x = f32[2] parameter(0) p = pred[] parameter(1)
  c = f32[2] conditional(p, x, x), true_computation=then, false_computation=other
  both = (f32[2], f32[2]) custom-call(c, x), custom_call_target="kept_steps_pair", to_apply=add, backend_config="{half = 0.5 : f32}", api_version=API_VERSION_TYPED_FFI
  a = f32[2] get-tuple-element(both), index=0
  b = f32[2] get-tuple-element(both), index=1
  ROOT r = f32[2] subtract(a, b) }"""


def scaled(call: Invocation) -> Any:
    return call.operands[0] * np.float32(call.opaque)


def pair(call: Invocation) -> Any:
    assert call.opaque == "{half = 0.5 : f32}"
    return call.operands[0] * np.float32(0.5), call.operands[1]


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path / "cache"))
    hk.register_custom_call("kept_steps_scaled", scaled, whole_call=True)
    hk.register_custom_call("kept_steps_pair", pair, whole_call=True)
    yield
    for name in ("kept_steps_scaled", "kept_steps_pair"):
        hk.unregister_custom_call(name)


def never(*_: object, **__: object) -> Any:
    pytest.fail("compiled again")


def test_a_program_with_custom_calls_in_python_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = hk.parse(TEXT), np.float32([1, -2])
    expected = [hk.evaluate(module, x, np.bool_(flag)) for flag in (True, False)]
    hk.compile(module)
    monkeypatch.setattr(compilation, "compiled", never)
    again = hk.compile(hk.parse(TEXT))
    for flag, wanted in zip((True, False), expected, strict=True):
        np.testing.assert_array_equal(again(x, np.bool_(flag)), wanted)


def test_a_function_registered_later_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    x, flag = np.float32([1, -2]), np.bool_(True)
    hk.compile(hk.parse(TEXT))
    hk.register_custom_call("kept_steps_scaled", lambda call: 10 * call.operands[0], whole_call=True, replace=True)
    monkeypatch.setattr(compilation, "compiled", never)
    np.testing.assert_array_equal(hk.compile(hk.parse(TEXT))(x, flag), [4, -8])


def test_an_error_of_a_kept_step_names_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    hk.compile(hk.parse(TEXT))
    monkeypatch.setattr(compilation, "compiled", never)
    again = hk.compile(hk.parse(TEXT))
    hk.register_custom_call("kept_steps_pair", lambda _: 1 / 0, whole_call=True, replace=True)
    with pytest.raises(hk.HlokitError, match=r"^both: .*ZeroDivisionError"):
        again(np.float32([1, 2]), np.bool_(True))


def test_another_process_finds_it(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, numpy as np, hlokit as hk\n"
        "hk.register_custom_call('kept_steps_scaled', lambda x: x * 3)\n"
        "hk.register_custom_call('kept_steps_pair', lambda x, y: (x / 2, y))\n"
        "exe = hk.compile(hk.parse(open(sys.argv[1]).read()))\n"
        "print(exe(np.float32([1, -2]), np.bool_(True)), 'hlokit.cpu.compiler' in sys.modules)\n",
        encoding="utf-8",
    )
    text = tmp_path / "m.hlo"
    text.write_text(TEXT, encoding="utf-8")
    command = [sys.executable, str(script), str(text)]
    outputs = [
        subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert outputs == ["[ 0.5 -1. ] True\n", "[ 0.5 -1. ] False\n"]


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\nENTRY e { t = token[] after-all() i = (f32[2], token[]) infeed(t) "
        "ROOT r = f32[2] get-tuple-element(i), index=0 }",
        "HloModule m\nENTRY e { x = f32[2] parameter(0) s = (f32[2], f32[2], u32[]) copy-start(x) "
        "ROOT r = f32[2] copy-done(s) }",
    ],
)
def test_communication_is_not_kept(text: str) -> None:
    module = hk.parse(text)
    found = [i for i in module.entry.instructions if i.opcode in ("infeed", "copy-start", "copy-done")]
    assert kept_steps.kept_text(found, module) is None


def test_the_instructions_are_as_they_were() -> None:
    module = hk.parse(TEXT)
    calls = [i for c in module.computations() for i in c.instructions if i.opcode == "custom-call"]
    text = kept_steps.kept_text(calls, module)
    assert text is not None
    found = kept_steps.instructions_of(text)
    assert [(i.name, i.op, i.shape, i.extra.backend_config if i.extra else "") for i in found] == [
        (i.name, i.op, i.shape, i.extra.backend_config if i.extra else "") for i in calls
    ]
    assert [[o.shape for o in i.operands] for i in found] == [[o.shape for o in i.operands] for i in calls]
    assert all(i.parent is not None and i.parent.module.frontend_attributes == {"a": "b"} for i in found)
