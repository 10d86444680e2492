"""Modules with shardings on several partitions: nothing is partitioned, and nothing wrong is computed instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.devices.programs import F
from tests.rules.grid import same
from tests.rules.labels import rule

RUNS: dict[str, Callable[..., Any]] = {
    "evaluate": lambda module, *args, **counts: hk.evaluate(module, *args, **counts),
    "compile": lambda module, *args, **counts: hk.compile(module, **counts)(*args),
}
engines = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
VALUES = [np.array([1, 2, 3, 4], F), np.array([10, 20, 30, 40], F)]

TILED = [
    "{devices=[2]0,1}",
    "{devices=[2]<=[2]}",
    "{devices=[2,2]<=[4] last_tile_dim_replicate}",
    "{devices=[2,2]<=[4] last_tile_dims={manual}}",
]
NO_PARTITIONER = ["{replicated}", "{maximal device=0}", "{maximal device=1}", "{manual}"]


def module(parameter: str = "", root: str = "", header: str = ", num_partitions=2") -> hk.HloModule:
    """x + the sum over the partitions of x, with these shardings."""
    x, r = (f", sharding={s}" if s else "" for s in (parameter, root))
    return hk.parse(f"""
HloModule sharded{header}
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4] parameter(0){x}
  total = f32[4] all-reduce(x), channel_id=1, replica_groups={{{{0}}}}, to_apply=add
  ROOT y = f32[4] add(x, total){r}
}}
""")


def arguments(values: Sequence[Any]) -> list[list[Any]]:
    return [[value.copy()] for value in values]


@rule("HSHARD-7")
@engines
@pytest.mark.parametrize("sharding", [*TILED, "{unknown}", "{unreduced}"])
@pytest.mark.parametrize("place", ["parameter", "root"])
def test_what_would_have_to_be_partitioned_is_refused_by_name(run: Any, sharding: str, place: str) -> None:
    name = "x" if place == "parameter" else "y"
    with pytest.raises(hk.UnsupportedError, match=rf"^{name}: sharding=.*HSHARD-7"):
        run(module(**{place: sharding}), *arguments(VALUES))
    with pytest.raises(hk.UnsupportedError, match=rf"^{name}: sharding=.*HSHARD-7"):
        run(module(**{place: sharding}, header=""), *arguments(VALUES), partitions=2)


@rule("HSHARD-7")
@engines
@pytest.mark.parametrize("sharding", NO_PARTITIONER)
def test_what_needs_no_partitioner_runs_on_each_partition(run: Any, sharding: str) -> None:
    """The program is already that of one device: its collectives meet, each partition has its own values."""
    total = VALUES[0] + VALUES[1]
    same(run(module(sharding, sharding), *arguments(VALUES)), [value + total for value in VALUES])


@rule("HSHARD-7")
@engines
def test_one_device_computes_on_the_global_values(run: Any) -> None:
    """Replicated execution, asked for by partitions=1."""
    result = run(module("{devices=[2]0,1}", "{devices=[2]<=[2]}"), VALUES[0], partitions=1)
    assert np.array_equal(result, 2 * VALUES[0])


@rule("HSHARD-7")
@engines
def test_replicas_do_not_partition(run: Any) -> None:
    """Shardings are about partitions: with one of them each replica computes on whole values."""
    text = str(module("{devices=[2]0,1}", header="")).replace("channel_id=1, ", "").replace("{{0}}", "{{0,1}}")
    total = VALUES[0] + VALUES[1]
    same(run(hk.parse(text), *arguments(VALUES), replicas=2), [value + total for value in VALUES])


@rule("HSHARD-4", "HSHARD-7")
@engines
def test_every_leaf_and_every_computation_counts(run: Any) -> None:
    text = """
HloModule sharded, num_partitions=2
inner {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p), sharding=INNER
}
ENTRY main {
  x = f32[4] parameter(0)
  c = f32[4] call(x), to_apply=inner
  ROOT t = (f32[4], f32[4]) tuple(x, c), sharding={{replicated}, LEAF}
}
"""
    for name, inner, leaf in (("n", "{devices=[2]0,1}", "{manual}"), ("t", "{replicated}", "{devices=[2]0,1}")):
        with pytest.raises(hk.UnsupportedError, match=rf"^{name}: sharding=.*HSHARD-7"):
            run(hk.parse(text.replace("INNER", inner).replace("LEAF", leaf)), *arguments(VALUES))
    fine = hk.parse(text.replace("INNER", "{manual}").replace("LEAF", "{maximal device=1}"))
    results = run(fine, *arguments(VALUES))
    same([result[1] for result in results], [-value for value in VALUES])


@rule("HSHARD-7")
@engines
def test_a_domain_between_shardings_is_refused_too(run: Any) -> None:
    text = """
HloModule sharded, num_partitions=2
ENTRY main {
  x = f32[4] parameter(0)
  ROOT d = f32[4] domain(x), domain={kind="sharding", entry={devices=[2]0,1}, exit={replicated}}
}
"""
    with pytest.raises(hk.UnsupportedError, match=r"^d: .*HSHARD-7"):
        run(hk.parse(text), *arguments(VALUES))
    same(run(hk.parse(text.replace("devices=[2]0,1", "manual")), *arguments(VALUES)), VALUES)


@rule("HSHARD-7")
def test_reading_checking_and_printing_do_not_partition() -> None:
    for sharding in TILED:
        found = module(sharding)
        hk.verify(found)
        assert f"sharding={sharding}" in str(found)
        assert str(hk.parse(str(found))) == str(found)
