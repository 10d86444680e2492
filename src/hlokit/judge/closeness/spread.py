"""Spread: how much the result of a program may vary because each of its instructions may round differently.

How much rounding matters is found by the reference itself: it runs a few times, each instruction's result off by a
random part of what its op may be off, and what then varies may vary in an engine too, a few times as much. In further
runs sums are as far off as other orders of their terms bring them (`orders`): what lies between these is right, too. An
element that is no number in one of these runs, or an integer that changes, is not compared. What a rule leaves open
(`open`) is found in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hlokit.devices.evaluate import evaluate
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import SUMMED
from hlokit.hlo.values import is_sequence, valid_part
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.callee import Callee
from hlokit.interpreter.order import evaluation_order
from hlokit.interpreter.process import Process
from hlokit.interpreter.routes import Place
from hlokit.judge.closeness.bounds import allowed, computed_by
from hlokit.judge.closeness.equality import bits, differs, info_of, is_array, is_floating, is_nan, leaves, place
from hlokit.judge.closeness.open import OPEN, Site, other_value
from hlokit.judge.closeness.orders import ENDS, is_sum, may_overflow, nearest, reordered
from hlokit.judge.closeness.steps import has_own_steps, on_own_steps
from hlokit.judge.deadline import Deadline
from hlokit.judge.devices import checked_arguments, on_each
from hlokit.ops.structure import GetTupleElement, Parameter
from hlokit.types import dtype as dtypes

_NAN_SIGNS = (1.0, -1.0, 0.0, 0.0)
"""The signs that NaNs have in each run, which no rule tells: all the same, or any of both (0)."""
_RUNS = len(_NAN_SIGNS)
_MORE_RUNS = 12
"""Runs more before a difference counts: in four runs one element in a million hardly moves."""
_FINE_RUNS = 24
_FINE = (1 / 4, 1 / 8)
"""Runs after these whose roundings are parts of what ops may be off, in turn: they reach numbers that larger steps pass
over, such as the one integer at which a remainder is 0."""
_MORE_PASSES, _FEW_PASSES = 2, 16
"""A loop may run so many times its passes in the reference, and so many more: one that runs until its steps are small
does not end where each step is off by more than that."""
_where: Any = np.where
_ROOM = 30.0
"""The result may be so many times the spread of the runs away from them."""
_OF_ALL_DEVICES = 2**31
"""In a seed, in the place of a device's number: for what is drawn once for all of them."""
_MET_NAN = "NaN"
"""An entry of `met`: an instruction gives a NaN, whose sign no rule tells."""
_MADE = "overflow"
"""An entry of `met`: an infinity or a NaN comes from finite numbers, or might in other steps."""
_NARROW_ROOM = 8.0
"""The same for types narrower than f32, where 30 times the spread can be more than the numbers themselves."""


class _Exact(NamedTuple):
    """Facts of a run that rounds as the reference does: what of `_MET_NAN` and `_MADE` it met, and the passes of each
    loop."""

    met: set[str]
    passes: dict[Computation, int]


class _Run(NamedTuple):
    """The key of a run: the arguments of `_perturbed`."""

    seed: int | tuple[int, int]
    nan_sign: float
    rounding: float
    rules: tuple[str, ...]
    reorders: bool


