"""fft: every transform is passes along one dimension, many sequences at once; long ones are split in two or three.

A pass takes up to 1024 elements; two passes take the product of two such lengths, three that of three. Rows that are a
product of two go one by one (rows.py). Other lengths, and few sequences of those with a large prime factor, are
convolutions (chirp.py).
"""

from __future__ import annotations

import math
from typing import Any

from hlokit.cpu.kernels.fft.along import is_possible
from hlokit.cpu.kernels.fft.axis import Axis, Place
from hlokit.cpu.kernels.fft.lanes import Lanes
from hlokit.cpu.kernels.fft.real import OPERAND, RESULT, Real, packed
from hlokit.cpu.kernels.flow import unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.llvm import Module


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
    wide = call.results[0].dtype.real.bits == 64
    lanes = Lanes("double" if wide else "float", max(4, call.target.vector_bytes // (8 if wide else 4)))
    writer = _Fft(unused_name(module, "fft"), module, lanes, math.prod(lengths), kind in ("IFFT", "IRFFT"))
    return writer.write(kind, lengths, call.operands[0].dimensions, call.results[0].dimensions)


class _Fft(Real):
    """A transform's routine."""

    def write(self, kind: str, lengths: tuple[int, ...], operand: tuple[int, ...], result: tuple[int, ...]) -> Routine:
        """The passes, last dimension first; of real results it is the last one instead."""
        rank = len(lengths)
        outer = math.prod(operand[:-1])
        if kind == "RFFT":
            self._real_to_complex(outer, lengths[-1])
            self._axes(result, rank - 1, RESULT, RESULT, rank == 1)
        elif kind == "IRFFT":
            source = OPERAND
            if rank > 1:
                source = self._taken(math.prod(operand))
                self._axes(operand, rank - 1, OPERAND, source, False)
            self._complex_to_real(outer, lengths[-1], operand[-1], source)
        else:
            turned = (self.inverse, self.inverse)
            factor = 1 / self.total if self.inverse and rank == 1 else 1.0
            self._along(Axis(outer, lengths[-1], 1, OPERAND, RESULT, turned, factor))
            self._axes(result, rank - 1, RESULT, RESULT, True)
        return Routine(tuple(self.phases), self.most)

    def _axes(self, sizes: tuple[int, ...], count: int, source: Place, target: Place, scaled: bool) -> None:
        """The `count` dimensions before the last one."""
        for step in range(count):
            d = len(sizes) - 2 - step
            factor = 1 / self.total if self.inverse and scaled and step == count - 1 else 1.0
            outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
            turned = (self.inverse, self.inverse)
            self._along(Axis(outer, sizes[d], inner, source, target, turned, factor))
            source = target


KERNELS["fft"] = fft
