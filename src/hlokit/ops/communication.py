"""Ops that exchange values with the host or with other programs: infeed, outfeed, send, recv.

A recv says that its device is ready for a value, a send then hands one over, a recv-done takes the next one.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from hlokit.errors import EvaluationError, HlokitError
from hlokit.hlo.communication import CommunicationTraits
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import TOKEN_VALUE, Array, Device
from hlokit.ops.asynchronous import placeholder
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import OPTIONAL_SHAPE, ResultShape
from hlokit.types.literal import as_array
from hlokit.types.shape import TOKEN, Shape

_CONTEXT = dtypes.u32[()]


class Infeed(Op, name="infeed"):
    """The next value of the device's infeed queue, and a token."""

    infeed_config: str = attr("")
    result: ResultShape

    arity = 1
    form = "communicate"
    rules = "INFEED"
    side_effect = True

    def infer(self, token: Shape) -> Shape:
        check(token.is_token, "INFEED-10", "operand", token, "a token")
        result = self.result
        good = result.is_tuple and len(result.elements) == 2 and result.elements[1].is_token
        check(good, "INFEED-1", "result shape", result, "(data, token[])")
        data = result.elements[0]
        for part in data.elements if data.is_tuple else (data,):
            check(part.is_array, "INFEED-7", "data", data, "an array or a tuple of arrays")
        return result

    def reference(self, token: Any, process: Device) -> Any:
        data = self.result.elements[0]
        if data.is_tuple and not data.elements:
            return (), TOKEN_VALUE
        item = process.next_infeed()
        if not data.is_tuple:
            return _read(item, data), TOKEN_VALUE
        parts = _parts(item)
        if len(parts) != len(data.elements):
            raise EvaluationError(f"infeed: the item is not a tuple for {data} [INFEED-4]")
        return tuple(map(_read, parts, data.elements)), TOKEN_VALUE


class Outfeed(Op, name="outfeed"):
    """Appends the operand to the device's outfeed queue."""

    outfeed_shape: Annotated[Shape | None, OPTIONAL_SHAPE] = attr(None)
    outfeed_config: str = attr("")

    arity = 2
    form = "communicate"
    rules = "OUTFEED"
    shape_required = shape_ignored = True
    side_effect = True

    def completed(self, operands: Sequence[Shape]) -> Self:
        return self if self.outfeed_shape is not None or not operands else type(self)(operands[0], self.outfeed_config)

    def infer(self, operand: Shape, token: Shape) -> Shape:
        check(token.is_token, "OUTFEED-4", "operand 1", token, "a token")
        shape = self.outfeed_shape
        check(shape is not None and shape.static is operand.static, "OUTFEED-3", "outfeed_shape", shape, operand)
        return TOKEN

    def reference(self, operand: Any, token: Any, process: Device) -> Any:
        process.write_outfeed(operand)
        return TOKEN_VALUE


class Send(Op, name="send"):
    """Begins the transfer of the operand to the recv on the same channel; the context is (data, u32, token)."""

    channel_id: int | None = attr(None)
    is_host_transfer: bool = attr(False)

    arity = 2
    form = "communicate"
    rules = "COMM"
    communication = CommunicationTraits(stage="start", peer="send")
    shape_required = shape_ignored = True
    side_effect = True

    def infer(self, operand: Shape, token: Shape) -> Shape:
        check(token.is_token, "COMM-5", "operand 1", token, "a token")
        return Shape.tuple((operand, _CONTEXT, TOKEN))

    def reference(self, operand: Any, token: Any, process: Device) -> Any:
        (process.send_to_host if self.is_host_transfer else process.send)(self.channel_id or 0, operand)
        return operand, placeholder(_CONTEXT), TOKEN_VALUE


