"""A builtin function in machine code, the same code for all programs, that calls a program's native entry.

It reads the arrays' C structs, compares with what the program takes, makes the results and calls the entry. Whatever it
does not know at once it hands to `Caller.slow`.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.target import ALIGNMENT, host
from hlokit.runtime.arena import Buffer

if TYPE_CHECKING:
    from hlokit.runtime.call import Caller

_HEAD = struct.Struct("qqPPPPPPqqqq")
_ROW = struct.Struct("PqQPqq")
_TUPLE_ITEMS, _BYTES_DATA, _SCALAR_DATA = tuple.__basicsize__, bytes.__basicsize__ - 1, object.__basicsize__
_NEW_FROM_DESCR = 94
"""PyArray_NewFromDescr's place in NumPy's table of functions, which is part of its binary interface."""


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
        buffer = Buffer(caller.temporaries) if caller.temporaries else None
        cell = ctypes.c_void_p(buffer.address) if buffer is not None else None
        kept: list[Any] = [slow, failed, buffer, cell, self]
        fixed = (*caller.constants, 0, *caller.more)
        rows, sizes = b"", struct.pack(f"{len(fixed)}P", *fixed)
        start = _HEAD.size + _ROW.size * (len(caller.parameters) + len(caller.results))
        for number, shape in enumerate(caller.parameters):
            scalar = id(shape.dtype.numpy.type) if shape.rank == 0 and number not in caller.overwritten else 0
            size = shape.size * shape.dtype.numpy.itemsize
            mask = (ALIGNMENT - 1 if caller.aligned else 0) if number in caller.overwritten else -1
            rows += _ROW.pack(id(shape.dtype.numpy), shape.rank, start + len(sizes), scalar, size, mask)
            sizes += struct.pack(f"{shape.rank}q", *shape.dimensions)
        for number, (shape, maker) in enumerate(zip(caller.results, caller.result_makers(), strict=True)):
            made = shape.dtype.numpy if maker is None else maker
            kept.append(made)
            if number in caller.aliases:
                rows += _ROW.pack(0, -2, caller.aliases[number], 0, 0, -1)
                continue
            rows += _ROW.pack(id(made), shape.rank if maker is None else -1, start + len(sizes), 0, 0, -1)
            sizes += struct.pack(f"{shape.rank}q", *shape.dimensions)
        head = _HEAD.pack(
            len(caller.parameters),
            len(caller.results),
            caller.entry,
            id(slow),
            id(failed),
            id(np.ndarray),
            ctypes.addressof(cell) if cell is not None else 0,
            _numpy_function(_NEW_FROM_DESCR),
            caller.unwrap + 2 * caller.release + 4 * bool(caller.overwritten),
            len(fixed),
            len(caller.constants),
            start,
        )
        return self._new(ctypes.addressof(self._definition), (head + rows + sizes, *kept), None)


@cache
def native_call() -> NativeCall | None:
    """None where the objects in memory are not what the machine code expects, or it cannot be had."""
    if not layout_is_known():
        return None
    target = host()
    library = Library([compiled(_text(), target, name="call")], _python_functions())
    return NativeCall(library)


@cache
def layout_is_known() -> bool:
    """Whether arrays, tuples and bytes lie in memory as in CPython with its lock and NumPy: tried on live ones."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags or struct.calcsize("P") != 8:
        return False
    array = np.zeros((3, 5), np.float32)
    scalar = np.float64(1.5)
    word = ctypes.c_uint64
    try:
        fields = [word.from_address(id(array) + 8 * i).value for i in range(1, 9)]
        dimensions = (ctypes.c_int64 * 2).from_address(fields[3])[:]
        item = _first_item((array,))
    except ValueError:
        return False
    content = b"some bytes"
    return (
        fields[0] == id(np.ndarray)
        and fields[1] == array.ctypes.data
        and fields[2] & 0xFFFFFFFF == 2
        and dimensions == [3, 5]
        and fields[6] == id(array.dtype)
        and fields[7] & 0xFFFFFFFF == array.flags.num
        and item == id(array)
        and ctypes.c_double.from_address(id(scalar) + _SCALAR_DATA).value == 1.5
        and ctypes.string_at(id(content) + _BYTES_DATA, len(content)) == content
    )


def _first_item(values: tuple[object, ...]) -> int:
    return ctypes.c_uint64.from_address(id(values) + _TUPLE_ITEMS).value


