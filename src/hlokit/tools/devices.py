"""hlokit devices: shows which rank of a job waits for which, from the dumps of its flight recorders."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hlokit.devices.flight_report import FlightReport, read_dumps, reports
from hlokit.tools.status import DONE, FOUND


def devices(*dumps: Annotated[Path, Parameter(required=True)], json: bool = False) -> int:
    """Shows which rank waits for which, and where, from the dumps of the flight recorders of a job's processes.

    A recorder writes a dump when a run fails and on SIGUSR2, if HLOKIT_FLIGHT_RECORDER names a folder. Exit status 1 if
    a rank failed or waits for another that has not arrived.

    Parameters
    ----------
    dumps:
        dump files, or folders with dump files.
    json:
        print JSON: for each world the state of each rank, which rank waits for which, and the findings.
    """
    found = reports(read_dumps(dumps))
    if json:
        print(json_module.dumps([report.facts() for report in found], indent=2))
    else:
        print("\n\n".join(map(_text, found)))
    return FOUND if any(report.findings for report in found) else DONE


def _text(report: FlightReport) -> str:
    lines = [f"world {report.world} of {report.size} rank{'s' if report.size > 1 else ''}"]
    lines += [f"  rank {rank}: {state}" for rank, state in sorted(report.states.items())]
    lines += [f"finding: {text}" for text in report.findings] or ["no rank waits for another that has not arrived"]
    return "\n".join(lines)
