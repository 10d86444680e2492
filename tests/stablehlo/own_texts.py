"""The files of StableHLO's and Shardy's own tests: read, printed, read back; and refused where they expect an error.

    python -m tests.stablehlo.own_texts --mirror FOLDER [--match REGEX] [--show CLASS] [--markdown FILE]

FOLDER holds bare git repositories: openxla+stablehlo/repo, openxla+shardy/repo. A file has parts between lines of
`// -----`; of each part each function is a program, with what it calls. The classes of programs:

    same         read, printed as StableHLO, read back, printed and read back once more, and printed the same
    sizes        of sizes that the text leaves open
    refused      it expects an error (`expected-error`), and is refused
    dialects     it has operations of dialects that are not read
    unsupported  UnsupportedError names what is missing
    not read     a ParseError where no error is expected
    accepted     it expects an error, and is read
    differs      it is not printed, not read back, or not printed the same
    fault        another error than hlokit's own
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import hlokit as hk
from hlokit.files.kinds import other_dialects
from hlokit.stablehlo.mapping import DIALECTS

CLASSES = ("same", "sizes", "refused", "dialects", "unsupported", "not read", "accepted", "differs", "fault")
SECONDS = 60
_SEPARATOR = re.compile(r"^\s*// -----.*$", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*(?:func\.func|\"func\.func\")\b.*?@(\w+)", re.MULTILINE)
_MESH = re.compile(r"^\s*sdy\.mesh @(\w+).*$", re.MULTILINE)
_OPERATION = re.compile(r"""(?:^|= |\) )"?([A-Za-z_]\w*)\.[\w.]+"?[ ({<@%]""", re.MULTILINE)
_FOLDERS = {
    "openxla+stablehlo": ("stablehlo/tests", "stablehlo/testdata/dynamic", "stablehlo/testdata/quantized"),
    "openxla+shardy": ("shardy/dialect/sdy",),
}


@dataclass(frozen=True)
class Program:
    """A function of a part of a file. `name`: file.part.function."""

    folder: str
    name: str
    text: str
    expects_error: bool


def programs(mirror: Path) -> Iterator[Program]:
    """All functions of all files."""
    for repository, folders in _FOLDERS.items():
        repo = mirror / repository / "repo"
        for folder in folders:
            for path in _git(repo, "ls-tree", "-r", "--name-only", "HEAD", folder).split():
                if path.endswith(".mlir"):
                    name = str(Path(path).parent).replace("shardy/dialect/sdy", "sdy").replace("stablehlo/tests", "tests")
                    yield from programs_of(name, Path(path).stem, _git(repo, "show", f"HEAD:{path}"))


def programs_of(folder: str, name: str, source: str) -> Iterator[Program]:
    """Each function of each part of a file, as the main function; a part without functions as it is."""
    for number, part in enumerate(_SEPARATOR.split(source)):
        code = re.sub(r"^\s*//.*$", "", part, flags=re.MULTILINE)
        if not code.strip():
            continue
        functions = list(_FUNCTION.finditer(part))
        if len(functions) < 2 or "@main" in code:
            yield Program(folder, f"{name}.{number}", part, "expected-error" in part)
            continue
        names = [found[1] for found in functions]
        starts = [_comments_above(part, found.start()) for found in functions] + [len(part)]
        header, chunks = part[: starts[0]], [part[a:b] for a, b in pairwise(starts)]
        meshes = {found[1]: found[0] for found in _MESH.finditer(part)}
        header, chunks = _MESH.sub("", header), [_MESH.sub("", chunk) for chunk in chunks]
        opens = header.count("{") - header.count("}")  # of a module around the functions
        if opens > 0:
            chunks[-1] = chunks[-1].rstrip()[:-1]
        called = {found for chunk in chunks for found in re.findall(r"call @(\w+)", chunk)}
        for function in dict.fromkeys(names):
            if function in called:
                continue
            kept = _reached(function, dict(zip(names, chunks, strict=True)))
            body = "\n".join(chunks[names.index(each)] for each in kept)
            named = [mesh for name, mesh in meshes.items() if re.search(rf"@{name}\b", body)]
            text = "\n".join([header, *named, body, "}" * max(opens, 0)])
            text = re.sub(rf"@{function}\b", "@main", text)
            yield Program(folder, f"{name}.{number}.{function}", text, "expected-error" in text)


def _comments_above(text: str, start: int) -> int:
    """Where the lines of comments that stand before `start` begin."""
    start = text.rfind("\n", 0, start + 1) + 1 if text[start] != "\n" else start + 1
    while start > 0:
        line = text.rfind("\n", 0, start - 1) + 1
        if not text[line:start].lstrip().startswith("//"):
            break
        start = line
    return start


def _reached(function: str, chunks: dict[str, str]) -> list[str]:
    found, waiting = list[str](), [function]
    while waiting:
        name = waiting.pop()
        if name in chunks and name not in found:
            found.append(name)
            waiting += re.findall(r"@(\w+)", chunks[name])
    return found


def answer(program: Program) -> tuple[str, str]:
    """A program's class, and why."""
    try:
        module = hk.parse(program.text)
    except hk.HlokitError as error:
        return _class_of_error(program, error)
    if program.expects_error:
        return "accepted", (re.search(r"expected-error.*", program.text) or [""])[0]
    try:
        text = hk.to_stablehlo(module)
    except hk.UnsupportedError as error:
        return "unsupported", f"printing: {_line(error)}"
    try:
        text = hk.to_stablehlo(hk.parse(text))  # a list of one value is written as dense<value>, which is a broadcast
        again = hk.to_stablehlo(hk.parse(text))
    except hk.HlokitError as error:
        return "differs", _line(error)
    return ("same", "") if again == text else ("differs", _difference(text, again))


def _class_of_error(program: Program, error: hk.HlokitError) -> tuple[str, str]:
    why = _line(error)
    if program.expects_error:
        return "refused", why
    if "unknown size" in why:
        return "sizes", why
    others = {found[1] for found in _OPERATION.finditer(re.sub(r"//.*", "", program.text))} - DIALECTS
    if others or other_dialects(program.text):
        return "dialects", ", ".join(sorted(others)) or why
    return "unsupported" if isinstance(error, hk.UnsupportedError) else "not read", why


def _difference(text: str, again: str) -> str:
    pairs = zip(text.splitlines(), again.splitlines(), strict=False)
    return next((f"{a.strip()} | {b.strip()}" for a, b in pairs if a != b), "other lengths")


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:240]


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "--git-dir", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ended(*_: Any) -> None:
    raise TimeoutError(f"no end in {SECONDS} s")


def table(counts: dict[str, Counter[str]]) -> list[str]:
    """A row of Markdown for each folder, and one for all."""
    whole = sum(counts.values(), Counter[str]())
    used = [kind for kind in CLASSES if whole[kind]]
    lines = [f"| folder | {' | '.join(used)} |", f"| --- |{' --- |' * len(used)}"]
    for folder, count in [*counts.items(), ("all", whole)]:
        lines.append(f"| {folder} | {' | '.join(str(count[kind]) for kind in used)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=Path, default=os.environ.get("MIRROR"), help="the folder of snapshots")
    parser.add_argument("--match", default="", help="only programs whose names match")
    parser.add_argument("--show", action="append", choices=CLASSES, default=[], help="print the programs of a class")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    options = parser.parse_args()
    if options.mirror is None:
        parser.error("--mirror, or the environment variable MIRROR, names the folder of snapshots")
    counts: dict[str, Counter[str]] = {}
    signal.signal(signal.SIGALRM, _ended)
    for program in programs(options.mirror):
        if not re.search(options.match, f"{program.folder}/{program.name}"):
            continue
        signal.alarm(SECONDS)
        try:
            kind, why = answer(program)
        except Exception as error:
            kind, why = "fault", _line(error)
        signal.alarm(0)
        counts.setdefault(program.folder, Counter())[kind] += 1
        if kind in options.show:
            print(f"{kind}: {program.folder}/{program.name}: {why}", flush=True)
    lines = table(counts)
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
