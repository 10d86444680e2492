"""Comparing engines: outcomes, and a verdict on each by the reference and its rules."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hlokit.devices.evaluate import evaluate
from hlokit.errors import ArgumentError, EvaluationError, HlokitError
from hlokit.files.arrays import arguments_from_arrays, arrays_in
from hlokit.hlo.computation import Computation, counted
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule, check_is_module
from hlokit.hlo.op import OPS
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.process import Process
from hlokit.judge.closeness.bounds import computed_by, difference
from hlokit.judge.closeness.equality import differs, greatest_difference, leaves
from hlokit.judge.closeness.open import OPEN
from hlokit.judge.closeness.spread import Spread, left_open_by
from hlokit.judge.deadline import Deadline
from hlokit.judge.devices import checked_arguments, devices_of, on_each
from hlokit.judge.engines.blame import Blame
from hlokit.judge.engines.engine import OWN, CommandEngine, Engine, engine_of
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.engines.trivial import fails_always
from hlokit.judge.extract import extracted
from hlokit.judge.reduce.case import Case
from hlokit.ops.structure import GetTupleElement
from hlokit.rules import rules, selected
from hlokit.text.parser import parse_hlo

Verdict = Literal["equal", "allowed", "wrong", "undecided", "failed", "unsupported"]

EXACT = ("passes", "strict")
"""Engines that promise the reference's bits."""
NAN_BITS = "TYPE-13"
"""The rule that leaves open the bits of a NaN, and so what is computed from them."""
ALWAYS = "it fails on every program, even on one of a single constant"
"""The text for an engine whose failure says nothing of the program."""
_ROUNDED = "no more than rounding may change it"
_HIDDEN = ("parameter", "constant")
_PLAIN = (*_HIDDEN, "tuple", "get-tuple-element")
_RULES = 3
"""Rules that a judgement names."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on an engine's result, and the reasons.

    Attributes
    ----------
    engine : str
        The engine's name or command, or the function.
    outcome : Outcome
        The result of the run: its status, arrays (`leaves`), message and seconds.
    verdict : str
        "equal": the reference's bits, except in NaNs; "allowed": other bits, by no more than rounding may change them,
        or where a rule leaves them open (`rules` has its label); "wrong"; "undecided": the whole differs by more than
        rounding makes likely, and no instruction is known to be wrong by itself: each is right, or none was run by
        itself (`bisect=False`); "failed": an error, a crash, or no result in time; "unsupported".
    message : str
        Where the result differs, or what the engine said.
    instruction : str
        The first instruction whose value is wrong for the operands that it had there, or that fails by itself.
    rules : tuple of str
        The labels of the rules that say what the wrong value should be, or that leave it open.
    guilty : str
        The pass after which the result is another, of hlokit's engines.
    kernel : tuple of str
        The instructions that the first wrong kernel computes, of hlokit's machine code.
    part : Case or None
        That kernel as a program, with its operands.
    difference : float or None
        The greatest relative difference from the reference, where rounding decides.
    bound : float or None
        What rounding may make of it in that place.
    """

    engine: str
    outcome: Outcome
    verdict: Verdict
    message: str = ""
    instruction: str = ""
    rules: tuple[str, ...] = ()
    guilty: str = ""
    kernel: tuple[str, ...] = ()
    part: Case | None = None
    difference: float | None = None
    bound: float | None = None

    @property
    def is_finding(self) -> bool:
        """Whether there is a difference that no rule allows."""
        return self.verdict in ("wrong", "undecided", "failed")

    @property
    def printed(self) -> str:
        """The end of the engine's output, if it failed and printed more than the message has."""
        text = self.outcome.printed if self.verdict == "failed" else ""
        return text if "\n" in text else ""

    def __str__(self) -> str:
        lines = [f"{self.engine}: {self.verdict}" + (f": {self.message}" if self.message else "")]
        if self.printed:
            lines += ["  printed:", *(f"    {line}" for line in self.printed.splitlines())]
        if self.instruction:
            lines.append(f"  {'fails on' if self.verdict == 'failed' else 'first wrong value'}: {self.instruction}")
        elif self.verdict == "undecided":
            smallest = "a report (--report FOLDER) has the smallest program that differs"
            lines.append(f"  no instruction is known to be wrong by itself; {smallest}")
        if self.guilty:
            lines.append(f"  made by the pass {self.guilty}")
        if self.kernel:
            lines.append(f"  made by the kernel of {', '.join(self.kernel)}")
        lines += [f"  {label}: {rules()[label].text}" for label in self.rules]
        return "\n".join(lines)


