"""The tables: names that there are, called by their cases, and enough of them."""

from __future__ import annotations

import importlib

import pytest

from tests.jax.functions.table import areas, cases, names_used, resolved

FUNCTIONS, MODULES = 700, 60


def test_counts() -> None:
    works = [case for case in cases().values() if not case.unsupported]
    assert len({case.name for case in works}) >= FUNCTIONS
    assert len({case.module for case in works}) >= MODULES
    assert {case.area for case in works} == set(areas())


def test_names_are_public() -> None:
    for case in cases().values():
        importlib.import_module(case.module)
        assert resolved(case.name) is not None, case.name
        assert not any(part.startswith("_") for part in case.name.split(".")), case.name


@pytest.mark.parametrize("area", areas())
def test_cases_call_what_they_name(area: str) -> None:
    for case in cases().values():
        if case.area == area and case.f is not None:
            assert case.name.rpartition(".")[2] in names_used(case.f), case.id
