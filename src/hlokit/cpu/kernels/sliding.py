"""A convolution without dimension numbers: strides of sums over taps and features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from hlokit.cpu.kernels.elements import sum_type
from hlokit.cpu.llvm import Function, Module
from hlokit.ops.convolution import Convolution
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Spatial:
    """One spatial dimension. Output o meets with tap k the place o * stride + k * tap - low of the spread input.

    The input has an element at each `spread`-th place: element p / spread. Strides `lhs`, `rhs`, `out` in elements.
    """

    inputs: int
    outputs: int
    taps: int
    stride: int
    tap: int
    low: int
    spread: int
    lhs: int
    rhs: int
    out: int

    @property
    def is_plain(self) -> bool:
        """Output o meets nothing but element o."""
        return self.taps == self.stride == self.spread == 1 and self.low == 0 and self.inputs == self.outputs


@dataclass(frozen=True)
class Role:
    """A dimension that is not spatial: its size, and its stride, in elements, in each of the arrays that have it."""

    size: int
    lhs: int = 0
    rhs: int = 0
    out: int = 0


@dataclass(frozen=True)
class Sliding:
    """out[group, batch, output, o] = sum over feature and k of lhs[group, batch, feature, place] rhs[group, output, feature, k].

    The groups are those of features or of the batch. rhs_start: rhs's element at all zeros (reversed taps run backwards).
    """

    group: Role
    batch: Role
    feature: Role
    output: Role
    spatial: tuple[Spatial, ...]
    rhs_start: int
    operand: DType
    result: DType
    wide: DType

    @property
    def taps(self) -> int:
        return math.prod(s.taps for s in self.spatial)

    @property
    def places(self) -> int:
        """Output places of one image."""
        return math.prod(s.outputs for s in self.spatial)

    @property
    def steps(self) -> int:
        """Products in one sum."""
        return self.taps * self.feature.size

    @property
    def elements(self) -> int:
        return self.group.size * self.batch.size * self.output.size * self.places


def sliding(op: Convolution, lhs: Shape, rhs: Shape, out: Shape) -> Sliding:
    """The convolution of these dense row-major arrays."""
    numbers = op.dim_labels
    left, right, result = (_strides(s.dimensions) for s in (lhs, rhs, out))
    batch, feature = (lhs.dimensions[d] for d in numbers.lhs[:2])
    outputs = rhs.dimensions[numbers.rhs[0]]
    groups = op.feature_group_count * op.batch_group_count
    by_batch = op.batch_group_count > 1
    batch_stride, feature_stride = left[numbers.lhs[0]], left[numbers.lhs[1]]
    rows, inputs, columns = (
        batch // op.batch_group_count,
        feature // op.feature_group_count,
        outputs // groups,
    )
    start, spatial = 0, list[Spatial]()
    places = zip(op.window.dimensions, numbers.lhs[2:], numbers.rhs[2:], numbers.output[2:], strict=True)
    for window, i, k, o in places:
        taps = rhs.dimensions[k]
        if window.reversal:
            start += (taps - 1) * right[k]
        spatial.append(
            Spatial(
                lhs.dimensions[i],
                out.dimensions[o],
                taps,
                window.stride,
                window.window_dilation,
                window.padding_low,
                window.base_dilation,
                left[i],
                -right[k] if window.reversal else right[k],
                result[o],
            )
        )
    return Sliding(
        Role(
            groups,
            rows * batch_stride if by_batch else inputs * feature_stride,
            columns * right[numbers.rhs[0]],
            columns * result[numbers.output[1]],
        ),
        Role(rows, batch_stride, 0, result[numbers.output[0]]),
        Role(inputs, feature_stride, right[numbers.rhs[1]]),
        Role(columns, 0, right[numbers.rhs[0]], result[numbers.output[1]]),
        tuple(spatial),
        start,
        lhs.dtype,
        out.dtype,
        sum_type(lhs.dtype, out.dtype),
    )


def _strides(dimensions: Sequence[int]) -> list[int]:
    """Of a row-major array; sizes of 0 count as 1."""
    strides, total = list[int](), 1
    for size in reversed(dimensions):
        strides.append(total)
        total *= max(1, size)
    return strides[::-1]


def kernel_function(pointers: int) -> tuple[Function, list[str]]:
    """A kernel in the writing, and the first pointers of its table."""
    f = Function("", [("ptr noalias readonly", "table"), ("i64", "begin"), ("i64", "end")], attributes="nounwind")
    places = [f.let(f"getelementptr ptr, ptr %table, i64 {i}") for i in range(pointers)]
    return f, [f.let(f"load ptr, ptr {place}") for place in places]


def finished(f: Function, module: Module, prefix: str) -> str:
    """Ends the kernel and adds it, named by what it does: equal ones are the same. Gives the name."""
    f.do("ret void")
    f.name = f"{prefix}_{sha256(f.text().encode()).hexdigest()[:16]}"
    module.add(f, exported=True)
    return f.name
