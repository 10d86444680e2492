"""The reference interpreter: evaluates a module by each op's `reference`. It is the executable specification."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import le
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hlokit import memory
from hlokit.errors import ArgumentError, EvaluationError, HlokitError, OutOfMemoryError, UnsupportedError
from hlokit.hlo.module import check_is_module
from hlokit.hlo.op import Op
from hlokit.hlo.values import TOKEN_VALUE, Array, Dynamic, is_ndarray, is_sequence, valid_part, whole_buffer
from hlokit.interpreter.order import evaluation_order
from hlokit.interpreter.process import Process, StepHook
from hlokit.ops.control_flow import Domain
from hlokit.ops.structure import Parameter
from hlokit.stack import interruptible, with_stack
from hlokit.tracebacks import public
from hlokit.types import dtype as dtypes
from hlokit.types.literal import as_array
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.hlo.module import HloModule
    from hlokit.interpreter.mpi.world import World


_MOST_DEVICES = 1 << 16


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
    refuse(module, machine_memory() if memory_limit is None else memory_limit, replicas, partitions)
    replicas, partitions = device_counts(module, replicas, partitions)
    if world is not None:
        from hlokit.interpreter.mpmd import run_rank

        return run_rank(
            world, [module] * (replicas * partitions), args, (replicas, partitions), infeed=infeed, outfeed=outfeed,
            seed=seed, before=before, after=after, return_outfeed=return_outfeed, from_host=from_host, to_host=to_host,
        )  # fmt: skip
    if replicas * partitions > 1:
        from hlokit.interpreter.mpmd import run_grid

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


def device_counts(module: HloModule, replicas: int | None, partitions: int | None) -> tuple[int, int]:
    """How many replicas and partitions there are: as given, else as the module's header says. ArgumentError for < 1,
    for more devices than 65536, and for what is no module."""
    check_is_module(module)
    counts = (
        module.replica_count if replicas is None else replicas,
        module.num_partitions if partitions is None else partitions,
    )
    if min(counts) < 1:
        raise ArgumentError(f"replicas={counts[0]}, partitions={counts[1]}: at least one of each [EXEC-2]")
    if math.prod(counts) > _MOST_DEVICES:
        raise ArgumentError(f"replicas={counts[0]}, partitions={counts[1]}: more than {_MOST_DEVICES} devices [EXEC-2]")
    return counts


def refuse(
    module: HloModule, memory_limit: int, replicas: int | None = None, partitions: int | None = None, what: str = ""
) -> None:
    """Raises for a module that takes a partitioner or whose shapes cannot be had, before anything is allocated.

    `what`: the name of a caller that runs one device only, for the UnsupportedError.
    """
    replicas, partitions = device_counts(module, replicas, partitions)
    if partitions > 1:
        _refuse_to_partition(module)
    if what and replicas * partitions != 1:
        raise UnsupportedError(f"{what}: {replicas * partitions} devices; it runs one device for now")
    _refuse_what_cannot_run(module, memory_limit)


def run_entry(process: Process, module: HloModule, arguments: Sequence[Any]) -> Any:
    """The value of the module on `arguments`, as the entry's root declares it."""
    return _as_declared(module.entry.root.shape, run(process, module.entry, arguments))


def run(process: Process, computation: Computation, arguments: Sequence[Any]) -> Any:
    """The value of `computation` on `arguments`, one per parameter."""
    return process.descend(computation, lambda: _run(process, computation, arguments))


@np.errstate(all="ignore")
def _run(process: Process, computation: Computation, arguments: Sequence[Any]) -> Any:
    steps: list[_Step] | None = process.plans.get(computation)
    if steps is None:
        steps = process.plans[computation] = _plan(process, computation)
    values: dict[int, Any] = {}
    for step in steps:
        instruction = step.instruction
        if step.parameter is not None:
            values[instruction.id] = _as_declared(instruction.shape, arguments[step.parameter])
        else:
            values[instruction.id] = _evaluated(process, step, [values[i] for i in step.operands])
        for dead in step.dead:
            del values[dead]
    return values[computation.root.id]


