"""Each function of `ops`, at least once: the shape it gives, and its value where one CPU can run it."""

from harness import S, built, named, np, o, ran, record, scalar_computation, xc

X = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
Y = np.array([[0.5, -1.25, 2.0], [3.0, 0.75, -0.5]], np.float32)
N = np.array([[7, -3, 12], [1, 0, -8]], np.int32)
J = np.array([[2, 2, 5], [3, 1, 3]], np.int32)
C = (X + 1j * Y).astype(np.complex64)
A = np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]], np.float32)
KEY = np.array([3, 5], np.uint64)
F32 = xc.PrimitiveType.F32
add = scalar_computation(o.Add)
ge = scalar_computation(o.Ge)
covered = set()


def case(name, *inputs, run=True, label=None):
    """Registers and runs a program: function(builder, *parameters) whose last op (or what it returns) is the result."""

    def go(function):
        builder = xc.XlaBuilder(name)
        parameters = [o.Parameter(builder, i, xc.shape_from_pyval(v)) for i, v in enumerate(inputs)]
        result = function(builder, *parameters)
        root = o.Tuple(builder, result) if isinstance(result, (tuple, list)) else result
        computation = builder.build(root)
        covered.add(name)
        key = label or name
        record(
            f"{key}: shape",
            repr(computation.program_shape().result_shape().with_major_to_minor_layout_if_absent()).replace(
                "{0,1}", "{1,0}"
            ),
        )
        if run:
            for i, value in enumerate(ran(computation, *inputs)):
                record(f"{key}: result {i}", value)

    return go


for (
    unary,
    f,
) in named("""Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Cbrt Ceil Cos Cosh Digamma Erf ErfInv Erfc Exp Expm1
    Floor IsFinite Lgamma Log Log1p Neg OptimizationBarrier Reciprocal Round Rsqrt Sign Sin Sinh Sqrt Square Tan
    Tanh"""):
    case(unary, X + 1 if unary == "Acosh" else X)(lambda b, x, f=f: f(x))
for unary, f in named("Clz PopulationCount Not"):
    case(unary, N)(lambda b, x, f=f: f(x))
for unary, f in named("Conj Real Imag"):
    case(unary, C)(lambda b, x, f=f: f(x))
for binary, f in named("Add Atan2 Complex Div Eq Ge Gt Le Lt Max Min Mul Ne Pow Rem Sub"):
    case(binary, X, Y)(lambda b, x, y, f=f: f(x, y))
for binary, f in named("And Or Xor ShiftLeft ShiftRightArithmetic ShiftRightLogical"):
    case(binary, N, J)(lambda b, x, y, f=f: f(x, y))
case("Add", X, X[0], label="Add in dimension 1")(lambda b, x, y: o.Add(x, y, (1,)))
case("Add", X, X[:, 0], label="Add by keyword")(lambda b, x, y: o.Add(rhs=y, lhs=x, broadcast_dimensions=[0]))
for special, f in named("Igamma Igammac IgammaGradA RandomGammaGrad"):
    case(special, X + 1, X)(lambda b, x, y, f=f: f(x, y))
case("Zeta", X + 1.5, X)(lambda b, x, q: o.Zeta(x, q))
case("NextAfter", X, Y)(lambda b, x, y: o.NextAfter(x, y))
case("RegularizedIncompleteBeta", X + 1, X + 2, X)(lambda b, x, y, z: o.RegularizedIncompleteBeta(x, y, z))
case("Select", X > 0.5, X, Y)(lambda b, p, x, y: o.Select(p, x, y))
case("Clamp", X, Y, X + 1)(lambda b, x, y, z: o.Clamp(min=x, operand=y, max=z))
case("ConvertElementType", Y)(lambda b, x: o.ConvertElementType(x, xc.PrimitiveType.S32))
case("BitcastConvertType", Y)(lambda b, x: o.BitcastConvertType(x, new_element_type=xc.PrimitiveType.U32))
case("ReducePrecision", Y / 3)(lambda b, x: o.ReducePrecision(x, exponent_bits=5, mantissa_bits=4))

