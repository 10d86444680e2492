"""Rules of ops on buffers of the bounds: the elements that each masks, and the sizes of its result.

A rule gives the value as the reference computes it from arrays of the run-time sizes; what it leaves beyond them is
anything (`whole=False`), unless the reference shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hlokit.analysis.reducers import neutral_value
from hlokit.errors import UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import Op
from hlokit.ops.comparison import Compare
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Call, Map
from hlokit.ops.conversion import Convert
from hlokit.ops.convolution import Convolution
from hlokit.ops.elementwise import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Not,
    Or,
    Remainder,
    Select,
    Subtract,
)
from hlokit.ops.gather import Gather
from hlokit.ops.movement import Broadcast, Pad, Reverse
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape, common_factors
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.ops.windows import ReduceWindow
from hlokit.passes.dynamic_padder.sized import Sized, SizedWriter, Sizes, Value
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape
from hlokit.types.window import PaddingDimension, WindowDimension, dilated

Rule: TypeAlias = Callable[[SizedWriter, Instruction, Sequence[Any]], Value]
"""The value of a dynamic instruction from its operands' values (arrays all, but for pass-through ops)."""

RULES: dict[str, Rule] = {}
"""The rules by opcode; elementwise ops share that of `add`."""


def pads(*opcodes: str) -> Callable[[Rule], Rule]:
    """Declares the rule of these ops."""

    def declare(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(opcodes, rule))
        return rule

    return declare


def unsupported(instruction: Instruction, what: str) -> UnsupportedError:
    return UnsupportedError(f"dynamic-padder: {instruction.name}: {instruction.opcode} with {what}")


def _static(instruction: Instruction) -> Op:
    """The op with its result's shape made static, where it holds one."""
    op, attribute = instruction.op, instruction.op.result_shape
    return op if attribute is None else op.replace(**{attribute.name: getattr(op, attribute.name).static})


def _sizes(value: Sized) -> Sizes:
    return value.sizes or (None,) * value.node.shape.rank


def _least(write: SizedWriter, values: Sequence[Sized]) -> Sizes:
    """Operands of one bound count as far as all of them do (DYN-BCAST-4)."""
    arrays = [_sizes(v) for v in values if v.node.shape.rank]
    return tuple(write.least(sizes) for sizes in zip(*arrays, strict=True))


# -- element by element, and what only passes values on


