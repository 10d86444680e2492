"""Draws what `python -m bench.scale` wrote: bars of each layout, for each number of hosts.

    python -m docs.scale_chart {seconds,bytes,memory} [OUT.svg]
"""

from __future__ import annotations

import csv
import html
import sys
from pathlib import Path

FILE = Path(__file__).parent / "scale/figures.csv"
LEFT, RIGHT, ROW, TOP, GAP = 150, 690, 17, 44, 10
"""Where bars begin and, at most, end; heights of a bar, of the title and between numbers of hosts."""

CHARTS = {
    "seconds": (("compute_s", "computing", 1.0), ("communication_s", "collectives", 1.0)),
    "bytes": (("sent", "sent by a host", 1e9),),
    "memory": (("arguments", "weights, moments and tokens", 1e9), ("temporaries", "temporaries", 1e9)),
}
"""Columns of the file, what they are, and the unit that a bar shows them in."""
UNITS = {"seconds": "s", "bytes": "GB", "memory": "GB"}

STYLE = """\
.hlo-scale { max-width: 100%; height: auto; font: 12px sans-serif; fill: currentColor; }
.hlo-scale line { stroke: currentColor; stroke-opacity: .2; }
.hlo-scale .part0 { fill: #3b82d0; fill-opacity: .8; }
.hlo-scale .part1 { fill: #d9822b; fill-opacity: .85; }
"""


def rows(path: Path = FILE) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def chart(name: str, path: Path = FILE) -> str:
    """SVG for a page: text and lines have the page's colour."""
    parts, unit = CHARTS[name], UNITS[name]
    found = [row for row in rows(path) if all(row[column] for column, _, _ in parts)]
    totals = [sum(float(row[column]) / scale for column, _, scale in parts) for row in found]
    most = max(totals)
    drawn: list[str] = []
    x = LEFT
    for number, (_, title, _) in enumerate(parts):
        drawn.append(f'<rect x="{x}" y="8" width="10" height="10" class="part{number}"/>')
        drawn.append(f'<text x="{x + 15}" y="17">{html.escape(title)}</text>')
        x += 40 + 7 * len(title)
    y, hosts = TOP, ""
    for row, total in zip(found, totals, strict=True):
        if row["hosts"] != hosts:
            y += GAP if hosts else 0
            hosts = row["hosts"]
            drawn.append(f'<text x="6" y="{y + 12}">{int(hosts):,} hosts</text>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{html.escape(row["layout"])}</text>')
        begin = float(LEFT)
        for number, (column, title, scale) in enumerate(parts):
            value = float(row[column]) / scale
            width = value / most * (RIGHT - LEFT)
            label = html.escape(f"{row['layout']} on {hosts} hosts, {title}: {value:.3g} {unit}")
            drawn.append(
                f'<rect x="{begin:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" class="part{number}">'
                f"<title>{label}</title></rect>"
            )
            begin += width
        drawn.append(f'<text x="{begin + 6:.1f}" y="{y + 12}">{total:.3g} {unit}</text>')
        y += ROW
    drawn.append(f'<line x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{y}"/>')
    return (
        f'<svg class="hlo-scale" role="img" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT + 80} {y + 6}" '
        f'width="{RIGHT + 80}" height="{y + 6}">\n<title>A training step by layout and hosts: {name}</title>\n'
        f"<style>\n{STYLE}</style>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def main(name: str, out: str | None = None) -> None:
    text = chart(name)
    if out is None:
        print(text, end="")
    else:
        Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
