"""Executable: a compiled module, ready to be called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.cpu.cache import compiled
from hlokit.cpu.compiler import Program, compile_program
from hlokit.cpu.jit import Library
from hlokit.cpu.lapack import lapack_symbols
from hlokit.cpu.pool import pool
from hlokit.cpu.build import array_leaves
from hlokit.cpu.program import HostStep
from hlokit.cpu.target import Target, host
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import TOKEN_VALUE
from hlokit.interpreter.evaluate import argument, run_instruction
from hlokit.interpreter.process import Process
from hlokit.passes.dynamic_padder import padded
from hlokit.runtime.arena import Arena, empty
from hlokit.types.shape import Shape

_HOST = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


class Executable:
    """A compiled module. Calling it runs the machine code; several threads may call it at once.

    Arguments and results are as hlokit.evaluate's. Made by hlokit.compile.
    """

    def __init__(
        self,
        module: HloModule,
        *,
        threads: int | None = None,
        strict: bool = False,
        donate: Sequence[int] = (),
        target: Target | None = None,
    ) -> None:
        self.source = module
        self.target = target or host()
        static, self._signature = padded(module)
        self.program: Program = compile_program(static, self.target, strict=strict)
        data = compiled(self.program.text, self.target, name=module.name)
        self._pool = pool(threads)
        self._library = Library([data], {**self._pool.symbols, **lapack_symbols(self.program.text)})
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._library.address("hlokit_entry"))
        self._arena = Arena(max(64, self.program.assignment.nbytes))
        self._constants = [np.ascontiguousarray(literal.to_python()) for literal in self.program.constants]
        self._result_shapes = list(array_leaves(self.program.module.entry.root.shape))
        self._calls: dict[int, _Call] = {}
        self._callback = _HOST(self._host)

    def __call__(self, *args: Any) -> Any:
        parameters = self.source.entry.parameters
        if len(args) != len(parameters):
            raise ArgumentError(f"{self.source.name} takes {len(parameters)} arguments, got {len(args)} [EXEC-3]")
        values = [
            argument(f"argument {i} ({p.name})", p.shape, a) for i, (p, a) in enumerate(zip(parameters, args, strict=True))
        ]
        if self._signature.sizes_in:
            values = self._signature.arguments(values)
        leaves: list[np.ndarray[Any, Any]] = []
        for value in values:
            _flatten(value, leaves)
        results = [empty(s.dimensions, s.dtype.numpy, s.nbytes) for s in self._result_shapes]
        call = _Call(Process())
        with self._arena.buffer() as memory:
            arrays = [*leaves, *results, *self._constants]
            bases = (ctypes.c_void_p * (len(arrays) + 4))()
            for k, array in enumerate(arrays):
                bases[k] = array.ctypes.data
            bases[len(arrays)] = memory.address
            bases[len(arrays) + 1] = self._pool.address
            bases[len(arrays) + 2] = ctypes.cast(self._callback, ctypes.c_void_p).value
            bases[len(arrays) + 3] = id(call)
            self._calls[id(call)] = call
            try:
                self._entry(bases)
            finally:
                del self._calls[id(call)]
        if call.error is not None:
            raise call.error
        return self._signature.result(_tree(self.program.module.entry.root.shape, iter(results)))

    def _host(self, context: int, number: int, table: int) -> int:
        """One step of the reference, called from machine code."""
        call = self._calls[context]
        try:
            self._evaluate(call, self.program.written.hosts[number], table)
        except BaseException as error:
            call.error = error
            return 1
        return 0

    def _evaluate(self, call: _Call, step: HostStep, table: int) -> None:
        instruction = step.instructions[0]
        pointers = (ctypes.c_void_p * (len(step.reads) + len(step.writes))).from_address(table)
        k = 0
        operands: list[Any] = []
        for operand in instruction.operands:
            arrays: list[Any] = []
            for leaf in array_leaves(operand.shape):
                arrays.append(_view(pointers[k], leaf))
                k += 1
            operands.append(_tree(operand.shape, iter(arrays), TOKEN_VALUE))
        value = run_instruction(call.process, instruction, operands)
        found: list[np.ndarray[Any, Any]] = []
        _flatten(value, found)
        for leaf, array in zip(array_leaves(instruction.shape), found, strict=True):
            _view(pointers[k], leaf)[...] = array
            k += 1


class _Call:
    """One call in progress."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.error: BaseException | None = None


def _view(pointer: int | None, shape: Shape) -> np.ndarray[Any, Any]:
    dtype = shape.dtype.numpy
    if not shape.nbytes or pointer is None:
        return np.empty(shape.dimensions, dtype)
    memory = (ctypes.c_char * (shape.size * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype).reshape(shape.dimensions)


def _flatten(value: Any, into: list[np.ndarray[Any, Any]]) -> None:
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            _flatten(part, into)
    elif isinstance(value, np.ndarray):
        into.append(value if value.flags.c_contiguous else np.ascontiguousarray(value))


def _tree(shape: Shape, leaves: Any, token: Any = None) -> Any:
    """The leaves in the shape's structure."""
    if shape.is_tuple:
        return tuple(_tree(part, leaves, token) for part in shape.elements)
    return next(leaves) if shape.is_array else token


__all__ = ["Executable", "HlokitError"]
