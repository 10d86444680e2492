"""hlo_module_cost_analysis of one-op programs: flops, transcendentals, bytes accessed."""

from harness import S, built, client, named, np, o, record, scalar_computation, xc

F, N = S("f32[4,6]"), S("s32[4,6]")
add, ge = scalar_computation(o.Add), scalar_computation(o.Ge)
ROWS = S("s32[3,1]")


def zero(b):
    return o.Constant(b, np.float32(0))


def index(b):
    return [o.Constant(b, np.int32(0))] * 2


def cost(name, function, *shapes):
    text = built(function, *shapes).get_hlo_module().to_string()  # read again, so that every shape has a layout
    found = xc._xla.hlo_module_cost_analysis(client, xc._xla.hlo_module_from_text(text))
    record(name, {key: found.get(key, 0.0) for key in ("flops", "transcendentals", "bytes accessed")})


for unary, f in named("Exp Tanh Sqrt Rsqrt Cbrt Cos Sin Tan Log Log1p Expm1 Abs Floor Sign IsFinite Neg"):
    cost(unary, lambda b, x, f=f: f(x), F)
for binary, f in named("Add Mul Div Pow Atan2 Max Eq Complex"):
    cost(binary, lambda b, x, f=f: f(x, x), F)
cost("Add of integers", lambda b, x: o.Add(x, x), N)
cost("And of predicates", lambda b, x: o.And(x, x), S("pred[7]"))
cost("Div of complex", lambda b, x: o.Div(x, x), S("c64[4]"))
cost("Clamp", lambda b, x: o.Clamp(x, x, x), F)
cost("Select", lambda b, x: o.Select(o.Eq(x, x), x, x), F)
cost("Convert", lambda b, x: o.ConvertElementType(x, xc.PrimitiveType.F64), F)
cost("Broadcast", lambda b, x: o.Broadcast(x, (3,)), F)
cost("Reshape", lambda b, x: o.Reshape(x, (6, 4)), F)
cost("Transpose", lambda b, x: o.Transpose(x, (1, 0)), F)
cost("Slice", lambda b, x: o.Slice(x, (0, 0), (2, 2), (1, 1)), F)
cost("Pad", lambda b, x: o.Pad(x, zero(b), xc.make_padding_config([(1, 1, 0), (0, 0, 0)])), F)
cost("Concat", lambda b, x: o.ConcatInDim(b, [x, x], 0), F)
cost("Rev", lambda b, x: o.Rev(x, (0,)), F)
cost("Iota", lambda b: o.Iota(b, F, 0))
cost("Constant", lambda b: o.Constant(b, np.arange(5.0)))
cost("DynamicSlice", lambda b, x: o.DynamicSlice(x, index(b), (2, 2)), F)
cost("DynamicUpdateSlice", lambda b, x, u: o.DynamicUpdateSlice(x, u, index(b)), F, S("f32[2,2]"))
gather = xc.GatherDimensionNumbers()
gather.offset_dims, gather.collapsed_slice_dims, gather.start_index_map, gather.index_vector_dim = [1], [0], [0], 1
cost("Gather", lambda b, x, i: o.Gather(x, i, gather, (1, 6)), F, ROWS)
scatter = xc.ScatterDimensionNumbers()
scatter.update_window_dims, scatter.inserted_window_dims = [1], [0]
scatter.scatter_dims_to_operand_dims, scatter.index_vector_dim = [0], 1
cost("Scatter", lambda b, x, i, u: o.Scatter(x, i, u, add, scatter), F, ROWS, S("f32[3,6]"))
cost("Reduce", lambda b, x: o.Reduce(b, [x], [zero(b)], add, [0]), F)
cost("Reduce all", lambda b, x: o.Reduce(b, [x], [zero(b)], add, [0, 1]), F)
for padding in (0, 1):
    window = ((2, 2), (1 + padding, 1), (), (), ((padding, padding), (0, 0)))
    cost(f"ReduceWindow {padding}", lambda b, x, w=window: o.ReduceWindowWithGeneralPadding(x, zero(b), add, *w), F)
