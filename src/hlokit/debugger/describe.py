"""Values and positions of a debugger as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.debugger.debugger import Debugger
from hlokit.debugger.numbers import is_floating, leaves
from hlokit.debugger.way_back import Crumb
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.sources import scope, source_lines
from hlokit.text.printable import printable

_BINS = 10
_BAR = 30
_WAY = 12
"""Instructions of a way back that are shown."""
_SHOWN = 60
"""Elements of an array that are printed whole."""


def place_text(debugger: Debugger) -> str:
    """The instruction that the debugger stands before, its iteration and its source line."""
    if debugger.is_finished:
        return "at the end"
    frame = debugger.frames[-1]
    where = f"{frame.computation.name}{_iteration(debugger, len(debugger.frames) - 1)}"
    assert frame.next is not None
    return printable(f"{where}: {_line(frame.next)}{_source(frame.next)}")


def stack_text(debugger: Debugger) -> str:
    """The computations that run, the innermost first."""
    lines: list[str] = []
    for depth in range(len(debugger.frames) - 1, -1, -1):
        frame = debugger.frames[depth]
        caller = debugger.frames[depth - 1].next if depth else None
        role = f", {frame.role} of %{caller.name}" if caller is not None else ""
        at = f" at %{frame.next.name}{_source(frame.next)}" if frame.next is not None else ""
        lines.append(f"#{len(lines)} {frame.computation.name}{role}{_iteration(debugger, depth)}{at}")
    return printable("\n".join(lines) or "the program has finished")


def _iteration(debugger: Debugger, depth: int) -> str:
    loop = debugger.frames[depth - 1].loop if depth else None
    return f" (iteration {loop.passes})" if loop is not None else ""


def listing_text(debugger: Debugger, around: int = 5) -> str:
    """The instructions of the computation around the one that is next, in the order in which they run."""
    if debugger.is_finished:
        return "the program has finished"
    frame = debugger.frames[-1]
    first = max(frame.position - around, 0)
    lines = [
        f"{'=>' if k == frame.position else '  '} {_line(step.instruction)}"
        for k, step in enumerate(frame.steps[first : frame.position + around + 1], first)
    ]
    return printable("\n".join(lines))


def _line(instruction: Instruction) -> str:
    text = f"{instruction}"
    cut = text.find(", metadata={")
    return text if cut < 0 else text[:cut]


def _source(instruction: Instruction) -> str:
    lines = source_lines(instruction)
    return f"  # {lines[0]}" if lines else ""


def origin_text(instruction: Instruction) -> str:
    """The name scope of an instruction and the calls of the user's program that made it."""
    lines = [f"scope {scope(instruction)}"] if scope(instruction) else []
    lines += [f"from {place}" for place in source_lines(instruction)]
    return printable("\n".join(lines) or f"%{instruction.name} says nothing of where it comes from")


def value_text(name: str, value: Any, *, whole: bool = False) -> str:
    """A value: shape, statistics, a histogram, and its elements if they are few or `whole`."""
    parts = leaves(value)
    names = [name] if len(parts) == 1 else [f"{name}[{k}]" for k in range(len(parts))]
    return printable("\n".join(_array_text(n, part, whole) for n, part in zip(names, parts, strict=True)))


def summary(array: Any) -> dict[str, float | int]:
    """Statistics of an array's elements; those of floats over the finite ones.

    Parameters
    ----------
    array : numpy.ndarray
        Of any type.

    Returns
    -------
    dict
        `size`, and where they are defined `min`, `max`, `mean`, `std`, `zeros`, `nan`, `inf`.
    """
    found: dict[str, float | int] = {"size": int(array.size)}
    finite = _finite(array)
    if is_floating(array):
        with np.errstate(all="ignore"):
            found["nan"] = int(np.count_nonzero(array != array))
        found["inf"] = int(array.size - finite.size) - found["nan"]
    if finite.size:
        found |= {"min": float(finite.min()), "max": float(finite.max())}
        with np.errstate(all="ignore"):
            found |= {"mean": float(finite.mean()), "std": float(finite.std())}
        found["zeros"] = int(np.count_nonzero(finite == 0))
    return found


