"""Data movement: every element of the result is an element of an operand (or counts), bit for bit."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Affine, Index, row_major
from hlokit.forms.cost import Cost, moved
from hlokit.forms.emitter import Condition, Emitter, Reader, Value
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops.numerics import convert
from hlokit.ops.reinterpretation import digits_of, reinterpreted
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import SHUFFLE_MODE, Dims, Padding, ResultShape, Single
from hlokit.types.shape import UNBOUNDED, Shape


class Broadcast(Op, name="broadcast"):
    """Operand dimension i becomes result dimension dimensions[i]; the operand is repeated along the other dimensions.

    Dimensions of size 1 are not stretched; `dimensions` need not be in ascending order (BIDIM-11).
    """

    dimensions: Dims = attr((), always=True)
    output_shape: ResultShape

    rounding = None
    arity = 1
    form = "index"
    rules = "BIDIM"
    same_elements = True

    def infer(self, operand: Shape) -> Shape:
        output, dimensions, sizes = self.output_shape, self.dimensions, operand.dimensions
        check(operand.is_array, "BRD-6", "operand", operand, "an array")
        check(output.dtype is operand.dtype, "BIDIM-1", "result element type", output.dtype, operand.dtype)
        check(len(dimensions) == len(sizes), "BIDIM-3", "dimensions", dimensions, "one for each of the operand's")
        rank = len(output.dimensions)
        for i, d in enumerate(dimensions):
            check(0 <= d < rank, "BIDIM-5", "dimensions", dimensions, "dimensions of the result")
            size = output.dimensions[d]
            if size != sizes[i]:
                check(UNBOUNDED in (size, sizes[i]), "BIDIM-11", "result", output, "the operand's sizes")
            elif operand.dynamic[i] is not output.dynamic[d]:
                check(False, "DYN-2", "result", output, "the operand's dynamic flags")
        check(len(set(dimensions)) == len(dimensions), "BIDIM-11", "dimensions", dimensions, "no repetition")
        if output.is_dynamic:
            new = [d for d in range(rank) if d not in dimensions and output.dimensions[d] != UNBOUNDED]
            check(not any(output.dynamic[d] for d in new), "DYN-2", "result", output, "new dimensions of a fixed size")
        return output.logical

    def reference(self, operand: Array, shape: Shape) -> Array:
        sizes, spread = list(shape.dimensions), [1] * shape.rank
        for d, size in zip(self.dimensions, operand.shape, strict=True):
            sizes[d] = spread[d] = size
        order = sorted(range(operand.ndim), key=self.dimensions.__getitem__)
        return np.broadcast_to(operand.transpose(order).reshape(spread), sizes)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        return operand(tuple(index[d] for d in self.dimensions))


class Transpose(Op, name="transpose"):
    """Permutes dimensions: result dimension i is operand dimension dimensions[i]."""

    dimensions: Dims = attr()

    rounding = None
    arity = 1
    form = "index"
    rules = "TRANSP"
    same_elements = True

    def infer(self, operand: Shape) -> Shape:
        check(operand.is_array, "TRANSP-1", "operand", operand, "an array")
        is_permutation = sorted(self.dimensions) == list(range(operand.rank))
        check(is_permutation, "TRANSP-3", "dimensions", self.dimensions, "a permutation of the operand's")
        return operand.permuted(self.dimensions)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Nothing where the data stays where it lies."""
        return Cost() if operands[0].permuted(self.dimensions) is result else moved(operands, result)

    def reference(self, operand: Array) -> Array:
        return operand.transpose(self.dimensions)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        position = dict(zip(self.dimensions, index, strict=True))
        return operand(tuple(position[d] for d in range(len(index))))


