"""Layouts: the order of an array's dimensions in memory, and the fields that are only kept for text and proto."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlokit.types.dtype import DType


@dataclass(frozen=True)
class Layout:
    """The order of an array's dimensions in memory, and what else HLO text and protos say of its place there.

    The fields other than `minor_to_major` are kept for text and protos (LAYOUT-7, HLAY-4): no value depends on them.

    Parameters
    ----------
    minor_to_major : tuple of int
        The dimensions, the one that varies fastest in memory first (LAYOUT-1).
    tiles : tuple of tuples of int, optional
        The sizes of each tile; None stands for `*`.
    tail_padding_alignment : int, optional
        The number of elements to a multiple of which the array is padded.
    index_type, pointer_type : DType, optional
        The types of indices and pointers of a sparse array.
    element_size_in_bits : int, optional
        The bits that an element takes; 0: those of its type.
    memory_space : int, optional
        The number of the memory that holds the array.
    splits : tuple of (int, tuple of int), optional
        Dimensions, each with the indices at which it is split.
    dynamic_prefix_bytes : int, optional
        The bytes before the elements that hold the sizes of dynamic dimensions.

    Examples
    --------
    >>> hk.Shape.array(hk.f32, [2, 3], layout=hk.Layout((0, 1))).to_text()
    'f32[2,3]{0,1}'
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int | None, ...], ...] = ()
    tail_padding_alignment: int = 1
    index_type: DType | None = None
    pointer_type: DType | None = None
    element_size_in_bits: int = 0
    memory_space: int = 0
    splits: tuple[tuple[int, tuple[int, ...]], ...] = ()
    dynamic_prefix_bytes: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))

    def __hash__(self) -> int:  # every shape with a layout hashes it: 10 fields each time would cost 3 us
        return self._hash

    @cached_property
    def is_default(self) -> bool:
        """Row-major and nothing else (LAYOUT-2)."""
        return self == default_layout(len(self.minor_to_major))

    def __str__(self) -> str:
        """The text form, braces included; a scalar's plain layout is empty (HLAY-6)."""
        extra = "".join(self._extra_fields())
        order = ",".join(map(str, self.minor_to_major))
        if extra:
            return f"{{{order}:{extra}}}"
        return f"{{{order}}}" if order else ""

    def _extra_fields(self) -> list[str]:
        fields = ["T" if self.tiles else ""]
        fields += [f"({','.join('*' if n is None else str(n) for n in tile)})" for tile in self.tiles]
        if self.tail_padding_alignment != 1:
            fields.append(f"L({self.tail_padding_alignment})")
        if self.index_type is not None:
            fields.append(f"#({self.index_type})")
        if self.pointer_type is not None:
            fields.append(f"*({self.pointer_type})")
        if self.element_size_in_bits:
            fields.append(f"E({self.element_size_in_bits})")
        if self.memory_space:
            fields.append(f"S({self.memory_space})")
        if self.splits:
            fields.append("SC" + "".join(f"({d}:{','.join(map(str, at))})" for d, at in self.splits))
        if self.dynamic_prefix_bytes:
            fields.append(f"M({self.dynamic_prefix_bytes})")
        return fields


@cache
def default_layout(rank: int) -> Layout:
    """Row-major: {rank-1, ..., 0}."""
    return Layout(tuple(range(rank - 1, -1, -1)))
