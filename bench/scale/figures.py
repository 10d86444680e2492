"""What a step takes on a cluster: times by the simulator, memory by the compiler's plan, both beside closed forms."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import hlokit as hk
from bench.scale.model import Layout, Transformer, step_of
from hlokit.analysis.simulation import Simulation, simulate
from hlokit.hlo.module import HloModule

TENSOR = 8
"""Hosts among which tensor parallel layouts divide heads and features: those of one rack."""
BF16 = 2


@dataclass(frozen=True)
class Cluster:
    """Racks of hosts on one switch each, the racks on another one, whose links carry all that a rack's hosts can send.

    bandwidth    bytes a second of a host's link, each way
    latencies    seconds of a link of the upper switch, of a host's link
    flops        operations a second of a host, on products of bf16
    """

    rack: int = 32
    bandwidth: float = 50e9
    latencies: tuple[float, float] = (2e-6, 1e-6)
    flops: float = 20e12

    def simulated(self, module: HloModule, hosts: int) -> Simulation:
        """With the arithmetic of the program's ops; memory is taken to be fast enough."""
        return simulate(
            module, f"hosts:{max(1, hosts // self.rack)}x{min(hosts, self.rack)}",
            bandwidth=f"{self.rack * self.bandwidth:g},{self.bandwidth:g}",
            latency=",".join(f"{latency:g}" for latency in self.latencies), flops=self.flops,
        )  # fmt: skip

    def latency(self, hosts: int) -> float:
        """Of a message between the two most distant hosts."""
        return 2 * (self.latencies[1] + (self.latencies[0] if hosts > self.rack else 0))


LAYOUTS = ("fsdp", "fsdp+tp", "tp")


def layout_of(name: str, hosts: int) -> Layout:
    """fsdp: weights divided over all hosts. fsdp+tp: over groups of 8 hosts, that divide heads and features, too.
    tp: such groups, each with all weights."""
    tensor = 1 if name == "fsdp" else TENSOR
    return Layout(hosts // tensor, tensor, name != "tp")


@dataclass(frozen=True)
class Figures:
    """Of one step. Bytes are those of one host; `sent` by kind of collective; `holder`: the collective that takes most
    of the critical path, and its share of the step."""

    layout: str
    hosts: int
    seconds: float
    compute_seconds: float
    sent: dict[str, float]
    link_bytes: float
    holder: str
    holder_share: float
    collectives: int
    argument_bytes: int
    temporary_bytes: int
    peak_bytes: int
    partition_seconds: float
    simulate_seconds: float

    @property
    def communication_seconds(self) -> float:
        return self.seconds - self.compute_seconds


def partitioned(model: Transformer, layout: Layout, batch: int) -> HloModule:
    """The program of one host."""
    return hk.partition(hk.parse(step_of(model, batch, layout)), f"data={layout.data},tensor={layout.tensor}").module


def figures(name: str, hosts: int, model: Transformer, cluster: Cluster, memory: bool = True) -> Figures:
    """Of a step on one sequence for each host. `memory`: compile it, too, for the plan of its buffers."""
    layout = layout_of(name, hosts)
    begin = time.process_time()
    module = partitioned(model, layout, hosts)
    divided = time.process_time()
    found = cluster.simulated(module, hosts)
    replayed = time.process_time()
    shares = {name: seconds for name, kind, _, seconds in found.path_shares() if kind not in ("compute", "loop")}
    holder = max(shares, key=lambda one: shares[one], default="")
    analysis: Any = hk.compile(module).executable.memory_analysis() if memory else None
    return Figures(
        name, hosts, found.seconds, found.seconds - sum(shares.values()), sent(found),
        max(link.nbytes for link in found.links if link.name.startswith("device ")), holder,
        shares[holder] / found.seconds if holder else 0.0, sum(c.count for c in found.collectives),
        analysis.argument_size_in_bytes if memory else 0, analysis.temp_size_in_bytes if memory else 0,
        analysis.peak_memory_in_bytes if memory else 0, divided - begin, replayed - divided,
    )  # fmt: skip


def sent(found: Simulation) -> dict[str, float]:
    """Bytes that a host sends, by kind of collective, as rings send them."""
    total: Counter[str] = Counter()
    for c in found.collectives:
        n = c.group_size
        times = {"all-reduce": 2 * (n - 1) / n, "all-gather": n - 1}.get(c.kind, (n - 1) / n)
        total[c.kind] += c.count * c.nbytes * times
    return dict(total)


# -- closed forms


@dataclass(frozen=True)
class ClosedForm:
    """What a host sends and computes, and how long messages of the largest collectives take, one after the other."""

    sent: dict[str, float]
    flops: float
    seconds: float


def closed_form(layout: Layout, model: Transformer, cluster: Cluster, batch: int) -> ClosedForm:
    """The partitioner gathers weights of attention three times and those of the MLP twice (forwards, computed again,
    backwards), and folds each of a layer's eight products of divided features by an all-reduce."""
    n, t, layers, d = layout.data, layout.tensor, model.layers, model.width
    attention, mlp = BF16 * 4 * d**2 / t, BF16 * 3 * d * model.hidden / t
    head = BF16 * d * model.words / t
    here = batch / n * model.length  # tokens of a group's batch
    activations = BF16 * here * d
    found: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    rounds = {"data": math.ceil(math.log2(n)) if n > 1 else 0, "tensor": math.ceil(math.log2(t)) if t > 1 else 0}
    if layout.fsdp:
        found["all-gather"] = (layers * (3 * attention + 2 * mlp) + 2 * head) * (n - 1) / n
        found["reduce-scatter"] = (layers * (attention + mlp) + head) * (n - 1) / n
        counts["data"] = layers * (3 * 4 + 2 * 3 + 7) + 3
        if t > 1:  # the table of words, which only tensor parallel layouts divide by words
            found["all-gather"] += 2 * head * (n - 1) / n
            found["reduce-scatter"] += head * (n - 1) / n
            counts["data"] += 3
    else:
        found["all-reduce"] += 2 * (layers * (attention + mlp) + 2 * head) * (n - 1) / n
        counts["data"] = 2 * (layers * 7 + 2)
    if t > 1:
        found["all-reduce"] += 2 * (8 * layers + 2) * activations * (t - 1) / t
        counts["tensor"] = 2 * (8 * layers + 2)
    flops = here / t * (
        layers * (8 * model.layer_parameters - 2 * d * model.hidden + 16 * model.length * d) + 6 * d * model.words
    )  # fmt: skip  # of what is computed again, the last product is left out
    latency = counts["data"] * rounds["data"] * cluster.latency(layout.devices)
    latency += counts["tensor"] * rounds["tensor"] * cluster.latency(t)
    return ClosedForm(dict(found), flops, latency + sum(found.values()) / cluster.bandwidth)
