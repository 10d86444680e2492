"""The table's functions on executables that are implemented in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from hlokit.errors import ArgumentError, EvaluationError, UnsupportedError
from hlokit.forks import unforked
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.arrays import buffer_type
from hlokit.interop.pjrt.client import device_at, no_deleter
from hlokit.interop.pjrt.loaded import Loaded, bury, execute, load, loaded_at
from hlokit.interop.pjrt.memory import Kept, constant, read_bytes, read_word, read_words
from hlokit.interop.pjrt.native import native
from hlokit.interop.pjrt.options import assignment_proto
from hlokit.interop.pjrt.programs import Program, deserialized
from hlokit.interop.pjrt.table import failed, function
from hlokit.memory import uncollected

_options: Any = layouts.struct("ExecuteOptions")
_program: Any = layouts.struct("Program")


@function("Client_Compile")
def _compile(a: Any) -> None:
    bury()
    program = _program.from_address(a.program)
    format = read_bytes(program.format, program.format_size)
    if format != b"mlir":
        raise UnsupportedError(f"programs of the format {format!r}: only 'mlir' is read")
    code = read_bytes(program.code, program.code_size)
    a.executable = _loaded(Program, code, read_bytes(a.compile_options, a.compile_options_size)).address


@unforked
@uncollected  # JAX's own objects are many: to look through them once takes 50 ms
def _loaded(read: Callable[[bytes, bytes], Program], data: bytes, options: bytes) -> Loaded:
    return load(read(data, options))


@function("Executable_DeserializeAndLoad")
def _load(a: Any) -> None:
    bury()
    options = b""
    if a.size >= layouts.size("Executable_DeserializeAndLoad"):
        options = read_bytes(a.overridden_serialized_compile_options, a.overridden_serialized_compile_options_size)
    data = read_bytes(a.serialized_executable, a.serialized_executable_size)
    a.loaded_executable = _loaded(deserialized, data, options).address


@function("LoadedExecutable_Execute")
def _execute(a: Any) -> None:
    bury()
    loaded = loaded_at(a.executable)
    program = loaded.program
    options = _options.from_address(a.options)
    kept = read_words(options.non_donatable_input_indices, options.num_non_donatable_input_indices)
    lists = [read_words(read_word(a.argument_lists + 8 * i), a.num_args) for i in range(a.num_devices)]
    places = [device_at(a.execute_device)] if a.execute_device else program.local_devices
    if len(lists) != len(places):
        raise ArgumentError(f"{program.name}: arguments for {len(lists)} devices, expected {len(places)}")
    made = execute(loaded, lists, kept, places)
    for number, buffers in enumerate(made):
        if buffers:
            (ctypes.c_uint64 * len(buffers)).from_address(read_word(a.output_lists + 8 * number))[:] = buffers
        if a.device_complete_events:
            ctypes.c_uint64.from_address(a.device_complete_events + 8 * number).value = native().ready


@failed
def _stopped(address: int) -> None:
    """Machine code stopped midway: says why."""
    executable = loaded_at(address).run.executable
    if executable is None or executable.native is None:
        raise EvaluationError(f"{loaded_at(address).program.name}: stopped midway")
    executable.native.failed()


@function("LoadedExecutable_AddressableDevices")
def _devices(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.addressable_devices = loaded.kept.fixed_words([device.address for device in program.local_devices])
    a.num_addressable_devices = len(program.own)


@function("LoadedExecutable_AddressableDeviceLogicalIds")
def _logical_ids(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    pairs = [divmod(n, program.options.partitions) for n in program.own]
    a.addressable_device_logical_ids = loaded.kept.integers([part for pair in pairs for part in pair])
    a.num_addressable_device_logical_ids = len(pairs)


@function("LoadedExecutable_GetDeviceAssignment")
def _assignment(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.serialized_bytes, a.serialized_bytes_size = loaded.kept.text(assignment_proto(program.options))
    a.serialized_device_assignment, a.serialized_device_assignment_deleter = a.executable, no_deleter()


@function("LoadedExecutable_Fingerprint")
def _loaded_fingerprint(a: Any) -> None:
    loaded = loaded_at(a.executable)
    a.executable_fingerprint, a.executable_fingerprint_size = loaded.kept.text(loaded.program.fingerprint)


@function("Executable_Fingerprint")
def _fingerprint(a: Any) -> None:
    loaded = loaded_at(a.executable)
    a.executable_fingerprint, a.executable_fingerprint_size = loaded.kept.text(loaded.program.fingerprint)


@function("Executable_Name")
def _name(a: Any) -> None:
    loaded = loaded_at(a.executable)
    a.executable_name, a.executable_name_size = loaded.kept.text(loaded.program.name)


@function("Executable_OutputElementTypes")
def _types(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.output_types = loaded.kept.integers([buffer_type(shape) for shape in program.results])
    a.num_output_types = len(program.results)


@function("Executable_OutputDimensions")
def _dimensions(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.num_outputs = len(program.results)
    a.dims = loaded.kept.fixed_words([size for shape in program.results for size in shape.dimensions])
    a.dim_sizes = loaded.kept.fixed_words([shape.rank for shape in program.results])


def _kinds(kept: Kept, kinds: list[str]) -> tuple[int, int]:
    texts = [constant(kind) for kind in kinds]
    return kept.fixed_words([address for address, _ in texts]), kept.fixed_words([size for _, size in texts])


@function("Executable_OutputMemoryKinds")
def _output_kinds(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.num_outputs = len(program.results)
    a.memory_kinds, a.memory_kind_sizes = _kinds(loaded.kept, program.memory_kinds)


@function("Executable_ParameterMemoryKinds")
def _parameter_kinds(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    a.num_parameters = len(program.parameters)
    a.memory_kinds, a.memory_kind_sizes = _kinds(loaded.kept, ["device"] * len(program.parameters))


@function("Executable_Serialize")
def _serialize(a: Any) -> None:
    _own_bytes(a, loaded_at(a.executable).program.serialized(), "executable")


@function("Executable_GetCompileOptions")
def _compile_options(a: Any) -> None:
    _own_bytes(a, loaded_at(a.executable).program.serialized_options, "compile_options")


def _own_bytes(a: Any, data: bytes, what: str) -> None:
    a.serialized_bytes, a.serialized_bytes_size = loaded_at(a.executable).kept.text(data)
    setattr(a, f"serialized_{what}", a.executable)
    setattr(a, f"serialized_{what}_deleter", no_deleter())


@function("Executable_SizeOfGeneratedCodeInBytes")
def _size(a: Any) -> None:
    executable = loaded_at(a.executable).run.executable
    a.size_in_bytes = sum(map(len, executable.plan.objects)) if executable is not None else 0


@function("Executable_GetCostAnalysis")
def _cost(a: Any) -> None:
    from hlokit.runtime.inspection import cost_analysis

    loaded = loaded_at(a.executable)
    program = loaded.program
    a.properties, a.num_properties = loaded.kept.named(cost_analysis(program.module))


@function("Executable_GetCompiledMemoryStats")
def _memory(a: Any) -> None:
    loaded = loaded_at(a.executable)
    program = loaded.program
    if loaded.run.executable is None:
        raise UnsupportedError(f"{program.name}: the interpreter knows no sizes of memory")
    found = loaded.run.executable.memory_analysis()
    values = dict.fromkeys(layouts_fields("Executable_GetCompiledMemoryStats"), 0)
    values |= {name: value for name, value in vars(found).items() if name in values}
    values["total_size_in_bytes"] = found.peak_memory_in_bytes
    for name, value in values.items():
        if layouts.offset("Executable_GetCompiledMemoryStats", name) < a.size:
            setattr(a, name, value)


def layouts_fields(name: str) -> list[str]:
    """The out fields of a struct whose first own field is the handle."""
    return list(layouts.record(name).fields)[3:]
