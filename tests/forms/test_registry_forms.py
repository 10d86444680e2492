"""Every op of the registry gives the form that its card names, or is listed here with the reason."""

from __future__ import annotations

import inspect

import pytest

from hlokit.forms.emitter import Emitter
from hlokit.forms.primitives import PRIMITIVES
from hlokit.hlo.op import OPS, Op
from tests.forms.test_edges import rows
from tests.forms.test_scalar_rules import NAMED, PLAIN

METHODS = {
    "map": ("scalar",),
    "index": ("element",),
    "fold": ("fold",),
    "scatter": ("scatter", "target"),
    "kernel": ("kernel",),
    "contraction": ("contraction",),
    "expand": ("expand",),
    "control": (),
    "communicate": (),
}
WITHOUT_FORM = {
    "dynamic-reshape": "its result has run-time sizes, and forms are of static shapes: the pass that pads dynamic "
    "dimensions rewrites it, as it rewrites get-dimension-size and set-dimension-size",
}


@pytest.mark.parametrize("opcode", sorted(OPS))
def test_op_gives_its_form(opcode: str) -> None:
    op = OPS[opcode]
    missing = [name for name in METHODS[op.form] if getattr(op, name) is getattr(Op, name)]
    assert bool(missing) == (opcode in WITHOUT_FORM), f"{opcode} is {op.form} and lacks {missing}"


@pytest.mark.parametrize("opcode", sorted(OPS))
def test_op_gives_no_other_form(opcode: str) -> None:
    op = OPS[opcode]
    others = {name for names in METHODS.values() for name in names} - set(METHODS[op.form])
    given = [name for name in sorted(others) if getattr(op, name) is not getattr(Op, name)]
    assert not given, f"{opcode} is {op.form} and gives {given}"


@pytest.mark.parametrize("opcode", sorted(op for op in OPS if OPS[op].form == "map"))
def test_map_op_has_a_rule(opcode: str) -> None:
    op = OPS[opcode]
    if "function" in op.__annotations__ or hasattr(op, "kinds"):
        overrides = op.scalar.__qualname__.split(".")[0] not in ("Unary", "Binary")
        assert overrides or callable(getattr(op, "rule", None)), "neither a rule nor a scalar method of its own"


def test_every_form_is_evaluated() -> None:
    """By test_scalar_rules on every type or by test_edges on edge shapes; constants stand in the edges' computations."""
    tried = {row[1] for row in rows()} | set(PLAIN) | NAMED | {"constant"}
    have_form = {name for name, op in OPS.items() if METHODS[op.form]}
    assert have_form - tried == set(WITHOUT_FORM)


def test_primitives_are_methods_of_the_emitter() -> None:
    """All but functions that no rule but an op's own uses: `rule_of` gives them by name."""
    methods = {name.rstrip("_") for name, _ in inspect.getmembers(Emitter, inspect.isfunction)}
    assert not {p.name for p in PRIMITIVES.values() if p.ulp is None} - methods


def test_primitives_are_few() -> None:
    assert len(PRIMITIVES) <= 50
