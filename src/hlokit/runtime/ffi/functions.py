"""The functions that handlers of XLA's FFI call, in machine code.

No Python runs in them: handlers call them on threads of their own, and an interrupt must not lose a result. Types are a
list that only grows. The queue holds what Schedule was given and no worker has begun.
"""

from __future__ import annotations

from hlokit.cpu.jit.libc import (
    FREE,
    MALLOC,
    MEMCMP,
    OPAQUE,
    POSIX_MEMALIGN,
    PTHREAD_COND_BROADCAST,
    PTHREAD_COND_DESTROY,
    PTHREAD_COND_INIT,
    PTHREAD_COND_SIGNAL,
    PTHREAD_COND_WAIT,
    PTHREAD_CREATE,
    PTHREAD_DETACH,
    PTHREAD_MUTEX_DESTROY,
    PTHREAD_MUTEX_INIT,
    PTHREAD_MUTEX_LOCK,
    PTHREAD_MUTEX_UNLOCK,
    PTHREAD_SIGMASK,
    SIGFILLSET,
    SNPRINTF,
    STRLEN,
    sig_setmask,
    spin_lock,
    spin_unlock,
)
from hlokit.cpu.llvm import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    Field,
    Function,
    Global,
    IfElse,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.cpu.target import Target
from hlokit.runtime.ffi.layouts import (
    API,
    API_BYTES,
    API_VERSION_BYTES,
    ARGUMENTS,
    ATTRS,
    ATTRS_BYTES,
    CALL_FRAME,
    CONTEXT,
    ERROR_CODES,
    FUNCTIONS,
    MAJOR,
    MINOR,
    OLD_STATE,
    STAGE_STATES,
    STATE,
    TYPE_INFO,
    USER_DATA,
    VOID_FUNCTIONS,
)

FIRST_TYPE = 1 << 32
"""Ids that are assigned begin here: those of jaxlib's own registry, which a type may have already, begin at 1."""

_ERROR = Record("Error", {"code": I64, "text": Field(I8, 0)})
_TEXT_BYTES = 512
"""The most bytes of an error's text."""
_PENDING, _AVAILABLE, _FAILED = range(3)
_FUTURE = Record("Future", {"state": I64, "error": POINTER, "mutex": Field(I8, OPAQUE), "condition": Field(I8, OPAQUE)})
_TYPE = Record("Type", {"next": POINTER, "id": I64, "deleter": POINTER, "length": I64, "name": Field(I8, 0)})
_TASK = Record("Task", {"next": POINTER, "function": POINTER, "data": POINTER})

_NO_MEMORY = Global(
    "no_memory",
    Record("NoMemory", {"code": I64, "text": Field(I8, 14)}),
    initial={"code": ERROR_CODES.index("RESOURCE_EXHAUSTED"), "text": b"out of memory\0"},
)
_NO_OPTIONS = Global("no_options", ATTRS, initial={"size": ATTRS_BYTES}, constant=True)
_TYPES = Global("types", POINTER)
_TYPES_LOCK = Global("types_lock", I32)
_NEXT_TYPE = Global("next_type", I64, initial=FIRST_TYPE)
_THREADS = Global("threads", I64, initial=1, exported=True)
"""The most workers that there are to be."""
_STARTED = Global("started", I64)
_IDLE = Global("idle", I64)
_HEAD = Global("head", POINTER)
_TAIL = Global("tail", POINTER)
_QUEUE_MUTEX = Global("queue_mutex", I8, OPAQUE, align=64)
_QUEUE_CONDITION = Global("queue_condition", I8, OPAQUE, align=64)

_NEW_ERROR = Prototype("new_error", POINTER, {"code": I32, "message": POINTER})
_NAMED_ERROR = Prototype("named_error", POINTER, {"code": I32, "name": POINTER, "what": POINTER})
_WRONG_SIZE = Prototype("wrong_size", POINTER, {"name": POINTER, "expected": I64, "found": I64})
_DESTROY_ERROR = Prototype("destroy_error", None, {"error": POINTER})
_TYPE_OF = Prototype("type_of", POINTER, {"id": I64})
_TYPE_NAMED = Prototype("type_named", POINTER, {"name": POINTER, "length": I64})
_STATE_SLOT = Prototype("state_slot", POINTER, {"context": POINTER, "stage": I32})
_DESTROY_STATE = Prototype("destroy_state", None, {"slot": POINTER})
_COMPLETE = Prototype("complete", POINTER, {"name": POINTER, "future": POINTER, "state": I64, "error": POINTER})
_AWAIT = Prototype("await", POINTER, {"future": POINTER})
_WORK = Prototype("work", POINTER, {"unused": POINTER})
_HAS_WORKER = Prototype("has_worker", I1)

