"""Buffers and the memory behind them, as machine code.

A buffer holds one reference to its storage until it is deleted; copies on other devices and in other memories share
it, since a storage that several hold is never written to. Memory from LARGE on lies on huge pages and is used again.
"""

from __future__ import annotations

from hlokit.cpu.llvm import Module
from hlokit.cpu.target import ALIGNMENT
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.code import Code, Record
from hlokit.interop.pjrt.events import into_python, new_event
from hlokit.types.dtype import DTYPES

BUFFER = Record("lock storage device memory type nbytes external destroyed rank dims")
"""A PJRT_Buffer; its sizes follow in place of `dims`. `external`: references that other frameworks hold."""
STORAGE = Record("refs data capacity event callback argument")
"""`capacity`: bytes that go back to the recycler; `event`: to be fired, `callback`: to be called when it is freed."""
DEVICE = Record("number memory")
MEMORY = Record("table device number kind kind_size kind_number users users_lock")
USER = Record("next key data destroy")
"""What the caller keeps with a memory."""
HEAD = 64
"""Bytes of a storage before data that lies with it."""
LARGE, HUGE = 2**20, 2**21
SLOTS, KEPT = 64, 2**30
ALIASED = 2**14
"""Bytes from which memory of the caller's is used in place where the caller lets us; less is sooner copied."""
RESOURCE_EXHAUSTED = layouts.ERROR_CODES.index("RESOURCE_EXHAUSTED")
NO_MEMORY = "out of memory"


def write(module: Module, platform: str = "linux") -> None:
    """Adds the functions and their data."""
    module.globals["kept"] = f"@kept = internal global [{2 * SLOTS} x i64] zeroinitializer"
    module.globals["kept_bytes"] = "@kept_bytes = internal global i64 0"
    module.globals["memory_table"] = "@memory_table = global [5 x ptr] zeroinitializer"
    module.globals["kept_lock"] = "@kept_lock = internal global i32 0"
    sizes = [DTYPES[name].numpy.itemsize if name not in ("invalid", "token") else 0 for name in layouts.BUFFER_TYPES]
    module.table("item_sizes", "i64", sizes)
    text = f'@text_memory = internal constant [{len(NO_MEMORY)} x i8] c"{NO_MEMORY}"'
    module.globals["text_memory"] = text
    for function in (
        _take_large(platform), _give_large(), _allocate(), _release(), _make_buffer(), _acquire(), _take(),
        _drop_buffer(), _is_dense(), _get_user_data(), _set_user_data(),
    ):  # fmt: skip
        module.add(function, exported=True)
    for function in (
        _destroy(), _delete(), _is_deleted(), _get("Buffer_ElementType", type=("type", "i32")),
        _get("Buffer_Device", device=("device", "ptr")), _get("Buffer_Memory", memory=("memory", "ptr")),
        _get("Buffer_OnDeviceSizeInBytes", on_device_size_in_bytes=("nbytes", "i64")),
        _dimensions("Buffer_Dimensions", "dims", "num_dims"),
        _dimensions("Buffer_UnpaddedDimensions", "unpadded_dims", "num_dims"),
        _dynamic(), _on_cpu(), _ready_event(), _pointer("Buffer_UnsafePointer", "buffer_pointer"),
        _pointer("Buffer_OpaqueDeviceMemoryDataPointer", "device_memory_ptr"), _increase(), _decrease(),
        _copy_to_device(), _copy_to_memory(), _to_host(), _copy_raw(), _from_host(), _view(), _memory_kind(),
    ):  # fmt: skip
        module.add(function, exported=True)


# -- memory


