"""Programs of typical structure: `shaped_draw(seed)`. The seed selects the theme of a program in turn (THEMES).

Chains of data movement, reductions, products and indexed reads over odd and vector-sized dimensions are drawn from
the usual recipes. Loops are drawn here. Their state is several arrays (and tuples of them), which an iteration
updates in place, moves to other elements of the state, reads or passes on unchanged. Loops are counted or not,
nested, and have branches; values from before a loop are read after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import OPS
from hlokit.judge.fuzz.graph import Draw, Graph, Options
from hlokit.judge.fuzz.programs import random_draw
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.shape import Shape

ODD = (1, 1, 2, 3, 5, 7, 11, 16, 17, 31, 32, 33, 64, 65)
_EXACT = ("s32", "s32", "u32", "s8", "s64", "pred", "u4")
_USUAL = ("f32", "f32", "s32", "bf16", "f64", "s8", "pred", "c64", "f16")
_ELEMENTWISE = "add subtract multiply maximum negate select compare convert clamp and xor exponential abs sqrt"
_MOVEMENT = "pad slice reverse concatenate transpose reshape broadcast iota copy bitcast"


def _options(opcodes: str, instructions: int = 12, types: tuple[str, ...] = _USUAL) -> Options:
    names = frozenset(opcodes.split())
    return Options(
        instructions=instructions,
        opcodes=names,
        types=types,
        dynamic=False,
        layouts=False,
        wild=0.05,
        denormals=False,
        dimensions=ODD,
        rank=3,
    )


THEMES: dict[str, Options] = {
    "movement": _options(_MOVEMENT + " add multiply select", 24),
    "rows": _options("reduce broadcast subtract divide exponential multiply add convert maximum transpose rsqrt", 12),
    "windows": _options("reduce-window reduce pad add multiply select-and-scatter slice", 6),
    "products": _options("dot add multiply maximum broadcast transpose reshape reduce tanh convert", 8),
    "convolutions": _options("convolution add maximum pad reverse transpose", 4),
    "indexed": _options("gather scatter dynamic-slice dynamic-update-slice sort add iota compare convert clamp", 8),
    "updates": _options("dynamic-update-slice scatter dynamic-slice add slice reverse", 10, _EXACT),
    "elementwise": _options(_ELEMENTWISE, 30),
    "mixed": _options(f"{_ELEMENTWISE} {_MOVEMENT} reduce dot gather dynamic-update-slice sort", 16),
    "exact": _options(f"{_MOVEMENT} add multiply xor reduce reduce-window dot gather scatter sort", 16, _EXACT),
}
"""Options of random_draw; every other program is a loop."""


LARGE = 1 << 20
LARGE_THEMES: tuple[Options, ...] = tuple(
    replace(options, elements=LARGE, dimensions=(), identities=True)
    for options in (
        _options(_ELEMENTWISE + " " + _MOVEMENT, 8),
        _options(_MOVEMENT, 8),
        _options(_ELEMENTWISE + " cosine sine tanh log logistic rsqrt divide power remainder floor erf cbrt", 6),
        _options(_MOVEMENT + " reduce add multiply xor compare select", 6, _EXACT),
        _options("reduce-window reduce pad slice reverse maximum add", 3, _EXACT),
        _options("gather dynamic-slice dynamic-update-slice iota add compare select concatenate", 6, _EXACT),
        _options("sort topk reverse slice iota add select", 3, (*_EXACT, "f32", "f16")),
        _options("bitcast-convert convert reduce-precision round-nearest-even clamp is-finite real imag complex", 6),
    )
)
"""Programs over arrays of a million elements and more; sums only of integers, which any order gives alike."""


def large_draw(seed: int) -> Draw:
    """A legal module of arrays of more than a million elements."""
    return random_draw(seed, LARGE_THEMES[seed % len(LARGE_THEMES)])


def shaped_draw(seed: int) -> Draw:
    """A legal module of one of the shapes."""
    if seed % 2:
        return loop_draw(seed)
    names = list(THEMES)
    return random_draw(seed, THEMES[names[seed // 2 % len(names)]])


# -- loops

_LOOPS = Options(8, dynamic=False, layouts=False, wild=0.05, denormals=False, types=(*_EXACT, "f32", "bf16"), depth=3)


def loop_draw(seed: int) -> Draw:
    """A module with loops."""
    draw = Draw(seed, _LOOPS)
    graph = Graph(draw, "entry")
    element = DTYPES[graph.choice(("s32", "s32", "s32", "s8", "u32", "f32", "f32", "bf16"))]
    rows, columns = graph.choice((1, 2, 3, 5, 8, 17)), graph.choice((1, 3, 4, 16, 17, 33))
    loops = _Loops(graph, element, element[rows, columns], element[columns])
    for _ in range(graph.integer(1, 2)):
        loops.step(graph)
    for _ in range(graph.integer(1, 2)):
        loops.loop(graph)
        if graph.chance(0.5):
            loops.step(graph)
    roots = [v for v in graph.arrays if v.shape.rank or graph.chance(0.3)]
    roots = graph.random.sample(roots, min(len(roots), graph.integer(1, 6)))
    graph.add("tuple", roots)
    draw.module.add_computation(graph.computation, entry=True)
    graph.computation.set_root(graph.computation.root)
    return draw


class _Loops:
    """The types that bodies are drawn with: a matrix type, the type of its rows, scalars."""

    def __init__(self, graph: Graph, element: DType, matrix: Shape, row: Shape) -> None:
        self.element, self.matrix, self.row = element, matrix, row
        for shape in (matrix, matrix, row, element[()]):
            graph.parameter(shape)
        for value in (0, 1, -1):
            graph.scalar(dtypes.s32, value)
        graph.parameter(dtypes.s32[()])

    def loop(self, graph: Graph) -> None:
        """A loop over some of the values that there are; its results become values."""
        kinds = (self.matrix, self.matrix, self.row, self.element[()])
        values = [self.find(graph, graph.choice(kinds)) for _ in range(graph.integer(1, 4))]
        if graph.chance(0.2):
            values.append(values[0])  # one array twice
        nested = len(values) > 1 and graph.chance(0.2)
        leaves = values
        if nested:
            values = [graph.add("tuple", values[:2]), *values[2:]]
        start = graph.scalar(dtypes.s32, graph.choice((0, 0, 0, 2)))
        place = graph.integer(0, len(values))
        init = graph.add("tuple", [*values[:place], start, *values[place:]])
        shape = init.shape
        body, counter, parts = self._inside(graph, "body", shape, place)
        step = graph.choice((1, 1, 1, 2))
        body.arrays = [*parts, counter]
        for value in (0, 1):
            body.scalar(dtypes.s32, value)
        for _ in range(graph.integer(1, 4)):
            self.step(body, counter)
        if graph.depth < 1 and graph.chance(0.25):
            self.loop(body)
        following = [self._carry(body, parts, k, leaf.shape) for k, leaf in enumerate(leaves)]
        if nested:
            following = [body.add("tuple", following[:2]), *following[2:]]
        stepped = body.add("add", [counter, body.scalar(dtypes.s32, step)])
        body.computation.set_root(body.add("tuple", [*following[:place], stepped, *following[place:]]))
        graph.draw.module.add_computation(body.computation)
        condition, counter, parts = self._inside(graph, "condition", shape, place)
        goes_on = condition.add("compare", [counter, condition.scalar(dtypes.s32, graph.integer(0, 6))], direction="LT")
        scalars = [p for p in parts if p.shape is self.element[()]]
        if scalars and graph.chance(0.5):  # uncounted
            other = condition.add("compare", [scalars[0], condition.scalar(self.element, 3)], direction="NE")
            goes_on = condition.add("and", [goes_on, other])
        condition.computation.set_root(goes_on)
        graph.draw.module.add_computation(condition.computation)
        result = graph.computation.add(
            OPS["while"](), [init], [condition.computation, body.computation], name=graph.draw.name("while")
        )
        self._parts(graph, result, place)

    def _inside(
        self, graph: Graph, name: str, shape: Shape, place: int
    ) -> tuple[Graph, Instruction, list[Instruction]]:
        inner = Graph(graph.draw, name, graph.depth + 1)
        op = OPS["parameter"](number=0, parameter_shape=shape)
        parameter = inner.computation.add(op, [], name=graph.draw.name("parameter"))
        counter, parts = self._parts(inner, parameter, place)
        return inner, counter, parts

    def _parts(self, graph: Graph, value: Instruction, place: int) -> tuple[Instruction, list[Instruction]]:
        """The state's counter, and its arrays."""
        counter: Instruction | None = None
        found: list[Instruction] = []
        for k, shape in enumerate(value.shape.elements):
            part = graph.add("get-tuple-element", [value], index=k)
            if k == place:
                counter = part
            elif shape.is_tuple:
                found += graph.arrays[-len(shape.elements) :]
            else:
                found.append(part)
        assert counter is not None
        return counter, found

    def _carry(self, body: Graph, parts: list[Instruction], k: int, shape: Shape) -> Instruction:
        """The k-th array of the next pass: a new one, that of another place, or the same."""
        kind = body.integer(0, 9)
        if kind == 0:
            return parts[k]
        if kind < 3:
            others = [p for p in parts if p.shape is shape]
            return body.choice(others)
        return self.find(body, shape)

    def find(self, graph: Graph, shape: Shape) -> Instruction:
        found = [v for v in graph.arrays if v.shape is shape]
        if not found:
            return graph.constant(shape)
        return found[-1] if graph.chance(0.5) else graph.choice(found)

    def step(self, graph: Graph, counter: Instruction | None = None) -> None:
        """An op or a few, on the values that there are."""
        graph.choice(_STEPS)(self, graph, counter)

    def index(self, graph: Graph, counter: Instruction | None) -> Instruction:
        integers = [v for v in graph.arrays if v.shape is dtypes.s32[()]]
        if counter is not None and graph.chance(0.6):
            return counter
        return (
            graph.choice(integers)
            if integers and graph.chance(0.7)
            else graph.scalar(dtypes.s32, graph.integer(-2, 20))
        )

    # -- steps

    def elementwise(self, graph: Graph, counter: Instruction | None) -> None:
        shape = graph.choice((self.matrix, self.matrix, self.row, self.element[()]))
        codes = ("add", "subtract", "maximum", "multiply") if self.element.bits < 32 else ("add", "subtract", "maximum")
        graph.add(graph.choice(codes), [self.find(graph, shape), self.find(graph, shape)])

    def unused_twice(self, graph: Graph, counter: Instruction | None) -> None:
        value = self.find(graph, self.matrix)
        one = graph.add("negate", [value])
        graph.add("add", [one, value])
        graph.add("maximum", [one, value])

    def update(self, graph: Graph, counter: Instruction | None) -> None:
        """A row of a matrix replaced: by another row, a sum, a part of the same matrix."""
        matrix, at = self.find(graph, self.matrix), self.index(graph, counter)
        zero = graph.scalar(dtypes.s32, 0)
        row = graph.add("reshape", [self.find(graph, self.row)], output_shape=self.element[(1, *self.row.dimensions)])
        if graph.chance(0.6):
            source = matrix if graph.chance(0.6) else self.find(graph, self.matrix)
            read = graph.add(
                "dynamic-slice", [source, self.index(graph, counter), zero], dynamic_slice_sizes=row.shape.dimensions
            )
            row = graph.add("add", [row, read]) if graph.chance(0.7) else read
        graph.add("dynamic-update-slice", [matrix, row, at, zero])

    def column(self, graph: Graph, counter: Instruction | None) -> None:
        """One element of a row replaced by another."""
        row, at = self.find(graph, self.row), self.index(graph, counter)
        element = graph.add("dynamic-slice", [row, self.index(graph, counter)], dynamic_slice_sizes=(1,))
        if graph.chance(0.5):
            element = graph.add("add", [element, graph.add("slice", [row], ranges=((0, 1, 1),))])
        graph.add("dynamic-update-slice", [row, element, at])

    def scatter(self, graph: Graph, counter: Instruction | None) -> None:
        row, count = self.find(graph, self.row), graph.integer(1, 5)
        places = graph.constant(dtypes.s32[count, 1])
        inner = graph.inner("combine", [self.element[()]] * 2)
        code = graph.choice(("add", "maximum", "second"))
        last = inner.computation.parameters[1] if code == "second" else inner.add(code, inner.computation.parameters)
        inner.computation.set_root(last)
        graph.draw.module.add_computation(inner.computation)
        updates = graph.constant(self.element[count,])
        graph.add(
            "scatter", [row, places, updates], [inner.computation], update_window_dims=(), inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
        )  # fmt: skip

    def elsewhere(self, graph: Graph, counter: Instruction | None) -> None:
        """A matrix read at other places: reversed, rolled."""
        matrix = self.find(graph, self.matrix)
        if graph.chance(0.4):
            graph.add("reverse", [matrix], dimensions=(graph.integer(0, 1),))
            return
        rows, columns = matrix.shape.dimensions
        shift = graph.integer(0, columns)
        parts = [
            graph.add("slice", [matrix], ranges=((0, rows, 1), bounds))
            for bounds in ((shift, columns, 1), (0, shift, 1))
        ]
        rolled = graph.add("concatenate", parts, dimension=1)
        if graph.chance(0.5):
            graph.add("add", [rolled, matrix])

    def fold(self, graph: Graph, counter: Instruction | None) -> None:
        """Sums along rows or all, spread again."""
        inner = graph.inner("fold", [self.element[()]] * 2)
        inner.computation.set_root(inner.add(graph.choice(("add", "maximum")), inner.computation.parameters))
        fold = graph.draw.module.add_computation(inner.computation)
        matrix, zero = self.find(graph, self.matrix), graph.scalar(self.element, 0)
        dimensions = graph.choice(((0,), (0, 1)))
        total = graph.add("reduce", [matrix, zero], [fold], dimensions=dimensions)
        spread = graph.add("broadcast", [total], dimensions=(1,) if total.shape.rank else (), output_shape=matrix.shape)
        if graph.chance(0.5):
            graph.add("subtract", [matrix, spread])

    def branch(self, graph: Graph, counter: Instruction | None) -> None:
        """A conditional whose branches share operands: one works in place, one hands on."""
        if graph.depth >= graph.options.depth:
            return
        operands = [self.find(graph, shape) for shape in (self.matrix, self.matrix, self.row)]
        state = graph.add("tuple", operands)
        branches: list[Computation] = []
        for _ in range(2):
            inner = Graph(graph.draw, "branch", graph.depth + 1)
            op = OPS["parameter"](number=0, parameter_shape=state.shape)
            parameter = inner.computation.add(op, [], name=graph.draw.name("parameter"))
            for k in range(3):
                inner.add("get-tuple-element", [parameter], index=k)
            inner.scalar(dtypes.s32, graph.integer(-1, 3))
            for _ in range(graph.integer(0, 2)):
                self.step(inner)
            inner.computation.set_root(inner.add("tuple", [self.find(inner, o.shape) for o in operands]))
            branches.append(graph.draw.module.add_computation(inner.computation))
        which = graph.add(
            "compare",
            [self.index(graph, counter), graph.scalar(dtypes.s32, 1)],
            direction=graph.choice(("LT", "EQ", "GT")),
        )
        graph.add("conditional", [which, state, state], branches)


_STEPS: list[Callable[[_Loops, Graph, Instruction | None], None]] = [
    _Loops.elementwise, _Loops.elementwise, _Loops.unused_twice, _Loops.update, _Loops.update, _Loops.column,
    _Loops.scatter, _Loops.elsewhere, _Loops.fold, _Loops.branch,
]  # fmt: skip
