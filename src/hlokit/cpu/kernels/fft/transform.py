"""fft: every transform consists of passes along one dimension, for many sequences at once; long ones are split.

A pass takes up to 1024 elements; two passes take the product of two such lengths, three that of three. Rows that are a
product of two go one by one (rows.py). Other lengths, and few sequences of those with a large prime factor, are
convolutions (bluestein.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hlokit.cpu.kernels.fft.along import is_possible, transform
from hlokit.cpu.kernels.fft.axis import Place, TransformAxis
from hlokit.cpu.kernels.fft.phases import Phases
from hlokit.cpu.kernels.fft.real import OPERAND, RESULT, complex_to_real, packed, real_to_complex
from hlokit.cpu.kernels.flow import unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, EmptyPlan, PlannedKernel, Routine, RoutinePlan
from hlokit.cpu.llvm import Module, Type, type_of


@dataclass(frozen=True)
class FftPlan:
    """Passes along each dimension.

    kind      FFT, IFFT, RFFT or IRFFT
    lengths   of the transform's dimensions, the last ones
    operand   dimensions of the operand; result: of the result
    vector    of real parts, or imaginary ones
    """

    kind: str
    lengths: tuple[int, ...]
    operand: tuple[int, ...]
    result: tuple[int, ...]
    vector: Type

    def write(self, module: Module) -> Routine:
        is_inverse = self.kind in ("IFFT", "IRFFT")
        phases = Phases(unused_name(module, "fft"), module, self.vector, math.prod(self.lengths), is_inverse)
        self._add_phases(phases)
        return Routine(tuple(phases.phases), phases.most)

    def _add_phases(self, phases: Phases) -> None:
        """Adds the phases, last dimension first; of real results it is the last one instead."""
        rank, last = len(self.lengths), self.lengths[-1]
        outer = math.prod(self.operand[:-1])
        if self.kind == "RFFT":
            real_to_complex(phases, outer, last)
            _transform_axes(phases, self.result, rank - 1, RESULT, RESULT, rank == 1)
        elif self.kind == "IRFFT":
            source = OPERAND
            if rank > 1:
                source = phases.take(math.prod(self.operand))
                _transform_axes(phases, self.operand, rank - 1, OPERAND, source, False)
            complex_to_real(phases, outer, last, self.operand[-1], source)
        else:
            factor = 1 / phases.total if phases.inverse and rank == 1 else 1.0
            swapped = (phases.inverse, phases.inverse)
            transform(phases, TransformAxis(outer, last, 1, OPERAND, RESULT, swapped, factor))
            _transform_axes(phases, self.result, rank - 1, RESULT, RESULT, True)


def plan(call: Call) -> RoutinePlan | None:
    """None: a length is not for it, or the order of additions is to be the reference's."""
    if call.strict:
        return None
    operand, result = call.operands[0], call.results[0]
    if not result.size:
        return EmptyPlan()
    if not operand.size:
        return None
    op: Any = call.op
    kind: str = op.fft_type
    lengths: tuple[int, ...] = op.fft_length
    last = lengths[-1] if kind in ("FFT", "IFFT") else packed(lengths[-1])
    if not all(map(is_possible, (*lengths[:-1], last))):
        return None
    scalar = type_of("double" if result.dtype.real.bits == 64 else "float")
    vector = scalar.of(max(4, call.target.vector_bytes // scalar.bytes))
    return FftPlan(kind, lengths, operand.dimensions, result.dimensions, vector)


def _transform_axes(
    phases: Phases, sizes: tuple[int, ...], count: int, source: Place, target: Place, scaled: bool
) -> None:
    """Along the `count` dimensions before the last one."""
    for step in range(count):
        d = len(sizes) - 2 - step
        factor = 1 / phases.total if phases.inverse and scaled and step == count - 1 else 1.0
        outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
        swapped = (phases.inverse, phases.inverse)
        transform(phases, TransformAxis(outer, sizes[d], inner, source, target, swapped, factor))
        source = target


KERNELS["fft"] = PlannedKernel(plan)
