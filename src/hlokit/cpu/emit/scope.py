"""Scopes: where code of a kernel can be put, and what is known there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlokit.cpu.loops.expr import Axis


@dataclass(frozen=True)
class Val:
    """An SSA name or a constant's text, and how many lanes it has."""

    name: str
    lanes: int = 1

    @property
    def is_constant(self) -> bool:
        return not self.name.startswith("%")


class Scope:
    """A loop's body, or the function's: where code can be put.

    bits    the axes that it binds (HOLE for the application of a combiner)
    lanes   the number of lanes of the axis that goes by vectors, here or outside; 1 if none does
    mask    the lanes of a last, partial vector that exist, as text; None for all
    """

    def __init__(self, parent: Scope | None, lines: list[str], block: str, bits: int = 0) -> None:
        self.parent = parent
        self.lines = lines
        self.block = block
        self.bits = bits
        self.memo: dict[Any, Any] = {}
        self.axes: dict[Axis, str] = {}
        self.shift = 0  # of the tile axis, whose name is in an outer scope
        self.lane_axis: Axis | None = parent.lane_axis if parent else None
        self.lanes: int = parent.lanes if parent else 1
        self.mask: str | None = parent.mask if parent else None
        self.depth: int = parent.depth + 1 if parent else 0
        self.owner: Scope = self  # whose lines these are
        self.is_branch = False  # only some runs of its owner's lines come here

    def holder(self, deps: int) -> Scope:
        """The innermost scope that binds any of these axes; the function's where there is none. For a branch's lines
        the branch: what comes after it may not have been through it."""
        scope = self
        branches: list[Scope] = []
        while scope.parent is not None and not scope.bits & deps:
            if scope.is_branch:
                branches.append(scope)
            scope = scope.parent
        return next((b for b in branches if b.owner is scope.owner), scope)

    def of_axis(self, axis: Axis) -> Scope:
        scope: Scope | None = self
        while scope is not None:
            if axis in scope.axes:
                return scope
            scope = scope.parent
        raise AssertionError(f"{axis} is read outside its loop")


Body = Callable[[Scope, list[str]], list[str]]
