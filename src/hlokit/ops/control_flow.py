"""Ops that call computations (call, while, conditional, map, fusion), and identities that only order or mark values."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self

import numpy as np

from hlokit.errors import EvaluationError, ShapeError
from hlokit.forms.cost import Cost, moved
from hlokit.forms.emitter import Emitter, Value
from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array, Dynamic, Function
from hlokit.ops.numerics import convert
from hlokit.ops.structure import GetTupleElement
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import DOMAIN, OPTIONAL_INT_LIST, Aliasing, choice
from hlokit.types.shape import ProgramShape, Shape
from hlokit.types.sharding import Sharding

FUSION_KIND = choice("fusion kind", "kLoop", "kInput", "kOutput", "kCustom")


class Call(Op, name="call"):
    """The computation's value on the operands."""

    is_composite: bool = attr(False, unsaid=(True,))  # XLA writes it after the computation: the printer does

    rounding = None
    roles = ("to_apply",)
    form = "control"
    rules = "CALL"
    calls_through = True
    whole_values = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        _check_arguments(operands, to_apply, "CALL-3", "CALL-4")
        return to_apply.result

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return sum(called, Cost())

    def reference(self, *operands: Any, to_apply: Function) -> Any:
        return to_apply(*operands)


class Fusion(Op, name="fusion"):
    """The computation's value on the operands, to be computed by one kernel (BEY-55)."""

    example = """
        %negated (p: f32[2]) -> f32[2] {
          %p = f32[2] parameter(0)
          ROOT %n = f32[2] negate(%p)
        }

        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          ROOT %y = f32[2] fusion(%x), kind=kLoop, calls=%negated
        }
    """

    kind: Annotated[str, FUSION_KIND] = attr(proto="fusion_kind")
    output_to_operand_aliasing: Aliasing = attr((), proto="output_operand_aliasing")

    roles = ("calls",)
    form = "control"
    rules = "HOP-40"
    calls_through = True
    shape_required = True
    whole_values = True

    def infer(self, *operands: Shape, calls: ProgramShape) -> Shape:
        _check_arguments(operands, calls, "HOP-40", "HOP-40")
        if self.output_to_operand_aliasing:
            _check_aliasing(self.output_to_operand_aliasing, operands, calls.result)
        return calls.result

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Between its operations nothing goes through memory."""
        return moved(operands, result) + sum(called, Cost()).times(1)

    def reference(self, *operands: Any, calls: Function) -> Any:
        return calls(*operands)


class Map(Op, name="map"):
    """The result of a computation of scalars at every index of the operands, which have the same dimensions."""

    dimensions: Annotated[tuple[int, ...] | None, OPTIONAL_INT_LIST] = attr(None)

    rounding = SUMMED
    roles = ("to_apply",)
    form = "map"
    computes_wide = False
    rules = "MAP"
    whole_values = True

    def completed(self, operands: Sequence[Shape]) -> Self:
        return self if self.dimensions is not None or not operands else type(self)(tuple(range(operands[0].rank)))

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check(len(operands) > 0, "MAP-3", "operands", 0, "at least one")
        first = operands[0]
        for operand in operands:
            check(operand.is_array, "MAP-4", "operand", operand, "an array")
            check(operand.dimensions == first.dimensions, "MAP-4", "operand dimensions", operand, first)
        everything = tuple(range(first.rank))
        check(self.dimensions == everything, "MAP-6", "dimensions", self.dimensions, everything)
        scalars, found = [operand.dtype[()] for operand in operands], [p.static for p in to_apply.parameters]
        alike = len(found) == len(scalars) and all(
            a is b or (a.is_scalar and a.dtype.is_floating and b.dtype.is_floating)
            for a, b in zip(found, scalars, strict=True)
        )
        check(alike, "MAP-7", "to_apply parameters", found, scalars)
        check(to_apply.result.is_scalar, "MAP-7", "to_apply result", to_apply.result, "a scalar")
        return to_apply.result.dtype[first.dimensions]

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return moved(operands, result) + called[0].times(result.size)

    def reference(self, *operands: Any, to_apply: Function, shape: Shape) -> Array:
        types = [parameter.shape.dtype.numpy for parameter in to_apply.computation.parameters]
        arrays = (_whole_buffer(operand, shape.dimensions) for operand in operands)
        return to_apply.batched(*(a if a.dtype == t else convert(a, t) for a, t in zip(arrays, types, strict=True)))

    def scalar(self, emit: Emitter, *values: Value, to_apply: Callable[..., Value]) -> Value:
        return to_apply(*values)


class While(Op, name="while"):
    """state = init; while condition(state): state = body(state).

    The state is a tuple where there are several values; `hk.while_loop` makes a loop from functions of these:
    `i, y = hk.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y), (i, y))`.
    """

    rounding = None
    arity = 1
    roles = ("condition", "body")
    calls_reversed = True
    form = "control"
    rules = "WHILE"
    whole_values = True

    def infer(self, init: Shape, condition: ProgramShape, body: ProgramShape) -> Shape:
        check(_takes(condition, init), "WHILE-4", "condition parameters", condition.parameters, f"one of {init}")
        check(condition.result.logical is dtypes.pred[()], "WHILE-4", "condition result", condition.result, "pred[]")
        check(_takes(body, init), "WHILE-5", "body parameters", body.parameters, f"one of {init}")
        check(body.result.static is init.static, "WHILE-6", "body result", body.result, init)
        return init

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """The condition and the body count once."""
        return sum(called, Cost())

    def reference(self, init: Any, condition: Function, body: Function) -> Any:
        state, passes = init, 0
        while condition(state):
            state = body(state)
            passes += 1
            check_ends(condition.computation, body.computation, passes)
        return state


_MANY = 100
"""After so many passes it pays to ask whether a loop can end at all."""


def check_ends(condition: Computation, body: Computation, passes: int) -> None:
    """Raises EvaluationError for a loop that can be seen, after so many passes, never to end (WHILE-7)."""
    if passes == _MANY and is_fixed(condition, body):
        raise EvaluationError("the loop never ends: nothing that its condition depends on changes [WHILE-7]")


def is_fixed(condition: Computation, body: Computation) -> bool:
    """Whether a loop's condition has the same value before each pass, and the loop no other effect than its value.

    It depends, then, on nothing but elements of the state that the body hands on as they are.
    """
    taken, given = body.parameters[0], body.root
    pending, seen = [condition.root], {condition.root}
    while pending:
        instruction = pending.pop()
        if instruction.opcode == "parameter" and given is not taken:
            return False
        if isinstance(instruction.op, GetTupleElement) and instruction.operands[0].opcode == "parameter":
            if not _is_handed_on(taken, given, instruction.op.index):
                return False
            continue
        pending += [operand for operand in instruction.operands if operand not in seen]
        seen.update(instruction.operands)
    known: dict[Computation, bool] = {}
    return not any(has_side_effect(i, known) for called in (condition, body) for i in called.instructions)


def _is_handed_on(taken: Instruction, given: Instruction, index: int) -> bool:
    """Whether that element of what a computation gives is the same element of its parameter."""
    if given is taken:
        return True
    if given.opcode != "tuple":
        return False
    element = given.operands[index]
    return isinstance(element.op, GetTupleElement) and element.op.index == index and element.operands[0] is taken


class Conditional(Op, name="conditional"):
    """The value of one branch on its own operand: a true pred selects the first of two, an s32 selects by number.

    A number outside [0, N) selects the last branch. The branches of a pred selector are written as
    true_computation and false_computation, those of an s32 one as branch_computations (HOP-20).
    """

    rounding = None
    list_roles = ("branch_computations",)
    form = "control"
    rules = "COND"
    whole_values = True

    def infer(self, selector: Shape, *operands: Shape, branch_computations: Sequence[ProgramShape] = ()) -> Shape:
        branches = branch_computations
        is_selector = selector.logical is dtypes.pred[()] or selector.logical is dtypes.s32[()]
        check(is_selector, "COND-2", "selector", selector, "pred[] or s32[]")
        check(len(branches) >= 1, "COND-4", "branch_computations", 0, "at least one")
        check(len(operands) == len(branches), "COND-4", "branch operands", len(operands), len(branches))
        if selector.dtype is dtypes.pred:
            check(len(branches) == 2, "COND-2", "branches of a pred selector", len(branches), 2)
        result = branches[0].result
        for number, (operand, branch) in enumerate(zip(operands, branches, strict=True)):
            if not _takes(branch, operand):
                raise ShapeError("COND-5", f"branch {number} parameters", branch.parameters, f"one of {operand}")
            if branch.result.static is not result.static:
                raise ShapeError("COND-6", f"branch {number} result", branch.result, result)
            result = _merge_dynamic(result, branch.result)
        return result

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """The dearest branch counts."""
        found = Cost()
        for branch in called:
            found = found.at_least(branch)
        return found

    def reference(self, selector: Array, *operands: Any, branch_computations: Sequence[Function]) -> Any:
        number = self.branch(selector, len(operands))
        return branch_computations[number](operands[number])

    @staticmethod
    def branch(selector: Array, count: int) -> int:
        """The number of the branch that a selector's value chooses, of so many (COND-2)."""
        if selector.dtype == np.bool_:
            return 0 if selector else 1
        return int(selector) if 0 <= selector < count else count - 1


