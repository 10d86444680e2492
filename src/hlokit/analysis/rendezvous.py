"""Rendezvous: whether all devices of a run reach their collectives and channels in a consistent order.

Two ways to find out. One module on all devices is in order if no loop and no conditional that has to do with other
devices can go another way on one of them (divergence.py): all then do the same in the same order. Otherwise the devices
are followed step by step, each with what is known about its values: ids, constants and what is computed from them as
they are, all else as symbols, the same for what is certainly equal. Where the course depends on a symbol, every way is
followed, and the devices on which it is the same symbol go the same way. A loop is followed until one more pass could
show nothing new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hlokit.analysis.divergence import Divergence
from hlokit.errors import EvaluationError, HlokitError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.protocol import group_findings
from hlokit.hlo.values import TOKEN_VALUE, TokenValue, is_ndarray, is_sequence
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.order import communication_of, evaluation_order
from hlokit.interpreter.process import MAX_CALL_DEPTH, Process
from hlokit.interpreter.routes import Place, Route, routes_of
from hlokit.interpreter.transport import Exchange, rendezvous_key
from hlokit.ops.asynchronous import AsyncStart, placeholder
from hlokit.ops.communication import Recv, RecvDone, Send, SendDone
from hlokit.ops.control_flow import Conditional, While
from hlokit.ops.custom import CustomCall
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.types.shape import Shape

PROVED, REFUTED, UNDECIDED = "proved", "refuted", "undecided"

_SMALL = 64
"""Values of more elements are not computed with, only named."""
_CALLED_STEPS = 1000
"""Instructions that a call which concerns no other device may take to be computed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`state`: proved, refuted, or undecided: then only running can show. `reason` says why, as a sentence.

    `error`: of what is refuted, what running the program would raise.
    """

    state: str
    reason: str
    error: HlokitError | None = None

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}"


def check_rendezvous(
    modules: Sequence[HloModule], replicas: int, partitions: int, *, steps: int = 10_000, paths: int = 200
) -> Finding:
    """Whether the devices that run `modules`, one each, always meet.

    steps, paths    how many instructions, and how many paths through the program, are followed at most
    """
    places = Place.grid(replicas, partitions)
    for module in dict.fromkeys(modules):
        wrong = group_findings(module, replicas, partitions) if len(places) > 1 else []
        if wrong:
            return Finding(REFUTED, wrong[0], EvaluationError(wrong[0]))
    matters = communication_of()
    concerned = [i for m in dict.fromkeys(modules) for c in m.all_computations for i in c.instructions if matters(i)]
    if not concerned:
        return Finding(PROVED, "no instruction communicates with other devices")
    try:
        if len(set(modules)) == 1 and _come_alike(modules[0], places, concerned):
            return Finding(PROVED, "every device reaches the same collectives in the same order")
        return _Search(modules, places, steps, paths).finding()
    except EvaluationError as error:
        return Finding(REFUTED, str(error), error)
    except RecursionError:
        return Finding(UNDECIDED, "calls nest too deeply to be analysed")


def come_alike(module: HloModule, replicas: int, partitions: int) -> bool:
    """Whether all devices that run the module surely come to the same instructions that have to do with others, in the
    same order, and none of these are of channels between two.

    >>> b = hk.Builder()
    >>> module = b.build(hk.all_reduce(b.parameter(0, hk.f32[2]), hk.max))
    >>> come_alike(module, 2, 1)
    True
    """
    matters = communication_of()
    concerned = [i for c in module.all_computations for i in c.instructions if matters(i)]
    try:
        return _come_alike(module, Place.grid(replicas, partitions), concerned)
    except (EvaluationError, RecursionError):
        return False


def _come_alike(module: HloModule, places: Sequence[Place], concerned: Sequence[Instruction]) -> bool:
    if any(i.op.communication.peer for i in concerned):
        return False
    divergence = Divergence(communication_of(), lambda i: _holds_all(i, places))
    divergence.entry(module.entry)
    return not divergence.found


def refuse_deadlock(modules: Sequence[HloModule], counts: tuple[int, int]) -> None:
    """Raises what running the programs would surely come to."""
    finding = check_rendezvous(modules, *counts)
    if finding.error is not None:
        raise finding.error


def _holds_all(instruction: Instruction, places: Sequence[Place]) -> bool:
    rendezvous = _rendezvous(Process(place=places[0]), instruction)
    return rendezvous is not None and len(rendezvous) == len(places)


# -- whom an instruction meets


class _Met(Exception):
    """An op's reference came to its rendezvous."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = members


