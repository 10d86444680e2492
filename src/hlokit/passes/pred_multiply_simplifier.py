"""pred-multiply-simplifier: products with converted predicates become selects, as in XLA."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.ops.contraction import Dot
from hlokit.ops.control_flow import Call
from hlokit.ops.conversion import Convert
from hlokit.ops.elementwise import Multiply, Select
from hlokit.ops.movement import Broadcast, Transpose
from hlokit.ops.reshaping import Reshape
from hlokit.ops.structure import Constant, Tuple
from hlokit.passes.call_inliner import CallInliner
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import constant_like, is_plain, like

_WHOLE = ("f16", "f32", "f64", "c64", "c128")
"""The types that XLA:CPU multiplies as they are: it converts others before it simplifies, and sees no convert(pred)."""


@dataclass(frozen=True)
class PredMultiplySimplifier(Pass):
    """multiply(x, convert(pred)) becomes select(pred, x, 0): 0 where x is infinite or NaN and the product would be NaN.

    XLA's algebraic simplifier does this. It changes what a program means, so that it is no part of a pipeline. It holds
    for dots that add such products of elements in equal places, and for converted predicates that calls take or give.
    """

    name = "pred-multiply-simplifier"

    def run(self, module: HloModule) -> bool:
        calls = [i for i in module.instructions() if isinstance(i.op, Call)]
        changed = any(map(_crosses, calls)) and CallInliner().run(module)
        for computation in module.all_computations:
            products = [i for i in computation.instructions if isinstance(i.op, (Multiply, Dot))]
            rewritten = [product for product in products if _rewritten(product, computation)]
            if rewritten:
                computation.remove_dead()
            changed |= bool(rewritten)
        return changed


def _rewritten(product: Instruction, computation: Computation) -> bool:
    """Whether the product was one with a converted predicate, and is replaced."""
    if not is_plain(product) or product.shape.dtype.name not in _WHOLE or product.control_predecessors:
        return False
    lhs, rhs = product.operands
    if isinstance(product.op, Dot) and not _in_equal_places(product):
        return False
    if (chosen := _chosen(lhs, rhs, computation)) is not None:
        operands = [chosen, rhs]
    elif (chosen := _chosen(rhs, lhs, computation)) is not None:
        operands = [lhs, chosen]
    else:
        return False
    is_sum = isinstance(product.op, Dot)
    computation.replace(product, like(product, product.op, *operands) if is_sum else chosen)
    return True


_MOVED = (Broadcast, Reshape, Transpose)


def _chosen(value: Instruction, mask: Instruction, computation: Computation) -> Instruction | None:
    """select(p, value, 0) where the mask is convert(p), or both are moved in the same way, as XLA moves their product.

    None for other masks and for predicates of which XLA:CPU's simplifier sees no conversion: of constants it is folded
    before, with broadcasts it changes places.
    """
    moved: list[Op] = []
    while isinstance(value.op, _MOVED) and value.op is mask.op and value.operands[0].shape is mask.operands[0].shape:
        moved.append(value.op)
        value, mask = value.operands[0], mask.operands[0]
    if not isinstance(mask.op, Convert) or mask.operands[0].shape.dtype.kind != "pred":
        return None
    predicate = mask.operands[0]
    repeated = isinstance(predicate.op, Broadcast) and predicate.shape.size != predicate.operands[0].shape.size
    if repeated or isinstance(predicate.op, Constant):
        return None
    chosen = like(value, Select(), predicate, value, constant_like(computation, value, 0))
    for op in reversed(moved):
        chosen = computation.add(op, [chosen])
    return chosen


def _in_equal_places(dot: Instruction) -> bool:
    """Whether a dot multiplies elements of its operands in equal places alone, in a type that XLA:CPU does so in."""
    op, (lhs, rhs) = dot.op, dot.operands
    assert isinstance(op, Dot)
    left = (*op.lhs_batch_dims, *op.lhs_contracting_dims)
    pairs = left == (*op.rhs_batch_dims, *op.rhs_contracting_dims) and len(left) == lhs.shape.rank == rhs.shape.rank
    return pairs and dot.shape.dtype.name != "f16" and lhs.shape.dtype is rhs.shape.dtype is dot.shape.dtype


def _crosses(call: Instruction) -> bool:
    """Whether a converted predicate enters or leaves a called computation."""
    root = call.called[0].root
    results = root.operands if isinstance(root.op, Tuple) else [root]
    values = [*call.operands, *results]
    return any(isinstance(v.op, Convert) and v.operands[0].shape.dtype.kind == "pred" for v in values)
