"""A random program while it is drawn: `Graph` gives the recipes of ops (recipes.py, recipes_called.py), which register
here, the values and attributes that they need.

With `illegal` > 0 the draft of an op is now and then spoilt (an attribute off by one, another operand): whatever
`Computation.add` refuses is kept in `rejections`, whatever it accepts stays in the module, which is therefore always
legal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hlokit.errors import HlokitError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction, by_role
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS, Op, infer_shape
from hlokit.judge.fuzz.values import random_array
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.layout import Layout
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

INTEGERS = ("s1", "s2", "s4", "s8", "s16", "s32", "s64", "u1", "u2", "u4", "u8", "u16", "u32", "u64")
SMALL_FLOATS = tuple(name for name in DTYPES if name[:2] in ("f4", "f8"))
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
ALL_TYPES = ("pred", *INTEGERS, *SMALL_FLOATS, *FLOATS, *COMPLEX)
USUAL_TYPES = ("pred", "s32", "s32", "s8", "u32", "s64", "f32", "f32", "f32", "bf16", "f16", "f64", "c64")
_OTHERWISE = {"pred": "pred", "signed": "s32", "unsigned": "u32", "floating": "f32", "complex": "c64"}
"""The type for each kind where none of the given types is of that kind: an op needs one."""


@dataclass(frozen=True)
class Options:
    """The kind of modules: the defaults draw everything."""

    instructions: int = 8
    opcodes: frozenset[str] | None = None
    """Those that may be drawn; None for all that have a recipe."""
    weights: tuple[tuple[str, int], ...] = ()
    """Factors by which ops are drawn more often."""
    types: tuple[str, ...] = ALL_TYPES
    dynamic: bool = True
    layouts: bool = True
    illegal: float = 0.0
    largest: int = 5
    """The greatest size of a dimension of a fresh value."""
    rank: int = 4
    wild: float = 0.3
    """Chance of a special value (infinity, NaN, the greatest integer) in a constant."""
    denormals: bool = True
    """Whether floating constants may be denormal, or the greatest number."""
    identities: bool = False
    """Folds are by one associative and commutative op and start at its identity: any order gives the same."""
    depth: int = 2
    """The depth to which computations may nest."""
    dimensions: tuple[int, ...] = ()
    """Sizes that dimensions of fresh values are chosen from, no more than a few thousand elements in all."""
    devices: tuple[int, int] = (1, 1)
    """Replicas and partitions; collectives are drawn for more than one device."""
    elements: int = 0
    """If not 0, the number of elements that fresh arrays of one or more dimensions have: at most twice that."""


DEFAULTS = Options()


@dataclass
class Draw:
    """The state of a draw: the randomness, and what illegal drafts led to."""

    seed: int
    options: Options
    rejections: list[HlokitError] = field(default_factory=list[HlokitError])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.arrays = np.random.default_rng(self.seed)
        self.module = HloModule(f"fuzz_{self.seed}")
        self.module.replica_count, self.module.num_partitions = self.options.devices
        self._names = 0

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}.{self._names}"


Recipe = Callable[["Graph"], "Instruction | None"]
"""Adds one op (and what it needs); None where the graph or the options allow none."""

RECIPES: dict[str, Recipe] = {}
"""The recipe of each op that random programs contain."""


def recipe(*opcodes: str) -> Callable[[Recipe], Recipe]:
    def register(function: Recipe) -> Recipe:
        for opcode in opcodes:
            RECIPES[opcode] = function
        return function

    return register


class Graph:
    """A computation that is being drawn."""

    def __init__(self, draw: Draw, name: str, depth: int = 0) -> None:
        self.draw, self.options, self.random, self.depth = draw, draw.options, draw.random, depth
        self.computation = Computation(draw.name(name), draw.module)
        self.arrays: list[Instruction] = []

    # -- chance

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, values: Sequence[Any]) -> Any:
        return self.random.choice(values)

    def dtype(self, *kinds: str) -> DType:
        """A random element type of one of the kinds, or of any."""
        names = self.options.types
        if self.chance(0.5):
            names = [n for n in USUAL_TYPES if n in names] or names
        fitting = [n for n in names if not kinds or DTYPES[n].kind in kinds]
        fitting = fitting or [n for n in self.options.types if DTYPES[n].kind in kinds]
        return DTYPES[self.choice(fitting or [_OTHERWISE[kinds[0] if kinds else "signed"]])]

    def sizes(self, rank: int | None = None, least: int = 0) -> tuple[int, ...]:
        if rank is None:
            rank = int(self.choice([n for n in (0, 1, 1, 2, 2, 3, 4) if n <= self.options.rank]))
        usual = [n for n in (1, 2, 3, 4, 5) if n <= self.options.largest]
        if self.options.elements:
            return self._large_sizes(rank)
        if self.options.dimensions:
            found = [max(least, self.choice(self.options.dimensions)) for _ in range(rank)]
            while prod(found) > _MOST_ELEMENTS:
                found[found.index(max(found))] //= 2
            return tuple(found)
        return tuple(max(least, 0 if self.chance(0.04) else self.choice(usual)) for _ in range(rank))

    def _large_sizes(self, rank: int) -> tuple[int, ...]:
        """Odd sizes and powers of two; one of them, any, makes up for what the others leave."""
        if not rank:
            return ()
        others = [self.choice((1, 2, 3, 7, 16, 33, 100, 128, 1000, 1024)) for _ in range(rank - 1)]
        while prod(others) > self.options.elements:
            others[others.index(max(others))] = 3
        rest = -(-self.options.elements // prod(others))
        others.insert(self.integer(0, rank - 1), rest + self.choice((0, 1, rest // 7)))
        return tuple(others)

    def has_no_room(self, sizes: Sequence[int]) -> bool:
        """Whether an array of these sizes would make programs slow."""
        return prod(sizes) > (4 * self.options.elements or 4000)

    def permutation(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.sample(range(count), count))

    # -- values

    def add(
        self,
        op: str,
        operands: Sequence[Instruction] = (),
        called: Sequence[Computation] = (),
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Appends the op; before that, with the chance `illegal`, tries a spoilt draft of it."""
        cls = OPS[op]
        if op not in UNSPOILT and self.options.illegal and self.chance(self.options.illegal):
            self._spoilt(cls, list(operands), called, dict(attributes))
        return self.append(cls(**attributes), operands, called, shape)

    def append(
        self, op: Op, operands: Sequence[Instruction], called: Sequence[Computation] = (), shape: Shape | None = None
    ) -> Instruction:
        name = self.draw.name(op.opcode)
        if op.result_shape is not None:
            roles = by_role(op, tuple(c.signature() for c in called))
            result = shape or infer_shape(op, [o.shape for o in operands], roles)
            op = op.replace(**{op.result_shape.name: result})
        instruction = self.computation.add(op, operands, called, shape=shape, name=name)
        if instruction.shape.is_array:
            self.arrays.append(instruction)
        elif instruction.shape.is_tuple and op.opcode != "tuple":
            for i, part in enumerate(instruction.shape.elements):
                if part.is_array:
                    self.add("get-tuple-element", [instruction], index=i)
        return instruction

    def _spoilt(
        self, cls: type[Op], operands: list[Instruction], called: Sequence[Computation], attributes: dict[str, Any]
    ) -> None:
        numbers = [name for name, value in attributes.items() if isinstance(value, (int, tuple)) and value != ()]
        if operands and self.arrays and (not numbers or self.chance(0.4)):
            place = self.integer(0, len(operands) - 1)
            kind = self.integer(0, 3)
            if kind == 0:
                operands.pop(place)
            else:
                operands[place] = self.choice(self.arrays)
        elif numbers:
            name = self.choice(numbers)
            attributes[name] = self._off(attributes[name])
        try:
            self.append(cls(**attributes), operands, called)
        except HlokitError as error:
            self.draw.rejections.append(error)

    def _off(self, value: Any) -> Any:
        """A number, or a list of such, that is not quite `value`."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.choice([value + 1, value - 1, -1, 0, 7, 2**31, 2**62, -(2**62), 2**70])
        if not isinstance(value, tuple):
            return value
        parts: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        kind, place = self.integer(0, 3), self.integer(0, max(0, len(parts) - 1))
        if kind == 0 or not parts:
            parts.insert(place, self.choice(parts) if parts else 0)
        elif kind == 1:
            parts.pop(place)
        else:
            parts[place] = self._off(parts[place])
        return tuple(parts)

    def constant(self, shape: Shape, wild: float | None = None) -> Instruction:
        wild = self.options.wild if wild is None else wild
        value = random_array(self.draw.arrays, shape.dtype, shape.dimensions, wild, self.options.denormals)
        return self.add("constant", literal=Literal(shape, value))

    def scalar(self, element: DType, value: Any) -> Instruction:
        return self.add("constant", literal=Literal(element[()], np.asarray(value).astype(element.numpy)))

    def fresh(self, shape: Shape) -> Instruction:
        """A new value of the shape: a parameter of the entry computation, or a constant."""
        if self.depth == 0 and self.chance(0.8):
            return self.parameter(shape)
        return self.constant(shape.logical.static)

    def parameter(self, shape: Shape) -> Instruction:
        if self.options.layouts and shape.rank > 1 and self.chance(0.2):
            shape = shape.with_layout(Layout(self.permutation(shape.rank)))
        return self.add("parameter", shape=shape, number=len(self.computation.parameters), parameter_shape=shape)

    def array(self, *kinds: str, test: Callable[[Shape], bool] = lambda shape: True, **fresh: Any) -> Instruction:
        """A value of one of the kinds (any, without) whose shape passes the test: one that is there, or a new one.

        New ones have `rank` dimensions, none smaller than `least`, of the type `element`: the test must accept those.
        """
        if self.chance(0.9):
            found = [
                v for v in self.arrays if (not kinds or v.shape.dtype.kind in kinds) and test(v.shape)
                and (fresh.get("rank") is None or v.shape.rank == fresh["rank"])
                and (fresh.get("element") is None or v.shape.dtype is fresh["element"])
                and min(v.shape.dimensions, default=9) >= fresh.get("least", 0)
            ]  # fmt: skip
            if found:
                return self.choice(found[-4:] if self.chance(0.5) else found)
        element = fresh.get("element") or self.dtype(*kinds)
        return self.fresh(element[self.sizes(fresh.get("rank"), fresh.get("least", 0))])

    def like(self, shape: Shape) -> Instruction:
        """A value of the same static shape: one that is there, or a new one."""
        found = [v for v in self.arrays if v.shape.static is shape.static]
        return self.choice(found) if found and self.chance(0.9) else self.fresh(shape.static)

    def index(self, low: int = -2, high: int = 7) -> Instruction:
        """A scalar integer, mostly a small one."""
        if self.chance(0.3):
            return self.array("signed", "unsigned", rank=0)
        element = self.choice([dtypes.s32, dtypes.s32, dtypes.s64, dtypes.u32, dtypes.s8])
        return self.scalar(element, abs(self.integer(low, high)) if element is dtypes.u32 else self.integer(low, high))

    # -- computations

    def inner(self, name: str, parameters: Sequence[Shape]) -> Graph:
        """A graph for a called computation with these parameters."""
        graph = Graph(self.draw, name, self.depth + 1)
        for shape in parameters:
            graph.append(OPS["parameter"](number=len(graph.computation.parameters), parameter_shape=shape), ())
        return graph

    def grow(self, count: int, opcodes: Sequence[str] | None = None) -> None:
        """Draws `count` ops."""
        recipes = usable(self.options, opcodes)
        for _ in range(count):
            self.choice(recipes)(self)

    def result(self, *shapes: Shape, as_tuple: bool = False) -> Computation:
        """Ends the computation with values of these static shapes, found or converted from what is there."""
        roots = [self._of(shape) for shape in shapes]
        if len(roots) > 1 or as_tuple:
            roots = [self.add("tuple", roots)]
        self.computation.set_root(roots[0])
        return self.draw.module.add_computation(self.computation)

    def _of(self, shape: Shape) -> Instruction:
        found = [v for v in self.arrays if v.shape.static is shape.static and v.shape.is_dynamic == shape.is_dynamic]
        if found:
            return found[-1] if self.chance(0.8) else self.choice(found)
        found = [v for v in self.arrays if v.shape.dimensions == shape.dimensions and not v.shape.is_dynamic]
        if found and self.chance(0.8):
            value = self.choice(found)
            if value.shape.dtype is shape.dtype:
                return value
            return self.add("convert", [value], output_shape=value.shape.with_dtype(shape.dtype))
        return self.constant(shape.static)


def usable(options: Options, opcodes: Sequence[str] | None = None) -> list[Recipe]:
    """The recipes that the options name or allow, in the registry's order; those with more to go wrong more often.

    opcodes  what a called computation is made of: all of these, if the options name none of them
    """
    names = [n for n in OPS if n in RECIPES and (opcodes is None or n in opcodes)]
    names = [n for n in names if options.devices != (1, 1) or n not in COLLECTIVES]
    names = [n for n in names if options.dynamic or n not in DYNAMIC]
    names = [n for n in names if n in (options.opcodes or ())] or names
    weights = dict(options.weights)
    return [RECIPES[n] for n in names for _ in range((1 if OPS[n].elementwise else 3) * weights.get(n, 1))]


_MOST_ELEMENTS = 5000

DYNAMIC = ("set-dimension-size", "dynamic-reshape")
"""Ops that make dimensions dynamic."""

COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast",
    "replica-id", "partition-id",
)  # fmt: skip
"""Ops of several devices."""

UNSPOILT = ("parameter", "constant")
"""Ops that `illegal` leaves alone: what is wrong with a parameter only its computation shows."""
