"""A builtin function in machine code, the same code for all programs, that calls a program's native entry.

It reads the arrays' C structs, compares with what the program takes, makes the results and calls the entry. Whatever it
does not know at once it hands to `Caller.slow`.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import (
    I8,
    I32,
    I64,
    POINTER,
    Field,
    Function,
    IfElse,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.cpu.target import ALIGNMENT, host
from hlokit.runtime import cpython

if TYPE_CHECKING:
    from hlokit.runtime.call import Caller

_ROW = Record("Row", {"type": POINTER, "rank": I64, "sizes": I64, "scalar": POINTER, "nbytes": I64, "mask": I64})
"""A parameter or a result.

type    of the elements, NumPy's object; of a result of rank _MADE what makes it
rank    of a result also _MADE or _ALIAS
sizes   where they are in the record, in bytes; of an _ALIAS the parameter's number
scalar  the type of NumPy's scalars that a parameter without dimensions may be, or null
mask    the bits that the address of a parameter that is overwritten must not have; else -1
"""
_MADE, _ALIAS = -1, -2
_HEAD = Record(
    "Head",
    {
        "parameters": I64,
        "results": I64,
        "entry": POINTER,
        "slow": POINTER,
        "failed": POINTER,
        "ndarray": POINTER,
        "cell": POINTER,
        "new_from_descr": POINTER,
        "flags": I64,
        "fixed": I64,
        "memory_slot": I64,
        "fixed_at": I64,
        "rows": Field(_ROW, 0),
    },
)
"""The record's beginning; a row for each parameter and result follows, then what rows and `fixed_at` point to.

slow, failed  Python functions: for what is not known at once, and for a status other than 0
cell          where the temporaries' address is while no call has it, or null
fixed         pointers after the results' in the entry's table; `memory_slot`: which of them is the temporaries' address
"""
_UNWRAPS, _RELEASES, _OVERWRITES = 1, 2, 4
"""Flags: the one result is given, not a tuple; Python's lock is released; some parameters are overwritten."""
_DENSE, _WRITEABLE = 0x101, 0x400
"""NumPy's flags of arrays: C_CONTIGUOUS and ALIGNED; WRITEABLE."""
_ARRAY = Record(
    "PyArrayObject",
    {
        "references": I64,
        "type": POINTER,
        "data": POINTER,
        "rank": I32,
        "sizes": POINTER,
        "strides": POINTER,
        "base": POINTER,
        "descr": POINTER,
        "flags": I32,
    },
)
_TUPLE = Record("PyTupleObject", {"head": Field(I8, tuple.__basicsize__), "items": Field(POINTER, 0)})
_BYTES = Record("PyBytesObject", {"head": Field(I8, bytes.__basicsize__ - 1), "data": Field(I8, 0)})
_SCALAR_DATA = object.__basicsize__
_NEW_FROM_DESCR = 94
"""PyArray_NewFromDescr's place in NumPy's table of functions, which is part of its binary interface."""

CALL = Prototype("hlokit_call", POINTER, {"self": POINTER, "arguments": POINTER, "count": I64})


