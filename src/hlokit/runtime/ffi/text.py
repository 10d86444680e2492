"""The functions that handlers call, as LLVM text. No Python runs in them: handlers call them on threads of their own,
and an interrupt must not lose a result.

    Error      {i64 code, bytes of the message, 0}
    Future     {i64 state: 0 pending, 1 available, 2 failed; ptr error; mutex; condition variable}
    types      a list of {ptr next, i64 id, ptr deleter, i64 length of the name, the name}, which only grows
    queue      a list of {ptr next, ptr task, ptr data}: what Schedule was given and no worker has begun
"""

from __future__ import annotations

import re
import sys

from hlokit.runtime.ffi.layouts import API_BYTES, API_VERSION_BYTES, CONTEXT, ERROR_CODES, FUNCTIONS, MAJOR, MINOR

FIRST_TYPE = 1 << 32
"""Ids that are assigned begin here: those of jaxlib's own registry, which a type may have already, begin at 1."""

EXCEPTIONS = ("__gxx_personality_v0", "__cxa_begin_catch", "__cxa_end_catch", "_ZTISt9exception")
"""What `text` calls of C++ if `catches`."""


def text(catches: bool) -> str:
    """The module's text. `catches`: C++ is there; a handler's exception then becomes an error."""
    values = {
        "UNWINDS": "uwtable personality ptr @__gxx_personality_v0" if catches else "",
        "INVOKE": f"%error = {_INVOKE if catches else _CALL}",
        "THROWN": _THROWN if catches else "",
        "CXX": _CXX if catches else "",
        "SETMASK": "2" if sys.platform == "linux" else "3",
        "FIRST": str(FIRST_TYPE),
        **{name.upper(): str(offset) for name, offset in CONTEXT.items()},
        **{code: str(number) for number, code in enumerate(ERROR_CODES)},
    }
    body = re.sub(r"\$([A-Z_]+)", lambda match: values[match[1]], _COMMON + "".join(map(_function, _FUNCTIONS.items())))
    return "\n".join([_table(), *_names(), body])


def _table() -> str:
    """XLA_FFI_Api."""
    version = f"{{ i64, ptr, i32, i32 }} {{ i64 {API_VERSION_BYTES}, ptr null, i32 {MAJOR}, i32 {MINOR} }}"
    fields = [f"i64 {API_BYTES}", "ptr null", version, "ptr null", *(f"ptr @XLA_FFI_{name}" for name in FUNCTIONS)]
    types = ", ".join(["i64", "ptr", "{ i64, ptr, i32, i32 }", "ptr", *("ptr" for _ in FUNCTIONS)])
    return f"@api = global {{ {types} }} {{ {', '.join(fields)} }}"


def _names() -> list[str]:
    return [_constant(f"name_{name}", f"XLA_FFI_{name}") for name in FUNCTIONS]


def _constant(name: str, text: str) -> str:
    data = text.encode()
    return f'@{name} = internal constant [{len(data) + 1} x i8] c"{text}\\00"'


def _function(item: tuple[str, tuple[int, str]]) -> str:
    """A function of the table: its arguments' size is checked before its body runs."""
    name, (size, body) = item
    void = name in ("Error_GetDetails", "Error_Destroy")
    refuse = (
        "ret void"
        if void
        else f"""
  %refused = call ptr @wrong_size(ptr @name_{name}, i64 {size}, i64 %found_size)
  ret ptr %refused"""
    )
    return f"""
define {"void" if void else "ptr"} @XLA_FFI_{name}(ptr %args) {{
entry:
  %found_size = load i64, ptr %args
  %is_small = icmp ult i64 %found_size, {size}
  br i1 %is_small, label %small, label %body

small:
  {refuse.strip()}

body:{_expanded(body, name)}}}
"""