class _Step(NamedTuple):
    """One instruction of a computation, with what running it again and again would find out each time.

    `operands`: ids of the values it takes; `keywords`: what its reference asks for by name; `dead`: ids of the values
    that nothing after it needs; `parameter`: its number, for a parameter.
    """

    instruction: Instruction
    operands: tuple[int, ...]
    keywords: dict[str, Any]
    dead: tuple[int, ...]
    parameter: int | None


def _plan(process: Process, computation: Computation) -> list[_Step]:
    order = evaluation_order(computation)
    last_use = _last_uses(computation, order)
    return [_planned(process, instruction, last_use.get(instruction.id, ())) for instruction in order]


def _planned(process: Process, instruction: Instruction, dead: Sequence[int] = ()) -> _Step:
    op = instruction.op
    operands = tuple(o.id for o in instruction.operands)
    number = op.number if isinstance(op, Parameter) else None
    return _Step(instruction, operands, _keywords(process, instruction), tuple(dead), number)


def run_instruction(process: Process, instruction: Instruction, operands: Sequence[Any]) -> Any:
    """The value of one instruction on the values of its operands; for tools that step through a program."""
    with np.errstate(all="ignore"):
        return _evaluated(process, _planned(process, instruction), list(operands))


def _as_declared(shape: Shape, value: Any) -> Any:
    """An argument as its parameter declares it: whole in the dimensions that are static there (DYN-16)."""
    if shape.is_tuple:
        return tuple(_as_declared(s, v) for s, v in zip(shape.elements, value, strict=True))
    if not shape.is_array or (is_ndarray(value) and value.shape == shape.dimensions):
        return value
    sizes = value.sizes if isinstance(value, Dynamic) else value.shape
    wanted = tuple(n if f else d for n, d, f in zip(sizes, shape.dimensions, shape.dynamic, strict=True))
    return value if wanted == sizes else Dynamic(whole_buffer(value, shape.dimensions), wanted)


def _evaluated(process: Process, step: _Step, operands: list[Any]) -> Any:
    """Evaluates one instruction, between the hooks; its result is brought to the declared type and checked."""
    process.instruction = instruction = step.instruction
    op = instruction.op
    if not op.whole_values:
        operands = [valid_part(v) for v in operands]
        if op.elementwise and instruction.shape.is_dynamic:
            operands = _trimmed(instruction, operands)
    if process.before is not None:
        process.before(instruction, tuple(operands))
    try:
        value = NotImplemented
        if process.apart is not None and op.form == "communicate":
            value = process.apart.collective(process, instruction, operands)
        if value is NotImplemented:
            value = _reference(instruction, operands, step.keywords)
    except EvaluationError as error:
        if not error.located:
            error.args = (f"{instruction.name}: {error}", *error.args[1:])
            error.located = True
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{instruction.name}: {error or 'out of memory'}") from None
    value = _conform(instruction, instruction.shape, value)
    if process.after is not None:
        process.after(instruction, (value,))
    return value


_LONG = 10_000_000
"""Elements, of an operand or the result, from which on an instruction may take a tenth of a second."""


def _reference(instruction: Instruction, operands: list[Any], keywords: dict[str, Any]) -> Any:
    """What the op's reference gives. One of many elements does not keep signals waiting; but for those that run
    computations, communicate or call what is not hlokit's, for which it matters on which thread they are."""
    op, shape = instruction.op, instruction.shape
    size = max((v.size for v in operands if is_ndarray(v)), default=0)
    if max(size, shape.size if shape.is_array else 0) < _LONG or op.form in ("control", "communicate"):
        return op.reference(*operands, **keywords)
    return interruptible(lambda: op.reference(*operands, **keywords))


def _trimmed(instruction: Instruction, values: list[Any]) -> list[Any]:
    """Elementwise operands of one bound but perhaps several run-time sizes, each cut to the least (DYN-BCAST-4).

    Of two operands that are dynamic in a dimension, one of size 1 is repeated instead.
    """
    arrays = [v for v in values if is_ndarray(v) and v.ndim]
    if not arrays or all(a.shape == arrays[0].shape for a in arrays):
        return values
    sizes = [min(found) for found in zip(*(a.shape for a in arrays), strict=True)]
    if len(values) == len(arrays) == 2:
        both = zip(*(operand.shape.dynamic for operand in instruction.operands), strict=True)
        stretched = [all(flags) and size == 1 for flags, size in zip(both, sizes, strict=True)]
        wider = map(max, arrays[0].shape, arrays[1].shape)
        sizes = [n if is_one else size for n, size, is_one in zip(wider, sizes, stretched, strict=True)]
    parts = (v[tuple(map(slice, sizes))] if is_ndarray(v) and v.ndim else v for v in values)
    return [np.broadcast_to(v, sizes) if is_ndarray(v) and v.ndim else v for v in parts]


