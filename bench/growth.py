"""Time against size, from 2 thousand to 4 million elements: curves of hlokit and XLA, and their cliffs.

    python -m bench.growth --json FILE --markdown FILE --svg FILE     # about ten minutes

A cliff is a step between neighbouring sizes, each twice the one before, at which the time for an element grows more
than twofold, and XLA's does not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.limits import Limits
from bench.programs.growth import FAMILIES, SIZES, named
from bench.report import Row, geometric_mean, number
from bench.run import Bench, Effort, available, machine

EFFORT = Effort(rounds=3, turn=0.03, least=2, pause=0.01, compiles=1, cold=0, seconds=1500, patience=60)
KINDS = ["hlokit", "xla", "xla-tunables"]
CLIFF = 2.0

Curves = dict[str, dict[int, Row]]


def measured(families: list[str]) -> Curves:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    curves: Curves = {}
    with tempfile.TemporaryDirectory(prefix="hlokit-growth-", dir=folder) as scratch:
        bench = Bench(list(available(KINDS)), Limits(), Path(scratch), EFFORT.patience, fresh=False)
        try:
            for family in families:
                curves[family] = {size: bench.row(named(f"{family}@{size}"), EFFORT) for size in SIZES}
                print(line(family, curves[family]), flush=True)
        finally:
            bench.stop()
    return curves


def line(family: str, rows: dict[int, Row]) -> str:
    """The ratios at all sizes, and what went wrong."""
    ratios = " ".join(f"{number(row.ratio) or 'fails':>5}" for row in rows.values())
    problems = "".join(f"\n    {size}: {row.problem}" for size, row in rows.items() if row.problem)
    return f"{family:26} {ratios}{problems}"


def cliffs(rows: dict[int, Row]) -> list[tuple[int, float, float]]:
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


def markdown(curves: Curves) -> str:
    about = machine()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"{about['cpu']}, {about['cores']} cores; {versions}.", ""]
    lines += ["The better XLA over hlokit by the number of elements; cliffs: size (hlokit's step, XLA's step).", ""]
    lines += [f"| program | {' | '.join(_short(size) for size in SIZES)} | mean | cliffs |"]
    lines += ["|---" * (len(SIZES) + 3) + "|"]
    for family, rows in curves.items():
        cells = [number(row.ratio) or "fails" for row in rows.values()]
        steps = ", ".join(f"{_short(s)} ({ours:.1f}, {theirs:.1f})" for s, ours, theirs in cliffs(rows))
        mean = number(geometric_mean(row.ratio for row in rows.values()))
        lines.append(f"| {family} | {' | '.join(cells)} | {mean} | {steps} |")
    return "\n".join(lines) + "\n"


def _short(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


def draw(curves: Curves, path: Path) -> None:
    """Nanoseconds for an element against elements, a panel a family."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hlokit"  # else names in the file differ from run to run
    from matplotlib import pyplot

    columns = 5
    figure, axes = pyplot.subplots(-(-len(curves) // columns), columns, figsize=(16, 2.6 * -(-len(curves) // columns)))
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    for axis, (family, rows) in zip(axes.flat, curves.items()):
        for label, colour, time in (
            ("XLA", "#c62", lambda row: row.xla_ms),
            ("hlokit", "#2a7", lambda row: row.median("hlokit")),
        ):
            points = [(size, time(row) * 1e6 / size) for size, row in rows.items() if time(row) is not None]
            axis.loglog(*zip(*points), color=colour, label=label, marker=".") if points else None
        axis.set_title(family, fontsize=9)
        axis.tick_params(labelsize=7)
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("elements", fontsize=9)
    figure.supylabel("ns for an element", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def to_json(curves: Curves) -> dict[str, Any]:
    rows = {family: {size: _stored(row) for size, row in of.items()} for family, of in curves.items()}
    return {"machine": machine(), "curves": rows}


def _stored(row: Row) -> dict[str, Any]:
    return asdict(row) | {"timings": {kind: timing.to_json() for kind, timing in row.timings.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default=".", help="families whose name holds this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    curves = measured([family for family in FAMILIES if re.search(options.only, family)])
    table = markdown(curves)
    print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(to_json(curves), indent=1) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(table)
    if options.svg is not None:
        draw(curves, options.svg)


if __name__ == "__main__":
    main()
