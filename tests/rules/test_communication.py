"""Tokens, infeed, outfeed, send and recv, asynchronous forms: TOKEN, INFEED, OUTFEED, COMM, HASYNC rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate, CopyDone, CopyStart
from hlokit.ops.communication import Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hlokit.types.shape import NIL, TOKEN, Shape
from tests.rules.labels import rejects, rule

VECTOR = np.array([1.0, 2.0, 3.0], np.float32)
CHANNEL = hk.ChannelHandle(1)
TO_HOST = hk.ChannelHandle(1, "device_to_host")
CONTEXT = Shape.tuple((hk.f32[3], hk.u32[()], TOKEN))


def build(function: Callable[..., Any], *shapes: Shape) -> hk.XlaOp:
    """The handle that `function(builder, *parameters)` gives."""
    builder = hk.Builder("test")
    return function(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes)))


def run(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    builder = hk.Builder("test")
    shapes = [hk.dtype(i.dtype)[i.shape] for i in inputs]
    root = function(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes)))
    return hk.evaluate(builder.build(root), *inputs, **options)


# -- tokens


@rule("TOKEN-1", "TOKEN-2", "BEY-53")
def test_tokens_carry_no_data() -> None:
    merged = build(lambda b: b.after_all([b.create_token(), b.create_token()]))
    assert merged.shape is TOKEN
    assert hk.evaluate(merged.builder.build(merged)) is None
    assert build(lambda b: b.after_all([])).instruction.operands == ()


@rule("TOKEN-3", "INFEED-5")
def test_a_merged_token_comes_after_all_its_operands() -> None:
    """The infeed is written first but waits for both outfeeds."""

    def function(b: hk.Builder, x: hk.XlaOp) -> list[hk.XlaOp]:
        tokens = [hk.outfeed_with_token(v, b.create_token(), x.shape) for v in (x, -x)]
        return [hk.infeed_with_token(b.after_all(tokens), hk.f32[()])[0]]

    order: list[str] = []
    run(function, VECTOR, infeed=[np.float32(1)], before=lambda instruction, _: order.append(instruction.opcode))
    assert order.index("infeed") > max(i for i, opcode in enumerate(order) if opcode == "outfeed")


@rule("TOKEN-4")
def test_after_all_of_what_is_no_token() -> None:
    for shape in (hk.f32[3], NIL, Shape.tuple((TOKEN,))):
        with rejects("TOKEN-4"):
            build(lambda b, x: b.after_all([b.create_token(), x]), shape)


@rule("TOKEN-6")
@pytest.mark.parametrize(
    "function",
    [
        lambda b: hk.add(b.create_token(), b.create_token()),
        lambda b: hk.eq(b.create_token(), b.create_token()),
        lambda b: hk.reshape(b.create_token(), []),
        lambda b: hk.all_gather(b.create_token(), 0, 1),
    ],
    ids=["add", "compare", "reshape", "collective"],
)
def test_tokens_are_no_data(function: Any) -> None:
    with pytest.raises(hk.ShapeError):
        build(function)


# -- infeed


@rule("INFEED-1", "INFEED-2", "BEY-68")
def test_infeed_reads_one_item() -> None:
    assert build(lambda b: b.infeed(hk.f32[3])).shape is hk.f32[3]
    with_token = build(lambda b: hk.infeed_with_token(b.create_token(), hk.f32[3], "cfg"))
    assert with_token.shape is Shape.tuple((hk.f32[3], TOKEN))
    assert np.array_equal(run(lambda b: b.infeed(hk.f32[3]), infeed=[VECTOR, -VECTOR]), VECTOR)
    data, token = run(lambda b: hk.infeed_with_token(b.create_token(), hk.f32[3]), infeed=[VECTOR])
    assert np.array_equal(data, VECTOR) and token is None


@rule("INFEED-1")
def test_infeed_of_a_tuple() -> None:
    shape = Shape.tuple((hk.f32[3], hk.s32[()]))
    data, number = run(lambda b: b.infeed(shape), infeed=[(VECTOR, 7)])
    assert np.array_equal(data, VECTOR) and number == 7 and number.dtype == np.int32


@rule("INFEED-3")
def test_the_default_layout_is_filled_in() -> None:
    infeed = build(lambda b: hk.infeed_with_token(b.create_token(), hk.f32[2, 3]))
    assert infeed.shape.elements[0].to_text() == "f32[2,3]{1,0}"


@pytest.mark.parametrize(
    ("shape", "item"),
    [
        (hk.f32[3], np.zeros(4, np.float32)),
        (hk.f32[3], np.zeros(3, np.float64)),
        (hk.f32[3], "text"),
        (Shape.tuple((hk.f32[3],)), VECTOR),
        (Shape.tuple((hk.f32[3],)), (VECTOR, VECTOR)),
    ],
    ids=["INFEED-4: size", "INFEED-4: type", "INFEED-4: no array", "INFEED-4: no tuple", "INFEED-4: two parts"],
)
def test_infeed_of_an_item_of_another_shape(shape: Shape, item: Any) -> None:
    with pytest.raises(hk.EvaluationError, match="INFEED-4"):
        run(lambda b: b.infeed(shape), infeed=[item])


@rule("INFEED-5")
def test_infeeds_without_tokens_follow_each_other() -> None:
    def function(b: hk.Builder) -> list[hk.XlaOp]:
        first = b.infeed(hk.f32[()])
        with pytest.warns(UserWarning, match="chained"):
            second = b.infeed(hk.f32[()])
        return [second, first]

    assert run(function, infeed=[1.0, 2.0]) == (2, 1)


@rule("INFEED-6")
def test_infeeds_in_loops_are_ordered_by_the_state() -> None:
    def reads(state: hk.XlaOp) -> tuple[hk.XlaOp, hk.XlaOp]:
        return state[0] + 1, state[1] * 10 + state.builder.infeed(hk.s32[()])

    def function(b: hk.Builder) -> hk.XlaOp:
        state = hk.tuple_(b, [np.int32(0), np.int32(0)])
        for limit in (2, 4):
            state = hk.while_(lambda s, n=limit: hk.lt(s[0], n), reads, state)
        return state[1]

    assert run(function, infeed=[1, 2, 3, 4]) == 1234


@rule("INFEED-7")
def test_infeed_of_nested_tuples() -> None:
    for shape in (Shape.tuple((Shape.tuple((hk.f32[3],)),)), TOKEN):
        with rejects("INFEED-7"):
            build(lambda b, s=shape: b.infeed(s))


@rule("INFEED-8")
def test_infeed_of_an_empty_tuple_reads_nothing() -> None:
    assert run(lambda b: hk.tuple_(b, [b.infeed(NIL)]), infeed=[VECTOR]) == ((),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(lambda b: [b.infeed(NIL), b.infeed(hk.f32[3])], infeed=[VECTOR])
    assert np.array_equal(result[1], VECTOR)


@rule("INFEED-9")
def test_infeed_of_an_empty_queue() -> None:
    with rejects("INFEED-9"):
        run(lambda b: b.infeed(hk.f32[3]))


@rule("INFEED-10", "HOP-28")
def test_infeed_takes_a_token_and_gives_one() -> None:
    with rejects("INFEED-10"):
        build(lambda b, x: hk.infeed_with_token(x, hk.f32[3]), hk.f32[3])
    with rejects("INFEED-1"):
        build(lambda b: emit(Infeed("", hk.f32[3]), b.create_token()))


# -- outfeed


@rule("OUTFEED-1", "OUTFEED-2", "BEY-68")
def test_outfeed_appends_to_the_queue() -> None:
    assert build(lambda b, x: hk.outfeed(x, x.shape), hk.f32[3]).shape is NIL
    with_token = build(lambda b, x: hk.outfeed_with_token(x, b.create_token(), x.shape, "cfg"), hk.f32[3])
    assert with_token.shape is TOKEN

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        hk.outfeed(x, x.shape)
        hk.outfeed(hk.tuple_(b, [-x, x]), Shape.tuple((x.shape, x.shape)))
        return x

    result, outfed = run(function, VECTOR, return_outfeed=True)
    assert np.array_equal(result, VECTOR) and np.array_equal(outfed[0], VECTOR)
    assert np.array_equal(outfed[1][0], -VECTOR) and np.array_equal(outfed[1][1], VECTOR)


@rule("OUTFEED-3")
@pytest.mark.parametrize("shape", [hk.f32[4], hk.s32[3], Shape.tuple((hk.f32[3],))])
def test_outfeed_shape_is_the_operand_shape(shape: Shape) -> None:
    with rejects("OUTFEED-3"):
        build(lambda b, x: hk.outfeed(x, shape), hk.f32[3])


@rule("OUTFEED-4", "HOP-28")
def test_outfeed_takes_a_token() -> None:
    with rejects("OUTFEED-4"):
        build(lambda b, x: hk.outfeed_with_token(x, x, x.shape), hk.f32[3])
    assert Outfeed(None, "cfg").completed([hk.f32[3], TOKEN]) is Outfeed(hk.f32[3], "cfg")


# -- send and recv


@rule("COMM-1", "COMM-2", "COMM-11", "BEY-69")
def test_what_is_sent_is_received() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        hk.send(-x, CHANNEL)
        return hk.recv(b, hk.f32[3], CHANNEL)

    assert np.array_equal(run(function, VECTOR), -VECTOR)
    assert build(lambda b, x: hk.send(x, CHANNEL), hk.f32[3]).shape is TOKEN
    assert build(lambda b, x: hk.send_with_token(x, b.create_token(), CHANNEL), hk.f32[3]).shape is TOKEN
    received = build(lambda b: hk.recv_with_token(b.create_token(), hk.f32[3], CHANNEL))
    assert received.shape is Shape.tuple((hk.f32[3], TOKEN))


@rule("COMM-11")
def test_recv_comes_before_send_and_send_before_recv_done() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        context = emit(Recv(1, False, CONTEXT), b.create_token(), shape=CONTEXT)
        started = b.after_all([context[2]])
        sent = emit(SendDone(1), emit(Send(1), x, started))
        del sent
        return emit(RecvDone(1), context)[0]

    assert np.array_equal(run(function, VECTOR), VECTOR)


@rule("COMM-1", "COMM-11")
def test_what_a_loop_sends_arrives_in_order() -> None:
    def step(s: hk.XlaOp) -> list[hk.XlaOp]:
        token = hk.send_with_token(s[1], s[2], CHANNEL)
        return [s[0] + 1, s[1] * 2.0, token]

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        state = hk.tuple_(b, [b.constant(np.int32(0)), x, b.create_token()])
        token = hk.while_(lambda s: hk.lt(s[0], 2), step, state)[2]
        first = hk.recv_with_token(token, hk.f32[3], CHANNEL)
        second = hk.recv_with_token(first[1], hk.f32[3], CHANNEL)
        return hk.tuple_(b, [first[0], second[0]])

    first, second = run(function, VECTOR)
    assert np.array_equal(first, VECTOR) and np.array_equal(second, VECTOR * 2)


@rule("COMM-11", "EXEC-1")
def test_a_send_in_a_called_computation_runs_before_the_recv_that_waits_for_it() -> None:
    def pass_on(s: hk.XlaOp) -> hk.XlaOp:
        hk.send(s, CHANNEL)
        return s + s

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        received = hk.recv(b, hk.f32[3], CHANNEL)
        return received + b.call(lambda s: s.builder.call(pass_on, [s]), [x])

    assert np.array_equal(run(function, VECTOR), VECTOR * 3)


@rule("COMM-11", "EXEC-1")
def test_a_send_runs_before_the_recv_that_waits_for_it_wherever_it_stands() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        received = hk.recv(b, hk.f32[3], CHANNEL)
        again = hk.recv(b, hk.f32[3], hk.ChannelHandle(2))
        hk.send(received + x, hk.ChannelHandle(2))
        hk.send(-x, CHANNEL)
        return again

    assert np.array_equal(run(function, VECTOR), [0, 0, 0])


@rule("COMM-3")
def test_sent_and_received_shapes_agree() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        hk.send(x, CHANNEL)
        return hk.recv(b, hk.f32[4], CHANNEL)

    with rejects("COMM-3"):
        run(function, VECTOR)


@rule("COMM-3", "COMM-12")
def test_a_value_is_received_once() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> list[hk.XlaOp]:
        hk.send(x, CHANNEL)
        return [hk.recv(b, hk.f32[3], CHANNEL), hk.recv(b, hk.f32[3], CHANNEL)]

    with rejects("COMM-12"):
        run(function, VECTOR)


@rule("COMM-12")
def test_waiting_for_what_cannot_come_is_an_error() -> None:
    """Receive on one channel before sending on it, in the order that the tokens force."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        data, token = hk.recv_with_token(b.create_token(), hk.f32[3], CHANNEL)
        hk.send_with_token(x, token, CHANNEL)
        return data

    with rejects("COMM-12"):
        run(function, VECTOR)


