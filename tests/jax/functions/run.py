"""Runs cases in processes with the plugin, and counts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.jax.functions.table import Case, areas, cases
from tests.jax.pjrt.harness import python

TIMEOUT = 1800
"""Seconds for the cases of one process."""
GROUP = 40
"""Cases for each process of `main`, which tells of them when it ends."""


@dataclass
class Outcome:
    case: Case
    parts: list[str] = field(default_factory=list)
    error: str = ""
    cpu: float = 0.0

    def has(self, kind: str) -> bool:
        return any(part.startswith(kind) for part in self.parts)


def outcomes(ids: Iterable[str]) -> Iterator[Outcome]:
    """What came of each case. A process that dies or hangs fails the case that it was in; the rest run in another."""
    left = list(ids)
    while left:
        environment = cases()[left[0]].environment
        group = [id for id in left if cases()[id].environment == environment]
        for outcome in _in_one_process(group, dict(environment)):
            left.remove(outcome.case.id)
            yield outcome


def _in_one_process(ids: list[str], environment: dict[str, str]) -> Iterator[Outcome]:
    output, ended = _output(ids, environment)
    begun = ids[0]
    for line in output.splitlines():
        event = json.loads(line) if line.startswith(('{"begins', '{"ends')) else {}
        begun = event.get("begins", begun)
        if "ends" in event:
            begun = ""
            yield Outcome(cases()[event["ends"]], event["parts"], event["error"], event["cpu"])
    if begun:
        yield Outcome(cases()[begun], error=f"the process ended in it: {ended}")


def _output(ids: list[str], environment: dict[str, str]) -> tuple[str, str]:
    """What the process printed, and how it ended."""
    try:
        done = python("-m", "tests.jax.functions.worker", *ids, timeout=TIMEOUT, **environment)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(), f"{TIMEOUT} seconds were over"
    return done.stdout, f"exit code {done.returncode}\n{done.stderr[-4000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--area", action="append", choices=areas(), help="a table only; may be repeated")
    parser.add_argument("--module", help="the functions of this public module only")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    options = parser.parse_args()
    chosen = [
        id
        for id, one in cases().items()
        if one.area in (options.area or areas()) and options.module in (None, one.module) and options.only in id
    ]
    groups = [[id for id in chosen if cases()[id].area == area] for area in areas()]
    groups = [group[k : k + GROUP] for group in groups for k in range(0, len(group), GROUP)]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = [outcome for told in pool.map(_told, groups) for outcome in told]
    print(summary(found))
    return int(any(outcome.error for outcome in found))


def _told(ids: list[str]) -> list[Outcome]:
    found: list[Outcome] = []
    for outcome in outcomes(ids):
        end = "FAILED" if outcome.error else "refused" if outcome.case.unsupported else "passed"
        row = f"{end:8}{outcome.cpu:6.1f} s  {outcome.case.id}: {', '.join(outcome.parts)}\n{outcome.error}"
        print(row.rstrip(), flush=True)
        found.append(outcome)
    return found


def summary(found: list[Outcome]) -> str:
    """The counts, of distinct functions but for the last line."""
    failed = [outcome for outcome in found if outcome.error]
    refused = {outcome.case.name for outcome in found if outcome.case.unsupported}
    good = [outcome for outcome in found if not outcome.error and not outcome.case.unsupported]
    return "\n".join([
        f"{len({o.case.name for o in good})} functions in {len({o.case.module for o in good})} modules agree: "
        f"{len({o.case.name for o in good if o.has('grad')})} with their gradients, "
        f"{len({o.case.name for o in good if o.has('vmap')})} with vmap",
        f"{len(refused)} are not supported: {', '.join(sorted(refused)) or '-'}",
        f"{len(failed)} of {len(found)} cases failed: {', '.join(o.case.id for o in failed) or '-'}",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