def _numpy_function(index: int) -> int:
    """The address of a function of NumPy's C interface."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    return ctypes.c_uint64.from_address(get(capsule, None) + 8 * index).value


def _python_functions() -> dict[str, int]:
    """Addresses of the functions of CPython that the code calls."""
    found = {name: getattr(ctypes.pythonapi, name) for name in re.findall(r"declare .*@(Py\w+)", _CALL)}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in found.items()}


def _text() -> str:
    places = {"TUPLE_ITEMS": _TUPLE_ITEMS, "BYTES_DATA": _BYTES_DATA, "SCALAR_DATA": _SCALAR_DATA}
    return re.sub(r"\$(\w+)", lambda match: str(places[match[1]]), _CALL)


_CALL = """
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

; The record: 0 parameters, 8 results, 16 entry, 24 slow, 32 failed, 40 ndarray, 48 cell of the temporaries' address or
; null, 56 PyArray_NewFromDescr, 64 flags (1 unwrap, 2 release, 4 parameters are overwritten), 72 pointers after the
; results', 80 which of them is the temporaries', 88 where they are, 96 a row for each parameter and result: the element
; type, the rank, where the sizes are, the type of NumPy's scalars for a parameter without dimensions, its bytes, and
; for one that is overwritten the bits that its address must not have (else -1). A result of rank -1: what makes it, in
; place of the element type; of rank -2: the parameter's number, in place of the sizes.
define ptr @hlokit_call(ptr %self, ptr %arguments, i64 %count) {
entry:
  %first = getelementptr i8, ptr %self, i64 $TUPLE_ITEMS
  %bytes = load ptr, ptr %first
  %record = getelementptr i8, ptr %bytes, i64 $BYTES_DATA
  %parameters = load i64, ptr %record
  %results_at = getelementptr i8, ptr %record, i64 8
  %results = load i64, ptr %results_at
  %entry_at = getelementptr i8, ptr %record, i64 16
  %run = load ptr, ptr %entry_at
  %array_at = getelementptr i8, ptr %record, i64 40
  %array = load ptr, ptr %array_at
  %cell_at = getelementptr i8, ptr %record, i64 48
  %cell = load ptr, ptr %cell_at
  %flags_at = getelementptr i8, ptr %record, i64 64
  %flags = load i64, ptr %flags_at
  %fixed_at = getelementptr i8, ptr %record, i64 72
  %fixed = load i64, ptr %fixed_at
  %rows = getelementptr i8, ptr %record, i64 96
  %arrays = add i64 %parameters, %results
  %slots = add i64 %arrays, %fixed
  %table = alloca ptr, i64 %slots, align 64
  %given = alloca ptr, i64 %slots, align 64
  %fits = icmp eq i64 %count, %parameters
  br i1 %fits, label %taking, label %slow

taking:
  %i = phi i64 [ 0, %entry ], [ %i1, %taken ]
  %all = icmp eq i64 %i, %parameters
  br i1 %all, label %have, label %take

take:
  %argument_at = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %argument_at
  %row = getelementptr [48 x i8], ptr %rows, i64 %i
  %type_at = getelementptr i8, ptr %argument, i64 8
  %type = load ptr, ptr %type_at
  %is_array = icmp eq ptr %type, %array
  br i1 %is_array, label %look, label %scalar

scalar:
  %scalar_at = getelementptr i8, ptr %row, i64 24
  %wanted_scalar = load ptr, ptr %scalar_at
  %is_scalar = icmp eq ptr %type, %wanted_scalar
  %value = getelementptr i8, ptr %argument, i64 $SCALAR_DATA
  br i1 %is_scalar, label %taken, label %slow

look:
  %descr_at = getelementptr i8, ptr %argument, i64 56
  %descr = load ptr, ptr %descr_at
  %wanted_descr = load ptr, ptr %row
  %same_descr = icmp eq ptr %descr, %wanted_descr
  %array_flags_at = getelementptr i8, ptr %argument, i64 64
  %array_flags = load i32, ptr %array_flags_at
  %both = and i32 %array_flags, 257
  %dense = icmp eq i32 %both, 257
  %rank_at = getelementptr i8, ptr %argument, i64 24
  %rank32 = load i32, ptr %rank_at
  %rank = zext i32 %rank32 to i64
  %wanted_rank_at = getelementptr i8, ptr %row, i64 8
  %wanted_rank = load i64, ptr %wanted_rank_at
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %ok1 = and i1 %same_descr, %dense
  %ok2 = and i1 %ok1, %same_rank
  %sizes_at = getelementptr i8, ptr %argument, i64 32
  %sizes = load ptr, ptr %sizes_at
  %offset_at = getelementptr i8, ptr %row, i64 16
  %offset = load i64, ptr %offset_at
  %wanted_sizes = getelementptr i8, ptr %record, i64 %offset
  br i1 %ok2, label %measuring, label %slow

measuring:
  %d = phi i64 [ 0, %look ], [ %d1, %measure ]
  %measured = icmp eq i64 %d, %rank
  br i1 %measured, label %fetch, label %measure

measure:
  %size_at = getelementptr i64, ptr %sizes, i64 %d
  %size = load i64, ptr %size_at
  %wanted_size_at = getelementptr i64, ptr %wanted_sizes, i64 %d
  %wanted_size = load i64, ptr %wanted_size_at
  %d1 = add i64 %d, 1
  %same_size = icmp eq i64 %size, %wanted_size
  br i1 %same_size, label %measuring, label %slow

fetch:
  %data_at = getelementptr i8, ptr %argument, i64 16
  %array_data = load ptr, ptr %data_at
  br label %taken

taken:
  %data = phi ptr [ %array_data, %fetch ], [ %value, %scalar ]
  %slot = getelementptr ptr, ptr %table, i64 %i
  store ptr %data, ptr %slot
  %i1 = add i64 %i, 1
  br label %taking

have:
  %over_bit = and i64 %flags, 4
  %over = icmp ne i64 %over_bit, 0
  br i1 %over, label %owning, label %memory

owning:
  %o = phi i64 [ 0, %have ], [ %o1, %owned ]
  %o_end = icmp eq i64 %o, %parameters
  br i1 %o_end, label %memory, label %own

own:
  %o_row = getelementptr [48 x i8], ptr %rows, i64 %o
  %o_mask_at = getelementptr i8, ptr %o_row, i64 40
  %o_mask = load i64, ptr %o_mask_at
  %o_free = icmp slt i64 %o_mask, 0
  br i1 %o_free, label %owned, label %writing

writing:
  %o_argument_at = getelementptr ptr, ptr %arguments, i64 %o
  %o_argument = load ptr, ptr %o_argument_at
  %o_flags_at = getelementptr i8, ptr %o_argument, i64 64
  %o_flags = load i32, ptr %o_flags_at
  %o_write = and i32 %o_flags, 1024
  %o_writable = icmp ne i32 %o_write, 0
  %o_slot = getelementptr ptr, ptr %table, i64 %o
  %o_data = load i64, ptr %o_slot
  %o_bits = and i64 %o_data, %o_mask
  %o_aligned = icmp eq i64 %o_bits, 0
  %o_fine = and i1 %o_writable, %o_aligned
  %o_size_at = getelementptr i8, ptr %o_row, i64 32
  %o_size = load i64, ptr %o_size_at
  %o_past = add i64 %o_data, %o_size
  br i1 %o_fine, label %apart, label %slow

apart:
  %q = phi i64 [ 0, %writing ], [ %q1, %next ], [ %q1, %compare ]
  %q_end = icmp eq i64 %q, %parameters
  %q1 = add i64 %q, 1
  br i1 %q_end, label %owned, label %other

other:
  %q_same = icmp eq i64 %q, %o
  br i1 %q_same, label %next, label %compare

next:
  br label %apart

compare:
  %q_row = getelementptr [48 x i8], ptr %rows, i64 %q
  %q_size_at = getelementptr i8, ptr %q_row, i64 32
  %q_size = load i64, ptr %q_size_at
  %q_slot = getelementptr ptr, ptr %table, i64 %q
  %q_data = load i64, ptr %q_slot
  %q_past = add i64 %q_data, %q_size
  %q_before = icmp ule i64 %q_past, %o_data
  %q_after = icmp uge i64 %q_data, %o_past
  %q_apart = or i1 %q_before, %q_after
  br i1 %q_apart, label %apart, label %slow

owned:
  %o1 = add i64 %o, 1
  br label %owning

memory:
  %needs = icmp ne ptr %cell, null
  br i1 %needs, label %borrow, label %begin

borrow:
  %free = load ptr, ptr %cell
  %lent = icmp eq ptr %free, null
  br i1 %lent, label %slow, label %borrowed

borrowed:
  store ptr null, ptr %cell
  br label %begin

begin:
  %memory.address = phi ptr [ null, %memory ], [ %free, %borrowed ]
  %fixed.offset_at = getelementptr i8, ptr %record, i64 88
  %fixed.offset = load i64, ptr %fixed.offset_at
  %fixed.values = getelementptr i8, ptr %record, i64 %fixed.offset
  %fixed.slots = getelementptr ptr, ptr %table, i64 %arrays
  %fixed.bytes = mul i64 %fixed, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %fixed.slots, ptr %fixed.values, i64 %fixed.bytes, i1 false)
  %memory.number_at = getelementptr i8, ptr %record, i64 80
  %memory.number = load i64, ptr %memory.number_at
  %memory.slot = getelementptr ptr, ptr %fixed.slots, i64 %memory.number
  store ptr %memory.address, ptr %memory.slot
  %new_at = getelementptr i8, ptr %record, i64 56
  %new = load ptr, ptr %new_at
  br label %giving

