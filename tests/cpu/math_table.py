"""Prints the error bounds with what was measured, for the docs: `python -m tests.cpu.math_table`."""

from __future__ import annotations

from hlokit.cpu.math.bounds import BOUNDS
from hlokit.types.dtype import f32
from tests.cpu.accuracy import arguments, computed, errors_in_ulp


def main() -> None:
    print("| function | type | bound, ULP | largest error | arguments |\n|---|---|---|---|---|")
    for (name, dtype), bound in BOUNDS.items():
        operands = arguments(name, dtype, 400_000 if dtype is f32 else 3000)
        errors = errors_in_ulp(name, dtype, operands, computed(name, dtype, operands, 16))
        print(f"| {name} | {dtype} | {bound} | {errors.max():.3f} | {len(errors):,} |")


if __name__ == "__main__":
    main()
