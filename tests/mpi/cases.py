"""What ranks check: each case is a function of a world, called on all ranks.

mpirun -n 4 python -m tests.mpi.cases [EACH] [NAME...]      # each rank has so many devices, by default one
python -m hlokit.launch --collectives gloo -n 4 -- python -m tests.mpi.cases

It prints "ok NAME" for each that passed; the first failure ends it.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.devices.processes import collective
from hlokit.hlo.computation import counted
from hlokit.ops.collectives import AllReduceDone, AllReduceStart
from tests.devices.programs import F, add, is_replica, program

Function = Callable[..., Any]
BF16 = hk.bf16.numpy
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-40, 3e38]


def values(world: Any, dtype: Any, length: int = 24, seed: int = 0) -> list[Any]:
    """An array for each device; floats have every special value against every other."""
    numbers = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "b":
        return [numbers.integers(0, 2, length).astype(dtype) for _ in range(world.size)]
    if np.dtype(dtype).kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        return [numbers.integers(least, most, length, dtype, endpoint=True) for _ in range(world.size)]
    with np.errstate(all="ignore"):
        return [numbers.choice(SPECIAL, length).astype(dtype) for _ in range(world.size)]


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def same(found: Any, wanted: Any, *, nan_bits: bool = True) -> None:
    """Bit for bit; without `nan_bits`, one NaN is as good as another."""
    assert len(leaves(found)) == len(leaves(wanted))
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        if a is None or b is None:
            assert a is b
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (a.dtype, a.shape, b.dtype, b.shape)
        if not nan_bits:
            a, b = (np.where(v != v, v.dtype.type(np.nan), v) if v.dtype.kind not in "iub" else v for v in (a, b))
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes(), (a, b)


def compare(world: Any, function: Function, arrays: list[Any], partitions: int = 1, **queues: Any) -> None:
    """The interpreter and machine code give on this rank what they give on this device among threads."""
    first = np.asarray(arrays[0])
    module = program(function, hk.dtype(first.dtype)[first.shape])
    counts = {"replicas": world.size // partitions, "partitions": partitions}
    arguments = [[a] for a in arrays]
    wanted = hk.evaluate(module, *arguments, **counts, **queues)
    run = hk.compile(module, **counts, threads=1)
    compiled = run(*arguments, **queues)
    if isinstance(world, Several):
        given, own = world.part(arguments), {name: world.part(queue) for name, queue in queues.items()}
        found = hk.evaluate(module, *given, **counts, **own, world=world.world)
        same(tuple(found), tuple(world.part(wanted)))
        same(tuple(run(*given, **own, world=world.world)), tuple(world.part(compiled)), nan_bits=False)
        return
    own = {name: queue[world.rank] for name, queue in queues.items()}
    same(hk.evaluate(module, arrays[world.rank], **counts, **own, world=world), wanted[world.rank])
    same(run(arrays[world.rank], **own, world=world), compiled[world.rank], nan_bits=False)


@dataclass
class Several:
    """A world of which each rank has several devices. `size`: how many there are in all."""

    world: Any
    each: int

    @property
    def size(self) -> int:
        return self.world.size * self.each

    def part(self, values: Any) -> list[Any]:
        """Those of this rank's devices."""
        return list(values)[self.world.rank * self.each : (self.world.rank + 1) * self.each]


# -- collectives


FOLDS: dict[str, Function] = {
    "add": add,
    "multiply": lambda a, b: a * b,
    "subtract": lambda a, b: a - b,
    "maximum": hk.max,
    "minimum": hk.min,
    "second": lambda a, b: b,
}


def all_reduce(world: Any) -> None:
    for dtype in (np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16, BF16, np.float32, np.float64):
        for fold in FOLDS.values():
            compare(world, lambda b, x, f=fold: hk.all_reduce(x, f), values(world, dtype))


def all_reduce_of_flags(world: Any) -> None:
    for fold in (hk.or_, hk.and_, hk.xor, hk.max, hk.min):
        compare(world, lambda b, x, f=fold: hk.all_reduce(x, f), values(world, np.bool_))


