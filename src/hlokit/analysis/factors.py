"""Factors of an instruction: how the dimensions of its operands correspond to those of its results, by its form.

A factor is an index that moves along one dimension, or a part of one, of several arrays. The analysis reads forms and
knows no opcodes: an index form is called with readers that record the index of each read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, TypeAlias

from hlokit.forms.affine import Affine, Index, Key
from hlokit.forms.contraction import Contraction, Move
from hlokit.forms.emitter import Emitter, Value
from hlokit.forms.fold import FoldDimension
from hlokit.forms.primitives import Primitive
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import Op
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal as ConstantLiteral
from hlokit.types.shape import Shape

Kind: TypeAlias = Literal["same", "folded", "shifted", "looked up", "whole"]
"""The relation of the elements along a factor:

same       those at a value of the factor depend on those at this value alone
folded     results combine the elements of all values: by a called computation, or by addition
shifted    a result depends on elements at other values, at places that the op's attributes say
looked up  a result depends on elements at values that are known when the program runs
whole      a result may depend on all of them
"""

_KINDS: tuple[Kind, ...] = ("same", "folded", "shifted", "looked up", "whole")


def _worst(*kinds: Kind) -> Kind:
    """The kind that says least."""
    return _KINDS[max([_KINDS.index(kind) for kind in kinds])]


Dimensions: TypeAlias = "tuple[tuple[int, ...], ...]"
"""For each dimension of an array the numbers of its factors, major to minor."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An index of an instruction.

    size         how many values it takes
    kind         what depends on what along it
    is_numbered  what a result is depends on the number of the value too, as in iota, or where a guard looks at it
    """

    size: int
    kind: Kind = "same"
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The place along a factor at which what is looked up, or written, begins: an element of an operand.

    factor     along which it moves
    source     number of the operand that says it
    component  (dimension, place) of it in that operand, whose other dimensions count such places; None for a scalar
    last       the greatest place: greater ones are moved to it, and negative ones to 0; or, of a scatter, dropped
    """

    factor: int
    source: int
    component: tuple[int, int] | None
    last: int


@dataclass(frozen=True, slots=True)
class Relation:
    """The factors of an instruction: those of its results come first, in the order of their dimensions.

    operands, results  for each array its dimensions' factors; several in one dimension multiply to its size.
                       A tuple has one entry for each of its arrays.
    starts             where places are known when the program runs, and one element says them

        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[8, 6])
        >>> y = hk.reshape(x, (2, 4, 6))
        >>> print(relation_of(y.instruction))
        ([ij, k])->([i, j, k]) {i=2, j=4, k=6}
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dimensions, ...]
    results: tuple[Dimensions, ...]
    starts: tuple[Start, ...] = ()

    def __str__(self) -> str:
        def array(dimensions: Dimensions) -> str:
            return f"[{', '.join(''.join(map(_letter, d)) for d in dimensions)}]"

        text = f"({', '.join(map(array, self.operands))})->({', '.join(map(array, self.results))})"
        text += f" {{{', '.join(f'{_letter(i)}={f.size}' for i, f in enumerate(self.factors))}}}"
        for kind in _KINDS:
            names = [_letter(i) for i, f in enumerate(self.factors) if f.kind == kind]
            if kind != "same" and names:
                text += f" {kind}={{{', '.join(names)}}}"
        return text


def _letter(number: int) -> str:
    return chr(ord("i") + number) if number < 18 else f"z_{number - 17}"


def relation_of(instruction: Instruction) -> Relation | None:
    """The relation of an instruction; None where its op's form says nothing of dimensions, or shapes are dynamic."""
    operands = tuple(o.shape for o in instruction.operands)
    return relation(instruction.op, operands, instruction.shape, batch_dims_of(instruction))


BATCH_DIMS = "num_batch_dims"
"""The frontend attribute that promises so many batch dimensions of a custom call: JAX's, of targets that are batch
partitionable."""


