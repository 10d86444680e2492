"""Coalescing: merges neighbouring axes that every index traverses as one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hlokit.cpu.loops.expr import Fold, LoopAxis, Node, affine_of
from hlokit.cpu.loops.nest import Store
from hlokit.cpu.loops.substitution import nodes_of, substituted
from hlokit.forms.affine import Affine


def coalesced(axes: list[LoopAxis], stores: list[Store], serial: int) -> tuple[list[LoopAxis], list[Store], int]:
    """The axes, stores and serial axes, with as few axes as can be."""
    while True:
        nodes = nodes_of(stores)
        pair = _pair(axes, stores, nodes, serial)
        if pair is None:
            return axes, stores, serial
        outer, inner = pair
        one = LoopAxis(inner.name, outer.extent * inner.extent, inner.bit)
        stores = substituted(stores, {outer: Affine.of(0), inner: Affine.of(one)})
        axes = [one if axis is inner else axis for axis in axes if axis is not outer]


def _pair(
    axes: list[LoopAxis], stores: Sequence[Store], nodes: Sequence[Node], serial: int
) -> tuple[LoopAxis, LoopAxis] | None:
    affines = [store.place for store in stores] + [a for node in nodes if (a := affine_of(node)) is not None]
    folds: list[Fold] = [node.data for node in nodes if node.op == "fold"]
    scans = {fold.scan for fold in folds if fold.scan is not None}
    candidates = list(itertools.pairwise(axes))
    for fold in folds:
        candidates += zip(fold.bound, fold.bound[1:])
    for outer, inner in candidates:
        if outer in scans or inner in scans or bool(serial & outer.bit) != bool(serial & inner.bit):
            continue
        if (outer in axes) != (inner in axes):
            continue
        if not all(a.coefficient(outer) == a.coefficient(inner) * inner.extent for a in affines):
            continue
        if all(_bound_together(fold.bound, outer, inner) for fold in folds) and _adjacent(axes, outer, inner):
            return outer, inner
    return None


def _adjacent(axes: Sequence[LoopAxis], outer: LoopAxis, inner: LoopAxis) -> bool:
    return outer not in axes or axes.index(inner) == axes.index(outer) + 1


def _bound_together(bound: Sequence[LoopAxis], outer: LoopAxis, inner: LoopAxis) -> bool:
    if outer not in bound and inner not in bound:
        return True
    return outer in bound and inner in bound and bound.index(inner) == bound.index(outer) + 1
