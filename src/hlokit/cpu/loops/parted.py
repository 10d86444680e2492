"""Scatter in parallel: each chunk reads all updates and applies those whose targets are in its part of the operand.

So each element of the operand gets its updates in their order, however many threads there are. The updates of a chunk
are found by vectors: targets are computed, those of other chunks and those out of bounds dropped, the rest packed into
a list, which a scalar loop then follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from hlokit.cpu import costs
from hlokit.cpu.loops.expr import Node, affine_deps, reachable, runtime_nodes
from hlokit.cpu.loops.nest import Loops, Parted, Store
from hlokit.forms.affine import Affine

LIST = 1024
"""Updates that are looked through at a time."""


def choose(loops: Loops, nodes: Sequence[Node], vector_bytes: int) -> None:
    """Parts a kernel with axes that must run in order, where its targets allow it and the updates are many."""
    outer = [axis for axis in loops.order if axis.bit & loops.serial]
    inner = [axis for axis in loops.order if not axis.bit & loops.serial]
    if not loops.order or not loops.order[0].bit & loops.serial:
        return  # axes outside the serial ones are shared out
    if vector_bytes < 64 or not outer or any(n.op == "fold" for n in nodes):
        return  # packing a vector is one instruction with AVX-512 only
    updates, window = prod(a.extent for a in outer), prod(a.extent for a in inner)
    axis = outer[-1]
    if axis.extent < 64 or updates * (4 + window) < 20000:
        return
    bits = 0
    for a in inner:
        bits |= a.bit
    first = loops.stores[0]
    place, steps, span = _without(first.place, bits)
    if not all(_alike(store, first, place, bits) for store in loops.stores):
        return
    values = tuple(dict.fromkeys(n for store in loops.stores for n in runtime_nodes(store.place) if n.deps & axis.bit))
    guards = tuple(g for g in first.guards if g.deps & axis.bit)
    if not values or len(values) > 3 or any(n.deps & bits for n in (*values, *guards)) or place.high >= 2**30:
        return
    if any(n.op == "current" for n in reachable([*values, *guards])) or place.low < 0 or steps <= span:
        return
    if any(n.dtype.bits > 32 for n in values) or axis.extent >= 2**31:
        return
    loops.order = [*outer, *inner]
    nbytes = sum(store.buffer.nbytes for store in loops.stores)
    is_far = nbytes > costs.SECOND_CACHE_BYTES
    count = 1 if updates * (4 + window) < 60000 else 16 if window >= 16 else 8 if is_far else 2
    parts = -(-(place.high + 1) // steps)
    count = min(count, parts)
    size = -(-parts // count) * steps
    loops.parted = Parted(axis, place, values, guards, size)
    loops.chunks = -(-(place.high + 1) // size)
    loops.parallel = 0


def _without(place: Affine, bits: int) -> tuple[Affine, int, int]:
    """(the place of a window's first element, what all such places are multiples of, the place of its last element)."""
    base, steps, span = Affine.of(0), 0, 0
    for key, c in place.terms:
        term = Affine.of(key) * c
        if affine_deps(term) & bits:
            span += abs(c) * (key.high - key.low)
        else:
            base = base + term
            steps = gcd(steps, c)
    return base, steps, span + place.constant


def _alike(store: Store, first: Store, place: Affine, bits: int) -> bool:
    return store.guards == first.guards and _without(store.place, bits)[0] is place
