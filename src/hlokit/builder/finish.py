"""Makes a module from a built computation and its callees."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule


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
