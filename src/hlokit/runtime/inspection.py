"""Inspection of a compiled program: its text at each stage, its cost, its memory, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlokit.analysis.cost import cost_of_module
from hlokit.cpu.compiler import Program
from hlokit.cpu.jit.objects import assembly, optimised_llvm
from hlokit.cpu.listing import program_text
from hlokit.cpu.lower.buffers import Home
from hlokit.cpu.lower.portion import inner_blocks
from hlokit.cpu.lower.steps import KernelStep, Step, StepBlock
from hlokit.cpu.target import Target
from hlokit.errors import HlokitError
from hlokit.hlo.module import HloModule
from hlokit.runtime.plan import Plan

STAGES = ("hlo", "loops", "llvm", "llvm-opt", "asm")

Reason = tuple[str, str, str]


def stage_text(program: Program, target: Target, stage: str) -> str:
    """The program at a stage of its way: "hlo" after the passes, "loops" of its kernels, "llvm" as it was written,
    "llvm-opt" as code generation gets it, "asm". Raises HlokitError for another name."""
    if stage == "hlo":
        return program.module.to_text()
    if stage == "loops":
        return program_text(program)
    if stage == "llvm":
        return program.text
    if stage == "llvm-opt":
        return optimised_llvm(program.written.module, target)
    if stage == "asm":
        return assembly(program.written.module, target)
    raise HlokitError(f"as_text({stage!r}): one of {', '.join(STAGES)}")


def cost_analysis(module: HloModule) -> dict[str, float]:
    """flops, transcendentals, bytes accessed; those that are 0 too."""
    cost = cost_of_module(module)
    return {
        "flops": float(cost.flops),
        "transcendentals": float(cost.transcendentals),
        "bytes accessed": float(cost.bytes_accessed),
    }


# -- memory


@dataclass(frozen=True)
class LiveRange:
    """A place in memory.

    Attributes
    ----------
    buffers : tuple of str
        The values that lie in it one after the other.
    kind : str
        "argument", "result", "constant" or "arena".
    offset : int
        Bytes from the arena's start; for arguments, results and constants their number.
    nbytes : int
        Its size.
    first, last : str
        The steps between which it is in use, by the names of their instructions.
    begin, end : int
        The same as numbers in the program's order.
    """

    buffers: tuple[str, ...]
    kind: str
    offset: int
    nbytes: int
    first: str
    last: str
    begin: int
    end: int


@dataclass(frozen=True)
class MemoryAnalysis:
    """The memory that a call needs, under the names of JAX's CompiledMemoryStats.

    Attributes
    ----------
    generated_code_size_in_bytes : int
        The machine code.
    argument_size_in_bytes, output_size_in_bytes : int
        All arguments, all results.
    alias_size_in_bytes : int
        The results that overwrite arguments.
    temp_size_in_bytes : int
        The values between, in one arena.
    constant_size_in_bytes : int
        The constants.
    peak_memory_in_bytes : int
        The most that arguments, results, constants and temporaries take together.
    peak_holder : str
        The value that takes most of it then.
    peak_held : int
        The bytes of that value.
    live_ranges : list of LiveRange
        Every place in memory, in the order in which it comes to use.
    """

    generated_code_size_in_bytes: int
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    constant_size_in_bytes: int
    peak_memory_in_bytes: int
    peak_holder: str
    peak_held: int
    live_ranges: list[LiveRange] = field(repr=False)


def memory_analysis(program: Program, plan: Plan) -> MemoryAnalysis:
    """The sizes and lives of the program's buffers."""
    assignment, peak = program.assignment, plan.peak
    return MemoryAnalysis(
        sum(map(len, plan.objects)),
        sum(buffer.nbytes for buffer in program.arguments),
        sum(buffer.nbytes for buffer in program.results),
        sum(program.results[number].nbytes for number in assignment.aliases),
        peak.temporaries,
        sum(literal.shape.nbytes for literal in program.constants),
        peak.total,
        peak.holder,
        peak.held,
        _live_ranges(program),
    )


