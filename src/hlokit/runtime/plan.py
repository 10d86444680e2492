"""Plan: everything that is needed to run a program, and how it is stored in the persistent cache.

A plan is found by the program's text, so that a hit costs neither passes nor code generation. What the cache keeps is
a line of JSON, then the bytes of constants other than large ones of the module's own; objects are entries by name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.cpu.jit.cache import Cache, Key, compiled_objects, objects_key, stored_objects
from hlokit.cpu.jit.objects import ObjectCode
from hlokit.cpu.kernels.linalg import LAPACK
from hlokit.cpu.target import ALIGNMENT, Target
from hlokit.hlo.module import HloModule
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.registry import find_target
from hlokit.ops.structure import Constant
from hlokit.runtime import interrupt, long_kernels, on_stack
from hlokit.text.printer import PrintOptions
from hlokit.types.literal import Literal

if TYPE_CHECKING:
    from hlokit.cpu.compiler import Program
    from hlokit.hlo.instruction import Instruction

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peak:
    """Bytes that a call needs at most, those of arguments, results and constants among them.

    holder, held   the value that takes most of them at that time, and its bytes
    """

    total: int
    temporaries: int
    holder: str
    held: int


@dataclass(frozen=True)
class Plan:
    """All that a call needs.

    constants   where the entry's constants are, in order
    aliases     result leaf -> argument leaf over which it is written
    overwritten argument leaves that are written to, those among them
    work        estimated nanoseconds of a call on one thread
    aligned     what is overwritten is so past the caches: it must be aligned to 64 bytes
    lapack      routines of LAPACK that the code calls
    runtime     functions of hlokit.runtime that the code calls
    parallel    it hands out chunks to the pool's threads
    hosts       the instructions that the reference evaluates (see kept_steps); None: they cannot be kept
    """

    objects: tuple[ObjectCode, ...]
    constants: tuple[_Array, ...]
    aliases: dict[int, int]
    overwritten: tuple[int, ...]
    work: float
    aligned: bool
    lapack: tuple[str, ...]
    runtime: tuple[str, ...]
    parallel: bool
    peak: Peak
    hosts: str | None = ""


def peak_of(program: Program) -> Peak:
    """The most memory that a call of the program needs."""
    assignment = program.assignment
    name, held = assignment.holder()
    for buffer in (*program.arguments, *program.results):
        if buffer.nbytes > held:
            name, held = buffer.name, buffer.nbytes
    return Peak(assignment.total, assignment.nbytes, name, held)


def made(
    program: Program, target: Target, name: str, time_limit: float | None, hosts: Sequence[Instruction] = ()
) -> Plan:
    """The plan of a compiled program, its objects compiled or from the cache. `hosts`: what its code calls back for."""
    return Plan(
        tuple(compiled_objects(program.written.module, target, name=name, time_limit=time_limit)),
        tuple(np.ascontiguousarray(literal.to_python()) for literal in program.constants),
        dict(program.assignment.aliases),
        tuple(program.assignment.overwritten),
        program.work,
        program.assignment.aligned,
        _lapack(program.written.module.external),
        called(program.written.module.external),
        program.written.parallel,
        peak_of(program),
        _kept(hosts, program.module),
    )


def _kept(hosts: Sequence[Instruction], module: HloModule) -> str | None:
    if not hosts:
        return ""
    from hlokit.runtime.kept_steps import kept_text

    return kept_text(hosts, module)


def host_instructions(plan: Plan) -> Sequence[Instruction]:
    """The instructions of a plan from the cache that the reference evaluates."""
    if not plan.hosts:
        return ()
    from hlokit.runtime.kept_steps import instructions_of

    return instructions_of(plan.hosts)


INTERRUPTED, INTERRUPTIBLE, ON_STACK = (
    prototype.name for prototype in (interrupt.INTERRUPTED, long_kernels.INTERRUPTIBLE, on_stack.ON_STACK)
)
RUNTIME = {INTERRUPTED: interrupt.symbols, INTERRUPTIBLE: long_kernels.symbols, ON_STACK: on_stack.symbols}
"""Functions of hlokit.runtime that code calls, by a name: what gives the symbols."""


def called(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the functions that are hlokit.runtime's."""
    return tuple(name for name in RUNTIME if name in names)


def functions(names: Sequence[str]) -> dict[str, int]:
    """Addresses of functions of hlokit.runtime."""
    return {name: address for each in names for name, address in RUNTIME[each]().items()}


def _lapack(names: Sequence[str]) -> tuple[str, ...]:
    """The routines of LAPACK among functions that code calls."""
    if not any(name.startswith(LAPACK) for name in names):
        return ()  # to import what follows takes 6 ms
    from hlokit.cpu.kernels.linalg.lapack import lapack_names

    return tuple(lapack_names(names))


# -- the cache

_FORMAT = 8
_NAMED_BYTES = 1 << 16
"""Bytes of the module's own constants beyond which they are not in the cache, too: to have them the module is read."""
_KEY_OPTIONS = PrintOptions(print_metadata=False, print_program_shape=False, print_percent=False)