def extremes_without_nan(world: Any) -> None:
    """-0 below +0, by MPI's own operation."""
    numbers = np.random.default_rng(1)
    for dtype in (np.float16, BF16, np.float32, np.float64):
        arrays = [numbers.choice([0.0, -0.0, 1.0, -np.inf], 40).astype(dtype) for _ in range(world.size)]
        for fold in (hk.max, hk.min):
            compare(world, lambda b, x, f=fold: hk.all_reduce(x, f), arrays)


def groups(world: Any) -> None:
    order = list(range(world.size))[::-1]
    halves = [order[::2], order[1::2]]
    arrays = values(world, np.float32)
    for listed in ([order], halves, [[i] for i in order]):
        compare(world, lambda b, x, g=listed: hk.all_reduce(x, FOLDS["subtract"], g), arrays)
        compare(world, lambda b, x, g=listed: hk.collective_broadcast(x, g), arrays)
        count = len(listed[0])
        if count != len(listed[-1]):  # those below need groups of equal size
            continue
        compare(world, lambda b, x, g=listed, n=count: hk.all_gather(x, 0, n, g), arrays)
        compare(world, lambda b, x, g=listed, n=count: hk.reduce_scatter(x, FOLDS["subtract"], 0, n, g), arrays)
        compare(world, lambda b, x, g=listed, n=count: hk.all_to_all(x, 0, 0, n, g), arrays)
    compare(world, lambda b, x: hk.all_reduce(x, add, [order[:1], order[1:]]), arrays)
    compare(world, lambda b, x: hk.collective_broadcast(x, [order[:1]]), arrays)


def unasked(world: Any) -> None:
    """Where devices surely come to the same collectives, the hub is asked once for each group that is new, if at all; after
    a failure for each again."""
    line = (world.world if isinstance(world, Several) else world)._line
    asked, ask = [0], line.ask

    def counted(*arguments: Any, **message: Any) -> Any:
        asked[0] += message["do"] == "meet"
        return ask(*arguments, **message)

    def rounds(b: hk.Builder, x: hk.XlaOp, turns: Any) -> hk.XlaOp:
        state = hk.tuple_(b, [turns, x])
        return hk.while_(lambda s: hk.gt(s[0], 0), lambda s: [s[0] - 1, hk.all_reduce(s[1], hk.max)], state)[1]

    each, every = int(getattr(world, "each", 1)), [np.arange(3, dtype=np.int32) for _ in range(world.size)]
    line.ask = counted
    try:
        compare(world, lambda b, x: rounds(b, x, b.constant(np.int32(5))), every)
        assert asked[0] <= each, asked  # the first time after a failure
        asked[0] = 0
        compare(world, lambda b, x: rounds(b, x, b.constant(np.int32(5))), every)
        assert asked[0] == 0, asked
        compare(world, lambda b, x: rounds(b, x, hk.reshape(hk.slice_in_dim(x, 2, 3, 1, 0), [])), every)
        assert asked[0] == 2 * 2 * each, asked
    finally:
        line.ask = ask


def exchanges(world: Any) -> None:
    arrays = [a.reshape(12, 2) for a in values(world, np.int16)]
    n = world.size
    ring = [(i, (i + 1) % n) for i in range(n)]
    for pairs in (ring, ring[1:], [(0, 0)], []):
        compare(world, lambda b, x, p=pairs: hk.collective_permute(x, p), arrays)
    compare(world, lambda b, x: hk.all_to_all(x, 0, 0, n), arrays)
    compare(world, lambda b, x: hk.all_to_all(x, 0, 1, n), arrays)
    compare(world, lambda b, x: hk.all_gather(x, 1, n), arrays)
    compare(world, lambda b, x: hk.all_to_all_tuple([x] * (n - 1) + [-x]), arrays)