@rule("COMM-4", "COMM-14", "BEY-70")
@pytest.mark.parametrize(
    ("label", "function"),
    [
        ("COMM-4", lambda b, x: hk.send(x, hk.ChannelHandle(1, "device_to_host"))),
        ("COMM-4", lambda b, x: hk.recv(b, x.shape, hk.ChannelHandle(1, "host_to_device"))),
        ("COMM-4", lambda b, x: hk.ChannelHandle(1, "sideways")),
        ("COMM-14", lambda b, x: hk.send_to_host(x, b.create_token(), x.shape, CHANNEL)),
        ("COMM-14", lambda b, x: hk.recv_from_host(b.create_token(), x.shape, CHANNEL)),
        (
            "COMM-14",
            lambda b, x: hk.send_to_host(x, b.create_token(), hk.f32[4], TO_HOST),
        ),
        ("COMM-14", lambda b, x: hk.recv_from_host(b.create_token(), NIL, hk.ChannelHandle(1, "host_to_device"))),
    ],
    ids=["COMM-4: send", "COMM-4: recv", "COMM-4: type", "COMM-14: send", "COMM-14: recv", "shape", "tuple"],
)
def test_handles_have_a_type(label: str, function: Any) -> None:
    with rejects(label):
        build(function, hk.f32[3])


