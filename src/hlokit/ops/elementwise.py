"""Elementwise ops."""

from typing import Annotated, Any, ClassVar

import numpy as np

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import choice
from hlokit.types.shape import Shape


class Binary(Op):
    """out[i] = f(lhs[i], rhs[i]); operands of one shape and element type (BUILDER-15)."""

    arity = 2
    form = "map"
    elementwise = True

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check(lhs.static is rhs.static, "BIN-2", "operands", (lhs, rhs), "one shape")
        return lhs


class Add(Binary, name="add"):
    rules = "BIN"
    commutative = True

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return np.add(lhs, rhs)


class Compare(Op, name="compare"):
    """lhs direction rhs, as pred."""

    direction: Annotated[str, choice("direction", "EQ", "NE", "GE", "GT", "LE", "LT")] = attr(proto="comparison_direction")

    arity = 2
    form = "map"
    rules = "CMP"
    elementwise = True
    functions: ClassVar[dict[str, np.ufunc]] = {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less}

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check(lhs.static is rhs.static, "CMP-2", "operands", (lhs, rhs), "one shape")
        return lhs.with_dtype(dtypes.pred)

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return self.functions[self.direction](lhs, rhs)