class _Probe:
    """A transport that only notes who is to meet."""

    stopped = False
    shares_memory = False

    def meet(self, device: int, instruction: Instruction, members: Sequence[int], value: Any) -> list[Any]:
        raise _Met(members)


def _rendezvous(process: Process, instruction: Instruction) -> tuple[int, ...] | None:
    """The members of a collective's group, for this device; None if it meets nobody. EvaluationError for bad groups."""
    process.transport = _Probe()  # type: ignore[assignment]
    try:
        run_instruction(process, instruction, [placeholder(o.shape) for o in instruction.operands])
    except _Met as met:
        return tuple(met.members)
    except EvaluationError:
        raise
    except HlokitError as error:
        raise EvaluationError(f"{instruction.name}: {error}") from None
    return None


# -- what is known about values


class _Symbol:
    """An unknown value. The same symbol stands for the same value on whatever device."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Choice(NamedTuple):
    """A device asks which way to go, of `ways`: at a conditional, or after `done` passes of a loop."""

    instruction: Instruction
    symbol: _Symbol
    ways: int
    activation: int = 0
    done: int = 0
    state: Any = None


class _Meet(NamedTuple):
    instruction: Instruction
    members: tuple[int, ...]


class _Transfer(NamedTuple):
    instruction: Instruction
    route: Route


_Walk = Generator["_Choice | _Meet | _Transfer", Any, Any]


class _TooLong(Exception):
    """The budget is used up."""


@dataclass
class _Search:
    modules: Sequence[HloModule]
    places: Sequence[Place]
    steps: int
    paths: int
    symbols: dict[Hashable, _Symbol] = field(default_factory=dict[Hashable, _Symbol])
    members: dict[tuple[Instruction, int], tuple[int, ...] | None] = field(
        default_factory=dict[tuple[Instruction, int], "tuple[int, ...] | None"]
    )

    def __post_init__(self) -> None:
        self.communicates = communication_of()
        self.routes = routes_of(self.modules, self.places)
        self.names = [str(place) for place in self.places]
        self.orders: dict[Computation, Sequence[Instruction]] = {}

    def finding(self) -> Finding:
        """Follows every way through the program, as far as the budget allows."""
        pending: list[dict[_Symbol, int]] = [{}]
        good = 0
        bad: tuple[EvaluationError, str] | None = None
        followed = 0
        while pending:
            if followed == self.paths:
                return _undecided(bad, f"there are more than {self.paths} paths through the program")
            followed += 1
            path = _Path(self, pending.pop())
            try:
                path.follow(pending)
                good += 1
            except _TooLong:
                return _undecided(bad, "the program has too many steps to be analysed")
            except EvaluationError as error:
                if bad is None:
                    bad = error, path.said()
            if bad is not None and good:
                break
        if bad is None:
            return Finding(PROVED, f"no device waits forever on any path through the program ({followed} followed)")
        if not good:
            return Finding(REFUTED, str(bad[0]), bad[0])
        return _undecided(bad)

    def symbol(self, *key: Hashable) -> _Symbol:
        found = self.symbols.get(key)
        if found is None:
            found = self.symbols[key] = _Symbol(len(self.symbols))
        return found

    def order(self, computation: Computation) -> Sequence[Instruction]:
        if computation not in self.orders:
            self.orders[computation] = evaluation_order(computation)
        return self.orders[computation]


def _undecided(bad: tuple[EvaluationError, str] | None, otherwise: str = "") -> Finding:
    if bad is None:
        return Finding(UNDECIDED, otherwise)
    return Finding(UNDECIDED, f"{bad[1]}: {bad[0]}")


class _Path:
    """One way through the program: all devices in turns, with the choices that lead this way."""

    def __init__(self, search: _Search, choices: dict[_Symbol, int]) -> None:
        self.search = search
        self.choices = choices
        self.exchange = Exchange(search.names)
        self.walks = [_Device(search, d).entry() for d in range(len(search.places))]
        self.asking: dict[int, _Choice] = {}
        self.rendezvous: dict[Hashable, int] = {}
        self.made: dict[_Symbol, str] = {}
        self.seen: dict[Hashable, Hashable] = {}

    def said(self) -> str:
        """The choices made, as a condition."""
        return "if " + ", ".join(self.made.values())

    def follow(self, pending: list[dict[_Symbol, int]]) -> None:
        """Runs to the end. EvaluationError where devices do not meet; other choices to try are added to `pending`."""
        ready = deque((d, None) for d in range(len(self.walks)))
        while True:
            while ready:
                device, value = ready.popleft()
                ready.extend(self._go_on(device, value))
            if self.asking:
                ready.extend(self._choose(pending))
            elif self.exchange.waiting:
                raise self.exchange.deadlock()
            else:
                return

    def _go_on(self, device: int, value: Any) -> list[tuple[int, Any]]:
        """Lets a device go on until it waits; the devices that may go on then, with what they get."""
        freed: list[int] = []
        while True:
            try:
                request = self.walks[device].send(value)
            except StopIteration:
                self.exchange.finished.add(device)
                return [(d, self.exchange.results.pop(d)) for d in freed]
            if isinstance(request, _Choice):
                self.asking[device] = request
                return [(d, self.exchange.results.pop(d)) for d in freed]
            freed += self._exchange(device, request)
            if device not in freed:
                return [(d, self.exchange.results.pop(d)) for d in freed]
            freed.remove(device)
            value = self.exchange.results.pop(device)

    def _exchange(self, device: int, request: _Meet | _Transfer) -> list[int]:
        exchange, instruction = self.exchange, request.instruction
        if isinstance(request, _Transfer):
            if isinstance(instruction.op, Recv):
                exchange.results[device] = None
                return [*exchange.offer(request.route), device]
            if isinstance(instruction.op, Send):
                return exchange.send(device, instruction, request.route, instruction.operands[0].shape)
            return exchange.receive(device, instruction, request.route)
        freed = exchange.meet(device, instruction, request.members, None)
        if freed:
            key = (rendezvous_key(instruction), request.members)
            number = self.rendezvous[key] = self.rendezvous.get(key, 0) + 1
            for member in freed:
                exchange.results[member] = (*key, number)
        return freed

    def _choose(self, pending: list[dict[_Symbol, int]]) -> list[tuple[int, Any]]:
        """Goes one way where a device asks, and leaves the others for later."""
        first = min(self.asking)
        asked = self.asking[first]
        alike = [d for d, choice in self.asking.items() if choice.symbol is asked.symbol]
        settled = isinstance(asked.instruction.op, While) and self._is_settled(alike)
        way = self.choices.get(asked.symbol)
        if way is None:
            way = self.choices[asked.symbol] = 0
            others = () if settled else range(asked.ways - 1, 0, -1)
            pending.extend({**self.choices, asked.symbol: other} for other in others)
        self._say(first, asked, way)
        for device in alike:
            del self.asking[device]
        return [(device, way) for device in alike]

    def _say(self, device: int, asked: _Choice, way: int) -> None:
        what = f"takes way {way}"
        if isinstance(asked.instruction.op, While):
            what = f"{'goes on' if way else 'ends'} after {asked.done} passes"
        self.made.setdefault(asked.symbol, f"{asked.instruction.name} {what} on {self.search.names[device]}")

    def _is_settled(self, alike: list[int]) -> bool:
        """Whether the loop was here before as far as can be told: one more pass would show what the last one showed.

        Which parts of the state are known, and which are equal, also between devices, decides what a pass does to
        that. So where a pass changed none of it, no later one will. The other devices stand still meanwhile.
        """
        if len(self.asking) + len(self.exchange.finished) < len(self.walks):
            return False  # somebody waits in the middle of things
        everyone = [self.asking[d] for d in sorted(self.asking)]
        keys = [_key(leaf) for choice in everyone for leaf in (choice.symbol, *_leaves(choice.state))]
        first: dict[Hashable, int] = {}
        pattern = tuple(first.setdefault(key, place) for place, key in enumerate(keys))
        known = tuple(None if isinstance(key, _Symbol) else key for key in keys)
        now = (pattern, known, self.exchange.in_flight())
        loop = tuple((d, self.asking[d].activation) for d in alike)
        before = self.seen.get(loop)
        self.seen[loop] = now
        return before == now


class _Device:
    """Walks through one device's program, asking wherever others or unknown values decide."""

    def __init__(self, search: _Search, device: int) -> None:
        self.search = search
        self.number = device
        self.process = Process(place=search.places[device], routes=search.routes[device])
        self.depth = 0
        self.counts: dict[Hashable, int] = {}

    def entry(self) -> _Walk:
        entry = self.search.modules[self.number].entry
        arguments = [self._named(p.shape, "argument", self.number, k) for k, p in enumerate(entry.parameters)]
        yield from self._run(entry, arguments)

    def _named(self, shape: Shape, *key: Hashable) -> Any:
        """Symbols for all leaves."""
        if shape.is_tuple:
            return tuple(self._named(element, *key, k) for k, element in enumerate(shape.elements))
        return self.search.symbol(*key) if shape.is_array else TOKEN_VALUE

    def _fresh(self, instruction: Instruction) -> Any:
        """A value that is nothing but this device's, each time."""
        count = self.counts[instruction] = self.counts.get(instruction, 0) + 1
        return self._named(instruction.shape, "own", instruction, self.number, count)

    def _run(self, computation: Computation, arguments: Sequence[Any]) -> _Walk:
        if self.depth >= MAX_CALL_DEPTH:
            raise _TooLong
        self.depth += 1
        values: dict[Instruction, Any] = {}
        for instruction in self.search.order(computation):
            self.search.steps -= 1
            if self.search.steps < 0:
                raise _TooLong
            op = instruction.op
            if isinstance(op, Parameter):
                values[instruction] = arguments[op.number]
                continue
            operands = [values[o] for o in instruction.operands]
            if self.search.communicates(instruction):
                values[instruction] = yield from self._communicating(instruction, operands)
            else:
                values[instruction] = self._computed(instruction, operands)
        self.depth -= 1
        return values[computation.root]

    # -- what has to do with others

    def _communicating(self, instruction: Instruction, operands: list[Any]) -> _Walk:
        op = instruction.op
        if isinstance(op, While):
            return (yield from self._loop(instruction, operands[0]))
        if isinstance(op, Conditional):
            return (yield from self._conditional(instruction, operands))
        if op.calls_through:
            return (yield from self._run(instruction.called[0], operands))
        if isinstance(op, AsyncStart):
            result = yield from self._run(instruction.called[0], operands)
            return (tuple(operands), result, *(placeholder(s) for s in instruction.shape.elements[2:]))
        if op.communication.peer and not isinstance(op, SendDone):
            return (yield from self._transfer(instruction))
        if op.communication.stage == "done":
            return self._computed(instruction, operands)
        if any(self.search.communicates(i) for c in instruction.called for i in c.instructions):
            raise _TooLong  # a collective in a function of scalars: how often it runs depends on the op
        return (yield from self._collective(instruction, operands))

    def _collective(self, instruction: Instruction, operands: Sequence[Any]) -> _Walk:
        key = (instruction, self.number)
        if key not in self.search.members:
            self.search.members[key] = _rendezvous(self.process, instruction)
        members = self.search.members[key]
        if members is None:
            return self._fresh(instruction)
        op = instruction.op
        number = yield _Meet(instruction, members)
        own = () if op.communication.same_in_group else (self.number,)
        made = self._named(instruction.shape, "met", number, *own)
        if not op.communication.keeps_operands:
            return made
        return (tuple(operands) if instruction.shape.elements[0].is_tuple else operands[0], *made[1:])

    def _transfer(self, instruction: Instruction) -> _Walk:
        op: Any = instruction.op
        if op.is_host_transfer:
            return self._fresh(instruction)
        self.process.instruction = instruction
        route = self.process.route(op.channel_id or 0, 0 if op.communication.peer == "send" else 1)
        if route is not None:
            sent = yield _Transfer(instruction, route)
            if isinstance(op, RecvDone) and sent.static is not instruction.shape.elements[0].static:
                expected = instruction.shape.elements[0]
                raise EvaluationError(
                    f"{instruction.name}: channel {route.channel} brings {sent}, not {expected} [COMM-3]"
                )
        return self._fresh(instruction)

    def _conditional(self, instruction: Instruction, operands: list[Any]) -> _Walk:
        selector, *branches = operands
        if isinstance(selector, _Symbol):
            way = yield _Choice(instruction, selector, len(branches))
        elif selector.dtype == np.bool_:
            way = 0 if selector else 1
        else:
            way = int(selector) if 0 <= selector < len(branches) else len(branches) - 1
        return (yield from self._run(instruction.called[way], [branches[way]]))

    def _loop(self, loop: Instruction, state: Any) -> _Walk:
        condition, body = loop.called
        activation = self.counts["loops"] = self.counts.get("loops", 0) + 1
        passes, unknown = 0, False
        while True:
            more = yield from self._run(condition, [state])
            if isinstance(more, _Symbol):
                unknown = True
                more = yield _Choice(loop, more, 2, activation, passes, state)
            if not more:
                return state
            after = yield from self._run(body, [state])
            passes += 1
            state = self._widened(state, after, (loop, passes)) if unknown else after

    def _widened(self, before: Any, after: Any, key: tuple[Hashable, ...]) -> Any:
        """The state after a pass; what is known but changes from pass to pass becomes a symbol of its value."""
        if is_sequence(after):
            pairs = enumerate(zip(before, after, strict=True))
            return tuple(self._widened(b, a, (*key, k)) for k, (b, a) in pairs)
        if is_ndarray(after) and _key(before) != _key(after):
            return self.search.symbol("widened", *key, _key(after))
        return after

    # -- what has not

    def _computed(self, instruction: Instruction, operands: list[Any]) -> Any:
        op, shape = instruction.op, instruction.shape
        if isinstance(op, GetTupleElement) and is_sequence(operands[0]):
            return operands[0][op.index]
        if isinstance(op, Tuple):
            return tuple(operands)
        if op.picks is not None and is_sequence(operands[0]):
            return operands[0][op.picks]
        if op.passes_on:
            return operands[0]
        if shape.is_token:
            return TOKEN_VALUE
        if isinstance(op, Constant) and not _is_small(shape):
            return self._named(shape, "constant", id(op.literal))
        if op.has_side_effect() and op.communication.stage != "done":
            return self._fresh(instruction)
        if _is_small(shape) and not isinstance(op, CustomCall) and all(map(_is_known, operands)):
            known = self._evaluated(instruction, operands)
            if known is not None:
                return known
        extra = instruction.extra.backend_config if instruction.extra is not None else ""
        keys = tuple(_key(leaf) for operand in operands for leaf in _leaves(operand))
        return self._named(shape, op, instruction.called, extra, str(shape), keys)

    def _evaluated(self, instruction: Instruction, operands: list[Any]) -> Any:
        """The value; None if that takes too long or fails, which is not for this analysis to say."""
        process = self.process
        left = _CALLED_STEPS

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _TooLong

        process.before = count
        try:
            value = run_instruction(process, instruction, operands)
        except (_TooLong, HlokitError, MemoryError):
            return None
        finally:
            process.before, process.depth = None, 0
            self.search.steps -= _CALLED_STEPS - max(left, 0)
        return value if _is_known(value) else None


def _leaves(value: Any) -> Generator[Any, None, None]:
    if is_sequence(value):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _key(value: Any) -> Hashable:
    """A hashable key by which equal leaves are equal."""
    return (value.dtype.str, value.shape, value.tobytes()) if is_ndarray(value) else value


def _is_known(value: Any) -> bool:
    return all((is_ndarray(v) and v.size <= _SMALL) or isinstance(v, TokenValue) for v in _leaves(value))


def _is_small(shape: Shape) -> bool:
    return all(not leaf.is_array or (leaf.size <= _SMALL and not leaf.is_dynamic) for leaf in shape.leaves())


__all__ = ["PROVED", "REFUTED", "UNDECIDED", "Finding", "check_rendezvous"]
