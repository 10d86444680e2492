"""Runs HLO on XLA:CPU: one JSON line [name, HloModuleProto, file of arguments, file for results] in, one line out.

The child process of outside.py, for an interpreter with jax and jaxlib 0.10. Imports nothing of hlokit.
"""

import base64
import json
import os
import sys

os.environ["XLA_FLAGS"] = " ".join(
    (
        "--xla_cpu_enable_fast_math=false --xla_allow_excess_precision=false --xla_cpu_multi_thread_eigen=false",
        os.environ.get("FUZZ_XLA_FLAGS", ""),
    )
)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "9"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

jax.config.update("jax_enable_x64", True)


def dtype_of(name):
    return np.dtype(getattr(np, name) if hasattr(np, name) else getattr(ml_dtypes, name))


def read(path):
    """Arrays stored as bytes, with names of element types: npz knows only NumPy's own."""
    with np.load(path) as stored:
        names = json.loads(str(stored["names"]))
        return [
            np.frombuffer(stored[f"a{i}"].tobytes(), dtype_of(name)).reshape(shape)
            for i, (name, shape) in enumerate(names)
        ]


def write(path, arrays):
    names = [(a.dtype.name, a.shape) for a in arrays]
    raw = {f"a{i}": np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8) for i, a in enumerate(arrays)}
    np.savez(path, names=json.dumps(names), **raw)


def run(client, devices, proto, arguments):
    portable = xla_client._xla.mlir.hlo_to_stablehlo(base64.b64decode(proto))
    executable = client.compile_and_load(portable, devices, xla_client.CompileOptions())
    results = executable.execute_sharded([jax.device_put(a) for a in arguments])
    return [np.asarray(part[0]) for part in results.disassemble_into_single_device_arrays()]


def main():
    client = jax.devices()[0].client
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    for line in sys.stdin:
        name, proto, source, target = json.loads(line)
        print(json.dumps(["begin", name]), flush=True)
        try:
            write(target, run(client, devices, proto, read(source)))
            answer = None
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error)[:500]}"
        print(json.dumps(["end", answer]), flush=True)


if __name__ == "__main__":
    main()
