"""Batch normalisation. Statistics run over all dimensions but the feature dimension."""

from typing import Any

import numpy as np

from hlokit.forms.graph import Graph, Node
from hlokit.forms.widening import wide_type
from hlokit.hlo.op import REARRANGED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops.expansion import Writing, sum_of_two
from hlokit.ops.numerics import narrow
from hlokit.ops.reduction import Reduce, cut_to_least
from hlokit.ops.transcendental import Sqrt
from hlokit.types.shape import Shape


class BatchNorm(Op):
    """Base class of the three ops. Values are computed in f64 and rounded once."""

    epsilon: float = attr()
    feature_index: int = attr()

    form = "expand"

    def is_exact(self, *operands: Shape) -> bool:
        return False  # the expansion computes in the operand's type

    def feature_vector(self, operand: Shape, label: str) -> Shape:
        """The shape of per-feature operands, after the rules for operand and feature index."""
        rule = f"{self.rules}-4" if self.rules == "BNG" else "BNT-3"
        check(operand.dtype.is_floating, rule, "operand", operand, "an array of floating type")
        check(operand.rank >= 1, rule, "operand rank", operand.rank, ">= 1")
        feature, rank = self.feature_index, operand.rank
        check(0 <= feature < rank, label, "feature_index", feature, f"in [0, {rank})")
        return operand.with_dimensions([operand.dimensions[feature]], [operand.dynamic[feature]])

    def spread(self, vector: Array, rank: int) -> Array:
        """A per-feature vector in f64, to be broadcast against an operand of `rank` dimensions."""
        return vector.astype(np.float64).reshape([-1 if d == self.feature_index else 1 for d in range(rank)])

    def cut(self, operand: Array, *others: Array) -> tuple[Array, ...]:
        """Operand and the like, and vectors, each with as many features as the one with the fewest has at run time.

        In row-major order: the last bits of NumPy's sums depend on the order in memory.
        """
        feature = self.feature_index
        axes = [0 if a.ndim == 1 else feature for a in (operand, *others)]
        count = min(a.shape[axis] for a, axis in zip((operand, *others), axes, strict=True))
        return tuple(
            np.ascontiguousarray(a[(slice(None),) * axis + (slice(count),)])
            for a, axis in zip((operand, *others), axes, strict=True)
        )

    def other_axes(self, operand: Array) -> tuple[int, ...]:
        return tuple(d for d in range(operand.ndim) if d != self.feature_index)

    # -- the expansion computes in the operand's own type, f32 for narrower ones, and rounds at the end

    def widened(self, write: Writing, *operands: Node) -> list[Node]:
        return [write.convert(x, wide_type(x.shape.dtype)) for x in operands]

    def over(self, write: Writing, vector: Node, shape: Shape) -> Node:
        """A per-feature vector for every element."""
        return write.broadcast(vector, (self.feature_index,), shape)

    def sum(self, write: Writing, x: Node) -> Node:
        """Per feature."""
        scalar = x.shape.dtype[()]
        adder = write.graph.computation([scalar, scalar], sum_of_two)
        axes = tuple(d for d in range(x.shape.rank) if d != self.feature_index)
        return write.graph.add(Reduce(axes), x, write.scalar(0, x.shape.dtype), called=[adder])

    def mean(self, write: Writing, x: Node) -> Node:
        total = self.sum(write, x)
        return write.divide(total, write.full(x.shape.size // max(1, total.shape.size), total.shape))

    def deviation(self, write: Writing, variance: Node) -> Node:
        """sqrt(variance + epsilon)."""
        return write.graph.add(Sqrt(None), write.add(variance, write.full(self.epsilon, variance.shape)))

    def normalised(self, write: Writing, centered: Node, variance: Node, scale: Node, offset: Node) -> Node:
        factor = write.divide(scale, self.deviation(write, variance))  # one division a feature, not one an element
        scaled = write.multiply(centered, self.over(write, factor, centered.shape))
        return write.add(scaled, self.over(write, offset, centered.shape))


def check_vectors(vectors: dict[str, Shape], expected: Shape, label: str) -> None:
    """Rank-1 operands of the feature dimension's size and the operand's type."""
    for name, vector in vectors.items():
        check(vector.static is expected.static, label, name, vector, expected)


def count_of(operand: Array, axes: tuple[int, ...]) -> np.float64:
    """The number of elements of one feature; as a NumPy number, for which 0/0 is NaN (BNT-6)."""
    return np.float64(np.prod([operand.shape[d] for d in axes], dtype=np.int64))


class BatchNormTraining(BatchNorm, name="batch-norm-training"):
    """Normalises each feature by its own mean and (biased) variance; returns (output, mean, variance)."""

    rounding = REARRANGED
    arity = 3
    rules = "BNT"

    def infer(self, operand: Shape, scale: Shape, offset: Shape) -> Shape:
        vector = self.feature_vector(operand, "BNT-4")
        check_vectors({"scale": scale, "offset": offset}, vector, "BNT-5")
        return Shape.tuple([operand.logical, vector, vector])

    def reference(self, operand: Array, scale: Array, offset: Array) -> Any:
        operand, scale, offset = self.cut(operand, scale, offset)
        axes, rank = self.other_axes(operand), operand.ndim
        wide, count = operand.astype(np.float64), count_of(operand, axes)
        mean = wide.sum(axes, keepdims=True) / count
        variance = np.square(wide - mean).sum(axes, keepdims=True) / count
        normalised = (wide - mean) / np.sqrt(variance + self.epsilon)
        output = normalised * self.spread(scale, rank) + self.spread(offset, rank)
        return tuple(narrow(part, operand.dtype) for part in (output, mean.reshape(-1), variance.reshape(-1)))

    def expand(self, graph: Graph, operand: Node, scale: Node, offset: Node) -> Node:
        write, narrow_type = Writing(graph), operand.shape.dtype
        x, scale, offset = self.widened(write, operand, scale, offset)
        mean = self.mean(write, x)
        centered = write.subtract(x, self.over(write, mean, x.shape))
        variance = self.mean(write, write.multiply(centered, centered))
        output = self.normalised(write, centered, variance, scale, offset)
        return write.tuple(*(write.convert(part, narrow_type) for part in (output, mean, variance)))


class BatchNormInference(BatchNorm, name="batch-norm-inference"):
    """Normalises each feature by a given mean and variance."""

    rounding = REARRANGED
    arity = 5
    rules = "BNI"

    def infer(self, operand: Shape, scale: Shape, offset: Shape, mean: Shape, variance: Shape) -> Shape:
        vector = self.feature_vector(operand, "BNT-4")
        check_vectors({"scale": scale, "offset": offset}, vector, "BNT-5")
        check_vectors({"mean": mean, "variance": variance}, vector, "BNI-3")
        return operand.logical

    def reference(self, operand: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
        operand, scale, offset, mean, variance = self.cut(operand, scale, offset, mean, variance)
        scale, offset, mean, variance = (self.spread(v, operand.ndim) for v in (scale, offset, mean, variance))
        normalised = (operand.astype(np.float64) - mean) / np.sqrt(variance + self.epsilon)
        return narrow(normalised * scale + offset, operand.dtype)

    def expand(self, graph: Graph, operand: Node, scale: Node, offset: Node, mean: Node, variance: Node) -> Node:
        write = Writing(graph)
        x, scale, offset, mean, variance = self.widened(write, operand, scale, offset, mean, variance)
        centered = write.subtract(x, self.over(write, mean, x.shape))
        return write.convert(self.normalised(write, centered, variance, scale, offset), operand.shape.dtype)


class BatchNormGrad(BatchNorm, name="batch-norm-grad"):
    """Gradients of batch-norm-training; returns (grad_operand, grad_scale, grad_offset)."""

    rounding = REARRANGED
    arity = 5
    rules = "BNG"

    def infer(self, operand: Shape, scale: Shape, mean: Shape, variance: Shape, grad_output: Shape) -> Shape:
        vector = self.feature_vector(operand, "BNG-5")
        check(grad_output.static is operand.static, "BNG-4", "grad_output", grad_output, operand)
        check_vectors({"scale": scale, "mean": mean, "variance": variance}, vector, "BNG-5")
        return Shape.tuple([operand.logical, vector, vector])

    def reference(self, operand: Array, scale: Array, mean: Array, variance: Array, grad_output: Array) -> Any:
        operand, grad_output = cut_to_least((operand, grad_output))
        operand, scale, mean, variance, grad_output = self.cut(operand, scale, mean, variance, grad_output)
        axes, rank = self.other_axes(operand), operand.ndim
        scale, mean, variance = (self.spread(v, rank) for v in (scale, mean, variance))
        gradient, centered = grad_output.astype(np.float64), operand.astype(np.float64) - mean
        count = count_of(operand, axes)
        deviation = np.sqrt(variance + self.epsilon)
        grad_offset = gradient.sum(axes, keepdims=True)
        covariance = (gradient * centered).sum(axes, keepdims=True)
        along_x = covariance / count / (variance + self.epsilon)
        grad_operand = scale / deviation * (gradient - grad_offset / count - along_x * centered)
        grad_scale = covariance / deviation
        return tuple(
            narrow(part, operand.dtype) for part in (grad_operand, grad_scale.reshape(-1), grad_offset.reshape(-1))
        )

    def expand(self, graph: Graph, operand: Node, scale: Node, mean: Node, variance: Node, grad_output: Node) -> Node:
        write, narrow_type = Writing(graph), operand.shape.dtype
        x, scale, mean, variance, gradient = self.widened(write, operand, scale, mean, variance, grad_output)
        centered = write.subtract(x, self.over(write, mean, x.shape))
        deviation = self.deviation(write, variance)
        grad_offset = self.sum(write, gradient)
        covariance = self.sum(write, write.multiply(gradient, centered))
        count = write.full(x.shape.size // max(1, covariance.shape.size), covariance.shape)
        along_x = write.divide(write.divide(covariance, count), write.multiply(deviation, deviation))
        correction = write.multiply(self.over(write, along_x, x.shape), centered)
        mean_gradient = self.over(write, write.divide(grad_offset, count), x.shape)
        rest = write.subtract(write.subtract(gradient, mean_gradient), correction)
        grad_operand = write.multiply(self.over(write, write.divide(scale, deviation), x.shape), rest)
        parts = (grad_operand, write.divide(covariance, deviation), grad_offset)
        return write.tuple(*(write.convert(part, narrow_type) for part in parts))