def _take_large(platform: str) -> Code:
    """`size` bytes, whole huge pages: what came back, or fresh memory. Null if there is none."""
    f = Code("take_large", parameters=[("i64", "size")])
    f.lock("@kept_lock")
    with f.loop("0", str(SLOTS)) as loop:
        slot = f.at("@kept", f.let(f"shl i64 {loop.index}, 4"))
        with f.when(f.compare("eq", f.load(slot, 8, "i64"), "%size")):
            found = f.load(slot)
            f.store("i64", 0, slot, 8)
            f.store("i64", f.let(f"sub i64 {f.load('@kept_bytes', 0, 'i64')}, %size"), "@kept_bytes")
            f.unlock("@kept_lock")
            f.ret(found)
            f.start(f.new_block("never"))
    f.unlock("@kept_lock")
    fresh = f.call_text("ptr", "aligned_alloc", f"i64 {HUGE}", "i64 %size")
    if platform == "linux":
        with f.when(f.present(fresh)):
            f.call_text("i32", "madvise", f"ptr {fresh}", "i64 %size", "i32 14")
    f.ret(fresh)
    return f


def _give_large() -> Code:
    f = Code("give_large", parameters=[("ptr", "data"), ("i64", "size")], result="void")
    f.lock("@kept_lock")
    total = f.let(f"add i64 {f.load('@kept_bytes', 0, 'i64')}, %size")
    with f.when(f.compare("ule", total, KEPT)), f.loop("0", str(SLOTS)) as loop:
        slot = f.at("@kept", f.let(f"shl i64 {loop.index}, 4"))
        with f.when(f.compare("eq", f.load(slot, 8, "i64"), 0)):
            f.store("ptr", "%data", slot)
            f.store("i64", "%size", slot, 8)
            f.store("i64", total, "@kept_bytes")
            f.unlock("@kept_lock")
            f.ret()
            f.start(f.new_block("never"))
    f.unlock("@kept_lock")
    f.call_text("void", "free", "ptr %data")
    f.ret()
    return f


def _storage(f: Code, size: object, data: str | None = None) -> str:
    """A storage with one reference, in fresh memory of `size` bytes; its data follows it, or is `data`."""
    storage = f.call_text("ptr", "aligned_alloc", f"i64 {ALIGNMENT}", f"i64 {size}")
    with f.leaving(f.is_null(storage)):
        f.ret()
    f.zero(storage, HEAD)
    f.store("i64", 1, storage, STORAGE["refs"])
    f.store("ptr", data or f.at(storage, HEAD), storage, STORAGE["data"])
    return storage


def _allocate() -> Code:
    """A storage of `size` bytes, aligned to 64, with anything in them. Null if there is no memory."""
    f = Code("allocate", parameters=[("i64", "size")])
    with f.leaving(f.compare("ult", "%size", LARGE)):
        whole = f.let(f"and i64 {f.plus('%size', HEAD + ALIGNMENT - 1)}, {-ALIGNMENT}")
        f.ret(_storage(f, whole))
    whole = f.let(f"and i64 {f.plus('%size', HUGE - 1)}, {-HUGE}")
    data = f.call_text("ptr", "take_large", f"i64 {whole}")
    with f.leaving(f.is_null(data)):
        f.ret()
    storage = _storage(f, HEAD, data)
    f.store("i64", whole, storage, STORAGE["capacity"])
    f.ret(storage)
    return f


def _release() -> Code:
    """Gives up one reference to a storage."""
    f = Code("release", parameters=[("ptr", "storage")], result="void")
    with f.leaving(f.compare("ne", f.add("%storage", STORAGE["refs"], -1), 1)):
        f.ret()
    data, capacity = f.load("%storage", STORAGE["data"]), f.load("%storage", STORAGE["capacity"], "i64")
    event, callback = f.load("%storage", STORAGE["event"]), f.load("%storage", STORAGE["callback"])
    with f.when(f.compare("ne", capacity, 0)):
        f.call_text("void", "give_large", f"ptr {data}", f"i64 {capacity}")
    with f.when(f.present(event)):
        f.call_text("void", "fire", f"ptr {event}", "ptr null")
        f.call_text("void", "drop_event", f"ptr {event}")
    with f.when(f.present(callback)):
        f.call_text("void", callback, f"ptr {data}", f"ptr {f.load('%storage', STORAGE['argument'])}")
    f.call_text("void", "free", "ptr %storage")
    f.ret()
    return f


