"""Loops: the decisions about a kernel before it is written, and the position of each node in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hlokit.cpu import costs
from hlokit.cpu.loops.expr import Buffer, Fold, LoopAxis, Node, affine_deps, children, runtime_nodes
from hlokit.forms.affine import Affine

Alike: TypeAlias = "Counter[tuple[Buffer, Any]]"
Span: TypeAlias = tuple[int, int]
"""Steps of an axis: the first, and the one after the last."""


@dataclass(frozen=True)
class Parted:
    """axis: the innermost of those along which updates count; place: a target without its place in the window.

    values  the run-time integers that make up the target, which the list holds
    guards  what must hold for an update to be done at all
    size    elements of the operand in a chunk's part
    """

    axis: LoopAxis
    place: Affine
    values: tuple[Node, ...]
    guards: tuple[Node, ...]
    size: int


@dataclass(frozen=True)
class Store:
    """A store of a kernel: `node` to `buffer` at `place`, where all `guards` hold."""

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
    block      steps of the tile axis that are done together for all of the vector axis, where it is the outer one
    pieces     spans of axes that have code of their own (see segments)
    parted     how chunks share the updates of a scatter (see parted), or None
    spills     costly nodes that a fold computes along the vector axis and the main loop needs again: kept in a row
    """

    order: list[LoopAxis]
    stores: list[Store]
    serial: int = 0
    vector: LoopAxis | None = None
    folds: dict[Node, LoopAxis | None] = field(default_factory=dict[Node, "LoopAxis | None"])
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
    whole: tuple[list[LoopAxis], list[Store]] | None = None
    tile: LoopAxis | None = None
    rows: int = 1
    block: int = 1
    parted: Parted | None = None
    pieces: dict[LoopAxis, list[Span]] = field(default_factory=dict[LoopAxis, "list[Span]"])

    def steps(self, axis: LoopAxis) -> int:
        """The trip count of its loop of the main nest: a tile axis outside the vector axis goes by blocks."""
        if axis is self.tile and self.order[-1] is not axis:
            return -(-axis.extent // self.block)
        return axis.extent


@dataclass(frozen=True)
class Nesting:
    """Where a node stands: the loops round it, outermost first, and the fold whose body it is in."""

    loops: tuple[LoopAxis, ...]
    fold: Node | None


def places_of(loops: Loops) -> dict[Node, Nesting]:
    """For every node the loops that it has to be in."""
    found: dict[Node, Nesting] = {}
    stack: list[tuple[Node, tuple[LoopAxis, ...], Node | None]] = []
    for store in reversed(loops.stores):
        for root in (*store.guards, *runtime_nodes(store.place), store.node):
            stack.append((root, tuple(loops.order), None))
    while stack:
        node, scope, fold = stack.pop()
        if node in found:
            continue
        inner = max((k + 1 for k, axis in enumerate(scope) if axis.bit & node.deps), default=0)
        place = found[node] = Nesting(scope[:inner], fold)
        if node.op == "fold":
            data: Fold = node.data
            inside = place.loops + data.bound
            for child in (*data.bodies, *((data.valid,) if data.valid is not None else ())):
                stack.append((child, inside, node if data.bound else fold))
            stack += [(child, scope, fold) for child in data.inits]
        stack += [(child, scope, fold) for child in (node.args if node.op == "fold" else children(node))]
    return found


def runtime_deps(affine: Affine) -> int:
    """The axes on which an affine's run-time integers depend."""
    deps = 0
    for node in runtime_nodes(affine):
        deps |= node.deps
    return deps


def alike(accesses: Iterable[tuple[Buffer, Affine]]) -> Alike:
    """The number of accesses to a buffer that differ by constants alone."""
    return Counter((buffer, affine.terms) for buffer, affine in accesses)


def stride_cost(affine: Affine, axis: LoopAxis, together: int = 1) -> float:
    """The cost of 16 elements along the axis, in contiguous vectors. `together`: accesses at neighbouring places, which
    share vectors if they fill them."""
    if runtime_deps(affine) & axis.bit:
        return 16.0
    c = abs(affine.coefficient(axis))
    if 2 <= c <= min(together, costs.DEINTERLEAVED):
        return float(c)
    return 0.3 if c == 0 else 1.0 if c == 1 else 2.0 * c if c <= 4 else 16.0
