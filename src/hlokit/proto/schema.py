"""Messages of HloModuleProto and of what holds one, built at run time from field numbers (hlo.proto, xla_data.proto),
and those of compile options (xla/pjrt/compile_options.proto, xla.proto).

They live in a descriptor pool of their own, so nothing clashes with other packages that carry XLA's protos.
Values of enumerations are numbers, which `enums.py` names as HLO text does; XLA's names of them, which protobuf's text
format has, stand here. A map is a repeated message {key, value} (the same bytes), which keeps its order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hlokit.errors import UnsupportedError

# message: fields as name:type=number; "*type" is repeated, "?type" has presence. Only what hlokit reads or writes.
MESSAGES: dict[str, str] = {
    "Tile": "dimensions:*int64=1",
    "SplitConfig": "dimension:int64=1 split_indices:*int64=2",
    "Layout": """minor_to_major:*int64=1 tiles:*Tile=6 tail_padding_alignment_in_elements:int64=16
        element_size_in_bits:int64=7 memory_space:int64=8 index_primitive_type:PrimitiveType=11
        pointer_primitive_type:PrimitiveType=12 dynamic_shape_metadata_prefix_bytes:int64=15
        split_configs:*SplitConfig=17""",
    "Shape": """element_type:PrimitiveType=2 dimensions:*int64=3 is_dynamic_dimension:*bool=6 tuple_shapes:*Shape=4
        layout:Layout=5""",
    "ProgramShape": "parameters:*Shape=1 result:Shape=2 parameter_names:*string=3",
    "Literal": """shape:Shape=1 preds:*bool=2 s1s:bytes=30 s2s:bytes=26 s4s:bytes=21 s8s:bytes=15 u1s:bytes=31
        u2s:bytes=27 u4s:bytes=22 u8s:bytes=3 s32s:*int32=4 s64s:*int64=5 u32s:*uint32=6 u64s:*uint64=7 f32s:*float=8
        f64s:*double=9 c64s:*float=12 c128s:*double=18 tuple_literals:*Literal=10 f16s:bytes=11 bf16s:bytes=13
        u16s:bytes=16 s16s:bytes=17 f4e2m1fns:bytes=32 f8e3m4s:bytes=29 f8e4m3b11fnuzs:bytes=23 f8e4m3fns:bytes=20
        f8e4m3fnuzs:bytes=25 f8e4m3s:bytes=28 f8e5m2fnuzs:bytes=24 f8e5m2s:bytes=19 f8e8m0fnus:bytes=33
        f6e3m2fns:bytes=35 f6e2m3fns:bytes=36""",
    "OpMetadata": """op_type:string=1 op_name:string=2 source_file:string=3 source_line:int32=4
        source_end_line:int32=17 source_column:int32=18 source_end_column:int32=19 profile_type:*ProfileType=5
        deduplicated_name:string=12 stack_frame_id:int32=15 scheduling_name:string=16 metadata_payload:Payload=20""",
    "Payload": "value:bytes=1 id:?int64=2",
    "WindowDimension": """size:int64=1 stride:int64=2 padding_low:int64=3 padding_high:int64=4
        window_dilation:int64=5 base_dilation:int64=6 window_reversal:bool=7""",
    "Window": "dimensions:*WindowDimension=1",
    "PaddingDimension": "edge_padding_low:int64=1 edge_padding_high:int64=2 interior_padding:int64=3",
    "PaddingConfig": "dimensions:*PaddingDimension=1",
    "ConvolutionDimensionNumbers": """input_batch_dimension:int64=7 input_feature_dimension:int64=8
        input_spatial_dimensions:*int64=11 kernel_input_feature_dimension:int64=3
        kernel_output_feature_dimension:int64=4 kernel_spatial_dimensions:*int64=6 output_batch_dimension:int64=9
        output_feature_dimension:int64=10 output_spatial_dimensions:*int64=12""",
    "DotDimensionNumbers": """lhs_contracting_dimensions:*int64=1 rhs_contracting_dimensions:*int64=2
        lhs_batch_dimensions:*int64=3 rhs_batch_dimensions:*int64=4""",
    "RaggedDotDimensionNumbers": """dot_dimension_numbers:DotDimensionNumbers=1 lhs_ragged_dimensions:*int64=2
        rhs_group_dimensions:*int64=3""",
    "GatherDimensionNumbers": """offset_dims:*int64=1 collapsed_slice_dims:*int64=2 start_index_map:*int64=3
        index_vector_dim:int64=4 operand_batching_dims:*int64=5 start_indices_batching_dims:*int64=6""",
    "ScatterDimensionNumbers": """update_window_dims:*int64=1 inserted_window_dims:*int64=2
        scatter_dims_to_operand_dims:*int64=3 index_vector_dim:int64=4 input_batching_dims:*int64=5
        scatter_indices_batching_dims:*int64=6""",
    "SliceDimensions": "start:int64=1 limit:int64=2 stride:int64=3",
    "TriangularSolveOptions": "left_side:bool=1 lower:bool=2 unit_diagonal:bool=3 transpose_a:Transpose=4",
    "CholeskyOptions": "lower:bool=1",
    "PrecisionConfig": "operand_precision:*Precision=1 algorithm:Algorithm=2",
    "StringEntry": "key:string=1 value:string=2",
    "FrontendAttributes": "map:*StringEntry=1",
    "Statistic": "stat_name:string=1 stat_val:double=2",
    "StatisticsViz": "stat_index_to_visualize:int64=1 statistics:*Statistic=2",
    "OpSharding": """type:ShardingType=1 tile_assignment_dimensions:*int64=3 tile_assignment_devices:*int64=4
        tuple_shardings:*OpSharding=5 replicate_on_last_tile_dim:bool=6 metadata:*OpMetadata=7
        last_tile_dims:*ShardingType=8 iota_reshape_dims:*int64=9 iota_transpose_perm:*int32=10 is_shard_group:bool=11
        shard_group_id:int64=12 shard_group_type:ShardGroupType=13 named_sharding:NamedSharding=14""",
    "MeshAxis": "name:string=1 size:int64=2",
    "IotaTransform": "reshape_dims:*int64=1 transpose_perm:*int64=2",
    "Mesh": "axes:*MeshAxis=1 device_ids:*int64=2 iota_transform:IotaTransform=3",
    "SubAxis": "pre_size:int64=1 size:int64=2",
    "AxisRef": "mesh_axis_index:int64=1 sub_axis_info:SubAxis=2",
    "DimensionSharding": "axes:*AxisRef=1 is_closed:bool=2",
    "NamedSharding": """mesh:Mesh=2 dim_shardings:*DimensionSharding=3 replicated_axes:*AxisRef=4
        unreduced_axes:*AxisRef=5 reduction_op:int32=8 manual_axes:*AxisRef=7 metadata:*OpMetadata=6""",
    "ReplicaGroup": "replica_ids:*int64=1",
    "IotaReplicaGroupList": """num_replica_groups:int64=1 num_devices_per_group:int64=2 iota_reshape_dims:*int64=3
        iota_transpose_perm:*int32=4""",
    "CollectiveDeviceList": "replica_groups:*ReplicaGroup=1 iota_replica_group_list:IotaReplicaGroupList=2",
    "MeshAxesReplicaGroupList": "mesh:Mesh=1 axes:*AxisRef=2",
    "SourceTarget": "source:int64=1 target:int64=2",
    "Tolerance": "atol:double=1 rtol:double=2 ulps:int64=3",
    "ResultAccuracy": "mode:?AccuracyMode=1 tolerance:Tolerance=2",
    "ParameterReplication": "replicated_at_leaf_buffers:*bool=1",
    "OutputOperandAliasing": "output_shape_index:*int64=1 operand_index:int64=2 operand_shape_index:*int64=3",
    "Rotate": "shifts:*int64=1",
    "ShuffleMode": "rotate:Rotate=1",
    "OriginalArray": "instruction_name:string=1 shape_index:*int64=2",
    "OriginalElement": "shape_index:*int64=1 original_array:bytes=2 old_shape_index:*int64=3",
    "OriginalValue": "elements:*OriginalElement=1 is_synthetic_call:bool=2",
    "DebugAttributes": "log_mode:?int32=1 callback_id:?int64=2 op_id:?int64=3 partitioned:?bool=4",
    "DebugAttributeEntry": "original_array:OriginalArray=1 debug_attributes:*DebugAttributes=2",
    "Instruction": """name:string=1 opcode:string=2 shape:Shape=3 metadata:OpMetadata=7 literal:Literal=8
        parameter_number:int64=9 fusion_kind:string=11 tuple_index:int64=13 dimensions:*int64=14 window:Window=15
        convolution_dimension_numbers:ConvolutionDimensionNumbers=16 slice_dimensions:*SliceDimensions=17
        exponent_bits:int32=18 mantissa_bits:int32=19 dynamic_slice_sizes:*int64=20 padding_config:PaddingConfig=21
        outfeed_config:bytes=22 distribution:RandomDistribution=23 epsilon:float=24 feature_index:int64=25
        channel_id:int64=26 infeed_config:bytes=27 custom_call_target:string=28 outfeed_shape:Shape=29
        dot_dimension_numbers:DotDimensionNumbers=30 fft_type:FftType=31 fft_length:*int64=32
        gather_dimension_numbers:GatherDimensionNumbers=33 gather_slice_sizes:*int64=34 id:int64=35
        operand_ids:*int64=36 control_predecessor_ids:*int64=37 called_computation_ids:*int64=38
        sharding:OpSharding=40 backend_config:bytes=43 all_reduce_id:int64=45 is_host_transfer:bool=47
        scatter_dimension_numbers:ScatterDimensionNumbers=48 replica_groups:*ReplicaGroup=49
        feature_group_count:int64=50 precision_config:PrecisionConfig=51 source_target_pairs:*SourceTarget=52
        domain_entry_sharding:OpSharding=54 domain_exit_sharding:OpSharding=55 constrain_layout:bool=56
        operand_shapes_with_layout:*Shape=57 batch_group_count:int64=58
        triangular_solve_options:TriangularSolveOptions=59 is_stable:bool=60
        parameter_replication:ParameterReplication=61 cholesky_options:CholeskyOptions=62
        comparison_direction:string=63 custom_call_has_side_effect:bool=65 delta:int64=66 indices_are_sorted:bool=67
        frontend_attributes:FrontendAttributes=68 unique_indices:bool=69 rng_algorithm:RandomAlgorithm=70
        use_global_device_ids:bool=71 comparison_type:string=72 output_operand_aliasing:*OutputOperandAliasing=74
        padding_type:PaddingType=75 custom_call_schedule:CustomCallSchedule=76
        custom_call_api_version:CustomCallApiVersion=77 async_execution_thread:string=79
        cross_program_prefetch_index:?int32=80 k:int64=81
        statistics_viz:StatisticsViz=82 largest:bool=85 collective_device_list:CollectiveDeviceList=87
        original_value:OriginalValue=88 is_composite:bool=89 ragged_dot_dimension_numbers:RaggedDotDimensionNumbers=90
        result_accuracy:ResultAccuracy=91 iota_collective_device_list:IotaReplicaGroupList=92
        mesh_axes_replica_group_list:MeshAxesReplicaGroupList=93 is_reverse:bool=94
        num_carries:int64=95 is_associative:TriState=96 conv_kind:ConvolutionKind=97
        has_dynamic_root:bool=100 comparison_order:string=102
        shuffle_mode:ShuffleMode=103""",
    "Computation": """name:string=1 instructions:*Instruction=2 program_shape:ProgramShape=4 id:int64=5
        root_id:int64=6 is_fusion_computation:bool=7 execution_thread:string=8 backend_config:bytes=9""",
    "InstructionSequence": "instruction_ids:*int64=1",
    "ScheduleEntry": "key:int64=1 value:InstructionSequence=2",
    "Schedule": "sequences:*ScheduleEntry=1",
    "AliasEntry": """output_shape_index:*int64=1 parameter_number:int64=2 parameter_shape_index:*int64=3
        kind:AliasKind=4""",
    "InputOutputAlias": "entries:*AliasEntry=1",
    "BufferDonorEntry": "parameter_number:int64=1 parameter_shape_index:*int64=2",
    "BufferDonor": "entries:*BufferDonorEntry=1",
    "FileLocation": """file_name_id:int32=1 function_name_id:int32=2 line:int32=3 column:int32=4 end_line:int32=5
        end_column:int32=6""",
    "StackFrame": "file_location_id:int32=1 parent_frame_id:int32=2",
    "StackFrameIndex": """file_names:*string=1 function_names:*string=2 file_locations:*FileLocation=3
        stack_frames:*StackFrame=4""",
    "Module": """name:string=1 entry_computation_name:string=2 computations:*Computation=3
        host_program_shape:ProgramShape=4 id:int64=5 entry_computation_id:int64=6 schedule:Schedule=7
        input_output_alias:InputOutputAlias=8 is_dynamic:bool=11 stack_frame_index:StackFrameIndex=17
        buffer_donor:BufferDonor=18 frontend_attributes:FrontendAttributes=19
        payloads:*bytes=22 debug_attributes:*DebugAttributeEntry=24 backend_config:bytes=25""",
    "HloProto": "hlo_module:Module=1",
    "HloSnapshot": "hlo:HloProto=1 arguments:*Literal=2 result:Literal=3 execution_platform:string=4",
    "LiteralDescriptor": "version:int32=1 argument_size_bytes:uint64=2",
    "HloInputs": "arguments:*Literal=1 arguments_descriptors:*LiteralDescriptor=2",
    "HloUnoptimizedSnapshot": "hlo_module:Module=1 partitions:*HloInputs=2",
    "ComputationDevice": "replica_device_ids:*int64=1",
    "DeviceAssignment": "replica_count:int32=1 computation_count:int32=2 computation_devices:*ComputationDevice=3",
    "DebugOptions": """xla_disable_hlo_passes:*string=30 xla_backend_optimization_level:int32=31
        xla_gpu_cuda_data_dir:string=61 xla_llvm_disable_expensive_passes:bool=73 xla_test_all_input_layouts:bool=91
        xla_cpu_enable_fast_math:bool=99 xla_gpu_enable_fast_min_max:bool=100
        xla_force_host_platform_device_count:int32=102 xla_dump_to:string=109 xla_dump_hlo_module_re:string=110
        xla_dump_hlo_pass_re:string=111 xla_dump_hlo_as_text:bool=112 xla_dump_hlo_as_proto:bool=113
        xla_dump_hlo_as_dot:bool=114 xla_dump_hlo_as_url:bool=115 xla_dump_hlo_as_html:bool=116
        xla_dump_hlo_snapshots:bool=118 xla_cpu_fast_math_honor_nans:bool=120 xla_cpu_fast_math_honor_infs:bool=121
        xla_enable_hlo_passes_only:*string=124 xla_cpu_fast_math_honor_division:bool=126
        xla_cpu_fast_math_honor_functions:bool=129 xla_dump_max_hlo_modules:int32=132
        xla_cpu_enable_xprof_traceme:bool=137 xla_dump_module_metadata:bool=144 xla_dump_fusion_visualization:bool=149
        xla_dump_compress_protos:bool=151 xla_dump_disable_metadata:bool=153 xla_dump_hlo_pipeline_re:string=154
        xla_dump_hlo_as_long_text:bool=164 xla_gpu_dump_autotune_results_to:string=222
        xla_gpu_load_autotune_results_from:string=223 xla_detailed_logging:bool=252 xla_enable_dumping:bool=253
        xla_gpu_enable_llvm_module_compilation_parallelism:bool=268 xla_gpu_dump_autotune_logs_to:string=292
        xla_gpu_kernel_cache_file:string=306 xla_gpu_per_fusion_autotune_cache_dir:string=310
        xla_gpu_experimental_autotune_cache_mode:int32=324""",
    "ExecutableBuildOptions": """device_ordinal:int64=1 result_layout:Shape=2 debug_options:DebugOptions=3
        num_replicas:int64=4 num_partitions:int64=5 use_spmd_partitioning:bool=6 use_auto_spmd_partitioning:bool=7
        device_assignment:DeviceAssignment=9 allow_spmd_sharding_propagation_to_output:*bool=12 fdo_profile:bytes=14
        auto_spmd_partitioning_mesh_shape:*int64=16 auto_spmd_partitioning_mesh_ids:*int64=17
        allow_spmd_sharding_propagation_to_parameters:*bool=18 use_shardy_partitioner:bool=19
        exec_time_optimization_effort:float=20 memory_fitting_effort:float=21""",
    "OptionOverride": "string_field:?string=1 bool_field:?bool=2 int_field:?int64=3 double_field:?double=4",
    "OptionOverrideEntry": "key:string=1 value:OptionOverride=2",
    "CompileOptions": """argument_layouts:*Shape=1 parameter_is_tupled_arguments:bool=2
        executable_build_options:ExecutableBuildOptions=3 compile_portable_executable:bool=4 profile_version:int64=5
        env_option_overrides:*OptionOverrideEntry=7""",
}


# values of an enumeration as NAME=number, or with the numbers 0, 1, ...; open, as proto3's are: others are read, too
_ENUMS: dict[str, str] = {
    "PrimitiveType": """PRIMITIVE_TYPE_INVALID=0 PRED=1 S1=30 S2=26 S4=21 S8=2 S16=3 S32=4 S64=5 U1=31 U2=27 U4=22 U8=6
        U16=7 U32=8 U64=9 F16=10 F32=11 BF16=16 F64=12 F8E5M2=19 F8E4M3=28 F8E4M3FN=20 F8E4M3B11FNUZ=23 F8E3M4=29
        F8E5M2FNUZ=24 F8E4M3FNUZ=25 F4E2M1FN=32 F8E8M0FNU=33 F6E3M2FN=35 F6E2M3FN=36 C64=15 C128=18 TUPLE=13
        OPAQUE_TYPE=14 TOKEN=17 BUFFER=34""",
    "ProfileType": "INVALID WINDOW FLAG INTEGER",
    "ShardingType": "REPLICATED MAXIMAL TUPLE OTHER MANUAL UNKNOWN UNREDUCED",
    "ShardGroupType": "AS LIKE",
    "AccuracyMode": "DEFAULT HIGHEST",
    "RandomDistribution": "RNG_INVALID RNG_UNIFORM RNG_NORMAL",
    "RandomAlgorithm": "RNG_DEFAULT RNG_THREE_FRY RNG_PHILOX",
    "FftType": "FFT IFFT RFFT IRFFT",
    "Transpose": "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT",
    "PaddingType": "PADDING_INVALID PADDING_VALID PADDING_SAME",
    "CustomCallSchedule": "SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST",
    "CustomCallApiVersion": """API_VERSION_UNSPECIFIED API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING
        API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI""",
    "TriState": "TRI_STATE_UNSPECIFIED TRI_STATE_TRUE TRI_STATE_FALSE",
    "ConvolutionKind": """CONVOLUTION_KIND_UNSET CONVOLUTION_KIND_FPROP CONVOLUTION_KIND_DGRAD
        CONVOLUTION_KIND_WGRAD""",
    "DimLevelType": "DIM_DENSE DIM_COMPRESSED DIM_SINGLETON DIM_LOOSE_COMPRESSED",
    "AliasKind": "UNDEFINED_ALIAS MAY_ALIAS MUST_ALIAS",
    "Precision": "DEFAULT HIGH HIGHEST PACKED_NIBBLE",
    "Algorithm": """ALG_UNSET ALG_DOT_ANY_F8_ANY_F8_F32 ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM ALG_DOT_F16_F16_F16
        ALG_DOT_F16_F16_F32 ALG_DOT_BF16_BF16_BF16 ALG_DOT_BF16_BF16_F32 ALG_DOT_BF16_BF16_F32_X3
        ALG_DOT_BF16_BF16_F32_X6 ALG_DOT_TF32_TF32_F32 ALG_DOT_TF32_TF32_F32_X3 ALG_DOT_F32_F32_F32
        ALG_DOT_F64_F64_F64 ALG_DOT_BF16_BF16_F32_X9 ALG_DOT_BF16_BF16_FP8X3 ALG_DOT_BF16_BF16_FP8X4""",
}


@cache
def message_class(name: str) -> Any:
    """The protobuf class of a message of the table. UnsupportedError where protobuf is not installed."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    return classes_of(MESSAGES)


