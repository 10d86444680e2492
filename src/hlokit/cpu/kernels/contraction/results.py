"""Finished sums of all contractions: rounded, and passed to the epilogue or written to the result."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.elements import rounded, write
from hlokit.cpu.kernels.contraction.space import affine, row_major_strides, unravelled
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import POINTER, Function, Index, Value


def totals(sums: Sequence[Value]) -> Value:
    """A vector of the totals of vectors, in a number that is a power of two; of one vector twice its total."""
    sums = sums if len(sums) > 1 else [*sums, *sums]
    parts = sums[0].lanes
    while parts > 1:
        parts //= 2
        lanes = sums[0].lanes if len(sums) == 1 else 2 * sums[0].lanes  # of both that hold parts of sums
        firsts = [k for k in range(lanes) if k // parts % 2 == 0]
        pairs = zip(sums[::2], sums[1::2] or [None], strict=True)
        sums = [x.shuffled(firsts, y) + x.shuffled([k + parts for k in firsts], y) for x, y in pairs]
    return sums[0]


def put(
    fn: Function, call: Call, place: Sequence[Index] | Index, sums: Sequence[Value], mask: Value | None = None
) -> None:
    """Sums of elements that are consecutive in the last dimension; of complex numbers one vector for each part.

    `place`: the first one's index in the result, or its number. The table of `fn` has the result after the operands.
    """
    result = call.results[0]
    values = [rounded(value, result.dtype.real) for value in sums]
    if result.dtype.kind == "pred" and len(values) > 1:
        values = [values[0] | values[1]]
    if call.store is not None:
        index = unravelled(place, result.dimensions) if isinstance(place, Index) else place
        call.store(fn, index, values, mask)
        return
    if not isinstance(place, Index):
        place = affine(fn, 0, list(zip(place, row_major_strides(result.dimensions), strict=True)))
    out = fn.pointer("table", POINTER)[
        len(call.operands)
    ].load_pointer()  # here, not at the entry: tiles need registers
    write(result.dtype, out, place, values, mask)