class Spread:
    """Runs of the reference on a program and its arguments, whose instructions round differently in each. A run is made
    when it is needed and kept: all that is asked of the same program shares them.

    seed       of the runs
    seconds    a run may take; EvaluationError if one takes longer
    deadline   ends them all, where it is set
    """

    def __init__(self, module: HloModule, inputs: Sequence[Any], seed: int = 0, seconds: float = math.inf) -> None:
        self.module, self.inputs = module.clone(), checked_arguments(module, inputs)
        self.seed, self.seconds = seed, seconds
        self.deadline: Deadline | None = None
        for computation in self.module.all_computations:
            computation.remove_dead()  # each run would compute it, in reducers for each element
        self.made: dict[_Run, list[Any]] = {}
        """The results of runs."""

    def near(self, ours: Any, theirs: Any, rules: Sequence[str] = (), *, overflows: bool = True) -> str | None:
        """The place where a result is further from the reference's than rounding may bring it, or None.

        rules       labels of rules that leave values open (`open.OPEN`): the result may vary as they let it, too
        overflows   what is no number is not compared where an op may overflow on its way
        """
        meanings = [label for label in rules if OPEN[label].is_one_other]
        if meanings:
            theirs = _perturbed(self.module, self.inputs, 0, 0.0, 0.0, meanings, self._limit())
        loose = overflows and self._may_overflow
        runs: Sequence[Sequence[Any]] = ()
        orders: Sequence[Sequence[Any]] = ()
        for runs, orders in self._stages(rules):
            if _beyond(ours, theirs, loose, runs, orders) is None:
                return None if loose else self._unlike(ours, theirs, [*runs, *orders])
        return _beyond(self._but_for_signs(ours, theirs), theirs, loose, runs, orders)

    def _unlike(self, ours: Any, theirs: Any, runs: Sequence[Sequence[Any]]) -> str | None:
        """The place where the reference and all runs have the same infinity, or NaN, and ours has none, if all of them
        come from the arguments; where numbers overflow, other steps may lead to others."""
        for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
            if a.dtype.kind == "c" or not is_floating(a.dtype):
                continue
            differ = _special_to_all(b, [run[number] for run in runs]) & ~_alike(a, b)
            if differ.any() and _MADE not in self._exact.met:
                return place(number, a, b, differ, "")
        return None

    def hangs_on_signs(self, ours: Any, theirs: Any) -> bool:
        """Whether the reference's elements that ours differ from have other bits too, where NaNs have other signs."""
        return differs(self._but_for_signs(ours, theirs), theirs) is None

    def _but_for_signs(self, ours: Any, theirs: Any) -> Any:
        """Our result, with the reference's elements where those have other bits if NaNs have other signs."""
        if _MET_NAN not in self._exact.met:
            return ours
        for runs in (self._signs, self._more_signs):
            if differs(ours, theirs) is None:
                break
            pairs, others = zip(leaves(ours), leaves(theirs), strict=True), zip(*runs(), strict=True)
            ours = tuple([_where_steady(a, b, o) for (a, b), o in zip(pairs, others, strict=True)])
        return ours

    def rules_that_allow(self, ours: Any, theirs: Any) -> tuple[str, ...]:
        """The rules that leave open where a result differs from the reference's: one if one is enough; none if all that
        leave something open in this program do not tell the difference."""
        met: set[str] = set()
        _perturbed(self.module, self.inputs, 0, 1.0, 0.0, tuple(OPEN), self._limit(), flushes=False, met=met)
        found = [label for label in OPEN if label in met]
        for label in found:
            if self.near(ours, theirs, (label,), overflows=False) is None:
                return (label,)
        allows = len(found) > 1 and self.near(ours, theirs, found, overflows=False) is None
        return tuple(found) if allows else ()

    def bound(self, theirs: Any, number: int, index: tuple[int, ...]) -> float:
        """The greatest difference that an element of a result may have from the reference's, by the runs made so
        far; NaN if there is none."""
        array = leaves(theirs)[number]
        made = [(key, run[number]) for key, run in self.made.items() if not key.rules]
        made = [(key, value) for key, value in made if value.shape == array.shape]
        expected, others = array[index], [value[index] for key, value in made if key.rounding]
        if not others:
            return math.nan
        moved = max((abs(value[index] - expected) for key, value in made if key.reorders), default=0.0)
        if expected.dtype.kind != "c":
            return float(_room(expected, others, 0.0) + moved)
        scale = np.max(np.abs([expected, *others]))
        real, imaginary = (_room(p[0], p[1:], scale) for p in zip(*((x.real, x.imag) for x in (expected, *others))))
        return math.hypot(real, imaginary) + float(moved)

    @cached_property
    def _exact(self) -> _Exact:
        """Facts of a run that rounds as the reference does."""
        seen = _Exact(set(), {i.called[0]: 0 for i in self.module.instructions() if i.opcode == "while"})
        _perturbed(self.module, self.inputs, 0, 1.0, 0.0, (), self._limit(), met=seen.met, passes=seen.passes)
        return seen

    @cached_property
    def _most_passes(self) -> dict[Computation, int]:
        """The number of times that a run may compute the condition of each loop."""
        if not any(i.opcode == "while" for i in self.module.instructions()):
            return {}
        return {c: _MORE_PASSES * passes + _FEW_PASSES for c, passes in self._exact.passes.items()}

    @cached_property
    def _may_overflow(self) -> bool:
        return _may_overflow(self.module, self.inputs)

    def _limit(self) -> Deadline | None:
        """Ends a run that begins now."""
        return self.deadline or (None if self.seconds == math.inf else Deadline(self.seconds))

    def _stages(self, rules: Sequence[str]) -> Iterator[tuple[list[list[Any]], list[list[Any]]]]:
        """The runs that decide, more each time, and those whose sums are in other orders."""
        runs = self._first(rules)
        yield runs, []
        runs = [*runs, *self._more(rules)]
        yield runs, []
        orders = self._orders(rules)
        if orders:
            yield runs, orders
        yield [*runs, *self._fine(rules)], orders

    def _first(self, rules: Sequence[str]) -> list[list[Any]]:
        return [self._run(self.seed * _RUNS + k, nan, 1.0, rules) for k, nan in enumerate(_NAN_SIGNS)]

    def _more(self, rules: Sequence[str]) -> list[list[Any]]:
        return [self._run((self.seed, k), 0.0, 1.0, rules) for k in range(_MORE_RUNS)]

    def _fine(self, rules: Sequence[str]) -> list[list[Any]]:
        parts = [(_MORE_RUNS + k, _FINE[k % len(_FINE)]) for k in range(_FINE_RUNS)]
        return [self._run((self.seed, k), 0.0, part, rules) for k, part in parts]

    def _signs(self) -> list[list[Any]]:
        return [self._run(self.seed * _RUNS + k, nan, 0.0) for k, nan in enumerate(_NAN_SIGNS)]

    def _more_signs(self) -> list[list[Any]]:
        return [self._run((self.seed, k), 0.0, 0.0) for k in range(_MORE_RUNS)]

    def _orders(self, rules: Sequence[str]) -> list[list[Any]]:
        if not any(map(is_sum, self.module.instructions())):
            return []
        return [self._run((self.seed, k), 0.0, 0.0, rules, reorders=True) for k in range(ENDS)]

    def _run(
        self,
        seed: int | tuple[int, int],
        nan: float,
        rounding: float,
        rules: Sequence[str] = (),
        *,
        reorders: bool = False,
    ) -> list[Any]:
        key = _Run(seed, nan, rounding, tuple(rules), reorders)
        if key not in self.made:
            most = self._most_passes if rounding or reorders else {}
            value = _perturbed(
                self.module, self.inputs, seed, nan, rounding, rules, self._limit(), most_passes=most, reorders=reorders
            )
            self.made[key] = leaves(value)
        return self.made[key]


