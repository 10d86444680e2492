"""Compilation: from a module with its options to a Plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hlokit.cpu.jit.cache import Key, folder
from hlokit.cpu.jit.objects import SECONDS_A_BYTE
from hlokit.cpu.target import Target
from hlokit.errors import ArgumentError, OutOfMemoryError
from hlokit.forks import unforked
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.memory import uncollected
from hlokit.runtime import plan as plans
from hlokit.runtime.code import prepare
from hlokit.runtime.dump import Dump, compiled, settings
from hlokit.runtime.plan import Plan
from hlokit.runtime.progress import Say, next_stage, silent
from hlokit.stack import with_stack
from hlokit.types.shape import Shape

if TYPE_CHECKING:  # a plan from the cache needs no compiler: importing it takes longer than the rest
    from hlokit.cpu.compiler import Program
    from hlokit.hlo.instruction import Instruction
    from hlokit.passes.dynamic_padder.signature import DynamicSignature


@dataclass(frozen=True)
class Interface:
    """A program as its callers see it: its name, the names and shapes of its parameters, the shape of its result."""

    name: str
    parameters: tuple[tuple[str, Shape], ...]
    result: Shape

    @staticmethod
    def of(module: HloModule) -> Interface:
        entry = module.entry
        return Interface(module.name, tuple((p.name, p.shape) for p in entry.parameters), entry.root.shape)


class Compilation:
    """A module, and what its code is to be.

    target    the machine that the code is for
    strict    the interpreter's order of operations, bit for bit
    settings, dump   passes left out, and the files to be written, as the environment says
    key       the cache's key of its plan, if it has one: known once the plan was asked for

    `module`: the module as it was given, or a function that reads it when it is asked for; then its `interface` is
    given too, and it has no dynamic dimensions.
    """

    def __init__(
        self,
        module: HloModule | Callable[[], HloModule],
        target: Target,
        *,
        strict: bool = False,
        donate: Sequence[int] | None = None,
        interface: Interface | None = None,
    ) -> None:
        self._given = module
        self._donate = donate
        self.target = target
        self.strict = strict
        self.settings = settings()
        self.dump = Dump(self.settings, self.source.name) if self.settings.folder else None
        self.key: Key | None = None
        self.limit: int | None = None
        if interface is not None:
            self.interface, self.is_static = interface, True

    @cached_property
    def source(self) -> HloModule:
        """The module as it was given."""
        return self._given if isinstance(self._given, HloModule) else self._given()

    @cached_property
    def interface(self) -> Interface:
        """The interface of the code: that of `static`."""
        return Interface.of(self.static)

    @cached_property
    def is_static(self) -> bool:
        """No dimension is dynamic."""
        return not any(i.shape.is_dynamic for c in self.source.all_computations for i in c.instructions)

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """The array leaves of the parameters that calls may overwrite, by number among all."""
        return _donated_leaves(self.source, self._donate) if self.is_static else ()

    @cached_property
    def _padded(self) -> tuple[HloModule, DynamicSignature]:
        from hlokit.passes.dynamic_padder.padder import padded

        return padded(self.source)

    @property
    def static(self) -> HloModule:
        """The module with dimensions that are all static: what is compiled."""
        return self.source if self.is_static else self._padded[0]

    @property
    def signature(self) -> DynamicSignature:
        """The signature by which a dynamic module's arguments and results are those of the static one."""
        return self._padded[1]

    @cached_property
    def program(self) -> Program:
        """The module on its way to machine code: passes, steps, loops, buffers, LLVM text. Made when asked for."""
        return compiled(
            self.static,
            self.target,
            strict=self.strict,
            donated=self.donated,
            memory_limit=self.limit,
            settings=self.settings,
            dump=self.dump,
        )

    @unforked
    @uncollected
    @with_stack
    def plan(
        self, limit: int, *, time_limit: float | None = None, say: Say = silent
    ) -> tuple[Plan, Sequence[Instruction]]:
        """The cache's plan, or one newly made, and the instructions that its code calls back for.

        A program that needs more than `limit` bytes computes values again instead of keeping them; if it still needs
        more, its code is not compiled: OutOfMemoryError. `say` is told what is being done; `time_limit`: seconds for
        code generation.
        """
        module, name = self.static, self.source.name
        self.limit = limit
        if self.is_static and folder() is not None:
            for limited in ({}, {"memory limit": str(limit)}):
                self.key = self._plan_key(**limited)
                found = plans.stored(self.key, lambda: module)
                if found is None:
                    break
                if found.peak.total <= limit:
                    return found, plans.host_instructions(found)
        prepare()
        program = self.program
        next_stage()
        self.check_memory(plans.peak_of(program), limit)
        if self.key is not None:
            self.key = self._plan_key(**({"memory limit": str(limit)} if program.is_limited else {}))
        size = len(program.text)
        say(f"machine code from {size / 1e6:.1f} MB of LLVM text", size * SECONDS_A_BYTE)
        hosts = [step.instructions[0] for step in program.written.hosts]
        plan = plans.made(program, self.target, name, time_limit, hosts)
        if self.key is not None and plan.hosts is not None:
            plans.store(self.key, plan, program, module, self.target, name)
        return plan, hosts

    def _plan_key(self, **options: str) -> Key:
        """The key of the plan in the cache."""
        if self.settings.disabled:
            options["passes left out"] = ",".join(self.settings.disabled)
        return plans.plan_key(self.static, self.target, strict=self.strict, donated=str(self.donated), **options)

    def check_memory(self, peak: plans.Peak, limit: int) -> None:
        """Raises OutOfMemoryError for a program whose calls need more than `limit` bytes."""
        if peak.total > limit:
            raise OutOfMemoryError(
                f"{self.interface.name}: a call needs at least {peak.total:,} bytes, more than the limit of {limit:,}, "
                f"even if values are computed again; the largest value at the peak is {peak.holder}, "
                f"{peak.held:,} bytes"
            )


def _donated_leaves(module: HloModule, donate: Sequence[int] | None) -> tuple[int, ...]:
    """The array leaves of the parameters that may be overwritten, by number among all."""
    parameters = module.entry.parameters
    chosen = [(number, ()) for number in donate] if donate is not None else []
    if donate is None:
        chosen = [(alias.parameter, alias.parameter_index) for alias in module.input_output_alias]
        chosen += [(number, index) for number, index in module.buffer_donor]
    for number, _ in chosen:
        if not 0 <= number < len(parameters):
            raise ArgumentError(f"{module.name}: donate={number}: it has {counted(len(parameters), 'parameter')}")
    places = [(i, path) for i, p in enumerate(parameters) for path, leaf in _paths(p.shape) if leaf.is_array]
    return tuple(
        k
        for k, (i, path) in enumerate(places)
        if any(i == number and path[: len(index)] == tuple(index) for number, index in chosen)
    )


def _paths(shape: Shape, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Shape]]:
    if not shape.is_tuple:
        yield path, shape
    for k, element in enumerate(shape.elements if shape.is_tuple else ()):
        yield from _paths(element, (*path, k))
