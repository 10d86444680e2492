"""Contractions with windows: the way that suits the shapes."""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.amx_convolution import by_amx
from hlokit.cpu.kernels.contraction.depthwise import suits
from hlokit.cpu.kernels.contraction.direct_convolution import tile_by_tile
from hlokit.cpu.kernels.contraction.scalar_convolution import element_by_element
from hlokit.cpu.kernels.contraction.windows import WindowSpace, by_features, window_space, without_holes
from hlokit.cpu.kernels.contraction.zeros import write_zeros
from hlokit.cpu.kernels.routine import Call, Routine
from hlokit.cpu.llvm import Module
from hlokit.forms.contraction import Contraction

_FEW = 4096
"""Products for which tiles are not worth the time to compile them."""

_PARTS = 64
"""Parts without holes for which code is written."""


def convolution(call: Call, module: Module, form: Contraction) -> Routine:
    """A convolution. Positions in padding and in the holes of a dilated lhs add zeros (CONV-6)."""
    s = window_space(form, call.operands, call.results[0])
    if s.elements == 0:
        return Routine(())
    parts = without_holes(s)
    met, empty = [part for part in parts if part.steps], [part for part in parts if not part.steps]
    if s.elements * s.steps < _FEW * len(met) or len(met) > _PARTS:
        return element_by_element(call, module, s)
    routines = [_part(call, module, part) for part in met]
    phases = tuple(phase for r in routines for phase in r.phases)
    if empty:
        phases = (write_zeros(call, module, empty), *phases)
    return Routine(phases, max((r.scratch for r in routines), default=0))


def _part(call: Call, module: Module, s: WindowSpace) -> Routine:
    """Outputs that meet the same taps: no holes."""
    routine = None
    if not s.wide.is_complex:
        lanes = call.target.vector_bytes // (s.wide.bits // 8)
        if suits(s, lanes):
            routine = tile_by_tile(call, module, by_features(s))
        routine = routine or by_amx(call, module, s) or tile_by_tile(call, module, s)
    return routine or element_by_element(call, module, s)