def hangs_on_signs(ours: Any, theirs: Any, module: HloModule, inputs: Sequence[Any], seed: int) -> bool:
    """`Spread.hangs_on_signs` of a program that nothing else is asked of."""
    return Spread(module, inputs, seed).hangs_on_signs(ours, theirs)


def near(
    ours: Any,
    theirs: Any,
    module: HloModule,
    inputs: Sequence[Any],
    seed: int,
    rules: Sequence[str] = (),
    *,
    overflows: bool = True,
    seconds: float = math.inf,
) -> str | None:
    """`Spread.near` of a program that nothing else is asked of."""
    return Spread(module, inputs, seed, seconds).near(ours, theirs, rules, overflows=overflows)


def rules_that_allow(
    ours: Any, theirs: Any, module: HloModule, inputs: Sequence[Any], seconds: float = math.inf
) -> tuple[str, ...]:
    """`Spread.rules_that_allow` of a program that nothing else is asked of."""
    return Spread(module, inputs, 0, seconds).rules_that_allow(ours, theirs)


def left_open_by(
    instruction: Instruction,
    operands: Sequence[Any],
    ours: Any,
    theirs: Any,
    others: Mapping[int, Any] | None = None,
    deadline: Deadline | None = None,
) -> str:
    """The rule by which an array of one instruction, or of an element of its tuple, may differ from the reference's;
    "" if none lets it.

    operands   the values of the operands of the instruction that made it
    others     the engine's elements of its tuple, by number, as far as they are known
    deadline   ends the runs that are made for it
    """
    source = computed_by(instruction)
    path: list[int] = []
    while instruction is not source:
        assert isinstance(instruction.op, GetTupleElement)
        path.append(instruction.op.index)
        instruction = instruction.operands[0]

    def run(noise: _Noise) -> list[Any]:
        process = _Perturbed(noise, deadline)
        value = interpreter.run_instruction(process, source, operands)
        value = _off(noise.other(process, source, operands, value), source, operands, noise)
        for index in reversed(path):
            value = value[index]
        return [value]

    with np.errstate(all="ignore"):
        probe = _Noise(np.random.default_rng(0), 1.0, 0.0, flushes=False, rules=tuple(OPEN))
        run(probe)
        process = _Perturbed(probe, deadline)
        for label in OPEN:
            if label not in probe.met:
                continue
            allows = OPEN[label].allows
            if allows is not None:
                value = interpreter.run_instruction(process, source, operands)
                site = Site(process, source, tuple(operands), value, probe.source)
                if allows(site, {**(others or {}), path[0] if path else 0: theirs}):
                    return label
                continue
            one_other = OPEN[label].is_one_other
            expected = run(replace(probe, rules=(label,))) if one_other else [ours]
            seeds = range(_RUNS + _MORE_RUNS)
            runs = [run(_Noise(np.random.default_rng(k), 0.0, 1.0, flushes=False, rules=(label,))) for k in seeds]
            if _beyond((theirs,), expected, False, runs) is None:
                return label
    return ""


