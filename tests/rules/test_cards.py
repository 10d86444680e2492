"""Checks that builder functions make before the cards, and operations on graphs: text and passes come past the builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import OPS, Op, infer_shape
from hlokit.ops.asynchronous import AsyncStart
from hlokit.ops.collectives import AllGather, ReduceScatter
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Conditional, Fusion, Map
from hlokit.ops.conversion import Convert
from hlokit.ops.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute, RaggedAllToAll
from hlokit.ops.movement import Bitcast, Broadcast, Concatenate, Pad, Reverse, Transpose
from hlokit.ops.random import RngBitGenerator, RngGetAndUpdateState
from hlokit.ops.reshaping import DynamicReshape, Reshape
from hlokit.ops.scan import Scan
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.sorting import Sort
from hlokit.ops.structure import Parameter
from hlokit.ops.windows import SelectAndScatter
from hlokit.types.shape import TOKEN, Shape
from tests.rules.grid import on_devices
from tests.rules.labels import rejects, rule

F3 = hk.f32[3]
PAIR = Shape.tuple((F3,))


def program(function: Callable[..., Any], *shapes: Shape) -> Computation:
    b = hk.Builder("called")
    return b.build_computation(function(*(b.parameter(i, shape) for i, shape in enumerate(shapes))))


ADD = program(lambda x, y: x + y, hk.f32[()], hk.f32[()]).program_shape
NEGATE = program(lambda x: -x, F3).program_shape
IS_EQUAL = program(lambda x: hk.eq(x, x), F3).program_shape
STARTED = Shape.tuple((Shape.tuple((F3, F3)), F3))

STATE = hk.u64[2]
ONE = hk.f32[()]
SCANNED = Shape.tuple((F3, ONE))
STEP = program(lambda x, c: (x + c, c), ONE, ONE).program_shape
COUNT = program(lambda c: (c, c), ONE).program_shape


def _bits(shape: Shape) -> Op:
    return RngBitGenerator("rng_default", shape)


CARDS: list[tuple[str, Op, list[Shape], dict[str, Any]]] = [
    ("AGATHER-3: dimension", AllGather(None, (), False, 1, False, F3), [F3], {}),
    ("RSCAT-5: dimension", ReduceScatter(None, (), False, False, 1, F3), [F3], {"to_apply": ADD}),
    ("RSCAT-4: group size", ReduceScatter(None, [[0, 1]], False, False, 0, hk.f32[1]), [F3], {"to_apply": ADD}),
    ("A2A-3: dimension", AllToAll(None, (), False, 1), [F3], {}),
    ("A2A-9: no operand", AllToAll(), [], {}),
    ("GRP-2: id twice in a broadcast", CollectiveBroadcast(None, [[0, 1], [1, 2]]), [F3], {}),
    ("GRP-2: negative id in a broadcast", CollectiveBroadcast(None, [[0, -1]]), [F3], {}),
    ("BEY-63: no operand", CollectiveBroadcast(None, [[0]]), [], {}),
    ("BEY-65: scalars", RaggedAllToAll(None, ()), [hk.f32[()], hk.f32[()], *[hk.s32[2]] * 4], {}),
    ("BEY-65: three offsets for two devices", RaggedAllToAll(None, [[0, 1]]), [F3, F3, *[hk.s32[3]] * 4], {}),
    ("CPERM-8: no operand", CollectivePermute(None, [(0, 1)]), [], {}),
    ("MAP-3: no operand", Map(()), [], {"to_apply": ADD}),
    ("COND-2: selector", Conditional(), [hk.f32[()], F3], {"branch_computations": [NEGATE]}),
    ("COND-2: three branches", Conditional(), [hk.pred[()], F3, F3, F3], {"branch_computations": [NEGATE] * 3}),
    ("COND-4: no branch", Conditional(), [hk.s32[()]], {"branch_computations": []}),
    ("COND-4: operands", Conditional(), [hk.s32[()], F3], {"branch_computations": [NEGATE] * 2}),
    ("HOP-40: negative operand number", Fusion("kLoop", (((), -1, ()),)), [F3], {"calls": NEGATE}),
    ("HOP-40: aliases of different shapes", Fusion("kLoop", (((), 0, ()),)), [F3], {"calls": IS_EQUAL}),
    ("HASYNC-1: two operands for one", AsyncStart("main", STARTED), [F3, F3], {"calls": NEGATE}),
    ("HASYNC-1: another parameter", AsyncStart("main", STARTED), [hk.f32[4]], {"calls": NEGATE}),
    ("CONV-TYPE-1: dimensions", Convert(hk.s32[4]), [F3], {}),
    ("DOTG-13: no array type", Dot((), (0,), (), (0,), (), None, TOKEN), [F3, F3], {}),
    ("BRD-6: a tuple", Broadcast((0,), F3), [PAIR], {}),
    ("BIDIM-1: element type", Broadcast((0,), hk.s32[3]), [F3], {}),
    ("BIDIM-3: too few dimensions", Broadcast((), F3), [F3], {}),
    ("BIDIM-5: dimension", Broadcast((1,), F3), [F3], {}),
    ("TRANSP-1: a tuple", Transpose((0,)), [PAIR], {}),
    ("REV-1: a tuple", Reverse(()), [PAIR], {}),
    ("CONCAT-3: nothing", Concatenate(0), [], {}),
    ("CONCAT-7: a tuple", Concatenate(0), [PAIR], {}),
    ("PAD-4: a tuple", Pad(()), [PAIR, hk.f32[()]], {}),
    ("PAD-4: entries", Pad(((0, 0, 0), (0, 0, 0))), [F3, hk.f32[()]], {}),
    ("BEY-19: a tuple", Bitcast(F3), [PAIR], {}),
    ("BEY-19: bits", Bitcast(hk.f32[4]), [F3], {}),
    ("RESHAPE-1: a tuple", Reshape(None, F3), [PAIR], {}),
    ("RESHAPE-1: element type", Reshape(None, hk.s32[3]), [F3], {}),
    ("RESHAPE-2: elements", Reshape(None, hk.f32[4]), [F3], {}),
    ("BEY-24: a tuple", DynamicReshape(F3), [PAIR, hk.s32[()]], {}),
    ("BEY-24: element type", DynamicReshape(hk.s32[3]), [F3, hk.s32[()]], {}),
    ("BEY-24: elements", DynamicReshape(hk.f32[4]), [F3, hk.s32[()]], {}),
    ("BEY-24: type of a size", DynamicReshape(F3), [F3, hk.s64[()]], {}),
    ("RBG-1: no pair", _bits(Shape.tuple((hk.u32[3],))), [STATE], {}),
    ("RBG-1: another state", _bits(Shape.tuple((hk.u64[3], hk.u32[3]))), [STATE], {}),
    ("RBG-2: floats", _bits(Shape.tuple((STATE, F3))), [STATE], {}),
    ("DYN-15: dynamic bits", _bits(Shape.tuple((STATE, hk.u32["<=3"]))), [STATE], {}),
    ("BEY-57: three words", RngGetAndUpdateState(1, hk.u64[3]), [], {}),
    ("BEY-57: type", RngGetAndUpdateState(1, hk.u32[2]), [], {}),
    ("BEY-50: more carries than operands", Scan(0, 3, False, False, SCANNED), [F3, ONE], {"to_apply": STEP}),
    ("BEY-50: negative carries", Scan(0, -1, False, False, SCANNED), [F3, ONE], {"to_apply": STEP}),
    ("BEY-50: dimension", Scan(1, 1, False, False, SCANNED), [F3, ONE], {"to_apply": STEP}),
    ("BEY-50: sizes", Scan(0, 0, False, False, SCANNED), [F3, hk.f32[4]], {"to_apply": STEP}),
    ("BEY-50: no steps", Scan(1, 1, False, False, SCANNED), [ONE], {"to_apply": COUNT}),
    ("BEY-50: rank", Scan(1, 1, False, False, Shape.tuple((hk.f32[2, 3], ONE))), [ONE], {"to_apply": COUNT}),
    ("SCATTER-2: operands", Scatter((), (0,), (0,), (), (), 1), [F3, hk.s32[2, 1]], {"to_apply": ADD}),
    ("SCATTER-34: a tuple", Scatter((), (0,), (0,), (), (), 1), [PAIR, hk.s32[2, 1], hk.f32[2]], {"to_apply": ADD}),
    ("HINST-5: nothing to slice", DynamicSlice(()), [], {}),
    ("HINST-5: no update", DynamicUpdateSlice(), [F3], {}),
    ("DSLICE-1: a tuple", DynamicSlice(()), [PAIR], {}),
    ("DUS-1: a tuple", DynamicUpdateSlice(), [PAIR, PAIR], {}),
    ("SORT-2: nothing", Sort(0, False), [], {"to_apply": ADD}),
    ("SORT-2: a tuple", Sort(0, False), [PAIR], {"to_apply": ADD}),
    ("BUILDER-6: negative number", Parameter(-1, F3), [], {}),
    (
        "SAS-4: a tuple",
        SelectAndScatter(hk.Window.make([1])),
        [PAIR, F3, ONE],
        {"select": program(hk.ge, ONE, ONE).program_shape, "scatter": ADD},
    ),
    ("SLICE-12: a tuple", Slice(((0, 1, 1),)), [PAIR], {}),
    ("BIN-3: a tuple", OPS["add"](), [PAIR, F3], {}),
    ("HINST-5: one operand of two", OPS["add"](), [F3], {}),
    ("HINST-5: no selector", Conditional(), [], {"branch_computations": [NEGATE]}),
]


@pytest.mark.parametrize(("label", "op", "operands", "called"), CARDS, ids=[row[0] for row in CARDS])
def test_cards_check_themselves(label: str, op: Op, operands: list[Shape], called: dict[str, Any]) -> None:
    with rejects(label.split(":")[0]):
        infer_shape(op, operands, list(called.items()))


THREE = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("label", "op", "operands"),
    [
        ("A2A-4", AllToAll(None, (), False, 0), [(THREE,), (THREE,)]),
        ("A2A-5", AllToAll(), [(THREE, THREE, THREE), (THREE, THREE, THREE)]),
        ("CPERM-5", CollectivePermute(None, [(0, 2)]), [(THREE,), (THREE,)]),
        ("CPERM-5", CollectivePermute(None, [(2, 0)]), [(THREE,), (THREE,)]),
    ],
    ids=["A2A-4: size", "A2A-5: operands", "CPERM-5: target", "CPERM-5: source"],
)
def test_collectives_that_do_not_fit_the_two_devices_that_run(label: str, op: Op, operands: Any) -> None:
    with rejects(label):
        on_devices(op, operands)


@pytest.mark.parametrize(
    ("label", "selector", "function"),
    [
        ("COND-2", hk.s32[()], lambda i, x: hk.conditional(i, x, hk.neg, x, hk.abs)),
        ("COND-3", hk.pred[()], lambda p, x: hk.conditional(p, [hk.neg, hk.abs], [x, x])),
    ],
    ids=["COND-2: an index for two branches", "COND-3: a predicate for a list"],
)
def test_forms_of_conditional_have_their_own_selector(label: str, selector: Shape, function: Any) -> None:
    with rejects(label):
        program(function, selector, F3)


@rule("SDS-7")
def test_a_static_result_has_the_size_of_its_bound() -> None:
    text = """HloModule t
    ENTRY e { x = f32[3] parameter(0) n = s32[] parameter(1) ROOT r = f32[3] set-dimension-size(x, n), dimensions={0} }"""
    x = np.ones(3, np.float32)
    assert hk.evaluate(hk.parse(text), x, np.int32(3)).shape == (3,)
    with rejects("SDS-7"):
        hk.evaluate(hk.parse(text), x, np.int32(2))


# -- graphs


@rule("HCOMP-5")
def test_a_computation_without_instructions_has_no_root() -> None:
    with rejects("HCOMP-5"):
        _ = Computation("empty").root


@rule("HCOMP-7")
@pytest.mark.parametrize("is_dead", [False, True])
def test_a_cycle_has_no_order(is_dead: bool) -> None:
    b = hk.Builder("t")
    x = b.parameter(0, F3)
    first = -x
    second = -first
    module = b.build(x if is_dead else second)
    one, two = first.instruction, second.instruction
    del one.operands[0].users[one]
    one.operands = (two,)
    two.users[one] = None
    module.entry.version += 1  # orders are kept until it changes
    with rejects("HCOMP-7"):
        module.entry.post_order()


@rule("HINST-3")
def test_a_replacement_has_the_same_shape() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, F3)
    y, z = -x, hk.eq(x, x)
    computation = b.build(y).entry
    with rejects("HINST-3"):
        computation.replace(y.instruction, z.instruction)


@rule("HMOD-2")
def test_a_schedule_holds_every_instruction() -> None:
    b = hk.Builder("t")
    computation = b.build(-b.parameter(0, F3)).entry
    other = hk.Builder("u").parameter(0, F3).instruction
    for order in (computation.instructions[:1], [*computation.instructions[:1], other]):
        with rejects("HMOD-2"):
            computation.reorder(order)


@rule("BUILDER-3")
def test_builders_are_built_once_and_ops_need_a_handle() -> None:
    b = hk.Builder("t")
    b.parameter(0, F3)
    b.build()
    with rejects("BUILDER-3"):
        b.build()
    with rejects("BUILDER-3"):
        hk.tanh(1.0)  # type: ignore[arg-type]


@rule("BUILDER-10")
def test_what_is_no_computation_cannot_be_called() -> None:
    b = hk.Builder("t")
    with rejects("BUILDER-10"):
        b.call(3, [b.parameter(0, F3)])  # type: ignore[arg-type]


@rule("BEY-80")
@pytest.mark.parametrize(
    "function",
    [
        lambda a, taus: hk.product_of_elementary_householder_reflectors(a, hk.collapse(a, [0, 1, 2])),
        lambda a, taus: hk.product_of_elementary_householder_reflectors(a, hk.convert_element_type(taus, hk.f64)),
        lambda a, taus: hk.product_of_elementary_householder_reflectors(a, hk.slice_in_dim(taus, 0, 1)),
        lambda a, taus: hk.product_of_elementary_householder_reflectors(a, hk.concat_in_dim([taus, taus], 1)),
        lambda a, taus: hk.approx_top_k([a], [], 1, 0, hk.gt),
    ],
    ids=["rank", "type", "batch", "number", "no init value"],
)
def test_helpers_check_their_operands(function: Any) -> None:
    with rejects("BEY-80"):
        program(function, hk.f32[2, 3, 3], hk.f32[2, 3])
