"""Bounds: how much an engine's value of one instruction may differ from the reference's for the same operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hlokit.analysis.cost import operations
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import COMPOSED, ROUNDED, SUMMED, Rounding
from hlokit.judge.closeness.equality import bits, info_of, is_array, is_nan
from hlokit.judge.closeness.orders import ENDS, is_sum, nearest, reordered


def allowed(instruction: Instruction) -> Rounding:
    """The error that its value may have: its op's, and that of a computation which it calls."""
    op = instruction.op
    if op.rounding is SUMMED and op.form in ("contraction", "fold"):
        return _of_terms(instruction)
    if op.rounding is not None:
        return op.rounding
    if op.form == "control" and instruction.called:
        return SUMMED
    is_complex = any(o.shape.is_array and o.shape.dtype.is_complex for o in instruction.operands)
    return COMPOSED if is_complex and not getattr(op, "exact_complex", True) else ROUNDED


def _of_terms(instruction: Instruction) -> Rounding:
    """The error of sums: in types narrower than f32, whose last place is a large part of a number, that of as many
    roundings as there are terms, which grows with their square root."""
    results = list(instruction.shape.leaves())
    if any(result.dtype.bits >= 32 or not result.dtype.is_floating for result in results):
        return SUMMED
    terms = operations(instruction) / max(1, results[0].size)
    roundings = 2 * math.sqrt(terms)
    return Rounding(min(SUMMED.ulps, roundings), min(SUMMED.parts, roundings))


def computed_by(instruction: Instruction) -> Instruction:
    """The instruction itself, or the one that made the tuple of which it is an element."""
    while instruction.opcode == "get-tuple-element":
        instruction = instruction.operands[0]
    return instruction


def difference(instruction: Instruction, ours: Any, theirs: Any, operands: list[Any]) -> str | None:
    """The place where an engine's value of an instruction is not what it may be, or None.

    ours       the reference's value, from `operands`, the values that the engine computed for the operands
    theirs     the engine's value
    """
    source = computed_by(instruction)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"the reference is {ours.dtype}{list(ours.shape)}, found {theirs.dtype}{list(theirs.shape)}"
    element = instruction.shape.dtype
    if not (element.is_floating or element.is_complex):
        same = ours == theirs
    elif source.opcode in ("bitcast-convert", "bitcast"):
        same = (bits(ours) == bits(theirs)) | (is_nan(ours) & is_nan(theirs))
    else:
        rounding = allowed(source)
        same = _close(ours, theirs, *rounding[:2], _magnitude(operands))
        if source is instruction and is_sum(source) and not np.all(same):
            near = _in_any_order(instruction, ours, theirs, operands)
            same = same | _close(near, theirs, *rounding[:2], _magnitude(operands))
        if rounding.takes_other_steps:  # which need not meet what is no number in the reference's
            same = same | ~np.isfinite(np.abs(ours).astype(np.float64))
    if np.all(same):
        return None
    index = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0])
    message = f"found {theirs[index]}, the reference is {ours[index]}, at {list(index)}"
    if source.op.form != "map":
        return message
    return f"{message}, of operands {', '.join(str(o[index]) for o in _arrays(operands) if o.shape == ours.shape)}"


def _in_any_order(instruction: Instruction, ours: Any, theirs: Any, operands: list[Any]) -> Any:
    """The values nearest to the engine's of those that a sum may have by the order of its terms."""
    chance = np.random.default_rng(0)
    values = [ours, *(reordered(instruction, operands, ours, chance) for _ in range(ENDS))]
    if ours.dtype.kind != "c":
        return nearest(theirs.astype(np.float64), [v.astype(np.float64) for v in values]).astype(ours.dtype)
    found = np.empty_like(ours)
    found.real = nearest(theirs.real, [v.real for v in values])
    found.imag = nearest(theirs.imag, [v.imag for v in values])
    return found


def _arrays(values: list[Any]) -> list[np.ndarray[Any, Any]]:
    return [value for value in values if is_array(value)]


def _magnitude(operands: list[Any]) -> float:
    """The greatest finite magnitude among the operands."""
    greatest = 0.0
    for operand in _arrays(operands):
        if operand.size and operand.dtype != bool:
            wide: Any = np.abs(operand.astype(np.complex128 if operand.dtype.kind == "c" else np.float64))
            wide = wide[np.isfinite(wide)]
            greatest = max(greatest, float(wide.max(initial=0.0)))
    return greatest


def _close(ours: Any, theirs: Any, ulps: float, parts: float, magnitude: float) -> Any:
    if ours.dtype.kind == "c":
        whole = np.maximum(np.abs(ours), 0)
        scale = np.where(np.isfinite(whole), whole, 0.0)
        pairs = ((ours.real, theirs.real), (ours.imag, theirs.imag))
        return np.logical_and(*(_near(a, b, ulps, parts, magnitude, scale) for a, b in pairs))
    return _near(ours, theirs, ulps, parts, magnitude, 0.0)


def _near(ours: Any, theirs: Any, ulps: float, parts: float, magnitude: float, scale: Any) -> Any:
    """NaN with NaN, equal infinities, else within the tolerance; +0 and -0 are told apart where nothing is rounded."""
    info = info_of(ours.dtype)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    nan = np.isnan(a) & np.isnan(b)
    if not ulps and not parts:
        return nan | ((a == b) & (np.signbit(a) == np.signbit(b)))
    size = np.maximum(np.abs(np.where(np.isfinite(a), a, 0)), scale)
    room = float(info.eps) * (ulps * size + parts * min(magnitude, float(info.max))) + float(info.smallest_normal)
    finite = np.isfinite(a) & np.isfinite(b)
    return nan | (a == b) | (finite & (np.abs(a - b) <= room))
