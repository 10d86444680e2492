"""Merging of functions that differ only by integer constants, which become parameters.

Packing and tiles of a program's products differ so, by strides and sizes; code generation takes as long for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hlokit.cpu.llvm import Definition

_MOST = 4
"""Parameters more. Where there are more constants, as in tiles that have a stride's multiple in each row, they stay."""


def merged(functions: Mapping[str, Definition], exported: Iterable[str]) -> dict[str, Definition]:
    """The functions by name, equal ones under the first one's name. One whose address is taken stays as it is."""
    groups = _candidates(functions)
    if not groups:
        return dict(functions)
    kept = {*exported, *(name for definition in functions.values() for name in definition.addresses)}
    clusters = [c for group in groups for c in _clusters([d for d in group if d.name not in kept])]
    clusters = [cluster for cluster in clusters if len(cluster.members) > 1]
    calls = {name: arguments for cluster in clusters for name, arguments in cluster.calls().items()}
    if not calls:
        return dict(functions)
    result = dict(functions)
    for cluster in clusters:
        first, *others = cluster.members
        result[first] = cluster.definition(functions[first])
        for name in others:
            del result[name]
    return {name: definition.calling(calls) for name, definition in result.items()}


def _candidates(functions: Mapping[str, Definition]) -> list[list[Definition]]:
    """Functions with the same parameters and attributes, and as many references, that nothing inlines and that are this
    program's alone."""
    groups: dict[tuple[int, str], list[Definition]] = defaultdict(list)
    for definition in functions.values():
        if definition.is_apart and definition.result == "void" and not definition.shared:
            groups[definition.references, definition.renamed("").head("")].append(definition)
    return [group for group in groups.values() if len(group) > 1]


@dataclass
class _Cluster:
    """Functions that one can stand for: for each its constants, which stand at the same places."""

    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def columns(self) -> list[tuple[str, ...]]:
        """The constants of the members at each place."""
        return list(zip(*self.members.values(), strict=True))

    def parameters(self) -> dict[tuple[str, ...], str]:
        """The parameters, by the constants whose place they take."""
        differing = dict.fromkeys(column for column in self.columns() if len(set(column)) > 1)
        return {column: f"merged{k}" for k, column in enumerate(differing)}

    def takes(self, name: str, constants: list[str]) -> bool:
        """Whether the function is one of them; then it is added."""
        self.members[name] = constants
        if len(self.parameters()) <= _MOST:
            return True
        del self.members[name]
        return False

    def calls(self) -> dict[str, tuple[str, list[str]]]:
        """For each member the function to call instead, and the operands that it takes besides."""
        first, columns = next(iter(self.members)), list(self.parameters())
        return {name: (first, [column[k] for column in columns]) for k, name in enumerate(self.members)}

    def definition(self, first: Definition) -> Definition:
        """The function for all, made of the first one."""
        parameters = self.parameters()
        return first.generalized([parameters.get(column) for column in self.columns()])


def _clusters(functions: Iterable[Definition]) -> list[_Cluster]:
    """The functions, those together that differ in few constants. All have the same parameters."""
    found: dict[tuple[str | None, ...], list[_Cluster]] = defaultdict(list)
    for definition in functions:
        alike, constants = found[definition.skeleton], definition.constants
        if not any(cluster.takes(definition.name, constants) for cluster in alike):
            alike.append(_Cluster({definition.name: constants}))
    return [cluster for alike in found.values() for cluster in alike]
