"""Runs on several devices: the same module on all, or a program for each (MPMD)."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit import memory
from hlokit.devices.grid import Grid, Halt
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import counted
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import is_ndarray, is_sequence, valid_part
from hlokit.interpreter.arguments import arguments_of, array_ids, result_of
from hlokit.interpreter.checks import grid_text, refuse
from hlokit.interpreter.evaluate import run_entry, within_memory
from hlokit.interpreter.process import Process, StepHook
from hlokit.interpreter.routes import Place, Route, routes_of
from hlokit.stack import with_stack
from hlokit.tracebacks import public

if TYPE_CHECKING:
    from hlokit.devices.processes.world import Placement, World


@public
@with_stack
def evaluate_mpmd(
    programs: Sequence[tuple[HloModule, Sequence[Any]]],
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    infeed: Sequence[Iterable[Any]] = (),
    outfeed: Any = None,
    seed: int = 0,
    return_outfeed: bool = False,
    before: StepHook | None = None,
    after: StepHook | None = None,
    memory_limit: int | None = None,
    from_host: Any = None,
    to_host: Any = None,
    world: World | None = None,
) -> Any:
    """Runs programs that communicate, one on each device: what one sends on a channel another receives.

    Collectives of different modules meet where they have a channel_id and are of one kind (GRP-6). In a `world` every
    rank names all programs, but arguments only for its own. The other arguments are those of `evaluate`.

    Parameters
    ----------
    programs : sequence of (HloModule, sequence)
        A module and its arguments for each device, replica by replica and partition by partition.
    replicas, partitions : int, optional
        The grid that the devices form: by default a replica each.
    infeed : sequence of iterables, optional
        For each device the values that infeed instructions read.
    outfeed : list of lists, optional
        For each device what outfeed instructions append their values to.
    seed : int, optional
        The seed of rng instructions; each device has its own stream.
    return_outfeed : bool, optional
        Whether to return the pair of results and values of outfeed instructions.
    before, after : callable, optional
        Called around every instruction: before(instruction, operand values), after(instruction, (value,)).
    memory_limit : int, optional
        Bytes that one instruction's result may take; by default the machine's memory.
    from_host, to_host : list of dict, optional
        For each device the values that host transfers receive, and what they append to, by channel.
    world : World, optional
        Of `process_world`: this process is one of the devices.

    Returns
    -------
    list
        The result of each device.

    Raises
    ------
    ArgumentError
        The arguments do not fit the parameters, or the programs the grid.
    EvaluationError
        An instruction cannot be run.
    DeadlockError
        Devices wait for each other forever.

    Examples
    --------
    >>> b = hk.Builder("sender")
    >>> token = hk.send_with_token(b.parameter(0, hk.s32[2]), hk.create_token(b), hk.ChannelHandle(1))
    >>> sender = b.build(b.constant(0))
    >>> b = hk.Builder("receiver")
    >>> data, token = hk.recv_with_token(hk.create_token(b), hk.s32[2], hk.ChannelHandle(1))
    >>> hk.evaluate_mpmd([(sender, [[1, 2]]), (b.build(data), [])])
    [array(0, dtype=int32), array([1, 2], dtype=int32)]
    """
    partitions = partitions or (len(programs) // replicas if replicas else 1)
    replicas = replicas or len(programs) // partitions
    if replicas * partitions != len(programs) or not programs:
        raise ArgumentError(f"{counted(len(programs), 'program')} for {grid_text(replicas, partitions)} [EXEC-2]")
    modules = [module for module, _ in programs]
    for module in dict.fromkeys(modules):
        refuse(module, memory.most() if memory_limit is None else memory_limit, replicas, partitions)
    if world is not None:
        placement, is_one = placed_on(world, (replicas, partitions), modules[0].name)
        own = [programs[device][1] for device in placement.own]
        return run_rank(
            world, modules, own[0] if is_one else own, (replicas, partitions), infeed=infeed,
            outfeed=outfeed, seed=seed, before=before, after=after, return_outfeed=return_outfeed,
            from_host=from_host, to_host=to_host,
        )  # fmt: skip
    return within_memory(
        modules,
        lambda: run_grid(
            modules, [args for _, args in programs], (replicas, partitions), infeed=infeed, outfeed=outfeed, seed=seed,
            before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
        ),
    )  # fmt: skip


_MOST_THREADS = 4096


def run_grid(
    modules: Sequence[HloModule],
    args: Sequence[Sequence[Any]],
    counts: tuple[int, int],
    *,
    infeed: Sequence[Iterable[Any]] | Any = (),
    outfeed: Any = None,
    seed: int = 0,
    before: StepHook | None = None,
    after: StepHook | None = None,
    return_outfeed: bool = False,
    from_host: Any = None,
    to_host: Any = None,
    machine: Callable[[Process, Sequence[Any]], Any] | None = None,
    parallel: int = 1,
    halt: Halt | None = None,
    routes: Sequence[dict[int, Route]] | None = None,
) -> Any:
    """The results of modules[i] on args[i], device by device; (results, outfed values) with `return_outfeed`.

    machine     what runs the program on a device, on values as the parameters have them, and gives arrays that are the
                caller's own; by default the interpreter
    parallel    how many devices may run at the same time
    halt        stops what `machine` does on other devices when one has failed
    routes      `routes_of` the modules, for who knows them already
    """
    places = Place.grid(*counts)
    if len(places) > _MOST_THREADS:
        raise ArgumentError(f"{modules[0].name}: {len(places)} devices, at most {_MOST_THREADS} in a process [EXEC-2]")
    _check_lists(
        modules[0].name, places, args=args, infeed=infeed, outfeed=outfeed, from_host=from_host, to_host=to_host
    )
    values = [_arguments(place, module, a) for place, module, a in zip(places, modules, args, strict=True)]
    if machine is None:
        from hlokit.analysis.rendezvous import refuse_deadlock

        refuse_deadlock(modules, counts)
    grid = Grid([str(place) for place in places], parallel, halt)
    routes = routes or routes_of(modules, places)
    processes = [
        Process(
            infeed=infeed[d] if infeed else (),
            outfeed=outfeed[d] if outfeed is not None else None,
            seed=seed,
            before=before,
            after=after,
            place=place,
            transport=grid,
            routes=routes[d],
            from_host=from_host[d] if from_host is not None else None,
            to_host=to_host[d] if to_host is not None else None,
        )
        for d, place in enumerate(places)
    ]

    def body(d: int) -> Callable[[], Any]:
        if machine is None:
            return partial(run_entry, processes[d], modules[d], values[d])
        return partial(machine, processes[d], values[d])

    given = grid.run([body(d) for d in range(len(places))])
    taken = array_ids(values)
    if machine is None:
        given = [result_of(valid_part(result), taken) for result in given]
    if not return_outfeed:
        return given
    return given, [process.outfeed for process in processes]


def run_rank(
    world: World | Placement,
    modules: Sequence[HloModule],
    args: Sequence[Any],
    counts: tuple[int, int],
    *,
    infeed: Any = (),
    outfeed: Any = None,
    seed: int = 0,
    before: StepHook | None = None,
    after: StepHook | None = None,
    return_outfeed: bool = False,
    from_host: Any = None,
    to_host: Any = None,
    machine: Callable[[Process, Sequence[Any]], Any] | None = None,
    routes: Sequence[dict[int, Route]] | None = None,
    communicating: Sequence[Instruction] | None = None,
    name: str | None = None,
    order: str | None = None,
    halt: Halt | None = None,
) -> Any:
    """As `run_grid`, for the devices of this process; all but `modules` is these devices' alone.

    In a world each rank has as many devices, one after the other. If it has one, what is given and returned is this
    device's, else there are lists; so there are for a Placement.

    communicating   what `machine` may evaluate of instructions that communicate; by default all of the modules
    name            of the program; by default `fingerprint` gives it
    order           as World.run has it; by default `order_of` gives it
    """
    places = Place.grid(*counts)
    placement, is_one = placed_on(world, counts, modules[0].name)
    own = placement.own
    if machine is None:
        from hlokit.analysis.rendezvous import refuse_deadlock

        refuse_deadlock(modules, counts)
    all_routes = routes or routes_of(modules, places)
    if communicating is None:
        communicating = [i for m in dict.fromkeys(modules) for c in m.all_computations for i in c.instructions]
    given = {"infeed": infeed, "outfeed": outfeed, "from_host": from_host, "to_host": to_host}
    if not is_one:
        _check_lists(modules[0].name, own, args=args, **given)

    def body(number: int, device: int) -> Any:
        mine = given if is_one else {what: values[number] if values else values for what, values in given.items()}
        values = _arguments(places[device], modules[device], args if is_one else args[number])
        process = Process(
            seed=seed, before=before, after=after, place=places[device], transport=placement.world,
            routes=all_routes[device], **mine,
        )  # fmt: skip
        taken = array_ids(values)
        if machine is not None:
            result = machine(process, values)
        else:
            result = result_of(valid_part(run_entry(process, modules[device], values)), taken)
        return result, process.outfeed

    results = placement.world.run(
        [str(p) for p in places], placement.homes, name or fingerprint(modules, counts), communicating,
        {device: partial(body, number, device) for number, device in enumerate(own)}, halt, modules[0].name,
        order_of(modules, counts, communicating, _arithmetic()) if order is None else order,
    )  # fmt: skip
    if is_one:
        return results[0] if return_outfeed else results[0][0]
    made, outfed = [result for result, _ in results], [outfed for _, outfed in results]
    return (made, outfed) if return_outfeed else made


def placed_on(world: World | Placement, counts: tuple[int, int], name: str) -> tuple[Placement, bool]:
    """The rank of each device, and whether each rank has one, by itself and not in a list.

    ArgumentError: the ranks cannot have equally many.
    """
    from hlokit.devices.processes.world import Placement

    if isinstance(world, Placement):
        return world, False
    count = counts[0] * counts[1]
    each, rest = divmod(count, world.size)
    if rest or not each:
        raise ArgumentError(f"{name}: {grid_text(*counts)} on {counted(world.size, 'process', 'processes')} [EXEC-2]")
    return Placement(world, [device // each for device in range(count)]), each == 1


def fingerprint(modules: Sequence[HloModule], counts: tuple[int, int]) -> str:
    """Differs for other programs and for other grids."""
    texts = {module: str(module) for module in dict.fromkeys(modules)}
    return sha256(repr((counts, [texts[module] for module in modules])).encode()).hexdigest()


def order_of(
    modules: Sequence[HloModule], counts: tuple[int, int], communicating: Sequence[Instruction], processor: str
) -> str:
    """A name of the order in which all devices come to these instructions; empty where they may come in different ones.

    processor   names what the bits of floats depend on: others may compute another condition of a loop
    """
    from hlokit.analysis.rendezvous import come_alike

    if len(set(modules)) > 1 or not come_alike(modules[0], *counts):
        return ""
    met = [f"{i.name} {i.opcode} {i.shape}" for i in communicating if i.op.form == "communicate"]
    return sha256(repr((processor, met)).encode()).hexdigest()


@cache
def _arithmetic() -> str:
    """A name for processors on which NumPy gives the same bits."""
    found: Any = np.show_config("dicts")
    return f"NumPy {np.__version__} {platform.machine()} {found['SIMD Extensions']}"


def _check_lists(name: str, places: Sequence[object], **given: Any) -> None:
    """Each is a list with something for every device."""
    for what, values in given.items():
        if values is None or (what == "infeed" and is_sequence(values) and not values):
            continue
        if not is_sequence(values) or len(values) != len(places):
            found = len(values) if is_sequence(values) else type(values).__name__
            raise ArgumentError(f"{name}: {what}: {found}, expected one for each of {len(places)} devices [EXEC-3]")


def _arguments(place: Place, module: HloModule, args: Any) -> list[Any]:
    if not is_sequence(args):
        found = "an array" if is_ndarray(args) or isinstance(args, np.generic) else type(args).__name__
        raise ArgumentError(f"{place}: expected a list of {module.name}'s arguments, got {found} [EXEC-3]")
    try:
        return arguments_of(module, args)
    except ArgumentError as error:
        raise ArgumentError(f"{place}: {error}") from None
