"""The client: devices of this machine's CPU, buffers on them, programs compiled for them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.arrays import numpy_array
from hlokit.interop.xla_client.buffer import ArrayImpl, host_array, laid_out
from hlokit.interop.xla_client.computation import HloModule, MlirModule, XlaComputation
from hlokit.interop.xla_client.enums import HostBufferSemantics
from hlokit.interop.xla_client.errors import invalid, raises_status, status_errors, unimplemented
from hlokit.interop.xla_client.executable import LoadedExecutable
from hlokit.interop.xla_client.feeds import Feed
from hlokit.interop.xla_client.ifrt_programs import CompileOptions as ProgramOptions
from hlokit.interop.xla_client.ifrt_programs import Program
from hlokit.interop.xla_client.options import CompileOptions
from hlokit.interop.xla_client.shapes import PjRtLayout, Shape
from hlokit.runtime.dump import host_device_count
from hlokit.types.layout import default_layout
from hlokit.types.shape import shape_of


class Memory:
    """The memory of a device."""

    kind = "unpinned_host"
    platform = "cpu"
    process_index = 0

    def __init__(self, device: Device) -> None:
        self._device = device

    def addressable_by_devices(self) -> list[Device]:
        return [self._device]

    def __repr__(self) -> str:
        return f"UNPINNED_HOST_{self._device.id}"


class Device:
    """The device that runs programs."""

    platform = "cpu"
    device_kind = "cpu"
    host_id = task_id = process_index = 0

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.id = self.local_hardware_id = number
        self.infeed, self.outfeed = Feed(), Feed()
        self._memory = Memory(self)

    def transfer_to_infeed(self, literal: Any, /) -> None:
        """Adds a value (an array, or a tuple of arrays) to what infeeds read."""
        self.infeed.append(_copied(literal))

    @raises_status
    def transfer_from_outfeed(self, shape: Shape, /) -> Any:
        """The oldest value that an outfeed wrote, in the memory layouts of `shape`: an array, or a tuple of arrays.

        Waits for it while other Python threads run, which may execute programs; else XlaRuntimeError if there is none.
        """
        return _as_shape(self.outfeed.next(), shape)

    def get_stream_for_external_ready_events(self) -> int:
        raise unimplemented("PjRtDevice::GetStreamForExternalReadyEvents only implemented for GPU")

    def live_buffers(self) -> list[ArrayImpl]:
        """The buffers on this device that are in use and not deleted, the newest first."""
        return [buffer for buffer in self.client.live_buffers() if buffer.device() is self]

    def memory(self, kind: str) -> Memory:
        if kind != Memory.kind:
            raise invalid(f"Could not find memory addressable by device {self.device_kind} with kind {kind}")
        return self._memory

    def default_memory(self) -> Memory:
        return self._memory

    def addressable_memories(self) -> list[Memory]:
        return [self._memory]

    def memory_stats(self) -> None:
        return None

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"TFRT_CPU_{self.id}"


class Client:
    """Compiles and runs programs on this machine's CPU."""

    platform = "cpu"
    runtime_type = "tfrt"

    def __init__(self, num_devices: int = 1) -> None:
        self._devices = [Device(self, number) for number in range(num_devices)]
        self._executables: WeakSet[LoadedExecutable] = WeakSet()
        self._buffers: WeakValueDictionary[int, ArrayImpl] = WeakValueDictionary()
        self._numbers = itertools.count()

    @property
    def platform_version(self) -> str:
        """The version as XLA's client for the CPU says it: the platform alone."""
        return self.platform

    # -- devices

    def devices(self) -> list[Device]:
        return list(self._devices)

    def local_devices(self) -> list[Device]:
        return list(self._devices)

    def _get_all_devices(self) -> list[Device]:
        return list(self._devices)

    def device_count(self) -> int:
        return len(self._devices)

    def local_device_count(self) -> int:
        return len(self._devices)

    def device_from_local_hardware_id(self, number: int, /) -> Device:
        if not 0 <= number < len(self._devices):
            raise invalid(f"No matching device found for local_device_id {number}")
        return self._devices[number]

    def process_index(self) -> int:
        return 0

    def host_id(self) -> int:
        return 0

    def task_id(self) -> int:
        return 0

    def live_executables(self) -> list[LoadedExecutable]:
        return list(self._executables)

    def defragment(self) -> None:
        pass

    # -- buffers

    def made(self, buffer: ArrayImpl) -> None:
        """Notes a new buffer, without keeping it alive."""
        self._buffers[next(self._numbers)] = buffer

    def live_buffers(self) -> list[ArrayImpl]:
        """The buffers that are in use and not deleted, the newest first."""
        return [buffer for _, buffer in sorted(self._buffers.items(), reverse=True) if not buffer.is_deleted()]

    def live_arrays(self) -> list[ArrayImpl]:
        return self.live_buffers()

    def get_default_layout(self, dtype: np.dtype[Any], shard_shape: Sequence[int], device: Device) -> PjRtLayout:
        """The layout of a buffer of these dimensions: row-major."""
        return PjRtLayout.of(default_layout(len(shard_shape)))

    @raises_status
    def buffer_from_pyval(
        self,
        argument: Any,
        device: Device | None = None,
        force_copy: bool = False,
        host_buffer_semantics: HostBufferSemantics = HostBufferSemantics.ZERO_COPY,
    ) -> ArrayImpl:
        """A NumPy array or scalar, or a Python number (64 bits wide, as NumPy has it), as a buffer.

        Unless `force_copy`, ZERO_COPY lets the buffer share the memory of a row-major array, which must not change.
        """
        array = host_array(argument)
        shares = host_buffer_semantics is HostBufferSemantics.ZERO_COPY and not force_copy
        if not (shares and array.flags.c_contiguous):
            array = np.array(array, order="C")
        return ArrayImpl(array, device or self._devices[0])

    # -- programs

    @raises_status
    def compile(
        self,
        computation: XlaComputation | HloModule | MlirModule | str | bytes,
        compile_options: CompileOptions | None = None,
        host_callbacks: Sequence[Any] = (),
    ) -> LoadedExecutable:
        """The program, ready to run: what xla_computation_to_mlir_module gives, StableHLO as text or portable artifact,
        HLO text; also an XlaComputation or HloModule itself. XlaRuntimeError for what cannot be read.
        """
        options = compile_options or CompileOptions()
        count = options.num_replicas * options.num_partitions
        if not 1 <= count <= self.device_count():
            raise invalid(f"Requested {count} devices; this client has {self.device_count()}")
        if host_callbacks:
            raise unimplemented("host callbacks")
        module = _module_of(computation)
        hk.verify(module)
        executable = LoadedExecutable(self, module, options, keeps_layouts=not isinstance(computation, MlirModule))
        self._executables.add(executable)
        return executable

    def compile_ifrt_program(self, program: Program, options: ProgramOptions, /) -> LoadedExecutable:
        """`compile` for a program of `_xla.ifrt_programs`. XlaRuntimeError for one in a plugin's own form."""
        if not program.is_hlo:
            raise invalid("PjRtCompiler requires an HloProgram")
        return self.compile(program.content, options.options, options.host_callbacks)

    def serialize_executable(self, executable: LoadedExecutable, /) -> bytes:
        """The program as it was given, as a HloModuleProto."""
        return HloModule(executable.source).as_serialized_hlo_module_proto()

    def deserialize_executable(
        self, serialized: bytes, compile_options: CompileOptions | None = None, host_callbacks: Sequence[Any] = ()
    ) -> LoadedExecutable:
        return self.compile(XlaComputation(serialized), compile_options, host_callbacks)

    def __repr__(self) -> str:
        return "<Client cpu>"