@dataclass(frozen=True)
class Comparison:
    """The result of `hk.compare_engines`: the reference's value and a judgement of each engine.

    Attributes
    ----------
    module : HloModule
        The program.
    arguments : tuple
        Its arguments.
    expected : array or tuple
        The reference's result.
    judgements : tuple of Judgement
        A judgement of each engine: its verdict, the difference, and the cause that was found.
    """

    module: HloModule
    arguments: tuple[Any, ...]
    expected: Any
    judgements: tuple[Judgement, ...]

    @property
    def is_equal(self) -> bool:
        """Whether all engines agree with the reference."""
        return not any(judgement.is_finding for judgement in self.judgements)

    def __str__(self) -> str:
        return "\n".join(map(str, self.judgements))

    def to_json(self) -> list[dict[str, Any]]:
        """The judgements as values that `json.dumps` takes.

        Returns
        -------
        list of dict
            For each engine its name, verdict, message and seconds, the greatest relative difference and its bound where
            rounding decides, what it printed before it failed, and the instruction, rules, pass and kernel that cause
            a difference.
        """
        return [
            {
                "engine": j.engine, "verdict": j.verdict, "message": j.message, "seconds": round(j.outcome.seconds, 4),
                "difference": j.difference, "bound": j.bound, "printed": j.printed, "instruction": j.instruction,
                "rules": list(j.rules), "pass": j.guilty, "kernel": list(j.kernel),
            }
            for j in self.judgements
        ]  # fmt: skip


def compare_engines(
    module: HloModule,
    arguments: Sequence[Any],
    engines: Sequence[str | Callable[..., Any] | Engine] = ("passes", "compiled", "strict"),
    *,
    seconds: float = 60.0,
    memory: int = 0,
    bisect: bool = True,
    verdict_seconds: float = math.inf,
    on_engine: Callable[[str], None] | None = None,
) -> Comparison:
    """Runs a program on engines and judges their results: see `hk.compare_engines`.

    `on_engine` is told the name of each before it runs; "reference" first.
    """
    check_is_module(module)
    if not engines:
        raise ArgumentError("compare_engines: no engines to compare with the reference")
    arguments = checked_arguments(module, arguments)
    if on_engine is not None:
        on_engine("reference")
    expected = evaluate(module, *arguments)
    with ExitStack() as stack:
        opened = [e if isinstance(e, Engine) else stack.enter_context(engine_of(e, seconds, memory)) for e in engines]
        judge = _Judge(module, arguments, expected, bisect, verdict_seconds)
        judgements: list[Judgement] = []
        for engine in opened:
            if on_engine is not None:
                on_engine(engine.name)
            judgements.append(judge.of(engine, engine.run(module, arguments)))
    return Comparison(module, tuple(arguments), expected, tuple(judgements))


def compared(
    module: HloModule, arguments: Sequence[Any], engines: Sequence[Engine], outcomes: Sequence[Outcome], seconds: float
) -> Comparison:
    """The comparison of engines whose outcomes are known, each of them judged in so many seconds. Raises what the
    reference does; EvaluationError if it takes longer than that."""
    expected = evaluate(module, *arguments, before=Deadline(seconds))
    judge = _Judge(module, arguments, expected, bisect=True, seconds=seconds)
    judgements = [judge.of(engine, outcome) for engine, outcome in zip(engines, outcomes, strict=True)]
    return Comparison(module, tuple(arguments), expected, tuple(judgements))


def is_foreign(engine: Engine) -> bool:
    """Whether an engine may do other than hlokit where the language leaves values open."""
    return engine.name.partition("@")[0] not in OWN


def judged(module: HloModule, arguments: Sequence[Any], expected: tuple[Any, ...], engine: Engine) -> Judgement:
    """The verdict on an engine's result by what was recorded, without a search for the cause."""
    return _Judge(module, arguments, expected, bisect=False).of(engine, engine.run(module, arguments))


class _Seen(NamedTuple):
    """The values that an engine shows of a program's instructions.

    instruction   the first whose value is wrong for the operands that it had
    message       where
    labels        the rules that leave open where others are not the reference's
    result        the program's result; empty where the engine does not show its values
    failure       why it does not show them
    """

    instruction: Instruction | None = None
    message: str = ""
    labels: tuple[str, ...] = ()
    result: tuple[Any, ...] = ()
    failure: str = ""


