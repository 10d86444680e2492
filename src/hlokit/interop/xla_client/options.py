"""CompileOptions and what it holds. Only the numbers of replicas and partitions and the tupling of arguments count."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.interop.xla_client.errors import unimplemented
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
    "xla_gpu_load_autotune_results_from": "",
    "xla_llvm_disable_expensive_passes": False,
    "xla_test_all_input_layouts": False,
}


class _Options:
    """Attributes with defaults; no others can be set."""

    def __init__(self, defaults: dict[str, Any]) -> None:
        vars(self).update(defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for kind in (bool, int, str):
            if type(vars(self)[name]) is kind and not isinstance(value, (int, np.integer) if kind is int else kind):
                raise TypeError(f"{type(self).__name__}.{name}: expected {kind.__name__}, got {value!r}")
        vars(self)[name] = value


class DebugOptions(_Options):
    """Flags of XLA's compiler that jaxlib lets one set. They are kept, and change nothing here."""

    def __init__(self) -> None:
        super().__init__(_DEBUG_DEFAULTS)


class ExecutableBuildOptions(_Options):
    """How to build an executable; kept, and changing nothing here."""

    debug_options: DebugOptions
    num_replicas: int
    num_partitions: int

    def __init__(self) -> None:
        super().__init__(
            {
                "allow_spmd_sharding_propagation_to_output": [False],
                "allow_spmd_sharding_propagation_to_parameters": [False],
                "auto_spmd_partitioning_mesh_ids": [],
                "auto_spmd_partitioning_mesh_shape": [],
                "debug_options": DebugOptions(),
                "device_assignment": None,
                "fdo_profile": b"",
                "num_partitions": 1,
                "num_replicas": 1,
                "result_layout": None,
                "use_auto_spmd_partitioning": False,
                "use_spmd_partitioning": False,
            }
        )


class CompileOptions(_Options):
    """What `client.compile` takes beside the program.

    num_replicas, num_partitions    how many devices run it: at most as many as the client has
    parameter_is_tupled_arguments   the entry's only parameter is a tuple, whose elements are the arguments
    """

    argument_layouts: list[Shape] | None
    device_assignment: DeviceAssignment | None
    executable_build_options: ExecutableBuildOptions
    num_partitions: int
    num_replicas: int
    parameter_is_tupled_arguments: bool
    tuple_arguments: bool

    def __init__(self) -> None:
        super().__init__(
            {
                "argument_layouts": None,
                "compile_portable_executable": False,
                "device_assignment": None,
                "env_option_overrides": [],
                "executable_build_options": ExecutableBuildOptions(),
                "num_partitions": 1,
                "num_replicas": 1,
                "parameter_is_tupled_arguments": False,
                "profile_version": 0,
                "tuple_arguments": False,
            }
        )

    def SerializeAsString(self) -> bytes:
        raise unimplemented("CompileOptions.SerializeAsString")

    @staticmethod
    def ParseFromString(data: bytes, /) -> CompileOptions:
        raise unimplemented("CompileOptions.ParseFromString")


class DeviceAssignment:
    """Which device runs which replica of which partition."""

    def __init__(self, devices: np.ndarray[Any, Any]) -> None:
        self._devices = devices

    @staticmethod
    def create(assignment: np.ndarray[Any, Any], /) -> DeviceAssignment:
        """From device numbers indexed by [replica][partition]."""
        devices = np.asarray(assignment)
        if devices.ndim != 2 or devices.dtype.kind not in "iu":
            raise TypeError(f"expected a matrix of device numbers, got {devices.dtype}{list(devices.shape)}")
        return DeviceAssignment(devices.astype(np.int32))

    def devices(self) -> list[int]:
        """Replica by replica, partition by partition."""
        return self._devices.reshape(-1).tolist()

    def replica_count(self) -> int:
        return self._devices.shape[0]

    def computation_count(self) -> int:
        return self._devices.shape[1]

    def serialize(self) -> bytes:
        """A serialized DeviceAssignmentProto."""
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