# values without operands
case("Parameter", X)(lambda b, x: x)
case("Constant")(lambda b: o.Constant(b, np.arange(6, dtype=np.int16).reshape(2, 3)))
case("Constant", label="Constant of a number")(lambda b: o.Constant(b, 2.5))
case("Constant", label="Constant of a list")(lambda b: o.Constant(b, [1, 2, 3]))
case("ConstantLiteral")(lambda b: o.ConstantLiteral(b, np.float64(7)))
case("Iota")(lambda b: o.Iota(b, S.array_shape(np.dtype(np.int32), (2, 3)), 1))
case("Iota", label="Iota of a size")(lambda b: o.Iota(b, F32, 5))
case("ReplicaId")(lambda b: o.ReplicaId(b))
case("CreateToken", run=False)(lambda b: o.CreateToken(b))
case("AfterAll", run=False)(lambda b: o.AfterAll(b, [o.CreateToken(b)]))

# moving data
case("Broadcast", X)(lambda b, x: o.Broadcast(x, (2,)))
case("BroadcastInDim", X)(lambda b, x: o.BroadcastInDim(x, (2, 4, 3), (0, 2)))
case("Reshape", X)(lambda b, x: o.Reshape(x, (3, 2)))
case("Reshape", X, label="Reshape of a transpose")(lambda b, x: o.Reshape(x, dimensions=(1, 0), new_sizes=(6,)))
case("Collapse", X)(lambda b, x: o.Collapse(x, (0, 1)))
case("Transpose", X)(lambda b, x: o.Transpose(x, (1, 0)))
case("Rev", X)(lambda b, x: o.Rev(x, (1,)))
case("ConcatInDim", X, Y)(lambda b, x, y: o.ConcatInDim(b, [x, y], 1))
case("Pad", X)(lambda b, x: o.Pad(x, o.Constant(b, np.float32(9)), xc.make_padding_config([(1, -1, 0), (0, 2, 1)])))
case("Slice", X)(lambda b, x: o.Slice(x, (0, 1), (2, 3), (1, 1)))
case("SliceInDim", X)(lambda b, x: o.SliceInDim(x, 0, 3, 2, 1))
case("DynamicSlice", X)(lambda b, x: o.DynamicSlice(x, [o.Constant(b, np.int32(1))] * 2, (1, 2)))
case("DynamicUpdateSlice", X, Y[:1, :2])(lambda b, x, u: o.DynamicUpdateSlice(x, u, [o.Constant(b, np.int32(1))] * 2))


def gather_numbers():
    numbers = xc.GatherDimensionNumbers()
    numbers.offset_dims.append(1)
    numbers.collapsed_slice_dims.append(0)
    numbers.start_index_map.append(0)
    numbers.index_vector_dim = 1
    return numbers


def scatter_numbers():
    numbers = xc.ScatterDimensionNumbers()
    numbers.update_window_dims.append(1)
    numbers.inserted_window_dims.append(0)
    numbers.scatter_dims_to_operand_dims.append(0)
    numbers.index_vector_dim = 1
    return numbers


ROWS = np.array([[1], [0], [1]], np.int32)
U = np.ones((3, 3), np.float32)
add2 = built(lambda b, p, q, r, s: o.Tuple(b, [o.Add(p, r), o.Add(q, s)]), *[S("f32[]")] * 4)
case("Gather", X, ROWS)(lambda b, x, i: o.Gather(x, i, gather_numbers(), (1, 3)))
case("Scatter", X, ROWS, U)(lambda b, x, i, u: o.Scatter(x, i, u, add, scatter_numbers(), unique_indices=False))
case("Scatter", X, Y, ROWS, U, label="Scatter of two")(
    lambda b, x, y, i, u: o.Scatter([x, y], i, [u, u], add2, scatter_numbers())
)

# dynamic sizes
case("GetDimensionSize", X)(lambda b, x: o.GetDimensionSize(x, 1))
case("SetDimensionSize", X)(
    lambda b, x: o.Reduce(
        b, [o.SetDimensionSize(x, o.Constant(b, np.int32(2)), 1)], [o.Constant(b, np.float32(0))], add, (0, 1)
    )
)
case("RemoveDynamicDimension", X, run=False)(
    lambda b, x: o.RemoveDynamicDimension(o.SetDimensionSize(x, o.Constant(b, np.int32(3)), 1), 1)
)
case("DynamicReshape", X, run=False)(
    lambda b, x: o.DynamicReshape(x, [o.Constant(b, np.int32(3)), o.Constant(b, np.int32(2))], (3, 2), [True, False])
)

