"""A C function, made by ctypes, as the target of a custom call: void f(void* out, void** in)."""

import ctypes

from harness import S, built, np, o, ran, record, xc

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


@SIGNATURE
def weighted_sum(out, operands):
    x, y = (np.ctypeslib.as_array(ctypes.cast(operands[i], ctypes.POINTER(ctypes.c_float)), (4,)) for i in (0, 1))
    np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), (4,))[:] = x + 10 * y


@SIGNATURE
def both(out, operands):
    x = np.ctypeslib.as_array(ctypes.cast(operands[0], ctypes.POINTER(ctypes.c_float)), (4,))
    parts = ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))
    np.ctypeslib.as_array(ctypes.cast(parts[0], ctypes.POINTER(ctypes.c_float)), (4,))[:] = -x
    np.ctypeslib.as_array(ctypes.cast(parts[1], ctypes.POINTER(ctypes.c_int32)), (1,))[0] = 7


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAME = b"xla._CUSTOM_CALL_TARGET"
for name, function in {b"weighted_sum": weighted_sum, b"both": both}.items():
    capsule = new_capsule(ctypes.cast(function, ctypes.c_void_p).value, NAME, None)
    xc.register_custom_call_target(name, capsule, platform="cpu")

F = S("f32[4]")
X = np.arange(4, dtype=np.float32)
program = built(lambda b, x: o.Neg(o.CustomCall(b, b"weighted_sum", [x, o.Add(x, x)], F)), F)
record("weighted sum", ran(program, X)[0])
pair = S.tuple_shape([F, S("s32[]")])
program = built(lambda b, x: o.CustomCallWithLayout(b, b"both", [x], pair, [F]), F)
for i, value in enumerate(ran(program, X)):
    record(f"both {i}", value)
