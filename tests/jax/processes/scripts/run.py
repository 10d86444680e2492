"""Runs a script's checks in one of several processes, up to the first that fails.

python run.py SCRIPT FOLDER

The outcome of each check goes into FOLDER/RANK.json. COORDINATOR is the address of JAX's coordinator; without it JAX
asks MPI.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import jax


def main() -> None:
    rank, count = int(_said("RANK", "0")), int(_said("SIZE", "1"))
    address = os.environ.get("COORDINATOR")
    if address:
        jax.distributed.initialize(address, count, rank)
    elif "JAX_COORDINATOR_ADDRESS" in os.environ:  # of hlokit.launch
        jax.distributed.initialize()
    elif count > 1:
        jax.distributed.initialize(cluster_detection_method="mpi4py")
    found: dict[str, str] = {}
    for name, check in runpy.run_path(sys.argv[1]).items():
        if not name.startswith("check_"):
            continue
        try:
            found[name] = ""
            check()
        except BaseException:  # the others may be in another place: they cannot go on together
            found[name] = traceback.format_exc()
            break
        finally:
            Path(sys.argv[2], f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    failed = any(found.values())
    sys.stdout.flush()
    if failed:
        os._exit(1)


def _said(what: str, default: str) -> str:
    """By mpirun, or by hlokit.launch over gloo."""
    return os.environ.get(f"PMI_{what}") or os.environ.get({"SIZE": "WORLD_SIZE"}.get(what, what), default)


main()
