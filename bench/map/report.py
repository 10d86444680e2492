"""What the map's times say: shares of the limit, cliffs, the table and the picture."""

from __future__ import annotations

import csv
import html
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.limits import Limits
from bench.map.cells import Cell, Value

CLIFF = 0.2
"""Of the neighbours' median share."""
GOAL = 0.8
"""Share of the peak that products from GOAL_FLOPS on and convolutions of GOAL_CHANNELS features on are to reach."""
GOAL_FLOPS = 2.0 * 256**3
GOAL_CHANNELS = 32


@dataclass
class Point:
    """A measured cell. Times in seconds; xla: None where XLA was not asked; problem: why there is no time."""

    cell: Cell
    seconds: float = 0.0
    xla: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    problem: str | None = None
    share: float = 0.0

    @property
    def ratio(self) -> float | None:
        """XLA's time over hlokit's."""
        return None if self.xla is None or not self.seconds else self.xla / self.seconds


def judge(points: Sequence[Point], limits: Limits, call: float) -> None:
    """Sets each point's share: the least time under the machine's limits, with a call's own cost, over the time."""
    for point in points:
        if point.problem is not None:
            continue
        moved = (point.bytes_in + point.bytes_out) / limits.bandwidth(point.bytes_in, point.bytes_out)
        point.share = (call + max(moved, point.cell.flops / limits.peaks[point.cell.peak])) / point.seconds


def cliffs(points: Sequence[Point]) -> list[tuple[Point, float]]:
    """Points whose share is below a fifth of their neighbours' median, with that median; the deepest first."""
    steps = _steps(points)
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        if point.problem is None:
            for name, _ in point.cell.axes:
                groups.setdefault(_others(point.cell, name), []).append(point)
    found: list[tuple[Point, float]] = []
    for point in points:
        if point.problem is not None:
            continue
        near = [
            other.share
            for name, value in point.cell.axes
            for other in groups[_others(point.cell, name)]
            if other is not point and _adjacent(steps[point.cell.family, name], value, dict(other.cell.axes)[name])
        ]
        if len(near) > 1 and point.share < CLIFF * (median := statistics.median(near)):
            found.append((point, median))
    return sorted(found, key=lambda pair: (pair[0].share / pair[1], pair[0].cell.name))


def _others(cell: Cell, name: str) -> tuple[object, ...]:
    return (cell.family, name, *(axis for axis in cell.axes if axis[0] != name))


def _steps(points: Sequence[Point]) -> dict[tuple[str, str], list[Value]]:
    """The values of each family's axes, ascending."""
    found: dict[tuple[str, str], set[Value]] = {}
    for point in points:
        for name, value in point.cell.axes:
            found.setdefault((point.cell.family, name), set()).add(value)
    return {key: sorted(values, key=lambda value: (isinstance(value, str), value)) for key, values in found.items()}


def _adjacent(values: list[Value], one: Value, other: Value) -> bool:
    return isinstance(one, str) or abs(values.index(one) - values.index(other)) == 1


def below_goal(points: Sequence[Point]) -> list[Point]:
    """f32 products and convolutions bound by arithmetic that reach less of the peak than GOAL; the least first."""

    def counts(point: Point) -> bool:
        axes = dict(point.cell.axes)
        if point.problem is not None or point.cell.peak != "f32" or axes.get("type", "float32") != "float32":
            return False
        if point.cell.family == "product":
            return axes["kind"] == "square" and point.cell.flops >= GOAL_FLOPS
        wide = point.cell.family == "convolution" and axes["form"] not in ("depthwise", "groups", "batch groups")
        return wide and int(axes["channels"]) >= GOAL_CHANNELS

    return sorted((p for p in points if counts(p) and p.share < GOAL), key=lambda p: (p.share, p.cell.name))


