"""Order: loop order, vector axis, unrolling and chunks of a kernel, chosen from the DAG's affine coefficients alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from math import prod

from hlokit.cpu.loops import parted, segments, tiles
from hlokit.cpu.loops.expr import Axis, Buffer, Fold, Node, affine_of, children, identity_name, reachable
from hlokit.cpu.loops.nest import Loops, Nesting, Store, places_of, stride_cost
from hlokit.cpu.loops.substitution import nodes_of, substituted
from hlokit.cpu.loops.unrolled import unrolled
from hlokit.forms.affine import Affine
from hlokit.forms.primitives import COSTLY, cost_of

STREAM_BYTES = 32 << 20
"""A kernel that touches at least so many bytes stores past the caches: what it writes would be gone before it is read.

In a loop, which reads again what the pass before has written, twice as many."""


def arrange(
    axes: Sequence[Axis],
    stores: Sequence[Store],
    *,
    vector_bytes: int,
    serial: int = 0,
    strict: bool = False,
    stream_bytes: int = STREAM_BYTES,
    writes_out: bool = True,
) -> Loops:
    """The loops of a kernel with these root axes and stores. `writes_out`: short axes may be written out."""
    order, stores, serial = merged(list(axes), list(stores), serial)
    nodes = nodes_of(stores)
    order = _folds_first(order, nodes)
    whole = None
    if writes_out and not serial and not strict:
        short = unrolled(order, stores, nodes)
        if short[0] is not order:
            whole = order, stores
            order, stores, serial = merged(*short, serial)
            nodes = nodes_of(stores)
            order = _folds_first(order, nodes)
    loops = Loops(order, stores, serial, strict=strict, whole=whole)
    _choose_vector(loops, nodes, vector_bytes)
    loops.streamed = _touched_bytes(loops, nodes) >= stream_bytes
    tiles.choose(loops, nodes)
    _choose_chunks(loops, nodes)
    parted.choose(loops, nodes, vector_bytes)
    share = segments.choose(loops, nodes)
    if share < 1.0:
        loops.work *= share
        _choose_chunks(loops, nodes)
    return loops


# -- merging


def merged(axes: list[Axis], stores: list[Store], serial: int) -> tuple[list[Axis], list[Store], int]:
    """Neighbouring axes that every affine counts through as one become one."""
    while True:
        nodes = nodes_of(stores)
        pair = _mergeable(axes, stores, nodes, serial)
        if pair is None:
            return axes, stores, serial
        outer, inner = pair
        one = Axis(inner.name, outer.extent * inner.extent, inner.bit)
        stores = substituted(stores, {outer: Affine.of(0), inner: Affine.of(one)})
        axes = [one if axis is inner else axis for axis in axes if axis is not outer]


def _mergeable(
    axes: list[Axis], stores: Sequence[Store], nodes: Sequence[Node], serial: int
) -> tuple[Axis, Axis] | None:
    affines = [store.place for store in stores] + [a for node in nodes if (a := affine_of(node)) is not None]
    folds: list[Fold] = [node.data for node in nodes if node.op == "fold"]
    scans = {fold.scan for fold in folds if fold.scan is not None}
    candidates = list(itertools.pairwise(axes))
    for fold in folds:
        candidates += zip(fold.bound, fold.bound[1:])
    for outer, inner in candidates:
        if outer in scans or inner in scans or bool(serial & outer.bit) != bool(serial & inner.bit):
            continue
        if (outer in axes) != (inner in axes):
            continue
        if not all(a.coefficient(outer) == a.coefficient(inner) * inner.extent for a in affines):
            continue
        if all(_bound_together(fold.bound, outer, inner) for fold in folds) and _adjacent(axes, outer, inner):
            return outer, inner
    return None


def _adjacent(axes: Sequence[Axis], outer: Axis, inner: Axis) -> bool:
    return outer not in axes or axes.index(inner) == axes.index(outer) + 1


def _bound_together(bound: Sequence[Axis], outer: Axis, inner: Axis) -> bool:
    if outer not in bound and inner not in bound:
        return True
    return outer in bound and inner in bound and bound.index(inner) == bound.index(outer) + 1


# -- order and vectors


def _folds_first(order: list[Axis], nodes: Sequence[Node]) -> list[Axis]:
    """Axes that folds depend on come first; one along which a prefix fold goes comes last."""
    needed, scanned = 0, 0
    for node in nodes:
        if node.op == "fold":
            if node.data.scan is not None:
                scanned |= node.data.scan.bit
            else:
                needed |= node.deps
    return sorted(order, key=lambda axis: 2 if scanned & axis.bit else 0 if needed & axis.bit else needed != 0)


def reassociates(fold: Fold) -> bool:
    """Whether the steps of a fold may be taken in any grouping and order (REDUCE-9).

    True of one op on (accumulator, element) that is associative and commutative, and of selections, each of whose
    results is one of the two: not always the same one, which would be the first or the last of all. Selections of
    several values at once (argmax) ask of equals, and of NaN, which came first: one value must tell (`counter`).
    """
    if fold.ordered:
        return False
    n = len(fold.inits)
    if n == 1 and identity_name(fold.combined[0]) is not None:
        return True
    if n > 1 and fold.scan is None and counter(fold) is None:
        return False
    return all(node.op == "select" and _selects(node) for node in fold.combined)


def counter(fold: Fold) -> int | None:
    """Which of the elements' values counts the steps upwards: of two elements the one with the lesser came first."""
    for k, body in enumerate(fold.bodies):
        if body.op == "number" and body.data.low >= 0 and body.data.high < 2 ** (body.dtype.bits - 1):
            passed, rises = 0, True  # by what the axes within raise it together
            for axis in reversed(fold.bound):
                step = body.data.coefficient(axis)
                rises &= step > passed
                passed += step * (axis.extent - 1)
            if rises:
                return k
    return None