def _where_steady(ours: Any, theirs: Any, others: Sequence[Any]) -> Any:
    """An array of ours, with the reference's elements where the others have other bits than these."""
    alike = all(x.dtype == theirs.dtype and x.shape == theirs.shape for x in (ours, *others))
    if ours.dtype.kind == "c" or not alike:
        return ours
    steady = np.all([(bits(o) == bits(theirs)) | (is_nan(o) & is_nan(theirs)) for o in others], axis=0)
    return _where(steady, ours, theirs).astype(theirs.dtype)


def _beyond(
    ours: Any, theirs: Any, loose: bool, runs: Sequence[Sequence[Any]], orders: Sequence[Sequence[Any]] = ()
) -> str | None:
    """The place where ours is further from the reference's values, and from all between these and those of `orders`,
    than what the runs gave. `loose`: what is no number here or there is not compared."""
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        others, moved = ([run[number] for run in made] for made in (runs, orders))
        if any(o.shape != b.shape for o in (*others, *moved)):
            continue  # a size at run time varies
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {number} is {a.dtype}{list(a.shape)}, the reference's {b.dtype}{list(b.shape)}"
        if a.dtype.kind == "c":
            scale = np.max([_where(np.isfinite(np.abs(x)), np.abs(x), 0) for x in (b, *others)], axis=0)
            real = _far(a.real, b.real, [o.real for o in others], [m.real for m in moved], scale, loose)
            differ = real | _far(a.imag, b.imag, [o.imag for o in others], [m.imag for m in moved], scale, loose)
        else:
            differ = _far(a, b, others, moved, 0.0, loose)
        if differ.any():
            is_rounded = a.dtype.kind == "c" or is_floating(a.dtype)
            return place(number, a, b, differ, " by more than the bound" if is_rounded else "")
    return None


def _may_overflow(module: HloModule, inputs: Sequence[Any]) -> bool:
    """Whether an instruction that takes other steps has operands or results that are no numbers, or whose products may
    overflow or vanish; or is not seen to run."""
    suspects = {i for i in module.instructions() if _takes_other_steps(i)}
    if not suspects:
        return False
    seen: set[Instruction] = set()
    wild: set[Instruction] = set()

    def look(instruction: Instruction, values: tuple[Any, ...]) -> None:
        if instruction in suspects:
            seen.add(instruction)
            if any(_is_wild(value) for value in leaves(values)):
                wild.add(instruction)

    evaluate(module, *inputs, before=look, after=look)
    return bool(wild) or any(i not in seen for i in suspects)


def _is_wild(array: Any) -> bool:
    """Whether an element is no number, or so large or small that products of four of them may be none."""
    if not is_array(array) or not (array.dtype.kind == "c" or is_floating(array.dtype)):
        return False
    return not bool(np.all(_sizes(array)[1]))


