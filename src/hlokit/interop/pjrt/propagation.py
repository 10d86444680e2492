"""Shardings of the values of a program that runs on whole values: the stated ones, otherwise those of their operands.

Propagation goes forward only, dimension by dimension: a dimension that an op passes on unchanged keeps its sharding.
XLA's partitioner also propagates backward, and compares costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hlokit.analysis.factors import batch_dims_of
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Conditional, While
from hlokit.ops.custom import CustomCall
from hlokit.ops.gather import Gather
from hlokit.ops.linalg import Cholesky, TriangularSolve
from hlokit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.sorting import Sort
from hlokit.ops.structure import GetTupleElement, Tuple
from hlokit.ops.windows import ReduceWindow
from hlokit.stablehlo.manual import GROUPS, OPEN, WISH
from hlokit.stablehlo.shardings import Cut, cuts_of
from hlokit.text.groups import parse_sharding
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

Passed: TypeAlias = "Iterator[tuple[int, dict[int, int]]]"
"""By operand number: the operand's dimension that each dimension of the result is, whole."""


_Group: TypeAlias = "tuple[str, tuple[int, ...]]"
"""The number of a group whose values lie alike, and their sizes."""


def shardings(module: HloModule) -> dict[Instruction, Sharding | None]:
    """The sharding of each value of the computations; None: every device has it whole, for all that is known."""
    groups: dict[_Group, Sharding] = {}
    while True:  # values of groups are cut more each time, dimension by dimension
        before = dict(groups)
        known = _forward(module, groups)
        if groups == before:
            return known


def _forward(module: HloModule, groups: dict[_Group, Sharding]) -> dict[Instruction, Sharding | None]:
    known: dict[Instruction, Sharding | None] = {}
    for computation in module.computations():  # callees first
        for instruction in computation.post_order():
            known[instruction] = found = _of(instruction, known)
            extra = instruction.extra
            if extra is not None and GROUPS in extra.frontend_attributes:
                known[instruction] = _alike(instruction, found, extra.frontend_attributes, groups)
    return known


def _alike(
    instruction: Instruction, found: Sharding | None, attributes: Mapping[str, str], groups: dict[_Group, Sharding]
) -> Sharding | None:
    """The sharding that is known of a value and of its groups, which learn from it."""
    shape = instruction.shape
    every = range(shape.rank)
    for number in attributes[GROUPS].split(","):
        group = (number, shape.dimensions)
        given = groups.get(group)
        if found is not None and found.kind == "tiled":
            groups[group] = _opened(given, found, every, shape) if given is not None else found
        if given is not None and WISH not in attributes:
            found = _opened(found or Sharding("replicated"), given, every, shape)
    return found


def _of(instruction: Instruction, known: Mapping[Instruction, Sharding | None]) -> Sharding | None:
    attributes = instruction.extra.frontend_attributes if instruction.extra is not None else {}
    if WISH not in attributes:
        return _passed(instruction, known)
    wanted = parse_sharding(attributes[WISH])
    if OPEN not in attributes:
        return wanted
    open = [int(number) for number in attributes[OPEN].split(",")]
    return _opened(wanted, _passed(instruction, known), open, instruction.shape)


def _opened(wanted: Sharding, given: Sharding | None, open: Sequence[int], shape: Shape) -> Sharding:
    """The sharding that is wanted, with what is given of the open dimensions that it leaves whole."""
    if given is None or wanted.kind not in ("tiled", "replicated"):
        return wanted
    cuts: list[Cut | None] = [cut if cut.count > 1 else None for cut in cuts_of(wanted, shape.rank)]
    cuts = cuts or [None] * shape.rank
    more = cuts_of(given, shape.rank)
    _take(cuts, {d: more[d] for d in open if d < len(more)}, shape.dimensions)
    return _tiled(cuts) or wanted


