"""Recipes that draw the ops that call computations."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.judge.fuzz.graph import Graph, recipe
from hlokit.judge.fuzz.recipes import SCALAR_CODES, indices_of, random_window
from hlokit.ops.numerics import integer_range, narrow
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_FOLDS = {
    "pred": ("and", "or", "xor", "add", "multiply"),
    "signed": ("add", "multiply", "maximum", "minimum", "and", "or", "xor", "subtract"),
    "unsigned": ("add", "multiply", "maximum", "minimum", "and", "or", "xor"),
    "floating": ("add", "add", "maximum", "minimum", "multiply", "subtract"),
    "complex": ("add", "multiply"),
}


_IDENTITIES = {"add": 0, "multiply": 1, "or": 0, "xor": 0, "and": -1}


def fold_of(graph: Graph, *elements: DType) -> tuple[Computation, list[Instruction]]:
    """A computation of N accumulated and N new scalars, and N init values."""
    if not graph.options.identities:
        return reducer(graph, *elements), [graph.like(e[()]) for e in elements]
    inner = graph.inner("fold", [e[()] for e in elements] * 2)
    parameters, roots, inits = inner.computation.parameters, list[Instruction](), list[Instruction]()
    for i, element in enumerate(elements):
        codes = [c for c in _FOLDS[element.kind] if c != "subtract"]
        code = graph.choice(codes)
        roots.append(inner.add(code, [parameters[i], parameters[len(elements) + i]]))
        inits.append(graph.scalar(element, _identity(code, element)))
    if len(roots) > 1:
        roots = [inner.add("tuple", roots)]
    inner.computation.set_root(roots[0])
    return graph.draw.module.add_computation(inner.computation), inits


def _identity(code: str, element: DType) -> object:
    if element.kind == "pred":
        return code in ("and", "multiply")
    if code in ("maximum", "minimum"):
        limits = integer_range(element) if element.is_integral else (-np.inf, np.inf)
        return np.asarray(limits[code == "minimum"], np.float64 if element.is_floating else object)
    wide = np.asarray(_IDENTITIES[code], np.int64)
    return wide if code != "and" else narrow(wide, element.numpy)


def reducer(graph: Graph, *elements: DType, as_tuple: bool = False) -> Computation:
    """A computation of N accumulated and N new scalars: mostly one op, sometimes a drawn one."""
    if graph.options.identities:
        return fold_of(graph, *elements)[0]
    inner = graph.inner("fold", [e[()] for e in elements] * 2)
    n = len(elements)
    if graph.chance(0.15) and graph.depth < graph.options.depth:
        inner.grow(graph.integer(1, 3), SCALAR_CODES)
        return inner.result(*(e[()] for e in elements), as_tuple=as_tuple)
    parameters = inner.computation.parameters
    roots: list[Instruction] = []
    for i, element in enumerate(elements):
        operands = [parameters[i], parameters[n + i]]
        if graph.chance(0.1):
            roots.append(operands[graph.integer(0, 1)])
            continue
        codes = [c for c in _FOLDS[element.kind] if graph.options.opcodes is None or c in graph.options.opcodes]
        roots.append(inner.add(graph.choice(codes or _FOLDS[element.kind]), operands))
    if n > 1 or as_tuple:
        roots = [inner.add("tuple", roots)]
    inner.computation.set_root(roots[0])
    return graph.draw.module.add_computation(inner.computation)


def _operands(graph: Graph, least_rank: int = 0) -> list[Instruction]:
    """One to three arrays of the same sizes."""
    rank = graph.integer(least_rank, graph.options.rank)
    first = graph.array(rank=rank)
    count = graph.choice([1, 1, 1, 2, 3])
    return [first, *(graph.like(graph.dtype()[first.shape.dimensions]) for _ in range(count - 1))]


@recipe("reduce")
def reduce(graph: Graph) -> Instruction:
    arrays = _operands(graph)
    rank = arrays[0].shape.rank
    dimensions = tuple(graph.random.sample(range(rank), graph.integer(0, rank)))
    fold, inits = fold_of(graph, *(a.shape.dtype for a in arrays))
    return graph.add("reduce", [*arrays, *inits], [fold], dimensions=dimensions)


@recipe("reduce-window")
def reduce_window(graph: Graph) -> Instruction | None:
    arrays = _operands(graph)
    window = random_window(graph, list(arrays[0].shape.dimensions))
    if graph.has_no_room(
        [d.output_size(n) for d, n in zip(window.dimensions, arrays[0].shape.dimensions, strict=True)]
    ):
        return None
    fold, inits = fold_of(graph, *(a.shape.dtype for a in arrays))
    return graph.add("reduce-window", [*arrays, *inits], [fold], window=window)


@recipe("select-and-scatter")
def select_and_scatter(graph: Graph) -> Instruction | None:
    operand = graph.array("signed", "unsigned", "floating", test=lambda s: not s.is_dynamic)
    element = operand.shape.dtype
    window = random_window(graph, list(operand.shape.dimensions), dilations=False)
    sizes = [d.output_size(n) for d, n in zip(window.dimensions, operand.shape.dimensions, strict=True)]
    if graph.has_no_room(sizes):
        return None
    source, init = graph.like(element[tuple(sizes)]), graph.like(element[()])
    inner = graph.inner("choose", [element[()]] * 2)
    inner.add("compare", inner.computation.parameters, direction=graph.choice(["GE", "LE", "GT", "LT"]))
    choose = graph.draw.module.add_computation(inner.computation)
    return graph.add("select-and-scatter", [operand, source, init], [choose, reducer(graph, element)], window=window)


@recipe("scan")
def scan(graph: Graph) -> Instruction | None:
    array = graph.array(test=lambda s: s.rank > 0 and not s.is_dynamic, rank=graph.integer(1, 3))
    dimension = graph.integer(0, array.shape.rank - 1)
    sizes = array.shape.dimensions[:dimension] + array.shape.dimensions[dimension + 1 :]
    part, carry = array.shape.dtype[sizes], graph.array(test=lambda s: not s.is_dynamic)
    inner = graph.inner("step", [part, carry.shape.logical])
    if graph.depth < graph.options.depth:
        inner.grow(graph.integer(0, 2))
    outputs = [part, carry.shape.logical]
    body = inner.result(*outputs)
    stacked = Shape.tuple([array.shape.logical, carry.shape.logical])
    return graph.add(
        "scan", [array, carry], [body], dimension=dimension, num_carries=1, is_reverse=graph.chance(0.5),
        scan_shape=stacked,
    )  # fmt: skip


@recipe("map")
def map_(graph: Graph) -> Instruction:
    arrays = _operands(graph)
    inner = graph.inner("each", [a.shape.dtype[()] for a in arrays])
    inner.grow(graph.integer(1, 3), SCALAR_CODES)
    to_apply = inner.result(graph.dtype()[()])
    return graph.add("map", arrays, [to_apply], dimensions=tuple(range(arrays[0].shape.rank)))


@recipe("call")
def call(graph: Graph) -> Instruction | None:
    if graph.depth >= graph.options.depth:
        return None
    operands = [graph.array() for _ in range(graph.integer(0, 2))]
    inner = graph.inner("callee", [o.shape.logical for o in operands])
    inner.grow(graph.integer(1, 3))
    if not inner.arrays:
        inner.constant(dtypes.f32[2])
    return graph.add("call", operands, [inner.result(graph.choice(inner.arrays).shape.static)])


@recipe("conditional")
def conditional(graph: Graph) -> Instruction | None:
    if graph.depth >= graph.options.depth:
        return None
    by_pred = graph.chance(0.5)
    selector = graph.array(element=dtypes.pred if by_pred else dtypes.s32, rank=0)
    count = 2 if by_pred else graph.integer(1, 3)
    operands = [graph.array(test=lambda s: not s.is_dynamic) for _ in range(count)]
    result, branches = graph.dtype()[graph.sizes()], list[Computation]()
    for operand in operands:
        inner = graph.inner("branch", [operand.shape.logical.static])
        inner.grow(graph.integer(0, 3))
        branches.append(inner.result(result))
    return graph.add("conditional", [selector, *operands], branches)


@recipe("while")
def while_(graph: Graph) -> Instruction | None:
    if graph.depth >= graph.options.depth:
        return None
    values = [graph.array(test=lambda s: not s.is_dynamic) for _ in range(graph.integer(1, 2))]
    state = Shape.tuple([dtypes.s32[()], *(v.shape.logical for v in values)])
    condition = graph.inner("condition", [state])
    parameter = condition.computation.parameters[0]
    counter = condition.add("get-tuple-element", [parameter], index=0)
    # the root: another pred of the state may never change
    goes_on = condition.add("compare", [counter, condition.scalar(dtypes.s32, graph.integer(0, 4))], direction="LT")
    condition.computation.set_root(goes_on)
    graph.draw.module.add_computation(condition.computation)
    body = graph.inner("body", [state])
    parameter = body.computation.parameters[0]
    parts = [body.add("get-tuple-element", [parameter], index=i) for i in range(len(state.elements))]
    counter = body.add("add", [parts[0], body.scalar(dtypes.s32, 1)])
    body.arrays = parts[1:]
    body.grow(graph.integer(1, 3))
    roots = [counter, *(body._of(shape) for shape in state.elements[1:])]  # pyright: ignore[reportPrivateUsage]
    body.computation.set_root(body.add("tuple", roots))
    graph.draw.module.add_computation(body.computation)
    init = graph.add("tuple", [graph.scalar(dtypes.s32, 0), *values])
    return graph.add("while", [init], [condition.computation, body.computation])


@recipe("sort")
def sort(graph: Graph) -> Instruction:
    arrays = _operands(graph, 1)
    arrays = [a for a in arrays if not a.shape.dtype.is_complex] or [graph.array("signed", "floating", rank=1)]
    inner = graph.inner("before", [a.shape.dtype[()] for a in arrays for _ in range(2)])
    key = graph.integer(0, len(arrays) - 1)
    floating = arrays[key].shape.dtype.is_floating
    inner.add(
        "compare", inner.computation.parameters[2 * key : 2 * key + 2], direction=graph.choice(["LT", "GT"]),
        type="TOTALORDER" if floating and graph.chance(0.7) else None,
    )  # fmt: skip
    comparator = graph.draw.module.add_computation(inner.computation)
    dimension = graph.integer(0, arrays[0].shape.rank - 1)
    return graph.add("sort", arrays, [comparator], dimension=dimension, is_stable=True)


@recipe("scatter")
def scatter(graph: Graph) -> Instruction | None:
    arrays = _operands(graph)
    sizes = arrays[0].shape.dimensions
    rank, counts = len(sizes), graph.sizes(graph.integer(0, 2))
    vector = graph.integer(0, rank)
    places = tuple(graph.random.sample(range(rank), vector))
    inserted = tuple(d for d in range(rank) if sizes[d] and graph.chance(0.4))
    if graph.has_no_room([*counts, vector]):
        return None
    indices, index_vector_dim = indices_of(graph, counts, vector)
    window = [graph.integer(0, sizes[d]) for d in range(rank) if d not in inserted]
    update_rank = len(window) + len(counts)
    window_dims = tuple(sorted(graph.random.sample(range(update_rank), len(window))))
    remaining, windows = list(counts), list(window)
    update_sizes = tuple(windows.pop(0) if d in window_dims else remaining.pop(0) for d in range(update_rank))
    if graph.has_no_room(update_sizes):
        return None
    updates = [graph.like(a.shape.dtype[update_sizes]) for a in arrays]
    fold = reducer(graph, *(a.shape.dtype for a in arrays))
    return graph.add(
        "scatter", [*arrays, indices, *updates], [fold], update_window_dims=window_dims,
        inserted_window_dims=inserted, scatter_dims_to_operand_dims=places, index_vector_dim=index_vector_dim,
    )  # fmt: skip