class AddDependency(Op, name="add-dependency"):
    """The first operand, available only after the token (BEY-54)."""

    example = """
        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          %after = token[] after-all()
          ROOT %y = f32[2] add-dependency(%x, %after)
        }
    """

    arity = 2
    form = "control"
    free = True
    rules = "BEY-54"
    passes_on = True
    whole_values = True

    def infer(self, operand: Shape, token: Shape) -> Shape:
        check(token.is_token, "BEY-54", "operand 1", token, "a token")
        return operand

    def reference(self, operand: Any, token: Any) -> Any:
        return operand


class Domain(Op, name="domain"):
    """The operand; marks where the sharding `exit` ends and `entry` begins (BEY-54)."""

    example = """
        ENTRY %main (x: f32[2]) -> f32[2] {
          %x = f32[2] parameter(0)
          ROOT %y = f32[2] domain(%x), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}
        }
    """

    domain: Annotated[tuple[str, Sharding, Sharding], DOMAIN] = attr()

    arity = 1
    form = "control"
    free = True
    rules = "BEY-54"
    passes_on = True
    whole_values = True

    def infer(self, operand: Shape) -> Shape:
        return operand

    def reference(self, operand: Any) -> Any:
        return operand


def _takes(computation: ProgramShape, shape: Shape) -> bool:
    return len(computation.parameters) == 1 and computation.parameters[0].static is shape.static


