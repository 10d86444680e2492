"""Faults put into hlokit by a seed, and what the judge makes of them: python -m tests.judge.faults --out FOLDER.

Each is a small edit of the code of a pass, a kernel or a reference (edits_of_code.py), in a process of its own
(faulty.py). Drawn are those whose line some programs of the pool run and others do not; of these the ones count that
change a result. Then `compare_engines` must find the fault and name the right pass, kernel or instruction, and
`reduce_module` must end at 10 instructions or fewer within 60 seconds of processor time, the engine's included. FOLDER
keeps all that was found: the same command goes on where it was ended, and with --again judges again what failed. A
fault's name and its place in the draw hang on the edit and the lines beside it, so that changes elsewhere keep both.

What is right is found without the judge: the passes, or the instructions, that run the edited line; the kernels whose
LLVM text is another with the fault.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.target import host
from hlokit.errors import HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.process import Process
from hlokit.judge.closeness.equality import is_floating, is_nan, leaves
from hlokit.judge.compare.comparing import Comparison, Judgement, compare_engines
from hlokit.judge.compare.least import least
from hlokit.judge.engines.engine import WorkerEngine
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.extract import extracted
from hlokit.judge.fuzz.graph import USUAL_TYPES, Options
from hlokit.judge.fuzz.programs import random_draw
from hlokit.judge.fuzz.shapes import shaped_draw
from hlokit.judge.fuzz.values import arguments
from hlokit.judge.reduce.case import Case
from hlokit.passes.pipeline import DEFAULT
from tests.fuzz.properties import MEMORY
from tests.judge import FAULT_SEED
from tests.judge.edits_of_code import Edit, edits
from tests.judge.kernels import digests

SOURCE = Path(hk.__file__).parent
FOLDERS = {
    "pass": ("passes",),
    "kernel": ("cpu/kernels", "cpu/emit", "cpu/loops", "cpu/math"),
    "reference": ("ops",),
}
ENGINES = {"pass": "passes", "kernel": "compiled", "reference": "reference"}
COUNTS = {"pass": 67, "kernel": 67, "reference": 66}
_PROGRAMS = 120
_TRIED = 6
"""Programs that are tried for each edit."""
_LIMIT = 60.0
_SMALL = 10

Lines = set[tuple[str, int]]


@dataclass
class Program:
    """A program of the pool, its right results, and the lines that it runs: of each pass, kernel or instruction."""

    name: str
    module: hk.HloModule
    inputs: list[Any]
    expected: Any
    compiled: Any
    lines: dict[str, dict[str, Lines]] = field(default_factory=dict[str, dict[str, Lines]])

    def runs(self, kind: str, edit: Edit) -> set[str]:
        """The passes or instructions that run the edit's line; of kernels the program itself."""
        return {name for name, found in self.lines[kind].items() if _has(found, edit)}


def _has(found: Lines, edit: Edit) -> bool:
    return any((edit.mutant.file, line) in found for line in range(edit.first, edit.last + 1))


