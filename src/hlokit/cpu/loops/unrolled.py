"""Unrolled axes: short axes of a kernel whose steps are written one after the other.

What all steps of such an axis need is then computed once: forces have three components and one distance. Tests of
where on the axis a step is become constants: of arrays stacked side by side each step reads the one that is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlokit.cpu.loops.expr import Buffer, Expressions, LoopAxis, Node
from hlokit.cpu.loops.nest import Loops, Store, places_of
from hlokit.cpu.loops.substitution import substituted
from hlokit.forms.affine import Affine
from hlokit.forms.primitives import cost_of

WRITTEN_OUT = 8
"""Steps that are written out at most."""
_PAIRS = 6
"""The same for complex numbers that are stored side by side."""
_LONG = 32
"""Steps of an axis that is worth vectors of its own."""
_NODES = 1500
"""Nodes up to which a kernel may grow."""
_WORTH = 0.75
"""The share of its cost that a kernel may keep if the axis is to be written out."""


def unrolled(order: list[LoopAxis], stores: list[Store], nodes: Sequence[Node]) -> tuple[list[LoopAxis], list[Store]]:
    """The axes and stores with those axes written out by which the kernel costs less."""
    for axis in _candidates(order, stores, nodes):
        expressions = Expressions()
        new = _written_out(axis, stores, expressions)
        rest = [a for a in order if a is not axis]
        if len(expressions.nodes) > _NODES:
            continue
        if _is_innermost(axis, rest, stores) or _cost(rest, new) < _WORTH * _cost(order, stores):
            order, stores = rest, new
    return order, stores


def _written_out(axis: LoopAxis, stores: Sequence[Store], expressions: Expressions) -> list[Store]:
    """The stores of each step in turn, buffer by buffer: what lies side by side is stored side by side."""
    of_buffer: dict[Buffer, list[Store]] = {}
    for store in stores:
        of_buffer.setdefault(store.buffer, []).append(store)
    return [
        substituted([store], {axis: Affine.of(k)}, expressions)[0]
        for same in of_buffer.values()
        for k in range(axis.extent)
        for store in same
        if store.deps & axis.bit or k == 0
    ]


def _candidates(order: Sequence[LoopAxis], stores: Sequence[Store], nodes: Sequence[Node]) -> list[LoopAxis]:
    """Short axes of the main nest along which nothing is folded."""
    if len(order) < 2 or any(n.op == "current" for n in nodes) or len(nodes) > _NODES:
        return []
    folds = [n.data for n in nodes if n.op == "fold"]
    bound = {axis for fold in folds for axis in (*fold.bound, fold.scan)}
    tested = folded = 0
    for node in nodes:
        if node.op == "range":
            tested |= node.deps
        elif node.op == "fold" and node.data.scan is None:
            folded |= node.deps
    short = [a for a in order if a.extent <= WRITTEN_OUT and a not in bound]
    rest = {a: [b for b in order if b is not a] for a in short}
    return [
        a
        for a in short
        if (folded | tested) & a.bit or _is_innermost(a, rest[a], stores)
    ]


def _is_innermost(axis: LoopAxis, rest: Sequence[LoopAxis], stores: Sequence[Store]) -> bool:
    """Whether vectors along a long axis beside it take its steps in turn: they are stored side by side."""
    unit = stores[0].place.coefficient(axis)  # 2: of complex numbers
    if unit not in (1, 2) or (unit == 2 and axis.extent > _PAIRS):
        return False
    if any(store.guards or store.place.coefficient(axis) != unit for store in stores):
        return False
    return any(
        other.extent >= _LONG and all(s.place.coefficient(other) == unit * axis.extent for s in stores)
        for other in rest
    )


def _cost(order: Sequence[LoopAxis], stores: Sequence[Store]) -> float:
    """The cost of all nodes in all steps of their loops."""
    return sum(
        cost_of(node.op) * prod(axis.extent for axis in place.loops)
        for node, place in places_of(Loops(list(order), list(stores))).items()
        if node.op not in ("const", "number", "range", "part", "hole")
    )
