"""The index space of a contraction with windows: strides of sums over taps and features."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, arithmetic
from hlokit.cpu.kernels.contraction.denormals import PhaseFunction, may_flush
from hlokit.cpu.kernels.contraction.elements import memory_of
from hlokit.cpu.kernels.contraction.space import row_major_strides, stride_of
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Function, Index, Loop, Value
from hlokit.cpu.target import Target
from hlokit.forms.contraction import Contraction, ContractionDimension, Role
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class WindowAxis:
    """A dimension along which outputs lie (batch, spatial), taps lie (features), or both.

    Output o meets with tap k the place o * stride + k * tap - low of the input, whose elements lie at each `spread`-th
    place: element p / spread, if that is whole and inside; else zeros.

    outputs    number of outputs; in the result's dimension `dim` they lie at first + o * step (dim -1: in none)
    lhs, rhs   elements from one input to the next, from one tap to the next
    together   neighbouring taps, inputs that lie side by side, whose products a vector of sums adds to its lanes
    """

    outputs: int
    inputs: int
    taps: int
    lhs: int
    rhs: int = 0
    stride: int = 1
    tap: int = 1
    low: int = 0
    spread: int = 1
    dim: int = -1
    first: int = 0
    step: int = 1
    together: int = 1

    @property
    def is_inside(self) -> bool:
        """No tap of any output meets padding or a hole."""
        last = (self.outputs - 1) * self.stride + (self.taps - 1) * self.tap - self.low
        return self.spread == 1 and self.low <= 0 and last < self.inputs


@dataclass(frozen=True)
class CutAxis:
    """An axis of which a chunk takes a part.

    taps   those that are summed before others are laid out
    block  what a chunk takes of the outputs
    """

    axis: WindowAxis
    taps: int
    block: int

    @cached_property
    def step(self) -> int:
        """Inputs from one place that is laid out to the next: all that no output meets are left out."""
        a = self.axis
        return math.gcd(a.stride if a.outputs > 1 else 0, a.tap if self.taps > 1 else 0) or 1


@dataclass(frozen=True)
class Grouped:
    """A dimension that picks operands: its size, and its stride, in elements, in lhs and rhs."""

    size: int
    lhs: int
    rhs: int


@dataclass(frozen=True)
class WindowSpace:
    """A sum over features and taps for each group, batch, output feature and place.

    group      feature groups or batch groups
    output     the output features of a group
    axes       batch, feature, spatial...
    rhs_start  rhs's element at all zeros (reversed taps run backwards)
    dimensions, feature_dim  of the result
    arithmetic of the sums: one product after the other
    shared     0: all output features of a group have the same inputs; else so many neighbours have
    """

    group: Grouped
    output: Grouped
    axes: tuple[WindowAxis, ...]
    rhs_start: int
    dimensions: tuple[int, ...]
    feature_dim: int
    operand: DType
    result: DType
    arithmetic: Arithmetic
    shared: int = 0

    @property
    def steps(self) -> int:
        """Products in one sum."""
        return math.prod(a.taps for a in self.axes)

    @property
    def together(self) -> int:
        """Lanes of a sum, which are added up at its end; 1: lanes are output features."""
        return math.prod(a.together for a in self.axes)

    @property
    def places(self) -> int:
        """Sums for one output feature."""
        return math.prod(a.outputs for a in self.axes)

    @property
    def elements(self) -> int:
        return self.group.size * self.output.size * self.places


def window_space(contraction: Contraction, operands: Sequence[Shape], result: Shape, target: Target) -> WindowSpace:
    """The space of a contraction with windows on these dense row-major arrays.

    It has one batch dimension, which groups, and one of role right; each dimension of lhs is met by a left one, a
    summed one, or both.
    """
    lhs, rhs = operands
    left, right = row_major_strides(lhs.dimensions), row_major_strides(rhs.dimensions)
    (group,), (output,) = contraction.having("batch"), contraction.having("right")
    windows = {w.dimension: w for w in contraction.windows or ()}
    met: dict[int, dict[Role, ContractionDimension]] = {}
    for d in contraction.dimensions:
        if d.lhs is not None and d is not group:
            met.setdefault(d.lhs.dimension, {})[d.role] = d
    start, axes = 0, list[WindowAxis]()
    for dimension, roles in met.items():
        outputs, taps, window = roles.get("left", _ONE), roles.get("summed", _ONE), windows.get(dimension)
        tap_stride = stride_of(taps.rhs, right)
        start += max(0, -tap_stride) * (taps.size - 1)
        axes.append(
            WindowAxis(
                outputs.size,
                outputs.size * taps.size if window is None else lhs.dimensions[dimension],
                taps.size,
                left[dimension],
                tap_stride,
                stride=outputs.lhs.step if outputs.lhs else 1,
                tap=taps.lhs.step if taps.lhs else 1,
                low=window.low if window else 0,
                spread=window.base_dilation if window else 1,
                dim=outputs.result.dimension if outputs.result else -1,
            )
        )
    assert output.result is not None
    return WindowSpace(
        Grouped(group.size, stride_of(group.lhs, left), stride_of(group.rhs, right)),
        Grouped(output.size, 0, stride_of(output.rhs, right)),
        tuple(axes),
        start,
        result.dimensions,
        output.result.dimension,
        lhs.dtype,
        result.dtype,
        arithmetic(lhs.dtype, result.dtype, target, is_grouped=False),
    )


_ONE = ContractionDimension(1)


def by_features(s: WindowSpace) -> WindowSpace:
    """Groups as a dimension of output features of which each has inputs of its own: what vectors run along."""
    outputs = Grouped(s.group.size * s.output.size, s.group.lhs, s.output.rhs)
    return replace(s, group=Grouped(1, 0, 0), output=outputs, shared=s.output.size)


def along_inputs(s: WindowSpace, lanes: int) -> WindowSpace | None:
    """Sums in vectors along neighbouring inputs, if outputs have too few features to fill a vector."""
    if s.output.size * costs.FEW_FEATURES > lanes or s.steps < costs.LEAST_ALONG * lanes // 2:
        return None
    for number, a in enumerate(s.axes):
        is_whole = a.outputs == 1 and a.taps % lanes == 0 and a.is_inside
        if a.lhs == 1 and a.tap == 1 and (is_whole or (a.taps >= lanes and _may_keep_weights(s, a.rhs))):
            return replace(s, axes=(*s.axes[:number], replace(a, together=lanes), *s.axes[number + 1 :]))
    return None


def _may_keep_weights(s: WindowSpace, stride: int) -> bool:
    """Whether vectors of rhs along what has this stride can be read where they lie."""
    return stride == 1 and memory_of(s.operand) is s.arithmetic.total and not s.shared


def may_keep_weights(s: WindowSpace, target: Target, tiles: int | None = None) -> bool:
    """Whether tiles can read the weights, vectors of which lie along output features or along taps, where they are.

    `tiles`: how many read them, if that is known.
    """
    along = [a.rhs for a in s.axes if a.together > 1]
    if along:
        return _may_keep_weights(s, along[0])
    row = min((abs(a.rhs) for a in s.axes if a.taps > 1), default=0) * s.arithmetic.total.bytes
    longest = costs.KEPT_WEIGHTS_OF.get(target.cpu, costs.KEPT_WEIGHTS)
    are_few = tiles is not None and tiles <= costs.KEPT_TILES
    return (row <= longest or are_few) and _may_keep_weights(s, s.output.rhs)


def without_holes(s: WindowSpace) -> list[WindowSpace]:
    """The convolution in parts whose inputs have no holes: the outputs that meet the same taps, each part by itself."""
    parts = [s]
    for number, axis in enumerate(s.axes):
        if axis.spread > 1:
            parts = [part for whole in parts for part in _residues(whole, number)]
    return parts


def _residues(s: WindowSpace, number: int) -> Iterator[WindowSpace]:
    """One axis's outputs by what they leave over: o = every * q + rest meets the taps k = first + between * j only."""
    a = s.axes[number]
    every = a.spread // math.gcd(a.stride, a.spread)
    between = a.spread // math.gcd(a.tap, a.spread)
    for rest in range(min(every, a.outputs)):
        shifts = ((k, rest * a.stride + k * a.tap - a.low) for k in range(min(between, a.taps)))
        first, shift = next(((k, shift) for k, shift in shifts if shift % a.spread == 0), (0, None))
        axis = replace(
            a,
            outputs=-(-(a.outputs - rest) // every),
            taps=0 if shift is None else -(-(a.taps - first) // between),
            rhs=a.rhs * between,
            stride=every * a.stride // a.spread,
            tap=between * a.tap // a.spread,
            low=0 if shift is None else -shift // a.spread,
            spread=1,
            first=a.first + rest * a.step,
            step=every * a.step,
        )
        axes = (*s.axes[:number], axis, *s.axes[number + 1 :])
        yield replace(s, axes=axes, rhs_start=s.rhs_start + first * a.rhs)


def phase_function(call: Call) -> PhaseFunction:
    """The function of a phase, whose table it does not change."""
    return PhaseFunction(call.target, "ptr noalias readonly", flushes=may_flush(call))


@contextmanager
def counted(fn: Function, count: int, carries: Sequence[Value] = (), by: int = 1) -> Generator[Loop]:
    """A loop over indices below `count`, or, for one alone, what is written inside as it is."""
    if count > 1:
        with fn.loop(0, count, by, carries) as loop:
            yield loop
        return
    loop = Loop(fn.index(0), list(carries))
    yield loop
    loop.results = loop.next


@contextmanager
def each(fn: Function, count: int) -> Generator[Index]:
    """Indices below `count`: a loop, unless there is but one."""
    with counted(fn, count) as loop:
        yield loop.index


def shared_out(fn: Function, count: int, chunks: int) -> tuple[Index, Index]:
    """The numbers of those of `count` things, from .. to, that belong to the chunks `begin` to `end` of a phase."""
    begin, end = (fn.index_argument(name) * count // chunks for name in ("begin", "end"))
    return begin, end


def both(condition: Value | None, other: Value) -> Value:
    """Whether both hold; None is a condition that always does."""
    return other if condition is None else condition & other
