"""Groups of devices that take part in a collective (GRP rules, HGRP rules)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.integers import integers

MOST_IDS = 1 << 20
"""Devices that can be listed: more than any machine has."""


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Explicit groups, or the iota form `[G,S]<=[reshape]T(transpose)` (GRP-9); the form is kept for printing (HGRP-5).

    `groups` empty (and no iota) means one group of all participants (GRP-1).
    """

    groups: tuple[tuple[int, ...], ...] = ()
    iota_dimensions: tuple[int, int] | None = None
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()

    @staticmethod
    def explicit(groups: Iterable[Iterable[int]]) -> ReplicaGroups:
        try:
            return ReplicaGroups(tuple(integers(group, "GRP-2", "replica group") for group in groups))
        except TypeError:
            raise ShapeError("GRP-2", "replica groups", repr(groups), "lists of integers") from None

    @staticmethod
    def iota(count: int, size: int, reshape: Iterable[int], transpose: Iterable[int] | None = None) -> ReplicaGroups:
        """The iota form. Raises ShapeError (HGRP-3) unless sizes are positive and their products agree."""
        sizes = tuple(reshape)
        order = tuple(transpose) if transpose is not None else tuple(range(len(sizes)))
        if min((count, size, *sizes)) < 1 or math.prod(sizes) != count * size:
            raise ShapeError("HGRP-3", "iota replica groups", (count, size, *sizes), "positive sizes of equal product")
        if sorted(order) != list(range(len(sizes))):
            raise ShapeError("HGRP-3", "iota transpose", order, f"a permutation of 0..{len(sizes) - 1}")
        return ReplicaGroups((), (count, size), sizes, order)

    def expand(self, participants: int) -> tuple[tuple[int, ...], ...]:
        """The groups as lists of ids; `participants` is what an empty list stands for (GRP-1).

        ShapeError (GRP-2) for more ids than any machine has devices: a short text may say so many.
        """
        if self.iota_dimensions is not None:
            if math.prod(self.reshape) > MOST_IDS:
                raise ShapeError("GRP-2", "replica groups", str(self), f"at most {MOST_IDS} ids")
            ids = np.arange(math.prod(self.reshape)).reshape(self.reshape).transpose(self.transpose)
            return tuple(tuple(int(i) for i in row) for row in ids.reshape(self.iota_dimensions))
        return self.groups or (tuple(range(participants)),)

    @property
    def group_size(self) -> int | None:
        """The size of the groups: of the first; None for the empty form."""
        if self.iota_dimensions is not None:
            return self.iota_dimensions[1]
        return len(self.groups[0]) if self.groups else None

    def __str__(self) -> str:
        if self.iota_dimensions is None:
            return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in self.groups) + "}"
        text = f"[{self.iota_dimensions[0]},{self.iota_dimensions[1]}]<=[{','.join(map(str, self.reshape))}]"
        if self.transpose != tuple(range(len(self.reshape))):
            text += f"T({','.join(map(str, self.transpose))})"
        return text


def merged_iota(sizes: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shortest reshape and transpose with the same elements: as XLA prints iota forms.

    Drops dimensions of size 1 and joins neighbours that the transpose leaves neighbours.
    """
    large = {d: i for i, d in enumerate(d for d, size in enumerate(sizes) if size != 1)}
    sizes = tuple(sizes[d] for d in large)
    order = tuple(large[d] for d in order if d in large)
    groups: list[list[int]] = []
    for dimension in order:
        if groups and dimension == groups[-1][-1] + 1:
            groups[-1].append(dimension)
        else:
            groups.append([dimension])
    if not groups:
        return (1,), (0,)
    rank = {group[0]: i for i, group in enumerate(sorted(groups))}
    merged = tuple(math.prod(sizes[d] for d in group) for group in sorted(groups))
    return merged, tuple(rank[group[0]] for group in groups)