@pads("add")
def elementwise(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    if len(operands) == 2:
        return _of_two(write, instruction, operands)
    node = write.add(_static(instruction), *(o.node for o in operands))
    return Sized(node, _least(write, operands), whole=False)


def _of_two(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Where both operands are dynamic, one whose size is 1 is repeated (DYN-BCAST-4)."""
    nodes, sizes = [o.node for o in operands], list(_least(write, operands))
    for d, pair in enumerate(zip(*map(_sizes, operands), strict=True)):
        if None in pair or pair[0] is pair[1]:
            continue
        one, (a, b) = write.number(1), pair
        least, most = (write.add(op, a, b) for op in (Minimum(), Maximum()))
        is_one = write.add(Compare("EQ", None, None), least, one)
        sizes[d] = write.add(Select(), is_one, most, least)
        for k, size in enumerate(pair):
            repeats = write.add(And(), is_one, write.add(Compare("EQ", None, None), size, one))
            nodes[k] = _repeated(write, nodes[k], d, repeats)
    return Sized(write.add(_static(instruction), *nodes), tuple(sizes), whole=False)


def _repeated(write: SizedWriter, node: Instruction, dimension: int, repeats: Instruction) -> Instruction:
    """The array; if `repeats`, a pred, its first element along a dimension in the place of all of them."""
    shape = node.shape.static
    others = tuple(d for d in range(shape.rank) if d != dimension)
    ranges = tuple((0, 1 if d == dimension else n, 1) for d, n in enumerate(shape.dimensions))
    row_shape = shape.with_dimensions([shape.dimensions[d] for d in others])
    row = write.add(Reshape(None, row_shape), write.add(Slice(ranges), node))
    return write.add(Select(), write.full(repeats, shape), write.add(Broadcast(others, shape), row), node)


@pads("bitcast-convert")
def bitcast_convert(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """A last dimension of parts comes or goes; it is static (DYN-15)."""
    node = write.add(_static(instruction), operands[0].node)
    return Sized(node, (*_sizes(operands[0]), None)[: node.shape.rank], whole=False)


@pads("opt-barrier")
def barrier(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """One barrier over the arrays and all sizes: nothing slips past it."""
    shape = instruction.operands[0].shape
    return write.decoded(write.add(instruction.op, write.encoded(operands[0], shape)), shape)


@pads("copy", "add-dependency", "domain")
def passed_on(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0]


@pads("map")
def mapped(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """It looks at the padding too (DYN-10)."""
    nodes = [write.joined(write.wholly(operand)) for operand in operands]
    assert isinstance(instruction.op, Map)
    return Sized(write.add(instruction.op, *nodes, called=instruction.called))


@pads("get-dimension-size")
def get_dimension_size(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    return Sized(write.size_of(operands[0], instruction.op.dimension))  # type: ignore[attr-defined]


@pads("set-dimension-size")
def set_dimension_size(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    value, shape, d = write.wholly(operands[0]), instruction.shape, int(instruction.op.dimension)  # type: ignore[attr-defined]
    assert isinstance(value, Sized)
    if not shape.dynamic[d]:
        size = None  # it has to be the bound (SDS-7)
    else:
        size = write.within(operands[1].node, shape.dimensions[d])
    return Sized(value.node, tuple(size if i == d else s for i, s in enumerate(_sizes(value))))


# -- data movement


@pads("broadcast")
def broadcast(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    sizes: list[Instruction | None] = [None] * instruction.shape.rank
    for d, size in zip(instruction.op.dimensions, _sizes(operands[0]), strict=True):  # type: ignore[attr-defined]
        sizes[d] = size
    return Sized(write.add(_static(instruction), operands[0].node), tuple(sizes), whole=False)


@pads("transpose")
def transpose(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    sizes = _sizes(operands[0])
    node = write.add(instruction.op, operands[0].node)
    return Sized(node, tuple(sizes[d] for d in instruction.op.dimensions), whole=False)  # type: ignore[attr-defined]


@pads("reverse")
def reverse(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Reversed as a whole, the valid elements come last: they are moved to the front."""
    (value,), op = operands, instruction.op
    assert isinstance(op, Reverse)
    node, shape = write.add(op, value.node), value.node.shape
    starts: list[Instruction] = []
    padding: list[PaddingDimension] = []
    for d, size in enumerate(_sizes(value)):
        moves = size is not None and d in op.dimensions
        bound = shape.dimensions[d]
        starts.append(write.add(Subtract(), write.number(bound), size) if moves and size else write.number(0))
        padding.append(PaddingDimension(0, bound if moves else 0))
    if any(p.edge_padding_high for p in padding):
        node = write.add(Pad(tuple(padding)), node, write.zero(shape.dtype))
        node = write.add(DynamicSlice(shape.dimensions), node, *starts)
    return Sized(node, _sizes(value), whole=False)


@pads("concatenate")
def concatenate(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Each operand is written behind the valid part of the one before."""
    d, shape = int(instruction.op.dimension), instruction.shape  # type: ignore[attr-defined]
    others = list(_least(write, operands))
    if all(_sizes(o)[d] is None for o in operands):
        others[d] = None
        return Sized(write.add(instruction.op, *(o.node for o in operands)), tuple(others), whole=False)
    node = write.full(write.zero(shape.dtype), shape)
    zero = offset = write.number(0)
    for operand in operands:
        starts = [offset if i == d else zero for i in range(shape.rank)]
        node = write.add(DynamicUpdateSlice(), node, operand.node, *starts)
        offset = write.add(Add(), offset, write.size_of(operand, d))
    others[d] = offset
    return Sized(node, tuple(others), whole=False)


@pads("pad")
def pad(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """The padding behind the valid part is what is masked there."""
    value, filling = operands
    op = instruction.op
    assert isinstance(op, Pad)
    masked = write.masked(value.node, value.sizes, filling.node)
    sizes: list[Instruction | None] = []
    for size, p in zip(_sizes(value), op.padding, strict=True):
        if size is not None:
            total = write.plus(size, p.edge_padding_low + p.edge_padding_high)
            if p.interior_padding:
                holes = write.times(write.positive(write.plus(size, -1)), p.interior_padding)
                total = write.add(Add(), total, holes)
            size = write.positive(total)
        sizes.append(size)
    return Sized(write.add(op, masked, filling.node), tuple(sizes), whole=False)


@pads("slice")
def slice_(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """A dynamic dimension of the result ends at the size; a static one reads padding (DYN-7)."""
    op, flags = instruction.op, instruction.shape.dynamic
    assert isinstance(op, Slice) and isinstance(operands[0], Sized)
    reads_beyond = any(s is not None and not f for s, f in zip(_sizes(operands[0]), flags, strict=True))
    value = write.wholly(operands[0]) if reads_beyond else operands[0]
    assert isinstance(value, Sized)
    sizes: list[Instruction | None] = []
    for size, (start, limit, stride), flag in zip(_sizes(value), op.ranges, flags, strict=True):
        if size is None or not flag:
            sizes.append(None)
            continue
        end = write.add(Minimum(), size, write.number(limit))
        sizes.append(write.divided(write.positive(write.plus(end, stride - 1 - start)), stride))
    return Sized(write.add(op, value.node), tuple(sizes), whole=False)


@pads("dynamic-slice")
def dynamic_slice(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    nodes = [write.joined(write.wholly(operand)) for operand in operands]
    return Sized(write.add(instruction.op, *nodes))


@pads("dynamic-update-slice")
def dynamic_update_slice(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """Only the valid part of the update is written; where that covers a dimension, it decides the size (DYN-8)."""
    target, update = write.wholly(operands[0]), operands[1]
    assert isinstance(target, Sized) and isinstance(update, Sized)
    starts = [write.joined(index) for index in operands[2:]]
    new, bounds = update.node, update.node.shape.dimensions
    inside = write.inside(new.shape, update.sizes)
    if inside is not None:
        old = write.add(DynamicSlice(bounds), target.node, *starts)
        new = write.add(Select(), inside, new, old)
    sizes = [
        written if written is not None and n == bound else own
        for own, written, n, bound in zip(
            _sizes(target), _sizes(update), bounds, target.node.shape.dimensions, strict=True
        )
    ]
    return Sized(write.add(DynamicUpdateSlice(), target.node, new, *starts), tuple(sizes))


@pads("gather")
def gather(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """Indices are clamped to the bounds, as in the reference; those beyond the sizes are clamped too."""
    value, indices, op = write.wholly(operands[0]), operands[1], instruction.op
    assert isinstance(value, Sized) and isinstance(indices, Sized) and isinstance(op, Gather)
    counts = [s for d, s in enumerate(_sizes(indices)) if d != op.index_vector_dim]
    if op.index_vector_dim < indices.node.shape.rank and _sizes(indices)[op.index_vector_dim] is not None:
        raise unsupported(instruction, "index vectors of dynamic length")
    kept = [d for d in range(value.node.shape.rank) if d not in (*op.collapsed_slice_dims, *op.operand_batching_dims)]
    for position, d in zip(op.offset_dims, kept, strict=True):
        counts.insert(position, _sizes(value)[d] if instruction.shape.dynamic[position] else None)
    return Sized(write.add(op, value.node, indices.node), tuple(counts), whole=False)


@pads("scatter")
def scatter(write: SizedWriter, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """Index vectors beyond the sizes point outside, where updates are dropped."""
    n, op = len(operands) // 2, instruction.op
    assert isinstance(op, Scatter)
    arrays = [write.wholly(a) for a in operands[:n]]
    indices, updates = operands[n], operands[n + 1 :]
    assert isinstance(indices, Sized)
    counts = list(_sizes(indices))
    vector = op.index_vector_dim
    if vector < len(counts) and counts[vector] is not None:
        raise unsupported(instruction, "index vectors of dynamic length")
    counted = [d for d in range(len(counts)) if d != vector]
    for update in updates:
        assert isinstance(update, Sized)
        sizes = _sizes(update)
        if any(sizes[u] is not None for u in op.update_window_dims):
            raise unsupported(instruction, "windows of dynamic sizes")
        batch = [s for u, s in enumerate(sizes) if u not in op.update_window_dims]
        for d, size in zip(counted, batch, strict=True):
            counts[d] = write.least([counts[d], size])
    node = indices.node
    if any(size is not None for size in counts):
        if node.shape.dtype is dtypes.u64 or not op.scatter_dims_to_operand_dims:
            raise unsupported(instruction, f"a dynamic number of {node.shape.dtype} index vectors")
        node = write.add(Convert(node.shape.with_dtype(dtypes.s64)), node)
        node = write.masked(node, tuple(counts), write.scalar(-1, dtypes.s64))
        op = op.replace(indices_are_sorted=False)
    made = write.add(op, *map(write.joined, arrays), node, *map(write.joined, updates), called=instruction.called)
    if n == 1:
        return Sized(made, arrays[0].sizes if isinstance(arrays[0], Sized) else ())
    parts = [write.add(GetTupleElement(i), made) for i in range(n)]
    return tuple(Sized(p, _sizes(a)) for p, a in zip(parts, arrays, strict=True) if isinstance(a, Sized))


# -- reshapes


@pads("reshape")
def reshape(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Where the valid elements of a common factor do not stay together, they are moved one by one."""
    (value,), shape = operands, instruction.shape
    source, sizes = value.node.shape.dimensions, _sizes(value)
    result: list[Instruction | None] = [None] * shape.rank
    stays = True
    for inputs, outputs in common_factors(source, shape.dimensions):
        moving = [i for i in inputs if sizes[i] is not None]
        if not moving:
            continue
        free = [o for o in outputs if shape.dynamic[o]]
        if len(free) != 1:
            raise unsupported(instruction, f"a dynamic size for {len(free)} dimensions of {shape}")
        count = _product(write, [sizes[i] or write.number(source[i]) for i in inputs])
        others = math.prod(shape.dimensions[o] for o in outputs if o != free[0])
        result[free[0]] = write.divided(count, max(1, others))
        before = [*source[inputs.start : moving[-1]], *shape.dimensions[outputs.start : free[0]]]
        stays = stays and all(n == 1 for n in before)
    if stays:
        return Sized(write.add(_static(instruction), value.node), tuple(result), whole=False)
    return Sized(_regrouped(write, value, shape, tuple(result)), tuple(result), whole=False)


@pads("dynamic-reshape")
def dynamic_reshape(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    value, shape = operands[0], instruction.shape
    given = zip(operands[1:], shape.dimensions, shape.dynamic, strict=True)
    sizes = tuple(write.within(size.node, bound) if flag else None for size, bound, flag in given)
    return Sized(_regrouped(write, value, shape, sizes), sizes, whole=False)


def _regrouped(write: SizedWriter, value: Sized, shape: Shape, sizes: Sizes) -> Instruction:
    """The valid elements in row-major order under other sizes: each is looked up by its number."""
    source = value.node.shape
    if max(source.size, shape.size) >= 2**31:
        raise UnsupportedError(f"dynamic-padder: {source} reshaped to {shape}: more than 2^31 elements")
    if not source.size:
        return write.full(write.zero(shape.dtype), shape)
    target = dtypes.s32[shape.dimensions]

    def spread(scalar: Instruction) -> Instruction:
        return write.full(scalar, target)

    number = spread(write.number(0))
    for d, bound in enumerate(shape.dimensions):
        number = write.add(Multiply(), number, spread(sizes[d] or write.number(bound)))
        number = write.add(Add(), number, write.places(d, target))
    place, stride = spread(write.number(0)), 1
    for d in reversed(range(source.rank)):
        size = spread(write.size_of(value, d))
        digit = write.add(Remainder(), number, size)
        number = write.add(Divide(), number, size)
        place = write.add(Add(), place, write.add(Multiply(), digit, spread(write.number(stride))))
        stride *= source.dimensions[d]
    flat = write.add(Reshape(None, source.with_dimensions((source.size,))), value.node)
    return write.add(Gather((), (0,), (0,), (), (), shape.rank, (1,), False), flat, place)


def _product(write: SizedWriter, sizes: Sequence[Instruction]) -> Instruction:
    result = sizes[0]
    for size in sizes[1:]:
        result = write.add(Multiply(), result, size)
    return result


# -- folds


@pads("reduce")
def reduce(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    op, n = instruction.op, len(operands) // 2
    assert isinstance(op, Reduce)
    sizes = _least(write, operands[:n])
    folded = tuple(size if d in op.dimensions else None for d, size in enumerate(sizes))
    kept = tuple(size for d, size in enumerate(sizes) if d not in op.dimensions)
    return _folded(write, instruction, operands, folded, kept)


@pads("reduce-window")
def reduce_window(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    op, n = instruction.op, len(operands) // 2
    assert isinstance(op, ReduceWindow)
    sizes = _least(write, operands[:n])
    pairs = list(zip(sizes, op.window.dimensions, strict=True))
    folded = tuple(None if d == WindowDimension(1, d.stride) else size for size, d in pairs)
    return _folded(write, instruction, operands, folded, tuple(_positions(write, s, d) for s, d in pairs))


def _folded(
    write: SizedWriter, instruction: Instruction, operands: Sequence[Sized], folded: Sizes, sizes: Sizes
) -> Value:
    """The fold of what lies within the sizes `folded`: the rest is neutral, or a flag keeps it out."""
    n, op = len(operands) // 2, instruction.op
    nodes, inits = [o.node for o in operands[:n]], [o.node for o in operands[n:]]
    (function,) = instruction.called
    inside = write.inside(nodes[0].shape, folded)
    neutral = None if n > 1 or instruction.shape.is_tuple else neutral_value(function)
    if inside is not None and neutral is not None:
        nodes = [write.masked(nodes[0], folded, write.scalar(neutral, nodes[0].shape.dtype))]
    if inside is None or neutral is not None:
        made = write.add(op, *nodes, *inits, called=[function])
        count = n if instruction.shape.is_tuple else 0
    else:
        flagged = _flagged_reducer(write, function, n)
        made = write.add(op, *nodes, inside, *inits, write.scalar(True, dtypes.pred), called=[flagged])
        count = n
    if not count:
        return Sized(made, sizes, whole=False)
    parts = [Sized(write.add(GetTupleElement(i), made), sizes, whole=False) for i in range(n)]
    return tuple(parts) if instruction.shape.is_tuple else parts[0]


def _flagged_reducer(write: SizedWriter, function: Computation, n: int) -> Computation:
    """(accumulators, flag, elements, flag) -> function(accumulators, elements) where the element's flag is set."""
    module = write.into.module
    made = SizedWriter(Computation(f"{function.name}.flagged", module))
    types = [p.shape.dtype[()] for p in function.parameters]
    shapes = [*types[:n], dtypes.pred[()], *types[n:], dtypes.pred[()]]
    parameters = [made.add(Parameter(i, shape)) for i, shape in enumerate(shapes)]
    old, new = parameters[:n], parameters[n + 1 : -1]
    result = made.add(Call(False), *old, *new, called=[function])
    parts = [made.add(GetTupleElement(i), result) for i in range(n)] if result.shape.is_tuple else [result]
    chosen = [made.add(Select(), parameters[-1], p, o) for p, o in zip(parts, old, strict=True)]
    made.into.set_root(made.add(Tuple(), *chosen, parameters[n]))
    assert module is not None
    return module.add_computation(made.into)


def _positions(write: SizedWriter, size: Instruction | None, d: WindowDimension) -> Instruction | None:
    """The number of positions that a window takes (WindowDimension.output_size)."""
    if size is None or d == WindowDimension(1):
        return size
    base = write.positive(write.plus(write.times(write.plus(size, -1), d.base_dilation), 1))
    room = write.plus(base, d.padding_low + d.padding_high - dilated(d.size, d.window_dilation) + d.stride)
    return write.divided(write.positive(room), d.stride)


# -- kernels


@pads("dot")
def dot(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Contracted elements count as far as both sides have them; zeros add nothing."""
    (lhs, rhs), op = operands, _static(instruction)
    assert isinstance(op, Dot)
    left, right = list(_sizes(lhs)), list(_sizes(rhs))
    masks: tuple[list[Instruction | None], ...] = [None] * len(left), [None] * len(right)
    for i, j in zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True):
        masks[0][i] = masks[1][j] = write.least([left[i], right[j]])
    batch = [write.least([left[i], right[j]]) for i, j in zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True)]
    taken = (*op.lhs_batch_dims, *op.lhs_contracting_dims), (*op.rhs_batch_dims, *op.rhs_contracting_dims)
    free = [s for d, s in enumerate(left) if d not in taken[0]] + [s for d, s in enumerate(right) if d not in taken[1]]
    node = write.add(op, write.zeroed(lhs, tuple(masks[0])), write.zeroed(rhs, tuple(masks[1])))
    return Sized(node, (*batch, *free), whole=False)


@pads("convolution")
def convolution(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Beyond the sizes there are zeros, as in padding."""
    (lhs, rhs), op = operands, _static(instruction)
    assert isinstance(op, Convolution)
    numbers, left, right = op.dim_labels, list(_sizes(lhs)), list(_sizes(rhs))
    if any(right[d] is not None for d in numbers.kernel_spatial_dimensions):
        raise unsupported(instruction, "a window of dynamic size")
    channels = (left[numbers.input_feature_dimension], right[numbers.kernel_input_feature_dimension])
    is_grouped = op.feature_group_count > 1 or op.batch_group_count > 1
    batch = left[numbers.input_batch_dimension]
    if is_grouped and (channels != (None, None) or (batch is not None and op.batch_group_count > 1)):
        raise unsupported(instruction, "groups of dynamic size")
    common = write.least(channels)
    left[numbers.input_feature_dimension] = right[numbers.kernel_input_feature_dimension] = common
    sizes: list[Instruction | None] = [None] * len(left)
    sizes[numbers.output_batch_dimension] = batch
    pairs = zip(numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, op.window.dimensions, strict=True)
    for i, o, d in pairs:
        sizes[o] = _positions(write, left[i], d)
    left[numbers.input_batch_dimension] = None
    right[numbers.kernel_output_feature_dimension] = None
    node = write.add(op, write.zeroed(lhs, tuple(left)), write.zeroed(rhs, tuple(right)))
    return Sized(node, tuple(sizes), whole=False)


@pads("sort")
def sort(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """A flag as last key leaves what lies beyond the least size behind what lies within, in its order (SORT-15)."""
    op: Any = instruction.op
    sizes, nodes, (comparator,) = _least(write, operands), [o.node for o in operands], instruction.called
    shape = nodes[0].shape
    inside = write.inside(shape, tuple(s if d == op.dimension else None for d, s in enumerate(sizes)))
    if inside is not None:
        nodes, comparator = [*nodes, inside], _flagged_comparator(write, comparator)
    made = write.add(op, *nodes, called=[comparator])

    def result(number: int, operand: Sized) -> Sized:
        """Lines beyond the least size that count in this operand are as they were, too."""
        own = _sizes(operand)
        node = write.add(GetTupleElement(number), made) if made.shape.is_tuple else made
        smaller = tuple(s if d != op.dimension and s is not own[d] else None for d, s in enumerate(sizes))
        is_sorted = write.inside(shape, smaller)
        if is_sorted is not None:
            node = write.add(Select(), is_sorted, node, operand.node)
        return Sized(node, operand.sizes, whole=False)

    parts = tuple(map(result, range(len(operands)), operands))
    return parts[0] if len(operands) == 1 else parts


def _flagged_comparator(write: SizedWriter, comparator: Computation) -> Computation:
    """With a flag as last key pair: set ones go before others, two of them as the comparator says."""
    module = write.into.module
    made = SizedWriter(Computation(f"{comparator.name}.flagged", module))
    shapes = [*(p.shape.static for p in comparator.parameters), dtypes.pred[()], dtypes.pred[()]]
    *keys, first, second = (made.add(Parameter(i, shape)) for i, shape in enumerate(shapes))
    before = made.add(Or(), made.add(Not(), second), made.add(Call(False), *keys, called=[comparator]))
    made.into.set_root(made.add(And(), first, before))
    assert module is not None
    return module.add_computation(made.into)


@pads("batch-norm-inference")
def batch_norm_inference(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """Element by element, of one feature's numbers each."""
    op, sizes = instruction.op, list(_sizes(operands[0]))
    feature = int(op.feature_index)  # type: ignore[attr-defined]
    sizes[feature] = write.least([sizes[feature], *(_sizes(o)[0] for o in operands[1:])])
    return Sized(write.add(op, *(o.node for o in operands)), tuple(sizes), whole=False)


_INNER = {"fft": 0, "cholesky": 2, "triangular-solve": 2, "topk": 1}
"""The number of last dimensions that a kernel looks along; of fft those that it says."""


@pads(*_INNER)
def batched_kernel(write: SizedWriter, instruction: Instruction, operands: Sequence[Sized]) -> Value:
    """The dimensions before the last ones only count independent lines or matrices."""
    op: Any = instruction.op
    inner = _INNER[instruction.opcode] or len(op.fft_length)
    sizes = _least(write, [Sized(o.node, _sizes(o)[: o.node.shape.rank - inner]) for o in operands]) if inner else ()
    if any(size is not None for o in operands for size in _sizes(o)[o.node.shape.rank - inner :]):
        raise unsupported(instruction, "dynamic dimensions that it looks along")
    made = write.add(op, *(o.node for o in operands))
    whole = (*sizes, *(None,) * inner)
    if not made.shape.is_tuple:
        return Sized(made, whole, whole=False)
    count = len(made.shape.elements)
    return tuple(Sized(write.add(GetTupleElement(i), made), whole, whole=False) for i in range(count))
