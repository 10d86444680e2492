"""The permutation of a sort: by keys if the comparator is one comparison, else by merging in batches."""

from collections.abc import Sequence

import numpy as np

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import Array, Function
from hlokit.memory import beside_arrays
from hlokit.ops.numerics import element_type, ordered_bits, widen


def sorted_positions(lines: Sequence[Array], comparator: Function) -> Array:
    """The positions in sorted order of each line's (row's) elements: stable, always a permutation."""
    rows, size = lines[0].shape
    if size <= 1 or not rows:
        return _unsorted(rows, size)
    keys = _keys(lines, comparator)
    return _merge_sorted(lines, comparator) if keys is None else stable_order(keys)


def _unsorted(rows: int, size: int) -> Array:
    return np.broadcast_to(np.arange(size, dtype=np.intp), (rows, size))


def stable_order(keys: Array) -> Array:
    """The positions of the elements in ascending order, along the last dimension. Equal ones keep their order."""
    with beside_arrays(keys.shape[-1] * np.dtype(np.intp).itemsize):
        return np.argsort(keys, axis=-1, kind="stable")


def total_order_keys(array: Array) -> Array:
    """Integers that compare as the elements do in the total order -NaN < -Inf < ... < -0 < +0 < ... < +NaN."""
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    if not element_type(array.dtype).is_floating:
        return widen(array)
    return ordered_bits(array)


def _keys(lines: Sequence[Array], comparator: Function) -> Array | None:
    """The keys to sort in ascending order, if the comparator is LT or GT between the two elements of one operand."""
    root = comparator.computation.root
    if root.opcode != "compare" or root.op.direction not in ("LT", "GT"):  # type: ignore[attr-defined]
        return None
    numbers = [_parameter_number(o) for o in root.operands]
    if None in numbers or numbers[0] == numbers[1] or numbers[0] // 2 != numbers[1] // 2:  # type: ignore[operator]
        return None
    line = lines[numbers[0] // 2]  # type: ignore[operator]
    descending = (root.op.direction == "GT") != (numbers[0] > numbers[1])  # type: ignore[attr-defined, operator]
    if element_type(line.dtype).is_floating and root.op.type != "TOTALORDER":  # type: ignore[attr-defined]
        return -widen(line) if descending else widen(line)
    keys = total_order_keys(line)
    return ~keys if descending else keys


def _parameter_number(instruction: Instruction) -> int | None:
    return instruction.op.number if instruction.opcode == "parameter" else None  # type: ignore[attr-defined]


def _merge_sorted(lines: Sequence[Array], comparator: Function) -> Array:
    """Bottom-up merge sort of all lines at once: log2(n) merges of log2(n) batched comparisons each.

    Whatever the comparator answers, the result is a permutation.
    """
    rows, size = lines[0].shape
    compared = [_is_read(comparator, k) for k in range(len(lines))]
    current = [line if read else line[:1, :1].reshape(()) for line, read in zip(lines, compared, strict=True)]
    order = _unsorted(rows, size)
    width = 1
    while width < size:
        source = _merge_runs(current, comparator, rows, size, width)
        order = np.take_along_axis(order, source, 1)
        current = [np.take_along_axis(c, source, 1) if c.ndim else c for c in current]
        width *= 2
    return order


def _merge_runs(lines: Sequence[Array], comparator: Function, rows: int, size: int, width: int) -> Array:
    """Merges each sorted run of `width` elements with the next: where each element of the result comes from."""
    positions = np.arange(size)
    in_right = positions // width % 2 == 1
    right, left = positions[in_right], positions[~in_right]
    start = right // (2 * width) * (2 * width)
    rank = start + _count_not_after(lines, comparator, (rows, right), start, width)
    np.maximum.accumulate(rank, axis=1, out=rank)  # changes nothing if the comparator is an order
    target = rank + (right - start - width)
    source = np.empty((rows, size), np.intp)
    np.put_along_axis(source, target, np.broadcast_to(right, target.shape), 1)
    free = np.ones((rows, size), np.bool_)
    np.put_along_axis(free, target, False, 1)
    source[free] = np.tile(left, rows)
    return source


def _count_not_after(
    lines: Sequence[Array], comparator: Function, elements: tuple[int, Array], start: Array, width: int
) -> Array:
    """The number of the `width` elements at `start` that each right element does not go before: by binary search."""
    rows, right = elements
    own = [c[:, right] if c.ndim else c for c in lines]
    low = np.zeros((rows, right.size), np.intp)
    high = np.full((rows, right.size), width)
    for _ in range(width.bit_length()):
        middle = (low + high) // 2
        other_at = start + np.minimum(middle, width - 1)
        others = [np.take_along_axis(c, other_at, 1) if c.ndim else c for c in lines]
        before = comparator.batched(*(array for pair in zip(own, others, strict=True) for array in pair))
        searching = low < high
        high = np.where(searching & before, middle, high)
        low = np.where(searching & ~before, middle + 1, low)
    return low


def _is_read(comparator: Function, operand: int) -> bool:
    """Whether the comparator looks at this operand's elements."""
    parameters = comparator.computation.parameters[2 * operand : 2 * operand + 2]
    return any(p.users or p.is_root for p in parameters)
