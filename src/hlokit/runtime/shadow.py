"""Shadow mode: every kernel's result is compared with the interpreter's for the operands in memory.

Before a kernel runs, what it will overwrite is copied; after it, the instructions that it computes are evaluated, as a
module of their own, on the arrays that it read. So a wrong kernel is found where it is wrong, inside loops and branches
as well.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.cpu.emit.traced import touched, watched
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.buffers import Home
from hlokit.cpu.lower.portion import Portion, portions
from hlokit.cpu.lower.steps import Step
from hlokit.devices.evaluate import evaluate
from hlokit.errors import ShadowMismatch
from hlokit.files.arrays import storable
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_ndarray, is_sequence
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.order import evaluation_order
from hlokit.interpreter.process import Process
from hlokit.ops.structure import Parameter
from hlokit.runtime.arrays import leaves, view
from hlokit.runtime.instrumented import twin
from hlokit.runtime.interrupt import step_address
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.runtime.executable import Executable

_Array = np.ndarray[Any, Any]
_TRIES = 3
"""Evaluations with values changed in their last places, which tell how much rounding matters."""


def shadowed(executable: Executable, directory: str | Path | None = None) -> Executable:
    """A twin whose calls raise ShadowMismatch at the first kernel that is wrong.

    `directory`: where the reproducer goes; by default a new one among the system's temporary ones.
    """
    return _Shadow(executable, Path(directory) if directory is not None else None).executable


@dataclass(frozen=True)
class _Check:
    """A kernel: its portion, the places of operands and results among the pointers, and operands to be copied first."""

    portion: Portion
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    saved: tuple[int, ...]
    shapes: tuple[Shape, ...]
    result_shapes: tuple[Shape, ...]


class _Shadow:
    def __init__(self, executable: Executable, directory: Path | None) -> None:
        self.directory = directory
        self.strict = executable.strict
        program = executable.program
        traced = watched(program)
        parts: dict[Step, tuple[Portion, dict[Buffer, Home]]] = {}
        for block, assignment in program.blocks:
            parts |= {step: (part, assignment.homes) for step, part in portions(block)}
        self.checks: list[_Check | None] = []
        for step in traced.steps:
            if step not in parts:
                self.checks.append(None)
                continue
            part, homes = parts[step]
            written = {id(homes[buffer]) for buffer in step.writes}
            self.checks.append(_check(part, touched(step), lambda b, h=homes, w=written: id(h[b]) in w))
        self._local = threading.local()
        self._function = self._asked  # held, since machine code has its address
        self.executable = twin(executable, traced, (step_address(), id(self._function)), self._function)

    def _asked(self, number: int, table: int) -> None:
        check = self.checks[number // 2]
        if check is None:
            return
        if number % 2:
            runs: Counter[int] = vars(self._local).setdefault("runs", Counter())
            self._compare(check, table, runs[number])
            runs[number] += 1
        else:
            self._local.saved = {k: _operand(check, k, table).copy() for k in check.saved}

    def _compare(self, check: _Check, table: int, run: int) -> None:
        saved: dict[int, _Array] = self._local.saved
        operands = [
            saved[k]
            if k in saved
            else _operand(check, k, table)
            if place is not None
            else np.zeros(s.dimensions, s.dtype.numpy)
            for k, (place, s) in enumerate(zip(check.operands, check.shapes, strict=True))
        ]
        found = [view(_pointer(table, p), s) for p, s in zip(check.results, check.result_shapes, strict=True)]
        expected = _evaluated(check.portion, operands)
        wrong = [_differs(f, e, self.strict) for f, e in zip(found, expected, strict=True)]
        if not self.strict and any(w.any() for w in wrong):
            wrong = _beyond_rounding(check.portion, operands, found, expected, wrong)
        for k, (which, f, e) in enumerate(zip(wrong, found, expected, strict=True)):
            if which.any():
                index = tuple(int(i) for i in np.argwhere(which)[0])
                path = _reproducer(check.portion, operands, found, self.directory)
                name = check.portion.results[k].name
                raise ShadowMismatch(
                    check.portion.fused, name, index, f[index].item(), e[index].item(), int(which.sum()), path, run
                )


def _check(part: Portion, buffers: Sequence[Buffer], is_overwritten: Callable[[Buffer], bool]) -> _Check:
    places = {buffer: k for k, buffer in reversed(list(enumerate(buffers)))}
    operands = tuple(None if b is None else places[b] for b in part.operands)
    saved = tuple(k for k, b in enumerate(part.operands) if b is not None and is_overwritten(b))
    shapes = tuple(p.shape for p in part.module.entry.parameters)
    root = part.module.entry.root.shape
    return _Check(part, operands, tuple(places[b] for b in part.results), saved, shapes, tuple(root.leaves()))


def _pointer(table: int, place: int) -> int | None:
    return ctypes.c_void_p.from_address(table + 8 * place).value


def _operand(check: _Check, number: int, table: int) -> _Array:
    place = check.operands[number]
    assert place is not None
    return view(_pointer(table, place), check.shapes[number])


def _evaluated(part: Portion, operands: Sequence[_Array]) -> list[_Array]:
    value = evaluate(part.module, *operands)
    return list(leaves(value)) if is_sequence(value) else [value]


# -- comparing


def _differs(found: _Array, expected: _Array, strict: bool) -> _Array:
    """Which elements are not the same value, or in code that may round otherwise not near it."""
    if found.dtype.kind in "biu" or "int" in found.dtype.name:
        return np.asarray(found != expected)
    same = _same(found, expected)
    if strict:
        return ~same
    a, b = _wide(found), _wide(expected)
    tolerance = _tolerance(found.dtype)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max(initial=0.0))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= tolerance * (np.abs(b) + scale / 16)
    return ~(same | near)


def _same(found: _Array, expected: _Array) -> _Array:
    a, b = _wide(found), _wide(expected)
    parts = [(a.real, b.real), (a.imag, b.imag)] if a.dtype.kind == "c" else [(a, b)]
    same = np.ones(a.shape, bool)
    for x, y in parts:
        same &= ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
    return same


def _wide(array: _Array) -> Any:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _tolerance(dtype: np.dtype[Any]) -> float:
    """64 units in the last place."""
    import ml_dtypes

    if dtype.kind == "c":
        dtype = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    finfo: Any = ml_dtypes.finfo
    return min(0.5, 64 * float(finfo(dtype).eps)) if dtype.itemsize > 1 else 0.5


def _beyond_rounding(
    part: Portion, operands: Sequence[_Array], found: Sequence[_Array], expected: Sequence[_Array], wrong: list[_Array]
) -> list[_Array]:
    """Those of the elements that differ which rounding does not explain: values changed in their last places, those of
    operands and of all instructions, do not make them differ as much."""
    generator = np.random.default_rng(0)
    spread = [np.zeros(w.shape) for w in wrong]
    for _ in range(_TRIES):
        moved = _moved(part, operands, generator)
        for total, value, reference in zip(spread, moved, expected, strict=True):
            with np.errstate(all="ignore"):
                distance = np.abs(_wide(value) - _wide(reference))
            np.maximum(total, np.where(np.isnan(distance), np.inf, distance), out=total)
    result: list[_Array] = []
    for w, s, f, e in zip(wrong, spread, found, expected, strict=True):
        is_exact = f.dtype.kind in "biu" or "int" in f.dtype.name
        with np.errstate(all="ignore"):
            explained = (s > 0) if is_exact else np.abs(_wide(f) - _wide(e)) <= 16 * s
        result.append(w & ~np.where(np.isinf(s), True, explained))
    return result


def _moved(part: Portion, operands: Sequence[_Array], generator: np.random.Generator) -> list[_Array]:
    """The results if every number on the way is off by some units in the last place."""
    process, values = Process(), dict[Instruction, Any]()
    entry = part.module.entry
    for instruction in evaluation_order(entry):
        op = instruction.op
        if isinstance(op, Parameter):
            value = operands[op.number]
        else:
            value = run_instruction(process, instruction, [values[o] for o in instruction.operands])
        if op.form not in ("index", "control") or isinstance(op, Parameter):
            parts: list[Any] = list(value) if is_sequence(value) else [value]
            parts = [_nudged(generator, p) if is_ndarray(p) else p for p in parts]
            value = tuple(parts) if is_sequence(value) else parts[0]
        values[instruction] = value
    result = values[entry.root]
    return list(leaves(result)) if is_sequence(result) else [result]


def _nudged(generator: np.random.Generator, array: _Array) -> _Array:
    """Floats changed by some units in the last place."""
    if array.dtype.kind in "biu" or "int" in array.dtype.name:
        return array
    eps = _tolerance(array.dtype) / 16
    part: _Array = generator.random(array.size).reshape(array.shape)
    with np.errstate(all="ignore"):
        moved: _Array = np.multiply(_wide(array), 1 + eps * (2 * part - 1))
        return moved.astype(array.dtype)


# -- the reproducer


def _reproducer(part: Portion, operands: Sequence[_Array], found: Sequence[_Array], directory: Path | None) -> Path:
    """Writes NAME.hlo and NAME.npz for `hlokit run NAME.hlo --input NAME.npz`; gives the path of the first."""
    folder = directory if directory is not None else Path(tempfile.mkdtemp(prefix="hlokit-shadow-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name(part.module.name)}.hlo"
    path.write_text(part.module.to_text(), encoding="utf-8")
    named = zip((p.name for p in part.module.entry.parameters), operands, strict=True)
    arrays = {name: storable(value) for name, value in named}
    arrays |= {f"kernel{k}": storable(value) for k, value in enumerate(found)}
    np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays)  # type: ignore[arg-type]
    return path


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100]
