"""The cost of a run of a module, counted from shapes alone: operations and bytes moved.

Loops count once, conditionals as their most expensive branch, dynamic dimensions at their bounds. The rules are those
of XLA's own analysis where it says anything sensible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.contraction import Dot
from hlokit.ops.convolution import Convolution
from hlokit.ops.movement import Transpose
from hlokit.types.shape import Shape
from hlokit.types.window import WindowDimension, dilated

_POINTER = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: arithmetic on elements, a multiply-add being two; transcendentals: elements of exp, sin and the like."""

    flops: float = 0
    transcendentals: float = 0
    bytes_accessed: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_accessed + other.bytes_accessed,
        )

    def times(self, count: int) -> Cost:
        """The operations of `count` runs; elements handed to a function of scalars are counted by its caller."""
        return Cost(self.flops * count, self.transcendentals * count)

    def at_least(self, other: Cost) -> Cost:
        return Cost(
            max(self.flops, other.flops),
            max(self.transcendentals, other.transcendentals),
            max(self.bytes_accessed, other.bytes_accessed),
        )

    def properties(self) -> dict[str, float]:
        """Under XLA's names, those that are not zero."""
        named = {
            "flops": self.flops,
            "transcendentals": self.transcendentals,
            "bytes accessed": self.bytes_accessed,
        }
        return {name: float(value) for name, value in named.items() if value}


def cost_of_module(module: HloModule) -> Cost:
    """The cost of one run of the entry computation."""
    costs = costs_of_instructions(module)
    return sum((costs[i] for i in module.entry.instructions), Cost())


def costs_of_instructions(module: HloModule) -> dict[Instruction, Cost]:
    """The cost of one run of each instruction, with what it calls."""
    totals: dict[Computation, Cost] = {}
    costs: dict[Instruction, Cost] = {}
    for computation in module.computations():
        for instruction in computation.instructions:
            costs[instruction] = _cost(instruction, [totals[c] for c in instruction.called])
        totals[computation] = sum((costs[i] for i in computation.instructions), Cost())
    return costs


_MANY = 16
"""Operations that exp, sin and the like count as."""


def operations(instruction: Instruction) -> float:
    """About how many operations a run of one instruction takes. Each instruction of what it calls counts as one, a
    transcendental function as 16.

    A custom call is taken for one that goes through each row or column of its matrices for each element of them.
    """
    if instruction.opcode == "custom-call":
        arrays = [operand.shape for operand in instruction.operands if operand.shape.is_array]
        return sum(shape.size * max(shape.dimensions[-2:], default=1) for shape in arrays)
    called = [sum(_MANY if i.op.transcendental else 1 for i in c.instructions) for c in instruction.called]
    cost = _cost(instruction, [Cost(count) for count in called])
    if instruction.opcode == "sort":
        cost = cost.times(called[0])
    return cost.flops + cost.transcendentals


def _cost(instruction: Instruction, called: list[Cost]) -> Cost:
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        return rule(instruction, called)
    moved = Cost(bytes_accessed=_operand_bytes(instruction) + instruction.shape.nbytes)
    if instruction.op.form != "map" or instruction.opcode == "copy":
        return moved
    count = instruction.shape.size
    return moved + (Cost(transcendentals=count) if instruction.op.transcendental else Cost(count))


def _operand_bytes(instruction: Instruction) -> int:
    return sum(operand.shape.nbytes for operand in instruction.operands)


def _moved(instruction: Instruction, operations: Cost) -> Cost:
    """`operations`, and every operand and the result moved once."""
    return operations + Cost(bytes_accessed=_operand_bytes(instruction) + instruction.shape.nbytes)


# -- rules by opcode: (instruction, cost of each called computation) -> cost


def _free(instruction: Instruction, called: list[Cost]) -> Cost:
    return Cost()


def _tuple(instruction: Instruction, called: list[Cost]) -> Cost:
    return Cost(bytes_accessed=_POINTER * len(instruction.operands))


def _transpose(instruction: Instruction, called: list[Cost]) -> Cost:
    """Free where the data stays where it lies."""
    op = instruction.op
    assert isinstance(op, Transpose)
    if instruction.operands[0].shape.permuted(op.dimensions) is instruction.shape:
        return Cost()
    return _moved(instruction, Cost())


def _slice(instruction: Instruction, called: list[Cost]) -> Cost:
    """Only what is taken is read; so are the indices of dynamic-slice and gather, counted once."""
    indices = sum(o.shape.nbytes for o in instruction.operands[1:2])
    return Cost(bytes_accessed=2 * instruction.shape.nbytes + indices)


def _dynamic_update_slice(instruction: Instruction, called: list[Cost]) -> Cost:
    _, update, *indices = instruction.operands
    return Cost(bytes_accessed=2 * update.shape.nbytes + sum(i.shape.nbytes for i in indices[:1]))


def _scatter(instruction: Instruction, called: list[Cost]) -> Cost:
    """Each update is read, and so is the element it meets, which is written again."""
    count = len(instruction.operands) // 2
    updates = instruction.operands[count + 1 :]
    size = sum(u.shape.nbytes for u in updates)
    moved = Cost(bytes_accessed=instruction.operands[count].shape.nbytes + 3 * size)
    return moved + called[0].times(updates[0].shape.size)