def several_operands(world: Any) -> None:
    arrays = values(world, np.float32)

    def started(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        inner = b.create_sub_builder("fold")
        fold = inner.build_computation(inner.parameter(0, hk.f32[()]) - inner.parameter(1, hk.f32[()]))
        return emit(AllReduceDone(), emit(AllReduceStart(), x, called=[fold]))

    def reduced(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return hk.all_reduce_tuple([x, hk.slice_in_dim(x, 0, 3, 1, 0), x * x], FOLDS["subtract"])

    compare(world, reduced, arrays)
    compare(world, started, arrays)
    n = world.size
    compare(world, lambda b, x: hk.all_gather_tuple([x, -x], 0, n), arrays)
    compare(world, lambda b, x: hk.collective_broadcast(x[0] if isinstance(x, tuple) else x, [list(range(n))]), arrays)


def no_elements(world: Any) -> None:
    compare(world, lambda b, x: hk.all_reduce(x, add), [np.zeros((0, 3), F)] * world.size)
    compare(world, lambda b, x: hk.all_gather(x, 0, world.size), [np.zeros((0, 3), F)] * world.size)
    compare(world, lambda b, x: hk.all_reduce(x, FOLDS["subtract"]), [np.array(d, F) for d in range(world.size)])


def large(world: Any) -> None:
    numbers = np.random.default_rng(2)
    arrays = [numbers.standard_normal(300_007).astype(F) for _ in range(world.size)]
    compare(world, lambda b, x: hk.all_reduce(x, add), arrays)
    compare(world, lambda b, x: hk.all_gather(x, 0, world.size), arrays)
    compare(world, lambda b, x: hk.collective_permute(x, [(0, 1)]), arrays)


def in_pieces(world: Any) -> None:
    """More bytes than go at a time; of an all-reduce, a NaN may be in a late piece."""
    kept, collective._PIECE = collective._PIECE, 1 << 8
    try:
        for dtype in (np.int32, BF16, np.float64):
            arrays = [np.random.default_rng(d).integers(-99, 99, 1001).astype(dtype) for d in range(world.size)]
            for fold in (add, FOLDS["subtract"], hk.max):
                compare(world, lambda b, x, f=fold: hk.all_reduce(x, f), arrays)
        arrays[-1][900] = np.nan
        compare(world, lambda b, x: hk.all_reduce(x, add), arrays)
        compare(world, lambda b, x: hk.all_reduce_tuple([x, x * x, hk.slice_in_dim(x, 0, 7, 1, 0)], add), arrays)
        n, collective._PIECE = world.size, 1 << 12
        tables = [np.random.default_rng(d).integers(-99, 99, (2, 8 * n, 180 * n)).astype(F) for d in range(n)]
        for dimension in range(1, 3):
            compare(world, lambda b, x, d=dimension: hk.all_gather(x, d, n), tables)
            compare(world, lambda b, x, d=dimension: hk.all_to_all(x, d, 1, n), tables)
            compare(world, lambda b, x, d=dimension: hk.reduce_scatter(x, FOLDS["subtract"], d, n), tables)
        compare(world, lambda b, x: hk.all_gather_tuple([x, hk.slice_in_dim(x, 0, 3, 1, 2)], 1, n), tables)
        compare(world, lambda b, x: hk.collective_permute(x, [(0, 1), (1, 0)]), tables)
        compare(world, lambda b, x: hk.collective_broadcast(x, [list(range(n))]), tables)
    finally:
        collective._PIECE = kept


def ragged(world: Any) -> None:
    """What has no description as moves of blocks."""
    n = world.size

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        table = lambda v: b.constant(np.array(v, np.int32))  # noqa: E731
        start = hk.convert_element_type(b.replica_id(), hk.s32)
        targets = hk.broadcast(start, [n])
        return hk.ragged_all_to_all(x, table(range(n)), table([1] * n), x * F(0), targets, table([1] * n))

    compare(world, function, [np.arange(24, dtype=F) + 100 * d for d in range(n)])


def partitions(world: Any) -> None:
    arrays = values(world, np.int32)
    both, columns = {"channel_id": 1}, world.size if world.size % 2 else 2
    compare(world, lambda b, x: hk.all_reduce(x, add), arrays, columns)
    compare(world, lambda b, x: hk.all_reduce(x, FOLDS["subtract"], **both), arrays, columns)
    compare(world, lambda b, x: hk.collective_permute(x, [(1, 0)], 3), arrays, columns)


def control_flow(world: Any) -> None:
    """Collectives in a loop of as many passes as the data say, and in a branch that all take."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        first = hk.reshape(hk.slice_in_dim(hk.all_reduce(x, hk.max), 0, 1, 1, 0), [])
        count = hk.rem(hk.abs(first), np.int32(4)) + np.int32(2)
        state = hk.tuple_(b, [count, x])

        def body(s: hk.XlaOp) -> list[hk.XlaOp]:
            return [s[0] - 1, hk.collective_permute(hk.all_reduce(s[1], FOLDS["subtract"]), [(0, 1), (1, 0)])]

        looped = hk.while_(lambda s: hk.gt(s[0], 0), body, state)[1]
        odd = hk.eq(hk.rem(count, np.int32(2)), np.int32(1))
        return hk.conditional(odd, looped, lambda v: hk.all_reduce(v, add), looped, lambda v: hk.all_reduce(-v, add))

    compare(world, function, values(world, np.int32))


def dynamic_sizes(world: Any) -> None:
    """Arrays of run-time sizes, other ones on each device."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        size = hk.convert_element_type(b.replica_id(), hk.s32) + np.int32(1)
        return hk.collective_permute(hk.set_dimension_size(x, size, 0), [(0, 1), (1, 0)])

    module = program(function, hk.f32[4])
    arrays = [np.arange(4, dtype=F) + 10 * d for d in range(world.size)]
    wanted = hk.evaluate(module, *([a] for a in arrays), replicas=world.size)
    same(hk.evaluate(module, arrays[world.rank], replicas=world.size, world=world), wanted[world.rank])


# -- channels and queues


def channels(world: Any) -> None:
    """Programs that talk: each sends to the next and the first begins."""
    n = world.size

    def part(number: int) -> Function:
        def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
            given, taken = hk.ChannelHandle(number + 1), hk.ChannelHandle((number - 1) % n + 1)
            if number == 0:
                token = hk.send_with_token(x, b.create_token(), given)
                return hk.recv_with_token(token, x.shape, taken)[0]
            received, token = hk.recv_with_token(b.create_token(), x.shape, taken)
            hk.send_with_token(received * x, token, given)
            return received

        return function

    modules = [program(part(d), hk.f32[3], name=f"part_{d}") for d in range(n)]
    programs = [(module, [np.arange(3, dtype=F) + d]) for d, module in enumerate(modules)]
    same(hk.evaluate_mpmd(programs, world=world), hk.evaluate_mpmd(programs)[world.rank])


def untaken_values(world: Any) -> None:
    """What was sent and never received does not turn up in the next run."""
    text = """
HloModule begins, is_scheduled=true

ENTRY main {
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  d = token[] send-done(s), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  ROOT y = f32[2] negate(x)
}
"""
    module = hk.parse(text)
    for _ in range(3):
        x = np.float32([world.rank, 1])
        same(hk.evaluate(module, x, replicas=world.size, world=world), -x)
    channels(world)


def queues(world: Any) -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        total = hk.all_reduce(b.infeed(hk.f32[()]), add)
        hk.outfeed(total + hk.reshape(hk.slice_in_dim(x, 0, 1, 1, 0), []), hk.f32[()])
        noise = hk.rng_uniform(b.constant(F(0)), b.constant(F(1)), hk.f32[4])
        return hk.tuple_(b, [total, noise])

    arrays = [np.float32([d]) for d in range(world.size)]
    feeds = [[F(d + 1)] for d in range(world.size)]
    module, counts = program(function, hk.f32[1]), {"replicas": world.size}
    wanted, outfed = hk.evaluate(module, *([a] for a in arrays), **counts, infeed=feeds, seed=5, return_outfeed=True)
    for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), hk.compile(module, **counts)):
        found = run(arrays[world.rank], infeed=feeds[world.rank], seed=5, return_outfeed=True, world=world)
        same(found[0], wanted[world.rank])
        same(tuple(found[1]), tuple(outfed[world.rank]))


