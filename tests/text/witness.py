"""Compares our printed text with jaxlib's, byte for byte: python -m tests.text.witness --golden DIR [--python PYTHON].

Every HLO text of the golden cases and programs is read by both and printed with the presets default, short_parsable
and canonical. Prints one line per group of differing lines, then figures. Exit status 1 if something differs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlokit.errors import HlokitError
from hlokit.text.parser import parse_hlo

PRESETS = ("default", "short_parsable", "canonical")
CRASH = "a bug:"
CHILD = Path(__file__).with_name("jaxlib_printer.py")
MORE = Path(__file__).parents[1] / "data" / "text" / "more.hlo"
"""Further texts, for what the golden cases lack: async ops, shardings, metadata, headers, layouts, literals."""
BUNDLE = Path(__file__).parents[1] / "data" / "text" / "expected.json.gz"

_UNREADABLE_PADDING = "HATTR-7: jaxlib prints `padding=` of rank 0 and cannot read it back"

EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys((f"data_movement-1-{n:04}" for n in (7, 142, 158, 173, 187)), _UNREADABLE_PADDING),
    "special_functions-1-0067": "HLIT-9: jaxlib reads (nan, 0) as (nan, nan)",
    "program ray_sphere_shading": "HLIT-8: jaxlib reads -0 as 0",
    "structure-1-0037": "BEY-24: a dimension size that is no scalar",
}
"""Cases that may differ: id -> the rule and the reason."""

Answer = dict[str, str] | str
"""The text per preset, or an error message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One text that we print otherwise."""

    id: str
    preset: str
    ours: str
    theirs: str


def golden_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(id, HLO text) of every case that has one and of every program."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record.get("hlo"):
                yield record["id"], record["hlo"]
    for path in sorted((folder / "programs").glob("*.hlo.txt")):
        yield f"program {path.name.removesuffix('.hlo.txt')}", path.read_text(encoding="utf-8")


def more_texts() -> Iterator[tuple[str, str]]:
    """(id, HLO text) of the texts in MORE."""
    for number, text in enumerate(MORE.read_text(encoding="utf-8").split("\n====\n")):
        yield f"more {number}", text


def ask_jaxlib(texts: Sequence[tuple[str, str]], python: str) -> dict[str, Answer]:
    """What jaxlib prints, by id. A text that aborts the process gets the answer "aborted"; the rest goes on anew."""
    answers: dict[str, Answer] = {}
    rest = list(texts)
    while rest:
        request = "".join(json.dumps([name, text]) + "\n" for name, text in rest)
        done = subprocess.run([python, str(CHILD)], input=request, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        answers.update(json.loads(line) for line in lines)
        if done.returncode == 0:
            break
        if not lines and "ModuleNotFoundError" in done.stderr:
            raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1]}")
        answers[rest[len(lines)][0]] = "aborted"
        rest = rest[len(lines) + 1 :]
    return answers


def our_answer(text: str) -> Answer:
    """What we print, or our error."""
    try:
        module = parse_hlo(text)
        return {preset: module.to_text(preset) for preset in PRESETS}
    except HlokitError as error:
        return str(error)
    except Exception as error:
        return f"{CRASH} {type(error).__name__}: {error}"


def differences(name: str, ours: Answer, theirs: Answer) -> list[Difference]:
    """Where two answers to one text differ; errors must occur on both sides, whatever they say."""
    if isinstance(ours, str) and isinstance(theirs, str) and not ours.startswith(CRASH):
        return []
    if isinstance(ours, str) or isinstance(theirs, str):
        return [Difference(name, "reading", _brief(ours), _brief(theirs))]
    found: list[Difference] = []
    for preset, text in theirs.items():
        if ours[preset] != text:
            found.append(Difference(name, preset, *_first_difference(ours[preset], text)))
    return found


def _brief(answer: Answer) -> str:
    return answer.splitlines()[0] if isinstance(answer, str) else "(read)"


def _first_difference(ours: str, theirs: str) -> tuple[str, str]:
    ours_lines, theirs_lines = [*ours.split("\n"), "(end)"], [*theirs.split("\n"), "(end)"]
    return next((a, b) for a, b in zip(ours_lines, theirs_lines, strict=False) if a != b)


def report(found: Sequence[Difference], counts: Counter[str]) -> list[str]:
    """Differences grouped by what they look like, most frequent first, then figures."""
    groups: dict[tuple[str, str, str], list[Difference]] = defaultdict(list)
    for difference in found:
        groups[difference.preset, _pattern(difference.ours), _pattern(difference.theirs)].append(difference)
    lines: list[str] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        first = group[0]
        lines += [f"{len(group):5} {first.preset}, e.g. {first.id}"]
        lines += [f"        ours   {first.ours.strip()[:300]}", f"        jaxlib {first.theirs.strip()[:300]}"]
    return [*lines, ", ".join(f"{count} {what}" for what, count in counts.items())]


def _pattern(line: str) -> str:
    """The line without names and numbers."""
    return re.sub(r"%?[\w.\-]*\d[\w.\-]*", "N", line)


def compare(texts: Sequence[tuple[str, str]], theirs: dict[str, Answer]) -> tuple[list[Difference], Counter[str]]:
    """All differences that are no exceptions, and figures."""
    counts: Counter[str] = Counter(texts=len(texts))
    found: list[Difference] = []
    for name, text in texts:
        here = differences(name, our_answer(text), theirs[name])
        if here and name in EXCEPTIONS:
            counts["exceptions"] += 1
            continue
        found += here
        counts["equal" if not here else "different"] += 1
        counts["that jaxlib cannot read"] += isinstance(theirs[name], str)
    return found, counts


def bundle(texts: Sequence[tuple[str, str]], theirs: dict[str, Answer], limit: int) -> None:
    """Writes every n-th text with jaxlib's answers to the bundled file, as many as fit `limit` bytes."""
    step = 1
    while True:
        chosen = [texts[i] for i in range(len(texts)) if i % step == 0 or texts[i][0].startswith("more ")]
        rows = [[name, text, theirs[name]] for name, text in chosen if name not in EXCEPTIONS]
        data = gzip.compress(json.dumps(rows).encode(), 9, mtime=0)
        if len(data) <= limit:
            break
        step += 1
    BUNDLE.parent.mkdir(parents=True, exist_ok=True)
    BUNDLE.write_bytes(data)
    print(f"{BUNDLE}: {len(rows)} texts, {len(data)} bytes")


def read_bundle() -> list[tuple[str, str, Answer]]:
    """(id, text, jaxlib's answer) of the bundled texts."""
    return [tuple(row) for row in json.loads(gzip.decompress(BUNDLE.read_bytes()))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.text.witness", description=__doc__)
    parser.add_argument("--golden", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with jaxlib 0.10.2 (default: this one)"
    )
    parser.add_argument("--bundle", action="store_true", help="write the bundled texts for the fast tests anew")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    texts = list(golden_texts(options.golden))
    if not texts:
        print(f"no golden texts in {options.golden}", file=sys.stderr)
        return 2
    texts = [*more_texts(), *texts]
    theirs = ask_jaxlib(texts, options.python)
    if options.bundle:
        bundle(texts, theirs, 240_000)
    found, counts = compare(texts, theirs)
    print("\n".join(report(found, counts)))
    print(f"{time.perf_counter() - start:.1f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