class Reverse(Op, name="reverse"):
    """Index i of each listed dimension of size N becomes N-1-i."""

    dimensions: Dims = attr()

    rounding = None
    arity = 1
    form = "index"
    rules = "REV"
    same_elements = True

    def infer(self, operand: Shape) -> Shape:
        check(operand.is_array, "REV-1", "operand", operand, "an array")
        dimensions, rank = self.dimensions, operand.rank
        check(all(0 <= d < rank for d in dimensions), "REV-3", "dimensions", dimensions, "dimensions of the operand")
        check(len(set(dimensions)) == len(dimensions), "REV-4", "dimensions", dimensions, "no repetition")
        return operand.logical

    def reference(self, operand: Array) -> Array:
        return np.flip(operand, self.dimensions).copy()  # along negative strides NumPy's functions round otherwise

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        sizes = operand.shape.dimensions
        return operand(tuple(sizes[d] - 1 - i if d in self.dimensions else i for d, i in enumerate(index)))


class Shuffle(Op, name="shuffle"):
    """Moves elements along dimensions; mode rotate: by each dimension's shift, around its end (BEY-83)."""

    dimensions: Dims = attr()
    mode: Annotated[str, SHUFFLE_MODE] = attr()
    shifts: Dims = attr((), proto="shuffle_mode.rotate.shifts")

    arity = 1
    form = "index"
    rules = "BEY-83"
    example = """ENTRY main {
  x = s32[4] parameter(0)
  ROOT y = s32[4] shuffle(x), dimensions={0}, mode=rotate, shifts={1}
}"""
    same_elements = True

    def infer(self, operand: Shape) -> Shape:
        check(operand.is_array, "BEY-83", "operand", operand, "an array")
        dimensions, rank = self.dimensions, operand.rank
        check(len(dimensions) > 0, "BEY-83", "dimensions", dimensions, "at least one")
        check(all(0 <= d < rank for d in dimensions), "BEY-83", "dimensions", dimensions, "dimensions of the operand")
        check(len(set(dimensions)) == len(dimensions), "BEY-83", "dimensions", dimensions, "no repetition")
        check(len(self.shifts) == len(dimensions), "BEY-83", "shifts", self.shifts, f"{len(dimensions)} of them")
        moved = [d for d in dimensions if operand.dynamic[d]]
        check(not moved, "BEY-83", "dimensions", moved, "dimensions of fixed sizes")
        return operand.logical

    def reference(self, operand: Array) -> Array:
        sizes = [max(operand.shape[d], 1) for d in self.dimensions]
        return np.roll(operand, [s % n for s, n in zip(self.shifts, sizes, strict=True)], self.dimensions)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        return self._along(emit, 0, index, operand)

    def _along(self, emit: Emitter, number: int, index: Index, operand: Reader) -> Value:
        """The element, once the dimensions before this one of `dimensions` are turned back."""
        if number == len(self.dimensions):
            return operand(tuple(index))
        d = self.dimensions[number]
        size = max(operand.shape.dimensions[d], 1)
        shift = self.shifts[number] % size

        def moved(by: int) -> Value:
            return self._along(emit, number + 1, (*index[:d], index[d] + by, *index[d + 1 :]), operand)

        if not shift:
            return moved(0)
        is_over_the_end = emit.inrange(index[d], 0, shift)
        return emit.guarded([is_over_the_end], lambda: moved(size - shift), lambda: moved(-shift))