# -- buffers

_SHAPE = [("i32", "type"), ("i64", "rank"), ("ptr", "dims"), ("i64", "nbytes")]


def _make_buffer() -> Code:
    """A buffer that takes over a reference to the storage."""
    parameters = [("ptr", "storage"), ("ptr", "device"), ("ptr", "memory"), *_SHAPE]
    f = Code("make_buffer", parameters=parameters)
    sizes = f.times8("%rank")
    buffer = f.call_text("ptr", "malloc", f"i64 {f.plus(sizes, BUFFER.size)}")
    f.zero(buffer, BUFFER["dims"])
    for name in ("storage", "device", "memory"):
        f.store("ptr", f"%{name}", buffer, BUFFER[name])
    f.store("i32", "%type", buffer, BUFFER["type"])
    f.store("i64", "%nbytes", buffer, BUFFER["nbytes"])
    f.store("i64", "%rank", buffer, BUFFER["rank"])
    f.copy(f.at(buffer, BUFFER["dims"]), "%dims", sizes)
    f.ret(buffer)
    return f


def _acquire() -> Code:
    """The buffer's storage, with a reference more; null if it was deleted."""
    f = Code("acquire", parameters=[("ptr", "buffer")])
    f.lock("%buffer")
    storage = f.load("%buffer", BUFFER["storage"])
    with f.when(f.present(storage)):
        f.add(storage, STORAGE["refs"], 1)
    f.unlock("%buffer")
    f.ret(storage)
    return f


def _take() -> Code:
    """The buffer's storage with the buffer's reference; the buffer is then deleted. Null if it was."""
    f = Code("take", parameters=[("ptr", "buffer")])
    f.lock("%buffer")
    storage = f.load("%buffer", BUFFER["storage"])
    f.store("ptr", "null", "%buffer", BUFFER["storage"])
    f.unlock("%buffer")
    f.ret(storage)
    return f


def _drop_buffer() -> Code:
    """Deletes the buffer; frees it, now or with the last reference from outside."""
    f = Code("drop_buffer", parameters=[("ptr", "buffer")], result="void")
    storage = f.call_text("ptr", "take", "ptr %buffer")
    with f.when(f.present(storage)):
        f.call_text("void", "release", f"ptr {storage}")
    f.store("i64", 1, "%buffer", BUFFER["destroyed"])
    with f.leaving(f.compare("ne", f.load("%buffer", BUFFER["external"], "i64"), 0)):
        f.ret()
    f.call_text("void", "free", "ptr %buffer")
    f.ret()
    return f


def _destroy() -> Code:
    f = Code("Buffer_Destroy", "Buffer_Destroy")
    buffer = f.given("buffer")
    with f.when(f.present(buffer)):
        f.call_text("void", "drop_buffer", f"ptr {buffer}")
    f.ret()
    return f


def _delete() -> Code:
    f = Code("Buffer_Delete", "Buffer_Delete")
    storage = f.call_text("ptr", "take", f"ptr {f.given('buffer')}")
    with f.when(f.present(storage)):
        f.call_text("void", "release", f"ptr {storage}")
    f.ret()
    return f


def _is_deleted() -> Code:
    f = Code("Buffer_IsDeleted", "Buffer_IsDeleted")
    gone = f.is_null(f.load(f.given("buffer"), BUFFER["storage"]))
    f.give("is_deleted", f.let(f"zext i1 {gone} to i8"), "i8")
    f.ret()
    return f


def _get(name: str, **fields: tuple[str, str]) -> Code:
    f = Code(name, name)
    buffer = f.given("buffer")
    for field, (own, type) in fields.items():
        f.give(field, f.load(buffer, BUFFER[own], type), type)
    f.ret()
    return f


