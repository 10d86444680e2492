"""Guard: the process that mpirun started only waits for the one that does the work.

mpirun ends all processes as soon as one dies by a signal, before they can say why. Of a guarded rank it learns a few
seconds later: by then the others have seen it themselves, said so and ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from hlokit.errors import EvaluationError

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables in which launchers say how many processes there are: MPICH's and Intel's, Open MPI's, MVAPICH's."""
_WAIT_SECONDS = 4.0
_PARENT_DEATH_SIGNAL = 1


def job_size(environment: Mapping[str, str] = os.environ) -> int:
    """The number of processes of the MPI job that this one was started in, or with HLOKIT_COLLECTIVES=gloo what
    WORLD_SIZE says; 1 without one. MPI is not imported."""
    names = (*_SIZES, "WORLD_SIZE") if environment.get("HLOKIT_COLLECTIVES") == "gloo" else _SIZES
    found = (environment.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdecimal()), 1)


def guarded() -> None:
    """Goes on in a child process; this one waits for it, and ends as it does. To be called before MPI starts, which
    does not survive a fork: EvaluationError after that.

    Without fork this process goes on itself.
    """
    if sys.platform == "win32":
        return
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        raise EvaluationError("guarded: MPI has started: call guarded() before mpi4py.MPI is imported")
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _end_with(parent)
        return
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: os.kill(child, received))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        time.sleep(_WAIT_SECONDS)
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _end_with(parent: int) -> None:
    """This process is killed when its parent is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
