"""The stores of a kernel with other axes, or with more knowledge of them, simplified accordingly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hlokit.cpu.loops.expr import Expressions, Fold, LoopAxis, Node, RuntimeInt, affine_deps, reachable, runtime_nodes
from hlokit.cpu.loops.nest import Store
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


def nodes_of(stores: Sequence[Store]) -> list[Node]:
    """All that the stores need, children first."""
    return reachable([root for store in stores for root in (store.node, *store.guards, *runtime_nodes(store.place))])


def substituted(
    stores: Sequence[Store], mapping: dict[LoopAxis, Affine], expressions: Expressions | None = None
) -> list[Store]:
    """The stores with axes replaced by affines of other axes; tests that this decides are folded away."""
    expressions = expressions or Expressions()
    new: dict[Node, Node] = {}
    places: dict[Affine, Affine] = {}

    def axis(old: LoopAxis) -> LoopAxis | None:
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
                    terms.append(Affine.of(expressions.runtime_int(new[key.node], key.low, key.high)) * c)
                else:
                    terms.append(mapping.get(key, Affine.of(key)) * c)  # type: ignore[arg-type]
            found = places[affine] = Affine.sum(terms)
        return found

    for node in nodes_of(stores):
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
        new[node] = folded(expressions, node.op, node.dtype, [new[a] for a in node.args], data)
    return [replace(s, place=moved(s.place), node=new[s.node], guards=needed(new[g] for g in s.guards)) for s in stores]


def _moved_bits(deps: int, mapping: dict[LoopAxis, Affine]) -> int:
    for axis, affine in mapping.items():
        if deps & axis.bit:
            deps = deps & ~axis.bit | affine_deps(affine)
    return deps


def _is(node: Node, value: bool) -> bool:
    return node.op == "const" and node.dtype is dtypes.pred and bool(node.data) is value


def needed(guards: Iterable[Node]) -> tuple[Node, ...]:
    """The guards that are not known to hold."""
    return tuple(guard for guard in guards if not _is(guard, True))


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
