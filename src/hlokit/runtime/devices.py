"""DeviceExecutable: a compiled module that several devices run, each in a thread of this process or under MPI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy.lib.array_utils import byte_bounds

from hlokit.devices.mpmd import fingerprint, order_of, run_grid, run_rank
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import counted
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import is_ndarray, is_sequence
from hlokit.interpreter.routes import Place, routes_of
from hlokit.interpreter.transport import RENDEZVOUS
from hlokit.runtime.interrupt import stop_threads
from hlokit.runtime.native_grid import NativeGrid, native_grid
from hlokit.tracebacks import public_methods

if TYPE_CHECKING:
    from hlokit.devices.processes.world import Placement, World
    from hlokit.runtime.executable import Executable


@public_methods("__call__")
class DeviceExecutable:
    """A module compiled once and run by a grid of devices, as returned by `hk.compile` for several devices.

    It is called like `hk.evaluate` for several devices; several threads may call it at the same time. For collectives
    and channels the code calls back: they use the same transport as the interpreter's, with the same results and the
    same errors. Between them the devices run concurrently.

    Attributes
    ----------
    source : HloModule
        The module as it was given.
    replica_count, partition_count : int
        The numbers of replicas and partitions.
    executable : Executable
        The code, which all devices share.
    """

    def __init__(self, module: HloModule, counts: tuple[int, int], executable: Executable) -> None:
        self.source = module
        self.replica_count, self.partition_count = counts
        self.executable = executable
        self._modules = [module] * (counts[0] * counts[1])
        self._routes = routes_of(self._modules, Place.grid(*counts))

    def __repr__(self) -> str:
        devices = f"{counted(self.replica_count, 'replica')} of {counted(self.partition_count, 'partition')}"
        return f"<DeviceExecutable {self.source.name}: {self.source.entry.brief()}, on {devices}>"

    def __call__(
        self,
        *args: Sequence[Any],
        infeed: Sequence[Iterable[Any]] = (),
        outfeed: Any = None,
        seed: int = 0,
        return_outfeed: bool = False,
        from_host: Any = None,
        to_host: Any = None,
        world: World | Placement | None = None,
    ) -> Any:
        """The result of each device. The keyword arguments are those of hlokit.evaluate for several devices.

        Parameters
        ----------
        args : sequence
            For each device its arguments; in a world those of this process's device, or for each of its devices.
        infeed : sequence of iterables, optional
            For each device the values that infeed instructions read.
        outfeed : list of lists, optional
            For each device what outfeed instructions append their values to.
        seed : int, optional
            The seed of rng instructions; each device has its own stream.
        return_outfeed : bool, optional
            Whether to return (results, values of outfeed instructions).
        from_host, to_host : list of dict, optional
            For each device the values that host transfers receive, and what they append to, by channel.
        world : World, optional
            Of `process_world`: this process runs one device and passes that device's arguments; or, if each process
            runs several, lists with one item per device.

        Returns
        -------
        list
            A result for each device; in a world that of this process's device, or of each of its devices.

        Raises
        ------
        ArgumentError
            The arguments do not fit the parameters.
        EvaluationError
            A step cannot be run.
        DeadlockError
            Devices wait for each other forever.
        OutOfMemoryError
            The call needs more memory than there is.
        UnsupportedError
            The code is for another machine, or a custom call's target is not registered (UnknownTargetError).
        """
        if world is not None:
            given = apart(args) if self.executable.plan.overwritten else args
            return run_rank(
                world, self._modules, given, (self.replica_count, self.partition_count), infeed=infeed, outfeed=outfeed,
                seed=seed, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host, routes=self._routes,
                machine=self.executable.on, communicating=self.executable.communicating, name=self._name,
                order=self._order, halt=stop_threads,
            )  # fmt: skip
        given = apart(args) if self.executable.plan.overwritten else args
        is_plain = not (infeed or return_outfeed) and outfeed is from_host is to_host is None
        if is_plain and self.grid is not None and len(given) == len(self._modules) and all(map(is_sequence, given)):
            try:
                results = self.grid.call(given)
            except ArgumentError:  # which run_grid raises again, with the device
                results = None
            if results is not None:
                return results
        with self.executable.together() as machine:
            return run_grid(
                self._modules, given, (self.replica_count, self.partition_count), infeed=infeed, outfeed=outfeed,
                seed=seed, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host, machine=machine,
                parallel=len(self._modules), halt=stop_threads, routes=self._routes,
            )  # fmt: skip

    @cached_property
    def grid(self) -> NativeGrid | None:
        """Runs it on its devices without Python, if that is possible."""
        return native_grid(self)

    @cached_property
    def _name(self) -> str:
        """The name that all ranks of a world must agree on."""
        return "machine code " + fingerprint(self._modules, (self.replica_count, self.partition_count))

    @cached_property
    def _order(self) -> str:
        counts = self.replica_count, self.partition_count
        target = self.executable.target
        processor = f"{target.triple} {target.cpu} {target.features}"
        return order_of(self._modules, counts, self.executable.communicating, processor)


def with_meetings(module: HloModule) -> HloModule:
    """The module, or a copy in which collectives that are reached in several ways say so: the passes copy them for each
    way, and devices that go different ways are to meet nevertheless."""
    if not any(True for _ in _shared_meetings(module)):
        return module
    copy = module.clone()
    for instruction in _shared_meetings(copy):
        parent = instruction.parent
        assert parent is not None
        instruction.ensure_extra().frontend_attributes[RENDEZVOUS] = f"{parent.name}/{instruction.name}"
    return copy


def _shared_meetings(module: HloModule) -> Iterator[Instruction]:
    """The instructions that have, but lack, a channel, of computations that are called in several ways."""
    ways = Counter({module.entry: 1})
    for computation in reversed(module.computations()):  # callers before what they call
        for instruction in computation.instructions:
            for called in instruction.called:
                ways[called] = min(2, ways[called] + ways[computation])
        if ways[computation] > 1:
            yield from (i for i in computation.instructions if getattr(i.op, "channel_id", 0) is None)


def apart(args: Sequence[Any]) -> list[Any]:
    """The devices' arguments, arrays that share memory with another device's copied: what one device overwrites, the
    others have as it was."""
    spans = sorted((*byte_bounds(a), d, id(a)) for d, own in enumerate(args) for a in _arrays(own) if a.size)
    shared: set[int] = set()
    end = 0
    last: set[tuple[int, int]] = set()
    for start, past, device, number in spans:
        if start >= end:
            last = set()
        last.add((device, number))
        end = max(end, past)
        if len({d for d, _ in last}) > 1:
            shared |= {n for _, n in last}
    return [_copied(own, shared) for own in args] if shared else list(args)


def _arrays(value: Any) -> Iterator[Any]:
    if is_sequence(value):
        for part in value:
            yield from _arrays(part)
    elif is_ndarray(value):
        yield value


def _copied(value: Any, chosen: set[int]) -> Any:
    if is_sequence(value):
        return [_copied(part, chosen) for part in value]
    return value.copy() if id(value) in chosen else value


__all__ = ["DeviceExecutable"]
