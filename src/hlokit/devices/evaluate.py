"""`evaluate`: a module on the reference interpreter, on one device or on several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hlokit import memory
from hlokit.devices.mpmd import run_grid, run_rank
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import valid_part
from hlokit.interpreter.arguments import arguments_of, array_ids, result_of
from hlokit.interpreter.checks import device_counts, refuse
from hlokit.interpreter.evaluate import run_entry
from hlokit.interpreter.process import Process, StepHook
from hlokit.stack import with_stack
from hlokit.tracebacks import public

if TYPE_CHECKING:
    from hlokit.devices.mpi.world import World


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
    world: World | None = None,
) -> Any:
    """Runs `module`'s entry computation and returns its result.

    args            one per parameter: anything NumPy or DLPack can read, of the parameter's element type and sizes
                    (EXEC-3); Python numbers and lists take the parameter's type. Tuple parameters take tuples.
    infeed          values that infeed instructions read, in order: arrays, or tuples of them (INFEED-2). An iterator is
                    asked for each when it is needed
    outfeed         a list, or what else has `append`, to which outfeed instructions add what they write, at once
    seed            of rng (RNG-7) and of rng-get-and-update-state (BEY-57); same seed, same numbers
    return_outfeed  return (result, outfed values in order) instead of the result alone (OUTFEED-2)
    before, after   called around every instruction: before(instruction, operand values), after(instruction, (value,))
    memory_limit    bytes that one instruction's result may take; default: the machine's memory
    replicas, partitions   how many devices run the module; by default as many as its header says. With partitions=1
                    one device computes on the global values of a module with shardings (HSHARD-7)
    from_host       values that host transfers receive, by channel: {3: [value, ...]} (COMM-14)
    to_host         a dict to which host transfers add what they send, by channel: a list each
    world           of `mpi_world`: this process is one of the devices. Arguments and result are its own

    Results are NumPy arrays (of the run-time size, for dynamic dimensions), a tuple for a tuple root, None for a token.

    With several devices `args` are lists of arguments, one for each device, replica by replica and partition by
    partition; so is `infeed`, and so are `outfeed`, `from_host` and `to_host` where they are given. The result is a
    list of results, with `return_outfeed` a pair of lists. Each device has its own stream of random numbers.

    Raises ArgumentError for arguments that do not fit, EvaluationError for what only running can show, DeadlockError
    if devices wait for each other, or if it can be seen before that they will.

        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.parameter(0, hk.f32[3]) * 2.0), [1.0, 2.0, 3.0])
        array([2., 4., 6.], dtype=float32)
    """
    refuse(module, memory.most() if memory_limit is None else memory_limit, replicas, partitions)
    replicas, partitions = device_counts(module, replicas, partitions)
    if world is not None:
        return run_rank(
            world, [module] * (replicas * partitions), args, (replicas, partitions), infeed=infeed, outfeed=outfeed,
            seed=seed, before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
        )  # fmt: skip
    if replicas * partitions > 1:
        return run_grid(
            [module] * (replicas * partitions), args, (replicas, partitions), infeed=infeed, outfeed=outfeed, seed=seed,
            before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
        )  # fmt: skip
    values = arguments_of(module, args)
    process = Process(
        infeed=infeed, outfeed=outfeed, seed=seed, before=before, after=after, from_host=from_host, to_host=to_host
    )
    taken = array_ids(values)
    result = result_of(valid_part(run_entry(process, module, values)), taken)
    return (result, process.outfeed) if return_outfeed else result
