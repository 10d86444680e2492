"""Arguments and results of a run: conversion of a caller's arguments to values, and of values to results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule, refuse_buffers
from hlokit.hlo.values import TOKEN_VALUE, Array, fits, is_ndarray, is_sequence
from hlokit.types import dtype as dtypes
from hlokit.types.literal import as_array
from hlokit.types.shape import Shape


def arguments_of(module: HloModule, args: Sequence[Any]) -> list[Any]:
    """The values of the entry's parameters. Raises ArgumentError (EXEC-3), UnsupportedError for buffers."""
    refuse_buffers(module)
    parameters = module.entry.parameters
    if len(args) != len(parameters):
        raise wrong_count(module.name, len(parameters), args)
    return [
        argument(f"argument {i} ({p.name})", p.shape, a) for i, (p, a) in enumerate(zip(parameters, args, strict=True))
    ]


def wrong_count(program: str, expected: int, args: Sequence[Any]) -> ArgumentError:
    """The error of a call with another number of arguments than the program's parameters."""
    trees = any(isinstance(a, dict) for a in args)
    hint = "; a dict is not an array: jax.tree.leaves(args) lists the arrays of JAX's arguments" if trees else ""
    return ArgumentError(f"{program} takes {counted(expected, 'argument')}, got {len(args)}{hint} [EXEC-3]")


def argument(name: str, shape: Shape, value: Any) -> Any:
    """`value` as a value of `shape`. Raises ArgumentError (EXEC-3) if it is not one."""
    if shape.is_tuple:
        if not is_sequence(value) or len(value) != len(shape.elements):
            raise ArgumentError(f"{name}: expected a tuple for {shape} [EXEC-3]")
        return tuple(argument(f"{name}[{i}]", s, v) for i, (s, v) in enumerate(zip(shape.elements, value, strict=True)))
    if not shape.is_array:
        return TOKEN_VALUE
    if type(value) is np.ndarray and value.dtype is shape.dtype.numpy and value.shape == shape.dimensions:
        return _forwards(value)  # what follows would say so, 50 times slower
    weak = isinstance(value, (bool, int, float, complex, list, tuple))
    try:
        array = as_array(value, shape.dtype if weak else None)
    except (HlokitError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{name}: cannot be read as {shape}: {error} [EXEC-3]") from error
    found = Shape.array(dtypes.dtype(array.dtype), array.shape)
    if found.dtype is not shape.dtype or not (array.shape == shape.dimensions or fits(array.shape, shape)):
        raise ArgumentError(f"{name}: found {found}, expected {shape} [EXEC-3]")
    return _forwards(array)


def _forwards(array: Array) -> Array:
    """A copy of what lies backwards in memory: along negative strides NumPy's functions round otherwise."""
    return array if min(array.strides, default=0) >= 0 else array.copy()


def result_of(value: Any, taken: set[int]) -> Any:
    """Results for the caller: arrays of its own, none of them a view, an argument, or given twice; None for tokens."""
    if is_sequence(value):
        return tuple(result_of(part, taken) for part in value)
    if not is_ndarray(value):
        return None
    flags: Any = value.flags
    if id(value) in taken or not (flags.owndata and flags.writeable and flags.c_contiguous):
        return np.array(value, order="C")
    taken.add(id(value))
    return value


def array_ids(value: Any) -> set[int]:
    """The identities of all arrays in a value."""
    return {i for part in value for i in array_ids(part)} if is_sequence(value) else {id(value)}
