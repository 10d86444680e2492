"""The two functions of `_xla.mlir`, which convert between computations and the arguments of `client.compile`."""

from __future__ import annotations

import hlokit as hk
from hlokit.interop.xla_client.computation import MlirModule, XlaComputation
from hlokit.interop.xla_client.errors import raises_status, unimplemented


def xla_computation_to_mlir_module(computation: XlaComputation, emit_stable_hlo: bool = True) -> MlirModule:
    """The computation in a form that `client.compile` takes."""
    return MlirModule(computation)


@raises_status
def mlir_module_to_xla_computation(
    mlir_module: MlirModule | str | bytes, use_tuple_args: bool = False, return_tuple: bool = False
) -> XlaComputation:
    """The computation that xla_computation_to_mlir_module was given, or that of StableHLO (text, portable artifact).

    XlaRuntimeError for what cannot be read, and UNIMPLEMENTED for tuples of arguments or results.
    """
    if use_tuple_args or return_tuple:
        raise unimplemented("mlir_module_to_xla_computation with tuples of arguments or results")
    if isinstance(mlir_module, MlirModule):
        return mlir_module.computation
    return XlaComputation.of(hk.parse(mlir_module))
