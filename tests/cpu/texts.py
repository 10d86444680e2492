"""LLVM text of many programs, recorded and compared: shows that a change of the compiler leaves its output as it was.

python -m tests.cpu.texts record FILE [--golden DIR]     writes hashes of each text (JSON)
python -m tests.cpu.texts compare FILE [--golden DIR]    exit status 1 and a line for each text that differs
    --names: texts that differ in names of values and in nsw, nuw and inbounds alone count as equal
    --only REGEX: those programs alone
python -m tests.cpu.texts show NAME TARGET [--golden DIR] [--strict]     prints one text, for a diff of two checkouts

Programs: the benchmark's, the bundled JAX programs', small and large ones of the fuzzer, and with --golden the recorded
cases. Each is compiled for every target in TARGETS, whatever this machine is; no LLVM code generation takes part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import hlokit as hk
from bench.lower import FOLDER, stored_text
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.target import parse
from hlokit.judge.fuzz.programs import random_draw
from hlokit.judge.fuzz.shapes import large_draw, shaped_draw
from tests.golden.programs import BUNDLED, HLO, program_names, read_program

_AMX = "x86-64-avx512,+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16"
TARGETS = {
    "SSE2": "x86-64",
    "AVX2": "x86-64-avx2",
    "AVX-512": "x86-64-avx512",
    "AMX": _AMX,
    "aarch64": "aarch64",
}
FUZZED = 100
"""Programs of each of the fuzzer's kinds."""


def programs(golden: Path | None) -> Iterator[tuple[str, Callable[[], hk.HloModule]]]:
    """Names, and what gives each module."""
    for path in sorted(FOLDER.glob("*.hlo.gz")):
        name = path.name.removesuffix(".hlo.gz")
        yield f"bench/{name}", partial(_parsed, stored_text, name)
    for name in program_names(BUNDLED):
        yield f"jax/{name}", partial(_parsed, lambda name: read_program(BUNDLED, name).hlo, name)
    for kind, draw in (("random", random_draw), ("shaped", shaped_draw), ("large", large_draw)):
        for seed in range(FUZZED):
            yield f"{kind}/{seed}", partial(_drawn, draw, seed)
    if golden is not None:
        for path in sorted(golden.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                case = json.loads(line)
                if "hlo" in case:
                    yield f"golden/{case['id']}", partial(_parsed, str, case["hlo"])
        for path in sorted(golden.glob(f"**/*{HLO}")):
            yield f"golden/{path.name.removesuffix(HLO)}", partial(_read, path)


def _parsed(text: Callable[[str], str], name: str) -> hk.HloModule:
    return hk.parse(text(name))


def _read(path: Path) -> hk.HloModule:
    return hk.parse(path.read_text(encoding="utf-8"))


def _drawn(draw: Callable[[int], object], seed: int) -> hk.HloModule:
    return draw(seed).module  # type: ignore[attr-defined, no-any-return]


def text(module: hk.HloModule, target: str, *, strict: bool = False) -> str:
    """The LLVM text of the program; for what does not compile, the error's."""
    try:
        return compile_program(module, parse(TARGETS[target]), strict=strict).text
    except hk.HlokitError as error:
        return f"{type(error).__name__}: {error}\n"


def hashes(golden: Path | None, only: str, part: int, parts: int) -> dict[str, str]:
    """By "program, target", of every `parts`-th program."""
    found: dict[str, str] = {}
    for number, (name, module_of) in enumerate(programs(golden)):
        if number % parts != part or not re.search(only, name):
            continue
        try:
            module = module_of()
        except hk.HlokitError:
            continue  # a recorded text that the language refuses
        for target in TARGETS:
            for strict in (False, True):
                key = f"{name}, {target}{', strict' if strict else ''}"
                try:
                    written = text(module, target, strict=strict)
                    found[key] = f"{_hash(written)} {_hash(unnamed(written))}"
                except Exception as error:  # an internal error
                    said = f"{type(error).__name__}:{error}".replace(" ", "_")
                    found[key] = f"{said} {said}"
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def unnamed(text: str) -> str:
    """The text with values, labels and functions named in their order, without what instructions promise."""
    names: dict[str, str] = {}
    text = re.sub(r" (?:nsw|nuw|inbounds)\b", "", text)
    text = re.sub(r"^(\w+):", r"%\1:", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=[@.])[kr][0-9a-f]{16}\b", lambda match: names.setdefault(match[0], f"f{len(names)}"), text)
    return re.sub(r"%[\w.]+", lambda match: names.setdefault(match[0], f"%{len(names)}"), text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cpu.texts", description=__doc__)
    parser.add_argument("action", choices=["record", "compare", "show"])
    parser.add_argument("what", nargs="+", help="FILE, or NAME and TARGET")
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="programs whose name holds this")
    parser.add_argument("--names", action="store_true", help="compare without names and promises")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.action == "show":
        name, target = options.what
        print(text(dict(programs(options.golden))[name](), target, strict=options.strict), end="")
        return 0
    file = Path(options.what[0])
    found: dict[str, str] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        parts = options.jobs * 4
        for one in pool.map(partial(hashes, options.golden, options.only, parts=parts), range(parts)):
            found |= one
    if options.action == "record":
        file.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{len(found)} texts")
        return 0
    before: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    if options.names:
        before, found = ({key: both.split()[1] for key, both in some.items()} for some in (before, found))
    before = {key: value for key, value in before.items() if re.search(options.only, key.partition(",")[0])}
    differ = sorted(key for key in before.keys() | found.keys() if before.get(key) != found.get(key))
    for key in differ:
        shown = "" if key in before and key in found else ": gone" if key in before else ": new"
        print(f"{key}{shown}{'' if ':' not in found.get(key, '') else ' ' + found[key]}")
    kinds = Counter(key.split("/")[0] for key in differ)
    print(f"{len(before)} texts, {len(differ)} differ" + "".join(f", {count} of {kind}" for kind, count in kinds.items()))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
