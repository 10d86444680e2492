"""Portable artifacts (versioned StableHLO in MLIR bytecode), and MLIR bytecode of StableHLO itself, to an HloModule."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.errors import ParseError
from hlokit.hlo.module import HloModule
from hlokit.stablehlo.artifact.container import read_container
from hlokit.stablehlo.artifact.dialects import ATTRIBUTES, TYPES
from hlokit.stablehlo.artifact.entries import Entries, Positions
from hlokit.stablehlo.artifact.operations import OperationReader
from hlokit.stablehlo.lowering import lowered
from hlokit.stablehlo.parser import program_of
from hlokit.stablehlo.tree import Program
from hlokit.types.shape import Shape


def parse_artifact(
    data: bytes, arguments: Sequence[Shape] | None = None, keeps_regions: bool = False, entry: str | None = None
) -> HloModule:
    """The module that the bytes of an artifact say, for arguments of these shapes if it leaves sizes open.

    keeps_regions, entry   see parse_stablehlo

    Raises ParseError, with the number of a byte, for what is not an artifact; UnsupportedError, with the byte and the
    operation, attribute or type, for what is legal and not supported.
    """
    positions = Positions()
    return lowered(read_program(data, positions), positions, arguments, keeps_regions, entry)


def read_program(data: bytes, positions: Positions) -> Program:
    """The tree of an artifact's operations."""
    try:
        container = read_container(data)
        reader = OperationReader(container, Entries(container, ATTRIBUTES, TYPES))
        module = reader.module(container.operations)
    except IndexError:
        raise ParseError(f"byte {len(data)}: the artifact ends too early") from None
    return program_of(module, positions)
