"""Writes the figures of docs/scale.md: python -m bench.scale [--hosts 64] [--layouts fsdp] [--memory 64] [--csv FILE]

Needs JAX, which traces the step on shapes. A row takes about ten seconds, and a few more where the step is compiled,
too, for the plan of its memory (--memory HOSTS). `python -m docs.scale_chart` draws the file.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs/scale/figures.csv"


def row(name: str, hosts: int, memory: bool) -> dict[str, Any]:
    from bench.scale.figures import Cluster, closed_form, figures, layout_of
    from bench.scale.model import Transformer

    model, cluster = Transformer(), Cluster()
    found = figures(name, hosts, model, cluster, memory)
    closed = closed_form(layout_of(name, hosts), model, cluster, hosts)
    return {
        "layout": name, "hosts": hosts, "seconds": f"{found.seconds:.4f}", "compute_s": f"{found.compute_seconds:.4f}",
        "communication_s": f"{found.communication_seconds:.4f}", "closed_communication_s": f"{closed.seconds:.4f}",
        "closed_compute_s": f"{closed.flops / cluster.flops:.4f}", "sent": round(sum(found.sent.values())),
        "closed_sent": round(sum(closed.sent.values())), "collectives": found.collectives, "holder": found.holder,
        "holder_share": f"{found.holder_share:.4f}", "arguments": found.argument_bytes or "",
        "temporaries": found.temporary_bytes or "", "peak": found.peak_bytes or "",
        "partition_cpu_s": f"{found.partition_seconds:.1f}", "simulate_cpu_s": f"{found.simulate_seconds:.2f}",
    }  # fmt: skip


def main() -> None:
    from bench.scale.figures import LAYOUTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--memory", type=int, nargs="*", default=[64, 512, 4096])
    parser.add_argument("--csv", type=Path, default=FILE)
    given = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    given.csv.parent.mkdir(parents=True, exist_ok=True)
    with given.csv.open("w", encoding="utf-8", newline="") as file:
        writer = None
        for hosts in given.hosts:
            for name in given.layouts:
                found = row(name, hosts, hosts in given.memory)
                if writer is None:
                    writer = csv.DictWriter(file, list(found), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(found)
                file.flush()
                print(", ".join(f"{key} {value}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