def _expanded(body: str, name: str) -> str:
    """`%x = arg type offset` loads a field of the arguments, `arg offset type value` stores one; `fail CODE "text"`
    returns an error."""
    numbers = iter(range(1000))

    def load(match: re.Match[str]) -> str:
        place = f"{match[1]}_at"
        return f"{place} = getelementptr i8, ptr %args, i64 {match[3]}\n  {match[1]} = load {match[2]}, ptr {place}"

    def store(match: re.Match[str]) -> str:
        place = f"%out{next(numbers)}"
        return f"{place} = getelementptr i8, ptr %args, i64 {match[1]}\n  store {match[2]} {match[3]}, ptr {place}"

    def fail(match: re.Match[str]) -> str:
        error = f"%error{next(numbers)}"
        arguments = f"i32 ${match[1]}, ptr @name_{name}, ptr @text_{match[2]}"
        return f"{error} = call ptr @named_error({arguments})\n  ret ptr {error}"

    body = re.sub(r"(%\w+) = arg (\w+) (\d+)", load, body)
    body = re.sub(r"arg (\d+) (\w+) (\S+)", store, body)
    return re.sub(r"fail ([A-Z_]+) (\w+)", fail, body)


_TEXTS = {
    "stream": "the platform has no streams",
    "register": "register handlers by jax.ffi.register_ffi_target or hlokit.register_ffi_target",
    "context": "the execution context is null",
    "type": "the type id is not registered",
    "no_data": "the execution context has no user data of this type",
    "named": "another type of this name is registered",
    "taken": "another type has this id",
    "no_stage": "the stage has no state",
    "is_set": "the state is set already",
    "not_set": "the state is not set",
    "other_type": "the state is of another type",
    "alignment": "the alignment is not a power of two",
    "memory": "out of memory",
    "done": "the future is completed already",
    "null_error": "the error is null",
    "null": "an argument is null",
    "threw": "it threw an exception",
    "other": "of no type that says more",
}

