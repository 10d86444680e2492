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
    """The memory of a device: that of the host.

    Parameters
    ----------
    device : Device
        The device.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_cpu_client().devices()[0].default_memory().kind
    'unpinned_host'
    """

    kind = "unpinned_host"
    platform = "cpu"
    process_index = 0

    def __init__(self, device: Device) -> None:
        self._device = device

    def addressable_by_devices(self) -> list[Device]:
        """The devices that can use this memory.

        Returns
        -------
        list of Device
            A list of one.
        """
        return [self._device]

    def __repr__(self) -> str:
        return f"UNPINNED_HOST_{self._device.id}"


class Device:
    """A device of a client: it runs programs on this machine's CPU.

    Parameters
    ----------
    client : Client
        The client that it belongs to.
    number : int
        Its number, from 0.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_cpu_client(num_devices=2).devices()
    [CpuDevice(id=0), CpuDevice(id=1)]
    """

    platform = "cpu"
    device_kind = "cpu"
    host_id = task_id = process_index = 0

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.id = self.local_hardware_id = number
        self.infeed, self.outfeed = Feed(), Feed()
        self._memory = Memory(self)

    def transfer_to_infeed(self, literal: Any, /) -> None:
        """Adds a value to the queue that infeeds of this device read.

        Parameters
        ----------
        literal : array or tuple of arrays
            The value; it is copied.

        Raises
        ------
        XlaRuntimeError
            HLO has no such element type.
        """
        self.infeed.append(_copied(literal))

    @raises_status
    def transfer_from_outfeed(self, shape: Shape, /) -> Any:
        """The oldest value that an outfeed of this device wrote.

        Waits for a value while other Python threads run, since they may execute programs.

        Parameters
        ----------
        shape : Shape
            The shape of the value; its layouts are those of the arrays that are returned.

        Returns
        -------
        array or tuple of arrays
            The value.

        Raises
        ------
        XlaRuntimeError
            The queue is empty and no other thread runs, or the value has another shape.
        """
        return _as_shape(self.outfeed.next(), shape)

    def get_stream_for_external_ready_events(self) -> int:
        """Not supported: only GPUs have streams.

        Returns
        -------
        int
            Never.

        Raises
        ------
        XlaRuntimeError
            Always (UNIMPLEMENTED).
        """
        raise unimplemented("PjRtDevice::GetStreamForExternalReadyEvents only implemented for GPU")

    def live_buffers(self) -> list[ArrayImpl]:
        """The buffers on this device that are in use.

        Returns
        -------
        list of ArrayImpl
            The newest first; deleted ones are left out.
        """
        return [buffer for buffer in self.client.live_buffers() if buffer.device() is self]

    def memory(self, kind: str) -> Memory:
        """The memory of a kind.

        Parameters
        ----------
        kind : str
            "unpinned_host".

        Returns
        -------
        Memory
            The device's memory.

        Raises
        ------
        XlaRuntimeError
            The kind is another.
        """
        if kind != Memory.kind:
            raise invalid(f"Could not find memory addressable by device {self.device_kind} with kind {kind}")
        return self._memory

    def default_memory(self) -> Memory:
        """The memory that buffers of this device lie in.

        Returns
        -------
        Memory
            The host's.
        """
        return self._memory

    def addressable_memories(self) -> list[Memory]:
        """The memories that this device can use.

        Returns
        -------
        list of Memory
            A list of one.
        """
        return [self._memory]

    def memory_stats(self) -> None:
        """Statistics of memory, which CPUs do not have.

        Returns
        -------
        None
            None.
        """
        return None

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"TFRT_CPU_{self.id}"


