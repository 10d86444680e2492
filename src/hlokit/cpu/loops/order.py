"""Order: loop order, vector axis, unrolling and chunks of a kernel, chosen from the DAG's affine coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlokit.cpu import costs
from hlokit.cpu.loops import parted, segments, tiles, vectors
from hlokit.cpu.loops.coalescing import coalesced
from hlokit.cpu.loops.expr import Buffer, LoopAxis, Node
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.loops.substitution import nodes_of
from hlokit.cpu.loops.unrolled import unrolled


def arrange(
    axes: Sequence[LoopAxis],
    stores: Sequence[Store],
    *,
    vector_bytes: int,
    serial: int = 0,
    strict: bool = False,
    stream_bytes: int = costs.STREAM_BYTES,
    writes_out: bool = True,
) -> Loops:
    """The loops of a kernel with these root axes and stores. `writes_out`: short axes may be written out."""
    order, stores, serial = coalesced(list(axes), list(stores), serial)
    nodes = nodes_of(stores)
    order = _folds_first(order, nodes)
    whole = None
    if writes_out and not serial and not strict:
        short = unrolled(order, stores, nodes)
        if short[0] is not order:
            whole = order, stores
            order, stores, serial = coalesced(*short, serial)
            nodes = nodes_of(stores)
            order = _folds_first(order, nodes)
    loops = Loops(order, stores, serial, strict=strict, whole=whole)
    vectors.choose(loops, nodes, vector_bytes)
    loops.streamed = _touched_bytes(loops, nodes) >= stream_bytes
    tiles.choose(loops, nodes)
    _choose_chunks(loops, nodes)
    parted.choose(loops, nodes, vector_bytes)
    share = segments.choose(loops, nodes)
    if share < 1.0:
        loops.work *= share
        _choose_chunks(loops, nodes)
    return loops


def _folds_first(order: list[LoopAxis], nodes: Sequence[Node]) -> list[LoopAxis]:
    """Axes that folds depend on come first; one along which a prefix fold goes comes last."""
    needed, scanned = 0, 0
    for node in nodes:
        if node.op == "fold":
            if node.data.scan is not None:
                scanned |= node.data.scan.bit
            else:
                needed |= node.deps
    return sorted(order, key=lambda axis: 2 if scanned & axis.bit else 0 if needed & axis.bit else needed != 0)


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
    if loops.work < costs.SHARED_NS or not loops.order:
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
    wanted = max(1, min(16, int(loops.work / costs.CHUNK_NS)))
    unit = loops.lanes * loops.unroll if loops.order[taken - 1] is loops.vector else 1
    units = -(-count // unit)
    loops.chunk = -(-units // min(wanted, units)) * unit
    loops.chunks = -(-count // loops.chunk)
    loops.parallel = taken if loops.chunks > 1 else 0