@rule("COMM-14", "COMM-16", "BEY-70")
def test_host_transfers() -> None:
    to_host, from_host = hk.ChannelHandle(2, "device_to_host"), hk.ChannelHandle(3, "host_to_device")
    sent = build(lambda b, x: hk.send_to_host(x, b.create_token(), x.shape, to_host), hk.f32[3])
    assert sent.shape is TOKEN and sent.instruction.op is SendDone(2, True)
    got = build(lambda b: hk.recv_from_host(b.create_token(), hk.f32[3], from_host))
    assert got.shape is Shape.tuple((hk.f32[3], TOKEN)) and got.instruction.op is RecvDone(3, True)
    assert Send(2).is_host_transfer is False


@rule("COMM-5", "COMM-6", "COMM-7", "COMM-8", "COMM-13", "HOP-29")
def test_contexts() -> None:
    context = build(lambda b, x: emit(Send(1), x, b.create_token()), hk.f32[3])
    assert context.shape is CONTEXT and emit(SendDone(1), context).shape is TOKEN
    pair = Shape.tuple((hk.f32[3], hk.s32[()]))
    assert build(lambda b, x: emit(Send(1), x, b.create_token()), pair).shape.elements[0] is pair
    received = build(lambda b: emit(Recv(1, False, CONTEXT), b.create_token(), shape=CONTEXT))
    assert received.shape is CONTEXT and emit(RecvDone(1), received).shape is Shape.tuple((hk.f32[3], TOKEN))