giving:
  %j = phi i64 [ 0, %begin ], [ %j1, %made ]
  %every = icmp eq i64 %j, %results
  br i1 %every, label %call, label %give

give:
  %number = add i64 %parameters, %j
  %result_row = getelementptr [48 x i8], ptr %rows, i64 %number
  %maker = load ptr, ptr %result_row
  %result_rank_at = getelementptr i8, ptr %result_row, i64 8
  %result_rank = load i64, ptr %result_rank_at
  %known = icmp sge i64 %result_rank, 0
  br i1 %known, label %create, label %special

special:
  %alias = icmp eq i64 %result_rank, -2
  br i1 %alias, label %same, label %ask

same:
  %same_number_at = getelementptr i8, ptr %result_row, i64 16
  %same_number = load i64, ptr %same_number_at
  %same_at = getelementptr ptr, ptr %arguments, i64 %same_number
  %same_array = load ptr, ptr %same_at
  call void @Py_IncRef(ptr %same_array)
  br label %check

ask:
  %asked = call ptr @PyObject_CallNoArgs(ptr %maker)
  br label %check

create:
  call void @Py_IncRef(ptr %maker)
  %result_offset_at = getelementptr i8, ptr %result_row, i64 16
  %result_offset = load i64, ptr %result_offset_at
  %wanted = getelementptr i8, ptr %record, i64 %result_offset
  %rank_i = trunc i64 %result_rank to i32
  %created = call ptr %new(ptr %array, ptr %maker, i32 %rank_i, ptr %wanted, ptr null, ptr null, i32 0, ptr null)
  br label %check