class Concatenate(Op, name="concatenate"):
    """The operands in the given order along `dimension`."""

    dimension: Single = attr(text="dimensions")

    rounding = None
    form = "index"
    rules = "CONCAT"

    def infer(self, *operands: Shape) -> Shape:
        check(bool(operands), "CONCAT-3", "operands", "none", "at least one")
        first, along = operands[0], self.dimension
        check(first.is_array, "CONCAT-7", "operand", first, "an array")
        rank = first.rank
        check(0 <= along < rank, "CONCAT-7", "dimensions", along, "a dimension of the operands")
        sizes, dynamic = list(first.dimensions), list(first.dynamic)
        for operand in operands[1:]:
            check(operand.rank == rank, "CONCAT-4", "operands", operands, "equal ranks")
            check(operand.dtype is first.dtype, "CONCAT-5", "operands", operands, "one element type")
            for d, size in enumerate(operand.dimensions):
                if d == along:
                    sizes[d] = UNBOUNDED if UNBOUNDED in (size, sizes[d]) else sizes[d] + size
                elif sizes[d] == UNBOUNDED:
                    sizes[d], dynamic[d] = size, False
                elif size not in (sizes[d], UNBOUNDED):
                    check(False, "CONCAT-6", "operands", operands, f"sizes that differ in dimension {along} alone")
                dynamic[d] = dynamic[d] or (operand.dynamic[d] and size != UNBOUNDED)
        return first.with_dimensions(sizes, dynamic)

    def reference(self, *operands: Array) -> Array:
        if any(a.shape[d] != operands[0].shape[d] for a in operands for d in range(a.ndim) if d != self.dimension):
            operands = tuple(_cut_elsewhere(operands, self.dimension))
        return np.concatenate(operands, self.dimension)

    def element(self, emit: Emitter, index: Index, *readers: Reader) -> Value:
        d = self.dimension
        starts = list(accumulate((reader.shape.dimensions[d] for reader in readers), initial=0))

        def among(first: int, last: int) -> Value:
            """The element, which is one of these operands'; found by halves."""
            if last - first == 1:
                return readers[first]((*index[:d], index[d] - starts[first], *index[d + 1 :]))
            middle = (first + last) // 2
            is_before = emit.inrange(index[d], starts[first], starts[middle])
            return emit.guarded([is_before], lambda: among(first, middle), lambda: among(middle, last))

        return among(0, len(readers))


def _cut_elsewhere(arrays: tuple[Array, ...], dimension: int) -> list[Array]:
    """Run-time sizes that differ in other dimensions than `dimension`: each cut to the least (DYN-3)."""
    least = [slice(min(sizes)) for sizes in zip(*(a.shape for a in arrays), strict=True)]
    least[dimension] = slice(None)
    return [a[tuple(least)] for a in arrays]


