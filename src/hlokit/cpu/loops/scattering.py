"""Scattering: the allowed orders of a scatter's updates, as determined by their positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlokit.cpu.loops.arithmetic import NodeEmitter
from hlokit.cpu.loops.expr import LoopAxis, Node, reachable
from hlokit.forms.affine import Affine
from hlokit.forms.primitives import cost_of
from hlokit.forms.scatter import Scattering
from hlokit.types import dtype as dtypes


def keeps_apart(axis: LoopAxis, place: Affine) -> bool:
    """Whether places at different steps of the axis are never the same, wherever the rest of the index points."""
    step = place.coefficient(axis)
    rest = place - Affine.of(axis) * step
    return rest.high - rest.low < abs(step)


def goes_one_by_one(spec: Scattering, sizes: Sequence[int]) -> bool:
    """Whether a scatter of updates of these sizes has many, and no windows that go by vectors."""
    window = prod(sizes[u] for u, _ in spec.window)
    return window < 4 and prod(sizes) >= _MANY


_MANY = 4096


def is_work_for_vectors(roots: Sequence[Node]) -> bool:
    """Whether computing these one by one takes longer than to compute them by vectors, to store and to load them."""
    return sum(cost_of(node.op) if node.op not in _CHEAP else 0 for node in reachable(roots)) > _CHEAPER


_CHEAP = ("const", "number", "range", "load", "convert")
_CHEAPER = 6


def joined(emit: NodeEmitter, guards: Sequence[Node]) -> tuple[Node, ...]:
    """The same guards; 0 <= x and x <= c are one comparison without signs."""
    lower = {guard.args[0] for guard in guards if guard.op == "ge" and _limit(guard) == 0}
    both = {g.args[0] for g in guards if g.op == "le" and g.args[0] in lower and g.args[0].dtype.bits in _UNSIGNED}
    found: list[Node] = []
    for guard in guards:
        limit = _limit(guard)
        if limit is None or guard.args[0] not in both:
            found.append(guard)
        elif guard.op == "le":
            unsigned = _UNSIGNED[guard.args[0].dtype.bits]
            tested = emit.expressions.node("convert", unsigned, guard.args[:1])
            found.append(emit.expressions.node("le", dtypes.pred, (tested, emit.expressions.const(limit, unsigned))))
    return tuple(found)


_UNSIGNED = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}


def _limit(guard: Node) -> int | None:
    """The signed constant that a guard compares with; None for other guards."""
    if guard.op not in ("ge", "le") or guard.args[1].op != "const" or guard.args[1].dtype.kind != "signed":
        return None
    return int(guard.args[1].data)