class _Judge:
    """`seconds`: those that the runs of the reference for an engine's verdict may take."""

    def __init__(
        self, module: HloModule, arguments: Sequence[Any], expected: Any, bisect: bool, seconds: float = math.inf
    ) -> None:
        self.module, self.arguments, self.expected = module, arguments, expected
        self.bisect, self.seconds = bisect, seconds
        self.spread = Spread(module, arguments)
        self.deadline: Deadline | None = None
        self.seen: dict[str, _Seen] = {}

    def of(self, engine: Engine, outcome: Outcome) -> Judgement:
        self.deadline = self.spread.deadline = None if self.seconds == math.inf else Deadline(self.seconds)
        try:
            return self._of(engine, outcome)
        except EvaluationError:
            if self.deadline is None or not self.deadline.has_ended:
                raise
        verdict: Verdict = "undecided" if outcome.status == "ok" else "failed"
        found = _found(outcome.leaves, self.expected) if outcome.status == "ok" else str(outcome)
        return Judgement(engine.name, outcome, verdict, f"{found}; the runs for a verdict took over {self.seconds:g} s")

    def _of(self, engine: Engine, outcome: Outcome) -> Judgement:
        if outcome.status == "unsupported":
            return Judgement(engine.name, outcome, "unsupported", outcome.message)
        if outcome.status != "ok":
            return self._traced(engine, Judgement(engine.name, outcome, "failed", str(outcome)))
        found = _found(outcome.leaves, self.expected)
        if found is None:
            return Judgement(engine.name, outcome, "equal")
        exact = engine.name.partition("@")[0] in EXACT or self._is_of_other_shape(outcome.leaves)
        if not exact:
            why, labels = self._allowed(engine, outcome.leaves)
            if why:
                judgement = Judgement(engine.name, outcome, "allowed", f"{found}: {why}", rules=labels)
                return judgement if labels else self._measured(judgement)
            found = self.spread.near(outcome.leaves, tuple(leaves(self.expected))) or found
        judgement = Judgement(engine.name, outcome, "wrong" if exact else "undecided", found)
        return self._traced(engine, judgement if exact else self._measured(judgement))

    def _is_of_other_shape(self, ours: tuple[Any, ...]) -> bool:
        """Whether a result is not of the types and sizes that the program declares."""
        if any(any(shape.dynamic) for shape in self.module.entry.root.shape.leaves() if shape.is_array):
            return False  # a size may hang on what rounding changes
        return not _are_alike(ours, self.expected)

    def _measured(self, judgement: Judgement) -> Judgement:
        """The judgement with the greatest relative difference, and with what rounding may make of it there."""
        ours, theirs = judgement.outcome.leaves, tuple(leaves(self.expected))
        if not _are_alike(ours, theirs):
            return judgement
        greatest = greatest_difference(ours, theirs)
        if greatest is None:
            return judgement
        size = max(abs(complex(array[greatest.number][greatest.at])) for array in (ours, theirs))
        bound = self.spread.bound(theirs, greatest.number, greatest.at) / size
        told = f" (bound {bound:.2g})" if math.isfinite(bound) else ""
        where = f"of result {greatest.number} at {[*greatest.at]}"
        message = f"{judgement.message}; the greatest relative difference is {greatest.relative:.2g}{told}, {where}"
        return replace(judgement, message=message, difference=greatest.relative, bound=bound if told else None)

    def _traced(self, engine: Engine, judgement: Judgement) -> Judgement:
        """The judgement with what makes the result wrong: a pass, a kernel or an instruction."""
        if not self.bisect:
            return judgement
        blame = engine.blame(self.module, self.arguments)
        verdict: Verdict = judgement.verdict if judgement.verdict == "failed" else "wrong"
        if blame is not None and blame.kind == "pass":
            return replace(judgement, verdict=verdict, guilty=blame.name)
        if judgement.verdict == "failed":
            if isinstance(engine, CommandEngine) and judgement.outcome.status != "error":
                return judgement  # a crash or a hang of the user's own tool
            always = fails_always(engine)
            if always is not None and kind_of(str(always)) == kind_of(str(judgement.outcome)):
                return replace(judgement, message=f"{judgement.message}; {ALWAYS}")
            instruction, what = self._first_failing(engine, kind_of(str(judgement.outcome))), ""
        else:
            seen = self._seen(engine)
            instruction, what = seen.instruction, seen.message
            if seen.failure:
                what = f"the program that returns all values, which would tell the instruction, failed: {seen.failure}"
        kernel = blame.instructions if blame is not None else ()
        message = "; ".join(filter(None, (judgement.message, what or (blame.message if blame is not None else ""))))
        if instruction is None and not kernel:
            return replace(judgement, message=message)
        part = None if blame is None else _part(blame)
        judgement = replace(judgement, verdict=verdict, message=message, kernel=kernel, part=part)
        if instruction is None:
            return judgement
        rules = () if verdict == "failed" else _rules_of(instruction)
        return replace(judgement, instruction=str(computed_by(instruction)), rules=rules)

    def _allowed(self, engine: Engine, ours: tuple[Any, ...]) -> tuple[str, tuple[str, ...]]:
        """Why a result may differ from the reference's, "" if it may not, and the rules that leave it open."""
        theirs = tuple(leaves(self.expected))
        if not _are_alike(ours, theirs):
            return "", ()
        if self.spread.hangs_on_signs(ours, theirs):
            return f"left open by {NAN_BITS}", (NAN_BITS,)
        if self.spread.near(ours, theirs, overflows=False) is None:
            return _ROUNDED, ()
        labels = self._left_open(engine, ours) if is_foreign(engine) else ()
        if labels:
            return f"left open by {' and '.join(labels)}", labels
        return (_ROUNDED, ()) if self.spread.near(ours, theirs) is None else ("", ())

    def _left_open(self, engine: Engine, ours: tuple[Any, ...]) -> tuple[str, ...]:
        """The rules that leave the engine's result open. Where a rule tells of each value whether it allows it, and the
        engine has the same result beside the values that lead to it, these decide; else how far results vary does, or
        each instruction by itself."""
        told = {opcode for opening in OPEN.values() if opening.allows is not None for opcode in opening.opcodes}
        if any(instruction.opcode in told for instruction in self.module.entry.instructions):
            seen = self._seen(engine)
            if seen.result and differs(seen.result, ours) is None:
                if seen.instruction is None and seen.labels:
                    return seen.labels
                if seen.instruction is not None and computed_by(seen.instruction).opcode in told:
                    return ()
        labels = self.spread.rules_that_allow(ours, tuple(leaves(self.expected)))
        if labels:
            return labels
        seen = self._seen(engine)  # an engine may use what a rule leaves open for one instruction and not for another
        is_same = bool(seen.result) and differs(seen.result, ours) is None
        return seen.labels if is_same and seen.instruction is None else ()

    def _seen(self, engine: Engine) -> _Seen:
        """`_values_seen`, once for each engine."""
        if engine.name not in self.seen:
            self.seen[engine.name] = self._values_seen(engine)
        return self.seen[engine.name]

    def _values_seen(self, engine: Engine) -> _Seen:
        """The values of the entry's instructions on the engine beside the reference's of the operands that the engine
        computed. The engine runs the program with all these values as results, so errors do not add up."""
        shown = self.module.clone()
        for computation in shown.all_computations:
            computation.remove_dead()  # a reducer would compute it for each element; the engine may fail to return it
        _with_elements(shown.entry)
        root = shown.entry.root
        kept = _with_all_values(shown)
        outcome = engine.run(shown, self.arguments) if kept else None
        if outcome is not None and outcome.status != "ok":
            return _Seen(failure=str(outcome))
        if outcome is None or len(outcome.leaves) != len(kept) * devices_of(shown):
            return _Seen()  # a stage of a dump gives its own results, whatever it is asked
        place = {instruction: number for number, instruction in enumerate(shown.entry.post_order())}
        foreign = is_foreign(engine)

        def seen(process: Process, arguments: Sequence[Any]) -> _Seen:
            """Those of a device. All go on to the end: others may wait for its values."""
            wrong: Instruction | None = None
            message, labels = "", dict[str, None]()
            values: dict[Instruction, Any] = dict(zip(shown.entry.parameters, arguments, strict=True))
            own = outcome.leaves[process.device * len(kept) : (process.device + 1) * len(kept)]
            given = dict(zip(kept, own, strict=True))
            parts: dict[Instruction, dict[int, Any]] = defaultdict(dict)
            for instruction, value in given.items():
                if isinstance(instruction.op, GetTupleElement):
                    parts[instruction.operands[0]][instruction.op.index] = value
            for instruction in place:
                if self.deadline is not None:
                    self.deadline()
                if instruction.opcode == "parameter" or instruction is shown.entry.root:
                    continue
                operands = [values[o] for o in instruction.operands]
                ours = values[instruction] = interpreter.run_instruction(process, instruction, operands)
                if instruction in given:
                    made_by = computed_by(instruction)
                    operands_of = [values[o] for o in made_by.operands]
                    theirs = values[instruction] = given[instruction]
                    what = difference(instruction, ours, theirs, operands_of)
                    label = ""
                    if what is not None and foreign:
                        label = left_open_by(instruction, operands_of, ours, theirs, parts.get(made_by), self.deadline)
                    if label:
                        labels[label] = None
                    elif what is not None and wrong is None:
                        wrong, message = instruction, what
            return _Seen(wrong, message, tuple(labels), tuple(leaves(values[root])))

        with np.errstate(all="ignore"):
            found = on_each(shown, self.arguments, seen)
        each: list[_Seen] = found if devices_of(shown) > 1 else [found]
        wrong = [(place[one.instruction], n) for n, one in enumerate(each) if one.instruction is not None]
        labels = tuple(dict.fromkeys(label for one in each for label in one.labels))
        result = tuple([leaf for one in each for leaf in one.result])
        first = each[min(wrong)[1]] if wrong else _Seen()
        return _Seen(first.instruction, first.message, labels, result)

    def _first_failing(self, engine: Engine, failure: str) -> Instruction | None:
        """The first instruction of the entry that fails alike by itself, with the operands of the reference; else the
        first up to which the program does. Of programs for several devices it is not looked for."""
        if devices_of(self.module) > 1:
            return None
        for instruction in self.module.entry.post_order():
            if instruction.opcode in _PLAIN:
                continue
            try:
                alone = extracted(self.module, instruction.name, arguments=self.arguments)
            except HlokitError:
                continue  # it does not stand alone
            if kind_of(str(engine.run(alone.module, alone.arguments or ()))) == failure:
                return instruction
        for instruction in self.module.entry.post_order():
            if instruction.opcode in _PLAIN:
                continue
            case = Case(self.module.clone(), list(self.arguments))
            case.module.entry.set_root(next(i for i in case.module.entry.instructions if i.name == instruction.name))
            if not case.finish(keeps_called=True):
                continue
            if kind_of(str(engine.run(case.module, case.arguments or ()))) == failure:
                return instruction
        return None


