"""hlokit check: do files hold legal programs?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hlokit.analysis.rendezvous import check_rendezvous
from hlokit.api import verify
from hlokit.errors import HlokitError, VerifyError
from hlokit.files.reading import findings_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.interpreter.checks import device_counts
from hlokit.interpreter.order import communication_of
from hlokit.tools.files import content_of, is_standard, loaded
from hlokit.tools.status import BAD, DONE, FOUND, is_finding, message_of, say

_SHOWN = 30


def check(
    *files: Annotated[Path, Parameter(required=True)], replicas: int | None = None, partitions: int | None = None
) -> int:
    """Reads programs and verifies every rule of the language; lists all findings of each file on standard error.

    Says of a program with collectives or channels whether the devices that run it always meet, or how they may not.
    Exit status 1 if a program breaks a rule, 2 if a file cannot be read or its text is not a program.

    Parameters
    ----------
    files:
        one or several programs, in any kind of file that hlokit reads; `-` is the standard input.
    replicas:
        how many replicas are to run them; by default as many as each says.
    partitions:
        how many partitions are to run them; by default as many as each says.
    """
    return max([_check(path, replicas, partitions, several=len(files) > 1) for path in files])


def _check(file: Path, replicas: int | None, partitions: int | None, *, several: bool) -> int:
    """The exit status for one file, of which it prints what there is to say."""
    name = "standard input" if is_standard(file) else str(file)
    try:
        found = findings_of_bytes(content_of(file), file.name)
        if not found:
            _report(loaded(file), f"{name}: " if several else "", replicas, partitions)
    except VerifyError as error:
        found = [VerifyError([finding]) for finding in error.findings]
    except HlokitError as error:
        found = [error]
    except (OSError, MemoryError) as error:
        say(message_of(error))
        return BAD
    for error in found[:_SHOWN]:
        error.file = name
        say(message_of(error))
    if len(found) > _SHOWN:
        say(f"{name}: {len(found) - _SHOWN} more")
    return max((FOUND if is_finding(error) else BAD for error in found), default=DONE)


def _report(module: HloModule, head: str, replicas: int | None, partitions: int | None) -> None:
    """Prints what a legal program is. Raises the verifier's findings, and that devices do not meet."""
    verify(module)
    computations = module.all_computations
    count = sum(len(c) for c in computations)
    print(f"{head}{module.name}: ok, {len(computations)} computation(s), {count} instruction(s)")
    print(f"  {module.program_shape}")
    _check_devices(module, *device_counts(module, replicas, partitions))


def _check_devices(module: HloModule, replicas: int, partitions: int) -> None:
    """Prints whether the devices meet. Raises the error that running the program would surely end with."""
    matters = communication_of()
    if not any(matters(i) for c in module.all_computations for i in c.instructions):
        return
    finding = check_rendezvous([module] * (replicas * partitions), replicas, partitions, steps=500_000, paths=2_000)
    print(f"  {replicas} replica(s) of {partitions} partition(s): {finding}")
    if finding.error is not None:
        raise finding.error
