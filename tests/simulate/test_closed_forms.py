"""One collective on a quiet network: what the textbooks say it takes, and the bytes that it puts on links."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hlokit as hk
from hlokit.analysis.simulation import Simulation, simulate

ALPHA, BETA = 3e-6, 50e9
COUNT = 48_000
M = 4 * COUNT


def one(opcode: str, n: int, attributes: str = "", operand: str = f"f32[{COUNT}]", result: str = "") -> hk.HloModule:
    """A module that is one collective over n replicas."""
    combines = ", to_apply=add" if opcode in ("all-reduce", "reduce-scatter") else ""
    return hk.parse(f"""
HloModule m, replica_count={n}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = {operand} parameter(0)
  ROOT r = {result or operand} {opcode}(x){combines}{attributes}
}}
""")


def collective(opcode: str, n: int) -> hk.HloModule:
    every = "replica_groups={{" + ",".join(map(str, range(n))) + "}}"
    if opcode == "all-gather":
        return one(opcode, n, f", {every}, dimensions={{0}}", result=f"f32[{COUNT * n}]")
    if opcode == "reduce-scatter":
        return one(opcode, n, f", {every}, dimensions={{0}}", f"f32[{COUNT * n}]", f"f32[{COUNT}]")
    if opcode == "all-to-all":
        return one(opcode, n, f", {every}, dimensions={{0}}", f"f32[{COUNT * n}]")
    return one(opcode, n, f", {every}")


def run(module: hk.HloModule, topology: str, algorithm: str = "auto") -> Simulation:
    return simulate(module, topology, bandwidth=BETA, latency=ALPHA, algorithm=algorithm)


def log2(n: int) -> int:
    return math.ceil(math.log2(n))


FORMS = {
    ("all-reduce", "ring"): lambda n: 2 * (n - 1) * (ALPHA + M / (n * BETA)),
    ("all-reduce", "tree"): lambda n: 2 * log2(n) * (ALPHA + M / BETA),
    ("all-reduce", "halving"): lambda n: 2 * (log2(n) * ALPHA + (n - 1) * M / (n * BETA)),
    ("all-gather", "ring"): lambda n: (n - 1) * (ALPHA + M / BETA),
    ("all-gather", "halving"): lambda n: log2(n) * ALPHA + (n - 1) * M / BETA,
    ("reduce-scatter", "ring"): lambda n: (n - 1) * (ALPHA + M / BETA),
    ("reduce-scatter", "halving"): lambda n: log2(n) * ALPHA + (n - 1) * M / BETA,
    ("collective-broadcast", "tree"): lambda n: log2(n) * (ALPHA + M / BETA),
    ("all-to-all", "direct"): lambda n: ALPHA + M / BETA,
}
"""Seconds on n devices that are all connected; blocks of M bytes for all-gather, reduce-scatter and all-to-all."""


@pytest.mark.parametrize(("opcode", "algorithm"), FORMS)
@pytest.mark.parametrize("n", [2, 3, 5, 8, 12, 16])
def test_closed_form(opcode: str, algorithm: str, n: int) -> None:
    found = run(collective(opcode, n), f"full:{n}", "auto" if algorithm == "direct" else algorithm)
    assert found.collectives[0].algorithm == algorithm
    assert found.seconds == pytest.approx(FORMS[opcode, algorithm](n), rel=1e-12)
    assert found.collectives[0].total == found.seconds


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("n", [2, 7, 64, 1024])
def test_ring_algorithm_on_a_ring(opcode: str, n: int) -> None:
    """Every message goes to a neighbour: the ring is as good as all links."""
    found = run(collective(opcode, n), f"ring:{n}", "ring")
    assert found.seconds == pytest.approx(FORMS[opcode, "ring"](n), rel=1e-12)
    block = M / n if opcode == "all-reduce" else M
    turns = 2 if opcode == "all-reduce" else 1
    assert len(found.links) == n
    assert all(link.nbytes == pytest.approx(turns * (n - 1) * block) for link in found.links)


@pytest.mark.parametrize("topology", ["torus:8x8", "torus:4x4x4"])
def test_ring_algorithm_finds_a_ring_in_a_torus(topology: str) -> None:
    assert run(collective("all-reduce", 64), topology, "ring").seconds == pytest.approx(
        FORMS["all-reduce", "ring"](64), rel=1e-12
    )


def test_a_switch_is_two_links() -> None:
    found = run(collective("all-reduce", 8), "switch:8", "ring")
    assert found.seconds == pytest.approx(14 * (2 * ALPHA + M / (8 * BETA)), rel=1e-12)
    assert sorted(link.name for link in found.links) == sorted(
        f"device {d} {w}" for d in range(8) for w in ("up", "down")
    )


def test_the_tree_on_a_ring_by_hand() -> None:
    """Four devices: 1 -> 0 and 3 -> 2, then 2 -> 0 over two links; and back."""
    found = run(collective("all-reduce", 4), "ring:4", "tree")
    assert found.seconds == pytest.approx(2 * (ALPHA + M / BETA) + 2 * (2 * ALPHA + M / BETA), rel=1e-12)


def test_auto_is_the_quickest() -> None:
    small, large = (one("all-reduce", 16, operand=f"f32[{n}]") for n in (4, 40_000_000))
    for module, wanted in ((small, "halving"), (large, "ring")):
        each = {a: run(module, "torus:4x4", a).seconds for a in ("ring", "tree", "halving")}
        found = run(module, "torus:4x4")
        assert found.seconds == min(each.values()) == each[wanted]
        assert found.collectives[0].algorithm == wanted


@pytest.mark.parametrize("topology", ["ring:6", "mesh:2x3", "torus:2x3", "switch:6", "full:6", "tree:6", "hosts:3x2"])
def test_all_to_all_puts_every_block_on_its_way(topology: str) -> None:
    """Bytes on links = bytes of each message x links of its way, which the latency of a lone message counts."""
    found = run(collective("all-to-all", 6), topology)
    hops = 0
    for source in range(6):
        for target in set(range(6)) - {source}:
            pair = one("collective-permute", 6, f", source_target_pairs={{{{{source},{target}}}}}")
            alone = simulate(pair, topology, bandwidth=1e30, latency=1.0)
            hops += round(alone.seconds)
    assert sum(link.nbytes for link in found.links) == pytest.approx(hops * M)


def test_all_to_all_on_a_ring_by_hand() -> None:
    """Six devices, blocks of M bytes: on each link upwards 1 + 2 + 3 blocks, and it takes as long as these."""
    found = run(collective("all-to-all", 6), "ring:6")
    assert found.links[0].nbytes == pytest.approx(6 * M)
    assert found.seconds == pytest.approx(3 * ALPHA + 6 * M / BETA, rel=1e-12)


@pytest.mark.parametrize("topology", ["ring:6", "torus:2x3", "torus:5x4x3", "switch:6", "hosts:3x2", "tree:2x2x2"])
def test_what_all_devices_do_alike_is_followed_for_one(topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short cut for all-to-all where every device sees the same network, against every message of all."""
    n = math.prod(int(size) for size in topology.split(":")[1].split("x"))
    short = run(collective("all-to-all", n), topology)
    monkeypatch.setattr("hlokit.analysis.simulation.program._Writer._alike", lambda self, groups: False)
    full = run(collective("all-to-all", n), topology)
    assert short.seconds == pytest.approx(full.seconds)
    assert {link.name: pytest.approx(link.nbytes) for link in short.links} == {k.name: k.nbytes for k in full.links}


