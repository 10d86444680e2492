"""Ops that split an operation into a start and a done, so that it may overlap with others (HASYNC rules).

The interpreter computes at the start (HASYNC-6). That each start has one chain ending in one done, and that an
update or done belongs to a start of its kind, is for the verifier to check (HASYNC-7).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.forms.cost import Cost
from hlokit.hlo.communication import CommunicationTraits
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import TOKEN_VALUE, Function
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import ResultShape
from hlokit.types.shape import ProgramShape, Shape

_ASYNC_EXAMPLE = """
    %negated (p: f32[2]) -> f32[2] {
      %p = f32[2] parameter(0)
      ROOT %n = f32[2] negate(%p)
    }

    ENTRY %main (x: f32[2]) -> f32[2] {
      %x = f32[2] parameter(0)
      %start = ((f32[2]), f32[2]) async-start(%x), calls=%negated
      %update = ((f32[2]), f32[2]) async-update(%start)
      ROOT %done = f32[2] async-done(%update)
    }
"""


class AsyncStart(Op, name="async-start"):
    """Begins the called computation on another thread; the state holds ((operands), result, ...)."""

    example = _ASYNC_EXAMPLE

    async_execution_thread: str = attr("main")
    state: ResultShape

    roles = ("calls",)
    communication = CommunicationTraits(stage="start", keeps_operands=True)
    form = "control"
    rules = "HASYNC"
    whole_values = True

    def infer(self, *operands: Shape, calls: ProgramShape) -> Shape:
        check(len(operands) == len(calls.parameters), "HASYNC-1", "operands", len(operands), len(calls.parameters))
        for i, (operand, parameter) in enumerate(zip(operands, calls.parameters, strict=True)):
            check(operand.static is parameter.static, "HASYNC-1", f"operand {i}", operand, parameter)
        wanted = Shape.tuple((Shape.tuple(operands), calls.result))
        found = Shape.tuple(self.state.elements[:2])
        check(found.static is wanted.static, "HASYNC-1", "result shape", self.state, f"{wanted} and states")
        return self.state

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return sum(called, Cost())

    def reference(self, *operands: Any, calls: Function) -> Any:
        return (operands, calls(*operands), *map(placeholder, self.state.elements[2:]))


class AsyncUpdate(Op, name="async-update"):
    """The state of a running asynchronous operation, one step later."""

    example = _ASYNC_EXAMPLE

    arity = 1
    passes_on = True
    form = "control"
    rules = "HASYNC"
    communication = CommunicationTraits(stage="update", waits_for=("async-start", "async-update"))
    shape_required = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        _check_state(state)
        return state

    def reference(self, state: Any) -> Any:
        return state


class AsyncDone(Op, name="async-done"):
    """Waits for the operation and returns its result."""

    example = _ASYNC_EXAMPLE

    arity = 1
    picks = 1
    form = "control"
    rules = "HASYNC"
    communication = CommunicationTraits(stage="done", waits_for=("async-start", "async-update"))
    shape_required = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        _check_state(state)
        return state.elements[1]

    def reference(self, state: Any) -> Any:
        return state[1]


_COPY_EXAMPLE = """
    ENTRY %main (x: f32[2]) -> f32[2] {
      %x = f32[2] parameter(0)
      %start = (f32[2], f32[2], u32[]) copy-start(%x)
      ROOT %done = f32[2] copy-done(%start)
    }
"""


class CopyStart(Op, name="copy-start"):
    """Begins a copy, perhaps into another memory; the state holds (copy, operand, u32 context)."""

    example = _COPY_EXAMPLE

    cross_program_prefetch_index: int | None = attr(None)

    arity = 1
    form = "control"
    rules = "HOP-41"
    communication = CommunicationTraits(stage="start")
    shape_required = True
    whole_values = True

    def infer(self, operand: Shape) -> Shape:
        return Shape.tuple((operand, operand, dtypes.u32[()]))

    def reference(self, operand: Any) -> Any:
        return operand, operand, placeholder(dtypes.u32[()])


class CopyDone(Op, name="copy-done"):
    """Waits for a copy and returns it."""

    example = _COPY_EXAMPLE

    arity = 1
    picks = 0
    form = "control"
    rules = "HOP-41"
    communication = CommunicationTraits(stage="done", waits_for=("copy-start",))
    shape_required = True
    whole_values = True

    def infer(self, state: Shape) -> Shape:
        good = state.is_tuple and len(state.elements) == 3
        check(good, "HOP-41", "operand", state, "a copy-start's (out, in, u32[])")
        return state.elements[0]

    def reference(self, state: Any) -> Any:
        return state[0]


def placeholder(shape: Shape) -> Any:
    """A value of `shape` that nothing looks at: contexts, buffers not yet filled. Takes no memory."""
    if shape.is_tuple:
        return tuple(map(placeholder, shape.elements))
    if not shape.is_array:
        return TOKEN_VALUE
    return np.broadcast_to(np.zeros((), shape.dtype.numpy), shape.dimensions)


def _check_state(state: Shape) -> None:
    good = state.elements[1:] != () and state.elements[0].is_tuple
    check(good, "HASYNC-1", "operand", state, "an async-start's ((operands), result, ...)")