class SendDone(Op, name="send-done"):
    """Waits until the transfer is done."""

    channel_id: int | None = attr(None)
    is_host_transfer: bool = attr(False)

    arity = 1
    form = "communicate"
    rules = "COMM"
    communication = CommunicationTraits(stage="done", waits_for=("send",), peer="send")
    shape_required = True
    side_effect = True

    def infer(self, context: Shape) -> Shape:
        _check_context(context, "COMM-6", "operand")
        return TOKEN

    def reference(self, context: Any) -> Any:
        return TOKEN_VALUE


class Recv(Op, name="recv"):
    """Begins to receive from the send on the same channel; the context is (buffer, u32, token)."""

    channel_id: int | None = attr(None)
    is_host_transfer: bool = attr(False)
    context: ResultShape

    arity = 1
    form = "communicate"
    rules = "COMM"
    communication = CommunicationTraits(stage="start", peer="recv")
    side_effect = True

    def infer(self, token: Shape) -> Shape:
        check(token.is_token, "COMM-7", "operand", token, "a token")
        _check_context(self.context, "HOP-30", "result shape")
        return self.context

    def reference(self, token: Any, process: Device) -> Any:
        if not self.is_host_transfer:
            process.offer(self.channel_id or 0)
        return placeholder(self.context)


class RecvDone(Op, name="recv-done"):
    """Waits for the transfer and returns (data, token)."""

    channel_id: int | None = attr(None)
    is_host_transfer: bool = attr(False)

    arity = 1
    form = "communicate"
    rules = "COMM"
    communication = CommunicationTraits(stage="done", waits_for=("recv",), peer="recv")
    shape_required = shape_ignored = True
    side_effect = True
    whole_values = True

    def infer(self, context: Shape) -> Shape:
        _check_context(context, "COMM-8", "operand")
        return Shape.tuple((context.elements[0], TOKEN))

    def reference(self, context: Any, process: Device, shape: Shape) -> Any:
        channel = self.channel_id or 0
        data = shape.elements[0]
        if self.is_host_transfer:
            return _read(process.receive_from_host(channel), data, "recv-done", "COMM-14"), TOKEN_VALUE
        value = process.receive(channel)
        if value is None:
            return placeholder(data), TOKEN_VALUE
        if not _is_of(value, data):
            raise EvaluationError(f"recv-done: what was sent on channel {channel} is not {data} [COMM-3]")
        return value, TOKEN_VALUE


def _check_context(context: Shape, label: str, what: str) -> None:
    elements = context.elements
    good = context.is_tuple and len(elements) == 3 and elements[1].logical is _CONTEXT and elements[2].is_token
    check(good, label, what, context, "(data, u32[], token[])")


def _parts(item: Any) -> Sequence[Any]:
    return item if isinstance(item, (tuple, list)) else ()  # pyright: ignore[reportUnknownVariableType]


def _read(item: Any, shape: Shape, what: str = "infeed", label: str = "INFEED-4") -> Array:
    """An item of the infeed queue, or one that the host sends, as an array of `shape` (INFEED-4)."""
    if not shape.is_array:
        raise EvaluationError(f"{what}: an item is an array, not {shape} [{label}]")
    weak = isinstance(item, (bool, int, float, complex, list, tuple))
    try:
        array = as_array(item, shape.dtype if weak else None)
    except (HlokitError, TypeError, ValueError, OverflowError) as error:
        raise EvaluationError(f"{what}: the item cannot be read as {shape}: {error} [{label}]") from error
    if not _is_of(array, shape):
        raise EvaluationError(f"{what}: the item is {array.dtype}{list(array.shape)}, not {shape} [{label}]")
    return array


def _is_of(value: Any, shape: Shape) -> bool:
    """Whether a run-time value has this shape (at most the bound, in dynamic dimensions)."""
    if shape.is_tuple:
        return len(value) == len(shape.elements) and all(map(_is_of, value, shape.elements))
    if not shape.is_array:
        return True
    if value.dtype != shape.dtype.numpy or value.ndim != shape.rank:
        return False
    return all(n == d or (f and n <= d) for n, d, f in zip(value.shape, shape.dimensions, shape.dynamic, strict=True))
