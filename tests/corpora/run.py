"""Programs of other projects on hlokit: python -m tests.corpora.run --python PYTHON --out FOLDER [NAME ...].

PYTHON is that of an environment with the packages (`make corpora` makes it), FOLDER keeps what is found: the same
command continues where it was stopped. NAME is a family or the beginning of FAMILY/PROGRAM. `--table docs/corpora.md` writes
the page.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpora.checking import STAGES
from tests.corpora.making import folder_of

ROOT = Path(__file__).parents[2]
FAMILIES = {"jax_libraries": 8, "tensorflow_functions": 12, "transformers_models": 6, "keras_applications": 1}
"""How many programs of a family one process makes."""
_TITLES = {
    "jax_libraries": "Libraries of JAX", "tensorflow_functions": "TensorFlow", "transformers_models": "Transformers",
    "keras_applications": "Keras applications",
}  # fmt: skip
_LARGE = ("program", "in.npz", "out.npz")
_MEMORY = 20 << 30
_HEAD = """# Programs of other projects

This page compares hlokit's results on programs of other projects with the results of their own frameworks. The programs are built
from published packages; networks have random weights, so nothing else is downloaded. `make corpora` creates a separate
environment, runs the programs for several hours, continues after an interruption, and writes this page.
"""
_TERMS = """Each program is read and verified, compiled and run, and interpreted if it is small.

| result | meaning |
| --- | --- |
| equal | the largest difference of each array, divided by its largest element, is at most 1e-4 in f32 and 1e-8 in f64: which is the usual effect of a different order of rounding |
| rounding | the difference is larger, but no larger than the differences between results of the reference with different rounding ("allowed" in `hlokit compare`); for a program too large for the interpreter: hlokit's result, unlike the framework's, is equal to that of the same program in f64. Sums that cancel almost completely, such as the gradient of a bias before a normalisation, can differ in all digits |
| differs, fails | a result that rounding does not explain; an error, a crash or a timeout on hlokit |
| not built | the framework could not build the program |