def _sizes(array: Any) -> tuple[Any, Any]:
    """Absolute values, and which of them are neither so large nor so small that products of four may be no number."""
    info = info_of(array.real.dtype if array.dtype.kind == "c" else array.dtype)
    size = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return size, (size < float(info.max) ** 0.25) & ((size == 0) | (size > float(info.smallest_normal) ** 0.25))


def _makes_special(value: Any, operands: Sequence[Any]) -> bool:
    """Whether an instruction makes an infinity or a NaN of operands that have none, or might make one in other steps:
    it has a number so large or small that products of four may be none."""
    is_special = False
    for array in leaves(value):
        if is_array(array) and (array.dtype.kind == "c" or is_floating(array.dtype)):
            size, moderate = _sizes(array)
            if not np.all(moderate | ~np.isfinite(size)):
                return True
            is_special = is_special or not np.all(np.isfinite(size))
    return is_special and bool(operands) and not any(_has_special(a) for o in operands for a in leaves(o))


def _has_special(array: Any) -> bool:
    is_number = is_array(array) and (array.dtype.kind == "c" or is_floating(array.dtype))
    return is_number and not bool(np.all(np.isfinite(_sizes(array)[0])))


def _takes_other_steps(instruction: Instruction) -> bool:
    """Also products of complex numbers and what is made of them: one part may be infinite or NaN."""
    op, shape = instruction.op, instruction.shape
    if not any(s.dtype.is_complex or s.dtype.is_floating for s in shape.leaves() if s.is_array):
        return False
    if op.rounding is not None and op.rounding.takes_other_steps:
        return True
    if op.opcode in ("dot", "ragged-dot"):
        return shape.dtype.is_complex
    return op.opcode in ("multiply", "divide", "power", "atan2") and shape.dtype.is_complex


def _far(a: Any, b: Any, others: Sequence[Any], moved: Sequence[Any], scale: Any, loose: bool) -> Any:
    """Tells where a is further from all between b and those moved than the others are from b. `loose`: what is no
    number here or there is not compared."""
    if not is_floating(a.dtype):
        steady = np.all([bits(o) == bits(b) for o in (*others, *moved)], axis=0) & (not loose)
        return (bits(a) != bits(b)) & steady
    info = info_of(a.dtype)
    wide = [x.astype(np.float64) for x in (a, b, *others, *moved)]
    between = [wide[1], *wide[2 + len(others) :]]
    with np.errstate(all="ignore"):
        steady = np.all([np.isfinite(w) for w in wide[1:]], axis=0)
        room = _room(b, others, scale)
        beyond = np.maximum(np.abs(wide[1]), scale) + room >= float(info.max)  # may overflow
        far = ~(np.abs(wide[0] - nearest(wide[0], between)) <= room) & ~beyond
    if loose:
        return steady & np.isfinite(wide[0]) & far
    # what is no number in all runs is none here, either
    special = _special_to_all(wide[1], wide[2:]) & np.isnan(wide[1])
    result: Any = _where(steady, far, special & np.isfinite(wide[0]))
    return result


def _special_to_all(expected: Any, others: Sequence[Any]) -> Any:
    """Tells where the reference's value is an infinity or NaN, and so are the same elements of all others; nowhere if
    a size at run time varies."""
    if any(o.shape != expected.shape for o in others):
        return np.zeros(expected.shape, bool)
    return np.all([_alike(o, expected) for o in others], axis=0) & ~np.isfinite(expected.astype(np.float64))


def _alike(a: Any, b: Any) -> Any:
    """Tells for each element whether both are NaN, or equal."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (np.isnan(a) & np.isnan(b)) | (a == b)


def _room(expected: Any, others: Sequence[Any], scale: Any) -> Any:
    """The greatest difference that an element may have from the reference's value, of which the runs gave others."""
    info = info_of(expected.dtype)
    value = expected.astype(np.float64)
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(o.astype(np.float64) - value) for o in others], axis=0)
        times = _NARROW_ROOM if info.bits < 32 else _ROOM
        size = np.maximum(np.abs(value), scale)
        return times * spread + 4 * float(info.eps) * size + 4 * float(info.smallest_normal)


