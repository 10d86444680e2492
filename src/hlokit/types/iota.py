"""The iota form of a list of devices: 0, 1, 2, ... reshaped and transposed (HGRP-2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MOST_IDS = 1 << 20
"""Devices that can be listed: more than any machine has."""


def iota_ids(reshape: Sequence[int], transpose: Sequence[int]) -> tuple[int, ...]:
    """The ids in order. An empty `transpose` leaves the dimensions as they are."""
    ids = np.arange(math.prod(reshape)).reshape(reshape)
    return tuple(map(int, ids.transpose(transpose or range(len(reshape))).reshape(-1)))


def merged_iota(sizes: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


Part = tuple[int, int]
"""A dimension of an iota, or a part of one: its size, and how far apart its ids are."""


def iota_parts(reshape: Sequence[int], transpose: Sequence[int]) -> list[Part]:
    """The dimensions of an iota form, in its order."""
    strides = [math.prod(reshape[i + 1 :]) for i in range(len(reshape))]
    return [(reshape[d], strides[d]) for d in transpose or range(len(reshape))]


def cut_parts(parts: Sequence[Part], sizes: Sequence[int]) -> list[list[Part]] | None:
    """The parts, divided among dimensions of these sizes, major first; None if a part's size does not divide so."""
    pending = list(reversed(parts))
    cut: list[list[Part]] = []
    for wanted in sizes:
        taken: list[Part] = []
        while wanted > 1:
            size, stride = pending.pop()
            if size > wanted and size % wanted == 0:
                pending.append((size // wanted, stride))
                size, stride = wanted, stride * (size // wanted)
            if wanted % size:
                return None
            taken.append((size, stride))
            wanted //= size
        cut.append(taken)
    return cut


def iota_of(parts: Sequence[Part]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The reshape and transpose whose dimensions these are."""
    rows = sorted(range(len(parts)), key=lambda i: -parts[i][1])
    position = {i: d for d, i in enumerate(rows)}
    return merged_iota(tuple(parts[i][0] for i in rows), tuple(position[i] for i in range(len(parts))))
