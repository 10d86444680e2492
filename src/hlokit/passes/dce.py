"""dce: removes instructions that neither the result nor a side effect needs, and computations that are not called."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import Pass


class DeadCode(Pass):
    """Removes dead instructions (parameters stay) and uncalled computations."""

    name = "dce"

    def run(self, module: HloModule) -> bool:
        removed = sum(computation.remove_dead() for computation in module.all_computations)
        live = reachable(module)
        for computation in module.all_computations:
            if computation not in live:
                module.remove_computation(computation)
                removed += 1
        return removed > 0


def reachable(module: HloModule) -> set[Computation]:
    """The entry and every computation that it calls, directly or not."""
    live, pending = {module.entry}, [module.entry]
    while pending:
        for instruction in pending.pop().instructions:
            for callee in instruction.called:
                if callee not in live:
                    live.add(callee)
                    pending.append(callee)
    return live
