"""The op functions take the arguments of the reference's signatures, by its names and in its order.

The reference's leading `builder` is left out where there are operands, which know theirs (concat_in_dim, map).
Arguments that the reference does not have are keyword-only or come last and are listed in EXTRA.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_overloads

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects
from tests.rules.programs import f32, run, s32, same

_UNARY = """
    abs ceil clz conj copy floor imag is_finite neg not_ population_count real round round_nearest_even sign
    optimization_barrier
"""
_ACCURATE = "cbrt cos erf exp exp2 expm1 log log1p log2 logistic rsqrt sin sqrt tan tanh"
_BINARY = """
    add div eq eq_total_order ge ge_total_order gt gt_total_order le le_total_order lt lt_total_order max min mul mulhi
    ne ne_total_order pow rem shift_left shift_right_arithmetic shift_right_logical sub xor
"""
_CONV_HEAD = "lhs rhs window_strides padding"
_CONV_TAIL = "feature_group_count batch_group_count precision_config preferred_element_type"
_DYNAMIC = "window_strides padding lhs_dilation rhs_dilation dimension_numbers feature_group_count batch_group_count"
_WINDOWS = "window_dimensions window_strides"
_GROUPS = "replica_groups channel_id"
_SELECT_AND_SCATTER = f"operand select {_WINDOWS} padding source init_value scatter"
_TABLE = f"""
    after_all                   builder tokens
    all_gather                  operand all_gather_dimension shard_count {_GROUPS} layout use_global_device_ids
    all_gather_tuple            operands all_gather_dimension shard_count {_GROUPS} layout use_global_device_ids
    all_reduce                  operand computation {_GROUPS} shape_with_layout use_global_device_ids
    all_reduce_tuple            operands computation {_GROUPS} shape_with_layout use_global_device_ids
    all_to_all                  operand split_dimension concat_dimension split_count replica_groups layout channel_id
    atan2                       y x broadcast_dimensions
    batch_norm_grad             operand scale batch_mean batch_var grad_output epsilon feature_index
    batch_norm_inference        operand scale offset mean variance epsilon feature_index
    batch_norm_training         operand scale offset epsilon feature_index
    bitcast_convert_type        operand new_element_type
    broadcast                   operand broadcast_sizes
    broadcast_in_dim            operand out_dim_size broadcast_dimensions
    call                        builder computation operands
    cholesky                    a lower
    clamp                       min operand max
    collapse                    operand dimensions
    collective_broadcast        operand {_GROUPS}
    collective_reduce           operand computation {_GROUPS} use_global_device_ids has_dynamic_root
    collective_permute          operand source_target_pairs channel_id
    compare                     lhs rhs broadcast_dimensions direction compare_type
    complex                     real imag broadcast_dimensions
    composite_call              builder computation operands name attributes version
    concat_in_dim               operands dimension
    concatenate                 operands dimension
    conv                        {_CONV_HEAD} {_CONV_TAIL}
    conv_general                {_CONV_HEAD} dimension_numbers {_CONV_TAIL}
    conv_general_dilated        {_CONV_HEAD} lhs_dilation rhs_dilation dimension_numbers {_CONV_TAIL} window_reversal
    conv_with_general_dimensions {_CONV_HEAD} dimension_numbers {_CONV_TAIL}
    conv_with_general_padding   {_CONV_HEAD} {_CONV_TAIL}
    convert_element_type        operand new_element_type
    create_token                builder
    cross_replica_sum           operand replica_groups
    custom_call                 builder call_target_name operands shape opaque has_side_effect \
        output_operand_aliasing literal schedule api_version
    dot                         lhs rhs precision_config preferred_element_type
    dot_general                 lhs rhs dimension_numbers precision_config preferred_element_type
    dynamic_conv_forward        lhs rhs {_DYNAMIC} precision_config padding_type preferred_element_type
    dynamic_conv_input_grad     input_sizes lhs rhs {_DYNAMIC} precision_config padding_type preferred_element_type
    dynamic_conv_kernel_grad    activations gradients {_DYNAMIC} precision_config padding_type preferred_element_type
    dynamic_reshape             operand dim_sizes new_size_bounds dims_are_dynamic
    dynamic_slice               operand start_indices slice_sizes
    dynamic_update_slice        operand update start_indices
    fft                         operand fft_type fft_length
    gather                      operand start_indices dimension_numbers slice_sizes indices_are_sorted
    get_dimension_size          operand dimension
    get_tuple_element           tuple_data index
    infeed                      builder shape config
    infeed_with_token           token shape config
    map                         operands computation dimensions static_operands
    mhlo_dynamic_broadcast_in_dim operand output_dimensions broadcast_dimensions output_shape
    mhlo_dynamic_reshape        operand output_shape shape
    multi_collective_permute    operands source_target_pairs channel_id
    outfeed                     operand shape_with_layout outfeed_config
    outfeed_with_token          operand token shape_with_layout outfeed_config
    pad                         operand padding_value padding_config
    pad_in_dim                  operand padding_value dimno pad_lo pad_hi
    ragged_all_to_all           input input_offsets send_sizes output output_offsets recv_sizes {_GROUPS}
    ragged_dot                  lhs rhs group_sizes dimension_numbers precision_config preferred_element_type
    recv                        builder shape channel_handle
    recv_from_host              token shape handle
    recv_with_token             token shape handle
    reduce                      operands init_values computation dimensions
    reduce_all                  operand init computation
    reduce_precision            operand exponent_bits mantissa_bits
    reduce_scatter              operand computation scatter_dimension shard_count {_GROUPS} layout \
        use_global_device_ids
    reduce_window               operands init_values computation {_WINDOWS} padding
    reduce_window_with_general_padding operands init_values computation {_WINDOWS} base_dilations window_dilations \
        padding
    remove_dynamic_dimension    operand dimension
    replica_id                  builder
    reshape                     operand new_sizes
    reshape_with_inferred_dimension operand new_sizes inferred_dimension
    rev                         operand dimensions
    rng_bit_generator           algorithm initial_state shape
    rng_normal                  mu sigma shape
    rng_uniform                 a b shape
    scaled_dot                  lhs rhs lhs_scale rhs_scale dimension_numbers precision_config preferred_element_type
    scan                        inputs inits computation scan_dimension scan_dimension_size is_reverse is_associative
    scatter                     operands scatter_indices updates update_computation dimension_numbers \
        indices_are_sorted unique_indices
    select                      pred on_true on_false
    select_and_scatter          {_SELECT_AND_SCATTER}
    select_and_scatter_with_general_padding {_SELECT_AND_SCATTER}
    send                        operand channel_handle
    send_to_host                operand token shape_with_layout handle
    send_with_token             operand token handle
    set_dimension_size          operand val dimension
    slice                       operand start_indices limit_indices strides
    slice_in_dim                operand start limit stride dimno
    sort                        operands comparator dimension is_stable
    stochastic_convert_type     operand random new_element_type
    top_k                       operand k largest
    transpose                   operand permutation
    triangular_solve            a b left_side lower unit_diagonal transpose_a
    tuple_                      builder elements
    while_                      condition body init