# folding
ZERO = np.float32(0)
WINDOW = ((2, 2), (1, 1), (1, 1), (1, 1), ((0, 1), (0, 0)))
case("Reduce", X)(lambda b, x: o.Reduce(b, [x], [o.Constant(b, ZERO)], add, (1,)))
case("Reduce", X, Y, label="Reduce of two")(lambda b, x, y: o.Reduce(b, [x, y], [o.Constant(b, ZERO)] * 2, add2, (1,)))
case("ReduceWindowWithGeneralPadding", X)(
    lambda b, x: o.ReduceWindowWithGeneralPadding(x, o.Constant(b, ZERO), add, *WINDOW)
)
case("ReduceWindowWithGeneralPadding", X, Y, label="ReduceWindow of two")(
    lambda b, x, y: o.ReduceWindowWithGeneralPadding([x, y], [o.Constant(b, ZERO)] * 2, add2, *WINDOW)
)
case("SelectAndScatterWithGeneralPadding", X, Y[:1, :2])(
    lambda b, x, s: o.SelectAndScatterWithGeneralPadding(
        x, ge, (2, 2), (1, 1), ((0, 0), (0, 0)), s, o.Constant(b, ZERO), add
    )
)
case("Map", X, Y)(lambda b, x, y: o.Map(b, [x, y], add, (0, 1)))
precision = xc.PrecisionConfig()
precision.operand_precision.extend([xc.PrecisionConfig.Precision.HIGHEST] * 2)
case("Dot", X, A)(lambda b, x, y: o.Dot(x, y, precision_config=precision))
case("DotGeneral", X, Y)(
    lambda b, x, y: o.DotGeneral(
        x, y, xc.make_dot_dimension_numbers((([1], [1]), ([0], [0]))), None, xc.PrimitiveType.F64
    ),
)
case("ConvGeneralDilated", X.reshape(1, 1, 2, 3), Y.reshape(1, 1, 2, 3)[..., :2])(
    lambda b, x, k: o.ConvGeneralDilated(
        x, k, (1, 1), ((1, 0), (0, 1)), (2, 1), (1, 2), xc.make_convolution_dimension_numbers(None, 2)
    )
)

# sorting, linear algebra, random numbers
case("Sort", Y)(lambda b, x: o.Sort(b, [x]))
lt_first = built(lambda b, p, q, r, s: o.Gt(p, q), S("f32[]"), S("f32[]"), S("s32[]"), S("s32[]"))
case("Sort", Y, N, label="Sort of two")(
    lambda b, x, y: o.Sort(b, [x, y], comparator=lt_first, dimension=0, is_stable=True)
)
case("TopK", Y)(lambda b, x: o.TopK(x, 2))
LINE = np.arange(20, dtype=np.float32)[::-1].copy().reshape(2, 10)
for top, f in named("ApproxTopK ApproxTopKFallback"):
    case(top, LINE, np.arange(20, dtype=np.int32).reshape(2, 10), run=top != "ApproxTopK")(
        lambda b, x, i, f=f: f(
            b, [x, i], [o.Constant(b, np.float32(-np.inf)), o.Constant(b, np.int32(-1))], 3, 1, lt_first
        )
    )
record(
    "ApproxTopKReductionOutputSize",
    [o.ApproxTopKReductionOutputSize(100000, 1, 10, 0.95, False), o.ApproxTopKReductionOutputSize(64, 2, 8, 0.9)],
)
covered.add("ApproxTopKReductionOutputSize")
case("Fft", C)(lambda b, x: o.Fft(x, xc.FftType.FFT, (3,)))
case("Fft", X, label="Fft of reals")(lambda b, x: o.Fft(x, fft_type=xc.FftType.RFFT, fft_length=[3]))
case("Cholesky", A)(lambda b, a: o.Cholesky(a))
case("Cholesky", A, label="Cholesky, upper")(lambda b, a: o.Cholesky(a, lower=False))
NO = o.TriangularSolveOptions_Transpose.NO_TRANSPOSE
case("TriangularSolve", A, A)(lambda b, x, y: o.TriangularSolve(x, y, True, True, False, NO))
case("LU", A, run=False)(lambda b, a: o.LU(a))


def product(x, y):
    return o.Dot(x, y)


@case("QR", A)
def _(b, a):
    q, r = o.QR(a, True)
    return product(q, r)


@case("QrDecomposition", A)
def _(b, a):
    packed, taus = o.QrDecomposition(a)
    q = o.ProductOfElementaryHouseholderReflectors(packed, taus)
    return product(o.Transpose(q, (1, 0)), q)


covered.add("ProductOfElementaryHouseholderReflectors")


@case("Eigh", A)
def _(b, a):
    vectors, values = o.Eigh(a, lower=True, max_iter=30, epsilon=1e-7)
    return values, product(o.Mul(vectors, values, (1,)), o.Transpose(vectors, (1, 0)))


