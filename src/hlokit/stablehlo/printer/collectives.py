"""Collective ops. Of a pair start and done the start is printed; the done passes its value on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.ops.collectives import CollectiveReduce
from hlokit.ops.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute
from hlokit.stablehlo.printer.elementwise import same
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.stablehlo.printer.spelling import UNIT, matrix_text
from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import Shape


def _groups(groups: ReplicaGroups) -> str:
    """dense<[[0, 1], [2, -1]]>: shorter groups are filled up."""
    rows = groups.as_lists().groups
    size = max(map(len, rows), default=0)
    return matrix_text([(*row, *[-1] * (size - len(row))) for row in rows], size)


def _common(site: PrintSite) -> dict[str, str]:
    """Channel, groups and what the ids mean."""
    op: Any = site.instruction.op
    found: dict[str, str] = {}
    if op.channel_id is not None:
        found["channel_handle"] = f"#stablehlo.channel_handle<handle = {op.channel_id}, type = 1>"
    if hasattr(op, "replica_groups"):
        found["replica_groups"] = _groups(op.replica_groups)
    if getattr(op, "use_global_device_ids", False):
        found["use_global_device_ids"] = UNIT
    return found


def _results(site: PrintSite, shape: Shape) -> list[Shape] | None:
    """The shapes of the operation's results; None where they are the instruction's own."""
    return None if shape is site.shape else list(shape.leaves())


def _state(site: PrintSite, results: Sequence[Value]) -> list[Value]:
    """The state of a start: its operands, results, and contexts that nothing computes."""
    given = list(site.shape.elements[0].leaves()) if site.shape.elements else []
    contexts = [leaf for part in site.shape.elements[2:] for leaf in part.leaves()]
    return [*site.operands[: len(given)], *results, *(Value("", c) for c in contexts)]


def _done(site: PrintSite) -> Sequence[Value]:
    """The result in a start's state."""
    elements = site.instruction.operands[0].shape.elements
    first = len(list(elements[0].leaves()))
    return site.states(0)[first : first + len(site.leaves)]


def _gathered(site: PrintSite, result: Shape) -> list[Value]:
    op: Any = site.instruction.op
    properties = {"all_gather_dim": f"{op.dimension} : i64", **_common(site)}
    return site.generic("stablehlo.all_gather", site.operands, _results(site, result), properties)


def _all_gather(site: PrintSite) -> list[Value]:
    return _gathered(site, site.shape)


def _all_gather_start(site: PrintSite) -> list[Value]:
    return _state(site, _gathered(site, site.shape.elements[1]))


def _all_reduce(site: PrintSite) -> list[Value]:
    return site.generic("stablehlo.all_reduce", site.operands, properties=_common(site), regions=[site.region()])


def _reduce_scatter(site: PrintSite) -> list[Value]:
    """One operation for each operand: StableHLO's takes one."""
    op: Any = site.instruction.op
    properties = {"scatter_dimension": f"{op.dimension} : i64", **_common(site)}
    values: list[Value] = []
    for operand, leaf in zip(site.operands, site.leaves, strict=True):
        shapes = None if len(site.operands) == 1 else [leaf]
        values += site.generic("stablehlo.reduce_scatter", [operand], shapes, properties, regions=[site.region()])
    return values


def _all_to_all(site: PrintSite) -> list[Value]:
    """Along a dimension; blocks that are operands are stacked first."""
    op = site.instruction.op
    assert isinstance(op, AllToAll)
    if op.dimension is None:
        return _all_to_all_of_tuple(site)
    module = site.into.symbols.module
    everyone = module.replica_count if op.channel_id is None else module.num_partitions
    count = op.replica_groups.group_size or everyone
    return _exchanged(site, site.operand(), op.dimension, count, None)


def _exchanged(site: PrintSite, value: Value, dimension: int, count: int, results: list[Shape] | None) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, AllToAll)
    groups = op.replica_groups.expand(count)  # jaxlib dies of an empty list
    properties = {
        **_common(site),
        "replica_groups": matrix_text(groups, count),
        "concat_dimension": f"{dimension} : i64",
        "split_count": f"{count} : i64",
        "split_dimension": f"{dimension} : i64",
    }
    return site.generic("stablehlo.all_to_all", [value], results, properties)