pooling = ((2, 2), (2, 2), ((0, 0), (0, 0)))
cost(
    "SelectAndScatter",
    lambda b, x, y: o.SelectAndScatterWithGeneralPadding(x, ge, *pooling, y, zero(b), add),
    F,
    S("f32[2,3]"),
)
cost("Map", lambda b, x: o.Map(b, [x, x], add, (0, 1)), F)
cost("Dot", lambda b, x, y: o.Dot(x, y), F, S("f32[6,5]"))
batch = xc.make_dot_dimension_numbers((([2], [1]), ([0], [0])))
cost("DotGeneral", lambda b, x, y: o.DotGeneral(x, y, batch), S("f32[3,4,6]"), S("f32[3,6,5]"))
numbers = xc.make_convolution_dimension_numbers(None, 2)
for name, lhs, rhs, arguments in (
    ("valid", "f32[2,3,8,8]", "f32[5,3,3,3]", ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), numbers)),
    ("same", "f32[2,3,8,8]", "f32[5,3,3,3]", ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), numbers)),
    ("strided", "f32[2,3,8,8]", "f32[5,3,3,3]", ((2, 2), ((1, 1), (1, 1)), (1, 1), (1, 1), numbers)),
    ("lhs dilated", "f32[2,3,8,8]", "f32[5,3,3,3]", ((1, 1), ((1, 1), (1, 1)), (2, 2), (1, 1), numbers)),
    ("rhs dilated", "f32[2,3,8,8]", "f32[5,3,3,3]", ((1, 1), ((1, 1), (1, 1)), (1, 1), (2, 2), numbers)),
    ("feature groups", "f32[2,3,8,8]", "f32[6,1,3,3]", ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), numbers, 3)),
    ("batch groups", "f32[4,3,8,8]", "f32[6,3,3,3]", ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), numbers, 1, 2)),
):
    cost(f"convolution, {name}", lambda b, x, y, a=arguments: o.ConvGeneralDilated(x, y, *a), S(lhs), S(rhs))
cost("Sort", lambda b, x: o.Sort(b, [x]), F)
cost("Fft", lambda b, x: o.Fft(x, xc.FftType.FFT, [8]), S("c64[3,8]"))
cost("Cholesky", lambda b, x: o.Cholesky(x), S("f32[5,5]"))
NO = o.TriangularSolveOptions_Transpose.NO_TRANSPOSE
cost("TriangularSolve", lambda b, x, y: o.TriangularSolve(x, y, True, True, False, NO), S("f32[5,5]"), S("f32[5,3]"))
cost("RngUniform", lambda b: o.RngUniform(zero(b), zero(b), F))
state = S("(s32[], f32[4,6])")
condition = built(lambda b, t: o.Lt(o.GetTupleElement(t, 0), o.GetTupleElement(t, 0)), state)


def more(b, t):
    value = o.GetTupleElement(t, 1)
    o.Tuple(b, [o.GetTupleElement(t, 0), o.Add(value, o.Exp(value))])


loop = built(more, state)
cost("While", lambda b, x: o.While(condition, loop, o.Tuple(b, [o.Constant(b, np.int32(0)), x])), F)
neg, exp = built(lambda b, x: o.Neg(x), F), built(lambda b, x: o.Exp(o.Exp(x)), F)
cost("Conditional", lambda b, x: o.Conditional(o.Constant(b, np.bool_(True)), x, neg, x, exp), F)
cost("Call", lambda b, x: o.Call(b, exp, [x]), F)
cost("Tuple", lambda b, x: o.GetTupleElement(o.Tuple(b, [x, x]), 0), F)
cost("AllReduce", lambda b, x: o.AllReduce(x, add), F)
cost("GetDimensionSize", lambda b, x: o.GetDimensionSize(x, 0), F)
cost("an unused parameter", lambda b, x, y: o.Neg(x), F, F)
cost("a dead op", lambda b, x: (o.Exp(x), o.Neg(x)), F)