def plan_key(module: HloModule, target: Target, **options: str | int) -> Key:
    """The key of a plan: the program, its constants' bytes, options, the machine, the compiler."""
    digest = hashlib.sha256()
    for literal in _constants(module):
        digest.update(np.ascontiguousarray(literal.to_python()).reshape(-1).view(np.uint8).data)
    return Key.of(
        f"{module.name} (plan)",
        text=hashlib.sha256(module.to_text(_KEY_OPTIONS).encode()).hexdigest(),
        constants=digest.hexdigest(),
        custom_calls=_handlers(module),
        target=str(target),
        compiler=fingerprint(),
        format=_FORMAT,
        **options,
    )


def stored(key: Key, read: Callable[[], HloModule]) -> Plan | None:
    """The plan in the cache, if it is there whole. `read`: gives the module, where constants are the module's."""
    data = Cache().lookup(key)
    if data is None:
        return None
    line, _, raw = data.partition(b"\n")
    header: dict[str, Any] = json.loads(line)
    objects = stored_objects(Key(header["name"], tuple((str(a), str(b)) for a, b in header["objects"])))
    if objects is None:
        return None
    own = list(_constants(read())) if any(isinstance(c, int) for c in header["constants"]) else []
    memory = _aligned(raw)
    constants = [
        np.ascontiguousarray(own[c].to_python()) if isinstance(c, int) else memory[c[0] : c[0] + c[1]]
        for c in header["constants"]
    ]
    return Plan(
        tuple(objects),
        tuple(constants),
        {int(result): argument for result, argument in header["aliases"]},
        tuple(header["overwritten"]),
        header["work"],
        header["aligned"],
        tuple(header["lapack"]),
        tuple(header["runtime"]),
        header["parallel"],
        Peak(**header["peak"]),
        header["hosts"],
    )


def store(key: Key, plan: Plan, program: Program, module: HloModule, target: Target, name: str) -> None:
    """Keeps the plan. Large constants that are the module's own are named by their place in it."""
    if any(code.note for code in plan.objects):
        return  # of a lower level than asked for: next time it may be had
    own = {literal: number for number, literal in enumerate(_constants(module))}
    raw = bytearray()
    constants: list[int | tuple[int, int]] = []
    for literal, array in zip(program.constants, plan.constants, strict=True):
        if literal in own and array.nbytes > _NAMED_BYTES:
            constants.append(own[literal])
            continue
        raw += bytes(-len(raw) % ALIGNMENT)
        constants.append((len(raw), array.nbytes))
        raw += array.tobytes()
    objects = objects_key(program.text, target, name=name)
    header = {
        "name": objects.name,
        "objects": objects.parts,
        "constants": constants,
        "aliases": sorted(plan.aliases.items()),
        "overwritten": plan.overwritten,
        "work": plan.work,
        "aligned": plan.aligned,
        "lapack": plan.lapack,
        "runtime": plan.runtime,
        "parallel": plan.parallel,
        "peak": vars(plan.peak),
        "hosts": plan.hosts,
    }
    Cache().store(key, json.dumps(header).encode() + b"\n" + bytes(raw))


def _aligned(data: bytes) -> _Array:
    memory = np.empty(len(data) + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    memory = memory[start : start + len(data)]
    memory[:] = np.frombuffer(data, np.uint8)
    return memory


def _constants(module: HloModule) -> Iterator[Literal]:
    """The arrays in the module's constants, in order."""
    for computation in module.all_computations:
        for instruction in computation.instructions:
            if isinstance(instruction.op, Constant):
                yield from _arrays(instruction.op.literal)


def _arrays(literal: Literal) -> Sequence[Literal]:
    if isinstance(literal.value, tuple):
        return [array for part in literal.value for array in _arrays(part)]
    return [literal]


def custom_call_targets(module: HloModule) -> list[str]:
    """The targets of the module's custom-calls, in order."""
    operations = (i.op for computation in module.all_computations for i in computation.instructions)
    return sorted({op.custom_call_target for op in operations if isinstance(op, CustomCall)})


def _handlers(module: HloModule) -> str:
    """The modules of the functions of custom-calls, as text: the user may have put one in place of hlokit's."""
    targets = custom_call_targets(module)
    return json.dumps({target: str(getattr(find_target(target), "__module__", None)) for target in targets})


@cache
def fingerprint() -> str:
    """The compiler's own version: its files, by size and date."""
    lines = sorted(_files(os.path.dirname(os.path.dirname(__file__)), ""))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files(folder: str, place: str) -> Iterator[str]:
    """A line for each file of Python below the folder. By pathlib it takes 12 ms, which is 2."""
    with os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(".py"):
                status = item.stat()
                yield f"{place}{item.name} {status.st_size} {status.st_mtime_ns}"
            elif item.name != "__pycache__" and item.is_dir():
                yield from _files(item.path, f"{place}{item.name}/")