def _check_arguments(operands: Sequence[Shape], called: ProgramShape, count_label: str, shape_label: str) -> None:
    check(len(operands) == len(called.parameters), count_label, "operands", len(operands), len(called.parameters))
    for i, (operand, parameter) in enumerate(zip(operands, called.parameters, strict=True)):
        check(operand.static is parameter.static, shape_label, f"operand {i}", operand, parameter)


def _check_aliasing(aliasing: Aliasing, operands: Sequence[Shape], result: Shape) -> None:
    """HOP-40: every pair names an existing output and operand part of the same shape."""
    for output_index, number, operand_index in aliasing:
        check(0 <= number < len(operands), "HOP-40", "aliased operand", number, f"in [0, {len(operands)})")
        try:
            output, operand = result.at(output_index), operands[number].at(operand_index)
        except IndexError as error:
            raise ShapeError("HOP-40", "output_to_operand_aliasing", error, "indices that exist") from error
        check(output.static is operand.static, "HOP-40", "aliased operand", operand, output)


def _merge_dynamic(a: Shape, b: Shape) -> Shape:
    """`a` with the dimensions dynamic that are so in `a` or in `b`, a shape with the same sizes (COND-10)."""
    if a is b or not (a.is_dynamic or b.is_dynamic):
        return a
    if a.is_tuple:
        return Shape.tuple(map(_merge_dynamic, a.elements, b.elements))
    return a.with_dynamic([x or y for x, y in zip(a.dynamic, b.dynamic, strict=True)])


def _whole_buffer(value: Any, sizes: tuple[int, ...]) -> Array:
    """An array of the bound's size: map has a static result and looks at padding too (DYN-10)."""
    if isinstance(value, Dynamic):
        return value.buffer
    if value.shape == sizes:
        return value
    buffer = np.zeros(sizes, value.dtype)
    buffer[tuple(map(slice, value.shape))] = value
    return buffer
