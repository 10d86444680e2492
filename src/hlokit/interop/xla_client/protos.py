"""Plain mutable records that stand for XLA's protos, and the functions that make them from tuples."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hlokit.interop.xla_client.enums import PaddingType, Precision, ResultAccuracyMode
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers as Numbers
from hlokit.types.window import same_padding

DotSpec: TypeAlias = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class OpMetadata:
    """The origin of an instruction.

    Parameters
    ----------
    op_type : str or None, optional
        The operation in the frontend.
    op_name : str or None, optional
        The operation's name in the frontend.
    source_file : str, optional
        The file.
    source_line : int, optional
        The line, from 1; 0 if unknown.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.OpMetadata("Add", "layer/add").op_name
    'layer/add'
    """

    __slots__ = ("op_name", "op_type", "source_file", "source_line")

    def __init__(self, op_type: str | None = "", op_name: str | None = "", source_file: str = "", source_line: int = 0):
        self.op_type = op_type
        self.op_name = op_name
        self.source_file = source_file
        self.source_line = source_line


def CurrentSourceInfoMetadata(
    op_type: str | None = None, op_name: str | None = None, skip_frames: int = 1
) -> OpMetadata:
    """OpMetadata with the file and line of a caller.

    Parameters
    ----------
    op_type : str or None, optional
        The operation in the frontend.
    op_name : str or None, optional
        The operation's name in the frontend.
    skip_frames : int, optional
        1 for the line that calls this function, 2 for its caller, and so on.

    Returns
    -------
    OpMetadata
        The metadata; the file is without its folder.

    Raises
    ------
    IndexError
        The stack is not that deep.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.CurrentSourceInfoMetadata("Add").source_line
    1
    """
    caller = inspect.stack()[skip_frames]
    return OpMetadata(op_type, op_name, os.path.basename(caller.filename), caller.lineno)


class PaddingConfigDimension:
    """The padding of one dimension: before it, after it, and between its elements.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> dimension = xc.PaddingConfigDimension()
    >>> dimension.edge_padding_low, dimension.edge_padding_high, dimension.interior_padding
    (0, 0, 0)
    """

    __slots__ = ("edge_padding_high", "edge_padding_low", "interior_padding")

    def __init__(self) -> None:
        self.edge_padding_low = 0
        self.edge_padding_high = 0
        self.interior_padding = 0


class PaddingConfig:
    """The padding of an array: `dimensions` has one PaddingConfigDimension for each dimension.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.PaddingConfig().dimensions
    []
    """

    __slots__ = ("dimensions",)

    def __init__(self) -> None:
        self.dimensions: list[PaddingConfigDimension] = []


def make_padding_config(padding_config: PaddingConfig | Iterable[tuple[int, int, int]]) -> PaddingConfig:
    """A PaddingConfig from numbers.

    Parameters
    ----------
    padding_config : PaddingConfig or iterable of (int, int, int)
        (low, high, interior) for each dimension. A PaddingConfig is returned as it is.

    Returns
    -------
    PaddingConfig
        The record.

    Raises
    ------
    ValueError
        An entry does not have three numbers.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_padding_config([(1, 2, 0)]).dimensions[0].edge_padding_high
    2
    """
    if isinstance(padding_config, PaddingConfig):
        return padding_config
    config = PaddingConfig()
    for low, high, interior in padding_config:
        dimension = PaddingConfigDimension()
        dimension.edge_padding_low = low
        dimension.edge_padding_high = high
        dimension.interior_padding = interior
        config.dimensions.append(dimension)
    return config


class ResultAccuracy:
    """The accuracy asked of a result: a mode, or an absolute error, a relative one, and one in units of the last place.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ResultAccuracy().mode
    ResultAccuracyMode.DEFAULT
    """

    __slots__ = ("atol", "mode", "rtol", "ulps")

    def __init__(self) -> None:
        self.mode = ResultAccuracyMode.DEFAULT
        self.atol = 0.0
        self.rtol = 0.0
        self.ulps = 0


class DotDimensionNumbers:
    """The dimensions of lhs and rhs that a dot contracts, and its batch dimensions.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.DotDimensionNumbers().lhs_contracting_dimensions
    []
    """

    __slots__ = (
        "lhs_batch_dimensions",
        "lhs_contracting_dimensions",
        "rhs_batch_dimensions",
        "rhs_contracting_dimensions",
    )

    def __init__(self) -> None:
        self.lhs_contracting_dimensions: list[int] = []
        self.rhs_contracting_dimensions: list[int] = []
        self.lhs_batch_dimensions: list[int] = []
        self.rhs_batch_dimensions: list[int] = []


def make_dot_dimension_numbers(dimension_numbers: DotDimensionNumbers | DotSpec) -> DotDimensionNumbers:
    """DotDimensionNumbers from tuples, as JAX writes them.

    Parameters
    ----------
    dimension_numbers : DotDimensionNumbers or tuple
        ((lhs contracting, rhs contracting), (lhs batch, rhs batch)), each a sequence of int. A record is returned as
        it is.

    Returns
    -------
    DotDimensionNumbers
        The record.

    Raises
    ------
    ValueError
        The tuples are not nested in this way.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_dot_dimension_numbers((([1], [0]), ([], []))).lhs_contracting_dimensions
    [1]
    """
    if not isinstance(dimension_numbers, (tuple, list)):
        return dimension_numbers
    contracting, batch = dimension_numbers
    numbers = DotDimensionNumbers()
    numbers.lhs_contracting_dimensions.extend(contracting[0])
    numbers.rhs_contracting_dimensions.extend(contracting[1])
    numbers.lhs_batch_dimensions.extend(batch[0])
    numbers.rhs_batch_dimensions.extend(batch[1])
    return numbers


class ConvolutionDimensionNumbers:
    """The roles of the dimensions of a convolution's lhs, rhs and output.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ConvolutionDimensionNumbers().input_spatial_dimensions
    []
    """

    __slots__ = (
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
    )

    def __init__(self) -> None:
        self.input_batch_dimension = 0
        self.input_feature_dimension = 0
        self.input_spatial_dimensions: list[int] = []
        self.kernel_input_feature_dimension = 0
        self.kernel_output_feature_dimension = 0
        self.kernel_spatial_dimensions: list[int] = []
        self.output_batch_dimension = 0
        self.output_feature_dimension = 0
        self.output_spatial_dimensions: list[int] = []


def make_convolution_dimension_numbers(
    dimension_numbers: ConvolutionDimensionNumbers | tuple[str, str, str] | None, num_spatial_dimensions: int
) -> ConvolutionDimensionNumbers:
    """ConvolutionDimensionNumbers from three strings such as ("NCHW", "OIHW", "NCHW").

    Parameters
    ----------
    dimension_numbers : ConvolutionDimensionNumbers, tuple of three str or None
        The dimensions of lhs, rhs and output. N and C mark batch and feature in lhs and output, I and O input and
        output features in rhs; every other letter is a spatial dimension, in rhs's order. None stands for the default
        order, batch and feature first. A record is returned as it is.
    num_spatial_dimensions : int
        Used for the default order.

    Returns
    -------
    ConvolutionDimensionNumbers
        The record.

    Raises
    ------
    ValueError
        A letter is missing.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.make_convolution_dimension_numbers(("NHWC", "HWIO", "NHWC"), 2).input_feature_dimension
    3
    """
    if dimension_numbers is None:
        return _filled(vars_of(Numbers.default(num_spatial_dimensions)))
    if not isinstance(dimension_numbers, tuple):
        return dimension_numbers
    lhs, rhs, out = dimension_numbers
    letters = [c for c in rhs if c not in "IO"]
    return _filled(
        {
            "input_batch_dimension": lhs.index("N"),
            "input_feature_dimension": lhs.index("C"),
            "output_batch_dimension": out.index("N"),
            "output_feature_dimension": out.index("C"),
            "kernel_output_feature_dimension": rhs.index("O"),
            "kernel_input_feature_dimension": rhs.index("I"),
            "kernel_spatial_dimensions": [rhs.index(c) for c in letters],
            "input_spatial_dimensions": [lhs.index(c) for c in letters],
            "output_spatial_dimensions": [out.index(c) for c in letters],
        }
    )


def vars_of(numbers: Any) -> dict[str, Any]:
    """The fields of convolution dimension numbers of either package."""
    return {name: getattr(numbers, name) for name in ConvolutionDimensionNumbers.__slots__}


def _filled(fields: dict[str, Any]) -> ConvolutionDimensionNumbers:
    numbers = ConvolutionDimensionNumbers()
    for name, value in fields.items():
        setattr(numbers, name, list(value) if isinstance(value, (list, tuple)) else value)  # pyright: ignore[reportUnknownArgumentType]
    return numbers


class PrecisionConfig:
    """The precision of each operand: `operand_precision` is a list of PrecisionConfig.Precision.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.PrecisionConfig.Precision.HIGHEST
    Precision.HIGHEST
    """

    __slots__ = ("operand_precision",)

    Precision = Precision

    def __init__(self) -> None:
        self.operand_precision: list[Precision] = []


class GatherDimensionNumbers:
    """The dimensions by which gather's start indices address the operand, and those of slices in the result.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.GatherDimensionNumbers().offset_dims
    []
    """

    __slots__ = ("collapsed_slice_dims", "index_vector_dim", "offset_dims", "start_index_map")

    def __init__(self) -> None:
        self.offset_dims: list[int] = []
        self.collapsed_slice_dims: list[int] = []
        self.start_index_map: list[int] = []
        self.index_vector_dim = 0


class ScatterDimensionNumbers:
    """The dimensions by which scatter's indices address the operand, and those of windows in the updates.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ScatterDimensionNumbers().update_window_dims
    []
    """

    __slots__ = ("index_vector_dim", "inserted_window_dims", "scatter_dims_to_operand_dims", "update_window_dims")

    def __init__(self) -> None:
        self.update_window_dims: list[int] = []
        self.inserted_window_dims: list[int] = []
        self.scatter_dims_to_operand_dims: list[int] = []
        self.index_vector_dim = 0


class ReplicaGroup:
    """Replicas that take part in one collective: `replica_ids` are their ids.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ReplicaGroup().replica_ids
    []
    """

    __slots__ = ("replica_ids",)

    def __init__(self) -> None:
        self.replica_ids: list[int] = []


def make_replica_groups(replica_groups: Iterable[Iterable[int]] | None) -> list[ReplicaGroup]:
    """A ReplicaGroup for each list of ids.

    Parameters
    ----------
    replica_groups : iterable of iterables of int or None
        The ids of each group; None for one group of all.

    Returns
    -------
    list of ReplicaGroup
        Empty for one group of all.

    Raises
    ------
    TypeError
        The groups are not lists of ids.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> [group.replica_ids for group in xc.make_replica_groups([[0, 1], [2, 3]])]
    [[0, 1], [2, 3]]
    """
    groups: list[ReplicaGroup] = []
    for ids in replica_groups or ():
        group = ReplicaGroup()
        group.replica_ids.extend(ids)
        groups.append(group)
    return groups


class ChannelHandle:
    """A channel, for the ops that take one. jaxlib 0.4.30 has no such class; any object with the two attributes serves.

    Parameters
    ----------
    handle : int, optional
        The channel's number.
    type : int, optional
        The ChannelType: DEVICE_TO_DEVICE (1), DEVICE_TO_HOST (2) or HOST_TO_DEVICE (3).

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ChannelHandle(7).type
    1
    """

    __slots__ = ("handle", "type")

    DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE = 1, 2, 3

    def __init__(self, handle: int = 0, type: int = DEVICE_TO_DEVICE) -> None:
        self.handle = handle
        self.type = type


class FrontendAttributes:
    """Names and texts that instructions carry.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> attributes = xc._xla.FrontendAttributes()
    >>> attributes["name"] = "text"
    >>> attributes.map
    {'name': 'text'}
    """

    __slots__ = ("map",)

    def __init__(self) -> None:
        self.map: dict[str, str] = {}

    def __setitem__(self, name: str, value: str) -> None:
        self.map[name] = value


def window_padding_type_to_pad_values(
    padding_type: PaddingType | str, lhs_dims: Sequence[int], rhs_dims: Sequence[int], window_strides: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding that a rule gives to a window (WIN-5, WIN-6, WIN-7).

    Parameters
    ----------
    padding_type : PaddingType or str
        "SAME" or "VALID".
    lhs_dims : sequence of int
        The sizes of the padded dimensions.
    rhs_dims : sequence of int
        The sizes of the window.
    window_strides : sequence of int
        The strides of the window.

    Returns
    -------
    list of (int, int)
        The padding before and after each dimension.

    Raises
    ------
    ValueError
        The string is not "SAME" or "VALID".
    TypeError
        `padding_type` is of another type.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.window_padding_type_to_pad_values("SAME", [5], [2], [2])
    [(0, 1)]
    """
    if isinstance(padding_type, str):
        if padding_type.upper() not in PaddingType.__members__:
            raise ValueError(f'Unknown padding type string: expected "VALID" or "SAME", got {padding_type}.')
        padding_type = PaddingType[padding_type.upper()]
    if not isinstance(padding_type, PaddingType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"padding_type must be str or PaddingType, got {type(padding_type)}.")
    if padding_type is PaddingType.VALID:
        return [(0, 0)] * len(window_strides)
    return list(same_padding(lhs_dims, rhs_dims, window_strides))
