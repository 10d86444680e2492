"""Fourier transforms: fft."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from hlokit.forms.cost import Cost, log2, moved
from hlokit.forms.kernel import Kernel
from hlokit.hlo.op import REARRANGED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.memory import beside_arrays
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Dims, choice
from hlokit.types.shape import Shape

_COMPLEX_OF = {dtypes.f32: dtypes.c64, dtypes.f64: dtypes.c128}


class Fft(Op, name="fft"):
    """Discrete Fourier transform over the last len(fft_length) dimensions; the inverse ones scale by 1/N (FFT-9)."""

    fft_type: Annotated[str, choice("fft_type", "FFT", "IFFT", "RFFT", "IRFFT")] = attr()
    fft_length: Dims = attr()

    rounding = REARRANGED
    arity = 1
    form = "kernel"
    rules = "FFT"

    def infer(self, operand: Shape) -> Shape:
        count = len(self.fft_length)
        check(
            1 <= count <= 3 and count <= operand.rank,
            "FFT-1",
            "fft_length",
            self.fft_length,
            f"1 to {min(3, operand.rank)} lengths",
        )
        if self.fft_type == "RFFT":
            check(operand.dtype in _COMPLEX_OF, "FFT-3", "operand", operand, "f32 or f64")
            return self._real_to_complex(operand)
        check(
            operand.dtype.is_complex,
            "FFT-3" if self.fft_type == "IRFFT" else "FFT-2",
            "operand",
            operand,
            "a complex array",
        )
        if self.fft_type == "IRFFT":
            return self._complex_to_real(operand)
        check(
            operand.dimensions[-count:] == self.fft_length or 0 in operand.dimensions[-count:],
            "FFT-4",
            "transformed dimensions",
            operand.dimensions[-count:],
            self.fft_length,
        )
        return operand.logical

    def _real_to_complex(self, operand: Shape) -> Shape:
        sizes = operand.dimensions
        found = sizes[-len(self.fft_length) :]
        check(found == self.fft_length, "FFT-5", "transformed dimensions", found, self.fft_length)
        last = sizes[-1] // 2 + 1 if sizes[-1] else 0
        return Shape.array(_COMPLEX_OF[operand.dtype], (*sizes[:-1], last), operand.dynamic)

    def _complex_to_real(self, operand: Shape) -> Shape:
        sizes, length = operand.dimensions, self.fft_length[-1]
        found = sizes[-len(self.fft_length) :]
        halves = (length // 2 + 1,) if length else (1, 0)
        expected = (*self.fft_length[:-1], halves[0])
        check(found[-1] in halves and found[:-1] == expected[:-1], "FFT-6", "transformed dimensions", found, expected)
        return Shape.array(operand.dtype.real, (*sizes[:-1], length), operand.dynamic)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Eight operations per element and stage, the stages of each dimension added."""
        stages = sum(map(log2, self.fft_length))
        return moved(operands, result) + Cost(8 * stages * operands[0].size)

    def reference(self, operand: Array, shape: Shape) -> Array:
        if not operand.size or not shape.size:
            return np.zeros((*operand.shape[:-1], shape.dimensions[-1]), shape.dtype.numpy)
        axes = tuple(range(-len(self.fft_length), 0))
        operand = np.ascontiguousarray(operand)  # the last bits of NumPy's transforms depend on the order in memory
        with beside_arrays(max(map(_plan_bytes, self.fft_length))):
            if self.fft_type == "IRFFT":
                sizes = (*operand.shape[axes[0] : -1], self.fft_length[-1])
                return np.fft.irfftn(operand, sizes, axes)
            transform = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn}[self.fft_type]
            return transform(operand, axes=axes)

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("fft", prologue=(0,), whole=tuple(range(-len(self.fft_length), 0)))


def _plan_bytes(length: int) -> int:
    """Memory that NumPy's transform of so many points takes for itself: its roots of unity and a line, or several of up
    to four times the length where it has a large prime factor (Bluestein's algorithm)."""
    rest = length
    for factor in (2, 3, 5, 7, 11):
        while rest % factor == 0:
            rest //= factor
    return length * (48 if rest == 1 else 160)
