"""Time and memory of a training step on several processes, beside JAX's CPU client over gloo.

    python -m bench.processes [--ways data fsdp tensor] [--engines hlokit-mpi hlokit-gloo jax-gloo] [--rounds 3]

The scripts are examples/train_processes.py's three, with larger weights. Jobs of the engines take turns; each times
its steps after two that do not count. Of a process, over all turns: the median of a step's seconds and processor time
(waiting for others included, which MPI does by asking, gloo by sleeping), and the most memory that weights and steps
take, over what the compiled program says that they need: arguments, results in memory of their own, and temporaries.
hlokit-gloo needs torch; jax-mpi needs MPIwrapper (github.com/eschnett/MPIwrapper), built for an MPI, whose
libmpiwrapper.so MPITRAMPOLINE_LIB names.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
WAYS = ("data", "fsdp", "tensor")
ENGINES = ("hlokit-mpi", "hlokit-gloo", "jax-gloo", "jax-mpi")
SIZES = {"LAYERS": 4, "WIDTH": 512, "HEADS": 8, "WORDS": 1024, "LENGTH": 128, "BATCH": 8}
WARM = 2
"""Steps that do not count."""


def of_process(name: str) -> int:
    """Bytes that the kernel states of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", text)[0])


def measured(engine: str, way: str, steps: int) -> dict[str, Any]:
    """The figures of this process."""
    if engine.startswith("hlokit"):
        import hlokit.interop.jax

        hlokit.interop.jax.use(as_cpu=True)
    import jax
    import numpy as np

    from examples import train_processes as script

    for name, value in SIZES.items():
        setattr(script, name, value)
    jax.distributed.initialize()
    mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
    placed, rows = script.shardings(way, mesh)
    drawn = script.initial()
    kinds = [{k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=placed[k]) for k, v in w.items()} for w in drawn]
    batch = jax.ShapeDtypeStruct((SIZES["BATCH"], SIZES["LENGTH"]), np.int32, sharding=rows)
    needs = script.step.lower(kinds, batch).compile().memory_analysis()
    assert needs is not None
    total = needs.argument_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
    first = jax.jit(lambda x: x.sum(), in_shardings=rows)  # what carries collectives begins now
    float(first(jax.make_array_from_callback(batch.shape, rows, lambda index: np.zeros(batch.shape, np.int32)[index])))
    weights = [{name: jax.device_put(value, placed[name]) for name, value in w.items()} for w in drawn]
    held = sum(shard.data.nbytes for w in weights for a in w.values() for shard in a.addressable_shards)
    jax.block_until_ready(weights)
    del drawn
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = of_process("VmRSS") - held
    words = (np.arange(SIZES["BATCH"])[:, None] + 3 * np.arange(SIZES["LENGTH"])).astype(np.int32) % SIZES["WORDS"]
    times: list[float] = []
    cpu = 0.0
    for number in range(WARM + steps):
        if number == WARM:
            cpu = time.process_time()
        given = jax.make_array_from_callback(words.shape, rows, lambda index: words[index])
        start = time.perf_counter()
        weights, loss = script.step(weights, given)
        float(loss)
        jax.block_until_ready(weights)
        times.append(time.perf_counter() - start)
    return {
        "seconds": median(times[WARM:]), "cpu": (time.process_time() - cpu) / steps, "loss": float(loss),
        "needs": total + needs.temp_size_in_bytes, "taken": of_process("VmHWM") - before,
    }  # fmt: skip


def turn(engine: str, way: str, count: int, steps: int) -> list[dict[str, Any]]:
    """The figures of each process of a job."""
    kind, carrier = engine.split("-")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    variables |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "JAX_PLATFORMS": "cpu"}
    if kind == "hlokit":
        variables["HLOKIT_AS_CPU"] = "1"
    else:
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = carrier
    with tempfile.TemporaryDirectory() as folder:
        starts = "mpi" if carrier == "mpi" else "gloo"
        command = [sys.executable, "-m", "hlokit.launch", "-n", str(count), "--devices", "1", "--collectives", starts]
        command += ["--", sys.executable, "-m", "bench.processes"]
        command += ["--process", engine, way, folder, "--steps", str(steps)]
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        files = sorted(Path(folder).glob("*.json"))
        if done.returncode or len(files) < count:
            raise SystemExit(f"{engine}, {way}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def table(found: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """In Markdown."""
    heads = ("script", "engine", "ms a step", "CPU ms a step and process", "memory, MB", "of need")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for (way, engine), rows in found.items():
        ms, cpu = (1e3 * median(row[name] for row in rows) for name in ("seconds", "cpu"))
        taken = max(row["taken"] for row in rows)
        share = max(row["taken"] / row["needs"] for row in rows)
        lines.append(f"| {way} | {engine} | {ms:.0f} | {cpu:.0f} | {taken / 1e6:.0f} | {share:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES[:3]))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.process is not None:
        engine, way, folder = given.process
        facts = measured(engine, way, given.steps)
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(facts), encoding="utf-8")
        if engine == "jax-mpi":  # jaxlib frees communicators after MPI has ended, which MPICH makes an error
            os._exit(0)
        return
    found: dict[tuple[str, str], list[dict[str, Any]]] = {(way, e): [] for way in given.ways for e in given.engines}
    for number in range(given.rounds):
        for way in given.ways:
            for engine in given.engines:
                found[way, engine] += turn(engine, way, given.processes, given.steps)
        print(f"round {number + 1}, load {os.getloadavg()[0]:.1f}\n{table(found)}", flush=True)


if __name__ == "__main__":
    main()
