"""Reshards: the cheapest sequence of steps from one placement of a value to another."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, TypeAlias

from hlokit.passes.partitioner.placement import Grid, Parts, Placement

Kind: TypeAlias = Literal["all-gather", "slice", "all-to-all", "collective-permute", "all-reduce", "reduce-scatter"]


@dataclass(frozen=True)
class Step:
    """One step of a reshard.

    parts    of axes along which devices meet; of a slice, those that the dimension is divided along
    source   the dimension that an all-gather or all-to-all puts together; dimension: the one that is divided
    seconds  what it takes on the assumed network
    """

    kind: Kind
    parts: Parts
    before: Placement
    after: Placement
    dimension: int = 0
    source: int = 0
    nbytes: int = 0
    seconds: float = 0.0


StepMaker: TypeAlias = Callable[..., Step]
"""(kind, parts, after, dimension, source) -> the step from the placement that is looked at."""


@dataclass(frozen=True)
class Network:
    """The network that plans assume: bytes a second of a link, and seconds that a message takes besides."""

    bandwidth: float = 100e9
    latency: float = 1e-6
    memory: float = 1e12

    def seconds(self, kind: Kind, count: int, nbytes: float) -> float:
        """Rings, for `count` devices with `nbytes` each before (after, for an all-gather); small sums are doubled."""
        if kind == "slice":
            return nbytes / self.memory
        if kind == "collective-permute":
            return self.latency + nbytes / self.bandwidth
        share = (count - 1) / count * nbytes / self.bandwidth
        rounds = math.ceil(math.log2(count))
        if kind == "all-reduce":
            return min(2 * (rounds * self.latency + share), rounds * (self.latency + nbytes / self.bandwidth))
        return rounds * self.latency + share


_MOST_LOOKED_AT = 256
"""Placements that a search looks at, before it takes the direct way."""
_MOST_PERMUTED = 128
"""Placements on the way to a target that one permutation may lead to, before none is tried."""


class Planner:
    """Plans on one grid: a search for the least time over the placements on the way."""

    def __init__(self, grid: Grid, network: Network | None = None) -> None:
        self.grid, self.network = grid, network or Network()
        self.plan = lru_cache(maxsize=4096)(self._plan)

    def _plan(self, sizes: tuple[int, ...], itemsize: float, source: Placement, target: Placement) -> tuple[Step, ...]:
        """The steps for an array of these sizes, none if it is there already."""
        queue: list[tuple[float, int, Placement, tuple[Step, ...]]] = [(0.0, 0, source, ())]
        done: set[Placement] = set()
        number = 0
        while queue:
            seconds, _, here, steps = heapq.heappop(queue)
            if here == target:
                return steps
            if here in done:
                continue
            if len(done) == _MOST_LOOKED_AT:
                return self._direct(sizes, itemsize, source, target)
            done.add(here)
            for step in self._steps(sizes, itemsize, here, target):
                if step.after not in done:
                    number += 1
                    heapq.heappush(queue, (seconds + step.seconds, number, step.after, (*steps, step)))
        raise AssertionError(f"no way from {source} to {target}")  # gathering all and dividing it is always one

    def _direct(
        self, sizes: tuple[int, ...], itemsize: float, source: Placement, target: Placement
    ) -> tuple[Step, ...]:
        """Terms are summed, dimensions that differ are gathered whole, then divided."""
        steps: list[Step] = []
        here = source

        def go(kind: Kind, parts: Parts, after: Placement, d: int = 0) -> None:
            nonlocal here
            if parts:
                steps.append(self._step(sizes, itemsize, here, kind, parts, after, d, d))
                here = after

        over = tuple(part for part in source.unreduced if part not in target.unreduced)
        go("all-reduce", over, Placement(here.dimensions, target.unreduced))
        different = [d for d, parts in enumerate(target.dimensions) if parts != source.dimensions[d]]
        for d in different:
            go("all-gather", here.dimensions[d], here.with_dimension(d, ()), d)
        for d in different:
            go("slice", target.dimensions[d], here.with_dimension(d, target.dimensions[d]), d)
        return tuple(steps)

    def _step(
        self, sizes: Sequence[int], itemsize: float, here: Placement, kind: Kind, parts: Parts, after: Placement,
        dimension: int = 0, source: int = 0,
    ) -> Step:  # fmt: skip
        larger = max(self.nbytes(sizes, itemsize, here), self.nbytes(sizes, itemsize, after))
        seconds = self.network.seconds(kind, self.grid.count(parts), larger)
        return Step(kind, parts, here, after, dimension, source, larger, seconds + 1e-12)

    def seconds(self, sizes: Sequence[int], itemsize: float, source: Placement, target: Placement) -> float:
        """The time of the plan."""
        return sum(step.seconds for step in self.plan(tuple(sizes), itemsize, source, target))

    def nbytes(self, sizes: Sequence[int], itemsize: float, placement: Placement) -> int:
        """The bytes of a device's part."""
        return math.ceil(math.prod(self.grid.local(sizes, placement)) * itemsize)

    def _steps(self, sizes: Sequence[int], itemsize: float, here: Placement, target: Placement) -> Iterator[Step]:
        def step(kind: Kind, parts: Parts, after: Placement, dimension: int = 0, source: int = 0) -> Step:
            return self._step(sizes, itemsize, here, kind, parts, after, dimension, source)

        if here.unreduced != target.unreduced:
            yield from self._reductions(sizes, here, target, step)
        if here == target:
            return
        for d, parts in enumerate(here.dimensions):
            for first in range(len(parts)):
                if self._is_even(sizes[d], parts) or first == 0:
                    yield step("all-gather", parts[first:], here.with_dimension(d, parts[:first]), d, d)
            more = _continued(parts, target.dimensions[d])
            for last in range(1, len(more) + 1):
                after = (*parts, *more[:last])
                even = self._is_even(sizes[d], after) or (not parts and after == target.dimensions[d])
                if even and not here.used & set(more[:last]):
                    yield step("slice", more[:last], here.with_dimension(d, after), d)
        yield from self._exchanges(sizes, here, target, step)

    def _reductions(self, sizes: Sequence[int], here: Placement, target: Placement, step: StepMaker) -> Iterator[Step]:
        """All terms that the target does not keep are summed; or so that each device has a part of the sum."""
        kept = target.unreduced
        if set(kept) <= set(here.unreduced):
            over = tuple(part for part in here.unreduced if part not in kept)
            yield step("all-reduce", over, Placement(here.dimensions, kept))
        for d, parts in enumerate(here.dimensions):
            more = _continued(parts, target.dimensions[d])
            for last in range(1, len(more) + 1):
                taken = more[:last]
                if set(taken) <= set(here.unreduced) - set(kept) and self._is_even(sizes[d], (*parts, *taken)):
                    rest = tuple(part for part in here.unreduced if part not in taken)
                    after = Placement(here.with_dimension(d, (*parts, *taken)).dimensions, rest)
                    yield step("reduce-scatter", taken, after, d)

    def _exchanges(self, sizes: Sequence[int], here: Placement, target: Placement, step: StepMaker) -> Iterator[Step]:
        for d, parts in enumerate(here.dimensions):
            for first in range(len(parts)):
                moved = parts[first:]
                for e, others in enumerate(here.dimensions):
                    if e == d or not self._is_even(sizes[d], parts) or not self._is_even(sizes[e], (*others, *moved)):
                        continue
                    after = here.with_dimension(d, parts[:first]).with_dimension(e, (*others, *moved))
                    yield step("all-to-all", moved, after, e, d)
        if here.unreduced or math.prod(len(parts) + 1 for parts in target.dimensions) > _MOST_PERMUTED:
            return
        local = self.grid.local(sizes, here)
        for lengths in product(*(range(len(parts) + 1) for parts in target.dimensions)):
            dimensions = tuple(p[:n] for p, n in zip(target.dimensions, lengths, strict=True))
            after = Placement(dimensions)
            counts = [
                (self.grid.count(a), self.grid.count(b)) for a, b in zip(dimensions, here.dimensions, strict=True)
            ]
            if after != here and self.grid.local(sizes, after) == local and all(a == b for a, b in counts):
                yield step("collective-permute", tuple(sorted(here.used | after.used)), after)

    def _is_even(self, size: int, parts: Parts) -> bool:
        return size % self.grid.count(parts) == 0


def _continued(parts: Parts, target: Parts) -> Parts:
    """The rest of the target after these parts; nothing if it does not begin so."""
    return target[len(parts) :] if target[: len(parts)] == parts else ()
