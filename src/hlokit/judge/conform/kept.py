"""Results of conformance cases in a folder, from which an interrupted run continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from hlokit.errors import ArgumentError
from hlokit.judge.compare.comparing import Judgement
from hlokit.judge.conform.cases import ConformanceCase, suite_bytes
from hlokit.judge.conform.result import CaseResult
from hlokit.judge.engines.outcome import Outcome

_LOG = "conform.jsonl"


class Kept:
    """The results that a folder has of one engine and one suite, which the first line of its log names.

    Raises ArgumentError if it has those of another engine or of another suite.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        self.path = folder / _LOG
        folder.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # the run was ended in the middle of a line
            lines.pop()
            self.path.write_text("".join(lines), encoding="utf-8")
        head = {"engine": engine, "suite": sha256(suite_bytes()).hexdigest()[:16]}
        if not lines:
            self._write(head)
        self.records: list[dict[str, Any]] = [json.loads(line) for line in lines[1:]]
        found = json.loads(lines[0]) if lines else head
        for what in ("engine", "suite"):
            if found[what] != head[what]:
                raise ArgumentError(
                    f"conform: {self.path} has results of the {what} {found[what]}, not of {head[what]}; "
                    "choose another folder"
                )

    def results(self, cases: Sequence[ConformanceCase]) -> dict[str, Judgement]:
        """The judgements that are kept of some cases, by their names."""
        wanted = {case.name for case in cases}
        return {record["case"]: _judgement(record) for record in self.records if record["case"] in wanted}

    def add(self, result: CaseResult) -> None:
        """Adds a result to the folder."""
        judgement, outcome = result.judgement, result.judgement.outcome
        self._write(
            {
                "case": result.case.name, "engine": judgement.engine, "verdict": judgement.verdict,
                "message": judgement.message, "rules": judgement.rules, "difference": judgement.difference,
                "bound": judgement.bound, "status": outcome.status, "seconds": outcome.seconds,
                "printed": outcome.printed,
            }
        )  # fmt: skip

    def _write(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _judgement(record: dict[str, Any]) -> Judgement:
    """The judgement of a record, without the arrays of the result."""
    outcome = Outcome(record["status"], (), "", record["seconds"], record["printed"])
    return Judgement(
        record["engine"], outcome, record["verdict"], record["message"], rules=tuple(record["rules"]),
        difference=record["difference"], bound=record["bound"],
    )  # fmt: skip
