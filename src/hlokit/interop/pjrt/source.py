"""Programs as JAX hands them over, as modules."""

from __future__ import annotations

from hlokit.errors import UnsupportedError
from hlokit.hlo.module import HloModule

FORMAT = "mlir"


def module_of(code: bytes) -> HloModule:
    """The module in a StableHLO artifact, or in StableHLO or HLO text. Raises ParseError and UnsupportedError."""
    if not code.startswith(b"ML\xefR"):
        from hlokit.api import parse

        return parse(code)
    try:
        from hlokit.stablehlo.artifact import parse_artifact  # pyright: ignore
    except ImportError:
        return _by_jaxlib(code)
    return parse_artifact(code)


def _by_jaxlib(code: bytes) -> HloModule:
    from jax._src.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    from hlokit.api import parse

    context = mlir.make_ir_context()
    with context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, code)
        except Exception as error:
            raise UnsupportedError(f"jaxlib cannot read the artifact: {error}") from None
        return parse(str(module))