def _finite(array: Any) -> Any:
    """The finite elements as f64, of complex numbers their magnitudes."""
    with np.errstate(all="ignore"):
        values = np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)
    return values[np.isfinite(values)]


def _array_text(name: str, array: Any, whole: bool) -> str:
    if array is None:
        return f"{name}: a token"
    title = f"{name}: {array.dtype}[{','.join(map(str, array.shape))}]"
    shown = np.array2string(array, threshold=1 << 40 if whole else 50, max_line_width=100)
    if array.size == 1:
        return f"{title} = {shown}"
    found = summary(array)
    numbers = ", ".join(f"{key} {value:.6g}" for key, value in found.items() if key != "size" and _counts(key, value))
    bars = _histogram(_finite(array)) if array.size > _BINS else ""
    elements = shown if whole or array.size <= _SHOWN else ""
    return "\n".join(filter(None, [f"{title}  {numbers}", bars, elements]))


def _counts(key: str, value: float) -> bool:
    return key not in ("nan", "inf", "zeros") or value > 0


def _histogram(values: Any) -> str:
    """A line for each bin of equal width."""
    if not values.size or values.min() == values.max():
        return ""
    with np.errstate(all="ignore"):
        low, high = float(values.min()), float(values.max())
        scaled = values / 2 - low / 2 if np.isinf(high - low) else values - low
        width = high / 2 - low / 2 if np.isinf(high - low) else high - low
        counts = np.bincount(np.minimum((scaled / width * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS)
    most = int(counts.max())
    edges = [low * (1 - k / _BINS) + high * (k / _BINS) for k in range(_BINS)]
    return "\n".join(
        f"  {edge:>12.5g}  {'#' * -(-_BAR * int(count) // most):<{_BAR}} {count}"
        for edge, count in zip(edges, counts, strict=True)
    )


def tree_text(debugger: Debugger, name: str, levels: int = 2) -> str:
    """Where a value comes from: the instruction, its operands and theirs, each with a line about its value."""
    depth, instruction = debugger.found(name)
    lines: list[str] = []

    def add(depth: int, instruction: Instruction, indent: int) -> None:
        try:
            about = _brief(debugger.held(depth, instruction))
        except ArgumentError:
            about = "has not run"
        lines.append(f"{'  ' * indent}%{instruction.name} = {instruction.opcode}  {about}{_source(instruction)}")
        if indent < levels:
            for d, operand in debugger.sources(depth, instruction):
                add(d, operand, indent + 1)

    add(depth, instruction, 0)
    return printable("\n".join(lines))


def users_text(name: str, instruction: Instruction) -> str:
    """Where a value goes: the instructions that take it."""
    lines = [f"%{user.name} = {user.opcode}{_source(user)}" for user in instruction.users]
    if instruction.is_root:
        computation: Computation | None = instruction.parent
        lines.append(f"the result of {computation.name if computation is not None else 'its computation'}")
    return printable("\n".join(lines) or f"nothing takes %{name}")


def way_text(crumbs: Sequence[Crumb]) -> str:
    """The way from a result back to where its numbers arise, that instruction first; of a long one both ends."""
    lines = [
        f"%{c.instruction.name} = {c.instruction.opcode} in {c.computation}"
        + (f" (iteration {c.iteration})" if c.iteration is not None else "")
        + _source(c.instruction)
        for c in reversed(crumbs)
    ]
    if len(lines) > _WAY:
        left = len(lines) - _WAY
        lines = [*lines[: _WAY // 2], f"... ({left} more)", *lines[-_WAY // 2 :]]
    return printable("\n".join(lines))


def _brief(value: Any) -> str:
    """A value in some words."""
    parts = leaves(value)
    if len(parts) != 1:
        return f"a tuple of {len(parts)}"
    if parts[0] is None:
        return "a token"
    if parts[0].size == 1:
        return f"{parts[0].reshape(())[()]}"
    found = summary(parts[0])
    keys = [key for key in ("min", "max", "nan", "inf") if key in found and _counts(key, found[key])]
    return f"{parts[0].dtype}{list(parts[0].shape)} " + " ".join(f"{key} {found[key]:.6g}" for key in keys)
