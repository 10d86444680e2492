"""dynamic-padder: replaces bounded dynamic dimensions by static ones and separate sizes.

Its rules are imported by programs that have such dimensions: others need not wait 3 ms for them.
"""

from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import Pass


class DynamicPadder(Pass):
    """Dynamic arrays lie in buffers of their bounds, their sizes are s32 values beside them.

    What lies beyond the sizes is masked with a neutral value before an op that mixes elements along the dimension.
    It changes what the program takes and gives where that is dynamic: `padder.padded` says how. Sizes outside a bound,
    an error in the reference (SDS-6), are clamped. Raises UnsupportedError for what it cannot do.
    """

    name = "dynamic-padder"

    def run(self, module: HloModule) -> bool:
        from hlokit.passes.dynamic_padder.padder import pad

        return pad(module) is not None
