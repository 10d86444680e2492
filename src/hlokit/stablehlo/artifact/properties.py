"""The properties of operations: the attributes of their definitions, by name, in alphabetical order."""

from __future__ import annotations

# In these tables `?` follows an attribute that may be left out, `?+` one that older bytecode of the dialect lacks, `#`
# stands before numbers of operands or results, which come last. A line that is indented goes on with the one before.

_VHLO = """
all_gather all_gather_dim replica_groups channel_id use_global_device_ids
all_reduce replica_groups channel_id use_global_device_ids
all_to_all split_dimension concat_dimension split_count replica_groups channel_id
batch_norm_grad epsilon feature_index
batch_norm_inference epsilon feature_index
batch_norm_training epsilon feature_index
broadcast broadcast_sizes
broadcast_in_dim broadcast_dimensions
call callee
cholesky lower
collective_broadcast_v1 replica_groups channel_id
collective_broadcast replica_groups channel_id has_dynamic_root
collective_permute source_target_pairs channel_id
collective_reduce replica_groups channel_id use_global_device_ids has_dynamic_root
compare comparison_direction compare_type
composite name composite_attributes decomposition version
concatenate dimension
constant value
convolution window_strides padding lhs_dilation rhs_dilation window_reversal CONVOLUTION
cross-replica-sum replica_groups
custom_call_v1 call_target_name has_side_effect backend_config api_version called_computations operand_layouts
    result_layouts output_operand_aliases
custom_call call_target_name has_side_effect backend_config api_version called_computations operand_layouts
    result_layouts output_operand_aliases result_tilings
dot precision_config
dot_general_v1 DOT precision_config
dot_general DOT precision_config lhs_precision_type rhs_precision_type accumulation_type lhs_component_count
    rhs_component_count num_primitive_operations allow_imprecise_accumulation
dynamic_broadcast_in_dim broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions
dynamic_conv_v1 window_strides padding lhs_dilation rhs_dilation window_reversal CONVOLUTION
dynamic_conv window_strides lhs_dilation rhs_dilation window_reversal CONVOLUTION
dynamic_gather_v1 offset_dims collapsed_slice_dims start_index_map index_vector_dim indices_are_sorted
dynamic_gather offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map
    index_vector_dim indices_are_sorted
dynamic_iota iota_dimension
dynamic_slice slice_sizes
einsum einsum_config
fft fft_type fft_length
func sym_name function_type sym_visibility arg_attrs res_attrs
gather_v1 offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes indices_are_sorted
gather offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map
    index_vector_dim slice_sizes indices_are_sorted
get_dimension_size dimension
get_tuple_element index
infeed infeed_config layout
iota iota_dimension
map dimensions
outfeed outfeed_config
pad edge_padding_low edge_padding_high interior_padding
recv_v1 channel_id channel_type is_host_transfer
recv channel_id channel_type is_host_transfer source_target_pairs
reduce dimensions
reduce_precision exponent_bits mantissa_bits
reduce_scatter scatter_dimension replica_groups channel_id use_global_device_ids
reduce_window window_dimensions window_strides base_dilations window_dilations padding
reverse dimensions
rng rng_distribution
rng_bit_generator rng_algorithm
scatter_v1 update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim indices_are_sorted
    unique_indices
scatter update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims
    scatter_dims_to_operand_dims index_vector_dim indices_are_sorted unique_indices
select_and_scatter window_dimensions window_strides padding
send_v1 channel_id channel_type is_host_transfer
send channel_id channel_type is_host_transfer source_target_pairs
set_dimension_size dimension
slice start_indices limit_indices strides
sort dimension is_stable
torch_index_select dim batch_dims
transpose permutation
triangular_solve left_side lower unit_diagonal transpose_a
unary_einsum einsum_config
"""
ACCURATE = (
    "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine",
    "sqrt", "tan", "tanh",
)  # fmt: skip
"""Operations with a result_accuracy."""

