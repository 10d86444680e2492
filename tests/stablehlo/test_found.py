"""What hostile texts found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.counting import function_calls

Q = "tensor<!quant.uniform<i8:f32, 0.5:3>>"


@pytest.mark.parametrize("attributes", ["{{{0}}}", "<{{{0}}}>"])
def test_a_constant_of_another_type_than_its_value(attributes: str) -> None:
    given = attributes.format("value = dense<7> : tensor<i8>")
    text = f"func.func @main() -> {Q} {{\n  %i = stablehlo.constant() {given} : () -> {Q}\n  return %i : {Q}\n}}"
    assert hk.evaluate(hk.parse(text)) == np.int8(7)


def _axis(number: int, scales: str = "1.0, 2.0, 3.0") -> str:
    return f"!quant.uniform<i8:f32:{number}, {{{scales}}}>"


MOVES = [
    ("transpose %a, dims = [1, 0]", "3x3", _axis(1), "3x3", _axis(0), True),
    ("transpose %a, dims = [1, 0]", "3x3", _axis(1), "3x3", _axis(1), False),
    ("broadcast_in_dim %a, dims = [1]", "3", _axis(0), "3x3", _axis(1), True),
    ("broadcast_in_dim %a, dims = [1]", "3", _axis(0), "3x3", _axis(0), False),
    ("broadcast_in_dim %a, dims = [0]", "1", _axis(0, "2.0:1"), "2", _axis(0, "2.0:1, 2.0:1"), True),
    ("broadcast_in_dim %a, dims = [0]", "1", _axis(0, "2.0:1"), "2", _axis(0, "2.0:1, 3.0:1"), False),
    ("reshape %a", "2x3", _axis(1), "2x3x1", _axis(1), True),
    ("reshape %a", "3x3", _axis(0), "3x3", _axis(1), False),
    ("reverse %a, dims = [0]", "3", _axis(0), "3", _axis(0), False),
]


@pytest.mark.parametrize(("operation", "before", "element", "after", "result", "fits"), MOVES)
def test_scales_move_with_their_dimension(
    operation: str, before: str, element: str, after: str, result: str, fits: bool
) -> None:
    types = f"tensor<{before}x{element}>", f"tensor<{after}x{result}>"
    body = f"  %0 = stablehlo.{operation} : ({types[0]}) -> {types[1]}\n  return %0 : {types[1]}"
    text = f"func.func @main(%a: {types[0]}) -> {types[1]} {{\n{body}\n}}"
    if fits:
        hk.verify(hk.parse(text))
    else:
        with pytest.raises(hk.ParseError, match=r"quantised in different ways|takes one scale for all elements"):
            hk.parse(text)


def test_quantised_values_go_out_as_they_are() -> None:
    body = '%t = stablehlo.create_token : !stablehlo.token\n  %o = "stablehlo.outfeed"(%a, %t) {outfeed_config = ""} : '
    body += f"({Q}, !stablehlo.token) -> !stablehlo.token\n  return %a : {Q}"
    module = hk.parse(f"func.func @main(%a: {Q}) -> {Q} {{\n  {body}\n}}")
    _, sent = hk.evaluate(module, np.int8(7), return_outfeed=True)
    assert [np.asarray(v).dtype for v in np.atleast_1d(sent[0])] == [np.int8]


def test_more_dimensions_than_arrays_have() -> None:
    """NumPy's limit is 64: a constant was a ValueError, and so was an HLO program that runs."""
    for rank in (65, 3000):
        type = f"tensor<{'1x' * rank}i32>"
        with pytest.raises(hk.UnsupportedError, match="line 2: tensors of more than 64 dimensions"):
            hk.parse(
                f"func.func @main() -> i32 {{\n  %0 = stablehlo.constant dense<1> : {type}\n  return %0 : {type}\n}}"
            )
    shape = f"s32[{','.join('1' * 65)}]"
    module = hk.parse(f"ENTRY e {{ c = s32[] constant(3)\n ROOT b = {shape} broadcast(c), dimensions={{}} }}")
    for run in (hk.evaluate, lambda m: hk.compile(m)()):
        with pytest.raises(hk.EvaluationError, match="too large for an array"):
            run(module)


def _parameters(count: int) -> str:
    listed = ", ".join(f"%a{i}: tensor<f32>" for i in range(count))
    return f"func.func @main({listed}) -> tensor<f32> {{\n  return %a0 : tensor<f32>\n}}"


def _sizes(count: int) -> str:
    rows = [
        f"%s{i} = stablehlo.add %c, %c : tensor<1xi32>\n"
        f"%r{i} = stablehlo.dynamic_reshape %a, %s{i} : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>\n"
        for i in range(count)
    ]
    body = "%c = stablehlo.constant dense<2> : tensor<1xi32>\n" + "".join(rows)
    return f"func.func @main(%a: tensor<4xf32>) -> tensor<?xf32> {{\n{body} return %r0 : tensor<?xf32>\n}}"


