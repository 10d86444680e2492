"""Convolution."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from hlokit.forms.contraction import Contraction, ContractionDimension, ContractionWindow, Move
from hlokit.forms.cost import Cost, moved
from hlokit.hlo.op import REARRANGED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops.contraction import (
    Algorithm,
    agree,
    check_precision,
    check_result_type,
    operands_in_wide,
    product,
    rounded,
)
from hlokit.ops.windows import output_sizes, overlaps
from hlokit.types.attributes import Precision, ResultShape, choice
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.shape import Shape
from hlokit.types.window import Window, WindowDimension, dilated

_BLOCK = 1 << 22
"""Elements of windows laid out side by side at a time: what bounds the memory of a large convolution."""


class Convolution(Op, name="convolution"):
    """The cross-correlation of lhs with the kernel rhs: at each window position a sum over window and input features.

    The result's element type is the one that the instruction's shape states (`preferred_element_type` of the builder).
    """

    window: Window = attr(Window())
    dim_labels: ConvolutionDimensionNumbers = attr(proto="convolution_dimension_numbers")
    feature_group_count: int = attr(1)
    batch_group_count: int = attr(1)
    operand_precision: Precision = attr((), proto="precision_config.operand_precision")
    convolution_kind: Annotated[str, choice("convolution_kind", "unset", "fprop", "dgrad", "wgrad")] = attr(
        "unset", also=("conv_kind",), proto="conv_kind"
    )
    output_shape: ResultShape
    algorithm: Algorithm = attr(default=None, proto="precision_config.algorithm")

    rounding = REARRANGED
    arity = 2
    shape_implied = True
    form = "contraction"
    rules = "CONV"

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check(lhs.is_array and rhs.is_array, "CONV-37", "operands", (lhs, rhs), "arrays")
        check(lhs.rank == rhs.rank, "CONV-37", "ranks", (lhs.rank, rhs.rank), "equal ones")
        check_result_type(lhs.dtype, self.output_shape.dtype)
        check_result_type(rhs.dtype, self.output_shape.dtype)
        check_precision(self.operand_precision, 2)
        self._check_numbers(lhs.rank)
        self._check_window(rhs)
        self._check_groups(lhs, rhs)
        numbers = self.dim_labels
        base = [lhs.dimensions[d] for d in numbers.input_spatial_dimensions]
        sizes, flags = [0] * lhs.rank, [False] * lhs.rank
        batch = lhs.dimensions[numbers.input_batch_dimension]
        sizes[numbers.output_batch_dimension] = batch // self.batch_group_count if batch > 0 else batch
        flags[numbers.output_batch_dimension] = lhs.dynamic[numbers.input_batch_dimension]
        sizes[numbers.output_feature_dimension] = rhs.dimensions[numbers.kernel_output_feature_dimension]
        spatial = zip(numbers.lhs[2:], numbers.rhs[2:], numbers.output[2:])
        for (i, k, out), size in zip(spatial, output_sizes(base, self.window), strict=True):
            sizes[out], flags[out] = size, lhs.dynamic[i] or rhs.dynamic[k]
        return Shape.array(self.output_shape.dtype, sizes, flags)

    def _check_numbers(self, rank: int) -> None:
        numbers, count = self.dim_labels, len(self.window.dimensions)
        check(rank == count + 2, "CONV-2", "rank", rank, f"{count + 2}: two more than the window's")
        for name, dims in (("lhs", numbers.lhs), ("rhs", numbers.rhs), ("output", numbers.output)):
            if sorted(dims) != list(range(rank)):
                check(False, "CONV-3", f"{name} dimension numbers", dims, f"a permutation of 0..{rank - 1}")

    def _check_window(self, rhs: Shape) -> None:
        for d, k in zip(self.window.dimensions, self.dim_labels.kernel_spatial_dimensions, strict=True):
            size = rhs.dimensions[k]
            check(agree(d.size, size), "CONV-23", "window size", d.size, size)
            numbers = (d.size, d.stride, d.base_dilation, d.window_dilation)
            check(min(numbers) > 0, "CONV-11", "window size, stride and dilations", numbers, "> 0")

    def _check_groups(self, lhs: Shape, rhs: Shape) -> None:
        features, batches = self.feature_group_count, self.batch_group_count
        valid = features >= 1 and batches >= 1 and 1 in (features, batches)
        check(valid, "CONV-15", "group counts", (features, batches), ">= 1, and one of them 1")
        numbers = self.dim_labels
        channels, batch = lhs.dimensions[numbers.input_feature_dimension], lhs.dimensions[numbers.input_batch_dimension]
        inputs = rhs.dimensions[numbers.kernel_input_feature_dimension]
        outputs = rhs.dimensions[numbers.kernel_output_feature_dimension]
        if channels >= 0 and inputs >= 0:
            check(channels == inputs * features, "CONV-16", "lhs features", channels, f"{features} x {inputs}")
        if outputs >= 0:
            check(outputs % features == 0, "CONV-17", "output features", outputs, f"a multiple of {features}")
            check(outputs % batches == 0, "CONV-19", "output features", outputs, f"a multiple of {batches}")
        if batch >= 0:
            check(batch % batches == 0, "CONV-18", "lhs batch", batch, f"a multiple of {batches}")
        is_dynamic = rhs.dynamic[numbers.kernel_output_feature_dimension]
        check(not is_dynamic, "DYN-13", "rhs", rhs, "a static output feature dimension")

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Products with padding and with the holes of dilation are not counted."""
        lhs, rhs = (operand.dimensions for operand in operands)
        numbers, output, places = self.dim_labels, result.dimensions, 1
        dimensions = zip(self.window.dimensions, numbers.input_spatial_dimensions, numbers.output_spatial_dimensions)
        for window, base, out in dimensions:
            places *= _products(window, lhs[base], output[out])
        features = rhs[numbers.kernel_input_feature_dimension] * output[numbers.output_feature_dimension]
        return moved(operands, result) + Cost(2 * places * features * output[numbers.output_batch_dimension])

    def reference(self, lhs: Array, rhs: Array) -> Array:
        numbers, element_type = self.dim_labels, self.output_shape.dtype
        lhs, rhs = operands_in_wide(lhs, rhs, element_type)
        lhs, rhs = lhs.transpose(numbers.lhs), rhs.transpose(numbers.rhs)
        result = rounded(self._convolve(lhs, rhs), element_type)
        return result.transpose(np.argsort(numbers.output))

    def contraction(self, operands: Sequence[Shape]) -> Contraction:
        lhs, rhs = (shape.dimensions for shape in operands)
        numbers, groups = self.dim_labels, self.feature_group_count * self.batch_group_count
        (batch, feature, *places), (outputs, inputs, *taps) = numbers.lhs, numbers.rhs
        out_batch, out_feature, *out_places = numbers.output
        batches, features = lhs[batch] // self.batch_group_count, rhs[outputs] // groups
        channels = lhs[feature] // self.feature_group_count
        grouped = Move(batch, batches) if self.batch_group_count > 1 else Move(feature, channels)
        dimensions = [
            ContractionDimension(groups, grouped, Move(outputs, features), Move(out_feature, features)),
            ContractionDimension(batches, Move(batch), None, Move(out_batch)),
            ContractionDimension(features, None, Move(outputs), Move(out_feature)),
            ContractionDimension(channels, Move(feature), Move(inputs)),
        ]
        windows: list[ContractionWindow] = []
        base = [lhs[place] for place in places]
        results = output_sizes(base, self.window)
        for w, place, tap, out, size in zip(self.window.dimensions, places, taps, out_places, results, strict=True):
            dimensions.append(ContractionDimension(size, Move(place, w.stride), None, Move(out)))
            back = -1 if w.reversal else 1
            dimensions.append(ContractionDimension(rhs[tap], Move(place, w.window_dilation), Move(tap, back)))
            windows.append(ContractionWindow(place, w.padding_low, w.base_dilation))
        return Contraction(tuple(dimensions), tuple(windows))

    def _convolve(self, lhs: Array, rhs: Array) -> Array:
        """[batch, feature, spatial...] with [output, input, spatial...], either in groups (CONV-20, CONV-22)."""
        groups = self.feature_group_count * self.batch_group_count
        inputs = min(rhs.shape[1], lhs.shape[1] // self.feature_group_count)
        rhs = rhs[:, :inputs, *(slice(None, None, -1 if d.reversal else 1) for d in self.window.dimensions)]
        kernels = rhs.reshape(groups, rhs.shape[0] // groups, math.prod(rhs.shape[1:])).swapaxes(1, 2)
        if self.batch_group_count > 1:
            lhs = lhs.reshape(groups, lhs.shape[0] // groups, *lhs.shape[1:])
        else:
            lhs = lhs.reshape(lhs.shape[0], groups, lhs.shape[1] // groups, *lhs.shape[2:]).swapaxes(0, 1)
        lhs = lhs[:, :, :inputs]
        windows = [replace(d, size=n) for d, n in zip(self.window.dimensions, rhs.shape[2:], strict=True)]
        batch, spatial = lhs.shape[1], output_sizes(lhs.shape[3:], Window(tuple(windows)))
        result = np.zeros((groups, batch, *spatial, kernels.shape[2]), lhs.dtype)
        if result.size and kernels.size:
            for block in _blocks(result.shape[1:-1], groups * kernels.shape[1]):
                here = result[:, *block]
                places = [range(s.start, s.start + n) for s, n in zip(block[1:], here.shape[2:], strict=False)]
                rows = _rows(lhs[:, block[0]], windows, places)
                here[...] = product(rows.reshape(groups, -1, kernels.shape[1]), kernels).reshape(here.shape)
        order = (1, 0, result.ndim - 1, *range(2, result.ndim - 1))
        return result.transpose(order).reshape(batch, groups * kernels.shape[2], *spatial)


def _rows(lhs: Array, windows: Sequence[WindowDimension], positions: Sequence[range]) -> Array:
    """The elements under the window: [group, batch, position..., feature, offset...], zeros in padding and holes.

    Filled offset by offset, or position by position where those are fewer.
    """
    sizes, extents, base = [len(r) for r in positions], [d.size for d in windows], lhs.shape[3:]
    rows = np.zeros((*lhs.shape[:2], *sizes, lhs.shape[2], *extents), lhs.dtype)
    starts = [r.start * d.stride for d, r in zip(windows, positions, strict=True)]
    shifted = [replace(d, padding_low=d.padding_low - start) for d, start in zip(windows, starts, strict=True)]
    if math.prod(extents) <= math.prod(sizes):
        for met in itertools.product(*map(overlaps, shifted, base, sizes)):
            offset, places, elements = zip(*met) if met else ((), (), ())
            rows[:, :, *places, :, *offset] = np.moveaxis(lhs[:, :, :, *elements], 2, -1)
        return rows
    for met in itertools.product(*map(overlaps, map(_turned, shifted, sizes), base, extents)):
        place, offsets, elements = zip(*met)
        rows[:, :, *place, :, *offsets] = lhs[:, :, :, *elements]
    return rows


def _turned(d: WindowDimension, count: int) -> WindowDimension:
    """The window whose offsets are the `count` positions of `d`, and whose positions are the offsets within `d`."""
    return WindowDimension(count, d.window_dilation, d.padding_low, 0, d.base_dilation, d.stride)


def _blocks(sizes: tuple[int, ...], cost: int) -> Iterator[tuple[slice, ...]]:
    """Cuts an index space into boxes of at most _BLOCK elements, or one index, at `cost` elements an index."""
    limits: list[int] = []
    room = max(1, _BLOCK // max(1, cost))
    for size in reversed(sizes):
        limits.append(max(1, min(size, room)))
        room //= limits[-1]
    limits.reverse()
    for corner in np.ndindex(*(-(-size // limit) for size, limit in zip(sizes, limits, strict=True))):
        yield tuple(slice(i * limit, (i + 1) * limit) for i, limit in zip(corner, limits, strict=True))


def _products(window: WindowDimension, base: int, output: int) -> int:
    """The number of (window element, output position) pairs of one dimension that meet an element of the base.

    Window element k and output position o meet place k * w + o * s - low. With dilation d that must be a multiple of d:
    for each remainder of k by d there is at most one of o, and both go on in steps.
    """
    w, s, d = window.window_dilation, window.stride, window.base_dilation
    end = window.padding_low + dilated(base, d)
    step_k, step_o = d // math.gcd(d, w), d // math.gcd(d, s)
    count = 0
    for k in range(min(step_k, window.size)):
        short = (window.padding_low - k * w) % d  # what o * s must leave when divided by d
        if short % math.gcd(d, s):
            continue
        o = short // math.gcd(d, s) * pow(s // math.gcd(d, s), -1, step_o) % step_o
        sizes = len(range(k, window.size, step_k)), len(range(o, output, step_o))
        low, high = (_pairs_below(x - k * w - o * s, step_k * w, step_o * s, *sizes) for x in (window.padding_low, end))
        count += high - low
    return count


def _pairs_below(bound: int, u: int, v: int, count_u: int, count_v: int) -> int:
    """The number of i < count_u and j < count_v with u * i + v * j < bound."""
    end = max(0, min(count_u, -(-bound // u)))
    full = max(0, min(end, -(-(bound - (count_v - 1) * v) // u)))  # for i below this, every j
    return full * count_v + _floors(end - full, u, bound - u * (end - 1) + v - 1, v)


def _floors(count: int, a: int, b: int, m: int) -> int:
    """The sum of (a * i + b) // m for i < count, in steps of Euclid's algorithm."""
    total = 0
    while count > 0:
        total += a // m * (count * (count - 1) // 2) + b // m * count
        a, b = a % m, b % m
        count, b = divmod(a * count + b, m)
        a, m = m, a
    return total
