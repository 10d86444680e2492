"""Tiles: loads that stride along the vector axis but lie side by side along another, read by rows and transposed.

A column of vectors is wanted, rows are in memory. Pieces of 16 bytes are read, one a row, and put together so that
each 128-bit part of a register holds another group of rows; then every part is transposed in itself. So one network
serves all vector lengths, and no element crosses a register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hlokit.cpu.llvm import Function, vector
from hlokit.cpu.loops.expr import Axis, Node
from hlokit.cpu.loops.nest import BLOCK, Loops, Store, runtime_deps, stride_cost
from hlokit.forms.affine import Affine

_PIECE = 16
"""Bytes that are read of a row at once."""


def piece(size: int) -> int:
    """Elements of so many bytes that are read of a row at once."""
    return _PIECE // size


def is_transposed(affine: Affine, vector_axis: Axis, tile: Axis, guards: Sequence[Node] = ()) -> bool:
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
    best = _cost(loops.vector, None, loads, stores) * 0.8
    found: tuple[Axis, Axis] | None = None
    for one in loops.order:
        for two in loops.order:
            if one is two or one.extent < 4 or two.extent < 2:
                continue
            if any(not (s.deps & one.bit and s.deps & two.bit) for s in stores):
                continue
            if not any(is_transposed(n.data[1], one, two, n.args) for n in loads):
                continue
            cost = _cost(one, two, loads, stores)
            if cost < best:
                best, found = cost, (one, two)
    if found is None:
        return
    loops.vector, loops.tile = found
    one, two = found
    others = [axis for axis in loops.order if axis is not one and axis is not two]
    loops.order = [*others, two, one] if two.extent > BLOCK else [*others, one, two]
    loops.spills = []
    elements = prod(axis.extent for axis in loops.order)
    loops.work = max(best * elements * 0.02, elements * 0.1)
    sizes = [piece(n.dtype.numpy.itemsize) // n.data[1].coefficient(two)
             for n in loads if is_transposed(n.data[1], one, two, n.args)]  # fmt: skip
    loops.rows = max(1, *sizes)
    loops.unroll = 1


def _cost(axis: Axis | None, tile: Axis | None, loads: Sequence[Node], stores: Sequence[Store]) -> float:
    """Of a step, by the accesses."""
    if axis is None:
        return 16.0 * (len(loads) + len(stores))
    short = 1.0 if axis.extent >= 16 else 16.0 / axis.extent
    total = 0.0
    for node in loads:
        affine: Affine = node.data[1]
        if tile is not None and is_transposed(affine, axis, tile, node.args):
            total += 2.0 * affine.coefficient(tile) * (1.0 if tile.extent >= 4 else 2.0)
        else:
            total += stride_cost(affine, axis)
    for store in stores:
        total += 1.5 * stride_cost(store.place, axis)
    return total * short


def columns(
    fn: Function, scalar: str, size: int, lanes: int, rows: int, valid: int, place: Callable[[int], str]
) -> list[str]:
    """Writes the transposition of pieces of `rows` rows; gives a vector of `lanes` lanes for each column of a piece.

    size    bytes of an element
    rows    how many exist, at most `lanes`; the other lanes hold anything
    valid   columns that may be read
    place   the pointer to a row's piece
    """
    width = piece(size)
    total = max(lanes, width)

    def every(first: int) -> str:
        """Every `width`-th row from `first` on, side by side."""
        pieces = [
            _row(fn, scalar, width, valid, size, place(r)) if r < rows else "poison" for r in range(first, total, width)
        ]
        return joined(fn, scalar, width, pieces)

    parts = [every(r) for r in range(width)]
    type = vector(scalar, total)
    half = width // 2
    low = [q * width + k // 2 + total * (k % 2) for q in range(total // width) for k in range(width)]
    orders = [_order(low), _order([k + half for k in low])]
    step = 1
    while step < width:
        parts = [
            fn.let(f"shufflevector {type} {parts[k]}, {type} {parts[k + half]}, {order}")
            for k in range(half)
            for order in orders
        ]
        step *= 2
    if lanes < total:
        first = _order(range(lanes))
        return [fn.let(f"shufflevector {type} {part}, {type} poison, {first}") for part in parts]
    return parts


def _row(fn: Function, scalar: str, width: int, valid: int, size: int, pointer: str) -> str:
    type = vector(scalar, width)
    if valid >= width:
        return fn.let(f"load {type}, ptr {pointer}, align {size}")
    mask = "<" + ", ".join(f"i1 {'true' if k < valid else 'false'}" for k in range(width)) + ">"
    suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
    load = f"call {type} @llvm.masked.load.v{width}{suffix}.p0"
    return fn.let(f"{load}(ptr align {size} {pointer}, <{width} x i1> {mask}, {type} poison)")


def joined(fn: Function, scalar: str, width: int, pieces: list[str]) -> str:
    """The pieces side by side in one register."""
    while len(pieces) > 1:
        type = vector(scalar, width)
        width *= 2
        order = _order(range(width))
        pieces = [
            "poison" if a == b == "poison" else fn.let(f"shufflevector {type} {a}, {type} {b}, {order}")
            for a, b in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return pieces[0]


def _order(numbers: Sequence[int]) -> str:
    return f"<{len(numbers)} x i32> <" + ", ".join(f"i32 {k}" for k in numbers) + ">"
