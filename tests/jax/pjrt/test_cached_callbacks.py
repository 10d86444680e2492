"""JAX's compilation cache and programs that call Python functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlokit.errors import UnsupportedError
from tests.jax.pjrt.harness import python

_CODE = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
name, folder = sys.argv[1:]
jax.config.update("jax_compilation_cache_dir", folder)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
LIKE = jax.ShapeDtypeStruct((2,), np.float32)
functions = {"add": lambda a: np.asarray(a) + 1, "mul": lambda a: np.asarray(a) * 10}

def program(x):  # the same text for either function
    return jax.pure_callback(functions[name], LIKE, x) * 1.0

print(jax.jit(program)(np.full(2, 3, np.float32)), jax.jit(jnp.sin)(np.zeros(2, np.float32)))
files = [file for file in os.listdir(folder) if file.endswith("-cache")]
print(sum("jit_sin" in file for file in files), sum("jit_program" in file for file in files))
"""


def test_another_process_calls_its_own_function(tmp_path: Path) -> None:
    added, multiplied = (python("-c", _CODE, name, str(tmp_path)) for name in ("add", "mul"))
    assert added.stdout.splitlines() == ["[4. 4.] [0. 0.]", "1 0"], added.stderr
    assert multiplied.stdout.splitlines() == ["[30. 30.] [0. 0.]", "1 0"], multiplied.stderr
    assert "Error writing" not in added.stderr


_TEXT = b"""module @m { func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32,
    mhlo.backend_config = {index = 0 : ui64}} : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32> } }"""


def test_serialized_callbacks_are_refused() -> None:
    from hlokit.interop.pjrt.programs import Program, deserialized

    with pytest.raises(UnsupportedError, match="calls Python functions"):
        Program(_TEXT, b"").serialized()
    written = Program(_TEXT.replace(b"xla_ffi_python_cpu_callback", b"annotate_device_placement"), b"")
    forged = written.serialized()
    code = written.code
    forged = forged.replace(code, _TEXT).replace(b'"code": %d' % len(code), b'"code": %d' % len(_TEXT))
    with pytest.raises(UnsupportedError, match="functions of the process that serialized it"):
        deserialized(forged, b"")
