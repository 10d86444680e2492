"""Tuples, calls, control flow, identities: TUPLE, GTE, OPTBAR, CALL, MAP, WHILE, COND, BEY-51 .. BEY-55, HOP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.hlo.computation import Computation
from hlokit.ops.control_flow import AddDependency, Call, Conditional, Domain, Fusion, Map
from hlokit.types.shape import NIL, TOKEN, Shape
from tests.rules.labels import rejects, rule

VECTOR = np.array([1.0, 2.0, 3.0], np.float32)


def run(build: Callable[..., Any], *inputs: Any, shapes: tuple[Shape, ...] | None = None, **options: Any) -> Any:
    """Evaluates the program that `build(builder, *parameters)` makes for inputs of these shapes."""
    builder = hk.Builder("test")
    shapes = shapes or tuple(hk.dtype(np.asarray(i).dtype)[np.shape(i)] for i in inputs)
    root = build(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes)))
    return hk.evaluate(builder.build(root), *inputs, **options)


def shape_of(build: Callable[..., hk.XlaOp], *shapes: Shape) -> Shape:
    builder = hk.Builder("test")
    return build(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes))).shape


def computation(function: Callable[..., Any], *shapes: Shape) -> Computation:
    """A computation of `function(builder, *parameters)`; unlike a Python callable it may take any number."""
    builder = hk.Builder("computation")
    return builder.build_computation(function(builder, *(builder.parameter(n, s) for n, s in enumerate(shapes))))


def negate(x: hk.XlaOp) -> hk.XlaOp:
    return -x


def double(x: hk.XlaOp) -> hk.XlaOp:
    return x + x


def square(x: hk.XlaOp) -> hk.XlaOp:
    return x * x


# -- tuples


@rule("TUPLE-1", "TUPLE-2", "TUPLE-3", "GTE-1", "GTE-2", "GTE-5")
def test_tuple_groups_values_and_an_element_comes_out_again() -> None:
    v, s = np.arange(10, dtype=np.float32), np.int32(5)
    build = lambda b, x, y: hk.tuple_(b, [x, y])  # noqa: E731
    assert shape_of(build, hk.f32[10], hk.s32[()]) is Shape.tuple((hk.f32[10], hk.s32[()]))
    first, second = run(build, v, s)
    assert np.array_equal(first, v) and second == 5
    element = run(lambda b, x, y: hk.get_tuple_element(hk.tuple_(b, [x, y]), 1), v, s)
    assert element == 5 and element.dtype == np.int32


@rule("TUPLE-1")
def test_tuples_hold_tokens_tuples_or_nothing() -> None:
    nested = shape_of(lambda b, x: hk.tuple_(b, [b.create_token(), hk.tuple_(b, []), x]), hk.f32[2])
    assert nested is Shape.tuple((TOKEN, NIL, hk.f32[2]))
    assert run(lambda b: hk.tuple_(b, [])) == ()


@pytest.mark.parametrize("index", [-1, 2], ids=["GTE-4: below", "GTE-4: above"])
def test_tuple_index_out_of_range(index: int) -> None:
    with rejects("GTE-4"):
        shape_of(lambda b, x: hk.get_tuple_element(hk.tuple_(b, [x, x]), index), hk.f32[2])


@rule("GTE-3")
def test_element_of_an_array() -> None:
    with rejects("GTE-3"):
        shape_of(lambda b, x: hk.get_tuple_element(x, 0), hk.f32[2])


# -- opt-barrier, add-dependency, domain


@rule("OPTBAR-1", "OPTBAR-2")
def test_barrier_is_the_identity_on_arrays_tuples_and_tokens() -> None:
    assert np.array_equal(run(lambda b, x: hk.optimization_barrier(x), VECTOR), VECTOR)
    pair = run(lambda b, x: hk.optimization_barrier(hk.tuple_(b, [x, b.create_token()])), VECTOR)
    assert np.array_equal(pair[0], VECTOR) and pair[1] is None
    assert shape_of(lambda b: hk.optimization_barrier(b.create_token())) is TOKEN


@rule("OPTBAR-3")
def test_what_a_barrier_needs_runs_before_what_uses_it() -> None:
    order: list[str] = []

    def build(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        first, second = hk.optimization_barrier(hk.tuple_(b, [-x, x + x]))
        return first * x + second

    run(build, VECTOR, before=lambda instruction, _: order.append(instruction.opcode))
    barrier = order.index("opt-barrier")
    assert {"negate", "add"} <= set(order[:barrier]) and "multiply" in order[barrier:]


@rule("BEY-54")
def test_add_dependency_and_domain_give_the_value() -> None:
    assert np.array_equal(run(lambda b, x: emit(AddDependency(), x, b.create_token()), VECTOR), VECTOR)
    replicated = hk.Sharding("replicated")
    domain = Domain(("sharding", replicated, replicated))
    assert np.array_equal(run(lambda b, x: emit(domain, x), VECTOR), VECTOR)
    with rejects("BEY-54"):
        shape_of(lambda b, x: emit(AddDependency(), x, x), hk.f32[2])


# -- call, fusion


@rule("CALL-1", "CALL-2", "CALL-5")
def test_call_evaluates_the_computation() -> None:
    four = computation(lambda b: b.constant(np.int32(4)))
    assert run(lambda b: hk.call(b, four, [])) == 4
    negated = run(lambda b, x: hk.call(b, negate, [x]), np.array([1.0, 2.0], np.float32))
    assert np.array_equal(negated, [-1.0, -2.0])
    assert shape_of(lambda b, x: hk.call(b, lambda y: hk.eq(y, y), [x]), hk.f32[3]) is hk.pred[3]


@pytest.mark.parametrize(
    ("label", "operands"),
    [
        ("CALL-3", (hk.f32[3], hk.f32[3])),
        ("CALL-4", (hk.f32[4],)),
        ("CALL-4", (hk.s32[3],)),
        ("CALL-4", (Shape.tuple((hk.f32[3],)),)),
    ],
    ids=["CALL-3: two operands", "CALL-4: another size", "CALL-4: another type", "CALL-4: a tuple"],
)
def test_call_rejects(label: str, operands: tuple[Shape, ...]) -> None:
    callee = computation(lambda b, x: -x, hk.f32[3])
    with rejects(label):
        shape_of(lambda b, *x: hk.call(b, callee, x), *operands)


@rule("BEY-51")
def test_composite_call_is_a_call_with_labels() -> None:
    builder = hk.Builder("test")
    x = builder.parameter(0, hk.f32[3])
    root = hk.composite_call(builder, negate, [x], "my.negate", "{n = 1 : i32}", 2)
    module = builder.build(root)
    assert np.array_equal(hk.evaluate(module, VECTOR), -VECTOR)
    instruction = module.entry.root
    assert instruction.op is Call(is_composite=True) and instruction.extra is not None
    assert instruction.extra.frontend_attributes == {
        "composite.name": "my.negate",
        "composite.attributes": "{n = 1 : i32}",
        "composite.version": "2",
    }
    builder = hk.Builder("test")
    plain = hk.composite_call(builder, negate, [builder.parameter(0, hk.f32[3])], "my.negate").instruction
    assert plain.extra is not None and plain.extra.frontend_attributes == {"composite.name": "my.negate"}


@rule("BEY-55", "HOP-40")
def test_fusion_is_the_called_computation() -> None:
    fused = computation(lambda b, x: x * x, hk.f32[3])
    op = Fusion("kLoop", (((), 0, ()),))
    assert np.array_equal(run(lambda b, x: _fuse(b, op, fused, x), VECTOR), VECTOR**2)


def _fuse(b: hk.Builder, op: Fusion, fused: Computation, *operands: hk.XlaOp) -> hk.XlaOp:
    return b.emit(op, operands, [fused], shape=fused.root.shape)


@pytest.mark.parametrize(
    ("aliasing", "operand"),
    [((), hk.f32[4]), ((((0,), 0, ()),), hk.f32[3]), ((((), 1, ()),), hk.f32[3])],
    ids=["HOP-40: operand", "HOP-40: no such output", "HOP-40: no such operand"],
)
def test_fusion_rejects(aliasing: Any, operand: Shape) -> None:
    fused = computation(lambda b, x: x * x, hk.f32[3])
    with rejects("HOP-40"):
        shape_of(lambda b, x: _fuse(b, Fusion("kLoop", aliasing), fused, x), operand)


@rule("HOP-40")
def test_fusion_kinds_are_four() -> None:
    with rejects("HINST-6"):
        Fusion("kLarge")


# -- map


@rule("MAP-1", "MAP-2", "MAP-11")
def test_map_applies_at_every_index() -> None:
    a, b = np.array([1, 2], np.int32), np.array([3, 4], np.int32)
    assert np.array_equal(run(lambda _, x, y: hk.map([x, y], hk.add, [0]), a, b), [4, 6])
    less = run(lambda _, x, y: hk.map([x, y], hk.lt, [0]), np.array([1, 5], np.int32), b)
    assert less.dtype == np.bool_ and np.array_equal(less, [True, False])
    assert shape_of(lambda _, x, y: hk.map([x, y], hk.lt, [0, 1]), hk.f32[2, 3], hk.f32[2, 3]) is hk.pred[2, 3]


@rule("MAP-5", "MAP-9")
def test_map_of_scalars() -> None:
    assert run(lambda _, x: hk.map([x], negate, []), np.float32(3)) == -3
    mixed = run(lambda _, x, y: hk.map([x, y], hk.sub, [0]), VECTOR, np.float32(1))
    assert np.array_equal(mixed, [0.0, 1.0, 2.0])


@rule("MAP-10")
def test_map_runs_random_ops_once_for_each_element() -> None:
    def noise(x: hk.XlaOp) -> hk.XlaOp:
        return x + hk.rng_uniform(x * 0, x * 0 + 1, hk.f32[()])

    drawn = run(lambda _, x: hk.map([x], noise, [0]), np.zeros(64, np.float32), seed=3)
    assert len(set(drawn.tolist())) > 32


@rule("MAP-2")
def test_map_of_what_has_no_array_form() -> None:
    def clipped_count(x: hk.XlaOp) -> hk.XlaOp:
        return hk.while_(lambda s: hk.lt(s, 10.0), double, x)

    assert np.array_equal(run(lambda _, x: hk.map([x], clipped_count, [0]), VECTOR), [16.0, 16.0, 12.0])


F2, F22, S2 = hk.f32[2], hk.f32[2, 2], hk.s32[2]
UNARY, BINARY = (computation(lambda b, *x: x[0] + x[-1], *[hk.f32[()]] * n) for n in (1, 2))


@pytest.mark.parametrize(
    ("label", "shapes", "called", "dimensions"),
    [
        ("MAP-3", (), UNARY, []),
        ("MAP-4", (F2, F22), BINARY, [0]),
        ("MAP-4", (TOKEN,), UNARY, []),
        ("MAP-6", (F22,), UNARY, [0]),
        ("MAP-6", (F22,), UNARY, [1, 0]),
        ("MAP-7", (F2, F2), UNARY, [0]),
        ("MAP-7", (S2,), UNARY, [0]),
        ("MAP-7", (F2,), computation(lambda b, x: hk.broadcast(x, [2]), hk.f32[()]), [0]),
    ],
    ids=[
        "MAP-3: no operand",
        "MAP-4: other dimensions",
        "MAP-4: token",
        "MAP-6: subset",
        "MAP-6: order",
        "MAP-7: arity",
        "MAP-7: type",
        "MAP-7: result",
    ],
)
def test_map_rejects(label: str, shapes: tuple[Shape, ...], called: Computation, dimensions: list[int]) -> None:
    with rejects(label):
        shape_of(lambda b, *x: hk.map(x, called, dimensions), *shapes)


@rule("MAP-8", "BEY-52")
def test_map_takes_no_static_operands() -> None:
    with rejects("MAP-8"):
        shape_of(lambda b, x: hk.map([x], negate, [0], [x]), hk.f32[2])


@rule("HOP-19")
def test_dimensions_of_map_are_filled_in() -> None:
    assert Map().completed([hk.f32[2, 3]]) is Map((0, 1))


@rule("BEY-52")
def test_ops_take_computations_modules_and_functions() -> None:
    builder = hk.Builder("negate")
    module = builder.build(-builder.parameter(0, hk.f32[3]))
    for callee in (negate, module, module.entry):
        assert np.array_equal(run(lambda b, x, f=callee: hk.call(b, f, [x]), VECTOR), -VECTOR)


# -- while


@rule("WHILE-1", "WHILE-2", "WHILE-3", "WHILE-10")
@pytest.mark.parametrize(("init", "expected"), [(0, 12), (100, 100)])
def test_while_runs_until_the_condition_is_false(init: int, expected: int) -> None:
    result = run(lambda b, x: hk.while_(lambda s: hk.lt(s, 10), lambda s: s + 3, x), np.int32(init))
    assert result == expected and result.dtype == np.int32


@rule("WHILE-9", "WHILE-10")
def test_while_accumulates_a_vector() -> None:
    def build(b: hk.Builder, state: hk.XlaOp) -> hk.XlaOp:
        step = lambda s: (s[0] + 1, s[1] + s.builder.constant(VECTOR))  # noqa: E731
        return hk.while_(lambda s: hk.lt(s[0], 1000), step, state)

    state = Shape.tuple((hk.s32[()], hk.f32[3]))
    count, total = run(build, (np.int32(0), np.zeros(3, np.float32)), shapes=(state,))
    assert count == 1000 and np.array_equal(total, 1000 * VECTOR)


@rule("WHILE-8")
def test_side_effects_of_a_body_happen_once_per_iteration_in_order() -> None:
    def body(s: hk.XlaOp) -> Any:
        token = hk.outfeed_with_token(s[0], s[1], hk.s32[()])
        return s[0] + 1, token

    def build(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return hk.while_(lambda s: hk.lt(s[0], 3), body, hk.tuple_(b, [x, b.create_token()]))[0]

    result, outfed = run(build, np.int32(0), return_outfeed=True)
    assert result == 3 and [int(v) for v in outfed] == [0, 1, 2]


@pytest.mark.parametrize(
    ("label", "condition", "body"),
    [
        ("WHILE-4", computation(lambda b, x: hk.broadcast(hk.lt(x, 3), [1]), hk.s32[()]), double),
        ("WHILE-4", negate, double),
        ("WHILE-4", computation(lambda b, x: hk.lt(x, 3), hk.f32[()]), double),
        ("WHILE-5", lambda s: hk.lt(s, 3), computation(lambda b, x, y: x + y, hk.s32[()], hk.s32[()])),
        ("WHILE-5", lambda s: hk.lt(s, 3), computation(lambda b, x: b.constant(np.int32(1)), hk.f32[()])),
        ("WHILE-6", lambda s: hk.lt(s, 3), lambda s: hk.broadcast(s, [2])),
        ("WHILE-6", lambda s: hk.lt(s, 3), lambda s: hk.convert_element_type(s, hk.f32)),
    ],
    ids=[
        "WHILE-4: vector result",
        "WHILE-4: s32 result",
        "WHILE-4: parameter",
        "WHILE-5: two parameters",
        "WHILE-5: parameter",
        "WHILE-6: size",
        "WHILE-6: type",
    ],
)
def test_while_rejects(label: str, condition: Any, body: Any) -> None:
    with rejects(label):
        shape_of(lambda b, x: hk.while_(condition, body, x), hk.s32[()])


@rule("WHILE-1", "WHILE-5")
def test_while_ignores_dynamic_flags() -> None:
    state = hk.f32["<=4"]
    body = computation(lambda b, x: x + x, hk.f32[4])
    condition = computation(lambda b, x: b.constant(False), hk.f32[4])
    assert shape_of(lambda b, x: hk.while_(condition, body, x), state) is state


# -- conditional


@rule("COND-1", "COND-7")
@pytest.mark.parametrize(("pred", "expected"), [(True, -3.0), (False, 10.0)])
def test_predicated_conditional(pred: bool, expected: float) -> None:
    inputs = (np.bool_(pred), np.float32(3), np.float32(5))
    assert run(lambda b, p, x, y: hk.conditional(p, x, negate, y, double), *inputs) == expected


@rule("COND-8", "COND-11")
@pytest.mark.parametrize(("index", "expected"), [(-1, 9.0), (7, 9.0), (0, -3.0), (1, 6.0), (2, 9.0)])
def test_indexed_conditional(index: int, expected: float) -> None:
    branches = [negate, double, square]
    build = lambda b, i, x: hk.conditional(i, branches, [x, x, x])  # noqa: E731
    assert run(build, np.int32(index), np.float32(3)) == expected
    assert run(lambda b, i, x: hk.conditional(i, [square], [x]), np.int32(index), np.float32(3)) == 9


@rule("COND-9")
def test_only_the_branch_taken_has_effects() -> None:
    def loud(x: hk.XlaOp) -> hk.XlaOp:
        hk.outfeed(x, hk.f32[()])
        return x

    def endless(x: hk.XlaOp) -> hk.XlaOp:
        return hk.while_(lambda s: hk.eq(s, s), double, x)

    build = lambda b, i, x: hk.conditional(i, [loud, negate, endless], [x, x, x])  # noqa: E731
    result, outfed = run(build, np.int32(1), np.float32(3), return_outfeed=True)
    assert result == -3 and outfed == []
    assert run(build, np.int32(0), np.float32(3), return_outfeed=True)[1] == [3]


@rule("COND-5", "COND-12")
def test_operands_of_branches_may_differ_or_be_empty() -> None:
    seven = computation(lambda b, x: b.constant(np.float32(7)), NIL)
    build = lambda b, p, x: hk.conditional(p, hk.tuple_(b, []), seven, x, lambda v: v[0])  # noqa: E731
    shapes = (hk.pred[()], Shape.tuple((hk.f32[()],)))
    assert run(build, True, (np.float32(1),), shapes=shapes) == 7
    assert run(build, False, (np.float32(1),), shapes=shapes) == 1


@rule("COND-10")
def test_dynamic_where_a_branch_is() -> None:
    cut = computation(lambda b, x: hk.set_dimension_size(x, b.constant(np.int32(2)), 0), hk.f32[3])
    build = lambda b, p, x: hk.conditional(p, x, cut, x, negate)  # noqa: E731
    assert shape_of(build, hk.pred[()], hk.f32[3]) is hk.f32["<=3"]
    assert np.array_equal(run(build, np.bool_(True), VECTOR), VECTOR[:2])
    assert np.array_equal(run(build, np.bool_(False), VECTOR), -VECTOR)


PREDICATED = (hk.pred[()], hk.f32[3])
INDEXED = (hk.s32[()], hk.f32[3])


@pytest.mark.parametrize(
    ("label", "shapes", "build"),
    [
        ("COND-2", (hk.f32[()], hk.f32[3]), lambda b, p, x: hk.conditional(p, x, negate, x, double)),
        ("COND-2", (hk.pred[1], hk.f32[3]), lambda b, p, x: hk.conditional(p, x, negate, x, double)),
        ("COND-3", (hk.s64[()], hk.f32[3]), lambda b, i, x: hk.conditional(i, [negate], [x])),
        ("COND-3", (hk.s32[1], hk.f32[3]), lambda b, i, x: hk.conditional(i, [negate], [x])),
        ("COND-4", INDEXED, lambda b, i, x: hk.conditional(i, [], [])),
        ("COND-4", INDEXED, lambda b, i, x: hk.conditional(i, [negate], [x, x])),
        ("COND-5", PREDICATED, lambda b, p, x: hk.conditional(p, x, negate, x, computation(_sum, *[hk.f32[3]] * 2))),
        ("COND-5", PREDICATED, lambda b, p, x: hk.conditional(p, x, negate, x, computation(_sum, hk.f32[4]))),
        ("COND-6", INDEXED, lambda b, i, x: hk.conditional(i, [negate, lambda v: hk.eq(v, v)], [x, x])),
    ],
    ids=[
        "COND-2: type",
        "COND-2: vector",
        "COND-3: type",
        "COND-3: vector",
        "COND-4: no branch",
        "COND-4: operands",
        "COND-5: two parameters",
        "COND-5: parameter",
        "COND-6: results",
    ],
)
def test_conditional_rejects(label: str, shapes: tuple[Shape, ...], build: Callable[..., hk.XlaOp]) -> None:
    with rejects(label):
        shape_of(build, *shapes)


@pytest.mark.parametrize("count", [1, 3], ids=["COND-2: one branch", "COND-2: three branches"])
def test_a_predicate_chooses_between_two(count: int) -> None:
    branch = computation(lambda b, x: -x, hk.f32[3])
    build = lambda b, p, x: emit(Conditional(), p, *[x] * count, called=[branch] * count)  # noqa: E731
    with rejects("COND-2"):
        shape_of(build, *PREDICATED)


def _sum(b: hk.Builder, *x: hk.XlaOp) -> hk.XlaOp:
    return x[0] + x[-1]


@rule("WHILE-1")
def test_init_may_be_a_sequence_of_handles() -> None:
    b = hk.Builder("t")
    loop = hk.while_(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2.0), [b.constant(0), b.constant(1.0)])
    assert [float(v) for v in hk.evaluate(b.build(loop))] == [3, 8]


ENDLESS = """HloModule m
body { p = (f32[2], pred[], s32[]) parameter(0)
 x = f32[2] get-tuple-element(p), index=0
 go = pred[] get-tuple-element(p), index=1
 n = s32[] get-tuple-element(p), index=2
 one = s32[] constant(1)
 next = s32[] add(n, one)
 y = f32[2] cosine(x)
 ROOT r = (f32[2], pred[], s32[]) tuple(y, GO, next) }