def _copied(value: Any) -> Any:
    """The copy of an array or a tuple of arrays that a device's queue keeps: the caller may write to its own."""
    return tuple(map(_copied, value)) if isinstance(value, tuple) else np.array(numpy_array(value), order="C")  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _as_shape(value: Any, shape: Shape) -> Any:
    """An outfed value in the layouts of `shape`. XlaRuntimeError if it is of another type or of other dimensions."""
    if isinstance(value, tuple):
        if not shape.is_tuple() or shape.leaf_count() != len(value):  # pyright: ignore[reportUnknownArgumentType]
            raise invalid(f"the outfeed's value is a tuple of {len(value)}, expected {shape}")  # pyright: ignore[reportUnknownArgumentType]
        return tuple(map(_as_shape, value, shape.tuple_shapes()))  # pyright: ignore[reportUnknownArgumentType]
    found = shape_of(value)
    if shape.core.static is not found:
        raise invalid(f"the outfeed's value is {found}, expected {shape}")
    return laid_out(value, shape.core.layout_or_default)


def _module_of(computation: Any) -> hk.HloModule:
    if isinstance(computation, MlirModule):
        computation = computation.computation
    if isinstance(computation, (XlaComputation, HloModule)):
        return computation.core
    if isinstance(computation, (bytes, str)):
        return hk.parse(computation)
    raise TypeError(f"compile(): expected a program, got {type(computation).__name__}")


def make_cpu_client(
    asynchronous: bool = True,
    distributed_client: Any = None,
    node_id: int = 0,
    num_nodes: int = 1,
    collectives: Any = None,
    num_devices: int | None = None,
) -> Client:
    """A client for this machine's CPU, as `num_devices` devices. XlaRuntimeError for a distributed one.

    Without `num_devices` the environment's XLA_FLAGS say how many (--xla_force_host_platform_device_count), else 1.
    """
    if distributed_client is not None or num_nodes != 1 or collectives is not None:
        raise unimplemented("distributed clients")
    with status_errors():
        return Client(host_device_count() if num_devices is None else num_devices)


def execute_with_python_values(
    executable: LoadedExecutable, arguments: Sequence[Any], backend: Client
) -> list[np.ndarray[Any, Any]]:
    """Runs on one replica with arrays in and out."""
    device = executable.local_devices()[0]
    outputs = executable.execute([backend.buffer_from_pyval(a, device=device) for a in arguments])
    return [np.asarray(x) for x in outputs]


def execute_with_python_values_replicated(
    executable: LoadedExecutable, arguments: Sequence[Sequence[Any]], backend: Client
) -> list[list[np.ndarray[Any, Any]]]:
    """Runs on all replicas; arguments are indexed by [replica][number], and so are the results."""
    devices = executable.local_devices()
    inputs = [
        [backend.buffer_from_pyval(v, d) for v, d in zip(values, devices, strict=False)]
        for values in zip(*arguments, strict=True)
    ]
    outputs = executable.execute_sharded_on_local_devices(inputs)
    return [[np.asarray(x) for x in replica] for replica in zip(*outputs, strict=True)]
