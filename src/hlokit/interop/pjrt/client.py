"""The client, its devices and memories. Devices are threads of this process, or of others that run programs with it.

How many a process has, the client's create option `num_devices` says, else HLOKIT_NUM_DEVICES, else there is one. They
are numbered process by process.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from hlokit.devices.processes.store import Store
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.interop.pjrt.buffers import DEVICE, MEMORY
from hlokit.interop.pjrt.memory import FOREVER, constant, read_named, read_words
from hlokit.interop.pjrt.native import native
from hlokit.interop.pjrt.processes import Carrier, Job, Topology, joined
from hlokit.interop.pjrt.table import function

KINDS = ("device", "pinned_host", "unpinned_host")
"""Kinds of memories that programs may ask for. To this platform they are all the same."""
_MOST = 256


@dataclass(frozen=True)
class Platform:
    """Names of the client and of its devices. `device`, `memory`: in their texts; `debug`: str() of a device."""

    name: str
    device_kind: str
    device: str
    memory: str
    debug: str


PLATFORMS = {
    "hlokit": Platform("hlokit", "hlokit", "HlokitDevice", "HlokitMemory", "HlokitDevice(id={})"),
    "cpu": Platform("cpu", "cpu", "CpuDevice", "CpuMemory", "cpu:{}"),
}
"""By name. "cpu" is hlokit in place of JAX's CPU client: libraries compare these names with "cpu"."""
_chosen: Platform | None = None


def choose(name: str) -> None:
    """Gives the client its platform's name. ArgumentError: it has another already."""
    global _chosen
    if _chosen is not None and _chosen.name != name:
        raise ArgumentError(f"hlokit is JAX's platform {_chosen.name!r} in this process: it cannot be {name!r} as well")
    _chosen = PLATFORMS[name]


def platform() -> Platform:
    return _chosen or PLATFORMS["hlokit"]


@dataclass(frozen=True)
class Memory:
    """`address`: of a PJRT_Memory."""

    number: int
    kind: str
    address: int


@dataclass(frozen=True)
class Device:
    """`address`: of a PJRT_Device, which is its description too. `process`: which has it; `local`: its number there."""

    number: int
    process: int
    local: int
    address: int
    memories: tuple[Memory, ...]

    def memory(self, kind: str) -> int:
        """The address of the memory of this kind."""
        return next((m.address for m in self.memories if m.kind == kind), self.memories[0].address)


def platform_version() -> str:
    from hlokit import __version__

    return f"hlokit {__version__}"


_current: Topology | None = None
"""The topology of the newest client; None: there is none yet."""
_job: Job | None = None
"""The processes of the newest client, if there are several."""
_others: tuple[int, int, Store, Carrier] | None = None
"""For the next client: this process's number, how many there are, their key-value store, what carries collectives."""
_generation = 0
"""The number of clients that were made for several processes."""
_by_address: dict[int, Device] = {}
_memories: dict[int, tuple[Device, Memory]] = {}


def topology() -> Topology:
    """The devices of all processes, as the newest client has them."""
    return _current or Topology(0, (_environments_count(),))


def job() -> Job:
    """The processes that run programs together."""
    if _job is None:
        raise AssertionError("one process")
    return _job


def share(process: int, count: int, store: Store, carrier: Carrier) -> None:
    """The next client is one of `count` processes, with the number `process`: each makes one."""
    global _others
    _others = (process, count, store, carrier) if count > 1 else None


def devices() -> tuple[Device, ...]:
    """The client's devices, in all processes; those of an earlier client are the same."""
    return tuple(_device(number, *home) for number, home in enumerate(topology().homes))


def local_devices() -> tuple[Device, ...]:
    """The devices of this process."""
    return tuple(device for device in devices() if is_local(device))


def is_local(device: Device) -> bool:
    """Whether this process has the device."""
    return device.process == topology().process


def _environments_count() -> int:
    text = os.environ.get("HLOKIT_NUM_DEVICES", "1")
    return _checked_count(int(text) if text.isdecimal() else 0, f"HLOKIT_NUM_DEVICES={text!r}")


def _checked_count(count: int, name: str) -> int:
    if not 1 <= count <= _MOST:
        raise ArgumentError(f"{name}: expected a number from 1 to {_MOST}")
    return count


def device_at(address: int) -> Device:
    """The device with this handle."""
    return _by_address[address]