condition { p = (f32[2], pred[], s32[]) parameter(0)
 go = pred[] get-tuple-element(p), index=1
 limit = s32[] constant(300)
 n = s32[] get-tuple-element(p), index=2
 less = pred[] compare(n, limit), direction=LT
 ROOT r = pred[] and(go, WHAT) }
ENTRY e { x = f32[2] parameter(0)
 go = pred[] parameter(1)
 zero = s32[] constant(0)
 s = (f32[2], pred[], s32[]) tuple(x, go, zero)
 ROOT w = (f32[2], pred[], s32[]) while(s), condition=condition, body=body }"""


@rule("WHILE-7")
@pytest.mark.parametrize("run", [lambda m, *a: hk.evaluate(m, *a), lambda m, *a: hk.compile(m)(*a)])
def test_a_loop_whose_condition_cannot_change_is_told(run: Any) -> None:
    endless = hk.parse(ENDLESS.replace("GO", "go").replace("WHAT", "go"))
    with pytest.raises(hk.EvaluationError, match=r"w: the loop never ends.*WHILE-7"):
        run(endless, np.zeros(2, np.float32), np.True_)
    assert run(endless, np.ones(2, np.float32), np.False_)[0].tolist() == [1, 1]
    for changes in (("go", "less"), ("less", "go")):  # what the condition reads, or what the body gives
        text = ENDLESS.replace("GO", changes[0]).replace("WHAT", changes[1])
        less = " limit = s32[] constant(299)\n less = pred[] compare(n, limit), direction=LT\n"
        text = text.replace(" y = f32[2] cosine", f"{less} y = f32[2] cosine")
        assert run(hk.parse(text), np.zeros(2, np.float32), np.True_)[2] == 300