"""
EXTRA = {"reshape": ("dimensions",), "collective_broadcast": ("has_dynamic_root",)}
"""reshape: the seed's second form; collective_broadcast: an attribute of the HLO text."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "conv": {"feature_group_count": 1, "batch_group_count": 1},
    "custom_call": {"opaque": "", "has_side_effect": False},
    "gather": {"indices_are_sorted": False},
    "infeed": {"config": ""},
    "scatter": {"indices_are_sorted": False, "unique_indices": False},
    "sort": {"dimension": -1, "is_stable": False},
}


def _rows() -> dict[str, tuple[str, ...]]:
    rows = dict.fromkeys(_UNARY.split(), ("operand",))
    rows |= dict.fromkeys(_ACCURATE.split(), ("operand", "result_accuracy"))
    rows |= dict.fromkeys(_BINARY.split(), ("lhs", "rhs", "broadcast_dimensions"))
    for line in _TABLE.strip().splitlines():
        name, *arguments = line.split()
        rows[name] = tuple(arguments)
    return rows


SIGNATURES = _rows()


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments(name: str) -> None:
    parameters = inspect.signature(getattr(hk, name)).parameters.values()
    names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    assert names == SIGNATURES[name] + EXTRA.get(name, ())
    assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name: str) -> None:
    parameters = inspect.signature(getattr(hk, name)).parameters
    assert {argument: parameters[argument].default for argument in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("name", ["and_", "or_"])
def test_logical_functions_take_more_operands(name: str) -> None:
    assert [*inspect.signature(getattr(hk, name)).parameters] == ["lhs", "rhs", "more", "broadcast_dimensions"]


def test_conditional_has_two_forms() -> None:
    forms = [tuple(inspect.signature(form).parameters) for form in get_overloads(hk.conditional.__wrapped__)]
    assert forms == [
        ("pred", "true_operand", "true_computation", "false_operand", "false_computation"),
        ("branch_index", "branch_computations", "branch_operands"),
    ]
    by_pred = lambda p, x: hk.conditional(  # noqa: E731
        p, x, hk.neg, false_computation=hk.abs, false_operand=x
    )
    same(run(by_pred, np.array(True), f32(3)), f32(-3))
    by_index = lambda i, x: hk.conditional(  # noqa: E731
        branch_operands=[x, x], branch_index=i, branch_computations=[hk.neg, hk.abs]
    )
    same(run(by_index, s32(1), f32(-3)), f32(3))
    with rejects("COND-4"):
        run(lambda p, x: hk.conditional(p, x, hk.neg, x, branch_operands=hk.abs), np.array(True), f32(3))


# -- dimension numbers

_DOT = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": np.array([0])}
_ROWS = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
_INTO_ROWS = {
    "update_window_dims": [1],
    "inserted_window_dims": [0],
    "scatter_dims_to_operand_dims": [0],
    "index_vector_dim": 1,
}
_CONV = {
    "input_batch_dimension": 0,
    "input_feature_dimension": 1,
    "input_spatial_dimensions": [],
    "kernel_input_feature_dimension": 0,
    "kernel_output_feature_dimension": 1,
    "kernel_spatial_dimensions": [],
    "output_batch_dimension": 0,
    "output_feature_dimension": 1,
    "output_spatial_dimensions": [],
}
_RAGGED = {
    "dot_dimension_numbers": {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]},
    "lhs_ragged_dimensions": [0],
    "rhs_group_dimensions": [0],
}
X, ROW, ONE = f32([[1, 2], [3, 4]]), s32([1]), f32([[5, 6]])

