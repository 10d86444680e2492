"""The plugin's machine code, loaded: one library per process, which is never unloaded."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import host
from hlokit.interop.pjrt import buffers, events, execute, incoming, layouts
from hlokit.runtime import cpython
from hlokit.runtime.interrupt import symbols

_WORD = ctypes.c_uint64


class Native:
    """Machine code as Python calls it: addresses as integers, 0 for null.

    A storage's reference that a function gives is the caller's; see buffers.py.
    """

    def __init__(self) -> None:
        module = written()
        self._library = Library([compiled(module, host(), name="pjrt")], {**cpython.addresses(module), **symbols()})
        self.make_error = self._function("make_error", _WORD, ctypes.c_char_p, _WORD)
        self.allocate = self._function("allocate", _WORD)
        self.acquire = self._function("acquire", _WORD)
        self.take = self._function("take", _WORD)
        self.hold = self._function("hold", _WORD)
        self.release = self._function("release", _WORD)
        shape = (_WORD, ctypes.c_int32, _WORD, _WORD, _WORD)
        self.make_buffer = self._function("make_buffer", _WORD, _WORD, *shape)
        self.make_transfers = self._function("make_transfers", _WORD, _WORD)
        self.make_coming = self._function("make_coming")
        settle = self._library.address("settle")
        self.settle = ctypes.CFUNCTYPE(ctypes.c_bool, _WORD)(settle)  # without the interpreter lock: it waits
        self.take_dead = self._function("take_dead")
        self.nothing = self._library.address("delete_nothing")
        self.ready = self._library.address("ready")
        self.memory_table = self._library.address(buffers.MEMORY_TABLE.name)

    def _function(self, name: str, *types: Any) -> Any:
        return ctypes.PYFUNCTYPE(_WORD, *types)(self._library.address(name))

    def _words(self, name: str, count: int) -> Any:
        return (_WORD * count).from_address(self._library.address(name))

    def set_function(self, name: str, function: int) -> None:
        """Python's part of a function of the table: the address of an object that takes an address."""
        self._words("callbacks", len(layouts.FUNCTIONS))[layouts.FUNCTIONS.index(name)] = function

    def set_failed(self, function: int) -> None:
        """Sets the function that is called with a program whose machine code stopped midway."""
        self._words("failed", 1)[0] = function

    def addresses(self) -> list[int]:
        """The table's functions."""
        return [self._library.address(name) for name in layouts.FUNCTIONS]


@cache
def native() -> Native:
    """The process's."""
    return Native()


def written() -> Module:
    """The functions and their data."""
    module = Module()
    events.write(module)
    buffers.write(module, sys.platform)
    execute.write(module)
    incoming.write(module)
    events.trampolines(module)
    return module
