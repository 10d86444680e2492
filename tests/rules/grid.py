"""Pretended devices, on which a collective's reference runs for each in turn; data and programs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import Op
from hlokit.interpreter.process import Process
from hlokit.ops.collectives import AllReduce
from hlokit.types.shape import Shape, shape_of

F = np.float32
FOUR = [np.array(v, F) for v in ([1, 2.5], [3, 5.25], [10, 20], [30, 40])]
"""The data of AGATHER-8: one array for each of four replicas."""
TWO = [np.array([1.0, 2.5], F), np.array([3.0, 5.25], F)]


def combiner(function: Callable[..., Any] = lambda x, y: x + y, dtype: hk.DType = hk.f32) -> Computation:
    builder = hk.Builder("combiner")
    return builder.build_computation(function(builder.parameter(0, dtype[()]), builder.parameter(1, dtype[()])))


ADD = combiner()


def build(function: Callable[..., hk.XlaOp], *shapes: Shape) -> hk.XlaOp:
    builder = hk.Builder("test")
    return function(*(builder.parameter(n, shape) for n, shape in enumerate(shapes)))


def run(function: Callable[..., hk.XlaOp], *inputs: Any) -> Any:
    root = build(function, *(hk.dtype(i.dtype)[i.shape] for i in inputs))
    return hk.evaluate(root.builder.build(root), *inputs)


def same(results: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.asarray(wanted, result.dtype).dtype
        assert np.array_equal(result, wanted), (result, wanted)


def one_each(arrays: Sequence[Any]) -> list[tuple[Any]]:
    return [(array,) for array in arrays]


class _Gave(Exception):
    """A device gave its value and waits."""


class _Device(Process):
    """Collects what each device gives; the second time round every device gets what the others gave."""

    def __init__(self, grid: dict[tuple[int, int], Any], replica: int, partition: int, counts: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.replica_id, self.partition_id = replica, partition
        self.replica_count, self.partition_count = counts

    def meet(self, key: Any, members: list[tuple[int, int]], value: Any) -> list[Any]:
        own = (self.replica_id, self.partition_id)
        assert own in members
        if own not in self.grid:
            self.grid[own] = value
            raise _Gave
        return [self.grid[member] for member in members]


def on_devices(
    op: Op,
    operands: Sequence[Sequence[Any]],
    called: Computation | None = None,
    *,
    replicas: int | None = None,
    partitions: int = 1,
) -> list[Any]:
    """What `op` gives on each device, replica by replica; `operands[i]` are those of device i."""
    replicas = len(operands) // partitions if replicas is None else replicas
    grid: dict[tuple[int, int], Any] = {}
    devices = [_Device(grid, r, p, (replicas, partitions)) for r in range(replicas) for p in range(partitions)]
    results: list[Any] = []
    for last in (False, True):
        for device, values in zip(devices, operands, strict=True):
            keywords: dict[str, Any] = {"to_apply": device.callee(called)} if called is not None else {}
            if isinstance(op, AllReduce):
                shapes = [shape_of(value) for value in values]
                keywords["shape"] = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
            try:
                value = op.reference(*values, process=device, **keywords)
            except _Gave:
                continue
            if last:
                results.append(value)
    return results
