"""XLA's compile options (`compiler_options` of jax.jit): their names, their values and their effects.

A name that XLA does not have, or a value of another type, is an error with XLA's text. Options with an observable
effect are obeyed, or refused with UnsupportedError. Options that only tune XLA's own code generator, its GPU or its
TPU backend are accepted and have no effect: JAX's CPU client computes the same with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from hlokit.errors import ArgumentError, UnsupportedError

HEEDED = (
    "xla_dump_to",
    "xla_dump_hlo_pass_re",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
    "xla_disable_hlo_passes",
)
"""Those that compiling reads, as it does in XLA_FLAGS."""
THREADS = "hlokit_threads"
"""hlokit's own option: threads that take part in a call, the caller among them."""

_DEFAULTS: dict[str, Any] = {
    "xla_cpu_ftz": False,
    "xla_cpu_max_isa": "",
    "xla_cpu_strict_dot_conv_math": False,
    "xla_detect_unstable_reductions": "DETECTION_MODE_NONE",
    "xla_detect_unstable_reductions_post_optimizations": "DETECTION_MODE_NONE",
    "xla_disable_all_hlo_passes": False,
    "xla_early_exit_with_layouts": False,
    "xla_enable_hlo_passes_only": "",
    "xla_hlo_profile": False,
    "xla_test_all_input_layouts": False,
    "xla_test_all_output_layouts": False,
}
"""Flags that ask for something that hlokit does not do, but with this value."""


def check(options: Mapping[str, Any]) -> dict[str, str]:
    """The options that compiling heeds, as texts.

    ArgumentError: there is no such option, or it takes no such value. UnsupportedError: XLA heeds it, hlokit does not.
    """
    for name, value in options.items():
        _check_value(name, value)
    heeded = {name: str(value) for name, value in options.items() if name in HEEDED}
    for name, value in options.items():
        if name in _DEFAULTS and str(value) != str(_DEFAULTS[name]):
            raise UnsupportedError(f"the compile option {name}={value} is not supported")
        if name.startswith("xla_dump_") and name not in HEEDED and heeded.get("xla_dump_to"):
            raise UnsupportedError(f"the compile option {name} beside xla_dump_to is not supported")
    return heeded


def threads(options: Mapping[str, Any]) -> int | None:
    """THREADS of the options, None where it is not among them. ArgumentError: it is not a number of threads."""
    value = options.get(THREADS)
    if value is None:
        return None
    if not _is_of("int32", value) or int(value) < 1:
        raise ArgumentError(f"the compile option {THREADS}={value} is not a number of threads: expected 1 or more")
    return int(value)


def _check_value(name: str, value: Any) -> None:
    kind = _kinds().get(name)
    if kind is None:
        raise ArgumentError(f"No such compile option: '{name}'")
    for part in value.split(",") if kind.endswith("*") and isinstance(value, str) and value else [value]:
        if not _is_of(kind.rstrip("*"), part) and not (kind.endswith("*") and part == ""):
            what = kind.rstrip("*") if kind.rstrip("*") in _TYPES else "enum"
            text = f"{part:g}" if isinstance(part, float) else str(int(part) if isinstance(part, bool) else part)
            raise ArgumentError(f"While setting option {name}, '{text}' is not a valid {what} value.")


_TYPES = ("bool", "int32", "int64", "float", "string", "message")
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_BITS = {"int32": 32, "int64": 64}


def _is_of(kind: str, value: Any) -> bool:
    """Whether an option of this type takes the value: booleans also as texts, so do numbers."""
    if kind == "bool":
        return isinstance(value, bool) or value in ("True", "False")
    if kind == "string":
        return isinstance(value, str)
    if kind == "message" or isinstance(value, bool):
        return False
    if kind == "float":
        return isinstance(value, float) or (isinstance(value, str) and _is_float(value))
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if kind in _BITS:
        return isinstance(value, int) and -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1
    return isinstance(value, int) or value in _values()[kind]


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


@cache
def _kinds() -> dict[str, str]:
    """The type of each option; a list's has a star."""
    return {f"xla_{name}": kind for kind, names in _rows(_OPTIONS).items() for name in names}


@cache
def _values() -> dict[str, list[str]]:
    """The names of each enumeration's values."""
    return _rows(_ENUMERATIONS)


def _rows(text: str) -> dict[str, list[str]]:
    rows = text.replace("\n    ", " ").strip().splitlines()
    return {name: words.split() for name, _, words in (row.partition(":") for row in rows)}


