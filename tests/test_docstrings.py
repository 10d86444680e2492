"""Docstrings of public names: examples that give what they say, and NumPy's sections for parameters, results and errors."""

from __future__ import annotations

import builtins
import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from docs import generate
from hlokit.builder.documentation import SECTIONS, entries, split
from hlokit.interop import jax as jax_interface
from hlokit.interop import xla_client
from hlokit.interop.xla_client import ops as xla_ops
from hlokit.interop.xla_client import xla_extension
from hlokit.ops.custom_targets import registry
from hlokit.rules import LABEL, rules

PUBLIC = {name: value for name in hk.__all__ if inspect.isclass(value := getattr(hk, name)) or inspect.isfunction(value)}
XLA_CLIENT = {
    name: value
    for name, value in {**vars(xla_extension), **vars(xla_client)}.items()
    if getattr(value, "__module__", "").startswith("hlokit.interop.xla_client") and (inspect.isclass(value) or inspect.isfunction(value))
}
"""The functions and classes of `hlokit.interop.xla_client` but for `ops`, by name."""
METHODS = {f"Builder.{name}": value for name, value in vars(hk.Builder).items() if not name.startswith("_")}
OP_METHODS = {f"Op.{name}": value for name, value in vars(hk.Op).items() if inspect.isfunction(value) and not name.startswith("_")}
ALL: dict[str, Any] = PUBLIC | METHODS | OP_METHODS | {f"xla_client.{name}": value for name, value in XLA_CLIENT.items()}
NOT_RUN = {"load_snapshot", "mpi_world", "process_world", "register_ffi_target"}
"""What takes a file, several processes or a compiled library: lines of their examples are not run."""

WITHIN_LOWERING = {f"Op.{name}" for name in ("scalar", "element", "mapped", "scatter", "target", "kernel", "contraction", "transfer", "expand")}
"""What only the code generator and collectives call, with emitters, graphs and devices: docs/add_a_form.md has examples."""


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
    assert {*without} <= NOT_RUN | WITHIN_LOWERING
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

def test_errors_say_how_to_fix_them() -> None:
    """Each class of errors has an example that prints a message, and a way to put it right."""
    kinds = [value for value in PUBLIC.values() if inspect.isclass(value) and issubclass(value, hk.HlokitError)]
    assert len(kinds) == 15
    assert [kind.__name__ for kind in kinds if "\n\nTo fix it: " not in (inspect.getdoc(kind) or "")] == []


# -- the sections of NumPy's standard

CLASSES = (*(value for value in (*PUBLIC.values(), *XLA_CLIENT.values()) if inspect.isclass(value)), *generate.RESULTS)
"""Classes whose methods users call: those of the facade and of `xla_client`, and what the facade's functions return."""


def described() -> dict[str, Any]:
    """Functions and methods that are public, by name."""
    found = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
    found |= {f"interop.jax.{name}": getattr(jax_interface, name) for name in jax_interface.__all__}
    found |= {f"interop.xla_client.{name}": value for name, value in XLA_CLIENT.items() if inspect.isfunction(value)}
    for owner in CLASSES:
        for name, value in {**vars(owner), **generate.members(owner)}.items():
            value = getattr(value, "__func__", value)
            if inspect.isfunction(value) and (not name.startswith("_") or name == "__call__"):
                found[f"{_title(owner)}.{name}"] = value
    return {name: value for name, value in found.items() if name not in generate.INSIDE}


def _title(owner: type) -> str:
    """The class's name: xla_client has some that hlokit has too."""
    return f"xla_client.{owner.__name__}" if owner.__module__.startswith("hlokit.interop.xla_client") else owner.__name__


def properties() -> dict[str, property | cached_property[Any]]:
    """Properties that are public, by name."""
    found: dict[str, property | cached_property[Any]] = {}
    for owner in CLASSES:
        for name, value in vars(owner).items():
            if isinstance(value, (property, cached_property)) and not name.startswith("_"):
                found[f"{_title(owner)}.{name}"] = value
    return found


def test_properties_are_described() -> None:
    """A property says what it is, in a sentence."""
    found = properties()
    assert len(found) > 80
    assert [name for name, value in found.items() if not re.match(r"[^\n]*\w.*[.:]", value.__doc__ or "")] == []


def test_xla_client_op_functions_name_hlokit_s() -> None:
    """Each says which op function of hlokit describes its parameters, result and rules."""
    assert len(xla_ops.FUNCTIONS) > 140
    for name, function in xla_ops.FUNCTIONS.items():
        named = re.findall(r"`(?:hk|Builder)\.(\w+)`", function.__doc__)
        assert named and all(hasattr(hk, each) or hasattr(hk.Builder, each) for each in named), name


DESCRIBED = described()
NO_ERRORS = {
    *(f"interop.xla_client.{name}" for name in ("custom_call_targets", "register_custom_call_handler", "hlo_module_to_dot_graph", "tracebacks")),
    "make_padding", "interop.jax.jit", "interop.jax.step_hooks", "create_token", "optimization_barrier", "copy", "maybe_conjugate",
    "Debugger.step", "Debugger.into", "Debugger.out", "Debugger.back", "Debugger.back_into", "Debugger.back_out",
}  # fmt: skip
"""Functions of the facade for which no arguments of the right kinds are wrong."""


def sections(name: str) -> dict[str, str]:
    return split(inspect.getdoc(DESCRIBED[name]) or "")


def test_many_are_described() -> None:
    assert len(DESCRIBED) > 550


