"""Wrong programs: which call raises, and what kind of error with which status."""

from harness import S, client, compiled, np, o, record, scalar_computation, xc

F = S("f32[2,3]")


def attempt(name, function):
    try:
        function()
        record(name, "accepted")
    except Exception as error:
        record(name, f"{type(error).__name__}: {str(error).split(':')[0] if isinstance(error, RuntimeError) else ''}")


def refused(name, function):
    """The op itself returns; get_shape of its result, every build and every later op's shape raise."""
    builder = xc.XlaBuilder("wrong")
    x = o.Parameter(builder, 0, F)
    results = []
    attempt(f"{name}: op", lambda: results.append(function(builder, x)))
    result = results[0] if results and not isinstance(results[0], tuple) else x
    attempt(f"{name}: shape of a good op", lambda: builder.get_shape(x))
    attempt(f"{name}: shape", lambda: builder.get_shape(result))
    attempt(f"{name}: op on it", lambda: o.Neg(result))
    attempt(f"{name}: build", lambda: builder.build(x))  # once: jaxlib crashes when a builder builds twice


refused("permutation", lambda b, x: o.Transpose(x, (0, 0)))
refused("ranks", lambda b, x: o.Add(x, o.Iota(b, xc.PrimitiveType.F32, 4)))
refused("types", lambda b, x: o.Add(x, o.Constant(b, np.int32(1))))
refused("not a tuple", lambda b, x: o.GetTupleElement(x, 0))
refused("not square", lambda b, x: o.Eigh(x))
refused("parameter taken", lambda b, x: o.Parameter(b, 0, F))
refused("slice", lambda b, x: o.Slice(x, (0, 0), (9, 3), (1, 1)))
refused("reducer", lambda b, x: o.Reduce(b, [x], [o.Constant(b, np.int32(0))], scalar_computation(o.Add), [0]))
refused("number for op", lambda b, x: o.Add(x, 3.0))
refused("NumPy type", lambda b, x: o.ConvertElementType(x, np.dtype(np.float64)))
refused("name as text", lambda b, x: o.CustomCall(b, "name", [x], F))
refused("missing argument", lambda b, x: o.Add(x))
refused("unknown argument", lambda b, x: o.Add(x, x, dimensions=()))
refused("positional only", lambda b, x: o.Neg(arg=x))
refused("no list", lambda b, x: o.Transpose(x, 1))
refused("floats for ints", lambda b, x: o.Transpose(x, (1.0, 0.0)))
refused("strings", lambda b, x: o.Constant(b, "text"))
refused("a good one", lambda b, x: o.Neg(x))


def other_builder(b, x):
    return o.Add(x, o.Parameter(xc.XlaBuilder("other"), 0, F))


refused("other builder", other_builder)

good = xc.XlaBuilder("good")
x = o.Parameter(good, 0, F)
executable = compiled(good.build(o.Neg(x)))
buffer = client.buffer_from_pyval(np.ones((2, 3), np.float32))
attempt("too few arguments", lambda: executable.execute([]))
attempt("too many arguments", lambda: executable.execute([buffer, buffer]))
attempt("arrays for buffers", lambda: executable.execute([np.ones((2, 3), np.float32)]))
attempt("wrong type", lambda: executable.execute([client.buffer_from_pyval(np.ones((2, 3)))]))
attempt("list for a buffer", lambda: client.buffer_from_pyval([1, 2]))
attempt("strings for a buffer", lambda: client.buffer_from_pyval(np.array(["a"])))
attempt("hlo text", lambda: xc._xla.hlo_module_from_text("HloModule m\nENTRY e { ROOT p = f32[2 parameter(0) }"))
attempt("no device", lambda: client.device_from_local_hardware_id(3))
attempt("compile of a number", lambda: client.compile(3))
results = executable.execute_sharded([[buffer]])
results.disassemble_into_single_device_arrays()
attempt("taken apart twice", results.disassemble_into_single_device_arrays)
aliased = xc.XlaBuilder("aliased")
o.Neg(o.Parameter(aliased, 0, F))
aliased.setup_alias([], 5, [])
attempt("alias", aliased.build)
record("XlaRuntimeError", issubclass(xc.XlaRuntimeError, RuntimeError))
