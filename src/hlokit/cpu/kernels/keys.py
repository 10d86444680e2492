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
    def is_exact(self) -> bool:
        """Whether different elements have different keys."""
        return not (self.numbers and self.dtype.is_floating)

    def write(self, f: Function, module: Module, raw: str, lanes: int = 1) -> str:
        """The keys of elements `raw`."""
        if self.dtype.bits < 8 or (self.dtype.is_floating and self.dtype.bits == 8):
            return self._looked_up(f, module, raw, lanes)
        scalar = f"i{self.bits}"
        type = vector(scalar, lanes)
        if not self.dtype.is_floating:
            flips = (1 << (self.bits - 1) if self.dtype.kind == "signed" else 0) ^ (
                (1 << self.bits) - 1 if self.descending else 0
            )
            return f.let(f"xor {type} {raw}, {_constant(flips, scalar, lanes)}") if flips else raw
        return self._float_key(f, raw, lanes)

    def _float_key(self, f: Function, raw: str, lanes: int) -> str:
        scalar = f"i{self.bits}"
        type, mask = vector(scalar, lanes), vector("i1", lanes)
        sign, everything = 1 << (self.bits - 1), (1 << self.bits) - 1
        infinity = sign - (1 << _MANTISSA_BITS[self.dtype.name])

        def constant(value: int) -> str:
            return _constant(value, scalar, lanes)

        not_a_number = ""
        if self.numbers:
            magnitude = f.let(f"and {type} {raw}, {constant(sign - 1)}")
            zero = f.let(f"icmp eq {type} {magnitude}, {constant(0)}")
            raw = f.let(f"select {mask} {zero}, {type} {constant(0)}, {type} {raw}")
            not_a_number = f.let(f"icmp ugt {type} {magnitude}, {constant(infinity)}")
        negative = f.let(f"ashr {type} {raw}, {constant(self.bits - 1)}")
        flips = f.let(f"or {type} {negative}, {constant(sign)}")
        if self.descending:
            flips = f.let(f"xor {type} {flips}, {constant(everything)}")
        key = f.let(f"xor {type} {raw}, {flips}")
        if self.numbers:
            last = everything if self.nan_last or not self.descending else 0
            key = f.let(f"select {mask} {not_a_number}, {type} {constant(last)}, {type} {key}")
        return key

    def _looked_up(self, f: Function, module: Module, raw: str, lanes: int) -> str:
        """Of types of a byte and less: there are as many ways to order their bits as types."""
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
            order = np.where(nan, np.inf, np.abs(values)) * np.where(np.signbit(values), -1, 1)
            places = list(zip(order.tolist(), np.where(np.signbit(values), -raw.astype(int), raw).tolist(), strict=True))
            rank_of = {place: rank for rank, place in enumerate(sorted(set(places)))}
            ranks[:] = [rank_of[place] for place in places]
        if self.descending:
            ranks = 255 - ranks
            if self.numbers:
                ranks[nan] = 255 if self.nan_last else 0
        return ranks.tolist()


def _constant(value: int, scalar: str, lanes: int) -> str:
    return splat(str(value), scalar, lanes)
