"""The recorded JAX programs from their StableHLO text: the outputs that XLA gave."""

from __future__ import annotations

import pytest

from tests.golden.programs import BUNDLED, check_program, program_names, read_program

_COMPILED = ("mlp_forward", "top_p_sampling", "kalman_filter")


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_program(name: str) -> None:
    check_program(read_program(BUNDLED, name, stablehlo=True))


@pytest.mark.parametrize("name", _COMPILED)
def test_program_compiled(name: str) -> None:
    check_program(read_program(BUNDLED, name, stablehlo=True), "compiled")
