"""Integers that callers give: Python's or NumPy's, no floats, no text."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from hlokit.errors import ShapeError


def integer(value: Any, label: str, argument: str) -> int:
    """`value` as an int. Raises ShapeError with the rule's label for what is not an integer."""
    try:
        return index(value)
    except TypeError:
        raise ShapeError(label, argument, repr(value), "an integer") from None


def integers(values: Iterable[Any], label: str, argument: str) -> tuple[int, ...]:
    """`values` as ints. Raises ShapeError with the rule's label for what is not a list of integers."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ShapeError(label, argument, repr(values), "a list of integers") from None


def dims(values: Iterable[Any], argument: str) -> tuple[int, ...]:
    """The list of dimensions, sizes or numbers that is this argument of an op's. Raises ShapeError (HINST-6) for what
    is not one."""
    return integers(values, "HINST-6", argument)
