"""When a value that XLA computed counts as the same as ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import hlokit as hk
from hlokit.hlo.instruction import Instruction
from hlokit.ops.transcendental import Transcendental

_FUNCTIONS = {name for name, op in hk.OPS.items() if issubclass(op, Transcendental)} | {"power", "atan2"}
_ROUNDED_OFTEN = {
    *("dot", "ragged-dot", "scaled-dot", "convolution", "reduce", "reduce-window", "scan", "scatter", "fft"),
    *("cholesky", "triangular-solve", "select-and-scatter", "map", "while", "call", "conditional"),
    *("batch-norm-training", "batch-norm-inference", "batch-norm-grad"),
}


def allowed(opcode: str) -> tuple[float, float]:
    """(units in the last place, part of the greatest magnitude among operands and result) that may be missing."""
    if opcode in _ROUNDED_OFTEN:
        return 64, 64
    if opcode in _FUNCTIONS:
        return 16, 0
    return (4, 0) if opcode in ("divide", "complex", "multiply", "remainder", "abs", "sign") else (0, 0)


def difference(instruction: Instruction, ours: Any, theirs: Any, operands: list[Any]) -> str | None:
    """None if they agree, else where they do not."""
    source = instruction
    while source.opcode == "get-tuple-element":
        source = source.operands[0]
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"ours is {ours.dtype}{list(ours.shape)}, XLA's {theirs.dtype}{list(theirs.shape)}"
    element = instruction.shape.dtype
    if not (element.is_floating or element.is_complex):
        same = ours == theirs
    elif source.opcode in ("bitcast-convert", "bitcast"):
        same = (_bits(ours) == _bits(theirs)) | (_nan(ours) & _nan(theirs))
    else:
        same = _close(ours, theirs, *allowed(source.opcode), _magnitude(operands))
    if np.all(same):
        return None
    index = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0])
    at = [o[index] for o in operands if isinstance(o, np.ndarray) and o.shape == ours.shape]
    return f"ours {ours[index]}, XLA's {theirs[index]}, at {list(index)}, of operands {[str(a) for a in at]}"


def _bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}").reshape(array.shape)


def _nan(array: Any) -> Any:
    return np.isnan(array) if array.dtype.kind in "fc" else np.isnan(array.astype(np.float32))


def _magnitude(operands: list[Any]) -> float:
    """The greatest finite magnitude among the operands."""
    greatest = 0.0
    for operand in operands:
        if isinstance(operand, np.ndarray) and operand.size and operand.dtype != bool:
            wide = np.abs(operand.astype(np.complex128 if operand.dtype.kind == "c" else np.float64))
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
    info = ml_dtypes.finfo(ours.dtype)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    nan = np.isnan(a) & np.isnan(b)
    if not ulps and not parts:
        return nan | ((a == b) & (np.signbit(a) == np.signbit(b)))
    size = np.maximum(np.abs(np.where(np.isfinite(a), a, 0)), scale)
    room = float(info.eps) * (ulps * size + parts * min(magnitude, float(info.max))) + float(info.smallest_normal)
    finite = np.isfinite(a) & np.isfinite(b)
    return nan | (a == b) | (finite & (np.abs(a - b) <= room))
