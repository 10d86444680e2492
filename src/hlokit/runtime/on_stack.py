"""Entries that need more stack than their caller has, which run on a separate thread.

`i32 hlokit_on_stack(ptr function, ptr bases, i64 bytes)` gives what `function(bases)` gives. Which part of memory a
thread's stack is, the system is asked once a thread. A caller on some other stack, as of a coroutine, counts as one
with none.
"""

from __future__ import annotations

import ctypes

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.libc import (
    FREE,
    MALLOC,
    OPAQUE,
    PTHREAD_ATTR_DESTROY,
    PTHREAD_GETSPECIFIC,
    PTHREAD_JOIN,
    PTHREAD_KEY_CREATE,
    PTHREAD_SELF,
    PTHREAD_SETSPECIFIC,
    create_thread,
    is_linux,
)
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import I8, I32, I64, POINTER, Function, Global, IfElse, Module, Pointer, Prototype, Record
from hlokit.cpu.target import Target, host
from hlokit.errors import EvaluationError
from hlokit.forks import once
from hlokit.stack import SIZE


def symbols() -> dict[str, int]:
    """For libraries that call the function."""
    return {"hlokit_on_stack": _code().address("hlokit_on_stack")}


def raise_refused() -> None:
    """Raises EvaluationError if `hlokit_on_stack` had no thread to run on when this thread last called it."""
    if ctypes.CFUNCTYPE(ctypes.c_int32)(_code().address("hlokit_stack_refused"))():
        raise EvaluationError("the thread's stack is too small for the program, and the system has no other thread")


@once
def _code() -> Library:
    target = host()
    library = Library([compiled(written(target), target, name="stack")])
    if ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("hlokit_stack_prepare"))():
        raise EvaluationError("the process has no key left for values of its threads (pthread_key_create)")
    return library


ON_STACK = Prototype("hlokit_on_stack", I32, {"function": POINTER, "bases": POINTER, "bytes": I64})
_PREPARE = Prototype("hlokit_stack_prepare", I32)
_REFUSED = Prototype("hlokit_stack_refused", I32)
_ASK = Prototype("ask", POINTER)
_ELSEWHERE = Prototype("elsewhere", I32, ON_STACK.named)
_RUN = Prototype("run", POINTER, {"job": POINTER})
_STACK = Prototype("stack", I32, {"found": POINTER})

_STACK_MEMORY = Record("Stack", {"low": I64, "size": I64})
"""A thread's stack: its lowest address and its bytes."""
_JOB = Record("Job", {"function": POINTER, "bases": POINTER, "status": I32})
_BOUNDS_KEY = Global("bounds", I64)
"""The pthread_key_t of each thread's stack, once it has been asked for."""
_REFUSED_KEY = Global("refused", I64)
"""The key of the threads for which there was no other thread."""
_ROOM = 1 << 20
_PAGES = 1 << 16
"""Bytes that a stack's size is a multiple of."""


def written(target: Target) -> Module:
    """The functions."""
    module = Module()
    for function in (_prepare(), _refused(), _on_stack()):
        module.add(function, exported=True)
    stack = _stack_of_linux() if is_linux(target) else _stack_of_darwin()
    for function in (_ask(), _elsewhere(target), _run(), stack):
        module.add(function)
    return module


def _prepare() -> Function:
    f = Function.of(_PREPARE)
    bounds = f.call(PTHREAD_KEY_CREATE, f.address(_BOUNDS_KEY), f.address(FREE))
    f.returns(bounds | f.call(PTHREAD_KEY_CREATE, f.address(_REFUSED_KEY), None))
    return f


def _refused() -> Function:
    f = Function.of(_REFUSED)
    key = f.address(_REFUSED_KEY).load()
    value = f.call(PTHREAD_GETSPECIFIC, key)
    f.call(PTHREAD_SETSPECIFIC, key, None)
    f.returns(value.ne(None).zext(32))
    return f


