"""Canonical forms of kernels, which are equal if kernels differ only by their buffers; kernels on other buffers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hlokit.cpu.loops.expr import (
    Buffer,
    Fold,
    LoopAxis,
    Node,
    RuntimeInt,
    children,
    reachable,
    runtime_nodes,
    with_combiner,
)
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.forms.affine import Affine


def canonical(loops: Loops, *places: Affine) -> tuple[Hashable, list[Buffer]]:
    """All that the code of a kernel depends on, with numbers for buffers, axes and nodes; the buffers by number.

    `places`: other affines of its axes that count too. What the form leaves out are estimates (Loops.work) and
    what the loops were before short axes were written out (Loops.whole).
    """
    form = _Form(loops)
    return form.whole(places), list(form.buffers)


def renamed(loops: Loops, buffers: Mapping[Buffer, Buffer]) -> Loops:
    """The same loops on other buffers; those that are not in the mapping stay."""
    new: dict[Node, Node] = {}
    runtime: dict[Any, RuntimeInt] = {}

    def moved(affine: Affine) -> Affine:
        if not any(isinstance(key, RuntimeInt) and new[key.node] is not key.node for key, _ in affine.terms):
            return affine
        terms: list[Any] = [affine.constant]
        for key, c in affine.terms:
            if isinstance(key, RuntimeInt) and key not in runtime:
                runtime[key] = RuntimeInt(new[key.node], key.low, key.high)
            terms.append(Affine.of(runtime.get(key, key)) * c)
        return Affine.sum(terms)

    def data_of(node: Node) -> Any:
        data = node.data
        if node.op in ("load", "current"):
            return buffers.get(data[0], data[0]), moved(data[1]), *data[2:]
        if node.op == "number":
            return moved(data)
        if node.op == "range":
            return moved(data[0]), *data[1:]
        inits, bodies = nodes(data.inits), nodes(data.bodies)
        return replace(data, inits=inits, bodies=bodies, valid=data.valid and new[data.valid])

    def nodes(old: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(new[node] for node in old)

    def stores(old: Sequence[Store]) -> list[Store]:
        return [Store(buffers.get(s.buffer, s.buffer), moved(s.place), new[s.node], nodes(s.guards)) for s in old]

    for node in _nodes_of(loops, [*loops.stores, *(loops.whole[1] if loops.whole is not None else ())]):
        here = node.op in ("load", "current") and node.data[0] in buffers
        if here or any(new[child] is not child for child in children(node)):
            data = data_of(node) if here or node.op in ("load", "current", "number", "range", "fold") else node.data
            new[node] = Node(node.op, node.dtype, nodes(node.args), data, node.deps, node.number)
        else:
            new[node] = node
    parted = loops.parted
    if parted is not None:
        place, values, guards = moved(parted.place), nodes(parted.values), nodes(parted.guards)
        parted = replace(parted, place=place, values=values, guards=guards)
    return replace(
        loops,
        order=[*loops.order],
        stores=stores(loops.stores),
        folds={new.get(node, node): axis for node, axis in loops.folds.items()},
        in_place=frozenset(buffers.get(buffer, buffer) for buffer in loops.in_place),
        spills=[new[node] for node in loops.spills],
        whole=loops.whole and (loops.whole[0], stores(loops.whole[1])),
        parted=parted,
        pieces={axis: [*spans] for axis, spans in loops.pieces.items()},
    )


class _Form:
    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.axes: dict[LoopAxis, int] = {}
        self.buffers: dict[Buffer, int] = {}
        self.numbers: dict[Node, int] = {}
        self._affines: dict[Affine, Hashable] = {}

    def whole(self, places: Sequence[Affine]) -> Hashable:
        loops = self.loops
        order = self.axis_numbers(loops.order)
        nodes = tuple(map(self.node, _nodes_of(loops, loops.stores, places)))
        parted = loops.parted
        return (
            nodes,
            order,
            tuple((self.buffer(s.buffer), self.affine(s.place), self.node_numbers((s.node, *s.guards)))
                  for s in loops.stores),
            None if parted is None else (
                self.axis(parted.axis), self.affine(parted.place), self.node_numbers(parted.values),
                self.node_numbers(parted.guards), parted.size),
            self.node_numbers(loops.spills),
            tuple((self.numbers[node], axis and self.axis(axis)) for node, axis in loops.folds.items()
                  if node in self.numbers),
            (loops.serial, loops.lanes, loops.unroll, loops.parallel, loops.chunk, loops.chunks, loops.strict),
            (loops.streamed, loops.rows, loops.block),
            loops.vector and self.axis(loops.vector),
            loops.tile and self.axis(loops.tile),
            tuple((self.axis(axis), tuple(spans)) for axis, spans in loops.pieces.items()),
            tuple(map(self.affine, places)),
            tuple((axis.extent, axis.bit) for axis in self.axes),
            tuple((buffer.dtype, buffer.size, buffer in loops.in_place) for buffer in self.buffers),
        )  # fmt: skip

    def node(self, node: Node) -> Hashable:
        """A node whose children have numbers; gives it the next one."""
        data: Any = node.data
        if node.op == "const":
            data = data.tobytes(), data.dtype
        elif node.op == "number":
            data = self.affine(data)
        elif node.op == "range":
            data = self.affine(data[0]), *data[1:]
        elif node.op in ("load", "current"):
            data = self.buffer(data[0]), self.affine(data[1]), *data[2:]
        elif node.op == "fold":
            data = self.fold(data)
        self.numbers[node] = len(self.numbers)
        return node.op, node.dtype, self.node_numbers(node.args), data

    def fold(self, fold: Fold) -> Hashable:
        return (
            self.axis_numbers(fold.bound),
            self.node_numbers(fold.inits),
            self.node_numbers(fold.bodies),
            self.node_numbers(fold.combined),
            fold.slots,
            None if fold.valid is None else self.numbers[fold.valid],
            None if fold.scan is None else self.axis(fold.scan),
            fold.ordered,
        )

    def affine(self, affine: Affine) -> Hashable:
        found = self._affines.get(affine)
        if found is None:
            terms = tuple((self.key(key), c) for key, c in affine.terms)
            found = self._affines[affine] = (affine.constant, terms)
        return found

    def key(self, key: Any) -> Hashable:
        if isinstance(key, RuntimeInt):
            return self.numbers[key.node], key.low, key.high
        return self.axis(key)

    def axis(self, axis: LoopAxis) -> int:
        return self.axes.setdefault(axis, len(self.axes))

    def buffer(self, buffer: Buffer) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def axis_numbers(self, axes: Sequence[LoopAxis]) -> tuple[int, ...]:
        return tuple(map(self.axis, axes))

    def node_numbers(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        return tuple(self.numbers[node] for node in nodes)


def _nodes_of(loops: Loops, stores: Sequence[Store], places: Sequence[Affine] = ()) -> list[Node]:
    """All nodes that the code of these stores may come to, children first."""
    affines = [*(store.place for store in stores), *places]
    roots = [root for store in stores for root in (store.node, *store.guards)]
    if loops.parted is not None:
        roots += [*loops.parted.values, *loops.parted.guards]
        affines.append(loops.parted.place)
    roots += [node for affine in affines for node in runtime_nodes(affine)]
    return reachable([*roots, *loops.spills], with_combiner)