@contextmanager
def watched(folders: Sequence[str]) -> Generator[Lines]:
    """The lines of files in these folders of hlokit that run inside."""
    roots = tuple(str(SOURCE / folder) for folder in folders)
    found: Lines = set()
    known: dict[CodeType, str] = {}

    def local(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            found.add((known[frame.f_code], frame.f_lineno))
        return local

    def enter(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code not in known:
            inside = code.co_filename.startswith(roots)
            known[code] = str(Path(code.co_filename).relative_to(SOURCE)) if inside else ""
        return local if known[code] else None

    before = sys.gettrace()
    sys.settrace(enter)
    threading.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


# -- the pool


def pool() -> list[Program]:
    """Programs that run on all engines, with what each runs."""
    found: list[Program] = []
    usual = Options(types=USUAL_TYPES, dynamic=False, layouts=False, wild=0.05, denormals=False, identities=True)
    for seed in range(_PROGRAMS):
        module = (random_draw(seed, usual) if seed % 3 == 2 else shaped_draw(seed)).module
        if any(i.opcode in ("rng", "rng-get-and-update-state") for i in module.instructions()):
            continue
        inputs = arguments(module, seed, 0.02, False)
        try:
            expected = hk.evaluate(module, *inputs, memory_limit=MEMORY)
            program = Program(f"{seed}", module, inputs, expected, hk.compile(module)(*inputs))
        except HlokitError:
            continue
        program.lines = {"pass": _passes(module), "kernel": _kernels(module), "reference": _references(program)}
        found.append(program)
    return found


def _passes(module: hk.HloModule) -> dict[str, Lines]:
    found: dict[str, Lines] = defaultdict(set)
    for name in DEFAULT:
        with watched(FOLDERS["pass"]) as lines:
            module = hk.optimize(module, [name])
        found[name] |= lines
    return found


def _kernels(module: hk.HloModule) -> dict[str, Lines]:
    with watched(FOLDERS["kernel"]) as lines:
        compile_program(module, host())
    return {"": lines}


def _references(program: Program) -> dict[str, Lines]:
    values: dict[Instruction, Any] = dict(zip(program.module.entry.parameters, program.inputs, strict=True))
    process, found = Process(), dict[str, Lines]()
    with np.errstate(all="ignore"):
        for instruction in program.module.entry.post_order():
            if instruction.opcode != "parameter":
                operands = [values[o] for o in instruction.operands]
                with watched(FOLDERS["reference"]) as lines:
                    values[instruction] = interpreter.run_instruction(process, instruction, operands)
                found[instruction.name] = lines
    return found


# -- a fault


class FaultyEngine(WorkerEngine):
    """An engine of hlokit with the fault in it."""

    def __init__(self, kind: str, fault: Path, seconds: float) -> None:
        super().__init__(
            ENGINES[kind], [sys.executable, "-m", "tests.judge.faulty", str(fault), ENGINES[kind]], seconds, 0
        )


def processor_time(engine: WorkerEngine) -> float:
    """Seconds that this process, those that have ended, and the engine's have run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = time.process_time() + ended.ru_utime + ended.ru_stime
    if engine.child is None or engine.child.poll() is not None:
        return taken
    try:
        fields = Path(f"/proc/{engine.child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:  # it ends just now
        return taken
    return taken + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_changed(outcome: Outcome, right: Any) -> bool:
    """Whether a result is plainly another: no rounding, and nothing of the judge's, is in it."""
    if outcome.status != "ok":
        return outcome.status != "unsupported"
    for a, b in zip(outcome.leaves, leaves(right), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return True
        if not is_floating(a.dtype) and a.dtype.kind != "c":
            if (a != b).any():
                return True
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        room = 0.2 if a.dtype.itemsize < 4 else 1e-2
        with np.errstate(all="ignore"):
            close: Any = np.isclose(a.astype(wide), b.astype(wide), room, 1e-5, equal_nan=True)
        if not (close | (is_nan(a) & is_nan(b))).all():
            return True
    return False


def judged(kind: str, edit: Edit, programs: Sequence[Program], folder: Path) -> dict[str, Any]:
    """What the judge makes of a fault, or that no program shows it."""
    name = "hlokit." + edit.mutant.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    path = folder / "fault.json"
    path.write_text(json.dumps({"module": name, "source": edit.mutant.new}), encoding="utf-8")
    record: dict[str, Any] = {"kind": kind, "name": edit.name, "where": edit.where}
    covering = [p for p in programs if p.runs(kind, edit)]
    with FaultyEngine(kind, path, 15.0) as engine:
        for program in covering[:_TRIED]:
            right = program.compiled if kind == "kernel" else program.expected
            outcome = engine.run(program.module, program.inputs)
            if is_changed(outcome, right):
                break
        else:
            return {**record, "shown": False}
        start = processor_time(engine)
        comparison = compare_engines(program.module, program.inputs, [engine])
        (judgement,) = comparison.judgements
        record |= {
            "shown": True, "program": program.name, "status": outcome.status, "verdict": judgement.verdict,
            "guilty": judgement.guilty, "kernel": list(judgement.kernel), "instruction": judgement.instruction[:200],
            "message": judgement.message[:200], "judged": round(processor_time(engine) - start, 1),
        }  # fmt: skip
        record["right"] = judgement.is_finding and _is_right(kind, edit, program, judgement, path)
        return record | _reduced(comparison, engine)


def _is_right(kind: str, edit: Edit, program: Program, judgement: Judgement, path: Path) -> bool:
    """Whether what is named runs the edited line, or is a kernel that the edit changes."""
    instruction = judgement.instruction.removeprefix("ROOT ").split(" ")[0].removeprefix("%")
    if kind == "pass":
        return judgement.guilty in program.runs(kind, edit)
    if kind == "reference":
        return instruction in program.runs(kind, edit)
    if judgement.kernel:
        before = {tuple(kernel) for kernel in digests(program.module, False)}
        changed = [kernel for kernel in _digests(path, program.module) if tuple(kernel) not in before]
        return list(judgement.kernel) in [list(kernel[1:]) for kernel in changed]
    if not instruction or judgement.verdict != "failed":
        return False
    try:
        if _has(_kernels(extracted(program.module, instruction).module)[""], edit):
            return True
    except HlokitError:
        pass
    order = [i.name for i in program.module.entry.post_order() if i.opcode not in ("tuple", "get-tuple-element")]
    before = order[order.index(instruction) - 1]
    return _has(_up_to(program, instruction), edit) and not _has(_up_to(program, before), edit)


def _up_to(program: Program, name: str) -> Lines:
    """The lines that make the kernels of a program up to an instruction."""
    case = Case(program.module.clone())
    case.module.entry.set_root(next(i for i in case.module.entry.instructions if i.name == name))
    return _kernels(case.module)[""] if case.finish() else set()


def _digests(path: Path, module: hk.HloModule) -> list[list[str]]:
    text = path.with_name("program.hlo")
    text.write_text(module.to_text("short_parsable"), encoding="utf-8")
    command = [sys.executable, "-m", "tests.judge.faulty", str(path), "texts"]
    asked = json.dumps([str(text), False]) + "\n"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def _reduced(comparison: Comparison, engine: WorkerEngine) -> dict[str, Any]:
    """How far the program goes down while it shows the finding."""
    (judgement,) = comparison.judgements
    engine.seconds = 5.0

    def clock() -> float:
        return processor_time(engine)

    start = clock()
    try:
        found = least(comparison, judgement, engine, _LIMIT, clock)
    except HlokitError as error:
        return {"size": 0, "seconds": 0.0, "reduced": str(error)}
    size = sum(len(c) for c in found.module.all_computations)
    return {
        "from": sum(len(c) for c in comparison.module.all_computations), "size": size, "tries": found.tries,
        "seconds": round(clock() - start, 1), "reduced": found.module.to_text("short_parsable")[:2000],
    }  # fmt: skip


# -- the draw


def drawn(kind: str, programs: Sequence[Program]) -> list[Edit]:
    """The edits of a kind that some programs run and others do not, in the order of the seed."""
    some: Counter[tuple[str, int]] = Counter()
    for program in programs:
        some.update(set[tuple[str, int]]().union(*program.lines[kind].values()))
    found = [
        edit for edit in edits(SOURCE, FOLDERS[kind])
        if any(0 < some[edit.mutant.file, line] < len(programs) for line in range(edit.first, edit.last + 1))
    ]  # fmt: skip
    return sorted(found, key=lambda edit: sha256(f"{FAULT_SEED} {kind} {edit.name}".encode()).digest())


def _is_small(record: dict[str, Any]) -> bool:
    return 0 < record["size"] <= _SMALL and record["seconds"] <= _LIMIT


def table(records: Sequence[dict[str, Any]]) -> str:
    """The figures of each kind."""
    lines = [f"{'':10} {'drawn':>6} {'shown':>6} {'found':>6} {'named':>6} {'<= 10':>6}  seconds (median, most)"]
    for kind in FOLDERS:
        own = [r for r in records if r["kind"] == kind]
        shown = [r for r in own if r["shown"]]
        named = sum(r["right"] for r in shown)
        found = sum(r["verdict"] in ("wrong", "undecided", "failed") for r in shown)
        small = sum(map(_is_small, shown))
        times = sorted(r.get("seconds", 0.0) for r in shown) or [0.0]
        middle, most = times[len(times) // 2], times[-1]
        lines.append(f"{kind:10} {len(own):6} {len(shown):6} {found:6} {named:6} {small:6}  {middle:.0f}, {most:.0f}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge.faults", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder that keeps what is found")
    parser.add_argument("--count", type=int, default=200, help="faults in all, a third of each kind")
    parser.add_argument("--kind", choices=FOLDERS, help="only these")
    parser.add_argument("--again", action="store_true", help="judge those again that were not named or not reduced")
    parser.add_argument("--table", action="store_true", help="only print what was found")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / "faults.jsonl"
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    kinds = [given.kind] if given.kind else list(FOLDERS)
    if given.again:
        records = _again(given.out, log, records, kinds)
    elif not given.table:
        _run(given.out, log, records, given.count, kinds)
    print(table(records))
    return 0


def _run(out: Path, log: Path, records: list[dict[str, Any]], count: int, kinds: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    programs = pool()
    queues = {kind: drawn(kind, programs) for kind in kinds}
    print(f"{len(programs)} programs; edits: " + ", ".join(f"{len(q)} {k}" for k, q in queues.items()), flush=True)
    wanted = {kind: round(COUNTS[kind] * count / 200) for kind in kinds}
    done = {(r["kind"], r["name"]) for r in records}
    left = {kind: iter([e for e in queue if (kind, e.name) not in done]) for kind, queue in queues.items()}
    while kinds:
        kinds = [k for k in kinds if sum(r["kind"] == k and r["shown"] for r in records) < wanted[k]]
        for kind in list(kinds):
            edit = next(left[kind], None)
            if edit is None:
                kinds.remove(kind)
                wanted[kind] = 0
                continue
            records.append(_told(judged(kind, edit, programs, out), edit))
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1]) + "\n")


def _again(out: Path, log: Path, records: Sequence[dict[str, Any]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The records, with new ones for the faults that show and are not named or not reduced."""
    warnings.simplefilter("ignore")
    programs = pool()
    of_name = {kind: {edit.name: edit for edit in edits(SOURCE, FOLDERS[kind])} for kind in kinds}
    found = list(records)
    for place, record in enumerate(records):
        if record["kind"] not in kinds or not record["shown"] or (record["right"] and _is_small(record)):
            continue
        edit = of_name[record["kind"]].get(record["name"])
        if edit is None:
            print(f"{record['kind']}: gone: {record['where']}", flush=True)
            continue
        found[place] = _told(judged(record["kind"], edit, programs, out), edit)
        log.write_text("".join(json.dumps(r) + "\n" for r in found), encoding="utf-8")
    return found


def _told(record: dict[str, Any], edit: Edit) -> dict[str, Any]:
    told = {k: v for k, v in record.items() if k not in ("reduced", "instruction", "message")}
    print(told if record["shown"] else f"{record['kind']}: no program shows {edit.where}", flush=True)
    return record


if __name__ == "__main__":
    sys.exit(main())
