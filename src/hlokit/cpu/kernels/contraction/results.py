"""Finished sums of all contractions: rounded, and handed to the epilogue or written to the result."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.elements import rounded, write
from hlokit.cpu.kernels.contraction.space import affine, row_major_strides, unravelled
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import POINTER, Function, Index, Value


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
