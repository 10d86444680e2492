"""Counted loops whose bodies work element by element: folds over their passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlokit.analysis.loops import Counter, counter, invariants
from hlokit.cpu.loops.arithmetic import parts_of
from hlokit.cpu.loops.expr import HOLE, Fold, Node, affine_deps, affine_of, children, reachable
from hlokit.cpu.loops.folding import Folding, Group
from hlokit.cpu.lower.leaf import Leaf
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Index
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import While


@dataclass(eq=False)
class ElementLoops(Folding):
    """Loops over elements.

    memo      what has been built, by what it is, index, guards and passes
    bindings  readers of what loops' bodies take, in whose passes it is a hole
    _passes   which passes are being built, outermost first
    """

    memo: dict[tuple[Any, ...], Any] = field(default_factory=dict[tuple[Any, ...], Any], init=False)
    bindings: dict[Leaf, Callable[[Index], Any]] = field(default_factory=dict[Leaf, Callable[[Index], Any]], init=False)
    _passes: tuple[int, ...] = field(default=(), init=False)

    def _repeats(self, leaf: Leaf) -> int:
        found = counter(leaf.instruction) if isinstance(leaf.instruction.op, While) else None
        return found.trips if found is not None else 1

    def _loop(self, loop: Instruction, number: int, index: Index) -> Any:
        """An element after all passes: a fold over them, whose accumulators are the state's elements at this index.

        UnsupportedError where a pass reads the state elsewhere than at this index.
        """
        found = counter(loop)
        if found is None or found.index is None or (self.guards and index):
            raise UnsupportedError(f"{loop.name}: no counted loop over elements")
        init = loop.operands[0]
        kept = invariants(loop)
        if number in kept:
            return self.element(self.source.leaf(init, number), index)
        shapes = loop.shape.elements
        if number == found.index:
            return self.constant(found.start + found.trips * found.step, shapes[number].dtype)
        key = ("loop", loop, index, self._passes)
        values = self.memo.get(key)
        if values is None:
            guards, self.guards = self.guards, ()  # a loop over scalars is the same whoever reads it
            values = self.memo[key] = self._passed(loop, found, kept, shapes[number].dimensions, index)
            self.guards = guards
        return values[number]

    def _passed(
        self, loop: Instruction, count: Counter, kept: Sequence[int], dimensions: tuple[int, ...], index: Index
    ) -> dict[int, Any]:
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
        place = 1000 * (len(self._passes) + 1)
        holes = {k: self._hole(shapes[k].dtype, place + j) for j, k in enumerate(state)}
        trip = self.group(count.trips)
        outer, saved = self._passes, dict(self.bindings)
        self._passes = (*outer, len(self.groups))
        for k in range(len(shapes)):
            self.bindings[Leaf(body.parameters[0], k)] = self._carried(loop, k, holes, kept, count, trip, index)
        results = {k: self.element(self.source.leaf(body.root, k), index if shapes[k].rank else ()) for k in state}
        self.bindings, self._passes = saved, outer
        inits, combined = parts_of(list(starts.values())), parts_of(list(results.values()))
        own = parts_of(list(holes.values()))
        combined, bodies, slots = self._with_elements(combined, own, place + 500)
        fold = Fold(trip.axes, inits, bodies, combined, slots, ordered=True)
        node = self.expressions.node("fold", inits[0].dtype, (), fold)
        return dict(zip(state, self._assembled(node, [starts[k].dtype for k in state]), strict=True))

    def _carried(
        self,
        loop: Instruction,
        k: int,
        holes: Mapping[int, Any],
        kept: Sequence[int],
        count: Counter,
        trip: Group,
        index: Index,
    ) -> Callable[[Index], Any]:
        """The state's element k as a pass reads it."""
        shape = loop.shape.elements[k]
        own = index if shape.rank else ()

        def read(at: Index) -> Any:
            if k == count.index:
                return self.expressions.node("number", shape.dtype, (), trip.affine * count.step + count.start)
            if k in kept:
                inner, self._passes = self._passes, self._passes[:-1]
                value = self.element(self.source.leaf(loop.operands[0], k), at)
                self._passes = inner
                return value
            if k not in holes or at != own:
                raise UnsupportedError(f"{loop.name}: a pass reads the state at other indices")
            return holes[k]

        return read

    def _with_elements(
        self, combined: Sequence[Node], own: Sequence[Node], place: int
    ) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[tuple[int, int], ...]]:
        """The combiner with all that needs no accumulator taken out: these are the elements it is given."""
        taken: dict[Node, Node] = {}
        new: dict[Node, Node] = {}
        needed = set(own)
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
                hole = self.expressions.node("hole", node.dtype, (), (place + len(taken), 0))
                taken[node] = new[node] = hole
            elif done or not node.args or node.op == "part":
                args = [new.get(a, a) for a in node.args]
                new[node] = self.expressions.node(node.op, node.dtype, args, node.data)
            else:
                stack.append((node, True))
                stack += [(a, False) for a in node.args if a not in new]
        slots = tuple(h.data for h in (*own, *taken.values()))
        return tuple(new[n] for n in combined), tuple(taken), slots
