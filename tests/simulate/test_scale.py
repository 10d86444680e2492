"""The training step of bench.scale: simulated figures beside closed forms, and the figures and pictures of docs/scale.md."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from xml.etree import ElementTree

import numpy as np
import pytest

import hlokit as hk
from bench.scale.figures import LAYOUTS, Cluster, closed_form, figures, layout_of
from bench.scale.model import Transformer, step_of
from docs import scale_chart

SMALL = Transformer(layers=4, width=512, heads=8, hidden=1024, words=1024, length=64)
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")


@cache
def _simulated(name: str, hosts: int, model: Transformer):  # type: ignore[no-untyped-def]
    return figures(name, hosts, model, Cluster(), memory=False)


def check(name: str, hosts: int, model: Transformer, slack: float) -> None:
    found = _simulated(name, hosts, model)
    closed = closed_form(layout_of(name, hosts), model, Cluster(), hosts)
    for kind, nbytes in closed.sent.items():
        assert found.sent[kind] == pytest.approx(nbytes, rel=slack), kind
    others = sum(nbytes for kind, nbytes in found.sent.items() if kind not in closed.sent)
    assert others < slack * sum(closed.sent.values())
    assert found.compute_seconds * Cluster().flops == pytest.approx(closed.flops, rel=slack)
    assert found.link_bytes == pytest.approx(sum(found.sent.values()), rel=slack)


def test_it_has_seven_billion_parameters() -> None:
    assert Transformer().parameters == 6_738_415_616
    assert 32 * Transformer().layer_parameters == pytest.approx(Transformer().parameters, rel=0.05)


@needs_jax
@pytest.mark.parametrize("name", ["fsdp", *(pytest.param(name, marks=pytest.mark.slow) for name in LAYOUTS[1:])])
def test_a_small_model_sends_what_the_closed_form_says(name: str) -> None:
    """All but the lookup of words, which the closed form leaves out, and what is computed element by element."""
    check(name, 16, SMALL, 0.12)


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize("name", LAYOUTS)
def test_seven_billion_parameters_on_64_hosts(name: str) -> None:
    check(name, 64, Transformer(), 0.01)
    found = _simulated(name, 64, Transformer())
    closed = closed_form(layout_of(name, 64), Transformer(), Cluster(), 64)
    assert found.communication_seconds == pytest.approx(closed.seconds, rel=0.01)


@pytest.mark.slow
@needs_jax
def test_the_parts_compute_what_the_whole_does() -> None:
    """The program whose figures are shown is a training step: on a mesh of 2 by 2 its loss is that of one device."""
    from bench.scale.model import Layout

    tiny = Transformer(layers=2, width=16, heads=2, hidden=32, words=32, length=8)
    module = hk.parse(step_of(tiny, 4, Layout(2, 2)))
    numbers = np.random.default_rng(0)
    arguments = []
    for parameter in module.entry.parameters:
        shape, kind = parameter.shape.dimensions, parameter.shape.dtype
        if kind.name == "s32":
            arguments.append(numbers.integers(0, tiny.words, shape).astype(np.int32))
        else:
            arguments.append((0.1 * np.abs(numbers.normal(size=shape))).astype(kind.numpy))
    found = hk.partition(module)
    parts = found.join(hk.compile(found.module)(*found.split(*arguments)))
    whole = hk.compile(module, partitions=1)(*arguments)
    for a, b in zip(parts, whole, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=0.05, atol=2e-3)


# -- the page


def test_the_pages_figures_are_those_of_the_closed_forms() -> None:
    rows = scale_chart.rows()
    assert [(row["layout"], int(row["hosts"])) for row in rows] == [
        (name, hosts) for hosts in (64, 512, 4096) for name in LAYOUTS
    ]
    for row in rows:
        hosts = int(row["hosts"])
        closed = closed_form(layout_of(row["layout"], hosts), Transformer(), Cluster(), hosts)
        assert int(row["closed_sent"]) == round(sum(closed.sent.values()))
        assert float(row["sent"]) == pytest.approx(sum(closed.sent.values()), rel=0.01)
        assert float(row["communication_s"]) == pytest.approx(closed.seconds, rel=0.05)
        assert float(row["compute_s"]) == pytest.approx(closed.flops / Cluster().flops, rel=0.01)
        if hosts == 64:
            assert int(row["peak"]) > int(row["temporaries"]) > 0


@pytest.mark.parametrize("name", scale_chart.CHARTS)
def test_pictures_are_well_formed(name: str) -> None:
    drawn = ElementTree.fromstring(scale_chart.chart(name))
    bars = [r for r in drawn.iter("{http://www.w3.org/2000/svg}rect") if r.find("{http://www.w3.org/2000/svg}title") is not None]
    parts = scale_chart.CHARTS[name]
    count = sum(all(row[column] for column, _, _ in parts) for row in scale_chart.rows())
    assert count >= 3 and len(bars) == count * len(parts)
    assert all(float(bar.get("width") or 0) >= 0 for bar in bars)
