"""defuser: replaces fusions by their computations, for a compiler that does its own fusion."""

from __future__ import annotations

from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Fusion
from hlokit.passes.dce import DeadCode
from hlokit.passes.pipeline import Pass


class Defuser(Pass):
    """fusion(args) == the computation's instructions on args; callees first, so inner fusions too.

    Fusions that wait for others, or others for them, stay.
    """

    name = "defuser"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.computations():
            waited_for = {p for i in computation.instructions for p in i.control_predecessors}
            for fusion in computation.post_order():
                if isinstance(fusion.op, Fusion) and not fusion.control_predecessors and fusion not in waited_for:
                    computation.inline(fusion)
                    changed = True
        if changed:
            DeadCode().run(module)
        return changed