@pytest.mark.parametrize("name", DESCRIBED)
def test_parameters_results_and_errors_are_described(name: str) -> None:
    """Every parameter with its type, in the order of the signature; a result; the errors of functions."""
    found = sections(name)
    assert [*found] == ["", *(title for title in SECTIONS if title in found)] and found[""].split("\n")[0].endswith((".", ":"))
    function = DESCRIBED[name]
    parameters = entries(found.get("Parameters", ""))
    for head, text in parameters.items():
        assert re.fullmatch(r"\w+(, \w+)* : \S.*", head) and text.rstrip().endswith((".", "...")), head
    listed = [each for head in parameters for each in head.partition(" : ")[0].split(", ")]
    wanted = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
    assert sorted(listed) == sorted(wanted)
    assert [p for p in listed if p not in GROUPED] == [p for p in wanted if p not in GROUPED]
    defaults = {p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty}
    assert {each for head in parameters if head.endswith("optional") for each in head.partition(" : ")[0].split(", ")} == defaults
    if "return" in getattr(function, "__annotations__", {}) and function.__annotations__["return"] != "None":
        assert all(text for text in entries(found["Returns"]).values()) and entries(found["Returns"])
    is_function = "." not in name or name.startswith("interop")
    assert "Raises" in found or not is_function or name in NO_ERRORS


GROUPED = {"x", "y", "einsum_config", "kwargs", "static_argnums", "static_argnames"}
"""Parameters that are described together, apart from their places in a signature."""


ON_SITE = {kind.__name__: kind for kind in (*(value for value in PUBLIC.values() if inspect.isclass(value)), *generate.RESULTS)}
"""The classes of the reference of Python names."""


@pytest.mark.parametrize("name", ON_SITE)
def test_attributes_are_described(name: str) -> None:
    """Each attribute with its type, as a parameter of the constructor or by itself, or in a string below it."""
    owner = ON_SITE[name]
    found = split(inspect.getdoc(owner) or "")
    described = {**entries(found.get("Parameters", "")), **entries(found.get("Attributes", ""))}
    for head, text in described.items():
        assert re.fullmatch(r"\w+(, \w+)* : \S.*", head) and text.rstrip().endswith((".", "...")), head
    listed = [each for head in described for each in head.partition(" : ")[0].split(", ")]
    below = {name for name, text in generate.attributes(owner).items() if text}
    assert sorted(listed) == sorted({*listed}) and below.isdisjoint(listed)
    assert {*generate.attributes(owner)} <= {*listed} | below
    known = {each for base in owner.__mro__ if base.__module__.startswith("hlokit") for each in generate.attributes(base)}
    made = inspect.signature(owner).parameters if "__init__" in vars(owner) else ()
    assert {*listed} <= known | {*made}


def test_members_are_on_the_site() -> None:
    """Every public method, property and attribute of a class is on the page that has the class."""
    pages = generate.reference_pages()
    assert sum(len(generate.members(owner)) for owner in ON_SITE.values()) > 200
    for name, owner in ON_SITE.items():
        if issubclass(owner, Exception):
            text = pages[f"errors/{name}.md"]
        else:
            page = next(page for page in generate.API if name in generate.api_names(page))
            text = pages[f"api/{page}.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        if text.startswith("\nAnother name of "):
            assert owner.__name__ != name
            continue
        for member in generate.members(owner):
            head = "### Calls of a" if member == "__call__" else f"### {name}.{member}\n"
            assert f"\n{head}" in text, f"{name}.{member}"
        for attribute in generate.attributes(owner):
            assert re.search(rf"^- (`\w+`, )*`{attribute}`", text, re.MULTILINE), f"{name}.{attribute}"


def test_errors_are_classes_and_their_labels_rules() -> None:
    for error, text in [entry for name in DESCRIBED for entry in entries(sections(name).get("Raises", "")).items()]:
        kind = getattr(hk, error, None) or XLA_CLIENT.get(error) or getattr(builtins, error)
        assert issubclass(kind, Exception) and text
        assert {*LABEL.findall(text)} <= {*rules()}, text


ELEMENTWISE = [
    name
    for name, value in PUBLIC.items()
    if inspect.unwrap(value).__module__ in ("hlokit.builder.elementwise", "hlokit.builder.hyperbolic", "hlokit.builder.error_functions")
    and next(iter(inspect.signature(value).parameters)) in ("operand", "lhs", "y", "real")
    and name not in ("bitcast_convert_type", "convert_element_type", "reduce_precision", "stochastic_convert_type", "compare")
]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_raise_what_they_say(name: str) -> None:
    """The rule by which an operand of each type, of no type, of another shape or rank is refused is in the docstring."""
    function = PUBLIC[name]
    count = len([p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL])
    dtypes = [dtype for dtype in hk.DTYPES.values() if dtype.is_array]
    tries: list[tuple[hk.Shape, ...]] = [(dtype[2],) * count for dtype in dtypes] + [(hk.TOKEN,) * count]
    tries += [(hk.f32[2], hk.s32[2]), (hk.f32[2], hk.f32[2, 2]), (hk.f32[2], hk.f32[3])] if count == 2 else []
    raised = set[str]()
    for shapes in tries:
        b = hk.Builder()
        try:
            function(*(b.parameter(k, shape) for k, shape in enumerate(shapes)))
        except hk.ShapeError as error:
            raised.add(error.label)
    assert raised or name == "copy"
    assert raised <= {*LABEL.findall(sections(name).get("Raises", ""))}
