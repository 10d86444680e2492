"""NumPy arrays from the arguments of callers."""

from __future__ import annotations

from typing import Any

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.errors import invalid
from hlokit.types.literal import refuse_masked


def numpy_array(value: Any) -> np.ndarray[Any, Any]:
    """`value` as an array; NumPy decides the element type of Python's numbers, as in jaxlib: 64 bits.

    XlaRuntimeError for a type that HLO lacks, and for masked elements.
    """
    try:
        refuse_masked(value)
    except TypeError as error:
        raise invalid(f"found {error}") from None
    array = np.asarray(value)
    try:
        hk.dtype(array.dtype)
    except hk.ShapeError:
        raise invalid(f"Unknown NumPy dtype {array.dtype!r}") from None
    return array
