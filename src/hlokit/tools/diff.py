"""hlokit diff: the differences between two programs."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hlokit.api import diff as diff_modules
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import counted
from hlokit.judge.diff.differences import ModuleDiff
from hlokit.judge.diff.folders import FilePair, steps_between, steps_within
from hlokit.judge.diff.page import view_of
from hlokit.judge.diff.text import lines_of, summary
from hlokit.tools.files import is_standard, loaded, write
from hlokit.tools.status import DONE, FOUND

_STYLES = {"head": "bold", "a": "red", "b": "green", "changed": "yellow", "moved": "cyan", "detail": "dim"}


def diff(
    a: Path,
    b: Path | None = None,
    *,
    ignore: str = "names,metadata",
    json: bool = False,
    html: Path | None = None,
    details: bool = False,
) -> int:
    """Compares two programs, regardless of the names and the order of their instructions.

    Signs: `~` changed, `-` only in the first, `+` only in the second, `>` moved to another computation or another
    position in the schedule. A change is reported at the instruction that was changed, and not at those that depend on
    it.

    For two folders of XLA's dumps (--xla_dump_to, --xla_dump_hlo_pass_re), compares stages of the same name; for one,
    compares each stage of a module with the next, which shows what every pass changed. Exit status 1 if anything
    differs.

    Parameters
    ----------
    a:
        a program in any kind of file that hlokit reads (`-` is standard input), or a folder.
    b:
        the other program or folder; may be omitted if the first is a folder.
    ignore:
        what to ignore, separated by commas: names, metadata, layouts, shardings; "" compares everything.
    json:
        print JSON.
    html:
        write a page that shows both side by side; `-` is standard output.
    details:
        for folders, print all differences instead of one line for each pair that differs.
    """
    words = [word.strip() for word in ignore.split(",") if word.strip()]
    steps = _steps(a, b)
    is_folder = a.is_dir()
    found = [(step, diff_modules(loaded(step.a), loaded(step.b), ignore=words)) for step in steps]
    if html is not None:
        write(html, view_of([(step.title if is_folder else "", one) for step, one in found]).html.encode())
    if json:
        _print_json(found, is_folder)
    elif not is_standard(html):
        _print(found, is_folder, details)
    return DONE if all(one.is_equal for _, one in found) else FOUND


def _steps(a: Path, b: Path | None) -> list[FilePair]:
    folders = [path for path in (a, b) if path is not None and path.is_dir()]
    if b is None:
        if not folders:
            raise ArgumentError("diff: B is missing: give a second program (only a folder may be given alone)")
        return list(steps_within(a))
    if len(folders) == 1:
        raise ArgumentError(f"diff: {folders[0]} is a folder and the other is not")
    if folders:
        return list(steps_between(a, b))
    if is_standard(a) and is_standard(b):
        raise ArgumentError("diff: both programs cannot come from standard input")
    return [FilePair("", a, b)]


def _print_json(found: list[tuple[FilePair, ModuleDiff]], is_folder: bool) -> None:
    values = [{"first": str(step.a), "second": str(step.b), **one.to_json()} for step, one in found]
    print(json.dumps(values if is_folder else values[0], indent=2))


def _print(found: list[tuple[FilePair, ModuleDiff]], is_folder: bool, details: bool) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    differ = [(step, one) for step, one in found if not one.is_equal]
    for step, one in differ if is_folder else found:
        if is_folder:
            console.print(Text(f"{step.title}: {summary(one)}", "bold"))
        if not is_folder or details:
            for line in lines_of(one):
                console.print(Text(line.text, _STYLES.get(line.kind, "")))
    if is_folder:
        console.print(f"{counted(len(found), 'comparison')}, {len(differ):,} with differences")
