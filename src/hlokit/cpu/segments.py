"""Segments: pieces of an axis inside which it is known on which side of a boundary an index lies.

Concatenations, pads, rolls and slices of them test indices against bounds. Where such a test depends on one axis only,
the axis is cut where the test's result changes; long pieces get code of their own, in which the test is a constant,
what it guards is loaded plainly or not at all. What is left between them is done by the general code, with masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from hlokit.cpu.expr import Axis, Expressions, Node, RuntimeInt, reachable
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

if TYPE_CHECKING:
    from hlokit.cpu.order import Loops, Store

Span = tuple[int, int]

_BODIES = 12
_NODES = 4000
"""Pieces of code that a kernel may become, and the nodes in all of them."""

_LEAST = 48
"""Steps of a piece that are worth code of their own, unless they are a sixteenth of the axis."""


def choose(loops: Loops, nodes: Sequence[Node]) -> None:
    """Sets the pieces of the main nest's axes: for each, the spans of steps that have their own code."""
    if loops.serial or loops.parted is not None or any(n.op in ("fold", "current") for n in nodes):
        return
    tests = [n for n in nodes if n.op == "range" and _axis_of(n.data[0]) is not None]
    found: dict[Axis, list[Span]] = {}
    uses: dict[Axis, int] = {}
    for axis in loops.order:
        mine = [n.data for n in tests if _axis_of(n.data[0]) is axis]
        if not mine or axis is loops.tile:
            continue
        unit = 1
        if axis is loops.vector:
            is_parallel = loops.parallel and loops.order[loops.parallel - 1] is axis
            unit = loops.lanes * (loops.unroll if is_parallel else 1)
        spans = _spans(axis, mine, unit)
        if spans:
            found[axis] = spans
            uses[axis] = len(mine) + (100 if axis is loops.vector else 0)
    weight = sum(1 for n in nodes if n.deps)
    while found and (_bodies(found) > _BODIES or _bodies(found) * weight > _NODES):
        del found[min(found, key=lambda axis: uses[axis])]
    loops.pieces = found


def _bodies(found: Mapping[Axis, Sequence[Span]]) -> int:
    return prod(len(spans) + (sum(b - a for a, b in spans) < axis.extent) for axis, spans in found.items())


def _axis_of(affine: Affine) -> Axis | None:
    """The one axis that an affine depends on."""
    if len(affine.terms) != 1 or not isinstance(affine.terms[0][0], Axis):
        return None
    return affine.terms[0][0]


def _spans(axis: Axis, tests: Sequence[tuple[Affine, int, int]], unit: int) -> list[Span]:
    """The long spans between the places where a test changes, in whole units."""
    cuts = {0, axis.extent}
    for affine, low, high in tests:
        c = affine.terms[0][1]
        ends = (-((affine.constant - low) // c), -((affine.constant - high) // c))  # the first step at or past it
        if c < 0:
            ends = ((affine.constant - high) // -c + 1, (affine.constant - low) // -c + 1)
        cuts.update(end for end in ends if 0 < end < axis.extent)
    places = sorted(cuts)
    if len(places) == 2:
        return []
    spans: list[Span] = []
    for first, last in pairwise(places):
        low = -(-first // unit) * unit
        high = last if last == axis.extent else last // unit * unit
        if high - low >= 2 * unit and (high - low >= _LEAST or ((high - low) * 16 >= axis.extent and unit == 1)):
            spans.append((low, high))
    return spans


def within(stores: Sequence[Store], known: Mapping[Axis, Span], expressions: Expressions) -> list[Store]:
    """The stores where axes are known to lie in spans: tests folded away, what does not change as it was."""
    new: dict[Node, Node] = {}
    roots = [r for s in stores for r in (s.node, *s.guards, *_runtime(s.place))]
    for node in reachable(roots):
        new[node] = _known(node, known, new, expressions)
    moved: list[Store] = []
    for s in stores:
        guards = [new[g] for g in s.guards]
        moved.append(replace(s, node=new[s.node], guards=needed(guards)))
    return moved


def _runtime(place: Affine) -> list[Node]:
    return [key.node for key, _ in place.terms if isinstance(key, RuntimeInt)]


def _is(node: Node, value: bool) -> bool:
    return node.op == "const" and node.dtype is dtypes.pred and bool(node.data) is value


def needed(guards: Iterable[Node]) -> tuple[Node, ...]:
    """The guards that are not known to hold."""
    return tuple(guard for guard in guards if not _is(guard, True))


def _known(node: Node, known: Mapping[Axis, Span], new: Mapping[Node, Node], expressions: Expressions) -> Node:
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


def folded(expressions: Expressions, op: str, dtype: DType, args: Sequence[Node], data: Any) -> Node:
    """The node of this meaning, where operands may be tests whose outcome is known."""
    if op == "range" and data[0].is_constant:
        return expressions.flag(data[1] <= data[0].constant < data[2])
    if op == "number" and data.is_constant:
        return expressions.const(data.constant, dtype)
    if op == "select" and args[0].op == "const":
        return args[1] if args[0].data else args[2]
    if op == "select" and args[1] is args[2]:
        return args[1]
    if op == "not" and args[0].op == "const" and dtype is dtypes.pred:
        return expressions.flag(not args[0].data)
    if op in ("and", "or") and dtype is dtypes.pred:
        neutral = op == "and"
        if any(_is(a, not neutral) for a in args):
            return expressions.flag(not neutral)
        args = [a for a in args if not _is(a, neutral)]
        if len(args) < 2:
            return args[0] if args else expressions.flag(neutral)
    if op == "load":
        if any(_is(a, False) for a in args):  # nothing asks for it: a select beyond it is folded too
            return expressions.const(0, dtype)
        args = [a for a in args if not _is(a, True)]
    return expressions.node(op, dtype, args, data)
