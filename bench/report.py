"""What a run measured, and its forms: JSON, a line a program, a markdown table, a plot, CSV.

python -m bench.report run.json [--markdown FILE] [--svg FILE] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

NOTES = Path(__file__).parent / "notes.toml"
XLA = ("xla", "xla-tunables", "xla-newest", "xla-newest-tunables")


@dataclass
class Timing:
    """One framework on one program; `failed` says why it did not run, `absent` that it was not asked to."""

    times_ms: list[float] = field(default_factory=list)
    compile_ms: list[float] = field(default_factory=list)
    failed: str | None = None
    absent: bool = False

    @property
    def median_ms(self) -> float | None:
        return statistics.median(self.times_ms) if self.times_ms and self.failed is None else None

    @property
    def p10_ms(self) -> float | None:
        """The time that a tenth of the calls keep below."""
        return sorted(self.times_ms)[len(self.times_ms) // 10] if self.times_ms and self.failed is None else None

    @property
    def compiled_ms(self) -> float | None:
        return statistics.median(self.compile_ms) if self.compile_ms and self.failed is None else None

    def to_json(self) -> dict[str, Any]:
        kept = {"median_ms": self.median_ms, "p10_ms": self.p10_ms, "calls": len(self.times_ms)}
        return kept | {"compile_ms": self.compile_ms, "failed": self.failed}


@dataclass
class Row:
    """One program. `error`: hlokit's distance from XLA's results in units of the tolerance; None: not compared."""

    category: str
    name: str
    floor_ms: float
    bound: str
    timings: dict[str, Timing]
    error: float | None = None
    others: float = 0.0

    def median(self, kind: str) -> float | None:
        return self.timings[kind].median_ms if kind in self.timings else None

    def compiled(self, kind: str) -> float | None:
        return self.timings[kind].compiled_ms if kind in self.timings else None

    @property
    def problem(self) -> str | None:
        """Why hlokit does not count as having run the program."""
        timing = self.timings.get("hlokit")
        if timing is not None and timing.failed is not None:
            return timing.failed
        if self.error is not None and self.error > 1:
            return f"differs from XLA: {self.error:.3g} times the tolerance"
        return None

    @property
    def xla_ms(self) -> float | None:
        """The best XLA."""
        return least(self.median(kind) for kind in XLA)

    @property
    def ratio(self) -> float | None:
        """How many times faster than the better XLA; None where hlokit fails."""
        return None if self.problem else quotient(self.xla_ms, self.median("hlokit"))

    @property
    def of_floor(self) -> float | None:
        """The share of the machine's limit that hlokit reaches."""
        return None if self.problem else quotient(self.floor_ms, self.median("hlokit"))

    @property
    def compile_ratio(self) -> float | None:
        """hlokit's compile time over XLA's: above 1 is slower."""
        xla = least(self.compiled(kind) for kind in XLA)
        return None if self.problem else quotient(self.compiled("hlokit"), xla)


