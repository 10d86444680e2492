"""HloModule: computations, one of them the entry, and the content of the header."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy as shallow_copy
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from hlokit.errors import ArgumentError, MisuseError, UnsupportedError
from hlokit.hlo.computation import Computation, counted
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.names import Names, identifier
from hlokit.stack import with_stack
from hlokit.tracebacks import public  # pyright: ignore[reportUnusedImport]
from hlokit.types.shape import ProgramShape, Shape

if TYPE_CHECKING:
    from hlokit.hlo.lineage import Lineage
    from hlokit.view.page import View


@dataclass(frozen=True, slots=True)
class Alias:
    """The output at `output_index` may (or must) share the buffer of a parameter (HMOD-6)."""

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    kind: str = "may-alias"


LOCATION_FIELDS = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
DEBUG_FIELDS: dict[str, tuple[str, ...]] = {
    "log_mode": ("none", "default", "fusion_debugger", "no_fusion", "guaranteed"), "callback_id": (), "op_id": (),
    "partitioned": ("false", "true"),
}  # fmt: skip
"""The fields of debug_attributes, in the order in which they are printed, and their values; () is for integers."""
FRAME_FIELDS = ("file_location_id", "parent_frame_id")


@dataclass(slots=True)
class StackTables:
    """The debug tables of the header (HMOD-14), each a list whose entry i has the id i+1.

    A location or frame has the fields LOCATION_FIELDS or FRAME_FIELDS, in this order.
    """

    file_names: list[str] = field(default_factory=list[str])
    function_names: list[str] = field(default_factory=list[str])
    file_locations: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    stack_frames: list[dict[str, int]] = field(default_factory=list[dict[str, int]])

    def __bool__(self) -> bool:
        return bool(self.file_names or self.function_names or self.file_locations or self.stack_frames)


@dataclass(frozen=True, slots=True)
class DebugAttributes:
    """An entry of the header's debug_attributes, on an array of the original program (HMOD-19).

    Each entry of `attributes` is a list of (name, value as written) pairs.
    """

    instruction: str
    index: tuple[int, ...]
    attributes: tuple[tuple[tuple[str, str], ...], ...]


def check_is_module(given: object) -> None:
    """Raises ArgumentError for what is not an HloModule, VerifyError for one that was read unchecked and is wrong."""
    if not isinstance(given, HloModule):
        how = "hk.load(path) or hk.parse(text) makes one" if isinstance(given, (str, bytes)) else "b.build(x) makes one"
        raise ArgumentError(f"found {type(given).__name__}, expected an HloModule: {how}")
    if given.is_unverified:
        from hlokit.hlo.verifier import verify

        verify(given)
        given.is_unverified = False


def refuse_buffers(module: HloModule) -> None:
    """Raises UnsupportedError for a program whose arguments or results would be buffers (CCALL-14)."""
    for found in module.entry.program_shape.buffers():
        raise UnsupportedError(f"{module.name}: {found}, a buffer; expected arrays as arguments and results [CCALL-14]")


class HloModule:
    """A program. `entry` is the computation that runs; `computations()` returns all computations in printing order.

    Attributes
    ----------
    name : str
        The name.
    entry_or_none : Computation or None
        The computation that runs; None until one is added.
    is_scheduled : bool
        Whether instructions run in the order in which computations list them.
    is_unverified : bool
        Whether it was read without the checks of `verify`, which are then made before it is run.
    replica_count, num_partitions : int
        The numbers of replicas and partitions on which it runs.
    parameter_layouts : list of Shape or None
        The parameters' shapes in entry_computation_layout; None: those of the entry.
    result_layout : Shape or None
        The result's shape in entry_computation_layout; None: that of the entry.
    input_output_alias : list of Alias
        Results that share the memory of parameters.
    buffer_donor : list of (int, tuple of int)
        Parameters, with a path of tuple indices, whose memory the program may use.
    alias_passthrough_params : bool
        Whether parameters that are results may share their memory.
    frontend_attributes : dict of str
        Attributes that hlokit stores but does not read.
    allow_spmd_sharding_propagation_to_parameters, allow_spmd_sharding_propagation_to_output : tuple of bool
        Whether the partitioner may choose shardings of parameters and of the result.
    origin_recovery_table, backend_config : str
        Fields of the header that are stored as text.
    debug_attributes : list of DebugAttributes
        Entries on arrays of the original program (HMOD-19).
    stack_tables : StackTables
        Files, functions and frames to which metadata refers (HMOD-14).
    lineage : Lineage or None
        The origins of the instructions, for a module made by `hk.optimize(..., lineage=True)`.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> module
    <HloModule m: (f32[2]) -> f32[2], 1 computation>
    >>> print(module.entry.root)
    %y = f32[2]{0} negate(%x)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.entry_or_none: Computation | None = None
        self.is_scheduled = False
        self.is_unverified = False
        self.replica_count = 1
        self.num_partitions = 1
        self.parameter_layouts: list[Shape] | None = None
        self.result_layout: Shape | None = None
        self.input_output_alias: list[Alias] = []
        self.buffer_donor: list[tuple[int, tuple[int, ...]]] = []
        self.alias_passthrough_params = False
        self.frontend_attributes: dict[str, str] = {}
        self.allow_spmd_sharding_propagation_to_parameters: tuple[bool, ...] = ()
        self.allow_spmd_sharding_propagation_to_output: tuple[bool, ...] = ()
        self.origin_recovery_table = ""
        self.backend_config = ""
        self.debug_attributes: list[DebugAttributes] = []
        self.stack_tables = StackTables()
        self.lineage: Lineage | None = None
        self._computations: dict[Computation, None] = {}

    if not TYPE_CHECKING:  # a type checker refuses the call

        @public
        def __call__(self, *args: object, **kwargs: object) -> NoReturn:
            raise MisuseError(f"{self!r} is a program, not a function: write hk.evaluate(m, ...) or hk.compile(m)(...)")

    @property
    def entry(self) -> Computation:
        """The computation that runs when the program is called."""
        if self.entry_or_none is None:
            raise ValueError(f"module {self.name} has no entry computation")
        return self.entry_or_none

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of the entry's parameters and of its result."""
        return self.entry.program_shape

    def add_computation(self, computation: Computation, *, entry: bool = False) -> Computation:
        """Adds a computation to the module, which owns it from then on.

        Parameters
        ----------
        computation : Computation
            The computation.
        entry : bool, optional
            Whether it is the computation that runs.

        Returns
        -------
        Computation
            The computation.
        """
        computation.module = self
        self._computations[computation] = None
        if entry:
            self.entry_or_none = computation
        return computation

    def remove_computation(self, computation: Computation) -> None:
        """Removes a computation that nothing calls from the module.

        Parameters
        ----------
        computation : Computation
            The computation.
        """
        del self._computations[computation]
        computation.module = None

    @property
    def all_computations(self) -> list[Computation]:
        """In the order in which they were added."""
        return list(self._computations)

    def computations(self) -> list[Computation]:
        """The computations in XLA's order (HPRINT-11): callees before callers, else in order of addition.

        Returns
        -------
        list of Computation
            The computations.
        """
        calls = {c: _calls(c) for c in self._computations}
        called = {callee for groups in calls.values() for group in groups for callee in group}
        starts = [c for c in self._computations if c not in called]
        order = _order(starts, calls)
        if not _is_callees_first(order, calls):
            order = _order(
                starts, {c: [(callee,) for group in groups for callee in group] for c, groups in calls.items()}
            )
        found = set(order)
        return order + [c for c in self._computations if c not in found]  # in a call cycle: the verifier reports it

    def instructions(self) -> list[Instruction]:
        """Every instruction of every computation, in printing order.

        Returns
        -------
        list of Instruction
            The instructions.
        """
        return [i for computation in self.computations() for i in computation.post_order()]

    def scheduled(self) -> set[Computation]:
        """The computations whose order of instructions is the schedule (HMOD-2); none if the module has none.

        Computations that fusions call are not scheduled.

        Returns
        -------
        set of Computation
            The computations.
        """
        if not self.is_scheduled:
            return set()
        instructions = (i for computation in self._computations for i in computation.instructions)
        fused = {called for i in instructions if i.opcode == "fusion" for called in i.called}
        return {computation for computation in self._computations if computation not in fused}

    def settle(self) -> None:
        """Brings the module to the form that printing and parsing it would give (HPRINT-9).

        Instructions are put in post-order, which determines the order of computations, and names are made unique in
        that order. Names that text cannot represent are replaced by the nearest valid ones.
        """
        self.name = identifier(self.name)
        for computation in self._computations:
            computation.reorder(computation.post_order())
        computations, instructions = Names(), Names()
        for computation in self.computations():
            computation.name = computations.valid(computation.name)
            for instruction in computation.instructions:
                instruction.name = instructions.valid(instruction.name)

    @with_stack
    def to_text(self, options: Any = None) -> str:
        """The module as HLO text.

        Parameters
        ----------
        options : PrintOptions or str, optional
            The form: "short_parsable", "canonical", ...; by default XLA's.

        Returns
        -------
        str
            The text.

        Raises
        ------
        ValueError
            There is no form of this name.
        """
        from hlokit.text.printer import module_text

        return module_text(self, options)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        entry = f"{self.entry_or_none.brief()}, " if self.entry_or_none is not None else ""
        return f"<HloModule {self.name}: {entry}{counted(len(self._computations), 'computation')}>"

    def view(self, *, passes: bool = True) -> View:
        """A page that shows the program: its graph, and its changes by each of the default passes.

        Parameters
        ----------
        passes : bool, optional
            Whether to run the passes; modules of 20,000 instructions and more are shown without them.

        Returns
        -------
        View
            The page: `save` it as a file, or let a notebook show it.
        """
        return import_module("hlokit.view.making").view_module(self, passes=passes)

    def _repr_html_(self) -> str:
        return import_module("hlokit.view.notebook").module_html(self)

    def clone(self) -> HloModule:
        """A deep copy: computations and instructions are new, values (shapes, ops, literals) are shared.

        Returns
        -------
        HloModule
            The copy.
        """
        copy = HloModule(self.name)
        for name, value in vars(self).items():
            if name not in ("_computations", "entry_or_none", "lineage"):
                setattr(copy, name, shallow_copy(value))
        copies: dict[Computation, Computation] = {}
        for computation in self.computations():
            copies[computation] = _clone_into(computation, copy, copies)
        for computation in self._computations:
            copy.add_computation(copies[computation], entry=computation is self.entry_or_none)
        return copy


