"""JAX's programs as modules, with the meaning that XLA gives them on the CPU."""

from __future__ import annotations

from hlokit.api import parse
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import Pipeline
from hlokit.passes.pred_multiply_simplifier import PredMultiplySimplifier
from hlokit.runtime.dump import settings


def read(code: str | bytes, keeps_regions: bool = False) -> HloModule:
    """The module that JAX's StableHLO says, as `hlokit.parse` reads it, without products with masks.

    XLA makes selects of these products, and JAX programs rely on it: infinity times a mask of zeros is 0. The pass that
    does so stays away where it, or all of algsimp, is among `xla_disable_hlo_passes`.
    """
    module = parse(code, keeps_regions=keeps_regions)
    if not {PredMultiplySimplifier.name, "algsimp"} & {*settings().disabled}:
        Pipeline((PredMultiplySimplifier(),)).run(module)
    return module
