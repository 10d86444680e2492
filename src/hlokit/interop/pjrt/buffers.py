"""Buffers and the memory behind them, as machine code.

A buffer holds one reference to its storage until it is deleted; copies on other devices and in other memories share
it, since a storage that several hold is never written to. Memory from RECYCLED on is used again (pages.py).
"""

from __future__ import annotations

from hlokit.cpu.jit.libc import ALIGNED_ALLOC, FREE, MALLOC, USLEEP, spin_lock, spin_unlock
from hlokit.cpu.llvm import (
    I1,
    I32,
    I64,
    POINTER,
    Field,
    Function,
    Global,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.cpu.target import ALIGNMENT
from hlokit.interop.pjrt import layouts, pages
from hlokit.interop.pjrt.code import api_function
from hlokit.interop.pjrt.events import DROP_EVENT, EVENT, FIRE, READY, into_python, new_event, told
from hlokit.interop.pjrt.pages import GIVE_PAGES, PAGE, TAKE_PAGES
from hlokit.types.dtype import DTYPES

BUFFER = Record(
    "Buffer",
    {
        "lock": I32,
        "storage": POINTER,
        "device": POINTER,
        "memory": POINTER,
        "type": I32,
        "nbytes": I64,
        "coming": POINTER,
        "external": I64,
        "destroyed": I64,
        "rank": I64,
        "dims": Field(I64, 0),
    },
)
"""A PJRT_Buffer, which its `rank` sizes follow, then a pointer: the storage that is lent to other frameworks.
`external`: references that these hold; `coming`: the event of data that are on their way (incoming.py), or null."""
STORAGE = Record(
    "Storage",
    {"refs": I64, "data": POINTER, "capacity": I64, "event": POINTER, "callback": POINTER, "argument": POINTER},
)
"""`capacity`: bytes that go back to the recycler; `event`: to be fired, `callback`: to be called when it is freed."""
DEVICE = Record("Device", {"number": I64, "memory": POINTER})
MEMORY = Record(
    "Memory",
    {
        "table": POINTER,
        "device": POINTER,
        "number": I64,
        "kind": POINTER,
        "kind_size": I64,
        "kind_number": I64,
        "users": POINTER,
        "users_lock": I32,
    },
)
"""`users`: a list of USERs."""
USER = Record("User", {"next": POINTER, "key": POINTER, "data": POINTER, "destroy": POINTER})
"""The caller's own data, kept with a memory."""
HEAD = 64
"""Bytes of a storage before data that lies with it."""
RECYCLED = 2**16
"""Bytes from which memory is used again."""
ALIASED = 2**14
"""Bytes from which memory of the caller's is used in place where the caller lets us; less is sooner copied."""
RESOURCE_EXHAUSTED = layouts.ERROR_CODES.index("RESOURCE_EXHAUSTED")

_SHAPE = {"type": I32, "rank": I64, "dims": POINTER, "nbytes": I64}
ALLOCATE = Prototype("allocate", POINTER, {"size": I64})
HOLD = Prototype("hold", None, {"storage": POINTER})
RELEASE = Prototype("release", None, {"storage": POINTER})
MAKE_BUFFER = Prototype("make_buffer", POINTER, {"storage": POINTER, "device": POINTER, "memory": POINTER, **_SHAPE})
ACQUIRE = Prototype("acquire", POINTER, {"buffer": POINTER})
TAKE = Prototype("take", POINTER, {"buffer": POINTER})
DROP_BUFFER = Prototype("drop_buffer", None, {"buffer": POINTER})
SETTLE = Prototype("settle", I1, {"buffer": POINTER})
COMING = Prototype("coming", POINTER, {"buffer": POINTER})
IS_DENSE = Prototype("is_dense", I1, {"layout": POINTER, "rank": I64})
_GET_USER_DATA = Prototype("memory_get_user_data", POINTER, {"memory": POINTER, "key": POINTER})
_SET_USER_DATA = Prototype(
    "memory_set_user_data", None, {"memory": POINTER, "key": POINTER, "data": POINTER, "destroy": POINTER}
)

_ITEM_SIZES = Global(
    "item_sizes",
    I64,
    len(layouts.BUFFER_TYPES),
    initial=[DTYPES[name].numpy.itemsize if name not in ("invalid", "token") else 0 for name in layouts.BUFFER_TYPES],
    constant=True,
)
MEMORY_TABLE = Global(
    "memory_table",
    layouts.record("MemoryTable"),
    initial={
        "size": layouts.size("MemoryTable"),
        "instance_size": 8,
        "get_user_data": _GET_USER_DATA,
        "set_user_data": _SET_USER_DATA,
    },
    exported=True,
)


def write(module: Module, platform: str = "linux") -> None:
    """Adds the functions and their data."""
    module.use(MEMORY_TABLE)
    pages.write(module, platform)
    for function in (
        _allocate(), _hold(), _release(), _make_buffer(), _acquire(), _take(),
        _drop_buffer(), _is_dense(), _coming(), _settle(), _get_user_data(), _set_user_data(),
    ):  # fmt: skip
        module.add(function, exported=True)
    for function in (
        _destroy(), _delete(), _is_deleted(), _get("Buffer_ElementType", "type", "type"),
        _get("Buffer_Device", "device", "device"), _get("Buffer_Memory", "memory", "memory"),
        _get("Buffer_OnDeviceSizeInBytes", "on_device_size_in_bytes", "nbytes"),
        _dimensions("Buffer_Dimensions", "dims", "num_dims"),
        _dimensions("Buffer_UnpaddedDimensions", "unpadded_dims", "num_dims"),
        _dynamic(), _on_cpu(), _ready_event(), _pointer("Buffer_UnsafePointer", "buffer_pointer"),
        _pointer("Buffer_OpaqueDeviceMemoryDataPointer", "device_memory_ptr"), _increase(), _decrease(),
        _copy_to_device(), _copy_to_memory(), _to_host(), _copy_raw(), _from_host(), _view(), _memory_kind(),
    ):  # fmt: skip
        module.add(function, exported=True)


# -- memory


def _storage(f: Function, size: Value | int, data: Pointer | None = None) -> Pointer:
    """A storage with one reference, in fresh memory of `size` bytes; its data follows it, or is `data`."""
    storage = f.call(ALIGNED_ALLOC, ALIGNMENT, size).to(STORAGE)
    with f.when(storage.is_null()):
        f.returns(None)
    f.memset(storage, 0, HEAD)
    storage["refs"].store(1)
    storage["data"].store(data or storage + HEAD)
    return storage


def _allocate() -> Function:
    """A storage of `size` bytes, aligned to 64, with anything in them. Null if there is no memory."""
    f = Function.of(ALLOCATE)
    size = f.argument("size")
    with f.when(size.compare("ult", RECYCLED)):
        f.returns(_storage(f, (size + (HEAD + ALIGNMENT - 1)) & -ALIGNMENT))
    whole = (size + (PAGE - 1)) & -PAGE
    data = f.call(TAKE_PAGES, whole)
    with f.when(data.is_null()):
        f.returns(None)
    storage = _storage(f, HEAD, data)
    storage["capacity"].store(whole)
    f.returns(storage)
    return f


def _hold() -> Function:
    """Takes one reference more to a storage."""
    f = Function.of(HOLD)
    f.pointer("storage", STORAGE)["refs"].atomicrmw("add", 1)
    f.returns()
    return f


def _release() -> Function:
    """Gives up one reference to a storage."""
    f = Function.of(RELEASE)
    storage = f.pointer("storage", STORAGE)
    with f.when(storage["refs"].atomicrmw("add", -1).ne(1)):
        f.returns()
    data, capacity = storage["data"].load_pointer(), storage["capacity"].load()
    event, callback = storage["event"].load_pointer(), storage["callback"].load_pointer()
    with f.when(capacity.ne(0)):
        f.call(GIVE_PAGES, data, capacity)
    with f.when(~event.is_null()):
        f.call(FIRE, event, None)
        f.call(DROP_EVENT, event)
    with f.when(~callback.is_null()):
        callback.call(None, data, storage["argument"].load_pointer())
    f.call(FREE, storage)
    f.returns()
    return f


# -- buffers


def _make_buffer() -> Function:
    """A buffer that takes over a reference to the storage."""
    f = Function.of(MAKE_BUFFER)
    rank = f.argument("rank")
    buffer = f.call(MALLOC, (rank << 3) + (BUFFER.bytes + POINTER.bytes)).to(BUFFER)
    f.memset(buffer, 0, BUFFER.bytes)
    for name in ("storage", "device", "memory", "type", "nbytes", "rank"):
        buffer[name].store(f.argument(name))
    f.memcpy(buffer["dims"], f.pointer("dims"), rank << 3)
    f.returns(buffer)
    return f


def _acquire() -> Function:
    """The buffer's storage, with a reference more; null if it was deleted."""
    f = Function.of(ACQUIRE)
    buffer = f.pointer("buffer", BUFFER)
    spin_lock(buffer["lock"])
    storage = buffer["storage"].load_pointer(STORAGE)
    with f.when(~storage.is_null()):
        storage["refs"].atomicrmw("add", 1)
    spin_unlock(buffer["lock"])
    f.returns(storage)
    return f


def _take() -> Function:
    """The buffer's storage with the buffer's reference; the buffer is then deleted. Null if it was."""
    f = Function.of(TAKE)
    buffer = f.pointer("buffer", BUFFER)
    spin_lock(buffer["lock"])
    storage = buffer["storage"].load_pointer()
    buffer["storage"].store(None)
    spin_unlock(buffer["lock"])
    f.returns(storage)
    return f


def _drop_buffer() -> Function:
    """Deletes the buffer; frees it, now or with the last reference from outside."""
    f = Function.of(DROP_BUFFER)
    buffer = f.pointer("buffer", BUFFER)
    _delete_storage(buffer)
    f.call(DROP_EVENT, buffer["coming"].load_pointer())
    buffer["coming"].store(None)
    buffer["destroyed"].store(1)
    with f.when(buffer["external"].load().ne(0)):
        f.returns()
    f.call(FREE, buffer)
    f.returns()
    return f


def _delete_storage(buffer: Pointer) -> None:
    f = buffer.fn
    storage = f.call(TAKE, buffer)
    with f.when(~storage.is_null()):
        f.call(RELEASE, storage)


def _destroy() -> Function:
    f, args = api_function("Buffer_Destroy")
    buffer = args["buffer"].load_pointer()
    with f.when(~buffer.is_null()):
        f.call(DROP_BUFFER, buffer)
    f.returns()
    return f


def _delete() -> Function:
    f, args = api_function("Buffer_Delete")
    _delete_storage(args["buffer"].load_pointer())
    f.returns()
    return f


def _is_deleted() -> Function:
    f, args = api_function("Buffer_IsDeleted")
    storage = args["buffer"].load_pointer(BUFFER)["storage"].load_pointer()
    args["is_deleted"].store(storage.is_null().zext(8))
    f.returns()
    return f


def _get(name: str, field: str, own: str) -> Function:
    f, args = api_function(name)
    args[field].store(args["buffer"].load_pointer(BUFFER)[own].load())
    f.returns()
    return f


def _dimensions(name: str, dims: str, count: str) -> Function:
    f, args = api_function(name)
    buffer = args["buffer"].load_pointer(BUFFER)
    args[dims].store(buffer["dims"])
    args[count].store(buffer["rank"].load())
    f.returns()
    return f


def _dynamic() -> Function:
    f, args = api_function("Buffer_DynamicDimensionIndices")
    args["dynamic_dim_indices"].store(None)
    args["num_dynamic_dims"].store(0)
    f.returns()
    return f


def _on_cpu() -> Function:
    f, args = api_function("Buffer_IsOnCpu")
    args["is_on_cpu"].store(1)
    f.returns()
    return f


def _ready_event() -> Function:
    f, args = api_function("Buffer_ReadyEvent")
    event = f.call(COMING, args["buffer"].load_pointer())
    args["event"].store(f.address(READY))
    with f.when(~event.is_null()):
        args["event"].store(event)
    f.returns()
    return f


def _coming() -> Function:
    """The event of the buffer's data, with a reference more; null if they are there."""
    f = Function.of(COMING)
    buffer = f.pointer("buffer", BUFFER)
    spin_lock(buffer["lock"])
    event = buffer["coming"].load_pointer(EVENT)
    with f.when(~event.is_null()):
        event["refs"].atomicrmw("add", 1)
    spin_unlock(buffer["lock"])
    f.returns(event)
    return f


def _settle() -> Function:
    """Waits until the buffer's data are there; False if they failed to come."""
    f = Function.of(SETTLE)
    buffer = f.pointer("buffer", BUFFER)
    event = f.call(COMING, buffer).to(EVENT)
    with f.when(event.is_null()):
        f.returns(True)
    waiting = While(f, [])
    waiting.test(event["ready"].load(ordering="acquire").eq(0))
    f.call(USLEEP, 20)
    waiting.again()
    with f.when(~event["error"].load_pointer().is_null()):
        f.call(DROP_EVENT, event)
        f.returns(False)
    spin_lock(buffer["lock"])
    known = buffer["coming"].load_pointer()
    buffer["coming"].store(None)
    spin_unlock(buffer["lock"])
    f.call(DROP_EVENT, known)
    f.call(DROP_EVENT, event)
    f.returns(True)
    return f


def _deleted(args: Pointer, storage: Pointer) -> None:
    """Where there is no storage, Python says so."""
    with args.fn.when(storage.is_null()):
        into_python(args.fn, args, args.fn.name)


def _pointer(name: str, field: str) -> Function:
    f, args = api_function(name)
    storage = args["buffer"].load_pointer(BUFFER)["storage"].load_pointer(STORAGE)
    _deleted(args, storage)
    args[field].store(storage["data"].load_pointer())
    f.returns()
    return f


def _increase() -> Function:
    f, args = api_function("Buffer_IncreaseExternalReferenceCount")
    buffer = args["buffer"].load_pointer(BUFFER)
    storage = f.call(ACQUIRE, buffer)
    _deleted(args, storage)
    buffer["external"].atomicrmw("add", 1)
    _lent(buffer).store(storage)
    f.returns()
    return f


def _lent(buffer: Pointer) -> Pointer:
    """Where the buffer keeps the storage that is lent to the outside: after its sizes."""
    return buffer["dims"][buffer["rank"].load()].to(POINTER)


def _decrease() -> Function:
    f, args = api_function("Buffer_DecreaseExternalReferenceCount")
    buffer = args["buffer"].load_pointer(BUFFER)
    with f.when(buffer["external"].load().eq(0)):
        into_python(f, args, f.name)
    storage = _lent(buffer).load_pointer()
    is_last = buffer["external"].atomicrmw("add", -1).eq(1)
    f.call(RELEASE, storage)
    with f.when(is_last & buffer["destroyed"].load().ne(0)):
        f.call(FREE, buffer)
    f.returns()
    return f


# -- copies


def _shared(args: Pointer, device: Pointer, memory: Pointer) -> None:
    """A buffer elsewhere with the same storage."""
    f, buffer = args.fn, args["buffer"].load_pointer(BUFFER)
    storage = f.call(ACQUIRE, buffer)
    _deleted(args, storage)
    shape = buffer["type"].load(), buffer["rank"].load(), buffer["dims"], buffer["nbytes"].load()
    made = f.call(MAKE_BUFFER, storage, device, memory, *shape).to(BUFFER)
    made["coming"].store(f.call(COMING, buffer))
    args["dst_buffer"].store(made)
    f.returns()


def _copy_to_device() -> Function:
    f, args = api_function("Buffer_CopyToDevice")
    device = args["dst_device"].load_pointer(DEVICE)
    _shared(args, device, device["memory"].load_pointer())
    return f


def _copy_to_memory() -> Function:
    f, args = api_function("Buffer_CopyToMemory")
    memory = args["dst_memory"].load_pointer(MEMORY)
    _shared(args, memory["device"].load_pointer(), memory)
    return f


def _to_host() -> Function:
    f, args = api_function("Buffer_ToHostBuffer")
    buffer, to = args["src"].load_pointer(BUFFER), args["dst"].load_pointer()
    size = buffer["nbytes"].load()
    args["event"].store(f.address(READY))
    with f.when(to.is_null()):
        args["dst_size"].store(size)
        f.returns()
    is_dense = f.call(IS_DENSE, args["host_layout"].load_pointer(), buffer["rank"].load())
    fits = args["dst_size"].load().compare("uge", size)
    with f.when(~(is_dense & fits)):
        into_python(f, args, f.name)
    _copied(args, buffer, to, size)
    f.returns()
    return f


def _copied(args: Pointer, buffer: Pointer, to: Pointer, size: Value, offset: Value | int = 0) -> None:
    f = args.fn
    with f.when(~f.call(SETTLE, buffer)):
        into_python(f, args, f.name)
    storage = f.call(ACQUIRE, buffer).to(STORAGE)
    _deleted(args, storage)
    f.memcpy(to, storage["data"].load_pointer() + offset, size)
    f.call(RELEASE, storage)


def _copy_raw() -> Function:
    f, args = api_function("Buffer_CopyRawToHost")
    buffer, offset, count = args["buffer"].load_pointer(BUFFER), args["offset"].load(), args["transfer_size"].load()
    size = buffer["nbytes"].load()
    inside = offset.compare("ule", size) & count.compare("ule", size - offset)
    with f.when(~inside):
        into_python(f, args, f.name)
    _copied(args, buffer, args["dst"].load_pointer(), count, offset)
    args["event"].store(f.address(READY))
    f.returns()
    return f


def _is_dense() -> Function:
    """Whether a MemoryLayout, or null, is row-major order without tiles."""
    f = Function.of(IS_DENSE)
    layout, rank = f.pointer("layout", layouts.record("MemoryLayout")), f.argument("rank")
    with f.when(layout.is_null()):
        f.returns(True)
    for name, wanted in (("type", 0), ("minor_to_major_size", rank), ("num_tiles", 0)):
        with f.when(layout[name].load().ne(wanted)):
            f.returns(False)
    order, last = layout["minor_to_major"].load_pointer(I64), rank - 1
    with f.loop(0, rank) as loop, f.when(order[loop.index].load().ne(last - loop.index)):
        f.returns(False)
    f.returns(True)
    return f


def no_memory(f: Function) -> Pointer:
    """The error."""
    return told(f, RESOURCE_EXHAUSTED, "out of memory", "memory")


def _allocated(f: Function, size: Value | int) -> Pointer:
    """A fresh storage; where there is none, the function gives an error."""
    storage = f.call(ALLOCATE, size).to(STORAGE)
    with f.when(storage.is_null()):
        f.returns(no_memory(f))
    return storage


def _where(args: Pointer) -> tuple[Pointer, Pointer]:
    """The device and the memory that the arguments ask for: the memory, else the device's own."""
    device, memory = args["device"].load_pointer(DEVICE), args["memory"].load_pointer()
    memory = memory.is_null().select(device["memory"], args["memory"]).load_pointer(MEMORY)
    return memory["device"].load_pointer(), memory


def _item_size(args: Pointer, type: Value) -> Value:
    """Bytes of an element of a PJRT_Buffer_Type. Later versions' types, and those of no array, Python refuses."""
    f = args.fn
    with f.when(type.compare("uge", len(layouts.BUFFER_TYPES))):
        into_python(f, args, f.name)
    size = f.address(_ITEM_SIZES)[type.zext(64)].load()
    with f.when(size.eq(0)):
        into_python(f, args, f.name)
    return size


def _from_host() -> Function:
    """Copies dense data, or takes it as it lies; data with gaps is Python's."""
    f, args = api_function("Client_BufferFromHostBuffer")
    type, rank, dims = args["type"].load(), args["num_dims"].load(), args["dims"].load_pointer(I64)
    item = _item_size(args, type)
    strided = args["num_byte_strides"].load().ne(0)
    strides = args["byte_strides"].load_pointer(I64)
    with f.loop(0, rank, carries=[item, f.constant(True, I1)]) as loop:
        inner, is_dense = loop.carried
        place = (rank - 1) - loop.index
        size = dims[place].load()
        stride = strided.select(strides, dims)[place].load()
        fine = stride.eq(inner) | size.compare("ule", 1) | ~strided
        loop.next = [inner * size, is_dense & fine]
    nbytes, is_dense = loop.results
    is_plain = f.call(IS_DENSE, args["device_layout"].load_pointer(), rank)
    with f.when(~((is_dense | nbytes.eq(0)) & is_plain)):
        into_python(f, args, f.name)
    data, (device, memory) = args["data"].load_pointer(), _where(args)
    shape = (type, rank, dims, nbytes)
    is_allowed = args["host_buffer_semantics"].load() >= 2
    is_aligned = (data.address() & (ALIGNMENT - 1)).eq(0)
    with f.when(is_allowed & is_aligned & nbytes.compare("uge", ALIASED)):
        storage, event = _allocated(f, 0), new_event(f, 2)
        storage["data"].store(data)
        storage["event"].store(event)
        args["done_with_host_buffer"].store(event)
        args["buffer"].store(f.call(MAKE_BUFFER, storage, device, memory, *shape))
        f.returns()
    storage = _allocated(f, nbytes)
    f.memcpy(storage["data"].load_pointer(), data, nbytes)
    args["done_with_host_buffer"].store(f.address(READY))
    args["buffer"].store(f.call(MAKE_BUFFER, storage, device, memory, *shape))
    f.returns()
    return f


def _view() -> Function:
    """A buffer over memory that another library owns."""
    f, args = api_function("Client_CreateViewOfDeviceBuffer")
    type, rank, dims = args["element_type"].load(), args["num_dims"].load(), args["dims"].load_pointer(I64)
    item = _item_size(args, type)
    with f.when(~f.call(IS_DENSE, args["layout"].load_pointer(), rank)):
        into_python(f, args, f.name)
    with f.loop(0, rank, carries=[item]) as loop:
        loop.next = [loop.carried[0] * dims[loop.index].load()]
    (nbytes,), (device, memory) = loop.results, _where(args)
    storage = _allocated(f, 0)
    storage["data"].store(args["device_buffer_ptr"].load_pointer())
    storage["callback"].store(args["on_delete_callback"].load_pointer())
    storage["argument"].store(args["on_delete_callback_arg"].load_pointer())
    args["buffer"].store(f.call(MAKE_BUFFER, storage, device, memory, type, rank, dims, nbytes))
    f.returns()
    return f


# -- memories


def _memory_kind() -> Function:
    f, args = api_function("Memory_Kind")
    memory = args["memory"].load_pointer(MEMORY)
    args["kind"].store(memory["kind"].load_pointer())
    args["kind_size"].store(memory["kind_size"].load())
    f.returns()
    return f


def _get_user_data() -> Function:
    f = Function.of(_GET_USER_DATA)
    memory = f.pointer("memory", MEMORY)
    spin_lock(memory["users_lock"])
    user = _user(memory, f.pointer("key"))
    found = f.local(POINTER)
    found.store(None)
    with f.when(~user.is_null()):
        found.store(user["data"].load_pointer())
    spin_unlock(memory["users_lock"])
    f.returns(found.load_pointer())
    return f


def _user(memory: Pointer, key: Pointer) -> Pointer:
    """The memory's node with this key, or null."""
    users = While(memory.fn, [memory["users"].load_pointer(USER)])
    (user,) = users.values
    users.test(~user.is_null())
    users.test(user["key"].load_pointer().ne(key))
    users.again(user["next"].load_pointer(USER))
    return users.values[0]


def _set_user_data() -> Function:
    """Keeps `data` under `key`; what was there before is destroyed."""
    f = Function.of(_SET_USER_DATA)
    memory, key = f.pointer("memory", MEMORY), f.pointer("key")
    spin_lock(memory["users_lock"])
    found, place = _user(memory, key), f.local(POINTER)
    place.store(found)
    with f.when(found.is_null()):
        fresh = f.call(MALLOC, USER.bytes).to(USER)
        f.memset(fresh, 0, USER.bytes)
        fresh["next"].store(memory["users"].load_pointer())
        fresh["key"].store(key)
        memory["users"].store(fresh)
        place.store(fresh)
    user = place.load_pointer(USER)
    old, destroy = user["data"].load_pointer(), user["destroy"].load_pointer()
    user["data"].store(f.pointer("data"))
    user["destroy"].store(f.pointer("destroy"))
    spin_unlock(memory["users_lock"])
    with f.when(~(old.is_null() | destroy.is_null())):
        destroy.call(None, old)
    f.returns()
    return f
