"""A process that runs programs on a PJRT client of jaxlib, for whoever started it: for each a line of JSON in, one out.

python jaxlib_worker.py PLATFORM MEMORY: "cpu" or the name of a plugin, and the bytes of address space (0: any). Any
Python that has jax and jaxlib runs this file: it imports nothing of hlokit. The first line out says that it is ready.
"""

# pyright: basic, reportPrivateImportUsage=false, reportArgumentType=false

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors, such as flags that XLA does not know
os.environ["JAX_PLATFORMS"] = sys.argv[1]
os.environ["HLOKIT_AS_CPU"] = "0"

import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

try:
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    hlo_module_from_text: Any = _hlo.hlo_module_from_text
except ImportError:  # of another version
    hlo_module_from_text = getattr(xla_client._xla, "hlo_module_from_text", None)

_TYPES = {
    "pred": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip

_LACKS = ("UNIMPLEMENTED", "Unknown opcode", "unregistered operation", "does not support", "Unsupported")
"""Parts of messages by which XLA says that it lacks something."""


def dtype_of(name: str) -> np.dtype:
    """The NumPy type of an element type of HLO."""
    if name in _TYPES:
        return np.dtype(_TYPES[name])
    if name[0] in "su" and name[1:].isdigit():
        word = {"s": "int", "u": "uint"}[name[0]] + name[1:]
        return np.dtype(getattr(np, word, None) or getattr(ml_dtypes, word))
    return np.dtype(getattr(ml_dtypes, "float" + name[1:].replace("e", "_e", 1)))


def read(path: str, shapes: list) -> list:
    """The arguments, of the types that the program's parameters have."""
    with np.load(path) as stored:
        found = []
        for number, (name, sizes) in enumerate(shapes):
            array, wanted = stored[f"in{number}"], dtype_of(name)
            array = array if array.dtype == wanted else array.view(wanted)
            found.append(np.ascontiguousarray(array.reshape(sizes)))
        return found


def storable(array: np.ndarray) -> np.ndarray:
    """The array, as unsigned integers where NumPy's files cannot hold its type."""
    known = hasattr(np, array.dtype.name)
    return array if known else array.view(f"uint{array.dtype.itemsize * 8}")


def compiled(client: Any, devices: Any, program: str) -> Any:
    """The executable of a program."""
    with open(program, "rb") as file:
        portable = xla_client._xla.mlir.hlo_to_stablehlo(file.read())
    return client.compile_and_load(portable, devices, xla_client.CompileOptions())


def times(client: Any, devices: Any, program: str, arguments: list, warm_up: int, repeat: int) -> list:
    """Seconds of calls, each until its results are there."""
    executable = compiled(client, devices, program)
    given = jax.block_until_ready([jax.device_put(a) for a in arguments])
    found = []
    for number in range(warm_up + repeat):
        start = time.perf_counter()
        parts = executable.execute_sharded(given).disassemble_into_single_device_arrays()
        jax.block_until_ready([part[0] for part in parts])
        if number >= warm_up:
            found.append(time.perf_counter() - start)
    return found


def run(client: Any, devices: Any, program: str, arguments: list) -> list:
    """The arrays of the result."""
    executable = compiled(client, devices, program)
    results = executable.execute_sharded([jax.device_put(a) for a in arguments])
    return [np.asarray(part[0]) for part in results.disassemble_into_single_device_arrays()]


def reprinted(client: Any, devices: Any, text: str) -> str:
    """The text of the program that XLA reads in a text; compiling it finds what its parser does not look at."""
    if hlo_module_from_text is None:
        raise NotImplementedError("UNIMPLEMENTED: this jaxlib reads no HLO text")
    module = hlo_module_from_text(text)
    portable = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    client.compile_and_load(portable, devices, xla_client.CompileOptions())
    return module.to_string()


def _initialize_lapack() -> None:
    """Loads LAPACK, which JAX does when it lowers a function that needs it: without, its custom calls jump to null."""
    try:
        from jaxlib.cpu import _lapack

        _lapack.initialize()
    except (ImportError, AttributeError):
        pass


def main() -> None:
    """Answers ["ok" | "error" | "unsupported", message] for each [program, arguments, place of the result, shapes]; of
    a place that is [calls that do not count, calls that do], with the times as the message. A job without arguments
    asks for the text of the program in a file of HLO text."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if int(sys.argv[2]) and sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
    jax.config.update("jax_enable_x64", True)
    _initialize_lapack()
    client = jax.devices()[0].client
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    print(json.dumps(["ok", ""]), file=answers, flush=True)
    for line in sys.stdin:
        program, arguments, target, shapes = json.loads(line)
        try:
            given = read(arguments, shapes) if arguments else []
            if not arguments:
                with open(program, encoding="utf-8") as file:
                    printed = reprinted(client, devices, file.read())
                with open(target, "w", encoding="utf-8") as file:
                    file.write(printed)
                answer = ["ok", ""]
            elif isinstance(target, list):
                answer = ["ok", times(client, devices, program, given, *target)]
            else:
                leaves = run(client, devices, program, given)
                with open(target, "wb") as file:
                    np.savez(file, **{f"out{i}": storable(leaf) for i, leaf in enumerate(leaves)})
                answer = ["ok", ""]
        except Exception as error:  # whatever a client raises is its answer
            text = f"{type(error).__name__}: {str(error)[:2000]}"
            answer = ["unsupported" if any(word in text for word in _LACKS) else "error", text]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
