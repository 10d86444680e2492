"""The roles of the dimensions of an op's operands and result. Field names are the protos'.

Where an op function takes `dimension_numbers`, a mapping with the fields as keys, or any object that has them as
attributes (as XLA's protos do), is accepted as well; for a dot also JAX's pairs.
"""

# Annotations are read as objects here: they tell how a field is brought to its one form.

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from operator import index
from typing import Any, Self, cast

from hlokit.errors import ShapeError

_LABEL = "HINST-6"


class DimensionNumbers:
    """The base of the classes below: integers and tuples of integers, checked when an object is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, normal in _forms(type(self)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, normal(value))
            except TypeError:
                expected = "an integer" if normal is index else "a list of integers"
                raise ShapeError(_LABEL, f"{type(self).__name__}.{name}", repr(value), expected) from None

    @classmethod
    def of(cls, given: Any) -> Self:
        """The dimension numbers that are given as such, as a mapping or as an object with the fields' names.

        Parameters
        ----------
        given : Any
            The dimension numbers; a mapping with the fields as keys; or an object with the fields as attributes.

        Returns
        -------
        Self
            The dimension numbers.

        Raises
        ------
        ShapeError
            A key is unknown, a field is missing, or a value is not an integer (HINST-6).
        """
        if isinstance(given, cls):
            return given
        given = cls._from_pairs(given)
        names = [field.name for field in _fields(cls)]
        if isinstance(given, Mapping):
            found = cast("Mapping[str, Any]", given)
        else:
            found = {name: getattr(given, name) for name in names if hasattr(given, name)}
            if not found:
                raise ShapeError(_LABEL, "dimension_numbers", repr(given), _expected(cls))
        required = (field.name for field in _fields(cls) if field.default is MISSING)
        if not all(name in found for name in required) or not all(name in names for name in found):
            raise ShapeError(_LABEL, "dimension_numbers", sorted(map(str, found)), _expected(cls))
        return cls(**found)

    @classmethod
    def _from_pairs(cls, given: Any) -> Any:
        """A mapping, where the fields may be given without their names."""
        return given


@dataclass(frozen=True, slots=True)
class DotDimensionNumbers(DimensionNumbers):
    """The pairs of dimensions that dot_general sums over, and those that are its batch (DOTG rules).

    Parameters
    ----------
    lhs_contracting_dimensions, rhs_contracting_dimensions : sequence of int, optional
        The dimensions that are summed over, in pairs.
    lhs_batch_dimensions, rhs_batch_dimensions : sequence of int, optional
        The dimensions that both operands and the result have, in pairs.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, y = b.constant([[1, 2], [3, 4]]), b.constant([[1, 2], [3, 4]])
    >>> hk.evaluate(b.build(hk.dot_general(x, y, hk.DotDimensionNumbers([0], [0]))))
    array([[10, 14],
           [14, 20]], dtype=int32)
    """

    lhs_contracting_dimensions: Sequence[int] = ()
    rhs_contracting_dimensions: Sequence[int] = ()
    lhs_batch_dimensions: Sequence[int] = ()
    rhs_batch_dimensions: Sequence[int] = ()

    @classmethod
    def _from_pairs(cls, given: Any) -> Any:
        """((lhs contracting, rhs contracting), (lhs batch, rhs batch)), as JAX writes them."""
        match given:
            case [[lhs, rhs], [lhs_batch, rhs_batch]]:
                values = (lhs, rhs, lhs_batch, rhs_batch)
                return dict(zip([field.name for field in _fields(cls)], values, strict=True))
            case _:
                return given


@dataclass(frozen=True, slots=True)
class RaggedDotDimensionNumbers(DimensionNumbers):
    """A dot's, with the dimension of lhs that is cut into groups and the dimensions of rhs that count them (BEY-42).

    Parameters
    ----------
    dot_dimension_numbers : DotDimensionNumbers
        The dimensions of the products.
    lhs_ragged_dimensions : sequence of int, optional
        The dimension of lhs that is cut into groups.
    rhs_group_dimensions : sequence of int, optional
        The dimensions of rhs that have an index for each group.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, y = b.constant([[1], [2], [3]]), b.constant([[[1]], [[10]]])
    >>> numbers = hk.RaggedDotDimensionNumbers(hk.DotDimensionNumbers([1], [1]), [0], [0])
    >>> hk.evaluate(b.build(hk.ragged_dot(x, y, b.constant([1, 2]), numbers)))
    array([[ 1],
           [20],
           [30]], dtype=int32)
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int] = ()
    rhs_group_dimensions: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherDimensionNumbers(DimensionNumbers):
    """The way in which gather's start indices address the operand, and its slices lie in the result (GATHER rules).

    Parameters
    ----------
    offset_dims : sequence of int, optional
        The dimensions of the result that run within a slice (without collapsed and batching ones); the remaining
        dimensions of the result enumerate the index vectors.
    collapsed_slice_dims : sequence of int, optional
        The dimensions of the operand, of slice size 1, that the result does not have.
    start_index_map : sequence of int, optional
        For each element of an index vector the dimension of the operand that it is an index of.
    index_vector_dim : int
        The dimension of the indices that holds the index vectors; their rank if each scalar is one.
    operand_batching_dims, start_indices_batching_dims : sequence of int, optional
        Dimensions of the operand and of the indices that have one index, in pairs.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, places = b.constant([10, 20, 30]), b.constant([2, 0])
    >>> numbers = hk.GatherDimensionNumbers(collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    >>> hk.evaluate(b.build(hk.gather(x, places, numbers, [1])))
    array([30, 10], dtype=int32)
    """

    offset_dims: Sequence[int] = ()
    collapsed_slice_dims: Sequence[int] = ()
    start_index_map: Sequence[int] = ()
    index_vector_dim: int
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterDimensionNumbers(DimensionNumbers):
    """The way in which scatter's indices address the operand, and its windows lie in the updates (SCATTER rules).

    Parameters
    ----------
    update_window_dims : sequence of int, optional
        The dimensions of the updates that run within a window; the others enumerate the index vectors.
    inserted_window_dims : sequence of int, optional
        The dimensions of the operand, of window size 1, that the updates do not have.
    scatter_dims_to_operand_dims : sequence of int, optional
        For each element of an index vector the dimension of the operand that it is an index of.
    index_vector_dim : int
        The dimension of the indices that holds the index vectors; their rank if each scalar is one.
    input_batching_dims, scatter_indices_batching_dims : sequence of int, optional
        Dimensions of the operand and of the indices that have one index, in pairs.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, places, updates = b.constant([1, 2, 3]), b.constant([2, 0]), b.constant([10, 20])
    >>> numbers = hk.ScatterDimensionNumbers(
    ...     inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1
    ... )
    >>> hk.evaluate(b.build(hk.scatter(x, places, updates, hk.add, numbers)))
    array([21,  2, 13], dtype=int32)
    """

    update_window_dims: Sequence[int] = ()
    inserted_window_dims: Sequence[int] = ()
    scatter_dims_to_operand_dims: Sequence[int] = ()
    index_vector_dim: int
    input_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers(DimensionNumbers):
    """The roles of the dimensions of lhs, rhs and output (CONV-3).

    Parameters
    ----------
    input_batch_dimension, input_feature_dimension : int
        The dimensions of lhs that count the inputs and their features.
    input_spatial_dimensions : sequence of int
        The dimensions of lhs that the window moves along.
    kernel_input_feature_dimension, kernel_output_feature_dimension : int
        The dimensions of rhs that count the features of the input and of the output.
    kernel_spatial_dimensions : sequence of int
        The dimensions of rhs that run within the window, in the order of `input_spatial_dimensions`.
    output_batch_dimension, output_feature_dimension : int
        The dimensions of the output that count the inputs and its features.
    output_spatial_dimensions : sequence of int
        The dimensions of the output that count the positions of the window.

    Examples
    --------
    >>> numbers = hk.ConvolutionDimensionNumbers.default(2)
    >>> numbers.input_spatial_dimensions, numbers.kernel_output_feature_dimension
    ((2, 3), 0)
    """

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Sequence[int]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: Sequence[int]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Sequence[int]

    @classmethod
    def default(cls, spatial_rank: int) -> Self:
        """The usual numbers (CONV-1).

        [batch, feature, spatial...], [output, input, spatial...] -> [batch, feature, spatial...].

        Parameters
        ----------
        spatial_rank : int
            The number of spatial dimensions.

        Returns
        -------
        ConvolutionDimensionNumbers
            The numbers.
        """
        spatial = tuple(range(2, spatial_rank + 2))
        return cls(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @property
    def lhs(self) -> tuple[int, ...]:
        """(batch, feature, spatial...) dimensions of lhs."""
        return (self.input_batch_dimension, self.input_feature_dimension, *self.input_spatial_dimensions)

    @property
    def rhs(self) -> tuple[int, ...]:
        """(output feature, input feature, spatial...) dimensions of rhs."""
        return (
            self.kernel_output_feature_dimension,
            self.kernel_input_feature_dimension,
            *self.kernel_spatial_dimensions,
        )

    @property
    def output(self) -> tuple[int, ...]:
        """(batch, feature, spatial...) dimensions of the output."""
        return (self.output_batch_dimension, self.output_feature_dimension, *self.output_spatial_dimensions)


@cache
def _forms(cls: type[DimensionNumbers]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields and what brings each to its one form."""
    kinds: dict[Any, Callable[[Any], Any]] = {int: index, DotDimensionNumbers: DotDimensionNumbers.of}
    return tuple((field.name, kinds.get(field.type, _integers)) for field in _fields(cls))


def _integers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(index, values))


def _fields(cls: type[DimensionNumbers]) -> tuple[Field[Any], ...]:
    return fields(cls)  # pyright: ignore[reportArgumentType]


def _expected(cls: type[DimensionNumbers]) -> str:
    return f"a {cls.__name__}, or {', '.join(field.name for field in _fields(cls))}"
