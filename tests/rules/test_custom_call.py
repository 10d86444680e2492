"""CCALL rules: custom-call, its registry, and the targets that come with hlokit."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.running import built, f32, from_text, value

C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
X, Y = f32(1, 2), f32([10, 20, 30], [40, 50, 60])


@pytest.fixture
def register() -> Iterator[Callable[..., str]]:
    """Registers a function under a new name, which it gives, until the test ends."""
    names: list[str] = []

    def add(function: Any, by: Callable[..., None] = hk.register_custom_call, **options: Any) -> str:
        names.append(f"test.target.{len(names)}")
        by(names[-1], function, **options)
        return names[-1]

    yield add
    for name in names:
        hk.unregister_custom_call(name)


def call(name: str, shape: hk.Shape, **options: Any) -> Callable[..., hk.XlaOp]:
    return lambda *p: hk.custom_call(p[0].builder, name, p, shape, **options)


def floats(address: int | None, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address or 0)


@rule("CCALL-1", "CCALL-2", "CCALL-3")
def test_python_function(register: Callable[..., str]) -> None:
    name = register(lambda x, y: (x.sum() + y, x > 1))
    shape = hk.Shape.tuple([hk.f32[2, 3], hk.pred[2]])
    total, large = value(call(name, shape), X, Y)
    np.testing.assert_array_equal(total, Y + 3)
    assert large.tolist() == [False, True]
    assert built(call(name, shape), hk.f32[2], hk.f32[2, 3]).program_shape.result is shape


@rule("CCALL-3", "CCALL-9")
def test_c_function(register: Callable[..., str]) -> None:
    seen: list[list[float]] = []

    def function(out: int, inputs: Any) -> None:
        x, y = floats(inputs[0], 2), floats(inputs[1], 6)
        seen.extend([list(x), list(y)])
        floats(out, 9)[0] = x[1] + y[3]

    name = register(C_FUNCTION(function), hk.register_custom_call_pointer)
    result = value(call(name, hk.f32[3, 3]), X, Y)
    assert result[0, 0] == 42
    assert seen[:2] == [[1, 2], [10, 20, 30, 40, 50, 60]]


@rule("CCALL-3")
def test_c_function_with_tuples(register: Callable[..., str]) -> None:
    def function(out: int, inputs: Any) -> None:
        pair = ctypes.cast(inputs[0], ctypes.POINTER(ctypes.c_void_p))
        results = ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))
        floats(results[0], 1)[0] = floats(pair[1], 1)[0]
        floats(results[1], 1)[0] = floats(pair[0], 1)[0]

    compiled = C_FUNCTION(function)
    name = register(ctypes.cast(compiled, ctypes.c_void_p).value, hk.register_custom_call_pointer)
    swap = call(name, hk.Shape.tuple([hk.f32[()], hk.f32[()]]))
    first, second = value(lambda x, y: swap(hk.tuple_(x.builder, [x, y])), np.float32(1), np.float32(2))
    assert (first, second) == (2, 1)


@rule("CCALL-8", "CCALL-10", "BEY-71")
def test_layouts_reach_c_functions_only(register: Callable[..., str]) -> None:
    column_major = hk.f32[2, 3].with_layout(hk.Layout((0, 1)))
    seen: list[list[float]] = []

    def function(out: int, inputs: Any) -> None:
        seen.append(list(floats(inputs[0], 6)))
        floats(out, 6)[:] = [1, 2, 3, 4, 5, 6]

    pointer = register(C_FUNCTION(function), hk.register_custom_call_pointer)
    python = register(lambda y: y)

    def with_layout(name: str) -> Callable[..., hk.XlaOp]:
        return lambda y: hk.custom_call_with_layout(y.builder, name, [y], column_major, [column_major])

    assert value(with_layout(pointer), Y).tolist() == [[1, 3, 5], [2, 4, 6]]
    assert seen[0] == [10, 40, 20, 50, 30, 60]
    np.testing.assert_array_equal(value(with_layout(python), Y), Y)


@rule("BEY-71", "HOP-38")
def test_aliased_result_starts_as_the_operand(register: Callable[..., str]) -> None:
    def increment(out: int, inputs: Any) -> None:
        floats(out, 2)[0] += 1

    name = register(C_FUNCTION(increment), hk.register_custom_call_pointer)
    assert value(call(name, hk.f32[2], output_operand_aliasing=[((), (0, ()))]), X).tolist() == [2, 2]
    assert X.tolist() == [1, 2]


@rule("CCALL-4")
def test_unknown_target_is_named() -> None:
    module = built(call("no.such.target", hk.f32[2]), hk.f32[2])
    with pytest.raises(hk.UnsupportedError, match=r"no\.such\.target.*\[CCALL-4\]"):
        hk.evaluate(module, X)
    with rejects("CCALL-4"):
        hk.unregister_custom_call("no.such.target")


@rule("CCALL-5")
def test_reserved_names() -> None:
    with rejects("CCALL-5"):
        built(call("$mine", hk.f32[2]), hk.f32[2])
    with rejects("CCALL-5"):
        hk.register_custom_call("$mine", abs)
    with rejects("CCALL-5"):
        hk.parse('HloModule t\nENTRY e { ROOT c = f32[2] custom-call(), custom_call_target="$mine" }')


@rule("CCALL-6")
@pytest.mark.parametrize(
    "result",
    [f32(1, 2, 3), np.array([1, 2]), 1.0, (f32(1, 2),), None, "text", [f32(1, 2), f32(1, 2)]],
    ids=["dimensions", "element type", "scalar", "tuple", "nothing", "text", "list of two"],
)
def test_results_are_checked(register: Callable[..., str], result: Any) -> None:
    name = register(lambda x: result)
    with pytest.raises(hk.EvaluationError, match=rf"{name}.*\[CCALL-6\]"):
        hk.evaluate(built(call(name, hk.f32[2]), hk.f32[2]), X)


@rule("CCALL-6")
def test_tuple_results_are_checked(register: Callable[..., str]) -> None:
    for result in (f32(1, 2), (f32(1, 2),), (f32(1, 2), f32(1))):
        name = register(lambda x, r=result: r)
        with rejects("CCALL-6"):
            hk.evaluate(built(call(name, hk.Shape.tuple([hk.f32[2], hk.f32[2]])), hk.f32[2]), X)


@rule("CCALL-7")
def test_unused_calls_go_unless_they_have_a_side_effect(register: Callable[..., str]) -> None:
    count: list[int] = []
    name = register(lambda x: count.append(1) or x)
    for has_side_effect in (False, True):

        def unused(x: hk.XlaOp, effect: bool = has_side_effect) -> hk.XlaOp:
            call(name, hk.f32[2], has_side_effect=effect)(x)
            return hk.neg(x)

        module = built(unused, hk.f32[2])
        module.entry.remove_dead()
        assert ("custom-call" in str(module)) == has_side_effect
        hk.evaluate(module, X)
    assert count == [1]


@rule("CCALL-2")
def test_operands_cannot_be_written_and_errors_are_told(register: Callable[..., str]) -> None:
    name = register(lambda x: np.add(x, 1, out=x))
    module = built(call(name, hk.f32[2]), hk.f32[2])
    with pytest.raises(hk.EvaluationError, match=r"ValueError.*\[CCALL-2\]"):
        hk.evaluate(module, X)
    with rejects("CCALL-2"):
        hk.register_custom_call(name, abs)
    hk.register_custom_call(name, lambda x: x, replace=True)
    np.testing.assert_array_equal(hk.evaluate(module, X), X)


@rule("CCALL-2")
@pytest.mark.parametrize("whole_call", [False, True])
def test_what_a_target_raises_names_the_call_and_is_the_cause(register: Callable[..., str], whole_call: bool) -> None:
    name = register(lambda *given: {}["missing"], whole_call=whole_call)
    with pytest.raises(hk.EvaluationError, match=rf"custom-call\S*: .*'{name}' raised KeyError.*\[CCALL-2\]") as caught:
        value(call(name, hk.f32[2]), X)
    assert isinstance(caught.value.__cause__, KeyError)


@rule("CCALL-2")
def test_built_in_targets_on_wrong_operands_are_told() -> None:
    with pytest.raises(hk.EvaluationError, match=r"'check.expect_eq' raised ValueError.*\[CCALL-2\]"):
        value(call("check.expect_eq", hk.Shape.tuple([])), X, X, X)
    with rejects("BEY-80"):
        value(call("Qr", hk.Shape.tuple([hk.f32[2], hk.f32[2]])), X, X)


@rule("CCALL-2")
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_target_called_for_each_element_sees_arrays(register: Callable[..., str], dtype: Any) -> None:
    name = register(lambda x: x + x)
    scalar = hk.dtype(dtype)[()]
    twice = lambda x: hk.custom_call(x.builder, name, [x], scalar)  # noqa: E731
    x = np.array([1, 2, 3], dtype)
    np.testing.assert_array_equal(value(lambda x: hk.map([x], twice, [0]), x), x + x)
    total = value(lambda x: hk.reduce(x, 0.0, lambda a, b: a + twice(b), [0]), x)
    np.testing.assert_array_equal(total, np.array(12, dtype))


@rule("CCALL-2")
def test_registry_takes_threads() -> None:
    def churn(number: int) -> None:
        for i in range(50):
            hk.register_custom_call(f"test.thread.{number}.{i}", abs)
            hk.unregister_custom_call(f"test.thread.{number}.{i}")

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with rejects("CCALL-4"):
        hk.unregister_custom_call("test.thread.0.0")


@rule("CCALL-8", "HOP-39")
@pytest.mark.parametrize("layouts", [[], [hk.f32[2], hk.f32[2]], [hk.f32[3]], [hk.f64[2]]])
def test_one_layout_for_each_operand(layouts: list[hk.Shape]) -> None:
    with rejects("CCALL-8"):
        built(lambda x: hk.custom_call_with_layout(x.builder, "f", [x], hk.f32[2], layouts), hk.f32[2])
    listed = ", ".join(shape.to_text() for shape in layouts)
    with rejects("HOP-39"):
        hk.parse(
            "HloModule t\nENTRY e { x = f32[2] parameter(0) "
            f'ROOT c = f32[2] custom-call(x), custom_call_target="f", operand_layout_constraints={{{listed}}} }}'
        )


@rule("CCALL-10", "BEY-71")
def test_computations_and_opaque_reach_the_function(register: Callable[..., str]) -> None:
    def apply(invocation: hk.Invocation) -> Any:
        (doubled,) = invocation.computations
        assert invocation.shape is hk.f32[2]
        return doubled(*invocation.operands) * np.float32(invocation.opaque)

    name = register(apply, whole_call=True)

    def twice(x: hk.XlaOp) -> hk.XlaOp:
        return hk.add(x, x)

    def program(x: hk.XlaOp) -> hk.XlaOp:
        return hk.custom_call_with_computation(x.builder, name, [x], twice, hk.f32[2], "10")

    assert value(program, X).tolist() == [20, 40]
    same = hk.f32[2]

    def both(x: hk.XlaOp) -> hk.XlaOp:
        return hk.custom_call_with_computation_and_layouts(x.builder, name, [x], twice, same, [same], "3")

    assert value(both, X).tolist() == [6, 12]


@rule("CCALL-10", "BEY-71")
def test_called_computation_stands_in_for_an_unknown_target() -> None:
    def program(x: hk.XlaOp) -> hk.XlaOp:
        return hk.custom_call_with_computation(x.builder, "no.such.target", [x], lambda p: hk.neg(p), hk.f32[2])

    assert value(program, X).tolist() == [-1, -2]

    def misfit(x: hk.XlaOp) -> hk.XlaOp:
        return hk.custom_call_with_computation(x.builder, "no.such.target", [x], lambda p: hk.neg(p), hk.f32[3])

    with rejects("CCALL-4"):
        hk.evaluate(built(misfit, hk.f32[2]), X)


@rule("CCALL-10", "BEY-71", "HOP-38")
def test_convolution_numbers_and_text(register: Callable[..., str]) -> None:
    name = register(lambda call: f32(call.op.feature_group_count, call.op.window.dimensions[0].size), whole_call=True)

    def program(x: hk.XlaOp) -> hk.XlaOp:
        return hk.custom_call_with_conv_dnums(
            x.builder,
            name,
            [x],
            hk.f32[2],
            window=hk.Window.make([3]),
            dimension_numbers=hk.ConvolutionDimensionNumbers.default(1),
            feature_group_count=2,
            padding_type="PADDING_SAME",
            literal=np.array([1, 2], np.int32),
            schedule="SCHEDULE_LATEST",
            has_side_effect=True,
        )

    assert value(program, f32(0)).tolist() == [2, 3]
    line = str(built(program, hk.f32[1]).entry.root)
    order = ["window={size=3}", "dim_labels=bf0_oi0->bf0", "feature_group_count=2", "padding_type=PADDING_SAME"]
    order += [f'custom_call_target="{name}"', "custom_call_has_side_effect=true", "literal=s32[2]{0} {1, 2}"]
    order += ["schedule=SCHEDULE_LATEST"]
    positions = [line.index(part) for part in order]
    assert positions == sorted(positions)
    assert "api_version" not in line and "batch_group_count" not in line


@rule("HOP-38")
def test_aliasing_must_fit() -> None:
    body = """HloModule t
    ENTRY e {{ x = f32[2] parameter(0)
      ROOT c = f32[2] custom-call(x), custom_call_target="f", output_to_operand_aliasing={{{{{}}}: ({}, {{}})}} }}"""
    assert "output_to_operand_aliasing={{}: (0, {})}" in str(hk.parse(body.format("", 0)))
    for output, operand in (("", 1), ("1", 0)):
        with rejects("HOP-38"):
            hk.parse(body.format(output, operand))
    with rejects("HOP-38"):
        hk.parse(body.format("", 0).replace("ROOT c = f32[2]", "ROOT c = f32[3]"))
    with rejects("HINST-6"):
        hk.parse(body.format("", 0).replace(', custom_call_target="f"', ""))


@rule("HOP-38")
def test_to_apply_is_read_as_called_computations() -> None:
    text = """HloModule t
    f { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }
    ENTRY e { x = f32[2] parameter(0) ROOT c = f32[2] custom-call(x), custom_call_target="unknown", to_apply=f }"""
    module = hk.parse(text)
    assert "called_computations={%f}" in str(module) or "called_computations={f}" in str(module)
    assert hk.evaluate(module, X).tolist() == [-1, -2]


# -- targets that come with hlokit


@rule("BEY-72")
@pytest.mark.parametrize("name", ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint"])
def test_marks_are_identities_on_one_device(name: str) -> None:
    np.testing.assert_array_equal(value(call(name, hk.f32[2]), X), X)
    with pytest.raises(hk.UnsupportedError, match=name):
        hk.evaluate(built(call(name, hk.f32[1]), hk.f32[2]), X)


@rule("CCALL-2")
def test_halves_of_wide_integers() -> None:
    wide = np.array([-2, 2**40 + 5], np.int64)

    def program(x: hk.XlaOp) -> hk.XlaOp:
        low, high = (call(f"X64Split{half}", hk.u32[2])(x) for half in ("Low", "High"))
        return call("X64Combine", hk.s64[2])(low, high)

    np.testing.assert_array_equal(value(program, wide), wide)


@rule("BEY-28")
def test_exported_dynamic_shapes() -> None:
    sizes = np.array([2, 3], np.int32)
    spread = value(call("mhlo.dynamic_broadcast_in_dim", hk.f32[2, 3], opaque="{broadcast_dimensions=[0]}"), X, sizes)
    assert spread.tolist() == [[1, 1, 1], [2, 2, 2]]
    flat = value(call("mhlo.dynamic_reshape", hk.f32[3, 2]), Y, np.array([3, 2], np.int32))
    assert flat.tolist() == Y.reshape(3, 2).tolist()


@rule("BEY-38", "BEY-80")
def test_selections() -> None:
    x = f32([3, 1, 2], [1, 5, 4])
    result = hk.Shape.tuple([hk.f32[2, 2], hk.s32[2, 2]])
    values, indices = value(call("TopK", result), x)
    assert values.tolist() == [[3, 2], [5, 4]] and indices.tolist() == [[0, 2], [1, 2]]

    comparator = hk.create_scalar_lt_computation([hk.f32, hk.s32])

    def partial(p: hk.XlaOp) -> hk.XlaOp:
        operands = [p, p.builder.iota(hk.s32[2, 3], 1), 0.0, 0]
        opaque = json.dumps({"reduction_dim": 1})
        return hk.custom_call_with_computation(p.builder, "PartialReduce", operands, comparator, result, opaque)

    values, indices = value(partial, x)
    assert values.tolist() == [[1, 2], [1, 4]] and indices.tolist() == [[1, 2], [0, 2]]
    with rejects("BEY-80"):
        from_text(
            "ENTRY e { x = f32[3] parameter(0) z = f32[] constant(0) "
            'ROOT r = f32[2] custom-call(x, z), custom_call_target="ApproxTopK" }',
            x[0],
        )


@rule("BEY-46")
@pytest.mark.parametrize("same", [True, False])
def test_dynamic_convolutions_equal_those_of_the_run_time_size(same: bool) -> None:
    """Forward with stride 2 and its two gradients, which must satisfy <conv(x, k), g> == <x, dx> == <k, dk>."""
    random = np.random.default_rng(5)
    size, bound, taps, stride = 6, 9, 3, 2
    x = random.integers(-3, 4, (1, 1, bound)).astype(np.float32)
    k = random.integers(-3, 4, (1, 1, taps)).astype(np.float32)
    kind = "PADDING_SAME" if same else "PADDING_VALID"
    padding = [(0, 1)] if same else [(0, 0)]
    numbers = hk.ConvolutionDimensionNumbers.default(1)

    def cut(p: hk.XlaOp) -> hk.XlaOp:
        return hk.set_dimension_size(p, np.int32(size), 2)

    def forward(p: hk.XlaOp, q: hk.XlaOp) -> hk.XlaOp:
        return hk.dynamic_conv_forward(cut(p), q, [stride], padding, [1], [1], numbers, padding_type=kind)

    y = value(forward, x, k)
    expected = hk.evaluate(
        built(
            lambda p, q: hk.conv_general_dilated(p, q, [stride], padding, [1], [1], numbers),
            hk.f32[1, 1, size],
            hk.f32[1, 1, taps],
        ),
        x[..., :size],
        k,
    )
    np.testing.assert_array_equal(y, expected)
    g = random.integers(-3, 4, y.shape).astype(np.float32)
    spread = (y.shape[2] - 1) * stride + 1

    def input_gradient(p: hk.XlaOp, q: hk.XlaOp) -> hk.XlaOp:
        flipped, sizes = hk.rev(q, [2]), p.builder.constant(np.array([1, 1, size], np.int32))
        ends = [(taps - 1, size - spread)]
        return hk.dynamic_conv_input_grad(sizes, p, flipped, [1], ends, [stride], [1], numbers, padding_type=kind)

    dx = value(input_gradient, g, k)
    assert np.sum(dx * x[..., :size]) == np.sum(y * g)

    def kernel_gradient(p: hk.XlaOp, q: hk.XlaOp) -> hk.XlaOp:
        ends = [(0, taps - 1 + spread - size)]
        return hk.dynamic_conv_kernel_grad(p, q, [1], ends, [1], [stride], numbers, padding_type=kind)

    dk = value(kernel_gradient, x[..., :size], g)
    assert np.sum(dk * k) == np.sum(y * g)


def test_control_dep_only_orders() -> None:
    """JAX's schedule(): two operands, no result, and the values are what they are without it."""
    module = hk.parse("""HloModule m
ENTRY e { x = f32[2] parameter(0) a = f32[2] sine(x) b = f32[2] cosine(x)
 d = () custom-call(b, a), custom_call_target="control_dep", custom_call_has_side_effect=true
 ROOT s = f32[2] add(a, b) }""")
    x = np.array([0.5, 1.0], np.float32)
    np.testing.assert_allclose(hk.evaluate(module, x), np.sin(x) + np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(hk.compile(module)(x), np.sin(x) + np.cos(x), rtol=1e-6)


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(hk.BuildError, match="custom-call target 'x': 3 is not a function"):
        hk.register_custom_call("x", 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(hk.BuildError, match="custom-call target 'x': 'a' is not the address of a function"):
        hk.register_custom_call_pointer("x", "a")


def test_ends_of_regions_with_several_values() -> None:
    """On one device they give all of their operands, of which each has its own shape."""
    b = hk.Builder()
    x, y = b.parameter(0, hk.f32[8]), b.parameter(1, hk.s32[2])
    target = "xla.sdy.GlobalToLocalShape"
    same = b.build(hk.custom_call(b, target, [x, y], hk.Shape.tuple([hk.f32[8], hk.s32[2]])))
    given = np.ones(8, np.float32), np.ones(2, np.int32)
    for run in (hk.evaluate, lambda module, *values: hk.compile(module)(*values)):
        for one, other in zip(run(same, *given), given, strict=True):
            np.testing.assert_array_equal(one, other)
    b = hk.Builder()
    x, y = b.parameter(0, hk.f32[8]), b.parameter(1, hk.s32[2])
    cut = b.build(hk.custom_call(b, target, [x, y], hk.Shape.tuple([hk.f32[4], hk.s32[2]])))
    with pytest.raises(hk.UnsupportedError, match=r"\[8\] to f32\[4\] among several partitions"):
        hk.evaluate(cut, *given)


LOOP_OF_A_BUFFER = """HloModule m
body { t = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  b = b(f32[4]) get-tuple-element(t), index=1
  x = f32[4] custom-call(b), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
  y = f32[4] add(x, x)
  c = b(f32[4]) custom-call(y), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], b(f32[4])) tuple(j, c) }
condition { t = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[4] parameter(0)
  b = b(f32[4]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  new = b(f32[4]) custom-call(), custom_call_target="CreateBuffer"
  zeros = f32[4] custom-call(new), custom_call_target="Unpin"
  z = s32[] constant(0)
  t = (s32[], b(f32[4])) tuple(z, b)
  w = (s32[], b(f32[4])) while(t), condition=condition, body=body
  c = b(f32[4]) get-tuple-element(w), index=1
  y = f32[4] custom-call(c), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
  ROOT r = f32[4] add(y, zeros) }"""


@rule("CCALL-11", "CCALL-12", "HOP-38")
@pytest.mark.parametrize(
    "run",
    [
        hk.evaluate,
        lambda m, x: hk.evaluate(hk.optimize(m), x),
        lambda m, x: hk.evaluate(hk.optimize(m, ["buffer-removal"]), x),
        lambda m, x: hk.evaluate(hk.parse(hk.to_stablehlo(m)), x),
        lambda m, x: hk.compile(m)(x),
        lambda m, x: hk.compile(m, strict=True)(x),
    ],
)
def test_buffers_hold_the_values_of_arrays(run: Callable[[hk.HloModule, Any], Any]) -> None:
    module = hk.parse(LOOP_OF_A_BUFFER)
    assert str(hk.parse(str(module))) == str(module)
    assert run(module, np.float32([1, 2, 3, 4])).tolist() == [8, 16, 24, 32]


def test_a_custom_call_takes_and_gives_buffers(register: Callable[..., str]) -> None:
    name = register(lambda b, x: (b + x, x))
    text = f"""ENTRY e {{ x = f32[4] parameter(0)
      b = b(f32[4]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{{{}}: (0, {{}})}}
      c = (b(f32[4]), f32[4]) custom-call(b, x), custom_call_target="{name}", output_to_operand_aliasing={{{{0}}: (0, {{}})}}
      d = b(f32[4]) get-tuple-element(c), index=0
      ROOT y = f32[4] custom-call(d), custom_call_target="Unpin", output_to_operand_aliasing={{{{}}: (0, {{}})}} }}"""
    module, x = hk.parse(text), np.float32([1, 2, 3, 4])
    assert hk.evaluate(module, x).tolist() == hk.compile(module)(x).tolist() == [2, 4, 6, 8]


@rule("CCALL-13")
@pytest.mark.parametrize(
    ("body", "label"),
    [
        ('ROOT r = b(f32[5]) custom-call(x), custom_call_target="Pin"', "CCALL-13"),
        ('ROOT r = f32[4] custom-call(x), custom_call_target="Pin"', "CCALL-13"),
        ('ROOT r = b(f32[4]) custom-call(x, x), custom_call_target="Pin"', "CCALL-13"),
        ('ROOT r = f32[4] custom-call(x), custom_call_target="Unpin"', "CCALL-13"),
        ('ROOT r = f32[4] custom-call(), custom_call_target="CreateBuffer"', "CCALL-13"),
        ('ROOT r = b(f32[4]) custom-call(x), custom_call_target="CreateBuffer"', "CCALL-13"),
    ],
)
def test_wrong_buffers(body: str, label: str) -> None:
    text = f"ENTRY e {{ x = f32[4] parameter(0)\n {body} }}"
    with pytest.raises(hk.ParseError, match=label):
        hk.parse(text)
    with pytest.raises(hk.VerifyError, match=label):
        hk.verify(hk.parse(text, verify=False))


@rule("CCALL-14")
@pytest.mark.parametrize(
    "body",
    [
        'ROOT r = b(f32[4]) custom-call(x), custom_call_target="Pin"',
        'b = (b(f32[4]), f32[4]) parameter(1)\n ROOT r = f32[4] get-tuple-element(b), index=1',
    ],
)
@pytest.mark.parametrize("run", [hk.evaluate, lambda m, *a: hk.compile(m)(*a)])
def test_arguments_and_results_are_not_buffers(run: Callable[..., Any], body: str) -> None:
    module = hk.parse(f"ENTRY e {{ x = f32[4] parameter(0)\n {body} }}")
    with pytest.raises(hk.UnsupportedError, match="CCALL-14"):
        run(module, np.zeros(4, np.float32), (np.zeros(4, np.float32),) * 2)


def test_jax_writes_pinned_arrays_as_memrefs() -> None:
    text = """func.func public @main(%x: tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>> {
      %0 = stablehlo.custom_call @Pin(%x) {api_version = 2 : i32} : (tensor<3xcomplex<f32>>) -> memref<3xcomplex<f32>, 1 : i32>
      %1 = stablehlo.custom_call @Unpin(%0) {api_version = 2 : i32} : (memref<3xcomplex<f32>, 1 : i32>) -> tensor<3xcomplex<f32>>
      return %1 : tensor<3xcomplex<f32>>
    }"""
    module = hk.parse(text)
    assert str(module.entry.instructions[1].shape) == "b(c64[3])" and "aliasing={{}: (0, {})}" in str(module)
    assert hk.compile(module)(np.complex64([1, 2j, 3])).tolist() == [1, 2j, 3]