def _clone_into(computation: Computation, module: HloModule, copies: dict[Computation, Computation]) -> Computation:
    copy = computation.clone(computation.name, module)
    for instruction in copy.instructions:
        instruction.called = tuple(copies.get(c, c) for c in instruction.called)
    return copy


_Calls: TypeAlias = dict[Computation, list[tuple[Computation, ...]]]


def _calls(computation: Computation) -> list[tuple[Computation, ...]]:
    """The computations that each calling instruction calls, in order; a while's body before its condition."""
    calling = [i for i in computation.instructions if i.called]
    return [i.called[::-1] if i.op.calls_reversed else i.called for i in calling]


def _order(starts: Iterable[Computation], calls: _Calls) -> list[Computation]:
    """Depth-first post-order without recursion, as XLA walks: what one instruction calls counts as seen at once, from
    last to first. So of a computation that occurs twice in such a group the last place counts, and a computation
    may come after a sibling that calls it too.
    """
    order: list[Computation] = []
    seen: set[Computation] = set()
    for start in starts:
        stack = [(start, iter(calls.get(start, ())))]
        while stack:
            computation, rest = stack[-1]
            group = next(rest, None)
            if group is None:
                stack.pop()
                order.append(computation)
                continue
            for callee in reversed(group):
                if callee not in seen:
                    seen.add(callee)
                    stack.append((callee, iter(calls.get(callee, ()))))
    return order


def _is_callees_first(order: list[Computation], calls: _Calls) -> bool:
    position = {computation: i for i, computation in enumerate(order)}
    return all(
        position.get(callee, -1) < i
        for i, computation in enumerate(order)
        for group in calls.get(computation, ())
        for callee in group
    )
