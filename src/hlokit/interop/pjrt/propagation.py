"""Where the values of a program lie that runs on whole values: as it says, else as their operands do.

Forward alone, dimension by dimension: a dimension that an operation passes on whole stays cut as it is. XLA's
partitioner looks backward too, and weighs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import While
from hlokit.ops.gather import Gather
from hlokit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.sorting import Sort
from hlokit.ops.structure import GetTupleElement, Tuple
from hlokit.ops.windows import ReduceWindow
from hlokit.stablehlo.manual import WISH
from hlokit.stablehlo.shardings import Cut, cuts_of
from hlokit.text.groups import parse_sharding
from hlokit.types.sharding import Sharding

Passed: TypeAlias = "Iterator[tuple[int, dict[int, int]]]"
"""By operand number: the operand's dimension that each dimension of the result is, whole."""


def shardings(computation: Computation) -> dict[Instruction, Sharding | None]:
    """The sharding of each value of an entry computation; None: every device has it whole, for all that is known."""
    known: dict[Instruction, Sharding | None] = {}
    for instruction in computation.post_order():
        known[instruction] = _of(instruction, known)
    return known


def _of(instruction: Instruction, known: Mapping[Instruction, Sharding | None]) -> Sharding | None:
    extra = instruction.extra
    if extra is not None and WISH in extra.frontend_attributes:
        return parse_sharding(extra.frontend_attributes[WISH])
    if extra is not None and extra.sharding is not None:
        return extra.sharding if "unreduced" not in str(extra.sharding) else None
    if isinstance(instruction.op, GetTupleElement):
        return _of_element(instruction, instruction.op.index, known)
    if not instruction.shape.is_array or not instruction.shape.rank:
        return None
    if not instruction.op.elementwise:
        return _merged(instruction, known)
    dimensions = instruction.shape.dimensions
    alike = (known[operand] for operand in instruction.operands if operand.shape.dimensions == dimensions)
    return next((sharding for sharding in alike if sharding is not None and sharding.kind == "tiled"), None)


def _of_element(
    instruction: Instruction, index: int, known: Mapping[Instruction, Sharding | None]
) -> Sharding | None:
    """Of a tuple's element; of what a loop carries it is the first one's."""
    operand = instruction.operands[0]
    while isinstance(operand.op, While):
        operand = operand.operands[0]
    return known[operand.operands[index]] if isinstance(operand.op, Tuple) else None


def _merged(instruction: Instruction, known: Mapping[Instruction, Sharding | None]) -> Sharding | None:
    """The operands' cuts of the dimensions that the result has of them, as far as they go together."""
    rule = next((rule for kind, rule in _RULES.items() if isinstance(instruction.op, kind)), None)
    if rule is None:
        return None
    sizes = instruction.shape.dimensions
    cuts: list[Cut | None] = [None] * len(sizes)
    for number, dimensions in rule(instruction):
        operand = instruction.operands[number]
        sharding = known[operand]
        given = cuts_of(sharding, operand.shape.rank) if sharding is not None else []
        for d, source in dimensions.items():
            cut = given[source] if given else None
            if cut is None or cut.count < 2 or cuts[d] is not None or sizes[d] % cut.count:
                continue
            cuts[d] = cut
            if not _go_together(cuts):
                cuts[d] = None
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


_RULES: dict[Any, Callable[[Instruction], Passed]] = {
    Broadcast: _broadcast,
    Dot: _dot,
    Gather: _gather,
    Reduce: _reduce,
    Reshape: _reshape,
    Transpose: _transpose,
    **dict.fromkeys(
        (Concatenate, DynamicSlice, DynamicUpdateSlice, Pad, ReduceWindow, Reverse, Slice, Sort), _in_place
    ),
}