def _dimensions(name: str, dims: str, count: str) -> Code:
    f = Code(name, name)
    buffer = f.given("buffer")
    f.give(dims, f.at(buffer, BUFFER["dims"]))
    f.give(count, f.load(buffer, BUFFER["rank"], "i64"), "i64")
    f.ret()
    return f


def _dynamic() -> Code:
    f = Code("Buffer_DynamicDimensionIndices", "Buffer_DynamicDimensionIndices")
    f.give("dynamic_dim_indices", "null")
    f.give("num_dynamic_dims", 0, "i64")
    f.ret()
    return f


def _on_cpu() -> Code:
    f = Code("Buffer_IsOnCpu", "Buffer_IsOnCpu")
    f.give("is_on_cpu", 1, "i8")
    f.ret()
    return f


def _ready_event() -> Code:
    f = Code("Buffer_ReadyEvent", "Buffer_ReadyEvent")
    f.give("event", "@ready")
    f.ret()
    return f


def _deleted(f: Code, storage: str, again: str) -> None:
    """Where there is no storage, Python says so: the callback of this name."""
    with f.leaving(f.is_null(storage)):
        into_python(f, again)


def _pointer(name: str, field: str) -> Code:
    f = Code(name, name)
    storage = f.load(f.given("buffer"), BUFFER["storage"])
    _deleted(f, storage, name)
    f.give(field, f.load(storage, STORAGE["data"]))
    f.ret()
    return f


def _increase() -> Code:
    name = "Buffer_IncreaseExternalReferenceCount"
    f = Code(name, name)
    buffer = f.given("buffer")
    storage = f.call_text("ptr", "acquire", f"ptr {buffer}")
    _deleted(f, storage, name)
    f.add(buffer, BUFFER["external"], 1)
    f.store("ptr", storage, buffer, _held(f, buffer))
    f.ret()
    return f


def _held(f: Code, buffer: str) -> str:
    """Where the buffer keeps the storage that is lent to the outside: after its sizes."""
    return f.plus(f.times8(f.load(buffer, BUFFER["rank"], "i64")), BUFFER["dims"])


def _decrease() -> Code:
    name = "Buffer_DecreaseExternalReferenceCount"
    f = Code(name, name)
    buffer = f.given("buffer")
    with f.leaving(f.compare("eq", f.load(buffer, BUFFER["external"], "i64"), 0)):
        into_python(f, name)
    storage = f.load(buffer, _held(f, buffer))
    last = f.compare("eq", f.add(buffer, BUFFER["external"], -1), 1)
    f.call_text("void", "release", f"ptr {storage}")
    destroyed = f.compare("ne", f.load(buffer, BUFFER["destroyed"], "i64"), 0)
    with f.when(f.both(last, destroyed)):
        f.call_text("void", "free", f"ptr {buffer}")
    f.ret()
    return f


# -- copies


def _shared(f: Code, name: str, device: str, memory: str) -> None:
    """A buffer elsewhere with the same storage."""
    buffer = f.given("buffer")
    storage = f.call_text("ptr", "acquire", f"ptr {buffer}")
    _deleted(f, storage, name)
    copy = f.call_text(
        "ptr", "make_buffer", f"ptr {storage}", f"ptr {device}", f"ptr {memory}",
        f"i32 {f.load(buffer, BUFFER['type'], 'i32')}", f"i64 {f.load(buffer, BUFFER['rank'], 'i64')}",
        f"ptr {f.at(buffer, BUFFER['dims'])}", f"i64 {f.load(buffer, BUFFER['nbytes'], 'i64')}",
    )  # fmt: skip
    f.give("dst_buffer", copy)
    f.ret()


def _copy_to_device() -> Code:
    f = Code("Buffer_CopyToDevice", "Buffer_CopyToDevice")
    device = f.given("dst_device")
    _shared(f, "Buffer_CopyToDevice", device, f.load(device, DEVICE["memory"]))
    return f