def _perturbed(
    module: HloModule,
    inputs: Sequence[Any],
    seed: int | tuple[int, int],
    nan_sign: float,
    rounding: float = 1.0,
    rules: Sequence[str] = (),
    before: Deadline | None = None,
    *,
    flushes: bool = True,
    met: set[str] | None = None,
    passes: dict[Computation, int] | None = None,
    most_passes: Mapping[Computation, int] | None = None,
    reorders: bool = False,
) -> Any:
    """The entry's value where every instruction's result is off by `rounding` times what its op may be off, in what it
    calls too, and is another by the rules that leave it open; of several devices a list.

    met           gets those rules, `_MET_NAN` where there is a NaN, and, with `passes`, `_MADE`
    passes        gets how often each of these conditions of loops is computed, at most, each time its loop runs
    most_passes   how often a condition may be: after that it is false
    reorders      sums are as far off as other orders of their terms bring them
    """
    parts = seed if isinstance(seed, tuple) else (seed,)
    flushes = flushes and nan_sign > 0 and rounding > 0

    def run(process: Process, arguments: Sequence[Any]) -> Any:
        source = np.random.default_rng((*parts, process.device) if process.device else seed)
        seen = set[str]() if met is None else met
        choice = np.random.default_rng((*parts, _OF_ALL_DEVICES)).random()
        most = most_passes or {}
        noise = _Noise(source, nan_sign, rounding, flushes, tuple(rules), seen, passes, most, reorders, choice)
        with np.errstate(all="ignore"):
            return _valid(_Perturbed(noise, before, process).value_of(module.entry, arguments))

    return on_each(module, inputs, run)


@dataclass(frozen=True)
class _Noise:
    """The changes of a run. `flushes`: contractions take denormals for zeros, approximations give zeros for them.
    `rules`: those that leave values open, `met`, `passes`, `most_passes`, `reorders`: those of `_perturbed`. `choice`:
    the one number that `open.Site` has."""

    source: np.random.Generator
    nan_sign: float
    rounding: float
    flushes: bool
    rules: tuple[str, ...] = ()
    met: set[str] = field(default_factory=set[str])
    passes: dict[Computation, int] | None = None
    most_passes: Mapping[Computation, int] = field(default_factory=dict[Computation, int])
    reorders: bool = False
    choice: float = 1.0

    @property
    def overflows(self) -> bool:
        """Whether what overflows on the way to a result does so otherwise."""
        return self.nan_sign < 0 and self.rounding > 0

    def other(self, process: Process, instruction: Instruction, operands: Sequence[Any], value: Any) -> Any:
        """The value of an instruction as the rules let it be."""
        if not self.rules or not all(map(is_array, operands)):
            return value
        given = value
        for label in self.rules:
            found = other_value(label, Site(process, instruction, tuple(operands), given, self.source, self.choice))
            if found is not None:
                self.met.add(label)
                value = found if value is given else value  # one rule for an instruction: others would undo it
        return value

    def nans(self, like: Any) -> Any:
        sign = self.nan_sign or _where(self.source.random(like.shape) < 0.5, -1.0, 1.0)
        return np.copysign(np.nan, np.broadcast_to(sign, like.shape))


class _Perturbed(Process):
    """The device of a run with noise: by itself, or in the place of `device`."""

    def __init__(self, noise: _Noise, before: Deadline | None = None, device: Process | None = None) -> None:
        if device is None:
            super().__init__(before=before)
        else:
            place = Place(device.replica_id, device.partition_id, device.replica_count, device.partition_count)
            super().__init__(before=before, place=place, transport=device.transport, routes=device.routes)
        self.noise = noise

    def callee(self, computation: Computation) -> Callee:
        return _PerturbedCallee(self, computation)

    def value_of(self, computation: Computation, arguments: Sequence[Any]) -> Any:
        values: dict[Instruction, Any] = {}
        for instruction in evaluation_order(computation):
            if isinstance(instruction.op, Parameter):
                given = arguments[instruction.op.number]
                values[instruction] = interpreter.as_declared(instruction.shape, given)
                continue
            operands = [values[o] for o in instruction.operands]
            if self.noise.flushes and _flushes(instruction):
                operands = [_without_denormals(o) for o in operands]
            value = interpreter.run_instruction(self, instruction, operands)
            if self.noise.passes is not None and _makes_special(value, operands):
                self.noise.met.add(_MADE)
            if self.noise.reorders:
                value = reordered(instruction, operands, value, self.noise.source)
            value = self.noise.other(self, instruction, operands, value)
            if self.noise.overflows and has_own_steps(instruction):
                values[instruction] = on_own_steps(value, instruction, operands)
            else:
                values[instruction] = _off(value, instruction, operands, self.noise)
        return values[computation.root]


