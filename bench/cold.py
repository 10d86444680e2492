"""Cold start: from the first import to the first result, in fresh processes, the frameworks taking turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile

from bench.process import ROOT, environment

TEXT = """HloModule first
ENTRY main {
  x = f32[128] parameter(0)
  y = f32[128] parameter(1)
  product = f32[128] multiply(x, y)
  ROOT result = f32[128] tanh(product)
}
"""

HLOKIT = f"""
import numpy as np, hlokit as hk
executable = hk.compile(hk.parse('''{TEXT}'''))
result = executable(np.ones(128, np.float32), np.ones(128, np.float32))
"""

PROGRAMS = {
    "xla": """
import numpy as np, jax
result = jax.jit(lambda x, y: jax.numpy.tanh(x * y))(np.ones(128, np.float32), np.ones(128, np.float32))
result.block_until_ready()
""",
    "hlokit": HLOKIT,
    "hlokit-cached": HLOKIT,  # the object cache holds the program
}

TIMED = """
import time
start = time.perf_counter()
{program}
print(time.perf_counter() - start)
"""


def cold_start(kinds: list[str], rounds: int) -> dict[str, float | str]:
    """Milliseconds by kind, the median of `rounds` processes each; what went wrong where something did."""
    times: dict[str, list[float]] = {kind: [] for kind in PROGRAMS if kind.split("-")[0] in kinds}
    errors: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(rounds + 1):  # the first fills the page cache, the object cache and __pycache__
            for kind in [kind for kind in times if kind not in errors]:
                variables = environment(kind) | ({"HLOKIT_CACHE_DIR": cache} if kind == "hlokit-cached" else {})
                variables.pop("PYTHONDONTWRITEBYTECODE", None)  # as pip installs it, byte code is there
                done = subprocess.run(
                    [sys.executable, "-c", TIMED.format(program=PROGRAMS[kind])],
                    capture_output=True, text=True, env=variables, cwd=ROOT, timeout=60,
                )  # fmt: skip
                if done.returncode:
                    errors[kind] = (done.stderr.strip() or f"code {done.returncode}").splitlines()[-1]
                elif number:
                    times[kind].append(float(done.stdout) * 1e3)
    medians: dict[str, float | str] = {kind: statistics.median(values) for kind, values in times.items() if values}
    return medians | errors
