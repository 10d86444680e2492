"""Checks random modules: python -m tests.fuzz.run --count 5000 --seed 0 [--illegal] [--text] [--compiled].

Prints a line per kind of finding, with a seed that shows it, then figures. Exit status 1 if there is a finding.
`--show SEED` prints that seed's module. `--compiled`: machine code against the reference (machine_code.py).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import hlokit as hk
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_draw
from hlokit.judge.fuzz.shapes import large_draw, shaped_draw
from hlokit.judge.fuzz.values import arguments
from tests.fuzz.backwards import go_backwards
from tests.fuzz.guard import guarded
from tests.fuzz.machine_code import many_chunks, wrong
from tests.fuzz.mutation import mutated
from tests.fuzz.properties import MEMORY, broken, within

ILLEGAL = 0.3
"""The chance that a draft is spoilt, in the illegal mode."""


def legal(seed: int) -> str | None:
    """A random module, all properties."""
    return broken(random_draw(seed).module, seed)


def illegal(seed: int) -> str | None:
    """Spoilt drafts are refused with a rule's label, or the module that accepts them is legal."""
    draw = random_draw(seed, Options(illegal=ILLEGAL))
    unlabelled = [e for e in draw.rejections if not getattr(e, "label", None)]
    if unlabelled:
        return f"an error without a label: {unlabelled[0]}"
    for error in draw.rejections:
        str(error)
    return broken(draw.module, seed)


def text(seed: int) -> str | None:
    """Mutated text is refused, or is the text of a legal module."""
    original = random_draw(seed).module.to_text("short_parsable" if seed % 2 else "default")
    for turn in range(10):
        changed = mutated(original, seed * 10 + turn)
        try:
            with within(20):
                module = hk.parse(changed)
        except hk.ParseError as error:
            if not error.line:
                return f"turn {turn}: an error without a line: {error}"
            continue
        except hk.UnsupportedError:
            continue
        except hk.HlokitError as error:
            return f"turn {turn}: {type(error).__name__} {error}"
        found = broken_when_read(module, seed)
        if found:
            return f"turn {turn}: {found}"
    return None


def compiled(seed: int) -> str | None:
    """A random module's machine code does what the reference does; every other one in as many chunks as can be."""
    return _compiled(random_draw(seed).module, seed)


def shaped(seed: int) -> str | None:
    """The same of programs of the shapes that compilers meet (shapes.py)."""
    return _compiled(shaped_draw(seed).module, seed)


left = Counter[str]()
"""Programs that were not compared, by reason."""


def large(seed: int) -> str | None:
    """The same of programs over arrays of more than a million elements, but those that take the reference too long."""
    module = large_draw(seed).module
    if any(i.shape.is_array and i.shape.nbytes > MEMORY // 2 for i in module.instructions()):
        left["too large"] += 1
        return None
    try:
        return _compiled(module, seed)
    except TimeoutError:
        left["too long"] += 1
        return None


def _compiled(module: hk.HloModule, seed: int) -> str | None:
    with within(60), many_chunks() if seed % 4 > 1 else nullcontext():
        return wrong(module, seed)


def broken_when_read(module: hk.HloModule, seed: int) -> str | None:
    """A module from mutated text: what was read is legal, and prints and runs."""
    with within(20):
        hk.verify(module)
        again = hk.parse(str(module))
        if str(again) != str(module):
            return "parse(print(m)) prints otherwise"
        if any(p.shape.nbytes > MEMORY or p.shape.is_unbounded for p in module.entry.parameters):
            return None
        if any(i.opcode == "while" for i in module.instructions()):
            return None  # it may run for ever
        try:
            hk.evaluate(module, *arguments(module, seed), memory_limit=MEMORY)
        except hk.HlokitError:
            return None
    return None


def fenced(check: Callable[[int], str | None]) -> Callable[[int], str | None]:
    """The check, with compiled code between forbidden pages (guard.py): an access outside ends the process."""

    def within_fences(seed: int) -> str | None:
        print(f"# {seed}", flush=True)
        with guarded(seed % 8 < 4):
            return check(seed)

    return within_fences


def finding(check: object, seed: int) -> str | None:
    """What `check` says, an exception told by its kind and place."""
    try:
        return check(seed)  # type: ignore[operator]
    except Exception as error:
        return raised(error)


def raised(error: Exception) -> str:
    """An exception told by its kind and place."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "hlokit" in f.filename]
    where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} {frames[-1].name}" if frames else ""
    return f"{type(error).__name__} at {where}: {str(error)[:300]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many, if count is not reached")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--illegal", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--shaped", action="store_true", help="as --compiled, of loops and the like (shapes.py)")
    parser.add_argument("--large", action="store_true", help="as --compiled, of arrays of more than a million elements")
    parser.add_argument("--guard", action="store_true", help="compiled code runs between forbidden pages (guard.py)")
    parser.add_argument("--backwards", action="store_true", help="chunks go one by one, the last first (backwards.py)")
    parser.add_argument("--each", action="store_true", help="print every finding when it is found")
    parser.add_argument("--show", type=int, metavar="SEED")
    options = parser.parse_args(arguments)
    check = (
        illegal
        if options.illegal
        else text
        if options.text
        else large
        if options.large
        else shaped
        if options.shaped
        else compiled
        if options.compiled
        else legal
    )
    if options.guard:
        check = fenced(check)
    if options.backwards:
        go_backwards()
    if options.show is not None:
        if options.large:
            print(large_draw(options.show).module)
            return 0
        usual = random_draw(options.show, Options(illegal=ILLEGAL if options.illegal else 0.0))
        print((shaped_draw(options.show) if options.shaped else usual).module)
        return 0
    start, kinds, examples = time.perf_counter(), Counter[str](), dict[str, tuple[int, str]]()
    done = 0
    for seed in range(options.seed, options.seed + options.count):
        if time.perf_counter() - start > options.seconds:
            break
        found, done = finding(check, seed), done + 1
        if found:
            if options.each:
                print(f"seed {seed}: {found[:600]}", flush=True)
            kind = re.sub(r"[\w\-.]*\d[\w\-.]*", "N", found)[:150]
            kinds[kind] += 1
            examples.setdefault(kind, (seed, found))
    for kind, count in kinds.most_common():
        seed, found = examples[kind]
        print(f"{count:5} e.g. seed {seed}: {found[:600]}")
    unseen = "".join(f"{count} {reason}, " for reason, count in left.items())
    print(f"{done} modules, {unseen}{sum(kinds.values())} findings, {time.perf_counter() - start:.1f} s")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
