"""The data of a viewer's page, as JSON. Strings are kept once, in a table; everything else says their numbers.

    format   2 when a reader of 1 would misunderstand it
    stages   the program as it was given and after each pass: columns with an entry for each instruction, in printing
             order: name, opcode, shape, text, scope, source, sharding (strings), operands and called (numbers of
             instructions and computations); `origins`: pairs of (instruction of the stage before, mark)
    code     the steps, the listing of loops with the step and the instructions of each line, LLVM text and assembly
    communication  of a divided program, by the names of collectives: what asked for each, why, and what would avoid it
    memory   the places in memory and the steps between which they are in use
    profile  times, bytes and operations of each step
    diff     two programs line by line; their graphs, if they are there, are the stages, with `kinds` of differences
    notes    more lines of an instruction's details, by stage and instruction: a debugger puts values here
    rules    for each opcode what it does, and its rules
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from hlokit.analysis.cost import costs_of_instructions
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Lineage, Mark
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS
from hlokit.rules import selected
from hlokit.text.printer import PrintOptions, instruction_text

if TYPE_CHECKING:
    from hlokit.passes.partitioner.reasons import Reason
    from hlokit.runtime.executable import Executable
    from hlokit.runtime.profile import Profile

Json: TypeAlias = "dict[str, Any]"

FORMAT = 1
_LINE = 2000
"""Characters of an instruction's text that are shown."""
_CODE = 2_000_000
"""Characters of LLVM text or assembly that are put in."""
_OPTIONS = PrintOptions(print_metadata=False)


@dataclass
class Strings:
    """Numbers of strings."""

    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


