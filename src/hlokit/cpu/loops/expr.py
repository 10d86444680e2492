"""The expression DAG: scalar meaning of a kernel, hash-consed. It knows of axes, not of loops, lanes or addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hlokit.forms.affine import Affine, Index, Key
from hlokit.forms.primitives import COSTLY
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

HOLE = 1
"""The bit of what a fold's combiner takes: such nodes live where the combiner is applied."""


class Buffer:
    """An array in memory: dense, row-major. `dtype` is the component's for complex arrays, `size` counts components."""

    __slots__ = ("dtype", "name", "number", "size")

    def __init__(self, name: str, dtype: DType, size: int, number: int) -> None:
        self.name = name
        self.dtype = dtype.real
        self.size = size * (2 if dtype.is_complex else 1)
        self.number = number

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.numpy.itemsize

    @property
    def align(self) -> int:
        """Bytes that every element's address is a multiple of."""
        return self.dtype.numpy.itemsize

    @property
    def base(self) -> Buffer:
        """The buffer that memory is assigned to: another one for a view of it (see moved)."""
        return self

    def __repr__(self) -> str:
        return self.name


class LoopAxis(Key):
    """A loop's counter, from 0 to extent - 1. `bit` marks it in sets of axes."""

    __slots__ = ("bit", "extent")

    def __init__(self, name: str, extent: int, bit: int) -> None:
        super().__init__(name, 0, max(extent - 1, 0), bit)
        self.extent = extent
        self.bit = bit


class RuntimeInt(Key):
    """An integer known at run time, in low..high: `node` holds it."""

    __slots__ = ("node",)

    def __init__(self, node: Node, low: int, high: int) -> None:
        super().__init__("n", low, high, node.deps)
        self.node = node


class Node:
    """A scalar value. Made by Expressions.node alone, so that equal ones are the same object.

    op    const, number, range, load, current, fold, part, hole, or a primitive's name
    data  const: the NumPy scalar; number: Affine; range: (Affine, low, high); load: (Buffer, Affine); part: k;
          fold: Fold; hole: its place in the combiner; current (a load of what the kernel itself changes):
          (Buffer, Affine, axes at each of whose steps it is read anew)
    args  operands; of a load the guards under which alone it may be read
    deps  the axes that it depends on, as bits
    below what `children` found of it, once it was asked
    """

    __slots__ = ("args", "below", "data", "deps", "dtype", "number", "op", "weight")
    below: tuple[Node, ...]

    def __init__(self, op: str, dtype: DType, args: tuple[Node, ...], data: Any, deps: int, number: int) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.data = data
        self.deps = deps
        self.number = number

    def __repr__(self) -> str:
        return f"%{self.number}"


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """A complex value: its components."""

    dtype: DType
    real: Node
    imag: Node


@dataclass(frozen=True)
class Fold:
    """Accumulators folded over the bound axes, in their order. The fold node's parts are the final accumulators.

    combined  the combiner on holes
    slots     the holes' data: those of the accumulators, then those of the elements
    valid     where the step takes part; None: everywhere
    scan      the axis along which every partial result is a value of its own (prefix sums), instead of bound axes
    ordered   the steps are a loop's passes: no other order and no other grouping means the same
    """

    bound: tuple[LoopAxis, ...]
    inits: tuple[Node, ...]
    bodies: tuple[Node, ...]
    combined: tuple[Node, ...]
    slots: tuple[tuple[int, int], ...]
    valid: Node | None = None
    scan: LoopAxis | None = None
    ordered: bool = False

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """For each accumulator the primitive that takes its element in, as `identity_name` knows it; none at all where
        an accumulator is made otherwise, or of others."""
        count = len(self.inits)
        if self.ordered:
            return ()
        found = [_on_holes(node) for node in self.combined]
        own = [{self.slots[k], self.slots[count + k]} for k in range(count)]
        names = [name for (name, holes), pair in zip(found, own, strict=True) if name is not None and holes == pair]
        return tuple(names) if len(names) == count else ()


def affine_deps(affine: Affine) -> int:
    """The axes that an affine depends on, also through run-time integers."""
    deps = 0
    for key, _ in affine.terms:
        deps |= key.deps
    return deps


def index_deps(index: Index) -> int:
    """The axes that any of its affines depends on."""
    deps = 0
    for affine in index:
        for key, _ in affine.terms:
            deps |= key.deps
    return deps


def is_gathered(place: Affine) -> bool:
    """Whether elements at neighbouring steps of an axis may lie anywhere, and none of another axis side by side."""
    scattered = 0
    for node in runtime_nodes(place):
        scattered |= node.deps
    return bool(scattered) and not any(
        isinstance(key, LoopAxis) and abs(c) == 1 and not key.bit & scattered for key, c in place.terms
    )


def runtime_nodes(affine: Affine) -> list[Node]:
    """The integers of an affine that are known at run time alone."""
    return [key.node for key, _ in affine.terms if isinstance(key, RuntimeInt)]