class _PerturbedCallee(Callee):
    """Made anew each time that its instruction runs."""

    calls = 0

    def __call__(self, *values: Any) -> Any:
        assert isinstance(self.process, _Perturbed)
        noise, self.calls = self.process.noise, self.calls + 1
        if noise.passes is not None and self.computation in noise.passes:
            noise.passes[self.computation] = max(noise.passes[self.computation], self.calls)
        if self.calls > noise.most_passes.get(self.computation, math.inf):
            return np.False_
        return self.process.value_of(self.computation, values)

    def of_each(self, instruction: Instruction, operands: list[Any]) -> Any:
        assert isinstance(self.process, _Perturbed)
        value = super().of_each(instruction, operands)
        value = self.process.noise.other(self.process, instruction, operands, value)
        return _off(value, instruction, operands, self.process.noise)


def _valid(value: Any) -> Any:
    """The valid part of a value at run time, tokens as None."""
    value = valid_part(value)
    if is_sequence(value):
        return tuple([_valid(part) for part in value])
    return value if is_array(value) else None


def _off(value: Any, instruction: Instruction, operands: Sequence[Any], noise: _Noise) -> Any:
    rounding = instruction.op.rounding
    if rounding is None:
        return value
    if is_sequence(value):
        return tuple([_off(part, instruction, operands, noise) for part in value])
    if not is_array(value):
        return value
    if value.dtype.kind == "c":
        found = np.empty_like(value)
        scales = _scales(value, instruction, [valid_part(o) for o in operands])
        alike = [o for o in operands if is_array(o) and o.shape == value.shape]
        cancels = np.all([(o.real != 0) & (o.imag != 0) for o in alike] or [False], axis=0)
        if not getattr(instruction.op, "exact_complex", True):  # a part that is zero may be off, too
            cancels = np.ones(value.shape, bool)
        parts = zip((value.real, value.imag), scales, strict=True)
        found.real, found.imag = (_moved(p, instruction, operands, scale, cancels, noise) for p, scale in parts)
    elif is_floating(value.dtype):
        found = _moved(value, instruction, operands, 0.0, False, noise)
    else:
        return value
    if noise.overflows and rounding.takes_other_steps:  # what overflowed may be anything, the other part too
        found[~np.isfinite(value)] = complex(np.nan, np.nan) if value.dtype.kind == "c" else np.nan
    elif noise.overflows and value.dtype.kind != "c":
        found = _unlike_overflow(found, value, instruction, operands)
        other = _where(np.isnan(value), 1.0, np.nan)  # any value may be
        found = _where(may_overflow(instruction, operands, value), other, found).astype(value.dtype)
    return found


def _unlike_overflow(found: Any, value: Any, instruction: Instruction, operands: Sequence[Any]) -> Any:
    """`found`, another number where products or sums of finite operands overflowed: a product does not as a part of a
    fused multiply-add, and in another order a sum may be no number, or may be one where it was none."""
    if np.isfinite(value).all() or not all(isinstance(o, (np.ndarray, np.generic)) for o in operands):
        return found  # tuples and values of run-time sizes
    most = float(info_of(value.dtype).max)
    if instruction.opcode == "multiply":
        overflowed = np.isinf(value) & np.isfinite(operands[0]) & np.isfinite(operands[1])
        return _where(overflowed, np.copysign(most, value.astype(np.float64)), found).astype(value.dtype)
    if instruction.op.rounding is not SUMMED or not instruction.shape.is_array:
        return found
    if value.shape != tuple(instruction.shape.dimensions):
        return found
    # of such small operands infinities and NaN are not from overflow
    result = interpreter.run_instruction(Process(), instruction, [_small(o) for o in operands])
    from_nan = _where(np.isinf(result), result, most)
    found = _where(np.isnan(value) & ~np.isnan(result), from_nan, found)
    return _where(np.isinf(value) & np.isfinite(result), np.nan, found).astype(value.dtype)