_COMMON = (
    "\n".join(_constant(f"text_{name}", text) for name, text in _TEXTS.items())
    + "\n"
    + _constant("size_format", "%s: its arguments take %lu bytes, expected at least %lu: check versions")
    + "\n"
    + _constant("named_format", "%s: %s")
    + r"""
@no_memory = internal global { i64, [14 x i8] } { i64 $RESOURCE_EXHAUSTED, [14 x i8] c"out of memory\00" }
%attributes = type { i64, ptr, i64, ptr, ptr, ptr }
@no_options = internal constant %attributes { i64 48, ptr null, i64 0, ptr null, ptr null, ptr null }
@types = internal global ptr null
@types_lock = internal global i32 0
@next_type = internal global i64 $FIRST
@threads = global i64 1
@started = internal global i64 0
@idle = internal global i64 0
@head = internal global ptr null
@tail = internal global ptr null
@queue_mutex = internal global [128 x i8] zeroinitializer, align 64
@queue_condition = internal global [128 x i8] zeroinitializer, align 64

declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @strlen(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @snprintf(ptr, i64, ptr, ...)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_mutex_destroy(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_cond_destroy(ptr)
$CXX

define internal ptr @new_error(i32 %code, ptr %message) {
entry:
  %length = call i64 @strlen(ptr %message)
  %bytes = add i64 %length, 9
  %error = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %error, null
  br i1 %none, label %short, label %fill

short:
  ret ptr @no_memory

fill:
  %wide = zext i32 %code to i64
  store i64 %wide, ptr %error
  %text = getelementptr i8, ptr %error, i64 8
  %with_end = add i64 %length, 1
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr %message, i64 %with_end, i1 false)
  ret ptr %error
}

define internal ptr @named_error(i32 %code, ptr %name, ptr %what) {
  %text = alloca [512 x i8]
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 512, ptr @named_format, ptr %name, ptr %what)
  %error = call ptr @new_error(i32 %code, ptr %text)
  ret ptr %error
}

define internal ptr @wrong_size(ptr %name, i64 %expected, i64 %found) {
  %text = alloca [512 x i8]
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 512, ptr @size_format, ptr %name, i64 %found, i64 %expected)
  %error = call ptr @new_error(i32 $INVALID_ARGUMENT, ptr %text)
  ret ptr %error
}

define void @destroy_error(ptr %error) {
entry:
  %static = icmp eq ptr %error, @no_memory
  br i1 %static, label %end, label %own

own:
  call void @free(ptr %error)
  br label %end

end:
  ret void
}

define internal void @lock_types() {
entry:
  br label %again

again:
  %found = cmpxchg ptr @types_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %found, 1
  br i1 %mine, label %end, label %again

end:
  ret void
}

define internal void @unlock_types() {
  store atomic i32 0, ptr @types_lock release, align 4
  ret void
}

define internal ptr @type_of(i64 %id) {
entry:
  %first = load atomic ptr, ptr @types acquire, align 8
  br label %next

next:
  %node = phi ptr [ %first, %entry ], [ %following, %other ]
  %none = icmp eq ptr %node, null
  br i1 %none, label %end, label %look

look:
  %id_at = getelementptr i8, ptr %node, i64 8
  %found = load i64, ptr %id_at
  %same = icmp eq i64 %found, %id
  br i1 %same, label %end, label %other

other:
  %following = load ptr, ptr %node
  br label %next

end:
  ret ptr %node
}

define internal ptr @type_named(ptr %name, i64 %length) {
entry:
  %first = load ptr, ptr @types
  br label %next

next:
  %node = phi ptr [ %first, %entry ], [ %following, %other ]
  %none = icmp eq ptr %node, null
  br i1 %none, label %end, label %look

look:
  %length_at = getelementptr i8, ptr %node, i64 24
  %found = load i64, ptr %length_at
  %same_length = icmp eq i64 %found, %length
  br i1 %same_length, label %compare, label %other

compare:
  %text = getelementptr i8, ptr %node, i64 32
  %differs = call i32 @memcmp(ptr %text, ptr %name, i64 %length)
  %same = icmp eq i32 %differs, 0
  br i1 %same, label %end, label %other

other:
  %following = load ptr, ptr %node
  br label %next

end:
  ret ptr %node
}

define internal ptr @state_slot(ptr %context, i32 %stage) {
entry:
  %has = icmp ult i32 %stage, 3
  br i1 %has, label %find, label %none

find:
  %wide = zext i32 %stage to i64
  %states = getelementptr i8, ptr %context, i64 $STATES
  %place = getelementptr ptr, ptr %states, i64 %wide
  %slot = load ptr, ptr %place
  ret ptr %slot

none:
  ret ptr null
}

define void @destroy_state(ptr %slot) {
entry:
  %id = load i64, ptr %slot
  %object_at = getelementptr i8, ptr %slot, i64 8
  %object = load ptr, ptr %object_at
  store i64 0, ptr %slot
  store ptr null, ptr %object_at
  %unset = icmp eq i64 %id, 0
  br i1 %unset, label %end, label %set

set:
  %type = call ptr @type_of(i64 %id)
  %unknown = icmp eq ptr %type, null
  br i1 %unknown, label %end, label %known

known:
  %deleter_at = getelementptr i8, ptr %type, i64 16
  %deleter = load ptr, ptr %deleter_at
  %no_deleter = icmp eq ptr %deleter, null
  %no_object = icmp eq ptr %object, null
  %nothing = or i1 %no_deleter, %no_object
  br i1 %nothing, label %end, label %delete

delete:
  call void %deleter(ptr %object)
  br label %end

end:
  ret void
}

define internal ptr @complete(ptr %name, ptr %future, i64 %state, ptr %error) {
entry:
  %mutex = getelementptr i8, ptr %future, i64 16
  %condition = getelementptr i8, ptr %future, i64 144
  call i32 @pthread_mutex_lock(ptr %mutex)
  %before = load i64, ptr %future
  %pending = icmp eq i64 %before, 0
  br i1 %pending, label %set, label %again

again:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  %refused = call ptr @named_error(i32 $FAILED_PRECONDITION, ptr %name, ptr @text_done)
  ret ptr %refused

set:
  %error_at = getelementptr i8, ptr %future, i64 8
  store ptr %error, ptr %error_at
  store i64 %state, ptr %future
  call i32 @pthread_cond_broadcast(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret ptr null
}

define internal ptr @await(ptr %future) {
entry:
  %mutex = getelementptr i8, ptr %future, i64 16
  %condition = getelementptr i8, ptr %future, i64 144
  call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look

look:
  %state = load i64, ptr %future
  %pending = icmp eq i64 %state, 0
  br i1 %pending, label %wait, label %done

wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look

done:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  %error_at = getelementptr i8, ptr %future, i64 8
  %error = load ptr, ptr %error_at
  call i32 @pthread_cond_destroy(ptr %condition)
  call i32 @pthread_mutex_destroy(ptr %mutex)
  call void @free(ptr %future)
  ret ptr %error
}

; Calls a handler and waits for what it has begun: its error, or null.
define ptr @call_handler(ptr %handler, ptr %frame) $UNWINDS {
entry:
  $INVOKE

returned:
  %future_at = getelementptr i8, ptr %frame, i64 168
  %future = load ptr, ptr %future_at
  %at_once = icmp eq ptr %future, null
  br i1 %at_once, label %end, label %wait

wait:
  %later = call ptr @await(ptr %future)
  %failed = icmp ne ptr %error, null
  %both = select i1 %failed, ptr %error, ptr %later
  ret ptr %both

end:
  ret ptr %error
$THROWN}

define void @start_anew() {
  store i64 0, ptr @started
  store i64 0, ptr @idle
  store ptr null, ptr @head
  store ptr null, ptr @tail
  store i32 0, ptr @types_lock
  call i32 @pthread_mutex_init(ptr @queue_mutex, ptr null)
  call i32 @pthread_cond_init(ptr @queue_condition, ptr null)
  ret void
}

define internal ptr @work(ptr %unused) {
entry:
  %signals = alloca [256 x i8]
  call i32 @sigfillset(ptr %signals)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %signals, ptr null)
  call i32 @pthread_mutex_lock(ptr @queue_mutex)
  br label %look

look:
  %node = load ptr, ptr @head
  %none = icmp eq ptr %node, null
  br i1 %none, label %wait, label %take

wait:
  %idle = load i64, ptr @idle
  %more_idle = add i64 %idle, 1
  store i64 %more_idle, ptr @idle
  call i32 @pthread_cond_wait(ptr @queue_condition, ptr @queue_mutex)
  %idle_now = load i64, ptr @idle
  %less_idle = sub i64 %idle_now, 1
  store i64 %less_idle, ptr @idle
  br label %look

take:
  %following = load ptr, ptr %node
  store ptr %following, ptr @head
  %last = icmp eq ptr %following, null
  br i1 %last, label %emptied, label %run

emptied:
  store ptr null, ptr @tail
  br label %run

run:
  call i32 @pthread_mutex_unlock(ptr @queue_mutex)
  %task_at = getelementptr i8, ptr %node, i64 8
  %task = load ptr, ptr %task_at
  %data_at = getelementptr i8, ptr %node, i64 16
  %data = load ptr, ptr %data_at
  call void @free(ptr %node)
  call void %task(ptr %data)
  call i32 @pthread_mutex_lock(ptr @queue_mutex)
  br label %look
}

; Has one more worker if all are busy and there may be more. Whether there is any. The queue is locked.
define internal i1 @has_worker() {
entry:
  %thread = alloca i64
  %started = load i64, ptr @started
  %idle = load i64, ptr @idle
  %most = load i64, ptr @threads
  %is_idle = icmp ne i64 %idle, 0
  %full = icmp uge i64 %started, %most
  %enough = or i1 %is_idle, %full
  br i1 %enough, label %end, label %start

start:
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr null)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %end, label %more

more:
  %handle = load i64, ptr %thread
  call i32 @pthread_detach(i64 %handle)
  %now = add i64 %started, 1
  store i64 %now, ptr @started
  br label %end

end:
  %running = load i64, ptr @started
  %any = icmp ne i64 %running, 0
  ret i1 %any
}
"""
)