class PageData:
    """The contents of a page, put together piece by piece; `json()` gives all of it.

    title     the page's
    """

    def __init__(self, title: str) -> None:
        self.strings = Strings()
        self._numbers: list[dict[Instruction, int]] = []
        self._opcodes: set[str] = set()
        self._data: Json = {"format": FORMAT, "title": title, "stages": []}

    def json(self) -> Json:
        """All of it, as JSON has it."""
        return {
            **self._data,
            "rules": {opcode: _card(opcode) for opcode in sorted(self._opcodes)},
            "strings": list(self.strings.numbers),
        }

    def numbers(self, stage: int) -> Mapping[Instruction, int]:
        """The numbers of the instructions of a stage."""
        return self._numbers[stage]

    def stage(
        self,
        name: str,
        module: HloModule,
        origins: Mapping[Instruction, Mapping[Instruction, Mark]] | None = None,
        kinds: Mapping[Instruction, str] | None = None,
    ) -> None:
        """One more state of the program.

        `origins`: of its instructions among those of the state before. `kinds`: how each differs from there ("same",
        "changed", "moved", "b": new), where that is known better than by the origins.
        """
        number, computations = self.strings.number, module.computations()
        order = [i for c in computations for i in c.post_order()]
        numbers = {instruction: n for n, instruction in enumerate(order)}
        places = {c: n for n, c in enumerate(computations)}
        before = self._numbers[-1] if self._numbers else {}
        self._numbers.append(numbers)
        self._opcodes.update(i.opcode for i in order)
        costs = costs_of_instructions(module)
        first, made = 0, list[Any]()
        for c in computations:
            made.append([number(c.name), first, len(c), numbers[c.root], c is module.entry])
            first += len(c)
        stage: Json = {
            "pass": name,
            "computations": made,
            "name": [number(i.name) for i in order],
            "opcode": [number(i.opcode) for i in order],
            "shape": [number(str(i.shape)) for i in order],
            "text": [number(_shortened(instruction_text(i, _OPTIONS))) for i in order],
            "scope": [number(_scope(i)) for i in order],
            "source": [number(_source(i, module)) for i in order],
            "sharding": [number(_sharding(i)) for i in order],
            "operands": [[numbers[o] for o in i.operands] for i in order],
            "called": {numbers[i]: [places[c] for c in i.called] for i in order if i.called},
            "flops": {numbers[i]: costs[i].flops for i in order if costs[i].flops},
            "moved": {numbers[i]: i.shape.nbytes for i in order if i.op.form == "communicate"},
        }
        if origins is not None:
            stage["origins"] = [[x for old, m in origins[i].items() for x in (before[old], int(m))] for i in order]
        if kinds is not None:
            stage["kinds"] = [kinds.get(i, "b") for i in order]
        self._data["stages"].append(stage)

    def passes(self, lineage: Lineage) -> None:
        """The program at each stage of a lineage."""
        for n, stage in enumerate(lineage.stages):
            self.stage(stage.name, stage.module, stage.origins if n else None)

    def code(self, executable: Executable) -> None:
        """The stages of compilation, machine code and memory."""
        lineage = executable.lineage
        self.passes(lineage.passes)
        numbers = {i.name: n for i, n in self._numbers[-1].items()}

        def known(instructions: Iterable[Instruction]) -> list[int]:
            return [numbers[i.name] for i in instructions if i.name in numbers]

        self._data["code"] = {
            "target": executable.target.cpu,
            "steps": [
                {
                    "name": s.name, "kind": s.kind, "functions": s.functions, "instructions": known(s.instructions),
                    "results": known(s.results), "reads": s.reads, "writes": s.writes, "around": s.around,
                }
                for s in lineage.steps
            ],
            "loops": [[line.text, line.step, known(line.instructions)] for line in lineage.lines],
            "llvm": _cut(executable.as_text("llvm")),
            "asm": _cut(executable.as_text("asm")),
            "buffers": {name: known(instructions) for name, instructions in lineage.buffers.items()},
            "reasons": [list(reason) for reason in executable.reasons],
        }  # fmt: skip
        memory = executable.memory_analysis()
        self._data["memory"] = {
            "peak": memory.peak_memory_in_bytes, "holder": memory.peak_holder, "held": memory.peak_held,
            "ranges": [
                [list(r.buffers), r.kind, r.offset, r.nbytes, r.begin, r.end, r.first, r.last]
                for r in memory.live_ranges
            ],
        }  # fmt: skip

    def communication(self, reasons: Iterable[Reason]) -> None:
        """Why a divided program communicates."""
        self._data["communication"] = {
            r.collective: {
                "bytes": r.nbytes, "op": r.op, "opcode": r.opcode, "axes": ", ".join(map(str, r.axes)),
                "value": r.value, "before": r.before, "after": r.after, "because": r.because, "advice": r.advice,
            }
            for r in reasons if r.collective
        }  # fmt: skip

    def profile(self, profile: Profile) -> None:
        """The times of a profile's steps."""
        limits = profile.limits
        self._data["profile"] = {
            "total": profile.total, "threads": profile.threads,
            "limits": {"memory": limits.memory, "cached": limits.cached, "flops": limits.flops},
            "steps": [
                {
                    "name": s.name, "kind": s.kind, "around": s.around, "seconds": s.seconds, "runs": s.runs,
                    "bytes": s.bytes, "flops": s.flops, "bandwidth": limits.bandwidth(s.bytes),
                    "instructions": s.instructions,
                }
                for s in profile.steps
            ],
        }  # fmt: skip

    def diff(self, diffs: Sequence[Json]) -> None:
        """Programs side by side: each with a title, a summary, changes, and computations of rows.

        A row is a kind, both lines, what differs, and the numbers of both instructions in the two stages, or -1.
        """
        self._data["diff"] = list(diffs)

    def note(self, stage: int, instruction: Instruction, lines: Sequence[tuple[str, str]]) -> None:
        """More (what, text) lines among the details of an instruction of a stage."""
        notes = self._data.setdefault("notes", {}).setdefault(str(stage), {})
        notes.setdefault(str(self._numbers[stage][instruction]), []).extend(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}... ({len(text):,} characters)"


def _cut(text: str) -> str:
    return text if len(text) <= _CODE else f"{text[:_CODE]}\n... ({len(text):,} characters)"


def _scope(instruction: Instruction) -> str:
    metadata = instruction.extra.metadata if instruction.extra is not None else None
    return metadata.op_name if metadata is not None else ""


def _source(instruction: Instruction, module: HloModule) -> str:
    """The user's lines, the innermost first: of the metadata, or of the module's tables of frames."""
    metadata = instruction.extra.metadata if instruction.extra is not None else None
    if metadata is None:
        return ""
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    tables, found, frame = module.stack_tables, list[str](), metadata.stack_frame_id
    while 0 < frame <= len(tables.stack_frames) and len(found) < 8:
        row = tables.stack_frames[frame - 1]
        location = tables.file_locations[row["file_location_id"] - 1]
        found.append(f"{tables.file_names[location['file_name_id'] - 1]}:{location['line']}")
        frame = row.get("parent_frame_id", 0)
    return "\n".join(found)


def _sharding(instruction: Instruction) -> str:
    sharding = instruction.extra.sharding if instruction.extra is not None else None
    return str(sharding) if sharding is not None else ""


def _card(opcode: str) -> Json:
    op = OPS[opcode]
    text = re.split(r"\n\s*\n", inspect.getdoc(op) or "")[0]
    cards = " ".join(vars(c).get("rules", "") for c in reversed(op.__mro__))
    rules = [[rule.label, rule.text] for rule in selected(cards) if rule.kind in "SVCEIA"]
    return {"text": text, "rules": rules}
