"""The computation that a reduce or a sort applies to elements, as a separate program to step through.

The interpreter applies it to whole arrays at once. For one element of the result of a reduce, or two elements of a
sort, the same calls are made one by one, in the order of the language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.builder.control import call, get_tuple_element
from hlokit.builder.core import Builder
from hlokit.debugger.debugger import Debugger
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import valid_part
from hlokit.ops.numerics import convert
from hlokit.ops.reduction import Reduce
from hlokit.ops.sorting import Sort

_MOST = 5_000
"""Elements that are folded to one."""

_Index = Sequence[int]


def applied(debugger: Debugger, name: str, *indices: _Index) -> Debugger:
    """See `Debugger.inside`."""
    depth, instruction = debugger.found(name)
    operands = [np.asarray(valid_part(debugger.held(depth, o))) for o in instruction.operands]
    if isinstance(instruction.op, Reduce):
        [index] = _checked(instruction, indices, 1)
        return _fold(instruction, instruction.op, operands, index)
    if isinstance(instruction.op, Sort):
        return _compare(instruction, operands, _checked(instruction, indices, 2))
    raise UnsupportedError(f"inside %{name}: a {instruction.opcode}, expected a reduce or a sort")


def _checked(instruction: Instruction, indices: Sequence[_Index], count: int) -> list[tuple[int, ...]]:
    """The indices, if they are within the result. ArgumentError if they are not."""
    sizes = next(iter(instruction.shape.leaves())).dimensions
    if len(indices) != count:
        raise ArgumentError(f"inside %{instruction.name}: {len(indices)} indices, expected {count}")
    for index in indices:
        if len(index) != len(sizes) or not all(0 <= i < n for i, n in zip(index, sizes, strict=True)):
            found = f"found index {list(index)}, expected one within {list(sizes)}"
            raise ArgumentError(f"inside %{instruction.name}: {found}")
    return [tuple(index) for index in indices]


def _fold(instruction: Instruction, op: Reduce, operands: list[Any], index: tuple[int, ...]) -> Debugger:
    arrays, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    reducer = instruction.called[0]
    place = iter(index)
    where = tuple(slice(None) if d in op.dimensions else next(place) for d in range(arrays[0].ndim))
    rows = [array[where].reshape(-1) for array in arrays]
    if rows[0].size > _MOST:
        raise UnsupportedError(f"inside %{instruction.name}: {rows[0].size:,} elements, at most {_MOST:,} are shown")
    b, arguments = Builder(instruction.name), list[Any]()

    def given(value: Any, number: int, label: str) -> Any:
        shape = reducer.parameters[number].shape
        arguments.append(convert(np.asarray(value), shape.dtype.numpy))
        return b.parameter(len(arguments) - 1, shape, label)

    state = [given(init, k, f"init.{k}") for k, init in enumerate(inits)]
    for n in range(rows[0].size):
        elements = [given(row[n], len(rows) + k, f"element.{k}.{n}") for k, row in enumerate(rows)]
        result = call(b, reducer, [*state, *elements])
        state = [get_tuple_element(result, k) for k in range(len(rows))] if reducer.root.shape.is_tuple else [result]
    return Debugger(b.build(state[0] if len(state) == 1 else state), arguments)


def _compare(instruction: Instruction, operands: list[Any], indices: list[tuple[int, ...]]) -> Debugger:
    b, comparator = Builder(instruction.name), instruction.called[0]
    arguments = [np.asarray(operand[index]) for operand in operands for index in indices]
    parameters = [b.parameter(k, p.shape, p.name) for k, p in enumerate(comparator.parameters)]
    return Debugger(b.build(call(b, comparator, parameters)), arguments)
