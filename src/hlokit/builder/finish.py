"""What makes a module of a built computation: its callees come along, and names become unique."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.hlo.names import Names


def adopt_callees(module: HloModule) -> None:
    """Puts every computation that is called into the module: as it is, or a copy of one that another module owns."""
    copies: dict[Computation, Computation] = {}
    pending = [module.entry]
    while pending:
        for instruction in pending.pop().instructions:
            if not instruction.called:
                continue
            for callee in instruction.called:
                if callee not in copies:
                    own = callee if callee.module is None else callee.clone(callee.name)
                    copies[callee] = module.add_computation(own)
                    pending.append(own)
            instruction.called = tuple(copies[c] for c in instruction.called)


def settle(module: HloModule) -> None:
    """Brings the module to the form that printing and parsing it would give (HPRINT-9).

    Instructions stand in post-order, which decides the order of computations, and names are unique in that order.
    """
    for computation in module.all_computations:
        computation.reorder(computation.post_order())
    computations, instructions = Names(), Names()
    for computation in module.computations():
        computation.name = computations.unique(computation.name)
        for instruction in computation.instructions:
            instruction.name = instructions.unique(instruction.name)
