"""while-loop-scalarizer: carries the elements of small arrays in a loop's state as scalars."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlokit.analysis.loops import counter, invariants
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Mark, active, came_from
from hlokit.hlo.module import HloModule
from hlokit.ops.contraction import Dot, free_dimensions
from hlokit.ops.control_flow import While
from hlokit.ops.elementwise import Add, Multiply
from hlokit.ops.movement import Broadcast, Concatenate
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.passes.loop_rewriting import copied, elements_of, is_free, take_over, tied_by_control, uses_elements_only
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, reshaped
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class WhileLoopScalarizer(Pass):
    """while(state) with arrays of at most `elements` elements in all is a loop over these elements, each a scalar.

    Of counted loops whose passes move elements, and do at most `work` operations: scalars then stay in registers, and
    moving them costs nothing. Where elements stay in their places, vectors do as well. Products of matrices in a pass
    become multiplications and additions, which round otherwise than products do.
    """

    name = "while-loop-scalarizer"
    elements: int = 16
    work: int = 160

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in list(module.computations()):
            tied = tied_by_control(computation)
            for loop in computation.post_order():
                if isinstance(loop.op, While) and is_free(loop, tied):
                    split = self._arrays(loop)
                    if split:
                        take_over(loop, _split(loop, split))
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed

    def _arrays(self, loop: Instruction) -> list[int]:
        """The elements of the state that are to be scalars; none where the loop stays as it is."""
        found, (condition, body) = counter(loop), loop.called
        if found is None or found.index is None or body.root.opcode != "tuple" or not is_plain(loop):
            return []
        if not all(element.is_array for element in loop.shape.elements):
            return []
        if not uses_elements_only(condition) or not uses_elements_only(body):
            return []
        fixed = {*invariants(loop), found.index}
        state = {k: element for k, element in enumerate(loop.shape.elements) if k not in fixed}
        split = [k for k, element in state.items() if element.rank]
        is_small = 1 < sum(element.size for element in state.values()) <= self.elements
        if not is_small or not all(element.size for element in state.values()):
            return []
        inside = [i for i in body.instructions if not isinstance(i.op, (Parameter, Tuple, GetTupleElement))]
        is_simple = all(map(_is_simple, inside)) and sum(map(_work, inside)) <= self.work
        return split if is_simple and any(map(_moves, inside)) else []


def _is_simple(instruction: Instruction) -> bool:
    """Whether its places are known, in each pass the same."""
    op = instruction.op
    if instruction.called or not is_plain(instruction) or op.chooses_places:
        return False
    if isinstance(op, Dot):
        types = {operand.shape.dtype for operand in instruction.operands} | {instruction.shape.dtype}
        return op.algorithm is None and types in ({dtypes.f32}, {dtypes.f64})
    return op.form in ("map", "index")


def _work(instruction: Instruction) -> int:
    op = instruction.op
    if isinstance(op, Dot):
        lhs = instruction.operands[0].shape
        return instruction.shape.size * prod(lhs.dimensions[d] for d in op.lhs_contracting_dims)
    return instruction.shape.size * (_POLYNOMIAL if op.transcendental else 1) if op.form == "map" else 0


_POLYNOMIAL = 16
"""Operations of a function that is approximated."""


def _moves(instruction: Instruction) -> bool:
    """Whether elements go to other places."""
    if instruction.op.form == "map" or isinstance(instruction.op, (Reshape, Broadcast)):
        return False
    return any(operand.shape.size > 1 for operand in instruction.operands)


def _split(loop: Instruction, split: Sequence[int]) -> list[Instruction]:
    """The elements of the state after the loop, which is done by scalars."""
    computation, shapes = loop.parent, loop.shape.elements
    assert computation is not None and computation.module is not None
    init = elements_of(loop.operands[0])
    start = computation.add(Tuple(), _apart(init, split))
    called = [_with_scalars(one, start.shape, shapes, split) for one in loop.called]
    for one in called:
        computation.module.add_computation(one)
    new = computation.add(loop.op, [start], called, name=loop.name)
    new.extra = loop.extra
    came_from(new, loop, Mark.PART)
    return _together(new, shapes, split)


def _apart(values: Sequence[Instruction], split: Sequence[int]) -> list[Instruction]:
    """The values, those of `split` as scalars."""
    found: list[Instruction] = []
    for k, value in enumerate(values):
        if k not in split:
            found.append(value)
            continue
        assert value.parent is not None
        line = reshaped(value, (value.shape.size,))
        ones = [value.parent.add(Slice(((e, e + 1, 1),)), [line]) for e in range(value.shape.size)]
        found += [reshaped(one, ()) for one in ones]
    return found


def _together(state: Instruction, shapes: Sequence[Shape], split: Sequence[int]) -> list[Instruction]:
    """The values of which `state` holds the scalars."""
    assert state.parent is not None
    add = state.parent.add
    found: list[Instruction] = []
    place = 0
    for k, shape in enumerate(shapes):
        count = shape.size if k in split else 1
        parts = [add(GetTupleElement(place + e), [state]) for e in range(count)]
        place += count
        if k not in split:
            found += parts
        else:
            lines = [reshaped(part, (1,)) for part in parts]
            found.append(reshaped(add(Concatenate(0), lines) if count > 1 else lines[0], shape.dimensions))
    return found


def _multiplied(op: Dot, shape: Shape, lhs: Instruction, rhs: Instruction) -> Instruction:
    """The product, as a sum of products of slices."""
    copy = lhs.parent
    assert copy is not None
    sides = ((lhs, op.lhs_batch_dims, op.lhs_contracting_dims), (rhs, op.rhs_batch_dims, op.rhs_contracting_dims))
    placed: list[dict[int, int]] = []  # of each side's dimensions, where in the result they are
    place = len(op.lhs_batch_dims)
    for side, batch, contracting in sides:
        free = free_dimensions(side.shape.rank, batch, contracting)
        placed.append({d: k for k, d in enumerate(batch)} | {d: place + k for k, d in enumerate(free)})
        place += len(free)
    total: Instruction | None = None
    for step in itertools.product(*(range(lhs.shape.dimensions[d]) for d in op.lhs_contracting_dims)):
        factors: list[Instruction] = []
        for (side, _, contracting), places in zip(sides, placed, strict=True):
            at = dict(zip(contracting, step, strict=True))
            ranges = [(at.get(d, 0), at[d] + 1 if d in at else n, 1) for d, n in enumerate(side.shape.dimensions)]
            one = reshaped(copy.add(Slice(tuple(ranges)), [side]), [side.shape.dimensions[d] for d in sorted(places)])
            factors.append(copy.add(Broadcast(tuple(places[d] for d in sorted(places)), shape.logical), [one]))
        term = copy.add(Multiply(), factors)
        total = term if total is None else copy.add(Add(), [total, term])
    assert total is not None
    return total


def _with_scalars(old: Computation, state: Shape, shapes: Sequence[Shape], split: Sequence[int]) -> Computation:
    """A copy of a loop's condition or body for the state of scalars."""
    copy = Computation(old.name, old.module)
    copy.execution_thread = old.execution_thread
    values: dict[Instruction, Instruction] = {}
    before = _together(copy.add(Parameter(0, state), name=old.parameters[0].name), shapes, split)
    is_body = old.root.opcode == "tuple"
    for instruction in old.post_order():
        op = instruction.op
        if isinstance(op, Parameter) or (is_body and instruction is old.root):
            continue
        if isinstance(op, GetTupleElement) and instruction.operands[0] is old.parameters[0]:
            values[instruction] = before[op.index]
        elif isinstance(op, Dot):
            values[instruction] = _multiplied(op, instruction.shape, *(values[o] for o in instruction.operands))
        else:
            values[instruction] = copied(instruction, copy, [values[o] for o in instruction.operands])
        if (recorder := active()) is not None:
            recorder.replaced(instruction, values[instruction])
    if is_body:
        parts = _apart([values[part] for part in old.root.operands], split)
        copy.set_root(copy.add(Tuple(), parts, name=old.root.name))
    else:
        copy.set_root(values[old.root])
    copy.remove_dead()
    return copy