_CXA_BEGIN_CATCH = Prototype("__cxa_begin_catch", POINTER, [POINTER])
_CXA_END_CATCH = Prototype("__cxa_end_catch", None)
_PERSONALITY = Prototype("__gxx_personality_v0", I32, variadic=True)
_STD_EXCEPTION = Global("_ZTISt9exception", POINTER, external=True)
EXCEPTIONS = (_PERSONALITY.name, _CXA_BEGIN_CATCH.name, _CXA_END_CATCH.name, _STD_EXCEPTION.name)
"""Symbols of C++'s library that the module has if it `catches`."""


def written(target: Target, catches: bool) -> Module:
    """The module. `catches`: C++ is there; a handler's exception then becomes an error."""
    module = Module()
    for function in (_destroy_error(), _destroy_state(), _call_handler(catches), _start_anew()):
        module.add(function, exported=True)
    for function in (
        _new_error(), _named_error(), _wrong_size(), _type_of(), _type_named(), _state_slot(), _complete(), _await(),
        _work(target), _has_worker(),
    ):  # fmt: skip
        module.add(function)
    for function in (
        _error_create(), _error_get_details(), _error_destroy(), _unavailable("Handler_Register", _REGISTER),
        _unavailable("Stream_Get", "the platform has no streams"), _type_register(), _invoke_context_get(),
        _state_set(), _state_get(), _device_memory_allocate(), _device_memory_free(), _thread_pool_schedule(),
        _thread_pool_num_threads(), _future_create(), _future_set_available(), _future_set_error(), _run_id_get(),
        _device_ordinal_get(), _find_extension(), _custom_options_get(),
    ):  # fmt: skip
        module.add(function, exported=True)
    prototypes = {name: Prototype(f"XLA_FFI_{name}", POINTER, [POINTER]) for name in FUNCTIONS}
    version = {"size": API_VERSION_BYTES, "major": MAJOR, "minor": MINOR}
    module.use(Global("api", API, initial={"size": API_BYTES, "version": version, **prototypes}, exported=True))
    return module


_REGISTER = "register handlers by jax.ffi.register_ffi_target or hlokit.register_ffi_target"


# -- errors


def _new_error() -> Function:
    f = Function.of(_NEW_ERROR)
    message = f.pointer("message")
    length = f.call(STRLEN, message)
    error = f.call(MALLOC, length + (_ERROR.bytes + 1)).to(_ERROR)
    with f.when(error.is_null()):
        f.returns(f.address(_NO_MEMORY))
    error["code"].store(f.argument("code").zext(64))
    f.memcpy(error["text"], message, length + 1)
    f.returns(error)
    return f


def _named_error() -> Function:
    f = Function.of(_NAMED_ERROR)
    text, form = f.local(I8, _TEXT_BYTES), f.address(Global.text("named_format", "%s: %s"))
    f.call(SNPRINTF, text, _TEXT_BYTES, form, f.pointer("name"), f.pointer("what"))
    f.returns(f.call(_NEW_ERROR, f.argument("code"), text))
    return f


def _wrong_size() -> Function:
    f = Function.of(_WRONG_SIZE)
    form = Global.text("size_format", "%s: its arguments take %lu bytes, expected at least %lu: check versions")
    text = f.local(I8, _TEXT_BYTES)
    operands = f.pointer("name"), f.argument("found"), f.argument("expected")
    f.call(SNPRINTF, text, _TEXT_BYTES, f.address(form), *operands)
    f.returns(f.call(_NEW_ERROR, ERROR_CODES.index("INVALID_ARGUMENT"), text))
    return f


def _destroy_error() -> Function:
    f = Function.of(_DESTROY_ERROR)
    error = f.pointer("error")
    with f.when(error.ne(f.address(_NO_MEMORY))):
        f.call(FREE, error)
    f.returns()
    return f


def _text(f: Function, text: str) -> Pointer:
    """A constant text, once in the module."""
    return f.address(Global.text("text_" + "".join(c if c.isalnum() else "_" for c in text), text))


def _fail(f: Function, code: str, text: str) -> None:
    """The function gives an error with its name."""
    f.returns(f.call(_NAMED_ERROR, ERROR_CODES.index(code), _text(f, f.name), _text(f, text)))


