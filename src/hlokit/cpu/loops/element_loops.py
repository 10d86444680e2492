"""Counted loops whose bodies work element by element: folds over their passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlokit.analysis.loops import Counter, counter, invariants
from hlokit.cpu.loops.arithmetic import NodeEmitter, parts_of
from hlokit.cpu.loops.expr import HOLE, Expressions, Fold, Node, affine_deps, affine_of, children, reachable
from hlokit.cpu.loops.folding import fold_results, hole
from hlokit.cpu.loops.space import Dimension, IterationSpace
from hlokit.cpu.lower.leaf import Leaf, Source
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Index
from hlokit.hlo.instruction import Instruction


@dataclass(eq=False)
class ElementLoops:
    """The loops of one kernel that work element by element.

    element   gives the elements of leaves, those of bodies among them
    bindings  readers of what loops' bodies take, in whose passes it is a hole
    passes    which passes are being built, outermost first
    _results  of each loop at an index, in these passes
    """

    arithmetic: NodeEmitter
    space: IterationSpace
    source: Source
    element: Callable[[Leaf, Index], Any]
    bindings: dict[Leaf, Callable[[Index], Any]] = field(default_factory=dict[Leaf, Callable[[Index], Any]], init=False)
    passes: tuple[int, ...] = field(default=(), init=False)
    _results: dict[tuple[Any, ...], dict[int, Any]] = field(
        default_factory=dict[tuple[Any, ...], dict[int, Any]], init=False
    )

    def value(self, loop: Instruction, number: int, index: Index) -> Any:
        """An element after all passes: a fold over them, whose accumulators are the state's elements at this index.

        UnsupportedError where a pass reads the state elsewhere than at this index.
        """
        found = counter(loop)
        if found is None or found.index is None or (self.arithmetic.guards and index):
            raise UnsupportedError(f"{loop.name}: no counted loop over elements")
        init = loop.operands[0]
        kept = invariants(loop)
        if number in kept:
            return self.element(self.source.leaf(init, number), index)
        shapes = loop.shape.elements
        if number == found.index:
            return self.arithmetic.constant(found.start + found.trips * found.step, shapes[number].dtype)
        key = (loop, index, self.passes)
        values = self._results.get(key)
        if values is None:  # a loop over scalars is the same whoever reads it: under any guards
            dimensions = shapes[number].dimensions
            values = self.arithmetic.under((), lambda: self._passed(loop, found, kept, dimensions, index))
            self._results[key] = values
        return values[number]

    def _passed(
        self, loop: Instruction, count: Counter, kept: Sequence[int], dimensions: tuple[int, ...], index: Index
    ) -> dict[int, Any]:
        """The state's elements after all passes, by their number: those of arrays of these dimensions, and scalars."""
        init, body = loop.operands[0], loop.called[1]
        shapes = loop.shape.elements
        state = [
            k
            for k in range(len(shapes))
            if k not in kept and k != count.index and shapes[k].dimensions in (dimensions, ())
        ]
        starts = {k: self.element(self.source.leaf(init, k), index if shapes[k].rank else ()) for k in state}
        if not count.trips:
            return starts
        expressions = self.arithmetic.expressions
        place = 1000 * (len(self.passes) + 1)
        holes = {k: hole(expressions, shapes[k].dtype, place + j) for j, k in enumerate(state)}
        trip = self.space.dimension(count.trips)
        outer, saved = self.passes, dict(self.bindings)
        self.passes = (*outer, len(self.space.dimensions))
        for k in range(len(shapes)):
            self.bindings[Leaf(body.parameters[0], k)] = self._carried(loop, k, holes, kept, count, trip, index)
        results = {k: self.element(self.source.leaf(body.root, k), index if shapes[k].rank else ()) for k in state}
        self.bindings, self.passes = saved, outer
        inits, combined = parts_of(list(starts.values())), parts_of(list(results.values()))
        accumulators = parts_of(list(holes.values()))
        combined, bodies, slots = with_elements(expressions, combined, accumulators, place + 500)
        fold = Fold(trip.axes, inits, bodies, combined, slots, ordered=True)
        return dict(zip(state, fold_results(expressions, fold, [starts[k].dtype for k in state]), strict=True))

    def _carried(
        self,
        loop: Instruction,
        k: int,
        holes: Mapping[int, Any],
        kept: Sequence[int],
        count: Counter,
        trip: Dimension,
        index: Index,
    ) -> Callable[[Index], Any]:
        """The state's element k as a pass reads it."""
        shape = loop.shape.elements[k]
        own = index if shape.rank else ()

        def read(at: Index) -> Any:
            if k == count.index:
                number = trip.affine * count.step + count.start
                return self.arithmetic.expressions.node("number", shape.dtype, (), number)
            if k in kept:
                inner, self.passes = self.passes, self.passes[:-1]
                value = self.element(self.source.leaf(loop.operands[0], k), at)
                self.passes = inner
                return value
            if k not in holes or at != own:
                raise UnsupportedError(f"{loop.name}: a pass reads the state at other indices")
            return holes[k]

        return read


def with_elements(
    expressions: Expressions, combined: Sequence[Node], accumulators: Sequence[Node], place: int
) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[tuple[int, int], ...]]:
    """The combiner with all that needs no accumulator taken out: these are the elements it is given."""
    taken: dict[Node, Node] = {}
    new: dict[Node, Node] = {}
    needed = set(accumulators)
    for node in reachable(combined):  # whether a node needs an accumulator, children first
        if node not in needed and any(child in needed for child in children(node)):
            needed.add(node)
            affine = affine_of(node)
            if affine is not None and affine_deps(affine) & ~HOLE:
                raise UnsupportedError("a pass of the loop has indices that depend on its state and on axes")
    stack = [(node, False) for node in reversed(combined)]
    while stack:
        node, done = stack.pop()
        if node in new:
            continue
        if node not in needed and node.op != "const":
            hole = expressions.node("hole", node.dtype, (), (place + len(taken), 0))
            taken[node] = new[node] = hole
        elif done or not node.args or node.op == "part":
            args = [new.get(a, a) for a in node.args]
            new[node] = expressions.node(node.op, node.dtype, args, node.data)
        else:
            stack.append((node, True))
            stack += [(a, False) for a in node.args if a not in new]
    slots = tuple(h.data for h in (*accumulators, *taken.values()))
    return tuple(new[n] for n in combined), tuple(taken), slots