def host_transfers(world: Any) -> None:
    to_host, from_host = hk.ChannelHandle(2, "device_to_host"), hk.ChannelHandle(3, "host_to_device")

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        sent = hk.send_to_host(hk.all_reduce(x, add), b.create_token(), x.shape, to_host)
        return hk.recv_from_host(sent, x.shape, from_host)[0]

    kept: dict[int, list[Any]] = {}
    x = np.float32([world.rank, 1])
    module = program(function, hk.f32[2])
    result = hk.evaluate(module, x, replicas=world.size, world=world, from_host={3: [x * 7]}, to_host=kept)
    same(result, x * 7)
    same(kept[2][0], np.float32([sum(range(world.size)), world.size]))


# -- what goes wrong


def error_of(call: Callable[[], Any], kind: type[BaseException] = hk.HlokitError) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("no error")


def deadlock(world: Any) -> None:
    """The message is that of threads, on every rank; and the next run works."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        first = hk.reshape(hk.slice_in_dim(x, 0, 1, 1, 0), [])
        return hk.conditional(hk.gt(first, F(0)), x, lambda v: hk.all_reduce(v, add), x, hk.neg)

    module, counts = program(function, hk.f32[2]), {"replicas": world.size}
    arrays = [np.float32([-1 if d == 1 else 1, d]) for d in range(world.size)]
    for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), hk.compile(module, **counts)):
        wanted = error_of(lambda run=run: run(*([a] for a in arrays)), hk.DeadlockError)
        found = error_of(lambda run=run: run(arrays[world.rank], world=world), hk.DeadlockError)
        assert str(found) == str(wanted), (str(found), str(wanted))
        assert [tuple(w) for w in found.waits] == [tuple(w) for w in wanted.waits]  # type: ignore[attr-defined]
        compare(world, lambda b, x: hk.all_reduce(x, add), arrays)


def refused(world: Any) -> None:
    module = program(
        lambda b, x: hk.conditional(is_replica(b, 0), x, lambda v: hk.all_reduce(v, add), x, hk.neg), hk.f32[2]
    )
    found = error_of(lambda: hk.evaluate(module, np.zeros(2, F), replicas=world.size, world=world), hk.DeadlockError)
    assert "GRP-8" in str(found)


def groups_that_disagree(world: Any) -> None:
    one = program(lambda b, x: hk.all_reduce(x, add, channel_id=5), hk.f32[2], name="one")
    other = program(lambda b, x: hk.all_reduce(x, add, channel_id=5), hk.f32[3], name="other")
    programs = [(other, [np.zeros(3, F)]), *[(one, [np.zeros(2, F)])] * (world.size - 1)]
    from hlokit.analysis import rendezvous

    proof, rendezvous.refuse_deadlock = rendezvous.refuse_deadlock, lambda *_: None
    try:
        found = error_of(lambda: hk.evaluate_mpmd(programs, world=world), hk.EvaluationError)
    finally:
        rendezvous.refuse_deadlock = proof
    assert "[GRP-6]" in str(found) and str(found).startswith("replica "), str(found)


def failing_device(world: Any) -> None:
    """Its error is everyone's; a device in a long loop of machine code is stopped."""
    module = program(lambda b, x: hk.all_reduce(b.infeed(hk.f32[()]) + hk.reshape(x, []), add), hk.f32[1])
    feeds = [[F(1)] if d != 1 else [] for d in range(world.size)]
    arrays = [np.zeros(1, F)] * world.size
    counts = {"replicas": world.size}
    for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), hk.compile(module, **counts)):
        wanted = error_of(lambda run=run: run(*([a] for a in arrays), infeed=feeds))
        found = error_of(lambda run=run: run(arrays[0], infeed=feeds[world.rank], world=world))
        assert (type(found), str(found)) == (type(wanted), str(wanted)), (str(found), str(wanted))

    def endless(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        def fed(v: hk.XlaOp) -> hk.XlaOp:
            return v + b_infeed(v)

        def loop(v: hk.XlaOp) -> hk.XlaOp:
            return hk.while_(lambda s: hk.lt(s, F(9)), lambda s: hk.neg(s), v)

        return hk.conditional(is_replica(b, 0), x, fed, x, loop)

    def b_infeed(v: hk.XlaOp) -> hk.XlaOp:
        return v.builder.infeed(hk.f32[()])

    for make in (lambda m: lambda *a, **k: hk.evaluate(m, *a, **counts, **k), lambda m: hk.compile(m, **counts)):
        run = make(program(endless, hk.f32[()]))
        found = error_of(lambda run=run: run(F(1), world=world))
        assert str(found).startswith("replica 0: ") and "INFEED-9" in str(found), str(found)


def own_error(world: Any) -> None:
    """An error that is none of hlokit's keeps its class on its rank, and is told on the others."""
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2])

    def breaks(instruction: Any, operands: Any) -> None:
        if instruction.opcode == "all-reduce" and world.rank == 1:
            raise ZeroDivisionError("broken")

    call = lambda: hk.evaluate(module, np.zeros(2, F), replicas=world.size, world=world, before=breaks)  # noqa: E731
    if world.rank == 1:
        assert error_of(call, ZeroDivisionError).__notes__ == ["on replica 1"]
    else:
        assert str(error_of(call, hk.EvaluationError)) == "replica 1: ZeroDivisionError: broken"