def _copy_to_memory() -> Code:
    f = Code("Buffer_CopyToMemory", "Buffer_CopyToMemory")
    memory = f.given("dst_memory")
    _shared(f, "Buffer_CopyToMemory", f.load(memory, MEMORY["device"]), memory)
    return f


def _to_host() -> Code:
    name = "Buffer_ToHostBuffer"
    f = Code(name, name)
    buffer, to = f.given("src"), f.given("dst")
    size = f.load(buffer, BUFFER["nbytes"], "i64")
    f.give("event", "@ready")
    with f.leaving(f.is_null(to)):
        f.give("dst_size", size, "i64")
        f.ret()
    rank = f.load(buffer, BUFFER["rank"], "i64")
    dense = f.call_text("i1", "is_dense", f"ptr {f.given('host_layout')}", f"i64 {rank}")
    fits = f.compare("uge", f.given("dst_size", "i64"), size)
    with f.leaving(f.negated(f.both(dense, fits))):
        into_python(f, name)
    storage = f.call_text("ptr", "acquire", f"ptr {buffer}")
    _deleted(f, storage, name)
    f.copy(to, f.load(storage, STORAGE["data"]), size)
    f.call_text("void", "release", f"ptr {storage}")
    f.ret()
    return f


def _copy_raw() -> Code:
    name = "Buffer_CopyRawToHost"
    f = Code(name, name)
    buffer, offset, count = f.given("buffer"), f.given("offset", "i64"), f.given("transfer_size", "i64")
    size = f.load(buffer, BUFFER["nbytes"], "i64")
    inside = f.both(f.compare("ule", offset, size), f.compare("ule", count, f.minus(size, offset)))
    with f.leaving(f.negated(inside)):
        into_python(f, name)
    storage = f.call_text("ptr", "acquire", f"ptr {buffer}")
    _deleted(f, storage, name)
    f.copy(f.given("dst"), f.at(f.load(storage, STORAGE["data"]), offset), count)
    f.call_text("void", "release", f"ptr {storage}")
    f.give("event", "@ready")
    f.ret()
    return f


def _is_dense() -> Code:
    """Whether a MemoryLayout, or null, is row-major order without tiles."""
    f = Code("is_dense", parameters=[("ptr", "layout"), ("i64", "rank")], result="i1")

    def field(name: str, type: str) -> str:
        return f.load("%layout", layouts.place("MemoryLayout", name)[0], type)

    with f.leaving(f.is_null("%layout")):
        f.ret("true")
    for name, type, wanted in (("type", "i32", 0), ("minor_to_major_size", "i64", "%rank"), ("num_tiles", "i64", 0)):
        with f.leaving(f.compare("ne", field(name, type), wanted, type)):
            f.ret("false")
    order, last = field("minor_to_major", "ptr"), f.minus("%rank", 1)
    with f.loop("0", "%rank") as loop:
        place = f.load(order, f.times8(loop.index), "i64")
        with f.leaving(f.compare("ne", place, f.minus(last, loop.index))):
            f.ret("false")
    f.ret("true")
    return f


def _no_memory(f: Code, storage: str) -> None:
    with f.leaving(f.is_null(storage)):
        size = f"i64 {len(NO_MEMORY)}"
        f.ret(f.call_text("ptr", "make_error", f"i64 {RESOURCE_EXHAUSTED}", "ptr @text_memory", size))


def _where(f: Code) -> tuple[str, str]:
    """The device and the memory that the arguments ask for: the memory, else the device's own."""
    device, memory = f.given("device"), f.given("memory")
    none = f.is_null(memory)
    home = f.let(f"select i1 {none}, ptr {f.at(device, DEVICE['memory'])}, ptr {f.at('%args', _memory_at(f))}")
    memory = f.load(home)
    return f.load(memory, MEMORY["device"]), memory


def _memory_at(f: Code) -> int:
    return layouts.place(f.arguments, "memory")[0]


