"""CompileOptions and the classes of its fields.

What counts are the numbers of replicas and partitions, the device assignment, the tupling of arguments and layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.interop.xla_client.enums import AutotuneCacheMode
from hlokit.interop.xla_client.errors import raises_status
from hlokit.interop.xla_client.shapes import Shape

_DEBUG_DEFAULTS: dict[str, Any] = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_enable_fast_math": False,
    "xla_cpu_enable_xprof_traceme": False,
    "xla_cpu_fast_math_honor_division": True,
    "xla_cpu_fast_math_honor_functions": True,
    "xla_cpu_fast_math_honor_infs": True,
    "xla_cpu_fast_math_honor_nans": True,
    "xla_detailed_logging": True,
    "xla_disable_hlo_passes": "",
    "xla_dump_compress_protos": False,
    "xla_dump_disable_metadata": False,
    "xla_dump_fusion_visualization": False,
    "xla_dump_hlo_as_dot": False,
    "xla_dump_hlo_as_html": False,
    "xla_dump_hlo_as_long_text": False,
    "xla_dump_hlo_as_proto": False,
    "xla_dump_hlo_as_text": False,
    "xla_dump_hlo_as_url": False,
    "xla_dump_hlo_module_re": "",
    "xla_dump_hlo_pass_re": "",
    "xla_dump_hlo_pipeline_re": "",
    "xla_dump_hlo_snapshots": False,
    "xla_dump_max_hlo_modules": -1,
    "xla_dump_module_metadata": False,
    "xla_dump_to": "",
    "xla_enable_dumping": True,
    "xla_enable_hlo_passes_only": "",
    "xla_force_host_platform_device_count": 1,
    "xla_gpu_cuda_data_dir": "./cuda_sdk_lib",
    "xla_gpu_dump_autotune_logs_to": "",
    "xla_gpu_dump_autotune_results_to": "",
    "xla_gpu_enable_fast_min_max": False,
    "xla_gpu_enable_llvm_module_compilation_parallelism": False,
    "xla_gpu_experimental_autotune_cache_mode": AutotuneCacheMode.UPDATE,
    "xla_gpu_kernel_cache_file": "",
    "xla_gpu_load_autotune_results_from": "",
    "xla_gpu_per_fusion_autotune_cache_dir": "",
    "xla_llvm_disable_expensive_passes": False,
    "xla_test_all_input_layouts": False,
}


_KINDS: dict[type, Any] = {
    bool: bool,
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
    str: str,
    bytes: bytes,
    AutotuneCacheMode: AutotuneCacheMode,
}
"""The types of value that the attributes of each type accept."""


class _Options:
    """Attributes with defaults; no others can be set."""

    def __init__(self, defaults: dict[str, Any]) -> None:
        vars(self).update(defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), (property, _BuildOption)):
            object.__setattr__(self, name, value)
            return
        if name not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for kind, accepted in _KINDS.items():
            if type(vars(self)[name]) is kind and not isinstance(value, accepted):
                raise TypeError(f"{type(self).__name__}.{name}: expected {kind.__name__}, got {value!r}")
        vars(self)[name] = value


class DebugOptions(_Options):
    """Flags of XLA's compiler that jaxlib can set. They are kept and have no effect here.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.CompileOptions().executable_build_options.debug_options.xla_dump_to
    ''
    """

    def __init__(self) -> None:
        super().__init__(_DEBUG_DEFAULTS)


class ExecutableBuildOptions(_Options):
    """Options of building. `num_replicas`, `num_partitions` and `device_assignment` are those of CompileOptions;
    `result_layout` is a shape with the result's layout. The others are kept and have no effect here.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.CompileOptions().executable_build_options.num_partitions
    1
    """

    debug_options: DebugOptions
    device_assignment: DeviceAssignment | None
    num_replicas: int
    num_partitions: int
    result_layout: Shape | None

    def __init__(self) -> None:
        super().__init__(
            {
                "allow_spmd_sharding_propagation_to_output": [False],
                "allow_spmd_sharding_propagation_to_parameters": [False],
                "auto_spmd_partitioning_mesh_ids": [],
                "auto_spmd_partitioning_mesh_shape": [],
                "debug_options": DebugOptions(),
                "device_assignment": None,
                "exec_time_optimization_effort": 0.0,
                "fdo_profile": b"",
                "memory_fitting_effort": 0.0,
                "num_partitions": 1,
                "num_replicas": 1,
                "result_layout": None,
                "use_auto_spmd_partitioning": False,
                "use_shardy_partitioner": False,
                "use_spmd_partitioning": False,
            }
        )


class _BuildOption:
    """An attribute that is that of the executable_build_options."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, options: CompileOptions | None, owner: type) -> Any:
        return self if options is None else getattr(options.executable_build_options, self._name)

    def __set__(self, options: CompileOptions, value: Any) -> None:
        setattr(options.executable_build_options, self._name, value)


