"""Quantities: bandwidths, times and rates as people write them."""

from __future__ import annotations

import math
import re

from hlokit.errors import ArgumentError

_NUMBER = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*")
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGT", 1)}

_BYTES = {f"{prefix}B/s": size for prefix, size in {**_DECIMAL, "K": 1e3, **_BINARY}.items()}
_BITS = {f"{prefix}{bit}": size / 8 for prefix, size in _DECIMAL.items() for bit in ("b/s", "bps")}

BANDWIDTH = {"": 1.0, **_BYTES, **_BITS}
"""Bytes a second."""
SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
FLOPS = {"": 1.0, **{f"{p}{unit}": size for p, size in _DECIMAL.items() for unit in ("FLOPS", "FLOP/s", "F/s")}}
"""Operations a second."""


def quantity(value: str | float, what: str, units: dict[str, float], *, zero: bool = False) -> float:
    """`value` in the base unit: a number, or text such as "100GB/s".

    ArgumentError for what is not a number, for a unit that is not in `units`, for a number that is not finite or is
    negative, and for 0 where `zero` does not allow it.
    """
    text = str(value)
    match = _NUMBER.fullmatch(text)
    unit = match[2] if match is not None else ""
    try:
        number = float(match[1]) if match is not None else math.nan
    except ValueError:
        number = math.nan
    if unit not in units or math.isnan(number):
        known = ", ".join(u for u in units if u)
        raise ArgumentError(f"{what}: {text!r} is not a number with one of the units {known} (or none)")
    found = number * units[unit]
    if not math.isfinite(found) or found < 0 or (found == 0 and not zero):
        raise ArgumentError(f"{what}: {text!r}, expected a finite number {'>= 0' if zero else '> 0'}")
    return found
