"""Call frames: the arguments of a handler, as words of memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.ffi_attributes import Elements, TypedScalar
from hlokit.runtime.ffi import layouts
from hlokit.types.shape import Shape

_STAGE, _ARGS, _RETS, _ATTRS = (
    layouts.CALL_FRAME.offset(name) // 8 for name in ("stage", "args", "rets", "attributes")
)
_CONTEXT = layouts.CALL_FRAME.bytes // 8
"""Where the parts of the block begin, in words: a CallFrame with its future, then the context."""
_STATES = _CONTEXT + layouts.CONTEXT.offset("states") // 8


def address_of(words: Array) -> int:
    return words.__array_interface__["data"][0]


class Block:
    """Words in the writing. Pointers are to places in the block itself."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.pointers: list[tuple[int, int]] = []

    def add(self, *words: int) -> int:
        """Where they begin."""
        place = len(self.words)
        self.words += words
        return place

    def point(self, place: int, target: int) -> None:
        """The word at `place` becomes the address of the one at `target`."""
        self.pointers.append((place, target))

    def bytes(self, data: bytes) -> int:
        """At a multiple of 16 bytes, as far as the block is at one."""
        if len(self.words) % 2:
            self.words.append(0)
        padded = data + bytes(-len(data) % 8 or 8)
        return self.add(*np.frombuffer(padded, np.uint64).tolist())

    def numbers(self, values: Sequence[int]) -> int:
        """As 32-bit integers."""
        return self.bytes(np.array(values, np.int32).tobytes())

    def array(self) -> Array:
        return np.array(self.words, np.uint64)


class Attributes:
    """A dictionary of attributes in memory: an XLA_FFI_Attrs and all that it leads to, which lives as long as this.

    `words`: of the struct. UnsupportedError names an attribute of a kind that the interface does not have.
    """

    def __init__(self, attributes: dict[str, Any]) -> None:
        block = Block()
        top = _dictionary(block, attributes)
        self._memory = block.array()
        base = address_of(self._memory)
        for place, target in block.pointers:
            self._memory[place] = base + 8 * target
        self.words: list[int] = self._memory[top : top + layouts.ATTRS_BYTES // 8].tolist()


def _dictionary(block: Block, attributes: dict[str, Any]) -> int:
    """Handlers look names up by their order: that of their bytes."""
    rows = sorted((name.encode(errors="surrogateescape"), value) for name, value in attributes.items())
    made = [_attribute(block, name, value) for name, value in rows]
    struct = block.add(layouts.ATTRS_BYTES, 0, len(rows), 0, 0, 0)
    block.point(struct + 3, block.numbers([kind for kind, _ in made]))
    names, values = block.add(*(0 for _ in rows)), block.add(*(0 for _ in rows))
    block.point(struct + 4, names)
    block.point(struct + 5, values)
    for i, ((name, _), (_, place)) in enumerate(zip(rows, made, strict=True)):
        block.point(names + i, _span(block, name))
        block.point(values + i, place)
    return struct


def _span(block: Block, data: bytes) -> int:
    span = block.add(0, len(data))
    block.point(span, block.bytes(data))
    return span


def _attribute(block: Block, name: bytes, value: Any) -> tuple[int, int]:
    """(XLA_FFI_AttrType, place) of an attribute."""
    match value:
        case dict():
            return layouts.DICTIONARY, _dictionary(block, value)  # pyright: ignore[reportUnknownArgumentType]
        case str():
            return layouts.STRING, _span(block, value.encode(errors="surrogateescape"))
        case TypedScalar():
            scalar = block.add(value.dtype.number, 0)
            block.point(scalar + 1, block.bytes(value.value.tobytes()))
            return layouts.SCALAR, scalar
        case Elements():
            array = block.add(value.dtype.number, value.values.size, 0)
            block.point(array + 2, block.bytes(value.values.tobytes()))
            return layouts.ARRAY, array
        case _:
            kind = "a unit" if value is None else "a list"
            raise UnsupportedError(f"attribute {name.decode(errors='replace')!r} is {kind}: XLA's FFI has no such kind")


class Frame:
    """The frame of calls with operands and results of these shapes (arrays and tokens), to be filled for each."""

    def __init__(self, api: int, attributes: Attributes, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
        block = Block()
        block.add(layouts.CALL_FRAME_BYTES, 0, api, 0, 0)
        for shapes in (operands, results):
            block.add(layouts.ARGS_BYTES, 0, len(shapes), 0, 0)
        block.add(*attributes.words, 0)
        block.add(*(0 for _ in range(layouts.CONTEXT.bytes // 8)))
        block.point(3, _CONTEXT)
        self._data: list[int] = []
        for part, shapes in ((_ARGS, operands), (_RETS, results)):
            block.point(part + 3, block.numbers([layouts.BUFFER for _ in shapes]))
            buffers = block.add(*(0 for _ in shapes))
            block.point(part + 4, buffers)
            for i, shape in enumerate(shapes):
                block.point(buffers + i, self._buffer(block, shape))
        self._attributes = attributes
        self._template = block.array()
        self._places = np.array([place for place, _ in block.pointers], np.int64)
        self._offsets = np.array([8 * target for _, target in block.pointers], np.uint64)

    def _buffer(self, block: Block, shape: Shape) -> int:
        buffer = block.add(layouts.BUFFER_BYTES, 0, shape.dtype.number, 0, shape.rank, 0)
        block.point(buffer + 5, block.add(*(shape.dimensions or (0,))))
        if shape.is_array:
            self._data.append(buffer + 3)
        return buffer

    def filled(self, stage: str, data: Sequence[int], device: int, run: int, states: Sequence[int]) -> Array:
        """The frame for one call, as an array of words that is the caller's to hold.

        data    addresses of the arrays among operands and results
        states  addresses of the states that the call may get and set, by stage; 0 for a stage without
        """
        words = self._template.copy()
        words[self._places] = self._offsets + np.uint64(address_of(words))
        words[_STAGE] = layouts.STAGES.index(stage)
        words[self._data] = data
        words[_CONTEXT : _CONTEXT + 2] = device, run
        words[_STATES : _STATES + 3] = states
        return words


if sys.byteorder != "little":
    raise UnsupportedError("handlers of XLA's FFI: on this machine numbers are not little-endian")