class CompileOptions(_Options):
    """Options of `client.compile`. Those that are not listed are kept and have no effect.

    `num_replicas` and `num_partitions` give the number of devices: their product, at most as many as the client has.
    `device_assignment` chooses them. With `parameter_is_tupled_arguments` the entry's only parameter is a tuple, whose
    elements are the arguments. `argument_layouts` are shapes of the arguments with the layouts of their buffers, and
    `executable_build_options.result_layout` is that of the result.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> options = xc.CompileOptions()
    >>> options.num_replicas = 2
    >>> options.executable_build_options.num_replicas
    2
    """

    argument_layouts: list[Shape] | None
    env_option_overrides: list[tuple[str, str | bool | int | float]]
    executable_build_options: ExecutableBuildOptions
    parameter_is_tupled_arguments: bool
    device_assignment = _BuildOption()
    num_partitions = _BuildOption()
    num_replicas = _BuildOption()

    def __init__(self) -> None:
        super().__init__(
            {
                "argument_layouts": None,
                "compile_portable_executable": False,
                "env_option_overrides": [],
                "executable_build_options": ExecutableBuildOptions(),
                "parameter_is_tupled_arguments": False,
                "profile_version": 0,
            }
        )

    @property
    def tuple_arguments(self) -> bool:
        """Another name of parameter_is_tupled_arguments."""
        return self.parameter_is_tupled_arguments

    @tuple_arguments.setter
    def tuple_arguments(self, value: bool) -> None:
        self.parameter_is_tupled_arguments = value

    @raises_status
    def SerializeAsString(self) -> bytes:
        """The options as a proto.

        Returns
        -------
        bytes
            A serialized CompileOptionsProto, with those debug options that can be set here.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.interop.xla_client.options_proto import to_proto

        return to_proto(self)

    @staticmethod
    @raises_status
    def ParseFromString(data: bytes, /) -> CompileOptions:
        """The options in a serialized proto.

        Parameters
        ----------
        data : bytes
            A serialized CompileOptionsProto.

        Returns
        -------
        CompileOptions
            The options.

        Raises
        ------
        XlaRuntimeError
            The bytes are not such a proto.
        """
        from hlokit.interop.xla_client.options_proto import from_proto

        return from_proto(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompileOptions.ParseFromString, (self.SerializeAsString(),)


class DeviceAssignment:
    """The device of each replica of each partition. `DeviceAssignment.create` makes one.

    Parameters
    ----------
    devices : array of s32[replicas, partitions]
        The numbers of the devices.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> assignment = xc.DeviceAssignment.create(np.array([[0, 1], [2, 3]]))
    >>> assignment.replica_count(), assignment.computation_count()
    (2, 2)
    """

    def __init__(self, devices: np.ndarray[Any, Any]) -> None:
        self._devices = devices

    @staticmethod
    def create(assignment: np.ndarray[Any, Any], /) -> DeviceAssignment:
        """The assignment with these device numbers.

        Parameters
        ----------
        assignment : array
            Integers, indexed by [replica][partition].

        Returns
        -------
        DeviceAssignment
            The assignment.

        Raises
        ------
        TypeError
            The array is not a matrix of integers.
        """
        devices = np.asarray(assignment)
        if devices.ndim != 2 or devices.dtype.kind not in "iu":
            raise TypeError(f"expected a matrix of device numbers, got {devices.dtype}{list(devices.shape)}")
        return DeviceAssignment(devices.astype(np.int32))

    def columns(self) -> list[list[int]]:
        """The devices of each partition.

        Returns
        -------
        list of lists of int
            Indexed by [partition][replica].
        """
        return self._devices.T.tolist()

    def devices(self) -> list[int]:
        """The devices in one list.

        Returns
        -------
        list of int
            Replica by replica; in a replica, partition by partition.
        """
        return self._devices.reshape(-1).tolist()

    def replica_count(self) -> int:
        """The number of replicas.

        Returns
        -------
        int
            The number of rows.
        """
        return self._devices.shape[0]

    def computation_count(self) -> int:
        """The number of partitions.

        Returns
        -------
        int
            The number of columns.
        """
        return self._devices.shape[1]

    def serialize(self) -> bytes:
        """The assignment as a proto.

        Returns
        -------
        bytes
            A serialized DeviceAssignmentProto.
        """
        data = b"\x08" + _varint(self.replica_count()) + b"\x10" + _varint(self.computation_count())
        for column in self._devices.T.tolist():
            ids = b"".join(_varint(number) for number in column)
            message = b"\x0a" + _varint(len(ids)) + ids
            data += b"\x1a" + _varint(len(message)) + message
        return data

    def __repr__(self) -> str:
        lines = [f"Computations: {self.computation_count()} Replicas: {self.replica_count()}\n"]
        for number, column in enumerate(self._devices.T.tolist()):
            lines.append(f"Computation {number}: {' '.join(map(str, column))} \n")
        return "".join(lines)


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
