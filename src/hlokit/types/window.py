"""Windows (convolution, reduce-window, select-and-scatter) and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.errors import ShapeError
from hlokit.types.integers import integers


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window (WIN-1).

    Parameters
    ----------
    size : int
        The number of elements that the window takes.
    stride : int, optional
        The distance between neighbouring positions of the window.
    padding_low, padding_high : int, optional
        The number of elements that are added before and after the operand's; negative numbers remove elements.
    base_dilation, window_dilation : int, optional
        The distance between neighbouring elements of the operand, and of the window.
    reversal : bool, optional
        Whether the window is flipped.

    Examples
    --------
    >>> b = hk.Builder()
    >>> window = hk.Window((hk.WindowDimension(2, stride=2, padding_high=1),))
    >>> sums = hk.OPS["reduce-window"](window)
    >>> sums.window.dimensions[0].stride
    2
    """

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    def output_size(self, base: int) -> int:
        """The number of positions that the window takes on `base` elements (WIN-4, CONV-4).

        Parameters
        ----------
        base : int
            The number of elements.

        Returns
        -------
        int
            The number of positions.
        """
        padded = self.padding_low + dilated(base, self.base_dilation) + self.padding_high
        window = dilated(self.size, self.window_dilation)
        return 0 if padded <= 0 or window > padded else (padded - window) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Window:
    """One WindowDimension per windowed dimension.

    Parameters
    ----------
    dimensions : tuple of WindowDimension, optional
        One for each dimension that the window moves along.

    Examples
    --------
    >>> window = hk.Window((hk.WindowDimension(3, stride=2), hk.WindowDimension(5)))
    >>> [dimension.size for dimension in window.dimensions]
    [3, 5]
    """

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
        """A window from one list for each field; each is empty (defaults) or as long as `sizes` (WIN-3).

        Parameters
        ----------
        sizes : sequence of int
            The sizes.
        strides : sequence of int, optional
            The distances of neighbouring positions.
        padding : sequence of (int, int), optional
            (low, high) for each dimension.
        base_dilations : sequence of int, optional
            The distances of elements of the operand.
        window_dilations : sequence of int, optional
            The distances of elements of the window.
        reversal : sequence of bool, optional
            Whether the window is flipped.

        Returns
        -------
        Window
            The window.

        Raises
        ------
        ShapeError
            The lists differ in length (WIN-3) or numbers are out of range (WIN-2).
        """
        extents = integers(sizes, "WIN-3", "window sizes")
        rank = len(extents)
        low, high = _padding(padding, rank)
        columns = (
            extents,
            _column("strides", strides, rank, 1),
            low,
            high,
            _column("base_dilations", base_dilations, rank, 1),
            _column("window_dilations", window_dilations, rank, 1),
            map(bool, _column("reversal", reversal, rank, 0)),
        )
        return Window(tuple(map(WindowDimension, *columns)))

    def check(self) -> None:
        """Checks that sizes, strides and dilations are positive.

        Raises
        ------
        ShapeError
            One is not (WIN-2).
        """
        for i, d in enumerate(self.dimensions):
            if d.size > 0 and d.stride > 0 and d.base_dilation > 0 and d.window_dilation > 0:
                continue
            for name in ("size", "stride", "base_dilation", "window_dilation"):
                if getattr(d, name) <= 0:
                    raise ShapeError("WIN-2", f"window {name} of dimension {i}", getattr(d, name), "> 0")


def _column(name: str, values: Sequence[int], rank: int, default: int) -> Sequence[int]:
    """One field of all dimensions (WIN-3)."""
    given = integers(values, "WIN-3", f"window {name}")
    if len(given) not in (0, rank):
        raise ShapeError("WIN-3", f"window {name}", given, f"no or {rank} entries")
    return given or (default,) * rank


def _padding(pairs: Sequence[tuple[int, int]], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Low and high padding of all dimensions (WIN-3)."""
    try:
        given = [integers(pair, "WIN-3", "window padding") for pair in pairs]
        low, high = tuple(low for low, _ in given), tuple(high for _, high in given)
    except (TypeError, ValueError):
        raise ShapeError("WIN-3", "window padding", repr(pairs), "(low, high) pairs") from None
    if len(given) not in (0, rank):
        raise ShapeError("WIN-3", "window padding", given, f"no or {rank} entries")
    return low or (0,) * rank, high or (0,) * rank


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements with dilation-1 holes between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def same_padding(base: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """MakePadding(SAME): (low, high) per dimension so that out = ceil(in / stride) (WIN-5, WIN-6, WIN-7)."""
    base, window, strides = (integers(values, "WIN-6", "padding list") for values in (base, window, strides))
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
class PaddingDimension:
    """The padding of one dimension of `pad`.

    Parameters
    ----------
    edge_padding_low, edge_padding_high : int
        The number of elements that are added before and after; negative numbers remove elements.
    interior_padding : int, optional
        The number of elements that are added between neighbours.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.pad(b.constant([1, 2]), 0, [hk.PaddingDimension(1, 0, 2)])))
    array([0, 1, 0, 0, 2], dtype=int32)
    """

    edge_padding_low: int
    edge_padding_high: int
    interior_padding: int = 0

    def output_size(self, size: int) -> int:
        """The size of the padded dimension (PAD-1).

        Parameters
        ----------
        size : int
            The number of elements.

        Returns
        -------
        int
            The size; below 0 where more is removed than there is.
        """
        return size + self.edge_padding_low + self.edge_padding_high + max(size - 1, 0) * self.interior_padding