def _small(array: Any) -> Any:
    """Numbers replaced by their signs."""
    array = np.asarray(array)
    if not is_floating(array.dtype):
        return array
    wide = array.astype(np.float64)
    return _where(np.isfinite(wide), np.sign(wide), wide).astype(array.dtype)


def _flushes(instruction: Instruction) -> bool:
    """Whether default code may take denormals for zeros: 2^-127 of f8e8m0fnu is one of f32."""
    shapes = [instruction.shape, *(operand.shape for operand in instruction.operands)]
    return instruction.op.form == "contraction" and all(s.dtype is not dtypes.f8e8m0fnu for s in shapes)


def _without_denormals(value: Any) -> Any:
    """Denormals of f64, f32 and bf16 as zeros; what are denormals of narrower types are normal numbers of f32, in which
    these are computed."""
    if not is_array(value) or not (value.dtype.kind == "c" or is_floating(value.dtype)):
        return value
    if value.dtype.kind == "c":
        found = np.empty_like(value)
        found.real, found.imag = _without_denormals(value.real), _without_denormals(value.imag)
        return found
    least = np.finfo(np.float64 if value.dtype == np.float64 else np.float32).smallest_normal
    wide = value.astype(np.float64)
    return _where(np.abs(wide) < least, np.copysign(0.0, wide), wide).astype(value.dtype)


def _moved(
    value: Any, instruction: Instruction, operands: Sequence[Any], scale: Any, cancels: Any, noise: _Noise
) -> Any:
    """`scale`: the error is a part of it, besides the value. `cancels`: where zero is what rounding left of others."""
    ulps, parts, _ = allowed(instruction)
    info = info_of(value.dtype)
    wide = value.astype(np.float64)
    size = np.maximum(np.abs(wide), _where(np.isfinite(scale), scale, 0))
    room = float(info.eps) * ((ulps + 1) / 4 * size + parts / 16 * min(_greatest(operands), float(info.max))) + (
        float(info.smallest_normal) if ulps else 0
    )
    uniform: Any = noise.source.uniform
    off = wide + uniform(-1, 1, value.shape) * room * noise.rounding
    moved = _where(np.isfinite(wide) & ((wide != 0) | bool(parts) | (cancels & bool(ulps))), off, wide)
    if noise.flushes and ulps and value.dtype.name != "float8_e8m0fnu":  # which has no zero
        moved = _without_denormals(moved.astype(value.dtype)).astype(np.float64)
    signless = np.isnan(wide) | (value.dtype.name.startswith("float4") & (wide == 0))  # the zero of a NaN
    if np.any(signless):
        noise.met.add(_MET_NAN)
    return _where(signless, noise.nans(wide), moved).astype(value.dtype)


def _scales(value: Any, instruction: Instruction, operands: Sequence[Any]) -> tuple[Any, Any]:
    """The sizes that the errors of the real and of the imaginary part are parts of."""
    scale = np.abs(value) * (_of_exponent(operands) if instruction.opcode == "power" else 1.0)
    if instruction.opcode != "multiply":
        return scale, scale
    # where one part overflows the other may still cancel
    a, b = operands
    real = np.maximum(np.abs(a.real * b.real), np.abs(a.imag * b.imag))
    imaginary = np.maximum(np.abs(a.real * b.imag), np.abs(a.imag * b.real))
    finite = np.isfinite(scale)
    return _where(finite, scale, real), _where(finite, scale, imaginary)


def _of_exponent(operands: Sequence[Any]) -> Any:
    """The error that exp(w log z) makes of its rounding, in units of the result's: the exponent is rounded as f64."""
    z, w = (o.astype(np.complex128) for o in operands)
    eps = float(np.finfo(operands[0].dtype).eps)
    return 1.0 + np.abs(w * np.log(z)) * float(np.finfo(np.float64).eps) / eps


def _greatest(operands: Sequence[Any]) -> float:
    greatest = 0.0
    for operand in leaves(tuple(operands)):
        if is_array(operand) and operand.size and operand.dtype.kind not in "biu":
            wide = np.abs(operand.astype(np.complex128 if operand.dtype.kind == "c" else np.float64))
            greatest = max(greatest, float(np.max(wide, initial=0.0, where=np.isfinite(wide))))
    return greatest
