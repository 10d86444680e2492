"""A while loop rewritten with other elements in its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Mark, came_from
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.types.shape import Shape


def elements_of(value: Instruction) -> list[Instruction]:
    """A tuple's elements, taken out where they have to be."""
    if value.opcode == "tuple":
        return list(value.operands)
    assert value.parent is not None
    return [value.parent.add(GetTupleElement(i), [value]) for i in range(len(value.shape.elements))]


def uses_elements_only(computation: Computation) -> bool:
    """The state comes as a tuple that is only taken apart, and (in a body) goes as one that is only put together."""
    state = computation.parameters[0]
    apart = all(user.opcode == "get-tuple-element" for user in state.users)
    return apart and computation.root is not state


def with_elements(
    loop: Instruction, keep: Sequence[int], more: Sequence[Instruction], known: Mapping[Instruction, int]
) -> list[Instruction | None]:
    """Puts a loop in the place of `loop` that carries the elements `keep` and, unchanged, the values `more`.

    In the body, the instructions `known` are what they number in `more`. Gives the new loop's elements by the old
    numbers, None for those that are gone. The computations must pass `uses_elements_only`, the body's root be a tuple.
    """
    computation, (condition, body) = loop.parent, loop.called
    assert computation is not None and computation.module is not None
    init = elements_of(loop.operands[0])
    start = computation.add(Tuple(), [*(init[i] for i in keep), *more])
    number = {old: new for new, old in enumerate(keep)}
    extra = {instruction: len(keep) + n for instruction, n in known.items()}
    called = [_with_state(condition, start.shape, number, {}, None)]
    called.append(_with_state(body, start.shape, number, extra, len(keep)))
    for one in called:
        computation.module.add_computation(one)
    new = computation.add(loop.op, [start], called, name=loop.name)
    new.extra = loop.extra
    came_from(new, loop, Mark.PART)
    found: list[Instruction | None] = [None] * len(init)
    for i in keep:
        found[i] = computation.add(GetTupleElement(number[i]), [new])
    return found


def take_over(loop: Instruction, elements: Sequence[Instruction]) -> None:
    """Everyone who takes an element of the loop, or all of it, takes these; the loop goes, with its effects."""
    computation = loop.parent
    assert computation is not None
    whole = computation.root is loop
    for user in list(loop.users):
        op = user.op
        if isinstance(op, GetTupleElement):
            computation.replace(user, elements[op.index])
            computation.remove(user)
        else:
            whole = True
    if whole:
        computation.replace(loop, computation.add(Tuple(), elements, shape=loop.shape.logical))
    computation.remove(loop)


def tied_by_control(computation: Computation) -> set[Instruction]:
    """The instructions that have a control dependency, or that one is on: they are not to be replaced."""
    waiting = [i for i in computation.instructions if i.control_predecessors]
    return {*waiting, *(p for i in waiting for p in i.control_predecessors)}


def is_free(instruction: Instruction, tied: set[Instruction]) -> bool:
    """Neither it nor what takes its elements is tied."""
    return not tied or not (instruction in tied or any(user in tied for user in instruction.users))


def _with_state(
    old: Computation,
    state: Shape,
    number: Mapping[int, int],
    known: Mapping[Instruction, int],
    kept: int | None,
) -> Computation:
    """A copy for another state. Without `kept` a condition; else a body, whose result hands on what comes after."""
    copy = Computation(old.name, old.module)
    copy.execution_thread = old.execution_thread
    parameter = copy.add(Parameter(0, state), name=old.parameters[0].name)
    values: dict[Instruction, Instruction] = {}
    root = old.root
    for instruction in old.post_order():
        op = instruction.op
        if instruction in known:
            values[instruction] = _element(copy, instruction, known[instruction])
        elif instruction is old.parameters[0] or (instruction is root and kept is not None):
            continue
        elif isinstance(op, GetTupleElement) and instruction.operands[0] is old.parameters[0]:
            if op.index in number:
                values[instruction] = _element(copy, instruction, number[op.index])
        elif all(operand in values for operand in instruction.operands):
            values[instruction] = copied(instruction, copy, [values[o] for o in instruction.operands])
            before = [values[p] for p in instruction.control_predecessors if p in values]
            if instruction.control_predecessors:
                values[instruction].ensure_extra().control_predecessors = before
    if kept is None:
        copy.set_root(values[root])
        return copy
    parts = [values[root.operands[i]] for i in number]
    parts += [copy.add(GetTupleElement(i), [parameter]) for i in range(kept, len(state.elements))]
    copy.set_root(copy.add(Tuple(), parts, name=root.name))
    return copy


def _element(into: Computation, old: Instruction, index: int) -> Instruction:
    """An element of the state in the place of `old`, in its layout."""
    element = into.add(GetTupleElement(index), [into.parameters[0]], shape=old.shape, name=old.name)
    came_from(element, old)
    return element


def copied(instruction: Instruction, into: Computation, operands: Sequence[Instruction]) -> Instruction:
    """The same instruction in another computation."""
    copy = into.add_unchecked(instruction.op, operands, instruction.called, instruction.shape, instruction.name)
    came_from(copy, instruction)
    if instruction.extra is not None:
        copy.extra = replace(instruction.extra, control_predecessors=[])
    return copy