def _api_function(name: str) -> tuple[Function, Pointer]:
    """A function of the table, with its arguments. Their size is checked."""
    record, last = ARGUMENTS[name]
    needed = record.fields[last].end
    f = Function(f"XLA_FFI_{name}", [(POINTER, "args")], "void" if name in VOID_FUNCTIONS else POINTER)
    args = f.pointer("args", record)
    found = args["size"].load()
    with f.when(found.compare("ult", needed)):
        if name in VOID_FUNCTIONS:
            f.returns()
        else:
            f.returns(f.call(_WRONG_SIZE, _text(f, f.name), needed, found))
    return f, args


def _context(args: Pointer) -> Pointer:
    """The context that the arguments name; null is an error."""
    context = args["context"].load_pointer(CONTEXT)
    with args.fn.when(context.is_null()):
        _fail(args.fn, "INVALID_ARGUMENT", "the execution context is null")
    return context


def _error_create() -> Function:
    f, args = _api_function("Error_Create")
    message, code = args["message"].load_pointer(), args["code"].load()
    given = message.is_null().select(_text(f, ""), message)
    chosen = code.compare("ult", len(ERROR_CODES)).select(code, ERROR_CODES.index("UNKNOWN"))
    f.returns(f.call(_NEW_ERROR, chosen, given))
    return f


def _error_get_details() -> Function:
    f, args = _api_function("Error_GetDetails")
    error = args["error"].load_pointer(_ERROR)
    args["message"].store(error.is_null().select(_text(f, ""), error["text"]))
    arguments, _ = ARGUMENTS["Error_GetDetails"]
    has_code = args["size"].load().compare("uge", arguments.end)  # not before version 0.3
    with f.when(error.ne(None) & has_code):
        args["code"].store(error["code"].to(I32).load())
    f.returns()
    return f


def _error_destroy() -> Function:
    f, args = _api_function("Error_Destroy")
    f.call(_DESTROY_ERROR, args["error"].load_pointer())
    f.returns()
    return f


def _unavailable(name: str, text: str) -> Function:
    f, _ = _api_function(name)
    _fail(f, "UNIMPLEMENTED", text)
    return f


# -- types


def _type_of() -> Function:
    """The type with this id, or null."""
    f = Function.of(_TYPE_OF)
    types = While(f, [f.address(_TYPES).load_pointer(_TYPE, ordering="acquire")])
    (node,) = types.values
    types.test(node.ne(None))
    types.test(node["id"].load().ne(f.argument("id")))
    types.again(node["next"].load_pointer(_TYPE))
    f.returns(types.values[0])
    return f


def _type_named() -> Function:
    """The type with this name, or null."""
    f = Function.of(_TYPE_NAMED)
    name, length = f.pointer("name"), f.argument("length")
    types = While(f, [f.address(_TYPES).load_pointer(_TYPE)])
    (node,) = types.values
    types.test(node.ne(None))
    with f.when(node["length"].load().eq(length)), f.when(f.call(MEMCMP, node["name"], name, length).eq(0)):
        f.returns(node)
    types.again(node["next"].load_pointer(_TYPE))
    f.returns(None)
    return f


def _type_register() -> Function:
    f, args = _api_function("Type_Register")
    name, length, place = args["name"].load_pointer(), args["length"].load(), args["type_id"].load_pointer(I64)
    with f.when(place.is_null()):
        _fail(f, "INVALID_ARGUMENT", "an argument is null")
    info = args["type_info"].load_pointer(TYPE_INFO)
    has_info = IfElse(f, info.ne(None))
    has_info.otherwise(info["deleter"].load_pointer())
    (deleter,) = has_info.end(f.null())
    wanted, lock = place.load(), f.address(_TYPES_LOCK)
    spin_lock(lock)
    by_id, by_name = f.call(_TYPE_OF, wanted), f.call(_TYPE_NAMED, name, length)
    with f.when(by_name.ne(None)):
        spin_unlock(lock)
        with f.when(by_name.eq(by_id)):
            f.returns(None)
        _fail(f, "ALREADY_EXISTS", "another type of this name is registered")
    with f.when(by_id.ne(None)):
        spin_unlock(lock)
        _fail(f, "ALREADY_EXISTS", "another type has this id")
    node = f.call(MALLOC, length + _TYPE.bytes).to(_TYPE)
    with f.when(node.is_null()):
        spin_unlock(lock)
        f.returns(f.address(_NO_MEMORY))
    types, following = f.address(_TYPES), f.address(_NEXT_TYPE)
    node["next"].store(types.load_pointer())
    fresh = following.load()
    following.store(fresh + 1)
    id = wanted.eq(0).select(fresh, wanted)
    node["id"].store(id)
    node["deleter"].store(deleter)
    node["length"].store(length)
    f.memcpy(node["name"], name, length)
    types.store(node, ordering="release")
    place.store(id)
    spin_unlock(lock)
    f.returns(None)
    return f


