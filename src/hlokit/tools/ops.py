"""hlokit ops: the reference of the language, out of the registry of op classes."""

from __future__ import annotations

import inspect
import re

from hlokit.errors import HlokitError
from hlokit.hlo.op import OPS, Attribute, Op
from hlokit.rules import Rule, rules, selected


def ops(name: str | None = None) -> None:
    """Lists all ops, or shows one: what it does, its operands, attributes, called computations and rules.

    Parameters
    ----------
    name:
        an opcode, e.g. reduce-window.
    """
    import hlokit  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry

    if name is None:
        width = max(map(len, OPS))
        for opcode in sorted(OPS):
            print(f"{opcode:<{width}}  {summary(OPS[opcode])}")
        return
    if name not in OPS:
        close = [opcode for opcode in sorted(OPS) if name in opcode or opcode in name]
        raise HlokitError(f"no op {name!r}" + (f"; did you mean {', '.join(close)}?" if close else ""))
    print(reference(OPS[name]))


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
    lines += ["", "| attribute | type | default |", "| --- | --- | --- |", *map(_attribute_row, shown)] if shown else []
    roles = [f"`{role}`" for role in op.roles] + [f"`{role}` (a list)" for role in op.list_roles]
    lines += ["", f"Calls {', '.join(roles)}."] if roles else []
    if op.shape_required:
        lines += ["", "In text the result's shape must be written."]
    book = rules_of(op)
    for title, kinds in (("Rules", "SVCEIA"), ("Examples", "XD")):
        shown = [f"- `{rule.label}` {rule.text}" for rule in book if rule.kind in kinds]
        lines += ["", f"{title}:", "", *shown] if shown else []
    return "\n".join(lines)


def rules_of(op: type[Op]) -> list[Rule]:
    """What the rule book says of an op: the rules that its card and its base classes name, then those of its text."""
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


def _attribute_row(attribute: Attribute) -> str:
    kind = attribute.kind.name
    if attribute.kind.choices:
        kind = " ".join(attribute.kind.choices)
    default = "required" if attribute.required else f"`{attribute.default}`"
    return f"| `{attribute.text}` | {kind} | {default} |"
