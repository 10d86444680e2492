"""hlokit check: checks whether files contain legal programs."""

from __future__ import annotations

import json as json_module
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hlokit.analysis.rendezvous import check_rendezvous
from hlokit.api import verify
from hlokit.errors import HlokitError, ParseError, VerifyError
from hlokit.files.kinds import is_beside_programs
from hlokit.files.reading import findings_of_bytes
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.interpreter.checks import device_counts, grid_text
from hlokit.interpreter.order import communication_of
from hlokit.rules import LABEL
from hlokit.tools.files import content_of, is_standard, loaded
from hlokit.tools.status import BAD, DONE, FOUND, is_finding, message_of, say

_SHOWN = 30


def check(
    *files: Annotated[Path, Parameter(required=True)],
    replicas: int | None = None,
    partitions: int | None = None,
    all: bool = False,
    json: bool = False,
) -> int:
    """Reads programs and verifies every rule of the language; lists all findings of each file on standard error.

    For a program with collectives or channels, reports whether the devices can deadlock. Exit status 1 if a program
    breaks a rule or would deadlock, 2 if a file cannot be read or is not a program. If there are several files, those
    of other known kinds, such as the LLVM IR in a folder of dumps, are counted by kind.

    Parameters
    ----------
    files:
        one or more programs, in any kind of file that hlokit reads; a folder stands for all files below it, `-` for
        standard input.
    replicas:
        number of replicas that run them; by default the number in each file.
    partitions:
        number of partitions that run them; by default the number in each file.
    all:
        also print a line for each file that is not a program.
    json:
        print JSON: for each file its status, its kind, and all findings with their positions and rules.
    """
    told: list[dict[str, Any]] = []
    paths = [path for given in files for path in _files(given)]
    several = len(files) > 1 or any(given.is_dir() for given in files)
    status = max([_check(path, replicas, partitions, several, told, json) for path in paths], default=DONE)
    if not any("module" in facts or facts["findings"] for facts in told):
        status = BAD
        say("none of these files contains a program" if paths else f"{', '.join(map(str, files))}: no files there")
    if json:
        print(json_module.dumps(told, indent=2))
        return status
    others = [facts for facts in told if "kind" in facts]
    for facts in others if all else ():
        print(f"{facts['file']}: {facts['kind']}")
    if others and not all:
        kinds = Counter(facts["kind"] for facts in others).most_common()
        found = "; ".join(f"{kind} ({count})" for kind, count in kinds)
        print(f"{counted(len(others), 'other file')} (--all lists them): {found}")
    return status


def _files(path: Path) -> list[Path]:
    """The file, or all files below a folder in the order of their names."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _check(
    file: Path, replicas: int | None, partitions: int | None, several: bool, told: list[dict[str, Any]], json: bool
) -> int:
    """The exit status for one file; prints the result, or adds it to `told`."""
    name = "standard input" if is_standard(file) else str(file)
    facts: dict[str, Any] = {"file": name, "status": DONE, "findings": []}
    told.append(facts)
    try:
        found = findings_of_bytes(content_of(file), file.name)
        if not found:
            lines = _report(loaded(file), f"{name}: " if several else "", replicas, partitions, facts)
            for line in lines:
                if not json:
                    print(line)
    except VerifyError as error:
        found = [VerifyError([finding]) for finding in error.findings]
    except HlokitError as error:
        found = [error]
    except BrokenPipeError:  # of standard output
        raise
    except (OSError, MemoryError) as error:
        facts |= {"status": BAD, "findings": [{"message": message_of(error)}]}
        if not json:
            say(message_of(error))
        return BAD
    if several and found and isinstance(found[0], ParseError) and is_beside_programs(found[0].kind):
        facts["kind"] = found[0].kind
        return DONE
    facts["status"] = max((FOUND if is_finding(error) else BAD for error in found), default=DONE)
    facts["findings"] = [_facts(error) for error in found]
    for error in () if json else found[:_SHOWN]:
        error.file = name
        say(message_of(error))
    if len(found) > _SHOWN and not json:
        say(f"{name}: {len(found) - _SHOWN} more")
    return facts["status"]


def _facts(error: HlokitError) -> dict[str, Any]:
    """An error as JSON; line and column are 0 if there is no position."""
    place = {name: getattr(error, name, 0) or 0 for name in ("line", "column")}
    labels = re.findall(rf"\[({LABEL.pattern})\]", str(error))
    return {"message": str(error), "label": labels[-1] if labels else None, **place}


def _report(
    module: HloModule, head: str, replicas: int | None, partitions: int | None, facts: dict[str, Any]
) -> Iterator[str]:
    """Describes a legal program. Raises the verifier's findings, and a deadlock of its devices."""
    verify(module)
    computations = module.all_computations
    count = sum(len(c) for c in computations)
    facts |= {"module": module.name, "computations": len(computations), "instructions": count}
    facts["program_shape"] = str(module.program_shape)
    yield f"{head}{module.name}: ok, {counted(len(computations), 'computation')}, {counted(count, 'instruction')}"
    yield f"  {module.program_shape}"
    yield from _check_devices(module, *device_counts(module, replicas, partitions), facts)


def _check_devices(module: HloModule, replicas: int, partitions: int, facts: dict[str, Any]) -> Iterator[str]:
    """Reports whether the devices can deadlock. Raises the error with which every run of the program would end."""
    matters = communication_of()
    if not any(matters(i) for c in module.all_computations for i in c.instructions):
        return
    finding = check_rendezvous([module] * (replicas * partitions), replicas, partitions, steps=500_000, paths=2_000)
    facts["devices"] = {"replicas": replicas, "partitions": partitions, "verdict": str(finding)}
    yield f"  {grid_text(replicas, partitions)}: {finding}"
    if finding.error is not None:
        raise finding.error