"Error" is the largest difference, defined as above. "Speedup" is the time of XLA's CPU client divided by hlokit's, for the best
of five calls each, on a machine that did other work at the same time; it is only an indication.
"""


@dataclass(frozen=True)
class Entry:
    """A program and what is known of it."""

    family: str
    name: str
    folder: Path

    @property
    def made(self) -> dict[str, Any] | None:
        path = self.folder / "made.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def facts(self) -> dict[str, Any] | None:
        """What the check found; None if it was not begun, or was ended from outside before it had a result."""
        path = self.folder / "checked.jsonl"
        if not path.exists():
            return None
        found: dict[str, Any] = {}
        errors: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            facts = json.loads(line)
            errors += [facts.pop("error")] if "error" in facts else []
            found |= facts
        found.pop("stage", None)
        if "close" not in found and not errors:
            return None
        return found | {"errors": errors}


def entries(out: Path, names: Sequence[str]) -> list[Entry]:
    """The programs that the names stand for; all without names."""
    found: list[Entry] = []
    for family in FAMILIES:
        module = importlib.import_module(f"tests.corpora.families.{family}")
        found += [Entry(family, name, folder_of(out, family, name)) for name in module.NAMES]
    chosen = [e for e in found if not names or any(f"{e.family}/{e.name}".startswith(n) for n in names)]
    if not chosen:
        raise SystemExit(f"there are no programs {', '.join(names)}: families are {', '.join(FAMILIES)}")
    return chosen


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _run(command: Sequence[str], limit: float, environment: dict[str, str]) -> str:
    """Runs a command under limits. How it ended, "" for status 0."""
    child = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, preexec_fn=_limited, start_new_session=True,
    )  # fmt: skip
    try:
        said = child.communicate(timeout=limit)[1]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.communicate()
        return f"no end within {limit:g} s"
    last = said.strip().splitlines()[-1:] if child.returncode > 0 else []
    return "" if child.returncode == 0 else "; ".join([f"exit status {child.returncode}", *last])[:500]


def make(python: str, out: Path, batch: Sequence[Entry], limit: float) -> None:
    """Builds programs in one process; if that ends early, those that are missing one at a time."""
    command = [python, "-m", "tests.corpora.making", batch[0].family, str(out), *(e.name for e in batch)]
    ended = _run(command, limit * len(batch), {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)})
    missing = [entry for entry in batch if entry.made is None]
    if len(batch) > 1:
        for entry in missing:
            make(python, out, [entry], limit)
    elif missing:
        batch[0].folder.mkdir(parents=True, exist_ok=True)
        record = {"error": f"the process that builds it: {ended}"}
        (batch[0].folder / "made.json").write_text(json.dumps(record), encoding="utf-8")


def check(entry: Entry, limit: float) -> None:
    """Runs a program on hlokit; a crash or a hang is a finding."""
    ended = _run([sys.executable, "-m", "tests.corpora.checking", str(entry.folder)], limit, {})
    path = entry.folder / "checked.jsonl"
    if not ended:
        return
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    stage = next((facts["stage"] for facts in reversed(lines) if "stage" in facts), "start")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({stage: False, "error": f"{stage}: {ended}"}) + "\n")


def run(python: str, out: Path, wanted: Sequence[Entry], limit: float, keep: bool) -> None:
    """Makes and checks what is not done."""
    for batch in _batches([entry for entry in wanted if entry.facts is None]):
        todo = [entry for entry in batch if entry.made is None]
        if todo:
            make(python, out, todo, limit)
        for entry in batch:
            start = time.monotonic()
            if (entry.folder / "program").exists():
                check(entry, limit)
            if not keep:
                for name in _LARGE:
                    (entry.folder / name).unlink(missing_ok=True)
            print(f"{entry.family}/{entry.name}: {verdict(entry)} ({time.monotonic() - start:.0f} s)", flush=True)


def _batches(wanted: Sequence[Entry]) -> Iterator[list[Entry]]:
    for family, size in FAMILIES.items():
        own = [entry for entry in wanted if entry.family == family]
        for first in range(0, len(own), size):
            yield own[first : first + size]


def verdict(entry: Entry) -> str:
    """One word or more on a program: "equal" and "rounding" are as they should be."""
    made, facts = entry.made, entry.facts
    if made is None:
        return "not run"
    if "absent" in made:
        return f"not installed: {', '.join(made['absent'])}"
    if "error" in made:
        return "not built"
    if facts is None:
        return "not run"
    if facts["errors"]:
        return "fails"
    if facts.get("close") and facts.get("interpreter_close", True):
        return "equal"
    if facts.get("f64_close"):
        return "rounding"
    if facts.get("judged") and not facts["compiled_beyond"] and not facts["framework_beyond"]:
        return "rounding"
    return "differs"


def _cells(entry: Entry) -> list[str]:
    facts = entry.facts or {}
    words = {True: "yes", False: "no", None: ""}
    cells = [entry.name, str(facts.get("instructions", ""))]
    cells += [words[facts.get(stage)] for stage in STAGES]
    cells[-1] = "not run" if facts.get("compiled") and "interpreter" not in facts else cells[-1]
    cells += [verdict(entry), f"{facts['distance']:.0e}" if "distance" in facts else ""]
    cells.append(f"{facts['compile_seconds']:.1f}" if "compile_seconds" in facts else "")
    cells.append(f"{facts['xla_seconds'] / facts['seconds']:.1f}" if "xla_seconds" in facts else "")
    return cells


def table(wanted: Sequence[Entry]) -> str:
    """The page."""
    summary = ["| programs | number | results |", "| --- | --- | --- |"]
    lines = list[str]()
    for family in FAMILIES:
        own = [entry for entry in wanted if entry.family == family and entry.made is not None]
        if not own:
            continue
        module = importlib.import_module(f"tests.corpora.families.{family}")
        counts = Counter(verdict(entry) for entry in own)
        said = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        versions = {k: v for e in own for k, v in (e.made or {}).get("versions", {}).items() if v}
        lines += [
            f"## {_TITLES[family]}", "", (module.__doc__ or "").strip(), "",
            f"{len(own)} programs: {said}. Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".", "",
            "| program | instructions | verified | compiled | interpreted | result | error | compile time, s | speedup |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]  # fmt: skip
        summary.append(f"| {_TITLES[family]} | {len(own)} | {said} |")
        lines += [f"| {' | '.join(_cells(entry))} |" for entry in own]
        lines.append("")
        for entry in own:
            lines += [f"- {entry.name}: {_plain(error)}" for error in _errors(entry)]
        if lines[-1]:
            lines.append("")
    return "\n".join([_HEAD, *summary, "", _TERMS, *lines]).rstrip("\n") + "\n"


def _errors(entry: Entry) -> list[str]:
    """What the framework, hlokit and XLA said."""
    made, facts = entry.made or {}, entry.facts or {}
    found = [made["error"]] if "error" in made else []
    found += facts.get("errors", ())
    if "f64_distance" in facts:
        ours, theirs = facts["f64_distance"], facts["f64_framework_distance"]
        found.append(f"from the program in f64: hlokit's result {ours:.0e}, the framework's {theirs:.0e}")
    found += [facts[name] for name in ("compiled_beyond", "framework_beyond", "xla_error") if facts.get(name)]
    return found


def _plain(error: str) -> str:
    """The first line of an error, as code."""
    return "`" + error.partition("\n")[0].replace("`", "'").replace(str(Path.home()), "~")[:240] + "`"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpora.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--python", help="of the environment with the packages; without it nothing is run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each step of a program")
    parser.add_argument("--keep", action="store_true", help="keep programs, arguments and results")
    parser.add_argument("--table", type=Path, help="the page to write")
    given = parser.parse_args(words)
    out = given.out.absolute()
    wanted = entries(out, given.names)
    if given.python:
        run(given.python, out, wanted, given.limit, given.keep)
    if given.table:
        given.table.write_text(table(entries(out, ())), encoding="utf-8")
    counts = Counter(verdict(entry) for entry in wanted)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return int(bool(counts["fails"] or counts["differs"]))


if __name__ == "__main__":
    sys.exit(main())