# -- permutes


def shift(n: int, k: int) -> hk.HloModule:
    pairs = ",".join(f"{{{d},{(d + k) % n}}}" for d in range(n))
    return one("collective-permute", n, f", source_target_pairs={{{pairs}}}")


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
def test_a_shift_by_k_on_a_ring(k: int) -> None:
    """k messages on every link, k latencies; the shorter way round."""
    found = run(shift(8, k), "ring:8")
    hops = min(k, 8 - k)
    assert found.seconds == pytest.approx(hops * (ALPHA + M / BETA), rel=1e-12)
    assert [link.nbytes for link in found.links] == [hops * M] * 8
    assert {link.name for link in found.links} == {f"{d} -> {(d + (1 if k <= 4 else -1)) % 8}" for d in range(8)}


def test_messages_share_only_the_links_that_they_have_in_common() -> None:
    """0 -> 2 and 1 -> 2 meet on the link 1 -> 2; 4 -> 5 meets nobody. Each ends when its own bytes are through."""
    module = one("collective-permute", 8, ", source_target_pairs={{0,2},{1,3},{4,5}}")
    found = run(module, "ring:8")
    ends = [2 * ALPHA + 2 * M / BETA] * 4 + [ALPHA + M / BETA] * 2 + [0.0] * 2
    assert found.device_seconds == pytest.approx(ends, rel=1e-12)
    links = {link.name: link.nbytes for link in found.links}
    assert links == {"0 -> 1": M, "1 -> 2": 2 * M, "2 -> 3": M, "4 -> 5": M}