class Pad(Op, name="pad"):
    """Inserts `interior` padding values between neighbouring elements, then `low` before and `high` after all of them.

    Negative `low` or `high` removes elements there.
    """

    padding: Padding = attr(proto="padding_config")

    rounding = None
    arity = 2
    form = "index"
    rules = "PAD"

    def infer(self, operand: Shape, padding_value: Shape) -> Shape:
        check(operand.is_array, "PAD-4", "operand", operand, "an array")
        scalar = padding_value.dtype is operand.dtype and padding_value.is_scalar
        check(scalar, "PAD-5", "padding_value", padding_value, "a scalar of the operand's element type")
        check(len(self.padding) == operand.rank, "PAD-4", "padding", self.padding, "one entry per dimension")
        sizes: list[int] = []
        for size, pad in zip(operand.dimensions, self.padding, strict=True):
            check(pad.interior_padding >= 0, "PAD-3", "interior padding", pad.interior_padding, ">= 0")
            padded = size if size == UNBOUNDED else pad.output_size(size)
            check(padded >= 0 or padded == UNBOUNDED, "PAD-2", "padded size", padded, ">= 0")
            sizes.append(padded)
        return operand.with_dimensions(sizes, operand.dynamic)

    def reference(self, operand: Array, padding_value: Array) -> Array:
        sizes = [max(0, p.output_size(n)) for n, p in zip(operand.shape, self.padding, strict=True)]
        result = np.empty(sizes, operand.dtype)
        result[...] = padding_value
        taken: list[slice] = []
        places: list[slice] = []
        for size, padded, pad in zip(operand.shape, sizes, self.padding, strict=True):
            low, step = pad.edge_padding_low, pad.interior_padding + 1
            first = max(0, -(low // step))  # the first element that does not land before index 0
            last = max(first, min(size, -((low - padded) // step)))  # the first that lands behind the end
            taken.append(slice(first, last))
            places.append(slice(low + first * step, low + last * step, step))
        result[tuple(places)] = operand[tuple(taken)]
        return result

    def spreads(self) -> bool:
        return any(pad.interior_padding for pad in self.padding)

    def element(self, emit: Emitter, index: Index, operand: Reader, padding_value: Reader) -> Value:
        conditions: list[Condition] = []
        places: list[Affine] = []
        for i, pad, size in zip(index, self.padding, operand.shape.dimensions, strict=True):
            place, step = i - pad.edge_padding_low, pad.interior_padding + 1
            places.append(emit.floordiv(place, step))
            conditions += [emit.inrange(places[-1], 0, size), emit.inrange(place - places[-1] * step, 0, 1)]
        return emit.guarded(conditions, lambda: operand(tuple(places)), lambda: padding_value(()))


class Iota(Op, name="iota"):
    """Each element is its index in `iota_dimension`."""

    iota_dimension: int = attr(proto="dimensions")
    output_shape: ResultShape

    rounding = None
    arity = 0
    form = "index"
    rules = "IOTA"

    def infer(self) -> Shape:
        shape, along = self.output_shape, self.iota_dimension
        check(shape.is_array and shape.rank > 0, "IOTA-4", "shape", shape, "an array of rank >= 1")
        check(0 <= along < shape.rank, "IOTA-5", "iota_dimension", along, "a dimension of the shape")
        check(shape.dtype is not dtypes.pred, "IOTA-6", "element type", shape.dtype, "integral, floating or complex")
        check(not shape.is_dynamic, "IOTA-7", "shape", shape, "no dynamic dimensions")
        return shape.logical

    def reference(self, shape: Shape) -> Array:
        spread = [1] * shape.rank
        spread[self.iota_dimension] = -1
        count = np.arange(shape.dimensions[self.iota_dimension])
        return np.broadcast_to(convert(count, shape.dtype.numpy).reshape(spread), shape.dimensions)

    def element(self, emit: Emitter, index: Index) -> Value:
        return emit.convert(emit.number(index[self.iota_dimension]), self.output_shape.dtype)


class Bitcast(Op, name="bitcast"):
    """The operand's memory, read with the result's layout (BEY-19)."""

    rounding = None
    example = """
        ENTRY %main (x: f32[2,3]) -> f32[6] {
          %x = f32[2,3] parameter(0)
          ROOT %y = f32[6] bitcast(%x)
        }
    """

    output_shape: ResultShape

    arity = 1
    form = "index"
    free = True
    rules = "BEY-19"
    reads_layout = True

    def infer(self, operand: Shape) -> Shape:
        output = self.output_shape
        check(operand.is_array and output.is_array, "BEY-19", "operand and result", (operand, output), "arrays")
        bits, wanted = operand.size * operand.dtype.bits, output.size * output.dtype.bits
        check(bits == wanted, "BEY-19", "bits of the result", wanted, bits)
        return output

    def reference(self, operand: Array, shape: Shape, operand_shapes: list[Shape]) -> Array:
        source = operand_shapes[0]
        if shape.dtype.bits != source.dtype.bits and min(shape.dtype.bits, source.dtype.bits) < 8:
            raise UnsupportedError(f"bitcast: {source} as {shape}: packed elements of different widths")
        order = source.layout_or_default.minor_to_major[::-1]
        memory = np.ascontiguousarray(operand.transpose(order)).reshape(-1).view(shape.dtype.numpy)
        order = shape.layout_or_default.minor_to_major[::-1]
        return memory.reshape([shape.dimensions[d] for d in order]).transpose(np.argsort(order))

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        source, target = operand.shape, self.output_shape
        order = target.layout_or_default.minor_to_major[::-1]
        place = row_major(tuple(index[d] for d in order), [target.dimensions[d] for d in order])

        def read(number: Affine) -> Value:
            """The operand's element with this number in memory."""
            majors = source.layout_or_default.minor_to_major[::-1]
            digits = digits_of(emit, number, [source.dimensions[d] for d in majors])
            position = dict(zip(majors, digits, strict=True))
            return operand(tuple(position[d] for d in range(source.rank)))

        return reinterpreted(emit, read, place, source.dtype, target.dtype)
