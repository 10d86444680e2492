"""Shapes of the matrix factorizations that XLA's client library computes by custom-calls (BEY-80)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlokit.hlo.op import check
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape


def factorization(target: str, operands: Sequence[Shape]) -> Shape | None:
    """The result of a factorization of these operands; None for other targets. ShapeError (BEY-80) for wrong ones."""
    if target not in _FACTORIZATIONS:
        return None
    names, result = _FACTORIZATIONS[target]
    check(len(operands) == len(names), "BEY-80", "number of operands", len(operands), len(names))
    for name, operand in zip(names, operands, strict=True):
        wide = operand.is_array and operand.dtype.kind in ("floating", "complex")
        check(wide, "BEY-80", name, operand, "a floating or complex array")
    matrices = operands[0].logical
    check(matrices.rank >= 2, "BEY-80", f"rank of {names[0]}", matrices.rank, ">= 2")
    return result(matrices, *operands[1:])


def _qr(a: Shape) -> Shape:
    return Shape.tuple((a, a.with_dimensions((*a.dimensions[:-2], min(a.dimensions[-2:])))))


def _product_of_reflectors(a: Shape, taus: Shape) -> Shape:
    batch, columns = a.dimensions[:-2], a.dimensions[-1]
    check(taus.rank == a.rank - 1, "BEY-80", "rank of taus", taus.rank, a.rank - 1)
    check(taus.dtype is a.dtype, "BEY-80", "element type of taus", taus.dtype, a.dtype)
    check(taus.dimensions[:-1] == batch, "BEY-80", "batch dimensions of taus", taus.dimensions[:-1], batch)
    check(taus.dimensions[-1] <= columns, "BEY-80", "number of taus", taus.dimensions[-1], f"<= {columns}")
    return a


def _eigh(a: Shape) -> Shape:
    sizes = a.dimensions
    check(sizes[-1] == sizes[-2], "BEY-80", "last two dimensions of a", sizes[-2:], "equal sizes")
    return Shape.tuple((a, Shape.array(a.dtype.real, sizes[:-1])))


def _svd(a: Shape) -> Shape:
    *batch, rows, columns = a.dimensions
    left, right = a.with_dimensions((*batch, rows, rows)), a.with_dimensions((*batch, columns, columns))
    return Shape.tuple((left, Shape.array(a.dtype.real, (*batch, min(rows, columns))), right))


def _lu(a: Shape) -> Shape:
    *batch, rows, columns = a.dimensions
    return Shape.tuple((a, dtypes.s32[*batch, min(rows, columns)], dtypes.s32[*batch, rows]))


_FACTORIZATIONS: dict[str, tuple[tuple[str, ...], Callable[..., Shape]]] = {
    "Eigh": (("a",), _eigh),
    "LuDecomposition": (("operand",), _lu),
    "ProductOfElementaryHouseholderReflectors": (("a", "taus"), _product_of_reflectors),
    "Qr": (("operand",), _qr),
    "Svd": (("a",), _svd),
}
"""The names of the operands, and what makes the result's shape of theirs, by target."""
