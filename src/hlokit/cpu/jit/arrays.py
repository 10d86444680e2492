"""NumPy's arrays within the process's limits: the memory of each large one is checked before it is allocated.

Beyond a control group's limit Linux gives memory, and ends the process that writes to it. NumPy lets a context have
functions of its own that allocate arrays (NEP 49). Those made here call the ones that were there before; for an array
of LARGE bytes or more they count what is left first, and give none where it is too little: a MemoryError of NumPy's.
They are machine code, since ctypes drops an exception of a signal's handler that comes in a function of Python's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextvars import copy_context
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from hlokit import memory
from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import I1, I8, I64, POINTER, Field, Function, Module, Pointer, Prototype, Record
from hlokit.cpu.target import host
from hlokit.errors import OutOfMemoryError

LARGE = 1 << 20
"""Bytes from which arrays count."""

_OTHERS = 1 << 26
"""Bytes that are left to what is no array: page tables, OpenBLAS's threads."""
_T = TypeVar("_T")
_ALLOCATOR = {"context": POINTER, "malloc": POINTER, "calloc": POINTER, "realloc": POINTER, "free": POINTER}
_HANDLER = Record("PyDataMem_Handler", {"name": Field(I8, 127), "version": I8, **_ALLOCATOR})
_STATE = Record("Arrays", {"left": I64, **_ALLOCATOR})
"""The context of our functions. `left`: bytes that arrays may still take; the others: the functions before ours."""
_SET_HANDLER, _GET_HANDLER = 304, 305
"""Places in the table of NumPy's C interface, which stay."""

_TAKE = Prototype("take", I1, {"state": POINTER, "size": I64})
_GIVE = Prototype("give", None, {"state": POINTER, "size": I64})
_MALLOC = Prototype("hlokit_array_malloc", POINTER, {"state": POINTER, "size": I64})
_CALLOC = Prototype("hlokit_array_calloc", POINTER, {"state": POINTER, "count": I64, "size": I64})
_REALLOC = Prototype("hlokit_array_realloc", POINTER, {"state": POINTER, "data": POINTER, "size": I64})
_FREE = Prototype("hlokit_array_free", None, {"state": POINTER, "data": POINTER, "size": I64})


def with_arrays_checked(function: Callable[[], _T]) -> _T:
    """The result of `function`, in which NumPy's arrays together take no more than the process may still have."""
    try:
        state, handler = _made()
    except OutOfMemoryError:  # there is no room for LLVM's library either
        return function()

    def run() -> _T:
        _numpy(_SET_HANDLER, ctypes.py_object)(handler)
        return function()

    available = memory.left()
    state.left = available - min(_OTHERS, available // 8)
    return copy_context().run(run)  # the handler is the context's: nothing is to be undone, whatever interrupts


@cache
def _made() -> tuple[Any, object]:
    """The state, and NumPy's handler, to which arrays keep pointers: neither they nor the code are ever freed."""
    code = Library([compiled(_module(), host(), name="NumPy's arrays")])
    capsule = _numpy(_GET_HANDLER)()
    before = _HANDLER.structure.from_address(_pointer(capsule, _NAME))
    state, handler = _STATE.structure(), _HANDLER.structure()
    name = ctypes.create_string_buffer(_NAME)
    for each in (capsule, code, state, handler, name):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    ctypes.memmove(ctypes.addressof(handler), ctypes.addressof(before), _HANDLER.bytes)
    ctypes.memmove(handler.name, b"hlokit\0", 7)
    for field in _ALLOCATOR:
        setattr(state, field, getattr(before, field))
    for prototype in (_MALLOC, _CALLOC, _REALLOC, _FREE):
        setattr(handler, prototype.name.rpartition("_")[2], code.address(prototype.name))
    handler.context = ctypes.addressof(state)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    new = make(("PyCapsule_New", ctypes.pythonapi))
    return state, new(ctypes.addressof(handler), ctypes.addressof(name), None)


_NAME = b"mem_handler"


def _numpy(number: int, *parameters: Any) -> Any:
    """A function of NumPy's C interface that gives an object."""
    table = _pointer(import_module("numpy._core._multiarray_umath")._ARRAY_API, None)
    address = ctypes.c_size_t.from_address(table + number * ctypes.sizeof(ctypes.c_size_t)).value
    return ctypes.PYFUNCTYPE(ctypes.py_object, *parameters)(address)


def _pointer(capsule: object, name: bytes | None) -> int:
    """The address that the capsule of this name holds."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, name)


# -- the machine code


def _module() -> Module:
    module = Module()
    for function in (_take(), _give()):
        module.add(function)
    for function in (_malloc(), _calloc(), _realloc(), _free()):
        module.add(function, exported=True)
    return module


def _take() -> Function:
    """Whether so many bytes were left, which are taken then."""
    f = Function.of(_TAKE)
    left, size = f.pointer("state", _STATE)["left"], f.argument("size")
    f.return_if(size < LARGE, 1)
    f.return_if(left.atomicrmw("sub", size) >= size, 1)
    left.atomicrmw("add", size)
    f.returns(0)
    return f


def _give() -> Function:
    f = Function.of(_GIVE)
    size = f.argument("size")
    with f.when(size >= LARGE):
        f.pointer("state", _STATE)["left"].atomicrmw("add", size)
    f.returns()
    return f


def _malloc() -> Function:
    f = Function.of(_MALLOC)
    state, size = f.pointer("state", _STATE), f.argument("size")
    _allocate(f, state, size, lambda: _before(state, "malloc").call(POINTER, _context(state), size))
    return f


def _calloc() -> Function:
    f = Function.of(_CALLOC)
    state, count, size = f.pointer("state", _STATE), f.argument("count"), f.argument("size")
    _allocate(f, state, count * size, lambda: _before(state, "calloc").call(POINTER, _context(state), count, size))
    return f


def _realloc() -> Function:
    """The memory that the array had still counts until the next program: NumPy does not say how much it was."""
    f = Function.of(_REALLOC)
    state, data, size = f.pointer("state", _STATE), f.pointer("data"), f.argument("size")
    _allocate(f, state, size, lambda: _before(state, "realloc").call(POINTER, _context(state), data, size))
    return f


def _free() -> Function:
    f = Function.of(_FREE)
    state, size = f.pointer("state", _STATE), f.argument("size")
    _before(state, "free").call(None, _context(state), f.pointer("data"), size)
    f.call(_GIVE, state, size)
    f.returns()
    return f


def _allocate(f: Function, state: Pointer, size: Any, allocate: Callable[[], Pointer]) -> None:
    """Ends the function with what `allocate` gives, if so many bytes are left, else with null."""
    f.return_if(f.call(_TAKE, state, size).eq(0))
    data = allocate()
    with f.when(data.is_null()):
        f.call(_GIVE, state, size)
    f.returns(data)


def _before(state: Pointer, name: str) -> Pointer:
    return state[name].load_pointer()


def _context(state: Pointer) -> Pointer:
    return state["context"].load_pointer()
