"""Recipes that draw each op that calls no computation; the others are in recipes_called.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import OPS
from hlokit.judge.fuzz.graph import RECIPES, Graph, Recipe, recipe
from hlokit.ops.elementwise import Binary, Unary
from hlokit.ops.transcendental import Transcendental
from hlokit.types import dtype as dtypes
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.layout import Layout
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import PaddingDimension, Window, WindowDimension, dilated

WITHOUT_RECIPE: dict[str, str] = {
    **dict.fromkeys(("parameter", "constant", "tuple", "get-tuple-element"), "drawn where others need them"),
    **dict.fromkeys(
        (
            *("all-reduce-start", "all-reduce-done", "all-gather-start", "all-gather-done"),
            *("ragged-all-to-all", "collective-reduce", "collective-permute-start", "collective-permute-done"),
        ),
        "several devices, rarely written",
    ),
    **dict.fromkeys(("infeed", "outfeed", "send", "send-done", "recv", "recv-done"), "talks to the outside"),
    **dict.fromkeys(("async-start", "async-update", "async-done", "copy-start", "copy-done"), "order without value"),
    "custom-call": "its meaning is its target's",
    "domain": "text only",
    "fusion": "as call",
}
"""Ops that are not drawn, and why."""

SCALAR_CODES: list[str] = ["compare", "select", "clamp", "convert", "reduce-precision"]
"""Elementwise ops, which computations of scalars are made of."""


# -- elementwise


def _kinds(opcode: str) -> frozenset[str]:
    return OPS[opcode].kinds  # type: ignore[attr-defined]


def _operand(graph: Graph, kinds: frozenset[str]) -> Instruction:
    return graph.array(*sorted(kinds))


def _partner(graph: Graph, operand: Instruction) -> Instruction:
    """A second operand; XLA wants equal dynamic flags or static ones."""
    return graph.like(operand.shape)


def _unary(opcode: str) -> Recipe:
    return lambda graph: graph.add(opcode, [_operand(graph, _kinds(opcode))])


def _transcendental(opcode: str) -> Recipe:
    def draw(graph: Graph) -> Instruction:
        accuracy = ("highest",) if graph.chance(0.1) else None
        return graph.add(opcode, [_operand(graph, _kinds(opcode))], result_accuracy=accuracy)

    return draw


def _binary(opcode: str) -> Recipe:
    def draw(graph: Graph) -> Instruction:
        operands = [_operand(graph, _kinds(opcode))]
        operands.append(_partner(graph, operands[0]))
        return graph.add(opcode, graph.random.sample(operands, 2))

    return draw


for _opcode, _class in OPS.items():
    if issubclass(_class, (Unary, Binary)) and _opcode not in ("reduce-precision", "complex"):
        kind = _transcendental if issubclass(_class, Transcendental) else _unary
        RECIPES[_opcode] = _binary(_opcode) if issubclass(_class, Binary) else kind(_opcode)
        SCALAR_CODES.insert(len(SCALAR_CODES) - 5, _opcode)


@recipe("complex")
def complex_(graph: Graph) -> Instruction:
    part = graph.array(element=graph.choice([dtypes.f32, dtypes.f32, dtypes.f64]))
    return graph.add("complex", [part, _partner(graph, part)])


@recipe("compare")
def compare(graph: Graph) -> Instruction:
    lhs = graph.array()
    kind = lhs.shape.dtype.kind
    direction = graph.choice(["EQ", "NE"] if kind == "complex" else ["EQ", "NE", "GE", "GT", "LE", "LT"])
    order = "TOTALORDER" if kind == "floating" and graph.chance(0.3) else None
    return graph.add("compare", [lhs, _partner(graph, lhs)], direction=direction, type=order)


@recipe("select")
def select(graph: Graph) -> Instruction:
    on_true = graph.array()
    if graph.chance(0.2):
        pred = graph.array("pred", rank=0, element=dtypes.pred)
    else:
        pred = graph.like(dtypes.pred[on_true.shape.dimensions])
    return graph.add("select", [pred, on_true, _partner(graph, on_true)])


@recipe("clamp")
def clamp(graph: Graph) -> Instruction | None:
    operand = graph.array("pred", "signed", "unsigned", "floating")
    scalar = operand.shape.dtype[()]
    bounds = [graph.like(scalar if graph.chance(0.5) else operand.shape) for _ in range(2)]
    if any(f and not g for bound in bounds for f, g in zip(bound.shape.dynamic, operand.shape.dynamic, strict=False)):
        return None
    return graph.add("clamp", [bounds[0], operand, bounds[1]])


@recipe("convert")
def convert(graph: Graph) -> Instruction:
    operand = graph.array()
    return graph.add("convert", [operand], output_shape=operand.shape.with_dtype(graph.dtype()))


@recipe("bitcast-convert")
def bitcast_convert(graph: Graph) -> Instruction | None:
    operand = graph.array("signed", "unsigned", "floating", "complex")
    shape, source = operand.shape, operand.shape.dtype
    targets = [DTYPES[n] for n in graph.options.types]
    targets = [t for t in targets if t.is_complex == source.is_complex and t.kind != "pred"]
    targets = [t for t in targets if t is source or not t.is_complex]
    if not targets:
        return None
    target = graph.choice(targets)
    if source.is_complex:
        target = source
    if target.bits == source.bits:
        output = shape.with_dtype(target)
    elif source.bits > target.bits:
        sizes = (*shape.dimensions, source.bits // target.bits)
        if graph.has_no_room(sizes):
            return None
        output = Shape.array(target, sizes, (*shape.dynamic, False))
    else:
        count = target.bits // source.bits
        if not shape.rank or shape.dimensions[-1] != count or shape.dynamic[-1]:
            return None
        output = Shape.array(target, shape.dimensions[:-1], shape.dynamic[:-1])
    return graph.add("bitcast-convert", [operand], output_shape=output)


@recipe("reduce-precision")
def reduce_precision(graph: Graph) -> Instruction:
    operand = graph.array("floating")
    return graph.add(
        "reduce-precision", [operand], exponent_bits=graph.integer(1, 9), mantissa_bits=graph.integer(0, 12)
    )


@recipe("stochastic-convert")
def stochastic_convert(graph: Graph) -> Instruction | None:
    operand = graph.array("floating", test=lambda s: s.dtype.bits >= 8)
    target = graph.dtype("signed", "unsigned", "floating")
    if operand.shape.dtype.bits < 8:
        return None
    random = graph.like(DTYPES[f"u{operand.shape.dtype.bits}"][operand.shape.dimensions])
    return graph.add("stochastic-convert", [operand, random], output_shape=operand.shape.with_dtype(target))


@recipe("copy")
def copy(graph: Graph) -> Instruction:
    operand = graph.array()
    shape = operand.shape
    if graph.options.layouts and shape.rank > 1:
        shape = shape.with_layout(Layout(graph.permutation(shape.rank)))
    return graph.add("copy", [operand], shape=shape)


@recipe("opt-barrier", "add-dependency", "after-all")
def barrier(graph: Graph) -> Instruction:
    operand = graph.array()
    if graph.chance(0.5):
        return graph.add("opt-barrier", [operand])
    return graph.add("add-dependency", [operand, graph.add("after-all")])


# -- movement


@recipe("broadcast")
def broadcast(graph: Graph) -> Instruction | None:
    operand = graph.array()
    shape = operand.shape
    rank = graph.integer(shape.rank, max(shape.rank, graph.options.rank))
    places = graph.random.sample(range(rank), shape.rank)
    sizes, flags = list(graph.sizes(rank)), [False] * rank
    for i, d in enumerate(places):
        sizes[d], flags[d] = shape.dimensions[i], shape.dynamic[i]
    if graph.has_no_room(sizes):
        return None
    output = Shape.array(shape.dtype, sizes, flags)
    return graph.add("broadcast", [operand], dimensions=tuple(places), output_shape=output)


@recipe("transpose")
def transpose(graph: Graph) -> Instruction:
    operand = graph.array()
    return graph.add("transpose", [operand], dimensions=graph.permutation(operand.shape.rank))


@recipe("reverse")
def reverse(graph: Graph) -> Instruction:
    operand = graph.array()
    rank = operand.shape.rank
    return graph.add("reverse", [operand], dimensions=tuple(graph.random.sample(range(rank), graph.integer(0, rank))))


@recipe("shuffle")
def shuffle(graph: Graph) -> Instruction:
    operand = graph.array(test=lambda s: s.rank > 0 and not s.is_dynamic, rank=graph.integer(1, graph.options.rank))
    rank = operand.shape.rank
    dimensions = tuple(graph.random.sample(range(rank), graph.integer(1, rank)))
    shifts = tuple(graph.integer(-9, 9) for _ in dimensions)
    return graph.add("shuffle", [operand], dimensions=dimensions, mode="rotate", shifts=shifts)


@recipe("concatenate")
def concatenate(graph: Graph) -> Instruction | None:
    first = graph.array(least=0, test=lambda s: s.rank > 0, rank=graph.integer(1, graph.options.rank))
    along, operands = graph.integer(0, first.shape.rank - 1), [first]
    for _ in range(graph.integer(0, 2)):
        sizes = list(first.shape.dimensions)
        sizes[along] = graph.integer(1, 5) if graph.options.elements else graph.sizes(1)[0]
        operands.append(graph.like(first.shape.dtype[tuple(sizes)]))
    if graph.has_no_room([n * 3 for n in first.shape.dimensions[:1]] + list(first.shape.dimensions[1:])):
        return None
    return graph.add("concatenate", operands, dimension=along)


@recipe("pad")
def pad(graph: Graph) -> Instruction | None:
    operand = graph.array()
    padding: list[tuple[int, int, int]] = []
    for size in operand.shape.dimensions:
        low, high, inside = graph.integer(-2, 2), graph.integer(-2, 2), graph.choice([0, 0, 0, 1, 2])
        whole = size + max(0, size - 1) * inside
        low = max(low, -whole)
        padding.append((low, max(high, -whole - low), inside))
    sizes = [PaddingDimension(*p).output_size(n) for n, p in zip(operand.shape.dimensions, padding, strict=True)]
    if graph.has_no_room(sizes):
        return None
    value = graph.like(operand.shape.dtype[()])
    return graph.add("pad", [operand, value], padding=tuple(PaddingDimension(*p) for p in padding))


@recipe("iota")
def iota(graph: Graph) -> Instruction:
    element = graph.dtype("signed", "unsigned", "floating", "complex")
    sizes = graph.sizes(graph.integer(1, graph.options.rank))
    return graph.add("iota", iota_dimension=graph.integer(0, len(sizes) - 1), output_shape=element[sizes])


@recipe("reshape")
def reshape(graph: Graph) -> Instruction:
    operand = graph.array(test=lambda s: not s.is_dynamic)
    sizes = other_sizes(graph, operand.shape.size)
    return graph.add("reshape", [operand], output_shape=operand.shape.dtype[sizes])


def other_sizes(graph: Graph, count: int) -> tuple[int, ...]:
    """Random sizes of an array of `count` elements."""
    sizes = [1] * graph.integer(0 if count == 1 else 1, graph.options.rank)
    if count == 0:
        sizes = list(graph.sizes(len(sizes)))
        sizes[graph.integer(0, len(sizes) - 1)] = 0
        return tuple(sizes)
    for prime in (2, 3, 5, 7, 11, 13):
        while sizes and count % prime == 0:
            count //= prime
            sizes[graph.integer(0, len(sizes) - 1)] *= prime
    if sizes:
        sizes[graph.integer(0, len(sizes) - 1)] *= count
    return tuple(sizes)


@recipe("bitcast")
def bitcast(graph: Graph) -> Instruction:
    operand = graph.array(test=lambda s: not s.is_dynamic)
    element = operand.shape.dtype
    targets = [t for t in map(DTYPES.get, graph.options.types) if t and t.bits == element.bits]
    if "pred" not in (element.kind, *(t.kind for t in targets)):
        element = graph.choice(targets or [element])
    output = element[other_sizes(graph, operand.shape.size)]
    if graph.options.layouts and output.rank > 1 and graph.chance(0.4):
        output = output.with_layout(Layout(graph.permutation(output.rank)))
    return graph.add("bitcast", [operand], output_shape=output, shape=output)


# -- slices, gather


@recipe("slice")
def slice_(graph: Graph) -> Instruction:
    operand = graph.array()
    ranges: list[tuple[int, int, int]] = []
    for size in operand.shape.dimensions:
        start = graph.integer(0, size)
        ranges.append((start, graph.integer(start, size), graph.choice([1, 1, 2, 3])))
    return graph.add("slice", [operand], ranges=tuple(ranges))


def _starts(graph: Graph, rank: int) -> list[Instruction]:
    if not rank:
        return []
    first = graph.index()
    others = [v for v in graph.arrays if v.shape is first.shape]
    return [first, *(graph.choice(others) for _ in range(rank - 1))]


@recipe("dynamic-slice")
def dynamic_slice(graph: Graph) -> Instruction:
    operand = graph.array()
    sizes = tuple(graph.integer(0, n) if graph.chance(0.7) else n for n in operand.shape.dimensions)
    return graph.add("dynamic-slice", [operand, *_starts(graph, len(sizes))], dynamic_slice_sizes=sizes)


@recipe("dynamic-update-slice")
def dynamic_update_slice(graph: Graph) -> Instruction:
    operand = graph.array()
    sizes = tuple(graph.integer(0, n) if graph.chance(0.7) else n for n in operand.shape.dimensions)
    update = graph.like(operand.shape.dtype[sizes])
    return graph.add("dynamic-update-slice", [operand, update, *_starts(graph, len(sizes))])


@recipe("gather")
def gather(graph: Graph) -> Instruction | None:
    operand = graph.array()
    rank = operand.shape.rank
    counts = graph.sizes(graph.integer(0, 2))
    vector = graph.integer(0, rank)
    slice_sizes = [graph.integer(0, n) if graph.chance(0.5) else min(n, 1) for n in operand.shape.dimensions]
    collapsed = tuple(d for d in range(rank) if slice_sizes[d] == 1 and graph.chance(0.6))
    places = tuple(graph.random.sample(range(rank), vector))
    batch: tuple[int, ...] = ()
    of_indices: tuple[int, ...] = ()
    free = [d for d in range(rank) if d not in (*collapsed, *places)]
    if free and graph.chance(0.3):
        batch, of_indices = (free[0],), (0,)
        counts = (operand.shape.dimensions[free[0]], *counts[1:])
        slice_sizes[free[0]] = min(1, operand.shape.dimensions[free[0]])
    if graph.has_no_room([*counts, *slice_sizes]) or graph.has_no_room([*counts, vector]):
        return None
    indices, index_vector_dim = indices_of(graph, counts, vector)
    if index_vector_dim <= 0 and batch:
        of_indices = (1,)
    kept = rank - len(collapsed) - len(batch)
    offset = tuple(sorted(graph.random.sample(range(kept + len(counts)), kept)))
    return graph.add(
        "gather", [operand, indices], offset_dims=offset, collapsed_slice_dims=collapsed, start_index_map=places,
        operand_batching_dims=batch, start_indices_batching_dims=of_indices, index_vector_dim=index_vector_dim,
        slice_sizes=tuple(slice_sizes), indices_are_sorted=False,
    )  # fmt: skip


def indices_of(graph: Graph, counts: tuple[int, ...], vector: int) -> tuple[Instruction, int]:
    """Index vectors of this length, mostly small numbers, and where in the array they lie."""
    place = graph.integer(0, len(counts))
    sizes = (*counts[:place], vector, *counts[place:])
    if vector == 1 and graph.chance(0.3):
        sizes, place = counts, len(counts)
    element = graph.choice([dtypes.s32, dtypes.s32, dtypes.s64, dtypes.u8, dtypes.s8])
    if graph.chance(0.15):
        return graph.like(element[sizes]), place
    values = graph.draw.arrays.integers(0 if element is dtypes.u8 else -2, 6, sizes).astype(element.numpy)
    return graph.add("constant", literal=Literal(element[sizes], np.asarray(values))), place


# -- products


@recipe("ragged-dot")
def ragged_dot(graph: Graph) -> Instruction | None:
    return _product(graph, "ragged-dot")


@recipe("scaled-dot")
def scaled_dot(graph: Graph) -> Instruction | None:
    return _product(graph, "scaled-dot")


@recipe("dot")
def dot(graph: Graph) -> Instruction | None:
    return _product(graph, "dot")


def _product(graph: Graph, opcode: str) -> Instruction | None:
    kinds = ("floating",) if opcode == "scaled-dot" else ()
    lhs = graph.array(*kinds, test=lambda s: s.rank <= 3, rank=graph.integer(0, 3))
    sizes, rank = lhs.shape.dimensions, lhs.shape.rank
    order = graph.permutation(rank)
    batch_count = graph.integer(0, min(1, rank))
    contracting_count = graph.integer(0, rank - batch_count)
    left_batch, left = order[:batch_count], order[batch_count : batch_count + contracting_count]
    other = [sizes[d] for d in (*left_batch, *left)] + list(graph.sizes(graph.integer(0, 2)))
    places = graph.permutation(len(other))
    rhs_sizes = [0] * len(other)
    for position, size in zip(places, other, strict=True):
        rhs_sizes[position] = size
    rhs = graph.like(lhs.shape.dtype[tuple(rhs_sizes)])
    free_right = places[batch_count + contracting_count :]
    free_left = order[batch_count + contracting_count :]
    output = [sizes[d] for d in left_batch] + [sizes[d] for d in sorted(free_left)]
    output += [rhs_sizes[d] for d in sorted(free_right)]
    if graph.has_no_room(output):
        return None
    numbers: dict[str, Any] = {
        "lhs_batch_dims": left_batch,
        "lhs_contracting_dims": left,
        "rhs_batch_dims": places[:batch_count],
        "rhs_contracting_dims": places[batch_count : batch_count + contracting_count],
    }
    element = preferred_type(graph, lhs.shape.dtype)
    if opcode == "scaled-dot":
        scales = [_scale(graph, v.shape) for v in (lhs, rhs)]
        return graph.add("scaled-dot", [lhs, rhs, *scales], **numbers, output_shape=element[()])
    if opcode == "ragged-dot":
        if not free_left:
            return None
        return _ragged(graph, lhs, rhs, numbers, sorted(free_left)[0], element)
    precision = ("highest", "default") if graph.chance(0.1) else ()
    return graph.add("dot", [lhs, rhs], **numbers, operand_precision=precision, output_shape=element[()])


def _ragged(
    graph: Graph, lhs: Instruction, rhs: Instruction, numbers: dict[str, Any], ragged: int, element: DType
) -> Instruction | None:
    """rhs gets a group dimension before all others."""
    groups = graph.integer(1, 3)
    rhs = graph.add(
        "broadcast", [rhs], dimensions=tuple(range(1, rhs.shape.rank + 1)),
        output_shape=Shape.array(
            rhs.shape.dtype, (groups, *rhs.shape.dimensions), (False, *rhs.shape.dynamic)
        ),
    )  # fmt: skip
    numbers = {n: tuple(d + 1 for d in v) if n.startswith("rhs") else v for n, v in numbers.items()}
    sizes = graph.draw.arrays.integers(0, 4, (groups,)).astype(np.int32)
    group_sizes = graph.add("constant", literal=Literal(dtypes.s32[groups], sizes))
    return graph.add(
        "ragged-dot", [lhs, rhs, group_sizes], **numbers, lhs_ragged_dims=(ragged,), rhs_group_dims=(0,),
        output_shape=element[()],
    )  # fmt: skip


def _scale(graph: Graph, shape: Shape) -> Instruction:
    sizes = tuple(1 if n and graph.chance(0.5) else n for n in shape.dimensions)
    return graph.like(graph.dtype("floating")[sizes if graph.chance(0.8) else ()])


def preferred_type(graph: Graph, element: DType) -> DType:
    """The result type of a product: mostly the operands', sometimes a wider one."""
    if graph.chance(0.7):
        return element
    if element.is_complex:
        return dtypes.c128
    wider = [t for t in map(DTYPES.__getitem__, graph.options.types) if t.bits >= element.bits]
    return graph.choice([t for t in wider if t.kind == element.kind] or [element])


