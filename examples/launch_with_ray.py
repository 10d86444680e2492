"""Runs a JAX script on several processes that Ray starts: on its cluster, or on this machine without one.

    pip install 'hlokit[ray]'
    python examples/launch_with_ray.py 2 examples/train_processes.py fsdp

Ray says where the processes run, and watches over them. Collectives go from one to another by gloo.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import ray


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Process:
    """One process of the job, on some machine of the cluster."""

    def places(self) -> tuple[str, list[int]]:
        """This machine's address, and two ports that are free now."""
        host = ray.util.get_node_ip_address()
        with ExitStack() as ends:
            free = [ends.enter_context(socket.create_server((host, 0))) for _ in range(2)]
            return host, [end.getsockname()[1] for end in free]

    def run(self, command: list[str], variables: dict[str, str]) -> tuple[int, str]:
        """The command's exit status, and what it has printed."""
        done = subprocess.run(
            [sys.executable, *command], env={**os.environ, **variables}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout


def main(count: int, command: list[str]) -> int:
    own = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": count, "include_dashboard": False}
    ray.init(address=os.environ.get("RAY_ADDRESS"), **own)
    remote: Any = Process
    processes = [remote.remote() for _ in range(count)]
    host, (coordinator, store) = ray.get(processes[0].places.remote())
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
        process.run.remote(command, {**shared, "OMPI_COMM_WORLD_RANK": str(rank), "RANK": str(rank)})
        for rank, process in enumerate(processes)
    ]
    status = 0
    for rank, (code, text) in enumerate(ray.get(running)):
        print("".join(f"[{rank}] {line}\n" for line in text.splitlines()), end="", flush=True)
        status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
