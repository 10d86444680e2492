"""Errors, events and trampolines into Python, as machine code."""

from __future__ import annotations

from hlokit.cpu.llvm import Module
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.code import Code, Record

ERROR = Record("table code size text")
"""A PJRT_Error; its text follows in place of `text`."""
EVENT = Record("lock ready error callbacks refs")
"""A PJRT_Event. `callbacks`: a list of NODEs; `refs`: those that will destroy it."""
NODE = Record("next callback argument")
_DESTROYED_WITH_THE_CLIENT = (
    "Client_Destroy", "TopologyDescription_Destroy", "ExecuteContext_Destroy", "AsyncTrackingEvent_Destroy",
)  # fmt: skip
"""All of these are the process's one handle, which stays: nothing is to be done, least at the process's end."""
DONE = 1
"""What a Python function gives if there was no error."""
_INTERRUPTED = "KeyboardInterrupt"
CANCELLED = layouts.ERROR_CODES.index("CANCELLED")
UNIMPLEMENTED, UNAVAILABLE = layouts.ERROR_CODES.index("UNIMPLEMENTED"), layouts.ERROR_CODES.index("UNAVAILABLE")


def write(module: Module) -> None:
    """Adds the functions and their data."""
    module.globals["error_table"] = "@error_table = global [7 x ptr] zeroinitializer"
    ready = "i64 0, i64 1, i64 0, i64 0, i64 0"
    module.globals["ready"] = f"@ready = global {{ i64, i64, i64, i64, i64 }} {{ {ready} }}"
    module.globals["main_thread"] = "@main_thread = global i64 0"
    module.globals["callbacks"] = f"@callbacks = global [{len(layouts.FUNCTIONS)} x ptr] zeroinitializer"
    for function in (
        _make_error(), _copy_error(), _destroy(), _message(), _get_code(), _payloads(), _fire(), _drop_event(),
        _python(), _delete_nothing(),
    ):  # fmt: skip
        module.add(function, exported=True)
    for name in _DESTROYED_WITH_THE_CLIENT:
        module.add(_nothing(name), exported=True)
    for function in (
        _error_destroy(), _error_message(), _error_get_code(), _nothing("Error_ForEachPayload"),
        _nothing("Plugin_Initialize"), _event_destroy(), _event_is_ready(), _event_error(), _event_await(),
        _event_on_ready(), _event_create(), _event_set(),
    ):  # fmt: skip
        module.add(function, exported=True)


def trampolines(module: Module) -> None:
    """A function for each of the table's that has none in machine code: it asks Python, which may have none either."""
    for number, name in enumerate(layouts.FUNCTIONS):
        if name in module.functions:
            continue
        text = f"PJRT_{name} is not there"
        module.globals[f"text_{name}"] = f'@text_{name} = internal constant [{len(text)} x i8] c"{text}"'
        f = Code(name)
        callback = f.load("@callbacks", 8 * number)
        with f.leaving(f.is_null(callback)):
            f.ret(f.call("ptr", "make_error", f"i64 {UNIMPLEMENTED}", f"ptr @text_{name}", f"i64 {len(text)}"))
        f.ret(f.call("ptr", "python", f"ptr {callback}", "ptr %args"))
        module.add(f, exported=True)
    module.globals["text_interrupted"] = (
        f'@text_interrupted = internal constant [{len(_INTERRUPTED)} x i8] c"{_INTERRUPTED}"'
    )
    text = "the interpreter is shutting down"
    module.globals["text_closing"] = f'@text_closing = internal constant [{len(text)} x i8] c"{text}"'


def _python() -> Code:
    """Calls a Python function, whatever thread this is and whatever exception is pending on it.

    It gives DONE or an error; null, if an exception, then an interrupt, escaped it. After an interrupt Python's handler
    of SIGINT runs as soon as the main thread is back in Python code: C++ cannot pass the exception on.
    While the interpreter goes down only its main thread may still call in: PyGILState_Ensure would end any other.
    """
    f = Code("python", parameters=[("ptr", "callback"), ("ptr", "args")])
    size = len("the interpreter is shutting down")
    pending = [f.alloca("ptr") for _ in range(3)]
    closing, alive = f.new_block("closing"), f.new_block("alive")
    who, go = f.new_block("who"), f.new_block("go")
    f.branch(f.compare("ne", f.call("i32", "Py_IsInitialized"), 0, "i32"), alive, closing)
    f.start(alive)
    f.branch(f.compare("ne", f.call("i32", "hlokit_finalizing"), 0, "i32"), who, go)
    f.start(who)
    f.branch(f.compare("eq", f.call("i64", "pthread_self"), f.load("@main_thread", type="i64")), go, closing)
    f.start(closing)
    f.ret(f.call("ptr", "make_error", f"i64 {UNAVAILABLE}", "ptr @text_closing", f"i64 {size}"))
    f.start(go)
    state = f.call("i32", "PyGILState_Ensure")
    f.call("void", "PyErr_Fetch", *(f"ptr {place}" for place in pending))
    result = f.call("ptr", "%callback", "ptr %args")
    f.call("void", "PyErr_Restore", *(f"ptr {f.load(place)}" for place in pending))
    f.call("void", "PyGILState_Release", f"i32 {state}")
    with f.leaving(f.compare("eq", result, f"inttoptr (i64 {DONE} to ptr)", "ptr")):
        f.ret()
    escaped = f.is_null(result)
    with f.leaving(escaped):
        f.call("void", "PyErr_SetInterrupt")
        f.ret(f.call("ptr", "make_error", f"i64 {CANCELLED}", "ptr @text_interrupted", f"i64 {len(_INTERRUPTED)}"))
    with f.when(f.compare("eq", f.load(result, ERROR["code"], "i64"), CANCELLED)):
        f.call("void", "PyErr_SetInterrupt")
    f.ret(result)
    return f