_CXX = """
@_ZTISt9exception = external constant ptr
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()
"""
_CALL = """call ptr %handler(ptr %frame)
  br label %returned"""
_INVOKE = """invoke ptr %handler(ptr %frame) to label %returned unwind label %thrown"""
_THROWN = """
thrown:
  %exception = landingpad { ptr, i32 } catch ptr @_ZTISt9exception catch ptr null
  %pointer = extractvalue { ptr, i32 } %exception, 0
  %selector = extractvalue { ptr, i32 } %exception, 1
  %object = call ptr @__cxa_begin_catch(ptr %pointer)
  %standard = call i32 @llvm.eh.typeid.for.p0(ptr @_ZTISt9exception)
  %is_standard = icmp eq i32 %selector, %standard
  br i1 %is_standard, label %says, label %caught

says:
  %table = load ptr, ptr %object
  %what_at = getelementptr ptr, ptr %table, i64 2
  %what = load ptr, ptr %what_at
  %said = call ptr %what(ptr %object)
  br label %caught

caught:
  %text = phi ptr [ @text_other, %thrown ], [ %said, %says ]
  %made = call ptr @named_error(i32 2, ptr @text_threw, ptr %text)
  call void @__cxa_end_catch()
  ret ptr %made
"""

_STATE = """
  %size = load i64, ptr %args
  %is_old = icmp eq i64 %size, 40
  br i1 %is_old, label %old, label %new

old:
  br label %read

new:
  %stage_at = getelementptr i8, ptr %args, i64 24
  %stage_there = load i32, ptr %stage_at
  br label %read

read:
  %stage = phi i32 [ 0, %old ], [ %stage_there, %new ]
  %type_place = phi i64 [ 24, %old ], [ 32, %new ]
  %object_place = phi i64 [ 32, %old ], [ 40, %new ]
  %context = arg ptr 16
  %type_id_at = getelementptr i8, ptr %args, i64 %type_place
  %type_id = load ptr, ptr %type_id_at
  %object_at = getelementptr i8, ptr %args, i64 %object_place
  %no_context = icmp eq ptr %context, null
  br i1 %no_context, label %alone, label %find

alone:
  fail INVALID_ARGUMENT context

find:
  %slot = call ptr @state_slot(ptr %context, i32 %stage)
  %id = load i64, ptr %type_id
  %no_slot = icmp eq ptr %slot, null
  br i1 %no_slot, label %stateless, label %slotted

stateless:
  fail INVALID_ARGUMENT no_stage

slotted:
  %there = load i64, ptr %slot
  %slot_object = getelementptr i8, ptr %slot, i64 8
"""
"""Before version 0.3 the arguments had no stage: the state was that of instantiate."""