# -- contexts and states


def _invoke_context_get() -> Function:
    f, args = _api_function("InvokeContext_Get")
    context = _context(args)
    id, data = args["type_id"].load_pointer(I64).load(), context["user_data"].load_pointer(USER_DATA)
    with f.when(data.ne(None)), f.loop(0, data["count"].load()) as loop:
        pair = data["pairs"][loop.index]
        with f.when(pair["id"].load().eq(id)):
            args["data"].store(pair["object"].load_pointer())
            f.returns(None)
    _fail(f, "NOT_FOUND", "the execution context has no user data of this type")
    return f


def _state_slot() -> Function:
    """Where the stage's state is, or null."""
    f = Function.of(_STATE_SLOT)
    stage = f.argument("stage")
    with f.when(stage.compare("uge", STAGE_STATES)):
        f.returns(None)
    f.returns(f.pointer("context", CONTEXT)["states"][stage.zext(64)].load_pointer())
    return f


def _state(args: Pointer) -> tuple[Pointer, Value, Pointer]:
    """The slot of the stage's state, the type's id, and where the arguments have the object.

    Before version 0.3 the arguments had no stage: the state was that of instantiate.
    """
    f = args.fn
    is_old, old = args["size"].load().eq(OLD_STATE.bytes), args.to(OLD_STATE)
    stage = is_old.select(f.constant(0, I32), args["stage"].load())
    type_id = is_old.select(old["type_id"], args["type_id"]).load_pointer(I64)
    object = is_old.select(old["state"], args["state"])
    slot = f.call(_STATE_SLOT, _context(args), stage).to(STATE)
    id = type_id.load()
    with f.when(slot.is_null()):
        _fail(f, "INVALID_ARGUMENT", "the stage has no state")
    return slot, id, object


def _state_set() -> Function:
    f, args = _api_function("State_Set")
    slot, id, object = _state(args)
    with f.when(slot["id"].load().ne(0)):
        _fail(f, "FAILED_PRECONDITION", "the state is set already")
    with f.when(f.call(_TYPE_OF, id).is_null()):
        _fail(f, "NOT_FOUND", "the type id is not registered")
    slot["id"].store(id)
    slot["object"].store(object.load_pointer())
    f.returns(None)
    return f


def _state_get() -> Function:
    f, args = _api_function("State_Get")
    slot, id, object = _state(args)
    found = slot["id"].load()
    with f.when(found.eq(0)):
        _fail(f, "NOT_FOUND", "the state is not set")
    with f.when(found.ne(id)):
        _fail(f, "INVALID_ARGUMENT", "the state is of another type")
    object.store(slot["object"].load_pointer())
    f.returns(None)
    return f


def _destroy_state() -> Function:
    f = Function.of(_DESTROY_STATE)
    slot = f.pointer("slot", STATE)
    id, object = slot["id"].load(), slot["object"].load_pointer()
    slot["id"].store(0)
    slot["object"].store(None)
    with f.when(id.eq(0)):
        f.returns()
    type = f.call(_TYPE_OF, id).to(_TYPE)
    with f.when(type.is_null()):
        f.returns()
    deleter = type["deleter"].load_pointer()
    with f.when(deleter.ne(None) & object.ne(None)):
        deleter.call(None, object)
    f.returns()
    return f


def _run_id_get() -> Function:
    f, args = _api_function("RunId_Get")
    args["run_id"].store(_context(args)["run"].load())
    f.returns(None)
    return f


def _device_ordinal_get() -> Function:
    f, args = _api_function("DeviceOrdinal_Get")
    args["device_ordinal"].store(_context(args)["device"].load())
    f.returns(None)
    return f


def _find_extension() -> Function:
    f, args = _api_function("InvokeContext_FindExtension")
    args["extension"].store(None)
    f.returns(None)
    return f


def _custom_options_get() -> Function:
    f, args = _api_function("CustomOptions_Get")
    args["options"].store(f.address(_NO_OPTIONS))
    f.returns(None)
    return f


# -- memory


