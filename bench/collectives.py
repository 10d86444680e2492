"""Collectives over 4 replicas in one process: hlokit's machine code and XLA on 4 host devices, taking turns.

    python -m bench.collectives            # two minutes; prints a Markdown table

Arrays are f32; of operand and result the larger has 64 MB on each replica. The small rows are a call with one
all-reduce of 4 floats, and one pass of a loop in which there is nothing else. The ratio is XLA's time to hlokit's:
above 1 hlokit is faster. All is measured again in a process whose malloc spares XLA page faults, and whose memcpy
stores large arrays past the caches: there the floor is the time that the bytes take which must be read and written at
least, each operand and each result once, when as many threads as there are cores copy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import hlokit as hk
from bench.engines import TUNABLES as MALLOC
from hlokit.cpu.target import available_threads

TUNABLES = f"{MALLOC}:glibc.cpu.x86_non_temporal_threshold=4194304"
REPLICAS = 4
FLOATS = 16 << 20
PASSES = 1000
RING = [(r, (r + 1) % REPLICAS) for r in range(REPLICAS)]


@dataclass(frozen=True)
class Row:
    """A collective: floats of a replica's operand; operand bytes of all replicas that are read, result bytes written.

    passes   of a loop around it, which the time is divided by
    """

    name: str
    floats: int
    hlokit: Callable[[Any], Any]
    xla: Callable[[Any], Any]
    moved: int = 0
    passes: int = 1


def rows() -> Iterator[Row]:
    from jax import lax

    def add(a: Any, b: Any) -> Any:
        return a + b

    def summed(x: Any) -> Any:
        return hk.all_reduce(x, add)

    def looped(x: Any) -> Any:
        state = hk.tuple_(x.builder, [x.builder.constant(np.int32(0)), x])
        last = hk.while_(
            lambda s: hk.lt(hk.get_tuple_element(s, 0), np.int32(PASSES)),
            lambda s: hk.tuple_(
                s.builder,
                [hk.get_tuple_element(s, 0) + np.int32(1), summed(hk.get_tuple_element(s, 1)) * np.float32(0.25)],
            ),
            state,
        )
        return hk.get_tuple_element(last, 1)

    part, whole, n = 4 * FLOATS // REPLICAS, 4 * FLOATS, REPLICAS
    yield Row("all-reduce", FLOATS, summed, lambda x: lax.psum(x, "i"), 2 * n * whole)
    yield Row(
        "all-gather", FLOATS // n, lambda x: hk.all_gather(x, 0, n), lambda x: lax.all_gather(x, "i", tiled=True),
        n * (part + whole),
    )  # fmt: skip
    yield Row(
        "reduce-scatter", FLOATS, lambda x: hk.reduce_scatter(x, add, 0, n),
        lambda x: lax.psum_scatter(x, "i", tiled=True), n * (part + whole),
    )  # fmt: skip
    yield Row(
        "all-to-all", FLOATS, lambda x: hk.all_to_all(x, 0, 0, n),
        lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), 2 * n * whole,
    )  # fmt: skip
    yield Row(
        "collective-permute", FLOATS, lambda x: hk.collective_permute(x, RING), lambda x: lax.ppermute(x, "i", RING),
        2 * n * whole,
    )  # fmt: skip
    yield Row("all-reduce of 4 floats, a call", 4, summed, lambda x: lax.psum(x, "i"))
    yield Row(
        "all-reduce of 4 floats, in a loop", 4, looped,
        lambda x: lax.fori_loop(0, PASSES, lambda _, v: lax.psum(v, "i") * np.float32(0.25), x), passes=PASSES,
    )  # fmt: skip


def on_hlokit(row: Row, data: list[Any]) -> Callable[[], list[Any]]:
    builder = hk.Builder("collective")
    module = builder.build(row.hlokit(builder.parameter(0, hk.f32[row.floats])))
    run: Any = hk.compile(module, replicas=REPLICAS)
    arguments = [[x] for x in data]
    return lambda: run(*arguments)


def on_xla(row: Row, data: list[Any]) -> Callable[[], Any]:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh, spec = Mesh(np.array(jax.devices()[:REPLICAS]), ("i",)), PartitionSpec("i")
    run = jax.jit(jax.shard_map(row.xla, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    argument = jax.device_put(np.concatenate(data), NamedSharding(mesh, spec))
    return lambda: jax.block_until_ready(run(argument))


def seconds(function: Callable[[], Any], least: float) -> tuple[float, float]:
    """Wall and CPU time of a call: of as many in a row as take that long."""
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while not count or time.perf_counter() - wall < least:
        function()
        count += 1
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


class Copying:
    """Each core's thread copies an array of its own to another. `moved`: bytes read and written."""

    def __init__(self) -> None:
        self.pairs = [(np.ones(FLOATS, np.float32), np.zeros(FLOATS, np.float32)) for _ in range(available_threads())]
        self.moved = len(self.pairs) * 2 * 4 * FLOATS

    def __call__(self) -> None:
        threads = [threading.Thread(target=np.copyto, args=(to, of)) for of, to in self.pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def compared(row: Row, rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each side, and of copying, once the sides' results have been compared."""
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(row.floats).astype(np.float32) for _ in range(REPLICAS)]
    sides: dict[str, Callable[[], Any]] = {"hlokit": on_hlokit(row, data), "xla": on_xla(row, data)}
    ours, theirs = sides["hlokit"](), np.asarray(sides["xla"]())
    np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=1e-5, atol=1e-5)
    del ours, theirs
    if row.moved:
        sides["copying"] = Copying()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(0.02)  # threads of the one before may still spin
            times[name].append(seconds(side, 0.0 if row.moved else 0.05))
    return {
        name: (statistics.median(w for w, _ in taken), statistics.median(c for _, c in taken))
        for name, taken in times.items()
    }