def _keywords(process: Process, instruction: Instruction) -> dict[str, Any]:
    """What the reference asks for by name: called computations as functions, the process, the shape."""
    wants = _wants(type(instruction.op))
    keywords: dict[str, Any] = {}
    if instruction.called or instruction.op.list_roles:
        for role, called in instruction.called_by_role():
            keywords[role] = [process.callee(c) for c in called] if is_sequence(called) else process.callee(called)
    if "process" in wants:
        keywords["process"] = process
    if "shape" in wants:
        keywords["shape"] = instruction.shape
    if "operand_shapes" in wants:
        keywords["operand_shapes"] = [operand.shape for operand in instruction.operands]
    if "backend_config" in wants:
        keywords["backend_config"] = instruction.extra.backend_config if instruction.extra is not None else ""
    return keywords


def _wants(op_class: type[Op]) -> frozenset[str]:
    """The names of the reference's parameters; found once per class."""
    found = _WANTS.get(op_class)
    if found is None:
        code = op_class.reference.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        found = _WANTS[op_class] = frozenset(names)
    return found


_WANTS: dict[type[Op], frozenset[str]] = {}


def _conform(instruction: Instruction, shape: Shape, value: Any) -> Any:
    """`value` in the one form that a value of `shape` has; a reference that disagrees with the shape rule is a bug."""
    if shape.is_array:
        if isinstance(value, Dynamic):
            return value
        if not is_ndarray(value):
            value = np.asarray(value)
        if value.shape != shape.dimensions and not _fits(value.shape, shape):
            if _is_cut(value.shape, shape, instruction):
                return _as_declared(shape, value)
            raise AssertionError(f"{instruction.name}: {instruction.opcode} gave {value.shape} for {shape}")
        if value.dtype != shape.dtype.numpy:
            raise AssertionError(f"{instruction.name}: {instruction.opcode} gave {value.dtype} for {shape}")
        return value
    if shape.is_tuple:
        return tuple(_conform(instruction, s, v) for s, v in zip(shape.elements, value, strict=True))
    return value


def _is_cut(sizes: tuple[int, ...], shape: Shape, instruction: Instruction) -> bool:
    """A dynamic operand, smaller than its bound, left fewer elements than a static dimension has: zeros lie beyond."""
    is_smaller = len(sizes) == shape.rank and all(map(le, sizes, shape.dimensions))
    return is_smaller and any(operand.shape.is_dynamic for operand in instruction.operands)


