"""Op functions that exchange values with the host and with other programs, and the tokens that order them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlokit.builder.control import get_tuple_element, tuple_
from hlokit.builder.core import Builder, XlaOp, as_shape, checks_as, emit
from hlokit.errors import ShapeError
from hlokit.hlo.op import check
from hlokit.ops.communication import Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hlokit.ops.structure import AfterAll
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import TOKEN, Shape

__all__ = [
    "ChannelHandle",
    "after_all",
    "create_token",
    "infeed",
    "infeed_with_token",
    "outfeed",
    "outfeed_with_token",
    "recv",
    "recv_from_host",
    "recv_with_token",
    "send",
    "send_to_host",
    "send_with_token",
]

CHANNEL_TYPES = ("device_to_device", "device_to_host", "host_to_device")


@dataclass(frozen=True, slots=True)
class ChannelHandle:
    """A channel between exactly one send and one recv (COMM-3).

    Parameters
    ----------
    handle : int
        The channel's id.
    type : str, optional
        "device_to_device", "device_to_host" or "host_to_device".

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.send(b.constant([1, 2]), hk.ChannelHandle(1)).shape
    token[]
    """

    handle: int
    type: str = "device_to_device"

    def __post_init__(self) -> None:
        if self.type not in CHANNEL_TYPES:
            raise ShapeError("COMM-4", "channel type", self.type, " or ".join(CHANNEL_TYPES))


def create_token(builder: Builder) -> XlaOp:
    """A token that waits for nothing (BEY-53).

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    BuildError
        The builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.create_token(b).shape
    token[]
    """
    return after_all(builder, [])


@checks_as("after-all")
def after_all(builder: Builder, tokens: Sequence[XlaOp]) -> XlaOp:
    """A token that waits for all of `tokens` (TOKEN rules).

    Parameters
    ----------
    tokens : sequence of XlaOp
        The tokens; there may be none.

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    ShapeError
        A constraint does not hold: TOKEN-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> token = hk.after_all(b, [hk.create_token(b), hk.create_token(b)])
    >>> token.shape
    token[]
    """
    for token in tokens:
        check(token.shape.is_token, "TOKEN-4", "operand", token.shape, "a token")
    return builder.emit(AfterAll(), list(tokens))


def infeed(builder: Builder, shape: Shape | DType, config: str = "") -> XlaOp:
    """The next item of the device's infeed queue, of `shape` (INFEED rules).

    Infeeds of one builder run in the order of the calls (INFEED-5). From the second infeed on a warning is given,
    because only infeed_with_token states the order in the program.

    Parameters
    ----------
    shape : Shape or DType
        The shape of the item: an array's, or a tuple of arrays'.
    config : str, optional
        Text that is stored with the instruction.

    Returns
    -------
    XlaOp
        The item.

    Raises
    ------
    ShapeError
        A constraint does not hold: INFEED-3, INFEED-5, INFEED-7, INFEED-10.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.infeed(b, hk.f32[2]))
    >>> hk.evaluate(module, infeed=[np.float32([1.0, 2.0])])
    array([1., 2.], dtype=float32)
    """
    token = builder.infeed_token
    if token is not None:
        warnings.warn("infeeds without tokens are chained in the order of the calls", stacklevel=2)
    result = infeed_with_token(create_token(builder) if token is None else token, shape, config)
    data = get_tuple_element(result, 0)
    builder.infeed_token = get_tuple_element(result, 1)
    return data


def infeed_with_token(token: XlaOp, shape: Shape | DType, config: str = "") -> XlaOp:
    """(item, token): the next item of the infeed queue, of `shape`: an array or a tuple of arrays (INFEED rules).

    Parameters
    ----------
    shape : Shape or DType
        The shape of the item: an array's, or a tuple of arrays'.
    config : str, optional
        Text that is stored with the instruction.

    Returns
    -------
    XlaOp
        The tuple (item, token).

    Raises
    ------
    ShapeError
        INFEED-10 unless `token` is a token, INFEED-7 for nested tuples.

    Examples
    --------
    >>> b = hk.Builder()
    >>> item, token = hk.infeed_with_token(hk.create_token(b), hk.f32[2])
    >>> hk.evaluate(b.build(item), infeed=[np.float32([1.0, 2.0])])
    array([1., 2.], dtype=float32)
    """
    result = Shape.tuple((as_shape(shape), TOKEN))
    return emit(Infeed(config, result), token, shape=result)


def outfeed(operand: XlaOp, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """Appends the operand to the outfeed queue; the result is an empty tuple (OUTFEED rules).

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays.
    shape_with_layout : Shape
        The operand's shape, with the layout of the item in the queue.
    outfeed_config : str, optional
        Text that is stored with the instruction.

    Returns
    -------
    XlaOp
        An empty tuple.

    Raises
    ------
    ShapeError
        A constraint does not hold: OUTFEED-3, OUTFEED-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.outfeed(b.constant([1, 2]), hk.s32[2]))
    >>> hk.evaluate(module, return_outfeed=True)
    ((), [array([1, 2], dtype=int32)])
    """
    outfeed_with_token(operand, create_token(operand.builder), shape_with_layout, outfeed_config)
    return tuple_(operand.builder, [])


def outfeed_with_token(operand: XlaOp, token: XlaOp, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """Appends the operand to the outfeed queue; a token (OUTFEED rules).

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays.
    shape_with_layout : Shape
        The operand's shape, with the layout of the item in the queue.
    outfeed_config : str, optional
        Text that is stored with the instruction.

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    ShapeError
        OUTFEED-3 unless the shape is the operand's, OUTFEED-4 unless `token` is a token.

    Examples
    --------
    >>> b = hk.Builder()
    >>> token = hk.outfeed_with_token(b.constant([1, 2]), hk.create_token(b), hk.s32[2])
    >>> hk.evaluate(b.build(b.constant(0)), return_outfeed=True)
    (array(0, dtype=int32), [array([1, 2], dtype=int32)])
    """
    return emit(Outfeed(shape_with_layout, outfeed_config), operand, token)


@checks_as("send")
def send(operand: XlaOp, channel_handle: ChannelHandle) -> XlaOp:
    """Sends the operand to the recv on the channel; a token, which carries no data (COMM-1).

    Parameters
    ----------
    operand : XlaOp
        An array.

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    ShapeError
        The channel is a host channel (COMM-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.send(b.constant([1, 2]), hk.ChannelHandle(1)).shape
    token[]
    """
    return send_with_token(operand, create_token(operand.builder), channel_handle)


@checks_as("send")
def send_with_token(operand: XlaOp, token: XlaOp, handle: ChannelHandle) -> XlaOp:
    """Sends the operand to the recv on the channel; a token (COMM rules).

    Parameters
    ----------
    operand : XlaOp
        An array.

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    ShapeError
        A constraint does not hold: COMM-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.send_with_token(b.constant([1, 2]), hk.create_token(b), hk.ChannelHandle(1)).shape
    token[]
    """
    _check_type(handle, "device_to_device", "COMM-4")
    return _send(operand, token, handle.handle, False)


@checks_as("send")
def send_to_host(operand: XlaOp, token: XlaOp, shape_with_layout: Shape, handle: ChannelHandle) -> XlaOp:
    """Sends an array to the host; a token (COMM-14). `handle` is of type device_to_host.

    Parameters
    ----------
    operand : XlaOp
        An array.
    shape_with_layout : Shape
        The operand's shape, with the layout in which the host receives it.

    Returns
    -------
    XlaOp
        A token.

    Raises
    ------
    ShapeError
        `token` is not a token, the channel is not device_to_host, or the shape is not the operand's: COMM-4, COMM-15.

    Examples
    --------
    >>> b = hk.Builder()
    >>> host = hk.ChannelHandle(1, "device_to_host")
    >>> hk.send_to_host(b.constant([1, 2]), hk.create_token(b), hk.s32[2], host).shape
    token[]
    """
    _check_type(handle, "device_to_host", "COMM-14")
    if not operand.shape.is_array or operand.shape.static is not shape_with_layout.static:
        raise ShapeError("COMM-14", "shape_with_layout", shape_with_layout, operand.shape)
    return _send(operand, token, handle.handle, True)


def recv(builder: Builder, shape: Shape | DType, channel_handle: ChannelHandle) -> XlaOp:
    """The value of `shape` that was sent on the channel (COMM-2).

    Returns
    -------
    XlaOp
        The value that was sent.

    Raises
    ------
    ShapeError
        `shape` is not a shape (SHAPE-1), or the channel is a host channel (COMM-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.recv(b, hk.s32[2], hk.ChannelHandle(1)).shape
    s32[2]
    """
    return get_tuple_element(recv_with_token(create_token(builder), shape, channel_handle), 0)


@checks_as("recv")
def recv_with_token(token: XlaOp, shape: Shape | DType, handle: ChannelHandle) -> XlaOp:
    """(data, token): the value that was sent on the channel (COMM rules).

    Returns
    -------
    XlaOp
        The tuple (data, token).

    Raises
    ------
    ShapeError
        A constraint does not hold: COMM-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> data, token = hk.recv_with_token(hk.create_token(b), hk.s32[2], hk.ChannelHandle(1))
    >>> data.shape
    s32[2]
    """
    _check_type(handle, "device_to_device", "COMM-4")
    return _recv(token, as_shape(shape), handle.handle, False)


@checks_as("recv")
def recv_from_host(token: XlaOp, shape: Shape | DType, handle: ChannelHandle) -> XlaOp:
    """(data, token): an array from the host (COMM-14). `handle` is of type host_to_device.

    Parameters
    ----------
    shape : Shape or DType
        The shape of the array.

    Returns
    -------
    XlaOp
        The tuple (data, token).

    Raises
    ------
    ShapeError
        `token` is not a token, or the channel is not host_to_device: COMM-4, COMM-15.

    Examples
    --------
    >>> b = hk.Builder()
    >>> data, token = hk.recv_from_host(hk.create_token(b), hk.s32[2], hk.ChannelHandle(1, "host_to_device"))
    >>> data.shape
    s32[2]
    """
    _check_type(handle, "host_to_device", "COMM-14")
    wanted = as_shape(shape)
    if not wanted.is_array:
        raise ShapeError("COMM-14", "shape", wanted, "an array")
    return _recv(token, wanted, handle.handle, True)


def _send(operand: XlaOp, token: XlaOp, channel: int, is_host_transfer: bool) -> XlaOp:
    context = emit(Send(channel, is_host_transfer), operand, token)
    return emit(SendDone(channel, is_host_transfer), context)


def _recv(token: XlaOp, shape: Shape, channel: int, is_host_transfer: bool) -> XlaOp:
    context = Shape.tuple((shape, dtypes.u32[()], TOKEN))
    buffer = emit(Recv(channel, is_host_transfer, context), token, shape=context)
    return emit(RecvDone(channel, is_host_transfer), buffer)


def _check_type(handle: Any, wanted: str, label: str) -> None:
    if not isinstance(handle, ChannelHandle) or handle.type != wanted:
        raise ShapeError(label, "channel handle", handle, f"one of type {wanted}")
