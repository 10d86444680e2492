"""The steps of bench/training.py's loops as programs: training/LOOP. The state is donated, the batch stays the same."""

from __future__ import annotations

from typing import Any

from bench.programs.program import Program
from bench.training import LOOPS

NAMES = tuple(f"training/{loop}" for loop in LOOPS)


def named(name: str) -> Program:
    """The step of training/LOOP. Making it needs JAX."""
    import jax

    step, state, batches = LOOPS[name.partition("/")[2]]()
    leaves, tree = jax.tree.flatten((state, *batches[0]))
    donated = len(jax.tree.leaves(state))

    def function(*arguments: Any) -> Any:
        return tuple(jax.tree.leaves(step(*jax.tree.unflatten(tree, arguments))))

    return Program("training", name, lambda draw: tuple(leaves), function, donate=tuple(range(donated)), tolerance=1e-3)
