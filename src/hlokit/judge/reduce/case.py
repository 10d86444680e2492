"""Case: a program and its arguments, as a reduction changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlokit.errors import HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import is_sequence
from hlokit.hlo.verifier import verify
from hlokit.types.shape import Shape


@dataclass
class Case:
    """A module with the arguments that it is run with, if any are known.

    values   values that instructions of the entry had in the run that began the reduction, by name: what takes the
             place of an instruction that becomes a parameter
    """

    module: HloModule
    arguments: list[Any] | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def copy(self) -> Case:
        arguments = None if self.arguments is None else list(self.arguments)
        return Case(self.module.clone(), arguments, self.values)

    @property
    def size(self) -> int:
        """The number of instructions, of all computations."""
        return sum(len(c) for c in self.module.all_computations)

    @property
    def key(self) -> str:
        """The same for the same module; arguments follow from it."""
        return self.module.to_text()

    def finish(self, *, keeps_called: bool = False) -> bool:
        """Removes what is dead or not called and checks the module. False if it is not legal.

        `keeps_called`: what is dead in called computations stays. An engine runs it too, and may fail there.
        """
        module = self.module
        try:
            for computation in [module.entry] if keeps_called else module.all_computations:
                computation.remove_dead()
            _remove_uncalled(module)
            _drop_header(module)
            module.settle()
            verify(module)
        except HlokitError:
            return False
        return True

    def find(self, computation: str, instruction: str) -> Instruction | None:
        """The instruction of that name in the computation of that name."""
        for one in self.module.all_computations:
            if one.name == computation:
                return next((i for i in one.instructions if i.name == instruction), None)
        return None


def _remove_uncalled(module: HloModule) -> None:
    called = {module.entry}
    stack = [module.entry]
    while stack:
        for callee in {c for i in stack.pop().instructions for c in i.called} - called:
            called.add(callee)
            stack.append(callee)
    for computation in module.all_computations:
        if computation not in called:
            module.remove_computation(computation)


def _drop_header(module: HloModule) -> None:
    """Drops what the header says of parameters and results that have other shapes now, or another number."""
    signature = module.entry.signature()
    shapes = [*signature.parameters, signature.result]
    said = [*(module.parameter_layouts or signature.parameters), module.result_layout or signature.result]
    if [s.logical for s in shapes] != [s.logical for s in said]:
        module.parameter_layouts = module.result_layout = None
        module.input_output_alias, module.buffer_donor = [], []
    if len(module.allow_spmd_sharding_propagation_to_parameters) not in (1, len(signature.parameters)):
        module.allow_spmd_sharding_propagation_to_parameters = ()
    results = len(signature.result.elements) if signature.result.is_tuple else 1
    if len(module.allow_spmd_sharding_propagation_to_output) not in (1, results):
        module.allow_spmd_sharding_propagation_to_output = ()


def fitted(value: Any, shape: Shape) -> Any:
    """A value of the shape, with the elements of `value` as far as it has them; ones where there is no value."""
    if shape.is_tuple:
        parts: Sequence[Any] = value if is_sequence(value) else [None] * len(shape.elements)
        return tuple(map(fitted, parts, shape.elements))
    if not shape.is_array:
        return None
    if value is None:
        return np.ones(shape.dimensions, shape.dtype.numpy)
    array = np.asarray(value)
    if array.shape == shape.dimensions:
        return array
    if array.ndim != shape.rank or 0 in array.shape:
        return np.resize(array, shape.dimensions) if array.size else np.ones(shape.dimensions, shape.dtype.numpy)
    places = (np.arange(size) % have for size, have in zip(shape.dimensions, array.shape, strict=True))
    return array[np.ix_(*places)]
