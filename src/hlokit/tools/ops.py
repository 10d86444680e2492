"""hlokit ops: the reference of the language, from the registry of op classes."""

from __future__ import annotations

import inspect
import json as json_module
import re
import textwrap
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hlokit.errors import HlokitError
from hlokit.hlo.op import OPS, Attribute, Op
from hlokit.rules import Rule, attribute_meaning, rules, selected


def ops(name: str | None = None, *, json: bool = False) -> None:
    """Lists all ops, or describes one: its meaning, operands, attributes, called computations and rules.

    Parameters
    ----------
    name:
        an opcode, e.g. reduce-window.
    json:
        print JSON.
    """
    import hlokit  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry

    if name is None and json:
        print(json_module.dumps([_facts(OPS[opcode]) for opcode in sorted(OPS)], indent=2))
        return
    if name is None:
        width = max(map(len, OPS))
        for opcode in sorted(OPS):
            print(f"{opcode:<{width}}  {summary(OPS[opcode])}")
        return
    if name not in OPS:
        close = [opcode for opcode in sorted(OPS) if name in opcode or opcode in name]
        close = close or get_close_matches(name, sorted(OPS), 3)
        raise HlokitError(f"no op {name!r}" + (f"; did you mean {', '.join(close)}?" if close else ""))
    print(json_module.dumps(_facts(OPS[name]), indent=2) if json else reference(OPS[name]))


def _facts(op: type[Op]) -> dict[str, Any]:
    """An op as JSON."""
    return {
        "opcode": op.opcode, "summary": summary(op), "form": op.form, "operands": [p.name for p in _operands_of(op)],
        "attributes": {
            a.text: attribute_meaning(op.opcode, a.text)
            for a in op.attributes
            if a is not op.result_shape and not a.hidden
        },
        "calls": [*op.roles, *op.list_roles], "rules": [rule.label for rule in rules_of(op)],
    }  # fmt: skip


def summary(op: type[Op]) -> str:
    """The first sentence of the op's docstring."""
    return (inspect.getdoc(op) or "").split("\n")[0]


def reference(op: type[Op]) -> str:
    """The op's page as Markdown."""
    lines = [f"# {op.opcode}", "", inspect.getdoc(op) or "", ""]
    operands = ", ".join(f"`{'*' * (p.kind is p.VAR_POSITIONAL)}{p.name}`" for p in _operands_of(op)) or "none"
    traits = [t for t in ("commutative", "side_effect", "elementwise") if getattr(op, t)]
    lines += [f"- operands: {operands}", f"- lowering form: {op.form}"]
    lines += [f"- traits: {', '.join(traits).replace('_', ' ')}"] if traits else []
    shown = [a for a in op.attributes if a is not op.result_shape and not a.hidden]
    rows = [_attribute_row(op, attribute) for attribute in shown]
    lines += ["", "| attribute | type | default | meaning |", "| --- | --- | --- | --- |", *rows] if shown else []
    roles = [f"`{role}`" for role in op.roles] + [f"`{role}` (a list)" for role in op.list_roles]
    lines += ["", f"Calls {', '.join(roles)}."] if roles else []
    if op.shape_required:
        lines += ["", "In text the result's shape must be written."]
    book = rules_of(op)
    notation = [line for text in dict.fromkeys(rule.notation for rule in book) if text for line in ("", text)]
    for title, kinds, before in (("Rules", "SVCEIA", notation), ("Examples", "XD", ())):
        shown = [f"- `{rule.label}` {rule.text}" for rule in book if rule.kind in kinds]
        lines += ["", f"{title}:", *before, "", *shown] if shown else []
    functions = functions_of(op)
    if functions:
        named = ", ".join(f"`{name if name.startswith('b.') else f'hk.{name}'}`" for name in functions)
        lines += ["", f"Made by {named}. Examples begin with `import hlokit as hk`.", "", *_example(functions)]
    if op.example:
        lines += ["", "In text:", "", "```", *inspect.cleandoc(op.example).split("\n"), "```"]
    return "\n".join(lines)


def functions_of(op: type[Op]) -> dict[str, Callable[..., Any]]:
    """The functions of the builder that make an op: that of its name, then those of shorter names first."""
    named = {**made_by().get(op, {}), **_built_on().get(op, {})}
    return dict(sorted(named.items(), key=lambda item: (item[0].replace("_", "-") != op.opcode, len(item[0]), item[0])))


