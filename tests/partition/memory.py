"""A training step with weights and activations in parts, under a memory limit: mpirun -n 4 python -m tests.partition.memory.

    --layers 32 --width 512 --batch 4096    of the network, whose layers are all alike

Each rank runs its part of a fully sharded step, whose weights are donated, under a limit of address space (RLIMIT_AS)
under which the program on whole values raises OutOfMemoryError. Printed and checked are the memory that the step took at its peak (resident
pages, by /proc) beside the need by `memory_analysis`; the new weights are those of the whole program, run without limit.
"""

from __future__ import annotations

import argparse
import resource
import sys

import numpy as np

import hlokit as hk

MOST = 1.2
"""Times the need by the memory analysis that a step may take."""
SHARE = 0.6
"""The limit, as a share of what the program on whole values needs."""


Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def step(layers: int, width: int, batch: int, devices: int) -> str:
    """HLO of a step of descent on the sum of squares of tanh(... tanh(x w0) ...)."""
    rows, both = f"f32[{batch},{width}]", f"f32[{width},{width}]"
    divided = f"sharding={{devices=[{devices},1]<=[{devices}]}}"
    aliases = ", ".join(f"{{{i}}}: ({i}, {{}}, must-alias)" for i in range(layers))
    lines = [f"HloModule step, input_output_alias={{ {aliases} }}", "ENTRY e {"]
    lines += [f"  w{i} = {both} parameter({i}), {divided}" for i in range(layers)]
    lines += [
        f"  h0 = {rows} parameter({layers}), {divided}",
        "  rate = f32[] constant(0.001)",
        "  c = f32[] constant(1)",
    ]
    lines += [f"  rates = {both} broadcast(rate), dimensions={{}}", f"  ones = {rows} broadcast(c), dimensions={{}}"]
    for i in range(layers):
        lines.append(f"  p{i} = {rows} dot(h{i}, w{i}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        lines.append(f"  h{i + 1} = {rows} tanh(p{i})")
    back = f"h{layers}"
    for i in reversed(range(layers)):
        lines.append(f"  sq{i} = {rows} multiply(h{i + 1}, h{i + 1})")
        lines.append(f"  t{i} = {rows} subtract(ones, sq{i})")
        lines.append(f"  d{i} = {rows} multiply({back}, t{i})")
        lines.append(f"  g{i} = {both} dot(h{i}, d{i}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}")
        lines.append(f"  r{i} = {both} multiply(rates, g{i})")
        lines.append(f"  n{i} = {both} subtract(w{i}, r{i})")
        lines.append(f"  b{i} = {rows} dot(d{i}, w{i}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}")
        back = f"b{i}"
    made = ", ".join(f"n{i}" for i in range(layers))
    where = ", ".join(["{" + divided.removeprefix("sharding={")] * layers)
    lines.append(f"  ROOT r = ({', '.join([both] * layers)}) tuple({made}), sharding={{{where}}}")
    return "\n".join([*lines, "}"])


def weight(number: int, width: int) -> Array:
    """The whole weight of a layer."""
    return (np.random.default_rng(number).normal(size=(width, width)) / width**0.5).astype(np.float32)


def examples(batch: int, width: int, rank: int, devices: int) -> Array:
    """The examples of a device."""
    return np.random.default_rng(1000 + rank).normal(size=(batch // devices, width)).astype(np.float32)


def whole_arguments(layers: int, width: int, batch: int, devices: int) -> list[Array]:
    """Whole weights and examples."""
    rows = np.concatenate([examples(batch, width, rank, devices) for rank in range(devices)])
    return [*(weight(i, width) for i in range(layers)), rows]


def of_process(key: str) -> int:
    """Bytes by /proc/self/status."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) << 10


def forget_peak() -> None:
    """VmHWM begins at what is resident now."""
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4096)
    options = parser.parse_args()
    layers, width, batch = options.layers, options.width, options.batch
    world = hk.mpi_world()
    module = hk.parse(step(layers, width, batch, world.size))
    found = hk.partition(module)
    part, whole = hk.compile(found.module, threads=1), hk.compile(module, threads=1)
    need = part.executable.memory_analysis().peak_memory_in_bytes
    all_of_it = whole.memory_analysis().peak_memory_in_bytes
    before, mapped = of_process("VmRSS"), of_process("VmSize")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(SHARE * all_of_it), hard))
    forget_peak()
    size = width // world.size
    own = slice(world.rank * size, (world.rank + 1) * size)
    arguments = [np.array(weight(i, width)[own]) for i in range(layers)]
    made = part(*arguments, examples(batch, width, world.rank, world.size), world=world)
    taken = of_process("VmHWM") - before
    refused = True
    wrong = 0
    if world.rank == 0:
        given = whole_arguments(layers, width, batch, world.size)
        try:
            whole(*given)
            refused = False
        except hk.OutOfMemoryError:
            pass
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if world.rank == 0:
        wanted = whole(*whole_arguments(layers, width, batch, world.size))
        wrong = sum(not np.allclose(a, b[own], rtol=1e-3, atol=1e-3) for a, b in zip(made, wanted, strict=True))
    print(
        f"rank {world.rank}: took {taken >> 20} MiB, {taken / need:.2f} times the {need >> 20} MiB that its part needs; "
        f"whole values need {all_of_it >> 20} MiB{' and fit' * (not refused)}; {wrong} weights differ",
        flush=True,
    )
    sys.exit(1 if wrong or not refused or taken > MOST * need else 0)


if __name__ == "__main__":
    main()
