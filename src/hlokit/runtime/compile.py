"""Compiling: modules into Executables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, cast

from hlokit import memory
from hlokit.cpu.jit.cache import recorded
from hlokit.cpu.target import Target, host, require_system
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.forks import unforked
from hlokit.hlo.module import HloModule
from hlokit.interpreter.checks import refuse
from hlokit.runtime.compilation import Compilation
from hlokit.runtime.executable import Executable
from hlokit.runtime.log import logger
from hlokit.runtime.plan import Plan, host_instructions
from hlokit.runtime.progress import progress
from hlokit.stack import with_stack

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction
    from hlokit.runtime.devices import DeviceExecutable
    from hlokit.runtime.host_steps import HostSteps


@unforked
@with_stack
def compile_module(
    module: HloModule,
    *,
    threads: int | None = None,
    strict: bool = False,
    donate: Sequence[int] | None = None,
    target: Target | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    grid: tuple[int, int] | None = None,
) -> Executable:
    """The module's machine code for one device.

    threads       that take part in a call, the caller among them; by default HLOKIT_THREADS, else
                  one a core. No matter to the results
    strict        the interpreter's order of operations, bit for bit
    donate        numbers of parameters whose arrays a call may overwrite: results are put there where possible, and
                  the array that the caller gave is then a result. None: those that the module's input_output_alias and
                  buffer_donor name. Arrays that are read-only, share memory with another argument or, for programs that
                  store past the caches, are not aligned to 64 bytes are copied first, which the log says
    target        the machine that the code is for; by default this one
    time_limit    seconds for code generation; beyond it a lower level is taken, which `notes` and the log say
    memory_limit  bytes that a call may need; by default HLOKIT_MEMORY_LIMIT, else the machine's memory
    grid          (replicas, partitions) of the devices of which each runs it, as `compile_for_devices` has it; by
                  default one device

    Raises UnsupportedError for a system without code generation and for what takes several devices, ArgumentError for
    options out of range, OutOfMemoryError for a program beyond the limit.

        >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
        >>> compile_module(module)(np.float32([1.0, -2.0]))
        array([-1.,  2.], dtype=float32)
    """
    if target is None:  # code for another machine may be made and looked at on any system
        require_system()
    counts = grid or (module.replica_count, module.num_partitions)
    refuse(module, 2**62, *counts)
    if grid is None and counts != (1, 1):
        devices = math.prod(counts)
        raise UnsupportedError(f"compile_module: {devices} devices; hlokit.compile makes what runs on them")
    _require_positive(module, "threads", threads, Integral, "an integer")
    _require_positive(module, "time_limit", time_limit, Real, "a number of seconds")
    _require_positive(module, "memory_limit", memory_limit, Integral, "a number of bytes")
    again = partial(
        compile_module, module, threads=threads, strict=strict, donate=donate, target=target, time_limit=time_limit,
        memory_limit=memory_limit, grid=grid,
    )  # fmt: skip
    compilation = Compilation(module, target or host(), strict=strict, donate=donate)
    dump = compilation.dump
    if dump is not None:
        dump.source(module)
    with recorded() as questions, progress(module.name) as say:
        limit = memory.of_a_call() if memory_limit is None else memory_limit
        plan, instructions = compilation.plan(limit, time_limit=time_limit, say=say)
        hosts = _steps(instructions, grid or (1, 1))
    misses = [e for e in questions if not e.hit and e.name.startswith(module.name)]
    executable = Executable(compilation, plan, hosts, threads=threads, again=again, misses=misses)
    for note in executable.notes:
        logger().warning("%s: %s", module.name, note)
    if dump is not None:
        dump.results(executable)
    return executable


@unforked
@with_stack
def load_plan(compilation: Compilation, plan: Plan, *, threads: int | None = None) -> Executable:
    """The executable of a plan from the cache, for one device. OutOfMemoryError: it needs too much."""
    compilation.limit = memory.of_a_call()
    compilation.check_memory(plan.peak, compilation.limit)

    def again() -> Executable:
        return compile_module(compilation.source, threads=threads, strict=compilation.strict, grid=(1, 1))

    return Executable(compilation, plan, _steps(host_instructions(plan), (1, 1)), threads=threads, again=again)


def _steps(instructions: Sequence[Instruction], grid: tuple[int, int]) -> HostSteps | None:
    """The steps of a program that the reference evaluates."""
    if not instructions:
        return None
    from hlokit.runtime.host_steps import HostSteps  # with the collectives, 3 ms

    return HostSteps(instructions, grid)


def _require_positive(module: HloModule, name: str, value: object, kind: type, expected: str) -> None:
    if value is not None and not (isinstance(value, kind) and cast("float", value) > 0):
        raise ArgumentError(f"{module.name}: {name}={value!r} is not {expected} above 0")


def compile_for_devices(module: HloModule, counts: tuple[int, int], **options: Any) -> DeviceExecutable:
    """The module's machine code for a grid of (replicas, partitions); `options` as compile_module's.

    Raises what compile_module does, and DeadlockError for a program whose devices would wait for each other forever.
    """
    from hlokit.analysis.rendezvous import refuse_deadlock
    from hlokit.runtime.devices import DeviceExecutable, with_meetings

    refuse_deadlock([module] * math.prod(counts), counts)
    return DeviceExecutable(module, counts, compile_module(with_meetings(module), grid=counts, **options))
