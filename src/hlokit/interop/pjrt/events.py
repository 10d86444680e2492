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
_TEXTS = {"closing": "the interpreter is shutting down"}
_TRIES = 1000
"""How often a function that cannot fail is called at most."""
CANCELLED = layouts.ERROR_CODES.index("CANCELLED")
UNIMPLEMENTED, UNAVAILABLE = layouts.ERROR_CODES.index("UNIMPLEMENTED"), layouts.ERROR_CODES.index("UNAVAILABLE")


def write(module: Module) -> None:
    """Adds the functions and their data."""
    module.globals["error_table"] = "@error_table = global [7 x ptr] zeroinitializer"
    ready = "i64 0, i64 1, i64 0, i64 0, i64 0"
    module.globals["ready"] = f"@ready = global {{ i64, i64, i64, i64, i64 }} {{ {ready} }}"
    module.globals["callbacks"] = f"@callbacks = global [{len(layouts.FUNCTIONS)} x ptr] zeroinitializer"
    for function in (
        _make_error(), _copy_error(), _destroy(), _message(), _get_code(), _payloads(), _fire(), _drop_event(),
        _python(), _hand_on(), _delete_nothing(),
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
        _text(module, name, text)
        f = Code(name)
        function = f.load("@callbacks", 8 * number)
        with f.leaving(f.is_null(function)):
            f.ret(f.call_text("ptr", "make_error", f"i64 {UNIMPLEMENTED}", f"ptr @text_{name}", f"i64 {len(text)}"))
        into_python(f, name)
        module.add(f, exported=True)
    for name, text in _TEXTS.items():
        _text(module, name, text)


def into_python(f: Code, name: str) -> None:
    """Leaves for the Python function of this name in the table."""
    function = f.load("@callbacks", 8 * layouts.FUNCTIONS.index(name))
    f.ret(f.call_text("ptr", "python", f"ptr {function}", "ptr %args", f"i1 {str(name in layouts.FALLIBLE).lower()}"))


def _text(module: Module, name: str, text: str) -> None:
    module.globals[f"text_{name}"] = f'@text_{name} = internal constant [{len(text)} x i8] c"{text}"'


def _python() -> Code:
    """Calls a Python function of one integer, `args`, on any thread, whatever exception is pending on it.

    The function gives DONE or an error. What escapes it in spite of its own handlers is an interrupt: an exception that
    Python raises between any two bytecodes. It is kept and raised again where C++ cannot lose it, see `hand_on`. With
    `once` the result is then an error, CANCELLED; else the function is called again, since C++ aborts on an error of
    what cannot fail.

    While the interpreter goes down only its main thread may call in: PyGILState_Ensure would end any other.
    """
    f = Code("python", parameters=[("ptr", "function"), ("ptr", "args"), ("i1", "once")])
    pending = [f.alloca("ptr") for _ in range(3)]
    number, escaped, answer, tries = f.alloca("ptr"), f.alloca("ptr"), f.alloca("ptr"), f.alloca("i64")
    closing, alive, go = f.new_block("closing"), f.new_block("alive"), f.new_block("go")
    f.branch(f.compare("ne", f.call_text("i32", "Py_IsInitialized"), 0, "i32"), alive, closing)
    f.start(alive)
    finalizing = f.compare("ne", f.call_text("i32", "hlokit_finalizing"), 0, "i32")
    refused = f.either("%once", f.negated(_is_main(f)))
    f.branch(f.both(finalizing, refused), closing, go)
    f.start(closing)
    f.ret(_told(f, UNAVAILABLE, "closing"))
    f.start(go)
    state = f.call_text("i32", "PyGILState_Ensure")
    f.call_text("void", "PyErr_Fetch", *(f"ptr {place}" for place in pending))
    f.store("ptr", "null", escaped)
    f.store("i64", _TRIES, tries)
    again, call, back, catch, finish = (f.new_block(name) for name in ("again", "call", "back", "catch", "finish"))
    f.jump(again)
    f.start(again)
    f.store("ptr", f.call_text("ptr", "PyLong_FromVoidPtr", "ptr %args"), number)
    f.branch(f.is_null(f.load(number)), catch, call)
    f.start(call)
    result = f.call_text("ptr", "PyObject_Vectorcall", "ptr %function", f"ptr {number}", "i64 1", "ptr null")
    f.call_text("void", "Py_DecRef", f"ptr {f.load(number)}")
    f.branch(f.is_null(result), catch, back)
    f.start(back)
    given = f.call_text("ptr", "PyLong_AsVoidPtr", f"ptr {result}")
    f.call_text("void", "Py_DecRef", f"ptr {result}")
    done = f.compare("eq", given, f"inttoptr (i64 {DONE} to ptr)", "ptr")
    f.store("ptr", f.let(f"select i1 {done}, ptr null, ptr {given}"), answer)
    f.branch(f.is_null(given), catch, finish)
    f.start(catch)
    error = f.call_text("ptr", "hlokit_raised")
    with f.when(f.is_null(f.load(escaped))):
        f.store("ptr", f.call_text("ptr", "PyList_New", "i64 0"), escaped)
    f.call_text("i32", "PyList_Append", f"ptr {f.load(escaped)}", f"ptr {error}")
    type = f.call_text("ptr", "PyObject_Type", f"ptr {error}")
    text = f.call_text("ptr", "PyExceptionClass_Name", f"ptr {type}")
    size = f.call_text("i64", "strlen", f"ptr {text}")
    cancelled = f.call_text("ptr", "make_error", f"i64 {CANCELLED}", f"ptr {text}", f"i64 {size}")
    f.store("ptr", cancelled, answer)
    f.call_text("void", "Py_DecRef", f"ptr {type}")
    f.call_text("void", "Py_DecRef", f"ptr {error}")
    left = f.minus(f.load(tries, type="i64"), 1)
    f.store("i64", left, tries)
    retry = f.new_block("retry")
    f.branch(f.either("%once", f.compare("eq", left, 0)), finish, retry)
    f.start(retry)
    f.call_text("void", "free", f"ptr {cancelled}")
    f.jump(again)
    f.start(finish)
    with f.when(f.present(f.load(escaped))):
        f.call_text("void", "hand_on", f"ptr {f.load(escaped)}")
    f.call_text("void", "PyErr_Restore", *(f"ptr {f.load(place)}" for place in pending))
    f.call_text("void", "PyGILState_Release", f"i32 {state}")
    f.ret(f.load(answer))
    return f


def _hand_on() -> Code:
    """Raises the exceptions of a list again as soon as this thread is back in Python code; takes the list over."""
    f = Code("hand_on", parameters=[("ptr", "exceptions")], result="void")
    with f.loop("0", f.call_text("i64", "PyList_Size", "ptr %exceptions")) as loop:
        error = f.call_text("ptr", "PyList_GetItem", "ptr %exceptions", f"i64 {loop.index}")
        f.call_text("void", "Py_IncRef", f"ptr {error}")
        f.call_text("void", "hlokit_raise_later", f"ptr {error}")
    f.call_text("void", "Py_DecRef", "ptr %exceptions")
    f.ret()
    return f


def _is_main(f: Code) -> str:
    return f.compare("eq", f.call_text("i64", "PyThread_get_thread_ident"), f.load("@hlokit_main_thread", type="i64"))


def _told(f: Code, code: int, text: str) -> str:
    """An error with one of the texts."""
    return f.call_text("ptr", "make_error", f"i64 {code}", f"ptr @text_{text}", f"i64 {len(_TEXTS[text])}")


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
    error = f.call_text("ptr", "malloc", f"i64 {f.plus('%size', ERROR.size)}")
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
    code = f.load("%error", ERROR["code"], "i64")
    f.ret(f.call_text("ptr", "make_error", f"i64 {code}", f"ptr {text}", f"i64 {size}"))
    return f


def _destroy() -> Code:
    f = Code("error_table_destroy", parameters=[("ptr", "error")], result="void")
    f.call_text("void", "free", "ptr %error")
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
    f.call_text("void", "free", f"ptr {f.given('error')}")
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
    f.call_text("void", "free", f"ptr {f.load('%event', EVENT['error'])}")
    f.call_text("void", "free", "ptr %event")
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
    f.call_text("void", "free", f"ptr {node}")
    f.call_text("void", callback, f"ptr {f.call_text('ptr', 'copy_error', 'ptr %error')}", f"ptr {argument}")
    f.jump(head)
    f.start(done)
    f.ret()
    return f


def _event_destroy() -> Code:
    f = Code("Event_Destroy", "Event_Destroy")
    f.call_text("void", "drop_event", f"ptr {f.given('event')}")
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
    f.ret(f.call_text("ptr", "copy_error", f"ptr {f.load(f.given('event'), EVENT['error'])}"))
    return f


def _event_await() -> Code:
    f = Code("Event_Await", "Event_Await")
    event = f.given("event")
    again, wait, done = f.new_block("again"), f.new_block("wait"), f.new_block("done")
    f.jump(again)
    f.start(again)
    f.branch(f.compare("ne", _is_ready(f, event), 0), done, wait)
    f.start(wait)
    f.call_text("i32", "usleep", "i32 20")
    f.jump(again)
    f.start(done)
    f.ret(f.call_text("ptr", "copy_error", f"ptr {f.load(event, EVENT['error'])}"))
    return f


def _event_on_ready() -> Code:
    f = Code("Event_OnReady", "Event_OnReady")
    event, callback, argument = f.given("event"), f.given("callback"), f.given("user_arg")
    now, later, put = f.new_block("now"), f.new_block("later"), f.new_block("put")
    f.branch(f.compare("ne", _is_ready(f, event), 0), now, later)
    f.start(now)
    error = f.call_text("ptr", "copy_error", f"ptr {f.load(event, EVENT['error'])}")
    f.call_text("void", callback, f"ptr {error}", f"ptr {argument}")
    f.ret()
    f.start(later)
    f.lock(event, EVENT["lock"])
    missed = f.new_block("missed")
    f.branch(f.compare("ne", _is_ready(f, event), 0), missed, put)
    f.start(missed)
    f.unlock(event, EVENT["lock"])
    f.jump(now)
    f.start(put)
    node = f.call_text("ptr", "malloc", f"i64 {NODE.size}")
    f.store("ptr", f.load(event, EVENT["callbacks"]), node, NODE["next"])
    f.store("ptr", callback, node, NODE["callback"])
    f.store("ptr", argument, node, NODE["argument"])
    f.store("ptr", node, event, EVENT["callbacks"])
    f.unlock(event, EVENT["lock"])
    f.ret()
    return f


def new_event(f: Code, refs: int) -> str:
    """An event that is not ready."""
    event = f.call_text("ptr", "malloc", f"i64 {EVENT.size}")
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
        f.call_text("void", "fire", f"ptr {event}", "ptr null")
        f.ret()
    text, size = f.given("error_message"), f.given("error_message_size", "i64")
    error = f.call_text("ptr", "make_error", f"i64 {code}", f"ptr {text}", f"i64 {size}")
    f.call_text("void", "fire", f"ptr {event}", f"ptr {error}")
    f.ret()
    return f
