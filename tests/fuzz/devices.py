"""Random programs for several devices, with a direct NumPy model of what they compute; and programs that deadlock.

A program is a list of steps on one vector of each device, drawn by `random_steps`. `module_of` builds it, `model`
computes it for all devices side by side, without any of the library's code. `random_deadlock` gives a program in which
some devices wait for ever.

    python -m tests.fuzz.devices --count 1000 --seed 0
    mpirun -n 4 python -m tests.fuzz.devices_mpi --count 1000
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.collectives import AllReduceDone, AllReduceStart

Array = np.ndarray[Any, Any]
Step = tuple[Any, ...]
LENGTH = 12
"""Of the vectors: groups of 1, 2, 3, 4 and 6 can cut it."""

FOLDS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: a + b, np.add),
    "subtract": (lambda a, b: a - b, np.subtract),
    "maximum": (hk.max, np.maximum),
    "minimum": (hk.min, np.minimum),
    "second": (lambda a, b: b, lambda a, b: b),
}
"""By name: the computation, and what it is in NumPy. Most are neither associative nor commutative."""


@dataclass(frozen=True)
class Program:
    """Steps for a grid of devices, and what the devices start with."""

    seed: int
    replicas: int
    partitions: int
    dtype: Any
    steps: tuple[Step, ...]
    inputs: tuple[Array, ...]

    @property
    def arguments(self) -> list[list[Array]]:
        return [[x] for x in self.inputs]


@dataclass(frozen=True)
class Groups:
    """Groups of a collective as it is written, and as devices."""

    written: Any
    channel: int | None
    is_global: bool
    devices: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return len(self.devices[0])

    def of(self, device: int) -> tuple[int, ...]:
        return next(group for group in self.devices if device in group)


# -- drawing


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.replicas = self.random.choice([1, 2, 2, 3, 4, 4, 6])
        self.partitions = self.random.choice([1, 1, 2]) if self.replicas < 6 else 1
        self.is_integral = self.random.random() < 0.7
        self.channel = 0

    @property
    def count(self) -> int:
        return self.replicas * self.partitions

    def steps(self, depth: int, length: int) -> tuple[Step, ...]:
        return tuple(self.step(depth) for _ in range(length))

    def step(self, depth: int) -> Step:
        kinds = ["local", "ids", "reduce", "reduce", "reduce-both", "started", "gather", "scatter", "exchange"]
        kinds += ["permute", "permute", "broadcast"]
        kinds += ["repeat", "repeat-alike", "if-alike", "if-own", "if-channel", "call"] if depth else []
        kind = self.random.choice(kinds)
        match kind:
            case "ids":
                return (kind,)
            case "local":
                return kind, self.random.randint(-3, 3)
            case "reduce" | "reduce-both" | "started":
                return kind, self.random.choice(list(FOLDS)), self.groups(equal=False)
            case "gather":
                groups = self.groups()
                return kind, groups, self.random.randrange(groups.size)
            case "scatter":
                return kind, self.random.choice(list(FOLDS)), self.groups(sizes=(1, 2, 3, 4, 6))
            case "exchange":
                return kind, self.groups(sizes=(1, 2, 3, 4, 6), over_partitions=True)
            case "permute":
                channel = self.new_channel() if self.random.random() < 0.5 else None
                count = self.replicas if channel is None else self.partitions
                chosen = self.random.randint(0, count)
                ends = [self.random.sample(range(count), chosen) for _ in range(2)]
                return kind, tuple(zip(*ends, strict=True)), channel
            case "broadcast":
                return kind, tuple(map(tuple, self.partition(range(self.replicas), None)[: self.random.randint(1, 3)]))
            case "repeat":
                return kind, self.random.randint(0, 3), self.steps(depth - 1, self.random.randint(1, 2))
            case "repeat-alike" | "call":
                return kind, self.steps(depth - 1, self.random.randint(1, 2))
            case "if-alike":
                return kind, self.steps(depth - 1, 1), self.steps(depth - 1, self.random.randint(0, 2))
            case "if-own":
                return kind, self.random.randrange(self.replicas), self.random.randint(1, 3)
            case _:
                return kind, self.random.randrange(self.replicas), self.random.choice(list(FOLDS)), self.new_channel()

    def new_channel(self) -> int:
        self.channel += 1
        return self.channel

    def partition(self, ids: Sequence[int], size: int | None) -> list[list[int]]:
        """The ids in groups, in any order: of one size, or of any sizes."""
        rest = self.random.sample(list(ids), len(ids))
        groups: list[list[int]] = []
        while rest:
            cut = size or self.random.randint(1, len(rest))
            groups.append(rest[:cut])
            rest = rest[cut:]
        return groups

    def groups(
        self, *, equal: bool = True, sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8), over_partitions: bool = False
    ) -> Groups:
        """Groups in any mode that the grid has room for."""
        replicas, partitions = self.replicas, self.partitions
        while True:
            mode = self.random.choice(["replica", "partition"] if over_partitions else ["replica", "both", "global"])
            channel = None if mode == "replica" else self.new_channel()
            ids = range({"partition": partitions, "global": self.count}.get(mode, replicas))
            divisors = [d for d in range(1, len(ids) + 1) if len(ids) % d == 0]
            size = self.random.choice(divisors) if equal or self.random.random() < 0.5 else None
            written: Any = self.partition(ids, size)
            form = self.random.random()
            if form < 0.25 and mode != "global":
                written, listed = [], [list(ids)]
            elif form < 0.5 and size is not None:
                written, listed = self.iota(len(ids), size)
            else:
                listed = written
            devices = _devices(mode, listed, replicas, partitions)
            if not equal or len(devices[0]) in sizes:
                return Groups(written, channel, mode == "global", devices)

    def iota(self, count: int, size: int) -> tuple[hk.ReplicaGroups, list[list[int]]]:
        first = self.random.choice([d for d in range(1, count + 1) if count % d == 0])
        shape, order = [first, count // first], self.random.choice([[0, 1], [1, 0]])
        ids = np.arange(count).reshape(shape).transpose(order).reshape(count // size, size)
        return hk.ReplicaGroups.iota(count // size, size, shape, order), ids.tolist()


def _devices(mode: str, groups: list[list[int]], replicas: int, partitions: int) -> tuple[tuple[int, ...], ...]:
    """GRP-4, written down once more: devices are numbered replica by replica."""
    if mode == "global":
        return tuple(map(tuple, groups))
    if mode == "replica":
        return tuple(tuple(i * partitions + p for i in group) for group in groups for p in range(partitions))
    if mode == "both":
        return tuple(tuple(i * partitions + p for p in range(partitions) for i in group) for group in groups)
    return tuple(tuple(r * partitions + i for i in group) for group in groups for r in range(replicas))


def random_program(seed: int) -> Program:
    """The same seed gives the same program."""
    drawing = _Drawing(seed)
    steps = drawing.steps(2, drawing.random.randint(1, 5))
    return _program(seed, drawing, steps)


def _program(seed: int, drawing: _Drawing, steps: tuple[Step, ...]) -> Program:
    dtype = np.int32 if drawing.is_integral else np.float32
    numbers = np.random.default_rng(seed)
    inputs = tuple(numbers.integers(-9, 10, LENGTH).astype(dtype) for _ in range(drawing.count))
    return Program(seed, drawing.replicas, drawing.partitions, dtype, steps, inputs)


# -- as HLO


def module_of(program: Program) -> hk.HloModule:
    builder = hk.Builder(f"devices_{program.seed}")
    x = builder.parameter(0, hk.dtype(program.dtype)[LENGTH])
    module = builder.build(_built(program.steps, x))
    module.replica_count, module.num_partitions = program.replicas, program.partitions
    return module


def _built(steps: Sequence[Step], x: hk.XlaOp) -> hk.XlaOp:
    for step in steps:
        x = _STEPS[step[0]](x, *step[1:])
    return x


def _number(x: hk.XlaOp, value: int) -> hk.XlaOp:
    return x.builder.constant(np.asarray(value, x.shape.dtype.numpy))


def _local(x: hk.XlaOp, value: int) -> hk.XlaOp:
    return hk.neg(x) + _number(x, value)


def _ids(x: hk.XlaOp) -> hk.XlaOp:
    b = x.builder
    return x + hk.convert_element_type(b.replica_id() * np.uint32(3) + b.partition_id(), x.shape.dtype)


def _told(groups: Groups) -> dict[str, Any]:
    return {
        "replica_groups": groups.written,
        "channel_id": groups.channel,
        "use_global_device_ids": groups.is_global,
    }


def _reduce(x: hk.XlaOp, fold: str, groups: Groups) -> hk.XlaOp:
    return hk.all_reduce(x, FOLDS[fold][0], **_told(groups))


def _reduce_both(x: hk.XlaOp, fold: str, groups: Groups) -> hk.XlaOp:
    both = hk.all_reduce_tuple([x, hk.neg(x)], FOLDS[fold][0], **_told(groups))
    return both[0] - hk.rev(both[1], [0])


def _started(x: hk.XlaOp, fold: str, groups: Groups) -> hk.XlaOp:
    op = AllReduceStart(groups.channel, _written(groups), False, groups.is_global)
    combiner = _combiner(x, fold)
    return emit(AllReduceDone(), emit(op, x, called=[combiner]))


def _written(groups: Groups) -> hk.ReplicaGroups:
    return groups.written if isinstance(groups.written, hk.ReplicaGroups) else hk.ReplicaGroups.explicit(groups.written)


def _combiner(x: hk.XlaOp, fold: str) -> Any:
    builder = x.builder.create_sub_builder("combiner")
    scalar = x.shape.dtype[()]
    return builder.build_computation(FOLDS[fold][0](builder.parameter(0, scalar), builder.parameter(1, scalar)))


def _gather(x: hk.XlaOp, groups: Groups, block: int) -> hk.XlaOp:
    gathered = hk.all_gather(x, 0, groups.size, **_told(groups))
    return x + hk.slice_in_dim(gathered, block * LENGTH, (block + 1) * LENGTH, 1, 0)


def _scatter(x: hk.XlaOp, fold: str, groups: Groups) -> hk.XlaOp:
    part = hk.reduce_scatter(x, FOLDS[fold][0], 0, groups.size, **_told(groups))
    return hk.concat_in_dim([part] * groups.size, 0)


def _exchange(x: hk.XlaOp, groups: Groups) -> hk.XlaOp:
    return hk.all_to_all(x, 0, 0, groups.size, groups.written, channel_id=groups.channel)


def _permute(x: hk.XlaOp, pairs: Any, channel: int | None) -> hk.XlaOp:
    return hk.collective_permute(x, pairs, channel)


def _broadcast(x: hk.XlaOp, groups: Any) -> hk.XlaOp:
    return hk.collective_broadcast(x, groups)


def _repeat(x: hk.XlaOp, count: int, steps: Sequence[Step]) -> hk.XlaOp:
    state = hk.tuple_(x.builder, [x.builder.constant(np.int32(0)), x])
    return hk.while_(lambda s: hk.lt(s[0], count), lambda s: [s[0] + 1, _built(steps, s[1])], state)[1]


def _alike(x: hk.XlaOp) -> hk.XlaOp:
    """A number below 3 that is the same on all devices."""
    everywhere = hk.all_reduce(x, hk.max, channel_id=1000)
    first = hk.reshape(hk.slice_in_dim(everywhere, 0, 1, 1, 0), [])
    return hk.rem(hk.convert_element_type(hk.abs(first), hk.s32), np.int32(3))


def _repeat_alike(x: hk.XlaOp, steps: Sequence[Step]) -> hk.XlaOp:
    state = hk.tuple_(x.builder, [_alike(x), x])
    return hk.while_(lambda s: hk.gt(s[0], 0), lambda s: [s[0] - 1, _built(steps, s[1])], state)[1]


def _if_alike(x: hk.XlaOp, then: Sequence[Step], otherwise: Sequence[Step]) -> hk.XlaOp:
    return hk.conditional(hk.eq(_alike(x), 1), x, lambda v: _built(then, v), x, lambda v: _built(otherwise, v))


def _is_replica(x: hk.XlaOp, replica: int) -> hk.XlaOp:
    return hk.eq(x.builder.replica_id(), np.uint32(replica))


def _if_own(x: hk.XlaOp, replica: int, value: int) -> hk.XlaOp:
    return hk.conditional(_is_replica(x, replica), x, lambda v: _local(v, value), x, lambda v: v)


def _if_channel(x: hk.XlaOp, replica: int, fold: str, channel: int) -> hk.XlaOp:
    """Two instructions on one channel: they meet."""

    def summed(v: hk.XlaOp) -> hk.XlaOp:
        return hk.all_reduce(v, FOLDS[fold][0], channel_id=channel)

    return hk.conditional(_is_replica(x, replica), x, lambda v: summed(hk.neg(v)), x, summed)


def _call(x: hk.XlaOp, steps: Sequence[Step]) -> hk.XlaOp:
    return x.builder.call(lambda v: _built(steps, v), [x])


_STEPS: dict[str, Callable[..., hk.XlaOp]] = {
    "local": _local,
    "ids": _ids,
    "reduce": _reduce,
    "reduce-both": _reduce_both,
    "started": _started,
    "gather": _gather,
    "scatter": _scatter,
    "exchange": _exchange,
    "permute": _permute,
    "broadcast": _broadcast,
    "repeat": _repeat,
    "repeat-alike": _repeat_alike,
    "if-alike": _if_alike,
    "if-own": _if_own,
    "if-channel": _if_channel,
    "call": _call,
}


# -- as NumPy


def model(program: Program) -> list[Array]:
    """What every device ends with."""
    with np.errstate(all="ignore"):
        return _Model(program).run(program.steps, list(program.inputs))


class _Model:
    def __init__(self, program: Program) -> None:
        self.replicas, self.partitions = program.replicas, program.partitions
        self.count = self.replicas * self.partitions

    def run(self, steps: Sequence[Step], x: list[Array]) -> list[Array]:
        for kind, *given in steps:
            x = [np.asarray(v, x[0].dtype) for v in getattr(self, kind.replace("-", "_"))(x, *given)]
        return x

    def fold(self, x: list[Array], fold: str, group: Sequence[int]) -> Array:
        result = x[group[0]]
        for device in group[1:]:
            result = FOLDS[fold][1](result, x[device])
        return result

    def local(self, x: list[Array], value: int) -> list[Array]:
        return [-v + v.dtype.type(value) for v in x]

    def ids(self, x: list[Array]) -> list[Array]:
        return [v + v.dtype.type(3 * (d // self.partitions) + d % self.partitions) for d, v in enumerate(x)]

    def reduce(self, x: list[Array], fold: str, groups: Groups) -> list[Array]:
        return [self.fold(x, fold, groups.of(d)) for d in range(self.count)]

    started = reduce

    def reduce_both(self, x: list[Array], fold: str, groups: Groups) -> list[Array]:
        ours, negated = self.reduce(x, fold, groups), self.reduce([-v for v in x], fold, groups)
        return [a - b[::-1] for a, b in zip(ours, negated, strict=True)]

    def gather(self, x: list[Array], groups: Groups, block: int) -> list[Array]:
        return [v + x[groups.of(d)[block]] for d, v in enumerate(x)]

    def scatter(self, x: list[Array], fold: str, groups: Groups) -> list[Array]:
        def part(d: int) -> Array:
            group = groups.of(d)
            return np.tile(np.split(self.fold(x, fold, group), len(group))[group.index(d)], len(group))

        return [part(d) for d in range(self.count)]

    def exchange(self, x: list[Array], groups: Groups) -> list[Array]:
        def received(d: int) -> Array:
            group = groups.of(d)
            return np.concatenate([np.split(x[source], len(group))[group.index(d)] for source in group])

        return [received(d) for d in range(self.count)]

    def permute(self, x: list[Array], pairs: Any, channel: int | None) -> list[Array]:
        result = [np.zeros_like(v) for v in x]
        for source, target in pairs:
            for other in range(self.partitions if channel is None else self.replicas):
                p = self.partitions
                start, end = (
                    (source * p + other, target * p + other)
                    if channel is None
                    else (other * p + source, other * p + target)
                )
                result[end] = x[start]
        return result

    def broadcast(self, x: list[Array], groups: Any) -> list[Array]:
        root = {i: group[0] for group in groups for i in group}
        p = self.partitions
        return [x[root[d // p] * p + d % p] if d // p in root else np.zeros_like(v) for d, v in enumerate(x)]

    def repeat(self, x: list[Array], count: int, steps: Sequence[Step]) -> list[Array]:
        for _ in range(count):
            x = self.run(steps, x)
        return x

    def alike(self, x: list[Array]) -> int:
        return int(abs(max(v[0] for v in x))) % 3

    def repeat_alike(self, x: list[Array], steps: Sequence[Step]) -> list[Array]:
        return self.repeat(x, self.alike(x), steps)

    def if_alike(self, x: list[Array], then: Sequence[Step], otherwise: Sequence[Step]) -> list[Array]:
        return self.run(then if self.alike(x) == 1 else otherwise, x)

    def if_own(self, x: list[Array], replica: int, value: int) -> list[Array]:
        return [-v + v.dtype.type(value) if d // self.partitions == replica else v for d, v in enumerate(x)]

    def if_channel(self, x: list[Array], replica: int, fold: str, channel: int) -> list[Array]:
        given = [-v if d // self.partitions == replica else v for d, v in enumerate(x)]
        order = [r * self.partitions + p for p in range(self.partitions) for r in range(self.replicas)]
        return [self.fold(given, fold, order)] * self.count

    def call(self, x: list[Array], steps: Sequence[Step]) -> list[Array]:
        return self.run(steps, x)


# -- programs that deadlock


@dataclass(frozen=True)
class Deadlock:
    """A call in which devices wait for each other for ever. `seen`: whether that can be told before running.

    `call(world)`: by this process's device of the world; without one, by all `devices`, as threads.
    """

    kind: str
    seen: bool
    devices: int
    call: Callable[..., Any]


def random_deadlock(seed: int) -> Deadlock:
    draw = random.Random(seed)
    kinds = sorted(_DEADLOCKS)
    kind = kinds[seed % len(kinds)]
    return _DEADLOCKS[kind](kind, draw)


def _around(
    draw: random.Random, wreck: Callable[[hk.XlaOp], hk.XlaOp], kind: str, seen: bool, **options: Any
) -> Deadlock:
    """The wreck in a program with other collectives before and after it."""
    drawing = _Drawing(draw.randrange(10**6))
    drawing.replicas, drawing.partitions = draw.choice([2, 3, 4]), draw.choice([1, 1, 2])
    drawing.channel = 100
    before, after = drawing.steps(1, draw.randint(0, 2)), drawing.steps(1, draw.randint(0, 2))
    program = _program(draw.randrange(10**6), drawing, ())

    def function(x: hk.XlaOp) -> hk.XlaOp:
        return _built(after, wreck(_built(before, x)))

    builder = hk.Builder(kind)
    module = builder.build(function(builder.parameter(0, hk.dtype(program.dtype)[LENGTH])))
    counts = {"replicas": program.replicas, "partitions": program.partitions}
    devices = program.replicas * program.partitions
    more = {name: make(devices) for name, make in options.items()}
    return Deadlock(kind, seen, devices, lambda world=None: _run(module, program.arguments, counts, world, **more))


def _run(module: hk.HloModule, arguments: list[list[Array]], counts: dict[str, int], world: Any, **queues: Any) -> Any:
    if world is None:
        return hk.evaluate(module, *arguments, **counts, **queues)
    own = {name: queue[world.rank] for name, queue in queues.items()}
    return hk.evaluate(module, *arguments[world.rank], **counts, **own, world=world)


def _sum(x: hk.XlaOp, channel: int | None = None) -> hk.XlaOp:
    return hk.all_reduce(x, FOLDS["add"][0], channel_id=channel)


def _one_branch(kind: str, draw: random.Random) -> Deadlock:
    replica = draw.randrange(2)
    return _around(draw, lambda x: hk.conditional(_is_replica(x, replica), x, _sum, x, hk.neg), kind, True)


def _other_instruction(kind: str, draw: random.Random) -> Deadlock:
    replica = draw.randrange(2)
    return _around(
        draw, lambda x: hk.conditional(_is_replica(x, replica), x, _sum, x, lambda v: _sum(hk.neg(v))), kind, True
    )


def _crossed(kind: str, draw: random.Random) -> Deadlock:
    def wreck(x: hk.XlaOp) -> hk.XlaOp:
        return hk.conditional(_is_replica(x, 1), x, lambda v: _sum(_sum(v, 1), 2), x, lambda v: _sum(_sum(v, 2), 1))

    return _around(draw, wreck, kind, True)


def _own_count(kind: str, draw: random.Random) -> Deadlock:
    least = draw.randint(0, 2)

    def wreck(x: hk.XlaOp) -> hk.XlaOp:
        count = hk.convert_element_type(x.builder.replica_id(), hk.s32) + np.int32(least)
        state = hk.tuple_(x.builder, [count, x])
        return hk.while_(lambda s: hk.gt(s[0], 0), lambda s: [s[0] - 1, _sum(s[1])], state)[1]

    return _around(draw, wreck, kind, True)


def _groups_differ(kind: str, draw: random.Random) -> Deadlock:
    def wreck(x: hk.XlaOp) -> hk.XlaOp:
        def summed(order: int) -> Callable[[hk.XlaOp], hk.XlaOp]:
            def gathered(v: hk.XlaOp) -> hk.XlaOp:
                return hk.collective_permute(v, [(0, 0)] if order else [], 7)

            return gathered

        return hk.conditional(_is_replica(x, 0), x, summed(0), x, lambda v: _sum(summed(1)(v), 8))

    return _around(draw, wreck, kind, True)


def _data(kind: str, draw: random.Random) -> Deadlock:
    """Only the arguments decide: one device has another sign than the rest."""

    def function(x: hk.XlaOp) -> hk.XlaOp:
        first = hk.reshape(hk.slice_in_dim(x, 0, 1, 1, 0), [])
        return hk.conditional(hk.gt(first, np.int32(0)), x, _sum, x, hk.neg)

    builder = hk.Builder(kind)
    module = builder.build(function(builder.parameter(0, hk.s32[LENGTH])))
    count = draw.randint(2, 4)
    odd = draw.randrange(count)
    arguments = [[np.full(LENGTH, 1 if d == odd else -1, np.int32)] for d in range(count)]
    counts = {"replicas": count, "partitions": 1}
    return Deadlock(kind, False, count, lambda world=None: _run(module, arguments, counts, world))


def _fed(kind: str, draw: random.Random) -> Deadlock:
    """A loop fed by infeed runs more often on one device."""

    def wreck(x: hk.XlaOp) -> hk.XlaOp:
        return hk.while_(lambda s: hk.gt(s.builder.infeed(hk.s32[()]), np.int32(0)), _sum, x)

    odd = draw.randrange(2)

    def infeed(devices: int) -> list[list[int]]:
        return [[1] * (3 if d == odd else 2) + [0] for d in range(devices)]

    return _around(draw, wreck, kind, False, infeed=infeed)


def _talk(kind: str, *programs: Callable[[hk.XlaOp], Any], scheduled: bool = False) -> Deadlock:
    """A program for each device, all on one vector."""
    modules: list[Any] = []
    for number, function in enumerate(programs):
        builder = hk.Builder(f"talk_{number}")
        module = builder.build(function(builder.parameter(0, hk.f32[3])))
        module.is_scheduled = scheduled
        modules.append((module, [np.arange(3, dtype=np.float32) + number]))
    return Deadlock(kind, True, len(modules), lambda world=None: hk.evaluate_mpmd(modules, world=world))


def _ring(kind: str, draw: random.Random) -> Deadlock:
    """Everyone receives before it sends (COMM-12)."""
    count = draw.randint(2, 5)

    def program(number: int) -> Callable[[hk.XlaOp], Any]:
        def function(x: hk.XlaOp) -> hk.XlaOp:
            before = hk.ChannelHandle((number - 1) % count + 1)
            data, token = hk.recv_with_token(x.builder.create_token(), x.shape, before)
            hk.send_with_token(data + x, token, hk.ChannelHandle(number + 1))
            return data

        return function

    return _talk(kind, *(program(n) for n in range(count)))


def _sends_first(kind: str, draw: random.Random) -> Deadlock:
    """Everyone sends before it is ready to receive (COMM-11)."""
    count = draw.randint(2, 4)

    def program(number: int) -> Callable[[hk.XlaOp], Any]:
        def function(x: hk.XlaOp) -> hk.XlaOp:
            token = hk.send_with_token(x, x.builder.create_token(), hk.ChannelHandle(number + 1))
            before = hk.ChannelHandle((number - 1) % count + 1)
            return hk.recv_with_token(token, x.shape, before)[0]

        return function

    return _talk(kind, *(program(n) for n in range(count)))


def _silent(kind: str, draw: random.Random) -> Deadlock:
    """One waits for what nobody sends, or sends what nobody takes."""

    def waits(x: hk.XlaOp) -> hk.XlaOp:
        if draw.random() < 0.5:
            return hk.recv(x.builder, x.shape, hk.ChannelHandle(1))
        hk.send(x, hk.ChannelHandle(1))
        return x

    return _talk(kind, waits, hk.neg)


def _too_often(kind: str, draw: random.Random) -> Deadlock:
    """One sends more often than the other receives, or less often."""
    sent, received = draw.choice([(3, 2), (1, 2), (2, 0), (0, 1), (4, 1)])

    def sends(x: hk.XlaOp) -> hk.XlaOp:
        token = x.builder.create_token()
        for _ in range(sent):
            token = hk.send_with_token(x, token, hk.ChannelHandle(1))
        return x

    def receives(x: hk.XlaOp) -> hk.XlaOp:
        token = x.builder.create_token()
        for _ in range(received):
            data, token = hk.recv_with_token(token, x.shape, hk.ChannelHandle(1))
            x = x + data
        return x

    return _talk(kind, sends, receives)


_DEADLOCKS: dict[str, Callable[[str, random.Random], Deadlock]] = {
    "one branch": _one_branch,
    "other instruction": _other_instruction,
    "crossed": _crossed,
    "own count": _own_count,
    "groups differ": _groups_differ,
    "data": _data,
    "fed": _fed,
    "ring": _ring,
    "sends first": _sends_first,
    "silent": _silent,
    "too often": _too_often,
}


# -- properties


def check_program(seed: int) -> None:
    """The interpreter gives the model's bytes, twice the same, and the static check proves the program.

    With many loops and conditionals one inside the other, it may be too long to follow.
    """
    from hlokit.analysis.rendezvous import PROVED, check_rendezvous

    program = random_program(seed)
    module, expected = module_of(program), model(program)
    hk.verify(module)
    results = [_results(program, module) for _ in range(2)]
    for result in results:
        for device, (found, wanted) in enumerate(zip(result, expected, strict=True)):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted), (seed, device, found, wanted)
    devices = [module] * len(expected)
    finding = check_rendezvous(devices, program.replicas, program.partitions, steps=500_000, paths=2000)
    assert finding.state == PROVED or "too many steps" in finding.reason, (seed, str(finding))


def check_compiled(seed: int) -> None:
    """Machine code gives the model's bytes."""
    program = random_program(seed)
    run = hk.compile(module_of(program))
    results = run(*program.arguments) if len(program.inputs) > 1 else [run(program.inputs[0])]
    for device, (found, wanted) in enumerate(zip(results, model(program), strict=True)):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted), (seed, device, found, wanted)


