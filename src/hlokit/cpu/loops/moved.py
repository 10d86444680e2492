"""Complex numbers that a kernel only moves: loaded, chosen and stored as one element of 64 bits, not as two parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hlokit.cpu.loops.expr import Buffer, Expressions, Node
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.loops.substitution import nodes_of
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes

_WHOLE = dtypes.u64


class Whole(Buffer):
    """A view of an array of complex numbers: elements of 64 bits, aligned as their parts are."""

    __slots__ = ("_base",)

    def __init__(self, base: Buffer) -> None:
        super().__init__(base.name, _WHOLE, base.size // 2, base.number)
        self._base = base

    @property
    def align(self) -> int:
        return self._base.align

    @property
    def base(self) -> Buffer:
        return self._base


def joined(loops: Loops, vector_bytes: int) -> Loops:
    """The same loops on whole numbers; the loops themselves where anything is done to a part."""
    if loops.parted is not None or loops.folds or loops.spills:
        return loops
    if any(store.buffer.dtype is not dtypes.f32 for store in loops.stores):
        return loops
    join = _Join()
    whole: list[Store] = []
    for real, imag in zip(loops.stores[::2], loops.stores[1::2], strict=False):
        place = _half(real.place, imag.place)
        if place is None or real.buffer is not imag.buffer or real.guards != imag.guards:
            return loops
        node = join.node(real.node, imag.node)
        if node is None:
            return loops
        whole.append(Store(join.buffer(real.buffer), place, node, real.guards))
    if 2 * len(whole) != len(loops.stores) or any(node.op == "fold" for node in nodes_of(whole)):
        return loops
    lanes = max(vector_bytes, loops.lanes * 4 if loops.tile is not None else 0) // _WHOLE.numpy.itemsize
    views = {join.buffer(buffer) for buffer in loops.in_place if buffer.size % 2 == 0}
    return replace(loops, stores=whole, lanes=max(2, min(loops.lanes, lanes)), in_place=loops.in_place | views)


class _Join:
    """Makes nodes of whole numbers of those of their parts."""

    def __init__(self) -> None:
        self._expressions = Expressions()
        self._buffers: dict[Buffer, Whole] = {}
        self._nodes: dict[tuple[Node, Node], Node | None] = {}

    def buffer(self, base: Buffer) -> Whole:
        """The array as one of whole numbers."""
        found = self._buffers.get(base)
        if found is None:
            found = self._buffers[base] = Whole(base)
        return found

    def node(self, real: Node, imag: Node) -> Node | None:
        """The number with these parts, if they are moved alike."""
        key = real, imag
        if key not in self._nodes:
            self._nodes[key] = self._joined(real, imag)
        return self._nodes[key]

    def _joined(self, real: Node, imag: Node) -> Node | None:
        if real.op != imag.op or real.dtype is not dtypes.f32 or imag.dtype is not dtypes.f32:
            return None
        if real.op == "const":
            bits = np.array([real.data, imag.data], np.float32).view(np.uint64)[0]
            return self._expressions.const(bits, _WHOLE)
        if real.op == "load":
            (buffer, first), (other, second) = real.data, imag.data
            place = _half(first, second)
            if place is None or buffer is not other or real.args != imag.args:
                return None
            return self._expressions.node("load", _WHOLE, real.args, (self.buffer(buffer), place))
        if real.op == "select" and real.args[0] is imag.args[0]:
            then, otherwise = (self.node(real.args[k], imag.args[k]) for k in (1, 2))
            if then is not None and otherwise is not None:
                return self._expressions.node("select", _WHOLE, (real.args[0], then, otherwise))
        return None


def _half(real: Affine, imag: Affine) -> Affine | None:
    """The place of a number whose parts lie at these."""
    if imag is not real + 1 or real.constant % 2 or any(c % 2 for _, c in real.terms):
        return None
    return Affine.sum([real.constant // 2, *(Affine.of(key) * (c // 2) for key, c in real.terms)])