class NativeCall:
    """The function in machine code, and Python's description of it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._name = ctypes.create_string_buffer(b"call")
        definition = (ctypes.addressof(self._name), library.address("hlokit_call"), 0x80, 0)  # METH_FASTCALL
        self._definition = (ctypes.c_void_p * 4)(*definition)
        self._new = ctypes.pythonapi.PyCFunction_NewEx
        self._new.restype = ctypes.py_object
        self._new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]

    def function(self, caller: Caller) -> Callable[..., Any]:
        """The builtin that calls the entry. Its `self` is a tuple: a record as bytes, then all that it points to."""
        slow, failed = caller.slow, caller.failed
        buffer = caller.arena.take() if caller.temporaries else None  # of the first call, which went another way
        cell = ctypes.c_void_p(buffer.address) if buffer is not None else None
        kept: list[Any] = [slow, failed, buffer, cell, self]
        fixed = (*caller.constants, 0, *caller.more)
        rows, sizes = b"", struct.pack(f"{len(fixed)}P", *fixed)
        start = _HEAD.end + _ROW.bytes * (len(caller.parameters) + len(caller.results))
        for number, shape in enumerate(caller.parameters):
            scalar = id(shape.dtype.numpy.type) if shape.rank == 0 and number not in caller.overwritten else 0
            size = shape.size * shape.dtype.numpy.itemsize
            mask = (ALIGNMENT - 1 if caller.aligned else 0) if number in caller.overwritten else -1
            rows += _row(id(shape.dtype.numpy), shape.rank, start + len(sizes), scalar, size, mask)
            sizes += struct.pack(f"{shape.rank}q", *shape.dimensions)
        for number, (shape, maker) in enumerate(zip(caller.results, caller.result_makers(), strict=True)):
            made = shape.dtype.numpy if maker is None else maker
            kept.append(made)
            if number in caller.aliases:
                rows += _row(0, _ALIAS, caller.aliases[number])
                continue
            rows += _row(id(made), shape.rank if maker is None else _MADE, start + len(sizes))
            sizes += struct.pack(f"{shape.rank}q", *shape.dimensions)
        head = _HEAD.structure(
            parameters=len(caller.parameters),
            results=len(caller.results),
            entry=caller.entry,
            slow=id(slow),
            failed=id(failed),
            ndarray=id(np.ndarray),
            cell=ctypes.addressof(cell) if cell is not None else 0,
            new_from_descr=_numpy_function(_NEW_FROM_DESCR),
            flags=_UNWRAPS * caller.unwrap + _RELEASES * caller.release + _OVERWRITES * bool(caller.overwritten),
            fixed=len(fixed),
            memory_slot=len(caller.constants),
            fixed_at=start,
        )
        return self._new(ctypes.addressof(self._definition), (bytes(head) + rows + sizes, *kept), None)


def _row(type: int, rank: int, sizes: int, scalar: int = 0, nbytes: int = 0, mask: int = -1) -> bytes:
    return bytes(_ROW.structure(type, rank, sizes, scalar, nbytes, mask))


@cache
def native_call() -> NativeCall | None:
    """None where the objects in memory are not what the machine code expects, or it cannot be had."""
    if not layout_is_known():
        return None
    target = host()
    module = _written()
    return NativeCall(Library([compiled(module, target, name="call")], cpython.addresses(module)))


@cache
def layout_is_known() -> bool:
    """Whether arrays, tuples and bytes lie in memory as in CPython with its lock and NumPy: tried on live ones."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags or struct.calcsize("P") != 8:
        return False
    array = np.zeros((3, 5), np.float32)
    scalar = np.float64(1.5)
    holder = (array,)
    try:
        fields: Any = _ARRAY.structure.from_address(id(array))
        dimensions = (ctypes.c_int64 * 2).from_address(fields.sizes)[:]
        item = ctypes.c_uint64.from_address(id(holder) + _TUPLE.offset("items")).value
    except ValueError:
        return False
    content = b"some bytes"
    return (
        fields.type == id(np.ndarray)
        and fields.data == array.ctypes.data
        and fields.rank == 2
        and dimensions == [3, 5]
        and fields.descr == id(array.dtype)
        and fields.flags == array.flags.num
        and item == id(array)
        and ctypes.c_double.from_address(id(scalar) + _SCALAR_DATA).value == 1.5
        and ctypes.string_at(id(content) + _BYTES.offset("data"), len(content)) == content
    )


