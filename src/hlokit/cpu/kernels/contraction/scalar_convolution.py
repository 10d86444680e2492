"""Convolution element by element, which supports every type, layout, group and dilation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import outer_product
from hlokit.cpu.kernels.contraction.elements import read
from hlokit.cpu.kernels.contraction.results import put
from hlokit.cpu.kernels.contraction.space import affine, unravelled
from hlokit.cpu.kernels.contraction.windows import WindowAxis, WindowSpace, both, phase_function, shared_out
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.llvm import Function, Index, Module, Value


@dataclass(frozen=True)
class ScalarPlan:
    """One sum after the other. Padding and holes are zeros that are multiplied, as in the reference."""

    call: Call
    space: WindowSpace

    def write(self, module: Module) -> Routine:
        """Writes the function into the module."""
        call, s = self.call, self.space
        total = s.elements
        chunks = max(1, min(total, 64, total * s.steps // costs.SCALAR_CHUNK))
        f = phase_function(call)
        placed = [a for a in s.axes if a.dim >= 0]
        sizes = {a.dim: a.outputs for a in placed} | {s.feature_dim: s.group.size * s.output.size}
        with f.loop(*shared_out(f, total, chunks)) as loop:
            outputs = unravelled(loop.index, [sizes[d] for d in range(len(sizes))])
            sums = _sum(f, s, outputs)
            index = list(outputs)
            for a in placed:
                index[a.dim] = affine(f, a.first, [(outputs[a.dim], a.step)])
            put(f, call, index, sums)
        return Routine((Phase(f.end(module, "convolution_scalar", exported=True), chunks),))


def _sum(f: Function, s: WindowSpace, outputs: Sequence[Index]) -> list[Value]:
    """The sum of the output with this index; a complex one as two."""
    feature = outputs[s.feature_dim]
    group, output = feature // s.output.size, feature % s.output.size
    zero = f.constant(0, s.arithmetic.total)

    def over(
        axes: Sequence[WindowAxis], left: Index, right: Index, inside: Value | None, sums: Sequence[Value]
    ) -> list[Value]:
        """The sums with all products of the taps of these axes."""
        if not axes:
            here = left if inside is None else f.index(inside.select(left, 0))
            lhs = _parts(f, s, 0, here)
            if inside is not None:
                lhs = [inside.select(part, 0) for part in lhs]
            return outer_product(s.arithmetic.multiplied, [lhs], [_parts(f, s, 1, right)], sums)
        a = axes[0]
        with f.loop(0, a.taps, 1, sums) as loop:
            terms = [(outputs[a.dim], a.stride)] if a.dim >= 0 else []
            place = affine(f, -a.low, [*terms, (loop.index, a.tap)])
            here, element = _element(a, place)
            lhs, rhs = left + element * a.lhs, right + loop.index * a.rhs
            loop.next = over(axes[1:], lhs, rhs, both(inside, here), loop.carried)
        return loop.results

    left = group * s.group.lhs
    right = affine(f, s.rhs_start, [(group, s.group.rhs), (output, s.output.rhs)])
    return over(s.axes, left, right, None, [zero] * s.arithmetic.parts)


def _parts(f: Function, s: WindowSpace, operand: int, number: Index) -> list[Value]:
    """One element, widened; two parts where sums are complex."""
    wide = s.arithmetic.total
    parts = read(s.operand, f.table(operand), number, 1, wide)
    return [*parts, f.constant(0, wide)] if s.arithmetic.is_complex and len(parts) == 1 else parts


def _element(a: WindowAxis, place: Index) -> tuple[Value, Index]:
    """Whether an element lies at the place, and which."""
    inside = place.compare("ult", max(0, (a.inputs - 1) * a.spread + 1))
    if a.spread == 1:
        return inside, place
    element = place.fn.index(place.binary("sdiv", a.spread))
    return inside & (element * a.spread).eq(place), element
