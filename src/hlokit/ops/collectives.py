"""Collective ops: what devices compute together."""

from typing import Any

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Device, Function
from hlokit.ops.reduction import check_reducer
from hlokit.types.attributes import Groups
from hlokit.types.shape import ProgramShape, Shape


class AllReduce(Op, name="all-reduce"):
    """Elementwise reduction over the members of each group, in group order; every member gets the result."""

    channel_id: int | None = attr(None)
    replica_groups: Groups = attr((), always=True)
    constrain_layout: bool = attr(False)
    use_global_device_ids: bool = attr(False)

    roles = ("to_apply",)
    form = "communicate"
    rules = "ARED"
    shape_required = True
    side_effect = True
    ignored_attributes = ("mode",)

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check(len(operands) > 0, "ARED-4", "operands", 0, "at least one")
        for operand in operands:
            check(operand.is_array, "ARED-4", "operand", operand, "an array")
            check_reducer(to_apply, [operand], (operand.dtype[()],))
        return operands[0] if len(operands) == 1 else Shape.tuple(operands)

    def reference(self, *operands: Array, to_apply: Function, process: Device) -> Any:
        members = process.members(self.replica_groups, self.channel_id, self.use_global_device_ids)
        contributions = process.meet(self, members, operands)
        results: list[Array] = []
        for parts in zip(*contributions, strict=True):
            result = parts[0]
            for part in parts[1:]:
                result = to_apply.batched(result, part)
            results.append(result)
        return results[0] if len(operands) == 1 else tuple(results)
