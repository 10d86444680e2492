"""The spelling of ops: the text's names, readers and writers of attributes, taken from their cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

from hlokit.hlo.op import OPS, Attribute, Op
from hlokit.text.attributes import Reader, Writer, reader_of, writer_of
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import RESULT_SHAPE
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

# A called computation under another name than its role's: opcode -> name in text -> (role, position in it).
_OTHER_ROLE_NAMES = {
    "conditional": {"true_computation": ("branch_computations", 0), "false_computation": ("branch_computations", 1)},
    "custom-call": {"to_apply": ("called_computations", 0)},  # HOP-38
    "reduce-scatter": {"calls": ("to_apply", 0)},  # as the canonical preset writes it
}

CANONICAL_ROLE_NAMES = {("reduce-scatter", "to_apply"): "calls"}
"""Names of roles in the canonical preset: XLA lists there the opcodes with to_apply, but for this one."""


@dataclass(frozen=True)
class Spelling:
    """The written form of one op class.

    readers        text name -> (field, reader)
    writers        (getter, values not printed, ", name=", writer), in printing order
    required       (field, text name) of the attributes that must be there
    role_names     text name -> (role, position in it, or None for all of it)
    """

    op_class: type[Op]
    readers: dict[str, tuple[str, Reader]]
    writers: tuple[tuple[Callable[[Op], Any], tuple[Any, ...], str, Writer], ...]
    required: tuple[tuple[str, str], ...]
    role_names: dict[str, tuple[str, int | None]]
    ignored: frozenset[str]

    @property
    def allowed(self) -> list[str]:
        """Every attribute name that the op itself takes."""
        return [*self.readers, *self.role_names]


def _unprinted(attribute: Attribute) -> tuple[Any, ...]:
    """The values with which an attribute does not appear."""
    if attribute.always or attribute.required:
        return (None,)
    return (None, attribute.default, *attribute.unsaid)


@cache
def spelling_of(op_class: type[Op]) -> Spelling:
    """The spelling of this op."""
    shown = [a for a in op_class.attributes if not a.hidden and a.kind is not RESULT_SHAPE]
    readers = {name: (a.name, reader_of(a.kind)) for a in shown for name in (a.text, *a.also)}
    writers = tuple((attrgetter(a.name), _unprinted(a), f", {a.text}=", writer_of(a.kind)) for a in shown)
    role_names: dict[str, tuple[str, int | None]] = {role: (role, 0) for role in op_class.roles}
    role_names |= {role: (role, None) for role in op_class.list_roles}
    role_names |= _OTHER_ROLE_NAMES.get(op_class.opcode, {})
    required = tuple((a.name, a.text) for a in shown if a.required)
    return Spelling(op_class, readers, writers, required, role_names, frozenset(op_class.ignored_attributes))


@cache
def branch_spelling(selector: DType) -> Spelling:
    """A conditional's, whose selector says what its branches are called (HOP-20)."""
    spelling = spelling_of(OPS["conditional"])
    of_pred = _OTHER_ROLE_NAMES["conditional"]
    is_pred = selector is dtypes.pred
    names = {n: at for n, at in spelling.role_names.items() if (n in of_pred) == is_pred}
    return replace(spelling, role_names=names)


def written_roles(op: Op, operands: list[Shape], called: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """(name, computation or list of computations) in printing order; an empty list is not written."""
    if not called:
        return []
    if op.opcode == "conditional" and operands and operands[0].dtype is dtypes.pred:
        return list(zip(("true_computation", "false_computation"), called, strict=False))
    pairs: list[tuple[str, Any]] = list(zip(op.roles, called, strict=False))
    rest = list(called[len(op.roles) :])
    return pairs + [(role, rest) for role in op.list_roles if rest]
