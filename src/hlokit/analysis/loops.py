"""While loops: their trip counts, and the values that they carry unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import is_ndarray
from hlokit.ops.comparison import Compare
from hlokit.ops.structure import Constant, GetTupleElement
from hlokit.types.dtype import DType

_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


@dataclass(frozen=True, slots=True)
class Counter:
    """The induction variable of a counted loop: start, start + step, ...; the loop runs `trips` times.

    index   its element of the loop's state; None where the state is the variable itself
    """

    index: int | None
    start: int
    step: int
    trips: int


def trip_count(loop: Instruction) -> int | None:
    """The number of passes of a while: as its annotation says, or as `counter` finds; None if neither knows."""
    noted = annotated_trip_count(loop)
    if noted is not None:
        return noted
    found = counter(loop)
    return found.trips if found is not None else None


def runs(module: HloModule) -> dict[Computation, int]:
    """The number of times that each computation which control flow reaches runs in a run of the module.

    A loop whose number of passes is not known counts as one pass, each branch of a conditional as taken.
    """
    found: dict[Computation, int] = {module.entry: 1}
    for computation in reversed(module.computations()):  # callers first
        for instruction in computation.instructions if computation in found else ():
            if instruction.op.form == "control":
                passes = trip_count(instruction) if instruction.opcode == "while" else 1
                for called in instruction.called:
                    found[called] = found.get(called, 0) + found[computation] * (1 if passes is None else passes)
    return found


def annotated_trip_count(loop: Instruction) -> int | None:
    """The count in backend_config={"known_trip_count":{"n":"10"}}."""
    config = backend_notes(loop)
    known: Any = config.get("known_trip_count") if config is not None else None
    try:
        count = int(known["n"])
    except (TypeError, KeyError, ValueError):
        return None
    return count if count >= 0 else None


def backend_notes(instruction: Instruction) -> dict[str, Any] | None:
    """Its backend_config as a JSON object: empty where there is none, None where it is something else."""
    text = instruction.extra.backend_config if instruction.extra is not None else ""
    try:
        found: Any = json.loads(text) if text else {}
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def counter(loop: Instruction) -> Counter | None:
    """The counter of a loop whose condition compares it with a constant and whose body adds a constant to it.

    None for other loops, and for those where the counter would wrap before the condition fails, or never end.
    """
    condition, body = loop.called
    compare = condition.root
    if not isinstance(compare.op, Compare) or any(has_side_effect(i) for i in condition.instructions):
        return None
    direction, (variable, limit) = compare.op.direction, compare.operands
    place, bound = carried(variable, condition), _value(limit, condition, loop)
    if place is None or bound is None:
        direction, variable, limit = _SWAPPED[direction], limit, variable
        place, bound = carried(variable, condition), _value(limit, condition, loop)
    if place is None or bound is None:
        return None
    start = integer_of(initial(loop, place))
    step = _step(body, place)
    if start is None or step is None:
        return None
    trips = _trips(direction, start, bound, step)
    if trips is None or not _fits(start + trips * step, variable.shape.dtype):
        return None
    return Counter(place[0] if place else None, start, step, trips)


def carried(instruction: Instruction, computation: Computation) -> tuple[int, ...] | None:
    """The index in the state: (i,) for get-tuple-element(state, i), () for the state itself; else None."""
    state = computation.parameters[0]
    if instruction is state:
        return ()
    op = instruction.op
    return (op.index,) if isinstance(op, GetTupleElement) and instruction.operands[0] is state else None


def initial(loop: Instruction, place: tuple[int, ...]) -> Instruction | None:
    """The instruction that gives an element of the state its first value; None if it cannot be seen."""
    init = loop.operands[0]
    if not place:
        return init
    return init.operands[place[0]] if init.opcode == "tuple" else None


def invariants(loop: Instruction) -> list[int]:
    """The elements of a loop's state that every pass hands on as they are."""
    body = loop.called[1]
    if not loop.shape.is_tuple:
        return []
    if body.root is body.parameters[0]:
        return list(range(len(loop.shape.elements)))
    if body.root.opcode != "tuple":
        return []
    return [i for i, value in enumerate(body.root.operands) if carried(value, body) == (i,)]


def integer_of(instruction: Instruction | None) -> int | None:
    """The value of an integer scalar that can be seen to be constant."""
    while instruction is not None and instruction.op.same_elements:
        instruction = instruction.operands[0]
    if instruction is None or not isinstance(instruction.op, Constant) or not instruction.shape.is_array:
        return None
    value = instruction.op.literal.value
    if not is_ndarray(value) or value.size != 1 or not instruction.shape.dtype.is_integral:
        return None
    return int(value.reshape(()))


def _value(instruction: Instruction, computation: Computation, loop: Instruction) -> int | None:
    """A constant: there, or carried in unchanged."""
    found = integer_of(instruction)
    place = carried(instruction, computation)
    if found is not None or not place:
        return found
    body = loop.called[1]
    if body.root.opcode != "tuple" or carried(body.root.operands[place[0]], body) != place:
        return None
    return integer_of(initial(loop, place))


def _step(body: Computation, place: tuple[int, ...]) -> int | None:
    """The constant that the body adds to an element of the state."""
    result = body.root
    if place:
        if result.opcode != "tuple":
            return None
        result = result.operands[place[0]]
    if result.opcode not in ("add", "subtract"):
        return None
    lhs, rhs = result.operands
    if carried(lhs, body) != place and result.opcode == "add":
        lhs, rhs = rhs, lhs
    step = integer_of(rhs)
    if step is None or carried(lhs, body) != place:
        return None
    return step if result.opcode == "add" else -step


def _trips(direction: str, start: int, bound: int, step: int) -> int | None:
    """The number of times that start, start + step, ... fulfils the comparison, before it first does not."""
    if direction in ("EQ", "NE"):
        if (start == bound) is (direction == "NE"):
            return 0
        if direction == "EQ":
            return 1 if step else None
        return (bound - start) // step if step and (bound - start) % step == 0 and (bound - start) // step > 0 else None
    if direction in ("GT", "GE"):
        start, bound, step = -start, -bound, -step
    room = bound - start + (direction in ("LE", "GE"))
    if room <= 0:
        return 0
    return -(-room // step) if step > 0 else None


def _fits(value: int, dtype: DType) -> bool:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    return low <= value < low + (1 << dtype.bits)