def _all_to_all_of_tuple(site: PrintSite) -> list[Value]:
    operands, count = site.operands, len(site.operands)
    shape = operands[0].shape
    if shape.is_dynamic:
        raise site.unsupported("operands of dynamic sizes")
    row = shape.with_dimensions((1, *shape.dimensions))
    rows = [site.short("stablehlo.reshape", [o], row, types="function") for o in operands]
    stacked = shape.with_dimensions((count, *shape.dimensions))
    whole = site.short("stablehlo.concatenate", rows, stacked, ", dim = 0", types="function")
    (moved,) = _exchanged(site, whole, 0, count, [stacked])
    values: list[Value] = []
    for i in range(count):
        ranges = ", ".join([f"{i}:{i + 1}", *(f"0:{size}" for size in shape.dimensions)])
        part = site.short("stablehlo.slice", [moved], row, f" [{ranges}]", types="function")
        values.append(site.short("stablehlo.reshape", [part], shape, types="function"))
    return values


def _ragged_all_to_all(site: PrintSite) -> list[Value]:
    """A custom call of that name."""
    op: Any = site.instruction.op
    channel = f"channel_id = {op.channel_id or 0} : i64"  # jaxlib dies where there is none; 0 says none
    config = f"{{{channel}, replica_groups = {_groups(op.replica_groups)}}}"
    attributes = {"api_version": "4 : i32", "backend_config": config}
    return [site.applied("stablehlo.custom_call @ragged_all_to_all", site.operands, "", attributes)]


def _collective_broadcast(site: PrintSite) -> list[Value]:
    """One operation for each operand. Only all-reduce may have groups of different sizes in StableHLO."""
    op = site.instruction.op
    assert isinstance(op, CollectiveBroadcast)
    if len(set(map(len, op.replica_groups.groups))) > 1:
        raise site.unsupported("groups of different sizes")
    if op.has_dynamic_root:
        properties = {**_common(site), "has_dynamic_root": "true"}
        return site.generic("stablehlo.collective_broadcast", site.operands, site.leaves, properties)
    values: list[Value] = []
    for operand, leaf in zip(site.operands, site.leaves, strict=True):
        shapes = None if len(site.operands) == 1 else [leaf]
        values += site.generic("stablehlo.collective_broadcast", [operand], shapes, _common(site))
    return values


def _collective_reduce(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, CollectiveReduce)
    properties = _common(site)
    if op.has_dynamic_root:
        properties["has_dynamic_root"] = "true"
    return site.generic(
        "stablehlo.collective_reduce", site.operands, site.leaves, properties, regions=[site.region()]
    )


def _permuted(site: PrintSite, result: Shape) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, CollectivePermute)
    if op.slice_sizes:
        raise site.unsupported("slices in place")
    properties = {**_common(site), "source_target_pairs": matrix_text(op.source_target_pairs, 2)}
    leaves = list(result.leaves())
    own = result is site.shape and len(leaves) == 1
    values: list[Value] = []
    for operand, leaf in zip(site.operands, leaves, strict=True):
        values += site.generic("stablehlo.collective_permute", [operand], None if own else [leaf], properties)
    return values


def _collective_permute(site: PrintSite) -> list[Value]:
    return _permuted(site, site.shape)


def _collective_permute_start(site: PrintSite) -> list[Value]:
    return _state(site, _permuted(site, site.shape.elements[1]))


def _identity(name: str) -> Rule:
    def rule(site: PrintSite) -> list[Value]:
        return [site.short(name, [])]

    return rule


RULES: dict[str, Rule] = {
    "all-gather": _all_gather,
    "all-gather-done": _done,
    "all-gather-start": _all_gather_start,
    "all-reduce": _all_reduce,
    "all-reduce-done": same,
    "all-reduce-start": _all_reduce,
    "all-to-all": _all_to_all,
    "collective-broadcast": _collective_broadcast,
    "collective-reduce": _collective_reduce,
    "collective-permute": _collective_permute,
    "collective-permute-done": _done,
    "collective-permute-start": _collective_permute_start,
    "partition-id": _identity("stablehlo.partition_id"),
    "ragged-all-to-all": _ragged_all_to_all,
    "reduce-scatter": _reduce_scatter,
    "replica-id": _identity("stablehlo.replica_id"),
}
