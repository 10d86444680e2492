"""Errors, events and trampolines into Python, as machine code."""

from __future__ import annotations

from hlokit.cpu.jit.libc import FREE, MALLOC, STRLEN, USLEEP, spin_lock, spin_unlock
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
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.code import api_function
from hlokit.runtime import cpython
from hlokit.runtime.interrupt import MAIN_THREAD, RAISE_LATER, RAISED

ERROR = Record("Error", {"table": POINTER, "code": I64, "size": I64, "text": Field(I8, 0)})
"""A PJRT_Error, which its text follows."""
EVENT = Record("Event", {"lock": I32, "ready": I64, "error": POINTER, "callbacks": POINTER, "refs": I64})
"""A PJRT_Event. `callbacks`: a list of NODEs; `refs`: those that will destroy it."""
NODE = Record("Node", {"next": POINTER, "callback": POINTER, "argument": POINTER})
_DESTROYED_WITH_THE_CLIENT = (
    "Client_Destroy", "TopologyDescription_Destroy", "ExecuteContext_Destroy", "AsyncTrackingEvent_Destroy",
)  # fmt: skip
"""All of these are the process's one handle, which stays: nothing is to be done, least at the process's end."""
_NOTHING_TO_DO = (
    *_DESTROYED_WITH_THE_CLIENT, "Error_ForEachPayload", "Plugin_Initialize", "Client_DmaMap", "Client_DmaUnmap",
    "AsyncHostToDeviceTransferManager_AddMetadata",
)  # fmt: skip
"""All memory can be used as it is. Threads of jaxlib's call these also while the interpreter goes down."""
DONE = 1
"""The result of a Python function without an error."""
_CLOSING = "the interpreter is shutting down"
_TRIES = 1000
"""The most calls of a function that cannot fail."""
CANCELLED = layouts.ERROR_CODES.index("CANCELLED")
UNIMPLEMENTED, UNAVAILABLE = layouts.ERROR_CODES.index("UNIMPLEMENTED"), layouts.ERROR_CODES.index("UNAVAILABLE")

MAKE_ERROR = Prototype("make_error", POINTER, {"code": I64, "text": POINTER, "size": I64})
COPY_ERROR = Prototype("copy_error", POINTER, {"error": POINTER})
FIRE = Prototype("fire", None, {"event": POINTER, "error": POINTER})
DROP_EVENT = Prototype("drop_event", None, {"event": POINTER})
PYTHON = Prototype("python", POINTER, {"function": POINTER, "args": POINTER, "once": I1})
_ASK = Prototype("ask", POINTER, {"args": POINTER, "number": I64, "once": I1, "missing": POINTER, "size": I64})
_CALLED = Prototype("called", POINTER, {"function": POINTER, "args": POINTER})
_HAND_ON = Prototype("hand_on", None, {"exceptions": POINTER})
_DESTROY = Prototype("error_table_destroy", None, {"error": POINTER})
_MESSAGE = Prototype("error_table_message", None, {"error": POINTER, "text": POINTER, "size": POINTER})
_GET_CODE = Prototype("error_table_get_code", I32, {"error": POINTER})
_PAYLOADS = Prototype("error_table_for_each_payload", None, {"error": POINTER, "visitor": POINTER, "argument": POINTER})

READY = Global("ready", EVENT, initial={"ready": 1}, exported=True)
"""The event that is always ready."""
CALLBACKS = Global("callbacks", POINTER, len(layouts.FUNCTIONS), exported=True)
"""For each function of the table the Python function that answers, or null."""
_ERROR_TABLE = Global(
    "error_table",
    layouts.record("ErrorTable"),
    initial={
        "size": layouts.size("ErrorTable"),
        "instance_size": 8,
        "destroy": _DESTROY,
        "message": _MESSAGE,
        "get_code": _GET_CODE,
        "for_each_payload": _PAYLOADS,
    },
)