def test_what_sizes_are_made_of_runs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Not what else the program does, whether that depends on arguments or not."""
    text = _sizes(1).replace(
        "%s0", "interpreter.print %a : tensor<4xf32>\ninterpreter.print %c : tensor<1xi32>\n%s0", 1
    )
    module = hk.parse(text)
    assert not capsys.readouterr().out and module.entry.root.shape.dimensions == (4,)


LONG: dict[str, Callable[[int], str]] = {"parameters": _parameters, "sizes": _sizes}


@pytest.mark.parametrize("name", LONG)
def test_work_is_linear(name: str) -> None:
    """Ten times the text is no more than some fourteen times the work."""
    short, long = (LONG[name](count) for count in (100, 1000))
    hk.parse(short)
    assert function_calls(lambda: hk.parse(long)) < 14 * function_calls(lambda: hk.parse(short))


def _captured(count: int) -> str:
    made = "".join(f"%{i} = stablehlo.add %a, %a : tensor<f32>\n" for i in range(count))
    used = "".join(f"%s{i} = stablehlo.add %a, %{i} : tensor<f32>\n" for i in range(count))
    body = f"%p = stablehlo.compare LT, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>\n{made}"
    branches = f"{{ {used} stablehlo.return %s0 : tensor<f32> }}, {{ stablehlo.return %a : tensor<f32> }}"
    body += f'%r = "stablehlo.if"(%p) ({branches}) : (tensor<i1>) -> tensor<f32>\n'
    return f"func.func @main(%a: tensor<f32>) -> tensor<f32> {{\n{body} return %r : tensor<f32>\n}}"


def test_printing_is_linear() -> None:
    """A region that uses many values of the outside."""
    short, long = (hk.parse(_captured(count)) for count in (100, 1000))
    hk.to_stablehlo(short)
    assert function_calls(lambda: hk.to_stablehlo(long)) < 14 * function_calls(lambda: hk.to_stablehlo(short))


def test_a_function_of_scalars_makes_anew_what_constants_make() -> None:
    """Arithmetic on them too; what depends on an argument is refused."""
    text = """func.func @main(%x: tensor<4xf32>, %n: tensor<f32>) -> tensor<f32> {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %four = stablehlo.constant dense<4.0> : tensor<f32>
      %share = stablehlo.divide %one, FACTOR : tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce"(%x, %zero) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.multiply %b, %share : tensor<f32>
        %d = stablehlo.add %a, %c : tensor<f32>
        stablehlo.return %d : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32>
    }"""
    assert hk.evaluate(hk.parse(text.replace("FACTOR", "%four")), [1.0, 2.0, 3.0, 4.0], 9.0) == 2.5
    with pytest.raises(hk.UnsupportedError, match="the region uses %share of the outside"):
        hk.parse(text.replace("FACTOR", "%n"))


WIDER = [
    ("bitcast_convert %x : (tensor<8xi1>) -> tensor<ui8>", [True, False, False, True, False, False, False, True], 0x89),
    ("bitcast_convert %x : (tensor<2x16xi1>) -> tensor<2xf16>", [[False] * 14 + [True, False]] * 2, [2.0, 2.0]),
    ("bitcast_convert %x : (tensor<i8>) -> tensor<8xi1>", -127, [True, *[False] * 6, True]),
    (
        "bitcast_convert %x : (tensor<2xf64>) -> tensor<2x64xi1>",
        [2.0, 0.0],
        [[False] * 62 + [True, False], [False] * 64],
    ),
    ("bitcast_convert %x : (tensor<complex<f64>>) -> tensor<2xcomplex<f32>>", 1 + 2j, [1.875j, 2j]),
    ("bitcast_convert %x : (tensor<3x2xcomplex<f32>>) -> tensor<3xcomplex<f64>>", [[1.875j, 2j]] * 3, [1 + 2j] * 3),
    ("maximum %x, %x : tensor<2xcomplex<f32>>", [1 + 2j, 0j], [1 + 2j, 0j]),
]


@pytest.mark.parametrize(("operation", "given", "expected"), WIDER, ids=[operation for operation, _, _ in WIDER])
def test_operations_that_hlo_has_for_fewer_types(operation: str, given: Any, expected: Any) -> None:
    kinds = operation.partition(" : ")[2].strip("()").partition(") -> ")
    text = f"func.func @main(%x: {kinds[0]}) -> {kinds[2] or kinds[0]} {{ %0 = stablehlo.{operation} return %0 : {kinds[2] or kinds[0]} }}"
    module = hk.parse(text)
    x = np.asarray(given, module.entry.parameters[0].shape.dtype.numpy)
    for found in (hk.evaluate(module, x), hk.compile(module)(x)):
        assert np.array_equal(found, np.asarray(expected, found.dtype))


@pytest.mark.parametrize(
    ("name", "first"), [("maximum", [7 + 1j, 1 + 7j, 2j, 0j]), ("minimum", [1 + 2j, 1 + 2j, 1j, -1j])]
)
def test_complex_numbers_are_ordered_by_their_parts(name: str, first: list[complex]) -> None:
    kind = "tensor<4xcomplex<f64>>"
    text = f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{ %0 = stablehlo.{name} %x, %y : {kind} return %0 : {kind} }}"
    module = hk.parse(text)
    x, y = np.array([1 + 2j, 1 + 7j, 1j, 0j]), np.array([7 + 1j, 1 + 2j, 2j, -1j])
    for found in (hk.evaluate(module, x, y), hk.compile(module)(x, y)):
        assert found.tolist() == first


def test_the_root_of_a_complex_number() -> None:
    kind = "tensor<2xcomplex<f64>>"
    module = hk.parse(f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.cbrt %x : {kind} return %0 : {kind} }}")
    x = np.array([3 + 4j, -8 + 0j])
    for found in (hk.evaluate(module, x), hk.compile(module)(x)):
        np.testing.assert_allclose(found, [1.6289371459221759 + 0.5201745023045458j, 1 + 3**0.5 * 1j], rtol=1e-12)
