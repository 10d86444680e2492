"""StableHLO's own programs that check themselves, in the interpreter and in machine code.

    MIRROR=FOLDER python -m tests.stablehlo.suite testdata|interpret|quantized [--answers FILE] [--match REGEX]

FOLDER holds a bare git repository of openxla/stablehlo as openxla+stablehlo/repo. Each program is evaluated by the
reference and compiled; the results of both are compared. Answers go to FILE, a line of JSON each: the next run goes on
after them. Prints what fails, by name, and how many pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_FOLDERS = {
    "testdata": "stablehlo/testdata",
    "quantized": "stablehlo/testdata/quantized",
    "interpret": "stablehlo/tests/interpret",
}
_SECONDS = 60


def programs(mirror: Path, part: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each program that checks something. Where there is no main, the last function is."""
    repository = mirror / "openxla+stablehlo" / "repo"

    def git(*arguments: str) -> str:
        command = ["git", "--git-dir", str(repository), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    folder = _FOLDERS[part]
    for path in git("ls-tree", "-r", "--name-only", "HEAD", folder).split():
        if not path.endswith(".mlir") or (part == "testdata" and str(Path(path).parent) != folder):
            continue
        for number, text in enumerate(re.split(r"^// -----.*$", git("show", f"HEAD:{path}"), flags=re.MULTILINE)):
            if "check." not in text or "expected-error" in text:
                continue
            if "@main" not in text:
                names = re.findall(r"func\.func (?:public )?@(\w+)\(\)", text)
                if not names:
                    continue
                text = re.sub(rf"@{names[-1]}\b", "@main", text)
            yield f"{Path(path).stem}.{number}", text


def answer(text: str) -> dict[str, str]:
    """What came of a program: "interpreter" and "machine code", each "pass" or what failed."""
    import hlokit as hk

    results: dict[str, Any] = {}
    found: dict[str, str] = {}
    try:
        module = hk.parse(text)
    except hk.HlokitError as error:
        return dict.fromkeys(("interpreter", "machine code"), f"{type(error).__name__}: {error}")
    for engine in ("interpreter", "machine code"):
        try:
            results[engine] = hk.evaluate(module) if engine == "interpreter" else hk.compile(module)()
            found[engine] = "pass"
        except hk.HlokitError as error:
            found[engine] = f"{type(error).__name__}: {error}"
    if len(results) == 2:
        difference = _difference(*results.values())
        if difference is not None:
            found["machine code"] = f"differs from the interpreter: {difference}"
    return found


def _difference(ours: Any, theirs: Any) -> str | None:
    """None where the results agree: others than floats exactly, floats within 64 units in the last place."""
    import numpy as np

    if isinstance(ours, tuple):
        parts: Any = zip(ours, theirs, strict=True)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return next(filter(None, (_difference(a, b) for a, b in parts)), None)
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)}, {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "biu":
        near = a == b
    else:
        import ml_dtypes

        limits: Any = ml_dtypes.finfo(a.dtype) if a.dtype.kind != "c" else np.finfo(a.dtype)
        step = float(limits.eps)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        scale = np.abs(x[np.isfinite(x)]).max(initial=0.0) if x.size else 0.0
        with np.errstate(all="ignore"):
            near = (
                (x == y)
                | (np.isnan(x) & np.isnan(y))
                | (np.abs(x - y) <= 64 * step * np.maximum(np.abs(x), scale / 64))
            )
    if np.all(near):
        return None
    index = tuple(map(int, np.argwhere(~np.atleast_1d(near))[0]))[: a.ndim]
    return f"at {list(index)}: {b[index]}, expected {a[index]}"


def _work() -> None:
    """Answers lines of [name, text] from standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of programs are no answers
    for line in sys.stdin:
        name, text = json.loads(line)
        print(json.dumps([name, answer(text)]), file=out, flush=True)


class _Worker:
    """A process that answers; one that crashes or hangs is replaced by another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, name: str, text: str) -> dict[str, str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.stablehlo.suite", "--work"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([name, text]).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
        line = process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)[1]
        self.close()
        found = f"status {process.returncode}" if ready else f"no answer in {_SECONDS} seconds"
        return dict.fromkeys(("interpreter", "machine code"), found)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=_FOLDERS, default="interpret")
    parser.add_argument("--answers", type=Path, help="where answers are kept")
    parser.add_argument("--match", default="", help="only programs whose names match")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        _work()
        return 0
    path: Path | None = given.answers
    known = dict(map(json.loads, path.read_text().splitlines())) if path is not None and path.exists() else {}
    chosen = {n: t for n, t in programs(Path(os.environ["MIRROR"]), given.part) if re.search(given.match, n)}
    worker = _Worker()
    found: dict[str, dict[str, str]] = {}
    for name, text in chosen.items():
        found[name] = known.get(name) or worker.ask(name, text)
        if path is not None and name not in known:
            with path.open("a") as file:
                print(json.dumps([name, found[name]]), file=file)
        for engine, result in found[name].items():
            if result != "pass":
                print(f"{name}: {engine}: {result.splitlines()[0]}", flush=True)
    worker.close()
    failed = False
    for engine in ("interpreter", "machine code"):
        passed = sum(result[engine] == "pass" for result in found.values())
        failed |= passed < len(found)
        print(f"{given.part}, {engine}: {passed} of {len(found)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
