"""The LAPACK calls of JAX's CPU lowering, `lapack_{s,d,c,z}NAME_ffi`, by SciPy's LAPACK.

Values are logical, so that the column-major layouts which JAX asks for do not matter; the routine gets copies in its
own order. The results are LAPACK's, info included: what a failure means is said by the HLO around the call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, cast

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes
from hlokit.ops.custom_targets.lapack_routines import (
    NOT_FINITE,
    TARGETS,
    Argument,
    Block,
    Character,
    Job,
    Null,
    Number,
    Scalar,
    Work,
    WorkSize,
    job_of,
)
from hlokit.ops.custom_targets.registry import Invocation, built_in
from hlokit.ops.linalg import by_lapack
from hlokit.types.dtype import dtype
from hlokit.types.shape import shape_of


@built_in(*TARGETS)
def lapack(call: Invocation) -> Any:
    """The routine's results, one call for each matrix of the batch."""
    shapes = call.shape.elements if call.shape.is_tuple else (call.shape,)
    operands = [shape_of(operand) for operand in call.operands]
    job = job_of(call.op.custom_call_target, ffi_attributes(call.opaque), operands, shapes)
    results = tuple(np.zeros(shape.dimensions, shape.dtype.numpy) for shape in shapes)
    _run(job, call.operands, results)
    return results if call.shape.is_tuple else results[0]


def _run(job: Job, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
    arguments = with_workspace(job)
    buffers = [_buffer(argument) for argument in arguments]
    for i, argument in enumerate(arguments):
        if isinstance(argument, WorkSize):
            buffers[i] = np.array(buffers[i - 1].size, np.int32)
    pointers = [_pointer(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True)]
    routine = _function(job, len(arguments))
    blocks = [(argument, buffer) for argument, buffer in zip(arguments, buffers) if isinstance(argument, Block)]
    main = max(range(len(buffers)), key=lambda i: buffers[i].size if isinstance(arguments[i], Block) else 0)
    for index in np.ndindex(*job.batch):
        for block, buffer in blocks:
            buffer[...] = 0 if block.source is None else operands[block.source][index].T
        if job.finite_only and not all(np.isfinite(b).all() for block, b in blocks if block.source is not None):
            buffers[-1][...] = NOT_FINITE
        else:
            by_lapack(lambda: _called(routine, pointers, buffers), buffers[main])
        for block, buffer in blocks:
            if block.result is not None:
                results[block.result][index] = buffer.T
        for result, vectors, imaginary in job.pairs:
            results[result][index] = _paired(buffers[vectors].T, buffers[imaginary])


def _called(routine: Any, pointers: list[int | None], buffers: list[Array]) -> list[Array]:
    """Calls the routine; whoever is in it holds the memory that it works on."""
    routine(*pointers)
    return buffers


def _paired(vectors: Array, imaginary: Array) -> Array:
    """Complex columns: x and its conjugate where a pair of eigenvalues left columns (Re x, Im x)."""
    result = vectors + np.zeros_like(vectors) * 1j
    for i in np.flatnonzero(imaginary > 0):
        result[:, i] = vectors[:, i] + 1j * vectors[:, i + 1]
        result[:, i + 1] = result[:, i].conj()
    return result


def with_workspace(job: Job) -> tuple[Argument, ...]:
    """The job's arguments with every Work in elements: what the routine says that it needs at best."""
    queried = [i for i, argument in enumerate(job.arguments) if isinstance(argument, Work) and argument.size is None]
    if not queried:
        return job.arguments
    buffers = [_buffer(argument, empty=True) for argument in job.arguments]
    for i, argument in enumerate(job.arguments):
        if isinstance(argument, WorkSize):
            buffers[i] = np.array(-1, np.int32)
    pointers = [_pointer(argument, buffer) for argument, buffer in zip(job.arguments, buffers, strict=True)]
    _function(job, len(job.arguments))(*pointers)
    arguments = list(job.arguments)
    for i in queried:
        size = float(buffers[i].flat[0].real)
        if buffers[i].dtype in (np.float32, np.complex64):
            size = float(np.nextafter(np.float32(size), np.float32(np.inf)))  # older LAPACKs round the size down
        arguments[i] = Work(cast("Work", arguments[i]).dtype, max(1, int(size)))
    return tuple(arguments)


def _buffer(argument: Argument, empty: bool = False) -> Array:
    """Memory for an argument. `empty`: for a query of workspace, which reads and writes no matrix."""
    match argument:
        case Character(value):
            return np.array(value.encode("ascii"))
        case Number(value):
            return np.array(value, np.int32)
        case Scalar(name, value):
            return np.array(value, dtype(name).numpy)
        case Block(name, sizes):
            return np.zeros((1,) if empty else sizes[::-1], dtype(name).numpy)
        case Work(name, size):
            return np.zeros(max(1, size or 0), dtype(name).numpy)
        case _:
            return np.zeros((), np.int32)


def _pointer(argument: Argument, buffer: Array) -> int | None:
    if isinstance(argument, Null):
        return None
    first = argument.first if isinstance(argument, Block) and argument.first < buffer.size else 0
    return buffer.ctypes.data + first * buffer.itemsize


def _function(job: Job, arguments: int) -> Any:
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
    return prototype(routine_address(job.symbol, job.blas))


@cache
def routine_address(symbol: str, blas: bool = False) -> int:
    """The C function of a LAPACK or BLAS routine, in SciPy's build: pointers alone, integers of 32 bits."""
    from scipy.linalg import cython_blas, cython_lapack  # pyright: ignore

    capsule: Any = (cython_blas if blas else cython_lapack).__pyx_capi__.get(symbol)  # pyright: ignore
    if capsule is None:
        raise EvaluationError(f"SciPy's LAPACK has no routine {symbol!r}")
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    address = pointer_of(capsule, name_of(capsule))
    assert address is not None
    return address