def write_table(points: Sequence[Point], path: Path) -> None:
    """A line a cell; times in microseconds."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["cell", "us", "share", "xla_us", "ratio", "problem"])
        for point in sorted(points, key=lambda point: point.cell.name):
            xla = "" if point.xla is None else f"{point.xla * 1e6:.4g}"
            ratio = "" if point.ratio is None else f"{point.ratio:.3g}"
            time, share = (f"{point.seconds * 1e6:.4g}", f"{point.share:.3g}") if point.problem is None else ("", "")
            table.writerow([point.cell.name, time, share, xla, ratio, point.problem or ""])


def findings(points: Sequence[Point]) -> str:
    """Cliffs, what is below its goal, and what is slower than XLA, as text."""
    lines: list[str] = []
    deep = cliffs(points)
    sound = [point for point in points if point.problem is None]
    lines.append(f"{len(deep)} of {len(sound)} cells are below a fifth of their neighbours' median:")
    lines += [f"  {_line(point)}, neighbours {median:.1%}" for point, median in deep]
    low = below_goal(points)
    lines.append(f"{len(low)} products and convolutions of f32 are below {GOAL:.0%} of the peak:")
    lines += [f"  {_line(point)}" for point in low]
    slow = sorted((p for p in sound if p.ratio is not None and p.ratio < 1), key=lambda p: p.ratio or 0.0)
    lines.append(f"{len(slow)} cells take longer than XLA's:")
    lines += [f"  {_line(point)}" for point in slow]
    failed = [point for point in points if point.problem is not None]
    lines.append(f"{len(failed)} cells have no time:")
    lines += [f"  {point.cell.name}: {point.problem}" for point in failed]
    return "\n".join(lines) + "\n"


def _line(point: Point) -> str:
    ratio = "" if point.ratio is None else f", {point.ratio:.2f} of XLA's speed"
    return f"{point.cell.name}: {point.seconds * 1e6:.4g} us, {point.share:.1%} of the limit{ratio}"


# The picture: a panel a family, a column a size, a row each other point of the grid

_SIDE, _LEFT, _TOP = 9, 330, 24
_COLOURS = ((0.8, "#1a7f37"), (0.5, "#7fbf4d"), (0.2, "#e3c53b"), (0.05, "#e0782f"), (0.0, "#c0262b"))


def colour(share: float) -> str:
    return next(name for least, name in _COLOURS if share >= least)


def picture(points: Sequence[Point], title: str) -> str:
    """SVG. The colour says a cell's share of the limit; a black frame marks cliffs."""
    marked = {id(point) for point, _ in cliffs(points)}
    rows: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        label = " ".join(str(value) for name, value in point.cell.axes if name != "size")
        rows.setdefault((point.cell.family, label), []).append(point)
    parts: list[str] = [f'<text x="4" y="14">{html.escape(title)}</text>']
    for k, (least, name) in enumerate(_COLOURS):
        parts.append(f'<rect x="{_LEFT + 90 * k}" y="4" width="9" height="9" fill="{name}"/>')
        parts.append(f'<text x="{_LEFT + 90 * k + 14}" y="13">from {least:.0%}</text>')
    y, family = _TOP, ""
    for (of, label), row in rows.items():
        if of != family:
            family, y = of, y + 2 * _SIDE
            parts.append(f'<text x="4" y="{y}" font-weight="bold">{html.escape(family)}</text>')
            y += 3
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 8}" text-anchor="end">{html.escape(label)}</text>')
        sizes = _steps([p for p in points if p.cell.family == of])[of, "size"]
        for point in row:
            x = _LEFT + (_SIDE + 5) * sizes.index(dict(point.cell.axes)["size"])
            fill = "none" if point.problem is not None else colour(point.share)
            frame = ' stroke="#000" stroke-width="2"' if id(point) in marked else ""
            text = html.escape(_line(point) if point.problem is None else f"{point.cell.name}: {point.problem}")
            parts.append(f'<rect x="{x}" y="{y}" width="{_SIDE + 4}" height="{_SIDE}" fill="{fill}"{frame}>')
            parts.append(f"<title>{text}</title></rect>")
        y += _SIDE + 1
    size = f'width="860" height="{y + 10}" viewBox="0 0 860 {y + 10}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="8">\n{body}\n</svg>\n'
