"""Random numbers from a key and a counter (xla/hlo/builder/lib/prng.h, BEY-80).

Every function returns (value, new state): the same key and state give the same value, the new state the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hlokit.builder.constants import finfo_of
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import reject
from hlokit.builder.elementwise import bitcast_convert_type, convert_element_type, or_, rem, shift_right_logical
from hlokit.builder.error_functions import erf_inv
from hlokit.builder.indexing import slice_in_dim
from hlokit.builder.linalg import rng_bit_generator
from hlokit.builder.movement import concat_in_dim, reshape
from hlokit.errors import MisuseError
from hlokit.hlo.values import is_sequence
from hlokit.types.dtype import DType, unsigned_of
from hlokit.types.shape import Shape

__all__ = [
    "normal_floating_point_distribution",
    "philox_bit_generator",
    "three_fry_bit_generator",
    "uniform_floating_point_distribution",
    "uniform_int_distribution",
]

BitGenerator: TypeAlias = "Callable[[XlaOp, XlaOp, Shape], tuple[XlaOp, XlaOp]]"
"""(key, state, shape) -> (random bits of the unsigned type as wide as the shape's, new state)."""


def three_fry_bit_generator(key: XlaOp, initial_state: XlaOp, shape: Shape) -> tuple[XlaOp, XlaOp]:
    """Random bits and the new state by ThreeFry; key and state are u64[] (BEY-80, RBG rules).

    Parameters
    ----------
    shape : Shape
        The shape of the bits, of an integral or floating type.

    Returns
    -------
    tuple of XlaOp
        The bits, unsigned, and the new state.

    Raises
    ------
    ShapeError
        A constraint does not hold: RBG-5 to RBG-7, BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> bits, state = hk.three_fry_bit_generator(b.constant(1, hk.u64), b.constant(0, hk.u64), hk.u32[2])
    >>> hk.evaluate(b.build(bits))
    array([3023415290, 2531993477], dtype=uint32)
    """
    state, bits = rng_bit_generator("rng_three_fry", _joined(key, initial_state), shape)
    return bits, reshape(slice_in_dim(state, 1, 2, 1, 0), ())


def philox_bit_generator(key: XlaOp, initial_state: XlaOp, shape: Shape) -> tuple[XlaOp, XlaOp]:
    """Random bits and the new state by Philox; key is u64[], state u64[2] (BEY-80, RBG rules).

    Parameters
    ----------
    shape : Shape
        The shape of the bits, of an integral or floating type.

    Returns
    -------
    tuple of XlaOp
        The bits, unsigned, and the new state.

    Raises
    ------
    ShapeError
        A constraint does not hold: RBG-5 to RBG-7, BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> bits, state = hk.philox_bit_generator(b.constant(1, hk.u64), b.constant([0, 0], hk.u64), hk.u32[2])
    >>> hk.evaluate(b.build(bits))
    array([3823634032, 3842641596], dtype=uint32)
    """
    state, bits = rng_bit_generator("rng_philox", _joined(key, initial_state), shape)
    return bits, slice_in_dim(state, 1, 3, 1, 0)


def _generated(given: object) -> tuple[XlaOp, XlaOp]:
    """(bits, new state) as a bit generator gives them."""
    if not is_sequence(given) or len(given) != 2 or not all(isinstance(part, XlaOp) for part in given):
        raise MisuseError(f"bit_generator: it gives {given!r}, expected two handles: bits and the new state")
    return given[0], given[1]


def uniform_floating_point_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, minval: Any, maxval: Any, shape: Shape
) -> tuple[XlaOp, XlaOp]:
    """Uniformly distributed numbers in [minval, maxval), two scalars or numbers, and the new state (BEY-80).

    Parameters
    ----------
    minval : XlaOp, number or array
        The least number.
    maxval : XlaOp, number or array
        The number below which all are, of the type of `minval`.
    shape : Shape
        The shape of the numbers, of a floating type.

    Returns
    -------
    tuple of XlaOp
        The numbers, and the generator's new state.

    Raises
    ------
    ShapeError
        The shape's element type is not one that the bits can be made of (BEY-80), or a constraint of the generator does
        not hold: RBG-5, RBG-6, RBG-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> key, state = b.constant(1, hk.u64), b.constant(0, hk.u64)
    >>> numbers, state = hk.uniform_floating_point_distribution(
    ...     key, state, hk.three_fry_bit_generator, 0.0, 10.0, hk.f32[1000]
    ... )
    >>> drawn = hk.evaluate(b.build(numbers))
    >>> bool(((0 <= drawn) & (drawn < 10)).all()), bool(abs(drawn.mean() - 5) < 1)
    (True, True)
    """
    if not shape.dtype.is_floating:
        raise reject("BEY-80", "uniform_floating_point_distribution", f"{shape} from key", "a floating shape", key)
    bits, state = _generated(bit_generator(key, initial_state, shape))
    unit = _unit_interval(bits, shape.dtype)
    low, high = (_constant(v, key, shape.dtype) for v in (minval, maxval))
    return unit * (high - low) + low, state


