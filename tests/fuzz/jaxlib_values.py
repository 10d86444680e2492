"""Arrays of every element type in a file that jaxlib_runner.py reads and writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np


def pack(path: Path, arrays: Sequence[Any]) -> None:
    names = [(a.dtype.name, a.shape) for a in arrays]
    raw = {f"a{i}": np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8) for i, a in enumerate(arrays)}
    np.savez(path, names=np.array(json.dumps(names)), **raw)


def unpack(path: Path) -> list[Any]:
    with np.load(path) as stored:
        names = json.loads(str(stored["names"]))
        return [
            np.frombuffer(stored[f"a{i}"].tobytes(), _dtype(name)).reshape(shape)
            for i, (name, shape) in enumerate(names)
        ]


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(np, name) if hasattr(np, name) else getattr(ml_dtypes, name))