class Expressions:
    """The nodes of one kernel."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[Any, ...], Node] = {}
        self.work = 0  # nodes that cost something at every step: not constants, not what places and their tests are
        self.costly = 0  # those of them that take ten times as long
        self.gathers = 0  # loads of elements that lie anywhere
        self._runtime: dict[tuple[Node, int, int], RuntimeInt] = {}

    def node(self, op: str, dtype: DType, args: Sequence[Node] = (), data: Any = None) -> Node:
        """The one node of this meaning."""
        args = tuple(args)
        key = (op, dtype, args, data.tobytes() if op == "const" else data)
        found = self.nodes.get(key)
        if found is None:
            self.costly += op in COSTLY
            self.gathers += op == "load" and is_gathered(data[1])
            self.work += op not in ("const", "number", "range") and (dtype is not dtypes.pred or op == "load")
            found = self.nodes[key] = Node(op, dtype, args, data, _deps(op, args, data), len(self.nodes))
        return found

    def integer_sum(self, x: Node, y: Node) -> Node:
        """x + y; (a + b) + y as a + (b + y) where b and y stand still in a loop in which a does not."""
        for whole, rest in ((x, y), (y, x)):
            if whole.op == "add" and rest.deps != whole.deps and not rest.deps & ~whole.deps:
                for a, b in (whole.args, whole.args[::-1]):
                    if (b.deps | rest.deps) != whole.deps:
                        return self.node("add", x.dtype, (a, self.integer_sum(b, rest)))
        return self.node("add", x.dtype, (x, y))

    def runtime_int(self, node: Node, low: int, high: int) -> RuntimeInt:
        """The one integer of this node: places that it leads to are equal where their nodes are."""
        key = (node, low, high)
        found = self._runtime.get(key)
        if found is None:
            found = self._runtime[key] = RuntimeInt(node, low, high)
        return found

    def const(self, value: Any, dtype: DType) -> Node:
        return self.node("const", dtype, (), np.asarray(value).astype(dtype.numpy)[()])

    def flag(self, value: bool) -> Node:
        return self.const(value, dtypes.pred)


def _deps(op: str, args: tuple[Node, ...], data: Any) -> int:
    deps = 0
    for arg in args:
        deps |= arg.deps
    if op == "number":
        return affine_deps(data)
    if op == "range":
        return affine_deps(data[0])
    if op == "load":
        return deps | affine_deps(data[1])
    if op == "current":
        return deps | affine_deps(data[1]) | data[2]
    if op == "hole":
        return HOLE
    if op == "fold":
        for node in (*data.inits, *data.bodies, *((data.valid,) if data.valid is not None else ())):
            deps |= node.deps
        for axis in data.bound:
            deps &= ~axis.bit
        if data.scan is not None:
            deps |= data.scan.bit
    return deps


def affine_of(node: Node) -> Affine | None:
    """The affine in a number, range or load."""
    if node.op == "number":
        return node.data
    if node.op == "range":
        return node.data[0]
    return node.data[1] if node.op in ("load", "current") else None


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node needs, run-time integers of its affines and the insides of a fold among them."""
    try:
        return node.below
    except AttributeError:
        node.below = found = _children(node)
        return found


def _children(node: Node) -> tuple[Node, ...]:
    affine = affine_of(node)
    if affine is not None:
        return (*node.args, *runtime_nodes(affine))
    if node.op != "fold":
        return node.args
    fold: Fold = node.data
    valid = () if fold.valid is None else (fold.valid,)
    return (*node.args, *fold.inits, *fold.bodies, *valid)


def with_combiner(node: Node) -> Sequence[Node]:
    """Its children, and what a fold's combiner gives: that loads elements, too, in loops over elements."""
    return (*children(node), *node.data.combined) if node.op == "fold" else children(node)


def reachable(roots: Sequence[Node], below: Callable[[Node], Sequence[Node]] = children) -> list[Node]:
    """The roots and all that is below them, children first. `below`: what counts as a node's children."""
    is_done: dict[Node, bool] = {}  # False: some of what is below it is not yet in the order
    order: list[Node] = []
    stack = [*reversed(roots)]
    while stack:
        node = stack[-1]
        if node in is_done:
            stack.pop()
            if not is_done[node]:
                is_done[node] = True
                order.append(node)
            continue
        needed = below(node)
        if needed:
            is_done[node] = False
            stack += [child for child in reversed(needed) if child not in is_done]
        else:
            stack.pop()
            is_done[node] = True
            order.append(node)
    return order


def identity_name(node: Node) -> str | None:
    """The primitive, for one of add, mul, max, min, and, or, xor on the two holes (narrow floats: in f32)."""
    name, holes = _on_holes(node)
    return name if {place for place, _ in holes} == {0, 1} and len({part for _, part in holes}) == 1 else None


def _on_holes(node: Node) -> tuple[str | None, set[tuple[int, int]]]:
    """Such a primitive on two holes, and their data."""
    args = list(node.args)
    if node.op == "convert" and node.args[0].op in ("add", "mul", "max", "min"):
        node = node.args[0]
        args = [a.args[0] if a.op == "convert" else a for a in node.args]
    is_known = node.op in ("add", "mul", "max", "min", "and", "or", "xor")
    if is_known and [a.op for a in args] == ["hole", "hole"]:
        return node.op, {a.data for a in args}
    return None, set()
