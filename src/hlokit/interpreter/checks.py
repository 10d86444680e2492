"""Checks before a module runs: the number of devices, and whether its shapes can be allocated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hlokit.errors import ArgumentError, EvaluationError, OutOfMemoryError, UnsupportedError
from hlokit.hlo.computation import counted
from hlokit.hlo.module import check_is_module
from hlokit.ops.control_flow import Domain
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.module import HloModule

_MOST_DEVICES = 1 << 16
_MOST_DIMENSIONS = 64
"""NumPy's limit."""


def device_counts(module: HloModule, replicas: int | None, partitions: int | None) -> tuple[int, int]:
    """The numbers of replicas and partitions: as given, else as the module's header says. ArgumentError for < 1,
    for more devices than 65536, and for what is not a module."""
    check_is_module(module)
    counts = (
        module.replica_count if replicas is None else replicas,
        module.num_partitions if partitions is None else partitions,
    )
    if min(counts) < 1:
        raise ArgumentError(f"replicas={counts[0]}, partitions={counts[1]}: at least one of each [EXEC-2]")
    if math.prod(counts) > _MOST_DEVICES:
        raise ArgumentError(f"replicas={counts[0]}, partitions={counts[1]}: more than {_MOST_DEVICES} devices [EXEC-2]")
    return counts


def grid_text(replicas: int, partitions: int) -> str:
    """ "2 replicas of 1 partition"."""
    return f"{counted(replicas, 'replica')} of {counted(partitions, 'partition')}"


def refuse(
    module: HloModule, memory_limit: int, replicas: int | None = None, partitions: int | None = None, what: str = ""
) -> None:
    """Raises for a module that takes a partitioner or whose shapes cannot be had, before anything is allocated.

    `what`: the name of a caller that runs one device only, for the UnsupportedError.
    """
    replicas, partitions = device_counts(module, replicas, partitions)
    if partitions > 1:
        _refuse_to_partition(module)
    if what and replicas * partitions != 1:
        raise UnsupportedError(f"{what}: {replicas * partitions} devices; it runs one device for now")
    _refuse_what_cannot_run(module, memory_limit)


def _refuse_what_cannot_run(module: HloModule, limit: int) -> None:
    """Before anything is allocated: shapes too large for memory, unbounded ones."""
    for computation in module.all_computations:
        for instruction in computation.instructions:
            if instruction.shape.is_unbounded:
                raise UnsupportedError(
                    f"{instruction.name}: {instruction.shape} has an unbounded dimension: it cannot be run"
                )
            if not _has_array(instruction.shape):
                raise EvaluationError(f"{instruction.name}: {instruction.shape} is too large for an array")
            if instruction.shape.nbytes > limit:
                raise OutOfMemoryError(
                    f"{instruction.name}: {instruction.shape} takes {instruction.shape.nbytes} bytes, "
                    f"more than the limit of {limit}"
                )


def _has_array(shape: Shape) -> bool:
    """Whether NumPy can hold it: without elements too, the other sizes must multiply to what a pointer can span."""
    return all(
        leaf.rank <= _MOST_DIMENSIONS
        and (leaf.nbytes or not leaf.is_array or math.prod(filter(None, leaf.dimensions)) * leaf.dtype.bits < 2**63)
        for leaf in shape.leaves()
    )


def _refuse_to_partition(module: HloModule) -> None:
    """Values that several partitions share out take a partitioner (HSHARD-7), unless the module runs on whole ones."""
    if module.frontend_attributes.get("hlokit.values") == "global":
        return
    for computation in module.all_computations:
        for instruction in computation.instructions:
            sharding = instruction.extra.sharding if instruction.extra is not None else None
            found = [sharding] if sharding is not None else []
            if isinstance(instruction.op, Domain):
                found += instruction.op.domain[1:]
            for s in found:
                if s.needs_partitioner:
                    raise UnsupportedError(f"{instruction.name}: sharding={s}: hlokit does not partition [HSHARD-7]")
