"""Runs a JAX script on several processes that Dask starts: on its cluster, or on this machine without one.

    pip install 'hlokit[dask]'
    python examples/launch_with_dask.py 2 examples/train_processes.py fsdp

Each worker of Dask's runs one process (`DASK_SCHEDULER_ADDRESS` names a cluster's scheduler). Collectives go from one
to another by gloo.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from dask.distributed import Client, get_worker


def places() -> tuple[str, list[int]]:
    """This worker's address, and two ports that are free now."""
    host = get_worker().address.rsplit(":", 1)[0].rsplit("/", 1)[1]
    with ExitStack() as ends:
        free = [ends.enter_context(socket.create_server((host, 0))) for _ in range(2)]
        return host, [end.getsockname()[1] for end in free]


def run(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """The command's exit status, and what it has printed."""
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def main(count: int, command: list[str]) -> int:
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    own = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
    with Client(address) if address else Client(**own) as client:
        client.wait_for_workers(count)
        workers = list(client.scheduler_info(n_workers=-1)["workers"])[:count]
        host, (coordinator, store) = client.submit(places, workers=workers[0], pure=False).result()
        shared = {
            "JAX_PLATFORMS": "hlokit,cpu", "HLOKIT_COLLECTIVES": "gloo",
            # of JAX's service, which process 0 runs, and of gloo's, which HLO programs without JAX need
            "JAX_COORDINATOR_ADDRESS": f"{host}:{coordinator}", "JAX_COORDINATOR_BIND_ADDRESS": f"{host}:{coordinator}",
            "MASTER_ADDR": host, "MASTER_PORT": str(store), "WORLD_SIZE": str(count),
            # where jax.distributed.initialize() looks for the numbers, whoever has started the processes
            "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{host}:{coordinator}", "OMPI_COMM_WORLD_SIZE": str(count),
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        }  # fmt: skip
        running = [
            client.submit(
                run, command, {**shared, "OMPI_COMM_WORLD_RANK": str(rank), "RANK": str(rank)}, workers=worker,
                allow_other_workers=False, pure=False, retries=0,
            )
            for rank, worker in enumerate(workers)
        ]
        status = 0
        for rank, (code, text) in enumerate(client.gather(running)):
            print("".join(f"[{rank}] {line}\n" for line in text.splitlines()), end="", flush=True)
            status = status or code
        return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
