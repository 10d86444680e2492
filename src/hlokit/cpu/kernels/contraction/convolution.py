"""Contractions with windows: the choice of the method for the shapes."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx_convolution import plan_amx
from hlokit.cpu.kernels.contraction.depthwise import suits
from hlokit.cpu.kernels.contraction.direct_convolution import plan_tiles
from hlokit.cpu.kernels.contraction.scalar_convolution import ScalarPlan
from hlokit.cpu.kernels.contraction.windows import WindowSpace, along_inputs, by_features, window_space, without_holes
from hlokit.cpu.kernels.contraction.zeros import write_zeros
from hlokit.cpu.kernels.routine import Call, Routine, RoutinePlan
from hlokit.cpu.llvm import Module
from hlokit.forms.contraction import Contraction

_PARTS = 64
"""Parts without holes for which code is written."""


@dataclass(frozen=True)
class ConvolutionPlan:
    """Plans of the parts of a convolution, each of outputs that meet the same taps; `empty`: those that meet none."""

    call: Call
    parts: tuple[RoutinePlan, ...]
    empty: tuple[WindowSpace, ...] = ()

    def write(self, module: Module) -> Routine:
        """Writes the functions into the module."""
        routines = [part.write(module) for part in self.parts]
        phases = tuple(phase for r in routines for phase in r.phases)
        if self.empty:
            phases = (write_zeros(self.call, module, self.empty), *phases)
        return Routine(phases, max((r.scratch for r in routines), default=0))


def plan_convolution(call: Call, form: Contraction) -> RoutinePlan:
    """A convolution. Positions in padding add zeros, and so do those in the holes of a dilated lhs (CONV-6)."""
    s = window_space(form, call.operands, call.results[0], call.target)
    parts = without_holes(s)
    met, empty = [part for part in parts if part.steps], [part for part in parts if not part.steps]
    if s.elements * s.steps < costs.FEW_PRODUCTS * len(met) or len(met) > _PARTS:
        return ScalarPlan(call, s)
    return ConvolutionPlan(call, tuple(_plan_part(call, part) for part in met), tuple(empty))


def _plan_part(call: Call, s: WindowSpace) -> RoutinePlan:
    """Outputs that meet the same taps: no holes."""
    plan: RoutinePlan | None = None
    if not s.arithmetic.is_complex:
        if suits(s, s.arithmetic.lanes(call.target)):
            plan = plan_tiles(call, by_features(s))
        plan = plan or plan_amx(call, s)
        if plan is None and (along := along_inputs(s, s.arithmetic.lanes(call.target))) is not None:
            plan = plan_tiles(call, along)
        plan = plan or plan_tiles(call, s)
    return plan or ScalarPlan(call, s)