@case("SVD", A)
def _(b, a):
    u, d, v = o.SVD(a, max_iter=100, epsilon=1e-6)
    return d, product(o.Mul(u, d, (1,)), o.Transpose(v, (1, 0)))


ONE = np.float32(1)
case("RngNormal")(lambda b: o.IsFinite(o.RngNormal(o.Constant(b, ZERO), o.Constant(b, ONE), S("f32[5]"))))
case("RngUniform")(
    lambda b: o.Lt(o.RngUniform(o.Constant(b, ZERO), o.Constant(b, ONE), S("f32[5]")), o.Constant(b, ONE), ())
)
for algorithm in (o.RandomAlgorithm.RNG_THREE_FRY, o.RandomAlgorithm.RNG_PHILOX):
    case("RngBitGenerator", KEY, label=f"RngBitGenerator {algorithm.name}")(
        lambda b, key, a=algorithm: o.RngBitGenerator(a, key, S("u32[7]"))
    )

# control flow
case("Tuple", X, Y)(lambda b, x, y: o.Tuple(b, (x, y)))
case("GetTupleElement", X, Y)(lambda b, x, y: o.GetTupleElement(o.Tuple(b, [x, y]), 1))
neg = built(lambda b, x: o.Neg(x), S("f32[2,3]"))
exp = built(lambda b, x: o.Exp(x), S("f32[2,3]"))
case("Call", X)(lambda b, x: o.Call(b, neg, [x]))
case("Conditional", np.bool_(False), X)(lambda b, p, x: o.Conditional(p, x, neg, x, exp))
case("Conditional", np.int32(1), X, label="Conditional by index")(lambda b, i, x: o.Conditional(i, [neg, exp], [x, x]))
below = built(lambda b, x: o.Lt(x, o.Constant(b, np.float32(10))), S("f32[]"))
double = built(lambda b, x: o.Add(x, x), S("f32[]"))
case("While", ONE)(lambda b, x: o.While(below, double, x))

# custom calls: only built here
F = S("f32[2,3]")
INDEX = xc.ShapeIndex([])
case("CustomCall", X, run=False)(lambda b, x: o.CustomCall(b, b"target", [x], F, opaque=b"words"))
case("CustomCallWithLayout", X, run=False)(lambda b, x: o.CustomCallWithLayout(b, b"target", [x], F, [F], b"", True))
case("CustomCallWithAliasing", X, run=False)(
    lambda b, x: o.CustomCallWithAliasing(
        b,
        call_target_name=b"target",
        operands=[x],
        shape_with_layout=F,
        operand_shapes_with_layout=[F],
        output_operand_aliasing=[(INDEX, (0, INDEX))],
        schedule=o.CustomCallSchedule.SCHEDULE_LATEST,
    )
)
case("CustomCallWithComputation", X, run=False)(
    lambda b, x: o.CustomCallWithComputation(b, b"target", [x], neg, F, b"", False, [])
)

# collectives and communication
GROUPS = xc.make_replica_groups([[0]])
case("AllGather", X)(lambda b, x: o.AllGather(x, 0, 1, GROUPS))
case("AllReduce", X)(lambda b, x: o.AllReduce(x, add, GROUPS))
case("AllToAll", X)(lambda b, x: o.AllToAll(x, 0, 1, 1, GROUPS))
case("CollectivePermute", X)(lambda b, x: o.CollectivePermute(x, [(0, 0)]))
case("CrossReplicaSum", X)(lambda b, x: o.CrossReplicaSum(x, GROUPS))
case("ReduceScatter", X)(lambda b, x: o.ReduceScatter(x, add, 0, 1, GROUPS))
case("InfeedWithToken", run=False)(lambda b: o.InfeedWithToken(o.CreateToken(b), F))
case("OutfeedWithToken", X, run=False)(lambda b, x: o.OutfeedWithToken(x, o.CreateToken(b), F))


if not xc.__name__.startswith("jaxlib"):  # jaxlib 0.4.30 can make no xla::ChannelHandle, so nobody can call these
    send, receive = (xc.ChannelHandle(n, type) for n, type in ((1, 2), (2, 3)))
    built(lambda b, x: o.SendToHost(x, o.CreateToken(b), F, send), F)
    built(lambda b: o.RecvFromHost(o.CreateToken(b), F, receive))
covered |= {"SendToHost", "RecvFromHost"}
record("number of functions", len(covered))
