"""What the logs of JAX's tests say: the outcome of each test.

A log has a row of JSON for each event, in the order of time: `process` (a process begins: versions, limit), `begins` (a
test), `outcome` (a test's, or of a file that cannot be collected), `ends` (a process has run all that it was to run).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CUT_OFF, DIED = "cut off", "died"
"""Outcomes that a process cannot tell of itself: it was stopped at the limit, or it ended in the test."""
_WORST = ["passed", "skipped", "failed", DIED, CUT_OFF]


@dataclass
class Test:
    id: str
    outcome: str = ""
    """Nothing: it began, and the command ended."""
    text: str = ""
    seconds: float = 0.0
    process: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def failed(self) -> bool:
        return self.outcome in ("failed", DIED)

    @property
    def is_file(self) -> bool:
        """Whether this is a file or a class that could not be collected."""
        return "::" not in self.id


@dataclass
class Log:
    tests: dict[str, Test] = field(default_factory=dict[str, Test])
    complete: bool = False
    processes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    begun: str = ""
    """The test that the last process was in."""


def read(path: Path) -> Log:
    """The last run of each test counts."""
    log = Log()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:  # the machine was stopped in the middle of a row
            continue
        _take(log, row)
    return log


def _take(log: Log, row: dict[str, Any]) -> None:
    if "process" in row:
        log.processes.append(row["process"])
        log.complete, log.begun = False, ""
    elif "ends" in row:
        log.complete, log.begun = row["ends"], ""
    elif "begins" in row:
        log.begun = row["id"]
        log.tests[row["id"]] = Test(row["id"], process=log.processes[-1])
    else:
        test = log.tests.setdefault(row["id"], Test(row["id"], process=log.processes[-1]))
        test.outcome = max(test.outcome or "passed", row["outcome"], key=_WORST.index)
        test.text = row["text"] or test.text
        test.seconds += row["seconds"]


def append(path: Path, **row: object) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
