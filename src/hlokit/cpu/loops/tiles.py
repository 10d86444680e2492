"""Tiles: loads that are strided along the vector axis but contiguous along another, read by rows and transposed.

A column of vectors is wanted, rows are in memory. Which loops go by tiles is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlokit.cpu import costs
from hlokit.cpu.loops.expr import LoopAxis, Node
from hlokit.cpu.loops.nest import Alike, Loops, Store, alike, runtime_deps, stride_cost
from hlokit.forms.affine import Affine

_PIECE = 16
"""Bytes that are read of a row at once."""


def piece(size: int) -> int:
    """Elements of so many bytes that are read of a row at once."""
    return _PIECE // size


def is_transposed(affine: Affine, vector_axis: LoopAxis, tile: LoopAxis, guards: Sequence[Node] = ()) -> bool:
    """Whether a load at this place is worth a transposition."""
    if guards or runtime_deps(affine) & (vector_axis.bit | tile.bit):
        return False
    return affine.coefficient(tile) in (1, 2) and abs(affine.coefficient(vector_axis)) > affine.coefficient(tile)


def choose(loops: Loops, nodes: Sequence[Node]) -> None:
    """Makes a pair of axes vector and tile, where the loads that this serves cost more without.

    Of the accesses along the best vector axis so far (`loops.vector`, or none) and along each other pair: strided ones
    are taken for 16 times as dear as contiguous ones, transposed ones for twice.
    """
    if len(loops.order) < 2 or loops.serial or any(n.op in ("fold", "current") for n in nodes):
        return
    loads = [n for n in nodes if n.op == "load"]
    stores = loops.stores
    together = alike([*((n.data[0], n.data[1]) for n in loads), *((s.buffer, s.place) for s in stores)])
    best = _cost(loops.vector, None, loads, stores, together) * 0.8
    found: tuple[LoopAxis, LoopAxis] | None = None
    for one in loops.order:
        for two in loops.order:
            if one is two or one.extent < 4 or two.extent < 2:
                continue
            if any(not (s.deps & one.bit and s.deps & two.bit) for s in stores):
                continue
            if not any(is_transposed(n.data[1], one, two, n.args) for n in loads):
                continue
            cost = _cost(one, two, loads, stores, together)
            if cost < best:
                best, found = cost, (one, two)
    if found is None:
        return
    loops.vector, loops.tile = found
    one, two = found
    read = [n for n in loads if is_transposed(n.data[1], one, two, n.args)]
    size = max(n.dtype.numpy.itemsize for n in read)
    loops.block = costs.TILE_ROW_BYTES // size
    if size > 1:  # lines of results are written whole
        loops.lanes = max(loops.lanes, costs.LINE_BYTES // size)
    others = [axis for axis in loops.order if axis is not one and axis is not two]
    loops.order = [*others, two, one] if two.extent > loops.block else [*others, one, two]
    loops.spills = []
    elements = prod(axis.extent for axis in loops.order)
    loops.work = max(best * elements * 0.02, elements * 0.1)
    loops.rows = max(1, *(piece(n.dtype.numpy.itemsize) // n.data[1].coefficient(two) for n in read))
    loops.unroll = 1


def _cost(
    axis: LoopAxis | None, tile: LoopAxis | None, loads: Sequence[Node], stores: Sequence[Store], together: Alike
) -> float:
    """The cost of a step, by its accesses."""
    if axis is None:
        return 16.0 * (len(loads) + len(stores))
    short = 1.0 if axis.extent >= 16 else 16.0 / axis.extent
    total = 0.0
    for node in loads:
        affine: Affine = node.data[1]
        if tile is not None and is_transposed(affine, axis, tile, node.args):
            total += 2.0 * affine.coefficient(tile) * (1.0 if tile.extent >= 4 else 2.0)
        else:
            total += stride_cost(affine, axis, together[node.data[0], affine.terms])
    for store in stores:
        total += 1.5 * stride_cost(store.place, axis, together[store.buffer, store.place.terms])
    return total * short
