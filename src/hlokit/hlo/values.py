"""Run-time values, as an op's reference sees them: ndarrays, tuples of values, tokens, dynamic arrays, functions.

The protocols list what a reference may ask the interpreter for, so that ops need not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np

from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction

Array: TypeAlias = np.ndarray[Any, Any]


def is_ndarray(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def fits(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Whether run-time sizes are the shape's dimensions, or at most the bounds of the dynamic ones."""
    if len(sizes) != shape.rank:
        return False
    return all(
        n == d or (f and (n <= d or d < 0)) for n, d, f in zip(sizes, shape.dimensions, shape.dynamic, strict=True)
    )


def is_sequence(value: object) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    """A tuple or list: the value of a tuple."""
    return isinstance(value, (tuple, list))


class TokenValue:
    """The run-time value of a token: it carries no data (TOKEN-1)."""

    def __repr__(self) -> str:
        return "token"


TOKEN_VALUE = TokenValue()


class Dynamic:
    """An array in a buffer of its bound's size; only the first `sizes` elements of each dimension count (SDS-5).

    Most references see `valid` alone, an ordinary array of the run-time size; only set-dimension-size can bring the
    rest of the buffer back (SDS-2).
    """

    __slots__ = ("buffer", "sizes")

    def __init__(self, buffer: Array, sizes: tuple[int, ...]) -> None:
        self.buffer = buffer
        self.sizes = sizes

    @property
    def valid(self) -> Array:
        return self.buffer[tuple(slice(n) for n in self.sizes)]


def valid_part(value: Any) -> Any:
    """`value` with every Dynamic in it replaced by the array of its run-time size."""
    if isinstance(value, Dynamic):
        return value.valid
    if isinstance(value, tuple):
        return tuple(valid_part(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def whole_buffer(value: Array | Dynamic, dimensions: tuple[int, ...]) -> Array:
    """An array at the sizes of its bounds; where it was computed at its run-time size, zeros lie beyond (SDS-5)."""
    buffer = value.buffer if isinstance(value, Dynamic) else value
    if buffer.shape == dimensions:
        return buffer
    whole = np.zeros(dimensions, buffer.dtype)
    whole[tuple(slice(n) for n in buffer.shape)] = buffer
    return whole


class Contributions(list[Any]):
    """The values that the members of a group gave, in order: one object for all of them, not to be changed."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self._lock = Lock()
        self._made: Any = None

    def once(self, make: Callable[[], Any]) -> Any:
        """The result of `make`, which is the same for every member: the first one to ask makes it."""
        with self._lock:
            if self._made is None:
                self._made = make()
            return self._made


class Block(NamedTuple):
    """The `number`-th of equal `parts` of an array along a dimension."""

    dimension: int
    number: int
    parts: int


class Source(NamedTuple):
    """A member's operand, by number, or a block of it."""

    member: int
    operand: int
    block: Block | None = None


class Move(NamedTuple):
    """The sources of one array of a result, or of a block of it.

    sources   one is copied; several are folded by the op's computation, the first on the left; none: zeros
    """

    result: int
    block: Block | None
    sources: tuple[Source, ...]


class Take(NamedTuple):
    """The sources of an array of a member's result: one operand of each of some members, or one block of it.

    senders    their positions in the group
    dimension  of the result, along which the blocks of the senders lie one after the other; None: they are folded
    """

    result: int
    senders: range | tuple[int, ...]
    operand: int
    block: Block | None = None
    dimension: int | None = None

    def moves(self) -> list[Move]:
        sources = tuple(Source(sender, self.operand, self.block) for sender in self.senders)
        if self.dimension is None:
            return [Move(self.result, None, sources)]
        blocks = [Block(self.dimension, number, len(sources)) for number in range(len(sources))]
        return [Move(self.result, block, (source,)) for block, source in zip(blocks, sources, strict=True)]


class Transfer(NamedTuple):
    """A collective as movements of arrays between those that meet.

    members   (replica, partition) pairs, in the group's order
    takes     what each member's results are made from: few for each, however many members there are
    kept      the first arrays of a result are this many own operands
    """

    members: list[tuple[int, int]]
    takes: list[list[Take]]
    kept: int = 0

    def moves(self, member: int) -> list[Move]:
        """Those that together make the results of a member, but for the operands that are kept."""
        return [move for take in self.takes[member] for move in take.moves()]

    def started(self, kept: int, results: int) -> Transfer:
        """The -start op's transfer, whose state is `kept` own operands, the results, contexts: `results` arrays."""
        made: list[list[Take]] = []
        for takes in self.takes:
            moved = [take._replace(result=kept + take.result) for take in takes]
            contexts = range(1 + max((take.result for take in moved), default=kept - 1), results)
            made.append([*moved, *(Take(k, (), 0) for k in contexts)])
        return Transfer(self.members, made, kept)


class Function(Protocol):
    """A called computation (interpreter.Callee)."""

    computation: Computation
    result: Shape

    @property
    def is_associative(self) -> bool:
        """It is one op on two scalars whose fold no grouping and no order of the elements can change."""
        ...

    @property
    def is_commutative(self) -> bool:
        """It is one commutative op on two scalars."""
        ...

    def __call__(self, *values: Any) -> Any:
        """Its value on one set of arguments."""
        ...

    def batched(self, *arrays: Array) -> Any:
        """Its value for each element of arrays of one shape (0-d ones are shared), for computations of scalars."""
        ...

    def fold_ufunc(self) -> np.ufunc | None:
        """The ufunc whose `accumulate` is the left fold by this function, if there is one."""
        ...


class Device(Protocol):
    """The device a program runs on (interpreter.Process)."""

    replica_id: int
    partition_id: int
    replica_count: int
    partition_count: int
    device: int
    instruction: Instruction | None
    rng_state: int

    @property
    def run(self) -> object:
        """A token of this execution of the program: the same on all devices that run it together."""
        ...

    @property
    def random(self) -> np.random.Generator:
        """The device's own source of numbers."""
        ...

    def members(
        self,
        groups: ReplicaGroups,
        channel_id: int | None,
        use_global_device_ids: bool,
        *,
        over_partitions: bool = False,
    ) -> list[tuple[int, int]]:
        """The (replica, partition) pairs of this device's group, in the group's order (GRP-4)."""
        ...

    def meet(self, key: Any, members: list[tuple[int, int]], value: Any) -> list[Any]:
        """Gives `value` to the group, gets every member's, in the group's order."""
        ...

    def send(self, channel: int, value: Any) -> None:
        """Hands a value to the device at the channel's other end, once that has begun to receive (COMM-11)."""
        ...

    def offer(self, channel: int) -> None:
        """Begins to receive a value on the channel."""
        ...

    def receive(self, channel: int) -> Any:
        """The next value on the channel; None where nobody sends to this device."""
        ...

    def send_to_host(self, channel: int, value: Any) -> None:
        """Gives a value to the host."""
        ...

    def receive_from_host(self, channel: int) -> Any:
        """The host's next value for the channel."""
        ...

    def next_infeed(self) -> Any:
        """The next item of the infeed queue."""
        ...

    def write_outfeed(self, value: Any) -> None:
        """Adds a value to the outfeed queue."""
        ...
