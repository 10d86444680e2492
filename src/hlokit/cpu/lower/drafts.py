"""Drafts of kernels: each is built repeatedly until no further value must be stored in memory for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hlokit.cpu.loops.arithmetic import NodeEmitter
from hlokit.cpu.loops.build import MAX_DEPTH, Build
from hlokit.cpu.loops.canonical import renamed
from hlokit.cpu.loops.expr import Buffer, LoopAxis, Node, children, reachable, runtime_nodes, with_combiner
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.loops.order import arrange
from hlokit.cpu.loops.space import IterationSpace
from hlokit.cpu.lower.chain_cuts import store_deep
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.patterns import Pattern
from hlokit.cpu.lower.retries import Materialise, NoKernel, Reference, Split, Turn
from hlokit.cpu.math.half import computes_half
from hlokit.errors import UnsupportedError
from hlokit.hlo.instruction import Instruction

_LONG_CHAINS = 8
"""After so many chains that are too long for one kernel all of the kernel are cut at once, then shorter ones."""
_MOST_TRIES = 200


@dataclass(eq=False)
class Draft:
    """A kernel in the making: its root leaves, and what building them found.

    build   None: the reference evaluates the instruction
    source  what the result holds before, where only parts of it are written
    fills   the kernels that put a scatter's operands where its results are, by number; stored ones are copied
    """

    roots: list[Leaf]
    build: Build | None = None
    stores: list[Store] = field(default_factory=list[Store])
    axes: list[LoopAxis] = field(default_factory=list[LoopAxis])
    serial: int = 0
    source: Buffer | None = None
    fills: dict[int, Draft] = field(default_factory=dict[int, "Draft"])

    @cached_property
    def folds(self) -> int:
        """The number of folds that need each other in a row."""
        levels: dict[Node, int] = {}
        for node in reachable([store.node for store in self.stores]):
            levels[node] = max((levels[child] for child in children(node)), default=0) + (node.op == "fold")
        return max(levels.values(), default=0)

    @property
    def size(self) -> int:
        """The number of nodes that were made, needed or not."""
        return len(self._nodes)

    @cached_property
    def has_scan(self) -> bool:
        """Whether a prefix fold is in it."""
        return any(node.op == "fold" and node.data.scan is not None for node in self._nodes)

    @cached_property
    def loaded(self) -> Collection[Buffer]:
        """The buffers that it reads elements of."""
        return {node.data[0] for node in self._nodes if node.op == "load"}

    @cached_property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that its stores need, in the order of the nodes."""
        roots = [root for s in self.stores for root in (s.node, *s.guards)]
        roots += [node for s in self.stores for node in runtime_nodes(s.place)]
        nodes = reachable(roots, with_combiner)
        return tuple(dict.fromkeys(node.data[0] for node in nodes if node.op in ("load", "current")))

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it stores to, in the order of the stores."""
        return tuple(dict.fromkeys(store.buffer for store in self.stores))

    @cached_property
    def spent(self) -> Mapping[Leaf, int]:
        """The number of elements of each leaf that are computed."""
        return self.build.recomputation.spent if self.build is not None else {}

    def weight(self, leaf: Leaf) -> int:
        """The number of nodes that an element of the leaf takes."""
        return self.build.recomputation.weights.get(leaf, 1) if self.build is not None else 1

    def computes(self, leaf: Leaf) -> bool:
        """Whether the leaf's elements are computed on the way to the roots'."""
        return self.build is not None and leaf in self.build.recomputation.reads

    def arranged(self, **options: Any) -> Loops:
        """Its loops, as `arrange` makes them with these options."""
        return arrange(self.axes, self.stores, serial=self.serial, **options)

    @property
    def _nodes(self) -> Collection[Node]:
        return self.build.expressions.nodes.values() if self.build is not None else ()


class Built:
    """A kernel that was built, and its pattern: what else has this pattern need not be built."""

    def __init__(self, draft: Draft, found: Pattern) -> None:
        self.draft = draft
        self.pattern = found
        self._loops: dict[Hashable, Loops] = {}

    def arranged(self, **options: Any) -> Loops:
        key = tuple(options.items())
        loops = self._loops.get(key)
        if loops is None:
            loops = self._loops[key] = self.draft.arranged(**options)
        return loops


class Likeness(Draft):
    """A draft that differs from one that was built by its leaves and buffers alone."""

    def __init__(self, roots: list[Leaf], built: Built, found: Pattern) -> None:
        one = built.draft
        super().__init__(roots, one.build, one.stores, one.axes, one.serial)
        self._built = built
        self._buffers = dict(zip(built.pattern.buffers, found.buffers, strict=True))
        self._here = dict(zip(built.pattern.instructions, found.instructions, strict=True))
        self._there = dict(zip(found.instructions, built.pattern.instructions, strict=True))

    @cached_property
    def folds(self) -> int:
        return self._built.draft.folds

    @cached_property
    def has_scan(self) -> bool:
        return self._built.draft.has_scan

    @cached_property
    def loaded(self) -> Collection[Buffer]:
        return {self._buffers.get(buffer, buffer) for buffer in self._built.draft.loaded}

    @cached_property
    def reads(self) -> tuple[Buffer, ...]:
        return tuple(self._buffers.get(buffer, buffer) for buffer in self._built.draft.reads)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return tuple(self._buffers.get(buffer, buffer) for buffer in self._built.draft.writes)

    @cached_property
    def spent(self) -> Mapping[Leaf, int]:
        return {Leaf(self._here[leaf.instruction], leaf.number): n for leaf, n in self._built.draft.spent.items()}

    def weight(self, leaf: Leaf) -> int:
        return self._built.draft.weight(Leaf(self._there[leaf.instruction], leaf.number))

    def computes(self, leaf: Leaf) -> bool:
        there = self._there.get(leaf.instruction)
        return there is not None and self._built.draft.computes(Leaf(there, leaf.number))

    def arranged(self, **options: Any) -> Loops:
        return renamed(self._built.arranged(**options), self._buffers)


class Attempt:
    """One attempt at a kernel: what earlier ones found, and the build of this one.

    splits  factors of the kernel's dimensions by their number
    turned  the dimensions that are walked backwards
    roots   the leaves that the kernel computes, as far as it may store no others in their place
    """

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self.splits: dict[int, list[int]] = {}
        self.turned: frozenset[int] = frozenset()
        self.roots: Sequence[Leaf] = ()
        self._build: Build | None = None

    def start(self, roots: Sequence[Leaf], *, in_order: bool = True) -> Build:
        """A new build. `in_order`: the kernel's axes are walked from first to last."""
        context = self.leaves.context
        arithmetic = NodeEmitter(self.leaves, strict=context.strict, half=computes_half(context.target))
        space = IterationSpace(self.splits, None if in_order else self.turned)
        self.roots = roots
        self._build = Build(self.leaves, arithmetic, space, frozenset(roots))
        return self._build

    @property
    def build(self) -> Build:
        """The build that was started last."""
        assert self._build is not None
        return self._build

    def turn(self, axis: LoopAxis) -> None:
        """From now on the axis's dimension is walked backwards."""
        self.turned |= {self.build.space.number(axis)}

    def split(self, axis: LoopAxis, factor: int) -> None:
        """From now on the axis is two, the inner one of this extent."""
        number = self.build.space.number(axis)
        axes = self.build.space.dimensions[number].axes
        factors = [each.extent for each in axes]
        place = axes.index(axis)
        factors[place : place + 1] = [axis.extent // factor, factor]
        self.splits[number] = factors

    def restart(self) -> None:
        """Forgets splits and turns: what lies in memory has changed."""
        self.splits, self.turned = {}, frozenset()

    def inlined(self) -> list[Instruction]:
        """The instructions that were inlined into the kernel when the build ended."""
        return [leaf.instruction for leaf in self._build.recomputation.reads] if self._build is not None else []


def retried(
    leaves: Leaves, instructions: Sequence[Instruction], make: Callable[[Attempt], Draft], *, cuts: bool = True
) -> Draft:
    """The kernel of the instructions, built until no leaf has to be stored and no axis split. Without `cuts` nothing
    new is stored.

    Raises NoKernel where there is none.
    """
    attempt = Attempt(leaves)
    long_chains = 0
    try:
        for _ in range(_MOST_TRIES):
            try:
                return make(attempt)
            except Turn as turn:
                attempt.turn(turn.axis)
            except Split as split:
                attempt.split(split.axis, split.factor)
            except (Materialise, Reference) as found:
                leaf = found.leaf
                is_here = leaf.instruction in leaves.position  # else in the body of a loop over elements
                if leaf in attempt.roots or not cuts or not is_here or leaf.instruction.op.form == "scatter":
                    raise UnsupportedError(f"{leaf.instruction.name}: {found}") from None
                if isinstance(found, Materialise):
                    count = len(leaves.stored)
                    if found.is_size and not long_chains % _LONG_CHAINS:  # each would be found by building again
                        deep = MAX_DEPTH * _LONG_CHAINS // max(long_chains, _LONG_CHAINS)
                        store_deep(leaves, _inside(leaves, instructions), deep)
                    if len(leaves.stored) == count:
                        leaves.store(leaf, str(found))
                    long_chains += found.is_size
                else:
                    leaves.host(leaf.instruction, str(found))
                attempt.restart()
        raise UnsupportedError(f"no kernel was found in {_MOST_TRIES} tries")
    except (UnsupportedError, NotImplementedError) as error:
        raise NoKernel(str(error), attempt.inlined()) from error


def _inside(leaves: Leaves, instructions: Sequence[Instruction]) -> set[Instruction]:
    """The instructions that a kernel of these computes: they, and what they are made of up to what lies in memory."""
    found = set(instructions)
    stack = list(found)
    while stack:
        for leaf in leaves.operands(stack.pop()):
            if leaf not in leaves.stored and leaf.instruction not in found:
                found.add(leaf.instruction)
                stack.append(leaf.instruction)
    return found
