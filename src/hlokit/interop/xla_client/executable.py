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
    """Says that an execution is over: executions return when they are.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc._xla.Token().block_until_ready()
    """

    def block_until_ready(self) -> None:
        """Returns at once."""


class ShardedToken(Token):
    """A token for each device.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc._xla.ShardedToken().get_token(0).block_until_ready()
    """

    def get_token(self, device_id: int, /) -> Token:
        """The token of a device.

        Parameters
        ----------
        device_id : int
            The device's number.

        Returns
        -------
        Token
            The token.
        """
        return Token()


class ExecuteResults:
    """The results of one execution, each as a list with one buffer per device. They can be taken once.

    Parameters
    ----------
    buffers : list of lists of ArrayImpl
        The results, indexed by [result][device].
    with_tokens : bool
        Whether there are tokens.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> run = client.compile("ENTRY e { ROOT c = f32[2] constant({1, 2}) }")
    >>> run.execute_sharded([]).disassemble_into_single_device_arrays()
    [[<ArrayImpl float32[2] on CpuDevice(id=0)>]]
    """

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
        """Takes all results.

        Returns
        -------
        list of lists of ArrayImpl
            Indexed by [result][device].

        Raises
        ------
        ValueError
            They were taken before.
        """
        return self._take()

    def disassemble_prefix_into_single_device_arrays(self, count: int, /) -> list[list[ArrayImpl]]:
        """Takes the first results; the others remain.

        Parameters
        ----------
        count : int
            How many.

        Returns
        -------
        list of lists of ArrayImpl
            Indexed by [result][device].

        Raises
        ------
        ValueError
            There are fewer, or they were taken before.
        """
        if count > len(self):
            raise ValueError(f"In DisassembleIntoSingleDeviceArrays: {count} > {len(self)}")
        if self._buffers is None:
            raise ValueError("ExecuteResults already exploded.")
        taken, self._buffers = self._buffers[:count], self._buffers[count:]
        return taken

    def consume_with_handlers(self, handlers: Sequence[Callable[[list[ArrayImpl]], Any]], /) -> list[Any]:
        """Takes all results and passes each to a function.

        Parameters
        ----------
        handlers : sequence of callable
            One for each result: a function of a list with one buffer per device.

        Returns
        -------
        list
            What the functions return.

        Raises
        ------
        ValueError
            The number of functions is not that of the results, or these were taken before.
        """
        buffers = self._take()
        if len(handlers) != len(buffers):
            raise ValueError(f"{len(handlers)} handlers for {len(buffers)} results")
        return [handler(result) for handler, result in zip(handlers, buffers, strict=True)]

    def consume_token(self) -> ShardedToken:
        """Takes the tokens.

        Returns
        -------
        ShardedToken
            The tokens of the devices.

        Raises
        ------
        ValueError
            The execution was not asked for tokens, or they were taken before.
        """
        if self._token is None:
            raise ValueError("the execution was not asked for tokens")
        token, self._token = self._token, None
        return token