def batch_dims_of(instruction: Instruction) -> int:
    """The first dimensions of all operands and results along which a custom call is a call for each element; 0 if
    nothing promises that, or if it stands for a computation of these sizes."""
    if instruction.opcode != "custom-call" or instruction.extra is None or instruction.called:
        return 0
    text = instruction.extra.frontend_attributes.get(BATCH_DIMS, "")
    return int(text) if text.isdecimal() and len(text) < 4 else 0


@lru_cache(maxsize=4096)
def relation(op: Op, operands: tuple[Shape, ...], result: Shape, batch_dims: int = 0) -> Relation | None:
    """As `relation_of`, for operands and a result of these shapes."""
    leaves = list(result.leaves())
    if not all(s.is_array and not s.is_dynamic for s in chain(operands, leaves)) or not leaves:
        return None
    if any(0 in s.dimensions for s in chain(operands, leaves)):
        return None  # there is no element to relate
    if batch_dims:
        return _batched(operands, leaves, batch_dims)
    rule = _FORMS.get(op.form)
    return rule(op, operands, leaves) if rule is not None else None


# -- the forms


class _Draft:
    """A relation that is being made: factors by any key, renumbered at the end."""

    def __init__(self, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
        self.operands: list[list[list[Any]]] = [[[] for _ in s.dimensions] for s in operands]
        self.results: list[list[list[Any]]] = [[[] for _ in s.dimensions] for s in results]
        self.shapes = [*operands, *results]
        self.factors: dict[Any, Factor] = {}
        self.starts: dict[Any, tuple[int, tuple[int, int] | None, int]] = {}

    def add(self, key: Any, size: int, kind: Kind = "same", is_numbered: bool = False) -> Any:
        """A factor; one that is there becomes the worse of the two kinds."""
        known = self.factors.get(key)
        if known is not None:
            kind = _worst(kind, known.kind)
            is_numbered |= known.is_numbered
        self.factors[key] = Factor(size, kind, is_numbered)
        return key

    def complete(self, kind: Kind = "whole") -> Relation:
        """The relation; dimensions that nothing was said of have factors of their own, of this kind."""
        for arrays in (self.operands, self.results):
            shapes = self.shapes[: len(self.operands)] if arrays is self.operands else self.shapes[len(self.operands) :]
            for array, shape in zip(arrays, shapes, strict=True):
                for d, size in enumerate(shape.dimensions):
                    if not array[d]:
                        array[d].append(self.add(object(), size, kind if size > 1 else "same"))
        order: dict[Any, int] = {}
        for key in chain.from_iterable(chain.from_iterable([*self.results, *self.operands])):
            order.setdefault(key, len(order))
        return Relation(
            tuple(self.factors[key] for key in order),
            tuple(tuple(tuple(order[key] for key in d) for d in array) for array in self.operands),
            tuple(tuple(tuple(order[key] for key in d) for d in array) for array in self.results),
            tuple(Start(order[key], *start) for key, start in self.starts.items()),
        )

    def start(self, key: Any, place: Affine, first: int = 0) -> None:
        """A start of a factor, if one element says its place; `first`: the number of the operand that is read as 0."""
        found = [term for term, _ in place.terms if isinstance(term, _RunTime)]
        if len(found) != 1 or found[0].source is None:
            return
        read = found[0].source
        known = [(d, a.constant) for d, a in enumerate(read.index) if a.is_constant]
        if len(known) <= 1:
            self.starts[key] = (first + read.operand, known[0] if known else None, found[0].high)


def _map(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    """Operands of the result's rank go with it, dimension by dimension; scalars with all of it."""
    draft = _Draft(operands, results)
    for d, size in enumerate(results[0].dimensions):
        draft.add(d, size)
        draft.results[0][d].append(d)
        for shape, array in zip(operands, draft.operands, strict=True):
            if shape.rank:
                array[d].append(d)
    return draft.complete()


def _fold(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    """Kept dimensions go with the result's, folded ones are folded; windows meet elements at other places."""
    fold = op.fold(operands)
    draft = _Draft(operands, results)
    for d, (size, dimension) in enumerate(zip(operands[0].dimensions, fold.dimensions, strict=True)):
        kind: Kind = "same" if dimension.is_kept else "shifted"
        if dimension.output is None:
            kind = "folded" if dimension == FoldDimension(None, size) else "whole"
        draft.add(d, size, kind)
        for array in draft.operands[: fold.count]:
            array[d].append(d)
        if dimension.output is not None:
            for array in draft.results:
                array[dimension.output].append(d)
    return draft.complete()


def _contraction(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    """Batch, left and right dimensions go with the result, summed ones are folded; windows meet other places."""
    form = op.contraction(operands)
    draft = _Draft(operands, results)
    if form.is_scaled or form.groups is not None:
        return draft.complete()
    windows = {w.dimension for w in form.windows or ()}
    placed: dict[tuple[int, int], list[tuple[int, Any]]] = {}
    for number, d in enumerate(form.dimensions):
        windowed = d.lhs is not None and d.lhs.dimension in windows and form.windows is not None
        if windowed:
            _window(draft, form, number, operands[0], placed)
            continue
        draft.add(number, d.size, "folded" if d.role == "summed" else "same")
        for array, move in enumerate((d.lhs, d.rhs, d.result)):
            if move is not None:
                placed.setdefault((array, move.dimension), []).append((move.step, number))
    arrays = [*draft.operands[:2], draft.results[0]]
    for (array, dimension), moves in placed.items():
        keys = [key for _, key in sorted(moves, key=lambda move: -abs(move[0]))]
        keys = [key for key in keys if draft.factors[key].size > 1] or keys[:1]
        size = draft.shapes[array].dimensions[dimension] if array < 2 else results[0].dimensions[dimension]
        if math.prod(draft.factors[key].size for key in keys) != size:
            keys = [draft.add(("rest", array, dimension), size, "whole")]
        arrays[array][dimension] = keys
    return draft.complete()


def _window(
    draft: _Draft, form: Contraction, number: int, lhs: Shape, placed: dict[tuple[int, int], list[tuple[int, Any]]]
) -> None:
    """An index of outputs or of taps of a window: a tap of a window of one element, at its own place, is no window."""
    d = form.dimensions[number]
    assert d.lhs is not None
    window = next(w for w in form.windows or () if w.dimension == d.lhs.dimension)
    pair = [e for e in form.dimensions if e.lhs is not None and e.lhs.dimension == d.lhs.dimension]
    taps = next(e for e in pair if e.role == "summed")
    outputs = next(e for e in pair if e.role != "summed")
    size = lhs.dimensions[d.lhs.dimension]
    plain = window.low == 0 and window.base_dilation == 1 and taps.size == 1 and outputs.lhs == Move(d.lhs.dimension)
    if d.role == "summed":
        assert d.rhs is not None
        draft.add(number, d.size, "whole" if d.size > 1 else "same")
        placed.setdefault((1, d.rhs.dimension), []).append((d.rhs.step, number))
        return
    assert d.result is not None
    draft.add(number, size, "same" if plain and outputs.size == size else "shifted")
    placed.setdefault((0, d.lhs.dimension), []).append((1, number))
    draft.results[0][d.result.dimension] = [number]


def _kernel(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    """All arrays share the dimensions that the routine does not need whole."""
    whole = op.kernel(operands).whole
    draft = _Draft(operands, results)
    if whole is None or len({s.rank for s in chain(operands, results)}) != 1:
        return draft.complete()
    rank = results[0].rank
    for d in range(rank):
        if len({s.dimensions[d] for s in draft.shapes}) == 1:
            draft.add(d, results[0].dimensions[d], "whole" if d - rank in whole else "same")
            for array in chain(draft.operands, draft.results):
                array[d].append(d)
    return draft.complete()


def _batched(operands: Sequence[Shape], results: Sequence[Shape], count: int) -> Relation:
    """The first dimensions go with each other, if all results have them; operands that do not are needed whole."""
    draft = _Draft(operands, results)
    sizes = results[0].dimensions[:count]
    if len(sizes) < count or any(shape.dimensions[:count] != sizes for shape in results):
        return draft.complete()
    for shape, array in zip(draft.shapes, chain(draft.operands, draft.results), strict=True):
        if shape.dimensions[:count] == sizes:
            for d, size in enumerate(sizes):
                array[d].append(draft.add(d, size))
    return draft.complete()


def _scatter(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    """Dimensions along which a whole window lies go with the updates'; indices may hit anything along the others."""
    form = op.scatter(operands)
    count = form.count
    draft = _Draft(operands, results)
    target, updates = operands[0], operands[count + 1]

    def aimed(probe: _Probe, index: Index, readers: list[_Reader]) -> Any:
        return op.target(probe, index, *_spread(operands, count, readers))

    probe, index, reads = _probed(updates, [operands[count]], aimed)
    window = dict(form.window)
    for u, d in form.window:
        moves = probe.target is not None and probe.target.index[d] is index[u][0].affine
        if moves and updates.dimensions[u] == target.dimensions[d]:
            draft.add(("kept", d), target.dimensions[d])
            for array in (*draft.operands[:count], *draft.results):
                array[d].append(("kept", d))
            for array in draft.operands[count + 1 :]:
                array[u].append(("kept", d))
    batches: dict[Key, int] = {}
    if probe.target is not None:
        for d, place in enumerate(probe.target.index):
            if len(place.terms) == 1 and place.constant == 0 and place.terms[0][1] == 1:
                batches[place.terms[0][0]] = d
    for u, size in enumerate(updates.dimensions):
        if u in window:
            continue
        (part,) = index[u] if len(index[u]) == 1 else (None,)
        batch = batches.get(part.key) if part is not None else None
        key = draft.add(("update", u), size, "folded" if batch is None else "same")
        for array in draft.operands[count + 1 :]:
            array[u].append(key)
        for read in reads:
            for e, place in enumerate(read.index):
                if part is not None and place is part.affine and key not in draft.operands[count][e]:
                    draft.operands[count][e].append(key)
        if batch is not None and target.dimensions[batch] == size:
            for array in (*draft.operands[:count], *draft.results):
                array[batch].append(key)
    for d, size in enumerate(target.dimensions):
        if not draft.results[0][d]:
            draft.add(("hit", d), size, is_numbered=True)
            if probe.target is not None:
                draft.start(("hit", d), probe.target.index[d], count)
            for array in (*draft.operands[:count], *draft.results):
                array[d].append(("hit", d))
    return draft.complete()


def _spread(operands: Sequence[Shape], count: int, readers: Sequence[Any]) -> list[Any]:
    """Readers of all of a scatter's operands, of which the indices' are given."""
    found: list[Any] = [_Reader(_Silent(), -1, shape) for shape in operands]
    found[count] = readers[0]
    return found


# -- index forms, by what they read


@dataclass(frozen=True)
class _Element:
    """A value of which only the type is known."""

    dtype: DType
    read: _Read | None = None


@dataclass(frozen=True)
class _Read:
    operand: int
    index: Index


@dataclass(frozen=True)
class _Part:
    """A part of a dimension of the result: its index."""

    key: Key
    size: int

    @property
    def affine(self) -> Affine:
        return Affine.of(self.key)


class _Split(Exception):
    """A division asks for the index `key` in two: so many values of the minor part."""

    def __init__(self, key: Key, minor: int) -> None:
        self.key, self.minor = key, minor


class _RunTime(Key):
    """An integer that is known when the program runs: an element that is read, or something else (None)."""

    __slots__ = ("source",)

    def __init__(self, source: _Read | None, low: int, high: int) -> None:
        super().__init__("r", low, high)
        self.source = source


class _Digits(Key):
    """A quotient of indices that do not split so."""

    __slots__ = ("of",)

    def __init__(self, of: Affine, low: int, high: int) -> None:
        super().__init__("q", low, high)
        self.of = of


@dataclass
class _Silent:
    """Records nothing."""

    reads: list[_Read] = field(default_factory=list[_Read])


class _Probe(Emitter):
    """Records the places that an index form reads, and the indices whose numbers matter."""

    def __init__(self) -> None:
        self.reads: list[_Read] = []
        self.numbered: set[Key] = set()
        self.target: Any = None

    def primitive(self, primitive: Primitive, operands: Sequence[Value], dtype: DType) -> Value:
        return _Element(dtype)

    def constant(self, value: Any, dtype: DType) -> Value:
        return _Element(dtype)

    def literal(self, literal: ConstantLiteral, index: Index) -> Value:
        self._number(*index)
        return _Element(literal.shape.dtype)

    def number(self, affine: Affine) -> Value:
        self._number(affine)
        return _Element(dtypes.s32 if affine.low >= -(2**31) and affine.high < 2**31 else dtypes.s64)

    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        self._number(affine)
        return _Element(dtypes.pred)

    def branch(self, conditions: Sequence[Value], then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        otherwise()
        return then()

    def as_index(self, value: Value, low: int, high: int, inside: bool = False) -> Affine:
        return Affine.of(low) if high - low == 1 else Affine.of(_RunTime(getattr(value, "read", None), low, high - 1))

    def quotient(self, affine: Affine, divisor: int) -> Affine:
        for key, c in affine.terms:
            minor = divisor // math.gcd(c, divisor)
            size = key.high + 1
            splits = not isinstance(key, (_RunTime, _Digits)) and affine.constant % divisor == 0
            if splits and 1 < minor < size and size % minor == 0:
                raise _Split(key, minor)
        whole = Affine.sum(Affine.of(key) * (c // divisor) for key, c in affine.terms if c % divisor == 0)
        rest = affine - whole * divisor
        self._number(rest)
        return whole + _Digits(rest, rest.low // divisor, rest.high // divisor)

    def _number(self, *affines: Affine) -> None:
        for key, _ in chain.from_iterable(affine.terms for affine in affines):
            self.numbered.add(key)


@dataclass(frozen=True)
class _Reader:
    probe: Any
    operand: int
    shape: Shape

    def __call__(self, index: Index) -> Value:
        read = _Read(self.operand, index)
        self.probe.reads.append(read)
        return _Element(self.shape.dtype, read)


def _probed(
    result: Shape, operands: Sequence[Shape], called: Callable[[_Probe, Index, list[_Reader]], Any]
) -> tuple[_Probe, list[list[_Part]], list[_Read]]:
    """A form's reads at every index of `result`, whose dimensions are split until all divisions are exact."""
    parts = [[_Part(Key(f"i{d}", 0, size - 1), size)] for d, size in enumerate(result.dimensions)]
    while True:
        probe = _Probe()
        index = tuple(
            Affine.sum(part.affine * math.prod(p.size for p in dimension[i + 1 :]) for i, part in enumerate(dimension))
            for dimension in parts
        )
        try:
            found = called(probe, index, [_Reader(probe, i, shape) for i, shape in enumerate(operands)])
        except _Split as split:
            parts = [list(chain.from_iterable(_cut(part, split) for part in dimension)) for dimension in parts]
            continue
        probe.target = found
        return probe, parts, probe.reads


def _cut(part: _Part, split: _Split) -> list[_Part]:
    if part.key is not split.key:
        return [part]
    major = part.size // split.minor
    return [_Part(Key(part.key.name, 0, size - 1), size) for size in (major, split.minor)]


def _index(op: Op, operands: Sequence[Shape], results: Sequence[Shape]) -> Relation:
    (result,) = results

    def element(probe: _Probe, index: Index, readers: list[_Reader]) -> Any:
        return op.element(probe, index, *readers)

    probe, parts, reads = _probed(result, operands, element)
    draft = _Draft(operands, results)
    for d, dimension in enumerate(parts):
        for part in dimension:
            draft.results[0][d].append(draft.add(part.key, part.size, is_numbered=part.key in probe.numbered))
    where = {part.key: part for part in chain.from_iterable(parts)}
    for key in _opaque(reads):
        if key in draft.factors:
            draft.add(key, where[key].size, "whole")
    places = [_same_places(reads, number, shape) for number, shape in enumerate(operands)]
    kept = {key for places_ in places for place in places_ for key in _plain(place)}
    for number, shape in enumerate(operands):
        for d, size in enumerate(shape.dimensions):
            draft.operands[number][d] = _factors_of(draft, places[number][d], size, kept)
    for read in reads:
        for d, place in enumerate(read.index):
            key = draft.operands[read.operand][d][0]
            moving = [k for k, _ in place.terms if k in kept]
            if draft.factors[key].kind == "looked up" and any(isinstance(k, _RunTime) for k, _ in place.terms):
                draft.start(moving[0] if moving else key, place)
    return draft.complete()


def _opaque(reads: Iterable[_Read]) -> set[Key]:
    """The indices of which only quotients are read."""
    pending = [a for read in reads for a in read.index]
    found: set[Key] = set()
    while pending:
        for key, _ in pending.pop().terms:
            if isinstance(key, _Digits) and len(key.of.terms) > 1:
                found |= {k for k, _ in key.of.terms}
                pending.append(key.of)
    return found


@dataclass(frozen=True)
class _Place:
    """Where an operand is read along a dimension: one affine, or (`kind` "whole") several that disagree."""

    keys: tuple[Key, ...] = ()
    rest: int = 1
    kind: Kind = "same"


def _plain(place: _Place) -> tuple[Key, ...]:
    return place.keys if place.kind == "same" else ()


def _same_places(reads: Sequence[_Read], operand: int, shape: Shape) -> list[_Place]:
    """For each dimension of an operand the place where it is read; the worst of several reads'."""
    found: list[_Place] = []
    for d, size in enumerate(shape.dimensions):
        places = list(dict.fromkeys(_decoded(r.index[d], size) for r in reads if r.operand == operand))
        if len(places) <= 1:
            found.append(places[0] if places else _Place())
            continue
        kinds: list[Kind] = [place.kind for place in places]
        worst = _worst(*kinds)
        keys = {p.keys for p in places}
        kind: Kind = "whole" if len(keys) != 1 or worst == "same" else worst
        found.append(_Place(keys.pop() if len(keys) == 1 else (), kind=kind))
    return found


def _decoded(affine: Affine, size: int) -> _Place:
    """The indices that a place is made of, major to minor, where it runs through all of a dimension of this size."""
    if size == 1:
        return _Place()
    terms = sorted(affine.terms, key=lambda term: -term[1])
    plain = [key for key, _ in terms if not isinstance(key, (_RunTime, _Digits))]
    if any(isinstance(key, _RunTime) for key, _ in terms):
        return _Place(tuple(plain[:1]), kind="looked up")
    keys: list[Key] = []
    remaining = size
    for key, c in terms:
        if affine.constant or isinstance(key, _Digits) or c * (key.high + 1) != remaining:
            break
        keys.append(key)
        remaining = c
    if remaining == 1 or (keys and any(isinstance(key, _Digits) for key, _ in terms)):
        return _Place(tuple(keys), remaining)
    indices = _indices(affine)
    return _Place(tuple(indices), kind="shifted") if len(indices) == 1 else _Place(kind="whole")


def _indices(affine: Affine) -> set[Key]:
    """The indices that it is made of, those in quotients too."""
    found: set[Key] = set()
    for key, _ in affine.terms:
        found |= _indices(key.of) if isinstance(key, _Digits) else {key}
    return found


def _factors_of(draft: _Draft, place: _Place, size: int, kept: set[Key]) -> list[Any]:
    """The factors of a dimension that is read there; a key that other operands keep is not shared by a moved one."""
    if place.kind == "same":
        if not place.keys and place.rest == 1:
            return [draft.add(object(), size)]
        rest = [draft.add(object(), place.rest, "whole")] if place.rest > 1 else []
        return [*place.keys, *rest]
    if len(place.keys) == 1 and place.keys[0] not in kept:
        (key,) = place.keys
        known = draft.factors[key]
        draft.add(key, max(size, known.size if known.kind == place.kind else 0), place.kind)
        return [key]
    return [draft.add(object(), size, place.kind)]


_FORMS: dict[str, Callable[[Op, Sequence[Shape], Sequence[Shape]], Relation]] = {
    "map": _map,
    "index": _index,
    "fold": _fold,
    "contraction": _contraction,
    "kernel": _kernel,
    "scatter": _scatter,
}

__all__ = ["Factor", "Relation", "Start", "batch_dims_of", "relation", "relation_of"]
