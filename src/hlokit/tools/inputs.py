"""Arguments of commands: from an .npz, or random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError
from hlokit.files.arrays import arguments_from_arrays, arrays_in, made_up
from hlokit.hlo.module import HloModule
from hlokit.tools.files import content_of


def arguments_for(module: HloModule, input: Path | None, random: int | None, device: int = 0) -> list[Any]:
    """One argument for each parameter: from a file, else made up by the seed `random`.

    Raises ArgumentError where neither is given, for a file that does not fit (with its name) and for a negative seed.
    """
    parameters = module.entry.parameters
    if input is not None:
        try:
            return arguments_from_arrays(module, arrays_in(content_of(input)))
        except ArgumentError as error:
            error.file = str(input)
            raise
    if random is not None:
        if random < 0:
            raise ArgumentError(f"--random {random}, expected a seed of at least 0")
        generator = np.random.default_rng([random, device] if device else random)
        return [made_up(generator, p.shape) for p in parameters]
    if parameters:
        raise ArgumentError(
            f"{module.name} takes {len(parameters)} argument(s): give --input FILE.npz or --random SEED"
        )
    return []
