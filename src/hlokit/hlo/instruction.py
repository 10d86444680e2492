"""Instruction: one node of a computation's graph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hlokit.hlo.op import Op
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation


@dataclass(slots=True)
class Metadata:
    """The origin of an instruction (HCATTR-6). `stack_frame_id` points into the module's stack tables."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    deduplicated_name: str = ""
    scheduling_name: str = ""
    metadata_payload: str = ""
    stack_frame_id: int = 0
    profile_type: tuple[int, ...] = ()

    def copied(self) -> Metadata:
        """Another with the same fields: a tenth of the time of dataclasses.replace."""
        return Metadata(
            self.op_type,
            self.op_name,
            self.source_file,
            self.source_line,
            self.source_end_line,
            self.source_column,
            self.source_end_column,
            self.deduplicated_name,
            self.scheduling_name,
            self.metadata_payload,
            self.stack_frame_id,
            self.profile_type,
        )


@dataclass(slots=True)
class Extra:
    """Attributes that only some instructions have and no result depends on (HCATTR rules)."""

    metadata: Metadata | None = None
    sharding: Sharding | None = None
    frontend_attributes: dict[str, str] = field(default_factory=dict[str, str])
    control_predecessors: list[Instruction] = field(default_factory=list["Instruction"])
    backend_config: str = ""
    backend_config_is_json: bool = False
    statistics: str = ""
    origin: str = ""
    parameter_replication: tuple[bool, ...] = ()
    async_execution_thread: str = ""

    def copied(self, control_predecessors: list[Instruction]) -> Extra:
        """Another for an instruction with these control predecessors."""
        return Extra(
            self.metadata,
            self.sharding,
            dict(self.frontend_attributes),
            control_predecessors,
            self.backend_config,
            self.backend_config_is_json,
            self.statistics,
            self.origin,
            self.parameter_replication,
            self.async_execution_thread,
        )


class Instruction:
    """A node: an op applied to operands. Made and changed only by its computation's methods.

    Attributes
    ----------
    id : int
        Its number in the computation; ids ascend in the order of addition.
    name : str
        Its name in HLO text, without "%".
    op : Op
        The op with its attributes.
    shape : Shape
        The result's shape, with layout.
    operands : tuple of Instruction
        The instructions whose values it uses, in order.
    users : dict
        The instructions that use its value, in the order in which they were added, each with its operand number, or
        None if the value is several of its operands.
    called : tuple of Computation
        The computations that it calls, in the order of the op's roles.
    parent : Computation or None
        The computation that it is in; None once removed.
    extra : Extra or None
        Metadata, sharding, frontend attributes and the like; None if it has none.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> root = module.entry.root
    >>> root.name, root.opcode, root.shape, root.operands
    ('y', 'negate', f32[2], (<x: f32[2] parameter>,))
    """

    __slots__ = ("__weakref__", "called", "extra", "id", "name", "op", "operands", "parent", "shape", "users")

    def __init__(
        self,
        id: int,
        name: str,
        op: Op,
        shape: Shape,
        operands: tuple[Instruction, ...],
        called: tuple[Computation, ...],
        parent: Computation,
    ) -> None:
        self.id = id
        self.name = name
        self.op = op
        self.shape = shape
        self.operands = operands
        self.called = called
        self.users: dict[Instruction, int | None] = {}
        self.parent: Computation | None = parent
        self.extra: Extra | None = None

    @property
    def opcode(self) -> str:
        """The op's name in HLO text, such as "dot"."""
        return self.op.opcode

    @property
    def is_root(self) -> bool:
        """Whether its value is the result of the computation."""
        return self.parent is not None and self.parent.root is self

    @property
    def control_predecessors(self) -> list[Instruction]:
        """The instructions that must run before this one although it does not use their values."""
        return self.extra.control_predecessors if self.extra is not None else []

    def called_by_role(self) -> list[tuple[str, Any]]:
        """(role, computation) for each role of the op; (role, list of computations) for a list role.

        Returns
        -------
        list of (str, Computation)
            The roles and computations.
        """
        return by_role(self.op, self.called)

    def ensure_extra(self) -> Extra:
        """The metadata and the like, made if there are none yet.

        Returns
        -------
        Extra
            The metadata.
        """
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def __str__(self) -> str:
        from hlokit.text.printer import instruction_text

        return instruction_text(self)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.shape.brief()} {self.opcode}>"


_NO_QUEUES = re.compile(r'"wait_on_operation_queues":\s*\[\]\s*,')


def normal_config(text: str) -> str:
    """A backend_config as XLA keeps it: without a GPU's list of queues to wait for where it is empty (HCATTR-7)."""
    return _NO_QUEUES.sub("", text)


def by_role(op: Op, called: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Called computations (or things made of them) keyed by the op's roles: the single ones first, then the list."""
    if not called and not op.list_roles:
        return []
    pairs: list[tuple[str, Any]] = list(zip(op.roles, called, strict=False))
    return pairs + [(role, list(called[len(op.roles) :])) for role in op.list_roles]