_ENUMERATIONS = """
CollectiveOpType: NOOP ALLREDUCE ALLGATHER REDUCESCATTER COLLECTIVEBROADCAST ALLTOALL COLLECTIVEPERMUTE RAGGEDALLTOALL
    ALLCOLLECTIVES
CommandBufferCmdType: INVALID FUSION CUBLAS CUDNN COLLECTIVES CONDITIONAL WHILE CUSTOM_CALL CUBLASLT
    DYNAMIC_SLICE_FUSION CONVOLUTION
LibNvJitLinkMode: LIB_NV_JIT_LINK_MODE_AUTO LIB_NV_JIT_LINK_MODE_DISABLED LIB_NV_JIT_LINK_MODE_ENABLED
PGLEStrictnessLevel: PGLE_STRICTNESS_LEVEL_OFF PGLE_STRICTNESS_LEVEL_WARN PGLE_STRICTNESS_LEVEL_ERROR
ShapeChecks: IGNORE RUNTIME COMPILE_TIME
WhileLoopUnrolling: WHILE_LOOP_UNROLLING_NO_UNROLL WHILE_LOOP_UNROLLING_DOUBLE_BUFFER WHILE_LOOP_UNROLLING_FULL_UNROLL
    WHILE_LOOP_UNROLLING_AUTO_UNROLL WHILE_LOOP_UNROLLING_MANUAL_UNROLL
CpuOptPreset: CPU_OPT_PRESET_DEFAULT CPU_OPT_PRESET_FAST_RUNTIME CPU_OPT_PRESET_FAST_COMPILE
CpuSchedulerType: CPU_SCHEDULER_TYPE_DEFAULT CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED
    CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED
LibraryFusionType: LIBRARY_FUSION_TYPE_INVALID LIBRARY_FUSION_TYPE_DOT LIBRARY_FUSION_TYPE_ELTWISE
    LIBRARY_FUSION_TYPE_REDUCE LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION
XnnGraphFusionMode: XNN_GRAPH_FUSION_MODE_DISABLED XNN_GRAPH_FUSION_MODE_GREEDY XNN_GRAPH_FUSION_MODE_GREEDY_SLINKY
    XNN_GRAPH_FUSION_MODE_BYPASS_COST_MODEL
CollectivesMode: COLLECTIVES_MODE_INVALID COLLECTIVES_PRIVATE_MEMORY COLLECTIVES_SYMMETRIC_MEMORY
    COLLECTIVES_PEER_MEMORY
CommandBufferSchedulingMode: SERIALIZE CONCURRENT LHS CONCURRENT_REGIONS
CommandBufferUpdateMode: ALWAYS_UPDATE NEVER_UPDATE CAPTURE_CMD_NEVER_UPDATE
DevicelessCubMode: DEVICELESS_CUB_UNSET DEVICELESS_CUB_DISABLED DEVICELESS_CUB_WITH_FALLBACK DEVICELESS_CUB_NO_FALLBACK
    DEVICELESS_CUB_FORCE_ON_NO_FALLBACK
PipelineParallelismOptLevel: PIPELINE_PARALLELISM_OPT_LEVEL_DISABLE PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE
StepMarkerLocation: STEP_MARK_AT_ENTRY STEP_MARK_AT_TOP_LEVEL_WHILE_LOOP STEP_MARK_AT_SECOND_LEVEL_WHILE_LOOP
    STEP_MARK_NONE
PartitioningAlgorithm: PARTITIONING_ALGORITHM_NOOP PARTITIONING_ALGORITHM_EXP0 PARTITIONING_ALGORITHM_EXP1
    PARTITIONING_ALGORITHM_EXP2
DetectionMode: DETECTION_MODE_NONE DETECTION_MODE_WARNING DETECTION_MODE_FAIL
AutotuneCacheMode: AUTOTUNE_CACHE_MODE_UNSPECIFIED AUTOTUNE_CACHE_MODE_UPDATE AUTOTUNE_CACHE_MODE_READ
Backend: UNSPECIFIED_BACKEND CUDNN TRITON CUBLASLT HIPBLASLT MIOPEN CUSTOM_KERNEL BLOCK_LEVEL_EMITTER NATIVE_EMITTER
    LLVM_KERNEL_EMITTER CUBLASLT_FISSION CUSTOM_KERNEL_FISSION HIPBLASLT_FISSION
"""

