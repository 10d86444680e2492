"""Executable: a compiled module, ready to be called."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hlokit import memory
from hlokit.cpu.jit.cache import folder, recorded
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool import pool
from hlokit.cpu.target import Target, host, require_system, this_machine
from hlokit.errors import ArgumentError, HlokitError, OutOfMemoryError, UnsupportedError
from hlokit.forks import unforked
from hlokit.hlo.module import HloModule
from hlokit.interpreter.arguments import argument
from hlokit.interpreter.checks import refuse
from hlokit.interpreter.process import Process
from hlokit.runtime import plan as plans
from hlokit.runtime.arrays import array_leaves, leaves, tree
from hlokit.runtime.call import Caller
from hlokit.runtime.dump import Dump, compiled, settings
from hlokit.runtime.interrupt import raise_kept
from hlokit.runtime.log import logger
from hlokit.runtime.on_stack import raise_refused
from hlokit.runtime.plan import Plan
from hlokit.runtime.progress import progress
from hlokit.stack import with_stack
from hlokit.tracebacks import public_methods, shorten
from hlokit.types.shape import Shape

if TYPE_CHECKING:  # a plan from the cache needs no compiler: importing it takes longer than the rest
    from hlokit.cpu.compiler import Program
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.passes.dynamic_padder.signature import DynamicSignature
    from hlokit.runtime.host_steps import HostSteps
    from hlokit.runtime.inspection import MemoryAnalysis
    from hlokit.runtime.meetings import Round
    from hlokit.runtime.profile import Profile

_RELEASE_NS = 5000.0
"""Work from which other Python threads may run meanwhile: to get the lock back may take longer than less."""
_ASKING = {plans.INTERRUPTED, plans.INTERRUPTIBLE}
"""Functions that are in programs of long work alone."""


@public_methods()
class Executable:
    """A compiled module. Calling it runs the machine code; several threads may call it at once, on a
    stack of any size: a program that needs more than its caller has runs on a thread of its own.

    threads       that take part in a call, the caller among them; by default one a core. No matter to the results
    strict        the interpreter's order of operations, bit for bit
    donate        numbers of parameters whose arrays a call may overwrite: results are put there where possible, and
                  the array that the caller gave is then a result. None: those that the module's input_output_alias and
                  buffer_donor name. Arrays that are read-only, share memory with another argument or, for programs that
                  store past the caches, are not aligned to 64 bytes are copied first, which the log says
    target        the machine that the code is for; UnsupportedError for a call on one that lacks what it has
    time_limit    seconds for code generation; beyond it a lower level is taken, which `notes` and the log say
    grid          (replicas, partitions) that the code is for one device of (hlokit.runtime.devices); by default one
    memory_limit  bytes that a call may need; by default the machine's memory. OutOfMemoryError for a program beyond it

    Arguments and results are as hlokit.evaluate's. Made by hlokit.compile.
    """

    extra: tuple[int, ...] = ()
    """Pointers that instrumented code takes besides (hlokit.runtime.instrumented)."""
    held: object = None
    """What they point into."""

    @unforked
    @with_stack
    def __init__(
        self,
        module: HloModule,
        *,
        threads: int | None = None,
        strict: bool = False,
        donate: Sequence[int] | None = None,
        target: Target | None = None,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        grid: tuple[int, int] | None = None,
    ) -> None:
        if target is None:  # code for another machine may be made and looked at on any system
            require_system()
        counts = grid or (module.replica_count, module.num_partitions)
        refuse(module, 2**62, *counts)
        if grid is None and counts != (1, 1):
            raise UnsupportedError(f"Executable: {math.prod(counts)} devices; hlokit.compile makes what runs on them")
        if threads is not None and threads < 1:
            raise ArgumentError(f"{module.name}: threads={threads}, expected at least 1")
        self.source = module
        self._again = partial(
            Executable, module, threads=threads, strict=strict, donate=donate, target=target, time_limit=time_limit,
            memory_limit=memory_limit, grid=grid,
        )  # fmt: skip
        self._grid = grid or (1, 1)
        self.target = target or host()
        self.strict = strict
        self._limit = memory.most() if memory_limit is None else memory_limit
        self._is_static = not any(i.shape.is_dynamic for c in module.all_computations for i in c.instructions)
        self._donated = _donated_leaves(module, donate) if self._is_static else ()
        self._hosts: HostSteps | None = None
        self._program: Program | None = None
        self._settings = settings()
        self._dump = Dump(self._settings, module.name) if self._settings.folder else None
        if self._dump is not None:
            self._dump.source(module)
        with recorded() as questions, progress(module.name) as say:
            self.plan = self._planned(time_limit, say)
        self._missed = [e for e in questions if not e.hit and e.name.startswith(module.name)]
        self.notes = [code.note for code in self.plan.objects if code.note]
        for note in self.notes:
            logger().warning("%s: %s", module.name, note)
        self.threads = threads
        self.use(self.plan, self._hosts)
        if self._dump is not None:
            self._dump.results(self)

    def __repr__(self) -> str:
        return f"<Executable {self.source.name}: {self.source.entry.brief()}, for {self.target.cpu}>"

    def __reduce__(self) -> tuple[Callable[[], Executable], tuple[()]]:
        """A copy, or what another process gets, is compiled again: on the same machine from the cache."""
        return self._again, ()

    def use(self, plan: Plan, hosts: HostSteps | None) -> None:
        """From now on calls run this plan's code; `hosts`: its steps of the reference."""
        module = self.source
        self.plan, self._hosts = plan, hosts
        lacking = ", ".join(this_machine().lacks(self.target))
        elsewhere = _Elsewhere(f"{module.name} is for {self.target.cpu}: this machine lacks {lacking}")
        self._caller = elsewhere if lacking else self._loaded(self.threads)
        root = module.entry.root.shape
        arrays_in = all(p.shape.is_array for p in module.entry.parameters)
        arrays_out = root.is_array or all(s.is_array for s in root.elements)
        self._flat = arrays_in and arrays_out and self._is_static and not root.is_token
        self._calls_python = self._hosts is not None or bool(self.extra)
        self._plain = self._caller if self._flat and not self._calls_python else None

    def __call__(
        self, *args: Any, infeed: Iterable[Any] = (), outfeed: Any = None, seed: int = 0, return_outfeed: bool = False
    ) -> Any:
        """The program's result on `args`, as hlokit.evaluate's; so are the keyword arguments."""
        try:  # what `public` does, but for a call
            if self._plain is not None and not return_outfeed:
                return self._plain.call(*args)
            if not self._calls_python:
                return (self._run(args), []) if return_outfeed else self._run(args)
            process = Process(infeed=infeed, outfeed=outfeed, seed=seed)
            result = self.on(process, args)
            return (result, process.outfeed) if return_outfeed else result
        except HlokitError as error:
            shorten(error)
            raise

    @with_stack  # Python that the code calls must find itself on the thread that called the code
    def on(self, process: Process, args: Sequence[Any], round: Round | None = None) -> Any:
        """The program's result on one device of a grid, which its steps of the reference ask for what they need."""
        if self._hosts is None:
            return self._run(args)
        with self._hosts.running(process, round):
            return self._run(args)

    @contextmanager
    def together(self) -> Generator[Callable[[Process, Sequence[Any]], Any]]:
        """`on`, for all devices of one run in this process. At its end no device runs any more."""
        meetings = self._hosts.meetings if self._hosts is not None else None
        if meetings is None:
            yield self.on
            return
        round = meetings.take()
        yield partial(self.on, round=round)
        meetings.give(round)

    @property
    def entry(self) -> tuple[int, tuple[int, ...]] | None:
        """For callers in machine code: its address, and the words of its table after arguments and results. None for
        code that needs memory or steps of the reference, or that is for another machine."""
        caller = self._caller
        if self._hosts is not None or not isinstance(caller, Caller) or caller.temporaries:
            return None
        return caller.entry, (*caller.constants, 0, *caller.more)

    @property
    def native(self) -> Caller | None:
        """What calls the machine code, for callers that do so without Python; None if it takes more than that."""
        return self._plain if isinstance(self._plain, Caller) else None

    @cached_property
    @with_stack
    def program(self) -> Program:
        """The module on its way to machine code: passes, steps, loops, buffers, LLVM text. Made when asked for."""
        chosen, dump = self._settings, self._dump
        return compiled(
            self._static, self.target, strict=self.strict, donated=self._donated, settings=chosen, dump=dump
        )

    @with_stack
    def as_text(self, stage: str = "hlo") -> str:
        """What became of the program: "hlo" after the passes, "loops" of its kernels, "llvm", or "asm"."""
        from hlokit.runtime.inspection import stage_text

        return stage_text(self.program, self.target, stage)

    @with_stack
    def cost_analysis(self) -> dict[str, float]:
        """What a call computes and moves, counted from the program as it was given: under JAX's names."""
        from hlokit.runtime.inspection import cost_analysis

        return cost_analysis(self._static)

    def memory_analysis(self) -> MemoryAnalysis:
        """What a call needs: sizes under JAX's names, the peak, who holds it, and how long each buffer lives."""
        from hlokit.runtime.inspection import memory_analysis

        return memory_analysis(self.program, self.plan)

    @with_stack
    def profile(self, *args: Any, repeat: int = 10, **options: Any) -> Profile:
        """Times of each step, by `repeat` calls on `args`: see Profile. Code for it is made at the first use."""
        from hlokit.runtime.profile import profile

        return profile(self, args, repeat, options)

    @cached_property
    def communicating(self) -> list[Instruction]:
        """The instructions that the reference evaluates, in the program's order."""
        found = [i for step in (self._hosts.steps if self._hosts is not None else ()) for i in step.instructions]
        seen: dict[Computation, None] = {}
        waiting = [c for instruction in found for c in instruction.called]
        while waiting:
            computation = waiting.pop()
            if computation not in seen:
                seen[computation] = None
                waiting += [c for instruction in computation.instructions for c in instruction.called]
        return found + [instruction for computation in seen for instruction in computation.instructions]

    @property
    def workers(self) -> int:
        """Threads that take part in a call."""
        return pool(self.threads).threads

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """Why things are as they are: (instruction, what, why)."""
        from hlokit.runtime.inspection import reasons

        return reasons(self.program, self.notes, self.recompiled)

    # -- making it

    @cached_property
    def _padded(self) -> tuple[HloModule, DynamicSignature]:
        from hlokit.passes.dynamic_padder.padder import padded

        return padded(self.source)

    @property
    def _static(self) -> HloModule:
        return self.source if self._is_static else self._padded[0]

    def _planned(self, time_limit: float | None, say: Callable[[str], None]) -> Plan:
        """The cache's plan, or one newly made; the code of one that needs too much memory is not even compiled."""
        module, name = self._static, self.source.name
        key = None
        if self._is_static and folder() is not None:
            options = {"passes left out": ",".join(self._settings.disabled)} if self._settings.disabled else {}
            key = plans.plan_key(module, self.target, strict=self.strict, donated=str(self._donated), **options)
            found = plans.stored(key, module)
            if found is not None:
                self._check_memory(found.peak)
                return found
        program = self.program
        self._check_memory(plans.peak_of(program))
        say(f"machine code from {len(program.text):,} bytes of LLVM text")
        plan = plans.made(program, self.target, name, time_limit)
        if program.written.hosts:
            from hlokit.runtime.host_steps import HostSteps  # with the collectives, 3 ms

            self._hosts = HostSteps(program.written.hosts, self._grid)
        elif key is not None:
            plans.store(key, plan, program, module, self.target, name)
        return plan

    @cached_property
    def recompiled(self) -> list[str]:
        """Why each part that was compiled was not in the cache."""
        return [event.reason for event in self._missed]

    def _check_memory(self, peak: plans.Peak) -> None:
        if peak.total > self._limit:
            raise OutOfMemoryError(
                f"{self.source.name}: a call needs {peak.total:,} bytes at its peak, more than the limit of "
                f"{self._limit:,}; {peak.holder} holds {peak.held:,} of them"
            )

    def _loaded(self, threads: int | None) -> Caller:
        plan, hosts = self.plan, self._hosts
        workers = pool(threads) if plan.parallel else None  # its code takes 20 ms where the cache has it not
        functions = {**(workers.symbols if workers else {}), **plans.functions(plan.runtime)}
        if plan.lapack:
            from hlokit.cpu.kernels.linalg.lapack import lapack_addresses

            functions |= lapack_addresses(plan.lapack)
        library = Library(plan.objects, functions)
        module = self._static
        hosts_at = (hosts.address, hosts.context) if hosts is not None else (0, 0)
        parameters = [(p.name, leaf) for p in module.entry.parameters for leaf in array_leaves(p.shape)]

        def failed() -> None:
            if plans.ON_STACK in plan.runtime:
                raise_refused()
            raise_kept()

        return Caller(
            library.address("hlokit_entry"),
            [shape for _, shape in parameters],
            list(array_leaves(module.entry.root.shape)),
            constants=[array.__array_interface__["data"][0] for array in plan.constants],
            temporaries=plan.peak.temporaries,
            more=(workers.address if workers else 0, *hosts_at, *self.extra),
            names=[name for name, _ in parameters],
            program=self.source.name,
            unwrap=module.entry.root.shape.is_array,
            release=hosts is not None or bool(_ASKING & {*plan.runtime}) or plan.work > _RELEASE_NS,
            aliases=plan.aliases,
            overwritten=plan.overwritten,
            aligned=plan.aligned,
            failed=failed,
            keep=(library, workers, hosts, plan),
        )

    # -- calls that are not plain

    def _run(self, args: Sequence[Any]) -> Any:
        """A call with tuples, tokens or dynamic dimensions in its signature, or with steps of the reference."""
        if self._flat:
            return self._caller.call(*args)
        parameters = self.source.entry.parameters
        if len(args) != len(parameters):
            raise ArgumentError(f"{self.source.name} takes {len(parameters)} arguments, got {len(args)} [EXEC-3]")
        values = [
            argument(f"argument {i} ({p.name})", p.shape, a)
            for i, (p, a) in enumerate(zip(parameters, args, strict=True))
        ]
        if not self._is_static:
            values = self._padded[1].arguments(values)
        result = self._caller.call(*leaves(tuple(values)))
        root = self._static.entry.root.shape
        value = tree(root, iter((result,) if root.is_array else result))
        return value if self._is_static else self._padded[1].result(value)


@dataclass(frozen=True)
class _Elsewhere:
    """In place of a Caller where the code cannot run."""

    why: str

    def call(self, *_: Any) -> Any:
        raise UnsupportedError(self.why)


def _donated_leaves(module: HloModule, donate: Sequence[int] | None) -> tuple[int, ...]:
    """The array leaves of the parameters that may be overwritten, by number among all."""
    parameters = module.entry.parameters
    chosen = [(number, ()) for number in donate] if donate is not None else []
    if donate is None:
        chosen = [(alias.parameter, alias.parameter_index) for alias in module.input_output_alias]
        chosen += [(number, index) for number, index in module.buffer_donor]
    for number, _ in chosen:
        if not 0 <= number < len(parameters):
            raise ArgumentError(f"{module.name}: donate={number}: it has {len(parameters)} parameters")
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


__all__ = ["Executable"]
