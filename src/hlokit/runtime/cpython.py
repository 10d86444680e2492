"""CPython's C functions that machine code calls, by their prototypes."""

from __future__ import annotations

import ctypes

from hlokit.cpu.llvm import I32, I64, POINTER, Global, Module, Prototype

PY_IS_INITIALIZED = Prototype("Py_IsInitialized", I32)
PY_IS_FINALIZING = Prototype("hlokit_finalizing", I32)
"""Py_IsFinalizing, whose name has changed with Python's versions."""
PY_INC_REF = Prototype("Py_IncRef", None, [POINTER])
PY_DEC_REF = Prototype("Py_DecRef", None, [POINTER])
PY_ADD_PENDING_CALL = Prototype("Py_AddPendingCall", I32, [POINTER, POINTER])
GIL_STATE_ENSURE = Prototype("PyGILState_Ensure", I32)
GIL_STATE_RELEASE = Prototype("PyGILState_Release", None, [I32])
EVAL_SAVE_THREAD = Prototype("PyEval_SaveThread", POINTER)
EVAL_RESTORE_THREAD = Prototype("PyEval_RestoreThread", None, [POINTER])
THREAD_GET_THREAD_IDENT = Prototype("PyThread_get_thread_ident", I64)
THREAD_STATE_GET_DICT = Prototype("PyThreadState_GetDict", POINTER)
THREAD_STATE_SET_ASYNC_EXC = Prototype("PyThreadState_SetAsyncExc", I32, [I64, POINTER])

ERR_FETCH = Prototype("PyErr_Fetch", None, [POINTER, POINTER, POINTER])
ERR_RESTORE = Prototype("PyErr_Restore", None, [POINTER, POINTER, POINTER])
ERR_NORMALIZE_EXCEPTION = Prototype("PyErr_NormalizeException", None, [POINTER, POINTER, POINTER])
ERR_CHECK_SIGNALS = Prototype("PyErr_CheckSignals", I32)
ERR_GIVEN_EXCEPTION_MATCHES = Prototype("PyErr_GivenExceptionMatches", I32, [POINTER, POINTER])
ERR_SET_INTERRUPT = Prototype("PyErr_SetInterrupt", None)
ERR_SET_OBJECT = Prototype("PyErr_SetObject", None, [POINTER, POINTER])
EXCEPTION_SET_TRACEBACK = Prototype("PyException_SetTraceback", I32, [POINTER, POINTER])
EXCEPTION_CLASS_NAME = Prototype("PyExceptionClass_Name", POINTER, [POINTER])

OBJECT_IS_TRUE = Prototype("PyObject_IsTrue", I32, [POINTER])
OBJECT_TYPE = Prototype("PyObject_Type", POINTER, [POINTER])
OBJECT_CALL_NO_ARGS = Prototype("PyObject_CallNoArgs", POINTER, [POINTER])
OBJECT_VECTORCALL = Prototype("PyObject_Vectorcall", POINTER, [POINTER, POINTER, I64, POINTER])
LONG_AS_VOID_PTR = Prototype("PyLong_AsVoidPtr", POINTER, [POINTER])
LONG_FROM_VOID_PTR = Prototype("PyLong_FromVoidPtr", POINTER, [POINTER])
LONG_FROM_LONG_LONG = Prototype("PyLong_FromLongLong", POINTER, [I64])
LIST_NEW = Prototype("PyList_New", POINTER, [I64])
LIST_SIZE = Prototype("PyList_Size", I64, [POINTER])
LIST_GET_ITEM = Prototype("PyList_GetItem", POINTER, [POINTER, I64])
LIST_APPEND = Prototype("PyList_Append", I32, [POINTER, POINTER])
TUPLE_NEW = Prototype("PyTuple_New", POINTER, [I64])
DICT_SET_ITEM_STRING = Prototype("PyDict_SetItemString", I32, [POINTER, POINTER, POINTER])
EXC_EXCEPTION = Global("PyExc_Exception", POINTER, external=True)


def addresses(module: Module) -> dict[str, int]:
    """Addresses of what the module names of CPython, by name."""
    public = hasattr(ctypes.pythonapi, "Py_IsFinalizing")
    own = {PY_IS_FINALIZING.name: "Py_IsFinalizing" if public else "_Py_IsFinalizing"}
    names = [name for name in module.external if name.startswith("Py") or name in own]
    found = {
        name: _address(ctypes.cast(getattr(ctypes.pythonapi, own.get(name, name)), ctypes.c_void_p)) for name in names
    }
    if EXC_EXCEPTION.name in module.globals:
        found[EXC_EXCEPTION.name] = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.pythonapi, EXC_EXCEPTION.name))
    return found


def _address(pointer: ctypes.c_void_p) -> int:
    return pointer.value or 0