def bad_arguments(world: Any) -> None:
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2])
    few = error_of(lambda: hk.evaluate(module, np.zeros(2, F), replicas=world.size + 1, world=world), hk.ArgumentError)
    assert f"{world.size + 1} replicas of 1 partition on {counted(world.size, 'process', 'processes')}" in str(few)
    wrong = np.zeros(3 if world.rank == 1 else 2, F)
    shape = error_of(lambda: hk.evaluate(module, wrong, replicas=world.size, world=world), hk.ArgumentError)
    assert str(shape).startswith("replica 1: "), str(shape)


def other_program(world: Any) -> None:
    module = program(lambda b, x: hk.all_reduce(x * F(world.rank == 1), add), hk.f32[2])
    found = error_of(lambda: hk.evaluate(module, np.zeros(2, F), replicas=world.size, world=world), hk.ArgumentError)
    assert "rank 1 runs another program than rank 0" in str(found), str(found)


def closed(world: Any) -> None:
    """One who has left runs nothing, and the others learn of it."""
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2])
    other = hk.process_world()
    if world.rank == 1:
        other.close()
    found = error_of(lambda: hk.evaluate(module, np.zeros(2, F), replicas=world.size, world=other), hk.EvaluationError)
    assert str(found).startswith("this rank has left its world" if world.rank == 1 else "rank 1 has left; "), str(found)
    if world.rank != 1:
        other.close()


