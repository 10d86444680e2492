"""LoadedExecutable: a program ready to run. `_engine` is the one place that knows what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.buffer import ArrayImpl
from hlokit.interop.xla_client.computation import HloModule, hlo_module_cost_analysis
from hlokit.interop.xla_client.errors import invalid, raises_status, unimplemented
from hlokit.interop.xla_client.options import CompileOptions
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.interop.xla_client.client import Client, Device

Values = Sequence[np.ndarray[Any, Any]]


def _engine(
    module: hk.HloModule, counts: tuple[int, int]
) -> Callable[[Sequence[Sequence[Any]], Sequence[Device]], Any]:
    """The function that runs `module`'s machine code on a list of arguments for each device.

    Infeeds take from the devices' queues, outfeeds add to them. It gives a result for each device.
    """
    replicas, partitions = counts
    executable: Any = hk.compile(module, replicas=replicas, partitions=partitions)

    def run(arguments: Sequence[Sequence[Any]], devices: Sequence[Device]) -> Any:
        queues = [_drained(device.infeed) for device in devices]
        if len(devices) == 1:
            result, sent = executable(*arguments[0], infeed=queues[0], return_outfeed=True)
            results, outfed = [result], [sent]
        else:
            results, outfed = executable(*arguments, infeed=queues, return_outfeed=True)
        for device, values in zip(devices, outfed, strict=True):
            device.outfeed.extend(values)
        return results

    return run


def _drained(queue: Any) -> Iterator[Any]:
    while queue:
        yield queue.popleft()


class Token:
    """Says that an execution is over, which here is always so."""

    def block_until_ready(self) -> None:
        pass


class ShardedToken(Token):
    """One token per device."""

    def get_token(self, device_id: int, /) -> Token:
        return Token()


class ExecuteResults:
    """The results of one execution, each as a list with one buffer per device. It can be taken apart once."""

    def __init__(self, buffers: list[list[ArrayImpl]], with_tokens: bool) -> None:
        self._buffers: list[list[ArrayImpl]] | None = buffers
        self._token = ShardedToken() if with_tokens else None

    def __len__(self) -> int:
        return len(self._buffers or ())

    def _take(self) -> list[list[ArrayImpl]]:
        if self._buffers is None:
            raise ValueError("ExecuteResults already exploded.")
        buffers, self._buffers = self._buffers, None
        return buffers

    def disassemble_into_single_device_arrays(self) -> list[list[ArrayImpl]]:
        return self._take()

    def disassemble_prefix_into_single_device_arrays(self, count: int, /) -> list[list[ArrayImpl]]:
        if count > len(self):
            raise ValueError(f"In DisassembleIntoSingleDeviceArrays: {count} > {len(self)}")
        if self._buffers is None:
            raise ValueError("ExecuteResults already exploded.")
        taken, self._buffers = self._buffers[:count], self._buffers[count:]
        return taken

    def consume_with_handlers(self, handlers: Sequence[Callable[[list[ArrayImpl]], Any]], /) -> list[Any]:
        """What each handler makes of its result."""
        buffers = self._take()
        if len(handlers) != len(buffers):
            raise ValueError(f"{len(handlers)} handlers for {len(buffers)} results")
        return [handler(result) for handler, result in zip(handlers, buffers, strict=True)]

    def consume_token(self) -> ShardedToken:
        if self._token is None:
            raise ValueError("the execution was not asked for tokens")
        token, self._token = self._token, None
        return token


class LoadedExecutable:
    """A compiled program. A result that is a tuple comes as a list of buffers, anything else as one buffer."""

    def __init__(self, client: Client, module: hk.HloModule, options: CompileOptions) -> None:
        self.client = client
        self._module = module
        self._options = options
        self._counts = options.num_replicas, options.num_partitions
        self._devices = _assigned(client.devices(), options)
        self._run: Callable[[Sequence[Sequence[Any]], Sequence[Device]], Any] | None = _engine(module, self._counts)
        self._parameters = [p.shape for p in module.entry.parameters]
        self._is_tupled = options.parameter_is_tupled_arguments and len(self._parameters) == 1
        self._leaves = [leaf for shape in self._parameters for leaf in shape.leaves()]

    # -- running

    def execute(self, arguments: Sequence[ArrayImpl], device: Device | None = None) -> list[ArrayImpl]:
        """The results as buffers, for buffers as arguments. Tuple parameters take one buffer per leaf."""
        return [buffer for (buffer,) in self._execute([[a] for a in arguments])]

    def execute_with_token(
        self, arguments: Sequence[ArrayImpl], device: Device | None = None
    ) -> tuple[list[ArrayImpl], Token]:
        return self.execute(arguments), Token()

    def execute_sharded(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]], with_tokens: bool = False
    ) -> ExecuteResults:
        """As execute; each argument may come as a list with one buffer per device."""
        results = self._execute([[a] if isinstance(a, ArrayImpl) else a for a in arguments])
        return ExecuteResults(results, with_tokens)

    def execute_sharded_on_local_devices(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]]
    ) -> list[list[ArrayImpl]]:
        return self.execute_sharded(arguments).disassemble_into_single_device_arrays()

    def execute_sharded_on_local_devices_with_tokens(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]]
    ) -> tuple[list[list[ArrayImpl]], ShardedToken]:
        results = self.execute_sharded(arguments, with_tokens=True)
        return results.disassemble_into_single_device_arrays(), results.consume_token()

    @raises_status
    def _execute(self, shards: Sequence[Sequence[ArrayImpl]]) -> list[list[ArrayImpl]]:
        """The results, each with a buffer per device, for arguments with a buffer per device."""
        if self._run is None:
            raise invalid("the executable has been deleted")
        count = len(self._devices)
        for shard in shards:
            if len(shard) != count:
                raise invalid(
                    f"Expected args to execute_sharded_on_local_devices to have {count} shards, got: {len(shard)}"
                )
        arguments: list[list[Any]] = []
        for number in range(count):
            values = iter(self._values([shard[number] for shard in shards]))
            arguments.append([_assembled(shape, values) for shape in self._parameters])
        results = self._run(arguments, self._devices)
        leaves = zip(*map(_leaves_of, results), strict=True)
        return [[ArrayImpl(np.asarray(v), d) for v, d in zip(leaf, self._devices, strict=True)] for leaf in leaves]

    def _values(self, buffers: Sequence[ArrayImpl]) -> Values:
        if len(buffers) != len(self._leaves):
            raise invalid(
                f"Execution supplied {len(buffers)} buffers but compiled program expected {len(self._leaves)} buffers"
            )
        for number, buffer in enumerate(buffers):
            if not isinstance(buffer, ArrayImpl):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"argument {number}: expected a buffer, got {type(buffer).__name__}")
            if buffer.is_deleted():
                raise invalid(f"argument {number}: the buffer has been deleted")
        return [buffer.value for buffer in buffers]

    # -- what it is

    def hlo_modules(self) -> list[HloModule]:
        return [HloModule(self._module)]

    def cost_analysis(self) -> dict[str, float]:
        return hlo_module_cost_analysis(self.client, HloModule(self._module))

    def compile_options(self) -> CompileOptions:
        return self._options

    def local_devices(self) -> list[Device]:
        return list(self._devices)

    def local_logical_device_ids(self) -> list[tuple[int, int]]:
        """(replica, partition) of each device."""
        return [divmod(number, self._counts[1]) for number in range(len(self._devices))]

    @property
    def fingerprint(self) -> None:
        return None

    @property
    def traceback(self) -> None:
        return None

    def size_of_generated_code_in_bytes(self) -> int:
        """No code is generated."""
        return 0

    def get_parameter_shardings(self) -> None:
        return None

    def get_output_shardings(self) -> None:
        return None

    def get_output_memory_kinds(self) -> Any:
        raise unimplemented("GetOutputMemoryKinds is not supported.")

    def keep_alive(self, value: Any, /) -> None:
        """Holds on to a value as long as the executable lives."""
        self._kept = [*getattr(self, "_kept", []), value]

    def delete(self) -> None:
        self._run = None


def _assigned(devices: Sequence[Device], options: CompileOptions) -> list[Device]:
    """The devices that run the replicas and partitions, in order."""
    count = options.num_replicas * options.num_partitions
    numbers = options.device_assignment.devices() if options.device_assignment is not None else list(range(count))
    if len(numbers) != count or not set(numbers) <= set(range(len(devices))):
        raise invalid(f"the device assignment {numbers} is none of {count} out of {len(devices)} devices")
    return [devices[number] for number in numbers]


def _assembled(shape: Shape, leaves: Iterator[Any]) -> Any:
    """The next leaves as a value of `shape`."""
    if shape.is_tuple:
        return tuple(_assembled(element, leaves) for element in shape.elements)
    return next(leaves)


def _leaves_of(value: Any) -> Iterator[Any]:
    """The arrays in a result; tokens count as empty arrays."""
    if isinstance(value, tuple):
        for part in cast("tuple[Any, ...]", value):
            yield from _leaves_of(part)
    else:
        yield np.zeros(0, np.bool_) if value is None else value
