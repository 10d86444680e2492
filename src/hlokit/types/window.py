"""Windows (convolution, reduce-window, select-and-scatter), padding and convolution dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.errors import ShapeError


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window (WIN-1)."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    def output_size(self, base: int) -> int:
        """How many positions the window takes on `base` elements (WIN-4, CONV-4)."""
        padded = self.padding_low + dilated(base, self.base_dilation) + self.padding_high
        window = dilated(self.size, self.window_dilation)
        return 0 if padded <= 0 or window > padded else (padded - window) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Window:
    """One WindowDimension per windowed dimension."""

    dimensions: tuple[WindowDimension, ...] = ()

    @staticmethod
    def make(
        sizes: Sequence[int],
        strides: Sequence[int] = (),
        padding: Sequence[tuple[int, int]] = (),
        base_dilations: Sequence[int] = (),
        window_dilations: Sequence[int] = (),
        reversal: Sequence[bool] = (),
    ) -> Window:
        """A window from one list per field; each list is empty (defaults) or as long as `sizes` (WIN-3)."""
        lists = {
            "strides": strides,
            "padding": padding,
            "base_dilations": base_dilations,
            "window_dilations": window_dilations,
            "reversal": reversal,
        }
        for name, values in lists.items():
            if len(values) not in (0, len(sizes)):
                raise ShapeError("WIN-3", f"window {name}", tuple(values), f"no or {len(sizes)} entries")
        return Window(
            tuple(
                WindowDimension(
                    int(size),
                    int(strides[i]) if strides else 1,
                    int(padding[i][0]) if padding else 0,
                    int(padding[i][1]) if padding else 0,
                    int(base_dilations[i]) if base_dilations else 1,
                    int(window_dilations[i]) if window_dilations else 1,
                    bool(reversal[i]) if reversal else False,
                )
                for i, size in enumerate(sizes)
            )
        )

    def check(self) -> None:
        """WIN-2: sizes, strides and dilations are positive."""
        for i, d in enumerate(self.dimensions):
            if d.size > 0 and d.stride > 0 and d.base_dilation > 0 and d.window_dilation > 0:
                continue
            for name in ("size", "stride", "base_dilation", "window_dilation"):
                if getattr(d, name) <= 0:
                    raise ShapeError("WIN-2", f"window {name} of dimension {i}", getattr(d, name), "> 0")


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements with dilation-1 holes between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def same_padding(base: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """MakePadding(SAME): (low, high) per dimension so that out = ceil(in / stride) (WIN-5, WIN-6, WIN-7)."""
    if not len(base) == len(window) == len(strides):
        raise ShapeError("WIN-6", "padding lists", (len(base), len(window), len(strides)), "equal lengths")
    padding: list[tuple[int, int]] = []
    for n, size, stride in zip(base, window, strides, strict=True):
        if stride <= 0:
            raise ShapeError("WIN-2", "window stride", stride, "> 0")
        total = max((-(-n // stride) - 1) * stride + size - n, 0)
        padding.append((total // 2, total - total // 2))
    return tuple(padding)


@dataclass(frozen=True, slots=True)
class ConvDimensionNumbers:
    """Which dimension of lhs, rhs and output plays which role (CONV-3). Field names are the proto's."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions"):
            object.__setattr__(self, name, tuple(int(d) for d in getattr(self, name)))

    @staticmethod
    def default(spatial_rank: int) -> ConvDimensionNumbers:
        """CONV-1: [batch, feature, spatial...], [output, input, spatial...], [batch, feature, spatial...]."""
        spatial = tuple(range(2, spatial_rank + 2))
        return ConvDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @property
    def lhs(self) -> tuple[int, ...]:
        """(batch, feature, spatial...) dimensions of lhs."""
        return (self.input_batch_dimension, self.input_feature_dimension, *self.input_spatial_dimensions)

    @property
    def rhs(self) -> tuple[int, ...]:
        """(output feature, input feature, spatial...) dimensions of rhs."""
        return (
            self.kernel_output_feature_dimension,
            self.kernel_input_feature_dimension,
            *self.kernel_spatial_dimensions,
        )

    @property
    def output(self) -> tuple[int, ...]:
        """(batch, feature, spatial...) dimensions of the output."""
        return (self.output_batch_dimension, self.output_feature_dimension, *self.output_spatial_dimensions)


@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """Edge padding (may be negative) and padding between neighbours of one dimension of pad."""

    edge_padding_low: int
    edge_padding_high: int
    interior_padding: int = 0

    def output_size(self, size: int) -> int:
        """PAD-1."""
        return size + self.edge_padding_low + self.edge_padding_high + max(size - 1, 0) * self.interior_padding
