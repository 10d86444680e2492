"""A process of a job that the launcher started, directly or by mpirun: it runs the command in a child.

    python worker.py SOCKET COMMAND...

It sends the launcher the ends of its child's output, says how the child ended, and stays until the launcher hangs up:
mpirun ends a whole job as soon as a process that it knows is gone. If the launcher or this process ends, the child
does.
This is run as a file, so that it starts quickly.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

if sys.platform == "win32":
    raise SystemExit("error: hlokit.launch: Windows has no process groups and signals to end a job's processes by")

RANKS = ("HLOKIT_LAUNCH_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
"""Variables in which the number of this process may be: the launcher's, then those of MPI's launchers."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses, as shells have them."""
_PARENT_DEATH_SIGNAL = 1


def main(path: str, command: list[str]) -> None:
    rank = next((os.environ[name] for name in RANKS if os.environ.get(name, "").isdecimal()), None)
    if rank is None:
        sys.exit(f"error: mpirun says in none of {', '.join(RANKS[1:])} which process this is")
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    out, err = os.pipe(), os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, int(rank), (out, err), parent)
    os.close(out[1])
    os.close(err[1])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):  # the launcher tells the child
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: _end(child, 128 + number))
    woken, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    socket.send_fds(line, [_message(rank=int(rank), pid=child)], [out[0], err[0]])
    os.close(out[0])
    os.close(err[0])
    is_running = True
    while True:
        done, status = os.waitpid(child, os.WNOHANG) if is_running else (0, 0)
        if done:
            is_running = False
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            with suppress(OSError):
                line.sendall(_message(status=code))
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            os.read(woken, 64)
        if line in ready and not line.recv(1):  # the launcher has hung up
            _end(child if is_running else None, 0)


def _message(**facts: int) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _end(child: int | None, status: int) -> NoReturn:
    """Ends this process, and the child with what it has started."""
    if child is not None:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    os._exit(status)


def _become(command: list[str], rank: int, pipes: tuple[tuple[int, int], tuple[int, int]], parent: int) -> NoReturn:
    """The child: the command, in a process group of its own, which ends with its parent."""
    os.setpgid(0, 0)
    _die_with(parent)
    for target, (_, writing) in enumerate(pipes, 1):
        os.dup2(writing, target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    environment = {name: value for name, value in os.environ.items() if name != "HLOKIT_LAUNCH_RANK"}
    size = environment.pop("HLOKIT_LAUNCH_SIZE")
    # jax.distributed.initialize() without arguments takes its numbers from Open MPI's variables
    environment |= {
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{environment['JAX_COORDINATOR_ADDRESS']}", "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "RANK": str(rank),
    }  # fmt: skip
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        os.write(2, f"error: {command[0]}: {reason}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _die_with(parent: int) -> None:
    """This process is killed when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
