"""The kernels of a program, by the instructions that each computes and a digest of its LLVM text with all it calls."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import hlokit as hk
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.lower.portion import portions
from hlokit.cpu.target import host


def digests(module: hk.HloModule, strict: bool) -> list[tuple[str, ...]]:
    """For each kernel the digest, then the names of its instructions."""
    program = compile_program(module, host(), strict=strict)
    functions = program.written.module.functions
    found: list[tuple[str, ...]] = []
    for step, portion in portions(program.block):
        prepared = program.prepared.get(step)
        stack = [name for name, _ in prepared.phases] if prepared is not None else []
        reached = dict.fromkeys(stack)
        while stack:
            new = [n for n in functions[stack.pop()].symbols if n in functions and n not in reached]
            reached |= dict.fromkeys(new)
            stack += new
        digest = sha256("".join(functions[name].text() for name in reached).encode()).hexdigest()
        found.append((digest, *portion.fused))
    return found


def answer() -> None:
    """Prints those of each program whose file name and strictness come in, as a line of JSON."""
    for line in sys.stdin:
        path, strict = json.loads(line)
        try:
            found = digests(hk.parse(Path(path).read_text(encoding="utf-8")), strict)
        except Exception:  # a fault may be an exception as well
            found = []
        print(json.dumps(found), flush=True)
