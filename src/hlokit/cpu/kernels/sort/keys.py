"""Unsigned integers with the same order as elements, in the total order or as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlokit.cpu.llvm import I32, Global, Value
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

    def key(self, raw: Value) -> Value:
        """The keys of elements."""
        if self.is_table:
            return self._looked_up(raw)
        return self._float_key(raw) if self.dtype.is_floating else self._integer_flipped(raw)

    def element(self, key: Value) -> Value:
        """The elements of keys; of those with one key, some element. Not for keys that are looked up."""
        if not self.dtype.is_floating:
            return self._integer_flipped(key)
        if self.descending:
            key = ~key
        was_positive = key.sar(self.bits - 1)
        return key ^ (~was_positive | self._sign)

    def merged(self, raw: Value) -> tuple[Value, Value]:
        """(whether the element is a zero, whether it is a NaN): those of which several have one key."""
        magnitude = raw & (self._sign - 1)
        is_nan = magnitude.compare("ugt", self._infinity)
        return magnitude.eq(0), is_nan

    def is_special(self, raw: Value) -> Value:
        """Whether elements are other than what `element` makes of their keys: -0, NaNs."""
        is_nan = (raw & (self._sign - 1)).compare("ugt", self._infinity)
        return is_nan | raw.eq(self._sign)

    @property
    def merged_keys(self) -> tuple[int, int]:
        """The keys of zeros and NaNs."""
        everything, sign = (1 << self.bits) - 1, self._sign
        nan = everything if self.nan_last or not self.descending else 0
        return (everything ^ sign if self.descending else sign), nan

    @property
    def _sign(self) -> int:
        """Its bit."""
        return 1 << (self.bits - 1)

    @property
    def _infinity(self) -> int:
        """Its bits."""
        return self._sign - (1 << _MANTISSA_BITS[self.dtype.name])

    def _integer_flipped(self, raw: Value) -> Value:
        flips = self._sign if self.dtype.kind == "signed" else 0
        if self.descending:
            flips ^= (1 << self.bits) - 1
        return raw ^ flips if flips else raw

    def _float_key(self, raw: Value) -> Value:
        magnitude = raw & (self._sign - 1)
        number = raw.value(0).where(magnitude.eq(0), raw) if self.numbers else raw
        flips = number.sar(self.bits - 1) | self._sign
        key = number ^ (~flips if self.descending else flips)
        if not self.numbers:
            return key
        return raw.value(self.merged_keys[1]).where(magnitude.compare("ugt", self._infinity), key)

    def _looked_up(self, raw: Value) -> Value:
        name = f"order_{self.dtype.name}_{int(self.descending)}{int(self.numbers)}{int(self.nan_last)}"
        table = raw.fn.address(Global(name, I32, 256, initial=self._table(), constant=True, align=64))
        places = raw.zext(64)
        found = table[places].load() if raw.lanes == 1 else table.elements(places).gather(otherwise="poison")
        return found.trunc(8)

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
