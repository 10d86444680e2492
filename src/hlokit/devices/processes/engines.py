"""Which engine carries collectives between processes: HLOKIT_COLLECTIVES."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hlokit.devices.processes.guard import job_size
from hlokit.errors import UnsupportedError

if TYPE_CHECKING:
    from hlokit.devices.processes.engine import Engine

ENGINES = ("mpi", "gloo")
VARIABLE = "HLOKIT_COLLECTIVES"


def engine_name(given: str | None = None, what: str = "engine") -> str:
    """The name of the engine: the one given, which `what` names in errors, else HLOKIT_COLLECTIVES, else `mpi`, or
    `gloo` where RANK and WORLD_SIZE describe processes that MPI did not start.

    UnsupportedError: there is no such engine.
    """
    if not given:
        given, what = os.environ.get(VARIABLE), VARIABLE
    if not given:
        return "gloo" if job_size() == 1 and "RANK" in os.environ and "WORLD_SIZE" in os.environ else "mpi"
    if given not in ENGINES:
        raise UnsupportedError(f"{what}={given!r}: expected one of {', '.join(ENGINES)}")
    return given


def engine_of_job(name: str) -> Engine:
    """The engine of all processes that were started together. UnsupportedError: its library is missing."""
    if name == "mpi":
        try:
            from hlokit.devices.processes.mpi import MpiEngine
        except (ImportError, RuntimeError) as error:
            raise no_mpi(error) from None
        return MpiEngine()
    try:
        from hlokit.devices.processes.gloo import from_environment
    except ImportError as error:
        raise no_gloo(error) from None
    return from_environment()


def no_mpi(error: Exception) -> UnsupportedError:
    """An error that says what to install."""
    return UnsupportedError(f"MPI: {error}. `pip install 'hlokit[mpi]' mpich` installs mpi4py and an MPI")


def no_gloo(error: Exception) -> UnsupportedError:
    """An error that says what to install."""
    return UnsupportedError(f"gloo: {error}. `pip install 'hlokit[gloo]'` installs PyTorch, which contains it")
