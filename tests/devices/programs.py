"""Small programs for several devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.types.shape import Shape

F = np.float32


def add(x: Any, y: Any) -> Any:
    return x + y


def program(function: Callable[..., Any], *shapes: Shape, name: str = "test") -> hk.HloModule:
    """The module of `function(builder, *parameters)`."""
    builder = hk.Builder(name)
    return builder.build(function(builder, *(builder.parameter(n, shape) for n, shape in enumerate(shapes))))


def on(count: int, function: Callable[..., Any], arrays: Any, **options: Any) -> Any:
    """What `function(builder, x)` gives on `count` replicas, for an array each."""
    first = np.asarray(arrays[0])
    module = program(function, hk.dtype(first.dtype)[first.shape])
    return hk.evaluate(module, *([a] for a in arrays), replicas=count, **options)


def is_replica(builder: hk.Builder, number: int) -> hk.XlaOp:
    return hk.eq(builder.replica_id(), np.uint32(number))