def write(module: Module) -> None:
    """Adds the functions and their data."""
    for symbol in (READY, CALLBACKS):
        module.use(symbol)
    for function in (
        _make_error(), _copy_error(), _destroy(), _message(), _get_code(), _payloads(), _fire(), _drop_event(),
        _python(), _called(), _hand_on(), _delete_nothing(),
    ):  # fmt: skip
        module.add(function, exported=True)
    for name in _NOTHING_TO_DO:
        module.add(_nothing(name), exported=True)
    for function in (
        _error_destroy(), _error_message(), _error_get_code(), _event_destroy(), _event_is_ready(), _event_error(),
        _event_await(), _event_on_ready(), _event_create(), _event_set(),
    ):  # fmt: skip
        module.add(function, exported=True)


def trampolines(module: Module) -> None:
    """A function for each of the table's that has none in machine code: it asks Python, which may have none either."""
    module.add(_ask())
    for number, name in enumerate(layouts.FUNCTIONS):
        if name in module.functions:
            continue
        text = f"PJRT_{name} is not there"
        f, args = api_function(name)
        missing = f.address(Global.text(f"text_{name}", text))
        f.returns(f.call(_ASK, args, number, name in layouts.FALLIBLE, missing, len(text)))
        module.add(f, exported=True)


def _ask() -> Function:
    """Asks the Python function of this number; if there is none it gives an error of this text."""
    f = Function.of(_ASK)
    function = f.address(CALLBACKS)[f.argument("number")].load_pointer()
    with f.when(function.is_null()):
        f.returns(f.call(MAKE_ERROR, UNIMPLEMENTED, f.pointer("missing"), f.argument("size")))
    f.returns(f.call(PYTHON, function, f.pointer("args"), f.argument("once")))
    return f


def into_python(f: Function, args: Pointer, name: str) -> None:
    """Leaves for the Python function of this name in the table."""
    function = f.address(CALLBACKS)[layouts.FUNCTIONS.index(name)].load_pointer()
    f.returns(f.call(PYTHON, function, args, name in layouts.FALLIBLE))


def told(f: Function, code: int, text: str, name: str) -> Pointer:
    """An error with a constant text. `name`: of the text in the module."""
    return f.call(MAKE_ERROR, code, f.address(Global.text(f"text_{name}", text)), len(text))


def _python() -> Function:
    """Calls a Python function of one integer, `args`, on any thread, whatever exception is pending on it.

    The function gives DONE or an error. What escapes it in spite of its own handlers is an interrupt: an exception that
    Python raises between any two bytecodes. It is kept and raised again where C++ cannot lose it, see `hand_on`. With
    `once` the result is then an error, CANCELLED; else the function is called again, since C++ aborts on an error of
    what cannot fail.

    While the interpreter goes down only its main thread may call in: PyGILState_Ensure would end any other.
    """
    f = Function.of(PYTHON)
    function, args, once = f.pointer("function"), f.pointer("args"), f.argument("once")
    pending = [f.local(POINTER) for _ in range(3)]
    escaped, answer = f.local(POINTER), f.local(POINTER)
    with f.when(f.call(cpython.PY_IS_INITIALIZED).eq(0)):
        f.returns(told(f, UNAVAILABLE, _CLOSING, "closing"))
    with f.when(f.call(cpython.PY_IS_FINALIZING).ne(0) & (once | ~_is_main(f))):
        f.returns(told(f, UNAVAILABLE, _CLOSING, "closing"))
    state = f.call(cpython.GIL_STATE_ENSURE)
    f.call(cpython.ERR_FETCH, *pending)
    escaped.store(None)
    calls = While(f, [f.constant(_TRIES, I64)])
    (tries,) = calls.values
    given = f.call(_CALLED, function, args)
    answer.store(given.eq(DONE).select(f.null(), given))
    calls.test(given.is_null())
    error = f.call(RAISED)
    with f.when(escaped.load_pointer().is_null()):
        escaped.store(f.call(cpython.LIST_NEW, 0))
    f.call(cpython.LIST_APPEND, escaped.load_pointer(), error)
    type = f.call(cpython.OBJECT_TYPE, error)
    text = f.call(cpython.EXCEPTION_CLASS_NAME, type)
    cancelled = f.call(MAKE_ERROR, CANCELLED, text, f.call(STRLEN, text))
    answer.store(cancelled)
    f.call(cpython.PY_DEC_REF, type)
    f.call(cpython.PY_DEC_REF, error)
    left = tries - 1
    calls.test(~(once | left.eq(0)))
    f.call(FREE, cancelled)
    calls.again(left)
    with f.when(~escaped.load_pointer().is_null()):
        f.call(_HAND_ON, escaped.load_pointer())
    f.call(cpython.ERR_RESTORE, *(place.load_pointer() for place in pending))
    f.call(cpython.GIL_STATE_RELEASE, state)
    f.returns(answer.load_pointer())
    return f