def _nothing(name: str) -> Code:
    f = Code(name)
    f.ret()
    return f


def _delete_nothing() -> Code:
    f = Code("delete_nothing", parameters=[("ptr", "what")], result="void")
    f.ret()
    return f


# -- errors


def _make_error() -> Code:
    f = Code("make_error", parameters=[("i64", "code"), ("ptr", "text"), ("i64", "size")])
    error = f.call("ptr", "malloc", f"i64 {f.plus('%size', ERROR.size)}")
    f.store("ptr", "@error_table", error)
    f.store("i64", "%code", error, ERROR["code"])
    f.store("i64", "%size", error, ERROR["size"])
    f.copy(f.at(error, ERROR["text"]), "%text", "%size")
    f.ret(error)
    return f


def _copy_error() -> Code:
    f = Code("copy_error", parameters=[("ptr", "error")])
    with f.leaving(f.is_null("%error")):
        f.ret()
    text, size = f.at("%error", ERROR["text"]), f.load("%error", ERROR["size"], "i64")
    f.ret(f.call("ptr", "make_error", f"i64 {f.load('%error', ERROR['code'], 'i64')}", f"ptr {text}", f"i64 {size}"))
    return f


def _destroy() -> Code:
    f = Code("error_table_destroy", parameters=[("ptr", "error")], result="void")
    f.call("void", "free", "ptr %error")
    f.ret()
    return f


def _message() -> Code:
    f = Code("error_table_message", parameters=[("ptr", "error"), ("ptr", "text"), ("ptr", "size")], result="void")
    f.store("ptr", f.at("%error", ERROR["text"]), "%text")
    f.store("i64", f.load("%error", ERROR["size"], "i64"), "%size")
    f.ret()
    return f


def _get_code() -> Code:
    f = Code("error_table_get_code", parameters=[("ptr", "error")], result="i32")
    f.ret(f.load("%error", ERROR["code"], "i32"))
    return f


def _payloads() -> Code:
    parameters = [("ptr", "error"), ("ptr", "visitor"), ("ptr", "argument")]
    f = Code("error_table_for_each_payload", parameters=parameters, result="void")
    f.ret()
    return f


def _error_destroy() -> Code:
    f = Code("Error_Destroy", "Error_Destroy", result="void")
    f.call("void", "free", f"ptr {f.given('error')}")
    f.ret()
    return f


def _error_message() -> Code:
    f = Code("Error_Message", "Error_Message", result="void")
    error = f.given("error")
    f.give("message", f.at(error, ERROR["text"]))
    f.give("message_size", f.load(error, ERROR["size"], "i64"), "i64")
    f.ret()
    return f


def _error_get_code() -> Code:
    f = Code("Error_GetCode", "Error_GetCode")
    f.give("code", f.load(f.given("error"), ERROR["code"], "i32"), "i32")
    f.ret()
    return f


# -- events


def _drop_event() -> Code:
    """Gives up one reference; the event that is always ready, and null, have none."""
    f = Code("drop_event", parameters=[("ptr", "event")], result="void")
    with f.leaving(f.is_null("%event")):
        f.ret()
    with f.leaving(f.compare("eq", "%event", "@ready", "ptr")):
        f.ret()
    with f.leaving(f.compare("ne", f.add("%event", EVENT["refs"], -1), 1)):
        f.ret()
    f.call("void", "free", f"ptr {f.load('%event', EVENT['error'])}")
    f.call("void", "free", "ptr %event")
    f.ret()
    return f