_CONTEXT = """
  %context = arg ptr 16
  %no_context = icmp eq ptr %context, null
  br i1 %no_context, label %alone, label %in

alone:
  fail INVALID_ARGUMENT context

in:
"""

_FUNCTIONS: dict[str, tuple[int, str]] = {
    "Error_Create": (28, """
  %message = arg ptr 16
  %code = arg i32 24
  %no_message = icmp eq ptr %message, null
  %end_of_code = getelementptr i8, ptr @named_format, i64 6
  %given = select i1 %no_message, ptr %end_of_code, ptr %message
  %is_code = icmp ult i32 %code, 17
  %chosen = select i1 %is_code, i32 %code, i32 $UNKNOWN
  %made = call ptr @new_error(i32 %chosen, ptr %given)
  ret ptr %made
"""),
    "Error_GetDetails": (
        32,
        """
  %error = arg ptr 16
  %none = icmp eq ptr %error, null
  %end = getelementptr i8, ptr @named_format, i64 6
  %there = getelementptr i8, ptr %error, i64 8
  %message = select i1 %none, ptr %end, ptr %there
  arg 24 ptr %message
  %has_code = icmp uge i64 %found_size, 36
  %asks = select i1 %none, i1 false, i1 %has_code
  br i1 %asks, label %give, label %done

give:
  %code = load i32, ptr %error
  arg 32 i32 %code
  br label %done

done:
  ret void
""",
    ),
    "Error_Destroy": (24, """
  %error = arg ptr 16
  call void @destroy_error(ptr %error)
  ret void
"""),
    "Handler_Register": (16, """
  fail UNIMPLEMENTED register
"""),
    "Stream_Get": (16, """
  fail UNIMPLEMENTED stream
"""),
    "Type_Register": (40, """
  %name = arg ptr 16
  %length = arg i64 24
  %id_at = arg ptr 32
  %no_id = icmp eq ptr %id_at, null
  br i1 %no_id, label %null, label %info

null:
  fail INVALID_ARGUMENT null

info:
  %info_at = arg ptr 40
  %no_info = icmp eq ptr %info_at, null
  br i1 %no_info, label %plain, label %managed

managed:
  %deleter_at = getelementptr i8, ptr %info_at, i64 16
  %deleter_there = load ptr, ptr %deleter_at
  br label %search

plain:
  br label %search

search:
  %deleter = phi ptr [ %deleter_there, %managed ], [ null, %plain ]
  %wanted = load i64, ptr %id_at
  %fresh = icmp eq i64 %wanted, 0
  call void @lock_types()
  %by_id = call ptr @type_of(i64 %wanted)
  %by_name = call ptr @type_named(ptr %name, i64 %length)
  %unnamed = icmp eq ptr %by_name, null
  br i1 %unnamed, label %new_name, label %old_name

old_name:
  call void @unlock_types()
  %same = icmp eq ptr %by_name, %by_id
  br i1 %same, label %known, label %named

known:
  ret ptr null

named:
  fail ALREADY_EXISTS named

new_name:
  %is_free = icmp eq ptr %by_id, null
  br i1 %is_free, label %make, label %taken

taken:
  call void @unlock_types()
  fail ALREADY_EXISTS taken

make:
  %bytes = add i64 %length, 32
  %node = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %node, null
  br i1 %none, label %short, label %fill

short:
  call void @unlock_types()
  ret ptr @no_memory

fill:
  %first = load ptr, ptr @types
  store ptr %first, ptr %node
  %next = load i64, ptr @next_type
  %following = add i64 %next, 1
  store i64 %following, ptr @next_type
  %id = select i1 %fresh, i64 %next, i64 %wanted
  %id_field = getelementptr i8, ptr %node, i64 8
  store i64 %id, ptr %id_field
  %deleter_field = getelementptr i8, ptr %node, i64 16
  store ptr %deleter, ptr %deleter_field
  %length_field = getelementptr i8, ptr %node, i64 24
  store i64 %length, ptr %length_field
  %text = getelementptr i8, ptr %node, i64 32
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr %name, i64 %length, i1 false)
  store atomic ptr %node, ptr @types release, align 8
  store i64 %id, ptr %id_at
  call void @unlock_types()
  ret ptr null
"""),
    "InvokeContext_Get": (40, _CONTEXT + """
  %id_at = arg ptr 24
  %id = load i64, ptr %id_at
  %data_at = getelementptr i8, ptr %context, i64 $USER_DATA
  %data = load ptr, ptr %data_at
  %empty = icmp eq ptr %data, null
  br i1 %empty, label %missing, label %some

some:
  %count = load i64, ptr %data
  br label %next

next:
  %i = phi i64 [ 0, %some ], [ %after, %other ]
  %over = icmp uge i64 %i, %count
  br i1 %over, label %missing, label %look

look:
  %double = shl i64 %i, 4
  %offset = add i64 %double, 8
  %pair = getelementptr i8, ptr %data, i64 %offset
  %found = load i64, ptr %pair
  %same = icmp eq i64 %found, %id
  br i1 %same, label %give, label %other

other:
  %after = add i64 %i, 1
  br label %next

missing:
  fail NOT_FOUND no_data

give:
  %value_at = getelementptr i8, ptr %pair, i64 8
  %value = load ptr, ptr %value_at
  arg 32 ptr %value
  ret ptr null
"""),
    "State_Set": (40, _STATE + """
  %is_set = icmp ne i64 %there, 0
  br i1 %is_set, label %again, label %known

again:
  fail FAILED_PRECONDITION is_set

known:
  %type = call ptr @type_of(i64 %id)
  %no_type = icmp eq ptr %type, null
  br i1 %no_type, label %unknown, label %put

unknown:
  fail NOT_FOUND type

put:
  %object = load ptr, ptr %object_at
  store i64 %id, ptr %slot
  store ptr %object, ptr %slot_object
  ret ptr null
"""),
    "State_Get": (40, _STATE + """
  %is_unset = icmp eq i64 %there, 0
  br i1 %is_unset, label %unset, label %compare

unset:
  fail NOT_FOUND not_set

compare:
  %same = icmp eq i64 %there, %id
  br i1 %same, label %give, label %other

other:
  fail INVALID_ARGUMENT other_type

give:
  %object = load ptr, ptr %slot_object
  store ptr %object, ptr %object_at
  ret ptr null
"""),
    "DeviceMemory_Allocate": (48, _CONTEXT + """
  %bytes = arg i64 24
  %alignment = arg i64 32
  %population = call i64 @llvm.ctpop.i64(i64 %alignment)
  %is_power = icmp eq i64 %population, 1
  br i1 %is_power, label %allocate, label %crooked

crooked:
  fail INVALID_ARGUMENT alignment

allocate:
  %is_less = icmp ult i64 %alignment, 64
  %line = select i1 %is_less, i64 64, i64 %alignment
  %place = alloca ptr
  store ptr null, ptr %place
  %status = call i32 @posix_memalign(ptr %place, i64 %line, i64 %bytes)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %short, label %give

short:
  fail RESOURCE_EXHAUSTED memory

give:
  %memory = load ptr, ptr %place
  arg 40 ptr %memory
  ret ptr null
"""),
    "DeviceMemory_Free": (40, _CONTEXT + """
  %memory = arg ptr 32
  call void @free(ptr %memory)
  ret ptr null
"""),
    "ThreadPool_Schedule": (40, _CONTEXT + """
  %task = arg ptr 24
  %data = arg ptr 32
  %node = call ptr @malloc(i64 24)
  %no_node = icmp eq ptr %node, null
  br i1 %no_node, label %here, label %lock

lock:
  call i32 @pthread_mutex_lock(ptr @queue_mutex)
  %has = call i1 @has_worker()
  br i1 %has, label %put, label %without

without:
  call i32 @pthread_mutex_unlock(ptr @queue_mutex)
  call void @free(ptr %node)
  br label %here

here:
  call void %task(ptr %data)
  ret ptr null

put:
  store ptr null, ptr %node
  %task_field = getelementptr i8, ptr %node, i64 8
  store ptr %task, ptr %task_field
  %data_field = getelementptr i8, ptr %node, i64 16
  store ptr %data, ptr %data_field
  %last = load ptr, ptr @tail
  %empty = icmp eq ptr %last, null
  %place = select i1 %empty, ptr @head, ptr %last
  store ptr %node, ptr %place
  store ptr %node, ptr @tail
  call i32 @pthread_cond_signal(ptr @queue_condition)
  call i32 @pthread_mutex_unlock(ptr @queue_mutex)
  ret ptr null
"""),
    "ThreadPool_NumThreads": (32, """
  %place = arg ptr 24
  %count = load i64, ptr @threads
  store i64 %count, ptr %place
  ret ptr null
"""),
    "Future_Create": (16, """
  %future = call ptr @malloc(i64 272)
  %none = icmp eq ptr %future, null
  br i1 %none, label %short, label %fill

short:
  ret ptr @no_memory

fill:
  call void @llvm.memset.p0.i64(ptr %future, i8 0, i64 272, i1 false)
  %mutex = getelementptr i8, ptr %future, i64 16
  %condition = getelementptr i8, ptr %future, i64 144
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  arg 16 ptr %future
  ret ptr null
"""),
    "Future_SetAvailable": (24, """
  %future = arg ptr 16
  %status = call ptr @complete(ptr @name_Future_SetAvailable, ptr %future, i64 1, ptr null)
  ret ptr %status
"""),
    "Future_SetError": (32, """
  %future = arg ptr 16
  %error = arg ptr 24
  %none = icmp eq ptr %error, null
  br i1 %none, label %null, label %set

null:
  fail INVALID_ARGUMENT null_error

set:
  %status = call ptr @complete(ptr @name_Future_SetError, ptr %future, i64 2, ptr %error)
  ret ptr %status
"""),
    "RunId_Get": (32, _CONTEXT + """
  %run_at = getelementptr i8, ptr %context, i64 $RUN
  %run = load i64, ptr %run_at
  arg 24 i64 %run
  ret ptr null
"""),
    "DeviceOrdinal_Get": (28, _CONTEXT + """
  %device = load i32, ptr %context
  arg 24 i32 %device
  ret ptr null
"""),
    "InvokeContext_FindExtension": (
        40,
        """
  arg 32 ptr null
  ret ptr null
""",
    ),
    "CustomOptions_Get": (
        32,
        """
  arg 24 ptr @no_options
  ret ptr null
""",
    ),
}  # fmt: skip
"""The size of the arguments up to what is read of them, and the body."""