_OPTIONS = """
bool: allow_h2h_copy_when_automatic_host_compute_offload_disabled disable_automatic_host_compute_offload
    enable_hlo_sharding_v3 enable_scoped_logging_timers hlo_pass_fix_detect_cycles keep_shardings_after_spmd
    sdy_export_all_reduce_scatter unsupported_crash_on_hlo_pass_fix_max_iterations
    unsupported_crash_on_hlo_pass_noop_change unsupported_crash_on_hlo_pass_silent_hlo_change
    cpu_copy_insertion_use_region_analysis cpu_enable_concurrency_optimized_scheduler cpu_enable_fast_math
    cpu_enable_fast_min_max cpu_enable_platform_dependent_math cpu_experimental_enable_tiling_propagation
    cpu_experimental_onednn_custom_call cpu_fast_math_honor_division cpu_fast_math_honor_functions
    cpu_fast_math_honor_infs cpu_fast_math_honor_nans cpu_ftz cpu_generate_unique_c_style_kernel_entry_points
    cpu_use_fusion_emitters cpu_use_xnnpack enable_fast_math dump_hlo_unoptimized_snapshots enable_enzyme_comms_opt
    gpu_async_dot gpu_collect_cost_model_stats gpu_collective_permute_connected_components
    gpu_command_buffer_unroll_loops gpu_copy_insertion_use_region_analysis gpu_crash_on_verification_failures
    gpu_cublas_fallback gpu_default_to_alg_dot_bf16_bf16_f32 gpu_deterministic_ops gpu_disable_gpuasm_optimizations
    gpu_dump_autotuned_gemm_fusions gpu_dump_autotuned_instructions gpu_dump_llvmir gpu_enable_all_gather_combine_by_dim
    gpu_enable_analytical_latency_estimator gpu_enable_analytical_sol_latency_estimator
    gpu_enable_approx_costly_collectives gpu_enable_cub_radix_sort gpu_enable_cublaslt
    gpu_enable_cudnn_int8x32_convolution_reordering gpu_enable_cudnn_layer_norm
    gpu_enable_dus_accumulator_zero_init_elimination gpu_enable_dynamic_slice_fusion gpu_enable_fast_min_max
    gpu_enable_highest_priority_async_stream gpu_enable_host_memory_offloading gpu_enable_latency_hiding_scheduler
    gpu_enable_libnvptxcompiler gpu_enable_llvm_module_compilation_parallelism gpu_enable_nccl_clique_optimization
    gpu_enable_nccl_comm_splitting gpu_enable_nccl_user_buffers gpu_enable_pdl gpu_enable_pipelined_all_gather
    gpu_enable_pipelined_all_reduce gpu_enable_pipelined_collectives gpu_enable_pipelined_host_offloading
    gpu_enable_pipelined_p2p gpu_enable_pipelined_reduce_scatter gpu_enable_reassociation_for_converted_ar
    gpu_enable_reduce_scatter_combine_by_dim gpu_enable_scatter_determinism_expander gpu_enable_shared_constants
    gpu_enable_triton_gemm gpu_enable_while_loop_double_buffering gpu_enable_while_loop_reduce_scatter_code_motion
    gpu_exclude_nondeterministic_ops gpu_executable_embed_debug_info gpu_exhaustive_tiling_search
    gpu_experimental_all_fusions_with_triton gpu_experimental_aot_compiled_thunks gpu_experimental_autotune_post_fusion
    gpu_experimental_collective_start_as_early_as_possible gpu_experimental_disable_binary_libraries
    gpu_experimental_dump_fdo_profiles gpu_experimental_dump_gpu_executable
    gpu_experimental_dynamic_slice_fusion_verify_offsets gpu_experimental_enable_alltoall_windowed_einsum
    gpu_experimental_enable_buffer_saver_on_thunks gpu_experimental_enable_checksum_tracing_on_thunks
    gpu_experimental_enable_collective_multi_streaming gpu_experimental_enable_conv_fusion
    gpu_experimental_enable_fusion_autotuner gpu_experimental_enable_fusion_block_level_rewriter
    gpu_experimental_enable_heuristic_collective_combining gpu_experimental_enable_nccl_symmetric_buffers
    gpu_experimental_enable_nvshmem gpu_experimental_enable_subchannel_dequantisation_fusion
    gpu_experimental_enable_triton_heroless_priority_fusion gpu_experimental_enable_triton_warp_specialization
    gpu_experimental_gemm_fusion_v2 gpu_experimental_pack_dot_operands_along_k_dimension
    gpu_experimental_stream_annotation gpu_experimental_use_ragged_dot_fusion
    gpu_experimental_use_ragged_dot_grouped_gemm gpu_fail_ptx_compilation_on_register_spilling
    gpu_filter_kernels_spilling_registers_on_autotuning gpu_force_conv_nchw gpu_force_conv_nhwc gpu_ftz
    gpu_fused_attention_use_cudnn_rng gpu_generate_debug_info gpu_generate_line_info gpu_graph_enable_concurrent_region
    gpu_mock_custom_calls gpu_multi_streamed_windowed_einsum gpu_native_emitter_tune_unroll_factor_for_loops
    gpu_nccl_async_execution gpu_nccl_blocking_communicators gpu_nccl_terminate_on_error gpu_print_compilation_stats
    gpu_require_complete_aot_autotune_results gpu_require_exclusive_lock gpu_shard_autotuning
    gpu_temp_buffer_use_separate_color gpu_triton_gemm_any gpu_unsafe_fallback_to_driver_on_ptxas_not_found
    gpu_unsupported_enable_all_reduce_decomposer gpu_unsupported_enable_ragged_all_to_all_decomposer
    gpu_unsupported_enable_ragged_all_to_all_multi_host_decomposer gpu_unsupported_enable_triton_gemm
    gpu_unsupported_enable_triton_multi_output_fusion gpu_unsupported_use_all_reduce_one_shot_kernel
    gpu_unsupported_use_ragged_all_to_all_one_shot_kernel gpu_use_embeded_device_lib gpu_use_inprocess_lld
    gpu_use_memcpy_local_p2p gpu_use_runtime_fusion gpu_verify_triton_fusion_numerics hlo_graph_addresses hlo_profile
    disable_all_hlo_passes embed_ir_in_executable eliminate_hlo_implicit_broadcast cpu_multi_thread_eigen
    llvm_enable_alias_scope_metadata llvm_enable_noalias_metadata llvm_enable_invariant_load_metadata
    llvm_disable_expensive_passes test_all_output_layouts test_all_input_layouts hlo_graph_sharding_color cpu_use_onednn
    allow_excess_precision hlo_evaluator_use_fast_path allow_scalar_index_dynamic_ops flags_reset dump_hlo_as_text
    dump_hlo_as_proto dump_hlo_as_dot dump_hlo_as_url dump_hlo_as_html dump_fusion_visualization dump_hlo_snapshots
    dump_include_timestamp dump_hlo_to_subfolder dump_module_metadata dump_compress_protos dump_hlo_as_long_text
    dump_buffer_assignment_analysis dump_enable_mlir_pretty_form dump_full_hlo_config tpu_detect_nan tpu_detect_inf
    cpu_enable_xprof_traceme detailed_logging enable_dumping llvm_force_inline_before_split dump_disable_metadata
    cpu_use_acl cpu_strict_dot_conv_math dump_latency_hiding_schedule gpu_log_minmax
    gpu_experimental_thunk_buffer_debug_module_outputs dump_large_constants syntax_sugar_async_ops
    enable_command_buffers_during_profiling hlo_print_inline_stack_frames pjrt_allow_auto_layout_in_hlo
    test_add_command_buffer_mode early_exit_with_layouts gpu_experimental_scaled_dot_with_triton
    gpu_experimental_use_raft_select_k gpu_experimental_ragged_all_to_all_use_barrier
    gpu_experimental_ragged_all_to_all_use_barrier_with_nccl gpu_experimental_ragged_all_to_all_zero_copy
    gpu_experimental_enable_tiling_propagation enable_rgv3_materialization
int32: recognize_reduction_optimization_level cpu_collective_call_terminate_timeout_seconds
    cpu_collective_call_warn_stuck_seconds cpu_collective_timeout_seconds cpu_emitter_verification_level
    cpu_parallel_codegen_split_count cpu_prefer_vector_width gpu_all_reduce_blueconnect_num_devices_per_host
    gpu_auto_spmd_partitioning_memory_budget_gb gpu_autotune_level gpu_collective_inflation_factor
    gpu_cudnn_gemm_fusion_level gpu_cudnn_gemm_max_plans gpu_dot_merger_threshold_mb
    gpu_executable_num_communication_streams gpu_executable_num_compute_streams gpu_executable_terminate_timeout_seconds
    gpu_executable_warn_stuck_timeout_seconds gpu_execution_progress_tracking gpu_experimental_force_split_k
    gpu_experimental_max_unroll_factor gpu_experimental_parallel_async_compute_limit
    gpu_experimental_parallel_collective_overlap_limit gpu_first_collective_call_terminate_timeout_seconds
    gpu_first_collective_call_warn_stuck_timeout_seconds gpu_force_compilation_parallelism
    gpu_fusion_autotune_top_k_configs gpu_graph_min_graph_size gpu_llvm_verification_level gpu_memory_limit_slop_factor
    backend_optimization_level force_host_platform_device_count dump_max_hlo_modules multiheap_size_constraint_per_heap
int64: gpu_all_gather_combine_threshold_bytes gpu_all_reduce_combine_threshold_bytes gpu_autotune_max_solutions
    gpu_collective_combine_threshold_count gpu_collective_permute_combine_threshold_bytes
    gpu_collective_permute_decomposer_threshold gpu_experimental_collective_cse_distance_threshold
    gpu_gemm_rewrite_size_threshold gpu_nccl_collective_max_nchannels gpu_nccl_init_max_rank_per_root_ratio
    gpu_nccl_p2p_max_nchannels gpu_nccl_termination_timeout_seconds gpu_operand_bytes_threshold_for_windowed_einsum
    gpu_reduce_scatter_combine_threshold_bytes gpu_redzone_padding_bytes gpu_rocm_max_trace_events
    gpu_threshold_for_windowed_einsum_mib gpu_unsupported_override_fast_interconnect_slice_size
    debug_buffer_assignment_show_max reduce_window_rewrite_base_length cmd_buffer_trace_cache_size
float: gpu_auto_spmd_partitioning_memory_budget_ratio gpu_autotune_gemm_rtol
string: cpu_max_isa gpu_algorithm_denylist_path gpu_collectives_implementation gpu_cuda_data_dir
    gpu_dump_autotune_logs_to gpu_dump_autotune_results_to gpu_execution_terminate_timeout
    gpu_experimental_autotuner_cache_dir gpu_experimental_collective_perf_table_path gpu_gemm_autotuner_override_file
    gpu_kernel_cache_file gpu_load_autotune_results_from gpu_override_gemm_autotuner gpu_per_fusion_autotune_cache_dir
    gpu_pgle_profile_file_or_directory_path gpu_target_config_filename dump_to dump_hlo_module_re dump_hlo_pass_re
    dump_emitter_re dump_hlo_pipeline_re gpu_experimental_matmul_perf_table_path
string*: gpu_llvm_ir_file gpu_ptx_compiler_extra_flags gpu_ptx_file disable_hlo_passes enable_hlo_passes_only
message: gpu_experimental_thunk_buffer_debug_filter
message*: gpu_analytical_latency_estimator_options gpu_experimental_cost_model_gemm_tiling_options backend_extra_options
CpuOptPreset: cpu_opt_preset
LibraryFusionType*: cpu_experimental_onednn_fusion_type cpu_experimental_xnn_fusion_type
    cpu_experimental_ynn_fusion_type
XnnGraphFusionMode: cpu_experimental_xnn_graph_fusion_mode
CpuSchedulerType: cpu_scheduler_type
DevicelessCubMode: gpu_deviceless_cub_mode
Backend*: gpu_experimental_autotune_backends
CollectivesMode: gpu_all_gather_mode gpu_collective_permute_mode gpu_ragged_all_to_all_mode
CommandBufferSchedulingMode: gpu_command_buffer_scheduling_mode
CommandBufferUpdateMode: gpu_command_buffer_update_mode
CollectiveOpType*: gpu_disable_async_collectives
CommandBufferCmdType*: gpu_enable_command_buffer
WhileLoopUnrolling: gpu_enable_while_loop_unrolling
AutotuneCacheMode: gpu_experimental_autotune_cache_mode
PipelineParallelismOptLevel: gpu_experimental_pipeline_parallelism_opt_level
LibNvJitLinkMode: gpu_libnvjitlink_mode
PGLEStrictnessLevel: gpu_pgle_accuracy_checker
ShapeChecks: gpu_shape_checks
StepMarkerLocation: step_marker_location
PartitioningAlgorithm: partitioning_algorithm
DetectionMode: detect_unstable_reductions detect_unstable_reductions_post_optimizations gpu_detect_nan gpu_detect_inf
"""
"""The fields of XLA's DebugOptions in jaxlib 0.10.2, by their types, without xla_ in front."""
