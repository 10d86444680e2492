"""Tracebacks end in the caller's code, unless the fault is this package's own or the user asks for all frames."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit import tracebacks

X = hk.f32[2, 3]


@pytest.fixture(autouse=True)
def filtering(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: tests/conftest.py turns it off."""
    monkeypatch.delenv("HLOKIT_TRACEBACK_FILTERING", raising=False)


def frames(call: Callable[[], Any], kind: Any = hk.HlokitError) -> list[str]:
    """The functions in the traceback of what this call raises, the call's own frame first."""
    with pytest.raises(kind) as caught:
        call()
    entries = traceback.extract_tb(caught.value.__traceback__)
    return [f"{Path(e.filename).stem}.{e.name}" for e in entries][1:]


def parameter(shape: hk.Shape = X) -> hk.XlaOp:
    return hk.Builder("t").parameter(0, shape)


def module() -> hk.HloModule:
    b = hk.Builder("t")
    return b.build(hk.neg(b.parameter(0, X)))


HERE = ["test_tracebacks.call"]


@pytest.mark.parametrize(
    "text",
    [
        "hk.add(x, [1.0, 2.0])",
        "x + [1.0, 2.0]",
        "hk.sin(x, x)",
        "hk.reduce(x, 0.0, hk.add, 7)",
        "hk.dot_general(x, x, 5)",
        "hk.igamma(x, x[0])",
        "x[0]",
        "len(x)",
        "x.sum()",
        "bool(x)",
        "np.sin(x)",
        "np.concatenate([x])",
        "hk.float32",
        "hk.f32[-1]",
        "x.builder.parameter(0, (2, 3))",
        "x.builder.build(7)",
        "module()(1)",
        "module().entry(1)",
        "hk.parse('HloModule m\\n\\nENTRY e { ROOT p = f32[2] parameter(0')",
        "hk.parse('HloModule m\\nENTRY e { ROOT p = f32[2] add() }')",
        "hk.parse(b'\\xff')",
        "hk.parse_shape('f32[')",
        "hk.explain('NOPE-1')",
        "hk.verify(3)",
        "hk.evaluate(module())",
        "hk.evaluate(x.builder)",
        "hk.optimize(7)",
        "hk.compile(module(), threads=-1)",
        "hk.compile(module(), 'gpu')",
        "hk.compile(module())(1, 2, 3)",
        "hk.compile(module()).as_text('nonsense')",
        "hk.compile(module(), replicas=2)(1)",
        "hk.concat_in_dim()",
        "hk.sin()",
    ],
)  # fmt: skip
def test_the_last_frame_is_the_callers(text: str) -> None:
    names = {"hk": hk, "np": np, "x": parameter(), "module": module}

    def call() -> None:
        eval(text, names)

    assert frames(call, (hk.HlokitError, TypeError)) == [*HERE, "<string>.<module>"]


def test_frames_of_functions_that_the_package_calls_stay() -> None:
    def combine(x: hk.XlaOp, y: hk.XlaOp) -> hk.XlaOp:
        return inner(x) + y

    def inner(x: hk.XlaOp) -> hk.XlaOp:
        return hk.add(x, x, [3])

    def call() -> None:
        hk.reduce(parameter(), 0.0, combine, [0])

    assert frames(call) == [*HERE, "test_tracebacks.combine", "test_tracebacks.inner"]


def test_on_a_thread_of_a_small_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlokit.stack.size", lambda: 1 << 16)
    assert frames(lambda: hk.parse("HloModule m\n!")) == ["test_tracebacks.<lambda>"]


def test_errors_that_are_not_raised_on_purpose_keep_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a fault of the package")

    monkeypatch.setattr("hlokit.builder.core.infer_shape", broken, raising=False)
    monkeypatch.setattr("hlokit.hlo.computation.infer_shape", broken)
    found = frames(lambda: hk.neg(parameter()), KeyError)
    assert found[-1] == "test_tracebacks.broken" and {"core.emit", "computation.add"} <= {*found}


def test_a_pass_that_breaks_a_program_keeps_its_frames() -> None:
    def breaks(given: hk.HloModule) -> None:
        given.entry.root.shape = hk.f32[7]

    found = frames(lambda: hk.optimize(module(), [breaks], verify_each=True), hk.VerifyError)
    assert found[-1].startswith("pipeline.")
    error = hk.ShapeError("HINST-5", "operands", 2, 1)

    def compiled() -> None:
        raise error

    names = {"__name__": "hlokit.passes.broken", "compiled": compiled}
    exec("def run(): compiled()", names)
    with pytest.raises(hk.ShapeError):
        tracebacks.public(names["run"])()
    assert tracebacks.is_internal(error)
    assert [tb.name for tb in traceback.extract_tb(error.__traceback__)][-3:] == ["run", "run", "compiled"]


def test_a_wrong_kernel_keeps_its_frames() -> None:
    error = hk.ShadowMismatch(["x"], "x", (0,), 1.0, 2.0, 1, "folder")

    def wrong() -> None:
        raise error

    assert frames(lambda: tracebacks.public(wrong)()) == [
        "test_tracebacks.<lambda>",
        "tracebacks.run",
        "test_tracebacks.wrong",
    ]


def test_all_frames_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_TRACEBACK_FILTERING", "off")
    found = frames(lambda: hk.add(parameter(), [1.0, 2.0]))
    assert {"elementwise.add", "broadcasting.broadcast_sizes"} <= {*found}


def test_as_python_prints_it(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text("import hlokit as hk\nx = hk.Builder('t').parameter(0, hk.f32[2, 3])\nhk.add(x, [1.0, 2.0])\n")
    environment = {k: v for k, v in os.environ.items() if k != "HLOKIT_TRACEBACK_FILTERING"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("  File")] == [f'  File "{script}", line 3, in <module>']
    assert "write hk.add(x, y, [0])" in done.stderr and lines[-1].startswith("BCAST-3: ")


def test_arguments_that_do_not_fit_name_the_signature() -> None:
    with pytest.raises(
        TypeError, match=r"takes 2 positional arguments but 3 were given: its arguments are \(operands, dimension\)$"
    ):
        hk.concat_in_dim(parameter(), parameter(), 0)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match=r"missing .* 'shape': its arguments are \(number, shape, name='', "):
        hk.Builder("t").parameter(0)  # type: ignore[call-arg]


def test_errors_name_the_call_where_they_name_no_op() -> None:
    with pytest.raises(
        hk.ShapeError, match=r"^reduce\(f32\[2,3\]\): dimensions: found 7, .* at .*test_tracebacks.py:\d+"
    ):
        hk.reduce(parameter(), 0.0, hk.add, 7)  # type: ignore[arg-type]
    with pytest.raises(hk.ShapeError, match=r"^exp\(f32\[2,3\]\): .*found 'fast', expected None, \"highest\" or "):
        hk.exp(parameter(), "fast")  # type: ignore[arg-type]


def test_functions_made_of_others_show_no_call_of_those() -> None:
    b = hk.Builder("t")
    x, y = b.parameter(0, X), b.parameter(1, hk.f32[3])
    with pytest.raises(hk.ShapeError) as caught:
        hk.square(hk.igamma(x, y))
    assert "write" not in str(caught.value) or "hk.igamma(" in str(caught.value)
