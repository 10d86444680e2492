"""Picks the bundled sample: python -m tests.golden.sample --golden DIR writes tests/data/golden_sample.jsonl.gz.

For each operation and kind the smallest cases by bytes, with as many different element types, tolerance classes
and tags as the few allow. The choice depends on the golden files alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.golden.cases import golden_files

SAMPLE = Path(__file__).parents[1] / "data" / "golden_sample.jsonl.gz"
_PER_GROUP = {"ok": 2, "reject": 1, "build_only": 1}
_LARGEST = 9000
_LEFT_OUT = {"collectives"}

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.sample", description=__doc__)
    parser.add_argument("--golden", type=Path, required=True, metavar="DIR")
    lines = [line for path in golden_files(parser.parse_args().golden) for line in path.read_text().splitlines()]
    picked = pick([(json.loads(line), len(line)) for line in lines])
    write(picked, SAMPLE)
    print(f"{len(picked)} of {len(lines)} cases, {SAMPLE.stat().st_size} bytes")


def pick(records: list[tuple[Record, int]]) -> list[Record]:
    """The sample of (case, its size), in the order given."""
    groups: dict[tuple[str, ...], list[tuple[int, Record]]] = defaultdict(list)
    for record, size in records:
        if record["family"] not in _LEFT_OUT:
            groups[record["op"], record["kind"], *_signature(record)].append((size, record))
    wanted = {record["id"] for (_, kind, *_), group in groups.items() for record in _varied(group, _PER_GROUP[kind])}
    return [record for record, _ in records if record["id"] in wanted]


def _signature(record: Record) -> tuple[str, ...]:
    """What tells apart cases of one operation: the golden family (for newer HLO) and two ways of calling it."""
    step = next((step for step in record["program"]["steps"] if step["op"] == record["op"]), {"args": {}})
    forms = [key for key in ("operands", "inputs", "branch_index", "type") if key in step["args"]]
    return ("newer" if record["family"] == "newer_hlo" else "", *(forms if record["op"] != "Sort" else []))


def _varied(group: list[tuple[int, Record]], count: int) -> list[Record]:
    """Up to `count` small cases; each next one has most that the earlier lack."""
    small = sorted((item for item in group if item[0] <= _LARGEST), key=lambda item: (item[0], item[1]["id"]))
    candidates, chosen, seen = small or sorted(group, key=lambda item: item[0])[:1], list[Record](), set[str]()
    while candidates and len(chosen) < count:
        best = max(candidates, key=lambda item: (_interest(item[1]) - seen != set(), -item[0]))
        if chosen and len(_interest(best[1]) - seen) == 0:
            break
        candidates.remove(best)
        chosen.append(best[1])
        seen |= _interest(best[1])
    return chosen


def _interest(record: Record) -> set[str]:
    judged = "implementation_defined" not in record["tags"]
    types = {array["dtype"] for array in record["inputs"]}
    classes = {str(how.get("triangle", how["class"])) for how in record.get("tolerance") or ()}
    return {*types, *classes, *record["tags"]} if judged else set()


def write(records: list[Record], path: Path) -> None:
    """Compresses without time stamp, so that the same cases give the same bytes."""
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
