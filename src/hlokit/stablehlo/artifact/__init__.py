"""Portable artifacts of StableHLO: VHLO in MLIR bytecode."""

from hlokit.stablehlo.artifact.reader import parse_artifact

__all__ = ["parse_artifact"]