def memory_text(found: MemoryAnalysis) -> str:
    """A report for people: sizes, then every place with the steps between which it is in use."""
    lines = [f"{name}: {value:,}" for name, value in vars(found).items() if isinstance(value, int)]
    lines += [f"peak_holder: {found.peak_holder}", "", "begin..end; bytes; place; values; first to last use"]
    for one in found.live_ranges:
        place = f"{one.kind} {'+' if one.kind == 'arena' else ''}{one.offset}"
        values = ", ".join(one.buffers)
        lines.append(f"{one.begin}..{one.end}; {one.nbytes:,}; {place}; {values}; {one.first} to {one.last}")
    return "\n".join(lines) + "\n"


def _live_ranges(program: Program) -> list[LiveRange]:
    assignment = program.assignment
    at: dict[int, str] = {}
    for step in _steps(program.block):
        for time in assignment.times.get(step, ()):
            at[time] = step.name
    last = max(at, default=0)

    def lived(home: Home) -> LiveRange:
        begin, end = max(0, home.first), min(last, home.last)
        whole = home.first < 0, home.last > last
        names = tuple(buffer.name for buffer in home.buffers)
        first = "the call" if whole[0] else at.get(begin, "")
        return LiveRange(
            names, home.kind, home.offset, home.nbytes, first, "the return" if whole[1] else at.get(end, ""), begin, end
        )

    homes = dict.fromkeys(home for home in assignment.homes.values() if home.last >= 0 or home.kind != "arena")
    return sorted((lived(home) for home in homes), key=lambda r: (r.begin, r.kind != "argument", r.offset))


def _steps(block: StepBlock) -> list[Step]:
    return [s for step in block.steps for s in (step, *(i for b in inner_blocks(step) for i in _steps(b)))]


# -- reasons


def reasons(program: Program, notes: Sequence[str], recompiled: Sequence[str]) -> list[Reason]:
    """(instruction, what, why): what was not fused, not compiled, copied; the order of each kernel's loops; why it was
    compiled anew, at a lower level."""
    found = list(program.context.reasons.entries)
    for _, assignment in program.blocks:
        found += [(name, "copied", f"{size} bytes: {why}") for name, size, why in assignment.copies]
    found += [(program.module.name, "lower level", note) for note in notes]
    found += [(program.module.name, "recompiled", why) for why in recompiled]
    for step in (step for block, _ in program.blocks for step in _steps(block)):
        if isinstance(step, KernelStep):
            found += [(step.name, what, why) for what, why in _of_loops(step)]
    return found


def _of_loops(step: KernelStep) -> list[tuple[str, str]]:
    loops = step.loops
    order = " > ".join(f"{axis.name}:{axis.extent}" for axis in loops.order) or "one element"
    found = [("loop order", order)]
    if loops.serial:
        names = ", ".join(axis.name for axis in loops.order if axis.bit & loops.serial)
        found.append(("in order", f"a later step along {names} may read or write what an earlier one wrote"))
    if loops.vector is not None:
        found.append(("vector axis", f"{loops.vector.name}: the cheapest reads and writes, {loops.lanes} lanes"))
    elif loops.order:
        inner = [fold for fold, axis in loops.folds.items() if axis is not None]
        why = "the folds inside are vectorised" if inner else "no axis has four steps, a free order and cheaper reads"
        found.append(("no vector axis", why))
    if loops.chunks > 1:
        found.append(("chunks", f"{loops.chunks}: {loops.work / 1e3:.1f} us of work by estimate"))
    elif loops.order:
        small = f"{loops.work / 1e3:.1f} us of work by estimate"
        found.append(("one thread", small if loops.work < 8000.0 else "no outer axis may be divided among threads"))
    if loops.streamed:
        found.append(("stores past the caches", "the data that it accesses are larger than the caches"))
    return found