_STABLEHLO = """
all_gather all_gather_dim replica_groups channel_handle? use_global_device_ids?
all_reduce replica_groups channel_handle? use_global_device_ids?
all_to_all split_dimension concat_dimension split_count replica_groups channel_handle?
batch_norm_grad epsilon feature_index
batch_norm_inference epsilon feature_index
batch_norm_training epsilon feature_index
broadcast broadcast_sizes
broadcast_in_dim broadcast_dimensions
cholesky lower?
collective_broadcast replica_groups channel_handle? has_dynamic_root?+
collective_permute source_target_pairs channel_handle?
collective_reduce replica_groups channel_handle? use_global_device_ids? has_dynamic_root?
compare comparison_direction compare_type?
composite name composite_attributes? decomposition version?
concatenate dimension
constant value
convolution window_strides? padding? lhs_dilation? rhs_dilation? window_reversal? dimension_numbers
    feature_group_count batch_group_count precision_config?
cross-replica-sum replica_groups
custom_call call_target_name has_side_effect? backend_config? api_version? called_computations? operand_layouts?
    result_layouts? output_operand_aliases? result_tilings?+
dot precision_config?
dot_general dot_dimension_numbers precision_config? algorithm?
dynamic_broadcast_in_dim broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?
dynamic_conv window_strides? lhs_dilation? rhs_dilation? window_reversal? dimension_numbers feature_group_count
    batch_group_count precision_config?
dynamic_gather dimension_numbers indices_are_sorted?
dynamic_iota iota_dimension
dynamic_slice slice_sizes
einsum einsum_config
fft fft_type fft_length
gather dimension_numbers slice_sizes indices_are_sorted?
get_dimension_size dimension
get_tuple_element index
infeed infeed_config? layout?
iota iota_dimension
map dimensions
outfeed outfeed_config?
pad edge_padding_low edge_padding_high interior_padding
recv channel_handle is_host_transfer? source_target_pairs?
reduce dimensions
reduce_precision exponent_bits mantissa_bits
reduce_scatter scatter_dimension replica_groups channel_handle? use_global_device_ids?
reduce_window window_dimensions window_strides? base_dilations? window_dilations? padding?
reverse dimensions
rng rng_distribution
rng_bit_generator rng_algorithm
scatter scatter_dimension_numbers indices_are_sorted? unique_indices?
select_and_scatter window_dimensions? window_strides? padding?
send channel_handle is_host_transfer? source_target_pairs?
set_dimension_size dimension
slice start_indices limit_indices strides
sort dimension? is_stable?
torch_index_select dim batch_dims
transpose permutation
triangular_solve left_side lower unit_diagonal transpose_a
unary_einsum einsum_config
"""
_OTHERS = """
builtin.module sym_name? sym_visibility?
func.func sym_name function_type sym_visibility? arg_attrs? res_attrs? no_inline?
func.call callee arg_attrs? res_attrs? no_inline?
chlo.constant value
chlo.constant_like value
chlo.broadcast_compare broadcast_dimensions? comparison_direction compare_type?
chlo.ragged_dot ragged_dot_dimension_numbers precision_config?
chlo.scan dimension is_associative? is_reverse? scan_dim_size? #operandSegmentSizes #resultSegmentSizes
chlo.top_k k is_stable?+
sdy.all_gather gathering_axes out_sharding
sdy.all_reduce reduction_axes out_sharding
sdy.all_slice slicing_axes out_sharding
sdy.all_to_all params out_sharding
sdy.collective_permute out_sharding
sdy.constant value
sdy.data_flow_edge sharding?
sdy.mesh sym_name mesh
sdy.sharding_constraint sharding
sdy.reshard sharding
sdy.sharding_group group_id
sdy.manual_computation in_shardings out_shardings manual_axes
sdy.named_computation name in_shardings? out_shardings?
sdy.propagation_barrier allowed_direction
sdy.reduce_scatter reduce_scatter_axes out_sharding
sdy.replicated_to_unreduced axes out_sharding
sdy.sharded_to_unreduced axes out_sharding
"""
_CHLO_BROADCASTING = (
    "add and atan2 complex divide maximum minimum multiply next_after or polygamma power remainder shift_left "
    "shift_right_arithmetic shift_right_logical subtract xor zeta"
)
_SHORT = {
    "DOT": "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions",
    "CONVOLUTION": (
        "input_batch_dimension input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension "
        "kernel_output_feature_dimension kernel_spatial_dimensions output_batch_dimension output_feature_dimension "
        "output_spatial_dimensions feature_group_count batch_group_count precision_config"
    ),
}


def _table(text: str, prefix: str = "") -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, *attributes = line.split()
        words = " ".join(_SHORT.get(word, word) for word in attributes).split()
        found[prefix + name] = tuple(sorted(words, key=lambda word: (word[0] == "#", word.rstrip("?+"))))
    return found


PROPERTIES: dict[str, tuple[str, ...]] = {
    **_table(_VHLO, "vhlo."),
    **{f"vhlo.{name}": ("result_accuracy",) for name in ACCURATE},
    **_table(_STABLEHLO, "stablehlo."),
    **{f"stablehlo.{name}": ("result_accuracy?",) for name in ACCURATE},
    **{f"chlo.broadcast_{name}": ("broadcast_dimensions?",) for name in _CHLO_BROADCASTING.split()},
    **_table(_OTHERS),
}
"""By operation: those of vhlo with `_vN` for that version, without for the others; `?` follows what may be left out."""


def properties_of(name: str) -> tuple[str, ...] | None:
    """The attributes of an operation, by its full name; None if it is not known to have some."""
    found = PROPERTIES.get(name)
    if found is None and name.startswith("vhlo."):
        found = PROPERTIES.get(name.rpartition("_v")[0])
    return found