def kind_of(message: str) -> str:
    """A message without its quotes, names and numbers: the same for the same fault of other programs."""
    return re.sub(r"'[^']*'|[\w\-.%]*\d[\w\-.]*", "N", message.partition("\n")[0])[:200]


def _part(blame: Blame) -> Case | None:
    """The kernel that was found, as a program."""
    if not blame.program:
        return None
    module = parse_hlo(blame.program)
    return Case(module, arguments_from_arrays(module, arrays_in(Path(blame.operands).read_bytes())))


def _are_alike(ours: Any, theirs: Any) -> bool:
    """Whether two results have arrays of the same types and sizes."""
    return [(a.dtype, a.shape) for a in leaves(ours)] == [(a.dtype, a.shape) for a in leaves(theirs)]


def _found(ours: tuple[Any, ...], expected: Any) -> str | None:
    arrays = leaves(expected)
    if len(ours) != len(arrays):
        return f"{counted(len(ours), 'result')}, the reference has {len(arrays)}"
    return differs(ours, tuple(arrays))


def _with_elements(entry: Computation) -> None:
    """Gives the elements of each tuple that an instruction computes; if the root computes one, the tuple of these."""
    get, computed = OPS["get-tuple-element"], [i for i in entry.post_order() if i.opcode not in _PLAIN]
    for instruction in computed:
        if not instruction.shape.is_tuple:
            continue
        elements = [entry.add(get(index=k), [instruction]) for k in range(len(instruction.shape.elements))]
        if instruction is entry.root:
            entry.set_root(entry.add(OPS["tuple"](), elements))


def _with_all_values(module: HloModule) -> list[Instruction]:
    """Makes the entry return every array of its instructions, but parameters and constants; gives them in order."""
    entry = module.entry
    kept = [
        i for i in entry.post_order()
        if i.shape.is_array and not any(i.shape.dynamic) and i.opcode not in _HIDDEN
    ]  # fmt: skip
    if kept:
        module.parameter_layouts = module.result_layout = None
        module.input_output_alias, module.buffer_donor = [], []
        entry.set_root(entry.add(OPS["tuple"](), kept))
        module.settle()  # XLA refuses names that are those of other computations' instructions
    return kept


def _rules_of(instruction: Instruction) -> tuple[str, ...]:
    """Labels of the first rules that say what values the instruction's op gives."""
    cards = " ".join(vars(c).get("rules", "") for c in type(computed_by(instruction).op).__mro__)
    return tuple([rule.label for rule in selected(cards) if rule.kind in "VEI"][:_RULES])