def _take(cuts: list[Cut | None], more: Mapping[int, Cut], sizes: Sequence[int]) -> None:
    """Cuts the dimensions that are whole as `more` says, one by one, as far as the cuts go together."""
    for d, cut in more.items():
        if cut.count < 2 or cuts[d] is not None or sizes[d] % cut.count:
            continue
        cuts[d] = cut
        if not _go_together(cuts):
            cuts[d] = None


def _passed(instruction: Instruction, known: Mapping[Instruction, Sharding | None]) -> Sharding | None:
    """As the program says it of a parameter, else as the operands lie."""
    extra = instruction.extra
    if extra is not None and extra.sharding is not None:
        return extra.sharding.placed() if "unreduced" not in str(extra.sharding) else None
    if isinstance(instruction.op, GetTupleElement):
        return _of_element(instruction.operands[0], instruction.op.index, known)
    if not instruction.shape.is_array or not instruction.shape.rank:
        return None
    if not instruction.op.elementwise:
        return _merged(instruction, instruction.shape, known)
    dimensions = instruction.shape.dimensions
    alike = (known[operand] for operand in instruction.operands if operand.shape.dimensions == dimensions)
    return next((sharding for sharding in alike if sharding is not None and sharding.kind == "tiled"), None)


def _of_element(value: Instruction, index: int, known: Mapping[Instruction, Sharding | None]) -> Sharding | None:
    """The sharding of a tuple's element; of what a loop carries the first one's, else what the body makes of it."""
    if isinstance(value.op, CustomCall):
        element = value.shape.elements[index]
        return _merged(value, element, known) if element.is_array else None
    bodies: list[Instruction] = []
    while isinstance(value.op, While):
        _, body = value.called
        bodies.append(body.root)
        value = value.operands[0]
    if isinstance(value.op, Conditional):
        bodies += [branch.root for branch in value.called]
    tuples = [value, *bodies]
    found = (known[one.operands[index]] for one in tuples if isinstance(one.op, Tuple))
    return next((sharding for sharding in found if sharding is not None), None)


def _merged(
    instruction: Instruction, result: Shape, known: Mapping[Instruction, Sharding | None]
) -> Sharding | None:
    """The operands' cuts of the dimensions that a result has of them, as far as they go together."""
    rule = next((rule for kind, rule in _RULES.items() if isinstance(instruction.op, kind)), None)
    if rule is None:
        return None
    sizes = result.dimensions
    cuts: list[Cut | None] = [None] * len(sizes)
    for number, dimensions in rule(instruction):
        operand = instruction.operands[number]
        sharding = known[operand]
        given = cuts_of(sharding, operand.shape.rank) if sharding is not None else []
        if given:
            _take(cuts, {d: given[source] for d, source in dimensions.items()}, sizes)
    return _tiled(cuts)


def _parts(cuts: Sequence[Cut | None]) -> tuple[tuple[int, ...], np.ndarray[Any, Any]]:
    """The counts of parts, and for each device the number of its tile."""
    counts = tuple(cut.count if cut is not None else 1 for cut in cuts)
    devices = next(cut.part.size for cut in cuts if cut is not None)
    parts = [cut.part if cut is not None else np.zeros(devices, np.int64) for cut in cuts]
    return counts, np.ravel_multi_index(tuple(parts), counts)


def _go_together(cuts: Sequence[Cut | None]) -> bool:
    """Whether as many devices have each tile."""
    if len({cut.part.size for cut in cuts if cut is not None}) != 1:
        return False
    counts, tile = _parts(cuts)
    found = np.bincount(tile, minlength=int(np.prod(counts)))
    return bool(found.min() == found.max())


def _tiled(cuts: Sequence[Cut | None]) -> Sharding | None:
    if not any(cut is not None for cut in cuts):
        return None
    counts, tile = _parts(cuts)
    copies = tile.size // int(np.prod(counts))
    devices = tuple(map(int, np.argsort(tile, kind="stable")))
    tiles = (*counts, copies) if copies > 1 else counts
    return Sharding("tiled", tile=tiles, devices=devices, replicate_last=copies > 1)


# -- what operations pass on