def _known_type(f: Code, type: str) -> None:
    """Types of later versions, and those that no array has, are Python's to refuse."""
    with f.leaving(f.compare("uge", type, len(layouts.BUFFER_TYPES), "i32")):
        into_python(f, f.name)
    with f.leaving(f.compare("eq", f.load("@item_sizes", f.times8(f.wide(type)), "i64"), 0)):
        into_python(f, f.name)


def _from_host() -> Code:
    """Copies dense data, or takes it as it lies; data with gaps is Python's."""
    name = "Client_BufferFromHostBuffer"
    f = Code(name, name)
    type, rank, dims = f.given("type", "i32"), f.given("num_dims", "i64"), f.given("dims")
    _known_type(f, type)
    item = f.load("@item_sizes", f.times8(f.wide(type)), "i64")
    strided = f.compare("ne", f.given("num_byte_strides", "i64"), 0)
    strides = f.given("byte_strides")
    with f.loop("0", rank, carries=[("i64", item), ("i1", "true")]) as loop:
        place = f.times8(f.minus(f.minus(rank, 1), loop.index))
        size = f.load(dims, place, "i64")
        source = f.let(f"select i1 {strided}, ptr {strides}, ptr {dims}")
        stride = f.load(source, place, "i64")
        same = f.compare("eq", stride, loop.carried[0])
        single = f.compare("ule", size, 1)
        fine = f.either(same, single, f.negated(strided))
        loop.next = [f.let(f"mul i64 {loop.carried[0]}, {size}"), f.both(loop.carried[1], fine)]
    nbytes, dense = loop.results
    straight = f.call_text("i1", "is_dense", f"ptr {f.given('device_layout')}", f"i64 {rank}")
    dense = f.either(dense, f.compare("eq", nbytes, 0))
    with f.leaving(f.negated(f.both(dense, straight))):
        into_python(f, name)
    data, (device, memory) = f.given("data"), _where(f)
    shape = (f"i32 {type}", f"i64 {rank}", f"ptr {dims}", f"i64 {nbytes}")
    allowed = f.compare("sge", f.given("host_buffer_semantics", "i32"), 2, "i32")
    aligned = f.compare("eq", f.let(f"and i64 {f.let(f'ptrtoint ptr {data} to i64')}, {ALIGNMENT - 1}"), 0)
    large = f.compare("uge", nbytes, ALIASED)
    with f.leaving(f.both(allowed, aligned, large)):
        storage = f.call_text("ptr", "allocate", "i64 0")
        _no_memory(f, storage)
        event = new_event(f, 2)
        f.store("ptr", data, storage, STORAGE["data"])
        f.store("ptr", event, storage, STORAGE["event"])
        f.give("done_with_host_buffer", event)
        f.give("buffer", f.call_text("ptr", "make_buffer", f"ptr {storage}", f"ptr {device}", f"ptr {memory}", *shape))
        f.ret()
    storage = f.call_text("ptr", "allocate", f"i64 {nbytes}")
    _no_memory(f, storage)
    f.copy(f.load(storage, STORAGE["data"]), data, nbytes)
    f.give("done_with_host_buffer", "@ready")
    f.give("buffer", f.call_text("ptr", "make_buffer", f"ptr {storage}", f"ptr {device}", f"ptr {memory}", *shape))
    f.ret()
    return f