check:
  %result = phi ptr [ %asked, %ask ], [ %created, %create ], [ %same_array, %same ]
  %none = icmp eq ptr %result, null
  br i1 %none, label %failed, label %made

made:
  %given_at = getelementptr ptr, ptr %given, i64 %j
  store ptr %result, ptr %given_at
  %result_data_at = getelementptr i8, ptr %result, i64 16
  %result_data = load ptr, ptr %result_data_at
  %result_slot = getelementptr ptr, ptr %table, i64 %number
  store ptr %result_data, ptr %result_slot
  %j1 = add i64 %j, 1
  br label %giving

call:
  %release_bit = and i64 %flags, 2
  %release = icmp ne i64 %release_bit, 0
  br i1 %release, label %outside, label %inside

outside:
  %thread = call ptr @PyEval_SaveThread()
  %status.outside = call i32 %run(ptr %table)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran

inside:
  %status.inside = call i32 %run(ptr %table)
  br label %ran

ran:
  %status = phi i32 [ %status.outside, %outside ], [ %status.inside, %inside ]
  br i1 %needs, label %return_memory, label %finish

return_memory:
  store ptr %memory.address, ptr %cell
  br label %finish

finish:
  %stopped = icmp ne i32 %status, 0
  br i1 %stopped, label %complain, label %deliver

complain:
  %failed_at = getelementptr i8, ptr %record, i64 32
  %raiser = load ptr, ptr %failed_at
  %nothing = call ptr @PyObject_CallNoArgs(ptr %raiser)
  br label %dropping

deliver:
  %unwrap_bit = and i64 %flags, 1
  %unwrap = icmp ne i64 %unwrap_bit, 0
  br i1 %unwrap, label %single, label %pack

single:
  %only = load ptr, ptr %given
  ret ptr %only

pack:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %dropping, label %fill

fill:
  %items = getelementptr i8, ptr %tuple, i64 $TUPLE_ITEMS
  %bytes_given = mul i64 %results, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %items, ptr %given, i64 %bytes_given, i1 false)
  ret ptr %tuple

failed:
  br i1 %needs, label %failed_memory, label %dropping

failed_memory:
  store ptr %memory.address, ptr %cell
  br label %dropping

dropping:
  %k = phi i64 [ %j, %failed ], [ %j, %failed_memory ], [ %results, %pack ], [ %results, %complain ], [ %k1, %drop ]
  %dropped = icmp eq i64 %k, 0
  br i1 %dropped, label %error, label %drop

drop:
  %k1 = sub i64 %k, 1
  %dropped_at = getelementptr ptr, ptr %given, i64 %k1
  %unwanted = load ptr, ptr %dropped_at
  call void @Py_DecRef(ptr %unwanted)
  br label %dropping

error:
  ret ptr null

slow:
  %slow_at = getelementptr i8, ptr %record, i64 24
  %function = load ptr, ptr %slow_at
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %arguments, i64 %count, ptr null)
  ret ptr %answer
}
"""
