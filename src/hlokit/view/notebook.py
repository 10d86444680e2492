"""Short views of modules, executables, profiles and diffs for notebooks: a line, and more of it folded.

All that comes from programs is escaped text.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.text.printer import PrintOptions, instruction_text
from hlokit.view.page import shown

if TYPE_CHECKING:
    from hlokit.runtime.executable import Executable
    from hlokit.runtime.profile import Profile

_COMPUTATIONS = 20
_LINES = 100
_CHARACTERS = 300
"""The most of a line that is shown."""
_STEPS = 20
_OPTIONS = PrintOptions(print_metadata=False)
_COLOURS = {"a": "#f002", "b": "#0a02", "changed": "#fa02", "moved": "#06f2"}


def module_html(module: HloModule) -> str:
    """The module's interface and size; its computations folded, the entry first."""
    computations = list(reversed(module.computations()))
    count = sum(map(len, computations))
    head = f"HloModule {module.name}: {count:,} instructions in {len(computations):,} computations"
    parts = [f"<div>{_text(module.entry.brief())}</div>"] if module.entry_or_none is not None else []
    parts += [_computation(c) for c in computations[:_COMPUTATIONS]]
    if len(computations) > _COMPUTATIONS:
        parts.append(f"<div>and {len(computations) - _COMPUTATIONS:,} computations more</div>")
    return _folded(head, "".join(parts))


def executable_html(executable: Executable) -> str:
    """The program's interface, processor and memory; the program folded."""
    peak = executable.plan.peak
    held = f"; {peak.holder} holds {peak.held:,}" if peak.holder else ""
    lines = [f"{peak.total:,} bytes at the peak{held}", f"{executable.workers} threads"]
    body = "".join(f"<div>{_text(line)}</div>" for line in lines)
    return _folded(repr(executable).strip("<>"), body + module_html(executable.source))


def profile_html(profile: Profile) -> str:
    """The dearest steps as a table; what `str(profile)` says, folded."""
    steps = sorted((s for s in profile.steps if s.bytes or s.kind != "copy"), key=lambda step: -step.seconds)
    whole = sum(step.seconds for step in steps) or 1.0
    rows = "".join(
        f'<tr><td style="text-align:left">{_text(" > ".join((*s.around, s.name)))}</td><td>{_text(s.kind)}</td>'
        f"<td>{s.seconds * 1e6:,.2f} µs</td><td>{s.seconds / whole:.0%}</td><td>{s.runs:,}</td>"
        f"<td>{s.bytes_per_second / 1e9:.1f}</td><td>{s.flops_per_second / 1e9:.2f}</td></tr>"
        for s in steps[:_STEPS]
    )
    heads = "".join(f"<th>{name}</th>" for name in ("step", "kind", "time", "share", "runs", "GB/s", "GF/s"))
    more = f"<div>and {len(steps) - _STEPS:,} steps more</div>" if len(steps) > _STEPS else ""
    title = f"{profile.program}: {profile.total * 1e6:,.2f} µs a call, {profile.threads} threads"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div>{_text(title)}</div>{table}{more}{_folded('against the limits of the machine', _pre(str(profile)))}"


def diff_html(head: str, lines: Iterable[tuple[str, str]]) -> str:
    """The line that sums a diff up; its lines folded, each with its kind."""
    given = list(islice(lines, _LINES + 1))
    body = "".join(
        f'<span style="background:{_COLOURS.get(kind, "transparent")}">{_text(_cut(text))}</span>\n'
        for kind, text in given[:_LINES]
    )
    more = "<div>and more: view() shows all</div>" if len(given) > _LINES else ""
    return _folded(head, f"<pre>{body}</pre>{more}")


def _computation(computation: Computation) -> str:
    instructions = computation.post_order()
    lines = [_cut(instruction_text(i, _OPTIONS)) for i in instructions[:_LINES]]
    if len(instructions) > _LINES:
        lines.append(f"... {len(instructions) - _LINES:,} more")
    return _folded(f"%{computation.name}: {len(instructions):,} instructions", _pre("\n".join(lines)))


def _folded(head: str, body: str) -> str:
    return f"<details><summary>{_text(head)}</summary>{body}</details>"


def _pre(text: str) -> str:
    return f"<pre>{_text(text)}</pre>"


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "..."


def _text(text: str) -> str:
    return escape(shown(text))
