"""The client: devices of this machine's CPU, buffers on them, programs compiled for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.buffer import ArrayImpl, host_array
from hlokit.interop.xla_client.computation import HloModule, MlirModule, XlaComputation
from hlokit.interop.xla_client.enums import HostBufferSemantics
from hlokit.interop.xla_client.errors import invalid, raises_status, unimplemented
from hlokit.interop.xla_client.executable import LoadedExecutable
from hlokit.interop.xla_client.options import CompileOptions
from hlokit.interop.xla_client.shapes import Shape


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
        self.infeed: deque[Any] = deque()
        self.outfeed: deque[Any] = deque()
        self._memory = Memory(self)

    def transfer_to_infeed(self, literal: Any, /) -> None:
        """Adds a value (an array, or a tuple of arrays) to what infeeds read."""
        self.infeed.append(tuple(map(np.asarray, literal)) if isinstance(literal, tuple) else np.asarray(literal))  # pyright: ignore[reportUnknownArgumentType]

    def transfer_from_outfeed(self, shape: Shape, /) -> Any:
        """The oldest value that an outfeed wrote. XlaRuntimeError if there is none."""
        if not self.outfeed:
            raise invalid("the outfeed queue is empty")
        return self.outfeed.popleft()

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

    @property
    def platform_version(self) -> str:
        return f"hlokit {hk.__version__}"

    # -- devices

    def devices(self) -> list[Device]:
        return list(self._devices)

    def local_devices(self) -> list[Device]:
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
        try:
            hk.dtype(array.dtype)
        except hk.ShapeError:
            raise invalid(f"Unknown NumPy dtype {array.dtype!r}") from None
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
        executable = LoadedExecutable(self, module, options)
        self._executables.add(executable)
        return executable

    def serialize_executable(self, executable: LoadedExecutable, /) -> bytes:
        return executable.hlo_modules()[0].as_serialized_hlo_module_proto()

    def deserialize_executable(
        self, serialized: bytes, compile_options: CompileOptions | None = None, host_callbacks: Sequence[Any] = ()
    ) -> LoadedExecutable:
        return self.compile(XlaComputation(serialized), compile_options, host_callbacks)

    def __repr__(self) -> str:
        return "<Client cpu>"


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
    """A client for this machine's CPU, as `num_devices` devices. XlaRuntimeError for a distributed one."""
    if distributed_client is not None or num_nodes != 1 or collectives is not None:
        raise unimplemented("distributed clients")
    return Client(1 if num_devices is None else num_devices)


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
