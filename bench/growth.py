"""Time against size, over three decades for each category: curves of hlokit and XLA, and their cliffs.

    python -m bench.growth              # eight minutes; the report goes to build/growth: growth.json, .md, .svg
    python -m bench.growth --only sort --to FOLDER

A cliff is a step between neighbouring sizes, each twice the one before, at which the time for an element grows more
than twofold, and XLA's does not. Where one shows, both sizes are measured once more: it counts if it is there again.
A size is left out when XLA took so long for the one before that the run would not end in time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.limits import Limits
from bench.programs.growth import FAMILIES, named
from bench.report import Row, geometric_mean, number
from bench.run import Bench, Effort, available, machine

EFFORT = Effort(rounds=3, turn=0.015, least=2, pause=0.005, compiles=1, cold=0, seconds=450, patience=60)
KINDS = ["hlokit", "xla", "xla-tunables"]
CLIFF = 2.0
SLOW_MS, SLOWEST_MS = 30.0, 600.0
"""A call of XLA that takes longer is measured less often; twice as many elements are then left out."""

Curve = dict[int, Row]


def measured(families: Sequence[str], effort: Effort) -> dict[str, Curve]:
    """The curves. Each family has an equal share of effort.seconds, and what those before it have left.

    What has not begun a tenth after that is left out.
    """
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    curves: dict[str, Curve] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hlokit-growth-", dir=folder) as scratch:
        bench = Bench(list(available(KINDS)), Limits(), Path(scratch), effort.patience, fresh=False)
        try:
            for number_of, family in enumerate(families):
                end = begun + effort.seconds * (number_of + 1) / len(families)
                curves[family] = curve(bench, family, effort, end, begun + 1.1 * effort.seconds)
                print(line(family, curves[family]), flush=True)
        except KeyboardInterrupt:
            print("interrupted: the report holds what was measured", flush=True)
        finally:
            bench.stop()
    return curves


def curve(bench: Bench, family: str, effort: Effort, end: float, stop: float) -> Curve:
    """A family's rows; after the moment `end` each size gets one turn, after `stop` none is begun."""
    rows: Curve = {}
    last = 0.0
    for size in FAMILIES[family].sizes:
        if last > SLOWEST_MS / 2 or time.monotonic() > stop:
            break
        is_late = time.monotonic() > end or last > SLOW_MS
        rows[size] = bench.row(named(f"{family}@{size}"), replace(effort, rounds=1) if is_late else effort)
        last = rows[size].xla_ms or last
    for size, _, _ in cliffs(rows):
        for again in (size // 2, size) if time.monotonic() < stop else ():
            row = bench.row(named(f"{family}@{again}"), effort)
            if row.problem is None and (row.median("hlokit") or 0) < (rows[again].median("hlokit") or 0):
                rows[again] = row
    return rows


def line(family: str, rows: Curve) -> str:
    """The ratios at all sizes, and what went wrong."""
    ratios = " ".join(f"{number(row.ratio) or 'fails':>5}" for row in rows.values()) or "out of time"
    problems = "".join(f"\n    {size}: {row.problem}" for size, row in rows.items() if row.problem)
    steps = "".join(f"\n    cliff at {size}: {ours:.1f}, XLA {theirs:.1f}" for size, ours, theirs in cliffs(rows))
    return f"{family:26} {ratios}{steps}{problems}"


def cliffs(rows: Curve) -> list[tuple[int, float, float]]:
    """(size, hlokit's step, XLA's step) where the time for an element grows more than twofold, and XLA's does not."""
    found: list[tuple[int, float, float]] = []
    for size, after in itertools.pairwise(sorted(rows)):
        ours = [rows[s].median("hlokit") for s in (size, after)]
        theirs = [rows[s].xla_ms for s in (size, after)]
        if None in (*ours, *theirs):
            continue
        step, other = [times[1] / times[0] * size / after for times in (ours, theirs)]
        if step > CLIFF >= other:
            found.append((after, step, other))
    return found


def markdown(curves: dict[str, Curve]) -> str:
    """A row a family: the better XLA's time over hlokit's, and cliffs with (hlokit's step, XLA's step)."""
    about = machine()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"{about['cpu']}, {about['cores']} cores; {versions}.", ""]
    lines += ["| category | family | sizes | least ratio | at | largest | mean | cliffs that XLA does not have |"]
    lines += ["|---" * 8 + "|"]
    for family, rows in curves.items():
        ratios = {size: row.ratio for size, row in rows.items() if row.ratio is not None}
        failing = [size for size, row in rows.items() if row.problem]
        if not ratios:
            lines.append(f"| {FAMILIES[family].category} | {family} | {'fails' if rows else 'out of time'} | | | | | |")
            continue
        least = min(ratios, key=lambda size: ratios[size])
        steps = [f"{_short(s)} ({ours:.1f}, {theirs:.1f})" for s, ours, theirs in cliffs(rows)]
        steps += [f"{_short(size)} fails" for size in failing]
        cells = [
            FAMILIES[family].category,
            family,
            f"{_short(min(rows))} to {_short(max(rows))} {'' if (u := FAMILIES[family].unit) == 'elements' else u}",
            f"{ratios[least]:.2f}",
            _short(least),
            number(max(ratios.values())) or "",
            number(geometric_mean(ratios.values())) or "",
            ", ".join(steps) or "none",
        ]
        lines.append(f"| {' | '.join(cell.strip() for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _short(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else str(size)


def draw(curves: dict[str, Curve], path: Path) -> None:
    """Nanoseconds for an element against elements, a panel a family."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hlokit"  # else names in the file differ from run to run
    from matplotlib import pyplot

    columns = min(5, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False)
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    for axis, (family, of) in zip(axes.flat, curves.items()):
        for label, colour, time_of in (
            ("XLA", "#c62", lambda row: row.xla_ms),
            ("hlokit", "#2a7", lambda row: row.median("hlokit")),
        ):
            points = [(size, time_of(row) * 1e6 / size) for size, row in of.items() if time_of(row) is not None]
            axis.loglog(*zip(*points), color=colour, label=label, marker=".") if points else None
        for size, _, _ in cliffs(of):
            axis.axvline(size, color="#b00", linewidth=0.7)
        unit = FAMILIES[family].unit
        axis.set_title(family if unit == "elements" else f"{family}: ns for each", fontsize=9)
        axis.tick_params(labelsize=7)
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("elements", fontsize=9)
    figure.supylabel("ns for an element", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def to_json(curves: dict[str, Curve]) -> dict[str, Any]:
    rows = {family: {size: _stored(row) for size, row in of.items()} for family, of in curves.items()}
    return {"machine": machine(), "curves": rows}


def _stored(row: Row) -> dict[str, Any]:
    return asdict(row) | {"timings": {kind: timing.to_json() for kind, timing in row.timings.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default=".", help="families whose name holds this")
    parser.add_argument("--seconds", type=float, default=EFFORT.seconds, help="about how long all of it takes")
    parser.add_argument("--to", type=Path, default=Path("build/growth"), metavar="FOLDER", help="where the report goes")
    options = parser.parse_args()
    families = [family for family in FAMILIES if re.search(options.only, family)]
    curves = measured(families, replace(EFFORT, seconds=options.seconds * len(families) / len(FAMILIES)))
    table = markdown(curves)
    print(table)
    options.to.mkdir(parents=True, exist_ok=True)
    (options.to / "growth.json").write_text(json.dumps(to_json(curves), indent=1) + "\n")
    (options.to / "growth.md").write_text(table)
    draw(curves, options.to / "growth.svg")


if __name__ == "__main__":
    main()