@pytest.mark.parametrize(
    ("label", "function"),
    [
        ("COMM-5", lambda b, x: emit(Send(1), x, x)),
        ("COMM-6", lambda b, x: emit(SendDone(1), x)),
        ("COMM-7", lambda b, x: emit(Recv(1, False, CONTEXT), x)),
        ("COMM-8", lambda b, x: emit(RecvDone(1), x)),
        ("HOP-30", lambda b, x: emit(Recv(1, False, hk.f32[3]), b.create_token())),
        ("HOP-30", lambda b, x: emit(Recv(1, False, Shape.tuple((hk.f32[3], TOKEN))), b.create_token())),
    ],
    ids=["COMM-5", "COMM-6", "COMM-7", "COMM-8", "HOP-30: array", "HOP-30: pair"],
)
def test_transfers_reject(label: str, function: Any) -> None:
    with rejects(label):
        build(function, hk.f32[3])


# -- asynchronous forms


def square_started(b: hk.Builder, x: hk.XlaOp, state: Shape | None = None) -> hk.XlaOp:
    inner = b.create_sub_builder("wrapped")
    parameter = inner.parameter(0, hk.f32[3])
    wrapped = inner.build_computation(parameter * parameter)
    state = state or Shape.tuple((Shape.tuple((hk.f32[3],)), hk.f32[3], hk.u32[()]))
    return b.emit(AsyncStart("main", state), [x], [wrapped], shape=state)


@rule("BEY-56", "HASYNC-1", "HASYNC-6")
def test_the_done_gives_the_value_of_the_wrapped_computation() -> None:
    result = run(lambda b, x: emit(AsyncDone(), emit(AsyncUpdate(), square_started(b, x))), VECTOR)
    assert np.array_equal(result, VECTOR**2)


@pytest.mark.parametrize(
    "function",
    [
        lambda b, x: square_started(b, x, Shape.tuple((hk.f32[3], hk.f32[3]))),
        lambda b, x: square_started(b, x, Shape.tuple((Shape.tuple((hk.f32[3],)), hk.f32[4]))),
        lambda b, x: square_started(b, hk.tuple_(b, [x])),
        lambda b, x: emit(AsyncUpdate(), x),
        lambda b, x: emit(AsyncDone(), x),
    ],
    ids=[
        "HASYNC-1: operands",
        "HASYNC-1: result",
        "HASYNC-1: parameter",
        "HASYNC-1: update",
        "HASYNC-1: done",
    ],
)
def test_async_rejects(function: Any) -> None:
    with rejects("HASYNC-1"):
        build(function, hk.f32[3])


@rule("BEY-56", "HOP-41")
def test_copy_start_and_done() -> None:
    started = build(lambda b, x: emit(CopyStart(0), x), hk.f32[3])
    assert started.shape is Shape.tuple((hk.f32[3], hk.f32[3], hk.u32[()]))
    assert np.array_equal(run(lambda b, x: emit(CopyDone(), emit(CopyStart(), x)), VECTOR), VECTOR)
    with rejects("HOP-41"):
        build(lambda b, x: emit(CopyDone(), x), hk.f32[3])