def _called() -> Function:
    """Calls the Python function once: what it gives, or null if an exception is pending."""
    f = Function.of(_CALLED)
    number = f.call(cpython.LONG_FROM_VOID_PTR, f.pointer("args"))
    with f.when(number.is_null()):
        f.returns(None)
    operands = f.local(POINTER)
    operands.store(number)
    result = f.call(cpython.OBJECT_VECTORCALL, f.pointer("function"), operands, 1, None)
    f.call(cpython.PY_DEC_REF, number)
    with f.when(result.is_null()):
        f.returns(None)
    given = f.call(cpython.LONG_AS_VOID_PTR, result)
    f.call(cpython.PY_DEC_REF, result)
    f.returns(given)
    return f


def _hand_on() -> Function:
    """Raises the exceptions of a list again as soon as this thread is back in Python code; takes the list over."""
    f = Function.of(_HAND_ON)
    exceptions = f.pointer("exceptions")
    with f.loop(0, f.call(cpython.LIST_SIZE, exceptions)) as loop:
        error = f.call(cpython.LIST_GET_ITEM, exceptions, loop.index)
        f.call(cpython.PY_INC_REF, error)
        f.call(RAISE_LATER, error)
    f.call(cpython.PY_DEC_REF, exceptions)
    f.returns()
    return f


def _is_main(f: Function) -> Value:
    return f.call(cpython.THREAD_GET_THREAD_IDENT).eq(f.address(MAIN_THREAD).load())


def _nothing(name: str) -> Function:
    f, _ = api_function(name)
    f.returns()
    return f


def _delete_nothing() -> Function:
    f = Function("delete_nothing", [(POINTER, "what")])
    f.returns()
    return f


# -- errors


def _make_error() -> Function:
    f = Function.of(MAKE_ERROR)
    code, text, size = f.argument("code"), f.pointer("text"), f.argument("size")
    error = f.call(MALLOC, size + ERROR.bytes).to(ERROR)
    error["table"].store(f.address(_ERROR_TABLE))
    error["code"].store(code)
    error["size"].store(size)
    f.memcpy(error["text"], text, size)
    f.returns(error)
    return f


def _copy_error() -> Function:
    f = Function.of(COPY_ERROR)
    error = f.pointer("error", ERROR)
    with f.when(error.is_null()):
        f.returns(None)
    f.returns(f.call(MAKE_ERROR, error["code"].load(), error["text"], error["size"].load()))
    return f


def _destroy() -> Function:
    f = Function.of(_DESTROY)
    f.call(FREE, f.pointer("error"))
    f.returns()
    return f


def _message() -> Function:
    f = Function.of(_MESSAGE)
    error = f.pointer("error", ERROR)
    f.pointer("text", POINTER).store(error["text"])
    f.pointer("size", I64).store(error["size"].load())
    f.returns()
    return f


def _get_code() -> Function:
    f = Function.of(_GET_CODE)
    f.returns(f.pointer("error", ERROR)["code"].to(I32).load())
    return f


def _payloads() -> Function:
    f = Function.of(_PAYLOADS)
    f.returns()
    return f


def _error_destroy() -> Function:
    f, args = api_function("Error_Destroy", fails=False)
    f.call(FREE, args["error"].load_pointer())
    f.returns()
    return f


def _error_message() -> Function:
    f, args = api_function("Error_Message", fails=False)
    error = args["error"].load_pointer(ERROR)
    args["message"].store(error["text"])
    args["message_size"].store(error["size"].load())
    f.returns()
    return f


def _error_get_code() -> Function:
    f, args = api_function("Error_GetCode")
    args["code"].store(args["error"].load_pointer(ERROR)["code"].to(I32).load())
    f.returns()
    return f


