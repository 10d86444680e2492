"""A pytest plugin: a line of JSON for each program of several devices that the platform compiles.

HLOKIT_FALLBACKS names the file. `ops`: of the program; `whole`: those of them that run on whole values in its parts, as
`opcode name`; `why`: the cause, where the whole program runs on whole values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

_PLAIN = {"parameter", "constant", "tuple", "get-tuple-element"}
"""Instructions that compute nothing."""


def pytest_configure() -> None:
    from hlokit.interop.pjrt import shards

    divided = shards.divided

    def recorded(program: Any, made: Sequence[Any], regions: bool) -> Any:
        found = divided(program, made, regions)
        names = [i.opcode for c in program.module.all_computations for i in c.instructions if i.opcode not in _PLAIN]
        whole = []
        if found.found is not None:
            whole = sorted({f"{r.opcode} {r.op}" for r in found.found.reasons if r.kind == "whole"})
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition(" ")[0]
        row = {"test": test, "program": program.name, "ops": len(names), "whole": whole, "why": found.why}
        with open(os.environ["HLOKIT_FALLBACKS"], "a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        return found

    shards.divided = recorded