CASES: dict[str, Callable[[Any], None]] = {
    case.__name__: case
    for case in (
        all_reduce, all_reduce_of_flags, extremes_without_nan, groups, exchanges, several_operands, no_elements,
        large, in_pieces, ragged, partitions, control_flow, dynamic_sizes, channels, untaken_values, queues, host_transfers,
        deadlock, refused, groups_that_disagree, failing_device, own_error, unasked, bad_arguments, other_program, closed,
    )
}  # fmt: skip


# -- several devices a rank


def channels_of_several(some: Several) -> None:
    """A ring of programs in which messages stay on a rank, or go to the other."""
    n = some.size

    def part(number: int) -> Function:
        def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
            given, taken = hk.ChannelHandle(number + 1), hk.ChannelHandle((number - 1) % n + 1)
            if number == 0:
                token = hk.send_with_token(x, b.create_token(), given)
                return hk.recv_with_token(token, x.shape, taken)[0]
            received, token = hk.recv_with_token(b.create_token(), x.shape, taken)
            hk.send_with_token(received * x, token, given)
            return received

        return function

    modules = [program(part(d), hk.f32[3], name=f"part_{d}") for d in range(n)]
    programs = [(module, [np.arange(3, dtype=F) + d]) for d, module in enumerate(modules)]
    wanted = hk.evaluate_mpmd(programs)
    for _ in range(2):
        same(tuple(hk.evaluate_mpmd(programs, world=some.world)), tuple(some.part(wanted)))


