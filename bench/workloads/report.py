"""The table, the CSV and the picture of the workloads, made from turns."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Turn:
    """What a process measured: seconds, and bytes of memory at most; or what went wrong."""

    program: str
    condition: str
    round: int
    engine: str
    cache: str
    lower: float = 0.0
    first: float = 0.0
    steps: list[float] = field(default_factory=list)
    peak: float = 0.0
    apart: float | None = None
    failed: str | None = None
    missing: str | None = None

    def shown(self) -> str:
        if self.failed or self.missing:
            return f"{self.engine} {self.cache}: {self.failed or 'no package ' + str(self.missing)}"
        return f"{self.engine} {self.cache}: {1e3 * statistics.median(self.steps):.3g} ms, first {self.first:.2f} s"


@dataclass
class Row:
    """A program in a condition: the turns of each engine."""

    program: str
    condition: str
    turns: list[Turn]

    @property
    def failed(self) -> str | None:
        return next((turn.shown() for turn in self.turns if turn.failed or turn.missing), None)

    def values(self, engine: str, of: Callable[[Turn], Iterable[float]], cache: str = "") -> list[float]:
        sound = [t for t in self.turns if t.engine == engine and not (t.failed or t.missing) and cache in ("", t.cache)]
        return [value for turn in sound for value in of(turn)]

    def step(self, engine: str) -> float | None:
        """The median of a step's time in milliseconds."""
        return middle([1e3 * value for value in self.values(engine, lambda t: t.steps)])

    def tenths(self, engine: str) -> tuple[float, float] | None:
        """The first and the last tenth of a step's times in milliseconds."""
        times = sorted(1e3 * value for value in self.values(engine, lambda t: t.steps))
        return (times[len(times) // 10], times[-1 - len(times) // 10]) if times else None

    def first_cold(self, engine: str) -> float | None:
        """Seconds from the lowered program to the first result, with an empty cache of compiled programs."""
        return middle(self.values(engine, lambda t: [t.first], "cold"))

    def first_warm(self, engine: str) -> float | None:
        """Seconds from the lowered program to the first result, with the program in the cache."""
        return middle(self.values(engine, lambda t: [t.first], "warm"))

    def peak(self, engine: str) -> float | None:
        """MB."""
        return middle([value / 1e6 for value in self.values(engine, lambda t: [t.peak], "cold")])

    @property
    def engines(self) -> list[str]:
        return [engine for engine in ("jax", "newest") if self.step(engine) is not None]

    def better(self, of: Callable[[str], float | None]) -> float | None:
        """The least of JAX's figures over its versions."""
        return min((value for engine in self.engines if (value := of(engine)) is not None), default=None)

    def times(self, of: Callable[[str], float | None]) -> float | None:
        """JAX's best figure over hlokit's."""
        ours, theirs = of("hlokit"), self.better(of)
        return theirs / ours if ours and theirs else None

    @property
    def apart(self) -> float | None:
        return max((turn.apart for turn in self.turns if turn.apart is not None), default=None)


def middle(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def distance(ours: Path, theirs: Path) -> float:
    """How far the first steps lie apart: the greatest difference over the greatest number, of any array."""
    import numpy as np

    with np.load(ours) as a, np.load(theirs) as b:
        apart = 0.0
        for name in b.files:
            x, y = np.asarray(a[name], np.complex128), np.asarray(b[name], np.complex128)
            if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
                return math.inf
            kept = np.isfinite(y)
            if kept.any():
                apart = max(apart, float(np.abs(x - y)[kept].max() / (np.abs(y)[kept].max() or 1.0)))
        return apart


def rows_of(turns: list[Turn]) -> list[Row]:
    """Slowest against JAX first; what failed last."""
    keys = dict.fromkeys((turn.program, turn.condition) for turn in turns)
    rows = [Row(*key, [t for t in turns if (t.program, t.condition) == key]) for key in keys]
    return sorted(rows, key=lambda row: (row.failed is not None, row.times(row.step) or math.inf))


def number(value: float | None, form: str = ".3g") -> str:
    return "" if value is None else format(value, form)


HEADS = (
    *("program", "ms a step: hlokit (p10 to p90)", "JAX", "newest", "times"),
    *("first result, s: hlokit", "JAX", "ratio", "warm: hlokit", "JAX", "ratio", "peak, MB: hlokit", "JAX", "apart"),
)


def markdown(rows: list[Row]) -> str:
    """A table for each condition."""
    lines: list[str] = []
    for condition in dict.fromkeys(row.condition for row in rows):
        here = [row for row in rows if row.condition == condition]
        lines += [
            f"### {condition}",
            "",
            "| " + " | ".join(HEADS) + " |",
            "| --- " + "| ---: " * (len(HEADS) - 1) + "|",
        ]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in here]
        speeds = [times for row in here if not row.failed and (times := row.times(row.step))]
        if speeds:
            mean, slow = statistics.geometric_mean(speeds), sum(times < 1.2 for times in speeds)
            lines += ["", f"Geometric mean of {len(speeds)}: {mean:.2f} times JAX; {slow} below 1.2."]
        lines.append("")
    return "\n".join(lines)


def cells(row: Row) -> list[str]:
    """A line of the table."""
    if row.failed:
        return [row.program, row.failed, *[""] * (len(HEADS) - 2)]
    low, high = row.tenths("hlokit") or (0.0, 0.0)
    found = [row.program, f"{number(row.step('hlokit'))} ({low:.3g} to {high:.3g})", number(row.step("jax"))]
    found += [number(row.step("newest")), number(row.times(row.step), ".2f")]
    for of in (row.first_cold, row.first_warm):
        ours, theirs = of("hlokit"), row.better(of)
        ratio = ours / theirs if ours and theirs else None
        found += [number(ours, ".2f"), number(theirs, ".2f"), number(ratio, ".2f")]
    return [*found, number(row.peak("hlokit"), ".0f"), number(row.better(row.peak), ".0f"), number(row.apart, ".1e")]


def csv_text(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["program", "condition", "engine", "median_ms", "p10_ms", "p90_ms", "first_cold_s", "first_warm_s", "peak_mb"]
    )
    for row in rows:
        for engine in ("hlokit", *row.engines):
            low, high = row.tenths(engine) or (None, None)
            figures = (row.step(engine), low, high, row.first_cold(engine), row.first_warm(engine), row.peak(engine))
            writer.writerow([row.program, row.condition, engine, *(number(value, ".5g") for value in figures)])
    return out.getvalue()


def svg(rows: list[Row]) -> str:
    """A bar for each program of the first condition: JAX's time over hlokit's, on a logarithmic axis."""
    first = rows[0].condition if rows else ""
    shown = [(row.program, times) for row in rows if row.condition == first and (times := row.times(row.step))]
    greatest = max([8.0, *(times for _, times in shown)])
    least = min([0.5, *(times for _, times in shown)])

    def x(times: float) -> float:
        return 190 + 470 * (math.log(times) - math.log(least)) / (math.log(greatest) - math.log(least))

    body: list[str] = []
    for k, (name, times) in enumerate(shown):
        y, left, right = 24 + 18 * k, min(x(1), x(times)), max(x(1), x(times))
        kind = "more" if times >= 1 else "less"
        body.append(f'<text x="182" y="{y + 11}" text-anchor="end">{name}</text>')
        body.append(f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="13" class="{kind}"/>')
        body.append(f'<text x="{right + 4:.1f}" y="{y + 11}">{times:.2f}</text>')
    height = 30 + 18 * len(shown)
    style = (
        "text{font:11px sans-serif;fill:#333}.more{fill:#2a7}.less{fill:#c53}line{stroke:#888}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
    )
    size = f'viewBox="0 0 720 {height}" width="720" height="{height}"'
    body.append(f'<line x1="{x(1):.1f}" y1="20" x2="{x(1):.1f}" y2="{height - 6}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        f'<text x="8" y="14">JAX\'s time of a step over hlokit\'s ({first})</text>{"".join(body)}</svg>\n'
    )