def _dot(instruction: Instruction, called: list[Cost]) -> Cost:
    op = instruction.op
    assert isinstance(op, Dot)
    sizes = instruction.operands[0].shape.dimensions
    depth = math.prod(sizes[d] for d in op.lhs_contracting_dims)
    return _moved(instruction, Cost(2 * depth * instruction.shape.size))


def _convolution(instruction: Instruction, called: list[Cost]) -> Cost:
    """Products with padding and with the holes of dilation are not counted."""
    op = instruction.op
    assert isinstance(op, Convolution)
    lhs, rhs = (operand.shape.dimensions for operand in instruction.operands)
    numbers, output = op.dim_labels, instruction.shape.dimensions
    places = 1
    dimensions = zip(op.window.dimensions, numbers.input_spatial_dimensions, numbers.output_spatial_dimensions)
    for window, base, out in dimensions:
        places *= _products(window, lhs[base], output[out])
    features = rhs[numbers.kernel_input_feature_dimension] * output[numbers.output_feature_dimension]
    return _moved(instruction, Cost(2 * places * features * output[numbers.output_batch_dimension]))


def _products(window: WindowDimension, base: int, output: int) -> int:
    """The number of (window element, output position) pairs of one dimension that meet an element of the base."""
    extent, dilation = dilated(base, window.base_dilation), window.base_dilation
    count = 0
    for k in range(window.size):
        first = k * window.window_dilation - window.padding_low
        count += sum(0 <= (i := first + o * window.stride) < extent and i % dilation == 0 for o in range(output))
    return count


def _reduce(instruction: Instruction, called: list[Cost]) -> Cost:
    result = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
    return _moved(instruction, called[0].times(max(0, instruction.operands[0].shape.size - result.size)))


def _reduce_window(instruction: Instruction, called: list[Cost]) -> Cost:
    result = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
    return _moved(instruction, called[0].times(result.size * max(0, _window_size(instruction) - 1)))


def _select_and_scatter(instruction: Instruction, called: list[Cost]) -> Cost:
    source = instruction.operands[1].shape.size
    select, scatter = called
    picked = select.times(source * max(0, _window_size(instruction) - 1))
    return _moved(instruction, picked + scatter.times(source))


def _window_size(instruction: Instruction) -> int:
    return math.prod(d.size for d in instruction.op.window.dimensions)  # type: ignore[attr-defined]


def _map(instruction: Instruction, called: list[Cost]) -> Cost:
    return _moved(instruction, called[0].times(instruction.shape.size))


def _combined(instruction: Instruction, called: list[Cost]) -> Cost:
    """all-reduce, reduce-scatter: each element of the operands meets one other."""
    count = sum(o.shape.size for o in instruction.operands)
    return _moved(instruction, called[0].times(count))


def _sort(instruction: Instruction, called: list[Cost]) -> Cost:
    count = instruction.operands[0].shape.size
    return _moved(instruction, Cost(count * _log2(count)))


def _fft(instruction: Instruction, called: list[Cost]) -> Cost:
    """Eight operations per element and stage, the stages of each dimension added."""
    stages = sum(map(_log2, instruction.op.fft_length))  # type: ignore[attr-defined]
    return _moved(instruction, Cost(8 * stages * instruction.operands[0].shape.size))


def _log2(count: int) -> int:
    return max(0, count - 1).bit_length()


def _cholesky(instruction: Instruction, called: list[Cost]) -> Cost:
    """Half of the matrix is read, half of the result written."""
    shape = instruction.shape
    return Cost(shape.size * shape.dimensions[-1] // 3, 0, shape.nbytes)


def _triangular_solve(instruction: Instruction, called: list[Cost]) -> Cost:
    a, b = (operand.shape for operand in instruction.operands)
    return Cost(2 * b.size * a.dimensions[-1], 0, a.nbytes / 2 + b.nbytes + instruction.shape.nbytes)


def _random(instruction: Instruction, called: list[Cost]) -> Cost:
    return _moved(instruction, Cost(transcendentals=_elements(instruction.shape)))


def _elements(shape: Shape) -> int:
    return sum(leaf.size for leaf in shape.leaves())


def _calls(instruction: Instruction, called: list[Cost]) -> Cost:
    """call, while: what the called computations cost."""
    return sum(called, Cost())


def _conditional(instruction: Instruction, called: list[Cost]) -> Cost:
    most_expensive = Cost()
    for cost in called:
        most_expensive = most_expensive.at_least(cost)
    return most_expensive


def _fusion(instruction: Instruction, called: list[Cost]) -> Cost:
    """Its operations; between them nothing goes through memory."""
    return _moved(instruction, sum(called, Cost()).times(1))


_RULES: dict[str, Callable[[Instruction, list[Cost]], Cost]] = {
    **dict.fromkeys(("parameter", "constant", "get-tuple-element", "bitcast", "add-dependency", "domain"), _free),
    **dict.fromkeys(("after-all", "get-dimension-size", "replica-id", "partition-id"), _free),
    **dict.fromkeys(("slice", "dynamic-slice", "gather"), _slice),
    **dict.fromkeys(("all-reduce", "all-reduce-start", "reduce-scatter"), _combined),
    **dict.fromkeys(("rng", "rng-bit-generator"), _random),
    **dict.fromkeys(("call", "while", "async-start"), _calls),
    **dict.fromkeys(("sort", "topk"), _sort),
    "tuple": _tuple,
    "transpose": _transpose,
    "dynamic-update-slice": _dynamic_update_slice,
    "scatter": _scatter,
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "map": _map,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "conditional": _conditional,
    "fusion": _fusion,
}
