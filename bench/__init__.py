"""The benchmark: hlokit against XLA:CPU, NumPy and torch on the same programs, in one interleaved run."""
