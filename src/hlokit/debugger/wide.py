"""The same run in f64, to measure the effect of rounding on a value.

Beside each array of floats of the run a counterpart is kept, computed by the same instructions from the counterparts
of the operands, in f64 (complex numbers: c128). Branches, trip counts and integers are the run's own. What has no
meaning in another type (bits, random numbers, what other devices send) begins again from the run's values.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from hlokit.debugger.machine import Evaluated, Machine
from hlokit.debugger.numbers import is_floating, leaves
from hlokit.errors import HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import Dynamic, is_ndarray, is_sequence
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.process import Process
from hlokit.types.dtype import DType, dtype
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]
_AFRESH = frozenset({
    "constant", "bitcast", "bitcast-convert", "reduce-precision", "custom-call", "rng", "rng-bit-generator",
    "rng-get-and-update-state", "convert",
})  # fmt: skip
"""Opcodes whose counterpart is the run's value itself; of conversions between floats it is the operand's."""


@dataclass
class _Counterpart:
    array: _Array
    ulps: float
    alive: weakref.ref[_Array] = field(repr=False)


class Wide:
    """The counterparts of a run's arrays."""

    def __init__(self, module: HloModule) -> None:
        self._instructions = {i.name: i for i in _widened(module).instructions()}
        self._process = Process()
        self._known: dict[int, _Counterpart] = {}

    def after(self, event: Evaluated) -> tuple[float, str]:
        """The distance of the value from f64, in ulps, and the place; keeps the counterpart."""
        found = self._value(event)
        worst, where = 0.0, ""
        for part, wide in zip(leaves(event.value), leaves(found), strict=True):
            if part is None or not is_floating(part):
                continue
            known = self._known.get(id(part))
            if known is not None and known.alive() is part:
                continue  # an array of an operand, passed on
            ulps, text = ulps_between(part, wide)
            self._keep(part, wide, ulps)
            if ulps > worst:
                worst, where = ulps, text
        return worst, where

    def operands_within(self, event: Evaluated, ulps: float) -> bool:
        """Whether no operand is further from f64 than that."""
        return all(self._ulps(part) <= ulps for o in event.operands for part in leaves(o))

    def _ulps(self, array: Any) -> float:
        known = self._known.get(id(array)) if array is not None else None
        return known.ulps if known is not None and known.alive() is array else 0.0

    def _keep(self, array: _Array, wide: _Array, ulps: float) -> None:
        key, known = id(array), self._known
        known[key] = _Counterpart(wide, ulps, weakref.ref(array, lambda _: known.pop(key, None)))

    def _of(self, value: Any) -> Any:
        """The counterpart of a value."""
        if is_sequence(value):
            return tuple(self._of(part) for part in value)
        if isinstance(value, Dynamic) or not is_ndarray(value) or not is_floating(value):
            return value
        known = self._known.get(id(value))
        return known.array if known is not None and known.alive() is value else _cast(value)

    def _value(self, event: Evaluated) -> Any:
        """The value in f64; the run's own where that has no meaning."""
        instruction, own = event.instruction, _plain(event.value)
        opcode = instruction.opcode
        if opcode == "convert" and is_floating(event.value) and is_floating(event.operands[0]):
            return self._of(event.operands[0])
        if opcode in _AFRESH or instruction.op.form == "communicate" or not _floats(event.value):
            return own
        if any(isinstance(o, Dynamic) for o in event.operands):
            return own
        try:
            twin, operands = self._instructions[instruction.name], [*map(self._of, event.operands)]
            wide = run_instruction(self._process, twin, operands)
        except (HlokitError, TypeError, ValueError):
            return own
        return wide if _fit(wide, event.value) else own


def _floats(value: Any) -> bool:
    return any(part is not None and is_floating(part) for part in leaves(value))


def _fit(wide: Any, value: Any) -> bool:
    ours, theirs = leaves(wide), leaves(value)
    return len(ours) == len(theirs) and all(
        (a is None) == (b is None) and (a is None or a.shape == b.shape) for a, b in zip(ours, theirs, strict=True)
    )


def _plain(value: Any) -> Any:
    if is_sequence(value):
        return tuple(_plain(part) for part in value)
    return _cast(value) if is_ndarray(value) and is_floating(value) else value


def _cast(array: _Array) -> _Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _widened(module: HloModule) -> HloModule:
    """A copy whose floats are all f64. It may break rules of the language: its instructions are run one by one."""
    copy = module.clone()
    for computation in copy.computations():
        for instruction in computation.instructions:
            instruction.shape = _wide_shape(instruction.shape)
            declared = instruction.op.result_shape
            if declared is not None and instruction.opcode not in _AFRESH:
                instruction.op = instruction.op.replace(**{declared.name: instruction.shape})
    return copy


def _wide_shape(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(map(_wide_shape, shape.elements))
    if not shape.is_array or not (shape.dtype.is_floating or shape.dtype.is_complex):
        return shape
    return shape.with_dtype(_C128 if shape.dtype.is_complex else _F64)


_F64: DType = dtype("f64")
_C128: DType = dtype("c128")


def ulps_between(found: _Array, wide: _Array) -> tuple[float, str]:
    """The most units in the last place of `found`'s type that an element of it is from one in f64, and where.

    Infinite where only one of both is NaN, or where `found` has overflowed though its type has the number.

    >>> ulps_between(np.float32([1.0]), np.float64([1.0 + 2**-22]))
    (2.0, '[0]: found 1.0, f64 has 1.0000002384185791')
    """
    if not found.size:
        return 0.0, ""
    if found.dtype.kind == "c":
        halves = [ulps_between(np.asarray(getattr(found, p)), np.asarray(getattr(wide, p))) for p in ("real", "imag")]
        return max(halves)
    finfo: Any = ml_dtypes.finfo
    info = finfo(found.dtype)
    eps, least, most = float(info.eps), float(info.smallest_subnormal), float(info.max)
    with np.errstate(all="ignore"):
        ours = found.astype(np.float64)
        _, exponents = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
        unit = np.maximum(np.ldexp(eps, exponents - 1), least)
        ulps = np.abs(ours - wide) / unit
        beyond = (np.abs(wide) >= most) & (np.abs(ours) >= most) & (np.sign(ours) == np.sign(wide))
        ulps = np.where((np.isnan(ours) & np.isnan(wide)) | beyond | (ours == wide), 0.0, ulps)
        ulps = np.where(np.isnan(ulps), np.inf, ulps)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ulps)), ulps.shape))
    return float(ulps[index]), f"{list(index)}: found {found[index]}, f64 has {float(wide[index])!r}"


@dataclass
class BeyondUlps:
    """After an instruction whose value is further from f64 than so many ulps, though no operand is."""

    text: str
    ulps: float
    wide: Wide

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        return ""

    def after(self, machine: Machine, event: Evaluated) -> str:
        within = self.wide.operands_within(event, self.ulps)
        ulps, where = self.wide.after(event)
        if ulps <= self.ulps or not within:
            return ""
        return f"%{event.instruction.name} is {ulps:,.4g} ulps from f64 at {where}"