@cache
def made_by() -> Mapping[type[Op], Mapping[str, Callable[..., Any]]]:
    """The functions of the builder whose code names each op's class, themselves or through private functions.

    By the name that they are called by: "add", "b.parameter".
    """
    classes, found = _classes(), dict[type[Op], dict[str, Callable[..., Any]]]()
    for called, function, public in _defined():
        for op in _reached(function) & {*classes}:
            found.setdefault(classes[op], {})[called] = public
    return found


@cache
def _built_on() -> Mapping[type[Op], Mapping[str, Callable[..., Any]]]:
    """The functions of the builder that make ops only through other functions, by the one op that matters of these."""
    classes, found = _classes(), dict[type[Op], dict[str, Callable[..., Any]]]()
    direct = {name for functions in made_by().values() for name in functions}
    for called, function, public in _defined():
        made = {classes[name] for name in _reached(function, through_public=True) & {*classes}}
        made = {op for op in made if op.opcode not in _COMMON}
        if called not in direct and len(made) == 1:
            found.setdefault(made.pop(), {})[called] = public
    return found


_COMMON = ("tuple", "get-tuple-element", "constant", "broadcast", "reshape", "after-all")
"""Ops that functions use to adjust operands, and to put values together."""


def _classes() -> dict[str, type[Op]]:
    """The classes of ops by their names in Python."""
    return {op.__name__: op for op in OPS.values()}


@cache
def _defined() -> list[tuple[str, FunctionType, Callable[..., Any]]]:
    """The builder's functions and methods: by what they are called, without decorators, and as they are called."""
    from hlokit import builder
    from hlokit.builder import functions
    from hlokit.builder.core import Builder

    modules = [module for _, module in sorted(vars(builder).items()) if isinstance(module, ModuleType)]
    defined = [(module.__name__, name, f) for module in modules for name, f in vars(module).items()]
    defined += [(Builder.__module__, name, f) for name, f in vars(Builder).items()]
    found: list[tuple[str, FunctionType, Callable[..., Any]]] = []
    for module, name, function in defined:
        called = name if hasattr(functions, name) else f"b.{name}" if hasattr(Builder, name) else ""
        function = inspect.unwrap(function) if callable(function) else None
        if not isinstance(function, FunctionType) or not called or name.startswith("_"):
            continue
        if function.__module__ == module and function.__name__ == name:  # no import, no other name
            found.append((called, function, getattr(Builder if called != name else functions, name)))
    return found


def _reached(function: FunctionType, *, through_public: bool = False) -> set[str]:
    """The names in the function's code, and in that of private functions that it names, or of all of the builder's."""
    public = {function for _, function, _ in _defined()} if through_public else set[FunctionType]()
    names, pending, seen = set[str](), [function], set[FunctionType]()
    while pending:
        one = pending.pop()
        seen.add(one)
        for name in _names(one.__code__):
            names.add(name)
            other = one.__globals__.get(name)
            other = inspect.unwrap(other) if callable(other) else None
            if isinstance(other, FunctionType) and other not in seen and (name.startswith("_") or other in public):
                pending.append(other)
    return names


def _names(code: CodeType) -> set[str]:
    return {*code.co_names}.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _example(functions: Mapping[str, Callable[..., Any]]) -> list[str]:
    """The example of the first function that has one."""
    for name in functions:
        text = inspect.getdoc(functions[name]) or ""
        start = re.search(r"^ *>>> ", text, re.MULTILINE)
        if start is not None:
            return ["```pycon", *textwrap.dedent(text[start.start() :]).rstrip().split("\n"), "```"]
    return []


def rules_of(op: type[Op]) -> list[Rule]:
    """The rules of an op: those that its card and its base classes name, then those of its text."""
    cards = " ".join(vars(c).get("rules", "") for c in reversed(op.__mro__))
    word = re.compile(rf"(?<![\w-]){op.opcode}(?![\w-])")
    own = selected(cards)
    text = [r for r in rules().values() if r.label.startswith(("HOP-", "HASYNC-")) and word.search(r.text)]
    return [*own, *(rule for rule in text if rule not in own)]


def _operands_of(op: type[Op]) -> list[inspect.Parameter]:
    """The parameters of the shape rule that stand for operands, not for called computations."""
    found = list(inspect.signature(op.infer).parameters.values())[1:]
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return [p for p in found if p.kind in kinds and p.name not in (*op.roles, *op.list_roles)]


def _attribute_row(op: type[Op], attribute: Attribute) -> str:
    kind = attribute.kind.name
    if attribute.kind.choices:
        kind = " ".join(attribute.kind.choices)
    default = "required" if attribute.required else f"`{attribute.default}`"
    return f"| `{attribute.text}` | {kind} | {default} | {attribute_meaning(op.opcode, attribute.text)} |"