def _device_memory_allocate() -> Function:
    f, args = _api_function("DeviceMemory_Allocate")
    _context(args)
    size, alignment, place = args["bytes"].load(), args["alignment"].load(), f.local(POINTER)
    with f.when(alignment.intrinsic("ctpop").ne(1)):
        _fail(f, "INVALID_ARGUMENT", "the alignment is not a power of two")
    place.store(None)
    with f.when(f.call(POSIX_MEMALIGN, place, alignment.umax(64), size).ne(0)):
        _fail(f, "RESOURCE_EXHAUSTED", "out of memory")
    args["data"].store(place.load_pointer())
    f.returns(None)
    return f


def _device_memory_free() -> Function:
    f, args = _api_function("DeviceMemory_Free")
    _context(args)
    f.call(FREE, args["data"].load_pointer())
    f.returns(None)
    return f


# -- threads


def _start_anew() -> Function:
    """As new: before the first call, and in the child of a fork."""
    f = Function("start_anew", [])
    for symbol in (_STARTED, _IDLE, _TYPES_LOCK):
        f.address(symbol).store(0)
    f.address(_HEAD).store(None)
    f.address(_TAIL).store(None)
    f.call(PTHREAD_MUTEX_INIT, f.address(_QUEUE_MUTEX), None)
    f.call(PTHREAD_COND_INIT, f.address(_QUEUE_CONDITION), None)
    f.returns()
    return f


def _work(target: Target) -> Function:
    """A worker: runs what is in the queue."""
    f = Function.of(_WORK)
    signals, mutex, idle, head = f.local(I8, 2 * OPAQUE), f.address(_QUEUE_MUTEX), f.address(_IDLE), f.address(_HEAD)
    f.call(SIGFILLSET, signals)
    f.call(PTHREAD_SIGMASK, sig_setmask(target), signals, None)
    f.call(PTHREAD_MUTEX_LOCK, mutex)
    look = f.new_block("look")
    f.jump(look)
    f.start(look)
    task = head.load_pointer(_TASK)
    with f.when(task.is_null()):
        idle.store(idle.load() + 1)
        f.call(PTHREAD_COND_WAIT, f.address(_QUEUE_CONDITION), mutex)
        idle.store(idle.load() - 1)
        f.jump(look)
    following = task["next"].load_pointer()
    head.store(following)
    with f.when(following.is_null()):
        f.address(_TAIL).store(None)
    f.call(PTHREAD_MUTEX_UNLOCK, mutex)
    function, data = task["function"].load_pointer(), task["data"].load_pointer()
    f.call(FREE, task)
    function.call(None, data)
    f.call(PTHREAD_MUTEX_LOCK, mutex)
    f.jump(look)
    return f


def _has_worker() -> Function:
    """Has one more worker if all are busy and there may be more. Whether there is any. The queue is locked."""
    f = Function.of(_HAS_WORKER)
    thread, started = f.local(I64), f.address(_STARTED)
    is_full = started.load().compare("uge", f.address(_THREADS).load())
    with f.when(~(f.address(_IDLE).load().ne(0) | is_full)):
        error = f.call(PTHREAD_CREATE, thread, None, f.address(_WORK), None)
        with f.when(error.eq(0)):
            f.call(PTHREAD_DETACH, thread.load())
            started.store(started.load() + 1)
    f.returns(started.load().ne(0))
    return f


def _thread_pool_schedule() -> Function:
    """A task for a worker; where there can be none its caller runs it."""
    f, args = _api_function("ThreadPool_Schedule")
    _context(args)
    function, data, mutex = args["task"].load_pointer(), args["data"].load_pointer(), f.address(_QUEUE_MUTEX)
    task = f.call(MALLOC, _TASK.bytes).to(_TASK)
    with f.when(task.ne(None)):
        f.call(PTHREAD_MUTEX_LOCK, mutex)
        with f.when(f.call(_HAS_WORKER)):
            task["next"].store(None)
            task["function"].store(function)
            task["data"].store(data)
            tail = f.address(_TAIL)
            last = tail.load_pointer()
            last.is_null().select(f.address(_HEAD), last).store(task)
            tail.store(task)
            f.call(PTHREAD_COND_SIGNAL, f.address(_QUEUE_CONDITION))
            f.call(PTHREAD_MUTEX_UNLOCK, mutex)
            f.returns(None)
        f.call(PTHREAD_MUTEX_UNLOCK, mutex)
        f.call(FREE, task)
    function.call(None, data)
    f.returns(None)
    return f


