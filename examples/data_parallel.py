"""Trains a linear model on four replicas: as threads, or as four processes.

    python examples/data_parallel.py
    mpirun -n 4 python examples/data_parallel.py

Each replica has a quarter of the batch; an all-reduce adds the gradients. Both ways give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hlokit as hk
from hlokit.devices.processes.guard import guarded, job_size

REPLICAS, ROWS, FEATURES, STEPS = 4, 64, 3, 200


def training_step(replicas: int) -> hk.HloModule:
    """One step of descent on the mean of |x w - y|^2: (w, x, y) -> w, on a replica's share of the batch."""
    rows = ROWS // replicas
    b = hk.Builder("training_step")
    w, x = b.parameter(0, hk.f32[FEATURES]), b.parameter(1, hk.f32[rows, FEATURES])
    y = b.parameter(2, hk.f32[rows])
    error = hk.dot(x, w) - y
    gradient = hk.dot(hk.transpose(x, [1, 0]), error) * np.float32(2.0 / ROWS)
    return b.build(w - hk.all_reduce(gradient, lambda p, q: p + q) * np.float32(0.05))


def batch() -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((ROWS, FEATURES)).astype(np.float32)
    return x, x @ np.float32([1.0, -2.0, 0.5])


def trained(replicas: int, world: Any = None) -> Any:
    """The weights after all steps: replica 0's; in a world, this process's."""
    step = hk.compile(training_step(replicas), replicas=replicas)
    shares = list(zip(*(np.split(array, replicas) for array in batch()), strict=True))
    if world is not None:
        w = np.zeros(FEATURES, np.float32)
        for _ in range(STEPS):
            w = step(w, *shares[world.rank], world=world)
        return w
    if replicas == 1:
        w = np.zeros(FEATURES, np.float32)
        for _ in range(STEPS):
            w = step(w, *shares[0])
        return w
    ws = [np.zeros(FEATURES, np.float32)] * replicas
    for _ in range(STEPS):
        ws = step(*([w, *share] for w, share in zip(ws, shares, strict=True)))
    assert all(np.array_equal(ws[0], w) for w in ws)
    return ws[0]


def main() -> None:
    if job_size() == 1:
        weights, where = trained(REPLICAS), "threads"
        assert np.abs(weights - trained(1)).max() < 1e-6  # as of one replica with the whole batch, to rounding
        print(f"{REPLICAS} {where}: {weights.tobytes().hex()} {weights}")
        return
    guarded()
    with hk.process_world() as world:
        weights = trained(world.size, world)
        texts = world.gather_text(f"{world.size} processes: {weights.tobytes().hex()} {weights}")
        if world.rank == 0:
            assert len(set(texts)) == 1  # all ranks have the same weights
            print(texts[0])


if __name__ == "__main__":
    main()
