"""Blame: the pass or the kernel of hlokit that makes a result wrong, determined in the process of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hlokit.devices.evaluate import evaluate
from hlokit.errors import HlokitError, ShadowMismatch
from hlokit.hlo.module import HloModule
from hlokit.judge.closeness.equality import differs, leaves
from hlokit.judge.closeness.spread import near
from hlokit.judge.devices import devices_of
from hlokit.passes.pipeline import DEFAULT, Pass, PassLike, optimize


class Blame(NamedTuple):
    """The cause of a wrong result.

    kind          "pass" or "kernel"
    name          the pass's; the instruction whose value the kernel gets wrong
    instructions  those that the kernel computes
    message       what is wrong
    program       the kernel's instructions as HLO text, whose arguments are its operands
    operands      the name of an .npz with these
    """

    kind: Literal["pass", "kernel"]
    name: str
    instructions: tuple[str, ...] = ()
    message: str = ""
    program: str = ""
    operands: str = ""


def blame(
    engine: str, module: HloModule, arguments: Sequence[Any], folder: Path, begin: Callable[[str], Any]
) -> Blame | None:
    """The first pass after which the reference gives another result (or which fails); else the first kernel that gives
    another than the interpreter for the operands in memory, of a program for one device. None if there is neither.

    engine   "passes", "compiled", "compiled-1" or "strict"
    folder   where the operands of a kernel are written
    begin    is told the name of each pass before it runs, and "" when all are done: whoever waits for a process that
             ends or hangs then knows where
    """
    if engine == "passes":
        return _guilty_pass(module, arguments, DEFAULT, begin, exact=True)
    if engine not in ("compiled", "compiled-1", "strict"):
        return None
    from hlokit.cpu.compiler import EXACT, PIPELINE

    strict = engine == "strict"
    found = _guilty_pass(module, arguments, EXACT if strict else PIPELINE, begin, exact=strict)
    if found is not None or devices_of(module) > 1:
        return found
    return _guilty_kernel(module, arguments, engine, folder)


def _guilty_pass(
    module: HloModule,
    arguments: Sequence[Any],
    passes: Sequence[PassLike],
    begin: Callable[[str], Any],
    *,
    exact: bool,
) -> Blame | None:
    """`exact`: the passes keep every bit."""
    expected = leaves(evaluate(module, *arguments))
    now, text = module, module.to_text()
    for one in passes:
        name = one if isinstance(one, str) else one.name if isinstance(one, Pass) else one.__name__
        begin(name)
        try:
            now = optimize(now, [one])
            if now.to_text() == text:
                continue
            text = now.to_text()
            found = leaves(evaluate(now, *arguments))
        except Exception as error:  # whatever a pass raises, or leaves behind that does not run, is its own
            return Blame("pass", name, message=f"{type(error).__name__}: {error}")
        what = _difference(found, expected)
        if what is not None and not exact:
            what = near(tuple(found), tuple(expected), module, arguments, 0)
        if what is not None:
            return Blame("pass", name, message=what)
    begin("")
    return None


def _difference(found: list[Any], expected: list[Any]) -> str | None:
    if len(found) != len(expected):
        return f"{len(found)} results, not {len(expected)}"
    return differs(tuple(found), tuple(expected))


def _guilty_kernel(module: HloModule, arguments: Sequence[Any], engine: str, folder: Path) -> Blame | None:
    from hlokit.runtime.compile import compile_module
    from hlokit.runtime.shadow import shadowed

    options: dict[str, Any] = {"compiled-1": {"threads": 1}, "strict": {"strict": True}}.get(engine, {})
    try:
        shadowed(compile_module(module, **options), folder)(*arguments)
    except ShadowMismatch as error:
        path = Path(str(error.reproducer))
        text, operands = path.read_text(encoding="utf-8"), str(path.with_suffix(".npz"))
        what = str(error).partition("\n")[0]
        return Blame("kernel", error.result, tuple(error.instructions), what, text, operands)
    except HlokitError:
        return None
    return None
