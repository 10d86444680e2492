"""hlokit: XLA in Python."""

from hlokit import ops as _ops  # noqa: F401