CALLS: list[Any] = [
    pytest.param(hk.DotDimensionNumbers, _DOT, lambda n: lambda x: hk.dot_general(x, x, n), id="dot_general"),
    pytest.param(
        hk.RaggedDotDimensionNumbers,
        _RAGGED,
        lambda n: lambda x: hk.ragged_dot(x, hk.broadcast(x, [1]), x.builder.constant(s32([2])), n),
        id="ragged_dot",
    ),
    pytest.param(
        hk.DotDimensionNumbers,
        _DOT,
        lambda n: lambda x: hk.scaled_dot(x, x, x, x, dimension_numbers=n),
        id="scaled_dot",
    ),
    pytest.param(
        hk.GatherDimensionNumbers, _ROWS, lambda n: lambda x: hk.gather(x, ROW, n, slice_sizes=[1, 2]), id="gather"
    ),
    pytest.param(
        hk.ScatterDimensionNumbers, _INTO_ROWS, lambda n: lambda x: hk.scatter(x, ROW, ONE, hk.add, n), id="scatter"
    ),
    pytest.param(
        hk.ConvolutionDimensionNumbers, _CONV, lambda n: lambda x: hk.conv_general(x, x, [], [], n), id="conv_general"
    ),
    pytest.param(
        hk.ConvolutionDimensionNumbers,
        _CONV,
        lambda n: lambda x: hk.conv_with_general_dimensions(x, x, [], "SAME", n),
        id="conv_with_general_dimensions",
    ),
]
Program = Callable[[Any], Callable[[Any], hk.XlaOp]]


@pytest.mark.parametrize(("cls", "fields", "program"), CALLS)
def test_dimension_numbers_are_objects_mappings_or_anything_with_the_fields(
    cls: Any, fields: dict[str, Any], program: Program
) -> None:
    numbers = cls(**fields)
    assert hash(numbers) == hash(cls.of(fields)) and cls.of(numbers) is numbers
    expected = run(program(numbers), X)
    same(run(program(fields), X), expected)
    same(run(program(SimpleNamespace(**fields)), X), expected)
    with pytest.raises(AttributeError):
        setattr(numbers, next(iter(fields)), ())


@pytest.mark.parametrize(("cls", "fields", "program"), CALLS)
def test_wrong_dimension_numbers_are_rejected(cls: Any, fields: dict[str, Any], program: Program) -> None:
    first = next(iter(fields))
    wrong: list[Any] = [
        {**fields, "axis": 0},
        {**fields, first: [0.5]},
        {**fields, first: "0"},
        SimpleNamespace(),
        None,
    ]
    for given in wrong:
        with rejects("HINST-6"):
            run(program(given), X)


@pytest.mark.parametrize(
    ("cls", "fields"), [(hk.GatherDimensionNumbers, _ROWS), (hk.ScatterDimensionNumbers, _INTO_ROWS)]
)
def test_index_vector_dim_is_required(cls: Any, fields: dict[str, Any]) -> None:
    assert cls.of({"index_vector_dim": 1}) == cls(index_vector_dim=1)
    with rejects("HINST-6"):
        cls.of({name: value for name, value in fields.items() if name != "index_vector_dim"})


def test_short_name_of_convolution_dimension_numbers() -> None:
    assert hk.ConvDimensionNumbers is hk.ConvolutionDimensionNumbers
