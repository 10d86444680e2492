"""The command that runs all golden cases: python -m tests.golden.run --golden DIR.

Prints one line for each family, the causes of failures with count and example, and totals. Exit status 0 if
nothing failed, 1 if something did, 2 if there is nothing to run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.golden.cases import decode_case, golden_files
from tests.golden.check import FAILED, IGNORED, PASSED, ROUTES, SECONDS, Verdict, check_case
from tests.golden.engines import ENGINES

_CHUNK = 40
_SHOWN_CAUSES = 60


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        files = golden_files(options.golden, frozenset(options.family))
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if not options.collectives and "collectives" not in options.family:
        files = [path for path in files if path.stem != "collectives"]
    lines = [line for path in files for line in _lines(path) if _is_wanted(line, options)]
    if options.sample is not None and options.sample < len(lines):
        lines = random.Random(options.seed).sample(lines, options.sample)
    if not lines:
        print("no such case", file=sys.stderr)
        return 2
    routes = ROUTES if options.route == "both" else (options.route,)
    start = time.perf_counter()
    verdicts = list(run_lines(lines, routes, options.jobs, options.engine, options.seconds))
    _report(verdicts, options.verbose)
    print(f"{time.perf_counter() - start:.1f} s")
    failures = [verdict for verdict in verdicts if verdict.status == FAILED]
    if options.failures:
        records = [dataclasses.asdict(failure) for failure in failures]
        options.failures.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.run", description=__doc__)
    parser.add_argument("--golden", type=Path, required=True, metavar="DIR", help="the folder with the *.jsonl files")
    parser.add_argument("--family", action="append", default=[], help="run this family only (repeatable)")
    parser.add_argument("--id", action="append", default=[], help="run this case only (repeatable)")
    parser.add_argument("--op", action="append", default=[], help="run the cases of this operation only (repeatable)")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="run this many of the cases, the same for a seed")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--route", choices=[*ROUTES, "both"], default="both")
    parser.add_argument("--engine", choices=list(ENGINES), default="reference", help="what runs the modules")
    parser.add_argument("--collectives", action="store_true", help="run the family collectives too")
    parser.add_argument("--jobs", type=int, default=2, help="processes (1: all in this one)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a case may take (default: %(default)g)")
    parser.add_argument("--failures", type=Path, metavar="OUT.json", help="write the failures there")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each failure")
    return parser.parse_args(arguments)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _is_wanted(line: str, options: argparse.Namespace) -> bool:
    if not options.id and not options.op:
        return True
    record = json.loads(line)
    return record["id"] in options.id or record["op"] in options.op


def run_lines(
    lines: Sequence[str], routes: tuple[str, ...], jobs: int, engine: str = "reference", seconds: float = SECONDS
) -> Iterator[Verdict]:
    """The verdicts on the cases of these lines, in order."""
    chunks = [(lines[i : i + _CHUNK], routes, engine, seconds) for i in range(0, len(lines), _CHUNK)]
    if jobs == 1:
        yield from (verdict for chunk in chunks for verdict in _run_chunk(chunk))
        return
    with ProcessPoolExecutor(jobs) as pool:
        for verdicts in pool.map(_run_chunk, chunks):
            yield from verdicts


def _run_chunk(chunk: tuple[Sequence[str], tuple[str, ...], str, float]) -> list[Verdict]:
    lines, routes, engine, seconds = chunk
    cases = (decode_case(json.loads(line)) for line in lines)
    return [verdict for case in cases for verdict in check_case(case, routes, engine, seconds)]


def _report(verdicts: Sequence[Verdict], verbose: bool) -> None:
    failures = [verdict for verdict in verdicts if verdict.status == FAILED]
    if verbose:
        for failure in failures:
            print(f"{failure.id} {failure.op} {failure.kind} {failure.route}: {failure.cause}\n    {failure.detail}")
    for line in cause_lines(failures):
        print(line)
    for line in count_lines(verdicts):
        print(line)


def count_lines(verdicts: Iterable[Verdict]) -> list[str]:
    """A table: for each family and route how many passed, failed, were ignored; and the totals."""
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for verdict in verdicts:
        for row in (verdict.family, "total"):
            counts[row][verdict.route, verdict.status] += 1
    total = counts.pop("total")
    lines = [f"{'':20}{''.join(f'{route:>8}: passed  failed ignored' for route in ROUTES)}"]
    for family, count in [*sorted(counts.items()), ("total", total)]:
        cells = [count[route, status] for route in ROUTES for status in (PASSED, FAILED, IGNORED)]
        lines.append(f"{family:20}" + "".join(f"{cell:{16 if i % 3 == 0 else 8}}" for i, cell in enumerate(cells)))
    return lines


def cause_lines(failures: Sequence[Verdict]) -> list[str]:
    """The distinct causes, most frequent first: count, cause, operations, an example."""
    groups: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for failure in failures:
        cause = generic_cause(failure.cause)
        groups[cause, failure.op if cause.startswith(("output", "accepted")) else ""].append(failure)
    lines: list[str] = []
    for _, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        ops = Counter(failure.op for failure in group)
        shown = " ".join(f"{op}:{count}" for op, count in ops.most_common(6)) + (" ..." if len(ops) > 6 else "")
        routes = "+".join(sorted({failure.route for failure in group}))
        lines.append(f"{len(group):5}  {group[0].cause[:230]}")
        lines.append(f"       [{shown}] {routes}, e.g. {group[0].id} {group[0].detail}")
    if len(lines) > 2 * _SHOWN_CAUSES:
        hidden = len(lines) // 2 - _SHOWN_CAUSES
        lines = [*lines[: 2 * _SHOWN_CAUSES], f"       ... and {hidden} more causes"]
    return lines


def generic_cause(cause: str) -> str:
    """The cause without the values that differ from case to case."""
    for wrong in ("number of outputs", "dtype", "shape", "differ"):
        if cause.startswith("output ") and wrong in cause:
            return f"output: {wrong}"
    cause = re.sub(r"(round trip: )'.*", r"\1text differs", cause)
    cause = re.sub(r"\b(pred|bf16|[sufc]\d+\w*)\[[^]]*\](\{[^}]*\})?", "SHAPE", cause)
    return re.sub(r"-?\b\d[\d.e+-]*\b", "N", cause)


if __name__ == "__main__":
    sys.exit(main())
