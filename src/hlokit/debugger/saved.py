"""Files of debugger sessions: a program, its arguments, changed values, breakpoints, and the time on each device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hlokit.debugger.conditions import named
from hlokit.debugger.debugger import Debugger
from hlokit.errors import ArgumentError, HlokitError, UnsupportedError
from hlokit.files.arrays import arrays_in, leaves_of, reinterpreted, storable
from hlokit.files.reading import module_of_text
from hlokit.hlo.values import valid_part
from hlokit.interpreter.arguments import argument
from hlokit.types.shape import Shape

_KEY = "hlokit_debug"
_VERSION = 1


def save(debugger: Debugger, path: Path, watched: list[str]) -> None:
    """Writes a session. UnsupportedError for a program that the host feeds; OSError if the file cannot be written."""
    if any(i.opcode == "infeed" or getattr(i.op, "is_host_transfer", False) for i in debugger.module.instructions()):
        raise UnsupportedError(f"{debugger.module.name}: a session of a program that the host feeds cannot be saved")
    content = {
        "version": _VERSION, "module": debugger.module.to_text(), "seed": debugger.seed,
        "counts": debugger.counts, "device": debugger.device, "times": debugger.times, "watched": watched,
        "breakpoints": [b.condition.text for b in debugger.breakpoints],
        "changes": [(d, t, depth, i.name) for d, t, depth, i, _ in debugger.changes],
    }  # fmt: skip
    arrays = {_KEY: np.frombuffer(json.dumps(content).encode(), np.uint8)}
    for d, values in enumerate(debugger.arguments):
        arrays |= {f"argument_{d}_{k}": storable(a) for k, a in enumerate(_leaves(values))}
    for n, change in enumerate(debugger.changes):
        arrays |= {f"change_{n}_{k}": storable(a) for k, a in enumerate(_leaves(change[-1]))}
    data = BytesIO()
    np.savez(data, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    path.write_bytes(data.getvalue())


def is_session(content: bytes) -> bool:
    """Whether a file's content is a session."""
    return content.startswith(b"PK") and _KEY.encode() in content


def restored(content: bytes) -> tuple[Debugger, list[str]]:
    """The debugger of a session, at its place, and the names that were watched. ArgumentError for what is none."""
    arrays = arrays_in(content)
    try:
        found = json.loads(bytes(arrays[_KEY]))
        if found["version"] != _VERSION:
            raise ArgumentError(f"a debugger session of version {found['version']}, expected {_VERSION}")
        module = module_of_text(found["module"], None, verify=True)
        replicas, partitions = found["counts"]
        count = replicas * partitions
        shapes = [p.shape for p in module.entry.parameters]
        given = [[_value(arrays, f"argument_{d}", s, k) for s, k in _numbered(shapes)] for d in range(count)]
        debugger = Debugger(
            module, given if count > 1 else given[0], seed=found["seed"], replicas=replicas, partitions=partitions
        )
        for text in found["breakpoints"]:
            debugger.break_at(text)
        changes: list[tuple[int, int, int, Any, Any]] = []
        for n, (device, time, depth, name) in enumerate(found["changes"]):
            instruction = named(module, name)
            value = argument(f"%{name}", instruction.shape, _value(arrays, f"change_{n}", instruction.shape, 0))
            changes.append((int(device), int(time), int(depth), instruction, value))
        debugger.resume([int(t) for t in found["times"]], changes)
        debugger.select(found["device"])
        return debugger, [named(module, name).name for name in found["watched"]]
    except HlokitError:
        raise
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ArgumentError(f"not a debugger session, or a damaged one: {type(error).__name__}: {error}") from None


def _leaves(value: Any) -> list[Any]:
    return [leaf for leaf in leaves_of(valid_part(value)) if leaf is not None]


def _numbered(shapes: list[Shape]) -> Iterator[tuple[Shape, int]]:
    """Each shape with the number of its first array."""
    number = 0
    for shape in shapes:
        yield shape, number
        number += sum(leaf.is_array for leaf in shape.leaves())


def _value(arrays: dict[str, Any], stem: str, shape: Shape, number: int) -> Any:
    """The value of a shape whose first array is of this number."""
    if shape.is_tuple:
        return tuple(_value(arrays, stem, s, number + k) for s, k in _numbered(list(shape.elements)))
    return reinterpreted(arrays[f"{stem}_{number}"], shape) if shape.is_array else None