def uniform_int_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, minval: Any, maxval: Any, shape: Shape
) -> tuple[XlaOp, XlaOp]:
    """Integers from minval to maxval - 1, two scalars or numbers, and the new state (BEY-80).

    All are equally probable if their count divides 2^bits, and nearly so otherwise.

    Parameters
    ----------
    minval : XlaOp, number or array
        The least number.
    maxval : XlaOp, number or array
        The number below which all are, of the type of `minval`.
    shape : Shape
        The shape of the numbers, of an integral type.

    Returns
    -------
    tuple of XlaOp
        The numbers, and the generator's new state.

    Raises
    ------
    ShapeError
        The shape's element type is not one that the bits can be made of (BEY-80), or a constraint of the generator does
        not hold: RBG-5, RBG-6, RBG-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> key, state = b.constant(1, hk.u64), b.constant(0, hk.u64)
    >>> numbers, state = hk.uniform_int_distribution(key, state, hk.three_fry_bit_generator, 0, 6, hk.s32[1000])
    >>> sorted({*hk.evaluate(b.build(numbers)).tolist()})
    [0, 1, 2, 3, 4, 5]
    """
    unsigned = unsigned_of(shape.dtype.bits)
    if not shape.dtype.is_integral or unsigned is None:
        raise reject("BEY-80", "uniform_int_distribution", f"{shape} from key", "an integral shape", key)
    bits, state = _generated(bit_generator(key, initial_state, shape))
    low, high = (convert_element_type(_constant(v, key, shape.dtype), unsigned) for v in (minval, maxval))
    return convert_element_type(rem(bits, high - low) + low, shape.dtype), state


def normal_floating_point_distribution(
    key: XlaOp, initial_state: XlaOp, bit_generator: BitGenerator, shape: Shape
) -> tuple[XlaOp, XlaOp]:
    """Numbers of the normal distribution with mean 0 and variance 1, and the new state (BEY-80).

    Parameters
    ----------
    shape : Shape
        The shape of the numbers, of a floating type.

    Returns
    -------
    tuple of XlaOp
        The numbers, and the generator's new state.

    Raises
    ------
    ShapeError
        The shape's element type is not one that the bits can be made of (BEY-80), or a constraint of the generator does
        not hold: RBG-5, RBG-6, RBG-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> key, state = b.constant(1, hk.u64), b.constant(0, hk.u64)
    >>> numbers, state = hk.normal_floating_point_distribution(key, state, hk.three_fry_bit_generator, hk.f32[1000])
    >>> drawn = hk.evaluate(b.build(numbers))
    >>> bool(abs(drawn.mean()) < 0.2), bool(abs(drawn.std() - 1) < 0.2)
    (True, True)
    """
    if not shape.dtype.is_floating:
        raise reject("BEY-80", "normal_floating_point_distribution", f"{shape} from key", "a floating shape", key)
    lowest = float(finfo_of(shape.dtype).eps) / 2 - 1.0  # the number after -1, whose erf_inv is -inf
    uniform, state = uniform_floating_point_distribution(key, initial_state, bit_generator, lowest, 1.0, shape)
    return math.sqrt(2) * erf_inv(uniform), state


def _joined(key: XlaOp, state: XlaOp) -> XlaOp:
    return concat_in_dim([reshape(key, (1,)), state if state.rank else reshape(state, (1,))], 0)


def _unit_interval(bits: XlaOp, dtype: DType) -> XlaOp:
    """The leading bits as the fraction of a number in [1, 2), less 1."""
    one = np.array(1.0).astype(dtype.numpy).view(bits.dtype.numpy).item()
    fraction = shift_right_logical(bits, dtype.bits - int(finfo_of(dtype).nmant))
    return bitcast_convert_type(or_(fraction, one), dtype) - 1.0


def _constant(value: Any, of_builder: XlaOp, dtype: DType) -> XlaOp:
    return value if isinstance(value, XlaOp) else of_builder.builder.constant_r0(value, dtype)
