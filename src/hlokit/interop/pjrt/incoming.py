"""Buffers that are filled piece by piece, as machine code: PJRT_AsyncHostToDeviceTransferManager.

The event `coming` of such a buffer is ready when the last piece has come, or has an error.
"""

from __future__ import annotations

from hlokit.cpu.jit.libc import FREE, MALLOC
from hlokit.cpu.llvm import I64, POINTER, Function, Module, Pointer, Prototype, Record
from hlokit.interop.pjrt.buffers import DROP_BUFFER, RELEASE, STORAGE
from hlokit.interop.pjrt.code import api_function
from hlokit.interop.pjrt.events import (
    CANCELLED,
    DROP_EVENT,
    EVENT,
    FIRE,
    MAKE_ERROR,
    READY,
    into_python,
    new_event,
    told,
)

TRANSFERS = Record("Transfers", {"device": POINTER, "count": I64, "slots": POINTER})
"""A transfer manager. `slots`: a SLOT for each buffer."""
SLOT = Record("Slot", {"storage": POINTER, "event": POINTER, "buffer": POINTER, "nbytes": I64})
"""It holds one reference to its storage and one to its event; `buffer`: null once somebody has retrieved it."""
MAKE_TRANSFERS = Prototype("make_transfers", POINTER, {"device": POINTER, "count": I64})
MAKE_COMING = Prototype("make_coming", POINTER, {})
_PREFIX = "AsyncHostToDeviceTransferManager"


def write(module: Module) -> None:
    """Adds the functions."""
    for function in (_make_transfers(), _make_coming(), _transfer_data(), _set_error(), _destroy()):
        module.add(function, exported=True)


def _make_transfers() -> Function:
    """A manager of so many buffers, whose slots are empty."""
    f = Function.of(MAKE_TRANSFERS)
    count = f.argument("count")
    made = f.call(MALLOC, TRANSFERS.bytes).to(TRANSFERS)
    slots = f.call(MALLOC, (count + 1) * SLOT.bytes)
    f.memset(slots, 0, count * SLOT.bytes)
    made["device"].store(f.pointer("device"))
    made["count"].store(count)
    made["slots"].store(slots)
    f.returns(made)
    return f


def _make_coming() -> Function:
    """The event of a slot and its buffer."""
    f = Function.of(MAKE_COMING)
    f.returns(new_event(f, 2))
    return f


def _slot(args: Pointer) -> Pointer:
    """The slot of the arguments' `buffer_index`; of one that there is not, Python says so."""
    f, manager = args.fn, args["transfer_manager"].load_pointer(TRANSFERS)
    number = args["buffer_index"].load().zext(64)
    with f.when(number.compare("uge", manager["count"].load())):
        into_python(f, args, f.name)
    return manager["slots"].load_pointer(SLOT)[number]


def _transfer_data() -> Function:
    f, args = api_function(f"{_PREFIX}_TransferData")
    slot = _slot(args)
    offset, count, size = args["offset"].load(), args["transfer_size"].load(), slot["nbytes"].load()
    inside = offset.compare("ule", size) & count.compare("ule", size - offset)
    with f.when(~inside | slot["event"].load_pointer(EVENT)["ready"].load().ne(0)):
        into_python(f, args, f.name)
    data = slot["storage"].load_pointer(STORAGE)["data"].load_pointer()
    f.memcpy(data + offset, args["data"].load_pointer(), count)
    args["done_with_h2d_transfer"].store(f.address(READY))
    with f.when(args["is_last_transfer"].load().ne(0)):
        f.call(FIRE, slot["event"].load_pointer(), None)
    f.returns()
    return f


def _set_error() -> Function:
    f, args = api_function(f"{_PREFIX}_SetBufferError")
    slot = _slot(args)
    text, size = args["error_message"].load_pointer(), args["error_message_size"].load()
    with f.when(slot["event"].load_pointer(EVENT)["ready"].load().eq(0)):
        error = f.call(MAKE_ERROR, args["error_code"].load().zext(64), text, size)
        f.call(FIRE, slot["event"].load_pointer(), error)
    f.returns()
    return f


def _destroy() -> Function:
    """Buffers that have not come whole get an error."""
    f, args = api_function(f"{_PREFIX}_Destroy")
    manager = args["transfer_manager"].load_pointer(TRANSFERS)
    with f.when(manager.is_null()):
        f.returns()
    slots = manager["slots"].load_pointer(SLOT)
    with f.loop(0, manager["count"].load()) as loop:
        slot = slots[loop.index]
        with f.when(slot["event"].load_pointer(EVENT)["ready"].load().eq(0)):
            f.call(FIRE, slot["event"].load_pointer(), told(f, CANCELLED, "the transfer was given up", "given_up"))
        with f.when(~slot["buffer"].load_pointer().is_null()):
            f.call(DROP_BUFFER, slot["buffer"].load_pointer())
        f.call(DROP_EVENT, slot["event"].load_pointer())
        f.call(RELEASE, slot["storage"].load_pointer())
    f.call(FREE, slots)
    f.call(FREE, manager)
    f.returns()
    return f