def _results(program: Program, module: hk.HloModule) -> list[Array]:
    if len(program.inputs) == 1:
        return [hk.evaluate(module, program.inputs[0])]
    return hk.evaluate(module, *program.arguments)


def check_deadlock(seed: int, seconds: float = 5.0) -> None:
    """It is refused or reported, soon, and no thread is left."""
    deadlock = random_deadlock(seed)
    threads, start = threading.active_count(), time.perf_counter()
    try:
        deadlock.call()
    except hk.EvaluationError as error:
        labels = ("GRP-6", "GRP-8", "COMM-12", "COMM-3")
        assert any(f"[{label}]" in str(error) for label in labels), (seed, deadlock.kind, str(error))
    else:
        raise AssertionError((seed, deadlock.kind, "came to an end"))
    assert time.perf_counter() - start < seconds, (seed, deadlock.kind)
    assert threading.active_count() == threads, (seed, deadlock.kind)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.devices", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs; a fifth as many deadlocks besides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="also as machine code")
    options = parser.parse_args()
    failures = 0
    checks = [(check_program, options.count), (check_deadlock, options.count // 5)]
    checks += [(check_compiled, options.count)] if options.compiled else []
    for check, count in checks:
        start = time.perf_counter()
        for seed in range(options.seed, options.seed + count):
            try:
                check(seed)
            except (AssertionError, hk.HlokitError) as error:
                failures += 1
                print(f"{check.__name__}({seed}): {type(error).__name__}: {error}"[:600])
        print(f"{check.__name__}: {count} in {time.perf_counter() - start:.1f} s")
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
