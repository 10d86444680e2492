"""Whole programs: a two-layer perceptron, loops, a convolution net, a sort with keys, an alias, a rebuilt proto."""

from harness import S, built, client, compiled, evaluated, np, o, ran, record, scalar_computation, xc

rng = np.random.RandomState(0)
add, maximum, ge = scalar_computation(o.Add), scalar_computation(o.Max), scalar_computation(o.Ge)


def perceptron(b, x, w1, b1, w2, b2):
    zero = o.Constant(b, np.float32(0))
    hidden = o.Max(o.Add(o.Dot(x, w1), b1, (1,)), zero)
    scores = o.Add(o.Dot(hidden, w2), b2, (1,))
    low = o.Constant(b, np.float32(-np.inf))
    shifted = o.Exp(o.Sub(scores, o.Reduce(b, [scores], [low], maximum, [1]), (0,)))
    o.Div(shifted, o.Reduce(b, [shifted], [zero], add, [1]), (0,))


shapes = [(8, 5), (5, 16), (16,), (16, 3), (3,)]
record("perceptron", evaluated(perceptron, *(rng.randn(*s).astype(np.float32) for s in shapes))[0])

# Fibonacci numbers by a while loop that writes into an array
state = S.tuple_shape([S("s32[]"), S("s32[]"), S("s32[]"), S("s32[20]")])


def more(b, s):
    o.Lt(o.GetTupleElement(s, 0), o.Constant(b, np.int32(20)))


def step(b, s):
    i, first, second, all_ = (o.GetTupleElement(s, k) for k in range(4))
    written = o.DynamicUpdateSlice(all_, o.Reshape(first, (1,)), [i])
    o.Tuple(b, [o.Add(i, o.Constant(b, np.int32(1))), second, o.Add(first, second), written])


def fibonacci(b):
    zero, one = o.Constant(b, np.int32(0)), o.Constant(b, np.int32(1))
    o.While(built(more, state), built(step, state), o.Tuple(b, [zero, zero, one, o.Broadcast(zero, (20,))]))


for i, value in enumerate(evaluated(fibonacci)):
    record(f"fibonacci {i}", value)


def cumulative_sum(b, x):
    window = ((16,), (1,), (), (), ((15, 0),))
    o.ReduceWindowWithGeneralPadding(x, o.Constant(b, np.float32(0)), add, *window)


record("cumulative sum", evaluated(cumulative_sum, np.arange(16, dtype=np.float32))[0])


def network(b, image, kernel):
    numbers = xc.make_convolution_dimension_numbers(("NHWC", "HWIO", "NHWC"), 2)
    padding = xc.window_padding_type_to_pad_values("same", (7, 6), (3, 3), (2, 1))
    features = o.ConvGeneralDilated(image, kernel, (2, 1), padding, (1, 1), (1, 1), numbers, feature_group_count=2)
    low = o.Constant(b, np.float32(-np.inf))
    sizes, ones = (1, 2, 2, 1), (1, 1, 1, 1)
    o.ReduceWindowWithGeneralPadding(features, low, maximum, sizes, sizes, ones, ones, [(0, 0)] * 4)


image, kernel = rng.randn(2, 7, 6, 4).astype(np.float32), rng.randn(3, 3, 2, 6).astype(np.float32)
record("network", evaluated(network, image, kernel)[0])


def by_key(b, key, value):
    less = built(lambda _, p, q, r, s: o.Lt(p, q), S("s32[]"), S("s32[]"), S("f32[]"), S("f32[]"))
    o.Sort(b, [key, value], less, dimension=0, is_stable=True)


keys, values = evaluated(by_key, rng.randint(0, 5, 40).astype(np.int32), np.arange(40, dtype=np.float32))
record("sorted keys", keys)
record("sorted values", values)


def squares(b, x):
    y = o.ConvertElementType(x, xc.PrimitiveType.BF16)
    o.ConvertElementType(o.Mul(y, y), xc.PrimitiveType.F32)


record("bfloat16", evaluated(squares, np.array([1.5, 3.0, 0.25], np.float32))[0])

# a computation that went through bytes does the same
X = rng.randn(3, 3).astype(np.float32)
original = built(lambda b, x: o.Reduce(b, [o.Dot(x, x)], [o.Constant(b, np.float32(1))], add, [0, 1]), S("f32[3,3]"))
again = xc.XlaComputation(original.as_serialized_hlo_module_proto())
record("before", ran(original, X)[0])
record("after", ran(again, X)[0])
module = xc._xla.hlo_module_from_text(original.get_hlo_module().to_string())
record("from text", ran(xc.XlaComputation(module.as_serialized_hlo_module_proto()), X)[0])
copy = xc._xla.HloModule.from_serialized_hlo_module_proto(module.as_serialized_hlo_module_proto())
record("computations", len(copy.computations()))
record("same text", copy.to_string() == module.to_string())

# executables
executable = compiled(original)
buffer = client.buffer_from_pyval(X)
record("execute", np.asarray(executable.execute([buffer])[0]))
results = executable.execute_sharded([[buffer]])
record("execute_sharded", np.asarray(results.disassemble_into_single_device_arrays()[0][0]))
results = executable.execute_sharded([buffer])
record("handlers", results.consume_with_handlers([lambda buffers: len(buffers)]))
record("on local devices", np.asarray(executable.execute_sharded_on_local_devices([[buffer]])[0][0]))
record("replicated", xc.execute_with_python_values_replicated(executable, [(X,)], client)[0][0])
outputs, token = executable.execute_with_token([buffer])
token.block_until_ready()
record("with token", np.asarray(outputs[0]))
record("modules", len(executable.hlo_modules()))
record("devices", (client.device_count(), client.local_devices(), str(client.devices()[0]), client.platform))
record("buffer", (buffer.platform(), buffer.is_deleted(), buffer.is_ready(), buffer.block_until_ready() is buffer))
buffer.delete()
record("deleted", buffer.is_deleted())
for name, value in {"int": 3, "float": 2.5, "bool": True, "scalar": np.float32(1)}.items():
    record(f"buffer of {name}", np.asarray(client.buffer_from_pyval(value)))

# what sticks to ops
builder = xc.XlaBuilder("marked")
x = o.Parameter(builder, 0, S("f32[4]"), "x")
builder.set_op_metadata(xc.OpMetadata("kind", "name", "file.py", 7))
o.Neg(x)
builder.clear_op_metadata()
sharding = xc.OpSharding()
sharding.type = xc.OpSharding.Type.OTHER
sharding.tile_assignment_dimensions = [2]
sharding.tile_assignment_devices = [0, 1]
builder.set_sharding(sharding)
o.Exp(x)
builder.clear_sharding()
attributes = xc._xla.FrontendAttributes()
attributes["key"] = "value"
builder.set_frontend_attributes(attributes)
o.Sin(x)
builder.clear_frontend_attributes()
root = o.Cos(x)
builder.setup_alias([], 0, [])
text = builder.build(root).get_hlo_module().to_string()
marks = [
    "metadata={",
    'op_type="kind"',
    "source_line=7",
    "sharding={devices=[2]0,1}",
    'frontend_attributes={key="value"}',
]
record("marks", [text.count(mark) for mark in [*marks, "input_output_alias={ {}: (0, {}, may-alias) }"]])
record("sharding proto", sharding.SerializeToString())
clone = sharding.clone()
clone.ParseFromString(sharding.SerializeToString())
record("sharding", (clone.type.name, clone.tile_assignment_devices))