def measure(rounds: int) -> None:
    """A line of JSON for each row: what this process, with its allocator, takes."""
    import jax

    jax.config.update("jax_num_cpu_devices", REPLICAS)
    for row in rows():
        found = compared(row, rounds)
        if row.moved:
            found["floor"] = (found["copying"][0] * row.moved / Copying().moved, 0.0)
        taken = {name: [t / row.passes for t in times] for name, times in found.items()}
        print(json.dumps({"name": row.name, **taken}), flush=True)


def measured(rounds: int, tunables: str) -> list[dict[str, Any]]:
    """The rows of a process of its own, whose C library is so tuned."""
    command = [sys.executable, "-m", "bench.collectives", "--measure", "--rounds", str(rounds)]
    environment = {**os.environ, "GLIBC_TUNABLES": tunables, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(time: float) -> str:
    return f"{1e3 * time:.1f} ms" if time >= 1e-3 else f"{1e6 * time:.0f} us"


HEADINGS = ("collective", "hlokit", "XLA", "ratio", "ratio, CPU time", "ratio, XLA's malloc tuned", "hlokit / floor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--measure", action="store_true", help="only this process, as JSON")
    options = parser.parse_args()
    if options.measure:
        measure(options.rounds)
        return
    plain, tuned = measured(options.rounds, ""), measured(options.rounds, TUNABLES)
    print("| " + " | ".join(HEADINGS) + " |\n" + "| --- " * len(HEADINGS) + "|")
    for row, other in zip(plain, tuned, strict=True):
        (ours, our_cpu), (theirs, their_cpu) = row["hlokit"], row["xla"]
        cells = [row["name"], shown(ours), shown(theirs), f"{theirs / ours:.2f}", f"{their_cpu / our_cpu:.2f}"]
        cells.append(f"{other['xla'][0] / other['hlokit'][0]:.2f}")
        cells.append(f"{other['hlokit'][0] / other['floor'][0]:.2f}" if "floor" in other else "")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
