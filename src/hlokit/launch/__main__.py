"""python -m hlokit.launch: starts the processes of a job on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hlokit.errors import HlokitError
from hlokit.launch.launcher import Launcher
from hlokit.tools.status import BAD, say

_EPILOG = """example: python -m hlokit.launch -n 4 -- python train.py

In the processes jax.distributed.initialize() needs no arguments. Their lines are printed with their numbers before
them. If one fails, the others have the seconds of --grace to end, and the exit status is that of the first that failed,
128 + n if signal n ended it."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m hlokit.launch", description="Starts several processes of a program on this machine.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("-n", "--processes", type=_positive, required=True, help="number of processes")
    parser.add_argument("--devices", type=_positive, help="devices of each process (HLOKIT_NUM_DEVICES)")
    parser.add_argument(
        "--collectives", choices=("mpi", "gloo"), default=os.environ.get("HLOKIT_COLLECTIVES") or "mpi",
        help="library that carries collectives (HLOKIT_COLLECTIVES, default mpi); mpi uses mpirun",
    )  # fmt: skip
    parser.add_argument("--mpirun", help="the mpirun program; default: the one next to this Python, else on PATH")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds that others may take to end after a failure")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the program and its arguments, after --")
    given = parser.parse_args(arguments)
    if not 0 <= given.grace <= 1e6:
        parser.error(f"argument --grace: {given.grace}, expected 0 or more seconds")
    try:
        launcher = Launcher(
            given.command, given.processes, devices=given.devices, collectives=given.collectives,
            mpirun=given.mpirun, grace=given.grace,
        )  # fmt: skip
        return launcher.run()
    except HlokitError as error:
        say(str(error))
        return BAD


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1024:
        raise argparse.ArgumentTypeError(f"{number}, expected 1 to 1024")
    return number


if __name__ == "__main__":
    sys.exit(main())
