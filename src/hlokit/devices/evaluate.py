"""`evaluate`: a module on the reference interpreter, on one device or on several."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any

from hlokit import memory
from hlokit.devices.mpmd import run_grid, run_rank
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import valid_part
from hlokit.interpreter.arguments import arguments_of, array_ids, result_of
from hlokit.interpreter.checks import device_counts, refuse
from hlokit.interpreter.evaluate import run_entry, within_memory
from hlokit.interpreter.process import Process, StepHook
from hlokit.stack import with_stack
from hlokit.tracebacks import public

if TYPE_CHECKING:
    from hlokit.devices.processes.world import Placement, World


@public
@with_stack
@memory.named
def evaluate(
    module: HloModule,
    *args: Any,
    infeed: Iterable[Any] = (),
    outfeed: Any = None,
    seed: int = 0,
    return_outfeed: bool = False,
    before: StepHook | None = None,
    after: StepHook | None = None,
    memory_limit: int | None = None,
    replicas: int | None = None,
    partitions: int | None = None,
    from_host: Any = None,
    to_host: Any = None,
    world: World | Placement | None = None,
) -> Any:
    """Runs the entry computation of a module in the interpreter and returns its result.

    Parameters
    ----------
    module : HloModule
        The program.
    args : Any
        One argument for each parameter: what NumPy or DLPack can read, of the parameter's element type and sizes
        (EXEC-3). Python numbers and lists take the parameter's type; tuple parameters take tuples. For several devices
        one list of arguments for each, replica by replica and partition by partition; then `infeed`, `outfeed`,
        `from_host` and `to_host` are lists too.
    infeed : iterable, optional
        The values that infeed instructions read, in order: arrays, or tuples of them (INFEED-2). An iterator is asked
        for each when it is needed.
    outfeed : list, optional
        What outfeed instructions append their values to.
    seed : int, optional
        The seed of rng (RNG-7) and rng-get-and-update-state (BEY-57).
    return_outfeed : bool, optional
        Whether to return (result, values of outfeed instructions).
    before, after : callable, optional
        Called around every instruction: before(instruction, operand values), after(instruction, (value,)).
    memory_limit : int, optional
        Bytes that one instruction's result may take; by default the machine's memory.
    replicas, partitions : int, optional
        The numbers of replicas and partitions that run the module; by default as its header says. With partitions=1 one
        device computes on the global values of a module with shardings (HSHARD-7).
    from_host : dict, optional
        The values that host transfers receive, by channel: {3: [value, ...]} (COMM-14).
    to_host : dict, optional
        What host transfers append their values to, by channel.
    world : World, optional
        Of `process_world`: this process runs one device and passes that device's arguments; or, if each process runs
        several, lists with one item per device.

    Returns
    -------
    numpy.ndarray, tuple or None
        The result: arrays of run-time sizes, a tuple for a tuple, None for a token. For several devices a list of
        results.

    Raises
    ------
    VerifyError
        The module, read with `verify=False`, breaks rules.
    ArgumentError
        The arguments do not fit the parameters.
    EvaluationError
        An instruction cannot be run: an empty infeed, a function that fails.
    UnsupportedError
        Nothing implements a custom call or an instruction.
    OutOfMemoryError
        A value takes more memory than `memory_limit`.
    DeadlockError
        Devices wait for each other forever, or it can be seen that they will.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(b.parameter(0, hk.f32[3]) * 2.0), [1.0, 2.0, 3.0])
    array([2., 4., 6.], dtype=float32)
    """
    refuse(module, memory.most() if memory_limit is None else memory_limit, replicas, partitions)
    counts = device_counts(module, replicas, partitions)

    def run() -> Any:
        if world is not None:
            return run_rank(
                world, [module] * prod(counts), args, counts, infeed=infeed, outfeed=outfeed, seed=seed,
                before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
            )  # fmt: skip
        if prod(counts) > 1:
            return run_grid(
                [module] * prod(counts), args, counts, infeed=infeed, outfeed=outfeed, seed=seed,
                before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
            )  # fmt: skip
        values = arguments_of(module, args)
        process = Process(
            infeed=infeed, outfeed=outfeed, seed=seed, before=before, after=after, from_host=from_host, to_host=to_host
        )
        taken = array_ids(values)
        result = result_of(valid_part(run_entry(process, module, values)), taken)
        return (result, process.outfeed) if return_outfeed else result

    return within_memory([module], run)
