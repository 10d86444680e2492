"""Segments: pieces of an axis in which every index is known to be on one side of each boundary.

Concatenations, pads, rolls and slices of them test indices against bounds. Where such a test depends on one axis only,
the axis is cut where the test's result changes; long pieces get code of their own, in which the test is a constant,
what it guards is loaded plainly or not at all. What is left between them is done by the general code, with masks; where
that would be much, as in a concatenation of many, all pieces have code of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from hlokit.cpu.loops.expr import Expressions, LoopAxis, Node, reachable
from hlokit.cpu.loops.nest import Loops, Span, Store
from hlokit.cpu.loops.substitution import folded, needed
from hlokit.forms.affine import Affine

_BODIES = 12
_SHORT_BODIES = 4000
"""Pieces of code that a kernel may become, of which each is worth much or all of them are short."""

_NODES = 4000
_GROWTH = 4
"""Nodes in all pieces, or how many times those of the general code."""

_LEAST = 48
"""Steps of a piece that are worth code of their own, unless they are a sixteenth of the axis."""

_WORTH = 0.7
"""The share of its cost that a kernel may keep if all pieces of an axis, short ones too, get code of their own."""


@dataclass(frozen=True)
class _Cut:
    """Pieces of an axis: their spans, how many bodies of code that makes, their nodes as a share of the general code's.

    cost   of a step of the axis, as a share of the general code's
    uses   tests that it decides
    """

    spans: list[Span]
    bodies: int
    nodes: float
    cost: float
    uses: int


def choose(loops: Loops, nodes: Sequence[Node]) -> float:
    """Sets the pieces of the main nest's axes: for each, the spans of steps that have their own code.

    Gives the share of its work that the kernel keeps.
    """
    if loops.serial or loops.parted is not None or any(n.op in ("fold", "current") for n in nodes):
        return 1.0
    tests = [n for n in nodes if n.op == "range" and _axis_of(n.data[0]) is not None]
    weight = sum(1 for n in nodes if n.deps)
    found: dict[LoopAxis, _Cut] = {}
    for axis in loops.order:
        mine = [n.data for n in tests if _axis_of(n.data[0]) is axis]
        if not mine or axis is loops.tile:
            continue
        is_vector = axis is loops.vector
        is_parallel = is_vector and loops.parallel and loops.order[loops.parallel - 1] is axis
        unit = loops.lanes * (loops.unroll if is_parallel else 1) if is_vector else 1
        cut = _cut(axis, mine, loops, unit, weight)
        if cut is not None:
            found[axis] = cut
    most = max(_GROWTH, _NODES / max(1, weight))
    while found and (_too_many(found.values()) or prod(cut.nodes for cut in found.values()) > most):
        del found[min(found, key=lambda axis: found[axis].uses + (100 if axis is loops.vector else 0))]
    loops.pieces = {axis: cut.spans for axis, cut in found.items()}
    return prod(cut.cost for cut in found.values())


def _too_many(cuts: Collection[_Cut]) -> bool:
    bodies = prod(cut.bodies for cut in cuts)
    return bodies > _SHORT_BODIES or (bodies > _BODIES and all(cut.nodes >= cut.bodies for cut in cuts))


def _cut(axis: LoopAxis, tests: Sequence[tuple[Affine, int, int]], loops: Loops, unit: int, weight: int) -> _Cut | None:
    """The long pieces of an axis, in whole units; or all pieces, which may begin and end anywhere."""
    places = _places(axis, tests)
    spans = _long(axis, places, unit)
    covered = sum(b - a for a, b in spans)
    bodies = len(spans) + (covered < axis.extent)
    every = list(pairwise(places))
    is_long = bodies <= _BODIES and (axis.extent - covered) * 8 <= axis.extent
    if is_long or len(every) > _SHORT_BODIES:
        return _Cut(spans, bodies, bodies, 1.0, len(tests)) if spans else None
    expressions = Expressions()
    part = {span: _weight(within(loops.stores, {axis: span}, expressions)) / weight for span in {*spans, *every}}
    lanes = loops.lanes if axis is loops.vector else 1
    general = (axis.extent - covered) / axis.extent
    cost = general + sum((b - a) / axis.extent * part[a, b] for a, b in spans)
    steps = {(a, b): -(-(b - a) // lanes) * lanes / axis.extent for a, b in every}
    whole = sum(steps[span] * part[span] for span in every)
    if whole < _WORTH * cost:
        return _Cut(every, len(every), sum(part[span] for span in every), whole, len(tests))
    total = sum(part[span] for span in spans) + (general > 0)
    return _Cut(spans, bodies, total, cost, len(tests)) if spans else None


def _weight(stores: Sequence[Store]) -> int:
    return sum(1 for n in reachable([r for s in stores for r in (s.node, *s.guards)]) if n.deps)


def _axis_of(affine: Affine) -> LoopAxis | None:
    """The one axis that an affine depends on."""
    if len(affine.terms) != 1 or not isinstance(affine.terms[0][0], LoopAxis):
        return None
    return affine.terms[0][0]


def _places(axis: LoopAxis, tests: Sequence[tuple[Affine, int, int]]) -> list[int]:
    """The steps at which a test changes, the axis' ends among them."""
    cuts = {0, axis.extent}
    for affine, low, high in tests:
        c = affine.terms[0][1]
        ends = (-((affine.constant - low) // c), -((affine.constant - high) // c))  # the first step at or past it
        if c < 0:
            ends = ((affine.constant - high) // -c + 1, (affine.constant - low) // -c + 1)
        cuts.update(end for end in ends if 0 < end < axis.extent)
    return sorted(cuts)


def _long(axis: LoopAxis, places: Sequence[int], unit: int) -> list[Span]:
    """The long spans between the places, in whole units."""
    if len(places) == 2:
        return []
    spans: list[Span] = []
    for first, last in pairwise(places):
        low = -(-first // unit) * unit
        high = last if last == axis.extent else last // unit * unit
        if high - low >= 2 * unit and (high - low >= _LEAST or ((high - low) * 16 >= axis.extent and unit == 1)):
            spans.append((low, high))
    return spans


def within(stores: Sequence[Store], known: Mapping[LoopAxis, Span], expressions: Expressions) -> list[Store]:
    """The stores where axes are known to lie in spans: tests folded away, what does not change as it was."""
    new: dict[Node, Node] = {}
    for store in stores:
        for root in (store.node, *store.guards):
            _know(root, known, new, expressions)
    moved: list[Store] = []
    for s in stores:
        guards = [new[g] for g in s.guards]
        moved.append(replace(s, node=new[s.node], guards=needed(guards)))
    return moved


def _know(root: Node, known: Mapping[LoopAxis, Span], new: dict[Node, Node], expressions: Expressions) -> None:
    """Adds to `new` what a node is where axes lie in spans; what no choice that is known needs is not looked at."""
    stack = [root]
    while stack:
        node = stack[-1]
        if node in new:
            stack.pop()
            continue
        asked = node.args
        if node.op == "select":
            test = new.get(node.args[0])
            if test is None:
                asked = node.args[:1]
            elif test.op == "const":
                asked = node.args[1:2] if test.data else node.args[2:]
        missing = [a for a in asked if a not in new]
        if missing:
            stack += missing
        elif node.op == "select" and len(asked) == 1:
            new[node] = new[asked[0]]
        else:
            new[node] = _known(node, known, new, expressions)


def _known(node: Node, known: Mapping[LoopAxis, Span], new: Mapping[Node, Node], expressions: Expressions) -> Node:
    if node.op == "range":
        affine, low, high = node.data
        axis = _axis_of(affine)
        if axis is None or axis not in known:
            return node
        first, last = known[axis]
        c = affine.terms[0][1]
        one, two = sorted((affine.constant + c * first, affine.constant + c * (last - 1)))
        if low <= one and two < high:
            return expressions.flag(True)
        return expressions.flag(False) if two < low or one >= high else node
    args = [new[a] for a in node.args]
    if len(args) == len(node.args) and all(a is b for a, b in zip(args, node.args)):
        return node
    return folded(expressions, node.op, node.dtype, args, node.data)
