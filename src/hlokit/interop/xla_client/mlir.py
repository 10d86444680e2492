"""The two functions of `_xla.mlir` by which programs pass through to `client.compile`."""

from __future__ import annotations

from typing import Any

from hlokit.interop.xla_client.computation import MlirModule, XlaComputation
from hlokit.interop.xla_client.errors import unimplemented


def xla_computation_to_mlir_module(computation: XlaComputation, emit_stable_hlo: bool = True) -> MlirModule:
    """The computation in a form that `client.compile` takes."""
    return MlirModule(computation)


def mlir_module_to_xla_computation(
    mlir_module: Any, use_tuple_args: bool = False, return_tuple: bool = False
) -> XlaComputation:
    """The computation that xla_computation_to_mlir_module was given. XlaRuntimeError for MLIR itself."""
    if isinstance(mlir_module, MlirModule) and not use_tuple_args and not return_tuple:
        return mlir_module.computation
    raise unimplemented("MLIR (StableHLO) programs are not read yet")
