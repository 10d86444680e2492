"""Watched programs (HLOKIT_DEBUG): a NaN or an infinity in a result is an error that names its origin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hlokit.debugger.debugger import Debugger
from hlokit.debugger.describe import place_text, tree_text, way_text
from hlokit.debugger.numbers import KINDS, count, leaves
from hlokit.debugger.saved import save
from hlokit.debugger.way_back import way_back
from hlokit.errors import EvaluationError, HlokitError, ShadowMismatch, UnsupportedError
from hlokit.hlo.module import HloModule


class Watched:
    """A program whose calls raise EvaluationError where results have numbers of a kind that no argument has.

    The program is then run again on the reference, from the same arguments, and followed back to the instruction that
    made them. If the reference has none, each kernel is compared with it.
    """

    def __init__(self, module: HloModule, call: Callable[..., Any], kind: str) -> None:
        self._module = module
        self._call = call
        self._kind = kind

    def __call__(self, *arguments: Any) -> Any:
        had = _has(arguments, self._kind)
        result = self._call(*arguments)
        if not had and _has([result], self._kind):
            raise EvaluationError(self._account(arguments))
        return result

    def _account(self, arguments: Sequence[Any]) -> str:
        """Where the numbers come from, and how to look further."""
        what = KINDS[self._kind][1]
        try:
            debugger = Debugger(self._module, arguments)
            debugger.run()
            crumbs = way_back(debugger, self._kind) if debugger.is_finished else []
        except UnsupportedError as error:
            return f"{self._module.name}: {what} in the result; the interpreter cannot run the program: {error}"
        if not crumbs:
            return f"{self._module.name}: {what} in the result of the machine code. {self._machine_code(arguments)}"
        origin = crumbs[-1].instruction
        lines = [
            f"{self._module.name}: {what} arise here:",
            place_text(debugger),
            "from",
            *tree_text(debugger, origin.name, 1).splitlines()[1:],
            "and go on to",
            way_text(crumbs[:-1]),
        ]
        return "\n".join([*lines, *_saved(debugger)])

    def _machine_code(self, arguments: Sequence[Any]) -> str:
        """The kernel that makes what the reference does not."""
        from hlokit.api import compile

        try:
            compile(self._module, shadow=True, donate=())(*arguments)
        except ShadowMismatch as error:
            return f"The reference has none: {error}"
        except HlokitError as error:
            return f"The reference has none, and its kernels cannot be compared: {error}"
        return "The reference has none, and each kernel by itself agrees with it: they round differently."


def _has(values: Sequence[Any], kind: str) -> bool:
    return any(count(kind, leaf) for value in values for leaf in leaves(value))


def _saved(debugger: Debugger) -> list[str]:
    """A line that says how to go on from here; none if the session cannot be saved."""
    handle, name = tempfile.mkstemp(prefix="hlokit-debug-", suffix=".npz")
    os.close(handle)
    try:
        save(debugger, Path(name), [])
    except (UnsupportedError, OSError):
        Path(name).unlink(missing_ok=True)
        return []
    return [f"to look further: hlokit debug {name}"]