def _fits(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Run-time sizes are the dimensions, or at most the bounds of the dynamic ones."""
    if len(sizes) != shape.rank:
        return False
    return all(
        n == d or (f and (n <= d or d < 0)) for n, d, f in zip(sizes, shape.dimensions, shape.dynamic, strict=True)
    )


def _last_uses(computation: Computation, order: Sequence[Instruction]) -> dict[int, list[int]]:
    """For each instruction, those whose value nothing after it needs."""
    last: dict[int, int] = {}
    for instruction in order:
        last[instruction.id] = instruction.id
        for operand in instruction.operands:
            last[operand.id] = instruction.id
    last.pop(computation.root.id, None)
    uses: dict[int, list[int]] = {}
    for value, user in last.items():
        uses.setdefault(user, []).append(value)
    return uses


_MOST_DIMENSIONS = 64
"""NumPy's limit."""


def machine_memory() -> int:
    """Bytes of memory that the process may have: the machine's, less by `ulimit -v` and control groups."""
    return memory.most()


def _refuse_what_cannot_run(module: HloModule, limit: int) -> None:
    """Before anything is allocated: shapes too large for memory, unbounded ones."""
    for computation in module.all_computations:
        for instruction in computation.instructions:
            if instruction.shape.is_unbounded:
                raise UnsupportedError(
                    f"{instruction.name}: {instruction.shape} has an unbounded dimension: it cannot be run"
                )
            if not _has_array(instruction.shape):
                raise EvaluationError(f"{instruction.name}: {instruction.shape} is too large for an array")
            if instruction.shape.nbytes > limit:
                raise OutOfMemoryError(
                    f"{instruction.name}: {instruction.shape} takes {instruction.shape.nbytes} bytes, "
                    f"more than the limit of {limit}"
                )


def _has_array(shape: Shape) -> bool:
    """Whether NumPy can hold it: without elements too, the other sizes must multiply to what a pointer can span."""
    return all(
        leaf.rank <= _MOST_DIMENSIONS
        and (leaf.nbytes or not leaf.is_array or math.prod(filter(None, leaf.dimensions)) * leaf.dtype.bits < 2**63)
        for leaf in shape.leaves()
    )


def _refuse_to_partition(module: HloModule) -> None:
    """Values that several partitions share out take a partitioner (HSHARD-7), unless the module runs on whole ones."""
    if module.frontend_attributes.get("hlokit.values") == "global":
        return
    for computation in module.all_computations:
        for instruction in computation.instructions:
            sharding = instruction.extra.sharding if instruction.extra is not None else None
            found = [sharding] if sharding is not None else []
            if isinstance(instruction.op, Domain):
                found += instruction.op.domain[1:]
            for s in found:
                if s.needs_partitioner:
                    raise UnsupportedError(f"{instruction.name}: sharding={s}: hlokit does not partition [HSHARD-7]")


def arguments_of(module: HloModule, args: Sequence[Any]) -> list[Any]:
    """The values of the entry's parameters. Raises ArgumentError (EXEC-3)."""
    parameters = module.entry.parameters
    if len(args) != len(parameters):
        raise ArgumentError(f"{module.name} takes {len(parameters)} arguments, got {len(args)} [EXEC-3]")
    return [
        argument(f"argument {i} ({p.name})", p.shape, a) for i, (p, a) in enumerate(zip(parameters, args, strict=True))
    ]


def argument(name: str, shape: Shape, value: Any) -> Any:
    """`value` as a value of `shape`. Raises ArgumentError (EXEC-3) if it is not one."""
    if shape.is_tuple:
        if not is_sequence(value) or len(value) != len(shape.elements):
            raise ArgumentError(f"{name}: expected a tuple for {shape} [EXEC-3]")
        return tuple(argument(f"{name}[{i}]", s, v) for i, (s, v) in enumerate(zip(shape.elements, value, strict=True)))
    if not shape.is_array:
        return TOKEN_VALUE
    if type(value) is np.ndarray and value.dtype is shape.dtype.numpy and value.shape == shape.dimensions:
        return _forwards(value)  # what follows would say so, 50 times slower
    weak = isinstance(value, (bool, int, float, complex, list, tuple))
    try:
        array = as_array(value, shape.dtype if weak else None)
    except (HlokitError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{name}: cannot be read as {shape}: {error} [EXEC-3]") from error
    found = Shape.array(dtypes.dtype(array.dtype), array.shape)
    if found.dtype is not shape.dtype or not (array.shape == shape.dimensions or _fits(array.shape, shape)):
        raise ArgumentError(f"{name}: found {found}, expected {shape} [EXEC-3]")
    return _forwards(array)


def _forwards(array: Array) -> Array:
    """A copy of what lies backwards in memory: along negative strides NumPy's functions round otherwise."""
    return array if min(array.strides, default=0) >= 0 else array.copy()


def result_of(value: Any, taken: set[int]) -> Any:
    """What the caller gets: arrays of its own, none of them a view, an argument, or given twice; None for tokens."""
    if is_sequence(value):
        return tuple(result_of(part, taken) for part in value)
    if not is_ndarray(value):
        return None
    flags: Any = value.flags
    if id(value) in taken or not (flags.owndata and flags.writeable and flags.c_contiguous):
        return np.array(value, order="C")
    taken.add(id(value))
    return value


def array_ids(value: Any) -> set[int]:
    """The identities of all arrays in a value."""
    return {i for part in value for i in array_ids(part)} if is_sequence(value) else {id(value)}
