"""Data movement: broadcast, reshape, transpose, ..."""

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array
from hlokit.types.attributes import Dims, ResultShape
from hlokit.types.shape import Shape


class Transpose(Op, name="transpose"):
    """Permutes dimensions: output dimension i is operand dimension dimensions[i]."""

    dimensions: Dims = attr()

    arity = 1
    form = "index"
    rules = "TRANSP"

    def infer(self, operand: Shape) -> Shape:
        expected = range(operand.rank)
        check(sorted(self.dimensions) == list(expected), "TRANSP-3", "dimensions", self.dimensions, "a permutation of the operand's")
        return operand.permuted(self.dimensions)

    def reference(self, operand: Array) -> Array:
        return operand.transpose(self.dimensions)


class Broadcast(Op, name="broadcast"):
    """Operand dimension i becomes output dimension dimensions[i]; the others replicate."""

    dimensions: Dims = attr((), always=True)
    output_shape: ResultShape

    arity = 1
    form = "index"
    rules = "BIDIM"

    def infer(self, operand: Shape) -> Shape:
        return self.output_shape.logical

    def reference(self, operand: Array, shape: Shape) -> Array:
        sizes = [1] * shape.rank
        for size, d in zip(operand.shape, self.dimensions, strict=True):
            sizes[d] = size
        import numpy as np

        return np.broadcast_to(operand.transpose(np.argsort(self.dimensions)).reshape(sizes), shape.dimensions)