def _numpy_function(index: int) -> int:
    """The address of a function of NumPy's C interface."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    return ctypes.c_uint64.from_address(get(capsule, None) + 8 * index).value


def _written() -> Module:
    module = Module()
    module.add(_call(), exported=True)
    return module


def _call() -> Function:
    """METH_FASTCALL: `self` is the tuple that NativeCall.function makes."""
    f = Function.of(CALL)
    record = f.pointer("self", _TUPLE)["items"].load_pointer(_BYTES)["data"].to(_HEAD)
    arguments, count = f.pointer("arguments", POINTER), f.argument("count")
    parameters, results, fixed = (record[name].load() for name in ("parameters", "results", "fixed"))
    ndarray, cell = record["ndarray"].load_pointer(), record["cell"].load_pointer(POINTER)
    flags, rows = record["flags"].load(), record["rows"]
    arrays = parameters + results
    table, given = (f.local(POINTER, arrays + fixed, 64) for _ in range(2))
    unwanted = f.local(I64)
    slow, drop = f.new_block("slow"), f.new_block("drop")

    f.go_on_if(count.eq(parameters), slow)
    with f.loop(0, parameters) as loop:
        data = _data(record, rows[loop.index], arguments[loop.index].load_pointer(_ARRAY), ndarray, slow)
        table[loop.index].store(data)
    with f.when((flags & _OVERWRITES).ne(0)):
        _check_overwritten(rows, arguments, parameters, table, slow)

    needs = IfElse(f, cell.ne(None))
    free = cell.load_pointer()
    f.go_on_if(free.ne(None), slow)  # else another call has it
    cell.store(None)
    needs.otherwise(free)
    (memory,) = needs.end(f.null())
    rest = table[arrays]
    f.memcpy(rest, record.to(I8) + record["fixed_at"].load(), fixed << 3)
    rest[record["memory_slot"].load()].store(memory)
    with f.loop(0, results) as loop:
        number = parameters + loop.index
        result = _result(record, rows[number], arguments, ndarray)
        with f.when(result.is_null()):
            _give_back(cell, memory)
            unwanted.store(loop.index)
            f.jump(drop)
        given[loop.index].store(result)
        table[number].store(result.to(_ARRAY)["data"].load_pointer())

    status = _run(record["entry"].load_pointer(), table, (flags & _RELEASES).ne(0))
    _give_back(cell, memory)
    unwanted.store(results)
    with f.when(status.ne(0)):
        f.call(cpython.OBJECT_CALL_NO_ARGS, record["failed"].load_pointer())
        f.jump(drop)
    with f.when((flags & _UNWRAPS).ne(0)):
        f.returns(given.load_pointer())
    items = f.call(cpython.TUPLE_NEW, results).to(_TUPLE)
    f.go_on_if(items.ne(None), drop)
    f.memcpy(items["items"], given, results << 3)
    f.returns(items)

    f.start(drop)
    _drop(given, unwanted.load())
    f.returns(None)

    f.start(slow)
    f.returns(f.call(cpython.OBJECT_VECTORCALL, record["slow"].load_pointer(), arguments, count, None))
    return f


def _check_overwritten(rows: Pointer, arguments: Pointer, parameters: Value, table: Pointer, slow: str) -> None:
    """Arguments that are written over have to be writable and aligned, and share no memory with others; else `slow`."""
    f = table.fn
    with f.loop(0, parameters) as loop:
        row = rows[loop.index]
        with f.when(row["mask"].load() >= 0):
            is_writable = (arguments[loop.index].load_pointer(_ARRAY)["flags"].load() & _WRITEABLE).ne(0)
            data = table[loop.index].load_pointer().address()
            f.go_on_if(is_writable & (data & row["mask"].load()).eq(0), slow)
            end = data + row["nbytes"].load()
            with f.loop(0, parameters) as others, f.when(others.index.ne(loop.index)):
                other = table[others.index].load_pointer().address()
                is_before = (other + rows[others.index]["nbytes"].load()).compare("ule", data)
                f.go_on_if(is_before | other.compare("uge", end), slow)


def _run(entry: Pointer, table: Pointer, releases: Value) -> Value:
    """Calls the program's entry, without Python's lock if the i1 `releases` holds; gives its status."""
    f = table.fn
    choice = IfElse(f, releases)
    thread = f.call(cpython.EVAL_SAVE_THREAD)
    status = entry.call(I32, table)
    f.call(cpython.EVAL_RESTORE_THREAD, thread)
    choice.otherwise(status)
    (status,) = choice.end(entry.call(I32, table))
    return status


def _drop(objects: Pointer, count: Value) -> None:
    """Drops the references to so many objects."""
    f = objects.fn
    dropping = While(f, [count])
    (left,) = dropping.values
    dropping.test(left.ne(0))
    last = left - 1
    f.call(cpython.PY_DEC_REF, objects[last].load_pointer())
    dropping.again(last)


def _data(record: Pointer, row: Pointer, argument: Pointer, ndarray: Pointer, slow: str) -> Pointer:
    """Where the argument's elements are; of another type, rank or size than the row says, or of gaps: `slow`."""
    f, type = record.fn, argument["type"].load_pointer()
    is_array = IfElse(f, type.eq(ndarray))
    rank = argument["rank"].load().zext(64)
    is_dense = (argument["flags"].load() & _DENSE).eq(_DENSE)
    same_type = argument["descr"].load_pointer().eq(row["type"].load_pointer())
    f.go_on_if(same_type & is_dense & rank.eq(row["rank"].load()), slow)
    sizes, wanted = argument["sizes"].load_pointer(I64), (record.to(I8) + row["sizes"].load()).to(I64)
    with f.loop(0, rank) as loop:
        f.go_on_if(sizes[loop.index].load().eq(wanted[loop.index].load()), slow)
    is_array.otherwise(argument["data"].load_pointer())
    f.go_on_if(type.eq(row["scalar"].load_pointer()), slow)
    (data,) = is_array.end(argument.to(I8) + _SCALAR_DATA)
    return data


def _result(record: Pointer, row: Pointer, arguments: Pointer, ndarray: Pointer) -> Pointer:
    """A new reference to an array for a result; null if there is an exception."""
    f = record.fn
    rank, maker, place = row["rank"].load(), row["type"].load_pointer(), row["sizes"].load()
    is_array = IfElse(f, rank >= 0)
    f.call(cpython.PY_INC_REF, maker)
    new = record["new_from_descr"].load_pointer()
    zero = f.constant(0, I32)
    made = new.call(POINTER, ndarray, maker, rank.trunc(32), record.to(I8) + place, None, None, zero, None)
    is_array.otherwise(made)
    is_alias = IfElse(f, rank.eq(_ALIAS))
    same = arguments[place].load_pointer()
    f.call(cpython.PY_INC_REF, same)
    is_alias.otherwise(same)
    (other,) = is_alias.end(f.call(cpython.OBJECT_CALL_NO_ARGS, maker))
    (result,) = is_array.end(other)
    return result


def _give_back(cell: Pointer, memory: Pointer) -> None:
    with cell.fn.when(cell.ne(None)):
        cell.store(memory)
