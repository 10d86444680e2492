"""Random programs with random shardings, in parts and whole: python -m tests.partition.campaign --count 1000.

    --seed N        the first seed
    --compiled      machine code runs the parts too
    --show SEED     prints a seed's program, its parts and the reasons

Integers and what only moves agree bit for bit; floats as their values are small whole numbers, to a bound. What machine
code gives beyond the bound is wrong if neither other roundings of the whole program's instructions nor other signs of
its NaNs explain it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.judge.closeness.spread import hangs_on_signs, near
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.shardings import random_mesh, shard_at_random
from hlokit.judge.fuzz.values import random_array
from hlokit.passes.partitioner import Network, partition
from hlokit.types.mesh import Mesh

NETWORKS = (Network(), Network(latency=0.0), Network(bandwidth=1e6, latency=0.0))
"""Where messages cost, where bytes do, and where bytes are all that does: plans and choices differ."""
_NOT_DRAWN = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})
_SHOW_ROUNDING = frozenset({"batch-norm-training", "batch-norm-grad", "bitcast-convert", "bitcast"})
"""Ops that make much of the last bit of a sum: of a variance of 0, or as an integer."""
_BOUND = 1e-3


def options(exact: bool) -> Options:
    """What is drawn: programs of integers, or of everything."""
    from hlokit.judge.fuzz.graph import RECIPES

    types = ("s32", "s32", "u8", "pred", "s16", "u32") if exact else ("f32", "f32", "s32", "pred", "f64", "c64")
    opcodes = frozenset(RECIPES) - _NOT_DRAWN - _SHOW_ROUNDING
    return Options(
        dynamic=False,
        layouts=False,
        types=types,
        wild=0.0,
        opcodes=opcodes,
        largest=9,
        denormals=False,
        identities=not exact,
    )


def program(seed: int) -> tuple[hk.HloModule, Mesh, list[Any], bool]:
    """A module with shardings, its mesh, arguments, and whether all is exact."""
    chance = random.Random(seed)
    exact = seed % 2 == 0
    module = random_module(seed, options(exact))
    kinds = {leaf.dtype.kind for i in module.instructions() for leaf in i.shape.leaves() if leaf.is_array}
    exact = not kinds & {"floating", "complex"}
    mesh = random_mesh(chance)
    shard_at_random(chance, module, mesh)
    numbers = np.random.default_rng(seed)
    arguments: list[Any] = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        if shape.dtype.is_floating or shape.dtype.is_complex:
            arguments.append(numbers.integers(-3, 4, shape.dimensions).astype(shape.dtype.numpy))
        else:
            arguments.append(random_array(numbers, shape.dtype, shape.dimensions, 0.0, False))
    return module, mesh, arguments, exact


def checked(seed: int, compiled: bool = False, opcodes: Counter[str] | None = None) -> str:
    """What is wrong with a seed's program in parts; "" if nothing is, "unsupported: ..." where it is refused by name."""
    module, mesh, arguments, exact = program(seed)
    try:
        found = partition(module, mesh, network=NETWORKS[seed // 2 % len(NETWORKS)])
    except hk.UnsupportedError as error:
        return f"unsupported: {str(error).split('(')[0]}"
    if opcodes is not None:
        opcodes.update(r.opcode for r in found.reasons if r.kind == "whole")
    parts = found.split(*arguments)
    with np.errstate(all="ignore"):
        want = hk.evaluate(module, *arguments, partitions=1)
        got = found.join(hk.evaluate(found.module, *parts))
        problem = difference(got, want, exact)
        if not problem and compiled:
            made = found.join(hk.compile(found.module)(*parts))
            problem = difference(made, want, exact)
            if problem and not exact and _is_left_open(made, want, module, arguments, seed):
                problem = ""
    return problem


def _is_left_open(made: Any, want: Any, module: hk.HloModule, arguments: list[Any], seed: int) -> bool:
    """Whether rounding, or the signs of NaNs, may make the whole program's result what machine code made of its parts."""
    whole = module.clone()
    whole.num_partitions = 1
    for instruction in whole.instructions():
        if instruction.extra is not None:
            instruction.extra.sharding = None
    return near(made, want, whole, arguments, seed) is None or hangs_on_signs(made, want, whole, arguments, seed)


def difference(got: Any, want: Any, exact: bool) -> str:
    """What differs of two results; "" if nothing does."""
    if isinstance(want, tuple):
        problems = [difference(g, w, exact) for g, w in zip(got, want, strict=True)]
        return next((p for p in problems if p), "")
    if want is None:
        return ""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    if exact or want.dtype.kind not in "fc":
        return "" if got.tobytes() == want.tobytes() else f"other bits: {got} for {want}"
    scale = np.max(np.abs(want), initial=1.0, where=np.isfinite(want))
    near = np.isclose(got, want, rtol=_BOUND, atol=_BOUND * float(scale), equal_nan=True)
    return "" if np.all(near) else f"{got} for {want}"


def shown(seed: int) -> str:
    """A seed's program and its parts."""
    module, mesh, _, _ = program(seed)
    found = partition(module, mesh, network=NETWORKS[seed // 2 % len(NETWORKS)])
    return "\n".join([str(module), str(found.module), *map(str, found.reasons)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--show", type=int)
    given = parser.parse_args()
    if given.show is not None:
        print(shown(given.show))
        print(checked(given.show, given.compiled))
        return
    classes: Counter[str] = Counter()
    opcodes: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        try:
            found = checked(seed, given.compiled, opcodes)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found and not found.startswith("unsupported"):
            print(f"seed {seed}: {found[:300]}")
        classes[found if found.startswith("unsupported") else "wrong" if found else "equal"] += 1
    for name, count in classes.most_common():
        print(f"{count:7} {name}")
    print("on whole values:", ", ".join(f"{opcode} {count}" for opcode, count in opcodes.most_common()))
    sys.exit(1 if classes["wrong"] else 0)


if __name__ == "__main__":
    main()
