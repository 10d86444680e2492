"""The ops that are written: opcode to the rule that prints it."""

from __future__ import annotations

from hlokit.stablehlo.printer import collectives, control, elementwise, movement, products, reductions
from hlokit.stablehlo.printer.site import Rule

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **products.RULES,
    **reductions.RULES,
    **control.RULES,
    **collectives.RULES,
}