class Client:
    """Compiles and runs programs on this machine's CPU. `make_cpu_client` makes one.

    Parameters
    ----------
    num_devices : int, optional
        The number of devices.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> run = client.compile("ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }")
    >>> [buffer] = run.execute([client.buffer_from_pyval(np.float32([1, 2]))])
    >>> np.asarray(buffer)
    array([2., 4.], dtype=float32)
    """

    platform = "cpu"
    runtime_type = "tfrt"

    def __init__(self, num_devices: int = 1) -> None:
        self._devices = [Device(self, number) for number in range(num_devices)]
        self._executables: WeakSet[LoadedExecutable] = WeakSet()
        self._buffers: WeakValueDictionary[int, ArrayImpl] = WeakValueDictionary()
        self._numbers = itertools.count()

    @property
    def platform_version(self) -> str:
        """The version of the platform; for CPUs, as in XLA, its name alone."""
        return self.platform

    # -- devices

    def devices(self) -> list[Device]:
        """All devices.

        Returns
        -------
        list of Device
            By their numbers.
        """
        return list(self._devices)

    def local_devices(self) -> list[Device]:
        """The devices of this process: all.

        Returns
        -------
        list of Device
            By their numbers.
        """
        return list(self._devices)

    def _get_all_devices(self) -> list[Device]:
        return list(self._devices)

    def device_count(self) -> int:
        """The number of devices.

        Returns
        -------
        int
            At least 1.
        """
        return len(self._devices)

    def local_device_count(self) -> int:
        """The number of devices of this process.

        Returns
        -------
        int
            The same as `device_count()`.
        """
        return len(self._devices)

    def device_from_local_hardware_id(self, number: int, /) -> Device:
        """The device of a number.

        Parameters
        ----------
        number : int
            From 0.

        Returns
        -------
        Device
            The device.

        Raises
        ------
        XlaRuntimeError
            There is no such device.
        """
        if not 0 <= number < len(self._devices):
            raise invalid(f"No matching device found for local_device_id {number}")
        return self._devices[number]

    def process_index(self) -> int:
        """The number of this process.

        Returns
        -------
        int
            0: a client is not distributed.
        """
        return 0

    def host_id(self) -> int:
        """The number of this process, under an older name.

        Returns
        -------
        int
            0.
        """
        return 0

    def task_id(self) -> int:
        """The number of this process, under an older name.

        Returns
        -------
        int
            0.
        """
        return 0

    def live_executables(self) -> list[LoadedExecutable]:
        """The executables of this client that are in use.

        Returns
        -------
        list of LoadedExecutable
            In no order.
        """
        return list(self._executables)

    def defragment(self) -> None:
        """Does nothing: the host's memory needs no defragmentation."""

    # -- buffers

    def made(self, buffer: ArrayImpl) -> None:
        """Notes a new buffer without keeping it alive.

        Parameters
        ----------
        buffer : ArrayImpl
            The buffer.
        """
        self._buffers[next(self._numbers)] = buffer

    def live_buffers(self) -> list[ArrayImpl]:
        """The buffers that are in use.

        Returns
        -------
        list of ArrayImpl
            The newest first; deleted ones are left out.
        """
        return [buffer for _, buffer in sorted(self._buffers.items(), reverse=True) if not buffer.is_deleted()]

    def live_arrays(self) -> list[ArrayImpl]:
        """`live_buffers`, under another of jaxlib's names.

        Returns
        -------
        list of ArrayImpl
            The newest first; deleted ones are left out.
        """
        return self.live_buffers()

    def get_default_layout(self, dtype: np.dtype[Any], shard_shape: Sequence[int], device: Device) -> PjRtLayout:
        """The layout of a buffer of these dimensions: row-major.

        Parameters
        ----------
        dtype : numpy.dtype
            The element type.
        shard_shape : sequence of int
            The dimensions.
        device : Device
            A device of this client.

        Returns
        -------
        PjRtLayout
            The last dimension varies fastest.
        """
        return PjRtLayout.of(default_layout(len(shard_shape)))

    @raises_status
    def buffer_from_pyval(
        self,
        argument: Any,
        device: Device | None = None,
        force_copy: bool = False,
        host_buffer_semantics: HostBufferSemantics = HostBufferSemantics.ZERO_COPY,
    ) -> ArrayImpl:
        """A value as a buffer on a device.

        Parameters
        ----------
        argument : array, number or ArrayImpl
            A NumPy array or scalar, or a Python number (64 bits wide, as in NumPy).
        device : Device, optional
            The device; by default the first.
        force_copy : bool, optional
            Whether the elements are copied in any case.
        host_buffer_semantics : HostBufferSemantics, optional
            With ZERO_COPY the buffer may share the memory of a row-major array, which must not change afterwards.

        Returns
        -------
        ArrayImpl
            The buffer.

        Raises
        ------
        XlaRuntimeError
            HLO has no such element type, or elements are masked.
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
        """Compiles a program.

        Parameters
        ----------
        computation : XlaComputation, HloModule, MlirModule, str or bytes
            The program: what xla_computation_to_mlir_module returns, StableHLO as text or portable artifact, or HLO
            text.
        compile_options : CompileOptions, optional
            The number of devices, layouts, ...
        host_callbacks : sequence, optional
            Must be empty.

        Returns
        -------
        LoadedExecutable
            The program, ready to run.

        Raises
        ------
        XlaRuntimeError
            The program cannot be read, breaks a rule of the language, or needs more devices than the client has.
        TypeError
            `computation` is of another type.
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
        """`compile` for a program of `_xla.ifrt_programs`.

        Parameters
        ----------
        program : Program
            From `make_hlo_program`.
        options : CompileOptions
            From `make_xla_compile_options`.

        Returns
        -------
        LoadedExecutable
            The program, ready to run.

        Raises
        ------
        XlaRuntimeError
            As `compile`; also for a program in a plugin's own form.
        """
        if not program.is_hlo:
            raise invalid("PjRtCompiler requires an HloProgram")
        return self.compile(program.content, options.options, options.host_callbacks)

    def serialize_executable(self, executable: LoadedExecutable, /) -> bytes:
        """The source of an executable, which `deserialize_executable` compiles again.

        Parameters
        ----------
        executable : LoadedExecutable
            An executable of this client.

        Returns
        -------
        bytes
            A serialized HloModuleProto.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        return HloModule(executable.source).as_serialized_hlo_module_proto()

    def deserialize_executable(
        self, serialized: bytes, compile_options: CompileOptions | None = None, host_callbacks: Sequence[Any] = ()
    ) -> LoadedExecutable:
        """Compiles what `serialize_executable` returned.

        Parameters
        ----------
        serialized : bytes
            A serialized HloModuleProto.
        compile_options : CompileOptions, optional
            As for `compile`: they are not part of the bytes.
        host_callbacks : sequence, optional
            Must be empty.

        Returns
        -------
        LoadedExecutable
            The program, ready to run.

        Raises
        ------
        XlaRuntimeError
            The bytes are not such a proto; and as `compile`.
        """
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
    """A client for this machine's CPU.

    Parameters
    ----------
    asynchronous : bool, optional
        Has no effect: executions return when they are done.
    distributed_client : None, optional
        Must be None, as must `collectives`.
    node_id : int, optional
        The number of this process.
    num_nodes : int, optional
        The number of processes: 1.
    collectives : None, optional
        Must be None.
    num_devices : int, optional
        The number of devices; by default that of --xla_force_host_platform_device_count in XLA_FLAGS, else 1.

    Returns
    -------
    Client
        The client.

    Raises
    ------
    XlaRuntimeError
        A distributed client was asked for (UNIMPLEMENTED), or XLA_FLAGS has a bad number.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_cpu_client(num_devices=4).device_count()
    4
    """
    if distributed_client is not None or num_nodes != 1 or collectives is not None:
        raise unimplemented("distributed clients")
    with status_errors():
        return Client(host_device_count() if num_devices is None else num_devices)


def execute_with_python_values(
    executable: LoadedExecutable, arguments: Sequence[Any], backend: Client
) -> list[np.ndarray[Any, Any]]:
    """Runs an executable on one device, with arrays as arguments and results.

    Parameters
    ----------
    executable : LoadedExecutable
        A program for one device.
    arguments : sequence of array or number
        The arguments.
    backend : Client
        The client that compiled it.

    Returns
    -------
    list of array
        The results.

    Raises
    ------
    XlaRuntimeError
        The arguments are not those that the program takes, or the run failed.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> run = client.compile("ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> xc.execute_with_python_values(run, [np.float32([1, 2])], client)
    [array([-1., -2.], dtype=float32)]
    """
    device = executable.local_devices()[0]
    outputs = executable.execute([backend.buffer_from_pyval(a, device=device) for a in arguments])
    return [np.asarray(x) for x in outputs]


def execute_with_python_values_replicated(
    executable: LoadedExecutable, arguments: Sequence[Sequence[Any]], backend: Client
) -> list[list[np.ndarray[Any, Any]]]:
    """Runs an executable on all its devices, with arrays as arguments and results.

    Parameters
    ----------
    executable : LoadedExecutable
        A program for several replicas.
    arguments : sequence of sequences of array or number
        The arguments, indexed by [replica][number].
    backend : Client
        The client that compiled it.

    Returns
    -------
    list of lists of array
        The results, indexed by [replica][number].

    Raises
    ------
    XlaRuntimeError
        The arguments are not those that the program takes, or the run failed.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client, options = xc.make_cpu_client(num_devices=2), xc.CompileOptions()
    >>> options.num_replicas = 2
    >>> run = client.compile("ENTRY e { x = f32[] parameter(0)  ROOT y = f32[] add(x, x) }", options)
    >>> xc.execute_with_python_values_replicated(run, [[np.float32(1)], [np.float32(2)]], client)
    [[array(2., dtype=float32)], [array(4., dtype=float32)]]
    """
    devices = executable.local_devices()
    inputs = [
        [backend.buffer_from_pyval(v, d) for v, d in zip(values, devices, strict=False)]
        for values in zip(*arguments, strict=True)
    ]
    outputs = executable.execute_sharded_on_local_devices(inputs)
    return [[np.asarray(x) for x in replica] for replica in zip(*outputs, strict=True)]
