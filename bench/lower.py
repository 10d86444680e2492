"""Writes every program's lowered HLO text to tests/data/bench, where tests compile it without JAX.

python -m bench.lower [--only REGEX] [--check]
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
from pathlib import Path
from typing import Any

from bench.programs import Program, select

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # JAX is the witness here, on any machine
FOLDER = Path(__file__).parent.parent / "tests" / "data" / "bench"


def jitted(program: Program) -> Any:
    """The program under jax.jit. Unused arguments stay, so that every framework is called with the same ones."""
    import jax

    jax.config.update("jax_enable_x64", program.x64)
    return jax.jit(program.function, donate_argnums=program.donate, keep_unused=True)


def hlo_text(lowered: Any) -> str:
    """The HLO of what jitted(program).lower(...) gave: whole constants, no metadata, no source lines."""
    text = lowered.as_text("hlo")
    if "metadata={" in text or "constant({...})" in text:
        raise AssertionError("the lowered text holds metadata or leaves constants out")
    return text


def lowered_text(program: Program) -> str:
    import jax

    specs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in program.draw()]
    return hlo_text(jitted(program).lower(*specs))


def stored_text(name: str) -> str:
    """The text stored for the program of this name."""
    return gzip.decompress((FOLDER / f"{name}.hlo.gz").read_bytes()).decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", help="programs whose name holds this")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stored text differs")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    programs = select(options.only)
    changed = 0
    for program in programs:
        path = FOLDER / f"{program.name}.hlo.gz"
        text = lowered_text(program)
        if path.exists() and stored_text(program.name) == text:
            continue
        changed += 1
        print(program.name)
        if not options.check:
            path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(programs)} programs, {changed} changed", file=sys.stderr)
    return int(options.check and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
