"""Order: loop order, vector axis, unrolling and chunks of a kernel, chosen from the DAG's affine coefficients alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from hlokit.cpu import parted, segments, tiles
from hlokit.cpu.expr import (
    COSTLY,
    Axis,
    Buffer,
    Expressions,
    Fold,
    Node,
    RuntimeInt,
    affine_deps,
    affine_of,
    children,
    identity_name,
    reachable,
)
from hlokit.cpu.unrolled import unrolled
from hlokit.forms.affine import Affine

STREAM_BYTES = 32 << 20
"""A kernel that touches at least so many bytes stores past the caches: what it writes would be gone before it is read.

In a loop, which reads again what the pass before has written, twice as many."""


@dataclass(frozen=True)
class Store:
    """What a kernel writes: `node` to `buffer` at `place`, where all `guards` hold."""

    buffer: Buffer
    place: Affine
    node: Node
    guards: tuple[Node, ...] = ()

    @property
    def deps(self) -> int:
        deps = affine_deps(self.place) | self.node.deps
        for guard in self.guards:
            deps |= guard.deps
        return deps


@dataclass
class Loops:
    """A kernel ready to be written as loops.

    order      the axes of the main nest, outermost first; a fold's bound axes that are not among them are its own
    stores     what it writes
    serial     axes (bits) whose steps must run in order, on one thread
    vector     the main nest's vector axis, or None
    folds      for each fold node the vector axis among its bound axes, or None
    lanes      elements of a vector
    unroll     vectors in a step of the vector loop
    parallel   how many of the outer axes the chunks count; 0: one chunk
    chunk      steps of the parallel axes in a chunk (elements, where the vector axis is the parallel one)
    chunks     how many
    work       estimated cost in nanoseconds on one thread
    streamed   results are stored past the caches
    in_place   buffers that are written where another is read: what was loaded is in the caches anyway
    tile       the axis along which loads are read by rows and transposed (see tiles), or None
    rows       steps of the tile axis that are written out side by side
    pieces     spans of axes that have code of their own (see segments)
    parted     how chunks share the updates of a scatter (see parted), or None
    spills     costly nodes that a fold computes along the vector axis and the main loop needs again: kept in a row
    """

    order: list[Axis]
    stores: list[Store]
    serial: int = 0
    vector: Axis | None = None
    folds: dict[Node, Axis | None] = field(default_factory=dict[Node, "Axis | None"])
    lanes: int = 1
    unroll: int = 1
    parallel: int = 0
    chunk: int = 0
    chunks: int = 1
    work: float = 0.0
    strict: bool = False
    streamed: bool = False
    in_place: frozenset[Buffer] = frozenset()
    spills: list[Node] = field(default_factory=list[Node])
    whole: tuple[list[Axis], list[Store]] | None = None
    tile: Axis | None = None
    rows: int = 1
    parted: parted.Parted | None = None
    pieces: dict[Axis, list[segments.Span]] = field(default_factory=dict[Axis, "list[segments.Span]"])

    def steps(self, axis: Axis) -> int:
        """How often its loop of the main nest goes round: a tile axis outside the vector axis goes by blocks."""
        if axis is self.tile and self.order[-1] is not axis:
            return -(-axis.extent // tiles.BLOCK)
        return axis.extent


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
    nodes = _nodes(stores)
    order = _folds_first(order, nodes)
    whole = None
    if writes_out and not serial and not strict:
        short = unrolled(order, stores, nodes, _loops_round, substituted)
        if short[0] is not order:
            whole = order, stores
            order, stores, serial = merged(*short, serial)
            nodes = _nodes(stores)
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


def _nodes(stores: Sequence[Store]) -> list[Node]:
    """All that the stores need, children first."""
    return reachable([root for store in stores for root in (store.node, *store.guards, *runtime_nodes(store.place))])


def _loops_round(order: Sequence[Axis], stores: Sequence[Store]) -> dict[Node, tuple[Axis, ...]]:
    return {node: place.loops for node, place in places_of(Loops(list(order), list(stores))).items()}


# -- merging


def merged(axes: list[Axis], stores: list[Store], serial: int) -> tuple[list[Axis], list[Store], int]:
    """Neighbouring axes that every affine counts through as one become one."""
    while True:
        nodes = _nodes(stores)
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


def runtime_nodes(affine: Affine) -> list[Node]:
    """The integers of an affine that are known at run time alone."""
    return [key.node for key, _ in affine.terms if isinstance(key, RuntimeInt)]


def substituted(
    stores: Sequence[Store], mapping: dict[Axis, Affine], expressions: Expressions | None = None
) -> list[Store]:
    """The stores with axes replaced by affines of other axes; tests that this decides are folded away."""
    expressions = expressions or Expressions()
    new: dict[Node, Node] = {}
    runtime: dict[RuntimeInt, RuntimeInt] = {}
    places: dict[Affine, Affine] = {}

    def axis(old: Axis) -> Axis | None:
        affine = mapping.get(old)
        if affine is None:
            return old
        return None if affine.is_constant else affine.terms[0][0]  # type: ignore[return-value]

    def moved(affine: Affine) -> Affine:
        found = places.get(affine)
        if found is None:
            terms: list[Any] = [affine.constant]
            for key, c in affine.terms:
                if isinstance(key, RuntimeInt):
                    if key not in runtime:
                        runtime[key] = RuntimeInt(new[key.node], key.low, key.high)
                    terms.append(Affine.of(runtime[key]) * c)
                else:
                    terms.append(mapping.get(key, Affine.of(key)) * c)  # type: ignore[arg-type]
            found = places[affine] = Affine.sum(terms)
        return found

    for node in _nodes(stores):
        data = node.data
        if node.op == "number":
            data = moved(data)
        elif node.op == "range":
            data = (moved(data[0]), *data[1:])
        elif node.op == "load":
            data = (data[0], moved(data[1]))
        elif node.op == "current":
            data = (data[0], moved(data[1]), _moved_bits(data[2], mapping))
        elif node.op == "fold":
            fold: Fold = data
            bound = tuple(a for a in map(axis, fold.bound) if a is not None)
            data = replace(
                fold,
                bound=bound,
                inits=tuple(new[n] for n in fold.inits),
                bodies=tuple(new[n] for n in fold.bodies),
                valid=None if fold.valid is None else new[fold.valid],
                scan=None if fold.scan is None else axis(fold.scan),
            )
        new[node] = segments.folded(expressions, node.op, node.dtype, [new[a] for a in node.args], data)
    return [
        replace(s, place=moved(s.place), node=new[s.node], guards=segments.needed(new[g] for g in s.guards))
        for s in stores
    ]


def _moved_bits(deps: int, mapping: dict[Axis, Affine]) -> int:
    for axis, affine in mapping.items():
        if deps & axis.bit:
            deps = deps & ~axis.bit | affine_deps(affine)
    return deps


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


@dataclass(frozen=True)
class Place:
    """Where a node stands: the loops round it, outermost first, and the fold whose body it is in."""

    loops: tuple[Axis, ...]
    fold: Node | None


def places_of(loops: Loops) -> dict[Node, Place]:
    """For every node the loops that it has to be in."""
    found: dict[Node, Place] = {}
    stack: list[tuple[Node, tuple[Axis, ...], Node | None]] = []
    for store in reversed(loops.stores):
        for root in (*store.guards, *runtime_nodes(store.place), store.node):
            stack.append((root, tuple(loops.order), None))
    while stack:
        node, scope, fold = stack.pop()
        if node in found:
            continue
        inner = max((k + 1 for k, axis in enumerate(scope) if axis.bit & node.deps), default=0)
        place = found[node] = Place(scope[:inner], fold)
        if node.op == "fold":
            data: Fold = node.data
            inside = place.loops + data.bound
            for child in (*data.bodies, *((data.valid,) if data.valid is not None else ())):
                stack.append((child, inside, node if data.bound else fold))
            stack += [(child, scope, fold) for child in data.inits]
        children = list(node.args)
        affine = affine_of(node)
        if affine is not None:
            children += runtime_nodes(affine)
        stack += [(child, scope, fold) for child in children]
    return found


def _stride_class(affine: Affine, axis: Axis) -> float:
    """The cost of 16 elements along the axis, in contiguous vectors."""
    for key, _ in affine.terms:
        if isinstance(key, RuntimeInt) and key.node.deps & axis.bit:
            return 16.0
    c = abs(affine.coefficient(axis))
    return 0.3 if c == 0 else 1.0 if c == 1 else 2.0 * c if c <= 4 else 16.0


def reassociates(fold: Fold) -> bool:
    """Whether the steps of a fold may be taken in any grouping and order (REDUCE-9).

    True of one op on (accumulator, element) that is associative and commutative, and of selections, each of whose
    results is one of the two: not always the same one, which would be the first or the last of all.
    """
    if fold.ordered:
        return False
    n = len(fold.inits)
    if n == 1 and identity_name(fold.combined[0]) is not None:
        return True
    return all(node.op == "select" and _selects(node) for node in fold.combined)


def _selects(node: Node) -> bool:
    if node.op == "hole":
        return True
    return node.op == "select" and all(_selects(a) for a in node.args[1:])


def _choose_vector(loops: Loops, nodes: Sequence[Node], vector_bytes: int) -> None:
    places = places_of(loops)
    accesses: list[tuple[Affine, Place]] = [
        (affine, places[n])
        for n in nodes
        if n.op in ("load", "current") and (affine := affine_of(n)) is not None and n in places
    ]
    everywhere = tuple(loops.order)
    for store in loops.stores:
        depth = max((k + 1 for k, axis in enumerate(everywhere) if axis.bit & store.deps), default=0)
        accesses.append((store.place, Place(everywhere[:depth], None)))
    costs = [(places[n].loops, 16.0 if n.op in COSTLY else 1.0) for n in nodes if n in places and n.deps]
    for fold in (n for n in nodes if n.op == "fold" and n in places):
        steps = sum(16.0 if n.op in COSTLY else 1.0 for n in reachable(fold.data.combined))
        costs.append((places[fold].loops + fold.data.bound, steps))
    last = max((k for k, a in enumerate(loops.order) if a.bit & loops.serial), default=-1)
    candidates: list[Axis | None] = [a for a in loops.order[last + 1 :] if a.extent >= 4]
    scans = 0
    for node in nodes:
        if node.op == "fold" and node.data.scan is not None:
            scans |= node.data.scan.bit
            if loops.strict or not reassociates(node.data) or node.deps & ~node.data.scan.bit & 0:
                candidates = [a for a in candidates if a is not node.data.scan]
    best: tuple[float, Axis | None] = (float("inf"), None)
    own: dict[Node, Axis | None] = {}
    folds = [n for n in nodes if n.op == "fold" and n in places and n.data.bound]
    for fold in folds:
        own[fold] = _own_vector(fold, loops.strict)
    for candidate in [*candidates, None]:
        cost = 0.0
        for affine, place in accesses:
            cost += _iterations(place.loops, candidate, own, place.fold) * _class(affine, place, candidate, own)
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
    """Of the buffers that a kernel reads or writes, what it can touch: few elements of one that it gathers from."""
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


_SPILL_BYTES = 96 << 10

_REGISTERS = 24
"""Vectors that a loop's state and what it reads may fill; the rest is for its arithmetic."""


def _spilled(
    loops: Loops, nodes: Sequence[Node], places: dict[Node, Place], own: dict[Node, Axis | None]
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
    for axis in reversed(data.bound):
        cost = sum(_stride_class(affine, axis) for affine in inside) * max(1.0, 16.0 / axis.extent)
        if cost < best[0]:
            best = (cost, axis)
    if best[1] is None or best[1].extent < 4:
        return None
    return best[1] if best[0] <= 12.0 * max(1, len(inside)) else None


def _iterations(around: Sequence[Axis], vector: Axis | None, own: dict[Node, Axis | None], fold: Node | None) -> float:
    return float(prod(axis.extent for axis in around))


def _class(affine: Affine, place: Place, vector: Axis | None, own: dict[Node, Axis | None]) -> float:
    if vector is not None and vector in place.loops:
        return _stride_class(affine, vector) / 16
    axis = own[place.fold] if place.fold is not None and place.fold in own else None
    return _stride_class(affine, axis) / 16 if axis is not None else 1.0


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


Visit = Callable[[Node], None]
