"""Runs one routine of the kernel form on NumPy arrays: for tests."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hlokit.cpu.jit.legal import legal
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.kernels.routine import Call, Kernel
from hlokit.cpu.llvm import Module

_STEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_GUARD = 4096


class Routines:
    """The machine code of a call. `functions`: LLVM text of what it calls."""

    def __init__(self, call: Call, kernel: Kernel, functions: str = "") -> None:
        module = Module()
        routine = kernel(call, module)
        assert routine is not None
        self.call, self.routine = call, routine
        module.exported.update(dict.fromkeys(p.function for p in routine.phases))
        self.text = legal(module, call.target).text() + functions
        self._code = Library([compile_object(self.text, call.target)]) if routine.phases else None

    def __call__(self, *operands: Any, backwards: bool = False) -> list[Any]:
        """The results. Chunks run three at a time, or one at a time from the last; nothing outside may be written."""
        arrays = [np.ascontiguousarray(o) for o in operands]
        results = [np.empty(r.dimensions, r.dtype.numpy) for r in self.call.results]
        memory = [_Guarded(max(r.nbytes, 1)) for r in results] + [_Guarded(self.routine.scratch + 1)]
        addresses = [a.ctypes.data for a in arrays] + [m.address for m in memory]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        for phase in self.routine.phases:
            assert self._code is not None
            function = _STEP(self._code.address(phase.function))
            step = 1 if backwards else 3
            chunks = range(0, phase.chunks, step)
            for begin in reversed(chunks) if backwards else chunks:
                function(ctypes.addressof(table), begin, min(begin + step, phase.chunks))
        for m in memory:
            m.check()
        for result, m in zip(results, memory, strict=False):
            ctypes.memmove(result.ctypes.data, m.address, result.nbytes)
        return results


class _Guarded:
    """Memory between bytes that must stay as they are."""

    def __init__(self, size: int) -> None:
        self._bytes = np.full(size + 2 * _GUARD + 64, 0xC1, np.uint8)
        self._start = _GUARD + -(self._bytes.ctypes.data + _GUARD) % 64
        self._end = self._start + size
        self.address = self._bytes.ctypes.data + self._start

    def check(self) -> None:
        assert (self._bytes[: self._start] == 0xC1).all()
        assert (self._bytes[self._end :] == 0xC1).all()


def bits(array: Any) -> Any:
    """The bytes of the elements, to be compared exactly."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