def _view() -> Code:
    """A buffer over memory that another library owns."""
    name = "Client_CreateViewOfDeviceBuffer"
    f = Code(name, name)
    type, rank, dims = f.given("element_type", "i32"), f.given("num_dims", "i64"), f.given("dims")
    _known_type(f, type)
    with f.leaving(f.negated(f.call_text("i1", "is_dense", f"ptr {f.given('layout')}", f"i64 {rank}"))):
        into_python(f, name)
    item = f.load("@item_sizes", f.times8(f.wide(type)), "i64")
    with f.loop("0", rank, carries=[("i64", item)]) as loop:
        size = f.load(dims, f.times8(loop.index), "i64")
        loop.next = [f.let(f"mul i64 {loop.carried[0]}, {size}")]
    nbytes, (device, memory) = loop.results[0], _where(f)
    storage = f.call_text("ptr", "allocate", "i64 0")
    _no_memory(f, storage)
    f.store("ptr", f.given("device_buffer_ptr"), storage, STORAGE["data"])
    f.store("ptr", f.given("on_delete_callback"), storage, STORAGE["callback"])
    f.store("ptr", f.given("on_delete_callback_arg"), storage, STORAGE["argument"])
    shape = (f"i32 {type}", f"i64 {rank}", f"ptr {dims}", f"i64 {nbytes}")
    f.give("buffer", f.call_text("ptr", "make_buffer", f"ptr {storage}", f"ptr {device}", f"ptr {memory}", *shape))
    f.ret()
    return f


# -- memories


def _memory_kind() -> Code:
    f = Code("Memory_Kind", "Memory_Kind")
    memory = f.given("memory")
    f.give("kind", f.load(memory, MEMORY["kind"]))
    f.give("kind_size", f.load(memory, MEMORY["kind_size"], "i64"), "i64")
    f.ret()
    return f


def _get_user_data() -> Code:
    f = Code("memory_get_user_data", parameters=[("ptr", "memory"), ("ptr", "key")])
    f.lock("%memory", MEMORY["users_lock"])
    node = _user(f)
    data = f.let(f"select i1 {f.is_null(node)}, ptr null, ptr {f.at(node, USER['data'])}")
    value = f.alloca("ptr")
    f.store("ptr", "null", value)
    with f.when(f.present(data)):
        f.store("ptr", f.load(data), value)
    f.unlock("%memory", MEMORY["users_lock"])
    f.ret(f.load(value))
    return f


def _user(f: Code) -> str:
    """The memory's node with this key, or null."""
    head, look, step, done = (f.new_block(name) for name in ("head", "look", "step", "found"))
    first, before = f.load("%memory", MEMORY["users"]), f.block
    f.jump(head)
    f.start(head)
    node, following = f.fresh("node"), f.fresh("following")
    f.do(f"{node} = phi ptr [ {first}, %{before} ], [ {following}, %{step} ]")
    f.branch(f.is_null(node), done, look)
    f.start(look)
    f.branch(f.compare("eq", f.load(node, USER["key"]), "%key", "ptr"), done, step)
    f.start(step)
    f.do(f"{following} = load ptr, ptr {node}")
    f.jump(head)
    f.start(done)
    return node


def _set_user_data() -> Code:
    """Keeps `data` under `key`; what was there before is destroyed."""
    parameters = [("ptr", "memory"), ("ptr", "key"), ("ptr", "data"), ("ptr", "destroy")]
    f = Code("memory_set_user_data", parameters=parameters, result="void")
    f.lock("%memory", MEMORY["users_lock"])
    node, place = _user(f), f.alloca("ptr")
    f.store("ptr", node, place)
    with f.when(f.is_null(node)):
        fresh = f.call_text("ptr", "malloc", f"i64 {USER.size}")
        f.zero(fresh, USER.size)
        f.store("ptr", f.load("%memory", MEMORY["users"]), fresh, USER["next"])
        f.store("ptr", "%key", fresh, USER["key"])
        f.store("ptr", fresh, "%memory", MEMORY["users"])
        f.store("ptr", fresh, place)
    node = f.load(place)
    old, destroy = f.load(node, USER["data"]), f.load(node, USER["destroy"])
    f.store("ptr", "%data", node, USER["data"])
    f.store("ptr", "%destroy", node, USER["destroy"])
    f.unlock("%memory", MEMORY["users_lock"])
    both = f.both(f.present(old), f.present(destroy))
    with f.when(both):
        f.call_text("void", destroy, f"ptr {old}")
    f.ret()
    return f