def _fire() -> Code:
    """The event is ready now, with this error or null, which it keeps. Callbacks get copies of the error."""
    f = Code("fire", parameters=[("ptr", "event"), ("ptr", "error")], result="void")
    f.lock("%event", EVENT["lock"])
    f.store("ptr", "%error", "%event", EVENT["error"])
    f.do(f"store atomic i64 1, ptr {f.at('%event', EVENT['ready'])} release, align 8")
    first = f.load("%event", EVENT["callbacks"])
    f.store("ptr", "null", "%event", EVENT["callbacks"])
    f.unlock("%event", EVENT["lock"])
    head, body, done = f.new_block("next"), f.new_block("call"), f.new_block("done")
    before = f.block
    f.jump(head)
    f.start(head)
    node, following = f.fresh("node"), f.fresh("following")
    f.do(f"{node} = phi ptr [ {first}, %{before} ], [ {following}, %{body} ]")
    f.branch(f.is_null(node), done, body)
    f.start(body)
    f.do(f"{following} = load ptr, ptr {node}")
    callback, argument = f.load(node, NODE["callback"]), f.load(node, NODE["argument"])
    f.call("void", "free", f"ptr {node}")
    f.call("void", callback, f"ptr {f.call('ptr', 'copy_error', 'ptr %error')}", f"ptr {argument}")
    f.jump(head)
    f.start(done)
    f.ret()
    return f


def _event_destroy() -> Code:
    f = Code("Event_Destroy", "Event_Destroy")
    f.call("void", "drop_event", f"ptr {f.given('event')}")
    f.ret()
    return f


def _is_ready(f: Code, event: str) -> str:
    return f.let(f"load atomic i64, ptr {f.at(event, EVENT['ready'])} acquire, align 8")


def _event_is_ready() -> Code:
    f = Code("Event_IsReady", "Event_IsReady")
    f.give("is_ready", f.let(f"trunc i64 {_is_ready(f, f.given('event'))} to i8"), "i8")
    f.ret()
    return f


def _event_error() -> Code:
    f = Code("Event_Error", "Event_Error")
    f.ret(f.call("ptr", "copy_error", f"ptr {f.load(f.given('event'), EVENT['error'])}"))
    return f


def _event_await() -> Code:
    f = Code("Event_Await", "Event_Await")
    event = f.given("event")
    again, wait, done = f.new_block("again"), f.new_block("wait"), f.new_block("done")
    f.jump(again)
    f.start(again)
    f.branch(f.compare("ne", _is_ready(f, event), 0), done, wait)
    f.start(wait)
    f.call("i32", "usleep", "i32 20")
    f.jump(again)
    f.start(done)
    f.ret(f.call("ptr", "copy_error", f"ptr {f.load(event, EVENT['error'])}"))
    return f


def _event_on_ready() -> Code:
    f = Code("Event_OnReady", "Event_OnReady")
    event, callback, argument = f.given("event"), f.given("callback"), f.given("user_arg")
    now, later, put = f.new_block("now"), f.new_block("later"), f.new_block("put")
    f.branch(f.compare("ne", _is_ready(f, event), 0), now, later)
    f.start(now)
    error = f.call("ptr", "copy_error", f"ptr {f.load(event, EVENT['error'])}")
    f.call("void", callback, f"ptr {error}", f"ptr {argument}")
    f.ret()
    f.start(later)
    f.lock(event, EVENT["lock"])
    missed = f.new_block("missed")
    f.branch(f.compare("ne", _is_ready(f, event), 0), missed, put)
    f.start(missed)
    f.unlock(event, EVENT["lock"])
    f.jump(now)
    f.start(put)
    node = f.call("ptr", "malloc", f"i64 {NODE.size}")
    f.store("ptr", f.load(event, EVENT["callbacks"]), node, NODE["next"])
    f.store("ptr", callback, node, NODE["callback"])
    f.store("ptr", argument, node, NODE["argument"])
    f.store("ptr", node, event, EVENT["callbacks"])
    f.unlock(event, EVENT["lock"])
    f.ret()
    return f


def new_event(f: Code, refs: int) -> str:
    """An event that is not ready."""
    event = f.call("ptr", "malloc", f"i64 {EVENT.size}")
    f.zero(event, EVENT.size)
    f.store("i64", refs, event, EVENT["refs"])
    return event


def _event_create() -> Code:
    f = Code("Event_Create", "Event_Create")
    f.give("event", new_event(f, 1))
    f.ret()
    return f


def _event_set() -> Code:
    f = Code("Event_Set", "Event_Set")
    event, code = f.given("event"), f.let(f"zext i32 {f.given('error_code', 'i32')} to i64")
    with f.leaving(f.compare("eq", code, 0)):
        f.call("void", "fire", f"ptr {event}", "ptr null")
        f.ret()
    text, size = f.given("error_message"), f.given("error_message_size", "i64")
    error = f.call("ptr", "make_error", f"i64 {code}", f"ptr {text}", f"i64 {size}")
    f.call("void", "fire", f"ptr {event}", f"ptr {error}")
    f.ret()
    return f