@recipe("convolution")
def convolution(graph: Graph) -> Instruction | None:
    spatial = graph.choice([n for n in (0, 1, 1, 2) if n + 2 <= graph.options.rank] or [0])
    lhs = graph.array(rank=spatial + 2, test=lambda s: not s.is_dynamic)
    orders = [graph.permutation(spatial + 2) for _ in range(3)]
    batch, channels = (lhs.shape.dimensions[d] for d in orders[0][:2])
    feature_groups = graph.choice([n for n in (1, 1, 2, 3) if channels % n == 0])
    batch_groups = graph.choice([n for n in (1, 1, 2, 3) if batch % n == 0]) if feature_groups == 1 else 1
    outputs = feature_groups * batch_groups * graph.integer(1, 2)
    window = random_window(graph, [lhs.shape.dimensions[d] for d in orders[0][2:]], reversal=True)
    kernel = [0] * (spatial + 2)
    kernel_sizes = [outputs, channels // feature_groups, *(d.size for d in window.dimensions)]
    for d, size in zip(orders[1], kernel_sizes, strict=True):
        kernel[d] = size
    rhs = graph.like(lhs.shape.dtype[tuple(kernel)])
    if rhs.shape.is_dynamic:
        return None
    labels = ConvolutionDimensionNumbers(
        orders[0][0], orders[0][1], orders[0][2:], orders[1][1], orders[1][0], orders[1][2:],
        orders[2][0], orders[2][1], orders[2][2:],
    )  # fmt: skip
    return graph.add(
        "convolution", [lhs, rhs], window=window, dim_labels=labels, feature_group_count=feature_groups,
        batch_group_count=batch_groups, output_shape=preferred_type(graph, lhs.shape.dtype)[()],
    )  # fmt: skip


def random_window(graph: Graph, base: list[int], dilations: bool = True, reversal: bool = False) -> Window:
    """A window over an array of these sizes, mostly with at least one position."""
    dimensions: list[WindowDimension] = []
    for size in base:
        one = graph.chance(0.3)
        extent = 1 if one else graph.integer(1, 3)
        spread = graph.choice([1, 1, 2, 3]) if dilations else 1
        holes = graph.choice([1, 1, 1, 2, 3]) if dilations else 1
        low, high = graph.integer(-1, 2), graph.integer(-1, 2)
        missing = dilated(extent, spread) - (low + dilated(size, holes) + high)
        if missing > 0 and graph.chance(0.8):
            high += missing
        flipped = reversal and graph.chance(0.2)
        stride = graph.choice([1, 1, 2, 3])
        dimensions.append(WindowDimension(extent, stride, low, high, holes, spread, flipped))
    return Window(tuple(dimensions))


# -- the others


@recipe("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def batch_norm(graph: Graph) -> Instruction:
    operand = graph.array("floating", test=lambda s: s.rank > 0 and not s.is_dynamic, rank=graph.integer(1, 4))
    feature = graph.integer(0, operand.shape.rank - 1)
    vector = operand.shape.dtype[operand.shape.dimensions[feature]]
    opcode = graph.choice(["batch-norm-training", "batch-norm-inference", "batch-norm-grad"])
    vectors = [graph.like(vector) for _ in range(2 if opcode == "batch-norm-training" else 4)]
    if opcode == "batch-norm-grad":
        vectors[3] = graph.like(operand.shape)
    epsilon = graph.choice([0.001, 0.5, 0.0])
    return graph.add(opcode, [operand, *vectors], epsilon=epsilon, feature_index=feature)


@recipe("cholesky")
def cholesky(graph: Graph) -> Instruction:
    """A factorization of a matrix that is positive definite more often than a random one: its diagonal is large."""
    size = graph.integer(0, 4)
    sizes = (*graph.sizes(graph.integer(0, 1)), size, size)
    element = graph.dtype("floating", "complex")
    matrix = graph.draw.arrays.normal(0, 0.5, sizes)
    symmetric = (matrix + matrix.swapaxes(-1, -2)) / 2 + np.eye(size) * 2
    literal = Literal(element[sizes], symmetric.astype(np.float32).astype(element.numpy))
    operand = graph.add("constant", literal=literal) if graph.chance(0.7) else graph.like(element[sizes])
    return graph.add("cholesky", [operand], lower=graph.chance(0.5))


@recipe("triangular-solve")
def triangular_solve(graph: Graph) -> Instruction:
    size, batch = graph.integer(0, 4), graph.sizes(graph.integer(0, 1))
    element = graph.dtype("floating", "complex")
    left = graph.chance(0.5)
    other = graph.integer(0, 3)
    a = graph.like(element[(*batch, size, size)])
    b = graph.like(element[(*batch, *((size, other) if left else (other, size)))])
    return graph.add(
        "triangular-solve", [a, b], left_side=left, lower=graph.chance(0.5), unit_diagonal=graph.chance(0.3),
        transpose_a=graph.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]),
    )  # fmt: skip


