"""Unsigned integers that compare as elements do, in the total order or as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlokit.cpu.llvm import Function, Module, splat, vector
from hlokit.types.dtype import DType

_MANTISSA_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@dataclass(frozen=True)
class KeyMap:
    """From an element's memory, as an integer, to an unsigned key of the same width; the least key goes first.

    numbers     of floats: zeros are equal, NaNs are equal and greatest; else the total order from -NaN to +NaN
    nan_last    NaN goes last in a descending order too
    """

    dtype: DType
    descending: bool = False
    numbers: bool = False
    nan_last: bool = False

    @property
    def bits(self) -> int:
        """Width of the key."""
        return max(8, self.dtype.bits)

    @property
    def merges(self) -> bool:
        """Whether different elements may have one key: -0 and +0, NaNs."""
        return self.numbers and self.dtype.is_floating

    @property
    def is_table(self) -> bool:
        """Whether keys are looked up: there are as many ways to order the bits of the small types as types."""
        return self.dtype.bits < 8 or (self.dtype.is_floating and self.dtype.bits == 8)

    def write(self, f: Function, module: Module, raw: str, lanes: int = 1) -> str:
        """The keys of elements `raw`."""
        if self.is_table:
            return self._looked_up(f, module, raw, lanes)
        return self._float_key(f, raw, lanes) if self.dtype.is_floating else self._integer_flipped(f, raw, lanes)

    def write_back(self, f: Function, key: str, lanes: int = 1) -> str:
        """The elements of keys; of those with one key, some element. Not for keys that are looked up."""
        if not self.dtype.is_floating:
            return self._integer_flipped(f, key, lanes)
        scalar = f"i{self.bits}"
        type = vector(scalar, lanes)
        if self.descending:
            key = f.let(f"xor {type} {key}, {_constant(-1, scalar, lanes)}")
        was_positive = f.let(f"ashr {type} {key}, {_constant(self.bits - 1, scalar, lanes)}")
        others = f.let(f"xor {type} {was_positive}, {_constant(-1, scalar, lanes)}")
        flips = f.let(f"or {type} {others}, {_constant(1 << (self.bits - 1), scalar, lanes)}")
        return f.let(f"xor {type} {key}, {flips}")

    def merged(self, f: Function, raw: str) -> tuple[str, str]:
        """(whether the element is a zero, whether it is a NaN): those of which several have one key."""
        magnitude = f.let(f"and i{self.bits} {raw}, {(1 << (self.bits - 1)) - 1}")
        is_nan = f.let(f"icmp ugt i{self.bits} {magnitude}, {self._infinity}")
        return f.let(f"icmp eq i{self.bits} {magnitude}, 0"), is_nan

    def is_special(self, f: Function, raw: str, lanes: int = 1) -> str:
        """Whether elements are other than what `write_back` makes of their keys: -0, NaNs."""
        scalar, type = f"i{self.bits}", vector(f"i{self.bits}", lanes)
        sign = 1 << (self.bits - 1)
        magnitude = f.let(f"and {type} {raw}, {_constant(sign - 1, scalar, lanes)}")
        nan = f.let(f"icmp ugt {type} {magnitude}, {_constant(self._infinity, scalar, lanes)}")
        negative_zero = f.let(f"icmp eq {type} {raw}, {_constant(sign, scalar, lanes)}")
        return f.let(f"or {vector('i1', lanes)} {nan}, {negative_zero}")

    @property
    def merged_keys(self) -> tuple[int, int]:
        """The keys of zeros and NaNs."""
        everything, sign = (1 << self.bits) - 1, 1 << (self.bits - 1)
        nan = everything if self.nan_last or not self.descending else 0
        return (everything ^ sign if self.descending else sign), nan

    @property
    def _infinity(self) -> int:
        """Its bits."""
        return (1 << (self.bits - 1)) - (1 << _MANTISSA_BITS[self.dtype.name])

    def _integer_flipped(self, f: Function, raw: str, lanes: int) -> str:
        flips = 1 << (self.bits - 1) if self.dtype.kind == "signed" else 0
        if self.descending:
            flips ^= (1 << self.bits) - 1
        if not flips:
            return raw
        scalar = f"i{self.bits}"
        return f.let(f"xor {vector(scalar, lanes)} {raw}, {_constant(flips, scalar, lanes)}")

    def _float_key(self, f: Function, raw: str, lanes: int) -> str:
        scalar = f"i{self.bits}"
        type, mask = vector(scalar, lanes), vector("i1", lanes)
        sign, everything = 1 << (self.bits - 1), (1 << self.bits) - 1

        def constant(value: int) -> str:
            return _constant(value, scalar, lanes)

        not_a_number = ""
        if self.numbers:
            magnitude = f.let(f"and {type} {raw}, {constant(sign - 1)}")
            zero = f.let(f"icmp eq {type} {magnitude}, {constant(0)}")
            raw = f.let(f"select {mask} {zero}, {type} {constant(0)}, {type} {raw}")
            not_a_number = f.let(f"icmp ugt {type} {magnitude}, {constant(self._infinity)}")
        negative = f.let(f"ashr {type} {raw}, {constant(self.bits - 1)}")
        flips = f.let(f"or {type} {negative}, {constant(sign)}")
        if self.descending:
            flips = f.let(f"xor {type} {flips}, {constant(everything)}")
        key = f.let(f"xor {type} {raw}, {flips}")
        if self.numbers:
            nan = self.merged_keys[1]
            key = f.let(f"select {mask} {not_a_number}, {type} {constant(nan)}, {type} {key}")
        return key

    def _looked_up(self, f: Function, module: Module, raw: str, lanes: int) -> str:
        name = f"@order_{self.dtype.name}_{int(self.descending)}{int(self.numbers)}{int(self.nan_last)}"
        table = module.table(name[1:], "i32", self._table())
        place = f.let(f"zext {vector('i8', lanes)} {raw} to {vector('i64', lanes)}")
        address = f.let(f"getelementptr i32, ptr {table}, {vector('i64', lanes)} {place}")
        if lanes == 1:
            found = f.let(f"load i32, ptr {address}")
        else:
            type = vector("i32", lanes)
            every = splat("true", "i1", lanes)
            found = f.let(
                f"call {type} @llvm.masked.gather.v{lanes}i32.v{lanes}p0({vector('ptr', lanes)} align 4 {address}, "
                f"{vector('i1', lanes)} {every}, {type} poison)"
            )
        return f.let(f"trunc {vector('i32', lanes)} {found} to {vector('i8', lanes)}")

    def _table(self) -> list[int]:
        """Keys of all bytes."""
        raw = np.arange(256).astype(np.uint8)
        if self.dtype.bits < 8:  # what the bits above mean is nothing
            raw &= np.uint8((1 << self.dtype.bits) - 1)
        elements = raw.view(self.dtype.numpy)
        values = elements.astype(np.float64)
        nan = np.isnan(values)
        ranks = np.zeros(256, np.int64)
        if self.numbers or self.dtype.is_integral:
            ranks[~nan] = np.unique(values[~nan], return_inverse=True)[1]
            ranks[nan] = 255
        else:
            sign = np.where(np.signbit(values), -1, 1)
            order = np.where(nan, np.inf, np.abs(values)) * sign
            places = list(zip(order.tolist(), (sign * raw.astype(int)).tolist(), strict=True))
            rank_of = {place: rank for rank, place in enumerate(sorted(set(places)))}
            ranks[:] = [rank_of[place] for place in places]
        if self.descending and self.numbers:
            ranks = ranks[~nan].max() - ranks + (0 if self.nan_last else 1)
            ranks[nan] = 255 if self.nan_last else 0
        elif self.descending:
            ranks = 255 - ranks
        return ranks.tolist()


def _constant(value: int, scalar: str, lanes: int) -> str:
    return splat(str(value), scalar, lanes)
