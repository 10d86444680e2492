"""hlokit ops: the reference of the language, out of the registry of op classes."""

from __future__ import annotations

import inspect

from hlokit.errors import HlokitError
from hlokit.hlo.op import OPS, Attribute, Op


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
    operands = "any number" if op.arity is None else str(op.arity)
    traits = [t for t in ("commutative", "side_effect", "elementwise") if getattr(op, t)]
    lines += [f"- operands: {operands}", f"- lowering form: {op.form}", f"- rules: {op.rules}-*"]
    lines += [f"- traits: {', '.join(traits).replace('_', ' ')}"] if traits else []
    shown = [a for a in op.attributes if a is not op.result_shape and not a.hidden]
    lines += ["", "| attribute | type | default |", "| --- | --- | --- |", *map(_attribute_row, shown)] if shown else []
    roles = [f"`{role}`" for role in op.roles] + [f"`{role}` (a list)" for role in op.list_roles]
    lines += ["", f"Calls {', '.join(roles)}."] if roles else []
    if op.shape_required:
        lines += ["", "In text the result's shape must be written."]
    return "\n".join(lines)


def _attribute_row(attribute: Attribute) -> str:
    kind = attribute.kind.name
    if attribute.kind.choices:
        kind = " ".join(attribute.kind.choices)
    default = "required" if attribute.required else f"`{attribute.default}`"
    return f"| `{attribute.text}` | {kind} | {default} |"
