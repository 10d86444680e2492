"""fft: every transform is passes along one dimension, many sequences at once; long ones are split in two or three.

A pass takes up to 1024 elements; two passes take the product of two such lengths, three that of three. Rows that are a
product of two go one by one (rows.py). Other lengths, and few sequences of those with a large prime factor, are
convolutions (bluestein.py).
"""

from __future__ import annotations

import math
from typing import Any

from hlokit.cpu.kernels.fft.along import is_possible, transform
from hlokit.cpu.kernels.fft.axis import Axis, Place
from hlokit.cpu.kernels.fft.phases import Phases
from hlokit.cpu.kernels.fft.real import OPERAND, RESULT, complex_to_real, packed, real_to_complex
from hlokit.cpu.kernels.flow import unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.llvm import Module, type_of


def fft(call: Call, module: Module) -> Routine | None:
    """None: a length is not for it, or the order of additions is to be the reference's."""
    if call.strict:
        return None
    if not call.results[0].size:
        return Routine(())
    if not call.operands[0].size:
        return None
    op: Any = call.op
    kind: str = op.fft_type
    lengths: tuple[int, ...] = op.fft_length
    last = lengths[-1] if kind in ("FFT", "IFFT") else packed(lengths[-1])
    if not all(map(is_possible, (*lengths[:-1], last))):
        return None
    scalar = type_of("double" if call.results[0].dtype.real.bits == 64 else "float")
    vector = scalar.of(max(4, call.target.vector_bytes // scalar.bytes))
    phases = Phases(unused_name(module, "fft"), module, vector, math.prod(lengths), kind in ("IFFT", "IRFFT"))
    _write(phases, kind, lengths, call.operands[0].dimensions, call.results[0].dimensions)
    return Routine(tuple(phases.phases), phases.most)


def _write(
    phases: Phases, kind: str, lengths: tuple[int, ...], operand: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """Adds the phases, last dimension first; of real results it is the last one instead."""
    rank = len(lengths)
    outer = math.prod(operand[:-1])
    if kind == "RFFT":
        real_to_complex(phases, outer, lengths[-1])
        _transform_axes(phases, result, rank - 1, RESULT, RESULT, rank == 1)
    elif kind == "IRFFT":
        source = OPERAND
        if rank > 1:
            source = phases.take(math.prod(operand))
            _transform_axes(phases, operand, rank - 1, OPERAND, source, False)
        complex_to_real(phases, outer, lengths[-1], operand[-1], source)
    else:
        factor = 1 / phases.total if phases.inverse and rank == 1 else 1.0
        swapped = (phases.inverse, phases.inverse)
        transform(phases, Axis(outer, lengths[-1], 1, OPERAND, RESULT, swapped, factor))
        _transform_axes(phases, result, rank - 1, RESULT, RESULT, True)


def _transform_axes(
    phases: Phases, sizes: tuple[int, ...], count: int, source: Place, target: Place, scaled: bool
) -> None:
    """Along the `count` dimensions before the last one."""
    for step in range(count):
        d = len(sizes) - 2 - step
        factor = 1 / phases.total if phases.inverse and scaled and step == count - 1 else 1.0
        outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
        swapped = (phases.inverse, phases.inverse)
        transform(phases, Axis(outer, sizes[d], inner, source, target, swapped, factor))
        source = target


KERNELS["fft"] = fft
