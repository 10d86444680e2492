"""From a Python call to machine code, in well under a microsecond.

A program's native entry is `i32 entry(ptr table)`; it gives 0, or something else if it stopped midway. The table holds
pointers to the parameters' data, the results', constants', then to the memory for temporaries, then what else the entry
wants. `Caller.call` is the way there. On CPython it is a builtin function in machine code of our own (native_call.py);
`Caller.slow` is also all there is on other Pythons.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from hlokit.cpu.target import ALIGNMENT
from hlokit.errors import EvaluationError
from hlokit.interpreter.arguments import argument, wrong_count
from hlokit.memory import named
from hlokit.runtime.arena import RECYCLED, Arena, empty
from hlokit.runtime.log import logger
from hlokit.runtime.native_call import layout_is_known, native_call
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]
_early = True
"""No program has been called twice in this process."""


class Caller:
    """Calls a native entry.

    entry        its address
    parameters   static array shapes; `names` are the parameters' names, for errors, `program` is the program's
    results      static array shapes
    constants    addresses that follow the results' in the table
    temporaries  bytes of memory that the entry needs for itself; its address follows, null for 0 bytes
    more         what follows that
    unwrap       there is one result and `call` gives it alone; else a tuple
    release      other Python threads run meanwhile. Not below some 5 us of work: to get the lock back may take 5 ms
    aliases      result number -> parameter number: the entry writes this result over that parameter. The call gives
                 the argument itself back
    overwritten  numbers of more parameters that the entry writes to. What it writes to is copied first if it is
                 read-only, shares memory with another argument or, with `aligned`, is not aligned to 64 bytes
    failed       called when the entry gave something else than 0; must raise, else the call raises EvaluationError
    keep         kept alive with this object: what the code needs

    call         call(*arguments). Raises ArgumentError before anything runs. Look it up for each call: it gets faster
    """

    call: Callable[..., Any]

    def __init__(
        self,
        entry: int,
        parameters: Sequence[Shape],
        results: Sequence[Shape],
        *,
        constants: Sequence[int] = (),
        temporaries: int = 0,
        more: Sequence[int] = (),
        names: Sequence[str] | None = None,
        program: str = "program",
        unwrap: bool = False,
        release: bool = True,
        aliases: Mapping[int, int] | None = None,
        overwritten: Sequence[int] = (),
        aligned: bool = False,
        failed: Callable[[], object] | None = None,
        keep: object = None,
    ) -> None:
        self.parameters = tuple(parameters)
        self.results = tuple(results)
        self.constants = tuple(constants)
        self.more = tuple(more)
        self.temporaries = temporaries
        self.names = tuple(names) if names is not None else tuple(f"p{i}" for i in range(len(self.parameters)))
        self.program = program
        self.unwrap = unwrap
        self.release = release
        self.aliases = dict(aliases or {})
        self.overwritten = sorted({*overwritten, *self.aliases.values()})
        self.aligned = aligned
        self.keep = keep
        self.entry = entry
        self._failed = failed
        self.arena = Arena(temporaries)
        prototype = ctypes.CFUNCTYPE if release else ctypes.PYFUNCTYPE
        self._enter = prototype(ctypes.c_int32, ctypes.c_char_p)(entry)
        self._takes = [(shape.dtype.numpy, shape.dimensions) for shape in self.parameters]
        self._gives = [(shape.dimensions, shape.dtype.numpy, shape.nbytes) for shape in self.results]
        count = len(self.parameters) + len(self.results) + len(self.constants) + 1 + len(self.more)
        self._table = struct.Struct(f"{count}P").pack
        alike = all(self._takes[a] == (self._gives[r][1], self._gives[r][0]) for r, a in self.aliases.items())
        self._is_called = False
        if not alike:
            self.call = self.slow
        else:
            self.call = self._first if _early else self._fastest()

    def _first(self, *arguments: Any) -> Any:
        """`call` before the process has the builtin function: its code takes 11 ms, which no first result waits for."""
        global _early
        if self._is_called:
            _early = False
            self.call = self._fastest()
            return self.call(*arguments)
        self._is_called = True
        return self.slow(*arguments)

    def _fastest(self) -> Callable[..., Any]:
        native = native_call()
        return native.function(self) if native is not None else self.slow

    @named
    def slow(self, *arguments: Any) -> Any:
        """`call`, for arguments of any kind: what NumPy or DLPack can read, as for `evaluate`."""
        taken, given = self.arrays(arguments)
        addresses = self.addresses(taken, given)
        buffer = self.arena.take() if self.temporaries else None
        try:
            memory = buffer.address if buffer is not None else 0
            status = self._enter(self._table(*addresses, *self.constants, memory, *self.more))
        finally:
            if buffer is not None:
                self.arena.give(buffer)
        if status:
            self.failed()
        return given[0] if self.unwrap else tuple(given)

    def arrays(self, arguments: Sequence[Any]) -> tuple[list[_Array], list[_Array]]:
        """The arguments as the entry takes them, and arrays for its results. Raises ArgumentError."""
        taken = self._arguments(arguments)
        for number in self.overwritten:
            taken[number] = self._owned(taken, number)
        given: list[_Array] = []
        for number, (dimensions, dtype, size) in enumerate(self._gives):
            source = self.aliases.get(number)
            given.append(
                empty(dimensions, dtype, size) if source is None else _seen_as(taken[source], dtype, dimensions)
            )
        return taken, given

    @staticmethod
    def addresses(taken: Sequence[_Array], given: Sequence[_Array]) -> list[int]:
        """Where the elements of these arrays are."""
        return [*map(_address, taken), *map(_address, given)]

    def failed(self) -> NoReturn:
        """The entry stopped midway: raises why."""
        if self._failed is not None:
            self._failed()
        raise EvaluationError(f"{self.program}: stopped midway")

    def result_makers(self) -> list[Callable[[], _Array] | None]:
        """For each result what makes it, or None for what NumPy makes best."""
        return [partial(empty, d, t, size) if size >= RECYCLED else None for d, t, size in self._gives]

    def _arguments(self, arguments: Sequence[Any]) -> list[_Array]:
        """As contiguous arrays of the parameters' types, the caller's own where they are such. Raises ArgumentError."""
        if len(arguments) != len(self.parameters):
            count = len(self.parameters)
            raise wrong_count(self.program, count, arguments)
        taken: list[_Array] = []
        for number, (value, (dtype, dimensions)) in enumerate(zip(arguments, self._takes, strict=True)):
            if type(value) is dtype.type and not dimensions:
                value = np.asarray(value)
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != dimensions:
                name = f"argument {number} ({self.names[number]})"
                value = argument(name, self.parameters[number], value)
            array: _Array = value
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = array.copy(order="C")
            taken.append(array)
        return taken

    def _owned(self, arrays: Sequence[_Array], number: int) -> _Array:
        """The array if it can be written to without changing another one, and lies right; else a copy."""
        array = arrays[number]
        if not array.flags.writeable:
            why = "it is read-only"
        elif any(np.may_share_memory(array, other) for i, other in enumerate(arrays) if i != number):
            why = "it shares memory with another argument"
        elif self.aligned and _address(array) % ALIGNMENT:
            why = f"it is not aligned to {ALIGNMENT} bytes"
        else:
            return array
        logger().info("%s: donated argument %d (%s) is copied: %s", self.program, number, self.names[number], why)
        copy = empty(array.shape, array.dtype, array.nbytes)
        copy[...] = array
        return copy


def _seen_as(array: _Array, dtype: np.dtype[Any], dimensions: tuple[int, ...]) -> _Array:
    """A contiguous array as a result of its bytes: the array itself where it is such."""
    if array.dtype == dtype and array.shape == dimensions:
        return array
    return array.reshape(-1).view(np.uint8).view(dtype).reshape(dimensions)


def _address(array: _Array) -> int:
    if layout_is_known():
        return ctypes.c_uint64.from_address(id(array) + 16).value  # a sixth of what NumPy's own ways cost
    return array.__array_interface__["data"][0]
