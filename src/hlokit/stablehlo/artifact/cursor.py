"""MLIR bytecode's integers, read from a run of bytes."""

from __future__ import annotations

from hlokit.errors import ParseError


class Cursor:
    """A position in bytes that begin at `base` of the whole input. Beyond the end it raises IndexError."""

    __slots__ = ("base", "data", "position")

    def __init__(self, data: bytes, base: int = 0) -> None:
        self.data = data
        self.base = base
        self.position = 0

    @property
    def offset(self) -> int:
        """The position in the whole input."""
        return self.base + self.position

    @property
    def rest(self) -> int:
        """The number of bytes that are left."""
        return len(self.data) - self.position

    def byte(self) -> int:
        value = self.data[self.position]
        self.position += 1
        return value

    def varint(self) -> int:
        """An unsigned integer of 64 bits: as many zero bits at the low end of the first byte as bytes follow it."""
        start = self.position
        first = self.data[start]
        if first & 1:
            self.position = start + 1
            return first >> 1
        more = (first & -first).bit_length() - 1 if first else 8
        end = start + 1 + more
        if end > len(self.data):
            raise IndexError
        self.position = end
        if not first:
            return int.from_bytes(self.data[start + 1 : end], "little")
        return int.from_bytes(self.data[start:end], "little") >> (more + 1)

    def head(self) -> tuple[int, int, int]:
        """The head of an operation: its name, a byte of flags, its location. Most are of one or two bytes."""
        data, position = self.data, self.position
        first = data[position]
        if first & 1:
            name = first >> 1
            position += 1
        else:
            name = self.varint()
            position = self.position
        mask, first = data[position], data[position + 1]
        if first & 3 == 2:
            self.position = position + 3
            return name, mask, (first | data[position + 2] << 8) >> 2
        self.position = position + 1
        return name, mask, self.varint()

    def varints(self, count: int) -> list[int]:
        """`count` unsigned integers; those of one byte without a call each, which is half the time of reading."""
        data, position = self.data, self.position
        found: list[int] = []
        for _ in range(count):
            first = data[position]
            if first & 1:
                found.append(first >> 1)
                position += 1
            else:
                self.position = position
                found.append(self.varint())
                position = self.position
        self.position = position
        return found

    def count(self) -> int:
        """The number of unsigned integers in the rest."""
        start, found = self.position, 0
        while self.rest:
            self.varint()
            found += 1
        self.position = start
        return found

    def signed(self) -> int:
        """A signed integer: its sign is the lowest bit."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def flagged(self) -> tuple[int, int]:
        """An unsigned integer whose lowest bit is a flag."""
        value = self.varint()
        return value >> 1, value & 1

    def signed_list(self) -> list[int]:
        return [(value >> 1) ^ -(value & 1) for value in self.varints(self.varint())]

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start = self.position
        if count > len(self.data) - start:
            raise IndexError
        self.position = start + count
        return self.data[start : start + count]

    def part(self, count: int) -> Cursor:
        """A cursor over the next `count` bytes, which this one skips."""
        base = self.offset
        return Cursor(self.take(count), base)

    def section(self) -> tuple[int, Cursor]:
        """A section's number and its content."""
        number = self.byte()
        length = self.varint()
        if number & 0x80:
            alignment = self.varint()
            if not alignment or alignment & (alignment - 1):
                raise self.error(f"an alignment of {alignment}")
            self.take(-self.offset % alignment)
        return number & 0x7F, self.part(length)

    def error(self, message: str) -> ParseError:
        return failure(message, self.offset)


def failure(message: str, offset: int) -> ParseError:
    """The error that the bytes at `offset` are not what they must be."""
    return ParseError(f"byte {offset}: {message}")