def classes_of(messages: dict[str, str]) -> dict[str, Any]:
    """The protobuf classes of a table of messages. UnsupportedError where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise UnsupportedError("HloModuleProto needs the package protobuf: pip install 'hlokit[proto]'") from error
    file = descriptor_pb2.FileDescriptorProto(name="hlokit/hlo.proto", package="hlokit", syntax="proto3")
    for name, values in _ENUMS.items():
        # each in a message, since names of values are unique where their enumeration stands
        enum = file.message_type.add(name=f"{name}Values").enum_type.add(name=name)
        for position, value in enumerate(values.split()):
            value_name, _, number = value.partition("=")
            enum.value.add(name=value_name, number=int(number or position))
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            _add_field(message, messages, *_parsed(field))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindFileByName(file.name)
    return {name: message_factory.GetMessageClass(descriptor.message_types_by_name[name]) for name in messages}


def _parsed(field: str) -> tuple[str, str, int]:
    name, rest = field.split(":")
    type_name, number = rest.split("=")
    return name, type_name, int(number)


def _add_field(message: Any, messages: dict[str, str], name: str, type_name: str, number: int) -> None:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if type_name[0] == "*" else field.LABEL_OPTIONAL
    if type_name[0] == "?":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    bare = type_name.lstrip("*?")
    if bare in messages:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".hlokit.{bare}"
    elif bare in _ENUMS:
        field.type = field.TYPE_ENUM
        field.type_name = f".hlokit.{bare}Values.{bare}"
    else:
        field.type = getattr(field, f"TYPE_{bare.upper()}")