@recipe("fft")
def fft(graph: Graph) -> Instruction:
    kind = graph.choice(["FFT", "IFFT", "RFFT", "IRFFT"])
    element = graph.choice([dtypes.f32, dtypes.f64]) if kind == "RFFT" else graph.choice([dtypes.c64, dtypes.c128])
    operand = graph.array(element=element, rank=graph.integer(1, 3), test=lambda s: not s.is_dynamic)
    count = graph.integer(1, operand.shape.rank)
    length = list(operand.shape.dimensions[-count:])
    if kind == "IRFFT":
        half = length[-1]
        length[-1] = graph.choice([2 * half - 2, 2 * half - 1]) if half > 1 else half
    return graph.add("fft", [operand], fft_type=kind, fft_length=tuple(length))


@recipe("topk")
def top_k(graph: Graph) -> Instruction:
    operand = graph.array(
        "signed", "unsigned", "floating", test=lambda s: s.rank > 0 and not s.is_dynamic, rank=graph.integer(1, 2)
    )
    k = graph.integer(0, operand.shape.dimensions[-1])
    return graph.add("topk", [operand], k=k, largest=graph.chance(0.7))


@recipe("rng")
def rng(graph: Graph) -> Instruction:
    kind = graph.choice(["rng_uniform", "rng_normal"])
    element = graph.dtype("floating") if kind == "rng_normal" else graph.dtype("signed", "unsigned", "floating")
    low, high = graph.scalar(element, 0), graph.scalar(element, 1)
    return graph.add("rng", [low, high], distribution=kind, output_shape=element[graph.sizes()])


