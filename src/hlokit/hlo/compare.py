"""Structural equality of modules, which printing and parsing must preserve (HPRINT-9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

HEADER_FIELDS = (
    "is_scheduled", "replica_count", "num_partitions", "input_output_alias", "buffer_donor", "alias_passthrough_params",
    "frontend_attributes", "allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output",
    "origin_recovery_table", "backend_config", "debug_attributes", "stack_tables",
)  # fmt: skip
EXTRA_FIELDS = (
    "metadata", "sharding", "frontend_attributes", "backend_config", "statistics", "origin", "parameter_replication",
    "async_execution_thread",
)  # fmt: skip
_NOTHING = Extra()


def same_module(a: HloModule, b: HloModule, names: bool = True) -> str | None:
    """The first difference between two modules, or None.

    Compares what each computation computes, in printing order: ops with attributes, shapes with layouts, operands,
    called computations, constants bit by bit, and everything that an instruction carries besides. The order in which
    instructions were added counts only in scheduled modules. With `names`, also names of module, computations and
    instructions.
    """
    return next(_differences(a, b, names), None)


def _differences(a: HloModule, b: HloModule, names: bool) -> Iterator[str]:
    if names and a.name != b.name:
        yield f"module name: {a.name} and {b.name}"
    for field in HEADER_FIELDS:
        if getattr(a, field) != getattr(b, field):
            yield f"module {field}: {getattr(a, field)} and {getattr(b, field)}"
    if entry_layout(a) != entry_layout(b):
        yield f"entry_computation_layout: {entry_layout(a)} and {entry_layout(b)}"
    ours, theirs = a.computations(), b.computations()
    if len(ours) != len(theirs):
        yield f"number of computations: {len(ours)} and {len(theirs)}"
        return
    pairs = dict(zip(ours, theirs, strict=True))
    if pairs[a.entry] is not b.entry:
        yield f"entry: {a.entry.name} and {b.entry.name}"
    scheduled = a.scheduled()
    for one, other in pairs.items():
        yield from _in_computations(one, other, pairs, names, one in scheduled)


def entry_layout(module: HloModule) -> tuple[Shape, ...]:
    """The shapes of entry_computation_layout: the parameters', then the result's."""
    shape = module.entry.signature()
    parameters = shape.parameters if module.parameter_layouts is None else tuple(module.parameter_layouts)
    return *parameters, shape.result if module.result_layout is None else module.result_layout


def _in_computations(
    a: Computation, b: Computation, called: dict[Computation, Computation], names: bool, scheduled: bool
) -> Iterator[str]:
    where = f"computation {a.name}"
    if names and a.name != b.name:
        yield f"{where}: the other is called {b.name}"
    if a.execution_thread != b.execution_thread:
        yield f"{where}: execution_thread {a.execution_thread} and {b.execution_thread}"
    if a.backend_config != b.backend_config:
        yield f"{where}: backend_config {a.backend_config!r} and {b.backend_config!r}"
    ours, theirs = (c.instructions if scheduled else c.post_order() for c in (a, b))
    if len(ours) != len(theirs):
        yield f"{where}: {len(ours)} and {len(theirs)} instructions"
        return
    pairs: dict[Instruction, Instruction] = dict(zip(ours, theirs, strict=True))
    for one, other in pairs.items():
        for difference in _in_instructions(one, other, pairs.get, called, names):
            yield f"{where}, {one.name}: {difference}"
    if pairs[a.root] is not b.root:
        yield f"{where}: root {a.root.name} and {b.root.name}"


def _in_instructions(
    a: Instruction,
    b: Instruction,
    match: Callable[[Instruction], Instruction | None],
    called: dict[Computation, Computation],
    names: bool,
) -> Iterator[str]:
    if names and a.name != b.name:
        yield f"the other is called {b.name}"
    if a.shape is not b.shape:
        yield f"shape {a.shape.to_text()} and {b.shape.to_text()}"
    if not _same_op(a.op, b.op):
        yield f"{a.op} and {b.op}"
    if [match(o) for o in a.operands] != list(b.operands):
        yield f"operands {[o.name for o in a.operands]} and {[o.name for o in b.operands]}"
    if [called.get(c) for c in a.called] != list(b.called):
        yield f"calls {[c.name for c in a.called]} and {[c.name for c in b.called]}"
    if a.extra is None and b.extra is None:
        return
    ours, theirs = a.extra or _NOTHING, b.extra or _NOTHING
    for field in EXTRA_FIELDS:
        if getattr(ours, field) != getattr(theirs, field):
            yield f"{field} {getattr(ours, field)} and {getattr(theirs, field)}"
    if [match(p) for p in ours.control_predecessors] != theirs.control_predecessors:
        yield "control predecessors"


def _same_op(a: Op, b: Op) -> bool:
    """The same attributes; constants by content, however large."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    values = ((getattr(a, attribute.name), getattr(b, attribute.name)) for attribute in a.attributes)
    return all(_same_literal(x, y) if isinstance(x, Literal) and isinstance(y, Literal) else x == y for x, y in values)


def _same_literal(a: Literal, b: Literal) -> bool:
    """Equal shapes and bits; elided content is equal to elided content."""
    if a.shape is not b.shape:
        return False
    if isinstance(a.value, tuple) and isinstance(b.value, tuple):
        return all(map(_same_literal, a.value, b.value))
    if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
        return a.value.tobytes() == b.value.tobytes()
    return a.value is None and b.value is None
