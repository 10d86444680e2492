"""Outputs of a dilated lhs that depend only on holes: zeros, written in vectors along the result's last dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.results import put
from hlokit.cpu.kernels.contraction.space import affine, unravelled
from hlokit.cpu.kernels.contraction.windows import WindowAxis, WindowSpace, both, phase_function, shared_out
from hlokit.cpu.kernels.routine import Call, Phase
from hlokit.cpu.llvm import I32, Function, Index, Module, Value


def write_zeros(call: Call, module: Module, parts: Sequence[WindowSpace]) -> Phase:
    """Zeros for all outputs of these parts of one convolution, which differ in their axes' `first` and sizes."""
    fn, count = phase_function(call), sum(part.elements for part in parts)
    chunks = max(1, min(costs.CHUNKS, count * max(8, parts[0].result.bits) // 8 // costs.STREAMED_BYTES))
    last = len(parts[0].dimensions) - 1
    # parts that take turns along the last dimension are written together
    rows: dict[tuple[WindowAxis, ...], list[WindowSpace]] = {}
    for part in parts:
        rows.setdefault(tuple(a for a in part.axes if a.dim != last), []).append(part)
    for group in rows.values():
        _Rows(call, fn, group).write(chunks)
    return Phase(fn.end(module, "convolution_zeros", exported=True), chunks)


class _Rows:
    """Parts that have the same indices in all dimensions of the result but the last."""

    def __init__(self, call: Call, fn: Function, parts: Sequence[WindowSpace]) -> None:
        self.call, self.fn, self.s = call, fn, parts[0]
        s, last = self.s, len(self.s.dimensions) - 1
        self.size = s.dimensions[last]
        lines = [a for part in parts for a in part.axes if a.dim == last]
        self.step = lines[0].step if lines else 1
        self.residues = sorted(a.first for a in lines)
        self.lanes = min(s.arithmetic.lanes(call.target), max(2, 1 << (self.size - 1).bit_length()))

    def write(self, chunks: int) -> None:
        """The chunks' rows."""
        fn, s = self.fn, self.s
        axes = {a.dim: a for a in s.axes if a.dim >= 0}
        axes[s.feature_dim] = WindowAxis(s.dimensions[s.feature_dim], 0, 0, 0, dim=s.feature_dim)
        *outer, inner, _ = [WindowAxis(1, 0, 0, 0), *(axes[dim] for dim in range(len(s.dimensions)))]
        sizes = [a.outputs for a in outer]
        with fn.loop(*shared_out(fn, math.prod(sizes), chunks)) as loop, fn.loop(0, inner.outputs) as row:
            numbers = [*unravelled(loop.index, sizes), row.index]
            index = [affine(fn, a.first, [(n, a.step)]) for a, n in zip([*outer, inner], numbers, strict=True)]
            self._row(index[1:])

    def _row(self, index: Sequence[Index]) -> None:
        """One row, whose index this is in all dimensions but the last."""
        fn, s, lanes = self.fn, self.s, self.lanes
        zeros = [fn.constant(0, s.arithmetic.total.of(lanes))] * s.arithmetic.parts
        whole = self.size // lanes * lanes
        with fn.loop(0, whole, lanes) as loop:
            put(fn, self.call, [*index, loop.index], zeros, self._mask(loop.index))
        if whole < self.size:
            first = fn.index(whole)
            tail = fn.index(self.size - whole).first_lanes(lanes)
            put(fn, self.call, [*index, first], zeros, both(self._mask(first), tail))

    def _mask(self, first: Index) -> Value | None:
        """The elements of a vector that belong to the parts; None: all do."""
        if len(self.residues) in (0, self.step):
            return None
        type = I32.of(self.lanes)
        place = (first.trunc(32).splat(self.lanes) + self.fn.lane_numbers(type)) % self.step
        mask: Value | None = None
        for residue in sorted(set(range(self.step)) - set(self.residues)):
            mask = both(mask, place.ne(residue))
        return mask
