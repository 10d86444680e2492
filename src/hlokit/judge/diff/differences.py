"""The differences of two modules: of the header, of computations, and of the instructions that correspond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, cast

import numpy as np

from hlokit.errors import ArgumentError
from hlokit.hlo.compare import EXTRA_FIELDS, HEADER_FIELDS, entry_layout
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction, Metadata
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.judge.diff.matching import Matching
from hlokit.judge.diff.numbering import Numbering
from hlokit.judge.diff.page import view_of
from hlokit.judge.diff.records import Change, ComputationDiff, Differences, Pair
from hlokit.judge.diff.text import lines_of, summary
from hlokit.ops.structure import Constant, Parameter
from hlokit.text.common import dictionary_text
from hlokit.text.metadata import metadata_text
from hlokit.text.numbers import literal_text
from hlokit.text.spelling import spelling_of
from hlokit.types.literal import Literal as LiteralValue
from hlokit.types.shape import Shape
from hlokit.view.notebook import diff_html
from hlokit.view.page import View

ASPECTS = ("names", "metadata", "layouts", "shardings")
"""Aspects that a comparison can leave out."""
IGNORED = ("names", "metadata")
"""Aspects that it leaves out if nothing is said: no result depends on them."""

_FIELDS_OF: dict[str, set[str]] = {
    "metadata": {"metadata", "origin", "statistics", "stack_tables", "debug_attributes", "origin_recovery_table"},
    "shardings": {"sharding"},
}
"""The fields of modules and instructions that an aspect stands for."""
_NOTHING = Extra()


@dataclass(frozen=True, repr=False)
class ModuleDiff(Differences):
    """The differences of module `b` from module `a`, as `hk.diff` gives them.

    `str(d)` is the text that `hlokit diff` prints.

    Attributes
    ----------
    a, b : HloModule
        The two modules.
    changes : tuple of Change
        The differences of the modules' headers.
    computations : tuple
        Every computation, in the order of `b`, then those of `a` alone.

    Examples
    --------
    >>> a = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> b = hk.parse("HloModule m\\nENTRY e { p = f32[2] parameter(0) ROOT q = f32[2] sine(p) }")
    >>> print(hk.diff(a, b))
    HloModule m -> m: 1 same, 1 changed
    ENTRY %e
    ~ %y = f32[2]{0} negate(%x)
      %q = f32[2]{0} sine(%p)
        opcode: negate -> sine
    """

    def to_text(self) -> str:
        """The differences as text, as `print` shows them.

        Returns
        -------
        str
            One line for each difference; lines of instructions begin with -, + or a space.
        """
        return "\n".join(line.text for line in lines_of(self))

    def to_json(self) -> dict[str, Any]:
        """The differences as values that `json.dumps` takes.

        Returns
        -------
        dict
            The modules' names, whether they are equal, the numbers of differences, and each difference.
        """
        return {
            "a": self.a.name,
            "b": self.b.name,
            "equal": self.is_equal,
            "counts": {**self.counts},
            "changes": [vars(c) for c in self.changes],
            "computations": [_computation_json(c) for c in self.computations if not (c.a and c.b and c.is_equal)],
        }

    def to_html(self) -> str:
        """The page that `view()` makes.

        Returns
        -------
        str
            HTML.
        """
        return self.view().html

    def view(self) -> View:
        """A page that shows both modules side by side, and as graphs of which each follows the other.

        Returns
        -------
        View
            The page: `save` it as a file, or let a notebook show it.
        """
        return view_of([("", self)])

    def _repr_html_(self) -> str:
        return diff_html(f"{self.a.name} → {self.b.name}: {summary(self)}", islice(lines_of(self), 1, None))

    __str__ = to_text

    def __repr__(self) -> str:
        return f"<ModuleDiff {self.to_text().partition(chr(10))[0].removeprefix('HloModule ')}>"


def _computation_json(diff: ComputationDiff) -> dict[str, Any]:
    names = {"a": diff.a.name if diff.a else None, "b": diff.b.name if diff.b else None}
    pairs = [_pair_json(pair) for pair in diff.pairs if pair.kind != "same"]
    return {**names, "changes": [vars(c) for c in diff.changes], "instructions": pairs}


def _pair_json(pair: Pair) -> dict[str, Any]:
    names = {"a": pair.a.name if pair.a else None, "b": pair.b.name if pair.b else None}
    return {"kind": pair.kind, **names, "moved": pair.moved, "changes": [vars(c) for c in pair.changes]}


def diff(a: HloModule, b: HloModule, ignore: Collection[str] = IGNORED) -> ModuleDiff:
    """The differences of two modules: see `hk.diff`."""
    for module in (a, b):
        if not isinstance(module, HloModule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"diff: found {type(module).__name__}, expected an HloModule")
    unknown = [word for word in ignore if word not in ASPECTS]
    if unknown:
        raise ArgumentError(f"diff: cannot ignore {', '.join(unknown)}: choose from {', '.join(ASPECTS)}")
    return _Comparison(a, b, frozenset(ignore)).result()


class _Comparison:
    def __init__(self, a: HloModule, b: HloModule, ignored: frozenset[str]) -> None:
        self.a, self.b = a, b
        self.names, self.layouts = "names" not in ignored, "layouts" not in ignored
        left_out = {name for word in ignored for name in _FIELDS_OF.get(word, ())}
        self.header = [f for f in HEADER_FIELDS if f not in left_out]
        self.extra = [f for f in EXTRA_FIELDS if f not in left_out]
        self.matching = Matching(a, b)
        self.exact = Numbering(self._details)
        self.exact.add(a)
        self.exact.add(b)
        self.scheduled = (a.scheduled(), b.scheduled())

    def result(self) -> ModuleDiff:
        of_a = self.matching.computations
        of_b = {b: a for a, b in of_a.items()}
        found = [self._computations(of_b.get(b), b) for b in self.b.computations()]
        found += [self._computations(a, None) for a in self.a.computations() if a not in of_a]
        return ModuleDiff(self.a, self.b, tuple(self._header()), tuple(found))

    # -- modules and computations

    def _header(self) -> Iterator[Change]:
        if self.names:
            yield from _changed("name", self.a.name, self.b.name)
        for name in self.header:
            yield from _changed(name, getattr(self.a, name), getattr(self.b, name))
        ours, theirs = ([self._shape(shape) for shape in entry_layout(module)] for module in (self.a, self.b))
        if ours[-1] != theirs[-1] or len(ours) != len(theirs) or ours != theirs:
            texts = [f"({', '.join(shapes[:-1])})->{shapes[-1]}" for shapes in (ours, theirs)]
            yield Change("entry_computation_layout", *texts)
        entry = self.matching.computations.get(self.a.entry)
        if entry is not self.b.entry:
            yield Change("entry", self.a.entry.name, self.b.entry.name)

    def _computations(self, a: Computation | None, b: Computation | None) -> ComputationDiff:
        of_a, of_b = self.matching.of_a, self.matching.of_b
        ours = [] if a is None else a.instructions if a in self.scheduled[0] else a.post_order()
        theirs = [] if b is None else b.instructions if b in self.scheduled[1] else b.post_order()
        place = {instruction: number for number, instruction in enumerate(theirs)}
        in_order = _ascending([(i, place[of_a[i]]) for i in ours if of_a.get(i) in place])
        has_order = a in self.scheduled[0] and b in self.scheduled[1]
        pairs: list[Pair] = []
        rest = iter(theirs)

        def until(end: Instruction | None) -> None:
            """The instructions of `b` before `end`: those that stand elsewhere in `a`, and those that are not there."""
            for other in rest:
                if other is end:
                    return
                mine = of_b.get(other)
                pairs.append(Pair(None, other) if mine is None else self._pair(mine, other, has_order))

        for instruction in ours:
            other = of_a.get(instruction)
            if instruction in in_order:
                until(other)
                pairs.append(self._pair(instruction, other))  # type: ignore[arg-type]
            elif other is None:
                pairs.append(Pair(instruction, None))
            elif other not in place:
                pairs.append(self._pair(instruction, other))
        until(None)
        return ComputationDiff(a, b, tuple(self._of_computations(a, b)), tuple(pairs))

    def _of_computations(self, a: Computation | None, b: Computation | None) -> Iterator[Change]:
        if a is None or b is None:
            return
        if self.names:
            yield from _changed("name", a.name, b.name)
        yield from _changed("execution_thread", a.execution_thread, b.execution_thread)
        yield from _changed("backend_config", a.backend_config, b.backend_config)
        if self.matching.of_a.get(a.root) is not b.root:
            yield Change("root", f"%{a.root.name}", f"%{b.root.name}")

    # -- instructions

    @cached_property
    def _known(self) -> dict[Instruction, Pair]:
        return {}

    def _pair(self, a: Instruction, b: Instruction, moved: bool = False) -> Pair:
        """The pair of two instructions: one object, in however many computations it is told."""
        found = self._known.get(a)
        if found is None:
            moved = moved or a in self.matching.moved
            found = self._known[a] = Pair(a, b, tuple(self._changes(a, b)), moved)
        return found

    def _changes(self, a: Instruction, b: Instruction) -> Iterator[Change]:
        if self.names:
            yield from _changed("name", a.name, b.name)
        yield from _changed("opcode", a.opcode, b.opcode)
        yield from _changed("shape", self._shape(a.shape), self._shape(b.shape))
        if self.exact.op(a.op) != self.exact.op(b.op):
            yield from _of_attributes(a.op, b.op)
        yield from self._operands(a, b)
        yield from self._called(a, b)
        ours, theirs = a.extra or _NOTHING, b.extra or _NOTHING
        for name in self.extra if ours is not theirs else ():
            yield from _changed(name, getattr(ours, name), getattr(theirs, name))
        before = [self.matching.of_a.get(p) for p in a.control_predecessors]
        if set(before) != set(b.control_predecessors):
            yield Change("control-predecessors", _names(a.control_predecessors), _names(b.control_predecessors))

    def _operands(self, a: Instruction, b: Instruction) -> Iterator[Change]:
        images = [self.matching.of_a.get(o) for o in a.operands]
        if len(a.operands) != len(b.operands):
            yield Change("operands", _names(a.operands), _names(b.operands))
            return
        for place, (image, other) in enumerate(zip(images, b.operands, strict=True)):
            if image is not other:
                yield Change(f"operand {place}", f"%{a.operands[place].name}", f"%{other.name}")

    def _called(self, a: Instruction, b: Instruction) -> Iterator[Change]:
        """Calls of other computations. Those that are equal in all that counts are the same, as copies of one are."""
        if len(a.called) != len(b.called):
            yield Change("calls", _names(a.called), _names(b.called))
            return
        for one, other in zip(a.called, b.called, strict=True):
            numbers = self.exact.computations
            if self.matching.computations.get(one) is not other and numbers.get(one) != numbers.get(other):
                yield Change("calls", f"%{one.name}", f"%{other.name}")

    def _details(self, instruction: Instruction) -> Any:
        """All that an exact number depends on beside op, operands and calls."""
        extra = instruction.extra or _NOTHING
        name = instruction.name if self.names else ""
        shape = instruction.shape if self.layouts else instruction.shape.logical
        return shape, name, *(_text(getattr(extra, field)) for field in self.extra)

    def _shape(self, shape: Shape) -> str:
        return shape.to_text(self.layouts)


def _changed(what: str, a: Any, b: Any) -> Iterator[Change]:
    if a is not b and a != b:
        yield Change(what, _text(a), _text(b))


def _text(value: Any) -> str:
    if isinstance(value, Metadata):
        return metadata_text(value)
    if isinstance(value, dict):
        return dictionary_text(cast("dict[str, str]", value))
    return "" if value is None else str(value)


def _of_attributes(a: Op, b: Op) -> Iterator[Change]:
    """The differences of two ops' attributes. Large constants are told by how many elements of them differ."""
    if isinstance(a, Constant) and isinstance(b, Constant) and a.literal.shape.logical is b.literal.shape.logical:
        ours, theirs = (literal_text(c.literal, large=False) for c in (a, b))
        yield Change("literal", ours, theirs if ours != theirs else f"{theirs} ({_differing(a.literal, b.literal)})")
        return
    ours, theirs = _attributes(a), _attributes(b)
    for name in dict.fromkeys([*ours, *theirs]):
        yield from _changed(name, ours.get(name, ""), theirs.get(name, ""))


