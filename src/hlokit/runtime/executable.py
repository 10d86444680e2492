"""Executable: a compiled module, ready to be called."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlokit.cpu.jit.pool import pool
from hlokit.cpu.target import this_machine
from hlokit.errors import HlokitError, UnsupportedError
from hlokit.interpreter.arguments import argument, wrong_count
from hlokit.interpreter.process import Process
from hlokit.runtime import plan as plans
from hlokit.runtime.arrays import array_leaves, leaves, tree
from hlokit.runtime.call import Caller
from hlokit.runtime.code import Code
from hlokit.runtime.interrupt import raise_kept
from hlokit.runtime.on_stack import raise_refused
from hlokit.runtime.plan import Plan
from hlokit.stack import with_stack
from hlokit.tracebacks import public_methods, shorten

if TYPE_CHECKING:  # a plan from the cache needs no compiler: importing it takes longer than the rest
    from hlokit.cpu.compiler import Program
    from hlokit.cpu.jit.cache import Event
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.hlo.module import HloModule
    from hlokit.runtime.compilation import Compilation
    from hlokit.runtime.host_steps import HostSteps
    from hlokit.runtime.inspection import MemoryAnalysis
    from hlokit.runtime.lineage import CodeLineage
    from hlokit.runtime.meetings import Round
    from hlokit.runtime.profile import Profile
    from hlokit.view.page import View

_RELEASE_NS = 5000.0
"""Work from which other Python threads may run meanwhile: to get the lock back may take longer than less."""
_ASKING = {plans.INTERRUPTED, plans.INTERRUPTIBLE}
"""Functions that are in programs of long work alone."""


@public_methods()
class Executable:
    """A compiled module for one device, as returned by `hk.compile`. A call runs the machine code.

    Arguments and results are the same as for `hk.evaluate`. Several threads may call it at the same time, with a stack
    of any size: a program that needs more stack than its caller has runs on a separate thread.

    Attributes
    ----------
    target : Target
        The machine that the code is for; a call on a machine that lacks its instructions raises UnsupportedError.
    strict : bool
        Whether the code keeps the interpreter's order of operations.
    threads : int or None
        The requested number of threads; None: the default.
    notes : list of str
        Places where code generation used a lower level than requested, and why.
    """

    extra: tuple[int, ...] = ()
    """Pointers that instrumented code takes besides (hlokit.runtime.instrumented)."""
    held: object = None
    """The object that they point into."""

    def __init__(
        self,
        compilation: Compilation,
        plan: Plan,
        hosts: HostSteps | None,
        *,
        threads: int | None,
        again: Callable[[], Executable],
        misses: Sequence[Event] = (),
    ) -> None:
        self.compilation = compilation
        self.target, self.strict = compilation.target, compilation.strict
        self.threads = threads
        self._again = again
        self._misses = misses
        self.notes = [code.note for code in plan.objects if code.note]
        self.use(plan, hosts)

    @property
    def source(self) -> HloModule:
        """The module as it was given."""
        return self.compilation.source

    def __repr__(self) -> str:
        return f"<Executable {self.source.name}: {self.source.entry.brief()}, for {self.target.cpu}>"

    def __reduce__(self) -> tuple[Callable[[], Executable], tuple[()]]:
        """A copy, or what another process gets, is compiled again: on the same machine from the cache."""
        return self._again, ()

    def use(self, plan: Plan, hosts: HostSteps | None) -> None:
        """From now on calls run this plan's code; `hosts`: its steps of the reference."""
        interface = self.compilation.interface
        self.plan, self._hosts = plan, hosts
        lacking = ", ".join(this_machine().lacks(self.target))
        elsewhere = _Elsewhere(f"{interface.name} is for {self.target.cpu}: this machine lacks {lacking}")
        self._caller = elsewhere if lacking else self._loaded()
        root = interface.result
        arrays_in = all(shape.is_array for _, shape in interface.parameters)
        arrays_out = root.is_array or all(s.is_array for s in root.elements)
        self._flat = arrays_in and arrays_out and self.compilation.is_static and not root.is_token
        self._calls_python = self._hosts is not None or bool(self.extra)
        self._plain = self._caller if self._flat and not self._calls_python else None

    def __call__(
        self, *args: Any, infeed: Iterable[Any] = (), outfeed: Any = None, seed: int = 0, return_outfeed: bool = False
    ) -> Any:
        """The program's result. The keyword arguments are those of hlokit.evaluate.

        Parameters
        ----------
        args : Any
            One argument for each parameter, as for hlokit.evaluate.
        infeed : iterable, optional
            The values that infeed instructions read.
        outfeed : list, optional
            What outfeed instructions append their values to.
        seed : int, optional
            The seed of rng instructions.
        return_outfeed : bool, optional
            Whether to return (result, values of outfeed instructions).

        Returns
        -------
        numpy.ndarray, tuple or None
            The result.

        Raises
        ------
        ArgumentError
            The arguments do not match the parameters.
        EvaluationError
            A step cannot be run: an empty infeed, a custom call that fails.
        OutOfMemoryError
            The call needs more memory than there is.
        UnsupportedError
            The code is for another machine, or a custom call's target is not registered (UnknownTargetError).
        ShadowMismatch
            In shadow mode, a kernel's result is not the interpreter's.
        """
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
    def native(self) -> Caller | None:
        """Calls the machine code, for callers that do so without Python; None if it takes more than that."""
        return self._plain if isinstance(self._plain, Caller) else None

    @property
    def native_on_devices(self) -> Caller | None:
        """Calls the machine code of one device of several; None for values that take more than that."""
        is_plain = self._flat and not self.extra
        return self._caller if is_plain and isinstance(self._caller, Caller) else None

    @property
    def hosts(self) -> HostSteps | None:
        """Its steps of the reference."""
        return self._hosts

    @property
    @with_stack
    def program(self) -> Program:
        """The module on its way to machine code: passes, steps, loops, buffers, LLVM text. Made when asked for."""
        return self.compilation.program

    @with_stack
    def as_text(self, stage: str = "hlo") -> str:
        """The text of the program at a stage of compilation.

        Parameters
        ----------
        stage : str, optional
            One of: "hlo", the program after the passes; "loops", the kernels as loops over elements; "llvm", the LLVM
            IR of the kernels; "llvm-opt", the same after LLVM's passes; "asm", the assembly.

        Returns
        -------
        str
            The text.

        Raises
        ------
        HlokitError
            There is no such stage.
        """
        from hlokit.runtime.inspection import stage_text

        return stage_text(self.program, self.target, stage)

    @cached_property
    def lineage(self) -> CodeLineage:
        """The instructions from which each step, buffer and line of the loops comes.

        Computed at the first use, by running the passes again; for a dynamic program the source is the module with
        static dimensions.
        """
        from hlokit.runtime.lineage import CodeLineage

        return with_stack(CodeLineage)(self.compilation)

    def view(self, profile: Profile | None = None) -> View:
        """A page that shows the program through all stages: passes, loops, LLVM text, assembly, memory, times.

        Parameters
        ----------
        profile : Profile, optional
            A result of `profile`: its times are shown by step and by instruction.

        Returns
        -------
        View
            The page: `save` it as a file, or let a notebook show it.
        """
        return import_module("hlokit.view.making").view_executable(self, profile)

    def _repr_html_(self) -> str:
        return import_module("hlokit.view.notebook").executable_html(self)

    @with_stack
    def cost_analysis(self) -> dict[str, float]:
        """The operations and bytes of a call, counted from the original program.

        Returns
        -------
        dict of float
            "flops", "transcendentals", "bytes accessed" and others, with JAX's names.
        """
        from hlokit.runtime.inspection import cost_analysis

        return cost_analysis(self.compilation.static)

    def memory_analysis(self) -> MemoryAnalysis:
        """The memory that a call needs.

        Returns
        -------
        MemoryAnalysis
            Sizes with JAX's names, the peak, the values that are live at the peak, and the lifetime of each buffer.
        """
        from hlokit.runtime.inspection import memory_analysis

        return memory_analysis(self.program, self.plan)

    @with_stack
    def profile(self, *args: Any, repeat: int = 10, **options: Any) -> Profile:
        """The times of each step. The code that measures them is generated at the first use.

        Parameters
        ----------
        args : Any
            The arguments, as for a call; JAX's arrays are converted to NumPy's once, before the calls that are timed.
        repeat : int, optional
            The number of calls.
        options : Any
            The keyword arguments of a call.

        Returns
        -------
        Profile
            The times of each step, with the machine's limits.

        Raises
        ------
        ArgumentError
            The arguments do not match the parameters.
        """
        from hlokit.runtime.profile import profile

        return profile(self, self._values(args), repeat, options)

    @cached_property
    def communicating(self) -> list[Instruction]:
        """The instructions that the reference evaluates, in the program's order."""
        found = self._hosts.instructions if self._hosts is not None else []
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
        """The reasons for decisions of the compiler: (instruction, decision, reason)."""
        from hlokit.runtime.inspection import reasons

        return reasons(self.program, self.notes, self.recompiled)

    @cached_property
    def recompiled(self) -> list[str]:
        """The reason why each part that was compiled was not in the cache."""
        return [event.reason for event in self._misses]

    def _loaded(self) -> Caller:
        plan, hosts, code = self.plan, self._hosts, Code(self.plan, self.threads)
        interface = self.compilation.interface
        hosts_at = (hosts.address, hosts.context) if hosts is not None else (0, 0)
        parameters = [(name, leaf) for name, shape in interface.parameters for leaf in array_leaves(shape)]

        def failed() -> None:
            if plans.ON_STACK in plan.runtime:
                raise_refused()
            raise_kept()

        return Caller(
            code.entry,
            [shape for _, shape in parameters],
            list(array_leaves(interface.result)),
            constants=code.constants,
            temporaries=plan.peak.temporaries,
            more=(code.workers, *hosts_at, *self.extra),
            names=[name for name, _ in parameters],
            program=interface.name,
            unwrap=interface.result.is_array,
            release=hosts is not None or bool(_ASKING & {*plan.runtime}) or plan.work > _RELEASE_NS,
            aliases=plan.aliases,
            overwritten=plan.overwritten,
            aligned=plan.aligned,
            failed=failed,
            keep=(code, hosts),
        )

    # -- calls that are not plain

    def _run(self, args: Sequence[Any]) -> Any:
        """A call with tuples, tokens or dynamic dimensions in its signature, or with steps of the reference."""
        if self._flat:
            return self._caller.call(*args)
        values = self._values(args)
        compilation = self.compilation
        if not compilation.is_static:
            values = compilation.signature.arguments(values)
        result = self._caller.call(*leaves(tuple(values)))
        root = compilation.static.entry.root.shape
        value = tree(root, iter((result,) if root.is_array else result))
        return value if compilation.is_static else compilation.signature.result(value)

    def _values(self, args: Sequence[Any]) -> list[Any]:
        """The values of the parameters, as NumPy's arrays."""
        parameters = self.source.entry.parameters
        if len(args) != len(parameters):
            raise wrong_count(self.source.name, len(parameters), args)
        return [
            argument(f"argument {i} ({p.name})", p.shape, a)
            for i, (p, a) in enumerate(zip(parameters, args, strict=True))
        ]


@dataclass(frozen=True)
class _Elsewhere:
    """In place of a Caller where the code cannot run."""

    why: str

    def call(self, *_: Any) -> Any:
        raise UnsupportedError(self.why)


__all__ = ["Executable"]