class LoadedExecutable:
    """A compiled program. A result that is a tuple is returned as a list of buffers, anything else as one buffer.

    `Client.compile` makes one.

    Parameters
    ----------
    client : Client
        The client that compiled it.
    module : hlokit.HloModule
        The program as it was given; the attribute `source`.
    options : CompileOptions
        The compile options, whose layouts take precedence over those of the program.
    keeps_layouts : bool, optional
        Whether parameters and results have the layouts that the program gives them; otherwise they are row-major.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> executable = client.compile("ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> executable.execute([client.buffer_from_pyval(np.float32([1, 2]))])
    [<ArrayImpl float32[2] on CpuDevice(id=0)>]
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
        """Runs the program on its device.

        Parameters
        ----------
        arguments : sequence of ArrayImpl
            The arguments; a parameter that is a tuple takes one buffer for each array in it.
        device : Device, optional
            Has no effect: the compile options choose the device.

        Returns
        -------
        list of ArrayImpl
            The results, one buffer for each array.

        Raises
        ------
        XlaRuntimeError
            The arguments are not those that the program takes, one was deleted, the program is for several devices,
            the executable was deleted, or the run failed.
        TypeError
            An argument is not a buffer.
        """
        return [buffer for (buffer,) in self._execute([[a] for a in arguments])]

    def execute_with_token(
        self, arguments: Sequence[ArrayImpl], device: Device | None = None
    ) -> tuple[list[ArrayImpl], Token]:
        """`execute`, with a token.

        Parameters
        ----------
        arguments : sequence of ArrayImpl
            As for `execute`.
        device : Device, optional
            Has no effect.

        Returns
        -------
        (list of ArrayImpl, Token)
            The results, and a token whose `block_until_ready` returns at once.

        Raises
        ------
        XlaRuntimeError
            As `execute`.
        """
        return self.execute(arguments), Token()

    def execute_sharded(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]], with_tokens: bool = False
    ) -> ExecuteResults:
        """Runs the program on all its devices.

        Parameters
        ----------
        arguments : sequence of ArrayImpl or sequences of ArrayImpl
            For each argument a list with one buffer per device, or a buffer if there is one device.
        with_tokens : bool, optional
            Whether the results have tokens.

        Returns
        -------
        ExecuteResults
            The results, each with one buffer per device.

        Raises
        ------
        XlaRuntimeError
            As `execute`; also if an argument has another number of buffers.
        """
        results = self._execute([[a] if isinstance(a, ArrayImpl) else a for a in arguments])
        return ExecuteResults(results, with_tokens)

    def execute_sharded_on_local_devices(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]]
    ) -> list[list[ArrayImpl]]:
        """Runs the program on all its devices.

        Parameters
        ----------
        arguments : sequence of ArrayImpl or sequences of ArrayImpl
            As for `execute_sharded`.

        Returns
        -------
        list of lists of ArrayImpl
            The results, indexed by [result][device].

        Raises
        ------
        XlaRuntimeError
            As `execute_sharded`.
        """
        return self.execute_sharded(arguments).disassemble_into_single_device_arrays()

    def execute_sharded_on_local_devices_with_tokens(
        self, arguments: Sequence[ArrayImpl | Sequence[ArrayImpl]]
    ) -> tuple[list[list[ArrayImpl]], ShardedToken]:
        """`execute_sharded_on_local_devices`, with tokens.

        Parameters
        ----------
        arguments : sequence of ArrayImpl or sequences of ArrayImpl
            As for `execute_sharded`.

        Returns
        -------
        (list of lists of ArrayImpl, ShardedToken)
            The results, and the tokens of the devices.

        Raises
        ------
        XlaRuntimeError
            As `execute_sharded`.
        """
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
        """The program after hlokit's passes, as it runs.

        Returns
        -------
        list of HloModule
            A list of one.
        """
        return [HloModule(self._engine.program.module)]

    def cost_analysis(self) -> dict[str, float]:
        """Estimates for one run of the program as it was given (see `hlokit.analysis.cost`).

        Returns
        -------
        dict
            Among others "flops", "transcendentals" and "bytes accessed".
        """
        return hlo_module_cost_analysis(self.client, HloModule(self.source))

    def compile_options(self) -> CompileOptions:
        """The options that the program was compiled with.

        Returns
        -------
        CompileOptions
            The options.
        """
        return self._options

    def local_devices(self) -> list[Device]:
        """The devices that run the program.

        Returns
        -------
        list of Device
            Replica by replica; in a replica, partition by partition.
        """
        return list(self._devices)

    def local_logical_device_ids(self) -> list[tuple[int, int]]:
        """The replica and the partition of each device.

        Returns
        -------
        list of (int, int)
            In the order of `local_devices()`.
        """
        return [divmod(number, self._counts[1]) for number in range(len(self._devices))]

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that differ for other programs, numbers of devices, machines and versions of hlokit."""
        parts = hk.__version__, self._counts, self._engine.target, self.source.to_text()
        return hashlib.sha256(repr(parts).encode()).digest()

    def size_of_generated_code_in_bytes(self) -> int:
        """The size of the machine code, which is not measured.

        Returns
        -------
        int
            0.
        """
        return 0

    def get_parameter_layouts(self) -> list[PjRtLayout]:
        """The layouts of the arguments. Buffers of any layout are accepted.

        Returns
        -------
        list of PjRtLayout
            One for each array in the parameters.
        """
        return list(map(PjRtLayout.of, self._parameter_layouts))

    def get_output_layouts(self) -> list[PjRtLayout]:
        """The layouts of the results: the order of the dimensions in memory.

        Returns
        -------
        list of PjRtLayout
            One for each array in the result.
        """
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
        """The shardings of the parameters, which are not known.

        Returns
        -------
        None
            None.
        """
        return None

    def get_output_shardings(self) -> None:
        """The shardings of the results, which are not known.

        Returns
        -------
        None
            None.
        """
        return None

    def get_output_memory_kinds(self) -> Any:
        """Not supported, as in XLA for CPUs.

        Returns
        -------
        Any
            Never.

        Raises
        ------
        XlaRuntimeError
            Always (UNIMPLEMENTED).
        """
        raise unimplemented("GetOutputMemoryKinds is not supported.")

    def keep_alive(self, value: Any, /) -> None:
        """Keeps a value as long as the executable lives.

        Parameters
        ----------
        value : Any
            The value.
        """
        self._kept = [*getattr(self, "_kept", []), value]

    def delete(self) -> None:
        """Releases the program; it cannot run afterwards."""
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
