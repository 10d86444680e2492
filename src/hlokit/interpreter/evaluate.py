"""Evaluation of a computation by each op's `reference`. It is the executable specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import le
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from hlokit.errors import EvaluationError, OutOfMemoryError
from hlokit.hlo.op import Op
from hlokit.hlo.values import Dynamic, fits, is_ndarray, is_sequence, valid_part, whole_buffer
from hlokit.interpreter.order import evaluation_order
from hlokit.memory import with_arrays_checked
from hlokit.ops.structure import Parameter
from hlokit.stack import interruptible
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.hlo.module import HloModule
    from hlokit.interpreter.process import Process

_T = TypeVar("_T")


def run_entry(process: Process, module: HloModule, arguments: Sequence[Any]) -> Any:
    """The value of the module on `arguments`, as the entry's root declares it."""
    value = within_memory([module], lambda: run(process, module.entry, arguments))
    return as_declared(module.entry.root.shape, value)


def within_memory(modules: Sequence[HloModule], function: Callable[[], _T]) -> _T:
    """The result of `function`, which runs the modules. What a control group has no room for is a MemoryError."""

    def size() -> int:
        return sum(i.shape.nbytes for m in modules for c in m.all_computations for i in c.instructions)

    return with_arrays_checked(size, function)


def run(process: Process, computation: Computation, arguments: Sequence[Any]) -> Any:
    """The value of `computation` on `arguments`, one per parameter."""
    return process.descend(computation, lambda: _run(process, computation, arguments))


@np.errstate(all="ignore")
def _run(process: Process, computation: Computation, arguments: Sequence[Any]) -> Any:
    steps: list[Step] | None = process.plans.get(computation)
    if steps is None:
        steps = process.plans[computation] = plan(process, computation)
    values: dict[int, Any] = {}
    for step in steps:
        instruction = step.instruction
        if step.parameter is not None:
            values[instruction.id] = as_declared(instruction.shape, arguments[step.parameter])
        else:
            values[instruction.id] = evaluated(process, step, [values[i] for i in step.operands])
        for dead in step.dead:
            del values[dead]
    return values[computation.root.id]


class Step(NamedTuple):
    """One instruction of a computation, with what running it again and again would find out each time.

    `operands`: ids of the values it takes; `keywords`: what its reference asks for by name; `dead`: ids of the values
    that nothing after it needs; `parameter`: its number, for a parameter.
    """

    instruction: Instruction
    operands: tuple[int, ...]
    keywords: dict[str, Any]
    dead: tuple[int, ...]
    parameter: int | None


def plan(process: Process, computation: Computation) -> list[Step]:
    order = evaluation_order(computation)
    last_use = _last_uses(computation, order)
    return [_planned(process, instruction, last_use.get(instruction.id, ())) for instruction in order]


def _planned(process: Process, instruction: Instruction, dead: Sequence[int] = ()) -> Step:
    op = instruction.op
    operands = tuple(o.id for o in instruction.operands)
    number = op.number if isinstance(op, Parameter) else None
    return Step(instruction, operands, keywords_of(process, instruction), tuple(dead), number)


def run_instruction(
    process: Process, instruction: Instruction, operands: Sequence[Any], into: Sequence[Any] | None = None
) -> Any:
    """The value of one instruction on the values of its operands; for tools that step through a program. `into`: arrays
    that a transport may put its arrays into, as Apart has them."""
    with np.errstate(all="ignore"):
        return evaluated(process, _planned(process, instruction), list(operands), into)


def as_declared(shape: Shape, value: Any) -> Any:
    """An argument as its parameter declares it: whole in the dimensions that are static there (DYN-16)."""
    if shape.is_tuple:
        return tuple(as_declared(s, v) for s, v in zip(shape.elements, value, strict=True))
    if not shape.is_array or (is_ndarray(value) and value.shape == shape.dimensions):
        return value
    sizes = value.sizes if isinstance(value, Dynamic) else value.shape
    wanted = tuple(n if f else d for n, d, f in zip(sizes, shape.dimensions, shape.dynamic, strict=True))
    return value if wanted == sizes else Dynamic(whole_buffer(value, shape.dimensions), wanted)


def evaluated(process: Process, step: Step, operands: list[Any], into: Sequence[Any] | None = None) -> Any:
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
            value = process.apart.collective(process, instruction, operands, into)
        if value is NotImplemented:
            value = _reference(instruction, operands, step.keywords)
    except EvaluationError as error:
        if not error.located:
            error.args = (f"{instruction.name}: {error}", *error.args[1:])
            error.located = True
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{instruction.name}: {error or 'out of memory'}") from None
    value = conform(instruction, instruction.shape, value)
    if process.after is not None:
        process.after(instruction, (value,))
    return value


_LONG = 10_000_000
"""Elements, of an operand or the result, from which on an instruction may take a tenth of a second."""


def _reference(instruction: Instruction, operands: list[Any], keywords: dict[str, Any]) -> Any:
    """The result of the op's reference. One of many elements does not keep signals waiting; but for those that run
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


def keywords_of(process: Process, instruction: Instruction) -> dict[str, Any]:
    """The reference's arguments by name: called computations as functions, the process, the shape."""
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


def conform(instruction: Instruction, shape: Shape, value: Any) -> Any:
    """`value` in the one form that a value of `shape` has; a reference that disagrees with the shape rule is a bug."""
    if shape.is_array:
        if isinstance(value, Dynamic):
            return value
        if not is_ndarray(value):
            value = np.asarray(value)
        if value.shape != shape.dimensions and not fits(value.shape, shape):
            if _is_cut(value.shape, shape, instruction):
                return as_declared(shape, value)
            raise AssertionError(f"{instruction.name}: its reference gave {value.shape} for {shape}")
        if value.dtype != shape.dtype.numpy:
            raise AssertionError(f"{instruction.name}: its reference gave {value.dtype} for {shape}")
        return value
    if shape.is_tuple:
        return tuple(conform(instruction, s, v) for s, v in zip(shape.elements, value, strict=True))
    return value


def _is_cut(sizes: tuple[int, ...], shape: Shape, instruction: Instruction) -> bool:
    """A dynamic operand, smaller than its bound, left fewer elements than a static dimension has: zeros lie beyond."""
    is_smaller = len(sizes) == shape.rank and all(map(le, sizes, shape.dimensions))
    return is_smaller and any(operand.shape.is_dynamic for operand in instruction.operands)


def _last_uses(computation: Computation, order: Sequence[Instruction]) -> dict[int, list[int]]:
    """The values, for each instruction, that nothing after it needs."""
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
