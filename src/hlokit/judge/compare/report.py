"""Reports: a finding as Markdown that can be filed, with the program, its arguments and the command to reproduce it."""

from __future__ import annotations

import os
import platform
import shlex
from importlib import metadata
from pathlib import Path

import numpy as np

from hlokit.files.arrays import leaves_of, npz_of
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.judge.closeness.equality import leaves
from hlokit.judge.compare.comparing import ALWAYS, Comparison, Judgement, compare_engines
from hlokit.judge.compare.least import least
from hlokit.judge.devices import devices_of
from hlokit.judge.engines.engine import CommandEngine, Engine, FunctionEngine
from hlokit.rules import rules

PROGRAM, ARGUMENTS, REPORT = "program.hlo", "arguments.npz", "report.md"
_SHOWN = 40
"""Elements of an array that a report shows."""


def write_report(
    comparison: Comparison, judgement: Judgement, engine: Engine, folder: Path, time_limit: float | None = None
) -> Judgement:
    """Reduces a finding and writes the program, its arguments and the report to a folder. Gives the judgement of the
    least program, which has the same verdict: if it has another, the report is on the program as it was given.

    Raises ArgumentError if the engine does not show the finding again.
    """
    shown = _least(comparison, judgement, engine, time_limit)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROGRAM).write_text(shown.module.to_text("short_parsable"), encoding="utf-8")
    (folder / ARGUMENTS).write_bytes(npz_of(shown.arguments, "in"))
    (folder / REPORT).write_text(markdown(shown, engine, (comparison.module, judgement)), encoding="utf-8")
    return shown.judgements[0]


def _least(comparison: Comparison, judgement: Judgement, engine: Engine, time_limit: float | None) -> Comparison:
    """The comparison of the least program on the engine."""
    given = Comparison(comparison.module, comparison.arguments, comparison.expected, (judgement,))
    if judgement.message.endswith(ALWAYS):
        return given
    found = least(comparison, judgement, engine, time_limit)
    small = compare_engines(found.module, found.arguments or (), [engine])
    return small if small.judgements[0].verdict == judgement.verdict else given


def markdown(comparison: Comparison, engine: Engine, origin: tuple[HloModule, Judgement] | None = None) -> str:
    """The report of a comparison with one engine; `origin`: the program that it was reduced from, and its judgement."""
    (judgement,) = comparison.judgements
    where = judgement.instruction or (judgement.guilty and f"pass {judgement.guilty}") or comparison.module.name
    lines = [f"# {engine.name}: {judgement.verdict}: {where[:100]}", "", _first_upper(judgement.message) + ".", ""]
    if origin is not None and origin[0] is not comparison.module:
        size = counted(sum(len(c) for c in origin[0].all_computations), "instruction")
        lines += [f"Reduced from `{origin[0].name}` of {size}; the verdict on it was:", "", "```"]
        lines += [str(origin[1]), "```", ""]
    if judgement.guilty:
        lines += [f"The pass `{judgement.guilty}` causes the difference.", ""]
    if judgement.kernel:
        lines += [f"The kernel of {', '.join(f'`{name}`' for name in judgement.kernel)} causes the difference.", ""]
    if judgement.rules:
        lines += ["Rules of the language:", ""]
        lines += [f"- {label}: {rules()[label].text}" for label in judgement.rules] + [""]
    lines += ["## Program", "", "```", comparison.module.to_text("short_parsable").strip(), "```", ""]
    lines += ["## Arguments", "", "```"]
    lines += _arguments(comparison)
    lines += ["```", "", "## Results", "", "```"]
    lines += [_shown(f"reference, result {k}", v) for k, v in enumerate(leaves(comparison.expected))]
    lines += [_shown(f"{engine.name}, result {k}", v) for k, v in enumerate(judgement.outcome.leaves)]
    if judgement.outcome.status != "ok":
        lines.append(str(judgement.outcome))
        lines += ["", judgement.printed] if judgement.printed else []
    lines += ["```", "", "## Reproduce", "", *_call(engine), "", "## Versions", ""]
    lines += [f"- {line}" for line in _versions(engine)]
    return "\n".join(lines) + "\n"


def _arguments(comparison: Comparison) -> list[str]:
    parameters, count = comparison.module.entry.parameters, devices_of(comparison.module)
    if count == 1:
        return [_shown(p.name, v) for p, v in zip(parameters, comparison.arguments, strict=True)]
    return [
        _shown(f"device {d}, {p.name}", v)
        for d, own in enumerate(comparison.arguments) for p, v in zip(parameters, own, strict=True)
    ]  # fmt: skip


def _call(engine: Engine) -> list[str]:
    """The lines that tell how to run the program on the engine again."""
    if isinstance(engine, FunctionEngine):
        call = f"hk.compare_engines(hk.load({PROGRAM!r}), *arguments, engines=[{engine.name}])"
        return ["```python", call, "```", "", f"`arguments`: the arrays in {ARGUMENTS}"]
    option = "--engine-cmd" if isinstance(engine, CommandEngine) else "--engines"
    others = " --engines strict" if isinstance(engine, CommandEngine) else ""
    command = f"hlokit compare {PROGRAM} --input {ARGUMENTS}{others} {option} {shlex.quote(engine.name)}"
    return ["```sh", command, "```"]


def _versions(engine: Engine) -> list[str]:
    """The versions of what took part, and the machine."""
    lines = [f"{name} {_version(name)}" for name in ("hlokit", "numpy", "llvmlite")]
    if engine.name.startswith(("jaxlib", "pjrt/")) and "@" not in engine.name:
        lines += [f"jaxlib {_version('jaxlib')}"]
    flags = os.environ.get("XLA_FLAGS")
    return [
        *lines, f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}, {_processor()}",
        *([f"XLA_FLAGS={flags}"] if flags else []),
    ]  # fmt: skip


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")), "")


def _shown(name: str, value: object) -> str:
    parts = [np.array2string(leaf, threshold=_SHOWN) for leaf in leaves_of(value) if leaf is not None]
    return f"{name} = {', '.join(parts)}"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