def _broadcast(instruction: Instruction) -> Passed:
    op: Any = instruction.op
    sizes = instruction.operands[0].shape.dimensions
    yield 0, {d: i for i, d in enumerate(op.dimensions) if sizes[i] == instruction.shape.dimensions[d]}


def _transpose(instruction: Instruction) -> Passed:
    op: Any = instruction.op
    dimensions: Sequence[int] = op.dimensions
    yield 0, dict(enumerate(dimensions))


def _reshape(instruction: Instruction) -> Passed:
    """Dimensions of one size with as many elements before them."""
    given, made = instruction.operands[0].shape.dimensions, instruction.shape.dimensions
    before = {(int(np.prod(given[:i])), size): i for i, size in enumerate(given) if size > 1}
    places = ((d, before.get((int(np.prod(made[:d])), size))) for d, size in enumerate(made))
    yield 0, {d: i for d, i in places if i is not None}


def _reduce(instruction: Instruction) -> Passed:
    op: Any = instruction.op
    kept = [d for d in range(instruction.operands[0].shape.rank) if d not in op.dimensions]
    yield 0, dict(enumerate(kept))


def _in_place(instruction: Instruction) -> Passed:
    """Dimensions that keep their size, but for the one along which elements move."""
    op: Any = instruction.op
    moved = getattr(op, "dimension", None)
    for number, operand in enumerate(instruction.operands):
        if operand.shape.is_array and operand.shape.rank == instruction.shape.rank:
            pairs = zip(operand.shape.dimensions, instruction.shape.dimensions, strict=True)
            yield number, {d: d for d, (given, made) in enumerate(pairs) if given == made and d != moved}


def _gather(instruction: Instruction) -> Passed:
    """Whole dimensions of the array, and those of the indices."""
    op: Any = instruction.op
    array, indices = instruction.operands
    gone = {*op.collapsed_slice_dims, *op.operand_batching_dims}
    sources = [d for d in range(array.shape.rank) if d not in gone]
    pairs = zip(op.offset_dims, sources, strict=True)
    yield 0, {d: source for d, source in pairs if op.slice_sizes[source] == array.shape.dimensions[source]}
    batch = [d for d in range(instruction.shape.rank) if d not in op.offset_dims]
    listed = [d for d in range(indices.shape.rank) if d != op.index_vector_dim]
    yield 1, dict(zip(batch, listed, strict=True))


def _dot(instruction: Instruction) -> Passed:
    op: Any = instruction.op
    lhs, rhs = instruction.operands
    batch: Sequence[int] = op.rhs_batch_dims
    free_left = [d for d in range(lhs.shape.rank) if d not in (*op.lhs_batch_dims, *op.lhs_contracting_dims)]
    free_right = [d for d in range(rhs.shape.rank) if d not in (*batch, *op.rhs_contracting_dims)]
    yield 0, dict(enumerate([*op.lhs_batch_dims, *free_left]))
    yield 1, {**dict(enumerate(batch)), **{len(batch) + len(free_left) + i: d for i, d in enumerate(free_right)}}


def _batch(instruction: Instruction) -> Passed:
    """The batch dimensions of linear algebra, as calls of libraries promise them."""
    shapes = [operand.shape for operand in instruction.operands]
    count = batch_dims_of(instruction) if isinstance(instruction.op, CustomCall) else shapes[0].rank - 2
    for number, shape in enumerate(shapes):
        if shape.is_array and shape.rank >= count:
            yield number, {d: d for d in range(count)}


_RULES: dict[Any, Callable[[Instruction], Passed]] = {
    Broadcast: _broadcast,
    Dot: _dot,
    Gather: _gather,
    Reduce: _reduce,
    Reshape: _reshape,
    Transpose: _transpose,
    **dict.fromkeys((Cholesky, CustomCall, TriangularSolve), _batch),
    **dict.fromkeys(
        (Concatenate, DynamicSlice, DynamicUpdateSlice, Pad, ReduceWindow, Reverse, Slice, Sort), _in_place
    ),
}
