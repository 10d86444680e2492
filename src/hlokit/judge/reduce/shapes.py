"""A module with different sizes: every dimension of one size is changed to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_sequence
from hlokit.judge.reduce.case import fitted
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import Window

_INDICES = ("dimension", "dims", "permutation", "index", "number", "channel", "tuple", "sharding", "_dim")
"""Parts of the names of attributes whose integers are numbers of dimensions and the like, and no sizes."""


def resized(module: HloModule, sizes: Mapping[int, int]) -> HloModule:
    """The module with other dimensions, sizes in attributes and constants; layouts become the default ones.

    Every shape is inferred again. Raises HlokitError where that is not possible.
    """
    new = HloModule(module.name)
    new.replica_count, new.num_partitions = module.replica_count, module.num_partitions
    copies: dict[Computation, Computation] = {}
    for computation in module.computations():
        copy = new.add_computation(Computation(computation.name), entry=computation is module.entry)
        copy.execution_thread = computation.execution_thread
        values: dict[Instruction, Instruction] = {}
        for i in computation.post_order():
            called = [copies[c] for c in i.called]
            value = copy.add(with_sizes(i.op, sizes), [values[o] for o in i.operands], called, name=i.name)
            if i.extra is not None:
                before = [values[p] for p in i.extra.control_predecessors]
                value.extra = replace(i.extra, control_predecessors=before)
            values[i] = value
        copy.set_root(values[computation.root])
        copies[computation] = copy
    return new


def with_sizes(op: Op, sizes: Mapping[int, int]) -> Op:
    changes = {a.name: _value(a.name, getattr(op, a.name), sizes) for a in op.attributes}
    changes = {name: value for name, value in changes.items() if value is not getattr(op, name)}
    return op.replace(**changes) if changes else op


def _value(name: str, value: Any, sizes: Mapping[int, int]) -> Any:
    if isinstance(value, Shape):
        return _shape(value, sizes)
    if isinstance(value, Literal):
        shape = _shape(value.shape, sizes)
        return value if shape is value.shape else _literal(value, shape)
    if isinstance(value, Window):
        return replace(value, dimensions=tuple(replace(d, size=sizes.get(d.size, d.size)) for d in value.dimensions))
    if isinstance(value, (bool, str, ConvolutionDimensionNumbers)) or not sizes:
        return value
    if name in _SIZES or not any(part in name for part in _INDICES):
        return _integers(value, sizes)
    return value


_SIZES = ("slice_sizes", "dynamic_slice_sizes", "slice", "feature_group_count", "batch_group_count")


def _integers(value: Any, sizes: Mapping[int, int]) -> object:
    if is_sequence(value):
        return tuple([_integers(v, sizes) for v in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.get(value, value)
    return cast("object", value)


def _shape(shape: Shape, sizes: Mapping[int, int]) -> Shape:
    if shape.is_tuple:
        return Shape.tuple([_shape(e, sizes) for e in shape.elements])
    if not shape.is_array:
        return shape
    return shape.logical.with_dimensions([sizes.get(n, n) for n in shape.dimensions], shape.dynamic)


def _literal(literal: Literal, shape: Shape) -> Literal:
    if isinstance(literal.value, tuple):
        return Literal(shape, tuple(map(_literal, literal.value, shape.elements)))
    if literal.value is None:
        return Literal(shape, np.zeros(shape.dimensions, shape.dtype.numpy))
    return Literal(shape, np.ascontiguousarray(fitted(literal.value, shape)))
