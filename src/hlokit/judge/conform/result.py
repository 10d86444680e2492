"""CaseResult: what came of a case on an engine."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.judge.compare.comparing import Judgement
from hlokit.judge.conform.cases import ConformanceCase, Status


@dataclass(frozen=True)
class CaseResult:
    """The result of a case: "equal" and "allowed" are passed, "unsupported" is not supported, all else has failed."""

    case: ConformanceCase
    judgement: Judgement

    @property
    def status(self) -> Status:
        if self.judgement.verdict == "unsupported":
            return "not supported"
        return "failed" if self.judgement.is_finding else "passed"
