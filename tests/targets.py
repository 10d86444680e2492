"""The targets that this machine can run, and tests of machine code on each: python -m tests.targets [PYTEST ARGUMENTS].

Prints a line for each target; exit status 1 if a test fails on one of them. `--list`: names them only.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from hlokit.cpu.target import baseline, parse, this_machine

_AVX = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx"


def targets() -> dict[str, str]:
    """By name, as `hlokit.cpu.target.parse` reads them: those whose instructions this machine has, the host last."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return {"host": "host"}
    wide = "x86-64-avx512"
    # by vdpbf16ps where the CPU is one for which it is the faster way
    bf16 = f"{replace(baseline(wide), cpu='znver4')},+avx512vnni,+avx512bf16"
    known = {
        "SSE2": "x86-64",
        "AVX": f"x86-64,{_AVX}",
        "AVX2": "x86-64-avx2",
        "AVX-512": wide,
        "AVX-512 VNNI": f"{wide},+avx512vnni",
        "AVX-512 BF16": bf16,
        "AVX-512 FP16": f"{wide},+avx512vnni,+avx512fp16",
        "AMX": f"{wide},+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16",
    }
    return {name: text for name, text in known.items() if not this_machine().lacks(parse(text))} | {"host": "host"}


def main(arguments: Sequence[str]) -> int:
    if "--list" in arguments:
        print("\n".join(f"{name}: {text}" for name, text in targets().items()))
        return 0
    failed = 0
    for name, text in targets().items():
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", *(arguments or ["tests/cpu"])]
        done = subprocess.run(
            command, env={**os.environ, "HLOKIT_TARGET": text}, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            failed += 1
            print(done.stdout)
        print(f"{name}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
