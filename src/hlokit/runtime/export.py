"""A program as an object file and a C header: machine code for programs without Python, one thread, no library."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hlokit.cpu.compiler import Program, compile_program
from hlokit.cpu.emit.entry import ENTRY
from hlokit.cpu.jit.objects import compile_object
from hlokit.cpu.jit.pool_code import PARALLEL
from hlokit.cpu.kernels.linalg.lapack import lapack_names
from hlokit.cpu.kernels.routine import STACK
from hlokit.cpu.llvm import I8, I32, POINTER, Function, Global, Module, Pointer, Prototype
from hlokit.cpu.target import ALIGNMENT, Target, parse
from hlokit.errors import ArgumentError, HlokitError, UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.runtime.arrays import array_leaves

if TYPE_CHECKING:
    from hlokit.types.shape import Shape


def export_object(
    module: HloModule, target: str | Target = "host", path: str | Path | None = None, *, strict: bool = False
) -> tuple[Path, Path]:
    """Writes NAME.o and NAME.h; gives their paths. NAME is the path's, or the module's as an identifier of C.

        int NAME(const void *const *args, void **results, void *arena);

    takes pointers to the arrays, dense and row-major, tuples flattened, and as much memory as the header says.

    target  "host", a baseline ("x86-64-avx2", "x86-64-avx512", "x86-64", "aarch64"), or TRIPLE/CPU,+FEATURE...
    path    of the object file

    For the host no matrix registers are used: a process has to ask Linux for them, which the caller may not have done.
    The code needs memcpy, memset and memmove of C, and fma for f64 on x86-64 without FMA. Raises UnsupportedError for
    what needs Python, LAPACK or sizes that only running tells.
    """
    if isinstance(target, (str, Path)) and Path(target).suffix == ".o":
        raise ArgumentError(f"export_object: target={str(target)!r} is the path of a file: write path={str(target)!r}")
    machine = parse(target) if isinstance(target, str) else target
    if target == "host":
        machine = machine.without("amx-tile", "amx-int8", "amx-bf16")
    name = Path(path).stem if path is not None else _identifier(module.name)
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None or name.startswith("hlokit_"):
        raise HlokitError(f"export_object: {name!r} is not a name for a function of C")
    place = Path(path) if path is not None else Path(f"{name}.o")
    if place.suffix == ".h":
        raise HlokitError(f"export_object: {place} is the header's name; expected the object file's")
    if any(i.shape.is_dynamic for c in module.all_computations for i in c.instructions):
        raise UnsupportedError(f"export_object: {module.name} has dynamic dimensions")
    program = compile_program(module, machine, strict=strict, interrupts=False)
    _refuse(program)
    header = place.with_suffix(".h")
    place.write_bytes(compile_object(_module(program, name), machine))
    header.write_text(_header(module, program, machine, name), encoding="utf-8")
    return place, header


def _identifier(name: str) -> str:
    return re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII)


def _refuse(program: Program) -> None:
    for step in program.written.hosts:
        (instruction, *_) = step.instructions
        raise UnsupportedError(f"export_object: {instruction.name} ({instruction.opcode}): {step.reason}")
    needed = lapack_names(program.written.module.external)
    if needed:
        raise UnsupportedError(f"export_object: the program calls LAPACK's {', '.join(needed)}")


# -- the module


def _module(program: Program, name: str) -> Module:
    module = program.written.module
    del module.exported[ENTRY]
    module.add(_parallel())
    module.add(_function(program, name), exported=True)
    return module


def _parallel() -> Function:
    """The function that elsewhere hands out chunks to threads: here all are the caller's."""
    f = Function.of(PARALLEL)
    function, table = f.pointer("function"), f.pointer("table")
    with f.loop(0, f.argument("chunks")) as loop:
        function.call(None, table, loop.index, loop.index + 1)
    f.returns()
    return f


def _constants(program: Program) -> list[Global]:
    values = [np.ascontiguousarray(literal.to_python()).tobytes() for literal in program.constants]
    return [
        Global(f"hlokit_constant{k}", I8, len(value), initial=value, constant=True, align=ALIGNMENT)
        for k, value in enumerate(values)
    ]


def _function(program: Program, name: str) -> Function:
    """The function that C calls: it makes the entry's table."""
    f = Function(name, [(POINTER, parameter) for parameter in ("args", "results", "arena")], I32)
    pointers: list[Pointer] = []
    for array, count in (("args", len(program.arguments)), ("results", len(program.results))):
        pointers += [f.pointer(array, POINTER)[k].load_pointer() for k in range(count)]
    pointers += [*map(f.address, _constants(program)), f.pointer("arena"), f.null(), f.null(), f.null()]
    table = f.local(POINTER, len(pointers), 64)
    for slot, pointer in enumerate(pointers):
        table[slot].store(pointer)
    f.returns(f.call(Prototype(ENTRY, I32, [POINTER]), table))
    return f


# -- the header


def _header(module: HloModule, program: Program, target: Target, name: str) -> str:
    upper = name.upper()
    parameters = [(p.name, leaf) for p in module.entry.parameters for leaf in array_leaves(p.shape)]
    results = [("", leaf) for leaf in array_leaves(module.entry.root.shape)]
    streams = any(definition.streams for definition in program.written.module.functions.values())
    version: str = sys.modules["hlokit"].__version__
    lines = [
        f"/* {name}: the HLO module {_comment(module.name)} as machine code, by hlokit {version}.",
        f"   Target: {target.triple}, {target.cpu}.",
        "",
        "   Arrays are dense and row-major. Elements: pred is a byte, 0 or 1; types of less than a byte take one each;",
        "   bf16, f16 and f8 are their bits; complex numbers are pairs. Arguments are not changed. Several threads may",
        f"   call it at once, each with an arena of its own and a stack of {STACK >> 20} MB. */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        f"#define {upper}_ARGUMENTS {len(parameters)}",
        f"#define {upper}_RESULTS {len(results)}",
        f"#define {upper}_ARENA_BYTES {program.assignment.nbytes}ULL",
        f"#define {upper}_ARENA_ALIGNMENT {ALIGNMENT}",
        *(_sizes(upper, "ARGUMENT", parameters)),
        *(_sizes(upper, "RESULT", results)),
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"/* args: {upper}_ARGUMENTS pointers. results: {upper}_RESULTS pointers"
        + (" to memory aligned to 64 bytes" if streams else "")
        + f". arena: {upper}_ARENA_BYTES bytes, or",
        "   null for 0, with anything in them. Gives 0. */",
        f"int {name}(const void *const *args, void **results, void *arena);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _sizes(upper: str, kind: str, arrays: Sequence[tuple[str, Shape]]) -> Iterator[str]:
    for k, (name, shape) in enumerate(arrays):
        size = shape.size * shape.dtype.numpy.itemsize
        what = f"{name}: " if name else ""
        yield f"#define {upper}_{kind}{k}_BYTES {size}ULL /* {_comment(what)}{shape.dtype}{list(shape.dimensions)} */"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")
