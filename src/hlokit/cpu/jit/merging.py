"""Functions that differ by integer constants alone become one, which takes them as parameters.

Packing and tiles of a program's products differ so, by strides and sizes; code generation takes as long for each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hlokit.cpu.llvm import SHARED

_MOST = 4
"""Parameters more. Where there are more constants, as in tiles that have a stride's multiple in each row, they stay."""
_INTEGERS = re.compile(
    r"  %\S+ = (?:(?:add|sub|mul|shl|and|or|xor|icmp \w+)(?: nsw| nuw)* i64|phi i64|getelementptr|select i1 %\w+,) "
    r"|  store i64 |  call void @(?!llvm\.)"
)
"""Lines whose constants may be variables. Divisors are far faster as constants."""
_NUMBER = re.compile(r"(?<=\bi64 )-?\d+\b(?! x )|(?<=, )-?\d+$|(?<=\[ )-?\d+(?=, %)")
"""Integers in them: after their type, second operands of arithmetic, initial values of loops."""
_POINTER = re.compile(r"ptr @([\w.$]+)")
_CALL = re.compile(r"call void @([\w.$]+)\((.*)\)$", re.MULTILINE)


def merged(functions: Mapping[str, str], exported: Iterable[str]) -> dict[str, str]:
    """The functions by name, equal ones under the first one's name. One whose address is taken stays as it is."""
    groups = _candidates(functions)
    if not groups:
        return dict(functions)
    kept = {*exported, *(name for text in functions.values() for name in _POINTER.findall(text))}
    clusters = [c for names in groups for c in _clusters({n: functions[n] for n in names if n not in kept})]
    clusters = [cluster for cluster in clusters if len(cluster.members) > 1]
    calls = {name: arguments for cluster in clusters for name, arguments in cluster.calls().items()}
    result = dict(functions)
    for cluster in clusters:
        first, *others = cluster.members
        result[first] = cluster.text(functions[first])
        for name in others:
            del result[name]
    return {name: _calling(text, calls) for name, text in result.items()} if calls else result


def _candidates(functions: Mapping[str, str]) -> list[list[str]]:
    """Names of functions of the same length and parameters that nothing inlines and that are this program's alone."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name, text in functions.items():
        first = text.partition("\n")[0]
        if "noinline" in first and "void" in first and SHARED not in first:
            groups[text.count("\n"), first.replace(f"@{name}(", "@(", 1)].append(name)
    return [names for names in groups.values() if len(names) > 1]


@dataclass
class _Cluster:
    """Functions that one can stand for: for each the constants at the same places, line and number in it."""

    skeleton: dict[int, list[str]]
    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def parameters(self) -> dict[tuple[str, ...], int]:
        """By what the members have at a place: the parameter that stands there."""
        columns = zip(*self.members.values(), strict=True)
        return {column: k for k, column in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}

    def takes(self, name: str, skeleton: dict[int, list[str]], numbers: list[str]) -> bool:
        """Whether the function is one of them; then it is added."""
        if skeleton != self.skeleton:
            return False
        self.members[name] = numbers
        if len(self.parameters()) <= _MOST:
            return True
        del self.members[name]
        return False

    def calls(self) -> dict[str, tuple[str, str]]:
        """For each member whom to call instead, and with what besides."""
        first, columns = next(iter(self.members)), list(self.parameters())
        more = {name: [column[k] for column in columns] for k, name in enumerate(self.members)}
        return {name: (first, "".join(f", i64 {value}" for value in values)) for name, values in more.items()}

    def text(self, first: str) -> str:
        """The function for all, made of the first one's text."""
        lines, parameters = first.split("\n"), self.parameters()
        columns = zip(*self.members.values(), strict=True)
        for k, parts in self.skeleton.items():
            shown = parts[0]
            for part in parts[1:]:
                column = next(columns)
                shown += (f"%merged{parameters[column]}" if column in parameters else column[0]) + part
            lines[k] = shown
        head, _, attributes = lines[0].rpartition(")")
        lines[0] = f"{head}{''.join(f', i64 %merged{k}' for k in parameters.values())}){attributes}"
        return "\n".join(lines)


def _clusters(functions: Mapping[str, str]) -> list[_Cluster]:
    """The functions, those together that differ in few constants. All have as many lines."""
    lines = {name: text.split("\n") for name, text in functions.items()}
    rows = list(zip(*lines.values(), strict=True))
    differing = [k for k, row in enumerate(rows[1:], 1) if len(set(row)) > 1]
    found: list[_Cluster] = []
    for name, own in lines.items():
        split = {k: _split(own[k]) for k in differing}
        skeleton = {k: parts for k, (parts, _) in split.items()}
        numbers = [number for _, some in split.values() for number in some]
        if not any(cluster.takes(name, skeleton, numbers) for cluster in found):
            found.append(_Cluster(skeleton, {name: numbers}))
    return found


def _split(line: str) -> tuple[list[str], list[str]]:
    """A line cut at the constants that may be parameters: the text between them, and these."""
    if not _INTEGERS.match(line) or "splat" in line:
        return [line], []
    return _NUMBER.split(line), _NUMBER.findall(line)


def _calling(text: str, calls: Mapping[str, tuple[str, str]]) -> str:
    """The text, with what is called now."""

    def call(match: re.Match[str]) -> str:
        name, more = calls.get(match[1], (match[1], ""))
        return f"call void @{name}({match[2]}{more})"

    return _CALL.sub(call, text)