@cache
def _device(number: int, process: int, local: int) -> Device:
    address = FOREVER.words([0] * (DEVICE.bytes // 8))
    memories: list[Memory] = []
    for place, kind in enumerate(KINDS):
        fields = {
            "table": native().memory_table, "device": address, "number": number * len(KINDS) + place,
            "kind": constant(kind)[0], "kind_size": len(kind), "kind_number": place,
        }  # fmt: skip
        at = FOREVER.words([fields.get(field, 0) for field in MEMORY.fields])
        memories.append(Memory(fields["number"], kind, at))
    write_words(address, [number, memories[0].address])
    device = _by_address[address] = Device(number, process, local, address, tuple(memories))
    _memories.update((memory.address, (device, memory)) for memory in memories)
    return device


def write_words(address: int, values: list[int]) -> None:
    """Puts 64-bit words at an address."""
    import ctypes

    (ctypes.c_uint64 * len(values)).from_address(address)[:] = values


def _handles(found: tuple[Device, ...]) -> int:
    return FOREVER.fixed_words([device.address for device in found])


@cache
def _handle() -> int:
    """The handle of the client and of its topology: nobody looks inside."""
    return FOREVER.words([0])


def _words(address: int) -> list[int]:
    return read_words(address, DEVICE.bytes // 8)


# -- plugin


@function("Plugin_Attributes")
def _plugin_attributes(a: Any) -> None:
    a.attributes, a.num_attributes = _named("plugin")


@cache
def _named(what: str) -> tuple[int, int]:
    values = {"stablehlo_current_version": [1, 22, 0], "stablehlo_minimum_version": [0, 9, 0]}
    return FOREVER.named(values if what == "plugin" else {})


# -- client


@cache
def _mind_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """jaxlib hands each compile to threads of its own, which the child of a fork lacks: it would wait forever."""
    compiler = sys.modules.get("jax._src.compiler")
    for name in ("backend_compile_and_load", "backend_compile"):
        if hasattr(compiler, name):
            setattr(compiler, name, _forked)


def _forked(*args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        "this process was forked from one that had used JAX, whose threads compile: only what was compiled before runs "
        "here. multiprocessing's start method 'spawn' starts processes that can compile"
    )


@function("Client_Create")
def _create(a: Any) -> None:
    _mind_forks()
    global _current, _job, _generation
    options = read_named(a.create_options, a.num_options)
    given = options.get("num_devices")
    count = _environments_count() if given is None else _checked_count(int(given), f"num_devices={given}")
    _current, _job = Topology(0, (count,)), None
    if _others is not None:
        process, processes, store, carrier = _others
        _generation += 1
        _job = joined(process, processes, count, store, _generation - 1, carrier)
        _current = _job.topology
    devices()
    a.client = _handle()


@function("Client_PlatformName")
def _platform_name(a: Any) -> None:
    a.platform_name, a.platform_name_size = constant(platform().name)


@function("Client_PlatformVersion")
def _platform_version(a: Any) -> None:
    a.platform_version, a.platform_version_size = constant(platform_version())


@function("Client_ProcessIndex")
def _process_index(a: Any) -> None:
    a.process_index = topology().process


@function("Client_Devices")
def _devices(a: Any) -> None:
    a.devices, a.num_devices = _handles(devices()), len(devices())


@function("Client_AddressableDevices")
def _addressable_devices(a: Any) -> None:
    a.addressable_devices, a.num_addressable_devices = _handles(local_devices()), len(local_devices())


@function("Client_LookupDevice")
def _lookup(a: Any) -> None:
    a.device = _numbered(a.id)


@function("Client_LookupAddressableDevice")
def _lookup_addressable(a: Any) -> None:
    found = local_devices()
    if not 0 <= a.local_hardware_id < len(found):
        raise ArgumentError(f"there is no device {a.local_hardware_id} of this process: there are {len(found)}")
    a.addressable_device = found[int(a.local_hardware_id)].address


def _numbered(number: int) -> int:
    if not 0 <= number < len(devices()):
        raise ArgumentError(f"there is no device {number}: there are {len(devices())}")
    return devices()[number].address


@function("Client_AddressableMemories")
def _addressable_memories(a: Any) -> None:
    found: list[int] = [memory.address for device in local_devices() for memory in device.memories]
    a.addressable_memories, a.num_addressable_memories = FOREVER.fixed_words(found), len(found)


@function("Client_DefaultDeviceAssignment")
def _default_assignment(a: Any) -> None:
    """An assignment to devices of this process, if it has enough."""
    import ctypes

    count = a.num_replicas * a.num_partitions
    if count > min(len(devices()), a.default_assignment_size):
        raise ArgumentError(f"{a.num_replicas} replicas of {a.num_partitions} partitions: {len(devices())} devices")
    chosen = local_devices() if count <= len(local_devices()) else devices()
    (ctypes.c_int32 * count).from_address(a.default_assignment)[:] = [device.number for device in chosen[:count]]


@function("Client_TopologyDescription")
def _topology(a: Any) -> None:
    a.topology = _handle()


@function("TopologyDescription_PlatformName")
def _topology_name(a: Any) -> None:
    a.platform_name, a.platform_name_size = constant(platform().name)


@function("TopologyDescription_PlatformVersion")
def _topology_version(a: Any) -> None:
    a.platform_version, a.platform_version_size = constant(platform_version())


@function("TopologyDescription_GetDeviceDescriptions")
def _topology_devices(a: Any) -> None:
    a.descriptions, a.num_descriptions = _handles(devices()), len(devices())


@function("TopologyDescription_Attributes")
def _topology_attributes(a: Any) -> None:
    a.attributes, a.num_attributes = _named("")


@function("TopologyDescription_Fingerprint")
def _topology_fingerprint(a: Any) -> None:
    import zlib

    a.fingerprint = zlib.crc32(f"{platform_version()} {topology().counts}".encode())


@function("TopologyDescription_Serialize")
def _topology_serialize(a: Any) -> None:
    a.serialized_bytes, a.serialized_bytes_size = constant(f"{platform_version()} {topology().counts}")
    a.serialized_topology, a.serialized_topology_deleter = _handle(), no_deleter()


def no_deleter() -> int:
    """A function of one pointer that does nothing, for what is never freed or goes with something else."""
    from hlokit.interop.pjrt.native import native

    return native().nothing


# -- devices


@function("DeviceDescription_Id")
def _id(a: Any) -> None:
    a.id = _words(a.device_description)[0]


@function("DeviceDescription_ProcessIndex")
def _device_process(a: Any) -> None:
    a.process_index = device_at(a.device_description).process


@function("DeviceDescription_Attributes")
def _device_attributes(a: Any) -> None:
    a.attributes, a.num_attributes = _named("")


@function("DeviceDescription_Kind")
def _device_kind(a: Any) -> None:
    a.device_kind, a.device_kind_size = constant(platform().device_kind)


@function("DeviceDescription_DebugString")
def _device_debug(a: Any) -> None:
    a.debug_string, a.debug_string_size = constant(platform().debug.format(_words(a.device_description)[0]))


@function("DeviceDescription_ToString")
def _device_text(a: Any) -> None:
    a.to_string, a.to_string_size = constant(f"{platform().device}(id={_words(a.device_description)[0]})")


@function("Device_GetDescription")
def _description(a: Any) -> None:
    a.device_description = a.device


@function("Device_IsAddressable")
def _is_addressable(a: Any) -> None:
    a.is_addressable = int(is_local(device_at(a.device)))


@function("Device_LocalHardwareId")
def _local_id(a: Any) -> None:
    device = device_at(a.device)
    a.local_hardware_id = device.local if is_local(device) else -1


@function("Device_AddressableMemories")
def _device_memories(a: Any) -> None:
    memories = device_at(a.device).memories
    a.memories, a.num_memories = _device_memory_handles(a.device), len(memories)


@cache
def _device_memory_handles(device: int) -> int:
    return FOREVER.words([memory.address for memory in device_at(device).memories])


@function("Device_DefaultMemory")
def _default_memory(a: Any) -> None:
    a.memory = device_at(a.device).memories[0].address


@function("Device_GetAttributes")
def _get_attributes(a: Any) -> None:
    a.attributes, a.num_attributes = _named("")
    a.device_attributes, a.attributes_deleter = _handle(), no_deleter()


@function("Device_CreateAsyncTrackingEvent")
def _tracking(a: Any) -> None:
    a.event = _handle()


# -- memories


@function("Memory_Id")
def _memory_id(a: Any) -> None:
    a.id = _memories[a.memory][1].number


@function("Memory_Kind_Id")
def _memory_kind_id(a: Any) -> None:
    a.kind_id = KINDS.index(_memories[a.memory][1].kind)


@function("Memory_DebugString")
def _memory_debug(a: Any) -> None:
    a.debug_string, a.debug_string_size = constant(_memory_name(a.memory))


@function("Memory_ToString")
def _memory_text(a: Any) -> None:
    a.to_string, a.to_string_size = constant(_memory_name(a.memory))


def _memory_name(address: int) -> str:
    memory = _memories[address][1]
    return f"{platform().memory}(id={memory.number}, kind={memory.kind})"


@function("Memory_AddressableByDevices")
def _memory_devices(a: Any) -> None:
    a.devices, a.num_devices = _memory_device(a.memory), 1


@cache
def _memory_device(memory: int) -> int:
    return FOREVER.words([_memories[memory][0].address])


@function("ExecuteContext_Create")
def _context(a: Any) -> None:
    a.context = _handle()
