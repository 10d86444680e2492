"""Folders of XLA's dumps: the files with the stages of each module, in order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hlokit.errors import ArgumentError

_NAME = re.compile(
    r"module_(?P<number>\d+)\.(?P<module>.*?)\.(?:(?P<turn>\d{4})\.(?P<passes>.+)|(?P<stage>before_optimizations"
    r"|(?:\w+_)?after_optimizations))\.(?:txt|hlo\.pb|mlir)(?:\.gz)?"
)

_LAST = 10_000


@dataclass(frozen=True)
class Stage:
    """A file that holds a module: as it came, after a pass ("algsimp", number 12), or as it was compiled.

    shares_name   whether another module in the folder has the same name, so that a title needs the number
    """

    path: Path
    number: int
    module: str
    turn: int
    name: str
    shares_name: bool = False

    @property
    def title(self) -> str:
        turn = f"{self.turn:04} " if 0 <= self.turn < _LAST else ""
        number = f"module_{self.number:04} " if self.shares_name else ""
        return f"{number}{self.module} {turn}{self.name}"


@dataclass(frozen=True)
class FilePair:
    """Two files to compare, and what the comparison is called."""

    title: str
    a: Path
    b: Path


def stages_in(folder: Path) -> list[list[Stage]]:
    """The stages of each module in a folder of XLA's dumps, in the order in which they were made.

    Raises ArgumentError if it has none.
    """
    found: dict[tuple[int, str], list[Stage]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is not None:
            number, module = int(match["number"]), match["module"]
            turn = int(match["turn"]) if match["turn"] else -1 if match["stage"].startswith("before") else _LAST
            found[number, module].append(Stage(path, number, module, turn, match["passes"] or match["stage"]))
    if not found:
        raise ArgumentError(f"{folder}: no files of a dump (module_0000.NAME.before_optimizations.txt and the like)")
    names = Counter(module for _, module in found)
    return [
        [replace(s, shares_name=names[s.module] > 1) for s in _without_copies(sorted(found[key], key=lambda s: s.turn))]
        for key in sorted(found)
    ]


def steps_within(folder: Path) -> Iterator[FilePair]:
    """Each stage of each module with the next: what every pass did."""
    for stages in stages_in(folder):
        for before, after in pairwise(stages):
            yield FilePair(after.title, before.path, after.path)


def steps_between(first: Path, second: Path) -> Iterator[FilePair]:
    """The stages of the same name of two runs. Modules correspond by name and order, stages by name and order.

    Raises ArgumentError where one run has a module that the other has not.
    """
    runs = [_by_module(folder) for folder in (first, second)]
    alone = sorted(set(runs[0]) ^ set(runs[1]))
    if alone:
        where = first if alone[0] in runs[0] else second
        raise ArgumentError(f"the module {alone[0][0]} is only in {where}")
    for key, stages in runs[0].items():
        others = _by_name(runs[1][key])
        for name, stage in _by_name(stages).items():
            if name in others:
                yield FilePair(stage.title, stage.path, others[name].path)


def _by_module(folder: Path) -> dict[tuple[str, int], list[Stage]]:
    """Stages by the module's name, and how many of that name came before."""
    found: dict[tuple[str, int], list[Stage]] = {}
    for stages in stages_in(folder):
        module = stages[0].module
        found[module, sum(name == module for name, _ in found)] = stages
    return found


def _by_name(stages: list[Stage]) -> dict[tuple[str, int], Stage]:
    found: dict[tuple[str, int], Stage] = {}
    for stage in stages:
        found[stage.name, sum(name == stage.name for name, _ in found)] = stage
    return found


def _without_copies(stages: list[Stage]) -> list[Stage]:
    """One file of a stage: XLA may have written the same as text and as a proto."""
    return list({(s.turn, s.name): s for s in reversed(stages)}.values())[::-1]
