"""Shapes and the other records: what they print, how they compare, their bytes."""

from harness import S, built, np, o, record, xc

F32, f4 = xc.PrimitiveType.F32, np.dtype(np.float32)


def show(text):
    """Records what an expression gives, or what kind of error it raises."""
    try:
        record(text, eval(text))
    except Exception as error:
        status = str(error).split(":")[0] if isinstance(error, RuntimeError) else ""
        record(text, f"{type(error).__name__} {status}")


scalar, plain, laid = S.scalar_shape(f4), S.array_shape(f4, (2, 3)), S("f32[2,3]{0,1}")
pair = S.tuple_shape([plain, S.tuple_shape([scalar, S.token_shape()])])
dynamic = S.array_shape(F32, (2, 3), (1, 0), [True, False])
changed = S("f32[2,3]")
changed.set_dynamic_dimension(1, True)
for name in ("scalar", "plain", "laid", "pair", "dynamic", "changed"):
    for method in (
        "dimensions",
        "rank",
        "is_array",
        "is_tuple",
        "is_token",
        "is_static",
        "is_dynamic",
        "leaf_count",
        "tuple_shapes",
        "numpy_dtype",
        "element_type",
        "with_major_to_minor_layout_if_absent",
        "to_serialized_proto",
    ):
        show(f"{name}.{method}()")
    show(f"repr({name})")
    show(f"{name}.xla_element_type().name")
for text in (
    "S('bad')", "S('f32[2')", "S('(f32[2], s32[])')", "S('f32[<=2,?]')", "S('bf16[2]{0:T(128)}')", "S('pred[]')", "S.tuple_shape(())",
    "S('(f32[2],f32[2],f32[2],f32[2],f32[2],f32[2])')", "plain == S('f32[2,3]')", "S('f32[2,3]') == S('f32[2,3]{1,0}')",
    "laid == S('f32[2,3]')", "laid != S('f32[2,3]')", "hash(laid) == hash(S('f32[2,3]{0,1}'))", "plain == 3",
    "dynamic.is_dynamic_dimension(0)", "laid.layout().minor_to_major()", "laid.layout().to_string()", "S.array_shape('f4', (2,))",
    "S.array_shape(np.float32, (2,))", "S.scalar_shape(F32)", "S.array_shape(np.dtype('U3'), (2,))",
    "xc.Layout((1, 0)).minor_to_major()", "xc.Layout((1, 0)) == xc.Layout((1, 0))", "xc.Layout((1, 0)) == xc.Layout((0, 1))",
    "xc.ShapeIndex([1, 2])", "xc.ShapeIndex([]) == xc.ShapeIndex([])", "hash(xc.ShapeIndex([1])) == hash(xc.ShapeIndex([1]))",
    "xc.ProgramShape([plain, laid], scalar)", "xc.ProgramShape([plain], scalar).parameter_shapes()",
    "xc.ProgramShape([plain], laid).result_shape()",
    "xc.shape_from_pyval(np.zeros((2, 3)))", "xc.shape_from_pyval((np.zeros(2), np.int8(1)))", "xc.shape_from_pyval(np.zeros((2, 3)), (0, 1))",
    "xc.shape_from_pyval((np.zeros(2),), (0,))",
    "xc.dtype_to_etype('float32').name", "xc.dtype_to_etype(xc.bfloat16).name", "xc.dtype_to_etype('U3')",
    "[int(t) for t in (F32, xc.PrimitiveType.S4, xc.PrimitiveType.TOKEN)]", "xc.PrimitiveType(16).name", "F32 == 11",
    "xc.PrimitiveType.F32.value", "[(t.name, t.value) for t in (xc.FftType.FFT, xc.FftType.IRFFT)]",
    "xc.PrecisionConfig.Precision.HIGHEST.value", "o.RandomAlgorithm.RNG_PHILOX.value", "o.CustomCallSchedule.SCHEDULE_LATEST.name",
    "o.TriangularSolveOptions_Transpose.ADJOINT.value", "o.CustomCallApiVersion.API_VERSION_ORIGINAL.value",
    "[(int(a), int(b)) for a, b in xc.window_padding_type_to_pad_values('SAME', (7, 8), (3, 2), (2, 1))]",
    "xc.window_padding_type_to_pad_values(xc.PaddingType.VALID, (7, 8), (3, 2), (2, 1))",
    "xc.window_padding_type_to_pad_values('odd', (7,), (3,), (2,))", "xc.window_padding_type_to_pad_values(3, (7,), (3,), (2,))",
    "[group.replica_ids for group in xc.make_replica_groups([[0, 1], [2]])]", "xc.make_replica_groups(None)",
    "xc.DeviceAssignment.create(np.array([[0, 1], [2, 300]])).serialize()", "xc.DeviceAssignment.create(np.array([[0, 1]], np.int32)).computation_count()",
    "repr(xc.DeviceAssignment.create(np.array([[0, 1]], np.int32)))", "xc.CompileOptions().num_replicas",
    "setattr(xc.CompileOptions(), 'other', 1)", "setattr(xc.CompileOptions(), 'num_replicas', 'x')",
    "xc.CompileOptions().executable_build_options.debug_options.xla_backend_optimization_level",
    "xc.XLA_ELEMENT_TYPE_TO_DTYPE[xc.PrimitiveType.TUPLE]", "str(xc.DTYPE_TO_XLA_ELEMENT_TYPE['bool'].name)",
    "xc.CurrentSourceInfoMetadata('a', 'b').op_name", "xc.OpMetadata().source_line", "xc.XlaBuilder()",
):  # fmt: skip
    show(text)

numbers = xc.make_convolution_dimension_numbers(("NHWC", "HWIO", "CNHW"), 2)
fields = [
    f"{side}_{role}"
    for side in ("input", "output")
    for role in ("batch_dimension", "feature_dimension", "spatial_dimensions")
]
fields += ["kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions"]
record("convolution numbers", {name: getattr(numbers, name) for name in fields})
numbers = xc.make_convolution_dimension_numbers(None, 1)
record("default convolution numbers", {name: getattr(numbers, name) for name in fields})
dot = xc.make_dot_dimension_numbers((([1], [0]), ([2], [2])))
record(
    "dot numbers",
    [
        dot.lhs_contracting_dimensions,
        dot.rhs_contracting_dimensions,
        dot.lhs_batch_dimensions,
        dot.rhs_batch_dimensions,
    ],
)
padding = xc.make_padding_config([(1, 2, 3)])
record("padding", [(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in padding.dimensions])
record("padding is kept", xc.make_padding_config(padding) is padding)


def options(preset):
    return {
        name: getattr(preset, name)
        for name in sorted(dir(preset))
        if name.startswith(("print_", "canonicalize_", "include_", "indent_", "compact_"))
    }


H = xc._xla.HloPrintOptions
presets = {
    "default": H(),
    "short_parsable": H.short_parsable(),
    "canonical": H.canonical(),
    "fingerprint": H.fingerprint(),
}
for name, preset in presets.items():
    record(f"print options {name}", options(preset))
computation = built(lambda b, x: o.Neg(x), S("f32[2]"))
record("signature", computation.program_shape().result_shape())
record("equal hashes", computation.hash() == xc.XlaComputation(computation.as_serialized_hlo_module_proto()).hash())
record("dot graph", computation.as_hlo_dot_graph().startswith("digraph "))
