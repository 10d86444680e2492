"""Runners of programs: compiled, or in the interpreter (HLOKIT_BACKEND), and in shadow mode (HLOKIT_SHADOW)."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.errors import ArgumentError
from hlokit.hlo.module import HloModule
from hlokit.interpreter.arguments import argument
from hlokit.interpreter.process import StepHook
from hlokit.runtime.compilation import Interface
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

if TYPE_CHECKING:
    from hlokit.interop.pjrt.programs import Program
    from hlokit.runtime.executable import Executable
    from hlokit.runtime.native_grid import NativeGrid

_Array = np.ndarray[Any, Any]
Part = tuple[slice, ...]
"""The part of a value that a device has."""


class Runner:
    """Runs a program on a list of arrays for each device; gives a list for each.

    `executable`: its machine code, if it has any that one device runs. `module`: what a device runs, as JAX shows it.
    `overwritten`: the numbers of arguments that a call writes to, which may give them back as results. `grid`: runs it
    in parts, on every device on its own, without Python.
    """

    executable: Executable | None = None
    grid: NativeGrid | None = None
    overwritten: Sequence[int] = ()

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def module(self) -> HloModule:
        return self.program.module

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        raise NotImplementedError

    @property
    def interface(self) -> Interface:
        """The interface of what a device runs."""
        return Interface.of(self.module)

    def check(self, values: Sequence[_Array]) -> None:
        """Raises ArgumentError unless a device's program takes these values."""
        for number, (value, (name, shape)) in enumerate(zip(values, self.interface.parameters, strict=True)):
            if shape.is_array:
                argument(f"argument {number} ({name})", shape, value)

    def result_dimensions(self, number: int) -> tuple[int, ...]:
        """The sizes that every device has of a result."""
        return self.program.results[number].dimensions

    def shardings(self) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
        """The parameters', the results'."""
        return [None] * len(self.program.parameters), [None] * len(self.program.results)

    def values(self) -> list[Shape]:
        """The shapes of the entry's parameters and results, as `cuts` has parts of them."""
        return [*self.program.parameters, *self.program.results]

    def cuts(self) -> list[list[Part]] | None:
        """For each parameter and result the part that each device has, if `executable` runs once for all of them; in
        parts, with a `grid`, what a device has is the whole of its own."""
        if self.program.options.count > 1:
            return None
        return [[(slice(None),) * shape.rank] for shape in (*self.program.parameters, *self.program.results)]

    def _listed(self, result: Any) -> list[Any]:
        """The results; a token is an array without elements."""
        values = list(result) if self.program.is_tuple else [result]
        return [np.zeros(0, np.bool_) if value is None else value for value in values]


class Interpreted(Runner):
    """One device in the interpreter, in shadow mode (kernels' results are compared with the interpreter's), or watched.

    `call` runs the module as hlokit.evaluate does.
    """

    def __init__(self, program: Program, call: Callable[..., Any]) -> None:
        super().__init__(program)
        self._call = call

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        return [self._listed(self._call(*arguments[0]))]


class Compiled(Runner):
    """One device's machine code."""

    def __init__(self, program: Program, executable: Executable) -> None:
        super().__init__(program)
        self.executable = executable
        self.overwritten = executable.plan.overwritten

    @property
    def interface(self) -> Interface:
        return self.program.interface  # known without reading the module

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        assert self.executable is not None
        return [self._listed(self.executable(*arguments[0]))]


def interpreted(program: Program) -> Runner:
    """A function that runs the program on one device in the interpreter, or in shadow mode."""
    options = {"shadow": True, "threads": program.options.threads} if is_shadowed() else {}
    return Interpreted(program, callable_of(program.module, 1, 1, **options))


def watched(program: Program) -> Runner:
    """A function that runs the program's machine code on one device and explains NaNs in its results."""
    from hlokit.interop.pjrt.watched import Watched

    call = callable_of(program.module, 1, 1, threads=program.options.threads)
    return Interpreted(program, Watched(program.module, call, watched_kind()))


def callable_of(module: HloModule, replicas: int, partitions: int, **options: Any) -> Any:
    """A function that runs the module on so many devices, as hlokit.evaluate does.

    The environment chooses between the interpreter and machine code, which is made here.
    """
    if backend() == "interpreter":
        return partial(_evaluated, module, replicas, partitions)
    from hlokit.api import compile

    options = {"donate": (), **options}
    return compile(module, replicas=replicas, partitions=partitions, **options)


@contextmanager
def step_hooks(before: StepHook | None = None, after: StepHook | None = None) -> Generator[None]:
    """Inside, programs that the interpreter runs (`HLOKIT_BACKEND=interpreter`) call these around every instruction.

    Parameters
    ----------
    before : callable, optional
        before(instruction, operand values).
    after : callable, optional
        after(instruction, (value,)).

    Returns
    -------
    context manager
        The hooks hold inside.
    """
    _hooks.append((before, after))
    try:
        yield
    finally:
        _hooks.pop()


_hooks: list[tuple[StepHook | None, StepHook | None]] = [(None, None)]


def _evaluated(module: HloModule, replicas: int, partitions: int, *args: Any, world: Any = None) -> Any:
    from hlokit.devices.evaluate import evaluate
    from hlokit.interpreter.nan_trap import nan_trap

    before, after = _hooks[-1]
    if traps_nan():
        after = nan_trap(after)
    return evaluate(
        module, *args, replicas=replicas, partitions=partitions, before=before, after=after, world=world
    )  # fmt: skip


def backend() -> str:
    """HLOKIT_BACKEND: compiled, or interpreter."""
    found = os.environ.get("HLOKIT_BACKEND", "compiled")
    if found not in ("compiled", "interpreter"):
        raise ArgumentError(f"HLOKIT_BACKEND={found!r}: expected compiled or interpreter")
    return found


def traps_nan() -> bool:
    """HLOKIT_TRAP_NAN, which programs of the interpreter hear."""
    return os.environ.get("HLOKIT_TRAP_NAN", "0") not in ("", "0")


def is_shadowed() -> bool:
    """HLOKIT_SHADOW."""
    return backend() == "compiled" and os.environ.get("HLOKIT_SHADOW", "0") not in ("", "0")


def watched_kind() -> str:
    """HLOKIT_DEBUG: the kind of numbers that programs are watched for; empty for none."""
    found = os.environ.get("HLOKIT_DEBUG", "")
    if found not in ("", "first-nan", "first-inf"):
        raise ArgumentError(f"HLOKIT_DEBUG={found!r}: expected first-nan or first-inf")
    return found.removeprefix("first-")


def profile_file() -> str:
    """HLOKIT_PROFILE: the file for the table of the steps' times; empty for none."""
    return os.environ.get("HLOKIT_PROFILE", "")