def _on_stack() -> Function:
    f = Function.of(ON_STACK, "noinline")
    function, bases, size = f.pointer("function"), f.pointer("bases"), f.argument("bytes")
    here = Pointer(f, f.call_for(POINTER, "llvm.frameaddress.p0", f.constant(0, I32)).text)
    elsewhere = f.new_block("elsewhere")
    known = f.call(PTHREAD_GETSPECIFIC, f.address(_BOUNDS_KEY).load())
    is_unknown = IfElse(f, known.is_null())
    asked = f.call(_ASK)
    f.go_on_if(asked.ne(None), elsewhere)
    is_unknown.otherwise(asked)
    (stack,) = is_unknown.end(known)
    stack = stack.to(_STACK_MEMORY)
    left = here.address() - stack["low"].load()
    f.go_on_if(left.compare("ult", stack["size"].load()) & left.compare("uge", size), elsewhere)
    f.returns(function.call(I32, bases))
    f.start(elsewhere)
    f.returns(f.call(_ELSEWHERE, function, bases, size))
    return f


def _ask() -> Function:
    """This thread's stack, noted for later; null if the system does not say."""
    f = Function.of(_ASK, "noinline")
    found = f.local(_STACK_MEMORY)
    with f.when(f.call(_STACK, found).ne(0)):
        f.returns(None)
    kept = f.call(MALLOC, _STACK_MEMORY.bytes)
    with f.when(kept.is_null()):
        f.returns(None)
    f.memcpy(kept, found, _STACK_MEMORY.bytes)
    f.call(PTHREAD_SETSPECIFIC, f.address(_BOUNDS_KEY).load(), kept)
    f.returns(kept)
    return f


def _elsewhere(target: Target) -> Function:
    f = Function.of(_ELSEWHERE, "noinline")
    job, thread = f.local(_JOB), f.local(I64)
    job["function"].store(f.pointer("function"))
    job["bases"].store(f.pointer("bases"))
    size = (f.argument("bytes") + _ROOM).umax(SIZE)
    error = create_thread(f, target, thread, (size + (_PAGES - 1)) & -_PAGES, f.address(_RUN), job)
    with f.when(error.ne(0)):
        key = f.address(_REFUSED_KEY)
        f.call(PTHREAD_SETSPECIFIC, key.load(), key)
        f.returns(1)
    f.call(PTHREAD_JOIN, thread.load(), None)
    f.returns(job["status"].load())
    return f


def _run() -> Function:
    f = Function.of(_RUN)
    job = f.pointer("job", _JOB)
    job["status"].store(job["function"].load_pointer().call(I32, job["bases"].load_pointer()))
    f.returns(None)
    return f


# -- this thread's stack, as the system knows it: an error's number, or 0


def _stack_of_linux() -> Function:
    f = Function.of(_STACK)
    found, attributes = f.pointer("found", _STACK_MEMORY), f.local(I8, OPAQUE, 8)
    pthread_getattr_np = Prototype("pthread_getattr_np", I32, [I64, POINTER])
    pthread_attr_getstack = Prototype("pthread_attr_getstack", I32, [POINTER, POINTER, POINTER])
    error = f.call(pthread_getattr_np, f.call(PTHREAD_SELF), attributes)
    with f.when(error.eq(0)):
        f.call(pthread_attr_getstack, attributes, found["low"], found["size"])
        f.call(PTHREAD_ATTR_DESTROY, attributes)
    f.returns(error)
    return f


def _stack_of_darwin() -> Function:
    f = Function.of(_STACK)
    found, thread = f.pointer("found", _STACK_MEMORY), f.call(PTHREAD_SELF)
    high = f.call(Prototype("pthread_get_stackaddr_np", I64, [I64]), thread)
    size = f.call(Prototype("pthread_get_stacksize_np", I64, [I64]), thread)
    found["low"].store(high - size)
    found["size"].store(size)
    f.returns(0)
    return f