def _selects(node: Node) -> bool:
    if node.op == "hole":
        return True
    return node.op == "select" and all(_selects(a) for a in node.args[1:])


def _choose_vector(loops: Loops, nodes: Sequence[Node], vector_bytes: int) -> None:
    places = places_of(loops)
    accesses: list[tuple[Affine, Nesting]] = [
        (affine, places[n])
        for n in nodes
        if n.op in ("load", "current") and (affine := affine_of(n)) is not None and n in places
    ]
    everywhere = tuple(loops.order)
    for store in loops.stores:
        depth = max((k + 1 for k, axis in enumerate(everywhere) if axis.bit & store.deps), default=0)
        accesses.append((store.place, Nesting(everywhere[:depth], None)))
    costs = [(places[n].loops, cost_of(n.op)) for n in nodes if n in places and n.deps]
    for fold in (n for n in nodes if n.op == "fold" and n in places):
        steps = sum(cost_of(n.op) for n in reachable(fold.data.combined))
        costs.append((places[fold].loops + fold.data.bound, steps))
    last = max((k for k, a in enumerate(loops.order) if a.bit & loops.serial), default=-1)
    candidates: list[Axis | None] = [a for a in loops.order[last + 1 :] if a.extent >= 4]
    scans = 0
    for node in nodes:
        if node.op == "fold" and node.data.scan is not None:
            scans |= node.data.scan.bit
            if loops.strict or not reassociates(node.data):
                candidates = [a for a in candidates if a is not node.data.scan]
    best: tuple[float, Axis | None] = (float("inf"), None)
    own: dict[Node, Axis | None] = {}
    folds = [n for n in nodes if n.op == "fold" and n in places and n.data.bound]
    for fold in folds:
        own[fold] = _own_vector(fold, loops.strict)
    for candidate in [*candidates, None]:
        cost = 0.0
        for affine, place in accesses:
            cost += float(prod(a.extent for a in place.loops)) * _class(affine, place, candidate, own)
        for around, weight in costs:
            vectorised = candidate is not None and candidate in around
            inside = next((f for f in folds if own[f] is not None and own[f] in around and not vectorised), None)
            cost += prod(a.extent for a in around) * weight * (0.06 if vectorised or inside is not None else 1.0)
        if cost < best[0] * 0.999:
            best = (cost, candidate)
    loops.vector = best[1]
    loops.work = best[0] * 0.3
    for fold in folds:
        loops.folds[fold] = None if loops.vector is not None and loops.vector in places[fold].loops else own[fold]
    loops.spills = _spilled(loops, nodes, places, own)
    widest = _widest(loops, nodes)
    loops.lanes = max(2, vector_bytes // widest)
    inner = sum(1 for n in nodes if loops.vector is not None and n.deps & loops.vector.bit)
    loops.unroll = 4 if inner <= 14 else 2 if inner <= 40 or _most_held(nodes, loops.vector) <= _HELD else 1
    if loops.vector is not None and loops.vector.bit & scans:
        loops.unroll = 1
    elif loops.vector is not None and any(loops.vector in places[f].loops and _is_long(f) for f in folds):
        loops.unroll = 16 if inner <= 6 else 8 if inner <= 14 else loops.unroll
        if any(f.data.ordered for f in folds):  # a loop's state stays in registers, and needs no lines of memory
            held = max(len(f.data.inits) + len(f.data.bodies) for f in folds)
            loops.unroll = 4 if 4 * held <= _REGISTERS else 2 if 2 * held <= _REGISTERS else 1


_HELD = 4
"""Vectors that a long step may hold for two steps to go at once: their chains of operations overlap."""


def _most_held(nodes: Sequence[Node], axis: Axis | None) -> int:
    """Vectors held at a time at most, if the nodes are computed in this order; choices of constants are free."""
    if axis is None:
        return 0
    free = {n for n in nodes if n.dtype.kind == "pred" or not n.deps & axis.bit}
    held = {n for n in nodes if n not in free and not (n.args and all(a in free for a in n.args))}
    last = {child: k for k, node in enumerate(nodes) for child in children(node) if child in held}
    ends = Counter(last.values())
    now = most = 0
    for k, node in enumerate(nodes):
        now += (node in last) - ends[k]
        most = max(most, now)
    return most


def _touched_bytes(loops: Loops, nodes: Sequence[Node]) -> int:
    """The bytes that a kernel can touch of the buffers that it reads or writes: few of one that it gathers from."""
    extents = {axis: axis.extent for axis in loops.order}
    for node in nodes:
        if node.op == "fold":
            extents |= {axis: axis.extent for axis in node.data.bound}
    found: dict[Buffer, int] = {}
    accesses = [(n.data[0], n.deps) for n in nodes if n.op in ("load", "current")] + [
        (s.buffer, s.deps) for s in loops.stores
    ]
    for buffer, deps in accesses:
        size = prod(extent for axis, extent in extents.items() if axis.bit & deps) * buffer.dtype.numpy.itemsize
        found[buffer] = min(buffer.nbytes, found.get(buffer, 0) + size)
    return sum(found.values())


_SPILL_BYTES = 512 << 10
"""Rows of two values of eight bytes at most take twice as much: of the stack, and of the second cache."""

_REGISTERS = 24
"""Vectors that a loop's state and what it reads may fill; the rest is for its arithmetic."""


def _spilled(
    loops: Loops, nodes: Sequence[Node], places: dict[Node, Nesting], own: dict[Node, Axis | None]
) -> list[Node]:
    """Costly nodes needed by a fold along the vector axis and by the main loop over it; none of which needs another."""
    axis = loops.vector
    if axis is None or loops.strict or axis.extent * 8 > _SPILL_BYTES or axis not in loops.order:
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


def _own_vector(fold: Node, strict: bool) -> Axis | None:
    """The axis among its own along which vectors read what the fold needs at the least cost."""
    if strict or not reassociates(fold.data):
        return None
    data: Fold = fold.data
    roots = [*data.bodies, *((data.valid,) if data.valid is not None else ())]
    below = reachable(roots, lambda node: () if node.op == "fold" else children(node))
    inside = [n.data[1] for n in below if n.op in ("load", "current") and n.deps & ~fold.deps]
    best: tuple[float, Axis | None] = (float("inf"), None)
    for axis in data.bound[-1:] if len(data.inits) > 1 else reversed(data.bound):  # each lane's steps in their order
        cost = sum(stride_cost(affine, axis) for affine in inside) * max(1.0, 16.0 / axis.extent)
        if cost < best[0]:
            best = (cost, axis)
    if best[1] is None or best[1].extent < 4:
        return None
    return best[1] if best[0] <= 12.0 * max(1, len(inside)) else None


def _class(affine: Affine, place: Nesting, vector: Axis | None, own: dict[Node, Axis | None]) -> float:
    if vector is not None and vector in place.loops:
        return stride_cost(affine, vector) / 16
    axis = own[place.fold] if place.fold is not None and place.fold in own else None
    return stride_cost(affine, axis) / 16 if axis is not None else 1.0


def _widest(loops: Loops, nodes: Sequence[Node]) -> int:
    """Bytes of the widest element that is computed with."""
    stored = {store.node for store in loops.stores}
    sizes = [4 if n.op == "number" and n.dtype.bits == 64 else max(1, n.dtype.bits // 8)
             for n in nodes if n.op not in ("hole", "range") and n.dtype.kind != "pred"
             and (n.deps or n in stored) and n.op != "const"]  # fmt: skip
    return max(sizes, default=4)


# -- chunks


def _choose_chunks(loops: Loops, nodes: Sequence[Node]) -> None:
    """At most 16 chunks of the outer axes, by shapes alone; one where the work is small."""
    scanned, most = 0, len(loops.order)
    for node in nodes:
        if node.op == "fold" and node.data.scan is not None:
            scanned |= node.data.scan.bit
        elif node.op == "fold":  # in the steps of axes that are chunked together all is computed anew
            around = [k for k, axis in enumerate(loops.order) if axis.bit & node.deps]
            most = min(most, max(around, default=0) + 1)
    loops.parallel, loops.chunks = 0, 1
    if loops.work < 8000.0 or not loops.order:
        return
    count, taken = 1, 0
    for axis in loops.order:
        if axis.bit & (loops.serial | scanned) or count >= 32 or taken >= most:
            break
        if (axis is loops.vector or axis is loops.order[-1] is loops.tile) and taken:
            break
        count *= loops.steps(axis)
        taken += 1
        if axis is loops.vector:
            break
    if not taken:
        return
    wanted = max(1, min(16, int(loops.work / 4000.0)))
    unit = loops.lanes * loops.unroll if loops.order[taken - 1] is loops.vector else 1
    units = -(-count // unit)
    loops.chunk = -(-units // min(wanted, units)) * unit
    loops.chunks = -(-count // loops.chunk)
    loops.parallel = taken if loops.chunks > 1 else 0
