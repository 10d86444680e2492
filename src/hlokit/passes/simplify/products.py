"""Identities of matrix products that round differently: tiny ones become sums, long ones sums of products, and one may
be transposed for the next."""

from __future__ import annotations

from math import prod

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.contraction import Dot, free_dimensions
from hlokit.ops.elementwise import Add, Multiply
from hlokit.ops.movement import Broadcast, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.structure import Constant, Parameter
from hlokit.passes.simplify.rules import reshaped, simplifies
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal

_LEAST = 64
"""Elements of a result from which on vectors of them are worth more than a routine for products."""
_INNER = 12
_WORK = 128
"""Products in a sum; and in all sums of a batch index with one vector."""
_FAR = 8 << 20
"""Bytes of operands that caches do not hold."""
_LEAST_SIDE, _MOST_SIDE = 5, 256
"""Rows and columns of a result of which blocks would each read the operands again."""
_PARTS = 16
"""Parts of a long sum, at least: threads share them."""
_LEAST_PART = 256
"""Products in such a part."""


@simplifies(Dot, fast=True)
def dot_of_few(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Many sums of few products are reduce(multiply(x, y)): vectors go along the results, and what follows is fused."""
    op, (lhs, rhs) = instruction.op, instruction.operands
    assert isinstance(op, Dot)
    dtype = instruction.shape.dtype
    if op.algorithm is not None or not (lhs.shape.dtype is rhs.shape.dtype is dtype) or not _is_summed(dtype):
        return None
    left = free_dimensions(lhs.shape.rank, op.lhs_batch_dims, op.lhs_contracting_dims)
    right = free_dimensions(rhs.shape.rank, op.rhs_batch_dims, op.rhs_contracting_dims)
    inner = prod(lhs.shape.dimensions[d] for d in op.lhs_contracting_dims)
    batch = prod(lhs.shape.dimensions[d] for d in op.lhs_batch_dims)
    less, more = sorted((prod(lhs.shape.dimensions[d] for d in left), prod(rhs.shape.dimensions[d] for d in right)))
    if instruction.shape.size < _LEAST or not 0 < inner <= _INNER or not _is_small(batch, less, more, inner):
        return None
    rank, batches = instruction.shape.rank, range(len(op.lhs_batch_dims))
    sizes = (*instruction.shape.dimensions, *(lhs.shape.dimensions[d] for d in op.lhs_contracting_dims))
    last, whole = range(rank, len(sizes)), instruction.shape.with_dimensions(sizes)

    def spread(operand: Instruction, places: dict[int, int]) -> Instruction:
        return computation.add(Broadcast(tuple(places[d] for d in range(len(places))), whole), [operand])

    rows, columns = range(len(batches), len(batches) + len(left)), range(len(batches) + len(left), rank)
    wide = [
        spread(lhs, dict(zip((*op.lhs_batch_dims, *left, *op.lhs_contracting_dims), (*batches, *rows, *last)))),
        spread(rhs, dict(zip((*op.rhs_batch_dims, *right, *op.rhs_contracting_dims), (*batches, *columns, *last)))),
    ]
    zero = computation.add(Constant(Literal.of(dtype.numpy.type(0), dtype[()])))
    product = computation.add(Multiply(), wide)
    return computation.add(Reduce(tuple(last)), [product, zero], [_sum(computation, dtype)], shape=instruction.shape)


def _is_small(batch: int, less: int, more: int, inner: int) -> bool:
    """Outer products; matrices by vectors, little for each batch index; matrices by 3 by 3, batches of 2 by 2 ones."""
    if inner == 1:
        return True
    if less == 1:
        return inner * more <= _WORK if batch > 1 else True
    return max(less, inner) <= (2 if batch > 1 else 3)


def _is_summed(dtype: DType) -> bool:
    return dtype.name in ("f32", "f64") or (dtype.is_integral and dtype.bits >= 32)


def _sum(computation: Computation, dtype: DType) -> Computation:
    """x + y: one that the module has, or a new one."""
    module = computation.module
    assert module is not None
    scalar = dtype[()]
    for one in reversed(module.all_computations):  # one that was made is the last
        if one.root.shape is scalar and len(one.parameters) == 2 and isinstance(one.single_op, Add):
            return one
    made = Computation("sum", module)
    made.set_root(made.add(Add(), [made.add(Parameter(k, scalar)) for k in (0, 1)]))
    module.add_computation(made)
    return made


@simplifies(Dot, fast=True)
def dot_of_scattered(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A dot without free dimensions whose sums do not go along memory is reduce(multiply(x, transpose(y))): a routine
    reads one element at a time, loops read what is near together."""
    op, (lhs, rhs) = instruction.op, instruction.operands
    assert isinstance(op, Dot)
    dtype = instruction.shape.dtype
    if op.algorithm is not None or not (lhs.shape.dtype is rhs.shape.dtype is dtype) or not _is_summed(dtype):
        return None
    places = dict(zip((*op.lhs_batch_dims, *op.lhs_contracting_dims), (*op.rhs_batch_dims, *op.rhs_contracting_dims)))
    if not len(places) == lhs.shape.rank == rhs.shape.rank or lhs.shape.size < _LEAST:
        return None
    order = tuple(places[d] for d in range(lhs.shape.rank))
    inner = tuple(sorted(op.lhs_contracting_dims))
    batch = len(op.lhs_batch_dims)
    along = range(batch, lhs.shape.rank)
    if op.lhs_batch_dims != tuple(sorted(op.lhs_batch_dims)) or inner == order[batch:] == tuple(along):
        return None
    turned = computation.add(Transpose(order), [rhs], shape=lhs.shape)
    zero = computation.add(Constant(Literal.of(dtype.numpy.type(0), dtype[()])))
    product = computation.add(Multiply(), [lhs, turned])
    return computation.add(Reduce(inner), [product, zero], [_sum(computation, dtype)], shape=instruction.shape)


@simplifies(Dot, fast=True)
def dot_of_long(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Few sums of many products from large arrays are sums of those of equal parts: each element is read once."""
    op, (lhs, rhs) = instruction.op, instruction.operands
    assert isinstance(op, Dot)
    dtype, count = instruction.shape.dtype, len(op.lhs_contracting_dims)
    leading = tuple(range(count))
    if op.algorithm is not None or not (lhs.shape.dtype is rhs.shape.dtype is dtype) or dtype.name not in _LONG:
        return None
    if op.lhs_batch_dims or op.lhs_contracting_dims != leading or op.rhs_contracting_dims != leading:
        return None
    left, right = lhs.shape.dimensions[count:], rhs.shape.dimensions[count:]
    size, taken = prod(lhs.shape.dimensions[:count]), lhs.shape.nbytes + rhs.shape.nbytes
    if taken < _FAR or not all(_LEAST_SIDE <= prod(free) <= _MOST_SIDE for free in (left, right)):
        return None
    most = min(size // _LEAST_PART, taken // (4 * instruction.shape.nbytes))
    parts = next((n for n in range(_PARTS, most + 1) if size % n == 0), None)
    if parts is None:
        return None
    whole = instruction.shape.with_dimensions((parts, *left, *right))
    apart = op.replace(
        lhs_batch_dims=(0,),
        rhs_batch_dims=(0,),
        lhs_contracting_dims=(1,),
        rhs_contracting_dims=(1,),
        output_shape=whole,
    )
    operands = [reshaped(o, (parts, size // parts, *free)) for o, free in ((lhs, left), (rhs, right))]
    zero = computation.add(Constant(Literal.of(dtype.numpy.type(0), dtype[()])))
    products = computation.add(apart, operands)
    return computation.add(Reduce((0,)), [products, zero], [_sum(computation, dtype)], shape=instruction.shape)


_LONG = ("f32", "f64", "c64", "c128")
"""Types of which a sum of parts is no less exact."""


@simplifies(Dot, fast=True)
def dot_of_turned_dot(instruction: Instruction, computation: Computation) -> Instruction | None:
    """dot(dot(x, y), z) may read dot(y, x): what is contracted then lies in the order in which z has it."""
    op = instruction.op
    assert isinstance(op, Dot)
    if op.algorithm is not None or len(op.lhs_contracting_dims) < 2:
        return None
    pairs = list(zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True))
    for side, inner in enumerate(instruction.operands):
        mine = [pair[side] for pair in sorted(pairs, key=lambda pair: pair[1 - side])]
        turned = _turned(inner) if mine != sorted(mine) and len(inner.users) == 1 and not inner.is_root else None
        if turned is None:
            continue
        new, place = turned
        if [place[d] for d in mine] != sorted(place[d] for d in mine):
            continue
        names = _NUMBERS[side]
        free = free_dimensions(inner.shape.rank, *(getattr(op, name) for name in names))
        if [place[d] for d in free] != sorted(place[d] for d in free):
            continue
        operands = list(instruction.operands)
        operands[side] = computation.add(new, [inner.operands[1], inner.operands[0]])
        changes = {name: tuple(place[d] for d in getattr(op, name)) for name in names}
        return computation.add(op.replace(**changes), operands, shape=instruction.shape)
    return None


_NUMBERS = (("lhs_batch_dims", "lhs_contracting_dims"), ("rhs_batch_dims", "rhs_contracting_dims"))


def _turned(instruction: Instruction) -> tuple[Dot, dict[int, int]] | None:
    """The product of its operands the other way round, and where its dimensions then are."""
    op = instruction.op
    if not isinstance(op, Dot) or op.algorithm is not None:
        return None
    batch, rank = len(op.lhs_batch_dims), instruction.shape.rank
    split = instruction.operands[0].shape.rank - len(op.lhs_contracting_dims)
    old = [*range(batch), *range(split, rank), *range(batch, split)]
    sizes = [instruction.shape.dimensions[d] for d in old]
    turned = op.replace(
        lhs_batch_dims=op.rhs_batch_dims,
        rhs_batch_dims=op.lhs_batch_dims,
        lhs_contracting_dims=op.rhs_contracting_dims,
        rhs_contracting_dims=op.lhs_contracting_dims,
        operand_precision=op.operand_precision[::-1],
        output_shape=op.output_shape.with_dimensions(sizes),
    )
    return turned, {d: k for k, d in enumerate(old)}