def _differing(a: LiteralValue, b: LiteralValue) -> str:
    if not isinstance(a.value, np.ndarray) or not isinstance(b.value, np.ndarray):
        return "other content"
    size = a.value.itemsize
    ours, theirs = (np.frombuffer(value.tobytes(), np.uint8).reshape(-1, size) for value in (a.value, b.value))
    return f"{np.any(ours != theirs, axis=1).sum():,} of {len(ours):,} elements differ"


def _attributes(op: Op) -> dict[str, str]:
    """Attributes as text writes them, by name; a parameter's number too."""
    if isinstance(op, Parameter):
        return {"number": str(op.number)}
    writers = spelling_of(type(op)).writers
    values = [(field(op), unprinted, prefix, writer) for field, unprinted, prefix, writer in writers]
    return {prefix.strip(", ="): writer(value) for value, unprinted, prefix, writer in values if value not in unprinted}


def _names(things: Sequence[Instruction] | Sequence[Computation]) -> str:
    return f"({', '.join(f'%{thing.name}' for thing in things)})"


def _ascending(places: Sequence[tuple[Instruction, int]]) -> set[Instruction]:
    """As many as can be of which the places ascend."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(places):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    found: set[Instruction] = set()
    number = last[-1] if last else -1
    while number >= 0:
        found.add(places[number][0])
        number = before[number]
    return found
