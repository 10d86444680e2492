"""Ops that call computations: call, while, conditional, map, ..."""

from typing import Any

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Function
from hlokit.types import dtype as dtypes
from hlokit.types.shape import ProgramShape, Shape


class Call(Op, name="call"):
    """The computation's value on the operands."""

    is_composite: bool = attr(False)

    roles = ("to_apply",)
    form = "control"
    rules = "CALL"
    whole_values = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check(len(operands) == len(to_apply.parameters), "CALL-3", "operands", len(operands), len(to_apply.parameters))
        for i, (operand, parameter) in enumerate(zip(operands, to_apply.parameters, strict=True)):
            check(operand.static is parameter.static, "CALL-4", f"operand {i}", operand, parameter)
        return to_apply.result

    def reference(self, *operands: Any, to_apply: Function) -> Any:
        return to_apply(*operands)


class While(Op, name="while"):
    """state = init; while condition(state): state = body(state)."""

    arity = 1
    roles = ("condition", "body")
    form = "control"
    rules = "WHILE"
    whole_values = True

    def infer(self, init: Shape, condition: ProgramShape, body: ProgramShape) -> Shape:
        check(_takes(condition, init), "WHILE-4", "condition parameters", condition.parameters, f"one of {init}")
        check(condition.result.logical is dtypes.pred[()], "WHILE-4", "condition result", condition.result, "pred[]")
        check(_takes(body, init), "WHILE-5", "body parameters", body.parameters, f"one of {init}")
        check(body.result.static is init.static, "WHILE-6", "body result", body.result, init)
        return init

    def reference(self, init: Any, condition: Function, body: Function) -> Any:
        state = init
        while condition(state):
            state = body(state)
        return state


def _takes(computation: ProgramShape, shape: Shape) -> bool:
    return len(computation.parameters) == 1 and computation.parameters[0].static is shape.static