def queues_of_several(some: Several) -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        total = hk.all_reduce(b.infeed(hk.f32[1]) * x, FOLDS["subtract"])
        hk.outfeed(total + x, hk.f32[1])
        return hk.tuple_(b, [total, hk.rng_uniform(b.constant(F(0)), b.constant(F(1)), hk.f32[4])])

    arrays = [[np.float32([d])] for d in range(some.size)]
    feeds = [[np.float32([d + 1])] for d in range(some.size)]
    module, counts = program(function, hk.f32[1]), {"replicas": some.size}
    wanted, outfed = hk.evaluate(module, *arrays, **counts, infeed=feeds, seed=5, return_outfeed=True)
    for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), hk.compile(module, **counts)):
        options = {"infeed": some.part(feeds), "seed": 5, "return_outfeed": True, "world": some.world}
        results, fed = run(*some.part(arrays), **options)
        same(tuple(results), tuple(some.part(wanted)))
        same(tuple(map(tuple, fed)), tuple(map(tuple, some.part(outfed))))


def deadlock_of_several(some: Several) -> None:
    """Of every device in turn: the message is that of threads; and the next run works."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        first = hk.reshape(hk.slice_in_dim(x, 0, 1, 1, 0), [])
        return hk.conditional(hk.gt(first, F(0)), x, lambda v: hk.all_reduce(v, add), x, hk.neg)

    module, counts = program(function, hk.f32[2]), {"replicas": some.size}
    compiled = hk.compile(module, **counts)
    for missing in range(some.size):
        arrays = [[np.float32([-1 if d == missing else 1, d])] for d in range(some.size)]
        for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), compiled):
            wanted = error_of(lambda run=run, a=arrays: run(*a), hk.DeadlockError)
            found = error_of(lambda run=run, a=arrays: run(*some.part(a), world=some.world), hk.DeadlockError)
            assert str(found) == str(wanted), (str(found), str(wanted))
    compare(some, lambda b, x: hk.all_reduce(x, add), [np.float32([d]) for d in range(some.size)])


def failing_device_of_several(some: Several) -> None:
    module = program(lambda b, x: hk.all_reduce(b.infeed(hk.f32[1]) + x, add), hk.f32[1])
    arrays, counts = [[np.zeros(1, F)]] * some.size, {"replicas": some.size}
    compiled = hk.compile(module, **counts)
    for failing in range(some.size):
        feeds = [[np.float32([1])] if d != failing else [] for d in range(some.size)]
        for run in (lambda *a, **k: hk.evaluate(module, *a, **counts, **k), compiled):
            wanted = error_of(lambda run=run, f=feeds: run(*arrays, infeed=f))
            own = some.part(feeds)
            found = error_of(lambda run=run, f=own: run(*some.part(arrays), infeed=f, world=some.world))
            assert (type(found), str(found)) == (type(wanted), str(wanted)), (str(found), str(wanted))


def bad_arguments_of_several(some: Several) -> None:
    module, world = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2]), some.world
    x = [np.zeros(2, F)]
    odd = error_of(lambda: hk.evaluate(module, x, x, replicas=some.size + 1, world=world), hk.ArgumentError)
    # one process can have any number of devices: then arguments are missing
    uneven = f"{some.size + 1} replicas of 1 partition on {counted(world.size, 'process', 'processes')}"
    assert (uneven if world.size > 1 else f"expected one for each of {some.size + 1} devices") in str(odd), str(odd)
    few = error_of(lambda: hk.evaluate(module, x, replicas=some.size, world=world), hk.ArgumentError)
    assert "1" in str(few) and str(some.each) in str(few), str(few)


SEVERAL: dict[str, Callable[[Any], None]] = {
    case.__name__: case
    for case in (
        all_reduce, all_reduce_of_flags, extremes_without_nan, groups, exchanges, several_operands, no_elements,
        large, in_pieces, ragged, partitions, control_flow, channels_of_several, queues_of_several, deadlock_of_several,
        failing_device_of_several, unasked, bad_arguments_of_several,
    )
}  # fmt: skip


def main(names: list[str]) -> None:
    each = int(names.pop(0)) if names and names[0].isdigit() else 1
    world = hk.process_world()
    cases = CASES if each == 1 else SEVERAL
    for name in names or list(cases):
        try:
            cases[name](world if each == 1 else Several(world, each))
        except Exception:
            print(f"{name}, rank {world.rank}: {traceback.format_exc()}", flush=True)
            time.sleep(1)
            os._exit(1)
        world.gather_text("")
        if world.rank == 0:
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
