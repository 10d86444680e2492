"""Parameters and results of a padded program, in place of dynamic arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.hlo.values import whole_buffer
from hlokit.types.shape import Shape


@dataclass(frozen=True, slots=True)
class DynamicDimension:
    """One dynamic dimension of a parameter or of the result.

    path       the tuple indices of its array; a parameter's begins with the parameter's number
    dimension  of that array
    size       where its run-time size, an s32 scalar, is: the number of a parameter, or the element of the result
    """

    path: tuple[int, ...]
    dimension: int
    size: int


@dataclass(frozen=True, slots=True)
class DynamicSignature:
    """The call of a padded program: `arguments` makes its arguments, `result` cuts its result.

    parameters   shapes of the original program's parameters
    result       shape of the original program's result; where it has dynamic dimensions, the padded program gives a
                 tuple: the elements of the original result (itself, if it is not a tuple), then one size for each
    sizes_in     the sizes that follow the parameters, in the order of their numbers
    sizes_out    the sizes that follow the result's elements, in order
    """

    parameters: tuple[Shape, ...]
    result_shape: Shape
    sizes_in: tuple[DynamicDimension, ...]
    sizes_out: tuple[DynamicDimension, ...]

    def arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Arrays of the run-time sizes, brought to their bounds with zeros, then all sizes. Tuples are tuples."""
        sizes = [np.array(_at(arguments, d.path).shape[d.dimension], np.int32) for d in self.sizes_in]
        return [*(_whole(s, a) for s, a in zip(self.parameters, arguments, strict=True)), *sizes]

    def result(self, value: Any) -> Any:
        """The original program's result: arrays cut to their run-time sizes."""
        if not self.sizes_out:
            return value
        sizes = {(d.path, d.dimension): int(value[d.size]) for d in self.sizes_out}
        count = len(self.result_shape.elements)
        return _cut(self.result_shape, tuple(value[:count]) if self.result_shape.is_tuple else value[0], sizes, ())


def dynamic_dimensions(shape: Shape, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int]]:
    """(path, dimension) of every dynamic dimension in a shape, in order."""
    for i, element in enumerate(shape.elements if shape.is_tuple else ()):
        if element.is_dynamic:
            yield from dynamic_dimensions(element, (*path, i))
    for dimension, flag in enumerate(shape.dynamic):
        if flag:
            yield path, dimension


def _at(value: Any, path: Sequence[int]) -> Any:
    for i in path:
        value = value[i]
    return np.asarray(value)


def _whole(shape: Shape, value: Any) -> Any:
    if shape.is_tuple:
        return tuple(_whole(s, v) for s, v in zip(shape.elements, value, strict=True))
    return whole_buffer(np.asarray(value), shape.dimensions) if shape.is_dynamic else value


def _cut(shape: Shape, value: Any, sizes: dict[tuple[tuple[int, ...], int], int], path: tuple[int, ...]) -> Any:
    if shape.is_tuple:
        return tuple(_cut(s, v, sizes, (*path, i)) for i, (s, v) in enumerate(zip(shape.elements, value, strict=True)))
    if not shape.is_dynamic:
        return value
    return value[tuple(slice(sizes.get((path, d))) for d in range(shape.rank))]