def _thread_pool_num_threads() -> Function:
    f, args = _api_function("ThreadPool_NumThreads")
    args["num_threads"].load_pointer(I64).store(f.address(_THREADS).load())
    f.returns(None)
    return f


# -- futures


def _future_create() -> Function:
    f, args = _api_function("Future_Create")
    future = f.call(MALLOC, _FUTURE.bytes).to(_FUTURE)
    with f.when(future.is_null()):
        f.returns(f.address(_NO_MEMORY))
    f.memset(future, 0, _FUTURE.bytes)
    f.call(PTHREAD_MUTEX_INIT, future["mutex"], None)
    f.call(PTHREAD_COND_INIT, future["condition"], None)
    args["future"].store(future)
    f.returns(None)
    return f


def _future_set_available() -> Function:
    f, args = _api_function("Future_SetAvailable")
    f.returns(f.call(_COMPLETE, _text(f, f.name), args["future"].load_pointer(), _AVAILABLE, None))
    return f


def _future_set_error() -> Function:
    f, args = _api_function("Future_SetError")
    future, error = args["future"].load_pointer(), args["error"].load_pointer()
    with f.when(error.is_null()):
        _fail(f, "INVALID_ARGUMENT", "the error is null")
    f.returns(f.call(_COMPLETE, _text(f, f.name), future, _FAILED, error))
    return f


def _complete() -> Function:
    f = Function.of(_COMPLETE)
    future = f.pointer("future", _FUTURE)
    f.call(PTHREAD_MUTEX_LOCK, future["mutex"])
    with f.when(future["state"].load().ne(_PENDING)):
        f.call(PTHREAD_MUTEX_UNLOCK, future["mutex"])
        what = _text(f, "the future is completed already")
        f.returns(f.call(_NAMED_ERROR, ERROR_CODES.index("FAILED_PRECONDITION"), f.pointer("name"), what))
    future["error"].store(f.pointer("error"))
    future["state"].store(f.argument("state"))
    f.call(PTHREAD_COND_BROADCAST, future["condition"])
    f.call(PTHREAD_MUTEX_UNLOCK, future["mutex"])
    f.returns(None)
    return f


def _await() -> Function:
    """Waits until the future is completed, and frees it: its error, or null."""
    f = Function.of(_AWAIT)
    future = f.pointer("future", _FUTURE)
    f.call(PTHREAD_MUTEX_LOCK, future["mutex"])
    waiting = While(f, [])
    waiting.test(future["state"].load().eq(_PENDING))
    f.call(PTHREAD_COND_WAIT, future["condition"], future["mutex"])
    waiting.again()
    f.call(PTHREAD_MUTEX_UNLOCK, future["mutex"])
    error = future["error"].load_pointer()
    f.call(PTHREAD_COND_DESTROY, future["condition"])
    f.call(PTHREAD_MUTEX_DESTROY, future["mutex"])
    f.call(FREE, future)
    f.returns(error)
    return f


# -- calls


def _call_handler(catches: bool) -> Function:
    """Calls a handler and waits for what it has begun: its error, or null."""
    parameters = [(POINTER, "handler"), (POINTER, "frame")]
    attributes, personality = ("uwtable", _PERSONALITY) if catches else ("", None)
    f = Function("call_handler", parameters, POINTER, attributes, personality=personality)
    handler, frame, thrown = f.pointer("handler"), f.pointer("frame", CALL_FRAME), f.new_block("thrown")
    error = f.invoke(handler, POINTER, [frame], thrown) if catches else handler.call(POINTER, frame)
    future = frame["future"].load_pointer()
    with f.when(future.is_null()):
        f.returns(error)
    later = f.call(_AWAIT, future)
    f.returns(error.ne(None).select(error, later))
    if catches:
        f.start(thrown)
        _catch(f)
    return f


def _catch(f: Function) -> None:
    """Makes an error of an exception that was thrown."""
    exception = f.address(_STD_EXCEPTION)
    pointer, number = f.landingpad(exception, None)
    thrown = f.call(_CXA_BEGIN_CATCH, pointer)
    is_standard = IfElse(f, number.eq(f.typeid(exception)))
    what = thrown.to(POINTER).load_pointer(POINTER)[2].load_pointer()  # the third of its virtual functions
    is_standard.otherwise(what.call(POINTER, thrown))
    (text,) = is_standard.end(_text(f, "of no type that says more"))
    error = f.call(_NAMED_ERROR, ERROR_CODES.index("UNKNOWN"), _text(f, "it threw an exception"), text)
    f.call(_CXA_END_CATCH)
    f.returns(error)
