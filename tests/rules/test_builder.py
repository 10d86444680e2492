"""BUILDER and EXEC rules: the builder's model of handles, errors and modules; what running asks of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule


def opcodes(b: hk.Builder) -> list[str]:
    return [i.opcode for i in b.computation.instructions]


@rule("BUILDER-1")
def test_ops_append_and_infer_at_once() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3])
    y = hk.transpose(x, [1, 0])
    assert opcodes(b) == ["parameter", "transpose"]
    assert y.shape.static is hk.f32[3, 2] and y.builder is b


@rule("BUILDER-2", "BEY-76", "BEY-77")
def test_first_error_is_raised_at_the_op_and_kept() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3])
    with rejects("TRANSP-3"):
        hk.transpose(x, [1, 1])
    with rejects("REV-3"):
        hk.rev(x, [7])
    assert isinstance(b.first_error, hk.ShapeError) and b.first_error.label == "TRANSP-3"
    reported = hk.Builder("t")
    reported.parameter(0, hk.f32[2])
    reported.report_error(hk.HlokitError("mine"))
    with pytest.raises(hk.HlokitError, match="mine"):
        reported.build()


def test_error_names_the_users_line() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3])
    with pytest.raises(hk.ShapeError, match=r"test_builder\.py:\d+"):
        hk.transpose(x, [1, 1])


@rule("BUILDER-3", "BUILDER-16")
def test_handles_of_other_builders_are_refused() -> None:
    x = hk.Builder("a").parameter(0, hk.f32[2])
    y = hk.Builder("b").parameter(0, hk.f32[2])
    with rejects("BUILDER-3"):
        hk.add(x, y)
    with rejects("BUILDER-3"):
        x + y
    with rejects("BUILDER-3"):
        x.builder.build(y)
    built = hk.Builder("c")
    z = built.parameter(0, hk.f32[2])
    built.build()
    with rejects("BUILDER-3"):
        hk.neg(z)
    with rejects("BUILDER-3"):
        hk.add(1.0, 2.0)  # type: ignore[arg-type]


@rule("BUILDER-16")
def test_graph_refuses_foreign_instructions() -> None:
    x = hk.Builder("a").parameter(0, hk.f32[2]).instruction
    b = hk.Builder("b")
    b.parameter(0, hk.f32[2])
    with rejects("BUILDER-16"):
        b.computation.set_root(x)


@rule("BUILDER-4")
def test_root_is_the_last_op_or_the_one_given() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    hk.neg(x)
    assert b.build().entry.root.opcode == "negate"
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    hk.neg(x)
    assert b.build(x).entry.root.opcode == "parameter"
    with rejects("BUILDER-4"):
        hk.Builder("empty").build()


@rule("BUILDER-5")
def test_parameter_numbers_have_no_holes() -> None:
    b = hk.Builder("t")
    b.parameter(1, hk.f32[2])
    with rejects("BUILDER-5"):
        b.build()
    b = hk.Builder("t")
    y = b.parameter(1, hk.s32[2], "y")
    b.parameter(0, hk.f32[2], "x")
    module = b.build(y)
    assert [p.name for p in module.entry.parameters] == ["x", "y"]
    assert hk.evaluate(module, [1.0, 2.0], [3, 4]).tolist() == [3, 4]


@rule("BUILDER-6", "BEY-20")
def test_parameter_numbers_are_unique_and_not_negative() -> None:
    b = hk.Builder("t")
    b.parameter(0, hk.f32[2])
    with rejects("BUILDER-6"):
        b.parameter(0, hk.f32[2])
    with rejects("BUILDER-6"):
        b.parameter(-1, hk.f32[2])
    with rejects("BEY-20"):
        b.parameter(1, hk.f32[2], replicated_at_leaf_buffers=[True, False])
    x = b.parameter(1, hk.Shape.tuple([hk.f32[2], hk.s32[()]]), replicated_at_leaf_buffers=[True, False])
    assert "parameter_replication={true,false}" in str(b.build(x))


@rule("BUILDER-7", "BEY-21")
@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (True, hk.pred[()]),
        (3, hk.s32[()]),
        (2.5, hk.f32[()]),
        (1j, hk.c64[()]),
        (np.int64(3), hk.s64[()]),
        (np.uint32(3), hk.u32[()]),
        (np.float64(3), hk.f64[()]),
        ([1, 2, 3], hk.s32[3]),
        ([[1.0], [2.0]], hk.f32[2, 1]),
        (np.zeros((2, 0), np.uint8), hk.u8[2, 0]),
        (np.array([1, 2], ml_dtypes.bfloat16), hk.bf16[2]),
    ],
    ids=str,
)
def test_constants_take_the_native_types(value: object, shape: hk.Shape) -> None:
    b = hk.Builder("t")
    c = b.constant(value)
    assert c.shape is shape
    np.testing.assert_array_equal(hk.evaluate(b.build()), np.asarray(value).astype(shape.dtype.numpy))


@rule("BUILDER-7", "TYPE-6")
@pytest.mark.parametrize(
    ("value", "element"),
    [(2.5, "s32"), ([1, 2.5], "s8"), (9, "s4"), (-1, "u8"), (2, "pred"), (np.nan, "s32"), (np.array([300]), "u8"),
     (np.array([2.0**31]), "s32"), (1j, "f32"), (np.array([1 + 0j]), "f64"), ("1", "s32"), (None, "s32")],
    ids=str,
)  # fmt: skip
def test_constants_that_their_type_does_not_have(value: object, element: str) -> None:
    with rejects("BUILDER-7"):
        hk.Builder("t").constant(value, hk.dtype(element))
    if isinstance(value, (int, float, complex)):
        x = hk.Builder("t").parameter(0, hk.dtype(element)[2])
        with rejects("BUILDER-7"):
            hk.eq(x, value)
        with pytest.raises(hk.ArgumentError, match="EXEC-3"):
            hk.evaluate(x.builder.build(), [value, value])


@rule("BUILDER-7")
def test_constants_of_values_that_their_type_has() -> None:
    for value, element in [(2.0, "s32"), (7, "s4"), (True, "u8"), (1, "pred"), (0.1, "bf16"), (2**53 + 1, "f64")]:
        wanted = np.asarray(value).astype(hk.dtype(element).numpy)
        got = hk.evaluate(hk.Builder("t").constant(value, hk.dtype(element)).builder.build())
        assert got.dtype == wanted.dtype and got == wanted
    swapped = np.array([1.0, -2.0], ">f4")
    b = hk.Builder("t")
    bits = hk.bitcast_convert_type(b.constant(swapped) + b.parameter(0, hk.f32[2]), hk.u32)
    assert hk.evaluate(b.build(bits), swapped * 0).tolist() == [0x3F800000, 0xC0000000]


@rule("BUILDER-7", "BEY-21")
def test_constants_by_rank() -> None:
    b = hk.Builder("t")
    assert b.constant_r0(1).shape is hk.s32[()]
    assert b.constant_r1([1.0, 2.0]).shape is hk.f32[2]
    assert b.constant_r1(4, 7).shape is hk.s32[4]
    assert b.constant_r2([[1, 2], [3, 4]], hk.u8).shape is hk.u8[2, 2]
    assert b.constant_literal(hk.Literal.of([1.0, 2.0])).shape is hk.f32[2]
    column_major = hk.parse_shape("f32[2,2]{0,1}")
    assert b.constant_from_array([[1, 2], [3, 4]], column_major).shape is column_major
    with rejects("BUILDER-7"):
        b.constant_r0([1, 2])
    with rejects("BUILDER-7"):
        b.constant([1, 2, 3], shape=hk.f32[2])


@rule("BUILDER-8")
def test_equal_elements_become_a_broadcast() -> None:
    b = hk.Builder("t")
    c = b.constant(np.full((2, 3), 4.0, np.float32))
    assert opcodes(b) == ["constant", "broadcast"]
    assert hk.evaluate(b.build(c)).tolist() == [[4.0] * 3] * 2
    b = hk.Builder("t")
    b.constant(np.float32([0.0, -0.0]))  # equal by ==, not by bits
    assert opcodes(b) == ["constant"]
    assert np.signbit(hk.evaluate(b.build())).tolist() == [False, True]


@rule("BUILDER-9", "BEY-75")
def test_shapes_of_handles_and_programs() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3], "x")
    y = hk.neg(x)
    assert b.get_shape(y) is hk.f32[2, 3]
    assert str(b.get_program_shape()) == "(x: f32[2,3]) -> f32[2,3]"
    assert str(b.get_program_shape(x)) == "(x: f32[2,3]) -> f32[2,3]"
    assert str(b.build(y).program_shape) == "(x: f32[2,3]) -> f32[2,3]"


@rule("BUILDER-10")
@pytest.mark.parametrize(
    ("function", "said"),
    [
        pytest.param(lambda a: a, r"takes 1 .*; its arguments are handles of \(f32\[\], f32\[\]\)", id="too few"),
        pytest.param(lambda a, b, c: a, r"missing 1 .*'c'; its arguments are handles", id="too many"),
        pytest.param(lambda a, b: None, r"<lambda> gave None, not a handle", id="None"),
        pytest.param(lambda a, b: "a", r"<lambda> gave 'a', not a handle", id="text"),
        pytest.param("add", r"expected a computation or a Python function, got 'add'", id="no function"),
    ],
)
def test_python_functions_that_are_no_computation(function: Any, said: str) -> None:
    x = hk.Builder("t").parameter(0, hk.f32[2])
    with pytest.raises(hk.BuildError, match=said + r".*\[BUILDER-10\]"):
        hk.reduce(x, 0.0, function, [0])


@rule("BUILDER-10")
def test_a_type_error_inside_a_function_stays_one() -> None:
    x = hk.Builder("t").parameter(0, hk.f32[2])
    with pytest.raises(TypeError, match="unsupported operand"):
        hk.map([x], lambda a: None + 1, [0])  # type: ignore[operator]


def test_mistakes_at_first_use_are_named() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3])
    with pytest.raises(TypeError, match=r"is not a tuple: parts of arrays are hk.slice"):
        x[0]
    with pytest.raises(hk.BuildError, match=r"einsum\(x, y, einsum_config\)"):
        hk.einsum("ij,ij->i", x, x)  # type: ignore[arg-type]
    with pytest.raises(hk.BuildError, match=r"handle of a builder.*BUILDER-3"):
        hk.while_(lambda i: i < 3, lambda i: i + 1, 0)  # type: ignore[arg-type]
    with pytest.raises(hk.BuildError, match=r"handle of a builder.*BUILDER-3"):
        hk.conditional(True, 1.0, hk.neg, 2.0, hk.neg)


@pytest.mark.parametrize(("by", "found"), [(True, -2.0), (False, 3.0)])
def test_conditional_takes_a_constant(by: bool, found: float) -> None:
    for selected in (
        lambda x: hk.conditional(by, x, hk.neg, 3.0, hk.abs),
        lambda x: hk.conditional(1 - by, [hk.neg, hk.abs], [x, 3.0]),
    ):
        b = hk.Builder("t")
        assert hk.evaluate(b.build(selected(b.constant(2.0)))) == found


@rule("BUILDER-2", "BEY-76", "BEY-77")
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda x, p: hk.conditional(x, p, hk.not_, p, hk.not_), r"conditional\(f32\[4\], pred\[\], .*COND-2"),
        (lambda x, p: hk.conditional(p, [hk.neg], [x]), r"conditional\(pred\[\], f32\[4\]\): .*COND-3"),
        (lambda x, p: hk.map([x], hk.neg, [0], [x]), r"map\(f32\[4\], .*MAP-8"),
        (lambda x, p: hk.all_gather(x, 0, 0), r"all-gather\(f32\[4\]\): .*AGATHER-4"),
        (lambda x, p: hk.reduce_scatter(x, hk.add, 0, 3), r"reduce-scatter\(f32\[4\]\): .*RSCAT-3"),
        (lambda x, p: hk.all_to_all(x, 0, 2, 2), r"all-to-all\(f32\[4\]\): .*A2A-3"),
        (lambda x, p: hk.send(x, 3), r"send\(f32\[4\], .*COMM-4"),
        (lambda x, p: hk.fft(x, "rfft", [4]), r"fft\(f32\[4\]\): fft_type: found rfft, .*HINST-6"),
        (lambda x, p: hk.triangular_solve(x, x, True, True, False, "T"), r"triangular-solve\(.*TRISOLVE-8"),
        (lambda x, p: hk.rng_bit_generator("mt19937", x, hk.u32), r"rng-bit-generator\(.*RBG-7"),
        (lambda x, p: hk.reduce(hk.tuple_(x.builder, [x]), 0.0, hk.add, [0]), r"reduce\(\(f32\[4\]\)\): .*REDUCE-2"),
        (lambda x, p: hk.reduce_window(x, 0.0, hk.add, [2], [1], [(0, 0)]), r"reduce-window\(.*SAME or VALID.*WIN-5"),
    ],
)
def test_errors_found_before_there_is_an_op_name_it_and_the_line(program: Callable[..., Any], said: str) -> None:
    b = hk.Builder("t")
    x, p = b.parameter(0, hk.f32[4]), b.parameter(1, hk.pred[()])
    with pytest.raises(hk.ShapeError, match=said + r"\] at .*test_builder\.py:\d+"):
        program(x, p)
    assert isinstance(b.first_error, hk.ShapeError)


@rule("BUILDER-10", "BEY-52")
def test_a_computation_serves_many_ops_and_modules() -> None:
    inner = hk.Builder("add")
    adder = inner.build_computation(inner.parameter(0, hk.f32[()]) + inner.parameter(1, hk.f32[()]))
    modules: list[hk.HloModule] = []
    for _ in range(2):
        b = hk.Builder("t")
        x = b.parameter(0, hk.f32[2, 3])
        rows = hk.reduce(x, b.constant(0.0), adder, [1])
        modules.append(b.build(hk.reduce(rows, b.constant(0.0), adder, [0])))
    for module in modules:
        hk.verify(module)
        assert [c.name for c in module.computations()] == ["add", "t"]
        assert hk.evaluate(module, np.ones((2, 3), np.float32)) == 6
    assert modules[0].computations()[0] is not modules[1].computations()[0]


@rule("BUILDER-10")
def test_python_functions_are_traced() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.s32[4])
    total = hk.reduce(x, b.constant(0), lambda p, q: p + q, [0])
    largest = hk.reduce(x, b.constant(-(2**31)), hk.max, [0])
    count = hk.while_(lambda i: i < 10, lambda i: i + 3, b.constant(0))
    got = hk.evaluate(b.build([total, largest, count]), [3, 1, 4, 1])
    assert [int(v) for v in got] == [9, 4, 12]


@rule("BUILDER-11")
def test_sequences_of_operands_are_not_empty() -> None:
    b = hk.Builder("t")
    b.parameter(0, hk.f32[2])
    with pytest.raises(hk.HlokitError):
        hk.sort([], hk.lt)
    with pytest.raises(hk.HlokitError):
        hk.concat_in_dim([], 0)


@rule("BUILDER-12", "REPID-3", "RNG-9")
def test_is_constant() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[()])
    c = b.constant(2.0)
    assert b.is_constant(c + 1.0)
    assert not b.is_constant(c + x)
    assert not b.is_constant(b.replica_id())
    assert not b.is_constant(hk.rng_uniform(c, b.constant(3.0), hk.f32[2]))
    module = b.build_constant_sub_graph(c * 3.0)
    assert not module.entry.parameters and hk.evaluate(module) == 6
    with rejects("BUILDER-12"):
        b.build_constant_sub_graph(c + x)


@rule("BUILDER-13", "BEY-73")
def test_aliases_are_checked_at_build() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    b.set_up_alias([], 0)
    b.add_buffer_donor(0)
    text = str(b.build(hk.neg(x)))
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in text and "buffer_donor={ (0, {}) }" in text
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    b.set_up_alias([3], 0)
    with pytest.raises(hk.VerifyError):
        b.build(hk.neg(x))


@rule("BUILDER-14", "BEY-74")
def test_sticky_sharding_metadata_and_frontend_attributes() -> None:
    b = hk.Builder("t", source_info=False)
    x = b.parameter(0, hk.f32[2])
    with b.sharding("{replicated}"), b.metadata(op_name="outer"), b.frontend_attributes({"k": "v"}):
        inside = hk.neg(x)
    outside = hk.neg(inside)
    assert outside.instruction.extra is None
    text = str(inside.instruction)
    assert "sharding={replicated}" in text and 'frontend_attributes={k="v"}' in text and 'op_name="outer"' in text
    b.set_sharding("{manual}")
    assert "sharding={manual}" in str(hk.neg(x).instruction)
    b.clear_sharding()
    assert hk.neg(x).instruction.extra is None


def test_source_lines_become_metadata() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    extra = hk.neg(x).instruction.extra
    assert extra is not None and extra.metadata is not None
    assert extra.metadata.source_file == __file__ and extra.metadata.source_line > 0


@rule("BUILDER-15")
def test_the_graph_does_not_broadcast_the_builder_does() -> None:
    b = hk.Builder("t")
    x, s = b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.f32[()])
    y = x + s
    assert "broadcast" in opcodes(b)
    adder = y.instruction.op
    with pytest.raises(hk.ShapeError):
        b.emit(adder, [x, s])


def test_operators() -> None:
    b = hk.Builder("t")
    x, y = b.parameter(0, hk.s32[3]), b.parameter(1, hk.s32[3])
    results = [x + y, x - y, x * y, x / y, x % y, -x, ~x, abs(x), x & y, x | y, x ^ y, x << y, x >> y, x**y]
    results += [x == y, x != y, x < y, x <= y, x > y, x >= y, 1 + x, 10 - x, 2 * x, x @ y]
    p, q = np.int32([7, -5, 2]), np.int32([2, 3, 1])
    wanted = [p + q, p - q, p * q, [3, -1, 2], [1, -2, 0], -p, ~p, abs(p), p & q, p | q, p ^ q, p << q, p >> q, p**q]
    wanted += [p == q, p != q, p < q, p <= q, p > q, p >= q, 1 + p, 10 - p, 2 * p, p @ q]
    for got, want in zip(hk.evaluate(b.build(results), p, q), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_handles_have_no_value() -> None:
    x = hk.Builder("t").parameter(0, hk.f32[()])
    with pytest.raises(hk.BuildError):
        bool(x < 1.0)


@rule("EXEC-1")
def test_order_of_pure_ops_does_not_matter() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[3])
    module = b.build((x + 1.0) * (x - 1.0))
    other = module.clone()
    other.entry.reorder(other.entry.post_order())
    other.is_scheduled = True
    assert hk.evaluate(module, [1.0, 2.0, 3.0]).tolist() == hk.evaluate(other, [1.0, 2.0, 3.0]).tolist()


@rule("EXEC-2", "REPID-1", "REPID-2")
def test_process_ids() -> None:
    b = hk.Builder("t")
    replica, partition = b.replica_id(), b.partition_id()
    assert replica.shape is hk.u32[()] and partition.shape is hk.u32[()]
    assert [int(v) for v in hk.evaluate(b.build([replica, partition]))] == [0, 0]


@rule("EXEC-3")
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (np.float64([1, 2]),),
        (np.float32([1, 2, 3]),),
        (np.float32([[1, 2]]),),
        ("text",),
        (np.float32([1, 2]),) * 2,
    ],
    ids=["too few", "type", "size", "rank", "no array", "too many"],
)
def test_arguments_must_fit(arguments: tuple[object, ...]) -> None:
    b = hk.Builder("t")
    module = b.build(hk.neg(b.parameter(0, hk.f32[2])))
    with rejects("EXEC-3"):
        hk.evaluate(module, *arguments)


@rule("EXEC-4")
def test_reducers_are_checked_by_one_rule_set() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[4])
    with rejects("REDUCER-4", "REDUCER-2"):
        hk.reduce(x, b.constant(0.0), hk.lt, [0])


def test_results_are_the_callers_own() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    module = b.build([x, b.constant(np.float32([5, 6]))])
    argument = np.float32([1, 2])
    first, constant = hk.evaluate(module, argument)
    first[0] = constant[0] = 99
    assert argument.tolist() == [1, 2]
    assert hk.evaluate(module, argument)[1].tolist() == [5, 6]


def test_hooks_see_every_instruction() -> None:
    b = hk.Builder("t")
    module = b.build(b.parameter(0, hk.f32[()]) + 1.0)
    seen: list[tuple[str, str, int]] = []
    hk.evaluate(
        module,
        2.0,
        before=lambda i, operands: seen.append(("before", i.opcode, len(operands))),
        after=lambda i, value: seen.append(("after", i.opcode, len(value))),
    )
    assert seen == [("before", "constant", 0), ("after", "constant", 1), ("before", "add", 2), ("after", "add", 1)]


def test_a_shape_of_a_quintillion_elements_is_refused_before_it_is_allocated() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[()])
    module = b.build(hk.broadcast(x, [10**9, 10**9]))
    assert "f32[1000000000,1000000000]" in str(module)
    with pytest.raises(hk.EvaluationError, match="4000000000000000000 bytes"):
        hk.evaluate(module, 1.0)
