"""Vectors: the vectorised axes of a kernel, the vectors in each step, and values that are kept for a second loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from hlokit.cpu import costs
from hlokit.cpu.loops.expr import Buffer, Fold, LoopAxis, Node, affine_of, children, reachable
from hlokit.cpu.loops.nest import Loops, Nesting, alike, places_of, stride_cost
from hlokit.cpu.loops.reassociation import reassociates
from hlokit.forms.affine import Affine
from hlokit.forms.primitives import COSTLY, cost_of

FoldAxes: TypeAlias = "Mapping[Node, LoopAxis | None]"
"""For each fold with axes of its own the one of them along which vectors go best, if any."""

_LEAST_EXTENT = 4
"""Steps of an axis that vectors go along."""

_BY_VECTORS = 0.06
"""Cost of an operation on a vector's element, as a share of that on a scalar, unless the axis has fewer elements."""


def choose(loops: Loops, nodes: Sequence[Node], vector_bytes: int) -> None:
    """Sets the vector axes of the main nest and of the folds, lanes, unrolling, spills, and the estimated work."""
    places = places_of(loops)
    folds = [n for n in nodes if n.op == "fold" and n in places and n.data.bound]
    own = {fold: _own_axis(fold, loops.strict) for fold in folds}
    costs = _costs(loops, nodes, places, own)
    least, loops.vector = float("inf"), None
    for candidate in (*_candidates(loops, nodes), None):
        cost = costs.along(candidate)
        if cost < least * 0.999:
            least, loops.vector = cost, candidate
    loops.work = least * 0.3
    for fold in folds:
        loops.folds[fold] = None if loops.vector is not None and loops.vector in places[fold].loops else own[fold]
    loops.spills = _spilled(loops, nodes, own)
    loops.lanes = max(2, vector_bytes // _widest(loops, nodes))
    loops.unroll = _unroll(loops, nodes, places, folds)


def _candidates(loops: Loops, nodes: Sequence[Node]) -> list[LoopAxis]:
    """The axes of the main nest, inside all serial ones, that vectors may go along."""
    last = max((k for k, a in enumerate(loops.order) if a.bit & loops.serial), default=-1)
    found = [a for a in loops.order[last + 1 :] if a.extent >= _LEAST_EXTENT]
    for node in nodes:
        if node.op == "fold" and node.data.scan is not None and (loops.strict or not reassociates(node.data)):
            found = [a for a in found if a is not node.data.scan]
    return found


@dataclass(frozen=True)
class _Costs:
    """A kernel's accesses to memory, each with how many there are of its buffer that differ by constants alone, its
    operations' costs with the loops that they are in, and folds' own axes."""

    accesses: list[tuple[Affine, Nesting, int]]
    operations: list[tuple[tuple[LoopAxis, ...], float]]
    own: FoldAxes

    def along(self, vector: LoopAxis | None) -> float:
        """The cost of all steps, with vectors along this axis of the main nest, else along folds' own axes."""
        inside = [axis for axis in self.own.values() if axis is not None]
        of_step = max(_BY_VECTORS, 1 / vector.extent) if vector is not None else 1.0
        cost = 0.0
        for affine, place, together in self.accesses:
            cost += float(prod(a.extent for a in place.loops)) * self._access(affine, place, together, vector)
        for around, weight in self.operations:
            share = 1.0
            if vector is not None and vector in around:
                share = of_step
            elif any(axis in around for axis in inside):
                share = _BY_VECTORS
            cost += prod(a.extent for a in around) * weight * share
        return cost

    def _access(self, affine: Affine, place: Nesting, together: int, vector: LoopAxis | None) -> float:
        if vector is not None and vector in place.loops:
            return stride_cost(affine, vector, together) / 16
        axis = self.own.get(place.fold) if place.fold is not None else None
        return stride_cost(affine, axis) / 16 if axis is not None else 1.0


def _costs(loops: Loops, nodes: Sequence[Node], places: Mapping[Node, Nesting], own: FoldAxes) -> _Costs:
    found: list[tuple[Buffer, Affine, Nesting]] = [
        (n.data[0], affine, places[n])
        for n in nodes
        if n.op in ("load", "current") and (affine := affine_of(n)) is not None and n in places
    ]
    everywhere = tuple(loops.order)
    for store in loops.stores:
        depth = max((k + 1 for k, axis in enumerate(everywhere) if axis.bit & store.deps), default=0)
        found.append((store.buffer, store.place, Nesting(everywhere[:depth], None)))
    together = alike((buffer, affine) for buffer, affine, _ in found)
    accesses = [(affine, place, together[buffer, affine.terms]) for buffer, affine, place in found]
    operations = [(places[n].loops, cost_of(n.op)) for n in nodes if n in places and n.deps]
    for fold in (n for n in nodes if n.op == "fold" and n in places):
        steps = sum(cost_of(n.op) for n in reachable(fold.data.combined))
        operations.append((places[fold].loops + fold.data.bound, steps))
    return _Costs(accesses, operations, own)


def _unroll(loops: Loops, nodes: Sequence[Node], places: Mapping[Node, Nesting], folds: Sequence[Node]) -> int:
    """Vectors in a step of the vector loop."""
    axis = loops.vector
    inner = sum(1 for n in nodes if axis is not None and n.deps & axis.bit)
    unroll = 4 if inner <= 14 else 2 if inner <= 40 else 1
    if axis is None:
        return unroll
    if unroll == 1 and (_most_held(nodes, axis) <= _HELD or _is_chain(nodes, axis)):
        unroll = 2  # the chains of operations of two steps overlap
    if any(n.op == "fold" and n.data.scan is axis for n in nodes):
        return 1
    if any(axis in places[fold].loops and _is_long(fold) for fold in folds):
        unroll = 16 if inner <= 6 else 8 if inner <= 14 else unroll
        if any(f.data.ordered for f in folds):  # a loop's state stays in registers, and needs no lines of memory
            held = max(len(f.data.inits) + len(f.data.bodies) for f in folds)
            unroll = 4 if 4 * held <= _REGISTERS else 2 if 2 * held <= _REGISTERS else 1
    return unroll


_REGISTERS = 24
"""Vectors that a loop's state and what it reads may fill; the rest is for its arithmetic."""


_HELD = 4
"""Vectors that a long step may hold for two steps to go at once."""


def _is_chain(nodes: Sequence[Node], axis: LoopAxis) -> bool:
    """Whether a step waits for its longest chain of operations, too long for the next steps to begin meanwhile."""
    ready: dict[Node, float] = {}
    work = 0.0
    for node in nodes:
        if node.deps & axis.bit:
            cost = cost_of(node.op)
            before = max([ready.get(child, 0.0) for child in children(node)], default=0.0)
            ready[node] = before + cost * (costs.FLOAT_CYCLES if node.dtype.is_floating else 1)
            work += cost
    return max(ready.values(), default=0.0) > max(costs.CYCLES_IN_FLIGHT, work / costs.OPERATIONS_A_CYCLE)


def _most_held(nodes: Sequence[Node], axis: LoopAxis) -> int:
    """Vectors held at a time at most, if the nodes are computed in this order; choices of constants are free."""
    free = {n for n in nodes if n.dtype.kind == "pred" or not n.deps & axis.bit}
    held = {n for n in nodes if n not in free and not (n.args and all(a in free for a in n.args))}
    last = {child: k for k, node in enumerate(nodes) for child in children(node) if child in held}
    ends = Counter(last.values())
    now = most = 0
    for k, node in enumerate(nodes):
        now += (node in last) - ends[k]
        most = max(most, now)
    return most


def _spilled(loops: Loops, nodes: Sequence[Node], own: FoldAxes) -> list[Node]:
    """Costly nodes needed by a fold along the vector axis and by the main loop over it; none of which needs another."""
    axis = loops.vector
    if axis is None or loops.strict or axis.extent * 8 > costs.SECOND_CACHE_BYTES or axis not in loops.order:
        return []
    folds = [f for f in own if own[f] is axis and f.data.bound == (axis,) and f.data.valid is None]
    if not folds:
        return []
    main: set[Node] = set()
    stack = [n for s in loops.stores for n in (s.node, *s.guards)]
    while stack:
        node = stack.pop()
        if node not in main:
            main.add(node)
            stack += node.args if node.op != "fold" else node.data.inits
    below = [(f.deps, set(reachable(f.data.bodies))) for f in folds]
    found: dict[Node, None] = {}
    for node in nodes:
        if node.op not in COSTLY or node not in main or not node.deps & axis.bit or node.dtype.bits < 8:
            continue
        if any(deps == node.deps & ~axis.bit and node in inside for deps, inside in below):
            found[node] = None
    needed: set[Node] = set()
    for node in reversed(nodes):  # what another of them needs
        if node in found or node in needed:
            needed.update(children(node))
    return [node for node in found if node not in needed][:2]


def _is_long(fold: Node) -> bool:
    """Whether its steps are many: then each should read much of a line."""
    return prod(axis.extent for axis in fold.data.bound) >= 64


def _own_axis(fold: Node, strict: bool) -> LoopAxis | None:
    """The axis among its own along which vectors read what the fold needs at the least cost."""
    if strict or not reassociates(fold.data):
        return None
    data: Fold = fold.data
    roots = [*data.bodies, *((data.valid,) if data.valid is not None else ())]
    below = reachable(roots, lambda node: () if node.op == "fold" else children(node))
    inside = [n.data[1] for n in below if n.op in ("load", "current") and n.deps & ~fold.deps]
    best: tuple[float, LoopAxis | None] = (float("inf"), None)
    for axis in data.bound[-1:] if len(data.inits) > 1 else reversed(data.bound):  # each lane's steps in their order
        cost = sum(stride_cost(affine, axis) for affine in inside) * max(1.0, 16.0 / axis.extent)
        if cost < best[0]:
            best = (cost, axis)
    if best[1] is None or best[1].extent < 4:
        return None
    functions = sum(cost_of(n.op) for n in below if n.op in COSTLY and n.deps & ~fold.deps)
    gained = 12.0 * max(1, len(inside)) + 16.0 * (1 - _BY_VECTORS) * functions
    return best[1] if best[0] <= gained else None


def _widest(loops: Loops, nodes: Sequence[Node]) -> int:
    """Bytes of the widest element that is computed with."""
    stored = {store.node for store in loops.stores}
    sizes = [4 if n.op == "number" and n.dtype.bits == 64 else max(1, n.dtype.bits // 8)
             for n in nodes if n.op not in ("hole", "range") and n.dtype.kind != "pred"
             and (n.deps or n in stored) and n.op != "const"]  # fmt: skip
    return max(sizes, default=4)
