"""Sizes that the text leaves open: known from the arguments' shapes, and from what the program computes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.tools.main import main
from tests.stablehlo.record_dynamic import INDICES, PATH, X

PROGRAMS = [json.loads(line) for line in gzip.decompress(PATH.read_bytes()).splitlines()]


def arguments_of(program: dict[str, Any]) -> list[Any]:
    return [INDICES if len(sizes) == 1 else X[: sizes[0]] for sizes in program["arguments"]]


def shapes_of(arguments: list[Any]) -> list[hk.Shape]:
    return [hk.f32[a.shape] if a.dtype == np.float32 else hk.s32[a.shape] for a in arguments]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p["name"])
def test_exports_with_symbolic_sizes(program: dict[str, Any]) -> None:
    arguments = arguments_of(program)
    module = hk.parse(program["text"], arguments=shapes_of(arguments))
    hk.verify(module)
    assert "?" not in str(module.program_shape)
    result = hk.evaluate(module, *arguments)
    parts = result if isinstance(result, tuple) else (result,)
    for part, expected in zip(parts, program["results"], strict=True):
        np.testing.assert_allclose(part, expected, rtol=2e-5, atol=2e-5)


def test_other_sizes_make_another_module() -> None:
    program = next(p for p in PROGRAMS if p["name"] == "products")
    for rows in (1, 3):
        module = hk.parse(program["text"], arguments=[hk.f32[rows, 4]])
        expected = (X[:rows] @ X[:rows].T).reshape(-1) * rows
        np.testing.assert_allclose(hk.evaluate(module, X[:rows]), expected)


def test_assertions_about_sizes_say_what_does_not_hold() -> None:
    program = next(p for p in PROGRAMS if p["name"] == "multiple")
    with pytest.raises(hk.ArgumentError, match=r"line \d+: .*Input shapes do not match"):
        hk.parse(program["text"], arguments=[hk.f32[5, 4]])


ADD = """func.func @main(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}"""


def test_shapes_have_to_be_given_and_to_fit() -> None:
    with pytest.raises(hk.UnsupportedError, match=r"argument 0 \(%x\), f32\[\?,3\]"):
        hk.parse(ADD)
    for shapes in ([hk.f32[2, 3]], [hk.f32[2, 4], hk.f32[2, 3]], [hk.s32[2, 3], hk.f32[2, 3]], [hk.f32[6], hk.f32[6]]):
        with pytest.raises(hk.ArgumentError):
            hk.parse(ADD, arguments=shapes)
    with pytest.raises(hk.ParseError, match=r"stablehlo\.add"):
        hk.parse(ADD, arguments=[hk.f32[2, 3], hk.f32[4, 3]])


def test_modules_of_known_sizes_check_the_shapes() -> None:
    text = "HloModule m\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n"
    assert hk.parse(text, arguments=[hk.f32[2]]).name == "m"
    with pytest.raises(hk.ArgumentError, match="takes"):
        hk.parse(text, arguments=[hk.f32[3]])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%0 = stablehlo.dynamic_iota %x, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>", "dynamic_iota: sizes"),
        (
            "%i = stablehlo.iota dim = 0 : tensor<4xf32>\n"
            "  %0 = stablehlo.real_dynamic_slice %i, %x, %x, %x : "
            "(tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>",
            "real_dynamic_slice: strides",
        ),
    ],
)
def test_sizes_that_only_running_knows(body: str, message: str) -> None:
    text = f"func.func @main(%x: tensor<1xi32>) -> tensor<?xf32> {{\n  {body}\n  return %0 : tensor<?xf32>\n}}"
    with pytest.raises(hk.UnsupportedError, match=message):
        hk.parse(text)


def test_functions_for_ever_more_sizes_end() -> None:
    """f0 calls f1 for two sizes, f1 calls f2 for two of each, and so on: 2^40 functions."""
    functions = [
        f"""func.func private @f{i}(%n: tensor<i32>) -> tensor<i32> {{
  %two = stablehlo.constant dense<2> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.multiply %n, %two : tensor<i32>
  %1 = stablehlo.add %0, %one : tensor<i32>
  %2 = call @f{i + 1}(%0) : (tensor<i32>) -> tensor<i32>
  %3 = call @f{i + 1}(%1) : (tensor<i32>) -> tensor<i32>
  return %3 : tensor<i32>
}}"""
        for i in range(40)
    ]
    last = "func.func private @f40(%n: tensor<i32>) -> tensor<i32> { return %n : tensor<i32> }"
    main_ = """func.func @main(%x: tensor<?xf32>) -> tensor<i32> {
  %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %1 = call @f0(%0) : (tensor<i32>) -> tensor<i32>
  return %1 : tensor<i32>
}"""
    with pytest.raises(hk.UnsupportedError, match="functions"):
        hk.parse("\n".join([main_, *functions, last]), arguments=[hk.f32[3]])


def test_run_takes_the_sizes_of_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, inputs = tmp_path / "add.mlir", tmp_path / "in.npz"
    file.write_text(ADD)
    np.savez(inputs, x=X[:2, :3], y=X[:2, :3])
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(file), "--input", str(inputs)])
    assert "f32[2,3]" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(file), "--random", "0"])
    assert "--input" in capsys.readouterr().err
