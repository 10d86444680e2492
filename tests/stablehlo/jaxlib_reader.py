"""Reads StableHLO texts with jaxlib: a JSON list [id, text, inputs] a line in, one [id, answer] a line out.

The answer is {"proto": the HloModuleProto in base64} or {"error": text}; where inputs are given (files of arrays, see
tests/fuzz/jaxlib_values.py), the program runs on XLA:CPU and its results go to the file named by "results".
Runs in an interpreter that has jax and jaxlib 0.10.2 and imports nothing of hlokit.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any


def main() -> None:
    from jaxlib import _jax  # type: ignore[import-not-found]

    device: list[Any] = []
    for line in sys.stdin:
        name, text, files = json.loads(line)
        print(json.dumps(["begin", name]), flush=True)
        try:
            computation = _jax.mlir.mlir_module_to_xla_computation(text)
            proto = base64.b64encode(computation.as_serialized_hlo_module_proto()).decode()
            answer = {"proto": proto}
            if files:
                _run(device, text, *files)
        except Exception as error:
            answer = {"error": (str(error).strip() or type(error).__name__)[:600]}
        print(json.dumps([name, answer]), flush=True)


def _run(device: list[Any], text: str, source: str, target: str) -> None:
    """Runs the text itself, as JAX would."""
    from tests.fuzz import jaxlib_runner  # sets XLA_FLAGS before jax is imported

    import jax  # isort: skip
    from jaxlib import xla_client  # isort: skip

    if not device:
        device += [jax.devices()[0].client, xla_client.DeviceList(tuple(jax.local_devices()[:1]))]
    client, devices = device
    executable = client.compile_and_load(text.encode(), devices, xla_client.CompileOptions())
    results = executable.execute_sharded([jax.device_put(a) for a in jaxlib_runner.read(source)])
    parts = results.disassemble_into_single_device_arrays()
    jaxlib_runner.write(target, [jaxlib_runner.np.asarray(part[0]) for part in parts])


if __name__ == "__main__":
    main()
