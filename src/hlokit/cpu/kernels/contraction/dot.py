"""Plain products and those with block scales: the choice of arithmetic and of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx import ROW_BYTES
from hlokit.cpu.kernels.contraction.arithmetic import AmxFactors, Arithmetic, amx_factors, arithmetic
from hlokit.cpu.kernels.contraction.elements import read
from hlokit.cpu.kernels.contraction.gemm import Product, ProductPlan
from hlokit.cpu.kernels.contraction.gemm_plan import blocking, sides_of
from hlokit.cpu.kernels.contraction.packing import Operand, ProductSide
from hlokit.cpu.kernels.contraction.parts import plan_parts
from hlokit.cpu.kernels.contraction.row_dots import RowDots, plan_row_dots
from hlokit.cpu.kernels.contraction.space import Axis, Space, product_space, row_major_strides, unravelled
from hlokit.cpu.kernels.contraction.streamed import StreamedProduct, plan_streamed
from hlokit.cpu.kernels.routine import Call, Packing
from hlokit.cpu.llvm import Index, Module, Pointer, Value
from hlokit.forms.contraction import Contraction
from hlokit.types.shape import Shape


def plan_dot(call: Call, form: Contraction) -> ProductPlan:
    """Products of any shapes and types."""
    left, right = (shape.dtype for shape in call.operands[:2])
    result, index = call.results[0].dtype, product_space(form, call.operands, call.results[0])
    factors = amx_factors(left, result, index.inner.size, call.target) if left is right else None
    if factors is not None and _lies_in_rows(factors, index):
        return _plan_blocks(call, index, factors.arithmetic, Product)
    single = arithmetic(left, result, call.target, is_grouped=False)
    plan = (factors and plan_parts(call, index, factors)) or plan_row_dots(call, index, single)
    if plan is not None:
        return plan
    how = arithmetic(left, result, call.target, is_grouped=left is right)
    most = costs.MOST_STREAMED_ROWS if how.group == 1 else costs.FEW_ROWS
    return plan_streamed(call, index, single, most_rows=most) or _plan_blocks(call, index, how, Product)


def reads_loaded(call: Call, form: Contraction) -> bool:
    """Whether a plain product reads its loaded operand as a loader has it: as rhs, each element once."""
    plan, loader = plan_dot(call, form), call.loader
    assert loader is not None
    _, rhs = plan.sides
    if rhs.number != loader.number or not _reads_once(plan):
        return False
    axes = [axis for axis in (rhs.free, rhs.inner) if axis.stride("rhs") == 1]
    lanes = plan.blocking.lanes * plan.arithmetic.group
    return loader.run % lanes == 0 or all(loader.run % axis.size == 0 for axis in axes)


def _reads_once(plan: ProductPlan) -> bool:
    """Whether all of rhs is read by Operand.read, each element once."""
    p = plan.blocking
    if plan.product is Product:
        return not plan.arithmetic.is_matrix and not p.keeps_rhs and p.block[1] >= plan.space.rows.size
    return plan.product in (StreamedProduct, RowDots)


def _lies_in_rows(factors: AmxFactors, index: Space) -> bool:
    """Whether AMX reads lhs where it lies, and the product fills a good part of its registers."""
    if factors.parts > 1 or index.inner.stride("lhs") != 1:
        return False
    return min(index.rows.size, index.columns.size) >= 8 and index.inner.size * factors.memory.bytes >= ROW_BYTES


def _plan_blocks(
    call: Call, index: Space, how: Arithmetic, product: type[Product], *, is_scaled: bool = False
) -> ProductPlan:
    sides = sides_of(call, index, how, is_scaled=is_scaled)
    cut = blocking(call, index, how, sides, may_share=product is Product)
    return ProductPlan(call, index, how, cut, product, is_scaled)


def dot_packing(call: Call, module: Module, form: Contraction) -> Packing | None:
    """rhs of a product of large enough matrices, packed apart."""
    return plan_dot(replace(call, packed=True), form).packing(module)


class ScaledProduct(Product):
    """A product whose operands are multiplied by block scales while they are packed."""

    def operand(self, side: ProductSide) -> Operand:
        shape, scale = self.call.operands[side.number], self.call.operands[side.number + 2]
        plain = super().operand(side)
        return ScaledOperand(**vars(plain), shape=shape, scale_shape=scale, scale=self.pointer(side.number + 2))


@dataclass
class ScaledOperand(Operand):
    """An operand times its block scales (BEY-44)."""

    shape: Shape
    scale_shape: Shape
    scale: Pointer

    @property
    def addresses(self) -> dict[str, Pointer]:
        return {"base": self.base, "scale": self.scale}

    def read(self, place: Index, lanes: int, mask: Value | None = None) -> list[Value]:
        (value,) = super().read(place, lanes, mask)
        return [value * self._scale(place).splat(lanes)]

    def goes_by_vectors(self, axis: Axis, lanes: int, *, from_any: bool) -> bool:
        if not super().goes_by_vectors(axis, lanes, from_any=from_any):
            return False
        if self.scale_shape.size <= 1:
            return True
        # a vector's elements must lie in one block
        block = self.shape.dimensions[-1] // self.scale_shape.dimensions[-1]
        return block % lanes == 0 and not from_any

    def _scale(self, place: Index) -> Value:
        """The scale of one element."""
        offset = self.fn.index(0)
        if not self.scale_shape.is_scalar:
            sizes, blocks = self.shape.dimensions, self.scale_shape.dimensions
            strides = row_major_strides(blocks)
            for index, size, count, stride in zip(unravelled(place, sizes), sizes, blocks, strides, strict=True):
                if count > 1:
                    offset = offset + index // (size // count) * stride
        return read(self.scale_shape.dtype, self.scale, offset, 1, self.side.arithmetic.packed)[0]


def plan_scaled_dot(call: Call, form: Contraction) -> ProductPlan | None:
    """A product of operands with block scales, in real floating arithmetic."""
    how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target, is_grouped=False)
    if how.name != "float" or how.is_complex:
        return None
    index = product_space(form, call.operands, call.results[0])
    return _plan_blocks(call, index, how, ScaledProduct, is_scaled=True)