# -- events


def _drop_event() -> Function:
    """Gives up one reference; the event that is always ready, and null, have none."""
    f = Function.of(DROP_EVENT)
    event = f.pointer("event", EVENT)
    with f.when(event.is_null() | event.eq(f.address(READY))):
        f.returns()
    with f.when(event["refs"].atomicrmw("add", -1).ne(1)):
        f.returns()
    f.call(FREE, event["error"].load_pointer())
    f.call(FREE, event)
    f.returns()
    return f


def _fire() -> Function:
    """The event is ready now, with this error or null, which it keeps. Callbacks get copies of the error."""
    f = Function.of(FIRE)
    event, error = f.pointer("event", EVENT), f.pointer("error")
    spin_lock(event["lock"])
    event["error"].store(error)
    event["ready"].store(1, ordering="release")
    first = event["callbacks"].load_pointer(NODE)
    event["callbacks"].store(None)
    spin_unlock(event["lock"])
    nodes = While(f, [first])
    (node,) = nodes.values
    nodes.test(~node.is_null())
    following = node["next"].load_pointer(NODE)
    callback, argument = node["callback"].load_pointer(), node["argument"].load_pointer()
    f.call(FREE, node)
    callback.call(None, f.call(COPY_ERROR, error), argument)
    nodes.again(following)
    f.returns()
    return f


def _event_destroy() -> Function:
    f, args = api_function("Event_Destroy")
    f.call(DROP_EVENT, args["event"].load_pointer())
    f.returns()
    return f


def _is_ready(event: Pointer) -> Value:
    return event["ready"].load(ordering="acquire")


def _event_is_ready() -> Function:
    f, args = api_function("Event_IsReady")
    args["is_ready"].store(_is_ready(args["event"].load_pointer(EVENT)).trunc(8))
    f.returns()
    return f


def _event_error() -> Function:
    f, args = api_function("Event_Error")
    f.returns(f.call(COPY_ERROR, args["event"].load_pointer(EVENT)["error"].load_pointer()))
    return f


def _event_await() -> Function:
    f, args = api_function("Event_Await")
    event = args["event"].load_pointer(EVENT)
    waiting = While(f, [])
    waiting.test(_is_ready(event).eq(0))
    f.call(USLEEP, 20)
    waiting.again()
    f.returns(f.call(COPY_ERROR, event["error"].load_pointer()))
    return f


def _event_on_ready() -> Function:
    f, args = api_function("Event_OnReady")
    event = args["event"].load_pointer(EVENT)
    callback, argument = args["callback"].load_pointer(), args["user_arg"].load_pointer()
    with f.when(_is_ready(event).eq(0)):
        spin_lock(event["lock"])
        missed = IfElse(f, _is_ready(event).ne(0))
        spin_unlock(event["lock"])
        missed.otherwise()
        node = f.call(MALLOC, NODE.bytes).to(NODE)
        node["next"].store(event["callbacks"].load_pointer())
        node["callback"].store(callback)
        node["argument"].store(argument)
        event["callbacks"].store(node)
        spin_unlock(event["lock"])
        f.returns()
        missed.end()
    callback.call(None, f.call(COPY_ERROR, event["error"].load_pointer()), argument)
    f.returns()
    return f


def new_event(f: Function, refs: int) -> Pointer:
    """An event that is not ready."""
    event = f.call(MALLOC, EVENT.bytes).to(EVENT)
    f.memset(event, 0, EVENT.bytes)
    event["refs"].store(refs)
    return event


def _event_create() -> Function:
    f, args = api_function("Event_Create")
    args["event"].store(new_event(f, 1))
    f.returns()
    return f


def _event_set() -> Function:
    f, args = api_function("Event_Set")
    event, code = args["event"].load_pointer(), args["error_code"].load().zext(64)
    with f.when(code.eq(0)):
        f.call(FIRE, event, None)
        f.returns()
    error = f.call(MAKE_ERROR, code, args["error_message"].load_pointer(), args["error_message_size"].load())
    f.call(FIRE, event, error)
    f.returns()
    return f