def test_dimension_order_on_a_mesh() -> None:
    """0 -> 8 on 3x3: down the first axis, then along the second; a mesh has no way round."""
    found = run(one("collective-permute", 9, ", source_target_pairs={{0,8}}"), "mesh:3x3")
    assert {link.name for link in found.links} == {"0 -> 3", "3 -> 6", "6 -> 7", "7 -> 8"}
    assert found.seconds == pytest.approx(4 * ALPHA + M / BETA)
    around = run(one("collective-permute", 9, ", source_target_pairs={{0,8}}"), "torus:3x3")
    assert {link.name for link in around.links} == {"0 -> 6", "6 -> 8"}


def test_an_axis_of_its_own_speed() -> None:
    """Between hosts slower than within: the slowest link of the way decides."""
    for pair, seconds in (("{0,1}", 2 * 1e-6 + M / 100e9), ("{0,4}", 2 * 1e-6 + 2 * 5e-6 + M / 10e9)):
        module = one("collective-permute", 8, f", source_target_pairs={{{pair}}}")
        found = simulate(module, "hosts:2x4", bandwidth="10GB/s,100GB/s", latency="5us,1us")
        assert found.seconds == pytest.approx(seconds)


def test_groups_share_links() -> None:
    """Two rings of every other device on one ring: two links for each message, and all links twice taken."""
    module = one("all-reduce", 8, ", replica_groups={{0,2,4,6},{1,3,5,7}}")
    found = run(module, "ring:8", "ring")
    assert found.seconds == pytest.approx(6 * (2 * ALPHA + 2 * M / (4 * BETA)), rel=1e-12)
    apart = run(one("all-reduce", 8, ", replica_groups={{0,1,2,3},{4,5,6,7}}"), "torus:2x4", "ring")
    assert apart.seconds == pytest.approx(6 * (ALPHA + M / (4 * BETA)), rel=1e-12)


def test_groups_of_different_sizes() -> None:
    found = run(one("all-reduce", 8, ", replica_groups={{0,1,2,3,4},{5,6},{7}}"), "full:8", "ring")
    each = [2 * (n - 1) * (ALPHA + M / (n * BETA)) for n in (5, 2)]
    assert found.device_seconds == pytest.approx([each[0]] * 5 + [each[1]] * 2 + [0.0])
    assert (found.collectives[0].groups, found.collectives[0].group_size) == (3, 5)


@pytest.mark.parametrize("topology", ["ring:1024", "torus:32x32", "hosts:128x8", "full:1024"])
def test_a_thousand_devices(topology: str) -> None:
    found = run(collective("all-reduce", 1024), topology, "ring")
    assert found.seconds >= FORMS["all-reduce", "ring"](1024) * (1 - 1e-9)
    assert np.isfinite(found.seconds) and len(found.device_seconds) == 1024
