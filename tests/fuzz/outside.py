"""Compares random modules with XLA:CPU: python -m tests.fuzz.outside --python JAXLIB_PYTHON --count 2000 [--seed 0].

Every array that an instruction of the entry computation makes is a result of the program that XLA runs; then each
instruction's reference is evaluated on the operands *that XLA computed*, so errors do not add up and the instruction
to blame is known. Prints a line per kind of difference, with a seed. Exit status 1 if something differs.
"""

from __future__ import annotations

import argparse
import base64
import json
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.process import Process
from hlokit.judge.closeness.bounds import difference
from hlokit.judge.fuzz.graph import ALL_TYPES, Options
from hlokit.judge.fuzz.programs import random_draw
from hlokit.judge.fuzz.values import arguments
from hlokit.proto.module import module_to_proto
from tests.fuzz.jaxlib_values import pack, unpack

CHILD = Path(__file__).with_name("jaxlib_runner.py")
OPCODES = frozenset(hk.OPS) - {"rng", "rng-get-and-update-state", "dynamic-reshape", "ragged-dot"}
TYPES = tuple(t for t in ALL_TYPES if t not in ("s1", "u1"))
"""jaxlib's client has no arrays of one bit."""


class Xla:
    """A jaxlib in a process of its own, started anew when it crashes."""

    def __init__(self, python: str, seconds: int = 60) -> None:
        self.python, self.seconds = python, seconds
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz"))
        self.child: subprocess.Popen[str] | None = None

    def run(self, module: hk.HloModule, inputs: Sequence[Any]) -> list[Any] | str:
        """The results, or an error message ("crash" if the process died or hung)."""
        source, target = self.folder / "in.npz", self.folder / "out.npz"
        pack(source, inputs)
        if self.child is None or self.child.poll() is not None:
            self._start()
        assert self.child is not None and self.child.stdin is not None
        try:
            proto = base64.b64encode(module_to_proto(module)).decode()  # jaxlib's text loses the sign of -0 (HLIT-8)
            self.child.stdin.write(json.dumps(["", proto, str(source), str(target)]) + "\n")
            self.child.stdin.flush()
            for _ in ("begin", "end"):
                line = self.lines.get(timeout=self.seconds)
                if not line:
                    raise BrokenPipeError
            answer = json.loads(line)[1]
        except (BrokenPipeError, queue.Empty):
            self.close()
            return "crash"
        return answer if answer is not None else unpack(target)

    def _start(self) -> None:
        command = [self.python, str(CHILD)]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self.child, self.lines), daemon=True).start()

    @staticmethod
    def _read(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put("")

    def close(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None


@dataclass(frozen=True)
class Difference:
    """An instruction of which XLA gives something else."""

    opcode: str
    types: str
    what: str
    instruction: str


def shown(module: hk.HloModule) -> list[Instruction]:
    """Makes the entry return every array of its instructions, but parameters and constants; gives them in order."""
    entry = module.entry
    kept = [
        i for i in entry.post_order()
        if i.shape.is_array and not i.shape.is_dynamic and i.opcode not in ("parameter", "constant")
    ]  # fmt: skip
    entry.set_root(entry.add(hk.OPS["tuple"](), kept, name="everything"))
    return kept


def compare(seed: int, xla: Xla, options: Options) -> tuple[list[Difference], str]:
    """The differences in one module, and what became of it: compared, or XLA's error."""
    module = random_draw(seed, options).module
    kept = shown(module)
    if not kept:
        return [], "nothing to compare"
    inputs = arguments(module, seed, options.wild, options.denormals)
    results = xla.run(module, inputs)
    if isinstance(results, str):
        return [], results
    values: dict[Instruction, Any] = dict(zip(module.entry.parameters, inputs, strict=True))
    given = dict(zip(kept, results, strict=True))
    found: list[Difference] = []
    process = Process()
    with np.errstate(all="ignore"):
        for instruction in module.entry.post_order():
            if instruction.opcode == "parameter" or instruction.name == "everything":
                continue
            operands = [values[o] for o in instruction.operands]
            ours = interpreter.run_instruction(process, instruction, operands)
            values[instruction] = ours
            if instruction not in given:
                continue
            what = difference(instruction, ours, given[instruction], _inputs(instruction, values))
            if ours.shape == given[instruction].shape and ours.dtype == given[instruction].dtype:
                values[instruction] = given[instruction]
            if what:
                types = ",".join(dict.fromkeys(str(o.shape.dtype) for o in instruction.operands))
                found.append(Difference(_blamed(instruction), types, what, str(instruction)))
    return found, "compared"


def _inputs(instruction: Instruction, values: dict[Instruction, Any]) -> list[Any]:
    """The operands' values; of an element of a tuple, those of the op that made the tuple."""
    while instruction.opcode == "get-tuple-element":
        instruction = instruction.operands[0]
    return [values[o] for o in instruction.operands]


def _blamed(instruction: Instruction) -> str:
    """The opcode; for an element of a tuple, the op that made the tuple."""
    while instruction.opcode == "get-tuple-element":
        instruction = instruction.operands[0]
    return instruction.opcode


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.outside", description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with jax and jaxlib 0.10")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--opcodes", help="only these, separated by commas")
    parser.add_argument("--types", help="only these element types")
    parser.add_argument("--all", action="store_true", help="print every difference, not one of each kind")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--wild", type=float, default=0.0, help="chance of infinity, NaN and the like in an input")
    parser.add_argument("--dynamic", action="store_true", help="with dynamic dimensions")
    given = parser.parse_args(arguments)
    options = Options(
        instructions=6, dynamic=given.dynamic, identities=True, depth=2, wild=given.wild, denormals=False,
        opcodes=frozenset(given.opcodes.split(",")) if given.opcodes else OPCODES,
        types=tuple(given.types.split(",")) if given.types else TYPES,
    )  # fmt: skip
    start, xla = time.perf_counter(), Xla(given.python)
    outcomes, kinds = Counter[str](), Counter[str]()
    examples: dict[str, str] = {}
    for seed in range(given.seed, given.seed + given.count):
        if time.perf_counter() - start > given.seconds:
            break
        try:
            found, outcome = compare(seed, xla, options)
        except Exception as error:
            found, outcome = [Difference("?", "", f"{type(error).__name__}: {error}", "")], "broken"
        outcome = re.sub(r"[\w\-.]*\d[\w\-.]*", "N", outcome)[:160]
        outcomes[outcome] += 1
        examples.setdefault(outcome, f"seed {seed}")
        for one in found:
            kind = f"{one.opcode} of {one.types}: {re.sub(r'[-+]?[0-9][^ ]*', 'N', one.what)[:60]}"
            kinds[kind] += 1
            examples.setdefault(kind, f"seed {seed}: {one.what}\n          {one.instruction[:300]}")
            if given.all:
                print(f"seed {seed}: {one.what}\n          {one.instruction[:300]}")
    xla.close()
    for kind, count in sorted(kinds.items()):
        print(f"{count:5} {kind}\n          {examples[kind]}")
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome!r}, e.g. {examples[outcome]}")
    print(f"{sum(outcomes.values())} modules, {sum(kinds.values())} differences, {time.perf_counter() - start:.1f} s")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
