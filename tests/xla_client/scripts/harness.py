"""What the scripts here share. Usage: python SCRIPT.py MODULE OUTPUT.npz, where MODULE is jaxlib.xla_client or hlokit's.

A script builds and runs programs with `xc`, the module named, and calls `record`; at its end all records are saved.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_enable_fast_math=false --xla_allow_excess_precision=false")

import numpy as np

xc = importlib.import_module(sys.argv[1])
o = xc.ops
S = xc.Shape
records = {}


def record(name, value):
    """Keeps an array, or anything else by its repr (text as it is)."""
    assert name not in records, name
    if not isinstance(value, (np.ndarray, np.generic)):
        value = np.array(value if isinstance(value, str) else repr(value))
    if value.dtype.kind == "V":  # bfloat16 and its like cannot be saved
        value = value.astype(np.float32)
    records[name] = value


def built(function, *shapes, root=None):
    """The computation that function(builder, *parameters) builds."""
    builder = xc.XlaBuilder(getattr(function, "__name__", "f").strip("<>"))
    parameters = [o.Parameter(builder, i, shape) for i, shape in enumerate(shapes)]
    function(builder, *parameters)
    return builder.build(root)


def named(names):
    """(name, op function) for each of the names."""
    return [(name, getattr(o, name)) for name in names.split()]


def scalar_computation(function, dtype=np.float32, count=2):
    """A computation of scalars, for reductions and the like."""
    shape = S.scalar_shape(np.dtype(dtype))
    return built(lambda _, *parameters: function(*parameters), *[shape] * count)


def compiled(computation, options=None):
    module = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    return client.compile(module, options or xc.CompileOptions())


def ran(computation, *arguments):
    """The results, as arrays."""
    return xc.execute_with_python_values(compiled(computation), arguments, client)


def evaluated(function, *arguments):
    """The results of the program that function(builder, *parameters) builds."""
    return ran(built(function, *map(xc.shape_from_pyval, arguments)), *arguments)


def _prepare_jaxlib():
    """JAX does this when it is imported; without it jaxlib 0.4.30 cannot make a buffer."""
    jit = xc._xla.jax_jit
    jit.set_thread_local_state_initialization_callback(lambda: None)
    state = jit.global_state()
    state.enable_memories = state.disable_jit = state.enable_x64 = False


if xc.__name__.startswith("jaxlib"):
    _prepare_jaxlib()
client = xc.make_cpu_client()
atexit.register(lambda: np.savez_compressed(sys.argv[2], **records))
