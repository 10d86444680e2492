"""The transcendental primitives by name."""

from __future__ import annotations

from collections.abc import Callable

from hlokit.cpu.math.lanes import Value

FUNCTIONS: dict[str, Callable[..., Value]] = {}