@dataclass
class Report:
    """A run. Cold start: milliseconds by framework, or what went wrong."""

    machine: dict[str, Any]
    rows: list[Row]
    cold_start_ms: dict[str, float | str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        rows = [
            asdict(row) | {"timings": {kind: timing.to_json() for kind, timing in row.timings.items()}}
            | {"error": None if row.error is None else min(row.error, 1e300), "ratio": row.ratio}
            for row in self.rows
        ]  # fmt: skip
        return {
            "machine": self.machine, "seconds": self.seconds, "cold_start_ms": self.cold_start_ms,
            "geometric_means": geometric_means(self.rows), "rows": rows,
        }  # fmt: skip

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Report:
        """Single calls are not stored: the median stands for them."""
        rows = [Row(**row, timings=timings_from_json(timings)) for row, timings in map(split_row, stored["rows"])]
        return Report(stored["machine"], rows, stored["cold_start_ms"], stored["seconds"])


def split_row(stored: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = ("category", "name", "floor_ms", "bound", "error", "others")
    return {name: stored[name] for name in fields}, stored["timings"]


def timings_from_json(stored: dict[str, Any]) -> dict[str, Timing]:
    return {
        kind: Timing([median] if (median := timing["median_ms"]) else [], timing["compile_ms"], timing["failed"])
        for kind, timing in stored.items()
    }


def least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def quotient(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or b == 0 else a / b


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    logs = [math.log(value) for value in values if value]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def geometric_means(rows: list[Row]) -> dict[str, float | None]:
    """Of the ratios, by category and over all; of compile times over XLA's."""
    means = {
        category: geometric_mean(row.ratio for row in rows if row.category == category)
        for category in dict.fromkeys(row.category for row in rows)
    }
    return means | {
        "all": geometric_mean(row.ratio for row in rows),
        "compile": geometric_mean(row.compile_ratio for row in rows),
    }


def number(value: float | None, unit: str = "") -> str:
    """Three digits, nothing for nothing."""
    if value is None:
        return ""
    return (f"{value:.0f}" if value >= 100 else f"{value:.3g}") + unit


def row_line(row: Row) -> str:
    """A program on a terminal."""
    times = "  ".join(f"{kind} {number(row.median(kind)) or 'fails'}" for kind in row.timings)
    ratio = f"{row.ratio:6.2f}x" if row.ratio else "      -"
    compiled = f"  compile {number(row.compile_ratio, 'x')}" if row.compile_ratio else ""
    noise = f"  others {row.others:.0%}" if row.others > 0.05 else ""
    problem = f"  FAILS: {row.problem.splitlines()[0][:120]}" if row.problem else ""
    return f"{ratio}  {row.name:32} {times}  floor {number(row.floor_ms)}{compiled}{noise}{problem}"


def summary(report: Report) -> str:
    rows = report.rows
    means = geometric_means(rows)
    lines = ["", "better XLA / hlokit, geometric means:"]
    lines += [f"  {name:16} {mean:.2f}" for name, mean in means.items() if mean is not None and name != "compile"]
    if means["compile"] is not None:
        lines.append(f"compile time, hlokit / XLA: {means['compile']:.2f}")
    lines += [f"import to first result, {kind}: {cold(value)}" for kind, value in report.cold_start_ms.items()]
    compared = [row for row in rows if row.ratio is not None]
    failing = [row.name for row in rows if row.problem]
    lines.append(
        f"{len(rows)} programs, {len(failing)} failing, {sum((row.ratio or 0) < 1 for row in compared)} of"
        f" {len(compared)} slower than the better XLA; {report.seconds:.0f} s;"
        f" others took {statistics.mean([row.others for row in rows] or [0]):.0%} of the machine"
    )
    lines += [f"  fails: {name}" for name in failing]
    return "\n".join(lines)


def cold(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.0f} ms"


def read_notes() -> dict[str, str]:
    return tomllib.loads(NOTES.read_text())


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("XLA", lambda row: number(row.median("xla"))),
    ("XLA, malloc tuned", lambda row: number(row.median("xla-tunables"))),
    ("newest XLA", lambda row: number(row.median("xla-newest"))),
    ("newest XLA, malloc tuned", lambda row: number(row.median("xla-newest-tunables"))),
    ("hlokit", lambda row: "fails" if row.problem else number(row.median("hlokit"))),
    ("NumPy", lambda row: number(row.median("numpy"))),
    ("torch", lambda row: number(row.median("torch"))),
    ("floor", lambda row: f"{number(row.floor_ms)} {row.bound}"),
    ("ratio", lambda row: f"**{row.ratio:.2f}**" if row.ratio else ""),
    ("of the floor", lambda row: f"{row.of_floor:.0%}" if row.of_floor else ""),
    ("compile, XLA", lambda row: number(least(row.compiled(kind) for kind in XLA))),
    ("compile, hlokit", lambda row: number(row.compiled("hlokit"))),
)


def markdown(report: Report, notes: dict[str, str]) -> str:
    """The whole table, a section a category."""
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    means = geometric_means(report.rows)
    parts = [
        f"{machine.get('cpu')}, {machine.get('cores')} cores; {versions}.",
        "",
        "Medians in milliseconds, frameworks taking turns. Ratio: the best XLA over hlokit.",
        "",
        "| category | ratio | programs | failing |",
        "|---|---|---|---|",
    ]
    categories = list(dict.fromkeys(row.category for row in report.rows))
    for category in [*categories, "all"]:
        rows = [row for row in report.rows if category in (row.category, "all")]
        failing = sum(row.problem is not None for row in rows)
        parts.append(f"| {category} | {number(means[category])} | {len(rows)} | {failing} |")
    parts += ["", f"Compile time, hlokit over XLA, geometric mean: {number(means['compile']) or '-'}."]
    parts += [f"Import to first result, {kind}: {cold(value)}." for kind, value in report.cold_start_ms.items()]
    for category in categories:
        parts += ["", f"## {category}", "", *table([row for row in report.rows if row.category == category], notes)]
    return "\n".join(parts) + "\n"


def table(rows: list[Row], notes: dict[str, str]) -> list[str]:
    """Frameworks that none of the rows has are left out."""
    cells = {title: [cell(row) for row in rows] for title, cell in COLUMNS}
    shown = {title: values for title, values in cells.items() if any(values)}
    lines = [f"| program | {' | '.join(shown)} | held by |", "|---" * (len(shown) + 2) + "|"]
    for position, row in enumerate(rows):
        held = row.problem.splitlines()[0].replace("|", "\\|") if row.problem else notes.get(row.name, "")
        values = " | ".join(values[position] for values in shown.values())
        lines.append(f"| {row.name} | {values} | {held} |")
    return lines


CSV_COLUMNS: tuple[tuple[str, Callable[[Row, dict[str, str]], object]], ...] = (
    ("category", lambda row, notes: row.category),
    ("program", lambda row, notes: row.name),
    ("xla_ms", lambda row, notes: number(row.median("xla"))),
    ("xla_malloc_tuned_ms", lambda row, notes: number(row.median("xla-tunables"))),
    ("newest_xla_ms", lambda row, notes: number(row.median("xla-newest"))),
    ("newest_xla_malloc_tuned_ms", lambda row, notes: number(row.median("xla-newest-tunables"))),
    ("hlokit_ms", lambda row, notes: "" if row.problem else number(row.median("hlokit"))),
    ("numpy_ms", lambda row, notes: number(row.median("numpy"))),
    ("torch_ms", lambda row, notes: number(row.median("torch"))),
    ("floor_ms", lambda row, notes: number(row.floor_ms)),
    ("floor_of", lambda row, notes: row.bound),
    ("ratio", lambda row, notes: f"{row.ratio:.2f}" if row.ratio else ""),
    ("compile_xla_ms", lambda row, notes: number(least(row.compiled(kind) for kind in XLA))),
    ("compile_hlokit_ms", lambda row, notes: number(row.compiled("hlokit"))),
    ("held_by", lambda row, notes: row.problem.splitlines()[0] if row.problem else notes.get(row.name, "")),
)


def csv_text(report: Report, notes: dict[str, str]) -> str:
    """The table that docs/chart.py draws."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in CSV_COLUMNS])
    writer.writerows([cell(row, notes) for _, cell in CSV_COLUMNS] for row in report.rows)
    return text.getvalue()


BAR, GAP, LEFT, WIDTH = 12, 4, 260, 900


def svg(report: Report) -> str:
    """Ratios as bars on a logarithmic axis from 1/8 to 256: to the right of the line hlokit is faster."""
    low, high = -3.0, 8.0

    def x(ratio: float) -> float:
        return LEFT + (min(max(math.log2(ratio), low), high) - low) / (high - low) * (WIDTH - LEFT - 60)

    shapes: list[str] = []
    y = 40
    category = None
    for row in report.rows:
        if row.category != category:
            category = row.category
            y += 8
        middle = y + BAR - 2
        shapes.append(f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(row.name)}</text>')
        if row.ratio is None:
            shapes.append(f'<text x="{x(1) + 4:.1f}" y="{middle}" fill="#b00">{"fails" if row.problem else "-"}</text>')
        else:
            start, end = sorted((x(1), x(row.ratio)))
            fill = "#2a7" if row.ratio >= 1 else "#c62"
            shapes.append(f'<rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="{BAR}" fill="{fill}"/>')
            shapes.append(f'<text x="{max(end, x(1)) + 4:.1f}" y="{middle}">{row.ratio:.2f}</text>')
        y += BAR + GAP
    axis: list[str] = []
    for power in range(int(low), int(high) + 1):
        label = f"{2**power}x" if power >= 0 else f"1/{2**-power}"
        colour = "#333" if power == 0 else "#ddd"
        axis.append(f'<line x1="{x(2**power):.1f}" x2="{x(2**power):.1f}" y1="36" y2="{y}" stroke="{colour}"/>')
        axis.append(f'<text x="{x(2**power):.1f}" y="30" text-anchor="middle">{label}</text>')
    body = "\n".join([*axis, *shapes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}" '
        f'font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="8" y="14" font-size="13">the better XLA over hlokit, times</text>\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="what `python -m bench.run --json` wrote")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    report = Report.from_json(json.loads(options.run.read_text()))
    print(summary(report))
    if options.markdown is not None:
        options.markdown.write_text(markdown(report, read_notes()))
    if options.svg is not None:
        options.svg.write_text(svg(report))
    if options.csv is not None:
        options.csv.write_text(csv_text(report, read_notes()))


if __name__ == "__main__":
    main()
