"""Random numbers: rng, rng-bit-generator, rng-get-and-update-state."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from hlokit.forms.cost import Cost, moved
from hlokit.forms.kernel import Kernel
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Device
from hlokit.ops.counter_random import philox, three_fry
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import ResultShape, choice
from hlokit.types.shape import Shape


class Rng(Op, name="rng"):
    """Random numbers of the device, normal (mean, deviation) or uniform in [a, b); they differ in each run (RNG-7)."""

    distribution: Annotated[str, choice("distribution", "rng_uniform", "rng_normal")] = attr()
    output_shape: ResultShape

    arity = 2
    form = "kernel"
    rules = "RNG"
    side_effect = True  # two equal draws are two draws (RNG-9)

    def infer(self, first: Shape, second: Shape) -> Shape:
        shape = self.output_shape
        check(shape.is_array, "RNG-10", "shape", shape, "an array shape")
        check(not shape.is_dynamic, "DYN-15", "shape", shape, "a static shape")
        if self.distribution == "rng_normal":
            check(shape.dtype.is_floating, "RNG-3", "element type", shape.dtype, "a floating type")
        check(not shape.dtype.is_complex, "RNG-4", "element type", shape.dtype, "a floating or integral type or pred")
        scalar = shape.dtype[()]
        good = first.static is scalar and second.static is scalar
        check(good, "RNG-2", "parameters", (first, second), f"two of {scalar}")
        return shape.logical

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return moved(operands, result) + Cost(transcendentals=sum(leaf.size for leaf in result.leaves()))

    def reference(self, first: Array, second: Array, process: Device, shape: Shape) -> Array:
        if self.distribution == "rng_normal":
            wide = _working_type(shape.dtype)
            drawn = process.random.standard_normal(shape.dimensions, wide)  # type: ignore[arg-type]
            return (first.astype(wide) + second.astype(wide) * drawn).astype(shape.dtype.numpy)
        if shape.dtype.is_floating:
            return _uniform_floats(process.random, first, second, shape)
        return _uniform_integers(process.random, first, second, shape)

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("rng", prologue=(0, 1), epilogue=(0,))


# below, Generator is quoted: evaluated, it would import numpy.random, which takes 10 ms


def _working_type(element_type: dtypes.DType) -> np.dtype[np.float32] | np.dtype[np.float64]:
    return np.dtype(np.float64) if element_type is dtypes.f64 else np.dtype(np.float32)


def _uniform_floats(random: "np.random.Generator", low: Array, high: Array, shape: Shape) -> Array:
    wide = _working_type(shape.dtype)
    unit = random.random(shape.dimensions, wide)  # type: ignore[arg-type]
    start, end = low.astype(wide), high.astype(wide)
    drawn = np.maximum(start * (1 - unit) + end * unit, start)  # end - start may overflow; rounding may go below
    rounded = drawn.astype(shape.dtype.numpy)
    return np.where(rounded.astype(wide) >= end, low, rounded)  # rounding may reach the open end (RNG-5)


def _uniform_integers(random: "np.random.Generator", low: Array, high: Array, shape: Shape) -> Array:
    wide = np.uint64 if shape.dtype.kind == "unsigned" else np.int64
    start, end = int(low), int(high)
    if end <= start:  # RNG-6: no value is right
        return np.full(shape.dimensions, low)
    return random.integers(start, end, shape.dimensions, wide).astype(shape.dtype.numpy)


class RngBitGenerator(Op, name="rng-bit-generator"):
    """(new state, uniform bits): a pure function of the state, bit for bit XLA:CPU's ThreeFry or Philox (RBG-3)."""

    algorithm: Annotated[str, choice("algorithm", "rng_default", "rng_three_fry", "rng_philox")] = attr(
        proto="rng_algorithm"
    )
    output_shape: ResultShape

    arity = 1
    form = "kernel"
    rules = "RBG"

    def infer(self, initial_state: Shape) -> Shape:
        shape = self.output_shape
        check(
            initial_state.dtype is dtypes.u64 and initial_state.rank == 1,
            "RBG-7",
            "initial_state",
            initial_state,
            "a u64 vector",
        )
        check(not initial_state.is_dynamic, "DYN-15", "initial_state", initial_state, "a static shape")
        words = initial_state.dimensions[0]
        if self.algorithm == "rng_three_fry":
            check(words == 2, "RBG-5", "initial_state", initial_state, "u64[2]")
        else:
            check(words in (2, 3), "RBG-6", "initial_state", initial_state, "u64[2] or u64[3]")
        if shape.is_array:
            self._check_data(shape)
            return shape.logical
        check(shape.is_tuple and len(shape.elements) == 2, "RBG-1", "result shape", shape, "(state, data) or data")
        state, data = shape.elements
        check(state.static is initial_state.static, "RBG-1", "state of the result", state, initial_state)
        self._check_data(data)
        return shape.logical

    def _check_data(self, data: Shape) -> None:
        check(data.is_array and data.dtype.is_integral, "RBG-2", "data", data, "an array of unsigned integers")
        check(not data.is_dynamic, "DYN-15", "data", data, "a static shape")

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return moved(operands, result) + Cost(transcendentals=sum(leaf.size for leaf in result.leaves()))

    def reference(self, initial_state: Array, shape: Shape) -> Array | tuple[Array, Array]:
        data = shape.elements[1] if shape.is_tuple else shape
        generate = three_fry if self.algorithm == "rng_three_fry" else philox
        state, bits = generate(initial_state, data.dimensions, data.dtype.bits)
        unsigned = dtypes.unsigned_of(data.dtype.bits)
        assert unsigned is not None
        made = bits.astype(unsigned.numpy).view(data.dtype.numpy)
        return (state, made) if shape.is_tuple else made

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("rng-bit-generator", epilogue=(1,)) if self.output_shape.is_tuple else Kernel("rng-bits")


class RngGetAndUpdateState(Op, name="rng-get-and-update-state"):
    """The module's 128-bit random state, low word first, to which `delta` is added after reading."""

    example = """
        ENTRY %main () -> u64[2] {
          ROOT %state = u64[2] rng-get-and-update-state(), delta=4
        }
    """

    delta: int = attr()
    output_shape: ResultShape

    arity = 0
    form = "kernel"
    rules = "BEY-57"
    side_effect = True

    def infer(self) -> Shape:
        shape = self.output_shape
        check(shape.dtype is dtypes.u64 and shape.size in (1, 2), "BEY-57", "result shape", shape, "one or two u64")
        return shape.logical

    def reference(self, process: Device, shape: Shape) -> Array:
        state = process.rng_state
        process.rng_state = (state + self.delta) % 2**128
        words = [state % 2**64, state >> 64]
        return np.array(words[: shape.size], np.uint64).reshape(shape.dimensions)

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("rng-get-and-update-state")
