"""Programs that test themselves: assertions, probes, prints, and grids of processes, in interpreter and machine code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools.main import main

Engine = Callable[[hk.HloModule], Any]


@pytest.fixture(params=["interpreter", "machine code"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return hk.evaluate if request.param == "interpreter" else lambda module: hk.compile(module)()


def program(body: str) -> hk.HloModule:
    module = hk.parse("func.func @main() {\n" + body + "\n  func.return\n}")
    hk.verify(module)
    return module


def constants(type: str, a: str, b: str) -> str:
    return f"  %a = stablehlo.constant dense<{a}> : {type}\n  %b = stablehlo.constant dense<{b}> : {type}\n"


HOLD = [
    ("tensor<2xi32>", "[1, 2]", "[1, 2]", "check.expect_eq %a, %b : {0}"),
    ("tensor<2xi32>", "[1, 2]", "[1, 2]", "check.expect_eq_const %a, dense<[1, 2]> : {0}"),
    ("tensor<2xi1>", "[true, false]", "[true, false]", '"check.expect_eq"(%a, %b) : ({0}, {0}) -> ()'),
    ("tensor<2xf32>", "[0.0, 2.0]", "[-0.0, 2.0]", "check.expect_eq %a, %b : {0}"),
    ("tensor<3xf32>", "[1.0, 0x7FC00000, 0x7F800000]", "[1.00005, 0x7FC00001, 0x7F800000]", "check.expect_almost_eq %a, %b : {0}"),
    ("tensor<f64>", "2.0", "2.5", "check.expect_almost_eq %a, %b, tolerance = 0.6 : {0}"),
    ("tensor<f32>", "2.0", "2.0", "check.expect_almost_eq_const %a, dense<2.00001> : {0}"),
    ("tensor<complex<f32>>", "(1.0, 2.0)", "(1.00005, 1.99995)", "check.expect_almost_eq %a, %b : {0}"),
    ("tensor<2xf32>", "[1.0, 0.0]", "[1.0000001, -0.0]", "check.expect_close %a, %b, max_ulp_difference = 1 : {0}, {0}"),
    ("tensor<bf16>", "1.0", "1.0234375", "check.expect_close %a, %b : {0}, {0}"),
    ("tensor<f32>", "1.0E-45", "-1.0E-45", "check.expect_close %a, %b, max_ulp_difference = 2, min_ulp_difference = 2 : {0}, {0}"),
    ("tensor<2xf32>", "[1.0, 2.0]", "[1.0, 2.0]", "stablehlo.custom_call @check.expect_close(%a, %b) {{has_side_effect = true}} : ({0}, {0}) -> ()"),
    ("tensor<f32>", "1.0", "1.0009", "stablehlo.custom_call @check.expect_almost_eq(%a, %b) {{has_side_effect = true}} : ({0}, {0}) -> ()"),
    ("tensor<f32>", "1.0", "1.00005", "%c = stablehlo.custom_call @check.eq(%a, %b) : ({0}, {0}) -> tensor<i1>"),
    ("tensor<2xi8>", "[1, 2]", "[1, 2]", "%c = stablehlo.custom_call @check.eq(%a, %b) : ({0}, {0}) -> tensor<i1>"),
    ("tensor<2xi8>", "[1, 2]", "[1, 2]", "stablehlo.custom_call @check.expect_eq_const(%a, %b) {{has_side_effect = true}} : ({0}, {0}) -> ()"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "a", "b", "check"), HOLD)
def test_what_holds(engine: Engine, type: str, a: str, b: str, check: str) -> None:
    assert engine(program(constants(type, a, b) + "  " + check.format(type))) == ()


def test_an_operation_may_follow_a_constant(engine: Engine) -> None:
    body = """  %a = stablehlo.constant dense<5.0> : tensor<f64>
  check.expect_almost_eq_const %a, dense<5.05> : tensor<f64> {tolerance = 0.1 : f64}
  %b = stablehlo.constant dense<5.0001> : tensor<f64>
  check.expect_almost_eq%a, %b : tensor<f64>
  check.expect_eq_const %a, dense<5.0> : tensor<f64>
  %c = stablehlo.add %a, %b : tensor<f64>"""
    assert engine(program(body)) == ()


FAIL = [
    ("tensor<2x2xi32>", "[[1, 2], [3, 4]]", "[[1, 2], [5, 4]]", "check.expect_eq %a, %b : {0}", r"line 4: check\.expect_eq: at \[1, 0\], 3 \(actual\), 5 \(expected\); 1 of 4"),
    ("tensor<i32>", "1", "1", "check.expect_eq_const %a, dense<7> : {0}", r"1 \(actual\), 7 \(expected\)"),
    ("tensor<2xf32>", "[1.0, 0x7FC00000]", "[1.0, 0x7FC00000]", "check.expect_eq %a, %b : {0}", r"at \[1\]"),
    ("tensor<2xf32>", "[1.0, 0x7F800000]", "[1.0, 3.0E38]", "check.expect_almost_eq %a, %b : {0}", r"at \[1\]"),
    ("tensor<f32>", "1.0", "1.0002", "check.expect_almost_eq %a, %b : {0}", "expect_almost_eq"),
    ("tensor<complex<f32>>", "(1.0, 2.0)", "(1.0, 2.1)", "check.expect_almost_eq %a, %b : {0}", "expect_almost_eq"),
    ("tensor<2xf32>", "[1.0, 2.0]", "[1.0, 2.000001]", "check.expect_close %a, %b : {0}, {0}", r"at \[1\].*4 ULP apart"),
    ("tensor<f32>", "1.0", "1.0", "check.expect_close %a, %b, max_ulp_difference = 2, min_ulp_difference = 1 : {0}, {0}", "0 ULP"),
    ("tensor<f64>", "0x7FF0000000000000", "1.0", "check.expect_close %a, %b : {0}, {0}", "1 of 1"),
    ("tensor<f64>", "0x7FF0000000000000", "0xFFF0000000000000", "check.expect_close %a, %b, max_ulp_difference = 9 : {0}, {0}", "1 of 1"),
    ("tensor<f32>", "1.0", "1.002", "stablehlo.custom_call @check.expect_almost_eq(%a, %b) {{has_side_effect = true}} : ({0}, {0}) -> ()", "expect_almost_eq"),
    ("tensor<f32>", "1.0", "1.0002", "%c = stablehlo.custom_call @check.eq(%a, %b) : ({0}, {0}) -> tensor<i1>", r"1\.000\d+ \(actual\), 1\.0 "),
    ("tensor<i8>", "1", "2", "%c = stablehlo.custom_call @check.eq(%a, %b) : ({0}, {0}) -> tensor<i1>", r"2 \(actual\), 1 \(expected"),
    ("tensor<2xi32>", "[1, 2]", "[1, 3]", "stablehlo.custom_call @check.expect_eq(%a, %b) {{has_side_effect = true}} : ({0}, {0}) -> ()", r"at \[1\]"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "a", "b", "check", "message"), FAIL)
def test_what_fails_says_where(engine: Engine, type: str, a: str, b: str, check: str, message: str) -> None:
    module = program(constants(type, a, b) + "  " + check.format(type))
    with pytest.raises(hk.EvaluationError, match=message):
        engine(module)


def test_checks_live_on_in_hlo_text(engine: Engine) -> None:
    module = program(constants("tensor<2xi32>", "[1, 2]", "[1, 3]") + "  check.expect_eq %a, %b : tensor<2xi32>")
    with pytest.raises(hk.EvaluationError, match=r"line 4: check\.expect_eq"):
        engine(hk.parse(module.to_text()))


PROBES = """  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %b = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xbf16>
  %0 = interpreter.probe %a, probe_id = "first" : tensor<2xi32>
  %1 = stablehlo.add %0, %0 : tensor<2xi32>
  %2 = interpreter.probe %1, probe_id = "first" : tensor<2xi32>
  %3 = interpreter.probe %b, probe_id = "other" : tensor<2xbf16>
  check.expect_serialized_eq %2, probe_id = "first", iter = 1 : tensor<2xi32>
  check.expect_serialized_eq %3, probe_id = "other" : tensor<2xbf16>"""


def test_probes_write_files(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_PROBE_DIR", str(tmp_path))
    engine(program(PROBES))
    rows = [line.split(",") for line in (tmp_path / "index.csv").read_text().splitlines()]
    assert sorted(row[:2] for row in rows) == [["first", "tensor<2xi32>"]] * 2 + [["other", "tensor<2xbf16>"]]
    values = [np.load(row[2]).tolist() for row in rows if row[0] == "first"]
    assert values == [[1, 2], [2, 4]]
    with pytest.raises(hk.EvaluationError, match=r"at \[0\], 5 \(actual\), 1 \(expected\)"):
        engine(program('  %a = stablehlo.constant dense<5> : tensor<2xi32>\n'
                       '  check.expect_serialized_eq %a, probe_id = "first" : tensor<2xi32>'))  # fmt: skip
    with pytest.raises(hk.EvaluationError, match="no probe 'none'"):
        engine(program('  %a = stablehlo.constant dense<5> : tensor<2xi32>\n'
                       '  check.expect_serialized_eq %a, probe_id = "none" : tensor<2xi32>'))  # fmt: skip


def test_probes_are_kept_for_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOKIT_PROBE_DIR", raising=False)
    for first in (1, 7):  # each run sees its own probes
        assert engine(program(PROBES.replace("dense<[1, 2]>", f"dense<[{first}, 2]>"))) == ()
    with pytest.raises(hk.EvaluationError, match="no probe 'first' of iteration 2 in this run"):
        engine(program(PROBES.replace("iter = 1", "iter = 2")))


def test_prints(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine(
        program("  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n  %1 = interpreter.print %a : tensor<2xi32>")
    )
    assert capsys.readouterr().out == "%a = tensor<2xi32>\n[1 2]\n"


GRID = """module {
  func.func @sum(%x: tensor<2xi64>) -> tensor<2xi64> {
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        %1 = stablehlo.add %a, %b : tensor<i64>
        stablehlo.return %1 : tensor<i64>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, CHANNEL} : (tensor<2xi64>) -> tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %b = stablehlo.constant dense<[10, 20]> : tensor<2xi64>
    %r:2 = "interpreter.run_parallel"(%a, %b) {programs = PROGRAMS} : (tensor<2xi64>, tensor<2xi64>) -> (tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %r#0, dense<[11, 22]> : tensor<2xi64>
    check.expect_eq_const %r#1, dense<[11, 22]> : tensor<2xi64>
    func.return
  }
}"""


@pytest.mark.parametrize(
    ("programs", "channel"),
    [
        ("[[@sum], [@sum]]", "channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>"),
        ("[[@sum, @sum]]", "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids"),
    ],
)
def test_grids_of_processes(engine: Engine, programs: str, channel: str) -> None:
    module = hk.parse(GRID.replace("PROGRAMS", programs).replace("CHANNEL", channel))
    hk.verify(module)
    assert engine(module) == ()
    wrong = GRID.replace("PROGRAMS", programs).replace("CHANNEL", channel).replace("stablehlo.add", "stablehlo.maximum")
    with pytest.raises(hk.EvaluationError, match=r"line 14: check\.expect_eq: at \[0\], 10"):
        engine(hk.parse(wrong))


def test_processes_have_one_infeed(engine: Engine) -> None:
    text = """module {
  func.func @one() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<1> : tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @two() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<2> : tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @reads(%t: !stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>) {
    %0:2 = "stablehlo.infeed"(%t) <{infeed_config = "", layout = [[0]]}> : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %1:2 = "stablehlo.infeed"(%0#1) <{infeed_config = "", layout = [[0]]}> : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    return %0#0, %1#0 : tensor<2xi64>, tensor<2xi64>
  }
  func.func @main() {
    %t = stablehlo.after_all : !stablehlo.token
    %r:2 = "interpreter.run_parallel"(%t) {infeed = [@one, @two], programs = [[@reads]]} : (!stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>)
    check.expect_eq_const %r#0, dense<1> : tensor<2xi64>
    check.expect_eq_const %r#1, dense<2> : tensor<2xi64>
    func.return
  }
}"""
    assert engine(hk.parse(text)) == ()


@pytest.mark.parametrize("programs", ["[[@send], [@recv]]", "[[@recv], [@send]]"])
def test_processes_receive_what_others_send_to_the_host(engine: Engine, programs: str) -> None:
    sender = "r#0" if "[[@send]" in programs else "r#1"
    text = f"""module {{
  func.func @send(%t: !stablehlo.token) -> !stablehlo.token {{
    %0 = stablehlo.constant dense<[5, 6]> : tensor<2xi64>
    %1 = "stablehlo.send"(%0, %t) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    return %1 : !stablehlo.token
  }}
  func.func @recv(%t: !stablehlo.token) -> tensor<2xi64> {{
    %0:2 = "stablehlo.recv"(%t) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true}} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    return %0#0 : tensor<2xi64>
  }}
  func.func @main() {{
    %t = stablehlo.after_all : !stablehlo.token
    %r:2 = "interpreter.run_parallel"(%t, %t) {{programs = {programs}}} : (!stablehlo.token, !stablehlo.token) -> ({"!stablehlo.token, tensor<2xi64>" if sender == "r#0" else "tensor<2xi64>, !stablehlo.token"})
    check.expect_eq_const %{"r#1" if sender == "r#0" else "r#0"}, dense<[5, 6]> : tensor<2xi64>
    func.return
  }}
}}"""
    assert engine(hk.parse(text)) == ()


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ("[]", "programs"),
        ("[[]]", "rows"),
        ("[[@sum], [@sum, @sum]]", "rows"),
        ("[[@sum], [@none]]", "@none"),
        ("[[@sum]]", "2 inputs for programs that take 1"),
        ("[[@sum], [@sum], [@sum]]", "arguments"),
    ],
)
def test_grids_that_are_none(programs: str, message: str) -> None:
    channel = "channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>"
    with pytest.raises((hk.ParseError, hk.ArgumentError), match=message):
        hk.parse(GRID.replace("PROGRAMS", programs).replace("CHANNEL", channel))


def test_run_of_a_file_of_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = "func.func @{0}() {{\n  %a = stablehlo.constant dense<{1}> : tensor<i32>\n  check.expect_eq_const %a, dense<1> : tensor<i32>\n  func.return\n}}\n"
    file = tmp_path / "tests.mlir"
    file.write_text("// RUN: something\n\n// -----\n\n" + one.format("a", 1) + "\n// -----\n\n" + one.format("b", 1))
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(file)])
    file.write_text(
        file.read_text().replace(
            "dense<1> : tensor<i32>\n  check.expect_eq_const %a, dense<1>",
            "dense<2> : tensor<i32>\n  check.expect_eq_const %a, dense<2>",
            1,
        )
        + one.format("c", 3)
    )
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(file), "--backend", "cpu"])
    assert "no function is called main" in capsys.readouterr().err
    file.write_text(one.format("a", 1) + "// -----\n" + one.format("b", 4))
    with pytest.raises(SystemExit, match="1"):
        main(["run", str(file)])
    assert "line 9: check.expect_eq: 4 (actual), 1 (expected)" in capsys.readouterr().err


def test_constants_of_processes_are_whole(engine: Engine) -> None:
    """Programs of a grid are kept as text: with all elements of their constants."""
    text = """module {
  func.func @table(%i: tensor<i32>) -> tensor<1xi32> {
    %0 = stablehlo.constant dense<[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]> : tensor<16xi32>
    %1 = stablehlo.dynamic_slice %0, %i, sizes = [1] : (tensor<16xi32>, tensor<i32>) -> tensor<1xi32>
    return %1 : tensor<1xi32>
  }
  func.func @main() {
    %i = stablehlo.constant dense<11> : tensor<i32>
    %r = "interpreter.run_parallel"(%i) {programs = [[@table]]} : (tensor<i32>) -> tensor<1xi32>
    check.expect_eq_const %r, dense<12> : tensor<1xi32>
    func.return
  }
}"""
    assert engine(hk.parse(text)) == ()
