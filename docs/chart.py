"""Draws a benchmark's ratios: a row a category, a dot a program, on a logarithmic axis.

    python -m docs.chart FILE.csv [OUT.svg]

FILE is what `python -m bench.report RUN --csv FILE` writes, or the table of `python -m bench.workloads`.
"""

from __future__ import annotations

import csv
import html
import math
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "benchmark"
LEFT, WIDTH, ROW, TOP = 120, 860, 24, 46
LOW, HIGH = -2.0, 8.5
"""The axis: powers of two."""

STYLE = """\
.hlo-chart { max-width: 100%; height: auto; font: 12px sans-serif; fill: currentColor; }
.hlo-chart line { stroke: currentColor; stroke-opacity: .15; }
.hlo-chart .one { stroke-opacity: .8; }
.hlo-chart .xla { fill: #3b82d0; fill-opacity: .75; }
.hlo-chart .numpy { fill: none; stroke: currentColor; stroke-opacity: .6; }
.hlo-chart .mean { stroke: #d9534f; stroke-opacity: 1; stroke-width: 3; }
"""


def rows(path: Path) -> list[dict[str, str]]:
    """A row for each program; of workloads, which have one for each engine, those of the quiet machine."""
    with path.open(encoding="utf-8", newline="") as file:
        found = [*csv.DictReader(file)]
    if "engine" not in found[0]:
        return found
    times: dict[str, dict[str, float]] = {}
    for row in found:
        if row["condition"] == "alone" and row["median_ms"]:
            times.setdefault(row["program"], {})[row["engine"]] = float(row["median_ms"])
    return [
        {
            "category": name.partition("/")[0],
            "program": name,
            "ratio": f"{_other(own) / own['hlokit']:.4g}",
            "numpy_ms": "",
        }
        for name, own in times.items()
        if len(own) > 1
    ]


def _other(times: dict[str, float]) -> float:
    """The best time of another engine's."""
    return min(time for engine, time in times.items() if engine != "hlokit")


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def ratio(row: dict[str, str], to: str) -> float | None:
    """How many times faster hlokit is than the best XLA, or than NumPy."""
    if to == "xla":
        return float(row["ratio"]) if row["ratio"] else None
    return float(row["numpy_ms"]) / float(row["hlokit_ms"]) if row["numpy_ms"] and row["hlokit_ms"] else None


def x(value: float) -> float:
    position = (min(max(math.log2(value), LOW), HIGH) - LOW) / (HIGH - LOW)
    return LEFT + position * (WIDTH - LEFT - 60)


def chart(path: Path) -> str:
    """SVG for a page: text and lines have the page's colour."""
    found = rows(path)
    categories = [*dict.fromkeys(row["category"] for row in found)]
    bottom = TOP + ROW * len(categories)
    parts: list[str] = []
    for power in range(int(LOW), int(HIGH) + 1):
        label = f"{2**power}x" if power >= 0 else f"1/{2**-power}x"
        kind = ' class="one"' if power == 0 else ""
        parts.append(f'<line x1="{x(2.0**power):.1f}" x2="{x(2.0**power):.1f}" y1="{TOP - 8}" y2="{bottom}"{kind}/>')
        parts.append(f'<text x="{x(2.0**power):.1f}" y="{TOP - 14}" text-anchor="middle">{label}</text>')
    for number, category in enumerate(categories):
        y = TOP + ROW * number + ROW / 2
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{html.escape(category)}</text>')
        own = [row for row in found if row["category"] == category]
        for kind in ("numpy", "xla"):
            for row in own:
                value = ratio(row, kind)
                if value is not None:
                    title = html.escape(f"{row['program']}: {value:.2f} times {'XLA' if kind == 'xla' else 'NumPy'}")
                    dot = f'<circle cx="{x(value):.1f}" cy="{y}" r="4.5" class="{kind}">'
                    parts.append(f"{dot}<title>{title}</title></circle>")
        if ratios := [value for row in own if (value := ratio(row, "xla")) is not None]:
            mean = geometric_mean(ratios)
            parts.append(f'<line x1="{x(mean):.1f}" x2="{x(mean):.1f}" y1="{y - 9}" y2="{y + 9}" class="mean"/>')
            parts.append(f'<text x="{WIDTH - 50}" y="{y + 4}">{mean:.3g}</text>')
    others = " and NumPy (rings)" if any(row["numpy_ms"] for row in found) else ""
    return (
        f'<svg class="hlo-chart" role="img" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 6}" '
        f'width="{WIDTH}" height="{bottom + 6}">\n<title>Times that hlokit is faster, by category</title>\n'
        f"<style>\n{STYLE}</style>\n"
        f'<text x="{LEFT}" y="14">times faster than XLA (dots){others}; red: geometric mean over XLA</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def summary(path: Path) -> str:
    """A sentence on the run."""
    ratios = sorted((value, row["program"]) for row in rows(path) if (value := ratio(row, "xla")) is not None)
    below = [f"{program} ({value:.2f})" for value, program in ratios if value < 1]
    least = ", ".join(f"{program} ({value:.2f})" for value, program in ratios[:5])
    mean = geometric_mean(value for value, _ in ratios)
    slower = f"slower than XLA: {', '.join(below)}" if below else "none slower than XLA"
    return f"{len(ratios)} programs, geometric mean {mean:.2f}, {slower}; the least ratios: {least}."


def main(file: str, out: str | None = None) -> None:
    text = chart(Path(file))
    if out is None:
        print(text, end="")
    else:
        Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