@recipe("rng-get-and-update-state")
def rng_state(graph: Graph) -> Instruction:
    return graph.add("rng-get-and-update-state", delta=graph.integer(0, 9), output_shape=dtypes.u64[2])


@recipe("rng-bit-generator")
def rng_bit_generator(graph: Graph) -> Instruction:
    algorithm = graph.choice(["rng_default", "rng_three_fry", "rng_philox"])
    state = graph.like(dtypes.u64[2 if algorithm == "rng_three_fry" or graph.chance(0.5) else 3])
    if state.shape.is_dynamic:
        state = graph.fresh(state.shape.static)
    data = graph.dtype("unsigned")[graph.sizes()]
    output = Shape.tuple([state.shape.logical, data])
    return graph.add("rng-bit-generator", [state], algorithm=algorithm, output_shape=output)


@recipe("get-dimension-size")
def get_dimension_size(graph: Graph) -> Instruction:
    operand = graph.array(test=lambda s: s.rank > 0, rank=graph.integer(1, 3))
    return graph.add("get-dimension-size", [operand], dimension=graph.integer(0, operand.shape.rank - 1))


@recipe("set-dimension-size")
def set_dimension_size(graph: Graph) -> Instruction:
    operand = graph.array(test=lambda s: s.rank > 0, rank=graph.integer(1, 3))
    dimension = graph.integer(0, operand.shape.rank - 1)
    size = graph.scalar(dtypes.s32, graph.integer(0, operand.shape.dimensions[dimension]))
    shape = None
    if graph.chance(0.15) and not operand.shape.dynamic[dimension]:
        size = graph.scalar(dtypes.s32, operand.shape.dimensions[dimension])
        shape = operand.shape.logical
    return graph.add("set-dimension-size", [operand, size], shape=shape, dimension=dimension)


@recipe("dynamic-reshape")
def dynamic_reshape(graph: Graph) -> Instruction | None:
    operand = graph.array(test=lambda s: not s.is_dynamic)
    sizes = other_sizes(graph, operand.shape.size)
    numbers = [graph.scalar(dtypes.s32, n) for n in sizes]
    output = Shape.array(operand.shape.dtype, sizes, [graph.chance(0.5) for _ in sizes])
    return graph.add("dynamic-reshape", [operand, *numbers], output_shape=output)
