"""computation-deduplicator: merges equal functions that instructions apply, such as reducers."""

from __future__ import annotations

from hlokit.analysis.functions import Functions
from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import Pass


class ComputationDeduplicator(Pass):
    """One computation for all equal ones that folds, scatters, sorts, maps and collectives call.

    What control flow calls stays: other passes change a loop's body for that loop alone.
    """

    name = "computation-deduplicator"

    def run(self, module: HloModule) -> bool:
        applied: set[Computation] = set()
        apart = {module.entry}
        for computation in module.all_computations:
            for instruction in computation.instructions:
                if instruction.called:
                    (apart if instruction.op.form == "control" else applied).update(instruction.called)
        functions = Functions()
        first: dict[int, Computation] = {}
        one_of: dict[Computation, Computation] = {}
        for computation in module.computations():
            if computation in applied and computation not in apart:
                kept = first.setdefault(functions.number(computation), computation)
                if kept is not computation:
                    one_of[computation] = kept
        for computation in module.all_computations:
            for instruction in computation.instructions if one_of else ():
                if instruction.called:
                    instruction.called = tuple(one_of.get(callee, callee) for callee in instruction.called)
        for computation in one_of:
            module.remove_computation(computation)
        return bool(one_of)
