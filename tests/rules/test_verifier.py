"""The verifier: each rule about more than one instruction, on modules broken by hand, and its speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import Alias, HloModule
from hlokit.hlo.op import OPS
from hlokit.hlo.verifier import verify
from hlokit.ops.asynchronous import AsyncDone, AsyncStart, AsyncUpdate, CopyDone, CopyStart
from hlokit.ops.collectives import AllGather, AllReduceStart
from hlokit.ops.communication import Send, SendDone
from hlokit.ops.structure import Parameter
from hlokit.types.shape import TOKEN, Shape
from tests.counting import function_calls
from tests.rules.labels import rejects, rule


def findings(module: HloModule) -> list[str]:
    with pytest.raises(hk.VerifyError) as caught:
        verify(module)
    return caught.value.findings


def expect(module: HloModule, label: str, *parts: str) -> None:
    """Exactly one finding, with this label and these words."""
    (finding,) = findings(module)
    assert f"[{label}]" in finding and all(part in finding for part in parts), finding


def program(function: Callable[..., Any], *shapes: Shape) -> HloModule:
    builder = hk.Builder("test")
    return builder.build(function(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes))))


def chain() -> HloModule:
    """p0 -> negate -> add(negate, p0) -> copy of it all in a called computation."""
    return program(lambda b, x: hk.call(b, lambda y: y + y, [-x + x]), hk.f32[3])


def named(module: HloModule, opcode: str, computation: Computation | None = None) -> Instruction:
    return next(i for i in (computation or module.entry).instructions if i.opcode == opcode)


def test_a_good_module_passes() -> None:
    verify(chain())
    hk.verify(chain())


def test_all_findings_come_together_and_name_the_pass() -> None:
    module = chain()
    named(module, "negate").shape = hk.f32[4]
    named(module, "add").shape = hk.s32[3]
    with pytest.raises(hk.VerifyError) as caught:
        verify(module, after="simplify")
    assert len(caught.value.findings) >= 2 and "after simplify" in str(caught.value)
    assert all("test: " in finding for finding in caught.value.findings)


# -- instructions


@rule("HINST-2")
def test_a_wrong_shape() -> None:
    module = chain()
    named(module, "call").shape = hk.f32[4]
    expect(module, "HINST-2", "call", "f32[4]", "f32[3]")


@rule("HINST-2")
def test_layouts_may_differ() -> None:
    module = program(lambda b, x: -x, hk.f32[2, 3])
    negate = named(module, "negate")
    negate.shape = negate.shape.with_layout(hk.Layout((0, 1)))
    verify(module)


@rule("HINST-5", "CALL-4", "TYPE-6")
def test_operands_that_break_the_ops_own_rule() -> None:
    module = chain()
    named(module, "negate").op = OPS["add"]()
    assert any("[HINST-5]" in finding and "negate" in finding for finding in findings(module))
    module = chain()
    callee = module.entry.root.called[0]
    parameter = callee.parameters[0]
    parameter.op, parameter.shape = Parameter(0, hk.f32[4]), hk.f32[4]
    assert any("[CALL-4]" in finding for finding in findings(module))
    mixed = program(lambda b, x, y: x + x, hk.f32[3], hk.f64[3])
    add, other = named(mixed, "add"), mixed.entry.parameters[1]
    add.operands = (add.operands[0], other)
    other.users[add] = None
    assert any("[TYPE-" in finding or "[BIN-" in finding for finding in findings(mixed))


@rule("HINST-6")
def test_called_computations_missing() -> None:
    module = chain()
    named(module, "call").called = ()
    expect(module, "HINST-6", "call")


@rule("BUILDER-16")
def test_operands_of_another_computation() -> None:
    module = chain()
    stranger = named(module, "add", module.entry.root.called[0])
    negate = named(module, "negate")
    negate.operands = (stranger,)
    assert any("[BUILDER-16]" in f and "negate" in f and stranger.name in f for f in findings(module))


@rule("BUILDER-16")
def test_users_that_disagree_with_operands() -> None:
    module = chain()
    module.entry.parameters[0].users.clear()
    assert {f.rsplit(" ", 1)[-1] for f in findings(module)} == {"[BUILDER-16]"}
    module = chain()
    call = module.entry.root
    call.users[named(module, "negate")] = None
    expect(module, "BUILDER-16", call.name)
    module = chain()
    module.entry.root.parent = None
    assert any("[BUILDER-16]" in finding for finding in findings(module))


@rule("HCATTR-3")
def test_replication_flags_per_leaf() -> None:
    module = chain()
    module.entry.parameters[0].ensure_extra().parameter_replication = (True, False)
    expect(module, "HCATTR-3", "2 flags for 1")


# -- computations


@rule("HCOMP-2", "HCOMP-6")
def test_names_that_are_taken() -> None:
    module = chain()
    named(module, "add").name = named(module, "negate").name
    expect(module, "HCOMP-6", named(module, "negate").name)
    module = chain()
    module.entry.root.called[0].name = module.entry.name
    expect(module, "HCOMP-2", module.entry.name)


@rule("HCOMP-4", "HCOMP-5")
def test_root_and_content() -> None:
    module = chain()
    module.entry.root_or_none = module.entry.root.called[0].root
    assert any("[HCOMP-4]" in finding for finding in findings(module))
    module = chain()
    module.add_computation(Computation("empty"))
    expect(module, "HCOMP-5", "empty")


@rule("HCOMP-7")
def test_a_cycle() -> None:
    module = chain()
    negate, add = named(module, "negate"), named(module, "add")
    del negate.operands[0].users[negate]
    negate.operands = (add,)
    add.users[negate] = None
    expect(module, "HCOMP-7", "cycle", negate.name, add.name)


@rule("HCOMP-8")
def test_parameter_numbers() -> None:
    module = program(lambda b, x, y: x + y, hk.f32[3], hk.f32[3])
    module.entry.parameters[1].op = Parameter(0, hk.f32[3])
    expect(module, "HCOMP-8", "[0, 0]")
    module = chain()
    module.entry.parameters[0].op = Parameter(1, hk.f32[3])
    expect(module, "HCOMP-8", "[1]")


@rule("HCOMP-2")
def test_calls() -> None:
    module = chain()
    module.remove_computation(module.entry.root.called[0])
    expect(module, "HCOMP-2", "not in the module")
    module = chain()
    callee = module.entry.root.called[0]
    inner = hk.Builder("inner")
    x = inner.parameter(0, hk.f32[3])
    loop = inner.build_computation(hk.call(inner, callee, [x]))
    module.add_computation(loop)
    callee.root.op, callee.root.called, callee.root.operands = OPS["call"](), (loop,), (callee.parameters[0],)
    expect(module, "HCOMP-2", "calls itself")


@rule("HCATTR-4", "HCATTR-5")
def test_control_predecessors() -> None:
    module = chain()
    negate, add = named(module, "negate"), named(module, "add")
    add.ensure_extra().control_predecessors = [negate]
    verify(module)
    negate.ensure_extra().control_predecessors = [add]
    expect(module, "HCATTR-5", "cycle")
    negate.ensure_extra().control_predecessors = [negate]
    assert any("[HCATTR-5]" in finding for finding in findings(module))
    negate.ensure_extra().control_predecessors = [module.entry.root.called[0].root]
    expect(module, "HCATTR-4", negate.name)


@rule("HMOD-2")
def test_a_schedule_has_operands_before_users() -> None:
    module = chain()
    module.is_scheduled = True
    verify(module)
    module.entry.reorder(reversed(module.entry.instructions))
    expect(module, "HMOD-2", module.entry.name)
    module.is_scheduled = False
    verify(module)


# -- the module


@rule("HMOD-17")
def test_there_is_an_entry() -> None:
    module = chain()
    module.entry_or_none = None
    expect(module, "HMOD-17")
    expect(HloModule("nothing"), "HMOD-17")


@rule("HMOD-5")
def test_entry_layout() -> None:
    module = program(lambda b, x: -x, hk.f32[2, 3])
    module.parameter_layouts, module.result_layout = [hk.f32[2, 3].with_layout(hk.Layout((0, 1)))], hk.f32[2, 3]
    verify(module)
    module.parameter_layouts = [hk.f32[3, 2]]
    expect(module, "HMOD-5", "parameter 0")
    module.parameter_layouts = []
    expect(module, "HMOD-5", "0 parameters")
    module.parameter_layouts, module.result_layout = None, hk.s32[2, 3]
    expect(module, "HMOD-5", "result")


PAIR = Shape.tuple((hk.f32[3], hk.s32[2]))


@pytest.mark.parametrize(
    ("aliases", "part"),
    [
        ([Alias((2,), 0, (0,))], "no output {2}"),
        ([Alias((0,), 1)], "no parameter 1"),
        ([Alias((0,), 0, (5,))], "no parameter 0 {5}"),
        ([Alias((0,), 0, (1,), "must-alias")], "different sizes"),
        ([Alias((0,), 0, (0,)), Alias((0,), 0, (0,))], "twice"),
    ],
    ids=["HMOD-7: output", "HMOD-7: parameter", "HMOD-7: index", "HMOD-7: size", "HMOD-7: twice"],
)
def test_aliases(aliases: list[Alias], part: str) -> None:
    module = program(lambda b, t: hk.tuple_(b, [t[0], t[1]]), PAIR)
    module.input_output_alias = [Alias((1,), 0, (1,))]
    verify(module)
    module.input_output_alias = aliases
    expect(module, "HMOD-7", part)


@rule("HMOD-7", "HMOD-8", "BUILDER-13")
def test_the_builder_checks_aliases_and_donors_at_build() -> None:
    builder = hk.Builder("test")
    x = builder.parameter(0, hk.f32[3])
    builder.set_up_alias((), 0)
    builder.add_buffer_donor(3)
    with rejects("HMOD-8"):
        builder.build(-x)


# -- channels, groups, asynchronous states


@rule("GRP-6")
def test_one_channel_for_one_kind() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        gathered = hk.all_gather(x, 0, 1, channel_id=1)
        return hk.all_reduce(gathered, hk.add, channel_id=channel)

    channel = 2
    verify(program(function, hk.f32[3]))
    channel = 1
    expect(program(function, hk.f32[3]), "GRP-6", "channel 1", "all-gather", "all-reduce")


@rule("GRP-6")
def test_start_and_plain_form_are_one_kind() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        start = hk.all_reduce(x, hk.add, channel_id=1).instruction
        state = emit(AllReduceStart(1), x, called=start.called)
        return emit(OPS["all-reduce-done"](), state)

    verify(program(function, hk.f32[3]))


@rule("COMM-15")
def test_a_channel_of_send_is_for_no_collective() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        hk.send(x, hk.ChannelHandle(1))
        return hk.all_gather(x, 0, 1, channel_id=1)

    expect(program(function, hk.f32[3]), "COMM-15", "channel 1")


@rule("COMM-9")
def test_a_context_goes_to_one_done() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        context = emit(Send(1), x, b.create_token())
        return hk.tuple_(b, [*(emit(SendDone(1), context) for _ in range(count)), *uses(context)])

    uses: Callable[[hk.XlaOp], list[hk.XlaOp]] = lambda context: []  # noqa: E731
    count = 1
    verify(program(function, hk.f32[3]))
    count = 0
    expect(program(function, hk.f32[3]), "COMM-9", "nothing")
    count = 2
    expect(program(function, hk.f32[3]), "COMM-9", "send-done")
    count = 1
    uses = lambda context: [context[0]]  # noqa: E731
    expect(program(function, hk.f32[3]), "COMM-9", "get-tuple-element")


@rule("COMM-9")
def test_a_done_takes_the_context_of_its_own_kind() -> None:
    context = Shape.tuple((hk.f32[3], hk.u32[()], TOKEN))
    expect(program(lambda b, c: emit(SendDone(1), c), context), "COMM-9", "parameter")


@rule("COMM-10")
@pytest.mark.parametrize("done", [SendDone(2), SendDone(1, True)], ids=["channel", "host"])
def test_start_and_done_agree(done: SendDone) -> None:
    module = program(lambda b, x: emit(done, emit(Send(1), x, b.create_token())), hk.f32[3])
    expect(module, "COMM-10")


def started(b: hk.Builder, x: hk.XlaOp, thread: str = "main") -> hk.XlaOp:
    inner = b.create_sub_builder("wrapped")
    parameter = inner.parameter(0, hk.f32[3])
    state = Shape.tuple((Shape.tuple((hk.f32[3],)), hk.f32[3]))
    wrapped = inner.build_computation(-parameter)
    return b.emit(AsyncStart(thread, state), [x], [wrapped], shape=state)


@rule("HASYNC-7")
@pytest.mark.parametrize(
    "function",
    [
        lambda b, x: (started(b, x), x)[1],
        lambda b, x: [emit(AsyncDone(), s) for s in [started(b, x)] * 2],
        lambda b, x: started(b, x)[1],
        lambda b, x: emit(AsyncUpdate(), started(b, x)),
        lambda b, x: emit(CopyStart(), x),
        lambda b, x: (emit(CopyStart(), x), x)[1],
        lambda b, x: (state := emit(CopyStart(), x), emit(CopyDone(), state))[0],
    ],
    ids=["no done", "two dones", "another user", "ends in an update", "root", "copy without done", "root and done"],
)
def test_a_start_has_one_chain_to_one_done(function: Any) -> None:
    expect(program(function, hk.f32[3]), "HASYNC-7")


@rule("HASYNC-1", "HASYNC-7", "HASYNC-4")
def test_good_chains() -> None:
    verify(program(lambda b, x: emit(AsyncDone(), emit(AsyncUpdate(), started(b, x))), hk.f32[3]))
    verify(program(lambda b, x: emit(CopyDone(), emit(CopyStart(), x)), hk.f32[3]))
    state = Shape.tuple((Shape.tuple((hk.f32[3],)), hk.f32[3]))
    expect(program(lambda b, s: emit(AsyncDone(), s), state), "HASYNC-1", "parameter")


@rule("HASYNC-5")
def test_threads_agree() -> None:
    module = program(lambda b, x: emit(AsyncDone(), started(b, x, "copies")), hk.f32[3])
    expect(module, "HASYNC-5", "copies")
    module.all_computations[-1].execution_thread = "copies"
    verify(module)


@pytest.mark.parametrize(
    ("label", "function"),
    [
        ("GRP-2", lambda b, x: hk.all_reduce(x, hk.add, [[0, 1]])),
        ("AGATHER-4", lambda b, x: hk.all_gather(x, 0, 2)),
        ("RSCAT-4", lambda b, x: hk.reduce_scatter(x, hk.add, 0, 2)),
        ("A2A-4", lambda b, x: hk.all_to_all(x, 0, 0, 3)),
        ("A2A-5", lambda b, x: hk.all_to_all_tuple([x, x])),
        ("CPERM-5", lambda b, x: hk.collective_permute(x, [(0, 4)])),
        ("GRP-2", lambda b, x: hk.collective_broadcast(x, [[4]])),
    ],
    ids=["GRP-2", "AGATHER-4", "RSCAT-4", "A2A-4", "A2A-5", "CPERM-5", "GRP-2: broadcast"],
)
def test_groups_fit_the_number_of_replicas(label: str, function: Any) -> None:
    """Four replicas, where the module says so; without a number anything goes."""
    module = program(function, hk.f32[6])
    verify(module)
    module.replica_count = 4
    expect(module, label)


@rule("GRP-4")
@pytest.mark.parametrize(
    ("channel", "flattened", "groups", "count"),
    [(None, False, [[0, 1]], 2), (1, False, [[0, 1]], 6), (1, True, [[0, 1, 2, 3, 4, 5]], 6)],
)
def test_group_sizes_by_mode(channel: int | None, flattened: bool, groups: Any, count: int) -> None:
    """Two replicas of three partitions."""
    for given, good in ((count, True), (5, False)):
        op = AllGather(channel, (), False, 0, False, hk.f32[given])
        module = program(lambda b, x, o=op: emit(o, x), hk.f32[1])
        instruction = module.entry.root
        instruction.op = AllGather(channel, groups if good else (), False, 0, flattened and good, hk.f32[given])
        module.replica_count, module.num_partitions = 2, 3
        if good:
            verify(module)
        else:
            expect(module, "AGATHER-4")


# -- work


def _large(count: int) -> HloModule:
    builder = hk.Builder("large", source_info=False)
    values = [builder.parameter(0, hk.f32[4, 4]), builder.parameter(1, hk.f32[4, 4])]
    ops = [OPS["add"](), OPS["transpose"]((1, 0)), OPS["multiply"](), OPS["negate"]()]
    for number in range(count):
        op = ops[number % len(ops)]
        values.append(emit(op, *values[-(op.arity or 1) :]))
    return builder.build(values[-1])


def test_verifying_is_linear() -> None:
    """Four times the instructions take four times the calls; bench/graph.py has the time."""
    modules = [_large(count) for count in (2_000, 8_000)]
    small, large = (function_calls(lambda module=module: verify(module)) for module in modules)
    assert large < 5 * small
