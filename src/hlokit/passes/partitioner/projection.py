"""Placements and factors: conversion between the parts of dimensions and the parts of factors."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.analysis.factors import Relation
from hlokit.passes.partitioner.placement import Grid, Parts, Placement


def parts_of_factors(grid: Grid, relation: Relation, factors: Sequence[int], along: Parts) -> list[tuple[int, Parts]]:
    """The parts of a dimension, dealt to its factors, major first: the next gets some once one is used up."""
    if len(factors) == 1:
        return [(factors[0], along)] if along else []
    found: list[tuple[int, Parts]] = []
    rest = list(along)
    for number in factors:
        size, count = relation.factors[number].size, 1
        mine: list[int] = []
        while rest and size % (count * grid.sizes[rest[0]]) == 0:
            count *= grid.sizes[rest[0]]
            mine.append(rest.pop(0))
        if mine:
            found.append((number, tuple(mine)))
        if count != size:
            break
    return found


def placement_of_factors(
    grid: Grid, relation: Relation, dimensions: Sequence[Sequence[int]], parts: dict[int, Parts]
) -> Placement:
    """Where an array lies if the factors are divided so: a factor counts while those before it are used up."""
    found: list[Parts] = []
    for factors in dimensions:
        along: Parts = ()
        for number in factors:
            mine = parts.get(number, ())
            along = (*along, *mine)
            if grid.count(mine) != relation.factors[number].size:
                break
        found.append(along)
    return Placement(tuple(found))
