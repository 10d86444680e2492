"""LoadedExecutable: a program ready to run. `_engine` is the one place that knows what runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.buffer import ArrayImpl, laid_out
from hlokit.interop.xla_client.computation import HloModule, hlo_module_cost_analysis
from hlokit.interop.xla_client.errors import invalid, raises_status, unimplemented
from hlokit.interop.xla_client.options import CompileOptions
from hlokit.interop.xla_client.shapes import PjRtLayout
from hlokit.interop.xla_client.traceback import Traceback
from hlokit.types.layout import Layout, default_layout
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.interop.xla_client.client import Client, Device
    from hlokit.runtime.executable import Executable

Values = Sequence[np.ndarray[Any, Any]]
Run = Callable[[Sequence[Sequence[Any]], "Sequence[Device]"], Any]


def _engine(module: hk.HloModule, counts: tuple[int, int]) -> tuple[Executable, Run]:
    """The compiled module, and the function that runs it on a list of arguments for each device.

    Infeeds take from the devices' queues, outfeeds add to them. The function gives a result for each device.
    """
    from hlokit.runtime.devices import DeviceExecutable

    replicas, partitions = counts
    executable: Any = hk.compile(module, replicas=replicas, partitions=partitions)

    def run(arguments: Sequence[Sequence[Any]], devices: Sequence[Device]) -> Any:
        infeeds, outfeeds = [d.infeed.values() for d in devices], [d.outfeed for d in devices]
        if len(devices) == 1:
            return [executable(*arguments[0], infeed=infeeds[0], outfeed=outfeeds[0])]
        return executable(*arguments, infeed=infeeds, outfeed=outfeeds)

    return (executable.executable if isinstance(executable, DeviceExecutable) else executable), run


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
        """The results of each handler on its part of the result."""
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
    """A compiled program. A result that is a tuple comes as a list of buffers, anything else as one buffer.

    `source` is the program as it was given. With `keeps_layouts` its parameters and results have the layouts that it
    says; else, and where it says none, they are row-major. The compile options go before both.
    """

    def __init__(
        self, client: Client, module: hk.HloModule, options: CompileOptions, *, keeps_layouts: bool = True
    ) -> None:
        self.client = client
        self.source = module
        self.traceback = Traceback.get_traceback()
        self._options = options
        self._counts = options.num_replicas, options.num_partitions
        self._devices = _assigned(client.devices(), options)
        self._parameters = [p.shape for p in module.entry.parameters]
        self._is_tupled = options.parameter_is_tupled_arguments and len(self._parameters) == 1
        self._leaves = [leaf for shape in self._parameters for leaf in shape.leaves()]
        self._parameter_layouts = self._layouts_in(keeps_layouts)
        self._output_layouts = self._layouts_out(keeps_layouts)
        self._engine, run = _engine(module, self._counts)
        self._run: Run | None = run

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
        """Same as execute; each argument may come as a list with one buffer per device."""
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
        return [
            [ArrayImpl(laid_out(np.asarray(v), layout), d) for v, d in zip(leaf, self._devices, strict=True)]
            for leaf, layout in zip(leaves, self._output_layouts, strict=True)
        ]

    def _values(self, buffers: Sequence[ArrayImpl]) -> Values:
        if len(buffers) != len(self._leaves):
            raise invalid(
                f"Execution supplied {len(buffers)} buffers but compiled program expected {len(self._leaves)} buffers"
            )
        for number, buffer in enumerate(buffers):
            if not isinstance(buffer, ArrayImpl):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"argument {number}: expected a buffer, got {type(buffer).__name__}")
            if buffer.is_deleted():
                raise invalid(f"argument {number}: the buffer has been deleted or donated")
        return [buffer.value for buffer in buffers]

    # -- what it is

    def hlo_modules(self) -> list[HloModule]:
        """The program after the passes, as it runs."""
        return [HloModule(self._engine.program.module)]

    def cost_analysis(self) -> dict[str, float]:
        return hlo_module_cost_analysis(self.client, HloModule(self.source))

    def compile_options(self) -> CompileOptions:
        return self._options

    def local_devices(self) -> list[Device]:
        return list(self._devices)

    def local_logical_device_ids(self) -> list[tuple[int, int]]:
        """(replica, partition) of each device."""
        return [divmod(number, self._counts[1]) for number in range(len(self._devices))]

    @cached_property
    def fingerprint(self) -> bytes:
        """Differs for other programs, other numbers of devices, other machines and other versions of hlokit."""
        parts = hk.__version__, self._counts, self._engine.target, self.source.to_text()
        return hashlib.sha256(repr(parts).encode()).digest()

    def size_of_generated_code_in_bytes(self) -> int:
        """No code is generated."""
        return 0

    def get_parameter_layouts(self) -> list[PjRtLayout]:
        """The layout of each argument. Buffers of any layout are taken; what counts is their elements."""
        return list(map(PjRtLayout.of, self._parameter_layouts))

    def get_output_layouts(self) -> list[PjRtLayout]:
        """The layout of each result: the order of the dimensions in its buffer's memory."""
        return list(map(PjRtLayout.of, self._output_layouts))

    def _layouts_in(self, keeps: bool) -> list[Layout]:
        given = self._options.argument_layouts
        if given is None:
            return _layouts((self.source.parameter_layouts or self._parameters) if keeps else map(_plain, self._leaves))
        expected = self._leaves if self._is_tupled else self._parameters
        if len(given) != len(expected):
            raise invalid(
                f"CompileOptions specify {len(given)} argument layouts, but computation has {len(expected)} arguments"
            )
        for number, (shape, wanted) in enumerate(zip(given, expected, strict=True)):
            if shape.core.static is not wanted.static:
                raise invalid(
                    f"Argument does not match shape of computation parameter {number}: want {wanted.static}, got "
                    f"{shape.core.static}"
                )
        return _layouts(shape.core for shape in given)

    def _layouts_out(self, keeps: bool) -> list[Layout]:
        given = self._options.executable_build_options.result_layout
        root = self.source.entry.root.shape
        if given is None:
            shape = self.source.result_layout or root
            return _layouts([shape] if keeps else map(_plain, root.leaves()))
        if given.core.static is not root.static:
            raise invalid(
                f"Result layout does not match shape of computation: want {root.static}, got {given.core.static}"
            )
        return _layouts([given.core])

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


def _layouts(shapes: Iterable[Shape]) -> list[Layout]:
    """Those of all arrays in the shapes; tokens count as arrays of one dimension."""
    leaves = [leaf for shape in shapes for leaf in shape.leaves()]
    return [leaf.layout_or_default if leaf.is_array else default_layout(1) for leaf in leaves]


def _plain(shape: Shape) -> Shape:
    """Without a layout."""
    return shape.static


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
