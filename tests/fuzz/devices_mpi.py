"""The random programs of tests.fuzz.devices on processes under MPI: the bytes of threads, and no hang.

Programs for more devices than there are processes are passed over; `count` is of those that ran.

    mpirun -n 4 python -m tests.fuzz.devices_mpi --count 1000 --seed 0
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import hlokit as hk
from hlokit.analysis import rendezvous
from tests.fuzz.devices import LENGTH, Deadlock, model, module_of, random_deadlock, random_program

LABELS = ("GRP-6", "GRP-8", "COMM-12", "COMM-3")


class Ranks:
    """A world for every number of devices; `this`: this process's rank."""

    def __init__(self) -> None:
        comm = MPI.COMM_WORLD
        self.this, self.size = comm.rank, comm.size
        self.comms = {n: comm.Split(self.this < n) for n in range(2, self.size + 1)}
        self.worlds = {n: hk.mpi_world(part) for n, part in self.comms.items() if self.this < n}

    def programs(self, seed: int, count: int) -> Any:
        """(seed, program) of those that these processes can run; to this rank only what it takes part in."""
        fitting = ((s, random_program(s)) for s in itertools.count(seed))
        chosen = ((s, p) for s, p in fitting if 2 <= len(p.inputs) <= self.size)
        return ((s, p) for s, p in itertools.islice(chosen, count) if self.this < len(p.inputs))

    def deadlocks(self, seed: int, count: int) -> Any:
        fitting = ((s, random_deadlock(s)) for s in itertools.count(seed))
        chosen = ((s, d) for s, d in fitting if 2 <= d.devices <= self.size)
        return ((s, d) for s, d in itertools.islice(chosen, count) if self.this < d.devices)


def check_program(ranks: Ranks, seed: int, program: Any) -> list[str]:
    """Interpreter and machine code give here what they give in threads, bit for bit; one rank of each has those run."""
    count = len(program.inputs)
    world, module = ranks.worlds[count], module_of(program)
    compiled = hk.compile(module, threads=1)
    own = [
        hk.evaluate(module, program.inputs[world.rank], world=world),
        compiled(program.inputs[world.rank], world=world),
    ]
    home = seed % count
    gathered = np.empty((count, 2, LENGTH), program.dtype)
    ranks.comms[count].Gather(np.stack(own), gathered, home)
    if world.rank != home:
        return []
    wanted = {
        "the model": model(program),
        "the interpreter in threads": hk.evaluate(module, *program.arguments),
        "machine code in threads": compiled(*program.arguments),
    }
    return [
        f"{seed}: device {device}, {('interpreter', 'machine code')[k]}: {gathered[device, k]}, {name} {arrays[device]}"
        for name, arrays in wanted.items()
        for device, k in itertools.product(range(count), range(2))
        if not _same(gathered[device, k], arrays[device], bits=name != "the model")
    ]


def _same(a: Any, b: Any, bits: bool) -> bool:
    return a.dtype == b.dtype and (a.tobytes() == b.tobytes() if bits else np.array_equal(a, b))


def check_deadlock(ranks: Ranks, seed: int, deadlock: Deadlock) -> list[str]:
    """Refused or reported, by the same words on all ranks; and reported where nothing is proved before."""
    world = ranks.worlds[deadlock.devices]
    proof = rendezvous.refuse_deadlock
    found: list[str] = []
    for refuse in (proof, lambda *_: None):
        rendezvous.refuse_deadlock = refuse  # type: ignore[assignment]
        start = time.perf_counter()
        try:
            deadlock.call(world)
            text = "came to an end"
        except hk.EvaluationError as error:
            text = str(error)
        finally:
            rendezvous.refuse_deadlock = proof
        seconds = time.perf_counter() - start
        if not any(f"[{label}]" in text for label in LABELS) or seconds > 30:
            found.append(f"{seed}, {deadlock.kind}: {text} ({seconds:.1f} s)")
        found += _differing(ranks.comms[deadlock.devices], seed, text)
    return found


def _differing(comm: MPI.Intracomm, seed: int, text: str) -> list[str]:
    said = text.encode()[:4096].ljust(4096)
    all_said = np.empty((comm.size, 4096), np.uint8)
    comm.Allgather(np.frombuffer(said, np.uint8).copy(), all_said)
    others = {bytes(row).decode(errors="replace").strip() for row in all_said}
    return [f"{seed}: ranks differ: {others}"] if len(others) > 1 and comm.rank == 0 else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.devices_mpi", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs; a fifth as many deadlocks besides")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ranks = Ranks()
    failures = 0
    for name, check, drawn, count in (
        ("programs", check_program, ranks.programs, options.count),
        ("deadlocks", check_deadlock, ranks.deadlocks, options.count // 5),
    ):
        start = time.perf_counter()
        for seed, program in drawn(options.seed, count):
            found = check(ranks, seed, program)
            failures += len(found)
            for line in found:
                print(line[:600], flush=True)
        MPI.COMM_WORLD.Barrier()
        if ranks.this == 0:
            print(f"{name}: {count} in {time.perf_counter() - start:.1f} s", flush=True)
    total = np.zeros(1, np.int64)
    MPI.COMM_WORLD.Allreduce(np.array([failures]), total)
    if ranks.this == 0:
        print(f"{total[0]} failures", flush=True)
    return 1 if total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
