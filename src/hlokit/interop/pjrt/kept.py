"""Programs that were compiled before, found by the bytes that JAX passes; they are neither read nor lowered again.

A record in the persistent cache has what JAX asks of every program, and the key of its plan. There is none for programs
of several devices, with custom calls of the user's or with inspections of shardings, and where the environment asks for
dumps, another backend or checks. Bytes name callbacks by number: this process's functions are called.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hlokit.cpu.jit.cache import Cache, Key, folder
from hlokit.cpu.target import host
from hlokit.interop.jax.callbacks import TARGETS, called, configurations
from hlokit.interop.pjrt.running import Compiled, Runner, backend, callable_of, is_shadowed, traps_nan, watched_kind
from hlokit.ops.custom_targets.registry import is_built_in
from hlokit.runtime.compilation import Compilation, Interface
from hlokit.runtime.dump import settings
from hlokit.runtime.plan import custom_call_targets, fingerprint, stored
from hlokit.text.shapes import parse_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlokit.interop.pjrt.options import Options
    from hlokit.interop.pjrt.programs import Program
    from hlokit.runtime.executable import Executable

_NAME = "programs by their bytes"
_FORMAT = 2


@dataclass(frozen=True)
class Record:
    """The facts about a program that are known without reading it.

    instructions   how many the module has
    donated        numbers of parameters that it may overwrite;  memory_kinds: of each result
    targets        of its custom-calls, whose functions are hlokit's own
    callbacks      the configurations of its calls of Python functions
    plan           the cache's key of its plan
    """

    interface: Interface
    instructions: int
    donated: tuple[int, ...]
    memory_kinds: tuple[str, ...]
    targets: tuple[str, ...]
    callbacks: tuple[str, ...]
    plan: Key

    def to_json(self) -> bytes:
        """The record as `record_of` reads it."""
        interface = self.interface
        parts = {
            "name": interface.name,
            "parameters": [(name, str(shape)) for name, shape in interface.parameters],
            "result": str(interface.result),
            "instructions": self.instructions,
            "donated": self.donated,
            "memory_kinds": self.memory_kinds,
            "targets": self.targets,
            "callbacks": self.callbacks,
            "plan": [self.plan.name, self.plan.parts],
        }
        return json.dumps(parts).encode()


def record_of(data: bytes) -> Record:
    """The record that `Record.to_json` wrote."""
    parts: dict[str, Any] = json.loads(data)
    parameters = tuple((name, _shape(shape)) for name, shape in parts["parameters"])
    name, plan = parts["plan"]
    return Record(
        Interface(parts["name"], parameters, _shape(parts["result"])),
        parts["instructions"],
        tuple(parts["donated"]),
        tuple(parts["memory_kinds"]),
        tuple(parts["targets"]),
        tuple(parts["callbacks"]),
        Key(name, tuple((str(part), str(value)) for part, value in plan)),
    )


_shape = lru_cache(4096)(parse_shape)
"""Programs of one process have many shapes in common."""


def _key(code: bytes, options: Options, content: str) -> Key:
    """The key by what counts of the options: their bytes differ from process to process."""
    digest = hashlib.sha256(code).hexdigest()
    left_out = ",".join(settings().disabled)
    return Key.of(
        _NAME, code=digest, options=str(options), content=content, target=str(host()), compiler=fingerprint(),
        passes_left_out=left_out, format=_FORMAT,
    )  # fmt: skip


def _is_plain(options: Options) -> bool:
    """Whether a program with these options is compiled for one device, and nothing else is wanted of it."""
    if folder() is None or options.count > 1 or options.flags or settings().folder:
        return False
    return backend() == "compiled" and not (is_shadowed() or watched_kind() or traps_nan())


def find(code: bytes, options: Options) -> Record | None:
    """The record of a program, if it was compiled before and this process has all that it calls."""
    if not _is_plain(options):
        return None
    data = Cache().lookup(_key(code, options, "record"))
    record = record_of(data) if data is not None else None
    if record is None or not _are_hlokits(record.targets):
        return None
    return record if len(called(record.callbacks)) == len(record.callbacks) else None


def _are_hlokits(targets: Sequence[str]) -> bool:
    """Whether these targets of custom-calls are hlokit's own, and nothing that the user registered."""
    return all(target in TARGETS or is_built_in(target) for target in targets)


def compiled(program: Program) -> Runner:
    """The program's machine code for one device, from the cache if the program was compiled before."""
    executable = _executable(program, program.record) if program.record is not None else None
    if executable is None:
        executable = callable_of(program.module, 1, 1, donate=None, threads=program.options.threads)
        program.record = _keep(program, executable)
    return Compiled(program, executable)


def _keep(program: Program, executable: Executable) -> Record | None:
    """Stores the record of a compiled program, if it may have one."""
    compilation = executable.compilation
    targets = custom_call_targets(program.module)
    if not _is_plain(program.options) or compilation.key is None or executable.plan.hosts is None or executable.notes:
        return None
    if not compilation.is_static or program.inspections or not _are_hlokits(targets):
        return None
    record = Record(
        compilation.interface,
        program.instructions,
        tuple(sorted(program.donated)),
        tuple(program.memory_kinds),
        tuple(targets),
        tuple(configurations(program.module)),
        compilation.key,
    )
    Cache().store(_key(program.code, program.options, "record"), record.to_json())
    return record


def _executable(program: Program, record: Record) -> Executable | None:
    """The program's machine code, if the cache still has its plan."""
    from hlokit.runtime.compile import load_plan

    plan = stored(record.plan, lambda: program.module)
    if plan is None:
        return None
    compilation = Compilation(lambda: program.module, host(), interface=record.interface)
    return load_plan(compilation, plan, threads=program.options.threads)


def text_of(program: Program) -> bytes | None:
    """The bytes that JAX is given for the text of a program with a record, if the cache has them."""
    return Cache().lookup(_text_key(program)) if program.record is not None else None


def keep_text(program: Program, data: bytes) -> None:
    """Stores the bytes that JAX is given for the text of a program with a record."""
    if program.record is not None:
        Cache().store(_text_key(program), data)


def _text_key(program: Program) -> Key:
    import jaxlib.version  # XLA's reader makes them

    return _key(program.code, program.options, f"text by jaxlib {jaxlib.version.__version__}")
