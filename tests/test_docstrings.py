"""Every public name has an example in its docstring, and the examples give what they say."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.ops.custom_targets import registry

PUBLIC = {name: value for name in hk.__all__ if inspect.isclass(value := getattr(hk, name)) or inspect.isfunction(value)}
METHODS = {f"Builder.{name}": value for name, value in vars(hk.Builder).items() if not name.startswith("_")}
ALL: dict[str, Any] = PUBLIC | METHODS
NOT_RUN = {"load_snapshot", "mpi_world", "register_ffi_target"}
"""What takes a file, several processes or a compiled library: lines of their examples are not run."""


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Targets that examples register are gone afterwards."""
    yield
    for name in [name for name in registry._targets if name.startswith("example_")]:
        del registry._targets[name]


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(ALL[name]) or "", name)


def test_every_public_name_has_an_example() -> None:
    assert len(PUBLIC) > 280 and len(METHODS) > 30
    without = [name for name in ALL if not any(not example.options.get(doctest.SKIP) for example in examples(name))]
    assert {*without} <= NOT_RUN
    skipping = {name for name in ALL if any(example.options.get(doctest.SKIP) for example in examples(name))}
    assert skipping == NOT_RUN


def test_examples_use_what_they_are_of() -> None:
    """Each names the function or class, so that it is an example of that; errors are the exception that is caught."""
    for name, value in PUBLIC.items():
        text = "".join(example.source for example in examples(name))
        aliases = [other for other in PUBLIC if PUBLIC[other] is value or inspect.unwrap(PUBLIC[other]) is inspect.unwrap(value)]
        assert any(f"hk.{alias}" in text for alias in aliases) or name in BY_OTHER_MEANS, name
    for name in METHODS:
        text = "".join(example.source for example in examples(name))
        assert f".{name.removeprefix('Builder.')}" in text, name


BY_OTHER_MEANS = {"Computation", "Instruction", "HloModule", "DType", "ProgramShape", "Op", "Sharding", "XlaOp", "OutOfMemoryError"}
"""What other things give: `hk.f32` is a DType."""


@pytest.mark.parametrize("name", ALL)
def test_example(name: str) -> None:
    names: dict[str, Any] = {"hk": hk, "np": np}
    text = inspect.getdoc(ALL[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=said.append)
    assert not said, "".join(said)
